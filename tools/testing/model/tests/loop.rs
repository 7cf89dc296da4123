// SPDX-License-Identifier: GPL-2.0

//! The message loop under load: nobody keeps anybody waiting.

mod common;

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use common::*;
use mlx5_model::control::client::Client as Control;
use nix::sys::signal::Signal;

/// What QEMU gives up after is 5 s; this is also true on a machine that is busy with other things.
const STALL: Duration = Duration::from_secs(1);

fn raw_control(model: &Model) -> UnixStream {
    let stream = UnixStream::connect(model.dir.path().join("ctl.sock")).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    stream
}

/// Initialized, without pages.
fn attach(model: &Model) -> Driver {
    model.control().run("pages boot=0 init=0").expect("pages");
    let mut d = Driver::attach(model);
    d.init();
    d
}

/// Longest read of a register while `other` runs.
fn longest_read(d: &mut Driver, other: impl FnOnce() + Send) -> Duration {
    let done = AtomicBool::new(false);
    let mut longest = Duration::ZERO;
    std::thread::scope(|s| {
        s.spawn(|| {
            other();
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            let start = Instant::now();
            d.vfu.read32(0x1010);
            longest = longest.max(start.elapsed());
        }
    });
    longest
}

#[test]
fn clients_that_come_and_go() {
    let model = Model::start();
    let mut d = attach(&model);
    let path = model.dir.path().join("ctl.sock");
    let longest = longest_read(&mut d, || {
        std::thread::scope(|s| {
            for n in 0..4 {
                let path = &path;
                s.spawn(move || {
                    for i in 0..250 {
                        let mut c = Control::connect(path).expect("connect");
                        // Some go without a word, some in the middle of one.
                        match (i + n) % 4 {
                            0 => {}
                            1 => drop(UnixStream::connect(path).map(|mut s| s.write_all(b"sta"))),
                            _ => assert!(c.status().expect("status").connected),
                        }
                    }
                });
            }
        });
    });
    assert!(longest < STALL, "{longest:?}");
}

#[test]
fn a_client_that_does_not_stop_talking() {
    let model = Model::start();
    let mut d = attach(&model);
    let mut talker = raw_control(&model);
    let reader = talker.try_clone().expect("dup");
    let longest = longest_read(&mut d, || {
        std::thread::scope(|s| {
            s.spawn(move || {
                for _ in 0..200 {
                    talker.write_all(&b"status\n".repeat(100)).expect("write");
                }
                // Its replies come all the same.
                talker.shutdown(Shutdown::Write).expect("shutdown");
            });
            assert_eq!(BufReader::new(reader).lines().count(), 20_000);
        });
    });
    assert!(longest < STALL, "{longest:?}");
}

#[test]
fn more_clients_than_are_served_at_a_time() {
    let model = Model::start();
    let mut d = attach(&model);
    let idle: Vec<UnixStream> = (0..300).map(|_| raw_control(&model)).collect();
    d.vfu.read32(0);
    let mut last = idle.last().expect("300").try_clone().expect("dup");
    last.write_all(b"faults\n").expect("write");
    drop(idle);
    let mut reply = String::new();
    BufReader::new(last).read_line(&mut reply).expect("reply");
    assert_eq!(reply, "{\"faults\":[],\"ok\":true}\n");
}

#[test]
fn a_long_log_in_parts() {
    let model = Model::start();
    let mut d = attach(&model);
    let count = 3000;
    for _ in 0..count {
        d.exec(&Input::new("QUERY_ISSI", "query_issi", 0), 112);
    }
    let mut control = model.control();
    let mut log = None;
    let longest = longest_read(&mut d, || {
        log = Some(control.commands(0).expect("commands"));
    });
    let log = log.expect("done");
    assert!(longest < STALL, "{longest:?}");
    assert!(log.total > count);
    assert_eq!(log.commands.len() as u64, log.total);
    assert!(log
        .commands
        .iter()
        .enumerate()
        .all(|(i, c)| c.n == i as u64));
    let tail = control.commands(log.total - 2).expect("commands").commands;
    assert_eq!(tail, log.commands[log.commands.len() - 2..]);
    assert_eq!(control.commands(u64::MAX).expect("none").commands, []);
}

#[test]
fn one_guest_after_another_with_commands_left_over() {
    let model = Model::start();
    let mut control = model.control();
    control.run("pages boot=4 init=4").expect("pages");
    for act in [
        "hold",
        "never",
        "delay ms=20",
        "late ms=20",
        "ones ms=30",
        "fatal",
    ] {
        let mut d = Driver::connect(&model);
        // QEMU does this when it starts.
        assert_eq!(d.vfu.call(CMD_RESET, &[], &[]).error, 0, "{act}");
        d.vfu.master(true);
        d.set_queue();
        d.init();
        control
            .fault(&format!("op=QUERY_ISSI act={act}"))
            .expect("fault");
        d.prepare(0, &Input::new("QUERY_ISSI", "query_issi", 0).0, 112, |_| {});
        d.ring(0);
        // The next one waits already.
        let mut next = Vfu::raw(&model);
        next.send(CMD_VERSION, &[0; 4], &[], 0);
        let ram = d.ram;
        drop(d.vfu);
        assert_eq!(next.reply().error, 0, "{act}");
        eventually("the device answers", || next.read32(4) >> 16 == 5);
        control.clear_faults().expect("clear");
        control.release().expect("release");
        std::thread::sleep(Duration::from_millis(40));
        assert_eq!(ram.byte(d.queue + 63) & 1, 1, "{act}: nothing is written");
        let s = control.status().expect("status");
        assert_eq!((s.pages.given, s.in_flight.len()), (0, 0), "{act}");
    }
    let v = control.violations(false).expect("violations");
    assert_eq!(v.violations, []);
}

#[test]
fn ends_by_a_signal_whatever_waits() {
    for act in ["hold", "delay ms=100000", "ones", "vanish", "fatal"] {
        let model = Model::start();
        let mut d = attach(&model);
        let mut control = model.control();
        control
            .fault(&format!("op=QUERY_ISSI act={act}"))
            .expect("fault");
        for slot in [0, 1] {
            d.prepare(
                slot,
                &Input::new("QUERY_ISSI", "query_issi", 0).0,
                112,
                |_| {},
            );
        }
        d.vfu.write32(0x18, 3);
        // In the middle of a message, with a reply that nobody reads.
        let half = d.vfu.header(CMD_READ, 32, 0);
        d.vfu.stream.write_all(&half[..9]).expect("write");
        let mut deaf = raw_control(&model);
        deaf.write_all(&b"status\n".repeat(2000)).expect("write");
        let start = Instant::now();
        assert_eq!(model.stop(Signal::SIGTERM), Some(0), "{act}");
        assert!(start.elapsed() < STALL, "{act}");
    }
}
