// SPDX-License-Identifier: GPL-2.0

use std::ffi::CString;
use std::fs::File;

use nix::sys::memfd::memfd_create;
use nix::sys::memfd::MFdFlags;

use super::*;
use crate::vfio_user::dma;

fn memory() -> Memory {
    let name = CString::new("guest").expect("no NUL");
    let file = File::from(memfd_create(name.as_c_str(), MFdFlags::MFD_CLOEXEC).expect("memfd"));
    file.set_len(1 << 16).expect("size");
    let mut m = Memory::default();
    let range = dma::Range::new(0, 1 << 16).expect("range");
    let request = dma::Request {
        range,
        read: true,
        write: true,
        offset: 0,
    };
    m.map(request, Some(file.into())).expect("map");
    m
}

fn eq(log_size: u32, page_offset: u32, pages: &[u64]) -> Eq {
    Eq {
        vector: 3,
        uar: 16,
        mask: [1 << 0x0a, 1 << 1, 0, 0],
        log_size,
        ci: 0,
        pi: 0,
        armed: false,
        overrun: false,
        log_page_size: 12,
        page_offset,
        pages: pages.to_vec(),
        backlog: VecDeque::new(),
    }
}

#[test]
fn phase_changes_with_each_lap() {
    let m = memory();
    let mut q = eq(2, 0, &[0x3000]);
    let event = Event::new(0x0a, 1, &[0, 0, 0, 8]);
    for n in 0..12u32 {
        assert_eq!(q.post(&m, &event), Ok(()));
        let at = 0x3000 + u64::from(n % 4) * 64;
        assert_eq!(m.load(at + 0x3f), Ok((n / 4 % 2) as u8), "entry {n}");
        q.ci = q.pi;
    }
    let mut eqe = [0; EQE];
    m.read(0x3000, &mut eqe).expect("in memory");
    assert_eq!(
        (eqe[1], eqe[3], &eqe[0x20..0x24]),
        (0x0a, 1, &[0, 0, 0, 8][..])
    );
}

#[test]
fn a_full_queue_stays_failed() {
    let m = memory();
    let mut q = eq(1, 0, &[0x3000]);
    let event = Event::new(9, 0, &[]);
    assert_eq!((q.post(&m, &event), q.post(&m, &event)), (Ok(()), Ok(())));
    assert_eq!(q.post(&m, &event), Err(PostError::Overrun));
    q.ci = q.pi;
    assert_eq!(q.post(&m, &event), Err(PostError::Overrun));
    assert_eq!(ifc::get(&q.context(), field!("eqc", "status")), 0xa);
}

#[test]
fn counters_wrap_at_24_bits() {
    let m = memory();
    let mut q = eq(2, 0, &[0x3000]);
    (q.pi, q.ci) = (COUNTER_MASK, COUNTER_MASK - 1);
    assert_eq!(q.pending(), 1);
    q.post(&m, &Event::new(9, 0, &[])).expect("room");
    assert_eq!((q.pi, q.pending()), (0, 2));
}

#[test]
fn buffers_over_several_pages_with_an_offset() {
    let m = memory();
    // 128 entries, 8 KiB, from 0x40 into the first of three pages.
    let q = eq(7, 0x40, &[0x2000, 0x9000, 0x5000]);
    assert_eq!(q.entry(0), 0x2040);
    assert_eq!(q.entry(62), 0x2fc0);
    assert_eq!(q.entry(63), 0x9000);
    assert_eq!(q.entry(127), 0x5000);
    assert_eq!(
        (q.extent(0), q.extent(1), q.extent(2)),
        ((0x2040, 0xfc0), (0x9000, 0x1000), (0x5000, 0x40))
    );
    for i in 0..128 {
        m.store(q.entry(i) + 0x3f, 1).expect("in memory");
    }
    assert_eq!(q.find_uninitialised(&m), Ok(None));
    m.store(q.entry(127) + 0x3f, 0).expect("in memory");
    assert_eq!(q.find_uninitialised(&m), Ok(Some(127)));
    m.store(0x203f, 1).expect("in memory");
    let gone = eq(7, 0, &[0x2000, 1 << 20]);
    assert!(gone.find_uninitialised(&m).is_err());
}

#[test]
fn masks_and_context() {
    let mut q = eq(8, 0, &[]);
    assert!(q.takes(0x0a) && q.takes(65) && !q.takes(0x0b) && !q.takes(255));
    q.armed = true;
    let c = q.context();
    assert_eq!(ifc::get(&c, field!("eqc", "st")), 0x9);
    assert_eq!(ifc::get(&c, field!("eqc", "intr")), 3);
    assert_eq!(ifc::get(&c, field!("eqc", "log_eq_size")), 8);
}
