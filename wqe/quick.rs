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
    caps::Caps,
    mkey::MkeyMask,
    number::Number,
    parse::masked_size,
    segment::Segment,
    transport::TransportKind,
    validate::Context,
    xlt::KLM_MAX,
    UNIT, //
};
use crate::layouts::{
    bits::WordField,
    wqe::{
        CtrlSeg,
        DataSeg,
        InlineSeg,
        Mkc,
        RaddrSeg,
        UdAv,
        UmrCtrlSeg,
        WqeOpcode, //
    }, //
};

/// The reserved bits of word `index` of a segment.
const fn reserved_in(segment: Segment, index: usize) -> u32 {
    (segment.reserved()[index / 4] >> (96 - 32 * (index % 4))) as u32
}

/// The reserved bits of the words of a segment.
const fn all_reserved<const WORDS: usize>(segment: Segment) -> [u32; WORDS] {
    let mut masks = [0; WORDS];
    let mut index = 0;
    while index < WORDS {
        masks[index] = reserved_in(segment, index);
        index += 1;
    }
    masks
}

/// What is known of the queue, as in a [`Context`].
#[derive(Clone, Copy)]
pub(super) struct Queue<'a> {
    pub(super) transport: TransportKind,
    pub(super) caps: &'a Caps,
    pub(super) qpn: Option<Number>,
    pub(super) index: Option<u16>,
    pub(super) signed: Option<bool>,
}

struct Look<'a> {
    bytes: &'a [u8],
    caps: &'a Caps,
    transport: TransportKind,
    len: usize,
}

impl Look<'_> {
    /// A word of 32 bits. What was written last is read as it was written, word by word: a processor
    /// waits for memory where it would have to put two writes together.
    #[inline(always)]
    fn word(&self, index: usize) -> u32 {
        self.bytes
            .get(4 * index..)
            .and_then(|from| from.first_chunk())
            .map_or(u32::MAX, |word| u32::from_be_bytes(*word))
    }

    /// The value of a field of the segment that begins at unit `at`.
    #[inline(always)]
    fn field(&self, at: usize, field: WordField) -> u32 {
        field.get(self.word(4 * at + field.offset / 4))
    }

    /// Half a unit, for fields of 64 bits.
    #[inline(always)]
    fn half(&self, index: usize) -> u64 {
        self.bytes
            .get(8 * index..)
            .and_then(|from| from.first_chunk())
            .map_or(u64::MAX, |half| u64::from_be_bytes(*half))
    }

    /// A unit, where all of it was copied.
    #[inline(always)]
    fn unit(&self, index: usize) -> u128 {
        self.bytes
            .get(UNIT * index..)
            .and_then(|from| from.first_chunk())
            .map_or(u128::MAX, |unit| u128::from_be_bytes(*unit))
    }

    /// No bit of the masks is set in the words from unit `at` on.
    #[inline(always)]
    fn is_clear<const WORDS: usize>(&self, at: usize, masks: [u32; WORDS]) -> bool {
        let mut strays = 0;
        for (index, mask) in masks.into_iter().enumerate() {
            // What is not there is all ones.
            if mask != 0 {
                strays |= self.word(4 * at + index) & mask;
            }
        }
        strays == 0
    }

    /// The unit after the address, which begins at unit 1.
    #[inline(always)]
    fn address(&self) -> Option<usize> {
        let ext = self.field(1, const { UdAv::EXT.in_word() }) != 0;
        let (legal, next) = match self.transport {
            TransportKind::Rc | TransportKind::Uc => (true, 1),
            TransportKind::Xrc => {
                let masks = const { all_reserved::<4>(Segment::Xrc) };
                (self.is_clear(1, masks), 2)
            }
            TransportKind::Ud => {
                let masks = const { all_reserved::<12>(Segment::UdAv) };
                (ext && self.is_clear(1, masks), 4)
            }
            TransportKind::Dci => {
                let masks = const { all_reserved::<12>(Segment::DcAv) };
                (ext && self.is_clear(1, masks), 4)
            }
            _ => return None,
        };
        (legal && self.len >= next).then_some(next)
    }

    /// From unit `at` to the end there are data, by address or, if `inline`, in the WQE.
    #[inline(always)]
    fn list(&self, mut at: usize, inline: bool) -> bool {
        while at < self.len {
            let head = self.word(4 * at);
            if const { DataSeg::INLINE.in_word() }.get(head) == 0 {
                if head == 0 {
                    return false;
                }
                at += 1;
                continue;
            }
            let count = const { InlineSeg::BYTE_COUNT.in_word() }.get(head);
            if !inline || head & const { reserved_in(Segment::Inline, 0) } != 0 {
                return false;
            }
            at += (InlineSeg::LEN + count as usize).div_ceil(UNIT);
        }
        at == self.len
    }

    #[inline(always)]
    fn remote(&self, at: usize) -> bool {
        const {
            // The last word, and nothing else.
            assert!(Segment::Raddr.reserved()[0] == u32::MAX as u128);
        }
        at < self.len && self.word(4 * at + 3) == 0
    }

    /// Remote address at unit `at`, then operands of so many units, then the result.
    #[inline(always)]
    fn atomic(&self, at: usize, operation: AtomicOps, size: usize, operands: usize) -> bool {
        let caps = self.caps;
        let addr = self.half(2 * at);
        const { assert!(RaddrSeg::RADDR.offset == 0 && RaddrSeg::RADDR.width == 64) }
        // The bit of inline data is 0, and the count is this.
        let result = self.word(4 * (at + 1 + operands));
        self.remote(at)
            && self.len == at + operands + 2
            && caps.atomic_operations.contains(operation)
            && atomic::size_is_possible(caps, self.transport, size)
            && atomic::is_aligned(addr, size)
            && result as usize == size
    }

    /// A UMR with KLMs in the WQE, or without translations.
    #[inline(always)]
    fn umr(&self) -> bool {
        let entries = self.field(1, const { UmrCtrlSeg::XLT_OCTOWORDS.in_word() }) as usize;
        const { assert!(UmrCtrlSeg::MKEY_MASK.offset == 64 && UmrCtrlSeg::MKEY_MASK.width == 64) }
        let mkey_mask = MkeyMask::from_bits(self.half(3));
        let caps = self.caps;
        let plain = self.len == 8 + entries
            && entries % 4 == 0
            && self.unit(1) & const { Segment::UmrCtrl.reserved()[0] }
                | self.unit(2) & const { Segment::UmrCtrl.reserved()[1] }
                | self.unit(3) & const { Segment::UmrCtrl.reserved()[2] }
                == 0
            && self.field(1, const { UmrCtrlSeg::INLINE.in_word() }) == 1
            && self.field(1, const { UmrCtrlSeg::CHECK_FREE.in_word() }) <= 2
            && self.field(1, const { UmrCtrlSeg::TRANSLATION_OFFSET_EN.in_word() }) == 0
            && self.field(1, const { UmrCtrlSeg::BSF_OCTOWORDS.in_word() }) == 0
            && self.field(1, const { UmrCtrlSeg::XLT_OFFSET_47_16.in_word() }) == 0
            && mkey_mask.unknown() == 0
            && mkey_mask.is_possible(caps);
        plain
            && self.unit(4) & const { Segment::Mkc.reserved()[0] }
                | self.unit(5) & const { Segment::Mkc.reserved()[1] }
                | self.unit(6) & const { Segment::Mkc.reserved()[2] }
                | self.unit(7) & const { Segment::Mkc.reserved()[3] }
                == 0
            && self.field(4, const { Mkc::LOG_PAGE_SIZE.in_word() }) <= 31
            && self.field(4, const { Mkc::TRANSLATIONS_OCTWORD_SIZE.in_word() }) % 4 == 0
            && (entries == 0
                || self.field(4, const { Mkc::ACCESS_MODE_1_0.in_word() }) & 1 == 0
                    && !caps.umr_indirect_mkey_disabled)
            && self.bytes.chunks_exact(UNIT).skip(8).all(|entry| {
                let [a, b, c, d, e, f, g, h, ..] = *entry else {
                    return false;
                };
                let op = u32::from_be_bytes([e, f, g, h]);
                // A key of this number would make the list look like a stride block.
                u32::from_be_bytes([a, b, c, d]) <= KLM_MAX
                    && op != crate::layouts::ifc::MLX5_STRIDE_BLOCK_OP
            })
    }
}

/// Whether nothing is wrong with a WQE that does not wrap, as far as that is quickly seen.
pub(super) fn is_clean(bytes: &[u8], context: &Context<'_>) -> bool {
    let Some(transport) = context.transport else {
        return false;
    };
    let queue = Queue {
        transport,
        caps: &context.caps,
        qpn: context.qpn,
        index: context.index,
        signed: context.signed,
    };
    match CtrlSeg::of(bytes) {
        Some(ctrl) => is_clean_of(WqeOpcode(ctrl.opcode()), bytes, &queue),
        None => false,
    }
}

/// The same for a WQE that should have this opcode; where it is known, the other ones are not compiled.
#[inline(always)]
pub(super) fn is_clean_of(opcode: WqeOpcode, bytes: &[u8], queue: &Queue<'_>) -> bool {
    let Queue {
        transport, caps, ..
    } = *queue;
    let look = Look {
        bytes,
        caps,
        transport,
        len: bytes.len() / UNIT,
    };
    let max = match transport {
        TransportKind::Dci => caps.max_wqe_bytes_dc,
        _ => caps.max_wqe_bytes,
    };
    let get = |field| look.field(0, field);
    let opmod = get(const { CtrlSeg::OPMOD.in_word() }) as u8;
    let id = get(const { CtrlSeg::GENERAL_ID.in_word() }) != 0;
    let flags = look.word(2);
    const {
        // The one word with reserved bits beside the length is that of the flags.
        assert!(reserved_in(Segment::Ctrl, 0) == 0 && reserved_in(Segment::Ctrl, 3) == 0);
    }
    let unused = const { reserved_in(Segment::Ctrl, 2) }
        | match transport {
            TransportKind::Dci => 0,
            _ => const { CtrlSeg::DCI_STREAM_CHANNEL_ID.in_word().mask },
        }
        | match queue.signed {
            Some(false) => const { CtrlSeg::SIGNATURE.in_word().mask },
            _ => 0,
        };
    let plain = look.len != 0
        && bytes.len() == look.len * UNIT
        && bytes.len() <= usize::from(max)
        && queue.signed != Some(true)
        && get(const { CtrlSeg::OPCODE.in_word() }) == u32::from(opcode.0)
        && look.word(1) & const { reserved_in(Segment::Ctrl, 1) } == 0
        && get(const { CtrlSeg::DS.in_word() }) as usize == look.len
        && flags & unused == 0
        && const { CtrlSeg::FM.in_word() }.get(flags) <= 4
        && match queue.qpn {
            Some(qpn) => get(const { CtrlSeg::QPN.in_word() }) == qpn.get(),
            None => true,
        }
        && match queue.index {
            Some(index) => get(const { CtrlSeg::WQE_INDEX.in_word() }) == u32::from(index),
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
                !id && look.half(2 * at + 3) == 0 && look.atomic(at, AtomicOps::FETCH_ADD, 8, 1)
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
                !id && look.is_clear(at + 1, const { all_reserved::<4>(Segment::MaskedFa4) })
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
