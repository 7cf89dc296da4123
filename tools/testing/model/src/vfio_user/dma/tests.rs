// SPDX-License-Identifier: GPL-2.0

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::fs::FileExt;

use nix::sys::memfd::memfd_create;
use nix::sys::memfd::MFdFlags;
use proptest::prelude::*;

use super::*;

const PAGE: u64 = 4096;

fn memfd(size: u64) -> File {
    let name = CString::new("guest").expect("no NUL");
    let file = File::from(memfd_create(name.as_c_str(), MFdFlags::MFD_CLOEXEC).expect("memfd"));
    file.set_len(size).expect("size");
    file
}

fn request(first: u64, size: u64, offset: u64) -> Request {
    let range = Range::new(first, size).expect("range");
    Request {
        range,
        read: true,
        write: true,
        offset,
    }
}

fn fd(file: &File) -> Option<OwnedFd> {
    Some(file.try_clone().expect("dup").into())
}

#[test]
fn memory_above_4_gib_is_a_second_mapping_of_the_file() {
    let file = memfd(8 * PAGE);
    let mut m = Memory::default();
    m.map(request(0, 4 * PAGE, 0), fd(&file)).expect("low");
    m.map(request(4 << 30, 4 * PAGE, 4 * PAGE), fd(&file))
        .expect("high");
    m.write((4 << 30) + 5, b"high").expect("mapped");
    let mut got = [0; 4];
    file.read_exact_at(&mut got, 4 * PAGE + 5).expect("file");
    assert_eq!(&got, b"high");
    m.store(7, 0x5a).expect("mapped");
    assert_eq!(m.load(7), Ok(0x5a));
    assert_eq!(
        m.read(4 * PAGE - 2, &mut got),
        Err(Fault::Unmapped(4 * PAGE))
    );
    // One map of the file for both.
    assert_eq!(m.files.len(), 1);
}

#[test]
fn thousands_of_mappings_with_a_descriptor_each() {
    const PAGES: u64 = 20_000;
    let file = memfd(PAGES * PAGE);
    let mut m = Memory::default();
    // Every page at an address of its own, in reverse, as a vIOMMU may do it.
    for i in 0..PAGES {
        m.map(request((PAGES - i) * PAGE, PAGE, i * PAGE), fd(&file))
            .expect("map");
    }
    assert_eq!(m.len(), PAGES as usize);
    // An access over a border goes to two places of the file.
    m.write(2 * PAGE - 1, &[1, 2]).expect("mapped");
    let mut got = [0; 1];
    file.read_exact_at(&mut got, (PAGES - 1) * PAGE + PAGE - 1)
        .expect("file");
    assert_eq!(got, [1]);
    file.read_exact_at(&mut got, (PAGES - 2) * PAGE)
        .expect("file");
    assert_eq!(got, [2]);
    for i in 0..PAGES {
        m.unmap(Range::new((i + 1) * PAGE, PAGE).expect("range"))
            .expect("unmap");
    }
    assert!(m.is_empty());
}

#[test]
fn ranges_may_end_at_the_end_of_the_address_space() {
    assert_eq!(Range::new(u64::MAX, 2), None);
    assert_eq!(Range::new(5, 0), None);
    let top = Range::new(u64::MAX - PAGE + 1, PAGE).expect("ends at 2^64");
    assert_eq!(top.last, u64::MAX);
    let file = memfd(PAGE);
    let mut m = Memory::default();
    m.map(
        Request {
            range: top,
            read: true,
            write: true,
            offset: 0,
        },
        fd(&file),
    )
    .expect("map");
    m.write(u64::MAX, &[9]).expect("last byte");
    assert!(m.write(u64::MAX, &[9, 9]).is_err());
    // What was never mapped can be unmapped.
    m.unmap(Range::new(0x1000, 0x1000).expect("range"))
        .expect("nothing there");
    m.unmap(Range::new(1 << 63, 1 << 63).expect("ends at 2^64"))
        .expect("unmap");
    m.unmap(Range::ALL).expect("nothing left");
    assert!(m.is_empty());
}

#[test]
fn refuses_what_cannot_be() {
    let file = memfd(2 * PAGE);
    let mut m = Memory::default();
    m.map(request(0x10000, 2 * PAGE, 0), fd(&file))
        .expect("map");
    for (first, size) in [(0x10000, 1), (0x11fff, 1), (0xf000, 0x1001), (0, 1 << 40)] {
        assert_eq!(
            m.map(request(first, size, 0), fd(&file)),
            Err(Errno::EEXIST)
        );
    }
    assert_eq!(
        m.map(request(0, 2 * PAGE, PAGE), fd(&file)),
        Err(Errno::EINVAL),
        "past the file"
    );
    assert_eq!(
        m.map(request(0, PAGE, u64::MAX), fd(&file)),
        Err(Errno::EINVAL)
    );
    for (first, size) in [(0x11000, PAGE), (0x10000, PAGE), (0, 0x10001)] {
        let cut = Range::new(first, size).expect("range");
        assert_eq!(m.unmap(cut), Err(Errno::EINVAL), "{first:#x}+{size:#x}");
    }
    assert_eq!(m.len(), 1);
}

#[test]
fn permissions_and_mappings_without_memory() {
    let file = memfd(PAGE);
    let mut m = Memory::default();
    m.map(
        Request {
            write: false,
            ..request(0, PAGE, 0)
        },
        fd(&file),
    )
    .expect("read-only");
    m.map(request(PAGE, PAGE, 0), None)
        .expect("without descriptor");
    let mut b = [0; 1];
    assert_eq!(m.read(0, &mut b), Ok(()));
    assert_eq!(m.write(0, &b), Err(Fault::Denied(0)));
    assert_eq!(m.read(PAGE, &mut b), Err(Fault::Unmapped(PAGE)));
    // Nothing of a write that does not fit is done.
    m.map(request(2 * PAGE, PAGE, 0), fd(&file)).expect("map");
    assert!(m.write(3 * PAGE - 1, &[7, 7]).is_err());
    assert_eq!(m.load(3 * PAGE - 1), Ok(0));
}

#[test]
fn a_file_opened_for_reading_can_be_mapped() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("rom");
    std::fs::write(&path, vec![3; PAGE as usize]).expect("file");
    let file = File::open(path).expect("open");
    let mut m = Memory::default();
    // A store through a mapping that the kernel made read-only would end the process.
    assert_eq!(m.map(request(0, PAGE, 0), fd(&file)), Err(Errno::EACCES));
    m.map(
        Request {
            write: false,
            ..request(0, PAGE, 0)
        },
        fd(&file),
    )
    .expect("map");
    assert_eq!(m.load(1), Ok(3));
}

proptest! {
    /// Against a list of single pages.
    #[test]
    fn behaves_like_a_page_table(
        steps in proptest::collection::vec((any::<bool>(), 0u64..24, 1u64..6), 1..60),
    ) {
        let file = memfd(32 * PAGE);
        let mut m = Memory::default();
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        for (map, first, count) in steps {
            let (start, size) = (first * PAGE, count * PAGE);
            if map {
                let free = (first..first + count).all(|p| !model.contains_key(&p));
                let done = m.map(request(start, size, start), fd(&file));
                prop_assert_eq!(done, if free { Ok(()) } else { Err(Errno::EEXIST) });
                if free {
                    model.extend((first..first + count).map(|p| (p, first)));
                }
            } else {
                let range = Range::new(start, size).expect("range");
                let inside = |p: u64| p >= first && p < first + count;
                // A mapping is known by its first page.
                let cut = model.iter().any(|(p, id)| {
                    inside(*p) && model.iter().any(|(q, other)| other == id && !inside(*q))
                });
                prop_assert_eq!(m.unmap(range), if cut { Err(Errno::EINVAL) } else { Ok(()) });
                if !cut {
                    model.retain(|p, _| !inside(*p));
                }
            }
            for page in 0..32 {
                let there = model.contains_key(&page);
                prop_assert_eq!(m.check(page * PAGE, PAGE as usize, true).is_ok(), there);
            }
        }
    }
}
