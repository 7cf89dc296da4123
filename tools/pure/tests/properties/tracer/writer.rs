// SPDX-License-Identifier: GPL-2.0

//! A device's tracer, written from hardware.md 4 and sharing nothing with the driver: it writes
//! blocks of bytes, and keeps a list of what it wrote.

// Tests and benches use different parts of it.
#![allow(dead_code)]

/// Bits of the device's clock.
const CLOCK: u64 = (1 << 53) - 1;

/// A format string, and what it makes of its parameter words.
pub struct Format {
    /// As firmware has it.
    pub text: &'static str,
    /// Words of parameters.
    pub words: usize,
    /// The reference.
    pub print: fn(&[u32]) -> String,
}

fn wide(p: &[u32]) -> u64 {
    u64::from(p[0]) << 32 | u64::from(p[1])
}

/// Strings of the kind that firmware has.
pub const FORMATS: &[Format] = &[
    Format {
        text: "entered idle",
        words: 0,
        print: |_| "entered idle".into(),
    },
    Format {
        text: "port %d link up\n",
        words: 1,
        print: |p| format!("port {} link up", p[0] as i32),
    },
    Format {
        text: "cmd 0x%04x op_mod %u status %x",
        words: 3,
        print: |p| format!("cmd 0x{:04x} op_mod {} status {:x}", p[0], p[1], p[2]),
    },
    Format {
        text: "icm page 0x%016llx given to gvmi %d",
        words: 3,
        print: |p| format!("icm page 0x{:016x} given to gvmi {}", wide(p), p[2] as i32),
    },
    Format {
        text: "%llx %lx 100%% %c",
        words: 4,
        print: |p| {
            let c = p[3] as u8;
            let c = if (0x20..0x7f).contains(&c) {
                c as char
            } else {
                '.'
            };
            format!("{:x} {:x} 100% {c}", wide(p), p[2])
        },
    },
    Format {
        text: "qp %06x: state %-4d|%5u|%X%X%x",
        words: 6,
        print: |p| {
            format!(
                "qp {:06x}: state {:<4}|{:5}|{:X}{:X}{:x}",
                p[0], p[1] as i32, p[2], p[3], p[4], p[5]
            )
        },
    },
    Format {
        text: "%08x %08x %08x %08x %08x %08x %08x",
        words: 7,
        print: |p| {
            p.iter()
                .map(|word| format!("{word:08x}"))
                .collect::<Vec<_>>()
                .join(" ")
        },
    },
];

/// What the pointers to strings begin with.
pub const BASE: u32 = 0xfff8_0000;

/// The section of strings, and the pointer to each.
pub fn section(formats: &[Format]) -> (Vec<u8>, Vec<u32>) {
    // Upstream does not find the first byte of a section.
    let (mut bytes, mut pointers) = (vec![0], Vec::new());
    for format in formats {
        pointers.push(BASE + bytes.len() as u32);
        bytes.extend_from_slice(format.text.as_bytes());
        bytes.push(0);
    }
    bytes.resize(bytes.len().next_multiple_of(64), 0);
    (bytes, pointers)
}

/// A message that was written.
#[derive(Clone, Debug)]
pub struct Written {
    /// 53 bits, if it can be known.
    pub time: Option<u64>,
    /// A lost bit was set.
    pub lost: bool,
    /// Event id.
    pub id: u8,
    /// What it says.
    pub text: String,
    /// The numbers of the blocks of its first and its last event.
    pub blocks: (usize, usize),
}

/// A message that is being written.
struct Open {
    message: usize,
    id: u8,
    tmsn: u16,
    /// What is left to write: `tdsn` and word, the last one first.
    rest: Vec<(u8, u32)>,
}

/// First id of string traces.
pub const FIRST_ID: u8 = 0x20;

/// The device.
pub struct Writer {
    trc_ver: u8,
    formats: &'static [Format],
    reliable: bool,
    /// Not reduced to 53 bits.
    now: u64,
    /// When the first event since the last timestamp event was written.
    unstamped: Option<u64>,
    /// Messages whose first event was written since the last timestamp event.
    untimed: Vec<(usize, u64)>,
    block: Vec<[u8; 8]>,
    open: Vec<Open>,
    serial: [u16; 256],
    pointers: Vec<u32>,
    /// Blocks that are complete.
    pub blocks: Vec<[u8; 256]>,
    /// Messages, in the order in which their last events were written.
    pub complete: Vec<Written>,
    begun: Vec<Written>,
    /// Lost bits set.
    pub lost_bits: u64,
    /// Timestamp events that are not reliable.
    pub unreliable: u64,
}

/// Random numbers that are the same each time (xorshift64*).
pub struct Random(pub u64);

impl Random {
    /// A number below `below`.
    pub fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % below
    }

    /// A number of 0 to `bits` - 1 bits, each as likely.
    pub fn magnitude(&mut self, bits: u64) -> u64 {
        let bits = self.below(bits);
        self.below(1 << bits)
    }
}

impl Writer {
    pub fn new(trc_ver: u8, start: u64) -> Self {
        Self::with_formats(trc_ver, start, FORMATS)
    }

    pub fn with_formats(trc_ver: u8, start: u64, formats: &'static [Format]) -> Self {
        Self {
            trc_ver,
            formats,
            reliable: false,
            now: start,
            unstamped: None,
            untimed: Vec::new(),
            block: Vec::new(),
            open: Vec::new(),
            serial: [0; 256],
            pointers: section(formats).1,
            blocks: Vec::new(),
            complete: Vec::new(),
            begun: Vec::new(),
            lost_bits: 0,
            unreliable: 0,
        }
    }

    /// No unreliable timestamps from now on.
    pub fn always_reliable(&mut self) {
        self.reliable = true;
    }

    /// Writes a timestamp event at `now`, which is after all events.
    fn stamp(&mut self, reliable: bool) {
        self.now += 1;
        let time = self.now & CLOCK;
        let urts: u32 = match (reliable, self.trc_ver) {
            // The other bits mean nothing.
            (true, 0) => 0b011,
            (true, _) => 0b110,
            (false, 0) => 0b100,
            (false, _) => 0b001,
        };
        self.unreliable += u64::from(!reliable);
        let w0 =
            (time as u32 & 0xff) << 24 | 0xff << 16 | urts << 13 | (time >> 40) as u32 & 0x1fff;
        for (message, at) in std::mem::take(&mut self.untimed) {
            self.begun[message].time = reliable.then_some(at & CLOCK);
        }
        self.unstamped = None;
        self.put(w0, (time >> 8) as u32);
    }

    fn put(&mut self, w0: u32, w1: u32) {
        let mut event = [0; 8];
        event[..4].copy_from_slice(&w0.to_be_bytes());
        event[4..].copy_from_slice(&w1.to_be_bytes());
        self.block.push(event);
        if self.block.len() == 32 {
            let block = self.block.concat();
            self.blocks.push(block.try_into().expect("256 bytes"));
            self.block.clear();
        }
    }

    /// Lets time go on, and makes room for one event that is not a timestamp.
    fn prepare(&mut self, random: &mut Random) {
        let ticks = random.below(90);
        if self
            .unstamped
            .is_some_and(|first| self.now + ticks + 1 - first > 128)
        {
            // The next event would be too far from the first one for seven bits.
            let reliable = random.below(20) != 0;
            self.stamp(reliable || self.reliable);
        }
        if self.block.len() == 31 {
            let reliable = random.below(40) != 0;
            self.stamp(reliable || self.reliable);
        }
        self.now += if self.unstamped.is_some() {
            ticks
        } else {
            random.magnitude(40)
        };
    }

    fn event(&mut self, lost: bool, id: u8, low16: u16, word: u32) {
        self.unstamped.get_or_insert(self.now);
        self.lost_bits += u64::from(lost);
        let w0 = u32::from(lost) << 31
            | (self.now as u32 & 0x7f) << 24
            | u32::from(id) << 16
            | u32::from(low16);
        self.put(w0, word);
    }

    /// Writes the next event, of a new message or of one that is open.
    pub fn step(&mut self, random: &mut Random) {
        self.prepare(random);
        let lost = random.below(50) == 0;
        if self.open.is_empty() || self.open.len() < 6 && random.below(4) == 0 {
            let id = FIRST_ID + random.below(6) as u8;
            let tmsn = self.serial[usize::from(id)];
            self.serial[usize::from(id)] = (tmsn + 1) & 0x1fff;
            let which = random.below(self.formats.len() as u64) as usize;
            let format = &self.formats[which];
            let words: Vec<u32> = (0..format.words)
                .map(|_| random.magnitude(33) as u32)
                .collect();
            let message = self.begun.len();
            self.untimed.push((message, self.now));
            self.begun.push(Written {
                time: None,
                lost: false,
                id,
                text: (format.print)(&words),
                blocks: (self.blocks.len(), self.blocks.len()),
            });
            self.open.push(Open {
                message,
                id,
                tmsn,
                rest: words
                    .iter()
                    .enumerate()
                    .rev()
                    .map(|(i, word)| (i as u8 + 1, *word))
                    .collect(),
            });
            self.part(self.open.len() - 1, lost, 0, self.pointers[which]);
        } else {
            let which = random.below(self.open.len() as u64) as usize;
            let (tdsn, word) = self.open[which].rest.pop().expect("an open message");
            self.part(which, lost, tdsn, word);
        }
    }

    fn part(&mut self, which: usize, lost: bool, tdsn: u8, word: u32) {
        let open = &self.open[which];
        let (id, tmsn, message) = (open.id, open.tmsn, open.message);
        self.begun[message].lost |= lost;
        self.begun[message].blocks.1 = self.blocks.len();
        let complete = open.rest.is_empty();
        self.event(lost, id, tmsn << 3 | u16::from(tdsn), word);
        if complete {
            self.open.remove(which);
            // Its time is looked up at the end, by its number: the timestamp event may be to come.
            self.complete.push(Written {
                time: Some(message as u64),
                ..self.begun[message].clone()
            });
        }
    }

    /// Ends all messages and the block, and gives the true times to the list.
    pub fn finish(&mut self, random: &mut Random) {
        while !self.open.is_empty() {
            self.prepare(random);
            let (tdsn, word) = self.open[0].rest.pop().expect("an open message");
            self.part(0, false, tdsn, word);
        }
        while !self.block.is_empty() {
            if self.block.len() == 31 {
                self.stamp(true);
            } else {
                self.put(0, 0);
            }
        }
        for written in &mut self.complete {
            let message = written.time.expect("its number") as usize;
            written.time = self.begun[message].time;
        }
    }

    /// Writes about `events` events, and ends.
    pub fn run(trc_ver: u8, start: u64, events: usize, random: &mut Random) -> Self {
        let mut writer = Self::new(trc_ver, start);
        for _ in 0..events {
            writer.step(random);
        }
        writer.finish(random);
        writer
    }
}
