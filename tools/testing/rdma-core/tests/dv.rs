// SPDX-License-Identifier: GPL-2.0

//! The same WQEs from `wqe/` and from the helpers and structures of `infiniband/mlx5dv.h`, in both forms
//! of the helpers, over random parameters.

#![allow(missing_docs)]

mod common;

use common::*;
use mlx5_pure::layouts::wqe::WqeOpcode;
use mlx5_pure::wqe::*;
use mlx5_rdma_core::dv::{self, Form};
use proptest::collection::vec;
use proptest::prelude::*;

/// Posts with `ours`, builds with `theirs`, and compares.
fn compare<T: Transport>(
    at: Spot,
    flags: Flags,
    (opcode, opmod, imm): (WqeOpcode, u8, u32),
    ours: impl FnOnce(Wqe<'_, T, T::Start>) -> Posted,
    theirs: impl Fn(&mut dv::Wqe, Form),
) -> Result<(), TestCaseError> {
    let (bytes, posted) = post::<T>(at, flags, ours);
    for form in [Form::Plain, Form::X86] {
        let mut wqe = dv::Wqe::new();
        theirs(&mut wqe, form);
        let ctrl = dv::Ctrl {
            pi: at.pi,
            opcode: opcode.0,
            opmod,
            qpn: at.qpn.get(),
            fm_ce_se: fm_ce_se(flags),
            signature: 0,
            imm,
        };
        check_same(&bytes, wqe.finish(form, &ctrl))?;
    }
    prop_assert_eq!(&posted.doorbell[..], &bytes[..8]);
    check_valid::<T>(&bytes, at)?;
    Ok(())
}

fn data(wqe: &mut dv::Wqe, form: Form, list: &[Sge]) {
    for sge in list.iter().filter(|sge| !sge.is_empty()) {
        wqe.data(form, sge.len(), sge.place().lkey, sge.place().addr);
    }
}

fn inline(wqe: &mut dv::Wqe, bytes: &[u8]) {
    if !bytes.is_empty() {
        wqe.inline(bytes);
    }
}

fn dgram(av: &Av) -> dv::Dgram {
    let grh = av.grh;
    dv::Dgram {
        stat_rate_sl: av.stat_rate << 4 | av.sl,
        fl_mlid: u8::from(av.loopback) << 7 | av.path_bits,
        rlid: av.dlid,
        tclass: grh.map_or(0, |grh| grh.tclass),
        hop_limit: grh.map_or(0, |grh| grh.hop_limit),
        grh_gid_fl: grh.map_or(0, |grh| {
            1 << 30 | u32::from(grh.sgid_index) << 20 | grh.flow_label
        }),
        rgid: grh.map_or([0; 16], |grh| grh.dgid),
        ..dv::Dgram::default()
    }
}

fn finish<T: Transport, S: build::Finishable>(wqe: Wqe<'_, T, S>) -> Posted {
    wqe.finish_checked().unwrap()
}

const SEND: WqeOpcode = WqeOpcode::SEND;

proptest! {
    #[test]
    fn nop(at in spot(), flags in flags()) {
        let op = (WqeOpcode::NOP, 0, 0);
        compare::<Rc>(at, flags, op, |wqe| finish(wqe.nop()), |_, _| {})?;
    }

    #[test]
    fn send(at in spot(), flags in flags(), list in vec(sge(), 0..20)) {
        compare::<Rc>(
            at,
            flags,
            (SEND, 0, 0),
            |wqe| finish(wqe.send().data_list(&list)),
            |wqe, form| data(wqe, form, &list),
        )?;
    }

    #[test]
    fn send_imm(at in spot(), flags in flags(), list in vec(sge(), 0..20), imm: u32) {
        compare::<Uc>(
            at,
            flags,
            (WqeOpcode::SEND_IMM, 0, imm),
            |wqe| finish(wqe.send_imm(imm).data_list(&list)),
            |wqe, form| data(wqe, form, &list),
        )?;
    }

    #[test]
    fn send_inval(at in spot(), flags in flags(), bytes in vec(any::<u8>(), 0..400), rkey: u32) {
        compare::<Rc>(
            at,
            flags,
            (WqeOpcode::SEND_INVAL, 0, rkey),
            |wqe| finish(wqe.send_inval(rkey).inline(&bytes)),
            |wqe, _| inline(wqe, &bytes),
        )?;
    }

    #[test]
    fn write(at in spot(), flags in flags(), remote in remote(), list in vec(sge(), 0..20)) {
        compare::<Rc>(
            at,
            flags,
            (WqeOpcode::RDMA_WRITE, 0, 0),
            |wqe| finish(wqe.write(remote).data_list(&list)),
            |wqe, form| {
                wqe.raddr(remote.addr, remote.rkey);
                data(wqe, form, &list);
            },
        )?;
    }

    #[test]
    fn write_inline(
        at in spot(),
        flags in flags(),
        remote in remote(),
        parts in vec(vec(any::<u8>(), 0..90), 0..5),
        imm: u32,
    ) {
        let slices: Vec<_> = parts.iter().map(Vec::as_slice).collect();
        compare::<Uc>(
            at,
            flags,
            (WqeOpcode::RDMA_WRITE_IMM, 0, imm),
            |wqe| finish(wqe.write_imm(remote, imm).inline_parts(&slices)),
            |wqe, _| {
                wqe.raddr(remote.addr, remote.rkey);
                inline(wqe, &parts.concat());
            },
        )?;
    }

    #[test]
    fn read(at in spot(), flags in flags(), remote in remote(), list in vec(sge(), 0..20)) {
        compare::<Rc>(
            at,
            flags,
            (WqeOpcode::RDMA_READ, 0, 0),
            |wqe| finish(wqe.read(remote).data_list(&list)),
            |wqe, form| {
                wqe.raddr(remote.addr, remote.rkey);
                data(wqe, form, &list);
            },
        )?;
    }

    #[test]
    fn atomics(
        at in spot(),
        flags in flags(),
        remote in remote(),
        compare_value: u64,
        swap_add: u64,
        result in local(),
        add: bool,
    ) {
        let remote = Remote { addr: remote.addr & !7, ..remote };
        let op = if add { WqeOpcode::ATOMIC_FA } else { WqeOpcode::ATOMIC_CS };
        compare::<Rc>(
            at,
            flags,
            (op, 0, 0),
            |wqe| {
                let wqe = if add {
                    wqe.fetch_add(remote, swap_add, result)
                } else {
                    wqe.compare_swap(remote, compare_value, swap_add, result)
                };
                finish(wqe.unwrap())
            },
            |wqe, form| {
                wqe.raddr(remote.addr, remote.rkey)
                    .atomic(swap_add, if add { 0 } else { compare_value })
                    .data(form, 8, result.lkey, result.addr);
            },
        )?;
    }

    #[test]
    fn datagram(at in spot(), flags in flags(), av in av(), peer in number(), qkey: u32,
                list in vec(sge(), 0..20)) {
        compare::<Ud>(
            at,
            flags,
            (SEND, 0, 0),
            |wqe| finish(wqe.to(&av.handle(), Datagram { qpn: peer, qkey }).send().data_list(&list)),
            |wqe, form| {
                wqe.dgram(&dv::Dgram {
                    key: u64::from(qkey) << 32,
                    dqp_dct: peer.get(),
                    ..dgram(&av)
                });
                data(wqe, form, &list);
            },
        )?;
    }

    #[test]
    fn dynamic_connection(at in spot(), flags in flags(), av in av(), peer in number(), key: u64,
                          remote in remote(), bytes in vec(any::<u8>(), 0..300)) {
        compare::<Dci>(
            at,
            flags,
            (WqeOpcode::RDMA_WRITE, 0, 0),
            |wqe| {
                let wqe = wqe.to(&av.handle(), DcTarget { dctn: peer, key });
                finish(wqe.write(remote).inline(&bytes))
            },
            |wqe, _| {
                wqe.dgram(&dv::Dgram { key, dqp_dct: peer.get(), ..dgram(&av) })
                    .raddr(remote.addr, remote.rkey);
                inline(wqe, &bytes);
            },
        )?;
    }

    #[test]
    fn packet(at in spot(), flags in flags(), header in vec(any::<u8>(), 0..200),
              checksums in 0_u8..16, list in vec(sge(), 0..10)) {
        let eth = Eth {
            header: match header.as_slice() {
                [] => Header::None,
                header => Header::Inline(header),
            },
            checksums: checksums_of(checksums),
            ..Eth::default()
        };
        compare::<Raw>(
            at,
            flags,
            (SEND, 0, 0),
            |wqe| finish(wqe.send(&eth).unwrap().data_list(&list)),
            |wqe, form| {
                wqe.eth(checksums << 4, 0, &header);
                data(wqe, form, &list);
            },
        )?;
    }

    #[test]
    fn large_packet(at in spot(), flags in flags(), header in vec(any::<u8>(), 1..200),
                    mss in 1_u16.., checksums in 0_u8..16, list in vec(sge(), 0..10)) {
        let lso = Lso {
            header: &header,
            mss,
            trailer: None,
            checksums: checksums_of(checksums),
            swp: None,
            metadata: 0,
        };
        compare::<Raw>(
            at,
            flags,
            (WqeOpcode::LSO, 0, 0),
            |wqe| finish(wqe.lso(&lso).unwrap().data_list(&list)),
            |wqe, form| {
                wqe.eth(checksums << 4, mss, &header);
                data(wqe, form, &list);
            },
        )?;
    }

    #[test]
    fn list_of_keys(at in spot(), flags in flags(), mkey: u32, pd in number(), fields in patch(),
                    check in 0_u16..3, klms in vec((0..=1_u32 << 31, any::<u32>(), any::<u64>()), 0..20)) {
        let list: Vec<_> = klms
            .iter()
            .map(|(bytes, key, addr)| Klm::new(*addr, *key, *bytes).unwrap())
            .collect();
        let patch = fields.patch(mkey, pd);
        let umr = Umr {
            mkey,
            check: [Check::None, Check::MustBeFree, Check::MustNotBeFree][usize::from(check)],
            patch,
            translations: if list.is_empty() { Translations::None } else { Translations::Klms(&list) },
            ..Umr::default()
        };
        compare::<Rc>(
            at,
            flags,
            (WqeOpcode::UMR, 0, mkey),
            |wqe| finish(wqe.umr(&umr).unwrap()),
            |wqe, _| {
                let octowords = (klms.len() as u16).next_multiple_of(4);
                wqe.umr_ctrl(1 << 7 | (check as u8) << 5, octowords, 0, patch.mask().bits())
                    .mkey(&fields.context(mkey, pd));
                for (bytes, key, addr) in &klms {
                    wqe.klm(*bytes, *key, *addr);
                }
                wqe.pad_block();
            },
        )?;
    }

    #[test]
    fn strided(at in spot(), flags in flags(), mkey: u32, repeat: u32, offset in 0_u16..0x4000,
               entries in vec((any::<u16>(), any::<u16>(), any::<u32>(), any::<u64>()), 1..20)) {
        let strides: Vec<_> = entries
            .iter()
            .map(|&(stride, bytes, key, addr)| Stride { addr, key, bytes, stride })
            .collect();
        let umr = Umr {
            mkey,
            translations: Translations::Strides(StrideBlock { repeat, entries: &strides }),
            place: Place::At(64 * u64::from(offset)),
            ..Umr::default()
        };
        compare::<Rc>(
            at,
            flags,
            (WqeOpcode::UMR, 0, mkey),
            |wqe| finish(wqe.umr(&umr).unwrap()),
            |wqe, _| {
                let octowords = (1 + entries.len() as u16).next_multiple_of(4);
                let cycle = entries.iter().map(|entry| u32::from(entry.1)).sum();
                wqe.umr_ctrl(1 << 7 | 1 << 4, octowords, 4 * offset, 0)
                    .mkey(&dv::Mkey::default())
                    .repeat(cycle, repeat, entries.len() as u16);
                for &(stride, bytes, key, va) in &entries {
                    wqe.repeat_entry(stride, bytes, key, va);
                }
                wqe.pad_block();
            },
        )?;
    }
}
