/* SPDX-License-Identifier: GPL-2.0 */
/* A check prints one TAP line; the files' suites are called by test_main.c. */
#ifndef UNIT_H
#define UNIT_H

#include <linux/stepccl_dma.h>

#include "core/env.h"

bool check(bool pass, const char *file, int line, const char *text);

#define CHECK(cond) check(cond, __FILE__, __LINE__, #cond)

/* Deterministic random numbers. */
u64 rnd(void);

void test_keytab(void);
void test_ranges(void);
void test_routes(void);
void test_ring(void);
void test_extents(void);
void test_check(void);

#endif /* UNIT_H */
