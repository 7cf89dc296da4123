// SPDX-License-Identifier: GPL-2.0

//! The firmware tracer (hardware.md 4).
//!
//! Lives here: everything from the tracer's registers to its messages. So far these are the pure
//! parts, which need `core` only and are tested on the host as well:
//!
//! ```text
//!   MTRC_CAP -> capability --> rules, buffer size, sections of strings
//!                                |
//!   buffer --> block::Reader --> assembly::Parser --> Message::render --> a line of text
//!                (blocks, gaps)    (events, strings)     (format)
//!
//!   ownership: when to ask for the tracer    pace: when to read, and how much
//! ```
//!
//! [`drain`] drives reader and parser. All is written for hostile input: memory that changes at any
//! time to anything, strings and numbers of any kind. Nothing panics, loops without a bound, or
//! allocates.

pub(crate) mod assembly;
pub(crate) mod block;
pub(crate) mod capability;
pub(crate) mod drain;
pub(crate) mod event;
pub(crate) mod format;
pub(crate) mod ownership;
pub(crate) mod pace;
pub(crate) mod strings;
pub(crate) mod timestamp;
