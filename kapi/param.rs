// SPDX-License-Identifier: GPL-2.0

//! Module parameters that can be changed while the module runs.
//!
//! C header: `include/linux/moduleparam.h`. Those of the `kernel` crate are set when the module is
//! loaded, and not shown in sysfs.

use kernel::{
    bindings,
    error::to_result,
    ffi::{
        c_char,
        c_int,
        c_uint, //
    },
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// A number between bounds, that people read and write in sysfs.
pub(crate) struct Live {
    value: Atomic<u32>,
    min: u32,
    max: u32,
}

impl Live {
    /// Only for [`live_params!`](crate::kapi::param::live_params).
    pub(crate) const fn new(default: u32, min: u32, max: u32) -> Self {
        Self {
            value: Atomic::new(default),
            min,
            max,
        }
    }

    /// What it is now.
    pub(crate) fn get(&self) -> u32 {
        self.value.load(Relaxed)
    }

    fn set(&self, value: u32) -> Result {
        if !(self.min..=self.max).contains(&value) {
            return Err(EINVAL);
        }
        self.value.store(value, Relaxed);
        Ok(())
    }
}

/// Operations of a `kernel_param` whose argument is a static [`Live`].
pub(crate) static OPS: bindings::kernel_param_ops = bindings::kernel_param_ops {
    flags: 0,
    set: Some(set),
    get: Some(get),
    free: None,
};

/// # Safety
///
/// Only as an operation of a parameter that `live_params!` made.
unsafe fn live<'a>(param: *const bindings::kernel_param) -> &'a Live {
    // SAFETY: The parameter is valid, and its argument a static `Live`.
    unsafe { &*(*param).__bindgen_anon_1.arg.cast::<Live>() }
}

/// # Safety
///
/// As for [`live`]; `text` is null or a C string.
unsafe extern "C" fn set(text: *const c_char, param: *const bindings::kernel_param) -> c_int {
    kernel::error::from_result(|| {
        if text.is_null() {
            return Err(EINVAL);
        }
        let mut value: c_uint = 0;
        // SAFETY: `text` is a C string; the result goes to a local.
        to_result(unsafe { bindings::kstrtouint(text, 0, &raw mut value) })?;
        // SAFETY: By the promise to this function.
        unsafe { live(param) }.set(value)?;
        Ok(0)
    })
}

/// # Safety
///
/// As for [`live`]; `buffer` has a page.
unsafe extern "C" fn get(buffer: *mut c_char, param: *const bindings::kernel_param) -> c_int {
    // SAFETY: By the promise to this function.
    let value = unsafe { live(param) }.get();
    // SAFETY: The buffer has a page (`struct kernel_param_ops`); `%u` takes the one number.
    unsafe {
        bindings::scnprintf(
            buffer,
            kernel::page::PAGE_SIZE,
            c"%u\n".as_char_ptr(),
            value,
        )
    }
}

/// The bytes of `text` for a static: modinfo strings are arrays, not references.
pub(crate) const fn bytes<const N: usize>(text: &str) -> [u8; N] {
    let from = text.as_bytes();
    let mut to = [0; N];
    let mut i = 0;
    while i < N {
        to[i] = from[i];
        i += 1;
    }
    to
}

/// Declares module parameters of type `u32` that root can change in
/// `/sys/module/mlx5_rs/parameters`.
///
/// ```ignore
/// live_params! {
///     /// What it is for.
///     pub(crate) static health_interval_ms: 100, 10..=10_000, "What modinfo says";
/// }
/// ```
macro_rules! live_params {
    ($(
        $(#[$attribute:meta])*
        $vis:vis static $name:ident: $default:literal, $min:literal..=$max:literal, $text:literal;
    )*) => {$(
        $(#[$attribute])*
        #[allow(non_upper_case_globals)]
        $vis static $name: $crate::kapi::param::Live = {
            assert!($min <= $default && $default <= $max);
            $crate::kapi::param::Live::new($default, $min, $max)
        };

        const _: () = {
            use ::kernel::{
                bindings,
                module_param::KernelParam, //
            };
            // Built into the kernel the name would need the module's before it; Kconfig forbids it.
            const NAME: &str = concat!(stringify!($name), "\0");
            const TYPE: &str = concat!("parmtype=", stringify!($name), ":uint\0");
            const TEXT: &str = concat!("parm=", stringify!($name), ":", $text, "\0");

            #[link_section = ".modinfo"]
            #[used(compiler)]
            static TYPE_INFO: [u8; TYPE.len()] = $crate::kapi::param::bytes(TYPE);

            #[link_section = ".modinfo"]
            #[used(compiler)]
            static TEXT_INFO: [u8; TEXT.len()] = $crate::kapi::param::bytes(TEXT);

            #[link_section = "__param"]
            #[used(compiler)]
            static PARAM: KernelParam = KernelParam::new(bindings::kernel_param {
                name: NAME.as_ptr().cast(),
                mod_: (&raw const bindings::__this_module).cast_mut(),
                ops: &raw const $crate::kapi::param::OPS,
                perm: 0o644,
                level: -1,
                flags: 0,
                __bindgen_anon_1: bindings::kernel_param__bindgen_ty_1 {
                    arg: (&raw const $name).cast_mut().cast(),
                },
            });
        };
    )*};
}
pub(crate) use live_params;
