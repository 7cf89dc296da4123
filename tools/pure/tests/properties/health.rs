// SPDX-License-Identifier: GPL-2.0

use mlx5_pure::health::buffer::{Report, LEN};
use mlx5_pure::health::policy::{Budget, Finding, Limits, Monitor, Sample, Sensor};
use mlx5_pure::segment::decode::Firmware;
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    misses: 3,
    dead_ms: 0,
};

const FIRMWARE: Firmware = Firmware {
    major: 28,
    minor: 43,
    subminor: 1000,
    cmd_interface_rev: 5,
};

fn sample(at_ms: u64, word: u32) -> Sample {
    Sample {
        at_ms,
        word,
        nic_interface: 0,
        is_silent: false,
        is_offline: false,
    }
}

/// The counter of firmware that moves every `period_ms`, began at `start`, and stops at `stop_ms`.
fn counter(at_ms: u64, period_ms: u64, start: u32, stop_ms: u64) -> u32 {
    let ticks = at_ms.min(stop_ms) / period_ms;
    start.wrapping_add(ticks as u32) & 0xff_ffff
}

fn any_sample() -> impl Strategy<Value = (u32, u8, bool, bool)> {
    let syndrome = prop_oneof![3 => Just(0_u32), 2 => 1_u32..4];
    let counter = prop_oneof![4 => 0_u32..4, 1 => Just(0xff_ffff)];
    let nic = prop_oneof![20 => Just(0_u8), 1 => 0_u8..8];
    (syndrome, counter, nic, 0_u8..30, 0_u8..30).prop_map(
        |(syndrome, counter, nic, silent, offline)| {
            (syndrome << 24 | counter, nic, silent == 0, offline == 0)
        },
    )
}

proptest! {
    /// However late reads are, and wherever the counter is: while it moves every 10 ms nothing is
    /// said, and when it stops it is said after three reads.
    #[test]
    fn late_reads(
        start in 0_u32..=0xff_ffff,
        delays in prop::collection::vec(0_u64..2000, 4..100),
        life in 0_usize..100,
    ) {
        let mut at = 1000;
        let mut stop = u64::MAX;
        let mut monitor = Monitor::new(&sample(at, counter(at, 10, start, stop)));
        let mut misses = 0;
        for (i, delay) in delays.iter().enumerate() {
            if i == life {
                stop = at;
            }
            at += monitor.pause_us(100) / 1000 + delay;
            let finding = monitor.observe(&sample(at, counter(at, 10, start, stop)), LIMITS);
            misses += u32::from(stop != u64::MAX);
            let want = if misses == 3 { Finding::Stall { misses } } else { Finding::Nothing };
            prop_assert_eq!(finding, want);
        }
    }

    /// With reads on time, a stall is found at most 350 ms after the last movement, whatever the phase,
    /// and never of a counter that moves.
    #[test]
    fn on_time(
        start in 0_u32..=0xff_ffff,
        phase in 0_u64..100,
        alive_ms in 0_u64..5000,
        period in 1_u64..=100,
    ) {
        let stop = 1000 + alive_ms;
        let mut at_us = (1000 + phase) * 1000;
        let read = |at_us: u64| sample(at_us / 1000, counter(at_us / 1000, period, start, stop));
        let mut monitor = Monitor::new(&read(at_us));
        let first = at_us / 1000;
        loop {
            at_us += monitor.pause_us(100);
            let at = at_us / 1000;
            prop_assert!(at <= 10_000, "no stall was found");
            // The last time at which the counter took a new value.
            let moved = stop / period * period;
            match monitor.observe(&read(at_us), LIMITS) {
                Finding::Nothing => {}
                Finding::Stall { misses: 3 } => {
                    prop_assert!(at >= moved);
                    prop_assert!(at - moved.max(first) <= 350, "{at}, {moved}");
                    break;
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }

    /// Any sequence of words, against what is simply counted.
    #[test]
    fn any_reads(
        samples in prop::collection::vec(any_sample(), 1..200),
        misses in 0_u32..6,
    ) {
        let limits = Limits { misses, dead_ms: 0 };
        let (first, rest) = samples.split_first().unwrap();
        let mut last = first.0;
        let mut monitor = Monitor::new(&sample(0, last));
        let (mut unchanged, mut said, mut over) = (0, false, false);
        for (i, (word, nic, silent, offline)) in rest.iter().enumerate() {
            let now = Sample {
                at_ms: 100 * (i as u64 + 1),
                word: *word,
                nic_interface: *nic,
                is_silent: *silent,
                is_offline: *offline,
            };
            let finding = monitor.observe(&now, limits);
            if over {
                prop_assert_eq!(finding, Finding::Nothing);
                continue;
            }
            if *silent || *offline || matches!(nic, 1 | 7) {
                prop_assert!(matches!(finding, Finding::Fatal(_)), "{finding:?}");
                prop_assert!(monitor.is_fatal());
                over = true;
                continue;
            }
            let moved = word & 0xff_ffff != last & 0xff_ffff;
            let new = word >> 24 != 0 && word >> 24 != last >> 24;
            unchanged = if moved { 0 } else { unchanged + 1 };
            let stall = !said && !moved && unchanged >= misses.max(1);
            let resumed = said && moved;
            said = (said || stall) && !moved;
            let want = match (stall, new, resumed) {
                (true, _, _) => Finding::Stall { misses: unchanged },
                (_, true, _) => Finding::Syndrome,
                (_, _, true) => finding,
                _ => Finding::Nothing,
            };
            prop_assert_eq!(finding, want);
            if resumed && !new {
                let resumed = matches!(finding, Finding::Resumed { .. });
                prop_assert!(resumed, "{finding:?}");
            }
            prop_assert_eq!((monitor.misses(), monitor.is_stalled()), (unchanged, said));
            last = *word;
        }
    }

    /// Whatever is in the buffer, each line is one line of plain text, and the sensor follows its bits.
    #[test]
    fn any_buffer(
        bytes in prop::array::uniform32(any::<u8>()),
        more in prop::array::uniform32(any::<u8>()),
        stall in any::<bool>(),
    ) {
        let mut all = [0; LEN];
        all[..32].copy_from_slice(&bytes);
        all[32..].copy_from_slice(&more);
        let report = Report::new(all, FIRMWARE);
        let heading = report.heading().to_string();
        for line in report.entries().iter().map(ToString::to_string).chain([heading]) {
            prop_assert!(line.chars().all(|c| c == ' ' || c.is_ascii_graphic()), "{line:?}");
            prop_assert!(line.len() < 100);
        }
        prop_assert!(report.severity().level() <= 7);
        let finding = if stall { Finding::Stall { misses: 3 } } else { Finding::Syndrome };
        let mut monitor = Monitor::new(&sample(0, 1 << 24));
        let want = match (report.is_unreadable(), all[0x38] & 0x80 != 0, stall) {
            (true, _, _) => Some(Sensor::PciDead),
            (_, true, _) => Some(Sensor::ResetRequired),
            (_, _, true) => Some(Sensor::Crashed),
            _ => None,
        };
        prop_assert_eq!(monitor.examine(finding, &report), want);
    }

    /// In any window of time no more reports than there may be.
    #[test]
    fn budgets(steps in prop::collection::vec(0_u64..3000, 1..200)) {
        let mut budget = Budget::new(0);
        let mut now = 0;
        let mut taken = Vec::new();
        for step in steps {
            now += step;
            if budget.take(now) {
                taken.push(now);
            }
        }
        for (i, start) in taken.iter().enumerate() {
            for (n, end) in taken[i..].iter().enumerate() {
                prop_assert!(n as u64 <= 32 + (end - start) / 1000);
            }
        }
    }
}
