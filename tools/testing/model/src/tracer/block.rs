// SPDX-License-Identifier: GPL-2.0

//! Puts events into blocks, with the timestamps that make their times whole again.
//!
//! An event has the low 7 bits of its time, so a timestamp must follow within [`REACH`] ticks; the
//! last event of a block is always one. Timestamps lie after the events before them, and not after
//! the events that follow.

use super::event;
use super::event::Event;
use super::event::BLOCK;
use super::event::EVENT;
use super::event::PER_BLOCK;
use super::event::REACH;
use super::random::Random;
use super::truth::Entry;

/// Slots that are not the last timestamp's.
const SLOTS: usize = PER_BLOCK - 1;

/// A block that is full.
#[derive(Clone, Debug)]
pub struct Full {
    /// Its bytes.
    pub bytes: [u8; BLOCK],
    /// Time of the last timestamp.
    pub time: u64,
    /// Traces that begin in it, or that were dropped meanwhile.
    pub traces: Vec<Entry>,
}

/// How timestamps are made.
#[derive(Clone, Copy, Debug)]
pub struct Stamps {
    /// `trc_ver`.
    pub version: u8,
    /// In a thousand timestamps, so many are unreliable.
    pub unreliable: u16,
}

/// The block under way.
#[derive(Debug)]
pub struct Builder {
    bytes: [u8; BLOCK],
    used: usize,
    /// Times of the first and last event since the last timestamp.
    open: Option<(u64, u64)>,
    /// No event may be earlier than this.
    floor: u64,
    traces: Vec<Entry>,
    /// Entries of `traces` before the last timestamp.
    stamped: usize,
    random: Random,
}

impl Builder {
    /// An empty block; all times are after `time`.
    pub fn new(time: u64, random: Random) -> Self {
        Self {
            bytes: [0; BLOCK],
            used: 0,
            open: None,
            floor: time + 1,
            traces: Vec::new(),
            stamped: 0,
            random,
        }
    }

    /// Whether nothing has been put into the block.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Earliest time that the next event can have.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Remembers a trace that no event tells of.
    pub fn dropped(&mut self, entry: Entry) {
        self.traces.push(entry);
    }

    /// Makes room for an event at `time`, which is not before [`Builder::floor`]: it will be
    /// within reach of the next timestamp. Returns the block that this fills.
    pub fn make_room(&mut self, time: u64, stamps: Stamps) -> Option<Full> {
        let (first, _) = self.open?;
        if time < first + REACH {
            return None;
        }
        self.stamp(time, stamps);
        if self.used < SLOTS {
            return None;
        }
        // Only the last slot is left.
        self.stamp(time, stamps);
        Some(self.finish())
    }

    /// Adds an event after [`Builder::make_room`], with the entry of the trace that begins with it.
    /// Returns the block that this fills.
    pub fn push(
        &mut self,
        time: u64,
        event: Event,
        entry: Option<Entry>,
        stamps: Stamps,
    ) -> Option<Full> {
        self.put(event);
        self.traces.extend(entry);
        self.open = Some((self.open.map_or(time, |(first, _)| first), time));
        self.floor = time;
        if self.used < SLOTS {
            return None;
        }
        self.stamp(u64::MAX, stamps);
        Some(self.finish())
    }

    /// Fills the rest of the block with timestamps, at `time` if they can.
    pub fn pad(&mut self, time: u64, stamps: Stamps) -> Full {
        while self.used < PER_BLOCK {
            self.stamp(time.max(self.floor + 1), stamps);
        }
        self.finish()
    }

    /// Traces of the block under way, which never gets out.
    pub fn abandon(self) -> Vec<Entry> {
        self.traces
    }

    /// Adds a timestamp that is not after `before`.
    fn stamp(&mut self, before: u64, stamps: Stamps) {
        let time = match self.open {
            Some((first, last)) => {
                // Anywhere between, both ends often: that is where a reader goes wrong.
                let (low, high) = (last + 1, (first + REACH).min(before).max(last + 1));
                match self.random.below(4) {
                    0 => low,
                    1 => high,
                    _ => low + self.random.below(high - low + 1),
                }
            }
            None => before.min(self.floor + REACH).max(self.floor),
        };
        let unreliable = self.random.chance(stamps.unreliable);
        self.put(event::timestamp(time, stamps.version, unreliable));
        for entry in &mut self.traces[self.stamped..] {
            entry.unreliable = unreliable;
        }
        self.stamped = self.traces.len();
        self.open = None;
        self.floor = time;
    }

    fn put(&mut self, event: Event) {
        let at = self.used * EVENT;
        self.bytes[at..at + EVENT].copy_from_slice(&event);
        self.used += 1;
    }

    fn finish(&mut self) -> Full {
        self.used = 0;
        self.stamped = 0;
        // The next block's timestamp must be newer.
        let time = self.floor;
        self.floor += 1;
        Full {
            bytes: self.bytes,
            time,
            traces: std::mem::take(&mut self.traces),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMPS: Stamps = Stamps {
        version: 0,
        unreliable: 0,
    };

    fn words(e: &[u8]) -> (u32, u32) {
        (
            u32::from_be_bytes(e[..4].try_into().expect("4")),
            u32::from_be_bytes(e[4..].try_into().expect("4")),
        )
    }

    /// Times of the events of `blocks` by the rule of hardware.md section 4, and of the blocks.
    fn read(blocks: &[Full]) -> (Vec<u64>, Vec<u64>) {
        let (mut times, mut ends) = (Vec::new(), Vec::new());
        let mut open = Vec::new();
        for block in blocks {
            let mut stamp = None;
            for e in block.bytes.chunks(EVENT) {
                let (w0, w1) = words(e);
                if w0 >> 16 & 0xff == 0xff {
                    let t = u64::from(w0 & 0x1fff) << 40 | u64::from(w1) << 8 | u64::from(w0 >> 24);
                    for low in open.drain(..) {
                        let high = if low < t & 0x7f { t >> 7 } else { (t >> 7) - 1 };
                        times.push(high << 7 | low);
                    }
                    stamp = Some(t);
                } else {
                    open.push(u64::from(w0 >> 24 & 0x7f));
                    stamp = None;
                }
            }
            ends.push(stamp.expect("the last event is a timestamp"));
            assert_eq!(ends.last(), Some(&block.time));
        }
        (times, ends)
    }

    #[test]
    fn times_come_back_whatever_lies_between() {
        for seed in 0..40 {
            let mut r = Random::new(seed);
            let mut b = Builder::new(1 << 20, Random::new(seed + 1));
            let (mut written, mut blocks) = (Vec::new(), Vec::new());
            let mut gone = 0;
            for i in 0..3000u64 {
                let gap = match r.below(4) {
                    0 => 0,
                    1 => r.below(4),
                    2 => 120 + r.below(16),
                    _ => r.below(100_000),
                };
                let time = b.floor() + gap;
                blocks.extend(b.make_room(time, STAMPS));
                let entry = Entry {
                    time,
                    ..Entry::default()
                };
                blocks.extend(b.push(time, event::raw(1, time, i), Some(entry), STAMPS));
                written.push(time);
                if r.chance(5) {
                    b.dropped(entry);
                    gone += 1;
                }
                if r.chance(5) && !b.is_empty() {
                    blocks.push(b.pad(b.floor() + r.below(1000), STAMPS));
                }
            }
            if !b.is_empty() {
                blocks.push(b.pad(0, STAMPS));
            }
            let (times, ends) = read(&blocks);
            assert_eq!(times, written);
            assert!(ends.windows(2).all(|w| w[0] < w[1]), "blocks get newer");
            let traces: usize = blocks.iter().map(|b| b.traces.len()).sum();
            assert_eq!(traces + b.abandon().len(), written.len() + gone);
        }
    }

    #[test]
    fn unreliable_timestamps_are_told_of() {
        let all = Stamps {
            version: 1,
            unreliable: 1000,
        };
        let mut b = Builder::new(0, Random::new(1));
        b.push(5, event::raw(1, 5, 0), Some(Entry::default()), STAMPS);
        b.make_room(1000, STAMPS);
        b.push(1000, event::raw(1, 1000, 0), Some(Entry::default()), all);
        let full = b.pad(2000, all);
        let flags: Vec<bool> = full.traces.iter().map(|e| e.unreliable).collect();
        assert_eq!(flags, [false, true]);
        assert_eq!(words(&full.bytes[BLOCK - EVENT..]).0 >> 13 & 7, 0b001);
    }
}
