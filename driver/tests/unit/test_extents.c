// SPDX-License-Identifier: GPL-2.0
#include "core/extents.h"
#include "unit.h"

static void joins(void)
{
	struct sdma_extents x;

	sdma_extents_init(&x, 100);
	CHECK(sdma_extents_append(&x, 50) == 0);
	CHECK(sdma_extents_append(&x, 51) == 0);
	CHECK(sdma_extents_append(&x, 53) == 0);
	CHECK(sdma_extents_append(&x, 52) == 0);
	CHECK(sdma_extents_append(&x, 53) == 0);
	CHECK(x.n == 3 && x.pages == 5);
	CHECK(sdma_extents_run(&x, 0) == 2 && sdma_extents_run(&x, 1) == 1 &&
	      sdma_extents_run(&x, 2) == 2);
	sdma_extents_destroy(&x);

	sdma_extents_init(&x, 0);
	sdma_fail_alloc = 1;
	CHECK(sdma_extents_append(&x, 1) == -ENOMEM && x.pages == 0);
	sdma_extents_destroy(&x);
}

/* Walks random buffers and compares each place with a flat list of frames. */
static void walks(void)
{
	enum { PAGES = 300 };
	u64 frame[PAGES];
	int round, wrong = 0;

	for (round = 0; round < 300; round++) {
		struct sdma_extents x;
		struct sdma_cursor c;
		u32 n = (u32)(1 + rnd() % PAGES), i, left;
		u64 pfn = rnd() >> 20, bytes, at;

		sdma_extents_init(&x, (u32)(rnd() % SDMA_PAGE_SIZE));
		for (i = 0; i < n; i++) {
			pfn = rnd() % 4 ? pfn + 1 : rnd() >> 20;
			frame[i] = pfn;
			wrong += sdma_extents_append(&x, pfn) != 0;
		}
		bytes = n * SDMA_PAGE_SIZE - x.offset;
		at = rnd() % bytes;
		sdma_cursor_seek(&c, &x, at);
		while (at < bytes) {
			u64 flat = at + x.offset;
			u32 step;

			wrong += sdma_cursor_frame(&c, &left) != frame[flat >> 12] ||
				 c.offset != (flat & 4095) || left != 4096 - c.offset;
			step = rnd() % 2 ? left : (u32)(1 + rnd() % left);
			sdma_cursor_advance(&c, step);
			at += step;
		}
		sdma_extents_destroy(&x);
	}
	CHECK(wrong == 0);
}

void test_extents(void)
{
	joins();
	walks();
}
