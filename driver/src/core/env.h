/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the kernel-free logic needs from its surroundings, so that the same
 * files build into the module and into the user-space unit tests.
 */
#ifndef SDMA_ENV_H
#define SDMA_ENV_H

#ifdef __KERNEL__

#include <linux/build_bug.h>
#include <linux/errno.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/nospec.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/types.h>

#include "../fault.h"

#define SDMA_PAGE_SHIFT PAGE_SHIFT

/* Zeroed, charged to the caller's memory cgroup; may sleep; NULL on failure. */
static inline void *sdma_zalloc(size_t n, size_t size)
{
	return sdma_fault() ? NULL : kvcalloc(n, size, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
}

static inline void sdma_free(const void *p)
{
	kvfree(p);
}

#else

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;

#define SDMA_PAGE_SHIFT 12
#define READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))
#define array_index_nospec(i, n) (i)
#define WRITE_ONCE(x, v) (*(volatile __typeof__(x) *)&(x) = (v))

/* The tests let the allocation number sdma_fail_alloc (from 1) fail. */
extern unsigned int sdma_fail_alloc;

static inline void *sdma_zalloc(size_t n, size_t size)
{
	if (sdma_fail_alloc && --sdma_fail_alloc == 0)
		return NULL;
	return calloc(n, size);
}

static inline void sdma_free(void *p)
{
	free(p);
}

static inline u32 roundup_pow_of_two(u32 n)
{
	u32 r = 1;

	while (r < n)
		r <<= 1;
	return r;
}

#endif /* __KERNEL__ */

#define SDMA_PAGE_SIZE (1ull << SDMA_PAGE_SHIFT)

#endif /* SDMA_ENV_H */
