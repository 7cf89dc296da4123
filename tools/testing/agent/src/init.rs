// SPDX-License-Identifier: GPL-2.0
//! What the first process has to do before it can serve.

use anyhow::{bail, Context, Result};
use mlx5_agent::proto::PORT_NAME;
use rustix::mount::{mount, mount_move, MountFlags};
use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Modules to load first, one path per line, dependencies before dependents.
/// Relative paths are in [`PACKED`].
const MODULES: &str = "/payload/modules.list";

/// What the harness packed, before it moves to
/// [`PAYLOAD`](mlx5_agent::proto::PAYLOAD).
const PACKED: &str = "/payload";

/// First argument of the agent that runs on the root file system's disk.
pub const ON_ROOT: &str = "on-root";

/// Longest time for a device node to appear.
const DEVICE_TIMEOUT: Duration = Duration::from_secs(60);

/// Writes a line to the kernel log, which the console shows.
pub fn say(line: &str) {
    if let Ok(mut log) = OpenOptions::new().write(true).open("/dev/kmsg") {
        // One write is one record.
        let _ = log.write_all(format!("<6>mlx5-agent: {line}\n").as_bytes());
    } else {
        eprintln!("mlx5-agent: {line}");
    }
}

/// Mounts what every program expects. A file system that the kernel lacks is
/// not an error: whoever needs it will notice.
pub fn mount_all() {
    const NO: MountFlags = MountFlags::empty();
    let table: [(&str, &str, &CStr); 9] = [
        ("devtmpfs", "/dev", c"mode=0755"),
        ("proc", "/proc", c""),
        ("sysfs", "/sys", c""),
        ("devpts", "/dev/pts", c"mode=0620,ptmxmode=0666"),
        ("tmpfs", "/dev/shm", c"mode=1777"),
        ("tmpfs", "/tmp", c"mode=1777"),
        ("debugfs", "/sys/kernel/debug", c""),
        ("tracefs", "/sys/kernel/tracing", c""),
        ("configfs", "/sys/kernel/config", c""),
    ];
    for (kind, at, options) in table {
        let _ = fs::create_dir_all(at);
        match mount(kind, at, kind, NO, options) {
            // The kernel mounts devtmpfs by itself where it is told to.
            Ok(()) | Err(rustix::io::Errno::BUSY) => {}
            Err(rustix::io::Errno::NODEV | rustix::io::Errno::NOENT) => {}
            Err(error) => say(&format!("{at}: no {kind}: {error}")),
        }
    }
}

/// Loads the modules listed in the initramfs.
pub fn load_modules() -> Result<()> {
    let list = match fs::read_to_string(MODULES) {
        Ok(list) => list,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).context(MODULES),
    };
    for line in list.lines().filter(|line| !line.is_empty()) {
        let path = Path::new(PACKED).join(line);
        if let Err(failure) = crate::serve::insert_module(&path.to_string_lossy(), "") {
            if failure.errno != rustix::io::Errno::EXIST.raw_os_error() {
                bail!("{}", failure.what);
            }
        }
    }
    Ok(())
}

/// The value of `name=` on the kernel's command line.
pub fn option(name: &str) -> Option<String> {
    let line = fs::read_to_string("/proc/cmdline").ok()?;
    line.split_whitespace()
        .filter_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        .next_back()
        .map(str::to_owned)
}

/// Waits until `look` finds something.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T> {
    let deadline = Instant::now() + DEVICE_TIMEOUT;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if Instant::now() > deadline {
            bail!(
                "{what} did not appear within {} s",
                DEVICE_TIMEOUT.as_secs()
            );
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Goes on from the initramfs to the root file system on the block device
/// `name` and starts this program there again. Returns only on failure.
pub fn switch_root(name: &str) -> Result<()> {
    const ROOT: &str = "/newroot";
    let device = format!("/dev/{name}");
    wait_for(&device, || Path::new(&device).exists().then_some(()))?;
    fs::create_dir_all(ROOT).context(ROOT)?;
    let mounted = ["ext4", "squashfs"].into_iter().any(|kind| {
        mount(&device, ROOT, kind, MountFlags::NOATIME, c"").is_ok()
            || mount(&device, ROOT, kind, MountFlags::RDONLY, c"").is_ok()
    });
    if !mounted {
        bail!("{device}: neither ext4 nor squashfs, or no module for it");
    }
    let run = Path::new(ROOT).join("run");
    mount("tmpfs", &run, "tmpfs", MountFlags::empty(), c"mode=0755").context("tmpfs on /run")?;
    let agent = run.join("mlx5-agent");
    fs::copy("/proc/self/exe", &agent).with_context(|| agent.display().to_string())?;
    copy_tree(Path::new(PACKED), &run.join("payload"))?;
    rustix::process::chdir(ROOT).context(ROOT)?;
    mount_move(".", "/").context("moving the root file system to /")?;
    rustix::process::chroot(".").context("chroot")?;
    rustix::process::chdir("/").context("chdir /")?;
    let error = Command::new("/run/mlx5-agent").arg(ON_ROOT).exec();
    Err(error).context("/run/mlx5-agent")
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| to.display().to_string())?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target).with_context(|| target.display().to_string())?;
        }
    }
    Ok(())
}

/// Without a root file system on disk: makes the initramfs a place to live.
pub fn settle() -> Result<()> {
    for dir in ["/run", "/root", "/var"] {
        fs::create_dir_all(dir).context(dir)?;
    }
    if Path::new(PACKED).exists() {
        std::os::unix::fs::symlink(PACKED, mlx5_agent::proto::PAYLOAD)
            .context(mlx5_agent::proto::PAYLOAD)?;
    }
    if Path::new("/bin/busybox").exists() {
        let status = Command::new("/bin/busybox")
            .args(["--install", "-s", "/bin"])
            .status()
            .context("/bin/busybox")?;
        if !status.success() {
            bail!("busybox --install: {status}");
        }
    }
    Ok(())
}

/// Opens the port to the host. There is no udev that would make the link in
/// `/dev/virtio-ports`, so it is found by its name in sysfs.
pub fn open_port() -> Result<File> {
    const CLASS: &str = "/sys/class/virtio-ports";
    let find = || -> Option<PathBuf> {
        fs::read_dir(CLASS).ok()?.flatten().find_map(|entry| {
            let name = fs::read_to_string(entry.path().join("name")).ok()?;
            let node = Path::new("/dev").join(entry.file_name());
            (name.trim_end() == PORT_NAME && node.exists()).then_some(node)
        })
    };
    let node = wait_for(&format!("virtio-serial port {PORT_NAME}"), find)?;
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(&node)
        .with_context(|| node.display().to_string())
}
