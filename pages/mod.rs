// SPDX-License-Identifier: GPL-2.0

//! Firmware pages: host memory that the device works in (hardware.md 2.5).
//!
//! Lives here: giving and taking back pages, by command and by event, and who holds which. Owns:
//! every page given, until the device has returned it or can no longer write (the owner of
//! [`Pages`] drops it after bus mastering is off). May be called by: device; calls cmdif and eq.
//!
//! Pure, and on the host as well: [`plan`].

pub(crate) mod plan;

use core::fmt;

use kernel::{
    device::{
        Bound,
        Device, //
    },
    new_mutex,
    new_spinlock,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    static_lock_class,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex,
        SpinLock, //
    },
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use self::plan::{
    BadReturn,
    Demand, //
};
use crate::{
    cmdif::{
        command::QueryPages,
        os,
        slots::Class,
        CommandError,
        CommandId,
        Fault,
        Interface, //
    },
    eq::{
        dispatch::{
            Dispatcher,
            Subscriber,
            Subscription, //
        },
        eqe::Event, //
    },
    kapi::{
        dma::{
            DevicePage,
            Dma,
            DEVICE_PAGE, //
        },
        print::{
            Show,
            Throttle, //
        },
        workqueue::{
            Job,
            Worker, //
        }, //
    },
    layouts::{
        commands::{
            ManagePagesIn,
            ManagePagesOut, //
        },
        EventType,
        Opcode, //
    },
};

/// A function that pages are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Function {
    /// It is one of the embedded CPU.
    embedded_cpu: bool,
    /// Function id.
    id: u16,
}

impl Function {
    /// Whether it is not the physical one.
    fn is_virtual(self) -> bool {
        self.id != 0
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.embedded_cpu {
            "ec function"
        } else {
            "function"
        };
        write!(f, "{kind} {}", self.id)
    }
}

/// A page by its function and address.
type Key = (Function, u64);

struct Held {
    pages: RBTree<Key, DevicePage>,
    count: u32,
    /// Those of virtual functions among them.
    of_virtual: u32,
}

/// How many requests of the device may wait; more are counted and forgotten.
const MAX_WAITING: usize = 64;

#[derive(Clone, Copy)]
struct Request {
    function: Function,
    demand: Demand,
}

struct Waiting {
    // A ring: `len` requests from `first`.
    requests: [Option<Request>; MAX_WAITING],
    first: usize,
    len: usize,
}

impl Waiting {
    fn push(&mut self, request: Request) -> bool {
        if self.len == MAX_WAITING {
            return false;
        }
        let at = (self.first + self.len) % MAX_WAITING;
        if let Some(place) = self.requests.get_mut(at) {
            *place = Some(request);
            self.len += 1;
        }
        true
    }

    fn pop(&mut self) -> Option<Request> {
        if self.len == 0 {
            return None;
        }
        let request = self.requests.get_mut(self.first).and_then(Option::take);
        self.first = (self.first + 1) % MAX_WAITING;
        self.len -= 1;
        request
    }
}

#[derive(Default)]
struct Counters {
    given: u64,
    returned: u64,
    released: u64,
    refused: u64,
    lost_requests: u64,
}

/// All pages of a device.
#[pin_data(PinnedDrop)]
pub(crate) struct Pages<'a> {
    dev: &'a Device<Bound>,
    dma: Dma<'a>,
    cmd: Arc<Interface<'a>>,
    #[pin]
    held: Mutex<Held>,
    #[pin]
    waiting: SpinLock<Waiting>,
    #[pin]
    counters: SpinLock<Counters>,
    bad_returns: Throttle,
    /// Requests by event that were not met.
    failures: Throttle,
    /// How long taking all pages back may go on without a page coming, in ms.
    reclaim_ms: Atomic<u32>,
    /// The same for those of virtual functions, which firmware gives back by itself.
    reclaim_virtual_ms: Atomic<u32>,
}

/// How many times as long as without any progress taking pages back may go on in all.
const RECLAIM_TIMES: i64 = 12;

/// How long taking pages back may make no progress (hardware.md 2.2, RECLAIM_PAGES).
const RECLAIM_MS: u32 = 5_000;

/// How long no page of a virtual function may come back (hardware.md 2.2, RECLAIM_VFS_PAGES).
const RECLAIM_VIRTUAL_MS: u32 = 120_000;

impl<'a> Pages<'a> {
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(dma: Dma<'a>, cmd: Arc<Interface<'a>>) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                dev: dma.dev(),
                dma,
                cmd,
                held <- new_mutex!(Held { pages: RBTree::new(), count: 0, of_virtual: 0 }, "mlx5_rs_pages"),
                waiting <- new_spinlock!(
                    Waiting { requests: [None; MAX_WAITING], first: 0, len: 0 },
                    "mlx5_rs_page_requests"
                ),
                counters <- new_spinlock!(Counters::default(), "mlx5_rs_page_counters"),
                bad_returns: Throttle::new(),
                failures: Throttle::new(),
                reclaim_ms: Atomic::new(RECLAIM_MS),
                reclaim_virtual_ms: Atomic::new(RECLAIM_VIRTUAL_MS),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Pages that the device holds.
    pub(crate) fn count(&self) -> u32 {
        self.held.lock().count
    }

    /// Sets how long taking pages back may make no progress, in milliseconds.
    pub(crate) fn set_reclaim_ms(&self, ms: u32) {
        self.reclaim_ms.store(ms, Relaxed);
    }

    /// Sets how long no page of a virtual function may come back, in milliseconds.
    pub(crate) fn set_reclaim_virtual_ms(&self, ms: u32) {
        self.reclaim_virtual_ms.store(ms, Relaxed);
    }

    /// Asks how many pages firmware needs at this point of bring-up and gives them; `op_mod` is one
    /// of [`QueryPagesIn`](crate::layouts::commands::QueryPagesIn)'s.
    ///
    /// # Errors
    ///
    /// [`CommandError`] of QUERY_PAGES or MANAGE_PAGES.
    pub(crate) fn satisfy(&self, op_mod: u16, embedded_cpu: bool) -> Result<(), CommandError> {
        let reply = self.cmd.exec::<QueryPages>(op_mod, |input| {
            input.set_embedded_cpu_function(embedded_cpu);
        })?;
        let function = Function {
            embedded_cpu,
            id: reply.function_id(),
        };
        match Demand::from_query(reply.num_pages()) {
            Demand::Give(n) => self.give(function, n),
            _ => Ok(()),
        }
    }

    fn held_by(&self, function: Function) -> u32 {
        let held = self.held.lock();
        let mine = held.pages.keys().filter(|(f, _)| *f == function);
        u32::try_from(mine.count()).unwrap_or(u32::MAX)
    }

    fn manage_id(op_mod: u16) -> CommandId {
        CommandId {
            opcode: Opcode::MANAGE_PAGES,
            op_mod,
            uid: 0,
        }
    }

    /// Gives `n` pages to a function.
    ///
    /// # Errors
    ///
    /// [`CommandError`] of MANAGE_PAGES, also when the driver has no memory or refuses the number;
    /// what was given before stays.
    fn give(&self, function: Function, n: u32) -> Result<(), CommandError> {
        let held = self.held_by(function);
        if !plan::may_give(held, n) {
            self.counters.lock().refused += u64::from(n);
            return Err(CommandError {
                id: Self::manage_id(ManagePagesIn::GIVE),
                fault: Fault::Refused {
                    value: u64::from(held) + u64::from(n),
                    max: plan::MAX_PAGES_PER_FUNCTION.into(),
                },
            });
        }
        for batch in plan::batches(n) {
            self.give_batch(function, batch)?;
        }
        Ok(())
    }

    fn give_batch(&self, function: Function, batch: u32) -> Result<(), CommandError> {
        let id = Self::manage_id(ManagePagesIn::GIVE);
        let fail = |error| CommandError {
            id,
            fault: os(error),
        };
        let fresh = self.allocate(function, batch).map_err(fail)?;
        let mut input = Self::request(function, batch, batch).map_err(fail)?;
        let mut addrs = KVec::with_capacity(fresh.len(), GFP_KERNEL).map_err(|_| fail(ENOMEM))?;
        // From the doorbell on they are the device's.
        {
            let mut held = self.held.lock();
            for (i, (addr, node)) in fresh.into_iter().enumerate() {
                // Neither can fail: both were made for `batch` pages.
                let _ = ManagePagesIn::PAS.set(&mut input, i, addr);
                let _ = addrs.push_within_capacity(addr);
                held.pages.insert(node);
                held.count += 1;
                held.of_virtual += u32::from(function.is_virtual());
            }
        }
        let mut output = ManagePagesOut::new();
        let result = self
            .cmd
            .exec_raw(id, Class::Pages, &mut input, output.as_bytes_mut());
        match &result {
            Ok(()) => self.counters.lock().given += u64::from(batch),
            Err(error) if error.fault.leaves_device_busy() => {}
            Err(_) => {
                for addr in &addrs {
                    self.remove(function, *addr);
                }
            }
        }
        result
    }

    /// Allocates pages for a function, each with the node that will keep it.
    fn allocate(
        &self,
        function: Function,
        n: u32,
    ) -> Result<KVec<(u64, RBTreeNode<Key, DevicePage>)>> {
        let mut fresh = KVec::with_capacity(n as usize, GFP_KERNEL)?;
        // Firmware never takes address 0: such a page is kept while another is allocated.
        let mut page_0 = None;
        while fresh.len() < n as usize {
            let page = self.dma.page()?;
            let addr = page.addr();
            if addr == 0 {
                page_0 = Some(page);
                continue;
            }
            let node = RBTreeNode::new((function, addr), page, GFP_KERNEL)?;
            fresh.push((addr, node), GFP_KERNEL)?;
        }
        drop(page_0);
        Ok(fresh)
    }

    /// A MANAGE_PAGES request for `entries` pages with room for `addrs` addresses.
    fn request(function: Function, entries: u32, addrs: u32) -> Result<KVec<u8>> {
        let len = ManagePagesIn::PAS.len_with(addrs as usize).ok_or(EINVAL)?;
        let mut input = KVec::from_elem(0, len, GFP_KERNEL)?;
        ManagePagesIn::of_mut(&mut input)
            .ok_or(EINVAL)?
            .set_embedded_cpu_function(function.embedded_cpu)
            .set_function_id(function.id)
            .set_input_num_entries(entries);
        Ok(input)
    }

    /// Forgets a page, which frees it. `false` if the function does not hold it.
    fn remove(&self, function: Function, addr: u64) -> bool {
        let page = {
            let mut held = self.held.lock();
            let page = held.pages.remove(&(function, addr));
            if page.is_some() {
                held.count -= 1;
                held.of_virtual -= u32::from(function.is_virtual());
            }
            page
        };
        page.is_some()
    }

    /// Takes up to `n` pages back from a function; gives how many came.
    ///
    /// # Errors
    ///
    /// [`CommandError`] of MANAGE_PAGES.
    fn take(&self, function: Function, n: u32) -> Result<u32, CommandError> {
        let mut total = 0;
        for batch in plan::batches(n) {
            let got = self.take_batch(function, batch)?;
            total += got;
            if got < batch {
                break;
            }
        }
        Ok(total)
    }

    fn take_batch(&self, function: Function, batch: u32) -> Result<u32, CommandError> {
        let id = Self::manage_id(ManagePagesIn::TAKE);
        let fail = |error| CommandError {
            id,
            fault: os(error),
        };
        let mut input = Self::request(function, batch, 0).map_err(fail)?;
        let len = ManagePagesOut::PAS
            .len_with(batch as usize)
            .ok_or_else(|| fail(EINVAL))?;
        let mut output = KVec::from_elem(0, len, GFP_KERNEL).map_err(|_| fail(ENOMEM))?;
        self.cmd
            .exec_raw(id, Class::Pages, &mut input, &mut output)?;
        let claimed = ManagePagesOut::of(&output).map_or(0, |reply| reply.output_num_entries());
        let n = match plan::check_count(batch, claimed) {
            Ok(n) => n,
            Err(bad) => {
                self.bad_return(function, bad);
                batch
            }
        };
        let mut got = 0;
        for addr in ManagePagesOut::PAS.iter(&output).take(n as usize) {
            if self.remove(function, addr) {
                got += 1;
            } else {
                self.bad_return(function, BadReturn::NotHeld { addr });
            }
        }
        self.counters.lock().returned += u64::from(got);
        Ok(got)
    }

    /// The device returned what it does not have: counted, never obeyed.
    fn bad_return(&self, function: Function, bad: BadReturn) {
        if let Some(n) = self.bad_returns.hit() {
            dev_err!(
                self.dev,
                "{}: {} ({n} such so far)\n",
                Show(function),
                Show(bad)
            );
        }
    }

    /// Frees all pages of a function without a command: the device is done with them.
    fn release_all(&self, function: Function) {
        let mut freed = 0_u64;
        loop {
            let addr = {
                let held = self.held.lock();
                let cursor = held.pages.cursor_lower_bound(&(function, 0));
                match cursor.map(|c| *c.current().0) {
                    Some((f, addr)) if f == function => addr,
                    _ => break,
                }
            };
            self.remove(function, addr);
            freed += 1;
        }
        self.counters.lock().released += freed;
    }

    /// Takes back all pages of all functions, after TEARDOWN_HCA or on the way out of a failed
    /// bring-up. Ends when none is left, a command fails, no page came for a while, or they come so
    /// slowly that it would not end.
    pub(crate) fn reclaim_all(&self) {
        let start: Instant<Monotonic> = Instant::now();
        let patience = i64::from(self.reclaim_ms.load(Relaxed));
        let mut last_progress = 0;
        loop {
            let first = {
                let held = self.held.lock();
                let first = held.pages.keys().next().map(|(function, _)| *function);
                first
            };
            let Some(function) = first else {
                return;
            };
            if start.elapsed().as_millis() > patience * RECLAIM_TIMES {
                dev_err!(
                    self.dev,
                    "teardown: firmware returns its pages too slowly, {} are left\n",
                    self.count()
                );
                return;
            }
            match self.take_batch(function, self.count().min(plan::BATCH)) {
                Ok(0) => {
                    if start.elapsed().as_millis() - last_progress > patience {
                        dev_err!(
                            self.dev,
                            "teardown: firmware returned no page for {patience} ms, {} are left\n",
                            self.count()
                        );
                        return;
                    }
                    fsleep(Delta::from_millis(2));
                }
                Ok(_) => last_progress = start.elapsed().as_millis(),
                Err(error) => {
                    self.cmd.report_teardown(&error);
                    return;
                }
            }
        }
    }

    /// Waits until firmware has given back, by events, what the virtual functions had that were disabled.
    /// Ends when nothing is left, no page came for a while, or the interface is down. What is left then
    /// is taken back with all pages.
    pub(crate) fn await_virtual(&self) {
        let patience = if self.cmd.is_open() {
            &self.reclaim_virtual_ms
        } else {
            &self.reclaim_ms
        };
        let patience = i64::from(patience.load(Relaxed));
        let mut least = u32::MAX;
        let first: Instant<Monotonic> = Instant::now();
        let mut start = first;
        loop {
            let late = start.elapsed().as_millis() > patience
                || first.elapsed().as_millis() > patience * RECLAIM_TIMES;
            let left = self.held.lock().of_virtual;
            match left {
                0 => return,
                left if late => {
                    dev_warn!(
                        self.dev,
                        "firmware returned no page of virtual functions for {patience} ms, {left} are left\n"
                    );
                    return;
                }
                left if left < least => {
                    least = left;
                    start = Instant::now();
                }
                _ => {}
            }
            if self.cmd.is_down() {
                return;
            }
            fsleep(Delta::from_millis(5));
        }
    }

    /// Tells firmware that it does not get the pages it asked for.
    fn cannot_give(&self, function: Function) {
        let id = Self::manage_id(ManagePagesIn::CANNOT_GIVE);
        let result = Self::request(function, 0, 0)
            .map_err(|error| CommandError {
                id,
                fault: os(error),
            })
            .and_then(|mut input| {
                let mut output = ManagePagesOut::new();
                self.cmd
                    .exec_raw(id, Class::Pages, &mut input, output.as_bytes_mut())
            });
        if let Err(error) = result {
            dev_warn!(self.dev, "{}\n", Show(error));
        }
    }

    /// Does what an event asked for.
    fn serve(&self, Request { function, demand }: Request) {
        let (result, n, what) = match demand {
            Demand::None => return,
            Demand::ReleaseAll => return self.release_all(function),
            Demand::Give(n) => (self.give(function, n), n, "given"),
            Demand::Take(n) => {
                let n = n.min(self.held_by(function));
                (self.take(function, n).map(|_| ()), n, "taken back")
            }
        };
        let Err(error) = result else {
            return;
        };
        if let Some(times) = self.failures.hit() {
            dev_warn!(
                self.dev,
                "{}: {n} pages could not be {what}: {} ({times} such so far)\n",
                Show(function),
                Show(error)
            );
        }
        // With the device down, or unsure what it has, there is nothing to tell.
        if matches!(
            (demand, error.fault),
            (Demand::Give(_), Fault::Os(_) | Fault::Refused { .. })
        ) {
            self.cannot_give(function);
        }
    }

    /// Prints who holds how many, and what happened so far.
    pub(crate) fn show(&self, f: &mut kernel::fmt::Formatter<'_>) -> fmt::Result {
        {
            let held = self.held.lock();
            writeln!(f, "held {}", held.count)?;
            let mut keys = held.pages.keys().peekable();
            while let Some((function, _)) = keys.next() {
                let mut n = 1;
                while keys.next_if(|(other, _)| other == function).is_some() {
                    n += 1;
                }
                writeln!(f, "{function} holds {n}")?;
            }
        }
        let counters = self.counters.lock();
        writeln!(f, "given {}", counters.given)?;
        writeln!(f, "returned {}", counters.returned)?;
        writeln!(f, "released {}", counters.released)?;
        writeln!(f, "refused {}", counters.refused)?;
        writeln!(f, "bad_returns {}", self.bad_returns.count())?;
        writeln!(f, "failed_requests {}", self.failures.count())?;
        writeln!(f, "lost_requests {}", counters.lost_requests)
    }
}

#[pinned_drop]
impl PinnedDrop for Pages<'_> {
    fn drop(self: Pin<&mut Self>) {
        let left = self.count();
        if left != 0 && self.dma.is_lost() {
            dev_err!(
                self.dev,
                "{left} pages of {} KiB in all are never freed: the device may still write to them\n",
                u64::from(left) * (DEVICE_PAGE as u64 / 1024)
            );
        } else if left != 0 {
            dev_warn!(
                self.dev,
                "{left} pages that firmware did not return are freed, now that it cannot write\n"
            );
        }
    }
}

/// Serves the requests that events left, in process context.
struct Service<'a>(Arc<Pages<'a>>);

impl Job for Service<'_> {
    fn run(&self) {
        loop {
            let request = self.0.waiting.lock().pop();
            match request {
                Some(request) => self.0.serve(request),
                None => break,
            }
        }
    }
}

/// Hears page requests.
struct Requests<'a> {
    pages: Arc<Pages<'a>>,
    worker: Pin<KBox<Worker<Service<'a>>>>,
}

impl Subscriber for Requests<'_> {
    fn event(&self, event: &Event) {
        let Event::PageRequest {
            function,
            embedded_cpu,
            release_all,
            num_pages,
        } = *event
        else {
            return;
        };
        let request = Request {
            function: Function {
                embedded_cpu,
                id: function,
            },
            demand: Demand::from_event(num_pages, release_all),
        };
        if !self.pages.waiting.lock().push(request) {
            self.pages.counters.lock().lost_requests += 1;
        }
        self.worker.kick();
    }
}

/// Serves page request events from now on, until dropped.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn serve_events<'a>(
    pages: &Arc<Pages<'a>>,
    dispatcher: &Arc<Dispatcher<'a>>,
) -> Result<Subscription<'a>> {
    let worker = Worker::new(
        c"mlx5_rs_pages",
        static_lock_class!(),
        Service(pages.clone()),
    )?;
    let requests = Requests {
        pages: pages.clone(),
        worker,
    };
    dispatcher.subscribe(EventType::PAGE_REQUEST, Arc::new(requests, GFP_KERNEL)?)
}
