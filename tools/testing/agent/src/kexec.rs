// SPDX-License-Identifier: GPL-2.0
//! Loads a kernel that this one goes on into.

use crate::serve::{failed, Outcome};
use mlx5_agent::proto::{NextKernel, Reply};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `kexec_file_load(2)`, for which neither rustix nor glibc has a function.
pub fn load(next: &NextKernel) -> Outcome {
    let what = |error: io::Error| failed(&format!("kexec_file_load {}", next.image), error);
    let image = File::open(&next.image).map_err(what)?;
    let initrd = File::open(&next.initrd).map_err(what)?;
    let cmdline = CString::new(next.cmdline.as_str()).map_err(|error| what(error.into()))?;
    let flags = if next.on_crash {
        libc::KEXEC_FILE_ON_CRASH
    } else {
        0
    };
    // SAFETY: the descriptors are open and the command line is a string of
    // the given length with its end; the kernel reads them and keeps none.
    let result = unsafe {
        libc::syscall(
            libc::SYS_kexec_file_load,
            image.as_raw_fd(),
            initrd.as_raw_fd(),
            cmdline.as_bytes_with_nul().len(),
            cmdline.as_ptr(),
            libc::c_long::from(flags),
        )
    };
    if result == 0 {
        Ok(Reply::Done)
    } else {
        Err(what(io::Error::last_os_error()))
    }
}
