// SPDX-License-Identifier: GPL-2.0

//! Who owns the next entry of an event queue (hardware.md 3.1).

/// Most entries that one interrupt takes before the consumer index is told to the device
/// (hardware.md 3.2); queues have this many more entries than they need.
pub const BUDGET: u32 = 128;

/// The owner byte of an entry that the device has not yet written: what the driver puts in all
/// entries of a new queue.
pub const OWNER_INIT: u8 = 1;

/// The consumer's place in a ring of `1 << log_entries` entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Free running; the device sees the low 24 bits.
    ci: u32,
    log_entries: u8,
}

impl Ring {
    /// The start of a new ring, or `None` if `log_entries` does not fit the device's 24-bit index.
    pub fn new(log_entries: u8) -> Option<Self> {
        (log_entries < 24).then_some(Self { ci: 0, log_entries })
    }

    /// Entries in the ring.
    pub fn entries(&self) -> u32 {
        1 << self.log_entries
    }

    /// The consumer index, free running.
    pub fn ci(&self) -> u32 {
        self.ci
    }

    /// Index of the next entry, below [`entries`](Self::entries).
    pub fn index(&self) -> usize {
        (self.ci & (self.entries() - 1)) as usize
    }

    /// Whether the next entry, whose owner byte is `owner`, was written by the device in this pass:
    /// it writes 0 in the first pass over the ring, 1 in the second, and so on.
    pub fn is_ours(&self, owner: u8) -> bool {
        (u32::from(owner) ^ (self.ci >> self.log_entries)) & 1 == 0
    }

    /// Takes the next entry.
    pub fn advance(&mut self) {
        self.ci = self.ci.wrapping_add(1);
    }

    /// The doorbell word: queue number in bits 31 to 24, consumer index in bits 23 to 0.
    pub fn doorbell(&self, eqn: u8) -> u32 {
        u32::from(eqn) << 24 | self.ci & 0x00ff_ffff
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_eq_ring)]
mod tests {
    use super::*;

    #[test]
    fn new_ring_is_empty() {
        let ring = Ring::new(8).unwrap();
        assert_eq!(ring.entries(), 256);
        assert!(!ring.is_ours(OWNER_INIT));
        assert!(ring.is_ours(0));
    }

    #[test]
    fn log_must_fit_24_bits() {
        assert!(Ring::new(23).is_some());
        assert!(Ring::new(24).is_none());
    }

    #[test]
    fn owner_toggles_with_each_pass() {
        let mut ring = Ring::new(2).unwrap();
        for pass in 0..5u8 {
            for entry in 0..4 {
                assert_eq!(ring.index(), entry);
                assert!(ring.is_ours(pass & 1));
                assert!(!ring.is_ours(!pass & 1));
                ring.advance();
            }
        }
    }

    #[test]
    fn only_bit_0_of_the_owner_byte_counts() {
        let ring = Ring::new(2).unwrap();
        assert!(ring.is_ours(0xfe));
        assert!(!ring.is_ours(0xff));
    }

    #[test]
    fn doorbell_has_24_bits_of_index() {
        let mut ring = Ring {
            ci: 0x00ff_ffff,
            log_entries: 4,
        };
        assert_eq!(ring.doorbell(0xab), 0xabff_ffff);
        ring.advance();
        assert_eq!(ring.doorbell(0xab), 0xab00_0000);
        let mut ring = Ring {
            ci: u32::MAX,
            log_entries: 4,
        };
        assert!(ring.is_ours(1));
        ring.advance();
        assert!(ring.is_ours(0));
    }
}
