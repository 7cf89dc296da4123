// SPDX-License-Identifier: GPL-2.0

//! A device that failed, and its way back (M4.3).
//!
//! What the watchdog finds comes into the [`Inbox`], and the worker ([`Repair`]) takes it out: it puts
//! the device into the error state, tells the [`Reporter`], and brings the device back, once in a
//! grace period. Every wait has a bound, and ends at once when a callback of the bus wants the device
//! ([`Shared::hold`]).

use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use super::{
    hca::Hca,
    state::State,
    Shared,
    Way, //
};
use crate::{
    health::{
        self,
        buffer::Report,
        policy::Sensor,
        Alert,
        What, //
    },
    kapi::{
        self,
        print::Show,
        workqueue::{
            Job,
            Worker, //
        },
    },
    layouts::{
        registers::DtorReg,
        HealthSyndrome, //
    },
    segment::{
        NotReady,
        Segment, //
    },
};

/// How long parts of a recovery may take, in milliseconds (hardware.md 1.2). What the device asks for is
/// known from the last bring-up.
#[derive(Clone, Copy)]
pub(super) struct Timeouts {
    /// Until the device is reachable: `FW_RESET`.
    reach_ms: u32,
    /// Until the NIC interface is disabled by a software reset: `PCI_TOGGLE`.
    toggle_ms: u32,
}

impl Timeouts {
    /// What upstream takes when the device does not say.
    pub(super) const DEFAULT: Self = Self {
        reach_ms: 60_000,
        toggle_ms: 2_000,
    };

    /// What the device asks for, as far as that makes sense: nobody waits for more than ten minutes.
    pub(super) fn new(dtor: &DtorReg) -> Self {
        let bounded = |asked: Option<u64>, default: u32| match asked {
            None | Some(0) => default,
            Some(ms) => u32::try_from(ms).unwrap_or(u32::MAX).min(600_000),
        };
        Self {
            reach_ms: bounded(dtor.fw_reset_to().milliseconds(), Self::DEFAULT.reach_ms),
            toggle_ms: bounded(
                dtor.pcie_toggle_to().milliseconds(),
                Self::DEFAULT.toggle_ms,
            ),
        }
    }
}

/// How long the health counter may take to move after that, in ms (hardware.md 1.2). A virtual function
/// waits as long for it as for the device: it is the physical one that resets firmware.
const VITAL_MS: u32 = 5_000;

/// Tells people of alerts, in process context. No lock is held but those that it takes itself, in the
/// order that [`super`] has.
pub(crate) trait Reporter: Send + Sync {
    /// Firmware is not well. The device stays in use.
    fn report(&self, alert: &Alert);

    /// The device is in the error state. The reporter may call [`Shared::recover`].
    ///
    /// # Errors
    ///
    /// What the recovery reports, or why there was none.
    fn fatal(&self, alert: &Alert) -> Result;

    /// Firmware, or the device, may be well again.
    fn settle(&self);
}

/// What the worker has yet to look at.
pub(super) struct Inbox<'a> {
    /// The last alert that is not fatal, and the first that is, with the bring-up they are about.
    plain: Option<(u64, Alert)>,
    fatal: Option<(u64, Alert)>,
    settled: bool,
    worker: Option<Arc<Worker<Repair<'a>>>>,
}

impl<'a> Inbox<'a> {
    pub(super) fn new() -> Self {
        Self {
            plain: None,
            fatal: None,
            settled: false,
            worker: None,
        }
    }

    /// Puts an alert in, and has the worker look. Waits for nothing.
    pub(super) fn put(&mut self, generation: u64, alert: &Alert) {
        let place = match alert.what {
            What::Fatal(_) => &mut self.fatal,
            _ => &mut self.plain,
        };
        *place = Some((generation, *alert));
        self.kick();
    }

    /// Has the worker see whether all is well again. Waits for nothing.
    pub(super) fn settle(&mut self) {
        self.settled = true;
        self.kick();
    }

    fn kick(&self) {
        if let Some(worker) = &self.worker {
            worker.kick();
        }
    }

    /// Changes the worker; gives the one before.
    pub(super) fn set_worker(
        &mut self,
        worker: Option<Arc<Worker<Repair<'a>>>>,
    ) -> Option<Arc<Worker<Repair<'a>>>> {
        core::mem::replace(&mut self.worker, worker)
    }
}

/// The worker's job.
pub(super) struct Repair<'a>(pub(super) Arc<Shared<'a>>);

impl Job for Repair<'_> {
    fn run(&self) {
        let (plain, settled, fatal) = {
            let mut inbox = self.0.inbox.lock();
            let settled = core::mem::take(&mut inbox.settled);
            (inbox.plain.take(), settled, inbox.fatal.take())
        };
        let reporter = self.0.reporter.lock().clone();
        if let Some(reporter) = &reporter {
            if let Some((_, alert)) = plain {
                reporter.report(&alert);
            }
            if settled {
                reporter.settle();
            }
        }
        if let Some((generation, alert)) = fatal {
            self.0.fail(generation, &alert);
        }
    }
}

/// Why a device does not come back.
enum Lost {
    /// Somebody else wants it.
    GaveWay,
    /// It cannot be reached in so many milliseconds.
    Unreachable(u32),
    /// Firmware is not alive after so many milliseconds.
    NotVital(u32),
    /// Firmware does not become ready.
    NotReady(u32),
    /// The driver failed by itself.
    Os(Error),
}

impl Lost {
    fn errno(&self) -> Error {
        match self {
            Self::GaveWay => EBUSY,
            Self::Unreachable(_) => ENODEV,
            Self::NotVital(_) => EIO,
            Self::NotReady(_) => ETIMEDOUT,
            Self::Os(e) => *e,
        }
    }
}

impl From<Error> for Lost {
    fn from(error: Error) -> Self {
        Self::Os(error)
    }
}

impl core::fmt::Display for Lost {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::GaveWay => write!(f, "somebody else wants the device"),
            Self::Unreachable(ms) => write!(f, "PCI reads still not working after {ms} ms"),
            Self::NotVital(ms) => write!(f, "the health counter does not move within {ms} ms"),
            Self::NotReady(ms) => write!(f, "firmware is still initializing after {ms} ms"),
            Self::Os(e) => write!(f, "driver error {}", e.to_errno()),
        }
    }
}

fn now_ms() -> u64 {
    u64::try_from(kapi::kthread::now_ns()).unwrap_or(0) / 1_000_000
}

impl<'a> Shared<'a> {
    /// Sets who is told of alerts.
    pub(crate) fn set_reporter(&self, reporter: Option<Arc<dyn Reporter + 'a>>) {
        let old = core::mem::replace(&mut *self.reporter.lock(), reporter);
        drop(old);
    }

    /// Reads the health buffer, if firmware has something to say and the device is up; else gives the
    /// last report. Takes the life lock only if it is free.
    pub(crate) fn dump(&self) -> Option<Report> {
        let fresh = self
            .hca
            .try_lock()
            .and_then(|hca| hca.as_ref().and_then(Hca::read_report));
        fresh.or_else(|| self.health.last().and_then(|alert| alert.report))
    }

    /// Has a report go the way that all of them go, as if something were wrong.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the device is not up.
    pub(crate) fn test(&self) -> Result {
        if self.state() != State::Up {
            return Err(ENODEV);
        }
        let report = self.dump();
        let alert = Alert {
            what: What::Test,
            syndrome: report.map_or(HealthSyndrome(0), |report| report.syndrome()),
            misses: 0,
            report,
        };
        self.health.tell(self.pdev.as_ref(), &alert);
        let generation = self.life.lock().generation;
        self.inbox.lock().put(generation, &alert);
        Ok(())
    }

    /// The device of bring-up `generation` cannot go on.
    fn fail(self: &Arc<Self>, generation: u64, alert: &Alert) {
        {
            let hca = self.hca.lock();
            // It may have been taken down in the meantime, or be another one by now.
            if hca.is_none() || self.life.lock().generation != generation || !self.go(State::Error)
            {
                return;
            }
        }
        if alert.what == What::Fatal(Sensor::PciOffline) {
            // The bus does what is to be done.
            return;
        }
        let reporter = self.reporter.lock().clone();
        let _ = match reporter {
            Some(reporter) => reporter.fatal(alert),
            None => self.recover_in_time(),
        };
        // Recovery may have failed, been refused, or be switched off. What failed is let go all the same.
        let mut hca = self.hca.lock();
        if self.state() == State::Error && hca.is_some() {
            dev_err!(self.pdev, "the device stays in the error state\n");
            self.stop(&mut hca, Way::Abrupt);
        }
    }

    /// Recovers the device, unless that was done a moment ago.
    fn recover_in_time(self: &Arc<Self>) -> Result {
        let grace = self.life.lock().grace;
        if let Err(missing) = grace.check(now_ms()) {
            dev_err!(
                self.pdev,
                "no recovery: the last one was less than {} s ago, wait {} s\n",
                grace.period_ms() / 1000,
                missing.div_ceil(1000)
            );
            return Err(ECANCELED);
        }
        self.recover()
    }

    /// Takes the device down, resets it if that is needed and possible, and brings it up again. Takes
    /// the life lock, and may take as long as firmware needs.
    ///
    /// # Errors
    ///
    /// `EBUSY` when somebody else takes the device down or up or wants to, `ENODEV` when it cannot be
    /// reached, `EIO` when firmware stays dead, `ETIMEDOUT` when it does not become ready, or the errno
    /// of the step of bring-up that failed.
    pub(crate) fn recover(self: &Arc<Self>) -> Result {
        let mut hca = self.hca.lock();
        if self.leaving.load(Relaxed) {
            return Err(ENODEV);
        }
        let was_up = self.state() == State::Up;
        if was_up {
            // By hand: it may be as well as it looks.
            self.go(State::Error);
        }
        let way = match &*hca {
            Some(hca) if was_up && !hca.is_cut_off() => Way::Orderly,
            _ => Way::Abrupt,
        };
        if !matches!(self.state(), State::Error | State::Down) || !self.go(State::Recovering) {
            return Err(EBUSY);
        }
        dev_warn!(self.pdev, "starting health recovery flow\n");
        self.recovering.store(true, Relaxed);
        self.stop(&mut hca, way);
        let result = match self.make_ready() {
            Ok(()) => {
                self.go(State::Initializing);
                self.bring_up(&mut hca, State::Error)
            }
            Err(lost) => {
                dev_err!(self.pdev, "health recovery flow aborted: {}\n", Show(&lost));
                self.life.lock().last_error = lost.errno().to_errno();
                self.go(State::Error);
                Err(lost.errno())
            }
        };
        self.recovering.store(false, Relaxed);
        let mut life = self.life.lock();
        life.grace.recovered(now_ms());
        match result {
            Ok(()) => life.recoveries += 1,
            Err(_) => life.failed_recoveries += 1,
        }
        drop(life);
        match result {
            Ok(()) => dev_info!(self.pdev, "health recovery succeeded\n"),
            Err(_) => dev_err!(self.pdev, "health recovery failed\n"),
        }
        result
    }

    /// Waits for the device to be reachable, resets it where that helps, and waits for firmware to be
    /// alive (hardware.md 1.2).
    fn make_ready(&self) -> Result<(), Lost> {
        let Timeouts { reach_ms, .. } = self.life.lock().timeouts;
        self.wait(reach_ms, 100, || kapi::pci::is_present(self.pdev))?
            .ok_or(Lost::Unreachable(reach_ms))?;
        let _enabled = kapi::pci::Enabled::new(self.pdev)?;
        let segment = Segment::new(self.pdev)?;
        let reachable = || !segment.is_gone();
        self.wait(reach_ms, 100, reachable)?
            .ok_or(Lost::Unreachable(reach_ms))?;
        if self.reset(&segment)? {
            // The reset takes the link down, and config space with it.
            self.wait(reach_ms, 100, || kapi::pci::is_present(self.pdev))?
                .ok_or(Lost::Unreachable(reach_ms))?;
            kapi::pci::restore_state(self.pdev);
            self.wait(reach_ms, 100, reachable)?
                .ok_or(Lost::Unreachable(reach_ms))?;
        }
        segment
            .wait_ready(self.params.init_timeout_ms, || self.gives_way())
            .map_err(|e| match e {
                NotReady::StillInitializing(ms) => Lost::NotReady(ms),
                NotReady::Gone => Lost::Unreachable(0),
                NotReady::GivenUp => Lost::GaveWay,
            })?;
        let counter = health::policy::counter;
        let mut first = None;
        let is_vital = || {
            let word = segment.health_word();
            let counter = counter(word);
            let moves = *first.get_or_insert(counter) != counter;
            counter != 0 && word != u32::MAX && moves
        };
        let vital_ms = if kapi::pci::is_virtfn(self.pdev) {
            VITAL_MS.max(reach_ms)
        } else {
            VITAL_MS
        };
        self.wait(vital_ms, 50, is_vital)?
            .ok_or(Lost::NotVital(vital_ms))
    }

    /// Has firmware reset itself if it is dead, or waits for the end of a reset that somebody else
    /// began. Gives whether there was one.
    fn reset(&self, segment: &Segment<'_>) -> Result<bool, Lost> {
        const FULL_DRIVER: u8 = 0;
        const DISABLED: u8 = 1;
        const SW_RESET: u8 = 7;

        let mut nic = segment.nic_interface();
        if nic == FULL_DRIVER {
            if !self.needs_reset(segment)? {
                return Ok(false);
            }
            // Firmware is that of all functions; a virtual one waits for its physical one.
            if kapi::pci::is_virtfn(self.pdev) || !segment.supports_reset() {
                dev_warn!(self.pdev, "firmware cannot be reset from here\n");
                return Ok(false);
            }
            dev_warn!(self.pdev, "Issuing FW Reset\n");
            segment.reset_firmware()?;
            nic = SW_RESET;
        }
        if nic == SW_RESET {
            let Timeouts { toggle_ms, .. } = self.life.lock().timeouts;
            let disabled = self.wait(toggle_ms, 20, || {
                nic = segment.nic_interface();
                nic == DISABLED
            })?;
            if disabled.is_none() {
                // It may come back in another way: the rest of recovery finds out.
                dev_err!(self.pdev, "NIC IFC still {nic} after {toggle_ms}ms.\n");
            }
        }
        Ok(true)
    }

    /// Whether firmware asks for a reset, or does not move.
    fn needs_reset(&self, segment: &Segment<'_>) -> Result<bool, Lost> {
        let first = segment.health_word();
        if health::policy::syndrome(first) != 0 {
            let report = health::buffer::Report::new(segment.health_buffer(), segment.firmware());
            if report.wants_reset() {
                return Ok(true);
            }
        }
        let counter = health::policy::counter;
        let moved = self.wait(300, 50, || counter(segment.health_word()) != counter(first))?;
        Ok(moved.is_none())
    }

    /// Looks every `pause_ms` milliseconds whether `what` is so, at most `ms` long; `None` if it never
    /// is.
    fn wait(
        &self,
        ms: u32,
        pause_ms: i64,
        mut what: impl FnMut() -> bool,
    ) -> Result<Option<()>, Lost> {
        let start: Instant<Monotonic> = Instant::now();
        loop {
            // The time is taken first: the last look comes after the deadline.
            let late = start.elapsed().as_millis() >= i64::from(ms);
            if what() {
                return Ok(Some(()));
            }
            if self.gives_way() {
                return Err(Lost::GaveWay);
            }
            if late {
                return Ok(None);
            }
            fsleep(Delta::from_millis(pause_ms));
        }
    }
}
