/* SPDX-License-Identifier: GPL-2.0 */
/* Layout and index arithmetic of the rings. Indices run free in 32 bits. */
#ifndef SDMA_RING_H
#define SDMA_RING_H

#include <linux/stepccl_dma.h>

#include "env.h"

#define SDMA_RING_MIN 8u
#define SDMA_RING_MAX 4096u
#define SDMA_LINE 64u

struct sdma_ring_layout {
	u32 sq_entries;
	u32 cq_entries;
	u32 off_sq_head;
	u32 off_sq_tail;
	u32 off_cq_head;
	u32 off_cq_tail;
	u32 off_sqes;
	u32 off_cqes;
	u64 bytes;		/* whole pages */
};

/*
 * Rounds the wanted sizes up and places everything; each index has a cache
 * line of its own. @cq_entries 0 means as many as SQEs. -EINVAL: 0 or too many.
 */
int sdma_ring_plan(u32 sq_entries, u32 cq_entries, struct sdma_ring_layout *l);

/*
 * How many entries stand between the consumer's @head and the producer's
 * @tail in a ring of @entries; one of the two comes from user space.
 * -EPROTO when no honest ring can be in that state.
 */
int sdma_ring_filled(u32 head, u32 tail, u32 entries, u32 *filled);

#endif /* SDMA_RING_H */
