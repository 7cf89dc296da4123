// SPDX-License-Identifier: GPL-2.0

//! Registers of the device, read and written through ACCESS_REG (hardware.md 2.5).

use kernel::prelude::*;

use super::{
    os,
    slots::Class,
    CommandError,
    CommandId,
    Interface, //
};
use crate::layouts::{
    commands::{
        AccessRegisterIn,
        AccessRegisterOut, //
    },
    own::RegisterId,
    Layout,
    Opcode, //
};

/// Which way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// `data` goes to the register.
    Write,
    /// The register goes to `data`.
    Read,
}

/// Accesses register `register`; `data` then holds what the device answered.
///
/// # Errors
///
/// [`CommandError`]: any fault.
pub(crate) fn access<R: Layout>(
    cmd: &Interface<'_>,
    register: RegisterId,
    access: Access,
    data: &mut R,
) -> Result<(), CommandError> {
    let id = CommandId {
        opcode: Opcode::ACCESS_REG,
        op_mod: match access {
            Access::Write => AccessRegisterIn::WRITE,
            Access::Read => AccessRegisterIn::READ,
        },
        uid: 0,
    };
    let no_memory = |_| CommandError {
        id,
        fault: os(ENOMEM),
    };
    let len = data.bytes().len();
    let mut input =
        KVec::from_elem(0, AccessRegisterIn::LEN + len, GFP_KERNEL).map_err(no_memory)?;
    let mut output =
        KVec::from_elem(0, AccessRegisterOut::LEN + len, GFP_KERNEL).map_err(no_memory)?;
    if let Some(mut request) = AccessRegisterIn::of_mut(&mut input) {
        request.set_register_id(register.0);
    }
    if let Some(room) = input.get_mut(AccessRegisterIn::LEN..) {
        room.copy_from_slice(data.bytes());
    }
    cmd.exec_raw(id, Class::Regular, &mut input, &mut output)?;
    if let Some(reply) = output.get(AccessRegisterOut::LEN..) {
        data.bytes_mut().copy_from_slice(reply);
    }
    Ok(())
}
