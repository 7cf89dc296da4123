// SPDX-License-Identifier: GPL-2.0

//! The firmware tracer (hardware.md section 4).
//!
//! Who owns it, the buffer that its owner gave it, and the traces that firmware writes there
//! through the owner's mkey. It owns the list of what was written, against which tests hold what
//! was read. The registers are in `commands::trace_registers`, the control verb in
//! `control::trace`; the device's loop calls [`Device::trace`] and asks [`Device::trace_wait`].
//!
//! - [`event`], [`block`]: events, and blocks of them with timestamps.
//! - [`mod@format`], [`strings`]: what firmware's strings look like; the database.
//! - [`script`]: what the n-th trace says; [`truth`]: what became of it.
//! - [`traffic`]: how many traces, when, and what goes wrong with them.

use std::time::Instant;

use log::info;
use serde::Deserialize;
use serde::Serialize;

use crate::device::Device;
use crate::device::Irq;
use crate::eq::event as eq_event;
use crate::eq::Event as EqEvent;
use crate::pages;

pub mod block;
pub mod event;
pub mod format;
pub mod random;
pub mod script;
pub mod strings;
pub mod traffic;
pub mod truth;

use block::Stamps;
use event::BLOCK;
use event::TIME_MASK;
use script::Script;
use strings::Size;
use strings::Strings;
use traffic::Engine;
use traffic::Traffic;
use truth::Truth;

/// Bytes of the unit in which the size of a buffer is given.
pub const UNIT: u64 = pages::SIZE as u64;

/// Subtypes of the tracer's events.
pub mod subtype {
    /// The owner has changed.
    pub const OWNERSHIP: u8 = 0;
    /// There are traces.
    pub const TRACES: u8 = 1;
    /// The string database has changed.
    pub const STRINGS: u8 = 2;
}

/// Who owns the tracer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// Nobody.
    #[default]
    Nobody,
    /// The driver of this function.
    Driver,
    /// A tool with more rights, which no driver sees.
    Tool,
}

/// What the tracer can do. Resets of the function leave it.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The registers are there.
    pub present: bool,
    /// `trace_to_memory`.
    pub to_memory: bool,
    /// `trc_ver`.
    pub version: u8,
    /// `log_max_trace_buffer_size`.
    pub log_max_size: u8,
    /// Size of the string database.
    pub size: Size,
    /// Requests for ownership are refused.
    pub deny: bool,
    /// Arming the event is answered at once if a block was written since the last one, and not
    /// only by the next block.
    pub eager: bool,
    /// Events that will be lost.
    pub lose_events: u64,
    /// Events that will come twice.
    pub double_events: u64,
    /// Traces by number.
    pub script: Script,
}

impl Setup {
    fn new(present: bool) -> Self {
        Self {
            present,
            to_memory: true,
            version: 0,
            // 256 KiB.
            log_max_size: 6,
            size: Size::default(),
            deny: false,
            eager: true,
            lose_events: 0,
            double_events: 0,
            script: Script {
                seed: 1,
                first_id: 2,
                ids: 14,
                more: false,
                raw: 0,
                hostile: 0,
            },
        }
    }
}

/// MTRC_CONF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// `trace_mode`.
    pub mode: u8,
    /// `log_trace_buffer_size`.
    pub log_size: u8,
    /// `trace_mkey`.
    pub mkey: u32,
    /// First address in the mkey.
    pub start: u64,
}

impl Buffer {
    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        (UNIT << self.log_size) / BLOCK as u64
    }
}

/// Counters of the tracer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Traces of which at least one event got to memory.
    pub written: u64,
    /// Traces that did not get to memory.
    pub dropped: u64,
    /// Blocks written.
    pub blocks: u64,
    /// Of these, blocks that were for a while half written.
    pub torn: u64,
    /// Times that writing began at the first block again.
    pub wraps: u64,
    /// Events "traces available" posted.
    pub events: u64,
    /// Events that were lost on purpose.
    pub events_lost: u64,
    /// Events that came twice on purpose.
    pub events_doubled: u64,
    /// Times that the driver armed the event.
    pub arms: u64,
    /// Times that the driver asked for the tracer.
    pub requests: u64,
    /// Of these, times that it did not get it.
    pub refused: u64,
    /// Bytes of the string database that were read.
    pub string_bytes: u64,
}

/// What a reset of the function forgets.
#[derive(Debug, Default)]
pub struct Session {
    /// Who owns the tracer.
    pub owner: Owner,
    /// What the last MTRC_CAP told the driver.
    pub told: bool,
    /// How often the driver has reason to ask again: the event came, and not every one of a few in a
    /// row need be seen before the driver asks for the first.
    pub reasons: u32,
    /// MTRC_CONF, if it was written.
    pub buffer: Option<Buffer>,
    /// `trace_status`: traces go to memory.
    pub running: bool,
    /// An event is due for the next block.
    pub armed: bool,
    /// A block was written since the last event.
    pub fresh: bool,
    engine: Option<Engine>,
}

/// The tracer.
#[derive(Debug)]
pub struct Tracer {
    /// What it can do.
    pub setup: Setup,
    /// The string database.
    pub strings: Strings,
    generation: u32,
    /// Ownership and buffer.
    pub session: Session,
    /// Number of the next trace.
    next: u64,
    /// What is to be written.
    pub traffic: Option<Traffic>,
    /// What was written.
    pub truth: Truth,
    /// Counters.
    pub counters: Counters,
    started: Instant,
    /// Time at `started`.
    base: u64,
}

impl Tracer {
    /// A tracer at rest. Only privileged functions have one.
    pub fn new(privileged: bool) -> Self {
        let setup = Setup::new(privileged);
        Self {
            strings: Strings::new(setup.size, 0),
            setup,
            generation: 0,
            session: Session::default(),
            next: 0,
            traffic: None,
            truth: Truth::default(),
            counters: Counters::default(),
            started: Instant::now(),
            base: 0,
        }
    }

    /// The free running counter, one tick a nanosecond; more than its 53 bits, so that it does not
    /// go back.
    pub fn time(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.started);
        self.base.wrapping_add(since.as_nanos() as u64)
    }

    /// Sets the counter.
    pub fn set_time(&mut self, time: u64) {
        self.started = Instant::now();
        self.base = time & TIME_MASK;
    }

    /// Stops writing. What is not in memory yet never gets there.
    pub fn stop(&mut self) {
        self.session.running = false;
        let Some(engine) = self.session.engine.take() else {
            return;
        };
        for mut entry in engine.abandon() {
            entry.dropped = true;
            self.count(entry);
        }
    }

    /// Forgets what a driver has set up.
    pub fn forget(&mut self) {
        self.stop();
        self.session = Session::default();
    }

    /// Builds the string database anew, elsewhere.
    pub fn renew_strings(&mut self, size: Size) {
        self.setup.size = size;
        self.generation += 1;
        self.strings = Strings::new(size, self.generation);
    }

    /// Whether the device writes, or would if it had something to say, to this mkey.
    pub fn uses(&self, index: u32) -> bool {
        self.session.running && self.session.buffer.is_some_and(|b| b.mkey >> 8 == index)
    }

    fn stamps(&self, traffic: &Traffic) -> Stamps {
        Stamps {
            version: self.setup.version,
            unreliable: traffic.unreliable,
        }
    }

    fn count(&mut self, entry: truth::Entry) {
        if entry.dropped {
            self.counters.dropped += 1;
        } else {
            self.counters.written += 1;
        }
        self.truth.push(entry);
    }
}

impl Device {
    /// Whether the tracer writes through mkey `index`.
    pub(crate) fn traces_through(&self, index: u32) -> bool {
        self.tracer.uses(index)
    }

    /// Posts a tracer event, if an EQ takes it.
    fn trace_event(&mut self, subtype: u8) {
        let Some(eqn) = self.eq_for(eq_event::TRACER) else {
            self.counters.events_dropped += 1;
            return;
        };
        self.post_event(
            eqn,
            &EqEvent::new(eq_event::TRACER, subtype, &[]),
            Irq::Once,
        );
    }

    /// Tells the driver of new traces, if it wants to know.
    pub(crate) fn trace_available(&mut self) {
        if !self.tracer.session.armed {
            self.tracer.session.fresh = true;
            return;
        }
        self.tracer.session.armed = false;
        self.tracer.session.fresh = false;
        let (setup, counters) = (&mut self.tracer.setup, &mut self.tracer.counters);
        if setup.lose_events > 0 {
            setup.lose_events -= 1;
            counters.events_lost += 1;
            return;
        }
        counters.events += 1;
        let twice = setup.double_events > 0;
        if twice {
            setup.double_events -= 1;
            counters.events_doubled += 1;
        }
        self.trace_event(subtype::TRACES);
        if twice {
            self.trace_event(subtype::TRACES);
        }
    }

    /// The driver asks for an event.
    pub(crate) fn arm_trace_event(&mut self) {
        let tracer = &mut self.tracer;
        tracer.counters.arms += 1;
        tracer.session.armed = true;
        if tracer.setup.eager && tracer.session.fresh {
            self.trace_available();
        }
    }

    /// The tracer gets another owner, and the driver learns of it, or not.
    pub fn own_tracer(&mut self, owner: Owner, event: bool) {
        info!("the tracer's owner: {owner:?}");
        self.tracer.stop();
        self.tracer.session.owner = owner;
        if event {
            self.trace_event(subtype::OWNERSHIP);
        }
    }

    /// Replaces the string database, and the driver learns of it, or not.
    pub fn renew_strings(&mut self, size: Size, event: bool) {
        self.tracer.renew_strings(size);
        if event {
            self.trace_event(subtype::STRINGS);
        }
    }
}
