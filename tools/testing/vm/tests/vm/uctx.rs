// SPDX-License-Identifier: GPL-2.0
//! User contexts: whom commands are issued for.

use crate::driver::{alive, debugfs, down, load_quiet, up};
use crate::{Lab, Test, KASAN, TEST};
use anyhow::{ensure, Context, Result};
use mlx5_model::cmdif::Record;
use mlx5_vm::vm::{DeviceId, Vm, DRIVER};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    Test::new(
        "uctx::commands_carry_the_users_uid",
        TEST,
        commands_carry_the_users_uid,
    )
    .long_on(KASAN),
    Test::new("uctx::capabilities", TEST, capabilities),
    Test::new("uctx::odd_uids", TEST, odd_uids),
    Test::new("uctx::failures_leave_nothing", TEST, failures_leave_nothing).long_on(KASAN),
    Test::new("uctx::ends_with_the_device", TEST, ends_with_the_device).long_on(KASAN),
];

/// What one user has the device do, in order.
const VISIT: [&str; 4] = ["CREATE_UCTX", "ALLOC_PD", "DEALLOC_PD", "DESTROY_UCTX"];

fn visit(vm: &Vm, id: DeviceId) -> Result<String> {
    debugfs(vm, id, "user_context")
}

/// The uid that a visit says it had.
fn uid(answer: &str) -> Option<u16> {
    answer.lines().next()?.strip_prefix("uid ")?.parse().ok()
}

/// Commands of visits since number `from`.
fn seen(vm: &mut Vm, id: DeviceId, from: u64) -> Result<Vec<Record>> {
    let mut list = vm.model(id)?.commands(from)?;
    list.retain(|command| VISIT.contains(&command.name.as_str()));
    Ok(list)
}

/// Many users at once: each has a uid of its own, all of its commands carry
/// it, and nothing is left of it.
fn commands_carry_the_users_uid(lab: &Lab) -> Result<()> {
    /// Users at a time, and times.
    const USERS: usize = 12;
    const TIMES: usize = 5;
    lab.shared(|vm| {
        load_quiet(vm, "")?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        let from = vm.model(id)?.status()?.commands;
        let answer = visit(vm, id)?;
        let one = uid(&answer).with_context(|| answer.clone())?;
        let commands = seen(vm, id, from)?;
        let names: Vec<&str> = commands.iter().map(|c| c.name.as_str()).collect();
        ensure!(names == VISIT, "{names:?}");
        let uids: Vec<u16> = commands.iter().map(|c| c.uid).collect();
        ensure!(uids == [0, one, one, 0], "{uids:?}, the user is {one}");

        // So slow that many are there at once.
        let delay = 30 * vm.manifest().kernel.slowness();
        vm.model(id)?
            .run(&format!("fault op=ALLOC_PD count=inf act=delay ms={delay}"))?;
        let from = vm.model(id)?.status()?.commands;
        let path = format!("/sys/kernel/debug/{DRIVER}/{}/user_context", vm.bdf(id));
        let script = format!(
            "for t in $(seq {USERS}); do \
             (for i in $(seq {TIMES}); do cat $0; done) & done; wait"
        );
        let text = vm
            .agent()
            .output(&["sh", "-c", &script, &path], vm.soon() * 4)?;
        let answered = text.lines().filter(|line| uid(line).is_some()).count();
        ensure!(answered == USERS * TIMES, "{answered} answers:\n{text}");
        vm.model(id)?.control().clear_faults()?;
        let commands = seen(vm, id, from)?;
        ensure!(commands.len() == USERS * TIMES * VISIT.len());
        let of = |name: &'static str| commands.iter().filter(move |c| c.name == name);
        ensure!(of("CREATE_UCTX")
            .chain(of("DESTROY_UCTX"))
            .all(|c| c.uid == 0));
        let users: BTreeSet<u16> = of("ALLOC_PD").map(|c| c.uid).collect();
        ensure!(
            users.len() > 2 && !users.contains(&0),
            "the uids were {users:?}"
        );
        // The model refuses a PD to all but its owner: no violation, no failure.
        ensure!(commands.iter().all(|c| c.status == Some(0)));
        println!("{answered} users, {} uids", users.len());
        alive(vm, id)?;
        down(vm, id)?;
        vm.hunt_leaks();
        Ok(())
    })
}

/// Without the capability the device is not asked, and completion queues are
/// the kernel's.
fn capabilities(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load_quiet(vm, "")?;
        let id = vm.add_device(&[])?;
        for (log, eq_uid) in [(8, 0xffff), (0, 0)] {
            vm.model(id)?.run(&format!(
                "cap page=general field=log_max_uctx cur={log} max={log}"
            ))?;
            let from = vm.model(id)?.status()?.commands;
            up(vm, id)?;
            let uids: Vec<u16> = vm
                .model(id)?
                .commands(from)?
                .iter()
                .filter(|command| command.name == "CREATE_EQ")
                .map(|command| command.uid)
                .collect();
            ensure!(uids == [0, 0, 0, eq_uid, eq_uid], "uids of EQs: {uids:?}");
            let answer = visit(vm, id)?;
            if log == 0 {
                let expected = "CREATE_UCTX(0xa04) op_mod 0x0 uid 0: \
                                the device does not have it, by its capability log_max_uctx";
                ensure!(answer == expected, "{answer}");
                ensure!(seen(vm, id, from)?.is_empty(), "the device was asked");
            } else {
                ensure!(uid(&answer).is_some(), "{answer}");
            }
            down(vm, id)?;
        }
        Ok(())
    })
}

/// A device that makes a user the kernel, or everybody.
fn odd_uids(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load_quiet(vm, "")?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        for odd in ["0000", "ffff"] {
            // The uid is at offset 10 of the reply.
            vm.model(id)?
                .run(&format!("fault op=CREATE_UCTX act=patch at=10 data={odd}"))?;
            let from = vm.model(id)?.status()?.commands;
            let answer = visit(vm, id)?;
            ensure!(answer.contains("corrupt reply, uid 0x"), "{odd}: {answer}");
            let names: Vec<String> = seen(vm, id, from)?.into_iter().map(|c| c.name).collect();
            ensure!(names == ["CREATE_UCTX"], "{odd}: {names:?}");
            ensure!(uid(&visit(vm, id)?).is_some(), "after {odd}");
        }
        alive(vm, id)?;
        // What the model made for the patched replies nobody can name.
        vm.unbind(id, DRIVER, vm.soon())?;
        let control = vm.model(id)?.control();
        let left = control.violations(true)?.violations;
        ensure!(
            left.iter().all(|v| v.rule == "objects_left_at_teardown"),
            "{left:?}"
        );
        Ok(())
    })
}

/// Each command of a visit is refused, or not answered: the error names
/// command and user, and the device goes on.
fn failures_leave_nothing(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let timeout = 300 * vm.manifest().kernel.slowness();
        load_quiet(vm, &format!("cmd_timeout_ms={timeout}"))?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        for name in VISIT {
            for (act, text) in [
                (
                    "status status=0x8 syndrome=0x99",
                    "LIM_ERR(0x8) syndrome 0x99",
                ),
                ("never", "timed out after"),
            ] {
                let what = format!("{name} {act}");
                vm.model(id)?.run(&format!("fault op={name} act={act}"))?;
                let mark = vm.mark()?;
                let answer = visit(vm, id)?;
                if name == "DESTROY_UCTX" {
                    // Nobody hears of it but the log: the visit itself went well.
                    ensure!(uid(&answer).is_some(), "{what}: {answer}");
                    let text_re = text.replace(['(', ')'], ".");
                    let line = format!("left with the device: {name}.* uid 0: .*{text_re}");
                    vm.wait_log(mark, &line, vm.soon()).context(what.clone())?;
                } else {
                    ensure!(answer.contains(text), "{what}: {answer}");
                    let kernel = answer.contains(" uid 0: ");
                    ensure!(kernel == (name == "CREATE_UCTX"), "{what}: {answer}");
                }
                ensure!(uid(&visit(vm, id)?).is_some(), "after {what}");
                // Lets the slot go that a silent command has; it may come too late for
                // its user.
                vm.model(id)?.control().clear_faults()?;
                vm.model(id)?.control().violations(true)?;
                alive(vm, id).context(what)?;
            }
        }
        // What the faults left is gone with the device.
        vm.unbind(id, DRIVER, vm.soon())?;
        Ok(())
    })
}

/// The device fails under its users: they hear of it at once, and nothing is
/// sent any more.
fn ends_with_the_device(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let timeout = 20_000;
        load_quiet(vm, &format!("cmd_timeout_ms={timeout}"))?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        vm.model(id)?.run("fault op=ALLOC_PD count=inf act=hold")?;
        let path = format!("/sys/kernel/debug/{DRIVER}/{}/user_context", vm.bdf(id));
        let script = "for t in $(seq 6); do cat $0 & done; wait";
        let users = vm
            .agent()
            .spawn(&["sh", "-c", script, &path], &[], vm.soon() * 2)?;
        let soon = vm.soon();
        let model = vm.model(id)?;
        mlx5_vm::process::wait_until("users in flight", soon, || {
            Ok(model.status()?.in_flight.len() == 6)
        })?;
        let from = model.status()?.commands;
        let start = Instant::now();
        model.run("ones on")?;
        let output = users.finished(vm.soon())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let limit = vm.scaled(Duration::from_secs(3));
        ensure!(start.elapsed() < limit, "it took {:?}", start.elapsed());
        let failed = text
            .lines()
            .filter(|line| line.contains("does not answer") || line.contains("is down"))
            .count();
        ensure!(failed == 6, "{text}");
        // The watchdog lets the device go sooner or later, and with it the file.
        let path = format!("/sys/kernel/debug/{DRIVER}/{}", vm.bdf(id));
        match visit(vm, id) {
            Ok(answer) => ensure!(
                answer.contains("the command interface is down")
                    || answer.contains("does not answer"),
                "{answer}"
            ),
            Err(error) => ensure!(
                !vm.agent().list(&path)?.contains(&"user_context".to_owned()),
                "{error:#}"
            ),
        }
        ensure!(vm.model(id)?.status()?.commands == from, "it was asked");
        vm.model(id)?.run("ones off")?;
        vm.unbind(id, DRIVER, vm.soon())?;
        vm.model(id)?.control().clear_faults()?;
        up(vm, id)?;
        ensure!(uid(&visit(vm, id)?).is_some());
        down(vm, id)
    })
}
