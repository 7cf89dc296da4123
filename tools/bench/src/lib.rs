// SPDX-License-Identifier: GPL-2.0

//! What the benches compare with, and on what.

pub mod corpus;
pub mod ours;
pub mod upstream;
