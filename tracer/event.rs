// SPDX-License-Identifier: GPL-2.0

//! What the events of a block say, and when they happened (hardware.md 4).

use super::{
    block::Block,
    timestamp::Timestamp53, //
};
use crate::layouts::tracer::{
    MtrcCap,
    TracerEvent,
    TracerStringEvent,
    TracerTimestampEvent,
    TIMESTAMP_EVENT, //
};

/// How a device's events are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Mask of the unreliable flag in `urts`.
    unreliable: u8,
    first_string: u8,
    strings: u8,
}

impl Rules {
    /// The rules of the device that says this of itself.
    pub fn of(capability: &MtrcCap) -> Self {
        Self::new(
            capability.trc_ver(),
            capability.first_string_trace(),
            capability.num_string_trace(),
        )
    }

    /// Rules of `trc_ver`, where `strings` ids from `first_string` on are string traces.
    pub const fn new(trc_ver: u8, first_string: u8, strings: u8) -> Self {
        Self {
            unreliable: if trc_ver == 0 { 1 << 2 } else { 1 << 0 },
            first_string,
            strings,
        }
    }

    /// Whether `event_id` is that of string traces.
    pub const fn is_string(&self, event_id: u8) -> bool {
        // Below the first id this wraps to what is beyond all.
        event_id >= self.first_string && event_id - self.first_string < self.strings
    }
}

/// A timestamp event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The time.
    pub time: Timestamp53,
    /// If not, events before it cannot be given a full time.
    pub reliable: bool,
}

impl Stamp {
    #[inline(always)]
    fn read(view: &TracerTimestampEvent<[u8; 8]>, rules: &Rules) -> Self {
        Self {
            time: time(view),
            reliable: view.urts() & rules.unreliable == 0,
        }
    }

    /// The time in an event (as it lies in memory), if it is a timestamp event.
    #[inline(always)]
    pub fn time_of(word: u64) -> Option<Timestamp53> {
        let view = TracerTimestampEvent::view(word.to_ne_bytes());
        is_stamp(word).then(|| time(&view))
    }
}

#[inline(always)]
fn time(view: &TracerTimestampEvent<[u8; 8]>) -> Timestamp53 {
    Timestamp53::new(
        u64::from(view.timestamp52_40()) << 40
            | u64::from(view.timestamp39_8()) << 8
            | u64::from(view.timestamp7_0()),
    )
}

/// A part of a string trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StringEvent {
    /// The device dropped events before this one.
    pub lost: bool,
    /// Event id: who traces.
    pub id: u8,
    /// Message number, 13 bits.
    pub tmsn: u16,
    /// 0: `param` points to the string; 1 to 7: it is this parameter.
    pub tdsn: u8,
    /// Pointer or parameter.
    pub param: u32,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A timestamp.
    Stamp(Stamp),
    /// A part of a string trace.
    String(StringEvent),
    /// Any other.
    Other {
        /// The device dropped events before this one.
        lost: bool,
        /// Event id.
        id: u8,
    },
    /// Nothing: eight bytes of zeros.
    Padding,
}

impl Event {
    /// Decodes an event as it lies in memory.
    #[inline]
    pub fn decode(word: u64, rules: &Rules) -> Self {
        let bytes = word.to_ne_bytes();
        let any = TracerEvent::view(bytes);
        let id = any.event_id();
        if id == TIMESTAMP_EVENT {
            return Self::Stamp(Stamp::read(&TracerTimestampEvent::view(bytes), rules));
        }
        if word == 0 {
            return Self::Padding;
        }
        if rules.is_string(id) {
            let string = TracerStringEvent::view(bytes);
            return Self::String(StringEvent {
                lost: string.lost(),
                id,
                tmsn: string.tmsn(),
                tdsn: string.tdsn(),
                param: string.string_param(),
            });
        }
        Self::Other {
            lost: any.lost(),
            id,
        }
    }
}

/// When something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// At this time.
    Full(Timestamp53),
    /// When the clock had these low 7 bits: the timestamp event after it is unreliable or missing.
    Low(u8),
}

impl Time {
    /// The full time, if it is known.
    pub fn full(self) -> Option<Timestamp53> {
        match self {
            Self::Full(time) => Some(time),
            Self::Low(_) => None,
        }
    }
}

/// An event with its time, as it lies in memory and decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// When it happened.
    pub time: Time,
    /// The eight bytes in the order of memory.
    pub word: u64,
    /// What it says.
    pub event: Event,
}

/// The events of a block; see [`Block::events`].
#[derive(Clone, Debug)]
pub struct Events<'a> {
    block: &'a Block,
    rules: Rules,
    /// The next one.
    at: usize,
    /// One bit for each timestamp event from the next one on; bit 0 is that of the next one.
    stamps: u32,
    /// The time of the first of these, if it is known and reliable.
    stamp: Option<Timestamp53>,
}

impl Block {
    /// The events in the order in which they were written, each with its time.
    #[inline]
    pub fn events(&self, rules: &Rules) -> Events<'_> {
        let mut stamps = 0_u32;
        for (i, word) in self.0.iter().enumerate() {
            stamps |= u32::from(is_stamp(*word)) << i;
        }
        let mut events = Events {
            block: self,
            rules: *rules,
            at: 0,
            stamps,
            stamp: None,
        };
        events.find_stamp();
        events
    }
}

/// Whether an event, as it lies in memory, is a timestamp event.
#[inline(always)]
fn is_stamp(word: u64) -> bool {
    TracerEvent::view(word.to_ne_bytes()).event_id() == TIMESTAMP_EVENT
}

impl Events<'_> {
    /// Finds the timestamp event that times the events from here on.
    #[inline]
    fn find_stamp(&mut self) {
        let next = self.at + self.stamps.trailing_zeros() as usize;
        let word = self.block.0.get(next).copied().unwrap_or(0);
        // Without one, this is a place where there is none, or none at all.
        self.stamp = None;
        if is_stamp(word) {
            let stamp = Stamp::read(&TracerTimestampEvent::view(word.to_ne_bytes()), &self.rules);
            self.stamp = stamp.reliable.then_some(stamp.time);
        }
    }
}

impl Iterator for Events<'_> {
    type Item = Timed;

    #[inline]
    fn next(&mut self) -> Option<Timed> {
        let word = *self.block.0.get(self.at)?;
        let event = Event::decode(word, &self.rules);
        self.at += 1;
        let ends = self.stamps & 1 != 0;
        self.stamps >>= 1;
        let time = if let Event::Stamp(stamp) = event {
            Time::Full(stamp.time)
        } else {
            let low = TracerEvent::view(word.to_ne_bytes()).timestamp();
            match self.stamp {
                Some(stamp) => Time::Full(stamp.rebuild(low)),
                None => Time::Low(low),
            }
        };
        if ends {
            self.find_stamp();
        }
        Some(Timed { time, word, event })
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_tracer_event)]
mod tests {
    use super::*;
    use crate::tracer::block::EVENTS;

    /// An event from its two words of hardware.md 4.
    fn word(w0: u32, w1: u32) -> u64 {
        (u64::from(w0) << 32 | u64::from(w1)).to_be()
    }

    fn stamp(time: u64, urts: u32) -> u64 {
        let (high, middle, low) = (time >> 40, time >> 8, time & 0xff);
        word(
            (low as u32) << 24 | 0xff << 16 | urts << 13 | high as u32 & 0x1fff,
            middle as u32,
        )
    }

    const RULES: Rules = Rules::new(1, 0x10, 8);

    #[test]
    fn kinds() {
        for (w0, w1, want) in [
            (0, 0, Event::Padding),
            (
                0x8110_ffff,
                0x1234_5678,
                Event::String(StringEvent {
                    lost: true,
                    id: 0x10,
                    tmsn: 0x1fff,
                    tdsn: 7,
                    param: 0x1234_5678,
                }),
            ),
            (
                0x0017_0008,
                1,
                Event::String(StringEvent {
                    lost: false,
                    id: 0x17,
                    tmsn: 1,
                    tdsn: 0,
                    param: 1,
                }),
            ),
            // The ids before the first and after the last one; upstream takes the latter.
            (
                0x000f_0000,
                0,
                Event::Other {
                    lost: false,
                    id: 0x0f,
                },
            ),
            (
                0x8018_0000,
                0,
                Event::Other {
                    lost: true,
                    id: 0x18,
                },
            ),
        ] {
            assert_eq!(Event::decode(word(w0, w1), &RULES), want);
        }
    }

    #[test]
    fn ids_at_the_end_of_the_range() {
        for (first, count, id, want) in [
            (0xfe, 1, 0xfe, true),
            (0xfe, 1, 0xfd, false),
            (0xf0, 0xff, 0xfe, true),
            (0xf0, 0xff, 0xef, false),
            (0, 0, 0, false),
            (0, 0xff, 0xfe, true),
        ] {
            assert_eq!(Rules::new(0, first, count).is_string(id), want);
        }
        // A timestamp is one even where ids of strings reach so far.
        let rules = Rules::new(0, 0xf0, 0xff);
        assert!(matches!(
            Event::decode(stamp(5, 0), &rules),
            Event::Stamp(_)
        ));
    }

    #[test]
    fn stamps() {
        let time = 0x1a_bcde_f012_3481;
        for (version, urts, reliable) in [
            (0, 0, true),
            (0, 4, false),
            (0, 3, true),
            (1, 1, false),
            (1, 6, true),
            (3, 1, false),
        ] {
            let want = Stamp {
                time: Timestamp53::new(time),
                reliable,
            };
            let rules = Rules::new(version, 0x10, 8);
            assert_eq!(Event::decode(stamp(time, urts), &rules), Event::Stamp(want));
        }
        assert_eq!(Stamp::time_of(stamp(time, 7)), Some(Timestamp53::new(time)));
        assert_eq!(Stamp::time_of(word(0x00fe_0000, 0)), None);
    }

    #[test]
    fn times_come_from_the_next_stamp() {
        let mut block = Block::EMPTY;
        let event = |low: u32| word(low << 24 | 0x10 << 16, 1);
        block.0[0] = event(0x05);
        block.0[1] = stamp(0x1006, 0);
        block.0[2] = stamp(0x1080, 1);
        block.0[3] = event(0x20);
        block.0[4] = event(0x21);
        block.0[5] = stamp(0x2021, 1);
        for low in 6..31 {
            block.0[low as usize] = event(low);
        }
        block.0[31] = stamp(0x3003, 0);
        let mut events = block.events(&RULES).map(|timed| timed.time);
        let full = |time| Some(Time::Full(Timestamp53::new(time)));
        assert_eq!(events.next(), full(0x1005));
        assert_eq!(events.next(), full(0x1006));
        assert_eq!(events.next(), full(0x1080));
        // Before an unreliable one.
        assert_eq!(events.next(), Some(Time::Low(0x20)));
        assert_eq!(events.next(), Some(Time::Low(0x21)));
        assert_eq!(events.next(), full(0x2021));
        // After it, before a reliable one: the borrow.
        for low in 6..31 {
            assert_eq!(events.next(), full(0x2f80 | low));
        }
        assert_eq!(events.next(), full(0x3003));
        assert_eq!(events.next(), None);
    }

    #[test]
    fn without_a_stamp_there_is_no_time() {
        let block = Block([word(0x7f10_0000, 0); EVENTS]);
        assert_eq!(block.events(&RULES).count(), EVENTS);
        assert!(block
            .events(&RULES)
            .all(|timed| timed.time == Time::Low(0x7f)));
    }
}
