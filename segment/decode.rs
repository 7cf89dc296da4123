// SPDX-License-Identifier: GPL-2.0

//! What the words of the initialization segment mean (hardware.md 1).

use core::fmt;

use crate::layouts::registers::DefaultTimeout;

/// The command interface revision that this driver speaks (`CMD_IF_REV` upstream).
pub const CMD_INTERFACE_REV: u16 = 5;

/// Versions that the device reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Firmware {
    /// Major version.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
    /// Subminor version.
    pub subminor: u16,
    /// Revision of the command interface.
    pub cmd_interface_rev: u16,
}

impl fmt::Display for Firmware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{:04}", self.major, self.minor, self.subminor)
    }
}

/// Logarithms of the number of command slots and of the distance between them in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueShape {
    /// log2 of the slot count.
    pub log_size: u8,
    /// log2 of the bytes from one descriptor to the next.
    pub log_stride: u8,
}

impl QueueShape {
    /// Checks that the queue has 2 to 32 slots, that a descriptor (64 bytes) fits the stride, and
    /// that all fit one 4 KiB page. Gives slot count and stride in bytes.
    pub fn check(self) -> Option<(usize, usize)> {
        let fits = (1..=5).contains(&self.log_size)
            && self.log_stride >= 6
            && u16::from(self.log_size) + u16::from(self.log_stride) <= 12;
        fits.then(|| (1 << self.log_size, 1 << self.log_stride))
    }
}

/// A timeout word in milliseconds; `None` for 0, for an unknown unit, and beyond 32 bits.
pub fn timeout_ms(word: u32) -> Option<u32> {
    let ms = DefaultTimeout::view(word.to_be_bytes()).milliseconds()?;
    u32::try_from(ms).ok().filter(|ms| *ms != 0)
}

#[mlx5_rs_macros::suite(mlx5_rs_segment_decode)]
mod tests {
    use super::*;

    #[test]
    fn queue_shapes() {
        for (log_size, log_stride, want) in [
            (5, 6, Some((32, 64))),
            (5, 7, Some((32, 128))),
            (1, 6, Some((2, 64))),
            (0, 6, None),
            (6, 6, None),
            (5, 8, None),
            (5, 5, None),
            (5, u8::MAX, None),
            (15, 15, None),
        ] {
            let shape = QueueShape {
                log_size,
                log_stride,
            };
            assert_eq!(shape.check(), want);
        }
    }

    #[test]
    fn timeouts() {
        for (word, want) in [
            (0, None),
            (60_000, Some(60_000)),
            (1 << 29 | 60, Some(60_000)),
            (2 << 29 | 1, Some(60_000)),
            (3 << 29 | 1, Some(3_600_000)),
            (3 << 29 | 0xf_ffff, None),
            (4 << 29 | 1, None),
            (u32::MAX, None),
        ] {
            assert_eq!(timeout_ms(word), want);
        }
    }
}
