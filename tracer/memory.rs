// SPDX-License-Identifier: GPL-2.0

//! The trace buffer as the reader sees it: the device writes it at the same time.

use kernel::sync::barrier::{
    dma_mb,
    Read, //
};

use super::block::{
    Source,
    BLOCK,
    EVENT,
    EVENTS, //
};
use crate::kapi::dma::DmaBuf;

/// Where the last event of a block is.
pub(super) fn last_event_of(block: u32) -> usize {
    block as usize * BLOCK + (EVENTS - 1) * EVENT
}

/// The trace buffer, for the reader.
pub(super) struct Memory<'a>(pub(super) &'a DmaBuf);

impl Source for Memory<'_> {
    #[inline]
    fn last_event(&self, block: u32) -> u64 {
        self.0.read_word(last_event_of(block)).unwrap_or(0)
    }

    #[inline]
    fn events(&self, block: u32, to: &mut [u64; EVENTS - 1]) {
        if self.0.read_words(block as usize * BLOCK, to).is_err() {
            *to = [0; EVENTS - 1];
        }
    }

    #[inline]
    fn barrier(&self) {
        dma_mb(Read);
    }
}
