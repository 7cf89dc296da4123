// SPDX-License-Identifier: GPL-2.0
//! A device that cannot be told to stop writing to memory: no page that it
//! has is freed before that is sure.

use crate::driver::{alive, down, gone, load, load_quiet, up, BRING_UP};
use crate::{own, Lab, Test, KASAN, TEST};
use anyhow::{ensure, Context, Result};
use mlx5_vm::process::wait_until;
use mlx5_vm::vm::{with, DeviceId, Vm, DRIVER};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    Test::new(
        "silence::config_space_comes_back",
        TEST,
        config_space_comes_back,
    )
    .long_on(KASAN),
    Test::new("silence::hangs_for_good", TEST, hangs_for_good).long_on(KASAN),
    Test::new("silence::cannot_be_silenced", TEST, cannot_be_silenced),
    Test::new("silence::returns_pages_slowly", TEST, returns_pages_slowly).long_on(KASAN),
];

const TIMEOUT_MS: u32 = 400;

fn device(vm: &mut Vm) -> Result<DeviceId> {
    let timeout = TIMEOUT_MS * vm.manifest().kernel.slowness();
    load_quiet(vm, &format!("cmd_timeout_ms={timeout}"))?;
    let id = vm.add_device(&[])?;
    up(vm, id)?;
    Ok(id)
}

/// Unbinds, within the time that letting go may take.
fn let_go(vm: &mut Vm, id: DeviceId) -> Result<()> {
    let start = Instant::now();
    vm.unbind(id, DRIVER, vm.scaled(BRING_UP))?;
    let timeout = Duration::from_millis(TIMEOUT_MS.into());
    let limit = vm.scaled(timeout + Duration::from_secs(5));
    ensure!(start.elapsed() < limit, "it took {:?}", start.elapsed());
    Ok(())
}

/// Uses so much of the guest's memory that what was freed is written to.
fn churn(vm: &Vm) -> Result<()> {
    let script = "mkdir -p /tmp/churn && mount -t tmpfs -o size=90% none /tmp/churn; \
                  dd if=/dev/urandom of=/tmp/churn/seed bs=1M count=4 2>/dev/null; \
                  i=0; while [ $i -lt 120 ] && cat /tmp/churn/seed > /tmp/churn/$i; \
                  do i=$((i + 1)); done; umount /tmp/churn; echo $i";
    let limit = vm.scaled(Duration::from_secs(60));
    let files = vm.agent().output(&["sh", "-c", script], limit)?;
    let files: u32 = files.trim().parse().with_context(|| files.clone())?;
    ensure!(files > 100, "only {files} files of 4 MiB were written");
    Ok(())
}

/// The device is silent, configuration space too, in the middle of a
/// teardown, and comes back as it was before the driver has let go: bus
/// mastering is off then, though the first that the driver wrote was lost.
fn config_space_comes_back(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let id = device(vm)?;
        for (round, reads) in [4_u32, 12].into_iter().enumerate() {
            let before = vm.model(id)?.status()?;
            vm.model(id)?.run(&format!(
                "fault op=TEARDOWN_HCA act=ones config=1 reads={reads}"
            ))?;
            let_go(vm, id)?;
            let after = vm.model(id)?.status()?;
            ensure!(after.link == "up", "round {round}: it did not come back");
            ensure!(
                after.accesses.ones >= before.accesses.ones + u64::from(reads),
                "round {round}: it was not silent"
            );
            ensure!(
                after.master_clears == before.master_clears + 1 && !after.bus_master,
                "round {round}: it is still bus master"
            );
            ensure!(after.resets == before.resets, "round {round}: it was reset");
            gone(vm, id).with_context(|| format!("round {round}"))?;
            vm.model(id)?.run("faults clear")?;
            up(vm, id)?;
            alive(vm, id)?;
        }
        down(vm, id)?;
        vm.hunt_leaks();
        Ok(())
    })
}

/// The device hangs, and does not come back while it is waited for: a reset
/// of its link makes sure that it has forgotten what it could write to.
fn hangs_for_good(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let id = device(vm)?;
        let before = vm.model(id)?.status()?;
        vm.model(id)?
            .run("fault op=TEARDOWN_HCA act=ones config=1")?;
        let mark = vm.mark()?;
        let_go(vm, id)?;
        vm.wait_log(mark, "its link was reset", vm.soon())?;
        let after = vm.model(id)?.status()?;
        ensure!(
            after.device_resets > before.device_resets,
            "the model was not reset"
        );
        vm.model(id)?.run("ones off")?;
        let back = vm.model(id)?.status()?;
        ensure!(
            !back.bus_master && back.pages.given == 0,
            "it came back with {} pages",
            back.pages.given
        );
        vm.model(id)?.run("pages check")?;
        vm.model(id)?.run("faults clear")?;
        // Its BAR is gone too: a scan finds it as a new device.
        let bdf = vm.bdf(id);
        let soon = vm.soon();
        let remove = format!("/sys/bus/pci/devices/{bdf}/remove");
        vm.agent().set(&remove, "1", soon)?;
        vm.agent().set("/sys/bus/pci/rescan", "1", soon)?;
        wait_until("the device to be found again", soon, || {
            Ok(vm.agent().list("/sys/bus/pci/devices")?.contains(&bdf))
        })?;
        up(vm, id)?;
        alive(vm, id)?;
        down(vm, id)
    })
}

/// The device answers, but does not do what it is told, and it cannot be
/// reset, since another function shares its link: its memory is never freed.
fn cannot_be_silenced(lab: &Lab) -> Result<()> {
    // A guest of its own: the kernel's DMA debugging reports such memory once.
    let vm = Vm::boot(&lab.manifest, lab.test, &own())?;
    with(vm, |vm| {
        let timeout = TIMEOUT_MS * vm.manifest().kernel.slowness();
        load_quiet(vm, &format!("cmd_timeout_ms={timeout}"))?;
        let ids = vm.add_functions(&[&[], &[]])?;
        let id = *ids.first().context("function 0")?;
        up(vm, id)?;
        let before = vm.model(id)?.status()?;
        vm.model(id)?.run("deaf on")?;
        // Firmware goes on with the pages that it has.
        vm.model(id)?
            .run("fault op=TEARDOWN_HCA count=inf act=never")?;
        for line in [
            "DMA-API: .*device driver has pending DMA allocations",
            "DMA-API: Mapped at:",
            r"WARNING: .*device_dma_allocations|WARNING: .*dma_debug",
            "^Call Trace:",
        ] {
            vm.expect_defect(line);
        }
        let mark = vm.mark()?;
        let_go(vm, id)?;
        let pages = before.pages.given;
        for line in [
            "bus mastering cannot be turned off: no memory that the device had is freed".into(),
            format!("{pages} pages of {} KiB in all are never freed", pages * 4),
        ] {
            vm.wait_log(mark, &line, vm.soon())?;
        }
        let after = vm.model(id)?.status()?;
        ensure!(after.bus_master && after.pages.given == pages);
        ensure!(after.device_resets == before.device_resets, "it was reset");
        churn(vm)?;
        vm.model(id)?.run("pages check")?;
        vm.model(id)?.check().context("its pages were used")?;
        // It hears again: the next driver can have it.
        vm.model(id)?.run("deaf off")?;
        vm.model(id)?.run("faults clear")?;
        up(vm, id)?;
        alive(vm, id)?;
        down(vm, id)
    })
}

/// Firmware returns its pages one at a time, each in good time: letting go is
/// bounded all the same.
fn returns_pages_slowly(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        // DTOR has reclaim_pages_to at 0x30: 200 ms without a page end it, and
        // twelve times that in all.
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        vm.model(id)?
            .run("fault op=ACCESS_REG op_mod=1 act=patch at=0x40 data=000000c8")?;
        up(vm, id)?;
        vm.model(id)?
            .run("fault op=MANAGE_PAGES op_mod=2 count=inf act=delay ms=100")?;
        vm.model(id)?.run("pages return=1")?;
        let mark = vm.mark()?;
        let start = Instant::now();
        vm.unbind(id, DRIVER, vm.scaled(BRING_UP))?;
        let took = start.elapsed();
        ensure!(took < vm.scaled(Duration::from_secs(6)), "it took {took:?}");
        vm.wait_log(
            mark,
            r"firmware returns its pages too slowly, \d+ are left",
            vm.soon(),
        )?;
        // They are left at DISABLE_HCA, as was to be shown.
        let broken = vm.model(id)?.control().violations(true)?.violations;
        ensure!(
            broken.len() == 1 && broken[0].rule == "pages_left_at_disable",
            "{broken:?}"
        );
        gone(vm, id)?;
        vm.model(id)?.run("faults clear")?;
        vm.model(id)?.run("pages return=512")?;
        up(vm, id)?;
        alive(vm, id)?;
        down(vm, id)
    })
}
