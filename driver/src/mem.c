// SPDX-License-Identifier: GPL-2.0
/* Pinned user memory: pin, account, keep while in use, unpin. */
#include <linux/capability.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "compat.h"
#include "fault.h"
#include "sdma.h"

/* What find_vma() says about the pages from @addr on. */
struct window {
	u64 pages;		/* up to the end of this mapping */
	unsigned int gup_flags;
	bool file;
};

static int refuse(u32 *detail, u32 why)
{
	*detail = why;
	return -EFAULT;
}

/*
 * Looks at the mapping under @addr before it is pinned: that gives an exact
 * reason where get_user_pages() has only EFAULT. A change in between is the
 * caller's own doing and harmless: get_user_pages() checks again.
 */
static int look(unsigned long addr, u32 access, struct window *w, u32 *detail)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	unsigned long flags;
	int ret = 0;

	if (mmap_read_lock_killable(mm))
		return -EINTR;
	vma = find_vma(mm, addr);
	if (!vma || vma->vm_start > addr) {
		ret = refuse(detail, STEPCCL_DMA_DETAIL_HOLE);
		goto out;
	}
	flags = vma->vm_flags;
	if (flags & (VM_IO | VM_PFNMAP))
		ret = refuse(detail, STEPCCL_DMA_DETAIL_MMIO);
	else if (!(flags & (VM_READ | VM_WRITE)))
		ret = refuse(detail, STEPCCL_DMA_DETAIL_NOACCESS);
	else if (access & STEPCCL_DMA_ACCESS_WRITE && !(flags & VM_WRITE))
		ret = refuse(detail, STEPCCL_DMA_DETAIL_READONLY);
	else if (access & STEPCCL_DMA_ACCESS_READ && !(flags & VM_READ))
		ret = refuse(detail, STEPCCL_DMA_DETAIL_NOACCESS);
	w->pages = (vma->vm_end - addr) >> PAGE_SHIFT;
	w->gup_flags = access & STEPCCL_DMA_ACCESS_WRITE ? FOLL_LONGTERM | FOLL_WRITE :
		       sdma_gup_read_flags(flags);
	w->file = vma->vm_file;
out:
	mmap_read_unlock(mm);
	return ret;
}

static void unpin_extents(struct sdma_mem *m)
{
	bool dirty = m->access & STEPCCL_DMA_ACCESS_WRITE;
	u64 i;

	for (i = 0; i < m->pages.n; i++) {
		u64 pfn = m->pages.v[i].pfn;
		u64 left = sdma_extents_run(&m->pages, i);

		while (left) {
			unsigned long n = min_t(u64, left, 1 << 15);

			unpin_user_page_range_dirty_lock(pfn_to_page(pfn), n, dirty);
			pfn += n;
			left -= n;
			cond_resched();
		}
	}
	sdma_extents_destroy(&m->pages);
}

static int pin_batch(struct sdma_mem *m, unsigned long addr, struct page **batch, u64 left,
		     u32 *detail)
{
	struct window w;
	int ret, got, i;

	if (fatal_signal_pending(current))
		return -EINTR;
	ret = look(addr, m->access, &w, detail);
	if (ret)
		return ret;
	got = pin_user_pages_fast(addr, min3(left, w.pages, (u64)(PAGE_SIZE / sizeof(*batch))),
				  w.gup_flags, batch);
	if (got <= 0) {
		if (fatal_signal_pending(current))
			return -EINTR;
		if (got == -ENOMEM) {
			*detail = STEPCCL_DMA_DETAIL_OOM;
			return -ENOMEM;
		}
		return refuse(detail, w.file ? STEPCCL_DMA_DETAIL_FILE : STEPCCL_DMA_DETAIL_PIN);
	}
	for (i = 0; i < got; i++) {
		if (sdma_extents_append(&m->pages, page_to_pfn(batch[i]))) {
			unpin_user_pages(batch + i, got - i);
			*detail = STEPCCL_DMA_DETAIL_OOM;
			return -ENOMEM;
		}
	}
	return got;
}

static const char *reason_name(u32 detail)
{
	switch (detail) {
	case STEPCCL_DMA_DETAIL_HOLE:
		return "hole";
	case STEPCCL_DMA_DETAIL_READONLY:
		return "readonly";
	case STEPCCL_DMA_DETAIL_NOACCESS:
		return "noaccess";
	case STEPCCL_DMA_DETAIL_MMIO:
		return "mmio";
	case STEPCCL_DMA_DETAIL_FILE:
		return "file";
	case STEPCCL_DMA_DETAIL_OOM:
		return "oom";
	default:
		return "pin";
	}
}

/* Pins all of @pages or none. */
static int pin_all(struct sdma_file *f, struct sdma_mem *m, u64 pages, struct sdma_pin_error *why)
{
	unsigned long start = m->va & PAGE_MASK;
	struct page **batch = sdma_fault() ? NULL :
			      (struct page **)__get_free_page(GFP_KERNEL_ACCOUNT);
	int ret = 0;

	if (!batch) {
		why->detail = STEPCCL_DMA_DETAIL_OOM;
		return -ENOMEM;
	}
	while (m->pages.pages < pages) {
		ret = pin_batch(m, start + (m->pages.pages << PAGE_SHIFT), batch,
				pages - m->pages.pages, &why->detail);
		if (ret < 0)
			break;
		ret = 0;
		cond_resched();
	}
	free_page((unsigned long)batch);
	if (!ret)
		return 0;
	why->page = m->pages.pages;
	if (ret != -EINTR)
		sdma_log(f, SDMA_DE102, ret, "pin failed pid=%d page=%llu/%llu err=%d reason=%s",
			 task_tgid_nr(current), why->page, pages, ret, reason_name(why->detail));
	unpin_extents(m);
	return ret;
}

/* The rule of ib_umem_get(): pinned_vm against RLIMIT_MEMLOCK. */
static int account(struct sdma_file *f, u64 pages, u32 *detail)
{
	struct mm_struct *mm = current->mm;
	u64 limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	u64 pinned;
	int ret = 0;

	*detail = STEPCCL_DMA_DETAIL_MEMLOCK;
	if (!can_do_mlock())
		return -EPERM;
	pinned = atomic64_add_return(pages, &mm->pinned_vm);
	if (pinned > limit && !capable(CAP_IPC_LOCK)) {
		atomic64_sub(pages, &mm->pinned_vm);
		sdma_log(f, SDMA_DE101, -ENOMEM,
			 "memlock pid=%d comm=%s need=%llu pinned=%llu limit=%llu pages",
			 task_tgid_nr(current), sdma_comm().s, pages, pinned - pages, limit);
		ret = -ENOMEM;
	} else {
		*detail = STEPCCL_DMA_DETAIL_NONE;
	}
	return ret;
}

int sdma_mem_pin(struct sdma_file *f, u64 va, u64 len, u32 access, struct sdma_mem **out,
		 struct sdma_pin_error *why)
{
	struct sdma_mem *m;
	u64 pages;
	int ret;

	ret = sdma_check_region(va, len, &pages);
	if (ret)
		return ret;
	ret = account(f, pages, &why->detail);
	if (ret)
		return ret;
	ret = -ENOMEM;
	m = sdma_kzalloc(sizeof(*m));
	if (!m) {
		why->detail = STEPCCL_DMA_DETAIL_OOM;
		goto unaccount;
	}
	kref_init(&m->ref);
	refcount_set(&m->users, 1);
	spin_lock_init(&m->lock);
	init_waitqueue_head(&m->idle);
	sdma_extents_init(&m->pages, offset_in_page(va));
	m->va = va;
	m->len = len;
	m->npages = pages;
	m->access = access;
	ret = pin_all(f, m, pages, why);
	if (ret)
		goto free;
	m->mm = current->mm;
	mmgrab(m->mm);
	sdma_count(NULL, SDMA_C_pinned_pages, pages);
	*out = m;
	return 0;
free:
	kfree(m);
unaccount:
	atomic64_sub(pages, &current->mm->pinned_vm);
	return ret;
}

struct sdma_mem *sdma_mem_get(struct sdma_mem *m)
{
	kref_get(&m->ref);
	return m;
}

static void free_mem(struct kref *ref)
{
	struct sdma_mem *m = container_of(ref, struct sdma_mem, ref);

	mmdrop(m->mm);
	kfree(m);
}

/* By then the registration has been revoked, so the pages are unpinned. */
void sdma_mem_put(struct sdma_mem *m)
{
	kref_put(&m->ref, free_mem);
}

bool sdma_mem_use(struct sdma_mem *m)
{
	if (!refcount_inc_not_zero(&m->users))
		return false;
	if (!test_bit(SDMA_MEM_REVOKED, &m->flags))
		return true;
	sdma_mem_unuse(m);
	return false;
}

/* The caller holds a reference to @m. */
void sdma_mem_unuse(struct sdma_mem *m)
{
	bool late;

	might_sleep();
	if (!refcount_dec_and_test(&m->users))
		return;
	unpin_extents(m);
	atomic64_sub(m->npages, &m->mm->pinned_vm);
	sdma_count(NULL, SDMA_C_pinned_pages, -(s64)m->npages);

	spin_lock(&m->lock);
	set_bit(SDMA_MEM_UNPINNED, &m->flags);
	late = m->quarantined;
	spin_unlock(&m->lock);
	wake_up_all(&m->idle);
	if (late) {
		sdma_count(NULL, SDMA_C_quarantined_pages, -(s64)m->npages);
		sdma_log(NULL, SDMA_DE305, 0, "late completion after %llums, %llu pages released",
			 div_u64(ktime_get_ns() - m->quarantine_start_ns, NSEC_PER_MSEC), m->npages);
		module_put(THIS_MODULE);
	}
}

void sdma_mem_revoke(struct sdma_mem *m, bool abort)
{
	if (abort)
		set_bit(SDMA_MEM_ABORT, &m->flags);
	if (!test_and_set_bit(SDMA_MEM_REVOKED, &m->flags))
		sdma_mem_unuse(m);
}

int sdma_mem_wait_killable(struct sdma_mem *m)
{
	return wait_event_killable(m->idle, test_bit(SDMA_MEM_UNPINNED, &m->flags)) ? -EINTR : 0;
}

void sdma_mem_drain(struct sdma_mem *m, unsigned long deadline, u32 ctx_id)
{
	long left = max_t(long, deadline - jiffies, 0);
	bool expired;

	if (wait_event_timeout(m->idle, test_bit(SDMA_MEM_UNPINNED, &m->flags), left))
		return;
	spin_lock(&m->lock);
	expired = !test_bit(SDMA_MEM_UNPINNED, &m->flags);
	if (expired) {
		m->quarantined = true;
		m->quarantine_start_ns = ktime_get_ns();
		__module_get(THIS_MODULE);
	}
	spin_unlock(&m->lock);
	if (!expired)
		return;
	sdma_count(NULL, SDMA_C_quarantined_pages, m->npages);
	sdma_log(NULL, SDMA_DE501, -ETIMEDOUT,
		 "drain expired ctx=%u, %llu pages kept pinned, module pinned", ctx_id, m->npages);
}
