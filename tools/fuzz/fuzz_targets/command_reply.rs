// SPDX-License-Identifier: GPL-2.0

//! A completed command: a byte for the token, the descriptor, and the mailboxes of the reply.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_pure::cmdif::error::{CommandError, CommandId, Fault};
use mlx5_pure::cmdif::wire::{check_mailbox, reply_head, DESCRIPTOR, MAILBOX, MAILBOX_DATA};
use mlx5_pure::layouts::command::CmdOut;
use mlx5_pure::layouts::{commands, Opcode, Status};

/// The reply's bytes, put together as the driver does.
fn reply(token: u8, descriptor: &[u8; DESCRIPTOR], mailboxes: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut message = reply_head(descriptor, token)?.to_vec();
    for (number, block) in (0..).zip(mailboxes.chunks_exact(MAILBOX)) {
        let block = block.first_chunk().expect("the size of a mailbox");
        check_mailbox(block, number, token)?;
        message.extend_from_slice(&block[..MAILBOX_DATA]);
    }
    Ok(message)
}

/// Reads all fields of the reply, whatever command it belongs to.
fn print(message: &[u8]) -> usize {
    macro_rules! print {
        ($($name:ident)*) => {
            0 $(+ commands::$name::of(message).map_or(0, |view| format!("{view:?}").len()))*
        };
    }
    print!(
        EnableHcaOut DisableHcaOut QueryIssiOut SetIssiOut QueryPagesOut ManagePagesOut
        AccessRegisterOut QueryHcaCapOut SetHcaCapOut InitHcaOut TeardownHcaOut
        SetDriverVersionOut QueryAdapterOut AllocUarOut DeallocUarOut CreateEqOut DestroyEqOut
        QueryEqOut
    )
}

fuzz_target!(|data: &[u8]| {
    let Some((token, rest)) = data.split_first() else {
        return;
    };
    let Some((descriptor, mailboxes)) = rest.split_first_chunk() else {
        return;
    };
    let id = CommandId {
        opcode: Opcode::QUERY_ADAPTER,
        op_mod: 0,
        uid: 0,
    };
    match reply(*token, descriptor, mailboxes) {
        Ok(message) => {
            let header = CmdOut::of(&message).expect("a reply has 16 bytes");
            let fault = Fault::Status {
                status: Status(header.status()),
                syndrome: header.syndrome(),
            };
            let error = CommandError { id, fault };
            assert_eq!(
                error.search_key().map(|key| key as u32),
                Some(header.syndrome())
            );
            assert!(error.errno() < 0 || header.status() == 0);
            assert!(error.to_string().starts_with("QUERY_ADAPTER(0x101) "));
            assert_ne!(print(&message), 0);
        }
        Err(fault) => {
            assert!(fault.errno() < 0);
            assert!(fault.leaves_device_busy());
            assert!(!CommandError { id, fault }.to_string().is_empty());
        }
    }
});
