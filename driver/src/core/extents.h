/* SPDX-License-Identifier: GPL-2.0 */
/* A pinned buffer as runs of consecutive page frames, and a cursor over it. */
#ifndef SDMA_EXTENTS_H
#define SDMA_EXTENTS_H

#include "env.h"

struct sdma_extent {
	u64 first;		/* index in the buffer of its first page */
	u64 pfn;
};

struct sdma_extents {
	struct sdma_extent *v;
	u64 n;
	u64 capacity;
	u64 pages;
	u32 offset;		/* of byte 0 in page 0 */
};

void sdma_extents_init(struct sdma_extents *x, u32 offset);
void sdma_extents_destroy(struct sdma_extents *x);

/* Appends one page; joins it to the last run where it continues it. 0 or -ENOMEM. */
int sdma_extents_append(struct sdma_extents *x, u64 pfn);

/* Pages of run @i. */
u64 sdma_extents_run(const struct sdma_extents *x, u64 i);

/* A place in the buffer. */
struct sdma_cursor {
	const struct sdma_extents *x;
	u64 run;
	u64 page;		/* index in the buffer */
	u32 offset;		/* in that page */
};

/* Puts the cursor on byte @byte of the buffer, which must be inside it. */
void sdma_cursor_seek(struct sdma_cursor *c, const struct sdma_extents *x, u64 byte);

/* Frame under the cursor; *@left is the number of bytes to the end of its page. */
u64 sdma_cursor_frame(const struct sdma_cursor *c, u32 *left);

/* Moves on by @bytes, at most to the end of the page. */
void sdma_cursor_advance(struct sdma_cursor *c, u32 bytes);

#endif /* SDMA_EXTENTS_H */
