/* SPDX-License-Identifier: GPL-2.0 */
/* Input of bindgen for layouts::ifc. */
#include <linux/errno.h>
#include <linux/mlx5/device.h>
#include <linux/mlx5/mlx5_ifc.h>
#include <linux/mlx5/qp.h>
