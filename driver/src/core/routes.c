// SPDX-License-Identifier: GPL-2.0
#include "routes.h"

int sdma_routes_init(struct sdma_routes *t)
{
	t->entry = sdma_zalloc(SDMA_NODES, sizeof(*t->entry));
	return t->entry ? 0 : -ENOMEM;
}

void sdma_routes_destroy(struct sdma_routes *t)
{
	sdma_free(t->entry);
	t->entry = NULL;
}

int sdma_routes_set(struct sdma_routes *t, u16 node, u32 state, s32 numa_node)
{
	if (state > STEPCCL_DMA_ROUTE_DOWN || numa_node < -1 || numa_node > 0x7fff)
		return -EINVAL;
	if (state != STEPCCL_DMA_ROUTE_LOCAL && numa_node != -1)
		return -EINVAL;
	WRITE_ONCE(t->entry[node], state | (u32)(u16)numa_node << 16);
	return 0;
}

struct stepccl_dma_route sdma_routes_get(const struct sdma_routes *t, u16 node)
{
	u32 e = READ_ONCE(t->entry[node]);
	struct stepccl_dma_route r = {
		.node = node,
		.state = e & 0xff,
		.numa_node = (s16)(e >> 16),
	};

	if (r.state == STEPCCL_DMA_ROUTE_ABSENT)
		r.numa_node = -1;
	return r;
}

int sdma_routes_next(const struct sdma_routes *t, u32 from, struct stepccl_dma_route *out)
{
	for (; from < SDMA_NODES; from++) {
		*out = sdma_routes_get(t, from);
		if (out->state != STEPCCL_DMA_ROUTE_ABSENT)
			return 0;
	}
	return -ENOENT;
}

int sdma_routes_check(const struct sdma_routes *t, u8 opcode, u16 src, u16 dst, u16 *detail)
{
	u8 s = sdma_routes_get(t, src).state;
	u8 d = sdma_routes_get(t, dst).state;
	static const struct {
		u8 state;
		int err;
	} refused[] = {
		{ STEPCCL_DMA_ROUTE_ABSENT, -EHOSTUNREACH },
		{ STEPCCL_DMA_ROUTE_DOWN, -ENETDOWN },
	};
	bool side_local;
	size_t i;

	for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		if (s == refused[i].state) {
			*detail = STEPCCL_DMA_DETAIL_SRC_NODE;
			return refused[i].err;
		}
		if (d == refused[i].state) {
			*detail = STEPCCL_DMA_DETAIL_DST_NODE;
			return refused[i].err;
		}
	}
	side_local = (opcode == STEPCCL_DMA_OP_READ ? d : s) == STEPCCL_DMA_ROUTE_LOCAL;
	*detail = opcode == STEPCCL_DMA_OP_READ ? STEPCCL_DMA_DETAIL_DST_NODE :
						  STEPCCL_DMA_DETAIL_SRC_NODE;
	if (!side_local)
		return -EDESTADDRREQ;
	*detail = opcode == STEPCCL_DMA_OP_READ ? STEPCCL_DMA_DETAIL_SRC_NODE :
						  STEPCCL_DMA_DETAIL_DST_NODE;
	if (s == STEPCCL_DMA_ROUTE_REMOTE || d == STEPCCL_DMA_ROUTE_REMOTE)
		return -EREMOTE;
	*detail = STEPCCL_DMA_DETAIL_NONE;
	return 0;
}
