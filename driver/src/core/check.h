/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The fixed order in which a request is refused: flags, opcode, nodes, length
 * (sdma_check_request); keys (by the caller); range, access (sdma_check_spans);
 * path (sdma_path_choose).
 */
#ifndef SDMA_CHECK_H
#define SDMA_CHECK_H

#include <linux/stepccl_dma.h>

#include "env.h"
#include "routes.h"

/*
 * Returns 0 or the errno of the first rule that @sqe breaks; *@detail says which.
 * @sqe must be a private copy. @max_bytes: longest operation.
 */
int sdma_check_request(const struct stepccl_dma_sqe *sqe, const struct sdma_routes *routes,
		       u32 max_bytes, u16 *detail);

/* One side of a copy, its key resolved. */
struct sdma_span {
	u64 addr;		/* as in the request */
	u64 base;		/* address of the memory's byte 0 in the same terms */
	u64 len;		/* of the memory */
	u64 va;			/* where byte 0 lies in its owner's address space */
	const void *owner;	/* identity of that address space */
	u32 access;
};

/*
 * Are @length bytes inside both, apart from each other, and allowed?
 * -ERANGE, -EINVAL (overlap), -EACCES. Overlap is seen where both sides belong
 * to one address space; two mappings of the same shared pages are not told apart.
 */
int sdma_check_spans(const struct sdma_span *src, const struct sdma_span *dst, u32 length,
		     u16 *detail);

/*
 * Checks [@addr, @addr + @len) of a registration. -EINVAL: length 0,
 * -EOVERFLOW: it wraps; *@pages is the number of pages touched.
 */
int sdma_check_region(u64 addr, u64 len, u64 *pages);

enum sdma_fallback {
	SDMA_FALLBACK_NO_ENGINE,
	SDMA_FALLBACK_SMALL,
	SDMA_FALLBACK_ALIGN,
	SDMA_FALLBACK_QUARANTINED,
	SDMA_FALLBACK_BUSY,
	SDMA_FALLBACK_POLICY,
	SDMA_FALLBACKS
};

/* What is known of the engine that would carry an operation. */
struct sdma_engine_view {
	bool present;
	bool quarantined;
	u32 align_bytes;	/* power of two; 0 or 1: none */
};

/*
 * Which path carries a copy. Returns 1 for the engine, 0 for the CPU with its
 * reason in *@why, or -ENODEV where policy or flags rule the CPU out.
 */
int sdma_path_choose(const struct stepccl_dma_sqe *sqe, u32 policy, u32 dma_min_bytes,
		     const struct sdma_engine_view *engine, enum sdma_fallback *why, u16 *detail);

#endif /* SDMA_CHECK_H */
