// SPDX-License-Identifier: GPL-2.0

//! Which events the asynchronous event queue takes (hardware.md 3.2).

use crate::layouts::{
    caps::CmdHcaCap,
    EventType, //
};

/// `event_bitmask` of CREATE_EQ.
pub type Mask = [u64; 4];

/// The events of queues and ports that every device has.
const ALWAYS: &[EventType] = &[
    EventType::PATH_MIG,
    EventType::COMM_EST,
    EventType::SQ_DRAINED,
    EventType::CQ_ERROR,
    EventType::WQ_CATAS_ERROR,
    EventType::PATH_MIG_FAILED,
    EventType::PORT_CHANGE,
    EventType::WQ_INVAL_REQ_ERROR,
    EventType::WQ_ACCESS_ERROR,
    EventType::SRQ_CATAS_ERROR,
    EventType::SRQ_LAST_WQE,
    EventType::SRQ_RQ_LIMIT,
];

/// The mask of these event types.
pub fn of(events: &[EventType]) -> Mask {
    let mut mask = [0; 4];
    for event in events {
        let (word, bit) = event.mask_bit();
        if let Some(word) = mask.get_mut(word) {
            *word |= bit;
        }
    }
    mask
}

/// A mask that has these event types too.
pub fn with(mut mask: Mask, events: &[EventType]) -> Mask {
    for (word, more) in mask.iter_mut().zip(of(events)) {
        *word |= more;
    }
    mask
}

/// The mask for a device with these general capabilities: an event that it does not have would make
/// CREATE_EQ fail.
pub fn asynchronous(caps: &CmdHcaCap<&[u8; CmdHcaCap::LEN]>) -> Mask {
    let mut mask = of(ALWAYS);
    for (has, event) in [
        (caps.port_module_event(), EventType::PORT_MODULE_EVENT),
        (caps.temp_warn_event(), EventType::TEMP_WARN_EVENT),
        (caps.general_notification_event(), EventType::GENERAL_EVENT),
        (caps.dct(), EventType::DCT_DRAINED),
        (caps.vhca_state(), EventType::VHCA_STATE_CHANGE),
    ] {
        if has {
            mask = with(mask, &[event]);
        }
    }
    mask
}

#[mlx5_rs_macros::suite(mlx5_rs_eq_mask)]
mod tests {
    use super::*;

    #[test]
    fn masks_follow_the_capabilities() {
        let mut page = [0; CmdHcaCap::LEN];
        // Types 1 to 5 without 4's neighbours: hardware.md 3.2 lists them.
        const BASE: u64 = 1 << 1
            | 1 << 2
            | 1 << 3
            | 1 << 4
            | 1 << 5
            | 1 << 7
            | 1 << 9
            | 1 << 0x10
            | 1 << 0x11
            | 1 << 0x12
            | 1 << 0x13
            | 1 << 0x14;
        assert_eq!(asynchronous(&CmdHcaCap::view(&page)), [BASE, 0, 0, 0]);
        assert_eq!(CmdHcaCap::DCT.set(&mut page, 1), Some(()));
        assert_eq!(
            CmdHcaCap::GENERAL_NOTIFICATION_EVENT.set(&mut page, 1),
            Some(())
        );
        assert_eq!(
            asynchronous(&CmdHcaCap::view(&page)),
            [BASE | 1 << 0x1c | 1 << 0x22, 0, 0, 0]
        );
    }

    #[test]
    fn types_beyond_64() {
        assert_eq!(of(&[EventType(0xff)]), [0, 0, 0, 1 << 63]);
        assert_eq!(of(&[]), [0; 4]);
    }
}
