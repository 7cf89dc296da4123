// SPDX-License-Identifier: GPL-2.0

//! Initialization segment and health buffer (hardware.md 1), at offset 0 of BAR 0.
//!
//! The segment is read and written by big-endian 32-bit accesses, so its fields are used by their
//! constants: `InitialSeg::LOG_CMDQ_SIZE.in_word()`. The health buffer is small: code that has
//! copied it can use the view.

use mlx5_rs_macros::layout;

layout! {
    /// The initialization segment, as `mlx5_ifc.h` has it.
    ///
    /// Not for the stack: its constants are what is used.
    pub struct InitialSeg = initial_seg {
        fw_rev_minor: u16,
        fw_rev_major: u16,
        cmd_interface_rev: u16,
        fw_rev_subminor: u16,
        cmdq_phy_addr_63_32: u32,
        cmdq_phy_addr_31_12: narrow u32,
        /// The header has 2 bits; the field has 3: [`own::NIC_INTERFACE`](super::own).
        nic_interface: narrow u8,
        log_cmdq_size: narrow u8,
        log_cmdq_stride: narrow u8,
        /// One bit per command slot.
        command_doorbell_vector: u32,
        /// 1 while firmware is not ready.
        initializing: bool,
        /// One bit per value of `nic_interface`.
        nic_interface_supported: narrow u8,
        /// 1 on the function of the embedded CPU.
        embedded_cpu: bool,
        health_buffer: HealthBuffer,
        no_dram_nic_offset: u32,
        clear_int: bool,
        health_syndrome: u8,
        /// Counts modulo 2^24.
        health_counter: narrow u32,
    }

    /// What `device.h` has of the initialization segment and `mlx5_ifc.h` has not.
    ///
    /// Not for the stack: its constants are what is used.
    pub struct InitialSegC = struct mlx5_init_seg {
        /// Command timeout: a [`DefaultTimeout`](super::registers::DefaultTimeout).
        cmd_exec_to: u32,
        /// Initialization timeout, as `cmd_exec_to`; 0 if timeouts are not supported.
        cmd_q_init_to: u32,
        internal_timer_h: u32,
        internal_timer_l: u32,
        /// The word with syndrome and counter.
        health_counter: u32,
        /// Seconds (UTC).
        real_time_h: u32,
        /// Nanoseconds.
        real_time_l: u32,
    }

    /// The health buffer, as `mlx5_ifc.h` has it.
    pub struct HealthBuffer = health_buffer {
        assert_existptr: u32,
        assert_callra: u32,
        /// Seconds since 1970, of the error; 0 on older firmware.
        time: u32,
        /// All ones if the device cannot be reached.
        fw_version: u32,
        hw_id: u32,
        /// Recovery needs a reset.
        rfr: bool,
        /// `severity` is valid.
        valid: bool,
        /// 0 (emergency) to 7 (debug), as in syslog.
        severity: narrow u8,
        irisc_index: u8,
        synd: u8,
        ext_synd: u16,
    }

    /// What `device.h` has of the health buffer and `mlx5_ifc.h` has not.
    pub struct HealthAsserts = struct health_buffer {
        assert_var: [u32; 6],
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_layouts_segment)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_fact_sheet() {
        let word = InitialSeg::LOG_CMDQ_SIZE.in_word();
        assert_eq!(word.offset, 0x14);
        assert_eq!(word.mask, 0xf0);
        assert_eq!(InitialSeg::INITIALIZING.in_word().offset, 0x1fc);
        assert_eq!(InitialSeg::INITIALIZING.in_word().mask, 1 << 31);
        assert_eq!(InitialSeg::HEALTH_BUFFER.offset, 0x200 * 8);
        assert_eq!(InitialSeg::HEALTH_COUNTER.in_word().offset, 0x1010);
        assert_eq!(InitialSegC::CMD_EXEC_TO.in_word().offset, 0xff8);
        assert_eq!(InitialSegC::HEALTH_COUNTER.in_word().offset, 0x1010);
        let synd = HealthBuffer::SYND
            .inside(InitialSeg::HEALTH_BUFFER)
            .in_word();
        assert_eq!(synd.offset, 0x23c);
        assert_eq!(synd.mask, 0x00ff_0000);
    }
}
