// SPDX-License-Identifier: GPL-2.0
//! From probe to ready and back.

use crate::driver::{alive, counter, debugfs, down, gone, load, up, BRING_UP};
use crate::{own, Lab, Test, ALL, BOTH, KASAN, TEST};
use anyhow::{ensure, Context, Result};
use mlx5_model::device::State;
use mlx5_vm::manifest::Kernel;
use mlx5_vm::pci;
use mlx5_vm::process::wait_until;
use mlx5_vm::qemu::Hardware;
use mlx5_vm::vm::{with, Boot, Vm, DRIVER};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    Test::new("lifecycle::ready_and_unload", ALL, ready_and_unload),
    Test::new(
        "lifecycle::the_kernel_binds_by_itself",
        TEST,
        the_kernel_binds_by_itself,
    ),
    Test::new("lifecycle::cycles", BOTH, cycles_leave_nothing),
    Test::new("lifecycle::behind_an_iommu", TEST, behind_an_iommu),
    Test::new("lifecycle::two_devices", BOTH, two_devices),
    Test::new(
        "lifecycle::removal_while_in_use",
        TEST,
        removal_while_in_use,
    )
    .long_on(KASAN),
    Test::new(
        "lifecycle::every_kind_of_adapter",
        TEST,
        every_kind_of_adapter,
    ),
    Test::new(
        "lifecycle::firmware_takes_its_time",
        TEST,
        firmware_takes_its_time,
    )
    .long_on(KASAN),
    Test::new(
        "lifecycle::firmware_never_gets_ready",
        TEST,
        firmware_never_gets_ready,
    )
    .long_on(KASAN),
    Test::new(
        "lifecycle::device_goes_away_while_waited_for",
        TEST,
        device_goes_away_while_waited_for,
    ),
    Test::new("lifecycle::device_falls_silent", TEST, device_falls_silent).long_on(KASAN),
    Test::new(
        "lifecycle::device_with_stale_state",
        TEST,
        device_with_stale_state,
    )
    .long_on(KASAN),
    Test::new(
        "lifecycle::segment_that_makes_no_sense",
        TEST,
        segment_that_makes_no_sense,
    ),
];

/// Level of ordinary kernel messages; lower is louder.
const INFO: u8 = 6;

const EINVAL: i32 = 22;
const ETIMEDOUT: i32 = 110;

fn ready_and_unload(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let id = vm.add_device(&[])?;
        let bdf = vm.bdf(id);
        load(vm, "")?;
        let line = up(vm, id)?;

        let model = vm.model(id)?.status()?;
        ensure!(
            model.state == State::Initialized,
            "model: {:?}",
            model.state
        );
        let completion = model.eqs.len() - 3;
        let pages = model.pages.given;
        let expected = format!(
            "{DRIVER} {bdf}: ready: ConnectX-7 [15b3:1021], firmware 28.43.1000, 32 command slots, \
             EQs 3 async + {completion} completion, {pages} pages ({} KiB)",
            pages * 4
        );
        ensure!(line == expected, "{line:?}, expected {expected:?}");
        let cpus = vm.agent().text("/sys/devices/system/cpu/online")?;
        ensure!(
            cpus == "0-1" && completion == 2,
            "{completion} completion EQs on CPUs {cpus}"
        );
        let vectors = pci::vectors(vm.agent(), &bdf)?;
        ensure!(vectors == 1 + completion, "{vectors} MSI-X vectors");

        ensure!(counter(vm, id, "pages", "held")? == pages as u64);
        let state = debugfs(vm, id, "state")?;
        for line in ["state up", "firmware 28.43.1000", "command_mode events"] {
            ensure!(
                state.lines().any(|l| l == line),
                "no line {line:?} in:\n{state}"
            );
        }
        let caps = debugfs(vm, id, "caps")?;
        ensure!(caps.contains("log_max_eq"), "{caps}");
        let seen = vm.model(id)?.commands(0)?;
        let commands = debugfs(vm, id, "commands")?;
        for command in &seen {
            ensure!(
                commands.contains(&command.name),
                "{} is not in:\n{commands}",
                command.name
            );
        }
        alive(vm, id)?;

        down(vm, id)?;
        vm.rmmod(DRIVER, vm.soon())?;
        ensure!(!vm.is_loaded(DRIVER)?);
        let names = vm.agent().list("/sys/kernel/debug")?;
        ensure!(
            !names.iter().any(|name| name == DRIVER),
            "debugfs: {names:?}"
        );
        vm.hunt_leaks();
        Ok(())
    })
}

fn the_kernel_binds_by_itself(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        // A device that is there before the driver, and one that comes later.
        let first = vm.add_device(&[])?;
        vm.insmod("", vm.scaled(BRING_UP))?;
        let bound = |vm: &Vm, id| {
            wait_until("the driver to be bound", vm.scaled(BRING_UP), || {
                Ok(vm.driver_of(id)?.as_deref() == Some(DRIVER))
            })
        };
        bound(vm, first)?;
        let second = vm.add_device(&[])?;
        bound(vm, second)?;
        alive(vm, first)?;
        alive(vm, second)?;
        // Unloading lets both go.
        vm.rmmod(DRIVER, vm.scaled(BRING_UP))?;
        for id in [first, second] {
            ensure!(vm.driver_of(id)?.is_none());
            let status = vm.model(id)?.status()?;
            ensure!(status.state == State::Reset && status.pages.given == 0);
        }
        Ok(())
    })
}

/// What the kernel holds with the driver unloaded.
#[derive(Debug, Clone, Copy)]
struct Holdings {
    /// Slabs, vmalloc areas and per-CPU areas, in KiB. Free pages are no
    /// measure: per-CPU lists keep megabytes of them.
    memory: u64,
    /// DMA mappings, by the books of the kernel's DMA API debugging.
    mappings: u64,
    /// Areas of the driver or its module in `/proc/vmallocinfo`.
    areas: usize,
}

fn holdings(vm: &Vm) -> Result<Holdings> {
    // Drops caches, so that what remains is in use.
    let soon = vm.soon();
    vm.agent().set("/proc/sys/vm/drop_caches", "3", soon * 2)?;
    let text = vm.agent().text("/proc/meminfo")?;
    let value = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .with_context(|| format!("/proc/meminfo has no {name}"))
    };
    let debug = |name: &str| -> Result<u64> {
        let path = format!("/sys/kernel/debug/dma-api/{name}");
        let text = vm.agent().text(&path)?;
        text.parse().with_context(|| format!("{path}: {text:?}"))
    };
    ensure!(
        vm.agent().text("/sys/kernel/debug/dma-api/disabled")? == "N",
        "DMA API debugging has given up"
    );
    let areas = vm.agent().text("/proc/vmallocinfo")?;
    Ok(Holdings {
        memory: value("Slab")? + value("VmallocUsed")? + value("Percpu")?,
        mappings: debug("nr_total_entries")? - debug("num_free_entries")?,
        areas: areas.lines().filter(|line| line.contains(DRIVER)).count(),
    })
}

/// Objects and KiB in use by slab cache.
fn slabs(vm: &Vm) -> Result<BTreeMap<String, (u64, u64)>> {
    let text = vm.agent().text("/proc/slabinfo")?;
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        let mut number = || words.next()?.parse::<u64>().ok();
        let (active, _, size) = (number()?, number()?, number()?);
        Some((name, (active, active * size / 1024)))
    };
    Ok(text.lines().filter_map(row).collect())
}

fn cycles_leave_nothing(lab: &Lab) -> Result<()> {
    /// Cycles before the first measurement: slabs and per-CPU caches fill.
    const WARM_UP: u32 = 15;
    /// Growth allowed over the others, in KiB: slabs breathe by several pages.
    /// In the long form less than 400 bytes in a cycle.
    const GROWTH: u64 = 160;
    /// In the long form it is looked at this often.
    const STRIDE: u32 = 100;
    lab.shared(|vm| {
        // Under KASAN a cycle takes seconds, and kmemleak looks closer.
        let cycles = match (vm.manifest().kernel, crate::is_long()) {
            (Kernel::Kasan, false) => 8,
            (_, false) => 30,
            (Kernel::Kasan, true) => 100,
            (_, true) => 700,
        };
        // Caches fill until some 200 cycles are over; what grows then is a leak.
        let warm_up = match (vm.manifest().kernel, crate::is_long()) {
            (Kernel::Debian | Kernel::Test, true) => 200,
            _ => WARM_UP.min(cycles / 2),
        };
        let id = vm.add_device(&[])?;
        let mut start = None;
        for cycle in 0..cycles {
            if cycle == warm_up {
                start = Some((holdings(vm)?, slabs(vm)?, vm.mark()?));
            } else if cycle % STRIDE == 0 {
                println!("after {cycle} cycles: {:?}", holdings(vm)?);
            }
            load(vm, "").with_context(|| format!("cycle {cycle}"))?;
            up(vm, id).with_context(|| format!("cycle {cycle}"))?;
            if cycle % 2 == 0 {
                down(vm, id).with_context(|| format!("cycle {cycle}"))?;
            }
            vm.rmmod(DRIVER, vm.scaled(BRING_UP))
                .with_context(|| format!("cycle {cycle}"))?;
            let status = vm.model(id)?.status()?;
            ensure!(
                status.pages.given == 0,
                "cycle {cycle}: {} pages left",
                status.pages.given
            );
        }
        let (before, caches, mark) = start.context("there are more cycles than that")?;
        let after = holdings(vm)?;
        let counted = cycles - warm_up;
        println!("before the last {counted} of {cycles} cycles: {before:?}, after: {after:?}");
        let loud = vm.records_since(mark)?.iter().find(|r| r.level < INFO);
        ensure!(loud.is_none(), "a line above info: {loud:?}");
        ensure!(after.mappings == before.mappings, "DMA mappings are left");
        ensure!(after.areas == 0, "vmalloc areas of the driver are left");
        if vm.manifest().kernel == Kernel::Kasan {
            // Quarantine and object tracking hold much more than that.
            vm.hunt_leaks();
            return Ok(());
        }
        let growth = after.memory.saturating_sub(before.memory);
        if growth > GROWTH {
            let now = slabs(vm)?;
            let grown = now.iter().filter(|(name, (count, _))| {
                caches.get(*name).is_none_or(|(before, _)| count > before)
            });
            println!("caches that have grown, with objects and KiB: {:?}", grown.collect::<Vec<_>>());
        }
        ensure!(
            growth <= GROWTH,
            "kernel memory grew by {growth} KiB in {counted} cycles, at most {GROWTH} KiB are expected"
        );
        Ok(())
    })
}

/// Device addresses are not physical ones, and what the driver forgets to map
/// or unmaps too early is not there for the model.
fn behind_an_iommu(lab: &Lab) -> Result<()> {
    let boot = Boot {
        hardware: Hardware {
            ports: 2,
            iommu: true,
            ..Hardware::default()
        },
        ..own()
    };
    with(Vm::boot(&lab.manifest, lab.test, &boot)?, |vm| {
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        let group = vm.agent().link(&vm.sysfs(id, "iommu_group"))?;
        ensure!(group.is_some(), "{} is in no IOMMU group", vm.bdf(id));
        for _ in 0..2 {
            up(vm, id)?;
            alive(vm, id)?;
            down(vm, id)?;
        }
        Ok(())
    })
}

fn two_devices(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load(vm, "")?;
        let first = vm.add_device(&[])?;
        up(vm, first)?;
        let second = vm.add_device(&["--port-type", "eth"])?;
        // One is busy while the other comes and goes, and a third is added.
        let path = format!("/sys/kernel/debug/{DRIVER}/{}/query_adapter", vm.bdf(first));
        let script = "i=0; while [ ! -e /tmp/stop ]; do cat $0 || exit 1; i=$((i+1)); done; \
                      echo rounds $i";
        vm.agent().output(&["rm", "-f", "/tmp/stop"], vm.soon())?;
        let limit = vm.scaled(Duration::from_secs(120));
        let busy = vm.agent().spawn(&["sh", "-c", script, &path], &[], limit)?;
        for _ in 0..3 {
            up(vm, second)?;
            alive(vm, second)?;
            down(vm, second)?;
        }
        let third = vm.add_device(&[])?;
        up(vm, second)?;
        up(vm, third)?;
        vm.remove_device(third)?;
        vm.agent().output(&["touch", "/tmp/stop"], vm.soon())?;
        let finished = busy.finished(vm.soon())?;
        let text = String::from_utf8_lossy(&finished.stdout).into_owned();
        let rounds = text
            .lines()
            .last()
            .and_then(|line| line.strip_prefix("rounds "));
        let rounds: u32 = rounds.and_then(|n| n.parse().ok()).with_context(|| {
            format!(
                "{:?}: {}",
                finished.status,
                String::from_utf8_lossy(&finished.stderr)
            )
        })?;
        ensure!(rounds > 10, "only {rounds} rounds of queries");
        let good = text
            .lines()
            .filter(|line| line.starts_with("ieee_vendor_id"))
            .count();
        ensure!(
            good as u32 == rounds,
            "{good} of {rounds} queries were answered"
        );
        for id in [first, second] {
            alive(vm, id)?;
            down(vm, id)?;
        }
        Ok(())
    })
}

fn removal_while_in_use(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        vm.model(id)?
            .run("fault op=QUERY_ADAPTER count=inf act=delay ms=2000")?;
        let path = format!("/sys/kernel/debug/{DRIVER}/{}/query_adapter", vm.bdf(id));
        let readers = (0..8)
            .map(|_| vm.agent().spawn(&["cat", &path], &[], vm.soon()))
            .collect::<Result<Vec<_>, _>>()?;
        wait_in_flight(vm, id, 8)?;
        let start = Instant::now();
        vm.remove_device(id)?;
        ensure!(
            start.elapsed() < vm.soon(),
            "removal took {:?}",
            start.elapsed()
        );
        for reader in readers {
            reader.finished(vm.soon())?;
        }
        let bridge = vm.agent().list("/sys/bus/pci/drivers/mlx5_rs")?;
        ensure!(
            !bridge.iter().any(|name| name.starts_with("0000:")),
            "{bridge:?}"
        );
        Ok(())
    })
}

fn wait_in_flight(vm: &mut Vm, id: mlx5_vm::vm::DeviceId, count: usize) -> Result<()> {
    let soon = vm.soon();
    let model = vm.model(id)?;
    wait_until(&format!("{count} commands in flight"), soon, || {
        Ok(model.status()?.in_flight.len() >= count)
    })
}

fn every_kind_of_adapter(lab: &Lab) -> Result<()> {
    let kinds: [(&[&str], &str); 7] = [
        (
            &["--device", "cx4lx", "--port-type", "eth"],
            "ConnectX-4 Lx [15b3:1015]",
        ),
        (&["--device", "cx5"], "ConnectX-5 [15b3:1017]"),
        (&["--device", "cx6"], "ConnectX-6 [15b3:101b]"),
        (&["--port-type", "eth"], "ConnectX-7 [15b3:1021]"),
        (&["--device", "bf3"], "BlueField-3 [15b3:a2dc]"),
        (&["--vf"], "ConnectX family VF [15b3:101e]"),
        (&["--device", "0x1023"], "ConnectX-8 [15b3:1023]"),
    ];
    lab.shared_with(kinds.len(), |vm| {
        load(vm, "")?;
        for (options, name) in kinds {
            let id = vm.add_device(options)?;
            let line = up(vm, id).with_context(|| format!("{options:?}"))?;
            ensure!(line.contains(name), "{line:?}, expected {name}");
            alive(vm, id)?;
            down(vm, id)?;
            vm.remove_device(id)?;
        }
        Ok(())
    })
}

fn firmware_takes_its_time(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        vm.model(id)?.run("initializing ms=700")?;
        let start = Instant::now();
        up(vm, id)?;
        ensure!(
            start.elapsed() >= Duration::from_millis(500),
            "it did not wait"
        );
        down(vm, id)
    })
}

fn firmware_never_gets_ready(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load(vm, "init_timeout_ms=400")?;
        let id = vm.add_device(&[])?;
        vm.model(id)?.run("initializing hold=1")?;
        let mark = vm.mark()?;
        let error = vm.bind(id, DRIVER, vm.scaled(BRING_UP)).unwrap_err();
        ensure!(error.errno() == Some(ETIMEDOUT), "{error}");
        vm.wait_log(
            mark,
            "bring-up failed at wait for firmware: .*400 ms",
            vm.soon(),
        )?;
        gone(vm, id)?;
        vm.model(id)?.run("initializing hold=0")?;
        up(vm, id)?;
        down(vm, id)
    })
}

/// The device is taken away while the driver waits for it: that is noticed at
/// once, not after the timeout.
fn device_goes_away_while_waited_for(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load(vm, "init_timeout_ms=600000")?;
        let id = vm.add_device(&[])?;
        vm.model(id)?.run("initializing hold=1")?;
        let path = format!("/sys/bus/pci/drivers/{DRIVER}/bind");
        let bdf = vm.bdf(id);
        let soon = vm.soon();
        let binder = vm.agent().spawn(
            &["sh", "-c", "printf %s $0 > $1", &bdf, &path],
            &[],
            soon * 4,
        )?;
        let reads = vm.model(id)?.status()?.mmio_reads;
        let model = vm.model(id)?;
        wait_until("the driver to look at the device", soon, || {
            Ok(model.status()?.mmio_reads > reads + 2)
        })?;
        let mark = vm.mark()?;
        vm.model(id)?.run("ones on")?;
        binder.finished(soon)?;
        vm.wait_log(
            mark,
            "bring-up failed at wait for firmware: .*all ones",
            soon,
        )?;
        vm.model(id)?.run("ones off")?;
        vm.model(id)?.run("initializing hold=0")?;
        up(vm, id)?;
        down(vm, id)
    })
}

/// A device that is up falls silent, or is gone for good, with commands in
/// flight: letting go of it takes a bounded time and leaves nothing.
fn device_falls_silent(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load(vm, "cmd_timeout_ms=500")?;
        for outage in ["ones on", "ones on config=1", "vanish"] {
            let id = vm.add_device(&[])?;
            up(vm, id).context(outage)?;
            let path = format!("/sys/kernel/debug/{DRIVER}/{}/query_adapter", vm.bdf(id));
            vm.model(id)?
                .run("fault op=QUERY_ADAPTER count=inf act=delay ms=200")?;
            let reader = vm.agent().spawn(&["cat", &path], &[], vm.soon())?;
            wait_in_flight(vm, id, 1)?;
            vm.model(id)?.run(outage)?;
            let answer = reader.finished(vm.soon())?;
            let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
            ensure!(
                answer.contains("every read is all ones"),
                "{outage}: {answer}"
            );
            let start = Instant::now();
            vm.unbind(id, DRIVER, vm.scaled(BRING_UP)).context(outage)?;
            ensure!(
                start.elapsed() < vm.soon(),
                "{outage}: unbind took {:?}",
                start.elapsed()
            );
            ensure!(
                pci::vectors(vm.agent(), &vm.bdf(id))? == 0,
                "{outage}: vectors are left"
            );
            // It comes back, with what the driver could not take from it.
            let back = if outage == "vanish" {
                "vanish off"
            } else {
                "ones off"
            };
            vm.model(id)?.run(back)?;
            vm.model(id)?.control().clear_faults()?;
            if outage != "vanish" {
                up(vm, id).with_context(|| format!("after {outage}"))?;
                down(vm, id).with_context(|| format!("after {outage}"))?;
            }
            vm.remove_device(id)?;
        }
        Ok(())
    })
}

/// A driver before this one never said goodbye (field case C15).
fn device_with_stale_state(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        vm.model(id)?.run("stale pages=100 eqs=3")?;
        up(vm, id)?;
        alive(vm, id)?;
        down(vm, id)
    })
}

fn segment_that_makes_no_sense(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        let cases = [
            (
                "cmd_interface_rev",
                4,
                "interface revision: .*4, expected 5",
            ),
            ("log_cmdq_size", 0, "command queue: .*log_cmdq_size 0"),
            ("log_cmdq_size", 15, "command queue: .*log_cmdq_size 15"),
            ("log_cmdq_stride", 2, "command queue: .*log_cmdq_stride 2"),
        ];
        for (field, value, pattern) in cases {
            let what = || format!("{field}={value}");
            let good = match field {
                "cmd_interface_rev" | "log_cmdq_size" => 5,
                _ => 6,
            };
            vm.model(id)?
                .run(&format!("initseg field={field} value={value}"))?;
            let mark = vm.mark()?;
            let error = vm.bind(id, DRIVER, vm.scaled(BRING_UP)).unwrap_err();
            ensure!(error.errno() == Some(EINVAL), "{}: {error}", what());
            let pattern = format!("bring-up failed at {pattern}");
            vm.wait_log(mark, &pattern, vm.soon()).with_context(what)?;
            gone(vm, id).with_context(what)?;
            vm.model(id)?
                .run(&format!("initseg field={field} value={good}"))?;
            up(vm, id).with_context(what)?;
            down(vm, id).with_context(what)?;
        }
        Ok(())
    })
}
