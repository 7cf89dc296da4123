// SPDX-License-Identifier: GPL-2.0

//! What the commands do.
//!
//! The table here says for each command in which states it is allowed, which op_mods it has, and
//! what runs it; the checks that all commands share are here too. The commands themselves:
//!
//! - `bringup` has enable, interface version, init, teardown, adapter, driver version.
//! - `hca_cap` has capability pages.
//! - `manage_pages` has firmware pages.
//! - `mkeys` has memory keys.
//! - `objects` has UARs, EQs, PDs, transport domains, user contexts.
//! - `registers` has the registers of ACCESS_REG, `trace_registers` those of the tracer.
//! - `vport` has port and vport contexts.

use crate::checks::Rule;
use crate::cmdif::status::Failure;
use crate::cmdif::status::Status;
use crate::cmdif::status::Syndrome;
use crate::cmdif::Request;
use crate::device::Device;
use crate::device::State;
use crate::field;
use crate::ifc;
use crate::ifc::Bits;
use crate::ifc::Layout;
use crate::pages;
use crate::users;
use crate::users::Object;

mod bringup;
mod hca_cap;
mod manage_pages;
mod mkeys;
mod objects;
mod registers;
mod trace_registers;
mod vport;

/// Result of a command.
pub type Outcome = Result<(), Failure>;

type Handler = fn(&mut Device, &Request, &mut [u8]) -> Outcome;

/// Which op_mods a command has.
enum OpMods {
    /// These.
    Only(&'static [u16]),
    /// The command looks itself.
    Any,
}

struct Command {
    opcode: u16,
    name: &'static str,
    input: &'static Layout,
    output: &'static Layout,
    states: &'static [State],
    /// Boot pages must have been given.
    boot_pages: bool,
    op_mods: OpMods,
    run: Handler,
}

/// The opcode called `name` in the header.
pub(crate) const fn opcode(name: &str) -> u16 {
    match ifc::opcode(name) {
        Some(opcode) => opcode,
        None => panic!("mlx5_ifc.h has no such opcode"),
    }
}

const fn layout(name: &str) -> &'static Layout {
    match ifc::layout(name) {
        Some(layout) => layout,
        None => panic!("mlx5_ifc.h has no such structure"),
    }
}

macro_rules! commands {
    ($($name:literal $structure:literal $states:expr, $boot:literal, $ops:expr, $run:path;)*) => {
        static COMMANDS: &[Command] = &[$(Command {
            opcode: const { opcode($name) },
            name: $name,
            input: const { layout(concat!($structure, "_in")) },
            output: const { layout(concat!($structure, "_out")) },
            states: $states,
            boot_pages: $boot,
            op_mods: $ops,
            run: $run,
        }),*];
    };
}

use OpMods::Any;
use OpMods::Only;

const RESET_OR_INITIALIZED: &[State] = &[State::Reset, State::Initialized];
const ENABLED: &[State] = &[State::Enabled];
const INITIALIZED: &[State] = &[State::Initialized];
const ENABLED_OR_INITIALIZED: &[State] = &[State::Enabled, State::Initialized];
const NOT_RESET: &[State] = &[State::Enabled, State::Initialized, State::TornDown];

commands! {
    "ENABLE_HCA" "enable_hca" RESET_OR_INITIALIZED, false, Only(&[0]), bringup::enable_hca;
    "DISABLE_HCA" "disable_hca" NOT_RESET, false, Only(&[0]), bringup::disable_hca;
    "QUERY_ISSI" "query_issi" NOT_RESET, false, Only(&[0]), bringup::query_issi;
    "SET_ISSI" "set_issi" ENABLED, false, Only(&[0]), bringup::set_issi;
    "QUERY_PAGES" "query_pages" NOT_RESET, false, Only(&[1, 2, 3]), manage_pages::query;
    "MANAGE_PAGES" "manage_pages" NOT_RESET, false, Only(&[0, 1, 2]), manage_pages::manage;
    "QUERY_HCA_CAP" "query_hca_cap" ENABLED_OR_INITIALIZED, true, Any, hca_cap::query;
    "SET_HCA_CAP" "set_hca_cap" ENABLED, true, Any, hca_cap::set;
    "ACCESS_REG" "access_register" ENABLED_OR_INITIALIZED, true, Only(&[0, 1]), registers::access;
    "INIT_HCA" "init_hca" ENABLED, true, Only(&[0]), bringup::init_hca;
    "TEARDOWN_HCA" "teardown_hca" INITIALIZED, true, Only(&[0]), bringup::teardown_hca;
    "QUERY_ADAPTER" "query_adapter" ENABLED_OR_INITIALIZED, true, Only(&[0]), bringup::query_adapter;
    "SET_DRIVER_VERSION" "set_driver_version" INITIALIZED, true, Only(&[0]), bringup::set_driver_version;
    "QUERY_SPECIAL_CONTEXTS" "query_special_contexts" INITIALIZED, true, Only(&[0]), objects::query_special_contexts;
    "ALLOC_UAR" "alloc_uar" INITIALIZED, true, Only(&[0]), objects::alloc_uar;
    "DEALLOC_UAR" "dealloc_uar" INITIALIZED, true, Only(&[0]), objects::dealloc_uar;
    "CREATE_EQ" "create_eq" INITIALIZED, true, Only(&[0]), objects::create_eq;
    "DESTROY_EQ" "destroy_eq" INITIALIZED, true, Only(&[0]), objects::destroy_eq;
    "QUERY_EQ" "query_eq" INITIALIZED, true, Only(&[0]), objects::query_eq;
    "ALLOC_PD" "alloc_pd" INITIALIZED, true, Only(&[0]), objects::alloc_pd;
    "DEALLOC_PD" "dealloc_pd" INITIALIZED, true, Only(&[0]), objects::dealloc_pd;
    "CREATE_MKEY" "create_mkey" INITIALIZED, true, Only(&[0]), mkeys::create;
    "QUERY_MKEY" "query_mkey" INITIALIZED, true, Only(&[0]), mkeys::query;
    "DESTROY_MKEY" "destroy_mkey" INITIALIZED, true, Only(&[0]), mkeys::destroy;
    "ALLOC_TRANSPORT_DOMAIN" "alloc_transport_domain" INITIALIZED, true, Only(&[0]), objects::alloc_transport_domain;
    "DEALLOC_TRANSPORT_DOMAIN" "dealloc_transport_domain" INITIALIZED, true, Only(&[0]), objects::dealloc_transport_domain;
    "CREATE_UCTX" "create_uctx" INITIALIZED, true, Only(&[0]), objects::create_uctx;
    "DESTROY_UCTX" "destroy_uctx" INITIALIZED, true, Only(&[0]), objects::destroy_uctx;
    "QUERY_VPORT_STATE" "query_vport_state" INITIALIZED, true, Any, vport::query_state;
    "QUERY_HCA_VPORT_CONTEXT" "query_hca_vport_context" INITIALIZED, true, Only(&[0]), vport::query_hca_context;
    "QUERY_HCA_VPORT_GID" "query_hca_vport_gid" INITIALIZED, true, Only(&[0]), vport::query_gid;
    "QUERY_HCA_VPORT_PKEY" "query_hca_vport_pkey" INITIALIZED, true, Only(&[0]), vport::query_pkey;
    "QUERY_NIC_VPORT_CONTEXT" "query_nic_vport_context" INITIALIZED, true, Only(&[0]), vport::query_nic_context;
    "MODIFY_NIC_VPORT_CONTEXT" "modify_nic_vport_context" INITIALIZED, true, Only(&[0]), vport::modify_nic_context;
}

/// Opcodes of all commands that the model has.
pub fn opcodes() -> impl Iterator<Item = u16> {
    COMMANDS.iter().map(|c| c.opcode)
}

/// Reads a field of the input.
fn input(request: &Request, bits: Bits) -> u64 {
    ifc::get(&request.input, bits)
}

/// Checks and runs a command; `out` is its zeroed output.
pub fn dispatch(device: &mut Device, request: &Request, out: &mut [u8]) -> Outcome {
    let Some(command) = COMMANDS.iter().find(|c| c.opcode == request.opcode) else {
        let name = ifc::opcode_name(request.opcode)
            .map_or_else(|| format!("{:#x}", request.opcode), str::to_string);
        *device.counters.unknown_opcodes.entry(name).or_default() += 1;
        return Err(Failure::new(Status::BAD_OP_ERR, Syndrome::Opcode));
    };
    command.check(device, request)?;
    (command.run)(device, request, out)
}

/// The input of a command, without the uid in its header.
fn without_uid(request: &Request) -> Vec<u8> {
    let mut input = request.input.clone();
    let place = field!("alloc_pd_in", "uid").byte();
    if let Some(uid) = input.get_mut(place..place + 2) {
        uid.fill(0);
    }
    input
}

impl Command {
    /// Whether a uid in the header must have its place there. Drivers write a user's uid into all that
    /// the user asks, also where it means nothing.
    fn minds_uid(&self) -> bool {
        !self.name.starts_with("QUERY_") && self.name != "ACCESS_REG"
    }

    fn check(&self, device: &mut Device, request: &Request) -> Outcome {
        let state = device.hca.state;
        let name = self.name;
        if !self.states.contains(&state) {
            let detail = format!("{name} in state {state:?}, expected {:?}", self.states);
            device.checks.violate(Rule::Order, detail);
            return Err(Failure::new(Status::BAD_SYS_STATE_ERR, Syndrome::State));
        }
        let (want_in, want_out) = (self.input.bits as usize / 8, self.output.bits as usize / 8);
        if request.input.len() < want_in {
            let detail = format!(
                "{name}: input of {} bytes, {want_in} needed",
                request.input.len()
            );
            device.checks.violate(Rule::Length, detail);
            return Err(Failure::new(Status::BAD_INP_LEN_ERR, Syndrome::InLength));
        }
        if request.out_len < want_out {
            let detail = format!(
                "{name}: output of {} bytes, {want_out} needed",
                request.out_len
            );
            device.checks.violate(Rule::Length, detail);
            return Err(Failure::new(Status::BAD_OUTP_LEN_ERR, Syndrome::OutLength));
        }
        device.check_user(name, request)?;
        let reserved = if self.minds_uid() {
            ifc::reserved_set(self.input, &request.input)
        } else {
            ifc::reserved_set(self.input, &without_uid(request))
        };
        if !reserved.is_empty() {
            device
                .checks
                .violate(Rule::Reserved, format!("{name}: {}", reserved.join(", ")));
        }
        let tail = self.input.fields.iter().any(|f| f.flexible);
        if !tail && request.input[want_in..].iter().any(|b| *b != 0) {
            let detail = format!("{name}: bytes after the first {want_in} are not zero");
            device.checks.violate(Rule::Reserved, detail);
        }
        if let Only(op_mods) = self.op_mods {
            if !op_mods.contains(&request.op_mod) {
                let detail = format!("{name}: op_mod {:#x}, expected {op_mods:?}", request.op_mod);
                device.checks.violate(Rule::Parameter, detail);
                return Err(Failure::parameter(Syndrome::OpMod));
            }
        }
        if self.boot_pages && !device.has_boot_pages() {
            device.checks.violate(
                Rule::Order,
                format!("{name} before the boot pages were given"),
            );
            return Err(Failure::new(Status::BAD_SYS_STATE_ERR, Syndrome::BootPages));
        }
        Ok(())
    }
}

impl Device {
    /// Whether there is the user that a command is for.
    fn check_user(&mut self, name: &str, request: &Request) -> Outcome {
        let uid = request.uid;
        // Event queues can be everybody's.
        let shared = uid == users::SHARED && name == "CREATE_EQ" && self.has_users();
        if uid == 0 || shared || self.hca.users.knows(uid) {
            return Ok(());
        }
        self.checks.violate(
            Rule::User,
            format!("{name}: uid {uid:#x} is no user context"),
        );
        Err(Failure::parameter(Syndrome::User))
    }

    /// Whether there can be user contexts.
    fn has_users(&self) -> bool {
        self.caps.general(field!("cmd_hca_cap", "log_max_uctx")) != 0
    }

    /// Whether the user that a command is for may name an object.
    fn check_owner(&mut self, name: &str, request: &Request, object: Object) -> Outcome {
        let uid = request.uid;
        if self.hca.users.may_use(object, uid) {
            return Ok(());
        }
        self.checks.violate(
            Rule::User,
            format!("{name}: {object:?} is not of user {uid}"),
        );
        Err(Failure::new(Status::BAD_RES_ERR, Syndrome::User))
    }

    /// Records a bad parameter and returns the failure for it.
    fn bad_parameter(&mut self, detail: String) -> Failure {
        self.checks.violate(Rule::Parameter, detail);
        Failure::parameter(Syndrome::Parameter)
    }

    /// Whether this is the embedded CPU's function.
    pub(crate) fn embedded_cpu(&self) -> bool {
        self.seg.registers.embedded_cpu != 0
    }

    /// Number under which the function's own pages are kept.
    pub(crate) fn own_key(&self) -> u32 {
        pages::key(self.embedded_cpu(), 0)
    }

    /// Number under which the pages of the function of a page command are kept, if the device
    /// has that function.
    fn page_function(&self, embedded_cpu: bool, function: u16) -> Option<u32> {
        let own = if self
            .caps
            .general(field!("cmd_hca_cap", "icm_mng_function_id_mode"))
            != 0
        {
            let vhca_id = self.caps.general(field!("cmd_hca_cap", "vhca_id"));
            !embedded_cpu && u64::from(function) == vhca_id
        } else {
            function == 0 && embedded_cpu == self.embedded_cpu()
        };
        if own {
            return Some(self.own_key());
        }
        let key = pages::key(embedded_cpu, function);
        self.hca.pages.functions.contains_key(&key).then_some(key)
    }

    /// Number of pages that the function itself has.
    pub(crate) fn own_pages(&self) -> i64 {
        let own = self.hca.pages.functions.get(&self.own_key());
        own.map_or(0, |f| f.given() as i64)
    }

    /// What is wanted counts until INIT_HCA: it may be told otherwise later, for the next life.
    fn has_boot_pages(&self) -> bool {
        self.own_pages() >= i64::from(self.wanted.boot)
            || matches!(self.hca.state, State::Initialized | State::TornDown)
    }
}
