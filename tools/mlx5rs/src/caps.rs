// SPDX-License-Identifier: GPL-2.0

//! Capabilities of a device, given on the command line by the names of the interface header.

use mlx5_pure::wqe::{AtomicOps, Caps};

/// Names, and where what they name is kept.
type Named<T> = &'static [(&'static str, fn(&mut Caps) -> &mut T)];

/// What a person calls them.
const FLAGS: Named<bool> = &[
    ("cd", |caps| &mut caps.cross_channel),
    ("compact_address_vector", |caps| {
        &mut caps.compact_address_vector
    }),
    ("fixed_buffer_size", |caps| &mut caps.fixed_buffer_size),
    ("insert_trailer", |caps| &mut caps.insert_trailer),
    ("relaxed_ordering_read_umr", |caps| {
        &mut caps.relaxed_ordering_read_umr
    }),
    ("relaxed_ordering_write_umr", |caps| {
        &mut caps.relaxed_ordering_write_umr
    }),
    ("sho", |caps| &mut caps.signature),
    ("swp", |caps| &mut caps.swp),
    ("tls_rx", |caps| &mut caps.tls_rx),
    ("tls_tx", |caps| &mut caps.tls_tx),
    ("umr_extended_translation_offset", |caps| {
        &mut caps.umr_extended_translation_offset
    }),
    ("umr_indirect_mkey_disabled", |caps| {
        &mut caps.umr_indirect_mkey_disabled
    }),
    ("umr_log_entity_size_5", |caps| {
        &mut caps.umr_log_entity_size_5
    }),
    ("umr_modify_atomic_disabled", |caps| {
        &mut caps.umr_modify_atomic_disabled
    }),
    ("umr_modify_entity_size_disabled", |caps| {
        &mut caps.umr_modify_entity_size_disabled
    }),
    ("wqe_vlan_insert", |caps| &mut caps.vlan_insert),
];

const NUMBERS: Named<u16> = &[
    ("atomic_operations", |caps| {
        let AtomicOps(bits) = &mut caps.atomic_operations;
        bits
    }),
    ("atomic_size_dc", |caps| &mut caps.atomic_size_dc),
    ("atomic_size_qp", |caps| &mut caps.atomic_size_qp),
    ("max_wqe_sz_sq", |caps| &mut caps.max_wqe_bytes),
    ("max_wqe_sz_sq_dc", |caps| &mut caps.max_wqe_bytes_dc),
];

/// What stands behind the help of the option.
pub const HELP: &str = "\
Capabilities (names of the interface header mlx5_ifc.h), for --caps:
  flags, 0 or 1 (NAME alone is 1):
    cd, compact_address_vector, fixed_buffer_size, insert_trailer,
    relaxed_ordering_read_umr, relaxed_ordering_write_umr, sho, swp, tls_rx, tls_tx,
    umr_extended_translation_offset, umr_indirect_mkey_disabled, umr_log_entity_size_5,
    umr_modify_atomic_disabled, umr_modify_entity_size_disabled, wqe_vlan_insert
  numbers:
    atomic_operations               1 compare-and-swap, 2 fetch-and-add,
                                    4 and 8 their masked forms; the sum of them
    atomic_size_qp, atomic_size_dc  the sum of the sizes in bytes
    max_wqe_sz_sq, max_wqe_sz_sq_dc bytes";

/// Reads a number of at most `max`, decimal or with 0x in hex.
///
/// # Errors
///
/// It is something else.
pub fn number(text: &str, max: u64) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16),
        _ => text.parse(),
    };
    match parsed {
        Ok(number) if number <= max => Ok(number),
        _ => Err(format!("`{text}`: expected a number from 0 to {max:#x}")),
    }
}

/// Reads a list such as `none,sho,atomic_size_qp=0x8`.
///
/// # Errors
///
/// A name or a value is none.
pub fn parse(list: &str) -> Result<Caps, String> {
    let mut caps = Caps::ALL;
    for item in list.split(',') {
        match item {
            "all" => caps = Caps::ALL,
            "none" => {
                caps = Caps {
                    // Nobody has queues without room.
                    max_wqe_bytes: Caps::ALL.max_wqe_bytes,
                    max_wqe_bytes_dc: Caps::ALL.max_wqe_bytes_dc,
                    ..Caps::default()
                }
            }
            item => set(&mut caps, item)?,
        }
    }
    Ok(caps)
}

fn set(caps: &mut Caps, item: &str) -> Result<(), String> {
    let (name, value) = match item.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (item, None),
    };
    if let Some((_, flag)) = FLAGS.iter().find(|(known, _)| *known == name) {
        let value = value.map_or(Ok(1), |value| number(value, 1));
        *flag(caps) = value.map_err(|error| format!("{name}: {error}"))? != 0;
        return Ok(());
    }
    if let Some((_, field)) = NUMBERS.iter().find(|(known, _)| *known == name) {
        let Some(value) = value else {
            return Err(format!("{name}: no value: expected {name}=<number>"));
        };
        let value = number(value, u16::MAX.into()).map_err(|error| format!("{name}: {error}"))?;
        // At most 16 bits.
        *field(caps) = value as u16;
        return Ok(());
    }
    Err(format!(
        "`{name}`: expected all, none, or a capability (--help lists them)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(parse("all"), Ok(Caps::ALL));
        let caps = parse("none,sho,atomic_size_qp=0x8,swp=1,swp=0").unwrap();
        assert!(caps.signature && !caps.swp && !caps.vlan_insert);
        assert_eq!(caps.atomic_size_qp, 8);
        for (bad, part) in [
            ("", "all, none"),
            ("vlan", "`vlan`"),
            ("sho=2", "sho: `2`: expected a number from 0 to 0x1"),
            ("atomic_size_qp", "atomic_size_qp=<number>"),
            ("atomic_size_qp=0x10000", "0xffff"),
            ("atomic_size_qp=0x+1", "0x+1"),
        ] {
            let error = parse(bad).unwrap_err();
            assert!(error.contains(part), "{bad}: {error}");
        }
    }

    #[test]
    fn help_names_all() {
        let words: Vec<_> = HELP
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .collect();
        for name in FLAGS
            .iter()
            .map(|(name, _)| name)
            .chain(NUMBERS.iter().map(|(name, _)| name))
        {
            assert!(words.contains(name), "{name}");
        }
    }
}
