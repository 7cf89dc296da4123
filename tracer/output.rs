// SPDX-License-Identifier: GPL-2.0

//! Where messages go: the trace event, and the ring behind debugfs.

use core::fmt;

use kernel::{
    new_mutex,
    prelude::*,
    str::CStr,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use super::{
    assembly::Message,
    block::Gap,
    event::Time,
    format::{
        Line,
        LINE, //
    },
    recent::{
        Recent,
        What, //
    },
    timestamp::Timestamp53, //
};
use crate::kapi::trace;

/// Bytes of the ring: some 3000 messages.
const RING: usize = 256 << 10;

/// The last messages.
#[pin_data]
pub(super) struct Ring {
    #[pin]
    recent: Mutex<Recent<KVVec<u8>>>,
}

impl Ring {
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Arc<Self>> {
        let bytes = KVVec::from_elem(0, RING, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                recent <- new_mutex!(Recent::new(bytes), "mlx5_rs_traces"),
            }),
            GFP_KERNEL,
        )
    }

    /// Prints all lines, in the form of the trace events.
    pub(super) fn show(&self, f: &mut kernel::fmt::Formatter<'_>, dev: &CStr) -> fmt::Result {
        let dev = dev.to_str().unwrap_or("?");
        for entry in self.recent.lock().iter() {
            write!(f, "{dev} [{:#x}] ", entry.time)?;
            match entry.what {
                What::Message { lost, id } => {
                    write!(f, "{} [{id:#x}] ", u8::from(lost))?;
                    // Printable ASCII, wherever it is cut.
                    for part in [entry.text.0, entry.text.1] {
                        f.write_str(core::str::from_utf8(part).unwrap_or("?"))?;
                    }
                    writeln!(f)?;
                }
                What::Gap { blocks, torn } => writeln!(f, "gap blocks={blocks} torn={torn}")?,
            }
        }
        Ok(())
    }

    /// Entries that it has, and that made room.
    pub(super) fn counts(&self) -> (usize, u64) {
        let recent = self.recent.lock();
        (recent.len(), recent.forgotten())
    }
}

/// Blocks that are missing before what comes next.
#[derive(Clone, Copy)]
struct Missing {
    blocks: u64,
    torn: u64,
    after: Option<Timestamp53>,
}

/// The way out.
///
/// A gap is told before the message that follows, with the time of that: what is missing was written
/// before it.
pub(super) struct Outlet<'a> {
    dev: &'a CStr,
    ring: Arc<Ring>,
    missing: Option<Missing>,
}

impl<'a> Outlet<'a> {
    pub(super) fn new(dev: &'a CStr, ring: Arc<Ring>) -> Self {
        Self {
            dev,
            ring,
            missing: None,
        }
    }

    /// A message.
    pub(super) fn message(&mut self, message: &Message<'_>) {
        let (time, full) = match message.time {
            Time::Full(time) => (time.get(), Some(time)),
            // What is known of it.
            Time::Low(low) => (low.into(), None),
        };
        self.tell_missing(full);
        let mut text = [0; LINE];
        let mut line = Line::new(&mut text);
        message.render(&mut line);
        trace::fw(self.dev, time, message.lost, message.id, line.as_str());
        let what = What::Message {
            lost: message.lost,
            id: message.id,
        };
        self.ring.recent.lock().push(time, what, line.as_bytes());
    }

    /// Blocks are missing before what comes next; `torn` of them were copied, and dropped.
    pub(super) fn gap(&mut self, gap: Gap, torn: u64) {
        let missing = self.missing.get_or_insert(Missing {
            blocks: 0,
            torn: 0,
            after: gap.after,
        });
        missing.blocks = missing.blocks.saturating_add(gap.blocks.into());
        missing.torn = missing.torn.saturating_add(torn);
    }

    /// Tells what is missing, if something is: it was written before `now`, if that is known.
    pub(super) fn tell_missing(&mut self, now: Option<Timestamp53>) {
        let Some(missing) = self.missing.take() else {
            return;
        };
        let Missing { blocks, torn, .. } = missing;
        let time = now.or(missing.after).map_or(0, Timestamp53::get);
        trace::fw_gap(self.dev, time, blocks, torn);
        let what = What::Gap { blocks, torn };
        self.ring.recent.lock().push(time, what, &[]);
    }
}
