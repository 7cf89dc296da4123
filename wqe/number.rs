// SPDX-License-Identifier: GPL-2.0

//! Numbers of objects, and places in memory.

use super::{
    segment::Segment,
    violation::{
        Expected,
        Violation, //
    }, //
};
use crate::layouts::wqe::{
    DataSeg,
    RaddrSeg, //
};

/// Number of an object of the device (queue, domain, PSV, TIS ...): 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(u32);

impl Number {
    /// The largest.
    pub const MAX: u32 = 0x00ff_ffff;

    /// `None` if `number` has more than 24 bits.
    pub const fn new(number: u32) -> Option<Self> {
        if number > Self::MAX {
            return None;
        }
        Some(Self(number))
    }

    /// The low 24 bits of `number`: for numbers that the device gave in a field of 24 bits.
    pub const fn low(number: u32) -> Self {
        Self(number & Self::MAX)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// A place in this host's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// Address in the key's space.
    pub addr: u64,
    /// Local key.
    pub lkey: u32,
}

/// A place in a remote host's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Address in the key's space.
    pub addr: u64,
    /// Remote key.
    pub rkey: u32,
}

impl Remote {
    #[inline(always)]
    pub(super) fn segment(self) -> [u8; RaddrSeg::LEN] {
        let mut segment = RaddrSeg::new();
        segment.set_raddr(self.addr).set_rkey(self.rkey);
        segment.into_bytes()
    }
}

/// A range of this host's memory: an entry of a gather or scatter list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    place: Local,
    len: u32,
}

impl Sge {
    /// The most bytes of one entry: the highest bit of the field says that data are inline.
    pub const MAX_LEN: u32 = 0x7fff_ffff;

    /// `len` bytes at `addr` of the key `lkey`. An entry of length 0 is legal and takes no room in
    /// the WQE.
    ///
    /// # Errors
    ///
    /// `len` is more than [`MAX_LEN`](Self::MAX_LEN).
    #[inline(always)]
    pub fn new(addr: u64, lkey: u32, len: u32) -> Result<Self, Violation> {
        if len > Self::MAX_LEN {
            return Err(too_long(len));
        }
        let place = Local { addr, lkey };
        Ok(Self { place, len })
    }

    /// The bytes that an atomic of this size returns.
    pub(super) const fn of_size(place: Local, len: u32) -> Self {
        Self { place, len }
    }

    /// Where it begins.
    pub const fn place(self) -> Local {
        self.place
    }

    /// Bytes.
    pub const fn len(self) -> u32 {
        self.len
    }

    /// There are no bytes.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    pub(super) fn segment(self) -> [u8; DataSeg::LEN] {
        const { assert!(DataSeg::INLINE.offset == 0 && DataSeg::BYTE_COUNT.offset == 1) }
        let mut segment = DataSeg::new();
        segment.set_lkey(self.place.lkey).set_addr(self.place.addr);
        let mut bytes = segment.into_bytes();
        // `new` and `of_size` keep the length within its bits: the highest is 0, as that of `inline`.
        if let Some(word) = bytes.first_chunk_mut() {
            *word = self.len.to_be_bytes();
        }
        bytes
    }
}

#[cold]
#[inline(never)]
fn too_long(len: u32) -> Violation {
    Violation::of(
        Segment::Data,
        DataSeg::BYTE_COUNT,
        u64::from(len),
        Expected::AtMost(u64::from(Sge::MAX_LEN)),
    )
}
