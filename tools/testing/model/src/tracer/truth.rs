// SPDX-License-Identifier: GPL-2.0

//! The list of what was written: one word for each trace, in the order of their numbers.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::io::Write;
use std::path::Path;

use super::event::TIME_MASK;

/// Entries that are kept in memory.
pub const KEPT: usize = 1 << 20;

/// Bytes that are written to the file at once.
const BUFFER: usize = 1 << 16;

/// What became of a trace.
///
/// As a word: bits 52:0 the time, then one bit for each flag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Time of its first event.
    pub time: u64,
    /// Its first event says that something was lost before it.
    pub lost: bool,
    /// The timestamp after its first event is unreliable.
    pub unreliable: bool,
    /// It did not get as far as memory.
    pub dropped: bool,
    /// Some of its events did not, and the next event that did says so.
    pub partial: bool,
    /// It is part of a core dump.
    pub core_dump: bool,
}

impl Entry {
    /// The word.
    pub fn word(self) -> u64 {
        let bit = |flag: bool, at: u32| u64::from(flag) << at;
        self.time & TIME_MASK
            | bit(self.lost, 53)
            | bit(self.unreliable, 54)
            | bit(self.dropped, 55)
            | bit(self.partial, 56)
            | bit(self.core_dump, 57)
    }

    /// From the word.
    pub fn from_word(word: u64) -> Self {
        let bit = |at: u32| word >> at & 1 != 0;
        Self {
            time: word & TIME_MASK,
            lost: bit(53),
            unreliable: bit(54),
            dropped: bit(55),
            partial: bit(56),
            core_dump: bit(57),
        }
    }
}

/// All traces so far.
#[derive(Debug, Default)]
pub struct Truth {
    kept: VecDeque<u64>,
    total: u64,
    file: Option<File>,
    buffer: Vec<u8>,
    /// Why the file is not complete.
    pub error: Option<String>,
}

impl Truth {
    /// Number of traces, dropped ones too.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Adds the next trace.
    pub fn push(&mut self, entry: Entry) {
        let word = entry.word();
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(word);
        self.total += 1;
        if self.file.is_some() {
            self.buffer.extend(word.to_le_bytes());
            if self.buffer.len() >= BUFFER {
                self.flush();
            }
        }
    }

    /// Number of the first entry from `since` on that is kept, and up to `most` entries from
    /// there.
    pub fn since(&self, since: u64, most: usize) -> (u64, Vec<u64>) {
        let first = self.total - self.kept.len() as u64;
        let from = since.clamp(first, self.total);
        let skip = (from - first) as usize;
        let entries = self.kept.iter().skip(skip).take(most);
        (from, entries.copied().collect())
    }

    /// From now on, traces go to a new file, too: little endian words of 64 bits.
    ///
    /// # Errors
    ///
    /// When it cannot be created, or exists.
    pub fn log_to(&mut self, path: &Path) -> io::Result<()> {
        self.flush();
        self.file = Some(File::create_new(path)?);
        self.error = None;
        Ok(())
    }

    /// Writes out what waits.
    pub fn flush(&mut self) {
        let Some(file) = &mut self.file else { return };
        if let Err(e) = file.write_all(&self.buffer) {
            self.error = Some(e.to_string());
            self.file = None;
        }
        self.buffer.clear();
    }
}

impl Drop for Truth {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_back() {
        let all = Entry {
            time: TIME_MASK,
            lost: true,
            unreliable: true,
            dropped: true,
            partial: true,
            core_dump: true,
        };
        let none = Entry::default();
        let some = Entry {
            time: 5,
            dropped: true,
            ..none
        };
        for e in [all, none, some] {
            assert_eq!(Entry::from_word(e.word()), e);
        }
        assert_eq!(all.word(), (1 << 58) - 1);
    }

    #[test]
    fn the_youngest_are_kept_and_all_are_in_the_file() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("truth");
        let mut t = Truth::default();
        let entry = |n: u64| Entry {
            time: n,
            ..Entry::default()
        };
        t.push(entry(0));
        t.log_to(&path).expect("a new file");
        assert!(Truth::default().log_to(&path).is_err(), "it exists");
        let count = KEPT as u64 + 10;
        (1..count).for_each(|n| t.push(entry(n)));
        assert_eq!(t.total(), count);
        assert_eq!(t.since(0, 2), (10, vec![10, 11]));
        assert_eq!(t.since(count - 1, 9), (count - 1, vec![count - 1]));
        assert_eq!(t.since(count + 5, 9), (count, vec![]));
        t.flush();
        let file = std::fs::read(&path).expect("the file");
        assert_eq!(file.len() as u64, 8 * (count - 1));
        assert_eq!(file[..16], [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    }
}
