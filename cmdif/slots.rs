// SPDX-License-Identifier: GPL-2.0

//! The life of a command: which slots of the command queue are in use, by whom, and what a completion
//! bit means.
//!
//! ```text
//! queued --take--> Taken --post--> Posted --complete--> Done --release--> Free
//!                                    |                    ^
//!                                 expire                  |
//!                                    v                    |
//!                                  Overdue ---complete----+
//!                                    |
//!            Posted, Overdue --abort-+--abandon--> Orphan
//!                      |                             |
//!                      v                          complete
//!                   Aborted --------complete------> Free
//! ```
//!
//! A command waits for a slot ([`SlotTable::enter`], [`SlotTable::leave`]), and owns it from
//! [`SlotTable::take`] to [`SlotTable::release`]. The firmware clock runs in [`Slot::Posted`]; whether
//! the device executes it or has not looked yet cannot be seen. A command that its thread gave up leaves
//! its slot an orphan, or aborted: the device may still write to it, so that nobody gets it before the
//! device has completed it.

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
    /// Its time is over, but its thread still waits: it searches for what was lost, and has some grace.
    Overdue,
    /// The device is done; the command's thread has yet to collect.
    Done,
    /// It timed out: the thread gave up, the device may still write.
    Orphan,
    /// The interface went down under it: the thread was sent away, the device may still write.
    Aborted,
}

/// What a completion of a slot was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// Somebody waits for it.
    Wanted,
    /// Nobody waits any more; the slot is free again.
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
    /// Commands that wait for a slot, by class: regular, pages.
    queued: [u32; 2],
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
            queued: [0; 2],
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

    /// Whether nobody waits any more for any slot of the class, and the device has all of them: waiting
    /// for one is of no use.
    pub fn is_stuck(&self, class: Class) -> bool {
        self.usable(class) == 0
    }

    /// How many slots of the class can become free without the device coming back to what was given up.
    fn usable(&self, class: Class) -> usize {
        let lost = |slot: &&Slot| matches!(slot, Slot::Orphan | Slot::Aborted);
        let slots = self.class(class);
        slots.len() - slots.iter().filter(lost).count()
    }

    /// A command starts to wait for a slot. Gives how many rounds of the class's slots it may take until
    /// it has one, if all before it use their full time: at least 1.
    pub fn enter(&mut self, class: Class) -> u32 {
        let ahead = self.queued(class);
        let slots = u32::try_from(self.usable(class).max(1)).unwrap_or(1);
        let queued = self.queued_mut(class);
        *queued = queued.saturating_add(1);
        1 + ahead / slots
    }

    /// A command has a slot, or waits no longer.
    pub fn leave(&mut self, class: Class) {
        let queued = self.queued_mut(class);
        *queued = queued.saturating_sub(1);
    }

    /// How many commands wait for a slot of the class.
    pub fn queued(&self, class: Class) -> u32 {
        let [regular, pages] = self.queued;
        match class {
            Class::Regular => regular,
            Class::Pages => pages,
        }
    }

    fn queued_mut(&mut self, class: Class) -> &mut u32 {
        let [regular, pages] = &mut self.queued;
        match class {
            Class::Regular => regular,
            Class::Pages => pages,
        }
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
        let (next, what) = match self.state(slot) {
            Some(Slot::Posted | Slot::Overdue) => (Slot::Done, Completed::Wanted),
            Some(Slot::Orphan | Slot::Aborted) => (Slot::Free, Completed::Late),
            _ => return Completed::Spurious,
        };
        self.set(slot, next);
        what
    }

    /// The time of the command in `slot` is over; its thread looks for what was lost, and waits a
    /// little more. `false` if it is not with the device.
    pub fn expire(&mut self, slot: u8) -> bool {
        self.change(slot, Slot::Posted, Slot::Overdue)
    }

    /// The thread gives up after [`expire`](Self::expire). `true` makes the slot an orphan; `false`
    /// says that the device completed it at the last moment: the reply is to be collected.
    pub fn abandon(&mut self, slot: u8) -> bool {
        self.change(slot, Slot::Overdue, Slot::Orphan)
    }

    /// The interface went down: the thread gives up at once. `true` makes the slot aborted; `false` as
    /// for [`abandon`](Self::abandon).
    pub fn abort(&mut self, slot: u8) -> bool {
        self.change(slot, Slot::Posted, Slot::Aborted)
            || self.change(slot, Slot::Overdue, Slot::Aborted)
    }

    /// The command is over (or was never posted). `false` if the device still owns the slot.
    pub fn release(&mut self, slot: u8) -> bool {
        self.change(slot, Slot::Done, Slot::Free) || self.change(slot, Slot::Taken, Slot::Free)
    }

    fn active(&self) -> &[Slot] {
        self.slots.get(..self.count()).unwrap_or(&[])
    }

    fn change(&mut self, slot: u8, from: Slot, to: Slot) -> bool {
        let may = self.state(slot) == Some(from);
        if may {
            self.set(slot, to);
        }
        may
    }

    /// Only for a slot that has a state.
    fn set(&mut self, slot: u8, to: Slot) {
        if let Some(slot) = self.slots.get_mut(usize::from(slot)) {
            *slot = to;
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
        // Not before its time is over.
        assert!(!table.abandon(slot));
        assert!(table.expire(slot));
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
            assert!(table.post(slot) && table.expire(slot));
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
        for late in [false, true] {
            let slot = table.take(Class::Regular).unwrap().slot;
            assert!(table.post(slot));
            if late {
                assert!(table.expire(slot));
            }
            assert_eq!(table.complete(slot), Completed::Wanted);
            assert!(!table.expire(slot));
            assert!(!table.abandon(slot));
            assert!(!table.abort(slot));
            assert!(table.release(slot));
        }
    }

    #[test]
    fn aborted_commands_keep_their_slots() {
        let mut table = SlotTable::new(4).unwrap();
        for slot in 0..3 {
            assert_eq!(table.take(Class::Regular).unwrap().slot, slot);
        }
        // One is still being written, one is with the device, one is overdue.
        assert!(table.post(1) && table.post(2) && table.expire(2));
        assert!(!table.abort(0));
        assert!(table.release(0));
        for slot in [1, 2] {
            assert!(table.abort(slot));
            assert_eq!(table.state(slot), Some(Slot::Aborted));
            assert!(!table.release(slot));
            assert!(!table.abort(slot));
        }
        assert!(!table.is_stuck(Class::Regular));
        assert_eq!(table.take(Class::Regular).unwrap().slot, 0);
        assert!(table.take(Class::Regular).is_none());
        assert_eq!(table.complete(1), Completed::Late);
        assert_eq!(table.state(1), Some(Slot::Free));
    }

    #[test]
    fn rounds_that_a_queued_command_may_wait() {
        let mut table = SlotTable::new(4).unwrap();
        // Three slots: three commands to a round.
        for rounds in [1, 1, 1, 2, 2, 2, 3] {
            assert_eq!(table.enter(Class::Regular), rounds);
        }
        assert_eq!(table.queued(Class::Regular), 7);
        assert_eq!(table.enter(Class::Pages), 1);
        assert_eq!(table.enter(Class::Pages), 2);
        for _ in 0..9 {
            table.leave(Class::Regular);
        }
        assert_eq!(table.queued(Class::Regular), 0);
        assert_eq!(table.queued(Class::Pages), 2);
        // Lost slots serve nobody.
        for slot in 0..2 {
            assert_eq!(table.take(Class::Regular).unwrap().slot, slot);
            assert!(table.post(slot) && table.abort(slot));
        }
        assert_eq!(table.enter(Class::Regular), 1);
        assert_eq!(table.enter(Class::Regular), 2);
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
