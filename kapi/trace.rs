// SPDX-License-Identifier: GPL-2.0

//! Trace events of the firmware tracer: `mlx5:mlx5_fw` and `mlx5:mlx5_fw_gap`.
//!
//! C header: `kapi/fw_trace.h`, of this driver: what makes a trace event is macros of C.

use kernel::{
    ffi::{
        c_char,
        c_uint, //
    },
    prelude::*, //
};

extern "C" {
    fn mlx5_rs_trace_fw(
        dev: *const c_char,
        time: u64,
        lost: bool,
        id: u8,
        text: *const c_char,
        len: c_uint,
    );
    fn mlx5_rs_trace_fw_gap(dev: *const c_char, time: u64, blocks: u64, torn: u64);
}

/// A message of device `dev`: `[time] lost [id] text`. Nothing but a test of a flag while nobody listens.
pub(crate) fn fw(dev: &CStr, time: u64, lost: bool, id: u8, text: &str) {
    // A longer one than any is cut.
    let len = u16::try_from(text.len()).unwrap_or(u16::MAX);
    // SAFETY: `dev` is a C string; `text` has so many bytes at least, which are copied.
    unsafe {
        mlx5_rs_trace_fw(
            dev.as_char_ptr(),
            time,
            lost,
            id,
            text.as_ptr().cast(),
            len.into(),
        )
    };
}

/// Blocks of device `dev` that were lost before `time`, and copies of blocks that were torn.
pub(crate) fn fw_gap(dev: &CStr, time: u64, blocks: u64, torn: u64) {
    // SAFETY: `dev` is a C string.
    unsafe { mlx5_rs_trace_fw_gap(dev.as_char_ptr(), time, blocks, torn) };
}
