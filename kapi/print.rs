// SPDX-License-Identifier: GPL-2.0

//! Printing what implements `core`'s `Display` with the kernel's macros.

use kernel::fmt;

/// Shows `T` through its [`core::fmt::Display`]: the pure code of the driver, which also runs on the
/// host, knows only `core`.
pub(crate) struct Show<T>(pub(crate) T);

impl<T: core::fmt::Display> fmt::Display for Show<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        core::fmt::Display::fmt(&self.0, f)
    }
}
