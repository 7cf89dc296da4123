// SPDX-License-Identifier: GPL-2.0
//! One kernel after another on the same device (field case C15).

use crate::driver::{alive, counter, down, load, up};
use crate::{own, Lab, Test, BOTH, KASAN, TEST};
use anyhow::{ensure, Context, Result};
use mlx5_model::device::State;
use mlx5_vm::process::wait_until;
use mlx5_vm::vm::{with, Boot, DeviceId, Handover, Vm, DRIVER};

pub const TESTS: &[Test] = &[
    Test::new("kexec::after_shutdown", TEST, after_shutdown).long_on(KASAN),
    // Less than what a crash leaves; the shutdown itself is in
    // `trouble::shutdown`.
    Test::new(
        "kexec::after_a_shutdown_that_failed",
        &[],
        after_a_shutdown_that_failed,
    )
    .long_on(BOTH),
    Test::new("kexec::after_a_crash", TEST, after_a_crash).long_on(KASAN),
];

/// Command timeout, before it is scaled.
const TIMEOUT_MS: u32 = 400;

/// Runs `body` in a guest that has its kernel twice.
fn twice(lab: &Lab, cmdline: &str, body: impl FnOnce(&mut Vm) -> Result<()>) -> Result<()> {
    let mut boot = Boot {
        next_kernel: true,
        ..own()
    };
    boot.cmdline.push(cmdline.into());
    with(Vm::boot(&lab.manifest, lab.test, &boot)?, body)
}

fn insert(vm: &Vm) -> Result<()> {
    let timeout = TIMEOUT_MS * vm.manifest().kernel.slowness();
    load(vm, &format!("cmd_timeout_ms={timeout}"))
}

/// What the second kernel does with the device: all that the first one could.
fn second_life(vm: &mut Vm, id: DeviceId) -> Result<()> {
    ensure!(!vm.is_loaded(DRIVER)?, "this is still the first kernel");
    insert(vm)?;
    for _ in 0..2 {
        up(vm, id)?;
        alive(vm, id)?;
        let held = counter(vm, id, "pages", "held")?;
        let given = vm.model(id)?.status()?.pages.given;
        ensure!(held == given as u64, "{held} and {given} pages");
        down(vm, id)?;
    }
    Ok(())
}

/// With the driver loaded and bound: shutdown leaves a device that is silent
/// and holds nothing.
fn after_shutdown(lab: &Lab) -> Result<()> {
    twice(lab, "", |vm| {
        insert(vm)?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        let before = vm.model(id)?.status()?;
        vm.kexec(Handover::Shutdown)?;
        let after = vm.model(id)?.status()?;
        ensure!(!after.bus_master, "it is still bus master");
        ensure!(
            after.nic_disables == before.nic_disables + 1,
            "the NIC interface was not disabled"
        );
        ensure!(
            after.state != State::Initialized && after.pages.given == 0 && after.eqs.is_empty(),
            "{after:?}"
        );
        second_life(vm, id)?;
        let end = vm.model(id)?.status()?;
        ensure!(
            end.stale_dropped == before.stale_dropped,
            "the second kernel met a running device"
        );
        Ok(())
    })
}

/// Firmware does not answer at shutdown: the device stays as it was, but for
/// the bus, and the second kernel finds it so.
fn after_a_shutdown_that_failed(lab: &Lab) -> Result<()> {
    twice(lab, "", |vm| {
        insert(vm)?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        vm.model(id)?
            .run("fault op=TEARDOWN_HCA count=inf act=never")?;
        vm.kexec(Handover::Shutdown)?;
        let after = vm.model(id)?.status()?;
        ensure!(!after.bus_master, "it is still bus master");
        ensure!(
            after.state == State::Initialized && after.pages.given > 0,
            "this was to be a device that was not torn down: {after:?}"
        );
        vm.model(id)?.run("faults clear")?;
        second_life(vm, id)?;
        let end = vm.model(id)?.status()?;
        ensure!(end.stale_dropped > after.stale_dropped, "{end:?}");
        Ok(())
    })
}

/// No shutdown at all: the device runs on, is bus master, owns memory of the
/// dead kernel and has a command in progress, when the next driver comes.
fn after_a_crash(lab: &Lab) -> Result<()> {
    twice(lab, "crashkernel=320M", |vm| {
        insert(vm)?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        vm.model(id)?
            .run("fault op=QUERY_ADAPTER count=inf act=never")?;
        let path = format!("/sys/kernel/debug/{DRIVER}/{}/query_adapter", vm.bdf(id));
        let limit = vm.soon();
        let _reader = vm.agent().spawn(&["cat", &path], &[], limit)?;
        let model = vm.model(id)?;
        wait_until("a command in flight", limit, || {
            Ok(!model.status()?.in_flight.is_empty())
        })?;
        vm.kexec(Handover::Crash)?;
        let after = vm.model(id)?.status()?;
        ensure!(
            after.bus_master && after.state == State::Initialized && !after.eqs.is_empty(),
            "this was to be a device that runs on: {after:?}"
        );
        // It has something to say, to a kernel that is no more.
        let eq = after.eqs.first().context("an EQ")?.eqn;
        vm.model(id)?
            .run(&format!("event eqn={eq} type=0x9 subtype=4 count=10"))?;
        vm.model(id)?.run("faults clear")?;
        second_life(vm, id)?;
        let end = vm.model(id)?.status()?;
        ensure!(end.stale_dropped > after.stale_dropped, "{end:?}");
        Ok(())
    })
}
