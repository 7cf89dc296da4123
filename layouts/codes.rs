// SPDX-License-Identifier: GPL-2.0

//! Numbers that have names: opcodes, command status, events, registers, capability types.
//!
//! All sets are open: the device may send any number.

use super::ifc;
use mlx5_rs_macros::codes;

codes! {
    /// What a command is (hardware.md 2.2; `MLX5_CMD_OP_*` in `mlx5_ifc.h`).
    ///
    /// All opcodes of the header are here, so that a log line can name any.
    pub struct Opcode(u16) = MLX5_CMD_OP_ {
        QUERY_HCA_CAP,
        QUERY_ADAPTER,
        INIT_HCA,
        TEARDOWN_HCA,
        ENABLE_HCA,
        DISABLE_HCA,
        QUERY_PAGES,
        MANAGE_PAGES,
        SET_HCA_CAP,
        QUERY_ISSI,
        SET_ISSI,
        SET_DRIVER_VERSION,
        QUERY_SF_PARTITION,
        ALLOC_SF,
        DEALLOC_SF,
        SUSPEND_VHCA,
        RESUME_VHCA,
        QUERY_VHCA_MIGRATION_STATE,
        SAVE_VHCA_STATE,
        LOAD_VHCA_STATE,
        CREATE_MKEY,
        QUERY_MKEY,
        DESTROY_MKEY,
        QUERY_SPECIAL_CONTEXTS,
        PAGE_FAULT_RESUME,
        ALLOC_MEMIC,
        DEALLOC_MEMIC,
        MODIFY_MEMIC,
        CREATE_EQ,
        DESTROY_EQ,
        QUERY_EQ,
        GEN_EQE,
        CREATE_CQ,
        DESTROY_CQ,
        QUERY_CQ,
        MODIFY_CQ,
        CREATE_QP,
        DESTROY_QP,
        RST2INIT_QP,
        INIT2RTR_QP,
        RTR2RTS_QP,
        RTS2RTS_QP,
        SQERR2RTS_QP,
        TO_ERR_QP = MLX5_CMD_OP_2ERR_QP,
        TO_RST_QP = MLX5_CMD_OP_2RST_QP,
        QUERY_QP,
        SQD_RTS_QP,
        INIT2INIT_QP,
        CREATE_PSV,
        DESTROY_PSV,
        CREATE_SRQ,
        DESTROY_SRQ,
        QUERY_SRQ,
        ARM_RQ,
        CREATE_XRC_SRQ,
        DESTROY_XRC_SRQ,
        QUERY_XRC_SRQ,
        ARM_XRC_SRQ,
        CREATE_DCT,
        DESTROY_DCT,
        DRAIN_DCT,
        QUERY_DCT,
        ARM_DCT_FOR_KEY_VIOLATION,
        CREATE_XRQ,
        DESTROY_XRQ,
        QUERY_XRQ,
        ARM_XRQ,
        QUERY_XRQ_DC_PARAMS_ENTRY,
        SET_XRQ_DC_PARAMS_ENTRY,
        QUERY_XRQ_ERROR_PARAMS,
        RELEASE_XRQ_ERROR,
        MODIFY_XRQ,
        QUERY_DELEGATED_VHCA = MLX5_CMD_OPCODE_QUERY_DELEGATED_VHCA,
        CREATE_ESW_VPORT = MLX5_CMD_OPCODE_CREATE_ESW_VPORT,
        DESTROY_ESW_VPORT = MLX5_CMD_OPCODE_DESTROY_ESW_VPORT,
        QUERY_ESW_FUNCTIONS,
        QUERY_VPORT_STATE,
        MODIFY_VPORT_STATE,
        QUERY_ESW_VPORT_CONTEXT,
        MODIFY_ESW_VPORT_CONTEXT,
        QUERY_NIC_VPORT_CONTEXT,
        MODIFY_NIC_VPORT_CONTEXT,
        QUERY_ROCE_ADDRESS,
        SET_ROCE_ADDRESS,
        QUERY_HCA_VPORT_CONTEXT,
        MODIFY_HCA_VPORT_CONTEXT,
        QUERY_HCA_VPORT_GID,
        QUERY_HCA_VPORT_PKEY,
        QUERY_VNIC_ENV,
        QUERY_VPORT_COUNTER,
        ALLOC_Q_COUNTER,
        DEALLOC_Q_COUNTER,
        QUERY_Q_COUNTER,
        SET_MONITOR_COUNTER,
        ARM_MONITOR_COUNTER,
        SET_PP_RATE_LIMIT,
        QUERY_RATE_LIMIT,
        CREATE_SCHEDULING_ELEMENT,
        DESTROY_SCHEDULING_ELEMENT,
        QUERY_SCHEDULING_ELEMENT,
        MODIFY_SCHEDULING_ELEMENT,
        CREATE_QOS_PARA_VPORT,
        DESTROY_QOS_PARA_VPORT,
        ALLOC_PD,
        DEALLOC_PD,
        ALLOC_UAR,
        DEALLOC_UAR,
        CONFIG_INT_MODERATION,
        ACCESS_REG,
        ATTACH_TO_MCG,
        DETACH_FROM_MCG,
        GET_DROPPED_PACKET_LOG,
        MAD_IFC,
        QUERY_MAD_DEMUX,
        SET_MAD_DEMUX,
        NOP,
        ALLOC_XRCD,
        DEALLOC_XRCD,
        ALLOC_TRANSPORT_DOMAIN,
        DEALLOC_TRANSPORT_DOMAIN,
        QUERY_CONG_STATUS,
        MODIFY_CONG_STATUS,
        QUERY_CONG_PARAMS,
        MODIFY_CONG_PARAMS,
        QUERY_CONG_STATISTICS,
        ADD_VXLAN_UDP_DPORT,
        DELETE_VXLAN_UDP_DPORT,
        SET_L2_TABLE_ENTRY,
        QUERY_L2_TABLE_ENTRY,
        DELETE_L2_TABLE_ENTRY,
        SET_WOL_ROL,
        QUERY_WOL_ROL,
        CREATE_LAG,
        MODIFY_LAG,
        QUERY_LAG,
        DESTROY_LAG,
        CREATE_VPORT_LAG,
        DESTROY_VPORT_LAG,
        CREATE_TIR,
        MODIFY_TIR,
        DESTROY_TIR,
        QUERY_TIR,
        CREATE_SQ,
        MODIFY_SQ,
        DESTROY_SQ,
        QUERY_SQ,
        CREATE_RQ,
        MODIFY_RQ,
        SET_DELAY_DROP_PARAMS,
        DESTROY_RQ,
        QUERY_RQ,
        CREATE_RMP,
        MODIFY_RMP,
        DESTROY_RMP,
        QUERY_RMP,
        CREATE_TIS,
        MODIFY_TIS,
        DESTROY_TIS,
        QUERY_TIS,
        CREATE_RQT,
        MODIFY_RQT,
        DESTROY_RQT,
        QUERY_RQT,
        SET_FLOW_TABLE_ROOT,
        CREATE_FLOW_TABLE,
        DESTROY_FLOW_TABLE,
        QUERY_FLOW_TABLE,
        CREATE_FLOW_GROUP,
        DESTROY_FLOW_GROUP,
        QUERY_FLOW_GROUP,
        SET_FLOW_TABLE_ENTRY,
        QUERY_FLOW_TABLE_ENTRY,
        DELETE_FLOW_TABLE_ENTRY,
        ALLOC_FLOW_COUNTER,
        DEALLOC_FLOW_COUNTER,
        QUERY_FLOW_COUNTER,
        MODIFY_FLOW_TABLE,
        ALLOC_PACKET_REFORMAT_CONTEXT,
        DEALLOC_PACKET_REFORMAT_CONTEXT,
        QUERY_PACKET_REFORMAT_CONTEXT,
        ALLOC_MODIFY_HEADER_CONTEXT,
        DEALLOC_MODIFY_HEADER_CONTEXT,
        QUERY_MODIFY_HEADER_CONTEXT,
        FPGA_CREATE_QP,
        FPGA_MODIFY_QP,
        FPGA_QUERY_QP,
        FPGA_DESTROY_QP,
        FPGA_QUERY_QP_COUNTERS,
        CREATE_GENERAL_OBJECT,
        MODIFY_GENERAL_OBJECT,
        QUERY_GENERAL_OBJECT,
        DESTROY_GENERAL_OBJECT,
        CREATE_UCTX,
        DESTROY_UCTX,
        CREATE_UMEM,
        DESTROY_UMEM,
        SYNC_STEERING,
        PSP_GEN_SPI,
        PSP_ROTATE_KEY,
        QUERY_VHCA_STATE,
        MODIFY_VHCA_STATE,
        SYNC_CRYPTO,
        ALLOW_OTHER_VHCA_ACCESS,
        GENERATE_WQE,
        QUERY_VUID = MLX5_CMD_OPCODE_QUERY_VUID,
    }

    /// Status byte of a reply (hardware.md 2.2; `MLX5_CMD_STAT_*` in `device.h`).
    pub struct Status(u8) = MLX5_CMD_STAT_ {
        OK,
        INT_ERR,
        BAD_OP_ERR,
        BAD_PARAM_ERR,
        BAD_SYS_STATE_ERR,
        BAD_RES_ERR,
        RES_BUSY,
        NOT_READY,
        LIM_ERR,
        BAD_RES_STATE_ERR,
        IX_ERR,
        NO_RES_ERR,
        BAD_INP_LEN_ERR,
        BAD_OUTP_LEN_ERR,
        BAD_QP_STATE_ERR,
        BAD_PKT_ERR,
        BAD_SIZE_OUTS_CQES_ERR,
    }

    /// Type of an event queue entry (hardware.md 3.3; `MLX5_EVENT_TYPE_*` in `device.h`).
    pub struct EventType(u8) = MLX5_EVENT_TYPE_ {
        COMP,
        PATH_MIG,
        COMM_EST,
        SQ_DRAINED,
        CQ_ERROR,
        WQ_CATAS_ERROR,
        PATH_MIG_FAILED,
        INTERNAL_ERROR,
        PORT_CHANGE,
        CMD,
        PAGE_REQUEST,
        PAGE_FAULT,
        NIC_VPORT_CHANGE,
        ESW_FUNCTIONS_CHANGED,
        VHCA_STATE_CHANGE,
        WQ_INVAL_REQ_ERROR,
        WQ_ACCESS_ERROR,
        SRQ_CATAS_ERROR,
        SRQ_LAST_WQE,
        SRQ_RQ_LIMIT,
        GPIO_EVENT,
        PORT_MODULE_EVENT,
        TEMP_WARN_EVENT,
        XRQ_ERROR,
        REMOTE_CONFIG,
        DB_BF_CONGESTION,
        STALL_EVENT,
        DCT_DRAINED,
        DCT_KEY_VIOLATION,
        DROPPED_PACKET_LOGGED = MLX5_EVENT_TYPE_CODING_DROPPED_PACKET_LOGGED_EVENT,
        FPGA_ERROR,
        FPGA_QP_ERROR,
        GENERAL_EVENT,
        MONITOR_COUNTER,
        PPS_EVENT,
        DEVICE_TRACER,
        OBJECT_CHANGE,
    }

    /// Capability page (hardware.md 2.3; `enum mlx5_cap_type` in `device.h`).
    ///
    /// The op_mod of QUERY_HCA_CAP and SET_HCA_CAP is made of it: [`CapType::op_mod`].
    pub struct CapType(u8) = MLX5_CAP_ {
        GENERAL,
        ETHERNET_OFFLOADS,
        ODP,
        ATOMIC,
        ROCE,
        IPOIB_OFFLOADS,
        IPOIB_ENHANCED_OFFLOADS,
        FLOW_TABLE,
        ESWITCH_FLOW_TABLE,
        ESWITCH,
        QOS,
        DEBUG,
        DEV_MEM,
        TLS,
        VDPA_EMULATION,
        DEV_EVENT,
        IPSEC,
        CRYPTO,
        SHAMPO,
        PSP,
        MACSEC,
        GENERAL_2,
        PORT_SELECTION,
        ADV_VIRTUALIZATION,
        ADV_RDMA,
        TLP_EMULATION,
    }

    /// What firmware says of its own failure, in the health buffer (hardware.md 1.1).
    pub struct HealthSyndrome(u8) = MLX5_INITIAL_SEG_HEALTH_SYNDROME_ {
        FW_INTERNAL_ERR,
        DEAD_IRISC,
        HW_FATAL_ERR,
        FW_CRC_ERR,
        ICM_FETCH_PCI_ERR,
        ICM_PAGE_ERR,
        ASYNCHRONOUS_EQ_BUF_OVERRUN,
        EQ_IN_ERR,
        EQ_INV,
        FFSER_ERR,
        HIGH_TEMP_ERR,
        ICM_PCI_POISONED_ERR,
        TRUST_LOCKDOWN_ERR,
    }
}

impl Status {
    /// The errno (positive) that stands for this status (hardware.md 2.2); 0 for `OK`.
    ///
    /// A number that has no name gives `EIO`, as upstream's driver does.
    pub const fn errno(self) -> i32 {
        let errno = match self {
            Self::OK => 0,
            Self::BAD_OP_ERR
            | Self::BAD_PARAM_ERR
            | Self::BAD_RES_ERR
            | Self::BAD_RES_STATE_ERR
            | Self::IX_ERR
            | Self::BAD_QP_STATE_ERR
            | Self::BAD_PKT_ERR
            | Self::BAD_SIZE_OUTS_CQES_ERR => ifc::EINVAL,
            Self::RES_BUSY => ifc::EBUSY,
            Self::LIM_ERR => ifc::ENOMEM,
            Self::NOT_READY | Self::NO_RES_ERR => ifc::EAGAIN,
            _ => ifc::EIO,
        };
        errno as i32
    }
}

impl EventType {
    /// The bit of this event in the four words of `create_eq_in.event_bitmask`: word and mask.
    pub const fn mask_bit(self) -> (usize, u64) {
        (self.0 as usize / 64, 1 << (self.0 % 64))
    }
}

impl CapType {
    /// op_mod that reads the current values, or the maxima.
    ///
    /// SET_HCA_CAP takes the one of the maxima (hardware.md 2.3).
    pub const fn op_mod(self, current: bool) -> u16 {
        (self.0 as u16) << 1 | current as u16
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_codes)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_fact_sheet() {
        assert_eq!(Opcode::ENABLE_HCA.0, 0x104);
        assert_eq!(Opcode::CREATE_EQ.0, 0x301);
        assert_eq!(Opcode::ACCESS_REG.0, 0x805);
        assert_eq!(Status::BAD_OUTP_LEN_ERR.0, 0x51);
        assert_eq!(EventType::PAGE_REQUEST.0, 0xb);
        assert_eq!(CapType::GENERAL_2.0, 0x20);
    }

    #[test]
    fn names() {
        assert_eq!(Opcode::TO_ERR_QP.name(), Some("2ERR_QP"));
        assert_eq!(Opcode::QUERY_VUID.name(), Some("QUERY_VUID"));
        assert_eq!(Status(0x77).name(), None);
        assert_eq!(EventType(0).name(), Some("COMP"));
    }

    #[test]
    fn errno_of_the_fact_sheet() {
        const EIO: i32 = 5;
        const EAGAIN: i32 = 11;
        const ENOMEM: i32 = 12;
        const EBUSY: i32 = 16;
        const EINVAL: i32 = 22;
        let expected = [
            (0x00, 0),
            (0x01, EIO),
            (0x02, EINVAL),
            (0x03, EINVAL),
            (0x04, EIO),
            (0x05, EINVAL),
            (0x06, EBUSY),
            (0x07, EAGAIN),
            (0x08, ENOMEM),
            (0x09, EINVAL),
            (0x0a, EINVAL),
            (0x0b, EIO),
            (0x0f, EAGAIN),
            (0x10, EINVAL),
            (0x30, EINVAL),
            (0x40, EINVAL),
            (0x50, EIO),
            (0x51, EIO),
            (0xff, EIO),
        ];
        for (status, errno) in expected {
            assert_eq!(Status(status).errno(), errno);
        }
    }

    #[test]
    fn op_mods_and_masks() {
        assert_eq!(CapType::GENERAL.op_mod(true), 1);
        assert_eq!(CapType::GENERAL_2.op_mod(true), 0x41);
        assert_eq!(CapType::ATOMIC.op_mod(false), 6);
        assert_eq!(EventType::CMD.mask_bit(), (0, 1 << 0xa));
        assert_eq!(EventType(0xff).mask_bit(), (3, 1 << 63));
    }
}
