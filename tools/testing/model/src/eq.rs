// SPDX-License-Identifier: GPL-2.0

//! Event queues: rings of 64-byte entries in guest memory (hardware.md section 3).

use std::collections::VecDeque;

use crate::field;
use crate::ifc;
use crate::vfio_user::dma::Fault;
use crate::vfio_user::dma::Memory;

/// Bytes of an entry.
pub const EQE: usize = 64;
/// Offset of the event data.
pub const DATA: usize = 0x20;
/// Bytes of event data.
pub const DATA_SIZE: usize = 28;
const TYPE: usize = 0x01;
const SUBTYPE: usize = 0x03;
const OWNER: usize = 0x3f;

/// Counters of an EQ have 24 bits.
pub const COUNTER_MASK: u32 = 0xff_ffff;

/// Bytes of an EQ context.
pub const CONTEXT: usize = ifc::size_of("eqc");

/// Event types that the model posts itself.
pub mod event {
    /// Command completion.
    pub const COMMAND: u8 = 0x0a;
    /// Page request.
    pub const PAGE_REQUEST: u8 = 0x0b;
    /// Device tracer.
    pub const TRACER: u8 = 0x26;
}

/// Values of the context's `st`.
mod state {
    pub const ARMED: u64 = 0x9;
    pub const FIRED: u64 = 0xa;
}

/// Value of the context's `status` after an overrun (write failure).
const STATUS_FAILED: u64 = 0xa;

/// An event before it has a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Type.
    pub kind: u8,
    /// Sub type.
    pub subtype: u8,
    /// Data.
    pub data: [u8; DATA_SIZE],
}

impl Event {
    /// An event with data at its start, the rest zero.
    pub fn new(kind: u8, subtype: u8, data: &[u8]) -> Self {
        let mut all = [0; DATA_SIZE];
        let n = data.len().min(DATA_SIZE);
        all[..n].copy_from_slice(&data[..n]);
        Self {
            kind,
            subtype,
            data: all,
        }
    }
}

/// Why an event was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The queue is full, or was before.
    Overrun,
    /// Its memory is gone.
    Memory(Fault),
}

/// An event queue.
#[derive(Clone, Debug)]
pub struct Eq {
    /// MSI-X vector.
    pub vector: u16,
    /// Doorbell page.
    pub uar: u32,
    /// Event types that come here, bit n of word n / 64.
    pub mask: [u64; 4],
    /// Log2 of the number of entries.
    pub log_size: u32,
    /// Consumer index, 24 bits.
    pub ci: u32,
    /// Producer index, 24 bits.
    pub pi: u32,
    /// An interrupt is due for the next event.
    pub armed: bool,
    /// An event found the queue full; nothing is posted any more.
    pub overrun: bool,
    /// Log2 of the bytes of a page of the buffer.
    pub log_page_size: u32,
    /// First byte in the first page.
    pub page_offset: u32,
    /// Pages of the buffer.
    pub pages: Vec<u64>,
    /// Events from the control socket that wait for room.
    pub backlog: VecDeque<Event>,
}

impl Eq {
    /// Number of entries.
    pub fn size(&self) -> u32 {
        1 << self.log_size
    }

    /// Entries that wait for software.
    pub fn pending(&self) -> u32 {
        self.pi.wrapping_sub(self.ci) & COUNTER_MASK
    }

    /// Whether events of this type come here.
    pub fn takes(&self, kind: u8) -> bool {
        self.mask[usize::from(kind) / 64] >> (kind % 64) & 1 != 0
    }

    /// Address of entry `index` (below the size).
    pub fn entry(&self, index: u32) -> u64 {
        let at = u64::from(index) * EQE as u64 + u64::from(self.page_offset);
        let page = (at >> self.log_page_size) as usize;
        // CREATE_EQ has checked that there are enough pages.
        self.pages.get(page).copied().unwrap_or(0) + (at & ((1 << self.log_page_size) - 1))
    }

    /// Start and length of the part of the buffer that is in page `index`.
    pub fn extent(&self, index: usize) -> (u64, usize) {
        let page_size = 1usize << self.log_page_size;
        let end = self.size() as usize * EQE + self.page_offset as usize;
        let skip = if index == 0 {
            self.page_offset as usize
        } else {
            0
        };
        let stop = end.saturating_sub(index * page_size).min(page_size);
        let page = self.pages.get(index).copied().unwrap_or(0);
        (page.saturating_add(skip as u64), stop.saturating_sub(skip))
    }

    /// Writes `event` into the next entry, its owner bit last.
    ///
    /// # Errors
    ///
    /// When the queue is full or its memory is gone.
    pub fn post(&mut self, memory: &Memory, event: &Event) -> Result<(), PostError> {
        if self.overrun || self.pending() >= self.size() {
            self.overrun = true;
            return Err(PostError::Overrun);
        }
        let at = self.entry(self.pi & (self.size() - 1));
        let phase = (self.pi >> self.log_size & 1) as u8;
        let mut eqe = [0u8; EQE];
        eqe[TYPE] = event.kind;
        eqe[SUBTYPE] = event.subtype;
        eqe[DATA..DATA + DATA_SIZE].copy_from_slice(&event.data);
        let owner = at + OWNER as u64;
        memory.write(at, &eqe[..OWNER]).map_err(PostError::Memory)?;
        memory.store(owner, phase).map_err(PostError::Memory)?;
        self.pi = self.pi.wrapping_add(1) & COUNTER_MASK;
        Ok(())
    }

    /// First entry whose owner bit is not 1, as software must have set it before CREATE_EQ.
    ///
    /// # Errors
    ///
    /// When the buffer cannot be read.
    pub fn find_uninitialised(&self, memory: &Memory) -> Result<Option<u32>, Fault> {
        let mut first = 0;
        for index in 0..self.pages.len() {
            let (start, len) = self.extent(index);
            let mut part = vec![0; len];
            memory.inspect(start, &mut part)?;
            if let Some(n) = part.chunks(EQE).position(|eqe| eqe[OWNER] & 1 != 1) {
                return Ok(Some(first + n as u32));
            }
            first += (len / EQE) as u32;
        }
        Ok(None)
    }

    /// The context for QUERY_EQ.
    pub fn context(&self) -> [u8; CONTEXT] {
        let mut c = [0; CONTEXT];
        let st = if self.armed {
            state::ARMED
        } else {
            state::FIRED
        };
        ifc::set(
            &mut c,
            field!("eqc", "status"),
            if self.overrun { STATUS_FAILED } else { 0 },
        );
        ifc::set(&mut c, field!("eqc", "st"), st);
        ifc::set(
            &mut c,
            field!("eqc", "page_offset"),
            (self.page_offset / EQE as u32).into(),
        );
        ifc::set(&mut c, field!("eqc", "log_eq_size"), self.log_size.into());
        ifc::set(&mut c, field!("eqc", "uar_page"), self.uar.into());
        ifc::set(&mut c, field!("eqc", "intr"), self.vector.into());
        ifc::set(
            &mut c,
            field!("eqc", "log_page_size"),
            (self.log_page_size - 12).into(),
        );
        ifc::set(&mut c, field!("eqc", "consumer_counter"), self.ci.into());
        ifc::set(&mut c, field!("eqc", "producer_counter"), self.pi.into());
        c
    }
}

#[cfg(test)]
mod tests;
