// SPDX-License-Identifier: GPL-2.0

use mlx5_pure::eq::eqe::{Event, EQE, OWNER_OFFSET};
use mlx5_pure::eq::mask;
use mlx5_pure::eq::ring::{Ring, OWNER_INIT};
use mlx5_pure::layouts::caps::CmdHcaCap;
use mlx5_pure::layouts::{Description, EventType, Field};
use proptest::prelude::*;

/// A number in big-endian bytes at a place of hardware.md 3.3.
fn be(bytes: &[u8], at: usize, len: usize) -> u32 {
    bytes[at..at + len]
        .iter()
        .fold(0, |value, byte| value << 8 | u32::from(*byte))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Every entry means what the table of hardware.md 3.3 says, read by its byte offsets.
    #[test]
    fn hostile_entries(bytes in prop::collection::vec(any::<u8>(), EQE), kind in 0_u8..0x30) {
        let mut bytes: [u8; EQE] = bytes.try_into().unwrap();
        bytes[1] = kind;
        match Event::decode(&bytes) {
            Event::Completion { cqn } => {
                prop_assert_eq!(kind, 0);
                prop_assert_eq!(cqn, be(&bytes, 0x39, 3));
            }
            Event::Command { slots } => {
                prop_assert_eq!(kind, 0x0a);
                prop_assert_eq!(slots, be(&bytes, 0x20, 4));
            }
            Event::PageRequest { function, embedded_cpu, release_all, num_pages } => {
                prop_assert_eq!(kind, 0x0b);
                prop_assert_eq!(embedded_cpu, bytes[0x20] & 0x80 != 0);
                prop_assert_eq!(release_all, bytes[0x20] & 0x40 != 0);
                prop_assert_eq!(u32::from(function), be(&bytes, 0x22, 2));
                prop_assert_eq!(num_pages as u32, be(&bytes, 0x24, 4));
            }
            Event::PortChange { port, change } => {
                prop_assert_eq!(kind, 0x09);
                prop_assert_eq!(port, bytes[0x28] >> 4);
                prop_assert_eq!(change, bytes[3]);
            }
            Event::Queue { what, queue_type, qpn } => {
                prop_assert_eq!(what.0, kind);
                prop_assert!([1, 2, 3, 5, 7, 0x10, 0x11, 0x13].contains(&kind));
                prop_assert_eq!(queue_type, bytes[0x34]);
                prop_assert_eq!(qpn, be(&bytes, 0x39, 3));
            }
            Event::Srq { what, srqn } => {
                prop_assert_eq!(what.0, kind);
                prop_assert!([0x12, 0x14].contains(&kind));
                prop_assert_eq!(srqn, be(&bytes, 0x39, 3));
            }
            Event::CqError { cqn, syndrome } => {
                prop_assert_eq!(kind, 0x04);
                prop_assert_eq!(cqn, be(&bytes, 0x21, 3));
                prop_assert_eq!(syndrome, bytes[0x2b]);
            }
            Event::XrqError { xrqn, error } => {
                prop_assert_eq!(kind, 0x18);
                prop_assert_eq!(error, bytes[0x34]);
                prop_assert_eq!(xrqn, be(&bytes, 0x35, 3));
            }
            Event::Dct { what, dctn } => {
                prop_assert_eq!(what.0, kind);
                prop_assert!([0x1c, 0x1d].contains(&kind));
                prop_assert_eq!(dctn, be(&bytes, 0x39, 3));
            }
            Event::EswFunctionsChanged => prop_assert_eq!(kind, 0x0e),
            Event::VhcaState { function, embedded_cpu } => {
                prop_assert_eq!(kind, 0x0f);
                prop_assert_eq!(u32::from(function), be(&bytes, 0x22, 2));
                prop_assert_eq!(embedded_cpu, be(&bytes, 0x20, 2) != 0);
            }
            Event::Tracer { what } => {
                prop_assert_eq!(kind, 0x26);
                prop_assert_eq!(what, bytes[3]);
            }
            Event::InternalError => prop_assert_eq!(kind, 0x08),
            Event::Other { what, sub_type } => {
                prop_assert_eq!(what.0, kind);
                prop_assert_eq!(sub_type, bytes[3]);
            }
        }
    }
}

proptest! {
    /// A device that writes and a driver that reads, at any pace: every event arrives once and in
    /// order, over any number of passes, and an entry that was not written is never taken.
    #[test]
    fn every_event_once_and_in_order(
        log in 0_u8..5,
        paces in prop::collection::vec((0_u32..40, 0_u32..40), 1..60),
    ) {
        let mut ring = Ring::new(log).unwrap();
        let size = ring.entries();
        let mut owners = vec![OWNER_INIT; size as usize];
        let mut contents = vec![0_u32; size as usize];
        let (mut written, mut read) = (0_u32, 0_u32);
        for (writes, reads) in paces {
            for _ in 0..writes.min(size - (written - read)) {
                let index = (written % size) as usize;
                contents[index] = written;
                // 0 in the first pass, 1 in the second, and so on (hardware.md 3.1).
                owners[index] = (written / size % 2) as u8;
                written += 1;
            }
            for _ in 0..reads {
                let ours = ring.is_ours(owners[ring.index()]);
                prop_assert_eq!(ours, read < written);
                if !ours {
                    break;
                }
                prop_assert_eq!(contents[ring.index()], read);
                ring.advance();
                read += 1;
                prop_assert_eq!(ring.ci(), read);
                prop_assert_eq!(ring.doorbell(0x5a), 0x5a00_0000 | read);
            }
        }
    }

    /// The mask asks for nothing that the device does not have: a bit beyond those that every device
    /// has is there if, and only if, its capability is.
    #[test]
    fn masks_follow_the_capabilities(page in prop::collection::vec(any::<u8>(), CmdHcaCap::LEN)) {
        let caps = CmdHcaCap::of(&page).unwrap();
        let mask = mask::asynchronous(&caps);
        let asked = |event: EventType| {
            let (word, bit) = event.mask_bit();
            mask[word] & bit != 0
        };
        prop_assert_eq!(asked(EventType::DCT_DRAINED), caps.dct());
        prop_assert_eq!(asked(EventType::TEMP_WARN_EVENT), caps.temp_warn_event());
        prop_assert_eq!(asked(EventType::GENERAL_EVENT), caps.general_notification_event());
        prop_assert_eq!(asked(EventType::PORT_MODULE_EVENT), caps.port_module_event());
        // Commands and page requests have queues of their own; a completion is no event to ask for.
        for event in [EventType::COMP, EventType::CMD, EventType::PAGE_REQUEST] {
            prop_assert!(!asked(event));
        }
        for number in (0..=u8::MAX).filter(|number| EventType(*number).name().is_none()) {
            prop_assert!(!asked(EventType(number)));
        }
    }
}

#[test]
fn the_owner_byte_is_the_last() {
    assert_eq!(OWNER_OFFSET, EQE - 1);
}

/// The device's index has 24 bits; the driver's runs on past them.
#[test]
fn more_events_than_24_bits_count() {
    let mut ring = Ring::new(3).unwrap();
    for n in 0..(1_u32 << 24) + 20 {
        if n % 8 == 0 {
            assert_eq!(ring.index(), 0);
            assert!(ring.is_ours((n / 8 % 2) as u8));
            assert!(!ring.is_ours((n / 8 % 2) as u8 ^ 1));
            assert_eq!(ring.doorbell(1), 0x0100_0000 | n & 0x00ff_ffff);
        }
        ring.advance();
    }
}

/// The fields that the mask looks at are where the fact sheet has them.
#[test]
fn capabilities_of_events() {
    const CAPS: Description = CmdHcaCap::DESCRIPTION;
    let at = |name| {
        let field: Field = CAPS.field(name).unwrap();
        let word = field.in_word();
        (word.offset, word.shift)
    };
    assert_eq!(at("dct"), (0x040, 5));
    assert_eq!(at("temp_warn_event"), (0x038, 15));
    assert_eq!(at("general_notification_event"), (0x038, 13));
    assert_eq!(at("port_module_event"), (0x034, 15));
}
