// SPDX-License-Identifier: GPL-2.0
/* The routing table and what descriptors to each kind of node get. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev.h"
#include "suites.h"
#include "tap.h"

#define ROUTES "/sys/class/misc/dma_device/routes"

static long between(int fd, uint8_t op, uint16_t src_node, uint16_t dst_node, char *buf,
		    uint32_t key, uint16_t *detail)
{
	struct stepccl_dma_submit_one a = {
		.desc = {
			.src = (uintptr_t)buf, .dst = (uintptr_t)buf + 4096, .length = 64,
			.src_node = src_node, .dst_node = dst_node, .opcode = op,
		},
		.src_key = key,
		.dst_key = key,
	};
	long ret = CALL(fd, STEPCCL_DMA_SUBMIT_ONE, &a);

	*detail = a.detail;
	return ret;
}

static int write_routes(const char *text)
{
	FILE *f = fopen(ROUTES, "we");
	int ret = 0;

	if (!f)
		return -errno;
	if (fputs(text, f) < 0 || fflush(f))
		ret = -errno;
	fclose(f);
	return ret;
}

static void table(int fd)
{
	struct stepccl_dma_route_set a = { .node = 9, .state = 4, .numa_node = -1 };
	struct stepccl_dma_route r;
	int status;
	pid_t pid;

	is(CALL(fd, STEPCCL_DMA_ROUTE_SET, &a), -EINVAL, "an unknown state gets EINVAL");
	a.state = STEPCCL_DMA_ROUTE_REMOTE;
	a.numa_node = 0;
	is(CALL(fd, STEPCCL_DMA_ROUTE_SET, &a), -EINVAL, "a remote node has no NUMA node");
	a.numa_node = -1;
	a.reserved = 1;
	is(CALL(fd, STEPCCL_DMA_ROUTE_SET, &a), -EINVAL, "a reserved field must be zero");
	pid = fork();
	if (!pid)
		_exit(setuid(65534) ? 99 : -route(fd, 9, STEPCCL_DMA_ROUTE_LOCAL));
	waitpid(pid, &status, 0);
	is(WEXITSTATUS(status), EPERM, "without CAP_NET_ADMIN: EPERM");
	is(query(fd, STEPCCL_DMA_QUERY_ROUTE, 0, &r, sizeof(r)), 0, "QUERY route from 0");
	ok(r.node == 0 && r.state == STEPCCL_DMA_ROUTE_LOCAL, "node 0 is local by default");
	is(query(fd, STEPCCL_DMA_QUERY_ROUTE, 1, &r, sizeof(r)), -ENOENT, "... and nothing else is");
	is(route(fd, 7, STEPCCL_DMA_ROUTE_REMOTE), 0, "set node 7 remote");
	is(route(fd, 65535, STEPCCL_DMA_ROUTE_DOWN), 0, "set node 65535 down");
	is(query(fd, STEPCCL_DMA_QUERY_ROUTE, 1, &r, sizeof(r)), 0, "QUERY route from 1");
	ok(r.node == 7 && r.state == STEPCCL_DMA_ROUTE_REMOTE, "... finds node 7");
	is(query(fd, STEPCCL_DMA_QUERY_ROUTE, 8, &r, sizeof(r)), 0, "QUERY route from 8");
	ok(r.node == 65535 && r.state == STEPCCL_DMA_ROUTE_DOWN, "... finds node 65535");
	is(query(fd, STEPCCL_DMA_QUERY_ROUTE, 65536, &r, sizeof(r)), -ENOENT, "... and no more");
}

static void sysfs(int fd)
{
	struct stepccl_dma_route r;
	char text[256] = "";
	FILE *f = fopen(ROUTES, "re");

	ok(f && fread(text, 1, sizeof(text) - 1, f) > 0, "the routes file can be read");
	if (f)
		fclose(f);
	ok(!strcmp(text, "0-0 local -1\n7-7 remote -1\n65535-65535 down -1\n"),
	   "... and holds the table");
	is(write_routes("12 local 0"), 0, "a line is accepted");
	query(fd, STEPCCL_DMA_QUERY_ROUTE, 12, &r, sizeof(r));
	ok(r.node == 12 && r.state == STEPCCL_DMA_ROUTE_LOCAL && r.numa_node == 0,
	   "... and takes effect");
	is(write_routes("12 nowhere"), -EINVAL, "an unknown word gets EINVAL");
	is(write_routes("70000 local"), -EINVAL, "a node beyond 65535 gets EINVAL");
	is(write_routes("x"), -EINVAL, "garbage gets EINVAL");
	is(write_routes("12 absent"), 0, "a node can be taken out");
}

void suite_routes(void)
{
	static const struct {
		uint8_t op;
		uint16_t src, dst;
		long want;
		uint16_t detail;
		const char *what;
	} cases[] = {
		{ 1, 0, 0, 0, 0, "local to local, READ" },
		{ 2, 0, 0, 0, 0, "local to local, WRITE" },
		{ 1, 7, 0, -EREMOTE, STEPCCL_DMA_DETAIL_SRC_NODE, "READ from a remote node" },
		{ 2, 0, 7, -EREMOTE, STEPCCL_DMA_DETAIL_DST_NODE, "WRITE to a remote node" },
		{ 1, 0, 7, -EDESTADDRREQ, STEPCCL_DMA_DETAIL_DST_NODE, "READ into a remote node" },
		{ 2, 7, 0, -EDESTADDRREQ, STEPCCL_DMA_DETAIL_SRC_NODE, "WRITE out of a remote node" },
		{ 1, 9, 0, -EHOSTUNREACH, STEPCCL_DMA_DETAIL_SRC_NODE, "READ from an absent node" },
		{ 2, 0, 9, -EHOSTUNREACH, STEPCCL_DMA_DETAIL_DST_NODE, "WRITE to an absent node" },
		{ 1, 65535, 0, -ENETDOWN, STEPCCL_DMA_DETAIL_SRC_NODE, "READ from a node that is down" },
		{ 2, 0, 65535, -ENETDOWN, STEPCCL_DMA_DETAIL_DST_NODE, "WRITE to a node that is down" },
		{ 1, 9, 65535, -EHOSTUNREACH, STEPCCL_DMA_DETAIL_SRC_NODE, "absent comes before down" },
	};
	char *buf = pages_alloc(8192);
	struct ring r;
	int fd = dev_open_ctx(&r, 8, 0);
	uint16_t detail;
	uint32_t key;
	size_t i;

	table(fd);
	reg(fd, buf, 8192, RW, &key);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		is(between(fd, cases[i].op, cases[i].src, cases[i].dst, buf, key, &detail),
		   cases[i].want, cases[i].what);
		is(detail, cases[i].detail, "... detail");
	}
	sysfs(fd);
	route(fd, 7, STEPCCL_DMA_ROUTE_ABSENT);
	route(fd, 65535, STEPCCL_DMA_ROUTE_ABSENT);
	ring_unmap(&r);
	close(fd);
	munmap(buf, 8192);
}
