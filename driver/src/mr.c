// SPDX-License-Identifier: GPL-2.0
/* Keys of a context: registrations of its own memory and imports of others'. */
#include <linux/slab.h>

#include "fault.h"
#include "sdma.h"

#define ACCESS_ALL (STEPCCL_DMA_ACCESS_READ | STEPCCL_DMA_ACCESS_WRITE)

static void free_mr(struct kref *ref)
{
	struct sdma_mr *mr = container_of(ref, struct sdma_mr, ref);

	sdma_mem_put(mr->mem);
	kfree(mr);
}

static void put_mr(struct sdma_mr *mr)
{
	kref_put(&mr->ref, free_mr);
}

static int quota(struct sdma_ctx *ctx, u32 detail, const char *what, u32 *out)
{
	*out = detail;
	sdma_log(ctx->file, SDMA_DE105, -EDQUOT, "quota pid=%d what=%s", task_tgid_nr(current),
		 what);
	return -EDQUOT;
}

int sdma_mr_add(struct sdma_ctx *ctx, struct sdma_mem *mem, u64 iova, u32 access, bool owned,
		u32 *key)
{
	struct sdma_mr *mr = sdma_kzalloc(sizeof(*mr));
	void *gone;
	int ret;

	if (!mr)
		return -ENOMEM;
	kref_init(&mr->ref);
	mr->mem = mem;
	mr->iova = iova;
	mr->access = access;
	mr->owned = owned;

	down_write(&ctx->mr_lock);
	ret = sdma_keytab_add(&ctx->keys, mr, key);
	if (!ret && owned) {
		ret = sdma_ranges_add(&ctx->ranges, mem->va, mem->len, access, mr);
		if (ret)
			sdma_keytab_remove(&ctx->keys, *key, &gone);
	}
	up_write(&ctx->mr_lock);
	if (ret) {
		kfree(mr);
		return ret;
	}
	sdma_count(ctx, SDMA_C_mrs, 1);
	if (owned)
		atomic64_add(mem->npages, &ctx->counters.v[SDMA_C_pinned_pages]);
	return 0;
}

/* Uncounts a key that has just been taken out of the table. */
static void uncount(struct sdma_ctx *ctx, struct sdma_mr *mr)
{
	sdma_count(ctx, SDMA_C_mrs, -1);
	if (mr->owned)
		atomic64_sub(mr->mem->npages, &ctx->counters.v[SDMA_C_pinned_pages]);
}

int sdma_mr_remove(struct sdma_ctx *ctx, u32 key, bool wait)
{
	struct sdma_mr *mr;
	void *obj;
	int ret;

	down_write(&ctx->mr_lock);
	ret = sdma_keytab_remove(&ctx->keys, key, &obj);
	if (!ret)
		sdma_ranges_remove(&ctx->ranges, obj);
	up_write(&ctx->mr_lock);
	if (ret)
		return ret;
	mr = obj;
	uncount(ctx, mr);
	if (mr->owned)
		sdma_mem_revoke(mr->mem, false);
	if (wait) {
		ret = wait_event_killable(ctx->mr_idle, !atomic_read(&mr->running)) ? -EINTR : 0;
		if (!ret && mr->owned)
			ret = sdma_mem_wait_killable(mr->mem);
	}
	put_mr(mr);
	return ret;
}

/* At close: nothing of this context runs any more, but importers may use its memory. */
void sdma_mr_remove_all(struct sdma_ctx *ctx)
{
	unsigned long deadline = jiffies + msecs_to_jiffies(sdma_param(SDMA_P_drain_ms));
	struct sdma_mr *mr;
	u32 i, at = 0;

	down_write(&ctx->mr_lock);
	for (i = 0; i < ctx->keys.capacity; i++) {
		mr = ctx->keys.slots[i].obj;
		if (mr && mr->owned)
			sdma_mem_revoke(mr->mem, true);
	}
	while ((mr = sdma_keytab_pop(&ctx->keys, &at))) {
		if (mr->owned)
			sdma_mem_drain(mr->mem, deadline, ctx->id);
		sdma_count(NULL, SDMA_C_mrs, -1);
		put_mr(mr);
	}
	up_write(&ctx->mr_lock);
}

int sdma_mr_hold(struct sdma_ctx *ctx, u32 key, u64 addr, u32 length, u32 need,
		 struct sdma_ref *ref)
{
	struct sdma_mr *mr;
	void *obj;
	int ret = 0;

	down_read(&ctx->mr_lock);
	if (key) {
		ret = sdma_keytab_find(&ctx->keys, key, &obj);
	} else {
		obj = sdma_ranges_find(&ctx->ranges, addr, length, need);
		if (!obj)
			ret = -EFAULT;
	}
	if (!ret) {
		mr = obj;
		if (sdma_mem_use(mr->mem)) {
			kref_get(&mr->ref);
			atomic_inc(&mr->running);
			ref->mr = mr;
			ref->base = key ? mr->iova : mr->mem->va;
		} else {
			ret = -EKEYREVOKED;
		}
	}
	up_read(&ctx->mr_lock);
	return ret;
}

void sdma_mr_release(struct sdma_ctx *ctx, struct sdma_ref *ref)
{
	struct sdma_mr *mr = ref->mr;

	if (!mr)
		return;
	ref->mr = NULL;
	sdma_mem_unuse(mr->mem);
	if (atomic_dec_and_test(&mr->running))
		wake_up_all(&ctx->mr_idle);
	put_mr(mr);
}

int sdma_mr_share(struct sdma_ctx *ctx, u32 key, u32 access, struct sdma_mem **mem, u64 *iova)
{
	struct sdma_mr *mr;
	void *obj;
	int ret;

	down_read(&ctx->mr_lock);
	ret = sdma_keytab_find(&ctx->keys, key, &obj);
	if (!ret) {
		mr = obj;
		if (access & ~mr->access) {
			ret = -EACCES;
		} else if (test_bit(SDMA_MEM_REVOKED, &mr->mem->flags)) {
			ret = -EKEYREVOKED;
		} else {
			*mem = sdma_mem_get(mr->mem);
			*iova = mr->iova;
		}
	}
	up_read(&ctx->mr_lock);
	return ret;
}

/* Whether one more registration of @pages fits the driver's own quotas. */
static int check_quota(struct sdma_ctx *ctx, u64 pages, u32 *detail)
{
	u64 max_bytes = sdma_param(SDMA_P_max_mr_bytes);
	u64 held = atomic64_read(&ctx->counters.v[SDMA_C_pinned_pages]);

	if (READ_ONCE(ctx->keys.used) >= ctx->keys.limit)
		return quota(ctx, STEPCCL_DMA_DETAIL_QUOTA_MRS, "mrs", detail);
	if (max_bytes && held + pages > max_bytes >> PAGE_SHIFT)
		return quota(ctx, STEPCCL_DMA_DETAIL_QUOTA_BYTES, "bytes", detail);
	return 0;
}

int sdma_call_mr_reg(struct sdma_file *f, void *arg, const struct sdma_reply *r)
{
	struct stepccl_dma_mr_reg *a = arg;
	struct sdma_ctx *ctx = sdma_file_ctx(f);
	struct sdma_pin_error why = {};
	struct sdma_mem *mem;
	u64 pages;
	int ret;

	a->key = 0;
	a->pages = 0;
	a->fail_page = 0;
	a->detail = STEPCCL_DMA_DETAIL_NONE;
	if (a->flags || a->reserved) {
		a->detail = a->flags ? STEPCCL_DMA_DETAIL_FLAGS : STEPCCL_DMA_DETAIL_RESERVED;
		return -EINVAL;
	}
	if (!a->access || a->access & ~ACCESS_ALL) {
		a->detail = STEPCCL_DMA_DETAIL_ACCESS;
		return -EINVAL;
	}
	ret = sdma_check_region(a->va, a->len, &pages);
	if (!ret && a->iova + a->len < a->iova)
		ret = -EOVERFLOW;
	if (ret) {
		a->detail = STEPCCL_DMA_DETAIL_LENGTH;
		return ret;
	}
	ret = check_quota(ctx, pages, &a->detail);
	if (ret)
		return ret;
	ret = sdma_mem_pin(f, a->va, a->len, a->access, &mem, &why);
	if (ret) {
		a->detail = why.detail;
		a->fail_page = why.page;
		return ret;
	}
	ret = sdma_mr_add(ctx, mem, a->iova, a->access, true, &a->key);
	if (ret) {
		sdma_mem_revoke(mem, false);
		sdma_mem_put(mem);
		if (ret == -EDQUOT)
			return quota(ctx, STEPCCL_DMA_DETAIL_QUOTA_MRS, "mrs", &a->detail);
		a->detail = STEPCCL_DMA_DETAIL_OOM;
		return ret;
	}
	a->pages = pages;
	ret = sdma_reply(r, a);
	if (ret)
		sdma_mr_remove(ctx, a->key, false);
	return ret;
}

int sdma_call_mr_reg_dmabuf(struct sdma_file *f, void *arg, const struct sdma_reply *r)
{
	struct stepccl_dma_mr_reg_dmabuf *a = arg;

	a->key = 0;
	if (a->flags || !a->access || a->access & ~ACCESS_ALL) {
		a->detail = a->flags ? STEPCCL_DMA_DETAIL_FLAGS : STEPCCL_DMA_DETAIL_ACCESS;
		return -EINVAL;
	}
	a->detail = STEPCCL_DMA_DETAIL_DMABUF_BUILD;
	sdma_log(f, SDMA_DE103, -EOPNOTSUPP,
		 "dma-buf import err=%d, this build has no dma-buf support", -EOPNOTSUPP);
	return -EOPNOTSUPP;
}

int sdma_call_mr_dereg(struct sdma_file *f, void *arg, const struct sdma_reply *r)
{
	const struct stepccl_dma_mr_dereg *a = arg;

	return sdma_mr_remove(sdma_file_ctx(f), a->key, true);
}
