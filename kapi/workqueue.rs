// SPDX-License-Identifier: GPL-2.0

//! A work item with a queue of its own, gone for sure when dropped.
//!
//! C header: `include/linux/workqueue.h`. The `kernel` crate's work items hold a reference count and
//! may outlive their device; this one is cancelled in the drop, so that it may borrow.

use kernel::{
    bindings,
    prelude::*,
    sync::{
        Arc,
        LockClassKey, //
    },
    types::Opaque, //
};

/// What the worker runs.
pub(crate) trait Job: Send + Sync {
    /// One run; called again when [`Worker::kick`] came in the meantime.
    fn run(&self);
}

/// A job that runs on its own ordered queue whenever it is kicked.
#[pin_data(PinnedDrop)]
pub(crate) struct Worker<J: Job> {
    job: J,
    queue: core::ptr::NonNull<bindings::workqueue_struct>,
    #[pin]
    work: Opaque<bindings::work_struct>,
}

// SAFETY: Work items and queues may be used from any thread, and `J` is `Send`.
unsafe impl<J: Job> Send for Worker<J> {}

// SAFETY: Work items and queues synchronize by themselves, and `J` is `Sync`.
unsafe impl<J: Job> Sync for Worker<J> {}

impl<J: Job> Worker<J> {
    /// Creates the queue `name` (without a `%`) for `job`. Each kind of job has a `class` of its own: one
    /// may wait for the end of another.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        name: &'static CStr,
        class: Pin<&'static LockClassKey>,
        job: J,
    ) -> Result<Pin<KBox<Self>>> {
        KBox::try_pin_init(Self::init(name, class, job), GFP_KERNEL)
    }

    /// The same for several owners. The last of them is not the job itself: it would wait for itself.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn shared(
        name: &'static CStr,
        class: Pin<&'static LockClassKey>,
        job: J,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(Self::init(name, class, job), GFP_KERNEL)
    }

    fn init(
        name: &'static CStr,
        class: Pin<&'static LockClassKey>,
        job: J,
    ) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            job,
            queue: {
                let flags = bindings::wq_flags_WQ_UNBOUND
                    | bindings::wq_flags___WQ_ORDERED
                    | bindings::wq_flags_WQ_MEM_RECLAIM;
                // SAFETY: `%s` takes exactly the one string that is given.
                let queue = unsafe {
                    bindings::alloc_workqueue_noprof(
                        c"%s".as_char_ptr(),
                        flags,
                        1,
                        name.as_char_ptr(),
                    )
                };
                // Nothing after this can fail.
                core::ptr::NonNull::new(queue).ok_or(ENOMEM)?
            },
            work <- Opaque::ffi_init(|slot: *mut bindings::work_struct| {
                // SAFETY: `slot` points to memory for a `struct work_struct`, and `Self::thread`
                // expects a work item that is embedded like this one.
                unsafe {
                    bindings::init_work_with_key(
                        slot,
                        Some(Self::thread),
                        false,
                        c"mlx5_rs_work".as_char_ptr(),
                        class.as_ptr(),
                    )
                }
            }),
        }? Error)
    }

    /// Makes the job run soon, in process context. May be called in any context, also by the job.
    pub(crate) fn kick(&self) {
        // SAFETY: Queue and work item are initialized and valid until the drop.
        unsafe {
            bindings::queue_work_on(
                bindings::wq_misc_consts_WORK_CPU_UNBOUND as kernel::ffi::c_int,
                self.queue.as_ptr(),
                self.work.get(),
            )
        };
    }

    /// # Safety
    ///
    /// Only as the function of the work item within a `Worker<J>`.
    unsafe extern "C" fn thread(work: *mut bindings::work_struct) {
        // SAFETY: The work item is the `work` field of a pinned `Worker`, whose drop waits for it.
        let this = unsafe { &*kernel::container_of!(Opaque::cast_from(work), Self, work) };
        this.job.run();
    }
}

#[pinned_drop]
impl<J: Job> PinnedDrop for Worker<J> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Both are initialized. After the cancel the job neither runs nor is queued: nobody
        // can kick it any more, because that takes a reference to `self`.
        unsafe {
            bindings::cancel_work_sync(self.work.get());
            bindings::destroy_workqueue(self.queue.as_ptr());
        }
    }
}
