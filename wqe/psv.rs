// SPDX-License-Identifier: GPL-2.0

//! Signatures: PSVs, BSFs, and the state of offloaded flows (hardware.md 5.10).

use super::{
    number::Number,
    segment::Segment,
    violation::{
        Expected,
        Violation, //
    }, //
};
use crate::layouts::wqe::{
    BsfInl,
    BsfSeg,
    NvmeTcpProgressSeg,
    SetPsvSeg,
    TlsProgressParams,
    TlsProgressSeg,
    TlsStaticParams, //
};

/// A PSV (processed signature value), of a protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Psv {
    /// Its number.
    pub index: Number,
    /// The protection domain that it was created in.
    pub pd: Number,
}

/// A new value of a PSV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetPsv {
    /// Which one.
    pub psv: Psv,
    /// Guard of the block.
    pub block_guard: u16,
    /// Application tag.
    pub app_tag: u16,
    /// Reference tag.
    pub ref_tag: u32,
}

impl SetPsv {
    pub(super) fn segment(&self, queue_pd: Number) -> Result<[u8; SetPsvSeg::LEN], Violation> {
        if self.psv.pd != queue_pd {
            return Err(Violation {
                segment: Segment::SetPsv,
                offset: SetPsvSeg::PSV_INDEX.offset / 8,
                field: "pd of psv_index",
                value: u64::from(self.psv.pd.get()),
                expected: Expected::Exactly(u64::from(queue_pd.get())),
            });
        }
        let mut segment = SetPsvSeg::new();
        // A `Number` fits 24 bits.
        let _ = segment.try_set_psv_index(self.psv.index.get());
        segment
            .set_block_guard(self.block_guard)
            .set_app_tag(self.app_tag)
            .set_ref_tag(self.ref_tag);
        Ok(segment.into_bytes())
    }
}

/// Which side of an offloaded flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Sending: number of a TIS.
    Tis(Number),
    /// Receiving: number of a TIR.
    Tir(Number),
}

impl Flow {
    pub(super) const fn number(self) -> Number {
        match self {
            Self::Tis(number) | Self::Tir(number) => number,
        }
    }

    /// Operation modifier of TLS parameters (`MLX5_OPC_MOD_TLS_*`).
    pub(super) const fn opmod(self) -> u8 {
        match self {
            Self::Tis(_) => 1,
            Self::Tir(_) => 2,
        }
    }
}

/// Progress of a TLS flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlsProgress {
    /// TCP sequence number of the next record.
    pub next_record_tcp_sn: u32,
    /// Where hardware resynchronised.
    pub hw_resync_tcp_sn: u32,
    /// 0 start, 1 tracking, 2 searching.
    pub record_tracker_state: u8,
    /// 0 no offload, 1 offload, 2 authentication failed.
    pub auth_state: u8,
    /// 24 bits.
    pub hw_offset_record_number: Number,
}

impl TlsProgress {
    pub(super) fn segment(&self, flow: Flow) -> Result<[u8; TlsProgressSeg::LEN], Violation> {
        let refused = |overflow| Violation::overflow(Segment::TlsProgress, overflow);
        let mut params = TlsProgressParams::new();
        params
            .set_next_record_tcp_sn(self.next_record_tcp_sn)
            .set_hw_resync_tcp_sn(self.hw_resync_tcp_sn);
        params
            .try_set_record_tracker_state(self.record_tracker_state)
            .map_err(refused)?;
        params
            .try_set_auth_state(self.auth_state)
            .map_err(refused)?;
        params
            .try_set_hw_offset_record_number(self.hw_offset_record_number.get())
            .map_err(refused)?;
        let mut segment = TlsProgressSeg::new();
        segment
            .try_set_tis_tir_num(flow.number().get())
            .map_err(refused)?;
        *segment.params_mut().as_bytes_mut() = params.into_bytes();
        Ok(segment.into_bytes())
    }
}

/// Progress of an NVMe-TCP flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NvmeTcpProgress {
    /// TCP sequence number of the next PDU.
    pub next_pdu_tcp_sn: u32,
    /// Where hardware resynchronised.
    pub hw_resync_tcp_sn: u32,
    /// 0 start, 1 tracking, 2 searching.
    pub pdu_tracker_state: u8,
    /// 2 bits.
    pub offloading_state: u8,
    /// Command id or transfer tag.
    pub cccid_ttag: u16,
}

impl NvmeTcpProgress {
    /// Operation modifier: 3 and 4, next to TLS's 1 and 2 (the same patches as the layout).
    pub(super) const fn opmod(flow: Flow) -> u8 {
        flow.opmod() + 2
    }

    pub(super) fn segment(&self, flow: Flow) -> Result<[u8; NvmeTcpProgressSeg::LEN], Violation> {
        let refused = |overflow| Violation::overflow(Segment::NvmeTcpProgress, overflow);
        let mut segment = NvmeTcpProgressSeg::new();
        segment
            .try_set_tis_tir_num(flow.number().get())
            .map_err(refused)?;
        segment
            .try_set_pdu_tracker_state(self.pdu_tracker_state)
            .map_err(refused)?;
        segment
            .try_set_offloading_state(self.offloading_state)
            .map_err(refused)?;
        segment
            .set_next_pdu_tcp_sn(self.next_pdu_tcp_sn)
            .set_hw_resync_tcp_sn(self.hw_resync_tcp_sn)
            .set_cccid_ttag(self.cccid_ttag);
        Ok(segment.into_bytes())
    }
}

/// Version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TlsVersion {
    /// TLS 1.2.
    V1_2 = 2,
    /// TLS 1.3.
    V1_3 = 3,
}

/// Static parameters of a TLS flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsStatic {
    /// Version.
    pub version: TlsVersion,
    /// Record number at the start.
    pub initial_record_number: u64,
    /// TCP sequence number to resynchronise at.
    pub resync_tcp_sn: u32,
    /// Salt.
    pub gcm_iv: u32,
    /// Implicit part of the IV; TLS 1.3.
    pub implicit_iv: u64,
    /// Number of the data encryption key.
    pub dek: Number,
}

impl TlsStatic {
    pub(super) fn segment(&self) -> [u8; TlsStaticParams::LEN] {
        let mut params = TlsStaticParams::new();
        params
            .set_initial_record_number(self.initial_record_number)
            .set_resync_tcp_sn(self.resync_tcp_sn)
            .set_gcm_iv(self.gcm_iv)
            .set_implicit_iv(self.implicit_iv);
        // All fit; the constants and the standard (1: TLS) are upstream's.
        let _ = params.try_set_const_2(2);
        let _ = params.try_set_const_1(1);
        let _ = params.try_set_encryption_standard(1);
        let _ = params.try_set_tls_version(self.version as u8);
        let _ = params.try_set_dek_index(self.dek.get());
        params.into_bytes()
    }
}

/// Bytes from one signature to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockSize {
    /// 512 bytes.
    B512 = 1,
    /// 520 bytes.
    B520 = 2,
    /// 4096 bytes.
    B4096 = 3,
    /// 4160 bytes.
    B4160 = 4,
    /// 1 GB: one signature at the end.
    G1 = 5,
    /// 4048 bytes (rdma-core).
    B4048 = 6,
}

/// Which guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Guard {
    /// CRC of T10-DIF.
    T10DifCrc = 1,
    /// Checksum of IP.
    IpChecksum = 2,
}

/// Which values of a block's tags mean that it is not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Escape {
    /// None.
    #[default]
    None = 0,
    /// The application tag is all ones.
    AppTag = 1,
    /// Application and reference tag are all ones.
    AppAndRefTag = 2,
}

/// T10-DIF of one domain, memory or wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dif {
    /// Block size.
    pub block: BlockSize,
    /// The PSV of the domain.
    pub psv: Psv,
    /// Guard.
    pub guard: Guard,
    /// The guard begins with all ones.
    pub seed_ones: bool,
    /// Application tag.
    pub app_tag: u16,
    /// Reference tag of the first block.
    pub ref_tag: u32,
    /// The reference tag grows with each block.
    pub ref_increment: bool,
    /// What is not checked.
    pub escape: Escape,
    /// Which bits of the application tag are checked.
    pub app_tag_mask: u16,
}

impl Dif {
    fn inline(&self) -> [u8; BsfInl::LEN] {
        let mut inline = BsfInl::new();
        inline
            .set_valid(true)
            .set_refresh(true)
            .set_dif_apptag(self.app_tag)
            .set_dif_reftag(self.ref_tag)
            .set_sig_type(self.guard as u8)
            .set_repeat_block(true)
            .set_seed(self.seed_ones)
            .set_inc_reftag(self.ref_increment)
            .set_dif_app_bitmask_check(self.app_tag_mask);
        // 2 bits hold the enum.
        let _ = inline.try_set_escape(self.escape as u8);
        inline.into_bytes()
    }
}

/// Which bytes of the signature are copied from memory to wire.
const COPY_GUARD: u8 = 0xc0;
const COPY_APP_TAG: u8 = 0x30;
const COPY_REF_TAG: u8 = 0x0f;

/// Byte stream format: signatures in memory and on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bsf {
    /// Bytes without signatures.
    pub data_size: u32,
    /// Which bytes of the signature that comes in are checked.
    pub check_mask: u8,
    /// Signature in memory.
    pub memory: Option<Dif>,
    /// Signature on the wire.
    pub wire: Option<Dif>,
}

impl Bsf {
    /// Every PSV has the domain of the queue, or the one that has not is refused.
    pub(super) fn segment(&self, queue_pd: Number) -> Result<[u8; BsfSeg::LEN], Violation> {
        let mut bsf = BsfSeg::new();
        // 2: basic, extended and inline parts.
        let _ = bsf.try_set_size(2);
        bsf.set_check_byte_mask(self.check_mask)
            .set_raw_data_size(self.data_size);
        let own = |dif: &Dif, field: crate::layouts::Field| {
            if dif.psv.pd != queue_pd {
                return Err(Violation::of(
                    Segment::Bsf,
                    field,
                    u64::from(dif.psv.pd.get()),
                    Expected::Exactly(u64::from(queue_pd.get())),
                ));
            }
            Ok(dif.psv.index.get())
        };
        if let Some(memory) = &self.memory {
            let psv = own(memory, BsfSeg::M_BFS_PSV)?;
            // A `Number` fits 24 bits.
            let _ = bsf.try_set_m_bfs_psv(psv);
            bsf.set_mem(memory.block as u8);
            *bsf.m_inl_mut().as_bytes_mut() = memory.inline();
        }
        if let Some(wire) = &self.wire {
            let psv = own(wire, BsfSeg::W_BFS_PSV)?;
            let _ = bsf.try_set_w_bfs_psv(psv);
            *bsf.w_inl_mut().as_bytes_mut() = wire.inline();
            match &self.memory {
                Some(memory) if memory.block == wire.block => {
                    let copy = |same: bool, bytes| if same { bytes } else { 0 };
                    // A guard that begins with another seed is another guard.
                    let guard = |dif: &Dif| (dif.guard, dif.seed_ones);
                    bsf.set_same_block(true).set_wire(
                        copy(guard(memory) == guard(wire), COPY_GUARD)
                            | copy(memory.app_tag == wire.app_tag, COPY_APP_TAG)
                            | copy(memory.ref_tag == wire.ref_tag, COPY_REF_TAG),
                    );
                }
                _ => {
                    bsf.set_wire(wire.block as u8);
                }
            }
        }
        Ok(bsf.into_bytes())
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_wqe_psv)]
mod tests {
    use super::*;

    fn dif() -> Dif {
        Dif {
            block: BlockSize::B512,
            psv: Psv {
                index: Number::low(1),
                pd: Number::low(7),
            },
            guard: Guard::T10DifCrc,
            seed_ones: false,
            app_tag: 1,
            ref_tag: 2,
            ref_increment: true,
            escape: Escape::None,
            app_tag_mask: 0xffff,
        }
    }

    /// What is the same in memory and on the wire is copied, and nothing else.
    #[test]
    fn copies() {
        let wire = |change: fn(&mut Dif)| {
            let mut wire = dif();
            change(&mut wire);
            let bsf = Bsf {
                data_size: 512,
                check_mask: 0xff,
                memory: Some(dif()),
                wire: Some(wire),
            };
            let bytes = bsf.segment(Number::low(7)).unwrap();
            let bsf = BsfSeg::view(bytes);
            (bsf.same_block(), bsf.wire())
        };
        assert_eq!(wire(|_| {}), (true, 0xff));
        assert_eq!(wire(|dif| dif.guard = Guard::IpChecksum), (true, 0x3f));
        // The same guard over the same bytes, but begun with another value.
        assert_eq!(wire(|dif| dif.seed_ones = true), (true, 0x3f));
        assert_eq!(wire(|dif| dif.app_tag = 3), (true, 0xcf));
        assert_eq!(wire(|dif| dif.ref_tag = 3), (true, 0xf0));
        // With other blocks there is no mask but their size.
        assert_eq!(wire(|dif| dif.block = BlockSize::B4096), (false, 3));
    }
}
