// SPDX-License-Identifier: GPL-2.0
/*
 * The CPU path. It runs in the caller's own call, so time and memory are
 * charged to the caller; every step it gives the CPU away and looks whether it
 * should stop.
 */
#include <linux/highmem.h>
#include <linux/ktime.h>
#include <linux/sched/signal.h>

#include "fault.h"
#include "sdma.h"

/* Applied to two mapped stretches; returns bytes handled, less than @n to stop. */
typedef u32 (*stretch_fn)(void *dst, const void *src, u32 n);

static u32 copy_stretch(void *dst, const void *src, u32 n)
{
	memcpy(dst, src, n);
	return n;
}

static u32 compare_stretch(void *dst, const void *src, u32 n)
{
	const u8 *a = dst, *b = src;
	u32 i;

	if (!memcmp(a, b, n))
		return n;
	for (i = 0; i < n && READ_ONCE(a[i]) == READ_ONCE(b[i]); i++)
		;
	return i;
}

/* One step of at most SDMA_CPU_STEP bytes; returns how many were handled. */
static u32 step(struct sdma_cursor *dst, struct sdma_cursor *src, u32 bytes, stretch_fn fn)
{
	u32 done = 0;

	sdma_fault_step();
	while (done < bytes) {
		u32 src_left, dst_left, n, handled;
		struct page *from = pfn_to_page(sdma_cursor_frame(src, &src_left));
		struct page *to = pfn_to_page(sdma_cursor_frame(dst, &dst_left));
		void *s, *d;

		n = min3(bytes - done, src_left, dst_left);
		s = kmap_local_page(from);
		d = kmap_local_page(to);
		handled = fn(d + dst->offset, s + src->offset, n);
		kunmap_local(d);
		kunmap_local(s);
		flush_dcache_page(to);
		done += handled;
		if (handled < n)
			break;
		sdma_cursor_advance(src, n);
		sdma_cursor_advance(dst, n);
	}
	return done;
}

/* Why the copy should stop now: 0 or an errno with *@detail. */
static int stop_reason(struct sdma_op *op, u16 *detail)
{
	if (test_bit(SDMA_MEM_ABORT, &op->src.mr->mem->flags) ||
	    test_bit(SDMA_MEM_ABORT, &op->dst.mr->mem->flags)) {
		*detail = STEPCCL_DMA_DETAIL_OWNER_GONE;
		return -ECANCELED;
	}
	if (fatal_signal_pending(current)) {
		*detail = STEPCCL_DMA_DETAIL_KILLED;
		return -EINTR;
	}
	if (ktime_get_ns() > op->deadline_ns) {
		*detail = STEPCCL_DMA_DETAIL_TIMEOUT;
		return -ETIMEDOUT;
	}
	return 0;
}

/* Walks both sides with @fn; *@done counts the bytes handled. */
static int walk(struct sdma_op *op, stretch_fn fn, u32 *done, u16 *detail)
{
	struct sdma_cursor src, dst;
	int ret;

	sdma_cursor_seek(&src, &op->src.mr->mem->pages, op->src_off);
	sdma_cursor_seek(&dst, &op->dst.mr->mem->pages, op->dst_off);
	for (*done = 0; *done < op->sqe.length;) {
		u32 n = min(op->sqe.length - *done, SDMA_CPU_STEP);
		u32 handled = step(&dst, &src, n, fn);

		*done += handled;
		if (handled < n) {
			*detail = STEPCCL_DMA_DETAIL_VERIFY;
			return -EBADMSG;
		}
		if (*done == op->sqe.length)
			break;
		ret = stop_reason(op, detail);
		if (ret)
			return ret;
		cond_resched();
	}
	return 0;
}

void sdma_copy_cpu(struct sdma_op *op)
{
	struct stepccl_dma_cqe *cqe = &op->cqe;
	u32 compared;

	cqe->flags = STEPCCL_DMA_CQE_CPU;
	cqe->res = walk(op, copy_stretch, &cqe->bytes, &cqe->detail);
	sdma_count(op->ctx, SDMA_C_bytes_cpu, cqe->bytes);
	if (cqe->res || !(op->sqe.flags & STEPCCL_DMA_SQE_VERIFY))
		return;
	cqe->res = walk(op, compare_stretch, &compared, &cqe->detail);
	if (cqe->res != -EBADMSG)
		return;
	cqe->bytes = compared;
	sdma_count(op->ctx, SDMA_C_verify_mismatch, 1);
	sdma_log(op->ctx->file, SDMA_DE304, -EBADMSG, "verify mismatch ctx=%u offset=%u",
		 op->ctx->id, compared);
}
