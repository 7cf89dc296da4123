// SPDX-License-Identifier: GPL-2.0

//! Property tests of the driver's pure files: whatever the device sends, and whatever the order of
//! events, these hold.

mod caps;
mod eq;
mod health;
mod layouts;
mod pages;
mod segment;
mod slots;
mod tracer;
mod wire;
mod wqe;
