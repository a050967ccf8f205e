// SPDX-License-Identifier: GPL-2.0
#include "ring.h"

static int round_entries(u32 wanted, u32 *entries)
{
	if (!wanted || wanted > SDMA_RING_MAX)
		return -EINVAL;
	*entries = roundup_pow_of_two(wanted);
	if (*entries < SDMA_RING_MIN)
		*entries = SDMA_RING_MIN;
	return 0;
}

int sdma_ring_plan(u32 sq_entries, u32 cq_entries, struct sdma_ring_layout *l)
{
	u64 end;

	memset(l, 0, sizeof(*l));
	if (round_entries(sq_entries, &l->sq_entries) ||
	    round_entries(cq_entries ? cq_entries : sq_entries, &l->cq_entries))
		return -EINVAL;
	l->off_sq_head = SDMA_LINE;
	l->off_sq_tail = 2 * SDMA_LINE;
	l->off_cq_head = 3 * SDMA_LINE;
	l->off_cq_tail = 4 * SDMA_LINE;
	l->off_sqes = 5 * SDMA_LINE;
	l->off_cqes = l->off_sqes + l->sq_entries * (u32)sizeof(struct stepccl_dma_sqe);
	end = (u64)l->off_cqes + (u64)l->cq_entries * sizeof(struct stepccl_dma_cqe);
	l->bytes = (end + SDMA_PAGE_SIZE - 1) & ~(SDMA_PAGE_SIZE - 1);
	return 0;
}

int sdma_ring_filled(u32 head, u32 tail, u32 entries, u32 *filled)
{
	*filled = tail - head;
	return *filled > entries ? -EPROTO : 0;
}
