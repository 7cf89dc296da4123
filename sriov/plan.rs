// SPDX-License-Identifier: GPL-2.0

//! In which order virtual functions are enabled and disabled, and what becomes of those before when one
//! fails (field case C42).

/// How a function is enabled and disabled. Functions are numbered from 1; 0 is the physical one.
pub trait Switch {
    /// Why it failed.
    type Error;

    /// Enables a function.
    ///
    /// # Errors
    ///
    /// Any: the function is not enabled.
    fn enable(&mut self, function: u16) -> Result<(), Self::Error>;

    /// Disables a function.
    fn disable(&mut self, function: u16) -> Disabled;
}

/// What became of a function that was to be disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disabled {
    /// It is disabled.
    Yes,
    /// The device refuses; it can be asked for others.
    No,
    /// The device does not answer: asking for others takes as long.
    Silence,
}

/// The function of an entry in a list of all.
fn function(index: usize) -> u16 {
    u16::try_from(index + 1).unwrap_or(u16::MAX)
}

/// Enables the functions of all entries, first one first; `on` says which are enabled. All or none:
/// when one fails, those that were enabled here are disabled again, last one first.
///
/// # Errors
///
/// That of the function that failed.
pub fn enable<S: Switch>(on: &mut [bool], switch: &mut S) -> Result<(), S::Error> {
    for index in 0..on.len() {
        let Some(entry) = on.get_mut(index).filter(|entry| !**entry) else {
            continue;
        };
        match switch.enable(function(index)) {
            Ok(()) => *entry = true,
            Err(error) => {
                disable(on, switch);
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Disables the functions that are enabled, last one first. One that the device refuses to disable
/// stays enabled, and does not keep the others; when the device does not answer, the rest stays too.
pub fn disable<S: Switch>(on: &mut [bool], switch: &mut S) {
    for (index, entry) in on.iter_mut().enumerate().rev().filter(|(_, on)| **on) {
        match switch.disable(function(index)) {
            Disabled::Yes => *entry = false,
            Disabled::No => {}
            Disabled::Silence => return,
        }
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_sriov_plan)]
mod tests {
    use super::*;

    /// A device with up to 8 functions.
    struct Fake {
        /// What was asked, in order: function, enabled or disabled.
        log: [(u16, bool); 32],
        asked: usize,
        cannot_enable: u16,
        cannot_disable: u16,
        silent_at: u16,
    }

    fn fake() -> Fake {
        Fake {
            log: [(0, false); 32],
            asked: 0,
            cannot_enable: 0,
            cannot_disable: 0,
            silent_at: 0,
        }
    }

    impl Fake {
        fn note(&mut self, function: u16, on: bool) {
            if let Some(place) = self.log.get_mut(self.asked) {
                *place = (function, on);
            }
            self.asked += 1;
        }

        fn was_asked(&self, expected: &[(u16, bool)]) -> bool {
            self.log.get(..self.asked) == Some(expected)
        }
    }

    impl Switch for Fake {
        type Error = u16;

        fn enable(&mut self, function: u16) -> Result<(), u16> {
            self.note(function, true);
            if function == self.cannot_enable {
                Err(function)
            } else {
                Ok(())
            }
        }

        fn disable(&mut self, function: u16) -> Disabled {
            self.note(function, false);
            if function == self.cannot_disable {
                Disabled::No
            } else if function == self.silent_at {
                Disabled::Silence
            } else {
                Disabled::Yes
            }
        }
    }

    #[test]
    fn first_to_last_and_back() {
        let mut on = [false; 3];
        let mut device = fake();
        assert_eq!(enable(&mut on, &mut device), Ok(()));
        assert_eq!(on, [true; 3]);
        disable(&mut on, &mut device);
        assert_eq!(on, [false; 3]);
        assert!(device.was_asked(&[
            (1, true),
            (2, true),
            (3, true),
            (3, false),
            (2, false),
            (1, false),
        ]));
        // Nothing is left to do.
        disable(&mut on, &mut device);
        assert_eq!(device.asked, 6);
    }

    #[test]
    fn none() {
        let mut device = fake();
        assert_eq!(enable(&mut [], &mut device), Ok(()));
        disable(&mut [], &mut device);
        assert_eq!(device.asked, 0);
    }

    #[test]
    fn failure_undoes_those_before() {
        for k in 1..=4 {
            let mut on = [false; 4];
            let mut device = Fake {
                cannot_enable: k,
                ..fake()
            };
            assert_eq!(enable(&mut on, &mut device), Err(k));
            assert_eq!(on, [false; 4]);
            // 1..=k enabled, k failed, k-1..=1 disabled.
            assert_eq!(device.asked, 2 * usize::from(k) - 1);
            let last = device.log.get(device.asked - 1).copied();
            let expected = if k == 1 { (1, true) } else { (1, false) };
            assert_eq!(last, Some(expected));
        }
    }

    #[test]
    fn refusal_keeps_one_only() {
        let mut on = [true; 4];
        let mut device = Fake {
            cannot_disable: 3,
            ..fake()
        };
        disable(&mut on, &mut device);
        assert_eq!(on, [false, false, true, false]);
        assert!(device.was_asked(&[(4, false), (3, false), (2, false), (1, false)]));
        // It is not enabled twice, and it is tried again.
        device.cannot_disable = 0;
        assert_eq!(enable(&mut on, &mut device), Ok(()));
        assert_eq!(device.asked, 7);
        disable(&mut on, &mut device);
        assert_eq!(on, [false; 4]);
    }

    #[test]
    fn silence_ends_it() {
        let mut on = [true; 4];
        let mut device = Fake {
            silent_at: 3,
            ..fake()
        };
        disable(&mut on, &mut device);
        assert_eq!(on, [true, true, true, false]);
        assert!(device.was_asked(&[(4, false), (3, false)]));
    }
}
