// SPDX-License-Identifier: GPL-2.0

use mlx5_pure::layouts::segment::{HealthBuffer, InitialSeg, InitialSegC};
use mlx5_pure::segment::decode::{timeout_ms, Firmware, QueueShape};
use proptest::prelude::*;

proptest! {
    /// Any shape that is accepted fits the doorbell and one page of 4 KiB.
    #[test]
    fn queues_fit_a_page(word in any::<u32>()) {
        let shape = QueueShape {
            log_size: InitialSeg::LOG_CMDQ_SIZE.in_word().get(word) as u8,
            log_stride: InitialSeg::LOG_CMDQ_STRIDE.in_word().get(word) as u8,
        };
        prop_assert_eq!(u32::from(shape.log_size), word >> 4 & 0xf);
        prop_assert_eq!(u32::from(shape.log_stride), word & 0xf);
        if let Some((slots, stride)) = shape.check() {
            prop_assert!((2..=32).contains(&slots));
            prop_assert!(stride >= 64);
            prop_assert!(slots * stride <= 4096);
        }
    }

    #[test]
    fn timeouts(word in any::<u32>()) {
        let unit = match word >> 29 {
            0 => Some(1),
            1 => Some(1000),
            2 => Some(60_000),
            3 => Some(3_600_000),
            _ => None,
        };
        let expected = unit
            .map(|unit: u64| u64::from(word & 0xf_ffff) * unit)
            .filter(|ms| *ms != 0 && *ms <= u64::from(u32::MAX));
        prop_assert_eq!(timeout_ms(word).map(u64::from), expected);
    }

    #[test]
    fn versions_print(major in any::<u16>(), minor in any::<u16>(), subminor in any::<u16>()) {
        let firmware = Firmware { major, minor, subminor, cmd_interface_rev: 5 };
        prop_assert_eq!(firmware.to_string(), format!("{major}.{minor}.{subminor:04}"));
    }

    /// The words of the segment, by the byte offsets and bits of hardware.md 1.
    #[test]
    fn words(word in any::<u32>()) {
        let nic = InitialSeg::NIC_INTERFACE.in_word();
        prop_assert_eq!((nic.offset, nic.get(word)), (0x14, word >> 8 & 3));
        let minor = InitialSeg::FW_REV_MINOR.in_word();
        prop_assert_eq!((minor.offset, minor.get(word)), (0, word >> 16));
        let major = InitialSeg::FW_REV_MAJOR.in_word();
        prop_assert_eq!((major.offset, major.get(word)), (0, word & 0xffff));
        let counter = InitialSeg::HEALTH_COUNTER.in_word();
        prop_assert_eq!((counter.offset, counter.get(word)), (0x1010, word & 0xff_ffff));
        let embedded = InitialSeg::EMBEDDED_CPU.in_word();
        prop_assert_eq!((embedded.offset, embedded.get(word)), (0x1fc, word >> 23 & 1));
        prop_assert_eq!(InitialSegC::CMD_Q_INIT_TO.in_word().offset, 0xffc);
    }

    #[test]
    fn hostile_health_buffers(bytes in prop::collection::vec(any::<u8>(), 64)) {
        let health = HealthBuffer::of(&bytes).unwrap();
        prop_assert_eq!(health.synd(), bytes[0x3d]);
        prop_assert_eq!(health.rfr(), bytes[0x38] & 0x80 != 0);
        prop_assert_eq!(health.severity(), bytes[0x38] & 7);
        let text = format!("{health:?}");
        prop_assert!(text.starts_with("health_buffer"));
    }
}
