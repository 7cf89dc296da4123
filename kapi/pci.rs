// SPDX-License-Identifier: GPL-2.0

//! PCI device switches that go back when dropped.
//!
//! C header: `include/linux/pci.h`. The `kernel` crate has most of this for callbacks of the bus only; a
//! device that recovers is brought up outside of them. Whoever does that keeps others from doing the
//! same to the same device.

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
    error::to_result,
    ffi::c_int,
    pci,
    prelude::*,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

use super::{
    dma::Dma,
    silence::{
        silence,
        Function,
        Outcome,
        View,
        PAUSE_MS, //
    },
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
    pub(crate) fn new(pdev: &'a pci::Device<Bound>) -> Result<Self> {
        if has_lost_config(pdev) {
            // What was saved is of a time at which it was in use.
            restore_state(pdev);
            // SAFETY: The device is valid.
            unsafe { bindings::pci_clear_master(raw(pdev)) };
            dev_info!(pdev, "configuration space was reset: restored\n");
        }
        // SAFETY: The device is valid. The call counts its users by itself.
        to_result(unsafe { bindings::pci_enable_device_mem(raw(pdev)) })?;
        Ok(Self(pdev))
    }
}

/// Whether a reset has taken the address of BAR 0, a 64-bit one, from the function. One that was reset
/// because it did not answer, could not be given it back at that time.
fn has_lost_config(pdev: &pci::Device<Bound>) -> bool {
    let read = |register: u32| {
        let mut value = u32::MAX;
        // SAFETY: The device is valid, and the place is writable. On failure all ones are written.
        unsafe { bindings::pci_read_config_dword(raw(pdev), register as c_int, &raw mut value) };
        value
    };
    // The low four bits say what kind of BAR it is.
    read(bindings::PCI_BASE_ADDRESS_0) >> 4 == 0 && read(bindings::PCI_BASE_ADDRESS_1) == 0
}

impl Drop for Enabled<'_> {
    fn drop(&mut self) {
        // SAFETY: The device is valid and was enabled once in `new`.
        unsafe { bindings::pci_disable_device(raw(self.0)) };
    }
}

/// A device that may do DMA and interrupts; on drop it no longer may. What the device could write
/// is only freed after this; if it cannot be made to stop, never.
pub(crate) struct BusMaster<'a> {
    pdev: &'a pci::Device<Bound>,
    dma: Dma<'a>,
}

impl<'a> BusMaster<'a> {
    /// Turns bus mastering on. `dma` is where the device's memory comes from.
    pub(crate) fn new(pdev: &'a pci::Device<Bound>, dma: Dma<'a>) -> Self {
        // SAFETY: The device is valid.
        unsafe { bindings::pci_set_master(raw(pdev)) };
        Self { pdev, dma }
    }
}

impl Drop for BusMaster<'_> {
    fn drop(&mut self) {
        match silence(&mut Config(self.pdev)) {
            Outcome::Off => {
                // For the kernel's own record: the bit is clear already.
                // SAFETY: The device is valid.
                unsafe { bindings::pci_clear_master(raw(self.pdev)) };
            }
            Outcome::Gone => {}
            Outcome::Reset => dev_warn!(
                self.pdev,
                "did not answer, and could have written to memory later: its link was reset\n"
            ),
            Outcome::Unknown => {
                self.dma.lose();
                dev_err!(
                    self.pdev,
                    "bus mastering cannot be turned off: no memory that the device had is freed\n"
                );
            }
        }
    }
}

/// Configuration space of a function, and its way to memory.
struct Config<'a>(&'a pci::Device<Bound>);

impl Config<'_> {
    fn command(&self) -> u16 {
        let mut command = u16::MAX;
        // SAFETY: The device is valid, and the place is writable. On failure all ones are written.
        unsafe {
            bindings::pci_read_config_word(
                raw(self.0),
                bindings::PCI_COMMAND as c_int,
                &raw mut command,
            )
        };
        command
    }

    /// The port that the function's link is at.
    fn port(&self) -> Option<Port> {
        // SAFETY: The device is valid, and so is its bus as long as it is; a bus keeps its bridge.
        let bridge = unsafe { (*(*raw(self.0)).bus).self_ };
        if bridge.is_null() {
            return None;
        }
        // SAFETY: Not null, see above. The field does not change after the device was found.
        let flags = unsafe { (*bridge).pcie_flags_reg };
        let kind = u32::from(flags) >> 4 & 0xf;
        matches!(
            kind,
            bindings::PCI_EXP_TYPE_ROOT_PORT | bindings::PCI_EXP_TYPE_DOWNSTREAM
        )
        .then_some(Port(bridge))
    }

    /// Whether nobody else is behind the port: a link has one device, and this one has one function.
    fn is_alone(&self) -> bool {
        let pdev = raw(self.0);
        // SAFETY: The device is valid; the fields do not change after it was found.
        let (devfn, shared) = unsafe { ((*pdev).devfn, (*pdev).multifunction() != 0) };
        devfn == 0 && !shared && num_vf(self.0) == 0 && !is_virtfn(self.0)
    }
}

impl Function for Config<'_> {
    fn look(&mut self) -> View {
        match self.command() {
            u16::MAX => View::Nothing,
            command => View::Master(command & COMMAND_MASTER != 0),
        }
    }

    fn clear(&mut self) {
        let command = self.command();
        if command != u16::MAX {
            // SAFETY: The device is valid; the register is its driver's.
            unsafe {
                bindings::pci_write_config_word(
                    raw(self.0),
                    bindings::PCI_COMMAND as c_int,
                    command & !COMMAND_MASTER,
                )
            };
        }
    }

    fn is_gone(&mut self) -> bool {
        // SAFETY: The device is valid; the field is one that readers look at without a lock.
        let state = unsafe { (*raw(self.0)).error_state };
        state == bindings::pci_channel_io_perm_failure
    }

    fn reset(&mut self) -> bool {
        self.is_alone() && self.port().is_some_and(|port| port.reset_link())
    }

    fn pause(&mut self) {
        fsleep(Delta::from_millis(PAUSE_MS.into()));
    }
}

const COMMAND_MASTER: u16 = bindings::PCI_COMMAND_MASTER as u16;

/// The end of a link that is not the device's: a root port, or one of a switch. Not null, and valid
/// while the device is.
struct Port(*mut bindings::pci_dev);

impl Port {
    fn control(&self) -> u16 {
        let mut control = u16::MAX;
        // SAFETY: The port is valid, and the place is writable. On failure all ones are written.
        unsafe {
            bindings::pci_read_config_word(
                self.0,
                bindings::PCI_BRIDGE_CONTROL as c_int,
                &raw mut control,
            )
        };
        control
    }

    fn set_control(&self, control: u16) {
        // SAFETY: The port is valid.
        unsafe {
            bindings::pci_write_config_word(self.0, bindings::PCI_BRIDGE_CONTROL as c_int, control)
        };
    }

    /// Resets what is behind the port, and does not wait until it answers again. `false` if the port
    /// does not do it.
    fn reset_link(&self) -> bool {
        const RESET: u16 = bindings::PCI_BRIDGE_CTL_BUS_RESET as u16;
        /// At least 1 ms is asked for (PCI Bus Specification, Trst).
        const HOLD: Delta = Delta::from_millis(2);

        let control = self.control();
        if control == u16::MAX {
            return false;
        }
        self.set_control(control | RESET);
        let held = self.control();
        fsleep(HOLD);
        self.set_control(control & !RESET);
        held != u16::MAX && held & RESET != 0
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

/// How many virtual functions the function has.
pub(crate) fn num_vf(pdev: &pci::Device<Bound>) -> u16 {
    #[cfg(CONFIG_PCI_IOV)]
    // SAFETY: The device is valid. At most `TotalVFs`, which has 16 bits.
    return unsafe { bindings::pci_num_vf(raw(pdev)) } as u16;
    #[cfg(not(CONFIG_PCI_IOV))]
    {
        let _ = pdev;
        0
    }
}

/// Has the bus show `number` virtual functions. Drivers may be bound to them before this returns.
///
/// # Errors
///
/// What `pci_enable_sriov` reports; `EOPNOTSUPP` if the kernel has no SR-IOV.
pub(crate) fn enable_sriov(pdev: &pci::Device<Core<'_>>, number: u16) -> Result {
    #[cfg(CONFIG_PCI_IOV)]
    // SAFETY: The device is valid, and the bus holds its lock.
    return to_result(unsafe { bindings::pci_enable_sriov(raw(pdev), number.into()) });
    #[cfg(not(CONFIG_PCI_IOV))]
    {
        let _ = (pdev, number);
        Err(EOPNOTSUPP)
    }
}

/// Has the bus hide all virtual functions; their drivers have let them go when this returns.
pub(crate) fn disable_sriov(pdev: &pci::Device<Core<'_>>) {
    #[cfg(CONFIG_PCI_IOV)]
    // SAFETY: The device is valid, and the bus holds its lock.
    unsafe {
        bindings::pci_disable_sriov(raw(pdev))
    };
    #[cfg(not(CONFIG_PCI_IOV))]
    let _ = pdev;
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
    // SAFETY: The device is valid.
    !is_offline(pdev) && unsafe { bindings::pci_device_is_present(raw(pdev)) }
}

/// Whether the bus has cut the device off: an error is being dealt with. Does not touch the device.
pub(crate) fn is_offline(pdev: &pci::Device<Bound>) -> bool {
    // SAFETY: The device is valid; the field is one that readers look at without a lock.
    let channel = unsafe { (*raw(pdev)).error_state };
    channel != bindings::pci_channel_io_normal
}

/// Keeps the config space for [`restore_state`].
pub(crate) fn save_state(pdev: &pci::Device<Bound>) {
    // SAFETY: The device is valid. It cannot fail but for want of memory for capabilities, in which case
    // less is restored.
    unsafe { bindings::pci_save_state(raw(pdev)) };
}

/// Writes the config space that was saved, and keeps it for the next time.
pub(crate) fn restore_state(pdev: &pci::Device<Bound>) {
    // SAFETY: As in `save_state`.
    unsafe {
        bindings::pci_restore_state(raw(pdev));
        bindings::pci_save_state(raw(pdev));
    }
}
