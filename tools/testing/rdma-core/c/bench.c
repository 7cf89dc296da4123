// SPDX-License-Identifier: GPL-2.0
/*
 * Batches of WQEs by the helpers of infiniband/mlx5dv.h, for benches: as a user of
 * mlx5dv writes them, who looks whether there is room and checks nothing else. No WQE
 * wraps: their lengths divide the queue.
 *
 * Compiled twice, the second time with the x86 forms of the helpers.
 */

#include <infiniband/mlx5dv.h>
#include "bench.h"

#ifdef X86
#define NAME(name) bench_x86_##name
#define set_ctrl mlx5dv_x86_set_ctrl_seg
#define set_data mlx5dv_x86_set_data_seg
#else
#define NAME(name) bench_##name
#define set_ctrl mlx5dv_set_ctrl_seg
#define set_data mlx5dv_set_data_seg
#endif

#define SIGNALED MLX5_WQE_CTRL_CQ_UPDATE

static inline void *wqe_at(const struct bench *b, uint16_t pi)
{
	return (char *)b->ring + (pi & (b->blocks - 1)) * MLX5_SEND_WQE_BB;
}

/* Whether so many blocks are free; the device is done up to `ci`. */
static inline int has_room(const struct bench *b, uint16_t pi, uint16_t ci, uint32_t blocks)
{
	return (uint16_t)(pi - ci) + blocks <= b->blocks;
}

static inline void set_raddr(struct mlx5_wqe_raddr_seg *seg, uint64_t addr, uint32_t rkey)
{
	seg->raddr = htobe64(addr);
	seg->rkey = htobe32(rkey);
	seg->reserved = 0;
}

uint16_t NAME(send)(const struct bench *b, uint16_t pi, uint32_t count)
{
	uint16_t ci = pi;

	for (uint32_t i = 0; i < count; i++) {
		const struct bench_work *w = &b->work[i];
		char *wqe = wqe_at(b, pi);

		if (!has_room(b, pi, ci, 1))
			return pi;
		set_ctrl((void *)wqe, pi, MLX5_OPCODE_SEND, 0, b->qpn, SIGNALED, 2, 0, 0);
		set_data((void *)(wqe + 16), w->length, w->lkey, w->addr);
		pi += 1;
	}
	return pi;
}

uint16_t NAME(write_inline)(const struct bench *b, uint16_t pi, uint32_t count)
{
	uint16_t ci = pi;

	for (uint32_t i = 0; i < count; i++) {
		const struct bench_work *w = &b->work[i];
		char *wqe = wqe_at(b, pi);
		struct mlx5_wqe_inl_data_seg *head = (void *)(wqe + 32);
		uint8_t ds = 2 + (w->inline_length + 4 + 15) / 16;

		if (!has_room(b, pi, ci, (ds + 3) / 4))
			return pi;
		set_ctrl((void *)wqe, pi, MLX5_OPCODE_RDMA_WRITE, 0, b->qpn, SIGNALED, ds, 0, 0);
		set_raddr((void *)(wqe + 16), w->addr, w->rkey);
		head->byte_count = htobe32(w->inline_length | MLX5_INLINE_SEG);
		memcpy(head + 1, w->data, w->inline_length);
		pi += (ds + 3) / 4;
	}
	return pi;
}

uint16_t NAME(datagram)(const struct bench *b, uint16_t pi, uint32_t count)
{
	uint16_t ci = pi;

	for (uint32_t i = 0; i < count; i++) {
		const struct bench_work *w = &b->work[i];
		char *wqe = wqe_at(b, pi);

		if (!has_room(b, pi, ci, 2))
			return pi;
		set_ctrl((void *)wqe, pi, MLX5_OPCODE_SEND, 0, b->qpn, SIGNALED, 5, 0, 0);
		mlx5dv_set_dgram_seg((void *)(wqe + 16), (uint64_t)w->rkey << 32, w->peer, 1,
				     w->stat_rate_sl, w->fl_mlid, w->rlid, (uint8_t *)w->rmac,
				     w->tclass, w->hop_limit, w->grh_gid_fl, (uint8_t *)w->rgid);
		set_data((void *)(wqe + 64), w->length, w->lkey, w->addr);
		pi += 2;
	}
	return pi;
}

uint16_t NAME(compare_swap)(const struct bench *b, uint16_t pi, uint32_t count)
{
	uint16_t ci = pi;

	for (uint32_t i = 0; i < count; i++) {
		const struct bench_work *w = &b->work[i];
		char *wqe = wqe_at(b, pi);
		struct mlx5_wqe_atomic_seg *atomic = (void *)(wqe + 32);

		if (!has_room(b, pi, ci, 1))
			return pi;
		set_ctrl((void *)wqe, pi, MLX5_OPCODE_ATOMIC_CS, 0, b->qpn, SIGNALED, 4, 0, 0);
		set_raddr((void *)(wqe + 16), w->addr, w->rkey);
		atomic->swap_add = htobe64(w->swap);
		atomic->compare = htobe64(w->compare);
		set_data((void *)(wqe + 48), 8, w->lkey, w->result);
		pi += 1;
	}
	return pi;
}

uint16_t NAME(umr)(const struct bench *b, uint16_t pi, uint32_t count)
{
	uint16_t ci = pi;

	for (uint32_t i = 0; i < count; i++) {
		const struct bench_work *w = &b->work[i];
		char *wqe = wqe_at(b, pi);
		struct mlx5_wqe_umr_ctrl_seg *ctrl = (void *)(wqe + 16);
		struct mlx5_wqe_mkey_context_seg *mkey = (void *)(wqe + 64);
		struct mlx5_wqe_umr_klm_seg *klm = (void *)(wqe + 128);
		uint32_t octowords = (w->klms + 3) & ~3u;
		uint8_t ds = 8 + octowords;

		if (!has_room(b, pi, ci, (ds + 3) / 4))
			return pi;
		set_ctrl((void *)wqe, pi, MLX5_OPCODE_UMR, 0, b->qpn, SIGNALED, ds, 0,
			 htobe32(w->mkey));
		memset(ctrl, 0, sizeof(*ctrl));
		ctrl->flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE;
		ctrl->klm_octowords = htobe16(octowords);
		ctrl->mkey_mask = htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN |
					  MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR |
					  MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE);
		memset(mkey, 0, sizeof(*mkey));
		mkey->start_addr = htobe64(w->addr);
		mkey->len = htobe64(w->length);
		for (uint32_t k = 0; k < w->klms; k++) {
			klm[k].byte_count = htobe32(w->list[k].byte_count);
			klm[k].mkey = htobe32(w->list[k].key);
			klm[k].address = htobe64(w->list[k].addr);
		}
		memset(klm + w->klms, 0, (octowords - w->klms) * sizeof(*klm));
		pi += (ds + 3) / 4;
	}
	return pi;
}
