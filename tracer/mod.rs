// SPDX-License-Identifier: GPL-2.0

//! The firmware tracer (hardware.md 4).
//!
//! Lives here: everything from the tracer's registers to its messages. Owns: the tracer, its buffer and
//! memory key. May be called by: device; calls cmdif, eq, mr.
//!
//! ```text
//!   MTRC_CAP -> capability --> rules, buffer size, sections of strings
//!                                |
//!   buffer --> block::Reader --> assembly::Parser --> Message::render --> output
//!                (blocks, gaps)    (events, strings)     (format)      trace event, recent
//!
//!   ownership: when to ask for the tracer    pace: when to read, and how much
//! ```
//!
//! [`drain`] drives reader and parser, the thread in [`engine`] everything, by [`registers`]. All is
//! written for hostile input: memory that changes at any time to anything, strings and numbers of any
//! kind. Nothing panics, loops without a bound, or allocates as much as the device likes.
//!
//! A device without a tracer, and one whose tracer fails, is used without it (M5.9).
//!
//! Pure, and on the host as well: all but [`desk`], [`engine`], [`memory`], [`output`], [`registers`] and
//! [`sentry`].

// The pure files have more for the host's tests.
#[allow(dead_code)]
pub(crate) mod assembly;
#[allow(dead_code)]
pub(crate) mod block;
pub(crate) mod capability;
pub(crate) mod drain;
#[allow(dead_code)]
pub(crate) mod event;
#[allow(dead_code)]
pub(crate) mod format;
pub(crate) mod ownership;
#[allow(dead_code)]
pub(crate) mod pace;
#[allow(dead_code)]
pub(crate) mod recent;
#[allow(dead_code)]
pub(crate) mod strings;
#[allow(dead_code)]
pub(crate) mod timestamp;

mod desk;
mod engine;
mod memory;
mod output;
mod registers;
mod sentry;

use core::fmt;

use kernel::{
    device::Bound,
    new_mutex,
    pci,
    prelude::*,
    str::CString,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use self::{
    block::BufferSize,
    capability::Capability,
    desk::{
        Board,
        Desk, //
    },
    engine::Engine,
    output::{
        Outlet,
        Ring, //
    },
    sentry::Sentry,
};
use crate::{
    cmdif::{
        CommandError,
        Interface, //
    },
    eq::dispatch::{
        Dispatcher,
        Subscription, //
    },
    health::Companion,
    kapi::{
        self,
        debugfs::{
            Dir,
            Files, //
        },
        dma::{
            Dma,
            DmaBuf, //
        },
        kthread::{
            Body,
            Class,
            Me,
            Thread, //
        },
        param::live_params,
        print::Show, //
    },
    layouts::{
        caps::CmdHcaCap,
        EventType, //
    },
    mr::{
        context::Access,
        Mkey,
        Pd, //
    },
};

live_params! {
    /// Whether a device that is brought up has its tracer.
    static tracer: 1, 0..=2, "Firmware tracer of devices bound from now on: 0 none, 1 on, 2 there, to be started in debugfs (1)";
    /// See [`pace`].
    static tracer_cpu_percent: 20, 1..=100, "Most of one CPU that reading firmware's traces takes, in percent (20)";
    /// See [`BufferSize`].
    static tracer_log_pages: 6, 0..=10, "log2 of the 4 KiB pages of the firmware tracer's buffer, for devices bound from now on (6)";
}

/// Whether the function has a tracer, and people want it. The event
/// [`DEVICE_TRACER`](EventType::DEVICE_TRACER) is for those that have.
pub(crate) fn is_there(
    pdev: &pci::Device<Bound>,
    cmd: &Interface<'_>,
    caps: &CmdHcaCap<&[u8; CmdHcaCap::LEN]>,
) -> bool {
    // Only a privileged function has it.
    if tracer.get() == 0 || kapi::pci::is_virtfn(pdev) {
        return false;
    }
    match registers::are_there(cmd, caps) {
        Ok(true) => true,
        Ok(false) => {
            dev_info!(
                pdev,
                "no firmware tracer: MCAM does not have its registers\n"
            );
            false
        }
        Err(error) => {
            dev_warn!(pdev, "no firmware tracer: {}\n", Show(error));
            false
        }
    }
}

/// Why there is no tracer.
enum Cause {
    Command(CommandError),
    Os(Error),
    NotToMemory,
}

impl From<CommandError> for Cause {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl From<Error> for Cause {
    fn from(error: Error) -> Self {
        Self::Os(error)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(error) => error.fmt(f),
            Self::Os(error) => write!(f, "driver error {}", error.to_errno()),
            Self::NotToMemory => write!(f, "it does not trace to memory"),
        }
    }
}

/// The thread.
struct Worker<'a> {
    #[allow(clippy::type_complexity)]
    engine: Pin<KBox<Mutex<Option<KBox<Engine<'a>>>>>>,
}

impl Body for Worker<'_> {
    fn run(&self, me: &Me<'_>) {
        let engine = self.engine.lock().take();
        if let Some(mut engine) = engine {
            engine.run(me);
        }
        // Here key and buffer go.
    }
}

/// The tracer of a device that is up.
///
/// Fields are dropped from top to bottom: people first, then the device's events, then the thread, which
/// gives the tracer back and destroys the key.
pub(crate) struct Tracer<'a> {
    _files: Files<'a>,
    _subscription: Subscription<'a>,
    desk: Arc<Desk>,
    sentry: Arc<Sentry>,
    _thread: Pin<KBox<Thread<Worker<'a>>>>,
}

impl<'a> Tracer<'a> {
    /// Starts the tracer of a device for which [`is_there`] is true. `None`, and a line in the log, if
    /// that fails.
    pub(crate) fn start(
        pdev: &'a pci::Device<Bound>,
        dma: &Dma<'a>,
        cmd: &Arc<Interface<'a>>,
        dispatcher: &Arc<Dispatcher<'a>>,
        debugfs: &Arc<Dir>,
    ) -> Option<Self> {
        match Self::try_start(pdev, dma, cmd, dispatcher, debugfs) {
            Ok(this) => Some(this),
            Err(cause @ Cause::NotToMemory) => {
                dev_info!(pdev, "no firmware tracer: {}\n", Show(cause));
                None
            }
            Err(cause) => {
                dev_warn!(pdev, "no firmware tracer: {}\n", Show(cause));
                None
            }
        }
    }

    fn try_start(
        pdev: &'a pci::Device<Bound>,
        dma: &Dma<'a>,
        cmd: &Arc<Interface<'a>>,
        dispatcher: &Arc<Dispatcher<'a>>,
        debugfs: &Arc<Dir>,
    ) -> Result<Self, Cause> {
        let register = registers::capability(cmd)?;
        let capability = Capability::of(&register);
        if !capability.to_memory {
            return Err(Cause::NotToMemory);
        }
        let (size, memory) = buffer(dma, &capability)?;
        let memory = Arc::new(memory, GFP_KERNEL).map_err(Error::from)?;
        let pd = Pd::new(cmd.clone())?;
        // Direct, with local write, never to be changed or invalidated: what a trace buffer needs (M5.2).
        let mkey = Mkey::direct(pd, memory.clone(), Access::LOCAL_WRITE)?;

        let name = kapi::pci::name(pdev);
        let board = Board::new(size, mkey.key().get(), &register);
        let desk = Desk::new(tracer.get() == 1, board)?;
        let sentry = Sentry::new(desk.clone(), memory)?;
        let ring = Ring::new()?;
        let outlet = Outlet::new(name, ring.clone());
        let share = || tracer_cpu_percent.get();
        let engine = Engine::new(
            pdev.as_ref(),
            cmd.clone(),
            desk.clone(),
            sentry.clone(),
            outlet,
            mkey,
            size,
            register,
            share,
        )?;
        let engine = KBox::pin_init(new_mutex!(Some(engine), "mlx5_rs_engine"), GFP_KERNEL)?;
        let title = CString::try_from_fmt(kernel::prelude::fmt!("mlx5_rs_tracer/{name}"))?;
        let thread = Thread::start(&title, Class::Normal, Worker { engine })?;
        let subscription = dispatcher.subscribe(EventType::DEVICE_TRACER, desk.clone())?;
        let files = Self::files(name, debugfs, &desk, &ring, &sentry)?;
        Ok(Self {
            _files: files,
            _subscription: subscription,
            desk,
            sentry,
            _thread: thread,
        })
    }

    fn files(
        name: &'a CStr,
        debugfs: &Arc<Dir>,
        desk: &Arc<Desk>,
        ring: &Arc<Ring>,
        sentry: &Arc<Sentry>,
    ) -> Result<Files<'a>> {
        let dir = Arc::new(debugfs.child(c"tracer"), GFP_KERNEL)?;
        let mut files = Files::new(dir);
        let shown = ring.clone();
        files.add(c"traces", move |f| shown.show(f, name))?;
        let shown = desk.clone();
        files.add(c"state", move |f| shown.show_state(f))?;
        let (shown, kept, sentry) = (desk.clone(), ring.clone(), sentry.clone());
        files.add(c"counters", move |f| shown.show_counters(f, &kept, &sentry))?;
        let (shown, told) = (desk.clone(), desk.clone());
        files.add_control(
            c"control",
            move |f| {
                let word = if shown.is_wanted() { "start" } else { "stop" };
                writeln!(f, "{word}")
            },
            move |word| match word {
                "start" => {
                    told.want(true);
                    Ok(())
                }
                "stop" => {
                    told.want(false);
                    Ok(())
                }
                "test" => {
                    told.test();
                    Ok(())
                }
                // What there is to write is in the document.
                _ => Err(EINVAL),
            },
        )?;
        Ok(files)
    }

    /// Who looks whether an event was lost, when the watchdog is awake.
    pub(crate) fn companion(&self) -> Arc<dyn Companion + 'a> {
        self.sentry.clone()
    }

    /// Gives the tracer back now, in bounded time: nothing is said to the device for it any more.
    pub(crate) fn end(&self) {
        self.desk.end();
    }
}

/// A buffer of the size that people want, or the largest for which there is memory, but none that the
/// device does not take.
fn buffer(dma: &Dma<'_>, capability: &Capability) -> Result<(BufferSize, DmaBuf)> {
    let wanted = u8::try_from(tracer_log_pages.get()).unwrap_or(0);
    let mut log = BufferSize::new(wanted, capability.log_max_buffer).log_units();
    loop {
        let size = BufferSize::new(log, capability.log_max_buffer);
        match dma.buffer(size.units()) {
            Ok(memory) => return Ok((size, memory)),
            Err(error) if error != ENOMEM || log == 0 => return Err(error),
            Err(_) => log -= 1,
        }
    }
}
