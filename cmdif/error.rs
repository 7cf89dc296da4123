// SPDX-License-Identifier: GPL-2.0

//! Why a command failed: everything that an engineer searches for, and the errno at the edge.

use core::fmt;

use super::wire::Delivery;
use crate::layouts::{
    Opcode,
    Status, //
};

/// Linux error numbers that the transport itself reports (uapi `asm-generic/errno.h`); they are part
/// of the ABI and do not change.
pub mod errno {
    #![allow(missing_docs)]
    pub const EIO: i32 = 5;
    pub const ENXIO: i32 = 6;
    pub const EAGAIN: i32 = 11;
    pub const EFAULT: i32 = 14;
    pub const EBUSY: i32 = 16;
    pub const ENODEV: i32 = 19;
    pub const EINVAL: i32 = 22;
    pub const ENOMSG: i32 = 42;
    pub const EBADR: i32 = 53;
    pub const EPROTO: i32 = 71;
    pub const EMSGSIZE: i32 = 90;
    pub const EOPNOTSUPP: i32 = 95;
    pub const ETIMEDOUT: i32 = 110;
}

/// Which command it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandId {
    /// The operation.
    pub opcode: Opcode,
    /// Its modifier.
    pub op_mod: u16,
    /// The user context that it was issued for; 0 is the kernel.
    pub uid: u16,
}

impl fmt::Display for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} op_mod {:#x} uid {}",
            self.opcode, self.op_mod, self.uid
        )
    }
}

/// How a reply is not what the command interface prescribes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corrupt {
    /// The descriptor came back with another token.
    Token {
        /// What the driver wrote.
        expected: u8,
        /// What is there.
        found: u8,
    },
    /// A mailbox of the reply has another token.
    BlockToken {
        /// Which mailbox, from 0.
        block: u32,
        /// What the driver wrote.
        expected: u8,
        /// What is there.
        found: u8,
    },
    /// A mailbox of the reply has another number.
    BlockNumber {
        /// Which mailbox, from 0.
        block: u32,
        /// What is there.
        found: u32,
    },
    /// A user context has a number that stands for something else.
    Uid {
        /// What is there.
        found: u16,
    },
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token { expected, found } => {
                write!(f, "descriptor token {found:#x}, expected {expected:#x}")
            }
            Self::BlockToken {
                block,
                expected,
                found,
            } => write!(
                f,
                "reply mailbox {block}: token {found:#x}, expected {expected:#x}"
            ),
            Self::BlockNumber { block, found } => {
                write!(
                    f,
                    "reply mailbox {block}: block number {found}, expected {block}"
                )
            }
            Self::Uid { found } => write!(f, "uid {found:#x}, which no user can have"),
        }
    }
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The device executed the command and refused it.
    Status {
        /// Reply status.
        status: Status,
        /// Firmware's own reason.
        syndrome: u32,
    },
    /// The device could not read the command or write the reply.
    Delivery(Delivery),
    /// The reply violates the interface.
    Corrupt(Corrupt),
    /// No answer in time. The slot stays with the device.
    TimedOut {
        /// How long the device had.
        ms: u32,
        /// The slot.
        slot: u8,
    },
    /// No slot became free in time.
    NoSlot {
        /// How long the command waited.
        ms: u32,
    },
    /// Every slot of the class belongs to a command that timed out: none can become free unless the
    /// device wakes up.
    Stuck {
        /// How many slots that is.
        slots: usize,
    },
    /// The device is off the bus, or hangs: every read is all ones.
    Gone,
    /// The interface is down: the device failed, goes away, or was not started.
    Down,
    /// The command or its reply does not fit the transport.
    TooLong {
        /// Bytes needed.
        len: usize,
        /// Bytes possible.
        max: usize,
    },
    /// The device asked for more than the driver gives.
    Refused {
        /// What it would have then.
        value: u64,
        /// What it may have.
        max: u64,
    },
    /// The device does not have it, by the named capability: it was not asked.
    Unsupported(&'static str),
    /// The driver failed by itself, for example for want of memory; a positive errno.
    Os(i32),
}

impl Fault {
    /// Whether the device may not be done with the memory that the command handed over or asked
    /// back: it did not answer, or not so that the answer can be believed.
    pub fn leaves_device_busy(&self) -> bool {
        matches!(
            self,
            Self::TimedOut { .. } | Self::Gone | Self::Down | Self::Corrupt(_) | Self::Delivery(_)
        )
    }

    /// The errno, negative.
    pub fn errno(&self) -> i32 {
        use errno::*;
        -match *self {
            Self::Status { status, .. } => status.errno(),
            Self::Delivery(delivery) => delivery_errno(delivery),
            Self::Corrupt(_) => EPROTO,
            Self::TimedOut { .. } => ETIMEDOUT,
            Self::NoSlot { .. } => EBUSY,
            Self::Stuck { .. } => EAGAIN,
            Self::Gone => ENODEV,
            Self::Down => ENXIO,
            Self::TooLong { .. } => EMSGSIZE,
            Self::Refused { .. } => EINVAL,
            Self::Unsupported(_) => EOPNOTSUPP,
            Self::Os(errno) => errno,
        }
    }
}

/// The errno of a delivery status (hardware.md 2.2), positive.
fn delivery_errno(delivery: Delivery) -> i32 {
    use errno::*;
    match delivery {
        Delivery::SIGNATURE | Delivery::TOKEN => EBADR,
        Delivery::BAD_BLOCK_NUMBER | Delivery::OUT_PTR_ALIGN | Delivery::IN_PTR_ALIGN => EFAULT,
        Delivery::FW_INTERNAL => EIO,
        Delivery::IN_LENGTH
        | Delivery::OUT_LENGTH
        | Delivery::RESERVED_NOT_ZERO
        | Delivery::BAD_DESCRIPTOR_TYPE => ENOMSG,
        _ => EINVAL,
    }
}

/// A failed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandError {
    /// Which command.
    pub id: CommandId,
    /// What went wrong.
    pub fault: Fault,
}

impl CommandError {
    /// The errno, negative.
    pub fn errno(&self) -> i32 {
        self.fault.errno()
    }

    /// Status in bits 63 to 32, syndrome in bits 31 to 0, as one number to search for (M2.3).
    pub fn search_key(&self) -> Option<u64> {
        match self.fault {
            Fault::Status { status, syndrome } => {
                Some(u64::from(status.0) << 32 | u64::from(syndrome))
            }
            _ => None,
        }
    }
}

impl CommandError {
    /// The line in which upstream's driver tells of the failure, if monitors look for it (field case
    /// C27).
    pub fn for_monitors(&self) -> Option<ForMonitors> {
        matches!(self.fault, Fault::TimedOut { .. } | Fault::Status { .. })
            .then_some(ForMonitors(*self))
    }
}

/// A failed command in upstream's words.
#[derive(Clone, Copy)]
pub struct ForMonitors(CommandError);

impl fmt::Display for ForMonitors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CommandError { id, fault } = self.0;
        write!(f, "{}", id.opcode)?;
        match fault {
            Fault::Status { status, syndrome } => write!(
                f,
                " op_mod({:#x}) failed, status {status}, syndrome ({syndrome:#x}), err({})",
                id.op_mod,
                self.0.errno()
            ),
            _ => write!(f, " timeout. Will cause a leak of a command resource"),
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.id)?;
        match &self.fault {
            Fault::Status { status, syndrome } => {
                let key = self.search_key().unwrap_or(0);
                write!(f, "{status} syndrome {syndrome:#x} ({key:#018x})")
            }
            Fault::Delivery(delivery) => write!(f, "not delivered, {delivery}"),
            Fault::Corrupt(corrupt) => write!(f, "corrupt reply, {corrupt}"),
            Fault::TimedOut { ms, slot } => {
                write!(f, "timed out after {ms} ms (slot {slot})")
            }
            Fault::NoSlot { ms } => write!(f, "no command slot became free in {ms} ms"),
            Fault::Stuck { slots } => {
                write!(f, "all {slots} slots belong to commands that timed out")
            }
            Fault::Gone => write!(f, "the device does not answer, every read is all ones"),
            Fault::Down => write!(f, "the command interface is down"),
            Fault::TooLong { len, max } => write!(f, "{len} bytes, at most {max} are possible"),
            Fault::Refused { value, max } => {
                write!(
                    f,
                    "the device asks for {value} in all, at most {max} are given"
                )
            }
            Fault::Unsupported(capability) => {
                write!(
                    f,
                    "the device does not have it, by its capability {capability}"
                )
            }
            Fault::Os(errno) => write!(f, "driver error {errno}"),
        }
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_cmdif_error)]
mod tests {
    use super::*;
    use core::fmt::Write;

    struct Text {
        bytes: [u8; 160],
        len: usize,
    }

    impl Write for Text {
        fn write_str(&mut self, s: &str) -> fmt::Result {
            let end = self.len + s.len();
            let room = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
            room.copy_from_slice(s.as_bytes());
            self.len = end;
            Ok(())
        }
    }

    fn prints(fault: Fault, wanted: &str) -> bool {
        let error = CommandError {
            id: CommandId {
                opcode: Opcode::ENABLE_HCA,
                op_mod: 0,
                uid: 3,
            },
            fault,
        };
        is(&error, wanted)
    }

    fn is(what: &dyn fmt::Display, wanted: &str) -> bool {
        let mut text = Text {
            bytes: [0; 160],
            len: 0,
        };
        write!(text, "{what}").is_ok() && text.bytes.get(..text.len) == Some(wanted.as_bytes())
    }

    #[test]
    fn monitors_find_their_words() {
        let error = |fault| CommandError {
            id: CommandId {
                opcode: Opcode::ACCESS_REG,
                op_mod: 1,
                uid: 0,
            },
            fault,
        };
        let refused = error(Fault::Status {
            status: Status::BAD_PARAM_ERR,
            syndrome: 0x1234,
        });
        let late = error(Fault::TimedOut { ms: 1, slot: 2 });
        for (error, wanted) in [
            (
                refused,
                "ACCESS_REG(0x805) op_mod(0x1) failed, status BAD_PARAM_ERR(0x3), syndrome (0x1234), err(-22)",
            ),
            (
                late,
                "ACCESS_REG(0x805) timeout. Will cause a leak of a command resource",
            ),
        ] {
            let line = error.for_monitors();
            assert!(line.is_some_and(|line| is(&line, wanted)));
        }
        for fault in [Fault::Gone, Fault::Down, Fault::NoSlot { ms: 1 }] {
            assert!(error(fault).for_monitors().is_none());
        }
    }

    #[test]
    fn a_refusal_names_everything() {
        assert!(prints(
            Fault::Status {
                status: Status::BAD_PARAM_ERR,
                syndrome: 0x1234,
            },
            "ENABLE_HCA(0x104) op_mod 0x0 uid 3: BAD_PARAM_ERR(0x3) syndrome 0x1234 (0x0000000300001234)"
        ));
        assert!(prints(
            Fault::TimedOut { ms: 200, slot: 7 },
            "ENABLE_HCA(0x104) op_mod 0x0 uid 3: timed out after 200 ms (slot 7)"
        ));
        assert!(prints(
            Fault::Corrupt(Corrupt::Uid { found: 0xffff }),
            "ENABLE_HCA(0x104) op_mod 0x0 uid 3: corrupt reply, uid 0xffff, which no user can have"
        ));
        assert!(prints(
            Fault::Unsupported("uctx_cap"),
            "ENABLE_HCA(0x104) op_mod 0x0 uid 3: the device does not have it, by its capability uctx_cap"
        ));
        assert_eq!(Fault::Unsupported("uctx_cap").errno(), -95);
    }

    #[test]
    fn errno_of_every_delivery_status() {
        for (delivery, errno) in [
            (0x1, 53),
            (0x2, 53),
            (0x3, 14),
            (0x4, 14),
            (0x5, 14),
            (0x6, 5),
            (0x7, 42),
            (0x8, 42),
            (0x9, 42),
            (0x10, 42),
            (0x33, 22),
        ] {
            assert_eq!(Fault::Delivery(Delivery(delivery)).errno(), -errno);
        }
    }
}
