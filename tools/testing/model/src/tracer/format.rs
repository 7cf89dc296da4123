// SPDX-License-Identifier: GPL-2.0

//! Format strings of the model's firmware, and what they say with given parameters.
//!
//! Strings are made from pieces, and so is the text that a reader must show: nothing here parses
//! a format. Parameters are words of 32 bits; `ll` conversions take two, the high one first.

/// A conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convert {
    /// Unsigned, after a `#`: how messages give the number of their trace.
    Number,
    /// Signed.
    Signed,
    /// Signed, at least this wide, blanks before it.
    Wide(usize),
    /// Signed, at least this wide, blanks after it.
    Left(usize),
    /// Signed with its sign.
    Plus,
    /// Signed, a blank in place of a plus.
    Blank,
    /// Unsigned.
    Unsigned,
    /// Hexadecimal, at least so many digits.
    Hex(usize),
    /// Hexadecimal in capitals, at least so many digits.
    Capital(usize),
    /// Hexadecimal with `0x`; not for 0, which C and the kernel show differently.
    Prefixed,
    /// Octal.
    Octal,
    /// A character.
    Char,
    /// Two words, hexadecimal, at least so many digits.
    LongHex(usize),
    /// Two words, signed.
    LongSigned,
    /// Two words, unsigned.
    LongUnsigned,
    /// A pointer: how it looks is the reader's choice.
    Pointer,
}

/// Part of a format string.
#[derive(Clone, Copy, Debug)]
pub enum Piece {
    /// Text without `%`.
    Text(&'static str),
    /// `%%`.
    Percent,
    /// A conversion as it is written, and what it is.
    Value(&'static str, Convert),
}

/// A format string.
pub type Format = &'static [Piece];

impl Convert {
    /// Words that it takes.
    pub fn words(self) -> usize {
        match self {
            Self::LongHex(_) | Self::LongSigned | Self::LongUnsigned => 2,
            _ => 1,
        }
    }

    /// What it makes of its words; `None` if that is the reader's choice.
    fn render(self, words: &[u32]) -> Option<String> {
        let word = words.first().copied()?;
        let signed = word as i32;
        let long = || Some(u64::from(word) << 32 | u64::from(*words.get(1)?));
        Some(match self {
            Self::Number => format!("#{word}"),
            Self::Signed => format!("{signed}"),
            Self::Wide(width) => format!("{signed:>width$}"),
            Self::Left(width) => format!("{signed:<width$}"),
            Self::Plus => format!("{signed:+}"),
            Self::Blank if signed < 0 => format!("{signed}"),
            Self::Blank => format!(" {signed}"),
            Self::Unsigned => format!("{word}"),
            Self::Hex(digits) => format!("{word:0digits$x}"),
            Self::Capital(digits) => format!("{word:0digits$X}"),
            Self::Prefixed if word == 0 => return None,
            Self::Prefixed => format!("{word:#x}"),
            Self::Octal => format!("{word:o}"),
            Self::Char => char::from(word as u8).to_string(),
            Self::LongHex(digits) => format!("{:0digits$x}", long()?),
            Self::LongSigned => format!("{}", long()? as i64),
            Self::LongUnsigned => format!("{}", long()?),
            Self::Pointer => return None,
        })
    }
}

/// The format as firmware has it, without NUL.
pub fn source(format: Format) -> String {
    let piece = |piece: &Piece| match *piece {
        Piece::Text(text) => text,
        Piece::Percent => "%%",
        Piece::Value(text, _) => text,
    };
    format.iter().map(piece).collect()
}

/// Words that a format takes.
pub fn words(format: Format) -> usize {
    let piece = |piece: &Piece| match *piece {
        Piece::Value(_, convert) => convert.words(),
        _ => 0,
    };
    format.iter().map(piece).sum()
}

/// What a reader must show; `None` if part of it is the reader's choice.
pub fn render(format: Format, mut params: &[u32]) -> Option<String> {
    let mut text = String::new();
    for piece in format {
        match *piece {
            Piece::Text(part) => text.push_str(part),
            Piece::Percent => text.push('%'),
            Piece::Value(_, convert) => {
                let (own, rest) = params.split_at_checked(convert.words())?;
                text.push_str(&convert.render(own)?);
                params = rest;
            }
        }
    }
    Some(text)
}

use Convert::*;
use Piece::Percent;
use Piece::Text;
use Piece::Value;

const N: Piece = Value("#%u", Number);

/// Formats that every reader gets right, mlx5_core's too. The first word is the low half of the
/// trace's number.
pub const COMMON: &[Format] = &[
    &[N],
    &[
        N,
        Text(" cmd 0x"),
        Value("%x", Hex(1)),
        Text(" slot "),
        Value("%d", Signed),
    ],
    &[
        N,
        Text(" health "),
        Value("%08x", Hex(8)),
        Text(" "),
        Value("%08X", Capital(8)),
    ],
    &[
        N,
        Text(" 100"),
        Percent,
        Text(" of "),
        Value("%i", Signed),
        Text(" pages"),
    ],
    &[N, Text(" va 0x"), Value("%llx", LongHex(1))],
    &[
        N,
        Text(" "),
        Value("%5d", Wide(5)),
        Text("|"),
        Value("%c", Char),
        Text("|"),
        Value("%#x", Prefixed),
    ],
    &[
        N,
        Text(" "),
        Value("%x", Hex(1)),
        Text(" "),
        Value("%x", Hex(1)),
        Text(" "),
        Value("%x", Hex(1)),
        Text(" "),
        Value("%x", Hex(1)),
        Text(" "),
        Value("%x", Hex(1)),
        Text(" "),
        Value("%x", Hex(1)),
    ],
    &[
        N,
        Text(" va 0x"),
        Value("%llx", LongHex(1)),
        Text(" len 0x"),
        Value("%llx", LongHex(1)),
        Text(" key 0x"),
        Value("%x", Hex(1)),
    ],
];

/// More formats, as [`COMMON`], that mlx5_core refuses or gets wrong. The last stands at the very
/// start of its section.
pub const MORE: &[Format] = &[
    &[N, Text(" "), Value("%016llx", LongHex(16))],
    &[
        N,
        Text(" "),
        Value("%lx", Hex(1)),
        Text(" "),
        Value("%lu", Unsigned),
    ],
    &[
        N,
        Text(" "),
        Value("%o", Octal),
        Text(" "),
        Value("%-6d", Left(6)),
        Text("|"),
    ],
    &[
        N,
        Text(" "),
        Value("%lld", LongSigned),
        Text(" "),
        Value("%llu", LongUnsigned),
    ],
    &[
        N,
        Text(" "),
        Value("%+d", Plus),
        Value("% d", Blank),
        Text(" "),
        Value("%.4x", Hex(4)),
    ],
    &[N, Text(" at "), Value("%p", Pointer)],
    &[Text("nothing to add")],
    &[N, Text(" from the start of the section")],
];

/// What firmware says when it is asked for a core dump.
pub const CORE_DUMP: Format = &[
    N,
    Text(" core dump: irisc "),
    Value("%d", Signed),
    Text(" pc 0x"),
    Value("%08x", Hex(8)),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// What `printf` of the C library says.
    #[test]
    fn as_c_prints() {
        let cases: &[(Convert, &[u32], &str)] = &[
            (Signed, &[u32::MAX], "-1"),
            (Wide(5), &[42], "   42"),
            (Left(6), &[0xffff_fff6], "-10   "),
            (Plus, &[7], "+7"),
            (Blank, &[7], " 7"),
            (Blank, &[u32::MAX], "-1"),
            (Unsigned, &[u32::MAX], "4294967295"),
            (Hex(1), &[0], "0"),
            (Hex(8), &[0xbeef], "0000beef"),
            (Capital(8), &[0xbeef], "0000BEEF"),
            (Prefixed, &[0x10], "0x10"),
            (Octal, &[0o777], "777"),
            (Char, &[0x41], "A"),
            (LongHex(1), &[0, 0x10], "10"),
            (LongHex(16), &[1, 2], "0000000100000002"),
            (LongSigned, &[u32::MAX, 0xffff_fffe], "-2"),
            (LongUnsigned, &[1, 0], "4294967296"),
        ];
        for (convert, words, text) in cases {
            assert_eq!(convert.render(words).as_deref(), Some(*text), "{convert:?}");
        }
    }

    #[test]
    fn pieces_make_source_and_text() {
        let f = COMMON[3];
        assert_eq!((source(f).as_str(), words(f)), ("#%u 100%% of %i pages", 2));
        assert_eq!(
            render(f, &[5, u32::MAX]).as_deref(),
            Some("#5 100% of -1 pages")
        );
        assert_eq!(words(COMMON[7]), 6);
        let text = render(COMMON[7], &[1, 2, 3, 0, 0x10, 9]);
        assert_eq!(text.as_deref(), Some("#1 va 0x200000003 len 0x10 key 0x9"));
        assert_eq!(render(f, &[5]), None);
        assert_eq!(render(MORE[5], &[5, 6]), None);
        for f in COMMON.iter().chain(MORE).chain([&CORE_DUMP]) {
            assert!(words(f) <= 7, "{}", source(f));
        }
    }
}
