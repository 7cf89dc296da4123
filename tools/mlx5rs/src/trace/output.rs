// SPDX-License-Identifier: GPL-2.0

//! Traces for people, and as JSON.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Serialize;

use super::line::{Body, Kind};
use super::summary::counted;
use super::timeline::{picoseconds, Entry};

/// What a tick is, if anybody has said so.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Ticks per millisecond.
    pub khz: Option<u32>,
}

impl Clock {
    /// A time or a difference as it is shown: seconds, or ticks.
    fn show(self, ticks: i128) -> String {
        let Some(khz) = self.khz else {
            return ticks.to_string();
        };
        let ns = picoseconds(ticks, khz).div_euclid(1000);
        let (sign, ns) = (if ns < 0 { "-" } else { "" }, ns.unsigned_abs());
        format!("{sign}{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
    }

    /// A difference, with its unit.
    pub fn interval(self, ticks: i128) -> String {
        match self.khz {
            Some(_) => format!("{ticks} ticks, {} s", self.show(ticks)),
            None => format!("{ticks} ticks"),
        }
    }

    fn nanoseconds(self, ticks: i128) -> Option<i128> {
        Some(picoseconds(ticks, self.khz?).div_euclid(1000))
    }
}

/// Text that can be written to a terminal: firmware's may have anything in it.
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.into();
    }
    text.chars()
        .flat_map(|c| {
            let is_plain = matches!(c, ' '..='~');
            let escaped = (!is_plain).then(|| c.escape_default());
            is_plain
                .then_some(c)
                .into_iter()
                .chain(escaped.into_iter().flatten())
        })
        .collect()
}

/// Writes one line for each record.
#[derive(Debug)]
pub struct Text {
    clock: Clock,
    /// The last time that was shown of each device.
    last: Vec<Option<i128>>,
}

impl Text {
    /// Nothing so far.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            last: Vec::new(),
        }
    }

    /// Writes a record.
    pub fn record(&mut self, entry: &Entry<'_>, out: &mut impl Write) -> io::Result<()> {
        if self.last.len() <= entry.device {
            self.last.resize(entry.device + 1, None);
        }
        let ticks = entry.place.ticks;
        let last = self.last.get_mut(entry.device);
        let since = last.and_then(|last| last.replace(ticks));
        let delta = match since.map(|last| ticks - last) {
            Some(delta) if delta >= 0 => format!("+{}", self.clock.show(delta)),
            Some(delta) => self.clock.show(delta),
            None => String::new(),
        };
        let record = entry.record;
        let time = self.clock.show(record.time.get().into());
        let doubt = if entry.place.doubtful { '?' } else { ' ' };
        let device = record.device;
        write!(out, "{device} {time:>17}{doubt}{delta:>14}  ")?;
        match record.body {
            Body::Trace { lost, event, text } => {
                let lost = if lost { "LOST" } else { "" };
                let text = printable(text);
                let line = format!("{event:#04x} {lost:<4} {text}");
                writeln!(out, "{}", line.trim_end())
            }
            Body::Gap { blocks, torn } => {
                let blocks = counted(blocks, "block");
                writeln!(out, "---- GAP  {blocks} skipped, {torn} torn")
            }
        }
    }

    /// Writes that the kernel's buffer was too small.
    pub fn overrun(
        &self,
        cpu: Option<u32>,
        events: Option<u64>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let cpu = cpu.map_or("of all CPUs".to_owned(), |cpu| format!("of CPU {cpu}"));
        let events = events.map_or("an unknown number of".to_owned(), |n| n.to_string());
        writeln!(
            out,
            "the kernel's buffer {cpu} was full: {events} events lost"
        )
    }
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Type {
    Trace,
    Gap,
    Overrun,
}

#[derive(Serialize)]
struct JsonRecord<'a> {
    r#type: Type,
    device: &'a str,
    /// As the device has it.
    time: String,
    /// On a line that goes on where the device's clock wraps.
    ticks: i128,
    nanoseconds: Option<i128>,
    doubtful: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<u8>,
    kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    torn: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel: Option<JsonOrigin<'a>>,
}

#[derive(Serialize)]
struct JsonOrigin<'a> {
    time: &'a str,
    cpu: u32,
    task: &'a str,
    pid: u32,
}

#[derive(Serialize)]
struct JsonOverrun {
    r#type: Type,
    cpu: Option<u32>,
    events: Option<u64>,
}

fn object(value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    // Not to `out` at once: half an object is worse than none.
    let text = serde_json::to_string(value).map_err(io::Error::other)?;
    writeln!(out, "{text}")
}

/// Writes a record as a JSON object.
pub fn json(entry: &Entry<'_>, clock: Clock, out: &mut impl Write) -> io::Result<()> {
    let record = entry.record;
    let mut line = JsonRecord {
        r#type: Type::Trace,
        device: record.device,
        time: format!("{:#x}", record.time.get()),
        ticks: entry.place.ticks,
        nanoseconds: clock.nanoseconds(entry.place.ticks),
        doubtful: entry.place.doubtful,
        lost: None,
        event: None,
        kind: record.body.kind(),
        text: None,
        blocks: None,
        torn: None,
        kernel: record.origin.map(|origin| JsonOrigin {
            time: origin.time,
            cpu: origin.cpu,
            task: origin.task,
            pid: origin.pid,
        }),
    };
    match record.body {
        Body::Trace { lost, event, text } => {
            line.lost = Some(lost);
            line.event = Some(event);
            line.text = Some(text);
        }
        Body::Gap { blocks, torn } => {
            line.r#type = Type::Gap;
            line.blocks = Some(blocks);
            line.torn = Some(torn);
        }
    }
    object(&line, out)
}

/// Writes an overrun of the kernel's buffer as a JSON object.
pub fn json_overrun(cpu: Option<u32>, events: Option<u64>, out: &mut impl Write) -> io::Result<()> {
    let r#type = Type::Overrun;
    object(
        &JsonOverrun {
            r#type,
            cpu,
            events,
        },
        out,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_that_it_would_obey() {
        assert_eq!(printable("a \\ b~"), "a \\ b~");
        assert_eq!(
            printable("\u{1b}[31m\u{202e}\t\u{7f}ä"),
            "\\u{1b}[31m\\u{202e}\\t\\u{7f}\\u{e4}"
        );
    }

    #[test]
    fn seconds_and_ticks() {
        let clock = |khz| Clock { khz };
        assert_eq!(clock(None).show(-7), "-7");
        assert_eq!(clock(Some(1_000_000)).show(-7), "-0.000000007");
        assert_eq!(clock(Some(156_250)).show(1_000_000_000), "6.400000000");
        assert_eq!(clock(Some(1)).show(1), "0.001000000");
    }
}
