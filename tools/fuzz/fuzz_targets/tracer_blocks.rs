// SPDX-License-Identifier: GPL-2.0

//! The trace buffer: a byte each for the ring's size, trc_ver, first id and number of ids, then
//! records of 9 bytes that the device writes, an event and where it goes. Between them the reader
//! takes what it finds. Records beyond the first 48 are not used.

#![no_main]

use std::cell::Cell;

use libfuzzer_sys::fuzz_target;
use mlx5_pure::tracer::assembly::{Body, Parser, Row};
use mlx5_pure::tracer::block::{Block, Reader, Source, EVENTS};
use mlx5_pure::tracer::drain::{drain, interrupted, Record};
use mlx5_pure::tracer::event::Rules;
use mlx5_pure::tracer::format::Line;
use mlx5_pure::tracer::strings::{Database, Section};

/// Where the strings are: low, so that few bits point there.
const BASE: u32 = 0x100;
const STRINGS: &[u8] = b"idle\0%d\0%x %llx\0%s %n\0%x%x%x%x%x%x%x\0%*d%\0no end %08x";

/// Memory that changes by itself: every read takes a record.
struct Ring<'a> {
    words: Vec<Cell<u64>>,
    rest: Cell<&'a [u8]>,
    at: Cell<usize>,
    reads: Cell<usize>,
}

impl Ring<'_> {
    /// Takes a record: the event goes to the next place, or to one that the first byte says.
    fn write(&self) {
        let Some((record, rest)) = self.rest.get().split_first_chunk::<9>() else {
            return;
        };
        self.rest.set(rest);
        let (how, event) = (record[0], &record[1..]);
        let mut word = u64::from_ne_bytes(event.try_into().expect("eight bytes"));
        let mut at = self.at.get();
        match how & 3 {
            // Fills the block up to its last event, which is this one, as a timestamp.
            0 => {
                let last = at / EVENTS * EVENTS + EVENTS - 1;
                for place in at..last {
                    self.words[place].set(word);
                }
                at = last;
                word |= (0xff_u64 << 48).to_be();
            }
            // Somewhere else.
            1 => at = usize::from(how >> 2) * 31 % self.words.len(),
            _ => {}
        }
        self.words[at].set(word);
        self.at.set((at + 1) % self.words.len());
    }

    fn read(&self, at: usize) -> u64 {
        self.reads.set(self.reads.get() + 1);
        // Now and then, so that blocks stay whole too.
        if self.reads.get() % 24 == 0 {
            self.write();
        }
        self.words[at].get()
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

fuzz_target!(|data: &[u8]| {
    let Some(([size, version, first, count], rest)) = data.split_first_chunk::<4>() else {
        return;
    };
    let rest = rest.get(..48 * 9).unwrap_or(rest);
    let blocks = 2 + u32::from(size % 4);
    let ring = Ring {
        words: vec![Cell::new(0); blocks as usize * EVENTS],
        rest: Cell::new(rest),
        at: Cell::new(0),
        reads: Cell::new(0),
    };
    let mut db = Database::empty();
    db.insert(
        Section {
            index: 0,
            base: BASE,
            len: STRINGS.len() as u32,
        },
        STRINGS,
    );
    let mut reader = Reader::with_blocks(blocks);
    let rules = Rules::new(version & 3, *first, *count);
    let mut parser = Parser::new(rules, vec![Row::FREE; 3]);
    let mut block = Block::EMPTY;
    let (mut messages, mut gaps) = (0, 0);
    let mut sink = |record: &Record<'_>| match record {
        Record::Gap(_) => gaps += 1,
        Record::Message(message) => {
            messages += 1;
            let mut buf = [0; 80];
            let mut line = Line::new(&mut buf);
            message.render(&mut line);
            assert!(line
                .as_bytes()
                .iter()
                .all(|byte| (b' '..=b'~').contains(byte)));
            if let Body::Text { words, .. } = message.body {
                assert!(words.len() <= 7);
            }
        }
    };
    for _ in 0..rest.len() / 27 + 2 {
        ring.write();
        let reads = ring.reads.get();
        let drained = drain(
            &mut reader,
            &mut parser,
            &ring,
            &db,
            &mut block,
            3,
            &mut sink,
        );
        assert!(drained.blocks <= 3);
        // Each step reads a block, and after a gap the ring.
        assert!(ring.reads.get() - reads <= 4 * (36 + blocks as usize));
        if drained.empty {
            if let Some(gap) = reader.recover(&ring) {
                interrupted(&mut parser, &db, gap, &mut sink);
            }
        }
    }
    parser.flush(&db, &mut |message| sink(&Record::Message(*message)));
    assert_eq!(parser.waiting(), 0);
    let counters = parser.counters();
    assert_eq!(counters.events, reader.counters().blocks * EVENTS as u64);
    assert_eq!(reader.counters().gaps, gaps);
    assert_eq!(
        counters.messages
            + counters.incomplete
            + counters.orphans
            + counters.unknown_strings
            + counters.others,
        messages
    );
});
