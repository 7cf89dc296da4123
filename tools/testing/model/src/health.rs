// SPDX-License-Identifier: GPL-2.0

//! Firmware that dies: what the health buffer says then, and how it gets well again
//! (hardware.md section 1.1).

use std::time::Duration;
use std::time::Instant;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use log::info;

use crate::bar::initseg::nic_interface;
use crate::bar::initseg::Initializing;
use crate::cmdif::SLOTS;
use crate::device::Device;
use crate::device::Later;
use crate::field;
use crate::link::Outage;

/// Severity of a fatal report: LOG_CRIT.
const CRITICAL: u64 = 2;

/// What firmware leaves in the other fields: numbers to tell them apart by.
const ASSERT_VAR: u32 = 0xa55e_0000;
const EXIT_POINTER: u64 = 0x00e0_1234;
const RETURN_ADDRESS: u64 = 0x00ca_5678;
const IRISC: u64 = 3;

/// What firmware leaves behind when it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fatal {
    /// Syndrome in the health buffer and beside the counter.
    pub syndrome: u8,
    /// More about it, in the health buffer.
    pub ext_syndrome: u16,
    /// What `nic_interface` reads as.
    pub nic_interface: u8,
    /// It asks for a reset.
    pub rfr: bool,
    /// It resets itself after this time, as when another function has asked for that.
    pub resets_itself: Option<Duration>,
}

/// What a software reset does, beside the reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftwareReset {
    /// How long the link is down then; configuration space is reset.
    pub silent: Duration,
    /// How long firmware is initializing after that.
    pub initializing: Duration,
    /// Firmware that has died lives again.
    pub revives: bool,
}

impl Default for SoftwareReset {
    fn default() -> Self {
        Self {
            silent: Duration::ZERO,
            initializing: Duration::ZERO,
            revives: true,
        }
    }
}

impl Default for Fatal {
    fn default() -> Self {
        Self {
            // Firmware internal error.
            syndrome: 1,
            ext_syndrome: 0,
            nic_interface: nic_interface::SW_RESET,
            rfr: true,
            resets_itself: None,
        }
    }
}

impl Device {
    /// Firmware dies: the buffer is filled, the counter stops, no command is answered any more.
    pub fn fail(&mut self, fatal: Fatal) {
        info!("firmware has died: {fatal:?}");
        let now = Instant::now();
        self.fatal = true;
        let epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let seg = &mut self.seg;
        seg.clear_health();
        for (bits, value) in [
            (field!("health_buffer", "assert_existptr"), EXIT_POINTER),
            (field!("health_buffer", "assert_callra"), RETURN_ADDRESS),
            (
                field!("health_buffer", "time"),
                epoch.as_secs() & u64::from(u32::MAX),
            ),
            (field!("health_buffer", "rfr"), fatal.rfr.into()),
            (field!("health_buffer", "valid"), 1),
            (field!("health_buffer", "severity"), CRITICAL),
            (field!("health_buffer", "irisc_index"), IRISC),
            (field!("health_buffer", "synd"), fatal.syndrome.into()),
            (
                field!("health_buffer", "ext_synd"),
                fatal.ext_syndrome.into(),
            ),
        ] {
            seg.set_health(bits, value);
        }
        for index in 0..6 {
            seg.set_assert_var(index as usize, ASSERT_VAR | index);
        }
        seg.registers.health_syndrome = fatal.syndrome;
        seg.nic_shown = Some(fatal.nic_interface);
        seg.counter.stop(now);
        if let Some(after) = fatal.resets_itself {
            self.timers
                .add(now + after, Later::NicInterface(nic_interface::SW_RESET));
        }
    }

    /// The reset that a driver asks for through `nic_interface`.
    pub(crate) fn reset_software(&mut self) {
        let reset = self.software_reset;
        let dies_again = self.fatal && !reset.revives;
        // A reset of the function revives firmware, if it is dead.
        self.fatal &= !dies_again;
        self.function_reset();
        self.fatal = dies_again;
        self.seg.nic_shown = None;
        if !reset.initializing.is_zero() {
            let until = Instant::now() + reset.silent + reset.initializing;
            self.seg.initializing = Initializing::Until(until);
        }
        if !reset.silent.is_zero() {
            self.pci.reset();
            self.fall_silent(Outage {
                config: true,
                reads: None,
                length: Some(reset.silent),
                reset: None,
            });
        }
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
        seg.clear_health();
        seg.registers.health_syndrome = 0;
        seg.nic_shown = None;
        seg.counter.run(Instant::now());
    }
}
