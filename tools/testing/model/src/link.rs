// SPDX-License-Identifier: GPL-2.0

//! The device's connection to the host: up, silent for a while, or gone.
//!
//! While it is not up, reads give all ones, writes are lost, and the device neither uses the bus
//! nor interrupts. That is how a hung device, a link that is down, and a device that was pulled
//! out look to a driver.

use std::time::Duration;
use std::time::Instant;

use log::info;

use crate::bar::initseg::Initializing;
use crate::device::Device;

/// How the device falls silent, and how it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Configuration space is silent too, as when the link is down.
    pub config: bool,
    /// For how long; `None` is until told.
    pub length: Option<Duration>,
    /// For so many reads of configuration space at most; `None` is no limit.
    pub reads: Option<u32>,
    /// The function has been reset when it comes back, and is initializing for this long.
    pub reset: Option<Duration>,
}

/// Whether the host reaches the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// It does.
    #[default]
    Up,
    /// It does not, until a time or until told.
    Silent(Outage, Option<Instant>),
    /// It never will again, short of `vanish off` and `reset`.
    Gone,
}

impl Link {
    /// Name on the control socket.
    pub fn name(self) -> &'static str {
        match self {
            Link::Up => "up",
            Link::Silent(..) => "ones",
            Link::Gone => "gone",
        }
    }

    /// Whether configuration space answers.
    pub fn config(self) -> bool {
        match self {
            Link::Up => true,
            Link::Silent(outage, _) => !outage.config,
            Link::Gone => false,
        }
    }
}

impl Device {
    /// Whether registers answer and the device may use the bus, as far as the link goes.
    pub fn on_bus(&self) -> bool {
        self.link == Link::Up
    }

    /// The device falls silent.
    pub fn fall_silent(&mut self, outage: Outage) {
        info!("silent: {outage:?}");
        let until = outage.length.map(|length| Instant::now() + length);
        self.link = Link::Silent(outage, until);
    }

    /// Configuration space is read while it is silent: the device comes back when there were enough.
    pub(crate) fn read_in_vain(&mut self) {
        if let Link::Silent(outage, _) = &mut self.link {
            match &mut outage.reads {
                Some(0 | 1) => self.come_back(),
                Some(left) => *left -= 1,
                None => {}
            }
        }
    }

    /// Ends an outage, if there is one.
    pub fn come_back(&mut self) {
        let Link::Silent(outage, _) = self.link else {
            return;
        };
        self.link = Link::Up;
        info!("answers again");
        if let Some(initializing) = outage.reset {
            if outage.config {
                // A link that was down comes back with the whole function in its initial state.
                self.pci.reset();
            }
            self.reset_by_itself(initializing);
        }
    }

    /// Ends an outage whose time is over.
    pub(crate) fn come_back_in_time(&mut self, now: Instant) {
        if matches!(self.link, Link::Silent(_, Some(until)) if until <= now) {
            self.come_back();
        }
    }

    /// The device is pulled out, or dies for good. What it held stays to be looked at.
    pub fn vanish(&mut self) {
        info!("gone");
        self.link = Link::Gone;
    }

    /// Another device in the same place: as after power on to the driver.
    pub fn plug(&mut self) {
        if self.link == Link::Gone {
            self.link = Link::Up;
            self.pci.reset();
            self.reset_by_itself(Duration::ZERO);
        }
    }

    /// A reset that no driver asked for.
    pub(crate) fn reset_by_itself(&mut self, initializing: Duration) {
        self.function_reset();
        self.surprised = true;
        if !initializing.is_zero() {
            self.seg.initializing = Initializing::Until(Instant::now() + initializing);
        }
    }
}
