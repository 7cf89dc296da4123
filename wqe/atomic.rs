// SPDX-License-Identifier: GPL-2.0

//! Atomics (hardware.md 5.7).
//!
//! All operands are big-endian in the WQE. What the operations do to memory is in
//! [`semantics`](super::semantics).

use super::{
    caps::Caps,
    number::Remote,
    segment::Segment,
    transport::TransportKind,
    violation::{
        Expected,
        Violation, //
    }, //
};
use crate::layouts::wqe::{
    CtrlSeg,
    RaddrSeg,
    WqeOpcode, //
};

/// Set of atomic operations of a device (atomic capabilities, `atomic_operations`; `driver.h` has
/// the bits as `MLX5_ATOMIC_OPS_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicOps(pub u16);

impl AtomicOps {
    /// Compare-and-swap.
    pub const CMP_SWAP: Self = Self(1 << 0);
    /// Fetch-and-add.
    pub const FETCH_ADD: Self = Self(1 << 1);
    /// Masked compare-and-swap.
    pub const EXTENDED_CMP_SWAP: Self = Self(1 << 2);
    /// Masked fetch-and-add.
    pub const EXTENDED_FETCH_ADD: Self = Self(1 << 3);
    /// All of them.
    pub const ALL: Self = Self(0xf);

    /// All operations of `other` are in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

mod sealed {
    pub trait Sealed {}
}

/// `N` bytes are a size of masked atomics: 4, 8, 16, 32 or 64.
pub trait AtomicSize: sealed::Sealed {
    /// Operation modifier: log2 of the size less 2, marked as extended.
    const OPMOD: u8;
}

/// Names the size `N`.
#[derive(Clone, Copy, Debug)]
pub enum Size<const N: usize> {}

macro_rules! sizes {
    ($($n:literal => $opmod:literal),*) => {$(
        impl sealed::Sealed for Size<$n> {}
        impl AtomicSize for Size<$n> {
            const OPMOD: u8 = $opmod;
        }
    )*};
}

sizes!(4 => 0x8, 8 => 0x9, 16 => 0xa, 32 => 0xb, 64 => 0xc);

/// Masked compare-and-swap of `N` bytes: if the bits of `compare_mask` are as in `compare`, the bits
/// of `swap_mask` become those of `swap`. All operands are big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskedCompareSwap<const N: usize> {
    /// What must be there.
    pub compare: [u8; N],
    /// Which bits of it count.
    pub compare_mask: [u8; N],
    /// What to write.
    pub swap: [u8; N],
    /// Which bits of it.
    pub swap_mask: [u8; N],
}

/// Masked fetch-and-add of `N` bytes: no carry leaves a bit that is set in `boundary`. All operands
/// are big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskedFetchAdd<const N: usize> {
    /// What to add.
    pub add: [u8; N],
    /// The most significant bit of each field; none is one field.
    pub boundary: [u8; N],
}

macro_rules! from_number {
    ($n:literal, $ty:ty, $from:ident) => {
        impl MaskedCompareSwap<$n> {
            /// From numbers.
            #[inline]
            pub const fn $from(compare: $ty, compare_mask: $ty, swap: $ty, swap_mask: $ty) -> Self {
                Self {
                    compare: compare.to_be_bytes(),
                    compare_mask: compare_mask.to_be_bytes(),
                    swap: swap.to_be_bytes(),
                    swap_mask: swap_mask.to_be_bytes(),
                }
            }
        }

        impl MaskedFetchAdd<$n> {
            /// From numbers.
            #[inline]
            pub const fn $from(add: $ty, boundary: $ty) -> Self {
                Self {
                    add: add.to_be_bytes(),
                    boundary: boundary.to_be_bytes(),
                }
            }
        }
    };
}

from_number!(4, u32, from_u32);
from_number!(8, u64, from_u64);

/// Whether an atomic is one that the device can do, and its address fits.
#[inline(always)]
pub(super) fn check(
    caps: &Caps,
    transport: TransportKind,
    opcode: WqeOpcode,
    size: usize,
    remote: Remote,
) -> Result<(), Violation> {
    let (needed, _) = needed(opcode);
    if caps.atomic_operations.contains(needed)
        && size_is_possible(caps, transport, size)
        && is_aligned(remote.addr, size)
    {
        return Ok(());
    }
    Err(refuse(caps, transport, opcode, size, remote.addr))
}

/// Which of the conditions of [`check`] it is.
#[cold]
#[inline(never)]
fn refuse(
    caps: &Caps,
    transport: TransportKind,
    opcode: WqeOpcode,
    size: usize,
    addr: u64,
) -> Violation {
    let (needed, name) = needed(opcode);
    if !caps.atomic_operations.contains(needed) {
        return Violation::of(
            Segment::Ctrl,
            CtrlSeg::OPCODE,
            u64::from(opcode.0),
            Expected::Capability(name),
        );
    }
    if !size_is_possible(caps, transport, size) {
        return Violation::of(
            Segment::Ctrl,
            CtrlSeg::OPMOD,
            size as u64,
            Expected::Capability("atomic_size"),
        );
    }
    Violation::of(
        Segment::Raddr,
        RaddrSeg::RADDR,
        addr,
        Expected::MultipleOf(size as u64),
    )
}

/// The operation that an opcode needs, and its name.
pub(super) const fn needed(opcode: WqeOpcode) -> (AtomicOps, &'static str) {
    match opcode {
        WqeOpcode::ATOMIC_CS => (AtomicOps::CMP_SWAP, "atomic_operations: compare-and-swap"),
        WqeOpcode::ATOMIC_FA => (AtomicOps::FETCH_ADD, "atomic_operations: fetch-and-add"),
        WqeOpcode::ATOMIC_MASKED_CS => (
            AtomicOps::EXTENDED_CMP_SWAP,
            "atomic_operations: extended compare-and-swap",
        ),
        _ => (
            AtomicOps::EXTENDED_FETCH_ADD,
            "atomic_operations: extended fetch-and-add",
        ),
    }
}

/// Whether the device does atomics of `size` bytes on this transport.
pub(super) fn size_is_possible(caps: &Caps, transport: TransportKind, size: usize) -> bool {
    let sizes = match transport {
        TransportKind::Dci => caps.atomic_size_dc,
        _ => caps.atomic_size_qp,
    };
    // Bit n stands for 2^n bytes: the value is a sum of sizes.
    size.is_power_of_two() && usize::from(sizes) & size != 0
}

/// Whether `addr` is a multiple of `size`, a power of two.
pub(super) const fn is_aligned(addr: u64, size: usize) -> bool {
    addr & (size as u64).wrapping_sub(1) == 0
}

/// What of a receiving queue pair, or DC target, decides whether writes are atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// Its context has `atomic_like_write_en`.
    pub atomic_like_write_en: bool,
    /// It is a DC target.
    pub dc: bool,
}

/// Whether an RDMA write of `len` bytes at `addr` is atomic with respect to atomics at the
/// responder, whose capabilities are `caps` (hardware.md 5.7, "Write atomicity").
///
/// `false` also if nothing is known that promises it.
pub fn write_is_atomic(addr: u64, len: u64, caps: &Caps, receiver: Receiver) -> bool {
    let sizes = if receiver.dc {
        caps.atomic_size_dc
    } else {
        caps.atomic_size_qp
    };
    let Some(max) = sizes.checked_ilog2().map(|log| 1_u64 << log) else {
        return false;
    };
    if !receiver.atomic_like_write_en || len == 0 || len > max {
        return false;
    }
    // The natural boundary of a length is that of the next power of two.
    let boundary = len.next_power_of_two();
    match addr.checked_add(len - 1) {
        Some(last) => addr / boundary == last / boundary,
        None => false,
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_wqe_atomic)]
mod tests {
    use super::*;

    #[test]
    fn atomic_writes() {
        let caps = Caps {
            atomic_size_qp: 8,
            atomic_size_dc: 4 | 16,
            ..Caps::default()
        };
        let qp = Receiver {
            atomic_like_write_en: true,
            dc: false,
        };
        let dct = Receiver { dc: true, ..qp };
        let off = Receiver {
            atomic_like_write_en: false,
            ..qp
        };
        for (addr, len, receiver, atomic) in [
            (0x1000, 8, qp, true),
            (0x1004, 8, qp, false),
            (0x1004, 4, qp, true),
            (0x1006, 4, qp, false),
            (0x1003, 1, qp, true),
            (0x1001, 3, qp, true),
            (0x1002, 3, qp, false),
            // hardware.md 11.1, row 9.
            (0x1000, 16, qp, false),
            (0x1000, 16, dct, true),
            (0x1000, 8, off, false),
            (0x1000, 0, qp, false),
            (u64::MAX, 2, qp, false),
            (u64::MAX, 1, qp, true),
            (u64::MAX - 7, 8, qp, true),
            (0, u64::MAX, qp, false),
        ] {
            assert_eq!(write_is_atomic(addr, len, &caps, receiver), atomic);
        }
        assert!(!write_is_atomic(0, 1, &Caps::default(), qp));
    }
}
