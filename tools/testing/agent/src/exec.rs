// SPDX-License-Identifier: GPL-2.0
//! Runs programs for the host.

use crate::children::Children;
use crate::serve::{failed, Outcome};
use mlx5_agent::proto::{Exec, Finished, Reply, Status, MAX_DATA};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{self, Pid, PidfdFlags, Signal};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time for a killed program, or its status, to arrive.
const GRACE: Duration = Duration::from_secs(5);

/// One output stream being collected.
struct Stream {
    file: Option<File>,
    data: Vec<u8>,
    truncated: bool,
}

impl Stream {
    fn new(fd: Option<impl Into<OwnedFd>>) -> std::io::Result<Self> {
        let file = fd.map(|fd| File::from(fd.into()));
        if let Some(file) = &file {
            rustix::io::ioctl_fionbio(file, true)?;
        }
        Ok(Self {
            file,
            data: Vec::new(),
            truncated: false,
        })
    }

    /// Takes what is there; closes the stream at its end.
    fn drain(&mut self) {
        let mut buffer = [0u8; 65536];
        while let Some(file) = &mut self.file {
            match file.read(&mut buffer) {
                Ok(0) => self.file = None,
                Ok(len) => {
                    let room = MAX_DATA - self.data.len();
                    self.data.extend_from_slice(&buffer[..len.min(room)]);
                    self.truncated |= len > room;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.file = None,
            }
        }
    }
}

/// Runs `request` to its end. `started` is told the process group.
pub fn run(children: &Children, request: &Exec, started: impl FnOnce(Pid)) -> Outcome {
    let Some((program, arguments)) = request.argv.split_first() else {
        return Err(failed("exec: argv is empty", 0));
    };
    let what = |error: std::io::Error| failed(&format!("exec {program}"), error);
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(request.env.iter().map(|(name, value)| (name, value)))
        .current_dir(request.cwd.as_deref().unwrap_or("/"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let (mut child, pid) = children.spawn(&mut command).map_err(what)?;
    started(pid);
    let mut streams = || -> std::io::Result<_> {
        Ok((
            Stream::new(child.stdin.take())?,
            Stream::new(child.stdout.take())?,
            Stream::new(child.stderr.take())?,
        ))
    };
    let opened = streams().and_then(|streams| {
        // The reaper may have been faster; then there is nothing to wait for.
        let pidfd = match process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Some(pidfd),
            Err(rustix::io::Errno::SRCH) => None,
            Err(error) => return Err(error.into()),
        };
        Ok((streams, pidfd))
    });
    let ((mut stdin, mut stdout, mut stderr), pidfd) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let _ = process::kill_process_group(pid, Signal::KILL);
            children.forget(pid);
            return Err(what(error));
        }
    };

    let timeout = Duration::from_millis(request.timeout_ms);
    let deadline = Instant::now().checked_add(timeout);
    let mut input = &request.stdin[..];
    let ended = loop {
        let Some(pidfd) = &pidfd else {
            break true;
        };
        if input.is_empty() {
            stdin.file = None;
        }
        let left = deadline.map_or(GRACE, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        });
        if left.is_zero() {
            break false;
        }
        let mut fds = vec![PollFd::new(pidfd, PollFlags::IN)];
        for stream in [&stdout, &stderr] {
            fds.extend(
                stream
                    .file
                    .as_ref()
                    .map(|f| PollFd::from_borrowed_fd(f.as_fd(), PollFlags::IN)),
            );
        }
        fds.extend(
            stdin
                .file
                .as_ref()
                .map(|f| PollFd::from_borrowed_fd(f.as_fd(), PollFlags::OUT)),
        );
        let left = Timespec::try_from(left.min(GRACE)).ok();
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                let _ = process::kill_process_group(pid, Signal::KILL);
                children.forget(pid);
                return Err(what(error.into()));
            }
        }
        let over = !fds[0].revents().is_empty();
        if let Some(file) = &mut stdin.file {
            match file.write(input) {
                Ok(len) => input = &input[len..],
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                // The program has closed it: not an error of the request.
                Err(_) => input = &[],
            }
        }
        stdout.drain();
        stderr.drain();
        if over {
            break true;
        }
    };
    if !ended {
        let _ = process::kill_process_group(pid, Signal::KILL);
    }
    let status = children.wait(pid, GRACE);
    // A program that it left running may hold the pipes: no wait for their end.
    stdout.drain();
    stderr.drain();
    let status = match status {
        None => {
            children.forget(pid);
            Status::Stuck
        }
        Some(_) if !ended => Status::TimedOut,
        Some(status) => match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Status::Exited(code),
            (None, signal) => Status::Signaled(signal.unwrap_or(0)),
        },
    };
    Ok(Reply::Finished(Finished {
        status,
        truncated: stdout.truncated || stderr.truncated,
        stdout: stdout.data,
        stderr: stderr.data,
    }))
}
