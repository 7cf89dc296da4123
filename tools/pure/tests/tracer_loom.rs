// SPDX-License-Identifier: GPL-2.0

//! The protocol between device and reader of the trace buffer, in every order of accesses that the
//! memory model allows. The reader is the driver's own; a block has one word besides its timestamp,
//! so that there are not too many orders.

// loom switches stacks by itself, which the sanitizers take for lost memory.
#![cfg(not(sanitized))]

use loom::sync::atomic::{fence, AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;

use mlx5_pure::tracer::block::{Block, Reader, Source, Step, EVENTS};

/// What is in memory that has not been written.
const NEVER: u64 = 99;

/// Blocks of the ring.
const RING: usize = 2;

struct Memory {
    /// The word, and the timestamp event, of each block.
    blocks: [(AtomicU64, AtomicU64); RING],
    /// Whether the reader's barriers are barriers.
    barriers: bool,
}

impl Source for Memory {
    fn last_event(&self, block: u32) -> u64 {
        self.blocks[block as usize].1.load(Ordering::Relaxed)
    }

    fn events(&self, block: u32, to: &mut [u64; EVENTS - 1]) {
        to.fill(self.blocks[block as usize].0.load(Ordering::Relaxed));
    }

    fn barrier(&self) {
        if self.barriers {
            fence(Ordering::Acquire);
        }
    }
}

/// The timestamp event of block `number`.
fn stamp(number: u64) -> u64 {
    ((number + 1) << 56 | 0xff << 48).to_be()
}

/// The device writes `written` blocks while the reader looks `looks` times.
fn explore(written: u64, looks: usize, barriers: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let memory = Arc::new(Memory {
            blocks: std::array::from_fn(|_| (AtomicU64::new(NEVER), AtomicU64::new(0))),
            barriers,
        });
        let device = {
            let memory = memory.clone();
            thread::spawn(move || {
                for number in 0..written {
                    let (word, last) = &memory.blocks[number as usize % RING];
                    // A PCI device's writes are seen in the order in which they were made.
                    fence(Ordering::Release);
                    word.store(number, Ordering::Relaxed);
                    last.store(stamp(number), Ordering::Release);
                }
            })
        };
        let mut reader = Reader::with_blocks(RING as u32);
        let mut block = Block::EMPTY;
        let (mut next, mut gaps) = (0, 0);
        for _ in 0..looks {
            match reader.next(&*memory, &mut block) {
                Step::Block(time) => {
                    let number = block.0[0];
                    assert_eq!(time.get(), number + 1, "the copy is torn");
                    assert!(number >= next, "out of order");
                    assert!(number == next || gaps > 0, "missing without a gap");
                    next = number + 1;
                }
                Step::Gap(_) => gaps += 1,
                Step::Empty => {}
            }
        }
        device.join().expect("the device's thread");
        // What is there when the device has stopped is found.
        for _ in 0..2 * RING {
            match reader.next(&*memory, &mut block) {
                Step::Block(time) => {
                    assert_eq!(time.get(), block.0[0] + 1);
                    next = block.0[0] + 1;
                }
                Step::Gap(_) | Step::Empty => {}
            }
        }
        assert_eq!(next, written);
    });
}

#[test]
fn no_order_of_accesses_gives_a_torn_block() {
    explore(3, 2, true);
    explore(4, 3, true);
}

/// The test above would see a reader that is wrong.
#[test]
#[should_panic = "the copy is torn"]
fn without_barriers_there_would_be_torn_blocks() {
    explore(3, 2, false);
}
