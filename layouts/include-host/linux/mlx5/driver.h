/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What qp.h takes from driver.h, which itself needs all of the kernel: the types of
 * the driver's own structures at its end, and what its inline function calls. None
 * of it reaches the layouts.
 */
#ifndef MLX5RS_HOST_MLX5_DRIVER_H
#define MLX5RS_HOST_MLX5_DRIVER_H

#include <linux/types.h>

struct ib_ah {
	void *device;
};

struct completion {
	unsigned int done;
};

struct mlx5_core_rsc_common {
	int res;
};

struct mlx5_rsc_debug;
struct mlx5_core_dev;

#define container_of(ptr, type, member) \
	((type *)((char *)(ptr) - offsetof(type, member)))
#define mlx5_get_roce_state(dev) 0
#define MLX5_CAP_ROCE(dev, cap) 0
#define MLX5_CAP_GEN(dev, cap) 0

#endif
