// SPDX-License-Identifier: GPL-2.0

//! User contexts, and which objects are whose (hardware.md section 9).
//!
//! The kernel, uid 0, may do everything. A user reaches only its own objects and those that are
//! shared. What the device does with the objects of a user context that is destroyed is not public:
//! the model refuses to destroy it before they are gone, so that no driver relies on either.

use std::collections::BTreeMap;

/// The uid that stands for all users: hardware.md section 3.2.
pub const SHARED: u16 = 0xffff;

/// An object that a user can own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// A doorbell page.
    Uar(u32),
    /// A protection domain.
    Pd(u32),
    /// A transport domain.
    TransportDomain(u32),
    /// A memory key, by its index.
    Mkey(u32),
}

/// All users.
#[derive(Clone, Debug, Default)]
pub struct Users {
    /// Their rights, by uid.
    rights: BTreeMap<u16, u32>,
    /// Owners of the objects that are not the kernel's.
    owners: BTreeMap<Object, u16>,
}

impl Users {
    /// A new user; `None` if there are `most` already.
    pub fn open(&mut self, rights: u32, most: u32) -> Option<u16> {
        let most = most.min(SHARED.into());
        let uid = (1..most)
            .map(|uid| uid as u16)
            .find(|uid| !self.rights.contains_key(uid))?;
        self.rights.insert(uid, rights);
        Some(uid)
    }

    /// Forgets a user; `false` if there is no such one.
    pub fn close(&mut self, uid: u16) -> bool {
        self.rights.remove(&uid).is_some()
    }

    /// Whether there is a user with this uid.
    pub fn knows(&self, uid: u16) -> bool {
        self.rights.contains_key(&uid)
    }

    /// The uids, in order.
    pub fn uids(&self) -> impl Iterator<Item = u16> + '_ {
        self.rights.keys().copied()
    }

    /// `object` is made for `uid`.
    pub fn own(&mut self, object: Object, uid: u16) {
        if uid != 0 {
            self.owners.insert(object, uid);
        }
    }

    /// `object` is gone.
    pub fn disown(&mut self, object: Object) {
        self.owners.remove(&object);
    }

    /// Whether `uid` may name `object`.
    pub fn may_use(&self, object: Object, uid: u16) -> bool {
        uid == 0 || self.owners.get(&object) == Some(&uid)
    }

    /// The objects of a user.
    pub fn objects(&self, uid: u16) -> Vec<Object> {
        let mine = self.owners.iter().filter(|(_, owner)| **owner == uid);
        mine.map(|(object, _)| *object).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_belong_to_one() {
        let mut users = Users::default();
        let (a, b) = (users.open(0, 4).expect("a"), users.open(0, 4).expect("b"));
        assert_ne!((a, b), (0, a));
        users.own(Object::Pd(7), a);
        assert!(users.may_use(Object::Pd(7), a) && users.may_use(Object::Pd(7), 0));
        assert!(!users.may_use(Object::Pd(7), b) && !users.may_use(Object::Uar(7), a));
        assert_eq!(users.objects(a), [Object::Pd(7)]);
        users.disown(Object::Pd(7));
        assert_eq!(users.objects(a), []);
        // The kernel's objects are nobody's.
        users.own(Object::Pd(8), 0);
        assert!(!users.may_use(Object::Pd(8), b));
        assert!(users.close(a) && !users.close(a));
        assert!(!users.knows(a) && users.knows(b));
    }

    #[test]
    fn there_are_so_many() {
        let mut users = Users::default();
        assert_eq!(users.open(0, 1), None);
        assert_eq!((users.open(0, 3), users.open(0, 3)), (Some(1), Some(2)));
        assert_eq!(users.open(0, 3), None);
        users.close(1);
        assert_eq!(users.open(0, 3), Some(1));
    }
}
