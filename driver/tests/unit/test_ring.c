// SPDX-License-Identifier: GPL-2.0
#include "core/ring.h"
#include "unit.h"

static void plan(void)
{
	struct sdma_ring_layout l;
	u32 n;

	CHECK(sdma_ring_plan(0, 8, &l) == -EINVAL);
	CHECK(sdma_ring_plan(8, 4097, &l) == -EINVAL);
	CHECK(sdma_ring_plan(4097, 8, &l) == -EINVAL);
	CHECK(sdma_ring_plan(0xffffffff, 0, &l) == -EINVAL);
	CHECK(sdma_ring_plan(1, 0, &l) == 0 && l.sq_entries == 8 && l.cq_entries == 8);
	CHECK(sdma_ring_plan(9, 33, &l) == 0 && l.sq_entries == 16 && l.cq_entries == 64);
	for (n = 1; n <= 4096; n++) {
		if (sdma_ring_plan(n, 4097 - n, &l) != 0 || l.sq_entries < n ||
		    l.cq_entries < 4097 - n || l.sq_entries & (l.sq_entries - 1) ||
		    l.off_sqes % 64 || l.off_cqes % 32 || l.bytes % 4096 ||
		    l.off_cqes + l.cq_entries * 32ull > l.bytes ||
		    l.off_sqes + l.sq_entries * 64 != l.off_cqes)
			break;
	}
	CHECK(n == 4097);
	CHECK(sdma_ring_plan(8, 8, &l) == 0);
	CHECK(l.off_sq_head >= sizeof(struct stepccl_dma_ring_hdr));
	CHECK(l.off_sq_tail - l.off_sq_head == 64 && l.off_cq_head - l.off_sq_tail == 64 &&
	      l.off_cq_tail - l.off_cq_head == 64 && l.off_sqes - l.off_cq_tail == 64);
}

static void indices(void)
{
	u32 filled;

	CHECK(sdma_ring_filled(0, 0, 8, &filled) == 0 && filled == 0);
	CHECK(sdma_ring_filled(5, 13, 8, &filled) == 0 && filled == 8);
	CHECK(sdma_ring_filled(5, 14, 8, &filled) == -EPROTO);
	CHECK(sdma_ring_filled(5, 4, 8, &filled) == -EPROTO);
	CHECK(sdma_ring_filled(0xfffffffe, 3, 8, &filled) == 0 && filled == 5);
	CHECK(sdma_ring_filled(0xffffffff, 0, 8, &filled) == 0 && filled == 1);
	CHECK(sdma_ring_filled(0, 0xffffffff, 4096, &filled) == -EPROTO);
}

void test_ring(void)
{
	plan();
	indices();
}
