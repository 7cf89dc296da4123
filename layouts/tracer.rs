// SPDX-License-Identifier: GPL-2.0

//! The firmware tracer: its registers, and the events in its buffer (hardware.md 4).

use super::bits::{
    Description,
    Layout, //
};
use mlx5_rs_macros::layout;

layout! {
    /// MTRC_CAP: capabilities and ownership of the tracer.
    pub struct MtrcCap = mtrc_cap {
        /// Written 1 to ask for the tracer, 0 to give it back; reads as 1 for its owner.
        trace_owner: bool,
        /// The device can write traces to memory.
        trace_to_memory: bool,
        /// Where the unreliable flag is in a timestamp event: see
        /// [`TracerTimestampEvent::urts`].
        trc_ver: narrow u8,
        /// Sections of strings that there are in `string_db_param`.
        num_string_db: narrow u8,
        /// First event id of a string trace.
        first_string_trace: u8,
        /// Number of consecutive event ids that are string traces.
        num_string_trace: u8,
        /// log2 of units of 4 KiB.
        log_max_trace_buffer_size: u8,
        string_db_param: [MtrcStringDbParam; 8],
    }

    /// One section of the tracer's strings.
    pub struct MtrcStringDbParam = mtrc_string_db_param {
        /// What a pointer to the section's first byte is.
        string_db_base_address: u32,
        /// Bytes.
        string_db_size: narrow u32,
    }

    /// MTRC_CONF: where the tracer writes.
    pub struct MtrcConf = mtrc_conf {
        /// 1: to memory.
        trace_mode: narrow u8,
        /// log2 of units of 4 KiB.
        log_trace_buffer_size: u8,
        trace_mkey: u32,
    }

    /// MTRC_CTRL: switches the tracer on and off, and arms its event.
    pub struct MtrcCtrl = mtrc_ctrl {
        /// 1: on.
        trace_status: narrow u8,
        /// One event comes when traces are available.
        arm_event: bool,
        /// Bit 0: `trace_status` is written.
        modify_field_select: u16,
        current_timestamp52_32: narrow u32,
        current_timestamp31_0: u32,
    }

    /// MTRC_STDB: the tracer's strings. Offset and size are multiples of 64, and stay within the
    /// section; what was asked for comes back behind the fixed part. Asking is a *write*.
    pub struct MtrcStdb = mtrc_stdb {
        string_db_index: narrow u8,
        /// Bytes.
        read_size: narrow u32,
        /// Bytes.
        start_offset: u32,
    }

    /// CORE_DUMP: has firmware trace its state.
    pub struct CoreDumpReg = core_dump_reg {
        /// 0: all of it.
        core_dump_type: u8,
    }

    /// Any event in the trace buffer.
    ///
    /// Source: hardware.md 4 (upstream has the events among its own code, not in the headers).
    pub struct TracerEvent = own[8] {
        /// The device dropped events before this one.
        lost: bool @ 0..1,
        /// The low 7 bits of the device's clock.
        timestamp: narrow u8 @ 1..8,
        event_id: u8 @ 8..16,
        event_data_47_32: u16 @ 16..32,
        event_data_31_0: u32 @ 32..64,
    }

    /// A part of a string trace.
    ///
    /// Source: hardware.md 4.
    pub struct TracerStringEvent = own[8] {
        lost: bool @ 0..1,
        timestamp: narrow u8 @ 1..8,
        event_id: u8 @ 8..16,
        /// Which message of this event id.
        tmsn: narrow u16 @ 16..29,
        /// Which part of it: 0 the pointer to its string, 1 to 7 a parameter.
        tdsn: narrow u8 @ 29..32,
        string_param: u32 @ 32..64,
    }

    /// A timestamp event: `event_id` is [`TIMESTAMP_EVENT`].
    ///
    /// Source: hardware.md 4.
    pub struct TracerTimestampEvent = own[8] {
        timestamp7_0: u8 @ 0..8,
        event_id: u8 @ 8..16,
        /// Its bit 2 (`trc_ver` 0) or bit 0 (later) says that the timestamp is unreliable.
        urts: narrow u8 @ 16..19,
        timestamp52_40: narrow u16 @ 19..32,
        timestamp39_8: u32 @ 32..64,
    }
}

/// Event id of a timestamp event (hardware.md 4).
pub const TIMESTAMP_EVENT: u8 = 0xff;

/// `trace_mode` of [`MtrcConf`]: to memory (hardware.md 4).
pub const TRACE_TO_MEMORY: u8 = 1;

/// `trace_status` of [`MtrcCtrl`]: on (hardware.md 4).
pub const TRACE_ON: u8 = 1;

/// Bit of `modify_field_select` of [`MtrcCtrl`]: `trace_status` (hardware.md 4).
pub const MODIFY_TRACE_STATUS: u16 = 1 << 0;

/// Most bytes of strings that one access of MTRC_STDB carries (hardware.md 4).
pub const STDB_READ: usize = 256;

/// [`MtrcStdb`] with room for [`STDB_READ`] bytes of strings.
pub struct MtrcStdbRead {
    bytes: [u8; Self::LEN],
}

impl MtrcStdbRead {
    /// Bytes of the register.
    pub const LEN: usize = MtrcStdb::LEN + STDB_READ;

    /// The strings.
    pub fn data(&self) -> &[u8; STDB_READ] {
        super::bits::part::<{ Self::LEN }, { MtrcStdb::LEN }, STDB_READ>(&self.bytes)
    }
}

impl Layout for MtrcStdbRead {
    const DESCRIPTION: Description = <MtrcStdb as Layout>::DESCRIPTION;

    fn zeroed() -> Self {
        Self {
            bytes: [0; Self::LEN],
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_layouts_tracer)]
mod tests {
    use super::*;

    #[test]
    fn registers() -> Result<(), ()> {
        assert_eq!(MtrcCap::LEN, 128);
        assert_eq!(MtrcConf::LEN, 128);
        assert_eq!(MtrcCtrl::LEN, 64);
        assert_eq!(MtrcStdb::LEN, 8);
        assert_eq!(CoreDumpReg::LEN, 64);
        let mut register = MtrcCap::new();
        let mut section = register.string_db_param_mut(7).ok_or(())?;
        section.set_string_db_base_address(0x1234_5678);
        assert!(register.string_db_param(8).is_none());
        assert_eq!(register.as_bytes()[0x10 + 56], 0x12);
        assert_eq!(
            register
                .string_db_param(7)
                .map(|s| s.string_db_base_address()),
            Some(0x1234_5678)
        );
        assert_eq!(MtrcCap::TRC_VER.in_word().mask, 3 << 24);
        assert_eq!(MtrcCtrl::ARM_EVENT.in_word().mask, 1 << 27);
        assert_eq!(MtrcCtrl::CURRENT_TIMESTAMP52_32.in_word().offset, 8);
        assert_eq!(MtrcCtrl::CURRENT_TIMESTAMP52_32.in_word().mask, 0x1f_ffff);
        Ok(())
    }

    #[test]
    fn strings_follow_their_register() {
        let mut read = MtrcStdbRead::zeroed();
        read.bytes_mut()[8] = b'a';
        read.bytes_mut()[263] = b'z';
        assert_eq!((read.data()[0], read.data()[255]), (b'a', b'z'));
        assert_eq!(read.bytes().len(), 264);
    }

    // Word 0 and word 1 as hardware.md 4 has them.
    #[test]
    fn events() {
        let bytes = [0x80 | 0x12, 0x34, 0xab, 0xcd, 1, 2, 3, 4];
        let any = TracerEvent::view(&bytes);
        assert!(any.lost());
        assert_eq!((any.timestamp(), any.event_id()), (0x12, 0x34));
        assert_eq!(any.event_data_47_32(), 0xabcd);
        assert_eq!(any.event_data_31_0(), 0x0102_0304);
        let string = TracerStringEvent::view(&bytes);
        assert_eq!((string.tmsn(), string.tdsn()), (0xabcd >> 3, 5));
        assert_eq!(string.string_param(), 0x0102_0304);
        let stamp = TracerTimestampEvent::view(&bytes);
        assert_eq!((stamp.timestamp7_0(), stamp.urts()), (0x92, 5));
        assert_eq!(stamp.timestamp52_40(), 0x0bcd);
        assert_eq!(stamp.timestamp39_8(), 0x0102_0304);
    }
}
