// SPDX-License-Identifier: GPL-2.0

//! Whatever a driver does, the device goes on.

use std::ffi::CString;
use std::fs::File;
use std::os::unix::fs::FileExt;

use nix::sys::memfd::memfd_create;
use nix::sys::memfd::MFdFlags;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::cmdif::Request;
use crate::commands;
use crate::control::verbs;
use crate::identity::PortType;

const RAM: u64 = 1 << 20;

fn device(port_type: PortType) -> (Device, File) {
    let name = CString::new("guest").expect("no NUL");
    let file = File::from(memfd_create(name.as_c_str(), MFdFlags::MFD_CLOEXEC).expect("memfd"));
    file.set_len(RAM).expect("size");
    let mut d = Device::new(Identity::new("cx7", port_type, false).expect("cx7"));
    let range = dma::Range::new(0, RAM).expect("range");
    let map = dma::Request {
        range,
        read: true,
        write: true,
        offset: 0,
    };
    d.dma_map(map, Some(file.try_clone().expect("dup").into()))
        .expect("map");
    d.pci.write(4, &[6, 0]);
    d.wanted = Wanted {
        boot: 0,
        init: 0,
        regular: 0,
        vf: 0,
        returned: u32::MAX,
    };
    (d, file)
}

fn state() -> impl Strategy<Value = State> {
    prop_oneof![
        Just(State::Reset),
        Just(State::Enabled),
        Just(State::Initialized),
        Just(State::TornDown)
    ]
}

fn opcode() -> impl Strategy<Value = u16> {
    let known: Vec<u16> = commands::opcodes().collect();
    prop_oneof![9 => proptest::sample::select(known), 1 => any::<u16>()]
}

/// Mostly zeros, as real commands are, so that checks are passed now and then.
fn input() -> impl Strategy<Value = Vec<u8>> {
    let pokes = vec(
        (
            any::<prop::sample::Index>(),
            prop_oneof![Just(1), any::<u8>()],
        ),
        0..24,
    );
    (8usize..5000, pokes).prop_map(|(len, pokes)| {
        let mut bytes = vec![0; len];
        for (at, value) in pokes {
            // The fields of most commands are in the first bytes.
            let reach = if value & 1 == 0 { len.min(64) } else { len };
            bytes[at.index(reach)] = value;
        }
        bytes
    })
}

/// Requests of the control socket that change what the device does.
const REQUESTS: &[&str] = &[
    "ones on",
    "ones on config=1 reset=1 initializing=1",
    "ones ms=0",
    "ones off",
    "vanish",
    "vanish off",
    "fatal",
    "fatal nic=0",
    "health clear",
    "health counter=stop value=3",
    "stale pages=5 eqs=3",
    "stale pages=0 eqs=0",
    "nic_interface delay=0",
    "nic_interface delay=1",
    "nic_interface delay=never",
    "fault op=* act=ones ms=1 reset=1",
    "fault op=* act=vanish",
    "fault op=* act=fatal",
    "fault op=* act=reset ms=1",
    "fault op=* act=hold count=2",
    "fault op=* act=delay ms=0",
    "fault op=* act=never",
    "fault op=* act=patch at=4 data=0102",
    "faults clear",
    "release",
    "event type=0xa",
    "event type=0xb count=300",
    "page_request npages=5",
    "page_request release_all=1",
    "pages check",
    "irq vector=0",
    "initializing hold=1",
    "initializing hold=0",
    "status",
    "reset",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_command_in_any_state_is_answered(
        steps in vec((opcode(), 0u16..4, input(), 8usize..5000, state()), 1..12),
        eth: bool,
    ) {
        let (mut d, _) = device(if eth { PortType::Eth } else { PortType::Ib });
        d.hca.uars.insert(bar::FIRST_UAR);
        for (opcode, op_mod, input, out_len, state) in steps {
            d.hca.state = state;
            let request = Request { opcode, op_mod, uid: 0, input, out_len };
            let mut out = vec![0; out_len];
            let _ = commands::dispatch(&mut d, &request, &mut out);
            prop_assert_eq!(out.len(), out_len);
            d.tick();
        }
    }

    /// Registers, configuration space, and descriptors of noise.
    #[test]
    fn any_access_is_survived(
        noise in vec(any::<u8>(), 4096),
        steps in vec((0u8..10, any::<u64>(), vec(any::<u8>(), 1..16)), 1..60),
    ) {
        let (mut d, file) = device(PortType::Ib);
        file.write_all_at(&noise, 0x1000).expect("guest memory");
        for (kind, at, data) in steps {
            match kind {
                0 => {
                    // A descriptor that the device owns, of the right type, signed.
                    let slot = at % 32;
                    let mut raw = [0; 64];
                    file.read_exact_at(&mut raw, 0x1000 + at % 4000).expect("guest memory");
                    raw[0] = 7;
                    raw[1..4].fill(0);
                    raw[63] = 1;
                    raw[61] = 0;
                    raw[61] = !raw.iter().fold(0, |a, b| a ^ b);
                    file.write_all_at(&raw, 0x8000 + slot * 64).expect("guest memory");
                    d.region_write(0, 0x14, &0x8000u32.to_be_bytes()).expect("in range");
                    d.region_write(0, 0x18, &(1u32 << slot).to_be_bytes()).expect("in range");
                }
                1 => d.region_write(0, at % 0x40, &data).expect("in range"),
                2 => d.region_write(0, at % (bar::SIZE - 16), &data).expect("in range"),
                3 => d.region_write(7, at % 4096, &data).expect("in range"),
                4 => {
                    let mut buffer = data;
                    d.region_read(0, at % 0x2100, &mut buffer).expect("in range");
                }
                5 => {
                    d.reset();
                    d.region_write(7, 4, &[6, 0]).expect("in range");
                }
                6 => d.region_write(7, 4, &[data[0], 0]).expect("in range"),
                _ => {
                    let line = REQUESTS[at as usize % REQUESTS.len()];
                    let _ = verbs::execute(&mut d, true, line);
                    let _ = verbs::execute(&mut d, true, "status");
                }
            }
            d.tick();
        }
        // Whatever happened, power on brings it back.
        let _ = verbs::execute(&mut d, true, "reset");
        let mut id = [0; 4];
        d.region_read(7, 0, &mut id).expect("in range");
        prop_assert_eq!(id, [0xb3, 0x15, 0x21, 0x10]);
        d.region_read(0, 4, &mut id).expect("in range");
        prop_assert_eq!([id[0], id[1]], [0, 5]);
    }
}
