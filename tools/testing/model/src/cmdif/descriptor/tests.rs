// SPDX-License-Identifier: GPL-2.0

use std::ffi::CString;
use std::fs::File;

use nix::sys::memfd::memfd_create;
use nix::sys::memfd::MFdFlags;
use proptest::prelude::*;

use super::*;
use crate::vfio_user::dma;

const RAM: u64 = 1 << 20;

fn memory() -> Memory {
    let name = CString::new("guest").expect("no NUL");
    let file = File::from(memfd_create(name.as_c_str(), MFdFlags::MFD_CLOEXEC).expect("memfd"));
    file.set_len(RAM).expect("size");
    let mut m = Memory::default();
    let range = dma::Range::new(0, RAM).expect("range");
    let request = dma::Request {
        range,
        read: true,
        write: true,
        offset: 0,
    };
    m.map(request, Some(file.into())).expect("map");
    m
}

/// A descriptor without mailboxes, signed.
fn descriptor(change: impl Fn(&mut [u8; DESCRIPTOR])) -> Descriptor {
    let mut raw = [0; DESCRIPTOR];
    raw[0] = TYPE;
    raw[4..8].copy_from_slice(&16u32.to_be_bytes());
    raw[0x38..0x3c].copy_from_slice(&16u32.to_be_bytes());
    raw[TOKEN] = 7;
    raw[OWNER] = 1;
    change(&mut raw);
    raw[SIGNATURE] = 0;
    raw[SIGNATURE] = !xor(&raw);
    Descriptor::new(raw)
}

fn block(m: &Memory, at: u64, number: u32, next: u64, token: u8, fill: u8, signed: bool) {
    let mut b = [0; BLOCK];
    b[..BLOCK_DATA].fill(fill);
    b[BLOCK_NEXT..BLOCK_NEXT + 8].copy_from_slice(&next.to_be_bytes());
    b[BLOCK_NUMBER..BLOCK_NUMBER + 4].copy_from_slice(&number.to_be_bytes());
    b[BLOCK_TOKEN] = token;
    if signed {
        b[BLOCK_CTRL_SIGNATURE] = !xor(&b[0x200..=BLOCK_TOKEN]);
        b[BLOCK_SIGNATURE] = !xor(&b[..BLOCK_SIGNATURE]);
    }
    m.write(at, &b).expect("in memory");
}

fn rule<T: std::fmt::Debug>(r: Result<T, Refusal>) -> (Rule, Delivery) {
    let r = r.expect_err("refused");
    (r.rule, r.delivery)
}

#[test]
fn what_is_wrong_with_a_descriptor() {
    assert_eq!(descriptor(|_| {}).check(), Ok(()));
    type Change = fn(&mut [u8; DESCRIPTOR]);
    let wrong: [(Change, Rule, Delivery); 9] = [
        (|d| d[0] = 6, Rule::DescriptorType, Delivery(0x10)),
        (|d| d[1] = 1, Rule::DescriptorReserved, Delivery(0x9)),
        (|d| d[OWNER] = 3, Rule::DescriptorReserved, Delivery(0x9)),
        (|d| d[TOKEN] = 0, Rule::Token, Delivery(0x2)),
        (|d| d[7] = 7, Rule::Length, Delivery(0x7)),
        (|d| d[4] = 0xff, Rule::Length, Delivery(0x7)),
        (|d| d[0x3b] = 0, Rule::Length, Delivery(0x8)),
        (|d| d[0x0f] = 1, Rule::MailboxPointer, Delivery(0x5)),
        (|d| d[0x36] = 2, Rule::MailboxPointer, Delivery(0x4)),
    ];
    for (change, want, delivery) in wrong {
        assert_eq!(rule(descriptor(change).check()), (want, delivery));
    }
    let mut unsigned = descriptor(|_| {});
    unsigned.raw[SIGNATURE] ^= 1;
    assert_eq!(rule(unsigned.check()), (Rule::Signature, Delivery(0x1)));
    // Input that needs a mailbox and has none.
    assert_eq!(
        rule(descriptor(|d| d[7] = 17).check()),
        (Rule::MailboxPointer, Delivery(0x5))
    );
}

#[test]
fn a_completed_descriptor_is_signed_and_software_s() {
    let raw = descriptor(|_| {}).completed(&[1, 2, 3], 9, Delivery(0x5));
    assert_eq!(xor(&raw), 0xff);
    assert_eq!((raw[OWNER], raw[TOKEN]), (0xa, 9));
    assert_eq!(raw[OUT_INLINE..OUT_INLINE + 4], [1, 2, 3, 0]);
}

#[test]
fn lengths_and_blocks() {
    for (len, want) in [
        (8, 0),
        (16, 0),
        (17, 1),
        (528, 1),
        (529, 2),
        (16 + 12 * 512, 12),
    ] {
        assert_eq!(blocks(len), want, "{len}");
    }
}

#[test]
fn a_chain_is_read_in_order() {
    let m = memory();
    block(&m, 0x1000, 0, 0x3000, 5, 0xaa, false);
    // Longer than needed: its end is not looked at.
    block(&m, 0x3000, 1, 0x5000, 5, 0xbb, true);
    let (at, data) = walk(&m, 0x1000, 16 + 512 + 3, 5, false, Direction::In).expect("chain");
    assert_eq!(at, [0x1000, 0x3000]);
    assert_eq!(data.len(), 515);
    assert_eq!((data[511], data[512]), (0xaa, 0xbb));
    let (at, data) = walk(&m, 0x1000, 529, 5, false, Direction::Out).expect("chain");
    assert_eq!((at.len(), data.len()), (2, 0));
    // With checksums on, signatures must be there.
    let r = walk(&m, 0x1000, 17, 5, true, Direction::In);
    assert_eq!(rule(r), (Rule::Signature, Delivery::SIGNATURE));
}

#[test]
fn what_is_wrong_with_a_chain() {
    let m = memory();
    let go = |len, token, direction| rule(walk(&m, 0x1000, len, token, false, direction));
    block(&m, 0x1000, 0, 0x1000, 5, 0, false);
    // A circle: the second block says that it is the first.
    assert_eq!(
        go(MAX_LENGTH, 5, Direction::In),
        (Rule::BlockNumber, Delivery(0x3))
    );
    assert_eq!(go(17, 6, Direction::In), (Rule::Token, Delivery(0x2)));
    block(&m, 0x1000, 0, RAM, 5, 0, false);
    assert_eq!(
        go(529, 5, Direction::In),
        (Rule::DmaUnmapped, Delivery(0x5))
    );
    assert_eq!(
        go(529, 5, Direction::Out),
        (Rule::DmaUnmapped, Delivery(0x4))
    );
    block(&m, 0x1000, 0, 0, 5, 0, false);
    assert_eq!(
        go(529, 5, Direction::In),
        (Rule::MailboxPointer, Delivery(0x5))
    );
    block(&m, 0x1000, 0, 0x3008, 5, 0, false);
    assert_eq!(
        go(529, 5, Direction::Out),
        (Rule::MailboxPointer, Delivery(0x4))
    );
    block(&m, 0x1000, 0, 0, 5, 0, true);
    m.write(0x1000, &[1]).expect("in memory");
    assert_eq!(go(17, 5, Direction::In), (Rule::Signature, Delivery(0x1)));
    block(&m, 0x1000, 0, 0, 5, 0, false);
    m.write(0x1200, &[1]).expect("in memory");
    assert_eq!(
        go(17, 5, Direction::In),
        (Rule::DescriptorReserved, Delivery(0x9))
    );
}

#[test]
fn output_goes_where_the_chain_is() {
    let m = memory();
    for (i, at) in [(0, 0x1000), (1, 0x2000)] {
        block(&m, at, i, 0x2000, 5, 0, false);
    }
    fill(&m, &[0x1000, 0x2000], &[7; 513], 6, true).expect("in memory");
    assert_eq!(
        (m.load(0x11ff), m.load(0x2000), m.load(0x2001)),
        (Ok(7), Ok(7), Ok(0))
    );
    let mut b = [0; BLOCK];
    m.read(0x2000, &mut b).expect("in memory");
    assert_eq!(check_block(&b, 1, 6, true), Ok(()));
    assert!(fill(&m, &[RAM], &[1], 6, false).is_err());
}

proptest! {
    #[test]
    fn any_descriptor_is_handled(raw in proptest::array::uniform32(any::<u8>()), more in proptest::array::uniform32(any::<u8>())) {
        let mut all = [0; DESCRIPTOR];
        all[..32].copy_from_slice(&raw);
        all[32..].copy_from_slice(&more);
        let d = Descriptor::new(all);
        if d.check().is_ok() {
            prop_assert!(d.in_len() <= MAX_LENGTH && d.out_len() <= MAX_LENGTH);
        }
        let done = d.completed(&raw, d.token(), Delivery(more[0] & 0x7f));
        prop_assert_eq!(xor(&done), 0xff);
        prop_assert_eq!(done[OWNER] & 1, 0);
    }

    /// Blocks of noise, linked at random: the walk ends, and never returns more than was asked.
    #[test]
    fn any_chain_ends(
        links in proptest::collection::vec((0u64..16, 0u32..4, 0u8..3), 16),
        start in 0u64..17,
        len in 0u32..20_000,
    ) {
        let m = memory();
        for (i, (next, number, token)) in links.iter().enumerate() {
            block(&m, (i as u64 + 1) * 0x1000, *number, (next + 1) * 0x1000, *token, 0, false);
        }
        if let Ok((at, data)) = walk(&m, start * 0x1000, len, 1, false, Direction::In) {
            prop_assert_eq!(at.len(), blocks(len));
            prop_assert_eq!(data.len(), (len as usize).saturating_sub(INLINE));
        }
    }
}
