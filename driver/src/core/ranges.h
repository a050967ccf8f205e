/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Registered address ranges, found by containment. Ranges may overlap. Sorted
 * by start; for each access need, best[] holds the index of the range that
 * reaches furthest among those up to that place, so a lookup is one binary
 * search and insertion is linear (thousands of entries at most).
 */
#ifndef SDMA_RANGES_H
#define SDMA_RANGES_H

#include "env.h"

#define SDMA_RANGE_NEEDS 4	/* any, READ, WRITE, both: the access bits as a number */

struct sdma_range {
	u64 start;
	u64 end;		/* exclusive; never below start */
	void *obj;
	u32 access;
	u32 best[SDMA_RANGE_NEEDS];
};

struct sdma_ranges {
	struct sdma_range *v;
	u32 n;
	u32 capacity;
};

void sdma_ranges_init(struct sdma_ranges *r);
void sdma_ranges_destroy(struct sdma_ranges *r);

/* @len > 0 and @start + @len doesn't wrap. Returns 0 or -ENOMEM. */
int sdma_ranges_add(struct sdma_ranges *r, u64 start, u64 len, u32 access, void *obj);

/* Removes the range of @obj; false when it has none. */
bool sdma_ranges_remove(struct sdma_ranges *r, const void *obj);

/*
 * An object whose single range holds all of [@start, @start + @len), one that
 * grants @need if there is any, else any other, else NULL.
 */
void *sdma_ranges_find(const struct sdma_ranges *r, u64 start, u64 len, u32 need);

#endif /* SDMA_RANGES_H */
