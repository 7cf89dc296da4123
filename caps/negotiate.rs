// SPDX-License-Identifier: GPL-2.0

//! Which capabilities the driver asks for, given what the device has and could have
//! (hardware.md 2.3, steps 12 to 16).
//!
//! Input are the current and the maximal page, output is the current page edited: no field is ever
//! set above its maximum, whatever the device says.

use crate::layouts::{
    caps::{
        AtomicCaps,
        CmdHcaCap,
        PAGE_LEN, //
    },
    Field, //
};

/// One capability page.
pub type Page = [u8; PAGE_LEN];

/// Largest log2 of QPs that are asked for: upstream's default profile.
const LOG_MAX_QP: u64 = 18;

/// `pkey_table_size` code of 128 entries.
const PKEYS_128: u64 = 0;

/// An edit of one field.
enum Want {
    /// This value, whatever the maximum says: fields that configure rather than enable.
    Exactly(Field, u64),
    /// This value, or the maximum if that is less.
    AtMost(Field, u64),
    /// The maximum.
    Max(Field),
    /// The maximum, where the device has one; else leave it.
    MaxIfAny(Field),
}

/// Sets one field in `page`. Fields that the page does not hold are left.
fn edit(page: &mut [u8], max: &[u8], want: &Want) {
    match want {
        Want::Exactly(field, value) => {
            let _ = field.set(page, *value);
        }
        Want::AtMost(field, value) => {
            let limit = field.get(max).unwrap_or(0);
            let _ = field.set(page, (*value).min(limit));
        }
        Want::Max(field) => {
            let _ = field.set(page, field.get(max).unwrap_or(0));
        }
        Want::MaxIfAny(field) => {
            if let Some(limit) = field.get(max).filter(|limit| *limit != 0) {
                let _ = field.set(page, limit);
            }
        }
    }
}

/// Edits the current general page `page` into the one to set; `log_system_page` is log2 of the
/// host's page size.
pub fn general(page: &mut [u8], max: &[u8], log_system_page: u8) {
    let wants = [
        // Signatures are computed, but the device need not check them: upstream runs so, and nothing
        // else is tested by vendors.
        Want::Exactly(CmdHcaCap::CMDIF_CHECKSUM, 0),
        Want::Exactly(CmdHcaCap::PKEY_TABLE_SIZE, PKEYS_128),
        // UAR pages of the size of system pages.
        Want::AtMost(
            CmdHcaCap::LOG_UAR_PAGE_SZ,
            u64::from(log_system_page.saturating_sub(12)),
        ),
        Want::AtMost(CmdHcaCap::LOG_MAX_QP, LOG_MAX_QP),
        Want::Max(CmdHcaCap::DCT),
        Want::MaxIfAny(CmdHcaCap::RELEASE_ALL_PAGES),
        Want::MaxIfAny(CmdHcaCap::MKEY_BY_NAME),
        Want::MaxIfAny(CmdHcaCap::ROCE),
    ];
    for want in &wants {
        edit(page, max, want);
    }
    // With larger system pages the device must still address UARs in units of 4 KiB.
    if log_system_page > 12 {
        edit(page, max, &Want::MaxIfAny(CmdHcaCap::UAR_4K));
    }
}

/// Edits the current atomic page. `false` if there is nothing to set.
pub fn atomic(page: &mut [u8], max: &[u8]) -> bool {
    // Replies of 8-byte atomics in the byte order of the host (field case C54).
    let supported = AtomicCaps::SUPPORTED_ATOMIC_REQ_8B_ENDIANNESS_MODE_1.get(max) == Some(1);
    if supported {
        let _ = AtomicCaps::ATOMIC_REQ_8B_ENDIANNESS_MODE.set(page, 1);
    }
    supported
}

/// A page in words, as debugfs shows it: the fields that decide what the driver does.
pub const SHOWN: &[Field] = &[
    CmdHcaCap::PORT_TYPE,
    CmdHcaCap::NUM_PORTS,
    CmdHcaCap::VHCA_ID,
    CmdHcaCap::LOG_MAX_QP,
    CmdHcaCap::LOG_MAX_QP_SZ,
    CmdHcaCap::LOG_MAX_CQ,
    CmdHcaCap::LOG_MAX_CQ_SZ,
    CmdHcaCap::LOG_MAX_SRQ,
    CmdHcaCap::LOG_MAX_MKEY,
    CmdHcaCap::LOG_MAX_EQ,
    CmdHcaCap::LOG_MAX_EQ_SZ,
    CmdHcaCap::LOG_MAX_MSG,
    CmdHcaCap::LOG_MAX_PD,
    CmdHcaCap::LOG_MAX_UCTX,
    CmdHcaCap::UCTX_CAP,
    CmdHcaCap::LOG_UAR_PAGE_SZ,
    CmdHcaCap::LOG_BF_REG_SIZE,
    CmdHcaCap::UAR_4K,
    CmdHcaCap::PKEY_TABLE_SIZE,
    CmdHcaCap::CMDIF_CHECKSUM,
    CmdHcaCap::RELEASE_ALL_PAGES,
    CmdHcaCap::FAST_TEARDOWN,
    CmdHcaCap::FORCE_TEARDOWN,
    CmdHcaCap::PAGE_REQUEST_DISABLE,
    CmdHcaCap::HCA_CAP_2,
    CmdHcaCap::ATOMIC,
    CmdHcaCap::ROCE,
    CmdHcaCap::PG,
    CmdHcaCap::DCT,
    CmdHcaCap::ESWITCH_MANAGER,
    CmdHcaCap::VPORT_GROUP_MANAGER,
    CmdHcaCap::DRIVER_VERSION,
    CmdHcaCap::MKEY_BY_NAME,
];

#[mlx5_rs_macros::suite(mlx5_rs_caps_negotiate)]
mod tests {
    use super::*;

    const LEN: usize = CmdHcaCap::LEN;

    #[test]
    fn nothing_above_the_maximum() {
        let mut page = [0; LEN];
        let mut max = [0; LEN];
        assert_eq!(CmdHcaCap::LOG_MAX_QP.set(&mut max, 7), Some(()));
        general(&mut page, &max, 12);
        assert_eq!(CmdHcaCap::LOG_MAX_QP.get(&page), Some(7));
        assert_eq!(CmdHcaCap::DCT.get(&page), Some(0));
        assert_eq!(CmdHcaCap::LOG_MAX_QP.set(&mut max, 24), Some(()));
        general(&mut page, &max, 12);
        assert_eq!(CmdHcaCap::LOG_MAX_QP.get(&page), Some(18));
    }

    #[test]
    fn other_fields_stay() {
        let mut page = [0; LEN];
        assert_eq!(CmdHcaCap::VHCA_ID.set(&mut page, 0x1234), Some(()));
        assert_eq!(CmdHcaCap::CMDIF_CHECKSUM.set(&mut page, 3), Some(()));
        let max = [0xff; LEN];
        general(&mut page, &max, 12);
        assert_eq!(CmdHcaCap::VHCA_ID.get(&page), Some(0x1234));
        assert_eq!(CmdHcaCap::CMDIF_CHECKSUM.get(&page), Some(0));
        assert_eq!(CmdHcaCap::UAR_4K.get(&page), Some(0));
    }

    #[test]
    fn large_system_pages() {
        let mut page = [0; LEN];
        let mut max = [0xff; LEN];
        general(&mut page, &max, 16);
        assert_eq!(CmdHcaCap::LOG_UAR_PAGE_SZ.get(&page), Some(4));
        assert_eq!(CmdHcaCap::LOG_UAR_PAGE_SZ.set(&mut max, 2), Some(()));
        general(&mut page, &max, 16);
        assert_eq!(CmdHcaCap::LOG_UAR_PAGE_SZ.get(&page), Some(2));
        assert_eq!(CmdHcaCap::UAR_4K.get(&page), Some(1));
    }

    #[test]
    fn short_pages_do_no_harm() {
        general(&mut [], &[], 12);
        general(&mut [0; 10], &[0xff; 3], 16);
        assert!(!atomic(&mut [], &[]));
    }

    #[test]
    fn atomics_in_host_order_only_if_supported() {
        let mut page = [0; AtomicCaps::LEN];
        let mut max = [0; AtomicCaps::LEN];
        assert!(!atomic(&mut page, &max));
        assert_eq!(
            AtomicCaps::SUPPORTED_ATOMIC_REQ_8B_ENDIANNESS_MODE_1.set(&mut max, 1),
            Some(())
        );
        assert!(atomic(&mut page, &max));
        assert_eq!(
            AtomicCaps::ATOMIC_REQ_8B_ENDIANNESS_MODE.get(&page),
            Some(1)
        );
    }
}
