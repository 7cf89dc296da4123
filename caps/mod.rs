// SPDX-License-Identifier: GPL-2.0

//! What the device can do, and what of it is switched on (hardware.md 2.3, 2.6).
//!
//! Lives here: reading and setting of capability pages. Owns: the pages read. May be called by:
//! device and all rooms after it; calls cmdif.
//!
//! Pure, and on the host as well: [`negotiate`].

pub(crate) mod negotiate;

use core::fmt;

use kernel::{
    page::PAGE_SHIFT,
    prelude::*, //
};

use self::negotiate::Page;
use crate::{
    cmdif::{
        os,
        slots::Class,
        CommandError,
        CommandId,
        Interface, //
    },
    layouts::{
        caps::CmdHcaCap,
        commands::{
            QueryHcaCapIn,
            QueryHcaCapOut,
            SetHcaCapIn,
            SetHcaCapOut, //
        },
        CapType,
        Opcode, //
    },
};

/// Which of the two pages of a type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// What is switched on.
    Current,
    /// What could be.
    Max,
}

/// Reads one page.
fn query(cmd: &Interface<'_>, cap: CapType, which: Which) -> Result<KBox<Page>, CommandError> {
    let id = CommandId {
        opcode: Opcode::QUERY_HCA_CAP,
        op_mod: cap.op_mod(which == Which::Current),
        uid: 0,
    };
    let no_memory = |_| CommandError {
        id,
        fault: os(ENOMEM),
    };
    let mut input = QueryHcaCapIn::new();
    let mut output = KVec::from_elem(0, QueryHcaCapOut::LEN, GFP_KERNEL).map_err(no_memory)?;
    cmd.exec_raw(id, Class::Regular, input.as_bytes_mut(), &mut output)?;
    let mut page: KBox<Page> =
        KBox::init(pin_init::init_zeroed(), GFP_KERNEL).map_err(|_| CommandError {
            id,
            fault: os(ENOMEM),
        })?;
    if let Some(reply) = QueryHcaCapOut::of(&output) {
        page.copy_from_slice(reply.capability());
    }
    Ok(page)
}

/// Sets one page.
fn set(cmd: &Interface<'_>, cap: CapType, page: &Page) -> Result<(), CommandError> {
    let id = CommandId {
        opcode: Opcode::SET_HCA_CAP,
        // The type with the MAX bit pattern, as upstream: bit 0 is clear.
        op_mod: cap.op_mod(false),
        uid: 0,
    };
    let mut input = KVec::from_elem(0, SetHcaCapIn::LEN, GFP_KERNEL).map_err(|_| CommandError {
        id,
        fault: os(ENOMEM),
    })?;
    if let Some(mut request) = SetHcaCapIn::of_mut(&mut input) {
        request.capability_mut().copy_from_slice(page);
    }
    let mut output = SetHcaCapOut::new();
    cmd.exec_raw(id, Class::Regular, &mut input, output.as_bytes_mut())
}

/// The capabilities of a device, as they are after they were set.
pub(crate) struct Caps {
    general: KBox<Page>,
    general_max: KBox<Page>,
    atomic: Option<KBox<Page>>,
}

impl Caps {
    /// Reads all pages that the driver uses, and sets those that it changes.
    ///
    /// # Errors
    ///
    /// [`CommandError`] of the first command that failed.
    pub(crate) fn negotiate(cmd: &Interface<'_>) -> Result<Self, CommandError> {
        let mut general = query(cmd, CapType::GENERAL, Which::Current)?;
        let general_max = query(cmd, CapType::GENERAL, Which::Max)?;
        negotiate::general(&mut general[..], &general_max[..], PAGE_SHIFT as u8);
        set(cmd, CapType::GENERAL, &general)?;

        let atomic = if CmdHcaCap::ATOMIC.get(&general[..]) == Some(1) {
            let mut page = query(cmd, CapType::ATOMIC, Which::Current)?;
            let max = query(cmd, CapType::ATOMIC, Which::Max)?;
            if negotiate::atomic(&mut page[..], &max[..]) {
                set(cmd, CapType::ATOMIC, &page)?;
            }
            Some(page)
        } else {
            None
        };
        Ok(Self {
            general,
            general_max,
            atomic,
        })
    }

    /// Reads the pages again, now that the device runs: it may have changed them on INIT_HCA.
    ///
    /// # Errors
    ///
    /// [`CommandError`] of the first command that failed.
    pub(crate) fn refresh(&mut self, cmd: &Interface<'_>) -> Result<(), CommandError> {
        self.general = query(cmd, CapType::GENERAL, Which::Current)?;
        if self.atomic.is_some() {
            self.atomic = Some(query(cmd, CapType::ATOMIC, Which::Current)?);
        }
        Ok(())
    }

    /// The general page.
    pub(crate) fn general(&self) -> crate::layouts::caps::CmdHcaCap<&[u8; CmdHcaCap::LEN]> {
        match self.general.first_chunk() {
            Some(bytes) => CmdHcaCap::view(bytes),
            // `CmdHcaCap::LEN` is at most a page.
            None => CmdHcaCap::view(&[0; CmdHcaCap::LEN]),
        }
    }

    /// Prints what the driver looks at: field, current value, maximum.
    pub(crate) fn show(&self, f: &mut kernel::fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<28} {:>10} {:>10}", "general", "current", "max")?;
        for field in negotiate::SHOWN {
            writeln!(
                f,
                "{:<28} {:>10} {:>10}",
                field.name,
                field.get(&self.general[..]).unwrap_or(0),
                field.get(&self.general_max[..]).unwrap_or(0)
            )?;
        }
        Ok(())
    }
}
