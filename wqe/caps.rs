// SPDX-License-Identifier: GPL-2.0

//! What a device can do that matters for WQEs.

use super::{
    atomic::AtomicOps,
    transport::TransportKind,
    MAX_DS,
    UNIT, //
};
use crate::layouts::caps::{
    AtomicCaps,
    CmdHcaCap,
    CmdHcaCap2,
    EthernetCaps, //
};

/// Capabilities that decide whether a WQE is legal.
///
/// The default has none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// Atomic operations.
    pub atomic_operations: AtomicOps,
    /// Sizes of atomics of queue pairs: bit n stands for 2^n bytes.
    pub atomic_size_qp: u16,
    /// The same for DC.
    pub atomic_size_dc: u16,
    /// The device inserts VLAN tags.
    pub vlan_insert: bool,
    /// The device appends trailers.
    pub insert_trailer: bool,
    /// Offsets of headers can be given (software parser).
    pub swp: bool,
    /// A UMR may patch translations at 2^16 octowords and beyond.
    pub umr_extended_translation_offset: bool,
    /// A UMR cannot change the page size.
    pub umr_modify_entity_size_disabled: bool,
    /// A UMR cannot change the right for atomics.
    pub umr_modify_atomic_disabled: bool,
    /// A UMR cannot work on keys with KLMs or KSMs.
    pub umr_indirect_mkey_disabled: bool,
    /// A UMR can change relaxed ordering of writes.
    pub relaxed_ordering_write_umr: bool,
    /// A UMR can change relaxed ordering of reads.
    pub relaxed_ordering_read_umr: bool,
    /// A UMR can set bit 5 of the page size.
    pub umr_log_entity_size_5: bool,
    /// Keys with entries of fixed size (KSM).
    pub fixed_buffer_size: bool,
    /// Signature handover: BSF and PSV.
    pub signature: bool,
    /// Cross-channel operations: WAIT and the like.
    pub cross_channel: bool,
    /// TLS of packets sent.
    pub tls_tx: bool,
    /// TLS of packets received.
    pub tls_rx: bool,
    /// Datagrams may have an address vector of 16 bytes.
    pub compact_address_vector: bool,
    /// Most bytes of a WQE.
    pub max_wqe_bytes: u16,
    /// Most bytes of a WQE of a DC initiator.
    pub max_wqe_bytes_dc: u16,
}

impl Caps {
    /// Most units of a WQE in a queue of this kind.
    pub(super) const fn max_units(&self, transport: TransportKind) -> usize {
        let bytes = match transport {
            TransportKind::Dci => self.max_wqe_bytes_dc,
            _ => self.max_wqe_bytes,
        };
        let units = bytes as usize / UNIT;
        if units < MAX_DS {
            units
        } else {
            MAX_DS
        }
    }

    /// Everything: for WQEs from elsewhere, whose device is not known.
    pub const ALL: Self = Self {
        atomic_operations: AtomicOps::ALL,
        atomic_size_qp: 0x1fc,
        atomic_size_dc: 0x1fc,
        vlan_insert: true,
        insert_trailer: true,
        swp: true,
        umr_extended_translation_offset: true,
        umr_modify_entity_size_disabled: false,
        umr_modify_atomic_disabled: false,
        umr_indirect_mkey_disabled: false,
        relaxed_ordering_write_umr: true,
        relaxed_ordering_read_umr: true,
        umr_log_entity_size_5: true,
        fixed_buffer_size: true,
        signature: true,
        cross_channel: true,
        tls_tx: true,
        tls_rx: true,
        compact_address_vector: true,
        max_wqe_bytes: 1024,
        max_wqe_bytes_dc: 1024,
    };

    /// From the capability pages of a device; those that it does not have are `None`.
    pub fn from_pages(
        general: &CmdHcaCap<&[u8; CmdHcaCap::LEN]>,
        general2: Option<&CmdHcaCap2<&[u8; CmdHcaCap2::LEN]>>,
        atomic: Option<&AtomicCaps<&[u8; AtomicCaps::LEN]>>,
        ethernet: Option<&EthernetCaps<&[u8; EthernetCaps::LEN]>>,
    ) -> Self {
        Self {
            atomic_operations: AtomicOps(atomic.map_or(0, AtomicCaps::atomic_operations)),
            atomic_size_qp: atomic.map_or(0, AtomicCaps::atomic_size_qp),
            atomic_size_dc: atomic.map_or(0, AtomicCaps::atomic_size_dc),
            vlan_insert: ethernet.is_some_and(EthernetCaps::wqe_vlan_insert),
            insert_trailer: ethernet.is_some_and(EthernetCaps::insert_trailer),
            swp: ethernet.is_some_and(EthernetCaps::swp),
            umr_extended_translation_offset: general.umr_extended_translation_offset(),
            umr_modify_entity_size_disabled: general.umr_modify_entity_size_disabled(),
            umr_modify_atomic_disabled: general.umr_modify_atomic_disabled(),
            umr_indirect_mkey_disabled: general.umr_indirect_mkey_disabled(),
            relaxed_ordering_write_umr: general.relaxed_ordering_write_umr(),
            relaxed_ordering_read_umr: general.relaxed_ordering_read_umr(),
            umr_log_entity_size_5: general2.is_some_and(CmdHcaCap2::umr_log_entity_size_5),
            fixed_buffer_size: general.fixed_buffer_size(),
            signature: general.sho(),
            cross_channel: general.cd(),
            tls_tx: general.tls_tx(),
            tls_rx: general.tls_rx(),
            compact_address_vector: general.compact_address_vector(),
            max_wqe_bytes: general.max_wqe_sz_sq(),
            max_wqe_bytes_dc: general.max_wqe_sz_sq_dc(),
        }
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_wqe_caps)]
mod tests {
    use super::*;

    static GENERAL: [u8; CmdHcaCap::LEN] = [0; CmdHcaCap::LEN];

    #[test]
    fn pages_that_the_device_lacks_allow_nothing() {
        let caps = Caps::from_pages(&CmdHcaCap::view(&GENERAL), None, None, None);
        assert_eq!(caps, Caps::default());
    }
}
