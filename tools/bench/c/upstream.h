/* SPDX-License-Identifier: GPL-2.0 */
#include <stddef.h>
#include <stdint.h>

struct upstream;

struct upstream *upstream_new(const uint8_t *ring, uint32_t blocks, const uint8_t *strings,
			      uint32_t len, uint32_t base, uint8_t first, uint8_t count,
			      uint8_t trc_ver);
void upstream_free(struct upstream *t);
void upstream_rewind(struct upstream *t);
uint64_t upstream_copy(struct upstream *t);
uint64_t upstream_read(struct upstream *t);
uint64_t upstream_saved(const struct upstream *t);
const char *upstream_message(const struct upstream *t, uint64_t n, uint64_t *time, uint8_t *id);
int upstream_words(char *format);
int upstream_format(char *out, size_t size, const char *format, const uint32_t *params);
