// SPDX-License-Identifier: GPL-2.0

//! Counters and latency per operation (M2.6), by phase: in the queue for a slot, and with the device.

use core::fmt;

use kernel::{
    fmt as kfmt,
    new_spinlock,
    prelude::*,
    sync::SpinLock,
    time::Delta, //
};

use super::CommandError;
use super::Fault;
use crate::layouts::{
    Opcode,
    Status, //
};

/// What is known of one operation.
#[derive(Clone, Copy, Default)]
struct Operation {
    count: u64,
    failures: u64,
    last_status: u8,
    last_syndrome: u32,
    queue: Latency,
    device: Latency,
}

/// How long one phase took.
#[derive(Clone, Copy, Default)]
struct Latency {
    total_ns: u64,
    max_ns: u64,
}

impl Latency {
    fn add(&mut self, time: Delta) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(0);
        self.total_ns = self.total_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Average over `count`, which is not 0, and maximum, in microseconds.
    fn us(&self, count: u64) -> (u64, u64) {
        (self.total_ns / count / 1000, self.max_ns / 1000)
    }
}

/// How long a command was in each phase of its life.
pub(super) struct Phases {
    /// From its issue to its doorbell.
    pub(super) queue: Delta,
    /// From the doorbell until its thread went on.
    pub(super) device: Delta,
}

/// The table, by index in [`Opcode::ALL`], with one more line for opcodes without a name.
#[pin_data]
pub(crate) struct Stats {
    #[pin]
    operations: SpinLock<KVec<Operation>>,
}

impl Stats {
    pub(super) fn new() -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(|| {
            let table = KVec::from_elem(Operation::default(), Opcode::ALL.len() + 1, GFP_KERNEL)?;
            Ok(try_pin_init!(Self {
                operations <- new_spinlock!(table, "mlx5_rs_command_stats"),
            }? Error))
        })
    }

    /// Counts one command that got as far as the device.
    pub(super) fn record(&self, opcode: Opcode, phases: Phases, result: &Result<(), CommandError>) {
        let index = Opcode::ALL
            .iter()
            .position(|(code, _)| *code == opcode)
            .unwrap_or(Opcode::ALL.len());
        let mut operations = self.operations.lock();
        let Some(op) = operations.get_mut(index) else {
            return;
        };
        op.count += 1;
        op.queue.add(phases.queue);
        op.device.add(phases.device);
        if let Err(error) = result {
            op.failures += 1;
            if let Fault::Status { status, syndrome } = error.fault {
                op.last_status = status.0;
                op.last_syndrome = syndrome;
            }
        }
    }

    /// Prints the operations that were used, one a line.
    pub(crate) fn show(&self, f: &mut kfmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<28} {:>6} {:>10} {:>8} {:>10} {:>10} {:>10} {:>10}  last status, syndrome",
            "operation", "opcode", "count", "failed", "avg_us", "max_us", "queue_avg", "queue_max"
        )?;
        for index in 0..=Opcode::ALL.len() {
            let Some(op) = self.operations.lock().get(index).copied() else {
                break;
            };
            if op.count == 0 {
                continue;
            }
            let (code, name) = Opcode::ALL
                .get(index)
                .map_or((Opcode(0), "(without a name)"), |(code, name)| {
                    (*code, *name)
                });
            let (avg, max) = op.device.us(op.count);
            let (queue_avg, queue_max) = op.queue.us(op.count);
            write!(
                f,
                "{name:<28} {:#06x} {:>10} {:>8} {avg:>10} {max:>10} {queue_avg:>10} {queue_max:>10}",
                code.0, op.count, op.failures,
            )?;
            if op.failures != 0 {
                write!(f, "  {}, {:#x}", Status(op.last_status), op.last_syndrome)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
