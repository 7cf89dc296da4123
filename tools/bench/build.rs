// SPDX-License-Identifier: GPL-2.0

//! Compiles the C side.

fn main() {
    for file in ["c/upstream.c", "c/upstream.h"] {
        println!("cargo:rerun-if-changed={file}");
    }
    // As the kernel is compiled, whatever profile the Rust side has.
    cc::Build::new()
        .file("c/upstream.c")
        .opt_level(2)
        .std("gnu11")
        .flag_if_supported("-fno-strict-aliasing")
        .compile("mlx5_bench_upstream");
}
