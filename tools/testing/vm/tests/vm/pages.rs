// SPDX-License-Identifier: GPL-2.0
//! Firmware pages: given, taken back, released, refused; and the accounts.

use crate::driver::{alive, counter, counters, down, load, load_quiet, up, wait_counter};
use crate::{Lab, Test, BOTH, KASAN, TEST};
use anyhow::{ensure, Context, Result};
use mlx5_vm::process::wait_until;
use mlx5_vm::vm::{DeviceId, Vm};

pub const TESTS: &[Test] = &[
    Test::new("pages::give_and_take", BOTH, give_and_take),
    Test::new("pages::release_all", TEST, release_all).long_on(KASAN),
    Test::new(
        "pages::odd_answers_at_bring_up",
        TEST,
        odd_answers_at_bring_up,
    )
    .long_on(KASAN),
    Test::new("pages::nonsense_is_refused", TEST, nonsense_is_refused),
    Test::new("pages::requests_until_unbind", TEST, requests_until_unbind).long_on(KASAN),
];

/// Pages that the model has of function 0.
fn given(vm: &mut Vm, id: DeviceId) -> Result<u64> {
    Ok(vm.model(id)?.status()?.pages.given as u64)
}

/// Waits until both sides count `pages`.
fn settle(vm: &mut Vm, id: DeviceId, pages: u64) -> Result<()> {
    wait_counter(vm, id, "pages", "held", pages)?;
    let soon = vm.soon();
    let model = vm.model(id)?;
    wait_until(&format!("the model to have {pages} pages"), soon, || {
        Ok(model.status()?.pages.given as u64 == pages)
    })
}

fn give_and_take(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        let mut pages = given(vm, id)?;
        settle(vm, id, pages)?;
        // 768 pages fit one take, about 2000 one give: both sides of that.
        for change in [1i64, 100, -50, 3000, -1, -2900, 769, -769, 1, -1] {
            vm.model(id)?
                .run(&format!("page_request npages={change}"))?;
            pages = pages
                .checked_add_signed(change)
                .context("fewer than no pages")?;
            settle(vm, id, pages).with_context(|| format!("npages={change}"))?;
            vm.model(id)?.run("pages check")?;
        }
        // Another function has accounts of its own.
        vm.model(id)?.run("page_request function=3 npages=20")?;
        settle(vm, id, pages + 20)?;
        ensure!(counter(vm, id, "pages", "function 3 holds")? == 20);
        vm.model(id)?.run("page_request function=3 npages=-5")?;
        settle(vm, id, pages + 15)?;
        alive(vm, id)?;
        // Those left are taken back with the rest.
        down(vm, id)?;
        vm.hunt_leaks();
        Ok(())
    })
}

fn release_all(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load_quiet(vm, "")?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        let pages = given(vm, id)?;
        vm.model(id)?.run("page_request function=5 npages=700")?;
        settle(vm, id, pages + 700)?;
        let commands = vm.model(id)?.status()?.commands;
        vm.model(id)?.run("page_request function=5 release_all=1")?;
        settle(vm, id, pages)?;
        ensure!(counter(vm, id, "pages", "released")? == 700);
        // Without a command (field case C46).
        let after = vm.model(id)?.status()?.commands;
        ensure!(
            after == commands,
            "{} commands were issued",
            after - commands
        );
        // A function that has nothing.
        vm.model(id)?.run("page_request function=6 release_all=1")?;
        vm.model(id)?.run("page_request npages=1")?;
        settle(vm, id, pages + 1)?;
        alive(vm, id)?;
        down(vm, id)
    })
}

/// What QUERY_PAGES may answer: nothing, or even that pages are too many
/// (field case C14).
fn odd_answers_at_bring_up(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        for (boot, init) in [(0, 0), (0, 5000), (1, -7), (-1, 1), (i32::MIN, i32::MIN)] {
            let what = || format!("boot={boot} init={init}");
            vm.model(id)?.run(&format!("pages {}", what()))?;
            up(vm, id).with_context(what)?;
            let expected = boot.max(0) as u64 + init.max(0) as u64;
            settle(vm, id, expected).with_context(what)?;
            alive(vm, id).with_context(what)?;
            down(vm, id).with_context(what)?;
        }
        Ok(())
    })
}

fn nonsense_is_refused(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        let pages = given(vm, id)?;
        let refused = counter(vm, id, "pages", "refused")?;
        let soon = vm.soon();
        // More than there is: refused, and firmware is told.
        vm.model(id)?
            .run(&format!("page_request npages={}", i32::MAX))?;
        let model = vm.model(id)?;
        wait_until("firmware to be told that it gets no pages", soon, || {
            let functions = model.status()?.pages.functions;
            Ok(functions.iter().any(|function| function.refusals > 0))
        })?;
        ensure!(counter(vm, id, "pages", "refused")? > refused);
        settle(vm, id, pages)?;
        // Less than nothing, or nothing.
        for npages in [0, -1] {
            vm.model(id)?
                .run(&format!("page_request function=9 npages={npages}"))?;
        }
        vm.model(id)?.run("page_request npages=1")?;
        settle(vm, id, pages + 1)?;
        // The model gives back less than what it was asked for, and what was
        // never given: neither is believed.
        vm.model(id)?
            .run("fault op=MANAGE_PAGES op_mod=2 act=garbage")?;
        vm.model(id)?.run("page_request npages=-10")?;
        let mut last = counters(vm, id, "pages")?;
        wait_until("a bad return to be counted", soon, || {
            last = counters(vm, id, "pages")?;
            Ok(last.get("bad_returns").is_some_and(|n| *n > 0))
        })
        .with_context(|| format!("{last:?}"))?;
        alive(vm, id)?;
        // From here on the accounts differ, which teardown must survive.
        vm.model(id)?.control().clear_faults()?;
        vm.unbind(id, mlx5_vm::vm::DRIVER, vm.scaled(crate::driver::BRING_UP))?;
        up(vm, id)?;
        down(vm, id)
    })
}

fn requests_until_unbind(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        for _ in 0..3 {
            up(vm, id)?;
            for change in [50, -50, 80, -20, 700, -700] {
                vm.model(id)?
                    .run(&format!("page_request npages={change}"))?;
            }
            // No wait: teardown comes in between.
            down(vm, id)?;
        }
        Ok(())
    })
}
