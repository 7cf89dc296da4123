// SPDX-License-Identifier: GPL-2.0

//! The formatter of string traces.
//!
//! Format strings come from firmware and are hostile (field case C32): they never reach a printf. A
//! conversion is `%[flags][width][.precision][l|ll](d|i|u|x|X|o|c|p)`, or `%%`; flags are `-+ #0`,
//! width and precision numbers up to 255, and `l` and `ll` go with `d i u x X o`. What it prints is
//! what C prints where `int` and `long` have 32 bits and `long long` has 64, as on the device; `%p`
//! prints `0x` and eight digits. A parameter is one 32-bit word; `ll` takes two, the high one first.
//!
//! Anything else makes a string bad: it is printed as it is, followed by its parameters as words.
//!
//! All that is written is printable ASCII.

/// Most parameter words of a message (hardware.md 4: `tdsn` 1 to 7).
pub const MAX_WORDS: usize = 7;

/// Longest string that is formatted; a longer one is bad.
pub const MAX_FORMAT: usize = 1024;

/// A good size for a [`Line`], in bytes: what upstream has room for.
pub const LINE: usize = 512;

/// Why a format string is bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// A conversion that is not one of those above.
    Conversion,
    /// A width or precision above 255.
    Width,
    /// More than [`MAX_WORDS`] words of parameters.
    Words,
    /// It ends within a conversion.
    Cut,
    /// No NUL within [`MAX_FORMAT`] bytes, or before its section ends.
    Unterminated,
}

/// What a format string needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Words of parameters, at most [`MAX_WORDS`]. For a bad string it is a guess: a word for each
    /// conversion, known or not, and for each `*`.
    pub words: u8,
    /// Why it is bad, if it is.
    pub bad: Option<Bad>,
}

impl Shape {
    /// Looks at `format`, the string without its NUL.
    pub fn of(format: &[u8]) -> Self {
        let mut words = 0_usize;
        let mut bad = (format.len() > MAX_FORMAT).then_some(Bad::Unterminated);
        let mut rest = format;
        // Each turn takes one byte at least.
        while let Some(after) = behind_percent(rest) {
            rest = match after.split_first() {
                Some((b'%', after)) => after,
                _ => {
                    let (conversion, after) = Conversion::parse(after);
                    words += usize::from(conversion.words);
                    bad = bad.or(conversion.bad);
                    after
                }
            };
        }
        if words > MAX_WORDS {
            bad = bad.or(Some(Bad::Words));
        }
        Self {
            words: words.min(MAX_WORDS) as u8,
            bad,
        }
    }
}

/// Output of bounded length. Only printable ASCII goes in: what is not becomes a dot.
#[derive(Debug)]
pub struct Line<'a> {
    buf: &'a mut [u8],
    len: usize,
    cut: bool,
}

impl<'a> Line<'a> {
    /// An empty line that writes to `buf`.
    pub fn new(buf: &'a mut [u8]) -> Self {
        Self {
            buf,
            len: 0,
            cut: false,
        }
    }

    /// What has been written.
    pub fn as_bytes(&self) -> &[u8] {
        self.buf.get(..self.len).unwrap_or(&[])
    }

    /// What has been written.
    pub fn as_str(&self) -> &str {
        // Only ASCII is written.
        core::str::from_utf8(self.as_bytes()).unwrap_or("")
    }

    /// Whether there was more than there is room for.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Makes the line empty.
    pub fn clear(&mut self) {
        self.len = 0;
        self.cut = false;
    }

    /// Writes text; what is not printable becomes a dot.
    #[inline]
    pub fn text(&mut self, text: &[u8]) {
        let room = self.buf.get_mut(self.len..).unwrap_or(&mut []);
        self.cut |= text.len() > room.len();
        for (to, from) in room.iter_mut().zip(text) {
            *to = printable(*from);
        }
        self.len += text.len().min(room.len());
    }

    /// Writes text up to a `%`, and gives what is left of it from there on.
    #[inline]
    fn literal<'t>(&mut self, text: &'t [u8]) -> &'t [u8] {
        let room = self.buf.get_mut(self.len..).unwrap_or(&mut []);
        let mut at = 0;
        // Eight bytes at a time; those from the first special one on are written over later.
        while let (Some(from), Some(to)) = (chunk(text, at), chunk_mut(room, at)) {
            *to = *from;
            let first = first_special(u64::from_le_bytes(*from));
            at += first;
            if first == 8 {
                continue;
            }
            if from.get(first) == Some(&b'%') {
                break;
            }
            if let Some(special) = to.get_mut(first) {
                *special = b'.';
            }
            at += 1;
        }
        while let Some(from) = text.get(at).filter(|byte| **byte != b'%') {
            let Some(to) = room.get_mut(at) else {
                self.cut = true;
                break;
            };
            *to = printable(*from);
            at += 1;
        }
        self.len += at;
        text.get(at..).unwrap_or(&[])
    }

    /// Writes `byte` `count` times.
    #[inline]
    fn fill(&mut self, byte: u8, count: usize) {
        if count == 0 {
            return;
        }
        let room = self.buf.get_mut(self.len..).unwrap_or(&mut []);
        let count = if count > room.len() {
            self.cut = true;
            room.len()
        } else {
            count
        };
        for to in room.iter_mut().take(count) {
            *to = byte;
        }
        self.len += count;
    }

    /// Writes the last `count` digits of a number, zeros in front if it has fewer.
    #[inline]
    fn number(&mut self, digits: &Digits, count: usize) {
        let room = self.buf.get_mut(self.len..).unwrap_or(&mut []);
        // Most have eight at most; what is too much is written over later.
        if let (1..=8, Some(to)) = (count, room.first_chunk_mut()) {
            *to = (digits.eights[2] >> (8 * (8 - count))).to_le_bytes();
            self.len += count;
            return;
        }
        // More than there are: they are zeros.
        let zeros = count.saturating_sub(8 * digits.eights.len());
        self.fill(b'0', zeros);
        let all = digits.eights.map(u64::to_le_bytes);
        let all = all.as_flattened();
        self.text(all.get(all.len() + zeros - count..).unwrap_or(all));
    }

    /// Writes `word` as `0x` and eight digits.
    pub fn word(&mut self, word: u32) {
        self.text(b"0x");
        self.digits(word);
    }

    /// Writes `word` as eight hexadecimal digits.
    pub fn digits(&mut self, word: u32) {
        self.number(&Digits::hex(u64::from(word), b'a'), 8);
    }
}

/// The eight bytes at `at`, if there are so many.
#[inline(always)]
fn chunk(bytes: &[u8], at: usize) -> Option<&[u8; 8]> {
    bytes.get(at..)?.first_chunk()
}

/// As [`chunk`], to write to.
#[inline(always)]
fn chunk_mut(bytes: &mut [u8], at: usize) -> Option<&mut [u8; 8]> {
    bytes.get_mut(at..)?.first_chunk_mut()
}

#[inline(always)]
fn printable(byte: u8) -> u8 {
    if matches!(byte, b' '..=b'~') {
        byte
    } else {
        b'.'
    }
}

/// A byte in each byte of a word.
const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// The highest bit of each byte of `word` that is `byte`; above the lowest such byte also of others.
#[inline(always)]
const fn marks(word: u64, byte: u8) -> u64 {
    let zero = word ^ each(byte);
    // A byte that is 0 borrows from its highest bit, and perhaps from the bytes above.
    zero.wrapping_sub(each(1)) & !zero & each(0x80)
}

/// The number of the lowest byte of `word` that is not printable, or a `%`; 8 if there is none.
#[inline(always)]
const fn first_special(word: u64) -> usize {
    let control_or_high = (word.wrapping_sub(each(b' ')) | word) & each(0x80);
    let special = control_or_high | marks(word, 0x7f) | marks(word, b'%');
    (special.trailing_zeros() / 8) as usize
}

/// What follows the first `%` of `text`.
#[inline]
fn behind_percent(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text;
    while let Some((chunk, after)) = rest.split_first_chunk() {
        if marks(u64::from_ne_bytes(*chunk), b'%') != 0 {
            break;
        }
        rest = after;
    }
    let at = rest.iter().position(|byte| *byte == b'%')?;
    rest.get(at + 1..)
}

/// The eight hexadecimal digits of `word`, as they are counted in [`Digits`]; `letter` is that of ten.
#[inline]
const fn hex(word: u32, letter: u8) -> u64 {
    // Each digit gets a byte of its own.
    let mut digits = word as u64;
    digits = (digits | digits << 16) & 0x0000_ffff_0000_ffff;
    digits = (digits | digits << 8) & 0x00ff_00ff_00ff_00ff;
    digits = (digits | digits << 4) & each(0x0f);
    // 1 where it is above nine.
    let letters = (digits + each(6)) >> 4 & each(1);
    (digits + each(b'0') + letters * (letter - b'0' - 10) as u64).swap_bytes()
}

/// The last eight decimal digits of `value`, the first one in the lowest byte, as numbers.
#[inline]
const fn decimal(value: u64) -> u64 {
    let value = value % 100_000_000;
    // Two numbers below 10,000, then four below 100, then eight below 10, each in a part of its own
    // with the first in the lowest. The products are the quotients, for numbers as small as these.
    let mut parts = (value / 10_000) | ((value % 10_000) << 32);
    let tens = ((parts * 5243) >> 19) & 0x7f_0000_007f;
    parts = tens | ((parts - tens * 100) << 16);
    let tens = ((parts * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | ((parts - tens * 10) << 8)
}

/// The digits of a number.
struct Digits {
    /// All of them, zeros in front, as characters: the first one of each eight is in the lowest byte.
    eights: [u64; 3],
    /// How many there are without zeros in front: those of 0 are none.
    len: usize,
}

impl Digits {
    #[inline(always)]
    fn hex(value: u64, letter: u8) -> Self {
        let bits = (u64::BITS - value.leading_zeros()) as usize;
        Self {
            eights: [
                each(b'0'),
                hex((value >> 32) as u32, letter),
                hex(value as u32, letter),
            ],
            len: bits.div_ceil(4),
        }
    }

    #[inline(always)]
    fn decimal(value: u64) -> Self {
        const EIGHT: u64 = 100_000_000;
        let mut eights = [0, 0, decimal(value)];
        if value >= EIGHT {
            eights[1] = decimal(value / EIGHT);
        }
        if value >= EIGHT * EIGHT {
            eights[0] = decimal(value / EIGHT / EIGHT);
        }
        Self::of(eights)
    }

    fn octal(value: u64) -> Self {
        let mut eights = [0; 3];
        for (i, eight) in eights.iter_mut().rev().enumerate() {
            for digit in 0..8 {
                // The last one is in the highest byte.
                let shift = 24 * i as u32 + 3 * digit;
                let octal = value.checked_shr(shift).unwrap_or(0) & 7;
                *eight |= octal << (56 - 8 * digit);
            }
        }
        Self::of(eights)
    }

    /// Digits that are numbers.
    #[inline(always)]
    fn of(eights: [u64; 3]) -> Self {
        // Leading zeros are in the lowest bytes of the first.
        let zeros = |eight: u64| eight.trailing_zeros() as usize / 8;
        let len = match eights {
            [0, 0, last] => 8 - zeros(last),
            [0, middle, _] => 16 - zeros(middle),
            [first, ..] => 24 - zeros(first),
        };
        Self {
            eights: eights.map(|eight| eight | each(b'0')),
            len,
        }
    }
}

/// One conversion.
#[derive(Clone, Copy, Debug)]
struct Conversion {
    /// Bits of [`flags`].
    flags: u8,
    width: u8,
    precision: Option<u8>,
    kind: u8,
    /// Words of parameters that it takes.
    words: u8,
    bad: Option<Bad>,
}

/// The flags of a conversion.
mod flags {
    /// `-`
    pub(super) const LEFT: u8 = 1 << 0;
    /// `+`
    pub(super) const PLUS: u8 = 1 << 1;
    /// A space.
    pub(super) const SPACE: u8 = 1 << 2;
    /// `#`
    pub(super) const ALTERNATE: u8 = 1 << 3;
    /// `0`
    pub(super) const ZERO: u8 = 1 << 4;
}

/// The decimal number that `text` begins with, `None` if it is above 255, and what follows.
#[inline]
fn number(text: &[u8]) -> (Option<u8>, &[u8]) {
    let mut value = Some(0_u8);
    let mut rest = text;
    while let Some((digit @ b'0'..=b'9', after)) = rest.split_first() {
        value = value
            .and_then(|value| value.checked_mul(10))
            .and_then(|value| value.checked_add(digit - b'0'));
        rest = after;
    }
    (value, rest)
}

impl Conversion {
    /// Reads what is behind a `%`, and gives what follows.
    #[inline]
    fn parse(text: &[u8]) -> (Self, &[u8]) {
        let mut this = Self {
            flags: 0,
            width: 0,
            precision: None,
            kind: 0,
            words: 0,
            bad: None,
        };
        // Most are these.
        if let Some((kind @ (b'd' | b'u' | b'x'), after)) = text.split_first() {
            this.kind = *kind;
            this.words = 1;
            return (this, after);
        }
        let mut rest = text;
        while let Some((byte, after)) = rest.split_first() {
            this.flags |= match byte {
                b'-' => flags::LEFT,
                b'+' => flags::PLUS,
                b' ' => flags::SPACE,
                b'#' => flags::ALTERNATE,
                b'0' => flags::ZERO,
                _ => break,
            };
            rest = after;
        }
        rest = this.measure(rest, |this, value| this.width = value);
        if let Some((b'.', after)) = rest.split_first() {
            this.precision = Some(0);
            rest = this.measure(after, |this, value| this.precision = Some(value));
        }
        let mut long = 0_u8;
        while let Some((b'l', after)) = rest.split_first() {
            long = long.saturating_add(1);
            rest = after;
        }
        let Some((kind, after)) = rest.split_first() else {
            this.bad = Some(Bad::Cut);
            return (this, rest);
        };
        this.kind = *kind;
        let fits = match kind {
            b'd' | b'i' | b'u' | b'x' | b'X' | b'o' => long <= 2,
            b'c' | b'p' => long == 0,
            _ => false,
        };
        if !fits {
            this.bad = this.bad.or(Some(Bad::Conversion));
        }
        // A conversion that is not known takes a word too, as far as one can guess; `%5%` does not.
        let takes = match (kind, long) {
            (b'%', _) => 0,
            (_, 2) => 2,
            _ => 1,
        };
        this.words = this.words.saturating_add(takes);
        (this, after)
    }

    /// Reads a width or precision.
    #[inline]
    fn measure<'a>(&mut self, text: &'a [u8], set: impl FnOnce(&mut Self, u8)) -> &'a [u8] {
        if let Some((b'*', after)) = text.split_first() {
            self.words = self.words.saturating_add(1);
            self.bad = self.bad.or(Some(Bad::Conversion));
            return after;
        }
        let (value, rest) = number(text);
        match value {
            Some(value) => set(self, value),
            None => self.bad = self.bad.or(Some(Bad::Width)),
        }
        rest
    }

    #[inline]
    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Writes `value`, made of the words that the conversion takes.
    #[inline]
    fn print(&self, value: u64, line: &mut Line<'_>) {
        match self.kind {
            b'c' => {
                let pad = usize::from(self.width).saturating_sub(1);
                line.fill(b' ', if self.has(flags::LEFT) { 0 } else { pad });
                line.text(&[value as u8]);
                line.fill(b' ', if self.has(flags::LEFT) { pad } else { 0 });
            }
            b'p' => self.put(b"0x", &Digits::hex(value, b'a'), 8, line),
            b'x' | b'X' => {
                // The digit of ten is in the same case.
                let letter = self.kind - (b'x' - b'a');
                let prefix = [b'0', self.kind];
                let prefix: &[u8] = if self.has(flags::ALTERNATE) && value != 0 {
                    &prefix
                } else {
                    b""
                };
                self.put(prefix, &Digits::hex(value, letter), self.least(), line);
            }
            b'o' => {
                let digits = Digits::octal(value);
                let mut least = self.least();
                if self.has(flags::ALTERNATE) && least <= digits.len {
                    least = digits.len + 1;
                }
                self.put(b"", &digits, least, line);
            }
            b'd' | b'i' => {
                let signed = if self.words == 2 {
                    value as i64
                } else {
                    i64::from(value as u32 as i32)
                };
                let prefix: &[u8] = match signed {
                    ..0 => b"-",
                    _ if self.has(flags::PLUS) => b"+",
                    _ if self.has(flags::SPACE) => b" ",
                    _ => b"",
                };
                let digits = Digits::decimal(signed.unsigned_abs());
                self.put(prefix, &digits, self.least(), line);
            }
            _ => self.put(b"", &Digits::decimal(value), self.least(), line),
        }
    }

    /// How many digits there are at least: without a precision, zero has one.
    #[inline]
    fn least(&self) -> usize {
        usize::from(self.precision.unwrap_or(1))
    }

    /// Writes a number with `least` digits at least, padded as the conversion says.
    #[inline]
    fn put(&self, prefix: &[u8], digits: &Digits, least: usize, line: &mut Line<'_>) {
        let mut count = digits.len.max(least);
        let (mut before, mut behind) = (0, 0);
        if self.width != 0 {
            let width = usize::from(self.width);
            let pad = width.saturating_sub(prefix.len() + count);
            // A precision switches the flag off; `%p` has none.
            let zeros = self.precision.is_none() || self.kind == b'p';
            if self.has(flags::LEFT) {
                behind = pad;
            } else if self.has(flags::ZERO) && zeros {
                count += pad;
            } else {
                before = pad;
            }
        }
        line.fill(b' ', before);
        if !prefix.is_empty() {
            line.text(prefix);
        }
        line.number(digits, count);
        line.fill(b' ', behind);
    }
}

/// Writes `format`, which is good, with its parameters; one that is missing is 0.
///
/// Line ends at the end of the string are not written.
#[inline]
pub fn format(format: &[u8], words: &[u32], line: &mut Line<'_>) {
    let mut words = words.iter().map(|word| u64::from(*word));
    let mut rest = trimmed(format);
    loop {
        rest = line.literal(rest);
        // What is left begins with a `%`, unless the line is full.
        let after = match rest.split_first() {
            Some((b'%', after)) if !line.cut => after,
            _ => return,
        };
        if let Some((b'%', after)) = after.split_first() {
            line.text(b"%");
            rest = after;
            continue;
        }
        let (conversion, after) = Conversion::parse(after);
        rest = after;
        let mut value = 0;
        for _ in 0..conversion.words.min(2) {
            value = value << 32 | words.next().unwrap_or(0);
        }
        conversion.print(value, line);
    }
}

/// Writes `format` as it is.
pub fn verbatim(format: &[u8], line: &mut Line<'_>) {
    line.text(trimmed(format));
}

/// Without the line ends at its end.
#[inline]
fn trimmed(format: &[u8]) -> &[u8] {
    let mut rest = format;
    while let Some((b'\n' | b'\r', before)) = rest.split_last() {
        rest = before;
    }
    rest
}

#[mlx5_rs_macros::suite(mlx5_rs_tracer_format)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (text, words, want) in [
            (&b"plain"[..], &[][..], "plain"),
            (b"", &[], ""),
            (b"100%%", &[], "100%"),
            (b"%d %i", &[0xffff_ffff, 5], "-1 5"),
            (b"%u", &[0xffff_ffff], "4294967295"),
            (
                b"%x %X %#x %#X",
                &[0xab, 0xab, 0xab, 0xab],
                "ab AB 0xab 0XAB",
            ),
            (b"%x %#x %u %d %o %#o", &[0; 6], "0 0 0 0 0 0"),
            (
                b"%08x|%8x|%-8x|",
                &[0xab, 0xab, 0xab],
                "000000ab|      ab|ab      |",
            ),
            (b"%+d % d %+d", &[1, 2, 0xffff_fffd], "+1  2 -3"),
            (b"%05d|%5d|%-5d|", &[0xffff_fffe; 3], "-0002|   -2|-2   |"),
            (
                b"%.4x %.0u|%8.4d|%08.4d|",
                &[1, 0, 5, 5],
                "0001 |    0005|    0005|",
            ),
            (b"%#o %#.4o", &[8, 8], "010 0010"),
            (b"%#010x", &[0xab], "0x000000ab"),
            // One word each.
            (
                b"%lx %ld %lu",
                &[0xdead_beef, 0xffff_ffff, 7],
                "deadbeef -1 7",
            ),
            // Two words each, high one first; upstream's %x%x prints 12 for the first.
            (b"%llx", &[1, 2], "100000002"),
            (b"%016llx", &[0x1234, 0x5678], "0000123400005678"),
            (b"%lld", &[0xffff_ffff, 0xffff_ffff], "-1"),
            (b"%llu", &[0xffff_ffff, 0xffff_ffff], "18446744073709551615"),
            (
                b"%llo",
                &[0xffff_ffff, 0xffff_ffff],
                "1777777777777777777777",
            ),
            (b"%lld", &[0x8000_0000, 0], "-9223372036854775808"),
            (b"%x %llx %x", &[1, 2, 3, 4], "1 200000003 4"),
            (
                b"%p|%12p|%-12p|",
                &[0x12, 0, 1],
                "0x00000012|  0x00000000|0x00000001  |",
            ),
            (
                b"%c%c%c|%3c|%-3c|",
                &[0x41, 0x0a, 0x142, 0x43, 0x44],
                "A.B|  C|D  |",
            ),
            (b"a\tb\n", &[], "a.b"),
            (b"end\r\n\n", &[], "end"),
            // Parameters that did not come.
            (b"%x %x", &[7], "7 0"),
        ] {
            let shape = Shape::of(text);
            assert_eq!(shape.bad, None);
            let mut buf = [0; 64];
            let mut line = Line::new(&mut buf);
            format(text, words, &mut line);
            assert_eq!(line.as_str(), want);
            assert!(!line.is_cut());
        }
    }

    #[test]
    fn words_are_counted() {
        for (text, words, bad) in [
            (&b"%%"[..], 0, None),
            (b"%x%x%x%x%x%x%x", 7, None),
            (b"%x%llx%llx%llx", 7, None),
            (b"%016llx%lx%%", 3, None),
            // Field case C32: strings, pointers to write to, stars, nine parameters, a lone percent.
            (b"%s", 1, Some(Bad::Conversion)),
            (b"%x %n", 2, Some(Bad::Conversion)),
            (b"%*d", 2, Some(Bad::Conversion)),
            (b"%.*d", 2, Some(Bad::Conversion)),
            (b"%hx", 1, Some(Bad::Conversion)),
            (b"%llc", 2, Some(Bad::Conversion)),
            (b"%lp", 1, Some(Bad::Conversion)),
            (b"%lllx", 1, Some(Bad::Conversion)),
            (b"%5%", 0, Some(Bad::Conversion)),
            (b"%\xff", 1, Some(Bad::Conversion)),
            (b"%x%x%x%x%x%x%x%x%x", 7, Some(Bad::Words)),
            (b"%llx%llx%llx%llx", 7, Some(Bad::Words)),
            (b"%", 0, Some(Bad::Cut)),
            (b"50%% %", 0, Some(Bad::Cut)),
            (b"%08ll", 0, Some(Bad::Cut)),
            (b"%256x", 1, Some(Bad::Width)),
            (b"%99999999999999999999x", 1, Some(Bad::Width)),
            (b"%.256x", 1, Some(Bad::Width)),
        ] {
            assert_eq!(Shape::of(text), Shape { words, bad });
        }
    }

    #[test]
    fn output_is_bounded() {
        let mut buf = [0xee; 10];
        let mut line = Line::new(&mut buf[..8]);
        format(b"%255d%-255d", &[1, 2], &mut line);
        assert_eq!(line.as_str(), "        ");
        assert!(line.is_cut());
        line.clear();
        format(b"1234567%x", &[0xabc], &mut line);
        assert_eq!(line.as_str(), "1234567a");
        assert!(line.is_cut());
        assert_eq!(buf[8..], [0xee, 0xee]);
        let mut line = Line::new(&mut []);
        line.word(5);
        assert_eq!(line.as_str(), "");
        assert!(line.is_cut());
    }

    #[test]
    fn too_long_is_bad() {
        let long = [b'a'; MAX_FORMAT + 1];
        assert_eq!(Shape::of(&long).bad, Some(Bad::Unterminated));
        assert_eq!(Shape::of(&long[1..]).bad, None);
    }
}
