// SPDX-License-Identifier: GPL-2.0

//! What the person in front of the terminal sees: progress lines, and the tail
//! of a log when a step fails.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

/// How often a step that is still running says so.
const STILL_RUNNING: Duration = Duration::from_secs(30);

/// Lines of a log that are shown when its step failed.
const TAIL_LINES: usize = 40;

/// Texts that are never shown (the address of a private mirror).
static HIDDEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Hides `text` in everything that is printed from a log.
pub fn hide(text: &str) {
    if !text.is_empty() {
        HIDDEN
            .lock()
            .expect("no panic while held")
            .push(text.to_owned());
    }
}

fn redact(line: &str) -> String {
    HIDDEN
        .lock()
        .expect("no panic while held")
        .iter()
        .fold(line.to_owned(), |line, text| line.replace(text, "<mirror>"))
}

/// Prints one progress line on stderr, so that stdout stays for results.
pub fn say(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr().lock(), "[mlx5_rs] {}", text.as_ref());
}

/// A duration the way people read it: `47 s`, `3 min 20 s`.
pub fn human(time: Duration) -> String {
    let secs = time.as_secs_f64().round() as u64;
    match secs {
        0..=119 => format!("{secs} s"),
        _ => format!("{} min {:02} s", secs / 60, secs % 60),
    }
}

/// A long-running command whose output goes to a log file.
pub struct Step<'a> {
    /// What is done, for the progress line ("test kernel: make bzImage modules").
    pub what: &'a str,
    /// How long it takes on two idle cores.
    pub usual: Duration,
    /// Output goes (appended) to this file.
    pub log: &'a Path,
    /// What to do when it fails.
    pub hint: &'a str,
}

impl Step<'_> {
    /// Runs `cmd` without standard input and waits for it.
    ///
    /// # Errors
    ///
    /// The command could not be started or ended unsuccessfully; the tail of the
    /// log was printed then.
    pub fn run(&self, mut cmd: Command) -> Result<()> {
        if let Some(dir) = self.log.parent() {
            fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        }
        let mut log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log)
            .with_context(|| format!("open the log {}", self.log.display()))?;
        writeln!(log, "### {}\n### {}", self.what, command_line(&cmd))?;
        say(format!("{} (usually {})", self.what, human(self.usual)));
        let begin = Instant::now();
        let child = cmd
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {}", cmd.get_program().to_string_lossy()))?;
        let status = self.wait(child, begin)?;
        if !status.success() {
            tail(self.log);
            bail!(
                "{} failed ({status}) after {}; whole log: {}\n  what to do: {}",
                self.what,
                human(begin.elapsed()),
                self.log.display(),
                self.hint
            );
        }
        say(format!("{}: done in {}", self.what, human(begin.elapsed())));
        Ok(())
    }

    fn wait(&self, mut child: std::process::Child, begin: Instant) -> Result<ExitStatus> {
        let (tx, rx) = mpsc::channel();
        let waiter = std::thread::spawn(move || {
            let status = child.wait();
            // The receiver lives until the status arrived.
            let _ = tx.send(());
            status
        });
        while let Err(RecvTimeoutError::Timeout) = rx.recv_timeout(STILL_RUNNING) {
            say(format!(
                "{}: running for {}, log {}",
                self.what,
                human(begin.elapsed()),
                self.log.display()
            ));
        }
        let status = waiter.join().expect("the waiting thread does not panic");
        status.with_context(|| format!("wait for {}", self.what))
    }
}

/// Program and arguments, without the environment.
fn command_line(cmd: &Command) -> String {
    std::iter::once(cmd.get_program())
        .chain(cmd.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

fn tail(log: &Path) {
    let Ok(file) = File::open(log) else { return };
    let mut lines = std::collections::VecDeque::with_capacity(TAIL_LINES);
    for line in BufReader::new(file).split(b'\n').map_while(Result::ok) {
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
    say(format!("last lines of {}:", log.display()));
    let mut err = std::io::stderr().lock();
    for line in lines {
        let _ = writeln!(err, "    {}", redact(&String::from_utf8_lossy(&line)));
    }
}

/// Runs a short command and returns its standard output.
///
/// # Errors
///
/// It could not be started, failed (its standard error is in the message), or
/// did not print UTF-8.
pub fn output(cmd: &mut Command) -> Result<String> {
    let out = cmd
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {}", cmd.get_program().to_string_lossy()))?;
    if !out.status.success() {
        bail!(
            "{} failed ({}): {}",
            cmd.get_program().to_string_lossy(),
            out.status,
            redact(String::from_utf8_lossy(&out.stderr).trim())
        );
    }
    String::from_utf8(out.stdout)
        .with_context(|| format!("output of {}", cmd.get_program().to_string_lossy()))
}

/// Runs a command on the terminal (its output is the result).
///
/// # Errors
///
/// It could not be started or ended unsuccessfully.
pub fn foreground(cmd: &mut Command) -> Result<()> {
    let status = cmd
        .status()
        .with_context(|| format!("start {}", cmd.get_program().to_string_lossy()))?;
    if !status.success() {
        bail!(
            "{} ended with {status}",
            cmd.get_program().to_string_lossy()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(human(Duration::from_millis(400)), "0 s");
        assert_eq!(human(Duration::from_secs(119)), "119 s");
        assert_eq!(human(Duration::from_secs(185)), "3 min 05 s");
    }

    #[test]
    fn failure_names_log_and_hint() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("x.log");
        let step = Step {
            what: "a step",
            usual: Duration::from_secs(1),
            log: &log,
            hint: "look here",
        };
        let mut cmd = Command::new("sh");
        cmd.args(["-c", "echo out; echo err >&2; exit 3"]);
        let message = step.run(cmd).unwrap_err().to_string();
        assert!(
            message.contains("a step failed") && message.contains("look here"),
            "{message}"
        );
        let log = fs::read_to_string(&log).unwrap();
        assert!(log.contains("out\n") && log.contains("err\n"), "{log}");
    }

    #[test]
    fn private_addresses_are_hidden() {
        hide("mirror.example.test");
        assert_eq!(
            redact("E: http://mirror.example.test/x"),
            "E: http://<mirror>/x"
        );
    }
}
