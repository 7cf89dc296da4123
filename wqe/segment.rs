// SPDX-License-Identifier: GPL-2.0

//! The registry of segments: what a WQE can consist of.

use super::{
    units::Units,
    UNIT, //
};
use crate::layouts::{
    bits::Description,
    wqe,
    Field, //
};

/// The bits that belong to no field of a segment, unit after unit; `nested` are the structures in it.
const fn reserved<const UNITS: usize>(
    description: &Description,
    nested: &[(Field, &Description)],
) -> [u128; UNITS] {
    let mut masks = [0; UNITS];
    let mut bit = 0;
    while bit < description.len * 8 {
        let mut declared = is_declared(description, bit);
        let mut index = 0;
        while index < nested.len() {
            let (outer, inner) = nested[index];
            if bit >= outer.offset && bit < outer.offset + outer.width {
                declared = is_declared(inner, bit - outer.offset);
            }
            index += 1;
        }
        if !declared {
            masks[bit / (8 * UNIT)] |= 1 << (8 * UNIT - 1 - bit % (8 * UNIT));
        }
        bit += 1;
    }
    masks
}

/// Whether a bit of a structure belongs to a field.
const fn is_declared(description: &Description, bit: usize) -> bool {
    let mut index = 0;
    while index < description.fields.len() {
        let field = &description.fields[index];
        if bit >= field.offset && bit < field.offset + field.width {
            return true;
        }
        index += 1;
    }
    false
}

macro_rules! segments {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $layout:ident;)*) => {
        /// A kind of segment.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Segment {
            $($(#[$doc])* $kind,)*
            /// Masked compare-and-swap of 16, 32 or 64 bytes: four arrays.
            MaskedCsWide,
            /// Masked fetch-and-add of 16, 32 or 64 bytes: two arrays.
            MaskedFaWide,
            /// Zeros: before the Ethernet segment of a datagram, or behind translation entries.
            Pad,
            /// What goes on behind the head of an Ethernet or inline segment: bytes of the packet.
            Bytes,
            /// Something that has no layout here, or no place in the WQE.
            Unknown,
        }

        impl Segment {
            /// Those that have a layout.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// What it is called.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                    Self::MaskedCsWide => "masked_cs_wide",
                    Self::MaskedFaWide => "masked_fa_wide",
                    Self::Pad => "pad",
                    Self::Bytes => "bytes",
                    Self::Unknown => "unknown",
                }
            }

            /// Its fields; `None` for those that are bytes only.
            pub const fn description(self) -> Option<&'static Description> {
                match self {
                    $(Self::$kind => {
                        const DESCRIPTION: &Description = &wqe::$layout::DESCRIPTION;
                        Some(DESCRIPTION)
                    })*
                    _ => None,
                }
            }

            /// The bits of each of its units that belong to no field, big-endian.
            pub(super) const fn reserved(self) -> &'static [u128] {
                match self {
                    $(Self::$kind => {
                        const UNITS: usize = wqe::$layout::LEN.div_ceil(UNIT);
                        const MASKS: [u128; UNITS] =
                            reserved(&wqe::$layout::DESCRIPTION, Segment::$kind.nested());
                        &MASKS
                    })*
                    Self::Pad => &[u128::MAX; 4],
                    _ => &[],
                }
            }
        }
    };
}

segments! {
    /// Control segment.
    Ctrl = "ctrl", CtrlSeg;
    /// Ethernet segment.
    Eth = "eth", EthSeg;
    /// Address vector of a datagram.
    UdAv = "ud_av", UdAv;
    /// Address vector of a DC initiator.
    DcAv = "dc_av", DcAv;
    /// Short address vector of a datagram.
    UdBaseAv = "ud_base_av", UdBaseAv;
    /// Short address vector of a DC initiator.
    DcBaseAv = "dc_base_av", DcBaseAv;
    /// XRC segment.
    Xrc = "xrc", XrcSeg;
    /// Remote address.
    Raddr = "raddr", RaddrSeg;
    /// Atomic of 8 bytes.
    Atomic = "atomic", AtomicSeg;
    /// Masked compare-and-swap of 4 bytes.
    MaskedCs4 = "masked_cs4", MaskedCs4Seg;
    /// Masked compare-and-swap of 8 bytes.
    MaskedCs8 = "masked_cs8", MaskedCs8Seg;
    /// Masked fetch-and-add of 4 bytes.
    MaskedFa4 = "masked_fa4", MaskedFa4Seg;
    /// Masked fetch-and-add of 8 bytes.
    MaskedFa8 = "masked_fa8", MaskedFa8Seg;
    /// Data by address.
    Data = "data", DataSeg;
    /// Head of inline data.
    Inline = "inline", InlineSeg;
    /// UMR control segment.
    UmrCtrl = "umr_ctrl", UmrCtrlSeg;
    /// Context of a memory key.
    Mkc = "mkc", Mkc;
    /// Translation entry: a page.
    Mtt = "mtt", Mtt;
    /// Translation entry: a range of another key.
    Klm = "klm", KlmSeg;
    /// Translation entry: a range of fixed size of another key.
    Ksm = "ksm", KsmSeg;
    /// Head of a stride block.
    StrideCtrl = "stride_ctrl", StrideBlockCtrl;
    /// Entry of a stride block.
    StrideEntry = "stride_entry", StrideBlockEntry;
    /// Byte stream format.
    Bsf = "bsf", BsfSeg;
    /// Byte stream format of encryption.
    CryptoBsf = "crypto_bsf", CryptoBsfSeg;
    /// SET_PSV segment.
    SetPsv = "set_psv", SetPsvSeg;
    /// GET_PSV segment.
    GetPsv = "get_psv", GetPsvSeg;
    /// CHECK_PSV segment.
    CheckPsv = "check_psv", CheckPsvSeg;
    /// Static parameters of a TLS flow.
    TlsStatic = "tls_static", TlsStaticParams;
    /// Progress of a TLS flow.
    TlsProgress = "tls_progress", TlsProgressSeg;
    /// Progress of an NVMe-TCP flow.
    NvmeTcpProgress = "nvme_tcp_progress", NvmeTcpProgressSeg;
    /// WAIT, SEND_EN or RECV_EN segment.
    Wait = "wait", WaitSeg;
}

/// A value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Of a field of up to 64 bits.
    Number(u64),
    /// Of a wider one, or of one of whole bytes.
    Bytes(&'a [u8]),
}

/// Why a segment could not be made of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadValue<'a> {
    /// The segment has no such field.
    NoField(&'a str),
    /// The value does not fit the field.
    DoesNotFit(&'a str),
    /// There is no room for the segment.
    NoRoom,
}

impl core::fmt::Display for BadValue<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoField(name) => write!(f, "there is no field {name}"),
            Self::DoesNotFit(name) => write!(f, "the value does not fit {name}"),
            Self::NoRoom => write!(f, "the buffer is too short"),
        }
    }
}

impl core::error::Error for BadValue<'_> {}

/// A field of a segment, or of a structure in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// The structure that the field is in, if it is not the segment itself.
    pub outer: Option<&'static str>,
    /// The field, at its place in the segment.
    pub field: Field,
}

impl Item {
    /// Whether people call it `name`: `field`, or `structure.field`.
    pub fn is(&self, name: &str) -> bool {
        match (self.outer, name.split_once('.')) {
            (None, None) => self.field.name == name,
            (Some(outer), Some((first, rest))) => outer == first && self.field.name == rest,
            _ => false,
        }
    }
}

impl Segment {
    /// The kind that is called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|segment| segment.name() == name)
    }

    /// Its fields; those of structures in it one by one.
    pub fn items(self) -> impl Iterator<Item = Item> {
        let fields = self.description().map_or(&[][..], |d| d.fields);
        fields.iter().flat_map(move |outer| {
            let inner = self
                .nested()
                .iter()
                .find(|(field, _)| field == outer)
                .map(|(_, inner)| *inner);
            let own = inner.is_none().then_some(Item {
                outer: None,
                field: *outer,
            });
            let parts = inner.map_or(&[][..], |d| d.fields).iter();
            own.into_iter().chain(parts.map(|field| Item {
                outer: Some(outer.name),
                field: field.inside(*outer),
            }))
        })
    }

    /// The structures in it, and the fields that they are.
    const fn nested(self) -> &'static [(Field, &'static Description)] {
        const BSF: &Description = &wqe::BsfInl::DESCRIPTION;
        const TLS: &Description = &wqe::TlsProgressParams::DESCRIPTION;
        match self {
            Self::Bsf => &[(wqe::BsfSeg::W_INL, BSF), (wqe::BsfSeg::M_INL, BSF)],
            Self::TlsProgress => &[(wqe::TlsProgressSeg::PARAMS, TLS)],
            _ => &[],
        }
    }

    /// Makes a segment of this kind from values of its fields, in `out`; those that are not named are
    /// 0. Gives its length.
    ///
    /// # Errors
    ///
    /// A value has no field or does not fit it, or `out` is too short.
    pub fn construct<'v>(
        self,
        values: impl IntoIterator<Item = (&'v str, Value<'v>)>,
        out: &mut [u8],
    ) -> Result<usize, BadValue<'v>> {
        let len = self.size();
        let bytes = out.get_mut(..len).ok_or(BadValue::NoRoom)?;
        bytes.fill(0);
        for (name, value) in values {
            let item = self
                .items()
                .find(|item| item.is(name))
                .ok_or(BadValue::NoField(name))?;
            let field = item.field;
            match value {
                Value::Number(number) => field.set(bytes, number),
                Value::Bytes(from) if field.offset % 8 == 0 && field.width == 8 * from.len() => {
                    let start = field.offset / 8;
                    bytes
                        .get_mut(start..start + from.len())
                        .map(|place| place.copy_from_slice(from))
                }
                Value::Bytes(_) => None,
            }
            .ok_or(BadValue::DoesNotFit(name))?;
        }
        Ok(len)
    }

    /// Bytes of one, where it always has the same number; else 16.
    pub(super) const fn size(self) -> usize {
        match self.description() {
            Some(description) => description.len,
            None => UNIT,
        }
    }

    /// The words of the segment at byte `start` that have reserved bits set: their index, and those
    /// bits.
    pub(super) fn strays<'a>(
        self,
        units: &'a Units<'_>,
        start: usize,
        len: usize,
    ) -> impl Iterator<Item = (usize, u32)> + 'a {
        let masks = self.reserved();
        (0..len.div_ceil(4)).filter_map(move |index| {
            let word = u32::from_be_bytes(units.copy(start + 4 * index));
            let mask = masks.get(index / 4).copied().unwrap_or(0);
            let bits = word & (mask >> (96 - 32 * (index % 4))) as u32;
            (bits != 0).then_some((index, bits))
        })
    }

    /// No reserved bit of the segment at byte `start` is set.
    pub(super) fn is_clean(self, units: &Units<'_>, start: usize) -> bool {
        self.strays(units, start, self.size()).next().is_none()
    }
}
