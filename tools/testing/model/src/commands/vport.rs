// SPDX-License-Identifier: GPL-2.0

//! Port and vport contexts of the function's own vport.

use crate::checks::Rule;
use crate::cmdif::status::Failure;
use crate::cmdif::status::Status;
use crate::cmdif::status::Syndrome;
use crate::cmdif::Request;
use crate::device::Device;
use crate::field;
use crate::identity::PortType;
use crate::ifc;
use crate::ifc::Bits;

use super::input;
use super::Outcome;

/// Port state "active" and physical state "link up" of InfiniBand (PortInfo).
const PORT_ACTIVE: u64 = 4;
const PHYSICAL_LINK_UP: u64 = 5;
/// vport state "up", in QUERY_VPORT_STATE.
const VPORT_UP: u64 = 1;
/// Default P_Key, full member.
const DEFAULT_PKEY: u64 = 0xffff;
/// Link-local subnet prefix of GIDs.
const GID_PREFIX: u64 = 0xfe80_0000_0000_0000;
const LID: u64 = 1;
/// MTU of an Ethernet vport.
const MTU: u64 = 1500;

impl Device {
    /// EUI-64 of the port, in the vendor's range for local use.
    fn port_guid(&self) -> u64 {
        0x0002_c903_0000_0000 | u64::from(self.identity.device_id) << 8 | 1
    }

    /// Only the caller's own vport exists.
    fn own_vport(&mut self, what: &str, other: u64, number: u64) -> Outcome {
        if other != 0 || number != 0 {
            let detail = format!("{what}: other_vport {other}, vport_number {number}");
            self.checks.violate(Rule::UnknownObject, detail);
            return Err(Failure::parameter(Syndrome::Function));
        }
        Ok(())
    }

    fn infiniband(&mut self, what: &str) -> Outcome {
        if self.identity.port_type != PortType::Ib {
            self.checks
                .violate(Rule::Opcode, format!("{what} on an Ethernet port"));
            return Err(Failure::new(Status::BAD_OP_ERR, Syndrome::Capability));
        }
        Ok(())
    }
}

pub fn query_state(device: &mut Device, request: &Request, out: &mut [u8]) -> Outcome {
    let other = input(request, field!("query_vport_state_in", "other_vport"));
    let number = input(request, field!("query_vport_state_in", "vport_number"));
    device.own_vport("QUERY_VPORT_STATE", other, number)?;
    ifc::set(out, field!("query_vport_state_out", "state"), VPORT_UP);
    ifc::set(
        out,
        field!("query_vport_state_out", "admin_state"),
        VPORT_UP,
    );
    Ok(())
}

pub fn query_hca_context(device: &mut Device, request: &Request, out: &mut [u8]) -> Outcome {
    device.infiniband("QUERY_HCA_VPORT_CONTEXT")?;
    let other = input(request, field!("query_hca_vport_context_in", "other_vport"));
    let number = input(
        request,
        field!("query_hca_vport_context_in", "vport_number"),
    );
    device.own_vport("QUERY_HCA_VPORT_CONTEXT", other, number)?;
    let guid = device.port_guid();
    let mut put = |bits: Bits, value| ifc::set(out, bits, value);
    const OUT: &str = "query_hca_vport_context_out";
    put(
        field!(OUT, "hca_vport_context.port_physical_state"),
        PHYSICAL_LINK_UP,
    );
    put(field!(OUT, "hca_vport_context.port_state"), PORT_ACTIVE);
    put(field!(OUT, "hca_vport_context.vport_state"), VPORT_UP);
    put(
        field!(OUT, "hca_vport_context.system_image_guid"),
        guid & !0xff,
    );
    put(field!(OUT, "hca_vport_context.port_guid"), guid);
    put(field!(OUT, "hca_vport_context.node_guid"), guid & !0xff);
    put(field!(OUT, "hca_vport_context.lid"), LID);
    put(field!(OUT, "hca_vport_context.sm_lid"), LID);
    Ok(())
}

pub fn query_gid(device: &mut Device, request: &Request, out: &mut [u8]) -> Outcome {
    device.infiniband("QUERY_HCA_VPORT_GID")?;
    let other = input(request, field!("query_hca_vport_gid_in", "other_vport"));
    let number = input(request, field!("query_hca_vport_gid_in", "vport_number"));
    device.own_vport("QUERY_HCA_VPORT_GID", other, number)?;
    let index = input(request, field!("query_hca_vport_gid_in", "gid_index"));
    // 0xffff asks for all of the table, which has one entry.
    if index != 0 && index != 0xffff {
        return Err(
            device.bad_parameter(format!("QUERY_HCA_VPORT_GID: index {index}, table has 1"))
        );
    }
    let at = field!("query_hca_vport_gid_out", "gid").byte();
    if out.len() < at + 16 {
        return Err(Failure::new(Status::BAD_OUTP_LEN_ERR, Syndrome::OutLength));
    }
    ifc::set(out, field!("query_hca_vport_gid_out", "gids_num"), 1);
    out[at..at + 8].copy_from_slice(&GID_PREFIX.to_be_bytes());
    out[at + 8..at + 16].copy_from_slice(&device.port_guid().to_be_bytes());
    Ok(())
}

pub fn query_pkey(device: &mut Device, request: &Request, out: &mut [u8]) -> Outcome {
    device.infiniband("QUERY_HCA_VPORT_PKEY")?;
    let other = input(request, field!("query_hca_vport_pkey_in", "other_vport"));
    let number = input(request, field!("query_hca_vport_pkey_in", "vport_number"));
    device.own_vport("QUERY_HCA_VPORT_PKEY", other, number)?;
    let index = input(request, field!("query_hca_vport_pkey_in", "pkey_index"));
    let size = 128u64
        << device
            .caps
            .general(field!("cmd_hca_cap", "pkey_table_size"));
    let count = match index {
        0xffff => size,
        i if i < size => 1,
        i => {
            let detail = format!("QUERY_HCA_VPORT_PKEY: index {i}, table has {size}");
            return Err(device.bad_parameter(detail));
        }
    };
    let at = field!("query_hca_vport_pkey_out", "pkey").byte();
    let entry = ifc::size_of("pkey");
    if out.len() < at + entry * count as usize {
        return Err(Failure::new(Status::BAD_OUTP_LEN_ERR, Syndrome::OutLength));
    }
    if index == 0 || index == 0xffff {
        ifc::set(&mut out[at..], field!("pkey", "pkey"), DEFAULT_PKEY);
    }
    Ok(())
}

pub fn query_nic_context(device: &mut Device, request: &Request, out: &mut [u8]) -> Outcome {
    let other = input(request, field!("query_nic_vport_context_in", "other_vport"));
    let number = input(
        request,
        field!("query_nic_vport_context_in", "vport_number"),
    );
    device.own_vport("QUERY_NIC_VPORT_CONTEXT", other, number)?;
    let guid = device.port_guid();
    const OUT: &str = "query_nic_vport_context_out";
    ifc::set(
        out,
        field!(OUT, "nic_vport_context.system_image_guid"),
        guid & !0xff,
    );
    ifc::set(
        out,
        field!(OUT, "nic_vport_context.node_guid"),
        guid & !0xff,
    );
    ifc::set(out, field!(OUT, "nic_vport_context.port_guid"), guid);
    ifc::set(
        out,
        field!(OUT, "nic_vport_context.mtu"),
        device.hca.nic_mtu.unwrap_or(MTU),
    );
    // Locally administered.
    let mac = 0x02_00_00_00_00_00u64 | u64::from(device.identity.device_id);
    let place = field!(OUT, "nic_vport_context.permanent_address.mac_addr_47_32");
    ifc::set(out, place, mac >> 32);
    let place = field!(OUT, "nic_vport_context.permanent_address.mac_addr_31_0");
    ifc::set(out, place, mac & 0xffff_ffff);
    ifc::set(
        out,
        field!(OUT, "nic_vport_context.roce_en"),
        device.hca.roce_en.into(),
    );
    Ok(())
}

pub fn modify_nic_context(device: &mut Device, request: &Request, _: &mut [u8]) -> Outcome {
    const IN: &str = "modify_nic_vport_context_in";
    let other = input(request, field!(IN, "other_vport"));
    let number = input(request, field!(IN, "vport_number"));
    device.own_vport("MODIFY_NIC_VPORT_CONTEXT", other, number)?;
    if input(request, field!(IN, "field_select.mtu")) != 0 {
        device.hca.nic_mtu = Some(input(request, field!(IN, "nic_vport_context.mtu")));
    }
    if input(request, field!(IN, "field_select.roce_en")) != 0 {
        device.hca.roce_en = input(request, field!(IN, "nic_vport_context.roce_en")) != 0;
    }
    Ok(())
}
