// SPDX-License-Identifier: GPL-2.0

//! What others tell the tracer's thread, and what it shows them.

use core::fmt;

use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    }, //
};

use super::{
    assembly::ParserCounters,
    block::{
        BufferSize,
        ReaderCounters,
        BLOCK, //
    },
    capability::Capability,
    output::Ring,
    ownership::{
        OwnershipCounters,
        State, //
    },
    pace::{
        Mode,
        PaceCounters, //
    },
    sentry::Sentry,
    timestamp::Timestamp53, //
};
use crate::{
    eq::{
        dispatch::Subscriber,
        eqe::Event, //
    },
    kapi::{
        completion::Completion,
        kthread::Bell, //
    },
    layouts::tracer::MtrcCap,
};

/// What the event 0x26 tells, by its subtype (hardware.md 3.3).
pub(super) mod told {
    pub(in super::super) const OWNERSHIP: u8 = 0;
    pub(in super::super) const TRACES: u8 = 1;
    pub(in super::super) const STRINGS: u8 = 2;
}

/// How a self-test went (M5.8).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Trial {
    /// There was none.
    None,
    /// Firmware was told to trace its state.
    Running,
    /// So many messages came of it.
    Passed(u64),
    /// Nothing came.
    Silent,
    /// Firmware does not do it.
    Refused,
    /// There is no tracer to test.
    NotOurs,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => write!(f, "none"),
            Self::Running => write!(f, "running"),
            Self::Passed(messages) => write!(f, "passed, {messages} messages"),
            Self::Silent => write!(f, "failed, no message came"),
            Self::Refused => write!(f, "failed, CORE_DUMP was refused"),
            Self::NotOurs => write!(f, "failed, the tracer is not ours"),
        }
    }
}

/// What others tell the thread, and what it shows them.
#[pin_data]
pub(super) struct Desk {
    #[pin]
    pub(super) bell: Bell,
    /// Whether there were events since the thread looked, by subtype.
    news: [Atomic<bool>; 3],
    /// Events of other subtypes.
    strange: Atomic<u64>,
    /// Whether people want traces.
    pub(super) wanted: Atomic<bool>,
    /// The wish may have changed.
    pub(super) asked: Atomic<bool>,
    /// People want a self-test.
    pub(super) tested: Atomic<bool>,
    /// The thread is to end, for good.
    pub(super) over: Atomic<bool>,
    #[pin]
    pub(super) ended: Completion,
    #[pin]
    pub(super) board: SpinLock<Board>,
    /// How often the thread woke up.
    pub(super) wakeups: Atomic<u64>,
}

impl Desk {
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(wanted: bool, board: Board) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                bell <- Bell::new(),
                news: [const { Atomic::new(false) }; 3],
                strange: Atomic::new(0),
                wanted: Atomic::new(wanted),
                asked: Atomic::new(true),
                tested: Atomic::new(false),
                over: Atomic::new(false),
                ended <- Completion::new(),
                board <- new_spinlock!(board, "mlx5_rs_tracer"),
                wakeups: Atomic::new(0),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// People want traces, or not any more.
    pub(super) fn want(&self, wanted: bool) {
        self.wanted.store(wanted, Relaxed);
        self.asked.store(true, Relaxed);
        self.bell.ring();
    }

    /// Whether they do.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Relaxed)
    }

    /// Ends the thread's work in order, and waits for that as long as a few commands of a teardown take.
    pub(super) fn end(&self) {
        const MS: u32 = 10_000;

        self.over.store(true, Relaxed);
        self.bell.ring();
        self.ended.wait(MS);
    }

    /// People want to know whether it works.
    pub(super) fn test(&self) {
        self.tested.store(true, Relaxed);
        self.asked.store(true, Relaxed);
        self.bell.ring();
    }

    /// Wakes the thread for something, if that is known.
    pub(super) fn tell(&self, what: u8) {
        if let Some(news) = self.news.get(usize::from(what)) {
            news.store(true, Relaxed);
            self.bell.ring();
        }
    }

    /// Whether the thread has something to look at.
    pub(super) fn has_news(&self) -> bool {
        self.asked.load(Relaxed)
            || self.over.load(Relaxed)
            || self.news.iter().any(|news| news.load(Relaxed))
    }

    /// Takes the events of a subtype; whether there were some.
    pub(super) fn take(&self, what: u8) -> bool {
        self.news
            .get(usize::from(what))
            .is_some_and(|news| news.xchg(false, Relaxed))
    }
}

impl Subscriber for Desk {
    fn event(&self, event: &Event) {
        let Event::Tracer { what } = event else {
            return;
        };
        match self.board.lock().events.get_mut(usize::from(*what)) {
            Some(seen) => *seen += 1,
            None => self.strange.add(1, Relaxed),
        }
        self.tell(*what);
    }
}

/// What people see.
#[derive(Clone, Copy)]
pub(super) struct Board {
    /// Where the ownership is.
    pub(super) state: State,
    /// How reading is made to happen.
    pub(super) mode: Mode,
    /// People want traces.
    pub(super) wanted: bool,
    /// What the device said last.
    pub(super) capability: Capability,
    /// Of the buffer.
    pub(super) size: BufferSize,
    /// The buffer's memory key.
    pub(super) key: u32,
    /// Sections of strings that were read.
    pub(super) sections: usize,
    /// And their bytes.
    pub(super) string_bytes: usize,
    /// They are all there.
    pub(super) strings_complete: bool,
    /// Time of the last block.
    pub(super) last: Option<Timestamp53>,
    /// Events by subtype.
    events: [u64; 3],
    /// Counted there.
    pub(super) ownership: OwnershipCounters,
    /// Counted there.
    pub(super) pace: PaceCounters,
    /// Counted there.
    pub(super) reader: ReaderCounters,
    /// Counted there.
    pub(super) parser: ParserCounters,
    /// How often strings were read.
    pub(super) string_loads: u64,
    /// Commands of the thread that failed.
    pub(super) failed_commands: u64,
    /// The last self-test.
    pub(super) trial: Trial,
}

impl Board {
    /// What there is to see before anything happened.
    pub(super) fn new(size: BufferSize, key: u32, register: &MtrcCap) -> Self {
        Self {
            state: State::Stopped,
            mode: Mode::Event,
            wanted: false,
            capability: Capability::of(register),
            size,
            key,
            sections: 0,
            string_bytes: 0,
            strings_complete: false,
            last: None,
            events: [0; 3],
            ownership: OwnershipCounters::default(),
            pace: PaceCounters::default(),
            reader: ReaderCounters::default(),
            parser: ParserCounters::default(),
            string_loads: 0,
            failed_commands: 0,
            trial: Trial::None,
        }
    }
}

impl Desk {
    /// Prints where the tracer is.
    pub(super) fn show_state(&self, f: &mut kernel::fmt::Formatter<'_>) -> fmt::Result {
        let board = *self.board.lock();
        let state = match board.state {
            State::Stopped => "stopped",
            State::Waiting => "waiting for ownership",
            State::Asking | State::Confirming => "asking",
            State::Owner | State::Checking => "tracing",
        };
        let mode = match board.mode {
            Mode::Event => "events",
            Mode::Poll => "polling",
        };
        writeln!(f, "state {state}")?;
        writeln!(f, "wanted {}", u8::from(board.wanted))?;
        let owner = matches!(board.state, State::Owner | State::Checking);
        writeln!(f, "owner {}", u8::from(owner))?;
        writeln!(f, "mode {mode}")?;
        writeln!(f, "buffer_bytes {}", board.size.blocks() as usize * BLOCK)?;
        writeln!(f, "log_max_buffer {}", board.capability.log_max_buffer)?;
        writeln!(f, "mkey {:#x}", board.key)?;
        writeln!(f, "string_sections {}", board.sections)?;
        writeln!(f, "string_bytes {}", board.string_bytes)?;
        writeln!(f, "strings_complete {}", u8::from(board.strings_complete))?;
        writeln!(f, "last_time {:#x}", board.last.map_or(0, Timestamp53::get))?;
        writeln!(f, "self_test {}", board.trial)
    }

    /// Prints all that is counted.
    pub(super) fn show_counters(
        &self,
        f: &mut kernel::fmt::Formatter<'_>,
        ring: &Ring,
        sentry: &Sentry,
    ) -> fmt::Result {
        let board = *self.board.lock();
        let (kept, forgotten) = ring.counts();
        let [changes, traces, strings] = board.events;
        for (name, value) in [
            ("blocks", board.reader.blocks),
            ("gaps", board.reader.gaps),
            ("blocks_skipped", board.reader.lost),
            ("torn", board.reader.torn),
            ("recoveries", board.reader.recoveries),
            ("events_read", board.parser.events),
            ("messages", board.parser.messages),
            ("incomplete", board.parser.incomplete),
            ("bad_formats", board.parser.bad_formats),
            ("unknown_strings", board.parser.unknown_strings),
            ("orphans", board.parser.orphans),
            ("others", board.parser.others),
            ("lost_bits", board.parser.lost_bits),
            ("unreliable_timestamps", board.parser.unreliable),
            ("untimed", board.parser.untimed),
            ("padding", board.parser.padding),
            ("kept", kept as u64),
            ("forgotten", forgotten),
            ("ownership_events", changes),
            ("trace_events", traces),
            ("string_events", strings),
            ("strange_events", self.strange.load(Relaxed)),
            ("missed_events", sentry.missed()),
            ("needless_events", board.pace.needless_events),
            ("barren_events", board.pace.barren_events),
            ("rounds", board.pace.rounds),
            ("to_polling", board.pace.to_poll),
            ("to_events", board.pace.to_event),
            ("throttled", board.pace.throttled),
            ("armed", board.pace.armed),
            ("wakeups", self.wakeups.load(Relaxed)),
            ("ownership_asked", board.ownership.asked),
            ("ownership_granted", board.ownership.granted),
            ("ownership_refused", board.ownership.refused),
            ("ownership_lost", board.ownership.lost),
            (
                "ownership_regained",
                board.ownership.granted.saturating_sub(1),
            ),
            ("ownership_retries", board.ownership.retries),
            ("ownership_spurious_events", board.ownership.spurious),
            ("ownership_failures", board.ownership.failed),
            ("string_loads", board.string_loads),
            ("failed_commands", board.failed_commands),
        ] {
            writeln!(f, "{name} {value}")?;
        }
        Ok(())
    }
}
