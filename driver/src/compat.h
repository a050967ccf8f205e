/* SPDX-License-Identifier: GPL-2.0 */
/*
 * All differences between kernels 5.15 .. 6.17, decided by the compile probes
 * of ./configure (config-host.h): distributions backport interfaces, so version
 * numbers say little about them.
 */
#ifndef SDMA_COMPAT_H
#define SDMA_COMPAT_H

#include <linux/eventfd.h>
#include <linux/mm.h>
#include <linux/version.h>

#include "config-host.h"

#ifndef CONFIG_64BIT
#error "dma_engine needs a 64-bit kernel"
#endif

static inline void sdma_vm_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
#ifdef HAVE_VM_FLAGS_SET
	vm_flags_set(vma, flags);
#else
	vma->vm_flags |= flags;
#endif
}

static inline void sdma_vm_flags_clear(struct vm_area_struct *vma, unsigned long flags)
{
#ifdef HAVE_VM_FLAGS_SET
	vm_flags_clear(vma, flags);
#else
	vma->vm_flags &= ~flags;
#endif
}

static inline void sdma_eventfd_signal(struct eventfd_ctx *ctx)
{
#ifdef HAVE_EVENTFD_SIGNAL_ONE_ARG
	eventfd_signal(ctx);
#else
	eventfd_signal(ctx, 1);
#endif
}

/*
 * How to pin memory that will only be read. Before 6.3 a long-term read pin of
 * a private mapping may hold the shared zero page or a page-cache page that the
 * owner's next write replaces: the pin must break COW first (as ib_umem does).
 * Where 6.3's unsharing is backported, breaking COW is merely redundant.
 */
static inline unsigned int sdma_gup_read_flags(unsigned long vm_flags)
{
	if (LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0) ||
	    (vm_flags & (VM_SHARED | VM_MAYWRITE)) != VM_MAYWRITE)
		return FOLL_LONGTERM;
	return FOLL_LONGTERM | FOLL_WRITE | (vm_flags & VM_WRITE ? 0 : FOLL_FORCE);
}

#endif /* SDMA_COMPAT_H */
