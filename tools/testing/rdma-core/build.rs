// SPDX-License-Identifier: GPL-2.0

//! Compiles `c/` with rdma-core's installed headers, and rdma-core's mlx5 provider from its source.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::exit;

const VARIABLE: &str = "MLX5RS_RDMA_CORE";

/// Public headers that the source tree keeps elsewhere than under `infiniband`.
const PUBLIC: &[&str] = &[
    "libibverbs",
    "providers/mlx5/mlx5dv.h",
    "providers/mlx5/mlx5_api.h",
    "kernel-headers/rdma/ib_user_ioctl_verbs.h",
    "kernel-headers/rdma/mlx5_user_ioctl_verbs.h",
];

fn main() {
    println!("cargo:rerun-if-env-changed={VARIABLE}");
    println!("cargo:rerun-if-changed=c");
    println!("cargo:rerun-if-changed=build.rs");
    if let Err(error) = build() {
        println!("cargo::error={error}");
        exit(1);
    }
}

fn build() -> Result<(), String> {
    let root = env::var_os(VARIABLE).map(PathBuf::from).ok_or(format!(
        "{VARIABLE} is not set: it names the folder with rdma-core's headers and source. Use `make \
         host-test`, or `eval \"$(make -s env)\"` before cargo"
    ))?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let source = root.join("source");

    // What users of the public headers build. The newer x86 forms need SSSE3.
    for (name, x86) in [("dv", true), ("bench", false), ("bench_x86", true)] {
        let mut build = cc::Build::new();
        build.include(root.join("include"));
        build.file(if name == "dv" { "c/dv.c" } else { "c/bench.c" });
        if x86 {
            build.flag("-mssse3");
        }
        if name == "bench_x86" {
            build.define("X86", None);
        }
        compile(&mut build, name);
    }

    // The provider, as its own build system would see it.
    let include = out.join("include");
    headers(&source, &include).map_err(|error| format!("{}: {error}", source.display()))?;
    let mut build = cc::Build::new();
    build
        .file("c/provider.c")
        .file("c/address.c")
        .include(&include)
        .include(&source)
        .include(source.join("kernel-headers"))
        .include(source.join("providers/mlx5"))
        .define("_GNU_SOURCE", None)
        // What nobody calls needs nothing of the rest of the provider.
        .flag("-ffunction-sections")
        .flag("-fdata-sections")
        // Not our code.
        .warnings(false);
    compile(&mut build, "provider");
    Ok(())
}

fn compile(build: &mut cc::Build, name: &str) {
    // What rdma-core is built with in distributions, also when this crate is not optimised.
    build
        .opt_level(2)
        .std("gnu11")
        .cargo_metadata(false)
        .compile(name);
    println!("cargo:rustc-link-lib=static={name}");
    println!(
        "cargo:rustc-link-search=native={}",
        env::var("OUT_DIR").unwrap_or_default()
    );
}

/// What rdma-core's CMake files generate, as far as the provider needs it.
fn headers(source: &Path, include: &Path) -> std::io::Result<()> {
    for dir in ["infiniband", "kernel-abi", "valgrind"] {
        fs::create_dir_all(include.join(dir))?;
    }
    let public = include.join("infiniband");
    for path in PUBLIC {
        let path = source.join(path);
        if path.is_dir() {
            for entry in fs::read_dir(&path)? {
                copy_header(&entry?.path(), &public)?;
            }
        } else {
            copy_header(&path, &public)?;
        }
    }
    fs::copy(
        source.join("buildlib/fixup-include/valgrind-memcheck.h"),
        include.join("valgrind/memcheck.h"),
    )?;
    for name in ["ib_user_verbs.h", "mlx5-abi.h"] {
        let header = fs::read_to_string(source.join("kernel-headers/rdma").join(name))?;
        fs::write(include.join("kernel-abi").join(name), abi_structs(&header))?;
    }
    fs::write(
        include.join("config.h"),
        "#define HAVE_STATEMENT_EXPR 1\n\
         #define HAVE_BUILTIN_TYPES_COMPATIBLE_P 1\n\
         #define HAVE_TYPEOF 1\n\
         #define HAVE_ISBLANK 1\n\
         #define HAVE_BUILTIN_CLZ 1\n\
         #define HAVE_BUILTIN_CLZL 1\n\
         #define HAVE_FUNC_ATTRIBUTE_ALWAYS_INLINE 1\n\
         #define SIZEOF_LONG 8\n\
         #define VERBS_IOCTL_ONLY 0\n\
         #define VERBS_WRITE_ONLY 0\n",
    )
}

fn copy_header(path: &Path, to: &Path) -> std::io::Result<()> {
    if let Some(name) = path.file_name() {
        if path.extension().is_some_and(|extension| extension == "h") {
            fs::copy(path, to.join(name))?;
        }
    }
    Ok(())
}

/// Each structure of a kernel header as a macro `_STRUCT_<name>` of an anonymous structure, which
/// rdma-core's wrappers of the structures are made of.
fn abi_structs(header: &str) -> String {
    let mut out = String::new();
    // Open braces within the structure; none outside.
    let mut depth = 0;
    for line in header.lines() {
        let line = without_comments(line);
        let line = line.trim();
        if depth == 0 {
            let mut words = line.split_whitespace();
            if let (Some(kind @ ("struct" | "union")), Some(name), Some("{")) =
                (words.next(), words.next(), words.next())
            {
                // Writing to a string does not fail.
                let _ = writeln!(out, "#define _STRUCT_{name} {kind} {{ \\");
                depth = 1;
            }
            continue;
        }
        if line.ends_with('{') {
            depth += 1;
        } else if line.starts_with('}') {
            depth -= 1;
        }
        if depth == 0 {
            let _ = writeln!(out, "{}\n", line.trim_end_matches(';'));
        } else {
            let _ = writeln!(out, "{line} \\");
        }
    }
    out
}

/// A line without the comments that begin and end in it.
fn without_comments(line: &str) -> String {
    let mut rest = line;
    let mut out = String::new();
    while let Some((before, comment)) = rest.split_once("/*") {
        out.push_str(before);
        match comment.split_once("*/") {
            Some((_, after)) => rest = after,
            None => {
                // The end is in a later line: left as it is, since it ends there.
                out.push_str("/*");
                rest = comment;
                break;
            }
        }
    }
    out.push_str(rest);
    match out.split_once("//") {
        Some((code, _)) => code.to_owned(),
        None => out,
    }
}
