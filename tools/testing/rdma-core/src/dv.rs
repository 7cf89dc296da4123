// SPDX-License-Identifier: GPL-2.0

//! One function for each segment, by the helpers of `infiniband/mlx5dv.h` (`c/dv.c`).
//!
//! All numbers are as the C functions take them: of the host's endianness.

use std::ffi::c_void;

mod c {
    use std::ffi::c_void;

    extern "C" {
        pub fn dv_ctrl(
            seg: *mut c_void,
            pi: u16,
            opcode: u8,
            opmod: u8,
            qpn: u32,
            fm_ce_se: u8,
            ds: u8,
            signature: u8,
            imm: u32,
        );
        pub fn dv_x86_ctrl(
            seg: *mut c_void,
            pi: u16,
            opcode: u8,
            opmod: u8,
            qpn: u32,
            fm_ce_se: u8,
            ds: u8,
            signature: u8,
            imm: u32,
        );
        pub fn dv_data(seg: *mut c_void, length: u32, lkey: u32, addr: u64);
        pub fn dv_x86_data(seg: *mut c_void, length: u32, lkey: u32, addr: u64);
        pub fn dv_dgram(
            seg: *mut c_void,
            key: u64,
            dqp_dct: u32,
            ext: u8,
            stat_rate_sl: u8,
            fl_mlid: u8,
            rlid: u16,
            rmac: *const u8,
            tclass: u8,
            hop_limit: u8,
            grh_gid_fl: u32,
            rgid: *const u8,
        );
        pub fn dv_eth(seg: *mut c_void, cs_flags: u8, mss: u16, size: u16, header: *const u8);
        pub fn dv_raddr(seg: *mut c_void, raddr: u64, rkey: u32);
        pub fn dv_atomic(seg: *mut c_void, swap_add: u64, compare: u64);
        pub fn dv_inline(seg: *mut c_void, data: *const c_void, len: u32);
        pub fn dv_umr_ctrl(
            seg: *mut c_void,
            flags: u8,
            klm_octowords: u16,
            bsf_octowords: u16,
            mkey_mask: u64,
        );
        pub fn dv_mkey(
            seg: *mut c_void,
            status: u8,
            access_flags: u8,
            qpn_mkey: u32,
            flags_pd: u32,
            start_addr: u64,
            len: u64,
            bsf_octowords: u32,
            translations_octowords: u32,
            log_page_size: u8,
        );
        pub fn dv_klm(seg: *mut c_void, byte_count: u32, mkey: u32, address: u64);
        pub fn dv_repeat(seg: *mut c_void, byte_count: u32, repeat_count: u32, num_ent: u16);
        pub fn dv_repeat_entry(
            seg: *mut c_void,
            stride: u16,
            byte_count: u16,
            memkey: u32,
            va: u64,
        );
    }
}

/// Which form of a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `mlx5dv_set_*`.
    Plain,
    /// `mlx5dv_x86_set_*`.
    X86,
}

/// What a control segment says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ctrl {
    /// Producer counter.
    pub pi: u16,
    /// Opcode.
    pub opcode: u8,
    /// Operation modifier.
    pub opmod: u8,
    /// Queue pair.
    pub qpn: u32,
    /// Fence, completion, solicited event.
    pub fm_ce_se: u8,
    /// Signature.
    pub signature: u8,
    /// Immediate data, key or mkey.
    pub imm: u32,
}

/// What an address vector says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dgram {
    /// Queue key << 32, or access key of a DC target.
    pub key: u64,
    /// Queue pair or DC target.
    pub dqp_dct: u32,
    /// Rate and service level.
    pub stat_rate_sl: u8,
    /// Loopback and path bits.
    pub fl_mlid: u8,
    /// LID or UDP port.
    pub rlid: u16,
    /// MAC address.
    pub rmac: [u8; 6],
    /// Traffic class.
    pub tclass: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// GRH, index of the GID, flow label.
    pub grh_gid_fl: u32,
    /// GID.
    pub rgid: [u8; 16],
}

/// What the context of a memory key says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mkey {
    /// Byte 0.
    pub status: u8,
    /// Byte 2.
    pub access_flags: u8,
    /// Queue pair << 8 and variant.
    pub qpn_mkey: u32,
    /// Flags and protection domain.
    pub flags_pd: u32,
    /// First address.
    pub start_addr: u64,
    /// Bytes.
    pub len: u64,
    /// Size of BSFs.
    pub bsf_octowords: u32,
    /// Size of translations.
    pub translations_octowords: u32,
    /// Log2 of the page size.
    pub log_page_size: u8,
}

/// Aligned as WQEs are in a queue.
#[repr(C, align(64))]
struct Aligned([u8; 1024]);

/// A WQE that is put together segment by segment.
pub struct Wqe {
    bytes: Box<Aligned>,
    len: usize,
}

impl Default for Wqe {
    fn default() -> Self {
        Self::new()
    }
}

impl Wqe {
    /// Room for the control segment, which [`finish`](Self::finish) writes.
    pub fn new() -> Self {
        Self {
            bytes: Box::new(Aligned([0; 1024])),
            len: 16,
        }
    }

    /// The next `len` bytes.
    ///
    /// # Panics
    ///
    /// The WQE is longer than a WQE can be.
    fn next(&mut self, len: usize) -> *mut c_void {
        let at = self.len;
        self.len = at + len.next_multiple_of(16);
        self.bytes.0[at..self.len].as_mut_ptr().cast()
    }

    /// Data by address.
    pub fn data(&mut self, form: Form, length: u32, lkey: u32, addr: u64) -> &mut Self {
        let seg = self.next(16);
        // SAFETY: 16 bytes, aligned to 16, are there.
        unsafe {
            match form {
                Form::Plain => c::dv_data(seg, length, lkey, addr),
                Form::X86 => c::dv_x86_data(seg, length, lkey, addr),
            }
        }
        self
    }

    /// Address vector.
    pub fn dgram(&mut self, av: &Dgram) -> &mut Self {
        let seg = self.next(48);
        // SAFETY: 48 bytes are there, and so are those of both addresses.
        unsafe {
            c::dv_dgram(
                seg,
                av.key,
                av.dqp_dct,
                1,
                av.stat_rate_sl,
                av.fl_mlid,
                av.rlid,
                av.rmac.as_ptr(),
                av.tclass,
                av.hop_limit,
                av.grh_gid_fl,
                av.rgid.as_ptr(),
            );
        }
        self
    }

    /// Zeros.
    pub fn pad(&mut self, len: usize) -> &mut Self {
        self.next(len);
        self
    }

    /// Zeros up to the next basic block.
    pub fn pad_block(&mut self) -> &mut Self {
        self.pad(self.len.next_multiple_of(64) - self.len)
    }

    /// Ethernet segment with an inline header.
    pub fn eth(&mut self, cs_flags: u8, mss: u16, header: &[u8]) -> &mut Self {
        let seg = self.next(14 + header.len().max(2));
        let size = u16::try_from(header.len()).unwrap_or(u16::MAX);
        // SAFETY: The header follows the first 14 bytes, and as many bytes are there.
        unsafe { c::dv_eth(seg, cs_flags, mss, size, header.as_ptr()) };
        self
    }

    /// Remote address.
    pub fn raddr(&mut self, raddr: u64, rkey: u32) -> &mut Self {
        let seg = self.next(16);
        // SAFETY: 16 bytes are there.
        unsafe { c::dv_raddr(seg, raddr, rkey) };
        self
    }

    /// Operands of an atomic of 8 bytes.
    pub fn atomic(&mut self, swap_add: u64, compare: u64) -> &mut Self {
        let seg = self.next(16);
        // SAFETY: 16 bytes are there.
        unsafe { c::dv_atomic(seg, swap_add, compare) };
        self
    }

    /// Inline data.
    pub fn inline(&mut self, data: &[u8]) -> &mut Self {
        let seg = self.next(4 + data.len());
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        // SAFETY: The data follow the first 4 bytes, and as many bytes are there.
        unsafe { c::dv_inline(seg, data.as_ptr().cast(), len) };
        self
    }

    /// UMR control segment.
    pub fn umr_ctrl(&mut self, flags: u8, klm: u16, bsf: u16, mask: u64) -> &mut Self {
        let seg = self.next(48);
        // SAFETY: 48 bytes are there.
        unsafe { c::dv_umr_ctrl(seg, flags, klm, bsf, mask) };
        self
    }

    /// Context of a memory key.
    pub fn mkey(&mut self, mkey: &Mkey) -> &mut Self {
        let seg = self.next(64);
        // SAFETY: 64 bytes are there.
        unsafe {
            c::dv_mkey(
                seg,
                mkey.status,
                mkey.access_flags,
                mkey.qpn_mkey,
                mkey.flags_pd,
                mkey.start_addr,
                mkey.len,
                mkey.bsf_octowords,
                mkey.translations_octowords,
                mkey.log_page_size,
            );
        }
        self
    }

    /// Entry of a list of keys.
    pub fn klm(&mut self, byte_count: u32, mkey: u32, address: u64) -> &mut Self {
        let seg = self.next(16);
        // SAFETY: 16 bytes are there.
        unsafe { c::dv_klm(seg, byte_count, mkey, address) };
        self
    }

    /// Head of a repeat block.
    pub fn repeat(&mut self, byte_count: u32, repeat_count: u32, entries: u16) -> &mut Self {
        let seg = self.next(16);
        // SAFETY: 16 bytes are there; the entries are not touched.
        unsafe { c::dv_repeat(seg, byte_count, repeat_count, entries) };
        self
    }

    /// Entry of a repeat block.
    pub fn repeat_entry(&mut self, stride: u16, bytes: u16, key: u32, va: u64) -> &mut Self {
        let seg = self.next(16);
        // SAFETY: 16 bytes are there.
        unsafe { c::dv_repeat_entry(seg, stride, bytes, key, va) };
        self
    }

    /// Writes the control segment; the whole WQE.
    pub fn finish(&mut self, form: Form, ctrl: &Ctrl) -> &[u8] {
        // At most 1024 bytes: 64 units.
        let ds = (self.len / 16) as u8;
        let set = match form {
            Form::Plain => c::dv_ctrl,
            Form::X86 => c::dv_x86_ctrl,
        };
        // SAFETY: The first 16 bytes are there, aligned to 64.
        unsafe {
            set(
                self.bytes.0.as_mut_ptr().cast(),
                ctrl.pi,
                ctrl.opcode,
                ctrl.opmod,
                ctrl.qpn,
                ctrl.fm_ce_se,
                ds,
                ctrl.signature,
                ctrl.imm,
            );
        }
        &self.bytes.0[..self.len]
    }
}
