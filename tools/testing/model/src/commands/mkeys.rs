// SPDX-License-Identifier: GPL-2.0

//! Commands of memory keys (hardware.md section 10.1).

use crate::checks::Rule;
use crate::cmdif::status::Failure;
use crate::cmdif::status::Status;
use crate::cmdif::status::Syndrome;
use crate::cmdif::Request;
use crate::device::Device;
use crate::field;
use crate::ifc;
use crate::ifc::Bits;
use crate::mkey;
use crate::mkey::Mkey;
use crate::mkey::Translation;
use crate::users::Object;

use super::input;
use super::Outcome;

/// First index. Own choice: those before it are the device's.
pub const FIRST: u32 = 0x10;

/// Access modes (`access_mode_4_2 || access_mode_1_0`).
mod access_mode {
    pub const PHYSICAL: u64 = 0;
    pub const MTT: u64 = 1;
}

/// `qpn` of a key that every queue pair may use.
const ANY_QP: u64 = 0xff_ffff;

/// Bits of an MTT below the page that say what is allowed, if `pg_access` is set.
const MTT_FLAGS: u64 = 3;

/// A number of the context in CREATE_MKEY.
fn context(request: &Request, bits: Bits) -> u64 {
    let at = field!("create_mkey_in", "memory_key_mkey_entry").byte();
    input(request, bits.shifted(at as u32))
}

pub fn create(device: &mut Device, request: &Request, out: &mut [u8]) -> Outcome {
    let mkey = parse(device, request)?;
    let log_max = device.caps.general(field!("cmd_hca_cap", "log_max_mkey"));
    let end = (1u64 << log_max).min(u64::from(mkey::MAX_INDEX) + 1) as u32;
    let index = device
        .hca
        .next_mkey(FIRST, end)
        .ok_or(Failure::new(Status::NO_RES_ERR, Syndrome::Exhausted))?;
    device.hca.mkeys.insert(index, mkey);
    device.hca.users.own(Object::Mkey(index), request.uid);
    ifc::set(out, field!("create_mkey_out", "mkey_index"), index.into());
    Ok(())
}

fn parse(device: &mut Device, request: &Request) -> Result<Mkey, Failure> {
    let get = |bits| context(request, bits);
    check_capabilities(device, request)?;
    let bad = |device: &mut Device, what: String| {
        Err(device.bad_parameter(format!("CREATE_MKEY: {what}")))
    };
    let pd = get(field!("mkc", "pd")) as u32;
    if !device.hca.pds.contains(&pd) {
        return Err(device.no_object(format!("CREATE_MKEY: pd {pd}")));
    }
    device.check_owner("CREATE_MKEY", request, Object::Pd(pd))?;
    let qpn = get(field!("mkc", "qpn"));
    if qpn != ANY_QP {
        return bad(device, format!("qpn {qpn:#x}, expected {ANY_QP:#x}"));
    }
    let flag = |bits| get(bits) != 0;
    if (flag(field!("mkc", "rw")) || flag(field!("mkc", "a"))) && !flag(field!("mkc", "lw")) {
        return bad(device, "remote write or atomic without local write".into());
    }
    if flag(field!("mkc", "free")) && !flag(field!("mkc", "umr_en")) {
        return bad(device, "free without umr_en: nothing could fill it".into());
    }
    for (name, bits) in [
        ("ma_translation_mode", field!("mkc", "ma_translation_mode")),
        (
            "expected_sigerr_count",
            field!("mkc", "expected_sigerr_count"),
        ),
        (
            "crossing_target_vhca_id",
            field!("mkc", "crossing_target_vhca_id"),
        ),
    ] {
        if flag(bits) {
            return bad(device, format!("{name} {:#x}, expected 0", get(bits)));
        }
    }
    let bsf = get(field!("mkc", "bsf_octword_size"));
    if bsf != 0 && !flag(field!("mkc", "bsf_en")) {
        return bad(device, format!("bsf_octword_size {bsf} without bsf_en"));
    }
    let start = get(field!("mkc", "start_addr"));
    let len = match (flag(field!("mkc", "length64")), get(field!("mkc", "len"))) {
        (true, 0) => None,
        (true, len) => return bad(device, format!("len {len:#x} with length64")),
        (false, len) => Some(len),
    };
    if len.is_some_and(|len| start.checked_add(len).is_none()) {
        return bad(device, format!("{start:#x} and {len:x?} bytes overflow"));
    }
    let mode = get(field!("mkc", "access_mode_4_2")) << 2 | get(field!("mkc", "access_mode_1_0"));
    let translation = match mode {
        access_mode::PHYSICAL => physical(device, request)?,
        access_mode::MTT => pages(device, request, start, len)?,
        // KLM, KSM, SW_ICM and so on: no capability announces them.
        _ => {
            device.checks.violate(
                Rule::Opcode,
                format!("CREATE_MKEY: access mode {mode} without its capability"),
            );
            return Err(Failure::parameter(Syndrome::Capability));
        }
    };
    let at = field!("create_mkey_in", "memory_key_mkey_entry").byte();
    let mut context = [0; mkey::CONTEXT];
    context.copy_from_slice(&request.input[at..at + mkey::CONTEXT]);
    Ok(Mkey {
        context,
        pd,
        variant: get(field!("mkc", "mkey_7_0")) as u8,
        start,
        len,
        translation,
    })
}

/// What a key asks for needs these capabilities.
fn check_capabilities(device: &mut Device, request: &Request) -> Outcome {
    let asked = |bits| context(request, bits) != 0;
    let header = |bits| input(request, bits) != 0;
    let needs = [
        (
            "relaxed_ordering_write",
            asked(field!("mkc", "relaxed_ordering_write")),
            field!("cmd_hca_cap", "relaxed_ordering_write"),
        ),
        (
            "relaxed_ordering_read",
            asked(field!("mkc", "relaxed_ordering_read")),
            field!("cmd_hca_cap", "relaxed_ordering_read"),
        ),
        (
            "bsf_en",
            asked(field!("mkc", "bsf_en")),
            field!("cmd_hca_cap", "sho"),
        ),
        (
            "pcie_tph_en",
            asked(field!("mkc", "pcie_tph_en")),
            field!("cmd_hca_cap", "mkey_pcie_tph"),
        ),
        (
            "pg_access",
            header(field!("create_mkey_in", "pg_access")),
            field!("cmd_hca_cap", "pg"),
        ),
        (
            "mkey_umem_valid",
            header(field!("create_mkey_in", "mkey_umem_valid")),
            field!("cmd_hca_cap", "log_max_umem"),
        ),
        (
            "data_direct",
            header(field!("create_mkey_in", "data_direct")),
            field!("cmd_hca_cap", "data_direct"),
        ),
    ];
    for (name, asked, cap) in needs {
        if asked && device.caps.general(cap) == 0 {
            let detail = format!("CREATE_MKEY: {name} without its capability");
            device.checks.violate(Rule::Opcode, detail);
            return Err(Failure::parameter(Syndrome::Capability));
        }
    }
    Ok(())
}

/// The list of the command, checked against its length.
fn list<'a>(device: &mut Device, request: &'a Request) -> Result<&'a [u8], Failure> {
    let octowords = input(
        request,
        field!("create_mkey_in", "translations_octword_actual_size"),
    );
    let at = field!("create_mkey_in", "klm_pas_mtt").byte();
    let list = request.input.get(at..).unwrap_or_default();
    if list.len() as u64 != octowords * mkey::OCTOWORD as u64 {
        let detail = format!(
            "CREATE_MKEY: {} bytes of translations, {octowords} octowords said",
            list.len()
        );
        device.checks.violate(Rule::Length, detail);
        return Err(Failure::new(Status::BAD_INP_LEN_ERR, Syndrome::InLength));
    }
    Ok(list)
}

fn physical(device: &mut Device, request: &Request) -> Result<Translation, Failure> {
    let listed = !list(device, request)?.is_empty();
    let size = context(request, field!("mkc", "translations_octword_size"));
    if listed || size != 0 {
        return Err(device.bad_parameter("CREATE_MKEY: translations of a physical key".into()));
    }
    Ok(Translation::Physical)
}

fn pages(
    device: &mut Device,
    request: &Request,
    start: u64,
    len: Option<u64>,
) -> Result<Translation, Failure> {
    let bad = |device: &mut Device, what: String| {
        Err(device.bad_parameter(format!("CREATE_MKEY: {what}")))
    };
    let Some(len) = len else {
        return bad(device, "length64 with a list of pages".into());
    };
    let log = context(request, field!("mkc", "log_page_size")) as u32;
    let least = device.caps.general(field!("cmd_hca_cap", "log_pg_sz")) as u32;
    if log < least {
        return bad(device, format!("log_page_size {log}, at least {least}"));
    }
    let page = 1u64 << log;
    let needed = ((start & (page - 1)).saturating_add(len)).div_ceil(page);
    let size = context(request, field!("mkc", "translations_octword_size"));
    if size * 2 < needed {
        let what = format!("translations_octword_size {size}, {needed} pages are needed");
        return bad(device, what);
    }
    let raw = list(device, request)?;
    let entries = (raw.len() / 8) as u64;
    if entries > size * 2 {
        return bad(device, format!("{entries} pages, room for {}", size * 2));
    }
    // A work request may bring the pages later.
    let umr = context(request, field!("mkc", "umr_en")) != 0;
    if entries < needed && !umr {
        return bad(device, format!("{entries} pages, {needed} are needed"));
    }
    let flags = input(request, field!("create_mkey_in", "pg_access")) != 0;
    let mut list = Vec::new();
    for (i, entry) in raw.chunks_exact(8).enumerate() {
        let entry = u64::from_be_bytes(entry.try_into().unwrap_or_default());
        if i as u64 >= needed {
            if entry != 0 {
                let detail = format!("CREATE_MKEY: {entry:#x} after the last of {needed} pages");
                device.checks.violate(Rule::Reserved, detail);
            }
            continue;
        }
        let address = if flags { entry & !MTT_FLAGS } else { entry };
        if address & (page - 1) != 0 {
            return bad(device, format!("page {i} at {address:#x} is misaligned"));
        }
        list.push(address);
    }
    let write = context(request, field!("mkc", "lw")) != 0;
    let mut left = (start & (page - 1)) + len;
    let mut skip = start & (page - 1);
    for (i, &address) in list.iter().enumerate() {
        let part = left.min(page);
        if let Some(taken) = device.hca.pages.overlap(address, part) {
            let detail = format!("CREATE_MKEY: page {address:#x} holds {taken:#x} of the device");
            device.checks.violate(Rule::PageReused, detail);
        }
        let (first, bytes) = (address + skip, (part - skip) as usize);
        if let Err(e) = device.mem.check(first, bytes, write) {
            let detail = format!("CREATE_MKEY: page {i}: {e}");
            device.checks.violate(Rule::DmaUnmapped, detail);
            return Err(Failure::parameter(Syndrome::Address));
        }
        left -= part;
        skip = 0;
    }
    Ok(Translation::Pages { log, list })
}

pub fn destroy(device: &mut Device, request: &Request, _: &mut [u8]) -> Outcome {
    let index = input(request, field!("destroy_mkey_in", "mkey_index")) as u32;
    if !device.hca.mkeys.contains_key(&index) {
        return Err(device.no_object(format!("DESTROY_MKEY: {index:#x}")));
    }
    device.check_owner("DESTROY_MKEY", request, Object::Mkey(index))?;
    if device.traces_through(index) {
        let detail = format!("DESTROY_MKEY: the tracer writes through {index:#x}");
        device.checks.violate(Rule::MkeyInUse, detail);
        return Err(Failure::new(Status::RES_BUSY, Syndrome::ObjectsLeft));
    }
    device.hca.mkeys.remove(&index);
    device.hca.users.disown(Object::Mkey(index));
    Ok(())
}

pub fn query(device: &mut Device, request: &Request, out: &mut [u8]) -> Outcome {
    let index = input(request, field!("query_mkey_in", "mkey_index")) as u32;
    let Some(mkey) = device.hca.mkeys.get(&index) else {
        return Err(device.no_object(format!("QUERY_MKEY: {index:#x}")));
    };
    let at = field!("query_mkey_out", "memory_key_mkey_entry").byte();
    out[at..at + mkey::CONTEXT].copy_from_slice(&mkey.context);
    if let Translation::Pages { list, .. } = &mkey.translation {
        let at = field!("query_mkey_out", "bsf0_klm0_pas_mtt0_1").byte();
        let places = out.get_mut(at..at + 32).unwrap_or_default();
        for (place, page) in places.chunks_exact_mut(8).zip(list) {
            place.copy_from_slice(&page.to_be_bytes());
        }
    }
    Ok(())
}
