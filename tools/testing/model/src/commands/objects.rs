// SPDX-License-Identifier: GPL-2.0

//! Commands that make, show and destroy objects.

use std::collections::BTreeSet;
use std::collections::VecDeque;

use crate::bar;
use crate::checks::Rule;
use crate::cmdif::status::Failure;
use crate::cmdif::status::Status;
use crate::cmdif::status::Syndrome;
use crate::cmdif::Request;
use crate::device::Device;
use crate::eq;
use crate::eq::Eq;
use crate::field;
use crate::ifc;
use crate::pci;
use crate::users::Object;

use super::input;
use super::Outcome;

/// Key that stands for all of memory where the device reserves one. Own choice: drivers take it
/// from here.
const RESERVED_LKEY: u64 = 0x1ee;

/// First EQ number.
const FIRST_EQ: u8 = 1;

/// Takes the lowest free number of `first..end`.
fn allocate(set: &mut BTreeSet<u32>, first: u32, end: u32) -> Result<u32, Failure> {
    let free = (first..end)
        .find(|n| !set.contains(n))
        .ok_or(Failure::new(Status::NO_RES_ERR, Syndrome::Exhausted))?;
    set.insert(free);
    Ok(free)
}

impl Device {
    /// Records the use of an object that is not there and returns the failure for it.
    pub(super) fn no_object(&mut self, what: String) -> Failure {
        self.checks.violate(Rule::UnknownObject, what);
        Failure::new(Status::BAD_RES_ERR, Syndrome::Object)
    }
}

pub fn query_special_contexts(_: &mut Device, _: &Request, out: &mut [u8]) -> Outcome {
    ifc::set(
        out,
        field!("query_special_contexts_out", "resd_lkey"),
        RESERVED_LKEY,
    );
    Ok(())
}

pub fn alloc_uar(device: &mut Device, request: &Request, out: &mut [u8]) -> Outcome {
    let uars = (device.identity.bar_size() / bar::UAR_SIZE) as u32;
    let uar = allocate(&mut device.hca.uars, bar::FIRST_UAR, uars)?;
    device.hca.users.own(Object::Uar(uar), request.uid);
    ifc::set(out, field!("alloc_uar_out", "uar"), uar.into());
    Ok(())
}

pub fn dealloc_uar(device: &mut Device, request: &Request, _: &mut [u8]) -> Outcome {
    let uar = input(request, field!("dealloc_uar_in", "uar")) as u32;
    if let Some((eqn, _)) = device.hca.eqs.iter().find(|(_, eq)| eq.uar == uar) {
        let detail = format!("DEALLOC_UAR: {uar} is in use by EQ {eqn}");
        device.checks.violate(Rule::Order, detail);
        return Err(Failure::new(Status::RES_BUSY, Syndrome::ObjectsLeft));
    }
    if !device.hca.uars.contains(&uar) {
        return Err(device.no_object(format!("DEALLOC_UAR: {uar}")));
    }
    device.check_owner("DEALLOC_UAR", request, Object::Uar(uar))?;
    device.hca.uars.remove(&uar);
    device.hca.users.disown(Object::Uar(uar));
    Ok(())
}

pub fn alloc_pd(device: &mut Device, request: &Request, out: &mut [u8]) -> Outcome {
    let end = 1 << device.caps.general(field!("cmd_hca_cap", "log_max_pd"));
    let pd = allocate(&mut device.hca.pds, 1, end)?;
    device.hca.users.own(Object::Pd(pd), request.uid);
    ifc::set(out, field!("alloc_pd_out", "pd"), pd.into());
    Ok(())
}

pub fn dealloc_pd(device: &mut Device, request: &Request, _: &mut [u8]) -> Outcome {
    let pd = input(request, field!("dealloc_pd_in", "pd")) as u32;
    if let Some((index, _)) = device.hca.mkeys.iter().find(|(_, mkey)| mkey.pd == pd) {
        let detail = format!("DEALLOC_PD: {pd} is in use by mkey {index:#x}");
        device.checks.violate(Rule::Order, detail);
        return Err(Failure::new(Status::RES_BUSY, Syndrome::ObjectsLeft));
    }
    if !device.hca.pds.contains(&pd) {
        return Err(device.no_object(format!("DEALLOC_PD: {pd}")));
    }
    device.check_owner("DEALLOC_PD", request, Object::Pd(pd))?;
    device.hca.pds.remove(&pd);
    device.hca.users.disown(Object::Pd(pd));
    Ok(())
}

pub fn alloc_transport_domain(device: &mut Device, request: &Request, out: &mut [u8]) -> Outcome {
    let end = 1
        << device
            .caps
            .general(field!("cmd_hca_cap", "log_max_transport_domain"));
    let td = allocate(&mut device.hca.transport_domains, 1, end)?;
    let object = Object::TransportDomain(td);
    device.hca.users.own(object, request.uid);
    ifc::set(
        out,
        field!("alloc_transport_domain_out", "transport_domain"),
        td.into(),
    );
    Ok(())
}

pub fn dealloc_transport_domain(device: &mut Device, request: &Request, _: &mut [u8]) -> Outcome {
    let td = input(
        request,
        field!("dealloc_transport_domain_in", "transport_domain"),
    ) as u32;
    if !device.hca.transport_domains.contains(&td) {
        return Err(device.no_object(format!("DEALLOC_TRANSPORT_DOMAIN: {td}")));
    }
    let object = Object::TransportDomain(td);
    device.check_owner("DEALLOC_TRANSPORT_DOMAIN", request, object)?;
    device.hca.transport_domains.remove(&td);
    device.hca.users.disown(object);
    Ok(())
}

pub fn create_uctx(device: &mut Device, request: &Request, out: &mut [u8]) -> Outcome {
    if !device.has_users() {
        device
            .checks
            .violate(Rule::Opcode, "CREATE_UCTX without log_max_uctx");
        return Err(Failure::new(Status::BAD_OP_ERR, Syndrome::Capability));
    }
    let rights = input(request, field!("create_uctx_in", "uctx.cap"));
    let known = device.caps.general(field!("cmd_hca_cap", "uctx_cap"));
    if rights & !known != 0 {
        let detail = format!("CREATE_UCTX: cap {rights:#x}, uctx_cap is {known:#x}");
        return Err(device.bad_parameter(detail));
    }
    let most = 1 << device.caps.general(field!("cmd_hca_cap", "log_max_uctx"));
    let uid = device
        .hca
        .users
        .open(rights as u32, most)
        .ok_or(Failure::new(Status::NO_RES_ERR, Syndrome::Exhausted))?;
    ifc::set(out, field!("create_uctx_out", "uid"), uid.into());
    Ok(())
}

pub fn destroy_uctx(device: &mut Device, request: &Request, _: &mut [u8]) -> Outcome {
    let uid = input(request, field!("destroy_uctx_in", "uid")) as u16;
    if !device.hca.users.knows(uid) {
        let detail = format!("DESTROY_UCTX: uid {uid:#x} is no user context");
        device.checks.violate(Rule::User, detail);
        return Err(Failure::new(Status::BAD_RES_ERR, Syndrome::User));
    }
    let left = device.hca.users.objects(uid);
    if !left.is_empty() {
        let detail = format!("DESTROY_UCTX: user {uid} has {left:?}");
        if !device.hca.objects_struck {
            device.checks.violate(Rule::ObjectsLeft, detail);
        }
        return Err(Failure::new(Status::RES_BUSY, Syndrome::ObjectsLeft));
    }
    device.hca.users.close(uid);
    Ok(())
}

pub fn create_eq(device: &mut Device, request: &Request, out: &mut [u8]) -> Outcome {
    let eq = parse_eq(device, request)?;
    for (&number, other) in &device.hca.eqs {
        let shared: Vec<u64> = (0..4).map(|i| eq.mask[i] & other.mask[i]).collect();
        if shared.iter().any(|m| *m != 0) {
            let detail = format!("CREATE_EQ: mask shares {shared:x?} with EQ {number}");
            device.checks.violate(Rule::EqMaskOverlap, detail);
        }
    }
    match eq.find_uninitialised(&device.mem) {
        Ok(None) => {}
        Ok(Some(n)) => {
            let detail = format!("CREATE_EQ: owner bit of entry {n} is not 1");
            device.checks.violate(Rule::EqNotInitialised, detail);
        }
        Err(e) => {
            device
                .checks
                .violate(Rule::DmaUnmapped, format!("CREATE_EQ: {e}"));
            return Err(Failure::parameter(Syndrome::Address));
        }
    }
    let most = device
        .caps
        .general(field!("cmd_hca_cap", "max_num_eqs"))
        .min(255) as u8;
    let eqn = (FIRST_EQ..=most)
        .find(|n| !device.hca.eqs.contains_key(n))
        .ok_or(Failure::new(Status::NO_RES_ERR, Syndrome::Exhausted))?;
    device.hca.eqs.insert(eqn, eq);
    ifc::set(out, field!("create_eq_out", "eq_number"), eqn.into());
    Ok(())
}

fn parse_eq(device: &mut Device, request: &Request) -> Result<Eq, Failure> {
    let context = |bits| input(request, bits);
    for (name, value) in [
        (
            "status",
            context(field!("create_eq_in", "eq_context_entry.status")),
        ),
        (
            "consumer_counter",
            context(field!("create_eq_in", "eq_context_entry.consumer_counter")),
        ),
        (
            "producer_counter",
            context(field!("create_eq_in", "eq_context_entry.producer_counter")),
        ),
    ] {
        if value != 0 {
            return Err(device.bad_parameter(format!("CREATE_EQ: {name} {value:#x}, expected 0")));
        }
    }
    let log_size = context(field!("create_eq_in", "eq_context_entry.log_eq_size"));
    let log_max = device.caps.general(field!("cmd_hca_cap", "log_max_eq_sz"));
    if log_size > log_max.min(23) {
        let detail = format!("CREATE_EQ: log_eq_size {log_size}, at most {log_max}");
        return Err(device.bad_parameter(detail));
    }
    let vector = context(field!("create_eq_in", "eq_context_entry.intr")) as u16;
    if vector >= pci::VECTORS {
        let detail = format!("CREATE_EQ: intr {vector}, vectors are 0..{}", pci::VECTORS);
        return Err(device.bad_parameter(detail));
    }
    let uar = context(field!("create_eq_in", "eq_context_entry.uar_page")) as u32;
    if !device.hca.uars.contains(&uar) {
        return Err(device.no_object(format!("CREATE_EQ: uar_page {uar}")));
    }
    let log_page_size = context(field!("create_eq_in", "eq_context_entry.log_page_size")) + 12;
    let page_offset =
        context(field!("create_eq_in", "eq_context_entry.page_offset")) * eq::EQE as u64;
    let bytes = (eq::EQE as u64) << log_size;
    let count = (bytes + page_offset).div_ceil(1 << log_page_size) as usize;
    let at = field!("create_eq_in", "pas").byte();
    let list = request.input.get(at..).unwrap_or_default();
    if list.len() != count * 8 {
        let detail = format!(
            "CREATE_EQ: {} bytes of page list, {} needed",
            list.len(),
            count * 8
        );
        device.checks.violate(Rule::Length, detail);
        return Err(Failure::new(Status::BAD_INP_LEN_ERR, Syndrome::InLength));
    }
    let pages: Vec<u64> = list
        .chunks_exact(8)
        .map(|pa| u64::from_be_bytes(pa.try_into().unwrap_or_default()))
        .collect();
    for &page in &pages {
        if page == 0 || page % (1 << log_page_size) != 0 {
            return Err(
                device.bad_parameter(format!("CREATE_EQ: page {page:#x} is misaligned or 0"))
            );
        }
        if let Some(taken) = device.hca.pages.overlap(page, 1 << log_page_size) {
            let detail = format!("CREATE_EQ: page {page:#x} holds {taken:#x} of the device");
            device.checks.violate(Rule::PageReused, detail);
        }
    }
    let mask = field!("create_eq_in", "event_bitmask");
    let eq = Eq {
        vector,
        uar,
        mask: std::array::from_fn(|i| input(request, mask.element(i as u32))),
        log_size: log_size as u32,
        ci: 0,
        pi: 0,
        armed: false,
        overrun: false,
        log_page_size: log_page_size as u32,
        page_offset: page_offset as u32,
        pages,
        backlog: VecDeque::new(),
    };
    for index in 0..eq.pages.len() {
        let (start, len) = eq.extent(index);
        if let Err(e) = device.mem.check(start, len, true) {
            device
                .checks
                .violate(Rule::DmaUnmapped, format!("CREATE_EQ: {e}"));
            return Err(Failure::parameter(Syndrome::Address));
        }
    }
    Ok(eq)
}

pub fn destroy_eq(device: &mut Device, request: &Request, _: &mut [u8]) -> Outcome {
    let eqn = input(request, field!("destroy_eq_in", "eq_number")) as u8;
    if device.hca.eqs.remove(&eqn).is_none() {
        return Err(device.no_object(format!("DESTROY_EQ: {eqn}")));
    }
    Ok(())
}

pub fn query_eq(device: &mut Device, request: &Request, out: &mut [u8]) -> Outcome {
    let eqn = input(request, field!("query_eq_in", "eq_number")) as u8;
    let Some(eq) = device.hca.eqs.get(&eqn) else {
        return Err(device.no_object(format!("QUERY_EQ: {eqn}")));
    };
    let at = field!("query_eq_out", "eq_context_entry").byte();
    out[at..at + eq::CONTEXT].copy_from_slice(&eq.context());
    ifc::set(out, field!("query_eq_out", "event_bitmask"), eq.mask[0]);
    let at = field!("query_eq_out", "pas").byte();
    for (place, page) in out[at..].chunks_exact_mut(8).zip(&eq.pages) {
        place.copy_from_slice(&page.to_be_bytes());
    }
    Ok(())
}
