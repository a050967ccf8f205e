// SPDX-License-Identifier: GPL-2.0
#include <linux/numa.h>

#include "sdma.h"

/* Written only while the module loads and unloads. */
static LIST_HEAD(engines);

u32 sdma_engine_count(void)
{
	struct sdma_engine *e;
	u32 n = 0;

	list_for_each_entry(e, &engines, link)
		n++;
	return n;
}

int sdma_engine_info(u32 index, struct stepccl_dma_engine_info *out)
{
	struct sdma_engine *e;

	list_for_each_entry(e, &engines, link)
		if (e->index == index) {
			*out = e->info;
			return 0;
		}
	return -ENOENT;
}

struct sdma_engine *sdma_engine_near(int numa_node)
{
	struct sdma_engine *e, *ready = NULL, *other = NULL;

	list_for_each_entry(e, &engines, link) {
		if (READ_ONCE(e->info.state) != STEPCCL_DMA_ENGINE_READY)
			other = e;
		else if (e->info.numa_node == numa_node)
			return e;
		else
			ready = e;
	}
	return ready ? ready : other;
}
