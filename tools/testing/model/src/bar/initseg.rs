// SPDX-License-Identifier: GPL-2.0

//! Initialization segment: registers of the device before and beside the command interface.
//!
//! Every register is a big-endian 32-bit word. Layout: hardware.md section 1, which has it
//! from `struct mlx5_init_seg` and `mlx5_ifc_initial_seg_bits`; fields that the header has are
//! placed by it.

use std::time::Duration;
use std::time::Instant;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use serde::Serialize;

use crate::field;
use crate::identity::Identity;
use crate::ifc;
use crate::ifc::Bits;

/// Bytes of the segment; larger than any register's offset.
pub const SIZE: usize = 0x2000;

/// `cmdq_phy_addr_63_32`.
pub const CMDQ_ADDR_H: usize = field!("initial_seg", "cmdq_phy_addr_63_32").byte();
/// `cmdq_phy_addr_31_12`, `nic_interface` and the queue's size.
pub const CMDQ_ADDR_L: usize = field!("initial_seg", "cmdq_phy_addr_31_12").byte();
/// `command_doorbell_vector`.
pub const DOORBELL: usize = field!("initial_seg", "command_doorbell_vector").byte();
const INITIALIZING: usize = field!("initial_seg", "initializing").byte();
/// Bit 30 of the initializing bit's word; the header has it as reserved (hardware.md).
const FW_RESET_SUPPORTED: Bits = Bits {
    offset: INITIALIZING as u32 * 8 + 1,
    ..field!("initial_seg", "initializing")
};
/// The health buffer.
pub const HEALTH: usize = field!("initial_seg", "health_buffer").byte();
/// Bytes of the health buffer.
pub const HEALTH_SIZE: usize = ifc::size_of("health_buffer");
/// Syndrome and counter.
pub const COUNTER: usize = field!("initial_seg", "health_syndrome").byte();
/// In the health buffer, not in the header: `assert_var[0..6]` and `crr` (hardware.md 1.1).
const ASSERT_VARS: usize = 6;
const CRR: Bits = Bits {
    offset: 0x38 * 8 + 1,
    ..field!("health_buffer", "rfr")
};
/// Not in the header: command timeout, initialization timeout, clocks (hardware.md).
const CMD_EXEC_TO: usize = 0xff8;
const CMD_Q_INIT_TO: usize = 0xffc;
const INTERNAL_TIMER_H: usize = 0x1000;
const INTERNAL_TIMER_L: usize = 0x1004;
/// Write-only, without effect on MSI-X.
pub const CLEAR_INT: usize = 0x100c;
const REAL_TIME_H: usize = 0x1040;
const REAL_TIME_L: usize = 0x1044;

/// Ticks of the internal timer in a second: one is a nanosecond.
pub const TIMER_KHZ: u32 = 1_000_000;

/// Period of the health counter.
pub const HEALTH_PERIOD: Duration = Duration::from_millis(10);

/// Values of `nic_interface`. The header declares 2 bits, drivers read 3.
pub mod nic_interface {
    /// Full driver.
    pub const FULL: u8 = 0;
    /// Disabled.
    pub const DISABLED: u8 = 1;
    /// Software reset.
    pub const SW_RESET: u8 = 7;
}

/// State of the initializing bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initializing {
    /// Until told otherwise.
    Held,
    /// Until a time.
    Until(Instant),
    /// Done.
    Done,
}

/// The health counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    value: u32,
    /// When it had the value; `None` if it stands still.
    since: Option<Instant>,
    /// When it stopped, if it did.
    stopped: Option<Instant>,
    period: Duration,
}

/// Largest value of the health counter.
pub const COUNTER_MAX: u32 = ifc::max_value(field!("initial_seg", "health_counter")) as u32;

impl Counter {
    /// Value at `now`.
    pub fn value(&self, now: Instant) -> u32 {
        let ticks = self.since.map_or(0, |t| {
            now.saturating_duration_since(t).as_millis() / self.period.as_millis()
        });
        self.value.wrapping_add(ticks as u32) & COUNTER_MAX
    }

    /// How often it moves.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Moves so often from now on, once it runs: at least a millisecond.
    pub fn set_period(&mut self, period: Duration, now: Instant) {
        let running = self.is_running();
        self.stop(now);
        self.period = period.max(Duration::from_millis(1));
        if running {
            self.run(now);
        }
    }

    /// Whether it moves.
    pub fn is_running(&self) -> bool {
        self.since.is_some()
    }

    /// Stands still from now on.
    pub fn stop(&mut self, now: Instant) {
        self.value = self.value(now);
        self.since = None;
        self.stopped.get_or_insert(now);
    }

    /// How long it has stood still at `now`; `None` if it runs.
    pub fn still(&self, now: Instant) -> Option<Duration> {
        self.stopped.map(|t| now.saturating_duration_since(t))
    }

    /// Goes on from where it is.
    pub fn run(&mut self, now: Instant) {
        self.value = self.value(now);
        self.since = Some(now);
        self.stopped = None;
    }

    /// Has another value from now on, running or not as before.
    pub fn jump(&mut self, value: u32, now: Instant) {
        self.value = value & COUNTER_MAX;
        self.since = self.since.map(|_| now);
    }
}

/// The registers that are not computed.
#[derive(Clone, Debug, Serialize)]
pub struct Registers {
    /// Low half of word 0.
    pub fw_rev_major: u16,
    /// High half of word 0.
    pub fw_rev_minor: u16,
    /// Low half of word 1.
    pub fw_rev_subminor: u16,
    /// High half of word 1; drivers want 5.
    pub cmd_interface_rev: u16,
    /// Log2 of the number of slots.
    pub log_cmdq_size: u8,
    /// Log2 of the bytes between slots.
    pub log_cmdq_stride: u8,
    /// Raw word at 0xff8: multiplier in bits 31:29 (0 ms, 1 s), value in bits 19:0.
    pub cmd_exec_to: u32,
    /// Raw word at 0xffc; 0 means that there are no timeouts and no DTOR register.
    pub cmd_q_init_to: u32,
    /// Bit for each supported value of `nic_interface`.
    pub nic_interface_supported: u8,
    /// 1: a driver may write `nic_interface` 7 to reset firmware.
    pub fw_reset_supported: u8,
    /// 1: this is the embedded CPU's function.
    pub embedded_cpu: u8,
    /// Syndrome beside the health counter.
    pub health_syndrome: u8,
}

/// The initialization segment.
#[derive(Clone, Debug)]
pub struct InitSegment {
    /// Registers that the control socket may change.
    pub registers: Registers,
    /// The health buffer.
    pub health: [u8; HEALTH_SIZE],
    /// Address of the command queue as written, high word.
    pub cmdq_h: u32,
    /// Address of the command queue as written, low word without its low 12 bits.
    pub cmdq_l: u32,
    /// `nic_interface`.
    pub nic_interface: u8,
    /// What `nic_interface` reads as instead.
    pub nic_shown: Option<u8>,
    /// The health counter.
    pub counter: Counter,
    /// The initializing bit.
    pub initializing: Initializing,
    started: Instant,
}

/// A timeout word in milliseconds.
const fn milliseconds(value: u32) -> u32 {
    value & 0xf_ffff
}

impl InitSegment {
    /// The segment of `identity` after power on.
    pub fn new(identity: &Identity) -> Self {
        let (major, minor, subminor) = identity.firmware;
        let mut health = [0; HEALTH_SIZE];
        let now = Instant::now();
        let fw = u32::from(major) << 24 | u32::from(minor) << 16 | u32::from(subminor);
        ifc::set(
            &mut health,
            field!("health_buffer", "fw_version"),
            fw.into(),
        );
        ifc::set(
            &mut health,
            field!("health_buffer", "hw_id"),
            identity.hw_id.into(),
        );
        Self {
            registers: Registers {
                fw_rev_major: major,
                fw_rev_minor: minor,
                fw_rev_subminor: subminor,
                cmd_interface_rev: 5,
                log_cmdq_size: 5,
                log_cmdq_stride: 6,
                // The defaults of hardware.md section 2.2: 60 s and 2 s.
                cmd_exec_to: milliseconds(60_000),
                cmd_q_init_to: milliseconds(2_000),
                // Full driver and disabled.
                nic_interface_supported: 0x3,
                // Firmware is that of all functions: only a physical one may reset it.
                fw_reset_supported: (!identity.vf).into(),
                embedded_cpu: 0,
                health_syndrome: 0,
            },
            health,
            cmdq_h: 0,
            cmdq_l: 0,
            nic_interface: nic_interface::FULL,
            nic_shown: None,
            counter: Counter {
                value: 0,
                since: Some(now),
                stopped: None,
                period: HEALTH_PERIOD,
            },
            initializing: Initializing::Done,
            started: now,
        }
    }

    /// What a function level reset does: queue address and `nic_interface` go, the rest is
    /// firmware's.
    pub fn reset(&mut self) {
        self.cmdq_h = 0;
        self.cmdq_l = 0;
        self.nic_interface = nic_interface::FULL;
    }

    /// Changes a field of the health buffer.
    pub fn set_health(&mut self, bits: Bits, value: u64) {
        ifc::set(&mut self.health, bits, value);
    }

    /// Changes `assert_var[index]`.
    pub fn set_assert_var(&mut self, index: usize, value: u32) {
        if let Some(var) = self.health.chunks_exact_mut(4).take(ASSERT_VARS).nth(index) {
            var.copy_from_slice(&value.to_be_bytes());
        }
    }

    /// Clears the health buffer, but for what is no report.
    pub fn clear_health(&mut self) {
        let kept = [
            field!("health_buffer", "fw_version"),
            field!("health_buffer", "hw_id"),
        ]
        .map(|bits| (bits, self.health(bits)));
        self.health.fill(0);
        for (bits, value) in kept {
            self.set_health(bits, value);
        }
    }

    /// A field of the health buffer.
    pub fn health(&self, bits: Bits) -> u64 {
        ifc::get(&self.health, bits)
    }

    /// Address of the command queue; `None` before it was written.
    pub fn cmdq(&self) -> Option<u64> {
        let address = u64::from(self.cmdq_h) << 32 | u64::from(self.cmdq_l);
        (address != 0).then_some(address)
    }

    /// Whether firmware is not ready yet.
    pub fn is_initializing(&self, now: Instant) -> bool {
        match self.initializing {
            Initializing::Held => true,
            Initializing::Until(t) => now < t,
            Initializing::Done => false,
        }
    }

    /// The word at `offset` (a multiple of 4).
    fn word(&self, offset: usize, now: Instant) -> u32 {
        let r = &self.registers;
        let mut word = [0u8; 4];
        let mut put = |bits: Bits, value: u64| {
            if bits.byte() / 4 * 4 == offset {
                let bits = Bits {
                    offset: bits.offset % 32,
                    ..bits
                };
                ifc::set(&mut word, bits, value);
            }
        };
        let since = now.saturating_duration_since(self.started);
        match offset {
            0x0 | 0x4 => {
                put(field!("initial_seg", "fw_rev_major"), r.fw_rev_major.into());
                put(field!("initial_seg", "fw_rev_minor"), r.fw_rev_minor.into());
                put(
                    field!("initial_seg", "fw_rev_subminor"),
                    r.fw_rev_subminor.into(),
                );
                put(
                    field!("initial_seg", "cmd_interface_rev"),
                    r.cmd_interface_rev.into(),
                );
            }
            CMDQ_ADDR_H => return self.cmdq_h,
            CMDQ_ADDR_L => {
                return self.cmdq_l
                    | u32::from(self.nic_shown.unwrap_or(self.nic_interface) & 7) << 8
                    | u32::from(r.log_cmdq_size & 0xf) << 4
                    | u32::from(r.log_cmdq_stride & 0xf)
            }
            INITIALIZING => {
                put(
                    field!("initial_seg", "initializing"),
                    self.is_initializing(now).into(),
                );
                put(
                    field!("initial_seg", "nic_interface_supported"),
                    r.nic_interface_supported.into(),
                );
                put(field!("initial_seg", "embedded_cpu"), r.embedded_cpu.into());
                put(FW_RESET_SUPPORTED, r.fw_reset_supported.into());
            }
            HEALTH..COUNTER if offset < HEALTH + HEALTH_SIZE => {
                let at = offset - HEALTH;
                word.copy_from_slice(&self.health[at..at + 4]);
            }
            CMD_EXEC_TO => return r.cmd_exec_to,
            CMD_Q_INIT_TO => return r.cmd_q_init_to,
            INTERNAL_TIMER_H => return (since.as_nanos() >> 32) as u32,
            INTERNAL_TIMER_L => return since.as_nanos() as u32,
            COUNTER => {
                put(
                    field!("initial_seg", "health_syndrome"),
                    r.health_syndrome.into(),
                );
                put(
                    field!("initial_seg", "health_counter"),
                    self.counter.value(now).into(),
                );
            }
            REAL_TIME_H | REAL_TIME_L => {
                let real = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default();
                return if offset == REAL_TIME_H {
                    real.as_secs() as u32
                } else {
                    real.subsec_nanos()
                };
            }
            _ => {}
        }
        u32::from_be_bytes(word)
    }

    /// Reads any bytes of the segment; all words are of the same moment.
    pub fn read(&self, offset: usize, data: &mut [u8], now: Instant) {
        let mut cached = (usize::MAX, [0u8; 4]);
        for (i, byte) in data.iter_mut().enumerate() {
            let at = offset + i;
            let base = at & !3;
            if cached.0 != base {
                cached = (base, self.word(base, now).to_be_bytes());
            }
            *byte = cached.1[at & 3];
        }
    }

    /// Changes a register by name, for the control socket.
    ///
    /// # Errors
    ///
    /// When there is no such register or the value does not fit; the message says which there are.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), String> {
        fn fit<T: TryFrom<u64>>(slot: &mut T, name: &str, value: u64) -> Result<(), String> {
            *slot = T::try_from(value).map_err(|_| format!("{value:#x} does not fit {name}"))?;
            Ok(())
        }
        let r = &mut self.registers;
        match name {
            "fw_rev_major" => fit(&mut r.fw_rev_major, name, value),
            "fw_rev_minor" => fit(&mut r.fw_rev_minor, name, value),
            "fw_rev_subminor" => fit(&mut r.fw_rev_subminor, name, value),
            "cmd_interface_rev" => fit(&mut r.cmd_interface_rev, name, value),
            "log_cmdq_size" => fit(&mut r.log_cmdq_size, name, value),
            "log_cmdq_stride" => fit(&mut r.log_cmdq_stride, name, value),
            "cmd_exec_to" => fit(&mut r.cmd_exec_to, name, value),
            "cmd_q_init_to" => fit(&mut r.cmd_q_init_to, name, value),
            "nic_interface_supported" => fit(&mut r.nic_interface_supported, name, value),
            "fw_reset_supported" => fit(&mut r.fw_reset_supported, name, value),
            "embedded_cpu" => fit(&mut r.embedded_cpu, name, value),
            "health_syndrome" => fit(&mut r.health_syndrome, name, value),
            "crr" if value <= 1 => {
                ifc::set(&mut self.health, CRR, value);
                Ok(())
            }
            var if var.starts_with("assert_var") => {
                let index = var["assert_var".len()..].parse().ok();
                let index = index.filter(|i| *i < ASSERT_VARS).ok_or(format!(
                    "no register {name:?}; there are assert_var0 to assert_var5"
                ))?;
                let mut word = 0;
                fit(&mut word, name, value)?;
                self.set_assert_var(index, word);
                Ok(())
            }
            _ => match ifc::try_locate("health_buffer", name) {
                Some(bits) if value <= ifc::max_value(bits) => {
                    ifc::set(&mut self.health, bits, value);
                    Ok(())
                }
                Some(_) => Err(format!("{value:#x} does not fit {name}")),
                None => Err(format!(
                    "no register {name:?}; there are fw_rev_major, fw_rev_minor, \
                     fw_rev_subminor, cmd_interface_rev, log_cmdq_size, log_cmdq_stride, \
                     cmd_exec_to, cmd_q_init_to, nic_interface_supported, \
                     fw_reset_supported, embedded_cpu, health_syndrome, crr, assert_var0 to \
                     assert_var5 and the fields of health_buffer"
                )),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::PortType;

    fn word(s: &InitSegment, at: usize, now: Instant) -> u32 {
        let mut b = [0; 4];
        s.read(at, &mut b, now);
        u32::from_be_bytes(b)
    }

    fn segment() -> InitSegment {
        InitSegment::new(&Identity::new("cx7", PortType::Ib, false).expect("cx7"))
    }

    #[test]
    fn words_of_the_fact_sheet() {
        let mut s = segment();
        let now = s.started;
        assert_eq!(word(&s, 0x0, now), 43 << 16 | 28);
        assert_eq!(word(&s, 0x4, now), 5 << 16 | 1000);
        s.cmdq_l = 0x1234_5000;
        s.nic_interface = 7;
        assert_eq!(word(&s, 0x14, now), 0x1234_5756);
        assert_eq!(word(&s, 0x1fc, now), 1 << 30 | 0x3 << 24);
        s.initializing = Initializing::Until(now + HEALTH_PERIOD);
        assert_eq!(word(&s, 0x1fc, now) >> 31, 1);
        assert_eq!(word(&s, 0x1fc, now + HEALTH_PERIOD) >> 31, 0);
        assert_eq!(word(&s, 0xff8, now), 60_000);
        assert_eq!(word(&s, 0x230, now), 28 << 24 | 43 << 16 | 1000);
        s.set("synd", 8).expect("health_buffer.synd");
        assert_eq!(word(&s, 0x23c, now), 8 << 16);
        assert!(s.set("log_cmdq_size", 256).is_err());
        assert!(s
            .set("nonsense", 1)
            .expect_err("no such")
            .contains("cmd_exec_to"));
    }

    #[test]
    fn counter_and_timer_move() {
        let mut s = segment();
        let now = s.started;
        assert_eq!(word(&s, 0x1010, now), 0);
        assert_eq!(word(&s, 0x1010, now + HEALTH_PERIOD * 3), 3);
        s.registers.health_syndrome = 7;
        assert_eq!(
            word(&s, 0x1010, now + HEALTH_PERIOD * 0x1_000_002),
            7 << 24 | 2
        );
        let later = now + Duration::from_nanos(0x1_2345_6789);
        let mut b = [0; 8];
        s.read(0x1000, &mut b, later);
        assert_eq!(u64::from_be_bytes(b), 0x1_2345_6789);
        let mut byte = [0; 1];
        s.read(0x1007, &mut byte, later);
        assert_eq!(byte, [0x89]);
    }
}
