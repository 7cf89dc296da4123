// SPDX-License-Identifier: GPL-2.0

//! BAR 0: initialization segment, then doorbell pages.
//!
//! - [`initseg`]: the registers of the first pages (hardware.md section 1).
//! - here: what is where, and the doorbell page (UAR) offsets.

pub mod initseg;

/// Bytes of BAR 0, as on a real adapter.
pub const SIZE: u64 = 32 << 20;

/// Bytes of the BAR of a virtual function whose PF is there too: all of them have to fit in one
/// window.
pub const VF_SIZE: u64 = 4 << 20;

/// Bytes of a UAR page.
pub const UAR_SIZE: u64 = 4096;

/// First UAR that ALLOC_UAR hands out: the pages before it hold the initialization segment and
/// the MSI-X table.
pub const FIRST_UAR: u32 = 16;

/// Offset in a UAR: EQ consumer index, and arm.
pub const EQ_ARM: u64 = 0x40;
/// Offset in a UAR: EQ consumer index, without arming.
pub const EQ_UPDATE: u64 = 0x48;
