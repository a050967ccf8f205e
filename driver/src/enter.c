// SPDX-License-Identifier: GPL-2.0
/* The rings at work: ENTER takes SQEs and waits for CQEs, CANCEL calls SQEs back. */
#include <linux/hrtimer.h>
#include <linux/sched/signal.h>

#include "compat.h"
#include "sdma.h"

static struct stepccl_dma_ring_hdr *header(struct sdma_ctx *ctx)
{
	return ctx->area;
}

static void set_state(struct sdma_ctx *ctx, u32 bit, bool on)
{
	unsigned long flags;
	u32 state;

	spin_lock_irqsave(&ctx->cq_lock, flags);
	state = (ctx->broken ? STEPCCL_DMA_RING_BROKEN : 0) |
		(READ_ONCE(ctx->failed) ? STEPCCL_DMA_RING_FAILED : 0);
	state = on ? state | bit : state & ~bit;
	WRITE_ONCE(header(ctx)->state, state);
	spin_unlock_irqrestore(&ctx->cq_lock, flags);
}

void sdma_ring_break(struct sdma_ctx *ctx, const char *which, u32 filled, u32 entries)
{
	if (xchg(&ctx->broken, true))
		return;
	set_state(ctx, STEPCCL_DMA_RING_BROKEN, true);
	sdma_log(ctx->file, SDMA_DE204, -EPROTO,
		 "ring corrupt ctx=%u %s tail-head=%u entries=%u, context disabled", ctx->id, which,
		 filled, entries);
	wake_up_all(&ctx->cq_wait);
}

/* Filled CQ slots as seen from the user's head; cq_lock held or an instant's truth. */
static int cq_filled(struct sdma_ctx *ctx, u32 *filled)
{
	u32 head = smp_load_acquire((u32 *)sdma_ring_at(ctx, ctx->lay.off_cq_head));

	return sdma_ring_filled(head, READ_ONCE(ctx->cq_tail), ctx->lay.cq_entries, filled);
}

int sdma_cq_ready(struct sdma_ctx *ctx)
{
	unsigned long flags;
	u32 filled;
	int ret;

	spin_lock_irqsave(&ctx->cq_lock, flags);
	ret = cq_filled(ctx, &filled);
	spin_unlock_irqrestore(&ctx->cq_lock, flags);
	if (ret) {
		sdma_ring_break(ctx, "cq", filled, ctx->lay.cq_entries);
		return ret;
	}
	return filled;
}

/* Promises a CQ slot: 0, -EAGAIN (full), -EPROTO. */
static int cq_reserve(struct sdma_ctx *ctx)
{
	unsigned long flags;
	u32 filled;
	int ret;

	spin_lock_irqsave(&ctx->cq_lock, flags);
	ret = cq_filled(ctx, &filled);
	if (!ret) {
		if (filled + ctx->cq_reserved < ctx->lay.cq_entries)
			ctx->cq_reserved++;
		else
			ret = -EAGAIN;
	}
	spin_unlock_irqrestore(&ctx->cq_lock, flags);
	if (ret == -EPROTO)
		sdma_ring_break(ctx, "cq", filled, ctx->lay.cq_entries);
	return ret;
}

static void cq_unreserve(struct sdma_ctx *ctx)
{
	unsigned long flags;

	spin_lock_irqsave(&ctx->cq_lock, flags);
	ctx->cq_reserved--;
	spin_unlock_irqrestore(&ctx->cq_lock, flags);
}

/* Uses up a reservation. */
static void cq_post(struct sdma_ctx *ctx, const struct stepccl_dma_cqe *cqe)
{
	struct stepccl_dma_cqe *ring = sdma_ring_at(ctx, ctx->lay.off_cqes);
	unsigned long flags;

	spin_lock_irqsave(&ctx->cq_lock, flags);
	ctx->cq_reserved--;
	ring[ctx->cq_tail & (ctx->lay.cq_entries - 1)] = *cqe;
	WRITE_ONCE(ctx->cq_tail, ctx->cq_tail + 1);
	smp_store_release((u32 *)sdma_ring_at(ctx, ctx->lay.off_cq_tail), ctx->cq_tail);
	spin_unlock_irqrestore(&ctx->cq_lock, flags);

	/* Pairs with the barrier of a reader that re-enables the eventfd, then looks at the tail. */
	smp_mb();
	if (ctx->eventfd && !(READ_ONCE(header(ctx)->flags) & STEPCCL_DMA_RING_EVENTFD_OFF))
		sdma_eventfd_signal(ctx->eventfd);
	if (waitqueue_active(&ctx->cq_wait))
		wake_up_all(&ctx->cq_wait);
}

/* Copies the slot once, word by word: user space may be writing to it. */
static void fetch_sqe(struct sdma_ctx *ctx, u32 index, struct stepccl_dma_sqe *out)
{
	struct stepccl_dma_sqe *ring = sdma_ring_at(ctx, ctx->lay.off_sqes);
	const u64 *from = (const u64 *)&ring[index & (ctx->lay.sq_entries - 1)];
	u64 *to = (u64 *)out;
	size_t i;

	for (i = 0; i < sizeof(*out) / sizeof(u64); i++)
		to[i] = READ_ONCE(from[i]);
}

static void open_window(struct sdma_ctx *ctx, u32 count)
{
	spin_lock(&ctx->window_lock);
	ctx->window_end = ctx->sq_head + count;
	bitmap_zero(ctx->cancelled, ctx->lay.sq_entries);
	spin_unlock(&ctx->window_lock);
}

static void close_window(struct sdma_ctx *ctx)
{
	spin_lock(&ctx->window_lock);
	ctx->window_end = ctx->sq_head;
	spin_unlock(&ctx->window_lock);
}

/* Takes the next SQE out of CANCEL's reach and returns whether CANCEL came first. */
static bool take_sqe(struct sdma_ctx *ctx, struct stepccl_dma_sqe *sqe)
{
	bool cancelled;

	spin_lock(&ctx->window_lock);
	fetch_sqe(ctx, ctx->sq_head, sqe);
	cancelled = test_bit(ctx->sq_head & (ctx->lay.sq_entries - 1), ctx->cancelled);
	WRITE_ONCE(ctx->sq_head, ctx->sq_head + 1);
	spin_unlock(&ctx->window_lock);
	smp_store_release((u32 *)sdma_ring_at(ctx, ctx->lay.off_sq_head), ctx->sq_head);
	return cancelled;
}

static void run_next(struct sdma_ctx *ctx)
{
	struct sdma_op op = { .ctx = ctx };
	bool cancelled = take_sqe(ctx, &op.sqe);

	if (cancelled)
		sdma_op_refuse(&op, -ECANCELED, STEPCCL_DMA_DETAIL_CANCEL);
	else if (ctx->failed && (op.sqe.flags & STEPCCL_DMA_SQE_FENCE))
		sdma_op_refuse(&op, -ECANCELED, STEPCCL_DMA_DETAIL_FENCE);
	else
		sdma_op_run(&op);

	if (op.cqe.res && !ctx->failed) {
		WRITE_ONCE(ctx->failed, true);
		set_state(ctx, STEPCCL_DMA_RING_FAILED, true);
	}
	if (!op.cqe.res && (op.sqe.flags & STEPCCL_DMA_SQE_SILENT))
		cq_unreserve(ctx);
	else
		cq_post(ctx, &op.cqe);
}

/* Takes and runs up to @wanted SQEs in order. Returns 0 or why none more was taken. */
static int submit(struct sdma_ctx *ctx, u32 wanted, u32 *taken)
{
	u32 tail, available;
	int ret;

	tail = smp_load_acquire((u32 *)sdma_ring_at(ctx, ctx->lay.off_sq_tail));
	ret = sdma_ring_filled(ctx->sq_head, tail, ctx->lay.sq_entries, &available);
	if (ret) {
		sdma_ring_break(ctx, "sq", available, ctx->lay.sq_entries);
		return ret;
	}
	if (wanted > available)
		wanted = available;
	open_window(ctx, wanted);
	while (*taken < wanted) {
		if (signal_pending(current)) {
			ret = -EINTR;
			break;
		}
		ret = cq_reserve(ctx);
		if (ret)
			break;
		run_next(ctx);
		++*taken;
		cond_resched();
	}
	close_window(ctx);
	return ret;
}

static int wait_ready(struct sdma_ctx *ctx, u32 wanted, u64 timeout_ns)
{
	ktime_t timeout = timeout_ns > KTIME_MAX ? KTIME_MAX : timeout_ns;
	int ready = sdma_cq_ready(ctx);
	int ret = 0;

	if (ready < 0)
		return ready;
	if (ready < wanted && timeout_ns)
		ret = wait_event_interruptible_hrtimeout(ctx->cq_wait,
							 READ_ONCE(ctx->broken) ||
							 (ready = sdma_cq_ready(ctx)) < 0 ||
							 ready >= wanted, timeout);
	if (READ_ONCE(ctx->broken))
		return -EPROTO;
	if (ret == -ERESTARTSYS)
		return -EINTR;
	return ret == -ETIME || ready < wanted ? -ETIMEDOUT : 0;
}

int sdma_ctx_enter(struct sdma_ctx *ctx, struct stepccl_dma_enter *a)
{
	u32 taken = 0;
	int ret = 0;

	a->submitted = 0;
	a->ready = 0;
	if (a->flags & ~STEPCCL_DMA_ENTER_CLEAR_FAILED || a->min_complete > ctx->lay.cq_entries)
		return -EINVAL;
	if (a->to_submit || a->flags) {
		if (mutex_lock_interruptible(&ctx->submit_lock))
			return -EINTR;
		if (READ_ONCE(ctx->broken))
			ret = -EBADFD;
		if (!ret && a->flags & STEPCCL_DMA_ENTER_CLEAR_FAILED) {
			WRITE_ONCE(ctx->failed, false);
			set_state(ctx, STEPCCL_DMA_RING_FAILED, false);
		}
		if (!ret && a->to_submit)
			ret = submit(ctx, a->to_submit, &taken);
		mutex_unlock(&ctx->submit_lock);
	}
	if (!ret && a->min_complete)
		ret = wait_ready(ctx, a->min_complete, a->timeout_ns);
	a->submitted = taken;
	if (!READ_ONCE(ctx->broken))
		a->ready = max(sdma_cq_ready(ctx), 0);
	return taken ? taken : ret;
}

int sdma_ctx_cancel(struct sdma_ctx *ctx, struct stepccl_dma_cancel *a)
{
	struct stepccl_dma_sqe *ring = sdma_ring_at(ctx, ctx->lay.off_sqes);
	u32 mask = ctx->lay.sq_entries - 1;
	u32 i;

	a->cancelled = 0;
	if (a->flags & ~STEPCCL_DMA_CANCEL_ALL || a->reserved)
		return -EINVAL;
	spin_lock(&ctx->window_lock);
	for (i = ctx->sq_head; i != ctx->window_end; i++) {
		u64 user_data = READ_ONCE(ring[i & mask].user_data);

		if (!(a->flags & STEPCCL_DMA_CANCEL_ALL) && user_data != a->user_data)
			continue;
		if (!__test_and_set_bit(i & mask, ctx->cancelled))
			a->cancelled++;
	}
	spin_unlock(&ctx->window_lock);
	return a->cancelled ? 0 : -ENOENT;
}
