// SPDX-License-Identifier: GPL-2.0

//! Counters and latency per operation (M2.6).

use core::fmt;

use kernel::{
    fmt as kfmt,
    new_spinlock,
    prelude::*,
    sync::SpinLock, //
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
    total_ns: u64,
    max_ns: u64,
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

    /// Counts one command that took `ns` nanoseconds from doorbell to reply.
    pub(super) fn record(&self, opcode: Opcode, ns: u64, result: &Result<(), CommandError>) {
        let index = Opcode::ALL
            .iter()
            .position(|(code, _)| *code == opcode)
            .unwrap_or(Opcode::ALL.len());
        let mut operations = self.operations.lock();
        let Some(op) = operations.get_mut(index) else {
            return;
        };
        op.count += 1;
        op.total_ns = op.total_ns.saturating_add(ns);
        op.max_ns = op.max_ns.max(ns);
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
            "{:<28} {:>6} {:>10} {:>8} {:>10} {:>10}  last status, syndrome",
            "operation", "opcode", "count", "failed", "avg_us", "max_us"
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
            write!(
                f,
                "{name:<28} {:#06x} {:>10} {:>8} {:>10} {:>10}",
                code.0,
                op.count,
                op.failures,
                op.total_ns / op.count / 1000,
                op.max_ns / 1000,
            )?;
            if op.failures != 0 {
                write!(f, "  {}, {:#x}", Status(op.last_status), op.last_syndrome)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
