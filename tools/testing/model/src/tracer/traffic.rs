// SPDX-License-Identifier: GPL-2.0

//! Writes traces: how many, when, and what goes wrong with them.
//!
//! It works in slices between two messages of QEMU, so that a rate that nobody can keep up with
//! stops nobody. A block that is to be torn stays half written for a while, during which the
//! device writes nothing else, as a slow bus would have it.

use std::collections::VecDeque;
use std::time::Duration;
use std::time::Instant;

use log::info;

use super::block::Builder;
use super::block::Full;
use super::block::Stamps;
use super::event;
use super::event::BLOCK;
use super::event::EVENT;
use super::event::PER_BLOCK;
use super::event::TIME_MASK;
use super::event::TMSN_MASK;
use super::random::mix;
use super::random::Random;
use super::script::Says;
use super::script::Trace;
use super::truth::Entry;
use super::Tracer;
use crate::device::Device;

/// Longest time that a slice takes.
const SLICE: Duration = Duration::from_micros(300);

/// Traces between two looks at the clock.
const BATCH: u64 = 64;

/// Shortest time between two slices of a traffic that has a rate.
const PACE: Duration = Duration::from_micros(200);

/// Longer than any block is held.
const FOREVER: Duration = Duration::from_secs(3600);

/// Traces of a core dump.
pub const CORE_DUMP: u64 = 24;

/// Most messages that are told at the same time.
pub const MAX_INTERLEAVE: usize = 16;

/// What is to be written. Shares are per thousand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Traces per second; `None` is as many as possible.
    pub rate: Option<u64>,
    /// Traces left; `None` is no end.
    pub left: Option<u64>,
    /// Messages that are told at the same time.
    pub interleave: usize,
    /// Blocks that are half written for a while.
    pub torn: u16,
    /// How long.
    pub hold: Duration,
    /// Traces that are lost inside the device.
    pub lost: u16,
    /// Traces of which one event is lost inside the device.
    pub cut: u16,
    /// Timestamps that are unreliable.
    pub unreliable: u16,
    /// A block that is not full is filled with timestamps and written after this time.
    pub flush: Option<Duration>,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            rate: Some(1000),
            left: None,
            interleave: 1,
            torn: 0,
            hold: Duration::from_micros(100),
            lost: 0,
            cut: 0,
            unreliable: 0,
            flush: Some(Duration::from_millis(20)),
        }
    }
}

/// A message under way.
#[derive(Debug)]
struct Message {
    trace: Trace,
    tmsn: u16,
    /// Its first event, before it is written.
    entry: Option<Entry>,
    parts: super::script::Parts,
    next: usize,
    /// This event is lost.
    cut: Option<usize>,
}

/// A block on its way to memory.
#[derive(Debug)]
struct Writing {
    full: Full,
    /// Bytes that are written.
    done: usize,
    /// When the rest follows.
    due: Instant,
}

/// The writer of one session.
#[derive(Debug)]
pub struct Engine {
    builder: Builder,
    random: Random,
    messages: VecDeque<Message>,
    writing: Option<Writing>,
    /// Next block of the buffer.
    block: u64,
    tmsn: u16,
    /// The next event must say that something was lost.
    lost: bool,
    /// Traces since `since`.
    made: u64,
    since: Instant,
    /// When the block under way got its first event.
    opened: Option<Instant>,
}

impl Engine {
    fn new(tracer: &Tracer, now: Instant) -> Self {
        let seed = mix(tracer.setup.script.seed ^ tracer.truth.total());
        Self {
            builder: Builder::new(tracer.time(now), Random::new(seed)),
            random: Random::new(!seed),
            messages: VecDeque::new(),
            writing: None,
            block: 0,
            tmsn: 0,
            lost: false,
            made: 0,
            since: now,
            opened: None,
        }
    }

    /// What was not written.
    pub(super) fn abandon(self) -> Vec<Entry> {
        let writing = self.writing.map(|w| w.full.traces);
        let mut entries = writing.unwrap_or_default();
        entries.extend(self.builder.abandon());
        entries.extend(self.messages.into_iter().filter_map(|m| m.entry));
        entries
    }

    /// Next block of the buffer.
    pub fn block(&self) -> u64 {
        self.block
    }
}

impl Tracer {
    /// Begins to write at the first block.
    pub fn start(&mut self) {
        self.stop();
        self.session.running = true;
        self.session.engine = Some(Engine::new(self, Instant::now()));
    }

    /// Next block of the buffer.
    pub fn block(&self) -> u64 {
        self.session.engine.as_ref().map_or(0, Engine::block)
    }

    /// Sets what is to be written from now on.
    pub fn set_traffic(&mut self, traffic: Option<Traffic>) {
        self.traffic = traffic;
        if let Some(engine) = &mut self.session.engine {
            engine.since = Instant::now();
            engine.made = 0;
        }
    }

    /// Traces that are due at `now`.
    fn due(&self, now: Instant) -> u64 {
        let (Some(traffic), Some(engine)) = (&self.traffic, &self.session.engine) else {
            return 0;
        };
        let due = traffic.rate.map_or(u64::MAX, |rate| {
            let nanos = now.saturating_duration_since(engine.since).as_nanos();
            let due = nanos * u128::from(rate) / 1_000_000_000;
            u64::try_from(due).unwrap_or(u64::MAX)
        });
        due.saturating_sub(engine.made)
            .min(traffic.left.unwrap_or(u64::MAX))
    }

    /// When the next trace is due.
    fn next_due(&self) -> Option<Instant> {
        let (traffic, engine) = (self.traffic.as_ref()?, self.session.engine.as_ref()?);
        if traffic.left == Some(0) {
            return None;
        }
        let rate = traffic.rate?;
        let nanos = u128::from(engine.made + 1) * 1_000_000_000 / u128::from(rate.max(1));
        let after = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        engine.since.checked_add(after)
    }

    /// When the block under way is to be written, full or not.
    fn flush_due(&self) -> Option<Instant> {
        let engine = self.session.engine.as_ref()?;
        Some(engine.opened? + self.traffic.unwrap_or_default().flush?)
    }
}

impl Device {
    /// Whether the tracer can get on.
    fn traces(&self) -> bool {
        self.tracer.session.running && self.may_use_bus()
    }

    /// Writes what is due.
    pub(crate) fn trace(&mut self, now: Instant) {
        if !self.traces() {
            return;
        }
        let end = now + SLICE;
        let mut now = now;
        while now < end {
            if !self.finish_writing(now) {
                break;
            }
            let due = self.tracer.due(now).min(BATCH);
            if due == 0 {
                if self.tracer.flush_due().is_some_and(|t| t <= now) {
                    self.flush_traces(now);
                }
                break;
            }
            for _ in 0..due {
                self.trace_once(now, false);
                // A torn block stops the rest.
                if !self.is_writing_done() {
                    break;
                }
            }
            now = Instant::now();
        }
    }

    /// Time until [`Device::trace`] has something to do.
    pub(crate) fn trace_wait(&self, now: Instant) -> Option<Duration> {
        if !self.traces() {
            return None;
        }
        let tracer = &self.tracer;
        let engine = tracer.session.engine.as_ref()?;
        if let Some(writing) = &engine.writing {
            return Some(writing.due.saturating_duration_since(now));
        }
        let endless = tracer
            .traffic
            .is_some_and(|t| t.rate.is_none() && t.left != Some(0));
        if endless {
            return Some(Duration::ZERO);
        }
        let pace = |t: Instant| {
            if t + PACE < now {
                Duration::ZERO
            } else {
                t.saturating_duration_since(now).max(PACE)
            }
        };
        let due = tracer.next_due().map(pace);
        let flush = tracer.flush_due().map(|t| t.saturating_duration_since(now));
        [due, flush].into_iter().flatten().min()
    }

    fn is_writing_done(&self) -> bool {
        let engine = self.tracer.session.engine.as_ref();
        engine.is_some_and(|e| e.writing.is_none())
    }

    /// Writes the traces of a core dump, and all before it, at once.
    pub(crate) fn trace_core_dump(&mut self) {
        if !self.traces() {
            return;
        }
        let now = Instant::now();
        self.finish_writing(now + FOREVER);
        for _ in 0..CORE_DUMP {
            self.trace_once(now, true);
            self.finish_writing(now + FOREVER);
        }
        self.flush_traces(now);
        self.finish_writing(now + FOREVER);
    }

    /// Fills the block under way with timestamps, and writes it.
    pub(crate) fn flush_traces(&mut self, now: Instant) {
        if !self.traces() {
            return;
        }
        // All messages must be complete.
        while self.continue_message(now) {}
        let stamps = self.trace_stamps();
        let time = self.tracer.time(now);
        let Some(engine) = &mut self.tracer.session.engine else {
            return;
        };
        if !engine.builder.is_empty() && engine.writing.is_none() {
            let full = engine.builder.pad(time, stamps);
            self.write_block(full, now);
        }
    }

    fn trace_stamps(&self) -> Stamps {
        let traffic = self.tracer.traffic.unwrap_or_default();
        self.tracer.stamps(&traffic)
    }

    /// Begins a message, and goes on with those under way.
    fn trace_once(&mut self, now: Instant, core_dump: bool) {
        let time = self.tracer.time(now);
        let tracer = &mut self.tracer;
        let traffic = tracer.traffic.unwrap_or_default();
        let script = tracer.setup.script;
        let Some(engine) = &mut tracer.session.engine else {
            return;
        };
        let n = tracer.next;
        tracer.next += 1;
        let trace = if core_dump {
            script.core_dump(n)
        } else {
            if let Some(left) = &mut tracer.traffic.as_mut().and_then(|t| t.left.as_mut()) {
                **left = left.saturating_sub(1);
            }
            engine.made += 1;
            script.trace(n)
        };
        let mut entry = Entry {
            time: 0,
            core_dump,
            ..Entry::default()
        };
        if !core_dump && engine.random.chance(traffic.lost) {
            // Entries come in the order of the numbers.
            while self.continue_message(now) {}
            entry.dropped = true;
            match &mut self.tracer.session.engine {
                Some(engine) => {
                    engine.lost = true;
                    entry.time = engine.builder.floor().max(time) & TIME_MASK;
                    engine.builder.dropped(entry);
                }
                None => self.tracer.count(entry),
            }
            return;
        }
        let parts = trace.parts(&tracer.strings);
        let count = parts.as_slice().len();
        let cut = (count > 1 && !core_dump && engine.random.chance(traffic.cut))
            .then(|| 1 + engine.random.below(count as u64 - 1) as usize);
        entry.partial = cut.is_some();
        engine.tmsn = (engine.tmsn + 1) & TMSN_MASK;
        engine.opened.get_or_insert(now);
        engine.messages.push_back(Message {
            trace,
            tmsn: engine.tmsn,
            entry: Some(entry),
            parts,
            next: 0,
            cut,
        });
        let open = traffic.interleave.clamp(1, MAX_INTERLEAVE);
        while self.open_messages() >= open && self.continue_message(now) {}
    }

    fn open_messages(&self) -> usize {
        let engine = self.tracer.session.engine.as_ref();
        engine.map_or(0, |e| e.messages.len())
    }

    /// Writes one event of the messages under way, which take turns; false if there are none.
    fn continue_message(&mut self, now: Instant) -> bool {
        let stamps = self.trace_stamps();
        let clock = self.tracer.time(now);
        let Some(engine) = &mut self.tracer.session.engine else {
            return false;
        };
        // First events go first, so that they are in the order of the numbers.
        let first = engine.messages.iter().position(|m| m.entry.is_some());
        let Some(mut message) = engine.messages.remove(first.unwrap_or(0)) else {
            return false;
        };
        let new = message.entry.is_some();
        let floor = engine.builder.floor();
        let gap = if new {
            1 + engine.random.below(24)
        } else {
            engine.random.below(3)
        };
        let mut time = floor + gap;
        if new {
            time = time.max(clock);
        }
        let room = engine.builder.make_room(time, stamps);
        let time = time.max(engine.builder.floor());
        let mut event = match (message.trace.says, message.parts.as_slice()) {
            (Says::Raw, _) => event::raw(message.trace.id, time, message.trace.data()),
            (_, parts) => {
                let (tdsn, word) = parts[message.next];
                event::string(message.trace.id, time, message.tmsn, tdsn, word)
            }
        };
        let cut = message.cut == Some(message.next);
        message.next += 1;
        let mut full = None;
        if cut {
            engine.lost = true;
        } else {
            let lost = std::mem::take(&mut engine.lost);
            if lost {
                event::set_lost(&mut event);
            }
            let entry = message.entry.take().map(|mut entry| {
                entry.time = time & TIME_MASK;
                entry.lost = lost;
                entry
            });
            full = engine.builder.push(time, event, entry, stamps);
            engine.opened.get_or_insert(now);
        }
        if message.next < message.parts.as_slice().len() {
            engine.messages.push_back(message);
        }
        for full in [room, full].into_iter().flatten() {
            self.write_block(full, now);
        }
        true
    }

    /// Sends a block to memory, in two parts if it is to be torn.
    fn write_block(&mut self, full: Full, now: Instant) {
        // Two blocks at once only after a torn one, which then has waited long enough.
        self.finish_writing(now + FOREVER);
        let traffic = self.tracer.traffic.unwrap_or_default();
        let Some(engine) = &mut self.tracer.session.engine else {
            return;
        };
        engine.opened = (!engine.messages.is_empty()).then_some(now);
        let torn = engine.random.chance(traffic.torn);
        let mut writing = Writing {
            full,
            done: 0,
            due: now,
        };
        let mut fine = true;
        if torn {
            let part = (1 + engine.random.below(PER_BLOCK as u64 - 1) as usize) * EVENT;
            let bytes = writing.full.bytes;
            self.tracer.counters.torn += 1;
            fine = self.write_part(&bytes[..part], 0, 0);
            writing.done = part;
            writing.due = now + traffic.hold;
        }
        if let Some(engine) = &mut self.tracer.session.engine {
            engine.writing = Some(writing);
        }
        if fine {
            self.finish_writing(now);
        } else {
            self.tracer.stop();
        }
    }

    /// Writes the rest of a block whose time has come; false if it must wait.
    fn finish_writing(&mut self, now: Instant) -> bool {
        let Some(engine) = &mut self.tracer.session.engine else {
            return false;
        };
        match &engine.writing {
            None => return true,
            Some(writing) if writing.due > now => return false,
            Some(_) => {}
        }
        let Some(writing) = engine.writing.take() else {
            return true;
        };
        if !self.write_part(&writing.full.bytes[writing.done..], writing.done, EVENT) {
            if let Some(engine) = &mut self.tracer.session.engine {
                engine.writing = Some(writing);
            }
            self.tracer.stop();
            return false;
        }
        let tracer = &mut self.tracer;
        let blocks = tracer.session.buffer.map_or(1, |b| b.blocks());
        if let Some(engine) = &mut tracer.session.engine {
            engine.block += 1;
            if engine.block >= blocks {
                engine.block = 0;
                tracer.counters.wraps += 1;
            }
        }
        tracer.counters.blocks += 1;
        for entry in writing.full.traces {
            tracer.count(entry);
        }
        self.trace_available();
        true
    }

    /// Writes part of the current block.
    fn write_part(&mut self, bytes: &[u8], offset: usize, tail: usize) -> bool {
        let Some(buffer) = self.tracer.session.buffer else {
            return false;
        };
        let at = buffer.start + self.tracer.block() * BLOCK as u64 + offset as u64;
        let result = self.write_through(buffer.mkey, at, bytes, tail);
        if let Err(e) = &result {
            info!("the tracer stops: {e}");
        }
        result.is_ok()
    }
}
