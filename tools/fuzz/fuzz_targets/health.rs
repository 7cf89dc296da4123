// SPDX-License-Identifier: GPL-2.0

//! What the watchdog reads: a health buffer, then words with syndrome and counter, each with a byte
//! for `nic_interface` and the bus, and one for the time in between.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_pure::health::buffer::{Report, LEN};
use mlx5_pure::health::policy::{Finding, Limits, Monitor, Sample};
use mlx5_pure::segment::decode::Firmware;

fuzz_target!(|data: &[u8]| {
    let Some((buffer, samples)) = data.split_first_chunk::<LEN>() else {
        return;
    };
    let firmware = Firmware {
        major: 28,
        minor: 43,
        subminor: 1000,
        cmd_interface_rev: 5,
    };
    let report = Report::new(*buffer, firmware);
    for entry in report.entries() {
        assert!(entry
            .to_string()
            .chars()
            .all(|c| c == ' ' || c.is_ascii_graphic()));
    }
    let mut at_ms = 0;
    let mut next = |chunk: &[u8]| {
        at_ms += u64::from(chunk[5]) * 10;
        Sample {
            at_ms,
            word: u32::from_be_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]),
            nic_interface: chunk[4] & 7,
            is_silent: chunk[4] & 0xf0 == 0x10,
            is_offline: chunk[4] & 0xf0 == 0x20,
        }
    };
    let mut samples = samples.chunks_exact(6);
    let Some(first) = samples.next() else {
        return;
    };
    let mut monitor = Monitor::new(&next(first));
    let limits = Limits {
        misses: 3,
        dead_ms: 10_000,
    };
    let (mut unchanged, mut over) = (0, false);
    for chunk in samples {
        let before = monitor;
        let sample = next(chunk);
        let finding = monitor.observe(&sample, limits);
        assert!(!over || finding == Finding::Nothing);
        match finding {
            Finding::Nothing | Finding::Syndrome => {}
            Finding::Stall { misses } => {
                assert!(misses >= 3 && !before.is_stalled() && monitor.is_stalled());
            }
            Finding::Resumed { .. } => assert!(before.is_stalled() && !monitor.is_stalled()),
            Finding::Fatal(_) => over = true,
        }
        if matches!(finding, Finding::Stall { .. } | Finding::Syndrome) && sample.syndrome() != 0 {
            over |= monitor.examine(finding, &report).is_some();
        }
        assert_eq!(monitor.is_fatal(), over);
        unchanged = if monitor.misses() == 0 {
            0
        } else {
            unchanged + 1
        };
        assert!(over || monitor.misses() == unchanged);
        assert!(monitor.pause_us(100) <= 100_000);
    }
});
