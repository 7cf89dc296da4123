// SPDX-License-Identifier: GPL-2.0

//! Event queues: what the device tells without being asked (hardware.md 3).
//!
//! Lives here: creation, service and destruction of event queues, their interrupt vectors, and the
//! way of events to typed subscribers. Owns: queue memory, vectors' handlers, subscriptions. May be
//! called by: device and all rooms after it; calls cmdif, segment, layouts and kapi.
//!
//! Queues are served in the interrupt's thread, [`BUDGET`] entries at a time, and armed when they
//! are empty (or when others have waited long enough: the device then fires again).
//!
//! Pure, and on the host as well: [`ring`], [`eqe`], [`mask`].

pub(crate) mod dispatch;
pub(crate) mod eqe;
pub(crate) mod mask;
pub(crate) mod ring;

use core::fmt;

use kernel::{
    new_mutex,
    prelude::*,
    str::CString,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        barrier::{
            dma_mb,
            Read, //
        },
        Arc,
        Mutex, //
    }, //
};

use self::{
    dispatch::{
        Dispatcher,
        Subscriber,
        Subscription, //
    },
    eqe::{
        Event,
        EQE, //
    },
    mask::Mask,
    ring::{
        Ring,
        BUDGET, //
    },
};
use crate::{
    cmdif::{
        command::DestroyEq,
        os,
        slots::Class,
        CommandError,
        CommandId,
        Interface,
        Recover, //
    },
    kapi::{
        dma::{
            Dma,
            DmaBuf,
            DEVICE_PAGE, //
        },
        irq::{
            Handler,
            ThreadedIrq,
            Vectors, //
        }, //
    },
    layouts::{
        commands::{
            CreateEqIn,
            CreateEqOut, //
        },
        events::Eqe,
        EventType,
        Opcode, //
    },
    segment::Segment,
};

/// How often a vector's queues are served in one interrupt before they are armed, empty or not.
const MAX_ROUNDS: u32 = 16;

/// One event queue.
#[pin_data]
pub(crate) struct Queue<'a> {
    name: &'static str,
    segment: Arc<Segment<'a>>,
    dispatcher: Arc<Dispatcher<'a>>,
    buf: Arc<DmaBuf>,
    number: u8,
    vector: u32,
    uar: u32,
    #[pin]
    ring: Mutex<Ring>,
    events: Atomic<u64>,
}

impl Queue<'_> {
    /// Takes at most [`BUDGET`] entries, and tells the device how far it got. Gives the number.
    fn service(&self) -> u32 {
        let mut ring = self.ring.lock();
        let mut taken = 0;
        while taken < BUDGET {
            let offset = ring.index() * EQE;
            let Ok(owner) = self.buf.read_u8(offset + eqe::OWNER_OFFSET) else {
                break;
            };
            if !ring.is_ours(owner) {
                break;
            }
            // The device writes the owner byte last.
            dma_mb(Read);
            let mut entry = [0; EQE];
            if self.buf.read(offset, &mut entry).is_err() {
                break;
            }
            ring.advance();
            taken += 1;
            let what = EventType(Eqe::view(&entry).r#type());
            self.dispatcher.dispatch(what, &Event::decode(&entry));
        }
        if taken != 0 {
            self.events.add(u64::from(taken), Relaxed);
            // Before the device can catch up with the entries just taken.
            let _ = self.segment.update_eq(self.uar, ring.doorbell(self.number));
        }
        taken
    }

    /// Lets the device interrupt at the next entry, or at once if there is one.
    fn arm(&self) {
        let doorbell = self.ring.lock().doorbell(self.number);
        let _ = self.segment.arm_eq(self.uar, doorbell);
    }
}

impl Recover for Queue<'_> {
    fn poll(&self) {
        self.service();
        self.arm();
    }
}

/// The queues of one interrupt vector.
#[pin_data]
pub(crate) struct VectorQueues<'a> {
    #[pin]
    queues: Mutex<KVec<Arc<Queue<'a>>>>,
    interrupts: Atomic<u64>,
}

impl Handler for Arc<VectorQueues<'_>> {
    fn handle(&self) {
        self.interrupts.add(1, Relaxed);
        let queues = self.queues.lock();
        for _ in 0..MAX_ROUNDS {
            let mut more = false;
            for queue in queues.iter() {
                more |= queue.service() == BUDGET;
            }
            if !more {
                break;
            }
        }
        for queue in queues.iter() {
            queue.arm();
        }
    }
}

/// One interrupt vector with its handler.
pub(crate) struct Vector<'a> {
    index: u32,
    queues: Arc<VectorQueues<'a>>,
    // Freed first on drop, though the order does not matter: the handler has a reference.
    _irq: Pin<KBox<ThreadedIrq<'a, Arc<VectorQueues<'a>>>>>,
}

impl<'a> Vector<'a> {
    /// Attaches a handler to vector `index`; `name` is what /proc/interrupts shows.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what requesting the interrupt reports.
    pub(crate) fn new(vectors: Arc<Vectors<'a>>, index: u32, name: CString) -> Result<Self> {
        let queues = Arc::pin_init(
            try_pin_init!(VectorQueues {
                queues <- new_mutex!(KVec::new(), "mlx5_rs_vector"),
                interrupts: Atomic::new(0),
            }? Error),
            GFP_KERNEL,
        )?;
        let irq = ThreadedIrq::new(vectors, index, name, queues.clone())?;
        Ok(Self {
            index,
            queues,
            _irq: irq,
        })
    }
}

/// What kind of queue to create.
pub(crate) struct Spec {
    /// What people call it.
    pub(crate) name: &'static str,
    /// log2 of the number of entries.
    pub(crate) log_entries: u8,
    /// Which events it takes; none for a completion event queue.
    pub(crate) mask: Mask,
    /// The UAR page whose doorbell it uses.
    pub(crate) uar: u32,
    /// Whose it is: 0, the kernel's, or
    /// [`SHARED_UID`](crate::cmdif::uctx::SHARED_UID), everybody's.
    pub(crate) uid: u16,
}

/// What all queues of a device are made with.
pub(crate) struct Maker<'a> {
    dma: Dma<'a>,
    segment: Arc<Segment<'a>>,
    cmd: Arc<Interface<'a>>,
    dispatcher: Arc<Dispatcher<'a>>,
}

impl<'a> Maker<'a> {
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        dma: Dma<'a>,
        segment: Arc<Segment<'a>>,
        cmd: Arc<Interface<'a>>,
    ) -> Result<Self> {
        let dispatcher = Dispatcher::new(dma.dev())?;
        Ok(Self {
            dma,
            segment,
            cmd,
            dispatcher,
        })
    }

    /// Where events are subscribed to.
    pub(crate) fn dispatcher(&self) -> &Arc<Dispatcher<'a>> {
        &self.dispatcher
    }

    /// Creates a queue that interrupts by `vector`.
    ///
    /// # Errors
    ///
    /// [`CommandError`] of CREATE_EQ, also when the driver failed before it.
    pub(crate) fn create(
        &self,
        vector: &Vector<'a>,
        spec: &Spec,
    ) -> Result<Attached<'a>, CommandError> {
        let id = CommandId {
            opcode: Opcode::CREATE_EQ,
            op_mod: 0,
            uid: spec.uid,
        };
        let fail = |error| CommandError {
            id,
            fault: os(error),
        };
        let ring = Ring::new(spec.log_entries).ok_or(EINVAL).map_err(fail)?;
        let buf = self.memory(&ring).map_err(fail)?;
        let mut input = self.request(vector, spec, &buf).map_err(fail)?;
        let mut output = CreateEqOut::new();
        let created = self
            .cmd
            .exec_raw(id, Class::Regular, &mut input, output.as_bytes_mut());
        if let Err(error) = created {
            if error.fault.leaves_device_busy() {
                self.cmd.leave_behind(buf);
            }
            return Err(error);
        }
        let number = output.eq_number();
        // From here on an error must destroy the queue: `Attached` does.
        let attached = Attached {
            cmd: self.cmd.clone(),
            vector: vector.queues.clone(),
            number,
            buf: buf.clone(),
        };
        let queue = Arc::pin_init(
            try_pin_init!(Queue {
                name: spec.name,
                segment: self.segment.clone(),
                dispatcher: self.dispatcher.clone(),
                buf,
                number,
                vector: vector.index,
                uar: spec.uar,
                ring <- new_mutex!(ring, "mlx5_rs_eq"),
                events: Atomic::new(0),
            }? Error),
            GFP_KERNEL,
        )
        .map_err(fail)?;
        vector
            .queues
            .queues
            .lock()
            .push(queue.clone(), GFP_KERNEL)
            .map_err(|_| fail(ENOMEM))?;
        queue.arm();
        Ok(attached)
    }

    /// Memory for a ring whose entries all belong to the device.
    fn memory(&self, ring: &Ring) -> Result<Arc<DmaBuf>> {
        let bytes = (ring.entries() as usize) * EQE;
        let buf = self.dma.buffer(bytes.div_ceil(DEVICE_PAGE))?;
        for entry in 0..ring.entries() as usize {
            buf.write_u8(entry * EQE + eqe::OWNER_OFFSET, ring::OWNER_INIT)?;
        }
        Ok(Arc::new(buf, GFP_KERNEL)?)
    }

    fn request(&self, vector: &Vector<'_>, spec: &Spec, buf: &DmaBuf) -> Result<KVec<u8>> {
        let pages = buf.len() / DEVICE_PAGE;
        let len = CreateEqIn::PAS.len_with(pages).ok_or(EINVAL)?;
        let mut input = KVec::from_elem(0, len, GFP_KERNEL)?;
        let mut request = CreateEqIn::of_mut(&mut input).ok_or(EINVAL)?;
        request.set_event_bitmask(spec.mask);
        request
            .eq_context_entry_mut()
            .try_set_log_eq_size(spec.log_entries)
            .and_then(|eqc| eqc.try_set_uar_page(spec.uar))
            .and_then(|eqc| eqc.try_set_intr(u16::try_from(vector.index).unwrap_or(u16::MAX)))
            .map_err(|_| EINVAL)?;
        for (i, addr) in buf.page_addrs().enumerate() {
            CreateEqIn::PAS.set(&mut input, i, addr).ok_or(EINVAL)?;
        }
        Ok(input)
    }
}

/// A queue of the device; destroyed on drop. Nobody hears of its events any more then, and its
/// memory is kept if the device did not confirm.
pub(crate) struct Attached<'a> {
    cmd: Arc<Interface<'a>>,
    vector: Arc<VectorQueues<'a>>,
    number: u8,
    buf: Arc<DmaBuf>,
}

impl<'a> Attached<'a> {
    /// The queue itself.
    fn queue(&self) -> Option<Arc<Queue<'a>>> {
        let queues = self.vector.queues.lock();
        queues.iter().find(|q| q.number == self.number).cloned()
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        // Waits for the handler: it holds the lock while it serves.
        let queue = {
            let mut queues = self.vector.queues.lock();
            queues
                .iter()
                .position(|q| q.number == self.number)
                .and_then(|i| queues.remove(i).ok())
        };
        drop(queue);
        let destroyed = self.cmd.exec::<DestroyEq>(0, |input| {
            input.set_eq_number(self.number);
        });
        if let Err(error) = destroyed {
            self.cmd.report_teardown(&error);
            self.cmd.leave_behind(self.buf.clone());
        }
    }
}

/// The command event queue: while it lives, commands wait for events instead of polling.
pub(crate) struct CommandEvents<'a> {
    cmd: Arc<Interface<'a>>,
    // Dropped in this order, after the switch back to polling.
    _attached: Attached<'a>,
    _subscription: Subscription<'a>,
}

impl<'a> CommandEvents<'a> {
    /// Creates the queue and switches to events.
    ///
    /// # Errors
    ///
    /// [`CommandError`] of CREATE_EQ.
    pub(crate) fn new(
        maker: &Maker<'a>,
        vector: &Vector<'a>,
        spec: &Spec,
    ) -> Result<Self, CommandError> {
        let id = CommandId {
            opcode: Opcode::CREATE_EQ,
            op_mod: 0,
            uid: 0,
        };
        let fail = |error| CommandError {
            id,
            fault: os(error),
        };
        struct Completions<'a>(Arc<Interface<'a>>);
        impl Subscriber for Completions<'_> {
            fn event(&self, event: &Event) {
                if let Event::Command { slots } = event {
                    self.0.completed(*slots);
                }
            }
        }
        let completions =
            Arc::new(Completions(maker.cmd.clone()), GFP_KERNEL).map_err(|_| fail(ENOMEM))?;
        let subscription = maker
            .dispatcher
            .subscribe(EventType::CMD, completions)
            .map_err(fail)?;
        let attached = maker.create(vector, spec)?;
        if let Some(queue) = attached.queue() {
            maker.cmd.use_events(queue);
        }
        Ok(Self {
            cmd: maker.cmd.clone(),
            _attached: attached,
            _subscription: subscription,
        })
    }
}

impl Drop for CommandEvents<'_> {
    fn drop(&mut self) {
        self.cmd.use_polling();
    }
}

/// Prints the queues of `vectors` and the events that came.
pub(crate) fn show(
    f: &mut kernel::fmt::Formatter<'_>,
    vectors: &[Arc<VectorQueues<'_>>],
    dispatcher: &Dispatcher<'_>,
) -> fmt::Result {
    writeln!(
        f,
        "{:<12} {:>4} {:>6} {:>8} {:>10} {:>10}",
        "queue", "eqn", "vector", "entries", "ci", "events"
    )?;
    for vector in vectors {
        let queues = vector.queues.lock();
        for queue in queues.iter() {
            let ring = *queue.ring.lock();
            writeln!(
                f,
                "{:<12} {:>4} {:>6} {:>8} {:>10} {:>10}",
                queue.name,
                queue.number,
                queue.vector,
                ring.entries(),
                ring.ci(),
                queue.events.load(Relaxed)
            )?;
        }
    }
    for (index, vector) in vectors.iter().enumerate() {
        writeln!(
            f,
            "vector {index}: {} interrupts",
            vector.interrupts.load(Relaxed)
        )?;
    }
    dispatcher.show(f)
}

impl<'a> Vector<'a> {
    /// What [`show`] prints.
    pub(crate) fn queues(&self) -> Arc<VectorQueues<'a>> {
        self.queues.clone()
    }
}
