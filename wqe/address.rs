// SPDX-License-Identifier: GPL-2.0

//! Where a datagram, a DC message or an XRC message goes (hardware.md 5.3, 5.5).

use super::{
    number::Number,
    segment::Segment,
    violation::Violation, //
};
use crate::layouts::wqe::{
    DcAv,
    UdAv,
    XrcSeg, //
};

/// Global route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grh {
    /// Remote GID.
    pub dgid: [u8; 16],
    /// Index of the local GID.
    pub sgid_index: u8,
    /// 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub tclass: u8,
}

/// The way to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// InfiniBand.
    Ib {
        /// LID of the port.
        dlid: u16,
        /// Service level, 4 bits.
        sl: u8,
        /// Low bits of the local LID, 7 bits.
        path_bits: u8,
        /// Global route, where there is one.
        grh: Option<Grh>,
    },
    /// RoCE.
    Roce {
        /// MAC address of the port or of the next hop.
        mac: [u8; 6],
        /// UDP source port; 0 with RoCE v1.
        udp_sport: u16,
        /// Priority, 3 bits.
        sl: u8,
        /// Global route.
        grh: Grh,
    },
}

/// An address vector, ready to be copied into WQEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressHandle(UdAv);

impl AddressHandle {
    /// Goes along `path`, at the rate `stat_rate` (4 bits; 0 is the port's).
    ///
    /// # Errors
    ///
    /// A number of the path does not fit its field.
    pub fn new(path: &Path, stat_rate: u8) -> Result<Self, Violation> {
        let refused = |overflow| Violation::overflow(Segment::UdAv, overflow);
        let mut av = UdAv::new();
        av.set_ext(true);
        av.try_set_stat_rate(stat_rate).map_err(refused)?;
        let grh = match *path {
            Path::Ib {
                dlid,
                sl,
                path_bits,
                grh,
            } => {
                av.set_rlid(dlid);
                av.try_set_sl(sl).map_err(refused)?;
                av.try_set_mlid(path_bits).map_err(refused)?;
                grh
            }
            Path::Roce {
                mac,
                udp_sport,
                sl,
                grh,
            } => {
                // hardware.md 5.5: (sl & 7) << 1.
                if sl > 7 {
                    return Err(Violation::of(
                        Segment::UdAv,
                        UdAv::SL,
                        u64::from(sl),
                        super::Expected::AtMost(7),
                    ));
                }
                av.set_rlid(udp_sport);
                av.try_set_sl(sl << 1).map_err(refused)?;
                *av.rmac_mut() = mac;
                Some(grh)
            }
        };
        if let Some(grh) = grh {
            av.set_grh(true)
                .set_tclass(grh.tclass)
                .set_hop_limit(grh.hop_limit)
                .set_src_addr_index(grh.sgid_index);
            av.try_set_flow_label(grh.flow_label).map_err(refused)?;
            *av.rgid_mut() = grh.dgid;
        }
        Ok(Self(av))
    }

    /// The same, looped back by the port itself.
    pub fn looped_back(mut self) -> Self {
        self.0.set_force_loopback(true);
        self
    }

    /// With the parameters that a driver of another kind made: 48 bytes of an address vector, whose
    /// key and number are replaced.
    pub fn from_bytes(bytes: [u8; UdAv::LEN]) -> Self {
        let mut av = UdAv::view(bytes);
        av.set_ext(true);
        Self(av)
    }

    #[inline(always)]
    pub(super) fn for_datagram(&self, to: Datagram, place: &mut [u8; UdAv::LEN]) {
        *place = *self.0.as_bytes();
        let mut av = UdAv::view_mut(place);
        av.set_qkey(to.qkey);
        // A `Number` fits 24 bits.
        let _ = av.try_set_dqpn(to.qpn.get());
    }

    #[inline(always)]
    pub(super) fn for_dc(&self, to: DcTarget, place: &mut [u8; DcAv::LEN]) {
        *place = *self.0.as_bytes();
        let mut av = DcAv::view_mut(place);
        av.set_dc_key(to.key);
        // A `Number` fits 24 bits.
        let _ = av.try_set_dctn(to.dctn.get());
    }
}

/// A queue pair for datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Its number.
    pub qpn: Number,
    /// Its key.
    pub qkey: u32,
}

/// A target of dynamic connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcTarget {
    /// Its number.
    pub dctn: Number,
    /// Its access key.
    pub key: u64,
}

/// The XRC segment for a shared receive queue.
#[inline(always)]
pub(super) fn xrc(srqn: Number) -> [u8; XrcSeg::LEN] {
    let mut segment = XrcSeg::new();
    // A `Number` fits 24 bits.
    let _ = segment.try_set_srqn(srqn.get());
    segment.into_bytes()
}

#[mlx5_rs_macros::suite(mlx5_rs_wqe_address)]
mod tests {
    use super::*;

    #[test]
    fn service_levels_of_roce_are_shifted() {
        let path = |sl| Path::Roce {
            mac: [2, 0, 0, 0, 0, 1],
            udp_sport: 0xc000,
            sl,
            grh: Grh::default(),
        };
        let av = AddressHandle::new(&path(5), 0).unwrap();
        assert_eq!(av.0.sl(), 10);
        assert_eq!(av.0.rlid(), 0xc000);
        assert!(av.0.grh());
        assert!(AddressHandle::new(&path(8), 0).is_err());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let path = |sl, path_bits, flow_label| Path::Ib {
            dlid: 1,
            sl,
            path_bits,
            grh: Some(Grh {
                flow_label,
                ..Grh::default()
            }),
        };
        assert!(AddressHandle::new(&path(15, 127, 0xf_ffff), 15).is_ok());
        for (bad, rate) in [
            (path(16, 0, 0), 0),
            (path(0, 128, 0), 0),
            (path(0, 0, 0x10_0000), 0),
            (path(0, 0, 0), 16),
        ] {
            assert!(AddressHandle::new(&bad, rate).is_err());
        }
    }
}
