// SPDX-License-Identifier: GPL-2.0

//! The firmware tracer: against a device that is written from hardware.md 4, and keeps the truth.

mod format;
mod policies;
mod race;
mod strings;
pub mod writer;

use std::cell::Cell;

use mlx5_pure::tracer::assembly::{Body, Message, Parser, Row, ROWS};
use mlx5_pure::tracer::block::{Block, Reader, Source, Step, EVENTS};
use mlx5_pure::tracer::drain::{drain, Record};
use mlx5_pure::tracer::event::{Event, Rules, Time};
use mlx5_pure::tracer::format::{Line, LINE};
use mlx5_pure::tracer::strings::{Database, Section};
use mlx5_pure::tracer::timestamp::Timestamp53;
use proptest::prelude::*;

use writer::{Random, Writer, Written};

/// A block as words in the order of memory.
fn words(block: &[u8; 256]) -> [u64; EVENTS] {
    let mut words = [0; EVENTS];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    }
    words
}

fn database() -> Database<Vec<u8>> {
    let (bytes, _) = writer::section(writer::FORMATS);
    let mut database = Database::empty();
    let section = Section {
        index: 3,
        base: writer::BASE,
        len: bytes.len() as u32,
    };
    database.insert(section, bytes);
    database
}

fn rules(trc_ver: u8) -> Rules {
    Rules::new(trc_ver, writer::FIRST_ID, 6)
}

/// A message that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    time: Option<u64>,
    lost: bool,
    id: u8,
    text: String,
    /// It is a string with all its parameters.
    whole: bool,
}

impl Read {
    fn new(message: &Message<'_>) -> Self {
        let mut buf = [0; LINE];
        let mut line = Line::new(&mut buf);
        message.render(&mut line);
        Self {
            time: message.time.full().map(Timestamp53::get),
            lost: message.lost,
            id: message.id,
            text: line.as_str().to_owned(),
            whole: matches!(message.body, Body::Text { .. }),
        }
    }

    fn is(&self, written: &Written) -> bool {
        self.whole
            && self.time == written.time
            && self.lost == written.lost
            && self.id == written.id
            && self.text == written.text
    }
}

/// Time stamps of the whole round, and near the places where something carries.
fn starts() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        0..1_u64 << 53,
        ((1_u64 << 53) - 100_000)..1 << 53,
        ((1_u64 << 52) - 100_000)..1 << 52,
        any::<u64>().prop_map(|seed| (seed >> 11) & !0x7f),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Arithmetic in a circle, against wide integers.
    #[test]
    fn times(a in 0..1_i128 << 53, ticks in 0..1_i128 << 53, low in 0..0x80_i128) {
        const ROUND: i128 = 1 << 53;
        let b = (a + ticks) % ROUND;
        let (first, second) = (Timestamp53::new(a as u64), Timestamp53::new(b as u64));
        prop_assert_eq!(first.plus(ticks as u64), second);
        prop_assert_eq!(i128::from(second.since(first)), ticks);
        prop_assert_eq!(second.is_after(first), ticks > 0 && ticks < ROUND / 2);
        let signed = if ticks < ROUND / 2 { ticks } else { ticks - ROUND };
        prop_assert_eq!(i128::from(second.offset_from(first)), signed);
        // The last time before `a` with these low bits, found by looking.
        let rebuilt = (1..=128)
            .map(|back| (a - back).rem_euclid(ROUND))
            .find(|time| time & 0x7f == low);
        prop_assert_eq!(rebuilt, Some(i128::from(first.rebuild(low as u8).get())));
    }

    /// What is written is what is read: all of it, in order, with the right times.
    #[test]
    fn nothing_is_lost_or_changed(
        trc_ver in 0_u8..4,
        start in starts(),
        events in 0_usize..2000,
        seed in 1_u64..,
    ) {
        let device = Writer::run(trc_ver, start, events, &mut Random(seed));
        let db = database();
        let mut parser = Parser::new(rules(trc_ver), vec![Row::FREE; ROWS]);
        let mut read = Vec::new();
        for block in &device.blocks {
            parser.block(&Block(words(block)), &db, &mut |message| read.push(Read::new(message)));
        }
        prop_assert_eq!(parser.waiting(), 0);
        prop_assert_eq!(read.len(), device.complete.len());
        for (read, written) in read.iter().zip(&device.complete) {
            prop_assert!(read.is(written), "{:?}\n{:?}", read, written);
        }
        let counters = parser.counters();
        prop_assert_eq!(counters.events, device.blocks.len() as u64 * 32);
        prop_assert_eq!(counters.messages, read.len() as u64);
        prop_assert_eq!(counters.lost_bits, device.lost_bits);
        prop_assert_eq!(counters.unreliable, device.unreliable);
        prop_assert_eq!(counters.incomplete + counters.orphans + counters.unknown_strings, 0);
    }

    /// Blocks of noise: whatever comes out is bounded and printable, and every event is counted.
    #[test]
    fn noise(
        trc_ver in 0_u8..4,
        first in any::<u8>(),
        count in any::<u8>(),
        rows in 0_usize..10,
        noise in prop::collection::vec(prop::array::uniform32(any::<u64>()), 1..20),
        // Of the bits of an event, so that ids, message numbers and strings meet.
        mask in prop_oneof![Just(u64::MAX), Just(0x80f0_fff8_0000_00ff), Just(0xff03_001f_0000_003f)],
    ) {
        let db = database();
        let mut parser = Parser::new(Rules::new(trc_ver, first, count), vec![Row::FREE; rows]);
        let (mut whole, mut raw, mut incomplete) = (0_u64, 0, 0);
        let mut sink = |message: &Message<'_>| {
            let mut buf = [0; 64];
            let mut line = Line::new(&mut buf);
            message.render(&mut line);
            assert!(line.as_bytes().iter().all(|byte| (b' '..=b'~').contains(byte)));
            match message.body {
                Body::Text { .. } | Body::Bad { .. } => whole += 1,
                Body::Raw { .. } => raw += 1,
                Body::Incomplete { words, have, .. } => {
                    assert!(usize::from(have) < 1 << words.len());
                    incomplete += 1;
                }
            }
        };
        for noise in &noise {
            let block = Block(noise.map(|word| (word & mask).to_be()));
            prop_assert_eq!(block.events(&Rules::new(trc_ver, first, count)).count(), EVENTS);
            parser.block(&block, &db, &mut sink);
        }
        parser.flush(&db, &mut sink);
        prop_assert_eq!(parser.waiting(), 0);
        let counters = parser.counters();
        prop_assert_eq!(counters.messages, whole);
        prop_assert_eq!(counters.incomplete, incomplete);
        prop_assert_eq!(counters.others + counters.orphans + counters.unknown_strings, raw);
    }

    /// Events by their bytes, as hardware.md 4 has them.
    #[test]
    fn events(bytes in any::<[u8; 8]>(), trc_ver in 0_u8..4, first in any::<u8>(), count in any::<u8>()) {
        let w0 = u32::from_be_bytes(bytes[..4].try_into().unwrap());
        let w1 = u32::from_be_bytes(bytes[4..].try_into().unwrap());
        let id = bytes[1];
        let rules = Rules::new(trc_ver, first, count);
        match Event::decode(u64::from_ne_bytes(bytes), &rules) {
            Event::Stamp(stamp) => {
                prop_assert_eq!(id, 0xff);
                let high = u64::from(w0 & 0x1fff);
                let time = high << 40 | u64::from(w1) << 8 | u64::from(bytes[0]);
                prop_assert_eq!(stamp.time.get(), time);
                let flag = if trc_ver == 0 { w0 >> 15 } else { w0 >> 13 } & 1;
                prop_assert_eq!(stamp.reliable, flag == 0);
            }
            Event::String(string) => {
                let (first, count) = (u32::from(first), u32::from(count));
                prop_assert!((first..first + count).contains(&u32::from(id)) && id != 0xff);
                prop_assert_eq!(string.lost, w0 >> 31 == 1);
                prop_assert_eq!(string.id, id);
                prop_assert_eq!(u32::from(string.tmsn), w0 >> 3 & 0x1fff);
                prop_assert_eq!(u32::from(string.tdsn), w0 & 7);
                prop_assert_eq!(string.param, w1);
            }
            Event::Other { lost, id: other } => {
                let (first, count) = (u32::from(first), u32::from(count));
                prop_assert!(!(first..first + count).contains(&u32::from(id)) && id != 0xff);
                prop_assert_eq!(lost, w0 >> 31 == 1);
                prop_assert_eq!(other, id);
            }
            Event::Padding => prop_assert_eq!(bytes, [0; 8]),
        }
    }

    /// Each event is timed by the next timestamp event behind it, if that is reliable.
    #[test]
    fn times_of_a_block(
        kinds in prop::collection::vec((0_u8..4, any::<u64>()), EVENTS),
        trc_ver in 0_u8..2,
    ) {
        let block = Block(std::array::from_fn(|i| {
            let (kind, noise) = kinds[i];
            // One in four is a timestamp event.
            let id = if kind == 0 { 0xff } else { noise >> 48 & 0x7f };
            (noise & !(0xff << 48) | id << 48).to_be()
        }));
        let rules = Rules::new(trc_ver, 0, 0x80);
        let timed: Vec<_> = block.events(&rules).collect();
        prop_assert_eq!(timed.len(), EVENTS);
        for (i, event) in timed.iter().enumerate() {
            let next = timed[i..].iter().find_map(|later| match later.event {
                Event::Stamp(stamp) => Some(stamp),
                _ => None,
            });
            let low = (u64::from_be(block.0[i]) >> 56 & 0x7f) as u8;
            let want = match (event.event, next) {
                (Event::Stamp(stamp), _) => Time::Full(stamp.time),
                (_, Some(next)) if next.reliable => Time::Full(next.time.rebuild(low)),
                _ => Time::Low(low),
            };
            prop_assert_eq!(event.time, want);
        }
    }
}

/// A ring that a device fills while it is read: before each read, it writes as many words as the
/// schedule says, which begins anew at its end.
struct Ring<'a> {
    words: Vec<Cell<u64>>,
    /// What it writes.
    stream: &'a [u64],
    written: Cell<usize>,
    schedule: &'a [u16],
    reads: Cell<usize>,
}

impl<'a> Ring<'a> {
    fn new(blocks: usize, stream: &'a [u64], schedule: &'a [u16]) -> Self {
        Self {
            words: vec![Cell::new(0); blocks * EVENTS],
            stream,
            written: Cell::new(0),
            schedule,
            reads: Cell::new(0),
        }
    }

    fn write(&self, count: usize) {
        for _ in 0..count {
            let at = self.written.get();
            let Some(word) = self.stream.get(at) else {
                return;
            };
            self.words[at % self.words.len()].set(*word);
            self.written.set(at + 1);
        }
    }

    fn read(&self, at: usize) -> u64 {
        let turn = self.reads.get();
        self.reads.set(turn + 1);
        self.write(usize::from(self.schedule[turn % self.schedule.len()]));
        self.words[at].get()
    }

    fn is_done(&self) -> bool {
        self.written.get() == self.stream.len()
    }
}

impl Source for Ring<'_> {
    fn last_event(&self, block: u32) -> u64 {
        self.read(block as usize * EVENTS + EVENTS - 1)
    }

    fn events(&self, block: u32, to: &mut [u64; EVENTS - 1]) {
        for (i, to) in to.iter_mut().enumerate() {
            *to = self.read(block as usize * EVENTS + i);
        }
    }

    fn barrier(&self) {}
}

/// What comes out of a ring: messages, and gaps with the time of the block before them.
type Records = Vec<Result<Read, Option<u64>>>;

/// A reader and a parser that work on a ring until the device has ended.
struct Reading<'a> {
    ring: Ring<'a>,
    reader: Reader,
    parser: Parser<Vec<Row>>,
    db: Database<Vec<u8>>,
    records: Records,
}

impl<'a> Reading<'a> {
    fn new(blocks: usize, stream: &'a [u64], schedule: &'a [u16]) -> Self {
        Self {
            ring: Ring::new(blocks, stream, schedule),
            reader: Reader::with_blocks(blocks as u32),
            parser: Parser::new(rules(1), vec![Row::FREE; ROWS]),
            db: database(),
            records: Vec::new(),
        }
    }

    fn record(record: &Record<'_>) -> Result<Read, Option<u64>> {
        match record {
            Record::Message(message) => Ok(Read::new(message)),
            Record::Gap(gap) => Err(gap.after.map(Timestamp53::get)),
        }
    }

    /// Reads all, at most `budget` blocks at a time.
    fn by_drain(&mut self, budget: u32) {
        let mut block = Block::EMPTY;
        let mut sink = |record: &Record<'_>| self.records.push(Self::record(record));
        let mut rounds_at_the_end = 0;
        loop {
            let done = self.ring.is_done();
            let drained = drain(
                &mut self.reader,
                &mut self.parser,
                &self.ring,
                &self.db,
                &mut block,
                budget,
                &mut sink,
            );
            assert!(drained.blocks <= budget);
            if done && drained.empty {
                break;
            }
            rounds_at_the_end += u32::from(done);
            assert!(rounds_at_the_end < 1000, "it does not end");
        }
        self.parser.flush(&self.db, &mut |message| {
            self.records.push(Ok(Read::new(message)));
        });
    }

    /// Reads all, step by step; gives the timestamps of the blocks.
    fn by_steps(&mut self) -> Vec<u64> {
        let mut block = Block::EMPTY;
        let mut stamps = Vec::new();
        let mut sink = |message: &Message<'_>| self.records.push(Ok(Read::new(message)));
        let mut steps_at_the_end = 0;
        loop {
            let done = self.ring.is_done();
            match self.reader.next(&self.ring, &mut block) {
                Step::Block(time) => {
                    stamps.push(time.get());
                    self.parser.block(&block, &self.db, &mut sink);
                }
                Step::Gap(gap) => {
                    assert_eq!(gap.after.map(Timestamp53::get), stamps.last().copied());
                    self.parser.flush(&self.db, &mut sink);
                }
                Step::Empty if done => break,
                Step::Empty => {}
            }
            steps_at_the_end += u32::from(done);
            assert!(steps_at_the_end < 1000, "it does not end");
        }
        self.parser.flush(&self.db, &mut sink);
        stamps
    }
}

/// The timestamp at the end of a block, by its bytes.
fn stamp_of(block: &[u8; 256]) -> u64 {
    let [low, _, high @ ..] = *block[248..].first_chunk::<8>().expect("eight bytes");
    let high = high
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte));
    (high & ((1 << 45) - 1)) << 8 | u64::from(low)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// A device that writes at any moment, at any speed: what is read was written, in this order,
    /// each block whole; what is missing is in a gap.
    #[test]
    fn writes_while_it_is_read(
        log_blocks in 1_u32..6,
        start in starts(),
        events in 0_usize..3000,
        seed in 1_u64..,
        schedule in prop_oneof![
            // From a trickle to far too fast, evenly or in bursts.
            prop::collection::vec(0_u16..3, 1..50),
            prop::collection::vec(0_u16..40, 1..50),
            prop::collection::vec(0_u16..500, 1..50),
            prop::collection::vec(prop_oneof![20 => Just(0_u16), 1 => 0_u16..3000], 1..200),
        ],
        budget in 1_u32..50,
    ) {
        // A device that never writes would never end.
        let mut schedule = schedule;
        schedule.push(1);
        let device = Writer::run(1, start, events, &mut Random(seed));
        let stream: Vec<u64> = device.blocks.iter().flat_map(words).collect();
        let blocks = 1 << log_blocks;
        let mut reading = Reading::new(blocks, &stream, &schedule);
        let stamps = reading.by_steps();

        // Which blocks were read: times are different, and go up.
        let mut numbers = 0..device.blocks.len();
        let mut was_read = vec![false; device.blocks.len()];
        for stamp in &stamps {
            let number = numbers.find(|number| stamp_of(&device.blocks[*number]) == *stamp);
            prop_assert!(number.is_some(), "never written, or out of order");
            was_read[number.unwrap_or(0)] = true;
        }
        // Every message whose blocks, and those between them, were read: exactly, and in order.
        let want: Vec<_> = device
            .complete
            .iter()
            .filter(|written| was_read[written.blocks.0..=written.blocks.1].iter().all(|read| *read))
            .collect();
        let got: Vec<_> = reading.records.iter().flatten().filter(|read| read.whole).collect();
        prop_assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(&want) {
            prop_assert!(got.is(want), "{:?}\n{:?}", got, want);
        }

        // What is missing was counted, up to whole rounds of the ring.
        let counters = *reading.reader.counters();
        let total = device.blocks.len() as u64;
        prop_assert_eq!(counters.blocks, stamps.len() as u64);
        prop_assert!(counters.blocks + counters.lost <= total, "{:?} of {}", counters, total);
        prop_assert_eq!((total - counters.blocks - counters.lost) % blocks as u64, 0);
        prop_assert_eq!(counters.torn, counters.gaps);
        prop_assert!(counters.gaps > 0 || counters.blocks == total);
        // Nothing was wrong with the device.
        prop_assert_eq!(reading.reader.recover(&reading.ring), None);

        // Rounds of any length read the same.
        let mut again = Reading::new(blocks, &stream, &schedule);
        again.by_drain(budget);
        let messages: Vec<_> = again.records.iter().flatten().collect();
        prop_assert!(messages.into_iter().eq(reading.records.iter().flatten()));
        prop_assert_eq!(again.reader.counters(), &counters);
        let gaps = again.records.iter().filter(|record| record.is_err()).count();
        prop_assert_eq!(gaps as u64, counters.gaps);
    }

    /// A buffer of noise, that changes to other noise: reading is bounded, and times go up.
    #[test]
    fn noise_in_the_ring(
        log_blocks in 1_u32..5,
        stream in prop::collection::vec((any::<u64>(), 0_u8..3), 0..4000),
        schedule in prop::collection::vec(0_u16..200, 1..50),
    ) {
        let stream: Vec<u64> = stream
            .iter()
            // Two of three are timestamp events.
            .map(|(noise, kind)| if *kind == 0 { *noise } else { noise.to_be() | (0xff_u64 << 48).to_be() })
            .collect();
        let ring = Ring::new(1 << log_blocks, &stream, &schedule);
        let mut reader = Reader::with_blocks(1 << log_blocks);
        let mut block = Block::EMPTY;
        let mut last = None;
        for _ in 0..200 {
            let reads = ring.reads.get();
            match reader.next(&ring, &mut block) {
                Step::Block(time) => {
                    prop_assert!(last.is_none_or(|last| time.is_after(last)));
                    last = Some(time);
                    prop_assert_eq!(ring.reads.get() - reads, 33);
                }
                Step::Gap(gap) => {
                    prop_assert_eq!(gap.after, last);
                    prop_assert!(ring.reads.get() - reads <= 33 + 2 + (1 << log_blocks));
                }
                Step::Empty => {
                    prop_assert_eq!(ring.reads.get() - reads, 1);
                    let reads = ring.reads.get();
                    if let Some(gap) = reader.recover(&ring) {
                        prop_assert_eq!(gap.after, last);
                    }
                    last = reader.last();
                    prop_assert!(ring.reads.get() - reads <= 3 + 2 * (1 << log_blocks));
                }
            }
        }
    }
}
