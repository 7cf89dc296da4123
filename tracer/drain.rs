// SPDX-License-Identifier: GPL-2.0

//! From the buffer to messages, a bounded number of blocks at a time.

use core::ops::{
    Deref,
    DerefMut, //
};

use super::{
    assembly::{
        Message,
        Parser,
        Row, //
    },
    block::{
        Block,
        Gap,
        Reader,
        Source,
        Step, //
    },
    strings::Database, //
};

/// What comes out of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A message.
    Message(Message<'a>),
    /// Blocks are missing here.
    Gap(Gap),
}

/// How a call of [`drain`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Blocks read.
    pub blocks: u32,
    /// Gaps met.
    pub gaps: u32,
    /// There is no more; else the budget is used up.
    pub empty: bool,
}

/// Takes blocks until there are no more, or `budget` blocks are taken, and gives what they say to
/// `sink`. What waits for its other half when blocks are lost is given before the gap.
///
/// `block` is working memory. A gap is charged as 32 blocks: looking for the place behind it costs
/// about as much in the usual buffer of 1024 blocks.
pub fn drain<S, T, M, F>(
    reader: &mut Reader,
    parser: &mut Parser<T>,
    source: &S,
    db: &Database<M>,
    block: &mut Block,
    budget: u32,
    sink: &mut F,
) -> Drained
where
    S: Source,
    T: DerefMut<Target = [Row]>,
    M: Deref<Target = [u8]>,
    F: FnMut(&Record<'_>),
{
    const GAP_COST: u32 = 32;
    let mut drained = Drained {
        blocks: 0,
        gaps: 0,
        empty: false,
    };
    let mut spent = 0_u32;
    while spent < budget {
        match reader.next(source, block) {
            Step::Block(_) => {
                parser.block(block, db, &mut |message| sink(&Record::Message(*message)));
                drained.blocks += 1;
                spent += 1;
            }
            Step::Gap(gap) => {
                interrupted(parser, db, gap, sink);
                drained.gaps += 1;
                spent = spent.saturating_add(GAP_COST);
            }
            Step::Empty => {
                drained.empty = true;
                break;
            }
        }
    }
    drained
}

/// Gives a gap, and before it what waited for more: also for a gap of [`Reader::recover`].
pub fn interrupted<T, M, F>(parser: &mut Parser<T>, db: &Database<M>, gap: Gap, sink: &mut F)
where
    T: DerefMut<Target = [Row]>,
    M: Deref<Target = [u8]>,
    F: FnMut(&Record<'_>),
{
    parser.flush(db, &mut |message| sink(&Record::Message(*message)));
    sink(&Record::Gap(gap));
}
