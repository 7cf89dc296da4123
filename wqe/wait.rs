// SPDX-License-Identifier: GPL-2.0

//! Cross-channel: WQEs that wait for other queues, or let them go on (hardware.md 5.2).

use super::number::Number;
use crate::layouts::wqe::WaitSeg;

/// The segment of WAIT (`number` is a completion queue), SEND_EN and RECV_EN (a queue pair).
pub(super) fn segment(index: u32, number: Number) -> [u8; WaitSeg::LEN] {
    let mut segment = WaitSeg::new();
    segment.set_index(index);
    // A `Number` fits 24 bits.
    let _ = segment.try_set_number(number.get());
    segment.into_bytes()
}
