// SPDX-License-Identifier: GPL-2.0
#include "core/ranges.h"
#include "unit.h"

#define R STEPCCL_DMA_ACCESS_READ
#define W STEPCCL_DMA_ACCESS_WRITE

static void basics(void)
{
	struct sdma_ranges r;
	int a, b, c;

	sdma_ranges_init(&r);
	CHECK(sdma_ranges_find(&r, 0, 1, 0) == NULL);
	CHECK(sdma_ranges_add(&r, 1000, 100, R | W, &a) == 0);
	CHECK(sdma_ranges_find(&r, 1000, 100, R) == &a);
	CHECK(sdma_ranges_find(&r, 1099, 1, W) == &a);
	CHECK(sdma_ranges_find(&r, 1099, 2, W) == NULL);
	CHECK(sdma_ranges_find(&r, 999, 2, W) == NULL);
	CHECK(sdma_ranges_find(&r, ~0ull - 5, 100, R) == NULL);
	/* Two neighbours don't make one range. */
	CHECK(sdma_ranges_add(&r, 1100, 100, R, &b) == 0);
	CHECK(sdma_ranges_find(&r, 1050, 100, R) == NULL);
	CHECK(sdma_ranges_find(&r, 1100, 100, R) == &b);
	/* One around both is found for what reaches over. */
	CHECK(sdma_ranges_add(&r, 900, 1000, R, &c) == 0);
	CHECK(sdma_ranges_find(&r, 1050, 100, R) == &c);
	/* Where only one grants the access, that one is taken. */
	CHECK(sdma_ranges_find(&r, 1010, 10, W) == &a);
	/* Where none does, any is, for the access error that follows. */
	CHECK(sdma_ranges_find(&r, 1500, 10, W) == &c);
	CHECK(sdma_ranges_remove(&r, &c));
	CHECK(!sdma_ranges_remove(&r, &c));
	CHECK(sdma_ranges_find(&r, 1050, 100, R) == NULL);
	CHECK(sdma_ranges_add(&r, ~0ull - 10, 10, R, &c) == 0);
	CHECK(sdma_ranges_find(&r, ~0ull - 10, 10, R) == &c);
	sdma_ranges_destroy(&r);
}

static void failing_memory(void)
{
	struct sdma_ranges r;
	int obj[17], i;

	sdma_ranges_init(&r);
	sdma_fail_alloc = 1;
	CHECK(sdma_ranges_add(&r, 0, 1, R, &obj[0]) == -ENOMEM);
	for (i = 0; i < 16; i++)
		CHECK(sdma_ranges_add(&r, (u64)i * 10, 10, R, &obj[i]) == 0);
	sdma_fail_alloc = 1;
	CHECK(sdma_ranges_add(&r, 160, 10, R, &obj[16]) == -ENOMEM);
	CHECK(sdma_ranges_find(&r, 150, 10, R) == &obj[15]);
	sdma_ranges_destroy(&r);
}

/* Against a search through all. */
static void random_use(void)
{
	enum { N = 200 };
	struct sdma_ranges r;
	struct {
		u64 start, len;
		u32 access;
		bool in;
	} m[N] = {};
	int i, j, wrong = 0;

	sdma_ranges_init(&r);
	for (i = 0; i < 50000; i++) {
		int k = (int)(rnd() % N);
		u64 at = rnd() % 5000, len = 1 + rnd() % 300;
		u32 need = (u32)(rnd() % 4);
		bool some = false, granting = false;
		void *got;

		if (m[k].in) {
			wrong += !sdma_ranges_remove(&r, &m[k]);
			m[k].in = false;
		} else {
			m[k].start = rnd() % 5000;
			m[k].len = 1 + rnd() % 1000;
			m[k].access = (u32)(1 + rnd() % 3);
			m[k].in = true;
			wrong += sdma_ranges_add(&r, m[k].start, m[k].len, m[k].access, &m[k]) != 0;
		}
		for (j = 0; j < N; j++)
			if (m[j].in && m[j].start <= at && m[j].start + m[j].len >= at + len) {
				some = true;
				granting |= (m[j].access & need) == need;
			}
		got = sdma_ranges_find(&r, at, len, need);
		wrong += !!got != some;
		for (j = 0; got && j < N; j++)
			if (got == &m[j])
				wrong += !m[j].in || m[j].start > at ||
					 m[j].start + m[j].len < at + len ||
					 ((m[j].access & need) == need) != granting;
	}
	CHECK(wrong == 0);
	sdma_ranges_destroy(&r);
}

void test_ranges(void)
{
	basics();
	failing_memory();
	random_use();
}
