// SPDX-License-Identifier: GPL-2.0
//! The subcommands for people.

use anyhow::{bail, ensure, Context, Result};
use mlx5_model::cmdif::Record;
use mlx5_vm::manifest::{DeviceKind, Manifest};
use mlx5_vm::peer::{self, PEER};
use mlx5_vm::process::wait_until;
use mlx5_vm::qemu::Hardware;
use mlx5_vm::vm::{with, Boot, DeviceId, Vm, DRIVER};
use mlx5_vm::{ktap, pci};
use similar::{capture_diff_slices, Algorithm, DiffOp};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Files of the driver's debugfs folder worth showing.
const DEBUGFS: [&str; 4] = ["state", "commands", "eqs", "pages"];

/// Time for a driver to come up or go down on the test kernel.
const BRING_UP: Duration = Duration::from_secs(30);

fn heading(text: &str) {
    println!("\n== {text}");
}

fn indented(text: &str) {
    for line in text.lines() {
        println!("   {line}");
    }
}

fn booted(manifest: &Manifest, name: &str, boot: &Boot) -> Result<Vm> {
    let start = Instant::now();
    let vm = Vm::boot(manifest, name, boot)?;
    println!(
        "Linux {} booted in {:.1} s ({} CPUs, {} MiB)",
        vm.agent().release,
        start.elapsed().as_secs_f32(),
        boot.hardware.cpus,
        boot.hardware.memory
    );
    Ok(vm)
}

/// A guest for a person: few ports, since every one costs boot time.
fn small() -> Boot {
    Boot {
        hardware: Hardware {
            ports: 2,
            ..Hardware::default()
        },
        cmdline: vec!["kunit.enable=0".into()],
        ..Boot::default()
    }
}

/// Loads the driver and binds it to a new device.
fn bring_up(vm: &mut Vm, options: &[String]) -> Result<DeviceId> {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    vm.autoprobe(false)?;
    let id = vm.add_device(&options)?;
    let timeout = vm.scaled(BRING_UP);
    let mark = vm.mark()?;
    vm.insmod("", timeout)
        .context("insmod mlx5_rs.ko; `make modules` builds it")?;
    if let Err(error) = vm.bind(id, DRIVER, timeout) {
        let lines = vm.log_since(mark)?;
        bail!(
            "{DRIVER} did not bind: {error}; kernel log:\n{}",
            lines.join("\n")
        );
    }
    Ok(id)
}

fn show(vm: &mut Vm, id: DeviceId) -> Result<()> {
    let bdf = vm.bdf(id);
    let identity = pci::identity(vm.agent(), &bdf)?;
    heading("device");
    println!("   {identity}");
    println!(
        "   driver {}, {} MSI-X vectors in use",
        identity.driver.as_deref().unwrap_or("none"),
        identity.vectors
    );
    for file in DEBUGFS {
        let path = format!("/sys/kernel/debug/{DRIVER}/{bdf}/{file}");
        heading(&path);
        indented(&vm.agent().text(&path)?);
    }
    Ok(())
}

/// What the model has seen, and whether the driver kept its rules.
fn verdict(vm: &mut Vm, id: DeviceId) -> Result<()> {
    if vm.device(id).model.is_none() {
        return Ok(());
    }
    heading("model");
    let model = vm.model(id)?;
    let status = model.status()?;
    println!(
        "   state {:?}, {} commands, {} pages held, {} violations",
        status.state, status.commands, status.pages.given, status.violations
    );
    model.check()
}

pub fn run(manifest: &Manifest, options: &[String]) -> Result<ExitCode> {
    let start = Instant::now();
    let vm = booted(manifest, "run", &small())?;
    with(vm, |vm| {
        let mark = vm.mark()?;
        let id = bring_up(vm, options)?;
        heading("kernel log: load");
        indented(&vm.log_since(mark)?.join("\n"));
        show(vm, id)?;
        let mark = vm.mark()?;
        let timeout = vm.scaled(BRING_UP);
        vm.unbind(id, DRIVER, timeout)?;
        vm.rmmod(DRIVER, timeout)?;
        heading("kernel log: unload");
        indented(&vm.log_since(mark)?.join("\n"));
        verdict(vm, id)
    })?;
    println!("\nall done in {:.1} s", start.elapsed().as_secs_f32());
    Ok(ExitCode::SUCCESS)
}

pub fn shell(manifest: &Manifest, options: &[String]) -> Result<ExitCode> {
    ensure!(
        std::io::stdin().is_terminal(),
        "shell: standard input is not a terminal; `run` needs none"
    );
    let mut boot = small();
    boot.terminal = true;
    boot.root = manifest.guest_root.is_some();
    // Leaves the terminal to the shell; dmesg has everything.
    boot.cmdline.push("loglevel=4".into());
    let mut vm = booted(manifest, "shell", &boot)?;
    let id = match bring_up(&mut vm, options) {
        Ok(id) => id,
        Err(error) => return Err(vm.explain(error)),
    };
    print!(
        "{DRIVER} runs {} (/sys/kernel/debug/{DRIVER}/{}).\r\n",
        vm.bdf(id),
        vm.bdf(id)
    );
    print!("\"exit\" ends the guest; its RAM and disk are lost.\r\n");
    vm.shell()?;
    Ok(ExitCode::SUCCESS)
}

pub fn kunit(manifest: &Manifest) -> Result<ExitCode> {
    ensure!(
        manifest.kernel.has_kunit(),
        "the {} kernel has no KUnit; use KERNEL=test or KERNEL=kasan",
        manifest.release
    );
    let mut boot = small();
    boot.cmdline = vec!["kunit.enable=1".into()];
    let mut vm = booted(manifest, "kunit", &boot)?;
    let mark = vm.mark()?;
    let timeout = vm.scaled(Duration::from_secs(120));
    let loaded = vm.insmod("", timeout);
    let lines = match vm.log_since(mark) {
        Ok(lines) => lines,
        // The guest is gone; what it printed last is on the console.
        Err(error) => {
            let report = ktap::parse_console(&vm.console_tail(usize::MAX));
            print!("{report}");
            return Err(vm.explain(error.context("the guest ended during the tests")));
        }
    };
    let report = ktap::parse(lines.iter().map(String::as_str));
    print!("{report}");
    let judged = loaded
        .context("insmod mlx5_rs.ko")
        .and_then(|()| vm.rmmod(DRIVER, timeout).context("rmmod"));
    let clean = match judged {
        Ok(()) => vm.finish(),
        Err(error) => Err(vm.explain(error)),
    };
    println!(
        "{} passed, {} failed",
        report.count(ktap::Outcome::Passed),
        report.count(ktap::Outcome::Failed)
    );
    clean?;
    Ok(if report.passed() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// One row of the comparison.
fn row(command: &Record) -> String {
    format!("{}({})", command.name, command.op_mod)
}

/// Prints two lists side by side. Rows are equal if opcode and modifier are;
/// `<` marks what only the first list has, `>` what only the second has.
fn compare(left: &[Record], right: &[Record]) -> usize {
    let left: Vec<String> = left.iter().map(row).collect();
    let right: Vec<String> = right.iter().map(row).collect();
    let mut different = 0;
    println!("   {:<48}   {}", PEER, DRIVER);
    let mut line = |left: Option<&String>, right: Option<&String>| {
        let mark = match (left, right) {
            (Some(_), Some(_)) => ' ',
            (Some(_), None) => '<',
            _ => '>',
        };
        different += usize::from(mark != ' ');
        let text = |side: Option<&String>| side.cloned().unwrap_or_default();
        println!("   {:<48} {mark} {}", text(left), text(right));
    };
    for op in capture_diff_slices(Algorithm::Patience, &left, &right) {
        let (old, new) = (op.old_range(), op.new_range());
        if matches!(op, DiffOp::Equal { .. }) {
            for (l, r) in left[old].iter().zip(&right[new]) {
                line(Some(l), Some(r));
            }
        } else {
            left[old].iter().for_each(|l| line(Some(l), None));
            right[new].iter().for_each(|r| line(None, Some(r)));
        }
    }
    different
}

/// Binds `driver` to a new device, waits until it is up, unbinds and unloads
/// it. Returns the commands it has issued.
fn up_and_down(
    vm: &mut Vm,
    driver: &str,
    load: impl FnOnce(&Vm) -> Result<()>,
) -> Result<Vec<Record>> {
    let id = vm.add_device(&[])?;
    let bdf = vm.bdf(id);
    let timeout = vm.scaled(BRING_UP);
    let mark = vm.mark()?;
    load(vm)?;
    vm.bind(id, driver, timeout)
        .with_context(|| format!("{driver} did not bind to {bdf}"))?;
    ensure!(
        vm.driver_of(id)?.as_deref() == Some(driver),
        "{bdf} is not bound to {driver}"
    );
    if driver == PEER {
        // The interface is up when the auxiliary devices of the upper layers
        // are there (dev.c of mlx5_core adds them last).
        let agent = vm.agent();
        wait_until("the auxiliary devices of mlx5_core", timeout, || {
            let names = agent.list("/sys/bus/auxiliary/devices")?;
            Ok(names.iter().any(|name| name.starts_with("mlx5_core.")))
        })?;
    }
    let up = vm.model(id)?.commands(0)?.len();
    vm.unbind(id, driver, timeout)?;
    vm.rmmod(driver, timeout)?;
    heading(&format!("kernel log: {driver}"));
    indented(&vm.log_since(mark)?.join("\n"));
    let commands = vm.model(id)?.commands(0)?;
    println!(
        "   {driver}: interface up after {up} commands, down after {}",
        commands.len()
    );
    verdict(vm, id)?;
    vm.remove_device(id)?;
    Ok(commands)
}

pub fn peer(manifest: &Manifest) -> Result<ExitCode> {
    if manifest.device != DeviceKind::Model {
        bail!(
            "peer: compares command lists, which only the model records; device is not \"model\""
        );
    }
    let mut boot = small();
    boot.modules = vec![PEER.into()];
    let vm = booted(manifest, "peer", &boot)?;
    with(vm, |vm| {
        vm.autoprobe(false)?;
        let timeout = vm.scaled(BRING_UP);
        let theirs = up_and_down(vm, PEER, |vm| vm.modprobe(PEER, timeout))?;
        vm.check_log()?;
        if !vm.manifest().driver.is_file() {
            heading("commands");
            theirs
                .iter()
                .for_each(|command| println!("   {}", row(command)));
            bail!(
                "{} is not there to compare with",
                vm.manifest().driver.display()
            );
        }
        let ours = up_and_down(vm, DRIVER, |vm| Ok(vm.insmod("", timeout)?))?;
        heading("commands");
        let different = compare(&theirs, &ours);
        println!(
            "\n   {} commands of {PEER}, {} of {DRIVER}, {different} rows differ",
            theirs.len(),
            ours.len()
        );
        Ok(())
    })?;
    heading("field cases");
    let start = Instant::now();
    let bad = peer::table(manifest)?;
    println!("\n   {:.0} s", start.elapsed().as_secs_f32());
    ensure!(
        bad.is_empty(),
        "{DRIVER} in the table above:\n{}",
        bad.join("\n")
    );
    Ok(ExitCode::SUCCESS)
}
