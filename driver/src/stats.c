// SPDX-License-Identifier: GPL-2.0
#include <linux/capability.h>
#include <linux/device.h>

#include "sdma.h"

struct sdma_counters sdma_counters_global;

static_assert(sizeof(struct stepccl_dma_counters) == SDMA_COUNTER_COUNT * sizeof(u64));
#define X(name) \
	static_assert(offsetof(struct stepccl_dma_counters, name) == SDMA_C_##name * sizeof(u64));
SDMA_COUNTERS(X)
#undef X

void sdma_count(struct sdma_ctx *ctx, enum sdma_counter c, s64 n)
{
	atomic64_add(n, &sdma_counters_global.v[c]);
	if (ctx)
		atomic64_add(n, &ctx->counters.v[c]);
}

void sdma_counters_get(const struct sdma_counters *c, struct stepccl_dma_counters *out)
{
#define X(name) out->name = atomic64_read(&c->v[SDMA_C_##name]);
	SDMA_COUNTERS(X)
#undef X
}

void sdma_limits_get(struct stepccl_dma_limits *out)
{
	*out = (struct stepccl_dma_limits) {
		.max_contexts = sdma_param(SDMA_P_max_contexts),
		.max_contexts_per_user = sdma_param(SDMA_P_max_contexts_per_user),
		.max_mrs = sdma_param(SDMA_P_max_mrs),
		.max_entries = SDMA_RING_MAX,
		.max_mr_bytes = sdma_param(SDMA_P_max_mr_bytes),
		.max_op_bytes = sdma_param(SDMA_P_max_op_bytes),
		.dma_min_bytes = sdma_param(SDMA_P_dma_min_bytes),
		.drain_ms = sdma_param(SDMA_P_drain_ms),
		.op_timeout_ms = sdma_param(SDMA_P_op_timeout_ms),
		.cpu_step_bytes = SDMA_CPU_STEP,
		.engines = sdma_engine_count(),
		.page_bytes = PAGE_SIZE,
		.local_node = sdma_param(SDMA_P_local_node),
	};
}

/* stats/<counter>, stats/de<nnn>: one decimal number each. */
struct stat_attribute {
	struct device_attribute attr;
	const atomic64_t *value;
};

static ssize_t stat_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	const struct stat_attribute *s = container_of(attr, struct stat_attribute, attr);

	return sysfs_emit(buf, "%lld\n", (long long)atomic64_read(s->value));
}

static struct stat_attribute counter_attrs[SDMA_COUNTER_COUNT] = {
#define X(name) { __ATTR(name, 0444, stat_show, NULL), &sdma_counters_global.v[SDMA_C_##name] },
	SDMA_COUNTERS(X)
#undef X
};

static struct stat_attribute event_attrs[SDMA_EVENT_COUNT] = {
#define X(nnn, lvl) { __ATTR(de##nnn, 0444, stat_show, NULL), &sdma_event_counts[SDMA_DE##nnn] },
	SDMA_EVENTS(X)
#undef X
};

static struct attribute *stats_attrs[] = {
#define X(name) &counter_attrs[SDMA_C_##name].attr.attr,
	SDMA_COUNTERS(X)
#undef X
#define X(nnn, lvl) &event_attrs[SDMA_DE##nnn].attr.attr,
	SDMA_EVENTS(X)
#undef X
	NULL
};

static ssize_t last_error_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct stepccl_dma_last_error e;

	sdma_last_get(&sdma_last_global, &e);
	if (!e.code)
		return sysfs_emit(buf, "none\n");
	return sysfs_emit(buf, "DE%03u err=%d boottime_ns=%llu count=%llu %.*s\n", e.code, e.err,
			  e.boottime_ns, e.count, (int)sizeof(e.text), e.text);
}
static DEVICE_ATTR_RO(last_error);

static ssize_t limits_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct stepccl_dma_limits l;

	sdma_limits_get(&l);
	return sysfs_emit(buf,
			  "max_contexts %u\nmax_contexts_per_user %u\nmax_mrs %u\n"
			  "max_entries %u\nmax_mr_bytes %llu\nmax_op_bytes %u\n"
			  "dma_min_bytes %u\ndrain_ms %u\nop_timeout_ms %u\n"
			  "cpu_step_bytes %u\nengines %u\npage_bytes %u\nlocal_node %u\n",
			  l.max_contexts, l.max_contexts_per_user, l.max_mrs, l.max_entries,
			  l.max_mr_bytes, l.max_op_bytes, l.dma_min_bytes, l.drain_ms,
			  l.op_timeout_ms, l.cpu_step_bytes, l.engines, l.page_bytes,
			  l.local_node);
}
static DEVICE_ATTR_RO(limits);

static ssize_t routes_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sdma_routes_format(buf, PAGE_SIZE);
}

static ssize_t routes_store(struct device *dev, struct device_attribute *attr, const char *buf,
			    size_t count)
{
	int ret = sdma_routes_parse(buf);

	return ret ? ret : count;
}
static DEVICE_ATTR_RW(routes);

static struct attribute *root_attrs[] = {
	&dev_attr_last_error.attr,
	&dev_attr_limits.attr,
	&dev_attr_routes.attr,
	NULL
};

static const struct attribute_group root_group = { .attrs = root_attrs };
static const struct attribute_group stats_group = { .name = "stats", .attrs = stats_attrs };

const struct attribute_group *sdma_groups[] = { &root_group, &stats_group, NULL };
