// SPDX-License-Identifier: GPL-2.0
//! Judges kernel log lines.

use regex::{Regex, RegexSet};
use std::fmt;
use std::sync::LazyLock;

/// Anything that a kernel prints when something is wrong. Sources: lib/bug.c,
/// kernel/panic.c, kernel/locking/lockdep.c, mm/kasan/report.c, lib/ubsan.c,
/// mm/kmemleak.c, kernel/dma/debug.c, kernel/hung_task.c, kernel/watchdog.c,
/// kernel/rcu/tree_stall.h, mm/slub.c, lib/debugobjects.c, lib/list_debug.c,
/// lib/refcount.c, kernel/irq/spurious.c, fs/debugfs/inode.c, fs/sysfs/dir.c.
static BAD: LazyLock<RegexSet> = LazyLock::new(|| {
    set(&[
        r"\bWARNING: ",
        r"\bBUG[: ]",
        r"kernel BUG at",
        r"\bOops\b",
        r"general protection fault",
        r"Kernel panic",
        r"^Call Trace:",
        r"\b(KASAN|KFENCE|KCSAN|UBSAN)\b: ",
        r"INFO: (task|rcu|trying to register|possible|HARDIRQ|SOFTIRQ)",
        r"possible (circular|recursive|irq lock|deadlock)",
        r"inconsistent lock state",
        r"suspicious RCU usage",
        r"Invalid wait context",
        r"bad unlock balance|held lock freed|lock held when returning",
        r"-safe -> .*-unsafe lock order",
        r"^unreferenced object 0x",
        r"kmemleak: \d+ new suspected memory leaks",
        r"DMA-API: ",
        r"ODEBUG: ",
        r"(list_add|list_del) corruption",
        r"refcount_t: ",
        r"(soft lockup|hard LOCKUP|workqueue lockup)",
        r"rcu_(preempt|sched) (detected|self-detected) stall",
        r"scheduling while atomic|sleeping function called",
        r"nobody cared",
        r"Trying to free (already-free|nonexistent)",
        r"Objects remaining|still has objects",
        r"page allocation failure",
        r"already present!$|cannot create duplicate filename",
        r"DMAR: (\[|DRHD: handling fault)",
        r"rust_kernel: panicked",
        r"bad page state|Bad page state",
        r"module .* (still in use|unload failed)",
    ])
});

/// What looks like one of [`BAD`] and is not.
static HARMLESS: LazyLock<RegexSet> = LazyLock::new(|| {
    set(&[
        r"DMA-API: (preallocated \d+ debug entries|debugging enabled by kernel config)",
        r"^Spectre V2 : WARNING: ",
    ])
});

fn set(patterns: &[&str]) -> RegexSet {
    RegexSet::new(patterns).expect("the patterns are constants and covered by tests")
}

/// Whether a kernel log line reports a defect.
pub fn is_bad(line: &str) -> bool {
    BAD.is_match(line) && !HARMLESS.is_match(line)
}

/// A defect line that a test provokes, and how often it was seen.
#[derive(Debug)]
struct Expected {
    pattern: Regex,
    seen: usize,
}

/// Collects the defects reported in a log.
#[derive(Debug, Default)]
pub struct Judge {
    expected: Vec<Expected>,
    bad: Vec<String>,
}

impl Judge {
    /// Allows lines that match, which then must be seen at least once.
    ///
    /// # Panics
    ///
    /// If `pattern` is not a regular expression.
    pub fn expect(&mut self, pattern: &str) {
        let pattern = Regex::new(pattern).expect("a pattern in a test is a regular expression");
        self.expected.push(Expected { pattern, seen: 0 });
    }

    /// Looks at one message, which may have several lines.
    pub fn message(&mut self, text: &str) {
        text.lines().for_each(|line| self.line(line));
    }

    fn line(&mut self, line: &str) {
        let mut expected = false;
        for entry in &mut self.expected {
            if entry.pattern.is_match(line) {
                entry.seen += 1;
                expected = true;
            }
        }
        if !expected && is_bad(line) {
            self.bad.push(line.into());
        }
    }

    /// The verdict on all lines so far.
    ///
    /// # Errors
    ///
    /// The defects seen, and the expected ones not seen.
    pub fn verdict(&self) -> Result<(), Defects> {
        let missing: Vec<String> = self
            .expected
            .iter()
            .filter(|entry| entry.seen == 0)
            .map(|entry| entry.pattern.as_str().to_owned())
            .collect();
        if self.bad.is_empty() && missing.is_empty() {
            return Ok(());
        }
        Err(Defects {
            bad: self.bad.clone(),
            missing,
        })
    }
}

/// What is wrong with a log.
#[derive(Debug)]
pub struct Defects {
    /// Lines that report a defect.
    pub bad: Vec<String>,
    /// Patterns of expected lines that were not there.
    pub missing: Vec<String>,
}

impl fmt::Display for Defects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 10;
        let mut separator = "";
        if !self.bad.is_empty() {
            writeln!(f, "{} defect lines in the kernel log:", self.bad.len())?;
            for line in self.bad.iter().take(SHOWN) {
                writeln!(f, "    {line}")?;
            }
            separator = "\n";
        }
        for pattern in &self.missing {
            write!(
                f,
                "{separator}no kernel log line matched {pattern:?}, which was expected"
            )?;
            separator = "\n";
        }
        Ok(())
    }
}

impl std::error::Error for Defects {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defects() {
        for line in [
            "WARNING: drivers/pci/msi/msi.c:123 at pci_free_msi+0x1/0x2, CPU#0: rmmod/123",
            "------------[ cut here ]------------\nWARNING: CPU: 0 PID: 1 at mm/slub.c:1",
            "WARNING: possible circular locking dependency detected",
            "BUG: KASAN: slab-use-after-free in mlx5_rs",
            "BUG kmalloc-64 (Tainted: G O): Poison overwritten",
            "BUG: sleeping function called from invalid context at kernel/locking/mutex.c:1",
            "kernel BUG at lib/list_debug.c:29!",
            "Oops: general protection fault, probably for non-canonical address",
            "Kernel panic - not syncing: Fatal exception",
            "UBSAN: array-index-out-of-bounds in a.c:1:2",
            "INFO: task insmod:44 blocked for more than 60 seconds.",
            "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "unreferenced object 0xffff888003a5b000 (size 64):",
            "kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
            "mlx5_rs 0000:01:00.0: DMA-API: device driver has pending DMA allocations while released from device [count=1]",
            "ODEBUG: free active (active state 0) object: timer_list",
            "refcount_t: underflow; use-after-free.",
            "watchdog: BUG: soft lockup - CPU#1 stuck for 26s!",
            "irq 24: nobody cared (try booting with the \"irqpoll\" option)",
            "Call Trace:",
            "DMAR: [DMA Read NO_PASID] Request device [01:00.0] fault addr 0x1000",
            "debugfs: Directory '0000:01:00.0' with parent 'mlx5_rs' already present!",
        ] {
            assert!(is_bad(line), "{line}");
        }
    }

    #[test]
    fn ordinary_lines() {
        for line in [
            "mlx5_rs 0000:01:00.0: ready: ConnectX-7 [15b3:1021], firmware 28.43.1000",
            "mlx5_rs 0000:01:00.0: bring-up failed at enable: ENABLE_HCA(0x104)",
            "mlx5_rs: loading out-of-tree module taints kernel.",
            "DMA-API: preallocated 65536 debug entries",
            "DMA-API: debugging enabled by kernel config",
            "Spectre V2 : WARNING: Unprivileged eBPF is enabled",
            "pci 0000:01:00.0: BAR 0 [mem 0x0-0x1ffffff 64bit pref]: assigned",
            "debug: BUGGY is not a word",
            "    ok 3 warns_on_nothing",
        ] {
            assert!(!is_bad(line), "{line}");
        }
    }

    #[test]
    fn expected_lines_are_allowed_and_required() {
        let mut judge = Judge::default();
        judge.expect(r"DMA-API: .* pending");
        let defects = judge.verdict().unwrap_err();
        assert_eq!(defects.missing.len(), 1);
        judge.line("DMA-API: device driver has pending DMA allocations");
        assert!(judge.verdict().is_ok());
        judge.line("BUG: something else");
        let text = judge.verdict().unwrap_err().to_string();
        assert!(text.contains("something else"), "{text}");
    }
}
