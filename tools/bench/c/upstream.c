// SPDX-License-Identifier: GPL-2.0
/*
 * What the kernel's mlx5_core does with the trace buffer, written anew from its description
 * (hardware.md 4, and the comments of upstream's fw_tracer.c): a yardstick for benches. The costs are
 * those of upstream: blocks copied by memcpy, an allocation for each message, a hash by message
 * number, a list of complete messages that waits for a timestamp event, strstr for parameters,
 * snprintf, and an array of the last messages. What the kernel has and a program has not, the trace
 * event and locks, is left out.
 */
#include "upstream.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	BLOCK = 256,
	EVENTS = 32,
	BUCKETS = 64,
	PARAMS = 7,
	SAVED = 8192,
	TEXT = 256,
	TIMESTAMP = 0xff,
};

struct message {
	struct message *bucket_next, **bucket_link;
	struct message *ready_next;
	char *format;
	int params[PARAMS];
	int wanted;
	int have;
	uint8_t id;
	uint32_t tmsn;
	uint32_t time;
	bool lost;
	bool invalid;
};

struct saved {
	uint64_t time;
	bool lost;
	uint8_t id;
	char text[TEXT];
};

struct upstream {
	const uint8_t *ring;
	uint32_t blocks;
	uint32_t index;
	uint64_t last;
	char *strings;
	uint32_t len, base;
	uint8_t first, count, trc_ver;
	struct message *bucket[BUCKETS];
	struct message *ready, **ready_end;
	struct saved *saved;
	uint64_t messages;
	uint64_t lost_blocks;
};

struct event {
	bool lost;
	uint8_t id;
	bool string, stamp, unreliable;
	uint32_t time, tmsn, tdsn, param;
	uint64_t full;
	uint32_t word[2];
};

static uint32_t be32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap32(v);
}

static void decode(const struct upstream *t, const uint8_t *p, struct event *e)
{
	uint32_t w0 = be32(p), w1 = be32(p + 4);

	e->word[0] = w0;
	e->word[1] = w1;
	e->id = w0 >> 16;
	e->lost = w0 >> 31;
	e->string = e->stamp = false;
	if (e->id == TIMESTAMP) {
		uint32_t urts = w0 >> 13 & 7;

		e->stamp = true;
		e->unreliable = t->trc_ver == 0 ? urts >> 2 : urts & 1;
		e->full = (uint64_t)(w0 & 0x1fff) << 40 | (uint64_t)w1 << 8 | w0 >> 24;
	} else if (e->id >= t->first && e->id <= t->first + t->count) {
		e->string = true;
		e->time = w0 >> 24 & 0x7f;
		e->tmsn = w0 >> 3 & 0x1fff;
		e->tdsn = w0 & 7;
		e->param = w1;
	}
}

static uint64_t block_time(const struct upstream *t, const uint8_t *last)
{
	struct event e;

	decode(t, last, &e);
	return e.stamp ? e.full : 0;
}

static uint32_t hash(uint32_t tmsn)
{
	/* A word through the rounds of a Jenkins hash, as jhash_1word() does. */
	uint32_t a = 0xdeadbef3 + tmsn, b = 0xdeadbef3, c = 0xdeadbef3;
#define ROT(x, k) ((x) << (k) | (x) >> (32 - (k)))
	c ^= b; c -= ROT(b, 14);
	a ^= c; a -= ROT(c, 11);
	b ^= a; b -= ROT(a, 25);
	c ^= b; c -= ROT(b, 16);
	a ^= c; a -= ROT(c, 4);
	b ^= a; b -= ROT(a, 14);
	c ^= b; c -= ROT(b, 24);
#undef ROT
	return c & (BUCKETS - 1);
}

static struct message *insert(struct upstream *t, const struct event *e)
{
	struct message **head = &t->bucket[hash(e->tmsn)];
	struct message *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->bucket_next = *head;
	if (*head)
		(*head)->bucket_link = &m->bucket_next;
	m->bucket_link = head;
	*head = m;
	return m;
}

static void discard(struct message *m)
{
	*m->bucket_link = m->bucket_next;
	if (m->bucket_next)
		m->bucket_next->bucket_link = m->bucket_link;
	free(m);
}

static void make_ready(struct upstream *t, struct message *m)
{
	m->ready_next = NULL;
	*t->ready_end = m;
	t->ready_end = &m->ready_next;
}

static bool valid(const char *s)
{
	for (s = strstr(s, "%"); s; s = strstr(s, "%")) {
		const char *kind = ++s;

		while (isdigit((unsigned char)*kind) || *kind == '#' || *kind == '.' ||
		       *kind == 'l')
			kind++;
		if (!*kind || !strchr("xXdiuc%", *kind))
			return false;
		if (*s == '%')
			s++;
	}
	return true;
}

int upstream_words(char *format)
{
	int words = 0;
	char *s;

	if (!valid(format))
		return -1;
	for (s = strstr(format, "%llx"); s; s = strstr(s, "%llx"))
		memcpy(s, "%x%x", 4);
	for (s = strstr(format, "%"); s; s = strstr(s, "%")) {
		if (s[1] != '%') {
			words++;
			s++;
		} else {
			s += 2;
		}
	}
	return words;
}

#pragma GCC diagnostic ignored "-Wformat-nonliteral"
int upstream_format(char *out, size_t size, const char *format, const uint32_t *p)
{
	return snprintf(out, size, format, p[0], p[1], p[2], p[3], p[4], p[5], p[6]);
}

static void print(struct upstream *t, struct message *m, uint64_t time)
{
	struct saved *saved = &t->saved[t->messages++ % SAVED];
	char text[512];
	size_t len;

	if (m->invalid)
		snprintf(text, sizeof(text), "BAD_FORMAT: %s", m->format);
	else
		upstream_format(text, sizeof(text), m->format, (const uint32_t *)m->params);
	saved->time = time;
	saved->lost = m->lost;
	saved->id = m->id;
	/* strscpy_pad() */
	len = strnlen(text, TEXT - 1);
	memcpy(saved->text, text, len);
	memset(saved->text + len, 0, TEXT - len);
	discard(m);
}

static void raw(struct upstream *t, const struct event *e)
{
	struct message *m = insert(t, e);

	if (!m)
		return;
	m->id = e->id;
	m->time = e->time;
	m->lost = e->lost;
	m->format = "0x%08x%08x";
	m->wanted = 2;
	m->params[0] = e->word[0];
	m->params[1] = e->word[1];
	make_ready(t, m);
}

static void begin(struct upstream *t, const struct event *e)
{
	struct message *m;

	if (e->param <= t->base || e->param >= t->base + t->len) {
		raw(t, e);
		return;
	}
	m = insert(t, e);
	if (!m)
		return;
	m->format = t->strings + (e->param - t->base);
	m->id = e->id;
	m->tmsn = e->tmsn;
	m->time = e->time;
	m->lost = e->lost;
	m->wanted = upstream_words(m->format);
	if (m->wanted < 0) {
		m->invalid = true;
		make_ready(t, m);
	} else if (m->wanted == 0) {
		make_ready(t, m);
	}
}

static void parameter(struct upstream *t, const struct event *e)
{
	struct message *m;

	for (m = t->bucket[hash(e->tmsn)]; m; m = m->bucket_next)
		if (m->id == e->id && m->tmsn == e->tmsn)
			break;
	if (!m) {
		raw(t, e);
		return;
	}
	if (m->wanted < 0)
		return;
	if (++m->have > PARAMS) {
		make_ready(t, m);
		return;
	}
	m->params[m->have - 1] = e->param;
	if (m->have == m->wanted)
		make_ready(t, m);
}

static void stamp(struct upstream *t, const struct event *e)
{
	const uint64_t low = 0x7f, high = 0x1fffffffffff80;
	struct message *m, *next;

	for (m = t->ready; m; m = next) {
		uint64_t base = m->time < (e->full & low) ? e->full : e->full - 1;

		next = m->ready_next;
		print(t, m, (base & high) | m->time);
	}
	t->ready = NULL;
	t->ready_end = &t->ready;
}

static void handle(struct upstream *t, const struct event *e)
{
	if (e->string) {
		if (e->tdsn == 0)
			begin(t, e);
		else
			parameter(t, e);
	} else if (e->stamp && !e->unreliable) {
		stamp(t, e);
	}
}

static uint64_t blocks(struct upstream *t, bool parse)
{
	uint8_t block[BLOCK];
	uint64_t done = 0, time;
	struct event e;

	memcpy(block, t->ring + (size_t)t->index * BLOCK, BLOCK);
	time = block_time(t, block + BLOCK - 8);
	while (time > t->last) {
		if (t->last) {
			uint32_t previous = (t->index - 1) & (t->blocks - 1);
			const uint8_t *last = t->ring + (size_t)previous * BLOCK + BLOCK - 8;

			if (block_time(t, last) != t->last) {
				t->lost_blocks++;
				t->last = time;
				t->index = (t->index + 1) & (t->blocks - 1);
				break;
			}
		}
		if (parse) {
			for (int i = 0; i < EVENTS; i++) {
				decode(t, block + i * 8, &e);
				handle(t, &e);
			}
		} else {
			/* The copy must not be left out. */
			__asm__ volatile("" : : "r"(block) : "memory");
		}
		done++;
		t->index = (t->index + 1) & (t->blocks - 1);
		t->last = time;
		memcpy(block, t->ring + (size_t)t->index * BLOCK, BLOCK);
		time = block_time(t, block + BLOCK - 8);
	}
	return done;
}

uint64_t upstream_copy(struct upstream *t)
{
	return blocks(t, false);
}

uint64_t upstream_read(struct upstream *t)
{
	return blocks(t, true);
}

void upstream_rewind(struct upstream *t)
{
	t->index = 0;
	t->last = 0;
}

uint64_t upstream_saved(const struct upstream *t)
{
	return t->messages;
}

const char *upstream_message(const struct upstream *t, uint64_t n, uint64_t *time, uint8_t *id)
{
	const struct saved *saved = &t->saved[n % SAVED];

	*time = saved->time;
	*id = saved->id;
	return saved->text;
}

struct upstream *upstream_new(const uint8_t *ring, uint32_t count, const uint8_t *strings,
			      uint32_t len, uint32_t base, uint8_t first, uint8_t ids,
			      uint8_t trc_ver)
{
	struct upstream *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->ring = ring;
	t->blocks = count;
	/* One more byte: the last string has an end. */
	t->strings = calloc(1, (size_t)len + 1);
	t->saved = calloc(SAVED, sizeof(*t->saved));
	if (!t->strings || !t->saved) {
		upstream_free(t);
		return NULL;
	}
	memcpy(t->strings, strings, len);
	t->len = len;
	t->base = base;
	t->first = first;
	t->count = ids;
	t->trc_ver = trc_ver;
	t->ready_end = &t->ready;
	return t;
}

void upstream_free(struct upstream *t)
{
	struct message *m, *next;

	for (int i = 0; i < BUCKETS; i++) {
		for (m = t->bucket[i]; m; m = next) {
			next = m->bucket_next;
			free(m);
		}
	}
	free(t->strings);
	free(t->saved);
	free(t);
}
