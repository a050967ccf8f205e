// SPDX-License-Identifier: GPL-2.0
/* dma_engine: the misc device /dev/dma_device of StepCCL. */
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/utsname.h>

#include "fault.h"
#include "sdma.h"

static int sdma_open(struct inode *inode, struct file *file)
{
	struct sdma_file *f = sdma_kzalloc(sizeof(*f));

	if (!f)
		return -ENOMEM;
	mutex_init(&f->lock);
	sdma_last_init(&f->last);
	file->private_data = f;
	return nonseekable_open(inode, file);
}

/* The last reference is gone: no call and no mapping of this file is left. */
static int sdma_release(struct inode *inode, struct file *file)
{
	struct sdma_file *f = file->private_data;

	if (f->ctx)
		sdma_ctx_destroy(f->ctx);
	kfree(f);
	return 0;
}

static int sdma_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct sdma_ctx *ctx = sdma_file_ctx(file->private_data);

	return ctx ? sdma_ctx_mmap(ctx, vma) : -EBADFD;
}

static __poll_t sdma_poll(struct file *file, struct poll_table_struct *pt)
{
	struct sdma_ctx *ctx = sdma_file_ctx(file->private_data);

	return ctx ? sdma_ctx_poll(ctx, file, pt) : EPOLLERR;
}

static const struct file_operations sdma_fops = {
	.owner = THIS_MODULE,
	.open = sdma_open,
	.release = sdma_release,
	.unlocked_ioctl = sdma_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = sdma_mmap,
	.poll = sdma_poll,
};

static struct miscdevice sdma_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "dma_device",
	.fops = &sdma_fops,
	.groups = sdma_groups,
	.mode = 0600,
};

static int __init sdma_init(void)
{
	int ret = sdma_route_init();

	if (ret)
		return ret;
	ret = misc_register(&sdma_misc);
	if (ret) {
		sdma_route_exit();
		return ret;
	}
	sdma_log(NULL, SDMA_DE001, 0, "loaded version=%s abi=%u.%u git=%s kernel=%s", SDMA_VERSION,
		 STEPCCL_DMA_ABI_MAJOR, STEPCCL_DMA_ABI_MINOR, SDMA_GIT_ID, init_uts_ns.name.release);
	if (!sdma_engine_count())
		sdma_log(NULL, SDMA_DE003, -ENODEV,
			 "no DMA engine in use (this build has no engine provider), CPU fallback active");
	return 0;
}

static void __exit sdma_exit(void)
{
	misc_deregister(&sdma_misc);
	sdma_log(NULL, SDMA_DE401, 0, "unloading, contexts=%lld engines released=%u",
		 (long long)atomic64_read(&sdma_counters_global.v[SDMA_C_contexts]),
		 sdma_engine_count());
	sdma_route_exit();
}

module_init(sdma_init);
module_exit(sdma_exit);

MODULE_DESCRIPTION("StepCCL DMA engine: copies between registered memory of processes");
MODULE_AUTHOR("StepCCL Console developers");
MODULE_LICENSE("GPL");
MODULE_VERSION(SDMA_VERSION);
