// SPDX-License-Identifier: GPL-2.0
#include <stdio.h>

#include "unit.h"

unsigned int sdma_fail_alloc;

static unsigned int passed, failed;

bool check(bool pass, const char *file, int line, const char *text)
{
	if (pass) {
		passed++;
	} else {
		failed++;
		printf("not ok - %s:%d: %s\n", file, line, text);
	}
	return pass;
}

u64 rnd(void)
{
	static u64 x = 88172645463325252ull;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x;
}

int main(void)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} suites[] = {
		{ "keytab", test_keytab }, { "ranges", test_ranges }, { "routes", test_routes },
		{ "ring", test_ring }, { "extents", test_extents }, { "check", test_check },
	};
	unsigned int bad = 0;
	size_t i;

	for (i = 0; i < sizeof(suites) / sizeof(suites[0]); i++) {
		unsigned int before = failed, start = passed;

		suites[i].run();
		bad += failed != before;
		printf("%sok %zu - core/%s (%u checks)\n", failed != before ? "not " : "", i + 1,
		       suites[i].name, passed - start);
	}
	printf("1..%zu\n", i);
	return bad != 0;
}
