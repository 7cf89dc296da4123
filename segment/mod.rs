// SPDX-License-Identifier: GPL-2.0

//! The initialization segment at offset 0 of BAR 0, and the doorbells of the UAR pages behind it
//! (hardware.md 1).
//!
//! Lives here: every MMIO access of the driver. Owns: the mapping of BAR 0. May be called by:
//! cmdif, eq, health and device; calls kapi only.
//!
//! The device is big-endian; the bus wrappers are little-endian, so that each word is swapped here,
//! on a host of either kind.

pub(crate) mod decode;

use kernel::{
    device::Bound,
    io::Io,
    pci,
    prelude::*,
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use crate::layouts::{
    own::{
        FW_RESET_SUPPORTED,
        NIC_INTERFACE, //
    },
    segment::{
        HealthBuffer,
        InitialSeg,
        InitialSegC, //
    },
    WordField, //
};
use decode::{
    Firmware,
    QueueShape, //
};

/// What must be mapped at least: the segment (`struct mlx5_init_seg` has 0x2010 bytes, `mlx5_ifc.h`
/// says 0x4000).
const MIN_BAR: usize = 0x4000;

/// The size of a UAR page in bytes: always 4 KiB with `uar_4k` or 4 KiB system pages
/// (hardware.md 5.11).
const UAR_PAGE: usize = 4096;

/// EQ doorbells of a UAR page, in bytes: consumer index and arm, consumer index only
/// (hardware.md 3.1).
const UAR_EQ_ARM: usize = 0x40;
const UAR_EQ_UPDATE: usize = 0x48;

/// The mapped BAR 0.
pub(crate) struct Segment<'a> {
    pdev: &'a pci::Device<Bound>,
    bar: pci::Bar<'a, MIN_BAR>,
}

/// Why firmware is not ready.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotReady {
    /// The initializing bit was still set after so many milliseconds.
    StillInitializing(u32),
    /// The device does not answer: every read is all ones.
    Gone,
    /// The caller does not want to wait any more.
    GivenUp,
}

impl<'a> Segment<'a> {
    /// Maps BAR 0.
    ///
    /// # Errors
    ///
    /// `EBUSY` when somebody else has it, `ENOMEM` when it is too small or cannot be mapped.
    pub(crate) fn new(pdev: &'a pci::Device<Bound>) -> Result<Self> {
        Ok(Self {
            pdev,
            bar: pdev.iomap_region_sized(0, crate::NAME)?,
        })
    }

    /// A word at a byte offset; all ones when it is not in the BAR, as the bus does.
    fn word(&self, offset: usize) -> u32 {
        (&self.bar)
            .try_read32(offset)
            .map_or(u32::MAX, u32::swap_bytes)
    }

    fn field(&self, field: WordField) -> u32 {
        field.get(self.word(field.offset))
    }

    fn set_word(&self, offset: usize, value: u32) -> Result {
        (&self.bar).try_write32(value.swap_bytes(), offset)
    }

    /// Whether the device is off the bus: no register of a living one is all ones here.
    pub(crate) fn is_gone(&self) -> bool {
        self.word(InitialSeg::FW_REV_MAJOR.in_word().offset) == u32::MAX
            && self.word(InitialSeg::INITIALIZING.in_word().offset) == u32::MAX
    }

    /// Waits until firmware is ready, at most `ms` milliseconds, with a line in the log every 20 s
    /// (field case C11), or until `gives_up` says so.
    ///
    /// # Errors
    ///
    /// [`NotReady`].
    pub(crate) fn wait_ready(&self, ms: u32, gives_up: impl Fn() -> bool) -> Result<(), NotReady> {
        /// How often the bit is read (hardware.md 2.2).
        const POLL: Delta = Delta::from_millis(2);
        const NOTE_MS: i64 = 20_000;

        let start: Instant<Monotonic> = Instant::now();
        let mut next_note = NOTE_MS;
        loop {
            // The time is taken first: the last look comes after the deadline.
            let elapsed = start.elapsed().as_millis();
            if self.field(InitialSeg::INITIALIZING.in_word()) == 0 {
                return Ok(());
            }
            if self.is_gone() {
                return Err(NotReady::Gone);
            }
            if gives_up() {
                return Err(NotReady::GivenUp);
            }
            if elapsed >= i64::from(ms) {
                return Err(NotReady::StillInitializing(ms));
            }
            if elapsed >= next_note {
                dev_warn!(
                    self.pdev,
                    "Waiting for FW initialization, timeout abort in {}s\n",
                    (i64::from(ms) - elapsed) / 1000
                );
                next_note += NOTE_MS;
            }
            fsleep(POLL);
        }
    }

    /// Firmware version and command interface revision.
    pub(crate) fn firmware(&self) -> Firmware {
        Firmware {
            major: self.field(InitialSeg::FW_REV_MAJOR.in_word()) as u16,
            minor: self.field(InitialSeg::FW_REV_MINOR.in_word()) as u16,
            subminor: self.field(InitialSeg::FW_REV_SUBMINOR.in_word()) as u16,
            cmd_interface_rev: self.field(InitialSeg::CMD_INTERFACE_REV.in_word()) as u16,
        }
    }

    /// The shape of the command queue, as the device gives it; read it before the address is set.
    pub(crate) fn queue_shape(&self) -> QueueShape {
        QueueShape {
            log_size: self.field(InitialSeg::LOG_CMDQ_SIZE.in_word()) as u8,
            log_stride: self.field(InitialSeg::LOG_CMDQ_STRIDE.in_word()) as u8,
        }
    }

    /// Tells the device where the command queue is; `addr` is 4 KiB-aligned. The same word sets
    /// `nic_interface` to 0, the full driver.
    pub(crate) fn set_queue_address(&self, addr: u64) -> Result {
        self.set_word(
            InitialSeg::CMDQ_PHY_ADDR_63_32.in_word().offset,
            (addr >> 32) as u32,
        )?;
        self.set_word(
            InitialSeg::CMDQ_PHY_ADDR_31_12.in_word().offset,
            addr as u32,
        )
    }

    /// Rings the doorbell of one command slot. What was written to memory before is visible to the
    /// device: the write is ordered after it.
    pub(crate) fn ring_command(&self, slot: u8) -> Result {
        let vector = 1_u32.checked_shl(slot.into()).ok_or(EINVAL)?;
        self.set_word(InitialSeg::COMMAND_DOORBELL_VECTOR.in_word().offset, vector)
    }

    /// Tells the device that nobody drives it any more, after a fast teardown, and waits at most `ms`
    /// milliseconds until it agrees. The queue address stays.
    pub(crate) fn disable_nic_interface(&self, ms: u32) -> bool {
        /// `nic_interface`: disabled (hardware.md 1).
        const DISABLED: u32 = 1;
        const POLL: Delta = Delta::from_millis(1);

        if self.set_nic_interface(DISABLED).is_err() {
            return false;
        }
        let start: Instant<Monotonic> = Instant::now();
        loop {
            let late = start.elapsed().as_millis() >= i64::from(ms);
            if u32::from(self.nic_interface()) == DISABLED {
                return true;
            }
            if late || self.is_gone() {
                return false;
            }
            fsleep(POLL);
        }
    }

    /// The word with health syndrome and counter.
    pub(crate) fn health_word(&self) -> u32 {
        self.word(InitialSegC::HEALTH_COUNTER.in_word().offset)
    }

    /// Who drives the NIC interface, in the device's view.
    pub(crate) fn nic_interface(&self) -> u8 {
        self.field(NIC_INTERFACE.in_word()) as u8
    }

    /// The health buffer. Not to be read while firmware is well, or does not say that it is not.
    pub(crate) fn health_buffer(&self) -> [u8; HealthBuffer::LEN] {
        const START: usize = InitialSeg::HEALTH_BUFFER.offset / 8;

        let mut bytes = [0; HealthBuffer::LEN];
        for (i, chunk) in bytes.chunks_exact_mut(4).enumerate() {
            chunk.copy_from_slice(&self.word(START + i * 4).to_be_bytes());
        }
        bytes
    }

    /// Whether software may reset firmware.
    pub(crate) fn supports_reset(&self) -> bool {
        self.field(FW_RESET_SUPPORTED.in_word()) != 0
    }

    /// Resets firmware, for all functions of the device (hardware.md 1.2). The queue address stays.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the register cannot be written.
    pub(crate) fn reset_firmware(&self) -> Result {
        const SW_RESET: u32 = 7;

        self.set_nic_interface(SW_RESET)
    }

    fn set_nic_interface(&self, value: u32) -> Result {
        let field = NIC_INTERFACE.in_word();
        // The low bits other than nic_interface are read-only and written 0.
        let address = self.word(field.offset) & !0xfff;
        let word = field.with(address, value).ok_or(EINVAL)?;
        self.set_word(field.offset, word)
    }

    /// Whether this is the function of the embedded CPU (DPU side).
    pub(crate) fn embedded_cpu(&self) -> bool {
        self.field(InitialSeg::EMBEDDED_CPU.in_word()) != 0
    }

    /// The command timeout that the device asks for in milliseconds, if it gives one.
    pub(crate) fn command_timeout_ms(&self) -> Option<u32> {
        // 0 in the second word: neither word means anything (hardware.md 1).
        if self.word(InitialSegC::CMD_Q_INIT_TO.in_word().offset) == 0 {
            return None;
        }
        decode::timeout_ms(self.word(InitialSegC::CMD_EXEC_TO.in_word().offset))
    }

    /// Whether `uar` is the number of a UAR page within the BAR.
    pub(crate) fn has_uar(&self, uar: u32) -> bool {
        let Ok(uar) = usize::try_from(uar) else {
            return false;
        };
        uar.checked_add(1)
            .and_then(|n| n.checked_mul(UAR_PAGE))
            .is_some_and(|end| end <= (&self.bar).size())
    }

    /// Tells the device the consumer index of an event queue, and lets it interrupt at the next
    /// entry: `value` is queue number and consumer index.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the UAR page is not in the BAR.
    pub(crate) fn arm_eq(&self, uar: u32, value: u32) -> Result {
        self.ring_uar(uar, UAR_EQ_ARM, value)
    }

    /// The same without arming.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the UAR page is not in the BAR.
    pub(crate) fn update_eq(&self, uar: u32, value: u32) -> Result {
        self.ring_uar(uar, UAR_EQ_UPDATE, value)
    }

    fn ring_uar(&self, uar: u32, offset: usize, value: u32) -> Result {
        let page = usize::try_from(uar)?.checked_mul(UAR_PAGE).ok_or(EINVAL)?;
        self.set_word(page.checked_add(offset).ok_or(EINVAL)?, value)
    }
}
