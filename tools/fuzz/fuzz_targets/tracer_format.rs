// SPDX-License-Identifier: GPL-2.0

//! The formatter: the size of the line (1 byte), seven parameter words, and the string.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_pure::tracer::format::{format, verbatim, Line, Shape, MAX_FORMAT, MAX_WORDS};

/// What the line is surrounded by.
const GUARD: u8 = 0xee;

fuzz_target!(|data: &[u8]| {
    let Some(([room, words @ ..], text)) = data.split_first_chunk::<{ 1 + 4 * MAX_WORDS }>() else {
        return;
    };
    let mut values = [0; MAX_WORDS];
    for (value, bytes) in values.iter_mut().zip(words.chunks_exact(4)) {
        *value = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    }
    let shape = Shape::of(text);
    let used = usize::from(shape.words);
    assert!(used <= MAX_WORDS);
    if shape.bad.is_none() {
        assert!(text.len() <= MAX_FORMAT);
        assert!(text.iter().filter(|byte| **byte == b'%').count() >= used.div_ceil(2));
    }
    let room = usize::from(*room) * 4;
    let mut buf = vec![GUARD; room + 8];
    let (inside, outside) = buf.split_at_mut(room);
    let mut line = Line::new(inside);
    format(text, &values, &mut line);
    assert!(line.as_bytes().len() <= room);
    assert!(line
        .as_bytes()
        .iter()
        .all(|byte| (b' '..=b'~').contains(byte)));
    assert_eq!(line.as_str().len(), line.as_bytes().len());
    let first = line.as_bytes().to_vec();
    // Words that it does not take make no difference.
    if shape.bad.is_none() {
        line.clear();
        format(text, &values[..used], &mut line);
        assert_eq!(line.as_bytes(), first);
    }
    line.clear();
    verbatim(text, &mut line);
    assert!(line.as_bytes().len() <= text.len());
    assert!(outside.iter().all(|byte| *byte == GUARD));
});
