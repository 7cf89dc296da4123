// SPDX-License-Identifier: GPL-2.0

//! Memory that the device reads and writes while we hold it.
//!
//! [`DmaBuf`] gives access by copies only. No reference into the memory is ever made, so that what
//! the device writes at the same time can be stale or torn, but never undefined behaviour. Each
//! access reads its bytes once.

use core::mem::ManuallyDrop;

use kernel::{
    device,
    dma::{
        Coherent,
        CoherentHandle, //
    },
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// The size and alignment of a page of the device, in bytes (hardware.md 2.5: always 4 KiB).
pub(crate) const DEVICE_PAGE: usize = 4096;

/// Where the DMA memory of a device comes from, and whether it may be freed.
///
/// Memory is freed when its owner drops it, because the device is done with it or can no longer reach
/// it. When neither can be made sure ([`lose`](Self::lose)), what is dropped afterwards is kept for
/// ever instead: a leak is better than a device that writes to somebody else's memory.
#[derive(Clone)]
pub(crate) struct Dma<'a> {
    dev: &'a device::Device<device::Bound>,
    lost: Arc<Atomic<bool>>,
}

impl<'a> Dma<'a> {
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(dev: &'a device::Device<device::Bound>) -> Result<Self> {
        Ok(Self {
            dev,
            lost: Arc::new(Atomic::new(false), GFP_KERNEL)?,
        })
    }

    /// The device.
    pub(crate) fn dev(&self) -> &'a device::Device<device::Bound> {
        self.dev
    }

    /// From now on nothing is freed: the device may still write to it.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Relaxed);
    }

    /// Whether [`lose`](Self::lose) was called.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Relaxed)
    }

    /// Allocates `pages` contiguous device pages.
    ///
    /// # Errors
    ///
    /// `EINVAL` for 0 pages, `ENOMEM` when there is no memory, and `EIO` when the DMA layer gives an
    /// address that the device cannot take (0, or not aligned).
    pub(crate) fn buffer(&self, pages: usize) -> Result<DmaBuf> {
        let len = pages.checked_mul(DEVICE_PAGE).ok_or(EINVAL)?;
        let mem: Coherent<[u8]> = Coherent::zeroed_slice(self.dev, len, GFP_KERNEL | __GFP_NOWARN)?;
        let addr = mem.dma_address();
        if addr == 0 || addr % (DEVICE_PAGE as u64) != 0 {
            return Err(EIO);
        }
        Ok(DmaBuf {
            mem: ManuallyDrop::new(mem),
            lost: self.lost.clone(),
        })
    }

    /// Allocates a device page that only the device uses.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn page(&self) -> Result<DevicePage> {
        let mem = CoherentHandle::alloc(self.dev, DEVICE_PAGE, GFP_KERNEL | __GFP_NOWARN)?;
        Ok(DevicePage {
            mem: ManuallyDrop::new(mem),
            lost: self.lost.clone(),
        })
    }
}

/// A page that only the device uses.
pub(crate) struct DevicePage {
    mem: ManuallyDrop<CoherentHandle>,
    lost: Arc<Atomic<bool>>,
}

impl DevicePage {
    /// The address to tell the device.
    pub(crate) fn addr(&self) -> u64 {
        self.mem.dma_address()
    }
}

impl Drop for DevicePage {
    fn drop(&mut self) {
        if !self.lost.load(Relaxed) {
            // SAFETY: Nobody uses the field after this: it is private, and dropped only here.
            unsafe { ManuallyDrop::drop(&mut self.mem) };
        }
    }
}

/// Coherent DMA memory, zeroed when made, aligned to [`DEVICE_PAGE`].
pub(crate) struct DmaBuf {
    mem: ManuallyDrop<Coherent<[u8]>>,
    lost: Arc<Atomic<bool>>,
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        if !self.lost.load(Relaxed) {
            // SAFETY: Nobody uses the field after this: it is private, and dropped only here.
            unsafe { ManuallyDrop::drop(&mut self.mem) };
        }
    }
}

impl DmaBuf {
    /// The length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.mem.len()
    }

    /// The address to tell the device.
    pub(crate) fn addr(&self) -> u64 {
        self.mem.dma_address()
    }

    /// The addresses of all device pages in the buffer.
    pub(crate) fn page_addrs(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.len() / DEVICE_PAGE).map(|i| self.addr() + (i * DEVICE_PAGE) as u64)
    }

    fn ptr(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        if end > self.len() {
            return None;
        }
        // CAST: A slice pointer to a pointer to its first element.
        let base = self.mem.as_mut_ptr().cast::<u8>();
        // SAFETY: `offset <= end <= len`, so the result stays in (or one past) the allocation.
        Some(unsafe { base.add(offset) })
    }

    /// Copies `out.len()` bytes at `offset` out of the buffer.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the range is not within the buffer.
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) -> Result {
        let src = self.ptr(offset, out.len()).ok_or(EINVAL)?;
        let mut i = 0;
        // Words where both sides allow it: a field of the device is not torn then, and it is faster.
        if offset % 8 == 0 {
            for chunk in out.chunks_exact_mut(8) {
                // SAFETY: `i + 8 <= out.len()`, in bounds by `ptr`; `src` is 8-byte aligned because
                // the buffer is page-aligned and `offset` a multiple of 8.
                let word = unsafe { src.add(i).cast::<u64>().read_volatile() };
                chunk.copy_from_slice(&word.to_ne_bytes());
                i += 8;
            }
        }
        for byte in out.iter_mut().skip(i) {
            // SAFETY: `i < out.len()`, in bounds by `ptr`.
            *byte = unsafe { src.add(i).read_volatile() };
            i += 1;
        }
        Ok(())
    }

    /// Copies `data` into the buffer at `offset`.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the range is not within the buffer.
    pub(crate) fn write(&self, offset: usize, data: &[u8]) -> Result {
        let dst = self.ptr(offset, data.len()).ok_or(EINVAL)?;
        let mut i = 0;
        if offset % 8 == 0 {
            for chunk in data.chunks_exact(8) {
                let mut word = [0; 8];
                word.copy_from_slice(chunk);
                // SAFETY: As in `read`; the allocation is writable.
                unsafe {
                    dst.add(i)
                        .cast::<u64>()
                        .write_volatile(u64::from_ne_bytes(word))
                };
                i += 8;
            }
        }
        for byte in data.iter().skip(i) {
            // SAFETY: `i < data.len()`, in bounds by `ptr`.
            unsafe { dst.add(i).write_volatile(*byte) };
            i += 1;
        }
        Ok(())
    }

    /// Reads the eight bytes at `offset`, as they lie in memory, at once.
    ///
    /// # Errors
    ///
    /// `EINVAL` when they are not within the buffer, or the offset is not a multiple of 8.
    #[inline]
    pub(crate) fn read_word(&self, offset: usize) -> Result<u64> {
        let src = self.ptr(offset, 8).ok_or(EINVAL)?;
        if offset % 8 != 0 {
            return Err(EINVAL);
        }
        // SAFETY: Eight bytes, in bounds by `ptr`, and aligned: the buffer is page-aligned.
        Ok(unsafe { src.cast::<u64>().read_volatile() })
    }

    /// Copies words of eight bytes at `offset` out of the buffer, as they lie in memory; each is read
    /// once, at once, in order.
    ///
    /// # Errors
    ///
    /// As [`read_word`](Self::read_word).
    #[inline]
    pub(crate) fn read_words(&self, offset: usize, out: &mut [u64]) -> Result {
        let len = out.len().checked_mul(8).ok_or(EINVAL)?;
        let src = self.ptr(offset, len).ok_or(EINVAL)?.cast::<u64>();
        if offset % 8 != 0 {
            return Err(EINVAL);
        }
        for (turn, words) in out.chunks_mut(8).enumerate() {
            // SAFETY: Called for the words of `out`, whose length `ptr` has checked; aligned as in
            // `read_word`.
            let read = |at: usize| unsafe { src.add(8 * turn + at).read_volatile() };
            if let [a, b, c, d, e, f, g, h] = words {
                // Written out: the compiler does not do so for volatile reads.
                (*a, *b, *c, *d) = (read(0), read(1), read(2), read(3));
                (*e, *f, *g, *h) = (read(4), read(5), read(6), read(7));
            } else {
                for (at, word) in words.iter_mut().enumerate() {
                    *word = read(at);
                }
            }
        }
        Ok(())
    }

    /// Writes zeros to all of the buffer.
    pub(crate) fn clear(&self) {
        const ZEROS: [u8; 512] = [0; 512];
        for offset in (0..self.len()).step_by(ZEROS.len()) {
            // The length is a multiple of a page: it is within.
            let _ = self.write(offset, &ZEROS);
        }
    }

    /// Reads the byte at `offset`.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the offset is not within the buffer.
    pub(crate) fn read_u8(&self, offset: usize) -> Result<u8> {
        let src = self.ptr(offset, 1).ok_or(EINVAL)?;
        // SAFETY: One byte, in bounds by `ptr`.
        Ok(unsafe { src.read_volatile() })
    }

    /// Writes one byte at `offset`.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the offset is not within the buffer.
    pub(crate) fn write_u8(&self, offset: usize, value: u8) -> Result {
        self.write(offset, &[value])
    }
}
