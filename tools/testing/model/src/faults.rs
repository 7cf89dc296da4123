// SPDX-License-Identifier: GPL-2.0

//! Misbehaviour on request: which command fails, how, and how often.

use std::time::Duration;

use crate::cmdif::status::Delivery;
use crate::cmdif::status::Status;
use crate::control::types;
use crate::health::Fatal;
use crate::ifc;
use crate::link::Outage;

/// Bytes put over the output of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    at: u16,
    len: u8,
    data: [u8; Patch::MAX],
}

impl Patch {
    /// Most bytes of a patch.
    pub const MAX: usize = 16;

    /// `data` at offset `at`; `None` if it is longer than [`Patch::MAX`].
    pub fn new(at: u16, data: &[u8]) -> Option<Self> {
        let mut all = [0; Self::MAX];
        all.get_mut(..data.len())?.copy_from_slice(data);
        Some(Self {
            at,
            len: data.len() as u8,
            data: all,
        })
    }

    /// Changes `output`; what is beyond its end is ignored.
    pub fn apply(&self, output: &mut [u8]) {
        let place = output.get_mut(self.at.into()..).unwrap_or_default();
        for (byte, new) in place.iter_mut().zip(&self.data[..self.len.into()]) {
            *byte = *new;
        }
    }
}

/// What is done to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Not executed; this status and syndrome.
    Status(Status, u32),
    /// Not executed, not answered, until faults are cleared.
    Never,
    /// The same, and the health counter stops at that moment.
    Stall,
    /// Executed at once, answered after a time.
    Late(Duration),
    /// Executed and answered after a time.
    Delay(Duration),
    /// Executed and answered, and answered again after a time.
    Twice(Duration),
    /// Executed and answered at `release`.
    Hold,
    /// Completion event missing.
    DropEvent,
    /// Completion event written twice.
    DupEvent,
    /// Completion event without interrupt.
    DropIrq,
    /// Two interrupts.
    DupIrq,
    /// Answered with another token.
    BadToken,
    /// Not executed; this delivery status.
    Delivery(Delivery),
    /// Executed, output after status and syndrome replaced by noise.
    Garbage,
    /// Executed, some bytes of the output replaced.
    Patch(Patch),
    /// Not executed; OK, but the state of TEARDOWN_HCA says that it failed.
    TeardownFailed,
    /// The device falls silent before it executes.
    Ones(Outage),
    /// The device is gone before it executes.
    Vanish,
    /// Firmware dies before it executes.
    Fatal(Fatal),
    /// The function resets by itself, and is initializing for a time.
    Reset(Duration),
}

impl Action {
    /// Name on the control socket.
    pub fn name(self) -> &'static str {
        match self {
            Action::Status(..) => "status",
            Action::Never => "never",
            Action::Stall => "stall",
            Action::Late(_) => "late",
            Action::Delay(_) => "delay",
            Action::Twice(_) => "twice",
            Action::Hold => "hold",
            Action::DropEvent => "drop_event",
            Action::DupEvent => "dup_event",
            Action::DropIrq => "drop_irq",
            Action::DupIrq => "dup_irq",
            Action::BadToken => "bad_token",
            Action::Delivery(_) => "delivery",
            Action::Garbage => "garbage",
            Action::Patch(_) => "patch",
            Action::TeardownFailed => "teardown_state_failed",
            Action::Ones(_) => "ones",
            Action::Vanish => "vanish",
            Action::Fatal(_) => "fatal",
            Action::Reset(_) => "reset",
        }
    }
}

/// A fault and where it strikes.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Opcode; `None` is any.
    pub opcode: Option<u16>,
    /// op_mod; `None` is any.
    pub op_mod: Option<u16>,
    /// Register of ACCESS_REG; `None` is any.
    pub register: Option<u16>,
    /// Matching commands that still pass.
    pub skip: u64,
    /// Matching commands that are still hit; `None` is no limit.
    pub left: Option<u64>,
    /// What happens.
    pub action: Action,
    /// Commands hit so far.
    pub hits: u64,
}

/// All faults that are set.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    list: Vec<Fault>,
}

impl Faults {
    /// Adds a fault after those that there are.
    pub fn add(&mut self, fault: Fault) {
        self.list.push(fault);
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.list.clear();
    }

    /// The action for a command: of the first fault that matches and strikes. Each fault that
    /// matches counts the command. `register` is that of ACCESS_REG.
    pub fn strike(&mut self, opcode: u16, op_mod: u16, register: Option<u16>) -> Option<Action> {
        let mut action = None;
        for f in &mut self.list {
            let matches = f.opcode.is_none_or(|o| o == opcode)
                && f.op_mod.is_none_or(|m| m == op_mod)
                && f.register.is_none_or(|r| register == Some(r));
            if !matches || action.is_some() {
                continue;
            }
            if f.skip > 0 {
                f.skip -= 1;
                continue;
            }
            match &mut f.left {
                Some(0) => continue,
                Some(n) => *n -= 1,
                None => {}
            }
            f.hits += 1;
            action = Some(f.action);
        }
        action
    }

    /// All faults, for the control socket.
    pub fn view(&self) -> Vec<types::Fault> {
        self.list
            .iter()
            .map(|f| types::Fault {
                op: f.opcode.map_or("*".into(), |o| {
                    ifc::opcode_name(o).map_or(format!("{o:#x}"), str::to_string)
                }),
                op_mod: f.op_mod,
                register: f.register,
                act: f.action.name().to_string(),
                skip: f.skip,
                left: f.left,
                hits: f.hits,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(opcode: Option<u16>, skip: u64, left: Option<u64>, action: Action) -> Fault {
        Fault {
            opcode,
            op_mod: None,
            register: None,
            skip,
            left,
            action,
            hits: 0,
        }
    }

    #[test]
    fn skip_and_count() {
        let mut f = Faults::default();
        f.add(fault(Some(0x104), 1, Some(2), Action::Never));
        let strikes: Vec<bool> = (0..5).map(|_| f.strike(0x104, 0, None).is_some()).collect();
        assert_eq!(strikes, [false, true, true, false, false]);
        assert!(f.strike(0x105, 0, None).is_none());
        assert_eq!(f.list[0].hits, 2);
    }

    #[test]
    fn one_register_of_many() {
        let mut f = Faults::default();
        f.add(Fault {
            register: Some(0x9040),
            ..fault(None, 0, None, Action::Never)
        });
        assert_eq!(f.strike(0x805, 0, None), None);
        assert_eq!(f.strike(0x805, 0, Some(0x9041)), None);
        assert_eq!(f.strike(0x805, 0, Some(0x9040)), Some(Action::Never));
    }

    #[test]
    fn first_that_strikes_wins() {
        let mut f = Faults::default();
        f.add(fault(Some(1), 0, Some(1), Action::Hold));
        f.add(fault(None, 0, None, Action::Never));
        assert_eq!(f.strike(1, 0, None), Some(Action::Hold));
        assert_eq!(f.strike(1, 0, None), Some(Action::Never));
        f.clear();
        assert_eq!(f.strike(1, 0, None), None);
    }
}
