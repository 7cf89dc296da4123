// SPDX-License-Identifier: GPL-2.0

//! Control segment: what every WQE says first (hardware.md 5.2).

use crate::layouts::{
    bits::get,
    wqe::{
        CtrlSeg,
        WqeOpcode, //
    }, //
};

use super::number::Number;

/// Which earlier WQEs must be done before this one begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Fence {
    /// None.
    #[default]
    None = 0,
    /// Local operations of the initiator, UMR above all.
    Small = 1,
    /// RDMA reads and atomics.
    Reads = 2,
    /// All.
    StrongOrdering = 3,
    /// Both of `Small` and `Reads`.
    SmallAndReads = 4,
}

/// When the WQE gives a completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Completion {
    /// If it fails.
    #[default]
    OnError = 0,
    /// If it is the first one that fails.
    OnFirstError = 1,
    /// Always.
    Always = 2,
    /// Always, and an event.
    AlwaysWithEvent = 3,
}

/// What any WQE can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// What it waits for.
    pub fence: Fence,
    /// Its completion.
    pub completion: Completion,
    /// The responder's completion is a solicited one.
    pub solicited: bool,
    /// Stream of a DC initiator with streams; others have 0.
    pub dci_stream: u16,
}

impl Flags {
    /// Nothing of it.
    pub const NONE: Self = Self {
        fence: Fence::None,
        completion: Completion::OnError,
        solicited: false,
        dci_stream: 0,
    };

    /// With a completion.
    pub const SIGNALED: Self = Self {
        completion: Completion::Always,
        ..Self::NONE
    };

    /// The same with a fence.
    pub const fn fenced(mut self, fence: Fence) -> Self {
        self.fence = fence;
        self
    }

    /// The same, solicited.
    pub const fn solicited(mut self) -> Self {
        self.solicited = true;
        self
    }

    /// The same on a stream of a DC initiator.
    pub const fn on_stream(mut self, stream: u16) -> Self {
        self.dci_stream = stream;
        self
    }
}

/// What becomes a control segment.
#[derive(Clone, Copy)]
pub(super) struct Ctrl {
    pub(super) opcode: WqeOpcode,
    pub(super) opmod: u8,
    pub(super) index: u16,
    pub(super) qpn: Number,
    /// At most 63.
    pub(super) ds: u8,
    pub(super) flags: Flags,
    pub(super) general_id: u32,
}

impl Ctrl {
    /// The segment, word by word: as numbers, they stay in registers.
    #[inline(always)]
    pub(super) fn words(&self) -> [u32; 4] {
        let mut segment = CtrlSeg::new();
        segment
            .set_opmod(self.opmod)
            .set_wqe_index(self.index)
            .set_opcode(self.opcode.0)
            .set_dci_stream_channel_id(self.flags.dci_stream)
            .set_se(self.flags.solicited)
            .set_general_id(self.general_id);
        // All fit: 24 bits, and the numbers of the enums.
        let _ = segment.try_set_qpn(self.qpn.get());
        let _ = segment.try_set_fm(self.flags.fence as u8);
        let _ = segment.try_set_ce(self.flags.completion as u8);
        let bytes = segment.into_bytes();
        let mut words: [u32; 4] =
            core::array::from_fn(|index| get(&bytes, 32 * index, 32).unwrap_or(0) as u32);
        const { assert!(CtrlSeg::DS.in_word().shift == 0 && CtrlSeg::DS.in_word().offset == 4) }
        // At most 63, which the field holds: nothing to cut off.
        words[1] |= u32::from(self.ds);
        words
    }
}

/// The signature of a WQE: the bitwise NOT of the xor of all its bytes, its own byte being 0.
pub(super) fn signature<'a>(units: impl Iterator<Item = &'a [u8; 16]>) -> u8 {
    let xor = units.fold(0, |xor, unit| xor ^ u128::from_ne_bytes(*unit));
    !xor.to_ne_bytes().iter().fold(0, |xor, byte| xor ^ byte)
}
