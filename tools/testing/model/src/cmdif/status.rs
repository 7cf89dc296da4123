// SPDX-License-Identifier: GPL-2.0

//! Status codes of commands and of their delivery (hardware.md section 2.2).

use serde::Serialize;

/// Status byte of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Status(pub u8);

macro_rules! statuses {
    ($($name:ident $value:literal)*) => {
        impl Status {
            $(#[doc = concat!("`", stringify!($name), "`")] pub const $name: Status = Status($value);)*

            /// All codes that have a name.
            pub const NAMED: &'static [(&'static str, Status)] = &[$((stringify!($name), Status($value))),*];
        }
    };
}

statuses! {
    OK 0x00
    INT_ERR 0x01
    BAD_OP_ERR 0x02
    BAD_PARAM_ERR 0x03
    BAD_SYS_STATE_ERR 0x04
    BAD_RES_ERR 0x05
    RES_BUSY 0x06
    NOT_READY 0x07
    LIM_ERR 0x08
    BAD_RES_STATE_ERR 0x09
    IX_ERR 0x0a
    NO_RES_ERR 0x0f
    BAD_QP_STATE_ERR 0x10
    BAD_PKT_ERR 0x30
    BAD_SIZE_OUTS_CQES_ERR 0x40
    BAD_INP_LEN_ERR 0x50
    BAD_OUTP_LEN_ERR 0x51
}

impl Status {
    /// Name, if the code has one.
    pub fn name(self) -> Option<&'static str> {
        Self::NAMED
            .iter()
            .find(|(_, s)| *s == self)
            .map(|(n, _)| *n)
    }

    /// Code by name, with or without its `_ERR`.
    pub fn by_name(name: &str) -> Option<Self> {
        let bare = |n: &str| n.to_ascii_uppercase().trim_end_matches("_ERR").to_string();
        Self::NAMED
            .iter()
            .find(|(n, _)| bare(n) == bare(name))
            .map(|(_, s)| *s)
    }
}

/// Delivery status in the last byte of a descriptor, before it is shifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Delivery(pub u8);

impl Delivery {
    /// Delivered.
    pub const OK: Delivery = Delivery(0x0);
    /// Signature is wrong.
    pub const SIGNATURE: Delivery = Delivery(0x1);
    /// Token is wrong.
    pub const TOKEN: Delivery = Delivery(0x2);
    /// Block number is wrong.
    pub const BLOCK_NUMBER: Delivery = Delivery(0x3);
    /// Output pointer is misaligned or leads nowhere.
    pub const OUT_POINTER: Delivery = Delivery(0x4);
    /// Input pointer is misaligned or leads nowhere.
    pub const IN_POINTER: Delivery = Delivery(0x5);
    /// Input length is out of range.
    pub const IN_LENGTH: Delivery = Delivery(0x7);
    /// Output length is out of range.
    pub const OUT_LENGTH: Delivery = Delivery(0x8);
    /// Reserved bits are set.
    pub const RESERVED: Delivery = Delivery(0x9);
    /// Descriptor type is not 7.
    pub const DESCRIPTOR_TYPE: Delivery = Delivery(0x10);
}

/// Why a command fails. The number is its syndrome: firmware's own syndromes are not public, so
/// these are the model's, from 0x6d0001 on; docs/model-control.md lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Syndrome {
    /// No such opcode.
    Opcode = 0x6d_0001,
    /// The state of the device does not allow the command.
    State = 0x6d_0002,
    /// Boot pages are missing.
    BootPages = 0x6d_0003,
    /// Initialization pages are missing.
    InitPages = 0x6d_0004,
    /// op_mod is not one of the command's.
    OpMod = 0x6d_0005,
    /// Input is shorter than the command.
    InLength = 0x6d_0006,
    /// Output is shorter than the reply.
    OutLength = 0x6d_0007,
    /// A field has a value that it must not have.
    Parameter = 0x6d_0008,
    /// No such object.
    Object = 0x6d_0009,
    /// All objects of this kind are in use.
    Exhausted = 0x6d_000a,
    /// No such function.
    Function = 0x6d_000b,
    /// No such capability page.
    CapPage = 0x6d_000c,
    /// The capability is read-only.
    CapReadOnly = 0x6d_000d,
    /// The capability is above its maximum.
    CapAboveMax = 0x6d_000e,
    /// A page is misaligned, at 0, not mapped, or given already.
    Page = 0x6d_000f,
    /// No such register, or not for this access.
    Register = 0x6d_0010,
    /// Register data is shorter than the register.
    RegisterLength = 0x6d_0011,
    /// Objects are left.
    ObjectsLeft = 0x6d_0012,
    /// The capability for the command is off.
    Capability = 0x6d_0013,
    /// An address cannot be reached.
    Address = 0x6d_0014,
    /// No such user context, or the object is not this user's.
    User = 0x6d_0015,
    /// A trace buffer, or its mkey, is not as it must be.
    TraceBuffer = 0x6d_0016,
    /// The tracer belongs to somebody else, or to nobody.
    TraceOwner = 0x6d_0017,
}

/// A failed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Status.
    pub status: Status,
    /// Syndrome.
    pub syndrome: u32,
}

impl Failure {
    /// A failure with one of the model's syndromes.
    pub fn new(status: Status, syndrome: Syndrome) -> Self {
        Self {
            status,
            syndrome: syndrome as u32,
        }
    }

    /// BAD_PARAM_ERR with a syndrome.
    pub fn parameter(syndrome: Syndrome) -> Self {
        Self::new(Status::BAD_PARAM_ERR, syndrome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(Status::by_name("BAD_PARAM"), Some(Status::BAD_PARAM_ERR));
        assert_eq!(
            Status::by_name("bad_param_err"),
            Some(Status::BAD_PARAM_ERR)
        );
        assert_eq!(Status::by_name("RES_BUSY"), Some(Status::RES_BUSY));
        assert_eq!(Status::by_name("x"), None);
        assert_eq!(Status(0x51).name(), Some("BAD_OUTP_LEN_ERR"));
        assert_eq!(Status(0x52).name(), None);
    }
}
