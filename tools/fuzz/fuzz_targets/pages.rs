// SPDX-License-Identifier: GPL-2.0

//! Firmware pages: a page request event (8 bytes), how many pages were asked for (1 byte), and the
//! reply to the MANAGE_PAGES that takes them.

#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use mlx5_pure::layouts::commands::{ManagePagesOut, QueryPagesOut};
use mlx5_pure::layouts::events::EqePageReq;
use mlx5_pure::pages::plan::{
    batches, check_count, may_give, Demand, BATCH, MAX_PAGES_PER_FUNCTION, MAX_TAKE,
};

/// Pages that the function holds, by number.
const HELD: std::ops::Range<u64> = 1..40;

fuzz_target!(|data: &[u8]| {
    let Some((event, rest)) = data.split_first_chunk::<8>() else {
        return;
    };
    let request = EqePageReq::of(&[&event[..], &[0; 20]].concat())
        .expect("28 bytes of data")
        .to_owned();
    for demand in [
        Demand::from_event(request.num_pages(), request.ec_function() & 1 << 14 != 0),
        Demand::from_query(request.num_pages()),
    ] {
        match demand {
            Demand::Give(n) => {
                let held = HELD.count() as u32;
                if may_give(held, n) {
                    assert!(held + n <= MAX_PAGES_PER_FUNCTION);
                    assert_eq!(batches(n).sum::<u32>(), n);
                    assert!(batches(n).all(|batch| (1..=BATCH).contains(&batch)));
                }
            }
            Demand::Take(n) => assert!((1..=MAX_TAKE).contains(&n)),
            Demand::None | Demand::ReleaseAll => {}
        }
    }
    let Some((asked, reply)) = rest.split_first() else {
        return;
    };
    let _ = QueryPagesOut::of(reply).map(|reply| Demand::from_query(reply.num_pages()));
    let Some(view) = ManagePagesOut::of(reply) else {
        return;
    };
    let Ok(count) = check_count(u32::from(*asked), view.output_num_entries()) else {
        assert!(view.output_num_entries() > u32::from(*asked));
        return;
    };
    let mut held: BTreeSet<u64> = HELD.map(|page| page << 12).collect();
    let before = held.len();
    let freed = ManagePagesOut::PAS
        .iter(reply)
        .take(count as usize)
        .filter(|address| held.remove(address))
        .count();
    assert!(freed <= usize::from(*asked));
    assert_eq!(held.len() + freed, before);
});
