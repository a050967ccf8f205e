// SPDX-License-Identifier: GPL-2.0
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>

#include "params.h"

struct bounded {
	u64 value;
	u64 min;
	u64 max;
};

static int bounded_set(const char *text, const struct kernel_param *kp)
{
	struct bounded *b = kp->arg;
	u64 value;
	int ret = kstrtou64(text, 0, &value);

	if (ret)
		return ret;
	if (value < b->min || value > b->max)
		return -ERANGE;
	WRITE_ONCE(b->value, value);
	return 0;
}

static int bounded_get(char *buffer, const struct kernel_param *kp)
{
	const struct bounded *b = kp->arg;

	return scnprintf(buffer, PAGE_SIZE, "%llu\n", READ_ONCE(b->value));
}

static const struct kernel_param_ops bounded_ops = {
	.set = bounded_set,
	.get = bounded_get,
};

static struct bounded params[SDMA_PARAM_COUNT] = {
#define X(name, def, lo, hi, mode, desc) { .value = def, .min = lo, .max = hi },
	SDMA_PARAMS(X)
#undef X
};

#define X(name, def, lo, hi, mode, desc) \
	module_param_cb(name, &bounded_ops, &params[SDMA_P_##name], mode); \
	MODULE_PARM_DESC(name, desc " (default " #def ")");
SDMA_PARAMS(X)
#undef X

u64 sdma_param(enum sdma_param p)
{
	return READ_ONCE(params[p].value);
}
