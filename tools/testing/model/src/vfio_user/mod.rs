// SPDX-License-Identifier: GPL-2.0

//! vfio-user server: the protocol that QEMU's `vfio-user-pci` speaks.
//!
//! - [`wire`]: message layouts.
//! - [`connection`]: framing on the stream socket, file descriptors, replies.
//! - [`server`]: listening, one client after the other, dispatch to a [`Backend`].
//! - [`dma`]: guest memory as the client maps it.
//! - [`irq`]: interrupt vectors and their event descriptors.
//!
//! Nothing in here blocks: the caller polls the descriptors and calls
//! [`server::Server::service`] when there is something to read. Errors of a request go
//! back as error replies; only a stream that can no longer be parsed is closed.

use std::os::fd::OwnedFd;

use nix::errno::Errno;

pub mod connection;
pub mod dma;
pub mod irq;
pub mod server;
pub mod wire;

/// A region as REGION_INFO describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Bytes; 0 for a region that does not exist.
    pub size: u64,
    /// `VFIO_REGION_INFO_FLAG_*`.
    pub flags: u32,
}

/// An interrupt index as IRQ_INFO describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Irq {
    /// Vectors; 0 for an index that does not exist.
    pub count: u32,
    /// `VFIO_IRQ_INFO_*`.
    pub flags: u32,
}

/// A SET_IRQS request.
#[derive(Debug)]
pub struct IrqSet {
    /// `VFIO_IRQ_SET_*`.
    pub flags: u32,
    /// Interrupt index.
    pub index: u32,
    /// First vector.
    pub start: u32,
    /// Number of vectors.
    pub count: u32,
    /// Event descriptors for the vectors, fewer (or none) to take them away.
    pub fds: Vec<OwnedFd>,
    /// Bytes after the fixed part (`VFIO_IRQ_SET_DATA_BOOL`).
    pub data: Vec<u8>,
}

/// A device that a [`server::Server`] serves.
///
/// Every error number goes to the client as it is.
pub trait Backend {
    /// Flags, number of regions, number of interrupt indexes.
    fn info(&self) -> (u32, u32, u32);

    /// Region `index`.
    fn region(&self, index: u32) -> Option<Region>;

    /// Interrupt index `index`.
    fn irq(&self, index: u32) -> Option<Irq>;

    /// Reads `data.len()` bytes; the server has checked the range against [`Backend::region`].
    ///
    /// # Errors
    ///
    /// Any error number.
    fn region_read(&mut self, index: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno>;

    /// Writes `data`; the server has checked the range against [`Backend::region`].
    ///
    /// # Errors
    ///
    /// Any error number.
    fn region_write(&mut self, index: u32, offset: u64, data: &[u8]) -> Result<(), Errno>;

    /// Makes guest memory reachable.
    ///
    /// # Errors
    ///
    /// Any error number.
    fn dma_map(&mut self, map: dma::Request, fd: Option<OwnedFd>) -> Result<(), Errno>;

    /// Takes guest memory away.
    ///
    /// # Errors
    ///
    /// Any error number.
    fn dma_unmap(&mut self, range: dma::Range) -> Result<(), Errno>;

    /// Sets, clears or raises interrupts; the server has checked the range against
    /// [`Backend::irq`].
    ///
    /// # Errors
    ///
    /// Any error number.
    fn set_irqs(&mut self, set: IrqSet) -> Result<(), Errno>;

    /// DEVICE_RESET.
    fn reset(&mut self);

    /// The client is gone: forget its memory and interrupts.
    fn disconnected(&mut self);
}

/// The numbered commands with their names, for logs.
pub(crate) fn command_name(command: u16) -> &'static str {
    wire::Command::from_number(command).map_or("unknown command", wire::Command::name)
}
