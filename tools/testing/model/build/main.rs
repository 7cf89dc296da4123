// SPDX-License-Identifier: GPL-2.0

//! Turns the kernel's `mlx5_ifc.h` into the layout tables of `src/ifc`.
//!
//! The header is named by `MLX5RS_IFC_H`, which the build tool sets to the file
//! of the kernel source it works with. Nothing of the header is kept in the
//! project: the tables are written to `OUT_DIR` and compiled in.

use std::collections::HashMap;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::exit;

mod header;

use header::Header;
use header::Kind;

fn fail(message: &str) -> ! {
    eprintln!("error: mlx5-model: {message}");
    exit(1);
}

fn main() {
    println!("cargo:rerun-if-env-changed=MLX5RS_IFC_H");
    println!("cargo:rerun-if-changed=build/main.rs");
    println!("cargo:rerun-if-changed=build/header.rs");

    let Some(path) = env::var_os("MLX5RS_IFC_H").map(PathBuf::from) else {
        fail(
            "MLX5RS_IFC_H is not set: it must name include/linux/mlx5/mlx5_ifc.h of a kernel \
             source tree. Run `make` in the top folder of the project, which finds the tree and \
             sets it.",
        );
    };
    let mut header = Header::default();
    if let Err(e) = read(&mut header, &path, 0) {
        fail(&e);
    }
    let tables = match emit(&header) {
        Ok(text) => text,
        Err(e) => fail(&format!("{}: {e}", path.display())),
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    if let Err(e) = fs::write(out.join("tables.rs"), tables) {
        fail(&format!("cannot write {}/tables.rs: {e}", out.display()));
    }
}

/// Parses `path` and, before it, the headers that it includes by `"name"` from its own folder.
fn read(header: &mut Header, path: &Path, depth: u32) -> Result<(), String> {
    if depth > 8 {
        return Err(format!("{}: includes nest deeper than 8", path.display()));
    }
    println!("cargo:rerun-if-changed={}", path.display());
    let text = fs::read_to_string(path).map_err(|e| {
        format!(
            "cannot read {} (from MLX5RS_IFC_H): {e}. Run `make` in the top folder of the project.",
            path.display()
        )
    })?;
    for name in header::quoted_includes(&text) {
        let dir = path.parent().unwrap_or(Path::new("."));
        read(header, &dir.join(name), depth + 1)?;
    }
    header
        .parse(&text)
        .map_err(|e| format!("{}: {e}", path.display()))
}

/// Writes the tables as Rust source.
fn emit(header: &Header) -> Result<String, String> {
    let layouts = header.resolve()?;
    let index: HashMap<&str, usize> = layouts
        .iter()
        .enumerate()
        .map(|(i, l)| (l.name.as_str(), i))
        .collect();
    let mut out = String::new();
    let w = &mut out;
    let _ = writeln!(
        w,
        "pub(super) static LAYOUTS: [Layout; {}] = [",
        layouts.len()
    );
    for l in &layouts {
        let _ = write!(
            w,
            "Layout{{name:{:?},bits:{},union:{},fields:&[",
            l.name, l.bits, l.union
        );
        for f in &l.fields {
            let inner = match &f.kind {
                Kind::Bits => "NONE".to_string(),
                Kind::Nested(name) => index[name.as_str()].to_string(),
            };
            let _ = write!(
                w,
                "Field{{name:{:?},offset:{},width:{},count:{},flexible:{},overlaid:{},inner:{inner}}},",
                f.name, f.offset, f.width, f.count, f.flexible, f.overlaid
            );
        }
        let _ = writeln!(w, "]}},");
    }
    let _ = writeln!(w, "];");

    // Opcodes: `MLX5_CMD_OP_<NAME> = <number>`. The first name of a number wins.
    let mut ops: Vec<(u64, &str)> = Vec::new();
    for (name, value) in &header.constants {
        if let Some(short) = name.strip_prefix("MLX5_CMD_OP_") {
            if short != "MAX" && *value <= 0xffff && !ops.iter().any(|(v, _)| v == value) {
                ops.push((*value, short));
            }
        }
    }
    ops.sort_unstable();
    let _ = writeln!(
        w,
        "pub(super) static OPCODES: [(u16, &str); {}] = [",
        ops.len()
    );
    for (value, name) in ops {
        let _ = writeln!(w, "({value:#x},{name:?}),");
    }
    let _ = writeln!(w, "];");
    Ok(out)
}
