// SPDX-License-Identifier: GPL-2.0

//! Control socket: a test asks and steers the device here.
//!
//! - [`request`]: lines into verbs and values.
//! - [`types`]: replies, as the model writes and a client reads them.
//! - [`verbs`]: what the verbs do; `trace` has that of the tracer.
//! - [`server`]: the socket and its clients.
//! - [`client`]: a typed client for tests.
//!
//! The protocol is described in docs/model-control.md.

pub mod client;
pub mod request;
pub mod server;
mod trace;
pub mod types;
pub mod verbs;
