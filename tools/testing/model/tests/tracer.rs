// SPDX-License-Identifier: GPL-2.0

//! The firmware tracer as a driver sees it: registers, ownership, buffer, events, and traces that
//! a reader of its own here compares with what the model says it has written.

mod common;

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::VecDeque;
use std::time::Duration;
use std::time::Instant;

use common::*;
use mlx5_model::checks::Rule;
use mlx5_model::control::client::Client as Control;
use mlx5_model::control::types;
use mlx5_model::ifc;
use mlx5_model::tracer::script::Hostile;
use mlx5_model::tracer::script::Says;
use mlx5_model::tracer::script::Script;
use mlx5_model::tracer::strings::Size;
use mlx5_model::tracer::strings::Strings;
use mlx5_model::tracer::truth::Entry;
use mlx5_model::tracer::Owner;

const CORE_DUMP: u64 = 0x402e;
const CAP: u64 = 0x9040;
const CONF: u64 = 0x9041;
const STDB: u64 = 0x9042;
const CTRL: u64 = 0x9043;

const BLOCK: u64 = 256;

/// A driver with PD, mkey, buffer and an EQ for the tracer's events.
struct Tracer {
    model: Model,
    control: Control,
    d: Driver,
    eq: DriverEq,
    pd: u32,
    key: u32,
    buffer: u64,
    log_size: u32,
}

fn of(structure: &str, name: &str) -> ifc::Bits {
    ifc::try_locate(structure, name).expect("a field")
}

/// A register as data.
fn data(structure: &str, values: &[(&str, u64)]) -> Vec<u8> {
    let mut data = vec![0; ifc::size_of(structure)];
    for (name, value) in values {
        ifc::set(&mut data, of(structure, name), *value);
    }
    data
}

impl Tracer {
    fn new(args: &[&str], log_size: u32) -> Self {
        let model = Model::with(args);
        let control = model.control();
        let mut d = Driver::attach(&model);
        d.init();
        let uar = d.alloc_uar();
        let eq = d.create_eq(8, uar, 1, 1 << 0x26);
        let pd = d.alloc_pd();
        let len = 4096 << log_size;
        let buffer = d.ram.alloc(len);
        let pages: Vec<u64> = (buffer..buffer + len).step_by(4096).collect();
        let key = d.create_mkey(&Driver::mkey_input(pd, buffer, len, &pages));
        Self {
            model,
            control,
            d,
            eq,
            pd,
            key,
            buffer,
            log_size,
        }
    }

    fn access(&mut self, id: u64, op_mod: u16, data: &[u8], room: usize) -> Output {
        self.d.exec(&register(id, op_mod, data), 16 + room)
    }

    /// Writes a register; the status.
    fn write(&mut self, id: u64, structure: &str, values: &[(&str, u64)]) -> u8 {
        let data = data(structure, values);
        self.access(id, 0, &data, data.len()).status()
    }

    /// A field of a register that is read.
    fn read(&mut self, id: u64, structure: &str, name: &str) -> u64 {
        let data = data(structure, &[]);
        let out = self.access(id, 1, &data, data.len());
        assert_eq!(out.status(), 0, "{structure}");
        out.get(of(structure, name).shifted(16))
    }

    /// Asks for the tracer; whether it was given.
    fn acquire(&mut self) -> bool {
        let data = data("mtrc_cap", &[("trace_owner", 1)]);
        let out = self.access(CAP, 0, &data, data.len());
        assert_eq!(out.status(), 0);
        out.get(of("mtrc_cap", "trace_owner").shifted(16)) != 0
    }

    fn release(&mut self) {
        assert_eq!(self.write(CAP, "mtrc_cap", &[]), 0);
    }

    fn configure(&mut self) -> u8 {
        let values = [
            ("trace_mode", 1),
            ("log_trace_buffer_size", self.log_size.into()),
            ("trace_mkey", self.key.into()),
        ];
        self.write(CONF, "mtrc_conf", &values)
    }

    fn enable(&mut self, on: bool, arm: bool) -> u8 {
        let values = [
            ("modify_field_select", 1),
            ("trace_status", on.into()),
            ("arm_event", arm.into()),
        ];
        self.write(CTRL, "mtrc_ctrl", &values)
    }

    fn arm(&mut self) {
        assert_eq!(self.write(CTRL, "mtrc_ctrl", &[("arm_event", 1)]), 0);
    }

    fn start(&mut self) {
        assert!(self.acquire());
        assert_eq!((self.configure(), self.enable(true, false)), (0, 0));
    }

    /// Subtypes of the events since the last look.
    fn events(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(eqe) = self.d.poll_eq(&mut self.eq) {
            assert_eq!(eqe[1], 0x26);
            all.push(eqe[3]);
        }
        self.d.doorbell(&self.eq, true);
        all
    }

    fn state(&mut self) -> types::Tracer {
        self.control.tracer("").expect("tracer")
    }

    fn tracer(&mut self, words: &str) -> types::Tracer {
        self.control.tracer(words).expect("tracer")
    }

    /// Waits until all that was to be written is.
    fn written(&mut self) -> types::Tracer {
        let control = &mut self.control;
        eventually("all traces", || {
            !control.tracer("").expect("tracer").writing
        });
        self.tracer("flush")
    }

    fn reader(&self) -> Reader {
        Reader {
            blocks: (4096 << self.log_size) / BLOCK,
            buffer: self.buffer,
            next: 0,
            last: None,
            open: HashMap::new(),
            order: VecDeque::new(),
            unstamped: Vec::new(),
            version: 0,
            strings: 2..16,
            done: BTreeMap::new(),
            raws: 0,
            read: 0,
            skipped: 0,
            lost: 0,
        }
    }

    /// Everything given back, nothing wrong.
    fn down(mut self) {
        self.release();
        self.d
            .ok(&Driver::destroy_mkey_input(self.key), "destroy_mkey");
        self.d.ok(&Driver::dealloc_pd_input(self.pd), "dealloc_pd");
        self.d.destroy_eq(self.eq.eqn);
        self.d.dealloc_uar(self.eq.uar);
        self.d.down();
        assert_broken(&self.model, &[]);
    }
}

/// What was read of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    id: u8,
    time: Option<u64>,
    lost: bool,
    parts: Vec<(u8, u32)>,
    raw: Option<u64>,
}

/// Id and number of a message. Events that are no strings have numbers from 2^16 on.
type Key = (u8, u32);

/// Messages under way after which the first has all its events.
const LATEST: usize = 64;

/// Reads blocks as hardware.md section 4 says.
struct Reader {
    buffer: u64,
    blocks: u64,
    next: u64,
    last: Option<u64>,
    /// Messages under way by id and number.
    open: HashMap<Key, Seen>,
    /// The same, in order.
    order: VecDeque<Key>,
    /// First events that wait for a timestamp: low bits, and which message.
    unstamped: Vec<(u64, Key)>,
    version: u8,
    strings: std::ops::Range<u8>,
    /// All traces by their time.
    done: BTreeMap<u64, Seen>,
    raws: u32,
    read: u64,
    skipped: u64,
    lost: u64,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes")).into()
}

/// Time of a timestamp event, if it is one.
fn timestamp(event: &[u8]) -> Option<u64> {
    let (w0, w1) = (word(event, 0), word(event, 4));
    (w0 >> 16 & 0xff == 0xff).then_some((w0 & 0x1fff) << 40 | w1 << 8 | w0 >> 24)
}

/// Whether `a` is after `b` on a circle of 53 bits.
fn after(a: u64, b: u64) -> bool {
    let ahead = a.wrapping_sub(b) & ((1 << 53) - 1);
    ahead != 0 && ahead < 1 << 52
}

impl Reader {
    fn block(&self, ram: &Ram, n: u64) -> Vec<u8> {
        ram.read(self.buffer + n % self.blocks * BLOCK, BLOCK as usize)
    }

    /// Reads what is there.
    fn drain(&mut self, ram: &Ram) {
        for _ in 0..4 * self.blocks {
            let block = self.block(ram, self.next);
            let Some(time) = timestamp(&block[248..]) else {
                return;
            };
            if self.last.is_some_and(|last| !after(time, last)) {
                return;
            }
            let before = self.block(ram, self.next + self.blocks - 1);
            self.next += 1;
            if self.last.is_some() && timestamp(&before[248..]) != self.last {
                self.skipped += 1;
                self.forget();
            } else {
                self.events(&block);
            }
            self.last = Some(time);
            self.read += 1;
        }
    }

    /// What is under way has lost its rest.
    fn forget(&mut self) {
        self.open.clear();
        self.order.clear();
        self.unstamped.clear();
    }

    fn events(&mut self, block: &[u8]) {
        for event in block.chunks(8) {
            let (w0, w1) = (word(event, 0), word(event, 4));
            let id = (w0 >> 16) as u8;
            if let Some(t) = timestamp(event) {
                let flag = if self.version == 0 { 15 } else { 13 };
                self.stamp(t, w0 >> flag & 1 != 0);
                continue;
            }
            let lost = w0 >> 31 != 0;
            self.lost += u64::from(lost);
            let (tmsn, tdsn) = ((w0 >> 3 & 0x1fff) as u32, (w0 & 7) as u8);
            let is_string = self.strings.contains(&id);
            let key = if is_string {
                (id, tmsn)
            } else {
                self.raws += 1;
                (id, 0x1_0000 + self.raws)
            };
            if !is_string || tdsn == 0 {
                self.finish_until(LATEST);
                self.order.push_back(key);
                self.unstamped.push((w0 >> 24 & 0x7f, key));
                let seen = Seen {
                    id,
                    lost,
                    raw: (!is_string).then_some((w0 & 0xffff) << 32 | w1),
                    ..Seen::default()
                };
                self.open.insert(key, seen);
            }
            if is_string {
                if let Some(seen) = self.open.get_mut(&key) {
                    seen.parts.push((tdsn, w1 as u32));
                }
            }
        }
    }

    fn stamp(&mut self, t: u64, unreliable: bool) {
        for (low, key) in self.unstamped.drain(..) {
            let high = if low < t & 0x7f {
                t >> 7
            } else {
                (t >> 7).wrapping_sub(1)
            };
            if let Some(seen) = self.open.get_mut(&key) {
                let time = (high << 7 | low) & ((1 << 53) - 1);
                seen.time = (!unreliable).then_some(time);
            }
        }
    }

    /// Takes the oldest messages as complete until so many are left.
    fn finish_until(&mut self, left: usize) {
        while self.order.len() > left {
            let Some(key) = self.order.pop_front() else {
                return;
            };
            let Some(seen) = self.open.remove(&key) else {
                continue;
            };
            if let Some(time) = seen.time {
                assert_eq!(self.done.insert(time, seen), None, "two at {time:#x}");
            }
        }
    }
}

/// Compares what was read with what was written; how many traces were right. Fails at the first
/// that was not written so.
fn compare(reader: &mut Reader, truth: &[(u64, Entry)], script: Script) -> u64 {
    let db = Strings::new(Size::Small, 0);
    reader.finish_until(0);
    let by_time: HashMap<u64, (u64, Entry)> = truth
        .iter()
        .filter(|(_, e)| !e.dropped && !e.unreliable)
        .map(|(n, e)| (e.time, (*n, *e)))
        .collect();
    let mut right = 0;
    let mut last = None;
    for (time, seen) in &reader.done {
        let Some((n, entry)) = by_time.get(time) else {
            // A second string in the place of the first.
            let n = seen.parts.get(1).map_or(0, |(_, word)| u64::from(*word));
            let again = Says::Hostile(Hostile::Again);
            assert_eq!(script.trace(n).says, again, "at {time:#x}: {seen:x?}");
            continue;
        };
        // The counter may have gone around.
        if let Some((t, n_before)) = last.replace((*time, *n)) {
            assert_eq!(after(*time, t), *n > n_before, "order");
        }
        let trace = if entry.core_dump {
            script.core_dump(*n)
        } else {
            script.trace(*n)
        };
        if matches!(trace.says, Says::Hostile(_)) {
            continue;
        }
        assert_eq!((seen.id, seen.lost), (trace.id, entry.lost), "{n}");
        match trace.says {
            Says::Raw => assert_eq!(seen.raw, Some(trace.data()), "{n}"),
            Says::Hostile(_) => {}
            Says::Format(_) => {
                let parts = trace.parts(&db);
                // The end of the last message may be missing.
                let complete = seen.parts == parts.as_slice();
                let begun = parts.as_slice().starts_with(&seen.parts);
                let holes = seen.parts.iter().all(|p| parts.as_slice().contains(p));
                assert!(
                    complete || begun && reader.skipped > 0 || holes && entry.partial,
                    "{n}: {:x?}, not {parts:x?}",
                    seen.parts
                );
            }
        }
        right += 1;
    }
    right
}

#[test]
fn registers_and_strings() {
    let mut t = Tracer::new(&[], 3);
    let mcam = t.access(0x907f, 1, &[0; 72], 72);
    let bits = of(
        "mcam_reg",
        "mng_access_reg_cap_mask.access_regs.tracer_registers",
    );
    assert_eq!(mcam.get(bits.shifted(16)), 0xf);
    assert_eq!(t.read(CAP, "mtrc_cap", "trace_to_memory"), 1);
    assert_eq!(t.read(CAP, "mtrc_cap", "trc_ver"), 0);
    assert_eq!(t.read(CAP, "mtrc_cap", "first_string_trace"), 2);
    assert_eq!(t.read(CAP, "mtrc_cap", "num_string_trace"), 14);
    assert_eq!(t.read(CAP, "mtrc_cap", "log_max_trace_buffer_size"), 6);
    assert_eq!(t.read(CAP, "mtrc_cap", "trace_owner"), 0);
    let db = Strings::new(Size::Small, 0);
    assert_eq!(
        t.read(CAP, "mtrc_cap", "num_string_db"),
        db.sections.len() as u64
    );
    for (i, section) in db.sections.iter().enumerate() {
        let cap = data("mtrc_cap", &[]);
        let out = t.access(CAP, 1, &cap, cap.len());
        let at = 16 + 0x10 + 8 * i;
        assert_eq!(word(&out.data, at), u64::from(section.base));
        assert_eq!(word(&out.data, at + 4), section.data.len() as u64);
        // As upstream reads: 256 bytes at a time, then 64.
        let mut read = Vec::new();
        while read.len() < section.data.len() {
            let left = section.data.len() - read.len();
            let size = if left < 256 { 64 } else { 256 };
            let request = data(
                "mtrc_stdb",
                &[
                    ("string_db_index", i as u64),
                    ("read_size", size as u64),
                    ("start_offset", read.len() as u64),
                ],
            );
            let out = t.access(STDB, 0, &request, 8 + size);
            assert_eq!(out.status(), 0);
            read.extend_from_slice(&out.data[24..24 + size]);
        }
        assert!(read == section.data, "section {i}");
    }
    assert_broken(&t.model, &[]);
    // What it does not have.
    for (section, size, offset, room, rule) in [
        (2, 64, 0, 264, Rule::Parameter),
        (0, 64, 8192, 264, Rule::Parameter),
        (0, 128, 8192 - 64, 264, Rule::Parameter),
        (0, 32, 0, 264, Rule::Parameter),
        (0, 64, 32, 264, Rule::Parameter),
        (0, 0, 0, 264, Rule::Parameter),
        (0, 256, 0, 264 - 64, Rule::Length),
    ] {
        let request = data(
            "mtrc_stdb",
            &[
                ("string_db_index", section),
                ("read_size", size),
                ("start_offset", offset),
            ],
        );
        assert_eq!(t.access(STDB, 0, &request, room).status(), 3);
        assert_broken(&t.model, &[rule]);
    }
    let state = t.tracer("update db=large");
    assert_eq!((state.db.as_str(), state.sections.len()), ("large", 4));
    assert_eq!(t.events(), [2]);
    assert_eq!(t.read(CAP, "mtrc_cap", "num_string_db"), 4);
    t.down();
}

#[test]
fn a_device_without_a_tracer() {
    for args in [&["--vf"][..], &[]] {
        let mut t = Tracer::new(args, 0);
        if args.is_empty() {
            t.tracer("config present=0");
        }
        let mcam = t.access(0x907f, 1, &[0; 72], 72);
        let bits = of(
            "mcam_reg",
            "mng_access_reg_cap_mask.access_regs.tracer_registers",
        );
        assert_eq!(mcam.get(bits.shifted(16)), 0);
        for (id, structure) in [(CAP, "mtrc_cap"), (CONF, "mtrc_conf"), (CTRL, "mtrc_ctrl")] {
            assert_eq!(t.write(id, structure, &[]), 3);
        }
        assert_broken(&t.model, &[]);
    }
    let mut t = Tracer::new(&[], 0);
    t.tracer("config to_memory=0");
    assert_eq!(t.read(CAP, "mtrc_cap", "trace_to_memory"), 0);
    assert!(t.acquire());
    assert_eq!(t.configure(), 3);
    assert_broken(&t.model, &[Rule::Parameter]);
}

#[test]
fn ownership() {
    let mut t = Tracer::new(&[], 0);
    // Nothing works before.
    assert_eq!(t.configure(), 9);
    assert_eq!(t.enable(true, true), 9);
    assert_broken(&t.model, &[Rule::TraceNotOwner, Rule::TraceNotOwner]);
    t.tracer("deny on");
    assert!(!t.acquire() && !t.acquire());
    t.tracer("deny off");
    assert!(t.acquire());
    assert_eq!(t.read(CAP, "mtrc_cap", "trace_owner"), 1);
    let state = t.state();
    assert_eq!(state.owner, Owner::Driver);
    assert_eq!((state.counters.requests, state.counters.refused), (3, 2));
    assert_broken(&t.model, &[]);
    // An owner does not ask again, unless an event gave it a reason.
    assert!(t.acquire());
    assert_broken(&t.model, &[Rule::TraceOwnerAgain]);
    t.control.run("event type=0x26 subtype=0").expect("event");
    assert_eq!(t.events(), [0]);
    assert!(t.acquire());
    assert_broken(&t.model, &[]);
    // Two of them, both before it asks for the first.
    t.control
        .run("event type=0x26 subtype=0 count=2")
        .expect("events");
    assert_eq!(t.events(), [0, 0]);
    assert!(t.acquire() && t.acquire());
    assert_broken(&t.model, &[]);
    assert!(t.acquire());
    assert_broken(&t.model, &[Rule::TraceOwnerAgain]);

    // Taken away: the driver could not know, then it does.
    assert_eq!((t.configure(), t.enable(true, false)), (0, 0));
    t.tracer("write rate=1000");
    let control = &mut t.control;
    eventually("traces", || {
        control.tracer("").expect("tracer").counters.blocks > 2
    });
    let state = t.tracer("take");
    assert_eq!((state.owner, state.running), (Owner::Tool, false));
    assert_eq!(t.enable(false, true), 9);
    assert_broken(&t.model, &[]);
    assert_eq!(t.events(), [0]);
    assert!(!t.acquire());
    assert_eq!(t.configure(), 9);
    assert_broken(&t.model, &[Rule::TraceNotOwner]);
    let blocks = t.state().counters.blocks;
    t.tracer("give event=0");
    assert_eq!(t.events(), [0u8; 0]);
    t.tracer("give");
    assert_eq!(t.events(), [0]);
    assert!(t.acquire());
    assert_eq!(
        t.state().counters.blocks,
        blocks,
        "nothing is written meanwhile"
    );
    assert_eq!((t.configure(), t.enable(true, false)), (0, 0));
    let control = &mut t.control;
    eventually("traces", || {
        control.tracer("").expect("tracer").counters.blocks > blocks
    });
    // A reset of the function takes it away, too.
    t.release();
    assert!(!t.state().running);
    t.down();
}

#[test]
fn buffers_that_must_not_be() {
    let mut t = Tracer::new(&[], 2);
    assert!(t.acquire());
    let len = 4096u64 << t.log_size;
    let pages: Vec<u64> = (t.buffer..t.buffer + len).step_by(4096).collect();
    let (pd, start) = (t.pd, t.buffer);
    let good = Driver::mkey_input(pd, start, len, &pages);
    let physical = Driver::mkey_input(pd, 0, 0, &[])
        .with(mkc("access_mode_1_0"), 0)
        .with(mkc("length64"), 1);
    t.control.set_cap("general", "sho", 1, 1).expect("cap");
    for (what, input) in [
        ("read-only", good.clone().with(mkc("lw"), 0)),
        ("UMR", good.clone().with(mkc("umr_en"), 1)),
        ("signature", good.clone().with(mkc("bsf_en"), 1)),
        ("invalidation", good.clone().with(mkc("en_rinval"), 1)),
        ("all of memory", physical),
        (
            "start",
            good.clone()
                .with(mkc("start_addr"), start + 64)
                .with(mkc("len"), len - 4096),
        ),
        ("length", good.clone().with(mkc("len"), len - 64)),
        (
            "too small",
            Driver::mkey_input(pd, start, len - 8192, &pages[..2]),
        ),
    ] {
        let key = std::mem::replace(&mut t.key, 0);
        t.key = t.d.create_mkey(&input);
        assert_eq!(t.configure(), 3, "{what}");
        assert_eq!(broken(&t.model), [Rule::TraceBuffer.name()], "{what}");
        t.d.ok(&Driver::destroy_mkey_input(t.key), "destroy_mkey");
        // Gone.
        assert_eq!(t.configure(), 5, "{what}");
        assert_broken(&t.model, &[Rule::UnknownObject]);
        t.key = key;
    }
    // The low byte is part of the key.
    t.key ^= 1;
    assert_eq!(t.configure(), 5);
    t.key ^= 1;
    t.log_size = 7;
    assert_eq!(t.configure(), 3);
    t.log_size = 2;
    assert_broken(&t.model, &[Rule::UnknownObject, Rule::TraceBuffer]);
    assert_eq!(t.enable(true, false), 9);
    assert_broken(&t.model, &[Rule::Order]);
    assert_eq!((t.configure(), t.enable(true, false)), (0, 0));
    assert_eq!(t.configure(), 9, "while it runs");
    assert_broken(&t.model, &[Rule::Order]);
    assert_eq!(t.write(CTRL, "mtrc_ctrl", &[("modify_field_select", 2)]), 3);
    let values = [("modify_field_select", 1), ("trace_status", 2)];
    assert_eq!(t.write(CTRL, "mtrc_ctrl", &values), 3);
    assert_broken(&t.model, &[Rule::Parameter, Rule::Parameter]);
    // In use.
    let destroy = Driver::destroy_mkey_input(t.key);
    assert_eq!(t.d.exec(&destroy, 16).status(), 6);
    assert_broken(&t.model, &[Rule::MkeyInUse]);
    t.down();
}

#[test]
fn memory_that_goes_away_ends_the_writing() {
    let mut t = Tracer::new(&[], 0);
    t.start();
    t.tracer("write rate=max");
    assert_eq!(t.d.vfu.unmap(0, Ram::SIZE, 0), 0);
    let control = &mut t.control;
    eventually("the end", || !control.tracer("").expect("tracer").running);
    let rules = broken(&t.model);
    assert_eq!(rules, [Rule::DmaUnmapped.name()], "once");
}

#[test]
fn events_come_once_for_each_arm() {
    let mut t = Tracer::new(&[], 2);
    t.start();
    t.tracer("config eager=0");
    t.tracer("write rate=max count=2000");
    assert!(t.written().counters.blocks > 100);
    assert_eq!(t.events(), [0u8; 0], "not armed");
    t.arm();
    assert_eq!(t.events(), [0u8; 0], "nothing new");
    assert_eq!(t.read(CTRL, "mtrc_ctrl", "arm_event"), 1);
    t.tracer("write rate=max count=2000");
    t.written();
    assert_eq!(t.events(), [1]);
    assert_eq!(t.read(CTRL, "mtrc_ctrl", "arm_event"), 0);
    // At once, if something came between.
    t.tracer("config eager=1");
    t.arm();
    assert_eq!(t.events(), [1]);
    t.arm();
    assert_eq!(t.events(), [0u8; 0]);
    t.tracer("config double_events=1");
    t.tracer("write rate=max count=100");
    t.written();
    assert_eq!(t.events(), [1, 1]);
    t.tracer("config lose_events=1");
    t.arm();
    assert_eq!(t.events(), [0u8; 0]);
    let state = t.state();
    assert!(!state.armed);
    assert_eq!(
        (
            state.counters.events,
            state.counters.events_lost,
            state.counters.events_doubled
        ),
        (3, 1, 1)
    );
    t.down();
}

#[test]
fn a_core_dump_is_a_known_trace() {
    let mut t = Tracer::new(&[], 0);
    assert_eq!(t.write(CORE_DUMP, "core_dump_reg", &[]), 0);
    assert_eq!(t.state().counters.blocks, 0, "nobody listens");
    t.start();
    t.arm();
    assert_eq!(t.write(CORE_DUMP, "core_dump_reg", &[]), 0);
    // It is there when the command is done.
    let mut reader = t.reader();
    reader.drain(&t.d.ram);
    let truth = t.control.traces(0).expect("list");
    assert!(truth.len() > 10 && truth.iter().all(|(_, e)| e.core_dump));
    let script = t.state().script.into();
    assert_eq!(compare(&mut reader, &truth, script), truth.len() as u64);
    assert_eq!(t.events(), [1]);
    assert_eq!(
        t.write(CORE_DUMP, "core_dump_reg", &[("core_dump_type", 1)]),
        3
    );
    assert_broken(&t.model, &[Rule::Parameter]);
    t.down();
}

/// A traffic that the buffer has room for is read without a loss.
#[test]
fn all_is_read_if_there_is_room() {
    for (config, traffic, version) in [
        ("seed=1", "", 0),
        ("seed=2 more=1 raw=100 ver=1", "interleave=5", 1),
        (
            "seed=3 raw=50",
            "unreliable=100 lost=30 torn=200 hold=500",
            0,
        ),
        ("seed=4 ver=1", "unreliable=300 cut=100 interleave=3", 1),
        (
            "seed=5 more=1 hostile=200",
            "lost=100 cut=100 unreliable=100",
            0,
        ),
        // The counter goes around.
        ("seed=6 time=0x1fffffffffff00", "", 0),
    ] {
        let mut t = Tracer::new(&[], 6);
        t.tracer(&format!("config {config}"));
        t.start();
        t.tracer(&format!("write rate=max count=5000 flush=never {traffic}"));
        t.written();
        let mut reader = t.reader();
        reader.version = version;
        reader.drain(&t.d.ram);
        let truth = t.control.traces(0).expect("list");
        assert_eq!(truth.len(), 5000);
        assert_eq!(truth.last().map(|(n, _)| *n), Some(4999));
        let state = t.state();
        let script = Script::from(state.script);
        let right = compare(&mut reader, &truth, script);
        let hostile = |n: &u64| matches!(script.trace(*n).says, Says::Hostile(_));
        let written = truth
            .iter()
            .filter(|(n, e)| !e.dropped && !e.unreliable && !hostile(n))
            .count();
        assert_eq!(right, written as u64, "{config} {traffic}");
        assert_eq!((reader.skipped, reader.read), (0, state.counters.blocks));
        let dropped = truth.iter().filter(|(_, e)| e.dropped).count() as u64;
        assert_eq!(state.counters.dropped, dropped);
        assert_eq!(state.counters.written, 5000 - dropped);
        if dropped > 0 {
            assert!(reader.lost > 0 && reader.lost <= dropped + 1000);
        } else if !traffic.contains("cut") {
            assert_eq!(reader.lost, 0);
        }
        if traffic.contains("torn") {
            assert!(state.counters.torn > 50, "{state:?}");
        }
        t.down();
    }
}

/// Far too fast: what is read is right, and the rest is known to be lost.
#[test]
fn overrun() {
    let mut t = Tracer::new(&[], 1);
    t.start();
    t.tracer("write rate=max count=300000 torn=20 hold=200");
    let mut reader = t.reader();
    let start = Instant::now();
    while t.state().writing {
        reader.drain(&t.d.ram);
        assert!(start.elapsed() < PATIENCE);
    }
    t.written();
    reader.drain(&t.d.ram);
    let truth = t.control.traces(0).expect("list");
    let script = t.state().script.into();
    let right = compare(&mut reader, &truth, script);
    let state = t.state();
    assert!(state.counters.wraps > 100, "{state:?}");
    assert!(
        right > 0 && right < 300_000 && reader.skipped > 0,
        "{right}"
    );
    println!(
        "{right} of {} traces, {} of {} blocks, {} skipped, in {:?}",
        truth.len(),
        reader.read,
        state.counters.blocks,
        reader.skipped,
        start.elapsed()
    );
    t.down();
}

/// Slow traffic keeps its rate, and does not wait for a block to fill.
#[test]
fn a_trickle() {
    let mut t = Tracer::new(&[], 0);
    t.start();
    let start = Instant::now();
    t.tracer("write rate=50 count=20 flush=10");
    let mut reader = t.reader();
    let (d, control) = (&t.d, &mut t.control);
    eventually("all traces", || {
        reader.drain(&d.ram);
        control.tracer("").expect("tracer").counters.written == 20
    });
    reader.drain(&t.d.ram);
    assert!(start.elapsed() >= Duration::from_millis(400));
    let truth = t.control.traces(0).expect("list");
    let gaps = truth.windows(2).map(|w| w[1].1.time - w[0].1.time);
    assert!(gaps.clone().all(|g| g > 1_000_000), "ticks are nanoseconds");
    let script = t.state().script.into();
    assert_eq!(compare(&mut reader, &truth, script), 20);
    // The counter goes on from there.
    let register = data("mtrc_ctrl", &[]);
    let out = t.access(CTRL, 1, &register, register.len());
    let half = |name: &str| out.get(of("mtrc_ctrl", name).shifted(16));
    let now = half("current_timestamp52_32") << 32 | half("current_timestamp31_0");
    let since = now - truth[19].1.time;
    assert!((1..30_000_000_000).contains(&since), "{since}");
    t.down();
}

/// However fast it writes, the guest and the control socket are served.
#[test]
fn the_loop_goes_on() {
    let mut t = Tracer::new(&[], 6);
    t.start();
    t.tracer("write rate=max torn=500 hold=5000");
    t.tracer("write rate=max");
    let start = Instant::now();
    for _ in 0..200 {
        t.d.vfu.read32(0x1010);
        t.control.status().expect("status");
    }
    // 400 round trips, each behind at most one slice; a debug build on a busy machine.
    let took = start.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(t.state().counters.wraps > 0);
    t.tracer("stop");
    t.down();
}

#[test]
fn the_file_has_what_the_list_has() {
    let mut t = Tracer::new(&[], 1);
    let path = t.model.dir.path().join("traces");
    t.tracer(&format!("log path={}", path.display()));
    let again = t.control.tracer(&format!("log path={}", path.display()));
    assert!(again.is_err(), "it exists");
    let path = t.model.dir.path().join("more");
    t.tracer(&format!("log path={}", path.display()));
    t.start();
    t.tracer("write rate=max count=20000 lost=10");
    assert_eq!(t.written().log_error, None);
    let list = t.control.traces(0).expect("list");
    let file = std::fs::read(&path).expect("file");
    let file: Vec<u64> = file
        .chunks(8)
        .map(|w| u64::from_le_bytes(w.try_into().expect("8 bytes")))
        .collect();
    let list: Vec<u64> = list.into_iter().map(|(_, e)| e.word()).collect();
    assert_eq!(file, list);
    t.down();
}

#[test]
fn what_the_verb_refuses() {
    let mut t = Tracer::new(&[], 0);
    for words in [
        "nonsense",
        "write",
        "write rate=0",
        "write rate=1 torn=1001",
        "write rate=1 interleave=0",
        "write rate=1 interleave=17",
        "write rate=1 what=1",
        "config first=250 ids=10",
        "config ids=0",
        "config ver=4",
        "config time=0x20000000000000",
        "config raw=1 what=1",
        "deny",
        "deny on off",
        "update db=huge",
        "log",
        "take what=1",
    ] {
        assert!(t.control.tracer(words).is_err(), "{words}");
    }
    let state = t.state();
    assert_eq!((state.script.raw, state.owner), (0, Owner::Nobody));
    assert!(!state.writing && !state.deny);
    t.start();
    assert!(t.control.tracer("config seed=7").is_err(), "it runs");
    assert!(t.control.tracer("config lose_events=1").is_ok());
    t.down();
}
