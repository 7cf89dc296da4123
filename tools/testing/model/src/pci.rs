// SPDX-License-Identifier: GPL-2.0

//! PCI and PCIe configuration space.
//!
//! One physical or virtual function: type 0 header, 64-bit prefetchable BAR 0,
//! power management, PCI Express with function level reset, MSI-X, and advanced
//! error reporting and SR-IOV in the extended space. Offsets and bits: PCI
//! Express Base Specification (names as in the kernel's `pci_regs.h`). Registers
//! are little-endian.
//!
//! QEMU hides an SR-IOV capability from its guest, and does not take a device
//! without ids, as virtual functions are. It looks at all of the space at once,
//! before the guest starts, and passes what the guest reads later word by word: so
//! the capability has another name in a long read, and a virtual function has ids
//! there.

use crate::bar;
use crate::identity::Identity;
use crate::identity::PortType;
use crate::identity::VENDOR;

/// Bytes of the configuration space.
pub const SIZE: usize = 4096;

/// MSI-X vectors.
pub const VECTORS: u16 = 64;

/// Where the vector table is in BAR 0.
pub const MSIX_TABLE: u32 = 0x2000;
/// Where the pending bits are in BAR 0.
pub const MSIX_PBA: u32 = 0x3000;

const COMMAND: usize = 0x04;
const COMMAND_MASTER: u16 = 1 << 2;
const STATUS: usize = 0x06;
const BAR0: usize = 0x10;

const CAP_PM: usize = 0x40;
const CAP_EXP: usize = 0x60;
const EXP_DEVCTL: usize = CAP_EXP + 0x08;
const DEVCTL_FLR: u16 = 1 << 15;
const CAP_MSIX: usize = 0x9c;
const EXT_AER: usize = 0x100;
const EXT_SRIOV: usize = 0x140;
const SRIOV_CONTROL: usize = EXT_SRIOV + 0x08;
const SRIOV_VF_ENABLE: u16 = 1 << 0;
const SRIOV_NUM_VFS: usize = EXT_SRIOV + 0x10;

/// Capability ids.
const ID_SRIOV: u16 = 0x0010;
/// Device serial number: what SR-IOV is called in a long read.
const ID_DISGUISE: u16 = 0x0003;

/// The longest read that a guest makes.
const WORD: usize = 8;

/// What a write to the configuration space asks the device to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing but the new values.
    None,
    /// Function level reset. The registers have been reset.
    FunctionReset,
    /// Bus mastering was switched on or off.
    Master(bool),
}

/// The configuration space.
#[derive(Clone, Debug)]
pub struct Config {
    behind_pf: bool,
    total_vfs: u16,
    bytes: Box<[u8; SIZE]>,
    /// Bits that a write changes.
    writable: Box<[u8; SIZE]>,
    /// Bits that writing 1 clears.
    clear: Box<[u8; SIZE]>,
    initial: Box<[u8; SIZE]>,
}

impl Config {
    /// Configuration space of `identity`.
    pub fn new(identity: &Identity) -> Self {
        let mut c = Self {
            behind_pf: identity.behind_pf,
            total_vfs: identity.total_vfs,
            bytes: Box::new([0; SIZE]),
            writable: Box::new([0; SIZE]),
            clear: Box::new([0; SIZE]),
            initial: Box::new([0; SIZE]),
        };
        c.header(identity, identity.bar_size());
        c.power_management();
        c.express(identity);
        c.msix();
        c.error_reporting();
        if identity.total_vfs != 0 {
            c.sriov(identity);
        }
        c.initial = c.bytes.clone();
        c
    }

    fn put16(&mut self, at: usize, value: u16, writable: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        self.writable[at..at + 2].copy_from_slice(&writable.to_le_bytes());
    }

    fn put32(&mut self, at: usize, value: u32, writable: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self.writable[at..at + 4].copy_from_slice(&writable.to_le_bytes());
    }

    fn get16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn header(&mut self, identity: &Identity, bar_size: u64) {
        self.put16(0x00, VENDOR, 0);
        self.put16(0x02, identity.device_id, 0);
        // Memory, bus master, parity response, SERR, INTx disable.
        self.put16(COMMAND, 0, 0x0546);
        // Capability list; the error bits are cleared by writing 1.
        self.put16(STATUS, 1 << 4, 0);
        self.clear[STATUS + 1] = 0xf9;
        // Revision 0; network controller, InfiniBand or Ethernet.
        let class: u16 = match identity.port_type {
            PortType::Ib => 0x0207,
            PortType::Eth => 0x0200,
        };
        self.put16(0x0a, class, 0);
        self.put16(0x0c, 0, 0x00ff);
        // 64-bit, prefetchable.
        let mask = !(bar_size - 1);
        self.put32(BAR0, 0xc, mask as u32 & !0xf);
        self.put32(BAR0 + 4, 0, (mask >> 32) as u32);
        self.put16(0x2c, VENDOR, 0);
        self.put16(0x2e, identity.device_id, 0);
        self.bytes[0x34] = CAP_EXP as u8;
        self.put16(0x3c, 0, 0x00ff);
    }

    fn express(&mut self, identity: &Identity) {
        self.put16(CAP_EXP, 0x10 | (CAP_MSIX as u16) << 8, 0);
        // Version 2, endpoint.
        self.put16(CAP_EXP + 0x02, 0x0002, 0);
        // 512 byte payload, extended tags, role-based errors, function level reset.
        self.put32(CAP_EXP + 0x04, 2 | 1 << 5 | 1 << 15 | 1 << 28, 0);
        // Relaxed ordering, 512 byte reads, extended tags, no snoop.
        self.put16(EXP_DEVCTL, 0x2910, 0x7fff);
        self.clear[EXP_DEVCTL + 2] = 0x0f;
        if !identity.vf {
            // 16 GT/s, x16, with the link up.
            self.put32(CAP_EXP + 0x0c, 4 | 16 << 4, 0);
            self.put16(CAP_EXP + 0x10, 0, 0x0fff);
            self.put16(CAP_EXP + 0x12, 4 | 16 << 4, 0);
            self.put32(CAP_EXP + 0x2c, 0x1e, 0);
            self.put16(CAP_EXP + 0x30, 4, 0x000f);
        }
        // Completion timeout ranges A to D and their disabling.
        self.put32(CAP_EXP + 0x24, 0x1f, 0);
        self.put16(CAP_EXP + 0x28, 0, 0x001f);
    }

    fn power_management(&mut self) {
        self.put16(CAP_PM, 0x01, 0);
        // Version 3.
        self.put16(CAP_PM + 2, 0x0003, 0);
        // No_Soft_Reset: nothing is lost in D3hot.
        self.put16(CAP_PM + 4, 1 << 3, 0x0003);
    }

    fn msix(&mut self) {
        self.put16(CAP_MSIX, 0x11 | (CAP_PM as u16) << 8, 0);
        self.put16(CAP_MSIX + 2, VECTORS - 1, 0xc000);
        self.put32(CAP_MSIX + 4, MSIX_TABLE, 0);
        self.put32(CAP_MSIX + 8, MSIX_PBA, 0);
    }

    fn sriov(&mut self, identity: &Identity) {
        // After error reporting, version 1, last of the list.
        self.put16(EXT_AER + 0x02, 2 | (EXT_SRIOV as u16) << 4, 0);
        self.put32(EXT_SRIOV, u32::from(ID_SRIOV) | 1 << 16, 0);
        // VF enable, memory space enable, ARI.
        self.put16(SRIOV_CONTROL, 0, 0x0019);
        // Initial, total.
        self.put16(EXT_SRIOV + 0x0c, identity.total_vfs, 0);
        self.put16(EXT_SRIOV + 0x0e, identity.total_vfs, 0);
        self.put16(SRIOV_NUM_VFS, 0, 0xffff);
        // Offset and stride: the functions after this one.
        self.put16(EXT_SRIOV + 0x14, 1, 0);
        self.put16(EXT_SRIOV + 0x16, 1, 0);
        self.put16(EXT_SRIOV + 0x1a, identity.vf_device_id, 0);
        // Page sizes: 4 KiB to 4 MiB; 4 KiB.
        self.put32(EXT_SRIOV + 0x1c, 0x553, 0);
        self.put32(EXT_SRIOV + 0x20, 1, 0x553);
        // 64-bit, prefetchable.
        let mask = !(bar::VF_SIZE - 1);
        self.put32(EXT_SRIOV + 0x24, 0xc, mask as u32 & !0xf);
        self.put32(EXT_SRIOV + 0x28, 0, (mask >> 32) as u32);
    }

    fn error_reporting(&mut self) {
        // Version 2, last of the list.
        self.put32(EXT_AER, 0x0001 | 2 << 16, 0);
        // Uncorrectable errors: status, mask, severity; correctable: status, mask.
        self.clear[EXT_AER + 0x04..EXT_AER + 0x08].copy_from_slice(&0x003f_f030u32.to_le_bytes());
        self.put32(EXT_AER + 0x08, 0, 0x003f_f030);
        self.put32(EXT_AER + 0x0c, 0x0006_2030, 0x003f_f030);
        self.clear[EXT_AER + 0x10..EXT_AER + 0x14].copy_from_slice(&0x0000_31c1u32.to_le_bytes());
        self.put32(EXT_AER + 0x14, 0x0000_2000, 0x0000_31c1);
    }

    /// Reads; bytes outside of the space read as zero.
    pub fn read(&self, offset: usize, data: &mut [u8]) {
        for (i, byte) in data.iter_mut().enumerate() {
            *byte = self.bytes.get(offset + i).copied().unwrap_or(0);
        }
        if data.len() > WORD {
            if self.total_vfs != 0 {
                overlay(data, offset, EXT_SRIOV, &ID_DISGUISE.to_le_bytes());
            }
        } else if self.behind_pf {
            overlay(data, offset, 0, &[0xff; 4]);
        }
    }

    /// Changes a register, read-only or not.
    ///
    /// # Errors
    ///
    /// When `at` is odd, or outside of the space.
    pub fn set(&mut self, at: usize, value: u16) -> Result<(), String> {
        let place = self.bytes.get_mut(at..).and_then(|b| b.get_mut(..2));
        let place = place
            .filter(|_| at % 2 == 0)
            .ok_or_else(|| format!("no 16-bit register at {at:#x}"))?;
        place.copy_from_slice(&value.to_le_bytes());
        Ok(())
    }

    /// How many virtual functions are enabled.
    pub fn num_vfs(&self) -> u16 {
        if self.total_vfs != 0 && self.get16(SRIOV_CONTROL) & SRIOV_VF_ENABLE != 0 {
            self.get16(SRIOV_NUM_VFS)
        } else {
            0
        }
    }

    /// Writes.
    pub fn write(&mut self, offset: usize, data: &[u8]) -> Effect {
        let master = self.bus_master();
        let mut reset = false;
        for (i, &value) in data.iter().enumerate() {
            let at = offset + i;
            let Some(byte) = self.bytes.get_mut(at) else {
                continue;
            };
            let writable = self.writable[at];
            *byte = (*byte & !writable | value & writable) & !(value & self.clear[at]);
            reset |= at == EXP_DEVCTL + 1 && value & (DEVCTL_FLR >> 8) as u8 != 0;
        }
        if reset {
            self.reset();
            Effect::FunctionReset
        } else if self.bus_master() != master {
            Effect::Master(!master)
        } else {
            Effect::None
        }
    }

    /// Whether the device may use the bus.
    pub fn bus_master(&self) -> bool {
        self.get16(COMMAND) & COMMAND_MASTER != 0
    }

    /// All registers as after power on.
    pub fn reset(&mut self) {
        self.bytes = self.initial.clone();
    }
}

/// Puts `bytes` of offset `at` over `data`, which was read from `offset`.
fn overlay(data: &mut [u8], offset: usize, at: usize, bytes: &[u8]) {
    for (place, byte) in (at..).zip(bytes) {
        if let Some(target) = place.checked_sub(offset).and_then(|i| data.get_mut(i)) {
            *target = *byte;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let identity = Identity::new("cx7", PortType::Ib, false).expect("cx7");
        Config::new(&identity)
    }

    fn read32(c: &Config, at: usize) -> u32 {
        let mut b = [0; 4];
        c.read(at, &mut b);
        u32::from_le_bytes(b)
    }

    #[test]
    fn header_names_the_device() {
        let c = config();
        assert_eq!(read32(&c, 0x00), 0x1021_15b3);
        assert_eq!(read32(&c, 0x08) >> 16, 0x0207);
        let eth = Identity::new("cx7", PortType::Eth, true).expect("cx7");
        let c = Config::new(&eth);
        assert_eq!(read32(&c, 0x00), 0x101e_15b3);
        assert_eq!(read32(&c, 0x08) >> 16, 0x0200);
    }

    #[test]
    fn capability_lists_end() {
        let c = config();
        let mut seen = Vec::new();
        let mut at = c.bytes[0x34] as usize;
        while at != 0 && seen.len() < 16 {
            seen.push(c.bytes[at]);
            at = c.bytes[at + 1] as usize;
        }
        assert_eq!(seen, [0x10, 0x11, 0x01]);
        assert_eq!(read32(&c, 0x100), 0x0002_0001);
    }

    #[test]
    fn bar_is_sized() {
        let mut c = config();
        c.write(0x10, &[0xff; 8]);
        assert_eq!(read32(&c, 0x10), !((32u32 << 20) - 1) | 0xc);
        assert_eq!(read32(&c, 0x14), u32::MAX);
    }

    #[test]
    fn sriov_is_for_the_guest() {
        let identity = Identity {
            total_vfs: 4,
            ..Identity::new("cx7", PortType::Ib, false).expect("cx7")
        };
        let mut c = Config::new(&identity);
        assert_eq!(read32(&c, 0x100), 0x1402_0001);
        assert_eq!(read32(&c, EXT_SRIOV), 0x0001_0010);
        let mut all = [0; SIZE];
        c.read(0, &mut all);
        assert_eq!(all[EXT_SRIOV..EXT_SRIOV + 4], 0x0001_0003_u32.to_le_bytes());
        assert_eq!(read32(&c, EXT_SRIOV + 0x0c), 0x0004_0004);
        assert_eq!(read32(&c, EXT_SRIOV + 0x18) >> 16, 0x101e);
        assert_eq!(c.set(EXT_SRIOV + 0x0c, 1), Ok(()));
        assert_eq!(read32(&c, EXT_SRIOV + 0x0c), 0x0004_0001);
        assert!(c.set(1, 0).is_err() && c.set(SIZE, 0).is_err());
        c.write(EXT_SRIOV + 0x24, &[0xff; 8]);
        assert_eq!(read32(&c, EXT_SRIOV + 0x24), !((4u32 << 20) - 1) | 0xc);
        c.write(SRIOV_NUM_VFS, &[3, 0]);
        assert_eq!(c.num_vfs(), 0);
        c.write(SRIOV_CONTROL, &[0x09, 0]);
        assert_eq!(c.num_vfs(), 3);
        c.reset();
        assert_eq!(c.num_vfs(), 0);
        assert_eq!(config().num_vfs(), 0);
    }

    #[test]
    fn virtual_functions_have_no_ids() {
        let identity = Identity {
            behind_pf: true,
            ..Identity::new("cx7", PortType::Ib, true).expect("cx7")
        };
        let c = Config::new(&identity);
        assert_eq!(read32(&c, 0), u32::MAX);
        let mut word = [0; 2];
        c.read(2, &mut word);
        assert_eq!(word, [0xff; 2]);
        assert_eq!(read32(&c, 8) >> 16, 0x0207);
        let mut all = [0; SIZE];
        c.read(0, &mut all);
        assert_eq!(all[..4], 0x101e_15b3_u32.to_le_bytes());
    }

    #[test]
    fn master_and_reset() {
        let mut c = config();
        assert_eq!(c.write(COMMAND, &[0x06, 0x00]), Effect::Master(true));
        assert_eq!(c.write(COMMAND, &[0x06, 0x00]), Effect::None);
        assert!(c.bus_master());
        // Read-modify-write of DevCtl with bit 15, as 16 bits.
        assert_eq!(c.write(EXP_DEVCTL, &[0x10, 0xa9]), Effect::FunctionReset);
        assert!(!c.bus_master());
        assert_eq!(c.get16(EXP_DEVCTL) & DEVCTL_FLR, 0);
        c.write(COMMAND, &[0x04, 0x00]);
        assert_eq!(c.write(COMMAND, &[0x00, 0x00]), Effect::Master(false));
    }

    #[test]
    fn ids_are_read_only_and_the_end_is_safe() {
        let mut c = config();
        assert_eq!(c.write(0, &[0xff; 4]), Effect::None);
        assert_eq!(read32(&c, 0), 0x1021_15b3);
        c.write(SIZE - 2, &[0xff; 8]);
        let mut b = [0xff; 8];
        c.read(SIZE - 4, &mut b);
        assert_eq!(b[4..], [0; 4]);
    }
}
