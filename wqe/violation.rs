// SPDX-License-Identifier: GPL-2.0

//! What is wrong with a WQE: the segment, the place, the field, the value, and what it should be.

use core::fmt;

use super::segment::Segment;
use crate::layouts::{
    bits::Overflow,
    Field, //
};

/// What a field should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// This number.
    Exactly(u64),
    /// This number or a smaller one.
    AtMost(u64),
    /// A number from the first to the second.
    Between(u64, u64),
    /// A multiple of this number.
    MultipleOf(u64),
    /// Allowed only with this capability of the device.
    Capability(&'static str),
    /// What the text says.
    Rule(&'static str),
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(value) => write!(f, "{value:#x}"),
            Self::AtMost(value) => write!(f, "at most {value:#x}"),
            Self::Between(first, last) => write!(f, "{first:#x} to {last:#x}"),
            Self::MultipleOf(unit) => write!(f, "a multiple of {unit:#x}"),
            Self::Capability(name) => write!(f, "the capability {name}"),
            Self::Rule(text) => write!(f, "{text}"),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The segment.
    pub segment: Segment,
    /// Byte offset of the field: in the WQE, or in its segment if the value was refused before it had
    /// a place in one.
    pub offset: usize,
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// What it should be.
    pub expected: Expected,
}

impl Violation {
    /// `field`, which is in a segment that begins at byte `start`, has a wrong value.
    #[cold]
    #[inline(never)]
    pub(super) fn at(
        segment: Segment,
        start: usize,
        field: Field,
        value: u64,
        expected: Expected,
    ) -> Self {
        Self {
            segment,
            offset: start + field.offset / 8,
            field: field.name,
            value,
            expected,
        }
    }

    /// The same for a value that has no place yet.
    #[cold]
    pub(super) fn of(segment: Segment, field: Field, value: u64, expected: Expected) -> Self {
        Self::at(segment, 0, field, value, expected)
    }

    /// The value does not fit the field.
    #[cold]
    pub(super) fn overflow(segment: Segment, overflow: Overflow) -> Self {
        let field = overflow.field;
        Self::of(
            segment,
            field,
            overflow.value,
            Expected::AtMost(field.max()),
        )
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{} at byte {:#x} is {:#x}, expected {}",
            self.segment.name(),
            self.field,
            self.offset,
            self.value,
            self.expected
        )
    }
}

impl core::error::Error for Violation {}

// The kernel's printing macros want a trait of their own.
#[cfg(CONFIG_RUST = "y")]
impl kernel::fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a WQE was not put in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not a legal one.
    Invalid(Violation),
    /// It is longer than the room in the queue; it fits once earlier ones are done.
    Full {
        /// Basic blocks that it needs.
        needed: usize,
        /// Basic blocks that are free.
        free: usize,
    },
}

impl From<Violation> for Refusal {
    fn from(violation: Violation) -> Self {
        Self::Invalid(violation)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(violation) => violation.fmt(f),
            Self::Full { needed, free } => {
                write!(f, "the WQE needs {needed} basic blocks, {free} are free")
            }
        }
    }
}

impl core::error::Error for Refusal {}

#[cfg(CONFIG_RUST = "y")]
impl kernel::fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
