// SPDX-License-Identifier: GPL-2.0

//! `mlx5rs trace` as people call it.
//!
//! `traces/mlx5_core.txt` is the trace of a guest whose mlx5_core reads what the device model writes;
//! docs/trace-tool.md says how it was made.

#![allow(missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, Signal};
use nix::sys::stat::Mode;
use nix::unistd::{mkfifo, Pid};
use proptest::prelude::*;
use regex::Regex;
use serde_json::Value;

struct Answer {
    code: Option<i32>,
    out: String,
    err: String,
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlx5rs"));
    command
        .arg("trace")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn trace(args: &[&str], input: &[u8]) -> Answer {
    let mut child = command(args).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // It may end without reading all.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Answer {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs it; all must be readable.
fn good(args: &[&str], input: &str) -> String {
    let answer = trace(args, input.as_bytes());
    assert_eq!(answer.code, Some(0), "{args:?}: {}", answer.err);
    answer.out
}

fn sample_path() -> String {
    format!("{}/tests/traces/mlx5_core.txt", env!("CARGO_MANIFEST_DIR"))
}

fn sample() -> String {
    fs::read_to_string(sample_path()).unwrap()
}

fn doc(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name)
}

fn objects(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A line of a trace, found another way than the tool does.
#[derive(Clone, Debug, PartialEq)]
struct Plain {
    device: String,
    time: u64,
    lost: bool,
    event: u8,
    text: String,
}

fn plain(lines: &str) -> Vec<Plain> {
    let pattern =
        Regex::new(r"mlx5_fw: (\S+) \[0x([0-9a-f]+)\] ([01]) \[0x([0-9a-f]+)\] (.*)").unwrap();
    let read = |line: &str| {
        let found = pattern.captures(line)?;
        Some(Plain {
            device: found[1].to_owned(),
            time: u64::from_str_radix(&found[2], 16).ok()?,
            lost: &found[3] == "1",
            event: u8::from_str_radix(&found[4], 16).ok()?,
            text: found[5].to_owned(),
        })
    };
    lines.lines().filter_map(read).collect()
}

fn plain_json(text: &str) -> Vec<Plain> {
    let traces = objects(text)
        .into_iter()
        .filter(|object| object["type"] == "trace");
    let read = |object: Value| Plain {
        device: object["device"].as_str().unwrap().to_owned(),
        time: hex(&object["time"]),
        lost: object["lost"].as_bool().unwrap(),
        event: object["event"].as_u64().unwrap() as u8,
        text: object["text"].as_str().unwrap().to_owned(),
    };
    traces.map(read).collect()
}

fn hex(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().strip_prefix("0x").unwrap(), 16).unwrap()
}

const ROUND: u64 = 1 << 53;

/// Traces of two devices: both clocks wrap, one device is not read for a while, and both lose traces.
fn wrapping() -> String {
    let mut lines = String::new();
    for n in 0..60_u64 {
        let device = if n % 3 == 0 {
            "0000:02:00.1"
        } else {
            "0000:01:00.0"
        };
        let time = (ROUND - 3000 + n * 100) % ROUND;
        let prefix = format!(
            "    kworker/u8:1-34      [00{}] .....    10.{:06}: ",
            n % 2,
            n * 10
        );
        let lost = u8::from(n % 11 == 5);
        lines += &format!(
            "{prefix}mlx5_fw: {device} [{time:#x}] {lost} [{:#x}] #{n}\n",
            n % 5
        );
        if n == 31 {
            let time = time + 3;
            lines += &format!("{prefix}mlx5_fw_gap: {device} [{time:#x}] gap blocks=9 torn=2\n");
        }
    }
    lines
}

#[test]
fn sample_is_read() {
    let want = plain(&sample());
    assert!(want.len() > 100 && want.iter().any(|line| line.lost));
    let json = good(&["--json", &sample_path()], "");
    assert_eq!(plain_json(&json), want);
    // One line each, and the counts.
    let text = good(&[&sample_path()], "");
    assert_eq!(text.lines().count(), want.len() + 1);
    let lost = want.iter().filter(|line| line.lost).count();
    let counts = format!("{} traces, {lost} after a loss, 0 gaps\n", want.len());
    assert!(text.ends_with(&counts), "{text}");
    for (line, trace) in text.lines().zip(&want) {
        assert!(line.starts_with(&trace.device), "{line}");
        assert!(line.contains(&format!(" {} ", trace.time)), "{line}");
        assert!(line.ends_with(&trace.text), "{line}");
        assert_eq!(line.contains(" LOST "), trace.lost, "{line}");
    }
    // The driver's debugfs has no prefix; both spellings.
    for name in ["mlx5_fw: ", ""] {
        let lines: String = sample()
            .lines()
            .filter_map(|line| line.split_once("mlx5_fw: "))
            .map(|(_, rest)| format!("{name}{rest}\n"))
            .collect();
        assert_eq!(plain_json(&good(&["--json"], &lines)), want);
    }
}

#[test]
fn what_is_saved_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (first, second) = (path("first"), path("second"));
    for (input, args) in [
        (sample(), &[] as &[&str]),
        (wrapping(), &[]),
        (wrapping(), &["--event=1-3"]),
        (wrapping(), &["--device=02:00.1", "--losses"]),
    ] {
        let mut all = args.to_vec();
        all.extend(["--json", "--save", &first]);
        let wanted = good(&all, &input);
        assert_eq!(
            good(&["--json", "--save", &second, &first], ""),
            wanted,
            "{args:?}"
        );
        let saved = fs::read_to_string(&first).unwrap();
        assert_eq!(saved, fs::read_to_string(&second).unwrap());
        // As they came.
        let lines: BTreeSet<&str> = input.lines().collect();
        assert!(saved.lines().all(|line| lines.contains(line)));
        assert_eq!(saved.lines().count(), wanted.lines().count());
    }
    // Also what is not readable, and what is not UTF-8.
    let input = b"d [0x1] 0 [0x2] a\xff\x1b\r\n# comment\njunk \xfe\nCPU:0 [LOST 7 EVENTS]\n";
    let answer = trace(&["--save", &first], input);
    assert_eq!(answer.code, Some(1), "{}", answer.err);
    assert_eq!(
        fs::read(&first).unwrap(),
        b"d [0x1] 0 [0x2] a\xff\x1b\r\njunk \xfe\nCPU:0 [LOST 7 EVENTS]\n"
    );
    assert!(answer.out.contains("a\\u{fffd}\\u{1b}\n"), "{}", answer.out);
    assert!(
        answer.out.contains("CPU 0 was full: 7 events lost"),
        "{}",
        answer.out
    );
}

#[test]
fn filters() {
    let all = plain(&sample());
    let middle = all[all.len() / 2].time;
    let (from, until) = (format!("--from={middle:#x}"), format!("--until={middle}"));
    type Wants<'a> = Box<dyn Fn(&Plain) -> bool + 'a>;
    let cases: Vec<(Vec<&str>, Wants<'_>)> = vec![
        (
            vec!["--device=01:00.0"],
            Box::new(|t| t.device == "0000:01:00.0"),
        ),
        (vec!["--device=7f:00.0"], Box::new(|_| false)),
        (
            vec!["--event=2,5-0x7"],
            Box::new(|t| t.event == 2 || (5..=7).contains(&t.event)),
        ),
        (
            vec!["--class=string", "--strings=2+3"],
            Box::new(|t| (2..5).contains(&t.event)),
        ),
        (
            vec!["--class=other", "--strings=2+3"],
            Box::new(|t| !(2..5).contains(&t.event)),
        ),
        (
            vec!["--kind=bad-format"],
            Box::new(|t| t.text.starts_with("BAD_FORMAT: ")),
        ),
        (vec!["--text=cmd"], Box::new(|t| t.text.contains("cmd"))),
        (
            vec!["--match=^#[0-9]*[05] "],
            Box::new(|t| {
                let number = t.text.split_once(' ').map_or("", |(number, _)| number);
                number.starts_with('#') && number.ends_with(['0', '5'])
            }),
        ),
        (vec![&from], Box::new(|t| t.time >= middle)),
        (vec![&until], Box::new(|t| t.time <= middle)),
        (vec!["--losses"], Box::new(|t| t.lost)),
        (
            vec!["--losses", "--event=2-8"],
            Box::new(|t| t.lost && (2..=8).contains(&t.event)),
        ),
    ];
    for (mut args, wants) in cases {
        let path = sample_path();
        args.extend(["--json", &path]);
        let want: Vec<Plain> = all.iter().filter(|line| wants(line)).cloned().collect();
        assert_eq!(plain_json(&good(&args, "")), want, "{args:?}");
    }
}

#[test]
fn summary_counts() {
    let all = plain(&wrapping());
    let summary = objects(&good(&["--summary", "--json"], &wrapping())).remove(0);
    assert_eq!(summary["type"], "summary");
    for device in summary["devices"].as_array().unwrap() {
        let own = || {
            all.iter()
                .filter(|t| t.device == device["device"].as_str().unwrap())
        };
        assert_eq!(device["traces"], own().count());
        assert_eq!(device["lost"], own().filter(|t| t.lost).count());
        assert_eq!(hex(&device["first"]), own().next().unwrap().time);
        assert_eq!(hex(&device["last"]), own().next_back().unwrap().time);
        for (event, counts) in device["events"].as_object().unwrap() {
            let event = hex(&Value::from(event.as_str())) as u8;
            let of_event = own().filter(|t| t.event == event);
            assert_eq!(counts["traces"], of_event.count());
        }
    }
    // Numbers 1 to 59 and 0 to 57.
    let text = good(&["--summary", "--khz", "500000"], &wrapping());
    assert!(text.contains(": 5800 ticks, 0.000011600 s\n"), "{text}");
    assert!(text.contains("0000:01:00.0: 40 traces, "), "{text}");
    assert!(text.contains("1 gap (9 blocks, 2 torn)\n"), "{text}");
    let filtered = good(&["--summary", "--event=1"], &wrapping());
    assert!(filtered.contains("\n48 lines not wanted\n"), "{filtered}");
}

/// What a file for Perfetto says.
struct Chrome {
    /// Instants of devices: process, thread, time, event.
    instants: Vec<(String, String, f64, Value)>,
    spans: Vec<(String, String, f64, f64, Value)>,
    overruns: Vec<Value>,
}

/// Reads such a file, and checks what holds for all of them.
fn chrome(args: &[&str], input: &str) -> Chrome {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut all = vec!["--quiet", "--chrome", file.path().to_str().unwrap()];
    all.extend(args);
    trace(&all, input.as_bytes());
    let file: Value = serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap();
    let (mut processes, mut threads) = (BTreeMap::new(), BTreeMap::new());
    let mut read = Chrome {
        instants: Vec::new(),
        spans: Vec::new(),
        overruns: Vec::new(),
    };
    let mut ends: BTreeMap<(u64, u64), f64> = BTreeMap::new();
    let mut earliest = f64::MAX;
    for event in file["traceEvents"].as_array().unwrap() {
        let (pid, tid) = (
            event["pid"].as_u64().unwrap(),
            event["tid"].as_u64().unwrap(),
        );
        let name = || event["args"]["name"].as_str().unwrap().to_owned();
        let time = || event["ts"].as_f64().unwrap();
        let kind = event["ph"].as_str().unwrap();
        if kind == "M" {
            match event["name"].as_str().unwrap() {
                "process_name" => assert_eq!(processes.insert(pid, name()), None),
                "thread_name" => assert_eq!(threads.insert((pid, tid), name()), None),
                other => assert!(other.ends_with("_sort_index"), "{other}"),
            }
            continue;
        }
        // Named before they are used, each once.
        let (process, thread) = (processes[&pid].clone(), threads[&(pid, tid)].clone());
        assert!(time() >= 0.0, "{event}");
        earliest = earliest.min(time());
        match (kind, event["cat"].as_str().unwrap()) {
            ("i", "overrun") => read.overruns.push(event.clone()),
            ("i", _) => read.instants.push((process, thread, time(), event.clone())),
            ("X", _) => {
                let end = time() + event["dur"].as_f64().unwrap();
                // Spans of one thread do not overlap.
                let last = ends.entry((pid, tid)).or_insert(0.0);
                assert!(time() >= *last - 1e-3 && end >= time(), "{event}");
                *last = end;
                read.spans
                    .push((process, thread, time(), end, event.clone()));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(read.instants.is_empty() || earliest == 0.0);
    // No two threads have the same number, in whatever process.
    let tids: BTreeSet<u64> = threads.keys().map(|(_, tid)| *tid).collect();
    assert_eq!(tids.len(), threads.len());
    let names: BTreeSet<&String> = processes.values().collect();
    assert_eq!(names.len(), processes.len());
    read
}

#[test]
fn chrome_has_every_trace_once_and_in_order() {
    for (input, khz) in [(sample(), 1_000_000.0), (wrapping(), 500_000.0)] {
        let traces = plain(&input);
        let read = chrome(&["--khz", &format!("{khz}")], &input);
        assert_eq!(read.instants.len(), traces.len());
        let mut before: BTreeMap<&str, (u64, f64)> = BTreeMap::new();
        for (trace, (process, thread, at, event)) in traces.iter().zip(&read.instants) {
            assert_eq!(process, &trace.device);
            assert_eq!(thread, &format!("event {:#04x}", trace.event));
            assert_eq!(event["name"], trace.text.as_str());
            assert_eq!(hex(&event["args"]["time"]), trace.time);
            assert_eq!(event["args"]["lost"], trace.lost);
            assert_eq!(event["s"], "t");
            // Microseconds; what is before in ticks is before here, also where the clock wraps.
            if let Some((time, then)) = before.insert(&trace.device, (trace.time, *at)) {
                let ticks = (trace.time.wrapping_sub(time) << 11) as i64 >> 11;
                let want = ticks as f64 * 1000.0 / khz;
                assert!(
                    (at - then - want).abs() < 2e-3,
                    "{trace:?}: {at} after {then}"
                );
            }
        }
        let lost = traces.iter().filter(|trace| trace.lost).count();
        let spans = |thread: &str| read.spans.iter().filter(|s| s.1 == thread).count();
        assert_eq!(spans("lost by the device"), lost);
        let gaps = input.matches("mlx5_fw_gap: ").count();
        assert_eq!(spans("not read by the driver"), gaps);
        assert!(read.overruns.is_empty());
    }
}

#[test]
fn chrome_shows_what_was_lost() {
    let lines = "\
        d [0x1ffffffffffff0] 0 [0x2] a\n\
        d [0x10] 1 [0x2] b\n\
        CPU:1 [LOST 3 EVENTS]\n\
        d [0x12] gap blocks=9 torn=2\n\
        d [0x100] 0 [0x40] <c \"\u{e4}\\\n\
        d [0x200] gap blocks=1 torn=0\n";
    let read = chrome(&["--khz=1000000", "--strings=2+1"], lines);
    let spans: Vec<_> = read
        .spans
        .iter()
        .map(|(process, thread, from, to, event)| {
            let range = ((from * 1e3).round() as u64, (to * 1e3).round() as u64);
            (
                process.as_str(),
                thread.as_str(),
                range,
                event["args"].clone(),
            )
        })
        .collect();
    let gap = |blocks: u64, torn: u64| serde_json::json!({"blocks": blocks, "torn": torn});
    assert_eq!(
        spans,
        [
            // From the trace before to the trace itself; a gap to the record behind it.
            ("d", "lost by the device", (0, 0x20), serde_json::json!({})),
            ("d", "not read by the driver", (0x20, 0x110), gap(9, 2)),
            ("d", "not read by the driver", (0x110, 0x210), gap(1, 0)),
        ]
    );
    assert_eq!(read.overruns.len(), 1);
    assert_eq!(read.overruns[0]["args"]["events"], 3);
    let (_, thread, _, last) = read.instants.last().unwrap();
    assert_eq!(thread, "other (event 0x40)");
    assert_eq!(last["name"], "<c \"\u{e4}\\");
    // The lost trace is not wanted, nor is its span.
    let read = chrome(&["--text=a", "--kind=text"], lines);
    assert_eq!((read.instants.len(), read.spans.len()), (1, 0));
}

/// More than what is held back to find the first time.
#[test]
fn chrome_of_many() {
    let lines: String = (0..10_000)
        .map(|n| format!("d [{:#x}] 0 [{:#x}] #{n}\n", 1000 + n * 10, n % 7))
        // The second is older than the first.
        .chain(["d [0x1] 0 [0x2] old\n".to_owned()])
        .collect();
    let read = chrome(&[], &lines);
    assert_eq!(read.instants.len(), 10_001);
    assert_eq!(read.instants[9_999].2, 99.99);
    let answer = trace(&["--quiet", "--chrome=/dev/null"], lines.as_bytes());
    assert!(answer.err.contains("1 traces are older"), "{}", answer.err);
    assert!(
        answer.err.contains("a tick is drawn as a nanosecond"),
        "{}",
        answer.err
    );
}

#[test]
fn wraps_go_on() {
    let text = good(&["--json", "--device=01:00.0"], &wrapping());
    let ticks: Vec<u64> = objects(&text)
        .iter()
        .map(|o| o["ticks"].as_u64().unwrap())
        .collect();
    assert!(ticks
        .windows(2)
        .all(|pair| pair[0] < pair[1] && pair[1] - pair[0] <= 200));
    assert!(ticks[0] < ROUND && ticks[ticks.len() - 1] > ROUND);
    // For people, the time is the device's, and the difference goes on.
    let lines = "d [0x1fffffffffffff] 0 [0x2] a\nd [0x1] 0 [0x2] b\n";
    let text = good(&[], lines);
    let words: Vec<Vec<&str>> = text
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(words[1], ["d", "1", "+2", "0x02", "b"]);
    let text = good(&["--khz=1000"], lines);
    assert!(text.contains(" 0.000001000   +0.000002000 "), "{text}");
}

#[test]
fn svg_is_the_same_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.svg");
    let args = [
        "--quiet",
        "--khz=1000000",
        "--strings=2+14",
        "--svg",
        path.to_str().unwrap(),
    ];
    let draw = |input: &str| {
        good(&args, input);
        fs::read_to_string(&path).unwrap()
    };
    assert_eq!(
        draw(&sample()),
        fs::read_to_string(doc("trace-sample.svg")).unwrap()
    );
    let picture = draw(&wrapping());
    assert_eq!(draw(&wrapping()), picture);
    // A row for each event id of each device; a band for each loss.
    assert_eq!(picture.matches(">string trace ").count(), 2 * 3);
    assert_eq!(
        picture
            .matches("<title>gap: 9 blocks, 2 torn</title>")
            .count(),
        1
    );
    assert_eq!(
        picture.matches("<title>lost</title>").count(),
        wrapping().matches("] 1 [").count()
    );
    let shown: usize = picture.matches("<title>#").count();
    let more = Regex::new(r"\(and (\d+) more\)").unwrap();
    let more = more
        .captures_iter(&picture)
        .map(|found| found[1].parse::<usize>().unwrap());
    assert_eq!(shown + more.sum::<usize>(), 60);
    // Nothing at all, and things that would break it.
    assert!(draw("").ends_with("</svg>\n"));
    let picture = draw("d<[0x1] 0 [0x2] x\n".replace('<', " ").as_str());
    assert!(picture.contains("<title>x</title>"));
    let picture = draw("d [0x1] 0 [0x2] </title><script>&\u{1}\n");
    assert!(picture.contains("<title>&lt;/title&gt;&lt;script&gt;&amp;\\u{1}</title>"));
}

#[test]
fn unreadable_lines_are_counted_and_shown() {
    let lines: String = (0..30).map(|n| format!("junk {n}\n")).collect();
    let answer = trace(&["--summary"], lines.as_bytes());
    assert_eq!(answer.code, Some(1));
    assert!(answer.out.contains("\n30 lines unreadable\n") || answer.out.starts_with("30 lines"));
    assert!(answer
        .err
        .contains("standard input: line 1: line: `junk 0`: expected a firmware trace"));
    assert!(answer.err.contains("line 10: ") && !answer.err.contains("line 11: "));
    assert!(answer
        .err
        .ends_with("standard input: 30 lines are not readable\n"));
    // Longer than any line may be; more devices than there can be.
    let long = format!("d [0x1] 0 [0x2] {}\nd [0x2] 0 [0x2] b", "x".repeat(100_000));
    let answer = trace(&[], long.as_bytes());
    assert_eq!(answer.code, Some(1));
    assert!(
        answer.err.contains("expected at most 65536 bytes"),
        "{}",
        answer.err
    );
    assert!(answer
        .out
        .ends_with("1 trace, 0 after a loss, 0 gaps, 1 unreadable\n"));
    let many: String = (0..5000)
        .map(|n| format!("d{n} [0x1] 0 [0x2] a\n"))
        .collect();
    let answer = trace(&["--summary"], many.as_bytes());
    assert!(answer
        .err
        .contains("device: `d4096`: expected at most 4096 devices"));
    assert!(
        answer.out.contains("\n904 lines unreadable\n"),
        "{}",
        answer.out
    );
}

fn any_line() -> impl Strategy<Value = Vec<u8>> {
    let text = prop_oneof![
        "[ -~]{0,30}",
        "\\PC{0,10}",
        Just("0x0011223344556677".to_owned())
    ];
    let time = prop_oneof![0..200_u64, (ROUND - 200)..ROUND, any::<u64>()];
    let device = prop_oneof![
        Just("0000:01:00.0"),
        Just("0000:02:00.1"),
        Just("mlx5_core.sf.4"),
        Just("?")
    ];
    let prefix = prop_oneof![
        Just(""),
        Just("mlx5_fw: "),
        Just(" kworker/u8:1-34 [001] ..... 10.203040: mlx5_fw: "),
        Just(" kworker/u8:1-34 [001] ..... 10.203040: mlx5_fw_gap: "),
        Just(" kworker/u8:1-34 [001] ..... 10.203040: other: "),
    ];
    let middle = prop_oneof![
        (0..300_u16, 0..3).prop_map(|(id, lost)| format!("{lost} [{id:#x}]")),
        (any::<u64>(), any::<u8>()).prop_map(|(n, torn)| format!("gap blocks={n} torn={torn}")),
    ];
    let near =
        (prefix, device, time, middle, text).prop_map(|(prefix, device, time, middle, text)| {
            format!("{prefix}{device} [{time:#x}] {middle} {text}").into_bytes()
        });
    prop_oneof![
        8 => near.clone(),
        2 => (near, any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut line, at, byte)| {
            let at = at.index(line.len());
            line[at] = byte;
            line
        }),
        1 => (any::<u8>(), any::<u64>()).prop_map(|(cpu, n)| format!("CPU:{cpu} [LOST {n} EVENTS]").into_bytes()),
        1 => proptest::collection::vec(any::<u8>(), 0..100),
        1 => Just(b"# comment".to_vec()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes: nothing crashes, and every line is accounted for.
    #[test]
    fn hostile_lines(lines in proptest::collection::vec(any_line(), 0..80)) {
        let input = lines.join(&b'\n');
        let empty = |line: &&[u8]| {
            let line = String::from_utf8_lossy(line);
            line.trim().is_empty() || line.trim_start().starts_with('#')
        };
        let rows: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
        let empty = rows.iter().filter(|line| empty(line)).count() as u64;
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let answer = trace(
            &["--summary", "--json", "--svg", &path("svg"), "--save", &path("save")],
            &input,
        );
        let summary = objects(&answer.out).remove(0);
        let count = |name: &str| summary[name].as_u64().unwrap();
        let devices = summary["devices"].as_array().unwrap();
        let records: u64 = devices
            .iter()
            .map(|d| d["traces"].as_u64().unwrap() + d["gaps"].as_u64().unwrap())
            .sum();
        let known = records + count("overruns") + count("foreign") + count("unreadable");
        prop_assert_eq!(known + empty, rows.len() as u64, "{}", answer.out);
        prop_assert_eq!(answer.code, Some(i32::from(count("unreadable") != 0)));
        let saved = fs::read(path("save")).unwrap();
        let saved = saved.iter().filter(|byte| **byte == b'\n').count() as u64;
        prop_assert_eq!(saved, known - count("foreign"));
        prop_assert!(fs::read_to_string(path("svg")).unwrap().ends_with("</svg>\n"));
        let json = trace(&["--json"], &input);
        prop_assert_eq!(objects(&json.out).len() as u64, records + count("overruns"));
        let text = String::from_utf8_lossy(&input);
        let read = chrome(&[], &text);
        prop_assert_eq!(read.overruns.len() as u64, count("overruns"));
        let traces: u64 = devices.iter().map(|d| d["traces"].as_u64().unwrap()).sum();
        prop_assert_eq!(read.instants.len() as u64, traces);
    }
}

/// A tool that runs, and what it says line by line.
struct Live {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Live {
    fn start(args: &[&str]) -> Self {
        let mut child = command(args).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// The next line that it writes; it is there without the input's end.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Waits for its end: the rest of its output, and its errors.
    fn end(mut self) -> (ExitStatus, String, String) {
        drop(self.child.stdin.take());
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut err)
            .unwrap();
        (self.child.wait().unwrap(), out, err)
    }
}

const PREFIX: &str = "    kworker/u8:1-34      [001] .....    10.203040: ";

fn line(n: u64) -> String {
    format!(
        "{PREFIX}mlx5_fw: 0000:01:00.0 [{:#x}] 0 [0x2] #{n}\n",
        1000 + n
    )
}

#[test]
fn a_pipe_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (fifo, saved) = (dir.path().join("fifo"), dir.path().join("saved"));
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    let mut live = Live::start(&[fifo.to_str().unwrap(), "--save", saved.to_str().unwrap()]);
    let mut writer = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    for n in 0..3 {
        // In two parts.
        let line = line(n);
        writer.write_all(&line.as_bytes()[..50]).unwrap();
        writer.write_all(&line.as_bytes()[50..]).unwrap();
        assert!(live.line().ends_with(&format!(" 0x02      #{n}\n")));
    }
    // What it has said it has saved too.
    assert_eq!(fs::read_to_string(&saved).unwrap().lines().count(), 3);
    drop(writer);
    let (status, out, err) = live.end();
    assert_eq!(
        (status.code(), out.as_str()),
        (Some(0), "3 traces, 0 after a loss, 0 gaps\n"),
        "{err}"
    );
}

#[test]
fn a_signal_ends_a_pipe_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (fifo, file) = (dir.path().join("fifo"), dir.path().join("chrome"));
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    let mut live = Live::start(&[fifo.to_str().unwrap(), "--chrome", file.to_str().unwrap()]);
    let mut writer = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    writer.write_all(line(1).as_bytes()).unwrap();
    live.line();
    live.signal(Signal::SIGTERM);
    let (status, out, err) = live.end();
    assert_eq!(status.code(), Some(0), "{err}");
    assert!(out.starts_with("1 trace, "), "{out}");
    let file: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert!(file["traceEvents"].as_array().unwrap().len() > 1);
}

/// What is needed of tracefs, as ordinary files. A thread does what the kernel does: it fills an instance
/// that is made, and empties it when it is to go, since an ordinary folder must be empty for that.
struct FakeTracefs {
    dir: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    kernel: Option<std::thread::JoinHandle<()>>,
}

/// What was written to files of an instance before it went.
const KEPT: &str = "kept";

impl FakeTracefs {
    /// `event`: there is a driver that has the events.
    fn new(event: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let instances = dir.path().join("instances");
        fs::create_dir(&instances).unwrap();
        fs::create_dir(dir.path().join(KEPT)).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, kept) = (stop.clone(), dir.path().join(KEPT));
        let kernel = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                for entry in fs::read_dir(&instances).unwrap().flatten() {
                    // It may go at any time.
                    let _ = Self::step(&entry.path(), event, &kept);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Self {
            dir,
            stop,
            kernel: Some(kernel),
        }
    }

    fn step(instance: &Path, event: bool, kept: &Path) -> std::io::Result<()> {
        let enable = |name: &str| instance.join("events/mlx5").join(name).join("enable");
        let done = kept.join("done");
        if !event || done.exists() {
            return Ok(());
        }
        if !enable("mlx5_fw").exists() {
            mkfifo(&instance.join("trace_pipe"), Mode::S_IRWXU)?;
            fs::write(instance.join("buffer_percent"), "50")?;
            fs::write(instance.join("buffer_size_kb"), "7 (expanded: 1408)")?;
            for name in ["mlx5_fw_gap", "mlx5_fw"] {
                let path = enable(name);
                fs::create_dir_all(path.parent().unwrap())?;
                // There at once, with what is in it.
                fs::write(path.with_extension("new"), "none yet")?;
                fs::rename(path.with_extension("new"), path)?;
            }
            return Ok(());
        }
        let state = |name: &str| fs::read_to_string(enable(name));
        if state("mlx5_fw")? == "0" && state("mlx5_fw_gap")? == "0" {
            for name in ["buffer_percent", "buffer_size_kb"] {
                fs::copy(instance.join(name), kept.join(name))?;
                fs::remove_file(instance.join(name))?;
            }
            fs::write(done, "")?;
            fs::remove_file(instance.join("trace_pipe"))?;
            fs::remove_dir_all(instance.join("events"))?;
        }
        Ok(())
    }

    fn path(&self) -> &str {
        self.dir.path().to_str().unwrap()
    }

    fn instances(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir.path().join("instances")).unwrap();
        entries.flatten().map(|entry| entry.path()).collect()
    }

    /// The pipe of the only instance, once its events are on.
    fn pipe(&self) -> fs::File {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            assert!(Instant::now() < deadline, "no instance");
            let on = |path: &PathBuf| {
                let events = path.join("events/mlx5");
                let state = |name: &str| fs::read_to_string(events.join(name).join("enable"));
                let percent = fs::read_to_string(path.join("buffer_percent"));
                state("mlx5_fw").is_ok_and(|state| state == "1")
                    && state("mlx5_fw_gap").is_ok_and(|state| state == "1")
                    && percent.is_ok_and(|percent| percent == "0")
            };
            if let Some(instance) = self.instances().into_iter().find(on) {
                // Writing waits for nobody.
                let pipe = instance.join("trace_pipe");
                return fs::OpenOptions::new()
                    .read(true)
                    .write(true)
                    .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
                    .open(pipe)
                    .unwrap();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for FakeTracefs {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(kernel) = self.kernel.take() {
            drop(kernel.join());
        }
    }
}

#[test]
fn follow_removes_its_instance_at_every_signal() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let tracefs = FakeTracefs::new(true);
        let file = tracefs.dir.path().join("chrome");
        let chrome = file.to_str().unwrap();
        let args = ["--follow", "--wait", "--tracefs", tracefs.path()];
        let mut live = Live::start(&[&args[..], &["--buffer=64", "--chrome", chrome]].concat());
        let mut pipe = tracefs.pipe();
        pipe.write_all(line(1).as_bytes()).unwrap();
        assert!(live.line().ends_with("#1\n"));
        let gap = format!("{PREFIX}mlx5_fw_gap: 0000:01:00.0 [0x500] gap blocks=4 torn=1\n");
        pipe.write_all(gap.as_bytes()).unwrap();
        assert!(live
            .line()
            .ends_with("---- GAP  4 blocks skipped, 1 torn\n"));
        assert_eq!(tracefs.instances().len(), 1);
        live.signal(signal);
        let (status, out, err) = live.end();
        assert_eq!(status.code(), Some(0), "{signal}: {err}");
        assert!(
            out.starts_with("1 trace, 0 after a loss, 1 gap"),
            "{signal}: {out}"
        );
        assert_eq!(tracefs.instances(), [] as [PathBuf; 0], "{signal}: {err}");
        let kept = |name: &str| fs::read_to_string(tracefs.dir.path().join(KEPT).join(name));
        assert_eq!(kept("buffer_size_kb").unwrap(), "64");
        let file: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert!(file["traceEvents"].is_array());
    }
}

/// Lines that are in the buffer when the signal comes are read.
#[test]
fn follow_reads_what_is_left() {
    let tracefs = FakeTracefs::new(true);
    let mut live = Live::start(&["--follow", "--wait", "--tracefs", tracefs.path()]);
    let mut pipe = tracefs.pipe();
    pipe.write_all(line(0).as_bytes()).unwrap();
    live.line();
    // It stands still while the lines and the signal come: which it sees first is its choice.
    live.signal(Signal::SIGSTOP);
    let lines: String = (1..200).map(line).collect();
    pipe.write_all(lines.as_bytes()).unwrap();
    live.signal(Signal::SIGINT);
    live.signal(Signal::SIGCONT);
    let (status, out, err) = live.end();
    assert_eq!(status.code(), Some(0), "{err}");
    assert!(
        out.ends_with("200 traces, 0 after a loss, 0 gaps\n"),
        "{out}"
    );
    assert!(tracefs.instances().is_empty());
}

#[test]
fn follow_removes_its_instance_when_nobody_listens() {
    let tracefs = FakeTracefs::new(true);
    let mut live = Live::start(&["--follow", "--wait", "--tracefs", tracefs.path()]);
    let mut pipe = tracefs.pipe();
    pipe.write_all(line(1).as_bytes()).unwrap();
    live.line();
    let Live { mut child, out } = live;
    drop(out);
    pipe.write_all(line(2).as_bytes()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2));
    assert!(tracefs.instances().is_empty());
}

#[test]
fn follow_without_a_driver() {
    let tracefs = FakeTracefs::new(false);
    let answer = trace(&["--follow", "--tracefs", tracefs.path()], b"");
    assert_eq!(answer.code, Some(2));
    assert!(
        answer.err.contains("mlx5_fw/enable is not there"),
        "{}",
        answer.err
    );
    assert!(
        answer.err.contains("expected a loaded driver"),
        "{}",
        answer.err
    );
    assert!(tracefs.instances().is_empty());
    // Waiting for one can be ended.
    let live = Live::start(&["--follow", "--wait", "--tracefs", tracefs.path()]);
    let deadline = Instant::now() + Duration::from_secs(60);
    while tracefs.instances().is_empty() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(1));
    }
    live.signal(Signal::SIGINT);
    let (status, _, err) = live.end();
    assert_eq!(status.code(), Some(0), "{err}");
    assert!(tracefs.instances().is_empty());
    // No tracefs at all; outputs that cannot be made leave no instance.
    let answer = trace(&["--follow", "--tracefs=/no/such"], b"");
    assert_eq!(answer.code, Some(2));
    assert!(
        answer.err.contains("expected tracefs there"),
        "{}",
        answer.err
    );
    let args = [
        "--follow",
        "--tracefs",
        tracefs.path(),
        "--save=/no/such/file",
    ];
    assert_eq!(trace(&args, b"").code, Some(2));
    assert!(tracefs.instances().is_empty());
}

/// The most memory that a process had, in KiB.
fn peak(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn memory_does_not_grow() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let mut live = Live::start(&["--chrome", &path("c"), "--save", &path("s")]);
    let mut stdin = live.child.stdin.take().unwrap();
    let mut written = 0;
    let mut pass = |live: &mut Live, lines: u64| {
        // Less at a time than pipes hold.
        for _ in 0..lines / 100 {
            let some: String = (written..written + 100).map(line).collect();
            stdin.write_all(some.as_bytes()).unwrap();
            for _ in 0..100 {
                live.line();
            }
            written += 100;
        }
        peak(&live.child)
    };
    let early = pass(&mut live, 10_000);
    let late = pass(&mut live, 50_000);
    assert!(late < early + 1024, "{early} KiB, then {late} KiB");
    drop(stdin);
    let (status, out, _) = live.end();
    assert_eq!(status.code(), Some(0));
    assert!(out.starts_with("60000 traces"), "{out}");
}

/// How mstfwtrace of mstflint 4.31.0 (Debian 13: mstfwtrace/secure_fw_trace.py, SecureFwTrace) reads a
/// line of tracefs's `trace`: it must have "mlx5_fw: " (or "fw_tracer: ") and the address of the device
/// in it, wherever. What is between the first and the second such name, less as many characters as
/// address and blank have, is the event. The event's text up to its first "]" without brackets is a
/// number in base 16: the time. The event is shown if this is greater than any before.
struct Mstfwtrace {
    pattern: Regex,
    device: String,
    latest: u64,
}

impl Mstfwtrace {
    fn new(device: &str) -> Self {
        // Python's int(text, 16) takes a 0x, and blanks around.
        let address = ".".repeat(device.len() + 1);
        let pattern = format!(
            r"^.*?mlx5_fw: (?:{address})(?P<event>\[*\s*(?:0x)?(?P<time>[0-9a-f]+)\s*\].*?)(?:mlx5_fw: .*)?$"
        );
        Self {
            pattern: Regex::new(&pattern).unwrap(),
            device: device.to_owned(),
            latest: 0,
        }
    }

    /// What it prints of a line, if anything. It would end at a line that has a name, and no number.
    fn line(&mut self, line: &str) -> Option<String> {
        if !line.contains("mlx5_fw: ") || !line.contains(&self.device) {
            return None;
        }
        let found = self
            .pattern
            .captures(line)
            .expect("a time where it looks for one");
        let time = u64::from_str_radix(&found["time"], 16).unwrap();
        if time <= self.latest {
            return None;
        }
        self.latest = time;
        Some(found["event"].to_owned())
    }
}

#[test]
fn mstfwtrace_reads_the_same_lines() {
    let device = "0000:01:00.0";
    let event = |t: &Plain| {
        format!(
            "[{:#x}] {} [{:#x}] {}",
            t.time,
            u8::from(t.lost),
            t.event,
            t.text
        )
    };
    let mut tool = Mstfwtrace::new(device);
    let printed: Vec<String> = sample()
        .lines()
        .filter_map(|line| tool.line(line))
        .collect();
    // Each that is later than all before it, as it is in the line.
    let mut latest = 0;
    let mut later = |t: &Plain| {
        let later = t.time > latest;
        latest = latest.max(t.time);
        later
    };
    let want: Vec<String> = plain(&sample())
        .iter()
        .filter(|t| later(t))
        .map(event)
        .collect();
    assert!(want.len() > 100);
    assert_eq!(printed, want);

    // A line of a gap is none for it: it does not stop there, as it would at a line without a time.
    let mut tool = Mstfwtrace::new(device);
    let gap = format!("{PREFIX}mlx5_fw_gap: {device} [0xab] gap blocks=1 torn=0");
    assert_eq!(tool.line(&gap), None);
    // Nor is another device's.
    assert_eq!(tool.line(&line(5).replace(device, "0000:02:00.0")), None);
    assert_eq!(tool.line(line(5).trim_end()).unwrap(), "[0x3ed] 0 [0x2] #5");
    // Where the clock wraps it is blind from then on, and this tool is not.
    let lines = format!(
        "{PREFIX}mlx5_fw: {device} [0x1fffffffffffff] 0 [0x2] a\n{}",
        line(6)
    );
    let printed: Vec<String> = lines.lines().filter_map(|line| tool.line(line)).collect();
    assert_eq!(printed, ["[0x1fffffffffffff] 0 [0x2] a"]);
    assert_eq!(plain_json(&good(&["--json"], &lines)).len(), 2);
}

#[test]
fn bad_input_and_bad_options() {
    let dir = tempfile::tempdir().unwrap();
    let same = dir.path().join("same");
    fs::write(&same, line(1)).unwrap();
    let same = same.to_str().unwrap();
    for (args, part) in [
        (
            &["/no/such/file"] as &[&str],
            "/no/such/file: cannot be read",
        ),
        (&["/"], "/: cannot be read"),
        (&["--event=256"], "`256`: expected a number from 0 to 0xff"),
        (&["--event=9-3"], "first not above last"),
        (&["--class=string"], "--strings"),
        (&["--strings=2"], "such as 2+14"),
        (&["--kind=loud"], "bad-format"),
        (&["--match=("], "unclosed group"),
        (&["--khz=0"], "from 1 to 0xffffffff"),
        (&["--from=0x20000000000000"], "0x1fffffffffffff"),
        (&["--quiet", "--json"], "cannot be used with"),
        (&["--wait"], "--follow"),
        (&["--follow", "x"], "cannot be used with"),
        (
            &["--save=/no/such/file"],
            "/no/such/file: cannot be written",
        ),
        (
            &["--chrome=/dev/full", same],
            "/dev/full: cannot be written",
        ),
        (
            &["--save", same, same],
            "it is the input: expected another file",
        ),
        (&["--svg", same, same], "it is the input"),
    ] {
        let answer = trace(args, b"");
        assert_eq!(
            answer.code,
            Some(2),
            "{args:?}: {}{}",
            answer.out,
            answer.err
        );
        assert!(answer.err.contains(part), "{args:?}: {}", answer.err);
    }
    assert_eq!(fs::read_to_string(same).unwrap(), line(1));
}

#[test]
fn help_says_what_there_is() {
    let help = good(&["--help"], "");
    for part in [
        "--follow",
        "--chrome",
        "--losses",
        "Exit code:",
        "Examples:",
        "ui.perfetto.dev",
    ] {
        assert!(help.contains(part), "{part}: {help}");
    }
}

/// The examples in the documentation are what the tool says.
#[test]
fn documentation_is_real() {
    let text = fs::read_to_string(doc("trace-tool.md")).unwrap();
    let has = |part: &str| assert!(text.contains(&format!("\n{part}")), "not in it:\n{part}");
    let sample = sample_path();
    for args in [
        &["--khz=1000000", "--losses", "--event=4-6"] as &[&str],
        &["--summary", "--khz=1000000", "--strings=2+14"],
        &["--json", "--match=^#2 "],
    ] {
        let shown = args.join(" ").replace("^#2 ", "'^#2 '");
        has(&format!(
            "    $ mlx5rs trace {shown} tools/mlx5rs/tests/traces/mlx5_core.txt\n"
        ));
        let mut all = args.to_vec();
        all.push(&sample);
        // Indented, as code is.
        let output: String = good(&all, "")
            .lines()
            .map(|line| format!("    {line}\n"))
            .collect();
        has(&output);
    }
    assert!(text.contains("](trace-sample.svg)"));
}
