// SPDX-License-Identifier: GPL-2.0

//! Cuts a WQE into its segments.
//!
//! What segments there are follows from the opcode, the transport, and flags on the way
//! (hardware.md 5.3). Any bytes can be cut: a segment that does not fit what is left is the last one,
//! and marked as cut short.

use super::{
    segment::Segment,
    transport::TransportKind,
    units::Units,
    BLOCK,
    UNIT, //
};
use crate::layouts::{
    ifc,
    wqe::{
        BsfSeg,
        CtrlSeg,
        DcAv,
        DcBaseAv,
        EthSeg,
        InlineSeg,
        Mkc,
        RaddrSeg,
        StrideBlockCtrl,
        TlsStaticParams,
        UdAv,
        UdBaseAv,
        UmrCtrlSeg,
        WqeOpcode, //
    }, //
};

/// A segment of a WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it is.
    pub segment: Segment,
    /// Byte offset in the WQE.
    pub offset: usize,
    /// Bytes, without padding.
    pub len: usize,
    /// Bytes that it should have had, if there are fewer.
    pub wanted: Option<usize>,
}

impl Part {
    /// Its bytes in `units`, up to `N`; what it does not have is 0.
    #[inline]
    pub fn bytes<const N: usize>(&self, units: &Units<'_>) -> [u8; N] {
        let mut bytes = units.copy(self.offset);
        if self.len < N {
            if let Some(beyond) = bytes.get_mut(self.len..) {
                beyond.fill(0);
            }
        }
        bytes
    }
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Ctrl,
    Address,
    Pad,
    Eth,
    /// So many bytes of an inline header that began in the Ethernet segment.
    Header(usize),
    Raddr,
    Atomic,
    UmrCtrl,
    Mkc,
    /// So many units of translation entries.
    Entries(usize),
    /// So many entries of a stride block, within so many units.
    Strides(usize, usize),
    /// So many units of zeros.
    Padding(usize),
    Bsf,
    /// A segment of so many bytes, the last one.
    Last(Segment, usize),
    /// So many entries of a list.
    List(usize),
    /// So many bytes of inline data, whose head is in the same unit.
    Inline(usize),
    /// Nothing.
    End,
}

/// The segments of a WQE, in order.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    units: Units<'a>,
    transport: TransportKind,
    opcode: WqeOpcode,
    opmod: u8,
    /// The next unit.
    at: usize,
    /// The unit after the last.
    end: usize,
    stage: Stage,
    /// Of the UMR control segment.
    entries: usize,
    bsfs: usize,
    by_pointer: bool,
}

/// A list of any length.
const ANY: usize = usize::MAX;

impl<'a> Parts<'a> {
    /// The segments of `units`, the WQE of a queue of this transport.
    #[inline]
    pub fn new(units: Units<'a>, transport: TransportKind) -> Self {
        let ctrl = CtrlSeg::view(units.copy::<{ CtrlSeg::LEN }>(0));
        Self {
            units,
            transport,
            opcode: WqeOpcode(ctrl.opcode()),
            opmod: ctrl.opmod(),
            at: 0,
            end: units.len(),
            stage: Stage::Ctrl,
            entries: 0,
            bsfs: 0,
            by_pointer: false,
        }
    }

    /// The first stage after the control segment.
    fn first(&self) -> Stage {
        match self.opcode {
            WqeOpcode::SEND | WqeOpcode::SEND_IMM | WqeOpcode::SEND_INVAL | WqeOpcode::LSO => {
                match self.transport {
                    TransportKind::Raw => Stage::Eth,
                    kind if kind.has_av() || kind == TransportKind::Xrc => Stage::Address,
                    _ => Stage::List(ANY),
                }
            }
            WqeOpcode::RDMA_WRITE
            | WqeOpcode::RDMA_WRITE_IMM
            | WqeOpcode::RDMA_READ
            | WqeOpcode::ATOMIC_CS
            | WqeOpcode::ATOMIC_FA
            | WqeOpcode::ATOMIC_MASKED_CS
            | WqeOpcode::ATOMIC_MASKED_FA => match self.transport {
                TransportKind::Dci | TransportKind::Xrc => Stage::Address,
                _ => Stage::Raddr,
            },
            WqeOpcode::UMR => Stage::UmrCtrl,
            WqeOpcode::SET_PSV => match self.opmod {
                0 => Stage::Last(Segment::SetPsv, 16),
                1 | 2 => Stage::Last(Segment::TlsProgress, 16),
                3 | 4 => Stage::Last(Segment::NvmeTcpProgress, 16),
                _ => Stage::End,
            },
            WqeOpcode::GET_PSV | WqeOpcode::RGET_PSV => Stage::Last(Segment::GetPsv, 48),
            WqeOpcode::CHECK_PSV | WqeOpcode::RCHECK_PSV => Stage::Last(Segment::CheckPsv, 48),
            WqeOpcode::DUMP => Stage::List(ANY),
            WqeOpcode::WAIT if self.opmod == 0 => Stage::Last(Segment::Wait, 16),
            WqeOpcode::SEND_EN | WqeOpcode::RECV_EN => Stage::Last(Segment::Wait, 16),
            _ => Stage::End,
        }
    }

    /// The stage after the address.
    fn addressed(&self) -> Stage {
        match self.opcode {
            WqeOpcode::SEND | WqeOpcode::SEND_IMM | WqeOpcode::SEND_INVAL | WqeOpcode::LSO => {
                match self.transport {
                    TransportKind::UdOffload => Stage::Pad,
                    _ => Stage::List(ANY),
                }
            }
            _ => Stage::Raddr,
        }
    }

    /// The atomic segment: which, and its bytes.
    fn atomic(&self) -> (Segment, usize) {
        let size = masked_size(self.opmod);
        match (self.opcode, size) {
            (WqeOpcode::ATOMIC_MASKED_CS, Some(4)) => (Segment::MaskedCs4, 16),
            (WqeOpcode::ATOMIC_MASKED_CS, Some(8)) => (Segment::MaskedCs8, 32),
            (WqeOpcode::ATOMIC_MASKED_CS, Some(size)) => (Segment::MaskedCsWide, 4 * size),
            (WqeOpcode::ATOMIC_MASKED_FA, Some(4)) => (Segment::MaskedFa4, 16),
            (WqeOpcode::ATOMIC_MASKED_FA, Some(8)) => (Segment::MaskedFa8, 16),
            (WqeOpcode::ATOMIC_MASKED_FA, Some(size)) => (Segment::MaskedFaWide, 2 * size),
            _ => (Segment::Atomic, 16),
        }
    }

    /// The next `len` bytes, whole units but for padding, are a `segment`.
    #[inline]
    fn take(&mut self, segment: Segment, len: usize, next: Stage) -> Option<Part> {
        self.take_from(self.at * UNIT, segment, len, next)
    }

    /// The same from byte `offset` on, which is in the next unit.
    #[inline]
    fn take_from(
        &mut self,
        offset: usize,
        segment: Segment,
        len: usize,
        next: Stage,
    ) -> Option<Part> {
        let left = (self.end * UNIT).saturating_sub(offset);
        let cut = len > left;
        self.at = offset.saturating_add(len).div_ceil(UNIT).min(self.end);
        self.stage = if cut { Stage::End } else { next };
        Some(Part {
            segment,
            offset,
            len: len.min(left),
            wanted: cut.then_some(len),
        })
    }

    fn address(&mut self) -> Option<Part> {
        let next = self.addressed();
        if self.transport == TransportKind::Xrc {
            return self.take(Segment::Xrc, UNIT, next);
        }
        // Both forms of the vector have the flag at the same place.
        let av = UdAv::view(self.units.copy::<{ UdAv::LEN }>(self.at * UNIT));
        let (segment, len) = match (self.transport, av.ext()) {
            (TransportKind::Dci, true) => (Segment::DcAv, DcAv::LEN),
            (TransportKind::Dci, false) => (Segment::DcBaseAv, DcBaseAv::LEN),
            (_, true) => (Segment::UdAv, UdAv::LEN),
            (_, false) => (Segment::UdBaseAv, UdBaseAv::LEN),
        };
        self.take(segment, len, next)
    }

    fn eth(&mut self) -> Option<Part> {
        let eth = EthSeg::view(self.units.copy::<{ EthSeg::LEN }>(self.at * UNIT));
        let next = match eth.inline_size() {
            size if size > 2 && !eth.insert_vlan() => Stage::Header(usize::from(size) - 2),
            _ => Stage::List(ANY),
        };
        self.take(Segment::Eth, EthSeg::LEN, next)
    }

    fn umr_ctrl(&mut self) -> Option<Part> {
        let ctrl = UmrCtrlSeg::view(self.units.copy::<{ UmrCtrlSeg::LEN }>(self.at * UNIT));
        self.by_pointer = !ctrl.inline();
        self.entries = ctrl.xlt_octowords().into();
        if !ctrl.translation_offset_en() {
            self.bsfs = usize::from(ctrl.bsf_octowords()).div_ceil(4);
        }
        self.take(Segment::UmrCtrl, UmrCtrlSeg::LEN, Stage::Mkc)
    }

    fn mkc(&mut self) -> Option<Part> {
        let next = match self.opmod {
            1 | 2 => Stage::Last(Segment::TlsStatic, TlsStaticParams::LEN),
            _ if self.by_pointer => Stage::List(1),
            _ => Stage::Entries(self.entries),
        };
        self.take(Segment::Mkc, Mkc::LEN, next)
    }

    /// The next of `left` units of translation entries.
    fn entry(&mut self, left: usize) -> Option<Part> {
        if left == 0 {
            self.stage = Stage::Bsf;
            return self.next();
        }
        if left == self.entries {
            let ctrl =
                StrideBlockCtrl::view(self.units.copy::<{ StrideBlockCtrl::LEN }>(self.at * UNIT));
            let entries = usize::from(ctrl.num_entries());
            if ctrl.op() == ifc::MLX5_STRIDE_BLOCK_OP && entries >= 1 && entries < left {
                return self.take(Segment::StrideCtrl, UNIT, Stage::Strides(entries, left - 1));
            }
        }
        if left < BLOCK / UNIT && self.zeros(left) {
            self.stage = Stage::Padding(left);
            return self.next();
        }
        // The context is the block before the first entry.
        let mkc = Mkc::view(self.units.copy::<{ Mkc::LEN }>(BLOCK));
        let segment = match mkc.access_mode_1_0() {
            1 => Segment::Mtt,
            3 => Segment::Ksm,
            _ => Segment::Klm,
        };
        self.take(segment, UNIT, Stage::Entries(left - 1))
    }

    /// The next `count` units are there and zeros.
    fn zeros(&self, count: usize) -> bool {
        self.end - self.at >= count
            && self
                .units
                .from(self.at)
                .take(count)
                .all(|unit| u128::from_ne_bytes(*unit) == 0)
    }

    fn bsf(&mut self) -> Option<Part> {
        if self.bsfs == 0 {
            self.stage = Stage::End;
            return self.next();
        }
        self.bsfs -= 1;
        let segment = match self.units.byte(self.at * UNIT) {
            Some(byte) if byte & 0x0f == 1 => Segment::CryptoBsf,
            _ => Segment::Bsf,
        };
        self.take(segment, BsfSeg::LEN, Stage::Bsf)
    }

    /// The next of `left` entries of a list.
    #[inline]
    fn list(&mut self, left: usize) -> Option<Part> {
        let next = match left {
            0 => {
                self.stage = Stage::End;
                return self.next();
            }
            ANY if self.at == self.end => return None,
            ANY => Stage::List(ANY),
            left => Stage::List(left - 1),
        };
        match self.units.get(self.at) {
            Some([first, ..]) if first & 0x80 != 0 && left == ANY => {
                let head = InlineSeg::view(self.units.copy::<{ InlineSeg::LEN }>(self.at * UNIT));
                self.stage = Stage::Inline(head.byte_count().into());
                Some(Part {
                    segment: Segment::Inline,
                    offset: self.at * UNIT,
                    len: InlineSeg::LEN,
                    wanted: None,
                })
            }
            _ => self.take(Segment::Data, UNIT, next),
        }
    }
}

/// Bytes of the operands of a masked atomic with this operation modifier (hardware.md 5.7).
pub(super) const fn masked_size(opmod: u8) -> Option<usize> {
    match opmod {
        0x8..=0xc => Some(4 << (opmod - 0x8)),
        _ => None,
    }
}

impl Iterator for Parts<'_> {
    type Item = Part;

    #[inline]
    fn next(&mut self) -> Option<Part> {
        match self.stage {
            Stage::Ctrl => {
                let next = self.first();
                self.take(Segment::Ctrl, CtrlSeg::LEN, next)
            }
            Stage::Address => self.address(),
            Stage::Pad => self.take(Segment::Pad, UNIT, Stage::Eth),
            Stage::Eth => self.eth(),
            Stage::Header(len) => self.take(Segment::Bytes, len, Stage::List(ANY)),
            Stage::Raddr => {
                let next = match self.opcode {
                    WqeOpcode::RDMA_WRITE | WqeOpcode::RDMA_WRITE_IMM | WqeOpcode::RDMA_READ => {
                        Stage::List(ANY)
                    }
                    _ => Stage::Atomic,
                };
                self.take(Segment::Raddr, RaddrSeg::LEN, next)
            }
            Stage::Atomic => {
                let (segment, len) = self.atomic();
                self.take(segment, len, Stage::List(ANY))
            }
            Stage::UmrCtrl => self.umr_ctrl(),
            Stage::Mkc => self.mkc(),
            Stage::Entries(left) => self.entry(left),
            Stage::Strides(0, 0) => {
                self.stage = Stage::Bsf;
                self.next()
            }
            Stage::Strides(0, left) => self.take(Segment::Pad, left * UNIT, Stage::Bsf),
            Stage::Strides(entries, left) => self.take(
                Segment::StrideEntry,
                UNIT,
                Stage::Strides(entries - 1, left - 1),
            ),
            Stage::Padding(units) => self.take(Segment::Pad, units * UNIT, Stage::Bsf),
            Stage::Bsf => self.bsf(),
            Stage::Last(segment, len) => self.take(segment, len, Stage::End),
            Stage::List(left) => self.list(left),
            Stage::Inline(len) => {
                let offset = self.at * UNIT + InlineSeg::LEN;
                if len == 0 {
                    // The head alone still takes its unit.
                    self.at += 1;
                    self.stage = Stage::List(ANY);
                    return self.next();
                }
                self.take_from(offset, Segment::Bytes, len, Stage::List(ANY))
            }
            Stage::End if self.at == self.end => None,
            Stage::End => {
                let left = (self.end - self.at) * UNIT;
                self.take(Segment::Unknown, left, Stage::End)
            }
        }
    }
}

impl TransportKind {
    /// The transport of a WQE of which nothing else is known, as well as its bytes tell.
    ///
    /// An address vector is told by its presence flag and the reserved bits around it. Datagrams and
    /// DC initiators look alike but for the operation and the high half of the key.
    pub fn guess(units: &Units<'_>) -> Self {
        let ctrl = CtrlSeg::view(units.copy::<{ CtrlSeg::LEN }>(0));
        let opcode = WqeOpcode(ctrl.opcode());
        let datagram = UdAv::view(units.copy::<{ UdAv::LEN }>(UNIT));
        let looks_like_av =
            units.len() >= 4 && datagram.ext() && Segment::DcAv.is_clean(units, UNIT);
        let remote = RaddrSeg::view(units.copy::<{ RaddrSeg::LEN }>(UNIT));
        match opcode {
            WqeOpcode::DUMP => Self::Raw,
            WqeOpcode::LSO if looks_like_av => Self::UdOffload,
            WqeOpcode::LSO => Self::Raw,
            WqeOpcode::UMR if matches!(ctrl.opmod(), 1 | 2) => Self::Raw,
            WqeOpcode::SET_PSV if ctrl.opmod() != 0 => Self::Raw,
            WqeOpcode::SEND | WqeOpcode::SEND_IMM | WqeOpcode::SEND_INVAL if looks_like_av => {
                // The word behind a qkey is reserved.
                if Segment::UdAv.is_clean(units, UNIT) && opcode != WqeOpcode::SEND_INVAL {
                    Self::Ud
                } else {
                    Self::Dci
                }
            }
            WqeOpcode::RDMA_WRITE
            | WqeOpcode::RDMA_WRITE_IMM
            | WqeOpcode::RDMA_READ
            | WqeOpcode::ATOMIC_CS
            | WqeOpcode::ATOMIC_FA
            | WqeOpcode::ATOMIC_MASKED_CS
            | WqeOpcode::ATOMIC_MASKED_FA => {
                if looks_like_av {
                    Self::Dci
                } else if remote.raddr() >> 32 != 0
                    && Segment::Xrc.is_clean(units, UNIT)
                    && units.len() >= 3
                {
                    Self::Xrc
                } else {
                    Self::Rc
                }
            }
            _ => Self::Rc,
        }
    }
}
