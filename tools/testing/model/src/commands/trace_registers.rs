// SPDX-License-Identifier: GPL-2.0

//! Registers of the firmware tracer, and the one that provokes traces (hardware.md section 4).

use std::time::Instant;

use crate::checks::Rule;
use crate::cmdif::status::Failure;
use crate::cmdif::status::Status;
use crate::cmdif::status::Syndrome;
use crate::device::Device;
use crate::field;
use crate::ifc;
use crate::mkey::Mkey;
use crate::tracer;
use crate::tracer::strings;
use crate::tracer::Buffer;
use crate::tracer::Owner;

use super::registers::id;
use super::Outcome;

/// `trace_mode`: to memory.
const TO_MEMORY: u64 = 1;

/// Bit of `modify_field_select`: `trace_status`.
const SELECT_STATUS: u64 = 1;

/// `trace_status`: on.
const STATUS_ON: u64 = 1;

/// Reads or writes one of them; `reply` has room for it.
pub fn access(
    device: &mut Device,
    number: u64,
    write: bool,
    data: &[u8],
    reply: &mut [u8],
) -> Outcome {
    match number {
        id::CORE_DUMP => core_dump(device, data),
        id::MTRC_CAP => {
            if write {
                device.check_trace_reserved("MTRC_CAP", "mtrc_cap", data);
                let owner = ifc::get(data, field!("mtrc_cap", "trace_owner"));
                own(device, owner != 0);
            }
            capabilities(device, reply);
            Ok(())
        }
        id::MTRC_CONF => {
            if write {
                configure(device, data)?;
            }
            let buffer = device.tracer.session.buffer.unwrap_or_default();
            ifc::set(reply, field!("mtrc_conf", "trace_mode"), buffer.mode.into());
            ifc::set(
                reply,
                field!("mtrc_conf", "log_trace_buffer_size"),
                buffer.log_size.into(),
            );
            ifc::set(reply, field!("mtrc_conf", "trace_mkey"), buffer.mkey.into());
            Ok(())
        }
        id::MTRC_CTRL => {
            if write {
                control(device, data)?;
            }
            let session = &device.tracer.session;
            let status = if session.running { STATUS_ON } else { 0 };
            ifc::set(reply, field!("mtrc_ctrl", "trace_status"), status);
            ifc::set(
                reply,
                field!("mtrc_ctrl", "arm_event"),
                session.armed.into(),
            );
            let time = device.tracer.time(Instant::now());
            ifc::set(
                reply,
                field!("mtrc_ctrl", "current_timestamp52_32"),
                time >> 32,
            );
            ifc::set(reply, field!("mtrc_ctrl", "current_timestamp31_0"), time);
            Ok(())
        }
        // Upstream writes it to read; a tool may read it.
        _ => read_strings(device, data, reply),
    }
}

/// The driver asks for the tracer, or gives it back.
fn own(device: &mut Device, want: bool) {
    let tracer = &mut device.tracer;
    let session = &mut tracer.session;
    if !want {
        if session.owner == Owner::Driver {
            session.owner = Owner::Nobody;
            tracer.stop();
        }
        return;
    }
    tracer.counters.requests += 1;
    let reason = session.reasons > 0;
    session.reasons = session.reasons.saturating_sub(1);
    match session.owner {
        Owner::Driver if !reason => {
            let detail = "MTRC_CAP: trace_owner is set again without an event";
            device.checks.violate(Rule::TraceOwnerAgain, detail);
        }
        Owner::Driver => {}
        Owner::Nobody if !tracer.setup.deny => session.owner = Owner::Driver,
        Owner::Nobody | Owner::Tool => tracer.counters.refused += 1,
    }
}

fn capabilities(device: &mut Device, reply: &mut [u8]) {
    let tracer = &mut device.tracer;
    let setup = &tracer.setup;
    let owner = tracer.session.owner == Owner::Driver;
    tracer.session.told = owner;
    let sections = &tracer.strings.sections;
    for (bits, value) in [
        (field!("mtrc_cap", "trace_owner"), owner.into()),
        (
            field!("mtrc_cap", "trace_to_memory"),
            setup.to_memory.into(),
        ),
        (field!("mtrc_cap", "trc_ver"), setup.version.into()),
        (field!("mtrc_cap", "num_string_db"), sections.len() as u64),
        (
            field!("mtrc_cap", "first_string_trace"),
            setup.script.first_id.into(),
        ),
        (
            field!("mtrc_cap", "num_string_trace"),
            setup.script.ids.into(),
        ),
        (
            field!("mtrc_cap", "log_max_trace_buffer_size"),
            setup.log_max_size.into(),
        ),
    ] {
        ifc::set(reply, bits, value);
    }
    let place = field!("mtrc_cap", "string_db_param");
    for (i, section) in sections.iter().enumerate().take(strings::SECTIONS) {
        let at = place.element(i as u32).byte() as u32;
        let base = field!("mtrc_string_db_param", "string_db_base_address");
        let size = field!("mtrc_string_db_param", "string_db_size");
        ifc::set(reply, base.shifted(at), section.base.into());
        ifc::set(reply, size.shifted(at), section.data.len() as u64);
    }
}

fn configure(device: &mut Device, data: &[u8]) -> Outcome {
    device.check_trace_reserved("MTRC_CONF", "mtrc_conf", data);
    device.check_trace_owner("MTRC_CONF")?;
    if device.tracer.session.running {
        let detail = "MTRC_CONF while traces are written";
        device.checks.violate(Rule::Order, detail);
        return Err(Failure::new(
            Status::BAD_RES_STATE_ERR,
            Syndrome::TraceBuffer,
        ));
    }
    let mode = ifc::get(data, field!("mtrc_conf", "trace_mode"));
    if mode != TO_MEMORY || !device.tracer.setup.to_memory {
        return Err(device.bad_parameter(format!("MTRC_CONF: trace_mode {mode}")));
    }
    let log_size = ifc::get(data, field!("mtrc_conf", "log_trace_buffer_size")) as u8;
    let mkey = ifc::get(data, field!("mtrc_conf", "trace_mkey")) as u32;
    let mut buffer = Buffer {
        mode: mode as u8,
        log_size,
        mkey,
        start: 0,
    };
    buffer.start = device.check_buffer(&buffer, "MTRC_CONF")?;
    device.tracer.session.buffer = Some(buffer);
    Ok(())
}

fn control(device: &mut Device, data: &[u8]) -> Outcome {
    device.check_trace_reserved("MTRC_CTRL", "mtrc_ctrl", data);
    device.check_trace_owner("MTRC_CTRL")?;
    let select = ifc::get(data, field!("mtrc_ctrl", "modify_field_select"));
    let status = ifc::get(data, field!("mtrc_ctrl", "trace_status"));
    if select & !SELECT_STATUS != 0 {
        return Err(device.bad_parameter(format!("MTRC_CTRL: modify_field_select {select:#x}")));
    }
    if status > STATUS_ON {
        return Err(device.bad_parameter(format!("MTRC_CTRL: trace_status {status}")));
    }
    if select & SELECT_STATUS != 0 {
        switch(device, status == STATUS_ON)?;
    }
    if ifc::get(data, field!("mtrc_ctrl", "arm_event")) != 0 {
        device.arm_trace_event();
    }
    Ok(())
}

/// Sets `trace_status`.
fn switch(device: &mut Device, on: bool) -> Outcome {
    if !on {
        device.tracer.stop();
        return Ok(());
    }
    let Some(buffer) = device.tracer.session.buffer else {
        let detail = "MTRC_CTRL: tracing is enabled before MTRC_CONF";
        device.checks.violate(Rule::Order, detail);
        return Err(Failure::new(
            Status::BAD_RES_STATE_ERR,
            Syndrome::TraceBuffer,
        ));
    };
    device.check_buffer(&buffer, "MTRC_CTRL")?;
    device.tracer.start();
    Ok(())
}

fn read_strings(device: &mut Device, data: &[u8], reply: &mut [u8]) -> Outcome {
    device.check_trace_reserved("MTRC_STDB", "mtrc_stdb", data);
    let index = ifc::get(data, field!("mtrc_stdb", "string_db_index"));
    let size = ifc::get(data, field!("mtrc_stdb", "read_size")) as usize;
    let offset = ifc::get(data, field!("mtrc_stdb", "start_offset")) as usize;
    let at = field!("mtrc_stdb", "string_db_data").byte();
    if size % strings::UNIT != 0 || offset % strings::UNIT != 0 || size == 0 {
        let detail = format!("MTRC_STDB: {size:#x} bytes from {offset:#x}");
        return Err(device.bad_parameter(detail));
    }
    let Some(bytes) = device.tracer.strings.read(index as usize, offset, size) else {
        let detail = format!("MTRC_STDB: section {index} does not have {offset:#x} + {size:#x}");
        return Err(device.bad_parameter(detail));
    };
    let Some(place) = reply.get_mut(at..at + size) else {
        let detail = format!(
            "MTRC_STDB: room for {} bytes, read_size is {size:#x}",
            reply.len().saturating_sub(at)
        );
        device.checks.violate(Rule::Length, detail);
        return Err(Failure::parameter(Syndrome::RegisterLength));
    };
    place.copy_from_slice(bytes);
    reply[..at].copy_from_slice(&data[..at]);
    device.tracer.counters.string_bytes += size as u64;
    Ok(())
}

/// Firmware dumps its state into the trace.
fn core_dump(device: &mut Device, data: &[u8]) -> Outcome {
    device.check_trace_reserved("CORE_DUMP", "core_dump_reg", data);
    let kind = ifc::get(data, field!("core_dump_reg", "core_dump_type"));
    if kind != 0 {
        return Err(device.bad_parameter(format!("CORE_DUMP: type {kind:#x}")));
    }
    device.trace_core_dump();
    Ok(())
}

impl Device {
    fn check_trace_reserved(&mut self, name: &str, structure: &str, data: &[u8]) {
        let Some(layout) = ifc::layout(structure) else {
            return;
        };
        let reserved = ifc::reserved_set(layout, data);
        if !reserved.is_empty() {
            let detail = format!("{name}: {}", reserved.join(", "));
            self.checks.violate(Rule::Reserved, detail);
        }
    }

    /// Refuses what only the owner may do. A driver that has lost the tracer, and could not know,
    /// is not to blame.
    fn check_trace_owner(&mut self, name: &str) -> Outcome {
        let session = &self.tracer.session;
        if session.owner == Owner::Driver {
            return Ok(());
        }
        if !session.told {
            let detail = format!("{name}: the owner is {:?}", session.owner);
            self.checks.violate(Rule::TraceNotOwner, detail);
        }
        Err(Failure::new(
            Status::BAD_RES_STATE_ERR,
            Syndrome::TraceOwner,
        ))
    }

    /// Whether the device may use this buffer; its first address in the mkey.
    fn check_buffer(&mut self, buffer: &Buffer, name: &str) -> Result<u64, Failure> {
        let most = self.tracer.setup.log_max_size;
        let Ok(mkey) = self.mkey(buffer.mkey) else {
            let what = format!("{name}: trace_mkey {:#x}", buffer.mkey);
            return Err(self.no_object(what));
        };
        let wrong = if buffer.log_size > most {
            let log_size = buffer.log_size;
            Some(format!("log_trace_buffer_size {log_size}, at most {most}"))
        } else {
            wrong_with(mkey, tracer::UNIT << buffer.log_size, &self.hca.pds)
        };
        let start = mkey.start;
        match wrong {
            None => Ok(start),
            Some(what) => {
                let detail = format!("{name}: mkey {:#x}: {what}", buffer.mkey);
                self.checks.violate(Rule::TraceBuffer, detail);
                Err(Failure::parameter(Syndrome::TraceBuffer))
            }
        }
    }
}

/// What a trace buffer's mkey must not be. Indirect keys do not exist here.
fn wrong_with(mkey: &Mkey, size: u64, pds: &std::collections::BTreeSet<u32>) -> Option<String> {
    for (bits, wanted, what) in [
        (field!("mkc", "free"), false, "is free"),
        (field!("mkc", "lw"), true, "has no local write"),
        (field!("mkc", "umr_en"), false, "is UMR-capable"),
        (field!("mkc", "bsf_en"), false, "has a signature"),
        (field!("mkc", "en_rinval"), false, "may be invalidated"),
    ] {
        if mkey.has(bits) != wanted {
            return Some(what.into());
        }
    }
    if !pds.contains(&mkey.pd) {
        return Some(format!("is of PD {}, which does not exist", mkey.pd));
    }
    let Some(len) = mkey.len else {
        return Some("has no end".into());
    };
    if mkey.start % tracer::UNIT != 0 || len % tracer::UNIT != 0 {
        return Some(format!(
            "starts at {:#x} and has {len:#x} bytes, not multiples of {}",
            mkey.start,
            tracer::UNIT
        ));
    }
    if len < size {
        return Some(format!("has {len:#x} bytes, the buffer {size:#x}"));
    }
    None
}
