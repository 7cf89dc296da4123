// SPDX-License-Identifier: GPL-2.0

//! What MTRC_CAP says, and what to write for it (hardware.md 4).

use super::{
    block::BufferSize,
    event::Rules,
    timestamp::Timestamp53, //
};
use crate::layouts::tracer::{
    MtrcCap,
    MtrcConf,
    MtrcCtrl,
    MODIFY_TRACE_STATUS,
    TRACE_ON,
    TRACE_TO_MEMORY, //
};

/// What a device's tracer can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// The function that read it owns the tracer.
    pub owner: bool,
    /// It writes to memory, which is the only way that is supported.
    pub to_memory: bool,
    /// How its events are read.
    pub rules: Rules,
    /// log2 of the most units of 4 KiB that its buffer has.
    pub log_max_buffer: u8,
}

impl Capability {
    /// Reads the register.
    pub fn of(register: &MtrcCap) -> Self {
        Self {
            owner: register.trace_owner(),
            to_memory: register.trace_to_memory(),
            rules: Rules::of(register),
            log_max_buffer: register.log_max_trace_buffer_size(),
        }
    }
}

/// MTRC_CAP that asks for the tracer, or gives it back.
pub fn ownership(owner: bool) -> MtrcCap {
    let mut register = MtrcCap::new();
    register.set_trace_owner(owner);
    register
}

/// MTRC_CONF for a buffer of `size` behind `mkey`.
pub fn configuration(size: BufferSize, mkey: u32) -> MtrcConf {
    let mut register = MtrcConf::new();
    // One of four bits: it fits.
    let _ = register.try_set_trace_mode(TRACE_TO_MEMORY);
    register.set_log_trace_buffer_size(size.log_units());
    register.set_trace_mkey(mkey);
    register
}

/// MTRC_CTRL that switches the tracer on, with its event armed, or off.
pub fn switch(on: bool) -> MtrcCtrl {
    let mut register = MtrcCtrl::new();
    register.set_modify_field_select(MODIFY_TRACE_STATUS);
    // One of two bits: it fits.
    let _ = register.try_set_trace_status(if on { TRACE_ON } else { 0 });
    register.set_arm_event(on);
    register
}

/// MTRC_CTRL that arms the event, and changes nothing else.
pub fn arm() -> MtrcCtrl {
    let mut register = MtrcCtrl::new();
    register.set_arm_event(true);
    register
}

/// The device's time, as MTRC_CTRL has it.
pub fn current_time(register: &MtrcCtrl) -> Timestamp53 {
    Timestamp53::new(
        u64::from(register.current_timestamp52_32()) << 32
            | u64::from(register.current_timestamp31_0()),
    )
}

#[mlx5_rs_macros::suite(mlx5_rs_tracer_capability)]
mod tests {
    use super::*;

    // Bytes as hardware.md 4 has them.
    #[test]
    fn registers() {
        let mut cap = MtrcCap::new();
        cap.as_bytes_mut()[..12].copy_from_slice(&[0xc1, 0, 0, 3, 0x10, 0x20, 0, 0, 0, 0, 0, 9]);
        let read = Capability::of(&cap);
        assert!(read.owner && read.to_memory);
        assert_eq!(read.log_max_buffer, 9);
        assert_eq!(read.rules, Rules::new(1, 0x10, 0x20));
        assert!(ownership(true).as_bytes()[0] == 0x80);
        assert!(ownership(false).as_bytes().iter().all(|byte| *byte == 0));
        let conf = configuration(BufferSize::new(6, 9), 0x1234_5678);
        assert_eq!(
            conf.as_bytes()[..12],
            [0, 0, 0, 1, 0, 0, 0, 6, 0x12, 0x34, 0x56, 0x78]
        );
        assert_eq!(switch(true).as_bytes()[..4], [0x48, 0, 0, 1]);
        assert_eq!(switch(false).as_bytes()[..4], [0, 0, 0, 1]);
        assert_eq!(arm().as_bytes()[..4], [0x08, 0, 0, 0]);
        let mut ctrl = MtrcCtrl::new();
        ctrl.as_bytes_mut()[8..16].copy_from_slice(&[0, 0x1f, 0xff, 0xff, 1, 2, 3, 4]);
        assert_eq!(current_time(&ctrl), Timestamp53::new(0x1f_ffff_0102_0304));
    }

    #[test]
    fn sizes() {
        for (wanted, max, log, blocks) in [
            (6, 6, 6, 1024),
            (6, 9, 6, 1024),
            (6, 0, 0, 16),
            (20, 255, 10, 16384),
            (0, 255, 0, 16),
        ] {
            let size = BufferSize::new(wanted, max);
            assert_eq!((size.log_units(), size.blocks()), (log, blocks));
            assert_eq!(size.units() * 16, blocks as usize);
        }
    }
}
