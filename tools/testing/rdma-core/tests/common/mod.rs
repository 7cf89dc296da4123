// SPDX-License-Identifier: GPL-2.0

//! Random parameters, and the project's side of each comparison.

#![allow(dead_code, missing_docs)]

use mlx5_pure::wqe::*;
use mlx5_rdma_core::dv;
use proptest::option;
use proptest::prelude::*;

/// Basic blocks of the queues: few, so that WQEs wrap.
pub const BLOCKS: usize = 16;

/// Where a WQE goes.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    pub pi: u16,
    pub qpn: Number,
    pub pd: Number,
}

pub fn number() -> impl Strategy<Value = Number> {
    (0..=Number::MAX).prop_map(Number::low)
}

pub fn spot() -> impl Strategy<Value = Spot> {
    (any::<u16>(), number(), number()).prop_map(|(pi, qpn, pd)| Spot { pi, qpn, pd })
}

pub fn flags() -> impl Strategy<Value = Flags> {
    let fence = prop_oneof![
        Just(Fence::None),
        Just(Fence::Small),
        Just(Fence::Reads),
        Just(Fence::StrongOrdering),
        Just(Fence::SmallAndReads),
    ];
    let completion = prop_oneof![
        Just(Completion::OnError),
        Just(Completion::OnFirstError),
        Just(Completion::Always),
        Just(Completion::AlwaysWithEvent),
    ];
    (fence, completion, any::<bool>()).prop_map(|(fence, completion, solicited)| Flags {
        fence,
        completion,
        solicited,
        dci_stream: 0,
    })
}

pub fn fm_ce_se(flags: Flags) -> u8 {
    (flags.fence as u8) << 5 | (flags.completion as u8) << 2 | u8::from(flags.solicited) << 1
}

pub fn sge() -> impl Strategy<Value = Sge> {
    let len = prop_oneof![1 => Just(0), 9 => 0..=Sge::MAX_LEN];
    (any::<u64>(), any::<u32>(), len)
        .prop_map(|(addr, lkey, len)| Sge::new(addr, lkey, len).unwrap())
}

pub fn remote() -> impl Strategy<Value = Remote> {
    (any::<u64>(), any::<u32>()).prop_map(|(addr, rkey)| Remote { addr, rkey })
}

pub fn local() -> impl Strategy<Value = Local> {
    (any::<u64>(), any::<u32>()).prop_map(|(addr, lkey)| Local { addr, lkey })
}

pub fn checksums_of(bits: u8) -> Checksums {
    Checksums {
        l4: bits & 8 != 0,
        l3: bits & 4 != 0,
        inner_l4: bits & 2 != 0,
        inner_l3: bits & 1 != 0,
    }
}

pub fn grh() -> impl Strategy<Value = Grh> {
    let numbers = (any::<u8>(), 0..=0xf_ffff_u32, any::<u8>(), any::<u8>());
    (any::<[u8; 16]>(), numbers).prop_map(|(dgid, (sgid_index, flow_label, hop_limit, tclass))| {
        Grh {
            dgid,
            sgid_index,
            flow_label,
            hop_limit,
            tclass,
        }
    })
}

/// An address on InfiniBand.
#[derive(Clone, Copy, Debug)]
pub struct Av {
    pub dlid: u16,
    pub sl: u8,
    pub path_bits: u8,
    pub stat_rate: u8,
    pub loopback: bool,
    pub grh: Option<Grh>,
}

impl Av {
    pub fn handle(&self) -> AddressHandle {
        let path = Path::Ib {
            dlid: self.dlid,
            sl: self.sl,
            path_bits: self.path_bits,
            grh: self.grh,
        };
        let handle = AddressHandle::new(&path, self.stat_rate).unwrap();
        if self.loopback {
            handle.looped_back()
        } else {
            handle
        }
    }
}

pub fn av() -> impl Strategy<Value = Av> {
    let numbers = (any::<u16>(), 0..16_u8, 0..128_u8, 0..16_u8);
    (numbers, any::<bool>(), option::of(grh())).prop_map(
        |((dlid, sl, path_bits, stat_rate), loopback, grh)| Av {
            dlid,
            sl,
            path_bits,
            stat_rate,
            loopback,
            grh,
        },
    )
}

/// New values of fields of a memory key.
#[derive(Clone, Copy, Debug)]
pub struct Fields {
    pub start: Option<u64>,
    pub length: Option<u64>,
    pub log_page_size: Option<u8>,
    pub free: Option<bool>,
    pub access: Option<u8>,
    pub atomics: Option<bool>,
    pub pd: bool,
    pub variant: bool,
    pub translations: Option<u16>,
    pub bsfs: Option<u16>,
    pub signature: Option<(bool, bool)>,
}

pub fn patch() -> impl Strategy<Value = Fields> {
    let numbers = (
        option::of(any::<u64>()),
        option::of(any::<u64>()),
        option::of(0..32_u8),
        option::of(any::<u16>()),
        option::of(any::<u16>()),
    );
    let bits = (
        option::of(any::<bool>()),
        option::of(0..16_u8),
        option::of(any::<bool>()),
        any::<bool>(),
        any::<bool>(),
        option::of(any::<(bool, bool)>()),
    );
    (numbers, bits).prop_map(
        |(
            (start, length, log_page_size, translations, bsfs),
            (free, access, atomics, pd, variant, signature),
        )| Fields {
            start,
            length,
            log_page_size,
            free,
            access,
            atomics,
            pd,
            variant,
            translations,
            bsfs,
            signature,
        },
    )
}

impl Fields {
    /// As the project takes them.
    pub fn patch(&self, mkey: u32, pd: Number) -> MkeyPatch {
        let mut patch = MkeyPatch::new();
        if let Some(addr) = self.start {
            patch = patch.start_addr(addr);
        }
        if let Some(bytes) = self.length {
            patch = patch.length(bytes);
        }
        if let Some(log) = self.log_page_size {
            patch = patch.log_page_size(log).unwrap();
        }
        if let Some(free) = self.free {
            patch = patch.free(free);
        }
        if let Some(bits) = self.access {
            patch = patch.access(Access {
                local_read: bits & 1 != 0,
                local_write: bits & 2 != 0,
                remote_read: bits & 4 != 0,
                remote_write: bits & 8 != 0,
            });
        }
        if let Some(allowed) = self.atomics {
            patch = patch.atomics(allowed);
        }
        if self.pd {
            patch = patch.pd(pd);
        }
        if self.variant {
            patch = patch.variant(mkey as u8).qpn(None);
        }
        if let Some(blocks) = self.translations {
            patch = patch.translations(Octowords::holding(64 * u64::from(blocks)));
        }
        if let Some(blocks) = self.bsfs {
            patch = patch.bsfs(Octowords::holding(64 * u64::from(blocks)));
        }
        if let Some((enabled, odd)) = self.signature {
            patch = patch.signature(enabled, odd);
        }
        patch
    }

    /// As `struct mlx5_wqe_mkey_context_seg` has them.
    pub fn context(&self, mkey: u32, pd: Number) -> dv::Mkey {
        let (bsf_enabled, odd) = self.signature.unwrap_or_default();
        dv::Mkey {
            status: u8::from(self.free == Some(true)) << 6,
            access_flags: self.access.unwrap_or(0) << 2 | u8::from(self.atomics == Some(true)) << 6,
            qpn_mkey: if self.variant {
                0xffff_ff00 | mkey & 0xff
            } else {
                0
            },
            flags_pd: u32::from(bsf_enabled) << 30
                | u32::from(odd) << 26
                | if self.pd { pd.get() } else { 0 },
            start_addr: self.start.unwrap_or(0),
            len: self.length.unwrap_or(0),
            bsf_octowords: 4 * u32::from(self.bsfs.unwrap_or(0)),
            translations_octowords: 4 * u32::from(self.translations.unwrap_or(0)),
            log_page_size: self.log_page_size.unwrap_or(0),
        }
    }
}

/// What a queue is.
pub fn config(at: Spot, signed: bool) -> Config {
    Config {
        qpn: at.qpn,
        pd: at.pd,
        signed,
        caps: Caps::ALL,
    }
}

/// Posts one WQE with the project's builder: its bytes, and what is to be told the device.
pub fn post<T: Transport>(
    at: Spot,
    flags: Flags,
    build: impl FnOnce(Wqe<'_, T, T::Start>) -> Posted,
) -> (Vec<u8>, Posted) {
    let config = config(at, false);
    let mut memory = [[0xa5; BLOCK]; BLOCKS];
    let producer = Producer {
        pi: at.pi,
        ci: at.pi,
    };
    let mut queue = SendQueue::<T>::new(&mut memory, &config, producer).unwrap();
    let posted = build(queue.start(flags).unwrap());
    let units = queue.wqe(posted.index).unwrap();
    (bytes(units), posted)
}

/// The bytes of a WQE.
pub fn bytes(units: Units<'_>) -> Vec<u8> {
    units.from(0).flatten().copied().collect()
}

/// The validator finds nothing wrong.
pub fn check_valid<T: Transport>(bytes: &[u8], at: Spot) -> Result<(), TestCaseError> {
    let context = Context {
        transport: Some(T::KIND),
        qpn: Some(at.qpn),
        index: Some(at.pi),
        pd: Some(at.pd),
        ..Context::UNKNOWN
    };
    let units = Units::of(bytes);
    prop_assert_eq!(first_violation(units, &context), None);
    Ok(())
}

/// Both are the same; if not, the units that differ are shown.
pub fn check_same(ours: &[u8], theirs: &[u8]) -> Result<(), TestCaseError> {
    if ours == theirs {
        return Ok(());
    }
    let mut text = format!("{} bytes, rdma-core {}", ours.len(), theirs.len());
    let at = |bytes: &[u8], start: usize| {
        let unit = bytes.get(start..(start + 16).min(bytes.len()));
        unit.map_or("-".to_owned(), |unit| format!("{unit:02x?}"))
    };
    for start in (0..ours.len().max(theirs.len())).step_by(16) {
        let (own, their) = (at(ours, start), at(theirs, start));
        if own != their {
            text += &format!("\n{start:#05x}: {own}\nrdma-core {their}");
        }
    }
    Err(TestCaseError::fail(text))
}
