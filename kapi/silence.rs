// SPDX-License-Identifier: GPL-2.0

//! Making sure that a device no longer writes to memory, before what it could write to is freed.
//!
//! A write to configuration space can be lost: the device hangs for a while, or its link is down. So
//! the bit is read back, and written again. All ones are no proof that the device is gone: it may come
//! back, with bus mastering as it was. If it does not answer in time, a reset of its link is proof,
//! because a function that has been reset is no bus master (PCIe Base Specification 6.6.1).

/// What configuration space shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// All ones: nobody answers.
    Nothing,
    /// Bus mastering is on, or off.
    Master(bool),
}

/// The function that is to be silent.
pub trait Function {
    /// Looks whether bus mastering is on.
    fn look(&mut self) -> View;
    /// Writes that it shall be off; the write may be lost.
    fn clear(&mut self);
    /// Whether the bus knows that there is no device any more.
    fn is_gone(&mut self) -> bool;
    /// Resets it by its link, if nobody else is behind it. `false` if that cannot be done.
    fn reset(&mut self) -> bool;
    /// Waits [`PAUSE_MS`] milliseconds.
    fn pause(&mut self);
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Bus mastering reads as off.
    Off,
    /// The device is gone.
    Gone,
    /// Its link was reset.
    Reset,
    /// It may still write to memory.
    Unknown,
}

/// Milliseconds between two looks.
pub const PAUSE_MS: u32 = 10;

/// How often is looked: for 200 ms. A function may be silent for 100 ms while it resets by itself
/// (PCIe Base Specification 6.6.2).
const LOOKS: u32 = 21;

/// Makes the function silent, in bounded time.
pub fn silence(function: &mut impl Function) -> Outcome {
    for look in 0..LOOKS {
        if look != 0 {
            function.pause();
        }
        if function.is_gone() {
            return Outcome::Gone;
        }
        match function.look() {
            View::Master(false) => return Outcome::Off,
            View::Master(true) => {
                function.clear();
                if function.look() == View::Master(false) {
                    return Outcome::Off;
                }
            }
            // What is written now is lost, or worse, arrives where it was not meant for.
            View::Nothing => {}
        }
    }
    if function.reset() {
        Outcome::Reset
    } else {
        Outcome::Unknown
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_kapi_silence)]
mod tests {
    use super::*;

    /// A function that does as it is told, from some look on.
    struct Fake {
        looks: u32,
        pauses: u32,
        /// Looks that see nothing.
        silent: u32,
        /// Writes that are lost.
        deaf: u32,
        master: bool,
        gone_after: u32,
        can_reset: bool,
        was_reset: bool,
        lost: u32,
    }

    const NEVER: u32 = u32::MAX;

    fn fake() -> Fake {
        Fake {
            looks: 0,
            pauses: 0,
            silent: 0,
            deaf: 0,
            master: true,
            gone_after: NEVER,
            can_reset: true,
            was_reset: false,
            lost: 0,
        }
    }

    impl Function for Fake {
        fn look(&mut self) -> View {
            self.looks += 1;
            if self.looks <= self.silent {
                View::Nothing
            } else {
                View::Master(self.master)
            }
        }

        fn clear(&mut self) {
            if self.lost < self.deaf {
                self.lost += 1;
            } else {
                self.master = false;
            }
        }

        fn is_gone(&mut self) -> bool {
            self.pauses >= self.gone_after
        }

        fn reset(&mut self) -> bool {
            self.was_reset = self.can_reset;
            self.can_reset
        }

        fn pause(&mut self) {
            self.pauses += 1;
        }
    }

    #[test]
    fn at_once() {
        let mut f = fake();
        assert_eq!(silence(&mut f), Outcome::Off);
        assert_eq!((f.pauses, f.master, f.was_reset), (0, false, false));
        // It was off before.
        assert_eq!(silence(&mut f), Outcome::Off);
    }

    #[test]
    fn silent_for_a_while() {
        let mut f = Fake {
            silent: 5,
            ..fake()
        };
        assert_eq!(silence(&mut f), Outcome::Off);
        assert_eq!((f.pauses, f.master, f.was_reset), (5, false, false));
    }

    #[test]
    fn a_write_is_lost() {
        let mut f = Fake { deaf: 3, ..fake() };
        assert_eq!(silence(&mut f), Outcome::Off);
        assert_eq!((f.pauses, f.master), (3, false));
    }

    #[test]
    fn pulled_out() {
        let mut f = Fake {
            silent: NEVER,
            gone_after: 0,
            ..fake()
        };
        assert_eq!(silence(&mut f), Outcome::Gone);
        assert_eq!((f.pauses, f.was_reset), (0, false));
        // The bus takes some time to notice.
        f.gone_after = 4;
        assert_eq!(silence(&mut f), Outcome::Gone);
        assert!(!f.was_reset);
    }

    #[test]
    fn silent_or_deaf_for_ever() {
        for (silent, deaf) in [(NEVER, 0), (0, NEVER)] {
            for can_reset in [true, false] {
                let mut f = Fake {
                    silent,
                    deaf,
                    can_reset,
                    ..fake()
                };
                let expected = if can_reset {
                    Outcome::Reset
                } else {
                    Outcome::Unknown
                };
                assert_eq!(silence(&mut f), expected);
                assert_eq!(f.was_reset, can_reset);
                assert_eq!(f.pauses, LOOKS - 1);
            }
        }
    }
}
