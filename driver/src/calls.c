// SPDX-License-Identifier: GPL-2.0
/* Dispatch of the calls, HELLO, and the thin ones. */
#include <linux/nospec.h>
#include <linux/uaccess.h>

#include "fault.h"
#include "sdma.h"

#define FEATURES (STEPCCL_DMA_FEATURE_RING | STEPCCL_DMA_FEATURE_MR_SHARE | \
		  STEPCCL_DMA_FEATURE_VERIFY)

int sdma_reply(const struct sdma_reply *r, const void *arg)
{
	return sdma_fault() || copy_to_user(r->user, arg, r->bytes) ? -EFAULT : 0;
}

static int call_hello(struct sdma_file *f, void *arg, const struct sdma_reply *r)
{
	struct stepccl_dma_hello *a = arg;
	u16 major = a->abi_major, minor = a->abi_minor;
	u64 wanted = a->features;

	a->abi_major = STEPCCL_DMA_ABI_MAJOR;
	a->abi_minor = STEPCCL_DMA_ABI_MINOR;
	a->features = 0;
	a->supported = FEATURES;
	strscpy_pad(a->version, SDMA_VERSION, sizeof(a->version));
	strscpy_pad(a->git_id, SDMA_GIT_ID, sizeof(a->git_id));
	if (major != STEPCCL_DMA_ABI_MAJOR) {
		sdma_log(f, SDMA_DE205, -EPROTONOSUPPORT,
			 "ABI mismatch client=%u.%u driver=%u.%u comm=%s", major, minor,
			 STEPCCL_DMA_ABI_MAJOR, STEPCCL_DMA_ABI_MINOR, sdma_comm().s);
		return -EPROTONOSUPPORT;
	}
	a->features = wanted & FEATURES;
	WRITE_ONCE(f->greeted, true);
	return 0;
}

static int call_ctx_create(struct sdma_file *f, void *arg, const struct sdma_reply *r)
{
	struct sdma_ctx *ctx;
	int ret;

	mutex_lock(&f->lock);
	ret = f->ctx ? -EEXIST : sdma_ctx_create(f, arg, &ctx);
	if (!ret) {
		ret = sdma_reply(r, arg);
		if (ret)
			sdma_ctx_destroy(ctx);
		else
			smp_store_release(&f->ctx, ctx);
	}
	mutex_unlock(&f->lock);
	return ret;
}

static int call_enter(struct sdma_file *f, void *arg, const struct sdma_reply *r)
{
	return sdma_ctx_enter(sdma_file_ctx(f), arg);
}

static int call_cancel(struct sdma_file *f, void *arg, const struct sdma_reply *r)
{
	return sdma_ctx_cancel(sdma_file_ctx(f), arg);
}

static int call_route_set(struct sdma_file *f, void *arg, const struct sdma_reply *r)
{
	const struct stepccl_dma_route_set *a = arg;

	if (a->flags || a->reserved)
		return -EINVAL;
	if (!capable(CAP_NET_ADMIN))
		return -EPERM;
	return sdma_routes_apply(a->node, a->state, a->numa_node);
}

struct call {
	int (*fn)(struct sdma_file *f, void *arg, const struct sdma_reply *r);
	u32 bytes;
	bool needs_ctx;
	enum { REPLY_NONE, REPLY_AFTER, REPLY_SELF } reply;	/* SELF: before it commits */
};

#define CALL(cmd, type, ctx, replies, func) \
	[_IOC_NR(cmd)] = { \
		.fn = func, \
		.bytes = sizeof(struct stepccl_dma_##type), \
		.needs_ctx = ctx, \
		.reply = replies, \
	}

static const struct call calls[] = {
	CALL(STEPCCL_DMA_HELLO, hello, false, REPLY_AFTER, call_hello),
	CALL(STEPCCL_DMA_QUERY, query, false, REPLY_AFTER, sdma_call_query),
	CALL(STEPCCL_DMA_CTX_CREATE, ctx_create, false, REPLY_SELF, call_ctx_create),
	CALL(STEPCCL_DMA_MR_REG, mr_reg, true, REPLY_SELF, sdma_call_mr_reg),
	CALL(STEPCCL_DMA_MR_REG_DMABUF, mr_reg_dmabuf, true, REPLY_AFTER, sdma_call_mr_reg_dmabuf),
	CALL(STEPCCL_DMA_MR_DEREG, mr_dereg, true, REPLY_NONE, sdma_call_mr_dereg),
	CALL(STEPCCL_DMA_MR_EXPORT, mr_export, true, REPLY_SELF, sdma_call_mr_export),
	CALL(STEPCCL_DMA_MR_IMPORT, mr_import, true, REPLY_SELF, sdma_call_mr_import),
	CALL(STEPCCL_DMA_ENTER, enter, true, REPLY_AFTER, call_enter),
	CALL(STEPCCL_DMA_CANCEL, cancel, true, REPLY_AFTER, call_cancel),
	CALL(STEPCCL_DMA_ROUTE_SET, route_set, false, REPLY_NONE, call_route_set),
	CALL(STEPCCL_DMA_SUBMIT_ONE, submit_one, true, REPLY_AFTER, sdma_call_submit_one),
};

union call_arg {
	u32 size;
	struct stepccl_dma_hello hello;
	struct stepccl_dma_query query;
	struct stepccl_dma_ctx_create ctx_create;
	struct stepccl_dma_mr_reg mr_reg;
	struct stepccl_dma_mr_reg_dmabuf mr_reg_dmabuf;
	struct stepccl_dma_mr_dereg mr_dereg;
	struct stepccl_dma_mr_export mr_export;
	struct stepccl_dma_mr_import mr_import;
	struct stepccl_dma_enter enter;
	struct stepccl_dma_cancel cancel;
	struct stepccl_dma_route_set route_set;
	struct stepccl_dma_submit_one submit_one;
};

static int check_ctx(struct sdma_file *f)
{
	struct sdma_ctx *ctx = sdma_file_ctx(f);

	if (!ctx || READ_ONCE(ctx->broken))
		return -EBADFD;
	return ctx->mm == current->mm ? 0 : -EACCES;
}

long sdma_ioctl(struct file *file, unsigned int cmd, unsigned long argp)
{
	struct sdma_file *f = file->private_data;
	unsigned int nr = _IOC_NR(cmd);
	const struct call *call;
	union call_arg arg;
	struct sdma_reply r = { .user = (void __user *)argp };
	u32 size;
	int ret;

	if (_IOC_TYPE(cmd) != STEPCCL_DMA_IOC_MAGIC ||
	    _IOC_DIR(cmd) != (_IOC_READ | _IOC_WRITE) || nr >= ARRAY_SIZE(calls))
		return -ENOTTY;
	nr = array_index_nospec(nr, ARRAY_SIZE(calls));
	call = &calls[nr];
	if (nr != _IOC_NR(STEPCCL_DMA_HELLO) && !READ_ONCE(f->greeted))
		return -EBADFD;
	if (call->needs_ctx) {
		ret = check_ctx(f);
		if (ret)
			return ret;
	}
	if (get_user(size, (u32 __user *)r.user))
		return -EFAULT;
	if (size < call->bytes)
		return -EINVAL;
	if (size > PAGE_SIZE)
		return -E2BIG;
	ret = copy_struct_from_user(&arg, call->bytes, r.user, size);
	if (ret)
		return ret;
	arg.size = size;	/* the caller may have changed it meanwhile */
	r.bytes = call->bytes;

	ret = call->fn(f, &arg, &r);
	if (call->reply == REPLY_NONE || (call->reply == REPLY_SELF && ret >= 0))
		return ret;
	/* What failed keeps its errno, and SQEs that were taken keep their count. */
	if (sdma_reply(&r, &arg) && !ret)
		ret = -EFAULT;
	return ret;
}
