// SPDX-License-Identifier: GPL-2.0

//! The string database, of sections that the device describes and fills at will.

use mlx5_pure::layouts::tracer::MtrcCap;
use mlx5_pure::layouts::Layout;
use mlx5_pure::tracer::format::MAX_FORMAT;
use mlx5_pure::tracer::strings::{Database, Section, MAX_SECTION, MAX_SECTIONS};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever MTRC_CAP says, what is read and kept is bounded, and within what it says.
    #[test]
    fn hostile_capabilities(bytes in prop::collection::vec(any::<u8>(), MtrcCap::LEN)) {
        let mut capability = MtrcCap::new();
        capability.bytes_mut().copy_from_slice(&bytes);
        let sections: Vec<_> = Section::all(&capability).collect();
        prop_assert!(sections.len() <= usize::from(bytes[3] & 0xf).min(8));
        prop_assert!(sections.iter().map(|section| section.len).sum::<u32>() <= MAX_SECTIONS);
        for section in sections {
            let at = 0x10 + 8 * usize::from(section.index);
            let base = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
            let size = u32::from_be_bytes(bytes[at + 4..at + 8].try_into().unwrap()) & 0xff_ffff;
            prop_assert_eq!(section.base, base);
            prop_assert!(section.len <= size.min(MAX_SECTION) && section.len > 0);
            let mut at = 0;
            for chunk in section.chunks() {
                prop_assert_eq!((chunk.section, chunk.offset), (section.index, at));
                prop_assert!(chunk.len == 256 || chunk.len == 64);
                prop_assert_eq!((chunk.offset % 64, chunk.len % 64), (0, 0));
                at += chunk.len;
                // There are thousands of them.
                if at / 256 % 101 != 0 {
                    continue;
                }
                let request = chunk.request();
                let request = request.bytes();
                prop_assert_eq!(request[0] >> 4, section.index);
                prop_assert_eq!(u32::from_be_bytes(request[..4].try_into().unwrap()) & 0xff_ffff, chunk.len);
                prop_assert_eq!(u32::from_be_bytes(request[4..8].try_into().unwrap()), chunk.offset);
                prop_assert!(request[8..].iter().all(|byte| *byte == 0));
            }
            prop_assert_eq!(at, section.len);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// A pointer finds the first section that has it, and the bytes up to the next NUL.
    #[test]
    fn pointers(
        sections in prop::collection::vec(
            (
                prop_oneof![0_u32..3000, (u32::MAX - 3000)..=u32::MAX],
                prop::collection::vec(prop_oneof![Just(0_u8), any::<u8>(), any::<u8>()], 0..200),
            ),
            0..10,
        ),
        long in 0_usize..1100,
        pointers in prop::collection::vec(prop_oneof![0_u32..5000, (u32::MAX - 4000)..=u32::MAX, any::<u32>()], 1..20),
    ) {
        let mut sections = sections;
        sections.push((2500, [vec![b'x'; long], vec![0]].concat()));
        sections.truncate(8);
        let mut db = Database::empty();
        for (index, (base, bytes)) in sections.iter().enumerate() {
            let section = Section { index: index as u8, base: *base, len: bytes.len() as u32 };
            db.insert(section, &bytes[..]);
        }
        for pointer in pointers {
            let want = sections.iter().find_map(|(base, bytes)| {
                let (base, pointer) = (u64::from(*base), u64::from(pointer));
                (base..base + bytes.len() as u64)
                    .contains(&pointer)
                    .then(|| &bytes[(pointer - base) as usize..])
            });
            let found = db.find(pointer);
            prop_assert_eq!(found.is_some(), want.is_some());
            let (Some(found), Some(want)) = (found, want) else {
                continue;
            };
            match want.iter().position(|byte| *byte == 0) {
                Some(end) if end <= MAX_FORMAT => {
                    prop_assert!(found.is_terminated());
                    prop_assert_eq!(db.string(found), &want[..end]);
                }
                _ => {
                    prop_assert!(!found.is_terminated());
                    prop_assert_eq!(db.string(found), &want[..want.len().min(MAX_FORMAT)]);
                }
            }
        }
    }
}
