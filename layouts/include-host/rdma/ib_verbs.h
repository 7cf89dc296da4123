/* SPDX-License-Identifier: GPL-2.0 */
/* The one structure of RDMA core that device.h embeds. */
#ifndef MLX5RS_HOST_IB_VERBS_H
#define MLX5RS_HOST_IB_VERBS_H

#include <linux/types.h>

struct ib_grh {
	__be32 version_tclass_flow;
	__be16 paylen;
	u8 next_hdr;
	u8 hop_limit;
	u8 sgid[16];
	u8 dgid[16];
};

#endif
