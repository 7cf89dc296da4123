// SPDX-License-Identifier: GPL-2.0

//! Command interface: from a doorbell to a completed descriptor and its event.
//!
//! - [`descriptor`]: layouts, checks, mailbox chains.
//! - [`status`]: status codes, delivery codes, the model's syndromes.
//! - here: slots, the order of things, faults, and the log of commands.
//!
//! What the commands do is in [`crate::commands`].

use std::collections::VecDeque;
use std::time::Duration;
use std::time::Instant;

use log::debug;
use log::info;
use serde::Deserialize;
use serde::Serialize;

use crate::bar::initseg::nic_interface;
use crate::caps;
use crate::checks::Rule;
use crate::control::types::InFlight;
use crate::device::Device;
use crate::device::Irq;
use crate::device::Later;
use crate::eq::event;
use crate::eq::Event;
use crate::faults::Action;
use crate::ifc;

pub mod descriptor;
pub mod status;

use descriptor::Descriptor;
use descriptor::Direction;
use descriptor::Refusal;
use status::Delivery;
use status::Failure;

/// Most slots that a queue can have.
pub const SLOTS: usize = 32;

/// Commands that the log keeps.
const LOG: usize = 1 << 16;

/// Commands without which objects stay.
const DESTROYERS: [u16; 7] = [
    crate::commands::opcode("DEALLOC_PD"),
    crate::commands::opcode("DEALLOC_TRANSPORT_DOMAIN"),
    crate::commands::opcode("DEALLOC_UAR"),
    crate::commands::opcode("DESTROY_EQ"),
    crate::commands::opcode("DESTROY_MKEY"),
    crate::commands::opcode("DESTROY_UCTX"),
    crate::commands::opcode("DISABLE_HCA"),
];

/// A command as it arrived.
#[derive(Clone, Debug)]
pub struct Request {
    /// Opcode.
    pub opcode: u16,
    /// op_mod.
    pub op_mod: u16,
    /// uid.
    pub uid: u16,
    /// All of the input, header included.
    pub input: Vec<u8>,
    /// Bytes of output that software has room for.
    pub out_len: usize,
}

impl Request {
    /// The register that ACCESS_REG is for.
    fn register(&self) -> Option<u16> {
        const ACCESS_REG: u16 = crate::commands::opcode("ACCESS_REG");
        let bits = crate::field!("access_register_in", "register_id");
        (self.opcode == ACCESS_REG).then(|| ifc::get(&self.input, bits) as u16)
    }
}

/// How software learns that a command has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It reads the descriptor.
    Poll,
    /// It gets an event: an EQ for command completions existed at the doorbell.
    Event,
}

/// A command in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Counts up from 0.
    pub n: u64,
    /// Opcode.
    pub opcode: u16,
    /// Name in `mlx5_ifc.h`, or the number.
    pub name: String,
    /// op_mod.
    pub op_mod: u16,
    /// uid.
    pub uid: u16,
    /// Input length.
    pub in_len: u32,
    /// Output length.
    pub out_len: u32,
    /// Status; none before completion, or when it was not delivered.
    pub status: Option<u8>,
    /// Syndrome.
    pub syndrome: Option<u32>,
    /// Slot.
    pub slot: usize,
    /// Token.
    pub token: u8,
    /// Polled or with an event.
    pub mode: Mode,
    /// Delivery status; none before completion.
    pub delivery: Option<u8>,
    /// Name of the fault that struck.
    pub fault: Option<String>,
}

#[derive(Clone, Debug)]
struct Reply {
    delivery: Delivery,
    output: Vec<u8>,
}

/// A command between its doorbell and its completion.
#[derive(Clone, Debug)]
pub struct Flight {
    n: u64,
    address: u64,
    descriptor: Descriptor,
    out_blocks: Vec<u64>,
    signed: bool,
    request: Request,
    mode: Mode,
    action: Option<Action>,
    reply: Option<Reply>,
}

/// Commands so far.
#[derive(Debug, Default)]
pub struct Log {
    records: VecDeque<Record>,
    total: u64,
}

impl Log {
    /// Number of commands.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The commands from number `since` on, as far as they are kept.
    pub fn since(&self, since: u64) -> impl Iterator<Item = &Record> {
        let first = self.records.front().map_or(0, |r| r.n);
        let skip = since.saturating_sub(first).min(self.records.len() as u64);
        self.records.range(skip as usize..)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn push(&mut self, mut record: Record) -> u64 {
        record.n = self.total;
        self.total += 1;
        if self.records.len() == LOG {
            self.records.pop_front();
        }
        self.records.push_back(record);
        self.total - 1
    }

    fn get(&mut self, n: u64) -> Option<&mut Record> {
        let first = self.records.front()?.n;
        self.records.get_mut(n.checked_sub(first)? as usize)
    }
}

/// `NAME(0xNNN)`.
fn title(opcode: u16) -> String {
    format!(
        "{}({opcode:#x})",
        ifc::opcode_name(opcode).unwrap_or("unknown")
    )
}

impl Device {
    /// A write to the doorbell vector.
    pub(crate) fn command_doorbell(&mut self, vector: u32) {
        let now = Instant::now();
        let seg = &self.seg;
        let slots = 1u32 << seg.registers.log_cmdq_size.min(5);
        if self.surprised {
            return;
        }
        if seg.is_initializing(now) {
            self.checks
                .violate(Rule::NotReady, format!("doorbell {vector:#x}"));
            return;
        }
        let Some(queue) = seg.cmdq() else {
            self.checks
                .violate(Rule::NoQueue, format!("doorbell {vector:#x}"));
            return;
        };
        if seg.nic_interface == nic_interface::DISABLED {
            let detail = format!("doorbell {vector:#x}: nic_interface is disabled");
            self.checks.violate(Rule::NoQueue, detail);
            return;
        }
        if !self.pci.bus_master() {
            let detail = format!("command doorbell {vector:#x}");
            self.checks.violate(Rule::DmaWithoutMaster, detail);
            return;
        }
        for slot in (0..32).filter(|s| vector >> s & 1 != 0) {
            // The command before may have been the last that the device saw.
            if !self.on_bus() || self.seg.cmdq() != Some(queue) {
                return;
            }
            if slot >= slots {
                let detail = format!("doorbell for slot {slot} of {slots}");
                self.checks.violate(Rule::MmioAccess, detail);
                continue;
            }
            let address = queue + (u64::from(slot) << self.seg.registers.log_cmdq_stride);
            self.submit(slot as usize, address);
        }
    }

    fn submit(&mut self, slot: usize, address: u64) {
        if self.hca.flights[slot].is_some() {
            self.checks.violate(Rule::SlotBusy, format!("slot {slot}"));
            return;
        }
        let mut raw = [0; descriptor::DESCRIPTOR];
        let owner = address + descriptor::DESCRIPTOR as u64 - 1;
        // The owner byte first: the rest is as software left it before it gave the slot away.
        let read = self
            .mem
            .load(owner)
            .and_then(|_| self.mem.read(address, &mut raw));
        if let Err(e) = read {
            self.checks
                .violate(Rule::DmaUnmapped, format!("descriptor of slot {slot}: {e}"));
            return;
        }
        let descriptor = Descriptor::new(raw);
        if !descriptor.owned_by_device() {
            self.checks.violate(Rule::NotOwned, format!("slot {slot}"));
            return;
        }
        let mode = if self.eq_for(event::COMMAND).is_some() {
            Mode::Event
        } else {
            Mode::Poll
        };
        let signed = self.caps.general(caps::CMDIF_CHECKSUM) != 0;
        let (request, out_blocks, refusal) = match self.receive(&descriptor, signed) {
            Ok((request, out_blocks)) => (request, out_blocks, None),
            Err(refusal) => {
                let input = descriptor.in_inline().to_vec();
                (
                    header(input, descriptor.out_len()),
                    Vec::new(),
                    Some(refusal),
                )
            }
        };
        let n = self.log.push(Record {
            n: 0,
            opcode: request.opcode,
            name: ifc::opcode_name(request.opcode)
                .map_or_else(|| format!("{:#x}", request.opcode), str::to_string),
            op_mod: request.op_mod,
            uid: request.uid,
            in_len: descriptor.in_len(),
            out_len: descriptor.out_len(),
            status: None,
            syndrome: None,
            slot,
            token: descriptor.token(),
            mode,
            delivery: None,
            fault: None,
        });
        let mut flight = Flight {
            n,
            address,
            descriptor,
            out_blocks,
            signed,
            request,
            mode,
            action: None,
            reply: None,
        };
        if let Some(Refusal {
            rule,
            detail,
            delivery,
        }) = refusal
        {
            let what = format!("{} in slot {slot}: {detail}", title(flight.request.opcode));
            self.checks.violate(rule, what);
            flight.reply = Some(Reply {
                delivery,
                output: Vec::new(),
            });
            self.complete(slot, flight);
            return;
        }
        self.check_slot_class(slot, flight.request.opcode);
        self.start(slot, flight);
    }

    /// Reads and checks what the descriptor points to.
    fn receive(&self, d: &Descriptor, signed: bool) -> Result<(Request, Vec<u64>), Refusal> {
        d.check()?;
        let mut input = d.in_inline()[..descriptor::INLINE.min(d.in_len() as usize)].to_vec();
        let mem = &self.mem;
        let (_, rest) = descriptor::walk(
            mem,
            d.in_pointer(),
            d.in_len(),
            d.token(),
            signed,
            Direction::In,
        )?;
        input.extend(rest);
        let (out_blocks, _) = descriptor::walk(
            mem,
            d.out_pointer(),
            d.out_len(),
            d.token(),
            signed,
            Direction::Out,
        )?;
        Ok((header(input, d.out_len()), out_blocks))
    }

    /// The last slot is for MANAGE_PAGES, so that pages can move while all others wait.
    fn check_slot_class(&mut self, slot: usize, opcode: u16) {
        let last = (1 << self.seg.registers.log_cmdq_size.min(5)) - 1;
        let pages = ifc::opcode("MANAGE_PAGES") == Some(opcode);
        if last > 0 && (slot == last) != pages {
            let detail = format!("{} in slot {slot}, the page slot is {last}", title(opcode));
            self.checks.violate(Rule::SlotClass, detail);
        }
    }

    fn start(&mut self, slot: usize, mut flight: Flight) {
        if self.fatal {
            if let Some(record) = self.log.get(flight.n) {
                record.fault = Some("fatal".into());
            }
            return self.note_and_keep(slot, flight);
        }
        let request = &flight.request;
        let register = request.register();
        flight.action = self.faults.strike(request.opcode, request.op_mod, register);
        if let Some(action) = flight.action {
            let name = action.name();
            info!(
                "slot {slot}: {} is struck by {name}",
                title(flight.request.opcode)
            );
            if let Some(record) = self.log.get(flight.n) {
                record.fault = Some(name.to_string());
            }
        }
        match flight.action {
            Some(Action::Status(status, syndrome)) => {
                let output = failed(Failure { status, syndrome }, flight.request.out_len);
                self.note_struck(&flight.request);
                flight.reply = Some(Reply {
                    delivery: Delivery::OK,
                    output,
                });
            }
            Some(Action::Delivery(delivery)) => {
                self.note_struck(&flight.request);
                flight.reply = Some(Reply {
                    delivery,
                    output: Vec::new(),
                });
            }
            Some(Action::TeardownFailed) => {
                let mut output = vec![0; flight.request.out_len];
                ifc::set(&mut output, crate::field!("teardown_hca_out", "state"), 1);
                flight.reply = Some(Reply {
                    delivery: Delivery::OK,
                    output,
                });
            }
            Some(Action::Never | Action::Hold) => return self.note_and_keep(slot, flight),
            Some(Action::Stall) => {
                self.seg.counter.stop(Instant::now());
                return self.note_and_keep(slot, flight);
            }
            Some(Action::Ones(outage)) => {
                // It goes on when the device does.
                self.answer_later(slot, flight, Duration::ZERO);
                return self.fall_silent(outage);
            }
            Some(Action::Vanish) => {
                self.note_and_keep(slot, flight);
                return self.vanish();
            }
            Some(Action::Fatal(fatal)) => {
                self.note_and_keep(slot, flight);
                return self.fail(fatal);
            }
            Some(Action::Reset(initializing)) => return self.reset_by_itself(initializing),
            Some(Action::Late(after)) => {
                self.run(&mut flight);
                return self.answer_later(slot, flight, after);
            }
            Some(Action::Delay(after)) => return self.answer_later(slot, flight, after),
            _ => {}
        }
        self.complete(slot, flight);
    }

    /// Keeps a command that is not executed, perhaps for good.
    fn note_and_keep(&mut self, slot: usize, flight: Flight) {
        self.note_struck(&flight.request);
        self.hca.flights[slot] = Some(flight);
    }

    fn answer_later(&mut self, slot: usize, flight: Flight, after: Duration) {
        self.timers.add(
            Instant::now() + after,
            Later::Complete { slot, n: flight.n },
        );
        self.hca.flights[slot] = Some(flight);
    }

    fn run(&mut self, flight: &mut Flight) {
        if flight.reply.is_none() {
            let output = self.execute(&flight.request);
            flight.reply = Some(Reply {
                delivery: Delivery::OK,
                output,
            });
        }
    }

    /// Completes command `n` in `slot` if it still waits there.
    pub(crate) fn complete_later(&mut self, slot: usize, n: u64) {
        if let Some(flight) = self.hca.flights[slot].take_if(|f| f.n == n) {
            self.complete(slot, flight);
        }
    }

    /// Completes all commands whose fault is `which`; returns how many there were.
    pub(crate) fn release(&mut self, which: impl Fn(Action) -> bool) -> usize {
        let mut count = 0;
        for slot in 0..SLOTS {
            if let Some(flight) = self.hca.flights[slot].take_if(|f| f.action.is_some_and(&which)) {
                count += 1;
                self.complete(slot, flight);
            }
        }
        count
    }

    /// Commands that have not completed, for the control socket.
    pub(crate) fn in_flight(&self) -> Vec<InFlight> {
        let flights = self.hca.flights.iter().enumerate();
        flights
            .filter_map(|(slot, f)| f.as_ref().map(|f| (slot, f)))
            .map(|(slot, f)| InFlight {
                slot,
                n: f.n,
                name: ifc::opcode_name(f.request.opcode)
                    .unwrap_or("unknown")
                    .to_string(),
                fault: f.action.map(|a| a.name().to_string()),
            })
            .collect()
    }

    /// Executes the command unless that was done, and tells software.
    fn complete(&mut self, slot: usize, mut flight: Flight) {
        if !self.pci.bus_master() {
            // The driver has cut the device off, as it must before it takes its memory back.
            debug!("slot {slot}: completion dropped, bus master is off");
            return;
        }
        if self.fatal {
            self.hca.flights[slot] = Some(flight);
            return;
        }
        if !self.on_bus() {
            // Timers stand still until the link is back.
            return self.answer_later(slot, flight, Duration::ZERO);
        }
        self.run(&mut flight);
        let Some(Reply {
            delivery,
            mut output,
        }) = flight.reply.take()
        else {
            return;
        };
        let token = match flight.action {
            Some(Action::BadToken) => flight.descriptor.token() ^ 0xff,
            _ => flight.descriptor.token(),
        };
        if flight.action == Some(Action::Garbage) {
            noise(output.get_mut(8..).unwrap_or_default(), flight.n);
        }
        if let Some(Action::Patch(patch)) = flight.action {
            patch.apply(&mut output);
        }
        if let Some(record) = self.log.get(flight.n) {
            record.delivery = Some(delivery.0);
            if delivery == Delivery::OK {
                record.status = output.first().copied();
                record.syndrome =
                    Some(ifc::get(&output, crate::field!("enable_hca_out", "syndrome")) as u32);
            }
        }
        let inline = output.len().min(descriptor::INLINE);
        let raw = flight
            .descriptor
            .completed(&output[..inline], token, delivery);
        let last = raw.len() - 1;
        let written = descriptor::fill(
            &self.mem,
            &flight.out_blocks,
            &output[inline..],
            token,
            flight.signed,
        )
        .and_then(|()| self.mem.write(flight.address, &raw[..last]))
        .and_then(|()| self.mem.store(flight.address + last as u64, raw[last]));
        if let Err(e) = written {
            let what = format!("completion of {}: {e}", title(flight.request.opcode));
            self.checks.violate(Rule::DmaUnmapped, what);
            return;
        }
        debug!(
            "slot {slot}: {} op_mod {:#x}: delivery {:#x} status {:#x}",
            title(flight.request.opcode),
            flight.request.op_mod,
            delivery.0,
            output.first().copied().unwrap_or(0)
        );
        if flight.mode == Mode::Event {
            self.completion_events(slot, flight.action);
        }
    }

    fn completion_events(&mut self, slot: usize, action: Option<Action>) {
        let irq = match action {
            Some(Action::DropIrq) => Irq::None,
            Some(Action::DupIrq) => Irq::Twice,
            _ => Irq::Once,
        };
        match action {
            Some(Action::DropEvent) => return,
            Some(Action::DupEvent) => self.post_completion(slot, irq),
            Some(Action::Twice(after)) => {
                self.timers
                    .add(Instant::now() + after, Later::Completion { slot });
            }
            _ => {}
        }
        self.post_completion(slot, irq);
    }

    /// Posts a command completion event for `slot`.
    pub(crate) fn post_completion(&mut self, slot: usize, irq: Irq) {
        // The EQ may have been the one that the command destroyed.
        if let Some(eqn) = self.eq_for(event::COMMAND) {
            let event = Event::new(event::COMMAND, 0, &(1u32 << slot).to_be_bytes());
            self.post_event(eqn, &event, irq);
        }
    }

    /// Executes a command, and returns its output with the status in it.
    fn execute(&mut self, request: &Request) -> Vec<u8> {
        let mut output = vec![0; request.out_len];
        match crate::commands::dispatch(self, request, &mut output) {
            Ok(()) => output,
            Err(f) => {
                debug!(
                    "{} op_mod {:#x}: status {:#x} syndrome {:#x}",
                    title(request.opcode),
                    request.op_mod,
                    f.status.0,
                    f.syndrome
                );
                failed(f, request.out_len)
            }
        }
    }

    /// A command that a fault kept from running. Some rules must not blame the driver then.
    fn note_struck(&mut self, request: &Request) {
        if ifc::opcode("MANAGE_PAGES") == Some(request.opcode) {
            self.hca.pages_struck = true;
        }
        if DESTROYERS.contains(&request.opcode) {
            self.hca.objects_struck = true;
        }
    }
}

fn header(input: Vec<u8>, out_len: u32) -> Request {
    use crate::field;
    Request {
        opcode: ifc::get(&input, field!("create_eq_in", "opcode")) as u16,
        uid: ifc::get(&input, field!("create_eq_in", "uid")) as u16,
        op_mod: ifc::get(&input, field!("create_eq_in", "op_mod")) as u16,
        input,
        out_len: out_len as usize,
    }
}

fn failed(failure: Failure, out_len: usize) -> Vec<u8> {
    let mut output = vec![0; out_len];
    ifc::set(
        &mut output,
        crate::field!("enable_hca_out", "status"),
        failure.status.0.into(),
    );
    ifc::set(
        &mut output,
        crate::field!("enable_hca_out", "syndrome"),
        failure.syndrome.into(),
    );
    output
}

/// Bytes that look like nothing, the same for the same seed (xorshift64*).
fn noise(bytes: &mut [u8], seed: u64) {
    let mut x = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for b in bytes {
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        *b = (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8;
    }
}
