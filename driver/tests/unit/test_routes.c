// SPDX-License-Identifier: GPL-2.0
#include "core/routes.h"
#include "unit.h"

enum { ABSENT, LOCAL, REMOTE, DOWN };

static void table(void)
{
	struct stepccl_dma_route r;
	struct sdma_routes t;

	sdma_fail_alloc = 1;
	CHECK(sdma_routes_init(&t) == -ENOMEM);
	CHECK(sdma_routes_init(&t) == 0);
	CHECK(sdma_routes_next(&t, 0, &r) == -ENOENT);
	CHECK(sdma_routes_set(&t, 3, LOCAL, 1) == 0);
	CHECK(sdma_routes_set(&t, 65535, REMOTE, -1) == 0);
	CHECK(sdma_routes_set(&t, 4, 4, -1) == -EINVAL);
	CHECK(sdma_routes_set(&t, 4, LOCAL, -2) == -EINVAL);
	CHECK(sdma_routes_set(&t, 4, LOCAL, 0x8000) == -EINVAL);
	CHECK(sdma_routes_set(&t, 4, REMOTE, 0) == -EINVAL);
	r = sdma_routes_get(&t, 3);
	CHECK(r.node == 3 && r.state == LOCAL && r.numa_node == 1);
	r = sdma_routes_get(&t, 4);
	CHECK(r.state == ABSENT && r.numa_node == -1);
	CHECK(sdma_routes_next(&t, 0, &r) == 0 && r.node == 3);
	CHECK(sdma_routes_next(&t, 4, &r) == 0 && r.node == 65535 && r.numa_node == -1);
	CHECK(sdma_routes_next(&t, 65536, &r) == -ENOENT);
	CHECK(sdma_routes_set(&t, 3, ABSENT, -1) == 0);
	CHECK(sdma_routes_next(&t, 0, &r) == 0 && r.node == 65535);
	sdma_routes_destroy(&t);
}

/* All 32 combinations against the rule in words. */
static void check_all(void)
{
	struct sdma_routes t;
	u16 detail;
	u32 s, d;
	int op;

	CHECK(sdma_routes_init(&t) == 0);
	for (s = ABSENT; s <= DOWN; s++)
		for (d = ABSENT; d <= DOWN; d++)
			for (op = 1; op <= 2; op++) {
				u32 mine = op == STEPCCL_DMA_OP_READ ? d : s;
				int want = 0;

				sdma_routes_set(&t, 1, s, -1);
				sdma_routes_set(&t, 2, d, -1);
				if (s == REMOTE || d == REMOTE)
					want = -EREMOTE;
				if (mine != LOCAL)
					want = -EDESTADDRREQ;
				if (s == DOWN || d == DOWN)
					want = -ENETDOWN;
				if (s == ABSENT || d == ABSENT)
					want = -EHOSTUNREACH;
				CHECK(sdma_routes_check(&t, (u8)op, 1, 2, &detail) == want);
				CHECK(!detail == !want);
			}
	sdma_routes_destroy(&t);
}

void test_routes(void)
{
	table();
	check_all();
}
