// SPDX-License-Identifier: GPL-2.0
//! Every command of bring-up fails, in every way, and leaves nothing behind.
//!
//! Which commands there are is found out by a good bring-up.

use crate::driver::{alive, counter, down, gone, load_quiet, up, BRING_UP};
use crate::{in_short, is_long, Lab, Test, KASAN, TEST};
use anyhow::{bail, ensure, Context, Result};
use mlx5_model::device::State;
use mlx5_vm::vm::{DeviceId, Vm, DRIVER};
use std::collections::HashMap;

pub const TESTS: &[Test] = &[
    // In short, each command is refused in one of the ways.
    Test::new("faults::every_command_refused", TEST, |lab| {
        every_command(lab, &[BAD_PARAM, LIMIT, INTERNAL], in_short(3))
    }),
    Test::new("faults::every_command_never_answered", TEST, |lab| {
        every_command(lab, &[NEVER], in_short(2))
    }),
    // Slow under KASAN: in short, every second command fails in one of the ways.
    Test::new("faults::every_command_one_way", KASAN, |lab| {
        every_command(lab, &[BAD_PARAM, LIMIT, INTERNAL, NEVER], in_short(8))
    }),
    Test::new(
        "faults::undelivered_and_corrupt",
        TEST,
        undelivered_and_corrupt,
    )
    .long_on(KASAN),
    Test::new("faults::device_without_issi", TEST, device_without_issi),
];

const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const ETIMEDOUT: i32 = 110;

/// Command timeout in these tests, before it is scaled: short, since every
/// command is once not answered, and long for a model on a busy machine.
const TIMEOUT_MS: u32 = 400;

/// A way to fail.
#[derive(Debug, Clone, Copy)]
enum Way {
    Status {
        name: &'static str,
        code: u8,
        errno: i32,
    },
    Never,
}

const BAD_PARAM: Way = Way::Status {
    name: "BAD_PARAM_ERR",
    code: 0x3,
    errno: EINVAL,
};
const LIMIT: Way = Way::Status {
    name: "LIM_ERR",
    code: 0x8,
    errno: ENOMEM,
};
const INTERNAL: Way = Way::Status {
    name: "INT_ERR",
    code: 0x1,
    errno: EIO,
};
const NEVER: Way = Way::Never;

/// A command of bring-up.
#[derive(Debug, Clone)]
struct Step {
    opcode: u16,
    name: String,
    op_mod: u16,
    uid: u16,
    /// How many with the same opcode and modifier come before it.
    before: u64,
}

/// The commands of a good bring-up, in order.
fn discover(vm: &mut Vm, id: DeviceId) -> Result<Vec<Step>> {
    let since = vm.model(id)?.status()?.commands;
    up(vm, id)?;
    let commands = vm.model(id)?.commands(since)?;
    down(vm, id)?;
    let mut seen = HashMap::new();
    let steps: Vec<Step> = commands
        .into_iter()
        .map(|command| {
            let before = seen.entry((command.opcode, command.op_mod)).or_insert(0);
            let step = Step {
                opcode: command.opcode,
                name: command.name,
                op_mod: command.op_mod,
                uid: command.uid,
                before: *before,
            };
            *before += 1;
            step
        })
        .collect();
    // Guards against a test of nothing. The shortest bring-up has these.
    for needed in [
        "ENABLE_HCA",
        "QUERY_PAGES",
        "MANAGE_PAGES",
        "INIT_HCA",
        "CREATE_EQ",
    ] {
        ensure!(
            steps.iter().any(|step| step.name == needed),
            "no {needed} in {steps:?}"
        );
    }
    Ok(steps)
}

/// Numbers that look random and are the same in every run.
fn syndrome(at: usize, way: usize) -> u32 {
    let seed = (at as u32 * 31 + way as u32 + 1).wrapping_mul(0x9e37_79b9);
    (seed ^ seed >> 15).max(1)
}

fn every_command(lab: &Lab, ways: &[Way], spread: usize) -> Result<()> {
    lab.shared(|vm| {
        let timeout = TIMEOUT_MS * vm.manifest().kernel.slowness();
        load_quiet(vm, &format!("cmd_timeout_ms={timeout}"))?;
        let id = vm.add_device(&[])?;
        let steps = discover(vm, id)?;
        let mut failures = 0;
        for (at, step) in steps.iter().enumerate() {
            for (number, way) in ways.iter().enumerate() {
                if at % spread == number % spread {
                    let what = || format!("command {at} of bring-up, {step:?}, {way:?}");
                    fail_one(vm, id, step, *way, syndrome(at, number), timeout)
                        .with_context(what)?;
                    failures += 1;
                    // The next round gets as far as this one and further.
                    if is_long() || at % 5 == 0 || at + 1 == steps.len() {
                        up(vm, id).with_context(what)?;
                        alive(vm, id).with_context(what)?;
                        down(vm, id).with_context(what)?;
                    }
                }
            }
        }
        println!("{failures} failures at {} commands", steps.len());
        vm.hunt_leaks();
        Ok(())
    })
}

fn fail_one(
    vm: &mut Vm,
    id: DeviceId,
    step: &Step,
    way: Way,
    syndrome: u32,
    timeout: u32,
) -> Result<()> {
    let Step {
        opcode,
        name,
        op_mod,
        uid,
        before,
    } = step;
    let which = format!("fault op={opcode:#x} op_mod={op_mod} skip={before} count=1");
    let (fault, errno, reason) = match way {
        Way::Status { name, code, errno } => (
            format!("act=status status={code:#x} syndrome={syndrome:#x}"),
            errno,
            format!(r"{name}\({code:#x}\) syndrome {syndrome:#x} \(0x{code:08x}{syndrome:08x}\)"),
        ),
        Way::Never => (
            "act=never".to_owned(),
            ETIMEDOUT,
            format!(r"timed out after {timeout} ms \(slot \d+\)"),
        ),
    };
    vm.model(id)?.run(&format!("{which} {fault}"))?;
    let mark = vm.mark()?;
    match vm.bind(id, DRIVER, vm.scaled(BRING_UP)) {
        Ok(()) => bail!("the device came up"),
        Err(error) => ensure!(
            error.errno() == Some(errno),
            "{error}, expected errno {errno}"
        ),
    }
    let hits: u64 = vm
        .model(id)?
        .control()
        .faults()?
        .faults
        .iter()
        .map(|f| f.hits)
        .sum();
    ensure!(hits == 1, "the fault struck {hits} times");

    let failed = format!("{DRIVER} {}: bring-up failed at ", vm.bdf(id));
    let log = vm.log_since(mark)?;
    let lines: Vec<_> = log
        .iter()
        .filter(|line| line.starts_with(&failed))
        .collect();
    ensure!(
        lines.len() == 1,
        "{} lines {failed:?} in:\n{}",
        lines.len(),
        log.join("\n")
    );
    let pattern = format!(
        r"^{failed}[A-Za-z0-9 ]+: {name}\({opcode:#x}\) op_mod {op_mod:#x} uid {uid}: {reason}, error -{errno}$"
    );
    let regex = regex::Regex::new(&pattern)?;
    ensure!(
        regex.is_match(lines[0]),
        "{:?}, expected {pattern:?}",
        lines[0]
    );

    gone(vm, id)?;
    let status = vm.model(id)?.status()?;
    if let Way::Status { .. } = way {
        ensure!(
            status.state == State::Reset,
            "model: state {:?}",
            status.state
        );
        ensure!(
            status.pages.given == 0,
            "model: {} pages left",
            status.pages.given
        );
        ensure!(
            status.eqs.is_empty() && status.uars.is_empty(),
            "model: {status:?}"
        );
    }
    vm.model(id)?.control().clear_faults()?;
    Ok(())
}

/// Delivery failures and broken replies at the first command, at one with
/// mailboxes, and at the last one.
fn undelivered_and_corrupt(lab: &Lab) -> Result<()> {
    const EBADR: i32 = 53;
    const EFAULT: i32 = 14;
    const ENOMSG: i32 = 42;
    const EPROTO: i32 = 71;
    lab.shared(|vm| {
        let timeout = TIMEOUT_MS * vm.manifest().kernel.slowness();
        load_quiet(vm, &format!("cmd_timeout_ms={timeout}"))?;
        let id = vm.add_device(&[])?;
        let faults = [
            ("act=delivery delivery=0x1", EBADR, "not delivered, "),
            ("act=delivery delivery=0x3", EFAULT, "not delivered, "),
            ("act=delivery delivery=0x6", EIO, "not delivered, "),
            ("act=delivery delivery=0x9", ENOMSG, "not delivered, "),
            ("act=delivery delivery=0x7f", EINVAL, "not delivered, "),
            ("act=bad_token", EPROTO, "corrupt reply, "),
        ];
        // Inline, long reply, long request, and with memory handed over.
        let ops = ["ENABLE_HCA", "QUERY_HCA_CAP", "MANAGE_PAGES", "CREATE_EQ"];
        for (at, (fault, errno, reason)) in faults.into_iter().enumerate() {
            // A broken reply matters most: at all of them.
            let ops = if fault == "act=bad_token" {
                &ops[..]
            } else {
                &ops[at % 4..][..1]
            };
            for op in ops {
                let what = || format!("{op} {fault}");
                vm.model(id)?.run(&format!("fault op={op} {fault}"))?;
                let mark = vm.mark()?;
                match vm.bind(id, DRIVER, vm.scaled(BRING_UP)) {
                    Ok(()) => bail!("{}: the device came up", what()),
                    Err(error) => {
                        ensure!(
                            error.errno() == Some(errno),
                            "{}: {error}, expected errno {errno}",
                            what()
                        );
                    }
                }
                let pattern = format!("bring-up failed at .*: {op}.*: {reason}");
                vm.wait_log(mark, &pattern, vm.soon()).with_context(what)?;
                if fault == "act=bad_token" {
                    // The device has done it, and the driver cannot know.
                    vm.model(id)?.control().violations(true)?;
                }
                gone(vm, id).with_context(what)?;
                vm.model(id)?.control().clear_faults()?;
                // The next round gets as far as this one and further.
                if is_long() || *op == "CREATE_EQ" {
                    up(vm, id).with_context(what)?;
                    down(vm, id).with_context(what)?;
                }
            }
        }
        // What is nonsense, but of the right form, may or may not be noticed.
        for op in [
            "QUERY_HCA_CAP",
            "QUERY_PAGES",
            "MANAGE_PAGES",
            "QUERY_ADAPTER",
            "CREATE_EQ",
            "ALLOC_UAR",
            "ACCESS_REG",
            "QUERY_ISSI",
        ] {
            let what = || format!("{op} garbage");
            vm.model(id)?
                .run(&format!("fault op={op} count=inf act=garbage"))?;
            if vm.bind(id, DRIVER, vm.scaled(BRING_UP)).is_ok() {
                vm.unbind(id, DRIVER, vm.scaled(BRING_UP))
                    .with_context(what)?;
            }
            ensure!(vm.driver_of(id)?.is_none());
            vm.model(id)?.control().clear_faults()?;
            // The driver did as it was told; that may have been wrong.
            vm.model(id)?.control().violations(true)?;
            up(vm, id).with_context(what)?;
            down(vm, id).with_context(what)?;
        }
        Ok(())
    })
}

/// The one command of bring-up that a device need not know (hardware.md 2.3,
/// step 8).
fn device_without_issi(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load_quiet(vm, "")?;
        let id = vm.add_device(&[])?;
        vm.model(id)?
            .run("fault op=QUERY_ISSI act=status status=0x2")?;
        up(vm, id)?;
        ensure!(counter(vm, id, "state", "issi")? == 0);
        // The model knows better, and complains; about this only.
        let seen = vm.model(id)?.control().violations(true)?;
        ensure!(
            seen.count == 1 && seen.violations[0].detail.contains("SET_ISSI"),
            "{seen:?}"
        );
        ensure!(vm.model(id)?.status()?.issi.is_none());
        down(vm, id)
    })
}
