// SPDX-License-Identifier: GPL-2.0
//! What the guest's sysfs says about a PCI device.

use crate::agent::{Agent, GuestError};
use anyhow::{Context, Result};
use std::fmt;

/// Identity of a PCI device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Address, `dddd:bb:dd.f`.
    pub bdf: String,
    /// Base class, subclass and programming interface.
    pub class: u32,
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Revision.
    pub revision: u8,
    /// Bound driver.
    pub driver: Option<String>,
    /// MSI-X vectors in use.
    pub vectors: usize,
}

fn number(agent: &Agent, path: &str) -> Result<u32> {
    let text = agent.text(path)?;
    u32::from_str_radix(text.trim_start_matches("0x"), 16)
        .with_context(|| format!("{path}: {text:?}, expected a hexadecimal number"))
}

/// Interrupt vectors that a device has; the folder is there only while the
/// device has any.
///
/// # Errors
///
/// If the guest does not answer.
pub fn vectors(agent: &Agent, bdf: &str) -> Result<usize, GuestError> {
    let path = format!("/sys/bus/pci/devices/{bdf}/msi_irqs");
    match agent.list(&path) {
        Ok(names) => Ok(names.len()),
        Err(error) if error.errno() == Some(rustix::io::Errno::NOENT.raw_os_error()) => Ok(0),
        Err(error) => Err(error),
    }
}

/// Reads a device's identity.
///
/// # Errors
///
/// If the guest does not answer, or sysfs is not as expected.
pub fn identity(agent: &Agent, bdf: &str) -> Result<Identity> {
    let path = |name: &str| format!("/sys/bus/pci/devices/{bdf}/{name}");
    let driver = agent.link(&path("driver"))?;
    Ok(Identity {
        bdf: bdf.into(),
        class: number(agent, &path("class"))?,
        vendor: number(agent, &path("vendor"))? as u16,
        device: number(agent, &path("device"))? as u16,
        revision: number(agent, &path("revision"))? as u8,
        driver: driver.and_then(|link| link.rsplit('/').next().map(str::to_owned)),
        vectors: vectors(agent, bdf)?,
    })
}

impl fmt::Display for Identity {
    /// In the way of `lspci -nn`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = match self.class >> 8 {
            0x0200 => "Ethernet controller",
            0x0207 => "Infiniband controller",
            _ => "Device of class",
        };
        write!(
            f,
            "{} {class} [{:04x}]: Mellanox Technologies [{:04x}:{:04x}] (rev {:02x})",
            self.bdf,
            self.class >> 8,
            self.vendor,
            self.device,
            self.revision
        )
    }
}
