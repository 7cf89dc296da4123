// SPDX-License-Identifier: GPL-2.0

//! Counting completions with a bounded wait.
//!
//! C header: `include/linux/completion.h`. The `kernel` crate's `Completion` has neither `complete`
//! nor a wait with a timeout.

use kernel::{
    bindings,
    prelude::*,
    time::msecs_to_jiffies,
    types::Opaque, //
};

/// A counting completion: every [`signal`](Self::signal) lets one [`wait`](Self::wait) return.
#[pin_data]
pub(crate) struct Completion {
    #[pin]
    inner: Opaque<bindings::completion>,
}

// SAFETY: `struct completion` may be used from any thread.
unsafe impl Send for Completion {}

// SAFETY: `struct completion` synchronizes its users with a lock of its own.
unsafe impl Sync for Completion {}

impl Completion {
    /// Creates a completion with a count of 0.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- Opaque::ffi_init(|slot: *mut bindings::completion| {
                // SAFETY: `slot` points to memory for a `struct completion`.
                unsafe { bindings::init_completion(slot) };
            }),
        })
    }

    /// Raises the count by one. May be called in any context.
    pub(crate) fn signal(&self) {
        // SAFETY: `inner` was initialized in `new` and is pinned.
        unsafe { bindings::complete(self.inner.get()) };
    }

    /// Lets every present and future wait return.
    pub(crate) fn signal_all(&self) {
        // SAFETY: As in `signal`.
        unsafe { bindings::complete_all(self.inner.get()) };
    }

    /// Sets the count back to 0. The caller makes sure that nobody waits.
    pub(crate) fn rearm(&self) {
        // SAFETY: `inner` is initialized; `done` is only read by `signal` and `wait` under the
        // completion's lock, and no one is in either (a caller that breaks this loses a wake-up,
        // which a bounded wait survives).
        unsafe { (*self.inner.get()).done = 0 };
    }

    /// Waits until the count is above 0 and takes one; `false` when `ms` milliseconds went by first.
    /// Not interruptible: a signal must not free memory that the device may write. May sleep.
    pub(crate) fn wait(&self, ms: u32) -> bool {
        // At least one tick, and what fits the C type that holds jiffies.
        let jiffies = msecs_to_jiffies(ms).max(1);
        // SAFETY: `inner` was initialized in `new` and is pinned.
        let left = unsafe { bindings::wait_for_completion_timeout(self.inner.get(), jiffies) };
        left != 0
    }
}
