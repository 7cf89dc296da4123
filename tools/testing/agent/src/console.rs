// SPDX-License-Identifier: GPL-2.0
//! An interactive shell on the console.

use crate::children::Children;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// First argument with which the agent becomes the shell.
pub const ARGUMENT: &str = "console-shell";

/// Runs the shell and waits for its end.
pub fn shell(children: &Children) -> io::Result<()> {
    let mut command = Command::new("/proc/self/exe");
    command.arg(ARGUMENT);
    let (_, pid) = children.spawn(&mut command)?;
    while children.wait(pid, Duration::from_secs(3600)).is_none() {}
    Ok(())
}

/// In the process that [`shell`] starts: makes the console its controlling
/// terminal, which job control and Ctrl-C need, and becomes the shell. Returns
/// only on failure.
pub fn become_shell() -> io::Result<()> {
    rustix::process::setsid()?;
    // "tty0 ttyS0": the last one is what /dev/console stands for.
    let active = fs::read_to_string("/sys/class/tty/console/active")?;
    let name = active.split_whitespace().last().unwrap_or("ttyS0");
    let tty = OpenOptions::new()
        .read(true)
        .write(true)
        .open(Path::new("/dev").join(name))?;
    rustix::process::ioctl_tiocsctty(&tty)?;
    rustix::stdio::dup2_stdin(&tty)?;
    rustix::stdio::dup2_stdout(&tty)?;
    rustix::stdio::dup2_stderr(&tty)?;
    let shell = ["/bin/bash", "/bin/sh"]
        .into_iter()
        .find(|path| Path::new(path).exists())
        .unwrap_or("/bin/sh");
    Err(Command::new(shell)
        .arg("-i")
        .env("TERM", "vt220")
        .env("PS1", "guest# ")
        .exec())
}
