// SPDX-License-Identifier: GPL-2.0
#include "extents.h"

#define FIRST_CAPACITY 8u

void sdma_extents_init(struct sdma_extents *x, u32 offset)
{
	memset(x, 0, sizeof(*x));
	x->offset = offset;
}

void sdma_extents_destroy(struct sdma_extents *x)
{
	sdma_free(x->v);
	memset(x, 0, sizeof(*x));
}

u64 sdma_extents_run(const struct sdma_extents *x, u64 i)
{
	u64 end = i + 1 < x->n ? x->v[i + 1].first : x->pages;

	return end - x->v[i].first;
}

int sdma_extents_append(struct sdma_extents *x, u64 pfn)
{
	u64 capacity = x->capacity ? x->capacity * 2 : FIRST_CAPACITY;
	struct sdma_extent *v;

	if (x->n) {
		const struct sdma_extent *last = &x->v[x->n - 1];

		if (pfn == last->pfn + (x->pages - last->first)) {
			x->pages++;
			return 0;
		}
	}
	if (x->n == x->capacity) {
		v = sdma_zalloc(capacity, sizeof(*v));
		if (!v)
			return -ENOMEM;
		if (x->n)
			memcpy(v, x->v, x->n * sizeof(*v));
		sdma_free(x->v);
		x->v = v;
		x->capacity = capacity;
	}
	x->v[x->n].first = x->pages;
	x->v[x->n].pfn = pfn;
	x->n++;
	x->pages++;
	return 0;
}

void sdma_cursor_seek(struct sdma_cursor *c, const struct sdma_extents *x, u64 byte)
{
	u64 at = byte + x->offset;
	u64 lo = 0, hi = x->n;

	c->x = x;
	c->page = at >> SDMA_PAGE_SHIFT;
	c->offset = at & (SDMA_PAGE_SIZE - 1);
	while (hi - lo > 1) {
		u64 mid = lo + (hi - lo) / 2;

		if (x->v[mid].first <= c->page)
			lo = mid;
		else
			hi = mid;
	}
	c->run = lo;
}

u64 sdma_cursor_frame(const struct sdma_cursor *c, u32 *left)
{
	const struct sdma_extent *e = &c->x->v[c->run];

	*left = (u32)(SDMA_PAGE_SIZE - c->offset);
	return e->pfn + (c->page - e->first);
}

void sdma_cursor_advance(struct sdma_cursor *c, u32 bytes)
{
	c->offset += bytes;
	if (c->offset < SDMA_PAGE_SIZE)
		return;
	c->offset = 0;
	c->page++;
	if (c->run + 1 < c->x->n && c->page == c->x->v[c->run + 1].first)
		c->run++;
}
