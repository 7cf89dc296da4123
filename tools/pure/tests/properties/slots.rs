// SPDX-License-Identifier: GPL-2.0

use std::collections::BTreeMap;

use mlx5_pure::cmdif::slots::{Class, Completed, Slot, SlotTable, MAX_SLOTS, MIN_SLOTS};
use proptest::prelude::*;

/// What may happen, in any order: the driver's part and the device's.
#[derive(Clone, Copy, Debug)]
enum Step {
    Take(bool),
    Post(u8),
    Complete(u8),
    Expire(u8),
    Abandon(u8),
    Abort(u8),
    Release(u8),
}

const STATES: [Slot; 7] = [
    Slot::Free,
    Slot::Taken,
    Slot::Posted,
    Slot::Overdue,
    Slot::Done,
    Slot::Orphan,
    Slot::Aborted,
];

fn step() -> impl Strategy<Value = Step> {
    let slot = prop_oneof![9 => 0_u8..MAX_SLOTS as u8, 1 => any::<u8>()];
    prop_oneof![
        2 => any::<bool>().prop_map(Step::Take),
        2 => slot.clone().prop_map(Step::Post),
        2 => slot.clone().prop_map(Step::Complete),
        1 => slot.clone().prop_map(Step::Expire),
        1 => slot.clone().prop_map(Step::Abandon),
        1 => slot.clone().prop_map(Step::Abort),
        2 => slot.prop_map(Step::Release),
    ]
}

proptest! {
    /// Against a map of what each slot must be: a slot that the device may write to is nobody
    /// else's, and a completion that nobody waits for reaches nobody.
    #[test]
    fn any_order_of_events(
        count in MIN_SLOTS..=6,
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let mut table = SlotTable::new(count).unwrap();
        let mut model: BTreeMap<u8, Slot> = (0..count as u8).map(|s| (s, Slot::Free)).collect();
        let last = count as u8 - 1;
        for step in steps {
            match step {
                Step::Take(pages) => {
                    let class = if pages { Class::Pages } else { Class::Regular };
                    let free = model
                        .iter()
                        .any(|(s, state)| *state == Slot::Free && (*s == last) == pages);
                    let ticket = table.take(class);
                    prop_assert_eq!(ticket.is_some(), free);
                    if let Some(ticket) = ticket {
                        prop_assert_ne!(ticket.token, 0);
                        prop_assert_eq!(ticket.slot == last, pages);
                        prop_assert_eq!(model.insert(ticket.slot, Slot::Taken), Some(Slot::Free));
                    }
                }
                Step::Post(slot) => {
                    let may = model.get(&slot) == Some(&Slot::Taken);
                    prop_assert_eq!(table.post(slot), may);
                    if may {
                        model.insert(slot, Slot::Posted);
                    }
                }
                Step::Complete(slot) => {
                    let expected = match model.get(&slot) {
                        Some(Slot::Posted | Slot::Overdue) => Completed::Wanted,
                        Some(Slot::Orphan | Slot::Aborted) => Completed::Late,
                        _ => Completed::Spurious,
                    };
                    prop_assert_eq!(table.complete(slot), expected);
                    match expected {
                        Completed::Wanted => model.insert(slot, Slot::Done),
                        Completed::Late => model.insert(slot, Slot::Free),
                        Completed::Spurious => None,
                    };
                }
                Step::Expire(slot) => {
                    let may = model.get(&slot) == Some(&Slot::Posted);
                    prop_assert_eq!(table.expire(slot), may);
                    if may {
                        model.insert(slot, Slot::Overdue);
                    }
                }
                Step::Abandon(slot) => {
                    let may = model.get(&slot) == Some(&Slot::Overdue);
                    prop_assert_eq!(table.abandon(slot), may);
                    if may {
                        model.insert(slot, Slot::Orphan);
                    }
                }
                Step::Abort(slot) => {
                    let may = matches!(model.get(&slot), Some(Slot::Posted | Slot::Overdue));
                    prop_assert_eq!(table.abort(slot), may);
                    if may {
                        model.insert(slot, Slot::Aborted);
                    }
                }
                Step::Release(slot) => {
                    let may = matches!(model.get(&slot), Some(Slot::Done | Slot::Taken));
                    prop_assert_eq!(table.release(slot), may);
                    if may {
                        model.insert(slot, Slot::Free);
                    }
                }
            }
            for slot in 0..=u8::MAX {
                prop_assert_eq!(table.state(slot), model.get(&slot).copied());
            }
            for state in STATES {
                let expected = model.values().filter(|s| **s == state).count();
                prop_assert_eq!(table.in_state(state), expected);
            }
        }
    }

    /// Two commands that are in flight at the same time never have the same token, unless 254 others
    /// came between them.
    #[test]
    fn tokens_differ(count in MIN_SLOTS..=MAX_SLOTS) {
        let mut table = SlotTable::new(count).unwrap();
        let mut tokens: Vec<u8> =
            core::iter::from_fn(|| table.take(Class::Regular)).map(|t| t.token).collect();
        tokens.extend(table.take(Class::Pages).map(|t| t.token));
        prop_assert_eq!(tokens.len(), count);
        tokens.sort_unstable();
        tokens.dedup();
        prop_assert_eq!(tokens.len(), count);
    }
}
