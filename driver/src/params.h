/* SPDX-License-Identifier: GPL-2.0 */
/* Module parameters: limits that root may change at run time. */
#ifndef SDMA_PARAMS_H
#define SDMA_PARAMS_H

#include <linux/types.h>

/* X(name, default, min, max, mode, description) */
#define SDMA_PARAMS(X) \
	X(max_contexts, 256, 1, 4096, 0644, "open contexts") \
	X(max_contexts_per_user, 32, 1, 4096, 0644, "open contexts of one user id") \
	X(max_mrs, 4096, 1, 65536, 0644, "registrations and imports of a context") \
	X(max_mr_bytes, 0, 0, U64_MAX, 0644, "bytes registered by a context, 0: RLIMIT_MEMLOCK only") \
	X(max_op_bytes, 1 << 30, 4096, 1 << 30, 0644, "bytes of one operation") \
	X(dma_min_bytes, 65536, 0, 1 << 30, 0644, "smaller copies go to the CPU") \
	X(drain_ms, 10000, 1, 600000, 0644, "longest wait for running operations at close") \
	X(op_timeout_ms, 30000, 1, 3600000, 0644, "timeout of an operation that names none") \
	X(local_node, 0, 0, 65535, 0444, "node id that is LOCAL at load")

enum sdma_param {
#define X(name, def, min, max, mode, desc) SDMA_P_##name,
	SDMA_PARAMS(X)
#undef X
	SDMA_PARAM_COUNT
};

u64 sdma_param(enum sdma_param p);

#endif /* SDMA_PARAMS_H */
