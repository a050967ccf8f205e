/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The engines that can carry an operation instead of the CPU. A provider fills
 * in struct sdma_engine and puts it on the list at load; everything above asks
 * only these functions.
 */
#ifndef SDMA_ENGINE_H
#define SDMA_ENGINE_H

#include <linux/list.h>
#include <linux/stepccl_dma.h>

#include "core/check.h"

struct sdma_engine;
struct sdma_op;

struct sdma_engine_ops {
	/*
	 * Carries the prepared operation and fills in op->cqe; returns when the
	 * engine no longer touches its memory. -EBUSY: not taken, nothing done.
	 */
	int (*run)(struct sdma_engine *e, struct sdma_op *op);
};

struct sdma_engine {
	struct list_head link;
	const struct sdma_engine_ops *ops;
	u32 index;
	struct stepccl_dma_engine_info info;
};

u32 sdma_engine_count(void);

/* Copies what is known of engine @index; -ENOENT. */
int sdma_engine_info(u32 index, struct stepccl_dma_engine_info *out);

/* The ready engine nearest to @numa_node (-1: any), else one in quarantine, else NULL. */
struct sdma_engine *sdma_engine_near(int numa_node);

#endif /* SDMA_ENGINE_H */
