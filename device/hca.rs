// SPDX-License-Identifier: GPL-2.0

//! From a bound function to a device that is ready, and back (hardware.md 2.3, 2.4).
//!
//! Each step of bring-up gives a guard whose drop is the step's reverse, so that a failed bring-up
//! and an unbind go the same way down.

use core::fmt;

use kernel::{
    cpu::nr_cpu_ids,
    device::Bound,
    pci,
    prelude::*,
    str::CString,
    sync::Arc, //
};

use super::guards::{
    EnabledHca,
    InitializedHca,
    PagesGuard,
    Uar, //
};
use super::recovery::Timeouts;
use crate::{
    caps::Caps,
    cmdif::{
        self,
        command::{
            AllocPd,
            DeallocPd,
            QueryAdapter,
            QueryIssi,
            SetDriverVersion,
            SetIssi,
            TeardownHca, //
        },
        register::Access,
        uctx::{
            Support,
            Uctx,
            SHARED_UID, //
        },
        CommandError,
        Fault,
        Interface, //
    },
    eq::{
        self,
        dispatch::Subscription,
        mask,
        Attached,
        CommandEvents,
        Maker,
        Spec,
        Vector, //
    },
    health::{
        self,
        Alarm,
        Health,
        Watchdog, //
    },
    kapi::{
        self,
        dma::Dma,
        irq::Vectors,
        print::Show, //
    },
    layouts::{
        commands::{
            QueryPagesIn,
            TeardownHcaIn, //
        },
        own::{
            HostEndianness,
            RegisterId, //
        },
        registers::DtorReg,
        EventType,
        Status, //
    },
    pages::{
        self,
        Pages, //
    },
    segment::{
        decode::{
            Firmware,
            CMD_INTERFACE_REV, //
        },
        NotReady,
        Segment, //
    },
    sriov::Vfs,
    tracer::{
        self,
        Tracer, //
    },
};

/// What the module's parameters and the table of ids say.
pub(crate) struct Params {
    /// Name of the adapter.
    pub(crate) adapter: &'static str,
    /// Command timeout in ms; 0: the device's.
    pub(crate) cmd_timeout_ms: u32,
    /// How long firmware may take to become ready, in ms.
    pub(crate) init_timeout_ms: u32,
    /// Completion event queues; 0: as many as there are CPUs.
    pub(crate) comp_eqs: u32,
}

/// log2 of the entries of each kind of queue: what one needs at once, and [`eq::ring::BUDGET`] more.
const LOG_COMMAND_EQ: u8 = 8;
const LOG_ASYNC_EQ: u8 = 12;
const LOG_PAGES_EQ: u8 = 8;
const LOG_COMPLETION_EQ: u8 = 11;

/// How long the NIC interface may take to become disabled (hardware.md 2.2, TEARDOWN).
const FAST_TEARDOWN_MS: u32 = 3_000;

/// ISSI that this driver speaks, besides 0.
const ISSI: u16 = 1;

/// Most completion event queues.
const MAX_COMPLETION_EQS: u32 = 64;

/// A device that is ready.
///
/// Fields are dropped from top to bottom: the reverse of bring-up.
pub(crate) struct Hca<'a> {
    _debugfs: kapi::debugfs::Files<'a>,
    tracer: Option<Tracer<'a>>,
    // Needs the pages EQ: pages come back by events.
    vfs: Arc<Vfs<'a>>,
    _completion_eqs: KVec<Attached<'a>>,
    _pages_eq: Attached<'a>,
    _page_requests: Subscription<'a>,
    _async_eq: Attached<'a>,
    _command_events: CommandEvents<'a>,
    _vectors: KVec<Vector<'a>>,
    _uar: Uar<'a>,
    _initialized: InitializedHca<'a>,
    _pages: PagesGuard<'a>,
    watchdog: Watchdog<'a>,
    _enabled: EnabledHca<'a>,
    // Everything below may hold memory that the device could write to until here.
    _master: kapi::pci::BusMaster<'a>,
    _held_pages: Arc<Pages<'a>>,
    cmd: Arc<Interface<'a>>,
    segment: Arc<Segment<'a>>,
    _pci: kapi::pci::Enabled<'a>,
    has_fast_teardown: bool,
    has_force_teardown: bool,
    info: Info,
    timeouts: Timeouts,
}

/// Why bring-up failed.
enum Cause {
    Command(CommandError),
    Os(Error),
    NotReady(NotReady),
    Revision(u16),
    QueueShape { log_size: u8, log_stride: u8 },
    Issi(u32),
    Uar(u32),
}

impl Cause {
    fn error(&self) -> Error {
        match self {
            Self::Command(error) => Error::from_errno(error.errno()),
            Self::Os(error) => *error,
            Self::NotReady(NotReady::StillInitializing(_)) => ETIMEDOUT,
            Self::NotReady(NotReady::Gone) => ENODEV,
            Self::NotReady(NotReady::GivenUp) => EBUSY,
            Self::Revision(_) | Self::QueueShape { .. } | Self::Uar(_) => EINVAL,
            Self::Issi(_) => EOPNOTSUPP,
        }
    }
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

impl From<kernel::alloc::AllocError> for Cause {
    fn from(_: kernel::alloc::AllocError) -> Self {
        Self::Os(ENOMEM)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(error) => error.fmt(f),
            Self::Os(_) => write!(f, "driver error"),
            Self::NotReady(NotReady::StillInitializing(ms)) => {
                write!(f, "firmware is still initializing after {ms} ms")
            }
            Self::NotReady(NotReady::Gone) => {
                write!(f, "the device does not answer, every read is all ones")
            }
            Self::NotReady(NotReady::GivenUp) => write!(f, "somebody else wants the device"),
            Self::Revision(found) => write!(
                f,
                "command interface revision {found}, expected {CMD_INTERFACE_REV}"
            ),
            Self::QueueShape {
                log_size,
                log_stride,
            } => write!(
                f,
                "command queue with log_cmdq_size {log_size} and log_cmdq_stride {log_stride}, \
                 expected 1 to 5, at least 6, and at most 12 together"
            ),
            Self::Issi(supported) => {
                write!(f, "supported_issi {supported:#x}, expected bit 0 or 1")
            }
            Self::Uar(uar) => write!(f, "UAR page {uar:#x} is not in BAR 0"),
        }
    }
}

/// A step that failed.
struct Failure {
    step: &'static str,
    cause: Cause,
}

/// Names the step that an error belongs to.
trait Step<T> {
    fn step(self, step: &'static str) -> Result<T, Failure>;
}

impl<T, E: Into<Cause>> Step<T> for Result<T, E> {
    fn step(self, step: &'static str) -> Result<T, Failure> {
        self.map_err(|e| Failure {
            step,
            cause: e.into(),
        })
    }
}

/// What a device says of itself.
#[derive(Clone, Copy)]
pub(crate) struct Info {
    /// Name of the adapter.
    pub(crate) adapter: &'static str,
    /// PCI vendor and device id.
    pub(crate) vendor: u16,
    /// See `vendor`.
    pub(crate) device: u16,
    /// Versions.
    pub(crate) firmware: Firmware,
    /// The interface in use.
    pub(crate) issi: u16,
    /// It is the function of the embedded CPU.
    pub(crate) embedded_cpu: bool,
    board_id: [u8; 16],
}

impl Info {
    /// The board's id (PSID); a question mark if the device says nonsense.
    pub(crate) fn board_id(&self) -> &str {
        let text = self.board_id.split(|b| *b == 0).next().unwrap_or(&[]);
        // The device says what it likes.
        if text.iter().all(u8::is_ascii_graphic) {
            core::str::from_utf8(text).unwrap_or("?")
        } else {
            "?"
        }
    }
}

impl<'a> Hca<'a> {
    /// Brings the device up. A failure leaves it as it was, and a line in the log.
    ///
    /// # Errors
    ///
    /// The errno of the step that failed.
    pub(crate) fn bring_up(
        pdev: &'a pci::Device<Bound>,
        params: &Params,
        debugfs: &Arc<kapi::debugfs::Dir>,
        health: &Arc<Health>,
        alarm: Arc<dyn Alarm + 'a>,
    ) -> Result<Self> {
        Self::steps(pdev, params, debugfs, health, alarm).map_err(|Failure { step, cause }| {
            let error = cause.error();
            dev_err!(
                pdev,
                "bring-up failed at {step}: {}, error {}\n",
                Show(cause),
                error.to_errno()
            );
            error
        })
    }

    fn steps(
        pdev: &'a pci::Device<Bound>,
        params: &Params,
        debugfs: &Arc<kapi::debugfs::Dir>,
        health: &Arc<Health>,
        alarm: Arc<dyn Alarm + 'a>,
    ) -> Result<Self, Failure> {
        // Locals are dropped in reverse order when a step fails.
        let pci = kapi::pci::Enabled::new(pdev).step("PCI enable")?;
        let dma = Dma::new(pdev.as_ref()).step("PCI enable")?;
        let segment = Segment::new(pdev).step("BAR 0")?;
        let segment = Arc::new(segment, GFP_KERNEL).step("BAR 0")?;

        segment
            .wait_ready(params.init_timeout_ms, || alarm.gives_way())
            .map_err(Cause::NotReady)
            .step("wait for firmware")?;
        let firmware = segment.firmware();
        if firmware.cmd_interface_rev != CMD_INTERFACE_REV {
            return Err(Cause::Revision(firmware.cmd_interface_rev)).step("interface revision");
        }
        health::report_left_over(pdev.as_ref(), &segment, health);

        let shape = segment.queue_shape();
        let checked = shape
            .check()
            .ok_or(Cause::QueueShape {
                log_size: shape.log_size,
                log_stride: shape.log_stride,
            })
            .step("command queue")?;
        let cmd = Interface::new(&dma, segment.clone(), checked).step("command queue")?;
        let held_pages = Pages::new(dma.clone(), cmd.clone()).step("command queue")?;
        let device_ms = segment.command_timeout_ms();
        if params.cmd_timeout_ms != 0 {
            cmd.set_timeout_ms(params.cmd_timeout_ms);
        } else if let Some(ms) = device_ms {
            cmd.set_timeout_ms(ms);
        }
        let master = kapi::pci::BusMaster::new(pdev, dma.clone());
        cmd.start().step("command queue")?;
        segment
            .wait_ready(params.init_timeout_ms, || alarm.gives_way())
            .map_err(Cause::NotReady)
            .step("wait for firmware")?;

        let embedded_cpu = segment.embedded_cpu();
        let enabled = EnabledHca::new(cmd.clone(), embedded_cpu).step("enable HCA")?;
        let watchdog = Watchdog::start(pdev, segment.clone(), cmd.clone(), health.clone(), alarm)
            .step("health")?;
        let issi = Self::issi(&cmd).step("ISSI")?;
        let pages = PagesGuard::new(held_pages.clone());
        held_pages
            .satisfy(QueryPagesIn::BOOT_PAGES, embedded_cpu)
            .step("boot pages")?;
        let mut timeouts = Timeouts::DEFAULT;
        if device_ms.is_some() {
            let mut dtor = DtorReg::new();
            cmdif::register::access(&cmd, RegisterId::DTOR, Access::Read, &mut dtor)
                .step("timeouts")?;
            timeouts = Timeouts::new(&dtor);
            let known = |ms: Option<u64>| {
                ms.and_then(|ms| u32::try_from(ms).ok())
                    .filter(|ms| *ms != 0)
            };
            if let Some(ms) = known(dtor.reclaim_pages_to().milliseconds()) {
                held_pages.set_reclaim_ms(ms);
            }
            if let Some(ms) = known(dtor.reclaim_vfs_pages_to().milliseconds()) {
                held_pages.set_reclaim_virtual_ms(ms);
            }
        }
        if !kapi::pci::is_virtfn(pdev) {
            let mut order = HostEndianness::new();
            order.set_he(cfg!(target_endian = "big"));
            cmdif::register::access(&cmd, RegisterId::HOST_ENDIANNESS, Access::Write, &mut order)
                .step("host endianness")?;
        }
        let mut caps = Caps::negotiate(&cmd).step("capabilities")?;
        held_pages
            .satisfy(QueryPagesIn::INIT_PAGES, embedded_cpu)
            .step("init pages")?;
        let initialized = InitializedHca::new(cmd.clone()).step("init HCA")?;
        caps.refresh(&cmd).step("capabilities")?;
        if caps.general().driver_version() {
            Self::driver_version(&cmd).step("driver version")?;
        }
        let adapter = cmd.exec::<QueryAdapter>(0, |_| ()).step("adapter")?;
        let info = Info {
            adapter: params.adapter,
            vendor: pdev.vendor_id().as_raw(),
            device: pdev.device_id(),
            firmware,
            issi,
            embedded_cpu,
            board_id: *adapter.query_adapter_struct().vsd_contd_psid(),
        };

        let uar = Uar::new(cmd.clone()).step("UAR")?;
        if !segment.has_uar(uar.page()) {
            return Err(Cause::Uar(uar.page())).step("UAR");
        }
        let wanted = Self::completion_eqs(&caps, params);
        let irqs = Vectors::new(pdev, 1, 1 + wanted).step("interrupts")?;
        let mut vectors = KVec::new();
        for index in 0..irqs.count() {
            let name = CString::try_from_fmt(kernel::prelude::fmt!(
                "mlx5_rs{}@{}",
                index,
                kapi::pci::name(pdev)
            ))
            .step("interrupts")?;
            let vector = Vector::new(irqs.clone(), index, name).step("interrupts")?;
            vectors.push(vector, GFP_KERNEL).step("interrupts")?;
        }
        let first = vectors.first().ok_or(ENOSPC).step("interrupts")?;

        let has_tracer = tracer::is_there(pdev, &cmd, &caps.general());
        let maker = Maker::new(dma.clone(), segment.clone(), cmd.clone()).step("command EQ")?;
        let spec = |name, log_entries: u8, mask| Spec {
            name,
            log_entries: log_entries.min(caps.general().log_max_eq_sz()),
            mask,
            uar: uar.page(),
            uid: 0,
        };
        let users = Support {
            log_max_uctx: caps.general().log_max_uctx(),
            uctx_cap: caps.general().uctx_cap(),
        };
        // Users bind their completion queues to these (hardware.md 3.2).
        let completion_spec = Spec {
            uid: if users.log_max_uctx == 0 {
                0
            } else {
                SHARED_UID
            },
            ..spec("completion", LOG_COMPLETION_EQ, [0; 4])
        };
        let command_events = CommandEvents::new(
            &maker,
            first,
            &spec("command", LOG_COMMAND_EQ, mask::of(&[EventType::CMD])),
        )
        .step("command EQ")?;
        let mut events = mask::asynchronous(&caps.general());
        if has_tracer {
            events = mask::with(events, &[EventType::DEVICE_TRACER]);
        }
        let async_eq = maker
            .create(first, &spec("async", LOG_ASYNC_EQ, events))
            .step("async EQ")?;
        let page_requests =
            pages::serve_events(&held_pages, maker.dispatcher()).step("pages EQ")?;
        let pages_eq = maker
            .create(
                first,
                &spec("pages", LOG_PAGES_EQ, mask::of(&[EventType::PAGE_REQUEST])),
            )
            .step("pages EQ")?;
        let mut completion_eqs = KVec::new();
        for index in 0..wanted {
            // With too few vectors the last ones are shared.
            let at = (index as usize + 1).min(vectors.len() - 1);
            let vector = vectors.get(at).ok_or(ENOSPC).step("completion EQs")?;
            let queue = maker
                .create(vector, &completion_spec)
                .step("completion EQs")?;
            completion_eqs
                .push(queue, GFP_KERNEL)
                .step("completion EQs")?;
        }
        let vfs = Vfs::new(pdev.as_ref(), cmd.clone(), held_pages.clone(), embedded_cpu)
            .step("virtual functions")?;
        // Those that the bus shows already: the device was reset, or had another driver.
        match vfs.enable(kapi::pci::num_vf(pdev)) {
            Err(error) if matches!(error.fault, Fault::Status { .. }) => {
                dev_err!(
                    pdev,
                    "virtual functions: {}: they are not enabled\n",
                    Show(error)
                );
            }
            result => result.step("virtual functions")?,
        }
        let tracer = has_tracer
            .then(|| Tracer::start(pdev, &dma, &cmd, maker.dispatcher(), debugfs))
            .flatten();
        if let Some(tracer) = &tracer {
            watchdog.accompany(tracer.companion());
        }

        dev_info!(
            pdev,
            "ready: {} [{:04x}:{:04x}], firmware {}, {} command slots, EQs 3 async + {} completion, {} pages ({} KiB)\n",
            info.adapter,
            info.vendor,
            info.device,
            Show(info.firmware),
            cmd.slot_count(),
            completion_eqs.len(),
            held_pages.count(),
            held_pages.count() * 4
        );
        let has_fast_teardown = caps.general().fast_teardown();
        let has_force_teardown = caps.general().force_teardown();
        let mut files = Self::debugfs(
            debugfs,
            info,
            caps,
            &cmd,
            &held_pages,
            &vectors,
            &maker,
            &vfs,
        )
        .step("debugfs")?;
        Self::trials(&mut files, &cmd, users).step("debugfs")?;

        Ok(Self {
            _debugfs: files,
            tracer,
            vfs,
            _completion_eqs: completion_eqs,
            _pages_eq: pages_eq,
            _page_requests: page_requests,
            _async_eq: async_eq,
            _command_events: command_events,
            _vectors: vectors,
            _uar: uar,
            _initialized: initialized,
            _pages: pages,
            watchdog,
            _enabled: enabled,
            _master: master,
            _held_pages: held_pages,
            cmd,
            segment,
            _pci: pci,
            has_fast_teardown,
            has_force_teardown,
            info,
            timeouts,
        })
    }

    /// Ends everything at once, for a system that goes down (hardware.md 2.4, field case C21): fast
    /// teardown, else a forced one, else a normal one. No command is sent afterwards.
    pub(super) fn fast_teardown(&self) {
        // The NIC interface gets disabled on purpose.
        self.watchdog.dismiss();
        if let Some(tracer) = &self.tracer {
            // It would go on sending commands.
            tracer.end();
        }
        let fast = self.has_fast_teardown
            && self.teardown(TeardownHcaIn::PREPARE_FAST_TEARDOWN)
            && self.segment.disable_nic_interface(FAST_TEARDOWN_MS);
        if !fast {
            // A forced teardown takes the event queues with it: its reply has no event.
            self.cmd.use_polling();
            let _ = (self.has_force_teardown && self.teardown(TeardownHcaIn::FORCE_CLOSE))
                || self.teardown(TeardownHcaIn::GRACEFUL_CLOSE);
        }
        self.cmd.cut_off();
    }

    /// Issues TEARDOWN_HCA; `false` if the device does not do it.
    fn teardown(&self, profile: u16) -> bool {
        let result = self.cmd.exec::<TeardownHca>(0, |input| {
            input.set_profile(profile);
        });
        match result {
            Ok(reply) => !reply.state(),
            Err(error) => {
                self.cmd.report_teardown(&error);
                false
            }
        }
    }

    /// What the device says of itself.
    pub(super) fn info(&self) -> Info {
        self.info
    }

    /// How long a recovery may take, as the device has it.
    pub(super) fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// What firmware says of its own failure, if anything.
    pub(super) fn read_report(&self) -> Option<health::buffer::Report> {
        health::read_report(&self.segment)
    }

    /// Whether no command is sent any more.
    pub(super) fn is_cut_off(&self) -> bool {
        self.cmd.is_down()
    }

    /// How the device is to be taken down: with all commands.
    pub(super) fn begin_teardown(&self) {
        self.cmd.begin_teardown();
    }

    /// The virtual functions.
    pub(super) fn vfs(&self) -> &Vfs<'a> {
        &self.vfs
    }

    /// No command is sent any more; who waits for one fails now.
    pub(super) fn abandon(&self) {
        self.cmd.cut_off();
    }

    /// Chooses the interface version: 1 if the device has it. A device that does not know the
    /// command speaks 0.
    fn issi(cmd: &Interface<'_>) -> Result<u16, Cause> {
        let supported = match cmd.exec::<QueryIssi>(0, |_| ()) {
            Ok(reply) => reply.supported_issi_dw0(),
            Err(CommandError {
                fault:
                    Fault::Status {
                        status: Status::BAD_OP_ERR,
                        ..
                    },
                ..
            }) => 0,
            Err(error) => return Err(error.into()),
        };
        if supported & 1 << ISSI != 0 {
            cmd.exec::<SetIssi>(0, |input| {
                input.set_current_issi(ISSI);
            })?;
            Ok(ISSI)
        } else if supported == 0 || supported & 1 != 0 {
            Ok(0)
        } else {
            Err(Cause::Issi(supported))
        }
    }

    fn driver_version(cmd: &Interface<'_>) -> Result<(), CommandError> {
        const VERSION: &[u8] = b"Linux,mlx5_rs,0.1.0";
        cmd.exec::<SetDriverVersion>(0, |input| {
            // The rest stays zero, which ends the text.
            for (to, from) in input.driver_version_mut().iter_mut().zip(VERSION) {
                *to = *from;
            }
        })
        .map(|_| ())
    }

    /// How many completion event queues there shall be: what people ask for, or one for each CPU,
    /// and what the device has beside the other three.
    fn completion_eqs(caps: &Caps, params: &Params) -> u32 {
        let wanted = match params.comp_eqs {
            0 => nr_cpu_ids(),
            n => n,
        };
        let device = (1_u32 << caps.general().log_max_eq()).saturating_sub(3);
        wanted.min(device).clamp(1, MAX_COMPLETION_EQS)
    }

    // One for each thing that is shown.
    #[allow(clippy::too_many_arguments)]
    fn debugfs(
        dir: &Arc<kapi::debugfs::Dir>,
        info: Info,
        caps: Caps,
        cmd: &Arc<Interface<'a>>,
        pages: &Arc<Pages<'a>>,
        vectors: &[Vector<'a>],
        maker: &Maker<'a>,
        vfs: &Arc<Vfs<'a>>,
    ) -> Result<kapi::debugfs::Files<'a>> {
        let mut dir = kapi::debugfs::Files::new(dir.clone());

        let state = cmd.clone();
        let vfs = vfs.clone();
        dir.add(c"state", move |f| {
            let usage = state.usage();
            writeln!(f, "state {}", if state.is_down() { "down" } else { "up" })?;
            writeln!(f, "adapter {}", info.adapter)?;
            writeln!(f, "id {:04x}:{:04x}", info.vendor, info.device)?;
            writeln!(f, "firmware {}", info.firmware)?;
            writeln!(f, "board_id {}", info.board_id())?;
            writeln!(f, "issi {}", info.issi)?;
            writeln!(f, "command_slots {}", state.slot_count())?;
            writeln!(f, "command_slots_busy {}", usage.busy)?;
            writeln!(f, "command_slots_orphaned {}", usage.orphaned)?;
            writeln!(f, "commands_queued {}", usage.queued)?;
            writeln!(f, "command_spurious_completions {}", usage.spurious)?;
            let mode = if state.uses_events() {
                "events"
            } else {
                "polling"
            };
            writeln!(f, "command_mode {mode}")?;
            writeln!(f, "command_timeout_ms {}", state.timeout_ms())?;
            writeln!(f, "virtual_functions {}", vfs.enabled())
        })?;

        let stats = cmd.stats();
        dir.add(c"commands", move |f| stats.show(f))?;

        let held = pages.clone();
        dir.add(c"pages", move |f| held.show(f))?;

        let mut queues = KVec::new();
        for vector in vectors {
            queues.push(vector.queues(), GFP_KERNEL)?;
        }
        let dispatcher = maker.dispatcher().clone();
        dir.add(c"eqs", move |f| eq::show(f, &queues, &dispatcher))?;

        dir.add(c"caps", move |f| caps.show(f))?;

        Ok(dir)
    }

    /// Files that have the device do something when they are read, from as many threads as read at
    /// once.
    fn trials(
        dir: &mut kapi::debugfs::Files<'a>,
        cmd: &Arc<Interface<'a>>,
        users: Support,
    ) -> Result {
        let query = cmd.clone();
        dir.add(c"query_adapter", move |f| {
            match query.exec::<QueryAdapter>(0, |_| ()) {
                Ok(reply) => {
                    let adapter = reply.query_adapter_struct();
                    writeln!(f, "ieee_vendor_id {:#08x}", adapter.ieee_vendor_id())?;
                    writeln!(f, "vsd_vendor_id {:#06x}", adapter.vsd_vendor_id())
                }
                Err(error) => writeln!(f, "{error}"),
            }
        })?;

        // A user who comes, makes an object, and goes.
        let visited = cmd.clone();
        dir.add(c"user_context", move |f| {
            let visit = || {
                let user = Uctx::open(visited.clone(), users, 0)?;
                let pd = user.exec::<AllocPd>(0, |_| ())?.pd();
                user.exec::<DeallocPd>(0, |input| {
                    // The device gave the number, so that it fits the field.
                    let _ = input.try_set_pd(pd);
                })?;
                Ok::<_, CommandError>((user.uid(), pd))
            };
            match visit() {
                Ok((uid, pd)) => writeln!(f, "uid {uid}\npd {pd}"),
                Err(error) => writeln!(f, "{error}"),
            }
        })
    }
}
