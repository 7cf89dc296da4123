// SPDX-License-Identifier: GPL-2.0

//! The pure parts of the mlx5_rs kernel driver, compiled for the host.
//!
//! These are the driver's own files, under the same module paths as in the kernel module. What they
//! parse comes from the device and is hostile: `tests/` has their property tests, `tools/fuzz` one
//! fuzz target per input. The device model uses the layouts.
//!
//! # Adding a structure
//!
//! Name the structure and the fields; everything else comes from the kernel's header:
//!
//! ```
//! pub use mlx5_pure::layouts; // what `layout!` expands to needs it at this place
//!
//! mlx5_rs_macros::layout! {
//!     /// ALLOC_PD's reply.
//!     pub struct AllocPdOut = alloc_pd_out {
//!         status: u8,
//!         syndrome: u32,
//!         /// Protection domain number.
//!         pd: narrow u32,
//!     }
//! }
//!
//! fn main() {
//!     let mut reply = AllocPdOut::new();
//!     assert!(reply.try_set_pd(0x12_3456).is_ok());
//!     assert_eq!(reply.as_bytes()[8..12], [0, 0x12, 0x34, 0x56]);
//!     let error = reply.try_set_pd(0x100_0000).unwrap_err();
//!     assert_eq!(
//!         error.to_string(),
//!         "alloc_pd_out.pd: 0x1000000 does not fit its 24 bits (at most 0xffffff)",
//!     );
//! }
//! ```
//!
//! A field that the header does not have is an error at compile time,
//!
//! ```compile_fail
//! pub use mlx5_pure::layouts;
//! mlx5_rs_macros::layout! {
//!     /// .
//!     pub struct AllocPdOut = alloc_pd_out { pdn: narrow u32 }
//! }
//! fn main() {}
//! ```
//!
//! and so is a type that does not agree with the width there:
//!
//! ```compile_fail
//! pub use mlx5_pure::layouts;
//! mlx5_rs_macros::layout! {
//!     /// .
//!     pub struct AllocPdOut = alloc_pd_out { pd: u32 }
//! }
//! fn main() {}
//! ```
//!
//! # Building
//!
//! The environment variable `MLX5RS_GEN` names the directory with `ifc.rs`, bindgen's output for
//! the kernel's mlx5 headers, at build time.

#![no_std]

#[path = "../../../layouts/mod.rs"]
pub mod layouts;

/// Capabilities: what of the driver's `caps/` is pure.
#[path = "../../../caps"]
pub mod caps {
    pub mod negotiate;
}

/// Command interface: what of the driver's `cmdif/` is pure.
#[path = "../../../cmdif"]
pub mod cmdif {
    pub mod error;
    pub mod gate;
    pub mod slots;
    pub mod wire;
}

/// Event queues: what of the driver's `eq/` is pure.
#[path = "../../../eq"]
pub mod eq {
    pub mod eqe;
    pub mod mask;
    pub mod ring;
}

/// Kernel wrappers: what of the driver's `kapi/` is pure.
#[path = "../../../kapi"]
pub mod kapi {
    pub mod silence;
}

/// Firmware pages: what of the driver's `pages/` is pure.
#[path = "../../../pages"]
pub mod pages {
    pub mod plan;
}

/// Memory registration: what of the driver's `mr/` is pure.
#[path = "../../../mr"]
pub mod mr {
    pub mod context;
}

/// Health: what of the driver's `health/` is pure.
#[path = "../../../health"]
pub mod health {
    pub mod buffer;
    pub mod policy;
}

/// Virtual functions: what of the driver's `sriov/` is pure.
#[path = "../../../sriov"]
pub mod sriov {
    pub mod plan;
}

/// Initialization segment: what of the driver's `segment/` is pure.
#[path = "../../../segment"]
pub mod segment {
    pub mod decode;
}

#[path = "../../../wqe/mod.rs"]
pub mod wqe;

/// Device: what of the driver's `device/` is pure.
#[path = "../../../device"]
pub mod device {
    pub mod state;
}

/// Firmware tracer: what of the driver's `tracer/` is pure.
#[path = "../../../tracer"]
pub mod tracer {
    pub mod assembly;
    pub mod block;
    pub mod capability;
    pub mod drain;
    pub mod event;
    pub mod format;
    pub mod ownership;
    pub mod pace;
    pub mod recent;
    pub mod strings;
    pub mod timestamp;
}
