// SPDX-License-Identifier: GPL-2.0

//! Which request goes with which reply.
//!
//! A [`Command`] names opcode, input and output of one operation, so that a reply can only be read
//! as what it is, and opcode, uid and op_mod are written in one place: nobody else touches the word
//! that opcode and uid share (M2.1).

use super::slots::Class;
use crate::layouts::{
    commands::*,
    Field,
    Layout,
    Opcode, //
};

/// One operation of the device.
pub(crate) trait Command {
    /// Its number.
    const OPCODE: Opcode;
    /// Which slots it may use.
    const CLASS: Class = Class::Regular;
    /// The fixed part of the request.
    type Input: Layout;
    /// The fixed part of the reply.
    type Output: Layout;
}

/// An operation on objects that a user can own: its request has a place for the uid.
pub(crate) trait UserCommand: Command {
    /// The place: the same in all of them, since [`exec_raw`](super::Interface::exec_raw) writes there.
    const UID: Field;
}

macro_rules! commands {
    ($(
        $(#[$doc:meta])*
        $name:ident = $opcode:ident $(in $class:ident)?: $input:ident -> $output:ident $(, users at $user:ident)?;
    )*) => {$(
        $(#[$doc])*
        pub(crate) struct $name;

        $(
            impl UserCommand for $name {
                const UID: Field = $input::$user;
            }
        )?

        impl Command for $name {
            const OPCODE: Opcode = Opcode::$opcode;
            $(const CLASS: Class = Class::$class;)?
            type Input = $input;
            type Output = $output;
        }
    )*};
}

commands! {
    /// Lets the function be used; the first command.
    EnableHca = ENABLE_HCA: EnableHcaIn -> EnableHcaOut;
    /// The reverse; the last command.
    DisableHca = DISABLE_HCA: DisableHcaIn -> DisableHcaOut;
    /// Which interface versions there are.
    QueryIssi = QUERY_ISSI: QueryIssiIn -> QueryIssiOut;
    /// Chooses one.
    SetIssi = SET_ISSI: SetIssiIn -> SetIssiOut;
    /// How many pages firmware wants.
    QueryPages = QUERY_PAGES: QueryPagesIn -> QueryPagesOut;
    /// Starts the device.
    InitHca = INIT_HCA: InitHcaIn -> InitHcaOut;
    /// Stops it.
    TeardownHca = TEARDOWN_HCA: TeardownHcaIn -> TeardownHcaOut;
    /// Says who drives the device.
    SetDriverVersion = SET_DRIVER_VERSION: SetDriverVersionIn -> SetDriverVersionOut;
    /// Board identification.
    QueryAdapter = QUERY_ADAPTER: QueryAdapterIn -> QueryAdapterOut;
    /// A page of doorbells.
    AllocUar = ALLOC_UAR: AllocUarIn -> AllocUarOut;
    /// The reverse.
    DeallocUar = DEALLOC_UAR: DeallocUarIn -> DeallocUarOut;
    /// Destroys an event queue.
    DestroyEq = DESTROY_EQ: DestroyEqIn -> DestroyEqOut;
    /// A user.
    CreateUctx = CREATE_UCTX: CreateUctxIn -> CreateUctxOut;
    /// The reverse.
    DestroyUctx = DESTROY_UCTX: DestroyUctxIn -> DestroyUctxOut;
    /// A protection domain.
    AllocPd = ALLOC_PD: AllocPdIn -> AllocPdOut, users at UID;
    /// The reverse.
    DeallocPd = DEALLOC_PD: DeallocPdIn -> DeallocPdOut, users at UID;
    /// Destroys a memory key.
    DestroyMkey = DESTROY_MKEY: DestroyMkeyIn -> DestroyMkeyOut, users at UID;
}
