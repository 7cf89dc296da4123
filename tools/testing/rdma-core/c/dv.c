// SPDX-License-Identifier: GPL-2.0
/*
 * What users of rdma-core's public header build WQEs with: its inline helpers, and
 * assignments to its structures where it has no helper. One function per segment.
 */

#include <infiniband/mlx5dv.h>

#ifndef __SSE3__
#error "the x86 forms of the helpers need -mssse3"
#endif

void dv_ctrl(void *seg, uint16_t pi, uint8_t opcode, uint8_t opmod, uint32_t qpn,
	     uint8_t fm_ce_se, uint8_t ds, uint8_t signature, uint32_t imm)
{
	mlx5dv_set_ctrl_seg(seg, pi, opcode, opmod, qpn, fm_ce_se, ds, signature,
			    htobe32(imm));
}

void dv_x86_ctrl(void *seg, uint16_t pi, uint8_t opcode, uint8_t opmod, uint32_t qpn,
		 uint8_t fm_ce_se, uint8_t ds, uint8_t signature, uint32_t imm)
{
	mlx5dv_x86_set_ctrl_seg(seg, pi, opcode, opmod, qpn, fm_ce_se, ds, signature,
				htobe32(imm));
}

void dv_data(void *seg, uint32_t length, uint32_t lkey, uint64_t addr)
{
	mlx5dv_set_data_seg(seg, length, lkey, addr);
}

void dv_x86_data(void *seg, uint32_t length, uint32_t lkey, uint64_t addr)
{
	mlx5dv_x86_set_data_seg(seg, length, lkey, addr);
}

void dv_dgram(void *seg, uint64_t key, uint32_t dqp_dct, uint8_t ext, uint8_t stat_rate_sl,
	      uint8_t fl_mlid, uint16_t rlid, const uint8_t *rmac, uint8_t tclass,
	      uint8_t hop_limit, uint32_t grh_gid_fl, const uint8_t *rgid)
{
	mlx5dv_set_dgram_seg(seg, key, dqp_dct, ext, stat_rate_sl, fl_mlid, rlid,
			     (uint8_t *)rmac, tclass, hop_limit, grh_gid_fl, (uint8_t *)rgid);
}

/* The helper copies the whole header, beyond the structure where it is longer. */
void dv_eth(void *seg, uint8_t cs_flags, uint16_t mss, uint16_t size, const uint8_t *header)
{
	struct mlx5_wqe_eth_seg *eth = seg;

	mlx5dv_set_eth_seg(eth, cs_flags, mss, 0, (uint8_t *)header);
	eth->inline_hdr_sz = htobe16(size);
	memcpy((uint8_t *)seg + offsetof(struct mlx5_wqe_eth_seg, inline_hdr_start), header, size);
}

void dv_raddr(void *seg, uint64_t raddr, uint32_t rkey)
{
	struct mlx5_wqe_raddr_seg *remote = seg;

	remote->raddr = htobe64(raddr);
	remote->rkey = htobe32(rkey);
	remote->reserved = 0;
}

void dv_atomic(void *seg, uint64_t swap_add, uint64_t compare)
{
	struct mlx5_wqe_atomic_seg *atomic = seg;

	atomic->swap_add = htobe64(swap_add);
	atomic->compare = htobe64(compare);
}

void dv_inline(void *seg, const void *data, uint32_t len)
{
	struct mlx5_wqe_inl_data_seg *head = seg;

	head->byte_count = htobe32(len | MLX5_INLINE_SEG);
	memcpy(head + 1, data, len);
}

void dv_umr_ctrl(void *seg, uint8_t flags, uint16_t klm_octowords, uint16_t bsf_octowords,
		 uint64_t mkey_mask)
{
	struct mlx5_wqe_umr_ctrl_seg *ctrl = seg;

	memset(ctrl, 0, sizeof(*ctrl));
	ctrl->flags = flags;
	ctrl->klm_octowords = htobe16(klm_octowords);
	ctrl->bsf_octowords = htobe16(bsf_octowords);
	ctrl->mkey_mask = htobe64(mkey_mask);
}

void dv_mkey(void *seg, uint8_t status, uint8_t access_flags, uint32_t qpn_mkey,
	     uint32_t flags_pd, uint64_t start_addr, uint64_t len, uint32_t bsf_octowords,
	     uint32_t translations_octowords, uint8_t log_page_size)
{
	struct mlx5_wqe_mkey_context_seg *mkey = seg;

	memset(mkey, 0, sizeof(*mkey));
	mkey->free = status;
	mkey->access_flags = access_flags;
	mkey->qpn_mkey = htobe32(qpn_mkey);
	mkey->flags_pd = htobe32(flags_pd);
	mkey->start_addr = htobe64(start_addr);
	mkey->len = htobe64(len);
	mkey->bsf_octword_size = htobe32(bsf_octowords);
	mkey->translations_octword_size = htobe32(translations_octowords);
	mkey->log_page_size = log_page_size;
}

void dv_klm(void *seg, uint32_t byte_count, uint32_t mkey, uint64_t address)
{
	struct mlx5_wqe_umr_klm_seg *klm = seg;

	klm->byte_count = htobe32(byte_count);
	klm->mkey = htobe32(mkey);
	klm->address = htobe64(address);
}

void dv_repeat(void *seg, uint32_t byte_count, uint32_t repeat_count, uint16_t num_ent)
{
	struct mlx5_wqe_umr_repeat_block_seg *block = seg;

	block->byte_count = htobe32(byte_count);
	block->op = htobe32(0x400);
	block->repeat_count = htobe32(repeat_count);
	block->reserved = 0;
	block->num_ent = htobe16(num_ent);
}

void dv_repeat_entry(void *seg, uint16_t stride, uint16_t byte_count, uint32_t memkey, uint64_t va)
{
	struct mlx5_wqe_umr_repeat_ent_seg *entry = seg;

	entry->stride = htobe16(stride);
	entry->byte_count = htobe16(byte_count);
	entry->memkey = htobe32(memkey);
	entry->va = htobe64(va);
}
