// SPDX-License-Identifier: GPL-2.0
//! The watchdog: what it sees, how soon, what it says, and how a device that
//! failed comes back.

use crate::driver::{
    alive, counter, counters, debugfs, down, load_quiet, query, up, wait_counter, BRING_UP,
};
use crate::{is_long, Lab, Test, KASAN, TEST};
use anyhow::{ensure, Context, Result};
use mlx5_agent::proto::Record;
use mlx5_vm::agent::Pending;
use mlx5_vm::process::wait_until;
use mlx5_vm::stall::{Load, Trials};
use mlx5_vm::vm::{DeviceId, Mark, Vm, DRIVER};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    Test::new("health::stall_is_reported_in_time", TEST, stall_in_time),
    Test::new("health::no_false_alarm", TEST, no_false_alarm),
    Test::new("health::slow_counter", TEST, slow_counter),
    Test::new("health::syndromes", TEST, syndromes),
    Test::new("health::severities", TEST, severities),
    Test::new("health::left_over_report", TEST, left_over_report),
    Test::new("health::sensors", TEST, sensors).long_on(KASAN),
    Test::new("health::parameters", TEST, parameters),
    Test::new("health::as_mlx5_core", TEST, as_mlx5_core),
    Test::new("health::dies_during_bring_up", TEST, dies_during_bring_up).long_on(KASAN),
    Test::new("health::resets", TEST, resets).long_on(KASAN),
    Test::new("health::recovery_fails", TEST, recovery_fails).long_on(KASAN),
    Test::new("health::no_recovery_loop", TEST, no_recovery_loop),
    Test::new("health::recovery_gives_way", TEST, recovery_gives_way).long_on(KASAN),
    Test::new("health::many_failures", TEST, many_failures).long_on(KASAN),
];

/// The bound from the counter's stop to the report (the issue's, M4.5).
const BOUND: Duration = Duration::from_millis(400);

/// Any line that says that something is wrong with the device's health.
const ALARM: &str = "compromised|Health issue|Fatal error|firmware reports a problem";

/// Loads the driver with these parameters and brings a device up.
fn ready(vm: &mut Vm, params: &str) -> Result<DeviceId> {
    load_quiet(vm, params)?;
    let id = vm.add_device(&[])?;
    up(vm, id)?;
    Ok(id)
}

/// Reads of the health buffer so far.
fn buffer_reads(vm: &mut Vm, id: DeviceId) -> Result<u64> {
    Ok(vm.model(id)?.status()?.accesses.health_buffer_reads)
}

fn no_line(vm: &mut Vm, mark: Mark, pattern: &str) -> Result<()> {
    let pattern = regex::Regex::new(pattern)?;
    let lines = vm.log_since(mark)?;
    let found = lines.iter().find(|line| pattern.is_match(line));
    ensure!(found.is_none(), "{found:?}");
    Ok(())
}

/// Waits until the driver's lifecycle is in a state.
fn wait_state(vm: &Vm, id: DeviceId, state: &str, time: Duration) -> Result<()> {
    let want = format!("state {state}\n");
    let mut last = String::new();
    wait_until(&format!("the device to be {state}"), time, || {
        last = debugfs(vm, id, "lifecycle")? + "\n";
        Ok(last.starts_with(&want))
    })
    .with_context(|| last)
}

/// A command that the device does not answer.
fn hanging_command(vm: &mut Vm, id: DeviceId) -> Result<Pending> {
    vm.model(id)?
        .run("fault op=QUERY_ADAPTER count=1 act=never")?;
    let path = format!("/sys/kernel/debug/{DRIVER}/{}/query_adapter", vm.bdf(id));
    let limit = vm.soon() * 8;
    let command = vm.agent().spawn(&["cat", &path], &[], limit)?;
    let soon = vm.soon();
    let model = vm.model(id)?;
    wait_until("a command in flight", soon, || {
        Ok(!model.status()?.in_flight.is_empty())
    })?;
    Ok(command)
}

/// The command failed, and long before its time.
fn has_failed(vm: &Vm, command: &Pending, expected: &str) -> Result<()> {
    let answer = command.finished(vm.soon())?;
    let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
    ensure!(answer.contains(expected), "the command: {answer:?}");
    Ok(())
}

/// A command hangs, programs spin on all CPUs, all event queues are stormed
/// at, and the counter stops: it is in the log within 400 ms. The health
/// buffer is not read: firmware has said nothing.
fn stall_in_time(lab: &Lab) -> Result<()> {
    let trials = if is_long() { 100 } else { 8 };
    lab.shared(|vm| {
        let id = ready(vm, "")?;
        let reads = buffer_reads(vm, id)?;
        let mut run = Trials::start(vm, id, Duration::from_secs(60 + 10 * trials))?;
        for n in 0..trials {
            run.trial(vm, id).with_context(|| format!("trial {n}"))?;
        }
        let (times, rounds) = run.end(vm)?;
        println!("stall to report: {times} ({rounds} rounds of the storm)");
        println!("{}", debugfs(vm, id, "health")?);
        ensure!(
            times.longest() <= BOUND,
            "{times}, at most {BOUND:?} are allowed"
        );
        ensure!(rounds > trials, "there was no storm: {rounds} rounds");
        let seen = counters(vm, id, "health")?;
        ensure!(
            seen.get("stalls") == Some(&trials) && seen.get("resumes") == Some(&trials),
            "{seen:?}"
        );
        let more = buffer_reads(vm, id)? - reads;
        ensure!(more == 0, "the health buffer was read {more} times");
        wait_state(vm, id, "up", vm.soon())?;
        alive(vm, id)?;
        down(vm, id)
    })
}

/// The same load, and a counter that moves, wraps and jumps: nothing is said.
fn no_false_alarm(lab: &Lab) -> Result<()> {
    let time = Duration::from_secs(if is_long() { 600 } else { 12 });
    lab.shared(|vm| {
        let id = ready(vm, "")?;
        let mark = vm.mark()?;
        let reads = buffer_reads(vm, id)?;
        let before = counter(vm, id, "health", "reads")?;
        let load = Load::start(vm, id, time * 2)?;
        let start = Instant::now();
        let mut wraps = 0;
        while start.elapsed() < time {
            // It is at 0 again within a second, and stays near it.
            vm.model(id)?.run("health counter=jump value=0xffffe0")?;
            wraps += 1;
            let until = Instant::now() + Duration::from_secs(1);
            while Instant::now() < until {
                query(vm, id)?;
            }
        }
        let elapsed = start.elapsed();
        load.end(vm)?;
        no_line(vm, mark, ALARM)?;
        let seen = counters(vm, id, "health")?;
        for name in ["stalls", "syndromes", "fatals", "misses"] {
            ensure!(seen.get(name) == Some(&0), "{name}: {seen:?}");
        }
        // The period was kept, most of the time.
        let taken = seen.get("reads").copied().unwrap_or(0) - before;
        let due = elapsed.as_millis() as u64 / 100;
        println!(
            "{taken} of {due} reads in {elapsed:?} of load, {wraps} wraps, longest gap {} ms",
            seen.get("longest_gap_us").copied().unwrap_or(0) / 1000
        );
        ensure!(
            taken > due * 9 / 10,
            "{taken} reads in {elapsed:?}, {due} were due"
        );
        ensure!(buffer_reads(vm, id)? == reads, "the health buffer was read");
        down(vm, id)
    })
}

/// A counter that moves rarely, but moves, is no stall; at the threshold it
/// is.
fn slow_counter(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let id = ready(vm, "")?;
        let mark = vm.mark()?;
        vm.model(id)?.run("health period=200")?;
        let reads = counter(vm, id, "health", "reads")?;
        wait_until("thirty reads", vm.soon(), || {
            Ok(counter(vm, id, "health", "reads")? > reads + 30)
        })?;
        no_line(vm, mark, ALARM)?;
        vm.model(id)?.run("health period=1500")?;
        vm.wait_log(mark, "reached miss count", vm.soon())?;
        vm.wait_log(mark, "health counter moves again, after", vm.soon())?;
        ensure!(counter(vm, id, "health", "fatals")? == 0);
        wait_state(vm, id, "up", vm.soon())?;
        down(vm, id)
    })
}

/// What upstream prints for each syndrome (hardware.md 1.1).
const SYNDROMES: [(u8, &str); 14] = [
    (0x01, "firmware internal error"),
    (0x07, "irisc not responding"),
    (0x08, "unrecoverable hardware error"),
    (0x09, "firmware CRC error"),
    (0x0a, "ICM fetch PCI error"),
    (0x0b, "HW fatal error"),
    (0x0c, "async EQ buffer overrun"),
    (0x0d, "EQ error"),
    (0x0e, "Invalid EQ referenced"),
    (0x0f, "FFSER error"),
    (0x10, "High temperature"),
    (0x12, "ICM fetch PCI data poisoned error"),
    (0x13, "Trust lockdown error"),
    (0x42, "unrecognized error"),
];

/// Sets the whole health buffer. With `synd` last, beside the counter too:
/// that is what the watchdog looks at.
fn fill_buffer(vm: &mut Vm, id: DeviceId, synd: u8) -> Result<()> {
    let model = vm.model(id)?;
    for (field, value) in [
        ("assert_var0", 0x1111_0000_u32),
        ("assert_var1", 0x1111_0001),
        ("assert_var2", 0x1111_0002),
        ("assert_var3", 0x1111_0003),
        ("assert_var4", 0x1111_0004),
        ("assert_var5", 0x1111_0005),
        ("assert_existptr", 0x2222_0000),
        ("assert_callra", 0x3333_0000),
        ("time", 1_700_000_000),
        ("hw_id", 0x21e),
        ("irisc_index", 9),
        ("ext_synd", 0x40d0),
    ] {
        model.run(&format!("initseg field={field} value={value}"))?;
    }
    model.run(&format!("health syndrome={synd}"))
}

/// The lines of such a buffer.
fn block(synd: u8, text: &str, severity: u8, name: &str) -> Vec<String> {
    let mut lines = vec![format!(
        "Health issue observed, {text}, severity({severity}) {name}:"
    )];
    lines.extend((0..6).map(|i| format!("assert_var[{i}] 0x1111000{i}")));
    lines.extend([
        "assert_exit_ptr 0x22220000".into(),
        "assert_callra 0x33330000".into(),
        "fw_ver 28.43.1000".into(),
        "time 1700000000".into(),
        "hw_id 0x0000021e".into(),
        "rfr 0".into(),
        "crr 0".into(),
        format!("severity {severity} ({name})"),
        "irisc_index 9".into(),
        format!("synd {synd:#x}: {text}"),
        "ext_synd 0x40d0".into(),
        "raw fw_ver 0x1c2b03e8".into(),
    ]);
    lines
}

/// The records of a device after a mark, without what is before the text.
fn own_records(vm: &mut Vm, id: DeviceId, mark: Mark) -> Result<Vec<Record>> {
    let prefix = format!("{DRIVER} {}: ", vm.bdf(id));
    let records = vm.records_since(mark)?;
    Ok(records
        .iter()
        .filter_map(|record| {
            let text = record.text.strip_prefix(&prefix)?;
            Some(Record {
                text: text.to_owned(),
                ..record.clone()
            })
        })
        .collect())
}

/// Each syndrome is reported in full, once, without a stall, and the buffer
/// is read once for it. The device stays in use.
fn syndromes(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let id = ready(vm, "")?;
        for (synd, text) in SYNDROMES {
            let what = || format!("syndrome {synd:#x}");
            let reads = buffer_reads(vm, id)?;
            let mark = vm.mark()?;
            fill_buffer(vm, id, synd)?;
            vm.wait_log(mark, "raw fw_ver", vm.soon())
                .with_context(what)?;
            let seen = counter(vm, id, "health", "reads")?;
            wait_until("five more reads", vm.soon(), || {
                Ok(counter(vm, id, "health", "reads")? >= seen + 5)
            })?;
            let lines: Vec<String> = own_records(vm, id, mark)?
                .into_iter()
                .map(|record| record.text)
                .collect();
            let first = format!("firmware reports a problem, syndrome {synd:#x}: {text}");
            let mut want = vec![first];
            want.extend(block(synd, text, 3, "ERROR"));
            ensure!(lines == want, "{}: {lines:#?}\nexpected {want:#?}", what());
            let more = buffer_reads(vm, id)? - reads;
            ensure!(more == 16, "{}: the buffer was read {more} times", what());
            // What people look at later.
            let shown = debugfs(vm, id, "health")?;
            ensure!(
                shown.contains(&format!("\nlast synd {synd:#x}: {text}\n"))
                    && shown.contains("\nlast ext_synd 0x40d0\n")
                    && shown.contains(&format!("\ndescription {text}\n")),
                "{}: {shown}",
                what()
            );
        }
        wait_state(vm, id, "up", vm.soon())?;
        alive(vm, id)?;
        vm.model(id)?.run("health clear")?;
        down(vm, id)
    })
}

/// The severity is the level in the log.
fn severities(lab: &Lab) -> Result<()> {
    const NAMES: [&str; 8] = [
        "EMERGENCY",
        "ALERT",
        "CRITICAL",
        "ERROR",
        "WARNING",
        "NOTICE",
        "INFO",
        "DEBUG",
    ];
    lab.shared(|vm| {
        let id = ready(vm, "")?;
        for (severity, name) in (0_u8..).zip(NAMES) {
            // So that it is a new one.
            vm.model(id)?.run("health syndrome=0")?;
            wait_counter(vm, id, "health", "syndrome", 0)?;
            let mark = vm.mark()?;
            vm.model(id)?
                .run(&format!("health severity={severity} syndrome=0x10"))?;
            vm.wait_log(mark, "raw fw_ver", vm.soon())?;
            // Nothing that is told like this is lost: debug lines are info.
            let level = severity.min(6);
            let records = own_records(vm, id, mark)?;
            let heading =
                format!("Health issue observed, High temperature, severity({severity}) {name}:");
            let start = records.iter().position(|record| record.text == heading);
            let start = start.with_context(|| format!("no {heading:?}: {records:#?}"))?;
            ensure!(
                records[start..].iter().all(|record| record.level == level),
                "severity {severity}: {records:#?}"
            );
        }
        vm.model(id)?.run("health clear")?;
        down(vm, id)
    })
}

/// What a crash has left is reported before anything is sent to the device,
/// and is no news after that; another crash is.
fn left_over_report(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load_quiet(vm, "")?;
        let id = vm.add_device(&[])?;
        fill_buffer(vm, id, 8)?;
        // rfr of an old crash is old as well.
        vm.model(id)?.run("health rfr=1 severity=2")?;

        // The first command fails: the report comes all the same, before it.
        vm.model(id)?
            .run("fault op=ENABLE_HCA act=status status=BAD_PARAM syndrome=1")?;
        let reads = buffer_reads(vm, id)?;
        let mark = vm.mark()?;
        ensure!(vm.bind(id, DRIVER, vm.scaled(BRING_UP)).is_err());
        let lines = vm.log_since(mark)?;
        let at = |text: &str| {
            let found = lines.iter().position(|line| line.contains(text));
            found.with_context(|| format!("no {text:?}: {lines:#?}"))
        };
        let report = at("a failure from before is in the health buffer, syndrome 0x8")?;
        ensure!(report < at("assert_exit_ptr 0x22220000")?);
        ensure!(at("raw fw_ver")? < at("bring-up failed at enable HCA")?);
        let more = buffer_reads(vm, id)? - reads;
        ensure!(more == 16, "the buffer was read {more} times");

        let mark = vm.mark()?;
        up(vm, id)?;
        vm.wait_log(mark, "a failure from before", vm.soon())?;
        // Not again, and nothing follows from it.
        let mark = vm.mark()?;
        wait_until("ten reads", vm.soon(), || {
            Ok(counter(vm, id, "health", "reads")? > 10)
        })?;
        no_line(vm, mark, ALARM)?;
        wait_state(vm, id, "up", vm.soon())?;
        alive(vm, id)?;

        // A reset of the function leaves it there: it is known.
        let mark = vm.mark()?;
        let reset = vm.sysfs(id, "reset");
        vm.agent().set(&reset, "1", vm.scaled(BRING_UP))?;
        vm.wait_log(mark, "still holds the failure that was reported", vm.soon())?;
        no_line(vm, mark, "assert_")?;

        let mark = vm.mark()?;
        vm.model(id)?.run("health syndrome=0x10 rfr=0")?;
        vm.wait_log(mark, "firmware reports a problem, syndrome 0x10", vm.soon())?;
        vm.model(id)?.run("health clear")?;
        down(vm, id)?;

        // Nothing is left: nothing is read.
        let reads = buffer_reads(vm, id)?;
        up(vm, id)?;
        down(vm, id)?;
        ensure!(buffer_reads(vm, id)? == reads, "the health buffer was read");
        Ok(())
    })
}

/// Every way to fail ends in the error state: whoever waits fails at once,
/// and the device comes back.
fn sensors(lab: &Lab) -> Result<()> {
    struct Case {
        fail: &'static str,
        mend: &'static str,
        line: &'static str,
        waiter: &'static str,
        /// Whether the health buffer is read.
        buffer: bool,
    }
    const DOWN: &str = "the command interface is down";
    const CASES: [Case; 7] = [
        Case {
            fail: "ones on",
            mend: "ones off",
            line: "Fatal error 1 detected: the device does not answer",
            waiter: "every read is all ones",
            buffer: false,
        },
        Case {
            fail: "fatal nic=1 syndrome=0 rfr=0",
            mend: "health clear",
            line: "Fatal error 3 detected: the NIC interface is disabled",
            waiter: DOWN,
            buffer: false,
        },
        Case {
            fail: "fatal nic=7",
            mend: "health clear",
            line: "Fatal error 4 detected: .* syndrome 0x1: firmware internal error",
            waiter: DOWN,
            buffer: true,
        },
        Case {
            // The counter goes on: firmware itself asks.
            fail: "health syndrome=0x13 rfr=1",
            mend: "health clear",
            line: "Fatal error 5 detected: firmware asks for a reset, syndrome 0x13",
            waiter: DOWN,
            buffer: true,
        },
        Case {
            fail: "fatal nic=0 rfr=1 syndrome=8",
            mend: "",
            line: "Fatal error 5 detected: .* syndrome 0x8: unrecoverable hardware error",
            waiter: DOWN,
            buffer: true,
        },
        Case {
            // Frontera (field case C24).
            fail: "fatal nic=0 rfr=0 syndrome=7 ext_syndrome=0x40d0",
            mend: "",
            line: "Fatal error 6 detected: .* syndrome 0x7: irisc not responding",
            waiter: DOWN,
            buffer: true,
        },
        Case {
            fail: "fatal nic=0 rfr=0 syndrome=0",
            mend: "",
            line: "Fatal error 7 detected: firmware has been standing still",
            waiter: DOWN,
            buffer: false,
        },
    ];
    lab.shared(|vm| {
        vm.hunt_leaks();
        load_quiet(vm, "health_dead_ms=1500")?;
        let id = vm.add_device(&[])?;
        for case in CASES {
            let what = || case.fail;
            up(vm, id).with_context(what)?;
            let command = hanging_command(vm, id).with_context(what)?;
            let status = vm.model(id)?.status()?;
            let mark = vm.mark()?;
            vm.model(id)?.run(case.fail)?;
            let soon = vm.soon();
            vm.wait_log(mark, case.line, soon).with_context(what)?;
            has_failed(vm, &command, case.waiter).with_context(what)?;
            vm.wait_log(mark, "starting health recovery flow", soon)
                .with_context(what)?;
            let reads = buffer_reads(vm, id)? - status.accesses.health_buffer_reads;
            ensure!((reads != 0) == case.buffer, "{}: {reads} reads", what());
            vm.model(id)?.control().clear_faults()?;
            if !case.mend.is_empty() {
                vm.model(id)?.run(case.mend)?;
            }
            // Resets where firmware needs one.
            vm.wait_log(mark, "health recovery succeeded", vm.scaled(BRING_UP))
                .with_context(what)?;
            wait_state(vm, id, "up", soon).with_context(what)?;
            alive(vm, id).with_context(what)?;
            let resets = vm.model(id)?.status()?.software_resets - status.software_resets;
            let needed = u64::from(case.mend.is_empty());
            ensure!(
                resets == needed,
                "{}: {resets} software resets, expected {needed}",
                what()
            );
            ensure!(counter(vm, id, "lifecycle", "recoveries")? == 1);
            ensure!(counter(vm, id, "lifecycle", "bring_ups")? == 2);
            down(vm, id).with_context(what)?;
        }
        Ok(())
    })
}

/// Parameters change while the watchdog runs; nonsense is refused.
fn parameters(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let id = ready(vm, "health_interval_ms=50 health_misses=5")?;
        let soon = vm.soon();
        let path = |name: &str| format!("/sys/module/{DRIVER}/parameters/{name}");
        let set = |vm: &Vm, name: &str, value: &str| vm.agent().set(&path(name), value, soon);
        ensure!(vm.agent().text(&path("health_interval_ms"))? == "50");
        ensure!(vm.agent().text(&path("health_misses"))? == "5");
        for (name, value) in [
            ("health_interval_ms", "9"),
            ("health_interval_ms", "10001"),
            ("health_interval_ms", "x"),
            ("health_interval_ms", "-1"),
            ("health_misses", "0"),
            ("health_misses", "1001"),
            ("log_as_mlx5_core", "2"),
            ("health_dead_ms", "3600001"),
        ] {
            ensure!(set(vm, name, value).is_err(), "{name}={value} was taken");
        }
        let reads_in_a_second = |vm: &Vm| -> Result<u64> {
            let before = counter(vm, id, "health", "reads")?;
            let start = Instant::now();
            wait_until("a second", soon, || {
                Ok(start.elapsed() >= Duration::from_secs(1))
            })?;
            Ok(counter(vm, id, "health", "reads")? - before)
        };
        // From slow to fast at once, not after the slow interval.
        set(vm, "health_interval_ms", "10000")?;
        ensure!(reads_in_a_second(vm)? <= 1);
        set(vm, "health_interval_ms", "20")?;
        let many = reads_in_a_second(vm)?;
        ensure!(many >= 20, "{many} reads in a second");
        ensure!(debugfs(vm, id, "health")?.contains("\ninterval_ms 20\n"));

        set(vm, "health_misses", "100")?;
        let mark = vm.mark()?;
        vm.model(id)?.run("health counter=stop")?;
        wait_until("twenty misses", soon, || {
            Ok(counter(vm, id, "health", "misses")? >= 20)
        })?;
        no_line(vm, mark, ALARM)?;
        set(vm, "health_misses", "3")?;
        vm.wait_log(mark, "reached miss count", soon)?;
        vm.model(id)?.run("health counter=run")?;
        vm.wait_log(mark, "health counter moves again", soon)?;
        down(vm, id)
    })
}

/// Monitors that know mlx5_core only can be served (field case C27).
fn as_mlx5_core(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let timeout = 400 * vm.manifest().kernel.slowness();
        load_quiet(vm, &format!("cmd_timeout_ms={timeout}"))?;
        let id = vm.add_device(&[])?;
        let bdf = vm.bdf(id);
        // Failures of commands, while it is off and on. The line about the time is always there.
        for on in [false, true] {
            let path = format!("/sys/module/{DRIVER}/parameters/log_as_mlx5_core");
            vm.agent()
                .set(&path, if on { "1" } else { "0" }, vm.soon())?;
            let mark = vm.mark()?;
            vm.model(id)?
                .run("fault op=ACCESS_REG act=status status=BAD_PARAM syndrome=0x1234")?;
            ensure!(vm.bind(id, DRIVER, vm.scaled(BRING_UP)).is_err());
            vm.model(id)?.control().clear_faults()?;
            up(vm, id)?;
            vm.model(id)?.run("fault op=QUERY_ADAPTER act=never")?;
            query(vm, id)?;
            vm.model(id)?.control().clear_faults()?;
            let lines = vm.log_since(mark)?;
            for (name, text, wanted) in [
                (
                    "mlx5_core",
                    "ACCESS_REG(0x805) op_mod(0x1) failed, status",
                    on,
                ),
                (
                    "mlx5_core",
                    "QUERY_ADAPTER(0x101) timeout. Will cause a leak of a command resource",
                    on,
                ),
                (
                    DRIVER,
                    "QUERY_ADAPTER(0x101) timeout. Will cause a leak of a command resource",
                    true,
                ),
            ] {
                let start = format!("{name} {bdf}: {text}");
                let found = lines.iter().any(|line| line.starts_with(&start));
                ensure!(found == wanted, "{start:?}: {lines:#?}");
            }
            down(vm, id)?;
        }
        up(vm, id)?;
        let path = format!("/sys/module/{DRIVER}/parameters/log_as_mlx5_core");
        for on in [false, true] {
            vm.agent()
                .set(&path, if on { "1" } else { "0" }, vm.soon())?;
            for (fail, end, texts) in [
                (
                    "health counter=stop",
                    "health counter=run",
                    &["device's health compromised - reached miss count"][..],
                ),
                (
                    "health syndrome=0x8",
                    "health clear",
                    &[
                        "Health issue observed, unrecoverable hardware error, severity",
                        "synd 0x8: unrecoverable hardware error",
                    ],
                ),
                (
                    "health syndrome=0x10",
                    "health clear",
                    &["synd 0x10: High temperature"],
                ),
            ] {
                let mark = vm.mark()?;
                vm.model(id)?.run(fail)?;
                let last = texts.last().copied().unwrap_or_default();
                vm.wait_log(mark, &regex::escape(last), vm.soon())?;
                vm.model(id)?.run(end)?;
                wait_counter(vm, id, "health", "misses", 0)?;
                wait_counter(vm, id, "health", "syndrome", 0)?;
                let lines = vm.log_since(mark)?;
                for text in texts {
                    for (name, wanted) in [(DRIVER, true), ("mlx5_core", on)] {
                        let start = format!("{name} {bdf}: {text}");
                        let found = lines.iter().any(|line| line.starts_with(&start));
                        ensure!(found == wanted, "{start:?}: {lines:#?}");
                    }
                }
            }
        }
        down(vm, id)
    })
}

/// Firmware that dies while it is brought up: the command that waits for it
/// fails at once, not after its minute.
fn dies_during_bring_up(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load_quiet(vm, "")?;
        let id = vm.add_device(&[])?;
        for op in ["QUERY_ISSI", "INIT_HCA", "CREATE_EQ"] {
            vm.model(id)?.run(&format!("fault op={op} act=fatal"))?;
            let mark = vm.mark()?;
            let start = Instant::now();
            ensure!(vm.bind(id, DRIVER, vm.scaled(BRING_UP)).is_err());
            ensure!(
                start.elapsed() < vm.soon(),
                "{op}: it took {:?}",
                start.elapsed()
            );
            vm.wait_log(mark, "Fatal error 4 detected", vm.soon())?;
            vm.wait_log(
                mark,
                &format!("bring-up failed at .*{op}.*interface is down"),
                vm.soon(),
            )?;
            // Nobody recovers what did not come up.
            no_line(vm, mark, "recovery")?;
            crate::driver::gone(vm, id)?;
            vm.model(id)?.run("health clear")?;
            up(vm, id)?;
            down(vm, id)?;
        }
        // And while it is taken down.
        for op in ["DESTROY_EQ", "TEARDOWN_HCA", "MANAGE_PAGES"] {
            up(vm, id)?;
            vm.model(id)?.run(&format!("fault op={op} act=fatal"))?;
            let mark = vm.mark()?;
            let start = Instant::now();
            vm.unbind(id, DRIVER, vm.scaled(BRING_UP))?;
            // Sooner than a command's time on the way down.
            let limit = vm.scaled(Duration::from_millis(2500));
            ensure!(start.elapsed() < limit, "{op}: {:?}", start.elapsed());
            vm.wait_log(mark, "Fatal error 4 detected", vm.soon())?;
            no_line(vm, mark, "recovery")?;
            vm.model(id)?.run("health clear")?;
        }
        Ok(())
    })
}

/// Software resets that take their time, in any part, or that somebody else
/// has begun.
fn resets(lab: &Lab) -> Result<()> {
    let cases: [(&[&str], &str, u64); 5] = [
        (&[], "fatal nic=0", 1),
        (&["nic_interface delay=1000"], "fatal nic=0", 1),
        (
            &["software_reset silent=1500 initializing=1500"],
            "fatal nic=0",
            1,
        ),
        // Another function has reset it: this one waits.
        (&[], "fatal nic=7 reset=1000", 0),
        // It is over before the driver looks.
        (&[], "fatal nic=1 reset=1", 0),
    ];
    lab.shared(|vm| {
        load_quiet(vm, "")?;
        let id = vm.add_device(&[])?;
        for (setup, fail, resets) in cases {
            let what = || format!("{setup:?}, {fail}");
            up(vm, id).with_context(what)?;
            let before = vm.model(id)?.status()?;
            for line in setup {
                vm.model(id)?.run(line)?;
            }
            let mark = vm.mark()?;
            vm.model(id)?.run(fail)?;
            vm.wait_log(mark, "health recovery succeeded", vm.scaled(BRING_UP))
                .with_context(what)?;
            alive(vm, id).with_context(what)?;
            let after = vm.model(id)?.status()?;
            let done = after.software_resets - before.software_resets;
            ensure!(done == resets, "{}: {done} resets by the driver", what());
            ensure!(
                after.resets > before.resets,
                "{}: the function was not reset",
                what()
            );
            vm.model(id)?.run("nic_interface delay=0")?;
            vm.model(id)?.run("software_reset")?;
            down(vm, id).with_context(what)?;
        }
        // A virtual function cannot reset firmware, and does not try.
        let vf = vm.add_device(&["--vf"])?;
        up(vm, vf)?;
        let mark = vm.mark()?;
        vm.model(vf)?.run("fatal nic=0")?;
        vm.wait_log(mark, "firmware cannot be reset from here", vm.soon())?;
        // Its physical one does.
        vm.model(vf)?.run("health clear")?;
        vm.wait_log(mark, "health recovery succeeded", vm.scaled(BRING_UP))?;
        alive(vm, vf)?;
        ensure!(vm.model(vf)?.status()?.software_resets == 0);
        down(vm, vf)
    })
}

/// Recovery that does not succeed leaves a device that is bound, in the error
/// state and silent, and that a reset brings back.
fn recovery_fails(lab: &Lab) -> Result<()> {
    let cases: [(&str, &str, &str); 3] = [
        (
            // The reset never ends.
            "nic_interface delay=never",
            "fatal nic=0",
            "NIC IFC still .* after 2000ms",
        ),
        (
            // It ends, and firmware is as dead as before.
            "software_reset revives=0",
            "fatal nic=0",
            "health counter does not move",
        ),
        (
            // It comes back, and a command of bring-up fails.
            "fault op=INIT_HCA act=status status=INT_ERR syndrome=0x77",
            "fatal nic=0",
            "bring-up failed at init HCA: .*0x77",
        ),
    ];
    lab.shared(|vm| {
        load_quiet(vm, "")?;
        let id = vm.add_device(&[])?;
        for (setup, fail, line) in cases {
            let what = || setup;
            up(vm, id).with_context(what)?;
            vm.model(id)?.run(setup)?;
            let mark = vm.mark()?;
            vm.model(id)?.run(fail)?;
            vm.wait_log(mark, line, vm.soon()).with_context(what)?;
            vm.wait_log(mark, "health recovery failed", vm.soon())
                .with_context(what)?;
            wait_state(vm, id, "error", vm.soon()).with_context(what)?;
            ensure!(counter(vm, id, "lifecycle", "failed_recoveries")? == 1);
            ensure!(vm.driver_of(id)?.as_deref() == Some(DRIVER));
            // Nothing more is sent, and nobody tries again.
            let before = vm.model(id)?.status()?;
            ensure!(!before.bus_master, "{}: bus master is on", what());
            let start = Instant::now();
            wait_until("a second", vm.soon(), || {
                Ok(start.elapsed() > Duration::from_secs(1))
            })?;
            let after = vm.model(id)?.status()?;
            ensure!(after.mmio_writes == before.mmio_writes, "{}", what());
            vm.model(id)?.run("nic_interface delay=0")?;
            vm.model(id)?.run("software_reset")?;
            vm.model(id)?.run("health clear")?;
            let reset = vm.sysfs(id, "reset");
            vm.agent().set(&reset, "1", vm.scaled(BRING_UP))?;
            wait_state(vm, id, "up", vm.soon()).with_context(what)?;
            alive(vm, id).with_context(what)?;
            down(vm, id).with_context(what)?;
        }
        Ok(())
    })
}

/// A device that fails again right after a recovery is let go, and stays
/// bound; a reset by hand, or unbinding, helps.
fn no_recovery_loop(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let id = ready(vm, "")?;
        let mark = vm.mark()?;
        vm.model(id)?.run("fatal nic=0")?;
        vm.wait_log(mark, "health recovery succeeded", vm.scaled(BRING_UP))?;
        for _ in 0..2 {
            let mark = vm.mark()?;
            vm.model(id)?.run("fatal nic=0")?;
            vm.wait_log(mark, "no recovery: the last one ", vm.soon())?;
            vm.wait_log(mark, "stays in the error state", vm.soon())?;
            wait_state(vm, id, "error", vm.soon())?;
            ensure!(counter(vm, id, "lifecycle", "recoveries")? == 1);
            let limit = vm.soon();
            let model = vm.model(id)?;
            wait_until("the device to be let go", limit, || {
                Ok(!model.status()?.bus_master)
            })?;
            vm.model(id)?.run("health clear")?;
            let reset = vm.sysfs(id, "reset");
            vm.agent().set(&reset, "1", vm.scaled(BRING_UP))?;
            wait_state(vm, id, "up", vm.soon())?;
            alive(vm, id)?;
        }
        down(vm, id)
    })
}

/// A recovery that waits for the device lets others have it at once: unbind,
/// reset, removal, unloading.
fn recovery_gives_way(lab: &Lab) -> Result<()> {
    const WAYS: [&str; 4] = ["unbind", "reset", "rmmod", "remove"];
    /// What recovery waits for: firmware that does not get ready, a device
    /// that does not answer, a command of bring-up.
    const WAITS: [(&str, &str); 3] = [
        ("software_reset initializing=100000", "starting health"),
        ("software_reset silent=50000", "starting health"),
        ("fault op=INIT_HCA act=never", "starting health"),
    ];
    lab.shared_with(1 + WAITS.len(), |vm| {
        vm.hunt_leaks();
        for (wait, line) in WAITS {
            let id = vm.add_device(&[])?;
            for way in WAYS {
                let what = || format!("{way} during {wait:?}");
                if !vm.is_loaded(DRIVER)? {
                    load_quiet(vm, "")?;
                }
                up(vm, id).with_context(what)?;
                vm.model(id)?.run(wait)?;
                let mark = vm.mark()?;
                let commands = vm.model(id)?.status()?.commands;
                vm.model(id)?.run("fatal nic=0")?;
                vm.wait_log(mark, line, vm.soon()).with_context(what)?;
                let soon = vm.soon();
                let command = wait.starts_with("fault");
                let model = vm.model(id)?;
                wait_until("recovery to wait", soon, || {
                    let status = model.status()?;
                    Ok(if command {
                        status.commands > commands && !status.in_flight.is_empty()
                    } else {
                        status.initializing || status.link != "up"
                    })
                })
                .with_context(what)?;
                let start = Instant::now();
                let timeout = vm.scaled(BRING_UP);
                match way {
                    "unbind" => vm.unbind(id, DRIVER, timeout)?,
                    "rmmod" => vm.rmmod(DRIVER, timeout)?,
                    "remove" => {
                        let path = vm.sysfs(id, "remove");
                        vm.agent().set(&path, "1", timeout)?;
                    }
                    _ => {
                        // The function comes back, and waits for nothing more.
                        vm.model(id)?.run("software_reset")?;
                        vm.model(id)?.run("initializing hold=0")?;
                        vm.model(id)?.run("ones off")?;
                        let path = vm.sysfs(id, "reset");
                        vm.agent().set(&path, "1", timeout)?;
                    }
                }
                let took = start.elapsed();
                let limit = vm.scaled(Duration::from_secs(6));
                ensure!(took < limit, "{}: it took {took:?}", what());
                let model = vm.model(id)?;
                model.run("software_reset")?;
                model.run("initializing hold=0")?;
                model.run("ones off")?;
                model.control().clear_faults()?;
                model.run("health clear")?;
                match way {
                    "reset" => {
                        wait_state(vm, id, "up", vm.soon()).with_context(what)?;
                        alive(vm, id).with_context(what)?;
                        down(vm, id).with_context(what)?;
                    }
                    "remove" => {
                        let bdf = vm.bdf(id);
                        vm.agent().set("/sys/bus/pci/rescan", "1", soon)?;
                        wait_until("the device to be found again", soon, || {
                            Ok(vm.agent().list("/sys/bus/pci/devices")?.contains(&bdf))
                        })?;
                    }
                    _ => {}
                }
            }
            vm.remove_device(id)?;
        }
        Ok(())
    })
}

/// Failures of all kinds, one after the other, while commands are issued and
/// the device is reset: whatever happens, it can be let go and bound again.
fn many_failures(lab: &Lab) -> Result<()> {
    const FAILURES: [&str; 8] = [
        "fatal nic=0",
        "fatal nic=7 reset=300",
        "health counter=stop",
        "health syndrome=0x10",
        "health syndrome=0x1 rfr=1",
        "ones ms=700",
        "ones ms=300 reset=1 initializing=200",
        "health clear",
    ];
    let rounds = if is_long() { 200 } else { 10 };
    lab.shared(|vm| {
        vm.hunt_leaks();
        let id = ready(vm, "health_dead_ms=500")?;
        let path = format!("/sys/kernel/debug/{DRIVER}/{}/query_adapter", vm.bdf(id));
        let script = "while :; do cat $0 > /dev/null 2>&1; done";
        let limit = vm.scaled(Duration::from_secs(60 + 5 * rounds));
        let _busy = (0..4)
            .map(|_| vm.agent().spawn(&["sh", "-c", script, &path], &[], limit))
            .collect::<Result<Vec<_>, _>>()?;
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |n: u64| {
            // xorshift64: the same run every time.
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % n
        };
        for round in 0..rounds {
            let failure = FAILURES[random(FAILURES.len() as u64) as usize];
            let what = || format!("round {round}: {failure}");
            vm.model(id)?.run(failure).with_context(what)?;
            let pause = Duration::from_millis(random(1500));
            let start = Instant::now();
            wait_until("a moment", vm.soon(), || Ok(start.elapsed() >= pause))?;
            let soon = vm.scaled(BRING_UP);
            match random(3) {
                0 => {
                    let reset = vm.sysfs(id, "reset");
                    // It may find the device silent.
                    let _ = vm.agent().set(&reset, "1", soon);
                }
                1 => {
                    vm.unbind(id, DRIVER, soon).with_context(what)?;
                    vm.model(id)?.run("health clear")?;
                    vm.model(id)?.run("ones off")?;
                    up(vm, id).with_context(what)?;
                }
                _ => {}
            }
        }
        let start = Instant::now();
        vm.unbind(id, DRIVER, vm.scaled(BRING_UP))?;
        ensure!(start.elapsed() < vm.soon(), "it took {:?}", start.elapsed());
        vm.model(id)?.run("health clear")?;
        vm.model(id)?.run("ones off")?;
        up(vm, id)?;
        alive(vm, id)?;
        down(vm, id)
    })
}
