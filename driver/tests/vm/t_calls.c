// SPDX-License-Identifier: GPL-2.0
/* HELLO, QUERY, and what malformed calls get. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev.h"
#include "suites.h"
#include "tap.h"

static const unsigned long commands[] = {
	STEPCCL_DMA_HELLO, STEPCCL_DMA_QUERY, STEPCCL_DMA_CTX_CREATE, STEPCCL_DMA_MR_REG,
	STEPCCL_DMA_MR_REG_DMABUF, STEPCCL_DMA_MR_DEREG, STEPCCL_DMA_MR_EXPORT,
	STEPCCL_DMA_MR_IMPORT, STEPCCL_DMA_ENTER, STEPCCL_DMA_CANCEL, STEPCCL_DMA_ROUTE_SET,
	STEPCCL_DMA_SUBMIT_ONE,
};

static void node_checks(void)
{
	struct stat st;
	const char *mode = getenv("DMA_TEST_MODE");
	int status;
	pid_t pid;

	ok(!stat(STEPCCL_DMA_DEVICE, &st) && S_ISCHR(st.st_mode), "the device node exists");
	is(st.st_mode & 0777, strtol(mode ? mode : "600", NULL, 8), "its mode is as expected");
	pid = fork();
	if (!pid) {
		if (setgid(65534) || setuid(65534))
			_exit(99);
		_exit(open(STEPCCL_DMA_DEVICE, O_RDWR) < 0 ? errno : 0);
	}
	waitpid(pid, &status, 0);
	is(WEXITSTATUS(status), EACCES, "another user's open gets EACCES");
}

static void before_hello(void)
{
	union {
		uint32_t size;
		char room[256];
	} arg;
	int fd = dev_open();
	size_t i;

	for (i = 1; i < sizeof(commands) / sizeof(commands[0]); i++) {
		memset(&arg, 0, sizeof(arg));
		arg.size = _IOC_SIZE(commands[i]);
		if (dev_ioctl(fd, commands[i], &arg) != -EBADFD)
			break;
	}
	is(i, 12, "every call before HELLO gets EBADFD");
	is((long)mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0), (long)MAP_FAILED,
	   "mmap without context fails");
	ok(errno == EBADFD, "... with EBADFD");
	close(fd);
}

static void hello(void)
{
	struct stepccl_dma_hello h = { .abi_major = 2, .abi_minor = 3, .features = ~0ull };
	int fd = dev_open();

	is(CALL(fd, STEPCCL_DMA_HELLO, &h), -EPROTONOSUPPORT, "another major gets EPROTONOSUPPORT");
	ok(h.abi_major == 1 && h.abi_minor == 0 && h.version[0] && h.git_id[0],
	   "... and learns the driver's version (%u.%u, %s, %s)", h.abi_major, h.abi_minor,
	   h.version, h.git_id);
	is(query(fd, STEPCCL_DMA_QUERY_LIMITS, 0, NULL, 0), -EBADFD, "... and isn't greeted");
	h = (struct stepccl_dma_hello) { .abi_major = 1, .abi_minor = 7, .features = ~0ull };
	is(CALL(fd, STEPCCL_DMA_HELLO, &h), 0, "a newer minor is welcome");
	ok(h.features == h.supported && h.supported & STEPCCL_DMA_FEATURE_RING,
	   "unknown wanted features are not granted");
	ok(!(h.supported & (STEPCCL_DMA_FEATURE_DMABUF | STEPCCL_DMA_FEATURE_DMAENGINE)),
	   "what is not built is not offered");
	h = (struct stepccl_dma_hello) { .abi_major = 1 };
	is(CALL(fd, STEPCCL_DMA_HELLO, &h), 0, "a second HELLO is allowed");
	is(h.features, 0, "no feature wanted, none granted");
	close(fd);
}

static void sizes(int fd)
{
	union {
		uint32_t size;
		char room[512];
	} arg;
	char *edge = pages_alloc(8192);
	size_t i, shorter = 0, longer = 0, huge = 0, bad = 0;

	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		uint32_t bytes = _IOC_SIZE(commands[i]);

		memset(&arg, 0, sizeof(arg));
		arg.size = bytes - 1;
		shorter += dev_ioctl(fd, commands[i], &arg) == -EINVAL;
		arg.size = bytes + 8;
		arg.room[bytes + 3] = 1;
		longer += dev_ioctl(fd, commands[i], &arg) == -E2BIG;
		arg.size = 1u << 30;
		huge += dev_ioctl(fd, commands[i], &arg) == -E2BIG;
		munmap(edge + 4096, 4096);
		*(uint32_t *)(edge + 4092) = bytes;
		bad += dev_ioctl(fd, commands[i], edge + 4092) == -EFAULT &&
		       dev_ioctl(fd, commands[i], NULL) == -EFAULT;
	}
	is(shorter, 12, "a struct that is too short gets EINVAL");
	is(longer, 12, "a longer one with a non-zero tail gets E2BIG");
	is(huge, 12, "a giant one gets E2BIG");
	is(bad, 12, "a bad pointer gets EFAULT");
	munmap(edge, 4096);
}

static void longer_zero_tail(int fd)
{
	struct {
		struct stepccl_dma_query q;
		uint64_t tail;
	} a = { .q = { .size = sizeof(a), .op = STEPCCL_DMA_QUERY_LIMITS } };

	is(dev_ioctl(fd, STEPCCL_DMA_QUERY, &a), 0, "a longer struct with a zero tail is accepted");
}

static void unknown(int fd)
{
	struct stepccl_dma_query a = {};

	is(CALL(fd, _IOWR(STEPCCL_DMA_IOC_MAGIC, 12, struct stepccl_dma_query), &a), -ENOTTY,
	   "an unknown number gets ENOTTY");
	is(CALL(fd, _IOWR(0xDD, 1, struct stepccl_dma_query), &a), -ENOTTY, "an unknown magic too");
	is(CALL(fd, _IO(STEPCCL_DMA_IOC_MAGIC, 1), &a), -ENOTTY, "a wrong direction too");
}

static void queries(int fd)
{
	struct stepccl_dma_limits l;
	struct stepccl_dma_engine_info e;
	struct stepccl_dma_counters c;
	struct stepccl_dma_last_error last;
	struct {
		struct stepccl_dma_limits l;
		char more[64];
	} big;
	struct stepccl_dma_query q = {
		.op = STEPCCL_DMA_QUERY_LIMITS, .data = (uintptr_t)&big, .data_size = sizeof(big),
	};

	is(query(fd, STEPCCL_DMA_QUERY_LIMITS, 0, &l, sizeof(l)), 0, "QUERY limits");
	ok(l.max_contexts == 256 && l.max_contexts_per_user == 32 && l.max_mrs == 4096 &&
	   l.max_entries == 4096 && l.max_op_bytes == 1u << 30 && l.cpu_step_bytes == 256u << 10 &&
	   l.page_bytes == (uint32_t)sysconf(_SC_PAGESIZE), "the limits are the documented ones");
	is(query(fd, STEPCCL_DMA_QUERY_LIMITS, 1, &l, sizeof(l)), -ENOENT, "no second limits");
	is(query(fd, STEPCCL_DMA_QUERY_ENGINE, l.engines, &e, sizeof(e)), -ENOENT,
	   "the engine list ends where limits.engines says");
	is(query(fd, STEPCCL_DMA_QUERY_COUNTERS, 0, &c, sizeof(c)), 0, "QUERY counters");
	is(query(fd, STEPCCL_DMA_QUERY_COUNTERS, 1, &c, sizeof(c)), -ENOENT,
	   "no context, no counters of it");
	is(query(fd, STEPCCL_DMA_QUERY_LAST_ERROR, 0, &last, sizeof(last)), 0, "QUERY last error");
	is(query(fd, STEPCCL_DMA_QUERY_LAST_ERROR, 1, &last, sizeof(last)), 0, "... of this file");
	is(last.code, 0, "... which has none yet");
	is(query(fd, 99, 0, &l, sizeof(l)), -EOPNOTSUPP, "an unknown sub-op gets EOPNOTSUPP");
	is(query(fd, STEPCCL_DMA_QUERY_LIMITS, 0, (void *)8, 64), -EFAULT, "bad data pointer");
	memset(&big, 0xff, sizeof(big));
	is(CALL(fd, STEPCCL_DMA_QUERY, &q), 0, "a longer buffer");
	ok(q.data_size == sizeof(l) && !big.more[0] && !big.more[63], "... gets zeros at its end");
	memset(&l, 0xff, sizeof(l));
	is(query(fd, STEPCCL_DMA_QUERY_LIMITS, 0, &l, 4), 0, "a shorter buffer");
	ok(l.max_contexts == 256 && l.max_contexts_per_user == 0xffffffff, "... is not overrun");
}

static void contexts(void)
{
	struct ring r, second;
	int fd = dev_open_hello();

	is(ctx_create(fd, &r, 0, 8, 0, -1), -EINVAL, "0 entries get EINVAL");
	is(ctx_create(fd, &r, 4097, 8, 0, -1), -EINVAL, "4097 entries too");
	is(ctx_create(fd, &r, 8, 8, 3, -1), -EINVAL, "an unknown policy too");
	is(ctx_create(fd, &r, 8, 8, 0, 9999), -EBADF, "an eventfd that isn't open gets EBADF");
	is(ctx_create(fd, &r, 8, 8, 0, fd), -EINVAL, "a file that is no eventfd gets EINVAL");
	is(ctx_create(fd, &r, 9, 0, 0, -1), 0, "CTX_CREATE");
	ok(r.c.sq_entries == 16 && r.c.cq_entries == 16, "entries are rounded up");
	is(ctx_create(fd, &second, 8, 8, 0, -1), -EEXIST, "a second context gets EEXIST");
	ok(mmap(NULL, r.c.mmap_bytes, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED &&
	   errno == EINVAL, "MAP_PRIVATE gets EINVAL");
	ok(mmap(NULL, r.c.mmap_bytes + 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED &&
	   errno == EINVAL, "a wrong size gets EINVAL");
	ok(mmap(NULL, r.c.mmap_bytes, PROT_READ, MAP_SHARED, fd, 4096) == MAP_FAILED &&
	   errno == EINVAL, "a wrong offset gets EINVAL");
	ok(mmap(NULL, r.c.mmap_bytes, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0) == MAP_FAILED &&
	   errno == EINVAL, "PROT_EXEC gets EINVAL");
	is(ring_map(fd, &r), 0, "the rings are mapped");
	ok(mprotect(r.area, r.c.mmap_bytes, PROT_READ | PROT_EXEC) && errno == EACCES,
	   "they can't be made executable");
	ok(r.hdr->magic == STEPCCL_DMA_RING_MAGIC && r.hdr->abi == 1u << 16 && !r.hdr->state,
	   "their header is right");
	ring_unmap(&r);
	close(fd);
}

void suite_calls(void)
{
	int fd;

	node_checks();
	before_hello();
	hello();
	contexts();
	fd = dev_open_hello();
	queries(fd);
	unknown(fd);
	longer_zero_tail(fd);
	close(fd);
	{
		struct ring r;

		fd = dev_open_ctx(&r, 8, 0);
		sizes(fd);
		ring_unmap(&r);
		close(fd);
	}
}
