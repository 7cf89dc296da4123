// SPDX-License-Identifier: GPL-2.0

//! The dumps of any bytes: one byte for the transport, then the WQE, once as it is and once in a ring.

#![no_main]

use std::fmt::Write;

use libfuzzer_sys::fuzz_target;
use mlx5_pure::wqe::{validate, Context, Json, Text, TransportKind, Units, BLOCK};

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else {
        return;
    };
    let context = Context {
        transport: TransportKind::ALL
            .get(usize::from(*kind))
            .map(|(kind, _)| *kind),
        ..Context::UNKNOWN
    };
    let units = Units::of(bytes);
    let mut count = 0;
    validate(units, &context, &mut |_| count += 1);
    let context = &context;
    let mut text = String::new();
    write!(text, "{}", Text { units, context }).expect("a string takes all");
    assert_eq!(text.matches("INVALID").count(), count);
    text.clear();
    write!(text, "{}", Json { units, context }).expect("a string takes all");
    assert_eq!(text.matches('{').count(), text.matches('}').count());
    // A ring of 4 blocks, from any of them on.
    let mut ring = [[0; BLOCK]; 4];
    for (to, from) in ring.iter_mut().zip(bytes.chunks(BLOCK)) {
        to[..from.len()].copy_from_slice(from);
    }
    if let Some(units) = Units::in_ring(&ring, u16::from(*kind)) {
        assert!(units.bytes() <= 4 * BLOCK);
        text.clear();
        write!(text, "{}", Text { units, context }).expect("a string takes all");
    }
});
