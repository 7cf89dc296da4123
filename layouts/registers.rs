// SPDX-License-Identifier: GPL-2.0

//! Registers behind ACCESS_REG (hardware.md 2.2, 2.5, 2.6); the tracer's are in
//! [`tracer`](super::tracer).

use mlx5_rs_macros::layout;

layout! {
    /// A timeout: `to_value` in a unit that `to_multiplier` gives (hardware.md 1).
    pub struct DefaultTimeout = default_timeout {
        /// 0: milliseconds; 1: seconds; 2: minutes; 3: hours.
        to_multiplier: narrow u8,
        to_value: narrow u32,
    }

    /// DTOR: the default timeouts.
    pub struct DtorReg = dtor_reg {
        pcie_toggle_to: DefaultTimeout,
        health_poll_to: DefaultTimeout,
        full_crdump_to: DefaultTimeout,
        fw_reset_to: DefaultTimeout,
        flush_on_err_to: DefaultTimeout,
        pci_sync_update_to: DefaultTimeout,
        tear_down_to: DefaultTimeout,
        fsm_reactivate_to: DefaultTimeout,
        reclaim_pages_to: DefaultTimeout,
        reclaim_vfs_pages_to: DefaultTimeout,
        reset_unload_to: DefaultTimeout,
    }

    /// MCAM: which management features and registers there are, by group.
    pub struct McamReg = mcam_reg {
        feature_group: u8,
        access_reg_group: u8,
        /// Registers, if `access_reg_group` is 0.
        access_regs: McamAccessReg = mng_access_reg_cap_mask.access_regs,
    }

    /// Registers of MCAM's group 0.
    pub struct McamAccessReg = mcam_access_reg {
        mcda: bool,
        mcc: bool,
        mcqi: bool,
        mcqs: bool,
        mpir: bool,
        mpegc: bool,
        mtutc: bool,
        /// One bit per register of the tracer, 0x9040 to 0x9043.
        tracer_registers: narrow u8,
        mrtc: bool,
        mfrl: bool,
        mtmp: bool,
    }
}

impl<B: core::borrow::Borrow<[u8; DefaultTimeout::LEN]>> DefaultTimeout<B> {
    /// The timeout in milliseconds; `None` for a unit that hardware.md does not have.
    pub fn milliseconds(&self) -> Option<u64> {
        let unit: u64 = match self.to_multiplier() {
            0 => 1,
            1 => 1000,
            2 => 60 * 1000,
            3 => 60 * 60 * 1000,
            _ => return None,
        };
        // 20 bits times 22 bits: no overflow.
        Some(u64::from(self.to_value()) * unit)
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_layouts_registers)]
mod tests {
    use super::*;

    #[test]
    fn timeouts() {
        let ms = |word: u32| DefaultTimeout::view(word.to_be_bytes()).milliseconds();
        assert_eq!(ms(60_000), Some(60_000));
        assert_eq!(ms(1 << 29 | 2), Some(2_000));
        assert_eq!(ms(2 << 29 | 5), Some(300_000));
        assert_eq!(ms(3 << 29 | 0xf_ffff), Some(0xf_ffff * 3_600_000));
        assert_eq!(ms(4 << 29 | 1), None);
        assert_eq!(DtorReg::LEN, 64);
        assert_eq!(DtorReg::RESET_UNLOAD_TO.offset, 0x38 * 8);
    }

    #[test]
    fn groups_of_registers() {
        assert_eq!(McamReg::ACCESS_REGS.offset, 8 * 8);
        let mut registers = McamAccessReg::new();
        assert!(registers.try_set_tracer_registers(0xf).is_ok());
        assert_eq!(registers.as_bytes()[0x0f - 8], 0xf);
    }
}
