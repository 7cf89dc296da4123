// SPDX-License-Identifier: GPL-2.0

//! UMR: changes of a memory key by a WQE (hardware.md 5.8).

use super::{
    caps::Caps,
    mkey::MkeyPatch,
    number::Number,
    psv::Bsf,
    segment::Segment,
    violation::{
        Expected,
        Violation, //
    },
    xlt::{
        Klm,
        Octowords,
        Translations, //
    },
    MAX_DS, //
};
use crate::layouts::wqe::UmrCtrlSeg;

/// What state the key must be in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Check {
    /// Any.
    #[default]
    None = 0,
    /// Fails if it is not free.
    MustBeFree = 1,
    /// Fails if it is free.
    MustNotBeFree = 2,
}

/// A change of a memory key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Umr<'a> {
    /// The key.
    pub mkey: u32,
    /// Its state before.
    pub check: Check,
    /// It must be this queue's.
    pub check_qpn: bool,
    /// New values of fields of its context.
    pub patch: MkeyPatch,
    /// New translations.
    pub translations: Translations<'a>,
    /// Where the translations go.
    pub place: Place<'a>,
}

/// Where translations go, or what else the same field of the WQE says.
///
/// An offset and a BSF share a field: there is one or the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place<'a> {
    /// All translations are replaced, from the first on.
    #[default]
    Whole,
    /// They are patched from this many bytes of entries on; a multiple of 64.
    At(u64),
    /// All are replaced, and a BSF is written.
    WithBsf(&'a Bsf),
}

/// Octowords of a BSF.
const BSF: Octowords = Octowords::holding(64);

impl<'a> Umr<'a> {
    /// The control segment and the KLMs, if it is the plain kind that every device takes which takes
    /// KLMs: they replace all, or there are none, and no field needs a capability.
    #[inline(always)]
    pub(super) fn plain(&self, caps: &Caps) -> Option<([u8; UmrCtrlSeg::LEN], &'a [Klm])> {
        let klms = match self.translations {
            Translations::None => &[][..],
            Translations::Klms(klms) if !caps.umr_indirect_mkey_disabled => klms,
            _ => return None,
        };
        // What has room in a WQE.
        if klms.len() > MAX_DS
            || self.patch.mask.conditional() != 0
            || !matches!(self.place, Place::Whole)
        {
            return None;
        }
        let mut ctrl = UmrCtrlSeg::new();
        ctrl.set_inline(true)
            .set_check_qpn(self.check_qpn)
            .set_xlt_octowords(klms.len().next_multiple_of(4) as u16)
            .set_mkey_mask(self.patch.mask.bits());
        // 2 bits hold the enum.
        let _ = ctrl.try_set_check_free(self.check as u8);
        Some((ctrl.into_bytes(), klms))
    }
}

impl Umr<'_> {
    /// Checks the whole and makes the control segment.
    pub(super) fn ctrl(&self, caps: &Caps) -> Result<[u8; UmrCtrlSeg::LEN], Violation> {
        self.patch.mask.check(caps)?;
        let indirect = matches!(
            self.translations,
            Translations::Klms(_) | Translations::Ksms(_) | Translations::Strides(_)
        );
        if indirect && caps.umr_indirect_mkey_disabled {
            return Err(Violation::of(
                Segment::UmrCtrl,
                UmrCtrlSeg::XLT_OCTOWORDS,
                self.translations.octowords().count(),
                Expected::Capability("umr_indirect_mkey_disabled = 0"),
            ));
        }
        if matches!(self.translations, Translations::Ksms(_)) && !caps.fixed_buffer_size {
            return Err(Violation::of(
                Segment::UmrCtrl,
                UmrCtrlSeg::XLT_OCTOWORDS,
                self.translations.octowords().count(),
                Expected::Capability("fixed_buffer_size"),
            ));
        }
        let by_pointer = matches!(self.translations, Translations::List(_));
        let mut ctrl = UmrCtrlSeg::new();
        ctrl.set_inline(!by_pointer)
            .set_check_qpn(self.check_qpn)
            .set_xlt_octowords(
                self.translations
                    .octowords()
                    .narrow(UmrCtrlSeg::XLT_OCTOWORDS)?,
            )
            .set_mkey_mask(self.patch.mask.bits());
        // 2 bits hold the enum.
        let _ = ctrl.try_set_check_free(self.check as u8);
        match self.place {
            Place::Whole => {}
            Place::At(bytes) => {
                let offset = Octowords::from_bytes(bytes, UmrCtrlSeg::BSF_OCTOWORDS)?.count();
                let high = u32::try_from(offset >> 16).map_err(|_| {
                    Violation::of(
                        Segment::UmrCtrl,
                        UmrCtrlSeg::XLT_OFFSET_47_16,
                        offset >> 16,
                        Expected::AtMost(u64::from(u32::MAX)),
                    )
                })?;
                if high != 0 && !caps.umr_extended_translation_offset {
                    return Err(Violation::of(
                        Segment::UmrCtrl,
                        UmrCtrlSeg::XLT_OFFSET_47_16,
                        u64::from(high),
                        Expected::Capability("umr_extended_translation_offset"),
                    ));
                }
                ctrl.set_translation_offset_en(true)
                    .set_bsf_octowords(offset as u16)
                    .set_xlt_offset_47_16(high);
            }
            Place::WithBsf(_) => {
                let refused = |expected| {
                    let field = UmrCtrlSeg::BSF_OCTOWORDS;
                    Err(Violation::of(
                        Segment::UmrCtrl,
                        field,
                        BSF.count(),
                        expected,
                    ))
                };
                if !caps.signature {
                    return refused(Expected::Capability("sho"));
                }
                if by_pointer {
                    return refused(Expected::Rule("a BSF only behind translations in the WQE"));
                }
                ctrl.set_bsf_octowords(BSF.narrow(UmrCtrlSeg::BSF_OCTOWORDS)?);
            }
        }
        Ok(ctrl.into_bytes())
    }
}

/// The control segment before static parameters of a flow.
pub(super) fn static_params_ctrl() -> [u8; UmrCtrlSeg::LEN] {
    let mut ctrl = UmrCtrlSeg::new();
    // 64 bytes of parameters, counted as a BSF (upstream's kTLS offload).
    ctrl.set_inline(true).set_bsf_octowords(BSF.count() as u16);
    ctrl.into_bytes()
}

impl<'a> Umr<'a> {
    /// Makes the key `rkey` invalid, as a local invalidation does.
    pub fn invalidate(rkey: u32) -> Self {
        Self {
            mkey: rkey,
            patch: MkeyPatch::new().free(true),
            ..Self::default()
        }
    }

    /// Takes a key away from its users for good: it is free and belongs to `pd`, the driver's own.
    pub fn revoke(mkey: u32, pd: Number) -> Self {
        Self {
            mkey,
            patch: MkeyPatch::new()
                .free(true)
                .pd(pd)
                .unmarked_key(mkey as u8, None),
            ..Self::default()
        }
    }
}
