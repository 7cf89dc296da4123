// SPDX-License-Identifier: GPL-2.0

//! A send queue as the builder sees it: a ring of basic blocks, and who is where in it
//! (hardware.md 5.1, 5.11).

use core::marker::PhantomData;

use super::{
    build::{
        Span,
        Wqe, //
    },
    caps::Caps,
    ctrl::Flags,
    number::Number,
    transport::Transport,
    units::Units,
    violation::Refusal,
    BLOCK, //
};

/// A basic block.
pub type Block = [u8; BLOCK];

/// What of a queue does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Number of the queue pair or send queue.
    pub qpn: Number,
    /// Its protection domain.
    pub pd: Number,
    /// Its WQEs are signed (`wq_signature`).
    pub signed: bool,
    /// Capabilities of the device.
    pub caps: Caps,
}

/// Who is where: the driver, which writes, and the device, which is done up to somewhere.
///
/// Both count basic blocks and run freely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Producer {
    /// Where the next WQE goes.
    pub pi: u16,
    /// The first block that is not known to be free.
    pub ci: u16,
}

/// A WQE that is in the queue; the device does not know of it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the device does not know of it before the doorbell"]
pub struct Posted {
    /// Its index, which comes back in completions.
    pub index: u16,
    /// The producer counter behind it: what the doorbell record says, once all are in.
    pub next: u16,
    /// Its length in units of 16 bytes.
    pub ds: u8,
    /// The first 8 bytes: what is written to the doorbell register, as they are.
    pub doorbell: [u8; 8],
}

/// Why there is no queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRing {
    /// Number of its blocks, which must be a power of two of at most 32768.
    pub blocks: usize,
}

impl core::fmt::Display for BadRing {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "a send queue has a power of two of blocks, at most 32768: not {}",
            self.blocks
        )
    }
}

impl core::error::Error for BadRing {}

/// What changes with each WQE.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) producer: Producer,
    /// Blocks that are free.
    pub(super) free: usize,
}

impl State {
    /// In a ring of so many blocks.
    const fn new(producer: Producer, blocks: usize) -> Self {
        let used = producer.pi.wrapping_sub(producer.ci);
        Self {
            producer,
            free: blocks.saturating_sub(used as usize),
        }
    }
}

/// A send queue of transport `T`, for the time of writing to it.
#[derive(Debug)]
pub struct SendQueue<'m, T> {
    blocks: &'m mut [Block],
    config: &'m Config,
    state: State,
    /// Most units of a WQE.
    max: usize,
    /// The same, or 0 if WQEs are signed: what only needs a look at its length.
    plain: usize,
    transport: PhantomData<T>,
}

impl<'m, T: Transport> SendQueue<'m, T> {
    /// The queue in `blocks`, with `producer` as it was when it was last written to.
    ///
    /// # Errors
    ///
    /// The number of blocks is none that a queue can have.
    pub fn new(
        blocks: &'m mut [Block],
        config: &'m Config,
        producer: Producer,
    ) -> Result<Self, BadRing> {
        let count = blocks.len();
        // log_sq_size of the queue's context has 4 bits.
        if !count.is_power_of_two() || count > 1 << 15 {
            return Err(BadRing { blocks: count });
        }
        let max = config.caps.max_units(T::KIND);
        Ok(Self {
            blocks,
            config,
            state: State::new(producer, count),
            max,
            plain: plain_units(config.signed, max),
            transport: PhantomData,
        })
    }

    /// Where driver and device are now.
    pub fn producer(&self) -> Producer {
        self.state.producer
    }

    /// The device is done with all blocks before `ci`: the index of the last completed WQE, and its
    /// blocks behind it.
    pub fn release(&mut self, ci: u16) {
        let pi = self.state.producer.pi;
        self.state = State::new(Producer { pi, ci }, self.blocks.len());
    }

    /// Blocks that are free.
    pub fn free(&self) -> usize {
        self.state.free
    }

    /// Begins a WQE. Nothing of it counts before [`Wqe::finish`].
    ///
    /// # Errors
    ///
    /// No block is free. Whether there are as many as the WQE needs, only its end shows.
    #[inline(always)]
    pub fn start(&mut self, flags: Flags) -> Result<Wqe<'_, T, T::Start>, Refusal> {
        // The number of blocks is a power of two.
        let first = usize::from(self.state.producer.pi) & self.blocks.len().wrapping_sub(1);
        // The second cannot be; seen here, it is not asked again at each write.
        if self.state.free == 0 || first >= self.blocks.len() {
            return Err(Refusal::Full { needed: 1, free: 0 });
        }
        let span = Span::new(self.blocks, first);
        Ok(Wqe::new(
            span,
            self.config,
            &mut self.state,
            self.max,
            self.plain,
            flags,
        ))
    }

    /// The bytes of a WQE that is in the ring; `index` as in [`Posted`].
    ///
    /// `None` if its length is more than the ring.
    pub fn wqe(&self, index: u16) -> Option<Units<'_>> {
        Units::in_ring(self.blocks, index)
    }
}

/// Most units of a WQE of which nothing but its length is to be looked at.
///
/// Not inlined, so that comparing with it stays one comparison.
#[inline(never)]
const fn plain_units(signed: bool, max: usize) -> usize {
    if signed {
        0
    } else {
        max
    }
}
