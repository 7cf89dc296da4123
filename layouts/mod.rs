// SPDX-License-Identifier: GPL-2.0

//! Layouts of the device's structures.
//!
//! Every offset, width and number that the kernel's mlx5 headers hold comes from them, through
//! bindgen ([`ifc`]); `layout!` and `codes!` make typed views and named numbers of it. What the
//! headers lack is in [`own`], with its source.
//!
//! The module needs `core` only. It is part of the kernel module, and of the host crate
//! `mlx5-pure`.

pub mod bits;
pub mod caps;
pub mod codes;
pub mod command;
pub mod commands;
pub mod events;
pub mod own;
pub mod registers;
pub mod segment;
pub mod tracer;
pub mod wqe;

/// Output of bindgen for `ifc_helper.h`, made at build time; nothing else is in here.
///
/// Only the macros use it.
#[allow(
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks
)]
#[rustfmt::skip]
pub mod ifc {
    include!(concat!(env!("MLX5RS_GEN"), "/ifc.rs"));
}

pub use bits::{Description, Field, Layout, Overflow, Tail, WordField};
pub use codes::{CapType, EventType, HealthSyndrome, Opcode, Status};

/// The descriptions of all structures, by module.
pub const ALL: &[&[Description]] = &[
    caps::LAYOUTS,
    command::LAYOUTS,
    commands::LAYOUTS,
    events::LAYOUTS,
    own::LAYOUTS,
    registers::LAYOUTS,
    segment::LAYOUTS,
    tracer::LAYOUTS,
    wqe::LAYOUTS,
];
