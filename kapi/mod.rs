// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers over kernel interfaces that the `kernel` crate does not offer yet.
//!
//! Lives here: every `unsafe` block of the driver that calls into C or touches DMA memory. Owns: the
//! C objects behind each wrapper, released on drop. May be called by: all rooms; calls none of them.
//!
//! Each file stands for one subsystem and is written so that it could move to `rust/kernel`.
//!
//! Pure, and on the host as well: [`silence`].

// The raw interfaces do not leave this folder.
mod bindings;
pub(crate) mod completion;
pub(crate) mod debugfs;
pub(crate) mod devlink;
pub(crate) mod dma;
pub(crate) mod irq;
pub(crate) mod kthread;
pub(crate) mod param;
pub(crate) mod pci;
pub(crate) mod pci_driver;
pub(crate) mod print;
pub(crate) mod silence;
pub(crate) mod trace;
pub(crate) mod workqueue;
