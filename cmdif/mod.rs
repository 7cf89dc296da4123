// SPDX-License-Identifier: GPL-2.0

//! The command interface: one queue of commands to the device (hardware.md 2).
//!
//! Lives here: the transport of commands of any length, who owns which slot and mailbox, what a
//! failure says, statistics. Owns: the queue page, the mailboxes, and memory that a failed command
//! left with the device. May be called by: pages, caps, eq, device and all rooms after them; calls
//! segment, layouts and kapi.
//!
//! [`Interface::exec`] runs a typed command for the kernel, [`uctx::Uctx::exec`] one for a user, and
//! [`Interface::exec_raw`] bytes. A thread waits for its own command only. Replies are noticed by polling until [`Interface::use_events`] says that the
//! command event queue works.
//!
//! A command's life is in [`slots`], which commands are sent while a device goes down in [`gate`].
//!
//! Pure, and on the host as well: [`wire`], [`slots`], [`gate`], [`error`].

pub(crate) mod command;
pub(crate) mod error;
pub(crate) mod gate;
mod mailbox;
pub(crate) mod register;
pub(crate) mod slots;
pub(crate) mod stats;
pub(crate) mod uctx;
pub(crate) mod wire;

use kernel::{
    device::{
        Bound,
        Device, //
    },
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        barrier::{
            dma_mb,
            Read,
            Write, //
        },
        Arc,
        Mutex,
        SpinLock, //
    },
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    }, //
};

pub(crate) use self::error::{
    CommandError,
    CommandId,
    Fault, //
};
use self::{
    command::Command,
    gate::Gate,
    mailbox::{
        Chain,
        Pool, //
    },
    slots::{
        Class,
        Completed,
        Slot,
        SlotTable,
        Ticket,
        MAX_SLOTS, //
    },
    stats::{
        Phases,
        Stats, //
    },
    wire::{
        DESCRIPTOR,
        INLINE,
        MAX_MESSAGE, //
    },
};
use crate::{
    kapi::{
        self,
        completion::Completion,
        dma::{
            Dma,
            DmaBuf, //
        },
        print::{
            Show,
            Throttle, //
        }, //
    },
    layouts::{
        command::{
            CmdIn,
            CmdOut, //
        },
        Field,
        Layout,
        Opcode,
        Status, //
    },
    segment::Segment,
};

/// An errno of the kernel as a fault.
pub(crate) fn os(error: Error) -> Fault {
    Fault::Os(-error.to_errno())
}

/// Looks for events that came without an interrupt.
pub(crate) trait Recover: Send + Sync {
    /// Polls the command event queue once.
    fn poll(&self);
}

/// The mailboxes of a command, while the device may write to them.
struct Chains {
    input: Chain,
    output: Chain,
}

/// What the slots are used for at a moment.
pub(crate) struct Usage {
    /// Slots that are not free.
    pub(crate) busy: usize,
    /// Those of them that the device has, and nobody waits for.
    pub(crate) orphaned: usize,
    /// Commands that wait for a slot.
    pub(crate) queued: u32,
    /// Completions of slots that had no command, so far.
    pub(crate) spurious: u64,
}

struct Slots {
    table: SlotTable,
    orphans: [Option<Chains>; MAX_SLOTS],
    spurious: u64,
}

/// One command queue.
#[pin_data]
pub(crate) struct Interface<'a> {
    dev: &'a Device<Bound>,
    segment: Arc<Segment<'a>>,
    // Written by the device until bus mastering is off; the owner of the interface sees to that.
    queue: DmaBuf,
    stride: usize,
    #[pin]
    pool: Pool<'a>,
    #[pin]
    slots: SpinLock<Slots>,
    /// One for each slot: its command is done.
    done: KVec<Pin<KBox<Completion>>>,
    /// Counts free slots, by class.
    #[pin]
    regular_free: Completion,
    #[pin]
    pages_free: Completion,
    timeout_ms: Atomic<u32>,
    going_down: Atomic<bool>,
    events: Atomic<bool>,
    down: Atomic<bool>,
    lost: Atomic<bool>,
    /// Refusals that monitors were told of, or could have been.
    refusals: Throttle,
    #[pin]
    recover: Mutex<Option<Arc<dyn Recover + 'a>>>,
    #[pin]
    left_behind: Mutex<KVec<Arc<DmaBuf>>>,
    stats: Arc<Stats>,
}

/// How long a command waits for a free slot, in ms, beyond the time that all before it have.
const SLOT_GRACE_MS: u32 = 1_000;

/// How much longer a command that timed out is waited for, in ms: what is late is usually not very
/// late, and a slot is worth it. Never more than the timeout itself.
const GRACE_MS: u32 = 2_000;

/// How long the device has for a command on the way down, in ms (hardware.md 2.2, TEARDOWN), and how
/// much longer it is waited for.
const TEARDOWN_MS: u32 = 3_000;
const TEARDOWN_GRACE_MS: u32 = 500;

/// How often a waiter looks whether the device is still there, in ms.
const LOOK_MS: u32 = 200;

/// How long the device has for a command when it does not say (hardware.md 2.2).
const DEFAULT_TIMEOUT_MS: u32 = 60_000;

impl<'a> Interface<'a> {
    /// Sets the queue up in polling mode: `shape` is the checked slot count and stride. Nothing is
    /// told to the device yet.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a slot count that cannot be, `ENOMEM`.
    pub(crate) fn new(
        dma: &Dma<'a>,
        segment: Arc<Segment<'a>>,
        (count, stride): (usize, usize),
    ) -> Result<Arc<Self>> {
        let table = SlotTable::new(count).ok_or(EINVAL)?;
        let mut done = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            done.push(KBox::pin_init(Completion::new(), GFP_KERNEL)?, GFP_KERNEL)?;
        }
        let queue = dma.buffer(1)?;
        let stats = Arc::pin_init(Stats::new(), GFP_KERNEL)?;
        let this = Arc::pin_init(
            try_pin_init!(Self {
                dev: dma.dev(),
                segment,
                queue,
                stride,
                pool <- Pool::new(dma.clone()),
                slots <- new_spinlock!(
                    Slots { table, orphans: [const { None }; MAX_SLOTS], spurious: 0 },
                    "mlx5_rs_slots"
                ),
                done,
                regular_free <- Completion::new(),
                pages_free <- Completion::new(),
                timeout_ms: Atomic::new(DEFAULT_TIMEOUT_MS),
                going_down: Atomic::new(false),
                events: Atomic::new(false),
                down: Atomic::new(false),
                lost: Atomic::new(false),
                refusals: Throttle::new(),
                recover <- new_mutex!(None, "mlx5_rs_recover"),
                left_behind <- new_mutex!(KVec::new(), "mlx5_rs_left_behind"),
                stats,
            }? Error),
            GFP_KERNEL,
        )?;
        for _ in 1..count {
            this.regular_free.signal();
        }
        this.pages_free.signal();
        Ok(this)
    }

    /// Tells the device where the queue is.
    pub(crate) fn start(&self) -> Result {
        self.segment.set_queue_address(self.queue.addr())
    }

    /// Slots in the queue.
    pub(crate) fn slot_count(&self) -> usize {
        self.done.len()
    }

    /// Sets how long the device has for each command, in milliseconds.
    pub(crate) fn set_timeout_ms(&self, ms: u32) {
        self.timeout_ms.store(ms.max(1), Relaxed);
    }

    /// How long the device has for each command, in milliseconds.
    pub(crate) fn timeout_ms(&self) -> u32 {
        let ms = self.timeout_ms.load(Relaxed);
        if self.going_down.load(Relaxed) {
            ms.min(TEARDOWN_MS)
        } else {
            ms
        }
    }

    /// How much longer than `ms` milliseconds a command is waited for.
    fn grace_ms(&self, ms: u32) -> u32 {
        let most = if self.going_down.load(Relaxed) {
            TEARDOWN_GRACE_MS
        } else {
            GRACE_MS
        };
        ms.min(most)
    }

    /// From now on commands have less time, since nobody waits a minute for an unbind, also those that the
    /// device has already, and only those are sent that undo something: who waits for a slot with another
    /// one fails now.
    pub(crate) fn begin_teardown(&self) {
        self.going_down.store(true, Relaxed);
        self.regular_free.signal();
    }

    fn gate(&self) -> Gate {
        if self.is_down() {
            Gate::Shut
        } else if self.going_down.load(Relaxed) {
            Gate::Closing
        } else {
            Gate::Open
        }
    }

    /// From now on replies are announced by events; `recover` finds those whose interrupt was lost.
    pub(crate) fn use_events(&self, recover: Arc<dyn Recover + 'a>) {
        *self.recover.lock() = Some(recover);
        self.events.store(true, Relaxed);
    }

    /// From now on replies are polled for. No other command is in flight.
    pub(crate) fn use_polling(&self) {
        self.events.store(false, Relaxed);
        let recover = self.recover.lock().take();
        // Outside the lock: this may be the last reference to the event queue.
        drop(recover);
    }

    /// Whether replies are announced by events.
    pub(crate) fn uses_events(&self) -> bool {
        self.events.load(Relaxed)
    }

    /// No command is sent any more, and all that wait fail now.
    pub(crate) fn cut_off(&self) {
        self.down.store(true, Relaxed);
        for done in &self.done {
            done.signal();
        }
        self.regular_free.signal_all();
        self.pages_free.signal_all();
    }

    /// The same because the device does not answer.
    pub(crate) fn lose_device(&self) {
        self.lost.store(true, Relaxed);
        self.cut_off();
    }

    /// Why no command is sent any more.
    fn down_fault(&self) -> Fault {
        if self.lost.load(Relaxed) {
            Fault::Gone
        } else {
            Fault::Down
        }
    }

    /// Whether [`cut_off`](Self::cut_off) was called.
    pub(crate) fn is_down(&self) -> bool {
        self.down.load(Relaxed)
    }

    /// Whether it is neither down nor [being taken down](Self::begin_teardown).
    pub(crate) fn is_open(&self) -> bool {
        self.gate() == Gate::Open
    }

    /// Statistics per operation.
    pub(crate) fn stats(&self) -> Arc<Stats> {
        self.stats.clone()
    }

    /// What the slots are used for.
    pub(crate) fn usage(&self) -> Usage {
        let slots = self.slots.lock();
        let table = &slots.table;
        Usage {
            busy: table.count() - table.in_state(Slot::Free),
            orphaned: table.in_state(Slot::Orphan) + table.in_state(Slot::Aborted),
            queued: table.queued(Class::Regular) + table.queued(Class::Pages),
            spurious: slots.spurious,
        }
    }

    /// Keeps memory that the device may still write to, because the command that would have ended
    /// that failed, until the interface goes: bus mastering is off by then.
    pub(crate) fn leave_behind(&self, buf: Arc<DmaBuf>) {
        let mut left = self.left_behind.lock();
        if left.reserve(1, GFP_KERNEL).is_ok() {
            let _ = left.push_within_capacity(buf);
        } else {
            dev_err!(
                self.dev,
                "no memory to keep track of {} bytes that the device may write: they are lost\n",
                buf.len()
            );
            // Neither can it be freed: a reference is lost.
            core::mem::forget(buf);
        }
    }

    /// Logs a command that failed on the way down, where nobody can be told. If it took its full time, no
    /// further one is sent: each would.
    pub(crate) fn report_teardown(&self, error: &CommandError) {
        // After a cut-off every command fails: that was said once.
        if !self.is_down() {
            dev_err!(self.dev, "teardown: {}\n", Show(error));
        }
        if matches!(error.fault, Fault::TimedOut { .. } | Fault::NoSlot { .. }) {
            self.cut_off();
        }
    }

    /// Logs a command that failed and should have undone something. If the device is in use, what it
    /// was about stays with the device until that is taken down; else as
    /// [`report_teardown`](Self::report_teardown).
    pub(crate) fn report_left(&self, error: &CommandError) {
        match self.gate() {
            Gate::Open => dev_warn!(self.dev, "left with the device: {}\n", Show(error)),
            Gate::Closing | Gate::Shut => self.report_teardown(error),
        }
    }

    /// Runs command `C` for the kernel: `fill` writes the arguments.
    ///
    /// # Errors
    ///
    /// [`CommandError`]: any [`Fault`].
    pub(crate) fn exec<C: Command>(
        &self,
        op_mod: u16,
        fill: impl FnOnce(&mut C::Input),
    ) -> Result<C::Output, CommandError> {
        self.exec_for::<C>(0, op_mod, fill)
    }

    /// Runs command `C` for the user `uid`; 0 is the kernel.
    fn exec_for<C: Command>(
        &self,
        uid: u16,
        op_mod: u16,
        fill: impl FnOnce(&mut C::Input),
    ) -> Result<C::Output, CommandError> {
        let mut input = C::Input::zeroed();
        fill(&mut input);
        let mut output = C::Output::zeroed();
        let id = CommandId {
            opcode: C::OPCODE,
            op_mod,
            uid,
        };
        self.exec_raw(id, C::CLASS, input.bytes_mut(), output.bytes_mut())?;
        Ok(output)
    }

    /// Runs the command in `input`, whose opcode, uid and op_mod are written here. `output` holds
    /// the reply also when the device refuses the command.
    ///
    /// # Errors
    ///
    /// [`CommandError`]: any [`Fault`].
    pub(crate) fn exec_raw(
        &self,
        id: CommandId,
        class: Class,
        input: &mut [u8],
        output: &mut [u8],
    ) -> Result<(), CommandError> {
        let fail = |fault| CommandError { id, fault };
        for len in [input.len(), output.len()] {
            if len > MAX_MESSAGE {
                return Err(fail(Fault::TooLong {
                    len,
                    max: MAX_MESSAGE,
                }));
            }
        }
        // The only place that writes these three. A request that is too short for them is none.
        for (field, value) in [
            (CmdIn::OPCODE, id.opcode.0),
            (CmdIn::UID, id.uid),
            (CmdIn::OP_MOD, id.op_mod),
        ] {
            field
                .set(input, value.into())
                .ok_or(fail(Fault::Os(error::errno::EINVAL)))?;
        }

        let queued: Instant<Monotonic> = Instant::now();
        let mut doorbell = None;
        let result = self
            .transport(id.opcode, class, input, output, &mut doorbell)
            .and_then(|()| {
                let get = |field: Field| field.get(output).ok_or(Fault::Os(error::errno::EINVAL));
                match Status(get(CmdOut::STATUS)? as u8) {
                    Status::OK => Ok(()),
                    status => Err(Fault::Status {
                        status,
                        syndrome: get(CmdOut::SYNDROME)? as u32,
                    }),
                }
            })
            .map_err(fail);
        // Only what the device was asked counts: its clock starts at the doorbell (C5).
        if let Some(doorbell) = doorbell {
            let phases = Phases {
                queue: doorbell - queued,
                device: doorbell.elapsed(),
            };
            self.stats.record(id.opcode, phases, &result);
        }
        if let Err(error) = &result {
            self.tell_monitors(error);
        }
        result
    }

    /// Lines that monitors look for. A timeout is always said: a slot is lost. A refusal is the caller's
    /// business, and said here only to those who know upstream's driver alone.
    fn tell_monitors(&self, error: &CommandError) {
        let Some(line) = error.for_monitors() else {
            return;
        };
        if matches!(error.fault, Fault::TimedOut { .. }) {
            kapi::print::say(self.dev, 4, &line);
        } else if kapi::print::speaks_as_mlx5_core() && self.refusals.hit().is_some() {
            kapi::print::as_mlx5_core(self.dev, 3, &line);
        }
    }

    /// Takes a slot, and gives it back unless the device still owns it. `doorbell` says when it was
    /// rung, if it was.
    fn transport(
        &self,
        opcode: Opcode,
        class: Class,
        input: &[u8],
        output: &mut [u8],
        doorbell: &mut Option<Instant<Monotonic>>,
    ) -> Result<(), Fault> {
        self.reap_orphans();
        let rounds = self.slots.lock().table.enter(class);
        let ticket = self.queue(opcode, class, rounds);
        self.slots.lock().table.leave(class);
        let ticket = ticket?;
        let result = self.in_slot(ticket, input, output, doorbell);
        let (released, stuck) = {
            let mut slots = self.slots.lock();
            let released = slots.table.release(ticket.slot);
            (released, slots.table.is_stuck(class))
        };
        // A slot for the next one, or the news that there will be none.
        if released || stuck {
            self.free_count(class).signal();
        }
        result
    }

    /// Waits for a slot: as long as all commands before may take that share the slots, because what
    /// they take is not this one's fault.
    fn queue(&self, opcode: Opcode, class: Class, rounds: u32) -> Result<Ticket, Fault> {
        let ms = self.timeout_ms();
        let patience = ms
            .saturating_add(self.grace_ms(ms))
            .saturating_mul(rounds)
            .saturating_add(SLOT_GRACE_MS);
        let free = self.free_count(class);
        let start: Instant<Monotonic> = Instant::now();
        loop {
            self.may_wait(opcode, class)?;
            let passed = u32::try_from(start.elapsed().as_millis()).unwrap_or(u32::MAX);
            let left = patience.saturating_sub(passed);
            let woken = left != 0 && free.wait(left);
            if let Err(fault) = self.may_wait(opcode, class) {
                if woken {
                    // It was a slot for somebody else, or the others are to hear it too.
                    free.signal();
                }
                return Err(fault);
            }
            if !woken {
                return Err(Fault::NoSlot { ms: patience });
            }
            if let Some(ticket) = self.slots.lock().table.take(class) {
                return Ok(ticket);
            }
            // There was news, which are old by now.
        }
    }

    /// Whether it is of use to wait for a slot.
    fn may_wait(&self, opcode: Opcode, class: Class) -> Result<(), Fault> {
        if !self.gate().lets(opcode) {
            return Err(self.down_fault());
        }
        let slots = self.slots.lock();
        if slots.table.is_stuck(class) {
            return Err(Fault::Stuck {
                slots: slots.table.class_size(class),
            });
        }
        Ok(())
    }

    fn free_count(&self, class: Class) -> &Completion {
        match class {
            Class::Regular => &self.regular_free,
            Class::Pages => &self.pages_free,
        }
    }

    /// Runs a command in a slot that was taken.
    fn in_slot(
        &self,
        ticket: Ticket,
        input: &[u8],
        output: &mut [u8],
        doorbell: &mut Option<Instant<Monotonic>>,
    ) -> Result<(), Fault> {
        let slot = ticket.slot;
        let chains = self.chains(input.len(), output.len()).map_err(os)?;
        let posted = self.post(ticket, &chains, input, output.len(), doorbell);
        if let Err(e) = posted {
            self.put(chains);
            return Err(os(e));
        }

        if let Err(fault) = self.wait(slot) {
            let mut slots = self.slots.lock();
            let given_up = match fault {
                Fault::TimedOut { .. } => slots.table.abandon(slot),
                _ => slots.table.abort(slot),
            };
            if given_up {
                // The device may still write: everything stays where it is.
                if let Some(place) = slots.orphans.get_mut(usize::from(slot)) {
                    *place = Some(chains);
                }
                return Err(fault);
            }
            // It was completed at the last moment: collect.
        }

        // The reply was written before the ownership bit that told us.
        dma_mb(Read);
        let reply = self.collect(ticket, &chains, output);
        self.put(chains);
        reply
    }

    fn chains(&self, input: usize, output: usize) -> Result<Chains> {
        let input = self.pool.take(wire::mailboxes(input))?;
        match self.pool.take(wire::mailboxes(output)) {
            Ok(output) => Ok(Chains { input, output }),
            Err(e) => {
                self.pool.put(input);
                Err(e)
            }
        }
    }

    /// Writes command and descriptor, and rings the doorbell.
    fn post(
        &self,
        Ticket { slot, token }: Ticket,
        chains: &Chains,
        input: &[u8],
        output_len: usize,
        doorbell: &mut Option<Instant<Monotonic>>,
    ) -> Result {
        let (head, rest) = input.split_at(input.len().min(INLINE));
        chains.input.write(rest, token)?;
        chains.output.write(&[], token)?;
        let descriptor = wire::Post {
            head,
            input_len: u32::try_from(input.len())?,
            input_ptr: chains.input.addr(),
            output_len: u32::try_from(output_len)?,
            output_ptr: chains.output.addr(),
            token,
        }
        .descriptor();
        let done = self.done.get(usize::from(slot)).ok_or(EINVAL)?;
        done.rearm();
        self.queue.write(self.descriptor_at(slot), &descriptor)?;
        if !self.slots.lock().table.post(slot) {
            return Err(EINVAL);
        }
        dma_mb(Write);
        *doorbell = Some(Instant::now());
        self.segment.ring_command(slot).inspect_err(|_| {
            // The device never heard of it.
            self.slots.lock().table.complete(slot);
        })
    }

    /// Waits until the device is done with the slot: its time, then a search for what was lost, then
    /// some grace (M2.4).
    fn wait(&self, slot: u8) -> Result<(), Fault> {
        let ms = self.timeout_ms();
        if self.wait_ms(slot, ms)? {
            return Ok(());
        }
        self.slots.lock().table.expire(slot);
        if self.uses_events() {
            // The interrupt may be lost, or the event (field case C3).
            let recover = self.recover.lock().clone();
            if let Some(recover) = recover {
                recover.poll();
            }
            if self.look(slot) {
                dev_warn!(
                    self.dev,
                    "command slot {slot}: recovered after timeout, its event or interrupt was lost\n"
                );
                return Ok(());
            }
        }
        if self.wait_ms(slot, self.grace_ms(ms))? || self.look(slot) {
            dev_warn!(
                self.dev,
                "command slot {slot}: answered after its {ms} ms\n"
            );
            return Ok(());
        }
        Err(Fault::TimedOut { ms, slot })
    }

    /// Waits at most `ms` milliseconds, with an eye on the device. `false` if time is up.
    fn wait_ms(&self, slot: u8, ms: u32) -> Result<bool, Fault> {
        let mut left = ms;
        while left != 0 {
            // A teardown may have begun.
            left = left.min(self.timeout_ms());
            let part = left.min(LOOK_MS);
            left -= part;
            let done = if self.uses_events() {
                self.done
                    .get(usize::from(slot))
                    .is_some_and(|done| done.wait(part))
            } else {
                self.poll(slot, part)
            };
            if self.state(slot) == Some(Slot::Done) {
                return Ok(true);
            }
            if self.is_down() {
                return Err(self.down_fault());
            }
            if done {
                // A wake-up that was meant for an earlier command in this slot.
                continue;
            }
            if self.segment.is_gone() {
                self.gone();
                return Err(Fault::Gone);
            }
        }
        Ok(false)
    }

    /// The device is off the bus or hangs: said once, then nothing is sent any more.
    fn gone(&self) {
        if !self.is_down() {
            dev_err!(
                self.dev,
                "the device does not answer, every read is all ones: no further command is sent\n"
            );
        }
        self.lose_device();
    }

    fn state(&self, slot: u8) -> Option<Slot> {
        self.slots.lock().table.state(slot)
    }

    /// Polls the ownership bit for `ms` milliseconds, with a last look after the deadline.
    fn poll(&self, slot: u8, ms: u32) -> bool {
        /// The first looks come quickly, later ones spare the CPU.
        const PAUSES_US: [i64; 3] = [20, 100, 1000];

        let start: Instant<Monotonic> = Instant::now();
        let mut looks = 0;
        loop {
            let late = start.elapsed().as_millis() >= i64::from(ms);
            if self.look(slot) {
                return true;
            }
            if late || self.is_down() {
                return false;
            }
            let pause = PAUSES_US.get(looks / 50).or(PAUSES_US.last());
            fsleep(Delta::from_micros(pause.copied().unwrap_or(1000)));
            looks += 1;
        }
    }

    fn descriptor_at(&self, slot: u8) -> usize {
        usize::from(slot) * self.stride
    }

    /// Whether the command is done, by the descriptor or because an event said so before.
    fn look(&self, slot: u8) -> bool {
        if self.given_back(slot) {
            self.slots.lock().table.complete(slot);
        }
        self.state(slot) == Some(Slot::Done)
    }

    fn given_back(&self, slot: u8) -> bool {
        self.queue
            .read_u8(self.descriptor_at(slot) + wire::OWNER_OFFSET)
            .is_ok_and(|byte| !wire::owned_by_device(byte))
    }

    /// Reads the reply out of descriptor and mailboxes.
    fn collect(
        &self,
        Ticket { slot, token }: Ticket,
        chains: &Chains,
        output: &mut [u8],
    ) -> Result<(), Fault> {
        let mut bytes = [0; DESCRIPTOR];
        self.queue
            .read(self.descriptor_at(slot), &mut bytes)
            .map_err(os)?;
        let reply = wire::reply_head(&bytes, token)?;
        let (head, rest) = output.split_at_mut(output.len().min(INLINE));
        for (to, from) in head.iter_mut().zip(&reply) {
            *to = *from;
        }
        chains.output.read(rest, token)
    }

    fn put(&self, chains: Chains) {
        self.pool.put(chains.input);
        self.pool.put(chains.output);
    }

    /// Handles a command completion event; `vector` has one bit for each slot. In process context.
    ///
    /// The event alone is not believed: a descriptor that the device still owns is not done. So an
    /// event that comes late or twice cannot complete the next command in the same slot.
    pub(crate) fn completed(&self, vector: u32) {
        for slot in (0..MAX_SLOTS as u8).filter(|slot| vector & 1 << slot != 0) {
            let given_back = usize::from(slot) < self.slot_count() && self.given_back(slot);
            let (completed, orphan) = {
                let mut slots = self.slots.lock();
                let completed = if given_back {
                    slots.table.complete(slot)
                } else {
                    Completed::Spurious
                };
                let orphan = match completed {
                    Completed::Late => slots
                        .orphans
                        .get_mut(usize::from(slot))
                        .and_then(Option::take),
                    Completed::Spurious => {
                        slots.spurious += 1;
                        None
                    }
                    Completed::Wanted => None,
                };
                (completed, orphan)
            };
            match completed {
                Completed::Wanted => {
                    if let Some(done) = self.done.get(usize::from(slot)) {
                        done.signal();
                    }
                }
                Completed::Late => self.late(slot, orphan),
                Completed::Spurious => {
                    dev_dbg!(self.dev, "spurious completion of command slot {slot}\n");
                }
            }
        }
    }

    /// A command that nobody waits for any more is done: its slot and memory can be used again.
    fn late(&self, slot: u8, orphan: Option<Chains>) {
        dev_warn!(
            self.dev,
            "Command completion arrived after timeout (slot {slot})\n"
        );
        if let Some(chains) = orphan {
            self.put(chains);
        }
        let last = self.slot_count().checked_sub(1);
        let class = if last == Some(usize::from(slot)) {
            Class::Pages
        } else {
            Class::Regular
        };
        self.free_count(class).signal();
    }

    /// Without events nobody tells when the device is done with an orphan: look.
    fn reap_orphans(&self) {
        if self.uses_events() || self.usage().orphaned == 0 {
            return;
        }
        for slot in 0..self.slot_count() as u8 {
            if self.state(slot) == Some(Slot::Orphan) && self.given_back(slot) {
                self.completed(1 << slot);
            }
        }
    }
}
