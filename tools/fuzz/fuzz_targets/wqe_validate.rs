// SPDX-License-Identifier: GPL-2.0

//! The validator on any bytes: one byte for the transport, one for capabilities, then the WQE.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_pure::wqe::parse::Parts;
use mlx5_pure::wqe::{first_violation, validate, Caps, Context, Number, TransportKind, Units};

fuzz_target!(|data: &[u8]| {
    let [kind, seed, bytes @ ..] = data else {
        return;
    };
    let caps = if seed & 1 == 0 {
        Caps::ALL
    } else {
        Caps::default()
    };
    let context = Context {
        transport: TransportKind::ALL
            .get(usize::from(*kind))
            .map(|(kind, _)| *kind),
        caps,
        qpn: (seed & 2 != 0).then_some(Number::low(0x42)),
        index: (seed & 4 != 0).then_some(0),
        signed: (seed & 8 != 0).then_some(seed & 16 != 0),
        pd: None,
        psvs: &[],
    };
    let units = Units::of(bytes);
    let mut first = None;
    validate(units, &context, &mut |violation| {
        assert!(violation.offset <= bytes.len());
        first.get_or_insert(violation);
    });
    // The quick look sees no less.
    assert_eq!(first_violation(units, &context), first);
    let mut end = 0;
    for part in Parts::new(units, context.transport_of(&units)) {
        assert!(part.offset >= end && part.offset + part.len <= bytes.len());
        end = part.offset + part.len;
    }
});
