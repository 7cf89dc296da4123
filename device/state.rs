// SPDX-License-Identifier: GPL-2.0

//! The states of a device, and which may follow which (M1.6, M4.3).
//!
//! Every callback of the bus, and later the health monitor, goes through here: what is not in the
//! table does not happen.

use core::fmt;

/// Where a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing of it is in use: before bring-up, after teardown, while asleep.
    Down,
    /// Bring-up runs.
    Initializing,
    /// It works.
    Up,
    /// It was in use when it or its bus failed; everything was let go.
    Error,
    /// It is being reset, by this driver or by somebody else.
    Recovering,
    /// Teardown runs.
    GoingDown,
    /// It is off the bus. There is no way back.
    Gone,
}

impl State {
    /// What people read.
    pub fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Initializing => "initializing",
            Self::Up => "up",
            Self::Error => "error",
            Self::Recovering => "recovering",
            Self::GoingDown => "going down",
            Self::Gone => "gone",
        }
    }

    /// Whether `next` may follow.
    pub fn may_become(self, next: Self) -> bool {
        use State::*;
        matches!(
            (self, next),
            (Down, Initializing | Recovering | Gone)
                | (Initializing, Up | Down | Error | Gone)
                | (Up, GoingDown | Error | Gone)
                | (Error, Recovering | Initializing | GoingDown | Gone)
                | (Recovering, Initializing | Error | GoingDown | Gone)
                | (GoingDown, Down | Recovering | Gone)
        )
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_device_state)]
mod tests {
    use super::*;

    const ALL: [State; 7] = [
        State::Down,
        State::Initializing,
        State::Up,
        State::Error,
        State::Recovering,
        State::GoingDown,
        State::Gone,
    ];

    #[test]
    fn gone_is_the_end() {
        for next in ALL {
            assert!(!State::Gone.may_become(next));
        }
    }

    #[test]
    fn every_state_but_gone_can_be_lost() {
        for state in ALL {
            assert_eq!(state.may_become(State::Gone), state != State::Gone);
        }
    }

    #[test]
    fn nothing_comes_up_without_bring_up() {
        for state in ALL {
            assert_eq!(state.may_become(State::Up), state == State::Initializing);
        }
    }

    #[test]
    fn what_was_never_up_is_not_taken_down() {
        for state in [State::Down, State::Initializing, State::Gone] {
            assert!(!state.may_become(State::GoingDown));
        }
    }

    #[test]
    fn teardown_and_recovery_exclude_each_other() {
        // Recovery while going down (field case C19) would bring up what is being freed.
        assert!(!State::GoingDown.may_become(State::Initializing));
        assert!(!State::GoingDown.may_become(State::Error));
        assert!(!State::GoingDown.may_become(State::Up));
    }
}
