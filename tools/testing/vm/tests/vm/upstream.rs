// SPDX-License-Identifier: GPL-2.0
//! The kernel's own mlx5_core on the model. What it fails is a wrong test or
//! a wrong model until shown otherwise.

use crate::driver::BRING_UP;
use crate::{Lab, Test, TEST};
use anyhow::{ensure, Context, Result};
use mlx5_model::device::State;
use mlx5_vm::manifest::Kernel;
use mlx5_vm::peer::{self, PEER, SCENARIOS};
use mlx5_vm::process::wait_until;
use mlx5_vm::vm::{DeviceId, Vm, DRIVER};

pub const TESTS: &[Test] = &[
    Test::new(
        "upstream::up_and_down",
        &[Kernel::Test, Kernel::Debian],
        up_and_down,
    ),
    Test::new("upstream::pages_and_events", TEST, pages_and_events),
    Test::new("upstream::first_commands_fail", TEST, first_commands_fail),
    Test::new("upstream::field_cases", TEST, field_cases),
];

/// Adds a device and loads the module, which does not bind by itself.
fn device(vm: &mut Vm, options: &[&str]) -> Result<DeviceId> {
    vm.autoprobe(false)?;
    let id = vm.add_device(options)?;
    vm.modprobe(PEER, vm.scaled(BRING_UP))?;
    Ok(id)
}

fn up(vm: &mut Vm, id: DeviceId) -> Result<()> {
    vm.bind(id, PEER, vm.scaled(BRING_UP))?;
    let status = vm.model(id)?.status()?;
    ensure!(
        status.state == State::Initialized,
        "model: {:?}",
        status.state
    );
    Ok(())
}

fn down(vm: &mut Vm, id: DeviceId) -> Result<()> {
    vm.unbind(id, PEER, vm.scaled(BRING_UP))?;
    let status = vm.model(id)?.status()?;
    ensure!(
        status.state == State::Reset && status.pages.given == 0,
        "model: {status:?}"
    );
    vm.model(id)?.check()
}

fn up_and_down(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        for options in [&[][..], &["--device", "cx5", "--port-type", "eth"]] {
            let id = device(vm, options)?;
            up(vm, id).with_context(|| format!("{options:?}"))?;
            down(vm, id).with_context(|| format!("{options:?}"))?;
        }
        vm.rmmod(PEER, vm.scaled(BRING_UP))?;
        Ok(())
    })
}

fn pages_and_events(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let id = device(vm, &[])?;
        up(vm, id)?;
        let before = vm.model(id)?.status()?.pages.given;
        let soon = vm.soon();
        for change in [40, 2000, -1000] {
            let given = vm.model(id)?.status()?.pages.given as i64;
            vm.model(id)?
                .run(&format!("page_request npages={change}"))?;
            let model = vm.model(id)?;
            wait_until(&format!("pages to change by {change}"), soon, || {
                Ok(model.status()?.pages.given as i64 == given + change)
            })?;
        }
        ensure!(vm.model(id)?.status()?.pages.given == before + 1040);
        // More events than the queue has entries.
        let eqs = vm.model(id)?.status()?.eqs;
        let eq = eqs
            .iter()
            .find(|eq| eq.events.contains(&0x9))
            .context("no EQ for port changes")?;
        let count = 2 * eq.size + 10;
        vm.model(id)?.run(&format!(
            "event eqn={} type=0x9 subtype=4 count={count}",
            eq.eqn
        ))?;
        let model = vm.model(id)?;
        wait_until("all events to be consumed", soon, || {
            let eqs = model.status()?.eqs;
            let now = eqs
                .iter()
                .find(|e| e.eqn == eq.eqn)
                .context("the EQ is gone")?;
            ensure!(!now.overrun, "{now:?}");
            Ok(now.backlog == 0 && now.ci == now.pi)
        })?;
        down(vm, id)?;
        vm.rmmod(PEER, vm.scaled(BRING_UP))?;
        Ok(())
    })
}

/// The commands that upstream, too, cannot do without.
fn first_commands_fail(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let id = device(vm, &[])?;
        for op in [
            "ENABLE_HCA",
            "QUERY_PAGES",
            "INIT_HCA",
            "ALLOC_UAR",
            "CREATE_EQ",
        ] {
            vm.model(id)?.run(&format!(
                "fault op={op} act=status status=0x3 syndrome=0x1234"
            ))?;
            let mark = vm.mark()?;
            let failed = vm.bind(id, PEER, vm.scaled(BRING_UP));
            ensure!(failed.is_err(), "{op}: it came up");
            vm.wait_log(mark, &format!("{op}.*0x1234"), vm.soon())
                .context(op)?;
            let status = vm.model(id)?.status()?;
            ensure!(
                status.pages.given == 0,
                "{op}: {} pages left",
                status.pages.given
            );
            up(vm, id).context(op)?;
            down(vm, id).context(op)?;
        }
        vm.rmmod(PEER, vm.scaled(BRING_UP))?;
        Ok(())
    })
}

/// Two rows of the table that `make peer` prints, so that what it is made of
/// works: of field cases that both drivers cope with.
fn field_cases(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        peer::load(vm)?;
        let id = vm.add_device(&[])?;
        for scenario in &SCENARIOS[..2] {
            for driver in [PEER, DRIVER] {
                let outcome = peer::run(vm, id, driver, scenario)?;
                println!("{}, {driver}: {outcome:?}", scenario.what);
                ensure!(
                    outcome.faults.is_empty() && !outcome.spent,
                    "{}, {driver}: {outcome:?}",
                    scenario.what
                );
                ensure!(
                    outcome.words.iter().any(|word| word == "binds again"),
                    "{outcome:?}"
                );
            }
        }
        vm.rmmod(PEER, vm.soon())?;
        vm.rmmod(peer::INJECTOR, vm.soon())?;
        Ok(())
    })
}
