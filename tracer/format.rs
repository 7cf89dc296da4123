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
        // Each piece is at least one byte long.
        for piece in pieces(format) {
            if let Piece::Conversion(conversion) = piece {
                words += usize::from(conversion.words);
                bad = bad.or(conversion.bad);
            }
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
        let mut written = 0;
        for (to, from) in room.iter_mut().zip(text) {
            *to = printable(*from);
            written += 1;
        }
        self.len += written;
    }

    /// Writes `byte` `count` times.
    #[inline]
    fn fill(&mut self, byte: u8, count: usize) {
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

    /// Writes `word` as `0x` and eight digits.
    pub fn word(&mut self, word: u32) {
        self.text(b"0x");
        self.digits(word);
    }

    /// Writes `word` as eight hexadecimal digits.
    pub fn digits(&mut self, word: u32) {
        let mut digits = Digits::new();
        digits.power_of_two(u64::from(word), 4, LOWER);
        digits.pad(8);
        self.text(digits.as_bytes());
    }
}

#[inline(always)]
fn printable(byte: u8) -> u8 {
    if matches!(byte, b' '..=b'~') {
        byte
    } else {
        b'.'
    }
}

const LOWER: &[u8; 16] = b"0123456789abcdef";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";

/// The digits of a number, from the last one on.
struct Digits {
    bytes: [u8; Self::ROOM],
    first: usize,
}

impl Digits {
    /// Enough for 64 bits in octal.
    const ROOM: usize = 22;

    #[inline]
    fn new() -> Self {
        Self {
            bytes: [b'0'; Self::ROOM],
            first: Self::ROOM,
        }
    }

    #[inline]
    fn push(&mut self, digit: u8) {
        self.first = self.first.saturating_sub(1);
        if let Some(to) = self.bytes.get_mut(self.first) {
            *to = digit;
        }
    }

    /// The digits of `value` in base `1 << bits`; none for 0.
    #[inline]
    fn power_of_two(&mut self, mut value: u64, bits: u32, names: &[u8; 16]) {
        while value != 0 {
            let digit = (value & ((1 << bits) - 1)) as usize;
            // `digit` is below 16.
            self.push(names.get(digit).copied().unwrap_or(b'?'));
            value >>= bits;
        }
    }

    /// The decimal digits of `value`; none for 0.
    #[inline]
    fn decimal(&mut self, mut value: u64) {
        while value > u64::from(u32::MAX) {
            self.push(b'0' + (value % 10) as u8);
            value /= 10;
        }
        // Divisions of 32 bits are several times as fast.
        let mut value = value as u32;
        while value != 0 {
            self.push(b'0' + (value % 10) as u8);
            value /= 10;
        }
    }

    /// Puts zeros in front until there are `count` digits, as far as there is room for them.
    #[inline]
    fn pad(&mut self, count: usize) {
        while self.as_bytes().len() < count && self.first > 0 {
            self.push(b'0');
        }
    }

    #[inline]
    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(self.first..).unwrap_or(&[])
    }
}

/// One conversion.
#[derive(Clone, Copy, Debug)]
struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: u8,
    precision: Option<u8>,
    kind: u8,
    /// Words of parameters that it takes.
    words: u8,
    bad: Option<Bad>,
}

/// A part of a format string.
enum Piece<'a> {
    Text(&'a [u8]),
    Conversion(Conversion),
}

/// Splits a format string; every piece stands for one byte at least.
struct Pieces<'a> {
    rest: &'a [u8],
}

fn pieces(format: &[u8]) -> Pieces<'_> {
    Pieces { rest: format }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    #[inline]
    fn next(&mut self) -> Option<Piece<'a>> {
        let (first, rest) = self.rest.split_first()?;
        if *first != b'%' {
            let len = self.rest.iter().position(|byte| *byte == b'%');
            let (text, rest) = self.rest.split_at(len.unwrap_or(self.rest.len()));
            self.rest = rest;
            return Some(Piece::Text(text));
        }
        if let Some((b'%', after)) = rest.split_first() {
            self.rest = after;
            return Some(Piece::Text(b"%"));
        }
        let (conversion, rest) = Conversion::parse(rest);
        self.rest = rest;
        Some(Piece::Conversion(conversion))
    }
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
            left: false,
            plus: false,
            space: false,
            alternate: false,
            zero: false,
            width: 0,
            precision: None,
            kind: 0,
            words: 0,
            bad: None,
        };
        let mut rest = text;
        while let Some((byte, after)) = rest.split_first() {
            match byte {
                b'-' => this.left = true,
                b'+' => this.plus = true,
                b' ' => this.space = true,
                b'#' => this.alternate = true,
                b'0' => this.zero = true,
                _ => break,
            }
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

    /// Writes `value`, made of the words that the conversion takes.
    #[inline]
    fn print(&self, value: u64, line: &mut Line<'_>) {
        let mut digits = Digits::new();
        let mut prefix: &[u8] = b"";
        match self.kind {
            b'c' => {
                let pad = usize::from(self.width).saturating_sub(1);
                if !self.left {
                    line.fill(b' ', pad);
                }
                line.text(&[value as u8]);
                if self.left {
                    line.fill(b' ', pad);
                }
                return;
            }
            b'p' => {
                digits.power_of_two(value, 4, LOWER);
                digits.pad(8);
                prefix = b"0x";
            }
            b'x' | b'X' => {
                let lower = self.kind == b'x';
                digits.power_of_two(value, 4, if lower { LOWER } else { UPPER });
                if self.alternate && value != 0 {
                    prefix = if lower { b"0x" } else { b"0X" };
                }
            }
            b'o' => {
                digits.power_of_two(value, 3, LOWER);
            }
            b'd' | b'i' => {
                let signed = if self.words == 2 {
                    value as i64
                } else {
                    i64::from(value as u32 as i32)
                };
                digits.decimal(signed.unsigned_abs());
                prefix = match (signed < 0, self.plus, self.space) {
                    (true, _, _) => b"-",
                    (false, true, _) => b"+",
                    (false, false, true) => b" ",
                    (false, false, false) => b"",
                };
            }
            _ => digits.decimal(value),
        }
        self.put(prefix, &digits, line);
    }

    /// Writes a number, padded as the conversion says.
    #[inline]
    fn put(&self, prefix: &[u8], digits: &Digits, line: &mut Line<'_>) {
        let digits = digits.as_bytes();
        // `%p` has no precision.
        let precision = self.precision.filter(|_| self.kind != b'p');
        let width = usize::from(self.width);
        // Without a precision, zero has one digit.
        let mut zeros = usize::from(precision.unwrap_or(1)).saturating_sub(digits.len());
        if self.kind == b'o' && self.alternate && zeros == 0 && digits.first() != Some(&b'0') {
            zeros = 1;
        }
        let mut len = prefix.len() + zeros + digits.len();
        if self.zero && !self.left && precision.is_none() {
            zeros += width.saturating_sub(len);
            len = prefix.len() + zeros + digits.len();
        }
        let spaces = width.saturating_sub(len);
        if !self.left {
            line.fill(b' ', spaces);
        }
        line.text(prefix);
        line.fill(b'0', zeros);
        line.text(digits);
        if self.left {
            line.fill(b' ', spaces);
        }
    }
}

/// Writes `format`, which is good, with its parameters; one that is missing is 0.
///
/// Line ends at the end of the string are not written.
#[inline]
pub fn format(format: &[u8], words: &[u32], line: &mut Line<'_>) {
    let mut words = words.iter().map(|word| u64::from(*word));
    for piece in pieces(trimmed(format)) {
        match piece {
            Piece::Text(text) => line.text(text),
            Piece::Conversion(conversion) => {
                let mut value = 0;
                for _ in 0..conversion.words.min(2) {
                    value = value << 32 | words.next().unwrap_or(0);
                }
                conversion.print(value, line);
            }
        }
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
