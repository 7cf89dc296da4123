// SPDX-License-Identifier: GPL-2.0

//! The database of firmware's format strings (hardware.md 4).
//!
//! MTRC_CAP says which sections there are, MTRC_STDB gives their bytes. Both are believed as far as
//! they can do no harm: sections of any size that overlap anyhow, strings without an end.

use core::ffi::CStr;
use core::ops::Deref;

use super::format::MAX_FORMAT;
use crate::layouts::tracer::{
    MtrcCap,
    MtrcStdb,
    MtrcStdbRead,
    STDB_READ, //
};
use crate::layouts::Layout;

/// Sections that MTRC_CAP has room for.
pub const SECTIONS: usize = 8;

/// Offset and size of a read are multiples of this many bytes (hardware.md 4).
const GRAIN: u32 = 64;

/// The most bytes of a section that are read: what upstream's allocator gives at most.
pub const MAX_SECTION: u32 = 4 << 20;

/// The most bytes of all sections that are read.
pub const MAX_SECTIONS: u32 = 8 << 20;

/// One section, as the device describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its number, below [`SECTIONS`].
    pub index: u8,
    /// What a pointer to its first byte is.
    pub base: u32,
    /// Bytes that can be read, and are worth it: at most [`MAX_SECTION`], a multiple of 64.
    pub len: u32,
}

/// A part of a section that one access of MTRC_STDB reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The section's number.
    pub section: u8,
    /// Bytes from the section's start.
    pub offset: u32,
    /// Bytes: 256, or at the end 64.
    pub len: u32,
}

impl Section {
    /// The sections of a device, those that hold nothing left out; together at most
    /// [`MAX_SECTIONS`] long.
    pub fn all(capability: &MtrcCap) -> impl Iterator<Item = Self> + '_ {
        let mut room = MAX_SECTIONS;
        (0..SECTIONS.min(usize::from(capability.num_string_db()))).filter_map(move |i| {
            let section = capability.string_db_param(i)?;
            let len = section.string_db_size().min(MAX_SECTION).min(room) / GRAIN * GRAIN;
            room -= len;
            (len != 0).then_some(Self {
                index: i as u8,
                base: section.string_db_base_address(),
                len,
            })
        })
    }

    /// How to read it: 256 bytes at a time, the rest by 64 bytes.
    pub fn chunks(&self) -> impl Iterator<Item = Chunk> {
        let (section, len) = (self.index, self.len);
        let mut offset = 0;
        core::iter::from_fn(move || {
            let size = match len - offset {
                0..GRAIN => return None,
                rest if rest < STDB_READ as u32 => GRAIN,
                _ => STDB_READ as u32,
            };
            let chunk = Chunk {
                section,
                offset,
                len: size,
            };
            offset += size;
            Some(chunk)
        })
    }
}

impl Chunk {
    /// What to write to MTRC_STDB for it.
    pub fn request(&self) -> MtrcStdbRead {
        let mut request = MtrcStdbRead::zeroed();
        if let Some(mut fixed) = MtrcStdb::of_mut(request.bytes_mut()) {
            // By construction both fit.
            let _ = fixed
                .try_set_string_db_index(self.section)
                .and_then(|fixed| fixed.try_set_read_size(self.len));
            fixed.set_start_offset(self.offset);
        }
        request
    }

    /// Puts what came back to its place in `section`, the section's bytes; `None` if it is not
    /// within.
    pub fn store(&self, reply: &MtrcStdbRead, section: &mut [u8]) -> Option<()> {
        let from = reply.data().get(..self.len as usize)?;
        let at = self.offset as usize;
        let to = section.get_mut(at..at.checked_add(from.len())?)?;
        to.copy_from_slice(from);
        Some(())
    }
}

/// Where a string is in a [`Database`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    section: u8,
    offset: u32,
    len: u16,
    terminated: bool,
}

impl Place {
    /// Nowhere: an empty string.
    pub const NONE: Self = Self {
        section: SECTIONS as u8,
        offset: 0,
        len: 0,
        terminated: true,
    };

    /// Whether the string has an end within its section and [`MAX_FORMAT`] bytes.
    pub fn is_terminated(&self) -> bool {
        self.terminated
    }
}

/// The strings; `M` holds the bytes of a section.
#[derive(Debug)]
pub struct Database<M> {
    /// Base and bytes.
    sections: [Option<(u32, M)>; SECTIONS],
}

impl<M: Deref<Target = [u8]>> Database<M> {
    /// No strings.
    pub const fn empty() -> Self {
        Self {
            sections: [const { None }; SECTIONS],
        }
    }

    /// Adds `section`, whose bytes are `bytes`.
    pub fn insert(&mut self, section: Section, bytes: M) {
        if let Some(place) = self.sections.get_mut(usize::from(section.index)) {
            *place = Some((section.base, bytes));
        }
    }

    /// Whether there are no sections.
    pub fn is_empty(&self) -> bool {
        self.sections.iter().all(Option::is_none)
    }

    /// Finds the string that firmware's `pointer` points to. Of sections that overlap, the first one
    /// has it.
    #[inline]
    pub fn find(&self, pointer: u32) -> Option<Place> {
        for (section, entry) in self.sections.iter().enumerate() {
            let Some((base, bytes)) = entry else {
                continue;
            };
            let Some(offset) = pointer.checked_sub(*base) else {
                continue;
            };
            if let Some(rest) = bytes.get(offset as usize..).filter(|rest| !rest.is_empty()) {
                let rest = rest.get(..=MAX_FORMAT).unwrap_or(rest);
                let (len, terminated) = match CStr::from_bytes_until_nul(rest) {
                    Ok(string) => (string.to_bytes().len(), true),
                    Err(_) => (rest.len().min(MAX_FORMAT), false),
                };
                return Some(Place {
                    section: section as u8,
                    offset,
                    len: len as u16,
                    terminated,
                });
            }
        }
        None
    }

    /// The string at `place`, without its end; empty if the place is not in this database.
    #[inline]
    pub fn string(&self, place: Place) -> &[u8] {
        let at = place.offset as usize;
        self.sections
            .get(usize::from(place.section))
            .and_then(|entry| entry.as_ref())
            .and_then(|(_, bytes)| bytes.get(at..at + usize::from(place.len)))
            .unwrap_or(&[])
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_tracer_strings)]
mod tests {
    use super::*;

    fn capability(count: u8, sections: &[(u32, u32)]) -> MtrcCap {
        let mut capability = MtrcCap::new();
        assert!(capability.try_set_num_string_db(count).is_ok());
        for (i, (base, size)) in sections.iter().enumerate() {
            if let Some(mut section) = capability.string_db_param_mut(i) {
                section.set_string_db_base_address(*base);
                assert!(section.try_set_string_db_size(*size).is_ok());
            }
        }
        capability
    }

    #[test]
    fn sections_are_bounded() {
        let cap = capability(
            15,
            &[
                (0x1000, 0x140),
                (0x2000, 63),
                (0x3000, 0xff_ffff),
                (0x4000, 0xff_ffff),
                (0x5000, 0xff_ffff),
                (0x6000, 64),
                (0, 0),
                (0xffff_ffff, 64),
            ],
        );
        let mut sections = Section::all(&cap).map(|s| (s.index, s.base, s.len));
        assert_eq!(sections.next(), Some((0, 0x1000, 0x140)));
        assert_eq!(sections.next(), Some((2, 0x3000, MAX_SECTION)));
        assert_eq!(
            sections.next(),
            Some((3, 0x4000, MAX_SECTIONS - MAX_SECTION - 0x140))
        );
        assert_eq!(sections.next(), None);
        let only = capability(1, &[(0x1000, 64), (0x2000, 64)]);
        assert_eq!(Section::all(&only).count(), 1);
        let none = capability(0, &[(0x1000, 64)]);
        assert_eq!(Section::all(&none).count(), 0);
    }

    #[test]
    fn chunks_cover_a_section() {
        for (len, big, small) in [
            (0_u32, 0, 0),
            (64, 0, 1),
            (192, 0, 3),
            (256, 1, 0),
            (320, 1, 1),
            (1024 + 192, 4, 3),
        ] {
            let section = Section {
                index: 3,
                base: 0,
                len,
            };
            assert_eq!(section.chunks().filter(|c| c.len == 256).count(), big);
            assert_eq!(section.chunks().filter(|c| c.len == 64).count(), small);
            let mut at = 0;
            for chunk in section.chunks() {
                assert_eq!((chunk.section, chunk.offset), (3, at));
                at += chunk.len;
            }
            assert_eq!(at, len);
        }
    }

    #[test]
    fn requests_and_replies() {
        let chunk = Chunk {
            section: 7,
            offset: 0x140,
            len: 64,
        };
        let mut register = chunk.request();
        assert_eq!(register.bytes()[..8], [0x70, 0, 0, 64, 0, 0, 0x01, 0x40]);
        register.bytes_mut()[8] = b'a';
        register.bytes_mut()[8 + 63] = b'z';
        register.bytes_mut()[8 + 64] = b'!';
        let mut section = [0; 0x180];
        assert_eq!(chunk.store(&register, &mut section), Some(()));
        assert_eq!((section[0x140], section[0x17f]), (b'a', b'z'));
        assert_eq!(chunk.store(&register, &mut section[..0x17f]), None);
    }

    fn database<'a>(sections: &[(u8, u32, &'a [u8])]) -> Database<&'a [u8]> {
        let mut database = Database::empty();
        for (index, base, bytes) in sections {
            let section = Section {
                index: *index,
                base: *base,
                len: bytes.len() as u32,
            };
            database.insert(section, *bytes);
        }
        database
    }

    #[test]
    fn strings() {
        let db = database(&[
            (1, 0x1000, b"one\0two\0\0no end"),
            (2, 0x1004, b"hidden\0seen\0"),
            (7, 0xffff_fffc, b"top\0beyond\0"),
            (9, 0, b"no such section\0"),
        ]);
        let find = |pointer| {
            db.find(pointer)
                .map(|place| (db.string(place), place.is_terminated()))
        };
        for (pointer, want) in [
            (0x0fff, None),
            // The first byte of a section; upstream does not take it.
            (0x1000, Some((&b"one"[..], true))),
            (0x1002, Some((b"e", true))),
            (0x1003, Some((b"", true))),
            (0x1004, Some((b"two", true))),
            (0x1009, Some((b"no end", false))),
            (0x100e, Some((b"d", false))),
            (0x100f, Some((b"", true))),
            (0x1010, None),
            (0xffff_fffc, Some((b"top", true))),
            (0xffff_ffff, Some((b"", true))),
            (0, None),
        ] {
            assert_eq!(find(pointer), want);
        }
        assert_eq!(db.string(Place::NONE), b"");
    }

    #[test]
    fn long_strings_are_cut() {
        let long = [b'a'; MAX_FORMAT + 2];
        let mut fits = long;
        fits[MAX_FORMAT] = 0;
        for (bytes, want) in [(&fits, true), (&long, false)] {
            let db = database(&[(0, 0x10, bytes)]);
            let place = db.find(0x10);
            assert_eq!(place.map(|p| db.string(p).len()), Some(MAX_FORMAT));
            assert_eq!(place.map(|p| p.is_terminated()), Some(want));
        }
    }
}
