// SPDX-License-Identifier: GPL-2.0

//! Translations of memory keys: entries, and their sizes and places (hardware.md 5.8, 5.9).
//!
//! People count in bytes here; the device counts in octowords of 16 bytes. [`Octowords`] is the one
//! place that converts.

use super::{
    segment::Segment,
    violation::{
        Expected,
        Violation, //
    }, //
};
use crate::layouts::{
    ifc,
    wqe::{
        KlmSeg,
        KsmSeg,
        Mtt as MttEntry,
        StrideBlockCtrl,
        StrideBlockEntry,
        UmrCtrlSeg, //
    },
    Field, //
};

/// Bytes of an octoword.
pub const OCTOWORD: u64 = 16;

/// Sizes and offsets of translations are multiples of this many bytes.
pub const ALIGNMENT: u64 = ifc::MLX5_UMR_FLEX_ALIGNMENT as u64;

/// The address of a list that a UMR points to is a multiple of this many bytes.
pub const POINTER_ALIGNMENT: u64 = ifc::MLX5_UMR_ALIGN as u64;

/// The most bytes of memory that one KLM covers.
pub const KLM_MAX: u32 = 1 << 31;

/// A size or offset in octowords, a multiple of 4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Octowords(u64);

impl Octowords {
    /// From bytes.
    ///
    /// # Errors
    ///
    /// `bytes` is not a multiple of [`ALIGNMENT`]; `field` is which one it was meant for.
    #[inline]
    pub fn from_bytes(bytes: u64, field: Field) -> Result<Self, Violation> {
        if bytes % ALIGNMENT != 0 {
            return Err(Violation::of(
                Segment::UmrCtrl,
                field,
                bytes,
                Expected::MultipleOf(ALIGNMENT),
            ));
        }
        Ok(Self(bytes / OCTOWORD))
    }

    /// Those that hold `bytes`, rounded up to [`ALIGNMENT`].
    #[inline]
    pub const fn holding(bytes: u64) -> Self {
        Self(bytes.div_ceil(ALIGNMENT) * (ALIGNMENT / OCTOWORD))
    }

    /// In bytes.
    #[inline]
    pub const fn bytes(self) -> u64 {
        self.0.saturating_mul(OCTOWORD)
    }

    /// In octowords.
    #[inline]
    pub const fn count(self) -> u64 {
        self.0
    }

    /// As the device's field of 16 bits.
    ///
    /// # Errors
    ///
    /// It does not fit.
    #[inline]
    pub fn narrow(self, field: Field) -> Result<u16, Violation> {
        u16::try_from(self.0).map_err(|_| {
            Violation::of(
                Segment::UmrCtrl,
                field,
                self.0,
                Expected::AtMost(u64::from(u16::MAX)),
            )
        })
    }
}

/// A range of another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Klm {
    addr: u64,
    key: u32,
    bytes: u32,
}

impl Klm {
    /// `bytes` bytes at `addr` of `key`.
    ///
    /// # Errors
    ///
    /// `bytes` is more than [`KLM_MAX`].
    pub fn new(addr: u64, key: u32, bytes: u32) -> Result<Self, Violation> {
        if bytes > KLM_MAX {
            return Err(Violation::of(
                Segment::Klm,
                KlmSeg::BYTE_COUNT,
                u64::from(bytes),
                Expected::AtMost(u64::from(KLM_MAX)),
            ));
        }
        Ok(Self { addr, key, bytes })
    }

    /// The entry as the device sees it; also for lists that a UMR points to.
    #[inline(always)]
    pub fn entry(&self) -> [u8; KlmSeg::LEN] {
        let mut segment = KlmSeg::new();
        segment
            .set_byte_count(self.bytes)
            .set_key(self.key)
            .set_va(self.addr);
        segment.into_bytes()
    }
}

/// A range of another key; all ranges of a list have the size of the key's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ksm {
    /// Where it begins.
    pub addr: u64,
    /// In which key.
    pub key: u32,
}

impl Ksm {
    /// The entry as the device sees it; also for lists that a UMR points to.
    #[inline]
    pub fn entry(&self) -> [u8; KsmSeg::LEN] {
        let mut segment = KsmSeg::new();
        segment.set_key(self.key).set_va(self.addr);
        segment.into_bytes()
    }
}

/// A page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page(u64);

impl Page {
    /// The page at the DMA address `addr`.
    ///
    /// `read` and `write` say what the device may do with it; they count for keys that were created
    /// with access by page (`pg_access`), and are 0 for others.
    ///
    /// # Errors
    ///
    /// The low 8 bits of the address are not 0: the entry has none of them.
    pub fn new(addr: u64, read: bool, write: bool) -> Result<Self, Violation> {
        if addr & 0xff != 0 {
            return Err(Violation::of(
                Segment::Mtt,
                MttEntry::PTAG_31_8,
                addr,
                Expected::MultipleOf(0x100),
            ));
        }
        Ok(Self(addr | u64::from(write) << 1 | u64::from(read)))
    }

    /// The entry as the device sees it; also for lists that a UMR points to.
    #[inline]
    pub const fn entry(&self) -> [u8; MttEntry::LEN] {
        self.0.to_be_bytes()
    }
}

/// One of the keys that a stride block takes turns with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stride {
    /// Where it begins.
    pub addr: u64,
    /// In which key.
    pub key: u32,
    /// Bytes of each turn.
    pub bytes: u16,
    /// Bytes from the start of one turn to that of the next.
    pub stride: u16,
}

/// Ranges that repeat: `bytes` of the first entry, then of the second, and so on, `repeat` times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrideBlock<'a> {
    /// How often.
    pub repeat: u32,
    /// The ranges.
    pub entries: &'a [Stride],
}

impl StrideBlock<'_> {
    /// The head of the block, which the entries follow; also for lists that a UMR points to.
    ///
    /// # Errors
    ///
    /// There are more entries than the field counts.
    pub fn head(&self) -> Result<[u8; StrideBlockCtrl::LEN], Violation> {
        let count = u16::try_from(self.entries.len()).map_err(|_| {
            Violation::of(
                Segment::StrideCtrl,
                StrideBlockCtrl::NUM_ENTRIES,
                self.entries.len() as u64,
                Expected::AtMost(u64::from(u16::MAX)),
            )
        })?;
        // At most 65535 times 65535.
        let cycle = self.entries.iter().map(|entry| u32::from(entry.bytes));
        let mut segment = StrideBlockCtrl::new();
        segment
            .set_byte_count_per_cycle(cycle.sum())
            .set_op(ifc::MLX5_STRIDE_BLOCK_OP)
            .set_repeat_count(self.repeat)
            .set_num_entries(count);
        Ok(segment.into_bytes())
    }
}

impl Stride {
    /// The entry as the device sees it.
    #[inline]
    pub fn entry(&self) -> [u8; StrideBlockEntry::LEN] {
        let mut segment = StrideBlockEntry::new();
        segment
            .set_stride(self.stride)
            .set_byte_count(self.bytes)
            .set_key(self.key)
            .set_va(self.addr);
        segment.into_bytes()
    }
}

/// A list in memory that a UMR points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    pub(super) addr: u64,
    pub(super) lkey: u32,
    pub(super) bytes: u32,
}

impl List {
    /// `bytes` bytes of entries at `addr` of the key `lkey`; what the entries do not fill is 0.
    ///
    /// # Errors
    ///
    /// `addr` is not a multiple of [`POINTER_ALIGNMENT`], `bytes` not one of [`ALIGNMENT`], or more
    /// than the device's field holds.
    pub fn new(addr: u64, lkey: u32, bytes: u32) -> Result<Self, Violation> {
        use crate::layouts::wqe::DataSeg;
        if addr % POINTER_ALIGNMENT != 0 {
            return Err(Violation::of(
                Segment::Data,
                DataSeg::ADDR,
                addr,
                Expected::MultipleOf(POINTER_ALIGNMENT),
            ));
        }
        let field = UmrCtrlSeg::XLT_OCTOWORDS;
        Octowords::from_bytes(u64::from(bytes), field)?.narrow(field)?;
        Ok(Self { addr, lkey, bytes })
    }
}

/// Translations that a UMR writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Translations<'a> {
    /// None.
    #[default]
    None,
    /// KLMs in the WQE.
    Klms(&'a [Klm]),
    /// KSMs in the WQE.
    Ksms(&'a [Ksm]),
    /// Pages in the WQE.
    Pages(&'a [Page]),
    /// A stride block in the WQE.
    Strides(StrideBlock<'a>),
    /// A list in memory.
    List(List),
}

impl Translations<'_> {
    /// Bytes of the entries.
    #[inline]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Klms(klms) => 16 * klms.len() as u64,
            Self::Ksms(ksms) => 16 * ksms.len() as u64,
            Self::Pages(pages) => 8 * pages.len() as u64,
            Self::Strides(block) => 16 * (1 + block.entries.len() as u64),
            Self::List(list) => u64::from(list.bytes),
        }
    }

    /// What the mkey context's and the UMR's fields count.
    #[inline]
    pub fn octowords(&self) -> Octowords {
        Octowords::holding(self.bytes())
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_wqe_xlt)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        // hardware.md 11.3, row 22: two KLMs are 4 octowords, not 2.
        for (bytes, octowords) in [(0, 0), (1, 4), (32, 4), (64, 4), (65, 8), (128, 8)] {
            assert_eq!(Octowords::holding(bytes).count(), octowords);
        }
        // Rows 23 and 24: KLM 64 is at octoword 64, MTT 64 at octoword 32.
        let field = UmrCtrlSeg::XLT_OFFSET_47_16;
        let at = |bytes| Octowords::from_bytes(bytes, field).map(Octowords::count);
        assert_eq!(at(64 * 16), Ok(64));
        assert_eq!(at(64 * 8), Ok(32));
        assert!(at(16).is_err());
        assert!(at(63).is_err());
        assert_eq!(Octowords::holding(u64::MAX).bytes(), u64::MAX);
    }

    #[test]
    fn lists_are_aligned() {
        assert!(List::new(0x1000, 1, 64).is_ok());
        assert!(List::new(0x1400, 1, 64).is_err());
        assert!(List::new(0x1800, 1, 64).is_ok());
        assert!(List::new(0x1000, 1, 32).is_err());
        assert!(List::new(0x1000, 1, 0xffff0 - 0x30).is_ok());
        assert!(List::new(0x1000, 1, 0x10_0000).is_err());
    }

    #[test]
    fn entries() {
        assert!(Klm::new(0, 0, KLM_MAX).is_ok());
        assert!(Klm::new(0, 0, KLM_MAX + 1).is_err());
        // hardware.md 11.3, row 21: the high word of the address comes first.
        let klm = Klm::new(0x1122_3344_5566_7788, 0xaabb_ccdd, 0x1000).unwrap();
        assert!(
            klm.entry()
                == [
                    0, 0, 0x10, 0, 0xaa, 0xbb, 0xcc, 0xdd, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66,
                    0x77, 0x88
                ]
        );
        let page = Page::new(0x1234_5600, true, true).unwrap();
        assert!(page.entry() == [0, 0, 0, 0, 0x12, 0x34, 0x56, 3]);
        assert!(Page::new(0x80, false, false).is_err());
    }
}
