// SPDX-License-Identifier: GPL-2.0

//! The builder: one WQE, written straight into the ring, segment after segment.
//!
//! The type of a [`Wqe`] says what may come next, so that what has no place in a WQE has no method:
//! a datagram without an address, data before the operation, a remote address in a UMR. What types
//! cannot say is refused where it is given, with the field and the value that it should have.

use core::marker::PhantomData;

use super::{
    address::{
        self,
        AddressHandle,
        Datagram,
        DcTarget, //
    },
    atomic::{
        self,
        AtomicSize,
        MaskedCompareSwap,
        MaskedFetchAdd,
        Size, //
    },
    ctrl::{
        self,
        Ctrl,
        Flags, //
    },
    eth::{
        self,
        Eth,
        Lso, //
    },
    number::{
        Local,
        Number,
        Remote,
        Sge, //
    },
    psv::{
        Flow,
        NvmeTcpProgress,
        SetPsv,
        TlsProgress,
        TlsStatic, //
    },
    queue::{
        Config,
        Posted,
        State, //
    },
    quick,
    segment::Segment,
    transport::{
        Dci,
        Raw,
        Rc,
        Reads,
        Transport,
        TransportKind,
        Uc,
        Ud,
        UdOffload,
        Writes,
        Xrc, //
    },
    umr::{
        self,
        Place,
        Umr, //
    },
    units::{
        Unit,
        Units, //
    },
    validate::{
        first_of_all,
        Context, //
    },
    violation::{
        Expected,
        Refusal,
        Violation, //
    },
    wait,
    xlt::{
        Klm,
        Ksm,
        Page,
        Stride,
        Translations, //
    },
    Block,
    BLOCK,
    MAX_DS,
    UNIT, //
};
use crate::layouts::wqe::{
    AtomicSeg,
    BsfSeg,
    CtrlSeg,
    InlineSeg,
    Mkc,
    UmrCtrlSeg,
    WqeOpcode, //
};

/// States of a [`Wqe`].
macro_rules! states {
    ($($(#[$doc:meta])* $name:ident: [$($role:ident),*];)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $name {}
        impl sealed::Sealed for $name {}
        $(impl $role for $name {})*
    )*};
}

mod sealed {
    pub trait Sealed {}
}

/// Nothing but the control segment is there.
pub trait Initial: sealed::Sealed {}
/// The operation can be chosen.
pub trait Operable: sealed::Sealed {}
/// Data by address can be added.
pub trait Listed: sealed::Sealed {}
/// It can be finished.
pub trait Finishable: sealed::Sealed {}

states! {
    /// New, on a connected queue.
    Ready: [Initial, Operable];
    /// New, on a queue whose messages need an address.
    Unaddressed: [Initial];
    /// New, on a queue without messages.
    Bare: [Initial];
    /// It has its address.
    Addressed: [Operable];
    /// Data can be added, by address or inline.
    Gather: [Listed, Finishable];
    /// Data can be added by address only.
    Scatter: [Listed, Finishable];
    /// Nothing can be added.
    Complete: [Finishable];
}

/// A transport with plain messages.
pub trait Sends: Transport {}
impl Sends for Rc {}
impl Sends for Uc {}
impl Sends for Ud {}
impl Sends for Xrc {}
impl Sends for Dci {}

/// A transport whose responder can invalidate a key.
pub trait Invalidates: Sends {}
impl Invalidates for Rc {}
impl Invalidates for Xrc {}
impl Invalidates for Dci {}

/// Where a WQE goes: the ring, and the WQE's first block in it.
#[derive(Debug)]
pub(super) struct Span<'q> {
    blocks: &'q mut [Block],
    first: usize,
}

impl<'q> Span<'q> {
    /// From block `first` of the ring on.
    #[inline(always)]
    pub(super) fn new(blocks: &'q mut [Block], first: usize) -> Self {
        Self { blocks, first }
    }

    /// The same, to be given away: a builder that nobody has a reference to stays in registers.
    #[inline(always)]
    fn apart(&mut self) -> Span<'_> {
        Span {
            blocks: self.blocks,
            first: self.first,
        }
    }

    /// Block `index` of the WQE; `None` if it wraps.
    #[inline(always)]
    fn block(&mut self, index: usize) -> Option<&mut Block> {
        self.blocks.get_mut(self.first + index)
    }

    /// The bytes of `count` units from unit `at` of the WQE on; `None` if they wrap.
    #[inline(always)]
    fn bytes(&mut self, at: usize, count: usize) -> Option<&mut [u8]> {
        let (first, len) = (BLOCK * self.first + UNIT * at, UNIT * count);
        self.blocks.as_flattened_mut().get_mut(first..first + len)
    }

    /// Writes bytes behind one another from byte `to` of the WQE on, which may wrap, and zeros up to the
    /// end of the last unit.
    #[cold]
    #[inline(never)]
    fn write_wrapping(self, mut to: usize, parts: &[&[u8]]) {
        let first = BLOCK * self.first;
        let ring = self.blocks.as_flattened_mut();
        let mask = ring.len().wrapping_sub(1);
        let mut inside = to % UNIT != 0;
        let mut write = |byte| {
            if let Some(place) = ring.get_mut((first + to) & mask) {
                *place = byte;
            }
            to += 1;
            to % UNIT != 0
        };
        for byte in parts.iter().copied().flatten() {
            inside = write(*byte);
        }
        while inside {
            inside = write(0);
        }
    }

    /// Writes bytes from unit `at` on, and zeros up to the end of the last unit.
    #[inline(always)]
    fn write(&mut self, at: usize, bytes: &[u8]) {
        let Some(place) = self.bytes(at, bytes.len().div_ceil(UNIT)) else {
            self.apart().write_wrapping(UNIT * at, &[bytes]);
            return;
        };
        if bytes.len() % UNIT != 0 {
            if let Some(last) = place.last_chunk_mut::<UNIT>() {
                *last = [0; UNIT];
            }
        }
        if let Some(place) = place.get_mut(..bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// Writes inline data of `len` bytes, which take `needed` units from unit `at` on.
    #[inline(always)]
    fn write_inline(&mut self, at: usize, needed: usize, len: usize, data: impl Parts) {
        let head = inline_head(len);
        let Some(place) = self.bytes(at, needed) else {
            data.write_wrapping(self.apart(), UNIT * at, len);
            return;
        };
        // What the data do not fill of the last unit is 0.
        if let Some(last) = place.last_chunk_mut::<UNIT>() {
            *last = [0; UNIT];
        }
        if let Some((to, place)) = place.split_first_chunk_mut() {
            *to = head;
            data.write(place);
        }
    }

    /// What is wrong with the WQE, if anything is.
    #[cold]
    #[inline(never)]
    fn check(self, config: &Config, transport: TransportKind, index: u16) -> Result<(), Violation> {
        let context = Context {
            transport: Some(transport),
            caps: config.caps,
            qpn: Some(config.qpn),
            index: Some(index),
            signed: Some(config.signed),
            pd: Some(config.pd),
            psvs: &[],
        };
        match Units::in_ring(self.blocks, index).and_then(|units| first_of_all(units, &context)) {
            None => Ok(()),
            Some(violation) => Err(violation),
        }
    }

    /// Signs the WQE.
    #[cold]
    #[inline(never)]
    fn sign(mut self, index: u16) {
        let Some(units) = Units::in_ring(self.blocks, index) else {
            return;
        };
        let signature = ctrl::signature(units.from(0));
        if let Some(mut ctrl) = self.block(0).and_then(|block| CtrlSeg::of_mut(block)) {
            ctrl.set_signature(signature);
        }
    }
}

/// The head of inline data of so many bytes.
#[inline(always)]
fn inline_head(len: usize) -> [u8; InlineSeg::LEN] {
    let mut head = InlineSeg::new();
    head.set_inline(true);
    // The limit of a WQE is below what 10 bits count.
    let _ = head.try_set_byte_count(len as u16 & 0x3ff);
    head.into_bytes()
}

/// Inline data: from one place, or from several.
///
/// They are given by value: what nobody has a reference to stays in registers.
trait Parts: Copy {
    /// Bytes.
    fn len(self) -> usize;
    /// Copies them to the beginning of `place`, where they fit.
    fn write(self, place: &mut [u8]);
    /// Writes the segment at byte `at` of a WQE, where it wraps.
    fn write_wrapping(self, span: Span<'_>, at: usize, len: usize);
}

impl Parts for &[u8] {
    #[inline(always)]
    fn len(self) -> usize {
        <[u8]>::len(self)
    }

    #[inline(always)]
    fn write(self, place: &mut [u8]) {
        if let Some(to) = place.get_mut(..self.len()) {
            to.copy_from_slice(self);
        }
    }

    #[cold]
    #[inline(never)]
    fn write_wrapping(self, span: Span<'_>, at: usize, len: usize) {
        Parts::write_wrapping(&[self][..], span, at, len);
    }
}

impl Parts for &[&[u8]] {
    #[inline(always)]
    fn len(self) -> usize {
        self.iter()
            .fold(0_usize, |sum, part| sum.saturating_add(part.len()))
    }

    #[inline(always)]
    fn write(self, mut place: &mut [u8]) {
        for part in self {
            let Some((to, rest)) = place.split_at_mut_checked(part.len()) else {
                break;
            };
            to.copy_from_slice(part);
            place = rest;
        }
    }

    #[cold]
    #[inline(never)]
    fn write_wrapping(self, mut span: Span<'_>, at: usize, len: usize) {
        span.apart().write_wrapping(at, &[&inline_head(len)]);
        span.write_wrapping(at + InlineSeg::LEN, self);
    }
}

/// What a UMR consists of behind its control segment.
struct UmrParts<'a> {
    ctrl: [u8; UmrCtrlSeg::LEN],
    umr: Umr<'a>,
    /// Of a stride block.
    head: Option<Unit>,
    bsf: Option<[u8; BsfSeg::LEN]>,
}

impl UmrParts<'_> {
    /// Those of `umr`.
    fn new<'a>(umr: &Umr<'a>, config: &Config) -> Result<UmrParts<'a>, Violation> {
        let ctrl = umr.ctrl(&config.caps)?;
        let bsf = match umr.place {
            Place::WithBsf(bsf) => Some(bsf.segment(config.pd)?),
            _ => None,
        };
        let head = match &umr.translations {
            Translations::Strides(block) => Some(block.head()?),
            _ => None,
        };
        Ok(UmrParts {
            ctrl,
            umr: *umr,
            head,
            bsf,
        })
    }

    /// Its units.
    fn units(&self) -> usize {
        let entries = match &self.umr.translations {
            Translations::List(_) => 1,
            // Units and octowords are the same; both are padded to whole blocks.
            translations => usize::try_from(translations.octowords().count()).unwrap_or(usize::MAX),
        };
        let fixed = UmrCtrlSeg::LEN + Mkc::LEN + self.bsf.map_or(0, |bsf| bsf.len());
        (fixed / UNIT).saturating_add(entries)
    }

    /// Writes it behind the control segment, in `count` units.
    fn write(&self, mut span: Span<'_>, count: usize) {
        match span.bytes(1, count) {
            Some(place) => self.fill(place),
            None => self.write_wrapping(span, count),
        }
    }

    #[cold]
    #[inline(never)]
    fn write_wrapping(&self, span: Span<'_>, count: usize) {
        let mut bytes = [0; MAX_DS * UNIT];
        if let Some(bytes) = bytes.get_mut(..count * UNIT) {
            self.fill(bytes);
            span.write_wrapping(UNIT, &[bytes]);
        }
    }

    /// Fills `place`, which has the right length.
    fn fill(&self, place: &mut [u8]) {
        let Some((ctrl, place)) = place.split_first_chunk_mut() else {
            return;
        };
        *ctrl = self.ctrl;
        let Some((context, mut place)) = place.split_first_chunk_mut() else {
            return;
        };
        *context = *self.umr.patch.context.as_bytes();
        if let Some(bsf) = self.bsf {
            let Some((entries, last)) = place.split_last_chunk_mut() else {
                return;
            };
            *last = bsf;
            place = entries;
        }
        match &self.umr.translations {
            Translations::None => {}
            Translations::Klms(klms) => fill(place, klms, Klm::entry),
            Translations::Ksms(ksms) => fill(place, ksms, Ksm::entry),
            Translations::Pages(pages) => fill(place, pages, Page::entry),
            Translations::Strides(block) => {
                if let (Some(head), Some((first, rest))) =
                    (self.head, place.split_first_chunk_mut())
                {
                    *first = head;
                    fill(rest, block.entries, Stride::entry);
                }
            }
            Translations::List(list) => {
                let start = Local {
                    addr: list.addr,
                    lkey: list.lkey,
                };
                fill(place, &[Sge::of_size(start, list.bytes)], |sge| {
                    sge.segment()
                });
            }
        }
    }
}

/// Writes any UMR behind the control segment, if so many free blocks have room for it; its units.
#[inline(never)]
fn put_umr(
    span: Span<'_>,
    config: &Config,
    free: usize,
    umr: &Umr<'_>,
) -> Result<usize, Violation> {
    let parts = UmrParts::new(umr, config)?;
    let units = parts.units();
    if units < MAX_DS && last_block(1 + units) < free {
        parts.write(span, units);
    }
    Ok(far(units))
}

/// Fills `place`, which has the right length, with a UMR with KLMs.
#[inline(always)]
fn put_plain(
    place: &mut [u8],
    ctrl: &[u8; UmrCtrlSeg::LEN],
    context: &[u8; Mkc::LEN],
    klms: &[Klm],
) {
    let Some((to, place)) = place.split_first_chunk_mut() else {
        return;
    };
    *to = *ctrl;
    let Some((to, place)) = place.split_first_chunk_mut() else {
        return;
    };
    *to = *context;
    fill(place, klms, Klm::entry);
}

/// Writes entries, and zeros behind them.
#[inline(always)]
fn fill<E, const N: usize>(place: &mut [u8], entries: &[E], bytes: impl Fn(&E) -> [u8; N]) {
    let Some((place, rest)) = place.split_at_mut_checked(N * entries.len()) else {
        return;
    };
    for (to, entry) in place.chunks_exact_mut(N).zip(entries) {
        to.copy_from_slice(&bytes(entry));
    }
    // Nothing, or the rest of a few units.
    for to in rest.chunks_exact_mut(8) {
        to.copy_from_slice(&[0; 8]);
    }
}

/// A WQE that is being built, on a queue of transport `T`; `S` is how far it is.
///
/// It counts when [`finish`](Self::finish) has succeeded: one that is dropped was never there.
#[derive(Debug)]
#[must_use = "a WQE counts when it is finished"]
pub struct Wqe<'q, T, S> {
    span: Span<'q>,
    config: &'q Config,
    state: &'q mut State,
    /// Units so far; those that have no room are counted, not written.
    units: usize,
    /// Units that a WQE may have.
    max: usize,
    /// The same, or 0 if it is to be signed.
    plain: usize,
    opcode: WqeOpcode,
    opmod: u8,
    flags: Flags,
    general_id: u32,
    types: PhantomData<(T, S)>,
}

impl<'q, T: Transport, S> Wqe<'q, T, S> {
    #[inline(always)]
    pub(super) fn new(
        span: Span<'q>,
        config: &'q Config,
        state: &'q mut State,
        max: usize,
        plain: usize,
        flags: Flags,
    ) -> Self {
        Self {
            span,
            config,
            state,
            units: 1,
            max,
            plain,
            opcode: WqeOpcode::NOP,
            opmod: 0,
            flags,
            general_id: 0,
            types: PhantomData,
        }
    }

    #[inline(always)]
    fn into_state<N>(self) -> Wqe<'q, T, N> {
        Wqe {
            span: self.span,
            config: self.config,
            state: self.state,
            units: self.units,
            max: self.max,
            plain: self.plain,
            opcode: self.opcode,
            opmod: self.opmod,
            flags: self.flags,
            general_id: self.general_id,
            types: PhantomData,
        }
    }

    /// Chooses the operation.
    #[inline(always)]
    fn op<N>(mut self, opcode: WqeOpcode, opmod: u8, general_id: u32) -> Wqe<'q, T, N> {
        self.opcode = opcode;
        self.opmod = opmod;
        self.general_id = general_id;
        self.into_state()
    }

    /// The units so far have room in the queue.
    #[inline(always)]
    fn has_room(&self) -> bool {
        last_block(self.units) < self.state.free
    }

    /// Counts the next `count` units; the first of them, if there is room for all.
    ///
    /// Only [`finish`](Self::finish) looks whether the WQE is too long: until then the room is as good
    /// as any.
    #[inline(always)]
    fn advance(&mut self, count: usize) -> Option<usize> {
        let begin = self.units;
        self.units = begin.saturating_add(count);
        self.has_room().then_some(begin)
    }

    /// Writes the next units, which `fill` fills.
    #[inline(always)]
    fn push_with<const N: usize>(&mut self, fill: impl FnOnce(&mut [u8; N])) {
        const { assert!(N % UNIT == 0 && N <= BLOCK) }
        let at = self.units;
        self.units = at + N / UNIT;
        if !self.has_room() {
            return;
        }
        let (index, first) = (at / (BLOCK / UNIT), at % (BLOCK / UNIT) * UNIT);
        let place = if first + N <= BLOCK {
            let block = self.span.block(index);
            block.and_then(|block| block.get_mut(first..first + N))
        } else {
            self.span.bytes(at, N / UNIT)
        };
        match place.and_then(|place| place.first_chunk_mut()) {
            Some(place) => fill(place),
            None => {
                let mut bytes = [0; N];
                fill(&mut bytes);
                self.span.apart().write_wrapping(UNIT * at, &[&bytes]);
            }
        }
    }

    /// Writes the next units.
    #[inline(always)]
    fn push<const N: usize>(&mut self, bytes: &[u8; N]) {
        self.push_with(|place| *place = *bytes);
    }

    /// Writes whole units, and zeros behind the last bytes.
    #[inline(always)]
    fn push_bytes(&mut self, bytes: &[u8]) {
        if let Some(at) = self.advance(bytes.len().div_ceil(UNIT)) {
            self.span.write(at, bytes);
        }
    }

    #[inline(always)]
    fn push_remote(&mut self, remote: Remote) {
        self.push(&remote.segment());
    }

    #[inline(always)]
    fn push_inline(&mut self, data: impl Parts) {
        let len = data.len();
        if len == 0 {
            return;
        }
        if len > MAX_DS * UNIT {
            self.units = too_many(self.units, len);
            return;
        }
        let needed = (len + InlineSeg::LEN).div_ceil(UNIT);
        if let Some(at) = self.advance(needed) {
            self.span.write_inline(at, needed, len, data);
        }
    }

    fn push_eth(&mut self, eth: &eth::Encoded<'_>) {
        self.push(&eth.segment);
        self.push_bytes(eth.rest);
        if let Some(trailer) = eth.trailer {
            self.push_inline(trailer);
        }
    }
}

/// What needs no address and no data of its own.
impl<'q, T: Transport, S: Initial> Wqe<'q, T, S> {
    /// Does nothing.
    #[inline(always)]
    pub fn nop(self) -> Wqe<'q, T, Complete> {
        self.op(WqeOpcode::NOP, 0, 0)
    }

    /// Changes a memory key.
    ///
    /// # Errors
    ///
    /// The device lacks a capability for it, or an offset or size has no place in the WQE.
    #[inline(always)]
    pub fn umr(self, umr: &Umr<'_>) -> Result<Wqe<'q, T, Complete>, Violation> {
        let mut wqe = self.op(WqeOpcode::UMR, 0, umr.mkey);
        let plain = umr.plain(&wqe.config.caps);
        if let Some((ctrl, klms)) = plain {
            let needed = (UmrCtrlSeg::LEN + Mkc::LEN) / UNIT + klms.len().next_multiple_of(4);
            if last_block(wqe.units + needed) < wqe.state.free {
                if let Some(place) = wqe.span.bytes(1, needed) {
                    put_plain(place, &ctrl, umr.patch.context.as_bytes(), klms);
                    wqe.units += needed;
                    return Ok(wqe);
                }
            }
        }
        // A copy, so that the caller's can stay in registers where nobody looks at this one.
        wqe.units += put_umr(wqe.span.apart(), wqe.config, wqe.state.free, &{ *umr })?;
        Ok(wqe)
    }

    /// Makes a key invalid.
    ///
    /// # Errors
    ///
    /// None that a caller could make; see [`umr`](Self::umr).
    pub fn local_invalidate(self, rkey: u32) -> Result<Wqe<'q, T, Complete>, Violation> {
        self.umr(&Umr::invalidate(rkey))
    }

    /// Sets a signature value.
    ///
    /// # Errors
    ///
    /// The PSV belongs to another protection domain than the queue.
    pub fn set_psv(self, psv: &SetPsv) -> Result<Wqe<'q, T, Complete>, Violation> {
        let segment = psv.segment(self.config.pd)?;
        let mut wqe = self.op(WqeOpcode::SET_PSV, 0, 0);
        wqe.push(&segment);
        Ok(wqe)
    }

    fn cross_channel(
        self,
        opcode: WqeOpcode,
        number: Number,
        index: u32,
    ) -> Result<Wqe<'q, T, Complete>, Violation> {
        if !self.config.caps.cross_channel {
            return Err(Violation::of(
                Segment::Ctrl,
                CtrlSeg::OPCODE,
                u64::from(opcode.0),
                Expected::Capability("cd"),
            ));
        }
        let mut wqe = self.op(opcode, 0, 0);
        wqe.push(&wait::segment(index, number));
        Ok(wqe)
    }

    /// Waits until the completion queue `cqn` has got to `index`.
    ///
    /// # Errors
    ///
    /// The device has no cross-channel operations.
    pub fn wait(self, cqn: Number, index: u32) -> Result<Wqe<'q, T, Complete>, Violation> {
        self.cross_channel(WqeOpcode::WAIT, cqn, index)
    }

    /// Lets the send queue of `qpn` go on up to `index`.
    ///
    /// # Errors
    ///
    /// The device has no cross-channel operations.
    pub fn enable_send(self, qpn: Number, index: u32) -> Result<Wqe<'q, T, Complete>, Violation> {
        self.cross_channel(WqeOpcode::SEND_EN, qpn, index)
    }

    /// Lets the receive queue of `qpn` go on up to `index`.
    ///
    /// # Errors
    ///
    /// The device has no cross-channel operations.
    pub fn enable_recv(self, qpn: Number, index: u32) -> Result<Wqe<'q, T, Complete>, Violation> {
        self.cross_channel(WqeOpcode::RECV_EN, qpn, index)
    }
}

impl<'q> Wqe<'q, Ud, Unaddressed> {
    /// The message goes along `path` to a queue pair.
    #[inline(always)]
    pub fn to(mut self, path: &AddressHandle, peer: Datagram) -> Wqe<'q, Ud, Addressed> {
        self.push_with(|place| path.for_datagram(peer, place));
        self.into_state()
    }
}

impl<'q> Wqe<'q, UdOffload, Unaddressed> {
    /// The message goes along `path` to a queue pair.
    #[inline(always)]
    pub fn to(mut self, path: &AddressHandle, peer: Datagram) -> Wqe<'q, UdOffload, Addressed> {
        self.push_with(|place| path.for_datagram(peer, place));
        self.into_state()
    }
}

impl<'q> Wqe<'q, Dci, Unaddressed> {
    /// The message goes along `path` to a DC target.
    #[inline(always)]
    pub fn to(mut self, path: &AddressHandle, target: DcTarget) -> Wqe<'q, Dci, Addressed> {
        self.push_with(|place| path.for_dc(target, place));
        self.into_state()
    }
}

impl<'q> Wqe<'q, Xrc, Unaddressed> {
    /// The message goes to a shared receive queue of the peer.
    #[inline(always)]
    pub fn to(mut self, srqn: Number) -> Wqe<'q, Xrc, Addressed> {
        self.push(&address::xrc(srqn));
        self.into_state()
    }
}

impl<'q, T: Sends, S: Operable> Wqe<'q, T, S> {
    /// Sends a message.
    #[inline(always)]
    pub fn send(self) -> Wqe<'q, T, Gather> {
        self.op(WqeOpcode::SEND, 0, 0)
    }

    /// Sends a message with immediate data.
    #[inline(always)]
    pub fn send_imm(self, imm: u32) -> Wqe<'q, T, Gather> {
        self.op(WqeOpcode::SEND_IMM, 0, imm)
    }
}

impl<'q, T: Invalidates, S: Operable> Wqe<'q, T, S> {
    /// Sends a message, and the peer's key `rkey` becomes invalid.
    #[inline(always)]
    pub fn send_inval(self, rkey: u32) -> Wqe<'q, T, Gather> {
        self.op(WqeOpcode::SEND_INVAL, 0, rkey)
    }
}

impl<'q, T: Writes, S: Operable> Wqe<'q, T, S> {
    /// Writes to remote memory.
    #[inline(always)]
    pub fn write(self, remote: Remote) -> Wqe<'q, T, Gather> {
        let mut wqe = self.op(WqeOpcode::RDMA_WRITE, 0, 0);
        wqe.push_remote(remote);
        wqe
    }

    /// Writes to remote memory, with immediate data for the peer's receive queue.
    #[inline(always)]
    pub fn write_imm(self, remote: Remote, imm: u32) -> Wqe<'q, T, Gather> {
        let mut wqe = self.op(WqeOpcode::RDMA_WRITE_IMM, 0, imm);
        wqe.push_remote(remote);
        wqe
    }
}

impl<'q, T: Reads, S: Operable> Wqe<'q, T, S> {
    /// Reads remote memory.
    #[inline(always)]
    pub fn read(self, remote: Remote) -> Wqe<'q, T, Scatter> {
        let mut wqe = self.op(WqeOpcode::RDMA_READ, 0, 0);
        wqe.push_remote(remote);
        wqe
    }

    #[inline(always)]
    fn atomic(
        self,
        opcode: WqeOpcode,
        opmod: u8,
        remote: Remote,
        operands: &[u8],
        size: usize,
        result: Local,
    ) -> Result<Wqe<'q, T, Complete>, Violation> {
        atomic::check(&self.config.caps, T::KIND, opcode, size, remote)?;
        let mut wqe = self.op(opcode, opmod, 0);
        wqe.push_remote(remote);
        wqe.push_bytes(operands);
        // At most 64 bytes.
        wqe.push(&Sge::of_size(result, size as u32).segment());
        Ok(wqe)
    }

    /// The common ones, written at once.
    #[inline(always)]
    fn short_atomic(
        self,
        opcode: WqeOpcode,
        remote: Remote,
        operands: AtomicSeg,
        result: Local,
    ) -> Result<Wqe<'q, T, Complete>, Violation> {
        atomic::check(&self.config.caps, T::KIND, opcode, 8, remote)?;
        let mut wqe = self.op(opcode, 0, 0);
        let all = [
            remote.segment(),
            operands.into_bytes(),
            Sge::of_size(result, 8).segment(),
        ];
        if let Some(all) = all.as_flattened().first_chunk::<{ 3 * UNIT }>() {
            wqe.push(all);
        }
        Ok(wqe)
    }

    /// If the 8 bytes at `remote` are `compare`, makes them `swap`; the old value comes to `result`.
    ///
    /// # Errors
    ///
    /// The address is not a multiple of 8, or the device cannot do it.
    #[inline(always)]
    pub fn compare_swap(
        self,
        remote: Remote,
        compare: u64,
        swap: u64,
        result: Local,
    ) -> Result<Wqe<'q, T, Complete>, Violation> {
        let mut segment = AtomicSeg::new();
        segment.set_swap_add(swap).set_compare(compare);
        self.short_atomic(WqeOpcode::ATOMIC_CS, remote, segment, result)
    }

    /// Adds `add` to the 8 bytes at `remote`; the old value comes to `result`.
    ///
    /// # Errors
    ///
    /// As for [`compare_swap`](Self::compare_swap).
    #[inline(always)]
    pub fn fetch_add(
        self,
        remote: Remote,
        add: u64,
        result: Local,
    ) -> Result<Wqe<'q, T, Complete>, Violation> {
        let mut segment = AtomicSeg::new();
        segment.set_swap_add(add);
        self.short_atomic(WqeOpcode::ATOMIC_FA, remote, segment, result)
    }

    /// Masked compare-and-swap; the old value, all of it, comes to `result`.
    ///
    /// # Errors
    ///
    /// The address is not a multiple of the size, or the device cannot do it.
    #[inline(always)]
    pub fn masked_compare_swap<const N: usize>(
        self,
        remote: Remote,
        operands: &MaskedCompareSwap<N>,
        result: Local,
    ) -> Result<Wqe<'q, T, Complete>, Violation>
    where
        Size<N>: AtomicSize,
    {
        let all = [
            operands.swap,
            operands.compare,
            operands.swap_mask,
            operands.compare_mask,
        ];
        self.atomic(
            WqeOpcode::ATOMIC_MASKED_CS,
            <Size<N> as AtomicSize>::OPMOD,
            remote,
            all.as_flattened(),
            N,
            result,
        )
    }

    /// Masked fetch-and-add; the old value, all of it, comes to `result`.
    ///
    /// # Errors
    ///
    /// As for [`masked_compare_swap`](Self::masked_compare_swap).
    #[inline(always)]
    pub fn masked_fetch_add<const N: usize>(
        self,
        remote: Remote,
        operands: &MaskedFetchAdd<N>,
        result: Local,
    ) -> Result<Wqe<'q, T, Complete>, Violation>
    where
        Size<N>: AtomicSize,
    {
        let all = [operands.add, operands.boundary];
        self.atomic(
            WqeOpcode::ATOMIC_MASKED_FA,
            <Size<N> as AtomicSize>::OPMOD,
            remote,
            all.as_flattened(),
            N,
            result,
        )
    }
}

impl<'q> Wqe<'q, UdOffload, Addressed> {
    fn with_eth(
        self,
        opcode: WqeOpcode,
        general_id: u32,
        eth: &eth::Encoded<'_>,
    ) -> Wqe<'q, UdOffload, Gather> {
        let mut wqe = self.op(opcode, 0, general_id);
        // hardware.md 5.3: 16 bytes of zeros stand before the segment.
        wqe.push(&[0; UNIT]);
        wqe.push_eth(eth);
        wqe
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// The device lacks a capability, or the header is too long.
    pub fn send(self, eth: &Eth<'_>) -> Result<Wqe<'q, UdOffload, Gather>, Violation> {
        let eth = eth.encode(0, &self.config.caps)?;
        Ok(self.with_eth(WqeOpcode::SEND, 0, &eth))
    }

    /// Sends a message with immediate data.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send).
    pub fn send_imm(
        self,
        eth: &Eth<'_>,
        imm: u32,
    ) -> Result<Wqe<'q, UdOffload, Gather>, Violation> {
        let eth = eth.encode(0, &self.config.caps)?;
        Ok(self.with_eth(WqeOpcode::SEND_IMM, imm, &eth))
    }

    /// Sends a packet that the device cuts into segments.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send), or the segments have no length.
    pub fn lso(self, lso: &Lso<'_>) -> Result<Wqe<'q, UdOffload, Gather>, Violation> {
        let eth = lso.encode(&self.config.caps)?;
        Ok(self.with_eth(WqeOpcode::LSO, 0, &eth))
    }
}

impl<'q> Wqe<'q, Raw, Bare> {
    /// Sends a packet.
    ///
    /// # Errors
    ///
    /// The device lacks a capability, or the header is too long.
    #[inline(always)]
    pub fn send(self, eth: &Eth<'_>) -> Result<Wqe<'q, Raw, Gather>, Violation> {
        let eth = eth.encode(0, &self.config.caps)?;
        let mut wqe = self.op(WqeOpcode::SEND, 0, 0);
        wqe.push_eth(&eth);
        Ok(wqe)
    }

    /// Sends a packet that the device cuts into segments.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send), or the segments have no length.
    #[inline(always)]
    pub fn lso(self, lso: &Lso<'_>) -> Result<Wqe<'q, Raw, Gather>, Violation> {
        let eth = lso.encode(&self.config.caps)?;
        let mut wqe = self.op(WqeOpcode::LSO, 0, 0);
        wqe.push_eth(&eth);
        Ok(wqe)
    }

    /// Feeds data through the state of a TLS flow without sending them, for resynchronisation. It does
    /// not dump anything of the device.
    ///
    /// # Errors
    ///
    /// `first` is empty: there must be data.
    pub fn dump(self, tis: Number, first: Sge) -> Result<Wqe<'q, Raw, Scatter>, Violation> {
        if first.is_empty() {
            return Err(Violation::of(
                Segment::Data,
                crate::layouts::wqe::DataSeg::BYTE_COUNT,
                0,
                Expected::Between(1, u64::from(Sge::MAX_LEN)),
            ));
        }
        let mut wqe = self.op(WqeOpcode::DUMP, 0, tis.get() << 8);
        wqe.push(&first.segment());
        Ok(wqe)
    }

    fn tls(&self, flow: Flow) -> Result<(), Violation> {
        let (there, name) = match flow {
            Flow::Tis(_) => (self.config.caps.tls_tx, "tls_tx"),
            Flow::Tir(_) => (self.config.caps.tls_rx, "tls_rx"),
        };
        if there {
            return Ok(());
        }
        Err(Violation::of(
            Segment::Ctrl,
            CtrlSeg::OPMOD,
            u64::from(flow.opmod()),
            Expected::Capability(name),
        ))
    }

    /// Sets the progress of a TLS flow.
    ///
    /// # Errors
    ///
    /// The device lacks the capability, or a number does not fit.
    pub fn tls_progress(
        self,
        flow: Flow,
        progress: &TlsProgress,
    ) -> Result<Wqe<'q, Raw, Complete>, Violation> {
        self.tls(flow)?;
        let segment = progress.segment(flow)?;
        let mut wqe = self.op(WqeOpcode::SET_PSV, flow.opmod(), 0);
        wqe.push(&segment);
        Ok(wqe)
    }

    /// Sets the static parameters of a TLS flow.
    ///
    /// # Errors
    ///
    /// The device lacks the capability.
    pub fn tls_static(
        self,
        flow: Flow,
        params: &TlsStatic,
    ) -> Result<Wqe<'q, Raw, Complete>, Violation> {
        self.tls(flow)?;
        let mut wqe = self.op(WqeOpcode::UMR, flow.opmod(), flow.number().get() << 8);
        wqe.push_bytes(&umr::static_params_ctrl());
        wqe.push_bytes(&[0; crate::layouts::wqe::Mkc::LEN]);
        wqe.push_bytes(&params.segment());
        Ok(wqe)
    }

    /// Sets the progress of an NVMe-TCP flow.
    ///
    /// # Errors
    ///
    /// A number does not fit.
    pub fn nvme_tcp_progress(
        self,
        flow: Flow,
        progress: &NvmeTcpProgress,
    ) -> Result<Wqe<'q, Raw, Complete>, Violation> {
        let segment = progress.segment(flow)?;
        let mut wqe = self.op(WqeOpcode::SET_PSV, NvmeTcpProgress::opmod(flow), 0);
        wqe.push(&segment);
        Ok(wqe)
    }
}

impl<T: Transport, S: Listed> Wqe<'_, T, S> {
    /// Adds a range of memory; an empty one takes no room.
    #[inline(always)]
    pub fn data(mut self, sge: Sge) -> Self {
        if !sge.is_empty() {
            self.push(&sge.segment());
        }
        self
    }

    /// Adds ranges of memory.
    #[inline(always)]
    pub fn data_list(mut self, list: &[Sge]) -> Self {
        for sge in list.iter().filter(|sge| !sge.is_empty()) {
            self.push(&sge.segment());
        }
        self
    }
}

impl<T: Transport> Wqe<'_, T, Gather> {
    /// Adds bytes, which are copied into the WQE; none take no room.
    #[inline(always)]
    pub fn inline(mut self, data: &[u8]) -> Self {
        self.push_inline(data);
        self
    }

    /// Adds bytes from several places as one inline segment.
    #[inline(always)]
    pub fn inline_parts(mut self, parts: &[&[u8]]) -> Self {
        self.push_inline(parts);
        self
    }
}

impl<T: Transport, S: Finishable> Wqe<'_, T, S> {
    /// Writes the control segment and puts the WQE in the queue.
    ///
    /// # Errors
    ///
    /// It is longer than a WQE can be, or than the room in the queue.
    #[inline(always)]
    pub fn finish(self) -> Result<Posted, Refusal> {
        self.finish_with::<false>()
    }

    /// The same, after the [validator](mod@super::validate) has read the whole WQE.
    ///
    /// The WQEs of fast paths get a quick look that knows the same rules: the control segment in memory
    /// must be the one that was written, and the others are held against all rules. What it does not
    /// know for sure, and WQEs that wrap or are signed, go to the validator itself.
    ///
    /// What the builder makes is legal, unless bytes came in that it does not look into
    /// ([`AddressHandle::from_bytes`]): this is for queues where a mistake must not reach the device.
    ///
    /// # Errors
    ///
    /// As for [`finish`](Self::finish), or the validator's first objection.
    #[inline(always)]
    pub fn finish_checked(self) -> Result<Posted, Refusal> {
        self.finish_with::<true>()
    }

    #[inline(always)]
    fn finish_with<const CHECKED: bool>(mut self) -> Result<Posted, Refusal> {
        let index = self.state.producer.pi;
        let ctrl = Ctrl {
            opcode: self.opcode,
            opmod: self.opmod,
            index,
            qpn: self.config.qpn,
            // If it is more than 63, nothing comes of it.
            ds: self.units as u8,
            flags: self.flags,
            general_id: self.general_id,
        };
        let words = if self.units <= self.plain && self.has_room() {
            let words = ctrl.words();
            if let Some(head) = self.span.block(0) {
                write_words(head, words);
            }
            if CHECKED {
                self.check(words)?;
            }
            words
        } else {
            let room = Room {
                units: self.units,
                max: self.max,
                free: self.state.free,
            };
            let checked = CHECKED.then_some(T::KIND);
            finish_slowly(self.span.apart(), self.config, ctrl, room, checked)?
        };
        Ok(post(self.state, words, self.units))
    }

    /// Reads the WQE, which has this control segment and is not signed, back from memory.
    #[inline(always)]
    fn check(&mut self, words: [u32; 4]) -> Result<(), Violation> {
        let queue = quick::Queue {
            transport: T::KIND,
            caps: &self.config.caps,
            max: self.plain,
            qpn: None,
            index: None,
            signed: Some(false),
        };
        // What is in memory is what it should be, so that the rules are held against that.
        let wqe = match self.span.blocks.get(self.span.first) {
            Some(head) if self.units <= MAX_DS && quick::words_of(head) == words => {
                let bytes = if self.units <= BLOCK / UNIT {
                    Some(&head[..])
                } else {
                    let first = BLOCK * self.span.first;
                    let ring = self.span.blocks.as_flattened();
                    ring.get(first..first + UNIT * self.units)
                };
                bytes.map(|bytes| (head, bytes))
            }
            _ => None,
        };
        match wqe {
            Some((head, bytes))
                if quick::is_clean_of(self.opcode, words, head, bytes, self.units, &queue) =>
            {
                Ok(())
            }
            _ => {
                let index = self.state.producer.pi;
                self.span.apart().check(self.config, T::KIND, index)
            }
        }
    }
}

/// So many units, or as many as are far too many: those that follow can be added to them.
const fn far(units: usize) -> usize {
    if units < usize::MAX / 4 {
        units
    } else {
        usize::MAX / 4
    }
}

/// Units with inline data of so many bytes, which have room in no WQE.
#[cold]
const fn too_many(units: usize, len: usize) -> usize {
    far(units.saturating_add(len / UNIT + 1))
}

/// The last basic block of so many units, at least one.
#[inline(always)]
const fn last_block(units: usize) -> usize {
    units.wrapping_sub(1) / (BLOCK / UNIT)
}

/// Writes a control segment.
#[inline(always)]
fn write_words(head: &mut Block, words: [u32; 4]) {
    for (to, word) in head.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_be_bytes());
    }
}

/// The WQE is in the queue.
#[inline(always)]
fn post(state: &mut State, words: [u32; 4], units: usize) -> Posted {
    let index = state.producer.pi;
    let blocks = last_block(units) + 1;
    let next = index.wrapping_add(blocks as u16);
    state.producer.pi = next;
    state.free = state.free.wrapping_sub(blocks);
    let doorbell = u64::from(words[0]) << 32 | u64::from(words[1]);
    Posted {
        index,
        next,
        ds: units as u8,
        doorbell: doorbell.to_be_bytes(),
    }
}

/// How long a WQE is, and how long it may be.
#[derive(Clone, Copy)]
struct Room {
    units: usize,
    max: usize,
    free: usize,
}

/// Finishes a WQE that is too long, or to be signed; its control segment.
#[cold]
#[inline(never)]
fn finish_slowly(
    mut span: Span<'_>,
    config: &Config,
    ctrl: Ctrl,
    room: Room,
    checked: Option<TransportKind>,
) -> Result<[u32; 4], Refusal> {
    let words = ctrl.words();
    match span.block(0) {
        Some(head) if room.units <= room.max && last_block(room.units) < room.free => {
            write_words(head, words)
        }
        _ => return Err(too_long(room)),
    }
    if config.signed {
        span.apart().sign(ctrl.index);
    }
    if let Some(transport) = checked {
        span.check(config, transport, ctrl.index)?;
    }
    Ok(words)
}

/// Why there is no WQE.
fn too_long(room: Room) -> Refusal {
    if room.units > room.max {
        return Refusal::Invalid(Violation::of(
            Segment::Ctrl,
            CtrlSeg::DS,
            room.units as u64,
            Expected::AtMost(room.max as u64),
        ));
    }
    Refusal::Full {
        needed: last_block(room.units) + 1,
        free: room.free,
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_wqe_build)]
mod tests {
    use super::*;
    use crate::wqe::{
        caps::Caps,
        eth::{
            Association,
            Header,
            Trailer,
            Vlan,
            VlanType, //
        },
        mkey::MkeyPatch,
        psv::Psv,
        queue::{
            Producer,
            SendQueue, //
        },
        umr::Check,
        xlt::{
            Klm,
            List,
            Page, //
        },
        Grh,
        Path, //
    };

    const CONFIG: Config = Config {
        qpn: Number::low(0x42),
        pd: Number::low(7),
        signed: false,
        caps: Caps::ALL,
    };

    /// A queue of 8 blocks whose memory is not clean, and whose next WQE is the last block.
    struct Memory([Block; 8]);

    impl Memory {
        fn new() -> Self {
            Self([[0x5a; 64]; 8])
        }

        fn queue<T: Transport>(&mut self) -> SendQueue<'_, T> {
            let at = Producer { pi: 7, ci: 7 };
            SendQueue::new(&mut self.0, &CONFIG, at).unwrap()
        }

        /// The words of the WQE that began in the last block.
        fn words<const N: usize>(&self) -> [u32; N] {
            let units = Units::in_ring(&self.0, 7).unwrap();
            assert_eq!(units.bytes(), 4 * N);
            core::array::from_fn(|i| u32::from_be_bytes(units.copy(4 * i)))
        }
    }

    const REMOTE: Remote = Remote {
        addr: 0x1122_3344_5566_7780,
        rkey: 0xaabb_ccdd,
    };
    const LOCAL: Local = Local {
        addr: 0x0102_0304_0506_0708,
        lkey: 0x77,
    };
    /// `REMOTE`, as a segment.
    const R: [u32; 4] = [0x1122_3344, 0x5566_7780, 0xaabb_ccdd, 0];

    fn sge(len: u32) -> Sge {
        Sge::new(LOCAL.addr, LOCAL.lkey, len).unwrap()
    }

    #[test]
    fn control_segment() {
        let mut memory = Memory::new();
        let flags = Flags::SIGNALED.fenced(crate::wqe::Fence::Reads).solicited();
        let posted = memory
            .queue::<Rc>()
            .start(flags)
            .unwrap()
            .nop()
            .finish()
            .unwrap();
        assert_eq!((posted.index, posted.next, posted.ds), (7, 8, 1));
        assert_eq!(posted.doorbell, [0, 0, 7, 0, 0, 0, 0x42, 1]);
        assert_eq!(memory.words(), [0x0000_0700, 0x0000_4201, 0x4a, 0]);
    }

    #[test]
    fn messages() {
        let mut memory = Memory::new();
        let mut queue = memory.queue::<Rc>();
        let wqe = queue.start(Flags::NONE).unwrap().send_imm(0x1234_5678);
        let posted = wqe.data(sge(0)).data(sge(0x1000)).finish().unwrap();
        assert_eq!(posted.ds, 2);
        assert_eq!(
            memory.words(),
            [
                0x70b,
                0x4202,
                0,
                0x1234_5678,
                0x1000,
                0x77,
                0x0102_0304,
                0x0506_0708
            ]
        );
    }

    /// Inline data go around the end of the ring; the rest of the last unit is 0.
    #[test]
    fn inline_data_wrap() {
        let mut memory = Memory::new();
        let mut queue = memory.queue::<Rc>();
        let data: [u8; 45] = core::array::from_fn(|i| i as u8);
        let (first, second) = data.split_at(5);
        let wqe = queue.start(Flags::NONE).unwrap().write(REMOTE);
        let posted = wqe.inline_parts(&[first, &[], second]).finish().unwrap();
        assert_eq!((posted.ds, posted.next), (6, 9));
        let words: [u32; 24] = memory.words();
        assert!(words[4..8] == R);
        assert_eq!(words[8], 0x8000_002d);
        assert_eq!(words[9], 0x0001_0203);
        assert_eq!(words[19], 0x2829_2a2b);
        assert_eq!(words[20], 0x2c00_0000);
        assert!(words[21..] == [0; 3]);
        // The block behind it is as it was.
        assert!(memory.0[1] == [0x5a; 64]);
    }

    #[test]
    fn datagrams() {
        let path = Path::Ib {
            dlid: 0x11,
            sl: 3,
            path_bits: 0x41,
            grh: Some(Grh {
                dgid: [0xee; 16],
                sgid_index: 9,
                flow_label: 0xf_0001,
                hop_limit: 64,
                tclass: 0x20,
            }),
        };
        let handle = AddressHandle::new(&path, 5).unwrap();
        let peer = Datagram {
            qpn: Number::low(0x0a_0b0c),
            qkey: 0x8001_0000,
        };
        let mut memory = Memory::new();
        let mut queue = memory.queue::<Ud>();
        let wqe = queue.start(Flags::NONE).unwrap().to(&handle, peer).send();
        let _ = wqe.data(sge(1)).finish().unwrap();
        let words: [u32; 20] = memory.words();
        assert!(words[..4] == [0x70a, 0x4205, 0, 0]);
        assert!(words[4..8] == [0x8001_0000, 0, 0x800a_0b0c, 0x5341_0011]);
        assert!(words[8..12] == [0, 0, 0x0000_2040, 0x409f_0001]);
        assert!(words[12..16] == [0xeeee_eeee; 4]);
    }

    /// What the builder does not look into, the validator does, also where the WQE wraps.
    #[test]
    fn foreign_address_vectors_are_checked() {
        let peer = Datagram {
            qpn: Number::low(1),
            qkey: 2,
        };
        let mut memory = Memory::new();
        for (byte, bits, legal) in [
            (0, 0, true),
            (4, 1, false),
            (8, 0x40, false),
            (28, 0x10, false),
        ] {
            let mut bytes = [0; 48];
            bytes[byte] = bits;
            let handle = AddressHandle::from_bytes(bytes);
            for pi in [4, 7] {
                let at = Producer { pi, ci: pi };
                let mut queue = SendQueue::<Ud>::new(&mut memory.0, &CONFIG, at).unwrap();
                let wqe = queue.start(Flags::NONE).unwrap().to(&handle, peer).send();
                let posted = wqe.data(sge(1)).finish_checked();
                assert_eq!(posted.is_ok(), legal);
                assert_eq!(queue.free(), if legal { 6 } else { 8 });
            }
        }
    }

    #[test]
    fn dynamic_connections() {
        let path = Path::Roce {
            mac: [1, 2, 3, 4, 5, 6],
            udp_sport: 0xc001,
            sl: 1,
            grh: Grh::default(),
        };
        let handle = AddressHandle::new(&path, 0).unwrap();
        let target = DcTarget {
            dctn: Number::low(0x33),
            key: 0x1111_2222_3333_4444,
        };
        let mut memory = Memory::new();
        let mut queue = memory.queue::<Dci>();
        let wqe = queue.start(Flags::NONE.on_stream(0x0102)).unwrap();
        let _ = wqe.to(&handle, target).read(REMOTE).finish().unwrap();
        let words: [u32; 20] = memory.words();
        assert!(words[..4] == [0x710, 0x4205, 0x0001_0200, 0]);
        assert!(words[4..8] == [0x1111_2222, 0x3333_4444, 0x8000_0033, 0x0200_c001]);
        assert!(words[8..12] == [0, 0x0102_0304, 0x0506_0000, 0x4000_0000]);
        // hardware.md 11.3, row 37: an address vector and a remote address.
        assert!(words[16..] == R);
    }

    #[test]
    fn extended_connections() {
        let mut memory = Memory::new();
        let mut queue = memory.queue::<Xrc>();
        let wqe = queue.start(Flags::NONE).unwrap().to(Number::low(0x99));
        let wqe = wqe.compare_swap(REMOTE, 1, 2, LOCAL).unwrap();
        let _ = wqe.finish().unwrap();
        let words: [u32; 20] = memory.words();
        assert!(words[..8] == [0x711, 0x4205, 0, 0, 0x99, 0, 0, 0]);
        assert!(words[8..12] == R);
        // hardware.md 11.3, row 29: operands are big-endian.
        assert!(words[12..16] == [0, 2, 0, 1]);
        assert!(words[16..] == [8, 0x77, 0x0102_0304, 0x0506_0708]);
    }

    #[test]
    fn masked_atomics() {
        let mut memory = Memory::new();
        let operands = MaskedCompareSwap::from_u32(1, 2, 3, 4);
        let mut queue = memory.queue::<Rc>();
        let wqe = queue.start(Flags::NONE).unwrap();
        let wqe = wqe.masked_compare_swap(REMOTE, &operands, LOCAL).unwrap();
        let _ = wqe.finish().unwrap();
        let words: [u32; 16] = memory.words();
        assert!(words[..2] == [0x0800_0714, 0x4204]);
        // Swap, compare, swap mask, compare mask.
        assert!(words[8..13] == [3, 1, 4, 2, 4]);

        let mut memory = Memory::new();
        let mut queue = memory.queue::<Rc>();
        let operands = MaskedFetchAdd {
            add: [1; 16],
            boundary: [0x80; 16],
        };
        let wqe = queue.start(Flags::NONE).unwrap();
        let wqe = wqe.masked_fetch_add(REMOTE, &operands, LOCAL).unwrap();
        let _ = wqe.finish().unwrap();
        let words: [u32; 20] = memory.words();
        assert!(words[..2] == [0x0a00_0715, 0x4205]);
        assert!(words[8..12] == [0x0101_0101; 4]);
        assert!(words[12..17] == [0x8080_8080, 0x8080_8080, 0x8080_8080, 0x8080_8080, 16]);
    }

    /// The units of hardware.md 5.7 for every size.
    #[test]
    fn lengths_of_masked_atomics() {
        fn ds<const N: usize>() -> (u8, u8)
        where
            Size<N>: AtomicSize,
        {
            let mut memory = Memory::new();
            let mut queue = memory.queue::<Rc>();
            let zero = [0; N];
            let remote = Remote { addr: 0, rkey: 0 };
            let cs = MaskedCompareSwap {
                compare: zero,
                compare_mask: zero,
                swap: zero,
                swap_mask: zero,
            };
            let fa = MaskedFetchAdd {
                add: zero,
                boundary: zero,
            };
            let wqe = queue.start(Flags::NONE).unwrap();
            let cs = wqe.masked_compare_swap(remote, &cs, LOCAL).unwrap();
            let cs = cs.finish().unwrap().ds;
            queue.release(queue.producer().pi);
            let wqe = queue.start(Flags::NONE).unwrap();
            let fa = wqe.masked_fetch_add(remote, &fa, LOCAL).unwrap();
            (cs, fa.finish().unwrap().ds)
        }
        assert_eq!(ds::<4>(), (4, 4));
        assert_eq!(ds::<8>(), (5, 4));
        assert_eq!(ds::<16>(), (7, 5));
        assert_eq!(ds::<32>(), (11, 7));
        assert_eq!(ds::<64>(), (19, 11));
    }

    #[test]
    fn atomics_that_are_refused() {
        let few = Caps {
            atomic_operations: crate::wqe::AtomicOps::CMP_SWAP,
            atomic_size_qp: 8,
            ..Caps::ALL
        };
        let config = Config {
            caps: few,
            ..CONFIG
        };
        let mut blocks = [[0; 64]; 4];
        let mut queue = SendQueue::<Rc>::new(&mut blocks, &config, Producer::default()).unwrap();
        let odd = Remote {
            addr: REMOTE.addr + 4,
            ..REMOTE
        };
        let why = |wqe: Result<Wqe<'_, Rc, Complete>, Violation>| {
            wqe.err().map(|refused| (refused.field, refused.expected))
        };
        let wqe = queue.start(Flags::NONE).unwrap();
        assert_eq!(why(wqe.compare_swap(REMOTE, 0, 0, LOCAL)), None);
        let wqe = queue.start(Flags::NONE).unwrap();
        assert_eq!(
            why(wqe.compare_swap(odd, 0, 0, LOCAL)),
            Some(("raddr", Expected::MultipleOf(8)))
        );
        let wqe = queue.start(Flags::NONE).unwrap();
        assert_eq!(
            why(wqe.fetch_add(REMOTE, 0, LOCAL)).map(|(field, _)| field),
            Some("opcode")
        );
        let operands = MaskedCompareSwap::from_u32(0, 0, 0, 0);
        let wqe = queue.start(Flags::NONE).unwrap();
        let refused = why(wqe.masked_compare_swap(REMOTE, &operands, LOCAL));
        assert_eq!(refused.map(|(field, _)| field), Some("opcode"));
        // Nothing of it is in the queue.
        assert_eq!(queue.producer(), Producer::default());
        // The size, where the operation is there.
        let config = Config {
            caps: Caps {
                atomic_operations: crate::wqe::AtomicOps::ALL,
                ..few
            },
            ..CONFIG
        };
        let mut queue = SendQueue::<Rc>::new(&mut blocks, &config, Producer::default()).unwrap();
        let wqe = queue.start(Flags::NONE).unwrap();
        let refused = why(wqe.masked_compare_swap(REMOTE, &operands, LOCAL));
        assert_eq!(
            refused,
            Some(("opmod", Expected::Capability("atomic_size")))
        );
    }

    /// hardware.md 5.4, and rows 1 to 5 of 11.3.
    #[test]
    fn ethernet_headers() {
        let mut memory = Memory::new();
        let mut queue = memory.queue::<Raw>();
        let header: [u8; 18] = core::array::from_fn(|i| 0xe0 + i as u8);
        let eth = Eth {
            header: Header::Inline(&header),
            checksums: crate::wqe::Checksums {
                l3: true,
                l4: true,
                ..Default::default()
            },
            ..Eth::default()
        };
        let wqe = queue.start(Flags::NONE).unwrap().send(&eth).unwrap();
        let _ = wqe.data(sge(100)).finish().unwrap();
        let words: [u32; 16] = memory.words();
        assert!(words[..4] == [0x70a, 0x4204, 0, 0]);
        // 18 bytes; two of them in the word, big-endian.
        assert!(words[4..8] == [0, 0xc000_0000, 0, 0x0012_e0e1]);
        assert!(words[8..12] == [0xe2e3_e4e5, 0xe6e7_e8e9, 0xeaeb_eced, 0xeeef_f0f1]);
        assert_eq!(words[12], 100);
    }

    #[test]
    fn vlan_tags() {
        for (kind, word) in [
            (VlanType::Customer, 0x8000_b123),
            (VlanType::Service, 0x8001_b123),
        ] {
            let eth = Eth {
                header: Header::Vlan(Vlan::new(kind, 5, true, 0x123).unwrap()),
                ..Eth::default()
            };
            let mut memory = Memory::new();
            let mut queue = memory.queue::<Raw>();
            let wqe = queue.start(Flags::NONE).unwrap().send(&eth).unwrap();
            let _ = wqe.data(sge(100)).finish().unwrap();
            assert_eq!(memory.words::<12>()[7], word);
        }
        assert!(Vlan::new(VlanType::Customer, 8, false, 0).is_err());
        assert!(Vlan::new(VlanType::Customer, 0, false, 0x1000).is_err());
    }

    #[test]
    fn trailers() {
        let eth = Eth {
            trailer: Some(Trailer {
                association: Association::InnerIp,
                data: &[1, 2, 3],
            }),
            ..Eth::default()
        };
        let mut memory = Memory::new();
        let mut queue = memory.queue::<Raw>();
        let wqe = queue.start(Flags::NONE).unwrap().send(&eth).unwrap();
        let _ = wqe.data(sge(100)).finish().unwrap();
        let words: [u32; 16] = memory.words();
        assert_eq!(words[7], 0x4c00_0000);
        // The trailer is the first data segment.
        assert!(words[8..12] == [0x8000_0003, 0x0102_0300, 0, 0]);
        assert_eq!(words[12], 100);
    }

    #[test]
    fn ethernet_that_is_refused() {
        let config = Config {
            caps: Caps {
                max_wqe_bytes: 1024,
                ..Caps::default()
            },
            ..CONFIG
        };
        let mut blocks = [[0; 64]; 4];
        let mut queue = SendQueue::<Raw>::new(&mut blocks, &config, Producer::default()).unwrap();
        let trailer = Trailer {
            association: Association::None,
            data: &[1],
        };
        let vlan = Vlan::new(VlanType::Customer, 0, false, 1).unwrap();
        for (eth, field) in [
            (
                Eth {
                    trailer: Some(trailer),
                    ..Eth::default()
                },
                "insert_trailer",
            ),
            (
                Eth {
                    header: Header::Vlan(vlan),
                    ..Eth::default()
                },
                "insert_vlan",
            ),
            (
                Eth {
                    swp: Some(crate::wqe::SoftwareParser::default()),
                    ..Eth::default()
                },
                "swp_outer_l4_offset",
            ),
            (
                Eth {
                    header: Header::Inline(&[0; 1024]),
                    ..Eth::default()
                },
                "inline_size",
            ),
        ] {
            let refused = queue.start(Flags::NONE).unwrap().send(&eth).err();
            assert_eq!(refused.map(|refused| refused.field), Some(field));
        }
        let empty = Eth {
            trailer: Some(Trailer {
                data: &[],
                ..trailer
            }),
            ..Eth::default()
        };
        let mut memory = Memory::new();
        assert!(memory
            .queue::<Raw>()
            .start(Flags::NONE)
            .unwrap()
            .send(&empty)
            .is_err());
    }

    #[test]
    fn large_sends() {
        let lso = Lso {
            header: &[0x11; 54],
            mss: 1460,
            trailer: None,
            checksums: Default::default(),
            swp: None,
            metadata: 0,
        };
        let mut memory = Memory::new();
        let mut queue = memory.queue::<Raw>();
        let wqe = queue.start(Flags::NONE).unwrap().lso(&lso).unwrap();
        let posted = wqe.data(sge(0x8000)).finish().unwrap();
        // 2 bytes in the segment, 52 in 4 units.
        assert_eq!(posted.ds, 7);
        let words: [u32; 28] = memory.words();
        assert!(words[4..8] == [0, 1460, 0, 0x0036_1111]);
        for wrong in [Lso { mss: 0, ..lso }, Lso { header: &[], ..lso }] {
            let mut memory = Memory::new();
            assert!(memory
                .queue::<Raw>()
                .start(Flags::NONE)
                .unwrap()
                .lso(&wrong)
                .is_err());
        }
    }

    #[test]
    fn large_sends_of_datagrams() {
        let lso = Lso {
            header: &[0x11; 4],
            mss: 2044,
            trailer: None,
            checksums: Default::default(),
            swp: None,
            metadata: 0,
        };
        let handle = AddressHandle::from_bytes([0; 48]);
        let peer = Datagram {
            qpn: Number::low(1),
            qkey: 2,
        };
        let mut memory = Memory::new();
        let mut queue = memory.queue::<UdOffload>();
        let wqe = queue.start(Flags::NONE).unwrap().to(&handle, peer);
        let _ = wqe.lso(&lso).unwrap().data(sge(9)).finish().unwrap();
        let words: [u32; 32] = memory.words();
        assert!(words[..2] == [0x70e, 0x4208]);
        assert!(words[16..20] == [0; 4]);
        assert!(words[20..24] == [0, 2044, 0, 0x0004_1111]);
        assert!(words[24..29] == [0x1111_0000, 0, 0, 0, 9]);
    }

    /// hardware.md 5.8, and rows 10 to 22 of 11.3.
    #[test]
    fn umr_with_klms() {
        let klm = Klm::new(0x1122_3344_5566_7788, 0x55, 0x1000).unwrap();
        let klms = [klm, klm];
        let umr = Umr {
            mkey: 0x1234_5601,
            check: Check::MustBeFree,
            check_qpn: false,
            patch: MkeyPatch::new().length(0x2000).start_addr(0x9_0000_0000),
            translations: Translations::Klms(&klms),
            place: Place::Whole,
        };
        let mut memory = Memory::new();
        let mut queue = memory.queue::<Rc>();
        let wqe = queue.start(Flags::NONE).unwrap().umr(&umr).unwrap();
        let _ = wqe.finish().unwrap();
        let words: [u32; 48] = memory.words();
        assert!(words[..4] == [0x725, 0x420c, 0, 0x1234_5601]);
        // inline is bit 31, check_free bits 30 and 29; two KLMs are 4 octowords, in bits 31 to 16;
        // the low half of the mask is the second word.
        assert!(words[4..8] == [0xa000_0000, 0x0004_0000, 0, 0x41]);
        assert!(words[8..16] == [0; 8]);
        assert!(words[20..24] == [9, 0, 0, 0x2000]);
        // KLMs begin at byte 128; the high word of the address comes first.
        assert!(words[32..36] == [0x1000, 0x55, 0x1122_3344, 0x5566_7788]);
        assert!(words[36..40] == words[32..36]);
        assert!(words[40..] == [0; 8]);
    }

    #[test]
    fn umr_with_pages_at_an_offset() {
        let page = |n: u64| Page::new(n << 12, true, true).unwrap();
        let pages = [page(1), page(2), page(3)];
        let umr = Umr {
            mkey: 1,
            translations: Translations::Pages(&pages),
            place: Place::At(64 * 8),
            ..Umr::default()
        };
        let mut memory = Memory::new();
        let mut queue = memory.queue::<Rc>();
        let wqe = queue.start(Flags::NONE).unwrap().umr(&umr).unwrap();
        let _ = wqe.finish().unwrap();
        let words: [u32; 48] = memory.words();
        // MTT 64 is at octoword 32 (hardware.md 11.3, row 23).
        assert!(words[4..6] == [0x9000_0000, 0x0004_0020]);
        assert!(words[32..38] == [0, 0x1003, 0, 0x2003, 0, 0x3003]);
        assert!(words[38..] == [0; 10]);
    }

    #[test]
    fn umr_with_a_list() {
        let umr = Umr {
            mkey: 1,
            translations: Translations::List(List::new(0x8000_0800, 0x66, 0x100).unwrap()),
            place: Place::At(0x12_3456_7840),
            ..Umr::default()
        };
        let mut memory = Memory::new();
        let mut queue = memory.queue::<Rc>();
        let wqe = queue.start(Flags::NONE).unwrap().umr(&umr).unwrap();
        let _ = wqe.finish().unwrap();
        let words: [u32; 36] = memory.words();
        assert!(words[4..6] == [0x1000_0000, 0x0010_6784]);
        assert_eq!(words[8], 0x12345);
        assert!(words[32..] == [0x100, 0x66, 0, 0x8000_0800]);
    }

    #[test]
    fn umr_that_is_refused() {
        let old = Config {
            caps: Caps {
                max_wqe_bytes: 1024,
                umr_indirect_mkey_disabled: true,
                ..Caps::default()
            },
            ..CONFIG
        };
        let mut blocks = [[0; 64]; 8];
        let klm = [Klm::new(0, 0, 0).unwrap()];
        let ksm = [crate::wqe::Ksm { addr: 0, key: 0 }];
        let at = |place| Umr {
            place,
            ..Umr::default()
        };
        let mut queue = SendQueue::<Rc>::new(&mut blocks, &old, Producer::default()).unwrap();
        for (umr, field) in [
            (at(Place::At(16)), "bsf_octowords"),
            (at(Place::At(1 << 20)), "xlt_offset_47_16"),
            (
                Umr {
                    patch: MkeyPatch::new().relaxed_writes(true),
                    ..Umr::default()
                },
                "mkey_mask",
            ),
            (
                Umr {
                    translations: Translations::Klms(&klm),
                    ..Umr::default()
                },
                "xlt_octowords",
            ),
            (
                Umr {
                    translations: Translations::Ksms(&ksm),
                    ..Umr::default()
                },
                "xlt_octowords",
            ),
        ] {
            let refused = queue.start(Flags::NONE).unwrap().umr(&umr).err();
            assert_eq!(refused.map(|refused| refused.field), Some(field));
        }
        let mut memory = Memory::new();
        let mut queue = memory.queue::<Rc>();
        assert!(queue
            .start(Flags::NONE)
            .unwrap()
            .umr(&at(Place::At(1 << 20)))
            .is_ok());
        let beyond = at(Place::At(u64::MAX - 63));
        assert!(queue.start(Flags::NONE).unwrap().umr(&beyond).is_err());
    }

    #[test]
    fn invalidation_is_a_umr() {
        let mut memory = Memory::new();
        let mut queue = memory.queue::<Rc>();
        let wqe = queue
            .start(Flags::NONE)
            .unwrap()
            .local_invalidate(0x77)
            .unwrap();
        let _ = wqe.finish().unwrap();
        let words: [u32; 32] = memory.words();
        // inline is 1 where there is nothing to point to (hardware.md 11.3, row 16).
        assert!(words[..8] == [0x725, 0x4208, 0, 0x77, 0x8000_0000, 0, 0, 1 << 29]);
        assert_eq!(words[16], 1 << 30);
    }

    #[test]
    fn signature_values() {
        let set = |pd| SetPsv {
            psv: Psv {
                index: Number::low(0x0a_0b0c),
                pd: Number::low(pd),
            },
            block_guard: 0x1111,
            app_tag: 0x2222,
            ref_tag: 0x3333_4444,
        };
        let mut memory = Memory::new();
        let mut queue = memory.queue::<Rc>();
        let wqe = queue.start(Flags::NONE).unwrap().set_psv(&set(7)).unwrap();
        let _ = wqe.finish().unwrap();
        let refused = queue
            .start(Flags::NONE)
            .unwrap()
            .set_psv(&set(8))
            .err()
            .unwrap();
        assert_eq!(refused.segment, Segment::SetPsv);
        assert_eq!((refused.value, refused.expected), (8, Expected::Exactly(7)));
        let words: [u32; 8] = memory.words();
        assert!(words == [0x720, 0x4202, 0, 0, 0x0a_0b0c, 0, 0x1111_2222, 0x3333_4444]);
    }

    #[test]
    fn flows() {
        let progress = TlsProgress {
            next_record_tcp_sn: 0x1111_2222,
            auth_state: 1,
            ..TlsProgress::default()
        };
        let mut memory = Memory::new();
        let mut queue = memory.queue::<Raw>();
        let tir = Flow::Tir(Number::low(0x55));
        let wqe = queue
            .start(Flags::NONE)
            .unwrap()
            .tls_progress(tir, &progress);
        let _ = wqe.unwrap().finish().unwrap();
        let words: [u32; 8] = memory.words();
        assert!(words == [0x0200_0720, 0x4202, 0, 0, 0x55, 0x1111_2222, 0, 0x1000_0000]);

        let mut memory = Memory::new();
        let mut queue = memory.queue::<Raw>();
        let params = TlsStatic {
            version: crate::wqe::psv::TlsVersion::V1_3,
            initial_record_number: 1,
            resync_tcp_sn: 2,
            gcm_iv: 3,
            implicit_iv: 4,
            dek: Number::low(5),
        };
        let tis = Flow::Tis(Number::low(0x66));
        let wqe = queue
            .start(Flags::NONE)
            .unwrap()
            .tls_static(tis, &params)
            .unwrap();
        let _ = wqe.finish().unwrap();
        let words: [u32; 48] = memory.words();
        assert!(words[..6] == [0x0100_0725, 0x420c, 0, 0x6600, 0x8000_0000, 4]);
        assert!(words[32..41] == [0x8d00_0001, 0, 0, 1, 2, 3, 0, 4, 5]);
    }

    #[test]
    fn dumps_have_data() {
        let tis = Number::low(0x12);
        let mut memory = Memory::new();
        let mut queue = memory.queue::<Raw>();
        let wqe = queue
            .start(Flags::NONE)
            .unwrap()
            .dump(tis, sge(100))
            .unwrap();
        let _ = wqe.finish().unwrap();
        let refused = queue
            .start(Flags::NONE)
            .unwrap()
            .dump(tis, sge(0))
            .err()
            .unwrap();
        assert_eq!((refused.field, refused.value), ("byte_count", 0));
        let words: [u32; 8] = memory.words();
        assert!(words[..5] == [0x723, 0x4202, 0, 0x1200, 100]);
    }

    #[test]
    fn waiting() {
        let mut memory = Memory::new();
        let mut queue = memory.queue::<Rc>();
        let wqe = queue
            .start(Flags::NONE)
            .unwrap()
            .wait(Number::low(0x33), 0x1_0002);
        let _ = wqe.unwrap().finish().unwrap();
        assert_eq!(memory.words(), [0x70f, 0x4202, 0, 0, 0, 0, 0x1_0002, 0x33]);
        let none = Config {
            caps: Caps::default(),
            ..CONFIG
        };
        let mut blocks = [[0; 64]; 1];
        let mut queue = SendQueue::<Rc>::new(&mut blocks, &none, Producer::default()).unwrap();
        assert!(queue
            .start(Flags::NONE)
            .unwrap()
            .wait(Number::low(0), 0)
            .is_err());
    }

    #[test]
    fn what_does_not_fit_leaves_the_queue_alone() {
        let mut memory = Memory::new();
        let mut queue = memory.queue::<Rc>();
        // 62 entries are a WQE of 63 units; the queue has 32.
        let wqe = queue.start(Flags::NONE).unwrap().send();
        assert_eq!(
            wqe.data_list(&[sge(1); 40]).finish(),
            Err(Refusal::Full {
                needed: 11,
                free: 8
            })
        );
        let refused = queue
            .start(Flags::NONE)
            .unwrap()
            .send()
            .inline(&[0; 2000])
            .finish();
        assert_eq!(
            refused,
            Err(Refusal::Invalid(Violation::of(
                Segment::Ctrl,
                CtrlSeg::DS,
                127,
                Expected::AtMost(63)
            )))
        );
        // 31 entries fill it.
        let posted = queue
            .start(Flags::NONE)
            .unwrap()
            .send()
            .data_list(&[sge(1); 31]);
        assert_eq!(posted.finish().map(|posted| posted.next), Ok(15));
        assert_eq!(queue.free(), 0);
        assert_eq!(
            queue.start(Flags::NONE).err(),
            Some(Refusal::Full { needed: 1, free: 0 })
        );
        queue.release(15);
        assert_eq!(
            queue
                .start(Flags::NONE)
                .unwrap()
                .nop()
                .finish()
                .map(|p| p.index),
            Ok(15)
        );
    }

    #[test]
    fn counters_run_past_16_bits() {
        let mut blocks = [[0; 64]; 2];
        let at = Producer {
            pi: 0xffff,
            ci: 0xffff,
        };
        let mut queue = SendQueue::<Rc>::new(&mut blocks, &CONFIG, at).unwrap();
        let wqe = queue
            .start(Flags::NONE)
            .unwrap()
            .send()
            .data_list(&[sge(1); 5]);
        let posted = wqe.finish_checked().unwrap();
        assert_eq!((posted.index, posted.next), (0xffff, 1));
        assert_eq!(queue.free(), 0);
    }

    #[test]
    fn rings_are_powers_of_two() {
        let mut blocks = [[0; 64]; 3];
        for count in [0, 3] {
            let blocks = &mut blocks[..count];
            assert!(SendQueue::<Rc>::new(blocks, &CONFIG, Producer::default()).is_err());
        }
    }

    #[test]
    fn signatures() {
        let config = Config {
            signed: true,
            ..CONFIG
        };
        let mut blocks = [[0; 64]; 2];
        let mut queue = SendQueue::<Rc>::new(&mut blocks, &config, Producer::default()).unwrap();
        let posted = queue
            .start(Flags::NONE)
            .unwrap()
            .send()
            .data(sge(3))
            .finish_checked();
        assert!(posted.is_ok());
        let units = queue.wqe(0).unwrap();
        let xor = (0..units.bytes()).fold(0, |xor, at| xor ^ units.byte(at).unwrap_or(0));
        assert_eq!(xor, 0xff);
    }
}
