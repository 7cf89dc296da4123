// SPDX-License-Identifier: GPL-2.0

//! The validator: everything that is wrong with a WQE, from its bytes.
//!
//! It takes any bytes. Each violation goes to the caller one by one, in the order of the WQE.

use super::{
    atomic,
    caps::Caps,
    ctrl,
    mkey::MkeyMask,
    number::Number,
    parse::{
        masked_size,
        Part,
        Parts, //
    },
    psv::Psv,
    quick,
    segment::Segment,
    transport::TransportKind,
    units::Units,
    violation::{
        Expected,
        Violation, //
    },
    xlt::{
        KLM_MAX,
        POINTER_ALIGNMENT, //
    },
    UNIT, //
};
use crate::layouts::{
    wqe::{
        AtomicSeg,
        BsfInl,
        BsfSeg,
        CtrlSeg,
        DataSeg,
        EthSeg,
        InlineSeg,
        KlmSeg,
        Mkc,
        RaddrSeg,
        SetPsvSeg,
        StrideBlockCtrl,
        TlsStaticParams,
        UdAv,
        UmrCtrlSeg,
        WqeOpcode, //
    },
    Field, //
};

/// What is known of the queue that a WQE belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Its transport; if it is not known, the bytes tell as well as they can.
    pub transport: Option<TransportKind>,
    /// Capabilities of its device.
    pub caps: Caps,
    /// Its number.
    pub qpn: Option<Number>,
    /// Its producer counter at the WQE.
    pub index: Option<u16>,
    /// Its WQEs are signed.
    pub signed: Option<bool>,
    /// Its protection domain.
    pub pd: Option<Number>,
    /// PSVs and their domains, as far as they are known.
    pub psvs: &'a [Psv],
}

impl Context<'_> {
    /// Nothing is known: for WQEs from elsewhere.
    pub const UNKNOWN: Self = Self {
        transport: None,
        caps: Caps::ALL,
        qpn: None,
        index: None,
        signed: None,
        pd: None,
        psvs: &[],
    };

    /// The transport of this WQE.
    pub fn transport_of(&self, units: &Units<'_>) -> TransportKind {
        self.transport
            .unwrap_or_else(|| TransportKind::guess(units))
    }
}

/// Reports everything that is wrong with the WQE in `units`.
pub fn validate(units: Units<'_>, context: &Context<'_>, report: &mut dyn FnMut(Violation)) {
    let transport = context.transport_of(&units);
    Checker {
        units,
        context,
        transport,
        ctrl: CtrlSeg::view(units.copy(0)),
        report,
        trailer: false,
        patch: UmrCtrlSeg::new(),
        data: 0,
        inlines: 0,
    }
    .run();
}

/// Reports what is wrong with a segment of its own, whatever WQE it is for: reserved bits, and values
/// that have no meaning.
pub fn validate_segment(
    segment: Segment,
    bytes: &[u8],
    context: &Context<'_>,
    report: &mut dyn FnMut(Violation),
) {
    let part = Part {
        segment,
        offset: 0,
        len: segment.size().min(bytes.len()),
        wanted: (bytes.len() < segment.size()).then_some(segment.size()),
    };
    let mut checker = Checker {
        units: Units::of(bytes),
        context,
        transport: context.transport.unwrap_or(TransportKind::Rc),
        ctrl: CtrlSeg::new(),
        report,
        trailer: false,
        patch: UmrCtrlSeg::new(),
        data: 0,
        inlines: 0,
    };
    checker.strays(&part);
    match part.wanted {
        Some(wanted) => checker.cut(&part, wanted),
        // A control segment is checked with its WQE.
        None if segment == Segment::Ctrl => {}
        None => checker.fields(&part),
    }
}

/// The first thing that is wrong with the WQE in `units`.
///
/// Quicker than [`validate`] where nothing is.
pub fn first_violation(units: Units<'_>, context: &Context<'_>) -> Option<Violation> {
    match units.contiguous() {
        Some(bytes) if quick::is_clean(bytes, context) => None,
        _ => first_of_all(units, context),
    }
}

#[cold]
pub(super) fn first_of_all(units: Units<'_>, context: &Context<'_>) -> Option<Violation> {
    let mut first = None;
    validate(units, context, &mut |violation| {
        first.get_or_insert(violation);
    });
    first
}

struct Checker<'a> {
    units: Units<'a>,
    context: &'a Context<'a>,
    transport: TransportKind,
    ctrl: CtrlSeg,
    report: &'a mut dyn FnMut(Violation),
    /// The Ethernet segment asks for a trailer, whose data are still to come.
    trailer: bool,
    /// UMR control segment.
    patch: UmrCtrlSeg,
    /// Data segments so far.
    data: usize,
    /// Inline segments so far.
    inlines: usize,
}

impl Checker<'_> {
    #[cold]
    fn wrong(
        &mut self,
        segment: Segment,
        start: usize,
        field: Field,
        value: u64,
        expected: Expected,
    ) {
        (self.report)(Violation::at(segment, start, field, value, expected));
    }

    #[inline]
    fn expect(
        &mut self,
        legal: bool,
        part: &Part,
        field: Field,
        value: impl Into<u64>,
        expected: Expected,
    ) {
        if !legal {
            self.wrong(part.segment, part.offset, field, value.into(), expected);
        }
    }

    /// Something is there that needs a capability.
    #[inline]
    fn needs(
        &mut self,
        capability: bool,
        name: &'static str,
        part: &Part,
        field: Field,
        value: impl Into<u64>,
    ) {
        self.expect(capability, part, field, value, Expected::Capability(name));
    }

    fn opcode(&self) -> WqeOpcode {
        WqeOpcode(self.ctrl.opcode())
    }

    fn run(mut self) {
        let len = self.units.bytes();
        if len < CtrlSeg::LEN || len % UNIT != 0 {
            (self.report)(Violation {
                segment: Segment::Ctrl,
                offset: 0,
                field: "length in bytes",
                value: len as u64,
                expected: Expected::MultipleOf(UNIT as u64),
            });
        }
        if len < CtrlSeg::LEN {
            return;
        }
        let mut known = true;
        for part in Parts::new(self.units, self.transport) {
            if part.segment == Segment::Unknown {
                known = self.unknown(&part);
                break;
            }
            self.reserved(&part);
            match part.wanted {
                Some(wanted) => self.cut(&part, wanted),
                None => self.fields(&part),
            }
        }
        self.whole(known);
    }

    /// A segment has fewer bytes than it needs: the WQE is too short for what its fields say.
    #[cold]
    fn cut(&mut self, part: &Part, wanted: usize) {
        (self.report)(Violation {
            segment: part.segment,
            offset: part.offset,
            field: "length in bytes",
            value: part.len as u64,
            expected: Expected::Exactly(wanted as u64),
        });
    }

    /// Bytes that have no layout here, or no place in the WQE; tells whether they may be there.
    fn unknown(&mut self, part: &Part) -> bool {
        let known = match self.opcode() {
            WqeOpcode::WAIT => self.ctrl.opmod() == 0,
            WqeOpcode::SET_PSV => self.ctrl.opmod() <= 4,
            opcode => is_laid_out(opcode),
        };
        if !known {
            return false;
        }
        let word = self.units.copy::<4>(part.offset);
        (self.report)(Violation {
            segment: Segment::Unknown,
            offset: part.offset,
            field: "segment",
            value: u32::from_be_bytes(word).into(),
            expected: Expected::Rule("the end of the WQE"),
        });
        true
    }

    #[inline]
    fn reserved(&mut self, part: &Part) {
        let masks = part.segment.reserved();
        if masks.is_empty() {
            return;
        }
        // One unit is the common case; a tail of fewer bytes counts as zeros.
        let at = part.offset / UNIT;
        let mut bits = 0;
        let mut index = 0;
        while index * UNIT < part.len {
            let mask = match (masks.get(index), part.segment) {
                (Some(mask), Segment::Mtt) => *mask | *mask >> 64,
                (Some(mask), _) => *mask,
                (None, _) => masks[0],
            };
            if let Some(unit) = self.units.get(at + index) {
                bits |= u128::from_be_bytes(*unit) & mask;
            }
            index += 1;
        }
        if bits != 0 {
            self.strays(part);
        }
    }

    /// Names every word of a segment that has reserved bits set.
    #[cold]
    fn strays(&mut self, part: &Part) {
        let size = part.segment.size().min(part.len.max(1));
        let mut start = part.offset;
        while start < part.offset + part.len {
            for (index, bits) in part.segment.strays(&self.units, start, size) {
                (self.report)(Violation {
                    segment: part.segment,
                    offset: start + 4 * index,
                    field: "reserved",
                    value: bits.into(),
                    expected: Expected::Exactly(0),
                });
            }
            start += size;
        }
    }

    #[inline]
    fn fields(&mut self, part: &Part) {
        match part.segment {
            Segment::Ctrl => self.ctrl(part),
            Segment::Data => self.data(part),
            Segment::Inline => self.inline(part),
            Segment::Raddr => self.raddr(part),
            Segment::Eth => self.eth(part),
            Segment::UdAv | Segment::DcAv | Segment::UdBaseAv | Segment::DcBaseAv => self.av(part),
            Segment::Atomic => self.atomic(part),
            Segment::UmrCtrl => self.umr_ctrl(part),
            Segment::Mkc => self.mkc(part),
            Segment::Klm => self.klm(part),
            Segment::Ksm => self.ksm(part),
            Segment::StrideCtrl => self.stride(part),
            Segment::Bsf => self.bsf(part),
            Segment::SetPsv => self.set_psv(part),
            Segment::TlsStatic => self.tls_static(part),
            _ => {}
        }
    }

    fn ctrl(&mut self, part: &Part) {
        let ctrl = self.ctrl;
        let units = self.units.len();
        let ds = ctrl.ds();
        self.expect(
            usize::from(ds) == units,
            part,
            CtrlSeg::DS,
            ds,
            Expected::Exactly(units as u64),
        );
        let max = self.context.caps.max_units(self.transport);
        self.expect(
            usize::from(ds) <= max,
            part,
            CtrlSeg::DS,
            ds,
            Expected::AtMost(max as u64),
        );
        if let Some(qpn) = self.context.qpn {
            let expected = Expected::Exactly(qpn.get().into());
            self.expect(
                ctrl.qpn() == qpn.get(),
                part,
                CtrlSeg::QPN,
                ctrl.qpn(),
                expected,
            );
        }
        if let Some(index) = self.context.index {
            let expected = Expected::Exactly(index.into());
            let field = CtrlSeg::WQE_INDEX;
            self.expect(
                ctrl.wqe_index() == index,
                part,
                field,
                ctrl.wqe_index(),
                expected,
            );
        }
        self.opcode_and_opmod(part);
        self.expect(
            ctrl.fm() <= 4,
            part,
            CtrlSeg::FM,
            ctrl.fm(),
            Expected::AtMost(4),
        );
        if self.transport != TransportKind::Dci {
            let stream = ctrl.dci_stream_channel_id();
            let field = CtrlSeg::DCI_STREAM_CHANNEL_ID;
            self.expect(stream == 0, part, field, stream, Expected::Exactly(0));
        }
        self.general_id(part);
        match self.context.signed {
            Some(true) => {
                // The signature is what is missing to all ones.
                let own = ctrl.signature();
                let wanted = ctrl::signature(self.units.from(0)) ^ own;
                let field = CtrlSeg::SIGNATURE;
                self.expect(
                    own == wanted,
                    part,
                    field,
                    own,
                    Expected::Exactly(wanted.into()),
                );
            }
            Some(false) => {
                let own = ctrl.signature();
                let field = CtrlSeg::SIGNATURE;
                self.expect(own == 0, part, field, own, Expected::Exactly(0));
            }
            None => {}
        }
    }

    fn opcode_and_opmod(&mut self, part: &Part) {
        let (opcode, opmod) = (self.opcode(), self.ctrl.opmod());
        let kind = self.transport;
        let field = CtrlSeg::OPCODE;
        if !may_be_on(opcode, kind) {
            let expected = Expected::Rule("an operation of the queue's transport");
            self.expect(false, part, field, opcode.0, expected);
        }
        match opcode {
            WqeOpcode::ATOMIC_MASKED_CS | WqeOpcode::ATOMIC_MASKED_FA => {
                let legal = masked_size(opmod).is_some();
                let expected = Expected::Between(0x8, 0xc);
                self.expect(legal, part, CtrlSeg::OPMOD, opmod, expected);
            }
            WqeOpcode::SET_PSV => {
                let expected = Expected::AtMost(4);
                self.expect(opmod <= 4, part, CtrlSeg::OPMOD, opmod, expected);
                self.raw_only(part, opmod != 0);
            }
            WqeOpcode::UMR => {
                self.expect(opmod <= 2, part, CtrlSeg::OPMOD, opmod, Expected::AtMost(2));
                self.raw_only(part, opmod != 0);
            }
            WqeOpcode::WAIT => {
                self.expect(opmod <= 2, part, CtrlSeg::OPMOD, opmod, Expected::AtMost(2));
            }
            opcode if is_laid_out(opcode) && !is_psv_query(opcode) => {
                let expected = Expected::Exactly(0);
                self.expect(opmod == 0, part, CtrlSeg::OPMOD, opmod, expected);
            }
            _ => {}
        }
        let caps = &self.context.caps;
        match opcode {
            WqeOpcode::WAIT | WqeOpcode::SEND_EN | WqeOpcode::RECV_EN => {
                self.needs(caps.cross_channel, "cd", part, field, opcode.0);
            }
            WqeOpcode::SET_PSV | WqeOpcode::UMR if opmod == 1 => {
                self.needs(caps.tls_tx, "tls_tx", part, CtrlSeg::OPMOD, opmod);
            }
            WqeOpcode::SET_PSV | WqeOpcode::UMR if opmod == 2 => {
                self.needs(caps.tls_rx, "tls_rx", part, CtrlSeg::OPMOD, opmod);
            }
            WqeOpcode::ATOMIC_CS
            | WqeOpcode::ATOMIC_FA
            | WqeOpcode::ATOMIC_MASKED_CS
            | WqeOpcode::ATOMIC_MASKED_FA => {
                let (operation, name) = atomic::needed(opcode);
                let there = caps.atomic_operations.contains(operation);
                self.needs(there, name, part, field, opcode.0);
                if let Some(size) = self.atomic_size() {
                    let there = atomic::size_is_possible(&self.context.caps, kind, size);
                    self.needs(there, "atomic_size", part, CtrlSeg::OPMOD, size as u64);
                }
            }
            _ => {}
        }
    }

    fn raw_only(&mut self, part: &Part, parameters: bool) {
        if parameters && self.transport != TransportKind::Raw {
            let expected = Expected::Exactly(0);
            self.expect(false, part, CtrlSeg::OPMOD, self.ctrl.opmod(), expected);
        }
    }

    /// The last word of the control segment belongs to few operations.
    fn general_id(&mut self, part: &Part) {
        let id = self.ctrl.general_id();
        let (legal, expected) = match self.opcode() {
            WqeOpcode::SEND_IMM | WqeOpcode::SEND_INVAL | WqeOpcode::RDMA_WRITE_IMM => return,
            WqeOpcode::UMR if self.ctrl.opmod() == 0 => return,
            // A number of 24 bits, << 8.
            WqeOpcode::UMR | WqeOpcode::DUMP => (id & 0xff == 0, Expected::MultipleOf(0x100)),
            opcode if is_laid_out(opcode) && !is_psv_query(opcode) => {
                (id == 0, Expected::Exactly(0))
            }
            _ => return,
        };
        self.expect(legal, part, CtrlSeg::GENERAL_ID, id, expected);
    }

    /// Bytes of an atomic.
    fn atomic_size(&self) -> Option<usize> {
        match self.opcode() {
            WqeOpcode::ATOMIC_CS | WqeOpcode::ATOMIC_FA => Some(8),
            WqeOpcode::ATOMIC_MASKED_CS | WqeOpcode::ATOMIC_MASKED_FA => {
                masked_size(self.ctrl.opmod())
            }
            _ => None,
        }
    }

    #[inline]
    fn data(&mut self, part: &Part) {
        let data = DataSeg::view(part.bytes(&self.units));
        let count = data.byte_count();
        self.data += 1;
        if self.trailer && self.inlines == 0 {
            self.trailer_first(part);
        }
        match self.opcode() {
            WqeOpcode::UMR => self.pointer(part, &data),
            _ if self.atomic_size().is_some() => {
                let size = self.atomic_size().unwrap_or(0) as u64;
                let expected = Expected::Exactly(size);
                let field = DataSeg::BYTE_COUNT;
                self.expect(u64::from(count) == size, part, field, count, expected);
                if self.data > 1 {
                    let expected = Expected::Rule("one data segment in an atomic");
                    self.expect(false, part, field, count, expected);
                }
            }
            _ => {
                let expected = Expected::Between(1, DataSeg::BYTE_COUNT.max());
                self.expect(count != 0, part, DataSeg::BYTE_COUNT, count, expected);
            }
        }
    }

    fn trailer_first(&mut self, part: &Part) {
        self.trailer = false;
        let expected = Expected::Rule("the trailer inline as the first data segment");
        self.expect(false, part, DataSeg::INLINE, 0_u64, expected);
    }

    /// The list that a UMR points to.
    fn pointer(&mut self, part: &Part, data: &DataSeg) {
        let (addr, count) = (data.addr(), data.byte_count());
        let expected = Expected::Exactly(0);
        self.expect(
            !data.inline(),
            part,
            DataSeg::INLINE,
            data.inline(),
            expected,
        );
        let expected = Expected::MultipleOf(POINTER_ALIGNMENT);
        let aligned = addr % POINTER_ALIGNMENT == 0;
        self.expect(aligned, part, DataSeg::ADDR, addr, expected);
        let bytes = u32::from(self.patch.xlt_octowords()) * UNIT as u32;
        let expected = Expected::Exactly(bytes.into());
        self.expect(count == bytes, part, DataSeg::BYTE_COUNT, count, expected);
    }

    #[inline]
    fn inline(&mut self, part: &Part) {
        self.inlines += 1;
        let head = InlineSeg::view(part.bytes(&self.units));
        let expected = match self.opcode() {
            WqeOpcode::RDMA_READ => Expected::Rule("no inline data in an RDMA read"),
            WqeOpcode::DUMP => Expected::Rule("no inline data in a DUMP"),
            _ if self.atomic_size().is_some() => Expected::Rule("no inline data in an atomic"),
            _ if self.trailer && self.data == 0 && head.byte_count() != 0 => {
                self.trailer = false;
                return;
            }
            _ => return,
        };
        self.expect(false, part, InlineSeg::INLINE, 1_u64, expected);
    }

    #[inline]
    fn raddr(&mut self, part: &Part) {
        let Some(size) = self.atomic_size() else {
            return;
        };
        let addr = RaddrSeg::view(part.bytes(&self.units)).raddr();
        let expected = Expected::MultipleOf(size as u64);
        let aligned = atomic::is_aligned(addr, size);
        self.expect(aligned, part, RaddrSeg::RADDR, addr, expected);
    }

    fn av(&mut self, part: &Part) {
        // The flag is at the same place in all four.
        let av = UdAv::view(part.bytes(&self.units));
        let there = av.ext() || self.context.caps.compact_address_vector;
        self.needs(there, "compact_address_vector", part, UdAv::EXT, av.ext());
    }

    fn atomic(&mut self, part: &Part) {
        let segment = AtomicSeg::view(part.bytes(&self.units));
        if self.opcode() == WqeOpcode::ATOMIC_FA {
            let compare = segment.compare();
            let expected = Expected::Exactly(0);
            self.expect(compare == 0, part, AtomicSeg::COMPARE, compare, expected);
        }
    }

    fn eth(&mut self, part: &Part) {
        let eth = EthSeg::view(part.bytes(&self.units));
        let caps = &self.context.caps;
        let (size, start) = (eth.inline_size(), eth.inline_start());
        if eth.insert_vlan() {
            self.needs(
                caps.vlan_insert,
                "wqe_vlan_insert",
                part,
                EthSeg::INSERT_VLAN,
                1_u64,
            );
            // Bit 16 alone is the type of the tag (hardware.md 11.3, row 9).
            let expected =
                Expected::Rule("at most 1 with insert_vlan, which excludes an inline header");
            self.expect(size <= 1, part, EthSeg::INLINE_SIZE, size, expected);
        } else if size == 0 {
            let expected = Expected::Exactly(0);
            self.expect(start == 0, part, EthSeg::INLINE_START, start, expected);
        }
        let association = eth.trailer_association();
        if eth.insert_trailer() {
            self.trailer = true;
            let field = EthSeg::INSERT_TRAILER;
            self.needs(caps.insert_trailer, "insert_trailer", part, field, 1_u64);
        } else {
            let field = EthSeg::TRAILER_ASSOCIATION;
            let expected = Expected::Exactly(0);
            self.expect(association == 0, part, field, association, expected);
        }
        let expected = Expected::AtMost(4);
        let field = EthSeg::TRAILER_ASSOCIATION;
        self.expect(association <= 4, part, field, association, expected);
        if !caps.swp {
            for field in [
                EthSeg::SWP_OUTER_L4_OFFSET,
                EthSeg::SWP_OUTER_L3_OFFSET,
                EthSeg::SWP_INNER_L4_OFFSET,
                EthSeg::SWP_INNER_L3_OFFSET,
                EthSeg::SWP_OUTER_L4_UDP,
                EthSeg::SWP_OUTER_L3_IPV6,
                EthSeg::SWP_INNER_L4_UDP,
                EthSeg::SWP_INNER_L3_IPV6,
            ] {
                let value = field.get(eth.as_bytes()).unwrap_or(0);
                self.needs(value == 0, "swp", part, field, value);
            }
        }
        if self.opcode() == WqeOpcode::LSO {
            let expected = Expected::Between(1, EthSeg::MSS.max());
            self.expect(eth.mss() != 0, part, EthSeg::MSS, eth.mss(), expected);
            let expected = Expected::Between(1, EthSeg::INLINE_SIZE.max());
            let header = size != 0 && !eth.insert_vlan();
            self.expect(header, part, EthSeg::INLINE_SIZE, size, expected);
        } else {
            let expected = Expected::Exactly(0);
            self.expect(eth.mss() == 0, part, EthSeg::MSS, eth.mss(), expected);
        }
    }

    fn umr_ctrl(&mut self, part: &Part) {
        let ctrl = UmrCtrlSeg::view(part.bytes(&self.units));
        self.patch = ctrl;
        let caps = &self.context.caps;
        let (octowords, bsf) = (ctrl.xlt_octowords(), ctrl.bsf_octowords());
        let aligned = Expected::MultipleOf(4);
        let field = UmrCtrlSeg::XLT_OCTOWORDS;
        self.expect(octowords % 4 == 0, part, field, octowords, aligned);
        let field = UmrCtrlSeg::BSF_OCTOWORDS;
        self.expect(bsf % 4 == 0, part, field, bsf, aligned);
        let check = ctrl.check_free();
        let expected = Expected::AtMost(2);
        self.expect(check <= 2, part, UmrCtrlSeg::CHECK_FREE, check, expected);
        let high = ctrl.xlt_offset_47_16();
        let field = UmrCtrlSeg::XLT_OFFSET_47_16;
        if !ctrl.translation_offset_en() {
            self.expect(high == 0, part, field, high, Expected::Exactly(0));
        } else if high != 0 {
            let there = caps.umr_extended_translation_offset;
            self.needs(there, "umr_extended_translation_offset", part, field, high);
        }
        let bsfs = !ctrl.translation_offset_en() && bsf != 0;
        let parameters = self.ctrl.opmod() != 0;
        if bsfs && !parameters {
            self.needs(caps.signature, "sho", part, UmrCtrlSeg::BSF_OCTOWORDS, bsf);
        }
        if octowords == 0 && !bsfs {
            let expected = Expected::Rule("1 where there are neither translations nor a BSF");
            self.expect(
                ctrl.inline(),
                part,
                UmrCtrlSeg::INLINE,
                ctrl.inline(),
                expected,
            );
        }
        let mask = MkeyMask::from_bits(ctrl.mkey_mask());
        let field = UmrCtrlSeg::MKEY_MASK;
        let unknown = mask.unknown();
        self.expect(unknown == 0, part, field, unknown, Expected::Exactly(0));
        for (fields, name) in mask.refused(&self.context.caps) {
            self.needs(false, name, part, field, fields.bits());
        }
        if parameters {
            let expected = Expected::Exactly(4);
            self.expect(bsf == 4, part, UmrCtrlSeg::BSF_OCTOWORDS, bsf, expected);
            let expected = Expected::Exactly(0);
            let field = UmrCtrlSeg::XLT_OCTOWORDS;
            self.expect(octowords == 0, part, field, octowords, expected);
        }
    }

    fn mkc(&mut self, part: &Part) {
        let mkc = Mkc::view(part.bytes(&self.units));
        let mask = MkeyMask::from_bits(self.patch.mkey_mask());
        let log = mkc.log_page_size();
        // The 5 bits that every device has say nothing of larger pages.
        if mask.contains(MkeyMask::PAGE_SIZE) && !mask.contains(MkeyMask::PAGE_SIZE_5) {
            let expected = Expected::AtMost(31);
            self.expect(log <= 31, part, Mkc::LOG_PAGE_SIZE, log, expected);
        }
        let octowords = mkc.translations_octword_size();
        let field = Mkc::TRANSLATIONS_OCTWORD_SIZE;
        let expected = Expected::MultipleOf(4);
        self.expect(octowords % 4 == 0, part, field, octowords, expected);
    }

    fn indirect(&mut self, part: &Part, field: Field, value: u64) {
        let there = !self.context.caps.umr_indirect_mkey_disabled;
        self.needs(there, "umr_indirect_mkey_disabled = 0", part, field, value);
    }

    fn klm(&mut self, part: &Part) {
        let klm = KlmSeg::view(part.bytes(&self.units));
        let count = klm.byte_count();
        let expected = Expected::AtMost(KLM_MAX.into());
        self.expect(count <= KLM_MAX, part, KlmSeg::BYTE_COUNT, count, expected);
        self.indirect(part, KlmSeg::KEY, klm.key().into());
    }

    fn ksm(&mut self, part: &Part) {
        use crate::layouts::wqe::KsmSeg;
        let key = KsmSeg::view(part.bytes(&self.units)).key();
        let there = self.context.caps.fixed_buffer_size;
        self.needs(there, "fixed_buffer_size", part, KsmSeg::KEY, key);
        self.indirect(part, KsmSeg::KEY, key.into());
    }

    fn stride(&mut self, part: &Part) {
        use crate::layouts::wqe::StrideBlockEntry;
        let ctrl = StrideBlockCtrl::view(part.bytes::<{ StrideBlockCtrl::LEN }>(&self.units));
        let mut cycle = 0_u32;
        for index in 0..usize::from(ctrl.num_entries()) {
            let at = part.offset + UNIT * (1 + index);
            if at >= self.units.bytes() {
                break;
            }
            let entry = StrideBlockEntry::view(self.units.copy::<{ StrideBlockEntry::LEN }>(at));
            cycle = cycle.saturating_add(entry.byte_count().into());
        }
        let count = ctrl.byte_count_per_cycle();
        let field = StrideBlockCtrl::BYTE_COUNT_PER_CYCLE;
        let expected = Expected::Exactly(cycle.into());
        self.expect(count == cycle, part, field, count, expected);
        self.indirect(part, StrideBlockCtrl::OP, ctrl.op().into());
    }

    /// A PSV must be of the queue's protection domain.
    fn psv(&mut self, part: &Part, field: Field, index: u32) {
        let Some(pd) = self.context.pd else {
            return;
        };
        let psvs = self.context.psvs;
        if let Some(psv) = psvs.iter().find(|psv| psv.index.get() == index) {
            let expected = Expected::Rule("a PSV of the queue's protection domain");
            self.expect(psv.pd == pd, part, field, index, expected);
        }
    }

    fn set_psv(&mut self, part: &Part) {
        let index = SetPsvSeg::view(part.bytes(&self.units)).psv_index();
        self.psv(part, SetPsvSeg::PSV_INDEX, index);
    }

    fn bsf(&mut self, part: &Part) {
        let bsf = BsfSeg::view(part.bytes::<{ BsfSeg::LEN }>(&self.units));
        for (field, psv, inline, place) in [
            (
                BsfSeg::W_BFS_PSV,
                bsf.w_bfs_psv(),
                bsf.w_inl().to_owned(),
                BsfSeg::W_INL,
            ),
            (
                BsfSeg::M_BFS_PSV,
                bsf.m_bfs_psv(),
                bsf.m_inl().to_owned(),
                BsfSeg::M_INL,
            ),
        ] {
            self.psv(part, field, psv);
            if inline.valid() {
                let (kind, escape) = (inline.sig_type(), inline.escape());
                let field = BsfInl::SIG_TYPE.inside(place);
                let expected = Expected::Between(1, 2);
                self.expect(matches!(kind, 1 | 2), part, field, kind, expected);
                let field = BsfInl::ESCAPE.inside(place);
                let expected = Expected::AtMost(2);
                self.expect(escape <= 2, part, field, escape, expected);
            }
        }
        // Block size selectors.
        let expected = Expected::AtMost(6);
        if !bsf.same_block() {
            self.expect(bsf.wire() <= 6, part, BsfSeg::WIRE, bsf.wire(), expected);
        }
        self.expect(bsf.mem() <= 6, part, BsfSeg::MEM, bsf.mem(), expected);
    }

    fn tls_static(&mut self, part: &Part) {
        let params = TlsStaticParams::view(part.bytes::<{ TlsStaticParams::LEN }>(&self.units));
        let (one, two) = (params.const_1(), params.const_2());
        let expected = Expected::Exactly(1);
        self.expect(one == 1, part, TlsStaticParams::CONST_1, one, expected);
        let expected = Expected::Exactly(2);
        self.expect(two == 2, part, TlsStaticParams::CONST_2, two, expected);
    }

    /// What only the whole WQE tells.
    fn whole(&mut self, known: bool) {
        let part = Part {
            segment: Segment::Ctrl,
            offset: 0,
            len: CtrlSeg::LEN,
            wanted: None,
        };
        if self.trailer {
            let part = Part {
                segment: Segment::Eth,
                offset: UNIT,
                ..part
            };
            let expected = Expected::Rule("the trailer inline as the first data segment");
            self.expect(false, &part, EthSeg::INSERT_TRAILER, 1_u64, expected);
        }
        let missing = match self.opcode() {
            WqeOpcode::DUMP => self.data == 0,
            _ => self.atomic_size().is_some() && self.data == 0,
        };
        if known && missing {
            (self.report)(Violation {
                segment: Segment::Data,
                offset: self.units.bytes(),
                field: "segments",
                value: 0,
                expected: Expected::Rule("at least one data segment"),
            });
        }
    }
}

/// Whether the segments of an operation are known here.
fn is_laid_out(opcode: WqeOpcode) -> bool {
    matches!(
        opcode,
        WqeOpcode::NOP
            | WqeOpcode::SEND
            | WqeOpcode::SEND_IMM
            | WqeOpcode::SEND_INVAL
            | WqeOpcode::LSO
            | WqeOpcode::RDMA_WRITE
            | WqeOpcode::RDMA_WRITE_IMM
            | WqeOpcode::RDMA_READ
            | WqeOpcode::ATOMIC_CS
            | WqeOpcode::ATOMIC_FA
            | WqeOpcode::ATOMIC_MASKED_CS
            | WqeOpcode::ATOMIC_MASKED_FA
            | WqeOpcode::UMR
            | WqeOpcode::SET_PSV
            | WqeOpcode::DUMP
            | WqeOpcode::WAIT
            | WqeOpcode::SEND_EN
            | WqeOpcode::RECV_EN
    ) || is_psv_query(opcode)
}

/// Operations whose modifiers are not documented.
fn is_psv_query(opcode: WqeOpcode) -> bool {
    matches!(
        opcode,
        WqeOpcode::GET_PSV | WqeOpcode::RGET_PSV | WqeOpcode::CHECK_PSV | WqeOpcode::RCHECK_PSV
    )
}

/// Whether a queue of this transport can do an operation.
fn may_be_on(opcode: WqeOpcode, kind: TransportKind) -> bool {
    match opcode {
        WqeOpcode::SEND => kind != TransportKind::RegUmr,
        WqeOpcode::SEND_IMM => kind.sends(),
        WqeOpcode::SEND_INVAL | WqeOpcode::RDMA_READ => kind.reads(),
        WqeOpcode::LSO => matches!(kind, TransportKind::Raw | TransportKind::UdOffload),
        WqeOpcode::RDMA_WRITE | WqeOpcode::RDMA_WRITE_IMM => kind.writes(),
        WqeOpcode::ATOMIC_CS
        | WqeOpcode::ATOMIC_FA
        | WqeOpcode::ATOMIC_MASKED_CS
        | WqeOpcode::ATOMIC_MASKED_FA => kind.reads(),
        WqeOpcode::DUMP => kind == TransportKind::Raw,
        opcode => is_laid_out(opcode) || opcode.label() != "unknown",
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_wqe_validate)]
mod tests {
    use super::*;

    /// The bytes of words.
    fn bytes<const N: usize>(words: &[u32; N]) -> [[u8; 4]; N] {
        words.map(u32::to_be_bytes)
    }

    /// What is wrong with a WQE: how many things, and segment, offset and field of the first.
    fn wrong<const N: usize>(
        words: &[u32; N],
        context: &Context<'_>,
    ) -> (usize, Option<(Segment, usize, &'static str)>) {
        let (mut count, mut first) = (0, None);
        let bytes = bytes(words);
        validate(Units::of(bytes.as_flattened()), context, &mut |violation| {
            count += 1;
            first.get_or_insert((violation.segment, violation.offset, violation.field));
        });
        (count, first)
    }

    const fn on(transport: TransportKind) -> Context<'static> {
        Context {
            transport: Some(transport),
            ..Context::UNKNOWN
        }
    }

    const RC: Context<'static> = on(TransportKind::Rc);
    const RAW: Context<'static> = on(TransportKind::Raw);
    const DATA: [u32; 4] = [0x100, 0x77, 0, 0x1000];
    const RADDR: [u32; 4] = [0, 0x2000, 0x55, 0];
    const CLEAN: (usize, Option<(Segment, usize, &str)>) = (0, None);

    /// A control segment.
    const fn ctrl(opmod_opcode: u32, ds: u32) -> [u32; 4] {
        [opmod_opcode, 0x4200 | ds, 8, 0]
    }

    fn join<const A: usize, const B: usize, const N: usize>(a: [u32; A], b: [u32; B]) -> [u32; N] {
        assert_eq!(A + B, N);
        core::array::from_fn(|i| *a.get(i).or_else(|| b.get(i - A)).unwrap_or(&0))
    }

    /// Control segment, UMR control segment and an empty context.
    fn umr(ds: u32, ctrl_words: [u32; 5]) -> [u32; 32] {
        let head: [u32; 9] = join(ctrl(0x25, ds), ctrl_words);
        join(head, [0; 23])
    }

    /// Segment, offset and field of the only thing that is wrong.
    fn only<const N: usize>(
        words: &[u32; N],
        context: &Context<'_>,
    ) -> (Segment, usize, &'static str) {
        let (count, first) = wrong(words, context);
        assert_eq!(count, 1);
        first.unwrap_or((Segment::Unknown, 0, "nothing"))
    }

    #[test]
    fn control_segment() {
        assert_eq!(wrong(&ctrl(0, 1), &RC), CLEAN);
        for (index, bits, field) in [
            (0, 0x0100_0000, "opmod"),
            (1, 0x02, "ds"),
            (1, 0x40, "reserved"),
            (1, 0x80, "reserved"),
            (2, 0x0001_0000, "dci_stream_channel_id"),
            (2, 0xa0, "fm"),
            (2, 0x10, "reserved"),
            (2, 0x01, "reserved"),
            (3, 0x01, "general_id"),
        ] {
            let mut words = ctrl(0, 1);
            words[index] ^= bits;
            assert_eq!(only(&words, &RC).2, field);
        }
        let known = Context {
            qpn: Number::new(0x42),
            index: Some(0),
            signed: Some(false),
            ..RC
        };
        assert_eq!(wrong(&ctrl(0, 1), &known), CLEAN);
        for (index, bits, field) in [
            (0, 0x0100, "wqe_index"),
            (1, 0x0100, "qpn"),
            (2, 0x0100_0000, "signature"),
        ] {
            let mut words = ctrl(0, 1);
            words[index] ^= bits;
            assert_eq!(only(&words, &known).2, field);
        }
    }

    #[test]
    fn lengths() {
        assert_eq!(wrong::<0>(&[], &RC).1.map(|w| w.2), Some("length in bytes"));
        assert_eq!(wrong(&[0; 3], &RC).1.map(|w| w.2), Some("length in bytes"));
        assert_eq!(
            only(&join::<4, 1, 5>(ctrl(0, 1), [0]), &RC).2,
            "length in bytes"
        );
        // ds says less, or more, than there is.
        let send: [u32; 8] = join(ctrl(0x0a, 3), DATA);
        assert_eq!(only(&send, &RC), (Segment::Ctrl, 7, "ds"));
        let long = Context {
            caps: Caps {
                max_wqe_bytes: 16,
                ..Caps::ALL
            },
            ..RC
        };
        let send: [u32; 8] = join(ctrl(0x0a, 2), DATA);
        assert_eq!(wrong(&send, &RC), CLEAN);
        assert_eq!(only(&send, &long), (Segment::Ctrl, 7, "ds"));
        // The remote address is missing.
        assert_eq!(
            only(&ctrl(0x08, 1), &RC),
            (Segment::Raddr, 16, "length in bytes")
        );
    }

    #[test]
    fn lists() {
        let zero = [0, 0x77, 0, 0x1000];
        let send: [u32; 8] = join(ctrl(0x0a, 2), zero);
        assert_eq!(only(&send, &RC), (Segment::Data, 16, "byte_count"));
        let inline = [0x8000_0004, 0x1122_3344, 0x5555_5555, 0];
        let send: [u32; 8] = join(ctrl(0x0a, 2), inline);
        assert_eq!(wrong(&send, &RC), CLEAN);
        let reserved: [u32; 8] = join(ctrl(0x0a, 2), [0x8000_0404, 0, 0, 0]);
        assert_eq!(only(&reserved, &RC), (Segment::Inline, 16, "reserved"));
        let cut: [u32; 8] = join(ctrl(0x0a, 2), [0x8000_000d, 0, 0, 0]);
        assert_eq!(only(&cut, &RC), (Segment::Bytes, 20, "length in bytes"));
        let head: [u32; 8] = join(ctrl(0x10, 3), RADDR);
        let read: [u32; 12] = join(head, inline);
        assert_eq!(only(&read, &RC), (Segment::Inline, 32, "inline"));
    }

    #[test]
    fn operations_of_a_transport() {
        let read: [u32; 8] = join(ctrl(0x10, 2), RADDR);
        assert_eq!(wrong(&read, &RC), CLEAN);
        assert_eq!(only(&read, &on(TransportKind::Uc)).2, "opcode");
        assert_eq!(only(&ctrl(0xff, 1), &RC).2, "opcode");
        let immediate: [u32; 8] = join(ctrl(0x0b, 2), [0; 4]);
        assert_eq!(only(&immediate, &RAW).2, "opcode");
    }

    /// hardware.md 11.3, row 37: a remote address in UMR, SET_PSV and NOP.
    #[test]
    fn remote_addresses_out_of_place() {
        let nop: [u32; 8] = join(ctrl(0, 2), RADDR);
        assert_eq!(only(&nop, &RC), (Segment::Unknown, 16, "segment"));
        let head: [u32; 8] = join(ctrl(0x20, 3), [0x5, 0, 0, 0]);
        let set_psv: [u32; 12] = join(head, RADDR);
        assert_eq!(only(&set_psv, &RC), (Segment::Unknown, 32, "segment"));
        let invalidate = umr(9, [0x8000_0000, 0, 0, 1 << 29, 0]);
        let long: [u32; 36] = join(invalidate, RADDR);
        assert_eq!(only(&long, &RC), (Segment::Unknown, 128, "segment"));
        assert_eq!(wrong(&umr(8, [0x8000_0000, 0, 0, 1 << 29, 0]), &RC), CLEAN);
    }

    /// hardware.md 11.3, rows 10, 11, 14, 17, 22: what the articles have wrong is refused.
    #[test]
    fn umr_of_the_articles() {
        // check_free in bits 30 to 2.
        let words = umr(8, [0x8000_0004, 0, 0, 1 << 29, 0]);
        assert_eq!(only(&words, &RC), (Segment::UmrCtrl, 16, "reserved"));
        // 4 octowords as `4 << 1`: a BSF of 8 octowords, of which there is nothing.
        let words = umr(8, [0x8000_0000, 4 << 1, 0, 1, 0]);
        assert_eq!(only(&words, &RC), (Segment::Bsf, 128, "length in bytes"));
        // The low half of the mask in the first word.
        let words = umr(8, [0x8000_0000, 0, 0x41, 0, 0]);
        assert_eq!(only(&words, &RC), (Segment::UmrCtrl, 24, "mkey_mask"));
        // Two KLMs as 2 octowords.
        let words: [u32; 48] = join(umr(12, [0x8000_0000, 0x2_0000, 0, 1, 0]), [0; 16]);
        assert_eq!(
            wrong(&words, &RC).1,
            Some((Segment::UmrCtrl, 20, "xlt_octowords"))
        );
        // No control segment of 48 bytes: context at 16, KLMs at 80.
        let mut words = [0_u32; 28];
        words[..4].copy_from_slice(&ctrl(0x25, 7));
        words[4] = 0xfc00;
        words[5] = 0xffff_ff01;
        assert!(wrong(&words, &RC).0 > 0);
    }

    #[test]
    fn umr_control_segment() {
        let words_of = |ctrl_words| umr(8, ctrl_words);
        let check = |ctrl_words, context: &Context<'_>| only(&words_of(ctrl_words), context);
        assert_eq!(check([0xe000_0000, 0, 0, 1, 0], &RC).2, "check_free");
        // A pointer where there is nothing to point to: no list follows either.
        assert_eq!(
            wrong(&words_of([0, 0, 0, 1, 0]), &RC).1.map(|w| w.2),
            Some("inline")
        );
        assert_eq!(check([0x9000_0000, 0x2, 0, 1, 0], &RC).2, "bsf_octowords");
        assert_eq!(check([0x8000_0000, 0, 0, 1, 5], &RC).2, "xlt_offset_47_16");
        let words = words_of([0x9000_0000, 0, 0, 1, 5]);
        assert_eq!(wrong(&words, &RC), CLEAN);
        let old = Context {
            caps: Caps {
                max_wqe_bytes: 1024,
                umr_modify_atomic_disabled: true,
                umr_modify_entity_size_disabled: true,
                ..Caps::default()
            },
            ..RC
        };
        assert_eq!(only(&words, &old).2, "xlt_offset_47_16");
        for bit in [1, 9, 12, 21, 25, 42, 47] {
            let mask = 1_u64 << bit;
            let words = words_of([0x8000_0000, 0, (mask >> 32) as u32, mask as u32, 0]);
            assert_eq!(wrong(&words, &RC), CLEAN);
            assert_eq!(only(&words, &old).2, "mkey_mask");
        }
        for bit in [2, 10, 16, 30, 43, 63] {
            let mask = 1_u64 << bit;
            let words = words_of([0x8000_0000, 0, (mask >> 32) as u32, mask as u32, 0]);
            assert_eq!(only(&words, &RC).2, "mkey_mask");
        }
    }

    #[test]
    fn umr_with_a_list() {
        let with = |list| -> [u32; 36] { join(umr(9, [0, 0x8_0000, 0, 1, 0]), list) };
        assert_eq!(wrong(&with([0x80, 0x66, 0, 0x800]), &RC), CLEAN);
        assert_eq!(
            only(&with([0x80, 0x66, 0, 0x400]), &RC),
            (Segment::Data, 136, "addr")
        );
        assert_eq!(only(&with([0x40, 0x66, 0, 0x800]), &RC).2, "byte_count");
        // There is none.
        let words = umr(8, [0, 0x8_0000, 0, 1, 0]);
        assert_eq!(only(&words, &RC), (Segment::Data, 128, "length in bytes"));
    }

    /// A UMR of rdma-core with a signature by CRC and encryption.
    #[test]
    fn two_formats_of_a_stream() {
        let mut words: [u32; 64] = join(umr(16, [0x8000_0000, 8, 0, 1 << 12, 0]), [0; 32]);
        words[32] = 0xc0ff_0006;
        words[34] = 0x2200_0005;
        words[48] = 0xc101_0000;
        assert_eq!(wrong(&words, &RC), CLEAN);
        let parts = bytes(&words);
        let mut found = [Segment::Unknown; 5];
        for (to, part) in found.iter_mut().zip(Parts::new(
            Units::of(parts.as_flattened()),
            TransportKind::Rc,
        )) {
            *to = part.segment;
        }
        assert!(found[3..] == [Segment::Bsf, Segment::CryptoBsf]);
        words[32] = 0xc0ff_0007;
        assert_eq!(only(&words, &RC), (Segment::Bsf, 131, "mem"));
        words[32] = 0xc0ff_0006;
        words[49] = 1;
        words[51] = 1;
        assert_eq!(only(&words, &RC), (Segment::CryptoBsf, 204, "reserved"));
    }

    #[test]
    fn translation_entries() {
        let with = |entry: [u32; 4], mode: u32| {
            let mut words: [u32; 48] = join(umr(12, [0x8000_0000, 0x4_0000, 0, 1, 0]), [0; 16]);
            words[16] = mode << 8;
            words[32..36].copy_from_slice(&entry);
            words
        };
        let old = Context {
            caps: Caps {
                max_wqe_bytes: 1024,
                umr_indirect_mkey_disabled: true,
                ..Caps::default()
            },
            ..RC
        };
        assert_eq!(wrong(&with([0x8000_0000, 1, 0, 0], 2), &RC), CLEAN);
        assert_eq!(
            only(&with([0x8000_0001, 1, 0, 0], 2), &RC),
            (Segment::Klm, 128, "byte_count")
        );
        assert_eq!(wrong(&with([0, 0x1003, 0, 0x2000], 1), &old), CLEAN);
        assert_eq!(
            only(&with([0, 0x1003, 0, 0x2004], 1), &old),
            (Segment::Mtt, 140, "reserved")
        );
        assert_eq!(wrong(&with([0, 1, 0, 0], 3), &RC), CLEAN);
        assert_eq!(
            only(&with([1, 1, 0, 0], 3), &RC),
            (Segment::Ksm, 128, "reserved")
        );
        assert!(wrong(&with([0, 1, 0, 0], 3), &old).0 > 0);
        assert!(wrong(&with([0, 1, 0, 0], 2), &old).0 > 0);
    }

    #[test]
    fn atomics() {
        let with = |opmod_opcode, addr: u32, operands: [u32; 4], data: [u32; 4]| -> [u32; 16] {
            let head: [u32; 8] = join(ctrl(opmod_opcode, 4), [0, addr, 0x55, 0]);
            let more: [u32; 12] = join(head, operands);
            join(more, data)
        };
        let (zero, eight, four) = ([0; 4], [8, 1, 0, 0], [4, 1, 0, 0]);
        assert_eq!(wrong(&with(0x11, 0x1008, zero, eight), &RC), CLEAN);
        assert_eq!(
            only(&with(0x11, 0x1004, zero, eight), &RC),
            (Segment::Raddr, 16, "raddr")
        );
        assert_eq!(only(&with(0x11, 0x1000, zero, four), &RC).2, "byte_count");
        assert_eq!(
            only(&with(0x12, 0x1000, [0, 0, 0, 1], eight), &RC).2,
            "compare"
        );
        let inline = with(0x11, 0x1000, zero, [0x8000_0008, 0, 0, 0]);
        assert_eq!(wrong(&inline, &RC).1.map(|w| w.2), Some("inline"));
        assert_eq!(wrong(&with(0x0800_0014, 0x1004, zero, four), &RC), CLEAN);
        assert_eq!(only(&with(0x0800_0014, 0x1002, zero, four), &RC).2, "raddr");
        assert_eq!(wrong(&with(0x0800_0015, 0x1004, zero, four), &RC), CLEAN);
        assert_eq!(
            only(&with(0x0800_0015, 0x1004, [0, 0, 1, 0], four), &RC).2,
            "reserved"
        );
        assert_eq!(
            wrong(&with(0x0700_0015, 0x1004, zero, four), &RC)
                .1
                .map(|w| w.2),
            Some("opmod")
        );
        let few = Context {
            caps: Caps {
                atomic_operations: crate::wqe::AtomicOps::EXTENDED_CMP_SWAP,
                atomic_size_qp: 8,
                max_wqe_bytes: 1024,
                ..Caps::default()
            },
            ..RC
        };
        assert_eq!(only(&with(0x11, 0x1008, zero, eight), &few).2, "opcode");
        assert_eq!(
            only(&with(0x0800_0014, 0x1008, zero, four), &few).2,
            "opmod"
        );
        // No data segment, and two.
        let head: [u32; 8] = join(ctrl(0x11, 3), RADDR);
        let none: [u32; 12] = join(head, zero);
        assert_eq!(only(&none, &RC).2, "segments");
        let head: [u32; 8] = join(ctrl(0x11, 5), RADDR);
        let more: [u32; 12] = join(head, zero);
        let one: [u32; 16] = join(more, eight);
        let two: [u32; 20] = join(one, eight);
        assert_eq!(only(&two, &RC), (Segment::Data, 64, "byte_count"));
    }

    #[test]
    fn ethernet() {
        let with = |word: u32, list: [u32; 4]| -> [u32; 12] {
            let head: [u32; 8] = join(ctrl(0x0a, 3), [0, 0, 0, word]);
            join(head, list)
        };
        let inline = [0x8000_0001, 0x1100_0000, 0, 0];
        assert_eq!(wrong(&with(0, DATA), &RAW), CLEAN);
        assert_eq!(only(&with(1, DATA), &RAW).2, "inline_start");
        // A tag of either type, and a tag with an inline header.
        assert_eq!(wrong(&with(0x8000_0123, DATA), &RAW), CLEAN);
        assert_eq!(wrong(&with(0x8001_0123, DATA), &RAW), CLEAN);
        assert_eq!(
            only(&with(0x8012_0123, DATA), &RAW),
            (Segment::Eth, 28, "inline_size")
        );
        // A trailer with and without its inline data.
        assert_eq!(wrong(&with(0x4c00_0000, inline), &RAW), CLEAN);
        assert_eq!(
            only(&with(0x4c00_0000, DATA), &RAW),
            (Segment::Data, 32, "inline")
        );
        let head: [u32; 8] = join(ctrl(0x0a, 2), [0, 0, 0, 0x4000_0000]);
        assert_eq!(only(&head, &RAW).2, "insert_trailer");
        assert_eq!(
            only(&with(0x5400_0000, inline), &RAW).2,
            "trailer_association"
        );
        assert_eq!(
            only(&with(0x0400_0000, DATA), &RAW).2,
            "trailer_association"
        );
        assert_eq!(only(&with(0x2000_0000, DATA), &RAW).2, "reserved");
        let none = Context {
            caps: Caps {
                max_wqe_bytes: 1024,
                ..Caps::default()
            },
            ..RAW
        };
        assert_eq!(only(&with(0x8000_0123, DATA), &none).2, "insert_vlan");
        assert_eq!(only(&with(0x4c00_0000, inline), &none).2, "insert_trailer");
        let mut swp = with(0, DATA);
        swp[4] = 0x0700_0000;
        assert_eq!(wrong(&swp, &RAW), CLEAN);
        assert_eq!(only(&swp, &none).2, "swp_outer_l4_offset");
        // hardware.md 11.3, row 4: the word in the byte order of a little-endian host.
        let swapped = 0x0012_e0e1_u32.swap_bytes();
        assert!(wrong(&with(swapped, DATA), &RAW).0 > 0);
        // LSO needs a segment size and headers, others have no segment size.
        let mut mss = with(0, DATA);
        mss[5] = 1;
        assert_eq!(only(&mss, &RAW).2, "mss");
        let mut lso = with(0, DATA);
        lso[0] = 0x0e;
        let (count, _) = wrong(&lso, &RAW);
        assert_eq!(count, 2);
    }

    #[test]
    fn flows_and_signatures() {
        // hardware.md 11.3, row 35: DUMP reads data; without any it is none.
        assert_eq!(only(&ctrl(0x23, 1), &RAW), (Segment::Data, 16, "segments"));
        let dump: [u32; 8] = join(ctrl(0x23, 2), DATA);
        assert_eq!(wrong(&dump, &RAW), CLEAN);
        let dump: [u32; 8] = join(ctrl(0x23, 2), [0, 1, 0, 0]);
        assert_eq!(only(&dump, &RAW), (Segment::Data, 16, "byte_count"));
        let set: [u32; 8] = join(ctrl(0x20, 2), [5, 0, 0, 0]);
        let psvs = [Psv {
            index: Number::low(5),
            pd: Number::low(8),
        }];
        let known = |pd| Context {
            pd: Number::new(pd),
            psvs: &psvs,
            ..RC
        };
        assert_eq!(wrong(&set, &RC), CLEAN);
        assert_eq!(wrong(&set, &known(8)), CLEAN);
        assert_eq!(only(&set, &known(7)), (Segment::SetPsv, 17, "psv_index"));
        let tls: [u32; 8] = join(ctrl(0x0100_0020, 2), [5, 0, 0, 0]);
        assert_eq!(wrong(&tls, &RAW), CLEAN);
        assert_eq!(only(&tls, &RC).2, "opmod");
        let wait: [u32; 8] = join(ctrl(0x0f, 2), [0, 0, 1, 2]);
        assert_eq!(wrong(&wait, &RC), CLEAN);
        let none = Context {
            caps: Caps {
                max_wqe_bytes: 1024,
                ..Caps::default()
            },
            ..RC
        };
        assert_eq!(only(&wait, &none).2, "opcode");
    }

    #[test]
    fn address_vectors() {
        let mut words: [u32; 20] = [0; 20];
        words[..4].copy_from_slice(&ctrl(0x0a, 5));
        words[6] = 0x8000_0001;
        words[16..].copy_from_slice(&DATA);
        let ud = on(TransportKind::Ud);
        assert_eq!(wrong(&words, &ud), CLEAN);
        for (word, bits) in [
            (5, 1),
            (6, 0x0100_0000),
            (8, 1),
            (11, 1 << 31),
            (11, 1 << 28),
        ] {
            let mut words = words;
            words[word] |= bits;
            assert_eq!(only(&words, &ud), (Segment::UdAv, 4 * word, "reserved"));
        }
        // The key of a DC target has 64 bits.
        let mut dc = words;
        dc[5] = 1;
        assert_eq!(wrong(&dc, &on(TransportKind::Dci)), CLEAN);
        // The short form.
        let head: [u32; 8] = join(ctrl(0x0a, 3), [0, 0, 1, 0]);
        let short: [u32; 12] = join(head, DATA);
        assert_eq!(wrong(&short, &ud), CLEAN);
        let none = Context {
            caps: Caps {
                max_wqe_bytes: 1024,
                ..Caps::default()
            },
            ..ud
        };
        assert_eq!(only(&short, &none), (Segment::UdBaseAv, 24, "ext"));
    }

    #[test]
    fn operations_without_a_layout_are_let_be() {
        let other: [u32; 8] = join(ctrl(0x2c, 2), [0xffff_ffff; 4]);
        assert_eq!(wrong(&other, &RC), CLEAN);
        assert_eq!(only(&join::<4, 4, 8>(ctrl(0x2c, 3), [0; 4]), &RC).2, "ds");
    }

    #[test]
    fn segments_alone() {
        let count = |segment, bytes: &[u8]| {
            let mut count = 0;
            validate_segment(segment, bytes, &RC, &mut |_| count += 1);
            count
        };
        let mut raddr = [0xff; 16];
        assert_eq!(count(Segment::Raddr, &raddr), 1);
        raddr[12..].fill(0);
        assert_eq!(count(Segment::Raddr, &raddr), 0);
        assert_eq!(count(Segment::Raddr, &raddr[..8]), 1);
        assert_eq!(count(Segment::Klm, &[0xff; 16]), 1);
    }
}
