// SPDX-License-Identifier: GPL-2.0
//! Commands of a device that is up: many at once, and faults of all kinds.

use crate::driver::{
    alive, counter, debugfs, down, gone, load, load_quiet, query, up, wait_counter, BRING_UP,
};
use crate::{is_long, Lab, Test, BOTH, KASAN, TEST};
use anyhow::{bail, ensure, Context, Result};
use mlx5_vm::manifest::Kernel;
use mlx5_vm::process::wait_until;
use mlx5_vm::vm::{DeviceId, Vm, DRIVER};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    Test::new("commands::storm_of_32_threads", BOTH, storm_of_32_threads),
    Test::new("commands::all_slots_in_flight", TEST, all_slots_in_flight).long_on(KASAN),
    Test::new("commands::lost_interrupt", TEST, lost_interrupt).long_on(KASAN),
    Test::new(
        "commands::doubled_events_and_interrupts",
        TEST,
        doubled_events_and_interrupts,
    ),
    Test::new("commands::late_completion", TEST, late_completion).long_on(KASAN),
    Test::new(
        "commands::refusals_are_reported",
        TEST,
        refusals_are_reported,
    )
    .long_on(KASAN),
    Test::new(
        "commands::unbind_while_in_flight",
        TEST,
        unbind_while_in_flight,
    )
    .long_on(KASAN),
    Test::new(
        "commands::teardown_is_not_answered",
        TEST,
        teardown_is_not_answered,
    )
    .long_on(KASAN),
];

/// Threads in the storm, and slots of the model's queue.
const THREADS: u32 = 32;
const SLOTS: u32 = 32;

fn timeout_ms(vm: &Vm) -> u32 {
    500 * vm.manifest().kernel.slowness()
}

/// Loads with a short command timeout and brings a device up.
fn device(vm: &mut Vm) -> Result<DeviceId> {
    load_quiet(vm, &format!("cmd_timeout_ms={}", timeout_ms(vm)))?;
    let id = vm.add_device(&[])?;
    up(vm, id)?;
    Ok(id)
}

fn good(answer: &str) -> bool {
    answer.starts_with("ieee_vendor_id ")
}

/// How often the driver has issued an operation.
fn issued(vm: &Vm, id: DeviceId, name: &str) -> Result<u64> {
    let text = debugfs(vm, id, "commands")?;
    let row = text
        .lines()
        .find(|line| line.split_whitespace().next() == Some(name));
    let count = row.and_then(|row| row.split_whitespace().nth(2)?.parse().ok());
    count.with_context(|| format!("no {name} in:\n{text}"))
}

fn storm_of_32_threads(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let rounds: u64 = match vm.manifest().kernel {
            Kernel::Kasan if is_long() => 20,
            Kernel::Kasan => 5,
            _ => 100,
        };
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        // Answers take longer than a slow kernel needs to ask again, so that many
        // are in flight at once.
        let delay = 25 * vm.manifest().kernel.slowness();
        vm.model(id)?.run(&format!(
            "fault op=QUERY_ADAPTER count=inf act=delay ms={delay}"
        ))?;
        let before = issued(vm, id, "QUERY_ADAPTER")?;
        let path = format!("/sys/kernel/debug/{DRIVER}/{}/query_adapter", vm.bdf(id));
        let script = format!(
            "for t in $(seq {THREADS}); do \
             (for i in $(seq {rounds}); do read -r line < $0; echo \"$line\"; done) & done; wait"
        );
        let limit = vm.scaled(Duration::from_secs(120));
        let storm = vm
            .agent()
            .spawn(&["sh", "-c", &script, &path], &[], limit)?;
        let mut most = 0;
        let output = loop {
            most = most.max(vm.model(id)?.status()?.in_flight.len());
            match storm.finished(Duration::from_millis(20)) {
                Ok(finished) => break finished,
                Err(mlx5_vm::agent::GuestError::Timeout(_)) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let answers = text.lines().filter(|line| good(line)).count() as u64;
        let all = u64::from(THREADS) * rounds;
        ensure!(
            answers == all,
            "{answers} of {all} queries were answered: {:?}",
            output.status
        );
        let count = issued(vm, id, "QUERY_ADAPTER")? - before;
        ensure!(
            count == all,
            "the driver counts {count} commands, {all} were issued"
        );
        println!("{all} queries, up to {most} seen in flight at once");
        ensure!(most > 4, "at most {most} commands were in flight at once");
        vm.model(id)?.control().clear_faults()?;
        alive(vm, id)?;
        down(vm, id)?;
        vm.hunt_leaks();
        Ok(())
    })
}

/// Starts `count` queries that the model holds, and waits until `in_flight`
/// of them are with it.
fn hold(
    vm: &mut Vm,
    id: DeviceId,
    count: u32,
    in_flight: usize,
) -> Result<mlx5_vm::agent::Pending> {
    vm.model(id)?
        .run("fault op=QUERY_ADAPTER count=inf act=hold")?;
    let path = format!("/sys/kernel/debug/{DRIVER}/{}/query_adapter", vm.bdf(id));
    let script = format!("for t in $(seq {count}); do cat $0 & done; wait");
    let readers = vm
        .agent()
        .spawn(&["sh", "-c", &script, &path], &[], vm.soon() * 4)?;
    let soon = vm.soon();
    let model = vm.model(id)?;
    wait_until(&format!("{in_flight} commands in flight"), soon, || {
        Ok(model.status()?.in_flight.len() == in_flight)
    })?;
    Ok(readers)
}

fn all_slots_in_flight(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        // One slot is kept for pages: firmware may need some to go on.
        let readers = hold(vm, id, SLOTS + 8, SLOTS as usize - 1)?;
        ensure!(counter(vm, id, "state", "command_slots_busy")? == u64::from(SLOTS) - 1);
        let held = counter(vm, id, "pages", "held")?;
        vm.model(id)?.run("page_request npages=5")?;
        wait_counter(vm, id, "pages", "held", held + 5)
            .context("pages must go through while all other slots are in use")?;
        vm.model(id)?.control().clear_faults()?;
        let released = vm.model(id)?.control().release()?.released;
        ensure!(
            released == SLOTS as usize - 1,
            "{released} commands were held"
        );
        let output = readers.finished(vm.soon())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let answers = text.lines().filter(|line| good(line)).count();
        ensure!(answers == SLOTS as usize + 8, "{answers} answers:\n{text}");
        alive(vm, id)?;
        down(vm, id)
    })
}

fn lost_interrupt(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let id = device(vm)?;
        for act in ["drop_irq", "drop_event"] {
            vm.model(id)?
                .run(&format!("fault op=QUERY_ADAPTER act={act}"))?;
            let mark = vm.mark()?;
            let answer = query(vm, id)?;
            ensure!(good(&answer), "{act}: {answer}");
            vm.wait_log(mark, "recovered after timeout", vm.soon())
                .context(act)?;
            alive(vm, id).context(act)?;
        }
        down(vm, id)
    })
}

fn doubled_events_and_interrupts(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let id = device(vm)?;
        for act in ["dup_irq", "dup_event", "twice"] {
            vm.model(id)?
                .run(&format!("fault op=QUERY_ADAPTER count=20 act={act}"))?;
            for _ in 0..20 {
                let answer = query(vm, id)?;
                ensure!(good(&answer), "{act}: {answer}");
            }
            alive(vm, id).context(act)?;
        }
        // Interrupts with nothing behind them.
        for vector in 0..3 {
            vm.model(id)?
                .run(&format!("irq vector={vector} count=1000"))?;
        }
        alive(vm, id)?;
        down(vm, id)
    })
}

fn late_completion(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let id = device(vm)?;
        let timeout = timeout_ms(vm);
        for round in 0..3 {
            let late = timeout * 3;
            vm.model(id)?
                .run(&format!("fault op=QUERY_ADAPTER act=late ms={late}"))?;
            let mark = vm.mark()?;
            let answer = query(vm, id)?;
            let expected = format!("timed out after {timeout} ms");
            ensure!(answer.contains(&expected), "round {round}: {answer}");
            ensure!(counter(vm, id, "state", "command_slots_orphaned")? == 1);
            // The other slots work.
            let next = query(vm, id)?;
            ensure!(good(&next), "round {round}: {next}");
            vm.wait_log(mark, "completion arrived after timeout", vm.soon())?;
            alive(vm, id)?;
        }
        down(vm, id)
    })
}

fn refusals_are_reported(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let id = device(vm)?;
        let cases = [
            (
                "act=status status=0x6 syndrome=0xabcdef",
                "RES_BUSY(0x6) syndrome 0xabcdef (0x0000000600abcdef)",
            ),
            (
                "act=status status=0x50 syndrome=1",
                "BAD_INP_LEN_ERR(0x50) syndrome 0x1 (0x0000005000000001)",
            ),
            ("act=delivery delivery=0x6", "not delivered, "),
            ("act=bad_token", "corrupt reply, "),
        ];
        for (fault, expected) in cases {
            vm.model(id)?
                .run(&format!("fault op=QUERY_ADAPTER {fault}"))?;
            let answer = query(vm, id)?;
            let expected = format!("QUERY_ADAPTER(0x101) op_mod 0x0 uid 0: {expected}");
            ensure!(
                answer.contains(&expected),
                "{fault}: {answer}, expected {expected}"
            );
            let next = query(vm, id)?;
            ensure!(good(&next), "after {fault}: {next}");
        }
        let text = debugfs(vm, id, "commands")?;
        let row = text
            .lines()
            .find(|line| line.starts_with("QUERY_ADAPTER "))
            .unwrap_or("");
        let failed = row.split_whitespace().nth(3);
        ensure!(failed == Some("4"), "failures in {row:?}, expected 4");
        down(vm, id)
    })
}

fn unbind_while_in_flight(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let id = device(vm)?;
        let readers = hold(vm, id, 8, 8)?;
        let start = Instant::now();
        vm.unbind(id, DRIVER, vm.scaled(BRING_UP))?;
        let bound = vm.soon();
        ensure!(start.elapsed() < bound, "unbind took {:?}", start.elapsed());
        readers.finished(vm.soon())?;
        gone(vm, id)?;
        // What the model still holds is of no consequence for the next one.
        vm.model(id)?.control().clear_faults()?;
        vm.model(id)?.control().release()?;
        up(vm, id)?;
        alive(vm, id)?;
        down(vm, id)
    })
}

fn teardown_is_not_answered(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load(vm, &format!("cmd_timeout_ms={}", timeout_ms(vm)))?;
        let id = vm.add_device(&[])?;
        for op in [
            "DESTROY_EQ",
            "DEALLOC_UAR",
            "TEARDOWN_HCA",
            "MANAGE_PAGES op_mod=2",
            "DISABLE_HCA",
        ] {
            up(vm, id).context(op)?;
            for act in ["never", "status status=0x1 syndrome=0x77"] {
                if vm.driver_of(id)?.is_none() {
                    up(vm, id).context(op)?;
                }
                vm.model(id)?
                    .run(&format!("fault op={op} count=inf act={act}"))?;
                let start = Instant::now();
                if let Err(error) = vm.unbind(id, DRIVER, vm.scaled(BRING_UP)) {
                    bail!("{op} {act}: {error}");
                }
                ensure!(
                    start.elapsed() < vm.soon(),
                    "{op} {act}: took {:?}",
                    start.elapsed()
                );
                if act != "never" {
                    // Going on with what the refusal left is all it can do.
                    vm.model(id)?.control().violations(true)?;
                }
                gone(vm, id).with_context(|| format!("{op} {act}"))?;
                vm.model(id)?.control().clear_faults()?;
            }
        }
        up(vm, id)?;
        alive(vm, id)?;
        down(vm, id)
    })
}
