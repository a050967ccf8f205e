/* SPDX-License-Identifier: GPL-2.0 */
/* TAP output, as kselftest programs write it. */
#ifndef TAP_H
#define TAP_H

#include <stdbool.h>

/* One test point. Returns @pass. */
__attribute__((format(printf, 2, 3))) bool ok(bool pass, const char *fmt, ...);

/* A test point that can't be run here; @why names what is missing. */
void skip(const char *name, const char *why);

/* "# ..." */
__attribute__((format(printf, 1, 2))) void note(const char *fmt, ...);

/* A call that must return @want: 0, a count, or a negative errno. */
bool is(long got, long want, const char *what);

/* Prints the plan; 0 when all passed, else 1. */
int done_testing(void);

#endif /* TAP_H */
