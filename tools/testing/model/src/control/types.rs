// SPDX-License-Identifier: GPL-2.0

//! Replies of the control socket.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::Serialize;

use crate::checks::Violation;
use crate::cmdif::Record;
use crate::device::Accesses;
use crate::device::State;
use crate::tracer::Counters;
use crate::tracer::Owner;
use crate::vfio_user::dma::Traffic;

/// Reply to `status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Name of the adapter.
    pub device: String,
    /// PCI device id.
    pub device_id: u16,
    /// A client (QEMU) is connected.
    pub connected: bool,
    /// `up`, `ones` or `gone`.
    pub link: String,
    /// Bring-up state.
    pub state: State,
    /// It is of a driver that never was.
    pub stale: bool,
    /// Firmware has died.
    pub fatal: bool,
    /// What SET_ISSI chose.
    pub issi: Option<u16>,
    /// Command register bit 2.
    pub bus_master: bool,
    /// The initializing bit.
    pub initializing: bool,
    /// What `nic_interface` of the initialization segment reads as.
    pub nic_interface: u8,
    /// What SET_DRIVER_VERSION said.
    pub driver_version: String,
    /// Pages.
    pub pages: Pages,
    /// Event queues.
    pub eqs: Vec<Eq>,
    /// Allocated doorbell pages.
    pub uars: Vec<u32>,
    /// Allocated protection domains.
    pub pds: usize,
    /// Memory keys.
    pub mkeys: usize,
    /// Allocated transport domains.
    pub transport_domains: usize,
    /// Uids of the user contexts.
    pub users: Vec<u16>,
    /// Ids of the virtual functions that ENABLE_HCA has enabled.
    pub vfs: Vec<u16>,
    /// Virtual functions that the SR-IOV capability has enabled.
    pub num_vfs: u16,
    /// Commands that have not completed.
    pub in_flight: Vec<InFlight>,
    /// Commands since the model started, or since `reset`.
    pub commands: u64,
    /// Violations since they were cleared.
    pub violations: u64,
    /// Reads of BAR 0.
    pub mmio_reads: u64,
    /// Writes to BAR 0.
    pub mmio_writes: u64,
    /// Both, and accesses to configuration space, by area.
    pub accesses: Accesses,
    /// Accesses of the device to guest memory.
    pub dma: Traffic,
    /// Interrupts sent, by vector.
    pub irqs: Vec<u64>,
    /// Interrupts for vectors that the host does not take.
    pub irqs_unassigned: u64,
    /// Resets of the function, whatever caused them.
    pub resets: u64,
    /// Function level resets.
    pub flrs: u64,
    /// Resets by the client.
    pub device_resets: u64,
    /// Resets through `nic_interface`.
    pub software_resets: u64,
    /// Times that `nic_interface` was set to 1.
    pub nic_disables: u64,
    /// Times that bus mastering was switched off.
    pub master_clears: u64,
    /// Times that what a driver had left was dropped for the next one.
    pub stale_dropped: u64,
    /// Events for which no EQ asked.
    pub events_dropped: u64,
    /// Writes to doorbell pages that the model ignores.
    pub uar_ignored: u64,
    /// Opcodes that the model does not have, with how often they came.
    pub unknown_opcodes: BTreeMap<String, u64>,
    /// Mappings of guest memory.
    pub dma_maps: usize,
}

/// Pages in [`Status`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pages {
    /// Pages of all functions together.
    pub given: usize,
    /// QUERY_PAGES answer for boot.
    pub boot: i32,
    /// QUERY_PAGES answer for initialization.
    pub init: i32,
    /// QUERY_PAGES answer at run time.
    pub regular: i32,
    /// Asked for when a virtual function is enabled.
    pub vf: u16,
    /// Each function that has or had pages.
    pub functions: Vec<PageFunction>,
}

/// Pages of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageFunction {
    /// A function of the embedded CPU.
    pub ec: bool,
    /// Function id.
    pub function: u16,
    /// Pages that the device has.
    pub given: usize,
    /// Pages that it asked for and did not get.
    pub requested: i64,
    /// Pages that it offered and the driver did not take.
    pub returning: i64,
    /// MANAGE_PAGES(cannot give).
    pub refusals: u64,
}

/// An event queue in [`Status`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eq {
    /// Number.
    pub eqn: u8,
    /// MSI-X vector.
    pub vector: u16,
    /// Doorbell page.
    pub uar: u32,
    /// Entries.
    pub size: u32,
    /// Consumer index, 24 bits.
    pub ci: u32,
    /// Producer index, 24 bits.
    pub pi: u32,
    /// The next event raises an interrupt.
    pub armed: bool,
    /// Event types, ascending.
    pub events: Vec<u8>,
    /// Mask words.
    pub mask: [u64; 4],
    /// An event found it full.
    pub overrun: bool,
    /// Events of the control socket that wait for room.
    pub backlog: usize,
}

/// A command in [`Status`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// Slot.
    pub slot: usize,
    /// Number in the log.
    pub n: u64,
    /// Name of the opcode.
    pub name: String,
    /// Fault that keeps it.
    pub fault: Option<String>,
}

/// Reply to `commands`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commands {
    /// All commands so far, also those that are not listed.
    pub total: u64,
    /// Commands in order, at most [`Commands::MAX`].
    pub commands: Vec<Record>,
}

impl Commands {
    /// Most commands in a reply. More would take the model from its guest for too long.
    pub const MAX: usize = 1024;
}

/// Reply to `violations`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violations {
    /// All violations, also those that are not listed.
    pub count: u64,
    /// The first violations in order.
    pub violations: Vec<Violation>,
}

/// Reply to `cap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cap {
    /// Value now.
    pub cur: u64,
    /// Largest value.
    pub max: u64,
}

/// Reply to `health`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Firmware has died.
    pub fatal: bool,
    /// `synd` of the health buffer.
    pub syndrome: u8,
    /// `rfr` of the health buffer.
    pub rfr: bool,
    /// `severity` of the health buffer, if valid.
    pub severity: Option<u8>,
    /// The health counter.
    pub counter: u32,
    /// The counter moves.
    pub running: bool,
    /// How often it does, in milliseconds.
    pub period_ms: u64,
    /// How long it has stood still, in microseconds; none if it moves.
    pub still_us: Option<u64>,
    /// What `nic_interface` reads as.
    pub nic_interface: u8,
}

/// Reply to `tracer`, but for `tracer list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tracer {
    /// The registers are there.
    pub present: bool,
    /// The device can write to memory.
    pub to_memory: bool,
    /// `trc_ver`.
    pub ver: u8,
    /// `log_max_trace_buffer_size`, log2 of 4 KiB units.
    pub log_max: u8,
    /// Arming the event is answered at once if a block was written since the last one.
    pub eager: bool,
    /// Size of the string database, `small` or `large`.
    pub db: String,
    /// Base and size in bytes of its sections.
    pub sections: Vec<(u32, u32)>,
    /// What the traces say.
    pub script: TraceScript,
    /// Requests for ownership are refused.
    pub deny: bool,
    /// Who owns the tracer.
    pub owner: Owner,
    /// Traces go to memory.
    pub running: bool,
    /// An event is due for the next block.
    pub armed: bool,
    /// `trace_mkey`, if MTRC_CONF was written.
    pub mkey: Option<u32>,
    /// `log_trace_buffer_size`, likewise.
    pub log_size: Option<u8>,
    /// Next block of the buffer.
    pub block: u64,
    /// The counter, 53 bits.
    pub time: u64,
    /// Traces so far, dropped ones too.
    pub total: u64,
    /// Traces that are still to be written; none is no end.
    pub left: Option<u64>,
    /// There are such traces.
    pub writing: bool,
    /// Messages that are told at the same time.
    pub interleave: usize,
    /// Counters.
    pub counters: Counters,
    /// Why the file of `tracer log` is not complete.
    pub log_error: Option<String>,
}

/// What the traces say: [`crate::tracer::script::Script`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceScript {
    /// Everything follows from it.
    pub seed: u64,
    /// First event id of strings.
    pub first: u8,
    /// Number of event ids of strings.
    pub ids: u8,
    /// Formats that mlx5_core does not take, too.
    pub more: bool,
    /// Of a thousand traces, so many are no strings.
    pub raw: u16,
    /// Of a thousand traces, so many are hostile.
    pub hostile: u16,
}

impl From<TraceScript> for crate::tracer::script::Script {
    fn from(s: TraceScript) -> Self {
        Self {
            seed: s.seed,
            first_id: s.first,
            ids: s.ids,
            more: s.more,
            raw: s.raw,
            hostile: s.hostile,
        }
    }
}

/// Reply to `tracer list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceList {
    /// Traces so far.
    pub total: u64,
    /// Number of the first that is listed.
    pub first: u64,
    /// [`crate::tracer::truth::Entry`] as words, at most [`TraceList::MAX`].
    pub entries: Vec<u64>,
}

impl TraceList {
    /// Most entries in a reply.
    pub const MAX: usize = 4096;
}

/// A fault in the reply to `faults`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Name of the opcode, its number, or `*`.
    pub op: String,
    /// op_mod; none is any.
    pub op_mod: Option<u16>,
    /// Register of ACCESS_REG; none is any.
    pub register: Option<u16>,
    /// Action.
    pub act: String,
    /// Matching commands that still pass.
    pub skip: u64,
    /// Matching commands that are still hit; none is no limit.
    pub left: Option<u64>,
    /// Commands hit so far.
    pub hits: u64,
}

/// Reply to `faults`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// All faults in the order in which they are tried.
    pub faults: Vec<Fault>,
}

/// Reply to `release` and `faults clear`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// Commands that were completed by it.
    pub released: usize,
}

/// Reply to verbs that only do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}
