// SPDX-License-Identifier: GPL-2.0

//! Virtual functions of a physical one (M1.6, field case C42).
//!
//! Lives here: enabling and disabling them in the device, and waiting for the pages that firmware had
//! for them. Owns: which are enabled. May be called by: device, which has the bus show and hide them;
//! calls cmdif and pages.
//!
//! A function is enabled in the device before the bus shows it, and disabled after the bus has hidden it,
//! so that no driver ever meets a function that is not.
//!
//! Pure, and on the host as well: [`plan`].

pub(crate) mod plan;

use kernel::{
    device::{
        Bound,
        Device, //
    },
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use self::plan::{
    Disabled,
    Switch, //
};
use crate::{
    cmdif::{
        command::{
            DisableHca,
            EnableHca, //
        },
        os,
        CommandError,
        CommandId,
        Fault,
        Interface, //
    },
    layouts::Opcode,
    pages::Pages, //
};

/// The virtual functions of a device that is up; disabled on drop.
#[pin_data(PinnedDrop)]
pub(crate) struct Vfs<'a> {
    dev: &'a Device<Bound>,
    cmd: Arc<Interface<'a>>,
    pages: Arc<Pages<'a>>,
    embedded_cpu: bool,
    /// Which are enabled; the first one is function 1.
    #[pin]
    on: Mutex<KVec<bool>>,
}

impl<'a> Vfs<'a> {
    /// None is enabled.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        dev: &'a Device<Bound>,
        cmd: Arc<Interface<'a>>,
        pages: Arc<Pages<'a>>,
        embedded_cpu: bool,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                dev,
                cmd,
                pages,
                embedded_cpu,
                on <- new_mutex!(KVec::new(), "mlx5_rs_vfs"),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Enables the first `n` functions: all, or none.
    ///
    /// # Errors
    ///
    /// [`CommandError`] of ENABLE_HCA, also when the driver failed before it.
    pub(crate) fn enable(&self, n: u16) -> Result<(), CommandError> {
        let n = usize::from(n);
        let mut on = self.on.lock();
        // Those that could not be disabled before are kept in mind.
        let all = n.max(on.len());
        on.resize(all, false, GFP_KERNEL)
            .map_err(|_| CommandError {
                id: CommandId {
                    opcode: Opcode::ENABLE_HCA,
                    op_mod: 0,
                    uid: 0,
                },
                fault: os(ENOMEM),
            })?;
        plan::enable(on.get_mut(..n).unwrap_or(&mut []), &mut Commands(self))
    }

    /// Disables all that are enabled, and waits until the pages are back that they had. A failure is in
    /// the log.
    pub(crate) fn disable(&self) {
        let mut on = self.on.lock();
        plan::disable(&mut on, &mut Commands(self));
        // What is left of some is no reason to wait for the others in vain.
        if !on.iter().any(|on| *on) && !on.is_empty() {
            self.pages.await_virtual();
        }
    }

    /// How many are enabled.
    pub(crate) fn enabled(&self) -> usize {
        self.on.lock().iter().filter(|on| **on).count()
    }
}

#[pinned_drop]
impl PinnedDrop for Vfs<'_> {
    fn drop(self: Pin<&mut Self>) {
        self.disable();
    }
}

struct Commands<'b, 'a>(&'b Vfs<'a>);

impl Switch for Commands<'_, '_> {
    type Error = CommandError;

    fn enable(&mut self, function: u16) -> Result<(), CommandError> {
        self.0
            .cmd
            .exec::<EnableHca>(0, |input| {
                input
                    .set_embedded_cpu_function(self.0.embedded_cpu)
                    .set_function_id(function);
            })
            .map(|_| ())
    }

    fn disable(&mut self, function: u16) -> Disabled {
        let result = self.0.cmd.exec::<DisableHca>(0, |input| {
            input
                .set_embedded_cpu_function(self.0.embedded_cpu)
                .set_function_id(function);
        });
        let Err(error) = result else {
            return Disabled::Yes;
        };
        dev_dbg!(self.0.dev, "function {function} stays enabled\n");
        self.0.cmd.report_left(&error);
        match error.fault {
            Fault::Status { .. } => Disabled::No,
            _ => Disabled::Silence,
        }
    }
}
