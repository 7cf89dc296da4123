// SPDX-License-Identifier: GPL-2.0

//! What a page request of the firmware asks for, and how it is split into commands
//! (hardware.md 2.5).
//!
//! Every number here comes from the device and is bounded before anything is allocated for it.

use core::fmt;

/// Most pages that one function may hold: 2 GiB. A request beyond it is refused.
pub const MAX_PAGES_PER_FUNCTION: u32 = 1 << 19;

/// Most pages that are taken back for one event: what upstream clamps to.
pub const MAX_TAKE: u32 = 50_000;

/// Page addresses that one MANAGE_PAGES command carries, in or out: 512 fill one kernel page and
/// eight mailboxes.
pub const BATCH: u32 = 512;

/// What the device wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Nothing.
    None,
    /// So many pages more.
    Give(u32),
    /// So many pages back, asked for by command.
    Take(u32),
    /// All pages of the function are free: no command is needed.
    ReleaseAll,
}

impl Demand {
    /// Reads a page request event: `num_pages` as signed by the device, and its release_all flag.
    pub fn from_event(num_pages: i32, release_all: bool) -> Self {
        if release_all {
            return Self::ReleaseAll;
        }
        match num_pages {
            0 => Self::None,
            n if n > 0 => Self::Give(n.unsigned_abs()),
            n => Self::Take(n.unsigned_abs().min(MAX_TAKE)),
        }
    }

    /// Reads the answer of QUERY_PAGES. Negative or zero is legal and asks for nothing at this point
    /// (field case C14).
    pub fn from_query(num_pages: i32) -> Self {
        match num_pages {
            n if n > 0 => Self::Give(n.unsigned_abs()),
            _ => Self::None,
        }
    }
}

/// Whether a function that holds `held` pages may get `more`.
pub fn may_give(held: u32, more: u32) -> bool {
    held.checked_add(more)
        .is_some_and(|sum| sum <= MAX_PAGES_PER_FUNCTION)
}

/// Splits `n` pages into command-sized batches.
pub fn batches(n: u32) -> impl Iterator<Item = u32> {
    let full = n / BATCH;
    let rest = n % BATCH;
    (0..full).map(|_| BATCH).chain((rest != 0).then_some(rest))
}

/// Why a page address from the device is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadReturn {
    /// More addresses than were asked for.
    TooMany {
        /// How many the command asked for.
        asked: u32,
        /// How many the device says it returns.
        got: u32,
    },
    /// An address that the function does not hold (never given, or returned before).
    NotHeld {
        /// The address.
        addr: u64,
    },
}

impl fmt::Display for BadReturn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { asked, got } => write!(
                f,
                "fw returned {got} pages, driver asked {asked} => corruption"
            ),
            Self::NotHeld { addr } => {
                write!(f, "fw returned page {addr:#x}, which it does not hold")
            }
        }
    }
}

/// Checks how many pages a take returned against how many were asked for.
///
/// # Errors
///
/// [`BadReturn::TooMany`].
pub fn check_count(asked: u32, got: u32) -> Result<u32, BadReturn> {
    if got > asked {
        Err(BadReturn::TooMany { asked, got })
    } else {
        Ok(got)
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_pages_plan)]
mod tests {
    use super::*;

    #[test]
    fn events() {
        for (n, all, want) in [
            (0, false, Demand::None),
            (1, false, Demand::Give(1)),
            (i32::MAX, false, Demand::Give(0x7fff_ffff)),
            (-1, false, Demand::Take(1)),
            (-50_001, false, Demand::Take(50_000)),
            (i32::MIN, false, Demand::Take(50_000)),
            (5, true, Demand::ReleaseAll),
            (-5, true, Demand::ReleaseAll),
        ] {
            assert_eq!(Demand::from_event(n, all), want);
        }
    }

    #[test]
    fn queries() {
        for (n, want) in [
            (i32::MIN, Demand::None),
            (-1, Demand::None),
            (0, Demand::None),
            (7, Demand::Give(7)),
        ] {
            assert_eq!(Demand::from_query(n), want);
        }
    }

    #[test]
    fn giving_is_bounded() {
        assert!(may_give(0, MAX_PAGES_PER_FUNCTION));
        assert!(!may_give(1, MAX_PAGES_PER_FUNCTION));
        assert!(!may_give(u32::MAX, 1));
        assert!(!may_give(0, 0x7fff_ffff));
    }

    #[test]
    fn batches_add_up() {
        for n in [0, 1, BATCH - 1, BATCH, BATCH + 1, 3 * BATCH + 7] {
            assert_eq!(batches(n).sum::<u32>(), n);
            assert!(batches(n).all(|b| b > 0 && b <= BATCH));
        }
    }

    #[test]
    fn returned_more_than_asked() {
        assert_eq!(check_count(3, 3), Ok(3));
        assert_eq!(check_count(3, 0), Ok(0));
        assert_eq!(
            check_count(3, 4),
            Err(BadReturn::TooMany { asked: 3, got: 4 })
        );
    }
}
