// SPDX-License-Identifier: GPL-2.0

//! The same WQEs from `wqe/` and from rdma-core's mlx5 provider, over random sequences of work requests
//! that wrap in the queue: its bytes, its doorbell record and its doorbell.
//!
//! Both queues are cleared before each request: rdma-core leaves some reserved fields as they were.

#![allow(missing_docs)]

mod common;

use common::{bytes, check_same, check_valid, number, remote, spot, Spot};
use mlx5_pure::wqe::*;
use mlx5_rdma_core::provider::{self, Kind, Op, QueuePair, Work};
use proptest::collection::vec;
use proptest::prelude::*;

const BLOCKS: usize = 32;

/// Data of a message.
#[derive(Clone, Debug)]
enum Data {
    List(Vec<(u64, u32, u32)>),
    Inline(Vec<Vec<u8>>),
}

/// What is posted.
#[derive(Clone, Debug)]
enum Request {
    Message {
        op: Op,
        general_id: u32,
        remote: Remote,
        data: Data,
    },
    Atomic {
        add: bool,
        remote: Remote,
        compare: u64,
        swap_add: u64,
        result: (u64, u32),
    },
    Bind {
        two: bool,
        mkey: u32,
        new_rkey: u32,
        lkey: u32,
        addr: u64,
        length: u32,
        access: u32,
        zero_based: bool,
    },
    LocalInval {
        rkey: u32,
    },
    List {
        mkey: u32,
        access: u32,
        entries: Vec<(u64, u32, u32)>,
    },
    Strided {
        mkey: u32,
        access: u32,
        repeat: u32,
        entries: Vec<(u64, u16, u16, u32)>,
    },
}

/// One call, by which interface, with which flags.
#[derive(Clone, Debug)]
struct Call {
    request: Request,
    extended: bool,
    list: bool,
    signaled: bool,
    solicited: bool,
    fence: bool,
    peer: Peer,
}

/// The other side of queue pairs that need one.
#[derive(Clone, Copy, Debug)]
struct Peer {
    number: Number,
    key: u64,
    stream: u16,
    address: provider::Address,
}

fn sges() -> impl Strategy<Value = Vec<(u64, u32, u32)>> {
    let length = prop_oneof![1 => Just(0), 9 => 0..1_u32 << 24];
    vec((any::<u64>(), length, any::<u32>()), 0..15)
}

fn data() -> impl Strategy<Value = Data> {
    prop_oneof![
        sges().prop_map(Data::List),
        vec(vec(any::<u8>(), 0..80), 0..5).prop_map(Data::Inline),
    ]
}

fn message(ops: &'static [Op]) -> impl Strategy<Value = Request> {
    let op = proptest::sample::select(ops);
    (op, any::<u32>(), remote(), data()).prop_map(|(op, general_id, remote, data)| {
        // A read has nothing to copy.
        let data = match (op, data) {
            (Op::Read, Data::Inline(_)) => Data::List(vec![]),
            (_, data) => data,
        };
        Request::Message {
            op,
            general_id,
            remote,
            data,
        }
    })
}

fn atomic() -> impl Strategy<Value = Request> {
    (
        any::<bool>(),
        remote(),
        any::<(u64, u64)>(),
        any::<(u64, u32)>(),
    )
        .prop_map(
            |(add, remote, (compare, swap_add), result)| Request::Atomic {
                add,
                remote: Remote {
                    addr: remote.addr & !7,
                    ..remote
                },
                compare,
                swap_add,
                result,
            },
        )
}

/// Rights of a memory window or key, as verbs have them.
fn access() -> impl Strategy<Value = u32> {
    0..16_u32
}

fn window() -> impl Strategy<Value = Request> {
    let length = prop_oneof![1 => Just(0), 4 => 0..=1_u32 << 31];
    let keys = any::<(u32, u32, u32)>();
    prop_oneof![
        (keys, any::<(bool, bool)>(), any::<u64>(), length, access()).prop_map(
            |((mkey, new_rkey, lkey), (two, zero_based), addr, length, access)| Request::Bind {
                two,
                mkey,
                new_rkey,
                lkey,
                addr,
                length,
                access,
                zero_based,
            }
        ),
        any::<u32>().prop_map(|rkey| Request::LocalInval { rkey }),
    ]
}

fn key() -> impl Strategy<Value = Request> {
    let entries = vec((any::<u64>(), 0..1_u32 << 24, any::<u32>()), 1..20);
    let strides = vec(any::<(u64, u16, u16, u32)>(), 1..20);
    prop_oneof![
        (any::<u32>(), access(), entries).prop_map(|(mkey, access, entries)| Request::List {
            mkey,
            access,
            entries
        }),
        (any::<u32>(), access(), any::<u32>(), strides).prop_map(
            |(mkey, access, repeat, entries)| {
                // One number of 16 bits is the distance from one to the next.
                let entries = entries
                    .into_iter()
                    .map(|(addr, bytes, skip, key)| (addr, bytes, skip & !bytes, key))
                    .collect();
                Request::Strided {
                    mkey,
                    access,
                    repeat,
                    entries,
                }
            }
        ),
    ]
}

fn address() -> impl Strategy<Value = provider::Address> {
    let bits = any::<(bool, bool, bool)>();
    let numbers = (any::<u16>(), 0..8_u8, 0..128_u8);
    (bits, numbers, common::grh(), any::<[u8; 6]>()).prop_map(
        |((ethernet, udp, global), (dlid, sl, path_bits), grh, mac)| provider::Address {
            ethernet,
            udp,
            // There is no RoCE without.
            global: global || ethernet,
            sl,
            path_bits,
            sgid_index: grh.sgid_index,
            hop_limit: grh.hop_limit,
            tclass: grh.tclass,
            flow_label: grh.flow_label,
            dlid,
            mac,
            dgid: grh.dgid,
        },
    )
}

fn peer() -> impl Strategy<Value = Peer> {
    (number(), any::<u64>(), any::<u16>(), address()).prop_map(|(number, key, stream, address)| {
        Peer {
            number,
            key,
            stream,
            address,
        }
    })
}

fn calls<R: Strategy<Value = Request>>(request: R) -> impl Strategy<Value = Vec<Call>> {
    let bits = any::<(bool, bool, bool, bool, bool)>();
    let call = (request, bits, peer()).prop_map(
        |(request, (extended, list, signaled, solicited, fence), peer)| Call {
            request,
            extended,
            list,
            signaled,
            solicited,
            fence,
            peer,
        },
    );
    vec(call, 1..20)
}

/// Byte and bit of an address vector that says that there is a GRH.
const GRH: (usize, u8) = (0x1c, 0x40);

impl Peer {
    /// rdma-core's address vector. On RoCE it leaves the GRH flag out, as what the device does not look
    /// at; the kernel's driver sets it there too, and so does the project.
    fn vector(&self) -> std::io::Result<[u8; 48]> {
        let mut av = self.address.vector()?;
        if self.address.ethernet {
            assert_eq!(av[GRH.0] & GRH.1, 0, "rdma-core sets it now");
            av[GRH.0] |= GRH.1;
        }
        Ok(av)
    }

    fn handle(&self) -> AddressHandle {
        let address = &self.address;
        let grh = Grh {
            dgid: address.dgid,
            sgid_index: address.sgid_index,
            flow_label: address.flow_label,
            hop_limit: address.hop_limit,
            tclass: address.tclass,
        };
        let path = if address.ethernet {
            Path::Roce {
                mac: address.mac,
                udp_sport: if address.udp {
                    address.udp_source_port()
                } else {
                    0
                },
                sl: address.sl,
                grh,
            }
        } else {
            Path::Ib {
                dlid: address.dlid,
                sl: address.sl,
                path_bits: address.path_bits,
                grh: address.global.then_some(grh),
            }
        };
        AddressHandle::new(&path, 0).unwrap()
    }
}

impl Call {
    fn flags(&self, fence_before: Fence) -> Flags {
        Flags {
            fence: if self.fence {
                Fence::SmallAndReads
            } else {
                fence_before
            },
            completion: if self.signaled {
                Completion::Always
            } else {
                Completion::OnError
            },
            solicited: self.solicited,
            dci_stream: 0,
        }
    }

    /// The fence of the next request: what comes after a UMR waits for it.
    fn fence_after(&self) -> Fence {
        match self.request {
            Request::Message { .. } | Request::Atomic { .. } => Fence::None,
            _ => Fence::Small,
        }
    }

    /// Posts with rdma-core.
    fn post(&self, kind: Kind, theirs: &mut QueuePair) -> std::io::Result<provider::Posted> {
        let mut flags = 0;
        for (set, flag) in [
            (self.extended, provider::EXTENDED),
            (self.list, provider::LIST),
            (self.signaled, provider::SIGNALED),
            (self.solicited, provider::SOLICITED),
            (self.fence, provider::FENCE),
        ] {
            if set {
                flags |= flag;
            }
        }
        let sges = |entries: &[(u64, u32, u32)]| -> Vec<_> {
            entries
                .iter()
                .map(|&(addr, length, lkey)| provider::Sge { addr, length, lkey })
                .collect()
        };
        let list;
        let mut places = Vec::new();
        let slices: Vec<&[u8]>;
        let strides: Vec<_>;
        let mut work = match &self.request {
            Request::Message {
                op,
                general_id,
                remote,
                data,
            } => {
                let mut work = match data {
                    Data::List(entries) => {
                        list = sges(entries);
                        Work::new(*op, flags).list(&list)
                    }
                    Data::Inline(parts) => {
                        slices = parts.iter().map(Vec::as_slice).collect();
                        let flags = flags | provider::INLINE;
                        Work::new(*op, flags).copied(&slices, 0, &mut places)
                    }
                };
                work.general_id = *general_id;
                (work.remote_addr, work.rkey) = (remote.addr, remote.rkey);
                work
            }
            Request::Atomic {
                add,
                remote,
                compare,
                swap_add,
                result,
            } => {
                list = sges(&[(result.0, 8, result.1)]);
                let op = if *add { Op::FetchAdd } else { Op::CompareSwap };
                let mut work = Work::new(op, flags).list(&list);
                (work.remote_addr, work.rkey) = (remote.addr, remote.rkey);
                (work.compare_add, work.swap) = if *add {
                    (*swap_add, 0)
                } else {
                    (*compare, *swap_add)
                };
                work
            }
            Request::Bind {
                two,
                mkey,
                new_rkey,
                lkey,
                addr,
                length,
                access,
                zero_based,
            } => {
                let mut work = Work::new(Op::Bind, flags);
                work.mw_type = if *two { 2 } else { 1 };
                (work.mkey, work.new_rkey, work.mr_lkey) = (*mkey, *new_rkey, *lkey);
                (work.mw_addr, work.mw_length) = (*addr, u64::from(*length));
                work.access = *access;
                if *zero_based {
                    work.access |= provider::access::ZERO_BASED;
                }
                work
            }
            Request::LocalInval { rkey } => {
                let mut work = Work::new(Op::LocalInval, flags);
                work.general_id = *rkey;
                work
            }
            Request::List {
                mkey,
                access,
                entries,
            } => {
                list = sges(entries);
                let mut work = Work::new(Op::MrList, flags).list(&list);
                (work.mkey, work.access) = (*mkey, *access);
                work
            }
            Request::Strided {
                mkey,
                access,
                repeat,
                entries,
            } => {
                strides = entries
                    .iter()
                    .map(|&(addr, bytes, skip, lkey)| provider::Stride {
                        addr,
                        bytes_count: bytes.into(),
                        bytes_skip: skip.into(),
                        lkey,
                    })
                    .collect();
                let mut work = Work::new(Op::MrInterleaved, flags).strides(&strides);
                (work.mkey, work.access, work.repeat) = (*mkey, *access, *repeat);
                work
            }
        };
        let peer = &self.peer;
        (work.peer, work.peer_key) = (peer.number.get(), peer.key);
        if kind == Kind::Dci {
            work.stream = peer.stream.into();
        }
        work.av = peer.vector()?;
        theirs.post(&work)
    }
}

fn finish<T: Transport, S: build::Finishable>(wqe: Wqe<'_, T, S>) -> Posted {
    wqe.finish_checked().unwrap()
}

fn sge_list(entries: &[(u64, u32, u32)]) -> Vec<Sge> {
    entries
        .iter()
        .map(|&(addr, len, lkey)| Sge::new(addr, lkey, len).unwrap())
        .collect()
}

fn with_data<T: Transport>(wqe: Wqe<'_, T, build::Gather>, data: &Data) -> Posted {
    match data {
        Data::List(entries) => finish(wqe.data_list(&sge_list(entries))),
        Data::Inline(parts) => {
            let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
            finish(wqe.inline_parts(&parts))
        }
    }
}

/// Messages of transports that have all of them.
fn message_of<T, S>(wqe: Wqe<'_, T, S>, request: &Request) -> Posted
where
    T: build::Invalidates + transport::Reads,
    S: build::Operable,
{
    match request {
        Request::Message {
            op,
            general_id,
            remote,
            data,
        } => match op {
            Op::Send => with_data(wqe.send(), data),
            Op::SendImm => with_data(wqe.send_imm(*general_id), data),
            Op::SendInval => with_data(wqe.send_inval(*general_id), data),
            Op::Write => with_data(wqe.write(*remote), data),
            Op::WriteImm => with_data(wqe.write_imm(*remote, *general_id), data),
            Op::Read => match data {
                Data::List(entries) => finish(wqe.read(*remote).data_list(&sge_list(entries))),
                Data::Inline(_) => unreachable!("a read has nothing to copy"),
            },
            op => unreachable!("{op:?} is no message"),
        },
        Request::Atomic {
            add,
            remote,
            compare,
            swap_add,
            result,
        } => {
            let result = Local {
                addr: result.0,
                lkey: result.1,
            };
            let wqe = if *add {
                wqe.fetch_add(*remote, *swap_add, result)
            } else {
                wqe.compare_swap(*remote, *compare, *swap_add, result)
            };
            finish(wqe.unwrap())
        }
        request => unreachable!("{request:?} is no message"),
    }
}

fn rights(access: u32) -> Access {
    Access {
        local_read: false,
        local_write: access & provider::access::LOCAL_WRITE != 0,
        remote_read: access & provider::access::REMOTE_READ != 0,
        remote_write: access & provider::access::REMOTE_WRITE != 0,
    }
}

/// The key's own low byte, and rights, as rdma-core sets them with each layout of a key.
fn layout(mkey: u32, access: u32, bytes: u64) -> MkeyPatch {
    MkeyPatch::new()
        .unmarked_key(mkey as u8, None)
        .variant(mkey as u8)
        .free(false)
        .access_beside_local_read(rights(access))
        .atomics(access & provider::access::REMOTE_ATOMIC != 0)
        .length(bytes)
}

fn klms(entries: &[(u64, u32, u32)]) -> Vec<Klm> {
    entries
        .iter()
        .map(|&(addr, bytes, key)| Klm::new(addr, key, bytes).unwrap())
        .collect()
}

fn umr_of<T, S>(wqe: Wqe<'_, T, S>, request: &Request, at: Spot) -> Posted
where
    T: Transport,
    S: build::Initial,
{
    let list;
    let strides: Vec<_>;
    let umr = match *request {
        Request::Bind {
            two,
            mkey,
            new_rkey,
            lkey,
            addr,
            length,
            access,
            zero_based,
        } => {
            let there = length != 0;
            let variant = new_rkey as u8;
            let mut patch = MkeyPatch::new()
                .unmarked_key(variant, None)
                .variant(variant)
                .free(!there);
            if two {
                patch = patch.qpn(there.then_some(at.qpn));
            }
            if there {
                patch = patch
                    .access_beside_local_read(rights(access))
                    .atomics(access & provider::access::REMOTE_ATOMIC != 0)
                    .start_addr(if zero_based { 0 } else { addr })
                    .length(length.into());
            }
            list = klms(&[(addr, length, lkey)]);
            Umr {
                mkey,
                check: if two && there {
                    Check::MustBeFree
                } else {
                    Check::None
                },
                check_qpn: two && !there,
                patch,
                translations: if there {
                    Translations::Klms(&list)
                } else {
                    Translations::None
                },
                place: Place::At(0),
            }
        }
        Request::LocalInval { rkey } => Umr {
            mkey: rkey,
            check_qpn: true,
            patch: MkeyPatch::new().variant(0).qpn(None).free(true),
            place: Place::At(0),
            ..Umr::default()
        },
        Request::List {
            mkey,
            access,
            ref entries,
        } => {
            list = klms(entries);
            let bytes = entries.iter().map(|entry| u64::from(entry.1)).sum();
            Umr {
                mkey,
                patch: layout(mkey, access, bytes),
                translations: Translations::Klms(&list),
                ..Umr::default()
            }
        }
        Request::Strided {
            mkey,
            access,
            repeat,
            ref entries,
        } => {
            strides = entries
                .iter()
                .map(|&(addr, bytes, skip, key)| Stride {
                    addr,
                    key,
                    bytes,
                    stride: bytes + skip,
                })
                .collect();
            let cycle: u64 = entries.iter().map(|entry| u64::from(entry.1)).sum();
            Umr {
                mkey,
                patch: layout(mkey, access, cycle * u64::from(repeat)),
                translations: Translations::Strides(StrideBlock {
                    repeat,
                    entries: &strides,
                }),
                ..Umr::default()
            }
        }
        ref request => unreachable!("{request:?} is no UMR"),
    };
    finish(wqe.umr(&umr).unwrap())
}

fn is_message(request: &Request) -> bool {
    matches!(request, Request::Message { .. } | Request::Atomic { .. })
}

/// Posts the calls both ways, and compares after each.
fn run<T: Transport>(
    config: provider::Config,
    at: Spot,
    blocks: usize,
    calls: &[Call],
    ours: impl Fn(Wqe<'_, T, T::Start>, &Call) -> Posted,
) -> Result<(), TestCaseError> {
    let mut theirs = QueuePair::new(config, blocks);
    let own = common::config(at, config.is_signed());
    let mut memory = vec![[0; BLOCK]; blocks];
    let mut producer = Producer {
        pi: at.pi,
        ci: at.pi,
    };
    let mut fence = Fence::None;
    for call in calls {
        let here = Spot {
            pi: producer.pi,
            ..at
        };
        theirs.clear();
        let their_posted = call.post(config.kind, &mut theirs);
        prop_assert!(their_posted.is_ok(), "{their_posted:?}");
        let their_posted = their_posted.unwrap();

        memory.fill([0; BLOCK]);
        let mut queue = SendQueue::<T>::new(&mut memory, &own, producer).unwrap();
        let mut flags = call.flags(fence);
        if T::KIND == TransportKind::Dci {
            flags.dci_stream = call.peer.stream;
        }
        let posted = ours(queue.start(flags).unwrap(), call);
        let wqe = bytes(queue.wqe(posted.index).unwrap());
        producer = queue.producer();
        producer.ci = producer.pi;

        check_same(memory.as_flattened(), theirs.ring().as_flattened())?;
        prop_assert_eq!(posted.next, their_posted.pi as u16);
        prop_assert_eq!(u32::from(posted.next), their_posted.doorbell_record);
        prop_assert_eq!(posted.doorbell, their_posted.doorbell);
        if !config.is_signed() {
            check_valid::<T>(&wqe, here)?;
        }
        fence = call.fence_after();
    }
    Ok(())
}

const ALL: &[Op] = &[
    Op::Send,
    Op::SendImm,
    Op::SendInval,
    Op::Write,
    Op::WriteImm,
    Op::Read,
];

fn rc(wqe: Wqe<'_, Rc, build::Ready>, call: &Call, at: Spot) -> Posted {
    if is_message(&call.request) {
        message_of(wqe, &call.request)
    } else {
        umr_of(wqe, &call.request, at)
    }
}

/// Only the extended interface knows layouts of keys, and it knows one type of windows.
fn by_the_right_interface(calls: &mut [Call]) {
    for call in calls {
        match &mut call.request {
            Request::List { .. } | Request::Strided { .. } => call.extended = true,
            Request::Bind { two, .. } if call.extended => *two = true,
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn reliable_connection(
        at in spot(),
        mut calls in calls(prop_oneof![6 => message(ALL), 2 => atomic(), 1 => window(), 1 => key()]),
    ) {
        by_the_right_interface(&mut calls);
        let config = provider::Config::new(Kind::Rc, at.qpn.get(), at.pi);
        run::<Rc>(config, at, BLOCKS, &calls, |wqe, call| rc(wqe, call, at))?;
    }

    /// In a queue that no WQE wraps in: rdma-core reads beyond its end for the signature.
    #[test]
    fn signed(
        at in spot(),
        mut calls in calls(prop_oneof![6 => message(ALL), 2 => atomic(), 1 => window(), 1 => key()]),
    ) {
        by_the_right_interface(&mut calls);
        let at = Spot { pi: at.pi & 0xfe00, ..at };
        let config = provider::Config::new(Kind::Rc, at.qpn.get(), at.pi).signed(true);
        run::<Rc>(config, at, 512, &calls, |wqe, call| rc(wqe, call, at))?;
    }

    #[test]
    fn unreliable_connection(
        at in spot(),
        mut calls in calls(prop_oneof![
            6 => message(&[Op::Send, Op::SendImm, Op::Write, Op::WriteImm]),
            1 => window(),
        ]),
    ) {
        by_the_right_interface(&mut calls);
        let config = provider::Config::new(Kind::Uc, at.qpn.get(), at.pi);
        run::<Uc>(config, at, BLOCKS, &calls, |wqe, call| match &call.request {
            Request::Message { op, general_id, remote, data } => match op {
                Op::Send => with_data(wqe.send(), data),
                Op::SendImm => with_data(wqe.send_imm(*general_id), data),
                Op::Write => with_data(wqe.write(*remote), data),
                _ => with_data(wqe.write_imm(*remote, *general_id), data),
            },
            request => umr_of(wqe, request, at),
        })?;
    }

    #[test]
    fn datagrams(at in spot(), calls in calls(message(&[Op::Send, Op::SendImm]))) {
        let config = provider::Config::new(Kind::Ud, at.qpn.get(), at.pi);
        run::<Ud>(config, at, BLOCKS, &calls, |wqe, call| {
            let to = Datagram { qpn: call.peer.number, qkey: call.peer.key as u32 };
            let wqe = wqe.to(&call.peer.handle(), to);
            match &call.request {
                Request::Message { op: Op::Send, data, .. } => with_data(wqe.send(), data),
                Request::Message { general_id, data, .. } => {
                    with_data(wqe.send_imm(*general_id), data)
                }
                request => unreachable!("{request:?} is no datagram"),
            }
        })?;
    }

    #[test]
    fn extended_reliable_connection(
        at in spot(),
        mut calls in calls(prop_oneof![6 => message(ALL), 2 => atomic(), 1 => window()]),
    ) {
        by_the_right_interface(&mut calls);
        let config = provider::Config::new(Kind::Xrc, at.qpn.get(), at.pi);
        run::<Xrc>(config, at, BLOCKS, &calls, |wqe, call| {
            if is_message(&call.request) {
                message_of(wqe.to(call.peer.number), &call.request)
            } else {
                umr_of(wqe, &call.request, at)
            }
        })?;
    }

    #[test]
    fn dynamic_connections(
        at in spot(),
        mut calls in calls(prop_oneof![6 => message(ALL), 2 => atomic(), 1 => window()]),
    ) {
        for call in &mut calls {
            call.extended = true;
            if !is_message(&call.request) {
                // The stream is part of the address.
                call.peer.stream = 0;
            }
        }
        by_the_right_interface(&mut calls);
        let config = provider::Config::new(Kind::Dci, at.qpn.get(), at.pi);
        run::<Dci>(config, at, BLOCKS, &calls, |wqe, call| {
            if is_message(&call.request) {
                let to = DcTarget { dctn: call.peer.number, key: call.peer.key };
                message_of(wqe.to(&call.peer.handle(), to), &call.request)
            } else {
                umr_of(wqe, &call.request, at)
            }
        })?;
    }

    #[test]
    fn masked_compare_and_swap(compare: u64, compare_mask: u64, swap: u64, swap_mask: u64) {
        let at = Spot { pi: 0, qpn: Number::low(1), pd: Number::low(1) };
        let operands = MaskedCompareSwap::from_u64(compare, compare_mask, swap, swap_mask);
        let (bytes, _) = common::post::<Rc>(at, Flags::NONE, |wqe| {
            let wqe = wqe.masked_compare_swap(Remote::default(), &operands, Local::default());
            finish(wqe.unwrap())
        });
        let theirs = provider::masked_atomic(swap, compare, swap_mask, compare_mask);
        check_same(&bytes[32..64], &theirs)?;
    }
}
