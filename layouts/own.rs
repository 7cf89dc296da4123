// SPDX-License-Identifier: GPL-2.0

//! What `mlx5_ifc.h` and `device.h` do not have, each with its source.

use super::bits::Field;
use mlx5_rs_macros::layout;

/// `nic_interface` of the initialization segment with all its 3 bits.
///
/// Source: hardware.md 1 (0x0014, bits 10 to 8); the header has the lower two.
pub const NIC_INTERFACE: Field = Field::new("nic_interface", 0x14 * 8 + 21, 3);

/// Firmware reset is supported, in the initialization segment.
///
/// Source: hardware.md 1 (0x01fc, bit 30).
pub const FW_RESET_SUPPORTED: Field = Field::new("fw_reset_supported", 0x1fc * 8 + 1, 1);

/// Cold reset required, in the health buffer.
///
/// Source: hardware.md 1 (0x38, bit 30).
pub const CRR: Field = Field::new("crr", 0x38 * 8 + 1, 1);

layout! {
    /// Register HOST_ENDIANNESS.
    ///
    /// Source: hardware.md 2.3, step 11 (16 bytes, byte 0 is 0x80 on a big-endian host).
    pub struct HostEndianness = own[16] {
        /// The host is big-endian.
        he: bool @ 0..1,
    }
}

/// Number of a register for ACCESS_REG.
///
/// Source: hardware.md 2.5 (`driver.h` has them, among the driver's own state, which bindgen cannot
/// take without all of the kernel; a test on the host compares them).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisterId(pub u16);

impl RegisterId {
    /// Has firmware trace its state.
    pub const CORE_DUMP: Self = Self(0x402e);
    /// Host endianness.
    pub const HOST_ENDIANNESS: Self = Self(0x7004);
    /// Capabilities of the tracer.
    pub const MTRC_CAP: Self = Self(0x9040);
    /// Where the tracer writes.
    pub const MTRC_CONF: Self = Self(0x9041);
    /// The tracer's strings.
    pub const MTRC_STDB: Self = Self(0x9042);
    /// Switches the tracer on and off, and arms its event.
    pub const MTRC_CTRL: Self = Self(0x9043);
    /// Which management features and registers there are.
    pub const MCAM: Self = Self(0x907f);
    /// Default timeouts.
    pub const DTOR: Self = Self(0xc00e);

    /// All of them, with their names.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::CORE_DUMP, "CORE_DUMP"),
        (Self::HOST_ENDIANNESS, "HOST_ENDIANNESS"),
        (Self::MTRC_CAP, "MTRC_CAP"),
        (Self::MTRC_CONF, "MTRC_CONF"),
        (Self::MTRC_STDB, "MTRC_STDB"),
        (Self::MTRC_CTRL, "MTRC_CTRL"),
        (Self::MCAM, "MCAM"),
        (Self::DTOR, "DTOR"),
    ];

    /// The name of this register, if it is one of those above.
    pub fn name(self) -> Option<&'static str> {
        Self::ALL
            .iter()
            .find(|(id, _)| *id == self)
            .map(|(_, name)| *name)
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_layouts_own)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_the_fact_sheet() {
        assert_eq!(NIC_INTERFACE.in_word().mask, 0x700);
        assert_eq!(FW_RESET_SUPPORTED.in_word().mask, 1 << 30);
        assert_eq!(CRR.in_word().mask, 1 << 30);
        let mut register = HostEndianness::new();
        register.set_he(true);
        assert_eq!(register.as_bytes()[0], 0x80);
    }
}
