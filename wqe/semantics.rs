// SPDX-License-Identifier: GPL-2.0

//! What atomics do to memory (hardware.md 5.7): the reference that tests and the device model go by.
//!
//! Memory is bytes in the order of their addresses, and an operand of `N` bytes is a number whose
//! first byte is the most significant one. No open source settles whether hardware sees memory of a
//! little-endian responder so (hardware.md 5.7); the choice is `load` and `store` alone.

/// The number that lies in memory.
fn load<const N: usize>(memory: &[u8; N]) -> [u8; N] {
    *memory
}

/// Puts a number in memory.
fn store<const N: usize>(memory: &mut [u8; N], number: [u8; N]) {
    *memory = number;
}

/// If `memory` is `compare` in the bits of `compare_mask`, its bits of `swap_mask` become those of
/// `swap`. Gives what was there before.
pub fn masked_compare_swap<const N: usize>(
    memory: &mut [u8; N],
    operands: &super::MaskedCompareSwap<N>,
) -> [u8; N] {
    let old = load(memory);
    let mut new = old;
    let mut equal = true;
    for (i, byte) in new.iter_mut().enumerate() {
        equal &= (operands.compare[i] ^ *byte) & operands.compare_mask[i] == 0;
        let mask = operands.swap_mask[i];
        *byte = *byte & !mask | operands.swap[i] & mask;
    }
    if equal {
        store(memory, new);
    }
    old
}

/// Adds bit by bit; the carry out of a bit that is set in the boundary is dropped. Gives what was
/// there before.
pub fn masked_fetch_add<const N: usize>(
    memory: &mut [u8; N],
    operands: &super::MaskedFetchAdd<N>,
) -> [u8; N] {
    let old = load(memory);
    let mut new = old;
    let mut carry = 0;
    // From the least significant byte on.
    for i in (0..N).rev() {
        let (mut sum, add, boundary) = (0, operands.add[i], operands.boundary[i]);
        for bit in 0..8 {
            let total = (old[i] >> bit & 1) + (add >> bit & 1) + carry;
            sum |= (total & 1) << bit;
            carry = total >> 1 & !(boundary >> bit & 1);
        }
        new[i] = sum;
    }
    store(memory, new);
    old
}

/// If `memory` is `compare`, it becomes `swap`. Gives what was there before.
pub fn compare_swap(memory: &mut [u8; 8], compare: u64, swap: u64) -> u64 {
    let all = u64::MAX;
    let operands = super::MaskedCompareSwap::<8>::from_u64(compare, all, swap, all);
    u64::from_be_bytes(masked_compare_swap(memory, &operands))
}

/// Adds `add`. Gives what was there before.
pub fn fetch_add(memory: &mut [u8; 8], add: u64) -> u64 {
    let operands = super::MaskedFetchAdd::<8>::from_u64(add, 0);
    u64::from_be_bytes(masked_fetch_add(memory, &operands))
}

#[mlx5_rs_macros::suite(mlx5_rs_wqe_semantics)]
mod tests {
    use super::*;
    use crate::wqe::{
        MaskedCompareSwap,
        MaskedFetchAdd,
        Remote,
        Semaphore,
        Width, //
    };

    /// The vector of hardware.md 5.7.
    #[test]
    fn compare_and_swap_of_one_byte() {
        let place = Remote {
            addr: 0x2002,
            rkey: 0,
        };
        let byte = Semaphore::new(place, Width::One).unwrap();
        let mut memory = [0x11, 0x22, 0xab, 0x44];
        let right = byte.compare_swap(0xab, 0xcd).unwrap();
        let old = masked_compare_swap(&mut memory, &right);
        assert_eq!(u32::from_be_bytes(old), 0x1122_ab44);
        assert!(memory == [0x11, 0x22, 0xcd, 0x44]);
        assert_eq!(byte.old(u32::from_be_bytes(old)), 0xab);

        // The article's operands, 16 bits too far left, compare the byte with 0 and would write 0.
        let wrong = MaskedCompareSwap::from_u32(0x00ab_0000, 0x0000_ff00, 0x00cd_0000, 0x0000_ff00);
        let mut memory = [0x11, 0x22, 0xab, 0x44];
        masked_compare_swap(&mut memory, &wrong);
        assert!(memory == [0x11, 0x22, 0xab, 0x44]);
        let mut memory = [0x11, 0x22, 0x00, 0x44];
        masked_compare_swap(&mut memory, &wrong);
        assert!(memory == [0x11, 0x22, 0x00, 0x44]);
    }

    /// Every row of the table: the semaphore's bytes change and no others.
    #[test]
    fn semaphores_in_memory() {
        for (width, offset) in [
            (Width::One, 0),
            (Width::One, 1),
            (Width::One, 2),
            (Width::One, 3),
            (Width::Two, 0),
            (Width::Two, 2),
            (Width::Four, 0),
        ] {
            let place = Remote {
                addr: 0x1000 + offset as u64,
                rkey: 0,
            };
            let semaphore = Semaphore::new(place, width).unwrap();
            let len = width as usize;
            // All ones: an addition overflows every field.
            let mut memory = [0xff_u8; 4];
            let old = masked_fetch_add(&mut memory, &semaphore.fetch_add(2).unwrap());
            assert_eq!(semaphore.old(u32::from_be_bytes(old)), semaphore.max());
            for (at, byte) in memory.iter().enumerate() {
                let want = match at {
                    at if at < offset || at >= offset + len => 0xff,
                    at if at == offset + len - 1 => 1,
                    _ => 0,
                };
                assert_eq!(*byte, want);
            }
            let mut memory = [0x5a_u8; 4];
            masked_compare_swap(&mut memory, &semaphore.swap(0x7f).unwrap());
            for (at, byte) in memory.iter().enumerate() {
                let want = match at {
                    at if at < offset || at >= offset + len => 0x5a,
                    at if at == offset + len - 1 => 0x7f,
                    _ => 0,
                };
                assert_eq!(*byte, want);
            }
        }
    }

    #[test]
    fn fields_do_not_overflow_into_others() {
        let mut memory = 0x00ff_ffff_u32.to_be_bytes();
        let add = MaskedFetchAdd::from_u32(0x0001_0001, 0x0080_8080);
        masked_fetch_add(&mut memory, &add);
        assert_eq!(u32::from_be_bytes(memory), 0x0000_ff00);
        // Without boundaries it is one number.
        let mut memory = [0xff; 16];
        let mut one = [0; 16];
        one[15] = 1;
        masked_fetch_add(
            &mut memory,
            &MaskedFetchAdd {
                add: one,
                boundary: [0; 16],
            },
        );
        assert!(memory == [0; 16]);
    }

    #[test]
    fn plain_ones() {
        let mut memory = 5_u64.to_be_bytes();
        assert_eq!(compare_swap(&mut memory, 4, 9), 5);
        assert_eq!(compare_swap(&mut memory, 5, 9), 5);
        assert_eq!(fetch_add(&mut memory, u64::MAX), 9);
        assert_eq!(u64::from_be_bytes(memory), 8);
    }
}
