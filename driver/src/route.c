// SPDX-License-Identifier: GPL-2.0
/* The system-wide routing table and its text form in sysfs. */
#include <linux/capability.h>
#include <linux/nodemask.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "sdma.h"

struct sdma_routes sdma_route_table;

static const char * const state_names[] = {
	[STEPCCL_DMA_ROUTE_ABSENT] = "absent",
	[STEPCCL_DMA_ROUTE_LOCAL] = "local",
	[STEPCCL_DMA_ROUTE_REMOTE] = "remote",
	[STEPCCL_DMA_ROUTE_DOWN] = "down",
};

int sdma_route_init(void)
{
	int ret = sdma_routes_init(&sdma_route_table);

	if (ret)
		return ret;
	return sdma_routes_set(&sdma_route_table, sdma_param(SDMA_P_local_node),
			       STEPCCL_DMA_ROUTE_LOCAL, -1);
}

void sdma_route_exit(void)
{
	sdma_routes_destroy(&sdma_route_table);
}

int sdma_routes_apply(u16 node, u32 state, s32 numa_node)
{
	if (numa_node >= MAX_NUMNODES)
		return -EINVAL;
	return sdma_routes_set(&sdma_route_table, node, state, numa_node);
}

static bool continues(const struct stepccl_dma_route *first, const struct stepccl_dma_route *next,
		      u32 expected)
{
	return next->node == expected && next->state == first->state &&
	       next->numa_node == first->numa_node;
}

/* One line for each run of equal nodes: "first-last state numa". */
ssize_t sdma_routes_format(char *buf, size_t size)
{
	struct stepccl_dma_route first, next;
	u32 from = 0, last;
	size_t len = 0;

	while (!sdma_routes_next(&sdma_route_table, from, &first)) {
		last = first.node;
		while (!sdma_routes_next(&sdma_route_table, last + 1, &next) &&
		       continues(&first, &next, last + 1))
			last++;
		if (size - len < 64) {
			len += scnprintf(buf + len, size - len, "...\n");
			break;
		}
		len += scnprintf(buf + len, size - len, "%u-%u %s %d\n", first.node, last,
				 state_names[first.state], first.numa_node);
		from = last + 1;
	}
	return len;
}

/* "node state [numa]" as root writes it to the routes file. */
int sdma_routes_parse(const char *line)
{
	char name[8];
	int numa = -1, state, n;
	unsigned int node;

	if (!capable(CAP_NET_ADMIN))
		return -EPERM;
	n = sscanf(line, "%u %7s %d", &node, name, &numa);
	if (n < 2 || node >= SDMA_NODES)
		return -EINVAL;
	state = match_string(state_names, ARRAY_SIZE(state_names), name);
	if (state < 0)
		return -EINVAL;
	return sdma_routes_apply(node, state, numa);
}
