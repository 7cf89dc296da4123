// SPDX-License-Identifier: GPL-2.0
/*
 * Trace events for kapi/trace.rs: the macros that make them are C's.
 */

#define CREATE_TRACE_POINTS
#include "fw_trace.h"

void mlx5_rs_trace_fw(const char *dev, u64 time, bool lost, u8 id,
		      const char *text, unsigned int len);
void mlx5_rs_trace_fw_gap(const char *dev, u64 time, u64 blocks, u64 torn);

void mlx5_rs_trace_fw(const char *dev, u64 time, bool lost, u8 id,
		      const char *text, unsigned int len)
{
	trace_mlx5_fw(dev, time, lost, id, text, len);
}

void mlx5_rs_trace_fw_gap(const char *dev, u64 time, u64 blocks, u64 torn)
{
	trace_mlx5_fw_gap(dev, time, blocks, torn);
}
