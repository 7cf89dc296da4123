// SPDX-License-Identifier: GPL-2.0

//! The device: its state, its reset paths, and what a register access does.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::Duration;
use std::time::Instant;

use log::debug;
use log::info;
use nix::errno::Errno;
use serde::Deserialize;
use serde::Serialize;
use vfio_bindings::bindings::vfio as uapi;

use crate::bar;
use crate::bar::initseg;
use crate::bar::initseg::nic_interface;
use crate::bar::initseg::InitSegment;
use crate::caps::Caps;
use crate::checks::Checks;
use crate::checks::Rule;
use crate::cmdif;
use crate::cmdif::Flight;
use crate::eq::event as eq_event;
use crate::eq::Eq;
use crate::eq::Event;
use crate::eq::PostError;
use crate::eq::COUNTER_MASK;
use crate::faults::Faults;
use crate::health::SoftwareReset;
use crate::identity::Identity;
use crate::ifc;
use crate::link::Link;
use crate::mkey::Mkey;
use crate::pages::Pages;
use crate::pages::Wanted;
use crate::pci;
use crate::timers::Timers;
use crate::tracer;
use crate::tracer::Tracer;
use crate::users::Users;
use crate::vfio_user::dma;
use crate::vfio_user::irq::Vectors;
use crate::vfio_user::Backend;
use crate::vfio_user::Irq as IrqIndex;
use crate::vfio_user::IrqSet;
use crate::vfio_user::Region;

/// Where bring-up and teardown are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// After power on, reset, or DISABLE_HCA.
    #[default]
    #[serde(rename = "reset")]
    Reset,
    /// After ENABLE_HCA.
    #[serde(rename = "enabled")]
    Enabled,
    /// After INIT_HCA.
    #[serde(rename = "initialized")]
    Initialized,
    /// After TEARDOWN_HCA.
    #[serde(rename = "torn down")]
    TornDown,
}

/// How many interrupts come with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Irq {
    /// None, as if the interrupt was lost.
    None,
    /// One if the EQ is armed, as it should be.
    Once,
    /// Two.
    Twice,
}

/// What a timer does.
#[derive(Clone, Copy, Debug)]
pub enum Later {
    /// Completes command `n` in `slot`.
    Complete {
        /// Slot.
        slot: usize,
        /// Number in the log.
        n: u64,
    },
    /// Posts a completion event for `slot` once more.
    Completion {
        /// Slot.
        slot: usize,
    },
    /// Carries out what the driver wrote to `nic_interface`.
    NicInterface(u8),
}

/// Everything that a reset of the function forgets.
#[derive(Debug)]
pub struct Hca {
    /// Bring-up state.
    pub state: State,
    /// Interface version that SET_ISSI chose.
    pub issi: Option<u16>,
    /// Pages that the driver gave.
    pub pages: Pages,
    /// Event queues by number.
    pub eqs: BTreeMap<u8, Eq>,
    /// Allocated doorbell pages.
    pub uars: BTreeSet<u32>,
    /// Allocated protection domains.
    pub pds: BTreeSet<u32>,
    /// Allocated transport domains.
    pub transport_domains: BTreeSet<u32>,
    /// Memory keys by index.
    pub mkeys: BTreeMap<u32, Mkey>,
    /// Index of the mkey made last.
    last_mkey: u32,
    /// User contexts, and what is theirs.
    pub users: Users,
    /// Virtual functions that ENABLE_HCA has enabled, by function id.
    pub vfs: BTreeSet<u16>,
    /// Commands under way, by slot.
    pub flights: [Option<Flight>; cmdif::SLOTS],
    /// What SET_DRIVER_VERSION said.
    pub driver_version: String,
    /// Fast teardown is prepared: writing nic_interface finishes it.
    pub fast_teardown: bool,
    /// HOST_ENDIANNESS register.
    pub host_big_endian: bool,
    /// MRTC register.
    pub wall_clock: [u8; ifc::size_of("mrtc_reg")],
    /// MTU of the NIC vport, if the driver set it.
    pub nic_mtu: Option<u64>,
    /// RoCE of the NIC vport.
    pub roce_en: bool,
    /// A fault kept a MANAGE_PAGES from running.
    pub pages_struck: bool,
    /// A fault kept the destruction of an object from running.
    pub objects_struck: bool,
    /// All of this is of a driver that never was ([`Device::leave_stale`]).
    pub stale: bool,
}

impl Default for Hca {
    fn default() -> Self {
        Self {
            state: State::Reset,
            issi: None,
            pages: Pages::default(),
            eqs: BTreeMap::new(),
            uars: BTreeSet::new(),
            pds: BTreeSet::new(),
            transport_domains: BTreeSet::new(),
            mkeys: BTreeMap::new(),
            last_mkey: 0,
            users: Users::default(),
            vfs: BTreeSet::new(),
            flights: std::array::from_fn(|_| None),
            driver_version: String::new(),
            fast_teardown: false,
            host_big_endian: false,
            wall_clock: [0; ifc::size_of("mrtc_reg")],
            nic_mtu: None,
            roce_en: false,
            pages_struck: false,
            objects_struck: false,
            stale: false,
        }
    }
}

impl Hca {
    /// A free index of `first..end` for an mkey. One that was in use comes again only when all
    /// others have been, so that the use of a destroyed key shows.
    pub(crate) fn next_mkey(&mut self, first: u32, end: u32) -> Option<u32> {
        let count = end.checked_sub(first).filter(|n| *n > 0)?;
        if self.mkeys.len() as u64 >= u64::from(count) {
            return None;
        }
        let mut index = self.last_mkey;
        loop {
            index += 1;
            if index < first || index >= end {
                index = first;
            }
            if !self.mkeys.contains_key(&index) {
                self.last_mkey = index;
                return Some(index);
            }
        }
    }
}

/// Accesses of the host, by what they went to, and whether the device took them or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accesses {
    /// Reads below the doorbell pages.
    pub segment_reads: u64,
    /// Those of them that touch the health buffer.
    pub health_buffer_reads: u64,
    /// Those of them that touch the word with health syndrome and counter.
    pub health_counter_reads: u64,
    /// Writes below the doorbell pages, but for command doorbells.
    pub segment_writes: u64,
    /// Writes to the command doorbell.
    pub doorbells: u64,
    /// Reads of doorbell pages.
    pub uar_reads: u64,
    /// Writes to doorbell pages.
    pub uar_writes: u64,
    /// Reads of configuration space.
    pub config_reads: u64,
    /// Writes to configuration space.
    pub config_writes: u64,
    /// Reads of either that were answered with ones.
    pub ones: u64,
    /// Writes to either that were lost.
    pub lost: u64,
}

/// Counters that only the control socket resets.
#[derive(Clone, Debug, Serialize)]
pub struct Counters {
    /// Reads of BAR 0.
    pub mmio_reads: u64,
    /// Writes to BAR 0.
    pub mmio_writes: u64,
    /// The same and those of configuration space, by area.
    pub accesses: Accesses,
    /// Interrupts sent, by vector.
    pub irqs: Vec<u64>,
    /// Interrupts that the host does not take.
    pub irqs_unassigned: u64,
    /// Resets of the function, whatever caused them.
    pub resets: u64,
    /// Function level resets.
    pub flrs: u64,
    /// DEVICE_RESETs.
    pub device_resets: u64,
    /// Writes of 7 to `nic_interface`.
    pub software_resets: u64,
    /// Writes of 1 to `nic_interface`.
    pub nic_disables: u64,
    /// Times that bus mastering was switched off.
    pub master_clears: u64,
    /// Times that what a driver had left was dropped for the next one.
    pub stale_dropped: u64,
    /// Events for which no EQ asked.
    pub events_dropped: u64,
    /// Writes to UAR offsets that the model has no object for.
    pub uar_ignored: u64,
    /// Opcodes that the model does not have, with how often they came.
    pub unknown_opcodes: BTreeMap<String, u64>,
}

impl Counters {
    fn new() -> Self {
        Self {
            mmio_reads: 0,
            mmio_writes: 0,
            accesses: Accesses::default(),
            irqs: vec![0; usize::from(pci::VECTORS)],
            irqs_unassigned: 0,
            resets: 0,
            flrs: 0,
            device_resets: 0,
            software_resets: 0,
            nic_disables: 0,
            master_clears: 0,
            stale_dropped: 0,
            events_dropped: 0,
            uar_ignored: 0,
            unknown_opcodes: BTreeMap::new(),
        }
    }
}

/// A ConnectX function.
#[derive(Debug)]
pub struct Device {
    /// What it pretends to be.
    pub identity: Identity,
    /// Configuration space.
    pub pci: pci::Config,
    /// Initialization segment.
    pub seg: InitSegment,
    /// Guest memory.
    pub mem: dma::Memory,
    /// MSI-X vectors.
    pub irqs: Vectors,
    /// State that a reset forgets.
    pub hca: Hca,
    /// Whether the host reaches it.
    pub link: Link,
    /// Writes to configuration space are lost.
    pub deaf: bool,
    /// Firmware has died: no command is answered, no event sent.
    pub fatal: bool,
    /// A reset that the driver did not ask for took away what it works with; until it starts over,
    /// what it does is not held against it.
    pub surprised: bool,
    /// How long it takes until a write to `nic_interface` has its effect; `None` is forever.
    pub nic_delay: Option<Duration>,
    /// What else a software reset does.
    pub software_reset: SoftwareReset,
    /// Capabilities.
    pub caps: Caps,
    /// Pages that QUERY_PAGES asks for.
    pub wanted: Wanted,
    /// Faults that are set.
    pub faults: Faults,
    /// What the driver did wrong.
    pub checks: Checks,
    /// Commands so far.
    pub log: cmdif::Log,
    /// The firmware tracer.
    pub tracer: Tracer,
    /// Counters.
    pub counters: Counters,
    pub(crate) timers: Timers<Later>,
}

impl Device {
    /// A device after power on.
    pub fn new(identity: Identity) -> Self {
        Self {
            pci: pci::Config::new(&identity),
            seg: InitSegment::new(&identity),
            mem: dma::Memory::default(),
            irqs: Vectors::new(usize::from(pci::VECTORS)),
            hca: Hca::default(),
            link: Link::default(),
            deaf: false,
            fatal: false,
            surprised: false,
            nic_delay: Some(Duration::ZERO),
            software_reset: SoftwareReset::default(),
            caps: Caps::new(&identity),
            wanted: Wanted::default(),
            faults: Faults::default(),
            checks: Checks::default(),
            log: cmdif::Log::default(),
            tracer: Tracer::new(!identity.vf),
            counters: Counters::new(),
            timers: Timers::default(),
            identity,
        }
    }

    /// As after power on: state, faults, capabilities, counters, violations. The client's memory
    /// and interrupts stay.
    pub fn power_on(&mut self) {
        let mem = std::mem::take(&mut self.mem);
        mem.clear_traffic();
        let irqs = std::mem::replace(&mut self.irqs, Vectors::new(0));
        // The client has written to the configuration space; that stays as the client knows it.
        let pci = self.pci.clone();
        let fresh = Self::new(self.identity.clone());
        *self = Self {
            mem,
            irqs,
            pci,
            ..fresh
        };
    }

    /// Forgets what a driver has set up.
    pub(crate) fn forget(&mut self) {
        self.hca = Hca::default();
        self.tracer.forget();
        self.caps.reset();
        self.timers = Timers::default();
    }

    /// Resets the function; the configuration space is the caller's business.
    pub(crate) fn function_reset(&mut self) {
        self.counters.resets += 1;
        self.surprised = false;
        self.drop_stale();
        self.forget();
        if self.fatal {
            self.recover();
        }
        self.seg.reset();
    }

    /// Does what is due. To be called when [`Device::wait`] has passed.
    pub fn tick(&mut self) {
        let now = Instant::now();
        self.come_back_in_time(now);
        if !self.on_bus() {
            return;
        }
        while let Some(later) = self.timers.pop(now) {
            match later {
                Later::Complete { slot, n } => self.complete_later(slot, n),
                Later::Completion { slot } => self.post_completion(slot, Irq::Once),
                Later::NicInterface(nic) => self.apply_nic_interface(nic),
            }
        }
        self.trace(now);
    }

    /// Time until [`Device::tick`] has something to do.
    pub fn wait(&self) -> Option<Duration> {
        let now = Instant::now();
        match self.link {
            Link::Up => {
                let waits = [self.timers.wait(now), self.trace_wait(now)];
                waits.into_iter().flatten().min()
            }
            Link::Silent(_, until) => until.map(|t| t.saturating_duration_since(now)),
            Link::Gone => None,
        }
    }

    /// The EQ that takes events of type `kind`.
    pub(crate) fn eq_for(&self, kind: u8) -> Option<u8> {
        self.hca
            .eqs
            .iter()
            .find(|(_, eq)| eq.takes(kind))
            .map(|(n, _)| *n)
    }

    /// Whether the device would use the bus if it had something to say.
    pub fn may_use_bus(&self) -> bool {
        self.pci.bus_master() && self.on_bus() && !self.fatal
    }

    /// Raises an interrupt.
    pub fn raise(&mut self, vector: u16) {
        // An MSI-X message is a write to memory.
        if !self.may_use_bus() {
            return;
        }
        let vector = usize::from(vector);
        if self.irqs.raise(vector) {
            self.counters.irqs[vector] += 1;
        } else {
            self.counters.irqs_unassigned += 1;
        }
    }

    /// Writes an event to an EQ and raises its interrupt if it is armed.
    pub(crate) fn post_event(&mut self, eqn: u8, event: &Event, irq: Irq) {
        if !self.may_use_bus() {
            return;
        }
        if (event.kind, event.subtype) == (eq_event::TRACER, tracer::subtype::OWNERSHIP) {
            let reasons = &mut self.tracer.session.reasons;
            *reasons = reasons.saturating_add(1);
        }
        let Some(eq) = self.hca.eqs.get_mut(&eqn) else {
            return;
        };
        match eq.post(&self.mem, event) {
            Ok(()) => {}
            Err(PostError::Overrun) => {
                let detail = format!(
                    "EQ {eqn}: event {:#x}, {} entries, ci {}, pi {}",
                    event.kind,
                    eq.size(),
                    eq.ci,
                    eq.pi
                );
                self.checks.violate(Rule::EqOverrun, detail);
                return;
            }
            Err(PostError::Memory(e)) => {
                self.checks
                    .violate(Rule::DmaUnmapped, format!("EQ {eqn}: {e}"));
                return;
            }
        }
        self.fire(eqn, irq);
    }

    /// Raises the interrupt of an EQ with events in it, if it is armed.
    fn fire(&mut self, eqn: u8, irq: Irq) {
        let Some(eq) = self.hca.eqs.get_mut(&eqn) else {
            return;
        };
        if !eq.armed || eq.pending() == 0 {
            return;
        }
        eq.armed = false;
        let vector = eq.vector;
        match irq {
            Irq::None => {}
            Irq::Once => self.raise(vector),
            Irq::Twice => {
                self.raise(vector);
                self.raise(vector);
            }
        }
    }

    /// Posts events of the backlog while there is room. Half of the queue stays free for the
    /// events of the device itself, which do not wait.
    pub(crate) fn drain_backlog(&mut self, eqn: u8) {
        while let Some(eq) = self.hca.eqs.get_mut(&eqn) {
            if eq.overrun || eq.pending() >= eq.size() / 2 {
                return;
            }
            let Some(event) = eq.backlog.pop_front() else {
                return;
            };
            self.post_event(eqn, &event, Irq::Once);
        }
    }

    /// A consumer index from software.
    fn eq_doorbell(&mut self, uar: u32, value: u32, arm: bool) {
        let eqn = (value >> 24) as u8;
        let ci = value & COUNTER_MASK;
        let Some(eq) = self.hca.eqs.get_mut(&eqn) else {
            let detail = format!("EQ {eqn} does not exist (value {value:#010x})");
            self.checks.violate(Rule::EqDoorbell, detail);
            return;
        };
        if eq.uar != uar {
            let detail = format!("EQ {eqn} of UAR {} through UAR {uar}", eq.uar);
            self.checks.violate(Rule::EqDoorbell, detail);
        }
        let ahead = ci.wrapping_sub(eq.ci) & COUNTER_MASK;
        if ahead > eq.pending() {
            let detail = format!("EQ {eqn}: {ci}, expected {}..={}", eq.ci, eq.pi);
            self.checks.violate(Rule::EqConsumer, detail);
            return;
        }
        eq.ci = ci;
        eq.armed |= arm;
        self.fire(eqn, Irq::Once);
        self.drain_backlog(eqn);
    }

    fn config_read(&mut self, offset: usize, data: &mut [u8]) {
        self.counters.accesses.config_reads += 1;
        if self.link.config() {
            self.pci.read(offset, data);
        } else {
            self.counters.accesses.ones += 1;
            data.fill(0xff);
            self.read_in_vain();
        }
    }

    fn config_write(&mut self, offset: usize, data: &[u8]) {
        self.counters.accesses.config_writes += 1;
        if !self.link.config() || self.deaf {
            self.counters.accesses.lost += 1;
            return;
        }
        match self.pci.write(offset, data) {
            pci::Effect::None => {}
            pci::Effect::Master(true) => debug!("bus master on"),
            pci::Effect::Master(false) => {
                debug!("bus master off");
                self.lose_master();
            }
            pci::Effect::FunctionReset => {
                info!("function level reset");
                self.counters.flrs += 1;
                self.function_reset();
            }
        }
    }

    fn bar_read(&mut self, offset: u64, data: &mut [u8]) {
        self.counters.mmio_reads += 1;
        let accesses = &mut self.counters.accesses;
        if offset / bar::UAR_SIZE < bar::FIRST_UAR.into() {
            accesses.segment_reads += 1;
            let touches = |start: usize, len: usize| {
                offset < (start + len) as u64 && offset + data.len() as u64 > start as u64
            };
            accesses.health_buffer_reads +=
                u64::from(touches(initseg::HEALTH, initseg::HEALTH_SIZE));
            accesses.health_counter_reads += u64::from(touches(initseg::COUNTER, 4));
        } else {
            accesses.uar_reads += 1;
        }
        if self.link != Link::Up {
            accesses.ones += 1;
            data.fill(0xff);
            return;
        }
        data.fill(0);
        if let Some(room) = (initseg::SIZE as u64).checked_sub(offset) {
            let n = data.len().min(room as usize);
            self.seg
                .read(offset as usize, &mut data[..n], Instant::now());
        }
    }

    fn bar_write(&mut self, offset: u64, data: &[u8]) {
        self.counters.mmio_writes += 1;
        let accesses = &mut self.counters.accesses;
        let uar = (offset / bar::UAR_SIZE) as u32;
        let doorbell = initseg::DOORBELL as u64;
        if uar >= bar::FIRST_UAR {
            accesses.uar_writes += 1;
        } else if (offset..offset + data.len() as u64).contains(&doorbell) {
            accesses.doorbells += 1;
        } else {
            accesses.segment_writes += 1;
        }
        if self.link != Link::Up {
            accesses.lost += 1;
            return;
        }
        if uar >= bar::FIRST_UAR {
            self.uar_write(uar, offset % bar::UAR_SIZE, data);
            return;
        }
        // A 64-bit store is two registers.
        if !matches!(data.len(), 4 | 8) || offset % 4 != 0 {
            let detail = format!("write of {} bytes at {offset:#x}", data.len());
            self.checks.violate(Rule::MmioAccess, detail);
            return;
        }
        for (i, word) in data.chunks_exact(4).enumerate() {
            let value = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
            self.segment_write(offset as usize + 4 * i, value);
        }
    }

    fn segment_write(&mut self, offset: usize, value: u32) {
        match offset {
            initseg::CMDQ_ADDR_H => {
                self.surprised = false;
                self.check_ready("cmdq_phy_addr_63_32");
                self.supersede();
                self.seg.cmdq_h = value;
            }
            initseg::CMDQ_ADDR_L => self.write_cmdq_low(value),
            initseg::DOORBELL => self.command_doorbell(value),
            initseg::CLEAR_INT => {}
            _ => {
                let detail = format!("{value:#010x} at {offset:#x}");
                self.checks.violate(Rule::MmioReadOnly, detail);
            }
        }
    }

    fn check_ready(&mut self, what: &str) {
        if self.seg.is_initializing(Instant::now()) {
            self.checks
                .violate(Rule::NotReady, format!("{what} written"));
        }
    }

    /// The low word of the queue address, which also is `nic_interface`.
    fn write_cmdq_low(&mut self, value: u32) {
        let nic = (value >> 8 & 7) as u8;
        self.timers
            .retain(|later| !matches!(later, Later::NicInterface(_)));
        match nic {
            nic_interface::DISABLED => self.counters.nic_disables += 1,
            nic_interface::SW_RESET => {
                if self.seg.registers.fw_reset_supported == 0 {
                    self.checks
                        .violate(Rule::ResetNotSupported, "nic_interface 7 written");
                    return;
                }
                self.counters.software_resets += 1;
            }
            _ => {
                self.surprised = false;
                self.check_ready("cmdq_phy_addr_31_12");
                // A driver that starts over, as after kexec: the old one's memory is gone.
                self.supersede();
                self.seg.cmdq_l = value & !0xfff;
                self.seg.nic_interface = nic;
                return;
            }
        }
        self.seg.cmdq_l = value & !0xfff;
        if nic == nic_interface::SW_RESET {
            self.seg.nic_interface = nic;
        }
        match self.nic_delay {
            Some(delay) if delay.is_zero() => self.apply_nic_interface(nic),
            Some(delay) => self
                .timers
                .add(Instant::now() + delay, Later::NicInterface(nic)),
            None => {}
        }
    }

    /// Disables the function, after a reset or at the end of a fast teardown: no DMA from here on.
    fn apply_nic_interface(&mut self, nic: u8) {
        info!("nic_interface: {nic}");
        let cmdq = (self.seg.cmdq_h, self.seg.cmdq_l);
        if nic == nic_interface::SW_RESET {
            self.reset_software();
        } else {
            self.drop_stale();
            self.forget();
        }
        // The address stays as it was written.
        (self.seg.cmdq_h, self.seg.cmdq_l) = cmdq;
        self.seg.nic_interface = nic_interface::DISABLED;
    }

    fn uar_write(&mut self, uar: u32, offset: u64, data: &[u8]) {
        if self.surprised {
            return;
        }
        if !self.hca.uars.contains(&uar) {
            let detail = format!("write of {} bytes at {offset:#x} of UAR {uar}", data.len());
            self.checks.violate(Rule::UarNotAllocated, detail);
            return;
        }
        match (offset, data) {
            (bar::EQ_ARM | bar::EQ_UPDATE, &[a, b, c, d]) => {
                let value = u32::from_be_bytes([a, b, c, d]);
                self.eq_doorbell(uar, value, offset == bar::EQ_ARM);
            }
            (bar::EQ_ARM | bar::EQ_UPDATE, _) => {
                let detail = format!("EQ doorbell of {} bytes", data.len());
                self.checks.violate(Rule::MmioAccess, detail);
            }
            _ => self.counters.uar_ignored += 1,
        }
    }
}

impl Backend for Device {
    fn info(&self) -> (u32, u32, u32) {
        (
            uapi::VFIO_DEVICE_FLAGS_PCI | uapi::VFIO_DEVICE_FLAGS_RESET,
            uapi::VFIO_PCI_NUM_REGIONS,
            uapi::VFIO_PCI_NUM_IRQS,
        )
    }

    fn region(&self, index: u32) -> Option<Region> {
        let flags = uapi::VFIO_REGION_INFO_FLAG_READ | uapi::VFIO_REGION_INFO_FLAG_WRITE;
        match index {
            uapi::VFIO_PCI_BAR0_REGION_INDEX => Some(Region {
                size: self.identity.bar_size(),
                flags,
            }),
            uapi::VFIO_PCI_CONFIG_REGION_INDEX => Some(Region {
                size: pci::SIZE as u64,
                flags,
            }),
            i if i < uapi::VFIO_PCI_NUM_REGIONS => Some(Region::default()),
            _ => None,
        }
    }

    fn irq(&self, index: u32) -> Option<IrqIndex> {
        match index {
            uapi::VFIO_PCI_MSIX_IRQ_INDEX => Some(IrqIndex {
                count: u32::from(pci::VECTORS),
                flags: uapi::VFIO_IRQ_INFO_EVENTFD | uapi::VFIO_IRQ_INFO_NORESIZE,
            }),
            i if i < uapi::VFIO_PCI_NUM_IRQS => Some(IrqIndex::default()),
            _ => None,
        }
    }

    fn region_read(&mut self, index: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        match index {
            uapi::VFIO_PCI_BAR0_REGION_INDEX => self.bar_read(offset, data),
            uapi::VFIO_PCI_CONFIG_REGION_INDEX => self.config_read(offset as usize, data),
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    fn region_write(&mut self, index: u32, offset: u64, data: &[u8]) -> Result<(), Errno> {
        match index {
            uapi::VFIO_PCI_BAR0_REGION_INDEX => self.bar_write(offset, data),
            uapi::VFIO_PCI_CONFIG_REGION_INDEX => self.config_write(offset as usize, data),
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    fn dma_map(&mut self, map: dma::Request, fd: Option<OwnedFd>) -> Result<(), Errno> {
        self.mem.map(map, fd)
    }

    fn dma_unmap(&mut self, range: dma::Range) -> Result<(), Errno> {
        self.mem.unmap(range)
    }

    fn set_irqs(&mut self, set: IrqSet) -> Result<(), Errno> {
        if set.index != uapi::VFIO_PCI_MSIX_IRQ_INDEX {
            // Other indexes have no vectors; turning one off is fine.
            return if set.count == 0 {
                Ok(())
            } else {
                Err(Errno::EINVAL)
            };
        }
        self.irqs.set(set)
    }

    fn reset(&mut self) {
        debug!("DEVICE_RESET");
        self.counters.device_resets += 1;
        if self.link == Link::Gone {
            return;
        }
        self.pci.reset();
        // QEMU resets its devices before the guest starts, which no crash kernel does.
        if !self.hca.stale {
            self.function_reset();
        }
    }

    fn disconnected(&mut self) {
        self.mem.clear();
        self.irqs.clear();
        self.pci.reset();
        self.forget();
        self.seg.reset();
        self.surprised = false;
    }
}

#[cfg(test)]
mod tests;
