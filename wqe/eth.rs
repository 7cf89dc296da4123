// SPDX-License-Identifier: GPL-2.0

//! Ethernet segment: headers, VLAN tag, trailer, checksums (hardware.md 5.4).

use super::{
    caps::Caps,
    segment::Segment,
    violation::{
        Expected,
        Violation, //
    }, //
};
use crate::layouts::wqe::EthSeg;

/// Checksums that the device computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksums {
    /// Of the (outer) IP header.
    pub l3: bool,
    /// Of the (outer) TCP or UDP header.
    pub l4: bool,
    /// Of the inner IP header.
    pub inner_l3: bool,
    /// Of the inner TCP or UDP header.
    pub inner_l4: bool,
}

/// Where headers are, for packets that the device cannot parse. Offsets are in units of 2 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoftwareParser {
    /// Offset of the outer L4 header.
    pub outer_l4_offset: u8,
    /// Offset of the outer IP header.
    pub outer_l3_offset: u8,
    /// Offset of the inner L4 header.
    pub inner_l4_offset: u8,
    /// Offset of the inner IP header.
    pub inner_l3_offset: u8,
    /// The outer L4 header is UDP.
    pub outer_l4_udp: bool,
    /// The outer IP header is IPv6.
    pub outer_l3_ipv6: bool,
    /// The inner L4 header is UDP.
    pub inner_l4_udp: bool,
    /// The inner IP header is IPv6.
    pub inner_l3_ipv6: bool,
}

/// Which VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VlanType {
    /// 0x8100.
    Customer,
    /// 0x88a8.
    Service,
}

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    kind: VlanType,
    tci: u16,
}

impl Vlan {
    /// With priority `pcp` (3 bits), drop eligibility and VLAN id `vid` (12 bits).
    ///
    /// # Errors
    ///
    /// A number has more bits.
    pub fn new(kind: VlanType, pcp: u8, dei: bool, vid: u16) -> Result<Self, Violation> {
        let refused = |value, max| {
            Err(Violation::of(
                Segment::Eth,
                EthSeg::INLINE_START,
                value,
                Expected::AtMost(max),
            ))
        };
        if pcp > 7 {
            return refused(u64::from(pcp), 7);
        }
        if vid > 0xfff {
            return refused(u64::from(vid), 0xfff);
        }
        let tci = u16::from(pcp) << 13 | u16::from(dei) << 12 | vid;
        Ok(Self { kind, tci })
    }
}

/// The start of the packet, as far as the WQE itself says it.
///
/// The VLAN tag and the inline header have the same place in the segment: there is one or the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Header<'a> {
    /// All bytes come from the data segments.
    #[default]
    None,
    /// These bytes come first.
    Inline(&'a [u8]),
    /// The device inserts this tag.
    Vlan(Vlan),
}

/// What the trailer belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Association {
    /// Nothing.
    #[default]
    None = 0,
    /// The outer IP header.
    OuterIp = 1,
    /// The outer L4 header.
    OuterL4 = 2,
    /// The inner IP header.
    InnerIp = 3,
    /// The inner L4 header.
    InnerL4 = 4,
}

/// Bytes that the device appends to each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer<'a> {
    /// What it belongs to.
    pub association: Association,
    /// Its bytes; not none.
    pub data: &'a [u8],
}

/// What the device does with a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Eth<'a> {
    /// The start of the packet.
    pub header: Header<'a>,
    /// The end of the packet.
    pub trailer: Option<Trailer<'a>>,
    /// Checksums.
    pub checksums: Checksums,
    /// Where headers are.
    pub swp: Option<SoftwareParser>,
    /// What flow tables see.
    pub metadata: u32,
}

/// A packet that the device cuts into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lso<'a> {
    /// The headers that all segments have; not none.
    pub header: &'a [u8],
    /// Bytes of payload of each segment; not 0.
    pub mss: u16,
    /// Appended to each segment.
    pub trailer: Option<Trailer<'a>>,
    /// Checksums.
    pub checksums: Checksums,
    /// Where headers are.
    pub swp: Option<SoftwareParser>,
    /// What flow tables see.
    pub metadata: u32,
}

/// An Ethernet segment and the rest of its inline header.
pub(super) struct Encoded<'a> {
    pub(super) segment: [u8; EthSeg::LEN],
    /// What follows the segment, padded to 16 bytes.
    pub(super) rest: &'a [u8],
    /// What the first data segment has.
    pub(super) trailer: Option<&'a [u8]>,
}

fn refused(field: crate::layouts::Field, value: u64, expected: Expected) -> Violation {
    Violation::of(Segment::Eth, field, value, expected)
}

impl<'a> Eth<'a> {
    pub(super) fn encode(&self, mss: u16, caps: &Caps) -> Result<Encoded<'a>, Violation> {
        let mut segment = EthSeg::new();
        segment
            .set_l3_csum(self.checksums.l3)
            .set_l4_csum(self.checksums.l4)
            .set_l3_inner_csum(self.checksums.inner_l3)
            .set_l4_inner_csum(self.checksums.inner_l4)
            .set_mss(mss)
            .set_flow_table_metadata(self.metadata);
        if let Some(swp) = &self.swp {
            if !caps.swp {
                let expected = Expected::Capability("swp");
                return Err(refused(EthSeg::SWP_OUTER_L4_OFFSET, 1, expected));
            }
            segment
                .set_swp_outer_l4_offset(swp.outer_l4_offset)
                .set_swp_outer_l3_offset(swp.outer_l3_offset)
                .set_swp_inner_l4_offset(swp.inner_l4_offset)
                .set_swp_inner_l3_offset(swp.inner_l3_offset)
                .set_swp_outer_l4_udp(swp.outer_l4_udp)
                .set_swp_outer_l3_ipv6(swp.outer_l3_ipv6)
                .set_swp_inner_l4_udp(swp.inner_l4_udp)
                .set_swp_inner_l3_ipv6(swp.inner_l3_ipv6);
        }
        let mut rest: &[u8] = &[];
        match self.header {
            Header::None => {}
            Header::Inline(header) => {
                let size = u16::try_from(header.len()).unwrap_or(u16::MAX);
                segment
                    .try_set_inline_size(size)
                    .map_err(|overflow| Violation::overflow(Segment::Eth, overflow))?;
                let mut start = [0; 2];
                for (to, from) in start.iter_mut().zip(header) {
                    *to = *from;
                }
                segment.set_inline_start(u16::from_be_bytes(start));
                rest = header.get(2..).unwrap_or(&[]);
            }
            Header::Vlan(vlan) => {
                if !caps.vlan_insert {
                    let expected = Expected::Capability("wqe_vlan_insert");
                    return Err(refused(EthSeg::INSERT_VLAN, 1, expected));
                }
                segment.set_insert_vlan(true).set_inline_start(vlan.tci);
                // 10 bits hold 0 and 1.
                let _ = segment.try_set_inline_size((vlan.kind == VlanType::Service).into());
            }
        }
        let trailer = match self.trailer {
            None => None,
            Some(_) if !caps.insert_trailer => {
                let expected = Expected::Capability("insert_trailer");
                return Err(refused(EthSeg::INSERT_TRAILER, 1, expected));
            }
            Some(Trailer { data: [], .. }) => {
                let expected = Expected::Rule("a trailer of at least one byte");
                return Err(refused(EthSeg::INSERT_TRAILER, 1, expected));
            }
            Some(trailer) => {
                segment.set_insert_trailer(true);
                // 3 bits hold the enum.
                let _ = segment.try_set_trailer_association(trailer.association as u8);
                Some(trailer.data)
            }
        };
        Ok(Encoded {
            segment: segment.into_bytes(),
            rest,
            trailer,
        })
    }
}

impl<'a> Lso<'a> {
    pub(super) fn encode(&self, caps: &Caps) -> Result<Encoded<'a>, Violation> {
        if self.mss == 0 {
            let expected = Expected::Between(1, u64::from(u16::MAX));
            return Err(refused(EthSeg::MSS, 0, expected));
        }
        if self.header.is_empty() {
            let expected = Expected::Between(1, EthSeg::INLINE_SIZE.max());
            return Err(refused(EthSeg::INLINE_SIZE, 0, expected));
        }
        let eth = Eth {
            header: Header::Inline(self.header),
            trailer: self.trailer,
            checksums: self.checksums,
            swp: self.swp,
            metadata: self.metadata,
        };
        eth.encode(self.mss, caps)
    }
}
