// SPDX-License-Identifier: GPL-2.0

//! Printing what implements `core`'s `Display` with the kernel's macros, and not too often.

use kernel::{
    device::Device,
    fmt,
    prelude::fmt,
    print::{
        call_printk,
        format_strings, //
    },
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

use super::param::live_params;

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

live_params! {
    /// Whether [`say`] prints everything twice.
    static log_as_mlx5_core: 0, 0..=1, "Print what monitors look for once more as mlx5_core (0)";
}

/// Whether [`say`] and [`as_mlx5_core`] print lines of the kernel's own driver.
pub(crate) fn speaks_as_mlx5_core() -> bool {
    log_as_mlx5_core.get() != 0
}

/// Prints a line that fleet monitors look for (field case C27), at a level that is only known now: 0
/// (emergency) to 7 (debug). Many of them look for lines of the kernel's own `mlx5_core` only: if people
/// want it, the line is printed once more under that name.
pub(crate) fn say(dev: &Device, level: u8, line: &dyn core::fmt::Display) {
    let print = match level {
        0 => Device::pr_emerg,
        1 => Device::pr_alert,
        2 => Device::pr_crit,
        3 => Device::pr_err,
        4 => Device::pr_warn,
        5 => Device::pr_notice,
        // Debug lines are compiled out, and nothing that is told this way shall get lost.
        _ => Device::pr_info,
    };
    print(dev, fmt!("{}\n", Show(line)));
    as_mlx5_core(dev, level, line);
}

/// Prints a line as the kernel's own driver does, if people want that.
pub(crate) fn as_mlx5_core(dev: &Device, level: u8, line: &dyn core::fmt::Display) {
    const NAME: &[u8] = b"mlx5_core ";
    /// `dddd:bb:dd.f`, and what other buses may come up with.
    const MAX: usize = NAME.len() + 32;

    if !speaks_as_mlx5_core() {
        return;
    }
    // The rest stays zero, which ends the text.
    let mut prefix = [0; MAX + 1];
    let name = Iterator::chain(NAME.iter(), dev.name().to_bytes());
    for (to, from) in prefix.iter_mut().take(MAX).zip(name) {
        *to = *from;
    }
    let format = match level {
        0 => &format_strings::EMERG,
        1 => &format_strings::ALERT,
        2 => &format_strings::CRIT,
        3 => &format_strings::ERR,
        4 => &format_strings::WARNING,
        5 => &format_strings::NOTICE,
        _ => &format_strings::INFO,
    };
    // SAFETY: The format is one of `format_strings`, and the last byte of `prefix` is 0.
    unsafe { call_printk(format, &prefix, fmt!("{}\n", Show(line))) };
}
