// SPDX-License-Identifier: GPL-2.0
/*
 * rdma-core's mlx5 provider as a builder of WQEs: its qp.c, with a queue pair that no
 * kernel has made and a doorbell register that is plain memory.
 */

#include "providers/mlx5/qp.c"
#include "provider.h"
#include "bench.h"

struct rc_provider {
	struct mlx5_context ctx;
	struct ibv_pd pd;
	struct mlx5_cq cq;
	struct mlx5_bf bf;
	struct mlx5_qp qp;
	uint64_t uar[2][32];
	__be32 db[2];
};

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return &to_mqp(qp)->verbs_qp.qp_ex;
}

/* Sizes of the structures that Rust has too. */
void rc_sizes(size_t sizes[7])
{
	sizes[0] = sizeof(struct rc_address);
	sizes[1] = sizeof(struct rc_config);
	sizes[2] = sizeof(struct rc_sge);
	sizes[3] = sizeof(struct rc_stride);
	sizes[4] = sizeof(struct rc_dif);
	sizes[5] = sizeof(struct rc_work);
	sizes[6] = sizeof(struct rc_posted);
}

void rc_free(struct rc_provider *p)
{
	if (!p)
		return;
	free(p->qp.sq.wrid);
	free(p->qp.sq.wqe_head);
	free(p->qp.sq.wr_data);
	free(p);
}

/* A queue pair whose send queue is `ring`; NULL if there is no memory, or no such kind. */
struct rc_provider *rc_new(const struct rc_config *config, void *ring)
{
	static const enum ibv_qp_type types[] = {
		[RC_RC] = IBV_QPT_RC,	      [RC_UC] = IBV_QPT_UC,
		[RC_UD] = IBV_QPT_UD,	      [RC_UD_UNDERLAY] = IBV_QPT_UD,
		[RC_XRC] = IBV_QPT_XRC_SEND,  [RC_DCI] = IBV_QPT_DRIVER,
		[RC_RAW] = IBV_QPT_RAW_PACKET,
	};
	struct ibv_qp_init_attr_ex attr = { .qp_type = types[config->kind] };
	struct mlx5dv_qp_init_attr dv_attr = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.send_ops_flags = MLX5DV_QP_EX_WITH_RAW_WQE,
	};
	struct rc_provider *p = calloc(1, sizeof(*p));
	struct mlx5_qp *qp;
	struct ibv_qp *ibqp;

	if (!p)
		return NULL;
	p->ctx.dbg_fp = stderr;
	p->ctx.shut_up_bf = 1;
	p->ctx.eth_min_inline_size = config->min_inline;
	p->ctx.flags = MLX5_CTX_FLAGS_MKEY_UPDATE_TAG_SUPPORTED;
	p->pd.context = &p->ctx.ibv_ctx.context;
	p->bf.reg = p->uar;
	p->bf.buf_size = sizeof(p->uar[0]);

	qp = &p->qp;
	ibqp = &qp->verbs_qp.qp;
	qp->ibv_qp = ibqp;
	ibqp->context = &p->ctx.ibv_ctx.context;
	ibqp->pd = &p->pd;
	ibqp->send_cq = &p->cq.verbs_cq.cq;
	ibqp->qp_num = config->qpn;
	ibqp->qp_type = attr.qp_type;
	qp->bf = &p->bf;
	qp->db = p->db;
	qp->atomics_enabled = 1;
	qp->max_inline_data = 1024;
	qp->max_tso = UINT32_MAX;
	qp->max_tso_header = 1024;
	qp->qp_cap_cache = MLX5_CSUM_SUPPORT_RAW_OVER_ETH | MLX5_CSUM_SUPPORT_UNDERLAY_UD;
	qp->wq_sig = config->signature;
	qp->sq_start = ring;
	qp->sq.qend = ring + config->blocks * MLX5_SEND_WQE_BB;
	qp->sq.wqe_cnt = config->blocks;
	qp->sq.max_post = config->blocks;
	qp->sq.max_gs = 64;
	qp->sq.qp_state_max_gs = 64;
	qp->sq.cur_post = config->pi;
	qp->sq.wrid = calloc(config->blocks, sizeof(*qp->sq.wrid));
	qp->sq.wqe_head = calloc(config->blocks, sizeof(*qp->sq.wqe_head));
	qp->sq.wr_data = calloc(config->blocks, sizeof(*qp->sq.wr_data));
	mlx5_spinlock_init(&qp->sq.lock, 0);
	mlx5_spinlock_init(&p->cq.lock, 0);
	if (!qp->sq.wrid || !qp->sq.wqe_head || !qp->sq.wr_data)
		goto fail;

	if (config->kind == RC_DCI) {
		dv_attr.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DC;
		dv_attr.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
	}
	if (mlx5_qp_fill_wr_pfns(qp, &attr, &dv_attr))
		goto fail;
	/* Only ibv_post_send knows them. */
	if (config->kind == RC_UD_UNDERLAY)
		qp->flags |= MLX5_QP_FLAGS_USE_UNDERLAY;
	return p;
fail:
	rc_free(p);
	return NULL;
}

static unsigned int send_flags(const struct rc_work *work)
{
	return (work->flags & RC_SIGNALED ? IBV_SEND_SIGNALED : 0) |
	       (work->flags & RC_SOLICITED ? IBV_SEND_SOLICITED : 0) |
	       (work->flags & RC_FENCE ? IBV_SEND_FENCE : 0) |
	       (work->flags & RC_INLINE ? IBV_SEND_INLINE : 0) |
	       (work->flags & RC_CHECKSUMS ? IBV_SEND_IP_CSUM : 0);
}

static void bind_info(const struct rc_work *work, struct ibv_mr *mr, struct ibv_mw_bind_info *info)
{
	mr->lkey = work->mr_lkey;
	info->mr = mr;
	info->addr = work->mw_addr;
	info->length = work->mw_length;
	info->mw_access_flags = work->access;
}

static int post_send(struct rc_provider *p, const struct rc_work *work, struct mlx5_ah *ah)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[RC_SEND] = IBV_WR_SEND,
		[RC_SEND_IMM] = IBV_WR_SEND_WITH_IMM,
		[RC_SEND_INVAL] = IBV_WR_SEND_WITH_INV,
		[RC_WRITE] = IBV_WR_RDMA_WRITE,
		[RC_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
		[RC_READ] = IBV_WR_RDMA_READ,
		[RC_COMPARE_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
		[RC_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
		[RC_TSO] = IBV_WR_TSO,
		[RC_BIND] = IBV_WR_BIND_MW,
		[RC_LOCAL_INVAL] = IBV_WR_LOCAL_INV,
	};
	struct ibv_mr mr = {};
	struct ibv_mw mw = { .rkey = work->mkey, .type = work->mw_type };
	struct ibv_send_wr wr = {}, *bad;

	if (work->op >= sizeof(opcodes) / sizeof(opcodes[0]))
		return EINVAL;
	wr.opcode = opcodes[work->op];
	wr.send_flags = send_flags(work);
	wr.sg_list = (struct ibv_sge *)work->sge;
	wr.num_sge = work->sges;
	switch (work->op) {
	case RC_SEND_IMM:
	case RC_WRITE_IMM:
		wr.imm_data = htobe32(work->general_id);
		break;
	case RC_SEND_INVAL:
	case RC_LOCAL_INVAL:
		wr.invalidate_rkey = work->general_id;
		break;
	}
	switch (work->op) {
	case RC_WRITE:
	case RC_WRITE_IMM:
	case RC_READ:
		wr.wr.rdma.remote_addr = work->remote_addr;
		wr.wr.rdma.rkey = work->rkey;
		break;
	case RC_COMPARE_SWAP:
	case RC_FETCH_ADD:
		wr.wr.atomic.remote_addr = work->remote_addr;
		wr.wr.atomic.rkey = work->rkey;
		wr.wr.atomic.compare_add = work->compare_add;
		wr.wr.atomic.swap = work->swap;
		break;
	case RC_TSO:
		wr.tso.hdr = (void *)work->header;
		wr.tso.hdr_sz = work->header_size;
		wr.tso.mss = work->mss;
		break;
	case RC_BIND:
		wr.bind_mw.mw = &mw;
		wr.bind_mw.rkey = work->new_rkey;
		bind_info(work, &mr, &wr.bind_mw.bind_info);
		break;
	}
	switch (p->qp.ibv_qp->qp_type) {
	case IBV_QPT_UD:
		wr.wr.ud.ah = &ah->ibv_ah;
		wr.wr.ud.remote_qpn = work->peer;
		wr.wr.ud.remote_qkey = work->peer_key;
		break;
	case IBV_QPT_XRC_SEND:
		wr.qp_type.xrc.remote_srqn = work->peer;
		break;
	default:
		break;
	}
	return mlx5_post_send(p->qp.ibv_qp, &wr, &bad);
}

static void set_data(struct ibv_qp_ex *qp, const struct rc_work *work)
{
	struct ibv_data_buf bufs[64];
	bool one = work->sges == 1 && !(work->flags & RC_LIST);
	uint32_t i;

	if (work->flags & RC_INLINE) {
		for (i = 0; i < work->sges && i < 64; i++) {
			bufs[i].addr = (void *)(uintptr_t)work->sge[i].addr;
			bufs[i].length = work->sge[i].length;
		}
		if (one)
			ibv_wr_set_inline_data(qp, bufs[0].addr, bufs[0].length);
		else
			ibv_wr_set_inline_data_list(qp, i, bufs);
	} else if (one) {
		ibv_wr_set_sge(qp, work->sge->lkey, work->sge->addr, work->sge->length);
	} else {
		ibv_wr_set_sge_list(qp, work->sges, (struct ibv_sge *)work->sge);
	}
}

static void set_address(struct rc_provider *p, const struct rc_work *work, struct mlx5_ah *ah)
{
	struct ibv_qp_ex *qp = &p->qp.verbs_qp.qp_ex;

	switch (p->qp.ibv_qp->qp_type) {
	case IBV_QPT_UD:
		ibv_wr_set_ud_addr(qp, &ah->ibv_ah, work->peer, work->peer_key);
		break;
	case IBV_QPT_XRC_SEND:
		ibv_wr_set_xrc_srqn(qp, work->peer);
		break;
	case IBV_QPT_DRIVER:
		if (work->stream)
			mlx5dv_wr_set_dc_addr_stream(&p->qp.dv_qp, &ah->ibv_ah, work->peer,
						     work->peer_key, work->stream);
		else
			mlx5dv_wr_set_dc_addr(&p->qp.dv_qp, &ah->ibv_ah, work->peer,
					      work->peer_key);
		break;
	default:
		break;
	}
}

static void domain(const struct rc_dif *from, struct mlx5dv_sig_t10dif *dif,
		   struct mlx5dv_sig_block_domain *to)
{
	dif->bg_type = from->type ? MLX5DV_SIG_T10DIF_CSUM : MLX5DV_SIG_T10DIF_CRC;
	dif->bg = from->bg;
	dif->app_tag = from->app_tag;
	dif->ref_tag = from->ref_tag;
	dif->flags = from->flags;
	to->sig_type = MLX5DV_SIG_TYPE_T10DIF;
	to->sig.dif = dif;
	to->block_size = from->block_size;
}

static void umr(struct rc_provider *p, const struct rc_work *work)
{
	struct mlx5dv_qp_ex *dv = &p->qp.dv_qp;
	struct mlx5_psv mem_psv = { .index = work->mem.psv };
	struct mlx5_psv wire_psv = { .index = work->wire.psv };
	struct mlx5_sig_ctx sig = {
		.block = {
			.mem_psv = &mem_psv,
			.wire_psv = &wire_psv,
			.state = MLX5_MKEY_BSF_STATE_INIT,
		},
	};
	struct mlx5_mkey mkey = {
		.dv_mkey = { .lkey = work->mkey, .rkey = work->mkey },
		.num_desc = 64,
		.sig = work->op == RC_SIGNATURE ? &sig : NULL,
	};
	struct mlx5dv_mkey_conf_attr conf = {};
	struct mlx5dv_sig_t10dif mem_dif, wire_dif;
	struct mlx5dv_sig_block_domain mem = {}, wire = {};
	struct mlx5dv_sig_block_attr block = { .check_mask = work->check_mask };

	switch (work->op) {
	case RC_MR_LIST:
		mlx5dv_wr_mr_list(dv, &mkey.dv_mkey, work->access, work->sges,
				  (struct ibv_sge *)work->sge);
		break;
	case RC_MR_INTERLEAVED:
		mlx5dv_wr_mr_interleaved(dv, &mkey.dv_mkey, work->access, work->repeat,
					 work->stride_count,
					 (struct mlx5dv_mr_interleaved *)work->strides);
		break;
	case RC_SIGNATURE:
		domain(&work->mem, &mem_dif, &mem);
		domain(&work->wire, &wire_dif, &wire);
		block.mem = work->mem.there ? &mem : NULL;
		block.wire = work->wire.there ? &wire : NULL;
		mlx5dv_wr_mkey_configure(dv, &mkey.dv_mkey, 3, &conf);
		mlx5dv_wr_set_mkey_access_flags(dv, work->access);
		mlx5dv_wr_set_mkey_layout_list(dv, work->sges, (struct ibv_sge *)work->sge);
		mlx5dv_wr_set_mkey_sig_block(dv, &block);
		break;
	}
}

static int post_extended(struct rc_provider *p, const struct rc_work *work, struct mlx5_ah *ah)
{
	struct ibv_qp_ex *qp = &p->qp.verbs_qp.qp_ex;
	struct ibv_mw_bind_info info = {};
	struct ibv_mr mr = {};
	struct ibv_mw mw = { .rkey = work->mkey, .type = work->mw_type };
	bool data = true;

	ibv_wr_start(qp);
	qp->wr_flags = send_flags(work);
	switch (work->op) {
	case RC_SEND:
		ibv_wr_send(qp);
		break;
	case RC_SEND_IMM:
		ibv_wr_send_imm(qp, htobe32(work->general_id));
		break;
	case RC_SEND_INVAL:
		ibv_wr_send_inv(qp, work->general_id);
		break;
	case RC_WRITE:
		ibv_wr_rdma_write(qp, work->rkey, work->remote_addr);
		break;
	case RC_WRITE_IMM:
		ibv_wr_rdma_write_imm(qp, work->rkey, work->remote_addr,
				      htobe32(work->general_id));
		break;
	case RC_READ:
		ibv_wr_rdma_read(qp, work->rkey, work->remote_addr);
		break;
	case RC_COMPARE_SWAP:
		ibv_wr_atomic_cmp_swp(qp, work->rkey, work->remote_addr, work->compare_add,
				      work->swap);
		break;
	case RC_FETCH_ADD:
		ibv_wr_atomic_fetch_add(qp, work->rkey, work->remote_addr, work->compare_add);
		break;
	case RC_TSO:
		ibv_wr_send_tso(qp, (void *)work->header, work->header_size, work->mss);
		break;
	case RC_BIND:
		bind_info(work, &mr, &info);
		ibv_wr_bind_mw(qp, &mw, work->new_rkey, &info);
		data = false;
		break;
	case RC_LOCAL_INVAL:
		ibv_wr_local_inv(qp, work->general_id);
		data = false;
		break;
	case RC_RAW_WQE:
		mlx5dv_wr_raw_wqe(&p->qp.dv_qp, work->wqe);
		data = false;
		break;
	default:
		qp->wr_flags |= IBV_SEND_INLINE;
		umr(p, work);
		data = false;
	}
	if (data) {
		set_address(p, work, ah);
		set_data(qp, work);
	}
	return ibv_wr_complete(qp);
}

/* Posts; 0 or an errno. */
int rc_post(struct rc_provider *p, const struct rc_work *work, struct rc_posted *posted)
{
	struct mlx5_ah ah = {};
	void *reg = p->bf.reg + p->bf.offset;
	int err;

	memcpy(&ah.av, work->av, sizeof(ah.av));
	if (work->flags & RC_EXTENDED)
		err = post_extended(p, work, &ah);
	else
		err = post_send(p, work, &ah);
	/* All are done at once. */
	p->qp.sq.tail = p->qp.sq.head;
	posted->pi = p->qp.sq.cur_post;
	posted->doorbell_record = be32toh(p->db[MLX5_SND_DBR]);
	memcpy(posted->doorbell, reg, sizeof(posted->doorbell));
	return err;
}

/*
 * A batch by the calls of struct ibv_qp_ex, as applications post it: one doorbell at the
 * end, the queue being empty before.
 */
uint16_t rc_batch(struct rc_provider *p, const struct bench *b, uint32_t kind, uint32_t count)
{
	const struct bench_work *w = b->work;
	struct ibv_qp_ex *qp = &p->qp.verbs_qp.qp_ex;
	struct mlx5_mkey mkey = { .dv_mkey = { .lkey = w->mkey }, .num_desc = 64 };
	struct mlx5_ah ah = {
		.av = {
			.stat_rate_sl = w->stat_rate_sl,
			.fl_mlid = w->fl_mlid,
			.rlid = htobe16(w->rlid),
			.tclass = w->tclass,
			.hop_limit = w->hop_limit,
			.grh_gid_fl = htobe32(w->grh_gid_fl),
		},
	};
	struct ibv_sge list[64];

	memcpy(ah.av.rgid, w->rgid, sizeof(ah.av.rgid));
	for (uint32_t k = 0; k < w->klms && k < 64; k++)
		list[k] = (struct ibv_sge){ w->list[k].addr, w->list[k].byte_count, w->list[k].key };
	p->qp.sq.tail = p->qp.sq.head;
	ibv_wr_start(qp);
	for (uint32_t i = 0; i < count; i++, w++) {
		qp->wr_id = i;
		qp->wr_flags = IBV_SEND_SIGNALED;
		switch (kind) {
		case BENCH_SEND:
			ibv_wr_send(qp);
			ibv_wr_set_sge(qp, w->lkey, w->addr, w->length);
			break;
		case BENCH_WRITE_INLINE:
			ibv_wr_rdma_write(qp, w->rkey, w->addr);
			ibv_wr_set_inline_data(qp, (void *)w->data, w->inline_length);
			break;
		case BENCH_DATAGRAM:
			ibv_wr_send(qp);
			ibv_wr_set_ud_addr(qp, &ah.ibv_ah, w->peer, w->rkey);
			ibv_wr_set_sge(qp, w->lkey, w->addr, w->length);
			break;
		case BENCH_COMPARE_SWAP:
			ibv_wr_atomic_cmp_swp(qp, w->rkey, w->addr, w->compare, w->swap);
			ibv_wr_set_sge(qp, w->lkey, w->result, 8);
			break;
		case BENCH_UMR:
			qp->wr_flags |= IBV_SEND_INLINE;
			mlx5dv_wr_mr_list(&p->qp.dv_qp, &mkey.dv_mkey, 0, w->klms, list);
			break;
		}
	}
	ibv_wr_complete(qp);
	return p->qp.sq.cur_post;
}

/*
 * Segments that the provider declares and does not fill in: compared with assignments
 * to its structures.
 */
void rc_masked_atomic(void *seg, uint64_t swap_add, uint64_t compare, uint64_t swap_add_mask,
		      uint64_t compare_mask)
{
	struct mlx5_wqe_masked_atomic_seg *atomic = seg;

	atomic->swap_add = htobe64(swap_add);
	atomic->compare = htobe64(compare);
	atomic->swap_add_mask = htobe64(swap_add_mask);
	atomic->compare_mask = htobe64(compare_mask);
}
