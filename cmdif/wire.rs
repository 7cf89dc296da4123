// SPDX-License-Identifier: GPL-2.0

//! How a command looks in memory: descriptor, mailbox blocks, tokens, signatures
//! (hardware.md 2.1).
//!
//! The first 16 bytes of a message are in the descriptor, the rest in a chain of mailbox blocks of
//! 512 bytes each.

use core::fmt;

use super::error::{
    Corrupt,
    Fault, //
};
use crate::layouts::command::{
    CmdLayout,
    CmdProtBlock,
    CmdQueueEntry, //
};

/// Bytes of a message in the descriptor.
pub const INLINE: usize = 16;

/// Bytes of a message in one mailbox.
pub const MAILBOX_DATA: usize = 512;

/// Bytes of a descriptor.
pub const DESCRIPTOR: usize = CmdLayout::LEN;

/// Bytes of a mailbox with its trailer.
pub const MAILBOX: usize = CmdProtBlock::LEN;

/// The distance of mailboxes in memory: the next power of two, so that none crosses a page.
pub const MAILBOX_STRIDE: usize = 1024;

/// Most mailboxes of one message, each way: no command known needs more than 32 KiB.
pub const MAX_MAILBOXES: usize = 64;

/// The longest message in bytes.
pub const MAX_MESSAGE: usize = INLINE + MAX_MAILBOXES * MAILBOX_DATA;

/// Descriptor type of a command over PCI (hardware.md 2.1).
const TYPE_PCI_CMD_XPORT: u8 = 7;

/// Bit 0 of the last descriptor byte: the device owns the descriptor.
const OWNED_BY_DEVICE: u8 = 1;

/// Offset of that byte in the descriptor.
pub const OWNER_OFFSET: usize = CmdLayout::STATUS_OWN.offset / 8;

/// Delivery status of a command, bits 7 to 1 of the last descriptor byte. Not in a public header:
/// hardware.md 2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery(
    /// The number on the wire.
    pub u8,
);

#[allow(missing_docs)]
impl Delivery {
    pub const OK: Self = Self(0x0);
    pub const SIGNATURE: Self = Self(0x1);
    pub const TOKEN: Self = Self(0x2);
    pub const BAD_BLOCK_NUMBER: Self = Self(0x3);
    pub const OUT_PTR_ALIGN: Self = Self(0x4);
    pub const IN_PTR_ALIGN: Self = Self(0x5);
    pub const FW_INTERNAL: Self = Self(0x6);
    pub const IN_LENGTH: Self = Self(0x7);
    pub const OUT_LENGTH: Self = Self(0x8);
    pub const RESERVED_NOT_ZERO: Self = Self(0x9);
    pub const BAD_DESCRIPTOR_TYPE: Self = Self(0x10);
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match *self {
            Self::OK => "ok",
            Self::SIGNATURE => "signature error",
            Self::TOKEN => "token error",
            Self::BAD_BLOCK_NUMBER => "bad block number",
            Self::OUT_PTR_ALIGN => "output pointer not aligned",
            Self::IN_PTR_ALIGN => "input pointer not aligned",
            Self::FW_INTERNAL => "firmware internal error",
            Self::IN_LENGTH => "input length error",
            Self::OUT_LENGTH => "output length error",
            Self::RESERVED_NOT_ZERO => "reserved field not zero",
            Self::BAD_DESCRIPTOR_TYPE => "bad descriptor type",
            _ => "unknown",
        };
        write!(f, "delivery status {:#x} ({text})", self.0)
    }
}

/// How many mailboxes a message of `len` bytes takes.
pub fn mailboxes(len: usize) -> usize {
    len.saturating_sub(INLINE).div_ceil(MAILBOX_DATA)
}

/// XOR of all bytes.
fn xor8(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

/// The command side of a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Post<'a> {
    /// The first bytes of the input, at most [`INLINE`].
    pub head: &'a [u8],
    /// Length of the whole input in bytes.
    pub input_len: u32,
    /// DMA address of the first input mailbox, 0 without one.
    pub input_ptr: u64,
    /// Length of the whole output in bytes.
    pub output_len: u32,
    /// DMA address of the first output mailbox, 0 without one.
    pub output_ptr: u64,
    /// The token of the command.
    pub token: u8,
}

impl Post<'_> {
    /// The descriptor, signed and owned by the device.
    pub fn descriptor(&self) -> [u8; DESCRIPTOR] {
        let mut bytes = [0; DESCRIPTOR];
        CmdLayout::view_mut(&mut bytes)
            .set_type(TYPE_PCI_CMD_XPORT)
            .set_inlen(self.input_len)
            .set_in_ptr(self.input_ptr)
            .set_out_ptr(self.output_ptr)
            .set_outlen(self.output_len)
            .set_token(self.token)
            .set_status_own(OWNED_BY_DEVICE);
        let mut entry = CmdQueueEntry::view_mut(&mut bytes);
        for (to, from) in entry
            .command_input_inline_data_mut()
            .iter_mut()
            .zip(self.head)
        {
            *to = *from;
        }
        let sig = !xor8(&bytes);
        CmdLayout::view_mut(&mut bytes).set_sig(sig);
        bytes
    }
}

/// Whether the device still owns a descriptor with this last byte.
pub fn owned_by_device(status_own: u8) -> bool {
    status_own & OWNED_BY_DEVICE != 0
}

/// Reads the reply side of a descriptor: the first [`INLINE`] bytes of the output.
///
/// # Errors
///
/// [`Fault::Delivery`], or [`Fault::Corrupt`] if the token is not `token`.
pub fn reply_head(bytes: &[u8; DESCRIPTOR], token: u8) -> Result<[u8; INLINE], Fault> {
    let desc = CmdLayout::view(bytes);
    let delivery = Delivery(desc.status_own() >> 1);
    if delivery != Delivery::OK {
        return Err(Fault::Delivery(delivery));
    }
    if desc.token() != token {
        return Err(Fault::Corrupt(Corrupt::Token {
            expected: token,
            found: desc.token(),
        }));
    }
    Ok(*CmdQueueEntry::view(bytes).command_output_inline_data())
}

/// Mailbox `number` of a chain: `data` (at most [`MAILBOX_DATA`] bytes), the address of the next one
/// (0 for the last), signed.
pub fn mailbox(data: &[u8], next: u64, number: u32, token: u8) -> [u8; MAILBOX] {
    let mut bytes = [0; MAILBOX];
    let mut block = CmdProtBlock::view_mut(&mut bytes);
    block.set_next(next).set_block_num(number).set_token(token);
    for (to, from) in block.data_mut().iter_mut().zip(data) {
        *to = *from;
    }
    // The control signature covers the trailer up to itself, the signature all before it. The xor of
    // the covered bytes with the signature is 0xff then.
    let trailer = bytes.get(MAILBOX_DATA..).map_or(0, xor8);
    CmdProtBlock::view_mut(&mut bytes).set_ctrl_sig(!trailer);
    let sig = !xor8(&bytes);
    CmdProtBlock::view_mut(&mut bytes).set_sig(sig);
    bytes
}

/// Checks that a mailbox is number `number` of the reply with this token.
///
/// # Errors
///
/// [`Fault::Corrupt`] if token or number are not the ones that the driver wrote.
pub fn check_mailbox(bytes: &[u8; MAILBOX], number: u32, token: u8) -> Result<(), Fault> {
    let block = CmdProtBlock::view(bytes);
    if block.token() != token {
        return Err(Fault::Corrupt(Corrupt::BlockToken {
            block: number,
            expected: token,
            found: block.token(),
        }));
    }
    if block.block_num() != number {
        return Err(Fault::Corrupt(Corrupt::BlockNumber {
            block: number,
            found: block.block_num(),
        }));
    }
    Ok(())
}

#[mlx5_rs_macros::suite(mlx5_rs_cmdif_wire)]
mod tests {
    use super::*;

    #[test]
    fn mailboxes_of_a_length() {
        for (len, want) in [
            (0, 0),
            (16, 0),
            (17, 1),
            (528, 1),
            (529, 2),
            (0x1010, 8),
            (MAX_MESSAGE, MAX_MAILBOXES),
        ] {
            assert_eq!(mailboxes(len), want);
        }
    }

    #[test]
    fn descriptor_is_signed() {
        let bytes = Post {
            head: &[1, 4, 0, 0],
            input_len: 16,
            input_ptr: 0,
            output_len: 0x1010,
            output_ptr: 0x1_2345_6400,
            token: 0x5a,
        }
        .descriptor();
        assert_eq!(xor8(&bytes), 0xff);
        assert_eq!(bytes[0], 7);
        assert_eq!(bytes[0x10], 1);
        assert_eq!(bytes[0x3c], 0x5a);
        assert!(owned_by_device(bytes[OWNER_OFFSET]));
    }

    #[test]
    fn mailbox_is_signed_twice() {
        let bytes = mailbox(&[0x11; 100], 0x4400, 3, 9);
        assert_eq!(xor8(&bytes[0x200..0x23f]), 0xff);
        assert_eq!(xor8(&bytes), 0xff);
        assert_eq!(bytes[99], 0x11);
        assert_eq!(check_mailbox(&bytes, 3, 9), Ok(()));
    }

    #[test]
    fn foreign_mailboxes_are_refused() {
        let bytes = mailbox(&[], 0, 1, 9);
        assert_eq!(
            check_mailbox(&bytes, 1, 8),
            Err(Fault::Corrupt(Corrupt::BlockToken {
                block: 1,
                expected: 8,
                found: 9
            }))
        );
        assert_eq!(
            check_mailbox(&bytes, 2, 9),
            Err(Fault::Corrupt(Corrupt::BlockNumber { block: 2, found: 1 }))
        );
    }

    #[test]
    fn delivery_comes_before_all_else() {
        let mut bytes = [0; DESCRIPTOR];
        bytes[OWNER_OFFSET] = 0x2 << 1;
        assert_eq!(reply_head(&bytes, 1), Err(Fault::Delivery(Delivery::TOKEN)));
        bytes[OWNER_OFFSET] = 0;
        assert_eq!(
            reply_head(&bytes, 1),
            Err(Fault::Corrupt(Corrupt::Token {
                expected: 1,
                found: 0
            }))
        );
    }
}
