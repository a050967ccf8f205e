// SPDX-License-Identifier: GPL-2.0
/* dma-test SUITE: one suite of the driver's tests, as root, with the module loaded. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dev.h"
#include "suites.h"
#include "tap.h"

static const struct {
	const char *name;
	void (*run)(void);
	unsigned int seconds;
} suites[] = {
	{ "calls", suite_calls, 60 },
	{ "routes", suite_routes, 60 },
	{ "memory", suite_memory, 120 },
	{ "copy", suite_copy, 300 },
	{ "ring", suite_ring, 120 },
	{ "share", suite_share, 120 },
	{ "lifetime", suite_lifetime, 120 },
	{ "limits", suite_limits, 120 },
	{ "fuzz", suite_fuzz, 120 },
	{ "faults", suite_faults, 120 },
};

int main(int argc, char **argv)
{
	size_t i;

	for (i = 0; argc == 2 && i < sizeof(suites) / sizeof(suites[0]); i++) {
		long long pinned = pinned_now();

		if (strcmp(argv[1], suites[i].name))
			continue;
		alarm(suites[i].seconds);
		signal(SIGPIPE, SIG_IGN);
		suites[i].run();
		is(pinned_now() - pinned, 0, "no page stays pinned");
		return done_testing();
	}
	fprintf(stderr, "usage: dma-test SUITE, one of:");
	for (i = 0; i < sizeof(suites) / sizeof(suites[0]); i++)
		fprintf(stderr, " %s", suites[i].name);
	fputc('\n', stderr);
	return 2;
}
