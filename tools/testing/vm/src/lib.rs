// SPDX-License-Identifier: GPL-2.0
//! Boots a kernel in QEMU, puts device models into it, and lets tests use and
//! judge them.
//!
//! - [`manifest`]: what `make` prepared for a kernel
//! - [`vm`]: a guest, its devices, its kernel log
//! - [`keeper`]: guests shared by tests
//! - [`agent`], [`qmp`], [`model`]: the three channels to what runs
//! - [`klog`], [`ktap`]: what its log says
//! - [`initramfs`], [`modules`], [`qemu`], [`process`]: how it is started

pub mod agent;
pub mod initramfs;
pub mod keeper;
pub mod klog;
pub mod ktap;
pub mod manifest;
pub mod model;
pub mod modules;
pub mod pci;
pub mod process;
pub mod qemu;
pub mod qmp;
pub mod vm;
