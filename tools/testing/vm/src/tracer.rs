// SPDX-License-Identifier: GPL-2.0
//! Firmware traces in a guest: the trace event `mlx5:mlx5_fw`, and how what
//! came out of it compares with what the device has written.

use crate::process::wait_until;
use crate::vm::{DeviceId, Vm};
use anyhow::{ensure, Context, Result};
use mlx5_model::control::types;
use mlx5_model::tracer::script::{Says, Script};
use mlx5_model::tracer::truth::Entry;
use regex::Regex;
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;
use std::time::Duration;

const TRACEFS: &str = "/sys/kernel/tracing";

/// Where the guest keeps a copy of the trace.
const COPY: &str = "/tmp/trace";

/// The trace buffer of a CPU in the guest, in KiB: a line takes about 100
/// bytes there.
const BUFFER: u32 = 24 << 10;

/// A line of `mlx5:mlx5_fw`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The device.
    pub bdf: String,
    /// Time of the trace, 53 bits.
    pub time: u64,
    /// Something was lost before.
    pub lost: bool,
    /// Event id.
    pub id: u8,
    /// Text.
    pub message: String,
}

/// What is read: a message, or that something is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A message.
    Line(Line),
    /// Blocks are missing that were written before this time.
    Gap {
        /// 53 bits.
        time: u64,
        /// Blocks.
        blocks: u64,
        /// Copies that may be torn.
        torn: u64,
    },
}

impl Item {
    /// The message, if it is one.
    pub fn line(&self) -> Option<&Line> {
        match self {
            Self::Line(line) => Some(line),
            Self::Gap { .. } => None,
        }
    }
}

/// A pattern of this file.
fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|error| unreachable!("{error}"))
}

static GAP: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^[0-9a-f:.]+ \[0x([0-9a-f]+)\] gap blocks=(\d+) torn=(\d+)$"));

static LINE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^([0-9a-f:.]+) \[0x([0-9a-f]+)\] ([01]) \[0x([0-9a-f]+)\] (.*)$"));

/// Reads lines as the driver's debugfs has them, for any device.
pub fn parse_lines(text: &str) -> Vec<Item> {
    text.lines()
        .filter_map(|text| parse_gap(text).or_else(|| parse_line(text).map(Item::Line)))
        .collect()
}

fn parse_gap(text: &str) -> Option<Item> {
    let found = GAP.captures(text)?;
    Some(Item::Gap {
        time: u64::from_str_radix(&found[1], 16).ok()?,
        blocks: found[2].parse().ok()?,
        torn: found[3].parse().ok()?,
    })
}

fn parse_line(text: &str) -> Option<Line> {
    let found = LINE.captures(text)?;
    Some(Line {
        bdf: found[1].to_owned(),
        time: u64::from_str_radix(&found[2], 16).ok()?,
        lost: &found[3] == "1",
        id: u8::from_str_radix(&found[4], 16).ok()?,
        message: found[5].to_owned(),
    })
}

/// Reads all lines of the event in a trace, in their order.
pub fn parse(trace: &str) -> Vec<Line> {
    trace
        .lines()
        .filter_map(|line| parse_line(line.split_once(" mlx5_fw: ")?.1))
        .collect()
}

/// Switches the event on or off, with an empty buffer.
///
/// # Errors
///
/// If the kernel does not have it, which it has while its driver is loaded.
pub fn listen(vm: &Vm, on: bool) -> Result<()> {
    let agent = vm.agent();
    let set = |name: &str, value: &str| {
        let path = format!("{TRACEFS}/{name}");
        agent
            .set(&path, value, vm.soon())
            .with_context(|| path.clone())
    };
    if on {
        set("buffer_size_kb", &BUFFER.to_string())?;
    }
    // By name: if two drivers are loaded each has an event of this name, and
    // only one of them a folder.
    for event in ["mlx5:mlx5_fw", "mlx5:mlx5_fw_gap"] {
        let word = if on {
            event.to_owned()
        } else {
            format!("!{event}")
        };
        match set("set_event", &word) {
            // Only this project's driver has it.
            Err(_) if event.ends_with("_gap") => {}
            result => result?,
        }
    }
    clear(vm)
}

/// Empties the buffer.
///
/// # Errors
///
/// If it cannot be written to.
pub fn clear(vm: &Vm) -> Result<()> {
    // Opening it with O_TRUNC is what does it.
    let empty = format!(": > {TRACEFS}/trace");
    vm.agent().output(&["/bin/sh", "-c", &empty], vm.soon())?;
    Ok(())
}

/// What the buffer has.
///
/// # Errors
///
/// If it was too small.
pub fn collect(vm: &Vm) -> Result<Vec<Line>> {
    let agent = vm.agent();
    // The file cannot be read in parts: each would begin at the start again.
    let copy = format!("cat {TRACEFS}/trace > {COPY}; cat {TRACEFS}/per_cpu/cpu*/stats");
    let stats = agent.output(
        &["/bin/sh", "-c", &copy],
        vm.scaled(Duration::from_secs(120)),
    )?;
    for line in stats.lines().filter(|line| line.starts_with("overrun")) {
        ensure!(
            line.ends_with(" 0"),
            "the guest's trace buffer was too small"
        );
    }
    Ok(parse(&agent.text(COPY)?))
}

/// What the buffer has of a device under mlx5_rs.
///
/// # Errors
///
/// See [`collect`].
pub fn items(vm: &Vm, id: DeviceId) -> Result<Vec<Item>> {
    collect(vm)?;
    let trace = vm.agent().text(COPY)?;
    let bdf = vm.bdf(id);
    let lines: Vec<&str> = trace
        .lines()
        .filter_map(|line| {
            line.split_once(" mlx5_fw: ")
                .or(line.split_once(" mlx5_fw_gap: "))
        })
        .map(|(_, text)| text)
        .filter(|text| text.starts_with(&bdf))
        .collect();
    Ok(parse_lines(&lines.join("\n")))
}

/// What became of what the device wrote, where missing parts are told.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// As of any driver. Fragments are not among its lines.
    pub tally: Tally,
    /// Gaps that were told.
    pub gaps: u64,
    /// Blocks that are missing by them.
    pub blocks: u64,
    /// Copies that may be torn.
    pub torn: u64,
    /// Lines that say that a part of a message is missing.
    pub fragments: u64,
    /// Traces of which the device lost a part.
    pub cut: u64,
    /// Traces that are missing, though no gap is told there.
    pub silent: u64,
    /// The first of them.
    pub example: Option<String>,
}

/// Whether a line is a part of a message whose other parts did not come.
fn is_fragment(line: &Line) -> bool {
    let hex = |text: &str| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    line.message.starts_with("INCOMPLETE: ") || line.message.strip_prefix("0x").is_some_and(hex)
}

/// Compares items with the truth, as [`compare`] does; and looks for traces
/// that are missing without a word.
pub fn judge(items: Vec<Item>, truth: &[(u64, Entry)], script: Script, apart: u64) -> Reading {
    let mut reading = Reading::default();
    let raw: HashSet<u64> = truth
        .iter()
        .filter(|(n, entry)| !entry.core_dump && matches!(script.trace(*n).says, Says::Raw))
        .map(|(_, entry)| entry.time)
        .collect();
    let mut lines = Vec::new();
    // Ranks of the traces whose lines come before each gap.
    let mut marks = Vec::new();
    for item in items {
        match item {
            Item::Gap { blocks, torn, .. } => {
                reading.gaps += 1;
                reading.blocks += blocks;
                reading.torn += torn;
                marks.push(lines.len());
            }
            Item::Line(line) if is_fragment(&line) && !raw.contains(&line.time) => {
                reading.fragments += 1;
            }
            Item::Line(line) => lines.push(line),
        }
    }
    // Of a partial trace nobody can say all.
    let partial: HashSet<u64> = truth
        .iter()
        .filter(|(_, entry)| entry.partial)
        .map(|(n, _)| *n)
        .collect();
    reading.cut = partial.len() as u64;
    let whole: Vec<(u64, Entry)> = truth
        .iter()
        .filter(|(n, _)| !partial.contains(n))
        .copied()
        .collect();
    lines.retain(|line| number(&line.message).is_none_or(|n| !partial.contains(&u64::from(n))));
    reading.tally = compare(&lines, &whole, script, apart);
    reading.silent(&lines, &marks, &whole, apart);
    reading
}

impl Reading {
    /// Adds what another one has.
    pub fn add(&mut self, other: Self) {
        self.tally.add(other.tally);
        self.gaps += other.gaps;
        self.blocks += other.blocks;
        self.torn += other.torn;
        self.fragments += other.fragments;
        self.cut += other.cut;
        self.silent += other.silent;
        self.example = self.example.take().or(other.example);
    }

    /// Counts traces that are missing between two lines between which there is
    /// no gap. `marks` are the numbers of lines before each gap.
    fn silent(&mut self, lines: &[Line], marks: &[usize], truth: &[(u64, Entry)], apart: u64) {
        let mut ranks = HashMap::new();
        let mut by_time = HashMap::new();
        let mut written = Vec::new();
        for (n, entry) in truth.iter().filter(|(_, entry)| !entry.dropped) {
            ranks.insert(*n as u32, written.len());
            by_time.insert(entry.time, written.len());
            written.push((*n, *entry));
        }
        // Where the line of each trace is.
        let mut places = vec![None; written.len()];
        for (at, line) in lines.iter().enumerate() {
            let by_number = number(&line.message).and_then(|n| ranks.get(&n).copied());
            if let Some(rank) = by_number.or_else(|| by_time.get(&line.time).copied()) {
                places[rank] = Some(at);
            }
        }
        let apart = apart as usize;
        let mut before = None;
        let mut seen: Vec<Option<usize>> = Vec::new();
        for place in &places {
            before = before.max(*place);
            seen.push(before);
        }
        let mut after = lines.len();
        let mut ahead = vec![lines.len(); places.len()];
        for (rank, place) in places.iter().enumerate().rev() {
            after = place.map_or(after, |place| place.min(after));
            ahead[rank] = after;
        }
        for rank in (0..places.len()).filter(|rank| places[*rank].is_none()) {
            // Lines before it, and behind it, as far as can be said.
            let low = rank.checked_sub(apart + 1).and_then(|rank| seen[rank]);
            let high = ahead.get(rank + apart + 1).copied().unwrap_or(lines.len());
            let low = low.map_or(0, |low| low + 1);
            // They go up.
            let mark = marks.get(marks.partition_point(|mark| *mark < low));
            if mark.is_none_or(|mark| *mark > high) {
                self.silent += 1;
                let (n, entry) = written[rank];
                self.example
                    .get_or_insert_with(|| format!("trace {n}, {entry:x?}"));
            }
        }
    }
}

/// How lines compare with what was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Traces in memory for the driver to find.
    pub written: u64,
    /// Traces that the device lost before.
    pub dropped: u64,
    /// Lines.
    pub lines: u64,
    /// Traces whose line is right in all it says.
    pub right: u64,
    /// Lines of a trace with a wrong time.
    pub wrong_time: u64,
    /// Lines of a trace with a wrong text.
    pub wrong_text: u64,
    /// Lines that say wrongly whether something was lost, or have a wrong id.
    pub wrong_flags: u64,
    /// Lines of a trace that had one, or that come after a later trace.
    pub disorder: u64,
    /// Lines of nothing that was written.
    pub unknown: u64,
    /// The first line that is wrong other than in its time, and what it should
    /// say.
    pub example: Option<String>,
}

impl Tally {
    /// Traces that were written and have no line.
    pub fn missing(&self) -> u64 {
        let seen = self.lines - self.unknown - self.disorder;
        self.written.saturating_sub(seen)
    }

    /// Adds what another count has.
    pub fn add(&mut self, other: Self) {
        self.written += other.written;
        self.dropped += other.dropped;
        self.lines += other.lines;
        self.right += other.right;
        self.wrong_time += other.wrong_time;
        self.wrong_text += other.wrong_text;
        self.wrong_flags += other.wrong_flags;
        self.disorder += other.disorder;
        self.unknown += other.unknown;
        self.example = self.example.take().or(other.example);
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.example.is_none() {
            self.example = Some(text());
        }
    }

    /// Lines that are wrong other than in their time.
    pub fn wrong(&self) -> u64 {
        self.wrong_text + self.wrong_flags + self.disorder + self.unknown
    }
}

/// Number that a text gives.
fn number(message: &str) -> Option<u32> {
    let text = message.strip_prefix('#')?;
    let end = text.find(|c: char| !c.is_ascii_digit());
    text[..end.unwrap_or(text.len())].parse().ok()
}

/// Compares the lines of a device with the truth. Up to `apart` lines of
/// traces that were told at the same time may be in any order.
///
/// The time of a trace before an unreliable timestamp is not compared, nor is
/// the text of a hostile one.
pub fn compare(lines: &[Line], truth: &[(u64, Entry)], script: Script, apart: u64) -> Tally {
    let mut tally = Tally::default();
    let mut by_time = HashMap::new();
    let mut by_number = HashMap::new();
    for (n, entry) in truth {
        if entry.dropped {
            tally.dropped += 1;
        } else {
            by_time.insert(entry.time, *n);
            by_number.insert(*n as u32, (*n, *entry, tally.written));
            tally.written += 1;
        }
    }
    let mut last = None;
    let mut seen = HashSet::new();
    for line in lines {
        tally.lines += 1;
        let number = number(&line.message).or_else(|| by_time.get(&line.time).map(|n| *n as u32));
        let Some(&(n, entry, rank)) = number.and_then(|n| by_number.get(&n)) else {
            tally.unknown += 1;
            tally.note(|| format!("{line:?}, of nothing"));
            continue;
        };
        if !seen.insert(n) || last.is_some_and(|last| rank + apart < last) {
            tally.disorder += 1;
            tally.note(|| format!("{line:?}, after {last:?}"));
            continue;
        }
        last = last.max(Some(rank));
        let trace = if entry.core_dump {
            script.core_dump(n)
        } else {
            script.trace(n)
        };
        let time = line.time == entry.time || entry.unreliable;
        let hostile = matches!(trace.says, Says::Hostile(_));
        let text = hostile || trace.text().is_none_or(|text| text == line.message);
        let flags = (line.lost, line.id) == (entry.lost, trace.id);
        tally.wrong_time += u64::from(!time);
        tally.wrong_text += u64::from(!text);
        tally.wrong_flags += u64::from(!flags);
        tally.right += u64::from(time && text && flags);
        if !text || !flags {
            tally.note(|| format!("{line:?}, of {entry:x?}, {:?}", trace.text()));
        }
    }
    tally
}

/// Waits until the driver has read the string database and prints traces.
///
/// # Errors
///
/// If it does not come to that.
pub fn wait_ready(vm: &mut Vm, id: DeviceId) -> Result<()> {
    let soon = vm.soon();
    let model = vm.model(id)?;
    let sections = state(model, "")?.sections;
    let bytes: u64 = sections.iter().map(|(_, size)| u64::from(*size)).sum();
    // A command for every 256 bytes.
    wait_until("the string database to be read", soon * 8, || {
        let state = state(model, "")?;
        Ok(state.running && state.counters.string_bytes >= bytes)
    })?;
    // What it saw before that comes with the next event.
    clear(vm)?;
    for _ in 0..20 {
        let last = write(vm, id, "rate=max count=1", soon)?.total - 1;
        let lines = collect(vm)?;
        if lines
            .iter()
            .any(|l| number(&l.message) == Some(last as u32))
        {
            return clear(vm);
        }
    }
    anyhow::bail!("the driver prints no trace")
}

fn state(model: &mut crate::model::Model, words: &str) -> Result<types::Tracer> {
    Ok(model.control().tracer(words)?)
}

/// Has the device write, and waits until it has, and the driver has read all.
///
/// # Errors
///
/// If that takes longer than `timeout`.
pub fn write(vm: &mut Vm, id: DeviceId, traffic: &str, timeout: Duration) -> Result<types::Tracer> {
    let model = vm.model(id)?;
    state(model, &format!("write {traffic}"))?;
    wait_until("all traces to be written", timeout, || {
        Ok(!state(model, "")?.writing)
    })?;
    state(model, "flush")?;
    wait_until("the driver to have read all traces", timeout, || {
        Ok(state(model, "")?.armed)
    })?;
    state(model, "")
}

/// Writes traces and counts what became of them.
///
/// # Errors
///
/// See [`write()`] and [`collect`].
pub fn count(vm: &mut Vm, id: DeviceId, traffic: &str, timeout: Duration) -> Result<Tally> {
    clear(vm)?;
    let from = state(vm.model(id)?, "")?.total;
    let state = write(vm, id, traffic, timeout)?;
    let bdf = vm.bdf(id);
    let mut lines = collect(vm)?;
    lines.retain(|line| line.bdf == bdf);
    let truth = vm.model(id)?.control().traces(from)?;
    ensure!(
        truth.first().is_some_and(|(n, _)| *n == from),
        "the model keeps fewer traces than were written"
    );
    // A message has up to eight events, and they take turns.
    let apart = 8 * (state.interleave as u64 - 1);
    Ok(compare(&lines, &truth, state.script.into(), apart))
}

/// Traffics of a [`campaign`], from a trickle to an overrun.
const TRAFFICS: &[&str] = &[
    "rate=20000",
    "rate=max",
    "rate=50000 lost=20 unreliable=20",
    "rate=max torn=20 hold=200",
    "rate=20000 interleave=4 cut=10 torn=100",
    "rate=max interleave=8 lost=5",
];

/// Traces of one part of a [`campaign`]: what the guest's trace buffer holds.
const CHUNK: u64 = 100_000;

/// What a device is to write, part by part, without an end: a trickle, then
/// all kinds of traffic in turn, each of which comes within `traces` traces.
pub fn campaign(traces: u64) -> impl Iterator<Item = String> {
    let part = CHUNK.min(traces / TRAFFICS.len() as u64 + 1);
    let rest = TRAFFICS.iter().cycle();
    let rest = rest.map(move |traffic| format!("{traffic} count={part}"));
    std::iter::once("rate=100 count=200".to_owned()).chain(rest)
}

/// Rates at which mlx5_core is shown, in traces a second, and for how many
/// traces.
const RATES: &[(&str, u32)] = &[
    ("100", 200),
    ("1000", 2000),
    ("10000", 20_000),
    ("50000", 50_000),
    ("max", 100_000),
];

/// Prints how many of the traces that the device writes `driver`, which is
/// bound to `id`, shows.
///
/// # Errors
///
/// If the tracer does not work at all.
pub fn print_table(vm: &mut Vm, id: DeviceId, driver: &str) -> Result<()> {
    listen(vm, true)?;
    wait_ready(vm, id)?;
    println!(
        "   {driver}: traces written and read\n   {:>9} {:>9} {:>9} {:>9} {:>9}  wrong: {:>6} {:>6} {:>6} {:>9} {:>8}",
        "rate/s", "written", "read", "right", "missing", "time", "text", "flags", "disorder", "unknown"
    );
    for (rate, traces) in RATES {
        let traffic = format!("rate={rate} count={traces}");
        let timeout = vm.scaled(Duration::from_secs(60));
        let t = count(vm, id, &traffic, timeout)?;
        println!(
            "   {rate:>9} {:>9} {:>9} {:>9} {:>9}         {:>6} {:>6} {:>6} {:>9} {:>8}",
            t.written,
            t.lines,
            t.right,
            t.missing(),
            t.wrong_time,
            t.wrong_text,
            t.wrong_flags,
            t.disorder,
            t.unknown
        );
    }
    listen(vm, false)
}

/// For `make peer`: a device under a driver of the kernel, and [`print_table`].
///
/// # Errors
///
/// If the driver does not come up, or see [`print_table`].
pub fn peer(vm: &mut Vm, driver: &str) -> Result<()> {
    let timeout = vm.scaled(Duration::from_secs(30));
    let id = vm.add_device(&[])?;
    vm.modprobe(driver, timeout)?;
    vm.bind(id, driver, timeout)?;
    print_table(vm, id, driver)?;
    vm.unbind(id, driver, timeout)?;
    vm.rmmod(driver, timeout)?;
    vm.model(id)?.check()?;
    vm.remove_device(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
# tracer: nop
#
     kworker/u8:1-34      [001] .....    10.203040: mlx5_fw: 0000:01:00.0 [0x1fffff] 0 [0x5] #0
     kworker/u8:1-34      [001] .....    10.203041: mlx5_fw: 0000:01:00.0 [0xab] 1 [0x2] #1 mlx5_fw: 0000:02:00.0 [0x1] 0 [0x1] no
     kworker/u8:1-34      [001] .....    10.203042: other: 0000:01:00.0 [0xab] 1 [0x2] #2
";

    #[test]
    fn lines_are_read() {
        let lines = parse(TRACE);
        assert_eq!(lines.len(), 2);
        assert_eq!(
            (lines[0].time, lines[0].lost, lines[0].id),
            (0x1f_ffff, false, 5)
        );
        assert_eq!(
            (lines[1].bdf.as_str(), lines[1].lost),
            ("0000:01:00.0", true)
        );
        assert!(lines[1].message.ends_with(" no"));
    }

    fn script() -> Script {
        Script {
            seed: 3,
            first_id: 2,
            ids: 14,
            more: false,
            raw: 0,
            hostile: 0,
        }
    }

    fn right(n: u64) -> Line {
        let trace = script().trace(n);
        Line {
            bdf: "0000:01:00.0".into(),
            time: 100 * n,
            lost: false,
            id: trace.id,
            message: trace.text().expect("a format"),
        }
    }

    #[test]
    fn every_mistake_is_counted() {
        let entry = |n| Entry {
            time: 100 * n,
            dropped: n == 5,
            unreliable: n == 6,
            ..Entry::default()
        };
        let truth: Vec<_> = (0..10).map(|n| (n, entry(n))).collect();
        let all: Vec<Line> = (0..10).filter(|n| *n != 5).map(right).collect();
        let t = compare(&all, &truth, script(), 0);
        assert_eq!((t.written, t.dropped, t.lines, t.right), (9, 1, 9, 9));
        assert_eq!((t.missing(), t.wrong()), (0, 0));

        let mut lines = all;
        lines[1].time += 128;
        lines[2].message.push('!');
        lines[3].lost = true;
        // Number 6: its time is open.
        lines[5].time = 1;
        lines.swap(6, 7);
        lines.push(right(5));
        lines.pop();
        lines.push(Line {
            message: "#77".into(),
            ..right(9)
        });
        let t = compare(&lines, &truth, script(), 0);
        assert_eq!((t.wrong_time, t.wrong_text, t.wrong_flags), (1, 1, 1));
        assert_eq!((t.disorder, t.unknown, t.missing()), (1, 1, 1));
        assert_eq!(compare(&lines, &truth, script(), 1).disorder, 0);
        lines.push(right(9));
        assert_eq!(compare(&lines, &truth, script(), 1).disorder, 1);
    }
}
