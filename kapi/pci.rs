// SPDX-License-Identifier: GPL-2.0

//! PCI device switches that go back when dropped.
//!
//! C header: `include/linux/pci.h`.

use kernel::{
    bindings,
    device::{
        Bound,
        Core, //
    },
    dma::{
        Device as _,
        DmaMask, //
    },
    pci,
    prelude::*, //
};

/// The C device behind the abstraction.
pub(super) fn raw(pdev: &pci::Device<Bound>) -> *mut bindings::pci_dev {
    // CAST: `pci::Device` is a transparent wrapper of `Opaque<pci_dev>`, which allows mutation.
    core::ptr::from_ref(pdev).cast_mut().cast()
}

/// A device with its memory decoding on; off again on drop.
pub(crate) struct Enabled<'a>(&'a pci::Device<Bound>);

impl<'a> Enabled<'a> {
    /// Turns memory decoding on.
    ///
    /// # Errors
    ///
    /// What `pci_enable_device_mem` reports.
    pub(crate) fn new(pdev: &'a pci::Device<Bound>, core: &pci::Device<Core<'_>>) -> Result<Self> {
        core.enable_device_mem()?;
        Ok(Self(pdev))
    }
}

impl Drop for Enabled<'_> {
    fn drop(&mut self) {
        // SAFETY: The device is valid and was enabled once in `new`.
        unsafe { bindings::pci_disable_device(raw(self.0)) };
    }
}

/// A device that may do DMA and interrupts; on drop it no longer may. What the device could write
/// is only freed after this.
pub(crate) struct BusMaster<'a>(&'a pci::Device<Bound>);

impl<'a> BusMaster<'a> {
    /// Turns bus mastering on.
    pub(crate) fn new(pdev: &'a pci::Device<Bound>, core: &pci::Device<Core<'_>>) -> Self {
        core.set_master();
        Self(pdev)
    }
}

impl Drop for BusMaster<'_> {
    fn drop(&mut self) {
        // SAFETY: The device is valid.
        unsafe { bindings::pci_clear_master(raw(self.0)) };
    }
}

/// The name of the device on its bus, `dddd:bb:dd.f`.
pub(crate) fn name(pdev: &pci::Device<Bound>) -> &CStr {
    // SAFETY: The device is valid, and a registered device has a name that does not change.
    unsafe {
        let dev = &raw const (*raw(pdev)).dev;
        let name = if (*dev).init_name.is_null() {
            (*dev).kobj.name
        } else {
            (*dev).init_name
        };
        CStr::from_char_ptr(name)
    }
}

/// Whether the function is a virtual one.
pub(crate) fn is_virtfn(pdev: &pci::Device<Bound>) -> bool {
    // SAFETY: The device is valid; the bit is set before the driver sees it and then constant.
    unsafe { (*raw(pdev)).is_virtfn() != 0 }
}

/// Sets the addresses that the device can take, for all kinds of DMA memory.
///
/// # Errors
///
/// What `dma_set_mask_and_coherent` reports.
pub(crate) fn set_dma_mask(pdev: &pci::Device<Core<'_>>, mask: DmaMask) -> Result {
    // SAFETY: Probe is the only user of the device: nothing allocates or maps DMA memory for it yet.
    unsafe { pdev.dma_set_mask_and_coherent(mask) }
}

/// Whether the device can be reached: the bus has not given it up, and its config space answers.
pub(crate) fn is_present(pdev: &pci::Device<Bound>) -> bool {
    // SAFETY: The device is valid; the field is one that readers look at without a lock.
    let channel = unsafe { (*raw(pdev)).error_state };
    if channel != bindings::pci_channel_io_normal {
        return false;
    }
    // SAFETY: The device is valid.
    unsafe { bindings::pci_device_is_present(raw(pdev)) }
}

/// Keeps the config space for [`restore_state`].
pub(crate) fn save_state(pdev: &pci::Device<Core<'_>>) {
    // SAFETY: The device is valid, and the bus holds its lock. It cannot fail but for want of memory
    // for capabilities, in which case less is restored.
    unsafe { bindings::pci_save_state(raw(pdev)) };
}

/// Writes the config space that was saved, and keeps it for the next time.
pub(crate) fn restore_state(pdev: &pci::Device<Core<'_>>) {
    // SAFETY: As in `save_state`.
    unsafe {
        bindings::pci_restore_state(raw(pdev));
        bindings::pci_save_state(raw(pdev));
    }
}
