// SPDX-License-Identifier: GPL-2.0

//! Capability pages: the current one, then the maxima. Short input is padded with zeros.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_pure::caps::negotiate::{atomic, general};
use mlx5_pure::eq::mask;
use mlx5_pure::layouts::caps::{AtomicCaps, CmdHcaCap, CmdHcaCap2, DebugCap, RoceCap};

fuzz_target!(|data: &[u8]| {
    let mut pages = [[0_u8; CmdHcaCap::LEN]; 2];
    for (to, from) in pages.as_flattened_mut().iter_mut().zip(data) {
        *to = *from;
    }
    let [current, max] = pages;

    let mut page = current;
    general(&mut page, &max, 12);
    for field in CmdHcaCap::DESCRIPTION.fields {
        let (old, new) = (field.get(&current), field.get(&page));
        assert!(old == new || new <= field.get(&max), "{}", field.name);
    }
    let mut page = current;
    assert!(atomic(&mut page, &max) || page == current);

    let caps = CmdHcaCap::view(&current);
    assert_eq!(mask::asynchronous(&caps)[0] & 1, 0);
    assert!(!format!("{caps:?}").is_empty());
    for text in [
        CmdHcaCap2::of(&current).map(|page| format!("{page:?}")),
        AtomicCaps::of(&current).map(|page| format!("{page:?}")),
        DebugCap::of(&current).map(|page| format!("{page:?}")),
        RoceCap::of(&current).map(|page| format!("{page:?}")),
    ] {
        assert!(text.is_none_or(|text| !text.is_empty()));
    }
});
