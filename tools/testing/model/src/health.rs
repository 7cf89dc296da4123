// SPDX-License-Identifier: GPL-2.0

//! Firmware that dies: what the health buffer says then, and how it gets well again
//! (hardware.md section 1.1).

use std::time::Instant;

use log::info;

use crate::bar::initseg::nic_interface;
use crate::cmdif::SLOTS;
use crate::device::Device;
use crate::device::Later;
use crate::field;

/// Severity of a fatal report: LOG_CRIT.
const CRITICAL: u64 = 2;

/// What firmware leaves behind when it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fatal {
    /// Syndrome in the health buffer and beside the counter.
    pub syndrome: u8,
    /// What `nic_interface` reads as.
    pub nic_interface: u8,
}

impl Default for Fatal {
    fn default() -> Self {
        Self {
            // Firmware internal error.
            syndrome: 1,
            nic_interface: nic_interface::SW_RESET,
        }
    }
}

impl Device {
    /// Firmware dies: the buffer is filled, the counter stops, no command is answered any more.
    pub fn fail(&mut self, fatal: Fatal) {
        info!("firmware has died: {fatal:?}");
        let now = Instant::now();
        self.fatal = true;
        let seg = &mut self.seg;
        seg.set_health(field!("health_buffer", "synd"), fatal.syndrome.into());
        seg.set_health(field!("health_buffer", "rfr"), 1);
        seg.set_health(field!("health_buffer", "valid"), 1);
        seg.set_health(field!("health_buffer", "severity"), CRITICAL);
        seg.registers.health_syndrome = fatal.syndrome;
        seg.nic_shown = Some(fatal.nic_interface);
        seg.counter.stop(now);
    }

    /// Firmware is well. Commands of before are never answered.
    pub fn recover(&mut self) {
        if self.fatal {
            self.timers
                .retain(|later| !matches!(later, Later::Complete { .. }));
            self.hca.flights = [const { None }; SLOTS];
        }
        self.fatal = false;
        let seg = &mut self.seg;
        for bits in [
            field!("health_buffer", "synd"),
            field!("health_buffer", "rfr"),
            field!("health_buffer", "valid"),
            field!("health_buffer", "severity"),
        ] {
            seg.set_health(bits, 0);
        }
        seg.registers.health_syndrome = 0;
        seg.nic_shown = None;
        seg.counter.run(Instant::now());
    }
}
