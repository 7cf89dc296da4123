// SPDX-License-Identifier: GPL-2.0

//! The device's 53-bit clock, which runs in a circle (hardware.md 4).

/// A time of the device's free-running clock, in its ticks, modulo 2^53.
///
/// There is no order: of two times each is after the other in a circle. [`is_after`](Self::is_after)
/// takes the shorter way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp53(u64);

impl Timestamp53 {
    /// Bits of the clock.
    pub const BITS: u32 = 53;

    /// The largest time.
    pub const MAX: u64 = (1 << Self::BITS) - 1;

    /// Bits that an event carries of its own.
    const LOW_BITS: u32 = 7;

    /// The time `ticks` modulo 2^53.
    pub const fn new(ticks: u64) -> Self {
        Self(ticks & Self::MAX)
    }

    /// The ticks, at most [`MAX`](Self::MAX).
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Ticks from `earlier` to this time, if that is less than one round ago.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.wrapping_sub(earlier.0) & Self::MAX
    }

    /// Whether this time is after `other`, by less than half a round.
    pub const fn is_after(self, other: Self) -> bool {
        let ticks = self.since(other);
        ticks != 0 && ticks < 1 << (Self::BITS - 1)
    }

    /// Ticks from `other` to this time; negative if it is before.
    pub const fn offset_from(self, other: Self) -> i64 {
        // The sign is bit 52: move it to bit 63 and back.
        const SHIFT: u32 = u64::BITS - Timestamp53::BITS;
        (self.since(other) << SHIFT) as i64 >> SHIFT
    }

    /// The time `ticks` later.
    pub const fn plus(self, ticks: u64) -> Self {
        Self::new(self.0.wrapping_add(ticks))
    }

    /// The time of an event that carried the low 7 bits `low` of the clock, where `self` is the
    /// timestamp event after it: the last time before `self` with these bits.
    ///
    /// Where they are those of `self` too, this is one round of 128 ticks before it (hardware.md 4,
    /// "Reconstruction", has equality in the branch that borrows).
    pub const fn rebuild(self, low: u8) -> Self {
        const MASK: u64 = (1 << Timestamp53::LOW_BITS) - 1;
        let low = low as u64 & MASK;
        let high = self.0 & !MASK;
        if low < self.0 & MASK {
            Self(high | low)
        } else {
            Self::new(high.wrapping_sub(MASK + 1) | low)
        }
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_tracer_timestamp)]
mod tests {
    use super::*;

    #[test]
    fn circle() {
        let (zero, last) = (Timestamp53::new(0), Timestamp53::new(Timestamp53::MAX));
        assert_eq!(Timestamp53::new(1 << 53), zero);
        assert_eq!(last.plus(1), zero);
        assert!(zero.is_after(last));
        assert!(!last.is_after(zero));
        assert_eq!(zero.since(last), 1);
        assert_eq!(last.since(zero), Timestamp53::MAX);
        assert_eq!(zero.offset_from(last), 1);
        assert_eq!(last.offset_from(zero), -1);
    }

    #[test]
    fn half_a_round_is_no_order() {
        for start in [0, 1, 1 << 52, Timestamp53::MAX] {
            let start = Timestamp53::new(start);
            assert!(!start.is_after(start));
            assert!(start.plus((1 << 52) - 1).is_after(start));
            assert!(!start.plus(1 << 52).is_after(start));
            assert!(!start.plus((1 << 52) + 1).is_after(start));
            assert!(start.is_after(start.plus((1 << 52) + 1)));
        }
    }

    #[test]
    fn rebuilt() {
        for (stamp, low, want) in [
            // No borrow: the same 128 ticks.
            (0x1234_5678_9a45, 0x44, 0x1234_5678_9a44),
            (0x1234_5678_9a45, 0x00, 0x1234_5678_9a00),
            // Equal: one round before.
            (0x1234_5678_9a45, 0x45, 0x1234_5678_99c5),
            // Borrow; upstream gives 0x1234_5678_9a7f here.
            (0x1234_5678_9a45, 0x7f, 0x1234_5678_99ff),
            // Borrow through all bits.
            (0x10_0000_0000_0000, 0x01, 0x0f_ffff_ffff_ff81),
            (0x10_0000_0000_0005, 0x05, 0x0f_ffff_ffff_ff85),
            // Borrow past zero.
            (0, 0, 0x1f_ffff_ffff_ff80),
            (0x11, 0x7f, 0x1f_ffff_ffff_ffff),
            // The bit above the seven is not part of the time.
            (0x1234_5678_9a45, 0xc4, 0x1234_5678_9a44),
        ] {
            assert_eq!(Timestamp53::new(stamp).rebuild(low), Timestamp53::new(want));
        }
    }

    #[test]
    fn rebuilt_is_the_last_such_time_before() {
        for stamp in [0, 1, 0x7f, 0x80, 0xff, 1 << 52, Timestamp53::MAX] {
            let stamp = Timestamp53::new(stamp);
            for low in 0..0x80 {
                let time = stamp.rebuild(low);
                assert_eq!(time.get() & 0x7f, u64::from(low));
                assert!((1..=0x80).contains(&stamp.since(time)));
            }
        }
    }
}
