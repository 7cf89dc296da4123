// SPDX-License-Identifier: GPL-2.0

//! User contexts: whom a command is issued for (M2.7, hardware.md 9).
//!
//! The device checks that objects which a user names are that user's. It knows users by a uid, which
//! it hands out itself; the driver writes it into each command, and takes it from nobody else.

use core::num::NonZeroU16;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    command::{
        Command,
        CreateUctx,
        DestroyUctx,
        UserCommand, //
    },
    error::Corrupt,
    CommandError,
    CommandId,
    Fault,
    Interface, //
};
use crate::layouts::command::CmdIn;

/// The uid of objects that all users may use, such as completion event queues (hardware.md 3.2).
pub(crate) const SHARED_UID: u16 = 0xffff;

/// What the capabilities say of user contexts.
#[derive(Clone, Copy)]
pub(crate) struct Support {
    /// log2 of how many there can be; 0: there are none.
    pub(crate) log_max_uctx: u8,
    /// The rights that a user can have: `MLX5_UCTX_CAP_*`.
    pub(crate) uctx_cap: u32,
}

/// A user of the device. Its uid goes into every command that is issued through it; the context is
/// destroyed on drop, after everything that was made with it.
///
/// It belongs to one bring-up: when that ends, by teardown or by a fatal error, its commands fail, and
/// those of a later one do not know it.
pub(crate) struct Uctx<'a> {
    cmd: Arc<Interface<'a>>,
    uid: NonZeroU16,
}

impl<'a> Uctx<'a> {
    /// Opens a user context with some rights, of `MLX5_UCTX_CAP_*`.
    ///
    /// # Errors
    ///
    /// [`Fault::Unsupported`] if the device has no user contexts, or not these rights;
    /// [`Fault::Corrupt`] if it answers with a uid that no user can have; and what CREATE_UCTX
    /// reports.
    pub(crate) fn open(
        cmd: Arc<Interface<'a>>,
        support: Support,
        rights: u32,
    ) -> Result<Self, CommandError> {
        let fail = |fault| CommandError {
            id: CommandId {
                opcode: CreateUctx::OPCODE,
                op_mod: 0,
                uid: 0,
            },
            fault,
        };
        if support.log_max_uctx == 0 {
            return Err(fail(Fault::Unsupported("log_max_uctx")));
        }
        if rights & !support.uctx_cap != 0 {
            return Err(fail(Fault::Unsupported("uctx_cap")));
        }
        let reply = cmd.exec::<CreateUctx>(0, |input| {
            input.uctx_mut().set_cap(rights);
        })?;
        match NonZeroU16::new(reply.uid()) {
            Some(uid) if uid.get() != SHARED_UID => Ok(Self { cmd, uid }),
            // As such it could do what only the kernel may.
            _ => Err(fail(Fault::Corrupt(Corrupt::Uid { found: reply.uid() }))),
        }
    }

    /// The number that the device knows the user by.
    pub(crate) fn uid(&self) -> u16 {
        self.uid.get()
    }

    /// Runs command `C` for the user: `fill` writes the arguments.
    ///
    /// # Errors
    ///
    /// [`CommandError`]: any [`Fault`].
    pub(crate) fn exec<C: UserCommand>(
        &self,
        op_mod: u16,
        fill: impl FnOnce(&mut C::Input),
    ) -> Result<C::Output, CommandError> {
        const { assert!(C::UID.offset == CmdIn::UID.offset && C::UID.width == CmdIn::UID.width) };
        self.cmd.exec_for::<C>(self.uid(), op_mod, fill)
    }
}

impl Drop for Uctx<'_> {
    fn drop(&mut self) {
        let result = self.cmd.exec::<DestroyUctx>(0, |input| {
            input.set_uid(self.uid());
        });
        if let Err(error) = result {
            self.cmd.report_left(&error);
        }
    }
}
