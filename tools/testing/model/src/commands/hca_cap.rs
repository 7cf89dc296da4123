// SPDX-License-Identifier: GPL-2.0

//! QUERY_HCA_CAP and SET_HCA_CAP.

use crate::caps::Refusal;
use crate::caps::PAGE_SIZE;
use crate::checks::Rule;
use crate::cmdif::status::Failure;
use crate::cmdif::status::Syndrome;
use crate::cmdif::Request;
use crate::device::Device;
use crate::field;

use super::input;
use super::Outcome;

pub fn query(device: &mut Device, request: &Request, out: &mut [u8]) -> Outcome {
    if input(request, field!("query_hca_cap_in", "other_function")) != 0 {
        device
            .checks
            .violate(Rule::UnknownObject, "QUERY_HCA_CAP of another function");
        return Err(Failure::parameter(Syndrome::Function));
    }
    // Bit 0 chooses CUR, the rest the page. A page that is not there may be asked for: that is
    // how a driver could probe.
    let current = request.op_mod & 1 != 0;
    let page = device
        .caps
        .query(request.op_mod >> 1, current)
        .ok_or(Failure::parameter(Syndrome::CapPage))?;
    let at = field!("query_hca_cap_out", "capability").byte();
    out[at..at + PAGE_SIZE].copy_from_slice(page);
    Ok(())
}

pub fn set(device: &mut Device, request: &Request, _: &mut [u8]) -> Outcome {
    if input(request, field!("set_hca_cap_in", "other_function")) != 0 {
        device
            .checks
            .violate(Rule::UnknownObject, "SET_HCA_CAP of another function");
        return Err(Failure::parameter(Syndrome::Function));
    }
    if request.op_mod & 1 != 0 {
        let detail = format!("SET_HCA_CAP: op_mod {:#x} has bit 0 set", request.op_mod);
        return Err(device.bad_parameter(detail));
    }
    let at = field!("set_hca_cap_in", "capability").byte();
    let mut page = [0; PAGE_SIZE];
    page.copy_from_slice(&request.input[at..at + PAGE_SIZE]);
    let (rule, detail, syndrome) = match device.caps.change(request.op_mod >> 1, &page) {
        Ok(()) => return Ok(()),
        Err(Refusal::NoPage) => {
            let detail = format!("SET_HCA_CAP of page {:#x}", request.op_mod >> 1);
            (Rule::UnknownObject, detail, Syndrome::CapPage)
        }
        Err(Refusal::ReadOnly(what)) => (Rule::CapReadOnly, what, Syndrome::CapReadOnly),
        Err(Refusal::AboveMax(what)) => (Rule::CapAboveMax, what, Syndrome::CapAboveMax),
    };
    device.checks.violate(rule, detail);
    Err(Failure::parameter(syndrome))
}
