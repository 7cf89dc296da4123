// SPDX-License-Identifier: GPL-2.0

//! rdma-core's builders of WQEs, to compare the project's with.
//!
//! - [`dv`]: the inline helpers and structures of its public header `infiniband/mlx5dv.h`.
//! - [`provider`]: the mlx5 provider itself, `qp.c` and `mlx5_create_ah` of `verbs.c`, compiled from
//!   its source, with a queue pair that no kernel has made.
//!
//! Nothing of rdma-core is kept in the project: `make` fetches it (see `tools/xtask`), and the
//! environment variable `MLX5RS_RDMA_CORE` names the folder at build time.
//!
//! `tests/` builds the same WQEs both ways over random parameters; `benches/` measures both.

pub mod bench;
pub mod dv;
pub mod provider;
