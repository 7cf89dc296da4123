// SPDX-License-Identifier: GPL-2.0

//! What firmware has to say: the n-th trace follows from a seed, so that whoever knows the seed
//! knows what a reader must show, and nobody has to keep it.

use super::event::TIMESTAMP_ID;
use super::format;
use super::format::Format;
use super::random::mix;
use super::random::Random;
use super::strings;
use super::strings::Strings;
use super::strings::HOSTILE;

/// Most parameters of a message.
pub const PARAMS: usize = 7;

/// What kinds of traces there are, and which ids they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script {
    /// Everything follows from it.
    pub seed: u64,
    /// First event id of strings.
    pub first_id: u8,
    /// Number of event ids of strings, at least 1.
    pub ids: u8,
    /// [`format::MORE`] too.
    pub more: bool,
    /// In a thousand traces, so many are no strings.
    pub raw: u16,
    /// In a thousand traces, so many are hostile.
    pub hostile: u16,
}

/// What a trace says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// A format of [`strings::all`], with parameters.
    Format(usize),
    /// 48 bits of data: the trace's number.
    Raw,
    /// Something that no firmware should say.
    Hostile(Hostile),
}

/// What is wrong with a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hostile {
    /// A string of [`HOSTILE`], with as many parameters as a message can have.
    String(usize),
    /// The string is at an address that no section has.
    Pointer(Place),
    /// Parameters without a string.
    Orphan,
    /// More parameters than the format has.
    TooMany,
    /// Fewer parameters than the format has, then nothing.
    TooFew,
    /// Another string with the same number before the first has its parameters.
    Again,
    /// Parameters in the wrong order, one of them twice.
    Shuffled,
}

/// Where a bad pointer leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// 0.
    Null,
    /// The last address that there is.
    Top,
    /// Before the first section.
    Before,
    /// Just after a section.
    After,
}

/// A trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Number; the first is 0.
    pub n: u64,
    /// Event id.
    pub id: u8,
    /// What it says.
    pub says: Says,
    params: [u32; PARAMS],
}

impl Script {
    /// Trace `n`.
    pub fn trace(&self, n: u64) -> Trace {
        let mut r = Random::new(self.seed ^ mix(n));
        let says = if r.chance(self.hostile) {
            Says::Hostile(hostile(&mut r))
        } else if r.chance(self.raw) {
            Says::Raw
        } else {
            let more = if self.more { format::MORE.len() } else { 0 };
            Says::Format(r.below((format::COMMON.len() + more) as u64) as usize)
        };
        let id = match says {
            Says::Raw => self.other_id(&mut r),
            _ => self
                .first_id
                .wrapping_add(r.below(self.ids.max(1).into()) as u8),
        };
        Trace::new(n, id, says, &mut r)
    }

    /// Trace `n`, as part of a core dump.
    pub fn core_dump(&self, n: u64) -> Trace {
        let mut r = Random::new(self.seed ^ mix(n));
        let last = strings::all().count() - 1;
        Trace::new(n, self.first_id, Says::Format(last), &mut r)
    }

    /// Whether an event id is one of strings.
    pub fn is_string(&self, id: u8) -> bool {
        id.checked_sub(self.first_id).is_some_and(|i| i < self.ids)
    }

    /// An id that is neither of strings nor of timestamps; the first after the strings is among
    /// them.
    fn other_id(&self, r: &mut Random) -> u8 {
        let after = self.first_id.wrapping_add(self.ids);
        let start = if r.chance(500) { after } else { r.draw() as u8 };
        let mut ids = (0..=u8::MAX).map(|i| start.wrapping_add(i));
        ids.find(|id| *id != TIMESTAMP_ID && !self.is_string(*id))
            .unwrap_or(after)
    }
}

fn hostile(r: &mut Random) -> Hostile {
    match r.below(12) {
        0 => Hostile::Orphan,
        1 => Hostile::TooMany,
        2 => Hostile::TooFew,
        3 => Hostile::Again,
        4 => Hostile::Shuffled,
        5 => Hostile::Pointer(
            [Place::Null, Place::Top, Place::Before, Place::After][r.below(4) as usize],
        ),
        _ => Hostile::String(r.below(HOSTILE.len() as u64) as usize),
    }
}

impl Trace {
    fn new(n: u64, id: u8, says: Says, r: &mut Random) -> Self {
        let mut params = [0; PARAMS];
        params[0] = n as u32;
        for p in &mut params[1..] {
            *p = match r.below(4) {
                0 => r.below(100) as u32,
                // No leading zeros: mlx5_core drops those of the low half of %llx.
                1 => r.draw() as u32 | 0x1000_0000,
                2 => (r.below(100) as u32).wrapping_neg(),
                _ => 0x1000_0000 + r.below(0x1000) as u32,
            };
        }
        let mut trace = Self {
            n,
            id,
            says,
            params,
        };
        trace.make_presentable(r);
        trace
    }

    /// Makes words what their conversions are for: characters that can be shown, and halves of
    /// `%llx` that mlx5_core, which prints both as `%x`, shows right.
    fn make_presentable(&mut self, r: &mut Random) {
        let Some(format) = self.format() else { return };
        let common = matches!(self.says, Says::Format(i) if i < format::COMMON.len());
        let mut at = 0;
        for piece in format {
            let format::Piece::Value(_, convert) = piece else {
                continue;
            };
            match convert {
                format::Convert::Char => self.params[at] = 0x21 + r.below(0x5e) as u32,
                // `%#x` of 0 is `0` in C and `0x0` in the kernel.
                format::Convert::Prefixed => self.params[at] |= 1,
                format::Convert::LongHex(_) if common => {
                    self.params[at] |= 1;
                    self.params[at + 1] |= 0x1000_0000;
                }
                _ => {}
            }
            at += convert.words();
        }
    }

    fn format(&self) -> Option<Format> {
        match self.says {
            Says::Format(index) => strings::format(index),
            _ => None,
        }
    }

    /// What a reader must show; `None` if that is up to the reader.
    pub fn text(&self) -> Option<String> {
        let format = self.format()?;
        format::render(format, &self.params[..format::words(format)])
    }

    /// The 48 bits of a trace that is no string.
    pub fn data(&self) -> u64 {
        self.n & ((1 << 48) - 1)
    }

    /// The events of a message as `(tdsn, word)`, in order; none for [`Says::Raw`].
    pub fn parts(&self, strings: &Strings) -> Parts {
        let mut parts = Parts::default();
        let p = &self.params;
        let mut with = |pointer: u32, order: &[u8]| {
            parts.push(0, pointer);
            for &tdsn in order {
                parts.push(tdsn, p[usize::from(tdsn) - 1]);
            }
        };
        const ALL: &[u8] = &[1, 2, 3, 4, 5, 6, 7];
        match self.says {
            Says::Raw => {}
            Says::Format(index) => {
                let words = self.format().map_or(0, format::words);
                with(strings.format(index), &ALL[..words]);
            }
            Says::Hostile(Hostile::String(index)) => with(strings.hostile_string(index), ALL),
            Says::Hostile(Hostile::Pointer(place)) => {
                let first = &strings.sections[0];
                let pointer = match place {
                    Place::Null => 0,
                    Place::Top => u32::MAX,
                    Place::Before => first.base - 1,
                    Place::After => first.end(),
                };
                with(pointer, &[1]);
            }
            Says::Hostile(Hostile::Orphan) => {
                parts.push(3, p[2]);
                parts.push(1, p[0]);
            }
            Says::Hostile(Hostile::TooMany) => with(strings.format(1), ALL),
            Says::Hostile(Hostile::TooFew) => with(strings.format(1), &[1]),
            Says::Hostile(Hostile::Again) => {
                with(strings.format(1), &[1]);
                with(strings.format(2), &[1, 2, 3]);
            }
            Says::Hostile(Hostile::Shuffled) => with(strings.format(1), &[3, 1, 1]),
        }
        parts
    }
}

/// Events of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    list: [(u8, u32); 12],
    len: usize,
}

impl Parts {
    fn push(&mut self, tdsn: u8, word: u32) {
        self.list[self.len] = (tdsn, word);
        self.len += 1;
    }

    /// In order.
    pub fn as_slice(&self) -> &[(u8, u32)] {
        &self.list[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::strings::Size;
    use super::*;

    fn script() -> Script {
        Script {
            seed: 7,
            first_id: 2,
            ids: 14,
            more: true,
            raw: 100,
            hostile: 200,
        }
    }

    #[test]
    fn every_trace_fits_its_events() {
        let (s, db) = (script(), Strings::new(Size::Small, 0));
        let (mut raw, mut hostile) = (0, 0);
        for n in 0..20_000 {
            let t = s.trace(n);
            assert_eq!(t, s.trace(n), "the same each time");
            assert_ne!(t.id, TIMESTAMP_ID);
            assert_eq!(s.is_string(t.id), t.says != Says::Raw);
            let parts = t.parts(&db);
            assert!(parts.as_slice().iter().all(|(tdsn, _)| *tdsn <= 7));
            match t.says {
                Says::Raw => raw += 1,
                Says::Hostile(_) => hostile += 1,
                Says::Format(_) => {
                    assert_eq!(parts.as_slice()[0].0, 0);
                }
            }
        }
        assert!((1000..3000).contains(&raw) && (3000..5000).contains(&hostile));
    }

    #[test]
    fn texts_name_their_number() {
        let s = Script {
            more: false,
            raw: 0,
            hostile: 0,
            ..script()
        };
        for n in [0, 1, 4711, u64::from(u32::MAX) + 3] {
            let text = s.trace(n).text().expect("a format");
            assert!(text.starts_with(&format!("#{}", n as u32)), "{text}");
        }
        let dump = s.core_dump(12).text().expect("a format");
        assert!(dump.starts_with("#12 core dump: irisc "), "{dump}");
    }

    #[test]
    fn the_id_after_the_strings_is_used() {
        let s = script();
        assert!((0..2000).any(|n| s.trace(n).id == s.first_id + s.ids));
        // All ids but one are strings: there is one left.
        let s = Script {
            first_id: 0,
            ids: 254,
            raw: 1000,
            hostile: 0,
            ..s
        };
        assert_eq!(s.trace(1).id, 254);
    }
}
