// SPDX-License-Identifier: GPL-2.0

//! Upstream's tracer in C (`c/upstream.c`).

use std::ffi::{c_char, c_int, CStr};

use crate::corpus::Corpus;

#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

extern "C" {
    fn upstream_new(
        ring: *const u8,
        blocks: u32,
        strings: *const u8,
        len: u32,
        base: u32,
        first: u8,
        count: u8,
        trc_ver: u8,
    ) -> *mut Opaque;
    fn upstream_free(this: *mut Opaque);
    fn upstream_rewind(this: *mut Opaque);
    fn upstream_copy(this: *mut Opaque) -> u64;
    fn upstream_read(this: *mut Opaque) -> u64;
    fn upstream_saved(this: *const Opaque) -> u64;
    fn upstream_message(this: *const Opaque, n: u64, time: *mut u64, id: *mut u8) -> *const c_char;
    fn upstream_words(format: *mut c_char) -> c_int;
    fn upstream_format(
        out: *mut c_char,
        size: usize,
        format: *const c_char,
        params: *const u32,
    ) -> c_int;
}

/// Upstream's reader, on a ring that it borrows.
pub struct Upstream<'a> {
    raw: *mut Opaque,
    _corpus: &'a Corpus,
}

impl<'a> Upstream<'a> {
    /// A reader at the start of the corpus.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    pub fn new(corpus: &'a Corpus) -> Self {
        let (ring, strings) = (corpus.ring(), corpus.strings());
        // SAFETY: the ring has 256 bytes for each block, a power of two of them, and outlives this
        // object; the strings are copied.
        let raw = unsafe {
            upstream_new(
                ring.as_ptr(),
                (ring.len() / 256) as u32,
                strings.as_ptr(),
                strings.len() as u32,
                corpus.base(),
                corpus.first_id(),
                corpus.ids(),
                0,
            )
        };
        assert!(!raw.is_null(), "no memory");
        Self {
            raw,
            _corpus: corpus,
        }
    }

    /// Back to the start of the ring.
    pub fn rewind(&mut self) {
        // SAFETY: `raw` is what `upstream_new` gave.
        unsafe { upstream_rewind(self.raw) }
    }

    /// Copies and checks all blocks; gives their number.
    pub fn copy(&mut self) -> u64 {
        // SAFETY: as above; the ring is borrowed and not written.
        unsafe { upstream_copy(self.raw) }
    }

    /// Reads, formats and saves everything; gives the number of blocks.
    pub fn read(&mut self) -> u64 {
        // SAFETY: as above.
        unsafe { upstream_read(self.raw) }
    }

    /// Messages saved so far, of which the last 8192 are there.
    pub fn saved(&self) -> u64 {
        // SAFETY: as above.
        unsafe { upstream_saved(self.raw) }
    }

    /// Time, event id and text of message `n`.
    pub fn message(&self, n: u64) -> (u64, u8, String) {
        let (mut time, mut id) = (0, 0);
        // SAFETY: as above; the text has an end, and is copied before anything can change it.
        let text = unsafe { CStr::from_ptr(upstream_message(self.raw, n, &mut time, &mut id)) };
        (time, id, text.to_string_lossy().into_owned())
    }
}

impl Drop for Upstream<'_> {
    fn drop(&mut self) {
        // SAFETY: as above, and it is not used after this.
        unsafe { upstream_free(self.raw) }
    }
}

/// A format string as C has it.
pub struct Format(Vec<u8>);

impl Format {
    /// The string, which takes at most seven words.
    ///
    /// # Panics
    ///
    /// If upstream cannot format it.
    pub fn new(text: &str) -> Self {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        let mut this = Self(bytes);
        assert!(
            (0..=7).contains(&this.words()),
            "upstream cannot take {text}"
        );
        this
    }

    /// Words of parameters, as upstream counts them (and rewrites the string on the way).
    pub fn words(&mut self) -> i32 {
        // SAFETY: the string has an end; it does not get longer.
        unsafe { upstream_words(self.0.as_mut_ptr().cast()) }
    }

    /// Formats by snprintf; gives the length.
    pub fn print(&self, words: &[u32; 7], out: &mut [u8]) -> usize {
        // SAFETY: the string has an end, and takes no more than seven words of 32 bits, as `new`
        // has checked; `out` has the length given.
        let len = unsafe {
            upstream_format(
                out.as_mut_ptr().cast(),
                out.len(),
                self.0.as_ptr().cast(),
                words.as_ptr(),
            )
        };
        usize::try_from(len).unwrap_or(0)
    }
}
