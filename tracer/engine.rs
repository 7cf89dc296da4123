// SPDX-License-Identifier: GPL-2.0

//! The thread that owns the tracer, reads its buffer and tells what is in it.
//!
//! It does what [`ownership`](super::ownership) and [`pace`](super::pace) decide, and sleeps without a
//! timer when they have nothing to wait for but an event of the device.

use core::fmt;

use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};

use super::{
    assembly::{
        Parser,
        Row,
        ROWS, //
    },
    block::{
        Block,
        BufferSize,
        Reader, //
    },
    capability::Capability,
    desk::{
        told,
        Desk,
        Trial, //
    },
    drain::{
        drain,
        interrupted,
        Drained,
        Record, //
    },
    memory::Memory,
    output::Outlet,
    ownership::{
        Action,
        Answer,
        Ownership,
        Pauses,
        State, //
    },
    pace::{
        Limits,
        Mode,
        Pace,
        Round,
        Step, //
    },
    registers::{
        self,
        NoStrings, //
    },
    sentry::Sentry,
    strings::{
        Database,
        Section, //
    },
    timestamp::Timestamp53, //
};
use crate::{
    cmdif::{
        CommandError,
        Interface, //
    },
    kapi::{
        kthread::{
            self,
            Me,
            FOREVER, //
        },
        print::{
            Show,
            Throttle, //
        }, //
    },
    layouts::tracer::MtrcCap,
    mr::Mkey,
};

/// Why the tracer cannot begin.
enum NoStart {
    Command(CommandError),
    Memory,
    Size,
}

/// A time of [`kthread::now_ns`], in milliseconds.
fn ms(ns: i64) -> u64 {
    u64::try_from(ns).unwrap_or(0) / 1_000_000
}

/// The same in microseconds.
fn us(ns: i64) -> u64 {
    u64::try_from(ns).unwrap_or(0) / 1_000
}

/// The time `us` microseconds from now.
fn in_us(us: u64) -> i64 {
    let ns = i64::try_from(us.saturating_mul(1_000)).unwrap_or(i64::MAX);
    kthread::now_ns().saturating_add(ns)
}

/// How long a command that failed, and that is needed, is not tried again: this, then longer.
const FIRST_RETRY_US: u64 = 1_000_000;
const LAST_RETRY_US: u64 = 60_000_000;

/// Strings are not read again for so many times the time that reading them took, however often the device
/// says that they have changed.
const STRINGS_PAUSE: i64 = 4;

/// What the thread works with.
pub(super) struct Engine<'a> {
    dev: &'a Device<Bound>,
    cmd: Arc<Interface<'a>>,
    desk: Arc<Desk>,
    sentry: Arc<Sentry>,
    share: fn() -> u32,
    ownership: Ownership,
    pace: Pace,
    reader: Reader,
    parser: Parser<KVVec<Row>>,
    db: Database<KVVec<u8>>,
    block: Block,
    outlet: Outlet<'a>,
    mkey: Mkey<'a>,
    size: BufferSize,
    /// MTRC_CAP as it was read last.
    register: MtrcCap,
    /// As it was when the strings were read.
    strings_of: MtrcCap,
    /// The strings are to be read, not before this time.
    strings_due: Option<i64>,
    /// They have been read a moment ago: not again before this time.
    strings_from: i64,
    strings_complete: bool,
    /// When ownership, pace, and the event that could not be armed are to be seen to.
    own_due: Option<i64>,
    pace_due: Option<i64>,
    arm_due: Option<i64>,
    arm_retry_us: u64,
    wanted: bool,
    string_loads: u64,
    failed_commands: u64,
    trial: Trial,
    /// Of a self-test that runs: messages before it, and when its time is up.
    trial_from: u64,
    trial_due: Option<i64>,
    failures: Throttle,
    remarks: Throttle,
}

impl<'a> Engine<'a> {
    /// # Errors
    ///
    /// `ENOMEM`.
    // Each is a part of the tracer that others share.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn new(
        dev: &'a Device<Bound>,
        cmd: Arc<Interface<'a>>,
        desk: Arc<Desk>,
        sentry: Arc<Sentry>,
        outlet: Outlet<'a>,
        mkey: Mkey<'a>,
        size: BufferSize,
        register: MtrcCap,
        share: fn() -> u32,
    ) -> Result<KBox<Self>> {
        let mut table = KVVec::with_capacity(ROWS, GFP_KERNEL)?;
        for _ in 0..ROWS {
            table.push(Row::FREE, GFP_KERNEL)?;
        }
        let capability = Capability::of(&register);
        let strings_of = MtrcCap::new();
        Ok(KBox::new(
            Self {
                dev,
                cmd,
                desk,
                sentry,
                share,
                ownership: Ownership::new(Pauses::DEFAULT),
                pace: Pace::new(Limits::DEFAULT),
                reader: Reader::new(size),
                parser: Parser::new(capability.rules, table),
                db: Database::empty(),
                block: Block::EMPTY,
                outlet,
                mkey,
                size,
                register,
                strings_of,
                strings_due: Some(0),
                strings_from: 0,
                strings_complete: false,
                own_due: None,
                pace_due: None,
                arm_due: None,
                arm_retry_us: FIRST_RETRY_US,
                wanted: false,
                string_loads: 0,
                failed_commands: 0,
                trial: Trial::None,
                trial_from: 0,
                trial_due: None,
                failures: Throttle::new(),
                remarks: Throttle::new(),
            },
            GFP_KERNEL,
        )?)
    }

    /// Works until the thread shall end; gives the tracer back then.
    pub(super) fn run(&mut self, me: &Me<'_>) {
        let desk = self.desk.clone();
        let goes_on = || !me.should_stop() && !desk.over.load(Relaxed);
        while goes_on() {
            desk.wakeups.add(1, Relaxed);
            self.heed(&goes_on);
            self.publish();
            let waits = self.ownership.is_owner() && self.pace.mode() == Mode::Event;
            self.sentry.watch(waits.then_some(&self.reader));
            if goes_on() {
                me.sleep_at(&desk.bell, self.due(), || desk.has_news());
            }
        }
        self.sentry.watch(None);
        self.stop();
        self.publish();
        desk.ended.signal_all();
        // The desk goes when all have left it; until then nothing is done any more.
        while !me.should_stop() {
            me.sleep_at(&desk.bell, FOREVER, || false);
        }
    }

    /// Does what there is to do now.
    fn heed(&mut self, goes_on: &dyn Fn() -> bool) {
        let desk = self.desk.clone();
        self.pace
            .set_cpu_percent(u8::try_from((self.share)()).unwrap_or(100));
        if desk.asked.xchg(false, Relaxed) {
            let wanted = desk.wanted.load(Relaxed);
            if self.wanted && !wanted {
                self.stop();
            }
            self.wanted = wanted;
        }
        let now = kthread::now_ns();
        if desk.take(told::STRINGS) {
            self.strings_due = Some(self.strings_from);
            self.refresh();
        }
        if self.wanted && self.strings_due.is_some_and(|due| due <= now) {
            self.load_strings(goes_on);
        }
        if self.wanted && goes_on() && self.ownership.state() == State::Stopped {
            let action = self.ownership.start(ms(kthread::now_ns()));
            self.drive(action);
        }
        if desk.take(told::OWNERSHIP) {
            let action = self.ownership.event(ms(kthread::now_ns()));
            self.drive(action);
        }
        if passed(&mut self.own_due) {
            let action = self.ownership.timer(ms(kthread::now_ns()));
            self.drive(action);
        }
        if desk.take(told::TRACES) && self.ownership.is_owner() {
            let step = self.pace.event(us(kthread::now_ns()));
            self.step(step);
        }
        if passed(&mut self.pace_due) && self.ownership.is_owner() {
            let step = self.pace.timer(us(kthread::now_ns()));
            self.step(step);
        }
        if passed(&mut self.arm_due) && self.ownership.is_owner() {
            // As if the event had come that was not armed.
            let step = self.pace.event(us(kthread::now_ns()));
            self.step(step);
        }
        if desk.tested.xchg(false, Relaxed) {
            self.begin_trial();
        }
        if self.trial == Trial::Running {
            self.judge_trial();
        }
    }

    /// Has firmware trace something.
    fn begin_trial(&mut self) {
        /// How long it may take, in microseconds.
        const US: u64 = 1_000_000;

        if !self.ownership.is_owner() {
            self.trial = Trial::NotOurs;
            return;
        }
        self.drain(self.reader.blocks());
        self.trial_from = self.messages();
        self.trial = Trial::Running;
        self.trial_due = Some(in_us(US));
        if let Err(error) = registers::core_dump(&self.cmd) {
            self.complain(&error);
            self.trial = Trial::Refused;
            self.trial_due = None;
        }
    }

    /// Looks whether it is there.
    fn judge_trial(&mut self) {
        let late = passed(&mut self.trial_due);
        if self.ownership.is_owner() {
            // Whether there was an event or not: the buffer is what counts.
            self.drain(self.pace.budget());
        }
        let messages = self.messages().saturating_sub(self.trial_from);
        if messages != 0 {
            self.trial = Trial::Passed(messages);
            self.trial_due = None;
        } else if late {
            self.trial = Trial::Silent;
        }
    }

    /// Messages read.
    fn messages(&self) -> u64 {
        let counters = self.parser.counters();
        counters.messages + counters.others + counters.incomplete
    }

    /// When the thread is to look again by itself.
    fn due(&self) -> i64 {
        if !self.cmd.is_open() {
            // The device is on its way down: what there is to do comes with the end.
            return FOREVER;
        }
        let strings = self.strings_due.filter(|_| self.wanted);
        let owner = self.ownership.is_owner();
        [
            strings,
            self.own_due,
            self.pace_due.filter(|_| owner),
            self.arm_due.filter(|_| owner),
            self.trial_due,
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(FOREVER)
    }

    fn publish(&self) {
        let mut board = self.desk.board.lock();
        board.state = self.ownership.state();
        board.mode = self.pace.mode();
        board.wanted = self.wanted;
        board.capability = Capability::of(&self.register);
        board.strings_complete = self.strings_complete;
        board.last = self.reader.last();
        board.ownership = *self.ownership.counters();
        board.pace = *self.pace.counters();
        board.reader = *self.reader.counters();
        board.parser = *self.parser.counters();
        board.string_loads = self.string_loads;
        board.failed_commands = self.failed_commands;
        board.trial = self.trial;
    }

    /// A command failed.
    fn complain(&mut self, error: &CommandError) {
        self.failed_commands += 1;
        if !self.cmd.is_open() {
            return;
        }
        if let Some(n) = self.failures.hit() {
            dev_warn!(
                self.dev,
                "firmware tracer: {} ({n} such so far)\n",
                Show(error)
            );
        }
    }

    /// Something that is to be known, and may happen often.
    fn mention(&self, what: &dyn fmt::Display) {
        if let Some(n) = self.remarks.hit() {
            dev_info!(self.dev, "firmware tracer: {} (remark {n})\n", Show(what));
        }
    }

    fn answer(&mut self, result: Result<bool, CommandError>) -> Answer {
        match result {
            Ok(true) => Answer::Ours,
            Ok(false) => Answer::NotOurs,
            Err(error) => {
                self.complain(&error);
                Answer::Failed
            }
        }
    }

    /// Reads MTRC_CAP; whether the tracer is ours.
    fn refresh(&mut self) -> Answer {
        let result = registers::capability(&self.cmd).map(|register| {
            self.register = register;
            self.register.trace_owner()
        });
        self.answer(result)
    }

    /// Does what the ownership needs, until it comes to rest.
    fn drive(&mut self, mut action: Action) {
        loop {
            let now = || ms(kthread::now_ns());
            action = match action {
                Action::Rest => return,
                Action::Wake(at) => {
                    let at = i64::try_from(at.saturating_mul(1_000_000)).unwrap_or(i64::MAX);
                    self.own_due = Some(at);
                    return;
                }
                Action::Ask => {
                    let result = registers::own(&self.cmd, true);
                    let answer = self.answer(result);
                    if answer == Answer::NotOurs {
                        self.mention(&"somebody else has it; it is waited for");
                    }
                    self.ownership.asked(now(), answer)
                }
                Action::Verify => {
                    let answer = self.refresh();
                    self.ownership.verified(now(), answer)
                }
                Action::Begin => match self.begin() {
                    Ok(()) => Action::Rest,
                    Err(why) => {
                        match why {
                            NoStart::Command(error) => self.complain(&error),
                            NoStart::Memory => {
                                self.mention(&"it does not trace to memory any more")
                            }
                            NoStart::Size => self.mention(&"it does not take the buffer any more"),
                        }
                        self.ownership.begin_failed()
                    }
                },
                Action::Lost => {
                    self.mention(&"somebody else has taken it");
                    self.finish();
                    self.ownership.proceed(now())
                }
                Action::Release => {
                    // The device may be past answering: then nothing is written either.
                    let result = registers::switch(&self.cmd, false)
                        .and_then(|()| registers::own(&self.cmd, false));
                    if let Err(error) = result {
                        self.complain(&error);
                    }
                    self.ownership.proceed(now())
                }
            };
        }
    }

    /// The tracer is ours: has it write to the buffer.
    fn begin(&mut self) -> Result<(), NoStart> {
        let capability = Capability::of(&self.register);
        if !capability.to_memory {
            return Err(NoStart::Memory);
        }
        if self.size.log_units() > capability.log_max_buffer {
            return Err(NoStart::Size);
        }
        if !registers::same_strings(&self.register, &self.strings_of) {
            self.strings_due = Some(self.strings_from);
        }
        // It may still write for whoever had it before.
        registers::switch(&self.cmd, false).map_err(NoStart::Command)?;
        self.flush();
        self.parser.set_rules(capability.rules);
        self.mkey.memory().clear();
        self.reader.restart();
        self.pace.restart();
        self.pace_due = None;
        self.arm_due = None;
        registers::configure(&self.cmd, self.size, self.mkey.key()).map_err(NoStart::Command)?;
        registers::switch(&self.cmd, true).map_err(NoStart::Command)
    }

    /// Reads what is left in the buffer, which is not written to any more.
    fn finish(&mut self) {
        self.drain(self.reader.blocks());
        self.flush();
        self.pace_due = None;
        self.arm_due = None;
    }

    /// Ends tracing, and gives the tracer back.
    fn stop(&mut self) {
        let owner = self.ownership.is_owner();
        let action = self.ownership.stop();
        self.drive(action);
        self.own_due = None;
        if owner {
            self.finish();
        }
    }

    /// What waits for more does not get it any more.
    fn flush(&mut self) {
        let Self {
            parser, db, outlet, ..
        } = self;
        parser.flush(db, &mut |message| outlet.message(message));
        outlet.tell_missing(None);
    }

    /// Reads up to `budget` blocks.
    fn drain(&mut self, budget: u32) -> Drained {
        let Self {
            reader,
            parser,
            mkey,
            db,
            block,
            outlet,
            ..
        } = self;
        let source = Memory(mkey.memory());
        drain(
            reader,
            parser,
            &source,
            db,
            block,
            budget,
            &mut |record| match record {
                Record::Message(message) => outlet.message(message),
                // Each begins with a copy that may be torn.
                Record::Gap(gap) => outlet.gap(*gap, 1),
            },
        )
    }

    /// Looks for the reader's place.
    fn recover(&mut self) {
        let Self {
            reader,
            parser,
            mkey,
            db,
            outlet,
            ..
        } = self;
        if let Some(gap) = reader.recover(&Memory(mkey.memory())) {
            interrupted(parser, db, gap, &mut |record| match record {
                Record::Message(message) => outlet.message(message),
                Record::Gap(gap) => outlet.gap(*gap, 0),
            });
        }
    }

    /// Arms the event; the device's time, if it did.
    fn arm(&mut self) -> Option<Timestamp53> {
        match registers::arm(&self.cmd) {
            Ok(time) => {
                self.arm_retry_us = FIRST_RETRY_US;
                Some(time)
            }
            Err(error) => {
                self.complain(&error);
                self.arm_due = Some(in_us(self.arm_retry_us));
                self.arm_retry_us = (self.arm_retry_us * 2).min(LAST_RETRY_US);
                let action = self.ownership.doubt();
                self.drive(action);
                None
            }
        }
    }

    /// Does what the pace says, until there is nothing to do now.
    fn step(&mut self, mut step: Step) {
        while self.ownership.is_owner() {
            let began_us = us(kthread::now_ns());
            let mut time = None;
            match step {
                Step::Rest => return,
                Step::Timer(after) => {
                    self.pace_due = Some(in_us(after));
                    return;
                }
                Step::Read => {}
                Step::Recover => {
                    self.recover();
                    let action = self.ownership.doubt();
                    self.drive(action);
                    time = self.arm();
                }
                Step::Arm => time = self.arm(),
            }
            if !self.ownership.is_owner() {
                return;
            }
            let drained = self.drain(self.pace.budget());
            if drained.empty && time.is_some_and(|time| time.get() != 0) {
                // What is missing is told, though nothing may follow for long.
                self.outlet.tell_missing(time);
            }
            step = self.pace.read(Round {
                found: drained.blocks + drained.gaps,
                empty: drained.empty,
                began_us,
                ended_us: us(kthread::now_ns()),
            });
        }
    }

    /// Reads the strings, after what was written with those before.
    fn load_strings(&mut self, goes_on: &dyn Fn() -> bool) {
        if self.ownership.is_owner() {
            self.drain(self.reader.blocks());
        }
        self.flush();
        let began = kthread::now_ns();
        let desk = &self.desk;
        let go_on = || goes_on() && desk.is_wanted();
        let result = registers::strings(&self.cmd, &self.register, go_on);
        self.string_loads += 1;
        let later = |us: u64| Some(in_us(us));
        match result {
            Ok(db) => {
                self.db = db;
                self.strings_complete = true;
                self.strings_of = self.register;
                self.strings_due = None;
                let mut board = self.desk.board.lock();
                board.sections = Section::all(&self.register).count();
                board.string_bytes = Section::all(&self.register)
                    .map(|section| section.len as usize)
                    .sum();
            }
            Err(NoStrings::Interrupted) => {}
            Err(NoStrings::Memory) => {
                self.strings_complete = false;
                self.strings_due = later(LAST_RETRY_US);
            }
            Err(NoStrings::Command(error)) => {
                self.complain(&error);
                self.strings_complete = false;
                self.strings_due = later(LAST_RETRY_US);
            }
        }
        let now = kthread::now_ns();
        self.strings_from = now.saturating_add((now - began).saturating_mul(STRINGS_PAUSE));
    }
}

/// Whether a time has come; it is past then.
fn passed(due: &mut Option<i64>) -> bool {
    due.take_if(|due| *due <= kthread::now_ns()).is_some()
}
