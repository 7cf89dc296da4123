// SPDX-License-Identifier: GPL-2.0

//! Who owns the tracer (hardware.md 4, "Ownership").
//!
//! The tracer has one owner among functions and tools. [`Ownership`] decides when to ask for it, to
//! look whether it still is ours, and to begin; whoever drives it does what each [`Action`] says and
//! tells the outcome, until the action is to rest or to wake up.
//!
//! ```text
//!              start, ownership event, retry
//!   Stopped / Waiting ------------------------> ask: MTRC_CAP.trace_owner = 1
//!        ^                                        | granted
//!        | refused, failed                        v
//!        +--------------------------------- verify: read MTRC_CAP
//!        |                                        | ours
//!        | not ours (lost)                        v
//!        +--------------------------------- Owner: an event only makes it verify
//! ```
//!
//! - Who was refused waits for the next ownership event; a slow retry stands in for one that is lost.
//! - An owner never asks again: an ownership event, or a doubt, makes it *read* the register.
//! - A loss ends the owner's reading; since the event that told of it may also say that the tracer
//!   is free, it is asked for once, and then waited for.
//! - Between two requests there is a pause, whatever events come: two drivers, or a hostile device,
//!   cannot make this one ask all the time.

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    /// Milliseconds from a refusal to the next request without an event.
    pub retry_ms: u64,
    /// Milliseconds from one request to the next at least.
    pub between_ms: u64,
}

impl Pauses {
    /// A minute, and a second.
    pub const DEFAULT: Self = Self {
        retry_ms: 60_000,
        between_ms: 1_000,
    };
}

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing, until an event.
    Rest,
    /// Call [`Ownership::timer`] at this time, in milliseconds, or later; an earlier timer is void.
    Wake(u64),
    /// Write MTRC_CAP with `trace_owner` 1; tell what it answers by [`Ownership::asked`].
    Ask,
    /// Read MTRC_CAP; tell what it says by [`Ownership::verified`].
    Verify,
    /// Zero the buffer, write MTRC_CONF and MTRC_CTRL, and read from the start. If that fails, say
    /// so by [`Ownership::begin_failed`].
    Begin,
    /// Read what is left in the buffer, and no more; then call [`Ownership::proceed`].
    Lost,
    /// Write MTRC_CAP with `trace_owner` 0; then nothing. It may fail.
    Release,
}

/// What a register access told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This function is the owner.
    Ours,
    /// It is not.
    NotOurs,
    /// The command failed.
    Failed,
}

/// Where we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nobody wants the tracer.
    Stopped,
    /// It is wanted, and somebody else's.
    Waiting,
    /// It has been asked for.
    Asking,
    /// It was granted; whether that is so is being read.
    Confirming,
    /// It is ours.
    Owner,
    /// It is ours; whether that is still so is being read.
    Checking,
}

/// What has been counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnershipCounters {
    /// Requests made.
    pub asked: u64,
    /// How often the tracer was granted.
    pub granted: u64,
    /// How often it was refused.
    pub refused: u64,
    /// Commands that failed.
    pub failed: u64,
    /// How often it was lost.
    pub lost: u64,
    /// Ownership events.
    pub events: u64,
    /// Those of them that changed nothing.
    pub spurious: u64,
    /// Requests that no event caused.
    pub retries: u64,
}

/// The state machine; see the module.
#[derive(Clone, Debug)]
pub struct Ownership {
    state: State,
    pauses: Pauses,
    /// When the last request was made, in milliseconds.
    asked_at: Option<u64>,
    /// When the timer is due, if it is set.
    due: Option<u64>,
    /// An event came while a command was under way: its outcome may be out of date.
    again: bool,
    /// It was ours, and of no use.
    futile: bool,
    counters: OwnershipCounters,
}

impl Ownership {
    /// Nothing is wanted yet.
    pub fn new(pauses: Pauses) -> Self {
        Self {
            state: State::Stopped,
            pauses,
            asked_at: None,
            due: None,
            again: false,
            futile: false,
            counters: OwnershipCounters::default(),
        }
    }

    /// Where it is.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether traces are to be read.
    pub fn is_owner(&self) -> bool {
        matches!(self.state, State::Owner | State::Checking)
    }

    /// What has been counted.
    pub fn counters(&self) -> &OwnershipCounters {
        &self.counters
    }

    /// The tracer is wanted.
    pub fn start(&mut self, now_ms: u64) -> Action {
        if self.state != State::Stopped {
            return Action::Rest;
        }
        self.state = State::Waiting;
        self.ask(now_ms)
    }

    /// The tracer is not wanted any more. The buffer must not be used after the release.
    pub fn stop(&mut self) -> Action {
        let release = !matches!(self.state, State::Stopped | State::Waiting);
        self.state = State::Stopped;
        self.due = None;
        self.again = false;
        if release {
            Action::Release
        } else {
            Action::Rest
        }
    }

    /// An ownership event came.
    pub fn event(&mut self, now_ms: u64) -> Action {
        self.counters.events += 1;
        match self.state {
            State::Stopped => {
                self.counters.spurious += 1;
                Action::Rest
            }
            State::Waiting => self.ask(now_ms),
            State::Owner => self.check(),
            State::Asking | State::Confirming | State::Checking => {
                self.again = true;
                Action::Rest
            }
        }
    }

    /// Something else makes one doubt that the tracer still is ours.
    pub fn doubt(&mut self) -> Action {
        match self.state {
            State::Owner => self.check(),
            _ => Action::Rest,
        }
    }

    /// The time of [`Action::Wake`] may have come.
    pub fn timer(&mut self, now_ms: u64) -> Action {
        match self.due {
            Some(due) if self.state == State::Waiting => {
                if now_ms < due {
                    return Action::Wake(due);
                }
                self.counters.retries += 1;
                self.ask(now_ms)
            }
            _ => Action::Rest,
        }
    }

    /// What the request said.
    pub fn asked(&mut self, now_ms: u64, answer: Answer) -> Action {
        if self.state != State::Asking {
            return Action::Rest;
        }
        match answer {
            Answer::Ours => {
                self.state = State::Confirming;
                Action::Verify
            }
            Answer::NotOurs | Answer::Failed => self.refused(now_ms, answer),
        }
    }

    /// What the register said.
    pub fn verified(&mut self, now_ms: u64, answer: Answer) -> Action {
        let again = core::mem::take(&mut self.again);
        match (self.state, answer) {
            (State::Confirming, Answer::Ours) => {
                self.state = State::Owner;
                self.counters.granted += 1;
                self.due = None;
                // An event since the request is about the time before this answer.
                Action::Begin
            }
            (State::Confirming, _) => self.refused(now_ms, answer),
            (State::Checking, Answer::Ours) => {
                self.state = State::Owner;
                self.counters.spurious += 1;
                if again {
                    return self.check();
                }
                Action::Rest
            }
            (State::Checking, Answer::NotOurs) => {
                self.state = State::Waiting;
                self.counters.lost += 1;
                Action::Lost
            }
            (State::Checking, Answer::Failed) => {
                // Nothing is known that was not known before.
                self.state = State::Owner;
                self.counters.failed += 1;
                Action::Rest
            }
            _ => Action::Rest,
        }
    }

    /// The loss, or the failure to begin, has been dealt with.
    pub fn proceed(&mut self, now_ms: u64) -> Action {
        let futile = core::mem::take(&mut self.futile);
        match self.state {
            State::Waiting if futile => self.retry_later(now_ms),
            State::Waiting => self.ask(now_ms),
            _ => Action::Rest,
        }
    }

    /// What [`Action::Begin`] says could not be done: gives the tracer back. After that,
    /// [`proceed`](Self::proceed) says when to try again: as late as after a refusal.
    pub fn begin_failed(&mut self) -> Action {
        match self.state {
            State::Owner | State::Checking => {
                self.state = State::Waiting;
                self.futile = true;
                self.counters.failed += 1;
                Action::Release
            }
            _ => Action::Rest,
        }
    }

    /// Asks, or sets the timer if it was asked for a moment ago.
    fn ask(&mut self, now_ms: u64) -> Action {
        let from = self
            .asked_at
            .map_or(now_ms, |at| at.saturating_add(self.pauses.between_ms));
        if now_ms < from {
            self.due = Some(from);
            return Action::Wake(from);
        }
        self.state = State::Asking;
        self.asked_at = Some(now_ms);
        self.due = None;
        self.again = false;
        self.counters.asked += 1;
        Action::Ask
    }

    fn check(&mut self) -> Action {
        self.state = State::Checking;
        self.again = false;
        Action::Verify
    }

    fn refused(&mut self, now_ms: u64, answer: Answer) -> Action {
        self.state = State::Waiting;
        if answer == Answer::Failed {
            self.counters.failed += 1;
        } else {
            self.counters.refused += 1;
        }
        if core::mem::take(&mut self.again) {
            // The tracer may have become free after the device refused it.
            return self.ask(now_ms);
        }
        self.retry_later(now_ms)
    }

    fn retry_later(&mut self, now_ms: u64) -> Action {
        let due = now_ms.saturating_add(self.pauses.retry_ms);
        self.due = Some(due);
        Action::Wake(due)
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_tracer_ownership)]
mod tests {
    use super::*;

    const PAUSES: Pauses = Pauses {
        retry_ms: 1000,
        between_ms: 10,
    };

    /// An owner since 0 ms.
    fn owner() -> Ownership {
        let mut tracer = Ownership::new(PAUSES);
        assert_eq!(tracer.start(0), Action::Ask);
        assert_eq!(tracer.asked(0, Answer::Ours), Action::Verify);
        assert!(!tracer.is_owner());
        assert_eq!(tracer.verified(0, Answer::Ours), Action::Begin);
        assert!(tracer.is_owner());
        tracer
    }

    #[test]
    fn granted_and_released() {
        let mut tracer = owner();
        assert_eq!(tracer.timer(1 << 40), Action::Rest);
        assert_eq!(tracer.stop(), Action::Release);
        assert_eq!(tracer.stop(), Action::Rest);
        assert_eq!(tracer.event(100), Action::Rest);
        assert_eq!(tracer.start(100), Action::Ask);
    }

    #[test]
    fn refused_waits_for_an_event_or_the_retry() {
        let mut tracer = Ownership::new(PAUSES);
        assert_eq!(tracer.start(0), Action::Ask);
        assert_eq!(tracer.asked(1, Answer::NotOurs), Action::Wake(1001));
        assert_eq!(tracer.timer(1000), Action::Wake(1001));
        assert_eq!(tracer.event(500), Action::Ask);
        assert_eq!(tracer.asked(500, Answer::NotOurs), Action::Wake(1500));
        assert_eq!(tracer.timer(1500), Action::Ask);
        assert_eq!(tracer.asked(1500, Answer::Failed), Action::Wake(2500));
        assert_eq!(tracer.event(1600), Action::Ask);
        assert_eq!(tracer.asked(1600, Answer::Ours), Action::Verify);
        assert_eq!(tracer.verified(1600, Answer::Ours), Action::Begin);
        let counters = tracer.counters();
        assert_eq!((counters.asked, counters.retries), (4, 1));
        assert_eq!((counters.refused, counters.failed), (2, 1));
        // The old timer is void.
        assert_eq!(tracer.timer(9999), Action::Rest);
    }

    #[test]
    fn granted_but_not_so() {
        let mut tracer = Ownership::new(PAUSES);
        assert_eq!(tracer.start(0), Action::Ask);
        assert_eq!(tracer.asked(0, Answer::Ours), Action::Verify);
        assert_eq!(tracer.verified(0, Answer::NotOurs), Action::Wake(1000));
        assert!(!tracer.is_owner());
    }

    #[test]
    fn an_owner_does_not_ask() {
        let mut tracer = owner();
        for now in 1..100 {
            assert_eq!(tracer.event(now), Action::Verify);
            assert!(tracer.is_owner());
            assert_eq!(tracer.verified(now, Answer::Ours), Action::Rest);
            assert_eq!(tracer.doubt(), Action::Verify);
            assert_eq!(tracer.verified(now, Answer::Failed), Action::Rest);
        }
        assert_eq!(tracer.counters().asked, 1);
        assert_eq!(tracer.counters().spurious, 99);
    }

    #[test]
    fn lost_and_taken_back() {
        let mut tracer = owner();
        assert_eq!(tracer.event(50), Action::Verify);
        assert_eq!(tracer.verified(50, Answer::NotOurs), Action::Lost);
        assert!(!tracer.is_owner());
        assert_eq!(tracer.proceed(51), Action::Ask);
        assert_eq!(tracer.asked(51, Answer::NotOurs), Action::Wake(1051));
        assert_eq!(tracer.event(100), Action::Ask);
        assert_eq!(tracer.asked(100, Answer::Ours), Action::Verify);
        assert_eq!(tracer.verified(100, Answer::Ours), Action::Begin);
        let counters = tracer.counters();
        assert_eq!((counters.lost, counters.granted), (1, 2));
    }

    #[test]
    fn two_drivers_do_not_fight() {
        let mut tracer = owner();
        for now in 0..1000 {
            // Each event takes the tracer away; each request is granted.
            let mut action = tracer.event(now);
            while !matches!(action, Action::Rest | Action::Wake(_)) {
                action = match action {
                    Action::Verify if tracer.state() == State::Checking => {
                        tracer.verified(now, Answer::NotOurs)
                    }
                    Action::Verify => tracer.verified(now, Answer::Ours),
                    Action::Ask => tracer.asked(now, Answer::Ours),
                    Action::Lost => tracer.proceed(now),
                    _ => Action::Rest,
                };
            }
        }
        // One request in 10 ms at most.
        assert!(tracer.counters().asked <= 101);
    }

    #[test]
    fn events_while_commands_are_under_way() {
        let mut tracer = Ownership::new(PAUSES);
        assert_eq!(tracer.start(0), Action::Ask);
        // It became free after it was refused.
        assert_eq!(tracer.event(1), Action::Rest);
        assert_eq!(tracer.asked(20, Answer::NotOurs), Action::Ask);
        assert_eq!(tracer.event(21), Action::Rest);
        assert_eq!(tracer.asked(22, Answer::NotOurs), Action::Wake(30));
        assert_eq!(tracer.timer(30), Action::Ask);
        assert_eq!(tracer.asked(30, Answer::Ours), Action::Verify);
        assert_eq!(tracer.verified(30, Answer::Ours), Action::Begin);
        assert_eq!(tracer.event(31), Action::Verify);
        assert_eq!(tracer.event(31), Action::Rest);
        // The second event may have come after the register was read.
        assert_eq!(tracer.verified(32, Answer::Ours), Action::Verify);
        assert_eq!(tracer.verified(32, Answer::NotOurs), Action::Lost);
    }

    #[test]
    fn stopped_while_commands_are_under_way() {
        let mut tracer = Ownership::new(PAUSES);
        assert_eq!(tracer.start(0), Action::Ask);
        assert_eq!(tracer.stop(), Action::Release);
        assert_eq!(tracer.asked(1, Answer::Ours), Action::Rest);
        assert_eq!(tracer.verified(1, Answer::Ours), Action::Rest);
        assert_eq!(tracer.state(), State::Stopped);
    }

    #[test]
    fn beginning_fails() {
        let mut tracer = owner();
        assert_eq!(tracer.begin_failed(), Action::Release);
        assert_eq!(tracer.proceed(5), Action::Wake(1005));
        assert_eq!(tracer.timer(1004), Action::Wake(1005));
        assert_eq!(tracer.timer(1005), Action::Ask);
        assert_eq!(tracer.asked(1006, Answer::Ours), Action::Verify);
        assert_eq!(tracer.verified(1006, Answer::Ours), Action::Begin);
        // An event may mean that it is of use now.
        assert_eq!(tracer.begin_failed(), Action::Release);
        assert_eq!(tracer.proceed(1020), Action::Wake(2020));
        assert_eq!(tracer.event(1030), Action::Ask);
    }
}
