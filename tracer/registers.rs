// SPDX-License-Identifier: GPL-2.0

//! The tracer's registers, each with the ways in which it is used (hardware.md 4).

use kernel::prelude::*;

use super::{
    block::BufferSize,
    capability,
    strings::{
        Database,
        Section, //
    },
    timestamp::Timestamp53, //
};
use crate::{
    cmdif::{
        register::{
            access,
            Access, //
        },
        CommandError,
        Interface, //
    },
    layouts::{
        caps::CmdHcaCap,
        own::RegisterId,
        registers::McamReg,
        tracer::{
            CoreDumpReg,
            MtrcCap,
            MtrcCtrl, //
        }, //
    },
    mr::context::Key,
};

/// One bit for each register of the tracer, in MCAM (hardware.md 2.6).
const ALL_REGISTERS: u8 = 0xf;

/// Whether the function may use the tracer, as MCAM has it (M5.9).
///
/// # Errors
///
/// [`CommandError`] of ACCESS_REG.
pub(super) fn are_there(
    cmd: &Interface<'_>,
    caps: &CmdHcaCap<&[u8; CmdHcaCap::LEN]>,
) -> Result<bool, CommandError> {
    if !caps.mcam_reg() {
        return Ok(false);
    }
    // Groups 0.
    let mut mcam = McamReg::new();
    access(cmd, RegisterId::MCAM, Access::Read, &mut mcam)?;
    Ok(mcam.access_regs().tracer_registers() == ALL_REGISTERS)
}

/// Reads MTRC_CAP.
///
/// # Errors
///
/// [`CommandError`] of ACCESS_REG.
pub(super) fn capability(cmd: &Interface<'_>) -> Result<MtrcCap, CommandError> {
    let mut register = MtrcCap::new();
    access(cmd, RegisterId::MTRC_CAP, Access::Read, &mut register)?;
    Ok(register)
}

/// Asks for the tracer, or gives it back; whether it is ours then.
///
/// # Errors
///
/// [`CommandError`] of ACCESS_REG.
pub(super) fn own(cmd: &Interface<'_>, wanted: bool) -> Result<bool, CommandError> {
    let mut register = capability::ownership(wanted);
    access(cmd, RegisterId::MTRC_CAP, Access::Write, &mut register)?;
    Ok(register.trace_owner())
}

/// Tells where to write.
///
/// # Errors
///
/// [`CommandError`] of ACCESS_REG.
pub(super) fn configure(
    cmd: &Interface<'_>,
    size: BufferSize,
    key: Key,
) -> Result<(), CommandError> {
    let mut register = capability::configuration(size, key.get());
    access(cmd, RegisterId::MTRC_CONF, Access::Write, &mut register)
}

fn control(cmd: &Interface<'_>, mut register: MtrcCtrl) -> Result<Timestamp53, CommandError> {
    access(cmd, RegisterId::MTRC_CTRL, Access::Write, &mut register)?;
    Ok(capability::current_time(&register))
}

/// Switches the tracer on, with its event armed, or off.
///
/// # Errors
///
/// [`CommandError`] of ACCESS_REG.
pub(super) fn switch(cmd: &Interface<'_>, on: bool) -> Result<(), CommandError> {
    control(cmd, capability::switch(on)).map(|_| ())
}

/// Arms the event; gives the device's time.
///
/// # Errors
///
/// [`CommandError`] of ACCESS_REG.
pub(super) fn arm(cmd: &Interface<'_>) -> Result<Timestamp53, CommandError> {
    control(cmd, capability::arm())
}

/// Has firmware trace its state.
///
/// # Errors
///
/// [`CommandError`] of ACCESS_REG.
pub(super) fn core_dump(cmd: &Interface<'_>) -> Result<(), CommandError> {
    let mut register = CoreDumpReg::new();
    access(cmd, RegisterId::CORE_DUMP, Access::Write, &mut register)
}

/// Why there are no strings.
pub(super) enum NoStrings {
    /// A command failed.
    Command(CommandError),
    /// No memory.
    Memory,
    /// `go_on` said no.
    Interrupted,
}

/// Reads the strings of a device with this MTRC_CAP, 256 bytes at a time, as long as `go_on` says so.
///
/// # Errors
///
/// See [`NoStrings`].
pub(super) fn strings(
    cmd: &Interface<'_>,
    register: &MtrcCap,
    go_on: impl Fn() -> bool,
) -> Result<Database<KVVec<u8>>, NoStrings> {
    let mut db = Database::empty();
    for section in Section::all(register) {
        // Its length is bounded, whatever the device says.
        let mut bytes = KVVec::from_elem(0, section.len as usize, GFP_KERNEL | __GFP_NOWARN)
            .map_err(|_| NoStrings::Memory)?;
        for chunk in section.chunks() {
            if !go_on() {
                return Err(NoStrings::Interrupted);
            }
            let mut data = chunk.request();
            // Asking is a write.
            access(cmd, RegisterId::MTRC_STDB, Access::Write, &mut data)
                .map_err(NoStrings::Command)?;
            // A chunk is within its section.
            let _ = chunk.store(&data, &mut bytes);
        }
        db.insert(section, bytes);
    }
    Ok(db)
}

/// Whether the strings of two devices with these MTRC_CAP lie at the same places.
pub(super) fn same_strings(one: &MtrcCap, other: &MtrcCap) -> bool {
    Section::all(one).eq(Section::all(other))
}
