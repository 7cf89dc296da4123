// SPDX-License-Identifier: GPL-2.0

//! MSI-X vectors and threaded handlers that share them.
//!
//! C headers: `include/linux/pci.h`, `include/linux/interrupt.h`. The `kernel` crate's registration
//! borrows its vector allocation; here the allocation is shared by reference count, so that vectors
//! and handlers can live in one structure.

use kernel::{
    bindings,
    device::Bound,
    error::to_result,
    pci,
    prelude::*,
    str::CString,
    sync::Arc, //
};

use super::pci::raw;

/// An allocation of MSI-X vectors, freed on drop.
pub(crate) struct Vectors<'a> {
    pdev: &'a pci::Device<Bound>,
    count: u32,
}

impl<'a> Vectors<'a> {
    /// Allocates between `min` and `max` MSI-X vectors.
    ///
    /// # Errors
    ///
    /// What `pci_alloc_irq_vectors` reports, `ENOSPC` when there are fewer than `min`.
    pub(crate) fn new(pdev: &'a pci::Device<Bound>, min: u32, max: u32) -> Result<Arc<Self>> {
        // SAFETY: `raw` gives a valid, bound device; the call checks the numbers.
        let ret =
            unsafe { bindings::pci_alloc_irq_vectors(raw(pdev), min, max, bindings::PCI_IRQ_MSIX) };
        to_result(ret)?;
        let this = Self {
            pdev,
            count: u32::try_from(ret)?,
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// How many vectors there are.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }
}

impl Drop for Vectors<'_> {
    fn drop(&mut self) {
        // SAFETY: The vectors were allocated in `new`, and every handler holds a reference to `self`,
        // so that none is registered any more.
        unsafe { bindings::pci_free_irq_vectors(raw(self.pdev)) };
    }
}

/// What runs when an interrupt came, in a kernel thread: it may sleep, one call at a time per vector.
pub(crate) trait Handler: Send + Sync {
    /// Handles the interrupt.
    fn handle(&self);
}

/// A handler attached to one vector. The drop waits for a running handler to end.
#[pin_data(PinnedDrop)]
pub(crate) struct ThreadedIrq<'a, H: Handler> {
    irq: u32,
    handler: H,
    // Used by the kernel for as long as the interrupt is requested.
    _name: CString,
    _vectors: Arc<Vectors<'a>>,
    #[pin]
    _pin: core::marker::PhantomPinned,
}

impl<'a, H: Handler> ThreadedIrq<'a, H> {
    /// Attaches `handler` to vector `index`; `name` is what /proc/interrupts shows.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an index beyond the allocation, or what `request_threaded_irq` reports.
    pub(crate) fn new(
        vectors: Arc<Vectors<'a>>,
        index: u32,
        name: CString,
        handler: H,
    ) -> Result<Pin<KBox<Self>>> {
        // SAFETY: The device is valid and has vectors; the call checks the index.
        let irq = unsafe { bindings::pci_irq_vector(raw(vectors.pdev), index) };
        to_result(irq)?;
        let irq = u32::try_from(irq)?;

        let name_ptr = name.as_char_ptr();
        KBox::try_pin_init(
            try_pin_init!(&this in Self {
                irq,
                handler,
                _name: name,
                _vectors: vectors,
                _pin: core::marker::PhantomPinned,
                _: {
                    // SAFETY: All fields are initialized. The cookie stays valid until `free_irq` in
                    // the drop, and `name_ptr` as long as `_name`, which is dropped after it. With no
                    // primary handler the kernel needs IRQF_ONESHOT.
                    to_result(unsafe {
                        bindings::request_threaded_irq(
                            *irq,
                            None,
                            Some(Self::thread),
                            bindings::IRQF_ONESHOT as usize,
                            name_ptr,
                            this.as_ptr().cast(),
                        )
                    })?;
                },
            }? Error),
            GFP_KERNEL,
        )
    }

    /// # Safety
    ///
    /// Only for `request_threaded_irq`, with a pointer to `Self` as the cookie.
    unsafe extern "C" fn thread(
        _irq: kernel::ffi::c_int,
        cookie: *mut kernel::ffi::c_void,
    ) -> bindings::irqreturn_t {
        // SAFETY: The cookie is the pinned `Self`; `free_irq` in its drop waits for this call.
        let this = unsafe { &*cookie.cast::<Self>() };
        this.handler.handle();
        bindings::irqreturn_t(bindings::irqreturn::IRQ_HANDLED.0)
    }
}

#[pinned_drop]
impl<H: Handler> PinnedDrop for ThreadedIrq<'_, H> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: The value is not moved out of.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: `irq` was requested in `new` with this cookie. Waits for a running handler.
        unsafe { bindings::free_irq(this.irq, core::ptr::from_mut(this).cast()) };
    }
}
