// SPDX-License-Identifier: GPL-2.0
//! A guest with devices in it.

use crate::agent::{Agent, GuestError};
use crate::initramfs::Initramfs;
use crate::keeper::Lease;
use crate::klog::Judge;
use crate::manifest::{DeviceKind, Kernel, Manifest};
use crate::model::Model;
use crate::modules::{self, Modules};
use crate::process::{self, log_folder, tail, wait_until, Process};
use crate::qemu::{self, Hardware};
use crate::qmp::Qmp;
use anyhow::{bail, Context, Result};
use mlx5_agent::proto::{Call, NextKernel, Power, Record, Reply, WriteMode, PAYLOAD};
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Name of the driver under test.
pub const DRIVER: &str = "mlx5_rs";

/// Where the guest finds its module.
const DRIVER_FILE: &str = "mlx5_rs.ko";

/// Where it finds the kernel to go on into, and that one's initramfs.
const NEXT_IMAGE: &str = "next-kernel";
const NEXT_INITRD: &str = "next-initrd";

/// Time for a guest of the test kernel to boot on a busy machine.
const BOOT: Duration = Duration::from_secs(120);

/// Time for anything else that is expected to be immediate.
const SOON: Duration = Duration::from_secs(15);

/// What to boot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Boot {
    /// The machine.
    pub hardware: Hardware,
    /// Added to the kernel's command line.
    pub cmdline: Vec<String>,
    /// Modules of the kernel that [`Vm::modprobe`] can load later.
    pub modules: Vec<String>,
    /// Run on the Debian root instead of the initramfs alone.
    pub root: bool,
    /// Pack the kernel and its initramfs once more, for [`Vm::kexec`].
    pub next_kernel: bool,
    /// Put the serial console on this process's terminal.
    pub terminal: bool,
}

/// Sockets and files of a running QEMU.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) agent: PathBuf,
    pub(crate) qmp: PathBuf,
    pub(crate) console: PathBuf,
    pub(crate) qemu_log: PathBuf,
}

/// A QEMU process with its files.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) process: Process,
    pub(crate) place: Place,
    /// Holds sockets and the initramfs.
    _sockets: TempDir,
}

impl Machine {
    /// Starts QEMU; does not wait for the guest.
    pub(crate) fn start(manifest: &Manifest, boot: &Boot, logs: &Path) -> Result<Self> {
        let sockets = socket_folder()?;
        let initrd = sockets.path().join("initrd");
        let next = if boot.next_kernel {
            let next = sockets.path().join("next-initrd");
            write_initramfs(manifest, boot, None, &next)?;
            Some(next)
        } else {
            None
        };
        write_initramfs(manifest, boot, next.as_deref(), &initrd)?;
        let place = Place {
            agent: sockets.path().join("agent.sock"),
            qmp: sockets.path().join("qmp.sock"),
            console: logs.join("console.log"),
            qemu_log: logs.join("qemu.log"),
        };
        let root = if boot.root {
            let root = manifest.guest_root.as_deref();
            Some(root.context("the manifest names no guest_root, and this boot needs one")?)
        } else {
            None
        };
        let paths = qemu::Paths {
            initrd: &initrd,
            agent: &place.agent,
            qmp: &place.qmp,
            console: &place.console,
        };
        let cmdline = command_line(boot);
        let arguments = qemu::arguments(
            manifest,
            &boot.hardware,
            paths,
            &cmdline,
            root,
            boot.terminal,
        );
        let mut command = Command::new(&arguments[0]);
        command.args(&arguments[1..]);
        let process = if boot.terminal {
            let log = File::create(&place.qemu_log)
                .with_context(|| place.qemu_log.display().to_string())?;
            command.stderr(log);
            Process::spawn("QEMU", &mut command, &place.qemu_log)?
        } else {
            Process::start("QEMU", &mut command, &place.qemu_log, false)?
        };
        let mut machine = Self {
            process,
            place,
            _sockets: sockets,
        };
        let process = &mut machine.process;
        let place = &machine.place;
        wait_until("QEMU's sockets", SOON, || {
            process.check()?;
            Ok(place.agent.exists() && place.qmp.exists())
        })?;
        Ok(machine)
    }
}

/// Start of the names of [`socket_folder`]s; the owner's process id follows.
const FOLDER: &str = "mlx5-vm-";

/// A folder for sockets, whose paths must fit `sun_path` (108 bytes).
pub(crate) fn socket_folder() -> Result<TempDir> {
    let parent = std::env::temp_dir();
    sweep(&parent);
    tempfile::Builder::new()
        .prefix(&format!("{FOLDER}{}-", std::process::id()))
        .tempdir_in(&parent)
        .with_context(|| format!("a folder in {}", parent.display()))
}

/// Removes the folders of processes that were killed.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| {
            let (pid, _) = name.strip_prefix(FOLDER)?.split_once('-')?;
            pid.parse::<u32>().ok()
        });
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Fails for the folders of other users.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn command_line(boot: &Boot) -> String {
    let mut words = vec![
        "console=ttyS0",
        // A dead guest ends QEMU (-no-reboot), and is dead at its first oops.
        "panic=-1",
        "oops=panic",
        "printk.devkmsg=on",
        "loglevel=7",
        "random.trust_cpu=on",
        // On a busy host the timer's first ticks come too late for the check
        // that it works at all, which ends in a panic.
        "no_timer_check",
        // Bus errors are the kernel's own business (AER), as on real machines
        // with such cards. The test kernel lacks what it wants before it asks
        // the platform for it (PCIEASPM).
        "pcie_ports=native",
    ];
    if boot.hardware.iommu {
        words.push("intel_iommu=on");
    }
    if boot.root {
        words.push("mlx5_agent.root=vda");
    }
    words.extend(boot.cmdline.iter().map(String::as_str));
    words.join(" ")
}

/// `next` is the initramfs of a kernel to go on into.
fn write_initramfs(
    manifest: &Manifest,
    boot: &Boot,
    next: Option<&Path>,
    path: &Path,
) -> Result<()> {
    let file = File::create(path).with_context(|| path.display().to_string())?;
    let mut archive = Initramfs::new(BufWriter::new(file));
    archive.copy("init", 0o755, &manifest.agent)?;
    archive.copy("bin/busybox", 0o755, &manifest.busybox)?;
    if manifest.driver.is_file() {
        archive.copy(&format!("payload/{DRIVER_FILE}"), 0o644, &manifest.driver)?;
    }
    if let Some(next) = next {
        archive.copy(&format!("payload/{NEXT_IMAGE}"), 0o644, &manifest.image)?;
        archive.copy(&format!("payload/{NEXT_INITRD}"), 0o644, next)?;
    }
    let known = Modules::read(&manifest.modules())?;
    let mut needed = vec!["virtio_pci", "virtio_console"];
    if boot.root {
        needed.extend(["virtio_blk", "ext4"]);
    }
    let first = known.order(&needed)?;
    let wanted: Vec<&str> = boot.modules.iter().map(String::as_str).collect();
    let mut list = String::new();
    let mut packed = Vec::new();
    for path in &first {
        let (name, content) = modules::load(path)?;
        list.push_str(&format!("modules/{name}.ko\n"));
        archive.file(&format!("payload/modules/{name}.ko"), 0o644, &content)?;
        packed.push(path.clone());
    }
    for path in known.order(&wanted)? {
        if !packed.contains(&path) {
            let (name, content) = modules::load(&path)?;
            archive.file(&format!("payload/modules/{name}.ko"), 0o644, &content)?;
        }
    }
    archive.file("payload/modules.list", 0o644, list.as_bytes())?;
    archive.finish()?;
    Ok(())
}

/// How a kernel makes way for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handover {
    /// With all drivers told to shut their devices down.
    Shutdown,
    /// At once, from a panic, into memory set aside by `crashkernel=`: devices
    /// go on as if nothing had happened.
    Crash,
}

/// Who ends QEMU.
#[derive(Debug)]
enum Owner {
    Own(Box<Machine>),
    Shared(Lease),
}

/// A device in the guest.
#[derive(Debug)]
pub struct Device {
    /// Its PCI address in the guest.
    pub bdf: String,
    /// The model behind it; `None` for a real card.
    pub model: Option<Model>,
    gone: bool,
}

/// Number of a [`Device`] in its [`Vm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceId(usize);

/// A running guest.
#[derive(Debug)]
pub struct Vm {
    // Dropped in this order: the devices' models last, since QEMU does not
    // like to lose them.
    agent: Agent,
    qmp: Qmp,
    owner: Owner,
    devices: Vec<Device>,
    manifest: Manifest,
    place: Place,
    sockets: TempDir,
    logs: PathBuf,
    free_ports: Vec<u8>,
    records: Vec<Record>,
    judged: usize,
    lost: u64,
    judge: Judge,
    modules: Vec<String>,
    hunt_leaks: bool,
}

impl Vm {
    /// Boots a guest of one's own. `name` is for its logs.
    ///
    /// # Errors
    ///
    /// If it does not come up: with the end of its console.
    pub fn boot(manifest: &Manifest, name: &str, boot: &Boot) -> Result<Self> {
        let logs = log_folder(&manifest.logs(), name)?;
        let machine = Machine::start(manifest, boot, &logs)?;
        let place = machine.place.clone();
        let owner = Owner::Own(Box::new(machine));
        let ports = (0..boot.hardware.ports).collect();
        let mut vm = Self::attach(manifest, owner, place, ports, logs)?;
        vm.modules.clone_from(&boot.modules);
        Ok(vm)
    }

    /// Takes part in a guest that other tests use before and after.
    pub(crate) fn share(
        manifest: &Manifest,
        name: &str,
        boot: &Boot,
        lease: Lease,
    ) -> Result<Self> {
        let logs = log_folder(&manifest.logs(), name)?;
        let (place, ports) = (lease.place.clone(), lease.ports.clone());
        let mut vm = Self::attach(manifest, Owner::Shared(lease), place, ports, logs)?;
        vm.modules.clone_from(&boot.modules);
        vm.pull(Duration::ZERO)?;
        // Older messages have been judged by those who provoked them.
        vm.judged = vm.records.len();
        vm.judge = Judge::default();
        Ok(vm)
    }

    /// Goes on into the kernel that [`Boot::next_kernel`] has packed, and waits
    /// for it to come up. What the old one has said is judged before; marks
    /// in its log are void. It is the same guest, devices included, with no
    /// driver loaded.
    ///
    /// # Errors
    ///
    /// If the old kernel's log reports a defect, or the new one does not come
    /// up: with the end of the console.
    pub fn kexec(&mut self, how: Handover) -> Result<()> {
        let image = format!("{PAYLOAD}/{NEXT_IMAGE}");
        let on_crash = matches!(how, Handover::Crash);
        let line = self.agent.text("/proc/cmdline")?;
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if on_crash {
            words.retain(|word| !word.starts_with("crashkernel="));
            // The others are wherever the panic has left them.
            words.push("nr_cpus=1");
        }
        let next = NextKernel {
            image,
            initrd: format!("{PAYLOAD}/{NEXT_INITRD}"),
            cmdline: words.join(" "),
            on_crash,
        };
        self.agent.call(Call::LoadKernel(next), self.soon())?;
        self.check_log()?;
        let last = match how {
            Handover::Shutdown => Call::Power(Power::Kexec),
            Handover::Crash => Call::WriteFile {
                path: "/proc/sysrq-trigger".into(),
                mode: WriteMode::Existing,
                data: b"c".into(),
            },
        };
        // No answer comes: the kernel is gone.
        let _ = self.agent.start(last)?;
        let limit = self.scaled(BOOT);
        let owner = &mut self.owner;
        self.agent
            .reconnect(limit, || match owner {
                Owner::Own(machine) => machine.process.check(),
                Owner::Shared(_) => bail!("a shared guest stays with its kernel"),
            })
            .with_context(|| {
                let console = tail(&self.place.console, 40);
                format!("the end of the guest's console:\n{console}")
            })?;
        self.records.clear();
        self.judged = 0;
        Ok(())
    }

    fn attach(
        manifest: &Manifest,
        mut owner: Owner,
        place: Place,
        mut ports: Vec<u8>,
        logs: PathBuf,
    ) -> Result<Self> {
        let slow = manifest.kernel.slowness();
        let agent = Agent::connect(
            &place.agent,
            BOOT * slow,
            SOON * slow,
            || match &mut owner {
                Owner::Own(machine) => machine.process.check(),
                Owner::Shared(_) => Ok(()),
            },
        )
        .with_context(|| {
            format!(
                "the end of the guest's console:\n{}",
                tail(&place.console, 40)
            )
        })?;
        let qmp = Qmp::connect(&place.qmp)?;
        ports.reverse();
        Ok(Self {
            agent,
            qmp,
            owner,
            devices: Vec::new(),
            manifest: manifest.clone(),
            place,
            sockets: socket_folder()?,
            logs,
            free_ports: ports,
            records: Vec::new(),
            judged: 0,
            lost: 0,
            judge: Judge::default(),
            modules: Vec::new(),
            hunt_leaks: false,
        })
    }

    /// The command channel.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// What was prepared for this guest's kernel.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// `time`, longer on a slow kernel.
    pub fn scaled(&self, time: Duration) -> Duration {
        time * self.manifest.kernel.slowness()
    }

    /// Time for what is expected to be immediate.
    pub fn soon(&self) -> Duration {
        self.scaled(SOON)
    }

    /// Adds a device on a free port: a model of its own with these options,
    /// or the real card. Returns when the guest's kernel has found it.
    ///
    /// # Errors
    ///
    /// If the model does not start, no port is free, or the guest does not
    /// find it.
    pub fn add_device(&mut self, options: &[&str]) -> Result<DeviceId> {
        let port = self.free_port()?;
        let model = match self.manifest.device.clone() {
            DeviceKind::Model => Some(self.plug_model(port, 0, options, json!({}))?),
            DeviceKind::Vfio(address) => {
                let (id, bus) = (format!("dev{port}"), format!("rp{port}"));
                self.qmp.execute(
                    "device_add",
                    json!({ "driver": "vfio-pci", "id": id, "bus": bus, "host": address }),
                )?;
                None
            }
        };
        self.find(port, model)
    }

    /// Adds a device of several functions, each a model of its own with its
    /// options, function 0 first. The guest need not have found the others:
    /// virtual functions show when they are enabled.
    ///
    /// # Errors
    ///
    /// As [`Self::add_device`].
    pub fn add_functions(&mut self, functions: &[&[&str]]) -> Result<Vec<DeviceId>> {
        let port = self.free_port()?;
        let mut models = Vec::new();
        // Function 0 comes last: with it, QEMU shows the whole device.
        for (function, options) in functions.iter().enumerate().rev() {
            let more = json!({ "multifunction": function == 0 });
            models.push(self.plug_model(port, function, options, more)?);
        }
        let first = self.find(port, models.pop())?;
        let mut ids = vec![first];
        let bdf = self.bdf(first);
        let slot = bdf.trim_end_matches('0').to_owned();
        for (function, model) in (1..).zip(models.into_iter().rev()) {
            let bdf = format!("{slot}{function}");
            ids.push(self.keep(bdf, Some(model)));
        }
        Ok(ids)
    }

    fn free_port(&mut self) -> Result<u8> {
        self.free_ports.pop().context(
            "no root port is free; a device cannot be taken out of a port again, so give the \
             guest more of them",
        )
    }

    /// Starts a model and plugs it in as a function of the device at a port.
    fn plug_model(
        &mut self,
        port: u8,
        function: usize,
        options: &[&str],
        more: serde_json::Value,
    ) -> Result<Model> {
        let number = u32::from(port) + 100 * function as u32;
        let model = Model::start(
            &self.manifest,
            self.sockets.path(),
            &self.logs,
            number,
            options,
        )?;
        let mut device = json!({
            "driver": "vfio-user-pci",
            "id": format!("dev{number}"),
            "bus": format!("rp{port}"),
            "addr": format!("0.{function}"),
            "socket": { "type": "unix", "path": model.socket() },
        });
        if let (Some(device), Some(more)) = (device.as_object_mut(), more.as_object()) {
            device.extend(more.clone());
        }
        self.qmp.execute("device_add", device)?;
        Ok(model)
    }

    /// Has the guest look for a device at a port.
    fn find(&mut self, port: u8, model: Option<Model>) -> Result<DeviceId> {
        let (slot, function) = qemu::port_address(port);
        let bridge = format!("/sys/bus/pci/devices/0000:00:{slot:02x}.{function}");
        // QEMU announces it by ACPI, to which not every kernel listens.
        self.agent
            .set(&format!("{bridge}/rescan"), "1", self.soon())?;
        let agent = &self.agent;
        let mut found = None;
        wait_until(&format!("a device behind {bridge}"), self.soon(), || {
            let names = agent.list(&bridge)?;
            // `0000:01:00.0`; other children are `0000:00:10.0:pcie004`.
            found = names
                .into_iter()
                .find(|name| name.len() == 12 && name.starts_with("0000:") && name.ends_with(".0"));
            Ok(found.is_some())
        })?;
        let bdf = found.context("the device's address")?;
        let found = format!("/sys/bus/pci/devices/{bdf}/config");
        wait_until(&found, self.soon(), || Ok(agent.read(&found).is_ok()))?;
        Ok(self.keep(bdf, model))
    }

    fn keep(&mut self, bdf: String, model: Option<Model>) -> DeviceId {
        self.devices.push(Device {
            bdf,
            model,
            gone: false,
        });
        DeviceId(self.devices.len() - 1)
    }

    /// A device.
    pub fn device(&self, id: DeviceId) -> &Device {
        &self.devices[id.0]
    }

    /// PCI address in the guest.
    pub fn bdf(&self, id: DeviceId) -> String {
        self.devices[id.0].bdf.clone()
    }

    /// The model behind a device.
    ///
    /// # Errors
    ///
    /// If there is none, because it is a real card.
    pub fn model(&mut self, id: DeviceId) -> Result<&mut Model> {
        let device = &mut self.devices[id.0];
        device
            .model
            .as_mut()
            .with_context(|| format!("{} is a real card; this needs the model", device.bdf))
    }

    /// Path of a device's file in sysfs.
    pub fn sysfs(&self, id: DeviceId, name: &str) -> String {
        format!("/sys/bus/pci/devices/{}/{name}", self.devices[id.0].bdf)
    }

    /// Name of the driver that is bound to a device.
    ///
    /// # Errors
    ///
    /// If the guest does not answer.
    pub fn driver_of(&self, id: DeviceId) -> Result<Option<String>> {
        let link = self.agent.link(&self.sysfs(id, "driver"))?;
        Ok(link.and_then(|path| path.rsplit('/').next().map(str::to_owned)))
    }

    /// Whether the kernel binds drivers and devices by itself.
    ///
    /// # Errors
    ///
    /// If the guest does not answer.
    pub fn autoprobe(&self, on: bool) -> Result<()> {
        let value = if on { "1" } else { "0" };
        self.agent
            .set("/sys/bus/pci/drivers_autoprobe", value, self.soon())?;
        Ok(())
    }

    /// Binds a driver; the error is probe's.
    ///
    /// # Errors
    ///
    /// See [`GuestError`].
    pub fn bind(&self, id: DeviceId, driver: &str, timeout: Duration) -> Result<(), GuestError> {
        let path = format!("/sys/bus/pci/drivers/{driver}/bind");
        self.agent.set(&path, &self.devices[id.0].bdf, timeout)
    }

    /// Unbinds a driver.
    ///
    /// # Errors
    ///
    /// See [`GuestError`].
    pub fn unbind(&self, id: DeviceId, driver: &str, timeout: Duration) -> Result<(), GuestError> {
        let path = format!("/sys/bus/pci/drivers/{driver}/unbind");
        self.agent.set(&path, &self.devices[id.0].bdf, timeout)
    }

    /// Loads the driver under test.
    ///
    /// # Errors
    ///
    /// See [`GuestError`].
    pub fn insmod(&self, params: &str, timeout: Duration) -> Result<(), GuestError> {
        self.insert(&format!("{PAYLOAD}/{DRIVER_FILE}"), params, timeout)
    }

    fn insert(&self, path: &str, params: &str, timeout: Duration) -> Result<(), GuestError> {
        let call = Call::InsertModule {
            path: path.into(),
            params: params.into(),
        };
        self.agent.call(call, timeout).map(drop)
    }

    /// Loads a module of the kernel with what it depends on; the [`Boot`]
    /// must have named it.
    ///
    /// # Errors
    ///
    /// If it was not named, or cannot be loaded.
    pub fn modprobe(&self, name: &str, timeout: Duration) -> Result<()> {
        self.modprobe_with(name, "", timeout)
    }

    /// The same with parameters for the module itself.
    ///
    /// # Errors
    ///
    /// As [`Self::modprobe`].
    pub fn modprobe_with(&self, name: &str, params: &str, timeout: Duration) -> Result<()> {
        let known = Modules::read(&self.manifest.modules())?;
        for path in known.order(&[name])? {
            let (part, _) = modules::load(&path)?;
            let file = format!("{PAYLOAD}/modules/{part}.ko");
            let params = if part == name { params } else { "" };
            match self.insert(&file, params, timeout) {
                Err(error) if error.errno() == Some(rustix::io::Errno::EXIST.raw_os_error()) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Unloads a module.
    ///
    /// # Errors
    ///
    /// See [`GuestError`].
    pub fn rmmod(&self, name: &str, timeout: Duration) -> Result<(), GuestError> {
        let call = Call::RemoveModule { name: name.into() };
        self.agent.call(call, timeout).map(drop)
    }

    /// Whether a module is loaded.
    ///
    /// # Errors
    ///
    /// If the guest does not answer.
    pub fn is_loaded(&self, name: &str) -> Result<bool> {
        Ok(self.agent.list("/sys/module")?.iter().any(|n| n == name)
            && self
                .agent
                .list(&format!("/sys/module/{name}"))?
                .iter()
                .any(|n| n == "refcnt"))
    }

    /// Takes a device out of the guest (sysfs remove), ends its model and
    /// fails on violations.
    ///
    /// # Errors
    ///
    /// If any of that does not work.
    pub fn remove_device(&mut self, id: DeviceId) -> Result<()> {
        let path = self.sysfs(id, "remove");
        if self.devices[id.0].gone {
            return Ok(());
        }
        self.devices[id.0].gone = true;
        // A virtual function may be gone already.
        let folder = path.trim_end_matches("/remove");
        if self.agent.list(folder).is_ok() {
            self.agent
                .set(&path, "1", self.scaled(Duration::from_secs(60)))?;
        }
        let bdf = self.bdf(id);
        if let Some(mut model) = self.devices[id.0].model.take() {
            let judged = model.check();
            let stopped = model.stop();
            judged
                .and(stopped)
                .with_context(|| format!("the model of {bdf}"))?;
        }
        Ok(())
    }

    /// Has the guest forget a device and find it again, as if it were new.
    ///
    /// # Errors
    ///
    /// If it does not find it.
    pub fn renew(&self, id: DeviceId) -> Result<()> {
        let bdf = self.bdf(id);
        let soon = self.soon();
        self.agent.set(&self.sysfs(id, "remove"), "1", soon)?;
        self.agent.set("/sys/bus/pci/rescan", "1", soon)?;
        wait_until("the device to be found again", soon, || {
            Ok(self.agent.list("/sys/bus/pci/devices")?.contains(&bdf))
        })
    }

    /// Reads new kernel messages; waits for the first one.
    fn pull(&mut self, wait: Duration) -> Result<()> {
        let mut wait = wait;
        loop {
            let from = self.records.last().map_or(0, |record| record.seq + 1);
            let call = Call::Kmsg {
                from,
                wait_ms: wait.as_millis() as u32,
            };
            let reply = self.agent.call(call, wait + self.soon())?;
            let Reply::Kmsg { records, lost } = reply else {
                bail!("unexpected answer to a request for kernel messages: {reply:?}");
            };
            self.lost += lost;
            let end = records.is_empty();
            self.records.extend(records);
            while let Some(record) = self.records.get(self.judged) {
                self.judge.message(&record.text);
                self.judged += 1;
            }
            if end {
                return Ok(());
            }
            wait = Duration::ZERO;
        }
    }

    /// Marks a place in the kernel log.
    ///
    /// # Errors
    ///
    /// If the guest does not answer.
    pub fn mark(&mut self) -> Result<Mark> {
        self.pull(Duration::ZERO)?;
        Ok(Mark(self.records.len()))
    }

    /// Kernel messages after a mark.
    ///
    /// # Errors
    ///
    /// If the guest does not answer.
    pub fn log_since(&mut self, mark: Mark) -> Result<Vec<String>> {
        let records = self.records_since(mark)?;
        Ok(records.iter().map(|record| record.text.clone()).collect())
    }

    /// As [`Self::log_since`], with level and time.
    ///
    /// # Errors
    ///
    /// If the guest does not answer.
    pub fn records_since(&mut self, mark: Mark) -> Result<&[Record]> {
        self.pull(Duration::ZERO)?;
        Ok(&self.records[mark.0..])
    }

    /// Waits for a kernel message after a mark.
    ///
    /// # Errors
    ///
    /// If none comes within `timeout`: with those that came.
    pub fn wait_log(&mut self, mark: Mark, pattern: &str, timeout: Duration) -> Result<String> {
        Ok(self.wait_record(mark, pattern, timeout)?.text)
    }

    /// The same with its level and time.
    ///
    /// # Errors
    ///
    /// As for [`Self::wait_log`].
    pub fn wait_record(&mut self, mark: Mark, pattern: &str, timeout: Duration) -> Result<Record> {
        let regex = Regex::new(pattern).with_context(|| format!("pattern {pattern:?}"))?;
        let deadline = Instant::now() + timeout;
        let mut seen = mark.0;
        loop {
            let found = self.records[seen..]
                .iter()
                .find(|r| regex.is_match(&r.text));
            if let Some(record) = found {
                return Ok(record.clone());
            }
            seen = self.records.len();
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let lines: Vec<_> = self.records[mark.0..]
                    .iter()
                    .map(|r| r.text.as_str())
                    .collect();
                bail!(
                    "no kernel message matched {pattern:?} within {timeout:?}; there were:\n{}",
                    lines.join("\n")
                );
            }
            self.pull(left.min(Duration::from_secs(1)))?;
        }
    }

    /// Allows kernel messages that report a defect, and requires one.
    pub fn expect_defect(&mut self, pattern: &str) {
        self.judge.expect(pattern);
    }

    /// Fails if the kernel log reports a defect so far.
    ///
    /// # Errors
    ///
    /// With the lines, or if messages were lost.
    pub fn check_log(&mut self) -> Result<()> {
        self.pull(Duration::ZERO)?;
        self.judge.verdict()?;
        if self.lost > 0 {
            bail!(
                "{} kernel messages were lost, so they could not be judged",
                self.lost
            );
        }
        Ok(())
    }

    /// Has kmemleak search when everything is down, if the kernel has it.
    pub fn hunt_leaks(&mut self) {
        self.hunt_leaks = true;
    }

    /// Has kmemleak search and fails on leaks.
    fn check_leaks(&mut self) -> Result<()> {
        const FILE: &str = "/sys/kernel/debug/kmemleak";
        // An object is reported when scans do not find it and it is older
        // than 5 s (MSECS_MIN_AGE in mm/kmemleak.c); the second scan confirms
        // that it has not changed since the first one.
        const AGE: Duration = Duration::from_secs(5);
        let scan = self.scaled(Duration::from_secs(60));
        let born = Instant::now();
        self.agent.set(FILE, "scan", scan)?;
        wait_until("objects to be old enough", AGE * 2, || {
            Ok(born.elapsed() > AGE)
        })?;
        self.agent.set(FILE, "scan", scan)?;
        let leaks = self.agent.text(FILE)?;
        if leaks.contains("unreferenced object") {
            bail!("kmemleak:\n{leaks}");
        }
        Ok(())
    }

    /// Everything down and judged: devices removed, the driver unloaded, no
    /// violation, nothing bad in the log. A guest of one's own is powered
    /// off; a shared one is handed back.
    ///
    /// # Errors
    ///
    /// What is wrong.
    pub fn finish(mut self) -> Result<()> {
        let result = self.wind_up();
        if let Err(error) = result {
            return Err(self.explain(error));
        }
        let Self { owner, logs, .. } = self;
        match owner {
            Owner::Own(_) => {}
            Owner::Shared(lease) => lease.give_back(&self.free_ports)?,
        }
        // Kept only after a failure.
        let _ = fs::remove_dir_all(logs);
        Ok(())
    }

    fn wind_up(&mut self) -> Result<()> {
        for number in 0..self.devices.len() {
            self.remove_device(DeviceId(number))?;
        }
        if self.is_loaded(DRIVER)? {
            self.rmmod(DRIVER, self.scaled(Duration::from_secs(60)))?;
        }
        self.autoprobe(true)?;
        if self.hunt_leaks && self.manifest.kernel == Kernel::Kasan {
            self.check_leaks()?;
        }
        self.check_log()
    }

    /// Adds to an error what helps to understand it.
    pub fn explain(&mut self, error: anyhow::Error) -> anyhow::Error {
        let mut text = format!("{error:#}");
        if let Owner::Own(machine) = &mut self.owner {
            if let Err(error) = machine.process.check() {
                text.push_str(&format!("\n{error:#}"));
            }
        }
        // As far as the guest still answers.
        let _ = self.pull(Duration::ZERO);
        if let Err(defects) = self.judge.verdict() {
            text.push_str(&format!("\n{defects}"));
        }
        for device in &mut self.devices {
            if let Some(model) = &mut device.model {
                text.push_str(&format!("\nmodel of {}:\n{}", device.bdf, model.describe()));
            }
        }
        text.push_str(&format!(
            "\nthe end of the guest's console ({}):\n{}\n\
             logs of the models: {}",
            self.place.console.display(),
            tail(&self.place.console, 40),
            self.logs.display(),
        ));
        anyhow::anyhow!(text)
    }

    /// Starts a shell on the console and waits for its end, which ends the
    /// guest.
    ///
    /// # Errors
    ///
    /// If the guest does not go down.
    pub fn shell(mut self) -> Result<()> {
        let pending = self.agent.start(Call::Shell)?;
        let Owner::Own(machine) = &mut self.owner else {
            bail!("a shared guest has no terminal");
        };
        loop {
            match pending.wait(Duration::from_secs(1)) {
                Ok(_) => break,
                Err(GuestError::Timeout(_)) => {}
                // `poweroff` in the shell.
                Err(_) => break,
            }
            if machine.process.ended().is_some() {
                break;
            }
        }
        machine.process.wait(SOON * 4)?;
        let _ = fs::remove_dir_all(&self.logs);
        Ok(())
    }

    /// Folder of this guest's logs.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// The end of the console.
    pub fn console_tail(&self, lines: usize) -> String {
        process::tail(&self.place.console, lines)
    }
}

/// A place in the kernel log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(usize);

/// Runs `body` with a guest of its own or a shared one, and judges it.
///
/// # Errors
///
/// That of `body`, or what [`Vm::finish`] finds; with explanations.
pub fn with(mut vm: Vm, body: impl FnOnce(&mut Vm) -> Result<()>) -> Result<()> {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&mut vm)));
    match result {
        Ok(Ok(())) => vm.finish(),
        Ok(Err(error)) => Err(vm.explain(error)),
        Err(panic) => {
            let error = vm.explain(anyhow::anyhow!("the test panicked"));
            eprintln!("{error}");
            std::panic::resume_unwind(panic)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_the_dead_are_swept() {
        let parent = tempfile::tempdir().unwrap();
        // Above the largest process id (PID_MAX_LIMIT, 2^22).
        let dead = "mlx5-vm-4194305-x";
        let alive = format!("mlx5-vm-{}-x", std::process::id());
        let names = [
            dead,
            &alive,
            "mlx5-vm-shared-0",
            "mlx5-vm",
            "other-4194305-x",
        ];
        for name in names {
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        sweep(parent.path());
        for name in names {
            assert_eq!(parent.path().join(name).exists(), name != dead, "{name}");
        }
    }
}
