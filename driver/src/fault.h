/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Fault points, only in the module that `make faults` builds for the tests: the
 * shipped module contains none of them.
 */
#ifndef SDMA_FAULT_H
#define SDMA_FAULT_H

#include <linux/slab.h>
#include <linux/types.h>

#ifdef SDMA_FAULTS
/* True when this is the fault point that parameter fault_nth counts down to. */
bool sdma_fault(void);
/* Sleeps fault_step_ms, uninterruptibly, in each step of a CPU copy. */
void sdma_fault_step(void);
#else
static inline bool sdma_fault(void)
{
	return false;
}

static inline void sdma_fault_step(void)
{
}
#endif

/* Zeroed and charged to the caller's memory cgroup; NULL on failure. */
static inline void *sdma_kzalloc(size_t size)
{
	return sdma_fault() ? NULL : kzalloc(size, GFP_KERNEL_ACCOUNT);
}

#endif /* SDMA_FAULT_H */
