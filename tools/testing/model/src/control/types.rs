// SPDX-License-Identifier: GPL-2.0

//! Replies of the control socket.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::Serialize;

use crate::checks::Violation;
use crate::cmdif::Record;
use crate::device::Accesses;
use crate::device::State;
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
    /// Allocated transport domains.
    pub transport_domains: usize,
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
    /// What `nic_interface` reads as.
    pub nic_interface: u8,
}

/// A fault in the reply to `faults`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Name of the opcode, its number, or `*`.
    pub op: String,
    /// op_mod; none is any.
    pub op_mod: Option<u16>,
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
