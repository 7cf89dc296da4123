// SPDX-License-Identifier: GPL-2.0

//! Time and instructions per WQE, beside the helpers of `infiniband/mlx5dv.h` and rdma-core's provider.
//!
//! All build the same bytes (but the provider in a UMR), in batches inside of C and inside of Rust, so
//! that no call between the two is measured. Each WQE has parameters of its own, in memory, and nobody
//! knows the length of the queue when it is compiled. C is compiled with -O2. Around the helpers, and in the
//! provider (by the calls of `struct ibv_qp_ex`), there is a check of the room in the queue; Rust
//! (`opt-level = 2`, as the kernel's) checks all that the builder checks; "validated" also reads the WQE
//! back and checks every rule.
//!
//! Criterion gives the times. The table behind them has the best time of many batches, which other
//! programs on the machine disturb least, and instructions, counted one by one with ptrace: that works
//! without counters in hardware.

#![allow(missing_docs)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use mlx5_pure::wqe::*;
use mlx5_rdma_core::bench::{Batch, Entry, Kind, Params, ProviderBatch};
use mlx5_rdma_core::dv::Dgram;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{waitpid, WaitStatus};
use nix::unistd::{fork, ForkResult, Pid};

/// Basic blocks of the queue.
const BLOCKS: usize = 256;
/// WQEs of a batch: the queue is full with the longest.
const BATCH: u32 = 64;

/// Aligned as queues are.
#[repr(C, align(4096))]
struct Ring([Block; BLOCKS]);

const KINDS: [(Kind, &str); 5] = [
    (Kind::Send, "RC send"),
    (Kind::WriteInline, "RDMA write, 64 bytes inline"),
    (Kind::Datagram, "UD send"),
    (Kind::CompareSwap, "compare-and-swap"),
    (Kind::Umr, "UMR, 8 KLMs"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    Dv,
    DvX86,
    Provider,
    Wqe,
    Validated,
}

const VARIANTS: [(Variant, &str); 5] = [
    (Variant::Dv, "mlx5dv.h"),
    (Variant::DvX86, "mlx5dv.h, x86 forms"),
    (Variant::Provider, "provider"),
    (Variant::Wqe, "wqe"),
    (Variant::Validated, "wqe, validated"),
];

const QPN: u32 = 0x42;

/// What the compiler does not know.
struct Input {
    /// What is built, WQE by WQE: as large as C's, so that caches hold it as well.
    params: Vec<Params<'static>>,
    /// The address of each datagram.
    handles: Vec<AddressHandle>,
    /// Entries of a list of keys.
    klms: Vec<Klm>,
    config: Config,
}

static DATA: [u8; 64] = [0x5a; 64];
static LIST: [Entry; 8] = {
    let mut list = [Entry {
        addr: 0x7f00_0000_0000,
        key: 0x1234,
        byte_count: 4096,
    }; 8];
    list[3].byte_count = 512;
    list
};

impl Input {
    fn new() -> Self {
        let path = Path::Ib {
            dlid: 7,
            sl: 3,
            path_bits: 1,
            grh: Some(Grh {
                dgid: [0xfe; 16],
                sgid_index: 1,
                flow_label: 0x12345,
                hop_limit: 64,
                tclass: 8,
            }),
        };
        let handle = AddressHandle::new(&path, 0).unwrap();
        let params = (0..u64::from(BATCH)).map(|i| Params {
            addr: 0x7f00_1234_5678 + i * 8,
            result: 0x7f00_2000_0000 + i * 8,
            compare: 7 + i,
            swap: 9 + i,
            length: 4096 + i as u32,
            lkey: 0x1234 + i as u32,
            rkey: 0x5678 + i as u32,
            peer: 0x99 + i as u32,
            mkey: 0x8_0001 + i as u32,
            data: &DATA,
            list: &LIST,
            av: Dgram {
                stat_rate_sl: 3,
                fl_mlid: 1,
                rlid: 7,
                tclass: 8,
                hop_limit: 64,
                grh_gid_fl: 1 << 30 | 1 << 20 | 0x12345,
                rgid: [0xfe; 16],
                ..Dgram::default()
            },
        });
        let klms = LIST
            .iter()
            .map(|entry| Klm::new(entry.addr, entry.key, entry.byte_count).unwrap());
        black_box(Self {
            params: params.collect(),
            handles: vec![handle; BATCH as usize],
            klms: klms.collect(),
            config: Config {
                qpn: Number::low(QPN),
                pd: Number::low(1),
                signed: false,
                caps: Caps::ALL,
            },
        })
    }
}

/// Ends a WQE in one of the two ways.
trait Finish {
    fn finish<T: Transport, S: build::Finishable>(wqe: Wqe<'_, T, S>) -> Result<Posted, Refusal>;
}

struct Plain;
struct Checked;

impl Finish for Plain {
    #[inline(always)]
    fn finish<T: Transport, S: build::Finishable>(wqe: Wqe<'_, T, S>) -> Result<Posted, Refusal> {
        wqe.finish()
    }
}

impl Finish for Checked {
    #[inline(always)]
    fn finish<T: Transport, S: build::Finishable>(wqe: Wqe<'_, T, S>) -> Result<Posted, Refusal> {
        wqe.finish_checked()
    }
}

/// What is measured is not refused.
#[inline(always)]
fn legal<T, E>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(_) => refused(),
    }
}

#[cold]
#[inline(never)]
fn refused() -> ! {
    panic!("a WQE was refused")
}

/// Builds a batch in an empty queue; where the producer is then.
#[inline(always)]
fn batch<T: Transport>(
    ring: &mut [Block],
    input: &Input,
    pi: u16,
    mut build: impl FnMut(Wqe<'_, T, T::Start>, &Params<'_>, &AddressHandle) -> Posted,
) -> u16 {
    let producer = Producer { pi, ci: pi };
    let mut queue = SendQueue::<T>::new(ring, &input.config, producer).unwrap();
    for (params, handle) in input.params.iter().zip(&input.handles) {
        let _ = build(legal(queue.start(Flags::SIGNALED)), params, handle);
    }
    queue.producer().pi
}

#[inline(never)]
fn send<F: Finish>(ring: &mut [Block], input: &Input, pi: u16) -> u16 {
    batch::<Rc>(ring, input, pi, |wqe, params, _| {
        let sge = legal(Sge::new(params.addr, params.lkey, params.length));
        legal(F::finish(wqe.send().data(sge)))
    })
}

#[inline(never)]
fn write_inline<F: Finish>(ring: &mut [Block], input: &Input, pi: u16) -> u16 {
    batch::<Rc>(ring, input, pi, |wqe, params, _| {
        let remote = Remote {
            addr: params.addr,
            rkey: params.rkey,
        };
        legal(F::finish(wqe.write(remote).inline(params.data)))
    })
}

#[inline(never)]
fn datagram<F: Finish>(ring: &mut [Block], input: &Input, pi: u16) -> u16 {
    batch::<Ud>(ring, input, pi, |wqe, params, handle| {
        let peer = Datagram {
            qpn: Number::low(params.peer),
            qkey: params.rkey,
        };
        let sge = legal(Sge::new(params.addr, params.lkey, params.length));
        legal(F::finish(wqe.to(handle, peer).send().data(sge)))
    })
}

#[inline(never)]
fn compare_swap<F: Finish>(ring: &mut [Block], input: &Input, pi: u16) -> u16 {
    batch::<Rc>(ring, input, pi, |wqe, params, _| {
        let remote = Remote {
            addr: params.addr,
            rkey: params.rkey,
        };
        let result = Local {
            addr: params.result,
            lkey: params.lkey,
        };
        legal(F::finish(legal(wqe.compare_swap(
            remote,
            params.compare,
            params.swap,
            result,
        ))))
    })
}

#[inline(never)]
fn umr<F: Finish>(ring: &mut [Block], input: &Input, pi: u16) -> u16 {
    batch::<Rc>(ring, input, pi, |wqe, params, _| {
        let umr = Umr {
            mkey: params.mkey,
            patch: MkeyPatch::new()
                .start_addr(params.addr)
                .length(params.length.into())
                .free(false),
            translations: Translations::Klms(&input.klms),
            ..Umr::default()
        };
        legal(F::finish(legal(wqe.umr(&umr))))
    })
}

fn ours(kind: Kind, variant: Variant) -> fn(&mut [Block], &Input, u16) -> u16 {
    match (kind, variant) {
        (Kind::Send, Variant::Validated) => send::<Checked>,
        (Kind::Send, _) => send::<Plain>,
        (Kind::WriteInline, Variant::Validated) => write_inline::<Checked>,
        (Kind::WriteInline, _) => write_inline::<Plain>,
        (Kind::Datagram, Variant::Validated) => datagram::<Checked>,
        (Kind::Datagram, _) => datagram::<Plain>,
        (Kind::CompareSwap, Variant::Validated) => compare_swap::<Checked>,
        (Kind::CompareSwap, _) => compare_swap::<Plain>,
        (Kind::Umr, Variant::Validated) => umr::<Checked>,
        (Kind::Umr, _) => umr::<Plain>,
    }
}

/// Calls `run` with a function that builds one batch.
fn with_batch<R>(
    ring: &mut Ring,
    input: &Input,
    kind: Kind,
    variant: Variant,
    run: impl FnOnce(&mut dyn FnMut(u32)) -> R,
) -> R {
    let mut pi = 0;
    match variant {
        Variant::Dv | Variant::DvX86 => {
            let x86 = variant == Variant::DvX86;
            let mut batch = Batch::new(&mut ring.0, QPN, &input.params, kind, x86);
            run(&mut |count| pi = black_box(batch.build(pi, count)))
        }
        Variant::Provider => {
            let mut batch = ProviderBatch::new(BLOCKS, QPN, &input.params, kind);
            let result = run(&mut |count| {
                black_box(batch.build(count));
            });
            ring.0.copy_from_slice(batch.ring());
            result
        }
        Variant::Wqe | Variant::Validated => {
            let build = ours(kind, variant);
            // A batch of nothing is the cost of the call.
            run(&mut |count| {
                if count != 0 {
                    pi = black_box(build(black_box(&mut ring.0), input, pi));
                }
            })
        }
    }
}

/// All variants build the same.
fn check(ring: &mut Ring, input: &Input, kind: Kind) {
    let bytes: Vec<Vec<u8>> = VARIANTS
        .iter()
        .map(|(variant, _)| {
            ring.0.fill([0; BLOCK]);
            with_batch(ring, input, kind, *variant, |build| build(BATCH));
            ring.0.as_flattened().to_vec()
        })
        .collect();
    for (other, (variant, name)) in bytes.iter().zip(VARIANTS) {
        if kind == Kind::Umr && variant == Variant::Provider {
            // It changes more of the key than the others.
            continue;
        }
        assert!(*other == bytes[0], "{kind:?}: {name} builds something else");
    }
}

fn best_time(build: &mut dyn FnMut(u32)) -> Duration {
    let mut best = Duration::MAX;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(200) {
        let batch = Instant::now();
        for _ in 0..16 {
            build(BATCH);
        }
        best = best.min(batch.elapsed() / 16);
    }
    best
}

/// Instructions that `build` takes for `count` WQEs, in another process that is stepped through.
fn steps(build: &mut dyn FnMut(u32), count: u32) -> nix::Result<u64> {
    // SAFETY: There is one thread, and the child builds WQEs, traps and exits.
    match unsafe { fork() }? {
        ForkResult::Child => {
            if ptrace::traceme().is_ok() {
                trap();
                build(count);
                trap();
            }
            // SAFETY: It ends this process and nothing else.
            unsafe { nix::libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            let result = count_between_traps(child);
            // It may be gone.
            let _ = nix::sys::signal::kill(child, Signal::SIGKILL);
            let _ = waitpid(child, None);
            result
        }
    }
}

/// A breakpoint, where the tracer begins or ends to count.
#[inline(never)]
fn trap() {
    // SAFETY: It stops a process that is traced, and changes nothing.
    unsafe { std::arch::asm!("int3") }
}

fn count_between_traps(child: Pid) -> nix::Result<u64> {
    if waitpid(child, None)? != WaitStatus::Stopped(child, Signal::SIGTRAP) {
        return Err(nix::Error::EPERM);
    }
    let mut count = 0;
    loop {
        ptrace::step(child, None)?;
        match waitpid(child, None)? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
            _ => return Err(nix::Error::ECHILD),
        }
        // A step tells itself from a breakpoint.
        if ptrace::getsiginfo(child)?.si_code != nix::libc::TRAP_TRACE {
            return Ok(count);
        }
        count += 1;
    }
}

fn table(ring: &mut Ring, input: &Input) {
    println!(
        "\nBest of many batches of {BATCH}; ns and instructions per WQE; ratio to mlx5dv.h:\n"
    );
    println!(
        "{:<28} {:<20} {:>7} {:>6} {:>6} {:>6}",
        "", "", "ns", "ratio", "instr", "ratio"
    );
    for (kind, name) in KINDS {
        let mut base: Option<(f64, Option<f64>)> = None;
        for (variant, label) in VARIANTS {
            let (time, instructions) = with_batch(ring, input, kind, variant, |build| {
                let time = best_time(build).as_nanos() as f64 / f64::from(BATCH);
                let instructions = steps(build, 0).and_then(|call| {
                    let all = steps(build, BATCH)?;
                    Ok(all.saturating_sub(call) as f64 / f64::from(BATCH))
                });
                (time, instructions)
            });
            let (base_time, base_instructions) =
                *base.get_or_insert((time, instructions.as_ref().ok().copied()));
            let counted = match (&instructions, base_instructions) {
                (Ok(count), Some(base)) => format!("{count:>6.1} {:>6.2}", count / base),
                (Ok(count), None) => format!("{count:>6.1}"),
                (Err(error), _) => format!("not measurable here: {error}"),
            };
            println!(
                "{name:<28} {label:<20} {time:>7.2} {:>6.2} {counted}",
                time / base_time
            );
        }
    }
}

fn main() {
    let input = Input::new();
    let mut ring = Box::new(Ring([[0; BLOCK]; BLOCKS]));
    for (kind, _) in KINDS {
        check(&mut ring, &input, kind);
    }
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    for (kind, name) in KINDS {
        let mut group = criterion.benchmark_group(format!("WQE: {name}"));
        group.throughput(Throughput::Elements(BATCH.into()));
        for (variant, label) in VARIANTS {
            group.bench_function(BenchmarkId::from_parameter(label), |b| {
                with_batch(&mut ring, &input, kind, variant, |build| {
                    b.iter(|| build(BATCH));
                });
            });
        }
        group.finish();
    }
    criterion.final_summary();
    table(&mut ring, &input);
}
