// SPDX-License-Identifier: GPL-2.0

//! devlink: what a device is, how it fares, and how it is made well again, for people.
//!
//! C header: `include/net/devlink.h`. An [`Unregistered`] instance takes [`Reporter`]s and becomes a
//! [`Registration`], through which user space finds the device. Dropping the registration waits for
//! callbacks under way; afterwards no callback comes, and user space that still holds the instance
//! gets `ENODEV`.
//!
//! # Locks
//!
//! devlink calls all callbacks with the instance lock held (`devl_lock`), so that no two of them run at
//! once. A callback must not report to, register or drop anything of the same instance.
//! [`Reporter::report`], [`Reporter::set_healthy`] and the drop of a registration exclude each other
//! by a mutex that is outside of the instance lock. Reload is called with the device lock held, outside
//! of both; everything else without. Where these locks stand among the driver's is written down in its
//! room [`device`](crate::device).

use core::{
    fmt::Write,
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel::{
    bindings as kernel_bindings,
    build_error,
    device::{
        Bound,
        Device, //
    },
    error::{
        from_err_ptr,
        from_result,
        to_result,
        VTABLE_DEFAULT_ERROR, //
    },
    ffi::{
        c_int,
        c_ulong,
        c_void, //
    },
    fmt,
    new_mutex,
    prelude::*,
    str::{
        CString,
        NullTerminatedFormatter, //
    },
    sync::{
        Arc,
        Mutex, //
    }, //
};

use super::bindings;

/// Message to the person who asked, beside the errno.
pub(crate) struct ExtAck<'a> {
    raw: Option<NonNull<kernel_bindings::netlink_ext_ack>>,
    _request: PhantomData<&'a mut ()>,
}

impl ExtAck<'_> {
    /// # Safety
    ///
    /// `raw` is null, or valid and nobody else's for `'a`.
    unsafe fn new(raw: *mut kernel_bindings::netlink_ext_ack) -> Self {
        Self {
            raw: NonNull::new(raw),
            _request: PhantomData,
        }
    }

    /// Sets the message. What does not fit in 79 bytes is left off; nobody may be listening.
    pub(crate) fn set(&mut self, args: fmt::Arguments<'_>) {
        let Some(raw) = self.raw else {
            return;
        };
        // SAFETY: Valid and exclusive, see `new`. The buffer belongs to the request, so that the
        // message stays valid when this module is gone before the message was sent.
        unsafe {
            let raw = raw.as_ptr();
            let buffer = &mut (*raw)._msg_buf;
            if let Some(mut f) = NullTerminatedFormatter::new(buffer) {
                // An error means that the rest did not fit.
                let _ = f.write_fmt(args);
            }
            (*raw)._msg = (&raw const (*raw)._msg_buf).cast();
        }
    }
}

/// Name of a version in [`Info`].
#[derive(Clone, Copy)]
pub(crate) struct Version(&'static CStr);

// The generic names of Documentation/networking/devlink/devlink-info.rst.
#[allow(dead_code)]
impl Version {
    /// Board design.
    pub(crate) const BOARD_ID: Self = Self(bindings::DEVLINK_INFO_VERSION_GENERIC_BOARD_ID);
    /// Board design revision.
    pub(crate) const BOARD_REV: Self = Self(bindings::DEVLINK_INFO_VERSION_GENERIC_BOARD_REV);
    /// Part number of the board.
    pub(crate) const BOARD_PART_NUMBER: Self =
        Self(bindings::DEVLINK_INFO_VERSION_GENERIC_BOARD_PART_NUMBER);
    /// ASIC design.
    pub(crate) const ASIC_ID: Self = Self(bindings::DEVLINK_INFO_VERSION_GENERIC_ASIC_ID);
    /// ASIC design revision.
    pub(crate) const ASIC_REV: Self = Self(bindings::DEVLINK_INFO_VERSION_GENERIC_ASIC_REV);
    /// Overall firmware version.
    pub(crate) const FW: Self = Self(bindings::DEVLINK_INFO_VERSION_GENERIC_FW);
    /// Parameter set of the firmware.
    pub(crate) const FW_PSID: Self = Self(bindings::DEVLINK_INFO_VERSION_GENERIC_FW_PSID);

    /// A name that only this driver, or one like it, uses.
    pub(crate) const fn other(name: &'static CStr) -> Self {
        Self(name)
    }
}

/// The answer to `devlink dev info`. devlink adds the driver's name. Empty texts are left out.
pub(crate) struct Info<'a> {
    raw: NonNull<bindings::devlink_info_req>,
    _request: PhantomData<&'a mut ()>,
}

// What devices have, beside what this driver knows of them.
#[allow(dead_code)]
impl Info<'_> {
    /// # Safety
    ///
    /// `raw` is valid and nobody else's for `'a`.
    unsafe fn new(raw: NonNull<bindings::devlink_info_req>) -> Self {
        Self {
            raw,
            _request: PhantomData,
        }
    }

    /// The serial number of the device.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE`, as for all others: the answer is full.
    pub(crate) fn serial_number(&mut self, text: &CStr) -> Result {
        // SAFETY: devlink's request for this call, and a C string that is copied.
        to_result(unsafe {
            bindings::devlink_info_serial_number_put(self.raw.as_ptr(), text.as_char_ptr())
        })
    }

    /// The serial number of the board.
    ///
    /// # Errors
    ///
    /// See [`Self::serial_number`].
    pub(crate) fn board_serial_number(&mut self, text: &CStr) -> Result {
        // SAFETY: As in `serial_number`.
        to_result(unsafe {
            bindings::devlink_info_board_serial_number_put(self.raw.as_ptr(), text.as_char_ptr())
        })
    }

    /// A version of hardware, or of something that does not change.
    ///
    /// # Errors
    ///
    /// See [`Self::serial_number`].
    pub(crate) fn fixed(&mut self, name: Version, value: &CStr) -> Result {
        // SAFETY: As in `serial_number`.
        to_result(unsafe {
            bindings::devlink_info_version_fixed_put(
                self.raw.as_ptr(),
                name.0.as_char_ptr(),
                value.as_char_ptr(),
            )
        })
    }

    /// A version that runs now.
    ///
    /// # Errors
    ///
    /// See [`Self::serial_number`].
    pub(crate) fn running(&mut self, name: Version, value: &CStr) -> Result {
        // SAFETY: As in `serial_number`.
        to_result(unsafe {
            bindings::devlink_info_version_running_put(
                self.raw.as_ptr(),
                name.0.as_char_ptr(),
                value.as_char_ptr(),
            )
        })
    }

    /// A version in flash, that runs after the next reset.
    ///
    /// # Errors
    ///
    /// See [`Self::serial_number`].
    pub(crate) fn stored(&mut self, name: Version, value: &CStr) -> Result {
        // SAFETY: As in `serial_number`.
        to_result(unsafe {
            bindings::devlink_info_version_stored_put(
                self.raw.as_ptr(),
                name.0.as_char_ptr(),
                value.as_char_ptr(),
            )
        })
    }
}

/// An object of a message in devlink's own format: pairs of names and values.
///
/// Every nest that is opened is closed again. A failure (`ENOMEM`, a text that is too long) stays in
/// the message, and devlink reports it to who asked.
pub(crate) struct Fmsg<'a> {
    raw: NonNull<bindings::devlink_fmsg>,
    _request: PhantomData<&'a mut ()>,
}

// Complete, beside what this driver says today.
#[allow(dead_code)]
impl Fmsg<'_> {
    /// # Safety
    ///
    /// `raw` is valid, nobody else's for `'a`, and in an object.
    unsafe fn new(raw: NonNull<bindings::devlink_fmsg>) -> Self {
        Self {
            raw,
            _request: PhantomData,
        }
    }

    /// The same message, for what is nested in it.
    fn inner(&mut self) -> Fmsg<'_> {
        Fmsg {
            raw: self.raw,
            _request: PhantomData,
        }
    }

    /// `name: true` or `false`.
    pub(crate) fn bool(&mut self, name: &CStr, value: bool) {
        // SAFETY: devlink's message for this call, and a C string that is copied.
        unsafe {
            bindings::devlink_fmsg_bool_pair_put(self.raw.as_ptr(), name.as_char_ptr(), value)
        }
    }

    /// `name: value`, 8 bits.
    pub(crate) fn u8(&mut self, name: &CStr, value: u8) {
        // SAFETY: As in `bool`.
        unsafe { bindings::devlink_fmsg_u8_pair_put(self.raw.as_ptr(), name.as_char_ptr(), value) }
    }

    /// `name: value`, 32 bits.
    pub(crate) fn u32(&mut self, name: &CStr, value: u32) {
        // SAFETY: As in `bool`.
        unsafe { bindings::devlink_fmsg_u32_pair_put(self.raw.as_ptr(), name.as_char_ptr(), value) }
    }

    /// `name: value`, 64 bits.
    pub(crate) fn u64(&mut self, name: &CStr, value: u64) {
        // SAFETY: As in `bool`.
        unsafe { bindings::devlink_fmsg_u64_pair_put(self.raw.as_ptr(), name.as_char_ptr(), value) }
    }

    /// `name: text`.
    pub(crate) fn string(&mut self, name: &CStr, text: &CStr) {
        // SAFETY: As in `bool`, for both strings.
        unsafe {
            bindings::devlink_fmsg_string_pair_put(
                self.raw.as_ptr(),
                name.as_char_ptr(),
                text.as_char_ptr(),
            );
        }
    }

    /// `name: text`, with the text made here.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EINVAL` for a text with a zero in it.
    pub(crate) fn text(&mut self, name: &CStr, args: fmt::Arguments<'_>) -> Result {
        let text = CString::try_from_fmt(args)?;
        self.string(name, &text);
        Ok(())
    }

    /// `name: bytes`, in as many pieces as messages of user space need.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` above 4 GiB.
    pub(crate) fn binary(&mut self, name: &CStr, bytes: &[u8]) -> Result {
        let len = u32::try_from(bytes.len()).map_err(|_| EMSGSIZE)?;
        // SAFETY: As in `bool`; `bytes` is valid for its length and copied.
        unsafe {
            bindings::devlink_fmsg_binary_pair_put(
                self.raw.as_ptr(),
                name.as_char_ptr(),
                bytes.as_ptr().cast(),
                len,
            );
        }
        Ok(())
    }

    /// `name: { ... }`
    ///
    /// # Errors
    ///
    /// What `fill` reports.
    pub(crate) fn object(
        &mut self,
        name: &CStr,
        fill: impl FnOnce(&mut Fmsg<'_>) -> Result,
    ) -> Result {
        // SAFETY: As in `bool`; both nests are closed below.
        unsafe {
            bindings::devlink_fmsg_pair_nest_start(self.raw.as_ptr(), name.as_char_ptr());
            bindings::devlink_fmsg_obj_nest_start(self.raw.as_ptr());
        }
        let result = fill(&mut self.inner());
        // SAFETY: As in `bool`; they were opened above.
        unsafe {
            bindings::devlink_fmsg_obj_nest_end(self.raw.as_ptr());
            bindings::devlink_fmsg_pair_nest_end(self.raw.as_ptr());
        }
        result
    }

    /// `name: [ ... ]`
    ///
    /// # Errors
    ///
    /// What `fill` reports.
    pub(crate) fn array(
        &mut self,
        name: &CStr,
        fill: impl FnOnce(&mut FmsgArray<'_>) -> Result,
    ) -> Result {
        // SAFETY: As in `bool`; closed below.
        unsafe {
            bindings::devlink_fmsg_arr_pair_nest_start(self.raw.as_ptr(), name.as_char_ptr())
        };
        let result = fill(&mut FmsgArray(self.inner()));
        // SAFETY: As in `bool`; opened above.
        unsafe { bindings::devlink_fmsg_arr_pair_nest_end(self.raw.as_ptr()) };
        result
    }
}

/// An array in a message: values without names.
pub(crate) struct FmsgArray<'a>(Fmsg<'a>);

// Complete, beside what this driver says today.
#[allow(dead_code)]
impl FmsgArray<'_> {
    /// A number.
    pub(crate) fn u32(&mut self, value: u32) {
        // SAFETY: devlink's message for this call.
        unsafe { bindings::devlink_fmsg_u32_put(self.0.raw.as_ptr(), value) }
    }

    /// A text.
    pub(crate) fn string(&mut self, text: &CStr) {
        // SAFETY: As in `u32`, and a C string that is copied.
        unsafe { bindings::devlink_fmsg_string_put(self.0.raw.as_ptr(), text.as_char_ptr()) }
    }

    /// `{ ... }`
    ///
    /// # Errors
    ///
    /// What `fill` reports.
    pub(crate) fn object(&mut self, fill: impl FnOnce(&mut Fmsg<'_>) -> Result) -> Result {
        // SAFETY: As in `u32`; closed below.
        unsafe { bindings::devlink_fmsg_obj_nest_start(self.0.raw.as_ptr()) };
        let result = fill(&mut self.0.inner());
        // SAFETY: As in `u32`; opened above.
        unsafe { bindings::devlink_fmsg_obj_nest_end(self.0.raw.as_ptr()) };
        result
    }
}

/// What user space can ask of a device. All may sleep; the instance lock is held.
#[vtable]
pub(crate) trait Operations: Send + Sync + Sized {
    /// Answers `devlink dev info`.
    ///
    /// # Errors
    ///
    /// Any: user space gets it, with the message in `extack`; the same for the others.
    fn info(&self, info: &mut Info<'_>, extack: &mut ExtAck<'_>) -> Result;

    /// Takes the device down for `devlink dev reload action driver_reinit`, with the device lock held.
    ///
    /// # Errors
    ///
    /// See [`Self::info`]; [`Self::reload_up`] does not follow.
    fn reload_down(&self, extack: &mut ExtAck<'_>) -> Result {
        let _ = extack;
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Brings the device up again after [`Self::reload_down`], which is implemented as well.
    ///
    /// # Errors
    ///
    /// See [`Self::info`].
    fn reload_up(&self, extack: &mut ExtAck<'_>) -> Result {
        let _ = extack;
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// What all parts of an instance share.
#[pin_data(PinnedDrop)]
struct Instance<'a> {
    raw: NonNull<bindings::devlink>,
    /// Whether it is registered. Held while something is reported, because devlink wants to be
    /// registered then. Outside of the instance lock.
    #[pin]
    registered: Mutex<bool>,
    _dev: &'a Device<Bound>,
}

// SAFETY: devlink instances may be used from any thread.
unsafe impl Send for Instance<'_> {}

// SAFETY: All that is done through `&Instance` is done under the instance's locks.
unsafe impl Sync for Instance<'_> {}

impl Instance<'_> {
    /// Calls `f` with the instance lock held.
    fn locked<R>(&self, f: impl FnOnce(*mut bindings::devlink) -> R) -> R {
        let raw = self.raw.as_ptr();
        // SAFETY: The instance is valid until the drop.
        unsafe { bindings::devl_lock(raw) };
        let result = f(raw);
        // SAFETY: Locked above.
        unsafe { bindings::devl_unlock(raw) };
        result
    }
}

#[pinned_drop]
impl PinnedDrop for Instance<'_> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: From `devlink_alloc_ns`. Registration and reporters hold a reference, so that it is
        // not registered and has no reporters. User space that still holds the instance keeps its
        // memory, and finds it unregistered.
        unsafe { bindings::devlink_free(self.raw.as_ptr()) };
    }
}

/// An instance that user space does not see yet.
pub(crate) struct Unregistered<'a, T: Operations> {
    instance: Arc<Instance<'a>>,
    // What the instance's private data point to.
    _data: KBox<T>,
}

struct Ops(bindings::devlink_ops);

// SAFETY: Constant, only read.
unsafe impl Sync for Ops {}

impl<'a, T: Operations + 'a> Unregistered<'a, T> {
    /// Whether reload is offered. Its operations take enumerations, whose names CONFIG_CFI has in the
    /// types of functions, and bindgen not.
    const RELOADS: bool = T::HAS_RELOAD_DOWN && T::HAS_RELOAD_UP && !cfg!(CONFIG_CFI);

    const OPS: &'static Ops = &Ops(bindings::devlink_ops {
        info_get: Some(Self::info_get),
        reload_actions: if Self::RELOADS { REINIT } else { 0 },
        reload_down: if Self::RELOADS {
            Some(Self::reload_down)
        } else {
            None
        },
        reload_up: if Self::RELOADS {
            Some(Self::reload_up)
        } else {
            None
        },
        ..pin_init::zeroed()
    });

    /// Makes an instance for `dev`, which is being bound, in the initial network namespace.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(dev: &'a Device<Bound>, data: T) -> Result<Self> {
        let data = KBox::new(data, GFP_KERNEL)?;
        // CAST: `Device` is a transparent wrapper of `Opaque<device>`, which allows mutation.
        // SAFETY: The operations are constant; the device is valid and has a driver; the initial
        // network namespace is always there. The private data are as large as a pointer.
        let raw = unsafe {
            bindings::devlink_alloc_ns(
                &raw const Self::OPS.0,
                size_of::<*const T>(),
                &raw mut kernel_bindings::init_net,
                core::ptr::from_ref(dev).cast_mut().cast(),
            )
        };
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // SAFETY: The instance is valid, not registered, and has that much private data, aligned for
        // everything.
        unsafe {
            bindings::devlink_priv(raw.as_ptr())
                .cast::<*const T>()
                .write(&raw const *data);
        }
        let instance = Arc::pin_init(
            try_pin_init!(Instance {
                raw,
                registered <- new_mutex!(false, "mlx5_rs_devlink"),
                _dev: dev,
            }? Error),
            GFP_KERNEL,
        )
        .inspect_err(|_| {
            // SAFETY: Allocated above, and known to nobody.
            unsafe { bindings::devlink_free(raw.as_ptr()) }
        })?;
        Ok(Self {
            instance,
            _data: data,
        })
    }

    /// Adds a health reporter.
    ///
    /// # Errors
    ///
    /// `EEXIST` when there is one with this name, `ENOMEM`.
    pub(crate) fn reporter<R: HealthReporter + 'a>(
        &self,
        reporter: R,
        grace_ms: u64,
    ) -> Result<Reporter<'a, R>> {
        Reporter::new(self.instance.clone(), reporter, grace_ms)
    }

    /// Lets user space in.
    pub(crate) fn register(self) -> Registration<'a, T> {
        let mut registered = self.instance.registered.lock();
        self.instance.locked(|raw| {
            // SAFETY: Locked, and not registered. In this version of the kernel it cannot fail.
            unsafe { bindings::devl_register(raw) }
        });
        *registered = true;
        drop(registered);
        Registration(self)
    }

    /// # Safety
    ///
    /// Only in an operation of an instance that [`Self::new`] made.
    unsafe fn from_raw<'b>(raw: *mut bindings::devlink) -> &'b T {
        // SAFETY: devlink calls operations of a registered instance and with its lock held, which
        // unregistering waits for, before the data are dropped.
        unsafe { &**bindings::devlink_priv(raw).cast::<*const T>() }
    }

    /// # Safety
    ///
    /// Only as an operation of an instance that [`Self::new`] made; the same for the others.
    unsafe extern "C" fn info_get(
        devlink: *mut bindings::devlink,
        req: *mut bindings::devlink_info_req,
        extack: *mut kernel_bindings::netlink_ext_ack,
    ) -> c_int {
        // SAFETY: This is such an operation.
        let data = unsafe { Self::from_raw(devlink) };
        // SAFETY: Not null, valid, and ours for this call.
        let (mut info, mut extack) =
            unsafe { (Info::new(NonNull::new_unchecked(req)), ExtAck::new(extack)) };
        from_result(|| data.info(&mut info, &mut extack).map(|()| 0))
    }

    /// # Safety
    ///
    /// See [`Self::info_get`].
    unsafe extern "C" fn reload_down(
        devlink: *mut bindings::devlink,
        netns_change: bool,
        _action: bindings::devlink_reload_action,
        _limit: bindings::devlink_reload_limit,
        extack: *mut kernel_bindings::netlink_ext_ack,
    ) -> c_int {
        // SAFETY: This is such an operation; `extack` is null, or valid and ours for this call.
        let (data, mut extack) = unsafe { (Self::from_raw(devlink), ExtAck::new(extack)) };
        if netns_change {
            extack.set(fmt!("the device stays in its network namespace"));
            return EOPNOTSUPP.to_errno();
        }
        from_result(|| data.reload_down(&mut extack).map(|()| 0))
    }

    /// # Safety
    ///
    /// See [`Self::info_get`].
    unsafe extern "C" fn reload_up(
        devlink: *mut bindings::devlink,
        action: bindings::devlink_reload_action,
        _limit: bindings::devlink_reload_limit,
        actions_performed: *mut u32,
        extack: *mut kernel_bindings::netlink_ext_ack,
    ) -> c_int {
        // SAFETY: As in `reload_down`.
        let (data, mut extack) = unsafe { (Self::from_raw(devlink), ExtAck::new(extack)) };
        from_result(|| {
            data.reload_up(&mut extack)?;
            // SAFETY: Valid and ours for this call. devlink asks for nothing but `REINIT`.
            unsafe { *actions_performed = 1 << action };
            Ok(0)
        })
    }
}

/// The one reload action on offer, as a bit.
const REINIT: c_ulong = 1 << bindings::devlink_reload_action_DEVLINK_RELOAD_ACTION_DRIVER_REINIT;

/// An instance that user space sees, until dropped.
pub(crate) struct Registration<'a, T: Operations + 'a>(Unregistered<'a, T>);

impl<'a, T: Operations + 'a> Registration<'a, T> {
    /// Shuts user space out already before the drop, for good. Waits for callbacks under way.
    pub(crate) fn unregister(&self) {
        let instance = &self.0.instance;
        let mut registered = instance.registered.lock();
        if *registered {
            // SAFETY: Locked, and registered. Callbacks hold the lock, and are only called if the
            // instance is registered: none comes afterwards.
            instance.locked(|raw| unsafe { bindings::devl_unregister(raw) });
            *registered = false;
        }
    }
}

impl<T: Operations> Drop for Registration<'_, T> {
    fn drop(&mut self) {
        self.unregister();
    }
}

/// Something whose health people can look at. What is not implemented, user space is told so.
///
/// All may sleep; the instance lock is held.
#[vtable]
pub(crate) trait HealthReporter: Send + Sync + Sized {
    /// What a report is about.
    type Event;

    /// What user space calls it.
    const NAME: &'static CStr;

    /// Says how things are now.
    ///
    /// # Errors
    ///
    /// Any: user space gets it, with the message in `extack`; the same for the others.
    fn diagnose(&self, fmsg: &mut Fmsg<'_>, extack: &mut ExtAck<'_>) -> Result {
        let _ = (fmsg, extack);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Collects all there is for a later analysis: of what was reported just now, or, without an
    /// event, of the present.
    ///
    /// # Errors
    ///
    /// See [`Self::diagnose`].
    fn dump(
        &self,
        fmsg: &mut Fmsg<'_>,
        event: Option<&Self::Event>,
        extack: &mut ExtAck<'_>,
    ) -> Result {
        let _ = (fmsg, event, extack);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Makes it well again: after a report, or, without an event, because a person wants it.
    ///
    /// # Errors
    ///
    /// See [`Self::diagnose`].
    fn recover(&self, event: Option<&Self::Event>, extack: &mut ExtAck<'_>) -> Result {
        let _ = (event, extack);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Causes a report, as far as that can be done without harm. The report comes later: not in here.
    ///
    /// # Errors
    ///
    /// See [`Self::diagnose`].
    fn test(&self, extack: &mut ExtAck<'_>) -> Result {
        let _ = extack;
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// What devlink keeps pointers to.
struct Reported<R> {
    reporter: R,
    ops: bindings::devlink_health_reporter_ops,
}

/// A health reporter of an instance; gone for user space when dropped.
pub(crate) struct Reporter<'a, R: HealthReporter + 'a> {
    raw: NonNull<bindings::devlink_health_reporter>,
    // Freed after the drop has taken it from devlink.
    _reported: KBox<Reported<R>>,
    instance: Arc<Instance<'a>>,
}

// SAFETY: devlink's part may be used from any thread, and `R` is `Send` and `Sync`.
unsafe impl<R: HealthReporter> Send for Reporter<'_, R> {}

// SAFETY: What is done through `&Reporter` is done under the instance's locks.
unsafe impl<R: HealthReporter> Sync for Reporter<'_, R> {}

impl<'a, R: HealthReporter + 'a> Reporter<'a, R> {
    fn new(instance: Arc<Instance<'a>>, reporter: R, grace_ms: u64) -> Result<Self> {
        let reported = KBox::new(
            Reported {
                reporter,
                ops: bindings::devlink_health_reporter_ops {
                    // CAST: Not written to: the field is what C calls a constant string.
                    name: R::NAME.as_char_ptr().cast_mut(),
                    diagnose: R::HAS_DIAGNOSE.then_some(Self::diagnose),
                    dump: R::HAS_DUMP.then_some(Self::dump),
                    recover: R::HAS_RECOVER.then_some(Self::recover),
                    test: R::HAS_TEST.then_some(Self::test),
                    // devlink warns about a period without the operation.
                    default_graceful_period: if R::HAS_RECOVER { grace_ms } else { 0 },
                    ..pin_init::zeroed()
                },
            },
            GFP_KERNEL,
        )?;
        let ptr = core::ptr::from_ref(&reported.reporter);
        // SAFETY: Locked. Operations and private data stay valid and in place until the reporter is
        // destroyed, in the drop.
        let raw = from_err_ptr(instance.locked(|raw| unsafe {
            bindings::devl_health_reporter_create(
                raw,
                &raw const reported.ops,
                ptr.cast_mut().cast(),
            )
        }))?;
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        Ok(Self {
            raw,
            _reported: reported,
            instance,
        })
    }

    /// Reports an event: counts it, makes the state "error", tells listeners, takes a dump if there is
    /// none, and lets [`HealthReporter::recover`] run, as far as people have not switched these off.
    /// May sleep, for as long as a recovery takes.
    ///
    /// # Errors
    ///
    /// - `ENODEV`: the instance is not registered, and nothing was done.
    /// - `ECANCELED`: no recovery, because the last one was too short a time ago or failed.
    /// - Any other: of the recovery.
    pub(crate) fn report(&self, message: &CStr, event: &R::Event) -> Result {
        let registered = self.instance.registered.lock();
        if !*registered {
            return Err(ENODEV);
        }
        // SAFETY: The reporter is valid, and its instance stays registered while the guard lives. The
        // event is of the type that the callbacks expect, and outlives the call, which runs them.
        to_result(unsafe {
            bindings::devlink_health_report(
                self.raw.as_ptr(),
                message.as_char_ptr(),
                core::ptr::from_ref(event).cast_mut().cast(),
            )
        })
    }

    /// Says that all is well again, without a recovery. Nothing happens if the instance is not
    /// registered, or if it was well before.
    pub(crate) fn set_healthy(&self) {
        let registered = self.instance.registered.lock();
        if *registered {
            // SAFETY: As in `report`.
            unsafe {
                bindings::devlink_health_reporter_state_update(
                    self.raw.as_ptr(),
                    bindings::devlink_health_reporter_state_DEVLINK_HEALTH_REPORTER_STATE_HEALTHY,
                );
            }
        }
    }

    /// # Safety
    ///
    /// Only in an operation of a reporter that [`Self::new`] made.
    unsafe fn from_raw<'b>(raw: *mut bindings::devlink_health_reporter) -> &'b R {
        // SAFETY: Set in `new`. devlink calls with the instance lock held, which the drop takes before
        // it frees anything.
        unsafe { &*bindings::devlink_health_reporter_priv(raw).cast::<R>() }
    }

    /// # Safety
    ///
    /// Only as an operation of a reporter that [`Self::new`] made; the same for the others.
    unsafe extern "C" fn diagnose(
        raw: *mut bindings::devlink_health_reporter,
        fmsg: *mut bindings::devlink_fmsg,
        extack: *mut kernel_bindings::netlink_ext_ack,
    ) -> c_int {
        // SAFETY: This is such an operation; the arguments are not null (but for `extack`), valid,
        // and ours for this call, and the message is in an object.
        let (this, mut fmsg, mut extack) = unsafe {
            (
                Self::from_raw(raw),
                Fmsg::new(NonNull::new_unchecked(fmsg)),
                ExtAck::new(extack),
            )
        };
        from_result(|| this.diagnose(&mut fmsg, &mut extack).map(|()| 0))
    }

    /// # Safety
    ///
    /// See [`Self::diagnose`].
    unsafe extern "C" fn dump(
        raw: *mut bindings::devlink_health_reporter,
        fmsg: *mut bindings::devlink_fmsg,
        event: *mut c_void,
        extack: *mut kernel_bindings::netlink_ext_ack,
    ) -> c_int {
        // SAFETY: As in `diagnose`.
        let (this, mut fmsg, mut extack) = unsafe {
            (
                Self::from_raw(raw),
                Fmsg::new(NonNull::new_unchecked(fmsg)),
                ExtAck::new(extack),
            )
        };
        // SAFETY: Null, or what `report` gave to devlink for this call.
        let event = unsafe { event.cast::<R::Event>().as_ref() };
        from_result(|| this.dump(&mut fmsg, event, &mut extack).map(|()| 0))
    }

    /// # Safety
    ///
    /// See [`Self::diagnose`].
    unsafe extern "C" fn recover(
        raw: *mut bindings::devlink_health_reporter,
        event: *mut c_void,
        extack: *mut kernel_bindings::netlink_ext_ack,
    ) -> c_int {
        // SAFETY: As in `diagnose`.
        let (this, mut extack) = unsafe { (Self::from_raw(raw), ExtAck::new(extack)) };
        // SAFETY: As in `dump`.
        let event = unsafe { event.cast::<R::Event>().as_ref() };
        from_result(|| this.recover(event, &mut extack).map(|()| 0))
    }

    /// # Safety
    ///
    /// See [`Self::diagnose`].
    unsafe extern "C" fn test(
        raw: *mut bindings::devlink_health_reporter,
        extack: *mut kernel_bindings::netlink_ext_ack,
    ) -> c_int {
        // SAFETY: As in `diagnose`.
        let (this, mut extack) = unsafe { (Self::from_raw(raw), ExtAck::new(extack)) };
        from_result(|| this.test(&mut extack).map(|()| 0))
    }
}

impl<R: HealthReporter> Drop for Reporter<'_, R> {
    fn drop(&mut self) {
        self.instance.locked(|_| {
            // SAFETY: Locked; created in `new`, destroyed once. Nobody can report any more: that takes
            // a reference to `self`.
            unsafe { bindings::devl_health_reporter_destroy(self.raw.as_ptr()) };
        });
    }
}
