// SPDX-License-Identifier: GPL-2.0

//! What each verb does.

use std::time::Duration;
use std::time::Instant;

use serde::Serialize;
use serde_json::json;
use serde_json::Value;

use crate::bar::initseg::nic_interface;
use crate::bar::initseg::Initializing;
use crate::bar::initseg::COUNTER_MAX;
use crate::cmdif::status::Delivery;
use crate::cmdif::status::Status as CommandStatus;
use crate::device::Device;
use crate::eq::Event;
use crate::eq::DATA_SIZE;
use crate::faults::Action;
use crate::faults::Fault;
use crate::faults::Patch;
use crate::field;
use crate::health::Fatal;
use crate::health::SoftwareReset;
use crate::ifc;
use crate::link::Link;
use crate::link::Outage;
use crate::pci;
use crate::stale;

use super::request::number;
use super::request::Request;
use super::trace;
use super::types;

/// Most events or interrupts that one request may cause.
const MAX_COUNT: u32 = 1 << 20;

/// What to do after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Go on.
    Continue,
    /// End the process.
    Quit,
}

/// Carries out a line and returns the reply.
pub fn execute(device: &mut Device, connected: bool, line: &str) -> (Value, After) {
    let mut after = After::Continue;
    let reply = Request::parse(line).and_then(|r| run(device, connected, r, &mut after));
    let reply = match reply {
        Ok(mut value) => {
            if let Some(map) = value.as_object_mut() {
                map.insert("ok".into(), true.into());
            }
            value
        }
        Err(error) => json!({ "ok": false, "error": error }),
    };
    (reply, after)
}

pub(super) fn value(reply: impl Serialize) -> Result<Value, String> {
    serde_json::to_value(reply).map_err(|e| format!("reply: {e}"))
}

fn run(
    device: &mut Device,
    connected: bool,
    mut r: Request,
    after: &mut After,
) -> Result<Value, String> {
    match r.verb.as_str() {
        "status" => {
            r.finish()?;
            value(status(device, connected))
        }
        "commands" => {
            let since = r.number("since")?.unwrap_or(0);
            r.finish()?;
            value(types::Commands {
                total: device.log.total(),
                commands: device
                    .log
                    .since(since)
                    .take(types::Commands::MAX)
                    .cloned()
                    .collect(),
            })
        }
        "violations" => {
            let clear = r.word("clear");
            r.finish()?;
            let reply = types::Violations {
                count: device.checks.count(),
                violations: device.checks.list().to_vec(),
            };
            if clear {
                device.checks.clear();
            }
            value(reply)
        }
        "fault" => {
            let fault = fault(&mut r)?;
            r.finish()?;
            device.faults.add(fault);
            value(types::Done {})
        }
        "faults" => {
            let clear = r.word("clear");
            r.finish()?;
            if !clear {
                return value(types::Faults { faults: device.faults.view() });
            }
            device.faults.clear();
            let released = device.release(|a| matches!(a, Action::Never | Action::Stall));
            value(types::Released { released })
        }
        "release" => {
            r.finish()?;
            let released = device.release(|a| a == Action::Hold);
            value(types::Released { released })
        }
        "cap" => {
            let (page, field) = (r.need("page")?, r.need("field")?);
            let (cur, max) = (r.number("cur")?, r.number("max")?);
            r.finish()?;
            device.caps.set_field(&page, &field, cur, max)?;
            let (cur, max) = device.caps.field(&page, &field)?;
            value(types::Cap { cur, max })
        }
        "pages" => {
            let check = r.word("check");
            let (boot, init, regular) = (r.number("boot")?, r.number("init")?, r.number("regular")?);
            let (vf, returned) = (r.number("vf")?, r.number("return")?);
            r.finish()?;
            let w = &mut device.wanted;
            w.vf = vf.unwrap_or(w.vf);
            w.returned = returned.unwrap_or(w.returned);
            w.boot = boot.unwrap_or(w.boot);
            w.init = init.unwrap_or(w.init);
            w.regular = regular.unwrap_or(w.regular);
            if check && !device.hca.stale {
                let functions = device.hca.pages.functions.values();
                let all: Vec<u64> = functions.flat_map(|f| f.addresses()).collect();
                device.check_pages(&all);
            }
            value(pages(device))
        }
        "page_request" => {
            let function = r.number("function")?.unwrap_or(0);
            let ec = r.number::<u8>("ec")?.unwrap_or(0) != 0;
            let release_all = r.number::<u8>("release_all")?.unwrap_or(0) != 0;
            let npages = r.number::<i32>("npages")?;
            r.finish()?;
            alive(device)?;
            let npages = match npages {
                Some(n) => n,
                None if release_all => 0,
                None => return Err("page_request: npages=... or release_all=1 is missing".into()),
            };
            if !device.request_pages(ec, function, npages, release_all) {
                return Err("no EQ takes page request events (type 0xb)".into());
            }
            value(types::Done {})
        }
        "event" => {
            event(device, &mut r)?;
            r.finish()?;
            value(types::Done {})
        }
        "irq" => {
            let vector: u16 = number(&r.need("vector")?)?;
            let count = r.number::<u32>("count")?.unwrap_or(1).min(MAX_COUNT);
            r.finish()?;
            alive(device)?;
            if vector >= pci::VECTORS {
                return Err(format!("vector {vector}: there are {}", pci::VECTORS));
            }
            (0..count).for_each(|_| device.raise(vector));
            value(types::Done {})
        }
        "initializing" => {
            let (hold, ms) = (r.number::<u8>("hold")?, r.number::<u64>("ms")?);
            r.finish()?;
            device.seg.initializing = match (hold, ms) {
                (None, Some(ms)) => Initializing::Until(Instant::now() + Duration::from_millis(ms)),
                (Some(0), None) => Initializing::Done,
                (Some(_), None) => Initializing::Held,
                _ => return Err("initializing: one of hold=0, hold=1, ms=N".into()),
            };
            value(types::Done {})
        }
        "initseg" => {
            let field = r.need("field")?;
            let new = number(&r.need("value")?)?;
            r.finish()?;
            device.seg.set(&field, new)?;
            value(types::Done {})
        }
        "ones" => {
            let (on, off) = (r.word("on"), r.word("off"));
            if off {
                r.finish()?;
                device.come_back();
                return value(types::Done {});
            }
            let outage = outage(&mut r)?;
            r.finish()?;
            if on == outage.length.is_some() {
                return Err("ones: one of on, off, ms=N".into());
            }
            not_gone(device)?;
            device.fall_silent(outage);
            value(types::Done {})
        }
        "config" => {
            let at: u16 = number(&r.need("at")?)?;
            let new: u16 = number(&r.need("value")?)?;
            r.finish()?;
            device.pci.set(at.into(), new)?;
            value(types::Done {})
        }
        "deaf" => {
            let (on, off) = (r.word("on"), r.word("off"));
            r.finish()?;
            if on == off {
                return Err("deaf: one of on, off".into());
            }
            device.deaf = on;
            value(types::Done {})
        }
        "vanish" => {
            let off = r.word("off");
            r.finish()?;
            if off {
                device.plug();
            } else {
                device.vanish();
            }
            value(types::Done {})
        }
        "fatal" => {
            let fatal = fatal(&mut r)?;
            r.finish()?;
            not_gone(device)?;
            device.fail(fatal);
            value(types::Done {})
        }
        "health" => {
            health(device, &mut r)?;
            r.finish()?;
            value(health_now(device))
        }
        "stale" => {
            let pages: u32 = number(&r.need("pages")?)?;
            let eqs = r.number("eqs")?.unwrap_or(stale::EQS);
            r.finish()?;
            if pages > stale::MAX_PAGES || eqs > stale::MAX_EQS {
                return Err(format!(
                    "stale: at most {} pages and {} EQs",
                    stale::MAX_PAGES,
                    stale::MAX_EQS
                ));
            }
            device.leave_stale(pages, eqs);
            value(types::Done {})
        }
        "tracer" => trace::tracer(device, r),
        "nic_interface" => {
            let text = r.need("delay")?;
            r.finish()?;
            device.nic_delay = match text.as_str() {
                "never" => None,
                ms => Some(Duration::from_millis(
                    number(ms).map_err(|e| format!("delay: {e}; milliseconds, or never"))?,
                )),
            };
            value(types::Done {})
        }
        "software_reset" => {
            let default = SoftwareReset::default();
            let reset = SoftwareReset {
                silent: milliseconds(&mut r, "silent")?.unwrap_or(default.silent),
                initializing: milliseconds(&mut r, "initializing")?.unwrap_or(default.initializing),
                revives: r
                    .number::<u8>("revives")?
                    .map_or(default.revives, |revives| revives != 0),
            };
            r.finish()?;
            device.software_reset = reset;
            value(types::Done {})
        }
        "reset" => {
            r.finish()?;
            device.power_on();
            value(types::Done {})
        }
        "quit" => {
            r.finish()?;
            *after = After::Quit;
            value(types::Done {})
        }
        verb => Err(format!(
            "no verb {verb:?}; there are status, commands, violations, fault, faults, release, cap, \
             pages, page_request, event, irq, initializing, initseg, config, ones, deaf, vanish, \
             fatal, health, stale, nic_interface, software_reset, tracer, reset, quit"
        )),
    }
}

fn not_gone(device: &Device) -> Result<(), String> {
    if device.link == Link::Gone {
        return Err("the device has vanished; vanish off or reset first".into());
    }
    Ok(())
}

/// Whether the device could say something.
pub(super) fn alive(device: &Device) -> Result<(), String> {
    if device.fatal {
        return Err("firmware has died; health clear or a reset of the function first".into());
    }
    if device.on_bus() {
        Ok(())
    } else {
        Err(format!("the device is silent: {}", device.link.name()))
    }
}

fn milliseconds(r: &mut Request, key: &str) -> Result<Option<Duration>, String> {
    Ok(r.number(key)?.map(Duration::from_millis))
}

/// `[ms=N] [config=1] [reset=1 [initializing=N]]`.
fn outage(r: &mut Request) -> Result<Outage, String> {
    let length = milliseconds(r, "ms")?;
    let config = r.number::<u8>("config")?.unwrap_or(0) != 0;
    let reads = r.number("reads")?;
    let reset = r.number::<u8>("reset")?.unwrap_or(0) != 0;
    let initializing = milliseconds(r, "initializing")?;
    if initializing.is_some() && !reset {
        return Err("initializing=N goes with reset=1".into());
    }
    if reads.is_some() && !config {
        return Err("reads=N goes with config=1".into());
    }
    Ok(Outage {
        config,
        length,
        reads,
        reset: reset.then_some(initializing.unwrap_or_default()),
    })
}

/// `[syndrome=N] [ext_syndrome=N] [rfr=0|1] [nic=0|1|7] [reset=MS]`.
fn fatal(r: &mut Request) -> Result<Fatal, String> {
    let default = Fatal::default();
    let syndrome = r.number("syndrome")?.unwrap_or(default.syndrome);
    let nic = r.number("nic")?.unwrap_or(default.nic_interface);
    let known = [
        nic_interface::FULL,
        nic_interface::DISABLED,
        nic_interface::SW_RESET,
    ];
    if !known.contains(&nic) {
        return Err(format!("nic={nic}: not one of {known:?}"));
    }
    Ok(Fatal {
        syndrome,
        ext_syndrome: r.number("ext_syndrome")?.unwrap_or(default.ext_syndrome),
        nic_interface: nic,
        rfr: r.number::<u8>("rfr")?.is_none_or(|rfr| rfr != 0),
        resets_itself: milliseconds(r, "reset")?,
    })
}

fn health(device: &mut Device, r: &mut Request) -> Result<(), String> {
    if r.word("clear") {
        device.recover();
        return Ok(());
    }
    let syndrome = r.number::<u8>("syndrome")?;
    let rfr = r.number::<u8>("rfr")?;
    let severity = r.number::<u8>("severity")?;
    if severity.is_some_and(|s| s > 7) {
        return Err("severity: 0 (emergency) to 7 (debug)".into());
    }
    let period = milliseconds(r, "period")?;
    if period.is_some_and(|period| period.is_zero()) {
        return Err("period: at least a millisecond".into());
    }
    let counter = r.text("counter");
    let to = r.number::<u32>("value")?;
    if to.is_some_and(|v| v > COUNTER_MAX) {
        return Err(format!("value: at most {COUNTER_MAX:#x}"));
    }
    let now = Instant::now();
    let seg = &mut device.seg;
    if let Some(period) = period {
        seg.counter.set_period(period, now);
    }
    match (counter.as_deref(), to) {
        (None, None) => {}
        (Some("run"), None) => seg.counter.run(now),
        (Some("stop"), to) => {
            seg.counter.stop(now);
            if let Some(to) = to {
                seg.counter.jump(to, now);
            }
        }
        (Some("jump"), Some(to)) => seg.counter.jump(to, now),
        _ => return Err("counter: run, stop [value=N], or jump value=N".into()),
    }
    if let Some(syndrome) = syndrome {
        seg.set_health(field!("health_buffer", "synd"), syndrome.into());
        seg.registers.health_syndrome = syndrome;
    }
    if let Some(rfr) = rfr {
        seg.set_health(field!("health_buffer", "rfr"), (rfr != 0).into());
    }
    if let Some(severity) = severity {
        seg.set_health(field!("health_buffer", "valid"), 1);
        seg.set_health(field!("health_buffer", "severity"), severity.into());
    }
    Ok(())
}

fn health_now(device: &Device) -> types::Health {
    let seg = &device.seg;
    let valid = seg.health(field!("health_buffer", "valid")) != 0;
    types::Health {
        fatal: device.fatal,
        syndrome: seg.health(field!("health_buffer", "synd")) as u8,
        rfr: seg.health(field!("health_buffer", "rfr")) != 0,
        severity: valid.then_some(seg.health(field!("health_buffer", "severity")) as u8),
        counter: seg.counter.value(Instant::now()),
        running: seg.counter.is_running(),
        period_ms: seg.counter.period().as_millis() as u64,
        still_us: seg
            .counter
            .still(Instant::now())
            .map(|time| time.as_micros() as u64),
        nic_interface: seg.nic_shown.unwrap_or(seg.nic_interface),
    }
}

fn status(device: &Device, connected: bool) -> types::Status {
    let hca = &device.hca;
    let c = &device.counters;
    types::Status {
        device: device.identity.name.clone(),
        device_id: device.identity.device_id,
        connected,
        link: device.link.name().to_string(),
        state: hca.state,
        stale: hca.stale,
        fatal: device.fatal,
        issi: hca.issi,
        bus_master: device.pci.bus_master(),
        initializing: device.seg.is_initializing(Instant::now()),
        nic_interface: device.seg.nic_shown.unwrap_or(device.seg.nic_interface),
        driver_version: hca.driver_version.clone(),
        pages: pages(device),
        eqs: hca
            .eqs
            .iter()
            .map(|(eqn, eq)| types::Eq {
                eqn: *eqn,
                vector: eq.vector,
                uar: eq.uar,
                size: eq.size(),
                ci: eq.ci,
                pi: eq.pi,
                armed: eq.armed,
                events: (0..=u8::MAX).filter(|kind| eq.takes(*kind)).collect(),
                mask: eq.mask,
                overrun: eq.overrun,
                backlog: eq.backlog.len(),
            })
            .collect(),
        uars: hca.uars.iter().copied().collect(),
        pds: hca.pds.len(),
        mkeys: hca.mkeys.len(),
        transport_domains: hca.transport_domains.len(),
        users: hca.users.uids().collect(),
        vfs: hca.vfs.iter().copied().collect(),
        num_vfs: device.pci.num_vfs(),
        in_flight: device.in_flight(),
        commands: device.log.total(),
        violations: device.checks.count(),
        mmio_reads: c.mmio_reads,
        mmio_writes: c.mmio_writes,
        accesses: c.accesses,
        dma: device.mem.traffic(),
        irqs: c.irqs.clone(),
        irqs_unassigned: c.irqs_unassigned,
        resets: c.resets,
        flrs: c.flrs,
        device_resets: c.device_resets,
        software_resets: c.software_resets,
        nic_disables: c.nic_disables,
        master_clears: c.master_clears,
        stale_dropped: c.stale_dropped,
        events_dropped: c.events_dropped,
        uar_ignored: c.uar_ignored,
        unknown_opcodes: c.unknown_opcodes.clone(),
        dma_maps: device.mem.len(),
    }
}

fn pages(device: &Device) -> types::Pages {
    let pages = &device.hca.pages;
    types::Pages {
        given: pages.total(),
        boot: device.wanted.boot,
        init: device.wanted.init,
        regular: device.wanted.regular,
        vf: device.wanted.vf,
        functions: pages
            .functions
            .iter()
            .map(|(key, f)| types::PageFunction {
                ec: key >> 16 != 0,
                function: *key as u16,
                given: f.given(),
                requested: f.requested,
                returning: f.returning,
                refusals: f.refusals,
            })
            .collect(),
    }
}

fn opcode(text: &str) -> Result<Option<u16>, String> {
    if text == "*" {
        return Ok(None);
    }
    if let Some(opcode) = ifc::opcode(text) {
        return Ok(Some(opcode));
    }
    number(text).map(Some).map_err(|_| {
        format!("op={text}: not *, a number, or a name of mlx5_ifc.h such as ENABLE_HCA")
    })
}

fn fault(r: &mut Request) -> Result<Fault, String> {
    let opcode = opcode(&r.need("op")?)?;
    let op_mod = r.number("op_mod")?;
    let register = r.number("register")?;
    if register.is_some() && opcode != ifc::opcode("ACCESS_REG") {
        return Err("register=N goes with op=ACCESS_REG".into());
    }
    let skip = r.number("skip")?.unwrap_or(0);
    let left = match r.text("count").as_deref() {
        None => Some(1),
        Some("inf") => None,
        Some(n) => Some(number(n).map_err(|e| format!("count: {e}"))?),
    };
    let act = r.need("act")?;
    let after = |r: &mut Request, default| -> Result<Duration, String> {
        Ok(Duration::from_millis(r.number("ms")?.unwrap_or(default)))
    };
    let action = match act.as_str() {
        "status" => {
            let text = r.need("status")?;
            let status = match CommandStatus::by_name(&text) {
                Some(s) => s,
                None => CommandStatus(number(&text).map_err(|_| {
                    format!("status={text}: not a number or a name such as BAD_PARAM")
                })?),
            };
            Action::Status(status, r.number("syndrome")?.unwrap_or(0))
        }
        "never" => Action::Never,
        "stall" => Action::Stall,
        "late" => Action::Late(after(r, 1000)?),
        "delay" => Action::Delay(after(r, 1000)?),
        "twice" => Action::Twice(after(r, 1)?),
        "hold" => Action::Hold,
        "drop_event" => Action::DropEvent,
        "dup_event" => Action::DupEvent,
        "drop_irq" => Action::DropIrq,
        "dup_irq" => Action::DupIrq,
        "bad_token" => Action::BadToken,
        "delivery" => {
            let code: u8 = number(&r.need("delivery")?)?;
            if code > 0x7f {
                return Err(format!("delivery={code:#x}: the field has 7 bits"));
            }
            Action::Delivery(Delivery(code))
        }
        "garbage" => Action::Garbage,
        "patch" => {
            let at = number(&r.need("at")?).map_err(|e| format!("at: {e}"))?;
            let data = unhex(&r.need("data")?)?;
            Action::Patch(
                Patch::new(at, &data)
                    .ok_or_else(|| format!("data: at most {} bytes", Patch::MAX))?,
            )
        }
        "teardown_state_failed" => {
            if opcode != ifc::opcode("TEARDOWN_HCA") {
                return Err("act=teardown_state_failed goes with op=TEARDOWN_HCA".into());
            }
            Action::TeardownFailed
        }
        "ones" => Action::Ones(outage(r)?),
        "vanish" => Action::Vanish,
        "fatal" => Action::Fatal(fatal(r)?),
        "reset" => Action::Reset(after(r, 0)?),
        other => {
            return Err(format!(
            "act={other}: not one of status, never, stall, late, delay, twice, hold, drop_event, \
                 dup_event, drop_irq, dup_irq, bad_token, delivery, garbage, patch, \
                 teardown_state_failed, ones, vanish, fatal, reset"
        ))
        }
    };
    Ok(Fault {
        opcode,
        op_mod,
        register,
        skip,
        left,
        action,
        hits: 0,
    })
}

fn event(device: &mut Device, r: &mut Request) -> Result<(), String> {
    let kind: u8 = number(&r.need("type")?)?;
    let subtype = r.number("subtype")?.unwrap_or(0);
    let hex = r.text("data").unwrap_or_default();
    let data = unhex(&hex)?;
    if data.len() > DATA_SIZE {
        return Err(format!(
            "data: {} bytes, an event has {DATA_SIZE}",
            data.len()
        ));
    }
    let count = r.number::<u32>("count")?.unwrap_or(1);
    if count > MAX_COUNT {
        return Err(format!("count={count}: at most {MAX_COUNT}"));
    }
    alive(device)?;
    let eqn = match r.number::<u8>("eqn")? {
        Some(eqn) => eqn,
        None => device
            .eq_for(kind)
            .ok_or_else(|| format!("no EQ takes events of type {kind:#x}"))?,
    };
    let eq = device
        .hca
        .eqs
        .get_mut(&eqn)
        .ok_or_else(|| format!("no EQ {eqn}"))?;
    let event = Event::new(kind, subtype, &data);
    eq.backlog
        .extend(std::iter::repeat_n(event, count as usize));
    device.drain_backlog(eqn);
    Ok(())
}

fn unhex(text: &str) -> Result<Vec<u8>, String> {
    let bad = || format!("data={text}: not pairs of hexadecimal digits");
    if !text.is_ascii() || text.len() % 2 != 0 {
        return Err(bad());
    }
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).map_err(|_| bad()))
        .collect()
}
