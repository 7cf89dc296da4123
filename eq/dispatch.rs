// SPDX-License-Identifier: GPL-2.0

//! Who hears of which event (M3.2).

use core::fmt;

use kernel::{
    device::{
        Bound,
        Device, //
    },
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};

use super::eqe::Event;
use crate::{
    kapi::print::Show,
    layouts::EventType, //
};

/// Hears of events, in process context. It does not wait for a command, which would need the thread
/// that it runs in, and may be called once more while it is being unsubscribed.
pub(crate) trait Subscriber: Send + Sync {
    /// One event.
    fn event(&self, event: &Event);
}

/// Most subscribers of one event type.
const MAX_SUBSCRIBERS: usize = 4;

struct Entry<'a> {
    what: EventType,
    id: u64,
    subscriber: Arc<dyn Subscriber + 'a>,
}

struct Table<'a> {
    entries: KVec<Entry<'a>>,
    next_id: u64,
}

/// The event types of a device and their subscribers.
#[pin_data]
pub(crate) struct Dispatcher<'a> {
    dev: &'a Device<Bound>,
    #[pin]
    table: Mutex<Table<'a>>,
    /// Events by type that came, and that nobody heard.
    seen: KVec<Atomic<u64>>,
    unheard: KVec<Atomic<u64>>,
}

/// Event types that there can be.
const TYPES: usize = 256;

impl<'a> Dispatcher<'a> {
    /// A dispatcher without subscribers.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(dev: &'a Device<Bound>) -> Result<Arc<Self>> {
        fn counters() -> Result<KVec<Atomic<u64>>> {
            let mut counters = KVec::with_capacity(TYPES, GFP_KERNEL)?;
            for _ in 0..TYPES {
                counters.push(Atomic::new(0), GFP_KERNEL)?;
            }
            Ok(counters)
        }
        let seen = counters()?;
        let unheard = counters()?;
        Arc::pin_init(
            try_pin_init!(Self {
                dev,
                table <- new_mutex!(Table { entries: KVec::new(), next_id: 0 }, "mlx5_rs_events"),
                seen,
                unheard,
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Lets `subscriber` hear of all events of type `what` until the subscription is dropped.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or `EBUSY` when the type has its most subscribers.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        what: EventType,
        subscriber: Arc<dyn Subscriber + 'a>,
    ) -> Result<Subscription<'a>> {
        let mut table = self.table.lock();
        if table.entries.iter().filter(|e| e.what == what).count() >= MAX_SUBSCRIBERS {
            return Err(EBUSY);
        }
        let id = table.next_id;
        table.next_id += 1;
        table.entries.push(
            Entry {
                what,
                id,
                subscriber,
            },
            GFP_KERNEL,
        )?;
        Ok(Subscription {
            dispatcher: self.clone(),
            id,
        })
    }

    /// Tells everybody who wants to know. `what` is the type of `event`.
    pub(super) fn dispatch(&self, what: EventType, event: &Event) {
        let index = usize::from(what.0);
        if let Some(seen) = self.seen.get(index) {
            seen.add(1, Relaxed);
        }
        // Called without the lock, so that a subscriber can subscribe and unsubscribe.
        let mut hearers: [Option<Arc<dyn Subscriber + 'a>>; MAX_SUBSCRIBERS] =
            [const { None }; MAX_SUBSCRIBERS];
        {
            let table = self.table.lock();
            let matching = table.entries.iter().filter(|e| e.what == what);
            for (place, entry) in hearers.iter_mut().zip(matching) {
                *place = Some(entry.subscriber.clone());
            }
        }
        let mut heard = false;
        for hearer in hearers.iter().flatten() {
            hearer.event(event);
            heard = true;
        }
        if heard {
            return;
        }
        let Some(unheard) = self.unheard.get(index) else {
            return;
        };
        // The first of its kind only: the device decides how many come.
        if unheard.fetch_add(1, Relaxed) == 0 {
            dev_info!(
                self.dev,
                "event {} has no subscriber; more of the kind are only counted\n",
                Show(what)
            );
        }
    }

    /// Prints how many events of each type came.
    pub(super) fn show(&self, f: &mut kernel::fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<32} {:>12} {:>12}", "event", "seen", "unheard")?;
        for (what, (seen, unheard)) in (0_u8..=u8::MAX).zip(self.seen.iter().zip(&self.unheard)) {
            let seen = seen.load(Relaxed);
            if seen != 0 {
                let name = EventType(what).name().unwrap_or("unknown");
                writeln!(
                    f,
                    "{name:<26} {what:#04x} {seen:>14} {:>12}",
                    unheard.load(Relaxed)
                )?;
            }
        }
        Ok(())
    }
}

/// Ends when dropped. A call under way may still end after that.
pub(crate) struct Subscription<'a> {
    dispatcher: Arc<Dispatcher<'a>>,
    id: u64,
}

impl Drop for Subscription<'_> {
    fn drop(&mut self) {
        let entry = {
            let mut table = self.dispatcher.table.lock();
            table
                .entries
                .iter()
                .position(|e| e.id == self.id)
                .and_then(|i| table.entries.remove(i).ok())
        };
        // Dropped without the lock: it may be the last reference to the subscriber.
        drop(entry);
    }
}
