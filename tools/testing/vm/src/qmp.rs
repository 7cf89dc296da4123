// SPDX-License-Identifier: GPL-2.0
//! A QMP client (docs/interop/qmp-spec.rst of QEMU): commands one after the
//! other, events skipped.

use anyhow::{bail, Context, Result};
use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longest time for QEMU to answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to QEMU's monitor.
#[derive(Debug)]
pub struct Qmp {
    stream: BufReader<UnixStream>,
}

impl Qmp {
    /// Connects and leaves the negotiation mode.
    ///
    /// # Errors
    ///
    /// If the socket cannot be used or does not speak QMP.
    pub fn connect(path: &Path) -> Result<Self> {
        let what = || format!("QMP socket {}", path.display());
        let stream = UnixStream::connect(path).with_context(what)?;
        stream.set_read_timeout(Some(TIMEOUT)).with_context(what)?;
        stream.set_write_timeout(Some(TIMEOUT)).with_context(what)?;
        let mut qmp = Self {
            stream: BufReader::new(stream),
        };
        let greeting = qmp.message().with_context(what)?;
        if greeting.get("QMP").is_none() {
            bail!("{}: unexpected greeting {greeting}", what());
        }
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs a command.
    ///
    /// # Errors
    ///
    /// QEMU's description if it refuses; or if it does not answer in time.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        self.stream
            .get_mut()
            .write_all(format!("{request}\n").as_bytes())
            .with_context(|| format!("QMP {command}"))?;
        loop {
            let mut answer = self.message().with_context(|| format!("QMP {command}"))?;
            if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
            if let Some(error) = answer.get("error") {
                let text = error["desc"].as_str().unwrap_or("no description");
                bail!("QMP {request}: {text}");
            }
        }
    }

    fn message(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            bail!("QEMU closed the connection");
        }
        serde_json::from_str(&line).with_context(|| format!("not JSON: {line:?}"))
    }
}
