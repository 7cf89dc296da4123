// SPDX-License-Identifier: GPL-2.0

//! Kernel threads that end when dropped, and that sleep by the clock.
//!
//! C header: `include/linux/kthread.h`. The `kernel` crate has no kernel threads.

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    error::from_err_ptr,
    ffi::{
        c_int,
        c_void, //
    },
    prelude::*,
    static_lock_class,
    types::{
        NotThreadSafe,
        Opaque, //
    },
};

/// What a thread does.
pub(crate) trait Body: Send + Sync {
    /// Runs once, in the thread. It should return soon after [`Me::sleep_until`] says so, because the
    /// drop of the [`Thread`] waits for it; it may return earlier.
    fn run(&self, me: &Me<'_>);
}

/// Which class of the scheduler a thread is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// With all other tasks.
    Normal,
    /// Before them, level with the threads of interrupts: for what must be on time and is short.
    RealTime,
}

/// What a thread sleeps at. Others may keep one when the thread has gone.
#[pin_data]
pub(crate) struct Bell {
    #[pin]
    queue: Opaque<bindings::wait_queue_head_t>,
}

// SAFETY: Wait queues may be used from any thread.
unsafe impl Send for Bell {}

// SAFETY: Wait queues synchronize by themselves.
unsafe impl Sync for Bell {}

impl Bell {
    /// Nobody sleeps at it.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            queue <- Opaque::ffi_init(|slot: *mut bindings::wait_queue_head_t| {
                // SAFETY: `slot` points to memory for a wait queue; name and class live for ever.
                unsafe {
                    bindings::__init_waitqueue_head(
                        slot,
                        c"mlx5_rs_thread".as_char_ptr(),
                        static_lock_class!().as_ptr(),
                    )
                }
            }),
        })
    }

    /// Ends the sleep of who sleeps at it. May be called in any context.
    pub(crate) fn ring(&self) {
        // SAFETY: The wait queue is initialized and pinned.
        unsafe {
            bindings::__wake_up(
                self.queue.get(),
                bindings::TASK_NORMAL,
                1,
                core::ptr::null_mut(),
            )
        };
    }
}

/// A running kernel thread with its body. The drop tells it to stop and waits until it has; one that
/// never came to run never does.
///
/// The body may borrow: it lives here, and the thread has ended before it goes. As everywhere in
/// this folder, who forgets the value instead of dropping it must not end the borrow.
#[pin_data(PinnedDrop)]
pub(crate) struct Thread<B: Body> {
    body: B,
    #[pin]
    bell: Bell,
    // With a reference, so that it can be stopped after its body has returned by itself.
    task: Option<NonNull<bindings::task_struct>>,
}

// SAFETY: A task may be stopped from any other thread, wait queues synchronize by themselves, and
// `B` is `Send`.
unsafe impl<B: Body> Send for Thread<B> {}

// SAFETY: `&Thread` gives access to `&B`, which is `Sync`, and to the wait queue.
unsafe impl<B: Body> Sync for Thread<B> {}

impl<B: Body> Thread<B> {
    /// Starts a thread that `ps` shows as `name`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or `EINTR` when the caller is being killed.
    pub(crate) fn start(name: &CStr, class: Class, body: B) -> Result<Pin<KBox<Self>>> {
        let this = KBox::try_pin_init(
            try_pin_init!(&this in Self {
                body,
                bell <- Bell::new(),
                // SAFETY: `%s` takes exactly the one string that is given. `main` is for a pointer to
                // a `Thread<B>`: `this` is one as soon as the thread runs, which is not before it is
                // woken below.
                task: Some(NonNull::new(from_err_ptr(unsafe {
                    bindings::kthread_create_on_node(
                        Some(Self::main),
                        this.as_ptr().cast(),
                        bindings::NUMA_NO_NODE,
                        c"%s".as_char_ptr(),
                        name.as_char_ptr(),
                    )
                })?).ok_or(ENOMEM)?),
            }? Error),
            GFP_KERNEL,
        )?;
        if let Some(task) = this.task {
            // SAFETY: The task was created above. It cannot end before it is woken, or stopped, which
            // only the drop does; the reference taken here is given back there.
            unsafe {
                bindings::get_task_struct(task.as_ptr());
                if class == Class::RealTime {
                    bindings::sched_set_fifo(task.as_ptr());
                }
                bindings::wake_up_process(task.as_ptr());
            }
        }
        Ok(this)
    }

    /// What the thread runs.
    pub(crate) fn body(&self) -> &B {
        &self.body
    }

    /// Ends a sleep of the thread early. May be called in any context.
    pub(crate) fn wake(&self) {
        self.bell.ring();
    }

    /// # Safety
    ///
    /// Only as the function of a kernel thread whose data point to a pinned `Thread<B>` that outlives
    /// the thread.
    unsafe extern "C" fn main(data: *mut c_void) -> c_int {
        // SAFETY: By the promise above; the drop of the value waits for this thread.
        let this = unsafe { &*data.cast::<Self>() };
        this.body.run(&Me {
            bell: &this.bell,
            _here: PhantomData,
        });
        0
    }
}

#[pinned_drop]
impl<B: Body> PinnedDrop for Thread<B> {
    fn drop(self: Pin<&mut Self>) {
        if let Some(task) = self.task {
            // SAFETY: The task is valid by the reference taken in `start`, which is given back here.
            // Wakes it from any sleep and waits for its end; if its function never ran it never will.
            unsafe { bindings::kthread_stop_put(task.as_ptr()) };
        }
    }
}

/// Why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The time has come.
    Time,
    /// [`Thread::wake`] was called.
    Early,
    /// The thread shall end.
    Stop,
}

/// The running thread, for its body.
pub(crate) struct Me<'a> {
    bell: &'a Bell,
    _here: PhantomData<NotThreadSafe>,
}

impl Me<'_> {
    /// Whether the thread shall end.
    pub(crate) fn should_stop(&self) -> bool {
        // SAFETY: The caller is a kernel thread: `Me` exists in one only, and does not leave it.
        unsafe { bindings::kthread_should_stop() }
    }

    /// Sleeps until [`now_ns`] is `at_ns`, by a high-resolution timer. Does not count as load, and not
    /// as a hung task.
    pub(crate) fn sleep_until(&self, at_ns: i64) -> Woken {
        self.sleep_at(self.bell, at_ns, || false)
    }

    /// Sleeps at `bell` until it is rung, `news` says that there is no need to, or [`now_ns`] is
    /// `at_ns`; [`FOREVER`] needs no timer. `news` must not sleep. What is told before the bell is rung
    /// is seen: either by `news`, or because the sleep ends.
    pub(crate) fn sleep_at(&self, bell: &Bell, at_ns: i64, news: impl Fn() -> bool) -> Woken {
        /// How late the timer may come, in nanoseconds, to be bundled with others.
        const SLACK_NS: u64 = 100_000;

        let mut entry = bindings::wait_queue_entry_t::default();
        let mut expires: bindings::ktime_t = at_ns;
        // SAFETY: The queue is initialized and pinned. `entry` is initialized before it is queued, does
        // not move, and is off the queue after `finish_wait`. The state of the task is set before the
        // conditions are looked at, so that no wake-up is lost: that of `kthread_stop` comes after its
        // flag is set.
        let timed_out = unsafe {
            bindings::init_wait_entry(&raw mut entry, 0);
            bindings::prepare_to_wait(
                bell.queue.get(),
                &raw mut entry,
                bindings::TASK_IDLE as c_int,
            );
            let ret = if bindings::kthread_should_stop() || news() {
                -1
            } else {
                bindings::schedule_hrtimeout_range(
                    // Without a time it sleeps without a timer.
                    if at_ns == FOREVER {
                        core::ptr::null_mut()
                    } else {
                        &raw mut expires
                    },
                    SLACK_NS,
                    bindings::hrtimer_mode_HRTIMER_MODE_ABS,
                )
            };
            bindings::finish_wait(bell.queue.get(), &raw mut entry);
            ret == 0
        };
        if self.should_stop() {
            Woken::Stop
        } else if timed_out || now_ns() >= at_ns {
            Woken::Time
        } else {
            Woken::Early
        }
    }
}

/// A time that does not come.
pub(crate) const FOREVER: i64 = i64::MAX;

/// The monotonic clock in nanoseconds; at least 0.
pub(crate) fn now_ns() -> i64 {
    // SAFETY: May be called in any context but an NMI.
    unsafe { bindings::ktime_get() }
}

#[kunit_tests(mlx5_rs_kapi_kthread)]
mod tests {
    use super::*;
    use kernel::sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    };

    /// Counts what happened to it.
    struct Probe {
        runs: Atomic<u32>,
        wakes: Atomic<u32>,
        ends: Atomic<u32>,
    }

    impl Probe {
        fn new() -> Result<Arc<Self>> {
            Ok(Arc::new(
                Self {
                    runs: Atomic::new(0),
                    wakes: Atomic::new(0),
                    ends: Atomic::new(0),
                },
                GFP_KERNEL,
            )?)
        }
    }

    /// Sleeps for so many nanoseconds at a time until it is stopped; 0: returns at once.
    struct Sleeper {
        probe: Arc<Probe>,
        ns: i64,
    }

    impl Body for Sleeper {
        fn run(&self, me: &Me<'_>) {
            self.probe.runs.add(1, Relaxed);
            let sleep = || me.sleep_until(now_ns().saturating_add(self.ns));
            while self.ns != 0 && sleep() != Woken::Stop {
                self.probe.wakes.add(1, Relaxed);
            }
            self.probe.ends.add(1, Relaxed);
        }
    }

    fn start(probe: &Arc<Probe>, class: Class, ns: i64) -> Result<Pin<KBox<Thread<Sleeper>>>> {
        let probe = probe.clone();
        Thread::start(c"mlx5_rs_test", class, Sleeper { probe, ns })
    }

    fn wait_for(what: impl Fn() -> bool) -> bool {
        for _ in 0..5_000 {
            if what() {
                return true;
            }
            kernel::time::delay::fsleep(kernel::time::Delta::from_millis(1));
        }
        false
    }

    #[test]
    fn a_stop_does_not_wait_for_the_clock() -> Result {
        const HOUR: i64 = 3_600_000_000_000;
        for class in [Class::Normal, Class::RealTime] {
            let probe = Probe::new()?;
            let thread = start(&probe, class, HOUR)?;
            assert!(wait_for(|| probe.runs.load(Relaxed) == 1));
            let begin = now_ns();
            drop(thread);
            assert!(now_ns() - begin < HOUR / 100);
            assert_eq!(probe.ends.load(Relaxed), 1);
            assert_eq!(probe.wakes.load(Relaxed), 0);
        }
        Ok(())
    }

    #[test]
    fn one_that_is_stopped_at_once_is_over() -> Result {
        // It may have run or not; it does not any more.
        for _ in 0..50 {
            let probe = Probe::new()?;
            drop(start(&probe, Class::Normal, 1_000_000)?);
            let (runs, ends) = (probe.runs.load(Relaxed), probe.ends.load(Relaxed));
            assert!(runs <= 1);
            assert_eq!(runs, ends);
            // The body is gone.
            assert!(Arc::into_unique_or_drop(probe).is_some());
        }
        Ok(())
    }

    #[test]
    fn one_that_returned_can_be_stopped() -> Result {
        let probe = Probe::new()?;
        let thread = start(&probe, Class::Normal, 0)?;
        assert!(wait_for(|| probe.ends.load(Relaxed) == 1));
        drop(thread);
        assert!(Arc::into_unique_or_drop(probe).is_some());
        Ok(())
    }

    /// Sleeps at a bell until there is news, which it takes.
    struct Listener {
        probe: Arc<Probe>,
        bell: Arc<Bell>,
        news: Arc<Atomic<bool>>,
    }

    impl Body for Listener {
        fn run(&self, me: &Me<'_>) {
            let news = || self.news.load(Relaxed);
            while me.sleep_at(&self.bell, FOREVER, news) != Woken::Stop {
                self.probe.runs.add(1, Relaxed);
                if self.news.xchg(false, Relaxed) {
                    self.probe.wakes.add(1, Relaxed);
                }
            }
            self.probe.ends.add(1, Relaxed);
        }
    }

    #[test]
    fn no_news_is_lost_and_none_made_up() -> Result {
        let probe = Probe::new()?;
        let bell = Arc::pin_init(Bell::new(), GFP_KERNEL)?;
        let news = Arc::new(Atomic::new(false), GFP_KERNEL)?;
        let body = Listener {
            probe: probe.clone(),
            bell: bell.clone(),
            news: news.clone(),
        };
        let thread = Thread::start(c"mlx5_rs_test", Class::Normal, body)?;
        for n in 1..=200 {
            news.store(true, Relaxed);
            // Once: whether it sleeps, is about to, or has not begun.
            bell.ring();
            assert!(wait_for(|| probe.wakes.load(Relaxed) >= n));
        }
        // Each ring ends one sleep at most, and nothing else does.
        assert!(probe.runs.load(Relaxed) <= 400);
        drop(thread);
        assert_eq!(probe.ends.load(Relaxed), 1);
        // A bell outlives its thread.
        bell.ring();
        Ok(())
    }

    #[test]
    fn sleeps_end_on_time_or_early() -> Result {
        let probe = Probe::new()?;
        let thread = start(&probe, Class::RealTime, 1_000_000)?;
        assert!(wait_for(|| probe.wakes.load(Relaxed) >= 10));
        drop(thread);

        let probe = Probe::new()?;
        let thread = start(&probe, Class::Normal, i64::MAX / 2)?;
        for n in 1..=3 {
            // A wake-up before it sleeps is none: repeat.
            assert!(wait_for(|| {
                thread.wake();
                probe.wakes.load(Relaxed) >= n
            }));
        }
        assert_eq!(thread.body().probe.ends.load(Relaxed), 0);
        drop(thread);
        assert_eq!(probe.ends.load(Relaxed), 1);
        Ok(())
    }
}
