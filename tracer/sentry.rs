// SPDX-License-Identifier: GPL-2.0

//! Whether an event of the device was lost, with no wake-up of its own.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

use super::{
    block::Reader,
    desk::{
        told,
        Desk, //
    },
    event::Stamp,
    memory::last_event_of,
    timestamp::Timestamp53, //
};
use crate::{
    health::Companion,
    kapi::dma::DmaBuf, //
};

/// Looks with the watchdog whether an event was lost: the thread itself sleeps without a timer.
pub(super) struct Sentry {
    desk: Arc<Desk>,
    memory: Arc<DmaBuf>,
    /// Where the next block's last event is while an event is waited for; else [`OFF`](Self::OFF).
    place: Atomic<usize>,
    /// Time of the last block read, or [`NONE`](Self::NONE).
    last: Atomic<u64>,
    /// For how many ticks a newer one has been there.
    ticks: Atomic<u32>,
    missed: Atomic<u64>,
}

impl Sentry {
    const OFF: usize = usize::MAX;
    const NONE: u64 = u64::MAX;

    /// An event that takes so many ticks of the watchdog is lost.
    const PATIENCE: u32 = 10;

    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(desk: Arc<Desk>, memory: Arc<DmaBuf>) -> Result<Arc<Self>> {
        let this = Self {
            desk,
            memory,
            place: Atomic::new(Self::OFF),
            last: Atomic::new(Self::NONE),
            ticks: Atomic::new(0),
            missed: Atomic::new(0),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// From now on an event is waited for, and `reader` reads on then; or not.
    pub(super) fn watch(&self, reader: Option<&Reader>) {
        self.ticks.store(0, Relaxed);
        let last = reader.and_then(Reader::last);
        self.last
            .store(last.map_or(Self::NONE, Timestamp53::get), Relaxed);
        let place = reader.map_or(Self::OFF, |reader| last_event_of(reader.next_block()));
        self.place.store(place, Relaxed);
    }

    /// Events that did not come.
    pub(super) fn missed(&self) -> u64 {
        self.missed.load(Relaxed)
    }
}

impl Companion for Sentry {
    fn tick(&self) {
        let Ok(word) = self.memory.read_word(self.place.load(Relaxed)) else {
            return;
        };
        let last = match self.last.load(Relaxed) {
            Self::NONE => None,
            last => Some(Timestamp53::new(last)),
        };
        let is_new =
            Stamp::time_of(word).is_some_and(|time| last.is_none_or(|last| time.is_after(last)));
        // A mix of two states at worst makes the thread look once in vain.
        if !is_new {
            self.ticks.store(0, Relaxed);
        } else if self.ticks.fetch_add(1, Relaxed) + 1 == Self::PATIENCE {
            self.missed.add(1, Relaxed);
            self.desk.tell(told::TRACES);
        }
    }
}
