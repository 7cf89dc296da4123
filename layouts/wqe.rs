// SPDX-License-Identifier: GPL-2.0

//! Segments of work queue elements (hardware.md 5).
//!
//! `qp.h` has most of them as C structs, whose words hold several fields each; the bits within a
//! word are hardware.md's. A word that means different things in different WQEs has one field here,
//! or one structure for each meaning.

use mlx5_rs_macros::{
    codes,
    layout, //
};

codes! {
    /// What a WQE does (hardware.md 5.2).
    pub struct WqeOpcode(u8) = MLX5_OPCODE_ {
        NOP,
        SEND_INVAL,
        RDMA_WRITE,
        RDMA_WRITE_IMM,
        SEND,
        SEND_IMM,
        LSO,
        RDMA_READ,
        ATOMIC_CS,
        ATOMIC_FA,
        ATOMIC_MASKED_CS,
        ATOMIC_MASKED_FA,
        BIND_MW,
        CONFIG_CMD,
        SET_PSV,
        GET_PSV,
        CHECK_PSV,
        DUMP,
        UMR,
        RGET_PSV,
        RCHECK_PSV,
        ENHANCED_MPSW,
        FLOW_TBL_ACCESS,
        ACCESS_ASO,
    }
}

/// Opcodes that the kernel's header lacks (hardware.md 5.2).
impl WqeOpcode {
    /// Waits for a completion queue, data or time.
    pub const WAIT: Self = Self(0x0f);
    /// Lets a receive queue go on.
    pub const RECV_EN: Self = Self(0x16);
    /// Lets a send queue go on.
    pub const SEND_EN: Self = Self(0x17);
    /// Registers memory; older than UMR.
    pub const FMR: Self = Self(0x19);
    /// Invalidates a key; drivers use UMR for it.
    pub const LOCAL_INVAL: Self = Self(0x1b);
    /// Tag matching of an XRQ.
    pub const TAG_MATCHING: Self = Self(0x28);
    /// Memory to memory operations.
    pub const MMO: Self = Self(0x2f);

    /// Those, with their names.
    pub const OWN: &'static [(Self, &'static str)] = &[
        (Self::WAIT, "WAIT"),
        (Self::RECV_EN, "RECV_EN"),
        (Self::SEND_EN, "SEND_EN"),
        (Self::FMR, "FMR"),
        (Self::LOCAL_INVAL, "LOCAL_INVAL"),
        (Self::TAG_MATCHING, "TAG_MATCHING"),
        (Self::MMO, "MMO"),
    ];

    /// The name of this opcode, also if the kernel's header lacks it.
    pub fn label(self) -> &'static str {
        self.name()
            .or_else(|| {
                Self::OWN
                    .iter()
                    .find(|(code, _)| *code == self)
                    .map(|(_, name)| *name)
            })
            .unwrap_or("unknown")
    }
}

layout! {
    /// Control segment, the first of each WQE (hardware.md 5.2).
    pub struct CtrlSeg = struct mlx5_wqe_ctrl_seg {
        opmod: u8 = opmod_idx_opcode @ 0..8,
        /// Producer counter of the queue, in basic blocks, at this WQE.
        wqe_index: u16 = opmod_idx_opcode @ 8..24,
        /// A [`WqeOpcode`].
        opcode: u8 = opmod_idx_opcode @ 24..32,
        /// Number of the queue pair or send queue.
        qpn: narrow u32 = qpn_ds @ 0..24,
        /// Length in units of 16 bytes, this segment included.
        ds: narrow u8 = qpn_ds @ 26..32,
        /// Bitwise NOT of the xor of all bytes, if the queue has signatures; else 0.
        signature: u8 = __bindgen_anon_1.trailer.signature,
        /// DC initiators with streams only.
        dci_stream_channel_id: u16 = __bindgen_anon_1.trailer.rsvd @ 0..16,
        /// 0 none, 1 initiator small, 2 fence, 3 strong ordering, 4 small and fence.
        fm: narrow u8 = __bindgen_anon_1.trailer.fm_ce_se @ 0..3,
        /// 0 on error, 1 on first error, 2 always, 3 always and event.
        ce: narrow u8 = __bindgen_anon_1.trailer.fm_ce_se @ 4..6,
        /// Solicited event at the responder.
        se: bool = __bindgen_anon_1.trailer.fm_ce_se @ 6..7,
        /// Immediate data, key to invalidate, mkey of a UMR, or TIS or TIR number << 8.
        general_id: u32 = __bindgen_anon_1.trailer.__bindgen_anon_1.general_id,
    }

    /// Ethernet segment; the inline header goes on behind it (hardware.md 5.4).
    pub struct EthSeg = struct mlx5_wqe_eth_seg {
        /// In units of 2 bytes, as the next three.
        swp_outer_l4_offset: u8,
        swp_outer_l3_offset: u8,
        swp_inner_l4_offset: u8,
        swp_inner_l3_offset: u8,
        l4_csum: bool = cs_flags @ 0..1,
        l3_csum: bool = cs_flags @ 1..2,
        l4_inner_csum: bool = cs_flags @ 2..3,
        l3_inner_csum: bool = cs_flags @ 3..4,
        swp_outer_l4_udp: bool = swp_flags @ 2..3,
        swp_outer_l3_ipv6: bool = swp_flags @ 3..4,
        swp_inner_l4_udp: bool = swp_flags @ 6..7,
        swp_inner_l3_ipv6: bool = swp_flags @ 7..8,
        /// Bytes.
        mss: u16,
        flow_table_metadata: u32,
        /// The device inserts a VLAN tag: excludes an inline header.
        insert_vlan: bool = __bindgen_anon_1.trailer @ 0..1,
        /// The device appends the trailer in the first data segment.
        insert_trailer: bool = __bindgen_anon_1.trailer @ 1..2,
        /// 0 none, 1 outer IP, 2 outer L4, 3 inner IP, 4 inner L4.
        trailer_association: narrow u8 = __bindgen_anon_1.trailer @ 3..6,
        /// Bytes of the inline header; with `insert_vlan` 0 for 0x8100, 1 for 0x88a8.
        inline_size: narrow u16 = __bindgen_anon_1.trailer @ 6..16,
        /// First two bytes of the inline header, or the VLAN tag (PCP, DEI, VID).
        inline_start: u16 = __bindgen_anon_1.trailer @ 16..32,
    }

    /// Address vector of a datagram (hardware.md 5.5).
    pub struct UdAv = struct mlx5_av {
        qkey: u32 = key.qkey.qkey,
        /// All 48 bytes are there, not only the first 16.
        ext: bool = dqp_dct @ 0..1,
        dqpn: narrow u32 = dqp_dct @ 8..32,
        stat_rate: narrow u8 = stat_rate_sl @ 0..4,
        /// Shifted left by one on RoCE.
        sl: narrow u8 = stat_rate_sl @ 4..8,
        force_loopback: bool = fl_mlid @ 0..1,
        /// Source path bits.
        mlid: narrow u8 = fl_mlid @ 1..8,
        /// Remote LID, or UDP source port on RoCE v2.
        rlid: u16 = __bindgen_anon_1.rlid,
        rmac: [u8; 6],
        tclass: u8,
        hop_limit: u8,
        grh: bool = grh_gid_fl @ 1..2,
        src_addr_index: u8 = grh_gid_fl @ 4..12,
        flow_label: narrow u32 = grh_gid_fl @ 12..32,
        rgid: [u8; 16],
    }

    /// Address vector of a DC initiator: as [`UdAv`], with a key of 64 bits.
    pub struct DcAv = struct mlx5_av {
        dc_key: u64 = key.dc_key,
        /// All 48 bytes are there, not only the first 16.
        ext: bool = dqp_dct @ 0..1,
        dctn: narrow u32 = dqp_dct @ 8..32,
        stat_rate: narrow u8 = stat_rate_sl @ 0..4,
        /// Shifted left by one on RoCE.
        sl: narrow u8 = stat_rate_sl @ 4..8,
        force_loopback: bool = fl_mlid @ 0..1,
        /// Source path bits.
        mlid: narrow u8 = fl_mlid @ 1..8,
        /// Remote LID, or UDP source port on RoCE v2.
        rlid: u16 = __bindgen_anon_1.rlid,
        rmac: [u8; 6],
        tclass: u8,
        hop_limit: u8,
        grh: bool = grh_gid_fl @ 1..2,
        src_addr_index: u8 = grh_gid_fl @ 4..12,
        flow_label: narrow u32 = grh_gid_fl @ 12..32,
        rgid: [u8; 16],
    }

    /// The first 16 bytes of [`UdAv`] alone.
    pub struct UdBaseAv = struct mlx5_base_av {
        qkey: u32 = key.qkey.qkey,
        ext: bool = dqp_dct @ 0..1,
        dqpn: narrow u32 = dqp_dct @ 8..32,
        stat_rate: narrow u8 = stat_rate_sl @ 0..4,
        sl: narrow u8 = stat_rate_sl @ 4..8,
        force_loopback: bool = fl_mlid @ 0..1,
        mlid: narrow u8 = fl_mlid @ 1..8,
        rlid: u16 = __bindgen_anon_1.rlid,
    }

    /// The first 16 bytes of [`DcAv`] alone.
    pub struct DcBaseAv = struct mlx5_base_av {
        dc_key: u64 = key.dc_key,
        ext: bool = dqp_dct @ 0..1,
        dctn: narrow u32 = dqp_dct @ 8..32,
        stat_rate: narrow u8 = stat_rate_sl @ 0..4,
        sl: narrow u8 = stat_rate_sl @ 4..8,
        force_loopback: bool = fl_mlid @ 0..1,
        mlid: narrow u8 = fl_mlid @ 1..8,
        rlid: u16 = __bindgen_anon_1.rlid,
    }

    /// Shared receive queue at the other side of an XRC queue pair (hardware.md 5.3).
    pub struct XrcSeg = struct mlx5_wqe_xrc_seg {
        srqn: narrow u32 = xrc_srqn @ 8..32,
    }

    /// Remote address (hardware.md 5.5).
    pub struct RaddrSeg = struct mlx5_wqe_raddr_seg {
        raddr: u64,
        rkey: u32,
    }

    /// Atomic of 8 bytes (hardware.md 5.7).
    pub struct AtomicSeg = struct mlx5_wqe_atomic_seg {
        /// What to write, or to add.
        swap_add: u64,
        /// What must be there; compare-and-swap only.
        compare: u64,
    }

    /// Masked compare-and-swap of 4 bytes (hardware.md 5.7).
    pub struct MaskedCs4Seg = own[16] {
        swap: u32 @ 0..32,
        compare: u32 @ 32..64,
        swap_mask: u32 @ 64..96,
        compare_mask: u32 @ 96..128,
    }

    /// Masked compare-and-swap of 8 bytes (hardware.md 5.7).
    pub struct MaskedCs8Seg = struct mlx5_wqe_masked_atomic_seg {
        swap: u64 = swap_add,
        compare: u64,
        swap_mask: u64 = swap_add_mask,
        compare_mask: u64,
    }

    /// Masked fetch-and-add of 4 bytes (hardware.md 5.7).
    pub struct MaskedFa4Seg = own[16] {
        add: u32 @ 0..32,
        /// Bit set: the most significant bit of a field.
        field_boundary: u32 @ 32..64,
    }

    /// Masked fetch-and-add of 8 bytes (hardware.md 5.7).
    pub struct MaskedFa8Seg = own[16] {
        add: u64 @ 0..64,
        /// Bit set: the most significant bit of a field.
        field_boundary: u64 @ 64..128,
    }

    /// Data by address (hardware.md 5.6).
    pub struct DataSeg = struct mlx5_wqe_data_seg {
        /// The data follow instead: this is an [`InlineSeg`].
        inline: bool = byte_count @ 0..1,
        byte_count: narrow u32 @ 1..32,
        lkey: u32,
        addr: u64,
    }

    /// Head of inline data, which follow it (hardware.md 5.6).
    pub struct InlineSeg = struct mlx5_wqe_inline_seg {
        inline: bool = byte_count @ 0..1,
        byte_count: narrow u16 @ 22..32,
    }

    /// UMR control segment (hardware.md 5.8).
    pub struct UmrCtrlSeg = struct mlx5_wqe_umr_ctrl_seg {
        /// Translations are in the WQE, or there are none: no pointer.
        inline: bool = flags @ 0..1,
        /// 1: fail if the key is not free; 2: fail if it is.
        check_free: narrow u8 = flags @ 1..3,
        translation_offset_en: bool = flags @ 3..4,
        check_qpn: bool = flags @ 4..5,
        /// In units of 16 bytes, a multiple of 4.
        xlt_octowords: u16,
        /// BSF, or with `translation_offset_en` the low 16 bits of that offset; in units of 16
        /// bytes, a multiple of 4.
        bsf_octowords: u16 = __bindgen_anon_1.bsf_octowords,
        /// Which fields of the mkey context the device takes.
        mkey_mask: u64,
        /// Higher bits of the translation offset.
        xlt_offset_47_16: u32,
    }

    /// Context of a memory key (hardware.md 10.1).
    pub struct Mkc = mkc {
        free: bool,
        access_mode_4_2: narrow u8,
        relaxed_ordering_write: bool,
        small_fence_on_rdma_read_response: bool,
        umr_en: bool,
        /// Remote atomics.
        a: bool,
        /// Remote write.
        rw: bool,
        /// Remote read.
        rr: bool,
        /// Local write.
        lw: bool,
        /// Local read.
        lr: bool,
        access_mode_1_0: narrow u8,
        ma_translation_mode: narrow u8,
        /// 0xffffff: any.
        qpn: narrow u32,
        mkey_7_0: u8,
        length64: bool,
        bsf_en: bool,
        sync_umr: bool,
        expected_sigerr_count: bool,
        en_rinval: bool,
        pd: narrow u32,
        start_addr: u64,
        /// Bytes.
        length: u64 = len,
        /// In units of 16 bytes.
        bsf_octword_size: u32,
        crossing_target_vhca_id: u16,
        /// In units of 16 bytes.
        translations_octword_size: u32,
        relaxed_ordering_read: bool,
        log_page_size: narrow u8,
        pcie_tph_en: bool,
        pcie_tph_ph: narrow u8,
        pcie_tph_steering_tag_index: u8,
    }

    /// Translation entry: a page (hardware.md 5.9).
    pub struct Mtt = mtt {
        ptag_63_32: u32,
        ptag_31_8: narrow u32,
        wr_en: bool,
        rd_en: bool,
    }

    /// Translation entry: a range of another key (hardware.md 5.9).
    pub struct KlmSeg = struct mlx5_klm {
        /// At most 2 GiB.
        byte_count: u32 = bcount,
        key: u32,
        va: u64,
    }

    /// Translation entry: a range of fixed size of another key (hardware.md 5.9).
    pub struct KsmSeg = struct mlx5_ksm {
        key: u32,
        va: u64,
    }

    /// Head of a stride (repeat) block (hardware.md 5.9).
    pub struct StrideBlockCtrl = struct mlx5_stride_block_ctrl_seg {
        byte_count_per_cycle: u32 = bcount_per_cycle,
        /// 0x400.
        op: u32,
        repeat_count: u32,
        num_entries: u16,
    }

    /// Entry of a stride block (hardware.md 5.9).
    pub struct StrideBlockEntry = struct mlx5_stride_block_entry {
        /// Bytes from one to the next.
        stride: u16,
        byte_count: u16 = bcount,
        key: u32,
        va: u64,
    }

    /// Inline part of a BSF: one domain, memory or wire (hardware.md 5.10).
    pub struct BsfInl = struct mlx5_bsf_inl {
        valid: bool = vld_refresh @ 0..1,
        refresh: bool = vld_refresh @ 1..2,
        dif_apptag: u16,
        dif_reftag: u32,
        /// 1 T10-DIF CRC, 2 IP checksum.
        sig_type: u8,
        repeat_block: bool = rp_inv_seed @ 0..1,
        /// Seed of all ones.
        seed: bool = rp_inv_seed @ 4..5,
        inc_reftag: bool = dif_inc_ref_guard_check @ 1..2,
        /// 0 none, 1 application tag, 2 application and reference tag.
        escape: narrow u8 = dif_inc_ref_guard_check @ 6..8,
        dif_app_bitmask_check: u16,
    }

    /// Byte stream format: how signatures are checked and made (hardware.md 5.10).
    pub struct BsfSeg = struct mlx5_bsf {
        /// 2: basic, extended and inline parts; 3: with a [`CryptoBsfSeg`] behind it.
        size: narrow u8 = basic.bsf_size_sbs @ 0..2,
        /// Memory and wire have the same block structure.
        same_block: bool = basic.bsf_size_sbs @ 3..4,
        check_byte_mask: u8 = basic.check_byte_mask,
        /// With `same_block` the bytes to copy, else a block size selector.
        wire: u8 = basic.wire.copy_byte_mask,
        /// Block size selector.
        mem: u8 = basic.mem.bs_selector,
        raw_data_size: u32 = basic.raw_data_size,
        /// Block format selector: 0x20 CRC32, 0x40 CRC32C, 0x50 CRC64-XP10, with bits for repeat and
        /// seed (rdma-core); 0 for T10-DIF.
        w_bfs: u8 = basic.w_bfs_psv @ 0..8,
        w_bfs_psv: narrow u32 = basic.w_bfs_psv @ 8..32,
        m_bfs: u8 = basic.m_bfs_psv @ 0..8,
        m_bfs_psv: narrow u32 = basic.m_bfs_psv @ 8..32,
        t_init_gen_pro_size: u32 = ext.t_init_gen_pro_size,
        w_tfs_psv: narrow u32 = ext.w_tfs_psv @ 8..32,
        m_tfs_psv: narrow u32 = ext.m_tfs_psv @ 8..32,
        w_inl: BsfInl,
        m_inl: BsfInl,
    }

    /// BSF of encryption.
    ///
    /// Source: rdma-core (`struct mlx5_crypto_bsf`).
    pub struct CryptoBsfSeg = own[64] {
        /// 2: alone; 3: behind a [`BsfSeg`].
        size: narrow u8 @ 0..2,
        /// 1: this structure and no [`BsfSeg`].
        r#type: narrow u8 @ 4..8,
        /// 0 encrypted wire signature, 1 memory signature, 2 raw wire, 3 raw memory.
        enc_order: u8 @ 8..16,
        /// 0: AES-XTS.
        enc_standard: u8 @ 24..32,
        raw_data_size: u32 @ 32..64,
        /// Block size selector.
        bs_pointer: u8 @ 64..72,
        xts_init_tweak: [u8; 16] @ 128..256,
        /// Data encryption key.
        dek_pointer: narrow u32 @ 264..288,
        keytag: [u8; 8] @ 320..384,
    }

    /// SET_PSV segment (hardware.md 5.10).
    pub struct SetPsvSeg = struct mlx5_seg_set_psv {
        psv_index: narrow u32 = psv_num @ 8..32,
        syndrome: u16,
        status: u16,
        block_guard: u16 = transient_sig @ 0..16,
        app_tag: u16 = transient_sig @ 16..32,
        ref_tag: u32,
    }

    /// GET_PSV segment: writes PSVs to memory.
    pub struct GetPsvSeg = struct mlx5_seg_get_psv {
        num_psv: u8,
        l_key: u32,
        va: u64,
        psv_index: [u32; 4],
    }

    /// CHECK_PSV segment.
    pub struct CheckPsvSeg = struct mlx5_seg_check_psv {
        err_coalescing_op: u16,
        xport_err_op: u16,
        xport_err_mask: u16,
        num_psv: u8,
        l_key: u32,
        va: u64,
        psv_index: [u32; 4],
    }

    /// Static parameters of a TLS flow, behind the mkey context of a UMR.
    pub struct TlsStaticParams = tls_static_params {
        /// 2.
        const_2: narrow u8,
        /// 2: TLS 1.2; 3: TLS 1.3.
        tls_version: narrow u8,
        /// 1.
        const_1: narrow u8,
        /// 1: TLS.
        encryption_standard: narrow u8,
        initial_record_number: u64,
        resync_tcp_sn: u32,
        gcm_iv: u32,
        implicit_iv: u64,
        dek_index: narrow u32,
    }

    /// Progress parameters of a TLS flow.
    pub struct TlsProgressParams = tls_progress_params {
        next_record_tcp_sn: u32,
        hw_resync_tcp_sn: u32,
        /// 0 start, 1 tracking, 2 searching.
        record_tracker_state: narrow u8,
        /// 0 no offload, 1 offload, 2 authentication failed.
        auth_state: narrow u8,
        hw_offset_record_number: narrow u32,
    }

    /// SET_PSV segment with the progress of a TLS flow.
    ///
    /// Source: upstream's kTLS offload (a word with the number, then the parameters).
    pub struct TlsProgressSeg = own[16] {
        /// TIS or TIR, as in the operation modifier.
        tis_tir_num: narrow u32 @ 8..32,
        params: TlsProgressParams @ 32..128,
    }

    /// SET_PSV segment with the progress of an NVMe-TCP flow.
    ///
    /// Source: the NVMe-TCP offload patches for mlx5 on the netdev mailing list; not upstream.
    pub struct NvmeTcpProgressSeg = own[16] {
        /// TIS or TIR, as in the operation modifier.
        tis_tir_num: narrow u32 @ 8..32,
        next_pdu_tcp_sn: u32 @ 32..64,
        hw_resync_tcp_sn: u32 @ 64..96,
        /// 0 start, 1 tracking, 2 searching.
        pdu_tracker_state: narrow u8 @ 96..98,
        offloading_state: narrow u8 @ 98..100,
        cccid_ttag: u16 @ 112..128,
    }

    /// WAIT, SEND_EN and RECV_EN (hardware.md 5.2).
    pub struct WaitSeg = own[16] {
        /// Index in the queue to wait for, or up to which it may go on.
        index: u32 @ 64..96,
        /// Completion queue, or with SEND_EN and RECV_EN queue pair.
        number: narrow u32 @ 104..128,
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_layouts_wqe)]
mod tests {
    use super::*;

    #[test]
    fn places_of_the_fact_sheet() {
        let at = |field: super::super::Field| {
            let word = field.in_word();
            (word.offset, word.mask)
        };
        assert_eq!(at(CtrlSeg::OPMOD), (0, 0xff00_0000));
        assert_eq!(at(CtrlSeg::WQE_INDEX), (0, 0x00ff_ff00));
        assert_eq!(at(CtrlSeg::OPCODE), (0, 0xff));
        assert_eq!(at(CtrlSeg::QPN), (4, 0xffff_ff00));
        assert_eq!(at(CtrlSeg::DS), (4, 0x3f));
        assert_eq!(at(CtrlSeg::SIGNATURE), (8, 0xff00_0000));
        assert_eq!(at(CtrlSeg::DCI_STREAM_CHANNEL_ID), (8, 0x00ff_ff00));
        assert_eq!(at(CtrlSeg::FM), (8, 0xe0));
        assert_eq!(at(CtrlSeg::CE), (8, 0x0c));
        assert_eq!(at(CtrlSeg::SE), (8, 0x02));
        assert_eq!(at(CtrlSeg::GENERAL_ID), (12, 0xffff_ffff));
        assert_eq!(at(EthSeg::L4_CSUM), (4, 1 << 31));
        assert_eq!(at(EthSeg::L3_INNER_CSUM), (4, 1 << 28));
        assert_eq!(at(EthSeg::SWP_OUTER_L4_UDP), (4, 1 << 21));
        assert_eq!(at(EthSeg::SWP_INNER_L3_IPV6), (4, 1 << 16));
        assert_eq!(at(EthSeg::INSERT_VLAN), (12, 1 << 31));
        assert_eq!(at(EthSeg::INSERT_TRAILER), (12, 1 << 30));
        assert_eq!(at(EthSeg::TRAILER_ASSOCIATION), (12, 7 << 26));
        assert_eq!(at(EthSeg::INLINE_SIZE), (12, 0x3ff << 16));
        assert_eq!(at(EthSeg::INLINE_START), (12, 0xffff));
        assert_eq!(at(UdAv::EXT), (8, 1 << 31));
        assert_eq!(at(UdAv::GRH), (0x1c, 1 << 30));
        assert_eq!(at(UdAv::SRC_ADDR_INDEX), (0x1c, 0xff << 20));
        assert_eq!(at(UdAv::FLOW_LABEL), (0x1c, 0xf_ffff));
        assert_eq!(UdAv::RMAC.offset, 0x14 * 8);
        assert_eq!(UdAv::RGID.offset, 0x20 * 8);
        assert_eq!(DcAv::DC_KEY.offset, 0);
        assert_eq!(at(DataSeg::BYTE_COUNT), (0, 0x7fff_ffff));
        assert_eq!(at(InlineSeg::BYTE_COUNT), (0, 0x3ff));
        assert_eq!(at(UmrCtrlSeg::INLINE), (0, 1 << 31));
        assert_eq!(at(UmrCtrlSeg::CHECK_FREE), (0, 3 << 29));
        assert_eq!(at(UmrCtrlSeg::TRANSLATION_OFFSET_EN), (0, 1 << 28));
        assert_eq!(at(UmrCtrlSeg::CHECK_QPN), (0, 1 << 27));
        assert_eq!(at(UmrCtrlSeg::XLT_OCTOWORDS), (4, 0xffff_0000));
        assert_eq!(at(UmrCtrlSeg::BSF_OCTOWORDS), (4, 0xffff));
        assert_eq!(UmrCtrlSeg::MKEY_MASK.offset, 8 * 8);
        assert_eq!(UmrCtrlSeg::LEN, 48);
        assert_eq!(at(Mkc::FREE), (0, 1 << 30));
        assert_eq!(at(Mkc::LOG_PAGE_SIZE), (0x38, 0x3f));
        assert_eq!(at(BsfInl::SEED), (8, 1 << 19));
        assert_eq!(at(BsfSeg::SIZE), (0, 3 << 30));
        assert_eq!(at(BsfSeg::SAME_BLOCK), (0, 1 << 28));
        assert_eq!(BsfSeg::LEN, 64);
        assert_eq!(at(SetPsvSeg::PSV_INDEX), (0, 0x00ff_ffff));
        assert_eq!(at(WaitSeg::NUMBER), (12, 0x00ff_ffff));
        assert_eq!(MaskedCs8Seg::LEN, 32);
    }

    /// The bits within words, which the macro was told, against the header's constants for them.
    #[test]
    fn bits_of_the_header() {
        use super::super::ifc::*;
        let word = |field: super::super::Field| field.in_word().mask;
        // A byte is the first, second ... of its word.
        let byte = |field: super::super::Field| word(field) >> (24 - field.offset / 8 % 4 * 8);
        assert_eq!(word(CtrlSeg::OPCODE), MLX5_WQE_CTRL_OPCODE_MASK);
        assert_eq!(word(CtrlSeg::WQE_INDEX), MLX5_WQE_CTRL_WQE_INDEX_MASK);
        assert_eq!(word(CtrlSeg::QPN), MLX5_WQE_CTRL_QPN_MASK);
        assert_eq!(word(CtrlSeg::DS), MLX5_WQE_CTRL_DS_MASK);
        assert_eq!(word(CtrlSeg::SE), MLX5_WQE_CTRL_SOLICITED);
        assert_eq!(word(CtrlSeg::CE), MLX5_WQE_CTRL_CQ_UPDATE_AND_EQE);
        assert_eq!(
            CtrlSeg::FM.in_word().with(0, 4),
            Some(MLX5_FENCE_MODE_SMALL_AND_FENCE)
        );
        assert_eq!(byte(EthSeg::L4_CSUM), MLX5_ETH_WQE_L4_CSUM);
        assert_eq!(byte(EthSeg::L3_CSUM), MLX5_ETH_WQE_L3_CSUM);
        assert_eq!(byte(EthSeg::L4_INNER_CSUM), MLX5_ETH_WQE_L4_INNER_CSUM);
        assert_eq!(byte(EthSeg::L3_INNER_CSUM), MLX5_ETH_WQE_L3_INNER_CSUM);
        assert_eq!(
            byte(EthSeg::SWP_OUTER_L4_UDP),
            MLX5_ETH_WQE_SWP_OUTER_L4_UDP
        );
        assert_eq!(
            byte(EthSeg::SWP_OUTER_L3_IPV6),
            MLX5_ETH_WQE_SWP_OUTER_L3_IPV6
        );
        assert_eq!(
            byte(EthSeg::SWP_INNER_L4_UDP),
            MLX5_ETH_WQE_SWP_INNER_L4_UDP
        );
        assert_eq!(
            byte(EthSeg::SWP_INNER_L3_IPV6),
            MLX5_ETH_WQE_SWP_INNER_L3_IPV6
        );
        assert_eq!(word(EthSeg::INSERT_TRAILER), MLX5_ETH_WQE_INSERT_TRAILER);
        let association = EthSeg::TRAILER_ASSOCIATION.in_word();
        for (value, bits) in [
            (1, MLX5_ETH_WQE_TRAILER_HDR_OUTER_IP_ASSOC),
            (2, MLX5_ETH_WQE_TRAILER_HDR_OUTER_L4_ASSOC),
            (3, MLX5_ETH_WQE_TRAILER_HDR_INNER_IP_ASSOC),
            (4, MLX5_ETH_WQE_TRAILER_HDR_INNER_L4_ASSOC),
        ] {
            assert_eq!(association.with(0, value), Some(bits));
        }
        assert_eq!(
            word(InlineSeg::BYTE_COUNT),
            MLX5_WQE_INLINE_SEG_BYTE_COUNT_MASK
        );
        assert_eq!(byte(UmrCtrlSeg::INLINE), MLX5_UMR_INLINE);
        assert_eq!(
            byte(UmrCtrlSeg::CHECK_FREE),
            MLX5_UMR_CHECK_NOT_FREE | MLX5_UMR_CHECK_FREE
        );
        assert_eq!(
            byte(UmrCtrlSeg::TRANSLATION_OFFSET_EN),
            MLX5_UMR_TRANSLATION_OFFSET_EN
        );
        assert_eq!(word(BsfInl::VALID) >> 16, MLX5_BSF_INL_VALID);
        assert_eq!(word(BsfInl::REFRESH) >> 16, MLX5_BSF_REFRESH_DIF);
        assert_eq!(byte(BsfInl::REPEAT_BLOCK), MLX5_BSF_REPEAT_BLOCK);
        assert_eq!(byte(BsfInl::INC_REFTAG), MLX5_BSF_INC_REFTAG);
        assert_eq!(
            byte(BsfInl::ESCAPE),
            MLX5_BSF_APPTAG_ESCAPE | MLX5_BSF_APPREF_ESCAPE
        );
    }

    #[test]
    fn opcodes_have_names() {
        assert_eq!(WqeOpcode(0x25).label(), "UMR");
        assert_eq!(WqeOpcode(0x0f).label(), "WAIT");
        assert_eq!(WqeOpcode(0xff).label(), "unknown");
    }
}
