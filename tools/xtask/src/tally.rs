// SPDX-License-Identifier: GPL-2.0

//! Counting what passed and failed, over runners that print different summaries.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::AddAssign;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use crate::ui::{human, say};

/// Numbers of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Ended well.
    pub passed: u64,
    /// Failed, timed out, or could not be started.
    pub failed: u64,
    /// Not run.
    pub skipped: u64,
}

impl Tally {
    /// One check that passed.
    pub const PASSED: Self = Self {
        passed: 1,
        failed: 0,
        skipped: 0,
    };
    /// One check that failed.
    pub const FAILED: Self = Self {
        passed: 0,
        failed: 1,
        skipped: 0,
    };

    /// Counts one check, and shows why it failed.
    pub fn of_check(result: Result<()>) -> Self {
        match result {
            Ok(()) => Self::PASSED,
            Err(error) => {
                say(format!("{error:#}"));
                Self::FAILED
            }
        }
    }

    /// Reads the summary line of nextest, `cargo test`, or a plain
    /// `N passed, N failed`; None for any other line.
    pub fn of_line(line: &str) -> Option<Self> {
        let line = strip_colours(line);
        let line = line.trim_end();
        // Only nextest's own line is indented; what else is was printed by a test.
        let counts = if let Some(rest) = line.trim_start().strip_prefix("Summary [") {
            rest.split_once("run:")?.1
        } else if let Some(rest) = line.strip_prefix("test result:") {
            rest.split_once(". ")?.1
        } else {
            // At most one word with a colon may stand before it.
            let rest = match line.split_once(": ") {
                Some((word, rest)) if !word.contains(' ') => rest,
                _ => line,
            };
            if !rest.starts_with(|c: char| c.is_ascii_digit())
                || !rest.contains(" passed, ")
                || !rest.contains(" failed")
            {
                return None;
            }
            rest
        };
        let mut tally = Self::default();
        let mut known = false;
        let words: Vec<&str> = counts
            .split([' ', ',', ';', '(', ')'])
            .filter(|word| !word.is_empty())
            .collect();
        for pair in words.windows(2) {
            let Ok(number) = pair[0].parse::<u64>() else {
                continue;
            };
            match pair[1] {
                "passed" => tally.passed += number,
                // "N exec failed", "N timed out": as bad as a failed assertion.
                "failed" | "timed" | "exec" => tally.failed += number,
                "skipped" | "ignored" => tally.skipped += number,
                _ => continue,
            }
            known = true;
        }
        known.then_some(tally)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped != 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

/// Removes the escape sequences of colours.
fn strip_colours(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            // CSI: up to the first letter.
            for c in chars.by_ref() {
                if c.is_ascii_alphabetic() {
                    break;
                }
            }
        } else {
            out.push(c);
        }
    }
    out
}

fn forward(from: impl Read, mut to: impl Write) -> Tally {
    let mut tally = Tally::default();
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        // A closed terminal is no reason to lose the count.
        let _ = to.write_all(&line).and_then(|()| to.flush());
        if let Some(found) = Tally::of_line(&String::from_utf8_lossy(&line)) {
            tally += found;
        }
        line.clear();
    }
    tally
}

/// Runs a test runner on the terminal and counts what it reports.
///
/// # Errors
///
/// It could not be started. A runner that fails without a failed test (it did not
/// compile, say) counts as one failure.
pub fn run_tests(cmd: Command) -> Result<Tally> {
    run_tests_to(cmd, std::io::stdout(), std::io::stderr())
}

fn run_tests_to(mut cmd: Command, stdout: impl Write, stderr: impl Write + Send) -> Result<Tally> {
    let program = cmd.get_program().to_string_lossy().into_owned();
    let mut child = cmd
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {program}"))?;
    let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
        bail!("{program}: no pipes");
    };
    let mut tally = std::thread::scope(|scope| {
        let errors = scope.spawn(|| forward(err, stderr));
        let mut tally = forward(out, stdout);
        tally += errors.join().expect("the forwarding thread does not panic");
        tally
    });
    let status = child
        .wait()
        .with_context(|| format!("wait for {program}"))?;
    if !status.success() && tally.failed == 0 {
        say(format!(
            "{program} ended with {status} without a failed test: counted as one"
        ));
        tally.failed = 1;
    }
    if status.success() && tally == Tally::default() {
        say(format!(
            "{program} ended well, but reported no test: counted as a failure"
        ));
        tally.failed = 1;
    }
    Ok(tally)
}

/// The stages of a run with their results.
#[derive(Default)]
pub struct Report {
    stages: Vec<(String, Tally, Duration)>,
}

impl Report {
    /// Runs one stage; an error is shown and counts as one failure, and the next
    /// stages run all the same.
    pub fn stage(&mut self, name: impl Into<String>, run: impl FnOnce() -> Result<Tally>) {
        let name = name.into();
        say(format!("=== {name}"));
        let begin = Instant::now();
        let tally = run().unwrap_or_else(|error| {
            say(format!("{name}: {error:#}"));
            Tally::FAILED
        });
        let time = begin.elapsed();
        say(format!("=== {name}: {tally} ({})", human(time)));
        self.stages.push((name, tally, time));
    }

    /// Prints the table and the closing line.
    ///
    /// # Errors
    ///
    /// Something failed, or nothing ran.
    pub fn finish(self) -> Result<()> {
        let mut all = Tally::default();
        for (name, tally, time) in &self.stages {
            println!("  {name:<40} {tally:<32} {:>12}", human(*time));
            all += *tally;
        }
        println!("{all}");
        if all.failed != 0 {
            bail!("{} failed", all.failed);
        }
        if all.passed == 0 {
            bail!("no test ran");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(passed: u64, failed: u64, skipped: u64) -> Option<Tally> {
        Some(Tally {
            passed,
            failed,
            skipped,
        })
    }

    #[test]
    fn summaries() {
        for (line, expected) in [
            ("     Summary [   0.123s] 4 tests run: 4 passed, 1 skipped", tally(4, 0, 1)),
            (
                "     Summary [  12.3s] 9/10 tests run: 5 passed (2 slow), 2 failed, 1 timed out, 1 exec failed, 0 skipped",
                tally(5, 4, 0),
            ),
            (
                "\u{1b}[32;1m     Summary\u{1b}[0m [   0.004s] \u{1b}[1m1\u{1b}[0m test run: \u{1b}[1m1\u{1b}[0m \u{1b}[32;1mpassed\u{1b}[0m, 0 skipped",
                tally(1, 0, 0),
            ),
            (
                "test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s",
                tally(3, 1, 2),
            ),
            ("kunit: 12 passed, 0 failed, 1 skipped", tally(12, 0, 1)),
            ("12 passed, 3 failed", tally(12, 3, 0)),
            ("  Compiling x v0.1", None),
            ("he said: 1 passed, 2 failed is what we want", None),
            ("test a::b ... ok", None),
            ("    test result: FAILED. 0 passed; 1 failed; 0 ignored", None),
            ("    12 passed, 3 failed", None),
        ] {
            assert_eq!(Tally::of_line(line), expected, "{line}");
        }
    }

    #[test]
    fn closing_line() {
        let tally = Tally {
            passed: 3,
            failed: 0,
            skipped: 0,
        };
        assert_eq!(tally.to_string(), "3 passed, 0 failed");
    }

    fn shell(script: &str) -> Tally {
        let mut cmd = Command::new("sh");
        cmd.args(["-c", script]);
        // Not on the terminal: whoever runs this test counts such lines too.
        run_tests_to(cmd, std::io::sink(), std::io::sink()).unwrap()
    }

    #[test]
    fn runners() {
        assert_eq!(shell("echo 2 passed, 0 failed"), tally(2, 0, 0).unwrap());
        assert_eq!(
            shell("echo 2 passed, 1 failed >&2; exit 1"),
            tally(2, 1, 0).unwrap()
        );
        assert_eq!(shell("echo error; exit 101"), Tally::FAILED);
        assert_eq!(shell("true"), Tally::FAILED);
    }

    #[test]
    fn report_fails_as_a_whole() {
        let mut report = Report::default();
        report.stage("a", || Ok(Tally::PASSED));
        report.stage("b", || bail!("broken"));
        assert!(report.finish().is_err());
        assert!(Report::default().finish().is_err());
    }
}
