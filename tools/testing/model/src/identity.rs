// SPDX-License-Identifier: GPL-2.0

//! Which adapter the model pretends to be.

use anyhow::bail;
use anyhow::Result;
use serde::Serialize;

use crate::bar;

/// PCI vendor id of NVIDIA/Mellanox.
pub const VENDOR: u16 = 0x15b3;

/// Link layer of the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum PortType {
    /// InfiniBand.
    #[default]
    Ib,
    /// Ethernet.
    Eth,
}

/// An adapter.
#[derive(Clone, Debug, Serialize)]
pub struct Identity {
    /// Name for people.
    pub name: String,
    /// PCI device id.
    pub device_id: u16,
    /// A virtual function.
    pub vf: bool,
    /// A virtual function as a guest finds it that has enabled it: it has no ids of its own.
    pub behind_pf: bool,
    /// How many virtual functions it can have.
    pub total_vfs: u16,
    /// PCI device id of its virtual functions.
    pub vf_device_id: u16,
    /// Link layer.
    pub port_type: PortType,
    /// Firmware version: major, minor, subminor.
    pub firmware: (u16, u16, u16),
    /// Hardware id in the health buffer. Own choice: drivers only print it.
    pub hw_id: u32,
}

/// Option, name, PF id, VF id, firmware major. Ids: `mlx5_core_pci_table` of the kernel's driver
/// (hardware.md, end of section 11). Generations from ConnectX-6 Dx on share one VF id.
const KNOWN: &[(&str, &str, u16, u16, u16)] = &[
    ("cib", "Connect-IB", 0x1011, 0x1012, 10),
    ("cx4", "ConnectX-4", 0x1013, 0x1014, 12),
    ("cx4lx", "ConnectX-4 Lx", 0x1015, 0x1016, 14),
    ("cx5", "ConnectX-5", 0x1017, 0x1018, 16),
    ("cx5ex", "ConnectX-5 Ex", 0x1019, 0x101a, 16),
    ("cx6", "ConnectX-6", 0x101b, 0x101c, 20),
    ("cx6dx", "ConnectX-6 Dx", 0x101d, 0x101e, 22),
    ("cx6lx", "ConnectX-6 Lx", 0x101f, 0x101e, 26),
    ("cx7", "ConnectX-7", 0x1021, 0x101e, 28),
    ("cx8", "ConnectX-8", 0x1023, 0x101e, 40),
    ("cx9", "ConnectX-9", 0x1025, 0x101e, 44),
    ("cx10", "ConnectX-10", 0x1027, 0x101e, 46),
    ("cx10c2c", "ConnectX-10 NVLink-C2C", 0x2101, 0x101e, 46),
    ("bf", "BlueField", 0xa2d2, 0xa2d3, 18),
    ("bf2", "BlueField-2", 0xa2d6, 0x101e, 24),
    ("bf3", "BlueField-3", 0xa2dc, 0x101e, 32),
    ("bf4", "BlueField-4", 0xa2df, 0x101e, 48),
];

impl Identity {
    /// The adapter called `device` (`cx7`), or the one whose PF has the id `device` (`0x1021`).
    ///
    /// # Errors
    ///
    /// When there is no such adapter; the message lists those that there are.
    pub fn new(device: &str, port_type: PortType, vf: bool) -> Result<Self> {
        let id = device
            .strip_prefix("0x")
            .map(|hex| u16::from_str_radix(hex, 16));
        let known = KNOWN.iter().find(|(option, _, pf, _, _)| match id {
            Some(Ok(id)) => id == *pf,
            _ => *option == device,
        });
        let Some((_, name, pf, vf_id, major)) = known else {
            let names: Vec<String> = KNOWN
                .iter()
                .map(|(o, _, pf, _, _)| format!("{o} ({pf:#x})"))
                .collect();
            bail!("no device {device:?}; there are: {}", names.join(", "));
        };
        Ok(Self {
            name: format!("{name}{}", if vf { " VF" } else { "" }),
            device_id: if vf { *vf_id } else { *pf },
            vf,
            behind_pf: false,
            total_vfs: 0,
            vf_device_id: *vf_id,
            port_type,
            firmware: (*major, 43, 1000),
            hw_id: 0x200 | u32::from(pf & 0xff),
        })
    }
}

impl Identity {
    /// Bytes of BAR 0.
    pub fn bar_size(&self) -> u64 {
        if self.behind_pf {
            bar::VF_SIZE
        } else {
            bar::SIZE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_name_and_by_id() {
        let pf = Identity::new("cx7", PortType::Ib, false).expect("cx7");
        assert_eq!((pf.device_id, pf.firmware), (0x1021, (28, 43, 1000)));
        let vf = Identity::new("0x1021", PortType::Ib, true).expect("0x1021");
        assert_eq!(vf.device_id, 0x101e);
        let e = Identity::new("cx3", PortType::Ib, false)
            .expect_err("not mlx5")
            .to_string();
        assert!(e.contains("\"cx3\"") && e.contains("cx7 (0x1021)"), "{e}");
        assert!(Identity::new("0xzz", PortType::Ib, false).is_err());
    }
}
