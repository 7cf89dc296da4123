// SPDX-License-Identifier: GPL-2.0

//! The formatter, against the C library's.

use std::ffi::{c_int, c_longlong, CString};

use mlx5_pure::tracer::format::{format, verbatim, Line, Shape, MAX_WORDS};
use proptest::prelude::*;

/// One conversion, and how many words it takes.
fn conversions() -> impl Strategy<Value = (String, usize)> {
    (
        "[-+ #0]{0,3}",
        prop_oneof![Just(String::new()), "[1-9]", "[1-9][0-9]"],
        prop_oneof![3 => Just(String::new()), 1 => "\\.[0-9]{0,2}"],
        prop_oneof![Just(""), Just("l"), Just("ll")],
        prop::sample::select(vec!['d', 'i', 'u', 'x', 'X', 'o']),
    )
        .prop_map(|(flags, width, precision, long, kind)| {
            let words = if long == "ll" { 2 } else { 1 };
            (format!("%{flags}{width}{precision}{long}{kind}"), words)
        })
}

/// Words near the edges of their range.
fn values() -> impl Strategy<Value = u32> {
    prop_oneof![
        any::<u32>(),
        Just(0),
        Just(1),
        Just(u32::MAX),
        Just(i32::MAX as u32),
        Just(i32::MIN as u32),
        0_u32..1000,
    ]
}

/// What the C library makes of one conversion.
fn c_format(conversion: &str, words: &[u32]) -> String {
    let mut out = [0_u8; 512];
    // The device's `long` has 32 bits.
    let narrow = conversion.replace('l', "");
    let len = if let [high, low] = words {
        let wide = u64::from(*high) << 32 | u64::from(*low);
        let text = CString::new(conversion).expect("no NUL");
        // SAFETY: the buffer has room for the length given, and the string one conversion, of a
        // `long long`.
        unsafe {
            libc::snprintf(
                out.as_mut_ptr().cast(),
                out.len(),
                text.as_ptr(),
                wide as c_longlong,
            )
        }
    } else {
        let text = CString::new(narrow).expect("no NUL");
        // SAFETY: as above, of an `int`.
        unsafe {
            libc::snprintf(
                out.as_mut_ptr().cast(),
                out.len(),
                text.as_ptr(),
                words[0] as c_int,
            )
        }
    };
    String::from_utf8(out[..usize::try_from(len).expect("no error")].to_vec()).expect("ASCII")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// The same as C prints where `long` has 32 bits.
    #[test]
    fn as_c_prints(
        parts in prop::collection::vec((conversions(), "[ -$&-~]{0,8}"), 0..4),
        values in prop::collection::vec(values(), MAX_WORDS),
    ) {
        let (mut text, mut want, mut used) = (String::new(), String::new(), 0);
        for ((conversion, words), literal) in &parts {
            if used + words > MAX_WORDS {
                break;
            }
            text += conversion;
            want += &c_format(conversion, &values[used..used + words]);
            used += words;
            text += literal;
            want += literal;
        }
        let shape = Shape::of(text.as_bytes());
        prop_assert_eq!(shape, Shape { words: used as u8, bad: None }, "{}", text);
        let mut buf = [0; 1024];
        let mut line = Line::new(&mut buf);
        format(text.as_bytes(), &values, &mut line);
        prop_assert_eq!(line.as_str(), want.as_str(), "{}", text);
        // Less room changes nothing but the end.
        for room in [0, 1, want.len() / 2, want.len().saturating_sub(1)] {
            let mut small = vec![0; room];
            let mut line = Line::new(&mut small);
            format(text.as_bytes(), &values, &mut line);
            prop_assert_eq!(line.as_str(), &want[..room.min(want.len())]);
            prop_assert_eq!(line.is_cut(), room < want.len());
        }
    }

    /// Strings of any bytes, rich in what formats are made of.
    #[test]
    fn hostile(
        text in prop::collection::vec(
            prop_oneof![
                any::<u8>(),
                prop::sample::select(b"%%%%lldxsn*.0123456789-+# cpuioXh\n\r\0".to_vec()),
            ],
            0..100,
        ),
        values in prop::collection::vec(values(), 0..10),
        room in 0_usize..200,
    ) {
        let shape = Shape::of(&text);
        prop_assert!(usize::from(shape.words) <= MAX_WORDS);
        // What cannot be good.
        for what in ["%s", "%n", "%*", "%h", "%."] {
            let found = text.windows(what.len()).any(|part| part == what.as_bytes());
            let escaped = text.windows(2).any(|part| part == b"%%");
            prop_assert!(!found || escaped || what == "%." || shape.bad.is_some());
        }
        let mut buf = vec![0xee; room + 1];
        for how in 0..2 {
            let (inside, outside) = buf.split_at_mut(room);
            let mut line = Line::new(inside);
            if how == 0 {
                format(&text, &values, &mut line);
            } else {
                verbatim(&text, &mut line);
                prop_assert!(line.as_bytes().len() <= text.len());
            }
            prop_assert!(line.as_bytes().iter().all(|byte| (b' '..=b'~').contains(byte)));
            prop_assert_eq!(line.as_str().len(), line.as_bytes().len());
            prop_assert_eq!(&*outside, [0xee]);
        }
    }
}
