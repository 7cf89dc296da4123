// SPDX-License-Identifier: GPL-2.0

//! Reader and device as two threads, as fast as they can.

use std::sync::atomic::{fence, AtomicBool, AtomicU64, Ordering};
use std::thread;

use mlx5_pure::tracer::block::{Block, Reader, Source, Step, EVENTS};
use mlx5_pure::tracer::timestamp::Timestamp53;

/// Memory that both reach.
struct Shared(Vec<AtomicU64>);

impl Source for Shared {
    fn last_event(&self, block: u32) -> u64 {
        self.0[block as usize * EVENTS + EVENTS - 1].load(Ordering::Relaxed)
    }

    fn events(&self, block: u32, to: &mut [u64; EVENTS - 1]) {
        let at = block as usize * EVENTS;
        for (to, from) in to.iter_mut().zip(&self.0[at..]) {
            *to = from.load(Ordering::Relaxed);
        }
    }

    fn barrier(&self) {
        fence(Ordering::Acquire);
    }
}

/// The last event of block `number`, whose time is the number times 3, beginning shortly before the
/// end of the clock.
fn stamp(number: u64) -> u64 {
    let time = time(number);
    let w0 = (time & 0xff) << 24 | 0xff << 16 | time >> 40;
    (w0 << 32 | time >> 8 & 0xffff_ffff).to_be()
}

fn time(number: u64) -> u64 {
    ((1 << 53) - 3000 + number * 3) & ((1 << 53) - 1)
}

/// Runs both; every so many blocks the device waits for so long.
fn race(ring: usize, blocks: u64, pause: impl Fn(u64) + Sync) {
    let memory = Shared((0..ring * EVENTS).map(|_| AtomicU64::new(0)).collect());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..blocks {
                pause(number);
                let at = number as usize % ring * EVENTS;
                // As writes of a PCI device are: seen in the order in which they were made.
                fence(Ordering::Release);
                for word in &memory.0[at..at + EVENTS - 1] {
                    word.store(number, Ordering::Relaxed);
                }
                memory.0[at + EVENTS - 1].store(stamp(number), Ordering::Release);
            }
            done.store(true, Ordering::Release);
        });
        let mut reader = Reader::with_blocks(ring as u32);
        let mut block = Block::EMPTY;
        let mut next = 0;
        let mut missing = 0;
        let mut gaps_at_the_end = 0;
        loop {
            let done = done.load(Ordering::Acquire);
            match reader.next(&memory, &mut block) {
                Step::Block(seen) => {
                    let number = block.0[0];
                    assert!(block.0[..EVENTS - 1].iter().all(|word| *word == number));
                    assert_eq!(block.0[EVENTS - 1], stamp(number));
                    assert_eq!(seen, Timestamp53::new(time(number)));
                    assert!(number >= next, "in order");
                    assert!(number == next || missing > 0, "missing without a gap");
                    // Exact, but for whole rounds.
                    assert_eq!((number - next - missing) % ring as u64, 0);
                    next = number + 1;
                    missing = 0;
                }
                Step::Gap(gap) => {
                    assert_eq!(gap.after.is_none(), next == 0);
                    missing += u64::from(gap.blocks);
                    gaps_at_the_end += u32::from(done);
                    assert!(gaps_at_the_end < 10, "nothing is read any more");
                }
                Step::Empty if done => break,
                Step::Empty => thread::yield_now(),
            }
        }
        assert_eq!(next, blocks, "the last block is read");
        let counters = reader.counters();
        assert!(counters.blocks + counters.lost <= blocks);
    });
}

/// Blocks of a run; all of them are 10 million traces in the long form.
fn blocks() -> u64 {
    if std::env::var_os("MLX5RS_SOAK").is_some() {
        330_000
    } else {
        30_000
    }
}

#[test]
fn far_too_fast() {
    for ring in [2, 3, 16, 64] {
        race(ring, blocks(), |_| {});
    }
}

#[test]
fn in_bursts() {
    race(64, blocks(), |number| {
        if number % 100 == 0 {
            thread::yield_now();
        }
    });
    race(16, blocks(), |number| {
        for _ in 0..number / 1000 % 100 {
            std::hint::spin_loop();
        }
    });
}
