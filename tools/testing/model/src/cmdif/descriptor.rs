// SPDX-License-Identifier: GPL-2.0

//! Command descriptor and mailbox block (hardware.md section 2.1).

use crate::checks::Rule;
use crate::vfio_user::dma::Fault;
use crate::vfio_user::dma::Memory;

use super::status::Delivery;

/// Bytes of a descriptor.
pub const DESCRIPTOR: usize = 64;
/// Bytes of input, and of output, in the descriptor itself.
pub const INLINE: usize = 16;
/// Shortest input or output: the header. Some replies end before [`INLINE`].
pub const MIN_LENGTH: u32 = 8;
/// Bytes of data in a mailbox block.
pub const BLOCK_DATA: usize = 512;
/// Bytes of a mailbox block.
pub const BLOCK: usize = 0x240;
/// Longest input or output. The longest of any command is far below; without a limit a hostile
/// length would be memory of that size here.
pub const MAX_LENGTH: u32 = 16 << 20;

/// Descriptor type of a PCI command.
const TYPE: u8 = 7;
/// Low bits of a mailbox pointer that are reserved.
const POINTER_RESERVED: u64 = 0x1ff;

const OWNER: usize = 0x3f;
const TOKEN: usize = 0x3c;
const SIGNATURE: usize = 0x3d;
const OUT_INLINE: usize = 0x20;

const BLOCK_RESERVED: std::ops::Range<usize> = 0x200..0x230;
const BLOCK_NEXT: usize = 0x230;
const BLOCK_NUMBER: usize = 0x238;
const BLOCK_RESERVED_2: usize = 0x23c;
const BLOCK_TOKEN: usize = 0x23d;
const BLOCK_CTRL_SIGNATURE: usize = 0x23e;
const BLOCK_SIGNATURE: usize = 0x23f;

/// What a check found: the rule that is broken, what was seen, and the delivery status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Rule.
    pub rule: Rule,
    /// What was seen.
    pub detail: String,
    /// What the driver is told.
    pub delivery: Delivery,
}

fn refuse<T>(rule: Rule, delivery: Delivery, detail: String) -> Result<T, Refusal> {
    Err(Refusal {
        rule,
        detail,
        delivery,
    })
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    let mut b = [0; 8];
    b.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(b)
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    let mut b = [0; 4];
    b.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(b)
}

fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |a, b| a ^ b)
}

/// A descriptor as software wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    raw: [u8; DESCRIPTOR],
}

impl Descriptor {
    /// Wraps the bytes.
    pub fn new(raw: [u8; DESCRIPTOR]) -> Self {
        Self { raw }
    }

    /// Whether the device owns it.
    pub fn owned_by_device(&self) -> bool {
        self.raw[OWNER] & 1 != 0
    }

    /// Token.
    pub fn token(&self) -> u8 {
        self.raw[TOKEN]
    }

    /// Input length.
    pub fn in_len(&self) -> u32 {
        be32(&self.raw, 0x04)
    }

    /// Output length.
    pub fn out_len(&self) -> u32 {
        be32(&self.raw, 0x38)
    }

    /// Address of the first input block.
    pub fn in_pointer(&self) -> u64 {
        be64(&self.raw, 0x08)
    }

    /// Address of the first output block.
    pub fn out_pointer(&self) -> u64 {
        be64(&self.raw, 0x30)
    }

    /// First bytes of the input.
    pub fn in_inline(&self) -> &[u8] {
        &self.raw[0x10..0x20]
    }

    /// Checks everything that does not need a mailbox.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.raw[0] != TYPE {
            let detail = format!("type {:#x}, expected {TYPE}", self.raw[0]);
            return refuse(Rule::DescriptorType, Delivery::DESCRIPTOR_TYPE, detail);
        }
        if xor(&self.raw) != 0xff {
            let detail = format!("descriptor signature {:#04x}", self.raw[SIGNATURE]);
            return refuse(Rule::Signature, Delivery::SIGNATURE, detail);
        }
        if self.raw[1..4] != [0; 3] || self.raw[OWNER] & !1 != 0 {
            let detail = format!(
                "reserved bytes {:02x?}, status bits of the last byte {:#04x}",
                &self.raw[1..4],
                self.raw[OWNER]
            );
            return refuse(Rule::DescriptorReserved, Delivery::RESERVED, detail);
        }
        if self.token() == 0 {
            return refuse(Rule::Token, Delivery::TOKEN, "token 0".into());
        }
        let (min, max) = (MIN_LENGTH, MAX_LENGTH);
        if !(min..=max).contains(&self.in_len()) {
            let detail = format!("input length {}, expected {min}..={max}", self.in_len());
            return refuse(Rule::Length, Delivery::IN_LENGTH, detail);
        }
        if !(min..=max).contains(&self.out_len()) {
            let detail = format!("output length {}, expected {min}..={max}", self.out_len());
            return refuse(Rule::Length, Delivery::OUT_LENGTH, detail);
        }
        for (what, len, pointer, delivery) in [
            (
                "input",
                self.in_len(),
                self.in_pointer(),
                Delivery::IN_POINTER,
            ),
            (
                "output",
                self.out_len(),
                self.out_pointer(),
                Delivery::OUT_POINTER,
            ),
        ] {
            let needed = len as usize > INLINE;
            if pointer & POINTER_RESERVED != 0 || needed != (pointer != 0) {
                let detail = format!("{what} mailbox at {pointer:#x} for {len} bytes");
                return refuse(Rule::MailboxPointer, delivery, detail);
            }
        }
        Ok(())
    }

    /// The descriptor as it goes back to software. Its last byte gives it back, so it must be
    /// written after everything else.
    pub fn completed(&self, out_inline: &[u8], token: u8, delivery: Delivery) -> [u8; DESCRIPTOR] {
        let mut raw = self.raw;
        let n = out_inline.len().min(INLINE);
        raw[OUT_INLINE..OUT_INLINE + n].copy_from_slice(&out_inline[..n]);
        raw[TOKEN] = token;
        raw[OWNER] = delivery.0 << 1;
        raw[SIGNATURE] = 0;
        raw[SIGNATURE] = !xor(&raw);
        raw
    }
}

/// Number of blocks for `len` bytes of input or output.
pub fn blocks(len: u32) -> usize {
    (len as usize).saturating_sub(INLINE).div_ceil(BLOCK_DATA)
}

/// Which chain of a command is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Input: data is read.
    In,
    /// Output: only the blocks' addresses are of interest.
    Out,
}

/// Walks the blocks for `len` bytes from `pointer`, and returns their addresses and, for input,
/// their data. The walk ends after as many blocks as `len` needs, so a chain that never ends does
/// no harm; software may keep longer chains than it needs.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn walk(
    memory: &Memory,
    pointer: u64,
    len: u32,
    token: u8,
    signed: bool,
    direction: Direction,
) -> Result<(Vec<u64>, Vec<u8>), Refusal> {
    let (what, delivery) = match direction {
        Direction::In => ("input", Delivery::IN_POINTER),
        Direction::Out => ("output", Delivery::OUT_POINTER),
    };
    let count = blocks(len);
    let mut addresses = Vec::with_capacity(count);
    let mut data = Vec::new();
    let mut at = pointer;
    for number in 0..count {
        if at & POINTER_RESERVED != 0 || at == 0 {
            let detail = format!("{what} block {number} of {count} at {at:#x}");
            return refuse(Rule::MailboxPointer, delivery, detail);
        }
        let mut block = [0; BLOCK];
        let reachable = memory.read(at, &mut block).and_then(|()| match direction {
            Direction::In => Ok(()),
            Direction::Out => memory.check(at, BLOCK, true),
        });
        if let Err(e) = reachable {
            let detail = format!("{what} block {number} of {count} at {at:#x}: {e}");
            return refuse(Rule::DmaUnmapped, delivery, detail);
        }
        check_block(&block, number, token, signed).map_err(|r| Refusal {
            detail: format!("{what} block {number}: {}", r.detail),
            ..r
        })?;
        if direction == Direction::In {
            let want = (len as usize - INLINE - data.len()).min(BLOCK_DATA);
            data.extend_from_slice(&block[..want]);
        }
        addresses.push(at);
        at = be64(&block, BLOCK_NEXT);
    }
    Ok((addresses, data))
}

fn check_block(block: &[u8; BLOCK], number: usize, token: u8, signed: bool) -> Result<(), Refusal> {
    if block[BLOCK_TOKEN] != token {
        let detail = format!("token {:#04x}, expected {token:#04x}", block[BLOCK_TOKEN]);
        return refuse(Rule::Token, Delivery::TOKEN, detail);
    }
    let found = be32(block, BLOCK_NUMBER);
    if found as usize != number {
        return refuse(
            Rule::BlockNumber,
            Delivery::BLOCK_NUMBER,
            format!("number {found}"),
        );
    }
    if block[BLOCK_RESERVED].iter().any(|b| *b != 0) || block[BLOCK_RESERVED_2] != 0 {
        let detail = "reserved bytes are not zero".to_string();
        return refuse(Rule::DescriptorReserved, Delivery::RESERVED, detail);
    }
    // With checksums off software may leave the signatures 0.
    let (ctrl, all) = (block[BLOCK_CTRL_SIGNATURE], block[BLOCK_SIGNATURE]);
    if (signed || ctrl != 0 || all != 0)
        && (xor(&block[0x200..=BLOCK_CTRL_SIGNATURE]) != 0xff || xor(block) != 0xff)
    {
        let detail = format!("signatures {ctrl:#04x}, {all:#04x}");
        return refuse(Rule::Signature, Delivery::SIGNATURE, detail);
    }
    Ok(())
}

/// Writes `data` (the output without its inline part) into the blocks at `addresses`.
///
/// # Errors
///
/// When the memory is gone since the walk.
pub fn fill(
    memory: &Memory,
    addresses: &[u64],
    data: &[u8],
    token: u8,
    signed: bool,
) -> Result<(), Fault> {
    for (&at, part) in addresses.iter().zip(data.chunks(BLOCK_DATA)) {
        let mut block = [0; BLOCK];
        memory.read(at, &mut block)?;
        block[..part.len()].copy_from_slice(part);
        block[BLOCK_TOKEN] = token;
        if signed {
            block[BLOCK_CTRL_SIGNATURE] = 0;
            block[BLOCK_CTRL_SIGNATURE] = !xor(&block[0x200..=BLOCK_CTRL_SIGNATURE]);
            block[BLOCK_SIGNATURE] = 0;
            block[BLOCK_SIGNATURE] = !xor(&block);
        }
        memory.write(at, &block)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
