/* SPDX-License-Identifier: GPL-2.0 */
/* The routing table: what each 16-bit node id is. Readers take no lock. */
#ifndef SDMA_ROUTES_H
#define SDMA_ROUTES_H

#include <linux/stepccl_dma.h>

#include "env.h"

#define SDMA_NODES 65536u

/* An entry is one word, so that a reader sees it whole: state | numa << 16. */
struct sdma_routes {
	u32 *entry;
};

/* Returns 0 or -ENOMEM; all nodes absent. */
int sdma_routes_init(struct sdma_routes *t);
void sdma_routes_destroy(struct sdma_routes *t);

/* -EINVAL: unknown state, or a NUMA node where only a LOCAL one may have it. */
int sdma_routes_set(struct sdma_routes *t, u16 node, u32 state, s32 numa_node);

struct stepccl_dma_route sdma_routes_get(const struct sdma_routes *t, u16 node);

/* First entry that isn't absent with node >= @from; -ENOENT when none is left. */
int sdma_routes_next(const struct sdma_routes *t, u32 from, struct stepccl_dma_route *out);

/*
 * May @opcode go from @src to @dst here? Returns 0, -EHOSTUNREACH (absent),
 * -ENETDOWN, -EDESTADDRREQ (the submitter's side isn't local), -EREMOTE; the
 * first that applies in this order, the source before the destination.
 */
int sdma_routes_check(const struct sdma_routes *t, u8 opcode, u16 src, u16 dst, u16 *detail);

#endif /* SDMA_ROUTES_H */
