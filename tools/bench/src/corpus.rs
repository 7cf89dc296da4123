// SPDX-License-Identifier: GPL-2.0

//! A trace buffer as firmware fills it, made by the device of the property tests.

#[path = "../../pure/tests/properties/tracer/writer.rs"]
mod writer;

use std::sync::atomic::{AtomicU64, Ordering};

use mlx5_pure::tracer::block::{Source, EVENTS};
use mlx5_pure::tracer::event::Rules;
use mlx5_pure::tracer::strings::{Database, Section};
use writer::{Format, Random, Writer};

/// Strings that upstream formats as we do.
const FORMATS: &[Format] = &[
    Format {
        text: "entered idle",
        words: 0,
        print: |_| String::new(),
    },
    Format {
        text: "port %d link up",
        words: 1,
        print: |_| String::new(),
    },
    Format {
        text: "cmd 0x%04x op_mod %u status %x",
        words: 3,
        print: |_| String::new(),
    },
    Format {
        text: "gvmi 0x%x: page 0x%08x%08x given",
        words: 3,
        print: |_| String::new(),
    },
    Format {
        text: "qp 0x%06x state %d -> %d by irisc %u",
        words: 4,
        print: |_| String::new(),
    },
];

/// The buffer, and what is needed to read it.
pub struct Corpus {
    ring: Vec<u8>,
    memory: Vec<AtomicU64>,
    strings: Vec<u8>,
    events: u64,
    messages: u64,
}

impl Corpus {
    /// A ring of 1024 blocks, as upstream has, all of which but the last are written.
    pub fn new() -> Self {
        const BLOCKS: usize = 1024;
        let mut random = Random(1);
        let mut writer = Writer::with_formats(0, 1 << 40, FORMATS);
        writer.always_reliable();
        while writer.blocks.len() < BLOCKS - 4 {
            writer.step(&mut random);
        }
        writer.finish(&mut random);
        assert!(writer.blocks.len() < BLOCKS);
        let mut ring = writer.blocks.concat();
        let events = ring
            .chunks_exact(8)
            .filter(|event| event[1] != 0xff && event.iter().any(|byte| *byte != 0))
            .count();
        ring.resize(BLOCKS * 256, 0);
        let memory = ring
            .chunks_exact(8)
            .map(|word| AtomicU64::new(u64::from_ne_bytes(word.try_into().expect("eight bytes"))))
            .collect();
        Self {
            ring,
            memory,
            strings: writer::section(FORMATS).0,
            events: events as u64,
            messages: writer.complete.len() as u64,
        }
    }

    /// The bytes of the ring.
    pub fn ring(&self) -> &[u8] {
        &self.ring
    }

    /// Blocks that are written.
    pub fn blocks(&self) -> u64 {
        (self.ring.len() / 256) as u64
            - self
                .ring
                .rchunks_exact(256)
                .take_while(|block| block.iter().all(|byte| *byte == 0))
                .count() as u64
    }

    /// Events of string traces.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Messages that they make.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// The section of strings.
    pub fn strings(&self) -> &[u8] {
        &self.strings
    }

    /// What a pointer to its first byte is; upstream does not take that byte.
    pub fn base(&self) -> u32 {
        writer::BASE
    }

    /// First id of string traces.
    pub fn first_id(&self) -> u8 {
        writer::FIRST_ID
    }

    /// Ids of string traces.
    pub fn ids(&self) -> u8 {
        6
    }

    /// How to read the events.
    pub fn rules(&self) -> Rules {
        Rules::new(0, self.first_id(), self.ids())
    }

    /// The strings, for our parser.
    pub fn database(&self) -> Database<&[u8]> {
        let mut db = Database::empty();
        let section = Section {
            index: 0,
            base: self.base(),
            len: self.strings.len() as u32,
        };
        db.insert(section, self.strings());
        db
    }

    /// Format strings with as many words as they take.
    pub fn formats() -> impl Iterator<Item = (&'static str, usize)> {
        FORMATS.iter().map(|format| (format.text, format.words))
    }
}

impl Default for Corpus {
    fn default() -> Self {
        Self::new()
    }
}

/// Reads as the driver does: each word once, and not torn.
impl Source for Corpus {
    #[inline]
    fn last_event(&self, block: u32) -> u64 {
        self.memory
            .get(block as usize * EVENTS + EVENTS - 1)
            .map_or(0, |word| word.load(Ordering::Relaxed))
    }

    #[inline]
    fn events(&self, block: u32, to: &mut [u64; EVENTS - 1]) {
        let from = self.memory.get(block as usize * EVENTS..);
        let Some(from) = from.and_then(|from| from.first_chunk::<{ EVENTS - 1 }>()) else {
            to.fill(0);
            return;
        };
        // As kapi/dma.rs does it: the compiler leaves single accesses in single turns.
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        for (to, from) in to.chunks_mut(8).zip(from.chunks(8)) {
            if let ([a, b, c, d, e, f, g, h], [i, j, k, l, m, n, o, p]) = (&mut *to, from) {
                (*a, *b, *c, *d) = (read(i), read(j), read(k), read(l));
                (*e, *f, *g, *h) = (read(m), read(n), read(o), read(p));
            } else {
                for (to, from) in to.iter_mut().zip(from) {
                    *to = read(from);
                }
            }
        }
    }

    #[inline]
    fn barrier(&self) {
        std::sync::atomic::fence(Ordering::Acquire);
    }
}
