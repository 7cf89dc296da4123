// SPDX-License-Identifier: GPL-2.0

use nix::sys::eventfd::EfdFlags;
use nix::sys::eventfd::EventFd;

use super::*;

const EVENTFD: u32 = uapi::VFIO_IRQ_SET_DATA_EVENTFD | uapi::VFIO_IRQ_SET_ACTION_TRIGGER;
const NONE: u32 = uapi::VFIO_IRQ_SET_DATA_NONE | uapi::VFIO_IRQ_SET_ACTION_TRIGGER;

fn event() -> (EventFd, OwnedFd) {
    let e = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK).expect("eventfd");
    let fd = e.as_fd().try_clone_to_owned().expect("dup");
    (e, fd)
}

fn set(flags: u32, start: u32, count: u32, fds: Vec<OwnedFd>) -> IrqSet {
    IrqSet {
        flags,
        index: uapi::VFIO_PCI_MSIX_IRQ_INDEX,
        start,
        count,
        fds,
        data: vec![1; 8],
    }
}

#[test]
fn first_without_then_with_descriptors_then_replaced() {
    let mut v = Vectors::new(4);
    v.set(set(EVENTFD, 0, 4, vec![]))
        .expect("QEMU starts like this");
    assert!(!v.raise(0));
    let (a, a_fd) = event();
    let (b, b_fd) = event();
    v.set(set(EVENTFD, 1, 2, vec![a_fd, b_fd])).expect("assign");
    assert!(v.raise(1) && v.raise(2) && v.raise(2));
    assert_eq!(a.read(), Ok(1));
    assert_eq!(b.read(), Ok(2), "signals coalesce in the counter");
    assert!(!v.raise(0) && !v.raise(3) && !v.raise(4));
    let (c, c_fd) = event();
    v.set(set(EVENTFD, 1, 1, vec![c_fd]))
        .expect("replace a live one");
    assert!(v.raise(1));
    assert_eq!((a.read(), c.read()), (Err(Errno::EAGAIN), Ok(1)));
    v.set(set(EVENTFD, 1, 1, vec![])).expect("take away");
    assert!(!v.assigned(1) && v.assigned(2));
    v.set(set(NONE, 0, 0, vec![])).expect("turn off");
    assert!(!v.assigned(2));
}

#[test]
fn triggers_by_the_client() {
    let mut v = Vectors::new(2);
    let (a, a_fd) = event();
    v.set(set(EVENTFD, 0, 1, vec![a_fd])).expect("assign");
    v.set(set(NONE, 0, 2, vec![])).expect("trigger");
    let bools = uapi::VFIO_IRQ_SET_DATA_BOOL | uapi::VFIO_IRQ_SET_ACTION_TRIGGER;
    v.set(set(bools, 0, 2, vec![])).expect("trigger");
    assert_eq!(a.read(), Ok(2));
}

#[test]
fn refuses_what_vfio_does_not_have() {
    let mut v = Vectors::new(2);
    for (flags, start, count, error) in [
        (0, 0, 1, Errno::EINVAL),
        (uapi::VFIO_IRQ_SET_ACTION_TRIGGER, 0, 1, Errno::EINVAL),
        (
            EVENTFD | uapi::VFIO_IRQ_SET_ACTION_MASK,
            0,
            1,
            Errno::EINVAL,
        ),
        (uapi::VFIO_IRQ_SET_ACTION_MASK, 0, 1, Errno::EOPNOTSUPP),
        (EVENTFD, 1, 2, Errno::EINVAL),
        (EVENTFD, u32::MAX, u32::MAX, Errno::EINVAL),
    ] {
        assert_eq!(
            v.set(set(flags, start, count, vec![])),
            Err(error),
            "{flags:#x}"
        );
    }
}

#[test]
fn a_full_counter_and_a_blocking_descriptor_do_not_block() {
    let mut v = Vectors::new(1);
    let e = EventFd::from_value_and_flags(0, EfdFlags::empty()).expect("eventfd");
    e.write(u64::MAX - 1).expect("fill");
    let fd = e.as_fd().try_clone_to_owned().expect("dup");
    v.set(set(EVENTFD, 0, 1, vec![fd])).expect("assign");
    assert!(v.raise(0));
}
