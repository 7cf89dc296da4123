// SPDX-License-Identifier: GPL-2.0
//! Reads KUnit's results, KTAP (Documentation/dev-tools/ktap.rst), out of a
//! kernel log in which other lines stand between.

use regex::Regex;
use std::fmt;
use std::sync::LazyLock;

/// Outcome of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// `ok`.
    Passed,
    /// `not ok`, or no result at all.
    Failed,
    /// `ok ... # SKIP`.
    Skipped,
}

/// One test case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// Its outcome.
    pub outcome: Outcome,
    /// Diagnostic lines printed before its result.
    pub diagnostics: Vec<String>,
}

/// One suite.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Suite {
    /// Its name.
    pub name: String,
    /// Cases with a result.
    pub cases: Vec<Case>,
    /// Cases announced by its plan.
    pub planned: usize,
    /// The suite's own result line was `not ok`.
    pub failed: bool,
    /// There was a result line.
    pub complete: bool,
}

impl Suite {
    /// Cases with this outcome; those without a result have failed.
    pub fn count(&self, outcome: Outcome) -> usize {
        let given = self.cases.iter().filter(|c| c.outcome == outcome).count();
        if outcome == Outcome::Failed {
            let failed = given + self.planned.saturating_sub(self.cases.len());
            // A suite can fail as such, in its init or by ending early.
            failed.max(usize::from(self.failed || !self.complete))
        } else {
            given
        }
    }
}

/// All results of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// In the order of the log.
    pub suites: Vec<Suite>,
    /// Suites announced by top-level plans.
    pub planned: usize,
}

impl Report {
    /// Cases with this outcome over all suites, a suite announced and never
    /// started being one failure.
    pub fn count(&self, outcome: Outcome) -> usize {
        let given: usize = self.suites.iter().map(|suite| suite.count(outcome)).sum();
        if outcome == Outcome::Failed {
            given + self.planned.saturating_sub(self.suites.len())
        } else {
            given
        }
    }

    /// Whether there are results and none of them is a failure.
    pub fn passed(&self) -> bool {
        self.count(Outcome::Failed) == 0 && self.count(Outcome::Passed) > 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for suite in &self.suites {
            let failed = suite.count(Outcome::Failed);
            writeln!(
                f,
                "  {:<6} {:<40} {:>4} passed {:>3} failed {:>3} skipped",
                if failed == 0 { "ok" } else { "FAILED" },
                suite.name,
                suite.count(Outcome::Passed),
                failed,
                suite.count(Outcome::Skipped),
            )?;
            for case in suite.cases.iter().filter(|c| c.outcome == Outcome::Failed) {
                writeln!(f, "         {}", case.name)?;
                for line in &case.diagnostics {
                    writeln!(f, "           {line}")?;
                }
            }
            if !suite.complete {
                writeln!(
                    f,
                    "         ended early: {} of {} cases have a result",
                    suite.cases.len(),
                    suite.planned
                )?;
            }
        }
        if self.suites.len() < self.planned {
            writeln!(
                f,
                "  FAILED only {} of {} suites were started",
                self.suites.len(),
                self.planned
            )?;
        }
        Ok(())
    }
}

static RESULT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^( *)(not )?ok \d+(?: -)?(?: ([^#]*?))?(?: *# *(SKIP|TODO)?.*)?$")
        .expect("the pattern is constant and covered by tests")
});
static PLAN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^( *)1\.\.(\d+)$").expect("the pattern is constant and covered by tests")
});

/// KUnit indents what is inside a suite by four spaces, and what is inside a
/// parameterised case by eight.
const SUITE: usize = 0;
const CASE: usize = 4;

/// Reads the messages of a kernel log, without their time stamps. A message
/// may have several lines.
pub fn parse<'a>(lines: impl IntoIterator<Item = &'a str>) -> Report {
    let mut report = Report::default();
    let mut open = None::<Suite>;
    let mut diagnostics = Vec::new();
    for line in lines.into_iter().flat_map(str::lines) {
        let line = line.trim_end();
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if let Some(name) = text.strip_prefix("# Subtest: ") {
            if indent == CASE {
                report.suites.extend(open.take());
                diagnostics.clear();
                open = Some(Suite {
                    name: name.into(),
                    ..Suite::default()
                });
            }
        } else if let Some(plan) = PLAN.captures(line) {
            let count = plan[2].parse().unwrap_or(0);
            match (plan[1].len(), &mut open) {
                (SUITE, _) => report.planned += count,
                (CASE, Some(suite)) => suite.planned = count,
                _ => {}
            }
        } else if let Some(result) = RESULT.captures(line) {
            let failed = result.get(2).is_some();
            let name = result.get(3).map_or("", |name| name.as_str()).to_owned();
            match (result[1].len(), &mut open) {
                (CASE, Some(suite)) => {
                    let skipped = result.get(4).is_some_and(|word| word.as_str() == "SKIP");
                    suite.cases.push(Case {
                        name,
                        outcome: match (failed, skipped) {
                            (true, _) => Outcome::Failed,
                            (false, true) => Outcome::Skipped,
                            (false, false) => Outcome::Passed,
                        },
                        diagnostics: std::mem::take(&mut diagnostics),
                    });
                }
                (SUITE, _) => {
                    let mut suite = open.take().unwrap_or_default();
                    if suite.name.is_empty() {
                        suite.name = name;
                    }
                    suite.failed = failed;
                    suite.complete = true;
                    report.suites.push(suite);
                }
                _ => {}
            }
        } else if open.is_some()
            && indent >= CASE
            && !text.starts_with("# module: ")
            && !text.starts_with("KTAP version ")
        {
            diagnostics.push(text.trim_start_matches("# ").to_owned());
        }
    }
    report.suites.extend(open);
    report
}

/// Reads what a serial console has shown, with time stamps.
pub fn parse_console(text: &str) -> Report {
    static STAMP: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^\[ *\d+\.\d+\](\[ *[TC]\d+\])? ").expect("a constant that tests cover")
    });
    parse(text.lines().map(|line| match STAMP.find(line) {
        Some(stamp) => &line[stamp.end()..],
        None => line,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOG: &str = "\
random: crng init done
KTAP version 1
1..2
    KTAP version 1
    # Subtest: mlx5_rs_cmdif
    # module: mlx5_rs
    1..3
    ok 1 first
mlx5_rs: a line between
    # second: EXPECTATION FAILED at cmdif/entry.rs:12
    Expected a == b, but
        a == 1 (0x1)
    not ok 2 second
    ok 3 third # SKIP no device
# mlx5_rs_cmdif: pass:1 fail:1 skip:1 total:3
# Totals: pass:1 fail:1 skip:1 total:3
not ok 1 mlx5_rs_cmdif
    KTAP version 1
    # Subtest: mlx5_rs_eq
    # module: mlx5_rs
    1..2
        KTAP version 1
        # Subtest: params
        ok 1 - a
        ok 2 - b
    ok 1 params
    ok 2 last
ok 2 mlx5_rs_eq
";

    #[test]
    fn suites_and_cases() {
        let report = parse(LOG.lines());
        assert_eq!(report.planned, 2);
        assert_eq!(report.suites.len(), 2);
        let first = &report.suites[0];
        assert_eq!(first.name, "mlx5_rs_cmdif");
        assert!(first.failed && first.complete);
        assert_eq!(first.cases[1].outcome, Outcome::Failed);
        let why = &first.cases[1].diagnostics;
        assert_eq!(why.len(), 3);
        assert!(why[0].contains("entry.rs:12"));
        assert_eq!(first.cases[2].outcome, Outcome::Skipped);
        assert_eq!(report.suites[1].cases.len(), 2);
        assert_eq!(report.count(Outcome::Passed), 3);
        assert_eq!(report.count(Outcome::Failed), 1);
        assert_eq!(report.count(Outcome::Skipped), 1);
        assert!(!report.passed());
    }

    #[test]
    fn a_crash_is_a_failure() {
        let cut = LOG.split("    ok 2 last").next().unwrap();
        let report = parse(cut.lines());
        let last = &report.suites[1];
        assert!(!last.complete);
        assert_eq!(last.count(Outcome::Failed), 1);
        assert!(report.to_string().contains("ended early: 1 of 2"));

        let cut = LOG.split("    # Subtest: mlx5_rs_eq").next().unwrap();
        let report = parse(cut.lines());
        assert_eq!(report.count(Outcome::Failed), 2);
        assert!(report.to_string().contains("only 1 of 2 suites"));
    }

    #[test]
    fn nothing_is_not_a_pass() {
        assert!(!parse([]).passed());
        assert!(!parse(["KTAP version 1", "1..0"]).passed());
    }

    #[test]
    fn console_stamps_are_taken_off() {
        let text: String = LOG
            .lines()
            .map(|line| format!("[    1.234567][   T44] {line}\r\n"))
            .collect();
        assert_eq!(parse_console(&text), parse(LOG.lines()));
    }

    #[test]
    fn a_suite_whose_init_fails() {
        let report = parse(["1..1", "    # Subtest: s", "    1..1", "not ok 1 s"]);
        assert_eq!(report.count(Outcome::Failed), 1);
    }

    proptest! {
        #[test]
        fn any_lines(lines in prop::collection::vec("[ #okn.0-9a-z:]{0,20}", 0..40)) {
            let _ = parse(lines.iter().map(String::as_str)).to_string();
        }

        /// Lines of other parts of the kernel do not change the result.
        #[test]
        fn noise_between(noise in prop::collection::vec("[a-z]{3,9}: [a-z ]{1,20}", 1..9)) {
            let mixed: Vec<&str> = LOG.lines()
                .zip(noise.iter().cycle().map(String::as_str))
                .flat_map(|(line, noise)| [line, noise])
                .collect();
            prop_assert_eq!(parse(mixed), parse(LOG.lines()));
        }
    }
}
