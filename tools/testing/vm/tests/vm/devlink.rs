// SPDX-License-Identifier: GPL-2.0
//! What people see and do with the stock `devlink` of iproute2 (M4.6).

use crate::driver::{alive, counter, debugfs, down, load, up, BRING_UP};
use crate::{is_long, Lab, Test, BOTH, KASAN, TEST};
use anyhow::{ensure, Context, Result};
use mlx5_agent::proto::Status;
use mlx5_vm::agent::Pending;
use mlx5_vm::manifest::Kernel;
use mlx5_vm::process::wait_until;
use mlx5_vm::vm::{DeviceId, Vm, DRIVER};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// With lockdep, and as people have it.
const PLAIN: &[Kernel] = &[Kernel::Test, Kernel::Debian];

pub const TESTS: &[Test] = &[
    Test::new("devlink::info", PLAIN, info).on_root(),
    Test::new("devlink::health", PLAIN, health).on_root(),
    Test::new("devlink::recovery", PLAIN, recovery).on_root(),
    Test::new("devlink::recovery_by_hand", TEST, recovery_by_hand).on_root(),
    Test::new("devlink::unbind_ends_recovery", TEST, unbind_ends_recovery).on_root(),
    Test::new("devlink::reload", TEST, reload).on_root(),
    Test::new("devlink::in_use_all_the_time", TEST, in_use)
        .long_on(KASAN)
        .on_root(),
    Test::new("devlink::unplugged_in_use", BOTH, unplugged).on_root(),
];

/// Name of a device on devlink's command line.
fn handle(vm: &Vm, id: DeviceId) -> String {
    format!("pci/{}", vm.bdf(id))
}

/// What `devlink` says to people; it must succeed.
fn devlink(vm: &Vm, words: &[&str]) -> Result<String> {
    // A recovery is among what it can wait for.
    vm.agent()
        .output(&[&["devlink"], words].concat(), vm.soon() * 2)
}

/// What it says to programs.
fn parsed(vm: &Vm, words: &[&str]) -> Result<Value> {
    let text = devlink(vm, &[&["-j"], words].concat())?;
    serde_json::from_str(&text).with_context(|| format!("{words:?}: {text}"))
}

/// Checks that `devlink` fails and says `reason`.
fn refused(vm: &Vm, words: &[&str], reason: &str) -> Result<()> {
    let finished = vm
        .agent()
        .exec(&[&["devlink"], words].concat(), vm.soon() * 2)?;
    let said = String::from_utf8_lossy(&finished.stderr);
    ensure!(
        finished.status == Status::Exited(1) && said.contains(reason),
        "devlink {}: {:?}, {said:?}, expected {reason:?}",
        words.join(" "),
        finished.status
    );
    Ok(())
}

/// A command about a reporter.
fn about<'a>(dev: &'a str, command: &[&'a str], reporter: &'a str) -> Vec<&'a str> {
    [&["health"], command, &[dev, "reporter", reporter]].concat()
}

/// What `health show` says of a reporter.
fn reporter(vm: &Vm, dev: &str, name: &str) -> Result<Value> {
    let all = parsed(vm, &["health", "show", dev])?;
    let list = all["health"][dev].as_array();
    let found = list.and_then(|list| list.iter().find(|entry| entry["reporter"] == name));
    found
        .cloned()
        .with_context(|| format!("no reporter {name} in {all}"))
}

/// Waits until a reporter has had `errors` and `recovers`, and is `state`.
fn wait_reporter(
    vm: &Vm,
    dev: &str,
    name: &str,
    (state, errors, recovers): (&str, u64, u64),
) -> Result<Value> {
    let mut last = Value::Null;
    let what = format!("{name} to be {state}, {errors} errors, {recovers} recoveries");
    wait_until(&what, vm.soon() * 2, || {
        last = reporter(vm, dev, name)?;
        let numbers = (last["error"].as_u64(), last["recover"].as_u64());
        Ok(last["state"] == state && numbers == (Some(errors), Some(recovers)))
    })
    .with_context(|| format!("last: {last}"))?;
    Ok(last)
}

fn info(lab: &Lab) -> Result<()> {
    lab.on_root(2, |vm| {
        load(vm, "")?;
        let (id, other) = (vm.add_device(&[])?, vm.add_device(&["--vf"])?);
        up(vm, id)?;
        up(vm, other)?;
        let (dev, second) = (handle(vm, id), handle(vm, other));
        let text = devlink(vm, &["dev", "info", &dev])?;
        println!("{text}");
        let words: Vec<&str> = text.split_whitespace().collect();
        let expected = format!(
            "{dev}: driver {DRIVER} versions: fixed: fw.psid MODEL_1021 running: fw.version 28.43.1000 fw 28.43.1000"
        );
        ensure!(words.join(" ") == expected, "{text}");
        let expected = |psid: &str| {
            json!({
                "driver": DRIVER,
                "versions": {
                    "fixed": { "fw.psid": psid },
                    "running": { "fw.version": "28.43.1000", "fw": "28.43.1000" },
                },
            })
        };
        let found = parsed(vm, &["dev", "info"])?;
        let both = json!({ &dev: expected("MODEL_1021"), &second: expected("MODEL_101e") });
        ensure!(found["info"] == both, "{found}");

        // Another firmware comes with a reset; the instance stays.
        let reset = vm.sysfs(id, "reset");
        vm.model(id)?.run("initseg field=fw_rev_minor value=44")?;
        vm.agent().set(&reset, "1", vm.scaled(BRING_UP))?;
        let found = parsed(vm, &["dev", "info", &dev])?;
        let running = &found["info"][&dev]["versions"]["running"];
        ensure!(running["fw"] == "28.44.1000", "{found}");

        down(vm, other)?;
        refused(vm, &["dev", "info", &second], "No such device")?;
        let list = devlink(vm, &["dev", "show"])?;
        ensure!(list.trim() == dev, "{list}");
        down(vm, id)?;
        let list = devlink(vm, &["dev", "show"])?;
        ensure!(list.trim().is_empty(), "{list}");
        Ok(())
    })
}

/// What a dump or a diagnosis says of the watchdog.
fn check_watchdog(found: &Value, firmware: &str, syndrome: u64) -> Result<()> {
    ensure!(
        found["firmware"] == firmware && found["syndrome"] == syndrome,
        "{found}, expected {firmware} and syndrome {syndrome}"
    );
    for name in [
        "counter",
        "misses",
        "reads",
        "stalls",
        "syndromes",
        "fatals",
    ] {
        ensure!(found[name].is_u64(), "{name} in {found}");
    }
    Ok(())
}

fn health(lab: &Lab) -> Result<()> {
    lab.on_root(1, |vm| {
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        let dev = handle(vm, id);
        let fw = |words: &[&'static str]| about(&dev, words, "fw");
        let fatal = |words: &[&'static str]| about(&dev, words, "fw_fatal");

        let all = parsed(vm, &["health", "show", &dev])?;
        let expected = json!([
            { "reporter": "fw", "state": "healthy", "error": 0, "recover": 0, "auto_dump": true },
            { "reporter": "fw_fatal", "state": "healthy", "error": 0, "recover": 0,
              "grace_period": 60000, "auto_recover": true, "auto_dump": true },
        ]);
        ensure!(all["health"][&dev] == expected, "{all}");

        // What is not there, is said so.
        let unsupported = "Operation not supported";
        refused(vm, &fatal(&["diagnose"]), unsupported)?;
        refused(vm, &fatal(&["test"]), unsupported)?;
        let period = ["health", "set", &dev, "reporter", "fw", "grace_period", "1"];
        refused(vm, &period, unsupported)?;
        refused(vm, &about(&dev, &["diagnose"], "none"), "Invalid argument")?;

        let reads = |vm: &Vm| -> Result<Option<u64>> {
            let found = parsed(vm, &fw(&["diagnose"]))?;
            check_watchdog(&found, "healthy", 0)?;
            Ok(found["reads"].as_u64())
        };
        let before = reads(vm)?;
        wait_until("the watchdog to read on", vm.soon(), || {
            Ok(reads(vm)? > before)
        })?;

        // A test is a report like any other: counted, and with a dump.
        devlink(vm, &fw(&["test"]))?;
        wait_reporter(vm, &dev, "fw", ("healthy", 1, 0))?;
        let dump = parsed(vm, &fw(&["dump", "show"]))?;
        ensure!(dump["alert"] == "test of the health report", "{dump}");
        ensure!(dump["lifecycle"]["state"] == "up", "{dump}");
        check_watchdog(&dump["watchdog"], "healthy", 0)?;
        devlink(vm, &fw(&["dump", "clear"]))?;
        let cleared = reporter(vm, &dev, "fw")?;
        ensure!(cleared.get("last_dump_time").is_none(), "{cleared}");

        // Firmware complains, and goes on: all that it says, by upstream's
        // names.
        vm.model(id)?.run("initseg field=ext_synd value=0xabcd")?;
        vm.model(id)?
            .run("initseg field=assert_callra value=0x12345678")?;
        vm.model(id)?.run("health syndrome=0x10 severity=4")?;
        wait_reporter(vm, &dev, "fw", ("error", 2, 0))?;
        let found = parsed(vm, &fw(&["diagnose"]))?;
        check_watchdog(&found, "reports a problem", 0x10)?;
        ensure!(found["description"] == "High temperature", "{found}");
        println!("{}", devlink(vm, &fw(&["dump", "show"]))?);
        let dump = parsed(vm, &fw(&["dump", "show"]))?;
        let alert = "firmware reports a problem, syndrome 0x10: High temperature";
        ensure!(
            dump["alert"] == alert && dump["syndrome"] == 0x10 && dump["fw_miss_counter"] == 0,
            "{dump}"
        );
        let buffer = &dump["health buffer"];
        for (name, value) in [
            ("assert_callra", 0x1234_5678),
            ("synd", 0x10),
            ("ext_synd", 0xabcd),
            ("severity", 4),
            ("rfr", 0),
            ("raw_fw_ver", 0x1c2b_03e8),
        ] {
            ensure!(buffer[name] == value, "{name}: {buffer}");
        }
        let vars = buffer["assert_var"].as_array().map(Vec::len);
        ensure!(vars == Some(6), "{buffer}");
        ensure!(buffer["fw_ver"] == "28.43.1000", "{buffer}");
        refused(vm, &fw(&["recover"]), unsupported)?;
        alive(vm, id)?;
        vm.model(id)?.run("health syndrome=0")?;
        wait_reporter(vm, &dev, "fw", ("healthy", 2, 0))?;

        // The counter stands still, and moves again.
        devlink(vm, &fw(&["dump", "clear"]))?;
        vm.model(id)?.run("health counter=stop")?;
        wait_reporter(vm, &dev, "fw", ("error", 3, 0))?;
        let dump = parsed(vm, &fw(&["dump", "show"]))?;
        let alert = "device's health compromised - reached miss count";
        ensure!(
            dump["alert"] == alert && dump["fw_miss_counter"] == 3,
            "{dump}"
        );
        ensure!(dump.get("health buffer").is_none(), "{dump}");
        vm.model(id)?.run("health counter=run")?;
        wait_reporter(vm, &dev, "fw", ("healthy", 3, 0))?;
        let untouched = reporter(vm, &dev, "fw_fatal")?;
        ensure!(untouched["error"] == 0, "{untouched}");
        down(vm, id)
    })
}

/// Firmware dies, and a reset helps.
fn dies(vm: &mut Vm, id: DeviceId) -> Result<()> {
    vm.model(id)?.run("fatal syndrome=7 nic=0")
}

fn recovery(lab: &Lab) -> Result<()> {
    lab.on_root(1, |vm| {
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        let dev = handle(vm, id);
        let monitor = "devlink monitor health >/tmp/events & echo $! >/tmp/monitor; wait";
        let monitor = vm
            .agent()
            .spawn(&["sh", "-c", monitor], &[], vm.soon() * 4)?;
        wait_until("the monitor to listen", vm.soon(), || {
            // Any event shows that it does.
            devlink(vm, &about(&dev, &["test"], "fw"))?;
            Ok(vm.agent().text("/tmp/events").is_ok_and(|t| !t.is_empty()))
        })?;

        dies(vm, id)?;
        let found = wait_reporter(vm, &dev, "fw_fatal", ("healthy", 1, 1))?;
        ensure!(found["last_dump_time"].is_string(), "{found}");
        println!("{}", devlink(vm, &["health", "show", &dev])?);
        let lifecycle = debugfs(vm, id, "lifecycle")?;
        ensure!(
            lifecycle.starts_with("state up\nbring_ups 2\n"),
            "{lifecycle}"
        );
        alive(vm, id)?;
        // The dump is of the failure, not of now.
        let fatal = about(&dev, &["dump", "show"], "fw_fatal");
        let dump = parsed(vm, &fatal)?;
        let alert =
            "Fatal error 5 detected: firmware asks for a reset, syndrome 0x7: irisc not responding";
        ensure!(dump["alert"] == alert, "{dump}");
        ensure!(dump["health buffer"]["synd"] == 7, "{dump}");
        ensure!(dump["lifecycle"]["state"] == "error", "{dump}");
        let found = parsed(vm, &about(&dev, &["diagnose"], "fw"))?;
        check_watchdog(&found, "healthy", 0)?;

        // Who listens heard of the error, and of the recovery.
        let events = vm.agent().text("/tmp/events")?;
        let of_fatal: Vec<&str> = events
            .split("[health,status]")
            .filter(|event| event.contains("reporter fw_fatal"))
            .filter_map(|event| event.split("state ").nth(1)?.split(' ').next())
            .collect();
        ensure!(
            of_fatal.first() == Some(&"error") && of_fatal.last() == Some(&"healthy"),
            "{of_fatal:?} in:\n{events}"
        );
        let end = "kill $(cat /tmp/monitor)";
        vm.agent().output(&["sh", "-c", end], vm.soon())?;
        monitor.finished(vm.soon())?;
        down(vm, id)
    })
}

/// Sets a property of `fw_fatal`.
fn set(vm: &Vm, dev: &str, name: &str, value: &str) -> Result<()> {
    let words = ["health", "set", dev, "reporter", "fw_fatal", name, value];
    devlink(vm, &words).map(drop)
}

/// Waits for debugfs `lifecycle` to begin with a state.
fn wait_state(vm: &Vm, id: DeviceId, state: &str) -> Result<()> {
    let line = format!("state {state}\n");
    wait_until(&line, vm.soon(), || {
        Ok(debugfs(vm, id, "lifecycle")?.starts_with(&line))
    })
}

fn recovery_by_hand(lab: &Lab) -> Result<()> {
    lab.on_root(1, |vm| {
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        let dev = handle(vm, id);
        let recover = about(&dev, &["recover"], "fw_fatal");

        // Nothing to recover: nothing is done.
        devlink(vm, &recover)?;
        ensure!(counter(vm, id, "lifecycle", "bring_ups")? == 1);

        // The switch.
        set(vm, &dev, "auto_recover", "false")?;
        let mark = vm.mark()?;
        dies(vm, id)?;
        wait_reporter(vm, &dev, "fw_fatal", ("error", 1, 0))?;
        vm.wait_log(mark, "no recovery: it is switched off", vm.soon())?;
        wait_state(vm, id, "error")?;
        let test = about(&dev, &["test"], "fw");
        refused(
            vm,
            &test,
            "firmware is not watched, the device's state is error",
        )?;
        // What the device was is known all the same.
        let found = parsed(vm, &["dev", "info", &dev])?;
        ensure!(found["info"][&dev]["driver"] == DRIVER, "{found}");
        devlink(vm, &recover)?;
        wait_reporter(vm, &dev, "fw_fatal", ("healthy", 1, 1))?;
        alive(vm, id)?;

        // The grace period: the last recovery was a moment ago.
        set(vm, &dev, "auto_recover", "true")?;
        let mark = vm.mark()?;
        dies(vm, id)?;
        wait_reporter(vm, &dev, "fw_fatal", ("error", 2, 1))?;
        vm.wait_log(mark, "no recovery: the last one failed", vm.soon())?;
        wait_state(vm, id, "error")?;

        // A recovery that fails, and says so.
        vm.model(id)?.run("software_reset revives=0")?;
        refused(vm, &recover, "recovery failed, the device's state is error")?;
        wait_reporter(vm, &dev, "fw_fatal", ("error", 2, 1))?;
        vm.model(id)?.run("health clear")?;
        devlink(vm, &recover)?;
        wait_reporter(vm, &dev, "fw_fatal", ("healthy", 2, 2))?;
        alive(vm, id)?;

        // Without a grace period.
        vm.model(id)?.run("software_reset revives=1")?;
        set(vm, &dev, "grace_period", "0")?;
        dies(vm, id)?;
        wait_reporter(vm, &dev, "fw_fatal", ("healthy", 3, 3))?;
        alive(vm, id)?;

        // Somebody else brings the device back: that is seen too.
        set(vm, &dev, "auto_recover", "false")?;
        dies(vm, id)?;
        wait_reporter(vm, &dev, "fw_fatal", ("error", 4, 3))?;
        let reset = vm.sysfs(id, "reset");
        vm.agent().set(&reset, "1", vm.scaled(BRING_UP))?;
        wait_reporter(vm, &dev, "fw_fatal", ("healthy", 4, 3))?;
        alive(vm, id)?;
        dies(vm, id)?;
        wait_reporter(vm, &dev, "fw_fatal", ("error", 5, 3))?;
        devlink(vm, &["dev", "reload", &dev])?;
        wait_reporter(vm, &dev, "fw_fatal", ("healthy", 5, 3))?;
        alive(vm, id)?;
        down(vm, id)
    })
}

/// Who unbinds the driver does not wait for firmware that people wait for.
fn unbind_ends_recovery(lab: &Lab) -> Result<()> {
    lab.on_root(2, |vm| {
        load(vm, "")?;
        for by_hand in [false, true] {
            let id = vm.add_device(&[])?;
            up(vm, id)?;
            let dev = handle(vm, id);
            // It takes longer than anybody here has time.
            vm.model(id)?.run("software_reset initializing=60000")?;
            set(
                vm,
                &dev,
                "auto_recover",
                if by_hand { "false" } else { "true" },
            )?;
            let mark = vm.mark()?;
            dies(vm, id)?;
            let recover = [&["devlink"], &about(&dev, &["recover"], "fw_fatal")[..]].concat();
            let person = if by_hand {
                wait_reporter(vm, &dev, "fw_fatal", ("error", 1, 0))?;
                Some(vm.agent().spawn(&recover, &[], vm.soon() * 4)?)
            } else {
                None
            };
            vm.wait_log(mark, "Issuing FW Reset", vm.soon())?;
            let start = Instant::now();
            vm.unbind(id, DRIVER, vm.scaled(BRING_UP))?;
            let took = start.elapsed();
            ensure!(took < vm.scaled(Duration::from_secs(5)), "{took:?}");
            if let Some(person) = person {
                let finished = person.finished(vm.soon())?;
                let said = String::from_utf8_lossy(&finished.stderr).into_owned();
                ensure!(
                    finished.status == Status::Exited(1) && said.contains("recovery failed"),
                    "{:?}, {said}",
                    finished.status
                );
            }
            refused(vm, &["dev", "info", &dev], "No such device")?;
            crate::driver::gone(vm, id)?;
            vm.model(id)?.run("initializing hold=0")?;
            up(vm, id)?;
            alive(vm, id)?;
            down(vm, id)?;
        }
        Ok(())
    })
}

fn reload(lab: &Lab) -> Result<()> {
    lab.on_root(1, |vm| {
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        let dev = handle(vm, id);
        let again = ["dev", "reload", &dev, "action", "driver_reinit"];
        println!("{}", devlink(vm, &again)?);
        ensure!(counter(vm, id, "lifecycle", "bring_ups")? == 2);
        alive(vm, id)?;
        devlink(vm, &["dev", "reload", &dev])?;
        ensure!(counter(vm, id, "lifecycle", "bring_ups")? == 3);
        let stats = parsed(vm, &["-s", "dev", "show", &dev])?;
        let count = &stats["dev"][&dev]["stats"]["reload"]["driver_reinit"]["unspecified"];
        ensure!(*count == 2, "{stats}");

        let other = ["dev", "reload", &dev, "action", "fw_activate"];
        refused(vm, &other, "not supported")?;
        vm.agent()
            .output(&["ip", "netns", "add", "other"], vm.soon())?;
        let moved = ["dev", "reload", &dev, "netns", "other"];
        refused(vm, &moved, "the device stays in its network namespace")?;
        vm.agent()
            .output(&["ip", "netns", "del", "other"], vm.soon())?;
        alive(vm, id)?;

        // One that fails says so, and the next one helps.
        vm.model(id)?
            .run("fault op=INIT_HCA act=status status=0x8 syndrome=0x77")?;
        refused(vm, &again, "bring-up failed, the device's state is down")?;
        devlink(vm, &again)?;
        alive(vm, id)?;
        down(vm, id)
    })
}

/// Programs that ask devlink all the time, until [`Users::stop`], and one
/// that listens.
struct Users(Pending);

impl Users {
    const STOP: &'static str = "/tmp/devlink-stop";

    fn start(vm: &Vm, dev: &str) -> Result<Self> {
        vm.agent().output(&["rm", "-f", Self::STOP], vm.soon())?;
        // A slow kernel shall have time for other things.
        let pause = vm.manifest().kernel.slowness() - 1;
        let script = format!(
            r#"ask() {{
                while [ ! -e {stop} ]; do
                    sleep {pause}
                    devlink "$@" >/dev/null 2>/tmp/said-$BASHPID && echo good || cat /tmp/said-$BASHPID
                done
            }}
            devlink monitor >/dev/null & monitor=$!
            ask dev info & asks=$!
            ask health diagnose $0 reporter fw & asks="$asks $!"
            ask health dump show $0 reporter fw_fatal & asks="$asks $!"
            ask health test $0 reporter fw & asks="$asks $!"
            wait $asks
            kill $monitor && echo monitored"#,
            stop = Self::STOP,
        );
        let argv = ["bash", "-c", &script, dev];
        Ok(Self(vm.agent().spawn(&argv, &[], vm.soon() * 20)?))
    }

    /// Ends them, and checks what they have been told.
    fn stop(self, vm: &Vm) -> Result<()> {
        vm.agent().output(&["touch", Self::STOP], vm.soon())?;
        let finished = self.0.finished(vm.soon() * 4)?;
        let text = String::from_utf8_lossy(&finished.stdout).into_owned();
        let mut told = BTreeMap::new();
        for line in text.lines() {
            *told.entry(line).or_insert(0) += 1;
        }
        println!("{told:#?}");
        let expected = |line: &str| {
            line == "good"
                || line == "monitored"
                || line == "kernel answers: No such device"
                // The instance went between two looks.
                || line == "kernel answers: Invalid argument"
                || line.starts_with("Error: firmware is not watched, the device's state is ")
        };
        let odd: Vec<&&str> = told.keys().filter(|line| !expected(line)).collect();
        ensure!(odd.is_empty(), "{odd:?}");
        ensure!(told.contains_key("monitored"), "the monitor has ended");
        let good = told.get("good").copied().unwrap_or(0);
        // One of each at the least, however slow the kernel is.
        ensure!(good >= 4, "only {good} answers");
        Ok(())
    }
}

/// Binds, resets, reloads, failures and recoveries while people look (field
/// cases C6, C29).
fn in_use(lab: &Lab) -> Result<()> {
    lab.on_root(1, |vm| {
        vm.hunt_leaks();
        // Firmware that is dead is met by commands, too.
        let timeout = 1000 * vm.manifest().kernel.slowness();
        load(vm, &format!("cmd_timeout_ms={timeout}"))?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        let dev = handle(vm, id);
        let limit = vm.scaled(BRING_UP);
        let users = Users::start(vm, &dev)?;
        let bind = |vm: &mut Vm| -> Result<()> {
            vm.bind(id, DRIVER, limit)?;
            set(vm, &dev, "grace_period", "0")
        };
        let reset = |vm: &Vm| vm.agent().set(&vm.sysfs(id, "reset"), "1", limit);
        set(vm, &dev, "grace_period", "0")?;
        let rounds = match vm.manifest().kernel {
            Kernel::Kasan => 30,
            _ if is_long() => 120,
            _ => 6,
        };
        for round in 0..rounds {
            match round % 6 {
                0 => {
                    dies(vm, id)?;
                    vm.unbind(id, DRIVER, limit)?;
                    vm.model(id)?.run("health clear")?;
                    bind(vm)?;
                }
                1 => {
                    dies(vm, id)?;
                    // It comes before the recovery, after it, or amid it, and
                    // may meet dead firmware.
                    let reload = ["devlink", "dev", "reload", &dev];
                    vm.agent().exec(&reload, limit)?;
                    reset(vm)?;
                }
                2 => devlink(vm, &["dev", "reload", &dev]).map(drop)?,
                3 => {
                    let before = reporter(vm, &dev, "fw_fatal")?["error"].as_u64();
                    dies(vm, id)?;
                    wait_until("a recovery", vm.soon() * 2, || {
                        let now = reporter(vm, &dev, "fw_fatal")?;
                        Ok(now["error"].as_u64() > before && now["state"] == "healthy")
                    })?;
                }
                4 => {
                    vm.unbind(id, DRIVER, limit)?;
                    bind(vm)?;
                }
                _ => reset(vm)?,
            }
            wait_state(vm, id, "up")?;
            alive(vm, id)?;
        }
        users.stop(vm)?;
        down(vm, id)
    })
}

/// A device that goes while people look, with and without a warning (field
/// case C23).
fn unplugged(lab: &Lab) -> Result<()> {
    lab.on_root(2, |vm| {
        vm.hunt_leaks();
        load(vm, "")?;
        for is_silent in [false, true] {
            let id = vm.add_device(&[])?;
            up(vm, id)?;
            let dev = handle(vm, id);
            let users = Users::start(vm, &dev)?;
            // A few answers.
            let start = reporter(vm, &dev, "fw")?["error"].as_u64();
            wait_until("tests of the report", vm.soon(), || {
                let now = reporter(vm, &dev, "fw")?["error"].as_u64();
                Ok(now >= start.map(|start| start + 3))
            })?;
            if is_silent {
                vm.model(id)?.run("vanish")?;
            }
            vm.remove_device(id)?;
            refused(vm, &["dev", "info", &dev], "No such device")?;
            users.stop(vm)?;
        }
        Ok(())
    })
}
