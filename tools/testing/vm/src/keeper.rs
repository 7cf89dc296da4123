// SPDX-License-Identifier: GPL-2.0
//! Guests that several tests use one after the other.
//!
//! cargo-nextest runs every test in a process of its own. The first test that
//! wants a shared guest starts a keeper, which owns QEMU; this and later tests
//! borrow it over a socket. Each test brings devices of its own, on free
//! ports. A guest is used again only if the borrower hands it back in order:
//! a test that fails, or dies, ends its guest, and the next one gets a fresh
//! boot. The keeper ends with the test runner, or when nobody has wanted its
//! guest for [`IDLE`]. Tests that run at the same time have a keeper each.

use crate::manifest::Manifest;
use crate::process::{log_folder, wait_until};
use crate::vm::{Boot, Machine, Place, Vm};
use anyhow::{bail, Context, Result};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::FlockOperation;
use rustix::process::{getppid, getuid, pidfd_open, Pid, PidfdFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long an unwanted guest is kept.
pub const IDLE: Duration = Duration::from_secs(120);

/// Longest time that a guest is lent for; the runner ends tests before.
const BORROWED: Duration = Duration::from_secs(6000);

/// Time for the keeper itself to start.
const START: Duration = Duration::from_secs(10);

/// What a borrower says first.
#[derive(Debug, Serialize, Deserialize)]
struct Wish {
    /// Free ports that it needs.
    ports: usize,
}

/// What the keeper tells a borrower.
#[derive(Debug, Serialize, Deserialize)]
struct Offer {
    place: Place,
    ports: Vec<u8>,
}

/// What a borrower says at the end, if all is well.
#[derive(Debug, Serialize, Deserialize)]
struct Returned {
    ports: Vec<u8>,
}

/// The right to use a guest, until dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) place: Place,
    pub(crate) ports: Vec<u8>,
    stream: UnixStream,
}

impl Lease {
    /// Hands the guest back in order. `ports` are those still free.
    pub(crate) fn give_back(mut self, ports: &[u8]) -> Result<()> {
        let mut ports = ports.to_vec();
        ports.sort_unstable();
        let line = serde_json::to_string(&Returned { ports })?;
        writeln!(self.stream, "{line}").context("handing back the guest")
    }
}

/// Borrows a guest with `ports` free ports for the test `name`.
/// `keeper` is the program `mlx5-vm`.
///
/// # Errors
///
/// If no guest can be had.
pub fn borrow(
    manifest: &Manifest,
    name: &str,
    boot: &Boot,
    ports: usize,
    keeper: &Path,
) -> Result<Vm> {
    if ports > boot.hardware.ports.into() {
        bail!(
            "{name} needs {ports} ports; its guest has {}",
            boot.hardware.ports
        );
    }
    let folder = socket_folder()?;
    let socket = folder.join(format!("{:016x}.sock", key(manifest, boot)?));
    let mut reason = None;
    // A keeper may be just about to end for lack of interest.
    for _ in 0..3 {
        match lease(manifest, boot, ports, keeper, &socket) {
            Ok(lease) => return Vm::share(manifest, name, boot, lease),
            Err(error) => reason = Some(error),
        }
    }
    Err(reason.context("no attempt was made")?)
}

/// Guests are shared by the tests of one run, with the same files and the
/// same boot, that nextest does not run at the same time.
fn key(manifest: &Manifest, boot: &Boot) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    manifest.hash(&mut hasher);
    boot.hash(&mut hasher);
    // The number of the test's place among those that run at once.
    std::env::var_os("NEXTEST_TEST_GROUP_SLOT").hash(&mut hasher);
    match std::env::var_os("NEXTEST_RUN_ID") {
        Some(run) => run.hash(&mut hasher),
        None => runner().map(Pid::as_raw_nonzero).hash(&mut hasher),
    }
    for file in [&manifest.image, &manifest.agent, &manifest.driver] {
        let Ok(meta) = fs::metadata(file) else {
            continue;
        };
        let changed = meta
            .modified()
            .with_context(|| file.display().to_string())?;
        (meta.len(), changed).hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// The process whose end is the end of the run.
fn runner() -> Option<Pid> {
    getppid()
}

/// A folder for the sockets that only this user can enter.
fn socket_folder() -> Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("mlx5-vm-shared-{}", getuid().as_raw()));
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| folder.display().to_string())
        }
        _ => {
            let meta = rustix::fs::lstat(&folder).with_context(|| folder.display().to_string())?;
            if meta.st_uid != getuid().as_raw() || meta.st_mode & 0o077 != 0 {
                bail!(
                    "{}: expected a folder of this user with mode 0700",
                    folder.display()
                );
            }
            Ok(folder)
        }
    }
}

fn lease(
    manifest: &Manifest,
    boot: &Boot,
    ports: usize,
    keeper: &Path,
    socket: &Path,
) -> Result<Lease> {
    let mut stream = connect(manifest, boot, keeper, socket)?;
    let wish = serde_json::to_string(&Wish { ports })?;
    writeln!(stream, "{wish}").context("asking for a guest")?;
    let mut line = String::new();
    // Waits for those before us, and for the boot.
    let mut reader = BufReader::new(stream);
    if reader.read_line(&mut line)? == 0 {
        bail!(
            "the keeper of the shared guest has ended; its log is in {}",
            manifest.logs().display()
        );
    }
    let offer: Result<Offer, String> = serde_json::from_str(&line).context("the keeper's offer")?;
    let offer = offer.map_err(|reason| anyhow::anyhow!(reason))?;
    Ok(Lease {
        place: offer.place,
        ports: offer.ports,
        stream: reader.into_inner(),
    })
}

/// Connects to the keeper, and starts it if there is none.
fn connect(manifest: &Manifest, boot: &Boot, keeper: &Path, socket: &Path) -> Result<UnixStream> {
    let lock_path = socket.with_extension("lock");
    let lock = File::create(&lock_path).with_context(|| lock_path.display().to_string())?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)
        .with_context(|| lock_path.display().to_string())?;
    if let Ok(stream) = UnixStream::connect(socket) {
        return Ok(stream);
    }
    let logs = manifest.logs();
    fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
    let log_path = logs.join("keeper.log");
    let log = File::options()
        .create(true)
        .append(true)
        .open(&log_path)
        .with_context(|| log_path.display().to_string())?;
    let mut command = Command::new(keeper);
    command
        .arg("keeper")
        .arg("--socket")
        .arg(socket)
        .arg("--boot")
        .arg(serde_json::to_string(boot)?)
        .env(crate::manifest::VARIABLE, &manifest.path)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    if let Some(runner) = runner() {
        command
            .arg("--runner")
            .arg(runner.as_raw_nonzero().to_string());
    }
    let mut child = command
        .spawn()
        .with_context(|| format!("starting the keeper {}", keeper.display()))?;
    let mut stream = None;
    wait_until("the keeper's socket", START, || {
        if let Some(status) = child.try_wait()? {
            bail!("the keeper ended: {status}; see {}", log_path.display());
        }
        stream = UnixStream::connect(socket).ok();
        Ok(stream.is_some())
    })?;
    stream.context("the keeper's socket")
}

/// The keeper's life.
///
/// # Errors
///
/// If its socket cannot be made.
pub fn keep(manifest: &Manifest, boot: &Boot, socket: &Path, runner: Option<i32>) -> Result<()> {
    // Out of the process group that the test runner ends with the test.
    let _ = rustix::process::setsid();
    match fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| socket.display().to_string());
        }
        _ => {}
    }
    let listener = UnixListener::bind(socket).with_context(|| socket.display().to_string())?;
    let runner = runner
        .and_then(Pid::from_raw)
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let mut guest = None::<Guest>;
    let mut boots = 0u32;
    while ready(&listener, runner.as_ref(), IDLE)? {
        let (mut stream, _) = listener.accept().context("accepting a borrower")?;
        let Some(wish) = hear::<Wish>(&stream, runner.as_ref(), START) else {
            continue;
        };
        if guest
            .as_mut()
            .is_some_and(|guest| !guest.serves(wish.ports))
        {
            guest.take().into_iter().for_each(Guest::retire);
        }
        let mut chosen = match guest.take() {
            Some(kept) => kept,
            None => {
                boots += 1;
                match Guest::start(manifest, boot, boots) {
                    Ok(started) => started,
                    Err(error) => {
                        let offer: Result<Offer, String> = Err(format!("{error:#}"));
                        let line = serde_json::to_string(&offer)?;
                        // The borrower may be gone already.
                        let _ = writeln!(stream, "{line}");
                        continue;
                    }
                }
            }
        };
        // No more than it asked for: a test that takes more fails at once, not
        // only when few are left.
        let ports = chosen
            .ports
            .split_off(chosen.ports.len().saturating_sub(wish.ports));
        let offer = Offer {
            place: chosen.machine.place.clone(),
            ports,
        };
        // Without its return, the guest ends here, and its logs stay.
        if let Some(ports) = serve(&mut stream, offer, runner.as_ref()) {
            chosen.ports.extend(ports);
            guest = Some(chosen);
        }
    }
    guest.into_iter().for_each(Guest::retire);
    let _ = fs::remove_file(socket);
    let _ = fs::remove_file(socket.with_extension("lock"));
    Ok(())
}

/// The guest that a keeper has.
struct Guest {
    machine: Machine,
    /// Those that are free.
    ports: Vec<u8>,
    logs: PathBuf,
}

impl Guest {
    fn start(manifest: &Manifest, boot: &Boot, number: u32) -> Result<Self> {
        let logs = log_folder(&manifest.logs(), &format!("shared-{number}"))?;
        Ok(Self {
            machine: Machine::start(manifest, boot, &logs)?,
            ports: (0..boot.hardware.ports).collect(),
            logs,
        })
    }

    /// Whether it is of use for somebody who needs `ports` ports.
    fn serves(&mut self, ports: usize) -> bool {
        self.machine.process.ended().is_none() && self.ports.len() >= ports
    }

    /// Ends a guest with which all was well.
    fn retire(self) {
        drop(self.machine);
        // They are not worth a failure.
        let _ = fs::remove_dir_all(self.logs);
    }
}

/// Lends the guest and waits for its return; `None` if it is not in order.
fn serve(stream: &mut UnixStream, offer: Offer, runner: Option<&impl AsFd>) -> Option<Vec<u8>> {
    let offer: Result<Offer, String> = Ok(offer);
    let line = serde_json::to_string(&offer).ok()?;
    writeln!(stream, "{line}").ok()?;
    let returned: Returned = hear(stream, runner, BORROWED)?;
    Some(returned.ports)
}

/// Reads one line of a borrower.
fn hear<T: DeserializeOwned>(
    stream: &UnixStream,
    runner: Option<&impl AsFd>,
    patience: Duration,
) -> Option<T> {
    if !ready(stream, runner, patience).ok()? {
        return None;
    }
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

/// Waits until `source` can be read. False if the runner ends or `idle`
/// passes first.
fn ready(source: &impl AsFd, runner: Option<&impl AsFd>, idle: Duration) -> Result<bool> {
    let mut fds = vec![PollFd::new(source, PollFlags::IN)];
    fds.extend(runner.map(|runner| PollFd::new(runner, PollFlags::IN)));
    let idle = Timespec::try_from(idle).context("idle time")?;
    loop {
        match poll(&mut fds, Some(&idle)) {
            Ok(count) => {
                let over = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
                return Ok(count > 0 && !over);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("poll"),
        }
    }
}
