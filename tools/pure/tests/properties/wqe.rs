// SPDX-License-Identifier: GPL-2.0

use mlx5_pure::wqe::atomic::{AtomicSize, Size};
use mlx5_pure::wqe::parse::Parts;
use mlx5_pure::wqe::psv::{BlockSize, Escape, Guard, TlsVersion};
use mlx5_pure::wqe::segment::Value;
use mlx5_pure::wqe::semantics;
use mlx5_pure::wqe::*;
use proptest::prelude::*;
use proptest::sample::select;

/// Blocks of the ring: a WQE has at most 16.
const RING: usize = 16;
const PD: Number = Number::low(0x77);

/// What a WQE is made of.
#[derive(Clone, Debug)]
enum Piece {
    Data(u64, u32, u32),
    Inline(Vec<u8>),
}

#[derive(Clone, Debug)]
enum Message {
    Send(Vec<Piece>),
    SendImm(u32, Vec<Piece>),
    SendInval(u32, Vec<Piece>),
    Write(Remote, Vec<Piece>),
    WriteImm(Remote, u32, Vec<Piece>),
    Read(Remote, Vec<(u64, u32, u32)>),
    Cs(Remote, u64, u64, Local),
    Fa(Remote, u64, Local),
    /// Log2 of the size less 2, and enough bytes for all operands.
    MaskedCs(u8, Remote, Vec<u8>, Local),
    MaskedFa(u8, Remote, Vec<u8>, Local),
}

#[derive(Clone, Debug)]
enum Start {
    None,
    Inline(Vec<u8>),
    Vlan(bool, u8, bool, u16),
}

#[derive(Clone, Debug)]
struct Packet {
    start: Start,
    trailer: Option<(u8, Vec<u8>)>,
    checksums: Checksums,
    swp: Option<[u8; 5]>,
    metadata: u32,
    /// Segment size and headers.
    lso: Option<(u16, Vec<u8>)>,
    list: Vec<Piece>,
}

#[derive(Clone, Debug)]
enum Entries {
    None,
    Klms(Vec<(u64, u32, u32)>),
    Ksms(Vec<(u64, u32)>),
    Pages(Vec<u64>),
    Strides(u32, Vec<(u64, u32, u16, u16)>),
    List(u64, u32, u32),
}

#[derive(Clone, Debug)]
struct Change {
    mkey: u32,
    check: u8,
    fields: u32,
    values: [u64; 4],
    entries: Entries,
    offset: Option<u64>,
    dif: Option<(u32, u16, u32, bool)>,
}

#[derive(Clone, Debug)]
enum Plan {
    Nop,
    Rc(Message),
    Uc(Message),
    Ud(Path, u8, u32, u32, Vec<Piece>),
    UdOffload(Path, u32, u32, Packet),
    Xrc(u32, Message),
    Dci(Path, u32, u64, u16, Message),
    Raw(Packet),
    Umr(Change),
    LocalInval(u32),
    SetPsv(u32, u16, u16, u32),
    TlsProgress(bool, u32, [u32; 3], u8, u8),
    TlsStatic(bool, u32, bool, [u64; 2], [u32; 3]),
    NvmeTcp(bool, u32, [u32; 2], u8, u16),
    Dump(u32, Vec<(u64, u32, u32)>),
    Wait(u8, u32, u32),
}

fn number(n: u32) -> Number {
    Number::low(n)
}

fn sge((addr, lkey, len): (u64, u32, u32)) -> Sge {
    Sge::new(addr, lkey, len).unwrap()
}

fn list<'q, T: Transport>(
    mut wqe: Wqe<'q, T, build::Gather>,
    pieces: &[Piece],
) -> Wqe<'q, T, build::Gather> {
    for piece in pieces {
        wqe = match piece {
            Piece::Data(addr, lkey, len) => wqe.data(sge((*addr, *lkey, *len))),
            Piece::Inline(bytes) => wqe.inline(bytes),
        };
    }
    wqe
}

/// What finishes a WQE in any state.
type Done = Result<Posted, Refusal>;

fn masked<'q, T: transport::Reads, S: build::Operable, const N: usize>(
    wqe: Wqe<'q, T, S>,
    cs: bool,
    remote: Remote,
    bytes: &[u8],
    local: Local,
) -> Done
where
    Size<N>: AtomicSize,
{
    let part = |i: usize| -> [u8; N] { bytes[i * N..(i + 1) * N].try_into().unwrap() };
    let wqe = if cs {
        let operands = MaskedCompareSwap {
            swap: part(0),
            compare: part(1),
            swap_mask: part(2),
            compare_mask: part(3),
        };
        wqe.masked_compare_swap(remote, &operands, local)
    } else {
        let operands = MaskedFetchAdd {
            add: part(0),
            boundary: part(1),
        };
        wqe.masked_fetch_add(remote, &operands, local)
    };
    wqe?.finish()
}

fn message<T, S>(wqe: Wqe<'_, T, S>, message: &Message) -> Done
where
    T: transport::Reads + build::Invalidates,
    S: build::Operable,
{
    match message {
        Message::Send(pieces) => list(wqe.send(), pieces).finish(),
        Message::SendImm(imm, pieces) => list(wqe.send_imm(*imm), pieces).finish(),
        Message::SendInval(rkey, pieces) => list(wqe.send_inval(*rkey), pieces).finish(),
        Message::Write(remote, pieces) => list(wqe.write(*remote), pieces).finish(),
        Message::WriteImm(remote, imm, pieces) => {
            list(wqe.write_imm(*remote, *imm), pieces).finish()
        }
        Message::Read(remote, entries) => {
            let entries: Vec<Sge> = entries.iter().copied().map(sge).collect();
            wqe.read(*remote).data_list(&entries).finish()
        }
        Message::Cs(remote, compare, swap, local) => {
            wqe.compare_swap(*remote, *compare, *swap, *local)?.finish()
        }
        Message::Fa(remote, add, local) => wqe.fetch_add(*remote, *add, *local)?.finish(),
        Message::MaskedCs(log, remote, bytes, local)
        | Message::MaskedFa(log, remote, bytes, local) => {
            let cs = matches!(message, Message::MaskedCs(..));
            match log {
                0 => masked::<_, _, 4>(wqe, cs, *remote, bytes, *local),
                1 => masked::<_, _, 8>(wqe, cs, *remote, bytes, *local),
                2 => masked::<_, _, 16>(wqe, cs, *remote, bytes, *local),
                3 => masked::<_, _, 32>(wqe, cs, *remote, bytes, *local),
                _ => masked::<_, _, 64>(wqe, cs, *remote, bytes, *local),
            }
        }
    }
}

fn association(n: u8) -> Association {
    [
        Association::None,
        Association::OuterIp,
        Association::OuterL4,
        Association::InnerIp,
        Association::InnerL4,
    ][usize::from(n)]
}

impl Packet {
    fn with<R>(&self, then: impl FnOnce(Result<Eth<'_>, Lso<'_>>) -> R) -> R {
        let trailer = self.trailer.as_ref().map(|(n, data)| Trailer {
            association: association(*n),
            data,
        });
        let swp = self.swp.map(|[a, b, c, d, flags]| SoftwareParser {
            outer_l4_offset: a,
            outer_l3_offset: b,
            inner_l4_offset: c,
            inner_l3_offset: d,
            outer_l4_udp: flags & 1 != 0,
            outer_l3_ipv6: flags & 2 != 0,
            inner_l4_udp: flags & 4 != 0,
            inner_l3_ipv6: flags & 8 != 0,
        });
        let (checksums, metadata) = (self.checksums, self.metadata);
        if let Some((mss, header)) = &self.lso {
            return then(Err(Lso {
                header,
                mss: *mss,
                trailer,
                checksums,
                swp,
                metadata,
            }));
        }
        let header = match &self.start {
            Start::None => Header::None,
            Start::Inline(bytes) => Header::Inline(bytes),
            Start::Vlan(service, pcp, dei, vid) => {
                let kind = if *service {
                    VlanType::Service
                } else {
                    VlanType::Customer
                };
                Header::Vlan(Vlan::new(kind, *pcp, *dei, *vid).unwrap())
            }
        };
        then(Ok(Eth {
            header,
            trailer,
            checksums,
            swp,
            metadata,
        }))
    }
}

impl Change {
    fn patch(&self) -> MkeyPatch {
        let [a, b, c, d] = self.values;
        let mut patch = MkeyPatch::new();
        let on = |bit: u32| self.fields >> bit & 1 != 0;
        let flag = |bit: u32| d >> bit & 1 != 0;
        if on(0) {
            patch = patch.length(a);
        }
        if on(1) {
            patch = patch.start_addr(b);
        }
        if on(2) {
            patch = patch.log_page_size((c & 31) as u8).unwrap();
        }
        if on(3) {
            patch = patch.log_page_size_wide((c & 63) as u8).unwrap();
        }
        if on(4) {
            patch = patch.pd(number(c as u32));
        }
        if on(5) {
            patch = patch.remote_invalidation(flag(0));
        }
        if on(6) {
            patch = patch.signature(flag(1), flag(2));
        }
        if on(7) {
            patch = patch.variant(c as u8);
        }
        if on(8) {
            patch = patch.qpn(flag(3).then(|| number(a as u32)));
        }
        if on(9) {
            patch = patch.access(Access {
                local_read: flag(4),
                local_write: flag(5),
                remote_read: flag(6),
                remote_write: flag(7),
            });
        }
        if on(10) {
            patch = patch.atomics(flag(8));
        }
        if on(11) {
            patch = patch.small_fence(flag(9));
        }
        if on(12) {
            patch = patch.relaxed_writes(flag(10)).relaxed_reads(flag(11));
        }
        if on(13) {
            patch = patch.free(flag(12));
        }
        if on(14) {
            patch = patch.umr_enabled();
        }
        patch
    }

    fn build<T: Transport, S: build::Initial>(&self, wqe: Wqe<'_, T, S>) -> Done {
        let (klms, ksms, pages, strides): (Vec<Klm>, Vec<Ksm>, Vec<Page>, Vec<Stride>);
        let mut patch = self.patch();
        let translations = match &self.entries {
            Entries::None => Translations::None,
            Entries::Klms(entries) => {
                klms = entries
                    .iter()
                    .map(|(addr, key, len)| Klm::new(*addr, *key, *len).unwrap())
                    .collect();
                patch = patch.access_mode(AccessMode::Klm);
                Translations::Klms(&klms)
            }
            Entries::Ksms(entries) => {
                ksms = entries
                    .iter()
                    .map(|(addr, key)| Ksm {
                        addr: *addr,
                        key: *key,
                    })
                    .collect();
                patch = patch.access_mode(AccessMode::Ksm);
                Translations::Ksms(&ksms)
            }
            Entries::Pages(entries) => {
                pages = entries
                    .iter()
                    .map(|addr| Page::new(addr & !0xff, addr & 1 != 0, addr & 2 != 0).unwrap())
                    .collect();
                patch = patch.access_mode(AccessMode::Mtt);
                Translations::Pages(&pages)
            }
            Entries::Strides(repeat, entries) => {
                strides = entries
                    .iter()
                    .map(|(addr, key, bytes, stride)| Stride {
                        addr: *addr,
                        key: *key,
                        bytes: *bytes,
                        stride: *stride,
                    })
                    .collect();
                patch = patch.access_mode(AccessMode::Klm);
                Translations::Strides(StrideBlock {
                    repeat: *repeat,
                    entries: &strides,
                })
            }
            Entries::List(addr, lkey, bytes) => {
                Translations::List(List::new(*addr, *lkey, *bytes).unwrap())
            }
        };
        patch = patch.translations(translations.octowords());
        let bsf = self.dif.map(|(psv, app_tag, ref_tag, same)| {
            let dif = Dif {
                block: BlockSize::B512,
                psv: Psv {
                    index: number(psv),
                    pd: PD,
                },
                guard: Guard::T10DifCrc,
                seed_ones: same,
                app_tag,
                ref_tag,
                ref_increment: !same,
                escape: Escape::AppTag,
                app_tag_mask: 0xffff,
            };
            let block = if same {
                BlockSize::B512
            } else {
                BlockSize::B4160
            };
            Bsf {
                data_size: ref_tag,
                check_mask: 0xff,
                memory: Some(dif),
                wire: Some(Dif { block, ..dif }),
            }
        });
        let place = match (&bsf, &self.entries, self.offset) {
            (Some(bsf), entries, _) if !matches!(entries, Entries::List(..)) => Place::WithBsf(bsf),
            (_, _, Some(offset)) => Place::At(offset),
            _ => Place::Whole,
        };
        let check = [Check::None, Check::MustBeFree, Check::MustNotBeFree];
        let umr = Umr {
            mkey: self.mkey,
            check: check[usize::from(self.check)],
            check_qpn: self.mkey & 1 != 0,
            patch,
            translations,
            place,
        };
        wqe.umr(&umr)?.finish()
    }
}

fn flow(tir: bool, n: u32) -> Flow {
    if tir {
        Flow::Tir(number(n))
    } else {
        Flow::Tis(number(n))
    }
}

/// A WQE that was built: its bytes, and what is known of its queue.
#[derive(Debug)]
struct Built {
    bytes: Vec<u8>,
    transport: TransportKind,
    config: Config,
    index: u16,
    /// The ring was too short for it.
    refused: Option<Refusal>,
}

impl Built {
    fn context(&self) -> Context<'static> {
        Context {
            transport: Some(self.transport),
            caps: self.config.caps,
            qpn: Some(self.config.qpn),
            index: Some(self.index),
            signed: Some(self.config.signed),
            pd: Some(self.config.pd),
            psvs: &[],
        }
    }

    fn units(&self) -> Units<'_> {
        Units::of(&self.bytes)
    }
}

fn violations(bytes: &[u8], context: &Context<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    validate(Units::of(bytes), context, &mut |violation| {
        all.push(violation);
    });
    all
}

/// The queue that a WQE is built on.
#[derive(Clone, Copy, Debug)]
struct Setup {
    caps: Caps,
    signed: bool,
    index: u16,
}

fn start<T: Transport>(
    setup: Setup,
    flags: Flags,
    build: impl FnOnce(Wqe<'_, T, T::Start>) -> Done,
) -> Built {
    let config = Config {
        qpn: number(0x00ab_cdef),
        pd: PD,
        signed: setup.signed,
        caps: setup.caps,
    };
    let index = setup.index;
    // Memory that was used before.
    let mut memory = vec![[0xc3; BLOCK]; RING];
    let at = Producer {
        pi: index,
        ci: index,
    };
    let mut queue = SendQueue::<T>::new(&mut memory, &config, at).unwrap();
    let done = build(queue.start(flags).unwrap());
    let mut built = Built {
        bytes: Vec::new(),
        transport: T::KIND,
        config,
        index,
        refused: done.err(),
    };
    if let Ok(posted) = done {
        let units = queue.wqe(index).unwrap();
        assert_eq!(units.len(), usize::from(posted.ds));
        assert_eq!(
            posted.next.wrapping_sub(index),
            u16::from(posted.ds.div_ceil(4))
        );
        built.bytes = units.from(0).flatten().copied().collect();
        assert_eq!(built.bytes[..8], posted.doorbell);
    } else {
        assert_eq!(queue.producer(), at);
    }
    built
}

impl Plan {
    fn build(&self, setup: Setup, flags: Flags) -> Built {
        match self {
            Self::Nop => start::<Rc>(setup, flags, |wqe| wqe.nop().finish()),
            Self::Rc(m) => start::<Rc>(setup, flags, |wqe| message(wqe, m)),
            Self::Uc(m) => start::<Uc>(setup, flags, |wqe| match m {
                Message::Send(pieces) => list(wqe.send(), pieces).finish(),
                Message::Write(remote, pieces) => list(wqe.write(*remote), pieces).finish(),
                _ => wqe.send_imm(7).finish(),
            }),
            Self::Ud(path, rate, qpn, qkey, pieces) => {
                let handle = AddressHandle::new(path, *rate).unwrap();
                let peer = Datagram {
                    qpn: number(*qpn),
                    qkey: *qkey,
                };
                start::<Ud>(setup, flags, |wqe| {
                    list(wqe.to(&handle, peer).send(), pieces).finish()
                })
            }
            Self::UdOffload(path, qpn, qkey, packet) => {
                let handle = AddressHandle::new(path, 0).unwrap();
                let peer = Datagram {
                    qpn: number(*qpn),
                    qkey: *qkey,
                };
                start::<UdOffload>(setup, flags, |wqe| {
                    let wqe = wqe.to(&handle, peer);
                    let wqe = packet.with(|eth| match eth {
                        Ok(eth) => wqe.send(&eth),
                        Err(lso) => wqe.lso(&lso),
                    })?;
                    list(wqe, &packet.list).finish()
                })
            }
            Self::Xrc(srqn, m) => {
                start::<Xrc>(setup, flags, |wqe| message(wqe.to(number(*srqn)), m))
            }
            Self::Dci(path, dctn, key, stream, m) => {
                let handle = AddressHandle::new(path, 3).unwrap();
                let target = DcTarget {
                    dctn: number(*dctn),
                    key: *key,
                };
                start::<Dci>(setup, flags.on_stream(*stream), |wqe| {
                    message(wqe.to(&handle, target), m)
                })
            }
            Self::Raw(packet) => start::<Raw>(setup, flags, |wqe| {
                let wqe = packet.with(|eth| match eth {
                    Ok(eth) => wqe.send(&eth),
                    Err(lso) => wqe.lso(&lso),
                })?;
                list(wqe, &packet.list).finish()
            }),
            Self::Umr(change) => start::<Rc>(setup, flags, |wqe| change.build(wqe)),
            Self::LocalInval(rkey) => {
                start::<Rc>(setup, flags, |wqe| wqe.local_invalidate(*rkey)?.finish())
            }
            Self::SetPsv(psv, guard, app_tag, ref_tag) => start::<Rc>(setup, flags, |wqe| {
                let psv = Psv {
                    index: number(*psv),
                    pd: PD,
                };
                wqe.set_psv(&SetPsv {
                    psv,
                    block_guard: *guard,
                    app_tag: *app_tag,
                    ref_tag: *ref_tag,
                })?
                .finish()
            }),
            Self::TlsProgress(tir, n, [a, b, c], state, auth) => {
                start::<Raw>(setup, flags, |wqe| {
                    let progress = TlsProgress {
                        next_record_tcp_sn: *a,
                        hw_resync_tcp_sn: *b,
                        record_tracker_state: *state,
                        auth_state: *auth,
                        hw_offset_record_number: number(*c),
                    };
                    wqe.tls_progress(flow(*tir, *n), &progress)?.finish()
                })
            }
            Self::TlsStatic(tir, n, old, [record, iv], [sn, salt, dek]) => {
                start::<Raw>(setup, flags, |wqe| {
                    let params = TlsStatic {
                        version: if *old {
                            TlsVersion::V1_2
                        } else {
                            TlsVersion::V1_3
                        },
                        initial_record_number: *record,
                        resync_tcp_sn: *sn,
                        gcm_iv: *salt,
                        implicit_iv: *iv,
                        dek: number(*dek),
                    };
                    wqe.tls_static(flow(*tir, *n), &params)?.finish()
                })
            }
            Self::NvmeTcp(tir, n, [a, b], state, tag) => start::<Raw>(setup, flags, |wqe| {
                let progress = NvmeTcpProgress {
                    next_pdu_tcp_sn: *a,
                    hw_resync_tcp_sn: *b,
                    pdu_tracker_state: state & 3,
                    offloading_state: state >> 2 & 3,
                    cccid_ttag: *tag,
                };
                wqe.nvme_tcp_progress(flow(*tir, *n), &progress)?.finish()
            }),
            Self::Dump(tis, entries) => start::<Raw>(setup, flags, |wqe| {
                let mut entries = entries.iter().copied().map(sge);
                let mut wqe = wqe.dump(number(*tis), entries.next().unwrap())?;
                for entry in entries {
                    wqe = wqe.data(entry);
                }
                wqe.finish()
            }),
            Self::Wait(kind, n, at) => start::<Rc>(setup, flags, |wqe| {
                match kind {
                    0 => wqe.wait(number(*n), *at),
                    1 => wqe.enable_send(number(*n), *at),
                    _ => wqe.enable_recv(number(*n), *at),
                }?
                .finish()
            }),
        }
    }
}

fn arb_remote(align: u64) -> impl Strategy<Value = Remote> {
    any::<(u64, u32)>().prop_map(move |(addr, rkey)| Remote {
        addr: addr & !(align - 1),
        rkey,
    })
}

fn arb_local() -> impl Strategy<Value = Local> {
    any::<(u64, u32)>().prop_map(|(addr, lkey)| Local { addr, lkey })
}

fn arb_sge() -> impl Strategy<Value = (u64, u32, u32)> {
    (any::<u64>(), any::<u32>(), 0..=Sge::MAX_LEN)
}

fn arb_pieces() -> impl Strategy<Value = Vec<Piece>> {
    let piece = prop_oneof![
        3 => arb_sge().prop_map(|(addr, lkey, len)| Piece::Data(addr, lkey, len)),
        1 => prop::collection::vec(any::<u8>(), 0..80).prop_map(Piece::Inline),
    ];
    prop::collection::vec(piece, 0..8)
}

fn arb_message() -> impl Strategy<Value = Message> {
    prop_oneof![
        arb_pieces().prop_map(Message::Send),
        (any::<u32>(), arb_pieces()).prop_map(|(imm, list)| Message::SendImm(imm, list)),
        (any::<u32>(), arb_pieces()).prop_map(|(key, list)| Message::SendInval(key, list)),
        (arb_remote(1), arb_pieces()).prop_map(|(remote, list)| Message::Write(remote, list)),
        (arb_remote(1), any::<u32>(), arb_pieces())
            .prop_map(|(remote, imm, list)| Message::WriteImm(remote, imm, list)),
        (arb_remote(1), prop::collection::vec(arb_sge(), 0..20))
            .prop_map(|(remote, list)| Message::Read(remote, list)),
        (arb_remote(8), any::<[u64; 2]>(), arb_local())
            .prop_map(|(remote, [a, b], local)| Message::Cs(remote, a, b, local)),
        (arb_remote(8), any::<u64>(), arb_local())
            .prop_map(|(remote, add, local)| Message::Fa(remote, add, local)),
        (
            0_u8..5,
            arb_remote(64),
            prop::collection::vec(any::<u8>(), 256),
            arb_local(),
            any::<bool>()
        )
            .prop_map(|(log, remote, bytes, local, cs)| {
                if cs {
                    Message::MaskedCs(log, remote, bytes, local)
                } else {
                    Message::MaskedFa(log, remote, bytes, local)
                }
            }),
    ]
}

fn arb_grh() -> impl Strategy<Value = Grh> {
    any::<([u8; 16], u8, u32, u8, u8)>().prop_map(|(dgid, sgid_index, flow, hop_limit, tclass)| {
        Grh {
            dgid,
            sgid_index,
            flow_label: flow & 0xf_ffff,
            hop_limit,
            tclass,
        }
    })
}

fn arb_path() -> impl Strategy<Value = Path> {
    prop_oneof![
        (
            any::<u16>(),
            0_u8..16,
            0_u8..128,
            prop::option::of(arb_grh())
        )
            .prop_map(|(dlid, sl, path_bits, grh)| Path::Ib {
                dlid,
                sl,
                path_bits,
                grh
            }),
        (any::<[u8; 6]>(), any::<u16>(), 0_u8..8, arb_grh()).prop_map(
            |(mac, udp_sport, sl, grh)| Path::Roce {
                mac,
                udp_sport,
                sl,
                grh
            }
        ),
    ]
}

fn arb_packet() -> impl Strategy<Value = Packet> {
    let start = prop_oneof![
        Just(Start::None),
        prop::collection::vec(any::<u8>(), 0..100).prop_map(Start::Inline),
        (any::<bool>(), 0_u8..8, any::<bool>(), 0_u16..0x1000)
            .prop_map(|(service, pcp, dei, vid)| Start::Vlan(service, pcp, dei, vid)),
    ];
    let trailer = (0_u8..5, prop::collection::vec(any::<u8>(), 1..40));
    let lso = (1_u16.., prop::collection::vec(any::<u8>(), 1..100));
    (
        start,
        prop::option::of(trailer),
        any::<[bool; 4]>(),
        prop::option::of(any::<[u8; 5]>()),
        any::<u32>(),
        prop::option::of(lso),
        arb_pieces(),
    )
        .prop_map(
            |(start, trailer, [l3, l4, inner_l3, inner_l4], swp, metadata, lso, list)| Packet {
                start,
                trailer,
                checksums: Checksums {
                    l3,
                    l4,
                    inner_l3,
                    inner_l4,
                },
                swp,
                metadata,
                lso,
                list,
            },
        )
}

fn arb_change() -> impl Strategy<Value = Change> {
    let entries =
        prop_oneof![
            Just(Entries::None),
            prop::collection::vec((any::<u64>(), any::<u32>(), 0..=1_u32 << 31), 1..20)
                .prop_map(Entries::Klms),
            prop::collection::vec(any::<(u64, u32)>(), 1..20).prop_map(Entries::Ksms),
            prop::collection::vec(any::<u64>(), 1..40).prop_map(Entries::Pages),
            (
                any::<u32>(),
                prop::collection::vec(any::<(u64, u32, u16, u16)>(), 1..8)
            )
                .prop_map(|(repeat, entries)| Entries::Strides(repeat, entries)),
            (any::<u64>(), any::<u32>(), 1_u32..0x3fff)
                .prop_map(|(addr, lkey, blocks)| Entries::List(addr & !2047, lkey, blocks * 64)),
        ];
    (
        any::<u32>(),
        0_u8..3,
        any::<u32>(),
        any::<[u64; 4]>(),
        entries,
        prop::option::of((0_u64..1 << 40).prop_map(|n| n * 64)),
        prop::option::of(any::<(u32, u16, u32, bool)>()),
    )
        .prop_map(
            |(mkey, check, fields, values, entries, offset, dif)| Change {
                mkey,
                check,
                fields,
                values,
                entries,
                offset,
                dif,
            },
        )
}

fn arb_plan() -> impl Strategy<Value = Plan> {
    let nonempty = (any::<u64>(), any::<u32>(), 1..=Sge::MAX_LEN);
    prop_oneof![
        1 => Just(Plan::Nop),
        4 => arb_message().prop_map(Plan::Rc),
        1 => arb_message().prop_map(Plan::Uc),
        2 => (arb_path(), 0_u8..16, any::<u32>(), any::<u32>(), arb_pieces())
            .prop_map(|(path, rate, qpn, qkey, list)| Plan::Ud(path, rate, qpn, qkey, list)),
        1 => (arb_path(), any::<u32>(), any::<u32>(), arb_packet())
            .prop_map(|(path, qpn, qkey, packet)| Plan::UdOffload(path, qpn, qkey, packet)),
        2 => (any::<u32>(), arb_message()).prop_map(|(srqn, m)| Plan::Xrc(srqn, m)),
        2 => (arb_path(), any::<u32>(), any::<u64>(), any::<u16>(), arb_message())
            .prop_map(|(path, dctn, key, stream, m)| Plan::Dci(path, dctn, key, stream, m)),
        3 => arb_packet().prop_map(Plan::Raw),
        4 => arb_change().prop_map(Plan::Umr),
        1 => any::<u32>().prop_map(Plan::LocalInval),
        1 => any::<(u32, u16, u16, u32)>().prop_map(|(a, b, c, d)| Plan::SetPsv(a, b, c, d)),
        1 => (any::<bool>(), any::<u32>(), any::<[u32; 3]>(), 0_u8..4, 0_u8..4)
            .prop_map(|(tir, n, words, state, auth)| Plan::TlsProgress(tir, n, words, state, auth)),
        1 => any::<(bool, u32, bool, [u64; 2], [u32; 3])>()
            .prop_map(|(tir, n, old, a, b)| Plan::TlsStatic(tir, n, old, a, b)),
        1 => any::<(bool, u32, [u32; 2], u8, u16)>()
            .prop_map(|(tir, n, words, state, tag)| Plan::NvmeTcp(tir, n, words, state, tag)),
        1 => (any::<u32>(), prop::collection::vec(nonempty, 1..8))
            .prop_map(|(tis, list)| Plan::Dump(tis, list)),
        1 => (0_u8..3, any::<u32>(), any::<u32>()).prop_map(|(kind, n, at)| Plan::Wait(kind, n, at)),
    ]
}

fn arb_flags() -> impl Strategy<Value = Flags> {
    (0_usize..5, 0_usize..4, any::<bool>()).prop_map(|(fence, completion, solicited)| Flags {
        fence: [
            Fence::None,
            Fence::Small,
            Fence::Reads,
            Fence::StrongOrdering,
            Fence::SmallAndReads,
        ][fence],
        completion: [
            Completion::OnError,
            Completion::OnFirstError,
            Completion::Always,
            Completion::AlwaysWithEvent,
        ][completion],
        solicited,
        dci_stream: 0,
    })
}

/// A WQE that fits.
fn arb_built() -> impl Strategy<Value = (Plan, Flags, Built)> {
    (arb_plan(), any::<bool>(), any::<u16>(), arb_flags()).prop_filter_map(
        "it is longer than a WQE",
        |(plan, signed, index, flags)| {
            let setup = Setup {
                caps: Caps::ALL,
                signed,
                index,
            };
            let built = plan.build(setup, flags);
            built.refused.is_none().then_some((plan, flags, built))
        },
    )
}

/// A field of the JSON dump, by its segment (the `nth` of its kind) and name.
fn field(json: &serde_json::Value, segment: &str, nth: usize, name: &str) -> u64 {
    let segment = json["segments"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|s| s["segment"] == segment)
        .nth(nth)
        .unwrap_or_else(|| panic!("no {segment} {nth} in {json}"));
    let field = segment["fields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|f| f["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {segment}"));
    hex_number(&field["value"])
}

fn hex_number(value: &serde_json::Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().strip_prefix("0x").unwrap(), 16).unwrap()
}

fn hex_bytes(value: &serde_json::Value) -> Vec<u8> {
    let text = value.as_str().unwrap();
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

/// The bytes of a WQE, made of nothing but the names and values in its JSON dump.
fn assemble(json: &serde_json::Value) -> Vec<u8> {
    let mut bytes = vec![0; json["bytes"].as_u64().unwrap() as usize];
    for segment in json["segments"].as_array().unwrap() {
        let offset = segment["offset"].as_u64().unwrap() as usize;
        let place = &mut bytes[offset..];
        let name = segment["segment"].as_str().unwrap();
        let Some(kind) = Segment::from_name(name) else {
            let raw = hex_bytes(&segment["bytes"]);
            place[..raw.len()].copy_from_slice(&raw);
            continue;
        };
        let fields = segment["fields"].as_array().unwrap();
        let wide: Vec<Vec<u8>> = fields
            .iter()
            .map(|f| match f["width"].as_u64().unwrap() {
                0..=64 => Vec::new(),
                _ => hex_bytes(&f["value"]),
            })
            .collect();
        let values = fields.iter().zip(&wide).map(|(f, wide)| {
            let value = if wide.is_empty() {
                Value::Number(hex_number(&f["value"]))
            } else {
                Value::Bytes(wide)
            };
            (f["name"].as_str().unwrap(), value)
        });
        let len = kind.construct(values, place).unwrap();
        assert_eq!(len, segment["length"].as_u64().unwrap() as usize);
    }
    bytes
}

/// What the dump says of the parameters that the WQE was built from.
fn check_parameters(plan: &Plan, flags: Flags, json: &serde_json::Value) {
    let get = |segment, name| field(json, segment, 0, name);
    assert_eq!(get("ctrl", "fm"), flags.fence as u64);
    assert_eq!(get("ctrl", "ce"), flags.completion as u64);
    assert_eq!(get("ctrl", "se"), u64::from(flags.solicited));
    assert_eq!(get("ctrl", "qpn"), 0x00ab_cdef);
    let remote = |remote: &Remote| {
        assert_eq!(get("raddr", "raddr"), remote.addr);
        assert_eq!(get("raddr", "rkey"), u64::from(remote.rkey));
    };
    let data = |nth: usize, (addr, lkey, len): (u64, u32, u32)| {
        assert_eq!(field(json, "data", nth, "addr"), addr);
        assert_eq!(field(json, "data", nth, "lkey"), u64::from(lkey));
        assert_eq!(field(json, "data", nth, "byte_count"), u64::from(len));
    };
    let pieces = |pieces: &[Piece]| {
        let whole = pieces.iter().filter_map(|piece| match piece {
            Piece::Data(addr, lkey, len) if *len != 0 => Some((*addr, *lkey, *len)),
            _ => None,
        });
        for (nth, entry) in whole.enumerate() {
            data(nth, entry);
        }
        let inline: Vec<&Vec<u8>> = pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Inline(bytes) if !bytes.is_empty() => Some(bytes),
                _ => None,
            })
            .collect();
        let shown: Vec<Vec<u8>> = json["segments"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|s| s["segment"] == "bytes")
            .map(|s| hex_bytes(&s["bytes"]))
            .collect();
        // A header and a trailer come before.
        assert!(shown.len() >= inline.len());
        for (shown, own) in shown.iter().rev().zip(inline.iter().rev()) {
            assert_eq!(&shown, own);
        }
    };
    let messages = |m: &Message| match m {
        Message::Send(list) => pieces(list),
        Message::SendImm(imm, list) | Message::SendInval(imm, list) => {
            assert_eq!(get("ctrl", "general_id"), u64::from(*imm));
            pieces(list);
        }
        Message::Write(to, list) => {
            remote(to);
            pieces(list);
        }
        Message::WriteImm(to, imm, list) => {
            remote(to);
            assert_eq!(get("ctrl", "general_id"), u64::from(*imm));
            pieces(list);
        }
        Message::Read(from, list) => {
            remote(from);
            for (nth, entry) in list.iter().filter(|entry| entry.2 != 0).enumerate() {
                data(nth, *entry);
            }
        }
        Message::Cs(at, compare, swap, local) => {
            remote(at);
            assert_eq!(get("atomic", "compare"), *compare);
            assert_eq!(get("atomic", "swap_add"), *swap);
            data(0, (local.addr, local.lkey, 8));
        }
        Message::Fa(at, add, local) => {
            remote(at);
            assert_eq!(get("atomic", "swap_add"), *add);
            data(0, (local.addr, local.lkey, 8));
        }
        Message::MaskedCs(log, at, _, local) | Message::MaskedFa(log, at, _, local) => {
            remote(at);
            assert_eq!(get("ctrl", "opmod"), 8 + u64::from(*log));
            data(0, (local.addr, local.lkey, 4 << log));
        }
    };
    match plan {
        Plan::Rc(m) => messages(m),
        Plan::Xrc(srqn, m) => {
            assert_eq!(get("xrc", "srqn"), u64::from(number(*srqn).get()));
            messages(m);
        }
        Plan::Dci(_, dctn, key, stream, m) => {
            assert_eq!(get("dc_av", "dctn"), u64::from(number(*dctn).get()));
            assert_eq!(get("dc_av", "dc_key"), *key);
            assert_eq!(get("ctrl", "dci_stream_channel_id"), u64::from(*stream));
            messages(m);
        }
        Plan::Ud(path, rate, qpn, qkey, list) => {
            assert_eq!(get("ud_av", "dqpn"), u64::from(number(*qpn).get()));
            assert_eq!(get("ud_av", "qkey"), u64::from(*qkey));
            assert_eq!(get("ud_av", "stat_rate"), u64::from(*rate));
            match path {
                Path::Ib {
                    dlid,
                    sl,
                    path_bits,
                    grh,
                } => {
                    assert_eq!(get("ud_av", "rlid"), u64::from(*dlid));
                    assert_eq!(get("ud_av", "sl"), u64::from(*sl));
                    assert_eq!(get("ud_av", "mlid"), u64::from(*path_bits));
                    assert_eq!(get("ud_av", "grh"), u64::from(grh.is_some()));
                }
                Path::Roce { mac, sl, grh, .. } => {
                    let mut wide = [0; 8];
                    wide[2..].copy_from_slice(mac);
                    assert_eq!(get("ud_av", "rmac"), u64::from_be_bytes(wide));
                    assert_eq!(get("ud_av", "sl"), u64::from(*sl) << 1);
                    assert_eq!(get("ud_av", "flow_label"), u64::from(grh.flow_label));
                }
            }
            pieces(list);
        }
        Plan::Raw(packet) | Plan::UdOffload(_, _, _, packet) => {
            assert_eq!(
                get("eth", "flow_table_metadata"),
                u64::from(packet.metadata)
            );
            assert_eq!(get("eth", "l4_csum"), u64::from(packet.checksums.l4));
            match (&packet.lso, &packet.start) {
                (Some((mss, header)), _) => {
                    assert_eq!(get("eth", "mss"), u64::from(*mss));
                    assert_eq!(get("eth", "inline_size"), header.len() as u64);
                }
                (None, Start::Vlan(service, pcp, dei, vid)) => {
                    let tci = u64::from(*pcp) << 13 | u64::from(*dei) << 12 | u64::from(*vid);
                    assert_eq!(get("eth", "inline_start"), tci);
                    assert_eq!(get("eth", "inline_size"), u64::from(*service));
                    assert_eq!(get("eth", "insert_vlan"), 1);
                }
                (None, Start::Inline(header)) => {
                    assert_eq!(get("eth", "inline_size"), header.len() as u64);
                }
                (None, Start::None) => assert_eq!(get("eth", "inline_size"), 0),
            }
            match &packet.trailer {
                Some((n, data)) => {
                    assert_eq!(get("eth", "trailer_association"), u64::from(*n));
                    assert_eq!(get("inline", "byte_count"), data.len() as u64);
                }
                None => assert_eq!(get("eth", "insert_trailer"), 0),
            }
            pieces(&packet.list);
        }
        Plan::Umr(change) => {
            assert_eq!(get("ctrl", "general_id"), u64::from(change.mkey));
            assert_eq!(get("umr_ctrl", "check_free"), u64::from(change.check));
            assert_eq!(get("umr_ctrl", "check_qpn"), u64::from(change.mkey & 1));
            let mask = change.patch().mask().bits();
            assert_eq!(get("umr_ctrl", "mkey_mask"), mask);
            match &change.entries {
                Entries::Klms(klms) => {
                    for (nth, (addr, key, bytes)) in klms.iter().enumerate() {
                        assert_eq!(field(json, "klm", nth, "va"), *addr);
                        assert_eq!(field(json, "klm", nth, "key"), u64::from(*key));
                        assert_eq!(field(json, "klm", nth, "byte_count"), u64::from(*bytes));
                    }
                    let octowords = (klms.len() as u64).next_multiple_of(4);
                    assert_eq!(get("umr_ctrl", "xlt_octowords"), octowords);
                }
                Entries::Pages(pages) => {
                    for (nth, addr) in pages.iter().enumerate() {
                        let high = field(json, "mtt", nth, "ptag_63_32");
                        let low = field(json, "mtt", nth, "ptag_31_8");
                        assert_eq!(high << 32 | low << 8, addr & !0xff);
                        assert_eq!(field(json, "mtt", nth, "rd_en"), addr & 1);
                        assert_eq!(field(json, "mtt", nth, "wr_en"), addr >> 1 & 1);
                    }
                }
                Entries::List(addr, lkey, bytes) => {
                    data(0, (*addr, *lkey, *bytes));
                    assert_eq!(get("umr_ctrl", "inline"), 0);
                }
                _ => {}
            }
            if get("umr_ctrl", "translation_offset_en") != 0 {
                let low = get("umr_ctrl", "bsf_octowords");
                let offset = get("umr_ctrl", "xlt_offset_47_16") << 16 | low;
                assert_eq!(Some(16 * offset), change.offset);
            }
        }
        Plan::LocalInval(rkey) => {
            assert_eq!(get("ctrl", "general_id"), u64::from(*rkey));
            assert_eq!(get("umr_ctrl", "mkey_mask"), 1 << 29);
            assert_eq!(get("mkc", "free"), 1);
        }
        Plan::SetPsv(psv, guard, app_tag, ref_tag) => {
            assert_eq!(get("set_psv", "psv_index"), u64::from(number(*psv).get()));
            assert_eq!(get("set_psv", "block_guard"), u64::from(*guard));
            assert_eq!(get("set_psv", "app_tag"), u64::from(*app_tag));
            assert_eq!(get("set_psv", "ref_tag"), u64::from(*ref_tag));
        }
        Plan::TlsProgress(_, n, [a, b, c], state, auth) => {
            let get = |name| get("tls_progress", name);
            assert_eq!(get("tis_tir_num"), u64::from(number(*n).get()));
            assert_eq!(get("params.next_record_tcp_sn"), u64::from(*a));
            assert_eq!(get("params.hw_resync_tcp_sn"), u64::from(*b));
            assert_eq!(
                get("params.hw_offset_record_number"),
                u64::from(number(*c).get())
            );
            assert_eq!(get("params.record_tracker_state"), u64::from(*state));
            assert_eq!(get("params.auth_state"), u64::from(*auth));
        }
        Plan::TlsStatic(_, n, old, [record, iv], [sn, salt, dek]) => {
            let get = |name| get("tls_static", name);
            assert_eq!(get("tls_version"), if *old { 2 } else { 3 });
            assert_eq!(get("initial_record_number"), *record);
            assert_eq!(get("implicit_iv"), *iv);
            assert_eq!(get("resync_tcp_sn"), u64::from(*sn));
            assert_eq!(get("gcm_iv"), u64::from(*salt));
            assert_eq!(get("dek_index"), u64::from(number(*dek).get()));
            let id = field(json, "ctrl", 0, "general_id");
            assert_eq!(id, u64::from(number(*n).get()) << 8);
        }
        Plan::NvmeTcp(_, n, [a, b], state, tag) => {
            let get = |name| get("nvme_tcp_progress", name);
            assert_eq!(get("tis_tir_num"), u64::from(number(*n).get()));
            assert_eq!(get("next_pdu_tcp_sn"), u64::from(*a));
            assert_eq!(get("hw_resync_tcp_sn"), u64::from(*b));
            assert_eq!(get("pdu_tracker_state"), u64::from(*state & 3));
            assert_eq!(get("offloading_state"), u64::from(*state >> 2 & 3));
            assert_eq!(get("cccid_ttag"), u64::from(*tag));
        }
        Plan::Dump(tis, list) => {
            let id = u64::from(number(*tis).get()) << 8;
            assert_eq!(get("ctrl", "general_id"), id);
            for (nth, entry) in list.iter().enumerate() {
                data(nth, *entry);
            }
        }
        Plan::Wait(_, n, at) => {
            assert_eq!(get("wait", "number"), u64::from(number(*n).get()));
            assert_eq!(get("wait", "index"), u64::from(*at));
        }
        Plan::Nop | Plan::Uc(_) => {}
    }
}

/// Bits of the WQE that are reserved: in a segment, and in none of the fields that the dump names.
/// Zeros that fill up translations are no reserved bits, those before an Ethernet segment are.
fn reserved_bits(json: &serde_json::Value) -> Vec<usize> {
    let mut bits = Vec::new();
    let segments = json["segments"].as_array().unwrap();
    for (i, segment) in segments.iter().enumerate() {
        let start = 8 * segment["offset"].as_u64().unwrap() as usize;
        let len = 8 * segment["length"].as_u64().unwrap() as usize;
        let name = segment["segment"].as_str().unwrap();
        let pad = name == "pad" && segments.get(i + 1).is_some_and(|s| s["segment"] == "eth");
        if Segment::from_name(name).is_none() && !pad {
            continue;
        }
        let mut free = vec![true; len];
        for field in segment["fields"].as_array().unwrap() {
            let bit = field["bit"].as_u64().unwrap() as usize;
            let width = field["width"].as_u64().unwrap() as usize;
            free[bit..bit + width].fill(false);
        }
        bits.extend((0..len).filter(|bit| free[*bit]).map(|bit| start + bit));
    }
    bits
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// What is built is clean, and its dump has everything in it: the parameters, and all bytes.
    #[test]
    fn built_validated_dumped_and_parsed((plan, flags, built) in arb_built()) {
        let context = built.context();
        prop_assert_eq!(violations(&built.bytes, &context), vec![]);
        let units = built.units();
        prop_assert_eq!(first_violation(units, &context), None);
        let text = Text { units, context: &context }.to_string();
        prop_assert!(!text.contains("INVALID"), "{}", text);
        let json = Json { units, context: &context }.to_string();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(&json["violations"], &serde_json::json!([]));
        prop_assert_eq!(assemble(&json), built.bytes.clone());
        check_parameters(&plan, flags, &json);
        // The parts lie one behind the other and leave nothing out but padding.
        let mut end = 0;
        for part in Parts::new(units, built.transport) {
            prop_assert!(part.offset >= end && part.offset - end < 16);
            prop_assert_eq!(part.wanted, None);
            prop_assert!(part.segment != Segment::Unknown);
            end = part.offset + part.len;
        }
        prop_assert!(built.bytes.len() - end < 16);
        prop_assert!(built.bytes[end..].iter().all(|byte| *byte == 0));
    }

    /// Whatever the capabilities: what the validator objects to, the builder refuses, and the other way
    /// round.
    #[test]
    fn builder_and_validator_agree((plan, flags, built) in arb_built(), seed in any::<[u32; 2]>()) {
        let on = |bit: u32| seed[0] >> bit & 1 != 0;
        let caps = Caps {
            insert_trailer: on(0),
            vlan_insert: on(1),
            swp: on(2),
            umr_extended_translation_offset: on(3),
            umr_modify_entity_size_disabled: on(4),
            umr_modify_atomic_disabled: on(5),
            umr_indirect_mkey_disabled: on(6),
            relaxed_ordering_write_umr: on(7),
            relaxed_ordering_read_umr: on(8),
            umr_log_entity_size_5: on(9),
            fixed_buffer_size: on(10),
            signature: on(11),
            cross_channel: on(12),
            tls_tx: on(13),
            tls_rx: on(14),
            atomic_operations: AtomicOps(seed[1] as u16 & 0xf),
            atomic_size_qp: (seed[1] >> 4) as u16 & 0x1ff,
            atomic_size_dc: (seed[1] >> 13) as u16 & 0x1ff,
            max_wqe_bytes: if on(15) { 1024 } else { 128 },
            max_wqe_bytes_dc: if on(16) { 1024 } else { 128 },
            ..Caps::ALL
        };
        let setup = Setup { caps, signed: built.config.signed, index: built.index };
        let again = plan.build(setup, flags);
        let found = violations(&built.bytes, &Context { caps, ..built.context() });
        let context = Context { caps, ..built.context() };
        prop_assert_eq!(first_violation(built.units(), &context), found.first().copied());
        for violation in &found {
            prop_assert!(
                matches!(violation.expected, Expected::Capability(_)) || violation.field == "ds",
                "{}", violation
            );
        }
        // Zeros look as if nothing had been asked for.
        let looks_like_nothing = match &plan {
            Plan::Raw(packet) | Plan::UdOffload(_, _, _, packet) => {
                packet.swp.is_some_and(|[a, b, c, d, flags]| [a, b, c, d, flags & 15] == [0; 5])
            }
            Plan::Umr(change) => match &change.entries {
                Entries::Klms(klms) => klms.iter().all(|klm| *klm == (0, 0, 0)),
                Entries::Ksms(ksms) => ksms.iter().all(|ksm| *ksm == (0, 0)),
                _ => false,
            },
            _ => false,
        };
        if !looks_like_nothing {
            prop_assert_eq!(again.refused.is_some(), !found.is_empty(), "{:?} {:?}", again.refused, found);
        }
        if again.refused.is_none() {
            prop_assert_eq!(again.bytes, built.bytes);
        }
    }

    /// Any bytes, of any queue: everything ends, and everything that is said has its place.
    #[test]
    fn hostile_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        opcode in prop::option::of(select(vec![
            0_u8, 1, 8, 9, 0xa, 0xb, 0xe, 0xf, 0x10, 0x11, 0x12, 0x14, 0x15, 0x16, 0x17, 0x20,
            0x21, 0x22, 0x23, 0x25,
        ])),
        opmod in 0_u8..16,
        transport in prop::option::of(select(TransportKind::ALL)),
        inline in any::<bool>(),
    ) {
        let mut bytes = bytes;
        if let Some(opcode) = opcode {
            for (at, byte) in [(0, opmod), (3, opcode)] {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            // A UMR that is plausible goes further.
            if opcode == 0x25 && inline && bytes.len() > 24 {
                bytes[16] |= 0x80;
                bytes[20..24].copy_from_slice(&[0, 4, 0, 4]);
            }
        }
        let context = Context {
            transport: transport.map(|(kind, _)| kind),
            ..Context::UNKNOWN
        };
        let units = Units::of(&bytes);
        let found = violations(&bytes, &context);
        for violation in &found {
            prop_assert!(violation.offset <= bytes.len(), "{}", violation);
        }
        prop_assert_eq!(first_violation(units, &context), found.first().copied());
        let text = Text { units, context: &context }.to_string();
        // Every violation is in the text, at its field or in a line of its own.
        prop_assert_eq!(text.matches("INVALID").count(), found.len(), "{}", text);
        let json = Json { units, context: &context }.to_string();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(json["violations"].as_array().unwrap().len(), found.len());
        let mut end = 0;
        for part in Parts::new(units, context.transport_of(&units)) {
            prop_assert!(part.offset >= end && part.offset + part.len <= bytes.len());
            end = part.offset + part.len;
        }
    }

    /// A WQE in a ring reads the same wherever it begins.
    #[test]
    fn rings(bytes in prop::collection::vec(any::<u8>(), 64 * 16), log in 0_u32..5, index in any::<u16>()) {
        let mut blocks = vec![[0_u8; BLOCK]; 1 << log];
        for (at, block) in blocks.iter_mut().enumerate() {
            block.copy_from_slice(&bytes[64 * at..64 * at + 64]);
        }
        let first = usize::from(index) % blocks.len();
        let ds = usize::from(blocks[first][7] & 0x3f);
        match Units::in_ring(&blocks, index) {
            None => prop_assert!(16 * ds > 64 * blocks.len()),
            Some(units) => {
                prop_assert_eq!(units.bytes(), 16 * ds);
                for at in 0..units.bytes() {
                    let byte = blocks[(first + at / 64) % blocks.len()][at % 64];
                    prop_assert_eq!(units.byte(at), Some(byte));
                    prop_assert_eq!(units.get(at / 16).unwrap()[at % 16], byte);
                }
                prop_assert_eq!(units.byte(units.bytes()), None);
                prop_assert_eq!(units.get(ds), None);
                let flat: Vec<u8> = units.from(0).flatten().copied().collect();
                let context = Context::UNKNOWN;
                let mut wrapped = Vec::new();
                validate(units, &context, &mut |violation| wrapped.push(violation));
                prop_assert_eq!(wrapped, violations(&flat, &context));
            }
        }
    }
}

proptest! {
    // Each case tries hundreds of bits.
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Each reserved bit that is set, and each wrong length, is reported.
    #[test]
    fn single_bits((_, _, built) in arb_built()) {
        let context = Context { signed: None, ..built.context() };
        let json = Json { units: built.units(), context: &context }.to_string();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        // ds is the low 6 bits of byte 7.
        let ds = 58..64;
        for bit in reserved_bits(&json).into_iter().chain(ds) {
            let mut bytes = built.bytes.clone();
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
            let found = violations(&bytes, &context);
            let first = first_violation(Units::of(&bytes), &context);
            prop_assert_eq!(first, found.first().copied());
            prop_assert!(!found.is_empty(), "bit {} of {}", bit, Text {
                units: built.units(),
                context: &context,
            });
            prop_assert!(found.iter().any(|v| v.offset / 4 == bit / 32), "{:?}", found);
        }
        // Of any bit at all the quick look says the same as the validator.
        for bit in 0..8 * built.bytes.len() {
            let mut bytes = built.bytes.clone();
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
            let first = first_violation(Units::of(&bytes), &built.context());
            prop_assert_eq!(first, violations(&bytes, &built.context()).first().copied());
        }
        // Any bit at all spoils a signature.
        if built.config.signed {
            for bit in 0..8 * built.bytes.len() {
                let mut bytes = built.bytes.clone();
                bytes[bit / 8] ^= 0x80 >> (bit % 8);
                prop_assert!(!violations(&bytes, &built.context()).is_empty(), "bit {}", bit);
            }
        }
    }
}

/// Adds field by field, each modulo its size.
fn add_fields(old: u64, add: u64, boundary: u64, bits: u32) -> u64 {
    let (mut sum, mut first) = (0, 0);
    for bit in 0..bits {
        if boundary >> bit & 1 != 0 || bit == bits - 1 {
            let width = bit - first + 1;
            let mask = u64::MAX >> (64 - width);
            let field = (old >> first & mask).wrapping_add(add >> first & mask) & mask;
            sum |= field << first;
            first = bit + 1;
        }
    }
    sum
}

proptest! {
    /// The bitwise adder is an addition in each field.
    #[test]
    fn masked_fetch_and_add(old in any::<u64>(), add in any::<u64>(), boundary in any::<u64>()) {
        let mut memory = old.to_be_bytes();
        let was = semantics::masked_fetch_add(&mut memory, &MaskedFetchAdd::<8>::from_u64(add, boundary));
        prop_assert_eq!(u64::from_be_bytes(was), old);
        prop_assert_eq!(u64::from_be_bytes(memory), add_fields(old, add, boundary, 64));
        let mut memory = (old as u32).to_be_bytes();
        let operands = MaskedFetchAdd::<4>::from_u32(add as u32, boundary as u32);
        semantics::masked_fetch_add(&mut memory, &operands);
        let want = add_fields(old & 0xffff_ffff, add & 0xffff_ffff, boundary, 32);
        prop_assert_eq!(u64::from(u32::from_be_bytes(memory)), want);
        let mut memory = old.to_be_bytes();
        prop_assert_eq!(semantics::fetch_add(&mut memory, add), old);
        prop_assert_eq!(u64::from_be_bytes(memory), old.wrapping_add(add));
    }

    #[test]
    fn masked_compare_and_swap(
        old in any::<u64>(),
        compare in any::<u64>(),
        compare_mask in any::<u64>(),
        swap in any::<u64>(),
        swap_mask in any::<u64>(),
        equal in any::<bool>(),
    ) {
        let compare = if equal { old & compare_mask | compare & !compare_mask } else { compare };
        let operands = MaskedCompareSwap::<8>::from_u64(compare, compare_mask, swap, swap_mask);
        let mut memory = old.to_be_bytes();
        let was = semantics::masked_compare_swap(&mut memory, &operands);
        prop_assert_eq!(u64::from_be_bytes(was), old);
        let hit = (compare ^ old) & compare_mask == 0;
        let want = if hit { old & !swap_mask | swap & swap_mask } else { old };
        prop_assert_eq!(u64::from_be_bytes(memory), want);
    }

    /// A semaphore is what a variable of its width is, and its neighbours do not change.
    #[test]
    fn semaphores(
        memory in any::<[u8; 8]>(),
        offset in 0_usize..8,
        width in select(vec![Width::One, Width::Two, Width::Four]),
        value in any::<u32>(),
        compare in prop::option::of(any::<u32>()),
        operation in 0_u8..3,
    ) {
        let place = Remote { addr: 0x7000 + offset as u64, rkey: 3 };
        let len = width as usize;
        let semaphore = match Semaphore::new(place, width) {
            Ok(semaphore) => semaphore,
            Err(refused) => {
                prop_assert!(offset % len != 0);
                prop_assert_eq!(refused.expected, Expected::MultipleOf(len as u64));
                return Ok(());
            }
        };
        prop_assert_eq!(offset % len, 0);
        let word_at = (semaphore.word().addr - 0x7000) as usize;
        prop_assert_eq!(word_at % 4, 0);
        let read = |memory: &[u8; 8]| {
            memory[offset..offset + len].iter().fold(0_u32, |v, b| v << 8 | u32::from(*b))
        };
        let old = read(&memory);
        let value = value & semaphore.max();
        let compare = compare.map_or(old, |compare| compare & semaphore.max());
        let mut word: [u8; 4] = memory[word_at..word_at + 4].try_into().unwrap();
        let (reply, want) = match operation {
            0 => {
                let operands = semaphore.compare_swap(compare, value).unwrap();
                let reply = semantics::masked_compare_swap(&mut word, &operands);
                (reply, if compare == old { value } else { old })
            }
            1 => {
                let operands = semaphore.swap(value).unwrap();
                (semantics::masked_compare_swap(&mut word, &operands), value)
            }
            _ => {
                let operands = semaphore.fetch_add(value).unwrap();
                let reply = semantics::masked_fetch_add(&mut word, &operands);
                (reply, old.wrapping_add(value) & semaphore.max())
            }
        };
        prop_assert_eq!(semaphore.old(u32::from_be_bytes(reply)), old);
        let mut after = memory;
        after[word_at..word_at + 4].copy_from_slice(&word);
        prop_assert_eq!(read(&after), want);
        for at in (0..8).filter(|at| !(offset..offset + len).contains(at)) {
            prop_assert_eq!(after[at], memory[at]);
        }
    }

    /// By bytes: some power of two that is no more than the largest atomic, and at least the length,
    /// holds all of them in one of its multiples.
    #[test]
    fn atomic_writes(addr in any::<u64>(), len in 0_u64..600, sizes in any::<u16>(), on in any::<bool>()) {
        let caps = Caps { atomic_size_qp: sizes & 0x1ff, ..Caps::default() };
        let receiver = Receiver { atomic_like_write_en: on, dc: false };
        let max = (0..9).rev().map(|n| 1_u64 << n).find(|size| u64::from(caps.atomic_size_qp) & size != 0);
        let want = on && len != 0 && max.is_some_and(|max| {
            len <= max && {
                let boundary = len.next_power_of_two();
                addr.checked_add(len - 1).is_some_and(|last| addr / boundary == last / boundary)
            }
        });
        prop_assert_eq!(write_is_atomic(addr, len, &caps, receiver), want);
    }
}

/// The dump and the registry name every segment once, and fields of a segment have distinct names.
#[test]
fn names_are_distinct() {
    for (i, segment) in Segment::ALL.iter().enumerate() {
        assert_eq!(Segment::from_name(segment.name()), Some(*segment));
        assert!(!Segment::ALL[..i]
            .iter()
            .any(|other| other.name() == segment.name()));
        let mut names: Vec<_> = segment
            .items()
            .map(|item| (item.outer, item.field.name))
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{segment:?}");
        assert!(count > 0, "{segment:?}");
    }
}

/// Every kind can be constructed, validated and dumped alone.
#[test]
fn the_registry_knows_every_kind() {
    for segment in Segment::ALL {
        let names: Vec<String> = segment
            .items()
            .map(|item| match item.outer {
                Some(outer) => format!("{outer}.{}", item.field.name),
                None => item.field.name.to_owned(),
            })
            .collect();
        let wide = [1; 64];
        let values = segment.items().zip(&names).map(|(item, name)| {
            let value = match item.field.width {
                0..=64 => Value::Number(1),
                width => Value::Bytes(&wide[..width / 8]),
            };
            (name.as_str(), value)
        });
        let mut bytes = [0xee; 64];
        let len = segment.construct(values, &mut bytes).unwrap();
        for (item, name) in segment.items().zip(&names) {
            if item.field.width <= 64 {
                assert_eq!(item.field.get(&bytes[..len]), Some(1), "{name}");
            }
        }
        let context = Context::UNKNOWN;
        let mut reserved = 0;
        validate_segment(*segment, &bytes[..len], &context, &mut |violation| {
            assert_eq!(violation.segment, *segment);
            reserved += u32::from(violation.field == "reserved");
        });
        assert_eq!(reserved, 0, "{segment:?}");
        let bad = [("no such", Value::Number(0))];
        assert!(segment.construct(bad, &mut bytes).is_err());
        assert!(segment.construct([], &mut bytes[..len - 1]).is_err());
    }
}
