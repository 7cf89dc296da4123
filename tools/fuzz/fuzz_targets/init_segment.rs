// SPDX-License-Identifier: GPL-2.0

//! The initialization segment: words 0x00, 0x04, 0x14, 0x1fc, 0xff8, 0xffc, 0x1010, and the health
//! buffer.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_pure::layouts::segment::{HealthAsserts, HealthBuffer, InitialSeg};
use mlx5_pure::segment::decode::{timeout_ms, Firmware, QueueShape};

fuzz_target!(|data: &[u8]| {
    let Some((words, health)) = data.split_first_chunk::<28>() else {
        return;
    };
    let word = |i: usize| {
        let bytes = words[4 * i..].first_chunk().expect("seven words");
        u32::from_be_bytes(*bytes)
    };
    let firmware = Firmware {
        major: InitialSeg::FW_REV_MAJOR.in_word().get(word(0)) as u16,
        minor: InitialSeg::FW_REV_MINOR.in_word().get(word(0)) as u16,
        subminor: InitialSeg::FW_REV_SUBMINOR.in_word().get(word(1)) as u16,
        cmd_interface_rev: InitialSeg::CMD_INTERFACE_REV.in_word().get(word(1)) as u16,
    };
    assert_eq!(firmware.to_string().matches('.').count(), 2);
    let shape = QueueShape {
        log_size: InitialSeg::LOG_CMDQ_SIZE.in_word().get(word(2)) as u8,
        log_stride: InitialSeg::LOG_CMDQ_STRIDE.in_word().get(word(2)) as u8,
    };
    if let Some((slots, stride)) = shape.check() {
        assert!(slots <= 32 && stride >= 64 && slots * stride <= 4096);
    }
    for word in [word(4), word(5)] {
        assert_ne!(timeout_ms(word), Some(0));
    }
    assert!(InitialSeg::HEALTH_COUNTER.in_word().get(word(6)) < 1 << 24);
    if let Some(health) = HealthBuffer::of(health) {
        assert!(!format!("{health:?}").is_empty());
    }
    if let Some(asserts) = HealthAsserts::of(health) {
        assert_eq!(asserts.assert_var().len(), 6);
    }
});
