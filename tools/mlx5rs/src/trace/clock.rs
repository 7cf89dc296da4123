// SPDX-License-Identifier: GPL-2.0

//! From a clock that runs in a circle to a line.

use mlx5_pure::tracer::timestamp::Timestamp53;

/// A trace may stand so many ticks (4 s at 1 GHz) after one that is younger: messages are given when
/// they are complete.
const DISORDER: i64 = 1 << 32;

/// After so long a silence (40 hours at 1 GHz) a time needs a second one that confirms it.
const SILENCE: i64 = 1 << 47;

/// Of a trace without a reliable time drivers know 7 bits (hardware.md 4): times below this confirm
/// nothing.
const LOW_BITS: u64 = 1 << 7;

/// Where a time is on the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Ticks. The first time is what it says; those after it go on beyond 2^53.
    pub ticks: i128,
    /// The time does not fit its neighbours: the place is that of the one before.
    pub doubtful: bool,
    /// The clock was set back before this time; the line goes on from where it was.
    pub jumped: bool,
}

/// Puts the times of one device on a line.
///
/// Each time is placed by how far it is, the shorter way, from the one before. A single time that is
/// far off (firmware has unreliable ones) does not move anything; a second one near it does.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    last: Option<(Timestamp53, i128)>,
    /// A time far off, which the next one may confirm.
    candidate: Option<Timestamp53>,
}

fn is_near(time: Timestamp53, other: Timestamp53) -> bool {
    (-DISORDER..=SILENCE).contains(&time.offset_from(other))
}

impl Clock {
    /// Places the next time.
    pub fn place(&mut self, time: Timestamp53) -> Place {
        let Some((last, ticks)) = self.last else {
            self.last = Some((time, time.get().into()));
            return Place {
                ticks: time.get().into(),
                doubtful: false,
                jumped: false,
            };
        };
        let offset = time.offset_from(last);
        let confirmed =
            time.get() >= LOW_BITS && self.candidate.is_some_and(|other| is_near(time, other));
        if !is_near(time, last) && !confirmed {
            self.candidate = Some(time);
            return Place {
                ticks,
                doubtful: true,
                jumped: false,
            };
        }
        self.candidate = None;
        // A clock does not run back so far: the device was reset.
        let jumped = offset < -DISORDER;
        let ticks = ticks.saturating_add(if jumped { 0 } else { offset.into() });
        self.last = Some((time, ticks));
        Place {
            ticks,
            doubtful: false,
            jumped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROUND: i128 = 1 << 53;

    fn places(times: &[u64]) -> Vec<Place> {
        let mut clock = Clock::default();
        times
            .iter()
            .map(|time| clock.place(Timestamp53::new(*time)))
            .collect()
    }

    fn ticks(times: &[u64]) -> Vec<i128> {
        places(times).iter().map(|place| place.ticks).collect()
    }

    #[test]
    fn wraps_go_on() {
        let max = Timestamp53::MAX;
        assert_eq!(
            ticks(&[max - 1, max, 0, 5, max, 7]),
            [ROUND - 2, ROUND - 1, ROUND, ROUND + 5, ROUND - 1, ROUND + 7]
        );
        // Before the first one.
        assert_eq!(ticks(&[2, max]), [2, -1]);
        // Twice around.
        let times: Vec<u64> = (0..200).map(|i| i * (1 << 46)).collect();
        let want: Vec<i128> = (0..200).map(|i| i * (1 << 46)).collect();
        assert_eq!(ticks(&times), want);
    }

    #[test]
    fn one_time_far_off_moves_nothing() {
        for start in [1 << 40, (1 << 52) - 3, 1 << 52, (1 << 52) + 3, 3 << 51] {
            let places = places(&[start, 0x11, start + 4, 0x7f, 0x7f, start + 5]);
            let doubtful: Vec<bool> = places.iter().map(|place| place.doubtful).collect();
            let want = [false, true, false, true, true, false];
            assert_eq!(doubtful, want, "{start:#x}");
            assert_eq!(places[1].ticks, places[0].ticks);
            assert_eq!(places[2].ticks - places[0].ticks, 4);
        }
    }

    #[test]
    fn a_clock_that_is_set_back_goes_on() {
        let start = 1 << 45;
        let places = places(&[start, 1000, 1100, 1200]);
        assert!(places[1].doubtful && places[2].jumped && !places[3].jumped);
        assert_eq!(places[3].ticks, i128::from(start) + 100);
    }

    #[test]
    fn a_long_silence_is_confirmed() {
        let far = 1 << 50;
        let places = places(&[100, far, far + 10]);
        assert!(places[1].doubtful && !places[2].doubtful && !places[2].jumped);
        assert_eq!(places[2].ticks, i128::from(far) + 10);
    }

    proptest! {
        /// Whatever a device writes, and from wherever it starts.
        #[test]
        fn steps_are_kept(start: u64, steps in proptest::collection::vec(0..(1_u64 << 47), 1..100)) {
            let mut time = Timestamp53::new(start);
            let mut clock = Clock::default();
            let mut at = clock.place(time).ticks;
            for step in steps {
                time = time.plus(step);
                let place = clock.place(time);
                prop_assert!(!place.doubtful);
                prop_assert_eq!(place.ticks, at + i128::from(step));
                at = place.ticks;
            }
        }

        #[test]
        fn anything_can_be_placed(times: Vec<u64>) {
            for place in places(&times) {
                prop_assert!(!(place.doubtful && place.jumped));
            }
        }
    }
}
