// SPDX-License-Identifier: GPL-2.0
//! Virtual functions: enabled by the kernel's own SR-IOV code, on a device of
//! three functions, each a model of its own.

use crate::driver::{alive, counter, debugfs, down, gone, load_quiet, up, wait_counter, BRING_UP};
use crate::{Lab, Test, KASAN, TEST};
use anyhow::{ensure, Context, Result};
use mlx5_vm::agent::GuestError;
use mlx5_vm::process::wait_until;
use mlx5_vm::vm::{DeviceId, Vm, DRIVER};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    Test::new("sriov::on_and_off", TEST, on_and_off).long_on(KASAN),
    Test::new(
        "sriov::virtual_functions_work",
        TEST,
        virtual_functions_work,
    )
    .long_on(KASAN),
    Test::new(
        "sriov::failure_undoes_those_before",
        TEST,
        failure_undoes_those_before,
    )
    .long_on(KASAN),
    Test::new("sriov::the_bus_refuses", TEST, the_bus_refuses),
    Test::new("sriov::unbind", TEST, unbind).long_on(KASAN),
    Test::new("sriov::upstream", TEST, upstream),
    Test::new("sriov::reset", TEST, reset).long_on(KASAN),
    Test::new(
        "sriov::pages_do_not_come_back",
        TEST,
        pages_do_not_come_back,
    ),
    Test::new("sriov::recovery", TEST, recovery).long_on(KASAN),
    Test::new("sriov::recovery_fails", TEST, recovery_fails).long_on(KASAN),
];

/// Virtual functions of the device, and pages that each wants.
const VFS: usize = 2;
const PAGES: u64 = 24;

const EAGAIN: i32 = 11;
const EBUSY: i32 = 16;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const ETIMEDOUT: i32 = 110;

/// A device with its virtual functions: the physical one is up.
fn device(vm: &mut Vm, params: &str) -> Result<Vec<DeviceId>> {
    load_quiet(vm, params)?;
    let vf: &[&str] = &["--behind-pf"];
    let ids = vm.add_functions(&[&["--vfs", "2"], vf, vf])?;
    let pf = pf(&ids)?;
    let total = vm.agent().text(&vm.sysfs(pf, "sriov_totalvfs"))?;
    ensure!(total == "2", "sriov_totalvfs is {total}");
    // Tests bind what they want.
    vm.agent()
        .set(&vm.sysfs(pf, "sriov_drivers_autoprobe"), "0", vm.soon())?;
    up(vm, pf)?;
    Ok(ids)
}

fn pf(ids: &[DeviceId]) -> Result<DeviceId> {
    ids.first().copied().context("function 0")
}

/// Asks for so many virtual functions.
fn want(vm: &Vm, pf: DeviceId, number: usize) -> Result<(), GuestError> {
    let path = vm.sysfs(pf, "sriov_numvfs");
    vm.agent()
        .set(&path, &number.to_string(), vm.scaled(BRING_UP))
}

/// So many virtual functions there are: for the guest, the driver, and the
/// model.
fn are(vm: &mut Vm, ids: &[DeviceId], number: usize) -> Result<()> {
    let pf = pf(ids)?;
    let names = vm.agent().list("/sys/bus/pci/devices")?;
    for (index, id) in ids.iter().enumerate().skip(1) {
        let shown = names.contains(&vm.bdf(*id));
        ensure!(shown == (index <= number), "VF {index}: shown is {shown}");
    }
    let numvfs = vm.agent().text(&vm.sysfs(pf, "sriov_numvfs"))?;
    ensure!(numvfs == number.to_string(), "sriov_numvfs is {numvfs}");
    ensure!(counter(vm, pf, "state", "virtual_functions")? == number as u64);
    let status = vm.model(pf)?.status()?;
    let expected: Vec<u16> = (1..=number as u16).collect();
    ensure!(
        status.vfs == expected && usize::from(status.num_vfs) == number,
        "model: VFs {:?}, {} by the capability",
        status.vfs,
        status.num_vfs
    );
    Ok(())
}

/// What the model was asked for functions other than the first, in order.
fn asked(vm: &mut Vm, pf: DeviceId, from: u64) -> Result<Vec<String>> {
    let mut list = vm.model(pf)?.commands(from)?;
    list.retain(|command| ["ENABLE_HCA", "DISABLE_HCA"].contains(&command.name.as_str()));
    Ok(list.into_iter().map(|command| command.name).collect())
}

/// Each function has its pages, given for it.
fn pages(vm: &mut Vm, pf: DeviceId, own: u64, number: usize) -> Result<()> {
    wait_counter(vm, pf, "pages", "held", own + PAGES * number as u64)?;
    for function in 1..=number {
        let name = format!("function {function} holds");
        ensure!(counter(vm, pf, "pages", &name)? == PAGES, "{name}");
    }
    let status = vm.model(pf)?.status()?;
    for function in 1..=number as u16 {
        let of = status
            .pages
            .functions
            .iter()
            .find(|f| f.function == function);
        let given = of.map_or(0, |f| f.given);
        ensure!(given as u64 == PAGES, "model: {given} for {function}");
    }
    Ok(())
}

/// Virtual functions come and go; with firmware that gives their pages back
/// in both ways.
fn on_and_off(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let ids = device(vm, "")?;
        let pf = pf(&ids)?;
        for release_all in [1, 0] {
            vm.unbind(pf, DRIVER, vm.scaled(BRING_UP))?;
            vm.model(pf)?.run(&format!(
                "cap page=general field=release_all_pages max={release_all}"
            ))?;
            up(vm, pf)?;
            let own = counter(vm, pf, "pages", "held")?;
            for number in [1, VFS, 1] {
                let from = vm.model(pf)?.status()?.commands;
                want(vm, pf, number).context("on")?;
                are(vm, &ids, number)?;
                pages(vm, pf, own, number)?;
                let errno = want(vm, pf, 3 - number).err().and_then(|e| e.errno());
                ensure!(errno == Some(EBUSY), "another number: {errno:?}, not EBUSY");
                want(vm, pf, 0).context("off")?;
                are(vm, &ids, 0)?;
                ensure!(counter(vm, pf, "pages", "held")? == own);
                let mut expected = vec!["ENABLE_HCA"; number];
                expected.extend(vec!["DISABLE_HCA"; number]);
                let asked = asked(vm, pf, from)?;
                ensure!(asked == expected, "{asked:?}");
            }
            let way = if release_all == 1 {
                "released"
            } else {
                "returned"
            };
            let back = counter(vm, pf, "pages", way)?;
            ensure!(back == 4 * PAGES, "{back} pages were {way}");
        }
        alive(vm, pf)?;
        down(vm, pf)?;
        vm.hunt_leaks();
        Ok(())
    })
}

/// Puts the BAR of a virtual function where the capability of the physical
/// one has it, which on real hardware the device does, and lets it be bound.
fn place(vm: &Vm, vf: DeviceId) -> Result<()> {
    let text = vm.agent().text(&vm.sysfs(vf, "resource"))?;
    let start = text
        .split_whitespace()
        .next()
        .and_then(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok())
        .filter(|start| *start != 0)
        .with_context(|| format!("no BAR 0 in {text:?}"))?;
    let octal = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("\\{b:03o}")).collect() };
    let script = "printf \"$1\" | dd of=$0 bs=1 seek=16 conv=notrunc 2>/dev/null && \
                  printf '\\002' | dd of=$0 bs=1 seek=4 conv=notrunc 2>/dev/null";
    let bar = octal(&(start | 0xc).to_le_bytes());
    vm.agent().output(
        &["sh", "-c", script, &vm.sysfs(vf, "config"), &bar],
        vm.soon(),
    )?;
    // Without it none is bound while autoprobe is off.
    vm.agent()
        .set(&vm.sysfs(vf, "driver_override"), DRIVER, vm.soon())?;
    Ok(())
}

/// The driver is bound to virtual functions: they come up, work, and go with
/// the physical one's wish.
fn virtual_functions_work(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let ids = device(vm, "")?;
        let pf = pf(&ids)?;
        want(vm, pf, VFS)?;
        for vf in ids.iter().skip(1) {
            place(vm, *vf)?;
            let line = up(vm, *vf)?;
            ensure!(line.contains("[15b3:101e]"), "{line}");
            alive(vm, *vf)?;
            let is_vf = vm.agent().link(&vm.sysfs(*vf, "physfn"))?.is_some();
            ensure!(is_vf, "it is no virtual function");
            // What only a physical function may set.
            let commands = debugfs(vm, *vf, "commands")?;
            ensure!(!commands.contains("DISABLE_HCA"), "{commands}");
        }
        alive(vm, pf)?;
        // One is in use by itself, and goes on without the other.
        let (first, second) = (ids[1], ids[2]);
        down(vm, first)?;
        alive(vm, second)?;
        want(vm, pf, 0)?;
        are(vm, &ids, 0)?;
        let status = vm.model(second)?.status()?;
        ensure!(
            status.pages.given == 0 && status.eqs.is_empty() && !status.bus_master,
            "the second was not taken down: {status:?}"
        );
        let folders = vm.agent().list(&format!("/sys/kernel/debug/{DRIVER}"))?;
        ensure!(folders == [vm.bdf(pf)], "debugfs: {folders:?}");
        alive(vm, pf)?;
        down(vm, pf)
    })
}

/// ENABLE_HCA of the k-th function fails: those before are disabled again,
/// the bus shows none, and the next try works (field case C42).
fn failure_undoes_those_before(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let timeout = 400;
        let ids = device(vm, &format!("cmd_timeout_ms={timeout}"))?;
        let pf = pf(&ids)?;
        let own = counter(vm, pf, "pages", "held")?;
        for k in 0..VFS {
            for (act, errno, text) in [
                ("status status=0x8 syndrome=0x4242", ENOMEM, "LIM_ERR"),
                ("never", ETIMEDOUT, "timed out"),
            ] {
                let what = format!("{act} for VF {k}");
                vm.model(pf)?
                    .run(&format!("fault op=ENABLE_HCA skip={k} act={act}"))?;
                let mark = vm.mark()?;
                let from = vm.model(pf)?.status()?.commands;
                let start = Instant::now();
                let error = want(vm, pf, VFS).err().context(what.clone())?;
                ensure!(error.errno() == Some(errno), "{what}: {error}");
                let limit = Duration::from_millis(timeout) + Duration::from_secs(5);
                ensure!(start.elapsed() < limit, "{what}: {:?}", start.elapsed());
                vm.wait_log(mark, &format!("virtual functions: .*{text}"), vm.soon())
                    .context(what.clone())?;
                let mut expected = vec!["ENABLE_HCA"; k + 1];
                expected.extend(vec!["DISABLE_HCA"; k]);
                let asked = asked(vm, pf, from)?;
                ensure!(asked == expected, "{what}: {asked:?}");
                are(vm, &ids, 0).context(what.clone())?;
                wait_counter(vm, pf, "pages", "held", own).context(what.clone())?;
                // The one that was not answered is enabled now, and nobody knows.
                vm.model(pf)?.run("faults clear")?;
                let left = vm.model(pf)?.status()?.vfs;
                if !left.is_empty() {
                    let error = want(vm, pf, VFS).err().context("it is enabled twice")?;
                    ensure!(error.errno() == Some(EINVAL), "{error}");
                    vm.model(pf)?.control().violations(true)?;
                    vm.unbind(pf, DRIVER, vm.scaled(BRING_UP))?;
                    vm.model(pf)?.control().violations(true)?;
                    up(vm, pf)?;
                }
                want(vm, pf, VFS).with_context(|| format!("after {what}"))?;
                are(vm, &ids, VFS)?;
                pages(vm, pf, own, VFS)?;
                want(vm, pf, 0)?;
                are(vm, &ids, 0)?;
            }
        }
        alive(vm, pf)?;
        down(vm, pf)
    })
}

/// The device is willing, but the bus is not: its functions are disabled
/// again.
fn the_bus_refuses(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load_quiet(vm, "")?;
        let ids = vm.add_functions(&[&["--vfs", "2"], &["--behind-pf"]])?;
        let pf = pf(&ids)?;
        vm.agent()
            .set(&vm.sysfs(pf, "sriov_drivers_autoprobe"), "0", vm.soon())?;
        up(vm, pf)?;
        let own = counter(vm, pf, "pages", "held")?;
        // InitialVFs, which the kernel reads each time, is not TotalVFs.
        vm.model(pf)?.run("config at=0x14c value=1")?;
        let from = vm.model(pf)?.status()?.commands;
        let mark = vm.mark()?;
        let result = want(vm, pf, VFS);
        vm.model(pf)?.run("config at=0x14c value=2")?;
        result.err().context("the bus shows them")?;
        vm.wait_log(mark, "the bus does not show 2 of them", vm.soon())?;
        let asked = asked(vm, pf, from)?;
        let expected = ["ENABLE_HCA", "ENABLE_HCA", "DISABLE_HCA", "DISABLE_HCA"];
        ensure!(asked == expected, "{asked:?}");
        are(vm, &ids, 0)?;
        ensure!(counter(vm, pf, "pages", "held")? == own);
        want(vm, pf, 1)?;
        are(vm, &ids, 1)?;
        want(vm, pf, 0)?;
        alive(vm, pf)?;
        down(vm, pf)
    })
}

/// The kernel asserts that a lock is held when virtual functions go. It holds
/// the lock when it asks a driver for fewer of them, and when a device is pulled
/// out, but not when a driver is unbound, where none can know: mlx5_core has the
/// same warning ([`upstream`]).
fn expect_unlocked_removal(vm: &mut Vm) {
    for line in [
        r"WARNING: drivers/pci/remove.c:\d+ at pci_stop_and_remove_bus_device",
        "^Call Trace:",
    ] {
        vm.expect_defect(line);
    }
}

/// The physical function's driver goes while virtual ones are in use: they go
/// first.
fn unbind(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        expect_unlocked_removal(vm);
        let ids = device(vm, "")?;
        let pf = pf(&ids)?;
        want(vm, pf, VFS)?;
        let vf = ids[1];
        place(vm, vf)?;
        up(vm, vf)?;
        vm.unbind(pf, DRIVER, vm.scaled(BRING_UP))?;
        gone(vm, pf)?;
        let status = vm.model(pf)?.status()?;
        ensure!(
            status.vfs.is_empty() && status.num_vfs == 0 && status.pages.given == 0,
            "{status:?}"
        );
        let names = vm.agent().list("/sys/bus/pci/devices")?;
        ensure!(!names.contains(&vm.bdf(vf)), "a virtual function is left");
        ensure!(vm.model(vf)?.status()?.pages.given == 0);
        up(vm, pf)?;
        are(vm, &ids, 0)?;
        down(vm, pf)
    })
}

/// The physical function is reset while there are virtual ones: they are
/// enabled again.
fn reset(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let ids = device(vm, "")?;
        let pf = pf(&ids)?;
        let own = counter(vm, pf, "pages", "held")?;
        want(vm, pf, VFS)?;
        pages(vm, pf, own, VFS)?;
        let from = vm.model(pf)?.status()?.commands;
        vm.agent()
            .set(&vm.sysfs(pf, "reset"), "1", vm.scaled(BRING_UP))?;
        are(vm, &ids, VFS)?;
        pages(vm, pf, own, VFS)?;
        let asked = asked(vm, pf, from)?;
        let expected = [
            "DISABLE_HCA",
            "DISABLE_HCA",
            "DISABLE_HCA",
            "ENABLE_HCA",
            "ENABLE_HCA",
            "ENABLE_HCA",
        ];
        ensure!(asked == expected, "{asked:?}");
        want(vm, pf, 0)?;
        alive(vm, pf)?;
        down(vm, pf)
    })
}

/// Firmware keeps the pages of a function that was disabled: it is waited for
/// as long as the device asks, and the pages are taken with all others.
fn pages_do_not_come_back(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load_quiet(vm, "")?;
        let ids = vm.add_functions(&[&["--vfs", "2"], &["--behind-pf"]])?;
        let pf = pf(&ids)?;
        // DTOR has reclaim_vfs_pages_to at 0x34: 300 ms.
        vm.model(pf)?
            .run("fault op=ACCESS_REG op_mod=1 act=patch at=0x44 data=0000012c")?;
        vm.agent()
            .set(&vm.sysfs(pf, "sriov_drivers_autoprobe"), "0", vm.soon())?;
        up(vm, pf)?;
        let own = counter(vm, pf, "pages", "held")?;
        want(vm, pf, 1)?;
        pages(vm, pf, own, 1)?;
        // Refused, so that its pages stay where they are.
        vm.model(pf)?
            .run("fault op=DISABLE_HCA act=status status=0x1 syndrome=0x77")?;
        want(vm, pf, 0)?;
        ensure!(counter(vm, pf, "state", "virtual_functions")? == 1);
        ensure!(counter(vm, pf, "pages", "held")? == own + PAGES);
        // It is still enabled, and is not enabled twice.
        want(vm, pf, 1)?;
        are(vm, &ids, 1)?;
        // Firmware offers them, and does not give them.
        vm.model(pf)?
            .run("cap page=general field=release_all_pages cur=0")?;
        vm.model(pf)?
            .run("fault op=MANAGE_PAGES op_mod=2 act=status status=0x1")?;
        let mark = vm.mark()?;
        let start = Instant::now();
        want(vm, pf, 0)?;
        ensure!(start.elapsed() < vm.soon(), "it took {:?}", start.elapsed());
        let line = format!("returned no page of virtual functions for 300 ms, {PAGES} are left");
        vm.wait_log(mark, &line, vm.soon())?;
        ensure!(counter(vm, pf, "pages", "held")? == own + PAGES);
        alive(vm, pf)?;
        down(vm, pf)
    })
}

fn state(vm: &Vm, id: DeviceId, state: &str) -> Result<()> {
    let line = format!("state {state}\n");
    wait_until(&line, vm.scaled(BRING_UP), || {
        Ok(debugfs(vm, id, "lifecycle")?.starts_with(&line))
    })
}

/// Firmware dies under the physical function and a virtual one in use. The
/// physical one resets it, which takes longer than the counter may stand still
/// otherwise, and has all functions enabled again; meanwhile the number of them
/// cannot be changed, which does not end the recovery. The virtual one waits,
/// and comes back by itself.
fn recovery(lab: &Lab) -> Result<()> {
    /// More than the 5 s that a physical function waits.
    const RESET_MS: u64 = 6500;
    lab.shared(|vm| {
        let ids = device(vm, "")?;
        let (pf, vf) = (pf(&ids)?, ids[1]);
        let own = counter(vm, pf, "pages", "held")?;
        want(vm, pf, VFS)?;
        pages(vm, pf, own, VFS)?;
        place(vm, vf)?;
        up(vm, vf)?;
        vm.model(pf)?
            .run(&format!("software_reset initializing={RESET_MS}"))?;
        let from = vm.model(pf)?.status()?.commands;
        let mark = vm.mark()?;
        for id in [vf, pf] {
            vm.model(id)?.run("fatal nic=0")?;
        }
        state(vm, pf, "recovering")?;
        state(vm, vf, "recovering")?;
        let start = Instant::now();
        for number in [0, 1] {
            let errno = want(vm, pf, number).err().and_then(|e| e.errno());
            // That there are others already is the kernel's own answer.
            let expected = if number == 0 { EAGAIN } else { EBUSY };
            ensure!(errno == Some(expected), "{number} wanted: {errno:?}");
        }
        ensure!(start.elapsed() < vm.soon(), "{:?}", start.elapsed());
        let bdf = vm.bdf(pf);
        vm.wait_log(
            mark,
            &format!("{bdf}: health recovery succeeded"),
            vm.scaled(BRING_UP),
        )?;
        are(vm, &ids, VFS)?;
        pages(vm, pf, own, VFS)?;
        let asked = asked(vm, pf, from)?;
        ensure!(asked == ["ENABLE_HCA"; 1 + VFS], "{asked:?}");
        alive(vm, pf)?;
        // The same firmware, in the model of the virtual function.
        let waits = debugfs(vm, vf, "lifecycle")?.starts_with("state recovering");
        ensure!(waits, "the virtual function has not waited");
        vm.model(vf)?.run("health clear")?;
        state(vm, vf, "up")?;
        alive(vm, vf)?;
        want(vm, pf, 0)?;
        are(vm, &ids, 0)?;
        ensure!(counter(vm, pf, "pages", "held")? == own);
        ensure!(vm.model(vf)?.status()?.pages.given == 0);
        alive(vm, pf)?;
        down(vm, pf)?;
        vm.hunt_leaks();
        Ok(())
    })
}

/// The physical function comes back without its virtual ones, or not at all:
/// they can be hidden in each case, and be had again once it is up. It is
/// unbound while it recovers, with virtual functions shown.
fn recovery_fails(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let ids = device(vm, "")?;
        let pf = pf(&ids)?;
        let own = counter(vm, pf, "pages", "held")?;

        // The second one cannot be enabled: none is.
        want(vm, pf, VFS)?;
        vm.model(pf)?
            .run("fault op=ENABLE_HCA skip=2 act=status status=0x8 syndrome=0x4242")?;
        let mark = vm.mark()?;
        vm.model(pf)?.run("fatal nic=0")?;
        vm.wait_log(mark, "health recovery succeeded", vm.scaled(BRING_UP))?;
        vm.wait_log(mark, "virtual functions: .*LIM_ERR.*not enabled", vm.soon())?;
        let status = vm.model(pf)?.status()?;
        ensure!(status.vfs.is_empty() && status.num_vfs == 2, "{status:?}");
        ensure!(counter(vm, pf, "state", "virtual_functions")? == 0);
        wait_counter(vm, pf, "pages", "held", own)?;
        vm.model(pf)?.control().clear_faults()?;
        want(vm, pf, 0)?;
        are(vm, &ids, 0)?;
        want(vm, pf, VFS)?;
        are(vm, &ids, VFS)?;
        pages(vm, pf, own, VFS)?;

        // It fails again too soon, so that nothing brings it back.
        let mark = vm.mark()?;
        vm.model(pf)?.run("fatal nic=0")?;
        vm.wait_log(mark, "stays in the error state", vm.soon())?;
        state(vm, pf, "error")?;
        want(vm, pf, 0)?;
        let names = vm.agent().list("/sys/bus/pci/devices")?;
        ensure!(!names.contains(&vm.bdf(ids[1])), "a VF is shown");
        let errno = want(vm, pf, VFS).err().and_then(|e| e.errno());
        ensure!(errno == Some(EAGAIN), "{errno:?}, not EAGAIN");
        vm.model(pf)?.run("health clear")?;
        vm.agent()
            .set(&vm.sysfs(pf, "reset"), "1", vm.scaled(BRING_UP))?;
        state(vm, pf, "up")?;
        are(vm, &ids, 0)?;
        want(vm, pf, VFS)?;
        are(vm, &ids, VFS)?;
        pages(vm, pf, own, VFS)?;
        want(vm, pf, 0)?;
        down(vm, pf)?;

        // Unbound in the middle of it.
        expect_unlocked_removal(vm);
        up(vm, pf)?;
        want(vm, pf, VFS)?;
        vm.model(pf)?.run("software_reset initializing=100000")?;
        vm.model(pf)?.run("fatal nic=0")?;
        state(vm, pf, "recovering")?;
        let start = Instant::now();
        vm.unbind(pf, DRIVER, vm.scaled(BRING_UP))?;
        let limit = vm.scaled(Duration::from_secs(6));
        ensure!(start.elapsed() < limit, "{:?}", start.elapsed());
        gone(vm, pf)?;
        let names = vm.agent().list("/sys/bus/pci/devices")?;
        ensure!(!names.contains(&vm.bdf(ids[1])), "a VF is shown");
        vm.model(pf)?.run("software_reset")?;
        vm.model(pf)?.run("initializing hold=0")?;
        vm.model(pf)?.run("health clear")?;
        up(vm, pf)?;
        are(vm, &ids, 0)?;
        alive(vm, pf)?;
        down(vm, pf)?;
        vm.hunt_leaks();
        Ok(())
    })
}

/// The same with the kernel's own driver. It goes on when a function cannot be
/// enabled: the bus shows one that does not work.
fn upstream(lab: &Lab) -> Result<()> {
    const PEER: &str = "mlx5_core";
    lab.shared(|vm| {
        expect_unlocked_removal(vm);
        vm.autoprobe(false)?;
        let vf: &[&str] = &["--behind-pf"];
        let ids = vm.add_functions(&[&["--vfs", "2"], vf, vf])?;
        let pf = pf(&ids)?;
        vm.agent()
            .set(&vm.sysfs(pf, "sriov_drivers_autoprobe"), "0", vm.soon())?;
        vm.modprobe(PEER, vm.scaled(BRING_UP))?;
        vm.bind(pf, PEER, vm.scaled(BRING_UP))?;
        let own = vm.model(pf)?.status()?.pages.given;
        for number in [1, VFS] {
            want(vm, pf, number)?;
            let status = vm.model(pf)?.status()?;
            ensure!(
                status.vfs.len() == number && usize::from(status.num_vfs) == number,
                "{status:?}"
            );
            want(vm, pf, 0)?;
            let status = vm.model(pf)?.status()?;
            ensure!(status.vfs.is_empty() && status.pages.given == own);
        }
        vm.model(pf)?
            .run("fault op=ENABLE_HCA skip=1 act=status status=0x8 syndrome=0x4242")?;
        want(vm, pf, VFS)?;
        let status = vm.model(pf)?.status()?;
        println!(
            "mlx5_core: ENABLE_HCA of VF 1 fails: {} shown, enabled are {:?}",
            status.num_vfs, status.vfs
        );
        ensure!(status.vfs == [1] && status.num_vfs == 2, "{status:?}");
        vm.unbind(pf, PEER, vm.scaled(BRING_UP))?;
        let status = vm.model(pf)?.status()?;
        ensure!(status.vfs.is_empty() && status.pages.given == 0);
        vm.rmmod(PEER, vm.scaled(BRING_UP))?;
        Ok(())
    })
}
