// SPDX-License-Identifier: GPL-2.0

//! A send queue as the builder sees it: a ring of basic blocks, and who is where in it
//! (hardware.md 5.1, 5.11).

use core::marker::PhantomData;

use super::{
    build::Wqe,
    caps::Caps,
    ctrl::Flags,
    number::Number,
    transport::{
        Transport,
        TransportKind, //
    },
    units::Units,
    BLOCK,
    MAX_DS,
    UNIT, //
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

/// A send queue of transport `T`, for the time of writing to it.
#[derive(Debug)]
pub struct SendQueue<'m, T> {
    blocks: &'m mut [Block],
    config: &'m Config,
    producer: Producer,
    /// Most units of a WQE.
    max: usize,
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
        Ok(Self {
            blocks,
            config,
            producer,
            max: max_units::<T>(&config.caps),
            transport: PhantomData,
        })
    }

    /// Where driver and device are now.
    pub fn producer(&self) -> Producer {
        self.producer
    }

    /// The device is done with all blocks before `ci`: the index of the last completed WQE, and its
    /// blocks behind it.
    pub fn release(&mut self, ci: u16) {
        self.producer.ci = ci;
    }

    /// Blocks that are free.
    pub fn free(&self) -> usize {
        let used = self.producer.pi.wrapping_sub(self.producer.ci);
        self.blocks.len().saturating_sub(used.into())
    }

    /// Begins a WQE. Nothing of it counts before [`Wqe::finish`].
    #[inline]
    pub fn start(&mut self, flags: Flags) -> Wqe<'_, T, T::Start> {
        let free = self.free();
        let first = usize::from(self.producer.pi);
        Wqe::new(
            self.blocks,
            self.config,
            &mut self.producer,
            first,
            self.max,
            free,
            flags,
        )
    }

    /// The bytes of a WQE that is in the ring; `index` as in [`Posted`].
    ///
    /// `None` if its length is more than the ring.
    pub fn wqe(&self, index: u16) -> Option<Units<'_>> {
        Units::in_ring(self.blocks, index)
    }
}

/// Most units of a WQE.
const fn max_units<T: Transport>(caps: &Caps) -> usize {
    let bytes = match T::KIND {
        TransportKind::Dci => caps.max_wqe_bytes_dc,
        _ => caps.max_wqe_bytes,
    };
    let units = bytes as usize / UNIT;
    if units < MAX_DS {
        units
    } else {
        MAX_DS
    }
}
