// SPDX-License-Identifier: GPL-2.0

//! Event queue entries (hardware.md 3.1, 3.3). The context of a queue is
//! [`Eqc`](super::commands::Eqc).

use mlx5_rs_macros::layout;

layout! {
    /// An event queue entry.
    pub struct Eqe = struct mlx5_eqe {
        /// An [`EventType`](super::EventType).
        r#type: u8,
        sub_type: u8,
        /// What the event tells; the structures below are views of it.
        data: [u8; 28],
        signature: u8,
        /// Bit 0 alternates with each pass of the device over the queue.
        owner: u8,
    }

    /// Data of a completion event.
    pub struct EqeComp = struct mlx5_eqe_comp {
        /// 24 bits.
        cqn: u32,
    }

    /// Data of the events of queue pairs and shared receive queues.
    pub struct EqeQpSrq = struct mlx5_eqe_qp_srq {
        /// 0: QP; 1: RQ; 2: SQ; 6: DCT.
        r#type: u8,
        /// 24 bits.
        qp_srq_n: u32,
    }

    /// Data of a CQ error.
    pub struct EqeCqErr = struct mlx5_eqe_cq_err {
        /// 24 bits.
        cqn: u32,
        syndrome: u8,
    }

    /// Data of a port change.
    pub struct EqePortState = struct mlx5_eqe_port_state {
        /// The port is the high half.
        port: u8,
    }

    /// Data of a command completion.
    pub struct EqeCmd = struct mlx5_eqe_cmd {
        /// One bit per slot.
        vector: u32,
    }

    /// Data of a page request.
    pub struct EqePageReq = struct mlx5_eqe_page_req {
        /// Bit 15: `func_id` is one of the embedded CPU; bit 14: release all pages
        /// (hardware.md 2.5).
        ec_function: u16,
        func_id: u16,
        /// Positive: the device wants so many; negative: it gives back so many.
        num_pages: i32,
    }

    /// Data of a change of a NIC vport.
    pub struct EqeVportChange = struct mlx5_eqe_vport_change {
        vport_num: u16,
    }

    /// Data of a port module event.
    pub struct EqePortModule = struct mlx5_eqe_port_module {
        module: u8,
        module_status: u8,
        error_type: u8,
    }

    /// Data of a DCT event.
    pub struct EqeDct = struct mlx5_eqe_dct {
        /// 24 bits.
        dctn: u32,
    }

    /// Data of a temperature warning.
    pub struct EqeTempWarning = struct mlx5_eqe_temp_warning {
        sensor_warning_msb: u64,
        sensor_warning_lsb: u64,
    }

    /// Data of an XRQ error.
    pub struct EqeXrqErr = struct mlx5_eqe_xrq_err {
        /// Type of the error in bits 31 to 24, XRQ in bits 23 to 0.
        type_xrqn: u32,
    }

    /// Data of a change of a vHCA's state.
    pub struct EqeVhcaState = struct mlx5_eqe_vhca_state {
        ec_function: u16,
        function_id: u16,
    }

    /// Data of an object change.
    pub struct EqeObjChange = struct mlx5_eqe_obj_change {
        obj_type: u16,
        obj_id: u32,
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_layouts_events)]
mod tests {
    use super::*;

    #[test]
    fn places_of_the_fact_sheet() {
        let in_eqe = |field: super::super::Field| field.inside(Eqe::DATA).offset / 8;
        assert_eq!(Eqe::LEN, 64);
        assert_eq!(Eqe::TYPE.offset, 8);
        assert_eq!(Eqe::OWNER.offset, 0x3f * 8);
        assert_eq!(in_eqe(EqeComp::CQN), 0x38);
        assert_eq!(in_eqe(EqeQpSrq::TYPE), 0x34);
        assert_eq!(in_eqe(EqeCqErr::SYNDROME), 0x2b);
        assert_eq!(in_eqe(EqePortState::PORT), 0x28);
        assert_eq!(in_eqe(EqePageReq::NUM_PAGES), 0x24);
        assert_eq!(in_eqe(EqeVportChange::VPORT_NUM), 0x22);
        assert_eq!(in_eqe(EqePortModule::ERROR_TYPE), 0x26);
        assert_eq!(in_eqe(EqeDct::DCTN), 0x38);
        assert_eq!(in_eqe(EqeXrqErr::TYPE_XRQN), 0x34);
        assert_eq!(in_eqe(EqeObjChange::OBJ_ID), 0x24);
    }
}
