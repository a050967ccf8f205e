// SPDX-License-Identifier: GPL-2.0
/*
 * The input is a program for the kernel-free logic: registrations, lookups and
 * descriptors whose every field comes from the input. What the checks let
 * through is then walked as the copy would, and must stay inside the buffers.
 */
#include <stdio.h>

#include "core/check.h"
#include "core/extents.h"
#include "core/keytab.h"
#include "core/ranges.h"
#include "core/ring.h"
#include "core/routes.h"

unsigned int sdma_fail_alloc;

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

#define MRS 16
#define REQUIRE(cond) do { if (!(cond)) { fprintf(stderr, "violated: %s\n", #cond); abort(); } } while (0)

struct mr {
	u64 va, len, iova;
	u32 access, key;
	struct sdma_extents x;
	bool live;
};

struct world {
	struct sdma_keytab keys;
	struct sdma_ranges ranges;
	struct mr mr[MRS];
	const u8 *p, *end;
};

static u64 take(struct world *w, size_t n)
{
	u64 v = 0;

	if ((size_t)(w->end - w->p) < n)
		n = (size_t)(w->end - w->p);
	memcpy(&v, w->p, n);
	w->p += n;
	return v;
}

static void drop(struct world *w, struct mr *m)
{
	void *obj;

	REQUIRE(sdma_keytab_remove(&w->keys, m->key, &obj) == 0 && obj == m);
	REQUIRE(sdma_ranges_remove(&w->ranges, m));
	REQUIRE(sdma_keytab_find(&w->keys, m->key, &obj) == -EKEYREVOKED);
	sdma_extents_destroy(&m->x);
	m->live = false;
}

static void register_one(struct world *w)
{
	struct mr *m = &w->mr[take(w, 1) % MRS];
	u64 pages, i, pfn;

	if (m->live)
		drop(w, m);
	m->va = take(w, 8);
	m->len = take(w, 3);
	m->iova = take(w, 8);
	m->access = 1 + take(w, 1) % 3;
	pfn = take(w, 4);
	if (sdma_check_region(m->va, m->len, &pages) || m->iova + m->len < m->iova || pages > 256)
		return;
	sdma_extents_init(&m->x, (u32)(m->va & (SDMA_PAGE_SIZE - 1)));
	for (i = 0; i < pages; i++)
		if (sdma_extents_append(&m->x, pfn ^ (i % 5 == 4)))
			abort();
	if (sdma_keytab_add(&w->keys, m, &m->key) ||
	    sdma_ranges_add(&w->ranges, m->va, m->len, m->access, m))
		abort();
	m->live = true;
}

static struct mr *resolve(struct world *w, u32 key, u64 addr, u32 length, u32 need, u64 *base)
{
	void *obj = NULL;

	if (key) {
		if (sdma_keytab_find(&w->keys, key, &obj))
			return NULL;
	} else {
		obj = sdma_ranges_find(&w->ranges, addr, length, need);
	}
	if (obj)
		*base = key ? ((struct mr *)obj)->iova : ((struct mr *)obj)->va;
	return obj;
}

static void walk(const struct mr *m, u64 offset, u32 length)
{
	struct sdma_cursor c;
	u32 left;

	REQUIRE(offset + length <= m->len);
	sdma_cursor_seek(&c, &m->x, offset);
	while (length) {
		sdma_cursor_frame(&c, &left);
		REQUIRE(c.page < m->x.pages && c.run < m->x.n);
		left = left < length ? left : length;
		sdma_cursor_advance(&c, left);
		length -= left;
	}
}

static void descriptor(struct world *w, const struct sdma_routes *routes)
{
	struct sdma_engine_view e = { .present = take(w, 1) & 1, .align_bytes = 64 };
	struct stepccl_dma_sqe s = {};
	struct sdma_span src, dst;
	struct mr *a, *b;
	enum sdma_fallback why;
	u64 sbase, dbase;
	u16 detail;

	/* Mostly a sound descriptor near a registration, so that the checks are passed. */
	a = &w->mr[take(w, 1) % MRS];
	b = &w->mr[take(w, 1) % MRS];
	s.opcode = (u8)take(w, 1);
	s.flags = (u8)take(w, 1);
	s.length = (u32)take(w, 4);
	s.src = a->iova + take(w, 2);
	s.dst = b->iova + take(w, 2);
	s.src_key = take(w, 1) % 4 ? a->key : (u32)take(w, 4);
	s.dst_key = take(w, 1) % 4 ? b->key : (u32)take(w, 4);
	s.src_node = (u16)take(w, 1);
	s.prio = (u16)take(w, 1) / 250;
	if (sdma_check_request(&s, routes, 1u << 30, &detail)) {
		REQUIRE(detail);
		return;
	}
	a = resolve(w, s.src_key, s.src, s.length, 1, &sbase);
	b = resolve(w, s.dst_key, s.dst, s.length, 2, &dbase);
	if (!a || !b)
		return;
	REQUIRE(a->live && b->live);
	src = (struct sdma_span) { s.src, sbase, a->len, a->va, w, a->access };
	dst = (struct sdma_span) { s.dst, dbase, b->len, b->va, w, b->access };
	if (sdma_check_spans(&src, &dst, s.length, &detail)) {
		REQUIRE(detail);
		return;
	}
	REQUIRE(a->access & 1 && b->access & 2);
	walk(a, s.src - sbase, s.length);
	walk(b, s.dst - dbase, s.length);
	if (sdma_path_choose(&s, take(w, 1) % 3, 65536, &e, &why, &detail) == 0)
		REQUIRE(why < SDMA_FALLBACKS);
}

static void rings(struct world *w)
{
	struct sdma_ring_layout l;
	u32 filled, entries;

	if (!sdma_ring_plan((u32)take(w, 4), (u32)take(w, 4), &l)) {
		REQUIRE(l.off_cqes + (u64)l.cq_entries * 32 <= l.bytes && l.bytes <= 1u << 20);
		entries = l.sq_entries;
		if (!sdma_ring_filled((u32)take(w, 4), (u32)take(w, 4), entries, &filled))
			REQUIRE(filled <= entries);
	}
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	static struct sdma_routes routes;
	struct world w = { .p = data, .end = data + size };
	u32 i;

	if (!routes.entry && sdma_routes_init(&routes))
		return 0;
	for (i = 0; i < 256; i++)
		sdma_routes_set(&routes, (u16)i, i < 200 ? STEPCCL_DMA_ROUTE_LOCAL : i % 4, -1);
	sdma_keytab_init(&w.keys, MRS);
	sdma_ranges_init(&w.ranges);
	while (w.p < w.end) {
		switch (take(&w, 1) % 8) {
		case 0:
		case 1:
			register_one(&w);
			break;
		case 2:
			i = (u32)take(&w, 1) % MRS;
			if (w.mr[i].live)
				drop(&w, &w.mr[i]);
			break;
		case 3:
			rings(&w);
			break;
		default:
			descriptor(&w, &routes);
		}
	}
	for (i = 0; i < MRS; i++)
		if (w.mr[i].live)
			drop(&w, &w.mr[i]);
	sdma_keytab_destroy(&w.keys);
	sdma_ranges_destroy(&w.ranges);
	return 0;
}
