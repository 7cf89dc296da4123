// SPDX-License-Identifier: GPL-2.0

//! The last messages, for who comes later.
//!
//! A ring of bytes: each entry is a head of fixed size and its text; the oldest ones make room.

use core::ops::DerefMut;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A message.
    Message {
        /// The device dropped events before it.
        lost: bool,
        /// Event id.
        id: u8,
    },
    /// Something is missing.
    Gap {
        /// Blocks of the buffer that are missing.
        blocks: u64,
        /// Copies that were torn.
        torn: u64,
    },
}

/// One entry. The text may lie in two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Ticks of the device's clock.
    pub time: u64,
    /// What it is.
    pub what: What,
    /// Its text.
    pub text: (&'a [u8], &'a [u8]),
}

/// Bytes before the text: three numbers, the length of the text, kind, event id.
const HEAD: usize = 3 * 8 + 2 + 2;

/// Kinds of entries.
const MESSAGE: u8 = 0;
const LOST_BEFORE: u8 = 1;
const GAP: u8 = 2;

/// The ring; `B` holds its bytes.
#[derive(Debug)]
pub struct Recent<B> {
    bytes: B,
    /// Where the oldest entry begins; below the number of bytes, unless there are none.
    first: usize,
    /// Bytes in use.
    used: usize,
    entries: usize,
    /// Entries that made room for others, or found none.
    forgotten: u64,
}

impl<B: DerefMut<Target = [u8]>> Recent<B> {
    /// No entries yet.
    pub fn new(bytes: B) -> Self {
        Self {
            bytes,
            first: 0,
            used: 0,
            entries: 0,
            forgotten: 0,
        }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Entries that are not there any more.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Adds an entry; a text above 65535 bytes is cut.
    pub fn push(&mut self, time: u64, what: What, text: &[u8]) {
        let text = text.get(..usize::from(u16::MAX)).unwrap_or(text);
        let need = HEAD + text.len();
        if need > self.bytes.len() {
            self.forgotten += 1;
            return;
        }
        while self.used + need > self.bytes.len() {
            self.forget();
        }
        let (kind, id, a, b) = match what {
            What::Message { lost: false, id } => (MESSAGE, id, 0, 0),
            What::Message { lost: true, id } => (LOST_BEFORE, id, 0, 0),
            What::Gap { blocks, torn } => (GAP, 0, blocks, torn),
        };
        let mut head = [0; HEAD];
        let len = (text.len() as u16).to_ne_bytes();
        let numbers = [time, a, b].into_iter().flat_map(u64::to_ne_bytes);
        for (to, from) in head.iter_mut().zip(numbers.chain(len).chain([kind, id])) {
            *to = from;
        }
        self.put(self.used, &head);
        self.put(self.used + HEAD, text);
        self.used += need;
        self.entries += 1;
    }

    /// Forgets the oldest entry.
    fn forget(&mut self) {
        let len = self.entry(0).map_or(self.used, |(_, len)| len);
        self.first = self.place(len);
        self.used -= len;
        self.entries = self.entries.saturating_sub(1);
        self.forgotten += 1;
    }

    /// The byte that is `at` behind the first one.
    fn place(&self, at: usize) -> usize {
        let at = self.first + at;
        let size = self.bytes.len();
        if at < size {
            at
        } else {
            at - size
        }
    }

    /// Copies `from` to `at` behind the first byte.
    fn put(&mut self, at: usize, from: &[u8]) {
        let at = self.place(at);
        let split = from.len().min(self.bytes.len().saturating_sub(at));
        let (head, tail) = from.split_at(split);
        if let Some(to) = self.bytes.get_mut(at..at + head.len()) {
            to.copy_from_slice(head);
        }
        if let Some(to) = self.bytes.get_mut(..tail.len()) {
            to.copy_from_slice(tail);
        }
    }

    /// The two parts of `len` bytes that are `at` behind the first one.
    fn get(&self, at: usize, len: usize) -> (&[u8], &[u8]) {
        let at = self.place(at);
        let split = len.min(self.bytes.len().saturating_sub(at));
        (
            self.bytes.get(at..at + split).unwrap_or(&[]),
            self.bytes.get(..len - split).unwrap_or(&[]),
        )
    }

    /// The entry that is `at` behind the first byte, and its length.
    fn entry(&self, at: usize) -> Option<(Entry<'_>, usize)> {
        if at + HEAD > self.used {
            return None;
        }
        let mut head = [0; HEAD];
        let parts = self.get(at, HEAD);
        for (to, from) in head.iter_mut().zip(parts.0.iter().chain(parts.1)) {
            *to = *from;
        }
        let (numbers, rest) = head.split_at(3 * 8);
        let mut numbers = numbers.chunks_exact(8).map(|bytes| {
            let mut number = [0; 8];
            number.copy_from_slice(bytes);
            u64::from_ne_bytes(number)
        });
        let time = numbers.next()?;
        let (blocks, torn) = (numbers.next()?, numbers.next()?);
        let &[low, high, kind, id] = rest else {
            return None;
        };
        let len = usize::from(u16::from_ne_bytes([low, high]));
        let what = match kind {
            GAP => What::Gap { blocks, torn },
            _ => What::Message {
                lost: kind == LOST_BEFORE,
                id,
            },
        };
        let text = self.get(at + HEAD, len);
        Some((Entry { time, what, text }, HEAD + len))
    }

    /// The entries, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut at = 0;
        core::iter::from_fn(move || {
            let (entry, len) = self.entry(at)?;
            at += len;
            Some(entry)
        })
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_tracer_recent)]
mod tests {
    use super::*;

    const NOTE: What = What::Message { lost: true, id: 7 };

    /// Whether the last entries are those with these times, whose texts follow from the time.
    fn holds(ring: &Recent<&mut [u8]>, end: u64) -> bool {
        let first = end - ring.len() as u64;
        let mut times = first..end;
        let right = ring.iter().all(|entry| {
            let len = entry.text.0.len() + entry.text.1.len();
            let mut bytes = entry.text.0.iter().chain(entry.text.1);
            times.next() == Some(entry.time)
                && len as u64 == entry.time % 50
                && bytes.all(|byte| *byte == entry.time as u8)
        });
        right && times.next().is_none()
    }

    #[test]
    fn the_oldest_make_room() {
        for size in [HEAD, HEAD + 49, 100, 128, 255] {
            let mut bytes = [0; 255];
            let Some(bytes) = bytes.get_mut(..size) else {
                continue;
            };
            let mut ring = Recent::new(bytes);
            let mut refused = 0;
            for time in 0..1000 {
                let len = (time % 50) as usize;
                ring.push(time, NOTE, &[time as u8; 50][..len]);
                if HEAD + len > size {
                    refused += 1;
                } else if refused == 0 {
                    assert!(holds(&ring, time + 1));
                }
            }
            assert_eq!(ring.forgotten() + ring.len() as u64, 1000);
        }
    }

    #[test]
    fn what_goes_in_comes_out() {
        let mut bytes = [0; 4 * HEAD + 10];
        let mut ring = Recent::new(&mut bytes[..]);
        let gap = What::Gap {
            blocks: u64::MAX,
            torn: 3,
        };
        let message = What::Message {
            lost: false,
            id: 0xff,
        };
        assert!(ring.is_empty());
        ring.push(1 << 52, message, b"hello");
        ring.push(5, gap, b"");
        ring.push(6, NOTE, b"x");
        let mut entries = ring.iter();
        let first = entries.next();
        assert_eq!(first.map(|e| (e.time, e.what)), Some((1 << 52, message)));
        assert_eq!(first.map(|e| e.text.0), Some(&b"hello"[..]));
        assert_eq!(entries.next().map(|e| (e.time, e.what)), Some((5, gap)));
        assert_eq!(entries.next().map(|e| (e.time, e.what)), Some((6, NOTE)));
        assert_eq!(entries.next(), None);
        drop(entries);
        assert_eq!((ring.len(), ring.forgotten()), (3, 0));
    }

    #[test]
    fn no_room_at_all() {
        let mut ring = Recent::new(&mut [][..]);
        ring.push(1, NOTE, b"");
        assert_eq!((ring.len(), ring.forgotten()), (0, 1));
        assert_eq!(ring.iter().next(), None);
    }
}
