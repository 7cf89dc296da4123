// SPDX-License-Identifier: GPL-2.0
//! Child processes of the first process of a system.
//!
//! Pid 1 must reap every orphan, while the status of its own children goes to
//! whoever waits for them. One thread does all the reaping.

use rustix::process::{self, Pid, WaitId, WaitIdOptions, WaitOptions, WaitStatus};
use std::collections::HashMap;
use std::io;
use std::process::{Child, Command};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Own children: `None` while running.
type Table = HashMap<i32, Option<WaitStatus>>;

/// Starts, reaps and remembers children.
#[derive(Default)]
pub struct Children {
    table: Mutex<Table>,
    changed: Condvar,
}

impl Children {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a program. Nothing is reaped meanwhile, so neither its status
    /// nor that of a failed exec, for which `spawn` itself waits, gets lost.
    pub fn spawn(&self, command: &mut Command) -> io::Result<(Child, Pid)> {
        let mut table = self.table();
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        table.insert(pid.as_raw_nonzero().get(), None);
        self.changed.notify_all();
        Ok((child, pid))
    }

    /// Waits for the end of a child started by [`Self::spawn`] and forgets
    /// it; `None` if it still runs after `wait`.
    pub fn wait(&self, pid: Pid, wait: Duration) -> Option<WaitStatus> {
        let deadline = Instant::now() + wait;
        let key = pid.as_raw_nonzero().get();
        let mut table = self.table();
        loop {
            if let Some(Some(status)) = table.get(&key) {
                let status = *status;
                table.remove(&key);
                return Some(status);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            table = self
                .changed
                .wait_timeout(table, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Lets the reaper drop a child's status when it ends.
    pub fn forget(&self, pid: Pid) {
        self.table().remove(&pid.as_raw_nonzero().get());
    }

    /// Reaps for ever.
    pub fn reap(&self) {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        loop {
            match process::waitid(WaitId::All, ended) {
                // No children, hence no descendants that could be orphaned.
                Err(rustix::io::Errno::CHILD) => {
                    let table = self.table();
                    if table.values().all(Option::is_some) {
                        drop(
                            self.changed
                                .wait_timeout(table, Duration::from_secs(1))
                                .unwrap_or_else(PoisonError::into_inner),
                        );
                    }
                }
                Err(_) => {}
                Ok(_) => {
                    let mut table = self.table();
                    while let Ok(Some((pid, status))) = process::wait(WaitOptions::NOHANG) {
                        if let Some(entry) = table.get_mut(&pid.as_raw_nonzero().get()) {
                            *entry = Some(status);
                        }
                    }
                    self.changed.notify_all();
                }
            }
        }
    }
}
