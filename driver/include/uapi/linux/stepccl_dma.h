/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * User interface of dma_engine.ko, /dev/dma_device, ABI 1.0.
 *
 * Rules of every call:
 *  - The first field is the size of the caller's struct in bytes. A struct
 *    shorter than that of ABI 1.0 gets EINVAL; a longer one whose tail is not
 *    zero gets E2BIG, so an older driver never ignores a newer request.
 *  - Unknown flags and non-zero reserved fields get EINVAL.
 *  - Fields marked "out" are written on success and, where the struct has a
 *    detail field, on failure too.
 *  - HELLO comes first on every open file; any other call gets EBADFD.
 *  - The context belongs to the address space that created it: the calls that
 *    use it get EACCES from any other process.
 */
#ifndef _UAPI_LINUX_STEPCCL_DMA_H
#define _UAPI_LINUX_STEPCCL_DMA_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define STEPCCL_DMA_ABI_MAJOR	1
#define STEPCCL_DMA_ABI_MINOR	0

#define STEPCCL_DMA_DEVICE	"/dev/dma_device"

/* Operations of a descriptor. The data always flows from src to dst. */
#define STEPCCL_DMA_OP_READ	1	/* submitter pulls: dst_node is local */
#define STEPCCL_DMA_OP_WRITE	2	/* submitter pushes: src_node is local */

/* One copy, as tools and the specification write it (32 bytes). */
struct stepccl_dma_desc {
	__u64 src;		/* address of the first byte to read */
	__u64 dst;		/* address of the first byte to write */
	__u32 length;		/* bytes, 1 .. limits.max_op_bytes */
	__u16 src_node;		/* node of src in the routing table */
	__u16 dst_node;		/* node of dst in the routing table */
	__u8  opcode;		/* STEPCCL_DMA_OP_* */
	__u8  reserved[7];	/* zero */
};

/* ---- Rings ---------------------------------------------------------- */

#define STEPCCL_DMA_SQE_FENCE	(1u << 0)	/* start after all earlier SQEs; ECANCELED if one failed */
#define STEPCCL_DMA_SQE_NO_CPU	(1u << 1)	/* ENODEV rather than the CPU path */
#define STEPCCL_DMA_SQE_VERIFY	(1u << 2)	/* compare afterwards, EBADMSG on a difference */
#define STEPCCL_DMA_SQE_SILENT	(1u << 3)	/* no CQE on success */
#define STEPCCL_DMA_SQE_FLAGS	0x0fu

/* Submission queue entry: one cache line, bytes 0..24 as in the descriptor. */
struct stepccl_dma_sqe {
	__u64 src;
	__u64 dst;
	__u32 length;
	__u16 src_node;
	__u16 dst_node;
	__u8  opcode;
	__u8  flags;		/* STEPCCL_DMA_SQE_* */
	__u16 prio;		/* zero unless FEATURE_PRIO was granted */
	__u32 timeout_ms;	/* 0: limits.op_timeout_ms */
	__u64 user_data;	/* returned in the CQE */
	__u32 src_key;		/* 0: find src by its virtual address */
	__u32 dst_key;		/* 0: find dst by its virtual address */
	__u64 reserved[2];	/* zero */
};

#define STEPCCL_DMA_CQE_CPU	(1u << 0)	/* carried by the CPU path */
#define STEPCCL_DMA_CQE_DMA	(1u << 1)	/* carried by an engine */
#define STEPCCL_DMA_CQE_SPLIT	(1u << 2)	/* in more than one engine request */
#define STEPCCL_DMA_CQE_LATE	(1u << 3)	/* ended after its timeout */

#define STEPCCL_DMA_ENGINE_CPU	0xffffffffu	/* cqe.engine of the CPU path */

/* Completion queue entry. */
struct stepccl_dma_cqe {
	__u64 user_data;
	__s32 res;		/* 0 or a negative errno */
	__u32 bytes;		/* bytes that certainly arrived */
	__u16 flags;		/* STEPCCL_DMA_CQE_* */
	__u16 detail;		/* STEPCCL_DMA_DETAIL_* */
	__u32 engine;		/* index as in QUERY_ENGINE, or ENGINE_CPU */
	__u64 nsec;		/* from the start of the operation to its end */
};

#define STEPCCL_DMA_RING_MAGIC		0x52444353u	/* "SCDR" */
#define STEPCCL_DMA_RING_EVENTFD_OFF	(1u << 0)	/* flags: don't signal the eventfd */
#define STEPCCL_DMA_RING_BROKEN		(1u << 0)	/* state: corrupt indices, context is dead */
#define STEPCCL_DMA_RING_FAILED		(1u << 1)	/* state: FENCE is cancelled until ENTER_CLEAR_FAILED */

/* At offset 0 of the mapping; find all the rest by the offsets of CTX_CREATE. */
struct stepccl_dma_ring_hdr {
	__u32 magic;
	__u32 abi;		/* major << 16 | minor */
	__u32 flags;		/* written by user space: STEPCCL_DMA_RING_EVENTFD_OFF */
	__u32 state;		/* written by the driver: STEPCCL_DMA_RING_BROKEN, _FAILED */
};

/* ---- Detail codes: the reason behind an errno ----------------------- */

enum stepccl_dma_detail {
	STEPCCL_DMA_DETAIL_NONE		= 0,
	/* what is wrong in the request */
	STEPCCL_DMA_DETAIL_FLAGS	= 1,
	STEPCCL_DMA_DETAIL_RESERVED	= 2,
	STEPCCL_DMA_DETAIL_OPCODE	= 3,
	STEPCCL_DMA_DETAIL_SRC_NODE	= 4,
	STEPCCL_DMA_DETAIL_DST_NODE	= 5,
	STEPCCL_DMA_DETAIL_LENGTH	= 6,
	STEPCCL_DMA_DETAIL_SRC_WRAP	= 7,
	STEPCCL_DMA_DETAIL_DST_WRAP	= 8,
	STEPCCL_DMA_DETAIL_SRC_KEY	= 9,
	STEPCCL_DMA_DETAIL_DST_KEY	= 10,
	STEPCCL_DMA_DETAIL_SRC_RANGE	= 11,
	STEPCCL_DMA_DETAIL_DST_RANGE	= 12,
	STEPCCL_DMA_DETAIL_OVERLAP	= 13,
	STEPCCL_DMA_DETAIL_SRC_ACCESS	= 14,
	STEPCCL_DMA_DETAIL_DST_ACCESS	= 15,
	STEPCCL_DMA_DETAIL_ACCESS	= 16,
	/* memory registration */
	STEPCCL_DMA_DETAIL_MEMLOCK	= 32,
	STEPCCL_DMA_DETAIL_OOM		= 33,
	STEPCCL_DMA_DETAIL_HOLE		= 34,
	STEPCCL_DMA_DETAIL_READONLY	= 35,
	STEPCCL_DMA_DETAIL_NOACCESS	= 36,
	STEPCCL_DMA_DETAIL_MMIO		= 37,
	STEPCCL_DMA_DETAIL_FILE		= 38,
	STEPCCL_DMA_DETAIL_PIN		= 39,
	STEPCCL_DMA_DETAIL_DMABUF_BUILD	= 40,	/* driver built without dma-buf import */
	/* quotas */
	STEPCCL_DMA_DETAIL_QUOTA_MRS	= 48,
	STEPCCL_DMA_DETAIL_QUOTA_BYTES	= 49,
	STEPCCL_DMA_DETAIL_QUOTA_USER	= 50,
	STEPCCL_DMA_DETAIL_QUOTA_TOTAL	= 51,
	/* execution */
	STEPCCL_DMA_DETAIL_NO_ENGINE	= 64,
	STEPCCL_DMA_DETAIL_POLICY	= 65,
	STEPCCL_DMA_DETAIL_ALIGN	= 66,
	STEPCCL_DMA_DETAIL_QUARANTINED	= 67,
	STEPCCL_DMA_DETAIL_BUSY		= 68,
	STEPCCL_DMA_DETAIL_READ		= 69,
	STEPCCL_DMA_DETAIL_WRITE	= 70,
	STEPCCL_DMA_DETAIL_ABORTED	= 71,
	STEPCCL_DMA_DETAIL_VERIFY	= 72,
	STEPCCL_DMA_DETAIL_TIMEOUT	= 73,
	STEPCCL_DMA_DETAIL_KILLED	= 74,
	STEPCCL_DMA_DETAIL_FENCE	= 75,
	STEPCCL_DMA_DETAIL_CANCEL	= 76,
	STEPCCL_DMA_DETAIL_OWNER_GONE	= 77,	/* the memory's owner closed or exited */
};

/* ---- 0 HELLO -------------------------------------------------------- */

#define STEPCCL_DMA_FEATURE_RING	(1ull << 0)	/* CTX_CREATE, ENTER, CANCEL */
#define STEPCCL_DMA_FEATURE_MR_SHARE	(1ull << 1)	/* MR_EXPORT, MR_IMPORT */
#define STEPCCL_DMA_FEATURE_VERIFY	(1ull << 2)	/* SQE_VERIFY */
#define STEPCCL_DMA_FEATURE_DMAENGINE	(1ull << 3)	/* can use the kernel's DMA engines */
#define STEPCCL_DMA_FEATURE_DMABUF	(1ull << 4)	/* MR_REG_DMABUF */
#define STEPCCL_DMA_FEATURE_PRIO	(1ull << 5)	/* sqe.prio */

struct stepccl_dma_hello {
	__u32 size;
	__u16 abi_major;	/* in: the caller's; out: the driver's */
	__u16 abi_minor;	/* in: the caller's; out: the driver's */
	__u64 features;		/* in: wanted; out: granted */
	__u64 supported;	/* out: all that this driver has */
	char  version[16];	/* out: "1.0.0" */
	char  git_id[24];	/* out: commit of the driver's source */
};

/* ---- 1 QUERY -------------------------------------------------------- */

enum stepccl_dma_query_op {
	STEPCCL_DMA_QUERY_LIMITS	= 0,	/* index 0 */
	STEPCCL_DMA_QUERY_ENGINE	= 1,	/* index 0 .. limits.engines - 1 */
	STEPCCL_DMA_QUERY_COUNTERS	= 2,	/* index 0: driver, 1: this context */
	STEPCCL_DMA_QUERY_LAST_ERROR	= 3,	/* index 0: driver, 1: this open file */
	STEPCCL_DMA_QUERY_ROUTE		= 4,	/* first entry with node >= index */
};

/* ENOENT: no such entry. A short buffer gets the leading bytes, a long one (of a page) zeros. */
struct stepccl_dma_query {
	__u32 size;
	__u32 op;		/* STEPCCL_DMA_QUERY_* */
	__u32 index;
	__u32 data_size;	/* in: bytes at data; out: bytes that the driver has */
	__u64 data;		/* pointer to the struct of that op */
};

struct stepccl_dma_limits {
	__u32 max_contexts;
	__u32 max_contexts_per_user;
	__u32 max_mrs;		/* per context */
	__u32 max_entries;	/* per ring */
	__u64 max_mr_bytes;	/* registered per context; 0: RLIMIT_MEMLOCK only */
	__u32 max_op_bytes;
	__u32 dma_min_bytes;	/* POLICY_AUTO: smaller copies go to the CPU */
	__u32 drain_ms;
	__u32 op_timeout_ms;
	__u32 cpu_step_bytes;	/* signals and timeouts are seen at this grain */
	__u32 engines;		/* entries of QUERY_ENGINE */
	__u32 page_bytes;
	__u32 local_node;
};

#define STEPCCL_DMA_ENGINE_ORDERED		(1u << 0)
#define STEPCCL_DMA_ENGINE_ERRORS_VISIBLE	(1u << 1)

enum stepccl_dma_engine_state {
	STEPCCL_DMA_ENGINE_READY	= 1,
	STEPCCL_DMA_ENGINE_QUARANTINED	= 2,
};

struct stepccl_dma_engine_info {
	char  driver[32];
	char  bus_id[32];
	__s32 numa_node;	/* -1: unknown */
	__u32 align_bytes;
	__u64 max_bytes;	/* of one request */
	__u32 flags;		/* STEPCCL_DMA_ENGINE_ORDERED, _ERRORS_VISIBLE */
	__u32 state;		/* enum stepccl_dma_engine_state */
};

struct stepccl_dma_counters {
	__u64 ops_read;		/* operations that ended well */
	__u64 ops_write;
	__u64 ops_failed;
	__u64 ops_cancelled;
	__u64 bytes_cpu;
	__u64 bytes_dma;
	__u64 cpu_no_engine;	/* operations that took the CPU path, by reason */
	__u64 cpu_small;
	__u64 cpu_align;
	__u64 cpu_quarantined;
	__u64 cpu_busy;
	__u64 cpu_policy;
	__u64 verify_mismatch;
	__u64 mrs;		/* now registered or imported */
	__u64 pinned_pages;	/* now pinned */
	__u64 quarantined_pages; /* kept because an operation did not end */
	__u64 contexts;		/* now open */
};

struct stepccl_dma_last_error {
	__u32 code;		/* the nnn of DEnnn; 0: none yet */
	__s32 err;		/* negative errno, or 0 */
	__u64 boottime_ns;	/* CLOCK_BOOTTIME */
	__u64 count;		/* events recorded since load, or open */
	char  text[160];	/* the log line without its prefix */
};

enum stepccl_dma_route_state {
	STEPCCL_DMA_ROUTE_ABSENT	= 0,
	STEPCCL_DMA_ROUTE_LOCAL		= 1,
	STEPCCL_DMA_ROUTE_REMOTE	= 2,
	STEPCCL_DMA_ROUTE_DOWN		= 3,
};

struct stepccl_dma_route {
	__u16 node;
	__u8  state;		/* enum stepccl_dma_route_state */
	__u8  reserved;
	__s32 numa_node;	/* -1: unknown */
};

/* ---- 2 CTX_CREATE --------------------------------------------------- */

enum stepccl_dma_policy {
	STEPCCL_DMA_POLICY_AUTO		= 0,
	STEPCCL_DMA_POLICY_REQUIRE_DMA	= 1,
	STEPCCL_DMA_POLICY_CPU_ONLY	= 2,
};

/* EEXIST: the file has its context. EUSERS: see detail. */
struct stepccl_dma_ctx_create {
	__u32 size;
	__u32 flags;		/* zero */
	__u32 sq_entries;	/* in: 1 .. 4096; out: rounded up to a power of two >= 8 */
	__u32 cq_entries;	/* likewise; 0: as sq_entries */
	__u32 policy;		/* enum stepccl_dma_policy */
	__s32 eventfd;		/* signalled after each CQE; -1: none */
	__u32 ctx_id;		/* out: as in the log and debugfs */
	__u32 detail;		/* out */
	__u64 mmap_bytes;	/* out: map exactly this, MAP_SHARED, at offset 0 */
	__u32 off_sq_head;	/* out: offsets into the mapping */
	__u32 off_sq_tail;
	__u32 off_cq_head;
	__u32 off_cq_tail;
	__u32 off_sqes;
	__u32 off_cqes;
};

/* ---- 3 .. 7 memory -------------------------------------------------- */

#define STEPCCL_DMA_ACCESS_READ		(1u << 0)	/* may be a source */
#define STEPCCL_DMA_ACCESS_WRITE	(1u << 1)	/* may be a destination */

struct stepccl_dma_mr_reg {
	__u32 size;
	__u32 access;
	__u64 va;
	__u64 len;		/* bytes, any alignment */
	__u64 iova;		/* address by which descriptors name byte 0; va is usual */
	__u32 flags;		/* zero */
	__u32 key;		/* out */
	__u64 pages;		/* out: pages charged to RLIMIT_MEMLOCK */
	__u64 fail_page;	/* out: index of the page that could not be pinned */
	__u32 detail;		/* out */
	__u32 reserved;
};

struct stepccl_dma_mr_reg_dmabuf {
	__u32 size;
	__s32 fd;
	__u64 offset;
	__u64 len;
	__u64 iova;
	__u32 access;
	__u32 flags;		/* zero */
	__u32 key;		/* out */
	__u32 detail;		/* out */
};

/* Waits, killably, for the operations of this key that run; new ones get EKEYREVOKED. */
struct stepccl_dma_mr_dereg {
	__u32 size;
	__u32 key;
};

/* The descriptor is the capability: whoever holds it may import the memory. */
struct stepccl_dma_mr_export {
	__u32 size;
	__u32 key;
	__u32 access;		/* subset of the key's */
	__s32 fd;		/* out: O_CLOEXEC */
};

struct stepccl_dma_mr_import {
	__u32 size;
	__s32 fd;
	__u32 access;		/* in: subset wanted, 0: all; out: granted */
	__u32 key;		/* out */
	__u64 iova;		/* out: address of byte 0 */
	__u64 len;		/* out */
	__u32 flags;		/* zero */
	__u32 detail;		/* out */
};

/* ---- 8 ENTER, 9 CANCEL ---------------------------------------------- */

#define STEPCCL_DMA_ENTER_CLEAR_FAILED	(1u << 0)	/* FENCE works again */
#define STEPCCL_DMA_WAIT_FOREVER	0xffffffffffffffffull

/*
 * Returns the number of SQEs taken. With none taken: EAGAIN (completion queue
 * full), EINTR, ETIMEDOUT, EPROTO (corrupt index: the context is dead).
 */
struct stepccl_dma_enter {
	__u32 size;
	__u32 flags;		/* STEPCCL_DMA_ENTER_* */
	__u32 to_submit;	/* at most so many SQEs */
	__u32 min_complete;	/* then wait until so many CQEs are there */
	__u64 timeout_ns;	/* of the wait; 0: don't, WAIT_FOREVER */
	__u32 submitted;	/* out */
	__u32 ready;		/* out: CQEs that wait to be read */
};

#define STEPCCL_DMA_CANCEL_ALL	(1u << 0)

/* ENOENT: nothing that matches and has not started. */
struct stepccl_dma_cancel {
	__u32 size;
	__u32 flags;		/* STEPCCL_DMA_CANCEL_ALL */
	__u64 user_data;
	__u32 cancelled;	/* out */
	__u32 reserved;
};

/* ---- 10 ROUTE_SET (CAP_NET_ADMIN) ----------------------------------- */

struct stepccl_dma_route_set {
	__u32 size;
	__u16 node;
	__u8  state;		/* enum stepccl_dma_route_state */
	__u8  reserved;
	__s32 numa_node;	/* of a LOCAL node; else -1 */
	__u32 flags;		/* zero */
};

/* ---- 11 SUBMIT_ONE -------------------------------------------------- */

/* One synchronous copy; flags may hold SQE_NO_CPU and SQE_VERIFY. */
struct stepccl_dma_submit_one {
	__u32 size;
	__u32 flags;
	struct stepccl_dma_desc desc;
	__u32 src_key;
	__u32 dst_key;
	__u32 timeout_ms;
	__u32 bytes;		/* out: as in the CQE */
	__u16 cqe_flags;	/* out */
	__u16 detail;		/* out */
	__u32 engine;		/* out */
	__u64 nsec;		/* out */
};

#define STEPCCL_DMA_IOC_MAGIC	0xDC
#define STEPCCL_DMA_IOC(nr, type)	_IOWR(STEPCCL_DMA_IOC_MAGIC, nr, type)

#define STEPCCL_DMA_HELLO		STEPCCL_DMA_IOC(0, struct stepccl_dma_hello)
#define STEPCCL_DMA_QUERY		STEPCCL_DMA_IOC(1, struct stepccl_dma_query)
#define STEPCCL_DMA_CTX_CREATE		STEPCCL_DMA_IOC(2, struct stepccl_dma_ctx_create)
#define STEPCCL_DMA_MR_REG		STEPCCL_DMA_IOC(3, struct stepccl_dma_mr_reg)
#define STEPCCL_DMA_MR_REG_DMABUF	STEPCCL_DMA_IOC(4, struct stepccl_dma_mr_reg_dmabuf)
#define STEPCCL_DMA_MR_DEREG		STEPCCL_DMA_IOC(5, struct stepccl_dma_mr_dereg)
#define STEPCCL_DMA_MR_EXPORT		STEPCCL_DMA_IOC(6, struct stepccl_dma_mr_export)
#define STEPCCL_DMA_MR_IMPORT		STEPCCL_DMA_IOC(7, struct stepccl_dma_mr_import)
#define STEPCCL_DMA_ENTER		STEPCCL_DMA_IOC(8, struct stepccl_dma_enter)
#define STEPCCL_DMA_CANCEL		STEPCCL_DMA_IOC(9, struct stepccl_dma_cancel)
#define STEPCCL_DMA_ROUTE_SET		STEPCCL_DMA_IOC(10, struct stepccl_dma_route_set)
#define STEPCCL_DMA_SUBMIT_ONE		STEPCCL_DMA_IOC(11, struct stepccl_dma_submit_one)

#endif /* _UAPI_LINUX_STEPCCL_DMA_H */
