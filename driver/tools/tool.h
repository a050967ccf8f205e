/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TOOL_H
#define TOOL_H

#include <linux/stepccl_dma.h>

/* Exit statuses, also for scripts. */
enum {
	EXIT_OK = 0,
	EXIT_FAILED = 1,	/* a call failed or a byte was wrong */
	EXIT_USAGE = 2,
	EXIT_NO_DEVICE = 3,	/* the module isn't loaded, or the node isn't in this container */
	EXIT_NO_ACCESS = 4,
	EXIT_ABI = 5,
};

/* ioctl() with the size filled in; 0, a count or a negative errno. */
#define CALL(fd, cmd, arg) ((arg)->size = sizeof(*(arg)), tool_ioctl(fd, cmd, arg))
long tool_ioctl(int fd, unsigned long cmd, void *arg);

/* Opens and greets the device. On failure prints {"ok":false,"error":{...}} and exits. */
int tool_open(struct stepccl_dma_hello *hello);

/* Sub-commands: print one JSON object, return the exit status. */
int cmd_info(void);
int cmd_query(void);
int cmd_selftest(void);

#endif /* TOOL_H */
