// SPDX-License-Identifier: GPL-2.0

//! An event queue: a byte for its size, then entries as the device writes them, with any owner byte,
//! over any number of passes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_pure::eq::eqe::{Event, EQE, OWNER_OFFSET};
use mlx5_pure::eq::ring::{Ring, BUDGET, OWNER_INIT};

fuzz_target!(|data: &[u8]| {
    let Some((log, rest)) = data.split_first() else {
        return;
    };
    let Some(mut ring) = Ring::new(log % 6) else {
        return;
    };
    let mut queue = vec![[0_u8; EQE]; ring.entries() as usize];
    for entry in &mut queue {
        entry[OWNER_OFFSET] = OWNER_INIT;
    }
    for (at, entry) in rest.chunks_exact(EQE).enumerate() {
        // The device writes wherever it likes: the entry says where.
        let at = (at + usize::from(entry[0])) % queue.len();
        queue[at].copy_from_slice(entry);
        let before = ring.ci();
        let mut taken = 0;
        while taken < BUDGET && ring.is_ours(queue[ring.index()][OWNER_OFFSET]) {
            let event = Event::decode(&queue[ring.index()]);
            assert!(!format!("{event:?}").is_empty());
            ring.advance();
            taken += 1;
        }
        assert_eq!(ring.ci().wrapping_sub(before), taken);
        assert_eq!(ring.doorbell(7) >> 24, 7);
        // Nothing new was written: an entry has one owner in each pass.
        assert!(taken <= 2 * ring.entries());
    }
});
