/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events of the firmware tracer.
 *
 * mlx5:mlx5_fw has name, fields and form of the kernel's own driver: tools that
 * read its lines, such as mstfwtrace, read these too (field case C33).
 */

#undef TRACE_SYSTEM
#define TRACE_SYSTEM mlx5

#if !defined(_MLX5_RS_FW_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _MLX5_RS_FW_TRACE_H

#include <linux/tracepoint.h>

/* A message of firmware; the text has len bytes of printable ASCII. */
TRACE_EVENT(mlx5_fw,
	TP_PROTO(const char *dev, u64 trace_timestamp, bool lost, u8 event_id,
		 const char *text, unsigned int len),
	TP_ARGS(dev, trace_timestamp, lost, event_id, text, len),
	TP_STRUCT__entry(
		__string(dev_name, dev)
		__field(u64, trace_timestamp)
		__field(bool, lost)
		__field(u8, event_id)
		__string_len(msg, text, len)
	),
	TP_fast_assign(
		__assign_str(dev_name);
		__entry->trace_timestamp = trace_timestamp;
		__entry->lost = lost;
		__entry->event_id = event_id;
		__assign_str(msg);
	),
	TP_printk("%s [0x%llx] %d [0x%x] %s", __get_str(dev_name),
		  __entry->trace_timestamp, __entry->lost, __entry->event_id,
		  __get_str(msg))
);

/* Blocks of messages that were lost before this time. */
TRACE_EVENT(mlx5_fw_gap,
	TP_PROTO(const char *dev, u64 trace_timestamp, u64 blocks, u64 torn),
	TP_ARGS(dev, trace_timestamp, blocks, torn),
	TP_STRUCT__entry(
		__string(dev_name, dev)
		__field(u64, trace_timestamp)
		__field(u64, blocks)
		__field(u64, torn)
	),
	TP_fast_assign(
		__assign_str(dev_name);
		__entry->trace_timestamp = trace_timestamp;
		__entry->blocks = blocks;
		__entry->torn = torn;
	),
	TP_printk("%s [0x%llx] gap blocks=%llu torn=%llu", __get_str(dev_name),
		  __entry->trace_timestamp, __entry->blocks, __entry->torn)
);

#endif /* _MLX5_RS_FW_TRACE_H */

#undef TRACE_INCLUDE_PATH
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_PATH .
#define TRACE_INCLUDE_FILE fw_trace
#include <trace/define_trace.h>
