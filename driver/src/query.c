// SPDX-License-Identifier: GPL-2.0
/* QUERY: read-only answers, one struct for each sub-op. */
#include <linux/uaccess.h>

#include "sdma.h"

union answer {
	struct stepccl_dma_limits limits;
	struct stepccl_dma_engine_info engine;
	struct stepccl_dma_counters counters;
	struct stepccl_dma_last_error last_error;
	struct stepccl_dma_route route;
};

static int counters(struct sdma_file *f, u32 index, struct stepccl_dma_counters *out)
{
	struct sdma_ctx *ctx = sdma_file_ctx(f);

	if (index > 1 || (index && !ctx))
		return -ENOENT;
	sdma_counters_get(index ? &ctx->counters : &sdma_counters_global, out);
	return 0;
}

/* Fills in @out; returns its size or an errno. */
static int answer(struct sdma_file *f, const struct stepccl_dma_query *q, union answer *out)
{
	int ret;

	switch (q->op) {
	case STEPCCL_DMA_QUERY_LIMITS:
		if (q->index)
			return -ENOENT;
		sdma_limits_get(&out->limits);
		return sizeof(out->limits);
	case STEPCCL_DMA_QUERY_ENGINE:
		ret = sdma_engine_info(q->index, &out->engine);
		return ret ? ret : sizeof(out->engine);
	case STEPCCL_DMA_QUERY_COUNTERS:
		ret = counters(f, q->index, &out->counters);
		return ret ? ret : sizeof(out->counters);
	case STEPCCL_DMA_QUERY_LAST_ERROR:
		if (q->index > 1)
			return -ENOENT;
		sdma_last_get(q->index ? &f->last : &sdma_last_global, &out->last_error);
		return sizeof(out->last_error);
	case STEPCCL_DMA_QUERY_ROUTE:
		ret = sdma_routes_next(&sdma_route_table, q->index, &out->route);
		return ret ? ret : sizeof(out->route);
	default:
		return -EOPNOTSUPP;
	}
}

int sdma_call_query(struct sdma_file *f, void *arg, const struct sdma_reply *r)
{
	struct stepccl_dma_query *q = arg;
	void __user *to = u64_to_user_ptr(q->data);
	union answer a;
	u32 room = q->data_size;
	u32 n;
	int ret;

	memset(&a, 0, sizeof(a));
	ret = answer(f, q, &a);
	if (ret < 0)
		return ret;
	q->data_size = ret;
	n = min_t(u32, room, ret);
	if (copy_to_user(to, &a, n))
		return -EFAULT;
	if (room > n && clear_user(to + n, min_t(u32, room, PAGE_SIZE) - n))
		return -EFAULT;
	return 0;
}
