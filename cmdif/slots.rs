// SPDX-License-Identifier: GPL-2.0

//! Which slots of the command queue are in use, by whom, and what a completion bit means.
//!
//! A slot belongs to its command from [`SlotTable::take`] to [`SlotTable::release`]. A command that
//! timed out leaves its slot an orphan: the device may still write to it, so that nobody gets it
//! before the device has completed it.

/// The most slots that a queue can have: the doorbell has one bit for each (hardware.md 1).
pub const MAX_SLOTS: usize = 32;

/// The fewest slots that work: one for page requests, one for everything else.
pub const MIN_SLOTS: usize = 2;

/// Which commands a slot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The last slot, kept for MANAGE_PAGES, so that pages can move while all others are busy.
    Pages,
    /// Every other slot.
    Regular,
}

/// The life of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Nobody's.
    Free,
    /// A command is being written.
    Taken,
    /// The doorbell was rung; the device owns descriptor and mailboxes.
    Posted,
    /// The device is done; the command's thread has yet to collect.
    Done,
    /// The thread gave up; the device may still write.
    Orphan,
}

/// What a completion of a slot was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// Somebody waits for it.
    Wanted,
    /// It came after the time-out; the slot is free again.
    Late,
    /// Nothing was posted there: the device is wrong, or said it twice.
    Spurious,
}

/// A slot and the token that goes with the command in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Slot index, below the queue's slot count.
    pub slot: u8,
    /// 1..=255: 0 is never used, so that zeroed memory never matches.
    pub token: u8,
}

/// The slots of one queue.
#[derive(Debug)]
pub struct SlotTable {
    slots: [Slot; MAX_SLOTS],
    count: u8,
    last_token: u8,
}

impl SlotTable {
    /// A table of `count` free slots, or `None` unless `count` is in
    /// [`MIN_SLOTS`]`..=`[`MAX_SLOTS`].
    pub fn new(count: usize) -> Option<Self> {
        if !(MIN_SLOTS..=MAX_SLOTS).contains(&count) {
            return None;
        }
        Some(Self {
            slots: [Slot::Free; MAX_SLOTS],
            count: count as u8,
            last_token: 0,
        })
    }

    /// How many slots there are.
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// The state of a slot; `None` beyond the queue.
    pub fn state(&self, slot: u8) -> Option<Slot> {
        self.active().get(usize::from(slot)).copied()
    }

    /// How many slots are in `state`.
    pub fn in_state(&self, state: Slot) -> usize {
        self.active().iter().filter(|s| **s == state).count()
    }

    /// How many slots the class has.
    pub fn class_size(&self, class: Class) -> usize {
        match class {
            Class::Pages => 1,
            Class::Regular => self.count().saturating_sub(1),
        }
    }

    /// Whether all slots of the class are orphans: waiting for one is of no use.
    pub fn is_stuck(&self, class: Class) -> bool {
        self.class(class).iter().all(|slot| *slot == Slot::Orphan)
    }

    /// The slots of the class.
    fn class(&self, class: Class) -> &[Slot] {
        let regular = self.class_size(Class::Regular);
        let (first, last) = self.active().split_at(regular.min(self.active().len()));
        match class {
            Class::Regular => first,
            Class::Pages => last,
        }
    }

    /// Takes a free slot of the class, or `None` when all are busy.
    pub fn take(&mut self, class: Class) -> Option<Ticket> {
        let last = self.count().checked_sub(1)?;
        let range = match class {
            Class::Pages => last..last + 1,
            Class::Regular => 0..last,
        };
        let first = range.start;
        let free = self
            .slots
            .get(range)?
            .iter()
            .position(|s| *s == Slot::Free)?
            + first;
        *self.slots.get_mut(free)? = Slot::Taken;
        self.last_token = if self.last_token == u8::MAX {
            1
        } else {
            self.last_token + 1
        };
        Some(Ticket {
            slot: free as u8,
            token: self.last_token,
        })
    }

    /// The doorbell is about to be rung: the device owns the slot. `false` if it was not taken.
    pub fn post(&mut self, slot: u8) -> bool {
        self.change(slot, Slot::Taken, Slot::Posted)
    }

    /// The device says that it is done with `slot`.
    pub fn complete(&mut self, slot: u8) -> Completed {
        if self.change(slot, Slot::Posted, Slot::Done) {
            Completed::Wanted
        } else if self.change(slot, Slot::Orphan, Slot::Free) {
            Completed::Late
        } else {
            Completed::Spurious
        }
    }

    /// The thread gives up. `true` makes the slot an orphan; `false` says that the device completed
    /// it at the last moment: the reply is to be collected.
    pub fn abandon(&mut self, slot: u8) -> bool {
        self.change(slot, Slot::Posted, Slot::Orphan)
    }

    /// The command is over (or was never posted). `false` if the device still owns the slot.
    pub fn release(&mut self, slot: u8) -> bool {
        self.change(slot, Slot::Done, Slot::Free) || self.change(slot, Slot::Taken, Slot::Free)
    }

    fn active(&self) -> &[Slot] {
        self.slots.get(..self.count()).unwrap_or(&[])
    }

    fn change(&mut self, slot: u8, from: Slot, to: Slot) -> bool {
        let count = self.count();
        match self.slots.get_mut(usize::from(slot)) {
            Some(s) if usize::from(slot) < count && *s == from => {
                *s = to;
                true
            }
            _ => false,
        }
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_cmdif_slots)]
mod tests {
    use super::*;

    #[test]
    fn only_2_to_32_slots() {
        for (count, ok) in [(0, false), (1, false), (2, true), (32, true), (33, false)] {
            assert_eq!(SlotTable::new(count).is_some(), ok);
        }
    }

    #[test]
    fn last_slot_is_for_pages_only() {
        let mut table = SlotTable::new(4).unwrap();
        for slot in 0..3 {
            assert_eq!(table.take(Class::Regular).unwrap().slot, slot);
        }
        assert!(table.take(Class::Regular).is_none());
        assert_eq!(table.take(Class::Pages).unwrap().slot, 3);
        assert!(table.take(Class::Pages).is_none());
    }

    #[test]
    fn token_is_never_0() {
        let mut table = SlotTable::new(2).unwrap();
        for _ in 0..600 {
            let ticket = table.take(Class::Regular).unwrap();
            assert!(ticket.token != 0);
            assert!(table.release(ticket.slot));
        }
    }

    #[test]
    fn orphan_is_nobodys_until_the_device_is_done() {
        let mut table = SlotTable::new(2).unwrap();
        let slot = table.take(Class::Regular).unwrap().slot;
        assert!(table.post(slot));
        assert!(table.abandon(slot));
        assert!(table.take(Class::Regular).is_none());
        assert!(!table.release(slot));
        assert_eq!(table.complete(slot), Completed::Late);
        assert_eq!(table.complete(slot), Completed::Spurious);
        assert!(table.take(Class::Regular).is_some());
    }

    #[test]
    fn a_class_is_stuck_when_all_its_slots_are_orphans() {
        let mut table = SlotTable::new(3).unwrap();
        assert!(!table.is_stuck(Class::Regular));
        for slot in 0..2 {
            assert_eq!(table.take(Class::Regular).unwrap().slot, slot);
            assert!(table.post(slot));
            assert!(!table.is_stuck(Class::Regular));
            assert!(table.abandon(slot));
        }
        assert!(table.is_stuck(Class::Regular));
        assert!(!table.is_stuck(Class::Pages));
        assert_eq!(table.complete(1), Completed::Late);
        assert!(!table.is_stuck(Class::Regular));
    }

    #[test]
    fn completion_beats_the_deadline() {
        let mut table = SlotTable::new(2).unwrap();
        let slot = table.take(Class::Regular).unwrap().slot;
        assert!(table.post(slot));
        assert_eq!(table.complete(slot), Completed::Wanted);
        assert!(!table.abandon(slot));
        assert!(table.release(slot));
    }

    #[test]
    fn device_cannot_complete_what_it_does_not_own() {
        let mut table = SlotTable::new(2).unwrap();
        for slot in 0..=u8::MAX {
            assert_eq!(table.complete(slot), Completed::Spurious);
        }
        let slot = table.take(Class::Regular).unwrap().slot;
        assert_eq!(table.complete(slot), Completed::Spurious);
        assert_eq!(table.state(slot), Some(Slot::Taken));
    }
}
