// SPDX-License-Identifier: GPL-2.0

//! Which traces are wanted.

use std::ops::RangeInclusive;

use mlx5_pure::tracer::timestamp::Timestamp53;
use regex::Regex;

use super::line::{Body, Kind, Record};
use crate::caps::number;

/// Event ids of string traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strings {
    first: u8,
    count: u8,
}

impl Strings {
    /// The number of the string trace with this event id, from 0 on.
    pub fn index(self, event: u8) -> Option<u8> {
        let index = event.checked_sub(self.first)?;
        (index < self.count).then_some(index)
    }

    /// Reads `FIRST+COUNT`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (first, count) = text
            .split_once('+')
            .ok_or("expected <first_string_trace>+<num_string_trace> of MTRC_CAP, such as 2+14")?;
        Ok(Self {
            first: byte(first)?,
            count: byte(count)?,
        })
    }
}

fn byte(text: &str) -> Result<u8, String> {
    // At most 8 bits.
    number(text, u8::MAX.into()).map(|number| number as u8)
}

/// Reads an event id, or the first and the last one of a range.
pub fn events(text: &str) -> Result<RangeInclusive<u8>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (byte(first)?, byte(last)?);
    if first > last {
        return Err(format!(
            "`{text}`: expected <first>-<last>, first not above last"
        ));
    }
    Ok(first..=last)
}

/// Reads a time in ticks.
pub fn time(text: &str) -> Result<Timestamp53, String> {
    number(text, Timestamp53::MAX).map(Timestamp53::new)
}

/// Reads the name of a device; the domain 0000 may be left out.
pub fn device(text: &str) -> Result<String, String> {
    let is_short = text.len() == 7
        && text.bytes().enumerate().all(|(at, byte)| match at {
            2 => byte == b':',
            5 => byte == b'.',
            _ => byte.is_ascii_hexdigit(),
        });
    if is_short {
        return Ok(format!("0000:{text}"));
    }
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err(format!(
            "`{text}`: expected <domain>:<bus>:<device>.<function>"
        ));
    }
    Ok(text.to_owned())
}

/// Whether events are those of string traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Class {
    /// They are.
    String,
    /// They are others.
    Other,
}

/// What is wanted of a trace; each of these must hold.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(
    next_help_heading = "Filters (a trace must pass each kind; within a kind, one is enough)"
)]
pub struct Filter {
    /// Only this device (DOMAIN:BUS:DEVICE.FUNCTION); may be given several times.
    #[arg(long, value_parser = device, value_name = "DEVICE")]
    device: Vec<String>,

    /// Only these event ids, such as 2 or 0x10-0x1f; several with commas.
    #[arg(long, value_parser = events, value_name = "IDS", value_delimiter = ',')]
    event: Vec<RangeInclusive<u8>>,

    /// Only event ids of string traces, or only others; the device says which these are (--strings).
    #[arg(long, value_enum, requires = "strings")]
    class: Option<Class>,

    /// Only these kinds; several with commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    kind: Vec<Kind>,

    /// Only texts that have this in them.
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,

    /// Only texts that match this regular expression.
    #[arg(long = "match", value_name = "REGEX")]
    pattern: Option<Regex>,

    /// Only from this time of the device on, in ticks. Times run in a circle: without --until, half a
    /// round.
    #[arg(long, value_parser = time, value_name = "TIME")]
    from: Option<Timestamp53>,

    /// Only up to this time of the device, in ticks.
    #[arg(long, value_parser = time, value_name = "TIME")]
    until: Option<Timestamp53>,

    /// Only where something is missing: traces with the lost bit, gaps, overruns of the kernel's buffer.
    #[arg(long)]
    losses: bool,
}

impl Filter {
    /// Whether a record is wanted.
    ///
    /// A gap has neither event id nor text; it is no trace that could have them, but one that is missing
    /// may have: filters of these let it pass.
    pub fn wants(&self, record: &Record<'_>, strings: Option<Strings>) -> bool {
        let kind = record.body.kind();
        let here = (self.device.is_empty() || self.device.iter().any(|d| d == record.device))
            && (self.kind.is_empty() || self.kind.contains(&kind))
            && self.wants_time(record.time)
            && (!self.losses || record.body.is_loss());
        let Body::Trace { event, text, .. } = record.body else {
            return here;
        };
        let class = |class| {
            let is_string = strings.is_some_and(|strings| strings.index(event).is_some());
            is_string == (class == Class::String)
        };
        here && (self.event.is_empty() || self.event.iter().any(|ids| ids.contains(&event)))
            && self.class.is_none_or(class)
            && self.text.as_ref().is_none_or(|part| text.contains(part))
            && self
                .pattern
                .as_ref()
                .is_none_or(|pattern| pattern.is_match(text))
    }

    fn wants_time(&self, time: Timestamp53) -> bool {
        match (self.from, self.until) {
            (Some(from), Some(until)) => time.since(from) <= until.since(from),
            (Some(from), None) => time.offset_from(from) >= 0,
            (None, Some(until)) => time.offset_from(until) <= 0,
            (None, None) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::line::{parse, Line};
    use clap::Parser;

    #[derive(Parser)]
    struct Args {
        #[command(flatten)]
        filter: Filter,
        #[arg(long, value_parser = Strings::parse)]
        strings: Option<Strings>,
    }

    fn passes(args: &str, line: &str) -> bool {
        let all = std::iter::once("x").chain(args.split_whitespace());
        let args = Args::try_parse_from(all).unwrap();
        let Ok(Line::Record(record)) = parse(line) else {
            panic!("{line}");
        };
        args.filter.wants(&record, args.strings)
    }

    #[test]
    fn each_filter_decides() {
        let line = "0000:01:00.0 [0x100] 1 [0x12] INCOMPLETE: cmd 0x5";
        for (yes, no) in [
            ("--device=0000:01:00.0", "--device=0000:01:00.1"),
            ("--device=01:00.0", "--device=02:00.0"),
            ("--device=02:00.0 --device=01:00.0", "--device=1"),
            ("--event=0x12", "--event=12"),
            ("--event=1,3-0x12", "--event=0x13-255,0-0x11"),
            (
                "--class=string --strings=2+17",
                "--class=other --strings=2+17",
            ),
            (
                "--class=other --strings=2+16",
                "--class=string --strings=2+16",
            ),
            ("--kind=gap,incomplete", "--kind=text,raw,bad-format,gap"),
            ("--text=cmd", "--text=Cmd"),
            ("--match=^INC.*5$", "--match=^cmd"),
            ("--from=0x100", "--from=0x101"),
            ("--until=256", "--until=255"),
            (
                "--from=0x1fffffffffffff --until=0x100",
                "--from=0x101 --until=0xff",
            ),
            ("--losses", "--losses --text=none"),
        ] {
            assert!(passes(yes, line), "{yes}");
            assert!(!passes(no, line), "{no}");
        }
        assert!(!passes("--losses", "0000:01:00.0 [0x100] 0 [0x12] t"));
    }

    #[test]
    fn gaps_pass_what_their_traces_could_have_passed() {
        let gap = "0000:01:00.0 [0x100] gap blocks=1 torn=0";
        for args in [
            "",
            "--event=1 --text=no",
            "--losses",
            "--class=other --strings=1+2",
        ] {
            assert!(passes(args, gap), "{args}");
        }
        for args in ["--kind=text", "--device=02:00.0", "--from=0x101"] {
            assert!(!passes(args, gap), "{args}");
        }
    }

    #[test]
    fn times_run_in_a_circle() {
        let late = "d [0x1ffffffffffff0] 0 [0x2] t";
        let early = "d [0x10] 0 [0x2] t";
        for line in [late, early] {
            assert!(passes("--from=0x1ffffffffffff0 --until=0x10", line));
        }
        assert!(passes("--from=0x1ffffffffffff1", early));
        assert!(!passes("--from=0x11", early));
        assert!(!passes("--until=0x1fffffffffffef", early));
    }

    #[test]
    fn bad_values() {
        for (result, part) in [
            (events("7-3").map(|_| ()), "first not above last"),
            (events("256").map(|_| ()), "from 0 to 0xff"),
            (events("").map(|_| ()), "expected a number"),
            (time("0x20000000000000").map(|_| ()), "0x1fffffffffffff"),
            (Strings::parse("2").map(|_| ()), "2+14"),
            (device("a b").map(|_| ()), "<domain>"),
        ] {
            assert!(result.unwrap_err().contains(part), "{part}");
        }
    }
}
