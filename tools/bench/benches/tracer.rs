// SPDX-License-Identifier: GPL-2.0

//! The firmware tracer: reader, parser and formatter beside upstream's algorithm in C, and raw blocks
//! beside memcpy. After criterion's numbers comes a summary: each ratio, from the fastest of many
//! runs that take turns, and instructions for each trace where perf or valgrind can count them.

#![allow(missing_docs)]

use std::env;
use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use criterion::{criterion_group, Criterion, Throughput};
use mlx5_bench::corpus::Corpus;
use mlx5_bench::ours::Ours;
use mlx5_bench::upstream::{Format, Upstream};
use mlx5_pure::tracer::format::{format, Line, Shape, LINE};

/// Bytes of a block.
const BLOCK: usize = 256;

/// Names the work whose instructions are counted, in a program run for that.
const COUNT: &str = "MLX5RS_BENCH_COUNT";

const WORDS: [u32; 7] = [0x1234, 5, 0xffff_fff0, 0x8000, 77, 6, 7];

/// Copies the blocks one after the other to the same place, as the readers do.
fn memcpy(ring: &[u8], block: &mut [u8; BLOCK]) {
    for from in ring.chunks_exact(BLOCK) {
        block.copy_from_slice(from);
        black_box(&*block);
    }
}

fn format_ours(formats: &[&str]) {
    let mut text = [0; LINE];
    let mut line = Line::new(&mut text);
    for text in formats {
        line.clear();
        // As for a trace: what it takes, then the text.
        black_box(Shape::of(text.as_bytes()));
        format(text.as_bytes(), black_box(&WORDS), &mut line);
        black_box(line.as_bytes());
    }
}

fn format_upstream(formats: &mut [Format]) {
    let mut text = [0; LINE];
    for format in formats {
        black_box(format.words());
        black_box(format.print(black_box(&WORDS), &mut text));
    }
}

fn formats() -> (Vec<&'static str>, Vec<Format>) {
    Corpus::formats()
        .map(|(text, _)| (text, Format::new(text)))
        .unzip()
}

fn blocks(c: &mut Criterion) {
    let corpus = Corpus::new();
    let mut group = c.benchmark_group("tracer blocks");
    group.throughput(Throughput::Bytes(corpus.blocks() * BLOCK as u64));
    let ring = &corpus.ring()[..corpus.blocks() as usize * BLOCK];
    let mut block = [0; BLOCK];
    group.bench_function("memcpy", |b| b.iter(|| memcpy(ring, &mut block)));
    let mut ours = Ours::new(&corpus);
    group.bench_function("ours", |b| {
        b.iter(|| {
            ours.rewind();
            ours.copy()
        });
    });
    let mut upstream = Upstream::new(&corpus);
    group.bench_function("upstream", |b| {
        b.iter(|| {
            upstream.rewind();
            upstream.copy()
        });
    });
    group.finish();
}

fn traces(c: &mut Criterion) {
    let corpus = Corpus::new();
    let mut group = c.benchmark_group("tracer traces");
    group.throughput(Throughput::Elements(corpus.events()));
    let mut ours = Ours::new(&corpus);
    group.bench_function("ours", |b| {
        b.iter(|| {
            ours.rewind();
            ours.read()
        });
    });
    let mut upstream = Upstream::new(&corpus);
    group.bench_function("upstream", |b| {
        b.iter(|| {
            upstream.rewind();
            upstream.read()
        });
    });
    group.finish();
}

fn formatter(c: &mut Criterion) {
    let (ours, mut upstream) = formats();
    let mut group = c.benchmark_group("tracer formatter");
    group.throughput(Throughput::Elements(ours.len() as u64));
    group.bench_function("ours", |b| b.iter(|| format_ours(&ours)));
    group.bench_function("upstream", |b| b.iter(|| format_upstream(&mut upstream)));
    group.finish();
}

criterion_group!(benches, blocks, traces, formatter);

/// The shortest times of two pieces of work that take turns, so that both meet the same machine.
fn fastest(mut a: impl FnMut(), mut b: impl FnMut()) -> (Duration, Duration) {
    let time = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    let mut best = (Duration::MAX, Duration::MAX);
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        best.0 = best.0.min(time(&mut a));
        best.1 = best.1.min(time(&mut b));
    }
    best
}

/// Work by name, `rounds` times.
fn work(name: &str, rounds: u32) {
    let corpus = Corpus::new();
    let (mut ours, mut upstream) = (Ours::new(&corpus), Upstream::new(&corpus));
    let (texts, mut formats) = formats();
    for _ in 0..rounds {
        ours.rewind();
        upstream.rewind();
        match name {
            "ours traces" => drop(black_box(ours.read())),
            "upstream traces" => drop(black_box(upstream.read())),
            "ours blocks" => drop(black_box(ours.copy())),
            "upstream blocks" => drop(black_box(upstream.copy())),
            "ours formatter" => format_ours(&texts),
            "upstream formatter" => format_upstream(&mut formats),
            _ => panic!("{COUNT}: {name} is not known"),
        }
    }
}

/// Instructions of this program in user space when it does `name` `rounds` times.
fn instructions(name: &str, rounds: u32) -> Option<u64> {
    let exe = env::current_exe().ok()?;
    let run = |cmd: &mut Command| {
        let output = cmd
            .arg(&exe)
            .env(COUNT, format!("{name}={rounds}"))
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then_some(text)
    };
    let perf = run(Command::new("perf").args(["stat", "-x,", "-e", "instructions:u"]));
    let counted = perf.and_then(|text| text.lines().last()?.split(',').next()?.parse().ok());
    counted.or_else(|| {
        // It counts by running the program on a processor of its own, exactly.
        let text = run(Command::new("valgrind").args([
            "--tool=cachegrind",
            "--cache-sim=no",
            "--cachegrind-out-file=/dev/null",
        ]))?;
        let line = text.lines().find(|line| line.contains("I   refs:"))?;
        let number = line.rsplit(' ').next()?.replace(',', "");
        number.parse().ok()
    })
}

/// Instructions of one round: the difference of two runs.
fn instructions_of_a_round(name: &str) -> Option<u64> {
    const ROUNDS: u32 = 10;
    let (few, many) = (instructions(name, 1)?, instructions(name, 1 + ROUNDS)?);
    Some(many.checked_sub(few)? / u64::from(ROUNDS))
}

fn summary() {
    let corpus = Corpus::new();
    let (mut ours, mut upstream) = (Ours::new(&corpus), Upstream::new(&corpus));
    let ring = &corpus.ring()[..corpus.blocks() as usize * BLOCK];
    let bytes = ring.len() as f64;
    let (events, strings) = (corpus.events() as f64, Corpus::formats().count() as f64);

    println!("\nSummary: the fastest of many runs, taking turns\n");
    let mut block = [0; BLOCK];
    let (a, b) = fastest(
        || {
            ours.rewind();
            black_box(ours.copy());
        },
        || memcpy(ring, &mut block),
    );
    let rate = |time: Duration| bytes / time.as_secs_f64() / 1e9;
    println!(
        "blocks:    ours {:.2} GB/s, memcpy {:.2} GB/s: {:.2} of it (goal: 0.25)",
        rate(a),
        rate(b),
        rate(a) / rate(b)
    );
    let (a, b) = fastest(
        || {
            ours.rewind();
            black_box(ours.copy());
        },
        || {
            upstream.rewind();
            black_box(upstream.copy());
        },
    );
    println!(
        "           upstream {:.2} GB/s: {:.2} times",
        rate(b),
        rate(a) / rate(b)
    );
    let (a, b) = fastest(
        || {
            ours.rewind();
            black_box(ours.read());
        },
        || {
            upstream.rewind();
            black_box(upstream.read());
        },
    );
    let rate = |time: Duration| events / time.as_secs_f64() / 1e6;
    println!(
        "traces:    ours {:.1} M/s, upstream {:.1} M/s: {:.2} times (goal: 2)",
        rate(a),
        rate(b),
        rate(a) / rate(b)
    );
    let (texts, mut formats) = formats();
    let (a, b) = fastest(
        || (0..100).for_each(|_| format_ours(&texts)),
        || (0..100).for_each(|_| format_upstream(&mut formats)),
    );
    let rate = |time: Duration| 100.0 * strings / time.as_secs_f64() / 1e6;
    println!(
        "formatter: ours {:.1} M/s, upstream {:.1} M/s: {:.2} times",
        rate(a),
        rate(b),
        rate(a) / rate(b)
    );
    println!();
    for (what, unit, count) in [
        ("traces", "trace", events),
        ("blocks", "block", corpus.blocks() as f64),
        ("formatter", "string", strings),
    ] {
        let of = |whose: &str| {
            instructions_of_a_round(&format!("{whose} {what}")).map(|sum| sum as f64 / count)
        };
        match (of("ours"), of("upstream")) {
            (Some(ours), Some(upstream)) => println!(
                "instructions per {unit}: ours {ours:.0}, upstream {upstream:.0}: {:.2} times",
                upstream / ours
            ),
            _ => println!(
                "instructions per {unit}: not measurable (perf has no counter here, and there is \
                 no valgrind)"
            ),
        }
    }
}

fn main() {
    if let Ok(what) = env::var(COUNT) {
        let (name, rounds) = what.split_once('=').expect("what=rounds");
        return work(name, rounds.parse().expect("a number of rounds"));
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
    // Where cargo only wants to know whether benches run.
    if !env::args().any(|arg| arg == "--test" || arg == "--list") {
        summary();
    }
}
