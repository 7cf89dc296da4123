// SPDX-License-Identifier: GPL-2.0

//! Reading the trace buffer while the device writes it (hardware.md 4).
//!
//! The buffer is a ring of blocks of 256 bytes, 32 events each. The device writes block after block,
//! each from its first event to its last, which is a timestamp event; it asks nobody whether a block
//! has been read. So [`Reader`] copies a block, and only then looks whether the copy can be trusted:
//!
//! 1. The last event of the block is read. It is a timestamp event newer than that of the block
//!    handled last: the block is complete.
//! 2. The 31 events before it are copied, after a barrier, each read once.
//! 3. After another barrier, the last event of the *previous* block is read again. It is still the
//!    one that was seen before, and it is older than that of the copied block: so the device had not
//!    finished the previous block of its next round, and cannot have begun this one. Else the copy
//!    may be torn: it is dropped, and reading goes on behind the place where the device writes now.
//!
//! Whatever the memory holds, a call reads each place a bounded number of times, what it gives is
//! one block as it was in memory, and times go up from block to block.

use super::{
    event::Stamp,
    timestamp::Timestamp53, //
};

/// Bytes of a block.
pub const BLOCK: usize = 256;

/// Bytes of an event.
pub const EVENT: usize = 8;

/// Events of a block; the last one is a timestamp event.
pub const EVENTS: usize = BLOCK / EVENT;

/// log2 of the blocks in a unit of the buffer's size, 4 KiB.
const LOG_BLOCKS_PER_UNIT: u8 = 4;

/// The most units, as a log2, that a buffer can have: 4 MiB.
const MAX_LOG_UNITS: u8 = 10;

/// The size of a trace buffer, which the device can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSize {
    log_units: u8,
}

impl BufferSize {
    /// The size nearest to `1 << wanted` units of 4 KiB that a device with
    /// `log_max_trace_buffer_size` of `log_max` takes; at most 4 MiB.
    pub const fn new(wanted: u8, log_max: u8) -> Self {
        let mut log_units = wanted;
        if log_units > log_max {
            log_units = log_max;
        }
        if log_units > MAX_LOG_UNITS {
            log_units = MAX_LOG_UNITS;
        }
        Self { log_units }
    }

    /// log2 of units of 4 KiB: what MTRC_CONF takes.
    pub const fn log_units(self) -> u8 {
        self.log_units
    }

    /// Units of 4 KiB.
    pub const fn units(self) -> usize {
        1 << self.log_units
    }

    /// Blocks.
    pub const fn blocks(self) -> u32 {
        1 << (self.log_units + LOG_BLOCKS_PER_UNIT)
    }
}

/// A copy of a block, as it lies in memory: event `i` is the eight bytes of word `i`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block(pub [u64; EVENTS]);

impl Block {
    /// A block of zeros.
    pub const EMPTY: Self = Self([0; EVENTS]);
}

/// The trace buffer: memory that changes while it is read.
///
/// Words are eight bytes in the order of memory (what `u64::from_ne_bytes` makes of them).
pub trait Source {
    /// The last event of block `block` of the buffer, by one read of eight bytes.
    ///
    /// A block beyond the end reads as 0.
    fn last_event(&self, block: u32) -> u64;

    /// Copies the events before the last one of block `block`; each is read once, by eight bytes.
    ///
    /// A block beyond the end reads as 0.
    fn events(&self, block: u32, to: &mut [u64; EVENTS - 1]);

    /// Orders all reads before it before all reads after it: `dma_rmb()`.
    fn barrier(&self);
}

/// What a call of [`Reader::next`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A block, whose timestamp this is.
    Block(Timestamp53),
    /// The device was faster: blocks are lost. There may be more to read.
    Gap(Gap),
    /// There is no new block.
    Empty,
}

/// Blocks that were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// How many are missing at least. It is the exact number unless the device went round the whole
    /// buffer more than once meanwhile: blocks do not have numbers. 0 if only the place changed.
    pub blocks: u32,
    /// Timestamp of the last block before them; all that is lost is later. `None` if there was none.
    pub after: Option<Timestamp53>,
}

/// What a reader has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderCounters {
    /// Blocks read.
    pub blocks: u64,
    /// Copies dropped because the device may have written the block meanwhile.
    pub torn: u64,
    /// Blocks lost, as far as one can know (see [`Gap::blocks`]), with the torn ones.
    pub lost: u64,
    /// Gaps that these blocks are in.
    pub gaps: u64,
    /// How often the reader's place had to be found anew.
    pub recoveries: u64,
}

/// Reads one buffer; see the module.
#[derive(Clone, Debug)]
pub struct Reader {
    /// Blocks in the buffer; at least two.
    blocks: u32,
    /// The next one, below `blocks`.
    index: u32,
    /// Timestamp of the last block read.
    last: Option<Timestamp53>,
    /// The last event of the block before `index`, as it was when reading went past it.
    before: u64,
    /// The time in it, if it is a timestamp event.
    before_time: Option<Timestamp53>,
    /// How far behind the device's place reading goes on after the next gap, in blocks.
    margin: u32,
    counters: ReaderCounters,
}

/// The timestamp in the last event of a block, if that is a timestamp event.
#[inline(always)]
fn time_of(word: u64) -> Option<Timestamp53> {
    Stamp::time_of(word)
}

impl Reader {
    /// Reads a buffer of zeros, whose first block is the first that the device writes: what it is
    /// right after MTRC_CONF.
    pub const fn new(size: BufferSize) -> Self {
        Self::with_blocks(size.blocks())
    }

    /// The most blocks that a ring has.
    const MAX_BLOCKS: u32 = 1 << (MAX_LOG_UNITS + LOG_BLOCKS_PER_UNIT);

    /// As [`new`](Self::new), for a ring of any number of blocks from 2 to 16384.
    pub const fn with_blocks(blocks: u32) -> Self {
        Self {
            blocks: if blocks < 2 {
                2
            } else if blocks > Self::MAX_BLOCKS {
                Self::MAX_BLOCKS
            } else {
                blocks
            },
            index: 0,
            last: None,
            before: 0,
            before_time: None,
            margin: 1,
            counters: ReaderCounters {
                blocks: 0,
                torn: 0,
                lost: 0,
                gaps: 0,
                recoveries: 0,
            },
        }
    }

    /// Begins again with a buffer of zeros, as [`new`](Self::new); the counters go on.
    pub fn restart(&mut self) {
        *self = Self {
            counters: self.counters,
            ..Self::with_blocks(self.blocks)
        };
    }

    /// What has been counted.
    pub fn counters(&self) -> &ReaderCounters {
        &self.counters
    }

    /// Blocks in the ring.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The block that is read next.
    pub fn next_block(&self) -> u32 {
        self.index
    }

    /// Timestamp of the last block read.
    pub fn last(&self) -> Option<Timestamp53> {
        self.last
    }

    /// The block `distance` (at most [`blocks`](Self::blocks)) after block `index`.
    fn after(&self, index: u32, distance: u32) -> u32 {
        // Both are small: the sum does not overflow.
        let sum = index + distance;
        if sum < self.blocks {
            sum
        } else {
            sum - self.blocks
        }
    }

    /// How far block `index` is ahead of the next one.
    fn distance_to(&self, index: u32) -> u32 {
        self.after(index, self.blocks - self.index)
    }

    /// The block before block `index`.
    fn previous(&self, index: u32) -> u32 {
        self.after(index, self.blocks - 1)
    }

    /// Takes the next block, if there is one; its contents are in `block` then, and else nothing
    /// that means anything.
    ///
    /// Reads 33 events, and after a gap one more of each block.
    #[inline]
    pub fn next<S: Source>(&mut self, source: &S, block: &mut Block) -> Step {
        let word = source.last_event(self.index);
        let Some(stamp) = time_of(word).filter(|stamp| self.is_new(*stamp)) else {
            self.margin = 1;
            return Step::Empty;
        };
        source.barrier();
        let [events @ .., last] = &mut block.0;
        source.events(self.index, events);
        *last = word;
        source.barrier();
        let before = source.last_event(self.previous(self.index));
        let is_over = |before| !stamp.is_after(before);
        if before != self.before || self.before_time.is_some_and(is_over) {
            self.counters.torn += 1;
            return Step::Gap(self.resume_behind_device(source, stamp));
        }
        self.before = word;
        self.before_time = Some(stamp);
        self.last = Some(stamp);
        self.index = self.after(self.index, 1);
        self.counters.blocks += 1;
        Step::Block(stamp)
    }

    fn is_new(&self, stamp: Timestamp53) -> bool {
        self.last.is_none_or(|last| stamp.is_after(last))
    }

    /// The unread block with the earliest time, where `around` is the time of one of them.
    fn oldest_unread<S: Source>(&self, source: &S, around: Timestamp53) -> Option<u32> {
        let mut oldest: Option<(u32, i64)> = None;
        for distance in 0..self.blocks {
            let index = self.after(self.index, distance);
            if let Some(stamp) = time_of(source.last_event(index)).filter(|s| self.is_new(*s)) {
                let age = stamp.offset_from(around);
                if oldest.is_none_or(|(_, other)| age < other) {
                    oldest = Some((index, age));
                }
            }
        }
        oldest.map(|(index, _)| index)
    }

    /// Goes on with the blocks that the device will overwrite last, but for a margin. The margin
    /// doubles with each gap until the buffer is drained: a reader that the device overtakes again
    /// and again reads longer runs of blocks, one that was late only once loses no more than it must.
    fn resume_behind_device<S: Source>(&mut self, source: &S, seen: Timestamp53) -> Gap {
        let oldest = self.oldest_unread(source, seen).unwrap_or(self.index);
        if source.last_event(self.previous(oldest)) == 0 {
            // Nothing has been written before it: the device did not come round, but it began
            // elsewhere.
            self.move_to(source, oldest);
            return self.gap(0);
        }
        // The device may be writing the oldest block: the first that can be read is the next one.
        let skipped = self.distance_to(oldest) + self.margin;
        let index = self.after(oldest, self.margin);
        self.margin = (self.margin * 2).min(self.blocks / 2);
        self.move_to(source, index);
        self.gap(skipped)
    }

    /// Puts `index` next; whether what is there is new is not known yet.
    fn move_to<S: Source>(&mut self, source: &S, index: u32) {
        self.index = index;
        source.barrier();
        self.before = source.last_event(self.previous(index));
        self.before_time = time_of(self.before);
    }

    fn gap(&mut self, blocks: u32) -> Gap {
        self.counters.gaps += 1;
        self.counters.lost += u64::from(blocks);
        Gap {
            blocks,
            after: self.last,
        }
    }

    /// Looks whether the reader still is where the device writes, and if not, finds the place.
    ///
    /// [`next`](Self::next) relies on the device writing block after block with times that go up.
    /// For a device that began elsewhere, left a block without its timestamp event, began again
    /// without being told to, or had a clock that jumped, `next` may find nothing for a long time.
    /// So this is to be called when the device says that there are traces and `next` says that there
    /// are none, a few times in a row; when nothing is wrong it changes nothing.
    ///
    /// Gives what was lost, as far as that can be said: blocks that have no timestamp event, or
    /// those between this place and that. Reads two events of each block at most.
    pub fn recover<S: Source>(&mut self, source: &S) -> Option<Gap> {
        // A block that `next` would take, though not now.
        let unread = match self.last {
            Some(last) => self.oldest_unread(source, last),
            None => (0..self.blocks)
                .map(|distance| self.after(self.index, distance))
                .find(|index| time_of(source.last_event(*index)).is_some()),
        };
        if let Some(index) = unread {
            return (index != self.index)
                .then(|| self.pass_to(source, index))
                .flatten();
        }
        // All that is there is older than what was read last. Where the newest of it is, the device
        // was last: if that is not the block before ours, times are not to be trusted.
        self.last?;
        let newest = self.newest(source)?;
        let word = source.last_event(newest);
        if newest == self.previous(self.index) && word == self.before {
            return None;
        }
        let stamp = time_of(word)?;
        self.counters.recoveries += 1;
        let gap = self.gap(self.distance_to(newest) + 1);
        self.index = self.after(newest, 1);
        self.before = word;
        self.before_time = Some(stamp);
        self.last = Some(stamp);
        Some(gap)
    }

    /// Passes over blocks that are not new, to block `index`. Those of them that have been written,
    /// but have no timestamp event, are lost.
    fn pass_to<S: Source>(&mut self, source: &S, index: u32) -> Option<Gap> {
        let damaged = (0..self.distance_to(index))
            .map(|distance| source.last_event(self.after(self.index, distance)))
            .filter(|word| *word != 0 && time_of(*word).is_none())
            .count();
        self.counters.recoveries += 1;
        self.move_to(source, index);
        // Before the first block there is nothing to be separated from.
        if damaged == 0 && self.last.is_none() {
            return None;
        }
        Some(self.gap(u32::try_from(damaged).unwrap_or(self.blocks)))
    }

    /// The first block, from the next one on, whose successor is not newer than it.
    fn newest<S: Source>(&self, source: &S) -> Option<u32> {
        let mut candidate: Option<(u32, Timestamp53)> = None;
        for distance in 0..=self.blocks {
            let index = self.after(self.index, distance % self.blocks);
            match (candidate, time_of(source.last_event(index))) {
                (Some((_, older)), Some(stamp)) if stamp.is_after(older) => {
                    candidate = Some((index, stamp));
                }
                (Some((newest, _)), _) => return Some(newest),
                (None, stamp) => candidate = stamp.map(|stamp| (index, stamp)),
            }
        }
        candidate.map(|(index, _)| index)
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_tracer_block)]
mod tests {
    use super::*;
    use core::cell::Cell;

    const BLOCKS: usize = 4;

    /// The last event of a block with this time.
    fn stamp(time: u64) -> u64 {
        let time = time & Timestamp53::MAX;
        let w0 = (time & 0xff) << 24 | 0xff << 16 | time >> 40;
        (w0 << 32 | time >> 8 & 0xffff_ffff).to_be()
    }

    /// A buffer, and a device that writes to it when it is read: before each read, as many words as
    /// `pace` says.
    struct Device {
        ring: [[Cell<u64>; EVENTS]; BLOCKS],
        /// Words written so far; word `n` of block `b` is written as `b * 32 + n`.
        written: Cell<usize>,
        start: u64,
        pace: Cell<usize>,
    }

    impl Device {
        fn new(start: u64) -> Self {
            Self {
                ring: [const { [const { Cell::new(0) }; EVENTS] }; BLOCKS],
                written: Cell::new(0),
                start,
                pace: Cell::new(0),
            }
        }

        /// The time of block number `block`.
        fn time(&self, block: usize) -> u64 {
            self.start.wrapping_add(block as u64 * 100) & Timestamp53::MAX
        }

        fn write_words(&self, count: usize) {
            for _ in 0..count {
                let at = self.written.get();
                let (block, word) = (at / EVENTS, at % EVENTS);
                let value = if word == EVENTS - 1 {
                    stamp(self.time(block))
                } else {
                    // Says which block it belongs to.
                    block as u64
                };
                self.ring[block % BLOCKS][word].set(value);
                self.written.set(at + 1);
            }
        }

        fn write_blocks(&self, count: usize) {
            self.write_words(count * EVENTS);
        }
    }

    impl Source for Device {
        fn last_event(&self, block: u32) -> u64 {
            self.write_words(self.pace.get());
            self.ring[block as usize][EVENTS - 1].get()
        }

        fn events(&self, block: u32, to: &mut [u64; EVENTS - 1]) {
            for (to, from) in to.iter_mut().zip(&self.ring[block as usize]) {
                self.write_words(self.pace.get());
                *to = from.get();
            }
        }

        fn barrier(&self) {}
    }

    /// The number of the block that is read next, if it is whole.
    fn read(reader: &mut Reader, device: &Device) -> Result<Option<usize>, Gap> {
        let mut block = Block::EMPTY;
        match reader.next(device, &mut block) {
            Step::Empty => Ok(None),
            Step::Gap(gap) => Err(gap),
            Step::Block(time) => {
                let number = block.0[0];
                let whole = block.0[..EVENTS - 1].iter().all(|word| *word == number)
                    && time.get() == device.time(number as usize);
                // A number that no test asks for.
                Ok(Some(if whole { number as usize } else { usize::MAX }))
            }
        }
    }

    fn new_reader() -> Reader {
        Reader::with_blocks(BLOCKS as u32)
    }

    #[test]
    fn every_block_in_order() {
        // Also where the clock begins anew, or is in its upper half.
        for start in [0, 5, 1 << 52, Timestamp53::MAX - 450, (1 << 52) - 450] {
            let device = Device::new(start);
            let mut reader = new_reader();
            assert_eq!(read(&mut reader, &device), Ok(None));
            for number in 0..10 {
                // All but the last event: not complete.
                device.write_words(EVENTS - 1);
                assert_eq!(read(&mut reader, &device), Ok(None));
                device.write_words(1);
                assert_eq!(read(&mut reader, &device), Ok(Some(number)));
                assert_eq!(read(&mut reader, &device), Ok(None));
            }
            assert_eq!(reader.counters().blocks, 10);
            assert_eq!(reader.counters().torn, 0);
        }
    }

    #[test]
    fn a_full_buffer_is_read_whole() {
        let device = Device::new(7);
        let mut reader = new_reader();
        // The block that the device writes next cannot be trusted, but that is block 4.
        device.write_blocks(BLOCKS);
        for number in 0..BLOCKS {
            if number == 0 {
                // The device finished the last block of the first round: block 0 may be next.
                assert_eq!(
                    read(&mut reader, &device),
                    Err(Gap {
                        blocks: 1,
                        after: None
                    })
                );
            } else {
                assert_eq!(read(&mut reader, &device), Ok(Some(number)));
            }
        }
        assert_eq!(read(&mut reader, &device), Ok(None));
    }

    #[test]
    fn overtaken_by_any_number_of_blocks() {
        for ahead in 0..3 * BLOCKS {
            let device = Device::new(Timestamp53::MAX - 500);
            let mut reader = new_reader();
            for number in 0..3 {
                device.write_blocks(1);
                assert_eq!(read(&mut reader, &device), Ok(Some(number)));
            }
            device.write_blocks(ahead);
            let after = Some(Timestamp53::new(device.time(2)));
            let mut expected = 3;
            if ahead >= BLOCKS {
                // The oldest block may be being written.
                let first = 3 + ahead - BLOCKS + 1;
                let lost = first - 3;
                // More than one round cannot be told from one round less.
                let blocks = (lost - 1) % BLOCKS + 1;
                assert_eq!(
                    read(&mut reader, &device),
                    Err(Gap {
                        blocks: blocks as u32,
                        after
                    })
                );
                assert_eq!(reader.counters().lost, blocks as u64);
                assert_eq!(reader.counters().torn, 1);
                expected = first;
            }
            while expected < 3 + ahead {
                assert_eq!(read(&mut reader, &device), Ok(Some(expected)));
                expected += 1;
            }
            assert_eq!(read(&mut reader, &device), Ok(None));
            // And on from there.
            device.write_blocks(1);
            assert_eq!(read(&mut reader, &device), Ok(Some(expected)));
        }
    }

    #[test]
    fn the_device_writes_while_it_is_read() {
        // From one word now and then to many rounds per read.
        for pace in [1, 2, 3, 5, 31, 32, 33, 64, 127, 128, 129, 500] {
            let device = Device::new(1);
            let mut reader = new_reader();
            device.pace.set(pace);
            let mut last = None;
            for _ in 0..500 {
                if let Ok(Some(number)) = read(&mut reader, &device) {
                    assert!(number != usize::MAX && last < Some(number));
                    last = Some(number);
                }
            }
            // What is left when the device stops can be read, but for a margin.
            device.pace.set(0);
            let newest = device.written.get() / EVENTS - 1;
            for _ in 0..2 * BLOCKS {
                if let Ok(Some(number)) = read(&mut reader, &device) {
                    assert!(number != usize::MAX && last < Some(number));
                    last = Some(number);
                }
            }
            assert_eq!(last, Some(newest));
        }
    }

    #[test]
    fn nothing_is_recovered_where_nothing_is_wrong() {
        let device = Device::new(3);
        let mut reader = new_reader();
        for number in 0..10 {
            assert_eq!(reader.recover(&device), None);
            device.write_words(17);
            assert_eq!(reader.recover(&device), None);
            device.write_words(EVENTS - 17);
            assert_eq!(reader.recover(&device), None);
            assert_eq!(read(&mut reader, &device), Ok(Some(number)));
        }
        assert_eq!(reader.counters().recoveries, 0);
    }

    #[test]
    fn a_device_that_began_elsewhere() {
        for first in 0..BLOCKS {
            let device = Device::new(3);
            device.written.set(first * EVENTS);
            let mut reader = new_reader();
            device.write_blocks(2);
            assert_eq!(reader.recover(&device), None);
            if first == BLOCKS - 1 {
                // It has gone past the end: the first block that is seen is not the first one.
                let gap = Gap {
                    blocks: 0,
                    after: None,
                };
                assert_eq!(read(&mut reader, &device), Err(gap));
            }
            assert_eq!(read(&mut reader, &device), Ok(Some(first)));
            assert_eq!(read(&mut reader, &device), Ok(Some(first + 1)));
            assert_eq!(read(&mut reader, &device), Ok(None));
        }
    }

    #[test]
    fn a_block_without_a_timestamp() {
        let device = Device::new(3);
        let mut reader = new_reader();
        device.write_blocks(3);
        device.ring[1][EVENTS - 1].set(0x1234);
        assert_eq!(read(&mut reader, &device), Ok(Some(0)));
        assert_eq!(read(&mut reader, &device), Ok(None));
        assert_eq!(
            reader.recover(&device),
            Some(Gap {
                blocks: 1,
                after: Some(Timestamp53::new(3))
            })
        );
        assert_eq!(read(&mut reader, &device), Ok(Some(2)));
        assert_eq!(reader.counters().lost, 1);
    }

    #[test]
    fn a_device_that_begins_again() {
        let device = Device::new(3);
        let mut reader = new_reader();
        device.write_blocks(2);
        for number in 0..2 {
            assert_eq!(read(&mut reader, &device), Ok(Some(number)));
        }
        // At the start of the buffer instead of block 2.
        device.written.set(4 * EVENTS);
        device.write_blocks(2);
        assert_eq!(read(&mut reader, &device), Ok(None));
        assert_eq!(reader.recover(&device).map(|gap| gap.blocks), Some(0));
        assert_eq!(read(&mut reader, &device), Ok(Some(4)));
        assert_eq!(read(&mut reader, &device), Ok(Some(5)));
        assert_eq!(read(&mut reader, &device), Ok(None));
    }

    #[test]
    fn a_clock_that_jumps() {
        let device = Device::new(3);
        let mut reader = new_reader();
        device.write_blocks(1);
        // Far ahead, for one block.
        device.ring[0][EVENTS - 1].set(stamp(1 << 51));
        let mut block = Block::EMPTY;
        let far = Timestamp53::new(1 << 51);
        assert_eq!(reader.next(&device, &mut block), Step::Block(far));
        device.write_blocks(2);
        assert_eq!(read(&mut reader, &device), Ok(None));
        // The two blocks with the right time are older than what was read.
        assert_eq!(
            reader.recover(&device),
            Some(Gap {
                blocks: 2,
                after: Some(far)
            })
        );
        device.write_blocks(1);
        assert_eq!(read(&mut reader, &device), Ok(Some(3)));
    }

    #[test]
    fn margin_grows_while_overtaken() {
        let device = Device::new(3);
        let mut reader = new_reader();
        let mut gaps = [0; 3];
        for gap in &mut gaps {
            device.write_blocks(2 * BLOCKS);
            *gap = reader.margin;
            assert!(read(&mut reader, &device).is_err());
        }
        assert_eq!(gaps, [1, 2, 2]);
        for _ in 0..2 * BLOCKS {
            let _ = read(&mut reader, &device);
        }
        assert_eq!(reader.margin, 1);
    }

    #[test]
    fn restart() {
        let device = Device::new(1 << 52);
        let mut reader = new_reader();
        device.write_blocks(2);
        assert_eq!(read(&mut reader, &device), Ok(Some(0)));
        reader.restart();
        let again = Device::new(0);
        assert_eq!(read(&mut reader, &again), Ok(None));
        again.write_blocks(1);
        assert_eq!(read(&mut reader, &again), Ok(Some(0)));
        assert_eq!(reader.counters().blocks, 2);
        assert_eq!(reader.last(), Some(Timestamp53::new(0)));
    }
}
