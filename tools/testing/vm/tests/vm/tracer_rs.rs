// SPDX-License-Identifier: GPL-2.0
//! The firmware tracer under mlx5_rs: all that the device writes is read, in
//! order and with its time, or is told to be missing.

use crate::driver::{alive, counter, counters, debugfs, down, load, up, wait_counter, BRING_UP};
use crate::{is_long, Lab, Test, TEST};
use anyhow::{ensure, Context, Result};
use mlx5_model::tracer::Owner;
use mlx5_vm::manifest::Kernel;
use mlx5_vm::process::wait_until;
use mlx5_vm::qemu::Hardware;
use mlx5_vm::tracer::{self, Reading};
use mlx5_vm::vm::{with, Boot, DeviceId, Vm, DRIVER};
use std::time::Duration;

pub const TESTS: &[Test] = &[
    Test::new(
        "tracer_rs::reads_traces",
        &[Kernel::Test, Kernel::Debian],
        reads_traces,
    ),
    Test::new("tracer_rs::is_overrun", TEST, is_overrun),
    Test::new("tracer_rs::loses_tracer", TEST, loses_tracer),
    Test::new(
        "tracer_rs::hostile",
        &[Kernel::Test, Kernel::Kasan],
        hostile,
    ),
    Test::new("tracer_rs::events_are_lost", TEST, events_are_lost),
    Test::new("tracer_rs::keeps_its_share", TEST, keeps_its_share),
    Test::new("tracer_rs::idle", TEST, idle),
    Test::new("tracer_rs::is_controlled", TEST, is_controlled),
    Test::new("tracer_rs::goes_without", TEST, goes_without),
    Test::new("tracer_rs::outages", TEST, outages),
    // The tool looks below debugfs, where only this kernel has the trace.
    Test::new("tracer_rs::mstfwtrace", &[Kernel::Debian], mstfwtrace).on_root(),
    Test::new(
        "tracer_rs::life_goes_on",
        &[Kernel::Test, Kernel::Kasan],
        life_goes_on,
    ),
    Test::new("tracer_rs::beside_upstream", TEST, beside_upstream),
];

/// A device under mlx5_rs with its tracer on, and the trace events.
fn traced(
    vm: &mut Vm,
    config: &str,
    params: &str,
    body: impl FnOnce(&mut Vm, DeviceId) -> Result<()>,
) -> Result<()> {
    load(vm, params)?;
    let id = vm.add_device(&[])?;
    vm.model(id)?.control().tracer(config)?;
    up(vm, id)?;
    tracer::listen(vm, true)?;
    body(vm, id)?;
    tracer::listen(vm, false)?;
    vm.model(id)?.check()?;
    down(vm, id)
}

/// Waits until the thread has nothing to do any more.
fn settle(vm: &mut Vm, id: DeviceId) -> Result<()> {
    let mut last = 0;
    wait_until("the tracer's thread to sleep", vm.soon(), || {
        let state = debugfs(vm, id, "tracer/state")?;
        let wakeups = counter(vm, id, "tracer/counters", "wakeups")?;
        let still = wakeups == std::mem::replace(&mut last, wakeups);
        Ok(still && state.contains("mode events"))
    })
}

/// Has the device write, and looks at what came of it.
fn read(vm: &mut Vm, id: DeviceId, traffic: &str, timeout: Duration) -> Result<Reading> {
    tracer::clear(vm)?;
    let from = vm.model(id)?.control().tracer("")?.total;
    let state = tracer::write(vm, id, traffic, timeout)?;
    settle(vm, id)?;
    let items = tracer::items(vm, id)?;
    let truth = vm.model(id)?.control().traces(from)?;
    ensure!(
        truth.first().is_some_and(|(n, _)| *n == from),
        "the model keeps fewer traces than were written"
    );
    let apart = 8 * (state.interleave as u64 - 1);
    Ok(tracer::judge(items, &truth, state.script.into(), apart))
}

/// All is there, and right.
fn all_right(reading: &Reading) -> Result<()> {
    let t = &reading.tally;
    ensure!(
        t.written > 0 && t.right == t.written && t.lines == t.written && reading.gaps == 0,
        "{reading:?}"
    );
    Ok(())
}

fn reads_traces(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let size = if is_long() { "large" } else { "small" };
        let other = format!("config ver=1 more=1 raw=50 db={size} time=0x1ffffff0000000");
        // What has no number is known by its time.
        for (config, more) in [("config", " unreliable=50"), (&other, "")] {
            traced(vm, config, "", |vm, id| {
                tracer::wait_ready(vm, id)?;
                let traces = if is_long() { 20_000 } else { 500 };
                let traffic = format!("rate=500 count={traces}");
                let timeout = vm.soon() * if is_long() { 10 } else { 1 };
                all_right(&read(vm, id, &traffic, timeout)?)?;
                let traffic = format!("rate=500 count=500 lost=100 interleave=4 torn=100{more}");
                let reading = read(vm, id, &traffic, timeout)?;
                ensure!(reading.tally.dropped > 0, "{reading:?}");
                all_right(&reading)?;
                // The same lines come from debugfs.
                let lines = debugfs(vm, id, "tracer/traces")?;
                let bdf = vm.bdf(id);
                let last = lines.lines().last().unwrap_or_default();
                ensure!(last.starts_with(&format!("{bdf} [0x")), "{last:?}");
                let parsed = tracer::parse_lines(&lines);
                let items = tracer::items(vm, id)?;
                ensure!(
                    parsed.ends_with(&items),
                    "the trace has\n{items:?}\ndebugfs has\n{lines}"
                );
                Ok(())
            })
            .with_context(|| config.to_owned())?;
            vm.rmmod(DRIVER, vm.scaled(BRING_UP))?;
        }
        Ok(())
    })
}

/// Whatever is missing is told, and nothing is wrong.
fn nothing_silent(reading: &Reading) -> Result<()> {
    let t = &reading.tally;
    ensure!(
        t.written > 0
            && t.wrong() == t.wrong_flags
            // What is lost within one message may be told by another's event.
            && t.wrong_flags <= reading.cut
            && t.wrong_time == 0
            && reading.silent == 0
            && (t.missing() == 0 || reading.blocks + reading.torn > 0),
        "{reading:?}"
    );
    Ok(())
}

/// Fragments come from around gaps, of as many messages as are told at a time,
/// and from traces that the device cut. They may wait for the rest of theirs
/// until much later: `all` is all that was read.
fn fragments_have_reasons(all: &Reading) -> Result<()> {
    ensure!(all.fragments <= (all.gaps + all.cut) * 64, "{all:?}");
    Ok(())
}

fn is_overrun(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        traced(vm, "config", "", |vm, id| {
            tracer::wait_ready(vm, id)?;
            let timeout = vm.soon() * 4;
            let traces: u64 = if is_long() { 10_000_000 } else { 30_000 };
            let mut all = Reading::default();
            for traffic in tracer::campaign(traces) {
                let reading = read(vm, id, &traffic, timeout)?;
                nothing_silent(&reading).with_context(|| traffic.clone())?;
                all.add(reading);
                fragments_have_reasons(&all).with_context(|| traffic.clone())?;
                if all.tally.written + all.tally.dropped >= traces {
                    break;
                }
            }
            println!("{all:?}, {} missing", all.tally.missing());
            ensure!(all.tally.right > 0);
            let counters = counters(vm, id, "tracer/counters")?;
            println!("{counters:?}");
            ensure!(counters["to_polling"] > 0 && counters["to_events"] > 0);
            // It goes on as if nothing had been.
            all_right(&read(vm, id, "rate=500 count=500", timeout)?)
        })
    })
}

/// Writes a word to the driver's control file.
fn control(vm: &Vm, id: DeviceId, word: &str) -> Result<Option<i32>> {
    let path = format!("/sys/kernel/debug/{DRIVER}/{}/tracer/control", vm.bdf(id));
    match vm.agent().set(&path, word, vm.soon()) {
        Ok(()) => Ok(None),
        Err(error) => Ok(Some(error.errno().context(format!("{error}"))?)),
    }
}

fn wait_owner(vm: &mut Vm, id: DeviceId, owner: Owner) -> Result<()> {
    let soon = vm.soon();
    let control = vm.model(id)?.control();
    wait_until(&format!("the tracer to be {owner:?}'s"), soon, || {
        let state = control.tracer("")?;
        Ok(state.owner == owner && state.running == (owner == Owner::Driver))
    })
}

fn wait_state(vm: &Vm, id: DeviceId, what: &str) -> Result<()> {
    wait_until(&format!("the tracer's {what:?}"), vm.soon(), || {
        Ok(debugfs(vm, id, "tracer/state")?.lines().any(|l| l == what))
    })
}

fn loses_tracer(lab: &Lab) -> Result<()> {
    const COUNTERS: &str = "tracer/counters";
    lab.shared(|vm| {
        traced(vm, "deny on", "", |vm, id| {
            let soon = vm.soon();
            wait_state(vm, id, "state waiting for ownership")?;
            ensure!(counter(vm, id, COUNTERS, "ownership_refused")? == 1);
            ensure!(vm.model(id)?.control().tracer("")?.owner == Owner::Nobody);
            alive(vm, id)?;
            // It does not ask again, until it is told.
            settle(vm, id)?;
            ensure!(vm.model(id)?.control().tracer("")?.counters.requests == 1);
            for (round, free) in ["deny off", "give", "give"].into_iter().enumerate() {
                vm.model(id)?.control().tracer(free)?;
                vm.model(id)?.run("event type=0x26 subtype=0")?;
                wait_owner(vm, id, Owner::Driver).with_context(|| free.to_owned())?;
                tracer::wait_ready(vm, id)?;
                all_right(&read(vm, id, "rate=500 count=200", soon)?)?;
                // What is in memory when it is taken, is read.
                tracer::clear(vm)?;
                let from = vm.model(id)?.control().tracer("")?.total;
                vm.model(id)?.control().tracer("write rate=max count=100")?;
                let model = vm.model(id)?.control();
                wait_until("traces", soon, || Ok(!model.tracer("")?.writing))?;
                model.tracer("flush")?;
                model.tracer("take")?;
                wait_counter(vm, id, COUNTERS, "ownership_lost", round as u64 + 1)?;
                wait_state(vm, id, "state waiting for ownership")?;
                let state = vm.model(id)?.control().tracer("")?;
                let truth = vm.model(id)?.control().traces(from)?;
                let items = tracer::items(vm, id)?;
                all_right(&tracer::judge(items, &truth, state.script.into(), 0))?;
            }
            // Taken, and given back, without a word: found out at the next
            // occasion.
            vm.model(id)?.control().tracer("give")?;
            wait_owner(vm, id, Owner::Driver)?;
            settle(vm, id)?;
            vm.model(id)?.control().tracer("take event=0")?;
            vm.model(id)?.control().tracer("give event=0")?;
            vm.model(id)?.run("event type=0x26 subtype=1")?;
            wait_owner(vm, id, Owner::Driver)?;
            ensure!(counter(vm, id, COUNTERS, "ownership_lost")? == 4);
            // Requests have their distance, however often it is taken.
            let asked = counter(vm, id, COUNTERS, "ownership_asked")?;
            for _ in 0..20 {
                vm.model(id)?.control().tracer("take")?;
                vm.model(id)?.control().tracer("give")?;
            }
            wait_owner(vm, id, Owner::Driver)?;
            ensure!(counter(vm, id, COUNTERS, "ownership_asked")? <= asked + 20);
            tracer::wait_ready(vm, id)?;
            all_right(&read(vm, id, "rate=500 count=200", soon)?)?;
            vm.model(id)?.control().tracer("stop")?;
            Ok(())
        })
    })
}

fn hostile(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let config = "config hostile=300 more=1 raw=100 ver=1 db=large";
        traced(vm, config, "", |vm, id| {
            let soon = vm.soon() * 2;
            wait_state(vm, id, "strings_complete 1")?;
            let traces = if is_long() { 200_000 } else { 3000 };
            // At 3000 a second.
            let time = soon + Duration::from_secs(traces / 1000);
            for seed in 1..=3 {
                vm.model(id)?.control().tracer("stop")?;
                tracer::clear(vm)?;
                let traffic = format!(
                    "rate=3000 count={traces} interleave={} torn=50 cut=20 unreliable=20",
                    seed * 2
                );
                tracer::write(vm, id, &traffic, time)?;
                settle(vm, id)?;
                let lines = debugfs(vm, id, "tracer/traces")?;
                let strange = lines
                    .lines()
                    .find(|line| line.bytes().any(|b| !(b' '..=b'~').contains(&b)));
                ensure!(strange.is_none(), "{strange:?}");
                let parsed = tracer::parse_lines(&lines);
                ensure!(parsed.len() == lines.lines().count() && parsed.len() > 1000);
            }
            let all = counters(vm, id, "tracer/counters")?;
            println!("{all:?}");
            for name in [
                "bad_formats",
                "unknown_strings",
                "orphans",
                "incomplete",
                "others",
                "unreliable_timestamps",
            ] {
                ensure!(all[name] > 0, "{name} is 0: {all:?}");
            }
            // The strings move, and move.
            let before = all["string_loads"];
            for _ in 0..3 {
                vm.model(id)?.control().tracer("update db=small")?;
            }
            wait_until("strings to be read", soon, || {
                let loads = counter(vm, id, "tracer/counters", "string_loads")?;
                let state = debugfs(vm, id, "tracer/state")?;
                Ok(loads > before && state.contains("string_bytes 10"))
            })?;
            // Events of kinds that there are not, and without a reason.
            for subtype in [0, 1, 1, 3, 255] {
                vm.model(id)?
                    .run(&format!("event type=0x26 subtype={subtype} count=20"))?;
            }
            wait_counter(vm, id, "tracer/counters", "strange_events", 40)?;
            settle(vm, id)?;
            alive(vm, id)
        })
    })
}

fn events_are_lost(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        traced(vm, "config", "", |vm, id| {
            tracer::wait_ready(vm, id)?;
            let soon = vm.soon();
            vm.model(id)?.control().tracer("config double_events=5")?;
            all_right(&read(vm, id, "rate=500 count=200", soon)?)?;
            settle(vm, id)?;
            // An event that does not come is missed when the watchdog looks.
            for lost in 1..=3 {
                let missed = counter(vm, id, "tracer/counters", "missed_events")?;
                vm.model(id)?.control().tracer("config lose_events=1")?;
                tracer::clear(vm)?;
                all_right(&read(vm, id, "rate=max count=100", soon)?)
                    .with_context(|| format!("lost event {lost}"))?;
                let now = counter(vm, id, "tracer/counters", "missed_events")?;
                ensure!(now == missed + 1, "{now} missed, {missed} before");
            }
            ensure!(vm.model(id)?.control().tracer("")?.counters.events_lost == 3);
            Ok(())
        })
    })
}

/// CPU time of the tracer's thread, in hundredths of a second.
fn cpu_time(vm: &Vm) -> Result<u64> {
    let script = "for p in /proc/[0-9]*; do read -r name < $p/comm; \
                  case $name in mlx5_rs_tracer*) cat $p/stat;; esac; done";
    let stat = vm.agent().output(&["/bin/sh", "-c", script], vm.soon())?;
    // The name is in brackets; behind it user and system time are the 12th and
    // the 13th word.
    let (_, rest) = stat.rsplit_once(')').context("no thread")?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    Ok(words[11].parse::<u64>()? + words[12].parse::<u64>()?)
}

/// Under overrun it takes its share of a CPU, and no more.
fn keeps_its_share(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        traced(vm, "config", "", |vm, id| {
            tracer::wait_ready(vm, id)?;
            // Nobody listens: the thread reads for the ring alone.
            tracer::listen(vm, false)?;
            let mut shares = Vec::new();
            for percent in [5, 90] {
                let parameter = format!("/sys/module/{DRIVER}/parameters/tracer_cpu_percent");
                vm.agent()
                    .set(&parameter, &percent.to_string(), vm.soon())?;
                vm.model(id)?.control().tracer("write rate=max count=inf")?;
                wait_state(vm, id, "mode polling")?;
                let (before, begin) = (cpu_time(vm)?, std::time::Instant::now());
                std::thread::sleep(Duration::from_secs(5));
                let spent = cpu_time(vm)? - before;
                shares.push(spent as f64 / begin.elapsed().as_secs_f64());
                vm.model(id)?.control().tracer("stop")?;
                settle(vm, id)?;
            }
            println!("{shares:?} % of a CPU");
            // The clock of this has ticks of 4 ms or so.
            ensure!(
                shares[0] < 15.0 && shares[1] < 100.0 && shares[0] < shares[1],
                "{shares:?}"
            );
            tracer::listen(vm, true)
        })
    })
}

/// While nothing is traced nobody wakes up.
fn idle(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        traced(vm, "config", "", |vm, id| {
            tracer::wait_ready(vm, id)?;
            let soon = vm.soon();
            all_right(&read(vm, id, "rate=max count=3000", soon * 2)?)
                .or_else(|_| settle(vm, id))?;
            settle(vm, id)?;
            let wakeups = |vm: &Vm| counter(vm, id, "tracer/counters", "wakeups");
            let (before, commands) = (wakeups(vm)?, vm.model(id)?.status()?.commands);
            let long = if is_long() { 60 } else { 5 };
            std::thread::sleep(Duration::from_secs(long));
            ensure!(wakeups(vm)? == before, "it woke up");
            ensure!(vm.model(id)?.status()?.commands == commands);
            // And for something it does.
            all_right(&read(vm, id, "rate=max count=31", soon)?)?;
            ensure!(wakeups(vm)? > before);
            Ok(())
        })
    })
}

fn is_controlled(lab: &Lab) -> Result<()> {
    const EINVAL: i32 = 22;
    lab.shared(|vm| {
        traced(vm, "config", "tracer=2", |vm, id| {
            let soon = vm.soon();
            wait_state(vm, id, "state stopped")?;
            ensure!(debugfs(vm, id, "tracer/control")?.trim() == "stop");
            ensure!(vm.model(id)?.control().tracer("")?.counters.requests == 0);
            ensure!(control(vm, id, "test")?.is_none());
            wait_state(vm, id, "self_test failed, the tracer is not ours")?;
            for _ in 0..3 {
                ensure!(control(vm, id, "start")?.is_none());
                wait_owner(vm, id, Owner::Driver)?;
                ensure!(debugfs(vm, id, "tracer/control")?.trim() == "start");
                tracer::wait_ready(vm, id)?;
                all_right(&read(vm, id, "rate=500 count=100", soon)?)?;
                ensure!(control(vm, id, "start\n")?.is_none());
                ensure!(control(vm, id, "stop")?.is_none());
                wait_owner(vm, id, Owner::Nobody)?;
                wait_state(vm, id, "state stopped")?;
            }
            let long = "x".repeat(100);
            for word in ["", " ", "begin", "start stop", "\u{fc}", &long] {
                let errno = control(vm, id, word)?;
                // Writing nothing is not writing.
                ensure!(
                    errno == Some(EINVAL) || word.is_empty(),
                    "{word:?}: {errno:?}"
                );
            }
            // Firmware is made to say something.
            ensure!(control(vm, id, "start")?.is_none());
            wait_owner(vm, id, Owner::Driver)?;
            tracer::wait_ready(vm, id)?;
            ensure!(control(vm, id, "test")?.is_none());
            wait_state(vm, id, "self_test passed, 24 messages")?;
            vm.model(id)?
                .run("fault op=ACCESS_REG register=0x402e act=status status=0x3")?;
            ensure!(control(vm, id, "test")?.is_none());
            wait_state(vm, id, "self_test failed, CORE_DUMP was refused")?;
            vm.model(id)?.run("faults clear")
        })
    })
}

/// A device without a tracer, or whose tracer fails in any way, is used
/// without it.
fn goes_without(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        let folder = format!("/sys/kernel/debug/{DRIVER}/{}", vm.bdf(id));
        for config in ["present=0", "present=1 to_memory=0"] {
            vm.model(id)?.control().tracer(&format!("config {config}"))?;
            let mark = vm.mark()?;
            up(vm, id)?;
            vm.wait_log(mark, "no firmware tracer: ", vm.soon())?;
            let names = vm.agent().list(&folder)?;
            ensure!(!names.iter().any(|name| name == "tracer"), "{config}");
            alive(vm, id)?;
            down(vm, id)?;
        }
        vm.model(id)?.control().tracer("config to_memory=1")?;
        // The registers by number, MCAM first; what is made for it.
        let there = [
            "op=ACCESS_REG register=0x907f",
            "op=ACCESS_REG register=0x9040",
            "op=ALLOC_PD",
            "op=CREATE_MKEY",
        ];
        for which in there {
            vm.model(id)?
                .run(&format!("fault {which} act=status status=0x3 syndrome=1"))?;
            let mark = vm.mark()?;
            up(vm, id).with_context(|| which.to_owned())?;
            let line = vm.wait_log(mark, "no firmware tracer: ", vm.soon())?;
            ensure!(line.contains("BAD_PARAM_ERR"), "{line:?}");
            alive(vm, id)?;
            down(vm, id).with_context(|| which.to_owned())?;
            vm.model(id)?.run("faults clear")?;
        }
        // Later it fails by itself.
        for register in [0x9040, 0x9041, 0x9042, 0x9043] {
            let skip = u8::from(register == 0x9040);
            vm.model(id)?.run(&format!(
                "fault op=ACCESS_REG register={register} skip={skip} count=inf act=status status=0x3"
            ))?;
            let mark = vm.mark()?;
            up(vm, id)?;
            vm.wait_log(mark, "firmware tracer: ACCESS_REG", vm.soon())?;
            alive(vm, id)?;
            vm.model(id)?.run("faults clear")?;
            down(vm, id).with_context(|| format!("{register:#x}"))?;
        }
        Ok(())
    })
}

/// The device falls silent, vanishes or dies at each command, those of the
/// tracer among them, whose number depends on when its thread comes to run.
fn outages(lab: &Lab) -> Result<()> {
    /// So many commands a bring-up has.
    const MOST: usize = 100;
    lab.shared(|vm| {
        let timeout = 400 * vm.manifest().kernel.slowness();
        load(vm, &format!("cmd_timeout_ms={timeout}"))?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        wait_state(vm, id, "strings_complete 1")?;
        wait_owner(vm, id, Owner::Driver)?;
        down(vm, id)?;
        let outages = [
            ("ones", "ones off"),
            ("vanish", "vanish off"),
            ("fatal", "health clear"),
        ];
        // The first commands have a test of their own.
        let step = if is_long() { 1 } else { 7 };
        for (number, at) in (25..MOST).step_by(step).enumerate() {
            let (act, mend) = outages[number % outages.len()];
            let what = || format!("{act} at command {at}");
            vm.model(id)?
                .run(&format!("fault op=* skip={at} count=1 act={act}"))?;
            let bound = vm.bind(id, DRIVER, soon(vm)).is_ok();
            if bound {
                // It may strike later, or on the way down.
                vm.unbind(id, DRIVER, soon(vm)).with_context(what)?;
            }
            ensure!(vm.driver_of(id)?.is_none());
            let model = vm.model(id)?;
            model.run("faults clear")?;
            model.run(mend)?;
            if act == "vanish" {
                vm.renew(id)?;
            }
            vm.model(id)?.check().with_context(what)?;
            up(vm, id).with_context(what)?;
            alive(vm, id).with_context(what)?;
            wait_owner(vm, id, Owner::Driver).with_context(what)?;
            down(vm, id).with_context(what)?;
        }
        vm.hunt_leaks();
        Ok(())
    })
}

/// Whatever happens to the device happens while it traces as fast as it can.
fn life_goes_on(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let timeout = 1000 * vm.manifest().kernel.slowness();
        load(vm, &format!("cmd_timeout_ms={timeout}"))?;
        let id = vm.add_device(&[])?;
        let soon = vm.scaled(BRING_UP);
        let storm = |vm: &mut Vm| -> Result<()> {
            wait_owner(vm, id, Owner::Driver)?;
            vm.model(id)?
                .control()
                .tracer("write rate=max count=inf torn=20 interleave=4")?;
            Ok(())
        };
        up(vm, id)?;
        for round in 0..if is_long() { 20 } else { 3 } {
            storm(vm)?;
            vm.agent().set(&vm.sysfs(id, "reset"), "1", soon)?;
            alive(vm, id).with_context(|| format!("reset {round}"))?;
            storm(vm)?;
            let mark = vm.mark()?;
            vm.model(id)?.run("fatal reset=500")?;
            vm.wait_log(mark, "health recovery succeeded", soon)?;
            alive(vm, id).with_context(|| format!("recovery {round}"))?;
            storm(vm)?;
            down(vm, id).with_context(|| format!("unbind {round}"))?;
            up(vm, id)?;
        }
        tracer::listen(vm, true)?;
        tracer::wait_ready(vm, id)?;
        all_right(&read(vm, id, "rate=500 count=200", soon)?)?;
        tracer::listen(vm, false)?;
        down(vm, id)?;
        vm.hunt_leaks();
        Ok(())
    })
}

/// Two drivers have an event of the same name: each can be switched on.
fn beside_upstream(lab: &Lab) -> Result<()> {
    const PEER: &str = "mlx5_core";
    // Two of each.
    lab.shared_with(4, |vm| {
        for first in [DRIVER, PEER] {
            vm.autoprobe(false)?;
            if first == PEER {
                vm.modprobe(PEER, soon(vm))?;
            }
            load(vm, "")?;
            if first == DRIVER {
                vm.modprobe(PEER, soon(vm))?;
            }
            let mine = vm.add_device(&[])?;
            let theirs = vm.add_device(&[])?;
            up(vm, mine)?;
            vm.bind(theirs, PEER, soon(vm))?;
            tracer::listen(vm, true)?;
            for id in [mine, theirs] {
                tracer::wait_ready(vm, id)?;
            }
            all_right(&read(vm, mine, "rate=500 count=100", vm.soon())?)?;
            let t = tracer::count(vm, theirs, "rate=500 count=100", vm.soon())?;
            ensure!(t.missing() == 0 && t.wrong() == 0, "{t:?}");
            tracer::listen(vm, false)?;
            vm.unbind(theirs, PEER, soon(vm))?;
            down(vm, mine)?;
            vm.rmmod(PEER, soon(vm))?;
            vm.rmmod(DRIVER, soon(vm))?;
        }
        Ok(())
    })
}

fn soon(vm: &Vm) -> Duration {
    vm.scaled(BRING_UP)
}

/// The stock tool prints each trace whose time is greater than all before
/// (field case C33).
fn mstfwtrace(lab: &Lab) -> Result<()> {
    let boot = Boot {
        hardware: Hardware {
            ports: 1,
            ..Hardware::default()
        },
        root: true,
        ..Boot::default()
    };
    with(Vm::boot(&lab.manifest, lab.test, &boot)?, |vm| {
        traced(vm, "config", "", |vm, id| {
            tracer::wait_ready(vm, id)?;
            all_right(&read(vm, id, "rate=500 count=100", vm.soon())?)?;
            crate::tracer::check_mstfwtrace(vm, id)
        })
    })
}
