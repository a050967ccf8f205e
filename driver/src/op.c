// SPDX-License-Identifier: GPL-2.0
/* One operation: check, hold the memory, choose the path, run, report. */
#include <linux/ktime.h>
#include <linux/timekeeping.h>

#include "sdma.h"

static void report_bad(struct sdma_op *op, int err, u16 detail)
{
	const struct stepccl_dma_sqe *s = &op->sqe;
	u16 node = detail == STEPCCL_DMA_DETAIL_DST_NODE ? s->dst_node : s->src_node;

	switch (err) {
	case -EREMOTE:
		sdma_log(op->ctx->file, SDMA_DE202, err,
			 "node %u is remote, refused (EREMOTE); use the RDMA transport", node);
		break;
	case -EHOSTUNREACH:
		sdma_log(op->ctx->file, SDMA_DE203, err,
			 "node %u not in routing table (EHOSTUNREACH)", node);
		break;
	default:
		sdma_log(op->ctx->file, SDMA_DE201, err,
			 "bad descriptor ctx=%u op=0x%02x detail=%u err=%d", op->ctx->id, s->opcode,
			 detail, err);
	}
}

void sdma_op_refuse(struct sdma_op *op, int err, u16 detail)
{
	op->cqe.user_data = op->sqe.user_data;
	op->cqe.res = err;
	op->cqe.detail = detail;
	op->cqe.engine = STEPCCL_DMA_ENGINE_CPU;
	sdma_count(op->ctx, err == -ECANCELED ? SDMA_C_ops_cancelled : SDMA_C_ops_failed, 1);
}

static struct sdma_span span_of(const struct sdma_ref *ref, u64 addr)
{
	const struct sdma_mem *m = ref->mr->mem;

	return (struct sdma_span) {
		.addr = addr,
		.base = ref->base,
		.len = m->len,
		.va = m->va,
		.owner = m->mm,
		.access = ref->mr->access,
	};
}

/* Holds both sides and checks the operation against them. */
static int hold(struct sdma_op *op, u16 *detail)
{
	const struct stepccl_dma_sqe *s = &op->sqe;
	struct sdma_span src, dst;
	int ret;

	*detail = STEPCCL_DMA_DETAIL_SRC_KEY;
	ret = sdma_mr_hold(op->ctx, s->src_key, s->src, s->length, STEPCCL_DMA_ACCESS_READ,
			   &op->src);
	if (ret)
		return ret;
	*detail = STEPCCL_DMA_DETAIL_DST_KEY;
	ret = sdma_mr_hold(op->ctx, s->dst_key, s->dst, s->length, STEPCCL_DMA_ACCESS_WRITE,
			   &op->dst);
	if (ret)
		return ret;
	src = span_of(&op->src, s->src);
	dst = span_of(&op->dst, s->dst);
	op->src_off = src.addr - src.base;
	op->dst_off = dst.addr - dst.base;
	return sdma_check_spans(&src, &dst, s->length, detail);
}

/* The one place where a path is chosen. */
static int carry(struct sdma_op *op, u16 *detail)
{
	static const enum sdma_counter by_reason[SDMA_FALLBACKS] = {
		[SDMA_FALLBACK_NO_ENGINE] = SDMA_C_cpu_no_engine,
		[SDMA_FALLBACK_SMALL] = SDMA_C_cpu_small,
		[SDMA_FALLBACK_ALIGN] = SDMA_C_cpu_align,
		[SDMA_FALLBACK_QUARANTINED] = SDMA_C_cpu_quarantined,
		[SDMA_FALLBACK_BUSY] = SDMA_C_cpu_busy,
		[SDMA_FALLBACK_POLICY] = SDMA_C_cpu_policy,
	};
	int numa = sdma_routes_get(&sdma_route_table, op->sqe.dst_node).numa_node;
	struct sdma_engine *e = sdma_engine_near(numa);
	struct sdma_engine_view view = {
		.present = e,
		.quarantined = e && e->info.state != STEPCCL_DMA_ENGINE_READY,
		.align_bytes = e ? e->info.align_bytes : 0,
	};
	enum sdma_fallback why = SDMA_FALLBACK_BUSY;
	int ret;

	ret = sdma_path_choose(&op->sqe, op->ctx->policy, sdma_param(SDMA_P_dma_min_bytes), &view,
			       &why, detail);
	if (ret < 0)
		return ret;
	if (ret > 0) {
		ret = e->ops->run(e, op);
		if (ret != -EBUSY)
			return ret;
		*detail = STEPCCL_DMA_DETAIL_BUSY;
		if (op->ctx->policy == STEPCCL_DMA_POLICY_REQUIRE_DMA ||
		    op->sqe.flags & STEPCCL_DMA_SQE_NO_CPU)
			return -EAGAIN;
	}
	sdma_count(op->ctx, by_reason[why], 1);
	sdma_copy_cpu(op);
	*detail = op->cqe.detail;
	return op->cqe.res;
}

void sdma_op_run(struct sdma_op *op)
{
	const struct stepccl_dma_sqe *s = &op->sqe;
	u32 timeout_ms = s->timeout_ms ? s->timeout_ms : sdma_param(SDMA_P_op_timeout_ms);
	u16 detail;
	int ret;

	op->start_ns = ktime_get_ns();
	op->deadline_ns = op->start_ns + (u64)timeout_ms * NSEC_PER_MSEC;
	op->cqe.user_data = s->user_data;
	op->cqe.engine = STEPCCL_DMA_ENGINE_CPU;

	ret = sdma_check_request(s, &sdma_route_table, sdma_param(SDMA_P_max_op_bytes), &detail);
	if (!ret)
		ret = hold(op, &detail);
	if (ret)
		report_bad(op, ret, detail);
	else
		ret = carry(op, &detail);
	sdma_mr_release(op->ctx, &op->src);
	sdma_mr_release(op->ctx, &op->dst);

	op->cqe.res = ret;
	op->cqe.detail = detail;
	op->cqe.nsec = ktime_get_ns() - op->start_ns;
	if (ret == -ECANCELED)
		sdma_count(op->ctx, SDMA_C_ops_cancelled, 1);
	else if (ret)
		sdma_count(op->ctx, SDMA_C_ops_failed, 1);
	else
		sdma_count(op->ctx, s->opcode == STEPCCL_DMA_OP_READ ? SDMA_C_ops_read :
			   SDMA_C_ops_write, 1);
}

int sdma_call_submit_one(struct sdma_file *f, void *arg, const struct sdma_reply *r)
{
	struct stepccl_dma_submit_one *a = arg;
	struct sdma_op op = { .ctx = sdma_file_ctx(f) };

	op.sqe = (struct stepccl_dma_sqe) {
		.src = a->desc.src,
		.dst = a->desc.dst,
		.length = a->desc.length,
		.src_node = a->desc.src_node,
		.dst_node = a->desc.dst_node,
		.opcode = a->desc.opcode,
		.flags = a->flags,
		.timeout_ms = a->timeout_ms,
		.src_key = a->src_key,
		.dst_key = a->dst_key,
	};
	if (a->flags & ~(STEPCCL_DMA_SQE_NO_CPU | STEPCCL_DMA_SQE_VERIFY))
		sdma_op_refuse(&op, -EINVAL, STEPCCL_DMA_DETAIL_FLAGS);
	else if (memchr_inv(a->desc.reserved, 0, sizeof(a->desc.reserved)))
		sdma_op_refuse(&op, -EINVAL, STEPCCL_DMA_DETAIL_RESERVED);
	else
		sdma_op_run(&op);
	a->bytes = op.cqe.bytes;
	a->cqe_flags = op.cqe.flags;
	a->detail = op.cqe.detail;
	a->engine = op.cqe.engine;
	a->nsec = op.cqe.nsec;
	return op.cqe.res;
}
