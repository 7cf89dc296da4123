// SPDX-License-Identifier: GPL-2.0

//! Memory that the device reads and writes while we hold it.
//!
//! [`DmaBuf`] gives access by copies only. No reference into the memory is ever made, so that what
//! the device writes at the same time can be stale or torn, but never undefined behaviour. Each
//! access reads its bytes once.

use kernel::{
    device,
    dma::Coherent,
    prelude::*, //
};

/// The size and alignment of a page of the device, in bytes (hardware.md 2.5: always 4 KiB).
pub(crate) const DEVICE_PAGE: usize = 4096;

/// Coherent DMA memory, zeroed when made, aligned to [`DEVICE_PAGE`].
pub(crate) struct DmaBuf {
    mem: Coherent<[u8]>,
}

impl DmaBuf {
    /// Allocates `pages` contiguous device pages.
    ///
    /// # Errors
    ///
    /// `EINVAL` for 0 pages, `ENOMEM` when there is no memory, and `EIO` when the DMA layer gives an
    /// address that the device cannot take (0, or not aligned).
    pub(crate) fn new(dev: &device::Device<device::Bound>, pages: usize) -> Result<Self> {
        let len = pages.checked_mul(DEVICE_PAGE).ok_or(EINVAL)?;
        let mem: Coherent<[u8]> = Coherent::zeroed_slice(dev, len, GFP_KERNEL | __GFP_NOWARN)?;
        let addr = mem.dma_address();
        if addr == 0 || addr % (DEVICE_PAGE as u64) != 0 {
            return Err(EIO);
        }
        Ok(Self { mem })
    }

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
