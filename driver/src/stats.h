/* SPDX-License-Identifier: GPL-2.0 */
/* Counters, and the attributes below /sys/class/misc/dma_device. */
#ifndef SDMA_STATS_H
#define SDMA_STATS_H

#include <linux/atomic.h>
#include <linux/stepccl_dma.h>
#include <linux/sysfs.h>

/* In the order of struct stepccl_dma_counters. */
#define SDMA_COUNTERS(X) \
	X(ops_read) X(ops_write) X(ops_failed) X(ops_cancelled) X(bytes_cpu) X(bytes_dma) \
	X(cpu_no_engine) X(cpu_small) X(cpu_align) X(cpu_quarantined) X(cpu_busy) X(cpu_policy) \
	X(verify_mismatch) X(mrs) X(pinned_pages) X(quarantined_pages) X(contexts)

enum sdma_counter {
#define X(name) SDMA_C_##name,
	SDMA_COUNTERS(X)
#undef X
	SDMA_COUNTER_COUNT
};

struct sdma_counters {
	atomic64_t v[SDMA_COUNTER_COUNT];
};

extern struct sdma_counters sdma_counters_global;
extern const struct attribute_group *sdma_groups[];

struct sdma_ctx;

/* Adds to the driver's counter and, unless @ctx is NULL, to the context's. */
void sdma_count(struct sdma_ctx *ctx, enum sdma_counter c, s64 n);

void sdma_counters_get(const struct sdma_counters *c, struct stepccl_dma_counters *out);

void sdma_limits_get(struct stepccl_dma_limits *out);

#endif /* SDMA_STATS_H */
