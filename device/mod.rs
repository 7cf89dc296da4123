// SPDX-License-Identifier: GPL-2.0

//! One adapter and its life (M1.6, M4.3).
//!
//! Lives here: what each callback of the bus means for a device ([`Device`]), the order of bring-up
//! and teardown ([`hca`]), which states may follow which ([`state`]), how a device that failed comes
//! back ([`recovery`]). Owns: everything that belongs to the device. May be called by: the PCI driver
//! and devlink; calls all rooms.
//!
//! # Locks
//!
//! There is one order (field case C29):
//!
//! 1. the device's lock of the bus, which all callbacks of the bus hold;
//! 2. the two locks of the devlink instance: [`kapi::devlink`]'s for reports, then devlink's own, which is
//!    held in all of its callbacks. Of these, reload holds 1 as well, recovery does not;
//! 3. the life lock, [`Shared::hca`]: whoever brings the device up or takes it down holds it;
//! 4. the locks of the rooms below (command slots, event queues, pages, records).
//!
//! The worker that recovers a device starts with 2 or 3, never with 1, so that a callback can wait for
//! it. It does not wait long: a callback first says that it wants the life lock ([`Shared::hold`]), and
//! a recovery gives way then. The watchdog takes none of 1 to 3.
//!
//! Pure, and on the host as well: [`state`].

mod devlink;
mod guards;
pub(crate) mod hca;
mod recovery;
pub(crate) mod state;

use core::{
    fmt,
    ops::DerefMut, //
};

use kernel::{
    device::{
        Bound,
        Core, //
    },
    dma::DmaMask,
    new_mutex,
    new_spinlock,
    pci,
    prelude::*,
    static_lock_class,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex,
        SpinLock, //
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

use self::{
    devlink::Devlink,
    hca::{
        Hca,
        Info,
        Params, //
    },
    recovery::{
        Inbox,
        Repair,
        Timeouts, //
    },
    state::State, //
};
use crate::{
    health::{
        policy::Grace,
        Alarm,
        Alert,
        Health, //
    },
    kapi::{
        self,
        pci_driver::{
            Channel,
            Verdict, //
        },
        print::Show,
        workqueue::Worker, //
    },
};

pub(crate) use self::recovery::Reporter;

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

/// What people see, and what decides what may happen next.
struct Life {
    state: State,
    bring_ups: u32,
    last_error: i32,
    recoveries: u32,
    failed_recoveries: u32,
    /// Counts what was tried to bring up: tells an alert about this one from one about an earlier one.
    generation: u64,
    grace: Grace,
    /// Of the last bring-up that succeeded.
    info: Option<Info>,
    timeouts: Timeouts,
}

/// Hears of every change of a device's state, while the life lock is held: it takes no lock of 1 to 3
/// in the order above, and does not wait for the device. [`State::Error`] is the moment to cut users
/// off.
pub(crate) trait Listener: Send + Sync {
    /// The device is in this state now.
    fn changed(&self, state: State);
}

/// What callbacks, recovery and devlink share of a device.
#[pin_data]
pub(crate) struct Shared<'a> {
    pdev: &'a pci::Device<Bound>,
    params: Params,
    debugfs: Arc<kapi::debugfs::Dir>,
    health: Arc<Health>,
    #[pin]
    life: SpinLock<Life>,
    /// The life lock, and what lives.
    #[pin]
    hca: Mutex<Option<Hca<'a>>>,
    /// Callbacks that wait for the life lock.
    wanted: Atomic<u32>,
    /// The driver loses the device.
    leaving: Atomic<bool>,
    /// A recovery holds the life lock.
    recovering: Atomic<bool>,
    #[pin]
    inbox: SpinLock<Inbox<'a>>,
    #[pin]
    listeners: Mutex<KVec<Arc<dyn Listener + 'a>>>,
    #[pin]
    reporter: Mutex<Option<Arc<dyn Reporter + 'a>>>,
}

/// The watchdog's way to the worker, for one bring-up.
struct Ward<'a> {
    shared: Arc<Shared<'a>>,
    generation: u64,
}

impl Alarm for Ward<'_> {
    fn ring(&self, alert: &Alert) {
        self.shared.inbox.lock().put(self.generation, alert);
    }

    fn settled(&self) {
        self.shared.inbox.lock().settle();
    }

    fn gives_way(&self) -> bool {
        self.shared.recovering.load(Relaxed) && self.shared.gives_way()
    }
}

impl<'a> Shared<'a> {
    fn new(
        pdev: &'a pci::Device<Bound>,
        params: Params,
        debugfs: Arc<kapi::debugfs::Dir>,
    ) -> Result<Arc<Self>> {
        let life = Life {
            state: State::Initializing,
            bring_ups: 0,
            last_error: 0,
            recoveries: 0,
            failed_recoveries: 0,
            generation: 0,
            grace: Grace::new(false, kapi::pci::is_virtfn(pdev)),
            info: None,
            timeouts: Timeouts::DEFAULT,
        };
        let health = Health::new()?;
        Arc::pin_init(
            try_pin_init!(Self {
                pdev,
                params,
                debugfs,
                health,
                life <- new_spinlock!(life, "mlx5_rs_life"),
                hca <- new_mutex!(None, "mlx5_rs_hca"),
                wanted: Atomic::new(0),
                leaving: Atomic::new(false),
                recovering: Atomic::new(false),
                inbox <- new_spinlock!(Inbox::new(), "mlx5_rs_inbox"),
                listeners <- new_mutex!(KVec::new(), "mlx5_rs_listeners"),
                reporter <- new_mutex!(None, "mlx5_rs_reporter"),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// The device on its bus.
    pub(crate) fn pdev(&self) -> &'a pci::Device<Bound> {
        self.pdev
    }

    /// Where the device is.
    pub(crate) fn state(&self) -> State {
        self.life.lock().state
    }

    /// The record of firmware's health.
    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    /// What the device said of itself when it was brought up last.
    pub(crate) fn info(&self) -> Option<Info> {
        self.life.lock().info
    }

    /// Lets `listener` hear of changes for as long as the driver has the device.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[expect(dead_code, reason = "users come with RDMA verbs")]
    pub(crate) fn listen(&self, listener: Arc<dyn Listener + 'a>) -> Result {
        Ok(self.listeners.lock().push(listener, GFP_KERNEL)?)
    }

    /// Goes to `next` if it may follow, and tells. Only with the life lock.
    fn go(&self, next: State) -> bool {
        {
            let mut life = self.life.lock();
            if !life.state.may_become(next) {
                return false;
            }
            life.state = next;
        }
        for listener in self.listeners.lock().iter() {
            listener.changed(next);
        }
        if next == State::Up {
            self.inbox.lock().settle();
        }
        true
    }

    /// Takes the life lock, for a callback of the bus: a recovery gives way.
    fn hold(&self) -> impl DerefMut<Target = Option<Hca<'a>>> + '_ {
        self.wanted.add(1, Relaxed);
        let guard = self.hca.lock();
        self.wanted.fetch_sub(1, Relaxed);
        guard
    }

    /// Takes the life lock, for a wish that no recovery is to end for. To be called with the device's lock,
    /// so that none but a recovery keeps the life lock for long.
    ///
    /// # Errors
    ///
    /// `EAGAIN` while the device is not up.
    fn hold_up(&self) -> Result<impl DerefMut<Target = Option<Hca<'a>>> + '_> {
        const PAUSE_MS: i64 = 10;
        const LIMIT_MS: i64 = 10_000;

        for _ in 0..LIMIT_MS / PAUSE_MS {
            if self.state() != State::Up {
                break;
            }
            if let Some(hca) = self.hca.try_lock() {
                // The last who had it may have changed that.
                return if self.state() == State::Up {
                    Ok(hca)
                } else {
                    Err(EAGAIN)
                };
            }
            fsleep(Delta::from_millis(PAUSE_MS));
        }
        Err(EAGAIN)
    }

    /// Whether a recovery is to end.
    fn gives_way(&self) -> bool {
        self.wanted.load(Relaxed) != 0 || self.leaving.load(Relaxed)
    }

    /// Takes the device down, if it is up. A device that is off the bus is not talked to.
    fn stop(&self, hca: &mut Option<Hca<'a>>, way: Way) {
        let Some(hca) = hca.take() else {
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

    /// Brings the device up from [`State::Initializing`]; a failure leads to `otherwise`.
    fn bring_up(self: &Arc<Self>, hca: &mut Option<Hca<'a>>, otherwise: State) -> Result {
        let generation = {
            let mut life = self.life.lock();
            life.generation += 1;
            life.generation
        };
        let ward = Ward {
            shared: self.clone(),
            generation,
        };
        let result = Arc::new(ward, GFP_KERNEL)
            .map_err(Error::from)
            .and_then(|ward| {
                Hca::bring_up(self.pdev, &self.params, &self.debugfs, &self.health, ward)
            });
        match result {
            Ok(new) => {
                {
                    let mut life = self.life.lock();
                    life.bring_ups += 1;
                    life.info = Some(new.info());
                    life.timeouts = new.timeouts();
                    let ecpf = new.info().embedded_cpu;
                    life.grace.set_kind(ecpf, kapi::pci::is_virtfn(self.pdev));
                }
                *hca = Some(new);
                self.go(State::Up);
                Ok(())
            }
            Err(e) => {
                self.life.lock().last_error = e.to_errno();
                self.go(otherwise);
                Err(e)
            }
        }
    }

    /// Brings the device up again, for a callback of the bus.
    fn start(self: &Arc<Self>) -> Result {
        let mut hca = self.hold();
        if !self.go(State::Initializing) {
            dev_warn!(
                self.pdev,
                "bring-up refused: the device is {}\n",
                Show(self.state())
            );
            return Err(EBUSY);
        }
        self.bring_up(&mut hca, State::Down)
    }

    /// Takes the device down, for a callback of the bus, until [`Self::start`].
    fn pause(&self) {
        self.take_down(&mut self.hold(), Way::Orderly);
    }

    fn take_down(&self, hca: &mut Option<Hca<'a>>, way: Way) {
        self.go(State::GoingDown);
        self.stop(hca, way);
        self.go(State::Down);
    }

    /// Takes the device down for the last time.
    fn let_go(&self) {
        let mut hca = self.hold();
        self.take_down(&mut hca, Way::Orderly);
        if !kapi::pci::is_present(self.pdev) {
            self.go(State::Gone);
        }
    }

    fn show(&self, f: &mut kernel::fmt::Formatter<'_>) -> fmt::Result {
        let life = self.life.lock();
        let state = life.state;
        let (bring_ups, last_error) = (life.bring_ups, life.last_error);
        let (recoveries, failed) = (life.recoveries, life.failed_recoveries);
        drop(life);
        writeln!(f, "state {state}")?;
        writeln!(f, "bring_ups {bring_ups}")?;
        writeln!(f, "last_error {last_error}")?;
        writeln!(f, "recoveries {recoveries}")?;
        writeln!(f, "failed_recoveries {failed}")
    }
}

/// The worker of a device. While it is there, what the watchdog finds is acted upon.
struct Crew<'a>(Arc<Shared<'a>>);

impl<'a> Crew<'a> {
    fn new(shared: Arc<Shared<'a>>) -> Result<Self> {
        let repair = Repair(shared.clone());
        let worker = Worker::shared(c"mlx5_rs_repair", static_lock_class!(), repair)?;
        shared.inbox.lock().set_worker(Some(worker));
        Ok(Self(shared))
    }

    /// Sends the worker home, and waits until it has left.
    fn dismiss(&self) {
        self.0.leaving.store(true, Relaxed);
        let worker = self.0.inbox.lock().set_worker(None);
        // Waits, and so not with the lock.
        drop(worker);
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        self.dismiss();
        // What hears of the device, and the device itself, refer back to it. A device that nobody has
        // unbound is none that came up.
        let hca = self.0.hca.lock().take();
        drop(hca);
        *self.0.reporter.lock() = None;
        self.0.listeners.lock().clear();
    }
}

/// What belongs to a bound PCI function.
///
/// Fields are dropped from top to bottom.
pub(crate) struct Device<'a> {
    devlink: Devlink<'a>,
    _files: kapi::debugfs::Files<'a>,
    crew: Crew<'a>,
    shared: Arc<Shared<'a>>,
}

impl<'a> Device<'a> {
    /// Takes a function over and brings it up.
    ///
    /// # Errors
    ///
    /// The errno of the step of bring-up that failed.
    pub(crate) fn new(pdev: &'a pci::Device<Core<'_>>, params: Params) -> Result<Self> {
        let bound: &'a pci::Device<Bound> = pdev;
        kapi::pci::set_dma_mask(pdev, DmaMask::new::<64>()).inspect_err(|e| {
            let errno = e.to_errno();
            dev_err!(
                bound,
                "bring-up failed at DMA mask: driver error, error {errno}\n"
            );
        })?;
        let dir = kapi::debugfs::Dir::within(crate::NAME, kapi::pci::name(bound));
        let debugfs = Arc::new(dir, GFP_KERNEL)?;
        let mut files = kapi::debugfs::Files::new(debugfs.clone());
        let shared = Shared::new(bound, params, debugfs)?;
        let shown = shared.clone();
        files.add(c"lifecycle", move |f| shown.show(f))?;
        let shown = shared.health.clone();
        files.add(c"health", move |f| shown.show(f))?;
        let crew = Crew::new(shared.clone())?;
        shared.bring_up(&mut shared.hold(), State::Down)?;
        // What a slot reset restores.
        kapi::pci::save_state(bound);
        // People come last, and go first (field case C16).
        let devlink = Devlink::new(&shared).inspect_err(|_| {
            crew.dismiss();
            shared.let_go();
        })?;
        Ok(Self {
            devlink,
            _files: files,
            crew,
            shared,
        })
    }

    /// Shows or hides virtual functions (M1.6). They can be hidden in every state but one: a recovery
    /// counts them to enable them again, and is not disturbed.
    ///
    /// # Errors
    ///
    /// `EAGAIN` while the device is down or recovering, the errno of ENABLE_HCA of a function, or what the
    /// bus reports.
    pub(crate) fn sriov_configure(&self, core: &pci::Device<Core<'_>>, number: u16) -> Result {
        if number == 0 {
            if self.shared.recovering.load(Relaxed) {
                return Err(EAGAIN);
            }
            self.hide_vfs(core);
            return Ok(());
        }
        {
            let hca = self.shared.hold_up()?;
            let hca = hca.as_ref().ok_or(EAGAIN)?;
            hca.vfs().enable(number).map_err(|error| {
                dev_err!(
                    self.shared.pdev,
                    "virtual functions: {}: none of {number} is enabled\n",
                    Show(error)
                );
                Error::from_errno(error.errno())
            })?;
        }
        // Without the lock: their drivers are bound in here.
        kapi::pci::enable_sriov(core, number).inspect_err(|error| {
            dev_err!(
                self.shared.pdev,
                "virtual functions: the bus does not show {number} of them, error {}\n",
                error.to_errno()
            );
            self.disable_vfs();
        })
    }

    fn hide_vfs(&self, core: &pci::Device<Core<'_>>) {
        kapi::pci::disable_sriov(core);
        self.disable_vfs();
    }

    fn disable_vfs(&self) {
        if let Some(hca) = self.shared.hold().as_ref() {
            hca.vfs().disable();
        }
    }

    /// The driver loses the device.
    pub(crate) fn unbind(&self, core: &pci::Device<Core<'_>>) {
        if kapi::pci::num_vf(self.shared.pdev) != 0 {
            // Their drivers need this one.
            kapi::pci::disable_sriov(core);
        }
        self.crew.dismiss();
        self.devlink.close();
        self.shared.let_go();
    }

    /// The system goes down, or into another kernel (field case C15).
    pub(crate) fn shutdown(&self) {
        self.crew.dismiss();
        self.devlink.close();
        self.shared.take_down(&mut self.shared.hold(), Way::Fast);
    }

    /// The bus reports an error (field case C22).
    pub(crate) fn error_detected(&self, channel: Channel) -> Verdict {
        let shared = &self.shared;
        dev_warn!(
            shared.pdev,
            "bus error, channel {}\n",
            match channel {
                Channel::Normal => "normal",
                Channel::Frozen => "frozen",
                Channel::Failed => "failed",
            }
        );
        let mut hca = shared.hold();
        shared.go(State::Error);
        // What the device was told last is not known to have arrived: nothing more is said to it.
        shared.stop(&mut hca, Way::Abrupt);
        match channel {
            Channel::Failed => {
                shared.go(State::Gone);
                Verdict::Disconnect
            }
            Channel::Normal | Channel::Frozen => Verdict::NeedReset,
        }
    }

    /// The slot was reset.
    pub(crate) fn slot_reset(&self) -> Verdict {
        let shared = &self.shared;
        let _hca = shared.hold();
        kapi::pci::restore_state(shared.pdev);
        if !shared.go(State::Recovering) || !kapi::pci::is_present(shared.pdev) {
            return Verdict::Disconnect;
        }
        Verdict::Recovered
    }

    /// Recovery is over. A failure is in the log, and the device stays bound and down.
    pub(crate) fn error_resume(&self) {
        // Without a slot reset the device is still in the error state.
        let _ = self.shared.start();
    }

    /// Somebody resets the function: it is let go in order, before.
    pub(crate) fn reset_prepare(&self) {
        let shared = &self.shared;
        let mut hca = shared.hold();
        shared.go(State::GoingDown);
        shared.stop(&mut hca, Way::Orderly);
        shared.go(State::Recovering);
    }

    /// The function was reset. A failure is in the log, and the device stays bound and down.
    pub(crate) fn reset_done(&self) {
        let _ = self.shared.start();
    }

    /// The system goes to sleep.
    pub(crate) fn suspend(&self) {
        self.shared.pause();
    }

    /// The system woke up.
    ///
    /// # Errors
    ///
    /// The errno of the step of bring-up that failed.
    pub(crate) fn resume(&self) -> Result {
        self.shared.start()
    }
}
