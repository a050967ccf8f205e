// SPDX-License-Identifier: GPL-2.0
#include "tap.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static unsigned int points, failures;

bool ok(bool pass, const char *fmt, ...)
{
	va_list args;

	points++;
	failures += !pass;
	printf("%sok %u - ", pass ? "" : "not ", points);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
	return pass;
}

void skip(const char *name, const char *why)
{
	printf("ok %u - %s # SKIP %s\n", ++points, name, why);
	fflush(stdout);
}

void note(const char *fmt, ...)
{
	va_list args;

	printf("# ");
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

bool is(long got, long want, const char *what)
{
	if (ok(got == want, "%s", what))
		return true;
	note("got %ld (%s), want %ld (%s)", got, got < 0 ? strerror(-got) : "", want,
	     want < 0 ? strerror(-want) : "");
	return false;
}

int done_testing(void)
{
	printf("1..%u\n", points);
	return failures ? 1 : 0;
}
