/* SPDX-License-Identifier: GPL-2.0 */
/* Log codes: every line of the driver is "dma_engine: DEnnn ...". */
#ifndef SDMA_LOG_H
#define SDMA_LOG_H

#include <linux/stepccl_dma.h>
#include <linux/types.h>

struct sdma_file;

/* X(code, level): the numbers are stable, the console knows them. */
#define SDMA_EVENTS(X) \
	X(001, INFO)	/* loaded */ \
	X(003, WARN)	/* no engine, CPU path */ \
	X(101, WARN)	/* over RLIMIT_MEMLOCK */ \
	X(102, WARN)	/* pin failed */ \
	X(103, WARN)	/* dma-buf refused */ \
	X(105, WARN)	/* driver quota */ \
	X(201, WARN)	/* bad descriptor */ \
	X(202, INFO)	/* node is remote */ \
	X(203, WARN)	/* node not in the routing table */ \
	X(204, WARN)	/* ring corrupt */ \
	X(205, WARN)	/* ABI mismatch */ \
	X(304, ERR)	/* verify mismatch */ \
	X(305, NOTICE)	/* late completion */ \
	X(401, INFO)	/* unloading */ \
	X(501, ERR)	/* drain expired */

enum sdma_event {
#define X(code, level) SDMA_DE##code,
	SDMA_EVENTS(X)
#undef X
	SDMA_EVENT_COUNT
};

/* The latest event of level NOTICE or worse. */
struct sdma_last {
	spinlock_t lock;
	struct stepccl_dma_last_error error;
	DECLARE_BITMAP(seen, SDMA_EVENT_COUNT);
};

extern struct sdma_last sdma_last_global;
extern atomic64_t sdma_event_counts[SDMA_EVENT_COUNT];

void sdma_last_init(struct sdma_last *l);
void sdma_last_get(struct sdma_last *l, struct stepccl_dma_last_error *out);

/*
 * Counts the event, keeps it as last error and prints it. With @f the event
 * was caused by that file's user: only its first of a kind is printed, rate
 * limited, the others at debug level. @err: 0 or negative errno.
 */
__printf(4, 5)
void sdma_log(struct sdma_file *f, enum sdma_event ev, int err, const char *fmt, ...);

/* The current task's comm with all but harmless characters replaced. */
struct sdma_comm {
	char s[TASK_COMM_LEN];
};
struct sdma_comm sdma_comm(void);

#endif /* SDMA_LOG_H */
