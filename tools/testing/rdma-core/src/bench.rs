// SPDX-License-Identifier: GPL-2.0

//! Batches of WQEs by the helpers of `infiniband/mlx5dv.h` (`c/bench.c`) with a check of the room, and by
//! the provider (`c/provider.c`).

use std::ffi::c_void;
use std::marker::PhantomData;

use crate::provider::{self, Block, Config, QueuePair};

/// An entry of a list of keys.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Entry {
    /// Address.
    pub addr: u64,
    /// Key.
    pub key: u32,
    /// Bytes.
    pub byte_count: u32,
}

/// Parameters of one WQE.
#[derive(Clone, Copy, Debug)]
pub struct Params<'a> {
    /// Address of the data, or of the peer's memory.
    pub addr: u64,
    /// Where an atomic returns the old value.
    pub result: u64,
    /// What an atomic compares.
    pub compare: u64,
    /// What it swaps in.
    pub swap: u64,
    /// Bytes of the data.
    pub length: u32,
    /// Local key.
    pub lkey: u32,
    /// Remote key, or queue key.
    pub rkey: u32,
    /// Queue pair of the peer.
    pub peer: u32,
    /// Memory key.
    pub mkey: u32,
    /// Inline data, of a length that divides the queue.
    pub data: &'a [u8],
    /// Entries of a list of keys.
    pub list: &'a [Entry],
    /// Address vector.
    pub av: crate::dv::Dgram,
}

#[repr(C)]
struct Work<'a> {
    addr: u64,
    result: u64,
    compare: u64,
    swap: u64,
    length: u32,
    lkey: u32,
    rkey: u32,
    peer: u32,
    mkey: u32,
    inline_length: u32,
    data: *const u8,
    klms: u32,
    grh_gid_fl: u32,
    list: *const Entry,
    rlid: u16,
    stat_rate_sl: u8,
    fl_mlid: u8,
    tclass: u8,
    hop_limit: u8,
    rmac: [u8; 6],
    rgid: [u8; 16],
    lifetime: PhantomData<&'a [u8]>,
}

/// A queue and what to put in it.
#[repr(C)]
pub(crate) struct Raw<'a> {
    ring: *mut c_void,
    blocks: u32,
    qpn: u32,
    work: *const Work<'a>,
}

impl<'a> Work<'a> {
    fn new(params: &Params<'a>) -> Self {
        let av = &params.av;
        Self {
            addr: params.addr,
            result: params.result,
            compare: params.compare,
            swap: params.swap,
            length: params.length,
            lkey: params.lkey,
            rkey: params.rkey,
            peer: params.peer,
            mkey: params.mkey,
            inline_length: params.data.len() as u32,
            data: params.data.as_ptr(),
            klms: params.list.len() as u32,
            grh_gid_fl: av.grh_gid_fl,
            list: params.list.as_ptr(),
            rlid: av.rlid,
            stat_rate_sl: av.stat_rate_sl,
            fl_mlid: av.fl_mlid,
            tclass: av.tclass,
            hop_limit: av.hop_limit,
            rmac: av.rmac,
            rgid: av.rgid,
            lifetime: PhantomData,
        }
    }
}

mod c {
    use super::Raw;

    macro_rules! batches {
        ($($name:ident),*) => {
            extern "C" {
                $(pub fn $name(bench: *const Raw<'_>, pi: u16, count: u32) -> u16;)*
            }
        };
    }

    batches!(
        bench_send,
        bench_write_inline,
        bench_datagram,
        bench_compare_swap,
        bench_umr,
        bench_x86_send,
        bench_x86_write_inline,
        bench_x86_datagram,
        bench_x86_compare_swap,
        bench_x86_umr
    );
}

/// What is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A send on a reliable connection, with one data segment.
    Send,
    /// An RDMA write with inline data.
    WriteInline,
    /// A send of a datagram, with one data segment.
    Datagram,
    /// Compare-and-swap.
    CompareSwap,
    /// A UMR with a list of keys.
    Umr,
}

/// A queue for batches.
pub struct Batch<'a> {
    ring: &'a mut [Block],
    qpn: u32,
    work: Vec<Work<'a>>,
    kind: Kind,
    x86: bool,
}

impl<'a> Batch<'a> {
    /// Batches of these WQEs in `ring`, the queue of `qpn`.
    ///
    /// # Panics
    ///
    /// A WQE would wrap in the queue, or be longer than a WQE can be.
    pub fn new(
        ring: &'a mut [Block],
        qpn: u32,
        list: &[Params<'a>],
        kind: Kind,
        x86: bool,
    ) -> Self {
        assert!(ring.len().is_power_of_two() && ring.len() <= 1 << 15);
        // x86 forms write 16 bytes at once.
        assert!(ring.as_ptr() as usize % 16 == 0);
        for params in list {
            let units = match kind {
                Kind::Send => 2,
                Kind::WriteInline => 2 + (params.data.len() + 4).div_ceil(16),
                Kind::Datagram => 5,
                Kind::CompareSwap => 4,
                Kind::Umr => 8 + params.list.len().next_multiple_of(4),
            };
            assert!(units < 64);
            assert!(units.div_ceil(4).is_power_of_two() && units.div_ceil(4) <= ring.len());
        }
        Self {
            ring,
            qpn,
            work: list.iter().map(Work::new).collect(),
            kind,
            x86,
        }
    }

    /// Builds the first `count` WQEs from the producer counter `pi` on; the counter behind them.
    ///
    /// # Panics
    ///
    /// The counter is none of a WQE of this kind (their number of blocks does not divide it), or there
    /// are not so many.
    #[inline]
    pub fn build(&mut self, pi: u16, count: u32) -> u16 {
        // A UMR has at most 16 blocks, and all are powers of two.
        assert!(pi % 16 == 0 && count as usize <= self.work.len());
        let build = match (self.kind, self.x86) {
            (Kind::Send, false) => c::bench_send,
            (Kind::WriteInline, false) => c::bench_write_inline,
            (Kind::Datagram, false) => c::bench_datagram,
            (Kind::CompareSwap, false) => c::bench_compare_swap,
            (Kind::Umr, false) => c::bench_umr,
            (Kind::Send, true) => c::bench_x86_send,
            (Kind::WriteInline, true) => c::bench_x86_write_inline,
            (Kind::Datagram, true) => c::bench_x86_datagram,
            (Kind::CompareSwap, true) => c::bench_x86_compare_swap,
            (Kind::Umr, true) => c::bench_x86_umr,
        };
        let raw = Raw {
            ring: self.ring.as_mut_ptr().cast(),
            blocks: self.ring.len() as u32,
            qpn: self.qpn,
            work: self.work.as_ptr(),
        };
        // SAFETY: All that the structure points to lives as long as `self`, and has `count` WQEs; they
        // begin at multiples of their length, a power of two as the number of blocks is, so none
        // reaches beyond the queue.
        unsafe { build(&raw, pi, count) }
    }
}

/// A queue pair of the provider, for batches.
pub struct ProviderBatch<'a> {
    work: Vec<Work<'a>>,
    kind: Kind,
    queue: QueuePair,
}

impl<'a> ProviderBatch<'a> {
    /// Batches of these WQEs in a queue of so many basic blocks.
    ///
    /// # Panics
    ///
    /// The number is none of a queue, there are more keys than a UMR holds, or no WQEs.
    pub fn new(blocks: usize, qpn: u32, list: &[Params<'a>], kind: Kind) -> Self {
        assert!(!list.is_empty() && list.iter().all(|params| params.list.len() <= 48));
        let transport = match kind {
            Kind::Datagram => provider::Kind::Ud,
            _ => provider::Kind::Rc,
        };
        Self {
            work: list.iter().map(Work::new).collect(),
            kind,
            queue: QueuePair::new(Config::new(transport, qpn, 0), blocks),
        }
    }

    /// Builds the first `count` WQEs, with the address vector and the list of the first; the producer
    /// counter behind them.
    ///
    /// # Panics
    ///
    /// There are not so many.
    #[inline]
    pub fn build(&mut self, count: u32) -> u16 {
        assert!(count as usize <= self.work.len());
        let raw = Raw {
            ring: std::ptr::null_mut(),
            blocks: 0,
            qpn: 0,
            work: self.work.as_ptr(),
        };
        // SAFETY: The handle is one of `rc_new`, of a queue pair that has the operation; all that the
        // structure points to lives as long as `self`, and has `count` WQEs and at least one. The
        // provider stays in its queue.
        unsafe { provider::c::rc_batch(self.queue.handle, &raw, self.kind as u32, count) }
    }

    /// The send queue.
    pub fn ring(&self) -> &[Block] {
        self.queue.ring()
    }
}
