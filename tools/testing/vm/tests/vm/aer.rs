// SPDX-License-Identifier: GPL-2.0
//! Errors of the bus (AER), injected by the kernel's own aer_inject, and what
//! the driver makes of them (field case C22).

use crate::driver::{alive, counter, debugfs, down, gone, load, up, BRING_UP};
use crate::{Lab, Test, BOTH, KASAN, TEST};
use anyhow::{ensure, Context, Result};
use mlx5_vm::peer::{self, INJECTOR};
use mlx5_vm::process::wait_until;
use mlx5_vm::vm::{DeviceId, Vm, DRIVER};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    Test::new("aer::recovery", BOTH, recovery),
    Test::new("aer::silence_in_recovery", TEST, silence_in_recovery).long_on(KASAN),
    Test::new("aer::device_that_never_returns", TEST, never_returns),
];

/// An error, by its bit in the status register (`PCI_ERR_COR_*`,
/// `PCI_ERR_UNC_*` in pci_regs.h). Which of the uncorrectable ones are fatal
/// is what the device's severity register says.
#[derive(Debug, Clone, Copy)]
enum Error {
    /// Receiver error, corrected.
    Receiver,
    /// Completion timeout: not fatal.
    CompletionTimeout,
    /// Malformed TLP: fatal.
    MalformedTlp,
}

/// Has the kernel believe that the device has reported `error`.
fn inject(vm: &Vm, id: DeviceId, error: Error) -> Result<()> {
    let (uncorrectable, correctable) = match error {
        Error::Receiver => (0, 1),
        Error::CompletionTimeout => (1 << 14, 0),
        Error::MalformedTlp => (1 << 18, 0),
    };
    peer::inject(vm, &vm.bdf(id), uncorrectable, correctable)
        .with_context(|| format!("injecting {error:?}"))
}

/// A device that is up, and the injector.
fn device(vm: &mut Vm) -> Result<DeviceId> {
    // What a device that hangs says of its masks is not looked at.
    vm.modprobe_with(INJECTOR, "aer_mask_override=1", vm.soon())?;
    let timeout = 400 * vm.manifest().kernel.slowness();
    load(vm, &format!("cmd_timeout_ms={timeout}"))?;
    let id = vm.add_device(&[])?;
    up(vm, id)?;
    Ok(id)
}

/// The device is up for the `times`th time, and all is accounted for.
fn is_up_again(vm: &mut Vm, id: DeviceId, times: u64) -> Result<()> {
    let lifecycle = debugfs(vm, id, "lifecycle")?;
    ensure!(
        lifecycle.starts_with("state up\n") && counter(vm, id, "lifecycle", "bring_ups")? == times,
        "expected bring-up {times}: {lifecycle}"
    );
    alive(vm, id)?;
    let held = counter(vm, id, "pages", "held")?;
    let given = vm.model(id)?.status()?.pages.given;
    ensure!(held == given as u64, "{held} and {given} pages");
    vm.model(id)?.check()
}

fn finish(vm: &mut Vm, id: DeviceId) -> Result<()> {
    down(vm, id)?;
    vm.rmmod(INJECTOR, vm.soon())?;
    Ok(())
}

/// Errors of each severity: one that was corrected is none of the driver's
/// business; after any other one the slot is reset, and the device up again.
fn recovery(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let id = device(vm)?;
        let limit = vm.scaled(BRING_UP);
        let mark = vm.mark()?;
        inject(vm, id, Error::Receiver)?;
        vm.wait_log(mark, "severity=Correct", limit)?;
        is_up_again(vm, id, 1)?;

        let path = format!("/sys/kernel/debug/{DRIVER}/{}/query_adapter", vm.bdf(id));
        let errors = [
            (Error::CompletionTimeout, "normal"),
            (Error::MalformedTlp, "frozen"),
        ];
        let mut times = 1;
        for busy in [false, true] {
            for (error, channel) in errors {
                let what = || format!("{error:?}, busy: {busy}");
                let before = vm.model(id)?.status()?;
                let mut readers = Vec::new();
                if busy {
                    // Whoever waits for a command is told at once.
                    vm.model(id)?
                        .run("fault op=QUERY_ADAPTER count=4 act=never")?;
                    for _ in 0..4 {
                        readers.push(vm.agent().spawn(&["cat", &path], &[], limit)?);
                    }
                    let model = vm.model(id)?;
                    wait_until("commands in flight", limit, || {
                        Ok(model.status()?.in_flight.len() == 4)
                    })?;
                }
                let mark = vm.mark()?;
                inject(vm, id, error)?;
                for reader in readers {
                    let answer = reader.finished(limit)?;
                    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
                    ensure!(!text.starts_with("ieee_vendor_id"), "{}: {text}", what());
                }
                let pattern = format!("bus error, channel {channel}");
                vm.wait_log(mark, &pattern, limit).with_context(what)?;
                vm.wait_log(mark, "device recovery successful", limit)
                    .with_context(what)?;
                times += 1;
                is_up_again(vm, id, times).with_context(what)?;
                let resets = vm.model(id)?.status()?.device_resets;
                ensure!(
                    resets > before.device_resets,
                    "{}: the slot was not reset",
                    what()
                );
            }
        }
        finish(vm, id)
    })
}

/// The device hangs while it is recovered: until it has to answer, or beyond
/// that. Then it stays down, in order, and comes up when it can.
fn silence_in_recovery(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let id = device(vm)?;
        let limit = vm.scaled(BRING_UP);
        // The link, too, is down for a while; the kernel waits 1 s for it.
        vm.model(id)?.run("ones ms=500 config=1 reset=1")?;
        let mark = vm.mark()?;
        inject(vm, id, Error::MalformedTlp)?;
        vm.wait_log(mark, "device recovery successful", limit)?;
        is_up_again(vm, id, 2)?;

        vm.model(id)?.run("ones on")?;
        let mark = vm.mark()?;
        let start = Instant::now();
        inject(vm, id, Error::MalformedTlp)?;
        vm.wait_log(
            mark,
            "bring-up failed at wait for firmware: .*all ones",
            limit,
        )?;
        let bound = vm.scaled(Duration::from_secs(5));
        ensure!(start.elapsed() < bound, "it took {:?}", start.elapsed());
        wait_until("the device to be down", limit, || {
            Ok(debugfs(vm, id, "lifecycle")?.starts_with("state down\n"))
        })?;
        let mut folder = vm
            .agent()
            .list(&format!("/sys/kernel/debug/{DRIVER}/{}", vm.bdf(id)))?;
        folder.sort();
        ensure!(folder == ["health", "lifecycle"], "{folder:?}");
        ensure!(!vm.model(id)?.status()?.bus_master, "it is bus master");

        // Reset by hand, now that it answers: up again.
        vm.model(id)?.run("ones off")?;
        vm.agent().set(&vm.sysfs(id, "reset"), "1", limit)?;
        is_up_again(vm, id, 3)?;
        finish(vm, id)
    })
}

/// The link stays down: the kernel gives the device up, and the driver with
/// it, until somebody looks for it again.
fn never_returns(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let id = device(vm)?;
        vm.model(id)?.run("ones on config=1")?;
        let mark = vm.mark()?;
        inject(vm, id, Error::MalformedTlp)?;
        vm.wait_log(mark, "device recovery failed", vm.scaled(BRING_UP))?;
        ensure!(debugfs(vm, id, "lifecycle")?.starts_with("state gone\n"));
        ensure!(!vm.model(id)?.status()?.bus_master, "it is bus master");
        vm.unbind(id, DRIVER, vm.soon())?;
        gone(vm, id)?;
        vm.model(id)?.run("ones off")?;
        vm.renew(id)?;
        up(vm, id)?;
        alive(vm, id)?;
        finish(vm, id)
    })
}
