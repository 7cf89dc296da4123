// SPDX-License-Identifier: GPL-2.0
//! Commands that wait for a slot: more callers than a short queue has slots.

use crate::driver::{alive, counter, debugfs, down, gone, load_quiet, up, wait_counter, BRING_UP};
use crate::{Lab, Test, KASAN, TEST};
use anyhow::{ensure, Context, Result};
use mlx5_vm::agent::Pending;
use mlx5_vm::process::wait_until;
use mlx5_vm::vm::{DeviceId, Vm, DRIVER};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    Test::new(
        "queue::waiting_is_not_the_devices_time",
        TEST,
        waiting_is_not_the_devices_time,
    )
    .long_on(KASAN),
    Test::new("queue::stuck_slots", TEST, stuck_slots).long_on(KASAN),
    Test::new("queue::unbind", TEST, unbind).long_on(KASAN),
];

/// Regular slots of the short queue; one more is for pages.
const SLOTS: usize = 3;

/// Callers.
const CALLERS: usize = 15;

/// A device with a short queue, up, with this command timeout.
fn device(vm: &mut Vm, timeout: u32) -> Result<DeviceId> {
    load_quiet(vm, &format!("cmd_timeout_ms={timeout}"))?;
    let id = vm.add_device(&[])?;
    vm.model(id)?.run("initseg field=log_cmdq_size value=2")?;
    up(vm, id)?;
    Ok(id)
}

/// Starts the callers; all slots are in use and the others wait when it
/// returns.
fn call(vm: &mut Vm, id: DeviceId) -> Result<Pending> {
    let path = format!("/sys/kernel/debug/{DRIVER}/{}/query_adapter", vm.bdf(id));
    // All of them are there when the first one calls, however slow the machine is;
    // and each reads at once, since the file may go.
    let script = format!(
        "mkfifo /tmp/gate && exec 9<>/tmp/gate && rm /tmp/gate; \
         for t in $(seq {CALLERS}); do \
         (read -r go <&9; exec cat $0) & done; \
         seq {CALLERS} >&9; wait"
    );
    let callers = vm
        .agent()
        .spawn(&["sh", "-c", &script, &path], &[], vm.soon() * 4)?;
    let soon = vm.soon();
    let model = vm.model(id)?;
    wait_until("all slots to be in use", soon, || {
        Ok(model.status()?.in_flight.len() == SLOTS)
    })?;
    wait_counter(vm, id, "state", "commands_queued", (CALLERS - SLOTS) as u64)?;
    Ok(callers)
}

/// What the callers were told, and how often.
fn answers(output: &[u8], part: &str) -> usize {
    let text = String::from_utf8_lossy(output);
    text.lines().filter(|line| line.contains(part)).count()
}

/// Callers wait for a slot for longer than a command may take, and none of
/// them times out: the device's clock starts at the doorbell (field case C5).
fn waiting_is_not_the_devices_time(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let timeout = 1200 * vm.manifest().kernel.slowness();
        let delay = timeout / 2;
        let id = device(vm, timeout)?;
        vm.model(id)?.run(&format!(
            "fault op=QUERY_ADAPTER count=inf act=delay ms={delay}"
        ))?;
        let mark = vm.mark()?;
        let callers = call(vm, id)?;
        let output = callers.finished(vm.soon() * 2)?;
        let good = answers(&output.stdout, "ieee_vendor_id ");
        ensure!(
            good == CALLERS,
            "{good} of {CALLERS} answers: {}",
            String::from_utf8_lossy(&output.stdout)
        );
        let late = vm.log_since(mark)?;
        ensure!(
            !late.iter().any(|line| line.contains(DRIVER)),
            "the driver complains: {late:?}"
        );
        let text = debugfs(vm, id, "commands")?;
        let row = text
            .lines()
            .find(|line| line.starts_with("QUERY_ADAPTER "))
            .with_context(|| text.clone())?;
        let words: Vec<&str> = row.split_whitespace().collect();
        let us = |at: usize| -> Result<u64> { Ok(words.get(at).context("a column")?.parse()?) };
        let (device, queued_avg, queued) = (us(5)?, us(6)?, us(7)?);
        let limit = u64::from(timeout) * 1000;
        ensure!(device < limit, "{device} us with the device: {row}");
        ensure!(queued > limit, "only {queued} us in the queue: {row}");
        ensure!(
            queued_avg > limit / 2 && queued_avg < queued,
            "{queued_avg} us in the queue on average: {row}"
        );
        println!("up to {device} us with the device, up to {queued} us in the queue");
        alive(vm, id)?;
        ensure!(counter(vm, id, "state", "commands_queued")? == 0);
        down(vm, id)
    })
}

/// Every slot gets stuck while others wait for one: they fail as soon as that
/// is known, and do not wait in vain.
fn stuck_slots(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let timeout = 500;
        let id = device(vm, timeout)?;
        vm.model(id)?
            .run("fault op=QUERY_ADAPTER count=inf act=never")?;
        let callers = call(vm, id)?;
        let start = Instant::now();
        let output = callers.finished(vm.soon())?;
        // Time and grace of one command, though they would have had five rounds.
        let limit = Duration::from_millis(u64::from(timeout) * 2) + Duration::from_secs(1);
        ensure!(start.elapsed() < limit, "it took {:?}", start.elapsed());
        let expired = answers(&output.stdout, "timed out after");
        let sent_away = answers(&output.stdout, "all 3 slots belong to commands");
        ensure!(
            expired == SLOTS && sent_away == CALLERS - SLOTS,
            "{expired} timed out, {sent_away} were sent away: {}",
            String::from_utf8_lossy(&output.stdout)
        );
        vm.model(id)?.run("faults clear")?;
        wait_counter(vm, id, "state", "command_slots_orphaned", 0)?;
        alive(vm, id)?;
        down(vm, id)
    })
}

/// The driver is unbound: who waits for a slot fails at once, and those whose
/// commands the device has do not keep the unbind longer than their time.
fn unbind(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let timeout = 3000;
        let id = device(vm, timeout)?;
        vm.model(id)?
            .run("fault op=QUERY_ADAPTER count=inf act=hold")?;
        let callers = call(vm, id)?;
        let before = vm.model(id)?.status()?.commands;
        let start = Instant::now();
        vm.unbind(id, DRIVER, vm.scaled(BRING_UP))?;
        let limit = Duration::from_millis(timeout.into()) + Duration::from_secs(5);
        ensure!(start.elapsed() < limit, "it took {:?}", start.elapsed());
        let output = callers.finished(vm.soon())?;
        let refused = answers(&output.stdout, "the command interface is down");
        ensure!(
            refused == CALLERS - SLOTS,
            "{refused} were refused: {}",
            String::from_utf8_lossy(&output.stdout)
        );
        let queries = vm
            .model(id)?
            .commands(before)?
            .into_iter()
            .filter(|command| command.name == "QUERY_ADAPTER")
            .count();
        ensure!(
            queries == 0,
            "{queries} queries were sent during the unbind"
        );
        gone(vm, id)?;
        vm.model(id)?.run("faults clear")?;
        vm.model(id)?.control().release()?;
        up(vm, id)?;
        alive(vm, id)?;
        down(vm, id)
    })
}
