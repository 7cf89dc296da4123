// SPDX-License-Identifier: GPL-2.0
//! What all tests of the driver do: load, bind, look, unbind, check that
//! nothing is left.

use anyhow::{bail, ensure, Context, Result};
use mlx5_model::device::State;
use mlx5_vm::pci;
use mlx5_vm::process::wait_until;
use mlx5_vm::vm::{DeviceId, Vm, DRIVER};
use std::collections::BTreeMap;
use std::time::Duration;

/// Time for bring-up or teardown on the test kernel, when all goes well.
pub const BRING_UP: Duration = Duration::from_secs(30);

/// Loads the driver and keeps the kernel from binding it by itself.
pub fn load(vm: &Vm, params: &str) -> Result<()> {
    vm.autoprobe(false)?;
    vm.insmod(params, vm.scaled(BRING_UP))
        .with_context(|| format!("insmod mlx5_rs.ko {params}"))
}

/// The same without the firmware tracer: no command comes at a time of its own.
pub fn load_quiet(vm: &Vm, params: &str) -> Result<()> {
    load(vm, &format!("tracer=0 {params}"))
}

/// Binds the driver and waits for its line.
pub fn up(vm: &mut Vm, id: DeviceId) -> Result<String> {
    let mark = vm.mark()?;
    let timeout = vm.scaled(BRING_UP);
    if let Err(error) = vm.bind(id, DRIVER, timeout) {
        let log = vm.log_since(mark)?.join("\n");
        bail!(
            "{} did not come up: {error}; kernel log:\n{log}",
            vm.bdf(id)
        );
    }
    let pattern = format!(r"^{DRIVER} {}: ready: ", vm.bdf(id));
    vm.wait_log(mark, &pattern, vm.soon())
}

/// Unbinds the driver and checks that nothing is left.
pub fn down(vm: &mut Vm, id: DeviceId) -> Result<()> {
    vm.unbind(id, DRIVER, vm.scaled(BRING_UP))
        .with_context(|| format!("unbinding {}", vm.bdf(id)))?;
    gone(vm, id)?;
    let status = vm.model(id)?.status()?;
    ensure!(
        status.state == State::Reset,
        "model: state {:?} after unbind",
        status.state
    );
    ensure!(
        status.pages.given == 0,
        "model: {} pages not taken back",
        status.pages.given
    );
    ensure!(status.eqs.is_empty(), "model: EQs left: {:?}", status.eqs);
    ensure!(
        status.uars.is_empty(),
        "model: UARs left: {:?}",
        status.uars
    );
    ensure!(
        status.users.is_empty() && status.pds == 0,
        "model: users {:?} and {} PDs left",
        status.users,
        status.pds
    );
    ensure!(
        status.in_flight.is_empty(),
        "model: in flight: {:?}",
        status.in_flight
    );
    Ok(())
}

/// Checks that the guest has kept nothing of a device that the driver has let
/// go, or never got up.
pub fn gone(vm: &mut Vm, id: DeviceId) -> Result<()> {
    let bdf = vm.bdf(id);
    let driver = vm.driver_of(id)?;
    ensure!(driver.is_none(), "{bdf} is still bound to {driver:?}");
    let vectors = pci::vectors(vm.agent(), &bdf)?;
    ensure!(vectors == 0, "{bdf}: {vectors} MSI-X vectors left");
    let interrupts = vm.agent().text("/proc/interrupts")?;
    let left = interrupts
        .lines()
        .find(|l| l.contains(DRIVER) && l.contains(&bdf));
    ensure!(left.is_none(), "an interrupt is left: {left:?}");
    let names = vm.agent().list(&format!("/sys/kernel/debug/{DRIVER}"))?;
    ensure!(!names.contains(&bdf), "debugfs has still a folder {bdf}");
    let status = vm.model(id)?.status()?;
    ensure!(!status.bus_master, "{bdf} is still bus master");
    vm.model(id)?.check()
}

/// Text of a debugfs file of the driver.
pub fn debugfs(vm: &Vm, id: DeviceId, file: &str) -> Result<String> {
    let path = format!("/sys/kernel/debug/{DRIVER}/{}/{file}", vm.bdf(id));
    Ok(vm.agent().text(&path)?)
}

/// Lines `name number` of a debugfs file.
pub fn counters(vm: &Vm, id: DeviceId, file: &str) -> Result<BTreeMap<String, u64>> {
    Ok(debugfs(vm, id, file)?
        .lines()
        .filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        })
        .collect())
}

/// One of [`counters`].
pub fn counter(vm: &Vm, id: DeviceId, file: &str, name: &str) -> Result<u64> {
    let all = counters(vm, id, file)?;
    let value = all.get(name).copied();
    value.with_context(|| format!("debugfs {file} has no line {name:?}: {all:?}"))
}

/// Waits for a counter to have a value.
pub fn wait_counter(vm: &Vm, id: DeviceId, file: &str, name: &str, value: u64) -> Result<()> {
    let mut last = 0;
    wait_until(
        &format!("debugfs {file}: {name} {value}"),
        vm.soon(),
        || {
            last = counter(vm, id, file, name)?;
            Ok(last == value)
        },
    )
    .with_context(|| format!("{name} is {last}"))
}

/// Has the driver issue one command; the text says how it went.
pub fn query(vm: &Vm, id: DeviceId) -> Result<String> {
    debugfs(vm, id, "query_adapter")
}

/// Fails unless the device answers commands, with no slot in use after it.
pub fn alive(vm: &Vm, id: DeviceId) -> Result<()> {
    let answer = query(vm, id)?;
    ensure!(
        answer.starts_with("ieee_vendor_id "),
        "a query fails: {answer}"
    );
    wait_counter(vm, id, "state", "command_slots_busy", 0)?;
    wait_counter(vm, id, "state", "command_slots_orphaned", 0)
}

/// A row of debugfs `eqs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    pub name: String,
    pub number: u8,
    pub entries: u32,
    pub events: u64,
}

/// The event queues, as the driver sees them.
pub fn queues(vm: &Vm, id: DeviceId) -> Result<Vec<Queue>> {
    let text = debugfs(vm, id, "eqs")?;
    let mut queues = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [name, number, _vector, entries, _ci, events] = words[..] {
            if let (Ok(number), Ok(entries), Ok(events)) =
                (number.parse(), entries.parse(), events.parse())
            {
                queues.push(Queue {
                    name: name.into(),
                    number,
                    entries,
                    events,
                });
            }
        }
    }
    ensure!(!queues.is_empty(), "no queue in debugfs eqs:\n{text}");
    Ok(queues)
}

/// The event queue of a name.
pub fn queue(vm: &Vm, id: DeviceId, name: &str) -> Result<Queue> {
    let all = queues(vm, id)?;
    let found = all.iter().find(|queue| queue.name == name).cloned();
    found.with_context(|| format!("no {name} queue: {all:?}"))
}
