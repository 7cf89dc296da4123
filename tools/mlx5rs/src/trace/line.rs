// SPDX-License-Identifier: GPL-2.0

//! Lines of firmware traces.
//!
//! A trace is `<device> [0x<time>] <0|1: lost> [0x<event id>] <text>`, a gap
//! `<device> [0x<time>] gap blocks=<n> torn=<n>` (upstream's fw_tracer_tracepoint.h, and what mlx5_rs
//! adds to it). Before them may be the name of the event, and before that what tracefs writes before
//! every event: `<task>-<pid> [<cpu>] <flags> <time>: `. trace-cmd and perf write nearly the same.

use std::sync::LazyLock;

use mlx5_pure::tracer::timestamp::Timestamp53;
use regex::Regex;

/// The most bytes of a name of a device.
const MAX_DEVICE: usize = 64;

/// Names of the events, as tracefs and perf write them, and whether it is that of gaps.
const EVENTS: &[(&str, bool)] = &[
    ("mlx5_fw: ", false),
    ("mlx5_fw_gap: ", true),
    ("mlx5:mlx5_fw: ", false),
    ("mlx5:mlx5_fw_gap: ", true),
];

/// What a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A trace, or what is missing of the device's traces.
    Record(Record<'a>),
    /// The kernel's trace buffer was too small: it says how many events it lost, if it knows.
    Overrun {
        /// CPU whose buffer it is; a header speaks of all.
        cpu: Option<u32>,
        /// Events.
        events: Option<u64>,
    },
    /// Nothing: an empty line or a comment.
    Empty,
    /// Another event.
    Foreign,
}

/// What a line says of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Who wrote it to the trace, and when; only tracefs says so.
    pub origin: Option<Origin<'a>>,
    /// Name of the device: domain:bus:device.function.
    pub device: &'a str,
    /// The device's time.
    pub time: Timestamp53,
    /// The rest.
    pub body: Body<'a>,
}

/// Kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A trace.
    Trace {
        /// The device lost events before it.
        lost: bool,
        /// Event id.
        event: u8,
        /// What it says.
        text: &'a str,
    },
    /// Blocks of the trace buffer that the driver could not read before the device wrote over them.
    Gap {
        /// Blocks skipped.
        blocks: u64,
        /// Blocks that changed while they were copied.
        torn: u64,
    },
}

/// What tracefs writes before an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// Task that wrote to the trace: the driver's worker.
    pub task: &'a str,
    /// Its number.
    pub pid: u32,
    /// CPU.
    pub cpu: u32,
    /// The kernel's time, in seconds unless the trace clock is another one.
    pub time: &'a str,
}

impl Origin<'_> {
    /// The kernel's time in nanoseconds, if it is in seconds.
    pub fn nanoseconds(&self) -> Option<i128> {
        let (seconds, fraction) = self.time.split_once('.')?;
        let digits: String = fraction
            .chars()
            .chain("000000000".chars())
            .take(9)
            .collect();
        let seconds: i128 = seconds.parse().ok()?;
        Some(seconds * 1_000_000_000 + digits.parse::<i128>().ok()?)
    }
}

/// What kind of text a trace has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A message.
    Text,
    /// An event that is no part of a message, as its eight bytes.
    Raw,
    /// A message with a format that the driver does not have.
    BadFormat,
    /// A message without all its parameters.
    Incomplete,
    /// Blocks that the driver could not read.
    Gap,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Text,
        Self::Raw,
        Self::BadFormat,
        Self::Incomplete,
        Self::Gap,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Raw => "raw",
            Self::BadFormat => "bad-format",
            Self::Incomplete => "incomplete",
            Self::Gap => "gap",
        }
    }
}

impl Body<'_> {
    /// Its kind, by the words that drivers use.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Gap { .. } => Kind::Gap,
            Self::Trace { text, .. } if text.starts_with("BAD_FORMAT: ") => Kind::BadFormat,
            Self::Trace { text, .. } if text.starts_with("INCOMPLETE: ") => Kind::Incomplete,
            Self::Trace { text, .. } if is_word(text) => Kind::Raw,
            Self::Trace { .. } => Kind::Text,
        }
    }

    /// Whether something is missing before it.
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::Gap { .. } | Self::Trace { lost: true, .. })
    }
}

/// Whether this is `0x` and 16 digits.
fn is_word(text: &str) -> bool {
    let digits = text.strip_prefix("0x").unwrap_or_default();
    digits.len() == 16 && is_hex(digits)
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Why a line is not readable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    field: &'static str,
    value: String,
    expected: &'static str,
}

impl Wrong {
    /// A field and what is there; of a long value the beginning.
    pub fn new(field: &'static str, value: &str, expected: &'static str) -> Self {
        const SHOWN: usize = 60;
        let mut shown = super::printable(value).chars().take(SHOWN).collect();
        if value.chars().count() > SHOWN {
            shown += "...";
        }
        Self {
            field,
            value: shown,
            expected,
        }
    }
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: `{}`: expected {}",
            self.field, self.value, self.expected
        )
    }
}

/// Reads a line, without its end.
///
/// # Errors
///
/// It should be one of a trace, and is not.
pub fn parse(line: &str) -> Result<Line<'_>, Wrong> {
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.trim().is_empty() {
        return Ok(Line::Empty);
    }
    if let Some(comment) = line.trim_start().strip_prefix('#') {
        return Ok(header(comment));
    }
    if let Some(rest) = line.strip_prefix("CPU:") {
        return overrun(rest)
            .ok_or_else(|| Wrong::new("line", line, "CPU:<number> [LOST <number> EVENTS]"));
    }
    if let Some((event, gap)) = event(line) {
        return record(event, gap, None);
    }
    if let Some((origin, rest)) = origin(line) {
        return match event(rest) {
            Some((event, gap)) => record(event, gap, Some(origin)),
            None => Ok(Line::Foreign),
        };
    }
    // The driver's debugfs: no name of the event.
    let gap = line
        .split_once("] ")
        .is_some_and(|(_, rest)| rest.starts_with("gap "));
    record(line, Some(gap), None)
}

/// A comment: the header of `trace` says how much of it is left.
fn header(comment: &str) -> Line<'_> {
    let counts = || {
        let counts = comment
            .trim_start()
            .strip_prefix("entries-in-buffer/entries-written:")?;
        let (kept, written) = counts.split_whitespace().next()?.split_once('/')?;
        let lost = written
            .parse::<u64>()
            .ok()?
            .checked_sub(kept.parse().ok()?)?;
        (lost != 0).then_some(lost)
    };
    match counts() {
        Some(events) => Line::Overrun {
            cpu: None,
            events: Some(events),
        },
        None => Line::Empty,
    }
}

/// `trace_pipe` says so where events are missing.
fn overrun<'a>(rest: &str) -> Option<Line<'a>> {
    let (cpu, rest) = rest.split_once(" [LOST ")?;
    let count = rest.strip_suffix("EVENTS]")?.trim_end();
    let events = match count {
        "" => None,
        count => Some(count.parse().ok()?),
    };
    Some(Line::Overrun {
        cpu: Some(cpu.trim().parse().ok()?),
        events,
    })
}

/// What follows the name of the event, if there is one; whether it is that of gaps.
fn event(text: &str) -> Option<(&str, Option<bool>)> {
    EVENTS
        .iter()
        .find_map(|(name, gap)| Some((text.strip_prefix(name)?, Some(*gap))))
}

/// Splits off what tracefs writes before an event.
fn origin(line: &str) -> Option<(Origin<'_>, &str)> {
    static PREFIX: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(concat!(
            r"(?s)^ *(.*?)(?:-| +)([0-9]{1,10}) +(?:\([ 0-9-]+\) +)?",
            r"\[([0-9]{1,9})\] +(?:[^ :]{1,16} +)?([0-9]{1,20}(?:\.[0-9]{1,12})?): +(.*)$"
        ))
        .ok()
    });
    let found = PREFIX.as_ref()?.captures(line)?;
    let part = |i| found.get(i).map_or("", |part| part.as_str());
    let origin = Origin {
        task: part(1),
        pid: part(2).parse().ok()?,
        cpu: part(3).parse().ok()?,
        time: part(4),
    };
    Some((origin, part(5)))
}

/// Takes `[0x<hex>]`, of a number of at most `max`.
fn bracketed<'a>(
    field: &'static str,
    text: &'a str,
    max: u64,
    expected: &'static str,
) -> Result<(u64, &'a str), Wrong> {
    let wrong = || Wrong::new(field, text, expected);
    let inside = text.strip_prefix("[0x").ok_or_else(wrong)?;
    let (digits, rest) = inside.split_once(']').ok_or_else(wrong)?;
    if !is_hex(digits) {
        return Err(wrong());
    }
    match u64::from_str_radix(digits, 16) {
        Ok(number) if number <= max => Ok((number, rest)),
        _ => Err(Wrong::new(field, &text[..digits.len() + 4], expected)),
    }
}

fn record<'a>(
    text: &'a str,
    gap: Option<bool>,
    origin: Option<Origin<'a>>,
) -> Result<Line<'a>, Wrong> {
    let is_name = |name: &str| {
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
        !name.is_empty() && name.len() <= MAX_DEVICE && name.bytes().all(valid)
    };
    let (device, rest) = text
        .split_once(' ')
        .filter(|(device, rest)| is_name(device) && rest.starts_with('['))
        .ok_or_else(|| {
            Wrong::new(
                "line",
                text,
                "a firmware trace: <device> [0x<time>] <0|1> [0x<event id>] <text>",
            )
        })?;
    let (time, rest) = bracketed(
        "time",
        rest,
        Timestamp53::MAX,
        "[0x<hex>] of at most 53 bits, 0x1fffffffffffff",
    )?;
    let body = if gap == Some(true) {
        gap_body(rest)?
    } else {
        trace_body(rest)?
    };
    Ok(Line::Record(Record {
        origin,
        device,
        time: Timestamp53::new(time),
        body,
    }))
}

fn trace_body(text: &str) -> Result<Body<'_>, Wrong> {
    let (lost, rest) = match (text.strip_prefix(" 0 "), text.strip_prefix(" 1 ")) {
        (Some(rest), _) => (false, rest),
        (_, Some(rest)) => (true, rest),
        _ => return Err(Wrong::new("lost", text.trim_start(), "0 or 1")),
    };
    let (event, rest) = bracketed(
        "event id",
        rest,
        u8::MAX.into(),
        "[0x<hex>] of at most 8 bits, 0xff",
    )?;
    let text = match rest.strip_prefix(' ') {
        Some(text) => text,
        // Somebody has cut off blanks at the end.
        None if rest.is_empty() => rest,
        None => return Err(Wrong::new("text", rest, "a blank before it")),
    };
    Ok(Body::Trace {
        lost,
        // At most 8 bits.
        event: event as u8,
        text,
    })
}

fn gap_body(text: &str) -> Result<Body<'_>, Wrong> {
    let wrong = || {
        Wrong::new(
            "gap",
            text.trim_start(),
            "gap blocks=<number> torn=<number>",
        )
    };
    let mut words = text.split_whitespace();
    if words.next() != Some("gap") {
        return Err(wrong());
    }
    let mut count = |name: &str| {
        let number = words.next()?.strip_prefix(name)?.strip_prefix('=')?;
        let digits = number.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| number.parse().ok())?
    };
    let (blocks, torn) = (count("blocks"), count("torn"));
    match (blocks, torn, words.next()) {
        (Some(blocks), Some(torn), None) => Ok(Body::Gap { blocks, torn }),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TRACE: Body<'static> = Body::Trace {
        lost: true,
        event: 0x2a,
        text: "#1 cmd 5",
    };

    fn read(line: &str) -> Record<'_> {
        match parse(line) {
            Ok(Line::Record(record)) => record,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn every_form() {
        let body = "0000:01:00.0 [0x1fffffffffffff] 1 [0x2a] #1 cmd 5";
        for prefix in [
            "",
            "mlx5_fw: ",
            "     kworker/u8:1-34      [001] .....    10.203040: mlx5_fw: ",
            // A name with blanks and brackets, or none; thread groups; no flags; another clock.
            "    a [1] b: 2.3: c-34      [001] d..1.    10.203040: mlx5_fw: ",
            "           <...>-34      (-------) [001] .....    10.203040: mlx5_fw: ",
            "           <...>-34      (     34) [001] .....    10.203040: mlx5_fw: ",
            "           <...>-34      [001]    10.203040: mlx5_fw: ",
            "           <...>-34      [001] .....    10203040: mlx5_fw: ",
            // trace-cmd report, perf script.
            "    kworker/u8:1-34    [001]    10.203040: mlx5_fw:              ",
            "kworker/u8:1-wq    34 [001]    10.203040:       mlx5:mlx5_fw: ",
        ] {
            // trace-cmd pads the name.
            let line = format!("{}{body}", prefix.trim_end_matches("             "));
            let line = line.replace("mlx5_fw:0000", "mlx5_fw: 0000");
            let record = read(&line);
            assert_eq!(record.body, TRACE, "{line}");
            assert_eq!(record.device, "0000:01:00.0");
            assert_eq!(record.time.get(), Timestamp53::MAX);
            let origin = record.origin.map(|o| (o.pid, o.cpu));
            let named = prefix.contains("[001]");
            assert_eq!(origin, named.then_some((34, 1)), "{line}");
        }
        let line = "   kworker/u8:1-34   [001] .....    10.203040: mlx5_fw: d [0x1] 0 [0x2] ";
        let origin = read(line).origin.unwrap();
        assert_eq!((origin.task, origin.time), ("kworker/u8:1", "10.203040"));
        assert_eq!(origin.nanoseconds(), Some(10_203_040_000));
    }

    #[test]
    fn gaps() {
        let want = Body::Gap {
            blocks: 17,
            torn: 2,
        };
        for prefix in [
            "",
            "mlx5_fw_gap: ",
            " kworker/u8:1-34 [001] .....    10.203040: mlx5_fw_gap: ",
        ] {
            let line = format!("{prefix}0000:01:00.0 [0xab] gap blocks=17 torn=2");
            assert_eq!(read(&line).body, want);
            assert_eq!(read(&line).body.kind(), Kind::Gap);
        }
        for bad in [
            "gap",
            "gap blocks=17",
            "gap blocks=17 torn=2 more",
            "gap blocks=+1 torn=2",
            "gap blocks= torn=2",
            "gap torn=2 blocks=17",
            "hole blocks=1 torn=2",
        ] {
            let line = format!("mlx5_fw_gap: d [0xab] {bad}");
            assert!(parse(&line).is_err(), "{line}");
        }
    }

    #[test]
    fn texts_are_taken_as_they_are() {
        for (line, want) in [
            ("d [0x1] 0 [0x2] ", ""),
            ("d [0x1] 0 [0x2]", ""),
            ("d [0x1] 0 [0x2]   two more ", "  two more "),
            (
                "d [0x1] 0 [0x2] mlx5_fw: e [0x3] 1 [0x4] no",
                "mlx5_fw: e [0x3] 1 [0x4] no",
            ),
            ("d [0x1] 0 [0x2] ä\u{1b}[31m\r", "ä\u{1b}[31m"),
        ] {
            let record = read(line);
            assert_eq!(record.device, "d");
            assert!(
                matches!(record.body, Body::Trace { text, .. } if text == want),
                "{line}"
            );
        }
    }

    #[test]
    fn kinds() {
        for (text, kind) in [
            ("hello", Kind::Text),
            ("0x0011223344556677", Kind::Raw),
            ("0x001122334455667", Kind::Text),
            ("0x00112233445566778", Kind::Text),
            ("BAD_FORMAT: %s", Kind::BadFormat),
            ("INCOMPLETE: a %x ?", Kind::Incomplete),
        ] {
            let body = Body::Trace {
                lost: false,
                event: 0,
                text,
            };
            assert_eq!(body.kind(), kind, "{text}");
        }
    }

    #[test]
    fn what_is_no_trace() {
        for line in [
            "",
            "  ",
            "# tracer: nop",
            "##### CPU 1 buffer started ####",
            "\r",
        ] {
            assert_eq!(parse(line), Ok(Line::Empty), "{line}");
        }
        for (line, cpu, events) in [
            ("CPU:3 [LOST 17 EVENTS]", Some(3), Some(17)),
            ("CPU:3 [LOST EVENTS]", Some(3), None),
            (
                "# entries-in-buffer/entries-written: 20/50   #P:2",
                None,
                Some(30),
            ),
        ] {
            assert_eq!(parse(line), Ok(Line::Overrun { cpu, events }), "{line}");
        }
        let all = "# entries-in-buffer/entries-written: 50/50   #P:2";
        assert_eq!(parse(all), Ok(Line::Empty));
        let other =
            "   kworker/u8:1-34   [001] .....    10.2: cmd: mlx5_fw: d [0x1] 0 [0x2] forged";
        assert_eq!(parse(other), Ok(Line::Foreign));
    }

    #[test]
    fn errors_name_the_field() {
        for (line, want) in [
            ("hello", "line: `hello`: expected a firmware trace"),
            (
                "d [0x20000000000000] 0 [0x2] t",
                "time: `[0x20000000000000]`: expected [0x<hex>] of at most 53 bits",
            ),
            (
                "d [0xfffffffffffffffff] 0 [0x2] t",
                "time: `[0xfffffffffffffffff]`",
            ),
            ("d [0x+1] 0 [0x2] t", "time: "),
            ("d [12] 0 [0x2] t", "time: "),
            ("d [0x1 0 (0x2) t", "time: "),
            ("d [0x1] 2 [0x2] t", "lost: `2 [0x2] t`: expected 0 or 1"),
            (
                "d [0x1] 0 [0x100] t",
                "event id: `[0x100]`: expected [0x<hex>] of at most 8 bits",
            ),
            ("d [0x1] 0 [0x2]t", "text: `t`: expected a blank"),
            ("mlx5_fw: [0x1] 0 [0x2] t", "line: "),
            ("CPU:x [LOST 1 EVENTS]", "line: "),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.starts_with(want), "{line}: {error}");
        }
        let long = "x".repeat(1000);
        assert!(parse(&long).unwrap_err().to_string().len() < 200);
    }

    proptest! {
        #[test]
        fn nothing_panics(line in "\\PC*", bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&line);
            let _ = parse(&String::from_utf8_lossy(&bytes));
        }

        /// Near to what is right.
        #[test]
        fn nothing_nearly_right_panics(line in "( ?[a-z/:]{0,5}-?[0-9]{0,3} \\[[0-9]{0,3}\\] [.d]{0,5} [0-9]{0,3}\\.?[0-9]{0,3}: )?(mlx5_fw(_gap)?: )?[0-9a-f:.]{0,12} ?\\[?(0x)?[0-9a-f]{0,20}\\]? [012g]?(ap)? ?(\\[0x[0-9a-f]{0,4}\\]|blocks=[0-9]{0,25} torn=[0-9])? ?\\PC{0,8}") {
            if let Ok(Line::Record(record)) = parse(&line) {
                prop_assert!(record.time.get() <= Timestamp53::MAX);
                prop_assert!(!record.device.is_empty());
            }
        }

        /// What is written is read.
        #[test]
        fn round_trip(time in 0..=Timestamp53::MAX, lost: bool, event: u8, text in "[ -~]{0,40}", prefix: bool) {
            let before = if prefix { "  a b-7 [000] d.... 1.5: " } else { "" };
            let line = format!("{before}mlx5_fw: 0000:01:00.0 [{time:#x}] {} [{event:#x}] {text}", u8::from(lost));
            let Ok(Line::Record(record)) = parse(&line) else {
                return Err(TestCaseError::fail(line));
            };
            prop_assert_eq!(record.time.get(), time);
            prop_assert_eq!(record.body, Body::Trace { lost, event, text: &text });
        }
    }
}
