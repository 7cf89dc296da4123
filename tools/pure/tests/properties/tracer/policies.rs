// SPDX-License-Identifier: GPL-2.0

//! Ownership and pace under any order of events.

use mlx5_pure::tracer::ownership::{Action, Answer, Ownership, Pauses, State};
use mlx5_pure::tracer::pace::{Limits, Mode, Pace, Round, Step};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Input {
    Start,
    Stop,
    /// Somebody else takes the tracer, with an event or without one.
    Taken(bool),
    /// They give it back, with an event or without one.
    Free(bool),
    /// An event for nothing.
    Spurious,
    Doubt,
    /// Time passes.
    Wait(u64),
    /// Commands fail, or not.
    Broken(bool),
}

fn inputs() -> impl Strategy<Value = Input> {
    prop_oneof![
        1 => Just(Input::Start),
        1 => Just(Input::Stop),
        2 => any::<bool>().prop_map(Input::Taken),
        2 => any::<bool>().prop_map(Input::Free),
        2 => Just(Input::Spurious),
        1 => Just(Input::Doubt),
        4 => (0_u64..3000).prop_map(Input::Wait),
        1 => any::<bool>().prop_map(Input::Broken),
    ]
}

/// A device whose tracer has one owner.
struct Device {
    /// Ours, theirs, nobody's.
    owner: Option<bool>,
    broken: bool,
    asked: Vec<u64>,
}

impl Device {
    fn ask(&mut self, now: u64) -> Answer {
        self.asked.push(now);
        assert_ne!(self.owner, Some(true), "an owner does not ask again");
        if self.broken {
            return Answer::Failed;
        }
        if self.owner.is_none() {
            self.owner = Some(true);
        }
        self.read()
    }

    fn read(&self) -> Answer {
        match (self.broken, self.owner) {
            (true, _) => Answer::Failed,
            (false, Some(true)) => Answer::Ours,
            (false, _) => Answer::NotOurs,
        }
    }
}

/// Does what the machine says; gives the time of the timer, if it was set.
fn drive(
    machine: &mut Ownership,
    device: &mut Device,
    now: u64,
    mut action: Action,
) -> Option<u64> {
    for _ in 0..10 {
        action = match action {
            Action::Rest => return None,
            Action::Wake(at) => return Some(at),
            Action::Ask => {
                // What is granted by a command whose reply is lost stays ours without our knowing;
                // a broken device grants nothing here.
                let answer = device.ask(now);
                machine.asked(now, answer)
            }
            Action::Verify => {
                let answer = device.read();
                machine.verified(now, answer)
            }
            Action::Begin => {
                assert_eq!(device.owner, Some(true));
                Action::Rest
            }
            Action::Lost => {
                assert_ne!(device.owner, Some(true));
                machine.proceed(now)
            }
            Action::Release => {
                if device.owner == Some(true) && !device.broken {
                    device.owner = None;
                }
                Action::Rest
            }
        };
    }
    panic!("it does not come to rest");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn ownership(steps in prop::collection::vec(inputs(), 0..100)) {
        let pauses = Pauses { retry_ms: 1000, between_ms: 50 };
        let mut machine = Ownership::new(pauses);
        let mut device = Device { owner: None, broken: false, asked: Vec::new() };
        let (mut now, mut timer) = (0_u64, None);
        for step in steps {
            let action = match step {
                Input::Start => machine.start(now),
                Input::Stop => machine.stop(),
                Input::Taken(event) => {
                    device.owner = Some(false);
                    if event { machine.event(now) } else { Action::Rest }
                }
                Input::Free(event) => {
                    if device.owner == Some(false) {
                        device.owner = None;
                    }
                    if event { machine.event(now) } else { Action::Rest }
                }
                Input::Spurious => machine.event(now),
                Input::Doubt => machine.doubt(),
                Input::Wait(ms) => {
                    now += ms;
                    match timer {
                        Some(at) if at <= now => {
                            timer = None;
                            machine.timer(now)
                        }
                        _ => Action::Rest,
                    }
                }
                Input::Broken(broken) => {
                    device.broken = broken;
                    Action::Rest
                }
            };
            // An owner whom a release did not reach is one still: a new start finds that out.
            if machine.state() == State::Stopped && device.owner == Some(true) && action == Action::Rest {
                device.owner = None;
            }
            if let Some(at) = drive(&mut machine, &mut device, now, action) {
                timer = Some(at);
            }
            if machine.state() == State::Stopped {
                device.owner = device.owner.filter(|ours| !ours);
            }
            // Somebody who waits is woken up some time.
            prop_assert!(machine.state() != State::Waiting || timer.is_some_and(|at| at <= now + 1000));
            prop_assert!(!machine.is_owner() || timer.is_none() || machine.timer(now) == Action::Rest);
        }
        // Never two requests within the pause.
        prop_assert!(device.asked.windows(2).all(|two| two[1] - two[0] >= pauses.between_ms));
        // When all is well it ends up as the owner, at the latest by the retry.
        if machine.state() != State::Stopped {
            device.broken = false;
            let taken = device.owner == Some(false) || !machine.is_owner();
            if taken {
                device.owner = device.owner.filter(|ours| *ours);
                now += 2000;
                let action = machine.event(now);
                drive(&mut machine, &mut device, now, action);
                now += 2000;
                let action = machine.timer(now);
                drive(&mut machine, &mut device, now, action);
                prop_assert!(machine.is_owner());
                prop_assert_eq!(device.owner, Some(true));
            }
        }
    }

    /// A device that writes blocks at given times, and makes one event for each arming; whatever the
    /// limits, all is read, and reading has its share of the time only.
    #[test]
    fn pace(
        arrivals in prop::collection::vec(prop_oneof![0_u64..50, 0_u64..5000, 0_u64..100_000], 0..200),
        percent in 1_u8..=100,
        budget in 1_u32..20,
        poll_us in 1_u64..5000,
        busy_rounds in 1_u8..6,
        calm_polls in 1_u8..6,
        cost in 1_u64..40,
        spurious in prop::collection::vec(0_u64..100_000, 0..20),
    ) {
        let limits = Limits { cpu_percent: percent, budget, poll_us, busy_rounds, calm_polls, barren_events: 3 };
        let mut pace = Pace::new(limits);
        let mut times = Vec::new();
        for gap in &arrivals {
            times.push(times.last().unwrap_or(&0) + gap);
        }
        let mut spurious = spurious;
        spurious.sort_unstable();
        let (mut now, mut read, mut spent) = (0_u64, 0_usize, 0_u64);
        let mut armed = true;
        let mut timer = None;
        let mut step = Step::Rest;
        for turn in 0.. {
            prop_assert!(turn < 100_000, "it does not end");
            step = match step {
                Step::Read | Step::Arm | Step::Recover => {
                    let began_us = now;
                    if step != Step::Read {
                        armed = true;
                    }
                    let there = times.iter().filter(|at| **at <= now).count();
                    let found = (there - read).min(budget as usize);
                    read += found;
                    let took = cost * (1 + found as u64);
                    now += took;
                    spent += took;
                    let empty = read == there;
                    // While it read, blocks may have come, and with them the event.
                    let mut asked = Step::Rest;
                    if armed && times.get(read).is_some_and(|at| *at <= now) && empty {
                        armed = false;
                        asked = pace.event(now);
                    }
                    prop_assert_eq!(asked, Step::Rest);
                    pace.read(Round { found: found as u32, empty, began_us, ended_us: now })
                }
                Step::Timer(after) => {
                    prop_assert!(after >= 1);
                    timer = Some(now + after);
                    Step::Rest
                }
                Step::Rest => {
                    // What comes first: a block of an armed device, the timer, an event for nothing.
                    let event = times.get(read).filter(|_| armed).map(|at| (*at).max(now));
                    let false_event = spurious.first().map(|at| (*at).max(now));
                    let next = [event, timer, false_event].into_iter().flatten().min();
                    let Some(next) = next else {
                        break;
                    };
                    now = next;
                    if timer == Some(next) {
                        timer = None;
                        pace.timer(now)
                    } else if event == Some(next) {
                        armed = false;
                        pace.event(now)
                    } else {
                        spurious.remove(0);
                        pace.event(now)
                    }
                }
            };
        }
        prop_assert_eq!(read, times.len(), "blocks are left unread");
        // At rest it waits for the event.
        prop_assert_eq!(pace.mode(), Mode::Event);
        // One round, and the look after an arming, may run ahead.
        let most = cost * (1 + u64::from(budget)) * 2;
        prop_assert!(spent * 100 <= now * u64::from(percent) + most * 100, "{} of {}", spent, now);
    }
}
