// SPDX-License-Identifier: GPL-2.0

//! Message layouts of the vfio-user protocol, version 0.0, in the byte order of the host.
//!
//! Source: the vfio-user specification in QEMU's documentation; the kernel's
//! `linux/vfio.h` (through the crate vfio-bindings) for flags and indexes.

use zerocopy::FromBytes;
use zerocopy::Immutable;
use zerocopy::IntoBytes;
use zerocopy::KnownLayout;

/// Protocol version that is spoken.
pub const MAJOR: u16 = 0;
/// Protocol version that is spoken.
pub const MINOR: u16 = 0;

/// Bytes of a [`Header`].
pub const HEADER_SIZE: usize = 16;

/// Largest payload of REGION_READ, REGION_WRITE (`max_data_xfer_size`): the default of the
/// protocol.
pub const MAX_DATA: usize = 1 << 20;

/// Largest payload of any message that is kept; more is read and thrown away.
pub const MAX_PAYLOAD: usize = MAX_DATA + 4096;

/// Descriptors that a message may carry (`max_msg_fds`). SET_IRQS uses one for each vector.
pub const MAX_FDS: usize = 16;

/// Commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Command {
    /// Negotiates version and capabilities.
    Version = 1,
    /// Maps guest memory.
    DmaMap = 2,
    /// Unmaps guest memory.
    DmaUnmap = 3,
    /// Kind of the device.
    DeviceGetInfo = 4,
    /// Size and flags of a region.
    DeviceGetRegionInfo = 5,
    /// ioeventfds of a region (not offered).
    DeviceGetRegionIoFds = 6,
    /// Vectors of an interrupt index.
    DeviceGetIrqInfo = 7,
    /// Assigns event descriptors.
    DeviceSetIrqs = 8,
    /// Reads a region.
    RegionRead = 9,
    /// Writes a region.
    RegionWrite = 10,
    /// Server to client only.
    DmaRead = 11,
    /// Server to client only.
    DmaWrite = 12,
    /// Resets the device.
    DeviceReset = 13,
    /// Dirty page logging (not offered).
    DirtyPages = 14,
}

impl Command {
    /// The command with this number.
    pub fn from_number(number: u16) -> Option<Self> {
        use Command::*;
        [
            Version,
            DmaMap,
            DmaUnmap,
            DeviceGetInfo,
            DeviceGetRegionInfo,
            DeviceGetRegionIoFds,
            DeviceGetIrqInfo,
            DeviceSetIrqs,
            RegionRead,
            RegionWrite,
            DmaRead,
            DmaWrite,
            DeviceReset,
            DirtyPages,
        ]
        .into_iter()
        .find(|c| *c as u16 == number)
    }

    /// Name for logs.
    pub fn name(self) -> &'static str {
        match self {
            Command::Version => "VERSION",
            Command::DmaMap => "DMA_MAP",
            Command::DmaUnmap => "DMA_UNMAP",
            Command::DeviceGetInfo => "DEVICE_GET_INFO",
            Command::DeviceGetRegionInfo => "DEVICE_GET_REGION_INFO",
            Command::DeviceGetRegionIoFds => "DEVICE_GET_REGION_IO_FDS",
            Command::DeviceGetIrqInfo => "DEVICE_GET_IRQ_INFO",
            Command::DeviceSetIrqs => "DEVICE_SET_IRQS",
            Command::RegionRead => "REGION_READ",
            Command::RegionWrite => "REGION_WRITE",
            Command::DmaRead => "DMA_READ",
            Command::DmaWrite => "DMA_WRITE",
            Command::DeviceReset => "DEVICE_RESET",
            Command::DirtyPages => "DIRTY_PAGES",
        }
    }
}

/// [`Header::flags`]: low four bits are the kind of the message.
pub const FLAG_TYPE_MASK: u32 = 0xf;
/// A command.
pub const FLAG_COMMAND: u32 = 0;
/// A reply.
pub const FLAG_REPLY: u32 = 1;
/// The sender of the command wants no reply.
pub const FLAG_NO_REPLY: u32 = 1 << 4;
/// [`Header::error`] is valid.
pub const FLAG_ERROR: u32 = 1 << 5;

/// Start of every message.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// Chosen by the sender, repeated in the reply.
    pub id: u16,
    /// [`Command`].
    pub command: u16,
    /// Bytes of the message, this header included.
    pub size: u32,
    /// `FLAG_*`.
    pub flags: u32,
    /// errno of an error reply.
    pub error: u32,
}

/// VERSION, followed by JSON with a NUL at its end.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Version {
    /// Major.
    pub major: u16,
    /// Minor.
    pub minor: u16,
}

/// DMA_MAP.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DmaMap {
    /// Bytes of this structure.
    pub argsz: u32,
    /// [`DMA_READ`], [`DMA_WRITE`].
    pub flags: u32,
    /// Offset in the file of the descriptor.
    pub offset: u64,
    /// Address that the device uses.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// The device may read.
pub const DMA_READ: u32 = 1 << 0;
/// The device may write.
pub const DMA_WRITE: u32 = 1 << 1;

/// DMA_UNMAP.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DmaUnmap {
    /// Bytes of this structure.
    pub argsz: u32,
    /// [`UNMAP_DIRTY_BITMAP`], [`UNMAP_ALL`].
    pub flags: u32,
    /// Address that the device uses.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// Asks for a dirty bitmap with the reply (not offered).
pub const UNMAP_DIRTY_BITMAP: u32 = 1 << 0;
/// Unmaps everything; address and size are 0.
pub const UNMAP_ALL: u32 = 1 << 1;

/// DEVICE_GET_INFO.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceInfo {
    /// Bytes of this structure.
    pub argsz: u32,
    /// `VFIO_DEVICE_FLAGS_*`.
    pub flags: u32,
    /// Number of regions.
    pub num_regions: u32,
    /// Number of interrupt indexes.
    pub num_irqs: u32,
}

/// DEVICE_GET_REGION_INFO.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegionInfo {
    /// Bytes of this structure.
    pub argsz: u32,
    /// `VFIO_REGION_INFO_FLAG_*`.
    pub flags: u32,
    /// Region.
    pub index: u32,
    /// Offset of the first capability.
    pub cap_offset: u32,
    /// Bytes.
    pub size: u64,
    /// Offset for mmap.
    pub offset: u64,
}

/// DEVICE_GET_IRQ_INFO.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IrqInfo {
    /// Bytes of this structure.
    pub argsz: u32,
    /// `VFIO_IRQ_INFO_*`.
    pub flags: u32,
    /// Interrupt index.
    pub index: u32,
    /// Vectors.
    pub count: u32,
}

/// DEVICE_SET_IRQS, followed by data.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SetIrqs {
    /// Bytes of this structure and its data.
    pub argsz: u32,
    /// `VFIO_IRQ_SET_*`.
    pub flags: u32,
    /// Interrupt index.
    pub index: u32,
    /// First vector.
    pub start: u32,
    /// Vectors.
    pub count: u32,
}

/// REGION_READ and REGION_WRITE, followed by data in a write and in the reply to a read.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegionAccess {
    /// Offset in the region.
    pub offset: u64,
    /// Region.
    pub region: u32,
    /// Bytes.
    pub count: u32,
}
