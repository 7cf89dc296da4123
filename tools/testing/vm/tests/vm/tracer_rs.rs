// SPDX-License-Identifier: GPL-2.0
//! The firmware tracer under mlx5_rs: all that the device writes is read, in
//! order and with its time, or is told to be missing.

use crate::driver::{alive, counter, counters, debugfs, down, load, up, wait_counter, BRING_UP};
use crate::{is_long, Lab, Test, TEST};
use anyhow::{ensure, Context, Result};
use mlx5_model::tracer::Owner;
use mlx5_vm::manifest::Kernel;
use mlx5_vm::process::wait_until;
use mlx5_vm::tracer::{self, Item, Reading};
use mlx5_vm::vm::{DeviceId, Vm, DRIVER};
use std::time::Duration;

pub const TESTS: &[Test] = &[
    Test::new(
        "tracer_rs::reads_traces",
        &[Kernel::Test, Kernel::Debian],
        reads_traces,
    ),
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
        for config in ["config", &other] {
            traced(vm, config, "", |vm, id| {
                tracer::wait_ready(vm, id)?;
                let traces = if is_long() { 20_000 } else { 500 };
                let traffic = format!("rate=500 count={traces}");
                let timeout = vm.soon() * if is_long() { 10 } else { 1 };
                all_right(&read(vm, id, &traffic, timeout)?)?;
                let traffic = "rate=500 count=500 lost=100 interleave=4 torn=100 unreliable=50";
                let reading = read(vm, id, traffic, timeout)?;
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
