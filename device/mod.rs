// SPDX-License-Identifier: GPL-2.0

//! One adapter and its life (M1.6).
//!
//! Lives here: what each callback of the bus means for a device ([`Device`]), the order of bring-up
//! and teardown ([`hca`]), which states may follow which ([`state`]). Owns: everything that belongs
//! to the device. May be called by: the PCI driver; calls all rooms.
//!
//! The bus holds the device's lock in every callback, so that no two of them run at once; the mutex
//! inside is never waited for, it only tells the compiler so.
//!
//! Pure, and on the host as well: [`state`].

mod guards;
pub(crate) mod hca;
pub(crate) mod state;

use core::fmt;

use kernel::{
    device::{
        Bound,
        Core, //
    },
    new_mutex,
    new_spinlock,
    pci,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    }, //
};

use self::{
    hca::{
        Hca,
        Params, //
    },
    state::State, //
};
use crate::kapi::{
    self,
    pci_driver::{
        Channel,
        Verdict, //
    },
    print::Show, //
};

/// How to take a device down.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// With all commands, in order.
    Orderly,
    /// At once, for good: fast or forced teardown, then silence.
    Fast,
    /// Without a word to the device, which does not listen or must not be touched.
    Abrupt,
}

struct Life {
    state: State,
    bring_ups: u32,
    last_error: i32,
}

/// The state that people see.
#[pin_data]
struct Record {
    #[pin]
    life: SpinLock<Life>,
}

impl Record {
    fn state(&self) -> State {
        self.life.lock().state
    }

    /// Goes to `next` if it may follow.
    fn go(&self, next: State) -> bool {
        let mut life = self.life.lock();
        let may = life.state.may_become(next);
        if may {
            life.state = next;
        }
        may
    }

    fn show(&self, f: &mut kernel::fmt::Formatter<'_>) -> fmt::Result {
        let (state, bring_ups, last_error) = {
            let life = self.life.lock();
            (life.state, life.bring_ups, life.last_error)
        };
        writeln!(f, "state {state}")?;
        writeln!(f, "bring_ups {bring_ups}")?;
        writeln!(f, "last_error {last_error}")
    }
}

/// What belongs to a bound PCI function.
#[pin_data]
pub(crate) struct Device<'a> {
    // Dropped before what its file shows.
    _lifecycle: kapi::debugfs::Files<'a>,
    #[pin]
    hca: Mutex<Option<Hca<'a>>>,
    debugfs: Arc<kapi::debugfs::Dir>,
    pdev: &'a pci::Device<Bound>,
    params: Params,
    record: Arc<Record>,
}

impl<'a> Device<'a> {
    /// Takes a function over and brings it up.
    ///
    /// # Errors
    ///
    /// The errno of the step of bring-up that failed.
    pub(crate) fn new<'b>(
        pdev: &'a pci::Device<Core<'b>>,
        params: Params,
    ) -> impl PinInit<Self, Error> + use<'a, 'b> {
        pin_init::pin_init_scope(move || {
            let bound: &'a pci::Device<Bound> = pdev;
            let record = Arc::pin_init(
                try_pin_init!(Record {
                    life <- new_spinlock!(
                        Life { state: State::Initializing, bring_ups: 0, last_error: 0 },
                        "mlx5_rs_life"
                    ),
                }? Error),
                GFP_KERNEL,
            )?;
            let dir = kapi::debugfs::Dir::within(crate::NAME, kapi::pci::name(bound));
            let debugfs = Arc::new(dir, GFP_KERNEL)?;
            let mut lifecycle = kapi::debugfs::Files::new(debugfs.clone());
            let shown = record.clone();
            lifecycle.add(c"lifecycle", move |f| shown.show(f))?;
            let hca = Hca::bring_up(bound, pdev, &params, &debugfs)?;
            {
                let mut life = record.life.lock();
                life.state = State::Up;
                life.bring_ups = 1;
            }
            // What a slot reset restores.
            kapi::pci::save_state(pdev);
            Ok(try_pin_init!(Self {
                _lifecycle: lifecycle,
                hca <- new_mutex!(Some(hca), "mlx5_rs_hca"),
                debugfs,
                pdev: bound,
                params,
                record,
            }? Error))
        })
    }

    /// Takes the device down, if it is up. A device that is off the bus is not talked to.
    fn stop(&self, way: Way) {
        let Some(hca) = self.hca.lock().take() else {
            return;
        };
        let way = if kapi::pci::is_present(self.pdev) {
            way
        } else {
            Way::Abrupt
        };
        hca.begin_teardown();
        match way {
            Way::Orderly => {}
            Way::Fast => hca.fast_teardown(),
            Way::Abrupt => hca.abandon(),
        }
        // The reverse of bring-up; what cannot be said any more is left unsaid.
        drop(hca);
    }

    /// Brings the device up again.
    fn start(&self, core: &pci::Device<Core<'_>>) -> Result {
        if !self.record.go(State::Initializing) {
            dev_warn!(
                self.pdev,
                "bring-up refused: the device is {}\n",
                Show(self.record.state())
            );
            return Err(EBUSY);
        }
        let result = Hca::bring_up(self.pdev, core, &self.params, &self.debugfs);
        let mut life = self.record.life.lock();
        match result {
            Ok(hca) => {
                life.state = State::Up;
                life.bring_ups += 1;
                drop(life);
                *self.hca.lock() = Some(hca);
                Ok(())
            }
            Err(e) => {
                life.state = State::Down;
                life.last_error = e.to_errno();
                Err(e)
            }
        }
    }

    /// The driver loses the device.
    pub(crate) fn unbind(&self) {
        self.record.go(State::GoingDown);
        self.stop(Way::Orderly);
        self.record.go(State::Down);
        if !kapi::pci::is_present(self.pdev) {
            self.record.go(State::Gone);
        }
    }

    /// The system goes down, or into another kernel (field case C15).
    pub(crate) fn shutdown(&self) {
        self.record.go(State::GoingDown);
        self.stop(Way::Fast);
        self.record.go(State::Down);
    }

    /// The bus reports an error (field case C22).
    pub(crate) fn error_detected(&self, channel: Channel) -> Verdict {
        dev_warn!(
            self.pdev,
            "bus error, channel {}\n",
            match channel {
                Channel::Normal => "normal",
                Channel::Frozen => "frozen",
                Channel::Failed => "failed",
            }
        );
        self.record.go(State::Error);
        // What the device was told last is not known to have arrived: nothing more is said to it.
        self.stop(Way::Abrupt);
        match channel {
            Channel::Failed => {
                self.record.go(State::Gone);
                Verdict::Disconnect
            }
            Channel::Normal | Channel::Frozen => Verdict::NeedReset,
        }
    }

    /// The slot was reset.
    pub(crate) fn slot_reset(&self, core: &pci::Device<Core<'_>>) -> Verdict {
        kapi::pci::restore_state(core);
        if !self.record.go(State::Recovering) || !kapi::pci::is_present(self.pdev) {
            return Verdict::Disconnect;
        }
        Verdict::Recovered
    }

    /// Recovery is over. A failure is in the log, and the device stays bound and down.
    pub(crate) fn error_resume(&self, core: &pci::Device<Core<'_>>) {
        // Without a slot reset the device is still in the error state.
        let _ = self.start(core);
    }

    /// Somebody resets the function: it is let go in order, before.
    pub(crate) fn reset_prepare(&self) {
        self.record.go(State::GoingDown);
        self.stop(Way::Orderly);
        self.record.go(State::Recovering);
    }

    /// The function was reset. A failure is in the log, and the device stays bound and down.
    pub(crate) fn reset_done(&self, core: &pci::Device<Core<'_>>) {
        let _ = self.start(core);
    }

    /// The system goes to sleep.
    pub(crate) fn suspend(&self) {
        self.record.go(State::GoingDown);
        self.stop(Way::Orderly);
        self.record.go(State::Down);
    }

    /// The system woke up.
    ///
    /// # Errors
    ///
    /// The errno of the step of bring-up that failed.
    pub(crate) fn resume(&self, core: &pci::Device<Core<'_>>) -> Result {
        self.start(core)
    }
}
