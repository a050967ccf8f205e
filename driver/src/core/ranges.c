// SPDX-License-Identifier: GPL-2.0
#include "ranges.h"

#define NONE 0xffffffffu
#define FIRST_CAPACITY 16u

void sdma_ranges_init(struct sdma_ranges *r)
{
	memset(r, 0, sizeof(*r));
}

void sdma_ranges_destroy(struct sdma_ranges *r)
{
	sdma_free(r->v);
	memset(r, 0, sizeof(*r));
}

/* Index of the last range that starts at or before @start, NONE if there is none. */
static u32 last_at_or_before(const struct sdma_ranges *r, u64 start)
{
	u32 lo = 0, hi = r->n;

	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;

		if (r->v[mid].start <= start)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo ? lo - 1 : NONE;
}

static void refresh_best(struct sdma_ranges *r, u32 from)
{
	u32 i, need;

	for (i = from; i < r->n; i++) {
		struct sdma_range *e = &r->v[i];

		for (need = 0; need < SDMA_RANGE_NEEDS; need++) {
			u32 best = i ? r->v[i - 1].best[need] : NONE;

			if ((e->access & need) == need &&
			    (best == NONE || e->end > r->v[best].end))
				best = i;
			e->best[need] = best;
		}
	}
}

static int reserve(struct sdma_ranges *r)
{
	u32 capacity = r->capacity ? r->capacity * 2 : FIRST_CAPACITY;
	struct sdma_range *v;

	if (r->n < r->capacity)
		return 0;
	v = sdma_zalloc(capacity, sizeof(*v));
	if (!v)
		return -ENOMEM;
	if (r->n)
		memcpy(v, r->v, r->n * sizeof(*v));
	sdma_free(r->v);
	r->v = v;
	r->capacity = capacity;
	return 0;
}

int sdma_ranges_add(struct sdma_ranges *r, u64 start, u64 len, u32 access, void *obj)
{
	u32 at;
	int ret = reserve(r);

	if (ret)
		return ret;
	at = last_at_or_before(r, start);
	at = at == NONE ? 0 : at + 1;
	memmove(&r->v[at + 1], &r->v[at], (r->n - at) * sizeof(*r->v));
	r->v[at].start = start;
	r->v[at].end = start + len;
	r->v[at].obj = obj;
	r->v[at].access = access;
	r->n++;
	refresh_best(r, at);
	return 0;
}

bool sdma_ranges_remove(struct sdma_ranges *r, const void *obj)
{
	u32 i;

	for (i = 0; i < r->n; i++)
		if (r->v[i].obj == obj)
			break;
	if (i == r->n)
		return false;
	r->n--;
	memmove(&r->v[i], &r->v[i + 1], (r->n - i) * sizeof(*r->v));
	refresh_best(r, i);
	return true;
}

static void *reaches(const struct sdma_ranges *r, u32 at, u32 need, u64 end)
{
	u32 best = r->v[at].best[need];

	return best != NONE && r->v[best].end >= end ? r->v[best].obj : NULL;
}

void *sdma_ranges_find(const struct sdma_ranges *r, u64 start, u64 len, u32 need)
{
	u32 at = last_at_or_before(r, start);
	void *obj;

	if (at == NONE || start + len < start)
		return NULL;
	obj = reaches(r, at, need & (SDMA_RANGE_NEEDS - 1), start + len);
	return obj ? obj : reaches(r, at, 0, start + len);
}
