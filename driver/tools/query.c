// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <stdint.h>
#include <unistd.h>

#include "json.h"
#include "tool.h"

static long ask(int fd, uint32_t op, uint32_t index, void *data, uint32_t bytes)
{
	struct stepccl_dma_query q = {
		.op = op,
		.index = index,
		.data_size = bytes,
		.data = (uintptr_t)data,
	};

	return CALL(fd, STEPCCL_DMA_QUERY, &q);
}

#define U(s, field) json_uint(#field, (s)->field)

static long limits(int fd, struct stepccl_dma_limits *l)
{
	long ret = ask(fd, STEPCCL_DMA_QUERY_LIMITS, 0, l, sizeof(*l));

	if (ret)
		return ret;
	json_open("limits", '{');
	U(l, max_contexts);
	U(l, max_contexts_per_user);
	U(l, max_mrs);
	U(l, max_entries);
	U(l, max_mr_bytes);
	U(l, max_op_bytes);
	U(l, dma_min_bytes);
	U(l, drain_ms);
	U(l, op_timeout_ms);
	U(l, cpu_step_bytes);
	U(l, engines);
	U(l, page_bytes);
	U(l, local_node);
	json_close('}');
	return 0;
}

static void engines(int fd, uint32_t count)
{
	struct stepccl_dma_engine_info e;
	uint32_t i;

	json_open("engines", '[');
	for (i = 0; i < count && !ask(fd, STEPCCL_DMA_QUERY_ENGINE, i, &e, sizeof(e)); i++) {
		json_open(NULL, '{');
		json_text("driver", e.driver, sizeof(e.driver));
		json_text("bus_id", e.bus_id, sizeof(e.bus_id));
		json_int("numa_node", e.numa_node);
		U(&e, align_bytes);
		U(&e, max_bytes);
		json_bool("ordered", e.flags & STEPCCL_DMA_ENGINE_ORDERED);
		json_bool("errors_visible", e.flags & STEPCCL_DMA_ENGINE_ERRORS_VISIBLE);
		json_text("state", e.state == STEPCCL_DMA_ENGINE_READY ? "ready" : "quarantined", 16);
		json_close('}');
	}
	json_close(']');
}

static long counters(int fd)
{
	struct stepccl_dma_counters c;
	long ret = ask(fd, STEPCCL_DMA_QUERY_COUNTERS, 0, &c, sizeof(c));

	if (ret)
		return ret;
	json_open("counters", '{');
	U(&c, ops_read);
	U(&c, ops_write);
	U(&c, ops_failed);
	U(&c, ops_cancelled);
	U(&c, bytes_cpu);
	U(&c, bytes_dma);
	U(&c, cpu_no_engine);
	U(&c, cpu_small);
	U(&c, cpu_align);
	U(&c, cpu_quarantined);
	U(&c, cpu_busy);
	U(&c, cpu_policy);
	U(&c, verify_mismatch);
	U(&c, mrs);
	U(&c, pinned_pages);
	U(&c, quarantined_pages);
	U(&c, contexts);
	json_close('}');
	return 0;
}

static void routes(int fd)
{
	static const char * const names[] = { "absent", "local", "remote", "down" };
	struct stepccl_dma_route r;
	uint32_t from = 0;

	json_open("routes", '[');
	while (!ask(fd, STEPCCL_DMA_QUERY_ROUTE, from, &r, sizeof(r))) {
		json_open(NULL, '{');
		json_uint("node", r.node);
		json_text("state", r.state < 4 ? names[r.state] : "unknown", 16);
		json_int("numa_node", r.numa_node);
		json_close('}');
		from = (uint32_t)r.node + 1;
	}
	json_close(']');
}

static long last_error(int fd)
{
	struct stepccl_dma_last_error e;
	long ret = ask(fd, STEPCCL_DMA_QUERY_LAST_ERROR, 0, &e, sizeof(e));

	if (ret || !e.code)
		return ret;
	json_open("last_error", '{');
	U(&e, code);
	json_int("errno", -e.err);
	U(&e, boottime_ns);
	U(&e, count);
	json_text("text", e.text, sizeof(e.text));
	json_close('}');
	return 0;
}

int cmd_query(void)
{
	struct stepccl_dma_limits l = {};
	struct stepccl_dma_hello h;
	int fd = tool_open(&h);
	long ret;

	json_open(NULL, '{');
	ret = limits(fd, &l);
	if (!ret) {
		engines(fd, l.engines);
		ret = counters(fd);
	}
	if (!ret) {
		routes(fd);
		ret = last_error(fd);
	}
	json_bool("ok", !ret);
	if (ret)
		json_int("errno", -ret);
	json_close('}');
	json_end();
	close(fd);
	return ret ? EXIT_FAILED : EXIT_OK;
}
