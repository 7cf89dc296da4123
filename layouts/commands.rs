// SPDX-License-Identifier: GPL-2.0

//! The commands of bring-up and teardown, and their replies (hardware.md 2.3 to 2.5, 3.2).

use super::ifc;
use super::wqe::Mkc;
use mlx5_rs_macros::layout;

layout! {
    /// ENABLE_HCA (hardware.md 2.5).
    pub struct EnableHcaIn = enable_hca_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        op_mod: u16,
        embedded_cpu_function: bool,
        /// 1 if `function_id` is a vhca id.
        function_id_type: bool,
        function_id: u16,
    }

    /// Reply to ENABLE_HCA.
    pub struct EnableHcaOut = enable_hca_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
    }

    /// DISABLE_HCA (hardware.md 2.5).
    pub struct DisableHcaIn = disable_hca_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        op_mod: u16,
        embedded_cpu_function: bool,
        /// 1 if `function_id` is a vhca id.
        function_id_type: bool,
        function_id: u16,
    }

    /// Reply to DISABLE_HCA.
    pub struct DisableHcaOut = disable_hca_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
    }

    /// QUERY_ISSI (hardware.md 2.3, 2.5).
    pub struct QueryIssiIn = query_issi_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        op_mod: u16,
    }

    /// Reply to QUERY_ISSI.
    pub struct QueryIssiOut = query_issi_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
        current_issi: u16,
        /// One bit per version; all zero means version 0 only.
        supported_issi_dw0: u32,
    }

    /// SET_ISSI (hardware.md 2.5).
    pub struct SetIssiIn = set_issi_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        op_mod: u16,
        current_issi: u16,
    }

    /// Reply to SET_ISSI.
    pub struct SetIssiOut = set_issi_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
    }

    /// QUERY_PAGES (hardware.md 2.5); `op_mod` is one of `BOOT_PAGES`, `INIT_PAGES`, `REGULAR_PAGES`.
    pub struct QueryPagesIn = query_pages_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        op_mod: u16,
        embedded_cpu_function: bool,
        function_id: u16,
    }

    /// Reply to QUERY_PAGES.
    pub struct QueryPagesOut = query_pages_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
        embedded_cpu_function: bool,
        function_id: u16,
        /// Pages of 4 KiB that the device wants; negative: that it gives back.
        num_pages: i32,
    }

    /// MANAGE_PAGES (hardware.md 2.5); `op_mod` is one of `CANNOT_GIVE`, `GIVE`, `TAKE`.
    pub struct ManagePagesIn = manage_pages_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        op_mod: u16,
        embedded_cpu_function: bool,
        function_id: u16,
        input_num_entries: u32,
        /// Addresses of the pages given.
        pas: [u64],
    }

    /// Reply to MANAGE_PAGES.
    pub struct ManagePagesOut = manage_pages_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
        output_num_entries: u32,
        /// Addresses of the pages taken back.
        pas: [u64],
    }

    /// ACCESS_REG (hardware.md 2.5); `op_mod` is 0 to write, 1 to read.
    pub struct AccessRegisterIn = access_register_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        op_mod: u16,
        /// A [`RegisterId`](super::own::RegisterId).
        register_id: u16,
        argument: u32,
        /// The register: see [`registers`](super::registers).
        register_data: [u32],
    }

    /// Reply to ACCESS_REG.
    pub struct AccessRegisterOut = access_register_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
        /// The register: see [`registers`](super::registers).
        register_data: [u32],
    }

    /// QUERY_HCA_CAP (hardware.md 2.3); `op_mod` is [`CapType::op_mod`](super::CapType::op_mod).
    pub struct QueryHcaCapIn = query_hca_cap_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        op_mod: u16,
        other_function: bool,
        ec_vf_function: bool,
        /// 1 if `function_id` is a vhca id.
        function_id_type: bool,
        function_id: u16,
    }

    /// Reply to QUERY_HCA_CAP.
    ///
    /// Not for the stack: 4112 bytes.
    pub struct QueryHcaCapOut = query_hca_cap_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
        /// The page: see [`caps`](super::caps).
        capability: [u8; 4096],
    }

    /// SET_HCA_CAP (hardware.md 2.3); `op_mod` is [`CapType::op_mod`](super::CapType::op_mod).
    ///
    /// Not for the stack: 4112 bytes.
    pub struct SetHcaCapIn = set_hca_cap_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        op_mod: u16,
        other_function: bool,
        ec_vf_function: bool,
        /// 1 if `function_id` is a vhca id.
        function_id_type: bool,
        function_id: u16,
        /// The page: see [`caps`](super::caps).
        capability: [u8; 4096],
    }

    /// Reply to SET_HCA_CAP.
    pub struct SetHcaCapOut = set_hca_cap_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
    }

    /// INIT_HCA (hardware.md 2.5).
    pub struct InitHcaIn = init_hca_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        op_mod: u16,
        sw_vhca_id: narrow u16,
        sw_owner_id: [u32; 4],
    }

    /// Reply to INIT_HCA.
    pub struct InitHcaOut = init_hca_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
    }

    /// TEARDOWN_HCA (hardware.md 2.4).
    pub struct TeardownHcaIn = teardown_hca_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        op_mod: u16,
        /// One of `GRACEFUL_CLOSE`, `FORCE_CLOSE`, `PREPARE_FAST_TEARDOWN`.
        profile: u16,
    }

    /// Reply to TEARDOWN_HCA.
    pub struct TeardownHcaOut = teardown_hca_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
        /// 1 if a forced or fast teardown did not succeed.
        state: bool,
    }

    /// SET_DRIVER_VERSION (hardware.md 2.3).
    pub struct SetDriverVersionIn = set_driver_version_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        op_mod: u16,
        /// Text, zero-terminated.
        driver_version: [u8; 64],
    }

    /// Reply to SET_DRIVER_VERSION.
    pub struct SetDriverVersionOut = set_driver_version_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
    }

    /// QUERY_ADAPTER (hardware.md 2.5).
    pub struct QueryAdapterIn = query_adapter_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        op_mod: u16,
    }

    /// Reply to QUERY_ADAPTER.
    pub struct QueryAdapterOut = query_adapter_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
        query_adapter_struct: QueryAdapterParamBlock,
    }

    /// What QUERY_ADAPTER reports.
    pub struct QueryAdapterParamBlock = query_adapter_param_block {
        ieee_vendor_id: narrow u32,
        vsd_vendor_id: u16,
        vsd: [u8; 208],
        /// Board id (PSID): text, padded with zeros.
        vsd_contd_psid: [u8; 16],
    }

    /// ALLOC_UAR (hardware.md 2.3).
    pub struct AllocUarIn = alloc_uar_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        uid: u16,
        op_mod: u16,
    }

    /// Reply to ALLOC_UAR.
    pub struct AllocUarOut = alloc_uar_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
        /// Index of the page in the UAR area of BAR 0.
        uar: narrow u32,
    }

    /// DEALLOC_UAR.
    pub struct DeallocUarIn = dealloc_uar_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        uid: u16,
        op_mod: u16,
        uar: narrow u32,
    }

    /// Reply to DEALLOC_UAR.
    pub struct DeallocUarOut = dealloc_uar_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
    }

    /// CREATE_EQ (hardware.md 3.2).
    pub struct CreateEqIn = create_eq_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        uid: u16,
        op_mod: u16,
        eq_context_entry: Eqc,
        /// One bit per event type: see [`EventType::mask_bit`](super::EventType::mask_bit).
        event_bitmask: [u64; 4],
        /// Addresses of the pages of the queue.
        pas: [u64],
    }

    /// Reply to CREATE_EQ.
    pub struct CreateEqOut = create_eq_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
        eq_number: u8,
    }

    /// DESTROY_EQ (hardware.md 3.2).
    pub struct DestroyEqIn = destroy_eq_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        op_mod: u16,
        eq_number: u8,
    }

    /// Reply to DESTROY_EQ.
    pub struct DestroyEqOut = destroy_eq_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
    }

    /// QUERY_EQ (hardware.md 3.2).
    pub struct QueryEqIn = query_eq_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        op_mod: u16,
        eq_number: u8,
    }

    /// Reply to QUERY_EQ.
    pub struct QueryEqOut = query_eq_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
        eq_context_entry: Eqc,
        event_bitmask: u64,
        pas: [u64],
    }

    /// GEN_EQE: the device posts the given entry (hardware.md 3.2).
    pub struct GenEqeIn = gen_eqe_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        op_mod: u16,
        eq_number: u8,
        eqe: [u8; 64],
    }

    /// CREATE_UCTX (hardware.md 9).
    pub struct CreateUctxIn = create_uctx_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        op_mod: u16,
        uctx: Uctx,
    }

    /// Reply to CREATE_UCTX.
    pub struct CreateUctxOut = create_uctx_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
        uid: u16,
    }

    /// DESTROY_UCTX (hardware.md 9).
    pub struct DestroyUctxIn = destroy_uctx_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        op_mod: u16,
        /// The user context; not the place of the uid in other commands.
        uid: u16,
    }

    /// Reply to DESTROY_UCTX.
    pub struct DestroyUctxOut = destroy_uctx_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
    }

    /// User context (hardware.md 9).
    pub struct Uctx = uctx {
        /// Rights: `MLX5_UCTX_CAP_*`.
        cap: u32,
    }

    /// ALLOC_PD (hardware.md 10.1).
    pub struct AllocPdIn = alloc_pd_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        uid: u16,
        op_mod: u16,
    }

    /// Reply to ALLOC_PD.
    pub struct AllocPdOut = alloc_pd_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
        pd: narrow u32,
    }

    /// DEALLOC_PD (hardware.md 10.1).
    pub struct DeallocPdIn = dealloc_pd_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        uid: u16,
        op_mod: u16,
        pd: narrow u32,
    }

    /// Reply to DEALLOC_PD.
    pub struct DeallocPdOut = dealloc_pd_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
    }

    /// CREATE_MKEY (hardware.md 10.1).
    pub struct CreateMkeyIn = create_mkey_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        uid: u16,
        op_mod: u16,
        /// The list's entries say which pages may be read and written.
        pg_access: bool,
        memory_key_mkey_entry: Mkc,
        /// Octowords of the list that follows.
        translations_octword_actual_size: u32,
        /// The list: of an MTT, two words per page.
        klm_pas_mtt: [u32],
    }

    /// Reply to CREATE_MKEY.
    pub struct CreateMkeyOut = create_mkey_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
        /// The upper 24 bits of the key.
        mkey_index: narrow u32,
    }

    /// DESTROY_MKEY (hardware.md 10.1).
    pub struct DestroyMkeyIn = destroy_mkey_in {
        /// See [`CmdIn`](super::command::CmdIn).
        opcode: u16,
        uid: u16,
        op_mod: u16,
        mkey_index: narrow u32,
    }

    /// Reply to DESTROY_MKEY.
    pub struct DestroyMkeyOut = destroy_mkey_out {
        /// See [`CmdOut`](super::command::CmdOut).
        status: u8,
        syndrome: u32,
    }

    /// Event queue context (hardware.md 3.2).
    pub struct Eqc = eqc {
        /// 0: in order; 0xa: write failure.
        status: narrow u8,
        ec: bool,
        /// Overrun is ignored.
        oi: bool,
        /// 9: armed; 0xa: fired.
        st: narrow u8,
        /// Units of 64 bytes.
        page_offset: narrow u8,
        log_eq_size: narrow u8,
        /// The UAR page whose doorbell the queue has.
        uar_page: narrow u32,
        /// MSI-X vector.
        intr: narrow u16,
        /// log2 of the page size, minus 12.
        log_page_size: narrow u8,
        consumer_counter: narrow u32,
        producer_counter: narrow u32,
    }
}

impl QueryPagesIn {
    /// `op_mod`: pages needed before the capabilities are set.
    pub const BOOT_PAGES: u16 = ifc::MLX5_QUERY_PAGES_IN_OP_MOD_BOOT_PAGES as u16;
    /// `op_mod`: pages needed for INIT_HCA.
    pub const INIT_PAGES: u16 = ifc::MLX5_QUERY_PAGES_IN_OP_MOD_INIT_PAGES as u16;
    /// `op_mod`: pages wanted in operation.
    pub const REGULAR_PAGES: u16 = ifc::MLX5_QUERY_PAGES_IN_OP_MOD_REGULAR_PAGES as u16;
}

impl ManagePagesIn {
    /// `op_mod`: the driver cannot give the pages that the device asked for.
    pub const CANNOT_GIVE: u16 = ifc::MLX5_MANAGE_PAGES_IN_OP_MOD_ALLOCATION_FAIL as u16;
    /// `op_mod`: the driver gives pages.
    pub const GIVE: u16 = ifc::MLX5_MANAGE_PAGES_IN_OP_MOD_ALLOCATION_SUCCESS as u16;
    /// `op_mod`: the driver takes pages back.
    pub const TAKE: u16 = ifc::MLX5_MANAGE_PAGES_IN_OP_MOD_HCA_RETURN_PAGES as u16;
}

impl AccessRegisterIn {
    /// `op_mod`: write the register.
    ///
    /// The headers have no name for it (hardware.md 2.5).
    pub const WRITE: u16 = 0;
    /// `op_mod`: read the register.
    ///
    /// The headers have no name for it (hardware.md 2.5).
    pub const READ: u16 = 1;
}

impl TeardownHcaIn {
    /// `profile`: everything in order.
    pub const GRACEFUL_CLOSE: u16 = ifc::MLX5_TEARDOWN_HCA_IN_PROFILE_GRACEFUL_CLOSE as u16;
    /// `profile`: at once, whatever is in use.
    pub const FORCE_CLOSE: u16 = ifc::MLX5_TEARDOWN_HCA_IN_PROFILE_FORCE_CLOSE as u16;
    /// `profile`: as `FORCE_CLOSE`, and the driver then disables the NIC interface.
    pub const PREPARE_FAST_TEARDOWN: u16 =
        ifc::MLX5_TEARDOWN_HCA_IN_PROFILE_PREPARE_FAST_TEARDOWN as u16;
}

#[mlx5_rs_macros::suite(mlx5_rs_layouts_commands)]
mod tests {
    use super::super::Overflow;
    use super::*;

    #[test]
    fn bytes_of_a_command() {
        let mut command = EnableHcaIn::new();
        command
            .set_opcode(super::super::Opcode::ENABLE_HCA.0)
            .set_embedded_cpu_function(true)
            .set_function_id(0x1234);
        assert_eq!(
            *command.as_bytes(),
            [1, 4, 0, 0, 0, 0, 0, 0, 0x80, 0, 0x12, 0x34, 0, 0, 0, 0]
        );
    }

    #[test]
    fn nested_structures_and_arrays() -> Result<(), Overflow> {
        let mut command = CreateEqIn::new();
        command.set_event_bitmask([1 << 0xa, 0, 0, 0x8000_0000_0000_0001]);
        let mut context = command.eq_context_entry_mut();
        context.try_set_log_eq_size(8)?.try_set_intr(0xfff)?;
        assert!(context.try_set_log_eq_size(32).is_err());
        assert_eq!(CreateEqIn::LEN, 272);
        let bytes = command.as_bytes();
        assert_eq!(bytes[0x10 + 0x0c], 8);
        assert_eq!(bytes[0x10 + 0x16..0x10 + 0x18], [0x0f, 0xff]);
        assert_eq!(bytes[0x5e..0x60], [0x04, 0]);
        assert_eq!(bytes[0x70], 0x80);
        let read = CreateEqIn::view(bytes);
        assert_eq!(read.eq_context_entry().log_eq_size(), 8);
        assert_eq!(read.event_bitmask()[3], 0x8000_0000_0000_0001);
        assert_eq!(CreateEqIn::PAS.len_with(3), Some(272 + 24));
        Ok(())
    }

    #[test]
    fn signed_numbers() {
        let mut reply = QueryPagesOut::new();
        reply.set_num_pages(-5);
        assert_eq!(reply.num_pages(), -5);
        assert_eq!(reply.as_bytes()[12..], [0xff, 0xff, 0xff, 0xfb]);
    }

    #[test]
    fn short_buffers_are_no_structure() {
        assert!(ManagePagesOut::of(&[0; 15]).is_none());
        assert!(ManagePagesOut::of(&[0; 17]).is_some());
    }

    #[test]
    fn bits_that_no_field_has() {
        let mut command = EnableHcaIn::new();
        command.set_function_id(0xffff);
        assert_eq!(EnableHcaIn::DESCRIPTION.stray_bit(command.as_bytes()), None);
        command.as_bytes_mut()[15] = 1;
        assert_eq!(
            EnableHcaIn::DESCRIPTION.stray_bit(command.as_bytes()),
            Some(127)
        );
    }
}
