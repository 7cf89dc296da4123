// SPDX-License-Identifier: GPL-2.0
//! How long it takes until a driver says that firmware stands still, on a
//! busy machine.
//!
//! Times are those of the guest's kernel log. One trial goes from a line that
//! is written to the log before the counter stops to the line of the report,
//! so that what is measured is never shorter than what happened.

use crate::manifest::DeviceKind;
use crate::process::wait_until;
use crate::vm::{DeviceId, Mark, Vm, DRIVER};
use anyhow::{bail, ensure, Context, Result};
use mlx5_agent::proto::Call;
use mlx5_model::control::client::Client;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Upstream's driver.
const PEER: &str = "mlx5_core";

/// What both drivers say (field case C27).
const REPORT: &str = "health compromised - reached miss count";

/// Upstream's three misses of up to 3 s each, after up to 3 s to the first.
const PEER_TIME: Duration = Duration::from_secs(12);

/// Longest time for anything else.
const LIMIT: Duration = Duration::from_secs(60);

/// Programs that spin on all CPUs of the guest, and interrupts and events for
/// all of the device's event queues, without a pause.
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

fn between(vm: &mut Vm, mark: Mark, from: &str, to: &str, limit: Duration) -> Result<Duration> {
    let stopped = vm.wait_record(mark, from, limit)?;
    let report = vm.wait_record(mark, to, limit)?;
    let time = report.time_us.checked_sub(stopped.time_us);
    let time = time.with_context(|| format!("{to:?} was logged before {from:?}"))?;
    Ok(Duration::from_micros(time))
}

/// One trial of this driver, whose device is up: the counter stops with a
/// command, which is never answered. The device is well again afterwards.
///
/// # Errors
///
/// If it is not reported, or the device does not get well.
pub fn trial(vm: &mut Vm, id: DeviceId) -> Result<Duration> {
    const STOPS: &str = "health trial: the counter stops";
    let mark = vm.mark()?;
    vm.model(id)?
        .run("fault op=QUERY_ADAPTER count=1 act=stall")?;
    // In one program, so that little time goes by between line and doorbell.
    let script = format!("echo '{STOPS}' > /dev/kmsg; read answer < $0; echo \"$answer\"");
    let path = format!("/sys/kernel/debug/{DRIVER}/{}/query_adapter", vm.bdf(id));
    let command = vm
        .agent()
        .spawn(&["sh", "-c", &script, &path], &[], LIMIT)?;
    let time = between(vm, mark, STOPS, REPORT, LIMIT)?;
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
    Ok(time)
}

/// One trial of upstream's driver, whose device is up.
fn peer_trial(vm: &mut Vm, id: DeviceId) -> Result<Duration> {
    const STOPS: &str = "health trial: the counter stops";
    let mark = vm.mark()?;
    vm.agent().set("/dev/kmsg", STOPS, LIMIT)?;
    vm.model(id)?.run("health counter=stop")?;
    let time = between(vm, mark, STOPS, REPORT, PEER_TIME * 3)?;
    vm.model(id)?.run("health counter=run")?;
    Ok(time)
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
        let load = Load::start(vm, id, longest)?;
        let mut times = Times::default();
        for _ in 0..trials {
            times.add(if driver == PEER {
                peer_trial(vm, id)?
            } else {
                trial(vm, id)?
            });
        }
        load.end(vm)?;
        vm.unbind(id, driver, LIMIT)?;
        vm.rmmod(driver, LIMIT)?;
        vm.remove_device(id)?;
        results.push((driver, times));
    }
    println!("\n== health: from the counter's last movement to the report, all CPUs and EQs busy");
    for (driver, times) in results {
        println!("   {driver:<10} {times}");
    }
    Ok(())
}
