// SPDX-License-Identifier: GPL-2.0

//! The command queue: descriptor, mailbox block, and what all commands have in common
//! (hardware.md 2.1, 2.2).

use mlx5_rs_macros::layout;

layout! {
    /// A descriptor in the command queue.
    pub struct CmdQueueEntry = cmd_queue_entry {
        /// 7: PCI command transport.
        r#type: u8,
        /// Bytes, with the 16 inline ones.
        input_length: u32,
        input_mailbox_pointer_63_32: u32,
        /// The bits 31 to 9 of the address, in the low bits of the number.
        input_mailbox_pointer_31_9: narrow u32,
        command_input_inline_data: [u8; 16],
        command_output_inline_data: [u8; 16],
        output_mailbox_pointer_63_32: u32,
        /// The bits 31 to 9 of the address, in the low bits of the number.
        output_mailbox_pointer_31_9: narrow u32,
        /// Bytes, with the 16 inline ones.
        output_length: u32,
        token: u8,
        signature: u8,
        /// Delivery status.
        status: narrow u8,
        /// 1 while the device owns the descriptor.
        ownership: bool,
    }

    /// The descriptor as `device.h` has it: with whole 64-bit addresses, and status and ownership
    /// in one byte.
    pub struct CmdLayout = struct mlx5_cmd_layout {
        r#type: u8,
        inlen: u32,
        in_ptr: u64,
        input: [u32; 4] = in,
        output: [u32; 4] = out,
        out_ptr: u64,
        outlen: u32,
        token: u8,
        sig: u8,
        /// Delivery status in bits 7 to 1, ownership (1: device) in bit 0.
        status_own: u8,
    }

    /// A mailbox block.
    pub struct CmdProtBlock = struct mlx5_cmd_prot_block {
        data: [u8; 512],
        /// Address of the next block; 0 in the last one.
        next: u64,
        /// Counts up from 0 along the chain.
        block_num: u32,
        token: u8,
        ctrl_sig: u8,
        sig: u8,
    }

    /// What the first 16 bytes of every command have in common.
    ///
    /// The header has no structure for that; ALLOC_UAR has these fields and no others. In commands
    /// for general objects, the object's type is in the place of `op_mod`.
    pub struct CmdIn = alloc_uar_in {
        /// A [`Opcode`](super::Opcode).
        opcode: u16,
        /// The user context that the command is for; 0 is the kernel's own.
        uid: u16,
        op_mod: u16,
    }

    /// What the first 16 bytes of every reply have in common.
    ///
    /// The header has no structure for that; DEALLOC_UAR's reply has nothing else.
    pub struct CmdOut = dealloc_uar_out {
        /// A [`Status`](super::Status).
        status: u8,
        syndrome: u32,
    }
}

impl<B: core::borrow::Borrow<[u8; CmdIn::LEN]>> CmdIn<B> {
    /// The opcode, with its name.
    pub fn op(&self) -> super::Opcode {
        super::Opcode(self.opcode())
    }
}

impl<B: core::borrow::Borrow<[u8; CmdOut::LEN]>> CmdOut<B> {
    /// The status, with its name.
    pub fn code(&self) -> super::Status {
        super::Status(self.status())
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_layouts_command)]
mod tests {
    use super::*;

    #[test]
    fn places_of_the_fact_sheet() {
        assert_eq!(CmdQueueEntry::LEN, 64);
        assert_eq!(CmdLayout::LEN, 64);
        assert_eq!(CmdProtBlock::LEN, 0x240);
        assert_eq!(CmdProtBlock::NEXT.offset, 0x230 * 8);
        assert_eq!(CmdProtBlock::SIG.offset, 0x23f * 8);
        assert_eq!(CmdQueueEntry::STATUS.offset, 0x3f * 8);
        assert_eq!(CmdQueueEntry::OWNERSHIP.offset, 0x3f * 8 + 7);
        assert_eq!(CmdLayout::OUT_PTR.offset, 0x30 * 8);
    }

    #[test]
    fn both_views_of_a_descriptor_agree() {
        let mut c = CmdLayout::new();
        c.set_in_ptr(0x1122_3344_5566_7800)
            .set_inlen(272)
            .set_token(9)
            .set_status_own(0x2 << 1 | 1);
        let ifc = CmdQueueEntry::view(c.as_bytes());
        assert_eq!(ifc.input_mailbox_pointer_63_32(), 0x1122_3344);
        assert_eq!(ifc.input_mailbox_pointer_31_9(), 0x5566_7800 >> 9);
        assert_eq!(ifc.input_length(), 272);
        assert_eq!(ifc.token(), 9);
        assert_eq!(ifc.status(), 2);
        assert!(ifc.ownership());
    }
}
