// SPDX-License-Identifier: GPL-2.0

//! What the fast paths stand on: fields, signatures, event decoding.

#![allow(missing_docs)]

use std::hint::black_box;

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use mlx5_pure::cmdif::wire::{mailbox, Post, MAILBOX, MAILBOX_DATA};
use mlx5_pure::eq::eqe::{Event, EQE, OWNER_OFFSET};
use mlx5_pure::eq::ring::{Ring, OWNER_INIT};
use mlx5_pure::layouts::caps::CmdHcaCap;
use mlx5_pure::layouts::commands::{CreateEqIn, ManagePagesIn};

fn fields(c: &mut Criterion) {
    let mut group = c.benchmark_group("fields");
    let page = [0x5a; CmdHcaCap::LEN];
    group.bench_function("get: 5, 8, 16 and 64 bits", |b| {
        b.iter(|| {
            let caps = CmdHcaCap::view(black_box(&page));
            (
                caps.log_max_qp(),
                caps.log_max_eq_sz(),
                caps.vhca_id(),
                caps.general_obj_types(),
            )
        });
    });
    let mut command = CreateEqIn::new();
    group.bench_function("set: 5, 12, 16 and 4 x 64 bits", |b| {
        b.iter(|| {
            command.set_opcode(black_box(0x301));
            command.set_event_bitmask(black_box([1, 2, 3, 4]));
            let mut context = command.eq_context_entry_mut();
            (
                context.try_set_log_eq_size(black_box(8)).is_ok(),
                context.try_set_intr(black_box(3)).is_ok(),
            )
        });
    });
    let mut pages = [0; ManagePagesIn::LEN + 512 * 8];
    group.throughput(Throughput::Elements(512));
    group.bench_function("512 page addresses", |b| {
        b.iter(|| {
            for i in 0..512 {
                let _ = ManagePagesIn::PAS.set(&mut pages, i, black_box(0x1000));
            }
            ManagePagesIn::PAS
                .iter(&pages)
                .fold(0, |sum, page| sum ^ page)
        });
    });
    group.finish();
}

fn signatures(c: &mut Criterion) {
    let mut group = c.benchmark_group("signatures");
    group.bench_function("descriptor", |b| {
        b.iter(|| {
            Post {
                head: black_box(&[1; 16]),
                input_len: 16,
                input_ptr: 0,
                output_len: 16,
                output_ptr: 0,
                token: 7,
            }
            .descriptor()
        });
    });
    group.throughput(Throughput::Bytes(MAILBOX as u64));
    group.bench_function("mailbox", |b| {
        b.iter(|| mailbox(black_box(&[0x5a; MAILBOX_DATA]), 0x1000, 1, 7));
    });
    group.finish();
}

fn events(c: &mut Criterion) {
    let mut entry = [0_u8; EQE];
    entry[1] = 0x0a;
    entry[0x23] = 1;
    let mut group = c.benchmark_group("events");
    group.throughput(Throughput::Elements(256));
    group.bench_function("one pass over a queue of 256", |b| {
        let mut queue = vec![entry; 256];
        let mut ring = Ring::new(8).expect("a small ring");
        let mut owner = !OWNER_INIT & 1;
        b.iter(|| {
            for entry in &mut queue {
                entry[OWNER_OFFSET] = owner;
            }
            owner ^= 1;
            let mut slots = 0;
            while ring.is_ours(queue[ring.index()][OWNER_OFFSET]) {
                if let Event::Command { slots: done } = Event::decode(&queue[ring.index()]) {
                    slots |= done;
                }
                ring.advance();
            }
            slots
        });
    });
    group.finish();
}

criterion_group!(benches, fields, signatures, events);
criterion_main!(benches);
