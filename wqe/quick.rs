// SPDX-License-Identifier: GPL-2.0

//! A quick look at the WQEs of fast paths, so that checking each costs little.
//!
//! It knows the common ones only, and says either that nothing is wrong or that it does not know: the
//! [validator](mod@super::validate) is what decides then. Tests hold it against the validator.

use super::{
    atomic::{
        self,
        AtomicOps, //
    },
    mkey::MkeyMask,
    parse::masked_size,
    segment::Segment,
    transport::TransportKind,
    units::Units,
    validate::Context,
    xlt::KLM_MAX,
    UNIT, //
};
use crate::layouts::{
    wqe::{
        CtrlSeg,
        DataSeg,
        Mkc,
        RaddrSeg,
        UdAv,
        UmrCtrlSeg,
        WqeOpcode, //
    },
    Field, //
};

/// The bits of a field in its unit, as a big-endian number.
const fn mask(field: Field) -> u128 {
    let first = field.offset % (8 * UNIT);
    (u128::MAX >> (128 - field.width)) << (128 - first - field.width)
}

/// The value of a field in its unit.
const fn field(unit: u128, field: Field) -> u128 {
    let first = field.offset % (8 * UNIT);
    unit << first >> (128 - field.width)
}

/// The reserved bits of a unit of a segment.
const fn reserved(segment: Segment, unit: usize) -> u128 {
    segment.reserved()[unit]
}

/// What control segments never differ in without being wrong or unusual.
const CTRL: u128 = reserved(Segment::Ctrl, 0);

struct Look<'a> {
    units: Units<'a>,
    context: &'a Context<'a>,
    transport: TransportKind,
    len: usize,
}

impl Look<'_> {
    #[inline(always)]
    fn unit(&self, index: usize) -> u128 {
        // A unit that is not there is all ones, which nothing below takes for clean.
        self.units
            .get(index)
            .map_or(u128::MAX, |unit| u128::from_be_bytes(*unit))
    }

    /// The unit after the address, which begins at unit 1.
    #[inline(always)]
    fn address(&self) -> Option<usize> {
        match self.transport {
            TransportKind::Rc | TransportKind::Uc => Some(1),
            TransportKind::Xrc => (self.unit(1) & reserved(Segment::Xrc, 0) == 0).then_some(2),
            TransportKind::Ud | TransportKind::Dci => {
                let first = match self.transport {
                    TransportKind::Ud => reserved(Segment::UdAv, 0),
                    _ => reserved(Segment::DcAv, 0),
                };
                let stray = self.unit(1) & first | self.unit(2) & reserved(Segment::UdAv, 1);
                (stray == 0 && self.unit(1) & mask(UdAv::EXT) != 0 && self.len >= 4).then_some(4)
            }
            _ => None,
        }
    }

    /// From unit `at` to the end there are data, by address or, if `inline`, in the WQE.
    #[inline(always)]
    fn list(&self, mut at: usize, inline: bool) -> bool {
        while at < self.len {
            let unit = self.unit(at);
            if unit & mask(DataSeg::INLINE) == 0 {
                if field(unit, DataSeg::BYTE_COUNT) == 0 {
                    return false;
                }
                at += 1;
                continue;
            }
            // The reserved bits of the head, and those of the count.
            let count = (unit >> 96) as usize & 0x3ff;
            if !inline || unit & reserved(Segment::Inline, 0) != 0 {
                return false;
            }
            at += (4 + count).div_ceil(UNIT);
        }
        at == self.len
    }

    #[inline(always)]
    fn remote(&self, at: usize) -> bool {
        at < self.len && self.unit(at) & reserved(Segment::Raddr, 0) == 0
    }

    /// Remote address at unit `at`, then operands of so many units, then the result.
    #[inline(always)]
    fn atomic(&self, at: usize, operation: AtomicOps, size: usize, operands: usize) -> bool {
        let caps = &self.context.caps;
        let addr = field(self.unit(at), RaddrSeg::RADDR) as u64;
        let result = self.unit(at + 1 + operands);
        self.remote(at)
            && self.len == at + operands + 2
            && caps.atomic_operations.contains(operation)
            && atomic::size_is_possible(caps, self.transport, size)
            && atomic::is_aligned(addr, size)
            && result & mask(DataSeg::INLINE) == 0
            && field(result, DataSeg::BYTE_COUNT) as usize == size
    }

    /// A UMR with KLMs in the WQE, or without translations.
    fn umr(&self) -> bool {
        let (first, second) = (self.unit(1), self.unit(2));
        let entries = field(first, UmrCtrlSeg::XLT_OCTOWORDS) as usize;
        let mkey_mask = MkeyMask::from_bits(field(first, UmrCtrlSeg::MKEY_MASK) as u64);
        let caps = &self.context.caps;
        let plain = first
            & (reserved(Segment::UmrCtrl, 0)
                | mask(UmrCtrlSeg::TRANSLATION_OFFSET_EN)
                | mask(UmrCtrlSeg::BSF_OCTOWORDS))
            == 0
            && first & mask(UmrCtrlSeg::INLINE) != 0
            && field(first, UmrCtrlSeg::CHECK_FREE) <= 2
            && second == 0
            && self.unit(3) == 0
            && entries % 4 == 0
            && self.len == 8 + entries
            && mkey_mask.unknown() == 0
            && mkey_mask.is_possible(caps);
        let (head, tail) = (self.unit(4), self.unit(7));
        let context = (head & reserved(Segment::Mkc, 0))
            | (self.unit(5) & reserved(Segment::Mkc, 1))
            | (self.unit(6) & reserved(Segment::Mkc, 2))
            | (tail & reserved(Segment::Mkc, 3));
        plain
            && context == 0
            && field(tail, Mkc::LOG_PAGE_SIZE) <= 31
            && field(tail, Mkc::TRANSLATIONS_OCTWORD_SIZE) % 4 == 0
            && (entries == 0
                || field(head, Mkc::ACCESS_MODE_1_0) & 1 == 0 && !caps.umr_indirect_mkey_disabled)
            && (8..self.len).all(|at| {
                let unit = self.unit(at);
                let op = (unit >> 64) as u32;
                unit >> 96 <= u128::from(KLM_MAX) && op != crate::layouts::ifc::MLX5_STRIDE_BLOCK_OP
            })
    }
}

/// Whether nothing is wrong with a WQE, as far as that is quickly seen.
#[inline]
pub(super) fn is_clean(units: Units<'_>, context: &Context<'_>) -> bool {
    let Some(transport) = context.transport else {
        return false;
    };
    let look = Look {
        units,
        context,
        transport,
        len: units.len(),
    };
    let max = match transport {
        TransportKind::Dci => context.caps.max_wqe_bytes_dc,
        _ => context.caps.max_wqe_bytes,
    };
    let bytes = units.bytes();
    let ctrl = look.unit(0);
    let opcode = WqeOpcode(field(ctrl, CtrlSeg::OPCODE) as u8);
    let opmod = field(ctrl, CtrlSeg::OPMOD) as u8;
    let id = ctrl & mask(CtrlSeg::GENERAL_ID) != 0;
    let plain = bytes == look.len * UNIT
        && bytes != 0
        && bytes <= usize::from(max)
        && field(ctrl, CtrlSeg::DS) as usize == look.len
        && ctrl & CTRL == 0
        && field(ctrl, CtrlSeg::FM) <= 4
        && (transport == TransportKind::Dci || ctrl & mask(CtrlSeg::DCI_STREAM_CHANNEL_ID) == 0)
        && match context.qpn {
            Some(qpn) => field(ctrl, CtrlSeg::QPN) == u128::from(qpn.get()),
            None => true,
        }
        && match context.index {
            Some(index) => field(ctrl, CtrlSeg::WQE_INDEX) == u128::from(index),
            None => true,
        }
        && match context.signed {
            Some(true) => false,
            Some(false) => ctrl & mask(CtrlSeg::SIGNATURE) == 0,
            None => true,
        };
    if !plain {
        return false;
    }
    let masked = matches!(
        opcode,
        WqeOpcode::ATOMIC_MASKED_CS | WqeOpcode::ATOMIC_MASKED_FA
    );
    if opmod != 0 && !masked {
        return false;
    }
    let at = |may: bool| if may { look.address() } else { None };
    match opcode {
        WqeOpcode::NOP => look.len == 1 && !id,
        WqeOpcode::SEND | WqeOpcode::SEND_IMM => match at(transport.sends()) {
            Some(at) => (opcode == WqeOpcode::SEND_IMM || !id) && look.list(at, true),
            None => false,
        },
        WqeOpcode::RDMA_WRITE | WqeOpcode::RDMA_WRITE_IMM => match at(transport.writes()) {
            Some(at) => {
                (opcode == WqeOpcode::RDMA_WRITE_IMM || !id)
                    && look.remote(at)
                    && look.list(at + 1, true)
            }
            None => false,
        },
        WqeOpcode::RDMA_READ => match at(transport.reads()) {
            Some(at) => !id && look.remote(at) && look.list(at + 1, false),
            None => false,
        },
        WqeOpcode::ATOMIC_CS => match at(transport.reads()) {
            Some(at) => !id && look.atomic(at, AtomicOps::CMP_SWAP, 8, 1),
            None => false,
        },
        WqeOpcode::ATOMIC_FA => match at(transport.reads()) {
            Some(at) => {
                // There is nothing to compare.
                !id && look.unit(at + 1) as u64 == 0 && look.atomic(at, AtomicOps::FETCH_ADD, 8, 1)
            }
            None => false,
        },
        WqeOpcode::ATOMIC_MASKED_CS => match (at(transport.reads()), masked_size(opmod)) {
            (Some(at), Some(size)) => {
                !id && look.atomic(at, AtomicOps::EXTENDED_CMP_SWAP, size, 4 * size / UNIT)
            }
            _ => false,
        },
        WqeOpcode::ATOMIC_MASKED_FA => match (at(transport.reads()), masked_size(opmod)) {
            (Some(at), Some(4)) => {
                !id && look.unit(at + 1) & reserved(Segment::MaskedFa4, 0) == 0
                    && look.atomic(at, AtomicOps::EXTENDED_FETCH_ADD, 4, 1)
            }
            (Some(at), Some(size)) => {
                !id && look.atomic(at, AtomicOps::EXTENDED_FETCH_ADD, size, 2 * size / UNIT)
            }
            _ => false,
        },
        WqeOpcode::UMR => look.umr(),
        _ => false,
    }
}
