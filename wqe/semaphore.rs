// SPDX-License-Identifier: GPL-2.0

//! Atomics on 1, 2 or 4 bytes, made of the masked atomic of 4 bytes (hardware.md 5.7, table).
//!
//! The word of 4 bytes that holds the semaphore is seen big-endian: byte `A + k` is bits `31 - 8k`
//! to `24 - 8k`. Whether hardware sees it so on a little-endian responder is not settled by any open
//! source (hardware.md 5.7): `Semaphore::shift` is the one place that says it.

use super::{
    atomic::{
        MaskedCompareSwap,
        MaskedFetchAdd, //
    },
    number::Remote,
    segment::Segment,
    violation::{
        Expected,
        Violation, //
    }, //
};
use crate::layouts::wqe::RaddrSeg;

/// Bytes of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Width {
    /// One byte.
    One = 1,
    /// Two bytes.
    Two = 2,
    /// Four bytes.
    Four = 4,
}

/// A semaphore in remote memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Semaphore {
    word: Remote,
    width: Width,
    /// Offset in the word.
    offset: u8,
}

impl Semaphore {
    /// The semaphore of `width` bytes at `place`.
    ///
    /// # Errors
    ///
    /// The address is not a multiple of the width.
    pub fn new(place: Remote, width: Width) -> Result<Self, Violation> {
        if place.addr % width as u64 != 0 {
            return Err(Violation::of(
                Segment::Raddr,
                RaddrSeg::RADDR,
                place.addr,
                Expected::MultipleOf(width as u64),
            ));
        }
        Ok(Self {
            word: Remote {
                addr: place.addr & !3,
                ..place
            },
            width,
            offset: (place.addr & 3) as u8,
        })
    }

    /// The remote address of the atomic: the aligned word.
    pub const fn word(self) -> Remote {
        self.word
    }

    /// Position of the semaphore's least significant bit in the word.
    const fn shift(self) -> u32 {
        8 * (4 - self.width as u32 - self.offset as u32)
    }

    /// The largest value.
    pub const fn max(self) -> u32 {
        u32::MAX >> (32 - 8 * self.width as u32)
    }

    /// The semaphore's bits in the word.
    pub const fn mask(self) -> u32 {
        self.max() << self.shift()
    }

    /// The most significant bit of the semaphore in the word.
    pub const fn boundary(self) -> u32 {
        1 << (self.shift() + 8 * self.width as u32 - 1)
    }

    fn place(self, value: u32) -> Result<u32, Violation> {
        if value > self.max() {
            return Err(Violation {
                segment: Segment::MaskedCs4,
                offset: 0,
                field: "value",
                value: u64::from(value),
                expected: Expected::AtMost(u64::from(self.max())),
            });
        }
        Ok(value << self.shift())
    }

    /// If it is `compare`, make it `swap`.
    ///
    /// # Errors
    ///
    /// A value is larger than the semaphore.
    pub fn compare_swap(self, compare: u32, swap: u32) -> Result<MaskedCompareSwap<4>, Violation> {
        let mask = self.mask();
        Ok(MaskedCompareSwap::from_u32(
            self.place(compare)?,
            mask,
            self.place(swap)?,
            mask,
        ))
    }

    /// Make it `value`, whatever it is.
    ///
    /// # Errors
    ///
    /// The value is larger than the semaphore.
    pub fn swap(self, value: u32) -> Result<MaskedCompareSwap<4>, Violation> {
        let swap = self.place(value)?;
        Ok(MaskedCompareSwap::from_u32(0, 0, swap, self.mask()))
    }

    /// Add `value`, modulo the size of the semaphore.
    ///
    /// # Errors
    ///
    /// The value is larger than the semaphore.
    pub fn fetch_add(self, value: u32) -> Result<MaskedFetchAdd<4>, Violation> {
        let add = self.place(value)?;
        Ok(MaskedFetchAdd::from_u32(add, self.boundary()))
    }

    /// The old value of the semaphore in the word that the operation returned.
    ///
    /// The word is a number: how it lies in memory is the responder's mode
    /// (`atomic_req_8B_endianness_mode`), which the caller has undone.
    pub const fn old(self, word: u32) -> u32 {
        (word & self.mask()) >> self.shift()
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_wqe_semaphore)]
mod tests {
    use super::*;

    const A: u64 = 0x1000;

    fn at(offset: u64, width: Width) -> Result<Semaphore, Violation> {
        let place = Remote {
            addr: A + offset,
            rkey: 7,
        };
        Semaphore::new(place, width)
    }

    /// The table of hardware.md 5.7, and 4 bytes.
    #[test]
    fn the_table() {
        for (width, offset, mask, boundary, shift) in [
            (Width::One, 0, 0xff00_0000, 0x8000_0000, 24),
            (Width::One, 1, 0x00ff_0000, 0x0080_0000, 16),
            (Width::One, 2, 0x0000_ff00, 0x0000_8000, 8),
            (Width::One, 3, 0x0000_00ff, 0x0000_0080, 0),
            (Width::Two, 0, 0xffff_0000, 0x8000_0000, 16),
            (Width::Two, 2, 0x0000_ffff, 0x0000_8000, 0),
            (Width::Four, 0, 0xffff_ffff, 0x8000_0000, 0),
        ] {
            let semaphore = at(offset, width).unwrap();
            let (a, b) = (0x5b & semaphore.max(), 0xffff_ffa7 & semaphore.max());
            assert_eq!(semaphore.word(), Remote { addr: A, rkey: 7 });
            assert_eq!(
                semaphore.compare_swap(a, b),
                Ok(MaskedCompareSwap::from_u32(
                    a << shift,
                    mask,
                    b << shift,
                    mask
                ))
            );
            assert_eq!(
                semaphore.swap(b),
                Ok(MaskedCompareSwap::from_u32(0, 0, b << shift, mask))
            );
            assert_eq!(
                semaphore.fetch_add(b),
                Ok(MaskedFetchAdd::from_u32(b << shift, boundary))
            );
            assert_eq!(semaphore.old(!mask | b << shift), b);
            assert_eq!(semaphore.old(!mask), 0);
        }
    }

    #[test]
    fn addresses_are_multiples_of_the_width() {
        for (width, offset) in [
            (Width::Two, 1),
            (Width::Two, 3),
            (Width::Four, 1),
            (Width::Four, 2),
            (Width::Four, 3),
        ] {
            assert_eq!(
                at(offset, width).map_err(|refused| refused.expected),
                Err(Expected::MultipleOf(width as u64))
            );
        }
    }

    #[test]
    fn values_fit() {
        let byte = at(2, Width::One).unwrap();
        assert!(byte.swap(0xff).is_ok());
        assert!(byte.swap(0x100).is_err());
        assert!(byte.compare_swap(0x100, 0).is_err());
        assert!(byte.compare_swap(0, 0x100).is_err());
        assert!(byte.fetch_add(0x100).is_err());
    }

    /// hardware.md 11.1, row 4: not 0x00ab0000 and 0x00cd0000.
    #[test]
    fn the_worked_example() {
        let byte = at(2, Width::One).unwrap();
        assert_eq!(
            byte.compare_swap(0xab, 0xcd),
            Ok(MaskedCompareSwap {
                compare: [0, 0, 0xab, 0],
                compare_mask: [0, 0, 0xff, 0],
                swap: [0, 0, 0xcd, 0],
                swap_mask: [0, 0, 0xff, 0],
            })
        );
        assert_eq!(byte.old(0x1122_ab44), 0xab);
    }
}
