// SPDX-License-Identifier: GPL-2.0

//! From events to messages (hardware.md 4).
//!
//! A string trace is an event with a pointer to its format string (`tdsn` 0), and one for each word
//! of its parameters (`tdsn` 1 to 7). All have the same event id and message number (`tmsn`); events
//! of other messages may come between them. [`Parser`] keeps messages that wait for parameters in a
//! table of fixed size, and gives each message when its last parameter has come.
//!
//! Nothing disappears: every event of a string trace is part of one message that is given, though
//! it may be one that says that it is [incomplete](Body::Incomplete), or of a
//! [single event](Body::Raw). Every other event is given as it is, but for timestamps and padding.

use core::ops::{
    Deref,
    DerefMut, //
};

use super::{
    block::{
        Block,
        EVENTS, //
    },
    event::{
        Event,
        Rules,
        StringEvent,
        Time,
        Timed, //
    },
    format::{
        self,
        Bad,
        Line,
        Shape,
        MAX_WORDS, //
    },
    strings::{
        Database,
        Place, //
    },
};

/// Rows of a table that is large enough for every device known: firmware has some ten processors,
/// each of which is in one or two messages at a time. As many messages as the table has slots can wait,
/// whichever they are.
pub const ROWS: usize = 32;

/// Messages in a row of the table.
const WAYS: usize = 4;

/// After so many blocks a message that has not got all its parameters is given as incomplete. Its
/// parameters follow it closely, if they come at all.
const PATIENCE: u64 = 64;

/// Why an event is given as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is not one of a string trace.
    NotAString,
    /// It points to no string of the database.
    UnknownString,
    /// It is a parameter of a message that is not known, or that does not take it.
    Orphan,
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A string with all its parameters.
    Text {
        /// The string, without its end.
        format: &'a [u8],
        /// Its parameters.
        words: &'a [u32],
    },
    /// A string that is not formatted, with as many words of parameters as it seems to have.
    Bad {
        /// The string, as far as it is known.
        format: &'a [u8],
        /// Its parameters.
        words: &'a [u32],
        /// What is wrong with it.
        why: Bad,
    },
    /// A message whose other parameters did not come.
    Incomplete {
        /// The string.
        format: &'a [u8],
        /// Its parameters, as many as it takes; those that did not come are 0.
        words: &'a [u32],
        /// Bit `i` is 1 if word `i` came.
        have: u8,
    },
    /// One event.
    Raw {
        /// The event; bit 63 is the first one of the device's word 0.
        word: u64,
        /// Why it is not more than this.
        why: Why,
    },
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// When its first event was written.
    pub time: Time,
    /// The device dropped events before one of its events.
    pub lost: bool,
    /// Event id: who wrote it.
    pub id: u8,
    /// What it says.
    pub body: Body<'a>,
}

impl Message<'_> {
    /// Writes what it says; nothing of firmware's gets out that is not printable.
    #[inline]
    pub fn render(&self, line: &mut Line<'_>) {
        match self.body {
            Body::Text { format, words } => format::format(format, words, line),
            Body::Bad { format, words, .. } => {
                line.text(b"BAD_FORMAT: ");
                format::verbatim(format, line);
                for word in words {
                    line.text(b" ");
                    line.word(*word);
                }
            }
            Body::Incomplete {
                format,
                words,
                have,
            } => {
                line.text(b"INCOMPLETE: ");
                format::verbatim(format, line);
                for (i, word) in words.iter().enumerate() {
                    line.text(b" ");
                    if have & bit(i) == 0 {
                        line.text(b"?");
                    } else {
                        line.word(*word);
                    }
                }
            }
            // The form that upstream has for it.
            Body::Raw { word, .. } => {
                line.word((word >> 32) as u32);
                line.digits(word as u32);
            }
        }
    }
}

/// What a parser has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParserCounters {
    /// Events of any kind.
    pub events: u64,
    /// Events whose lost bit said that the device dropped some before them.
    pub lost_bits: u64,
    /// Timestamp events that are not reliable.
    pub unreliable: u64,
    /// Events without a full time, because the timestamp after them is not reliable.
    pub untimed: u64,
    /// Messages with all their parameters, also those with a bad format.
    pub messages: u64,
    /// Messages with a bad format.
    pub bad_formats: u64,
    /// Messages that did not get all their parameters.
    pub incomplete: u64,
    /// Parameters of no known message.
    pub orphans: u64,
    /// Messages whose string is not in the database.
    pub unknown_strings: u64,
    /// Events that are not of string traces.
    pub others: u64,
    /// Events of zeros.
    pub padding: u64,
}

/// A message that waits for its parameters.
#[derive(Clone, Debug)]
struct Waiting {
    place: Place,
    bad: Option<Bad>,
    /// One bit for each word that it takes.
    need: u8,
    /// One bit for each word that has come.
    have: u8,
    lost: bool,
    words: [u32; MAX_WORDS],
    time: Time,
    /// Which block it began in, and which one of all messages it is.
    block: u64,
    number: u64,
}

impl Waiting {
    const NONE: Self = Self {
        place: Place::NONE,
        bad: None,
        need: 0,
        have: 0,
        lost: false,
        words: [0; MAX_WORDS],
        time: Time::Low(0),
        block: 0,
        number: 0,
    };

    /// What it says now.
    #[inline]
    fn body<'a, M: Deref<Target = [u8]>>(&'a self, db: &'a Database<M>) -> Body<'a> {
        let format = db.string(self.place);
        let count = self.need.count_ones() as usize;
        let words = self.words.get(..count).unwrap_or(&self.words);
        match (self.have == self.need, self.bad) {
            (true, None) => Body::Text { format, words },
            (true, Some(why)) => Body::Bad { format, words, why },
            (false, _) => Body::Incomplete {
                format,
                words,
                have: self.have,
            },
        }
    }

    /// Gives the message, of event id `id`.
    #[inline]
    fn give<M, F>(&self, id: u8, db: &Database<M>, counters: &mut ParserCounters, sink: &mut F)
    where
        M: Deref<Target = [u8]>,
        F: FnMut(&Message<'_>),
    {
        let body = self.body(db);
        match body {
            Body::Incomplete { .. } => counters.incomplete += 1,
            _ => counters.messages += 1,
        }
        counters.bad_formats += u64::from(matches!(body, Body::Bad { .. }));
        sink(&Message {
            time: self.time,
            lost: self.lost,
            id,
            body,
        });
    }
}

/// A string that was met lately, and what it needs: firmware says the same again and again.
#[derive(Clone, Copy, Debug)]
struct Known {
    pointer: u32,
    place: Place,
    shape: Shape,
}

impl Known {
    fn new<M: Deref<Target = [u8]>>(pointer: u32, db: &Database<M>) -> Option<Self> {
        let place = db.find(pointer)?;
        let mut shape = Shape::of(db.string(place));
        if !place.is_terminated() {
            shape.bad = Some(Bad::Unterminated);
        }
        Some(Self {
            pointer,
            place,
            shape,
        })
    }
}

/// A row of the table of messages that wait for parameters, and of strings: each has its place in one
/// row, a message by its key, a string by its pointer. A message whose row is full waits in another.
#[derive(Clone, Debug)]
pub struct Row {
    /// Who is in each slot; [`NO_KEY`](Self::NO_KEY) where nobody is.
    keys: [u32; WAYS],
    slots: [Waiting; WAYS],
    strings: [Option<Known>; WAYS],
    /// A message that belongs here may wait in another row.
    strays: bool,
}

impl Row {
    /// Nobody waits, nothing is known.
    pub const FREE: Self = Self {
        keys: [Self::NO_KEY; WAYS],
        slots: [Waiting::NONE; WAYS],
        strings: [None; WAYS],
        strays: false,
    };

    /// No event has it: event ids have 8 bits, message numbers 13.
    const NO_KEY: u32 = u32::MAX;

    /// The row of a table of `rows` rows that has the message, or string, with this key; below `rows`
    /// unless that is 0.
    #[inline]
    fn of(rows: usize, key: u32) -> usize {
        // Multiplied by 2^32 / phi, neighbours are far from each other.
        let spread = u64::from(key.wrapping_mul(0x9e37_79b9));
        // The high half of the product is below the number of rows.
        ((spread * rows as u64) >> 32) as usize
    }

    /// The string that `pointer` points to, whose row this is.
    #[inline]
    fn string<M: Deref<Target = [u8]>>(&mut self, pointer: u32, db: &Database<M>) -> Option<Known> {
        let entry = &mut self.strings[pointer as usize % WAYS];
        if entry.is_none_or(|known| known.pointer != pointer) {
            *entry = Some(Known::new(pointer, db)?);
        }
        *entry
    }

    #[inline]
    fn position(&self, key: u32) -> Option<usize> {
        self.keys.iter().position(|other| *other == key)
    }

    /// The slots in use.
    fn used(&self) -> impl Iterator<Item = (usize, &Waiting)> {
        let slots = self.slots.iter().enumerate();
        slots.filter(|(way, _)| self.keys[way % WAYS] != Self::NO_KEY)
    }

    /// Where the message with this key, whose row is `home`, waits.
    #[inline]
    fn find(table: &mut [Self], home: usize, key: u32) -> Option<(&mut Self, usize)> {
        let row = table.get(home)?;
        let (row, way) = match row.position(key) {
            Some(way) => (home, way),
            None if !row.strays => return None,
            None => Self::find_stray(table, home, key)?,
        };
        Some((table.get_mut(row)?, way))
    }

    /// [`find`](Self::find) in all rows.
    #[cold]
    fn find_stray(table: &mut [Self], home: usize, key: u32) -> Option<(usize, usize)> {
        let rows = table.len();
        let mut strays = false;
        for (at, row) in table.iter().enumerate().filter(|(at, _)| *at != home) {
            for (way, other) in row.keys.iter().enumerate() {
                if *other == key {
                    return Some((at, way));
                }
                strays |= *other != Self::NO_KEY && Self::of(rows, *other) == home;
            }
        }
        table.get_mut(home)?.strays = strays;
        None
    }

    /// A slot for a message whose row is `home`: there, or else anywhere, or else that of the oldest
    /// message of all; none if there is no table.
    #[inline]
    fn room(table: &mut [Self], home: usize) -> Option<(&mut Self, usize)> {
        let (row, way) = match table.get(home)?.position(Self::NO_KEY) {
            Some(way) => (home, way),
            None => Self::room_elsewhere(table, home)?,
        };
        Some((table.get_mut(row)?, way))
    }

    /// [`room`](Self::room), where there is none in the row.
    #[cold]
    fn room_elsewhere(table: &mut [Self], home: usize) -> Option<(usize, usize)> {
        table.get_mut(home)?.strays = true;
        let mut rows = table.iter().enumerate();
        rows.find_map(|(at, row)| Some((at, row.position(Self::NO_KEY)?)))
            .or_else(|| Self::oldest(table))
    }

    /// Where the message waits that began first.
    #[cold]
    fn oldest(table: &[Self]) -> Option<(usize, usize)> {
        let rows = table.iter().enumerate();
        let waiting = rows.flat_map(|(at, row)| {
            let used = row.used();
            used.map(move |(way, message)| (message.number, at, way))
        });
        waiting.min().map(|(_, at, way)| (at, way))
    }

    /// Gives the message in slot `way`, if there is one; the slot is free then.
    #[inline]
    fn give<M, F>(
        &mut self,
        way: usize,
        db: &Database<M>,
        counters: &mut ParserCounters,
        sink: &mut F,
    ) where
        M: Deref<Target = [u8]>,
        F: FnMut(&Message<'_>),
    {
        let key = core::mem::replace(&mut self.keys[way % WAYS], Self::NO_KEY);
        if key != Self::NO_KEY {
            self.slots[way % WAYS].give((key >> 16) as u8, db, counters, sink);
        }
    }
}

/// Bit `i` of a mask of words; none beyond the last one.
fn bit(i: usize) -> u8 {
    if i < MAX_WORDS {
        1 << i
    } else {
        0
    }
}

fn key(event: &StringEvent) -> u32 {
    u32::from(event.id) << 16 | u32::from(event.tmsn)
}

/// Makes messages of blocks; `T` is its table, all of whose rows are [free](Row::FREE) in the
/// beginning.
#[derive(Debug)]
pub struct Parser<T> {
    rules: Rules,
    table: T,
    /// Blocks taken.
    blocks: u64,
    /// Messages begun.
    begun: u64,
    /// Which row is looked at next for messages that have waited too long.
    sweep: usize,
    counters: ParserCounters,
}

impl<T: DerefMut<Target = [Row]>> Parser<T> {
    /// A parser for events that follow `rules`.
    pub fn new(rules: Rules, table: T) -> Self {
        Self {
            rules,
            table,
            blocks: 0,
            begun: 0,
            sweep: 0,
            counters: ParserCounters::default(),
        }
    }

    /// What has been counted.
    pub fn counters(&self) -> &ParserCounters {
        &self.counters
    }

    /// Messages that wait for parameters.
    pub fn waiting(&self) -> usize {
        self.table.iter().map(|row| row.used().count()).sum()
    }

    /// Other rules from now on. The table is to be [flushed](Self::flush) before.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// Takes a block, and gives each message that it completes, in this order, to `sink`.
    #[inline]
    pub fn block<M, F>(&mut self, block: &Block, db: &Database<M>, sink: &mut F)
    where
        M: Deref<Target = [u8]>,
        F: FnMut(&Message<'_>),
    {
        self.counters.events += EVENTS as u64;
        self.blocks += 1;
        for timed in block.events(&self.rules) {
            self.event(&timed, db, sink);
        }
        self.sweep(db, sink);
    }

    /// Gives all messages that wait for parameters as incomplete ones, the oldest first, and forgets
    /// what it knows of the database: for when blocks were lost, before the database changes, and at
    /// the end.
    pub fn flush<M, F>(&mut self, db: &Database<M>, sink: &mut F)
    where
        M: Deref<Target = [u8]>,
        F: FnMut(&Message<'_>),
    {
        for row in self.table.iter_mut() {
            row.strings = [None; WAYS];
        }
        for _ in 0..self.table.len() * WAYS {
            let Some((row, way)) = Row::oldest(&self.table) else {
                break;
            };
            if let Some(row) = self.table.get_mut(row) {
                row.give(way, db, &mut self.counters, sink);
            }
        }
    }

    #[inline]
    fn event<M, F>(&mut self, timed: &Timed, db: &Database<M>, sink: &mut F)
    where
        M: Deref<Target = [u8]>,
        F: FnMut(&Message<'_>),
    {
        match timed.event {
            Event::String(event) => {
                self.note(timed, event.lost);
                if event.tdsn == 0 {
                    self.begin(timed, &event, db, sink);
                } else {
                    self.parameter(timed, &event, db, sink);
                }
            }
            Event::Stamp(stamp) => self.counters.unreliable += u64::from(!stamp.reliable),
            Event::Padding => self.counters.padding += 1,
            Event::Other { lost, id } => {
                self.note(timed, lost);
                self.counters.others += 1;
                raw(timed, lost, id, Why::NotAString, sink);
            }
        }
    }

    fn note(&mut self, timed: &Timed, lost: bool) {
        self.counters.lost_bits += u64::from(lost);
        self.counters.untimed += u64::from(timed.time.full().is_none());
    }

    #[inline]
    fn begin<M, F>(&mut self, timed: &Timed, event: &StringEvent, db: &Database<M>, sink: &mut F)
    where
        M: Deref<Target = [u8]>,
        F: FnMut(&Message<'_>),
    {
        let counters = &mut self.counters;
        let table = &mut *self.table;
        let row = Row::of(table.len(), event.param);
        let known = match table.get_mut(row) {
            Some(row) => row.string(event.param, db),
            None => Known::new(event.param, db),
        };
        let key = key(event);
        let home = Row::of(table.len(), key);
        if let Some((row, way)) = Row::find(table, home, key) {
            // The parameters to come would be taken for its own.
            row.give(way, db, counters, sink);
        }
        let Some(known) = known else {
            counters.unknown_strings += 1;
            raw(timed, event.lost, event.id, Why::UnknownString, sink);
            return;
        };
        self.begun += 1;
        let (number, block) = (self.begun, self.blocks);
        // Made where it is to be, not moved there.
        let message = || Waiting {
            place: known.place,
            bad: known.shape.bad,
            // At most seven bits.
            need: ((1_u16 << known.shape.words) - 1) as u8,
            have: 0,
            lost: event.lost,
            words: [0; MAX_WORDS],
            time: timed.time,
            block,
            number,
        };
        let room = if known.shape.words == 0 {
            None
        } else {
            Row::room(table, home)
        };
        match room {
            Some((row, way)) => {
                row.give(way, db, counters, sink);
                row.keys[way % WAYS] = key;
                row.slots[way % WAYS] = message();
            }
            None => message().give(event.id, db, counters, sink),
        }
    }

    #[inline]
    fn parameter<M, F>(
        &mut self,
        timed: &Timed,
        event: &StringEvent,
        db: &Database<M>,
        sink: &mut F,
    ) where
        M: Deref<Target = [u8]>,
        F: FnMut(&Message<'_>),
    {
        let counters = &mut self.counters;
        let key = key(event);
        let at = usize::from(event.tdsn).wrapping_sub(1);
        let bit = bit(at);
        let table = &mut *self.table;
        let home = Row::of(table.len(), key);
        if let Some((row, way)) = Row::find(table, home, key) {
            let slot = &mut row.slots[way % WAYS];
            if slot.need & !slot.have & bit != 0 {
                slot.have |= bit;
                slot.lost |= event.lost;
                if let Some(word) = slot.words.get_mut(at) {
                    *word = event.param;
                }
                if slot.have == slot.need {
                    row.give(way, db, counters, sink);
                }
                return;
            }
            if slot.have & bit != 0 {
                // It has this word: the event is of another message, whose beginning is missing.
                row.give(way, db, counters, sink);
            }
        }
        counters.orphans += 1;
        raw(timed, event.lost, event.id, Why::Orphan, sink);
    }

    /// Gives messages that have waited for too long, in one row after the other.
    fn sweep<M, F>(&mut self, db: &Database<M>, sink: &mut F)
    where
        M: Deref<Target = [u8]>,
        F: FnMut(&Message<'_>),
    {
        let now = self.blocks;
        if let Some(row) = self.table.get_mut(self.sweep) {
            for way in 0..WAYS {
                if now - row.slots[way].block > PATIENCE {
                    row.give(way, db, &mut self.counters, sink);
                }
            }
        }
        self.sweep += 1;
        if self.sweep >= self.table.len() {
            self.sweep = 0;
        }
    }
}

/// Gives one event as it is.
fn raw<F>(timed: &Timed, lost: bool, id: u8, why: Why, sink: &mut F)
where
    F: FnMut(&Message<'_>),
{
    sink(&Message {
        time: timed.time,
        lost,
        id,
        body: Body::Raw {
            word: u64::from_be(timed.word),
            why,
        },
    });
}

#[mlx5_rs_macros::suite(mlx5_rs_tracer_assembly)]
mod tests {
    use super::*;
    use crate::tracer::{
        strings::Section,
        timestamp::Timestamp53, //
    };

    /// Event ids of string traces begin here.
    const ID: u32 = 0x10;

    const STRINGS: &[u8] = b"none\0one %x\0two %d %llx\0bad %s %x\0seven %x%x%x%x%x%x%x\0";
    const NONE: u32 = 0x1000;
    const ONE: u32 = NONE + 5;
    const TWO: u32 = ONE + 7;
    const BAD: u32 = TWO + 12;
    const SEVEN: u32 = BAD + 10;

    /// A string event of message `tmsn`.
    fn string(low: u32, id: u32, tmsn: u32, tdsn: u32, param: u32) -> u64 {
        let w0 = low << 24 | id << 16 | tmsn << 3 | tdsn;
        (u64::from(w0) << 32 | u64::from(param)).to_be()
    }

    fn stamp(time: u32, urts: u32) -> u64 {
        let w0 = time << 24 | 0xff << 16 | urts << 13;
        (u64::from(w0) << 32 | u64::from(time >> 8)).to_be()
    }

    /// The event with its lost bit set.
    fn lost(word: u64) -> u64 {
        word | (1_u64 << 63).to_be()
    }

    fn database() -> Database<&'static [u8]> {
        let mut db = Database::empty();
        let section = Section {
            index: 0,
            base: NONE,
            len: STRINGS.len() as u32,
        };
        db.insert(section, STRINGS);
        db
    }

    /// A block of `events`, padding, and the timestamp 0x1000.
    fn block(events: &[u64]) -> Block {
        let mut block = Block::EMPTY;
        for (to, from) in block.0.iter_mut().zip(events) {
            *to = *from;
        }
        block.0[EVENTS - 1] = stamp(0x1000, 0);
        block
    }

    /// What is to come out: time (below 0x80: the low bits only), lost, event id, text.
    type Want<'a> = (u64, bool, u8, &'a str);

    /// Compares what comes out with `want`, in order; counts errors, since a sink cannot fail.
    struct Sink<'a> {
        want: &'a [Want<'a>],
        errors: usize,
    }

    impl Sink<'_> {
        fn take(&mut self, message: &Message<'_>) {
            let mut buf = [0; 96];
            let mut line = Line::new(&mut buf);
            message.render(&mut line);
            let time = match message.time {
                Time::Full(time) => time.get(),
                Time::Low(low) => u64::from(low),
            };
            let got = (time, message.lost, message.id, line.as_str());
            match self.want.split_first() {
                Some((want, rest)) if *want == got => self.want = rest,
                _ => self.errors += 1,
            }
        }

        fn is_satisfied(&self) -> bool {
            self.want.is_empty() && self.errors == 0
        }
    }

    /// Whether `blocks`, and a flush behind them, give what is wanted.
    fn gives(parser: &mut Parser<&mut [Row]>, blocks: &[Block], want: &[Want<'_>]) -> bool {
        let db = database();
        let mut sink = Sink { want, errors: 0 };
        for block in blocks {
            parser.block(block, &db, &mut |message: &Message<'_>| sink.take(message));
        }
        parser.flush(&db, &mut |message: &Message<'_>| sink.take(message));
        sink.is_satisfied()
    }

    const RULES: Rules = Rules::new(0, ID as u8, 8);

    #[test]
    fn whole_messages() {
        let mut table = [Row::FREE; 2];
        let mut parser = Parser::new(RULES, &mut table[..]);
        let events = [
            string(1, ID, 7, 0, NONE),
            string(2, ID, 8, 0, ONE),
            string(3, ID, 8, 1, 0xab),
            lost(string(4, ID + 7, 8, 0, TWO)),
            string(5, ID + 7, 8, 1, 0xffff_ffff),
            string(6, ID + 7, 8, 2, 1),
            string(7, ID + 7, 8, 3, 2),
            string(8, ID, 9, 0, SEVEN),
            // In any order.
            string(9, ID, 9, 7, 7),
            string(9, ID, 9, 6, 6),
            string(9, ID, 9, 5, 5),
            string(9, ID, 9, 4, 4),
            string(9, ID, 9, 3, 3),
            string(9, ID, 9, 2, 2),
            lost(string(9, ID, 9, 1, 1)),
        ];
        assert!(gives(
            &mut parser,
            &[block(&events)],
            &[
                (0xf81, false, 0x10, "none"),
                (0xf82, false, 0x10, "one ab"),
                (0xf84, true, 0x17, "two -1 100000002"),
                (0xf88, true, 0x10, "seven 1234567"),
            ],
        ));
        let counters = parser.counters();
        assert_eq!((counters.events, counters.padding), (32, 16));
        assert_eq!((counters.messages, counters.lost_bits), (4, 2));
        assert_eq!((counters.incomplete, counters.orphans), (0, 0));
    }

    #[test]
    fn interleaved_messages_across_blocks() {
        let mut table = [Row::FREE; 2];
        let mut parser = Parser::new(RULES, &mut table[..]);
        let first = block(&[
            string(1, ID, 1, 0, ONE),
            string(2, ID + 1, 1, 0, ONE),
            string(3, ID, 2, 0, TWO),
            string(4, ID, 2, 1, 1),
        ]);
        let second = block(&[
            string(5, ID + 1, 1, 1, 0xb),
            string(6, ID, 2, 2, 0),
            string(7, ID, 1, 1, 0xa),
            string(8, ID, 2, 3, 3),
        ]);
        assert!(gives(
            &mut parser,
            &[first, second],
            &[
                (0xf82, false, 0x11, "one b"),
                (0xf81, false, 0x10, "one a"),
                (0xf83, false, 0x10, "two 1 3"),
            ],
        ));
    }

    #[test]
    fn bad_formats_keep_their_words() {
        let mut table = [Row::FREE; 2];
        let mut parser = Parser::new(RULES, &mut table[..]);
        let events = [
            string(1, ID, 1, 0, BAD),
            string(2, ID, 1, 1, 0xdead),
            string(3, ID, 1, 2, 5),
        ];
        let want = "BAD_FORMAT: bad %s %x 0x0000dead 0x00000005";
        assert!(gives(
            &mut parser,
            &[block(&events)],
            &[(0xf81, false, 0x10, want)],
        ));
        assert_eq!(parser.counters().bad_formats, 1);
    }

    #[test]
    fn what_does_not_fit_is_shown_raw() {
        let mut table = [Row::FREE; 2];
        let mut parser = Parser::new(RULES, &mut table[..]);
        let events = [
            // No beginning; no string; not a string trace; a word too many.
            string(1, ID, 1, 3, 0x1234),
            string(2, ID, 2, 0, 0x999),
            lost(string(3, ID + 8, 3, 0, NONE)),
            string(4, ID, 4, 0, ONE),
            string(5, ID, 4, 2, 9),
            string(6, ID, 4, 1, 8),
        ];
        assert!(gives(
            &mut parser,
            &[block(&events)],
            &[
                (0xf81, false, 0x10, "0x0110000b00001234"),
                (0xf82, false, 0x10, "0x0210001000000999"),
                (0xf83, true, 0x18, "0x8318001800001000"),
                (0xf85, false, 0x10, "0x0510002200000009"),
                (0xf84, false, 0x10, "one 8"),
            ],
        ));
        let counters = parser.counters();
        assert_eq!((counters.orphans, counters.unknown_strings), (2, 1));
        assert_eq!((counters.others, counters.messages), (1, 1));
    }

    #[test]
    fn lost_parameters_are_not_made_up() {
        let mut table = [Row::FREE; 2];
        let mut parser = Parser::new(RULES, &mut table[..]);
        let events = [
            // Its second word is missing; upstream takes the third for it.
            string(1, ID, 1, 0, TWO),
            string(2, ID, 1, 1, 1),
            string(3, ID, 1, 3, 3),
            // The same number again, before the old message is complete.
            string(4, ID, 1, 0, ONE),
            string(5, ID, 1, 1, 4),
            // A word that is there already: of another message.
            string(6, ID, 2, 0, TWO),
            string(7, ID, 2, 1, 1),
            string(8, ID, 2, 1, 1),
            string(9, ID, 2, 2, 1),
            // Never completed.
            string(10, ID, 3, 0, ONE),
        ];
        assert!(gives(
            &mut parser,
            &[block(&events)],
            &[
                (
                    0xf81,
                    false,
                    0x10,
                    "INCOMPLETE: two %d %llx 0x00000001 ? 0x00000003"
                ),
                (0xf84, false, 0x10, "one 4"),
                (0xf86, false, 0x10, "INCOMPLETE: two %d %llx 0x00000001 ? ?"),
                (0xf88, false, 0x10, "0x0810001100000001"),
                (0xf89, false, 0x10, "0x0910001200000001"),
                (0xf8a, false, 0x10, "INCOMPLETE: one %x ?"),
            ],
        ));
        assert_eq!(parser.counters().incomplete, 3);
    }

    #[test]
    fn the_table_is_bounded() {
        // One row: a fifth message takes the place of the oldest.
        let mut table = [Row::FREE; 1];
        let mut parser = Parser::new(RULES, &mut table[..]);
        let mut events = [0; 7];
        for (i, event) in events.iter_mut().take(5).enumerate() {
            *event = string(i as u32, ID, i as u32, 0, ONE);
        }
        events[5] = string(5, ID, 0, 1, 5);
        events[6] = string(6, ID, 4, 1, 6);
        assert!(gives(
            &mut parser,
            &[block(&events)],
            &[
                (0xf80, false, 0x10, "INCOMPLETE: one %x ?"),
                (0xf85, false, 0x10, "0x0510000100000005"),
                (0xf84, false, 0x10, "one 6"),
                (0xf81, false, 0x10, "INCOMPLETE: one %x ?"),
                (0xf82, false, 0x10, "INCOMPLETE: one %x ?"),
                (0xf83, false, 0x10, "INCOMPLETE: one %x ?"),
            ],
        ));
        assert_eq!(parser.waiting(), 0);
        // Of all rows, not of its own only, it is the oldest that goes.
        let mut table = [Row::FREE; 2];
        let mut parser = Parser::new(RULES, &mut table[..]);
        let mut events = [0; 10];
        for (i, event) in events.iter_mut().take(9).enumerate() {
            *event = string(i as u32, ID, i as u32, 0, ONE);
        }
        events[9] = string(9, ID, 8, 1, 7);
        assert!(gives(
            &mut parser,
            &[block(&events)],
            &[
                (0xf80, false, 0x10, "INCOMPLETE: one %x ?"),
                (0xf88, false, 0x10, "one 7"),
                (0xf81, false, 0x10, "INCOMPLETE: one %x ?"),
                (0xf82, false, 0x10, "INCOMPLETE: one %x ?"),
                (0xf83, false, 0x10, "INCOMPLETE: one %x ?"),
                (0xf84, false, 0x10, "INCOMPLETE: one %x ?"),
                (0xf85, false, 0x10, "INCOMPLETE: one %x ?"),
                (0xf86, false, 0x10, "INCOMPLETE: one %x ?"),
                (0xf87, false, 0x10, "INCOMPLETE: one %x ?"),
            ],
        ));
        // No table at all.
        let mut parser = Parser::new(RULES, &mut [][..]);
        assert!(gives(
            &mut parser,
            &[block(&[string(1, ID, 1, 0, ONE), string(2, ID, 1, 1, 0)])],
            &[
                (0xf81, false, 0x10, "INCOMPLETE: one %x ?"),
                (0xf82, false, 0x10, "0x0210000900000000"),
            ],
        ));
    }

    #[test]
    fn every_slot_is_for_every_message() {
        // Message numbers of one row only, as many as there are slots in all.
        let mut table = [Row::FREE; 4];
        let all = table.len() * WAYS;
        let mut parser = Parser::new(RULES, &mut table[..]);
        let home = |tmsn: u32| Row::of(4, ID << 16 | tmsn);
        let mut numbers = [0; 16];
        let same = (0..0x2000).filter(|tmsn| home(*tmsn) == home(0));
        for (number, tmsn) in numbers.iter_mut().zip(same) {
            *number = tmsn;
        }
        assert_eq!(numbers.len(), all);
        let db = database();
        // Again and again, so that nothing is left of those that have gone.
        for round in 0..3 {
            let mut texts = 0;
            let mut events = [0; 16];
            for (event, tmsn) in events.iter_mut().zip(numbers) {
                *event = string(0, ID, tmsn, 0, ONE);
            }
            parser.block(&block(&events), &db, &mut |_| texts += 1);
            assert_eq!((texts, parser.waiting()), (0, all));
            // They end in another order.
            for (event, tmsn) in events.iter_mut().zip(numbers.iter().rev()) {
                *event = string(0, ID, *tmsn, 1, round);
            }
            parser.block(&block(&events), &db, &mut |message: &Message<'_>| {
                texts += u32::from(matches!(message.body, Body::Text { .. }));
            });
            assert_eq!((texts, parser.waiting()), (16, 0));
            assert_eq!(parser.counters().incomplete, 0);
        }
        // The last word that was looked for in vain has found nobody, too.
        parser.block(&block(&[string(0, ID, 0, 1, 0)]), &db, &mut |_| ());
        assert!(parser.table.iter().all(|row| !row.strays));
    }

    #[test]
    fn patience_ends() {
        let mut table = [Row::FREE; 2];
        let mut parser = Parser::new(RULES, &mut table[..]);
        let db = database();
        let mut given = 0;
        parser.block(&block(&[string(1, ID, 1, 0, ONE)]), &db, &mut |_| {
            given += 1
        });
        for _ in 0..PATIENCE {
            parser.block(&block(&[]), &db, &mut |_| given += 1);
        }
        assert_eq!((given, parser.waiting()), (0, 1));
        for _ in 0..2 {
            parser.block(&block(&[]), &db, &mut |_| given += 1);
        }
        assert_eq!((given, parser.waiting()), (1, 0));
    }

    #[test]
    fn unreliable_times() {
        let mut table = [Row::FREE; 2];
        let mut parser = Parser::new(RULES, &mut table[..]);
        let events = [
            string(0x11, ID, 1, 0, ONE),
            stamp(0x500, 4),
            // The time is that of the first event.
            string(0x12, ID, 1, 1, 1),
            string(0x13, ID, 2, 0, NONE),
        ];
        assert!(gives(
            &mut parser,
            &[block(&events)],
            &[(0x11, false, 0x10, "one 1"), (0xf93, false, 0x10, "none"),],
        ));
        assert_eq!(parser.counters().untimed, 1);
        assert_eq!(parser.counters().unreliable, 1);
        assert_eq!(
            Time::Full(Timestamp53::new(5)).full(),
            Some(Timestamp53::new(5))
        );
    }
}
