// SPDX-License-Identifier: GPL-2.0

use mlx5_pure::caps::negotiate::{atomic, general, SHOWN};
use mlx5_pure::layouts::caps::{AtomicCaps, CmdHcaCap, PAGE_LEN};
use mlx5_pure::layouts::Description;
use proptest::prelude::*;

const GENERAL: Description = CmdHcaCap::DESCRIPTION;
const ATOMIC: Description = AtomicCaps::DESCRIPTION;

/// A page of random bytes, or one with all bits alike.
fn page() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => prop::collection::vec(any::<u8>(), PAGE_LEN),
        1 => Just(vec![0; PAGE_LEN]),
        1 => Just(vec![0xff; PAGE_LEN]),
    ]
}

/// Bits that differ lie in declared fields, and no field went above its maximum.
fn check(
    description: &Description,
    before: &[u8],
    after: &[u8],
    max: &[u8],
    except: &[&str],
) -> Result<(), TestCaseError> {
    let mut changed = before.to_vec();
    for field in description.fields {
        let (old, new) = (field.get(before), field.get(after));
        if old != new && !except.contains(&field.name) {
            prop_assert!(new <= field.get(max), "{} is above its maximum", field.name);
        }
        prop_assert_eq!(field.set(&mut changed, new.unwrap()), Some(()));
    }
    prop_assert!(changed == after, "bits changed outside the declared fields");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn nothing_is_set_above_its_maximum(
        current in page(),
        max in page(),
        log_page in 12_u8..=16,
    ) {
        let mut page = current.clone();
        general(&mut page, &max, log_page);
        check(&GENERAL, &current, &page, &max, &[])?;
        let mut again = page.clone();
        general(&mut again, &max, log_page);
        prop_assert!(again == page, "a second pass changes something");
    }

    #[test]
    fn atomic_pages(current in page(), max in page()) {
        let mut page = current.clone();
        let set = atomic(&mut page, &max);
        prop_assert!(set || page == current);
        check(&ATOMIC, &current, &page, &max, &["atomic_req_8b_endianness_mode"])?;
    }

    #[test]
    fn short_pages_do_no_harm(
        mut page in prop::collection::vec(any::<u8>(), 0..200),
        max in prop::collection::vec(any::<u8>(), 0..200),
        log_page in any::<u8>(),
    ) {
        general(&mut page, &max, log_page);
        atomic(&mut page, &max);
        for field in SHOWN {
            let _ = field.get(&page);
        }
    }
}
