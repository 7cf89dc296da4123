/* SPDX-License-Identifier: GPL-2.0 */
/* What the benches build; src/bench.rs has the same structures. */

#ifndef BENCH_H
#define BENCH_H

#include <stdint.h>

/* What is built. */
enum {
	BENCH_SEND,
	BENCH_WRITE_INLINE,
	BENCH_DATAGRAM,
	BENCH_COMPARE_SWAP,
	BENCH_UMR,
};

struct bench_klm {
	uint64_t addr;
	uint32_t key;
	uint32_t byte_count;
};

/* One WQE. */
struct bench_work {
	uint64_t addr;
	uint64_t result;
	uint64_t compare;
	uint64_t swap;
	uint32_t length;
	uint32_t lkey;
	uint32_t rkey;
	uint32_t peer;
	uint32_t mkey;
	uint32_t inline_length;
	const uint8_t *data;
	uint32_t klms;
	uint32_t grh_gid_fl;
	const struct bench_klm *list;
	uint16_t rlid;
	uint8_t stat_rate_sl;
	uint8_t fl_mlid;
	uint8_t tclass;
	uint8_t hop_limit;
	uint8_t rmac[6];
	uint8_t rgid[16];
};

/* A queue and what to put in it; the provider has its own queue. */
struct bench {
	void *ring;
	uint32_t blocks;
	uint32_t qpn;
	const struct bench_work *work;
};

#endif
