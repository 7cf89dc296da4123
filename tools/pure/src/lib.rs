// SPDX-License-Identifier: GPL-2.0

//! The pure parts of the mlx5_rs kernel driver, compiled for the host.
//!
//! These are the driver's own files, under the same module paths as in the kernel module. What they
//! parse comes from the device and is hostile: `tests/` has their property tests, `tools/fuzz` one
//! fuzz target per input. The device model uses the layouts.
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

/// Firmware pages: what of the driver's `pages/` is pure.
#[path = "../../../pages"]
pub mod pages {
    pub mod plan;
}

/// Initialization segment: what of the driver's `segment/` is pure.
#[path = "../../../segment"]
pub mod segment {
    pub mod decode;
}
