// SPDX-License-Identifier: GPL-2.0

//! The string database: sections of firmware's read-only data, which MTRC_STDB serves.

use super::format;
use super::format::Format;

/// Sections that MTRC_CAP has room for.
pub const SECTIONS: usize = 8;

/// Sizes and read offsets are multiples of this (hardware.md section 4).
pub const UNIT: usize = 64;

/// How large a database is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// Two sections, 10 KiB: quick to read.
    #[default]
    Small,
    /// Four sections, one of them empty, 386 KiB: as firmware has it.
    Large,
}

impl Size {
    /// Name on the control socket.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
        }
    }

    /// By [`Size::name`].
    pub fn by_name(name: &str) -> Option<Self> {
        [Self::Small, Self::Large]
            .into_iter()
            .find(|s| s.name() == name)
    }
}

/// A section.
#[derive(Clone, Debug)]
pub struct Section {
    /// Where firmware has it.
    pub base: u32,
    /// Its bytes; a multiple of [`UNIT`].
    pub data: Vec<u8>,
}

impl Section {
    /// Address after the last byte.
    pub fn end(&self) -> u32 {
        self.base + self.data.len() as u32
    }
}

/// A database.
#[derive(Clone, Debug)]
pub struct Strings {
    /// In the order of MTRC_CAP.
    pub sections: Vec<Section>,
    /// Addresses of [`format::COMMON`], [`format::MORE`], and [`format::CORE_DUMP`].
    formats: Vec<u32>,
    /// Addresses of [`HOSTILE`].
    hostile: Vec<u32>,
}

/// Strings that no firmware should have. The last two: one whose NUL is the last byte of the
/// section, and one that has none.
pub const HOSTILE: &[&[u8]] = &[
    b"#%u %s",
    b"#%u %n",
    b"#%u %hhn%hn%ln%lln",
    b"#%u %*d",
    b"#%u %.*s",
    b"#%u %ls",
    b"#%u %999999999d",
    b"#%u %.999999999x",
    b"#%u %0-+ #8llllld",
    b"#%u %llllllllx",
    b"#%u %x %x %x %x %x %x %x %x",
    b"#%u %llx %llx %llx %llx",
    b"#%u %p %p",
    b"#%u %f %e %g %a",
    b"#%u %1$x %2$x",
    b"#%u \n\r\x1b[31m\x07 mlx5_fw: 0000:00:00.0 [0x1] 0 [0x2] forged",
    b"#%u \xff\xfe\x80 \xc3\x28",
    b"#%u %c%c",
    b"#%u %",
    b"%",
    b"",
    b"#%u last %x",
    b"#%u endless %x",
];

/// Bytes of the hostile section.
const HOSTILE_SIZE: usize = 2048 + 3 * UNIT;

/// A string of so many characters is in the database, too.
const LONG: usize = 900;

fn push(data: &mut Vec<u8>, base: u32, text: &[u8]) -> u32 {
    let at = base + data.len() as u32;
    data.extend_from_slice(text);
    data.push(0);
    at
}

impl Strings {
    /// A database; with each `generation` its sections are elsewhere.
    pub fn new(size: Size, generation: u32) -> Self {
        let base = 0x0010_0000 + (generation & 0x3f) * 0x0100_0000;
        let sizes: &[usize] = match size {
            Size::Small => &[8192],
            Size::Large => &[(256 << 10) - UNIT, 0, (128 << 10) + 2 * UNIT],
        };
        let mut formats = Vec::new();
        let mut sections = Vec::new();
        for (i, &size) in sizes.iter().enumerate() {
            let base = base + i as u32 * 0x0010_0000;
            let mut data = Vec::with_capacity(size);
            if i == 0 {
                formats = Self::formats(&mut data, base);
            }
            fill(&mut data, size);
            sections.push(Section { base, data });
        }
        let (hostile, addresses) = Self::hostile(base + 0x0080_0000);
        sections.push(hostile);
        Self {
            sections,
            formats,
            hostile: addresses,
        }
    }

    /// All formats. The last of `MORE` comes first, since it is to stand at the start.
    fn formats(data: &mut Vec<u8>, base: u32) -> Vec<u32> {
        let all: Vec<Format> = all().collect();
        let first = format::COMMON.len() + format::MORE.len() - 1;
        let mut addresses = vec![0; all.len()];
        addresses[first] = push(data, base, format::source(all[first]).as_bytes());
        for (i, f) in all.iter().enumerate().filter(|(i, _)| *i != first) {
            addresses[i] = push(data, base, format::source(f).as_bytes());
        }
        addresses
    }

    fn hostile(base: u32) -> (Section, Vec<u32>) {
        let mut data = Vec::with_capacity(HOSTILE_SIZE);
        let mut addresses = Vec::new();
        let (last, before) = (HOSTILE.len() - 1, HOSTILE.len() - 2);
        for text in &HOSTILE[..before] {
            addresses.push(push(&mut data, base, text));
        }
        let long = "long ".bytes().cycle().take(LONG);
        push(&mut data, base, &long.collect::<Vec<u8>>());
        let tail = HOSTILE[before].len() + 1 + HOSTILE[last].len();
        fill(&mut data, HOSTILE_SIZE - tail);
        addresses.push(push(&mut data, base, HOSTILE[before]));
        addresses.push(base + data.len() as u32);
        data.extend_from_slice(HOSTILE[last]);
        (Section { base, data }, addresses)
    }

    /// Address of a format by its place in [`all`].
    pub fn format(&self, index: usize) -> u32 {
        self.formats[index]
    }

    /// Address of a string of [`HOSTILE`].
    pub fn hostile_string(&self, index: usize) -> u32 {
        self.hostile[index]
    }

    /// Bytes `offset..offset + len` of a section, if it has them.
    pub fn read(&self, section: usize, offset: usize, len: usize) -> Option<&[u8]> {
        let data = &self.sections.get(section)?.data;
        data.get(offset..offset.checked_add(len)?)
    }
}

/// All formats: [`format::COMMON`], [`format::MORE`], [`format::CORE_DUMP`].
pub fn all() -> impl Iterator<Item = Format> {
    let lists = format::COMMON.iter().chain(format::MORE);
    lists.copied().chain([format::CORE_DUMP])
}

/// A format by its place in [`all`].
pub fn format(index: usize) -> Option<Format> {
    let more = index.checked_sub(format::COMMON.len());
    match more {
        None => format::COMMON.get(index).copied(),
        Some(i) if i == format::MORE.len() => Some(format::CORE_DUMP),
        Some(i) => format::MORE.get(i).copied(),
    }
}

/// Fills up to `size` with strings as firmware might have them, cut off where it ends.
fn fill(data: &mut Vec<u8>, size: usize) {
    let mut line = 0;
    while data.len() + 48 < size {
        let text = format!("module {}: line {line}, state %d, word 0x%08x", line % 37);
        data.extend_from_slice(text.as_bytes());
        data.push(0);
        line += 1;
    }
    data.resize(size.max(data.len()), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(s: &Strings, address: u32) -> Option<String> {
        let section = s
            .sections
            .iter()
            .find(|s| (s.base..s.end()).contains(&address))?;
        let bytes = &section.data[(address - section.base) as usize..];
        let end = bytes.iter().position(|b| *b == 0)?;
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    #[test]
    fn sections_are_sane_and_hold_the_strings() {
        for (size, total) in [(Size::Small, 8192 + 2240), (Size::Large, 393_280 + 2240)] {
            for generation in [0, 1, 63, 64] {
                let s = Strings::new(size, generation);
                assert!(s.sections.len() <= SECTIONS);
                assert!(s.sections.iter().all(|s| s.data.len() % UNIT == 0));
                assert_eq!(
                    s.sections.iter().map(|s| s.data.len()).sum::<usize>(),
                    total
                );
                for pair in s.sections.windows(2) {
                    assert!(pair[0].end() <= pair[1].base);
                }
                for (i, f) in all().enumerate() {
                    assert!(std::ptr::eq(format(i).expect("a format"), f));
                    assert_eq!(string(&s, s.format(i)), Some(format::source(f)));
                }
                for (i, text) in HOSTILE.iter().enumerate().take(HOSTILE.len() - 1) {
                    let expected = String::from_utf8_lossy(text).into_owned();
                    assert_eq!(string(&s, s.hostile_string(i)), Some(expected));
                }
                assert_eq!(string(&s, s.hostile_string(HOSTILE.len() - 1)), None);
                let first = format::COMMON.len() + format::MORE.len() - 1;
                assert_eq!(s.format(first), s.sections[0].base);
                assert_eq!(s.read(0, 0, 4), Some(&b"#%u "[..]));
                assert_eq!(s.read(0, s.sections[0].data.len(), 1), None);
                assert_eq!(s.read(0, usize::MAX, 1), None);
                assert_eq!(s.read(8, 0, 1), None);
            }
        }
    }
}
