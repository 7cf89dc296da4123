// SPDX-License-Identifier: GPL-2.0

//! The control socket: any number of clients, one line for one line, never waiting for any.

use std::io;
use std::io::ErrorKind;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;

use log::debug;
use log::warn;
use nix::poll::PollFlags;
use serde_json::Value;

use crate::vfio_user::server::bind;

/// Longest request line.
const MAX_LINE: usize = 1 << 16;
/// Replies that a client may leave unread.
const MAX_UNSENT: usize = 64 << 20;
/// Clients at a time; more wait until one is gone.
const MAX_CLIENTS: usize = 256;
/// Requests of a client between two messages of QEMU.
const BATCH: usize = 16;

/// Listener and clients.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    clients: Vec<Client>,
}

#[derive(Debug)]
struct Client {
    stream: UnixStream,
    received: Vec<u8>,
    unsent: Vec<u8>,
    closed: bool,
}

impl Drop for Server {
    fn drop(&mut self) {
        // The next start replaces a stale socket.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Server {
    /// Starts to listen on `path`.
    ///
    /// # Errors
    ///
    /// See [`bind`].
    pub fn new(path: &Path) -> io::Result<Self> {
        Ok(Self {
            listener: bind(path)?,
            path: path.to_path_buf(),
            clients: Vec::new(),
        })
    }

    /// Descriptors to poll, and for what.
    pub fn poll_fds(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let listener = (self.clients.len() < MAX_CLIENTS)
            .then_some((self.listener.as_fd(), PollFlags::POLLIN));
        listener.into_iter().chain(
            self.clients
                .iter()
                .map(|c| (c.stream.as_fd(), c.interest())),
        )
    }

    /// Whether there are requests that are not answered yet, so that polling must not wait.
    pub fn is_busy(&self) -> bool {
        self.clients.iter().any(|c| c.next_line().is_some())
    }

    /// Serves what is there: accepts, reads, answers each line by `execute`, writes.
    pub fn service(&mut self, mut execute: impl FnMut(&str) -> Value) {
        while self.clients.len() < MAX_CLIENTS {
            match self
                .listener
                .accept()
                .and_then(|(s, _)| s.set_nonblocking(true).map(|()| s))
            {
                Ok(stream) => self.clients.push(Client {
                    stream,
                    received: Vec::new(),
                    unsent: Vec::new(),
                    closed: false,
                }),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    warn!("control: accept: {e}");
                    break;
                }
            }
        }
        for client in &mut self.clients {
            if let Err(e) = client.service(&mut execute) {
                debug!("control: client dropped: {e}");
                client.closed = true;
                client.received.clear();
                client.unsent.clear();
            }
        }
        self.clients
            .retain(|c| !c.closed || !c.unsent.is_empty() || c.next_line().is_some());
    }
}

impl Client {
    fn interest(&self) -> PollFlags {
        let mut flags = PollFlags::empty();
        // What a client has closed is always readable.
        flags.set(PollFlags::POLLIN, !self.closed);
        flags.set(PollFlags::POLLOUT, !self.unsent.is_empty());
        flags
    }

    /// End of the first line that waits.
    fn next_line(&self) -> Option<usize> {
        self.received.iter().position(|b| *b == b'\n')
    }

    fn service(&mut self, execute: &mut impl FnMut(&str) -> Value) -> io::Result<()> {
        for _ in 0..BATCH {
            if self.next_line().is_none() && !self.receive()? {
                break;
            }
            let Some(end) = self.next_line() else {
                continue;
            };
            let line: Vec<u8> = self.received.drain(..=end).collect();
            let reply = execute(String::from_utf8_lossy(&line).trim());
            serde_json::to_writer(&mut self.unsent, &reply)?;
            self.unsent.push(b'\n');
            if self.unsent.len() > MAX_UNSENT {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "client does not read",
                ));
            }
        }
        self.flush()
    }

    /// Reads what fits; false if there is nothing to read.
    fn receive(&mut self) -> io::Result<bool> {
        if self.closed {
            return Ok(false);
        }
        if self.received.len() > MAX_LINE {
            return Err(io::Error::new(ErrorKind::InvalidData, "line too long"));
        }
        let mut part = [0; 4096];
        match self.stream.read(&mut part) {
            Ok(0) => {
                self.closed = true;
                Ok(false)
            }
            Ok(n) => {
                self.received.extend_from_slice(&part[..n]);
                Ok(true)
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(true),
            Err(e) => Err(e),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.unsent.len() {
            match self.stream.write(&self.unsent[sent..]) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.unsent.drain(..sent);
        Ok(())
    }
}
