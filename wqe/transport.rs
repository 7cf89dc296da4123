// SPDX-License-Identifier: GPL-2.0

//! What kinds of send queue there are, and what each of them can do.

use super::build::{
    Bare,
    Ready,
    Unaddressed, //
};

/// Kind of a send queue, for code that learns it at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransportKind {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Datagrams.
    Ud,
    /// Datagrams whose WQEs have an Ethernet segment (IPoIB with checksums and LSO).
    UdOffload,
    /// Initiator of an extended reliable connection.
    Xrc,
    /// Initiator of dynamic connections.
    Dci,
    /// Raw Ethernet packets.
    Raw,
    /// Memory registration only.
    RegUmr,
}

impl TransportKind {
    /// All kinds, with the names that a person types.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Rc, "rc"),
        (Self::Uc, "uc"),
        (Self::Ud, "ud"),
        (Self::UdOffload, "ud-offload"),
        (Self::Xrc, "xrc"),
        (Self::Dci, "dci"),
        (Self::Raw, "raw"),
        (Self::RegUmr, "reg-umr"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(kind, _)| *kind == self)
            .map_or("", |(_, name)| *name)
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(kind, _)| *kind)
    }

    /// Each WQE with data has an address vector.
    pub const fn has_av(self) -> bool {
        matches!(self, Self::Ud | Self::UdOffload | Self::Dci)
    }

    /// RDMA writes exist.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Rc | Self::Uc | Self::Xrc | Self::Dci)
    }

    /// RDMA reads and atomics exist.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Rc | Self::Xrc | Self::Dci)
    }

    /// Messages can be sent.
    pub const fn sends(self) -> bool {
        !matches!(self, Self::Raw | Self::RegUmr)
    }
}

mod sealed {
    pub trait Sealed {}
}

/// Kind of a send queue, as a type.
pub trait Transport: sealed::Sealed {
    /// The same as a value.
    const KIND: TransportKind;
    /// What a WQE of such a queue can become first.
    type Start;
}

/// A transport with RDMA writes.
pub trait Writes: Transport {}
/// A transport with RDMA reads and atomics.
pub trait Reads: Writes {}

macro_rules! transports {
    ($($(#[$doc:meta])* $name:ident: $start:ty, [$($can:ident),*];)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $name {}
        impl sealed::Sealed for $name {}
        impl Transport for $name {
            const KIND: TransportKind = TransportKind::$name;
            type Start = $start;
        }
        $(impl $can for $name {})*
    )*};
}

transports! {
    /// Reliable connection.
    Rc: Ready, [Writes, Reads];
    /// Unreliable connection.
    Uc: Ready, [Writes];
    /// Datagrams.
    Ud: Unaddressed, [];
    /// Datagrams whose WQEs have an Ethernet segment.
    UdOffload: Unaddressed, [];
    /// Initiator of an extended reliable connection.
    Xrc: Unaddressed, [Writes, Reads];
    /// Initiator of dynamic connections.
    Dci: Unaddressed, [Writes, Reads];
    /// Raw Ethernet packets.
    Raw: Bare, [];
    /// Memory registration only.
    RegUmr: Bare, [];
}
