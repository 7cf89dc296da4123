/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the mlx5 headers take from the rest of the kernel, for a bindgen run on
 * the host, which has the kernel's source but no configured tree. In the kernel
 * build the real headers are used; both give the same ifc.rs.
 */
#ifndef MLX5RS_HOST_TYPES_H
#define MLX5RS_HOST_TYPES_H

#include <stdbool.h>
#include <stddef.h>

typedef unsigned char u8;
typedef signed char s8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef u16 __be16;
typedef u32 __be32;
typedef u64 __be64;

#define __packed __attribute__((__packed__))
#define __LITTLE_ENDIAN 1234
#define BIT(n) (1UL << (n))
#define BIT_ULL(n) (1ULL << (n))
#define GENMASK(h, l) ((~0UL << (l)) & (~0UL >> (63 - (h))))
#define DECLARE_FLEX_ARRAY(type, name) \
	struct { struct { } __empty_##name; type name[]; }
#define struct_group(name, ...) \
	union { \
		struct { __VA_ARGS__ }; \
		struct { __VA_ARGS__ } name; \
	}
#define cpu_to_be32 __builtin_bswap32
#define PAGE_SIZE 4096UL

#define be16_to_cpu __builtin_bswap16
#define be32_to_cpu __builtin_bswap32

#endif
