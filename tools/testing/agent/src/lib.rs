// SPDX-License-Identifier: GPL-2.0
//! What the command agent in the test guest and the harness on the host say to
//! each other. The binary `mlx5-agent` is the guest side; the crate `mlx5-vm`
//! holds the host side.

pub mod frame;
pub mod proto;
