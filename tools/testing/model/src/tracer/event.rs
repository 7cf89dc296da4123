// SPDX-License-Identifier: GPL-2.0

//! Events as firmware writes them, 8 bytes each, and blocks of them (hardware.md section 4; the
//! header does not have these layouts).

use crate::ifc;
use crate::ifc::Bits;

/// Bytes of an event.
pub const EVENT: usize = 8;

/// Events of a block; the last is a timestamp.
pub const PER_BLOCK: usize = 32;

/// Bytes of a block.
pub const BLOCK: usize = PER_BLOCK * EVENT;

/// `event_id` of a timestamp.
pub const TIMESTAMP_ID: u8 = 0xff;

/// The counter of timestamps has 53 bits.
pub const TIME_MASK: u64 = (1 << 53) - 1;

/// Ticks that the 7 bits of an event reach back from the timestamp after it.
pub const REACH: u64 = 128;

/// Message numbers (`tmsn`) have 13 bits.
pub const TMSN_MASK: u16 = (1 << 13) - 1;

/// An event.
pub type Event = [u8; EVENT];

const fn bits(offset: u32, width: u32) -> Bits {
    Bits { offset, width }
}

const LOST: Bits = bits(0, 1);
const TIME_7: Bits = bits(1, 7);
const ID: Bits = bits(8, 8);
const DATA: Bits = bits(16, 48);
const TMSN: Bits = bits(16, 13);
const TDSN: Bits = bits(29, 3);
const PARAM: Bits = bits(32, 32);
const TIME_7_0: Bits = bits(0, 8);
const URTS: Bits = bits(16, 3);
const TIME_52_40: Bits = bits(19, 13);
const TIME_39_8: Bits = bits(32, 32);

/// Part of a message: its string (`tdsn` 0) or one of its parameters (1 to 7).
pub fn string(id: u8, time: u64, tmsn: u16, tdsn: u8, param: u32) -> Event {
    let mut event = [0; EVENT];
    ifc::set(&mut event, TIME_7, time);
    ifc::set(&mut event, ID, id.into());
    ifc::set(&mut event, TMSN, tmsn.into());
    ifc::set(&mut event, TDSN, tdsn.into());
    ifc::set(&mut event, PARAM, param.into());
    event
}

/// An event that is no string, with 48 bits of data.
pub fn raw(id: u8, time: u64, data: u64) -> Event {
    let mut event = [0; EVENT];
    ifc::set(&mut event, TIME_7, time);
    ifc::set(&mut event, ID, id.into());
    ifc::set(&mut event, DATA, data);
    event
}

/// Says that events before this one were lost. Timestamps have no such bit.
pub fn set_lost(event: &mut Event) {
    ifc::set(event, LOST, 1);
}

/// A timestamp. Which bit of `urts` says that it is unreliable depends on the version; the other
/// two are its opposite, so that whoever looks at the wrong one is wrong.
pub fn timestamp(time: u64, version: u8, unreliable: bool) -> Event {
    let flag = if version == 0 { 0b100 } else { 0b001 };
    let urts = if unreliable { flag } else { 0b111 & !flag };
    let mut event = [0; EVENT];
    ifc::set(&mut event, TIME_7_0, time);
    ifc::set(&mut event, ID, TIMESTAMP_ID.into());
    ifc::set(&mut event, URTS, urts);
    ifc::set(&mut event, TIME_52_40, time >> 40);
    ifc::set(&mut event, TIME_39_8, time >> 8);
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_of_the_fact_sheet() {
        let word =
            |e: Event, i: usize| u32::from_be_bytes(e[4 * i..4 * i + 4].try_into().expect("4"));
        let mut e = string(0x05, 0x1_23ff, 0x1abc, 3, 0xdead_beef);
        assert_eq!(word(e, 0), 0x7f << 24 | 0x05 << 16 | 0x1abc << 3 | 3);
        assert_eq!(word(e, 1), 0xdead_beef);
        set_lost(&mut e);
        assert_eq!(word(e, 0) >> 31, 1);
        let e = raw(0x40, 0x7f, 0x1234_5678_9abc);
        assert_eq!((word(e, 0), word(e, 1)), (0x7f40_1234, 0x5678_9abc));
        let t = 0x1a_bcde_1234_5678;
        let e = timestamp(t, 0, true);
        assert_eq!(word(e, 0), 0x78 << 24 | 0xff << 16 | 0b100 << 13 | 0x1abc);
        assert_eq!(word(e, 1), 0xde12_3456);
        assert_eq!(word(timestamp(t, 0, false), 0) >> 13 & 7, 0b011);
        assert_eq!(word(timestamp(t, 1, true), 0) >> 13 & 7, 0b001);
        assert_eq!(word(timestamp(t, 1, false), 0) >> 13 & 7, 0b110);
    }
}
