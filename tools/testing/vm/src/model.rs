// SPDX-License-Identifier: GPL-2.0
//! Runs a device model and talks to it (docs/model-control.md).

use crate::manifest::Manifest;
use crate::process::Process;
use anyhow::{bail, Context, Result};
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Longest time for the model to start, or to answer.
const TIMEOUT: Duration = Duration::from_secs(20);

/// One device model process.
#[derive(Debug)]
pub struct Model {
    process: Process,
    control: BufReader<UnixStream>,
    socket: PathBuf,
}

/// A command that the model has seen.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Seen {
    /// Counts from the first one after power on.
    pub n: u64,
    /// Opcode.
    pub opcode: u16,
    /// Its name in mlx5_ifc.h, without `MLX5_CMD_OP_`.
    pub name: String,
    /// Modifier.
    pub op_mod: u16,
    /// Status of its answer.
    #[serde(default)]
    pub status: u8,
    /// Syndrome of its answer.
    #[serde(default)]
    pub syndrome: u32,
}

/// A rule that the driver has broken.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Violation {
    /// Which one.
    pub rule: String,
    /// What it did.
    pub detail: String,
}

impl Model {
    /// Starts a model with sockets in `sockets` and logs in `logs`.
    ///
    /// # Errors
    ///
    /// If it does not come up.
    pub fn start(
        manifest: &Manifest,
        sockets: &Path,
        logs: &Path,
        number: u32,
        options: &[&str],
    ) -> Result<Self> {
        let socket = sockets.join(format!("dev{number}.sock"));
        let control = sockets.join(format!("ctl{number}.sock"));
        let log = logs.join(format!("model-{number}.log"));
        let mut command = Command::new(&manifest.model);
        command.arg("--socket").arg(&socket);
        command.arg("--control").arg(&control).args(options);
        let mut process = Process::start(&format!("model {number}"), &mut command, &log, true)?;
        let output = process
            .child()
            .stdout
            .take()
            .context("the model's output")?;
        let (sender, ready) = channel();
        let mut copy = OpenOptions::new()
            .append(true)
            .open(&log)
            .with_context(|| log.display().to_string())?;
        thread::Builder::new()
            .name(format!("model {number}"))
            .spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if line == "ready" {
                        let _ = sender.send(());
                    }
                    // Only a log: the model goes on without it.
                    let _ = writeln!(copy, "{line}");
                }
            })
            .context("starting a thread")?;
        if ready.recv_timeout(TIMEOUT).is_err() {
            process.check()?;
            bail!("model {number} is not ready after {TIMEOUT:?}");
        }
        let stream = UnixStream::connect(&control)
            .with_context(|| format!("control socket {}", control.display()))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self {
            process,
            control: BufReader::new(stream),
            socket,
        })
    }

    /// The vfio-user socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends one request line.
    ///
    /// # Errors
    ///
    /// If the model refuses it, does not answer or has ended.
    pub fn request(&mut self, line: &str) -> Result<Value> {
        let answer = self.exchange(line);
        if answer.is_err() {
            self.process.check()?;
        }
        let answer = answer.with_context(|| format!("model: {line}"))?;
        if answer["ok"] != true {
            bail!(
                "model: {line}: {}",
                answer["error"].as_str().unwrap_or("no reason")
            );
        }
        Ok(answer)
    }

    fn exchange(&mut self, line: &str) -> Result<Value> {
        self.control
            .get_mut()
            .write_all(format!("{line}\n").as_bytes())?;
        let mut answer = String::new();
        if self.control.read_line(&mut answer)? == 0 {
            bail!("connection closed");
        }
        serde_json::from_str(&answer).with_context(|| format!("not JSON: {answer:?}"))
    }

    /// Commands from number `since` on.
    ///
    /// # Errors
    ///
    /// As [`Self::request`].
    pub fn commands(&mut self, since: u64) -> Result<Vec<Seen>> {
        let mut answer = self.request(&format!("commands since={since}"))?;
        serde_json::from_value(answer["commands"].take()).context("model: commands")
    }

    /// Violations since power on or the last time they were cleared.
    ///
    /// # Errors
    ///
    /// As [`Self::request`].
    pub fn violations(&mut self) -> Result<Vec<Violation>> {
        let mut answer = self.request("violations")?;
        serde_json::from_value(answer["violations"].take()).context("model: violations")
    }

    /// State and counters.
    ///
    /// # Errors
    ///
    /// As [`Self::request`].
    pub fn status(&mut self) -> Result<Value> {
        self.request("status")
    }

    /// Ends the model.
    ///
    /// # Errors
    ///
    /// If it does not end when asked to.
    pub fn stop(&mut self) -> Result<()> {
        self.process.terminate(TIMEOUT)
    }

    /// What matters after a failure, in a few lines.
    pub fn describe(&mut self) -> String {
        let mut text = String::new();
        match self.violations() {
            Ok(list) => {
                for Violation { rule, detail } in list {
                    let _ = writeln!(text, "    violation: {rule}: {detail}");
                }
            }
            Err(error) => {
                let _ = writeln!(text, "    {error:#}");
            }
        }
        if let Ok(commands) = self.commands(0) {
            let last = &commands[commands.len().saturating_sub(8)..];
            for c in last {
                let _ = writeln!(
                    text,
                    "    command {}: {}({:#x}) op_mod {:#x}: status {:#x} syndrome {:#x}",
                    c.n, c.name, c.opcode, c.op_mod, c.status, c.syndrome
                );
            }
        }
        text
    }
}
