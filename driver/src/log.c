// SPDX-License-Identifier: GPL-2.0
#define pr_fmt(fmt) "dma_engine: " fmt

#include <linux/ctype.h>
#include <linux/kernel.h>
#include <linux/ktime.h>
#include <linux/ratelimit.h>
#include <linux/sched.h>

#include "sdma.h"

enum level { INFO, NOTICE, WARN, ERR };

static const struct {
	u16 code;
	u8 level;
} events[SDMA_EVENT_COUNT] = {
#define X(nnn, lvl) { 1##nnn - 1000, lvl },
	SDMA_EVENTS(X)
#undef X
};

atomic64_t sdma_event_counts[SDMA_EVENT_COUNT];
struct sdma_last sdma_last_global = {
	.lock = __SPIN_LOCK_UNLOCKED(sdma_last_global.lock),
};

static DEFINE_RATELIMIT_STATE(user_events, 5 * HZ, 20);

void sdma_last_init(struct sdma_last *l)
{
	memset(l, 0, sizeof(*l));
	spin_lock_init(&l->lock);
}

void sdma_last_get(struct sdma_last *l, struct stepccl_dma_last_error *out)
{
	unsigned long flags;

	spin_lock_irqsave(&l->lock, flags);
	*out = l->error;
	spin_unlock_irqrestore(&l->lock, flags);
}

/* Returns whether this is the event's first time here. */
static bool remember(struct sdma_last *l, enum sdma_event ev, int err, const char *text)
{
	unsigned long flags;
	bool first;

	spin_lock_irqsave(&l->lock, flags);
	first = !__test_and_set_bit(ev, l->seen);
	if (events[ev].level > INFO) {
		l->error.code = events[ev].code;
		l->error.err = err;
		l->error.boottime_ns = ktime_get_boottime_ns();
		l->error.count++;
		strscpy_pad(l->error.text, text, sizeof(l->error.text));
	}
	spin_unlock_irqrestore(&l->lock, flags);
	return first;
}

static void print(enum sdma_event ev, const char *text)
{
	unsigned int code = events[ev].code;

	switch (events[ev].level) {
	case INFO:
		pr_info("DE%03u %s\n", code, text);
		break;
	case NOTICE:
		pr_notice("DE%03u %s\n", code, text);
		break;
	case WARN:
		pr_warn("DE%03u %s\n", code, text);
		break;
	default:
		pr_err("DE%03u %s\n", code, text);
	}
}

void sdma_log(struct sdma_file *f, enum sdma_event ev, int err, const char *fmt, ...)
{
	char text[sizeof_field(struct stepccl_dma_last_error, text)];
	va_list args;

	va_start(args, fmt);
	vscnprintf(text, sizeof(text), fmt, args);
	va_end(args);

	atomic64_inc(&sdma_event_counts[ev]);
	remember(&sdma_last_global, ev, err, text);
	if (!f || (remember(&f->last, ev, err, text) && __ratelimit(&user_events)))
		print(ev, text);
	else
		pr_debug("DE%03u %s\n", events[ev].code, text);
}

struct sdma_comm sdma_comm(void)
{
	struct sdma_comm c;
	char *p;

	get_task_comm(c.s, current);
	for (p = c.s; *p; p++)
		if (!isalnum(*p) && !strchr("._:/-", *p))
			*p = '?';
	return c;
}
