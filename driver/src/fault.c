// SPDX-License-Identifier: GPL-2.0
#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/moduleparam.h>

#include "fault.h"

static atomic_t countdown = ATOMIC_INIT(0);

static int nth_set(const char *text, const struct kernel_param *kp)
{
	unsigned int n;
	int ret = kstrtouint(text, 0, &n);

	if (!ret)
		atomic_set(&countdown, n);
	return ret;
}

static int nth_get(char *buffer, const struct kernel_param *kp)
{
	return scnprintf(buffer, 32, "%d\n", atomic_read(&countdown));
}

static const struct kernel_param_ops nth_ops = { .set = nth_set, .get = nth_get };
module_param_cb(fault_nth, &nth_ops, NULL, 0600);
MODULE_PARM_DESC(fault_nth, "the fault point that fails next, counted from 1; 0: none");

static unsigned int fault_step_ms;
module_param(fault_step_ms, uint, 0600);
MODULE_PARM_DESC(fault_step_ms, "delay of each step of a CPU copy");

bool sdma_fault(void)
{
	return atomic_dec_if_positive(&countdown) == 0;
}

void sdma_fault_step(void)
{
	unsigned int ms = READ_ONCE(fault_step_ms);

	if (ms)
		msleep(ms);
}
