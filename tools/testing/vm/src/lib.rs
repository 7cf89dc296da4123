// SPDX-License-Identifier: GPL-2.0
//! Boots a kernel in QEMU, puts device models into it, and lets tests use and
//! judge them.
//!
//! The program `mlx5-vm` is for people (`run`, `shell`, `kunit`, `peer`); the
//! tests are in `tests/vm`. A test is a function over a [`vm::Vm`] and an
//! entry in its file's `TESTS`, which names the kernels it is for. It gets a
//! guest that other tests use as well ([`keeper`]), adds devices of its own
//! ([`vm::Vm::add_device`]), steers their models ([`model::Model::run`]), and
//! returns an error if something is not as it should be. Afterwards the
//! harness takes devices and driver away and fails the test if the kernel log
//! reports a defect or a model a violation.
//!
//! Nothing sleeps and hopes: what takes time is waited for by its effect, with
//! a bound that grows with the slowness of the kernel ([`vm::Vm::scaled`]).
//!
//! - [`manifest`]: what `make` prepared for a kernel
//! - [`vm`]: a guest, its devices, its kernel log
//! - [`keeper`]: guests shared by tests
//! - [`agent`], [`qmp`], [`model`]: the three channels to what runs
//! - [`klog`], [`ktap`]: what its log says
//! - [`peer`]: field cases on the kernel's own driver and on this one
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
pub mod peer;
pub mod process;
pub mod qemu;
pub mod qmp;
pub mod vm;
