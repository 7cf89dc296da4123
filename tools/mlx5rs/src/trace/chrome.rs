// SPDX-License-Identifier: GPL-2.0

//! Chrome's trace event format, which Perfetto and chrome://tracing show.
//!
//! A device is a process, an event id a thread of it; what was lost is a span on a thread of its own.

use std::collections::BTreeSet;
use std::io::{self, Write};

use super::filter::Strings;
use super::line::{Body, Kind};
use super::summary::counted;
use super::timeline::{Entry, Loss, Shape, Timeline, DEFAULT_KHZ};

/// Records that are held back to find the first time: no time in the file is negative.
const HELD: usize = 4096;

/// Threads of a process; those of event ids come behind.
const LOST: u32 = 1;
const GAPS: u32 = 2;
const FIRST_EVENT: u32 = 0x100;

/// Numbers of threads, of a process each.
const THREADS: u32 = 1000;

/// The process of the kernel's buffer; devices come behind. Viewers keep process 0 to themselves.
const KERNEL: usize = 1;

/// Process of a device.
fn process(device: usize) -> usize {
    KERNEL + 1 + device
}

/// Number of a thread: no two processes have the same.
fn thread(pid: usize, tid: u32) -> usize {
    pid * THREADS as usize + tid as usize
}

#[derive(Debug)]
struct Item {
    at: i128,
    duration: Option<i128>,
    /// The object's other members.
    rest: String,
}

/// Writes traces as they come.
#[derive(Debug)]
pub struct Chrome<W> {
    out: W,
    timeline: Timeline,
    strings: Option<Strings>,
    /// The first time, once it is known.
    base: Option<i128>,
    held: Vec<Item>,
    processes: BTreeSet<usize>,
    threads: BTreeSet<(usize, u32)>,
    any: bool,
    /// Records that are older than the first time.
    early: u64,
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Microseconds with as many digits as it takes.
fn microseconds(ps: i128) -> String {
    let text = format!("{}.{:06}", ps / 1_000_000, ps % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl<W: Write> Chrome<W> {
    /// Begins a file.
    pub fn new(mut out: W, khz: Option<u32>, strings: Option<Strings>) -> io::Result<Self> {
        let unit = match khz {
            Some(khz) => format!("{khz} kHz"),
            None => format!("unknown, drawn as {DEFAULT_KHZ} kHz"),
        };
        write!(
            out,
            "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"tool\":\"mlx5rs trace\",\
             \"device clock\":{}}},\"traceEvents\":[",
            quoted(&unit)
        )?;
        Ok(Self {
            out,
            timeline: Timeline::new(khz),
            strings,
            base: None,
            held: Vec::new(),
            processes: BTreeSet::new(),
            threads: BTreeSet::new(),
            any: false,
            early: 0,
        })
    }

    fn object(&mut self, text: &str) -> io::Result<()> {
        let separator = if self.any { ",\n" } else { "\n" };
        self.any = true;
        write!(self.out, "{separator}{{{text}}}")
    }

    fn meta(&mut self, pid: usize, tid: u32, what: &str, args: &str) -> io::Result<()> {
        self.object(&format!(
            "\"ph\":\"M\",\"pid\":{pid},\"tid\":{},\"name\":\"{what}\",\"args\":{{{args}}}",
            thread(pid, tid)
        ))
    }

    /// Names a process and a thread of it when they are first used.
    fn name(&mut self, pid: usize, name: &str, tid: u32, track: &str) -> io::Result<()> {
        if self.processes.insert(pid) {
            self.meta(
                pid,
                0,
                "process_name",
                &format!("\"name\":{}", quoted(name)),
            )?;
            self.meta(
                pid,
                0,
                "process_sort_index",
                &format!("\"sort_index\":{pid}"),
            )?;
        }
        if self.threads.insert((pid, tid)) {
            self.meta(
                pid,
                tid,
                "thread_name",
                &format!("\"name\":{}", quoted(track)),
            )?;
            self.meta(
                pid,
                tid,
                "thread_sort_index",
                &format!("\"sort_index\":{tid}"),
            )?;
        }
        Ok(())
    }

    /// Adds a record.
    pub fn record(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        let mut shapes = Vec::new();
        self.timeline.record(entry, |shape| shapes.push(shape));
        let device = entry.record.device;
        for shape in shapes {
            match shape {
                Shape::Span { .. } => self.span(&shape, device)?,
                Shape::Instant { at } => self.instant(entry, at)?,
            }
        }
        Ok(())
    }

    fn instant(&mut self, entry: &Entry<'_>, at: i128) -> io::Result<()> {
        let record = entry.record;
        let Body::Trace { lost, event, text } = record.body else {
            // Its span says it all.
            return Ok(());
        };
        let (pid, tid) = (process(entry.device), FIRST_EVENT + u32::from(event));
        let name = track(event, self.strings);
        self.name(pid, record.device, tid, &name)?;
        let doubtful = if entry.place.doubtful {
            ",\"placed\":\"by order, as its time does not fit\""
        } else {
            ""
        };
        let tid = thread(pid, tid);
        let rest = format!(
            "\"ph\":\"i\",\"s\":\"t\",\"pid\":{pid},\"tid\":{tid},\"cat\":\"{}\",\"name\":{},\
             \"args\":{{\"time\":\"{:#x}\",\"lost\":{lost},\"event\":\"{event:#x}\"{doubtful}}}",
            record.body.kind().name(),
            quoted(if text.is_empty() { "(no text)" } else { text }),
            record.time.get(),
        );
        self.item(Item {
            at,
            duration: None,
            rest,
        })
    }

    fn span(&mut self, shape: &Shape, name: &str) -> io::Result<()> {
        let Shape::Span {
            device,
            loss,
            from,
            to,
        } = *shape
        else {
            return Ok(());
        };
        let pid = process(device);
        let (tid, track, label, args) = match loss {
            Loss::Device => (LOST, "lost by the device", "lost".to_owned(), String::new()),
            Loss::Gap { blocks, torn } => (
                GAPS,
                "not read by the driver",
                format!("gap: {}, {torn} torn", counted(blocks, "block")),
                format!("\"blocks\":{blocks},\"torn\":{torn}"),
            ),
        };
        self.name(pid, name, tid, track)?;
        let tid = thread(pid, tid);
        let kind = match loss {
            Loss::Device => "lost",
            Loss::Gap { .. } => Kind::Gap.name(),
        };
        self.item(Item {
            at: from,
            duration: Some(to - from),
            rest: format!(
                "\"ph\":\"X\",\"pid\":{pid},\"tid\":{tid},\"cat\":\"{kind}\",\"name\":\"{label}\",\
                 \"cname\":\"terrible\",\"args\":{{{args}}}"
            ),
        })
    }

    /// Adds an overrun of the kernel's buffer, after the last trace.
    pub fn overrun(&mut self, cpu: Option<u32>, events: Option<u64>) -> io::Result<()> {
        let (tid, name) = match cpu {
            Some(cpu) => (cpu.min(THREADS - 2) + 1, format!("CPU {cpu}")),
            None => (0, "all CPUs".to_owned()),
        };
        self.name(KERNEL, "the kernel's trace buffer", tid, &name)?;
        let (label, args) = match events {
            Some(events) => (
                format!("overrun: {events} events lost"),
                format!("\"events\":{events}"),
            ),
            None => ("overrun: events lost".to_owned(), String::new()),
        };
        let tid = thread(KERNEL, tid);
        let at = self.timeline.latest();
        self.item(Item {
            at,
            duration: None,
            rest: format!(
                "\"ph\":\"i\",\"s\":\"g\",\"pid\":{KERNEL},\"tid\":{tid},\"cat\":\"overrun\",\
                 \"name\":\"{label}\",\"args\":{{{args}}}"
            ),
        })
    }

    fn item(&mut self, item: Item) -> io::Result<()> {
        if self.base.is_some() {
            return self.write(&item);
        }
        self.held.push(item);
        if self.held.len() >= HELD {
            self.release()?;
        }
        Ok(())
    }

    /// Writes what was held back.
    fn release(&mut self) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        let first = held.iter().map(|item| item.at).min();
        self.base = Some(first.unwrap_or(0));
        held.iter().try_for_each(|item| self.write(item))
    }

    fn write(&mut self, item: &Item) -> io::Result<()> {
        let at = item.at.saturating_sub(self.base.unwrap_or(0));
        self.early += u64::from(at < 0);
        let mut text = format!("\"ts\":{},", microseconds(at.max(0)));
        if let Some(duration) = item.duration {
            // Without the part before the first time.
            let duration = duration.saturating_add(at.min(0)).max(0);
            text += &format!("\"dur\":{},", microseconds(duration));
        }
        self.object(&(text + &item.rest))
    }

    /// Lets what there is go out.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Ends the file; how many records were older than its first time, and stand there.
    pub fn end(&mut self, names: &[String]) -> io::Result<u64> {
        let mut shapes = Vec::new();
        self.timeline.end(|shape| shapes.push(shape));
        for shape in shapes {
            let Shape::Span { device, .. } = shape else {
                continue;
            };
            let name = names.get(device).map_or("", String::as_str);
            self.span(&shape, name)?;
        }
        if self.base.is_none() {
            self.release()?;
        }
        writeln!(self.out, "\n]}}")?;
        self.out.flush()?;
        Ok(self.early)
    }
}

/// Name of an event id's track.
pub fn track(event: u8, strings: Option<Strings>) -> String {
    match strings.map(|strings| strings.index(event)) {
        None => format!("event {event:#04x}"),
        Some(Some(index)) => format!("string trace {index} (event {event:#04x})"),
        Some(None) => format!("other (event {event:#04x})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact() {
        for (ps, text) in [
            (0, "0"),
            (1, "0.000001"),
            (1_000, "0.001"),
            (10_000_000, "10"),
            (9_007_199_254_740_991_000, "9007199254740.991"),
        ] {
            assert_eq!(microseconds(ps), text);
        }
    }

    #[test]
    fn tracks() {
        let strings = Strings::parse("2+14").ok();
        assert_eq!(track(2, None), "event 0x02");
        assert_eq!(track(2, strings), "string trace 0 (event 0x02)");
        assert_eq!(track(16, strings), "other (event 0x10)");
    }
}
