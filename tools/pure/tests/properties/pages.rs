// SPDX-License-Identifier: GPL-2.0

use std::collections::BTreeSet;

use mlx5_pure::layouts::commands::{ManagePagesOut, QueryPagesOut};
use mlx5_pure::layouts::events::EqePageReq;
use mlx5_pure::pages::plan::{
    batches, check_count, may_give, BadReturn, Demand, BATCH, MAX_PAGES_PER_FUNCTION, MAX_TAKE,
};
use proptest::prelude::*;

proptest! {
    #[test]
    fn demands_are_bounded(num_pages in any::<i32>(), release_all in any::<bool>()) {
        let demand = Demand::from_event(num_pages, release_all);
        match demand {
            Demand::ReleaseAll => prop_assert!(release_all),
            Demand::None => prop_assert!(num_pages == 0 && !release_all),
            Demand::Give(n) => prop_assert!(!release_all && i64::from(n) == i64::from(num_pages)),
            Demand::Take(n) => {
                prop_assert!(!release_all && num_pages < 0);
                prop_assert_eq!(u64::from(n), (-i64::from(num_pages)).min(MAX_TAKE.into()) as u64);
            }
        }
        let expected = if num_pages > 0 { Demand::Give(num_pages as u32) } else { Demand::None };
        prop_assert_eq!(Demand::from_query(num_pages), expected);
    }

    #[test]
    fn no_function_gets_more_than_its_bound(held in any::<u32>(), more in any::<u32>()) {
        let sum = u64::from(held) + u64::from(more);
        prop_assert_eq!(may_give(held, more), sum <= u64::from(MAX_PAGES_PER_FUNCTION));
    }

    #[test]
    fn batches_add_up(n in 0_u32..2_000_000) {
        let (mut sum, mut previous) = (0, BATCH);
        for batch in batches(n) {
            prop_assert!((1..=BATCH).contains(&batch));
            // Only the last one is not full.
            prop_assert_eq!(previous, BATCH);
            previous = batch;
            sum += batch;
        }
        prop_assert_eq!(sum, n);
    }

    #[test]
    fn replies_and_events_of_a_hostile_device(bytes in prop::collection::vec(any::<u8>(), 0..28)) {
        if let Some(reply) = QueryPagesOut::of(&bytes) {
            let number = i32::from_be_bytes(bytes[12..16].try_into().unwrap());
            prop_assert_eq!(reply.num_pages(), number);
            let _ = Demand::from_query(reply.num_pages());
        }
        if let Some(request) = EqePageReq::of(&bytes) {
            let number = i32::from_be_bytes(bytes[4..8].try_into().unwrap());
            prop_assert_eq!(request.num_pages(), number);
        }
    }

    /// A take against a model of what the function holds: whatever the device answers, no page is
    /// freed that it does not hold, and none twice.
    #[test]
    fn takes_from_a_hostile_device(
        held in prop::collection::btree_set(1_u64..64, 0..32),
        asked in 0_u32..40,
        claimed in prop_oneof![0_u32..48, any::<u32>()],
        answers in prop::collection::vec(0_u64..70, 0..48),
    ) {
        let mut held: BTreeSet<u64> = held.into_iter().map(|page| page << 12).collect();
        let before = held.len();
        let mut reply = ManagePagesOut::new().as_bytes().to_vec();
        ManagePagesOut::of_mut(&mut reply).unwrap().set_output_num_entries(claimed);
        reply.extend(answers.iter().flat_map(|page| (page << 12).to_be_bytes()));

        let view = ManagePagesOut::of(&reply).unwrap();
        let count = match check_count(asked, view.output_num_entries()) {
            Ok(count) => {
                prop_assert!(claimed <= asked);
                count
            }
            Err(error) => {
                prop_assert_eq!(error, BadReturn::TooMany { asked, got: claimed });
                return Ok(());
            }
        };
        // As many as it claims, and as the reply has room for: never more than asked for.
        let mut freed = 0;
        for address in ManagePagesOut::PAS.iter(&reply).take(count as usize) {
            freed += usize::from(held.remove(&address));
        }
        prop_assert!(freed <= asked as usize);
        prop_assert_eq!(held.len() + freed, before);
    }
}
