// SPDX-License-Identifier: GPL-2.0
#include "check.h"

static int fail(u16 *detail, u16 why, int err)
{
	*detail = why;
	return err;
}

int sdma_check_request(const struct stepccl_dma_sqe *sqe, const struct sdma_routes *routes,
		       u32 max_bytes, u16 *detail)
{
	int ret;

	*detail = STEPCCL_DMA_DETAIL_NONE;
	if (sqe->flags & ~STEPCCL_DMA_SQE_FLAGS)
		return fail(detail, STEPCCL_DMA_DETAIL_FLAGS, -EINVAL);
	if (sqe->prio || sqe->reserved[0] || sqe->reserved[1])
		return fail(detail, STEPCCL_DMA_DETAIL_RESERVED, -EINVAL);
	if (sqe->opcode != STEPCCL_DMA_OP_READ && sqe->opcode != STEPCCL_DMA_OP_WRITE)
		return fail(detail, STEPCCL_DMA_DETAIL_OPCODE, -EOPNOTSUPP);
	ret = sdma_routes_check(routes, sqe->opcode, sqe->src_node, sqe->dst_node, detail);
	if (ret)
		return ret;
	if (!sqe->length)
		return fail(detail, STEPCCL_DMA_DETAIL_LENGTH, -EINVAL);
	if (sqe->length > max_bytes)
		return fail(detail, STEPCCL_DMA_DETAIL_LENGTH, -EMSGSIZE);
	if (sqe->src + sqe->length < sqe->src)
		return fail(detail, STEPCCL_DMA_DETAIL_SRC_WRAP, -EOVERFLOW);
	if (sqe->dst + sqe->length < sqe->dst)
		return fail(detail, STEPCCL_DMA_DETAIL_DST_WRAP, -EOVERFLOW);
	return 0;
}

static bool inside(const struct sdma_span *s, u32 length)
{
	return s->addr >= s->base && s->addr - s->base <= s->len &&
	       s->len - (s->addr - s->base) >= length;
}

int sdma_check_spans(const struct sdma_span *src, const struct sdma_span *dst, u32 length,
		     u16 *detail)
{
	if (!inside(src, length))
		return fail(detail, STEPCCL_DMA_DETAIL_SRC_RANGE, -ERANGE);
	if (!inside(dst, length))
		return fail(detail, STEPCCL_DMA_DETAIL_DST_RANGE, -ERANGE);
	if (src->owner == dst->owner) {
		u64 s = src->va + (src->addr - src->base);
		u64 d = dst->va + (dst->addr - dst->base);

		if ((s < d ? d - s : s - d) < length)
			return fail(detail, STEPCCL_DMA_DETAIL_OVERLAP, -EINVAL);
	}
	if (!(src->access & STEPCCL_DMA_ACCESS_READ))
		return fail(detail, STEPCCL_DMA_DETAIL_SRC_ACCESS, -EACCES);
	if (!(dst->access & STEPCCL_DMA_ACCESS_WRITE))
		return fail(detail, STEPCCL_DMA_DETAIL_DST_ACCESS, -EACCES);
	*detail = STEPCCL_DMA_DETAIL_NONE;
	return 0;
}

int sdma_check_region(u64 addr, u64 len, u64 *pages)
{
	if (!len)
		return -EINVAL;
	if (addr + len < addr)
		return -EOVERFLOW;
	*pages = ((addr + len - 1) >> SDMA_PAGE_SHIFT) - (addr >> SDMA_PAGE_SHIFT) + 1;
	return 0;
}

static int cpu_or(bool cpu_allowed, enum sdma_fallback reason, u16 why, enum sdma_fallback *out,
		  u16 *detail)
{
	*out = reason;
	return cpu_allowed ? 0 : fail(detail, why, -ENODEV);
}

int sdma_path_choose(const struct stepccl_dma_sqe *sqe, u32 policy, u32 dma_min_bytes,
		     const struct sdma_engine_view *engine, enum sdma_fallback *why, u16 *detail)
{
	bool required = policy == STEPCCL_DMA_POLICY_REQUIRE_DMA;
	bool cpu = !required && !(sqe->flags & STEPCCL_DMA_SQE_NO_CPU);

	*detail = STEPCCL_DMA_DETAIL_NONE;
	if (policy == STEPCCL_DMA_POLICY_CPU_ONLY)
		return cpu_or(cpu, SDMA_FALLBACK_POLICY, STEPCCL_DMA_DETAIL_POLICY, why, detail);
	if (!engine->present)
		return cpu_or(cpu, SDMA_FALLBACK_NO_ENGINE, STEPCCL_DMA_DETAIL_NO_ENGINE, why,
			      detail);
	if (engine->quarantined)
		return cpu_or(cpu, SDMA_FALLBACK_QUARANTINED, STEPCCL_DMA_DETAIL_QUARANTINED,
			      why, detail);
	if (engine->align_bytes > 1 &&
	    ((sqe->src | sqe->dst | sqe->length) & (engine->align_bytes - 1)))
		return cpu_or(cpu, SDMA_FALLBACK_ALIGN, STEPCCL_DMA_DETAIL_ALIGN, why, detail);
	if (cpu && sqe->length < dma_min_bytes) {
		*why = SDMA_FALLBACK_SMALL;
		return 0;
	}
	return 1;
}
