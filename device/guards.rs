// SPDX-License-Identifier: GPL-2.0

//! Steps of bring-up that are undone by a command when dropped.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    cmdif::{
        command::{
            AllocUar,
            DeallocUar,
            DisableHca,
            EnableHca,
            InitHca,
            TeardownHca, //
        },
        CommandError,
        Interface, //
    },
    layouts::commands::TeardownHcaIn,
    pages::Pages, //
};

/// The function is enabled; DISABLE_HCA on drop.
pub(super) struct EnabledHca<'a> {
    cmd: Arc<Interface<'a>>,
    embedded_cpu: bool,
}

impl<'a> EnabledHca<'a> {
    pub(super) fn new(cmd: Arc<Interface<'a>>, embedded_cpu: bool) -> Result<Self, CommandError> {
        cmd.exec::<EnableHca>(0, |input| {
            input.set_embedded_cpu_function(embedded_cpu);
        })?;
        Ok(Self { cmd, embedded_cpu })
    }
}

impl Drop for EnabledHca<'_> {
    fn drop(&mut self) {
        let result = self.cmd.exec::<DisableHca>(0, |input| {
            input.set_embedded_cpu_function(self.embedded_cpu);
        });
        if let Err(error) = result {
            self.cmd.report_teardown(&error);
        }
    }
}

/// The device may hold pages; they are taken back on drop.
pub(super) struct PagesGuard<'a>(Arc<Pages<'a>>);

impl<'a> PagesGuard<'a> {
    pub(super) fn new(pages: Arc<Pages<'a>>) -> Self {
        Self(pages)
    }
}

impl Drop for PagesGuard<'_> {
    fn drop(&mut self) {
        self.0.reclaim_all();
    }
}

/// The device runs; TEARDOWN_HCA on drop. If that fails no later command is sent: the device is in
/// no state for them (hardware.md 2.4).
pub(super) struct InitializedHca<'a>(Arc<Interface<'a>>);

impl<'a> InitializedHca<'a> {
    pub(super) fn new(cmd: Arc<Interface<'a>>) -> Result<Self, CommandError> {
        cmd.exec::<InitHca>(0, |_| ())?;
        Ok(Self(cmd))
    }
}

impl Drop for InitializedHca<'_> {
    fn drop(&mut self) {
        let result = self.0.exec::<TeardownHca>(0, |input| {
            input.set_profile(TeardownHcaIn::GRACEFUL_CLOSE);
        });
        if let Err(error) = result {
            self.0.report_teardown(&error);
            self.0.cut_off();
        }
    }
}

/// A page of doorbells; freed on drop.
pub(super) struct Uar<'a> {
    cmd: Arc<Interface<'a>>,
    page: u32,
}

impl<'a> Uar<'a> {
    pub(super) fn new(cmd: Arc<Interface<'a>>) -> Result<Self, CommandError> {
        let reply = cmd.exec::<AllocUar>(0, |_| ())?;
        Ok(Self {
            cmd,
            page: reply.uar(),
        })
    }

    /// The number of the page.
    pub(super) fn page(&self) -> u32 {
        self.page
    }
}

impl Drop for Uar<'_> {
    fn drop(&mut self) {
        let result = self.cmd.exec::<DeallocUar>(0, |input| {
            // The device gave the number, so that it fits the field.
            let _ = input.try_set_uar(self.page);
        });
        if let Err(error) = result {
            self.cmd.report_teardown(&error);
        }
    }
}
