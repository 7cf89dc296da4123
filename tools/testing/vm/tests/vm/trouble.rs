// SPDX-License-Identifier: GPL-2.0
//! The device, or the machine, in trouble: outages at any moment, resets,
//! sleep, and all of it at once.

use crate::driver::{alive, counter, debugfs, down, load, load_quiet, up, BRING_UP};
use crate::{in_short, is_long, own, Lab, Test, BOTH, KASAN, TEST};
use anyhow::{bail, ensure, Context, Result};
use mlx5_agent::proto::{Call, Power};
use mlx5_vm::agent::GuestError;
use mlx5_vm::klog::Judge;
use mlx5_vm::pci;
use mlx5_vm::process::wait_until;
use mlx5_vm::vm::{DeviceId, Vm, DRIVER};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    Test::new("trouble::silence_at_every_command", TEST, |lab| {
        every_command(lab, &[SILENT], 1)
    }),
    Test::new("trouble::removal_at_every_command", TEST, |lab| {
        every_command(lab, &[VANISHED], 1)
    }),
    Test::new("trouble::dead_firmware_at_every_command", TEST, |lab| {
        every_command(lab, &[DEAD], in_short(3))
    })
    .long_on(KASAN),
    // Slow under KASAN: in short, a third of the commands meet one of them.
    Test::new("trouble::outage_at_every_command", KASAN, |lab| {
        every_command(lab, &[SILENT, VANISHED], in_short(6))
    }),
    Test::new("trouble::function_reset", BOTH, function_reset),
    Test::new("trouble::sleep", TEST, sleep).long_on(KASAN),
    Test::new("trouble::shutdown", TEST, shutdown).long_on(KASAN),
    Test::new("trouble::all_slots_stuck", TEST, all_slots_stuck).long_on(KASAN),
    Test::new(
        "trouble::late_but_not_too_late",
        TEST,
        late_but_not_too_late,
    ),
    Test::new("trouble::stress", BOTH, stress),
];

/// Command timeout in these tests, before it is scaled.
const TIMEOUT_MS: u32 = 400;

/// How much longer than a command's time letting go may take (the issue's
/// bound), before it is scaled.
const BOUND: Duration = Duration::from_secs(5);

/// An outage, and how it is mended.
#[derive(Debug, Clone, Copy)]
struct Outage {
    act: &'static str,
    mend: &'static str,
    /// The function comes back as after power on, with config space reset.
    reset: bool,
}

const SILENT: Outage = Outage {
    act: "ones",
    mend: "ones off",
    reset: false,
};
const VANISHED: Outage = Outage {
    act: "vanish",
    mend: "vanish off",
    reset: true,
};
const DEAD: Outage = Outage {
    act: "fatal",
    mend: "health clear",
    reset: false,
};

/// Strikes at command `skip` from now on, whichever that is.
fn strike(vm: &mut Vm, id: DeviceId, outage: Outage, skip: usize) -> Result<()> {
    let line = format!("fault op=* skip={skip} count=1 act={}", outage.act);
    vm.model(id)?.run(&line)
}

/// The device is as new: no fault, no outage, no trace of the last driver.
fn mend(vm: &mut Vm, id: DeviceId, outage: Outage) -> Result<()> {
    let model = vm.model(id)?;
    model.run("faults clear")?;
    model.run(outage.mend)?;
    if outage.reset {
        // The BAR is where the guest had put it: a scan finds the new device.
        vm.renew(id)?;
    }
    Ok(())
}

fn let_go(vm: &mut Vm, id: DeviceId, start: Instant, timeout: u32) -> Result<()> {
    let limit = vm.scaled(BOUND) + Duration::from_millis(timeout.into());
    let took = start.elapsed();
    ensure!(
        took < limit,
        "it took {took:?}, at most {limit:?} are expected"
    );
    ensure!(
        pci::vectors(vm.agent(), &vm.bdf(id))? == 0,
        "MSI-X vectors are left"
    );
    ensure!(vm.driver_of(id)?.is_none(), "it is still bound");
    Ok(())
}

/// An outage at the moment of each command, on the way up and on the way
/// down; of one command in `spread`, a different one for each outage.
fn every_command(lab: &Lab, outages: &[Outage], spread: usize) -> Result<()> {
    lab.shared(|vm| {
        vm.hunt_leaks();
        let timeout = TIMEOUT_MS * vm.manifest().kernel.slowness();
        load_quiet(vm, &format!("cmd_timeout_ms={timeout}"))?;
        let id = vm.add_device(&[])?;
        // How many commands there are is seen in one good round.
        let first = vm.model(id)?.status()?.commands;
        up(vm, id)?;
        let ready = vm.model(id)?.status()?.commands;
        down(vm, id)?;
        let end = vm.model(id)?.status()?.commands;
        let ups = usize::try_from(ready - first)?;
        let downs = usize::try_from(end - ready)?;
        ensure!(ups > 10 && downs > 5, "{ups} and {downs} commands");

        let wanted = |at: usize, number: usize| at % spread == number % spread;
        for (number, outage) in outages.iter().enumerate() {
            for at in (0..ups).filter(|at| wanted(*at, number)) {
                let what = || format!("{outage:?} at command {at} of bring-up");
                strike(vm, id, *outage, at).with_context(what)?;
                let start = Instant::now();
                match vm.bind(id, DRIVER, vm.scaled(BRING_UP)) {
                    Ok(()) => bail!("{}: it came up", what()),
                    Err(GuestError::Timeout(time)) => bail!("{}: over {time:?}", what()),
                    Err(_) => let_go(vm, id, start, timeout).with_context(what)?,
                }
                mend(vm, id, *outage).with_context(what)?;
                // The next round gets as far as this one and further.
                if at % in_short(5) == 0 {
                    up(vm, id).with_context(what)?;
                    alive(vm, id).with_context(what)?;
                    down(vm, id).with_context(what)?;
                }
            }
            for at in (0..downs).filter(|at| wanted(*at, number)) {
                let what = || format!("{outage:?} at command {at} of teardown");
                up(vm, id).with_context(what)?;
                strike(vm, id, *outage, at).with_context(what)?;
                let start = Instant::now();
                vm.unbind(id, DRIVER, vm.scaled(BRING_UP))
                    .with_context(what)?;
                let_go(vm, id, start, timeout).with_context(what)?;
                mend(vm, id, *outage).with_context(what)?;
            }
        }
        up(vm, id)?;
        alive(vm, id)?;
        down(vm, id)?;
        println!("{ups} commands of bring-up and {downs} of teardown were struck");
        Ok(())
    })
}

fn bring_ups(vm: &Vm, id: DeviceId) -> Result<u64> {
    counter(vm, id, "lifecycle", "bring_ups")
}

/// The function is reset through sysfs, idle and with commands in flight.
fn function_reset(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        let soon = vm.scaled(BRING_UP);
        let reset = vm.sysfs(id, "reset");
        let flrs = vm.model(id)?.status()?.flrs;
        for round in 1..=3 {
            vm.agent().set(&reset, "1", soon)?;
            ensure!(bring_ups(vm, id)? == round + 1, "round {round}");
            alive(vm, id)?;
        }
        let now = vm.model(id)?.status()?.flrs;
        ensure!(now >= flrs + 3, "{} function resets", now - flrs);

        // Long enough for some to be in flight at once, on a slow kernel too.
        let delay = 300 * vm.manifest().kernel.slowness();
        vm.model(id)?.run(&format!(
            "fault op=QUERY_ADAPTER count=8 act=delay ms={delay}"
        ))?;
        let path = format!("/sys/kernel/debug/{DRIVER}/{}/query_adapter", vm.bdf(id));
        let readers = (0..8)
            .map(|_| vm.agent().spawn(&["cat", &path], &[], soon))
            .collect::<Result<Vec<_>, _>>()?;
        let limit = vm.soon();
        let model = vm.model(id)?;
        wait_until("commands in flight", limit, || {
            Ok(model.status()?.in_flight.len() >= 2)
        })?;
        vm.agent().set(&reset, "1", soon)?;
        for reader in readers {
            reader.finished(vm.soon())?;
        }
        alive(vm, id)?;
        down(vm, id)
    })
}

/// The machine goes to sleep and wakes up, as far as devices are concerned.
/// The agent's port does not survive it: a guest of its own, seen by its
/// console.
fn sleep(lab: &Lab) -> Result<()> {
    let mut vm = Vm::boot(&lab.manifest, lab.test, &own())?;
    let result = sleep_in(&mut vm);
    result.map_err(|error| vm.explain(error))
}

fn sleep_in(vm: &mut Vm) -> Result<()> {
    load(vm, "")?;
    let id = vm.add_device(&[])?;
    up(vm, id)?;
    // Devices are put to sleep; 1 s later, without more, they are woken.
    let script = "echo devices > /sys/power/pm_test; \
                  echo 1 > /sys/module/suspend/parameters/pm_test_delay; \
                  echo freeze > /sys/power/state; echo freeze > /sys/power/state; \
                  echo none > /sys/power/pm_test; \
                  cat $0 $1 > /dev/kmsg; echo slept twice > /dev/kmsg";
    let folder = format!("/sys/kernel/debug/{DRIVER}/{}", vm.bdf(id));
    let limit = vm.scaled(Duration::from_secs(60));
    let _sleeper = vm.agent().spawn(
        &[
            "sh",
            "-c",
            script,
            &format!("{folder}/lifecycle"),
            &format!("{folder}/query_adapter"),
        ],
        &[],
        limit,
    )?;
    wait_until("the guest to have slept twice", limit, || {
        Ok(vm.console_tail(1000).contains("slept twice"))
    })?;
    let console = vm.console_tail(1000);
    for line in ["state up", "bring_ups 3", "ieee_vendor_id "] {
        ensure!(console.contains(line), "no {line:?}");
    }
    let mut judge = Judge::default();
    for line in console.lines() {
        let text = line.split_once("] ").map_or(line, |(_, text)| text);
        judge.message(text);
    }
    judge.verdict()?;
    vm.model(id)?.check()
}

/// The guest reboots with the driver bound: the device is silent when the
/// kernel hands over (field cases C15, C21). With no fault by fast teardown;
/// where that fails by a forced one; and in a bounded time if firmware says
/// nothing at all. In short without the first of them, which is also that of
/// `kexec::after_shutdown`.
fn shutdown(lab: &Lab) -> Result<()> {
    let cases: [(&[&str], bool, &[u32]); 3] = [
        (
            &["fault op=TEARDOWN_HCA count=1 act=teardown_state_failed"],
            false,
            &[2, 1],
        ),
        (&["fault op=TEARDOWN_HCA count=inf act=never"], false, &[2]),
        (&[], true, &[2]),
    ];
    let count = if is_long() { cases.len() } else { 2 };
    for (faults, disabled, profiles) in cases.into_iter().take(count) {
        let mut vm = Vm::boot(&lab.manifest, lab.test, &own())?;
        let result = shutdown_in(&mut vm, faults, disabled, profiles);
        result.map_err(|error| vm.explain(error.context(format!("{faults:?}"))))?;
    }
    Ok(())
}

fn shutdown_in(vm: &mut Vm, faults: &[&str], disabled: bool, profiles: &[u32]) -> Result<()> {
    let timeout = TIMEOUT_MS * vm.manifest().kernel.slowness();
    load(vm, &format!("cmd_timeout_ms={timeout}"))?;
    let id = vm.add_device(&[])?;
    up(vm, id)?;
    for fault in faults {
        vm.model(id)?.run(fault)?;
    }
    let before = vm.model(id)?.status()?;
    let limit = vm.scaled(BOUND) + Duration::from_millis(u64::from(timeout) * 4);
    let start = Instant::now();
    // No answer comes: the guest is gone.
    let _ = vm.agent().start(Call::Power(Power::Reboot))?;
    let model = vm.model(id)?;
    wait_until("the device to be no bus master any more", limit * 2, || {
        let status = model.status()?;
        Ok(!status.bus_master || !status.connected)
    })?;
    ensure!(start.elapsed() < limit, "it took {:?}", start.elapsed());
    let after = model.status()?;
    ensure!(
        (after.nic_disables > before.nic_disables) == disabled,
        "the NIC interface was disabled {} times",
        after.nic_disables - before.nic_disables
    );
    let teardowns = model
        .commands(before.commands)?
        .into_iter()
        .filter(|command| command.name == "TEARDOWN_HCA")
        .count();
    ensure!(
        teardowns == profiles.len(),
        "{teardowns} TEARDOWN_HCA, expected those of profiles {profiles:?}"
    );
    model.check()
}

/// Every regular slot is stuck: a further command fails at once, pages still
/// move, and the device recovers when it answers (field case C1).
fn all_slots_stuck(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let timeout = TIMEOUT_MS * vm.manifest().kernel.slowness();
        load(vm, &format!("cmd_timeout_ms={timeout}"))?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        vm.model(id)?
            .run("fault op=QUERY_ADAPTER count=inf act=never")?;
        let path = format!("/sys/kernel/debug/{DRIVER}/{}/query_adapter", vm.bdf(id));
        let script = "for t in $(seq 31); do cat $0 & done; wait";
        let output = vm
            .agent()
            .spawn(&["sh", "-c", script, &path], &[], vm.soon() * 4)?
            .finished(vm.soon() * 4)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let expired = text.lines().filter(|l| l.contains("timed out")).count();
        ensure!(expired == 31, "{expired} of 31 timed out:\n{text}");
        ensure!(counter(vm, id, "state", "command_slots_orphaned")? == 31);

        let start = Instant::now();
        let answer = debugfs(vm, id, "query_adapter")?;
        ensure!(
            answer.contains("all 31 slots belong to commands that timed out"),
            "{answer}"
        );
        let fast = Duration::from_millis(u64::from(timeout) / 2);
        ensure!(start.elapsed() < fast, "it took {:?}", start.elapsed());
        let held = counter(vm, id, "pages", "held")?;
        vm.model(id)?.run("page_request npages=3")?;
        crate::driver::wait_counter(vm, id, "pages", "held", held + 3)?;

        vm.model(id)?.run("faults clear")?;
        crate::driver::wait_counter(vm, id, "state", "command_slots_orphaned", 0)?;
        alive(vm, id)?;
        down(vm, id)
    })
}

/// What is answered a little late is used, and its slot not lost.
fn late_but_not_too_late(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let timeout = 4 * TIMEOUT_MS * vm.manifest().kernel.slowness();
        load(vm, &format!("cmd_timeout_ms={timeout}"))?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        // Less than the driver's grace, which is 2 s at most.
        let late = timeout + (timeout / 4).min(1000);
        vm.model(id)?
            .run(&format!("fault op=QUERY_ADAPTER act=late ms={late}"))?;
        let mark = vm.mark()?;
        let answer = debugfs(vm, id, "query_adapter")?;
        ensure!(answer.starts_with("ieee_vendor_id "), "{answer}");
        vm.wait_log(mark, "answered after its", vm.soon())?;
        alive(vm, id)?;
        down(vm, id)
    })
}

/// Threads issue commands while devices are bound, unbound and reset at
/// random.
fn stress(lab: &Lab) -> Result<()> {
    /// Binds, unbinds, resets and faults at least.
    const ROUNDS: u32 = 8;
    lab.shared(|vm| {
        vm.hunt_leaks();
        let time = Duration::from_secs(if is_long() { 600 } else { 12 });
        let timeout = TIMEOUT_MS * vm.manifest().kernel.slowness();
        load(vm, &format!("cmd_timeout_ms={timeout}"))?;
        let first = vm.add_device(&[])?;
        let second = vm.add_device(&[])?;
        let ids = [first, second];
        let paths =
            ids.map(|id| format!("/sys/kernel/debug/{DRIVER}/{}/query_adapter", vm.bdf(id)));
        let script = "for t in $(seq 4); do for p in $0 $1; do \
                      (while [ ! -e /tmp/stop ]; do cat $p; done 2>/dev/null) & done; done; \
                      wait; echo over";
        vm.agent().output(&["rm", "-f", "/tmp/stop"], vm.soon())?;
        let limit = time * 10 + vm.soon() * 2;
        let readers = vm
            .agent()
            .spawn(&["sh", "-c", script, &paths[0], &paths[1]], &[], limit)?;
        let mut random = 0x2545_f491_u32;
        let mut rounds = 0;
        let start = Instant::now();
        // A slow kernel gets more time, so that something happens there too.
        while start.elapsed() < time || rounds < ROUNDS && start.elapsed() < 10 * time {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            let id = ids[random as usize & 1];
            match random >> 1 & 7 {
                0 => {
                    let act = ["drop_irq", "dup_event", "twice", "late ms=50"];
                    let act = act[random as usize >> 8 & 3];
                    vm.model(id)?
                        .run(&format!("fault op=QUERY_ADAPTER act={act}"))?;
                }
                1 | 2 if vm.driver_of(id)?.is_some() => {
                    let reset = vm.sysfs(id, "reset");
                    vm.agent().set(&reset, "1", vm.scaled(BRING_UP))?;
                }
                _ if vm.driver_of(id)?.is_some() => {
                    vm.unbind(id, DRIVER, vm.scaled(BRING_UP))?;
                }
                _ => vm.bind(id, DRIVER, vm.scaled(BRING_UP))?,
            }
            rounds += 1;
        }
        vm.agent().output(&["touch", "/tmp/stop"], vm.soon())?;
        let output = readers.finished(vm.soon() * 2)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(text.trim_end().ends_with("over"), "the readers did not end");
        let good = text
            .lines()
            .filter(|l| l.starts_with("ieee_vendor_id"))
            .count();
        println!(
            "{rounds} rounds, {good} queries answered in {:?}",
            start.elapsed()
        );
        ensure!(
            rounds >= ROUNDS && good > 20,
            "{rounds} rounds, {good} answers"
        );
        for id in ids {
            vm.model(id)?.run("faults clear")?;
            if vm.driver_of(id)?.is_none() {
                up(vm, id)?;
            }
            alive(vm, id)?;
            down(vm, id)?;
        }
        Ok(())
    })
}
