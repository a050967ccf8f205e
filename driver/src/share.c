// SPDX-License-Identifier: GPL-2.0
/* Registered memory as a file descriptor, to be passed to another process. */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "fault.h"
#include "sdma.h"

struct export {
	struct sdma_mem *mem;
	u64 iova;
	u32 access;
};

static int export_release(struct inode *inode, struct file *file)
{
	struct export *e = file->private_data;

	sdma_mem_put(e->mem);
	kfree(e);
	return 0;
}

static const struct file_operations export_fops = {
	.owner = THIS_MODULE,
	.release = export_release,
};

int sdma_call_mr_export(struct sdma_file *f, void *arg, const struct sdma_reply *r)
{
	struct stepccl_dma_mr_export *a = arg;
	struct export *e;
	struct file *file;
	int ret, fd;

	a->fd = -1;
	if (!a->access || a->access & ~(STEPCCL_DMA_ACCESS_READ | STEPCCL_DMA_ACCESS_WRITE))
		return -EINVAL;
	e = sdma_kzalloc(sizeof(*e));
	if (!e)
		return -ENOMEM;
	e->access = a->access;
	ret = sdma_mr_share(sdma_file_ctx(f), a->key, a->access, &e->mem, &e->iova);
	if (ret)
		goto free;
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0) {
		ret = fd;
		goto put;
	}
	file = anon_inode_getfile("[stepccl_mr]", &export_fops, e, O_RDWR);
	if (IS_ERR(file)) {
		ret = PTR_ERR(file);
		goto put_fd;
	}
	a->fd = fd;
	ret = sdma_reply(r, a);
	if (ret) {
		put_unused_fd(fd);
		fput(file);
		return ret;
	}
	fd_install(fd, file);
	return 0;
put_fd:
	put_unused_fd(fd);
put:
	sdma_mem_put(e->mem);
free:
	kfree(e);
	return ret;
}

int sdma_call_mr_import(struct sdma_file *f, void *arg, const struct sdma_reply *r)
{
	struct stepccl_dma_mr_import *a = arg;
	struct sdma_ctx *ctx = sdma_file_ctx(f);
	u32 wanted = a->access;
	const struct export *e;
	struct sdma_mem *mem;
	struct file *file;
	u64 iova;
	int ret;

	a->key = 0;
	a->detail = STEPCCL_DMA_DETAIL_NONE;
	if (a->flags) {
		a->detail = STEPCCL_DMA_DETAIL_FLAGS;
		return -EINVAL;
	}
	file = fget(a->fd);
	if (!file)
		return -EBADF;
	if (file->f_op != &export_fops) {
		fput(file);
		return -EINVAL;
	}
	e = file->private_data;
	if (wanted & ~e->access) {
		fput(file);
		a->detail = STEPCCL_DMA_DETAIL_ACCESS;
		return -EACCES;
	}
	if (!wanted)
		wanted = e->access;
	iova = e->iova;
	mem = sdma_mem_get(e->mem);
	fput(file);

	if (test_bit(SDMA_MEM_REVOKED, &mem->flags)) {
		a->detail = STEPCCL_DMA_DETAIL_OWNER_GONE;
		ret = -EKEYREVOKED;
		goto put;
	}
	ret = sdma_mr_add(ctx, mem, iova, wanted, false, &a->key);
	if (ret) {
		a->detail = ret == -EDQUOT ? STEPCCL_DMA_DETAIL_QUOTA_MRS : STEPCCL_DMA_DETAIL_OOM;
		goto put;
	}
	a->access = wanted;
	a->iova = iova;
	a->len = mem->len;
	ret = sdma_reply(r, a);
	if (ret)
		sdma_mr_remove(ctx, a->key, false);
	return ret;
put:
	sdma_mem_put(mem);
	return ret;
}
