// SPDX-License-Identifier: GPL-2.0
//! How long it takes until a driver says that firmware stands still, on a
//! busy machine.
//!
//! The report has a time in the guest's kernel log; the model knows when it
//! stopped the counter, by the host's clock. [`Trials`] finds out which time
//! of the host a time of the guest is, by lines that the guest is told to log,
//! and by the times before and after that. What is not known for sure counts
//! against the driver: a trial is never shorter than what happened.

use crate::manifest::DeviceKind;
use crate::process::wait_until;
use crate::vm::{DeviceId, Mark, Vm, DRIVER};
use anyhow::{bail, ensure, Context, Result};
use mlx5_agent::proto::Call;
use mlx5_model::control::client::Client;
use mlx5_model::control::types;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Upstream's driver.
const PEER: &str = "mlx5_core";

/// What both drivers say (field case C27).
const REPORT: &str = "health compromised - reached miss count";

/// Upstream's three misses of up to 3 s each, after up to 3 s to the first.
const PEER_TIME: Duration = Duration::from_secs(12);

/// Longest time for anything else.
const LIMIT: Duration = Duration::from_secs(60);

/// Programs that spin on all CPUs of the guest, and interrupts and events for
/// all of the device's event queues, up to a thousand times a second.
#[derive(Debug)]
pub struct Load {
    spinners: Vec<u64>,
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    storm: Option<JoinHandle<Result<()>>>,
}

impl Load {
    /// Starts them, for at most `longest`.
    ///
    /// # Errors
    ///
    /// If the guest or the model does not answer.
    pub fn start(vm: &mut Vm, id: DeviceId, longest: Duration) -> Result<Self> {
        let cpus = vm.agent().text("/sys/devices/system/cpu/online")?;
        let cpus = cpus.rsplit(['-', ',']).next().and_then(|n| n.parse().ok());
        let cpus: u32 = cpus.context("the number of CPUs")?;
        let mut spinners = Vec::new();
        for _ in 0..=cpus {
            let script = "while :; do :; done";
            let spinner = vm.agent().spawn(&["sh", "-c", script], &[], longest)?;
            spinners.push(spinner.id);
        }
        let client = vm.model(id)?.connect()?;
        let (stop, rounds) = (Arc::default(), Arc::default());
        let storm = {
            let (stop, rounds) = (Arc::clone(&stop), Arc::clone(&rounds));
            thread::Builder::new()
                .name("storm".into())
                .spawn(move || storm(client, &stop, &rounds))
                .context("starting a thread")?
        };
        Ok(Self {
            spinners,
            stop,
            rounds,
            storm: Some(storm),
        })
    }

    /// Ends them. Gives how often each event queue was stormed at.
    ///
    /// # Errors
    ///
    /// If they ended before.
    pub fn end(mut self, vm: &Vm) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        for exec in &self.spinners {
            let call = Call::Signal {
                exec: *exec,
                signal: rustix::process::Signal::KILL.as_raw(),
            };
            vm.agent().call(call, LIMIT).context("a spinning program")?;
        }
        if let Some(storm) = self.storm.take() {
            let ended = storm.join();
            ended.map_err(|_| anyhow::anyhow!("the storm panicked"))??;
        }
        Ok(self.rounds.load(Ordering::Relaxed))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // The programs end with the conversation, or their time.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(storm) = self.storm.take() {
            let _ = storm.join();
        }
    }
}

/// Events that mean nothing to the queue that gets them, and interrupts
/// without any.
fn storm(mut client: Client, stop: &AtomicBool, rounds: &AtomicU64) -> Result<()> {
    /// Events at once, and most that may wait.
    const EVENTS: u32 = 64;
    const BACKLOG: usize = 1000;
    /// Between rounds: interrupts faster than QEMU can deliver them stop the
    /// guest as a whole, also its clock.
    const PAUSE: Duration = Duration::from_millis(1);
    /// Port change, and completion of nothing.
    const PORT_CHANGE: u8 = 0x9;
    const COMPLETION: u8 = 0x0;
    while !stop.load(Ordering::Relaxed) {
        let eqs = client.status()?.eqs;
        for eq in &eqs {
            if eq.backlog < BACKLOG {
                let kind = if eq.events.is_empty() {
                    COMPLETION
                } else {
                    PORT_CHANGE
                };
                client.run(&format!(
                    "event eqn={} type={kind:#x} subtype=4 count={EVENTS}",
                    eq.eqn
                ))?;
            }
            client.run(&format!("irq vector={} count=4", eq.vector))?;
        }
        rounds.fetch_add(1, Ordering::Relaxed);
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Times of a number of trials.
#[derive(Debug, Default, Clone)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Adds one.
    pub fn add(&mut self, time: Duration) {
        self.0.push(time);
        self.0.sort();
    }

    /// The longest.
    pub fn longest(&self) -> Duration {
        self.0.last().copied().unwrap_or_default()
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |part: usize| {
            self.0
                .get((self.0.len() * part / 100).min(self.0.len() - 1))
        };
        let ms = |time: Option<&Duration>| time.map_or(0, Duration::as_millis);
        if self.0.is_empty() {
            return f.write_str("no trials");
        }
        write!(
            f,
            "{} trials: shortest {} ms, median {} ms, longest {} ms",
            self.0.len(),
            ms(self.0.first()),
            ms(at(50)),
            ms(self.0.last())
        )
    }
}

/// A line of the guest's log whose time on the host is known: the guest's
/// time, and what the host's can be at most.
#[derive(Debug, Clone, Copy)]
struct Point {
    guest_us: u64,
    host: Instant,
}

/// Logs a line many times, and keeps the one that took the least time.
fn point(vm: &mut Vm) -> Result<Point> {
    const LINE: &str = "health trial: the time";
    const SAMPLES: u32 = 30;
    let mut best: Option<(Duration, Point)> = None;
    for _ in 0..SAMPLES {
        let mark = vm.mark()?;
        let before = Instant::now();
        // A line without an end is not shown before the next one.
        vm.agent().set("/dev/kmsg", &format!("{LINE}\n"), LIMIT)?;
        let host = Instant::now();
        let width = host - before;
        let guest_us = vm.wait_record(mark, LINE, LIMIT)?.time_us;
        if best.is_none_or(|(least, _)| width < least) {
            best = Some((width, Point { guest_us, host }));
        }
    }
    Ok(best.context("no samples")?.1)
}

/// When a driver said that the counter stands still, and when it stopped.
#[derive(Debug, Clone, Copy)]
struct Trial {
    report_us: u64,
    stopped: Instant,
}

/// A number of trials under load.
#[derive(Debug)]
pub struct Trials {
    start: Point,
    load: Load,
    trials: Vec<Trial>,
}

impl Trials {
    /// Starts the load, for at most `longest`.
    ///
    /// # Errors
    ///
    /// If the guest or the model does not answer.
    pub fn start(vm: &mut Vm, id: DeviceId, longest: Duration) -> Result<Self> {
        // While it is quiet: what it takes to log a line is an error of the clock.
        let start = point(vm)?;
        Ok(Self {
            start,
            load: Load::start(vm, id, longest)?,
            trials: Vec::new(),
        })
    }

    /// The counter has stopped, or will at once: waits for the report, and
    /// keeps the times.
    fn report(&mut self, vm: &mut Vm, id: DeviceId, mark: Mark, limit: Duration) -> Result<()> {
        let report_us = vm.wait_record(mark, REPORT, limit)?.time_us;
        let now = Instant::now();
        let health: types::Health = vm.model(id)?.control().request("health")?;
        let still = health.still_us.context("the counter moves")?;
        let stopped = now.checked_sub(Duration::from_micros(still));
        self.trials.push(Trial {
            report_us,
            stopped: stopped.context("the host's clock")?,
        });
        Ok(())
    }

    /// One trial of this driver, whose device is up: the counter stops with
    /// a command, which is never answered. The device is well again
    /// afterwards.
    ///
    /// # Errors
    ///
    /// If it is not reported, or the device does not get well.
    pub fn trial(&mut self, vm: &mut Vm, id: DeviceId) -> Result<()> {
        /// The driver prints so many reports at once, and then one each second.
        const EACH: Duration = Duration::from_millis(1100);
        if let Some(last) = self.trials.last() {
            thread::sleep((last.stopped + EACH).saturating_duration_since(Instant::now()));
        }
        let mark = vm.mark()?;
        vm.model(id)?
            .run("fault op=QUERY_ADAPTER count=1 act=stall")?;
        let path = format!("/sys/kernel/debug/{DRIVER}/{}/query_adapter", vm.bdf(id));
        let command = vm.agent().spawn(&["cat", &path], &[], LIMIT)?;
        self.report(vm, id, mark, LIMIT)?;
        let waits = vm.model(id)?.status()?.in_flight;
        ensure!(
            waits.iter().any(|flight| flight.name == "QUERY_ADAPTER"),
            "no command hung while the counter stood: {waits:?}"
        );
        vm.model(id)?.run("health counter=run")?;
        vm.wait_log(mark, "health counter moves again", LIMIT)?;
        vm.model(id)?.control().clear_faults()?;
        let answer = command.finished(LIMIT)?;
        let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
        ensure!(answer.starts_with("ieee_vendor_id"), "{answer}");
        Ok(())
    }

    /// One trial of upstream's driver, whose device is up.
    fn peer_trial(&mut self, vm: &mut Vm, id: DeviceId) -> Result<()> {
        let mark = vm.mark()?;
        vm.model(id)?.run("health counter=stop")?;
        self.report(vm, id, mark, PEER_TIME * 3)?;
        vm.model(id)?.run("health counter=run")
    }

    /// Ends the load. Gives how long each trial took, and how often the event
    /// queues were stormed at.
    ///
    /// # Errors
    ///
    /// If the load ended before, or the clocks do not agree.
    pub fn end(self, vm: &mut Vm) -> Result<(Times, u64)> {
        /// How far the clocks may drift apart. The guest's is calibrated at
        /// boot, against another one that is emulated as well.
        const DRIFT: f64 = 0.002;
        let Self {
            start,
            load,
            trials,
        } = self;
        let rounds = load.end(vm)?;
        let end = point(vm)?;
        let guest = end.guest_us.saturating_sub(start.guest_us) as f64;
        let host = (end.host - start.host).as_secs_f64() * 1e6;
        let pace = host / guest;
        ensure!(
            (pace - 1.0).abs() < DRIFT,
            "{host} us passed on the host, {guest} us in the guest"
        );
        let mut times = Times::default();
        for trial in trials {
            let since = trial.report_us.saturating_sub(start.guest_us) as f64 * pace;
            let report = start.host + Duration::from_secs_f64(since / 1e6);
            let time = report.checked_duration_since(trial.stopped);
            times.add(time.context("it was reported before it happened")?);
        }
        Ok((times, rounds))
    }
}

/// The same trial of both drivers, printed side by side: `trials` of this
/// one, one of upstream's, which takes its time.
///
/// # Errors
///
/// If there is no model, or a driver does not report.
pub fn compare(vm: &mut Vm, trials: u32) -> Result<()> {
    if vm.manifest().device != DeviceKind::Model {
        bail!("a real card's firmware does not stop on request");
    }
    vm.autoprobe(false)?;
    let longest = LIMIT * 2 + LIMIT * trials;
    let mut results = Vec::new();
    for (driver, trials) in [(PEER, 1), (DRIVER, trials)] {
        let id = vm.add_device(&[])?;
        if driver == PEER {
            vm.modprobe(PEER, LIMIT)?;
        } else {
            vm.insmod("", LIMIT)?;
        }
        vm.bind(id, driver, LIMIT)?;
        let agent = vm.agent();
        wait_until("the device to be idle", LIMIT, || {
            let names = agent.list("/sys/bus/auxiliary/devices")?;
            Ok(driver == DRIVER || names.iter().any(|name| name.starts_with("mlx5_core.")))
        })?;
        let mut run = Trials::start(vm, id, longest)?;
        for _ in 0..trials {
            if driver == PEER {
                run.peer_trial(vm, id)?;
            } else {
                run.trial(vm, id)?;
            }
        }
        let (times, _) = run.end(vm)?;
        vm.unbind(id, driver, LIMIT)?;
        vm.rmmod(driver, LIMIT)?;
        vm.remove_device(id)?;
        results.push((driver, times));
    }
    println!("\n== health: from the counter's stop to the report, all CPUs and EQs busy");
    for (driver, times) in results {
        println!("   {driver:<10} {times}");
    }
    Ok(())
}
