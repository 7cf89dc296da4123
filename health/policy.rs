// SPDX-License-Identifier: GPL-2.0

//! What the watchdog makes of what it reads (M4.1 to M4.4).
//!
//! [`Monitor`] takes one [`Sample`] after the other and says what each means; it reads nothing and
//! knows no clock but the one in the samples. [`Grace`] keeps recoveries from following each other
//! for ever.

use core::fmt;

use super::buffer::Report;
use crate::layouts::segment::InitialSeg;

/// `nic_interface` values that are sensors (hardware.md 1).
const NIC_DISABLED: u8 = 1;
const NIC_SW_RESET: u8 = 7;

/// What was read from the device at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Milliseconds of any clock that only goes forward.
    pub at_ms: u64,
    /// The word with health syndrome and counter.
    pub word: u32,
    /// `nic_interface` of the segment.
    pub nic_interface: u8,
    /// Every register is all ones.
    pub is_silent: bool,
    /// The bus has cut the device off.
    pub is_offline: bool,
}

impl Sample {
    /// What firmware says of itself; 0 is well.
    pub fn syndrome(&self) -> u8 {
        syndrome(self.word)
    }

    /// The counter, modulo 2^24.
    pub fn counter(&self) -> u32 {
        counter(self.word)
    }
}

/// What firmware says of itself in the word with syndrome and counter; 0 is well.
pub fn syndrome(word: u32) -> u8 {
    InitialSeg::HEALTH_SYNDROME.in_word().get(word) as u8
}

/// The counter in that word, modulo 2^24.
pub fn counter(word: u32) -> u32 {
    InitialSeg::HEALTH_COUNTER.in_word().get(word)
}

/// When a counter that stands still means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Unchanged reads in a row that are a stall. At least 1.
    pub misses: u32,
    /// Milliseconds of a stall after which firmware counts as dead; 0: never.
    pub dead_ms: u32,
}

/// Why a device cannot go on (M4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sensor {
    /// Reads do not reach the device.
    PciDead,
    /// The bus has cut it off.
    PciOffline,
    /// Its interface is disabled.
    NicDisabled,
    /// It is in a software reset.
    NicSwReset,
    /// Firmware has failed and asks for a reset.
    ResetRequired,
    /// Firmware has failed, and stands still.
    Crashed,
    /// Firmware has been standing still for long, without a word.
    Hung,
}

impl Sensor {
    /// Its number in the log: upstream's for those that upstream has.
    pub fn number(self) -> u8 {
        match self {
            Self::PciDead => 1,
            Self::PciOffline => 2,
            Self::NicDisabled => 3,
            Self::NicSwReset => 4,
            Self::ResetRequired => 5,
            Self::Crashed => 6,
            Self::Hung => 7,
        }
    }

    /// What people read.
    pub fn name(self) -> &'static str {
        match self {
            Self::PciDead => "the device does not answer",
            Self::PciOffline => "the bus has cut the device off",
            Self::NicDisabled => "the NIC interface is disabled",
            Self::NicSwReset => "the NIC interface is in software reset",
            Self::ResetRequired => "firmware asks for a reset",
            Self::Crashed => "firmware has failed and stands still",
            Self::Hung => "firmware has been standing still for too long",
        }
    }
}

impl fmt::Display for Sensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a sample means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nothing new.
    Nothing,
    /// The counter has not moved for [`Limits::misses`] reads; said once for each stall.
    Stall {
        /// Unchanged reads.
        misses: u32,
    },
    /// The counter moves again after a stall.
    Resumed {
        /// How long it stood, in milliseconds.
        stood_ms: u64,
    },
    /// A new syndrome, without a stall.
    Syndrome,
    /// The device cannot go on; nothing is found after this.
    Fatal(Sensor),
}

/// The state of the watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Monitor {
    counter: u32,
    syndrome: u8,
    moved_ms: u64,
    misses: u32,
    stalled: bool,
    fatal: bool,
}

impl Monitor {
    /// A monitor that `first` has primed. A syndrome in it is an old one: it was there before the
    /// device was put to use, and has been reported.
    pub fn new(first: &Sample) -> Self {
        Self {
            counter: first.counter(),
            syndrome: first.syndrome(),
            moved_ms: first.at_ms,
            misses: 0,
            stalled: false,
            fatal: false,
        }
    }

    /// Takes the next sample.
    pub fn observe(&mut self, sample: &Sample, limits: Limits) -> Finding {
        if self.fatal {
            return Finding::Nothing;
        }
        let sensor = match sample {
            Sample {
                is_silent: true, ..
            } => Some(Sensor::PciDead),
            Sample {
                is_offline: true, ..
            } => Some(Sensor::PciOffline),
            Sample {
                nic_interface: NIC_DISABLED,
                ..
            } => Some(Sensor::NicDisabled),
            Sample {
                nic_interface: NIC_SW_RESET,
                ..
            } => Some(Sensor::NicSwReset),
            _ => None,
        };
        if let Some(sensor) = sensor {
            return self.fail(sensor);
        }

        let is_new = sample.syndrome() != 0 && sample.syndrome() != self.syndrome;
        self.syndrome = sample.syndrome();
        if sample.counter() != self.counter {
            let stood_ms = sample.at_ms.saturating_sub(self.moved_ms);
            let resumed = self.stalled;
            self.counter = sample.counter();
            self.moved_ms = sample.at_ms;
            self.misses = 0;
            self.stalled = false;
            return if is_new {
                Finding::Syndrome
            } else if resumed {
                Finding::Resumed { stood_ms }
            } else {
                Finding::Nothing
            };
        }

        self.misses = self.misses.saturating_add(1);
        if !self.stalled && self.misses >= limits.misses.max(1) {
            self.stalled = true;
            return Finding::Stall {
                misses: self.misses,
            };
        }
        let stood_ms = sample.at_ms.saturating_sub(self.moved_ms);
        if self.stalled && limits.dead_ms != 0 && stood_ms >= limits.dead_ms.into() {
            return self.fail(Sensor::Hung);
        }
        if is_new {
            return Finding::Syndrome;
        }
        Finding::Nothing
    }

    /// Takes the health buffer that was read because of `finding`, which is one of those that come
    /// with a syndrome. Gives the sensor if it shows that firmware cannot go on.
    pub fn examine(&mut self, finding: Finding, report: &Report) -> Option<Sensor> {
        if self.fatal {
            return None;
        }
        let sensor = match finding {
            _ if report.is_unreadable() => Sensor::PciDead,
            Finding::Stall { .. } | Finding::Syndrome if report.wants_reset() => {
                Sensor::ResetRequired
            }
            Finding::Stall { .. } => Sensor::Crashed,
            Finding::Syndrome if self.stalled => Sensor::Crashed,
            _ => return None,
        };
        self.fail(sensor);
        Some(sensor)
    }

    fn fail(&mut self, sensor: Sensor) -> Finding {
        self.fatal = true;
        Finding::Fatal(sensor)
    }

    /// Whether the device cannot go on.
    pub fn is_fatal(&self) -> bool {
        self.fatal
    }

    /// Unchanged reads in a row.
    pub fn misses(&self) -> u32 {
        self.misses
    }

    /// Whether the counter has stood still for as many reads as are a stall.
    pub fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// How long to wait until the next read, in microseconds, if reads are `interval_ms` apart.
    ///
    /// A counter can stop right after a read: this interval is lost before the first read that finds
    /// it unchanged. With three misses that makes four intervals, and nothing left of the 400 ms in
    /// which a stall has to be seen (M4.5), so that reads that confirm a first miss come sooner: after
    /// three quarters of the interval.
    pub fn pause_us(&self, interval_ms: u32) -> u64 {
        let us = u64::from(interval_ms) * 1000;
        if self.misses != 0 && !self.stalled {
            us / 4 * 3
        } else {
            us
        }
    }
}

/// Keeps one recovery from following the other too soon (M4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grace {
    period_ms: u64,
    last_ms: Option<u64>,
}

/// Grace periods in milliseconds (hardware.md 1.2): embedded CPU, physical and virtual function.
const GRACE_ECPF_MS: u64 = 180_000;
const GRACE_PF_MS: u64 = 60_000;
const GRACE_VF_MS: u64 = 30_000;

impl Grace {
    /// That of a function of this kind.
    pub fn new(is_embedded_cpu: bool, is_virtual: bool) -> Self {
        let period_ms = match (is_embedded_cpu, is_virtual) {
            (true, _) => GRACE_ECPF_MS,
            (_, true) => GRACE_VF_MS,
            _ => GRACE_PF_MS,
        };
        Self {
            period_ms,
            last_ms: None,
        }
    }

    /// Sets the period for a function of this kind; what was stays.
    pub fn set_kind(&mut self, is_embedded_cpu: bool, is_virtual: bool) {
        self.period_ms = Self::new(is_embedded_cpu, is_virtual).period_ms;
    }

    /// Whether a recovery may start by itself now.
    ///
    /// # Errors
    ///
    /// How many milliseconds are missing.
    pub fn check(&self, now_ms: u64) -> Result<(), u64> {
        let passed = match self.last_ms {
            None => return Ok(()),
            Some(last) => now_ms.saturating_sub(last),
        };
        match self.period_ms.saturating_sub(passed) {
            0 => Ok(()),
            missing => Err(missing),
        }
    }

    /// A recovery ended now, whether by itself or because somebody wanted it.
    pub fn recovered(&mut self, now_ms: u64) {
        self.last_ms = Some(now_ms);
    }

    /// The period in milliseconds.
    pub fn period_ms(&self) -> u64 {
        self.period_ms
    }
}

/// Keeps a device that fails all the time from flooding the log: so many reports at once, then one
/// each second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    left: u32,
    filled_ms: u64,
}

impl Budget {
    /// Most reports at once.
    const MOST: u32 = 32;
    /// Milliseconds for one more.
    const EACH_MS: u64 = 1000;

    /// A full budget.
    pub fn new(now_ms: u64) -> Self {
        Self {
            left: Self::MOST,
            filled_ms: now_ms,
        }
    }

    /// Takes one, if there is one left.
    pub fn take(&mut self, now_ms: u64) -> bool {
        let more = now_ms.saturating_sub(self.filled_ms) / Self::EACH_MS;
        if more != 0 {
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(more).min(Self::MOST);
            self.filled_ms = now_ms;
        }
        let has = self.left != 0;
        self.left = self.left.saturating_sub(1);
        has
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_health_policy)]
mod tests {
    use super::*;
    use crate::{
        health::buffer::LEN,
        segment::decode::Firmware, //
    };

    const LIMITS: Limits = Limits {
        misses: 3,
        dead_ms: 1000,
    };

    /// What a device does between two reads.
    #[derive(Clone, Copy)]
    enum Do {
        /// The counter moves by so many.
        Move(u32),
        /// It stands still.
        Stand,
        /// It moves, and says this of itself.
        Say(u8),
        /// It stands still, and says this of itself.
        Die(u8),
        /// `nic_interface` reads so from now on.
        Nic(u8),
        /// All ones.
        Silence,
        /// The bus cuts it off.
        Offline,
    }
    use Do::*;

    const QUIET: Finding = Finding::Nothing;
    const STALL: Finding = Finding::Stall { misses: 3 };

    /// Reads every 100 ms what `steps` do, after a first read of `first`; compares the findings.
    fn runs(first: u32, steps: &[(Do, Finding)]) -> bool {
        let mut sample = Sample {
            at_ms: 5000,
            word: first,
            nic_interface: 0,
            is_silent: false,
            is_offline: false,
        };
        let mut monitor = Monitor::new(&sample);
        steps.iter().all(|(what, want)| {
            sample.at_ms += 100;
            let mut syndrome = sample.word >> 24;
            let mut counter = sample.counter();
            match *what {
                Move(n) => counter = counter.wrapping_add(n),
                Stand => {}
                Say(new) => {
                    syndrome = new.into();
                    counter += 1;
                }
                Die(new) => syndrome = new.into(),
                Nic(nic) => sample.nic_interface = nic,
                Silence => sample.is_silent = true,
                Offline => sample.is_offline = true,
            }
            sample.word = syndrome << 24 | counter & 0xff_ffff;
            if sample.is_silent {
                sample.word = u32::MAX;
            }
            monitor.observe(&sample, LIMITS) == *want
        })
    }

    #[test]
    fn the_first_read_is_no_miss() {
        // Also not of a counter that is 0.
        for first in [0, 1, 0xff_ffff] {
            assert!(runs(
                first,
                &[(Stand, QUIET), (Stand, QUIET), (Stand, STALL)]
            ));
            assert!(runs(
                first,
                &[
                    (Stand, QUIET),
                    (Stand, QUIET),
                    (Move(1), QUIET),
                    (Stand, QUIET)
                ]
            ));
        }
    }

    #[test]
    fn any_movement_is_life() {
        // Also backwards, by a wrap, or by nearly a whole turn.
        for first in [0, 7, 0xff_fff0, 0xff_ffff] {
            for step in [1, 10, 0x80_0000, 0xff_ffff, 0x100_000a] {
                let mut steps = [(Move(step), QUIET); 40];
                assert!(runs(first, &steps));
                // Two misses after each movement are none of a stall.
                for (i, step) in steps.iter_mut().enumerate() {
                    if i % 3 != 0 {
                        step.0 = Stand;
                    }
                }
                assert!(runs(first, &steps));
            }
        }
        // A whole turn looks like no movement at all.
        let turn = Move(0x100_0000);
        assert!(runs(9, &[(turn, QUIET), (turn, QUIET), (turn, STALL)]));
    }

    #[test]
    fn a_stall_is_said_once() {
        assert!(runs(
            9,
            &[
                (Stand, QUIET),
                (Stand, QUIET),
                (Stand, STALL),
                (Stand, QUIET),
                (Stand, QUIET),
                (Stand, QUIET),
                (Move(1), Finding::Resumed { stood_ms: 700 }),
                (Stand, QUIET),
                (Stand, QUIET),
                (Stand, STALL),
                (Move(1), Finding::Resumed { stood_ms: 400 }),
            ]
        ));
    }

    #[test]
    fn a_long_stall_is_death() {
        let mut steps = [(Stand, QUIET); 12];
        steps[2].1 = STALL;
        steps[9].1 = Finding::Fatal(Sensor::Hung);
        assert!(runs(9, &steps));
        // Unless that is switched off.
        let mut sample = Sample {
            at_ms: 0,
            word: 1,
            nic_interface: 0,
            is_silent: false,
            is_offline: false,
        };
        let mut monitor = Monitor::new(&sample);
        let limits = Limits {
            misses: 1,
            dead_ms: 0,
        };
        sample.at_ms = 1 << 40;
        assert_eq!(
            monitor.observe(&sample, limits),
            Finding::Stall { misses: 1 }
        );
        sample.at_ms += 1 << 40;
        assert_eq!(monitor.observe(&sample, limits), QUIET);
    }

    #[test]
    fn syndromes() {
        let new = Finding::Syndrome;
        // A new one is said without a stall, and once.
        assert!(runs(1, &[(Say(7), new), (Say(7), QUIET), (Move(1), QUIET)]));
        // Each change to another one is new; the way back to 0 is none.
        assert!(runs(
            1,
            &[
                (Say(7), new),
                (Say(8), new),
                (Say(0), QUIET),
                (Say(8), new),
                (Die(1), new)
            ]
        ));
        // One that was there before is old.
        assert!(runs(7 << 24, &[(Say(7), QUIET), (Say(1), new)]));
        // Both at once are one stall.
        assert!(runs(
            1,
            &[
                (Stand, QUIET),
                (Stand, QUIET),
                (Die(7), STALL),
                (Stand, QUIET)
            ]
        ));
        // A stall, then a word about it.
        assert!(runs(
            1,
            &[
                (Stand, QUIET),
                (Stand, QUIET),
                (Stand, STALL),
                (Die(7), new),
                (Stand, QUIET)
            ]
        ));
    }

    #[test]
    fn sensors() {
        let fatal = Finding::Fatal;
        for (what, sensor) in [
            (Silence, Some(Sensor::PciDead)),
            (Offline, Some(Sensor::PciOffline)),
            (Nic(1), Some(Sensor::NicDisabled)),
            (Nic(7), Some(Sensor::NicSwReset)),
            // Full driver, no DRAM, and values that mean nothing.
            (Nic(0), None),
            (Nic(2), None),
            (Nic(3), None),
            (Nic(6), None),
        ] {
            let want = sensor.map_or(QUIET, fatal);
            // Said at once, and nothing after it, whatever comes.
            assert!(runs(5, &[(Move(1), QUIET), (what, want)]));
            if sensor.is_some() {
                assert!(runs(
                    5,
                    &[
                        (what, want),
                        (Stand, QUIET),
                        (Say(7), QUIET),
                        (Nic(7), QUIET),
                        (Silence, QUIET)
                    ]
                ));
            }
        }
        // What is more sure comes first.
        let sample = Sample {
            at_ms: 100,
            word: u32::MAX,
            nic_interface: 7,
            is_silent: true,
            is_offline: true,
        };
        let mut monitor = Monitor::new(&Sample { at_ms: 0, ..sample });
        assert_eq!(monitor.observe(&sample, LIMITS), fatal(Sensor::PciDead));
        assert_eq!(monitor.observe(&sample, LIMITS), QUIET);
    }

    #[test]
    fn what_the_buffer_adds() {
        let stall = Finding::Stall { misses: 3 };
        // rfr, synd: with a stall, without one.
        for (rfr, synd, with_stall, without) in [
            (0, 7, Some(Sensor::Crashed), None),
            (
                0x80,
                7,
                Some(Sensor::ResetRequired),
                Some(Sensor::ResetRequired),
            ),
            // The word beside the counter had one: firmware is not well, whatever is here.
            (0, 0, Some(Sensor::Crashed), None),
            (
                0xff,
                0xff,
                Some(Sensor::ResetRequired),
                Some(Sensor::ResetRequired),
            ),
        ] {
            let mut bytes = [0; LEN];
            bytes[0x38] = rfr;
            bytes[0x3d] = synd;
            let firmware = Firmware {
                major: 1,
                minor: 2,
                subminor: 3,
                cmd_interface_rev: 5,
            };
            let report = Report::new(bytes, firmware);
            for (finding, want) in [(stall, with_stall), (Finding::Syndrome, without)] {
                let mut monitor = Monitor::new(&Sample {
                    at_ms: 0,
                    word: 0,
                    nic_interface: 0,
                    is_silent: false,
                    is_offline: false,
                });
                assert_eq!(monitor.examine(finding, &report), want);
                // Once only.
                if want.is_some() {
                    assert_eq!(monitor.examine(finding, &report), None);
                }
            }
            let dead = Report::new([0xff; LEN], firmware);
            let mut monitor = Monitor::new(&Sample {
                at_ms: 0,
                word: 0,
                nic_interface: 0,
                is_silent: false,
                is_offline: false,
            });
            assert_eq!(monitor.examine(stall, &dead), Some(Sensor::PciDead));
        }
    }

    #[test]
    fn limits_may_change_while_it_runs() {
        let sample = |at_ms| Sample {
            at_ms,
            word: 3,
            nic_interface: 0,
            is_silent: false,
            is_offline: false,
        };
        let mut monitor = Monitor::new(&sample(0));
        let limits = |misses| Limits { misses, dead_ms: 0 };
        for at in 1..=5 {
            assert_eq!(monitor.observe(&sample(at), limits(10)), QUIET);
        }
        assert_eq!(
            monitor.observe(&sample(6), limits(2)),
            Finding::Stall { misses: 6 }
        );
        // 0 is taken as 1.
        let mut monitor = Monitor::new(&sample(0));
        assert_eq!(
            monitor.observe(&sample(1), limits(0)),
            Finding::Stall { misses: 1 }
        );
    }

    #[test]
    fn a_stall_is_seen_in_time() {
        // The counter moved last right after a read. The next one finds it moved, the three after that
        // find it unchanged.
        let still = |at_ms| Sample {
            at_ms,
            word: 3,
            nic_interface: 0,
            is_silent: false,
            is_offline: false,
        };
        let mut monitor = Monitor::new(&still(100));
        let mut us = 100_000;
        for want in [QUIET, QUIET, STALL] {
            us += monitor.pause_us(100);
            assert_eq!(monitor.observe(&still(us / 1000), LIMITS), want);
        }
        // 50 ms are left for what may delay the reads.
        assert_eq!(us, 350_000);
        assert_eq!(monitor.pause_us(100), 100_000);
        assert_eq!(monitor.pause_us(u32::MAX), u64::from(u32::MAX) * 1000);
    }

    #[test]
    fn grace() {
        for (ecpf, virtfn, ms) in [
            (false, false, 60_000),
            (false, true, 30_000),
            (true, false, 180_000),
        ] {
            let mut grace = Grace::new(ecpf, virtfn);
            assert_eq!(grace.period_ms(), ms);
            assert_eq!(grace.check(0), Ok(()));
            grace.recovered(1000);
            for (now, want) in [
                (1000, Err(ms)),
                (1001, Err(ms - 1)),
                (999 + ms, Err(1)),
                (1000 + ms, Ok(())),
                (u64::MAX, Ok(())),
                // A clock that goes back is no way out.
                (0, Err(ms)),
            ] {
                assert_eq!(grace.check(now), want);
            }
        }
    }

    #[test]
    fn budget() {
        let mut budget = Budget::new(50);
        for _ in 0..32 {
            assert!(budget.take(60));
        }
        assert!(!budget.take(1049));
        assert!(budget.take(1050));
        assert!(!budget.take(1051));
        for (now, want) in [(3050, true), (3050, true), (3050, false)] {
            assert_eq!(budget.take(now), want);
        }
        for _ in 0..32 {
            assert!(budget.take(u64::MAX));
        }
        assert!(!budget.take(u64::MAX));
    }
}
