// SPDX-License-Identifier: GPL-2.0

//! The driver's tracer, with an array of the last messages as the kernel has one.

use mlx5_pure::tracer::assembly::{Message, Parser, Row, ROWS};
use mlx5_pure::tracer::block::{Block, Reader, Step};
use mlx5_pure::tracer::format::{Line, LINE};
use mlx5_pure::tracer::strings::Database;
use mlx5_pure::tracer::timestamp::Timestamp53;

use crate::corpus::Corpus;

/// Messages kept, as many as upstream keeps.
const SAVED: usize = 8192;

/// Bytes of their text.
const TEXT: usize = 256;

/// A message kept.
struct Saved {
    time: Option<Timestamp53>,
    lost: bool,
    id: u8,
    len: usize,
    text: [u8; TEXT],
}

/// Our reader, on a ring that it borrows.
pub struct Ours<'a> {
    corpus: &'a Corpus,
    db: Database<&'a [u8]>,
    reader: Reader,
    parser: Parser<Vec<Row>>,
    block: Block,
    text: [u8; LINE],
    saved: Vec<Saved>,
    messages: u64,
}

impl<'a> Ours<'a> {
    /// A reader at the start of the corpus.
    pub fn new(corpus: &'a Corpus) -> Self {
        Self {
            corpus,
            db: corpus.database(),
            reader: Reader::with_blocks((corpus.ring().len() / 256) as u32),
            parser: Parser::new(corpus.rules(), vec![Row::FREE; ROWS]),
            block: Block::EMPTY,
            text: [0; LINE],
            saved: (0..SAVED)
                .map(|_| Saved {
                    time: None,
                    lost: false,
                    id: 0,
                    len: 0,
                    text: [0; TEXT],
                })
                .collect(),
            messages: 0,
        }
    }

    /// Back to the start of the ring.
    pub fn rewind(&mut self) {
        self.reader.restart();
    }

    /// Copies and checks all blocks; gives their number.
    #[inline(never)]
    pub fn copy(&mut self) -> u64 {
        let mut blocks = 0;
        while let Step::Block(_) = self.reader.next(self.corpus, &mut self.block) {
            std::hint::black_box(&self.block);
            blocks += 1;
        }
        blocks
    }

    /// Reads, formats and saves everything; gives the number of blocks.
    #[inline(never)]
    pub fn read(&mut self) -> u64 {
        let mut blocks = 0;
        let (saved, messages) = (&mut self.saved, &mut self.messages);
        let text = &mut self.text;
        let mut sink = |message: &Message<'_>| {
            let mut line = Line::new(text);
            message.render(&mut line);
            let slot = &mut saved[*messages as usize % SAVED];
            let bytes = line.as_bytes();
            let bytes = bytes.get(..TEXT).unwrap_or(bytes);
            slot.text[..bytes.len()].copy_from_slice(bytes);
            slot.len = bytes.len();
            slot.time = message.time.full();
            slot.lost = message.lost;
            slot.id = message.id;
            *messages += 1;
        };
        while let Step::Block(_) = self.reader.next(self.corpus, &mut self.block) {
            self.parser.block(&self.block, &self.db, &mut sink);
            blocks += 1;
        }
        blocks
    }

    /// Messages saved so far, of which the last 8192 are there.
    pub fn saved(&self) -> u64 {
        self.messages
    }

    /// Time, event id and text of message `n`.
    pub fn message(&self, n: u64) -> (u64, u8, String) {
        let saved = &self.saved[n as usize % SAVED];
        let text = String::from_utf8_lossy(&saved.text[..saved.len]).into_owned();
        (saved.time.map_or(0, Timestamp53::get), saved.id, text)
    }
}
