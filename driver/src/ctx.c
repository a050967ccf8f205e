// SPDX-License-Identifier: GPL-2.0
/* A context: the rings, the keys and the policy of one open file. */
#include <linux/cred.h>
#include <linux/eventfd.h>
#include <linux/poll.h>
#include <linux/sched/mm.h>
#include <linux/vmalloc.h>

#include "compat.h"
#include "fault.h"
#include "sdma.h"

static DEFINE_MUTEX(contexts_lock);
static LIST_HEAD(contexts);
static u32 next_id;

/* Puts the context on the list if its user and the system may have one more. */
static int admit(struct sdma_ctx *ctx, u32 *detail)
{
	u64 total = 0, own = 0;
	struct sdma_ctx *other;

	mutex_lock(&contexts_lock);
	list_for_each_entry(other, &contexts, link) {
		total++;
		own += uid_eq(other->uid, ctx->uid);
	}
	if (own >= sdma_param(SDMA_P_max_contexts_per_user))
		*detail = STEPCCL_DMA_DETAIL_QUOTA_USER;
	else if (total >= sdma_param(SDMA_P_max_contexts))
		*detail = STEPCCL_DMA_DETAIL_QUOTA_TOTAL;
	if (!*detail) {
		ctx->id = ++next_id;
		list_add_tail(&ctx->link, &contexts);
	}
	mutex_unlock(&contexts_lock);
	return *detail ? -EUSERS : 0;
}

static int make_rings(struct sdma_ctx *ctx)
{
	struct stepccl_dma_ring_hdr *hdr;

	ctx->area = sdma_fault() ? NULL : vmalloc_user(ctx->lay.bytes);
	if (!ctx->area)
		return -ENOMEM;
	hdr = ctx->area;
	hdr->magic = STEPCCL_DMA_RING_MAGIC;
	hdr->abi = STEPCCL_DMA_ABI_MAJOR << 16 | STEPCCL_DMA_ABI_MINOR;
	return 0;
}

static void free_ctx(struct sdma_ctx *ctx)
{
	if (ctx->eventfd)
		eventfd_ctx_put(ctx->eventfd);
	sdma_ranges_destroy(&ctx->ranges);
	sdma_keytab_destroy(&ctx->keys);
	vfree(ctx->area);
	mmdrop(ctx->mm);
	sdma_free(ctx);
}

static struct sdma_ctx *alloc_ctx(struct sdma_file *f, u32 policy)
{
	struct sdma_ctx *ctx = sdma_zalloc(1, sizeof(*ctx));

	if (!ctx)
		return NULL;
	ctx->file = f;
	ctx->policy = policy;
	ctx->uid = current_uid();
	ctx->mm = current->mm;
	mmgrab(ctx->mm);
	init_rwsem(&ctx->mr_lock);
	sdma_keytab_init(&ctx->keys, sdma_param(SDMA_P_max_mrs));
	sdma_ranges_init(&ctx->ranges);
	init_waitqueue_head(&ctx->mr_idle);
	mutex_init(&ctx->submit_lock);
	spin_lock_init(&ctx->window_lock);
	spin_lock_init(&ctx->cq_lock);
	init_waitqueue_head(&ctx->cq_wait);
	return ctx;
}

int sdma_ctx_create(struct sdma_file *f, struct stepccl_dma_ctx_create *a, struct sdma_ctx **out)
{
	struct sdma_ring_layout lay;
	struct sdma_ctx *ctx;
	int ret;

	a->detail = STEPCCL_DMA_DETAIL_NONE;
	if (a->flags || a->policy > STEPCCL_DMA_POLICY_CPU_ONLY || a->eventfd < -1)
		return -EINVAL;
	ret = sdma_ring_plan(a->sq_entries, a->cq_entries, &lay);
	if (ret)
		return ret;
	ctx = alloc_ctx(f, a->policy);
	if (!ctx)
		return -ENOMEM;
	ctx->lay = lay;
	if (a->eventfd >= 0) {
		ctx->eventfd = eventfd_ctx_fdget(a->eventfd);
		if (IS_ERR(ctx->eventfd)) {
			ret = PTR_ERR(ctx->eventfd);
			ctx->eventfd = NULL;
			goto fail;
		}
	}
	ret = make_rings(ctx);
	if (ret) {
		a->detail = STEPCCL_DMA_DETAIL_OOM;
		goto fail;
	}
	ret = admit(ctx, &a->detail);
	if (ret) {
		sdma_log(f, SDMA_DE105, ret, "quota pid=%d what=contexts", task_tgid_nr(current));
		goto fail;
	}
	sdma_count(ctx, SDMA_C_contexts, 1);
	a->sq_entries = lay.sq_entries;
	a->cq_entries = lay.cq_entries;
	a->ctx_id = ctx->id;
	a->mmap_bytes = lay.bytes;
	a->off_sq_head = lay.off_sq_head;
	a->off_sq_tail = lay.off_sq_tail;
	a->off_cq_head = lay.off_cq_head;
	a->off_cq_tail = lay.off_cq_tail;
	a->off_sqes = lay.off_sqes;
	a->off_cqes = lay.off_cqes;
	*out = ctx;
	return 0;
fail:
	free_ctx(ctx);
	return ret;
}

void sdma_ctx_destroy(struct sdma_ctx *ctx)
{
	sdma_mr_remove_all(ctx);
	mutex_lock(&contexts_lock);
	list_del(&ctx->link);
	mutex_unlock(&contexts_lock);
	sdma_count(NULL, SDMA_C_contexts, -1);
	free_ctx(ctx);
}

/*
 * The mapping keeps the file open (vma->vm_file), and with it the context, so
 * close() before munmap() leaves nothing dangling.
 */
int sdma_ctx_mmap(struct sdma_ctx *ctx, struct vm_area_struct *vma)
{
	if (ctx->mm != current->mm)
		return -EACCES;
	if (vma->vm_pgoff || vma->vm_end - vma->vm_start != ctx->lay.bytes ||
	    !(vma->vm_flags & VM_SHARED) || (vma->vm_flags & VM_EXEC))
		return -EINVAL;
	sdma_vm_flags_set(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	sdma_vm_flags_clear(vma, VM_MAYEXEC);
	return remap_vmalloc_range(vma, ctx->area, 0);
}

__poll_t sdma_ctx_poll(struct sdma_ctx *ctx, struct file *file, struct poll_table_struct *pt)
{
	__poll_t mask = 0;
	u32 filled, tail;

	poll_wait(file, &ctx->cq_wait, pt);
	if (READ_ONCE(ctx->broken))
		return EPOLLERR | EPOLLHUP;
	if (sdma_cq_ready(ctx) > 0)
		mask |= EPOLLIN | EPOLLRDNORM;
	tail = smp_load_acquire((u32 *)sdma_ring_at(ctx, ctx->lay.off_sq_tail));
	if (!sdma_ring_filled(READ_ONCE(ctx->sq_head), tail, ctx->lay.sq_entries, &filled) &&
	    filled < ctx->lay.sq_entries)
		mask |= EPOLLOUT | EPOLLWRNORM;
	return READ_ONCE(ctx->broken) ? EPOLLERR | EPOLLHUP : mask;
}
