// SPDX-License-Identifier: GPL-2.0

//! Layouts and numbers against the kernel's headers, read another way than by bindgen: by the C
//! compiler, and as text.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use mlx5_pure::layouts::own::RegisterId;
use mlx5_pure::layouts::wqe::WqeOpcode;
use mlx5_pure::layouts::{codes, Description, ALL};
use mlx5_pure::wqe::AtomicOps;

/// The directory `include` of the kernel source.
fn include() -> PathBuf {
    let header = env::var_os("MLX5RS_IFC_H").expect(
        "MLX5RS_IFC_H is not set: it names the kernel's include/linux/mlx5/mlx5_ifc.h. Use \
         `make host-test`, or `eval \"$(make -s env)\"` before cargo",
    );
    let header = PathBuf::from(header);
    header
        .ancestors()
        .nth(3)
        .filter(|include| include.join("linux/mlx5/device.h").is_file())
        .unwrap_or_else(|| {
            panic!(
                "MLX5RS_IFC_H={}: expected the file include/linux/mlx5/mlx5_ifc.h of a kernel \
                 source",
                header.display()
            )
        })
        .to_owned()
}

/// All structures that came from a header.
fn structures() -> impl Iterator<Item = (&'static Description, &'static str)> {
    ALL.iter()
        .copied()
        .flatten()
        .filter_map(|description| Some((description, description.c_type?)))
}

/// Compiles and runs a C program that includes what bindgen was given, and gives its output.
fn run_c(body: &str) -> String {
    let include = include();
    let layouts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../layouts");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (source, program) = (dir.path().join("t.c"), dir.path().join("t"));
    let mut file = fs::File::create(&source).expect("create the C file");
    write!(
        file,
        "#include \"ifc_helper.h\"\n#include <stdio.h>\nint main(void)\n{{\n{body}\treturn 0;\n}}\n"
    )
    .expect("write the C file");
    drop(file);
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(&compiler)
        .arg("-w")
        .arg("-I")
        .arg(&layouts)
        .arg("-I")
        .arg(layouts.join("include-host"))
        .arg("-I")
        .arg(&include)
        .arg("-I")
        .arg(include.join("uapi"))
        .arg("-o")
        .args([&program, &source])
        .output()
        .unwrap_or_else(|error| {
            panic!(
                "{}: {error}; a C compiler is needed (CC names one)",
                compiler.to_string_lossy()
            )
        });
    assert!(
        output.status.success(),
        "the C compiler failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let output = Command::new(&program).output().expect("run the program");
    assert!(output.status.success(), "the program failed: {output:?}");
    String::from_utf8(output.stdout).expect("numbers")
}

#[test]
fn every_field_of_every_structure_agrees_with_c() {
    let mut body = String::new();
    for (description, c_type) in structures() {
        body += &format!("\tprintf(\"%zu\\n\", sizeof(struct {c_type}));\n");
        for member in description.members {
            let name = member.name;
            body += &format!(
                "\tprintf(\"%zu %zu\\n\", offsetof(struct {c_type}, {name}), \
                 sizeof(((struct {c_type} *)0)->{name}));\n"
            );
        }
        if let Some(name) = description.tail {
            body += &format!("\tprintf(\"%zu\\n\", offsetof(struct {c_type}, {name}));\n");
        }
    }
    let output = run_c(&body);
    let mut lines = output.lines();
    let mut next = || lines.next().expect("one line per question");
    let (mut fields, mut wrong) = (0, Vec::new());
    for (description, c_type) in structures() {
        let unit = description.unit;
        let mut check = |name: &str, ours: String, c: &str| {
            if ours != c {
                wrong.push(format!("struct {c_type} {name}: we have {ours}, C has {c}"));
            }
        };
        check("size", (description.len * 8 / unit).to_string(), next());
        assert_eq!(description.members.len(), description.fields.len());
        for member in description.members {
            fields += 1;
            let ours = format!("{} {}", member.offset / unit, member.width / unit);
            check(member.name, ours, next());
            assert_eq!((member.offset % unit, member.width % unit), (0, 0));
        }
        if let Some(name) = description.tail {
            check(name, (description.len * 8 / unit).to_string(), next());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        fields > 300,
        "only {fields} fields: is `layouts::ALL` complete?"
    );
}

/// `NAME = 0x...` in `text`, for names that begin with one of `prefixes`, by what follows it.
fn enumerators(text: &str, prefixes: &[&str]) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| {
            let (name, value) = line.split_once('=')?;
            let name = name.trim();
            let name = prefixes
                .iter()
                .find_map(|prefix| name.strip_prefix(prefix))?;
            let value = value.trim().split([',', ' ', '/']).next()?;
            let value = u64::from_str_radix(value.strip_prefix("0x")?, 16).ok()?;
            Some((name.to_owned(), value))
        })
        .collect()
}

/// The part of `text` from `first` to the end of that enum.
fn enumeration<'a>(text: &'a str, first: &str) -> &'a str {
    let start = text
        .find(first)
        .unwrap_or_else(|| panic!("{first} is gone"));
    let rest = &text[start..];
    &rest[..rest.find('}').expect("the end of the enum")]
}

#[test]
fn every_opcode_of_the_header_has_its_name() {
    let text = fs::read_to_string(include().join("linux/mlx5/mlx5_ifc.h")).expect("mlx5_ifc.h");
    let header = enumerators(
        enumeration(&text, "MLX5_CMD_OP_QUERY_HCA_CAP"),
        &["MLX5_CMD_OP_", "MLX5_CMD_OPCODE_"],
    );
    let ours: BTreeMap<String, u64> = codes::Opcode::ALL
        .iter()
        .map(|(code, name)| ((*name).to_owned(), u64::from(code.0)))
        .collect();
    assert!(header.len() > 150, "{} opcodes found", header.len());
    assert_eq!(ours, header);
}

#[test]
fn statuses_and_events_agree_with_the_header() {
    let text = fs::read_to_string(include().join("linux/mlx5/device.h")).expect("device.h");
    let header = enumerators(&text, &["MLX5_CMD_STAT_"]);
    let ours: BTreeMap<String, u64> = codes::Status::ALL
        .iter()
        .map(|(code, name)| ((*name).to_owned(), u64::from(code.0)))
        .collect();
    assert_eq!(ours, header);

    let header = enumerators(
        enumeration(&text, "MLX5_EVENT_TYPE_NOTIFY_ANY"),
        &["MLX5_EVENT_TYPE_"],
    );
    for (name, value) in header {
        // The end of the range, and a wildcard of upstream's subscribers.
        if name == "MAX" || name == "NOTIFY_ANY" {
            continue;
        }
        let ours = codes::EventType::ALL.iter().find(|(_, n)| *n == name);
        assert_eq!(
            ours.map(|(code, _)| u64::from(code.0)),
            Some(value),
            "{name}"
        );
    }
}

#[test]
fn register_numbers_agree_with_driver_h() {
    let text = fs::read_to_string(include().join("linux/mlx5/driver.h")).expect("driver.h");
    let header = enumerators(&text, &["MLX5_REG_"]);
    for (id, name) in RegisterId::ALL {
        assert_eq!(header.get(*name), Some(&u64::from(id.0)), "{name}");
    }
}

#[test]
fn atomic_operations_agree_with_driver_h() {
    let text = fs::read_to_string(include().join("linux/mlx5/driver.h")).expect("driver.h");
    let header: BTreeMap<&str, u16> = text
        .lines()
        .filter_map(|line| {
            let (name, value) = line.split_once('=')?;
            let name = name.trim().strip_prefix("MLX5_ATOMIC_OPS_")?;
            let bit: u32 = value
                .trim()
                .trim_end_matches(',')
                .strip_prefix("1 << ")?
                .parse()
                .ok()?;
            Some((name, 1 << bit))
        })
        .collect();
    let ours = BTreeMap::from([
        ("CMP_SWAP", AtomicOps::CMP_SWAP.0),
        ("FETCH_ADD", AtomicOps::FETCH_ADD.0),
        ("EXTENDED_CMP_SWAP", AtomicOps::EXTENDED_CMP_SWAP.0),
        ("EXTENDED_FETCH_ADD", AtomicOps::EXTENDED_FETCH_ADD.0),
    ]);
    assert_eq!(ours, header);
}

#[test]
fn opcodes_of_wqes_agree_with_the_header() {
    let text = fs::read_to_string(include().join("linux/mlx5/device.h")).expect("device.h");
    let header = enumerators(&text, &["MLX5_OPCODE_"]);
    let ours: BTreeMap<String, u64> = WqeOpcode::ALL
        .iter()
        .map(|(code, name)| ((*name).to_owned(), u64::from(code.0)))
        .collect();
    assert_eq!(ours, header);
    for (own, name) in WqeOpcode::OWN {
        assert!(!ours.contains_key(*name));
        assert!(!ours.values().any(|value| *value == u64::from(own.0)));
    }
}
