// SPDX-License-Identifier: GPL-2.0

//! What there was, in numbers.

use std::collections::BTreeMap;
use std::io::{self, Write};

use mlx5_pure::tracer::timestamp::Timestamp53;
use serde::Serialize;

use super::chrome::track;
use super::filter::Strings;
use super::line::{Body, Kind};
use super::output::Clock;
use super::timeline::Entry;

/// Counts of one device's wanted records.
#[derive(Clone, Debug, Default)]
struct Device {
    traces: u64,
    lost: u64,
    gaps: u64,
    blocks: u64,
    torn: u64,
    doubtful: u64,
    jumps: u64,
    kinds: [u64; Kind::ALL.len()],
    /// Traces, and those of them with the lost bit, for each event id.
    events: BTreeMap<u8, (u64, u64)>,
    /// The first and the last time in the order of the lines, and the ticks between them.
    first: Option<(Timestamp53, i128)>,
    last: Option<(Timestamp53, i128)>,
}

/// Counts of all.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    devices: Vec<Device>,
    /// Times that the kernel's buffer was too small, and the events that it says it lost.
    overruns: u64,
    overrun_events: u64,
    /// Lines that were not wanted.
    pub filtered: u64,
    /// Lines of other events.
    pub foreign: u64,
    /// Lines that are not readable.
    pub unreadable: u64,
}

#[derive(Serialize)]
struct Totals<'a> {
    r#type: &'static str,
    devices: Vec<DeviceTotals<'a>>,
    overruns: u64,
    overrun_events: u64,
    filtered: u64,
    foreign: u64,
    unreadable: u64,
}

#[derive(Serialize)]
struct DeviceTotals<'a> {
    device: &'a str,
    traces: u64,
    lost: u64,
    gaps: u64,
    blocks: u64,
    torn: u64,
    doubtful: u64,
    jumps: u64,
    first: Option<String>,
    last: Option<String>,
    ticks: Option<i128>,
    kinds: BTreeMap<&'static str, u64>,
    events: BTreeMap<String, EventTotals>,
}

#[derive(Serialize)]
struct EventTotals {
    traces: u64,
    lost: u64,
}

/// A number of things.
pub fn counted(count: u64, one: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {one}{plural}")
}

impl Summary {
    /// Counts a wanted record.
    pub fn record(&mut self, entry: &Entry<'_>) {
        if self.devices.len() <= entry.device {
            self.devices.resize(entry.device + 1, Device::default());
        }
        let Some(device) = self.devices.get_mut(entry.device) else {
            return;
        };
        let body = &entry.record.body;
        for (kind, count) in Kind::ALL.iter().zip(&mut device.kinds) {
            *count += u64::from(*kind == body.kind());
        }
        match *body {
            Body::Trace { lost, event, .. } => {
                device.traces += 1;
                device.lost += u64::from(lost);
                let (traces, losses) = device.events.entry(event).or_default();
                *traces += 1;
                *losses += u64::from(lost);
            }
            Body::Gap { blocks, torn } => {
                device.gaps += 1;
                device.blocks = device.blocks.saturating_add(blocks);
                device.torn = device.torn.saturating_add(torn);
            }
        }
        device.doubtful += u64::from(entry.place.doubtful);
        device.jumps += u64::from(entry.place.jumped);
        if !entry.place.doubtful {
            let time = (entry.record.time, entry.place.ticks);
            device.first.get_or_insert(time);
            device.last = Some(time);
        }
    }

    /// Counts an overrun of the kernel's buffer.
    pub fn overrun(&mut self, events: Option<u64>) {
        self.overruns += 1;
        self.overrun_events = self.overrun_events.saturating_add(events.unwrap_or(0));
    }

    /// Writes one line.
    pub fn line(&self, out: &mut impl Write) -> io::Result<()> {
        let sum = |count: fn(&Device) -> u64| self.devices.iter().map(count).sum::<u64>();
        write!(
            out,
            "{}, {} after a loss, {}",
            counted(sum(|d| d.traces), "trace"),
            sum(|d| d.lost),
            counted(sum(|d| d.gaps), "gap"),
        )?;
        for (count, text) in [
            (self.overruns, "overruns of the kernel's buffer"),
            (self.unreadable, "unreadable"),
        ] {
            if count != 0 {
                write!(out, ", {count} {text}")?;
            }
        }
        writeln!(out)
    }

    /// Writes all of it.
    pub fn text(
        &self,
        names: &[String],
        clock: Clock,
        strings: Option<Strings>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        for (name, device) in names.iter().zip(&self.devices) {
            if device.traces + device.gaps == 0 {
                continue;
            }
            writeln!(
                out,
                "{name}: {}, {} after a loss, {} ({}, {} torn)",
                counted(device.traces, "trace"),
                device.lost,
                counted(device.gaps, "gap"),
                counted(device.blocks, "block"),
                device.torn,
            )?;
            if let (Some((first, from)), Some((last, to))) = (device.first, device.last) {
                let (first, last) = (first.get(), last.get());
                let span = clock.interval(to - from);
                writeln!(out, "  time {first:#x} to {last:#x}: {span}")?;
            }
            for (count, text) in [
                (
                    device.doubtful,
                    "with a time that does not fit, placed by their order",
                ),
                (device.jumps, "before which the clock was set back"),
            ] {
                if count != 0 {
                    writeln!(out, "  {}: {text}", counted(count, "trace"))?;
                }
            }
            for (kind, count) in Kind::ALL.iter().zip(device.kinds) {
                if count != 0 {
                    writeln!(out, "  {:<28} {count:>10}", kind.name())?;
                }
            }
            for (event, (traces, lost)) in &device.events {
                let name = track(*event, strings);
                write!(out, "  {name:<28} {traces:>10}")?;
                match lost {
                    0 => writeln!(out)?,
                    lost => writeln!(out, "  {lost} after a loss")?,
                }
            }
        }
        if self.overruns != 0 {
            writeln!(
                out,
                "the kernel's buffer: {}, {} lost",
                counted(self.overruns, "overrun"),
                counted(self.overrun_events, "event"),
            )?;
        }
        for (count, text) in [
            (self.filtered, "not wanted"),
            (self.foreign, "of other events"),
            (self.unreadable, "unreadable"),
        ] {
            if count != 0 {
                writeln!(out, "{} {text}", counted(count, "line"))?;
            }
        }
        self.line(out)
    }

    /// Writes all of it as a JSON object.
    pub fn json(&self, names: &[String], out: &mut impl Write) -> io::Result<()> {
        let hex = |time: Option<(Timestamp53, i128)>| Some(format!("{:#x}", time?.0.get()));
        let devices = names.iter().zip(&self.devices);
        let totals = Totals {
            r#type: "summary",
            devices: devices
                .filter(|(_, device)| device.traces + device.gaps != 0)
                .map(|(name, device)| DeviceTotals {
                    device: name,
                    traces: device.traces,
                    lost: device.lost,
                    gaps: device.gaps,
                    blocks: device.blocks,
                    torn: device.torn,
                    doubtful: device.doubtful,
                    jumps: device.jumps,
                    first: hex(device.first),
                    last: hex(device.last),
                    ticks: device.first.zip(device.last).map(|(a, b)| b.1 - a.1),
                    kinds: Kind::ALL
                        .iter()
                        .zip(device.kinds)
                        .filter(|(_, count)| *count != 0)
                        .map(|(kind, count)| (kind.name(), count))
                        .collect(),
                    events: device
                        .events
                        .iter()
                        .map(|(event, (traces, lost))| {
                            let (traces, lost) = (*traces, *lost);
                            (format!("{event:#x}"), EventTotals { traces, lost })
                        })
                        .collect(),
                })
                .collect(),
            overruns: self.overruns,
            overrun_events: self.overrun_events,
            filtered: self.filtered,
            foreign: self.foreign,
            unreadable: self.unreadable,
        };
        let text = serde_json::to_string(&totals).map_err(io::Error::other)?;
        writeln!(out, "{text}")
    }
}
