// SPDX-License-Identifier: GPL-2.0

//! The bytes of one WQE, which may lie in two parts.

use super::{
    Block,
    UNIT, //
};
use crate::layouts::wqe::CtrlSeg;

/// A unit of 16 bytes: what lengths of WQEs count.
pub type Unit = [u8; UNIT];

/// The units of a WQE. It may wrap at the end of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units<'a> {
    head: &'a [u8],
    tail: &'a [u8],
}

impl<'a> Units<'a> {
    /// A WQE in one part. Bytes after the last whole unit are not looked at, only counted.
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self {
            head: bytes,
            tail: &[],
        }
    }

    /// The WQE that begins at block `index` of a ring, as long as its control segment says.
    ///
    /// `None` if the ring is empty or shorter than that.
    #[inline]
    pub fn in_ring(blocks: &'a [Block], index: u16) -> Option<Self> {
        let first = usize::from(index).checked_rem(blocks.len())?;
        let (before, after) = blocks.as_flattened().split_at(first * size_of::<Block>());
        let len = UNIT * usize::from(CtrlSeg::of(after)?.ds());
        match after.get(..len) {
            Some(head) => Some(Self { head, tail: &[] }),
            None => Some(Self {
                head: after,
                tail: before.get(..len - after.len())?,
            }),
        }
    }

    /// Number of bytes.
    pub const fn bytes(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Number of whole units.
    pub const fn len(&self) -> usize {
        self.bytes() / UNIT
    }

    /// There is no whole unit.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Unit `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a Unit> {
        let at = index.checked_mul(UNIT)?;
        // The part at the end of a ring is whole blocks.
        match at.checked_sub(self.head.len()) {
            None => self.head.get(at..)?.first_chunk(),
            Some(at) => self.tail.get(at..)?.first_chunk(),
        }
    }

    /// All whole units from `first` on.
    pub fn from(&self, first: usize) -> impl Iterator<Item = &'a Unit> + Clone {
        let units = *self;
        (first..self.len()).filter_map(move |index| units.get(index))
    }

    /// All bytes, if they are in one part.
    #[inline]
    pub(super) fn contiguous(&self) -> Option<&'a [u8]> {
        self.tail.is_empty().then_some(self.head)
    }

    /// Copies `N` bytes from byte `at` on; what is not there is 0.
    #[inline]
    pub fn copy<const N: usize>(&self, at: usize) -> [u8; N] {
        if let Some(bytes) = self.head.get(at..).and_then(|rest| rest.first_chunk()) {
            return *bytes;
        }
        self.copy_slowly(at)
    }

    fn copy_slowly<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        for (offset, byte) in bytes.iter_mut().enumerate() {
            *byte = self.byte(at.saturating_add(offset)).unwrap_or(0);
        }
        bytes
    }

    /// The byte at `at`.
    pub fn byte(&self, at: usize) -> Option<u8> {
        match self.head.get(at) {
            Some(byte) => Some(*byte),
            None => self.tail.get(at.checked_sub(self.head.len())?).copied(),
        }
    }
}
