// SPDX-License-Identifier: GPL-2.0

//! The string database: MTRC_CAP (128 bytes), the number of pointers (1 byte), the pointers, and what
//! MTRC_STDB answers, over and over.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_pure::layouts::tracer::MtrcCap;
use mlx5_pure::layouts::Layout;
use mlx5_pure::tracer::format::{Shape, MAX_FORMAT};
use mlx5_pure::tracer::strings::{Database, Section, MAX_SECTION, MAX_SECTIONS, SECTIONS};

/// Most bytes of a section that are filled here: the rest only takes time.
const FILLED: usize = 1024;

fuzz_target!(|data: &[u8]| {
    let Some((register, rest)) = data.split_first_chunk::<{ MtrcCap::LEN }>() else {
        return;
    };
    let mut capability = MtrcCap::new();
    capability.bytes_mut().copy_from_slice(register);
    let Some((count, rest)) = rest.split_first() else {
        return;
    };
    let (pointers, answers) = rest.split_at(rest.len().min(usize::from(*count) * 4));

    let sections: Vec<Section> = Section::all(&capability).collect();
    assert!(sections.len() <= SECTIONS);
    assert!(sections.iter().map(|section| section.len).sum::<u32>() <= MAX_SECTIONS);
    let mut db = Database::empty();
    let mut answers = answers.iter().copied().cycle();
    for section in &sections {
        assert!(section.len > 0 && section.len <= MAX_SECTION && section.len % 64 == 0);
        let mut bytes = vec![0; (section.len as usize).min(FILLED)];
        let mut at = 0;
        for chunk in section.chunks() {
            assert_eq!(chunk.offset, at);
            at += chunk.len;
            let inside = at as usize <= bytes.len();
            let mut reply = chunk.request();
            if at as usize <= bytes.len() + 512 {
                for (to, from) in reply.bytes_mut().iter_mut().zip(&mut answers) {
                    *to = from;
                }
                assert_eq!(chunk.store(&reply, &mut bytes).is_some(), inside);
            } else {
                break;
            }
        }
        db.insert(*section, bytes);
    }
    for pointer in pointers.chunks_exact(4) {
        let pointer = u32::from_be_bytes(pointer.try_into().expect("four bytes"));
        let known: Vec<u32> = sections.iter().map(|section| section.base).collect();
        // The pointer itself, and as an offset from the start of each section.
        for base in known.into_iter().chain([0]) {
            let pointer = base.wrapping_add(pointer % 2048);
            let Some(place) = db.find(pointer) else {
                continue;
            };
            let string = db.string(place);
            assert!(string.len() <= MAX_FORMAT && !string.contains(&0));
            assert!(sections.iter().any(|section| pointer >= section.base
                && u64::from(pointer) + string.len() as u64
                    <= u64::from(section.base) + u64::from(section.len)));
            assert!(Shape::of(string).words <= 7);
        }
    }
});
