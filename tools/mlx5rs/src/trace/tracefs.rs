// SPDX-License-Identifier: GPL-2.0

//! An instance of tracefs of one's own: nobody else's trace is touched, and nothing is left behind.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::source::Signals;

/// The events; the second one is mlx5_rs's alone.
const EVENTS: [&str; 2] = ["events/mlx5/mlx5_fw", "events/mlx5/mlx5_fw_gap"];

/// How often the event is looked for.
const LOOK_MS: u16 = 50;

/// An instance that somebody still uses is tried to be removed so often, every [`LOOK_MS`].
const REMOVALS: u32 = 100;

/// What cannot be done with tracefs.
#[derive(Debug)]
pub struct Error {
    what: String,
    error: io::Error,
    hint: &'static str,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}{}", self.what, self.error, self.hint)
    }
}

fn failed(path: &Path, what: &str, hint: &'static str) -> impl FnOnce(io::Error) -> Error {
    let what = format!("{} {what}", path.display());
    move |error| Error { what, error, hint }
}

/// An instance; it is removed at the end, also if something fails.
#[derive(Debug)]
pub struct Instance<'a> {
    path: PathBuf,
    signals: &'a Signals,
    removed: bool,
}

impl<'a> Instance<'a> {
    /// Makes one below `tracefs`.
    pub fn create(tracefs: &Path, signals: &'a Signals) -> Result<Self, Error> {
        let parent = tracefs.join("instances");
        // Somebody with the same number may have been killed.
        for n in 0..100 {
            let path = parent.join(format!("mlx5rs-{}-{n}", std::process::id()));
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                result => {
                    let hint = "; expected tracefs there, and the right to use it (root)";
                    result.map_err(failed(&path, "cannot be made", hint))?;
                    return Ok(Self {
                        path,
                        signals,
                        removed: false,
                    });
                }
            }
        }
        let error = io::ErrorKind::AlreadyExists.into();
        Err(failed(&parent, "has 100 instances of this process", "")(
            error,
        ))
    }

    /// Switches the events on, with buffers of so many KiB for each CPU. With `wait`, waits for a driver
    /// that has them; whether it is there now, or a signal came.
    pub fn enable(&self, wait: bool, kib: Option<u32>) -> Result<bool, Error> {
        let [traces, gaps] = EVENTS.map(|event| self.path.join(event).join("enable"));
        while !traces.exists() {
            if !wait {
                let hint =
                    "; expected a loaded driver with this event: mlx5_core or mlx5_rs (or --wait)";
                let error = io::ErrorKind::NotFound.into();
                return Err(failed(&traces, "is not there", hint)(error));
            }
            let signal = self.signals.wait(LOOK_MS);
            if signal.map_err(failed(&self.path, "cannot be waited for", ""))? {
                return Ok(false);
            }
        }
        if let Some(kib) = kib {
            self.set(&self.path.join("buffer_size_kb"), &kib.to_string())?;
        }
        self.set(&traces, "1")?;
        if gaps.exists() {
            self.set(&gaps, "1")?;
        }
        // Readers are woken by the first event, not when the buffer is half full.
        let percent = self.path.join("buffer_percent");
        if percent.exists() {
            self.set(&percent, "0")?;
        }
        Ok(true)
    }

    fn set(&self, path: &Path, value: &str) -> Result<(), Error> {
        let what = format!("cannot be set to {value}");
        fs::write(path, value).map_err(failed(path, &what, ""))
    }

    /// What is to be read.
    pub fn pipe(&self) -> PathBuf {
        self.path.join("trace_pipe")
    }

    /// Switches the events off; what has been traced can still be read.
    pub fn disable(&self) -> Result<(), Error> {
        for event in EVENTS {
            let path = self.path.join(event).join("enable");
            if path.exists() {
                self.set(&path, "0")?;
            }
        }
        Ok(())
    }

    /// Removes it; nothing may be open in it.
    pub fn remove(mut self) -> Result<(), Error> {
        self.try_remove()
    }

    fn try_remove(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.removed, true) {
            return Ok(());
        }
        // They go with the instance anyway.
        let _ = self.disable();
        let mut result = fs::remove_dir(&self.path);
        for _ in 0..REMOVALS {
            match &result {
                // Somebody reads it too.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ResourceBusy | io::ErrorKind::DirectoryNotEmpty
                    ) => {}
                _ => break,
            }
            std::thread::sleep(std::time::Duration::from_millis(LOOK_MS.into()));
            result = fs::remove_dir(&self.path);
        }
        let hint = "; rmdir it when nobody reads it";
        result.map_err(failed(&self.path, "cannot be removed", hint))
    }
}

impl Drop for Instance<'_> {
    fn drop(&mut self) {
        // There is another error to speak of.
        let _ = self.try_remove();
    }
}
