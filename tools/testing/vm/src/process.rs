// SPDX-License-Identifier: GPL-2.0
//! Child processes that do not outlive the one who started them.

use anyhow::{bail, Context, Result};
use rustix::process::{kill_process, set_parent_process_death_signal, Pid, Signal};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often conditions are looked at that nothing announces.
pub const POLL: Duration = Duration::from_millis(5);

/// A running child, killed on drop.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Process {
    /// Starts `command`. Its error stream, and its output unless the caller
    /// has set it, go to the file `log`. It is killed when the calling
    /// *thread* ends (`PR_SET_PDEATHSIG`), so that nothing is left behind
    /// even if this process is killed.
    ///
    /// # Errors
    ///
    /// If the log cannot be made or the program cannot be started.
    pub fn start(name: &str, command: &mut Command, log: &Path, pipe: bool) -> Result<Self> {
        let file = File::create(log).with_context(|| log.display().to_string())?;
        command.stderr(
            file.try_clone()
                .with_context(|| log.display().to_string())?,
        );
        if pipe {
            command.stdout(Stdio::piped());
        } else {
            command.stdout(file);
        }
        Self::spawn(name, command.stdin(Stdio::null()), log)
    }

    /// Starts `command` with the streams it has. See [`Self::start`].
    ///
    /// # Errors
    ///
    /// If the program cannot be started.
    pub fn spawn(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        // SAFETY: the closure runs between fork and exec and makes one system
        // call, prctl(2): no allocation, no lock.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let program = command.get_program().to_owned();
        let child = command
            .spawn()
            .with_context(|| format!("starting {name}: {}", Path::new(&program).display()))?;
        Ok(Self {
            child,
            name: name.into(),
            log: log.into(),
        })
    }

    /// The child, for its streams.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// How it has ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Fails if the process has ended.
    ///
    /// # Errors
    ///
    /// With its status and the end of its log.
    pub fn check(&mut self) -> Result<()> {
        match self.ended() {
            None => Ok(()),
            Some(status) => bail!(
                "{} ended: {status}; the end of its log {}:\n{}",
                self.name,
                self.log.display(),
                tail(&self.log, 20)
            ),
        }
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    ///
    /// If it still runs after `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("{} still runs after {timeout:?}", self.name);
            }
            thread::sleep(POLL);
        }
    }

    /// Asks it to end (SIGTERM).
    ///
    /// # Errors
    ///
    /// If it does not end within `timeout`, or not with status 0.
    pub fn terminate(&mut self, timeout: Duration) -> Result<()> {
        self.check()?;
        kill_process(Pid::from_child(&self.child), Signal::TERM)
            .with_context(|| format!("stopping {}", self.name))?;
        let status = self.wait(timeout)?;
        if !status.success() {
            bail!(
                "{} was asked to end: {status}\n{}",
                self.name,
                tail(&self.log, 20)
            );
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last `lines` lines of a text file, as far as its last 64 KiB hold them.
pub fn tail(path: &Path, lines: usize) -> String {
    const WINDOW: u64 = 64 << 10;
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let start = file.metadata()?.len().saturating_sub(WINDOW);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        Err(error) => format!("({}: {error})", path.display()),
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let all: Vec<&str> = text.lines().collect();
            all[all.len().saturating_sub(lines)..].join("\n")
        }
    }
}

/// Waits until `look` says that it is so. Looks often at first, and then less:
/// what looks into a guest takes its time away, and that of others.
///
/// # Errors
///
/// That of `look`, or if `timeout` passes first: with `what`.
pub fn wait_until(
    what: &str,
    timeout: Duration,
    mut look: impl FnMut() -> Result<bool>,
) -> Result<()> {
    const SELDOM: Duration = Duration::from_millis(40);

    let deadline = Instant::now() + timeout;
    let mut pause = POLL;
    loop {
        if look()? {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{what}: not within {timeout:?}");
        }
        thread::sleep(pause);
        pause = (pause * 5 / 4).min(SELDOM);
    }
}

/// Makes an empty folder for one run's logs.
pub(crate) fn log_folder(parent: &Path, name: &str) -> Result<PathBuf> {
    let plain: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let folder = parent.join(format!("{plain}-{}", std::process::id()));
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| folder.display().to_string());
        }
        _ => {}
    }
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}
