// SPDX-License-Identifier: GPL-2.0
//! The harness itself: the command channel, the judge of the kernel log, the
//! sharing of guests.

use crate::driver::{down, load, up};
use crate::{shared, Lab, Test, ALL, TEST};
use anyhow::{bail, ensure, Context, Result};
use mlx5_agent::proto::{Call, Exec, Reply, Status, WriteMode, MAX_DATA, MAX_IN_FLIGHT};
use mlx5_vm::agent::GuestError;
use mlx5_vm::manifest::Kernel;
use mlx5_vm::qemu::Hardware;
use mlx5_vm::vm::{Boot, Vm};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    Test::new(
        "channel::debian_root",
        &[Kernel::Test, Kernel::Debian],
        debian_root,
    )
    .on_root(),
    Test::new("channel::programs", ALL, programs),
    Test::new("channel::files", TEST, files),
    Test::new("channel::noise", TEST, noise),
    Test::new("channel::many_at_once", TEST, many_at_once),
    Test::new("channel::kernel_log_is_judged", TEST, kernel_log_is_judged),
    Test::new(
        "channel::a_dead_guest_is_noticed",
        TEST,
        a_dead_guest_is_noticed,
    ),
];

const ENOENT: i32 = 2;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const SIGTERM: i32 = 15;

fn programs(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let agent = vm.agent();
        let soon = vm.soon();
        ensure!(agent.output(&["uname", "-r"], soon)?.trim() == agent.release);

        let cat = agent
            .spawn(&["cat"], b"through", soon)?
            .finished(soon * 2)?;
        ensure!(cat.stdout == b"through" && cat.status == Status::Exited(0));

        let both = agent.exec(&["sh", "-c", "echo out; echo err >&2; exit 7"], soon)?;
        ensure!(both.status == Status::Exited(7));
        ensure!(both.stdout == b"out\n" && both.stderr == b"err\n");

        let killed = agent.exec(&["sh", "-c", "kill -9 $$"], soon)?;
        ensure!(killed.status == Status::Signaled(9), "{:?}", killed.status);

        // A grandchild that holds the pipes does not hold the answer.
        let start = Instant::now();
        let left = agent.exec(&["sh", "-c", "sleep 600 & echo started"], soon)?;
        ensure!(left.stdout == b"started\n" && start.elapsed() < soon);

        let late = agent.exec(&["sleep", "600"], Duration::from_millis(50))?;
        ensure!(late.status == Status::TimedOut, "{:?}", late.status);

        let missing = agent.exec(&["/no/such/program"], soon);
        ensure!(
            missing.as_ref().is_err_and(|e| e.errno() == Some(ENOENT)),
            "{missing:?}"
        );
        let empty = agent.exec(&[], soon);
        ensure!(empty.is_err(), "{empty:?}");

        // Orphans are reaped.
        agent.output(&["sh", "-c", "for i in 1 2 3 4; do (true &); done"], soon)?;
        mlx5_vm::process::wait_until("zombies to be reaped", soon, || {
            let states = agent.output(&["sh", "-c", "cat /proc/[0-9]*/stat 2>&-; true"], soon)?;
            Ok(!states.lines().any(|line| line.contains(") Z ")))
        })
    })
}

fn files(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let agent = vm.agent();
        let soon = vm.soon();
        let data: Vec<u8> = (0..MAX_DATA).map(|i| (i * 7 / 3) as u8).collect();
        let write = |mode, data: Vec<u8>| {
            let path = "/tmp/file".into();
            agent.call(Call::WriteFile { path, mode, data }, soon)
        };
        let missing = write(WriteMode::Existing, vec![1]);
        ensure!(missing.is_err_and(|e| e.errno() == Some(ENOENT)));
        write(WriteMode::Create, data.clone())?;
        ensure!(agent.read("/tmp/file")? == data, "4 MiB came back changed");
        write(WriteMode::Append, vec![9])?;
        // More than one answer holds.
        let all = agent.read("/tmp/file")?;
        ensure!(
            all.len() == MAX_DATA + 1 && all[..MAX_DATA] == data,
            "4 MiB + 1 came back changed"
        );
        let tail = agent.call(
            Call::ReadFile {
                path: "/tmp/file".into(),
                offset: MAX_DATA as u64 - 1,
                max: 100,
            },
            soon,
        )?;
        let expected = vec![data[MAX_DATA - 1], 9];
        ensure!(
            tail == Reply::Data {
                data: expected,
                end: true
            }
        );
        write(WriteMode::Create, Vec::new())?;
        ensure!(agent.read("/tmp/file")?.is_empty());

        let missing = agent.read("/proc/self/nothing").unwrap_err();
        ensure!(missing.errno() == Some(ENOENT), "{missing}");
        ensure!(
            missing.to_string().contains("/proc/self/nothing"),
            "{missing}"
        );
        ensure!(agent.link("/proc/self/exe")?.is_some());
        ensure!(agent.link("/nothing")?.is_none());
        ensure!(agent.list("/sys/bus/pci/devices")?.len() > 2);
        Ok(())
    })
}

/// Whatever comes over the port, the agent lives, and can be talked to again.
fn noise(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let agent = vm.agent();
        let soon = vm.soon();
        // A frame of the right form whose content is no request: the
        // conversation goes on.
        for content in [&[][..], &[0xff; 40], b"\x01\x63what"] {
            let mut frame = (content.len() as u32).to_le_bytes().to_vec();
            frame.extend_from_slice(content);
            agent.send_raw(&frame)?;
            ensure!(!agent.text("/proc/version")?.is_empty());
        }
        // Frames that are too long, torn ones, and noise: it does not. After
        // a length that is allowed, the agent waits for that many bytes.
        let torn = [100u32.to_le_bytes().as_slice(), &[0; 100 - 16]].concat();
        for noise in [
            &u32::MAX.to_le_bytes()[..],
            b"\0\0\0\x7fGET / HTTP/1.0",
            &torn,
        ] {
            agent.send_raw(noise)?;
            agent.greet(soon * 2, || Ok(()))?;
            ensure!(!agent.text("/proc/version")?.is_empty(), "after {noise:x?}");
        }
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20 {
            let noise: Vec<u8> = (0..997)
                .map(|_| {
                    seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    // The top bit makes every length too long.
                    (seed >> 56) as u8 | 0x80
                })
                .collect();
            agent.send_raw(&noise)?;
            agent.greet(soon, || Ok(()))?;
            ensure!(!agent.text("/proc/version")?.is_empty());
        }
        Ok(())
    })
}

fn many_at_once(lab: &Lab) -> Result<()> {
    lab.shared(|vm| {
        let agent = vm.agent();
        let soon = vm.soon();
        let sleepers = (0..MAX_IN_FLIGHT)
            .map(|_| agent.spawn(&["sleep", "2"], &[], soon))
            .collect::<Result<Vec<_>, _>>()?;
        let one_more = agent.text("/proc/version");
        ensure!(
            one_more.as_ref().is_err_and(|e| e.errno() == Some(EBUSY)),
            "{one_more:?}"
        );
        for sleeper in sleepers {
            ensure!(sleeper.finished(soon)?.status == Status::Exited(0));
        }
        // Left running on purpose: the next conversation ends it.
        agent.spawn(&["sleep", "601"], &[], soon * 40)?;
        Ok(())
    })?;
    lab.shared(|vm| {
        let agent = vm.agent();
        let soon = vm.soon();
        mlx5_vm::process::wait_until("the program of the last conversation to end", soon, || {
            let all = agent.output(&["ps", "-o", "args"], soon)?;
            Ok(!all.contains("sleep 601"))
        })?;
        let sleeper = agent.spawn(&["sleep", "600"], &[], soon * 40)?;
        let signal = |exec, signal| agent.call(Call::Signal { exec, signal }, soon);
        mlx5_vm::process::wait_until("the program to start", soon, || {
            Ok(signal(sleeper.id, SIGTERM).is_ok())
        })?;
        ensure!(sleeper.finished(soon)?.status == Status::Signaled(SIGTERM));
        ensure!(signal(sleeper.id, SIGTERM).is_err());
        ensure!(signal(sleeper.id, 12345).is_err_and(|e| e.errno() == Some(EINVAL)));
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..16)
                .map(|worker| {
                    scope.spawn(move || -> Result<()> {
                        for round in 0..4 {
                            let text = format!("{worker}.{round}");
                            let output = agent.output(&["echo", &text], soon)?;
                            ensure!(output.trim() == text, "{output:?}, expected {text}");
                        }
                        Ok(())
                    })
                })
                .collect();
            for worker in workers {
                match worker.join() {
                    Ok(result) => result?,
                    Err(_) => bail!("a thread panicked"),
                }
            }
            Ok(())
        })
    })
}

/// Writes a line to the guest's kernel log.
fn log(vm: &Vm, line: &str) -> Result<()> {
    vm.agent()
        .set("/dev/kmsg", &format!("{line}\n"), vm.soon())?;
    Ok(())
}

fn kernel_log_is_judged(lab: &Lab) -> Result<()> {
    let mut vm = lab.borrow(1)?;
    vm.expect_defect("BUG: made up, expected");
    let error = vm.check_log().unwrap_err().to_string();
    ensure!(error.contains("BUG: made up, expected"), "{error}");
    let mark = vm.mark()?;
    log(&vm, "BUG: made up, expected")?;
    vm.wait_log(mark, "made up", vm.soon())?;
    vm.check_log()?;
    let missing = vm.wait_log(mark, "never said", Duration::from_millis(100));
    ensure!(missing.is_err_and(|e| e.to_string().contains("made up, expected")));
    log(&vm, "WARNING: made up, not expected")?;
    let first = boot_id(&vm)?;
    let error = vm.finish().unwrap_err().to_string();
    ensure!(error.contains("not expected"), "{error}");

    // Its guest is not used again; one handed back in order is.
    let vm = lab.borrow(1)?;
    let second = boot_id(&vm)?;
    ensure!(second != first, "a guest with a defect was used again");
    vm.finish()?;
    let vm = lab.borrow(1)?;
    ensure!(
        boot_id(&vm)? == second,
        "a guest handed back in order was not used again"
    );
    vm.finish()
}

fn boot_id(vm: &Vm) -> Result<String> {
    Ok(vm.agent().text("/proc/sys/kernel/random/boot_id")?)
}

fn a_dead_guest_is_noticed(lab: &Lab) -> Result<()> {
    let boot = Boot {
        hardware: Hardware {
            ports: 1,
            memory: 512,
            ..Hardware::default()
        },
        ..shared()
    };
    let mut vm = Vm::boot(&lab.manifest, lab.test, &boot)?;
    let start = Instant::now();
    let call = Call::Exec(Exec {
        argv: vec![
            "sh".into(),
            "-c".into(),
            "echo c > /proc/sysrq-trigger".into(),
        ],
        timeout_ms: 60_000,
        ..Exec::default()
    });
    let error = vm.agent().call(call, vm.soon() * 4).unwrap_err();
    ensure!(matches!(error, GuestError::Closed(_)), "{error}");
    ensure!(start.elapsed() < vm.soon() * 2, "{:?}", start.elapsed());
    let text = vm.explain(error.into()).to_string();
    let panic = text.contains("Kernel panic - not syncing: sysrq triggered crash");
    ensure!(panic, "the explanation lacks the panic:\n{text}");
    std::fs::remove_dir_all(vm.logs()).context("removing the logs")?;
    Ok(())
}

/// The guest on a Debian root: its programs, and nothing kept of what they
/// write.
fn debian_root(lab: &Lab) -> Result<()> {
    let image = lab.manifest.guest_root.as_deref().context("no root")?;
    let written = || -> Result<_> { Ok(std::fs::metadata(image)?.modified()?) };
    let before = written()?;
    lab.on_root(1, |vm| {
        let soon = vm.soon();
        vm.modprobe("ib_uverbs", soon)?;
        let agent = vm.agent();
        let os = agent.text("/etc/os-release")?;
        ensure!(os.contains("ID=debian"), "{os}");
        agent
            .output(&["rdma", "-V"], soon)
            .context("iproute2 in the guest's root")?;
        agent
            .output(&["ibv_devices"], soon)
            .context("rdma-core in the guest's root")?;
        agent.output(&["sh", "-c", "echo mark > /var/tmp/mark; sync"], soon)?;
        ensure!(agent.text("/var/tmp/mark")? == "mark");
        let disk = agent.text("/sys/block/vda/stat")?;
        let sectors = disk.split_whitespace().nth(6).map(str::parse::<u64>);
        ensure!(matches!(sectors, Some(Ok(1..))), "not written: {disk}");
        load(vm, "")?;
        let id = vm.add_device(&[])?;
        up(vm, id)?;
        down(vm, id)
    })?;
    ensure!(written()? == before, "{} was written", image.display());
    Ok(())
}
