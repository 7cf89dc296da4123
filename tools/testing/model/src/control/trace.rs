// SPDX-License-Identifier: GPL-2.0

//! The verb `tracer`.

use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use serde_json::Value;

use crate::device::Device;
use crate::tracer::event::TIMESTAMP_ID;
use crate::tracer::event::TIME_MASK;
use crate::tracer::strings::Size;
use crate::tracer::traffic::Traffic;
use crate::tracer::traffic::MAX_INTERLEAVE;
use crate::tracer::Owner;

use super::request::number;
use super::request::Request;
use super::types;
use super::verbs::alive;
use super::verbs::value;

/// Shares are in so many.
const WHOLE: u16 = 1000;

/// `tracer [WORD] [values]`.
pub fn tracer(device: &mut Device, mut r: Request) -> Result<Value, String> {
    if r.word("config") {
        configure(device, r)?;
    } else if r.word("write") {
        let traffic = traffic(&mut r)?;
        r.finish()?;
        device.tracer.set_traffic(Some(traffic));
    } else if r.word("stop") {
        r.finish()?;
        device.tracer.set_traffic(None);
    } else if r.word("flush") {
        r.finish()?;
        alive(device)?;
        device.flush_traces(Instant::now());
        device.tracer.truth.flush();
    } else if r.word("take") {
        own(device, Owner::Tool, r)?;
    } else if r.word("give") {
        own(device, Owner::Nobody, r)?;
    } else if r.word("deny") {
        let deny = match (r.word("on"), r.word("off")) {
            (true, false) => true,
            (false, true) => false,
            _ => return Err("tracer deny: one of on, off".into()),
        };
        r.finish()?;
        device.tracer.setup.deny = deny;
    } else if r.word("update") {
        let size = size(&mut r)?.unwrap_or(device.tracer.setup.size);
        let event = flag(&mut r, "event")?.unwrap_or(true);
        r.finish()?;
        device.renew_strings(size, event);
    } else if r.word("log") {
        let path = r.need("path")?;
        r.finish()?;
        let log = device.tracer.truth.log_to(Path::new(&path));
        log.map_err(|e| format!("{path}: {e}"))?;
    } else if r.word("list") {
        let since = r.number("since")?.unwrap_or(0);
        r.finish()?;
        let truth = &device.tracer.truth;
        let (first, entries) = truth.since(since, types::TraceList::MAX);
        return value(types::TraceList {
            total: truth.total(),
            first,
            entries,
        });
    } else {
        r.finish()?;
    }
    value(state(device))
}

fn flag(r: &mut Request, key: &str) -> Result<Option<bool>, String> {
    Ok(r.number::<u8>(key)?.map(|n| n != 0))
}

/// A share in [`WHOLE`].
fn share(r: &mut Request, key: &str) -> Result<Option<u16>, String> {
    match r.number::<u16>(key)? {
        Some(n) if n > WHOLE => Err(format!("{key}: at most {WHOLE}, a share per thousand")),
        n => Ok(n),
    }
}

fn size(r: &mut Request) -> Result<Option<Size>, String> {
    r.text("db")
        .map(|t| Size::by_name(&t).ok_or(format!("db={t}: small or large")))
        .transpose()
}

fn own(device: &mut Device, owner: Owner, mut r: Request) -> Result<(), String> {
    let event = flag(&mut r, "event")?.unwrap_or(true);
    r.finish()?;
    alive(device)?;
    device.own_tracer(owner, event);
    Ok(())
}

fn configure(device: &mut Device, mut request: Request) -> Result<(), String> {
    let tracer = &mut device.tracer;
    let r = &mut request;
    let mut setup = tracer.setup;
    let set = |to: &mut bool, from: Option<bool>| *to = from.unwrap_or(*to);
    set(&mut setup.present, flag(r, "present")?);
    set(&mut setup.to_memory, flag(r, "to_memory")?);
    set(&mut setup.eager, flag(r, "eager")?);
    set(&mut setup.script.more, flag(r, "more")?);
    if let Some(version) = r.number::<u8>("ver")? {
        if version > 3 {
            return Err("ver: the field has 2 bits".into());
        }
        setup.version = version;
    }
    setup.log_max_size = r.number("log_max")?.unwrap_or(setup.log_max_size);
    setup.lose_events = r.number("lose_events")?.unwrap_or(setup.lose_events);
    setup.double_events = r.number("double_events")?.unwrap_or(setup.double_events);
    let script = &mut setup.script;
    script.seed = r.number("seed")?.unwrap_or(script.seed);
    script.first_id = r.number("first")?.unwrap_or(script.first_id);
    script.ids = r.number("ids")?.unwrap_or(script.ids);
    let end = u16::from(script.first_id) + u16::from(script.ids);
    // At least one id is left for other events.
    if script.ids == 0 || end >= TIMESTAMP_ID.into() {
        return Err(format!(
            "first and ids: at least one id, all below {TIMESTAMP_ID:#x}, and one left over"
        ));
    }
    script.raw = share(r, "raw")?.unwrap_or(script.raw);
    script.hostile = share(r, "hostile")?.unwrap_or(script.hostile);
    let time = r.number::<u64>("time")?;
    if time.is_some_and(|t| t > TIME_MASK) {
        return Err("time: the counter has 53 bits".into());
    }
    let size = size(r)?;
    request.finish()?;
    if tracer.session.running && (time.is_some() || setup.script != tracer.setup.script) {
        return Err(
            "traces are being written: time, seed, first, ids, more, raw and hostile must wait"
                .into(),
        );
    }
    tracer.setup = setup;
    if let Some(time) = time {
        tracer.set_time(time);
    }
    if let Some(size) = size {
        tracer.renew_strings(size);
    }
    Ok(())
}

/// What `tracer write` asks for.
fn traffic(r: &mut Request) -> Result<Traffic, String> {
    let default = Traffic::default();
    let rate = match r.need("rate")?.as_str() {
        "max" => None,
        n => Some(
            number::<u64>(n)
                .ok()
                .filter(|n| *n > 0)
                .ok_or("rate: traces per second, or max")?,
        ),
    };
    let left = match r.text("count").as_deref() {
        None | Some("inf") => None,
        Some(n) => Some(number(n).map_err(|e| format!("count: {e}"))?),
    };
    let interleave = r.number("interleave")?.unwrap_or(default.interleave);
    if !(1..=MAX_INTERLEAVE).contains(&interleave) {
        return Err(format!("interleave: 1 to {MAX_INTERLEAVE}"));
    }
    let hold = r.number("hold")?.map(Duration::from_micros);
    let flush = match r.text("flush").as_deref() {
        None => default.flush,
        Some("never") => None,
        Some(ms) => {
            Some(Duration::from_millis(number(ms).map_err(|e| {
                format!("flush: {e}; milliseconds, or never")
            })?))
        }
    };
    Ok(Traffic {
        rate,
        left,
        interleave,
        torn: share(r, "torn")?.unwrap_or(default.torn),
        hold: hold.unwrap_or(default.hold),
        lost: share(r, "lost")?.unwrap_or(default.lost),
        cut: share(r, "cut")?.unwrap_or(default.cut),
        unreliable: share(r, "unreliable")?.unwrap_or(default.unreliable),
        flush,
    })
}

fn state(device: &Device) -> types::Tracer {
    let tracer = &device.tracer;
    let session = &tracer.session;
    let setup = &tracer.setup;
    let buffer = session.buffer;
    types::Tracer {
        present: setup.present,
        to_memory: setup.to_memory,
        ver: setup.version,
        log_max: setup.log_max_size,
        eager: setup.eager,
        db: setup.size.name().into(),
        sections: tracer
            .strings
            .sections
            .iter()
            .map(|s| (s.base, s.data.len() as u32))
            .collect(),
        script: types::TraceScript {
            seed: setup.script.seed,
            first: setup.script.first_id,
            ids: setup.script.ids,
            more: setup.script.more,
            raw: setup.script.raw,
            hostile: setup.script.hostile,
        },
        deny: setup.deny,
        owner: session.owner,
        running: session.running,
        armed: session.armed,
        mkey: buffer.map(|b| b.mkey),
        log_size: buffer.map(|b| b.log_size),
        block: tracer.block(),
        time: tracer.time(Instant::now()) & TIME_MASK,
        total: tracer.truth.total(),
        left: tracer.traffic.and_then(|t| t.left),
        writing: tracer.traffic.is_some_and(|t| t.left != Some(0)),
        interleave: tracer.traffic.unwrap_or_default().interleave,
        counters: tracer.counters,
        log_error: tracer.truth.error.clone(),
    }
}
