// SPDX-License-Identifier: GPL-2.0

//! A PCI driver with all callbacks of `struct pci_driver` that hardware in trouble needs.
//!
//! C header: `include/linux/pci.h`. The `kernel` crate's `pci::Driver` has probe and unbind only. This
//! one adds shutdown, error recovery, function reset, suspend and SR-IOV, in the same manner: a callback gets
//! the device in its core context and the data that probe made.

use core::{
    marker::PhantomData,
    mem::offset_of, //
};

use kernel::{
    bindings,
    device::{
        Core,
        CoreInternal, //
    },
    device_id::RawDeviceIdIndex,
    driver,
    error::{
        from_result,
        to_result, //
    },
    ffi::c_int,
    pci,
    prelude::*,
    types::Opaque, //
};

/// What the bus says of the path to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// I/O works.
    Normal,
    /// I/O is blocked, until a reset.
    Frozen,
    /// The device is lost.
    Failed,
}

/// What a driver answers to an error of the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Reset the slot.
    NeedReset,
    /// The device works again.
    Recovered,
    /// Give the device up.
    Disconnect,
}

impl Verdict {
    fn as_raw(self) -> bindings::pci_ers_result_t {
        match self {
            Self::NeedReset => bindings::pci_ers_result_PCI_ERS_RESULT_NEED_RESET,
            Self::Recovered => bindings::pci_ers_result_PCI_ERS_RESULT_RECOVERED,
            Self::Disconnect => bindings::pci_ers_result_PCI_ERS_RESULT_DISCONNECT,
        }
    }
}

/// A PCI driver. All callbacks hold the device's lock: none runs beside another one of the same
/// device.
pub(crate) trait Driver {
    /// What the table of ids holds for each id.
    type IdInfo: 'static;

    /// What belongs to a bound device.
    type Data<'bound>: Send + Sync + 'bound;

    /// The ids.
    const ID_TABLE: pci::IdTable<Self::IdInfo>;

    /// A device appeared.
    fn probe<'bound>(
        dev: &'bound pci::Device<Core<'_>>,
        info: Option<&'bound Self::IdInfo>,
    ) -> impl PinInit<Self::Data<'bound>, Error> + 'bound;

    /// The driver is about to lose the device; the data are dropped next.
    fn unbind<'bound>(dev: &'bound pci::Device<Core<'_>>, data: Pin<&Self::Data<'bound>>);

    /// The system goes down or into another kernel: the device must be silent afterwards.
    fn shutdown<'bound>(dev: &'bound pci::Device<Core<'_>>, data: Pin<&Self::Data<'bound>>);

    /// The bus found an error. Nothing may be sent to the device if the channel is not normal.
    fn error_detected<'bound>(
        dev: &'bound pci::Device<Core<'_>>,
        data: Pin<&Self::Data<'bound>>,
        channel: Channel,
    ) -> Verdict;

    /// The slot was reset; config space is as at the last save.
    fn slot_reset<'bound>(
        dev: &'bound pci::Device<Core<'_>>,
        data: Pin<&Self::Data<'bound>>,
    ) -> Verdict;

    /// Error recovery is over: work can go on.
    fn error_resume<'bound>(dev: &'bound pci::Device<Core<'_>>, data: Pin<&Self::Data<'bound>>);

    /// Somebody is about to reset the function.
    fn reset_prepare<'bound>(dev: &'bound pci::Device<Core<'_>>, data: Pin<&Self::Data<'bound>>);

    /// The function was reset.
    fn reset_done<'bound>(dev: &'bound pci::Device<Core<'_>>, data: Pin<&Self::Data<'bound>>);

    /// Somebody wants `number` virtual functions. Either there are none before, or `number` is 0.
    ///
    /// # Errors
    ///
    /// Any: their number stays as it was.
    fn sriov_configure<'bound>(
        dev: &'bound pci::Device<Core<'_>>,
        data: Pin<&Self::Data<'bound>>,
        number: u16,
    ) -> Result;

    /// The system goes to sleep.
    ///
    /// # Errors
    ///
    /// Any: the system stays awake.
    fn suspend<'bound>(
        dev: &'bound pci::Device<Core<'_>>,
        data: Pin<&Self::Data<'bound>>,
    ) -> Result;

    /// The system woke up.
    ///
    /// # Errors
    ///
    /// Any: it is logged by the kernel.
    fn resume<'bound>(dev: &'bound pci::Device<Core<'_>>, data: Pin<&Self::Data<'bound>>)
        -> Result;
}

/// Registers a [`Driver`]; used as `driver::Registration<Adapter<T>>`.
pub(crate) struct Adapter<T: Driver>(PhantomData<T>);

// SAFETY:
// - `bindings::pci_driver` is a C type declared as `repr(C)`.
// - `T::Data` is the type of the driver's device private data.
// - `struct pci_driver` embeds a `struct device_driver` at the given offset.
unsafe impl<T: Driver> driver::DriverLayout for Adapter<T> {
    type DriverType = bindings::pci_driver;
    type DriverData<'bound> = T::Data<'bound>;
    const DEVICE_DRIVER_OFFSET: usize = offset_of!(Self::DriverType, driver);
}

// SAFETY: `unregister` undoes a successful `register` of the same `pci_driver`.
unsafe impl<T: Driver> driver::RegistrationOps for Adapter<T> {
    unsafe fn register(
        pdrv: &Opaque<Self::DriverType>,
        name: &'static CStr,
        module: &'static ThisModule,
    ) -> Result {
        // SAFETY: Nobody else knows the structure yet.
        unsafe {
            let pdrv = pdrv.get();
            (*pdrv).name = name.as_char_ptr();
            (*pdrv).probe = Some(Self::probe);
            (*pdrv).remove = Some(Self::remove);
            (*pdrv).id_table = T::ID_TABLE.as_ptr();
            (*pdrv).shutdown = Some(Self::shutdown);
            (*pdrv).suspend = Some(Self::suspend);
            (*pdrv).resume = Some(Self::resume);
            (*pdrv).sriov_configure = Some(Self::sriov_configure);
            (*pdrv).err_handler = &raw const Self::ERROR_HANDLERS.0;
        }
        // SAFETY: The structure is initialized, and stays valid until `unregister`.
        to_result(unsafe {
            bindings::__pci_register_driver(pdrv.get(), module.as_ptr(), name.as_char_ptr())
        })
    }

    unsafe fn unregister(pdrv: &Opaque<Self::DriverType>) {
        // SAFETY: Registered before, by the caller's promise.
        unsafe { bindings::pci_unregister_driver(pdrv.get()) }
    }
}

struct Handlers(bindings::pci_error_handlers);

// SAFETY: Constant, only read.
unsafe impl Sync for Handlers {}

impl<T: Driver> Adapter<T> {
    const ERROR_HANDLERS: &'static Handlers = &Handlers(bindings::pci_error_handlers {
        error_detected: Some(Self::error_detected),
        mmio_enabled: None,
        slot_reset: Some(Self::slot_reset),
        reset_prepare: Some(Self::reset_prepare),
        reset_done: Some(Self::reset_done),
        resume: Some(Self::error_resume),
        cor_error_detected: None,
    });

    /// Calls `f` with the device and its data; `None` if the device has none, because its probe
    /// failed or is not over.
    ///
    /// # Safety
    ///
    /// Only in a callback of the PCI bus for `pdev`, which is bound (or being bound) to this driver.
    unsafe fn with<'a, R>(
        pdev: *mut bindings::pci_dev,
        f: impl FnOnce(&'a pci::Device<Core<'_>>, Pin<&'a T::Data<'a>>) -> R,
    ) -> Option<R> {
        // SAFETY: The bus calls with a valid device, which outlives the callback. `pci::Device` is a
        // transparent wrapper of `struct pci_dev`.
        let dev = unsafe { &*pdev.cast::<pci::Device<CoreInternal<'_>>>() };
        let generic: &kernel::device::Device<CoreInternal<'_>> = dev.as_ref();
        // SAFETY: The device is valid.
        if unsafe { bindings::dev_get_drvdata(&raw mut (*pdev).dev) }.is_null() {
            return None;
        }
        // SAFETY: Non-null driver data are those that `probe` stored, of this type; they are dropped
        // after `remove`, and the bus holds the device's lock in all callbacks.
        let data = unsafe { generic.drvdata_borrow::<T::Data<'a>>() };
        Some(f(dev, data))
    }

    extern "C" fn probe(pdev: *mut bindings::pci_dev, id: *const bindings::pci_device_id) -> c_int {
        // SAFETY: As in `with`.
        let dev = unsafe { &*pdev.cast::<pci::Device<CoreInternal<'_>>>() };
        // SAFETY: `pci::DeviceId` is a transparent wrapper of `struct pci_device_id`.
        let id = unsafe { &*id.cast::<pci::DeviceId>() };
        // SAFETY: The id is from `T::ID_TABLE`, or has no driver data, or is a dynamic one with
        // driver data of the table: the bus checks that.
        let info = unsafe { id.info_unchecked_opt::<T::IdInfo>() };
        from_result(|| {
            let data = T::probe(dev, info);
            dev.as_ref().set_drvdata(data)?;
            Ok(0)
        })
    }

    extern "C" fn remove(pdev: *mut bindings::pci_dev) {
        // SAFETY: This is a callback of the bus.
        unsafe { Self::with(pdev, |dev, data| T::unbind(dev, data)) };
    }

    extern "C" fn shutdown(pdev: *mut bindings::pci_dev) {
        // SAFETY: This is a callback of the bus.
        unsafe { Self::with(pdev, |dev, data| T::shutdown(dev, data)) };
    }

    extern "C" fn sriov_configure(pdev: *mut bindings::pci_dev, number: c_int) -> c_int {
        from_result(|| {
            let number = u16::try_from(number)?;
            // SAFETY: This is a callback of the bus.
            unsafe { Self::with(pdev, |dev, data| T::sriov_configure(dev, data, number)) }
                .ok_or(ENODEV)??;
            Ok(number.into())
        })
    }

    extern "C" fn suspend(pdev: *mut bindings::pci_dev, _: bindings::pm_message_t) -> c_int {
        // SAFETY: This is a callback of the bus.
        match unsafe { Self::with(pdev, |dev, data| T::suspend(dev, data)) } {
            Some(Err(e)) => e.to_errno(),
            _ => 0,
        }
    }

    extern "C" fn resume(pdev: *mut bindings::pci_dev) -> c_int {
        // SAFETY: This is a callback of the bus.
        match unsafe { Self::with(pdev, |dev, data| T::resume(dev, data)) } {
            Some(Err(e)) => e.to_errno(),
            _ => 0,
        }
    }

    extern "C" fn error_detected(
        pdev: *mut bindings::pci_dev,
        channel: bindings::pci_channel_state_t,
    ) -> bindings::pci_ers_result_t {
        let channel = match channel {
            bindings::pci_channel_io_normal => Channel::Normal,
            bindings::pci_channel_io_frozen => Channel::Frozen,
            _ => Channel::Failed,
        };
        // SAFETY: This is a callback of the bus.
        unsafe { Self::with(pdev, |dev, data| T::error_detected(dev, data, channel)) }
            .unwrap_or(Verdict::Disconnect)
            .as_raw()
    }

    extern "C" fn slot_reset(pdev: *mut bindings::pci_dev) -> bindings::pci_ers_result_t {
        // SAFETY: This is a callback of the bus.
        unsafe { Self::with(pdev, |dev, data| T::slot_reset(dev, data)) }
            .unwrap_or(Verdict::Disconnect)
            .as_raw()
    }

    extern "C" fn error_resume(pdev: *mut bindings::pci_dev) {
        // SAFETY: This is a callback of the bus.
        unsafe { Self::with(pdev, |dev, data| T::error_resume(dev, data)) };
    }

    extern "C" fn reset_prepare(pdev: *mut bindings::pci_dev) {
        // SAFETY: This is a callback of the bus.
        unsafe { Self::with(pdev, |dev, data| T::reset_prepare(dev, data)) };
    }

    extern "C" fn reset_done(pdev: *mut bindings::pci_dev) {
        // SAFETY: This is a callback of the bus.
        unsafe { Self::with(pdev, |dev, data| T::reset_done(dev, data)) };
    }
}
