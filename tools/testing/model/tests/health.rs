// SPDX-License-Identifier: GPL-2.0

//! Health registers, and firmware that dies and is reset.

mod common;

use std::time::Duration;
use std::time::Instant;

use common::*;
use mlx5_model::checks::Rule;
use mlx5_model::control::client::Client as Control;
use mlx5_model::control::types;

/// Offsets of hardware.md section 1.
const BUFFER: u64 = 0x200;
const COUNTER: u64 = 0x1010;
const CMDQ_LOW: u64 = 0x14;

fn bench_with(options: &[&str]) -> (Model, Control, Driver) {
    let model = Model::with(options);
    let mut control = model.control();
    control.run("pages boot=3 init=2").expect("pages");
    let mut d = Driver::attach(&model);
    d.init();
    (model, control, d)
}

fn bench() -> (Model, Control, Driver) {
    bench_with(&[])
}

fn health(control: &mut Control) -> types::Health {
    control.request("health").expect("health")
}

fn counter(d: &mut Driver) -> u32 {
    d.vfu.read32(COUNTER) & 0xff_ffff
}

fn nic(d: &mut Driver) -> u32 {
    d.vfu.read32(CMDQ_LOW) >> 8 & 7
}

/// Writes 7 to `nic_interface`, and leaves the queue where it is.
fn software_reset(d: &mut Driver) {
    let queue = d.queue as u32;
    d.vfu.write32(CMDQ_LOW, queue | 7 << 8);
}

/// From any state to initialized again, as a driver that starts.
fn again(d: &mut Driver) {
    d.vfu.master(true);
    d.set_queue();
    d.init();
}

fn assert_broken(control: &mut Control, rules: &[Rule]) {
    let list = control.violations(true).expect("violations").violations;
    let got: Vec<&str> = list.iter().map(|v| v.rule.as_str()).collect();
    let want: Vec<&str> = rules.iter().map(|r| r.name()).collect();
    assert_eq!(got, want, "{list:?}");
}

/// How far the counter moves in a time.
fn moves(d: &mut Driver, time: Duration) -> u32 {
    let start = counter(d);
    std::thread::sleep(time);
    counter(d).wrapping_sub(start) & 0xff_ffff
}

#[test]
fn the_counter_runs_slowly_or_not_at_all() {
    let (_model, mut control, mut d) = bench();
    assert_eq!(health(&mut control).period_ms, 10);
    assert!(moves(&mut d, Duration::from_millis(100)) >= 9);
    control.run("health period=200").expect("period");
    assert_eq!(health(&mut control).period_ms, 200);
    assert!(moves(&mut d, Duration::from_millis(450)) <= 3);
    eventually("it to move", || {
        moves(&mut d, Duration::from_millis(50)) != 0
    });
    assert_eq!(health(&mut control).still_us, None);
    control.run("health counter=stop").expect("stop");
    assert!(!health(&mut control).running);
    assert_eq!(moves(&mut d, Duration::from_millis(450)), 0);
    // From the first stop on.
    control.run("health counter=stop").expect("stop");
    assert!(health(&mut control).still_us >= Some(450_000));
    control.run("health counter=run period=10").expect("run");
    assert!(moves(&mut d, Duration::from_millis(100)) >= 9);
    control
        .run("health counter=jump value=0xfffffe")
        .expect("jump");
    eventually("it to wrap", || counter(&mut d) < 0x1000);
    for refused in ["period=0", "period=x", "value=0x1000000 counter=jump"] {
        control
            .run(&format!("health {refused}"))
            .expect_err(refused);
    }
}

#[test]
fn the_counter_stops_with_a_command() {
    let (_model, mut control, mut d) = bench();
    control
        .fault("op=QUERY_ISSI skip=1 act=stall")
        .expect("fault");
    let submit = |d: &mut Driver, slot| {
        let input = Input::new("QUERY_ISSI", "query_issi", 0).0;
        d.prepare(slot, &input, 112, |_| {});
        d.ring(slot);
    };
    submit(&mut d, 0);
    d.wait(0);
    assert!(health(&mut control).running);
    submit(&mut d, 1);
    assert!(!health(&mut control).running);
    assert!(!d.done(1));
    // Firmware is not dead: other commands are answered, and this one when it is let go.
    submit(&mut d, 2);
    d.wait(2);
    assert_eq!(control.clear_faults().expect("clear").released, 1);
    d.wait(1);
    assert!(!health(&mut control).running);
    control.run("health counter=run").expect("run");
    assert!(moves(&mut d, Duration::from_millis(100)) >= 9);
    assert_broken(&mut control, &[]);
}

#[test]
fn every_field_of_the_buffer_can_be_set() {
    let (_model, mut control, mut d) = bench();
    for (field, value, offset, word) in [
        ("assert_var0", 0x1234_5678_u32, 0x00, 0x1234_5678),
        ("assert_var5", 0x8765_4321, 0x14, 0x8765_4321),
        ("assert_existptr", 1, 0x20, 1),
        ("assert_callra", 2, 0x24, 2),
        ("time", 3, 0x2c, 3),
        ("hw_id", 4, 0x34, 4),
        ("rfr", 1, 0x38, 1 << 31),
        ("crr", 1, 0x38, 0b11 << 30),
        ("valid", 1, 0x38, 0b11 << 30 | 1 << 27),
        ("severity", 5, 0x38, 0b11 << 30 | 1 << 27 | 5 << 24),
        ("irisc_index", 6, 0x3c, 6 << 24),
        ("synd", 7, 0x3c, 0x0607_0000),
        ("ext_synd", 0x40d0, 0x3c, 0x0607_40d0),
    ] {
        control
            .run(&format!("initseg field={field} value={value}"))
            .expect(field);
        assert_eq!(d.vfu.read32(BUFFER + offset), word, "{field}");
    }
    for refused in [
        "assert_var6 value=0",
        "assert_var value=0",
        "crr value=2",
        "assert_var0 value=0x100000000",
    ] {
        control
            .run(&format!("initseg field={refused}"))
            .expect_err(refused);
    }
    // None of this is beside the counter, where `health` puts it.
    assert_eq!(d.vfu.read32(COUNTER) >> 24, 0);
    control.run("health syndrome=0x12").expect("syndrome");
    assert_eq!(d.vfu.read32(COUNTER) >> 24, 0x12);
    assert_eq!(d.vfu.read32(BUFFER + 0x3c), 0x0612_40d0);
    control.run("health clear").expect("clear");
    let left: Vec<u32> = (0..16).map(|i| d.vfu.read32(BUFFER + 4 * i)).collect();
    let firmware = 28 << 24 | 43 << 16 | 1000;
    let mut want = vec![0; 16];
    (want[0x30 / 4], want[0x34 / 4]) = (firmware, 4);
    assert_eq!(left, want);
    assert_broken(&mut control, &[]);
}

#[test]
fn reads_are_counted_by_what_they_touch() {
    let (_model, mut control, mut d) = bench();
    let mut last = control.status().expect("status").accesses;
    for (offset, len, buffer, counter) in [
        (0x1fc, 4, 0, 0),
        (0x200, 4, 1, 0),
        (0x23c, 4, 1, 0),
        (0x23d, 1, 1, 0),
        (0x1fc, 8, 1, 0),
        (0x240, 4, 0, 0),
        (0x100c, 4, 0, 0),
        (0x1010, 4, 0, 1),
        (0x1014, 4, 0, 0),
    ] {
        d.vfu.read(REGION_BAR0, offset, len);
        let now = control.status().expect("status").accesses;
        let got = (
            now.segment_reads - last.segment_reads,
            now.health_buffer_reads - last.health_buffer_reads,
            now.health_counter_reads - last.health_counter_reads,
        );
        assert_eq!(got, (1, buffer, counter), "{len} bytes at {offset:#x}");
        last = now;
    }
}

#[test]
fn what_firmware_says_when_it_dies() {
    let (_model, mut control, mut d) = bench();
    control
        .run("fatal syndrome=0x13 ext_syndrome=0x40d0 nic=0 rfr=0")
        .expect("fatal");
    assert_eq!(d.vfu.read32(BUFFER + 0x3c), 3 << 24 | 0x13 << 16 | 0x40d0);
    assert_eq!(d.vfu.read32(BUFFER + 0x38), 1 << 27 | 2 << 24);
    assert_eq!(d.vfu.read32(COUNTER) >> 24, 0x13);
    assert_eq!(nic(&mut d), 0);
    for offset in [0, 0x14, 0x20, 0x24, 0x2c] {
        assert!(d.vfu.read32(BUFFER + offset) != 0, "{offset:#x}");
    }
}

#[test]
fn a_software_reset_that_works() {
    let (_model, mut control, mut d) = bench();
    assert_eq!(d.vfu.read32(0x1fc) >> 30 & 1, 1, "supported");
    control.run("fatal nic=0").expect("fatal");
    control.run("nic_interface delay=50").expect("delay");
    software_reset(&mut d);
    assert_eq!((nic(&mut d), health(&mut control).fatal), (0, true));
    eventually("it to be disabled", || nic(&mut d) == 1);
    let now = health(&mut control);
    assert_eq!((now.fatal, now.syndrome, now.running), (false, 0, true));
    again(&mut d);
    assert_broken(&mut control, &[]);
}

#[test]
fn a_software_reset_that_fails() {
    let (_model, mut control, mut d) = bench();
    // It never ends.
    control.run("fatal nic=0").expect("fatal");
    control.run("nic_interface delay=never").expect("never");
    software_reset(&mut d);
    std::thread::sleep(Duration::from_millis(50));
    assert!(health(&mut control).fatal && nic(&mut d) != 1);
    // It ends, and firmware is as dead as before.
    control.run("nic_interface delay=0").expect("delay");
    control.run("software_reset revives=0").expect("reset");
    software_reset(&mut d);
    assert_eq!(nic(&mut d), 1);
    let now = health(&mut control);
    assert_eq!((now.fatal, now.syndrome, now.running), (true, 1, false));
    // Until it is told otherwise.
    control.run("software_reset").expect("reset");
    software_reset(&mut d);
    assert!(!health(&mut control).fatal);
    again(&mut d);
    assert_broken(&mut control, &[]);
}

#[test]
fn a_software_reset_that_takes_long() {
    let (_model, mut control, mut d) = bench();
    control.run("fatal nic=0").expect("fatal");
    control
        .run("software_reset silent=100 initializing=100")
        .expect("reset");
    let start = Instant::now();
    software_reset(&mut d);
    assert_eq!(d.vfu.read32(COUNTER), u32::MAX);
    assert_eq!(d.vfu.read(REGION_CONFIG, 0, 4), [0xff; 4]);
    eventually("it to answer", || d.vfu.read32(COUNTER) != u32::MAX);
    assert!(start.elapsed() >= Duration::from_millis(100));
    assert_eq!(d.vfu.read32(0x1fc) >> 31, 1);
    assert_eq!(nic(&mut d), 1);
    let status = control.status().expect("status");
    assert!(!status.bus_master, "configuration space was reset");
    eventually("it to be ready", || d.vfu.read32(0x1fc) >> 31 == 0);
    assert!(start.elapsed() >= Duration::from_millis(200));
    again(&mut d);
    assert_broken(&mut control, &[]);
}

#[test]
fn a_reset_that_somebody_else_asked_for() {
    let (_model, mut control, mut d) = bench();
    control.run("fatal reset=60").expect("fatal");
    assert_eq!(nic(&mut d), 7);
    eventually("it to be disabled", || nic(&mut d) == 1);
    let status = control.status().expect("status");
    assert_eq!((status.resets, status.software_resets), (1, 0));
    assert!(!status.fatal);
    again(&mut d);
    assert_broken(&mut control, &[]);
}

#[test]
fn a_virtual_function_has_no_software_reset() {
    let (_model, mut control, mut d) = bench_with(&["--vf"]);
    assert_eq!(d.vfu.read32(0x1fc) >> 30 & 1, 0);
    software_reset(&mut d);
    assert_eq!(control.status().expect("status").software_resets, 0);
    assert_broken(&mut control, &[Rule::ResetNotSupported]);
}
