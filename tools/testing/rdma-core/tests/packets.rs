// SPDX-License-Identifier: GPL-2.0

//! Packets and signatures from `wqe/` and from rdma-core's mlx5 provider.

#![allow(missing_docs)]

mod common;

use common::{bytes, check_same, check_valid, number, spot, Spot};
use mlx5_pure::wqe::*;
use mlx5_rdma_core::provider::{self, Kind, Op, QueuePair, Work};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

const BLOCKS: usize = 32;

/// One packet, in parts.
#[derive(Clone, Debug)]
struct Packet {
    parts: Vec<Vec<u8>>,
    lkey: u32,
    inline: bool,
    extended: bool,
    list: bool,
    checksums: bool,
    /// For packets that the device cuts.
    header: Vec<u8>,
    mss: u16,
}

fn packets() -> impl Strategy<Value = Vec<Packet>> {
    // Whoever copies a header expects it whole in the first part.
    let parts = (vec(any::<u8>(), 18..80), vec(vec(any::<u8>(), 0..60), 0..4)).prop_map(
        |(first, mut rest)| {
            rest.insert(0, first);
            rest
        },
    );
    let bits = any::<(bool, bool, bool, bool)>();
    let cut = (vec(any::<u8>(), 14..120), 1_u16..);
    let packet = (parts, any::<u32>(), bits, cut).prop_map(
        |(parts, lkey, (inline, extended, list, checksums), (header, mss))| Packet {
            parts,
            lkey,
            inline,
            extended,
            list,
            checksums,
            header,
            mss,
        },
    );
    vec(packet, 1..12)
}

impl Packet {
    fn flags(&self) -> u32 {
        [
            (self.inline, provider::INLINE),
            (self.extended, provider::EXTENDED),
            (self.list, provider::LIST),
            (self.checksums, provider::CHECKSUMS),
        ]
        .iter()
        .filter(|(set, _)| *set)
        .fold(0, |flags, (_, flag)| flags | flag)
    }

    fn slices(&self) -> Vec<&[u8]> {
        self.parts.iter().map(Vec::as_slice).collect()
    }

    fn checksums(&self) -> Checksums {
        Checksums {
            l3: self.checksums,
            l4: self.checksums,
            ..Checksums::default()
        }
    }

    /// Adds what is left of the packet behind `skip` bytes of its first part.
    fn rest<T: Transport>(&self, wqe: Wqe<'_, T, build::Gather>, skip: usize) -> Posted {
        let mut parts = self.slices();
        parts[0] = &parts[0][skip..];
        let wqe = if self.inline {
            wqe.inline_parts(&parts)
        } else {
            let list: Vec<_> = parts
                .iter()
                .map(|part| Sge::new(part.as_ptr() as u64, self.lkey, part.len() as u32).unwrap())
                .collect();
            wqe.data_list(&list)
        };
        wqe.finish_checked().unwrap()
    }
}

/// Posts what `post` posts, and with `ours`, and compares.
fn compare<T: Transport>(
    theirs: &mut QueuePair,
    own: &Config,
    producer: &mut Producer,
    flags: Flags,
    work: &Work<'_>,
    ours: impl FnOnce(&mut SendQueue<'_, T>, Flags),
) -> Result<(), TestCaseError> {
    let mut memory = [[0; BLOCK]; BLOCKS];
    theirs.clear();
    let their_posted = theirs.post(work);
    prop_assert!(their_posted.is_ok(), "{their_posted:?}");
    let mut queue = SendQueue::<T>::new(&mut memory, own, *producer).unwrap();
    let first = producer.pi;
    ours(&mut queue, flags);
    *producer = queue.producer();
    // All WQEs of the request.
    let mut at = first;
    while at != producer.pi {
        let wqe = bytes(queue.wqe(at).unwrap());
        let spot = Spot {
            pi: at,
            qpn: own.qpn,
            pd: own.pd,
        };
        check_valid::<T>(&wqe, spot)?;
        at = at.wrapping_add(wqe.len().div_ceil(BLOCK) as u16);
    }
    check_same(memory.as_flattened(), theirs.ring().as_flattened())?;
    prop_assert_eq!(producer.pi, their_posted.unwrap().pi as u16);
    producer.ci = producer.pi;
    Ok(())
}

fn start(at: Spot) -> (Config, Producer) {
    let producer = Producer {
        pi: at.pi,
        ci: at.pi,
    };
    (common::config(at, false), producer)
}

fn domain() -> impl Strategy<Value = Dif> {
    let block = proptest::sample::select(
        &[
            psv::BlockSize::B512,
            psv::BlockSize::B520,
            psv::BlockSize::B4048,
            psv::BlockSize::B4096,
            psv::BlockSize::B4160,
        ][..],
    );
    let guard = prop_oneof![Just(psv::Guard::T10DifCrc), Just(psv::Guard::IpChecksum)];
    let escape = prop_oneof![
        Just(psv::Escape::None),
        Just(psv::Escape::AppTag),
        Just(psv::Escape::AppAndRefTag),
    ];
    // Few values, so that both domains have the same at times.
    let tags = (0..2_u16, 0..2_u32, any::<(bool, bool)>());
    (block, guard, escape, number(), tags).prop_map(
        |(block, guard, escape, psv, (app_tag, ref_tag, (seed_ones, ref_increment)))| Dif {
            block,
            psv: Psv {
                index: psv,
                pd: Number::low(0),
            },
            guard,
            seed_ones,
            app_tag,
            ref_tag,
            ref_increment,
            escape,
            // rdma-core knows no other.
            app_tag_mask: 0xffff,
        },
    )
}

fn of_verbs(dif: Option<&Dif>) -> provider::Dif {
    let Some(dif) = dif else {
        return provider::Dif::default();
    };
    provider::Dif {
        there: 1,
        block_size: match dif.block {
            psv::BlockSize::B512 => 0,
            psv::BlockSize::B520 => 1,
            psv::BlockSize::B4048 => 2,
            psv::BlockSize::B4096 => 3,
            psv::BlockSize::B4160 => 4,
            psv::BlockSize::G1 => unreachable!("verbs have no blocks of 1 GB"),
        },
        psv: dif.psv.index.get(),
        kind: u32::from(dif.guard == psv::Guard::IpChecksum),
        bg: if dif.seed_ones { 0xffff } else { 0 },
        app_tag: dif.app_tag,
        ref_tag: dif.ref_tag,
        flags: u32::from(dif.ref_increment)
            | match dif.escape {
                psv::Escape::None => 0,
                psv::Escape::AppTag => 1 << 1,
                psv::Escape::AppAndRefTag => 1 << 2,
            },
    }
}

proptest! {
    #[test]
    fn ethernet(at in spot(), packets in packets(), l2: bool) {
        let mut config = provider::Config::new(Kind::Raw, at.qpn.get(), at.pi);
        config.min_inline = if l2 { 18 } else { 0 };
        let skip = config.min_inline as usize;
        let mut theirs = QueuePair::new(config, BLOCKS);
        let (own, mut producer) = start(at);
        for mut packet in packets {
            // rdma-core sends one entry twice if it is as long as the header that is copied.
            packet.list |= packet.parts[0].len() == skip;
            let mut places = Vec::new();
            let slices = packet.slices();
            let work = Work::new(Op::Send, packet.flags())
                .copied(&slices, packet.lkey, &mut places);
            compare::<Raw>(&mut theirs, &own, &mut producer, Flags::NONE, &work, |queue, flags| {
                let eth = Eth {
                    header: if l2 { Header::Inline(&packet.parts[0][..18]) } else { Header::None },
                    checksums: packet.checksums(),
                    ..Eth::default()
                };
                let wqe = queue.start(flags).unwrap().send(&eth).unwrap();
                let _ = packet.rest(wqe, skip);
            })?;
        }
    }

    /// rdma-core puts the data at a wrong place if the header wraps, or inline data follow: not
    /// compared.
    #[test]
    fn segmentation(at in spot(), packets in packets()) {
        let config = provider::Config::new(Kind::Raw, at.qpn.get(), at.pi);
        let mut theirs = QueuePair::new(config, BLOCKS);
        let (own, mut producer) = start(at);
        for mut packet in packets {
            packet.inline = false;
            let room = BLOCK * (BLOCKS - usize::from(producer.pi) % BLOCKS);
            // Behind the control segment and 14 bytes.
            packet.header.truncate((room - 16 - 14).max(14));
            let mut places = Vec::new();
            let slices = packet.slices();
            let mut work = Work::new(Op::Tso, packet.flags())
                .copied(&slices, packet.lkey, &mut places)
                .header(&packet.header);
            work.mss = packet.mss.into();
            // One entry is not looked at for the end of the queue.
            if 16 + 14 + packet.header.len() > room - 16 && packet.parts.len() == 1 {
                continue;
            }
            compare::<Raw>(&mut theirs, &own, &mut producer, Flags::NONE, &work, |queue, flags| {
                let lso = Lso {
                    header: &packet.header,
                    mss: packet.mss,
                    trailer: None,
                    checksums: packet.checksums(),
                    swp: None,
                    metadata: 0,
                };
                let wqe = queue.start(flags).unwrap().lso(&lso).unwrap();
                let _ = packet.rest(wqe, 0);
            })?;
        }
    }

    #[test]
    fn ipoib(at in spot(), packets in packets(), peer in number(), qkey: u32) {
        let config = provider::Config::new(Kind::UdUnderlay, at.qpn.get(), at.pi);
        let mut theirs = QueuePair::new(config, BLOCKS);
        let (own, mut producer) = start(at);
        let address = provider::Address { dlid: 7, ..provider::Address::default() };
        let path = Path::Ib { dlid: 7, sl: 0, path_bits: 0, grh: None };
        let handle = AddressHandle::new(&path, 0).unwrap();
        for mut packet in packets {
            packet.extended = false;
            let mut places = Vec::new();
            let slices = packet.slices();
            let mut work = Work::new(Op::Send, packet.flags())
                .copied(&slices, packet.lkey, &mut places);
            (work.peer, work.peer_key) = (peer.get(), qkey.into());
            work.av = address.vector().unwrap();
            let skip = if packet.inline { 18 } else { 4 };
            compare::<UdOffload>(
                &mut theirs, &own, &mut producer, Flags::NONE, &work,
                |queue, flags| {
                    let eth = Eth {
                        header: Header::Inline(&packet.parts[0][..skip]),
                        checksums: packet.checksums(),
                        ..Eth::default()
                    };
                    let wqe = queue.start(flags).unwrap().to(&handle, Datagram { qpn: peer, qkey });
                    let _ = packet.rest(wqe.send(&eth).unwrap(), skip);
                },
            )?;
        }
    }

    #[test]
    fn signatures(
        at in spot(),
        mkey: u32,
        entries in vec((any::<u64>(), 0..1_u32 << 24, any::<u32>()), 1..20),
        mem in option::of(domain()),
        wire in option::of(domain()),
        check_mask: u8,
    ) {
        prop_assume!(mem.is_some() || wire.is_some());
        let at = Spot { pd: Number::low(0), ..at };
        let config = provider::Config::new(Kind::Rc, at.qpn.get(), at.pi);
        let mut theirs = QueuePair::new(config, BLOCKS);
        let (own, mut producer) = start(at);
        let list: Vec<_> = entries
            .iter()
            .map(|&(addr, length, lkey)| provider::Sge { addr, length, lkey })
            .collect();
        let flags = provider::EXTENDED | provider::SIGNALED;
        let mut work = Work::new(Op::Signature, flags).list(&list);
        work.mkey = mkey;
        work.check_mask = check_mask.into();
        work.mem = of_verbs(mem.as_ref());
        work.wire = of_verbs(wire.as_ref());
        compare::<Rc>(&mut theirs, &own, &mut producer, Flags::SIGNALED, &work, |queue, flags| {
            let klms: Vec<_> = entries
                .iter()
                .map(|&(addr, bytes, key)| Klm::new(addr, key, bytes).unwrap())
                .collect();
            let patch = MkeyPatch::new()
                .unmarked_key(mkey as u8, None)
                .variant(mkey as u8)
                .free(false)
                .access_beside_local_read(Access::default())
                .atomics(false)
                .length(entries.iter().map(|entry| u64::from(entry.1)).sum())
                .bsf(true);
            let bsf = Bsf {
                data_size: u32::MAX,
                check_mask,
                memory: mem,
                wire,
            };
            let umr = Umr {
                mkey,
                patch,
                translations: Translations::Klms(&klms),
                place: Place::WithBsf(&bsf),
                ..Umr::default()
            };
            // One completion for all: that of the last.
            let wqe = queue.start(Flags::NONE).unwrap().umr(&umr).unwrap();
            let _ = wqe.finish_checked().unwrap();
            let domains: Vec<_> = [mem, wire].into_iter().flatten().collect();
            for (index, dif) in domains.iter().enumerate() {
                let last = index + 1 == domains.len();
                let flags = if last { flags } else { Flags::NONE };
                let set = SetPsv {
                    psv: dif.psv,
                    block_guard: if dif.seed_ones { 0xffff } else { 0 },
                    app_tag: dif.app_tag,
                    ref_tag: dif.ref_tag,
                };
                let wqe = queue.start(flags.fenced(Fence::Small)).unwrap().set_psv(&set).unwrap();
                let _ = wqe.finish_checked().unwrap();
            }
        })?;
    }
}
