/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What Rust and C tell one another; src/provider.rs has the same structures.
 */

#ifndef PROVIDER_H
#define PROVIDER_H

#include <stddef.h>
#include <stdint.h>

struct rc_address {
	uint8_t ethernet;
	uint8_t udp;
	uint8_t global;
	uint8_t sl;
	uint8_t path_bits;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t tclass;
	uint32_t flow_label;
	uint16_t dlid;
	uint8_t mac[6];
	uint8_t dgid[16];
};

/* Kinds of queue pair. */
enum {
	RC_RC,
	RC_UC,
	RC_UD,
	RC_UD_UNDERLAY,
	RC_XRC,
	RC_DCI,
	RC_RAW,
};

struct rc_config {
	uint32_t kind;
	uint32_t qpn;
	/* Number of basic blocks. */
	uint32_t blocks;
	/* Where the producer counter begins. */
	uint32_t pi;
	uint32_t signature;
	/* Bytes of a packet that must be in the WQE: 0 or 18. */
	uint32_t min_inline;
};

/* Operations. */
enum {
	RC_SEND,
	RC_SEND_IMM,
	RC_SEND_INVAL,
	RC_WRITE,
	RC_WRITE_IMM,
	RC_READ,
	RC_COMPARE_SWAP,
	RC_FETCH_ADD,
	RC_TSO,
	RC_BIND,
	RC_LOCAL_INVAL,
	RC_MR_LIST,
	RC_MR_INTERLEAVED,
	RC_SIGNATURE,
	RC_RAW_WQE,
};

/* Flags. */
enum {
	RC_SIGNALED = 1 << 0,
	RC_SOLICITED = 1 << 1,
	RC_FENCE = 1 << 2,
	RC_INLINE = 1 << 3,
	RC_CHECKSUMS = 1 << 4,
	/* The calls of struct ibv_qp_ex, not ibv_post_send. */
	RC_EXTENDED = 1 << 5,
	/* By a list, also if there is one entry. */
	RC_LIST = 1 << 6,
};

struct rc_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct rc_stride {
	uint64_t addr;
	uint32_t bytes_count;
	uint32_t bytes_skip;
	uint32_t lkey;
};

/* T10-DIF of one domain. */
struct rc_dif {
	uint32_t there;
	/* enum mlx5dv_block_size */
	uint32_t block_size;
	uint32_t psv;
	/* 0 CRC, 1 checksum. */
	uint32_t type;
	uint16_t bg;
	uint16_t app_tag;
	uint32_t ref_tag;
	/* MLX5DV_SIG_T10DIF_FLAG_* */
	uint32_t flags;
};

struct rc_work {
	uint32_t op;
	uint32_t flags;
	/* Immediate data, or key to invalidate. */
	uint32_t general_id;
	uint32_t rkey;
	uint64_t remote_addr;
	uint64_t compare_add;
	uint64_t swap;
	const struct rc_sge *sge;
	uint32_t sges;
	/* Queue pair, DC target or shared receive queue of the peer. */
	uint32_t peer;
	uint64_t peer_key;
	uint32_t stream;
	uint8_t av[48];
	uint32_t mss;
	const uint8_t *header;
	uint32_t header_size;
	/* Memory windows and memory keys. */
	uint32_t mw_type;
	uint32_t mkey;
	uint32_t new_rkey;
	/* IBV_ACCESS_* */
	uint32_t access;
	uint32_t mr_lkey;
	uint64_t mw_addr;
	uint64_t mw_length;
	const struct rc_stride *strides;
	uint32_t stride_count;
	uint32_t repeat;
	uint32_t check_mask;
	struct rc_dif mem;
	struct rc_dif wire;
	const void *wqe;
};

/* What the queue pair is like after the call. */
struct rc_posted {
	uint32_t pi;
	uint32_t doorbell_record;
	uint8_t doorbell[8];
};

#endif
