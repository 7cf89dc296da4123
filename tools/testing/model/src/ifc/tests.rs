// SPDX-License-Identifier: GPL-2.0

use super::*;
use proptest::prelude::*;

#[path = "../../build/header.rs"]
// The build script uses the rest.
#[allow(dead_code)]
mod header;

fn parse(text: &str) -> Vec<header::Layout> {
    let mut h = header::Header::default();
    h.parse(text).expect("parses");
    h.resolve().expect("resolves")
}

/// Offsets that hardware.md gives in bytes and bits of a dword, from section 2 and 3.
#[test]
fn agrees_with_the_fact_sheet() {
    // (structure, field, byte offset of the dword, high bit, low bit)
    let facts = [
        ("enable_hca_in", "opcode", 0x00, 31, 16),
        ("enable_hca_in", "embedded_cpu_function", 0x08, 31, 31),
        ("enable_hca_in", "function_id_type", 0x08, 28, 28),
        ("enable_hca_in", "function_id", 0x08, 15, 0),
        ("query_issi_out", "current_issi", 0x08, 15, 0),
        ("query_issi_out", "supported_issi_dw0", 0x6c, 31, 0),
        ("query_pages_out", "num_pages", 0x0c, 31, 0),
        ("manage_pages_in", "input_num_entries", 0x0c, 31, 0),
        ("init_hca_in", "sw_vhca_id", 0x0c, 29, 16),
        ("teardown_hca_in", "profile", 0x08, 15, 0),
        ("create_eq_in", "eq_context_entry.log_eq_size", 0x1c, 28, 24),
        ("create_eq_in", "eq_context_entry.uar_page", 0x1c, 23, 0),
        ("create_eq_in", "eq_context_entry.intr", 0x24, 11, 0),
        (
            "create_eq_in",
            "eq_context_entry.log_page_size",
            0x28,
            28,
            24,
        ),
        ("create_eq_out", "eq_number", 0x08, 7, 0),
        ("cmd_hca_cap", "hca_cap_2", 0x04, 31, 31),
        ("cmd_hca_cap", "release_all_pages", 0x28, 26, 26),
        ("cmd_hca_cap", "dct", 0x40, 5, 5),
        ("cmd_hca_cap", "cmdif_checksum", 0x40, 15, 14),
        ("cmd_hca_cap", "log_uar_page_sz", 0x90, 15, 0),
        ("cmd_hca_cap", "sw_owner_id", 0xc0, 1, 1),
        ("cmd_hca_cap_2", "sw_vhca_id_valid", 0x44, 30, 30),
        ("initial_seg", "initializing", 0x1fc, 31, 31),
        ("initial_seg", "health_counter", 0x1010, 23, 0),
        ("dtor_reg", "reset_unload_to.to_value", 0x38, 19, 0),
    ];
    for (structure, path, dword, high, low) in facts {
        let want = Bits {
            offset: dword * 8 + 31 - high,
            width: high - low + 1,
        };
        assert_eq!(
            try_locate(structure, path),
            Some(want),
            "{structure}.{path}"
        );
    }
    assert_eq!(size_of("eqc"), 64);
    assert_eq!(size_of("create_eq_in"), 272);
    assert_eq!(size_of("hca_cap_union"), 4096);
    assert_eq!(size_of("set_hca_cap_in"), 0x1010);
    assert_eq!(opcode("ENABLE_HCA"), Some(0x104));
    assert_eq!(opcode_name(0x108), Some("MANAGE_PAGES"));
    assert_eq!(opcode_name(0xffff), None);
}

/// `reserved_at_<hex>` names say where the field is: all of the header must agree, but for the
/// few that repeat a name or are known to be mislabelled, which are counted.
#[test]
fn reserved_names_agree_with_offsets() {
    let (mut agree, mut differ) = (0, 0);
    for l in &LAYOUTS {
        for f in l.fields {
            let Some(hex) = f.name.strip_prefix("reserved_at_") else {
                continue;
            };
            let Ok(at) = u32::from_str_radix(hex, 16) else {
                continue;
            };
            if at == f.offset {
                agree += 1;
            } else {
                differ += 1;
            }
        }
    }
    assert!(agree > 2000, "{agree} agree, {differ} differ");
    assert!(differ * 20 < agree, "{agree} agree, {differ} differ");
}

#[test]
fn reads_the_constructs_of_the_header() {
    let layouts = parse(
        "/* c\n*/\n#define X\n\
         enum { A_A = 3, A_B, A_C = 1 << 4, A_D = (1ULL << 2) | 1, A_E = FOO(1, 2), };\n\
         struct mlx5_ifc_in_bits { u8 a[0x4]; u8 b; u8 reserved_at_5[0x3]; };\n\
         union mlx5_ifc_u_bits { struct mlx5_ifc_in_bits x; u8 y[0x20]; };\n\
         struct mlx5_ifc_out_bits {\n\
           u8 h[0x8]; struct mlx5_ifc_in_bits n[2];\n\
           union { u8 p[0x8]; struct { u8 q[0x4]; u8 r[0x4]; }; };\n\
           union { u8 s[0x10]; } named; u8 arr[A_A][0x10]; union mlx5_ifc_u_bits u;\n\
           u8 pas[][0x40]; };",
    );
    let out = layouts.iter().find(|l| l.name == "out").expect("out");
    let places: Vec<_> = out
        .fields
        .iter()
        .map(|f| (f.name.as_str(), f.offset, f.width, f.count, f.overlaid))
        .collect();
    assert_eq!(
        places,
        [
            ("h", 0, 8, 1, false),
            ("n", 8, 8, 2, false),
            ("p", 24, 8, 1, true),
            ("q", 24, 4, 1, true),
            ("r", 28, 4, 1, true),
            ("named", 32, 16, 1, false),
            ("arr", 48, 16, 3, false),
            ("u", 96, 32, 1, false),
            ("pas", 128, 64, 0, false),
        ]
    );
    assert_eq!(out.bits, 128);
}

#[test]
fn says_what_is_wrong_with_a_header() {
    let mut h = header::Header::default();
    let e = h.parse("struct a {\n u8 x[0x4]\n};").expect_err("no ';'");
    assert!(e.contains("line 3") && e.contains("';'"), "{e}");
    let mut h = header::Header::default();
    h.parse("struct a { struct b x; };").expect("parses");
    assert!(h
        .resolve()
        .expect_err("b is missing")
        .contains("b is used but not declared"));
    let mut h = header::Header::default();
    h.parse("struct a { struct a x; };").expect("parses");
    assert!(h
        .resolve()
        .expect_err("recursive")
        .contains("contains itself"));
}

#[test]
fn finds_reserved_bits_in_nested_structures() {
    let l = layout("create_eq_in").expect("create_eq_in");
    let mut buf = vec![0u8; size_of("create_eq_in")];
    set(&mut buf, locate("create_eq_in", "opcode"), 0x301);
    set(&mut buf, locate("create_eq_in", "eq_context_entry.intr"), 3);
    assert_eq!(reserved_set(l, &buf), Vec::<String>::new());
    set(
        &mut buf,
        locate("create_eq_in", "eq_context_entry.reserved_at_18"),
        1,
    );
    set(&mut buf, locate("create_eq_in", "reserved_at_20"), 0x8000);
    assert_eq!(
        reserved_set(l, &buf),
        ["reserved_at_20", "eq_context_entry.reserved_at_18"]
    );
}

proptest! {
    #[test]
    fn set_then_get(offset in 0u32..200, width in 1u32..=64, value: u64, fill: u8) {
        let bits = Bits { offset, width };
        let mut buf = [fill; 40];
        set(&mut buf, bits, value);
        prop_assert_eq!(get(&buf, bits), value & max_value(bits));
        // Nothing else moved.
        for at in (0..320).filter(|a| *a < offset || *a >= offset + width) {
            let one = Bits { offset: at, width: 1 };
            prop_assert_eq!(get(&buf, one), get(&[fill; 40], one));
        }
    }

    #[test]
    fn short_buffers_read_as_zero(buf in proptest::collection::vec(any::<u8>(), 0..8), offset in 64u32..4096) {
        prop_assert_eq!(get(&buf, Bits { offset, width: 64 }), 0);
        let mut copy = buf.clone();
        set(&mut copy, Bits { offset, width: 64 }, u64::MAX);
        prop_assert_eq!(copy, buf);
    }

    #[test]
    fn header_reader_does_not_panic(text in "[ -~\\n]{0,200}") {
        let mut h = header::Header::default();
        if h.parse(&text).is_ok() {
            let _ = h.resolve();
        }
    }
}
