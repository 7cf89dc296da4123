// SPDX-License-Identifier: GPL-2.0

//! What a memory key is told to the device as (hardware.md 10.1).
//!
//! Only what can be is written: [`Access`] has no right without those that it needs, and a direct key
//! is for whole pages, has no signature, and cannot be changed by a work request (UMR) or invalidated
//! by one.

use core::ops::BitOr;

use crate::layouts::commands::CreateMkeyIn;

/// log2 of the page of a direct key, in bytes.
const LOG_PAGE: u8 = 12;

/// `access_mode` of a key with a list of pages (MTT).
const MODE_MTT: u8 = 1;

/// `qpn` of a key that every queue pair may use.
const ANY_QP: u32 = 0xff_ffff;

/// What may be done through a key. Local reads always may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u8);

impl Access {
    const LW: u8 = 1 << 0;
    const RR: u8 = 1 << 1;
    const RW: u8 = 1 << 2;
    const A: u8 = 1 << 3;

    /// The device reads.
    pub const LOCAL_READ: Self = Self(0);
    /// The device writes, for whoever holds the key here.
    pub const LOCAL_WRITE: Self = Self(Self::LW);
    /// Others read.
    pub const REMOTE_READ: Self = Self(Self::RR);
    /// Others write, which local write is part of.
    pub const REMOTE_WRITE: Self = Self(Self::RW | Self::LW);
    /// Others do atomic operations, which local write is part of.
    pub const REMOTE_ATOMIC: Self = Self(Self::A | Self::LW);

    fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The low 8 bits of a key, which the driver chooses.
///
/// Never 0: 0x100 stands for the end of a scatter list, and 0 is no key (hardware.md 5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant(u8);

impl Variant {
    /// One of 255, another one for each of so many numbers in a row: a key that is made again has
    /// another value, and who still uses the old one is noticed.
    pub const fn of(number: u32) -> Self {
        Self((number % 255) as u8 + 1)
    }

    /// The bits.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// What work requests and registers name memory by: the device's 24-bit index and the driver's variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u32);

impl Key {
    /// The key with this index, of which 24 bits count.
    pub const fn new(index: u32, variant: Variant) -> Self {
        Self(index << 8 | variant.0 as u32)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The device's part of it, 24 bits.
    pub const fn index(self) -> u32 {
        self.0 >> 8
    }
}

/// A direct key that is to be created.
#[derive(Clone, Copy, Debug)]
pub struct Direct {
    /// Protection domain, 24 bits.
    pub pd: u32,
    /// See [`Variant`].
    pub variant: Variant,
    /// Rights.
    pub access: Access,
    /// What the first byte is called.
    pub start: u64,
    /// Pages of 4 KiB.
    pub pages: u32,
}

impl Direct {
    /// Words of the list: two per page, and pages are listed in pairs.
    const fn list_words(&self) -> usize {
        self.octowords() as usize * 4
    }

    const fn octowords(&self) -> u32 {
        self.pages.div_ceil(2)
    }

    /// Bytes of the request; `None` for a key to nothing, or to more than can be told.
    pub fn request_len(&self) -> Option<usize> {
        if self.pages == 0 {
            return None;
        }
        CreateMkeyIn::KLM_PAS_MTT.len_with(self.list_words())
    }

    /// Writes the request, for the pages at `addrs`. `None` if it is none: `input`, which is zeroed, has
    /// not [`request_len`](Self::request_len) bytes, an address or the start is not that of a page, or
    /// there are not as many as there should be.
    pub fn write(&self, input: &mut [u8], addrs: impl Iterator<Item = u64>) -> Option<()> {
        const IN_PAGE: u64 = (1 << LOG_PAGE) - 1;

        let bytes = u64::from(self.pages) << LOG_PAGE;
        if Some(input.len()) != self.request_len()
            || self.start & IN_PAGE != 0
            || self.start.checked_add(bytes).is_none()
        {
            return None;
        }
        let mut request = CreateMkeyIn::of_mut(input)?;
        request.set_translations_octword_actual_size(self.octowords());
        let mut context = request.memory_key_mkey_entry_mut();
        context
            .try_set_access_mode_1_0(MODE_MTT)
            .and_then(|context| context.try_set_qpn(ANY_QP))
            .and_then(|context| context.try_set_pd(self.pd))
            .and_then(|context| context.try_set_log_page_size(LOG_PAGE))
            .ok()?;
        context
            .set_lr(true)
            .set_lw(self.access.has(Access::LW))
            .set_rr(self.access.has(Access::RR))
            .set_rw(self.access.has(Access::RW))
            .set_a(self.access.has(Access::A))
            .set_mkey_7_0(self.variant.0)
            .set_start_addr(self.start)
            .set_length(bytes)
            .set_translations_octword_size(self.octowords());
        let mut count = 0;
        for addr in addrs {
            if addr & IN_PAGE != 0 || count == self.pages as usize {
                return None;
            }
            for (i, word) in [(addr >> 32) as u32, addr as u32].into_iter().enumerate() {
                CreateMkeyIn::KLM_PAS_MTT.set(input, count * 2 + i, word)?;
            }
            count += 1;
        }
        (count == self.pages as usize).then_some(())
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_mr_context)]
mod tests {
    use super::*;

    const KEY: Direct = Direct {
        pd: 0x12_3456,
        variant: Variant(7),
        access: Access::LOCAL_WRITE,
        start: 0x7_0000,
        pages: 3,
    };

    // Bytes as hardware.md 10.1 has them.
    #[test]
    fn request() {
        let mut input = [0; 0x110 + 32];
        assert_eq!(KEY.request_len(), Some(input.len()));
        let pages = [0x7_0000, 0x12_3456_7000, 0xffff_ffff_ffff_f000];
        assert_eq!(KEY.write(&mut input, pages.into_iter()), Some(()));
        // lw, lr, and MTT; nothing else: not free, no UMR, nothing remote.
        assert_eq!(input[0x10..0x14], [0, 0, 0x0c | 0x01, 0]);
        assert_eq!(input[0x14..0x18], [0xff, 0xff, 0xff, 7]);
        // No signature, no invalidation, the domain.
        assert_eq!(input[0x1c..0x20], [0, 0x12, 0x34, 0x56]);
        assert_eq!(input[0x20..0x28], 0x7_0000_u64.to_be_bytes());
        assert_eq!(input[0x28..0x30], 0x3000_u64.to_be_bytes());
        assert_eq!(input[0x44..0x48], [0, 0, 0, 2]);
        assert_eq!(input[0x4b], 12);
        assert_eq!(input[0x60..0x64], [0, 0, 0, 2]);
        assert_eq!(input[0x110..0x118], 0x7_0000_u64.to_be_bytes());
        assert_eq!(input[0x118..0x120], 0x12_3456_7000_u64.to_be_bytes());
        assert_eq!(input[0x120..0x128], 0xffff_ffff_ffff_f000_u64.to_be_bytes());
        // The list has an even number of entries.
        assert!(input[0x128..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn rights_bring_what_they_need() {
        for (access, bits) in [
            (Access::LOCAL_READ, 0x04),
            (Access::LOCAL_WRITE, 0x0c),
            (Access::REMOTE_READ, 0x14),
            (Access::REMOTE_WRITE, 0x2c),
            (Access::REMOTE_ATOMIC, 0x4c),
            (Access::REMOTE_READ | Access::REMOTE_ATOMIC, 0x5c),
        ] {
            let mut input = [0; 0x110 + 16];
            let key = Direct {
                access,
                pages: 1,
                ..KEY
            };
            assert_eq!(key.write(&mut input, [0x1000].into_iter()), Some(()));
            assert_eq!(input[0x12], bits | 0x01);
        }
    }

    #[test]
    fn what_is_no_key() {
        let mut input = [0; 0x110 + 16];
        let key = Direct { pages: 1, ..KEY };
        let pages = |n: u64| (1..=n).map(|page| page << 12);
        assert_eq!(Direct { pages: 0, ..KEY }.request_len(), None);
        assert_eq!(KEY.write(&mut input, pages(3)), None);
        assert_eq!(key.write(&mut input, pages(0)), None);
        assert_eq!(key.write(&mut input, pages(2)), None);
        assert_eq!(key.write(&mut input, [0x1008].into_iter()), None);
        let crooked = Direct { start: 8, ..key };
        assert_eq!(crooked.write(&mut input, pages(1)), None);
        let wide = Direct { pd: 1 << 24, ..key };
        assert_eq!(wide.write(&mut input, pages(1)), None);
        let high = Direct {
            start: 0xffff_ffff_ffff_f000,
            ..key
        };
        assert_eq!(high.write(&mut input, pages(1)), None);
    }

    #[test]
    fn keys() {
        let key = Key::new(0x12_3456, Variant::of(0));
        assert_eq!((key.get(), key.index()), (0x1234_5601, 0x12_3456));
        for number in 0..1000 {
            assert!(Variant::of(number).get() != 0);
            assert!(Variant::of(number) != Variant::of(number + 1));
        }
    }
}
