// SPDX-License-Identifier: GPL-2.0

//! A ConnectX device in user space, served to QEMU over vfio-user.
//!
//! The model is faithful enough for a driver to come up on it, checks what the driver
//! does ([`checks`]), misbehaves on request ([`faults`]), and is steered and questioned
//! through a control socket ([`control`], described in docs/model-control.md).
//!
//! From the wire to the device:
//!
//! - [`vfio_user`]: the protocol, guest memory, interrupts.
//! - [`pci`], [`bar`]: configuration space and registers.
//! - [`device`]: the state of the function and its resets.
//! - [`link`], [`health`], [`stale`]: silence, death of the firmware, what a driver left behind.
//! - [`cmdif`]: the command interface; [`commands`]: what the commands do.
//! - [`caps`], [`pages`], [`eq`], [`mkey`], [`users`]: what the commands work on.
//! - [`tracer`]: what firmware says about itself.
//! - [`ifc`]: field layouts from the kernel's `mlx5_ifc.h`.
//! - [`run`]: the loop that all of it runs in.

pub mod bar;
pub mod caps;
pub mod checks;
pub mod cmdif;
pub mod commands;
pub mod control;
pub mod device;
pub mod eq;
pub mod faults;
pub mod health;
pub mod identity;
pub mod ifc;
pub mod link;
pub mod mkey;
pub mod pages;
pub mod pci;
pub mod run;
pub mod stale;
pub mod timers;
pub mod tracer;
pub mod users;
pub mod vfio_user;
