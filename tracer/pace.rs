// SPDX-License-Identifier: GPL-2.0

//! When the trace buffer is read: at events, or by polling; and for how long at a time.
//!
//! While little is traced, the device's event makes the driver read, and there is no wake-up without
//! one. Each event costs an interrupt and a command that arms the next one, so under load the driver
//! polls instead, until the buffer has stayed empty for some polls (hysteresis in both directions).
//!
//! In both modes reading takes at most its share of one CPU: after a round of `t` microseconds the
//! next one does not begin before `t * (100 - share) / share` microseconds have passed. Only the look
//! that follows the arming of the event is not put off; what it takes is made up for afterwards.
//!
//! [`Pace`] only decides. Whoever reads asks for a [`Step`] at each event and timer, and tells about
//! each round of reading; times are in microseconds of any clock that does not go back.

/// The numbers that a [`Pace`] goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Share of one CPU, in percent, 1 to 100.
    pub cpu_percent: u8,
    /// Most blocks of one round.
    pub budget: u32,
    /// Microseconds between polls, at least.
    pub poll_us: u64,
    /// Polling begins when so many rounds in a row began within [`poll_us`](Self::poll_us) of the one
    /// before, or did not empty the buffer. Also rounds that found nothing count: events without end
    /// are a load too.
    pub busy_rounds: u8,
    /// Polling ends when so many polls in a row found nothing.
    pub calm_polls: u8,
    /// After so many events in a row without a block, the reader's place is looked for
    /// ([`recover`](super::block::Reader::recover)).
    pub barren_events: u8,
}

impl Limits {
    /// 20 % of a CPU; rounds of 64 blocks; polls each 2 ms.
    pub const DEFAULT: Self = Self {
        cpu_percent: 20,
        budget: 64,
        poll_us: 2_000,
        busy_rounds: 4,
        calm_polls: 8,
        barren_events: 4,
    };
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, until an event or the timer.
    Rest,
    /// Read a round of blocks, and tell by [`Pace::read`].
    Read,
    /// Call [`Pace::timer`] after so many microseconds.
    Timer(u64),
    /// Arm the event, then read once more, since what came before the arming may not make an event;
    /// and tell by [`Pace::read`].
    Arm,
    /// As [`Arm`](Self::Arm), but first look for the reader's place, and doubt the ownership.
    Recover,
}

/// How reading is made to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By the device's event.
    Event,
    /// By a timer.
    Poll,
}

/// What a round found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Blocks read, and gaps.
    pub found: u32,
    /// Nothing was left.
    pub empty: bool,
    /// When it began; the commands of [`Step::Arm`] and [`Step::Recover`] are part of it.
    pub began_us: u64,
    /// When it ended.
    pub ended_us: u64,
}

/// What has been counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaceCounters {
    /// Events that said that there are traces.
    pub events: u64,
    /// Events that came while the buffer was polled, or its reading planned.
    pub needless_events: u64,
    /// Events after which there was nothing.
    pub barren_events: u64,
    /// Rounds of reading.
    pub rounds: u64,
    /// Changes to polling.
    pub to_poll: u64,
    /// Changes back to events.
    pub to_event: u64,
    /// Rounds put off to keep to the share of the CPU.
    pub throttled: u64,
    /// How often the event was armed.
    pub armed: u64,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// The device's event.
    Event,
    /// The timer, until this time.
    Timer(u64),
    /// A round of reading, which ends by [`Pace::read`].
    Round(Cause),
}

/// Why a round is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// An event came.
    Event,
    /// The timer is due.
    Timer,
    /// The event has been armed.
    Armed,
}

/// The policy; see the module.
#[derive(Clone, Debug)]
pub struct Pace {
    limits: Limits,
    mode: Mode,
    waiting: Waiting,
    /// No round before this time.
    not_before: u64,
    /// When the last round began, but for those that follow an arming.
    last_began: Option<u64>,
    /// Rounds in a row that make a load, in [`Mode::Event`].
    busy: u8,
    /// Polls in a row that found nothing, in [`Mode::Poll`].
    calm: u8,
    /// Events in a row after which there was nothing.
    barren: u8,
    /// What the timer is set for was an event.
    put_off: bool,
    /// An event came during a round.
    again: bool,
    counters: PaceCounters,
}

impl Pace {
    /// The longest pause after a round, in microseconds: one that would need a longer pause did not
    /// have the CPU all the time.
    const MAX_PAUSE_US: u64 = 1_000_000;

    /// Waits for an event, which has been armed.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits: Limits {
                cpu_percent: limits.cpu_percent.clamp(1, 100),
                budget: limits.budget.max(1),
                poll_us: limits.poll_us.max(1),
                busy_rounds: limits.busy_rounds.max(1),
                calm_polls: limits.calm_polls.max(1),
                barren_events: limits.barren_events.max(1),
            },
            mode: Mode::Event,
            waiting: Waiting::Event,
            not_before: 0,
            last_began: None,
            busy: 0,
            calm: 0,
            barren: 0,
            put_off: false,
            again: false,
            counters: PaceCounters::default(),
        }
    }

    /// Begins anew: the event has been armed. Limits and counters stay.
    pub fn restart(&mut self) {
        *self = Self {
            counters: self.counters,
            ..Self::new(self.limits)
        };
    }

    /// Another share of one CPU from the next round on, in percent, 1 to 100.
    pub fn set_cpu_percent(&mut self, percent: u8) {
        self.limits.cpu_percent = percent.clamp(1, 100);
    }

    /// How reading is made to happen now.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Most blocks of one round.
    pub fn budget(&self) -> u32 {
        self.limits.budget
    }

    /// What has been counted.
    pub fn counters(&self) -> &PaceCounters {
        &self.counters
    }

    /// The device said that there are traces.
    pub fn event(&mut self, now_us: u64) -> Step {
        self.counters.events += 1;
        match self.waiting {
            Waiting::Event if now_us < self.not_before => {
                self.counters.throttled += 1;
                self.put_off = true;
                self.set_timer(now_us, self.not_before)
            }
            Waiting::Event => self.round(Cause::Event),
            Waiting::Timer(_) => {
                self.counters.needless_events += 1;
                Step::Rest
            }
            Waiting::Round(_) => {
                self.counters.needless_events += 1;
                self.again = true;
                Step::Rest
            }
        }
    }

    /// The timer may be due.
    pub fn timer(&mut self, now_us: u64) -> Step {
        match self.waiting {
            Waiting::Timer(due) if now_us < due => Step::Timer(due - now_us),
            Waiting::Timer(_) if core::mem::take(&mut self.put_off) => self.round(Cause::Event),
            Waiting::Timer(_) => self.round(Cause::Timer),
            Waiting::Event | Waiting::Round(_) => Step::Rest,
        }
    }

    /// A round of reading is done.
    pub fn read(&mut self, round: Round) -> Step {
        let Waiting::Round(cause) = self.waiting else {
            return Step::Rest;
        };
        self.counters.rounds += 1;
        self.charge(&round);
        if round.found != 0 {
            self.barren = 0;
        }
        match self.mode {
            Mode::Event => self.after_event_round(cause, &round),
            Mode::Poll => self.after_poll(&round),
        }
    }

    /// Sets how long to pause for a round.
    fn charge(&mut self, round: &Round) {
        let share = u64::from(self.limits.cpu_percent);
        let spent = round.ended_us.saturating_sub(round.began_us);
        let pause = (spent.saturating_mul(100 - share) / share).min(Self::MAX_PAUSE_US);
        // A round that did not wait for the pause before it, after an arming, adds to that.
        let owed = self.not_before.saturating_sub(round.began_us);
        self.not_before = round
            .ended_us
            .saturating_add(pause)
            .saturating_add(owed.min(Self::MAX_PAUSE_US));
    }

    fn after_event_round(&mut self, cause: Cause, round: &Round) -> Step {
        if cause != Cause::Armed {
            let close = self
                .last_began
                .is_some_and(|last| round.began_us.saturating_sub(last) < self.limits.poll_us);
            self.last_began = Some(round.began_us);
            self.busy = if close || !round.empty {
                self.busy.saturating_add(1)
            } else {
                0
            };
            if self.busy >= self.limits.busy_rounds {
                self.mode = Mode::Poll;
                self.counters.to_poll += 1;
                self.calm = 0;
                return self.next_poll(round);
            }
        }
        if !round.empty {
            return self.set_timer(round.ended_us, self.not_before);
        }
        if cause == Cause::Armed && !self.again {
            // An event will come, or is under way.
            self.waiting = Waiting::Event;
            return Step::Rest;
        }
        if cause == Cause::Event && round.found == 0 {
            self.counters.barren_events += 1;
            self.barren += 1;
            if self.barren >= self.limits.barren_events {
                self.barren = 0;
                self.arm();
                return Step::Recover;
            }
        }
        self.arm()
    }

    fn after_poll(&mut self, round: &Round) -> Step {
        if round.found == 0 {
            self.calm += 1;
            if self.calm >= self.limits.calm_polls {
                self.mode = Mode::Event;
                self.counters.to_event += 1;
                self.busy = 0;
                self.last_began = None;
                return self.arm();
            }
        } else {
            self.calm = 0;
        }
        self.next_poll(round)
    }

    fn next_poll(&mut self, round: &Round) -> Step {
        let due = if round.empty {
            round.began_us.saturating_add(self.limits.poll_us)
        } else {
            0
        };
        self.set_timer(round.ended_us, due.max(self.not_before))
    }

    fn round(&mut self, cause: Cause) -> Step {
        self.waiting = Waiting::Round(cause);
        self.again = false;
        Step::Read
    }

    fn arm(&mut self) -> Step {
        self.waiting = Waiting::Round(Cause::Armed);
        self.again = false;
        self.counters.armed += 1;
        Step::Arm
    }

    fn set_timer(&mut self, now_us: u64, due: u64) -> Step {
        // At least a moment, so that others run.
        let due = due.max(now_us.saturating_add(1));
        self.waiting = Waiting::Timer(due);
        Step::Timer(due - now_us)
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_tracer_pace)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        cpu_percent: 25,
        budget: 8,
        poll_us: 1000,
        busy_rounds: 3,
        calm_polls: 2,
        barren_events: 3,
    };

    fn round(found: u32, empty: bool, began_us: u64, ended_us: u64) -> Round {
        Round {
            found,
            empty,
            began_us,
            ended_us,
        }
    }

    #[test]
    fn trickle_is_read_by_events() {
        let mut pace = Pace::new(LIMITS);
        for i in 0..100 {
            let now = i * 10_000;
            assert_eq!(pace.timer(now), Step::Rest);
            assert_eq!(pace.event(now), Step::Read);
            assert_eq!(pace.read(round(1, true, now, now + 10)), Step::Arm);
            assert_eq!(pace.read(round(0, true, now + 10, now + 20)), Step::Rest);
        }
        assert_eq!(pace.mode(), Mode::Event);
        assert_eq!(pace.counters().armed, 100);
        assert_eq!(pace.counters().throttled, 0);
    }

    #[test]
    fn load_is_polled_until_it_is_over() {
        let mut pace = Pace::new(LIMITS);
        assert_eq!(pace.event(0), Step::Read);
        assert_eq!(pace.read(round(8, false, 0, 10)), Step::Timer(30));
        assert_eq!(pace.timer(40), Step::Read);
        assert_eq!(pace.read(round(8, false, 40, 50)), Step::Timer(30));
        assert_eq!(pace.timer(80), Step::Read);
        assert_eq!(pace.mode(), Mode::Event);
        assert_eq!(pace.read(round(8, false, 80, 90)), Step::Timer(30));
        assert_eq!(pace.mode(), Mode::Poll);
        // Events do nothing now.
        assert_eq!(pace.event(100), Step::Rest);
        assert_eq!(pace.timer(120), Step::Read);
        assert_eq!(pace.read(round(3, true, 120, 125)), Step::Timer(995));
        assert_eq!(pace.timer(1120), Step::Read);
        assert_eq!(pace.read(round(0, true, 1120, 1121)), Step::Timer(999));
        assert_eq!(pace.timer(2000), Step::Timer(120));
        // One poll that finds something begins the count anew.
        assert_eq!(pace.timer(2120), Step::Read);
        assert_eq!(pace.read(round(1, true, 2120, 2121)), Step::Timer(999));
        assert_eq!(pace.timer(3120), Step::Read);
        assert_eq!(pace.read(round(0, true, 3120, 3121)), Step::Timer(999));
        assert_eq!(pace.timer(4120), Step::Read);
        assert_eq!(pace.read(round(0, true, 4120, 4121)), Step::Arm);
        assert_eq!(pace.mode(), Mode::Event);
        assert_eq!(pace.read(round(0, true, 4121, 4122)), Step::Rest);
        let counters = pace.counters();
        assert_eq!((counters.to_poll, counters.to_event), (1, 1));
    }

    #[test]
    fn many_small_events_are_a_load() {
        let mut pace = Pace::new(LIMITS);
        let mut now = 0;
        for _ in 0..3 {
            assert_eq!(pace.event(now), Step::Read);
            assert_eq!(pace.read(round(1, true, now, now + 1)), Step::Arm);
            assert_eq!(pace.read(round(0, true, now + 1, now + 2)), Step::Rest);
            now += 500;
        }
        assert_eq!(pace.mode(), Mode::Event);
        assert_eq!(pace.event(now), Step::Read);
        assert_eq!(pace.read(round(1, true, now, now + 1)), Step::Timer(999));
        assert_eq!(pace.mode(), Mode::Poll);
    }

    #[test]
    fn what_comes_while_arming_is_not_missed() {
        let mut pace = Pace::new(LIMITS);
        assert_eq!(pace.event(0), Step::Read);
        assert_eq!(pace.read(round(1, true, 0, 1)), Step::Arm);
        // Blocks that came before the arming are found by the look after it.
        assert_eq!(pace.read(round(2, true, 1, 2)), Step::Rest);
        // The one event came during that look: its blocks may have come behind it.
        assert_eq!(pace.event(5000), Step::Read);
        assert_eq!(pace.read(round(1, true, 5000, 5001)), Step::Arm);
        assert_eq!(pace.event(5002), Step::Rest);
        assert_eq!(pace.read(round(0, true, 5001, 5003)), Step::Arm);
        assert_eq!(pace.read(round(0, true, 5003, 5004)), Step::Rest);
        // More than one round holds.
        assert_eq!(pace.event(9000), Step::Read);
        assert_eq!(pace.read(round(1, true, 9000, 9001)), Step::Arm);
        assert_eq!(pace.read(round(8, false, 9001, 9002)), Step::Timer(6));
        assert_eq!(pace.timer(9008), Step::Read);
    }

    #[test]
    fn events_without_traces() {
        let mut pace = Pace::new(LIMITS);
        for i in 0..9 {
            let now = i * 10_000;
            assert_eq!(pace.event(now), Step::Read);
            let want = if i % 3 == 2 { Step::Recover } else { Step::Arm };
            assert_eq!(pace.read(round(0, true, now, now + 1)), want);
            assert_eq!(pace.read(round(0, true, now + 1, now + 2)), Step::Rest);
        }
        assert_eq!(pace.counters().barren_events, 9);
        assert_eq!(pace.mode(), Mode::Event);
    }

    #[test]
    fn share_of_the_cpu() {
        // However events and rounds come, reading has at most a quarter of the time.
        let mut state = 1_u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            u64::from((state >> 16) % below)
        };
        let mut pace = Pace::new(LIMITS);
        let (mut now, mut spent, mut step) = (0, 0, Step::Rest);
        for _ in 0..10_000 {
            step = match step {
                Step::Rest => pace.event(now),
                Step::Timer(after) => {
                    now += after;
                    pace.timer(now)
                }
                Step::Read | Step::Arm | Step::Recover => {
                    let began = now;
                    now += random(300);
                    spent += now - began;
                    let empty = random(2) == 0;
                    pace.read(round(random(3) as u32, empty, began, now))
                }
            };
            assert!(spent * 4 <= now + 2 * 300 * 4);
        }
        assert!(spent * 5 > now);
        assert!(pace.counters().throttled > 0);
    }

    #[test]
    fn limits_that_make_no_sense() {
        let mut pace = Pace::new(Limits {
            cpu_percent: 0,
            budget: 0,
            poll_us: 0,
            busy_rounds: 0,
            calm_polls: 0,
            barren_events: 0,
        });
        assert_eq!(pace.budget(), 1);
        assert_eq!(pace.event(0), Step::Read);
        assert_eq!(pace.read(round(1, false, 0, 1)), Step::Timer(99));
        let mut pace = Pace::new(Limits {
            cpu_percent: 255,
            ..LIMITS
        });
        assert_eq!(pace.event(0), Step::Read);
        assert_eq!(pace.read(round(1, false, 0, 1_000)), Step::Timer(1));
    }

    #[test]
    fn begun_anew() {
        let mut pace = Pace::new(LIMITS);
        assert_eq!(pace.event(0), Step::Read);
        assert_eq!(pace.read(round(8, false, 0, 10)), Step::Timer(30));
        pace.restart();
        pace.set_cpu_percent(50);
        assert_eq!(pace.timer(40), Step::Rest);
        assert_eq!(pace.event(40), Step::Read);
        assert_eq!(pace.read(round(8, false, 40, 50)), Step::Timer(10));
        assert_eq!(pace.counters().rounds, 2);
    }

    #[test]
    fn pauses_end() {
        let mut pace = Pace::new(LIMITS);
        assert_eq!(pace.event(0), Step::Read);
        let long = round(1, false, 0, u64::MAX / 2);
        assert_eq!(pace.read(long), Step::Timer(1_000_000));
    }
}
