// SPDX-License-Identifier: GPL-2.0
/*
 * Address vectors as rdma-core's mlx5 provider makes them: mlx5_create_ah of its verbs.c,
 * with the answers of kernel and port given by the caller.
 */

#include "providers/mlx5/verbs.c"
#include "provider.h"

/* What the port of the current call is. */
static __thread const struct rc_address *current;

int ibv_cmd_create_ah(struct ibv_pd *pd, struct ibv_ah *ah, struct ibv_ah_attr *attr,
		      struct ib_uverbs_create_ah_resp *resp, size_t resp_size)
{
	/* Only asked for the MAC address on Ethernet. */
	struct mlx5_create_ah_resp *own = container_of(resp, struct mlx5_create_ah_resp, ibv_resp);

	memcpy(own->dmac, current->mac, ETHERNET_LL_SIZE);
	return 0;
}

int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
				uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	abort();
}

int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
		       enum ibv_gid_type_sysfs *type)
{
	*type = current->udp ? IBV_GID_TYPE_SYSFS_ROCE_V2 : IBV_GID_TYPE_SYSFS_IB_ROCE_V1;
	return 0;
}

#undef ibv_query_port

int ibv_query_port(struct ibv_context *context, uint8_t port_num,
		   struct _compat_ibv_port_attr *port_attr)
{
	abort();
}

unsigned int get_random(void)
{
	return 0;
}

/* The UDP source port that mlx5_create_ah chooses on RoCE v2, if get_random() is 0. */
uint16_t rc_udp_sport(uint32_t flow_label)
{
	if (!flow_label)
		return IB_ROCE_UDP_ENCAP_VALID_PORT_MIN;
	return ibv_flow_label_to_udp_sport(flow_label);
}

int rc_address(const struct rc_address *address, uint8_t av[48])
{
	struct ibv_ah_attr attr = {
		.is_global = address->global,
		.dlid = address->dlid,
		.sl = address->sl,
		.src_path_bits = address->path_bits,
		.static_rate = IBV_RATE_MAX,
		.port_num = 1,
		.grh = {
			.flow_label = address->flow_label,
			.sgid_index = address->sgid_index,
			.hop_limit = address->hop_limit,
			.traffic_class = address->tclass,
		},
	};
	struct mlx5_context *ctx = calloc(1, sizeof(*ctx));
	struct ibv_pd pd = {};
	struct ibv_ah *ah;

	if (!ctx)
		return ENOMEM;
	memcpy(attr.grh.dgid.raw, address->dgid, 16);
	ctx->num_ports = 1;
	ctx->cached_link_layer[0] = address->ethernet ? IBV_LINK_LAYER_ETHERNET :
							IBV_LINK_LAYER_INFINIBAND;
	ctx->cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_CREATE_AH;
	pd.context = &ctx->ibv_ctx.context;
	current = address;
	ah = mlx5_create_ah(&pd, &attr);
	current = NULL;
	if (!ah) {
		free(ctx);
		return EINVAL;
	}
	memcpy(av, &to_mah(ah)->av, 48);
	free(to_mah(ah));
	free(ctx);
	return 0;
}
