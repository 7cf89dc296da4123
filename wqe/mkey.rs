// SPDX-License-Identifier: GPL-2.0

//! What a UMR changes in a memory key (hardware.md 5.8).
//!
//! A [`MkeyPatch`] is values and mask in one: setting a field marks it, so that a WQE never says "take
//! this field" without its value, nor the other way round.

use super::{
    caps::Caps,
    number::Number,
    segment::Segment,
    violation::{
        Expected,
        Violation, //
    },
    xlt::Octowords, //
};
use crate::layouts::{
    ifc,
    wqe::{
        Mkc,
        UmrCtrlSeg, //
    }, //
};

macro_rules! mask {
    ($($(#[$doc:meta])* $name:ident = $constant:ident;)*) => {
        impl MkeyMask {
            $($(#[$doc])* pub const $name: Self = Self(ifc::$constant as u64);)*

            /// All bits that have a meaning, with their names.
            pub const ALL: &'static [(Self, &'static str)] = &[$((Self::$name, stringify!($name))),*];
        }
    };
}

/// Set of fields of the mkey context that the device takes from a UMR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MkeyMask(u64);

mask! {
    /// Length.
    LEN = MLX5_MKEY_MASK_LEN;
    /// Page size, its low 5 bits.
    PAGE_SIZE = MLX5_MKEY_MASK_PAGE_SIZE;
    /// Start address.
    START_ADDR = MLX5_MKEY_MASK_START_ADDR;
    /// Protection domain.
    PD = MLX5_MKEY_MASK_PD;
    /// Remote invalidation.
    EN_RINVAL = MLX5_MKEY_MASK_EN_RINVAL;
    /// Count of signature errors.
    EN_SIGERR = MLX5_MKEY_MASK_EN_SIGERR;
    /// Signature.
    BSF_EN = MLX5_MKEY_MASK_BSF_EN;
    /// Low byte of the key.
    KEY = MLX5_MKEY_MASK_KEY;
    /// Queue pair that may use it.
    QPN = MLX5_MKEY_MASK_QPN;
    /// Local read.
    LR = MLX5_MKEY_MASK_LR;
    /// Local write.
    LW = MLX5_MKEY_MASK_LW;
    /// Remote read.
    RR = MLX5_MKEY_MASK_RR;
    /// Remote write.
    RW = MLX5_MKEY_MASK_RW;
    /// Remote atomics.
    A = MLX5_MKEY_MASK_A;
    /// Small fence on responses to RDMA reads.
    SMALL_FENCE = MLX5_MKEY_MASK_SMALL_FENCE;
    /// Relaxed ordering of writes.
    RELAXED_ORDERING_WRITE = MLX5_MKEY_MASK_RELAXED_ORDERING_WRITE;
    /// Free.
    FREE = MLX5_MKEY_MASK_FREE;
    /// Bit 5 of the page size.
    PAGE_SIZE_5 = MLX5_MKEY_MASK_PAGE_SIZE_5;
    /// Relaxed ordering of reads.
    RELAXED_ORDERING_READ = MLX5_MKEY_MASK_RELAXED_ORDERING_READ;
}

impl MkeyMask {
    /// The number on the wire, before it is stored big-endian.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// From a WQE.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// All of `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// This set and `other`.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// All bits that have a meaning.
    const KNOWN: u64 = {
        let (mut bits, mut index) = (0, 0);
        while index < Self::ALL.len() {
            bits |= Self::ALL[index].0 .0;
            index += 1;
        }
        bits
    };

    /// The bits that no field stands behind.
    pub const fn unknown(self) -> u64 {
        self.0 & !Self::KNOWN
    }

    /// Those of its fields that not every device takes from a UMR.
    pub(super) const fn conditional(self) -> u64 {
        self.0
            & (Self::PAGE_SIZE.0
                | Self::A.0
                | Self::RELAXED_ORDERING_WRITE.0
                | Self::RELAXED_ORDERING_READ.0
                | Self::PAGE_SIZE_5.0
                | Self::BSF_EN.0
                | Self::EN_SIGERR.0)
    }

    /// A device with `caps` takes all of it.
    #[inline]
    pub fn is_possible(self, caps: &Caps) -> bool {
        self.conditional() == 0 || self.refused(caps).next().is_none()
    }

    /// Every field of the set that a device with `caps` cannot take from a UMR, and why.
    pub fn refused(self, caps: &Caps) -> impl Iterator<Item = (Self, &'static str)> {
        [
            (
                Self::PAGE_SIZE,
                caps.umr_modify_entity_size_disabled,
                "umr_modify_entity_size_disabled = 0",
            ),
            (
                Self::A,
                caps.umr_modify_atomic_disabled,
                "umr_modify_atomic_disabled = 0",
            ),
            (
                Self::RELAXED_ORDERING_WRITE,
                !caps.relaxed_ordering_write_umr,
                "relaxed_ordering_write_umr",
            ),
            (
                Self::RELAXED_ORDERING_READ,
                !caps.relaxed_ordering_read_umr,
                "relaxed_ordering_read_umr",
            ),
            (
                Self::PAGE_SIZE_5,
                !caps.umr_log_entity_size_5,
                "umr_log_entity_size_5",
            ),
            (Self::BSF_EN.with(Self::EN_SIGERR), !caps.signature, "sho"),
        ]
        .into_iter()
        .filter(move |(fields, refused, _)| *refused && self.0 & fields.0 != 0)
        .map(move |(fields, _, name)| (Self(self.0 & fields.0), name))
    }

    #[inline]
    pub(super) fn check(self, caps: &Caps) -> Result<(), Violation> {
        if self.is_possible(caps) {
            return Ok(());
        }
        self.refuse(caps)
    }

    #[cold]
    fn refuse(self, caps: &Caps) -> Result<(), Violation> {
        match self.refused(caps).next() {
            None => Ok(()),
            Some((fields, name)) => Err(Violation::of(
                Segment::UmrCtrl,
                UmrCtrlSeg::MKEY_MASK,
                fields.0,
                Expected::Capability(name),
            )),
        }
    }
}

/// What a key allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Local read.
    pub local_read: bool,
    /// Local write.
    pub local_write: bool,
    /// Remote read.
    pub remote_read: bool,
    /// Remote write.
    pub remote_write: bool,
}

/// How a key translates (`access_mode` of its context).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AccessMode {
    /// Physical addresses.
    Physical = 0,
    /// Pages.
    Mtt = 1,
    /// Ranges of other keys.
    Klm = 2,
    /// Ranges of fixed size of other keys.
    Ksm = 3,
}

/// New values of some fields of a memory key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MkeyPatch {
    pub(super) mask: MkeyMask,
    pub(super) context: Mkc,
}

impl MkeyPatch {
    /// Changes nothing.
    #[inline(always)]
    pub fn new() -> Self {
        Self::default()
    }

    #[inline(always)]
    fn mark(mut self, fields: MkeyMask) -> Self {
        self.mask = self.mask.with(fields);
        self
    }

    /// Which fields it changes.
    #[inline(always)]
    pub fn mask(&self) -> MkeyMask {
        self.mask
    }

    /// Length in bytes; 0 is 2^64 (`length64`).
    #[inline(always)]
    pub fn length(mut self, bytes: u64) -> Self {
        self.context.set_length(bytes);
        self.mark(MkeyMask::LEN)
    }

    /// The whole address space.
    #[inline(always)]
    pub fn whole_address_space(mut self) -> Self {
        self.context.set_length(0).set_length64(true);
        self.mark(MkeyMask::LEN)
    }

    /// Address of the first byte.
    #[inline(always)]
    pub fn start_addr(mut self, addr: u64) -> Self {
        self.context.set_start_addr(addr);
        self.mark(MkeyMask::START_ADDR)
    }

    /// Log2 of the bytes of a page, at most 31.
    ///
    /// # Errors
    ///
    /// It is more.
    #[inline(always)]
    pub fn log_page_size(mut self, log: u8) -> Result<Self, Violation> {
        if log > 31 {
            return Err(Violation::of(
                Segment::Mkc,
                Mkc::LOG_PAGE_SIZE,
                u64::from(log),
                Expected::AtMost(31),
            ));
        }
        // 31 fits 6 bits.
        let _ = self.context.try_set_log_page_size(log);
        Ok(self.mark(MkeyMask::PAGE_SIZE))
    }

    /// Log2 of the bytes of a page, at most 63, for devices with `umr_log_entity_size_5`.
    ///
    /// # Errors
    ///
    /// It is more.
    #[inline(always)]
    pub fn log_page_size_wide(mut self, log: u8) -> Result<Self, Violation> {
        self.context
            .try_set_log_page_size(log)
            .map_err(|overflow| Violation::overflow(Segment::Mkc, overflow))?;
        Ok(self.mark(MkeyMask::PAGE_SIZE.with(MkeyMask::PAGE_SIZE_5)))
    }

    /// Protection domain.
    #[inline(always)]
    pub fn pd(mut self, pd: Number) -> Self {
        // A `Number` fits 24 bits.
        let _ = self.context.try_set_pd(pd.get());
        self.mark(MkeyMask::PD)
    }

    /// Whether a peer may invalidate the key.
    #[inline(always)]
    pub fn remote_invalidation(mut self, allowed: bool) -> Self {
        self.context.set_en_rinval(allowed);
        self.mark(MkeyMask::EN_RINVAL)
    }

    /// Signature, with the parity of the errors so far.
    #[inline(always)]
    pub fn signature(mut self, enabled: bool, errors_odd: bool) -> Self {
        self.context.set_expected_sigerr_count(errors_odd);
        self.bsf(enabled).mark(MkeyMask::EN_SIGERR)
    }

    /// Signature; the errors so far stay counted.
    #[inline(always)]
    pub fn bsf(mut self, enabled: bool) -> Self {
        self.context.set_bsf_en(enabled);
        self.mark(MkeyMask::BSF_EN)
    }

    /// Low byte of the key.
    #[inline(always)]
    pub fn variant(mut self, variant: u8) -> Self {
        self.context.set_mkey_7_0(variant);
        self.mark(MkeyMask::KEY)
    }

    /// The queue pair that may use it, or any.
    #[inline(always)]
    pub fn qpn(mut self, qpn: Option<Number>) -> Self {
        // A `Number` fits 24 bits.
        let _ = self
            .context
            .try_set_qpn(qpn.map_or(Number::MAX, Number::get));
        self.mark(MkeyMask::QPN)
    }

    /// Rights, without that for atomics.
    #[inline(always)]
    pub fn access(mut self, access: Access) -> Self {
        self.context.set_lr(access.local_read);
        self.access_beside_local_read(access).mark(MkeyMask::LR)
    }

    /// The same, but local reads stay as they are: what user space may change of its keys and windows.
    #[inline(always)]
    pub fn access_beside_local_read(mut self, access: Access) -> Self {
        self.context
            .set_lw(access.local_write)
            .set_rr(access.remote_read)
            .set_rw(access.remote_write);
        self.mark(MkeyMask::LW.with(MkeyMask::RR).with(MkeyMask::RW))
    }

    /// The right for remote atomics.
    #[inline(always)]
    pub fn atomics(mut self, allowed: bool) -> Self {
        self.context.set_a(allowed);
        self.mark(MkeyMask::A)
    }

    /// Small fence on responses to RDMA reads.
    #[inline(always)]
    pub fn small_fence(mut self, on: bool) -> Self {
        self.context.set_small_fence_on_rdma_read_response(on);
        self.mark(MkeyMask::SMALL_FENCE)
    }

    /// Relaxed ordering of writes.
    #[inline(always)]
    pub fn relaxed_writes(mut self, on: bool) -> Self {
        self.context.set_relaxed_ordering_write(on);
        self.mark(MkeyMask::RELAXED_ORDERING_WRITE)
    }

    /// Relaxed ordering of reads.
    #[inline(always)]
    pub fn relaxed_reads(mut self, on: bool) -> Self {
        self.context.set_relaxed_ordering_read(on);
        self.mark(MkeyMask::RELAXED_ORDERING_READ)
    }

    /// Whether the key is free, that is, cannot be used.
    #[inline(always)]
    pub fn free(mut self, free: bool) -> Self {
        self.context.set_free(free);
        self.mark(MkeyMask::FREE)
    }

    // The fields below have no bit in the mask.

    /// The key stays one that UMRs may change.
    #[inline(always)]
    pub fn umr_enabled(mut self) -> Self {
        self.context.set_umr_en(true);
        self
    }

    /// How the key translates.
    #[inline(always)]
    pub fn access_mode(mut self, mode: AccessMode) -> Self {
        // 2 bits hold the enum.
        let _ = self.context.try_set_access_mode_1_0(mode as u8);
        self
    }

    /// Size of its translations.
    #[inline(always)]
    pub fn translations(mut self, size: Octowords) -> Self {
        let count = u32::try_from(size.count()).unwrap_or(u32::MAX);
        self.context.set_translations_octword_size(count);
        self
    }

    /// Size of its BSFs.
    #[inline(always)]
    pub fn bsfs(mut self, size: Octowords) -> Self {
        let count = u32::try_from(size.count()).unwrap_or(u32::MAX);
        self.context.set_bsf_octword_size(count);
        self
    }

    /// Low byte of the key and queue pair in the context, without marking them: upstream fills in
    /// both with every UMR, so that the device could compare them.
    #[inline(always)]
    pub fn unmarked_key(mut self, variant: u8, qpn: Option<Number>) -> Self {
        self.context.set_mkey_7_0(variant);
        // A `Number` fits 24 bits.
        let _ = self
            .context
            .try_set_qpn(qpn.map_or(Number::MAX, Number::get));
        self
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_wqe_mkey)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_the_fact_sheet() {
        // hardware.md 11.3, row 14.
        let patch = MkeyPatch::new().length(1).start_addr(0);
        assert_eq!(patch.mask().bits(), 0x41);
        assert_eq!(MkeyMask::RELAXED_ORDERING_READ.bits(), 1 << 47);
        assert_eq!(MkeyMask::FREE.bits(), 1 << 29);
        assert_eq!(MkeyMask::from_bits(1 << 2 | 1 << 29).unknown(), 1 << 2);
    }

    #[test]
    fn fields_need_capabilities() {
        let none = Caps::default();
        let all = Caps::ALL;
        let disabled = Caps {
            umr_modify_entity_size_disabled: true,
            umr_modify_atomic_disabled: true,
            ..Caps::ALL
        };
        let wide = MkeyPatch::new().log_page_size_wide(40).unwrap();
        let page = MkeyPatch::new().log_page_size(12).unwrap();
        for (patch, caps, legal) in [
            (MkeyPatch::new().relaxed_writes(true), &none, false),
            (MkeyPatch::new().relaxed_reads(false), &none, false),
            (MkeyPatch::new().relaxed_writes(true), &all, true),
            (MkeyPatch::new().atomics(true), &disabled, false),
            (MkeyPatch::new().atomics(true), &all, true),
            (page, &disabled, false),
            (page, &none, true),
            (wide, &none, false),
            (wide, &all, true),
            (MkeyPatch::new().signature(true, false), &none, false),
            (MkeyPatch::new().length(1).free(true), &none, true),
        ] {
            assert_eq!(patch.mask().check(caps).is_ok(), legal);
        }
        assert!(MkeyPatch::new().log_page_size(32).is_err());
        assert!(MkeyPatch::new().log_page_size_wide(64).is_err());
    }
}
