// SPDX-License-Identifier: GPL-2.0

//! Raw bindings of the kernel headers that the `kernel` crate's own bindings lack.
//!
//! Made at build time by bindgen from `helper.h`, with the list in `parameters`. Types that the
//! `kernel` crate has are its own here too. May be used by: the wrappers of [`kapi`](super) alone,
//! which is why this module is private to it.

#![allow(
    dead_code,
    // Empty structures of the kernel where what they are for is off.
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_imports,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks
)]

// What bindgen made takes precedence over a glob.
use kernel::{
    bindings::*,
    ffi, //
};
use pin_init::MaybeZeroable;

include!(concat!(env!("MLX5RS_GEN"), "/bindings.rs"));
