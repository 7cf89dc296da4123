// SPDX-License-Identifier: GPL-2.0

//! What a driver leaves that never said goodbye, as when a crash kernel starts.
//!
//! The addresses are ones that no guest has memory at, so that any use of them shows as a
//! violation. A new command queue, a reset of the function, and clearing bus master drop all of
//! it.

use std::collections::VecDeque;

use log::info;

use crate::bar;
use crate::cmdif::SLOTS;
use crate::device::Device;
use crate::device::Later;
use crate::device::State;
use crate::eq::event;
use crate::eq::Eq;
use crate::pages;

/// Where the memory of the driver before was.
pub const BASE: u64 = 1 << 46;

/// Most pages that can be left.
pub const MAX_PAGES: u32 = 1 << 20;

/// Most event queues that can be left.
pub const MAX_EQS: u8 = 64;

/// Event queues that are left if nothing else is said: for commands and for page requests.
pub const EQS: u8 = 2;

/// Log2 of the entries of an event queue that is left.
const LOG_EQ_SIZE: u32 = 8;

impl Device {
    /// Makes the device as a driver leaves it that has given `pages` pages and has `eqs` event
    /// queues, all armed: the first takes command completions, the second page requests, the
    /// others nothing.
    pub fn leave_stale(&mut self, pages: u32, eqs: u8) {
        self.forget();
        self.hca.stale = true;
        self.hca.state = State::Initialized;
        self.hca.issi = Some(1);
        let page = |n: u64| BASE + n * pages::SIZE as u64;
        self.seg.cmdq_h = (BASE >> 32) as u32;
        self.seg.cmdq_l = BASE as u32;
        let mut next = 1;
        self.hca.uars.insert(bar::FIRST_UAR);
        for n in 0..eqs {
            let kind = match n {
                0 => Some(event::COMMAND),
                1 => Some(event::PAGE_REQUEST),
                _ => None,
            };
            let bytes = (crate::eq::EQE as u64) << LOG_EQ_SIZE;
            let count = bytes.div_ceil(pages::SIZE as u64);
            let eq = Eq {
                vector: u16::from(n),
                uar: bar::FIRST_UAR,
                mask: [kind.map_or(0, |k| 1 << k), 0, 0, 0],
                log_size: LOG_EQ_SIZE,
                ci: 0,
                pi: 0,
                armed: true,
                overrun: false,
                log_page_size: 12,
                page_offset: 0,
                pages: (next..next + count).map(page).collect(),
                backlog: VecDeque::new(),
            };
            next += count;
            self.hca.eqs.insert(n + 1, eq);
        }
        let key = self.own_key();
        let own = self.hca.pages.functions.entry(key).or_default();
        (next..next + u64::from(pages)).for_each(|n| own.add(page(n)));
    }

    /// A new driver starts: drops what the one before has left.
    pub(crate) fn supersede(&mut self) {
        if self.hca.state != State::Reset || self.hca.flights.iter().any(Option::is_some) {
            info!("new command queue: state of the previous driver dropped");
            self.counters.stale_dropped += 1;
            self.forget();
        }
    }

    /// Bus mastering was switched off. The device cannot finish what it has begun.
    pub(crate) fn lose_master(&mut self) {
        self.counters.master_clears += 1;
        if self.hca.stale {
            self.drop_stale();
        }
        self.timers
            .retain(|later| matches!(later, Later::NicInterface(_)));
        self.hca.flights = [const { None }; SLOTS];
    }

    /// Drops what [`Device::leave_stale`] made, if it is still there.
    pub(crate) fn drop_stale(&mut self) {
        if self.hca.stale {
            info!("stale state dropped");
            self.counters.stale_dropped += 1;
            self.forget();
            self.seg.reset();
        }
    }
}
