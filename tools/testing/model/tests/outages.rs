// SPDX-License-Identifier: GPL-2.0

//! A device that hangs, vanishes, dies, resets, or was left behind by another driver.

mod common;

use std::time::Duration;
use std::time::Instant;

use common::*;
use mlx5_model::checks::Rule;
use mlx5_model::control::client::Client as Control;
use mlx5_model::control::types::Status;
use mlx5_model::device::State;

const ONES: u32 = u32::MAX;

fn bench() -> (Model, Control, Driver) {
    let model = Model::start();
    let mut control = model.control();
    control.run("pages boot=3 init=2").expect("pages");
    let mut d = Driver::attach(&model);
    d.init();
    (model, control, d)
}

fn status(control: &mut Control) -> Status {
    control.status().expect("status")
}

fn id(d: &mut Driver) -> u32 {
    let b = d.vfu.read(REGION_CONFIG, 0, 4);
    u32::from_le_bytes([b[0], b[1], b[2], b[3]])
}

fn submit(d: &mut Driver, slot: usize) {
    d.prepare(
        slot,
        &Input::new("QUERY_ISSI", "query_issi", 0).0,
        112,
        |_| {},
    );
    d.ring(slot);
}

fn assert_broken(control: &mut Control, rules: &[Rule]) {
    let list = control.violations(true).expect("violations").violations;
    let got: Vec<&str> = list.iter().map(|v| v.rule.as_str()).collect();
    let want: Vec<&str> = rules.iter().map(|r| r.name()).collect();
    assert_eq!(got, want, "{list:?}");
}

/// Function level reset: DevCtl bit 15, as a 16-bit write.
fn flr(d: &mut Driver) {
    d.vfu.write(REGION_CONFIG, 0x68, &[0x10, 0xa9]);
}

/// From any state to initialized again, as a driver that starts.
fn again(d: &mut Driver) {
    d.vfu.master(true);
    d.set_queue();
    d.init();
}

#[test]
fn ones_until_off_and_then_as_it_was() {
    let (_model, mut control, mut d) = bench();
    control
        .fault("op=QUERY_ISSI act=delay ms=20")
        .expect("fault");
    submit(&mut d, 0);
    control.run("ones on").expect("ones");
    let before = status(&mut control);
    assert_eq!(before.link, "ones");
    assert_eq!(d.vfu.read32(0), ONES);
    assert_eq!(d.vfu.read32(0x1fc), ONES);
    assert_eq!(d.vfu.read(REGION_BAR0, 0x1_0040, 8), [0xff; 8]);
    assert_eq!(id(&mut d), 0x1021_15b3, "configuration space answers");
    submit(&mut d, 1);
    d.vfu.write32(0x14, 0);
    control.run("irq vector=0").expect_err("silent");
    control.run("event type=9").expect_err("silent");
    std::thread::sleep(Duration::from_millis(60));
    assert!(!d.done(0) && !d.done(1));
    let now = status(&mut control);
    assert_eq!(now.dma, before.dma, "no DMA");
    assert_eq!(now.accesses.lost - before.accesses.lost, 2);
    assert_eq!(now.accesses.ones - before.accesses.ones, 3);
    assert_eq!(now.commands, before.commands, "the doorbell was lost");
    control.run("ones off").expect("off");
    assert_eq!(d.vfu.read32(0x4) >> 16, 5);
    assert_eq!(d.wait(0).status(), 0, "goes on");
    assert!(!d.done(1));
    submit(&mut d, 1);
    assert_eq!(d.wait(1).status(), 0);
    assert_eq!(status(&mut control).state, State::Initialized);
    assert_broken(&mut control, &[]);
}

#[test]
fn ones_for_a_time_with_configuration_space() {
    let (_model, mut control, mut d) = bench();
    let start = Instant::now();
    control.run("ones ms=200 config=1").expect("ones");
    assert_eq!(id(&mut d), ONES);
    flr(&mut d);
    d.vfu.master(false);
    eventually("answers", || id(&mut d) != ONES);
    assert!(start.elapsed() >= Duration::from_millis(200));
    let s = status(&mut control);
    assert_eq!((s.flrs, s.master_clears), (0, 0), "writes were lost");
    assert!(s.bus_master);
    submit(&mut d, 0);
    d.wait(0);
    assert_broken(&mut control, &[]);
}

#[test]
fn ones_that_end_in_a_reset() {
    for config in [false, true] {
        let (_model, mut control, mut d) = bench();
        control.fault("op=QUERY_ISSI act=hold").expect("fault");
        submit(&mut d, 0);
        control
            .run(&format!(
                "ones ms=50 reset=1 initializing=100 config={}",
                u8::from(config)
            ))
            .expect("ones");
        eventually("answers", || d.vfu.read32(0x1fc) != ONES);
        assert_eq!(d.vfu.read32(0x1fc) >> 31, 1, "initializing");
        eventually("ready", || d.vfu.read32(0x1fc) >> 31 == 0);
        let s = status(&mut control);
        assert_eq!((s.state, s.resets, s.flrs), (State::Reset, 1, 0));
        assert_eq!(s.in_flight, []);
        assert_eq!(s.bus_master, !config, "a link that was down resets all");
        assert_eq!(d.vfu.read32(0x14) & !0xff, 0, "the queue is gone");
        assert_eq!(control.release().expect("release").released, 0);
        d.ring(0);
        again(&mut d);
        assert_broken(&mut control, &[]);
    }
}

/// The very command that is chosen: neither the one before it nor the one after it.
#[test]
fn faults_strike_at_a_command() {
    for act in [
        "ones",
        "ones ms=50",
        "ones ms=50 config=1",
        "vanish",
        "fatal",
    ] {
        let (_model, mut control, mut d) = bench();
        control
            .fault(&format!("op=* skip=2 act={act}"))
            .expect("fault");
        for slot in 0..2 {
            submit(&mut d, slot);
            d.wait(slot);
        }
        let before = status(&mut control);
        // Both slots in one doorbell: the second is never seen, or never answered.
        for slot in [4, 5] {
            d.prepare(
                slot,
                &Input::new("QUERY_ISSI", "query_issi", 0).0,
                112,
                |_| {},
            );
        }
        d.vfu.write32(0x18, 0x30);
        let s = status(&mut control);
        assert!(!d.done(5), "{act}");
        let log = control.commands(before.commands).expect("log").commands;
        let word = act.split(' ').next();
        assert_eq!(log[0].fault.as_deref(), word, "{act}");
        assert_eq!(s.dma.writes, before.dma.writes, "{act}");
        if act.contains("ms=") {
            assert_eq!(d.wait(4).status(), 0, "{act}: goes on by itself");
            d.ring(5);
            d.wait(5);
        } else {
            std::thread::sleep(Duration::from_millis(20));
            assert!(!d.done(4), "{act}");
        }
        assert_broken(&mut control, &[]);
    }
}

#[test]
fn a_device_that_vanishes() {
    let (_model, mut control, mut d) = bench();
    control.fault("op=QUERY_ISSI act=hold").expect("fault");
    submit(&mut d, 0);
    let before = status(&mut control);
    control.run("vanish").expect("vanish");
    assert_eq!((id(&mut d), d.vfu.read32(0x14)), (ONES, ONES));
    flr(&mut d);
    d.set_queue();
    d.vfu.master(false);
    assert_eq!(d.vfu.call(CMD_RESET, &[], &[]).error, 0);
    assert_eq!(control.release().expect("release").released, 1);
    for refused in ["ones on", "fatal", "irq vector=0"] {
        let e = control.run(refused).expect_err(refused).to_string();
        assert!(e.contains("gone") || e.contains("vanish"), "{e}");
    }
    let s = status(&mut control);
    assert_eq!((s.link.as_str(), s.dma), ("gone", before.dma));
    assert_eq!(s.pages.given, 5, "to be looked at");
    assert!(!d.done(0) && id(&mut d) == ONES);
    // Another one in its place.
    control.run("vanish off").expect("off");
    assert_eq!(id(&mut d), 0x1021_15b3);
    let s = status(&mut control);
    assert_eq!(
        (s.state, s.pages.given, s.bus_master),
        (State::Reset, 0, false)
    );
    again(&mut d);
    control.run("vanish").expect("vanish");
    control.run("reset").expect("reset");
    assert_eq!(status(&mut control).link, "up");
    assert_broken(&mut control, &[]);
}

#[test]
fn firmware_that_dies() {
    let (model, mut control, mut d) = bench();
    let uar = d.alloc_uar();
    d.create_eq(3, uar, 0, 1 << 9);
    control
        .fault("op=QUERY_ISSI act=delay ms=10")
        .expect("fault");
    submit(&mut d, 0);
    control
        .fault("op=QUERY_ISSI act=fatal syndrome=8 nic=0")
        .expect("fault");
    submit(&mut d, 1);
    submit(&mut d, 2);
    // What was there already reads as before.
    assert_eq!(d.vfu.read32(0x230), 28 << 24 | 43 << 16 | 1000);
    assert_eq!(d.vfu.read32(0x238), 1 << 31 | 1 << 27 | 2 << 24);
    assert_eq!(d.vfu.read32(0x23c) >> 16 & 0xff, 8);
    assert_eq!(d.vfu.read32(0x14) >> 8 & 7, 0);
    let counter = d.vfu.read32(0x1010);
    assert_eq!(counter >> 24, 8);
    control.run("event type=9").expect_err("dead");
    std::thread::sleep(Duration::from_millis(40));
    assert_eq!(d.vfu.read32(0x1010), counter, "stands still");
    assert!((0..3).all(|slot| !d.done(slot)));
    let s = status(&mut control);
    assert!(s.fatal);
    assert_eq!(s.in_flight.len(), 3);
    let health: mlx5_model::control::types::Health = control.request("health").expect("health");
    assert_eq!(
        (health.syndrome, health.rfr, health.severity),
        (8, true, Some(2))
    );

    // A driver that only starts over gets no answer; one that resets does.
    d.set_queue();
    submit(&mut d, 3);
    std::thread::sleep(Duration::from_millis(20));
    assert!(!d.done(3));
    flr(&mut d);
    assert_eq!((d.vfu.read32(0x238), d.vfu.read32(0x23c)), (0, 0));
    again(&mut d);
    control.run("fatal").expect("fatal");
    assert_eq!(d.vfu.read32(0x14) >> 8 & 7, 7);
    let queue = d.queue as u32;
    d.vfu.write32(0x14, queue | 7 << 8);
    assert_eq!(d.vfu.read32(0x14) >> 8 & 7, 1, "software reset");
    again(&mut d);
    control.run("fatal nic=1").expect("fatal");
    submit(&mut d, 0);
    control.run("health clear").expect("clear");
    submit(&mut d, 1);
    d.wait(1);
    assert!(!d.done(0), "of before");
    let s = status(&mut control);
    assert_eq!((s.flrs, s.software_resets, s.resets), (1, 1, 2));
    assert_broken(&mut control, &[]);
    drop(model);
}

#[test]
fn health_registers() {
    let (_model, mut control, mut d) = bench();
    control
        .run("health syndrome=0x10 rfr=0 severity=4 counter=stop value=0x1234")
        .expect("health");
    assert_eq!(d.vfu.read32(0x1010), 0x1000_1234);
    assert_eq!(d.vfu.read32(0x238), 1 << 27 | 4 << 24);
    // This is only what it says: commands are answered.
    submit(&mut d, 0);
    d.wait(0);
    control
        .run("health counter=jump value=0xffffff")
        .expect("jump");
    assert_eq!(d.vfu.read32(0x1010), 0x10ff_ffff);
    control.run("health counter=run").expect("run");
    eventually("wraps", || d.vfu.read32(0x1010) & 0xff_ffff < 0x100);
    control.run("health clear").expect("clear");
    assert_eq!(d.vfu.read32(0x1010) >> 24, 0);
}

#[test]
fn a_function_that_resets_by_itself() {
    let (_model, mut control, mut d) = bench();
    control
        .fault("op=QUERY_ISSI act=reset ms=50")
        .expect("fault");
    submit(&mut d, 0);
    assert_eq!(d.vfu.read32(0x1fc) >> 31, 1);
    eventually("ready", || d.vfu.read32(0x1fc) >> 31 == 0);
    let s = status(&mut control);
    assert!(s.bus_master && !d.done(0));
    assert_eq!((s.state, s.resets, s.flrs), (State::Reset, 1, 0));
    // The driver cannot know. What its first word as a new driver is wrong about counts again.
    d.ring(0);
    d.vfu.write32(0x1_0040, 0x0100_0000);
    assert_broken(&mut control, &[]);
    d.vfu.write32(0x10, 0);
    d.ring(0);
    assert_broken(&mut control, &[Rule::NoQueue]);
    again(&mut d);
    assert_broken(&mut control, &[]);
}

#[test]
fn stale_state_is_dropped_by_a_new_driver() {
    for how in ["queue", "queue high word", "flr", "master", "nic"] {
        let model = Model::with(&["--stale", "1000"]);
        let mut control = model.control();
        control.run("pages boot=0 init=0").expect("pages");
        let mut d = Driver::connect(&model);
        // QEMU resets the device before its guest starts.
        assert_eq!(d.vfu.call(CMD_RESET, &[], &[]).error, 0);
        let s = status(&mut control);
        assert_eq!(
            (s.state, s.pages.given),
            (State::Initialized, 1000),
            "{how}"
        );
        assert_eq!((s.eqs.len(), s.stale, s.stale_dropped), (2, true, 0));
        d.vfu.master(true);
        // It is alive: the event goes to memory that is no more.
        control.run("event type=0xb").expect("event");
        assert_broken(&mut control, &[Rule::DmaUnmapped]);
        match how {
            "queue" => d.set_queue(),
            "queue high word" => d.vfu.write32(0x10, 0),
            "flr" => flr(&mut d),
            "master" => d.vfu.master(false),
            _ => d.vfu.write32(0x14, 1 << 8),
        }
        let s = status(&mut control);
        assert_eq!((s.state, s.pages.given), (State::Reset, 0), "{how}");
        assert_eq!((s.eqs.len(), s.stale, s.stale_dropped), (0, false, 1));
        control.run("event type=0xb").expect_err("no EQ is left");
        again(&mut d);
        let s = status(&mut control);
        assert_eq!((s.state, s.stale_dropped), (State::Initialized, 1), "{how}");
        assert_broken(&mut control, &[]);
    }
}

#[test]
fn what_a_real_driver_left_is_dropped_too() {
    let (_model, mut control, mut d) = bench();
    control.run("pages check").expect("check");
    control.fault("op=QUERY_ISSI act=hold").expect("fault");
    submit(&mut d, 0);
    d.set_queue();
    let s = status(&mut control);
    assert_eq!((s.stale_dropped, s.pages.given), (1, 0));
    assert_eq!(control.release().expect("release").released, 0);
    d.init();
    d.down();
    d.set_queue();
    assert_eq!(status(&mut control).stale_dropped, 1, "nothing was left");
    // By the control socket, at any time.
    control.run("stale pages=7 eqs=3").expect("stale");
    let s = status(&mut control);
    assert_eq!((s.pages.given, s.eqs.len()), (7, 3));
    control.run("pages check").expect("check");
    // Without a queue of its own, a driver's doorbell goes to the old one's memory.
    d.ring(0);
    assert_broken(&mut control, &[Rule::DmaUnmapped]);
    d.set_queue();
    d.init();
}

#[test]
fn teardown_that_is_fast() {
    let (_model, mut control, mut d) = bench();
    let input = Input::new("TEARDOWN_HCA", "teardown_hca", 0);
    let fast = input.clone().with(field!("teardown_hca_in", "profile"), 2);
    let queue = d.queue as u32;
    let nic = |d: &mut Driver| d.vfu.read32(0x14) >> 8 & 7;

    // It refuses, and goes on as before.
    control
        .fault("op=TEARDOWN_HCA act=teardown_state_failed")
        .expect("fault");
    let out = d.ok(&fast, "teardown_hca");
    assert_eq!(out.get(field!("teardown_hca_out", "state")), 1);
    assert_eq!(status(&mut control).state, State::Initialized);

    control.run("nic_interface delay=150").expect("delay");
    assert_eq!(
        d.ok(&fast, "teardown_hca")
            .get(field!("teardown_hca_out", "state")),
        0
    );
    let start = Instant::now();
    d.vfu.write32(0x14, queue | 1 << 8);
    assert_eq!(nic(&mut d), 0);
    assert_eq!(status(&mut control).pages.given, 5, "still the device's");
    eventually("disabled", || nic(&mut d) == 1);
    assert!(start.elapsed() >= Duration::from_millis(150));
    let s = status(&mut control);
    assert_eq!(
        (s.state, s.pages.given, s.nic_disables),
        (State::Reset, 0, 1)
    );
    assert_eq!(d.vfu.read32(0x14) & !0xfff, queue, "the address stays");
    d.ring(0);
    assert_broken(&mut control, &[Rule::NoQueue]);

    // Never: only switching bus mastering off helps.
    again(&mut d);
    control.run("nic_interface delay=never").expect("never");
    d.ok(&fast, "teardown_hca");
    d.vfu.write32(0x14, queue | 1 << 8);
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(nic(&mut d), 0);
    d.vfu.master(false);
    d.vfu.master(true);
    // A new driver is not disabled by what the old one wanted.
    control.run("nic_interface delay=30").expect("delay");
    d.vfu.write32(0x14, queue | 1 << 8);
    d.set_queue();
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(nic(&mut d), 0);
    d.init();
    // Software reset reads as 7 while it lasts.
    d.vfu.write32(0x14, queue | 7 << 8);
    assert_eq!(nic(&mut d), 7);
    eventually("reset", || nic(&mut d) == 1);
    assert_eq!(status(&mut control).software_resets, 1);
    assert_broken(&mut control, &[]);
}

#[test]
fn teardown_by_force_ends_all_dma() {
    let (_model, mut control, mut d) = bench();
    let uar = d.alloc_uar();
    d.create_eq(3, uar, 0, 1 << 9);
    let force =
        Input::new("TEARDOWN_HCA", "teardown_hca", 0).with(field!("teardown_hca_in", "profile"), 1);
    d.ok(&force, "teardown_hca");
    let s = status(&mut control);
    assert_eq!((s.state, s.pages.given), (State::TornDown, 0));
    assert_eq!(s.eqs, []);
    again(&mut d);
    assert_broken(&mut control, &[]);
}

#[test]
fn accesses_are_counted_by_area() {
    let (_model, mut control, mut d) = bench();
    let uar = d.alloc_uar();
    let eq = d.create_eq(3, uar, 0, 1 << 9);
    let a = status(&mut control);
    d.vfu.read32(0);
    d.vfu.read32(0x1010);
    d.vfu.read32(u64::from(uar) * bar::UAR_SIZE);
    d.doorbell(&eq, true);
    d.vfu.write32(0x100c, 1);
    let b = status(&mut control);
    let (x, y) = (a.accesses, b.accesses);
    assert_eq!(y.segment_reads - x.segment_reads, 2);
    assert_eq!(y.uar_reads - x.uar_reads, 1);
    assert_eq!(y.uar_writes - x.uar_writes, 1);
    assert_eq!(y.segment_writes - x.segment_writes, 1);
    assert_eq!(y.doorbells, x.doorbells);
    assert_eq!(
        (b.mmio_reads - a.mmio_reads, b.mmio_writes - a.mmio_writes),
        (3, 2)
    );
    assert_eq!(b.dma, a.dma);
    control.run("pages check").expect("no DMA of the device");
    assert_eq!(status(&mut control).dma, a.dma);
    submit(&mut d, 0);
    d.wait(0);
    let c = status(&mut control);
    assert_eq!(c.accesses.doorbells, b.accesses.doorbells + 1);
    assert!(c.dma.reads > b.dma.reads && c.dma.writes > b.dma.writes);
    d.vfu.read(REGION_CONFIG, 0, 4);
    d.vfu.master(false);
    flr(&mut d);
    assert_eq!(d.vfu.call(CMD_RESET, &[], &[]).error, 0);
    let e = status(&mut control);
    assert_eq!(e.accesses.config_reads, c.accesses.config_reads + 1);
    assert_eq!(e.accesses.config_writes, c.accesses.config_writes + 2);
    assert_eq!(
        (e.master_clears, e.flrs, e.device_resets, e.resets),
        (1, 1, 1, 2)
    );
}

#[test]
fn silent_for_so_many_looks() {
    let (_model, mut control, mut d) = bench();
    assert!(control.run("ones on reads=3").is_err(), "without config=1");
    control.run("ones on config=1 reads=3").expect("ones");
    for look in 0..3 {
        assert_eq!(status(&mut control).link, "ones", "{look}");
        assert_eq!(id(&mut d), ONES, "{look}");
    }
    assert_eq!(id(&mut d), 0x1021_15b3);
    let s = status(&mut control);
    assert_eq!((s.link.as_str(), s.bus_master), ("up", true));
    assert_eq!(s.state, State::Initialized);
}

#[test]
fn deaf() {
    let (_model, mut control, mut d) = bench();
    control.run("deaf on").expect("deaf");
    let lost = status(&mut control).accesses.lost;
    d.vfu.master(false);
    let s = status(&mut control);
    assert!(s.bus_master && s.accesses.lost > lost);
    assert_eq!(id(&mut d), 0x1021_15b3, "it can be read");
    control.run("deaf off").expect("deaf");
    d.vfu.master(false);
    assert!(!status(&mut control).bus_master);
    assert_broken(&mut control, &[]);
}
