// SPDX-License-Identifier: GPL-2.0

use mlx5_pure::cmdif::error::{CommandError, CommandId, Corrupt, Fault};
use mlx5_pure::cmdif::wire::{
    self, check_mailbox, mailbox, mailboxes, owned_by_device, reply_head, Delivery, Post,
    DESCRIPTOR, INLINE, MAILBOX, MAILBOX_DATA, MAX_MAILBOXES, MAX_MESSAGE,
};
use mlx5_pure::layouts::{Opcode, Status};
use proptest::prelude::*;

/// A number in big-endian bytes at a place of hardware.md 2.1.
fn be(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len]
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

/// A device's memory of one chain: block `i` is at address `(i + 1) * 1024`.
fn chain(message: &[u8], token: u8) -> Vec<[u8; MAILBOX]> {
    let rest = message.get(INLINE..).unwrap_or(&[]);
    let count = mailboxes(message.len());
    rest.chunks(MAILBOX_DATA)
        .enumerate()
        .map(|(i, part)| {
            let next = if i + 1 < count {
                (i as u64 + 2) * 1024
            } else {
                0
            };
            mailbox(part, next, i as u32, token)
        })
        .collect()
}

/// Reads a message as a device does, by the byte offsets of hardware.md 2.1.
fn read_as_device(descriptor: &[u8; DESCRIPTOR], memory: &[[u8; MAILBOX]]) -> Vec<u8> {
    assert_eq!(descriptor[0], 7, "transport");
    assert_eq!(xor(descriptor), 0xff, "signature of the descriptor");
    assert_eq!(descriptor[0x3f], 1, "owner");
    let len = be(descriptor, 4, 4) as usize;
    let token = descriptor[0x3c];
    let mut message = descriptor[0x10..0x20].to_vec();
    let mut address = be(descriptor, 8, 8);
    let mut number = 0;
    while address != 0 {
        let block = &memory[address as usize / 1024 - 1];
        assert_eq!(xor(block), 0xff, "signature");
        assert_eq!(xor(&block[0x200..0x23f]), 0xff, "signature of the trailer");
        assert_eq!(be(block, 0x238, 4), number, "block number");
        assert_eq!(block[0x23d], token, "token");
        assert!(block[0x200..0x230].iter().all(|byte| *byte == 0));
        message.extend_from_slice(&block[..MAILBOX_DATA]);
        address = be(block, 0x230, 8);
        number += 1;
    }
    assert!(
        message[len.max(INLINE)..].iter().all(|byte| *byte == 0),
        "padding"
    );
    message.truncate(len);
    message
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_device_reads_what_was_written(
        message in prop::collection::vec(any::<u8>(), 0..6000),
        output_len in any::<u32>(),
        output_ptr in any::<u64>(),
        token in 1_u8..,
    ) {
        let memory = chain(&message, token);
        prop_assert_eq!(memory.len(), mailboxes(message.len()));
        let descriptor = Post {
            head: &message[..message.len().min(INLINE)],
            input_len: message.len() as u32,
            input_ptr: if memory.is_empty() { 0 } else { 1024 },
            output_len,
            output_ptr,
            token,
        }
        .descriptor();
        prop_assert_eq!(read_as_device(&descriptor, &memory), message);
        prop_assert_eq!(be(&descriptor, 0x30, 8), output_ptr);
        prop_assert_eq!(be(&descriptor, 0x38, 4), u64::from(output_len));
    }
}

proptest! {
    #[test]
    fn any_flipped_bit_breaks_a_signature(
        data in prop::collection::vec(any::<u8>(), 0..=MAILBOX_DATA),
        next in any::<u64>(),
        number in any::<u32>(),
        token in any::<u8>(),
        bit in 0..MAILBOX * 8,
    ) {
        let mut block = mailbox(&data, next, number, token);
        prop_assert_eq!(xor(&block), 0xff);
        block[bit / 8] ^= 1 << (bit % 8);
        prop_assert_ne!(xor(&block), 0xff);
        let in_trailer = (0x200..0x23f).contains(&(bit / 8));
        prop_assert_eq!(xor(&block[0x200..0x23f]) == 0xff, !in_trailer);
    }

    #[test]
    fn data_beyond_a_mailbox_is_not_written(
        data in prop::collection::vec(any::<u8>(), MAILBOX_DATA..2 * MAILBOX_DATA),
    ) {
        prop_assert_eq!(mailbox(&data, 0, 0, 1), mailbox(&data[..MAILBOX_DATA], 0, 0, 1));
    }

    #[test]
    fn hostile_descriptors(
        mut bytes in prop::collection::vec(any::<u8>(), DESCRIPTOR),
        token in any::<u8>(),
        same in any::<bool>(),
        delivered in any::<bool>(),
    ) {
        if same {
            bytes[0x3c] = token;
        }
        if delivered {
            bytes[0x3f] &= 1;
        }
        let bytes: [u8; DESCRIPTOR] = bytes.try_into().unwrap();
        let expected = if bytes[0x3f] >> 1 != 0 {
            Err(Fault::Delivery(Delivery(bytes[0x3f] >> 1)))
        } else if bytes[0x3c] != token {
            Err(Fault::Corrupt(Corrupt::Token { expected: token, found: bytes[0x3c] }))
        } else {
            Ok(bytes[0x20..0x30].try_into().unwrap())
        };
        prop_assert_eq!(reply_head(&bytes, token), expected);
        prop_assert_eq!(owned_by_device(bytes[0x3f]), bytes[0x3f] & 1 == 1);
    }

    #[test]
    fn hostile_mailboxes(
        mut bytes in prop::collection::vec(any::<u8>(), MAILBOX),
        number in 0_u32..4,
        token in any::<u8>(),
        same in any::<(bool, bool)>(),
    ) {
        if same.0 {
            bytes[0x23d] = token;
        }
        if same.1 {
            bytes[0x238..0x23c].copy_from_slice(&number.to_be_bytes());
        }
        let bytes: [u8; MAILBOX] = bytes.try_into().unwrap();
        let ok = bytes[0x23d] == token && be(&bytes, 0x238, 4) == u64::from(number);
        prop_assert_eq!(check_mailbox(&bytes, number, token).is_ok(), ok);
    }

    #[test]
    fn mailboxes_hold_the_rest(len in 0_usize..3 * MAX_MESSAGE) {
        let count = mailboxes(len);
        prop_assert!(INLINE + count * MAILBOX_DATA >= len);
        prop_assert!(count == 0 || INLINE + (count - 1) * MAILBOX_DATA < len);
        prop_assert_eq!(count <= MAX_MAILBOXES, len <= MAX_MESSAGE);
    }

    #[test]
    fn a_refusal_names_everything(
        opcode in any::<u16>(),
        op_mod in any::<u16>(),
        uid in any::<u16>(),
        status in 1_u8..,
        syndrome in any::<u32>(),
    ) {
        let (opcode, status) = (Opcode(opcode), Status(status));
        let error = CommandError {
            id: CommandId { opcode, op_mod, uid },
            fault: Fault::Status { status, syndrome },
        };
        let key = u64::from(status.0) << 32 | u64::from(syndrome);
        prop_assert_eq!(error.search_key(), Some(key));
        prop_assert_eq!(error.errno(), -status.errno());
        prop_assert!(error.errno() < 0);
        prop_assert_eq!(
            error.to_string(),
            format!(
                "{opcode} op_mod {op_mod:#x} uid {uid}: {status} syndrome {syndrome:#x} ({key:#018x})"
            )
        );
    }

    #[test]
    fn every_delivery_status_is_an_error(delivery in 1_u8..128) {
        let fault = Fault::Delivery(Delivery(delivery));
        prop_assert!(fault.errno() < 0);
        let number = format!("{delivery:#x}");
        prop_assert!(Delivery(delivery).to_string().contains(&number));
    }
}

#[test]
fn the_longest_length_does_not_overflow() {
    assert_eq!(
        wire::mailboxes(usize::MAX),
        (usize::MAX - INLINE).div_ceil(MAILBOX_DATA)
    );
}
