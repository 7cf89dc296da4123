// SPDX-License-Identifier: GPL-2.0

//! Capability pages of QUERY_HCA_CAP and SET_HCA_CAP (hardware.md 2.3, 2.6).
//!
//! A page is 4096 bytes ([`PAGE_LEN`]); a structure that is shorter lies at its start. Pages stay in
//! the buffers they came in: views borrow them.

use mlx5_rs_macros::layout;

/// Bytes of a capability page.
pub const PAGE_LEN: usize = super::commands::QueryHcaCapOut::CAPABILITY.width / 8;

layout! {
    /// General device capabilities (type 0): the fields of hardware.md 2.6, and those that
    /// SET_HCA_CAP may change (2.3, step 12).
    pub struct CmdHcaCap = cmd_hca_cap {
        page_request_disable: bool,
        abs_native_port_num: bool,
        shared_object_to_user_object_allowed: bool,
        hca_cap_2: bool,
        dtor: bool,
        event_on_vhca_state_teardown_request: bool,
        event_on_vhca_state_in_use: bool,
        event_on_vhca_state_active: bool,
        event_on_vhca_state_allocated: bool,
        event_on_vhca_state_invalid: bool,
        vhca_id: u16,
        log_max_srq_sz: u8,
        log_max_qp_sz: u8,
        event_cap: bool,
        log_max_qp: narrow u8,
        ece_support: bool,
        log_max_srq: narrow u8,
        log_max_cq_sz: u8,
        relaxed_ordering_write_umr: bool,
        relaxed_ordering_read_umr: bool,
        log_max_cq: narrow u8,
        log_max_eq_sz: u8,
        relaxed_ordering_write: bool,
        log_max_mkey: narrow u8,
        fast_teardown: bool,
        log_max_eq: narrow u8,
        max_indirection: u8,
        fixed_buffer_size: bool,
        log_max_mrw_sz: narrow u8,
        force_teardown: bool,
        log_max_bsf_list_size: narrow u8,
        umr_extended_translation_offset: bool,
        null_mkey: bool,
        log_max_klm_list_size: narrow u8,
        log_max_ra_req_dc: narrow u8,
        log_max_ra_res_dc: narrow u8,
        release_all_pages: bool,
        log_max_ra_req_qp: narrow u8,
        log_max_ra_res_qp: narrow u8,
        end_pad: bool,
        cache_line_128byte: bool,
        qcam_reg: bool,
        gid_table_size: u16,
        debug: bool,
        pkey_table_size: u16,
        vport_group_manager: bool,
        vhca_group_manager: bool,
        ib_virt: bool,
        eth_virt: bool,
        nic_flow_table: bool,
        eswitch_manager: bool,
        device_memory: bool,
        mcam_reg: bool,
        pcam_reg: bool,
        local_ca_ack_delay: narrow u8,
        port_module_event: bool,
        port_type: narrow u8,
        num_ports: u8,
        pps: bool,
        log_max_msg: narrow u8,
        max_tc: narrow u8,
        temp_warn_event: bool,
        general_notification_event: bool,
        fpga: bool,
        stat_rate_support: u16,
        pci_sync_for_fw_update_event: bool,
        cqe_version: narrow u8,
        compact_address_vector: bool,
        umr_modify_entity_size_disabled: bool,
        umr_modify_atomic_disabled: bool,
        umr_indirect_mkey_disabled: bool,
        umr_fence: narrow u8,
        dc_req_scat_data_cqe: bool,
        drain_sigerr: bool,
        cmdif_checksum: narrow u8,
        sigerr_cqe: bool,
        sctr_data_cqe: bool,
        sho: bool,
        tph: bool,
        rf: bool,
        dct: bool,
        qos: bool,
        eth_net_offloads: bool,
        roce: bool,
        atomic: bool,
        cq_oi: bool,
        cq_resize: bool,
        cq_moderation: bool,
        pg: bool,
        block_lb_mc: bool,
        cd: bool,
        apm: bool,
        umr_ptr_rlky: bool,
        imaicl: bool,
        xrc: bool,
        ud: bool,
        uc: bool,
        rc: bool,
        uar_4k: bool,
        uar_sz: narrow u8,
        port_selection_cap: bool,
        log_pg_sz: u8,
        bf: bool,
        driver_version: bool,
        pad_tx_eth_packet: bool,
        mkey_by_name: bool,
        log_bf_reg_size: narrow u8,
        max_wqe_sz_sq: u16,
        icm_mng_function_id_mode: bool,
        max_wqe_sz_rq: u16,
        max_wqe_sz_sq_dc: u16,
        query_host_net_function_num_max: narrow u8,
        log_max_transport_domain: narrow u8,
        log_max_pd: narrow u8,
        pcie_reset_using_hotreset_method: bool,
        pci_sync_for_fw_update_with_driver_unload: bool,
        log_max_xrcd: narrow u8,
        roce_rw_supported: bool,
        nic_vport_change_event: bool,
        vhca_state: bool,
        query_host_net_function_v1: bool,
        general_obj_types: u64,
        log_max_uctx: narrow u8,
        log_max_umem: narrow u8,
        max_num_eqs: u16,
        log_uar_page_sz: u16,
        device_frequency_mhz: u32,
        device_frequency_khz: u32,
        num_of_uars_per_page: u32,
        adv_rdma: bool,
        adv_virtualization: bool,
        tag_matching: bool,
        rndv_offload_rc: bool,
        rndv_offload_dc: bool,
        log_tag_matching_list_sz: narrow u8,
        log_max_xrq: narrow u8,
        native_port_num: u8,
        num_vhca_ports: u8,
        sw_owner_id: bool,
        max_num_of_monitor_counters: u16,
        max_num_sf: u16,
        sf: bool,
        sf_set_partition: bool,
        max_num_sf_partitions: u8,
        uctx_cap: u32,
        sf_base_id: u16,
        num_total_dynamic_vf_msix: narrow u32,
        tls_tx: bool,
        tls_rx: bool,
    }

    /// General device capabilities, second page (type 0x20).
    pub struct CmdHcaCap2 = cmd_hca_cap_2 {
        query_vuid: bool,
        umr_log_entity_size_5: bool,
        sf_eq_usage: bool,
        sw_vhca_id_valid: bool,
        sw_vhca_id: narrow u16,
        max_num_eqs_24b: narrow u32,
        function_id_type_vhca_id: bool,
    }

    /// Atomic capabilities (type 3).
    pub struct AtomicCaps = atomic_caps {
        /// 0: big-endian; 1: as the host.
        atomic_req_8b_endianness_mode: narrow u8 = atomic_req_8B_endianness_mode,
        supported_atomic_req_8b_endianness_mode_1: bool =
            supported_atomic_req_8B_endianness_mode_1,
        atomic_operations: u16,
        atomic_size_qp: u16,
        atomic_size_dc: u16,
    }

    /// Ethernet offloads (type 1): what WQEs may ask for.
    pub struct EthernetCaps = per_protocol_networking_offload_caps {
        wqe_vlan_insert: bool,
        max_lso_cap: narrow u8,
        /// 0 layer 2, 1 by the vport, 2 none.
        wqe_inline_mode: narrow u8,
        reg_umr_sq: bool,
        swp: bool,
        swp_csum: bool,
        swp_lso: bool,
        insert_trailer: bool,
    }

    /// Debug capabilities (type 0xd).
    pub struct DebugCap = debug_cap {
        core_dump_general: bool,
        core_dump_qp: bool,
        resource_dump: bool,
    }

    /// RoCE capabilities (type 4).
    pub struct RoceCap = roce_cap {
        roce_apm: bool,
        sw_r_roce_src_udp_port: bool,
        fl_rc_qp_when_roce_disabled: bool,
        fl_rc_qp_when_roce_enabled: bool,
        roce_cc_general: bool,
        qp_ooo_transmit_default: bool,
        qp_ts_format: narrow u8,
        l3_type: narrow u8,
        roce_version: u8,
        r_roce_dest_udp_port: u16,
        r_roce_max_src_udp_port: u16,
        r_roce_min_src_udp_port: u16,
        roce_address_table_size: u16,
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_layouts_caps)]
mod tests {
    use super::*;

    #[test]
    fn places_of_the_fact_sheet() {
        assert_eq!(PAGE_LEN, 4096);
        let at = |field: super::super::Field| {
            let word = field.in_word();
            (word.offset, word.shift)
        };
        assert_eq!(at(CmdHcaCap::HCA_CAP_2), (0x004, 31));
        assert_eq!(at(CmdHcaCap::LOG_MAX_QP), (0x010, 0));
        assert_eq!(at(CmdHcaCap::RELEASE_ALL_PAGES), (0x028, 26));
        assert_eq!(at(CmdHcaCap::DCT), (0x040, 5));
        assert_eq!(at(CmdHcaCap::MKEY_BY_NAME), (0x04c, 25));
        assert_eq!(at(CmdHcaCap::ICM_MNG_FUNCTION_ID_MODE), (0x054, 31));
        assert_eq!(at(CmdHcaCap::SF_BASE_ID), (0x0dc, 0));
        assert_eq!(at(CmdHcaCap2::SW_VHCA_ID), (0x044, 16));
        assert_eq!(at(AtomicCaps::ATOMIC_SIZE_DC), (0x018, 0));
        assert_eq!(at(EthernetCaps::INSERT_TRAILER), (0x004, 21));
    }
}
