// SPDX-License-Identifier: GPL-2.0

//! ACCESS_REG: registers by number (hardware.md section 2.5).

use crate::checks::Rule;
use crate::cmdif::status::Failure;
use crate::cmdif::status::Syndrome;
use crate::cmdif::Request;
use crate::device::Device;
use crate::field;
use crate::ifc;
use crate::ifc::Bits;

use super::input;
use super::trace_registers;
use super::Outcome;

/// Registers that the model has.
pub mod id {
    pub const CORE_DUMP: u64 = 0x402e;
    pub const MTRC_CAP: u64 = 0x9040;
    pub const MTRC_CONF: u64 = 0x9041;
    pub const MTRC_STDB: u64 = 0x9042;
    pub const MTRC_CTRL: u64 = 0x9043;
    pub const HOST_ENDIANNESS: u64 = 0x7004;
    pub const PCAM: u64 = 0x507f;
    pub const QCAM: u64 = 0x4019;
    pub const MRTC: u64 = 0x902d;
    pub const MCAM: u64 = 0x907f;
    pub const DTOR: u64 = 0xc00e;
}

/// Bytes of HOST_ENDIANNESS, which the header does not have.
const HOST_ENDIANNESS_SIZE: usize = 16;

/// `to_multiplier` of DTOR: milliseconds, seconds.
const MS: u64 = 0;
const S: u64 = 1;

/// DTOR: (field, multiplier, value), the defaults of hardware.md section 2.2.
const DTOR: &[(Bits, Bits, u64, u64)] = &[
    timeout(
        ifc::locate("dtor_reg", "pcie_toggle_to.to_multiplier"),
        ifc::locate("dtor_reg", "pcie_toggle_to.to_value"),
        S,
        2,
    ),
    timeout(
        ifc::locate("dtor_reg", "health_poll_to.to_multiplier"),
        ifc::locate("dtor_reg", "health_poll_to.to_value"),
        MS,
        2000,
    ),
    timeout(
        ifc::locate("dtor_reg", "full_crdump_to.to_multiplier"),
        ifc::locate("dtor_reg", "full_crdump_to.to_value"),
        S,
        60,
    ),
    timeout(
        ifc::locate("dtor_reg", "fw_reset_to.to_multiplier"),
        ifc::locate("dtor_reg", "fw_reset_to.to_value"),
        S,
        60,
    ),
    timeout(
        ifc::locate("dtor_reg", "flush_on_err_to.to_multiplier"),
        ifc::locate("dtor_reg", "flush_on_err_to.to_value"),
        MS,
        2000,
    ),
    timeout(
        ifc::locate("dtor_reg", "tear_down_to.to_multiplier"),
        ifc::locate("dtor_reg", "tear_down_to.to_value"),
        MS,
        3000,
    ),
    timeout(
        ifc::locate("dtor_reg", "reclaim_pages_to.to_multiplier"),
        ifc::locate("dtor_reg", "reclaim_pages_to.to_value"),
        S,
        5,
    ),
    timeout(
        ifc::locate("dtor_reg", "reclaim_vfs_pages_to.to_multiplier"),
        ifc::locate("dtor_reg", "reclaim_vfs_pages_to.to_value"),
        S,
        120,
    ),
    timeout(
        ifc::locate("dtor_reg", "reset_unload_to.to_multiplier"),
        ifc::locate("dtor_reg", "reset_unload_to.to_value"),
        S,
        300,
    ),
];

const fn timeout(multiplier: Bits, value: Bits, unit: u64, count: u64) -> (Bits, Bits, u64, u64) {
    (multiplier, value, unit, count)
}

struct Register {
    id: u64,
    size: usize,
    read: bool,
    write: bool,
}

const REGISTERS: &[Register] = &[
    Register {
        id: id::HOST_ENDIANNESS,
        size: HOST_ENDIANNESS_SIZE,
        read: true,
        write: true,
    },
    Register {
        id: id::PCAM,
        size: ifc::size_of("pcam_reg"),
        read: true,
        write: false,
    },
    Register {
        id: id::QCAM,
        size: ifc::size_of("qcam_reg"),
        read: true,
        write: false,
    },
    Register {
        id: id::MRTC,
        size: ifc::size_of("mrtc_reg"),
        read: true,
        write: true,
    },
    Register {
        id: id::MCAM,
        size: ifc::size_of("mcam_reg"),
        read: true,
        write: false,
    },
    Register {
        id: id::DTOR,
        size: ifc::size_of("dtor_reg"),
        read: true,
        write: false,
    },
    Register {
        id: id::CORE_DUMP,
        size: ifc::size_of("core_dump_reg"),
        read: false,
        write: true,
    },
    Register {
        id: id::MTRC_CAP,
        size: ifc::size_of("mtrc_cap"),
        read: true,
        write: true,
    },
    Register {
        id: id::MTRC_CONF,
        size: ifc::size_of("mtrc_conf"),
        read: true,
        write: true,
    },
    Register {
        id: id::MTRC_STDB,
        size: ifc::size_of("mtrc_stdb"),
        read: true,
        write: true,
    },
    Register {
        id: id::MTRC_CTRL,
        size: ifc::size_of("mtrc_ctrl"),
        read: true,
        write: true,
    },
];

pub fn access(device: &mut Device, request: &Request, out: &mut [u8]) -> Outcome {
    let number = input(request, field!("access_register_in", "register_id"));
    let write = request.op_mod == 0;
    // A register that is not there may be asked for: drivers treat many as optional.
    let register = REGISTERS
        .iter()
        .find(|r| r.id == number && if write { r.write } else { r.read })
        .filter(|r| device.has_register(r.id))
        .ok_or(Failure::parameter(Syndrome::Register))?;
    let at = field!("access_register_in", "register_data").byte();
    let given = request.input.len() - at;
    let to = field!("access_register_out", "register_data").byte();
    let room = out.len() - to;
    if given < register.size || room < register.size {
        let detail = format!(
            "ACCESS_REG {number:#x}: {given} bytes in, {room} out, the register has {}",
            register.size
        );
        device.checks.violate(Rule::Length, detail);
        return Err(Failure::parameter(Syndrome::RegisterLength));
    }
    let data = &request.input[at..at + register.size];
    if matches!(
        number,
        id::CORE_DUMP | id::MTRC_CAP | id::MTRC_CONF | id::MTRC_STDB | id::MTRC_CTRL
    ) {
        return trace_registers::access(device, number, write, data, &mut out[to..]);
    }
    let reply = &mut out[to..to + register.size];
    match number {
        id::HOST_ENDIANNESS if write => {
            // 0x00 little, 0x80 big endian.
            if !matches!(data[0], 0x00 | 0x80) {
                let detail = format!("HOST_ENDIANNESS: {:#x}, expected 0x0 or 0x80", data[0]);
                return Err(device.bad_parameter(detail));
            }
            device.check_register_reserved("HOST_ENDIANNESS", &data[1..]);
            device.hca.host_big_endian = data[0] != 0;
            reply.copy_from_slice(data);
        }
        id::HOST_ENDIANNESS => reply[0] = if device.hca.host_big_endian { 0x80 } else { 0 },
        id::MRTC => {
            if write {
                device.hca.wall_clock.copy_from_slice(data);
            }
            reply.copy_from_slice(&device.hca.wall_clock);
        }
        id::DTOR => {
            for (multiplier, value, unit, count) in DTOR {
                ifc::set(reply, *multiplier, *unit);
                ifc::set(reply, *value, *count);
            }
        }
        id::MCAM => {
            let group = ifc::get(data, field!("mcam_reg", "access_reg_group"));
            let features = ifc::get(data, field!("mcam_reg", "feature_group"));
            ifc::set(reply, field!("mcam_reg", "access_reg_group"), group);
            ifc::set(reply, field!("mcam_reg", "feature_group"), features);
            if group == 0 {
                ifc::set(
                    reply,
                    field!("mcam_reg", "mng_access_reg_cap_mask.access_regs.mrtc"),
                    1,
                );
                // One bit for each register, 0x9040 to 0x9043.
                let tracer = if device.tracer.setup.present { 0xf } else { 0 };
                ifc::set(
                    reply,
                    field!(
                        "mcam_reg",
                        "mng_access_reg_cap_mask.access_regs.tracer_registers"
                    ),
                    tracer,
                );
            }
        }
        // PCAM, QCAM: no optional register and no feature of theirs is there.
        _ => {
            const GROUP: Bits = ifc::locate("pcam_reg", "access_reg_group");
            const FEATURES: Bits = ifc::locate("pcam_reg", "feature_group");
            ifc::set(reply, GROUP, ifc::get(data, GROUP));
            ifc::set(reply, FEATURES, ifc::get(data, FEATURES));
        }
    }
    Ok(())
}

impl Device {
    /// Whether a register of the list is there, which for some depends.
    fn has_register(&self, number: u64) -> bool {
        match number {
            id::CORE_DUMP => self
                .caps
                .field("debug", "core_dump_general")
                .is_ok_and(|(now, _)| now != 0),
            id::MTRC_CAP | id::MTRC_CONF | id::MTRC_STDB | id::MTRC_CTRL => {
                self.tracer.setup.present
            }
            _ => true,
        }
    }

    fn check_register_reserved(&mut self, name: &str, bytes: &[u8]) {
        if bytes.iter().any(|b| *b != 0) {
            self.checks
                .violate(Rule::Reserved, format!("{name}: bytes {bytes:02x?}"));
        }
    }
}
