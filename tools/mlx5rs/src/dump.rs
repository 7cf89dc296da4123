// SPDX-License-Identifier: GPL-2.0

//! Bytes from what people have: files as they are, hex, and the dumps of drivers.
//!
//! Rows of a dump are known by their end, since what stands before depends on the log:
//!
//! - `00000010: 00 00 ..`, one byte a word: the kernel's `print_hex_dump` (mlx5's `WQE DUMP`). `xxd`'s
//!   form, with two bytes a word, and the text behind two spaces, is the same;
//! - `00000010  00 00 ..  |text|`: `hexdump -C`;
//! - `0000000a 00004202 08000000 00000000`: four words as numbers, `dump_wqe` of mlx5_ib and of rdma-core;
//! - any other line of hex digits: the bytes, in order.

use std::fmt;
use std::ops::Range;

/// Bytes that belong together: one WQE, or several in a ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Where each row begins: its first byte, and its line, from 1 on. None in a binary file.
    rows: Vec<(usize, usize)>,
}

impl Run {
    /// A file as it is.
    pub fn binary(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            rows: Vec::new(),
        }
    }

    /// The line of byte `at`.
    pub fn line(&self, at: usize) -> Option<usize> {
        let behind = self.rows.partition_point(|(first, _)| *first <= at);
        Some(self.rows.get(behind.checked_sub(1)?)?.1)
    }

    /// Where the WQEs are: each begins at a basic block, and is as long as it says, as far as there are
    /// bytes.
    pub fn wqes(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let left = self.bytes.get(at..).filter(|left| !left.is_empty())?;
            // The length in units of 16 bytes, and nothing beside the control segment if it is 0.
            let units = left
                .get(7)
                .map_or(1, |byte| usize::from(byte & 0x3f).max(1));
            let start = at;
            at += (16 * units).next_multiple_of(mlx5_pure::wqe::BLOCK);
            Some(start..(start + 16 * units).min(self.bytes.len()))
        })
    }
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Its number, from 1 on; 0 is the whole.
    line: usize,
    value: String,
    expected: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line != 0 {
            write!(f, "line {}: ", self.line)?;
        }
        write!(f, "{}: expected {}", self.value, self.expected)
    }
}

impl std::error::Error for Error {}

/// No bytes at all.
pub fn nothing(value: impl Into<String>) -> Error {
    Error {
        line: 0,
        value: value.into(),
        expected: "a WQE: its bytes, hex digits, or the lines of a dump".into(),
    }
}

/// Whether these bytes are text rather than a WQE.
pub fn is_text(bytes: &[u8]) -> bool {
    let printable = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | 0x1b | b' '..=b'~');
    match std::str::from_utf8(bytes) {
        // Nobody has a WQE of letters.
        Ok(text) => text.chars().all(|c| !c.is_ascii() || printable(&(c as u8))),
        Err(_) => bytes.iter().all(printable),
    }
}

/// What was read from text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// The bytes.
    pub runs: Vec<Run>,
    /// Lines that are no part of a dump.
    pub skipped: usize,
}

/// A line.
enum Line {
    /// Bytes, with their offset where it says one.
    Row { offset: Option<u64>, bytes: Vec<u8> },
    /// What follows is another dump.
    Heading,
    /// It belongs to a dump, and says nothing.
    Inside,
    /// Something else.
    Other,
}

/// Reads text.
///
/// # Errors
///
/// A line that should be one of hex digits is not, or a row is missing.
pub fn parse(text: &str) -> Result<Text, Error> {
    let mut parser = Parser::default();
    for (index, line) in text.lines().enumerate() {
        parser.line(index + 1, line.trim())?;
    }
    parser.end();
    Ok(parser.text)
}

#[derive(Default)]
struct Parser {
    text: Text,
    run: Run,
    /// Offset of the run's first row, if its rows have offsets.
    base: Option<u64>,
}

impl Parser {
    fn end(&mut self) {
        self.base = None;
        if !self.run.bytes.is_empty() {
            self.text.runs.push(std::mem::take(&mut self.run));
        }
    }

    fn line(&mut self, number: usize, line: &str) -> Result<(), Error> {
        if line.is_empty() {
            self.end();
            return Ok(());
        }
        match read(line, self.base.is_some()).map_err(|(value, expected)| Error {
            line: number,
            value,
            expected,
        })? {
            Line::Row { offset, bytes } => self.row(number, offset, &bytes)?,
            Line::Heading => self.end(),
            Line::Inside => {}
            Line::Other => self.text.skipped += 1,
        }
        Ok(())
    }

    fn row(&mut self, number: usize, offset: Option<u64>, bytes: &[u8]) -> Result<(), Error> {
        let len = self.run.bytes.len() as u64;
        match (offset, self.base) {
            (Some(offset), Some(base)) if offset == base.wrapping_add(len) => {}
            (Some(offset), Some(base)) if offset != 0 => {
                return Err(Error {
                    line: number,
                    value: format!("offset {offset:#x}"),
                    expected: format!(
                        "{:#x}, as {len} bytes come before it, or 0 for another dump",
                        base.wrapping_add(len)
                    ),
                });
            }
            (None, None) => {}
            (offset, _) => {
                self.end();
                self.base = offset;
            }
        }
        self.run.rows.push((self.run.bytes.len(), number));
        self.run.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

fn is_hex(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The bytes of an even number of hex digits.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    if !is_hex(digits) || digits.len() % 2 != 0 {
        return None;
    }
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok())
        .collect()
}

/// A row whose offset stands before a colon: at most 16 bytes, in words of the same length.
fn after_colon(line: &str) -> Option<Line> {
    for (colon, _) in line.rmatch_indices(": ") {
        let before = line.get(..colon)?;
        let offset = before.rsplit(char::is_whitespace).next()?;
        if !is_hex(offset) || !(4..=16).contains(&offset.len()) {
            continue;
        }
        // xxd separates its text by two spaces.
        let row = line.get(colon + 2..)?.trim_start();
        let digits = row.split("  ").next()?;
        let mut bytes = Vec::new();
        let mut size = None;
        for word in digits.split_whitespace() {
            // The last word may be a part.
            if *size.get_or_insert(word.len()) < word.len() {
                return None;
            }
            bytes.extend(bytes_of(word)?);
        }
        let offset = u64::from_str_radix(offset, 16).ok()?;
        return (1..=16).contains(&bytes.len()).then_some(Line::Row {
            offset: Some(offset),
            bytes,
        });
    }
    None
}

/// A row of `hexdump -C`.
fn with_text(line: &str) -> Option<Line> {
    let (digits, text) = line.split_once("  |")?;
    text.strip_suffix('|')?;
    let mut words = digits.split_whitespace();
    let offset = words.next().filter(|word| word.len() >= 7)?;
    let bytes: Option<Vec<u8>> = words
        .map(|word| bytes_of(word).and_then(|byte| byte.first().copied()))
        .collect();
    Some(Line::Row {
        offset: Some(u64::from_str_radix(offset, 16).ok()?),
        bytes: bytes?,
    })
}

/// A row of four numbers of 32 bits, whatever stands before them.
fn four_words(line: &str) -> Option<Line> {
    let mut words = line.split_whitespace().rev();
    let mut last = [""; 4];
    for place in last.iter_mut().rev() {
        *place = words.next().filter(|word| word.len() == 8)?;
    }
    // More digits before them are another form.
    if words.next().is_some_and(is_hex) {
        return None;
    }
    Some(Line::Row {
        offset: None,
        bytes: bytes_of(&last.concat())?,
    })
}

/// A line of hex digits alone.
fn plain(line: &str) -> Result<Line, (String, String)> {
    let mut bytes = Vec::new();
    let separators = |c: char| c.is_whitespace() || matches!(c, ',' | ';' | ':' | '-' | '_');
    let words = line.split(separators).filter(|word| !word.is_empty());
    for (index, word) in words.enumerate() {
        let digits = word
            .strip_prefix("0x")
            .or_else(|| word.strip_prefix("0X"))
            .unwrap_or(word);
        match bytes_of(digits) {
            Some(some) => bytes.extend(some),
            // It begins like words, not like digits: a line of a log.
            None if index == 0 && !is_hex(digits) && !word.starts_with("0x") => {
                return Ok(Line::Other)
            }
            None => {
                return Err((
                    format!("`{}`", shown(word)),
                    "an even number of hex digits".into(),
                ))
            }
        }
    }
    Ok(Line::Row {
        offset: None,
        bytes,
    })
}

/// The start of a word, for people.
fn shown(word: &str) -> String {
    let mut chars = word.chars();
    let mut start: String = chars
        .by_ref()
        .take(40)
        .flat_map(char::escape_default)
        .collect();
    if chars.next().is_some() {
        start += "...";
    }
    start
}

/// Reads a line; `offsets` says whether the rows before it have some.
fn read(line: &str, offsets: bool) -> Result<Line, (String, String)> {
    if line.starts_with('#') {
        return Ok(Line::Inside);
    }
    if line == "*" {
        return Err((
            "`*`".into(),
            "all rows: `hexdump -v` or `xxd` without -a".into(),
        ));
    }
    // Completions are dumped next to WQEs.
    if line.contains("cqe_dump: ") {
        return Ok(Line::Other);
    }
    if let Some(row) = after_colon(line)
        .or_else(|| with_text(line))
        .or_else(|| four_words(line))
    {
        return Ok(row);
    }
    // mlx5_core; mlx5_ib; rdma-core.
    if ["WQE DUMP:", "dump WQE index", "dump wqe at"]
        .iter()
        .any(|heading| line.contains(heading))
    {
        return Ok(Line::Heading);
    }
    // mlx5_ib, before each basic block.
    if line.contains("WQBB at ") {
        return Ok(Line::Inside);
    }
    // The end of `hexdump -C` is the length of all.
    if offsets && line.len() >= 7 && is_hex(line) {
        return Ok(Line::Inside);
    }
    plain(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; 32] = [
        0, 0, 0, 0x0a, 0, 0, 0x42, 2, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0x66, 0, 0,
        0, 0, 0, 0, 0x20, 0,
    ];

    fn runs(text: &str) -> Vec<Vec<u8>> {
        let text = parse(text).unwrap();
        text.runs.into_iter().map(|run| run.bytes).collect()
    }

    #[test]
    fn forms() {
        for text in [
            // print_hex_dump, bare and in a log.
            "00000000: 00 00 00 0a 00 00 42 02 00 00 00 08 00 00 00 00\n\
             00000010: 00 00 10 00 00 00 00 66 00 00 00 00 00 00 20 00\n",
            "[   12.345678] mlx5_core 0000:03:00.0: WQE DUMP: WQ size 64 WQ cur size 1, WQE index 0x0, len: 64\n\
             [   12.345679] 00000000: 00 00 00 0a 00 00 42 02 00 00 00 08 00 00 00 00\n\
             [   12.345680] 00000010: 00 00 10 00 00 00 00 66 00 00 00 00 00 00 20 00\n",
            "Nov 30 07:02:25 host kernel: WQE DUMP: 00000000: 00 00 00 0a 00 00 42 02 00 00 00 08 00 00 00 00\n\
             Nov 30 07:02:25 host kernel: WQE DUMP: 00000010: 00 00 10 00 00 00 00 66 00 00 00 00 00 00 20 00\n",
            // An address instead of an offset.
            "ffff888012340040: 00 00 00 0a 00 00 42 02 00 00 00 08 00 00 00 00\n\
             ffff888012340050: 00 00 10 00 00 00 00 66 00 00 00 00 00 00 20 00\n",
            // dump_wqe of mlx5_ib.
            "[  7.1] mlx5_ib:dump_wqe:710: dump WQE index 0:\n\
             [  7.1] mlx5_ib:dump_wqe:714: WQBB at 00000000abcdef01:\n\
             [  7.1] mlx5_ib:dump_wqe:718: 0000000a 00004202 00000008 00000000\n\
             [  7.1] mlx5_ib:dump_wqe:718: 00001000 00000066 00000000 00002000\n",
            // dump_wqe of rdma-core.
            "dump wqe at 0x7f0000001000\n\
             0000000a 00004202 00000008 00000000\n\
             00001000 00000066 00000000 00002000\n",
            // xxd, hexdump -C.
            "00000000: 0000 000a 0000 4202 0000 0008 0000 0000  ......B.........\n\
             00000010: 0000 1000 0000 0066 0000 0000 0000 2000  .......f...... .\n",
            "00000000  00 00 00 0a 00 00 42 02  00 00 00 08 00 00 00 00  |......B.........|\n\
             00000010  00 00 10 00 00 00 00 66  00 00 00 00 00 00 20 00  |.......f...... .|\n\
             00000020\n",
            // Digits.
            "# RC send\n0000000a000042020000000800000000 0000100000000066\n0000000000002000",
            "0x0000000a, 0x00004202, 0x00000008, 0x00000000, 0x00001000, 0x00000066, 0x0, 0x00002000"
                .replace("0x0,", "0x00000000,")
                .as_str(),
            // One number a line.
            "0000000a\n00004202\n00000008\n00000000\n00001000\n00000066\n00000000\n00002000\n",
            "00:00:00:0a:00:00:42:02:00:00:00:08:00:00:00:00\n\
             00:00:10:00:00:00:00:66:00:00:00:00:00:00:20:00",
        ] {
            assert_eq!(runs(text), [BYTES], "{text}");
        }
    }

    #[test]
    fn several() {
        let one = "0000000a 00004201 00000008 00000000\n";
        assert_eq!(runs(&format!("{one}\n{one}")), [&BYTES_ONE, &BYTES_ONE]);
        let heading = "dump wqe at 0x1\n";
        assert_eq!(
            runs(&[heading, one, heading, one].concat()),
            [&BYTES_ONE, &BYTES_ONE]
        );
        let row = "00000000: 00 00 00 0a 00 00 42 01 00 00 00 08 00 00 00 00\n";
        assert_eq!(runs(&[row, row].concat()), [&BYTES_ONE, &BYTES_ONE]);
        assert_eq!(runs(&[one, row].concat()), [&BYTES_ONE, &BYTES_ONE]);
    }

    const BYTES_ONE: [u8; 16] = [0, 0, 0, 0x0a, 0, 0, 0x42, 1, 0, 0, 0, 8, 0, 0, 0, 0];

    #[test]
    fn what_is_no_dump_is_skipped() {
        let log = "[ 1.0] usb 1-1: new device\n\
                   [ 1.1] mlx5_0: cqe_dump: 00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n\
                   0000000a 00004201 00000008 00000000\n\
                   the end\n";
        let text = parse(log).unwrap();
        assert_eq!(text.skipped, 3);
        assert_eq!(text.runs[0].bytes, BYTES_ONE);
        assert_eq!(text.runs[0].line(15), Some(3));
    }

    #[test]
    fn errors_say_where_and_what() {
        for (text, error) in [
            (
                "00 0\n",
                "line 1: `0`: expected an even number of hex digits",
            ),
            (
                "0000\n00 0g\n",
                "line 2: `0g`: expected an even number of hex digits",
            ),
            (
                "00000000: 00 00 00 0a 00 00 42 01 00 00 00 08 00 00 00 00\n\
                 00000020: 00 00 00 0a 00 00 42 01 00 00 00 08 00 00 00 00\n",
                "line 2: offset 0x20: expected 0x10, as 16 bytes come before it, or 0 for another dump",
            ),
            (
                "00000000  00 00 00 0a 00 00 42 01  00 00 00 08 00 00 00 00  |......B.........|\n*\n",
                "line 2: `*`: expected all rows: `hexdump -v` or `xxd` without -a",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn wqes_begin_at_blocks() {
        let mut bytes = vec![0; 64 * 4 + 20];
        bytes[7] = 2;
        bytes[64 + 7] = 5;
        bytes[192 + 7] = 0;
        bytes[256 + 7] = 3;
        let run = Run::binary(bytes);
        let wqes: Vec<_> = run.wqes().collect();
        assert_eq!(wqes, [0..32, 64..144, 192..208, 256..276]);
        let whole = 0..5;
        assert_eq!(Run::binary(vec![1; 5]).wqes().collect::<Vec<_>>(), [whole]);
        assert_eq!(run.line(0), None);
    }

    #[test]
    fn text_or_not() {
        assert!(is_text(b"00 01\r\n\t\x1b[0m"));
        assert!(is_text("Gr\u{fc}n".as_bytes()));
        assert!(!is_text(&BYTES));
        assert!(!is_text(b"\xff\xfe"));
    }

    proptest::proptest! {
        #[test]
        fn any_text(text in "[ -~\n]{0,200}") {
            let _ = parse(&text);
        }

        #[test]
        fn any_hexlike_text(text in "[0-9a-f :x\n|*]{0,200}") {
            let _ = parse(&text);
        }

        #[test]
        fn any_bytes(bytes: Vec<u8>) {
            let run = Run::binary(bytes);
            let mut at = 0;
            for wqe in run.wqes() {
                proptest::prop_assert!(wqe.start >= at && wqe.end > wqe.start);
                at = wqe.end;
            }
        }
    }
}
