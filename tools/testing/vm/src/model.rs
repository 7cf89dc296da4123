// SPDX-License-Identifier: GPL-2.0
//! Runs a device model; what can be asked of it is in docs/model-control.md.

use crate::manifest::Manifest;
use crate::process::Process;
use anyhow::{bail, Context, Result};
use mlx5_model::cmdif::Record;
use mlx5_model::control::client::Client;
use mlx5_model::control::types;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Longest time for the model to start or to end.
const TIMEOUT: Duration = Duration::from_secs(20);

/// One device model process.
#[derive(Debug)]
pub struct Model {
    process: Process,
    client: Client,
    socket: PathBuf,
    control: PathBuf,
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
                        // Only the first one is waited for.
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
        let client = Client::connect(&control)
            .with_context(|| format!("control socket {}", control.display()))?;
        Ok(Self {
            process,
            client,
            socket,
            control,
        })
    }

    /// The vfio-user socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The control socket.
    pub fn control(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Another conversation, for another thread.
    ///
    /// # Errors
    ///
    /// If the model has ended.
    pub fn connect(&self) -> Result<Client> {
        Client::connect(&self.control)
            .with_context(|| format!("control socket {}", self.control.display()))
    }

    /// Carries out a request that returns nothing.
    ///
    /// # Errors
    ///
    /// If the model refuses it, or has ended: with the end of its log.
    pub fn run(&mut self, line: &str) -> Result<()> {
        let done = self.client.run(line);
        if done.is_err() {
            self.process.check()?;
        }
        Ok(done?)
    }

    /// State and counters.
    ///
    /// # Errors
    ///
    /// As [`Self::run`].
    pub fn status(&mut self) -> Result<types::Status> {
        let status = self.client.status();
        if status.is_err() {
            self.process.check()?;
        }
        Ok(status?)
    }

    /// Commands from number `since` on.
    ///
    /// # Errors
    ///
    /// As [`Self::run`].
    pub fn commands(&mut self, since: u64) -> Result<Vec<Record>> {
        Ok(self.client.commands(since)?.commands)
    }

    /// Fails if the driver has broken a rule.
    ///
    /// # Errors
    ///
    /// With the first violations; or as [`Self::run`].
    pub fn check(&mut self) -> Result<()> {
        const SHOWN: usize = 5;
        let seen = self.client.violations(false)?;
        if seen.count == 0 {
            return Ok(());
        }
        let mut text = format!("the model reports {} violations", seen.count);
        for violation in seen.violations.iter().take(SHOWN) {
            let _ = write!(text, "\n    {}: {}", violation.rule, violation.detail);
        }
        bail!(text)
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
        const COMMANDS: usize = 8;
        let mut text = String::new();
        match self.client.status() {
            Ok(status) => {
                let _ = writeln!(
                    text,
                    "    state {:?}, {} pages given, {} EQs, {} commands, {} in flight",
                    status.state,
                    status.pages.given,
                    status.eqs.len(),
                    status.commands,
                    status.in_flight.len()
                );
            }
            Err(error) => {
                let _ = writeln!(text, "    {error}");
            }
        }
        if let Err(error) = self.check() {
            let _ = writeln!(text, "    {error:#}");
        }
        if let Ok(commands) = self.commands(0) {
            for c in &commands[commands.len().saturating_sub(COMMANDS)..] {
                let outcome = match (c.delivery, c.status) {
                    (None, _) => "not completed".to_owned(),
                    (Some(0), status) => format!(
                        "status {:#x} syndrome {:#x}",
                        status.unwrap_or(0),
                        c.syndrome.unwrap_or(0)
                    ),
                    (Some(delivery), _) => format!("delivery status {delivery:#x}"),
                };
                let _ = writeln!(
                    text,
                    "    command {}: {}({:#x}) op_mod {:#x}: {outcome}",
                    c.n, c.name, c.opcode, c.op_mod
                );
            }
        }
        text
    }
}
