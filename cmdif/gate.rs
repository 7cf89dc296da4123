// SPDX-License-Identifier: GPL-2.0

//! Which commands are still sent when a device goes down (M2.5).

use crate::layouts::Opcode;

/// How far the command interface is open. It only ever closes; a new bring-up has a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// For everything.
    Open,
    /// For what undoes something: the device is being taken down.
    Closing,
    /// For nothing: the device failed, or is silent, or was let go.
    Shut,
}

impl Gate {
    /// Whether a command may be sent.
    pub fn lets(self, opcode: Opcode) -> bool {
        match self {
            Self::Open => true,
            Self::Closing => undoes(opcode),
            Self::Shut => false,
        }
    }
}

/// Whether a command only undoes what another one did: what a teardown needs. Registers are among
/// them, because the ownership of some is given back by writing them.
fn undoes(opcode: Opcode) -> bool {
    const KINDS: [&str; 6] = [
        "DEALLOC_",
        "DELETE_",
        "DESTROY_",
        "DETACH_",
        "DISABLE_",
        "TEARDOWN_",
    ];
    const OTHERS: [Opcode; 6] = [
        Opcode::ACCESS_REG,
        Opcode::DRAIN_DCT,
        Opcode::MANAGE_PAGES,
        Opcode::RELEASE_XRQ_ERROR,
        Opcode::TO_ERR_QP,
        Opcode::TO_RST_QP,
    ];
    OTHERS.contains(&opcode)
        || opcode
            .name()
            .is_some_and(|name| KINDS.iter().any(|kind| name.starts_with(kind)))
}

#[mlx5_rs_macros::suite(mlx5_rs_cmdif_gate)]
mod tests {
    use super::*;

    const TEARDOWN: [Opcode; 6] = [
        Opcode::DESTROY_EQ,
        Opcode::DEALLOC_UAR,
        Opcode::DESTROY_UCTX,
        Opcode::TEARDOWN_HCA,
        Opcode::MANAGE_PAGES,
        Opcode::DISABLE_HCA,
    ];

    const OTHERS: [Opcode; 7] = [
        Opcode::QUERY_ADAPTER,
        Opcode::CREATE_EQ,
        Opcode::ALLOC_PD,
        Opcode::CREATE_UCTX,
        Opcode::INIT_HCA,
        Opcode::ENABLE_HCA,
        Opcode(0xffff),
    ];

    #[test]
    fn open_for_all() {
        for opcode in TEARDOWN.iter().chain(&OTHERS) {
            assert!(Gate::Open.lets(*opcode));
        }
    }

    #[test]
    fn closing_lets_teardown_pass() {
        for opcode in TEARDOWN {
            assert!(Gate::Closing.lets(opcode));
        }
        for opcode in OTHERS {
            assert!(!Gate::Closing.lets(opcode));
        }
    }

    #[test]
    fn shut_for_all() {
        for opcode in TEARDOWN.iter().chain(&OTHERS) {
            assert!(!Gate::Shut.lets(*opcode));
        }
    }
}
