// SPDX-License-Identifier: GPL-2.0
//! Keeps the kernel log for the host.
//!
//! A thread reads `/dev/kmsg` from the first message on and holds the last
//! [`MAX_BYTES`] of it, so that what the host asks for late is still there
//! when the kernel's own buffer has wrapped. A request reads what is there
//! itself: an answer holds everything that was printed before it was asked
//! for.

use mlx5_agent::proto::Record;
use rustix::event::{poll, PollFd, PollFlags};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Text held before the oldest messages are dropped.
const MAX_BYTES: usize = 32 << 20;

/// Text in one answer, so that it fits a frame with room to spare.
const MAX_ANSWER: usize = 4 << 20;

/// Largest record that `/dev/kmsg` returns (`PRINTK_MESSAGE_MAX`, 2048, plus
/// its prefix and key-value lines); a smaller buffer makes read() fail.
const RECORD_BUFFER: usize = 8192;

#[derive(Default)]
struct Held {
    records: VecDeque<Record>,
    bytes: usize,
    /// Sequence number after the last message read.
    next: u64,
}

/// The kernel log so far.
pub struct Log {
    device: Option<File>,
    held: Mutex<Held>,
    grown: Condvar,
}

impl Held {
    fn add(&mut self, record: Record) {
        self.next = record.seq + 1;
        self.bytes += record.text.len();
        self.records.push_back(record);
        while self.bytes > MAX_BYTES {
            let Some(oldest) = self.records.pop_front() else {
                break;
            };
            self.bytes -= oldest.text.len();
        }
    }

    /// Reads until there is no more.
    fn drain(&mut self, mut device: &File) -> io::Result<()> {
        let mut buffer = [0u8; RECORD_BUFFER];
        loop {
            match device.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(len) => {
                    if let Some(record) = parse(&buffer[..len]) {
                        self.add(record);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // EPIPE: messages were overwritten; the next read goes on
                // with the oldest one, whose number shows the gap.
                Err(error)
                    if error.kind() == ErrorKind::BrokenPipe
                        || error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Log {
    /// Opens `/dev/kmsg`.
    pub fn open() -> io::Result<Self> {
        let device = OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
            .open("/dev/kmsg")?;
        Ok(Self::of(Some(device)))
    }

    fn of(device: Option<File>) -> Self {
        Self {
            device,
            held: Mutex::default(),
            grown: Condvar::new(),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads for ever; returns only if that is not possible.
    pub fn follow(&self) -> io::Result<()> {
        let Some(device) = &self.device else {
            return Ok(());
        };
        loop {
            match poll(&mut [PollFd::new(device, PollFlags::IN)], None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.held().drain(device)?;
            self.grown.notify_all();
        }
    }

    /// Messages from `from` on, and how many of them are lost; waits up to
    /// `wait` for the first one.
    pub fn from(&self, from: u64, wait: Duration) -> (Vec<Record>, u64) {
        let deadline = Instant::now() + wait;
        let mut held = self.held();
        if let Some(device) = &self.device {
            // An error ends the follower, which reports it.
            let _ = held.drain(device);
        }
        while held.next <= from {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return (Vec::new(), 0);
            };
            held = self
                .grown
                .wait_timeout(held, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        let start = held.records.partition_point(|record| record.seq < from);
        let mut bytes = 0;
        let records: Vec<Record> = held
            .records
            .range(start..)
            .take_while(|record| {
                bytes += record.text.len() + size_of::<Record>();
                bytes <= MAX_ANSWER
            })
            .cloned()
            .collect();
        let mut expected = from;
        let mut lost = 0;
        for record in &records {
            lost += record.seq.saturating_sub(expected);
            expected = record.seq + 1;
        }
        (records, lost)
    }
}

/// Reads one record of `/dev/kmsg`: `level,seq,time,flags[,...];text`, then
/// lines with key-value pairs. Bytes that are not printable are escaped as
/// `\xNN` (Documentation/ABI/testing/dev-kmsg).
fn parse(bytes: &[u8]) -> Option<Record> {
    let record = String::from_utf8_lossy(bytes);
    let (prefix, rest) = record.split_once(';')?;
    let mut fields = prefix.split(',');
    let level: u32 = fields.next()?.parse().ok()?;
    let seq = fields.next()?.parse().ok()?;
    let time_us = fields.next()?.parse().ok()?;
    let text = rest.lines().next().unwrap_or_default();
    Some(Record {
        seq,
        level: (level & 7) as u8,
        time_us,
        text: unescape(text),
    })
}

fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let hex = |digit: u8| char::from(digit).to_digit(16);
        if let [b'\\', b'x', high, low, after @ ..] = rest {
            if let (Some(high), Some(low)) = (hex(*high), hex(*low)) {
                bytes.push((high * 16 + low) as u8);
                rest = after;
                continue;
            }
        }
        bytes.push(first);
        rest = tail;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn records() {
        let record =
            parse(b"30,412,5140900,-;mlx5: a\\x09b\\x5cx\n SUBSYSTEM=pci\n DEVICE=+pci:0\n");
        assert_eq!(
            record,
            Some(Record {
                seq: 412,
                level: 6,
                time_us: 5_140_900,
                text: "mlx5: a\tb\\x".into(),
            })
        );
        assert_eq!(parse(b"no prefix"), None);
        assert_eq!(parse(b"x,y,z,-;text\n"), None);
    }

    #[test]
    fn gaps_are_counted_and_waits_end() {
        let log = Log::of(None);
        assert_eq!(log.from(0, Duration::from_millis(1)), (Vec::new(), 0));
        for seq in [3, 4, 9] {
            log.held().add(Record {
                seq,
                level: 0,
                time_us: 0,
                text: String::new(),
            });
        }
        let (records, lost) = log.from(1, Duration::ZERO);
        assert_eq!(records.iter().map(|r| r.seq).collect::<Vec<_>>(), [3, 4, 9]);
        assert_eq!(lost, 2 + 4);
        assert_eq!(log.from(10, Duration::ZERO), (Vec::new(), 0));
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..128)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn escapes_round_trip(text in "[ -~]{0,40}") {
            let escaped = text.replace('\\', "\\x5c");
            prop_assert_eq!(unescape(&escaped), text);
        }
    }
}
