// SPDX-License-Identifier: GPL-2.0

//! rdma-core's mlx5 provider: a queue pair in memory, that posts (`c/provider.c`, `c/address.c`).
//!
//! The structures are those of `c/provider.h`.

use std::io;
use std::marker::PhantomData;
use std::ptr;

/// A basic block.
pub type Block = [u8; 64];

pub(crate) mod c {
    use super::{Address, Config, Posted, Work};
    use std::ffi::c_void;

    #[repr(C)]
    pub struct Handle {
        _opaque: [u8; 0],
    }

    extern "C" {
        #[cfg(test)]
        pub fn rc_sizes(sizes: *mut usize);
        pub fn rc_address(address: *const Address, av: *mut u8) -> i32;
        pub fn rc_udp_sport(flow_label: u32) -> u16;
        pub fn rc_new(config: *const Config, ring: *mut c_void) -> *mut Handle;
        pub fn rc_free(handle: *mut Handle);
        pub fn rc_masked_atomic(
            seg: *mut c_void,
            swap_add: u64,
            compare: u64,
            swap_add_mask: u64,
            compare_mask: u64,
        );
        pub fn rc_batch(
            handle: *mut Handle,
            bench: *const crate::bench::Raw<'_>,
            kind: u32,
            count: u32,
        ) -> u16;
        pub fn rc_post(handle: *mut Handle, work: *const Work, posted: *mut Posted) -> i32;
    }
}

/// The masked atomic segment of 8 bytes, which the provider declares and does not use.
pub fn masked_atomic(
    swap_add: u64,
    compare: u64,
    swap_add_mask: u64,
    compare_mask: u64,
) -> [u8; 32] {
    let mut segment = [0_u64; 4];
    // SAFETY: 32 bytes are there, aligned to 8.
    unsafe {
        c::rc_masked_atomic(
            segment.as_mut_ptr().cast(),
            swap_add,
            compare,
            swap_add_mask,
            compare_mask,
        );
    }
    let mut bytes = [0; 32];
    for (to, from) in bytes.chunks_exact_mut(8).zip(segment) {
        to.copy_from_slice(&from.to_ne_bytes());
    }
    bytes
}

/// Where an address handle leads.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Address {
    /// The port is one of Ethernet: RoCE.
    pub ethernet: bool,
    /// Over UDP: RoCE v2.
    pub udp: bool,
    /// There is a GRH.
    pub global: bool,
    /// Service level.
    pub sl: u8,
    /// Source path bits.
    pub path_bits: u8,
    /// Index of the own GID.
    pub sgid_index: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub tclass: u8,
    /// Flow label.
    pub flow_label: u32,
    /// LID.
    pub dlid: u16,
    /// MAC address, which the kernel tells.
    pub mac: [u8; 6],
    /// GID.
    pub dgid: [u8; 16],
}

impl Address {
    /// The address vector that `ibv_create_ah` makes of it.
    ///
    /// # Errors
    ///
    /// It refuses.
    pub fn vector(&self) -> io::Result<[u8; 48]> {
        let mut av = [0; 48];
        // SAFETY: Both are there, and neither is kept.
        match unsafe { c::rc_address(self, av.as_mut_ptr()) } {
            0 => Ok(av),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// The UDP source port of RoCE v2.
    pub fn udp_source_port(&self) -> u16 {
        // SAFETY: It computes with the number.
        unsafe { c::rc_udp_sport(self.flow_label) }
    }
}

/// Kind of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum Kind {
    Rc,
    Uc,
    Ud,
    /// IPoIB, with Ethernet segments; only `ibv_post_send` knows it.
    UdUnderlay,
    Xrc,
    Dci,
    Raw,
}

/// A queue pair.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Config {
    /// Its kind.
    pub kind: Kind,
    /// Its number.
    pub qpn: u32,
    blocks: u32,
    /// Where its producer counter begins.
    pub pi: u32,
    signature: u32,
    /// Bytes of a packet that the device wants in the WQE: 0 or 18.
    pub min_inline: u32,
}

impl Config {
    /// Without signatures.
    pub const fn new(kind: Kind, qpn: u32, pi: u16) -> Self {
        Self {
            kind,
            qpn,
            blocks: 0,
            pi: pi as u32,
            signature: 0,
            min_inline: 0,
        }
    }

    /// With signatures.
    pub const fn signed(mut self, signed: bool) -> Self {
        self.signature = signed as u32;
        self
    }

    /// With signatures.
    pub const fn is_signed(&self) -> bool {
        self.signature != 0
    }
}

/// What is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum Op {
    Send,
    SendImm,
    SendInval,
    Write,
    WriteImm,
    Read,
    CompareSwap,
    FetchAdd,
    Tso,
    Bind,
    LocalInval,
    MrList,
    MrInterleaved,
    Signature,
    RawWqe,
}

/// With a completion.
pub const SIGNALED: u32 = 1 << 0;
/// With a solicited event.
pub const SOLICITED: u32 = 1 << 1;
/// With a fence.
pub const FENCE: u32 = 1 << 2;
/// The data are copied into the WQE.
pub const INLINE: u32 = 1 << 3;
/// With checksums of IP and TCP or UDP.
pub const CHECKSUMS: u32 = 1 << 4;
/// By the calls of `struct ibv_qp_ex`, not by `ibv_post_send`.
pub const EXTENDED: u32 = 1 << 5;
/// By a list of data, also if there is one.
pub const LIST: u32 = 1 << 6;
/// The addresses of the list are those of slices.
const READABLE: u32 = 1 << 7;

/// Access rights, as verbs have them.
pub mod access {
    /// `IBV_ACCESS_LOCAL_WRITE`
    pub const LOCAL_WRITE: u32 = 1 << 0;
    /// `IBV_ACCESS_REMOTE_WRITE`
    pub const REMOTE_WRITE: u32 = 1 << 1;
    /// `IBV_ACCESS_REMOTE_READ`
    pub const REMOTE_READ: u32 = 1 << 2;
    /// `IBV_ACCESS_REMOTE_ATOMIC`
    pub const REMOTE_ATOMIC: u32 = 1 << 3;
    /// `IBV_ACCESS_ZERO_BASED`
    pub const ZERO_BASED: u32 = 1 << 5;
}

/// `struct ibv_sge`; with [`INLINE`] the address is one of this process.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Sge {
    /// Address.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Key.
    pub lkey: u32,
}

/// `struct mlx5dv_mr_interleaved`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Stride {
    /// Address.
    pub addr: u64,
    /// Bytes of each turn.
    pub bytes_count: u32,
    /// Bytes to skip.
    pub bytes_skip: u32,
    /// Key.
    pub lkey: u32,
}

/// T10-DIF of one domain.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Dif {
    /// The domain has signatures.
    pub there: u32,
    /// `enum mlx5dv_block_size`
    pub block_size: u32,
    /// Number of the PSV.
    pub psv: u32,
    /// 0: CRC, 1: checksum.
    pub kind: u32,
    /// Guard: 0 or 0xffff.
    pub bg: u16,
    /// Application tag.
    pub app_tag: u16,
    /// Reference tag.
    pub ref_tag: u32,
    /// `MLX5DV_SIG_T10DIF_FLAG_*`
    pub flags: u32,
}

/// A work request.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Work<'a> {
    /// What to do.
    pub op: Op,
    flags: u32,
    /// Immediate data, or key to invalidate.
    pub general_id: u32,
    /// Remote key.
    pub rkey: u32,
    /// Remote address.
    pub remote_addr: u64,
    /// What is compared or added.
    pub compare_add: u64,
    /// What is swapped in.
    pub swap: u64,
    sge: *const Sge,
    sges: u32,
    /// Queue pair, DC target or shared receive queue of the peer.
    pub peer: u32,
    /// Queue key or access key.
    pub peer_key: u64,
    /// Stream of a DC initiator.
    pub stream: u32,
    /// Address vector.
    pub av: [u8; 48],
    /// Bytes of a segment.
    pub mss: u32,
    header: *const u8,
    header_size: u32,
    /// Type of a memory window: 1 or 2.
    pub mw_type: u32,
    /// Memory key or window.
    pub mkey: u32,
    /// New key of a memory window.
    pub new_rkey: u32,
    /// Rights: [`access`].
    pub access: u32,
    /// Key that a memory window is bound to.
    pub mr_lkey: u32,
    /// Start of a memory window.
    pub mw_addr: u64,
    /// Bytes of a memory window.
    pub mw_length: u64,
    strides: *const Stride,
    stride_count: u32,
    /// Turns of a strided layout.
    pub repeat: u32,
    /// Which bytes of a signature are checked.
    pub check_mask: u32,
    /// Signature in memory.
    pub mem: Dif,
    /// Signature on the wire.
    pub wire: Dif,
    wqe: *const u8,
    data: PhantomData<&'a [u8]>,
}

impl<'a> Work<'a> {
    /// With flags of this module, and nothing else.
    pub const fn new(op: Op, flags: u32) -> Self {
        const NO_DIF: Dif = Dif {
            there: 0,
            block_size: 0,
            psv: 0,
            kind: 0,
            bg: 0,
            app_tag: 0,
            ref_tag: 0,
            flags: 0,
        };
        Self {
            op,
            flags: flags & !READABLE,
            general_id: 0,
            rkey: 0,
            remote_addr: 0,
            compare_add: 0,
            swap: 0,
            sge: ptr::null(),
            sges: 0,
            peer: 0,
            peer_key: 0,
            stream: 0,
            av: [0; 48],
            mss: 0,
            header: ptr::null(),
            header_size: 0,
            mw_type: 0,
            mkey: 0,
            new_rkey: 0,
            access: 0,
            mr_lkey: 0,
            mw_addr: 0,
            mw_length: 0,
            strides: ptr::null(),
            stride_count: 0,
            repeat: 0,
            check_mask: 0,
            mem: NO_DIF,
            wire: NO_DIF,
            wqe: ptr::null(),
            data: PhantomData,
        }
    }

    /// Data that only a device would fetch.
    pub fn list(mut self, list: &'a [Sge]) -> Self {
        self.flags &= !READABLE;
        self.sge = list.as_ptr();
        self.sges = u32::try_from(list.len()).unwrap_or(u32::MAX);
        self
    }

    /// Data that are copied into the WQE, as a whole or their first bytes. `list` is the place for the
    /// list of them.
    pub fn copied(self, parts: &[&'a [u8]], lkey: u32, list: &'a mut Vec<Sge>) -> Self {
        list.clear();
        list.extend(parts.iter().map(|part| Sge {
            addr: part.as_ptr() as u64,
            length: u32::try_from(part.len()).unwrap_or(u32::MAX),
            lkey,
        }));
        let mut work = self.list(list);
        work.flags |= READABLE;
        work
    }

    /// The header of all segments.
    pub fn header(mut self, header: &'a [u8]) -> Self {
        self.header = header.as_ptr();
        self.header_size = u32::try_from(header.len()).unwrap_or(u32::MAX);
        self
    }

    /// A strided layout.
    pub fn strides(mut self, strides: &'a [Stride]) -> Self {
        self.strides = strides.as_ptr();
        self.stride_count = u32::try_from(strides.len()).unwrap_or(u32::MAX);
        self
    }

    /// A whole WQE.
    ///
    /// # Panics
    ///
    /// It is shorter than it says.
    pub fn wqe(mut self, wqe: &'a [u8]) -> Self {
        assert!(wqe.len() >= 16 * usize::from(wqe[7] & 0x3f));
        self.wqe = wqe.as_ptr();
        self
    }
}

/// What the queue pair is like after posting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Posted {
    /// Its producer counter, which runs freely in 32 bits.
    pub pi: u32,
    /// What the doorbell record says.
    pub doorbell_record: u32,
    /// What was written to the doorbell register.
    pub doorbell: [u8; 8],
}

/// A queue pair of rdma-core.
pub struct QueuePair {
    pub(crate) handle: *mut c::Handle,
    ring: *mut [Block],
    kind: Kind,
}

impl QueuePair {
    /// A queue pair with so many basic blocks, a power of two.
    ///
    /// # Panics
    ///
    /// There is no memory, or the number is none of a queue.
    pub fn new(mut config: Config, blocks: usize) -> Self {
        assert!(blocks.is_power_of_two() && blocks <= 1 << 15);
        config.blocks = blocks as u32;
        let ring = Box::into_raw(vec![[0; 64]; blocks].into_boxed_slice());
        // SAFETY: The ring is as long as the configuration says, and lives until `drop`.
        let handle = unsafe { c::rc_new(&config, ring.cast()) };
        assert!(!handle.is_null());
        Self {
            handle,
            ring,
            kind: config.kind,
        }
    }

    /// Its send queue.
    pub fn ring(&self) -> &[Block] {
        // SAFETY: The memory is this object's, and C only writes during `post`.
        unsafe { &*self.ring }
    }

    /// Fills its send queue with zeros.
    pub fn clear(&mut self) {
        // SAFETY: The memory is this object's, and C only writes during `post`.
        unsafe { &mut *self.ring }.fill([0; 64]);
    }

    /// Posts.
    ///
    /// # Errors
    ///
    /// rdma-core refuses.
    ///
    /// # Panics
    ///
    /// The queue pair has no such operation, or it reads data that were not given by
    /// [`Work::copied`].
    pub fn post(&mut self, work: &Work<'_>) -> io::Result<Posted> {
        assert!(can(self.kind, work.op, work.flags & EXTENDED != 0));
        let reads = work.flags & INLINE != 0 || matches!(self.kind, Kind::Raw | Kind::UdUnderlay);
        assert!(!reads || work.sges == 0 || work.flags & READABLE != 0);
        assert!(work.sges <= 64);
        let mut posted = Posted::default();
        // SAFETY: The handle is one of `rc_new`; all that the work request points to lives as long as
        // it does, and what C reads from addresses in its list was given as slices. The queue pair has
        // the functions for the operation.
        match unsafe { c::rc_post(self.handle, work, &mut posted) } {
            0 => Ok(posted),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// A queue pair of this kind has functions for the operation.
fn can(kind: Kind, op: Op, extended: bool) -> bool {
    match op {
        Op::Send if extended => kind != Kind::UdUnderlay,
        Op::Send => kind != Kind::Dci,
        Op::SendImm if extended => !matches!(kind, Kind::Raw | Kind::UdUnderlay),
        Op::SendImm => !matches!(kind, Kind::Raw | Kind::Dci),
        Op::SendInval | Op::Write | Op::WriteImm | Op::Bind | Op::LocalInval => match kind {
            Kind::Rc | Kind::Uc | Kind::Xrc => true,
            Kind::Dci => extended,
            Kind::Ud | Kind::UdUnderlay | Kind::Raw => false,
        },
        Op::Read | Op::CompareSwap | Op::FetchAdd => match kind {
            Kind::Rc | Kind::Xrc => true,
            Kind::Dci => extended,
            Kind::Uc | Kind::Ud | Kind::UdUnderlay | Kind::Raw => false,
        },
        Op::Tso => kind == Kind::Raw,
        Op::MrList | Op::MrInterleaved | Op::Signature => kind == Kind::Rc && extended,
        Op::RawWqe => kind != Kind::UdUnderlay && extended,
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: The handle is one of `rc_new`, and is not used again; nor is the ring, which came
        // from a box.
        unsafe {
            c::rc_free(self.handle);
            drop(Box::from_raw(self.ring));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_c() {
        let mut sizes = [0; 7];
        // SAFETY: There is room for seven sizes.
        unsafe { c::rc_sizes(sizes.as_mut_ptr()) };
        assert_eq!(
            sizes,
            [
                size_of::<Address>(),
                size_of::<Config>(),
                size_of::<Sge>(),
                size_of::<Stride>(),
                size_of::<Dif>(),
                size_of::<Work<'_>>(),
                size_of::<Posted>(),
            ]
        );
    }
}
