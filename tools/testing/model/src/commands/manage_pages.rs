// SPDX-License-Identifier: GPL-2.0

//! QUERY_PAGES and MANAGE_PAGES (hardware.md section 2.5).

use crate::checks::Rule;
use crate::cmdif::status::Failure;
use crate::cmdif::status::Status;
use crate::cmdif::status::Syndrome;
use crate::cmdif::Request;
use crate::device::Device;
use crate::device::Irq;
use crate::device::State;
use crate::eq::event;
use crate::eq::Event;
use crate::field;
use crate::ifc;
use crate::pages;

use super::input;
use super::Outcome;

/// op_mods of QUERY_PAGES.
mod query_op {
    pub const BOOT: u16 = 1;
    pub const INIT: u16 = 2;
}

/// op_mods of MANAGE_PAGES.
mod manage_op {
    pub const CANNOT_GIVE: u16 = 0;
    pub const GIVE: u16 = 1;
}

/// Flags of a page request event.
const EVENT_EC_FUNCTION: u16 = 1 << 15;
const EVENT_RELEASE_ALL: u16 = 1 << 14;

/// Bytes of a page address in the commands.
const PA: usize = 8;

pub fn query(device: &mut Device, request: &Request, out: &mut [u8]) -> Outcome {
    let ec = input(request, field!("query_pages_in", "embedded_cpu_function"));
    let id = input(request, field!("query_pages_in", "function_id"));
    let key = function(device, "QUERY_PAGES", ec, id)?;
    let wanted = device.wanted;
    let have = device.own_pages();
    // A negative number in the configuration goes out as it is.
    let missing = |want: i32, before: i32| match want {
        0.. => i64::from(want + before.max(0)).saturating_sub(have).max(0),
        _ => i64::from(want),
    };
    let count = match (device.hca.state, request.op_mod) {
        (State::TornDown, _) => 0,
        _ if key != device.own_key() => 0,
        (_, query_op::BOOT) => missing(wanted.boot, 0),
        (_, query_op::INIT) => missing(wanted.init, wanted.boot),
        _ => i64::from(wanted.regular),
    };
    let f = device.hca.pages.functions.entry(key).or_default();
    if count >= 0 {
        f.requested = f.requested.max(count);
    } else {
        f.returning = f.returning.max(-count);
    }
    ifc::set(out, field!("query_pages_out", "embedded_cpu_function"), ec);
    ifc::set(out, field!("query_pages_out", "function_id"), id);
    ifc::set(
        out,
        field!("query_pages_out", "num_pages"),
        u64::from(count as u32),
    );
    Ok(())
}

fn function(device: &mut Device, what: &str, ec: u64, id: u64) -> Result<u32, Failure> {
    device.page_function(ec != 0, id as u16).ok_or_else(|| {
        let detail = format!("{what}: function_id {id:#x}, embedded_cpu_function {ec}");
        device.checks.violate(Rule::UnknownObject, detail);
        Failure::parameter(Syndrome::Function)
    })
}

pub fn manage(device: &mut Device, request: &Request, out: &mut [u8]) -> Outcome {
    let ec = input(request, field!("manage_pages_in", "embedded_cpu_function"));
    let id = input(request, field!("manage_pages_in", "function_id"));
    let key = function(device, "MANAGE_PAGES", ec, id)?;
    let count = input(request, field!("manage_pages_in", "input_num_entries")) as usize;
    match request.op_mod {
        manage_op::CANNOT_GIVE => {
            let f = device.hca.pages.functions.entry(key).or_default();
            f.refusals += 1;
            f.requested = 0;
            Ok(())
        }
        manage_op::GIVE => give(device, request, key, count),
        _ => take(device, key, count, out),
    }
}

fn give(device: &mut Device, request: &Request, key: u32, count: usize) -> Outcome {
    let id = key as u16;
    if (1..=device.identity.total_vfs).contains(&id) && !device.hca.vfs.contains(&id) {
        // What it asked for while it was enabled comes too late, which is nobody's mistake.
        if let Some(f) = device.hca.pages.functions.get_mut(&key) {
            f.requested = 0;
        }
        return Err(Failure::new(Status::BAD_RES_STATE_ERR, Syndrome::Function));
    }
    let at = field!("manage_pages_in", "pas").byte();
    let addresses = &request.input[at.min(request.input.len())..];
    if addresses.len() != count.saturating_mul(PA) {
        let detail = format!("MANAGE_PAGES: {count} entries in {} bytes", addresses.len());
        device.checks.violate(Rule::Length, detail);
        return Err(Failure::new(Status::BAD_INP_LEN_ERR, Syndrome::InLength));
    }
    let given: Vec<u64> = addresses
        .chunks_exact(PA)
        .map(|pa| u64::from_be_bytes(pa.try_into().unwrap_or_default()))
        .collect();
    // All or nothing, so all of them are looked at first.
    let mut bad = None;
    let mut seen = std::collections::BTreeSet::new();
    for &page in &given {
        let (rule, why) = if page == 0 || page % pages::SIZE as u64 != 0 {
            (Rule::PageAddress, "misaligned or 0".to_string())
        } else if let Some(owner) = device.hca.pages.owner(page) {
            (
                Rule::PageTwice,
                format!("function {owner:#x} has it already"),
            )
        } else if !seen.insert(page) {
            (Rule::PageTwice, "twice in one command".to_string())
        } else if let Err(e) = device.mem.check(page, pages::SIZE, true) {
            (Rule::DmaUnmapped, e.to_string())
        } else if let Some(what) = device.in_use(page) {
            (Rule::PageReused, what)
        } else {
            continue;
        };
        device
            .checks
            .violate(rule, format!("page {page:#x} given: {why}"));
        bad = Some(Failure::parameter(Syndrome::Page));
    }
    if let Some(failure) = bad {
        return Err(failure);
    }
    let f = device.hca.pages.functions.entry(key).or_default();
    if count as i64 > f.requested {
        let detail = format!("{count} pages given, {} requested", f.requested);
        device.checks.violate(Rule::PageNotRequested, detail);
    }
    f.requested = (f.requested - count as i64).max(0);
    for page in given {
        f.add(page);
        // Checked above.
        let _ = device.mem.write(page, &pages::pattern(page));
    }
    Ok(())
}

fn take(device: &mut Device, key: u32, count: usize, out: &mut [u8]) -> Outcome {
    let at = field!("manage_pages_out", "pas").byte();
    let room = out.len().saturating_sub(at) / PA;
    if count > room {
        let detail = format!("MANAGE_PAGES: {count} pages to take, room for {room}");
        device.checks.violate(Rule::Length, detail);
        return Err(Failure::new(Status::BAD_OUTP_LEN_ERR, Syndrome::OutLength));
    }
    let initialized = device.hca.state == State::Initialized;
    let returned = device.wanted.returned as usize;
    let f = device.hca.pages.functions.entry(key).or_default();
    // A running device only gives back what it has offered.
    let most = if initialized {
        f.returning.max(0) as usize
    } else {
        usize::MAX
    };
    let taken = f.take(count.min(most).min(returned));
    f.returning = (f.returning - taken.len() as i64).max(0);
    device.check_pages(&taken);
    for (place, page) in out[at..].chunks_exact_mut(PA).zip(&taken) {
        place.copy_from_slice(&page.to_be_bytes());
    }
    ifc::set(
        out,
        field!("manage_pages_out", "output_num_entries"),
        taken.len() as u64,
    );
    Ok(())
}

impl Device {
    /// Compares pages that the device owns with what it keeps in them.
    pub(crate) fn check_pages(&mut self, list: &[u64]) {
        for &page in list {
            match pages::verify(&self.mem, page) {
                Ok(None) => {}
                Ok(Some(offset)) => {
                    let detail = format!("page {page:#x} changed at offset {offset:#x}");
                    self.checks.violate(Rule::PageTouched, detail);
                }
                Err(e) => self
                    .checks
                    .violate(Rule::PageUnmapped, format!("page {page:#x}: {e}")),
            }
        }
    }

    /// What else the driver uses the page for, as far as the device knows.
    fn in_use(&self, page: u64) -> Option<String> {
        if self.seg.cmdq() == Some(page) {
            return Some("the command queue is there".into());
        }
        self.hca.eqs.iter().find_map(|(eqn, eq)| {
            let size = 1u64 << eq.log_page_size;
            eq.pages
                .iter()
                .any(|p| page < p.saturating_add(size) && *p < page + pages::SIZE as u64)
                .then(|| format!("EQ {eqn} is there"))
        })
    }

    /// Posts a page request event. Returns whether an EQ takes it.
    pub(crate) fn request_pages(
        &mut self,
        ec: bool,
        id: u16,
        npages: i32,
        release_all: bool,
    ) -> bool {
        let Some(eqn) = self.eq_for(event::PAGE_REQUEST) else {
            self.counters.events_dropped += 1;
            return false;
        };
        let key = self.page_function(ec, id).unwrap_or(pages::key(ec, id));
        let f = self.hca.pages.functions.entry(key).or_default();
        if release_all {
            // The driver frees them without a command: they are its own from here on.
            let all: Vec<u64> = f.take(usize::MAX);
            f.requested = 0;
            f.returning = 0;
            self.check_pages(&all);
        } else if npages > 0 {
            f.requested += i64::from(npages);
        } else {
            f.returning -= i64::from(npages);
        }
        let flags = if ec { EVENT_EC_FUNCTION } else { 0 }
            | if release_all { EVENT_RELEASE_ALL } else { 0 };
        let mut data = [0; 8];
        data[0..2].copy_from_slice(&flags.to_be_bytes());
        data[2..4].copy_from_slice(&id.to_be_bytes());
        data[4..8].copy_from_slice(&npages.to_be_bytes());
        self.post_event(eqn, &Event::new(event::PAGE_REQUEST, 0, &data), Irq::Once);
        true
    }
}
