/* SPDX-License-Identifier: GPL-2.0 */
/* Objects of the driver, and who may touch what under which lock. */
#ifndef SDMA_H
#define SDMA_H

#include <linux/atomic.h>
#include <linux/bitmap.h>
#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/stepccl_dma.h>
#include <linux/uidgid.h>
#include <linux/wait.h>

#include "core/check.h"
#include "core/extents.h"
#include "core/keytab.h"
#include "core/ranges.h"
#include "core/ring.h"
#include "core/routes.h"
#include "engine.h"
#include "log.h"
#include "params.h"
#include "stats.h"

#define SDMA_CPU_STEP (256u << 10)

struct eventfd_ctx;
struct poll_table_struct;

/* ---- memory: pinned pages ------------------------------------------- */

/* Pages of one registration. Lives while a key, an export or an operation refers to it. */
struct sdma_mem {
	struct kref ref;
	/* 1 for the registration and 1 for each running operation; at 0 the pages are unpinned. */
	refcount_t users;
	unsigned long flags;
#define SDMA_MEM_REVOKED	0	/* registration is gone: no new operations */
#define SDMA_MEM_ABORT		1	/* running operations stop at their next step */
#define SDMA_MEM_UNPINNED	2
	spinlock_t lock;		/* quarantined against the last user */
	bool quarantined;
	u64 quarantine_start_ns;
	wait_queue_head_t idle;
	struct sdma_extents pages;
	struct mm_struct *mm;		/* grabbed for its pinned_vm and as identity */
	u64 va;
	u64 len;
	u64 npages;
	u32 access;
};

/* What a failed registration reports. */
struct sdma_pin_error {
	u32 detail;
	u64 page;
};

/* Pins [va, va + len) of the current process. Errnos: uapi header, MR_REG. */
int sdma_mem_pin(struct sdma_file *f, u64 va, u64 len, u32 access, struct sdma_mem **out,
		 struct sdma_pin_error *why);
struct sdma_mem *sdma_mem_get(struct sdma_mem *m);
void sdma_mem_put(struct sdma_mem *m);
/* Keeps the pages pinned for an operation; false once revoked and idle. */
bool sdma_mem_use(struct sdma_mem *m);
void sdma_mem_unuse(struct sdma_mem *m);
/* Ends the registration; the pages go with the last running operation. */
void sdma_mem_revoke(struct sdma_mem *m, bool abort);
/* 0, or -EINTR when the caller is being killed. */
int sdma_mem_wait_killable(struct sdma_mem *m);
/* Waits until @deadline (jiffies); after that the pages stay pinned until the last user ends. */
void sdma_mem_drain(struct sdma_mem *m, unsigned long deadline, u32 ctx_id);

/* ---- registrations -------------------------------------------------- */

/* A key of a context: its own registration, or an import of another's. */
struct sdma_mr {
	struct kref ref;
	atomic_t running;
	struct sdma_mem *mem;
	u64 iova;
	u32 access;
	bool owned;
};

/* A resolved side of an operation. */
struct sdma_ref {
	struct sdma_mr *mr;
	u64 base;
};

struct sdma_ctx;

/* Makes a key for @mem (whose reference it takes over on success). */
int sdma_mr_add(struct sdma_ctx *ctx, struct sdma_mem *mem, u64 iova, u32 access, bool owned,
		u32 *key);
/* Takes the key out; waits for its operations if @wait. */
int sdma_mr_remove(struct sdma_ctx *ctx, u32 key, bool wait);
void sdma_mr_remove_all(struct sdma_ctx *ctx);
/* Looks @key up (0: by address) and holds it and its pages for an operation. */
int sdma_mr_hold(struct sdma_ctx *ctx, u32 key, u64 addr, u32 length, u32 need,
		 struct sdma_ref *ref);
void sdma_mr_release(struct sdma_ctx *ctx, struct sdma_ref *ref);
/* As hold, of the pages only, for an export; -ENOKEY, -EKEYREVOKED, -EACCES. */
int sdma_mr_share(struct sdma_ctx *ctx, u32 key, u32 access, struct sdma_mem **mem, u64 *iova);

/* ---- context and rings ---------------------------------------------- */

struct sdma_ctx {
	struct list_head link;
	struct sdma_file *file;
	struct mm_struct *mm;
	kuid_t uid;
	u32 id;
	u32 policy;
	struct eventfd_ctx *eventfd;
	struct sdma_counters counters;

	struct rw_semaphore mr_lock;	/* keys, ranges */
	struct sdma_keytab keys;
	struct sdma_ranges ranges;	/* own registrations by virtual address */
	wait_queue_head_t mr_idle;

	/* The shared area; its contents are never trusted. */
	void *area;
	struct sdma_ring_layout lay;

	struct mutex submit_lock;	/* one submitter at a time: sq_head's order is the order */
	u32 sq_head;			/* written under submit_lock and window_lock */
	bool failed;			/* under submit_lock: FENCE is cancelled */

	spinlock_t window_lock;		/* what CANCEL may still reach */
	u32 window_end;			/* SQEs sq_head .. window_end - 1 are about to be taken */
	DECLARE_BITMAP(cancelled, SDMA_RING_MAX);	/* by slot */

	spinlock_t cq_lock;
	u32 cq_tail;
	u32 cq_reserved;		/* slots promised to running operations */
	wait_queue_head_t cq_wait;
	bool broken;
};

struct sdma_file {
	struct mutex lock;		/* CTX_CREATE */
	bool greeted;
	struct sdma_ctx *ctx;		/* set once; smp_load_acquire */
	struct sdma_last last;
};

int sdma_ctx_create(struct sdma_file *f, struct stepccl_dma_ctx_create *a, struct sdma_ctx **out);
void sdma_ctx_destroy(struct sdma_ctx *ctx);
int sdma_ctx_mmap(struct sdma_ctx *ctx, struct vm_area_struct *vma);
__poll_t sdma_ctx_poll(struct sdma_ctx *ctx, struct file *file, struct poll_table_struct *pt);

static inline struct sdma_ctx *sdma_file_ctx(struct sdma_file *f)
{
	return smp_load_acquire(&f->ctx);
}

static inline void *sdma_ring_at(struct sdma_ctx *ctx, u32 offset)
{
	return ctx->area + offset;
}

/* Declares the rings corrupt; the context refuses everything from now on. */
void sdma_ring_break(struct sdma_ctx *ctx, const char *which, u32 filled, u32 entries);
/* CQEs that wait to be read, or -EPROTO (and the context is broken). */
int sdma_cq_ready(struct sdma_ctx *ctx);
int sdma_ctx_enter(struct sdma_ctx *ctx, struct stepccl_dma_enter *a);
int sdma_ctx_cancel(struct sdma_ctx *ctx, struct stepccl_dma_cancel *a);

/* ---- operations ----------------------------------------------------- */

struct sdma_op {
	struct sdma_ctx *ctx;
	struct stepccl_dma_sqe sqe;	/* private copy */
	struct stepccl_dma_cqe cqe;	/* the result */
	struct sdma_ref src;
	struct sdma_ref dst;
	u64 src_off;			/* bytes into the memory */
	u64 dst_off;
	u64 start_ns;
	u64 deadline_ns;
};

/* Checks and runs op->sqe in the caller's context, and fills in op->cqe. */
void sdma_op_run(struct sdma_op *op);
/* Ends an operation that never started. */
void sdma_op_refuse(struct sdma_op *op, int err, u16 detail);
/* The copy itself, on the CPU: sets res, bytes and detail of op->cqe. */
void sdma_copy_cpu(struct sdma_op *op);

/* ---- system-wide routing table -------------------------------------- */

extern struct sdma_routes sdma_route_table;

int sdma_route_init(void);
void sdma_route_exit(void);
int sdma_routes_apply(u16 node, u32 state, s32 numa_node);
ssize_t sdma_routes_format(char *buf, size_t size);
int sdma_routes_parse(const char *line);

/* ---- calls ---------------------------------------------------------- */

/* Where the caller's struct is, for the calls that commit only once it is written. */
struct sdma_reply {
	void __user *user;
	u32 bytes;
};

/* 0 or -EFAULT. */
int sdma_reply(const struct sdma_reply *r, const void *arg);

long sdma_ioctl(struct file *file, unsigned int cmd, unsigned long arg);
int sdma_call_query(struct sdma_file *f, void *arg, const struct sdma_reply *r);
int sdma_call_mr_reg(struct sdma_file *f, void *arg, const struct sdma_reply *r);
int sdma_call_mr_reg_dmabuf(struct sdma_file *f, void *arg, const struct sdma_reply *r);
int sdma_call_mr_dereg(struct sdma_file *f, void *arg, const struct sdma_reply *r);
int sdma_call_mr_export(struct sdma_file *f, void *arg, const struct sdma_reply *r);
int sdma_call_mr_import(struct sdma_file *f, void *arg, const struct sdma_reply *r);
int sdma_call_submit_one(struct sdma_file *f, void *arg, const struct sdma_reply *r);

#endif /* SDMA_H */
