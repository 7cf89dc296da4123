// SPDX-License-Identifier: GPL-2.0

//! Where traces and losses are on a timeline of several devices.

use super::clock::Place;
use super::line::{Body, Record};

/// Ticks of a picosecond clock in one of 1 kHz.
const PS_PER_MS: i128 = 1_000_000_000;

/// Ticks per millisecond that are drawn where nobody has said how many there are.
pub const DEFAULT_KHZ: u32 = 1_000_000;

/// So many ticks in picoseconds, rounded down.
pub fn picoseconds(ticks: i128, khz: u32) -> i128 {
    ticks
        .saturating_mul(PS_PER_MS)
        .div_euclid(khz.max(1).into())
}

/// A record in its place.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Number of the device, from 0 on.
    pub device: usize,
    /// What it is.
    pub record: &'a Record<'a>,
    /// When it is.
    pub place: Place,
    /// When the device's record before it was.
    pub before: Option<i128>,
    /// It is wanted.
    pub shown: bool,
}

/// Times are picoseconds from the first trace of the first device on; they can be negative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A trace or a gap, at its time.
    Instant {
        /// When.
        at: i128,
    },
    /// A time in which something was lost.
    Span {
        /// Number of the device.
        device: usize,
        /// Who lost it.
        loss: Loss,
        /// Beginning.
        from: i128,
        /// End.
        to: i128,
    },
}

/// Who lost something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The device: its lost bit is set.
    Device,
    /// The driver: it could not read blocks before they were written over.
    Gap {
        /// Blocks skipped.
        blocks: u64,
        /// Blocks that changed while they were copied.
        torn: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    from: i128,
    to: i128,
    loss: Loss,
}

#[derive(Clone, Debug)]
struct Device {
    /// Its first time, and where that is.
    first: i128,
    offset: i128,
    /// A gap, which ends with the next record.
    gap: Option<Waiting>,
    /// Ends of the last spans: spans of one kind do not overlap.
    edges: [i128; 2],
}

/// Puts what devices have on one timeline.
///
/// Clocks of devices have nothing to do with each other: their first records are aligned by the
/// kernel's times, if the lines have them, else they begin together.
#[derive(Clone, Debug)]
pub struct Timeline {
    khz: u32,
    /// The kernel's time of the first record of all, in nanoseconds.
    start: Option<i128>,
    devices: Vec<Option<Device>>,
    /// The last time.
    latest: i128,
}

impl Timeline {
    /// A timeline with so many ticks per millisecond.
    pub fn new(khz: Option<u32>) -> Self {
        Self {
            khz: khz.unwrap_or(DEFAULT_KHZ),
            start: None,
            devices: Vec::new(),
            latest: 0,
        }
    }

    /// The last time that there was.
    pub fn latest(&self) -> i128 {
        self.latest
    }

    /// Places a record; a span of a gap comes with the record after it.
    pub fn record(&mut self, entry: &Entry<'_>, mut give: impl FnMut(Shape)) {
        let kernel = entry.record.origin.and_then(|origin| origin.nanoseconds());
        let start = *self.start.get_or_insert(kernel.unwrap_or(0));
        if self.devices.len() <= entry.device {
            self.devices.resize(entry.device + 1, None);
        }
        let Some(slot) = self.devices.get_mut(entry.device) else {
            return;
        };
        let ticks = entry.place.ticks;
        let device = slot.get_or_insert_with(|| Device {
            first: ticks,
            offset: kernel.map_or(0, |time| time.saturating_sub(start).saturating_mul(1000)),
            gap: None,
            edges: [i128::MIN; 2],
        });
        let khz = self.khz;
        let (first, offset) = (device.first, device.offset);
        let at = |ticks: i128| picoseconds(ticks.saturating_sub(first), khz).saturating_add(offset);
        if let Some(mut gap) = device.gap.take() {
            gap.to = gap.to.max(ticks);
            give(device.span(entry.device, gap, at));
        }
        let before = entry.before.unwrap_or(ticks);
        let span = |loss| Waiting {
            from: before.min(ticks),
            to: before.max(ticks),
            loss,
        };
        match entry.record.body {
            _ if !entry.shown => {}
            Body::Gap { blocks, torn } => {
                device.gap = Some(span(Loss::Gap { blocks, torn }));
            }
            Body::Trace { lost: true, .. } => {
                give(device.span(entry.device, span(Loss::Device), at));
            }
            Body::Trace { .. } => {}
        }
        self.latest = at(ticks);
        if entry.shown {
            give(Shape::Instant { at: at(ticks) });
        }
    }

    /// Ends what waits for another record.
    pub fn end(&mut self, mut give: impl FnMut(Shape)) {
        let khz = self.khz;
        for (number, device) in self.devices.iter_mut().enumerate() {
            let Some(device) = device else { continue };
            let (first, offset) = (device.first, device.offset);
            let at =
                |ticks: i128| picoseconds(ticks.saturating_sub(first), khz).saturating_add(offset);
            if let Some(gap) = device.gap.take() {
                give(device.span(number, gap, at));
            }
        }
    }
}

impl Device {
    /// A span, without what one of its kind before it covers.
    fn span(&mut self, device: usize, span: Waiting, at: impl Fn(i128) -> i128) -> Shape {
        let edge = match span.loss {
            Loss::Device => &mut self.edges[0],
            Loss::Gap { .. } => &mut self.edges[1],
        };
        let from = at(span.from).max(*edge);
        let to = at(span.to).max(from);
        *edge = to;
        Shape::Span {
            device,
            loss: span.loss,
            from,
            to,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::clock::Clock;
    use crate::trace::line::{parse, Line};
    use mlx5_pure::tracer::timestamp::Timestamp53;

    fn shapes(lines: &[&str], khz: u32) -> Vec<Shape> {
        let mut timeline = Timeline::new(Some(khz));
        let mut names: Vec<(String, Clock, Option<i128>)> = Vec::new();
        let mut all = Vec::new();
        for line in lines {
            let Ok(Line::Record(record)) = parse(line) else {
                panic!("{line}");
            };
            let device = names.iter().position(|known| known.0 == record.device);
            let device = device.unwrap_or_else(|| {
                names.push((record.device.to_owned(), Clock::default(), None));
                names.len() - 1
            });
            let (_, clock, before) = &mut names[device];
            let place = clock.place(Timestamp53::new(record.time.get()));
            let entry = Entry {
                device,
                record: &record,
                place,
                before: before.replace(place.ticks),
                shown: true,
            };
            timeline.record(&entry, |shape| all.push(shape));
        }
        timeline.end(|shape| all.push(shape));
        all
    }

    fn span(device: usize, loss: Loss, from: i128, to: i128) -> Shape {
        Shape::Span {
            device,
            loss,
            from,
            to,
        }
    }

    const GAP: Loss = Loss::Gap { blocks: 3, torn: 1 };

    #[test]
    fn losses_reach_from_the_record_before_to_the_one_after() {
        let at = |at| Shape::Instant { at };
        assert_eq!(
            shapes(
                &[
                    "d [0x1ffffffffffffe] 0 [0x2] a",
                    "d [0x8] 1 [0x2] b",
                    "d [0x9] gap blocks=3 torn=1",
                    "d [0x14] 0 [0x2] c",
                    // Younger than the one before it, and lost.
                    "d [0x12] 1 [0x2] d",
                    "d [0x1e] gap blocks=3 torn=1",
                ],
                // 2 ns.
                500_000,
            ),
            [
                at(0),
                span(0, Loss::Device, 0, 20_000),
                at(20_000),
                at(22_000),
                span(0, GAP, 20_000, 44_000),
                at(44_000),
                span(0, Loss::Device, 40_000, 44_000),
                at(40_000),
                at(64_000),
                // Begins where the gap before ended, though its neighbour was earlier.
                span(0, GAP, 44_000, 64_000),
            ]
        );
    }

    #[test]
    fn devices_are_aligned_by_the_kernel() {
        let lines = [
            " a-1 [000] ..... 5.000001: mlx5_fw: d [0x100] 0 [0x2] a",
            " a-1 [000] ..... 5.000003: mlx5_fw: e [0x7777] 0 [0x2] a",
            " a-1 [000] ..... 5.000004: mlx5_fw: e [0x7778] 0 [0x2] a",
        ];
        let at = |at| Shape::Instant { at };
        assert_eq!(
            shapes(&lines, 1_000_000),
            [at(0), at(2_000_000), at(2_001_000)]
        );
    }
}
