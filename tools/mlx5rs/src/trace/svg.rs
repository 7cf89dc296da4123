// SPDX-License-Identifier: GPL-2.0

//! A picture of traces: a row for each event id, a mark for each trace, a band for each loss.
//!
//! The same lines give the same bytes: all numbers in it are integers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use super::chrome::track;
use super::filter::Strings;
use super::line::{Body, Kind};
use super::output::printable;
use super::summary::counted;
use super::timeline::{Entry, Loss, Shape, Timeline};

/// The most marks and spans; what comes later is not drawn, and the picture says so.
const MAX_MARKS: usize = 50_000;

/// The most bytes of a text that is shown where the pointer is.
const MAX_TEXT: usize = 100;

/// Pixels.
const WIDTH: i128 = 1200;
const LEFT: i128 = 230;
const RIGHT: i128 = 20;
const TOP: i128 = 56;
const ROW: i128 = 20;
const PLOT: i128 = WIDTH - LEFT - RIGHT;

/// The most rows: what they would be drawn for is a picture that somebody looks at.
const MAX_ROWS: usize = 512;

/// A row: in this order from top to bottom, for each device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Row {
    Lost,
    Gaps,
    Event(u8),
}

#[derive(Debug)]
struct Mark {
    row: (usize, Row),
    at: i128,
    color: &'static str,
    text: String,
}

#[derive(Debug)]
struct Span {
    device: usize,
    loss: Loss,
    from: i128,
    to: i128,
}

/// Collects what is drawn at the end.
#[derive(Debug)]
pub struct Svg {
    timeline: Timeline,
    has_clock: bool,
    strings: Option<Strings>,
    marks: Vec<Mark>,
    spans: Vec<Span>,
    left_out: u64,
    overruns: u64,
}

const LOST_COLOR: &str = "#d62728";
const GAP_COLOR: &str = "#ff9f1c";
const TEXT_COLOR: &str = "#1f77b4";
const RAW_COLOR: &str = "#7f7f7f";
const BAD_COLOR: &str = "#9467bd";

/// What colours mean, and where that is said.
const LEGEND: [(i128, &str, &str); 5] = [
    (LEFT, TEXT_COLOR, "message"),
    (LEFT + 100, LOST_COLOR, "lost before it"),
    (LEFT + 230, BAD_COLOR, "bad format or incomplete"),
    (LEFT + 430, RAW_COLOR, "single event"),
    (LEFT + 550, GAP_COLOR, "not read by the driver"),
];

/// Colour of a trace.
fn color(body: &Body<'_>) -> &'static str {
    match (body, body.kind()) {
        (Body::Trace { lost: true, .. }, _) => LOST_COLOR,
        (_, Kind::Text) => TEXT_COLOR,
        (_, Kind::Raw) => RAW_COLOR,
        (_, Kind::BadFormat | Kind::Incomplete) => BAD_COLOR,
        (_, Kind::Gap) => GAP_COLOR,
    }
}

/// Text between tags.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

impl Svg {
    /// Nothing so far.
    pub fn new(khz: Option<u32>, strings: Option<Strings>) -> Self {
        Self {
            timeline: Timeline::new(khz),
            has_clock: khz.is_some(),
            strings,
            marks: Vec::new(),
            spans: Vec::new(),
            left_out: 0,
            overruns: 0,
        }
    }

    fn shape(&mut self, shape: Shape, entry: Option<&Entry<'_>>) {
        match (shape, entry) {
            (
                Shape::Span {
                    device,
                    loss,
                    from,
                    to,
                },
                _,
            ) => {
                if self.spans.len() == MAX_MARKS {
                    self.left_out += 1;
                    return;
                }
                self.spans.push(Span {
                    device,
                    loss,
                    from,
                    to,
                });
            }
            (Shape::Instant { at }, Some(entry)) => {
                let body = entry.record.body;
                let Body::Trace { event, text, .. } = body else {
                    return;
                };
                if self.marks.len() == MAX_MARKS {
                    self.left_out += 1;
                    return;
                }
                self.marks.push(Mark {
                    row: (entry.device, Row::Event(event)),
                    at,
                    color: color(&body),
                    text: printable(text).chars().take(MAX_TEXT).collect(),
                });
            }
            (Shape::Instant { .. }, None) => {}
        }
    }

    /// Adds a record.
    pub fn record(&mut self, entry: &Entry<'_>) {
        let mut shapes = Vec::new();
        self.timeline.record(entry, |shape| shapes.push(shape));
        for shape in shapes {
            self.shape(shape, Some(entry));
        }
    }

    /// Counts an overrun of the kernel's buffer.
    pub fn overrun(&mut self) {
        self.overruns += 1;
    }

    /// Draws it.
    pub fn end(&mut self, names: &[String], out: &mut impl Write) -> io::Result<()> {
        let mut shapes = Vec::new();
        self.timeline.end(|shape| shapes.push(shape));
        for shape in shapes {
            self.shape(shape, None);
        }
        out.write_all(self.draw(names).as_bytes())
    }

    /// The rows, from top to bottom.
    fn rows(&self) -> Vec<(usize, Row)> {
        let spans = self.spans.iter().map(|span| (span.device, span.row()));
        let mut rows: Vec<_> = self
            .marks
            .iter()
            .map(|mark| mark.row)
            .chain(spans)
            .collect();
        rows.sort_unstable();
        rows.dedup();
        rows.truncate(MAX_ROWS);
        rows
    }

    fn draw(&self, names: &[String]) -> String {
        let rows = self.rows();
        let times = self.marks.iter().map(|mark| mark.at);
        let ends = self.spans.iter().flat_map(|span| [span.from, span.to]);
        let first = times.clone().chain(ends.clone()).min().unwrap_or(0);
        let last = times.chain(ends).max().unwrap_or(0);
        let scale = Scale::new(first, last);
        let heights = Heights::new(&rows);
        let bottom = heights.bottom;
        let height = bottom + 40;
        let mut svg = String::new();
        // A string takes everything.
        let _ = self.write(&mut svg, names, &scale, &heights, height);
        svg
    }

    fn write(
        &self,
        svg: &mut String,
        names: &[String],
        scale: &Scale,
        heights: &Heights,
        height: i128,
    ) -> std::fmt::Result {
        writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">"
        )?;
        writeln!(
            svg,
            "<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>"
        )?;
        self.heading(svg)?;
        self.axis(svg, scale, heights.bottom)?;
        for (row, y) in &heights.rows {
            let label = match row.1 {
                Row::Lost => "lost by the device".to_owned(),
                Row::Gaps => "not read by the driver".to_owned(),
                Row::Event(event) => track(event, self.strings),
            };
            writeln!(
                svg,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#333333\">{label}</text>\n\
                 <line x1=\"{LEFT}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"#eeeeee\"/>",
                LEFT - 8,
                y + 14,
                y + ROW / 2,
                WIDTH - RIGHT,
                y + ROW / 2,
            )?;
        }
        for (device, y) in &heights.devices {
            let name = names.get(*device).map_or("", String::as_str);
            writeln!(
                svg,
                "<text x=\"8\" y=\"{}\" font-weight=\"bold\">{}</text>",
                y + 14,
                escaped(name)
            )?;
        }
        for span in &self.spans {
            let Some(y) = heights.of(span.device, span.row()) else {
                continue;
            };
            let (x, end) = (scale.x(span.from), scale.x(span.to));
            let (color, title) = match span.loss {
                Loss::Device => (LOST_COLOR, "lost".to_owned()),
                Loss::Gap { blocks, torn } => (
                    GAP_COLOR,
                    format!("gap: {}, {torn} torn", counted(blocks, "block")),
                ),
            };
            writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{}\" width=\"{}\" height=\"14\" fill=\"{color}\" \
                 fill-opacity=\"0.7\"><title>{title}</title></rect>",
                y + 3,
                (end - x).max(2),
            )?;
        }
        self.marks(svg, scale, heights)?;
        writeln!(svg, "</svg>")
    }

    fn heading(&self, svg: &mut String) -> std::fmt::Result {
        let lost = self.spans.iter().filter(|span| span.loss == Loss::Device);
        let lost = lost.count();
        let gaps = self.spans.len() - lost;
        let mut text = format!(
            "mlx5 firmware traces: {}, {lost} after a loss, {}",
            counted(self.marks.len() as u64, "trace"),
            counted(gaps as u64, "gap")
        );
        if self.overruns != 0 {
            write!(text, ", {} overruns of the kernel's buffer", self.overruns)?;
        }
        if self.left_out != 0 {
            write!(text, "; {} more are not drawn", self.left_out)?;
        }
        if !self.has_clock {
            text += "; the device's clock is not known, drawn as 1 GHz";
        }
        writeln!(
            svg,
            "<text x=\"8\" y=\"20\" font-size=\"15\" font-weight=\"bold\">{text}</text>"
        )?;
        for (x, color, meaning) in LEGEND {
            writeln!(
                svg,
                "<rect x=\"{x}\" y=\"31\" width=\"10\" height=\"10\" fill=\"{color}\"/>\n\
                 <text x=\"{}\" y=\"40\" fill=\"#333333\">{meaning}</text>",
                x + 15
            )?;
        }
        Ok(())
    }

    fn axis(&self, svg: &mut String, scale: &Scale, bottom: i128) -> std::fmt::Result {
        let mut at = 0;
        while at <= scale.length {
            let x = scale.x(scale.first + at);
            writeln!(
                svg,
                "<line x1=\"{x}\" y1=\"{TOP}\" x2=\"{x}\" y2=\"{bottom}\" stroke=\"#dddddd\"/>\n\
                 <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" fill=\"#333333\">{}</text>",
                bottom + 18,
                scale.label(at),
            )?;
            at += scale.step;
        }
        Ok(())
    }

    /// One mark for all traces of a row and a colour at one pixel.
    fn marks(&self, svg: &mut String, scale: &Scale, heights: &Heights) -> std::fmt::Result {
        let mut places: BTreeMap<_, (&str, usize)> = BTreeMap::new();
        for mark in &self.marks {
            let place = (mark.row, scale.x(mark.at), mark.color);
            places.entry(place).or_insert((&mark.text, 0)).1 += 1;
        }
        for ((row, x, color), (text, count)) in places {
            let Some(y) = heights.of(row.0, row.1) else {
                continue;
            };
            let more = match count {
                1 => String::new(),
                count => format!(" (and {} more)", count - 1),
            };
            writeln!(
                svg,
                "<rect x=\"{}\" y=\"{}\" width=\"2\" height=\"14\" fill=\"{color}\">\
                 <title>{}{more}</title></rect>",
                x - 1,
                y + 3,
                escaped(text),
            )?;
        }
        Ok(())
    }
}

impl Span {
    fn row(&self) -> Row {
        match self.loss {
            Loss::Device => Row::Lost,
            Loss::Gap { .. } => Row::Gaps,
        }
    }
}

/// Where rows are.
struct Heights {
    rows: BTreeMap<(usize, Row), i128>,
    devices: Vec<(usize, i128)>,
    bottom: i128,
}

impl Heights {
    fn new(rows: &[(usize, Row)]) -> Self {
        let mut heights = Self {
            rows: BTreeMap::new(),
            devices: Vec::new(),
            bottom: TOP,
        };
        for row in rows {
            if heights.devices.last().is_none_or(|last| last.0 != row.0) {
                heights.devices.push((row.0, heights.bottom));
            }
            heights.rows.insert(*row, heights.bottom);
            heights.bottom += ROW;
        }
        heights
    }

    fn of(&self, device: usize, row: Row) -> Option<i128> {
        self.rows.get(&(device, row)).copied()
    }
}

/// From picoseconds to pixels.
struct Scale {
    first: i128,
    length: i128,
    /// Between two labels.
    step: i128,
}

impl Scale {
    fn new(first: i128, last: i128) -> Self {
        let length = last.saturating_sub(first).max(1);
        // 1, 2 or 5 times a power of ten, at most ten of them.
        let mut power = 1_i128;
        let step = loop {
            let factor = [1, 2, 5].into_iter().find(|f| f * power * 10 >= length);
            if let Some(factor) = factor {
                break factor * power;
            }
            match power
                .checked_mul(10)
                .filter(|power| *power < i128::MAX / 100)
            {
                Some(next) => power = next,
                None => break length,
            }
        };
        Self {
            first,
            length,
            step,
        }
    }

    fn x(&self, at: i128) -> i128 {
        let at = at.saturating_sub(self.first);
        LEFT + at.saturating_mul(PLOT) / self.length
    }

    /// A time since the first one, in the unit that fits the step.
    fn label(&self, at: i128) -> String {
        let (unit, name) = [
            (1_000_000_000_000, "s"),
            (1_000_000_000, "ms"),
            (1_000_000, "µs"),
            (1_000, "ns"),
        ]
        .into_iter()
        .find(|(unit, _)| self.step >= *unit)
        .unwrap_or((1, "ps"));
        format!("{} {name}", at / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales() {
        for (length, step, labels) in [
            (1, 1, "1 ps"),
            (999, 100, "100 ps"),
            (10_000, 1_000, "1 ns"),
            (10_001, 2_000, "2 ns"),
            (2_100_000_000, 500_000_000, "500 µs"),
            (47_000_000_000_000, 5_000_000_000_000, "5 s"),
        ] {
            let scale = Scale::new(-5, length - 5);
            assert_eq!((scale.step, scale.label(step).as_str()), (step, labels));
            assert_eq!(scale.x(-5), LEFT);
            assert_eq!(scale.x(length - 5), WIDTH - RIGHT);
        }
        let scale = Scale::new(i128::MIN, i128::MAX);
        assert!(scale.length / scale.step <= 100);
        assert!(scale.x(i128::MAX) >= LEFT);
    }

    #[test]
    fn nothing_closes_a_tag() {
        assert_eq!(escaped("<b>&\""), "&lt;b&gt;&amp;&quot;");
    }
}
