// SPDX-License-Identifier: GPL-2.0

//! The reply to ACCESS_REG, as each register that the driver reads.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_pure::layouts::commands::AccessRegisterOut;
use mlx5_pure::layouts::own::HostEndianness;
use mlx5_pure::layouts::registers::{DtorReg, McamReg};
use mlx5_pure::layouts::tracer::MtrcCap;

fuzz_target!(|data: &[u8]| {
    let words = AccessRegisterOut::REGISTER_DATA.iter(data);
    assert_eq!(
        words.len(),
        AccessRegisterOut::REGISTER_DATA.count_in(data.len())
    );
    let Some(register) = data.get(AccessRegisterOut::REGISTER_DATA.offset..) else {
        return;
    };
    if let Some(dtor) = DtorReg::of(register) {
        let limit = 0xf_ffff * 3_600_000;
        for timeout in [
            dtor.pcie_toggle_to(),
            dtor.health_poll_to(),
            dtor.tear_down_to(),
            dtor.reclaim_pages_to(),
            dtor.reset_unload_to(),
        ] {
            assert!(timeout.milliseconds().is_none_or(|ms| ms <= limit));
        }
        assert!(!format!("{dtor:?}").is_empty());
    }
    if let Some(mcam) = McamReg::of(register) {
        assert!(mcam.access_regs().tracer_registers() < 16);
    }
    if let Some(tracer) = MtrcCap::of(register) {
        let sections = (0..).map_while(|i| tracer.string_db_param(i)).count();
        assert_eq!(sections, 8);
        assert!(!format!("{tracer:?}").is_empty());
    }
    if let Some(endianness) = HostEndianness::of(register) {
        assert_eq!(endianness.he(), register[0] & 0x80 != 0);
    }
});
