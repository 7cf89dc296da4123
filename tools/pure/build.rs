// SPDX-License-Identifier: GPL-2.0

//! Checks that the bindgen output, which `layouts::ifc` includes, is there.

use std::env;
use std::path::Path;
use std::process::exit;

fn main() {
    println!("cargo:rerun-if-env-changed=MLX5RS_GEN");
    let Some(dir) = env::var_os("MLX5RS_GEN") else {
        println!(
            "cargo::error=MLX5RS_GEN is not set: it names the directory of ifc.rs, made from the \
             kernel's mlx5 headers. Use `make host-test`, or `eval \"$(make -s env)\"` before cargo"
        );
        exit(1);
    };
    let file = Path::new(&dir).join("ifc.rs");
    if !file.is_file() {
        println!(
            "cargo::error=MLX5RS_GEN={} does not hold ifc.rs: `make host-test` makes it from the \
             kernel's mlx5 headers",
            dir.to_string_lossy()
        );
        exit(1);
    }
    println!("cargo:rerun-if-changed={}", file.display());
    println!("cargo:rustc-env=MLX5RS_GEN={}", dir.to_string_lossy());
}
