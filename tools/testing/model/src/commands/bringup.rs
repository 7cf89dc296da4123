// SPDX-License-Identifier: GPL-2.0

//! Commands of bring-up and teardown (hardware.md sections 2.3 to 2.5).

use log::info;

use crate::checks::Rule;
use crate::cmdif::status::Failure;
use crate::cmdif::status::Status;
use crate::cmdif::status::Syndrome;
use crate::cmdif::Request;
use crate::device::Device;
use crate::device::State;
use crate::field;
use crate::ifc;

use super::input;
use super::Outcome;

/// Interface versions that the device has: 0 and 1.
const ISSI: u64 = 0b11;

/// Profiles of TEARDOWN_HCA.
mod profile {
    pub const NORMAL: u64 = 0;
    pub const FORCE: u64 = 1;
    pub const FAST: u64 = 2;
}

/// The function of ENABLE_HCA and DISABLE_HCA: the caller's own, 0, or one of its VFs, from 1 on.
fn function(device: &mut Device, embedded_cpu: u64, function: u64) -> Result<u16, Failure> {
    let expected = u64::from(device.seg.registers.embedded_cpu);
    let vfs = device.identity.total_vfs;
    match u16::try_from(function) {
        Ok(function) if function <= vfs && embedded_cpu == expected => Ok(function),
        _ => {
            let what = format!(
                "function_id {function:#x}, embedded_cpu_function {embedded_cpu}, \
                 expected 0 to {vfs} and {expected}"
            );
            device.checks.violate(Rule::UnknownObject, what);
            Err(Failure::parameter(Syndrome::Function))
        }
    }
}

/// Refuses a command that the state does not allow.
fn in_state(device: &mut Device, what: &str, states: &[State]) -> Outcome {
    let state = device.hca.state;
    if states.contains(&state) {
        return Ok(());
    }
    let detail = format!("{what} in state {state:?}, expected {states:?}");
    device.checks.violate(Rule::Order, detail);
    Err(Failure::new(Status::BAD_SYS_STATE_ERR, Syndrome::State))
}

/// A VF is enabled twice, or disabled without being enabled.
fn vf_state(device: &mut Device, what: &str, function: u16) -> Failure {
    let detail = format!(
        "{what} of function {function}, enabled are {:?}",
        device.hca.vfs
    );
    device.checks.violate(Rule::Order, detail);
    Failure::new(Status::BAD_RES_STATE_ERR, Syndrome::Function)
}

pub fn enable_hca(device: &mut Device, request: &Request, _: &mut [u8]) -> Outcome {
    let function = function(
        device,
        input(request, field!("enable_hca_in", "embedded_cpu_function")),
        input(request, field!("enable_hca_in", "function_id")),
    )?;
    if function == 0 {
        in_state(device, "ENABLE_HCA", &[State::Reset])?;
        device.hca.state = State::Enabled;
        return Ok(());
    }
    in_state(device, "ENABLE_HCA of a VF", &[State::Initialized])?;
    if !device.hca.vfs.insert(function) {
        return Err(vf_state(device, "ENABLE_HCA", function));
    }
    let wanted = device.wanted.vf.into();
    if wanted != 0 {
        // Without an EQ for it the function gets none.
        device.request_pages(device.embedded_cpu(), function, wanted, false);
    }
    Ok(())
}

/// The pages of a VF go back, in the way that the driver has negotiated.
fn return_pages(device: &mut Device, function: u16) {
    let ec = device.embedded_cpu();
    let key = crate::pages::key(ec, function);
    let pages = device.hca.pages.functions.get(&key);
    let given = pages.map_or(0, |f| f.given()) as i32;
    if given != 0 {
        let all = device
            .caps
            .general(field!("cmd_hca_cap", "release_all_pages"));
        device.request_pages(ec, function, -given, all != 0);
    }
}

pub fn disable_hca(device: &mut Device, request: &Request, _: &mut [u8]) -> Outcome {
    let function = function(
        device,
        input(request, field!("disable_hca_in", "embedded_cpu_function")),
        input(request, field!("disable_hca_in", "function_id")),
    )?;
    if function != 0 {
        in_state(device, "DISABLE_HCA of a VF", &[State::Initialized])?;
        if !device.hca.vfs.remove(&function) {
            return Err(vf_state(device, "DISABLE_HCA", function));
        }
        return_pages(device, function);
        return Ok(());
    }
    in_state(device, "DISABLE_HCA", &[State::Enabled, State::TornDown])?;
    let left = device.hca.pages.total();
    if left != 0 && !device.hca.pages_struck {
        device
            .checks
            .violate(Rule::PagesLeft, format!("{left} pages"));
    }
    device.disable();
    Ok(())
}

pub fn query_issi(device: &mut Device, _: &Request, out: &mut [u8]) -> Outcome {
    let current = device.hca.issi.unwrap_or(0);
    ifc::set(
        out,
        field!("query_issi_out", "current_issi"),
        current.into(),
    );
    ifc::set(out, field!("query_issi_out", "supported_issi_dw0"), ISSI);
    Ok(())
}

pub fn set_issi(device: &mut Device, request: &Request, _: &mut [u8]) -> Outcome {
    let issi = input(request, field!("set_issi_in", "current_issi"));
    if issi >= 32 || ISSI >> issi & 1 == 0 {
        return Err(device.bad_parameter(format!("SET_ISSI: {issi}, supported is {ISSI:#b}")));
    }
    device.hca.issi = Some(issi as u16);
    Ok(())
}

pub fn init_hca(device: &mut Device, request: &Request, _: &mut [u8]) -> Outcome {
    if device.hca.issi.is_none() {
        let detail = "INIT_HCA before SET_ISSI, though the device has ISSI 1";
        device.checks.violate(Rule::Order, detail);
    }
    let (have, wanted) = (device.own_pages(), device.wanted);
    let need = i64::from(wanted.boot.max(0)) + i64::from(wanted.init.max(0));
    if have < need {
        let detail = format!("INIT_HCA with {have} of {need} pages");
        device.checks.violate(Rule::Order, detail);
        return Err(Failure::new(Status::BAD_SYS_STATE_ERR, Syndrome::InitPages));
    }
    let sw_vhca_id = input(request, field!("init_hca_in", "sw_vhca_id"));
    let valid = device
        .caps
        .field("general_2", "sw_vhca_id_valid")
        .is_ok_and(|(now, _)| now != 0);
    if sw_vhca_id != 0 && !valid {
        let detail = format!("INIT_HCA: sw_vhca_id {sw_vhca_id} without sw_vhca_id_valid");
        return Err(device.bad_parameter(detail));
    }
    let owner = field!("init_hca_in", "sw_owner_id");
    let owned = (0..4).any(|i| input(request, owner.element(i)) != 0);
    if owned && device.caps.general(field!("cmd_hca_cap", "sw_owner_id")) == 0 {
        return Err(device.bad_parameter("INIT_HCA: sw_owner_id without its capability".into()));
    }
    device.hca.state = State::Initialized;
    Ok(())
}

pub fn teardown_hca(device: &mut Device, request: &Request, _: &mut [u8]) -> Outcome {
    let profile = input(request, field!("teardown_hca_in", "profile"));
    let capability = match profile {
        profile::NORMAL => None,
        profile::FORCE => Some(field!("cmd_hca_cap", "force_teardown")),
        profile::FAST => Some(field!("cmd_hca_cap", "fast_teardown")),
        other => return Err(device.bad_parameter(format!("TEARDOWN_HCA: profile {other}"))),
    };
    if capability.is_some_and(|bits| device.caps.general(bits) == 0) {
        device.checks.violate(
            Rule::Opcode,
            format!("TEARDOWN_HCA: profile {profile} without its capability"),
        );
        return Err(Failure::parameter(Syndrome::Capability));
    }
    match profile {
        profile::NORMAL => {
            let hca = &device.hca;
            let left = [
                ("EQs", hca.eqs.len()),
                ("UARs", hca.uars.len()),
                ("PDs", hca.pds.len()),
                ("transport domains", hca.transport_domains.len()),
                ("mkeys", hca.mkeys.len()),
                ("user contexts", hca.users.uids().count()),
                ("virtual functions", hca.vfs.len()),
            ];
            let left: Vec<String> = left
                .iter()
                .filter(|(_, n)| *n > 0)
                .map(|(what, n)| format!("{n} {what}"))
                .collect();
            if !left.is_empty() && !hca.objects_struck {
                device.checks.violate(Rule::ObjectsLeft, left.join(", "));
            }
            device.drop_objects();
            device.hca.state = State::TornDown;
        }
        profile::FORCE => {
            // The device uses no memory of the host from here on, its pages included.
            device.drop_objects();
            device.hca.pages = Default::default();
            device.hca.state = State::TornDown;
        }
        // The function goes on until nic_interface is written.
        _ => device.hca.fast_teardown = true,
    }
    info!("teardown with profile {profile}");
    Ok(())
}

pub fn query_adapter(device: &mut Device, _: &Request, out: &mut [u8]) -> Outcome {
    const BLOCK: &str = "query_adapter_out";
    ifc::set(
        out,
        field!(BLOCK, "query_adapter_struct.ieee_vendor_id"),
        0x2c9,
    );
    ifc::set(
        out,
        field!(BLOCK, "query_adapter_struct.vsd_vendor_id"),
        0x15b3,
    );
    // Board id; the first characters say that it is none of the vendor's.
    let psid = format!("MODEL_{:04x}", device.identity.device_id);
    let place = field!(BLOCK, "query_adapter_struct.vsd_contd_psid");
    for (i, byte) in psid.bytes().enumerate() {
        ifc::set(out, place.element(i as u32), byte.into());
    }
    Ok(())
}

pub fn set_driver_version(device: &mut Device, request: &Request, _: &mut [u8]) -> Outcome {
    if device.caps.general(field!("cmd_hca_cap", "driver_version")) == 0 {
        device
            .checks
            .violate(Rule::Opcode, "SET_DRIVER_VERSION without its capability");
        return Err(Failure::new(Status::BAD_OP_ERR, Syndrome::Capability));
    }
    let at = field!("set_driver_version_in", "driver_version").byte();
    let text = request.input.get(at..at + 64).unwrap_or_default();
    let Some(end) = text.iter().position(|b| *b == 0) else {
        return Err(device.bad_parameter("SET_DRIVER_VERSION: no NUL in 64 bytes".into()));
    };
    let text = &text[..end];
    if !text.iter().all(|b| b.is_ascii_graphic() || *b == b' ') {
        return Err(device.bad_parameter("SET_DRIVER_VERSION: not printable".into()));
    }
    device.hca.driver_version = String::from_utf8_lossy(text).into_owned();
    Ok(())
}

impl Device {
    /// Drops EQs, doorbell pages and other objects.
    fn drop_objects(&mut self) {
        self.hca.eqs.clear();
        self.hca.uars.clear();
        self.hca.pds.clear();
        self.hca.transport_domains.clear();
        self.hca.mkeys.clear();
        self.tracer.forget();
        self.hca.users = Default::default();
        self.hca.vfs.clear();
    }

    /// The function as before ENABLE_HCA. Commands under way stay.
    fn disable(&mut self) {
        self.drop_objects();
        self.hca.pages = Default::default();
        self.hca.issi = None;
        self.hca.driver_version.clear();
        self.hca.pages_struck = false;
        self.hca.objects_struck = false;
        self.hca.state = State::Reset;
        self.caps.reset();
    }
}
