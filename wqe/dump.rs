// SPDX-License-Identifier: GPL-2.0

//! A WQE in words: as text, one line for each field, or as JSON.
//!
//! Both take any bytes, and say of every field what it means and whether it is wrong.

use core::fmt::{
    self,
    Write as _, //
};

use super::{
    mkey::MkeyMask,
    parse::{
        masked_size,
        Part,
        Parts, //
    },
    segment::{
        Item,
        Segment, //
    },
    transport::TransportKind,
    units::Units,
    validate::{
        first_violation,
        validate,
        Context, //
    },
    violation::Violation,
    UNIT, //
};
use crate::layouts::wqe::{
    CtrlSeg,
    EthSeg,
    Mkc,
    UmrCtrlSeg,
    WqeOpcode, //
};

/// A WQE as text.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// Its bytes.
    pub units: Units<'a>,
    /// What is known of its queue.
    pub context: &'a Context<'a>,
}

/// A WQE as one JSON object.
///
/// Numbers are strings in hex, since JSON's own have 53 bits in many readers; offsets are in bytes from
/// the start of the WQE, `bit` and `width` in bits from the start of the segment.
#[derive(Clone, Copy, Debug)]
pub struct Json<'a> {
    /// Its bytes.
    pub units: Units<'a>,
    /// What is known of its queue.
    pub context: &'a Context<'a>,
}

/// What meanings depend on.
struct Words<'a> {
    units: Units<'a>,
    transport: TransportKind,
    ctrl: CtrlSeg,
    /// Which fields of an mkey context are taken; all, if the WQE is no UMR.
    mask: Option<MkeyMask>,
    offset_enabled: bool,
    /// Nothing is wrong with it: no field needs to be looked up.
    clean: bool,
}

/// Reads field `item` of the piece at byte `start`.
enum Read {
    Number(u64),
    /// Wider than 64 bits.
    Wide,
}

impl<'a> Words<'a> {
    fn new(units: Units<'a>, context: &Context<'_>) -> Self {
        let ctrl = CtrlSeg::view(units.copy(0));
        let umr = WqeOpcode(ctrl.opcode()) == WqeOpcode::UMR;
        let patch = UmrCtrlSeg::view(units.copy::<{ UmrCtrlSeg::LEN }>(UNIT));
        Self {
            units,
            transport: context.transport_of(&units),
            ctrl,
            mask: umr.then(|| MkeyMask::from_bits(patch.mkey_mask())),
            offset_enabled: umr && patch.translation_offset_en(),
            clean: first_violation(units, context).is_none(),
        }
    }

    fn opcode(&self) -> WqeOpcode {
        WqeOpcode(self.ctrl.opcode())
    }

    fn read(&self, start: usize, item: &Item) -> Read {
        let field = item.field;
        if field.width > 64 {
            return Read::Wide;
        }
        // At most nine bytes.
        let bytes = self.units.copy::<9>(start + field.offset / 8);
        let local = crate::layouts::Field::new(field.name, field.offset % 8, field.width);
        Read::Number(local.get(&bytes).unwrap_or(0))
    }

    /// Writes what a value means, if there is more to say than the number.
    fn meaning(
        &self,
        f: &mut dyn fmt::Write,
        part: &Part,
        start: usize,
        item: &Item,
        value: u64,
    ) -> fmt::Result {
        let at = item.field.offset;
        let is = |name: &str| item.field.name == name;
        match part.segment {
            Segment::Ctrl if is("opcode") => f.write_str(self.opcode().label()),
            Segment::Ctrl if is("opmod") => self.opmod(f, value),
            Segment::Ctrl if is("ds") => write!(f, "{} bytes", value * UNIT as u64),
            Segment::Ctrl if is("fm") => one_of(
                f,
                value,
                &[
                    "no fence",
                    "initiator small fence",
                    "fence",
                    "strong ordering",
                    "small fence and fence",
                ],
            ),
            Segment::Ctrl if is("ce") => one_of(
                f,
                value,
                &[
                    "completion on error",
                    "completion on first error",
                    "always a completion",
                    "always a completion and an event",
                ],
            ),
            Segment::Ctrl if is("general_id") => self.general_id(f, value),
            Segment::Eth if is("trailer_association") => one_of(
                f,
                value,
                &["none", "outer IP", "outer L4", "inner IP", "inner L4"],
            ),
            Segment::Eth if is("inline_size") => self.inline_size(f, start, value),
            Segment::Eth if is("inline_start") => self.inline_start(f, start, value),
            Segment::Eth if is("mss") && value != 0 => write!(f, "{value} bytes"),
            Segment::Eth if item.field.name.starts_with("swp") && item.field.width == 8 => {
                write!(f, "{} bytes", 2 * value)
            }
            Segment::UdAv | Segment::DcAv if is("rlid") => {
                write!(f, "LID, or UDP source port on RoCE")
            }
            Segment::Data if is("byte_count") => write!(f, "{value} bytes"),
            Segment::Inline if is("byte_count") => write!(f, "{value} bytes"),
            Segment::Klm if is("byte_count") => write!(f, "{value} bytes"),
            Segment::UmrCtrl if is("check_free") => one_of(
                f,
                value,
                &["no check", "fails if not free", "fails if free"],
            ),
            Segment::UmrCtrl if is("xlt_octowords") => {
                write!(f, "{} bytes of translations", value * UNIT as u64)
            }
            Segment::UmrCtrl if is("bsf_octowords") && self.offset_enabled => {
                f.write_str("low 16 bits of the translation offset, in units of 16 bytes")
            }
            Segment::UmrCtrl if is("bsf_octowords") => {
                write!(f, "{} bytes of BSF or parameters", value * UNIT as u64)
            }
            Segment::UmrCtrl if is("mkey_mask") => mask(f, MkeyMask::from_bits(value)),
            Segment::Mkc => self.mkc(f, item, value),
            Segment::Mtt if at == 0 => {
                let bytes = self.units.copy::<8>(start);
                write!(f, "page {:#x}", u64::from_be_bytes(bytes) & !0xff)
            }
            Segment::StrideCtrl if is("op") && value == 0x400 => f.write_str("repeat"),
            Segment::CryptoBsf if is("enc_order") => one_of(
                f,
                value,
                &[
                    "encrypted wire signature",
                    "encrypted memory signature",
                    "encrypted raw wire",
                    "encrypted raw memory",
                ],
            ),
            Segment::CryptoBsf if is("bs_pointer") => block_size(f, value),
            Segment::CryptoBsf if is("enc_standard") => one_of(f, value, &["AES-XTS"]),
            Segment::Bsf if is("wire") || is("mem") => self.bsf_block(f, start, item, value),
            Segment::Bsf if is("sig_type") => one_of(f, value, &["", "T10-DIF CRC", "IP checksum"]),
            Segment::Bsf if is("escape") => one_of(
                f,
                value,
                &["none", "application tag", "application and reference tag"],
            ),
            Segment::TlsStatic if is("tls_version") => {
                one_of(f, value, &["", "", "TLS 1.2", "TLS 1.3"])
            }
            Segment::TlsProgress | Segment::NvmeTcpProgress
                if item.field.name.ends_with("tracker_state") =>
            {
                one_of(f, value, &["start", "tracking", "searching"])
            }
            Segment::TlsProgress if is("auth_state") => one_of(
                f,
                value,
                &["no offload", "offload", "authentication failed"],
            ),
            Segment::Wait if is("number") => match self.opcode() {
                WqeOpcode::WAIT => f.write_str("completion queue"),
                _ => f.write_str("queue pair"),
            },
            _ => Ok(()),
        }
    }

    fn opmod(&self, f: &mut dyn fmt::Write, value: u64) -> fmt::Result {
        match (self.opcode(), value) {
            (WqeOpcode::ATOMIC_MASKED_CS | WqeOpcode::ATOMIC_MASKED_FA, _) => {
                match masked_size(value as u8) {
                    Some(size) => write!(f, "{size} bytes"),
                    None => Ok(()),
                }
            }
            (WqeOpcode::SET_PSV, 1) => f.write_str("progress of a TLS flow, TIS"),
            (WqeOpcode::SET_PSV, 2) => f.write_str("progress of a TLS flow, TIR"),
            (WqeOpcode::SET_PSV, 3) => f.write_str("progress of an NVMe-TCP flow, TIS"),
            (WqeOpcode::SET_PSV, 4) => f.write_str("progress of an NVMe-TCP flow, TIR"),
            (WqeOpcode::UMR, 1) => f.write_str("parameters of a flow, TIS"),
            (WqeOpcode::UMR, 2) => f.write_str("parameters of a flow, TIR"),
            (WqeOpcode::WAIT, _) => one_of(f, value, &["completion queue", "data", "time"]),
            _ => Ok(()),
        }
    }

    fn general_id(&self, f: &mut dyn fmt::Write, value: u64) -> fmt::Result {
        match self.opcode() {
            WqeOpcode::SEND_IMM | WqeOpcode::RDMA_WRITE_IMM => f.write_str("immediate data"),
            WqeOpcode::SEND_INVAL => f.write_str("key to invalidate"),
            WqeOpcode::UMR if self.ctrl.opmod() == 0 => f.write_str("mkey"),
            WqeOpcode::UMR => write!(f, "TIS or TIR {:#x}", value >> 8),
            WqeOpcode::DUMP => write!(f, "TIS {:#x}", value >> 8),
            _ => Ok(()),
        }
    }

    fn eth(&self, start: usize) -> EthSeg {
        EthSeg::view(self.units.copy(start))
    }

    fn inline_size(&self, f: &mut dyn fmt::Write, start: usize, value: u64) -> fmt::Result {
        if self.eth(start).insert_vlan() {
            return one_of(f, value, &["tag type 0x8100", "tag type 0x88a8"]);
        }
        write!(f, "{value} bytes of inline header")
    }

    fn inline_start(&self, f: &mut dyn fmt::Write, start: usize, value: u64) -> fmt::Result {
        let eth = self.eth(start);
        if eth.insert_vlan() {
            let (pcp, dei, vid) = (value >> 13, value >> 12 & 1, value & 0xfff);
            return write!(f, "VLAN {vid}, priority {pcp}, DEI {dei}");
        }
        if eth.inline_size() != 0 {
            return f.write_str("first two bytes of the inline header");
        }
        Ok(())
    }

    fn mkc(&self, f: &mut dyn fmt::Write, item: &Item, value: u64) -> fmt::Result {
        match item.field.name {
            "access_mode_1_0" => one_of(f, value, &["physical", "MTT", "KLM", "KSM"])?,
            "log_page_size" if value != 0 => write!(f, "pages of 2^{value} bytes")?,
            "qpn" if value == 0xff_ffff => f.write_str("any")?,
            "translations_octword_size" | "bsf_octword_size" => {
                write!(f, "{} bytes", value * UNIT as u64)?;
            }
            _ => {}
        }
        match (self.mask, mask_of(item.field.offset)) {
            (Some(mask), Some(bit)) if !mask.contains(bit) && value != 0 => {
                f.write_str(" (not taken: not in mkey_mask)")
            }
            _ => Ok(()),
        }
    }

    fn bsf_block(
        &self,
        f: &mut dyn fmt::Write,
        start: usize,
        item: &Item,
        value: u64,
    ) -> fmt::Result {
        use crate::layouts::wqe::BsfSeg;
        let bsf = BsfSeg::view(self.units.copy::<{ BsfSeg::LEN }>(start));
        if item.field.name == "wire" && bsf.same_block() {
            return write!(f, "bytes of the signature that are copied");
        }
        block_size(f, value)
    }
}

fn block_size(f: &mut dyn fmt::Write, value: u64) -> fmt::Result {
    one_of(
        f,
        value,
        &[
            "none",
            "512 bytes",
            "520 bytes",
            "4096 bytes",
            "4160 bytes",
            "1 GB",
            "4048 bytes",
        ],
    )
}

/// The bit of the mask that stands for the field of the mkey context at bit `offset`.
fn mask_of(offset: usize) -> Option<MkeyMask> {
    [
        (Mkc::LENGTH, MkeyMask::LEN),
        (Mkc::LOG_PAGE_SIZE, MkeyMask::PAGE_SIZE),
        (Mkc::START_ADDR, MkeyMask::START_ADDR),
        (Mkc::PD, MkeyMask::PD),
        (Mkc::EN_RINVAL, MkeyMask::EN_RINVAL),
        (Mkc::EXPECTED_SIGERR_COUNT, MkeyMask::EN_SIGERR),
        (Mkc::BSF_EN, MkeyMask::BSF_EN),
        (Mkc::MKEY_7_0, MkeyMask::KEY),
        (Mkc::QPN, MkeyMask::QPN),
        (Mkc::LR, MkeyMask::LR),
        (Mkc::LW, MkeyMask::LW),
        (Mkc::RR, MkeyMask::RR),
        (Mkc::RW, MkeyMask::RW),
        (Mkc::A, MkeyMask::A),
        (
            Mkc::SMALL_FENCE_ON_RDMA_READ_RESPONSE,
            MkeyMask::SMALL_FENCE,
        ),
        (
            Mkc::RELAXED_ORDERING_WRITE,
            MkeyMask::RELAXED_ORDERING_WRITE,
        ),
        (Mkc::FREE, MkeyMask::FREE),
        (Mkc::RELAXED_ORDERING_READ, MkeyMask::RELAXED_ORDERING_READ),
    ]
    .iter()
    .find(|(field, _)| field.offset == offset)
    .map(|(_, bit)| *bit)
}

fn one_of(f: &mut dyn fmt::Write, value: u64, names: &[&str]) -> fmt::Result {
    match usize::try_from(value).ok().and_then(|i| names.get(i)) {
        Some(name) => f.write_str(name),
        None => Ok(()),
    }
}

fn mask(f: &mut dyn fmt::Write, mask: MkeyMask) -> fmt::Result {
    let mut first = true;
    for (bit, name) in MkeyMask::ALL {
        if mask.contains(*bit) {
            if !first {
                f.write_str(" ")?;
            }
            f.write_str(name)?;
            first = false;
        }
    }
    Ok(())
}

/// Pieces of a part: translation entries for pages are two in a unit.
fn pieces(part: &Part) -> impl Iterator<Item = usize> {
    let size = match part.segment.description() {
        Some(description) => description.len,
        None => part.len.max(1),
    };
    let (start, end) = (part.offset, part.offset + part.len);
    (start..end).step_by(size)
}

/// The violation is one of this part.
fn belongs(violation: &Violation, part: &Part) -> bool {
    violation.segment == part.segment
        && violation.offset >= part.offset
        && violation.offset < part.offset + part.len.max(1)
}

/// The violation is one of a field that the segment has.
fn is_of(violation: &Violation, start: usize, item: &Item) -> bool {
    violation.field == item.field.name && violation.offset == start + item.field.offset / 8
}

fn has_field(violation: &Violation, part: &Part) -> bool {
    pieces(part).any(|start| {
        part.segment
            .items()
            .any(|item| is_of(violation, start, &item))
    })
}

/// Calls `each` for the violations that `wanted` picks, until one fails.
fn violations(
    words: &Words<'_>,
    context: &Context<'_>,
    wanted: impl Fn(&Violation) -> bool,
    mut each: impl FnMut(&Violation) -> fmt::Result,
) -> fmt::Result {
    let mut result = Ok(());
    if words.clean {
        return result;
    }
    validate(words.units, context, &mut |violation| {
        if result.is_ok() && wanted(&violation) {
            result = each(&violation);
        }
    });
    result
}

fn hex(f: &mut dyn fmt::Write, units: &Units<'_>, start: usize, len: usize) -> fmt::Result {
    for at in start..start.saturating_add(len) {
        let Some(byte) = units.byte(at) else {
            break;
        };
        write!(f, "{byte:02x}")?;
    }
    Ok(())
}

/// Columns of a line: where the meaning begins.
struct Columns<'w, 'f> {
    f: &'w mut fmt::Formatter<'f>,
    separated: bool,
}

impl fmt::Write for Columns<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if !self.separated && !text.is_empty() {
            self.separated = true;
            self.f.write_str("  ")?;
        }
        self.f.write_str(text)
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = Words::new(self.units, self.context);
        let ctrl = &words.ctrl;
        writeln!(
            f,
            "WQE {:#06x} of queue {:#08x}: {}, ds {}, {} bytes, transport {}",
            ctrl.wqe_index(),
            ctrl.qpn(),
            words.opcode().label(),
            ctrl.ds(),
            self.units.bytes(),
            words.transport.name()
        )?;
        for part in Parts::new(self.units, words.transport) {
            self.part(f, &words, &part)?;
        }
        // What belongs to no segment that is there.
        let (units, context) = (self.units, self.context);
        let parts = Parts::new(units, words.transport);
        violations(
            &words,
            context,
            |violation| !parts.clone().any(|part| belongs(violation, &part)),
            |violation| writeln!(f, "INVALID {violation}"),
        )
    }
}

impl Text<'_> {
    fn part(&self, f: &mut fmt::Formatter<'_>, words: &Words<'_>, part: &Part) -> fmt::Result {
        let (units, context) = (self.units, self.context);
        write!(f, "{:#05x} {}", part.offset, part.segment.name())?;
        if let Some(wanted) = part.wanted {
            write!(f, "  ({} of {wanted} bytes)", part.len)?;
        }
        writeln!(f)?;
        for start in pieces(part) {
            for item in part.segment.items() {
                let mut line = Columns { f, separated: true };
                self.item(&mut line, words, part, start, &item)?;
                violations(
                    words,
                    context,
                    |violation| belongs(violation, part) && is_of(violation, start, &item),
                    |violation| write!(f, "  INVALID, expected {}", violation.expected),
                )?;
                writeln!(f)?;
            }
        }
        if part.segment.description().is_none() && part.len != 0 {
            write!(f, "  {:#05x} ", part.offset)?;
            hex(f, &units, part.offset, part.len)?;
            writeln!(f)?;
        }
        violations(
            words,
            context,
            |violation| belongs(violation, part) && !has_field(violation, part),
            |violation| writeln!(f, "  INVALID {violation}"),
        )
    }

    fn item(
        &self,
        line: &mut Columns<'_, '_>,
        words: &Words<'_>,
        part: &Part,
        start: usize,
        item: &Item,
    ) -> fmt::Result {
        let field = item.field;
        let at = start + field.offset / 8;
        write!(line, "  {at:#05x} ")?;
        let outer = item.outer.map_or(0, |outer| outer.len() + 1);
        if let Some(outer) = item.outer {
            write!(line, "{outer}.")?;
        }
        write!(line, "{:<1$} ", field.name, 34_usize.saturating_sub(outer))?;
        match words.read(start, item) {
            Read::Number(value) => {
                write!(
                    line,
                    "{:#0width$x}",
                    value,
                    width = 2 + field.width.div_ceil(4)
                )?;
                line.separated = false;
                words.meaning(line, part, start, item, value)
            }
            Read::Wide => hex(line, &self.units, at, field.width / 8),
        }
    }
}

/// Escapes what JSON wants escaped.
struct Escaped<'w, 'f>(&'w mut fmt::Formatter<'f>);

impl fmt::Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '"' | '\\' => write!(self.0, "\\{c}")?,
                c if c < ' ' => write!(self.0, "\\u{:04x}", u32::from(c))?,
                c => self.0.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Finds out whether anything is written.
struct Empty(bool);

impl fmt::Write for Empty {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 &= text.is_empty();
        Ok(())
    }
}

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = Words::new(self.units, self.context);
        let ctrl = &words.ctrl;
        write!(
            f,
            "{{\"opcode\":\"{}\",\"transport\":\"{}\",\"wqe_index\":{},\"qpn\":{},\"ds\":{},\"bytes\":{},\"segments\":[",
            words.opcode().label(),
            words.transport.name(),
            ctrl.wqe_index(),
            ctrl.qpn(),
            ctrl.ds(),
            self.units.bytes(),
        )?;
        let mut comma = "";
        for part in Parts::new(self.units, words.transport) {
            for start in pieces(&part) {
                f.write_str(comma)?;
                comma = ",";
                self.piece(f, &words, &part, start)?;
            }
        }
        f.write_str("],\"violations\":[")?;
        let mut comma = "";
        violations(
            &words,
            self.context,
            |_| true,
            |violation| {
                write!(
                    f,
                    "{comma}{{\"segment\":\"{}\",\"offset\":{},\"field\":\"{}\",\"value\":\"{:#x}\",\"expected\":\"",
                    violation.segment.name(),
                    violation.offset,
                    violation.field,
                    violation.value,
                )?;
                comma = ",";
                write!(Escaped(f), "{}", violation.expected)?;
                f.write_str("\"}")
            },
        )?;
        f.write_str("]}")
    }
}

impl Json<'_> {
    fn piece(
        &self,
        f: &mut fmt::Formatter<'_>,
        words: &Words<'_>,
        part: &Part,
        start: usize,
    ) -> fmt::Result {
        let len = match part.segment.description() {
            Some(description) => description.len.min(part.offset + part.len - start),
            None => part.len,
        };
        write!(
            f,
            "{{\"segment\":\"{}\",\"offset\":{start},\"length\":{len},\"bytes\":\"",
            part.segment.name(),
        )?;
        hex(f, &self.units, start, len)?;
        f.write_str("\",\"fields\":[")?;
        let mut comma = "";
        for item in part.segment.items() {
            f.write_str(comma)?;
            comma = ",";
            self.item(f, words, part, start, &item)?;
        }
        f.write_str("]}")
    }

    fn item(
        &self,
        f: &mut fmt::Formatter<'_>,
        words: &Words<'_>,
        part: &Part,
        start: usize,
        item: &Item,
    ) -> fmt::Result {
        let field = item.field;
        f.write_str("{\"name\":\"")?;
        if let Some(outer) = item.outer {
            write!(f, "{outer}.")?;
        }
        write!(
            f,
            "{}\",\"bit\":{},\"width\":{}",
            field.name, field.offset, field.width
        )?;
        match words.read(start, item) {
            Read::Number(value) => {
                write!(f, ",\"value\":\"{value:#x}\"")?;
                let mut empty = Empty(true);
                words.meaning(&mut empty, part, start, item, value)?;
                if !empty.0 {
                    f.write_str(",\"meaning\":\"")?;
                    words.meaning(&mut Escaped(f), part, start, item, value)?;
                    f.write_str("\"")?;
                }
            }
            Read::Wide => {
                f.write_str(",\"value\":\"")?;
                hex(f, &self.units, start + field.offset / 8, field.width / 8)?;
                f.write_str("\"")?;
            }
        }
        let mut wrong = false;
        violations(
            words,
            self.context,
            |violation| belongs(violation, part) && is_of(violation, start, item),
            |_| {
                wrong = true;
                Ok(())
            },
        )?;
        write!(f, ",\"valid\":{}}}", !wrong)
    }
}
