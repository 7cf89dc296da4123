// SPDX-License-Identifier: GPL-2.0

use mlx5_pure::layouts::bits::{get, set};
use mlx5_pure::layouts::commands::{CreateEqIn, Eqc, ManagePagesOut};
use mlx5_pure::layouts::{CapType, EventType, Field, Opcode, Status, ALL};
use proptest::prelude::*;

/// Bit after bit: the definition.
fn by_bits(bytes: &[u8], offset: usize, width: usize) -> u64 {
    (offset..offset + width).fold(0, |value, bit| {
        value << 1 | u64::from(bytes[bit / 8] >> (7 - bit % 8) & 1)
    })
}

fn all_fields() -> impl Iterator<Item = (usize, Field)> {
    ALL.iter()
        .copied()
        .flatten()
        .flat_map(|d| d.fields.iter().map(|field| (d.len, *field)))
}

proptest! {
    #[test]
    fn reading_is_bit_after_bit(
        bytes in prop::collection::vec(any::<u8>(), 0..40),
        offset in 0_usize..400,
        width in 0_usize..70,
    ) {
        let within = (1..=64).contains(&width) && offset + width <= bytes.len() * 8;
        let expected = within.then(|| by_bits(&bytes, offset, width));
        prop_assert_eq!(get(&bytes, offset, width), expected);
    }

    #[test]
    fn writing_changes_the_field_and_nothing_else(
        bytes in prop::collection::vec(any::<u8>(), 0..40),
        offset in 0_usize..400,
        width in 0_usize..70,
        value in any::<u64>(),
        narrow in any::<bool>(),
    ) {
        let within = (1..=64).contains(&width) && offset + width <= bytes.len() * 8;
        let value = if narrow && (1..64).contains(&width) { value % (1 << width) } else { value };
        let fits = within && (width == 64 || value < 1 << width);
        let mut written = bytes.clone();
        prop_assert_eq!(set(&mut written, offset, width, value).is_some(), fits);
        if !fits {
            prop_assert_eq!(written, bytes);
            return Ok(());
        }
        prop_assert_eq!(by_bits(&written, offset, width), value);
        for bit in (0..bytes.len() * 8).filter(|bit| !(offset..offset + width).contains(bit)) {
            prop_assert_eq!(by_bits(&written, bit, 1), by_bits(&bytes, bit, 1));
        }
    }

    #[test]
    fn far_offsets_do_no_harm(offset in any::<usize>(), width in any::<usize>()) {
        let mut bytes = [0xa5; 16];
        let value = get(&bytes, offset, width);
        if let Some(value) = value {
            prop_assert_eq!(set(&mut bytes, offset, width, value), Some(()));
        } else {
            prop_assert_eq!(set(&mut bytes, offset, width, 0), None);
        }
        prop_assert_eq!(bytes, [0xa5; 16]);
    }

    #[test]
    fn views_of_hostile_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let view = ManagePagesOut::of(&bytes);
        prop_assert_eq!(view.is_some(), bytes.len() >= ManagePagesOut::LEN);
        let count = ManagePagesOut::PAS.count_in(bytes.len());
        let addresses: Vec<u64> = ManagePagesOut::PAS.iter(&bytes).collect();
        prop_assert_eq!(addresses.len(), count);
        for (i, address) in addresses.iter().enumerate() {
            let at = ManagePagesOut::LEN + i * 8;
            let expected = u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
            prop_assert_eq!(*address, expected);
            prop_assert_eq!(ManagePagesOut::PAS.get(&bytes, i), Some(expected));
        }
        prop_assert_eq!(ManagePagesOut::PAS.get(&bytes, count), None);
    }

    #[test]
    fn narrow_fields_refuse_what_does_not_fit(log in any::<u8>(), page in any::<u32>()) {
        let mut context = Eqc::new();
        prop_assert_eq!(context.try_set_log_eq_size(log).is_ok(), log < 32);
        prop_assert_eq!(context.log_eq_size(), if log < 32 { log } else { 0 });
        prop_assert_eq!(context.try_set_uar_page(page).is_ok(), page < 1 << 24);
        prop_assert_eq!(context.uar_page(), if page < 1 << 24 { page } else { 0 });
    }

    #[test]
    fn arrays(words in any::<[u64; 4]>()) {
        let mut command = CreateEqIn::new();
        command.set_event_bitmask(words);
        prop_assert_eq!(command.event_bitmask(), words);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        prop_assert_eq!(&command.as_bytes()[0x58..0x78], bytes);
    }

    #[test]
    fn any_number_prints(number in any::<u16>()) {
        let hex = format!("({number:#x})");
        prop_assert!(Opcode(number).to_string().ends_with(&hex));
        let byte = number as u8;
        let hex = format!("({byte:#x})");
        prop_assert!(Status(byte).to_string().ends_with(&hex));
        prop_assert!(EventType(byte).to_string().ends_with(&hex));
        prop_assert!(CapType(byte).to_string().ends_with(&hex));
    }
}

/// Every declared field keeps every value, without touching the bits around it.
#[test]
fn every_declared_field_keeps_its_values() {
    for (len, field) in all_fields().filter(|(_, field)| field.width <= 64) {
        for background in [0x00, 0xff] {
            let clean = vec![background; len];
            for value in [0, 1, field.max(), field.max() / 3] {
                let mut bytes = clean.clone();
                assert_eq!(field.set(&mut bytes, value), Some(()), "{}", field.name);
                assert_eq!(field.get(&bytes), Some(value), "{}", field.name);
                let old = by_bits(&clean, field.offset, field.width);
                assert_eq!(field.set(&mut bytes, old), Some(()));
                assert_eq!(bytes, clean, "{}", field.name);
            }
        }
        assert!(field.width == 64 || field.set(&mut vec![0; len], field.max() + 1).is_none());
    }
}

/// Fields of one structure do not overlap.
#[test]
fn declared_fields_do_not_overlap() {
    for description in ALL.iter().copied().flatten() {
        let mut fields: Vec<Field> = description.fields.to_vec();
        fields.sort_by_key(|field| field.offset);
        for pair in fields.windows(2) {
            assert!(
                pair[0].offset + pair[0].width <= pair[1].offset,
                "{}: {} and {}",
                description.name,
                pair[0].name,
                pair[1].name
            );
        }
        let end = fields.last().map_or(0, |field| field.offset + field.width);
        assert!(end <= description.len * 8, "{}", description.name);
    }
}
