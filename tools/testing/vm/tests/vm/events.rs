// SPDX-License-Identifier: GPL-2.0
//! Event queues: more events than entries, and events that make no sense.

use crate::driver::{alive, counter, debugfs, down, load, queue, queues, up};
use crate::{Lab, Test, BOTH, KASAN, TEST};
use anyhow::{ensure, Context, Result};
use mlx5_vm::process::wait_until;
use mlx5_vm::vm::{DeviceId, Vm, DRIVER};

pub const TESTS: &[Test] = &[
    Test::new("events::queues_wrap", TEST, queues_wrap).long_on(KASAN),
    Test::new("events::hostile", BOTH, hostile),
];

/// Port change: the asynchronous queue takes it, and nothing follows from it.
const PORT_CHANGE: u8 = 0x9;
const COMPLETION: u8 = 0x0;
const COMMAND: u8 = 0xa;
const PAGE_REQUEST: u8 = 0xb;

/// Posts events and waits until the driver has handled them.
fn post(vm: &mut Vm, id: DeviceId, eqn: u8, event: &str, count: u64) -> Result<()> {
    let before = events(vm, id, eqn)?;
    vm.model(id)?
        .run(&format!("event eqn={eqn} count={count} {event}"))?;
    let mut seen = 0;
    wait_until(
        &format!("EQ {eqn} to see {count} events"),
        vm.soon() * 2,
        || {
            seen = events(vm, id, eqn)? - before;
            Ok(seen >= count)
        },
    )
    .with_context(|| format!("{seen} were seen"))
}

fn events(vm: &Vm, id: DeviceId, eqn: u8) -> Result<u64> {
    let all = queues(vm, id)?;
    let found = all.iter().find(|queue| queue.number == eqn);
    Ok(found
        .with_context(|| format!("no EQ {eqn}: {all:?}"))?
        .events)
}

fn no_overrun(vm: &mut Vm, id: DeviceId) -> Result<()> {
    for eq in vm.model(id)?.status()?.eqs {
        ensure!(!eq.overrun, "EQ {} overran: {eq:?}", eq.eqn);
        ensure!(eq.backlog == 0, "EQ {} has a backlog: {eq:?}", eq.eqn);
    }
    Ok(())
}

fn queues_wrap(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        let all = queues(vm, id)?;
        let pages = counter(vm, id, "pages", "held")?;
        for eq in &all {
            let kind = match eq.name.as_str() {
                "async" => PORT_CHANGE,
                "completion" => COMPLETION,
                // An event that asks for no pages.
                "pages" => PAGE_REQUEST,
                // An event that completes no command.
                "command" => COMMAND,
                other => anyhow::bail!("a queue {other:?} that this test does not know"),
            };
            let count = 2 * u64::from(eq.entries) + 10;
            post(vm, id, eq.number, &format!("type={kind:#x}"), count)
                .with_context(|| format!("{eq:?}"))?;
            alive(vm, id).with_context(|| format!("{eq:?}"))?;
            no_overrun(vm, id)?;
        }
        ensure!(counter(vm, id, "pages", "held")? == pages);
        // The same with real commands.
        let command = queue(vm, id, "command")?;
        let path = format!("/sys/kernel/debug/{DRIVER}/{}/query_adapter", vm.bdf(id));
        let script = format!(
            "for i in $(seq {}); do read -r line < $0; \
             case $line in ieee_vendor_id*) ;; *) echo \"$line\"; exit 1;; esac; done",
            2 * command.entries + 10
        );
        vm.agent()
            .output(&["sh", "-c", &script, &path], vm.soon() * 2)?;
        no_overrun(vm, id)?;
        down(vm, id)
    })
}

fn hostile(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        let pages = counter(vm, id, "pages", "held")?;
        let mut seed = 0x2545_f491_4f6c_dd1du64;
        let mut random = || {
            // xorshift64: the same events in every run.
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        for eq in queues(vm, id)? {
            let before = events(vm, id, eq.number)?;
            let mut posted = 0;
            for kind in 0..=u8::MAX {
                // Real page requests are another test's.
                if kind == PAGE_REQUEST {
                    continue;
                }
                let data: String = (0..28).map(|_| format!("{:02x}", random() as u8)).collect();
                let subtype = random() as u8;
                vm.model(id)?.run(&format!(
                    "event eqn={} type={kind:#x} subtype={subtype:#x} data={data}",
                    eq.number
                ))?;
                posted += 1;
            }
            wait_until(
                &format!("EQ {} to see all events", eq.number),
                vm.soon(),
                || Ok(events(vm, id, eq.number)? >= before + posted),
            )
            .with_context(|| format!("{eq:?}"))?;
            alive(vm, id).with_context(|| format!("{eq:?}"))?;
        }
        no_overrun(vm, id)?;
        // Counted by kind, the unknown ones too.
        let text = debugfs(vm, id, "eqs")?;
        let rows = text.lines().filter(|line| line.contains(" 0x")).count();
        ensure!(
            rows > 100,
            "only {rows} kinds of events are counted:\n{text}"
        );
        ensure!(counter(vm, id, "pages", "held")? == pages);
        down(vm, id)
    })
}
