// SPDX-License-Identifier: GPL-2.0

//! A client of the control socket, for tests.

use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::Deserialize;
use thiserror::Error;

use super::types;
use crate::tracer::truth::Entry;

/// How long a reply may take. The model answers at once; only its death takes longer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a request failed.
#[derive(Debug, Error)]
pub enum Error {
    /// The socket failed.
    #[error("control socket: {0}")]
    Io(#[from] io::Error),
    /// The model refused.
    #[error("model refused {request:?}: {error}")]
    Refused {
        /// What was asked.
        request: String,
        /// Why not.
        error: String,
    },
    /// The reply is not what the request has as reply.
    #[error("reply to {request:?}: {error} in {reply:?}")]
    Reply {
        /// What was asked.
        request: String,
        /// What is wrong.
        error: serde_json::Error,
        /// What came.
        reply: String,
    },
}

#[derive(Deserialize)]
struct Envelope {
    ok: bool,
    #[serde(default)]
    error: String,
}

/// A connection to a model.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the control socket at `path`.
    ///
    /// # Errors
    ///
    /// When nothing listens there.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Sends a line and reads its reply as `T`.
    ///
    /// # Errors
    ///
    /// When the model refuses, or is gone, or answers something else.
    pub fn request<T: DeserializeOwned>(&mut self, line: &str) -> Result<T, Error> {
        let stream = self.stream.get_mut();
        stream.write_all(line.as_bytes())?;
        stream.write_all(b"\n")?;
        let mut reply = String::new();
        if self.stream.read_line(&mut reply)? == 0 {
            return Err(Error::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        let wrong = |error| Error::Reply {
            request: line.to_string(),
            error,
            reply: reply.trim_end().to_string(),
        };
        let envelope: Envelope = serde_json::from_str(&reply).map_err(wrong)?;
        if !envelope.ok {
            return Err(Error::Refused {
                request: line.to_string(),
                error: envelope.error,
            });
        }
        serde_json::from_str(&reply).map_err(wrong)
    }

    /// Sends a line whose reply holds nothing.
    ///
    /// # Errors
    ///
    /// See [`Client::request`].
    pub fn run(&mut self, line: &str) -> Result<(), Error> {
        self.request::<types::Done>(line).map(|_| ())
    }

    /// `status`.
    ///
    /// # Errors
    ///
    /// See [`Client::request`].
    pub fn status(&mut self) -> Result<types::Status, Error> {
        self.request("status")
    }

    /// `commands since=`, as often as it takes to get all.
    ///
    /// # Errors
    ///
    /// See [`Client::request`].
    pub fn commands(&mut self, since: u64) -> Result<types::Commands, Error> {
        let mut all = types::Commands {
            total: 0,
            commands: Vec::new(),
        };
        let mut next = since;
        loop {
            let part: types::Commands = self.request(&format!("commands since={next}"))?;
            all.total = part.total;
            let Some(last) = part.commands.last() else {
                return Ok(all);
            };
            next = last.n + 1;
            all.commands.extend(part.commands);
            if next >= all.total {
                return Ok(all);
            }
        }
    }

    /// `violations`, cleared if `clear`.
    ///
    /// # Errors
    ///
    /// See [`Client::request`].
    pub fn violations(&mut self, clear: bool) -> Result<types::Violations, Error> {
        self.request(if clear {
            "violations clear"
        } else {
            "violations"
        })
    }

    /// `fault` with `words`, for example `op=ENABLE_HCA act=status status=BAD_PARAM`.
    ///
    /// # Errors
    ///
    /// See [`Client::request`].
    pub fn fault(&mut self, words: &str) -> Result<(), Error> {
        self.run(&format!("fault {words}"))
    }

    /// `faults`.
    ///
    /// # Errors
    ///
    /// See [`Client::request`].
    pub fn faults(&mut self) -> Result<types::Faults, Error> {
        self.request("faults")
    }

    /// `faults clear`.
    ///
    /// # Errors
    ///
    /// See [`Client::request`].
    pub fn clear_faults(&mut self) -> Result<types::Released, Error> {
        self.request("faults clear")
    }

    /// `release`.
    ///
    /// # Errors
    ///
    /// See [`Client::request`].
    pub fn release(&mut self) -> Result<types::Released, Error> {
        self.request("release")
    }

    /// `cap` without values.
    ///
    /// # Errors
    ///
    /// See [`Client::request`].
    pub fn cap(&mut self, page: &str, field: &str) -> Result<types::Cap, Error> {
        self.request(&format!("cap page={page} field={field}"))
    }

    /// `cap` with both values.
    ///
    /// # Errors
    ///
    /// See [`Client::request`].
    pub fn set_cap(
        &mut self,
        page: &str,
        field: &str,
        cur: u64,
        max: u64,
    ) -> Result<types::Cap, Error> {
        self.request(&format!(
            "cap page={page} field={field} cur={cur} max={max}"
        ))
    }

    /// `tracer` with `words`, for example `write rate=max count=1000`.
    ///
    /// # Errors
    ///
    /// See [`Client::request`].
    pub fn tracer(&mut self, words: &str) -> Result<types::Tracer, Error> {
        self.request(&format!("tracer {words}"))
    }

    /// All traces from number `since` on, by `tracer list`; the model keeps the last 2^20.
    ///
    /// # Errors
    ///
    /// See [`Client::request`].
    pub fn traces(&mut self, since: u64) -> Result<Vec<(u64, Entry)>, Error> {
        let mut all = Vec::new();
        let mut next = since;
        loop {
            let list: types::TraceList = self.request(&format!("tracer list since={next}"))?;
            if list.entries.is_empty() {
                return Ok(all);
            }
            next = list.first + list.entries.len() as u64;
            let entries = list.entries.into_iter().map(Entry::from_word);
            all.extend((list.first..).zip(entries));
        }
    }
}
