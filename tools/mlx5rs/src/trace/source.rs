// SPDX-License-Identifier: GPL-2.0

//! Lines from files, pipes and standard input, until they end or somebody says stop.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The most bytes of a line; tracefs makes none of more than 8 KiB.
pub const MAX_LINE: usize = 64 << 10;

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// Signals that end a run in order: outputs are completed, an instance of tracefs is removed.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// From here on SIGINT, SIGTERM and SIGHUP are only seen here.
    pub fn catch() -> io::Result<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self(SignalFd::with_flags(&set, flags)?))
    }

    /// Waits so many milliseconds; whether a signal came.
    pub fn wait(&self, milliseconds: u16) -> io::Result<bool> {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(milliseconds)) {
            Ok(ready) => Ok(ready != 0),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// A line as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a> {
    /// Its bytes, without its end.
    pub bytes: &'a [u8],
    /// There is more, which was left out: the line is longer than [`MAX_LINE`].
    pub cut: bool,
}

/// What comes of asking for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Got {
    Bytes(usize),
    End,
    Signal,
}

/// Why no more lines are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// There are no more.
    Input,
    /// Somebody said stop.
    Signal,
}

/// How long what is left is read when somebody has said stop.
const DRAIN: Duration = Duration::from_secs(10);

/// Where lines come from.
#[derive(Debug)]
pub struct Source<'a> {
    file: File,
    signals: &'a Signals,
    lines: Lines,
}

impl<'a> Source<'a> {
    /// Opens a file or a pipe, or standard input if it is `-`.
    pub fn open(path: &Path, signals: &'a Signals) -> io::Result<Self> {
        let file = if path == Path::new("-") {
            File::from(io::stdin().as_fd().try_clone_to_owned()?)
        } else {
            // Opening a pipe must not wait for who writes to it.
            OpenOptions::new()
                .read(true)
                .custom_flags(OFlag::O_NONBLOCK.bits())
                .open(path)?
        };
        if file.metadata()?.is_dir() {
            return Err(Errno::EISDIR.into());
        }
        Ok(Self {
            file,
            signals,
            lines: Lines::default(),
        })
    }

    /// Reads what there is, waiting for it.
    fn wait(&mut self, buffer: &mut [u8]) -> io::Result<Got> {
        loop {
            let mut fds = [
                PollFd::new(self.file.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.signals.0.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                result => result?,
            };
            if fds[1].any().unwrap_or(true) {
                return Ok(Got::Signal);
            }
            if let Some(got) = self.read(buffer)? {
                return Ok(got);
            }
        }
    }

    /// Reads what there is, if anything.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<Got>> {
        match self.file.read(buffer) {
            Ok(0) => Ok(Some(Got::End)),
            Ok(len) => Ok(Some(Got::Bytes(len))),
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Gives every line to `line`, and calls `idle` where it may have to wait for more.
    ///
    /// After a signal more lines may be left; see [`drain`](Self::drain).
    pub fn lines<E: From<ReadError>>(
        &mut self,
        mut line: impl FnMut(Raw<'_>) -> Result<(), E>,
        mut idle: impl FnMut() -> Result<(), E>,
    ) -> Result<End, E> {
        let mut chunk = vec![0; CHUNK];
        loop {
            idle()?;
            match self.wait(&mut chunk).map_err(ReadError)? {
                Got::Bytes(len) => {
                    let bytes = chunk.get(..len).unwrap_or(&chunk);
                    self.lines.push(bytes, &mut line)?;
                }
                Got::Signal => return Ok(End::Signal),
                Got::End => {
                    self.lines.end(&mut line)?;
                    return Ok(End::Input);
                }
            }
        }
    }

    /// Gives the lines that are there already; whether that was all.
    pub fn drain<E: From<ReadError>>(
        &mut self,
        mut line: impl FnMut(Raw<'_>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut chunk = vec![0; CHUNK];
        let start = Instant::now();
        let mut all = true;
        while let Some(Got::Bytes(len)) = self.read(&mut chunk).map_err(ReadError)? {
            let bytes = chunk.get(..len).unwrap_or(&chunk);
            self.lines.push(bytes, &mut line)?;
            all = start.elapsed() < DRAIN;
            if !all {
                break;
            }
        }
        self.lines.end(&mut line)?;
        Ok(all)
    }
}

/// The input cannot be read.
#[derive(Debug)]
pub struct ReadError(pub io::Error);

/// Splits bytes into lines.
#[derive(Debug, Default)]
struct Lines {
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
    cut: bool,
}

impl Lines {
    fn push<E>(
        &mut self,
        bytes: &[u8],
        line: &mut impl FnMut(Raw<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut parts = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            let is_whole = parts.peek().is_some();
            if is_whole && self.begun.is_empty() && !self.cut && part.len() <= MAX_LINE {
                line(Raw {
                    bytes: part,
                    cut: false,
                })?;
                continue;
            }
            let room = MAX_LINE - self.begun.len();
            self.begun
                .extend_from_slice(part.get(..room).unwrap_or(part));
            self.cut |= part.len() > room;
            if is_whole {
                self.give(line)?;
            }
        }
        Ok(())
    }

    /// A last line without an end.
    fn end<E>(&mut self, line: &mut impl FnMut(Raw<'_>) -> Result<(), E>) -> Result<(), E> {
        if self.begun.is_empty() {
            return Ok(());
        }
        self.give(line)
    }

    fn give<E>(&mut self, line: &mut impl FnMut(Raw<'_>) -> Result<(), E>) -> Result<(), E> {
        let raw = Raw {
            bytes: &self.begun,
            cut: self.cut,
        };
        line(raw)?;
        self.begun.clear();
        self.cut = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(chunks: &[&[u8]]) -> Vec<(Vec<u8>, bool)> {
        let mut all = Vec::new();
        let mut lines = Lines::default();
        let mut line = |raw: Raw<'_>| {
            all.push((raw.bytes.to_vec(), raw.cut));
            Ok::<(), ()>(())
        };
        for chunk in chunks {
            lines.push(chunk, &mut line).unwrap();
        }
        lines.end(&mut line).unwrap();
        all
    }

    #[test]
    fn long_lines_are_cut_and_nothing_else_is() {
        let long = vec![b'x'; MAX_LINE];
        let longer = vec![b'y'; MAX_LINE + 1];
        let rows = [&long[..], b"\n", &longer, b"\nshort\n\n", &longer].concat();
        for size in [1000, MAX_LINE - 1, MAX_LINE, rows.len()] {
            let chunks: Vec<&[u8]> = rows.chunks(size).collect();
            let all = split(&chunks);
            let brief: Vec<_> = all.iter().map(|(line, cut)| (line.len(), *cut)).collect();
            let want = [
                (MAX_LINE, false),
                (MAX_LINE, true),
                (5, false),
                (0, false),
                (MAX_LINE, true),
            ];
            assert_eq!(brief, want, "{size}");
        }
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(
            lines in proptest::collection::vec("[a-z\\r]{0,20}", 0..20),
            size in 1_usize..30,
            ended: bool,
        ) {
            let mut text = lines.join("\n");
            if ended && !lines.is_empty() {
                text.push('\n');
            }
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            let got: Vec<String> = split(&chunks)
                .into_iter()
                .map(|(line, _)| String::from_utf8(line).unwrap())
                .collect();
            // As for `str::lines`, but that keeps no `\r`.
            let mut want: Vec<&str> = text.split('\n').collect();
            if want.last() == Some(&"") {
                want.pop();
            }
            prop_assert_eq!(got, want);
        }
    }
}
