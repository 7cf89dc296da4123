// SPDX-License-Identifier: GPL-2.0

//! Is firmware alive? (hardware.md 1; M4.1 to M4.6)
//!
//! Lives here: the watchdog thread of a device, what it makes of what it reads, what it reports, and
//! the record of it that people see. Owns: the thread. May be called by: device and devlink; calls
//! segment, cmdif (only to end it) and kapi.
//!
//! The thread reads the initialization segment and nothing else: no command, no DMA memory, and no
//! lock that is held while somebody waits for the device. So it goes on when nothing else does. What
//! it finds it logs at once, ends the command interface if the device cannot go on, and rings the
//! [`Alarm`]; everything that takes longer is done by whoever hears that.
//!
//! Pure, and on the host as well: [`buffer`], [`policy`].

pub(crate) mod buffer;
pub(crate) mod policy;

use core::fmt;

use kernel::{
    device::{
        Bound,
        Device, //
    },
    new_spinlock,
    pci,
    prelude::*,
    str::CString,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    }, //
};

use self::{
    buffer::{
        description,
        Entry,
        Report,
        Value, //
    },
    policy::{
        Budget,
        Finding,
        Limits,
        Monitor,
        Sample,
        Sensor, //
    },
};
use crate::{
    cmdif::Interface,
    kapi::{
        self,
        kthread::{
            self,
            Body,
            Class,
            Me,
            Thread,
            Woken, //
        },
        param::live_params,
        print::say, //
    },
    layouts::HealthSyndrome,
    segment::{
        decode::Firmware,
        Segment, //
    },
};

live_params! {
    /// How often the watchdog reads, in milliseconds.
    static health_interval_ms: 100, 10..=10_000, "Milliseconds between two reads of the health counter (100)";
    /// How many unchanged reads are a stall.
    static health_misses: 3, 1..=1_000, "Unchanged reads of the health counter that are a stall (3)";
    /// How long a stall may last until firmware counts as dead, in milliseconds.
    static health_dead_ms: 10_000, 0..=3_600_000, "Milliseconds of a stall after which firmware counts as dead; 0: never (10000)";
}

/// What an [`Alert`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A failure of before the device was put to use.
    LeftOver,
    /// The counter does not move.
    Stall,
    /// Firmware says that something is wrong, and goes on.
    Syndrome,
    /// The device cannot go on.
    Fatal(Sensor),
    /// Somebody wants to see a report.
    Test,
}

/// Something that the watchdog found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alert {
    /// What it is.
    pub(crate) what: What,
    /// What firmware says of itself, 0 if nothing.
    pub(crate) syndrome: HealthSyndrome,
    /// Unchanged reads of the counter.
    pub(crate) misses: u32,
    /// The health buffer, if there was reason to read it.
    pub(crate) report: Option<Report>,
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            What::LeftOver => write!(f, "a failure from before is in the health buffer")?,
            // Upstream's words: monitors look for them (field case C27).
            What::Stall => write!(f, "device's health compromised - reached miss count")?,
            What::Syndrome => write!(f, "firmware reports a problem")?,
            What::Fatal(sensor) => {
                write!(f, "Fatal error {} detected: {sensor}", sensor.number())?;
            }
            What::Test => write!(f, "test of the health report")?,
        }
        if self.syndrome != HealthSyndrome(0) {
            let text = description(self.syndrome);
            write!(f, ", syndrome {:#x}: {text}", self.syndrome.0)?;
        }
        Ok(())
    }
}

/// Hears of alerts from the watchdog's thread: it must not wait, nor take a lock that anybody holds
/// who waits for the device.
pub(crate) trait Alarm: Send + Sync {
    /// The watchdog found something. It is in the log, and if it is fatal the command interface is down.
    fn ring(&self, alert: &Alert);

    /// Firmware is well, for the first time or again.
    fn settled(&self);

    /// Whether the one who brings the device up is asked to stop that: commands then fail.
    fn gives_way(&self) -> bool;
}

/// Somebody who has something to look at now and then, and no reason to wake a CPU up for that.
pub(crate) trait Companion: Send + Sync {
    /// The watchdog is awake, in its thread: as for [`Alarm::ring`].
    fn tick(&self);
}

/// What people see of the watchdog, over all bring-ups of a device.
#[derive(Clone, Copy)]
struct Board {
    /// Whether a watchdog runs.
    watched: bool,
    counter: u32,
    syndrome: u8,
    nic_interface: u8,
    misses: u32,
    stalled: bool,
    reads: u64,
    /// Longest time between two reads, in microseconds.
    longest_us: u64,
    stalls: u64,
    resumes: u64,
    syndromes: u64,
    fatals: u64,
    /// Reports that were not printed, because there were too many.
    unprinted: u64,
    last: Option<(Alert, u64)>,
}

/// The record of a device's health.
#[pin_data]
pub(crate) struct Health {
    #[pin]
    board: SpinLock<Board>,
    #[pin]
    budget: SpinLock<Budget>,
}

fn now_ms() -> u64 {
    u64::try_from(kthread::now_ns()).unwrap_or(0) / 1_000_000
}

impl Health {
    /// Nothing has been seen yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let board = Board {
            watched: false,
            counter: 0,
            syndrome: 0,
            nic_interface: 0,
            misses: 0,
            stalled: false,
            reads: 0,
            longest_us: 0,
            stalls: 0,
            resumes: 0,
            syndromes: 0,
            fatals: 0,
            unprinted: 0,
            last: None,
        };
        Arc::pin_init(
            pin_init!(Self {
                board <- new_spinlock!(board, "mlx5_rs_health"),
                budget <- new_spinlock!(Budget::new(now_ms()), "mlx5_rs_health_budget"),
            }),
            GFP_KERNEL,
        )
    }

    /// The last alert.
    pub(crate) fn last(&self) -> Option<Alert> {
        self.board.lock().last.map(|(alert, _)| alert)
    }

    /// Whether firmware is watched, and well.
    pub(crate) fn is_well(&self) -> bool {
        let board = self.board.lock();
        board.watched && !board.stalled && board.syndrome == 0
    }

    /// Gives what there is to say about firmware's state, line by line.
    pub(crate) fn diagnose(&self, put: &mut dyn FnMut(Entry)) {
        let board = *self.board.lock();
        let syndrome = HealthSyndrome(board.syndrome);
        let state = match board {
            Board { watched: false, .. } => "not watched",
            Board { stalled: true, .. } => "stalled",
            Board { syndrome: 0, .. } => "healthy",
            _ => "reports a problem",
        };
        for (name, value) in [
            ("firmware", Value::Text(state)),
            ("syndrome", Value::Number(board.syndrome.into())),
            ("description", Value::Text(description(syndrome))),
            ("counter", Value::Number(board.counter)),
            ("misses", Value::Number(board.misses)),
            ("nic_interface", Value::Number(board.nic_interface.into())),
            ("reads", Value::Count(board.reads)),
            ("longest_gap_us", Value::Count(board.longest_us)),
            ("stalls", Value::Count(board.stalls)),
            ("resumes", Value::Count(board.resumes)),
            ("syndromes", Value::Count(board.syndromes)),
            ("fatals", Value::Count(board.fatals)),
            ("unprinted", Value::Count(board.unprinted)),
        ] {
            put(Entry { name, value });
        }
    }

    /// Prints the record.
    pub(crate) fn show(&self, f: &mut kernel::fmt::Formatter<'_>) -> fmt::Result {
        let mut result = Ok(());
        self.diagnose(&mut |entry| {
            if result.is_ok() {
                result = writeln!(f, "{entry}");
            }
        });
        result?;
        writeln!(f, "interval_ms {}", health_interval_ms.get())?;
        writeln!(f, "threshold {}", health_misses.get())?;
        let last = self.board.lock().last;
        let Some((alert, at_ms)) = last else {
            return writeln!(f, "last none");
        };
        writeln!(f, "last {alert}")?;
        writeln!(f, "last_ago_ms {}", now_ms().saturating_sub(at_ms))?;
        if let Some(report) = alert.report {
            for entry in report.entries() {
                writeln!(f, "last {entry}")?;
            }
        }
        Ok(())
    }

    /// Counts an alert and keeps it, and says whether it is to be printed in full.
    fn note(&self, alert: &Alert) -> bool {
        let now_ms = now_ms();
        let prints = self.budget.lock().take(now_ms);
        let mut board = self.board.lock();
        match alert.what {
            What::Stall => board.stalls += 1,
            What::Syndrome => board.syndromes += 1,
            What::Fatal(_) => board.fatals += 1,
            What::LeftOver | What::Test => {}
        }
        if !prints {
            board.unprinted += 1;
        }
        board.last = Some((*alert, now_ms));
        prints
    }

    /// Puts an alert into the record and the log.
    pub(crate) fn tell(&self, dev: &Device, alert: &Alert) {
        if !self.note(alert) {
            return;
        }
        let level = match alert.what {
            What::LeftOver => 4,
            What::Test => 6,
            _ => 3,
        };
        say(dev, level, alert);
        let Some(report) = alert.report else {
            return;
        };
        if report.is_unreadable() {
            say(dev, 3, &"PCI slot is unavailable");
            return;
        }
        let level = match alert.what {
            // Nobody shall be woken for what was, or was asked for.
            What::LeftOver | What::Test => level,
            _ => report.severity().level(),
        };
        say(dev, level, &report.heading());
        for entry in report.entries() {
            say(dev, level, &entry);
        }
        if report.wants_cold_reset() {
            say(dev, 4, &"Cold reset is required");
        }
    }
}

/// Reads the health buffer for somebody who asks, if firmware has something to say.
pub(crate) fn read_report(segment: &Segment<'_>) -> Option<Report> {
    let sample = sample(segment, None);
    (sample.syndrome() != 0 && !sample.is_silent)
        .then(|| Report::new(segment.health_buffer(), segment.firmware()))
}

/// Looks once, before a device is put to use, for what an earlier failure left behind (M4.4). It is
/// reported, and is old news to the watchdog that starts later.
pub(crate) fn report_left_over(dev: &Device, segment: &Segment<'_>, health: &Health) {
    let Some(report) = read_report(segment) else {
        return;
    };
    if health.last().and_then(|last| last.report) == Some(report) {
        dev_info!(
            dev,
            "the health buffer still holds the failure that was reported last\n"
        );
        return;
    }
    let alert = Alert {
        what: What::LeftOver,
        syndrome: report.syndrome(),
        misses: 0,
        report: Some(report),
    };
    health.tell(dev, &alert);
}

/// Reads what the watchdog looks at.
fn sample(segment: &Segment<'_>, pdev: Option<&pci::Device<Bound>>) -> Sample {
    // Before the syndrome: who sees that firmware gave the interface up, also sees why.
    let nic_interface = segment.nic_interface();
    let word = segment.health_word();
    let at_ms = now_ms();
    Sample {
        at_ms,
        word,
        nic_interface,
        // All ones may be the counter of a device in trouble; only then other registers are asked.
        is_silent: word == u32::MAX && segment.is_gone(),
        is_offline: pdev.is_some_and(kapi::pci::is_offline),
    }
}

/// Who looks along, if somebody does.
type Guest<'a> = Option<Arc<dyn Companion + 'a>>;

/// What the thread works with.
struct Watch<'a> {
    pdev: &'a pci::Device<Bound>,
    segment: Arc<Segment<'a>>,
    cmd: Arc<Interface<'a>>,
    health: Arc<Health>,
    alarm: Arc<dyn Alarm + 'a>,
    firmware: Firmware,
    dismissed: Atomic<bool>,
    companion: Pin<KBox<SpinLock<Guest<'a>>>>,
}

impl Watch<'_> {
    /// Puts a sample on the board.
    fn post(&self, monitor: &Monitor, sample: &Sample, gap_us: u64) {
        let mut board = self.health.board.lock();
        board.watched = true;
        board.counter = sample.counter();
        board.syndrome = sample.syndrome();
        board.nic_interface = sample.nic_interface;
        board.misses = monitor.misses();
        board.stalled = monitor.is_stalled();
        board.reads += 1;
        board.longest_us = board.longest_us.max(gap_us);
    }

    /// Acts on a finding.
    fn act(&self, monitor: &mut Monitor, finding: Finding, sample: &Sample) {
        let what = match finding {
            Finding::Nothing => return,
            Finding::Resumed { stood_ms } => {
                self.health.board.lock().resumes += 1;
                dev_notice!(
                    self.pdev,
                    "health counter moves again, after {stood_ms} ms\n"
                );
                return;
            }
            Finding::Stall { .. } => What::Stall,
            Finding::Syndrome => What::Syndrome,
            Finding::Fatal(sensor) => What::Fatal(sensor),
        };
        // Without a syndrome firmware cannot answer, or has nothing to say (M4.2).
        let report = (sample.syndrome() != 0 && !sample.is_silent)
            .then(|| Report::new(self.segment.health_buffer(), self.firmware));
        let mut alert = Alert {
            what,
            syndrome: HealthSyndrome(if sample.is_silent {
                0
            } else {
                sample.syndrome()
            }),
            misses: monitor.misses(),
            report,
        };
        self.health.tell(self.pdev.as_ref(), &alert);
        let worse = report.and_then(|report| monitor.examine(finding, &report));
        if let Some(sensor) = worse {
            // The buffer is in the log already.
            alert.what = What::Fatal(sensor);
            self.health.board.lock().fatals += 1;
            self.health.board.lock().last = Some((alert, sample.at_ms));
            say(self.pdev.as_ref(), 3, &alert);
        }
        if let What::Fatal(sensor) = alert.what {
            // Whoever waits for a command fails now.
            if sensor == Sensor::PciDead {
                self.cmd.lose_device();
            } else {
                self.cmd.cut_off();
            }
        }
        self.alarm.ring(&alert);
    }
}

impl Body for Watch<'_> {
    fn run(&self, me: &Me<'_>) {
        /// Longest sleep: parameters may change, and somebody may want the device.
        const NAP_NS: i64 = 100_000_000;

        let mut last_ns = kthread::now_ns();
        let first = sample(&self.segment, Some(self.pdev));
        let mut monitor = Monitor::new(&first);
        self.post(&monitor, &first, 0);
        let mut was_well = false;
        let mut from_ns = last_ns;
        loop {
            let pause_us = monitor.pause_us(health_interval_ms.get());
            let pause_ns = i64::try_from(pause_us.saturating_mul(1000)).unwrap_or(i64::MAX);
            // From when the last read was due, so that the period is kept; but after one that was late no
            // sooner than three quarters of it, because firmware must have had time to move.
            let due_ns = from_ns
                .saturating_add(pause_ns)
                .max(last_ns.saturating_add(pause_ns / 4 * 3));
            let nap_ns = kthread::now_ns().saturating_add(NAP_NS);
            if me.sleep_until(due_ns.min(nap_ns)) == Woken::Stop {
                break;
            }
            if self.alarm.gives_way() {
                self.cmd.cut_off();
            }
            if self.dismissed.load(Relaxed) {
                break;
            }
            let now_ns = kthread::now_ns();
            if now_ns < due_ns {
                continue;
            }
            let companion = self.companion.lock().clone();
            if let Some(companion) = companion {
                companion.tick();
            }
            let sample = sample(&self.segment, Some(self.pdev));
            let limits = Limits {
                misses: health_misses.get(),
                dead_ms: health_dead_ms.get(),
            };
            let finding = monitor.observe(&sample, limits);
            let gap_us = u64::try_from(now_ns.saturating_sub(last_ns)).unwrap_or(0) / 1000;
            self.post(&monitor, &sample, gap_us);
            self.act(&mut monitor, finding, &sample);
            if monitor.is_fatal() {
                // There is nothing left to find.
                break;
            }
            let is_well = self.health.is_well();
            if is_well && !was_well {
                self.alarm.settled();
            }
            was_well = is_well;
            from_ns = due_ns;
            last_ns = now_ns;
        }
        self.health.board.lock().watched = false;
    }
}

/// The watchdog of a device that is in use, from ENABLE_HCA to DISABLE_HCA. Ends on drop.
pub(crate) struct Watchdog<'a>(Pin<KBox<Thread<Watch<'a>>>>);

impl<'a> Watchdog<'a> {
    /// Starts to watch.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or `EINTR` when the caller is being killed.
    pub(crate) fn start(
        pdev: &'a pci::Device<Bound>,
        segment: Arc<Segment<'a>>,
        cmd: Arc<Interface<'a>>,
        health: Arc<Health>,
        alarm: Arc<dyn Alarm + 'a>,
    ) -> Result<Self> {
        let name = CString::try_from_fmt(kernel::prelude::fmt!(
            "mlx5_rs_health/{}",
            kapi::pci::name(pdev)
        ))?;
        let firmware = segment.firmware();
        let watch = Watch {
            pdev,
            segment,
            cmd,
            health,
            alarm,
            firmware,
            dismissed: Atomic::new(false),
            companion: KBox::pin_init(new_spinlock!(None, "mlx5_rs_health_companion"), GFP_KERNEL)?,
        };
        // It must read on time when programs spin on all CPUs, and when interrupts storm.
        Ok(Self(Thread::start(&name, Class::RealTime, watch)?))
    }

    /// Lets somebody look each time that the watchdog does, until it ends.
    pub(crate) fn accompany(&self, companion: Arc<dyn Companion + 'a>) {
        let before = self.0.body().companion.lock().replace(companion);
        // Outside the lock.
        drop(before);
    }

    /// From now on nothing is found: what the device is about to show is what was asked of it.
    pub(crate) fn dismiss(&self) {
        self.0.body().dismissed.store(true, Relaxed);
        self.0.wake();
    }
}
