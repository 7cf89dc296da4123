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
    Block,
    BLOCK,
    UNIT, //
};
use crate::layouts::{
    bits::{
        get,
        WordField, //
    },
    ifc,
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

/// The reserved bits of the words of a unit of a segment.
const fn reserved_of(segment: Segment, unit: usize) -> [u32; UNIT / 4] {
    let mut masks = [0; UNIT / 4];
    let mut index = 0;
    while index < masks.len() {
        masks[index] = reserved_in(segment, masks.len() * unit + index);
        index += 1;
    }
    masks
}

/// What is known of the queue, as in a [`Context`].
#[derive(Clone, Copy)]
pub(super) struct Queue<'a> {
    pub(super) transport: TransportKind,
    pub(super) caps: &'a Caps,
    /// Most units of a WQE.
    pub(super) max: usize,
    pub(super) qpn: Option<Number>,
    pub(super) index: Option<u16>,
    pub(super) signed: Option<bool>,
}

struct Look<'a> {
    /// The first block; what is behind a shorter WQE counts for nothing, since its length is wrong then.
    head: &'a Block,
    /// The WQE.
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
        u32::from_be_bytes(self.part(4 * index))
    }

    /// Half a unit, for fields of 64 bits.
    #[inline(always)]
    fn half(&self, index: usize) -> u64 {
        u64::from_be_bytes(self.part(8 * index))
    }

    /// The bytes from `at` on; ones if they are not there.
    #[inline(always)]
    fn part<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = if at + N <= BLOCK {
            self.head
        } else {
            self.bytes
        };
        bytes
            .get(at..)
            .and_then(|from| from.first_chunk())
            .map_or([0xff; N], |part| *part)
    }

    /// The value of a field of the segment that begins at unit `at`.
    #[inline(always)]
    fn field(&self, at: usize, field: WordField) -> u32 {
        field.get(self.word(4 * at + field.offset / 4))
    }

    /// No bit of the masks is set in the words of unit `at`.
    #[inline(always)]
    fn is_clear(&self, at: usize, masks: [u32; UNIT / 4]) -> bool {
        let [a, b, c, d] = masks;
        // Words without any field were written as part of something longer, if not alone.
        let pair = |index: usize, first: u32, second: u32| {
            if first & second == u32::MAX {
                return self.half(2 * at + index / 2) == 0;
            }
            (first == 0 || self.word(4 * at + index) & first == 0)
                && (second == 0 || self.word(4 * at + index + 1) & second == 0)
        };
        pair(0, a, b) && pair(2, c, d)
    }

    /// The unit after the address, which begins at unit 1.
    #[inline(always)]
    fn address(&self) -> Option<usize> {
        let next = match self.transport {
            TransportKind::Rc | TransportKind::Uc => 1,
            TransportKind::Xrc => 2,
            TransportKind::Ud | TransportKind::Dci => 4,
            _ => return None,
        };
        if self.len < next {
            return None;
        }
        let legal = match self.transport {
            TransportKind::Xrc => self.is_clear(1, const { reserved_of(Segment::Xrc, 0) }),
            TransportKind::Ud => {
                self.field(1, const { UdAv::EXT.in_word() }) != 0
                    && self.is_clear(1, const { reserved_of(Segment::UdAv, 0) })
                    && self.is_clear(2, const { reserved_of(Segment::UdAv, 1) })
                    && self.is_clear(3, const { reserved_of(Segment::UdAv, 2) })
            }
            TransportKind::Dci => {
                self.field(1, const { UdAv::EXT.in_word() }) != 0
                    && self.is_clear(1, const { reserved_of(Segment::DcAv, 0) })
                    && self.is_clear(2, const { reserved_of(Segment::DcAv, 1) })
                    && self.is_clear(3, const { reserved_of(Segment::DcAv, 2) })
            }
            _ => true,
        };
        legal.then_some(next)
    }

    /// From unit `at` to the end there are data, by address or, if `inline`, in the WQE.
    #[inline(always)]
    fn list(&self, mut at: usize, inline: bool) -> bool {
        while at < self.len {
            let head = match self.bytes.get(UNIT * at..).and_then(|b| b.first_chunk()) {
                Some(head) => u32::from_be_bytes(*head),
                None => return false,
            };
            const { assert!(DataSeg::INLINE.offset == 0) }
            // The bit of inline data is the sign.
            if head as i32 > 0 {
                at += 1;
                continue;
            }
            let count = const { InlineSeg::BYTE_COUNT.in_word() }.get(head);
            if !inline || head == 0 || head & const { reserved_in(Segment::Inline, 0) } != 0 {
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
        /// Of the first word, what has one value here.
        const FIXED: u32 = reserved_in(Segment::UmrCtrl, 0)
            | UmrCtrlSeg::INLINE.in_word().mask
            | UmrCtrlSeg::TRANSLATION_OFFSET_EN.in_word().mask;
        const { assert!(UmrCtrlSeg::MKEY_MASK.offset == 64 && UmrCtrlSeg::MKEY_MASK.width == 64) }
        let mkey_mask = MkeyMask::from_bits(self.half(3));
        let caps = self.caps;
        let plain = self.len == 8 + entries
            && entries % 4 == 0
            && self.is_clear(2, const { reserved_of(Segment::UmrCtrl, 1) })
            && self.is_clear(3, const { reserved_of(Segment::UmrCtrl, 2) })
            && self.word(4) & FIXED == const { UmrCtrlSeg::INLINE.in_word() }.mask
            && self.field(1, const { UmrCtrlSeg::CHECK_FREE.in_word() }) <= 2
            && self.field(1, const { UmrCtrlSeg::BSF_OCTOWORDS.in_word() }) == 0
            && self.field(1, const { UmrCtrlSeg::XLT_OFFSET_47_16.in_word() }) == 0
            && mkey_mask.unknown() == 0
            && mkey_mask.is_possible(caps);
        if !plain {
            return false;
        }
        // Context and entries are whole blocks, as the length says.
        let Some((context, entries)) = self.bytes.get(BLOCK..).and_then(|b| b.split_first_chunk())
        else {
            return false;
        };
        let context = Look {
            head: context,
            ..*self
        };
        context.is_clear(0, const { reserved_of(Segment::Mkc, 0) })
            && context.is_clear(1, const { reserved_of(Segment::Mkc, 1) })
            && context.is_clear(2, const { reserved_of(Segment::Mkc, 2) })
            && context.is_clear(3, const { reserved_of(Segment::Mkc, 3) })
            && context.field(0, const { Mkc::LOG_PAGE_SIZE.in_word() }) <= 31
            && context.field(0, const { Mkc::TRANSLATIONS_OCTWORD_SIZE.in_word() }) % 4 == 0
            && (entries.is_empty()
                || context.field(0, const { Mkc::ACCESS_MODE_1_0.in_word() }) & 1 == 0
                    && !caps.umr_indirect_mkey_disabled)
            && entries.chunks_exact(BLOCK).all(is_clean_list)
    }
}

/// Four KLMs.
#[inline(always)]
fn is_clean_list(block: &[u8]) -> bool {
    let Some(block) = block.first_chunk::<BLOCK>() else {
        return false;
    };
    let word = |index: usize| get(block, 32 * index, 32).unwrap_or(u64::MAX) as u32;
    // The longest of all is left to the validator. A key of that number would make the list look like a
    // stride block.
    let is_clean = |entry: usize| {
        word(4 * entry) < KLM_MAX && word(4 * entry + 1) != ifc::MLX5_STRIDE_BLOCK_OP
    };
    is_clean(0) && is_clean(1) && is_clean(2) && is_clean(3)
}

/// Whether nothing is wrong with a WQE that does not wrap, as far as that is quickly seen.
pub(super) fn is_clean(bytes: &[u8], context: &Context<'_>) -> bool {
    let Some(transport) = context.transport else {
        return false;
    };
    let caps = &context.caps;
    let queue = Queue {
        transport,
        caps,
        max: caps.max_units(transport),
        qpn: context.qpn,
        index: context.index,
        signed: context.signed,
    };
    let mut copy = [0; BLOCK];
    let head = match bytes.first_chunk() {
        Some(head) => head,
        None => {
            for (to, from) in copy.iter_mut().zip(bytes) {
                *to = *from;
            }
            &copy
        }
    };
    let ctrl = words_of(head);
    let opcode = const { CtrlSeg::OPCODE.in_word() }.get(ctrl[0]) as u8;
    let units = bytes.len() / UNIT;
    bytes.len() % UNIT == 0 && is_clean_of(WqeOpcode(opcode), ctrl, head, bytes, units, &queue)
}

/// The first unit of a block.
#[inline(always)]
pub(super) fn words_of(head: &Block) -> [u32; 4] {
    core::array::from_fn(|index| get(head, 32 * index, 32).unwrap_or(u64::MAX) as u32)
}

/// The same for a WQE of `units` units that should have this opcode and has this control segment; where
/// they are known, others are not compiled. `head` is its first block, `bytes` all of it.
#[inline(always)]
pub(super) fn is_clean_of(
    opcode: WqeOpcode,
    ctrl: [u32; 4],
    head: &Block,
    bytes: &[u8],
    units: usize,
    queue: &Queue<'_>,
) -> bool {
    let Queue {
        transport, caps, ..
    } = *queue;
    let look = Look {
        head,
        bytes,
        caps,
        transport,
        len: units,
    };
    let get = |field: WordField| field.get(ctrl[field.offset / 4]);
    let opmod = get(const { CtrlSeg::OPMOD.in_word() }) as u8;
    let id = get(const { CtrlSeg::GENERAL_ID.in_word() }) != 0;
    let flags = ctrl[2];
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
        && look.len <= queue.max
        && queue.signed != Some(true)
        && get(const { CtrlSeg::OPCODE.in_word() }) == u32::from(opcode.0)
        && ctrl[1] & const { reserved_in(Segment::Ctrl, 1) } == 0
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
                !id && look.is_clear(at + 1, const { reserved_of(Segment::MaskedFa4, 0) })
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
