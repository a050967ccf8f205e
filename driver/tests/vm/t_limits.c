// SPDX-License-Identifier: GPL-2.0
/* RLIMIT_MEMLOCK for ordinary users, and the driver's own quotas. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev.h"
#include "suites.h"
#include "tap.h"

#define PARAMS "/sys/module/dma_engine/parameters/"
#define STATS "/sys/class/misc/dma_device/stats/"

static int set_param(const char *name, const char *value)
{
	char path[128];
	int fd, ret;

	snprintf(path, sizeof(path), PARAMS "%s", name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ret = write(fd, value, strlen(value)) < 0 ? -errno : 0;
	close(fd);
	return ret;
}

/* Runs @fn as user 65534 with the given memlock limit and an open device; returns its exit status. */
static int as_user(int (*fn)(int fd), rlim_t memlock)
{
	struct rlimit lim = { memlock, memlock };
	int status;
	pid_t pid = fork();

	if (!pid) {
		int fd = dev_open();

		if (setrlimit(RLIMIT_MEMLOCK, &lim) || setgid(65534) || setuid(65534))
			_exit(90);
		_exit(fn(fd));
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 91;
}

static int open_here(int fd, struct ring *r)
{
	return dev_hello(fd) || ctx_create(fd, r, 8, 8, 0, -1) ? -1 : 0;
}

static int exactly_the_limit(int fd)
{
	char *p = pages_alloc(17 * 4096);
	struct stepccl_dma_mr_reg a = { .access = RW, .va = (uintptr_t)p, .len = 16 * 4096 };
	struct stepccl_dma_last_error last;
	struct ring r;

	if (open_here(fd, &r) || reg_full(fd, &a))
		return 1;
	a.va = (uintptr_t)p + 16 * 4096;
	a.len = 1;
	a.key = 0;
	a.pages = 0;
	if (reg_full(fd, &a) != -ENOMEM || a.detail != STEPCCL_DMA_DETAIL_MEMLOCK)
		return 2;
	if (query(fd, STEPCCL_DMA_QUERY_LAST_ERROR, 1, &last, sizeof(last)) || last.code != 101 ||
	    last.err != -ENOMEM || !strstr(last.text, "need=1 pinned=16 limit=16"))
		return 3;
	if (read_number("/proc/self/status", "VmPin:") != 64)
		return 4;
	return 0;
}

static int no_memlock(int fd)
{
	char *p = pages_alloc(4096);
	struct stepccl_dma_mr_reg a = { .access = R, .va = (uintptr_t)p, .len = 1 };
	struct ring r;

	if (open_here(fd, &r))
		return 1;
	return reg_full(fd, &a) == -EPERM && a.detail == STEPCCL_DMA_DETAIL_MEMLOCK ? 0 : 2;
}

static int giant(int fd)
{
	struct stepccl_dma_mr_reg a = { .access = R, .va = 4096, .len = 1ull << 62 };
	struct ring r;

	if (open_here(fd, &r))
		return 1;
	return reg_full(fd, &a) == -ENOMEM && a.detail == STEPCCL_DMA_DETAIL_MEMLOCK &&
	       read_number("/proc/self/status", "VmPin:") == 0 ? 0 : 2;
}

static int two_contexts_of_a_user(int fd)
{
	struct ring r;
	int i, more[3];

	for (i = 0; i < 3; i++) {
		more[i] = dup(fd);	/* the same file: still one context */
		if (more[i] < 0)
			return 1;
	}
	if (open_here(fd, &r))
		return 2;
	return ctx_create(more[0], &r, 8, 8, 0, -1) == -EEXIST ? 0 : 3;
}

static void memlock(void)
{
	is(as_user(exactly_the_limit, 16 * 4096), 0,
	   "a user may pin up to RLIMIT_MEMLOCK, then ENOMEM with detail and DE101");
	is(as_user(no_memlock, 0), 0, "limit 0: EPERM");
	is(as_user(giant, 1 << 20), 0, "a giant registration is refused before any work");
	is(as_user(two_contexts_of_a_user, 1 << 20), 0, "a dup'ed file has one context");
}

static void contexts(void)
{
	struct stepccl_dma_limits l;
	struct ring r[33];
	int fds[33];
	int i;

	for (i = 0; i < 33; i++)
		fds[i] = dev_open_hello();
	for (i = 0; i < 32; i++)
		if (ctx_create(fds[i], &r[i], 8, 8, 0, -1))
			break;
	is(i, 32, "one user may have 32 contexts");
	is(ctx_create(fds[32], &r[32], 8, 8, 0, -1), -EUSERS, "the 33rd gets EUSERS");
	is(r[32].c.detail, STEPCCL_DMA_DETAIL_QUOTA_USER, "... with the reason");
	is(set_param("max_contexts_per_user", "100"), 0, "root raises the limit");
	is(set_param("max_contexts", "32"), 0, "... and lowers the total");
	is(ctx_create(fds[32], &r[32], 8, 8, 0, -1), -EUSERS, "the 33rd gets EUSERS");
	is(r[32].c.detail, STEPCCL_DMA_DETAIL_QUOTA_TOTAL, "... for the other reason");
	is(set_param("max_contexts", "0"), -ERANGE, "a parameter has bounds");
	is(set_param("max_contexts", "many"), -EINVAL, "... and must be a number");
	set_param("max_contexts", "256");
	set_param("max_contexts_per_user", "32");
	query(fds[0], STEPCCL_DMA_QUERY_LIMITS, 0, &l, sizeof(l));
	ok(l.max_contexts == 256 && l.max_contexts_per_user == 32, "QUERY follows the parameters");
	for (i = 0; i < 33; i++)
		close(fds[i]);
	is(read_number(STATS "contexts", NULL), 0, "all are gone");
}

static void registrations(void)
{
	struct stepccl_dma_mr_reg a = { .access = RW };
	char *p = pages_alloc(64 * 4096);
	struct ring r;
	uint32_t key;
	int fd, i;

	is(set_param("max_mrs", "5"), 0, "limit of 5 keys");
	fd = dev_open_ctx(&r, 8, 0);
	for (i = 0; i < 5; i++)
		if (reg(fd, p, 4096, RW, &key))
			break;
	is(i, 5, "5 registrations");
	a.va = (uintptr_t)p;
	a.len = 4096;
	is(reg_full(fd, &a), -EDQUOT, "the 6th gets EDQUOT");
	is(a.detail, STEPCCL_DMA_DETAIL_QUOTA_MRS, "... with the reason");
	is(dereg(fd, key), 0, "one less");
	a.detail = 0;
	a.reserved = 0;
	a.pages = 0;
	a.fail_page = 0;
	is(reg_full(fd, &a), 0, "... and there is room again");
	set_param("max_mrs", "4096");
	ring_unmap(&r);
	close(fd);

	is(set_param("max_mr_bytes", "65536"), 0, "limit of 64 KiB");
	fd = dev_open_ctx(&r, 8, 0);
	is(reg(fd, p, 60000, RW, &key), 0, "60000 bytes, 15 pages");
	memset(&a, 0, sizeof(a));
	a.access = R;
	a.va = (uintptr_t)p;
	a.len = 4097;
	is(reg_full(fd, &a), -EDQUOT, "2 pages more get EDQUOT");
	is(a.detail, STEPCCL_DMA_DETAIL_QUOTA_BYTES, "... with the reason");
	set_param("max_mr_bytes", "0");
	ring_unmap(&r);
	close(fd);
	munmap(p, 64 * 4096);
}

static void many(void)
{
	char *p = pages_alloc(4096);
	struct stepccl_dma_counters c;
	struct ring r;
	int fd = dev_open_ctx(&r, 8, 0);
	uint32_t key;
	int i;

	for (i = 0; i < 4096; i++)
		if (reg(fd, p, 1 + i % 4096, RW, &key))
			break;
	is(i, 4096, "4096 registrations");
	is(reg(fd, p, 1, RW, &key), -EDQUOT, "the 4097th gets EDQUOT");
	query(fd, STEPCCL_DMA_QUERY_COUNTERS, 1, &c, sizeof(c));
	is(c.mrs, 4096, "the counter agrees");
	is(copy_one(fd, STEPCCL_DMA_OP_READ, p, 0, p + 2048, 0, 2048, NULL), 0,
	   "a lookup by address among them");
	ring_unmap(&r);
	close(fd);
	is(read_number(STATS "mrs", NULL), 0, "close frees them all");
	munmap(p, 4096);
}

static void op_limit(void)
{
	char *p = pages_alloc(65536);
	struct ring r;
	int fd = dev_open_ctx(&r, 8, 0);
	uint32_t key;

	reg(fd, p, 65536, RW, &key);
	is(set_param("max_op_bytes", "8192"), 0, "limit of 8 KiB an operation");
	is(copy_one(fd, STEPCCL_DMA_OP_READ, p, key, p + 32768, key, 8193, NULL), -EMSGSIZE,
	   "one byte more gets EMSGSIZE");
	is(copy_one(fd, STEPCCL_DMA_OP_READ, p, key, p + 32768, key, 8192, NULL), 0, "8 KiB run");
	set_param("max_op_bytes", "1073741824");
	ring_unmap(&r);
	close(fd);
	munmap(p, 65536);
}

void suite_limits(void)
{
	memlock();
	contexts();
	registrations();
	many();
	op_limit();
}
