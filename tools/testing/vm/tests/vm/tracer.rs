// SPDX-License-Identifier: GPL-2.0
//! The firmware tracer under the kernel's own mlx5_core: what it reads of what
//! the device writes, and what it makes of a tracer that is taken from it.

use crate::{is_long, own, Lab, Test, TEST};
use anyhow::{ensure, Context, Result};
use mlx5_agent::proto::Call;
use mlx5_model::tracer::Owner;
use mlx5_vm::manifest::Kernel;
use mlx5_vm::process::wait_until;
use mlx5_vm::qemu::Hardware;
use mlx5_vm::tracer;
use mlx5_vm::tracer::Tally;
use mlx5_vm::vm::{with, Boot, DeviceId, Vm};
use std::time::Duration;

pub const TESTS: &[Test] = &[
    Test::new(
        "tracer::upstream_reads_traces",
        &[Kernel::Test, Kernel::Debian],
        upstream_reads_traces,
    ),
    Test::new("tracer::upstream_is_overrun", TEST, upstream_is_overrun),
    Test::new("tracer::upstream_loses_tracer", TEST, upstream_loses_tracer),
    // The tool looks below debugfs, where only this kernel has the trace.
    Test::new(
        "tracer::upstream_mstfwtrace",
        &[Kernel::Debian],
        upstream_mstfwtrace,
    )
    .on_root(),
];

const PEER: &str = "mlx5_core";

/// Time for a driver to come up or go down on the test kernel.
const BRING_UP: Duration = Duration::from_secs(30);

/// Runs `body` on a device under mlx5_core, with the trace event on.
fn upstream(
    vm: &mut Vm,
    config: &str,
    body: impl FnOnce(&mut Vm, DeviceId) -> Result<()>,
) -> Result<()> {
    vm.autoprobe(false)?;
    let id = vm.add_device(&[])?;
    vm.model(id)?.control().tracer(config)?;
    vm.modprobe(PEER, vm.scaled(BRING_UP))?;
    vm.bind(id, PEER, vm.scaled(BRING_UP))?;
    tracer::listen(vm, true)?;
    body(vm, id)?;
    tracer::listen(vm, false)?;
    vm.unbind(id, PEER, vm.scaled(BRING_UP))?;
    vm.model(id)?.check()?;
    vm.rmmod(PEER, vm.scaled(BRING_UP))?;
    Ok(())
}

/// All is there, and right but for the times, of which mlx5_core rebuilds
/// some wrongly (hardware.md section 4).
fn nothing_lost(t: Tally) -> Result<()> {
    ensure!(t.written > 0 && t.missing() == 0 && t.wrong() == 0, "{t:?}");
    Ok(())
}

fn upstream_reads_traces(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let size = if is_long() { "large" } else { "small" };
        let other = format!("config ver=1 db={size} time=0x1ffffff0000000");
        for config in ["config", &other] {
            upstream(vm, config, |vm, id| {
                tracer::wait_ready(vm, id)?;
                let traces = if is_long() { 20_000 } else { 500 };
                let traffic = format!("rate=500 count={traces}");
                let timeout = vm.soon() * if is_long() { 10 } else { 1 };
                nothing_lost(tracer::count(vm, id, &traffic, timeout)?)?;
                // Those that the device lost are not held against anybody.
                let traffic = "rate=500 count=500 lost=100 interleave=4 torn=100";
                let t = tracer::count(vm, id, traffic, timeout)?;
                ensure!(t.dropped > 0, "{t:?}");
                nothing_lost(t)
            })
            .with_context(|| config.to_owned())?;
        }
        Ok(())
    })
}

/// Whether the lists of mlx5_core's tracer are broken, of which the kernel
/// soon dies.
fn is_broken(vm: &Vm) -> bool {
    let console = vm.console_tail(400);
    let says = |what: &str| console.contains(what);
    says("mlx5_fw_tracer_handle_traces") && (says("Oops: ") || says("list_"))
}

/// Nothing is asked of mlx5_core but that it reads something; `make soak` shows
/// what it makes of ten million traces. It has been seen to bring its kernel
/// down: a message that is on its list of finished ones already, and gets the
/// parameters of another one with its number, is put there again. So it has a
/// guest of its own, and another one after that.
fn upstream_is_overrun(lab: &Lab) -> Result<()> {
    let traces = if is_long() { 10_000_000 } else { 120_000 };
    let boot = Boot {
        modules: vec![PEER.into()],
        ..own()
    };
    let (mut all, mut broken) = (Tally::default(), 0);
    let mut traffics = tracer::campaign(traces);
    while all.written + all.dropped < traces {
        let mut vm = Vm::boot(&lab.manifest, lab.test, &boot)?;
        let timeout = vm.soon() * 4;
        let counted = upstream(&mut vm, "config", |vm, id| {
            tracer::wait_ready(vm, id)?;
            for traffic in &mut traffics {
                let t = tracer::count(vm, id, &traffic, timeout);
                all.add(t.with_context(|| traffic)?);
                if all.written + all.dropped >= traces {
                    break;
                }
            }
            // And it finds its way back.
            tracer::count(vm, id, "rate=500 count=100", timeout)?;
            nothing_lost(tracer::count(vm, id, "rate=500 count=500", timeout)?)
        });
        match counted {
            _ if is_broken(&vm) => {
                broken += 1;
                println!("after {} traces its kernel is broken", all.written);
                ensure!(broken < 100, "{all:?}");
            }
            Ok(()) => vm.finish()?,
            Err(error) => return Err(vm.explain(error)),
        }
    }
    println!(
        "{all:?}, {} missing, {broken} broken kernels",
        all.missing()
    );
    ensure!(all.lines > 0 && all.missing() > 0, "{all:?}");
    Ok(())
}

fn upstream_loses_tracer(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        upstream(vm, "deny on", |vm, id| {
            let soon = vm.soon();
            let owner = |vm: &mut Vm, owner: Owner| {
                let control = vm.model(id)?.control();
                wait_until(&format!("the tracer to be {owner:?}'s"), soon, || {
                    let state = control.tracer("")?;
                    Ok(state.owner == owner && state.running == (owner == Owner::Driver))
                })
            };
            ensure!(vm.model(id)?.control().tracer("")?.owner == Owner::Nobody);
            for free in ["deny off", "give"] {
                // The event is what it waits for.
                vm.model(id)?.control().tracer(free)?;
                vm.model(id)?.run("event type=0x26 subtype=0")?;
                owner(vm, Owner::Driver).with_context(|| free.to_owned())?;
                tracer::wait_ready(vm, id)?;
                let t = tracer::count(vm, id, "rate=500 count=200", soon)?;
                nothing_lost(t).with_context(|| free.to_owned())?;
                let asked = vm.model(id)?.control().tracer("take")?.counters.refused;
                let control = vm.model(id)?.control();
                wait_until("the driver to ask again", soon, || {
                    Ok(control.tracer("")?.counters.refused > asked)
                })?;
            }
            // Events without a reason, of kinds that there are not, and twice.
            vm.model(id)?.control().tracer("give")?;
            owner(vm, Owner::Driver)?;
            // Not before it has found the first new block: it would take old
            // ones, which still are in the buffer, for new.
            tracer::wait_ready(vm, id)?;
            for subtype in [1, 1, 3, 255] {
                vm.model(id)?
                    .run(&format!("event type=0x26 subtype={subtype} count=10"))?;
            }
            vm.model(id)?.control().tracer("config double_events=5")?;
            nothing_lost(tracer::count(vm, id, "rate=500 count=200", soon)?)?;
            // The strings move.
            let read = vm.model(id)?.control().tracer("")?.counters.string_bytes;
            vm.model(id)?.control().tracer("update")?;
            let control = vm.model(id)?.control();
            wait_until("the driver to read the strings again", soon, || {
                let state = control.tracer("")?;
                Ok(state.running && state.counters.string_bytes > read)
            })?;
            tracer::clear(vm)?;
            Ok(())
        })
    })
}

/// Where Debian has the tool.
const MSTFLINT: &str = "/usr/lib/x86_64-linux-gnu/mstflint";

/// What the tool asks of the device before it reads the trace: that firmware
/// runs, and the number of a ConnectX-7. It asks through the vendor specific
/// capability, which the model does not have.
const STUBS: &[(&str, &str)] = &[
    (
        "mtcr.py",
        "class MstDevice:\n    def __init__(self, name): pass\n    def read4(self, at): return 0x218\n",
    ),
    (
        "cmdif.py",
        "class CmdIf:\n    def __init__(self, device): pass\n    def getFwInfo(self): pass\n",
    ),
];

/// Runs mstfwtrace, as Debian has it, until it has read the trace; what it
/// prints.
fn mstfwtrace(vm: &mut Vm, id: DeviceId) -> Result<String> {
    let (stubs, output) = ("/tmp/stubs", "/tmp/mstfwtrace");
    let agent = vm.agent();
    agent.output(&["mkdir", "-p", stubs], vm.soon())?;
    for (name, text) in STUBS {
        let path = format!("{stubs}/{name}");
        let write = "printf %s \"$1\" > \"$0\"";
        agent.output(&["/bin/sh", "-c", write, &path, text], vm.soon())?;
    }
    let tools = format!("{MSTFLINT}/python_tools");
    let path = format!("PYTHONPATH={stubs}:{tools}:{MSTFLINT}/python_ext_libs");
    let script = format!("{tools}/mstfwtrace/mstfwtrace.py");
    let bdf = vm.bdf(id);
    let run = format!("exec env {path} python3 {script} -d {bdf} > {output} 2>&1");
    // An interpreter takes its time to start here.
    let timeout = vm.scaled(Duration::from_secs(180));
    let tool = agent.spawn(&["/bin/sh", "-c", &run], &[], timeout)?;
    // It reads once a second until it is interrupted, and says so when it has
    // done it once.
    let read = wait_until("mstfwtrace to have read the trace", timeout, || {
        let text = agent.text(output).unwrap_or_default();
        Ok(text.contains("Read new events:") || text.contains("-E-"))
    });
    let (exec, signal) = (tool.id, 2);
    agent.call(Call::Signal { exec, signal }, vm.soon())?;
    tool.finished(vm.soon())?;
    let text = agent.text(output)?;
    read.with_context(|| text.clone())?;
    Ok(text)
}

/// The tool prints each trace whose time is greater than all before.
fn upstream_mstfwtrace(lab: &Lab) -> Result<()> {
    let boot = Boot {
        hardware: Hardware {
            ports: 1,
            ..Hardware::default()
        },
        root: true,
        modules: vec![PEER.into()],
        ..Boot::default()
    };
    with(Vm::boot(&lab.manifest, lab.test, &boot)?, |vm| {
        upstream(vm, "config", |vm, id| {
            tracer::wait_ready(vm, id)?;
            tracer::count(vm, id, "rate=500 count=100", vm.soon())?;
            check_mstfwtrace(vm, id)
        })
    })
}

/// Compares what mstfwtrace prints with the trace that there is.
pub fn check_mstfwtrace(vm: &mut Vm, id: DeviceId) -> Result<()> {
    let mut latest = 0;
    let mut expected = tracer::collect(vm)?;
    expected.retain(|line| {
        let later = line.time > latest;
        latest = latest.max(line.time);
        later
    });
    ensure!(expected.len() > 50, "{}", expected.len());
    let printed = mstfwtrace(vm, id)?;
    let lines: Vec<&str> = printed.lines().filter(|l| l.starts_with('[')).collect();
    let expected: Vec<String> = expected
        .iter()
        .map(|l| {
            let lost = u8::from(l.lost);
            format!("[{:#x}] {lost} [{:#x}] {}", l.time, l.id, l.message)
        })
        .collect();
    ensure!(lines == expected, "it printed:\n{printed}");
    Ok(())
}
