// SPDX-License-Identifier: GPL-2.0

//! Printing what implements `core`'s `Display` with the kernel's macros, and not too often.

use kernel::{
    fmt,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// Shows `T` through its [`core::fmt::Display`]: the pure code of the driver, which also runs on the
/// host, knows only `core`.
pub(crate) struct Show<T>(pub(crate) T);

impl<T: core::fmt::Display> fmt::Display for Show<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        core::fmt::Display::fmt(&self.0, f)
    }
}

/// Counts something that the device can cause as often as it likes, and says when it is worth a line
/// in the log: the 1st, 2nd, 4th, 8th ... time.
pub(crate) struct Throttle(Atomic<u64>);

impl Throttle {
    /// Nothing counted yet.
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Counts once; gives the count if there shall be a line.
    pub(crate) fn hit(&self) -> Option<u64> {
        let n = self.0.fetch_add(1, Relaxed).wrapping_add(1);
        n.is_power_of_two().then_some(n)
    }

    /// The count.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
