// SPDX-License-Identifier: GPL-2.0
/*
 * Copies that an ordinary user may make within the usual 8 MiB of memlock: by
 * SUBMIT_ONE, through the ring, and into the memory of a second process.
 */
#include <errno.h>
#include <stdint.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "json.h"
#include "tool.h"

#define GUARD 4096u
#define BIGGEST (1u << 20)
#define ROOM (BIGGEST + 2 * GUARD)
#define RW (STEPCCL_DMA_ACCESS_READ | STEPCCL_DMA_ACCESS_WRITE)

struct bench {
	int fd;
	uint32_t local_node;
	uint8_t *src, *dst;
	uint32_t src_key, dst_key;
	struct stepccl_dma_ctx_create ctx;
	uint8_t *rings;
	unsigned int seed;
	int failed;
};

static void pattern(uint8_t *p, size_t n, unsigned int seed)
{
	size_t i;

	for (i = 0; i < n; i++)
		p[i] = (uint8_t)(((uint32_t)i * 2654435761u + seed * 40503u) >> 11);
}

static bool untouched(const uint8_t *p, size_t n)
{
	while (n--)
		if (*p++ != 0xee)
			return false;
	return true;
}

static void result(struct bench *b, const char *test, const char *op, uint32_t bytes, long err,
		   unsigned int detail, uint64_t nsec, unsigned int flags, bool right)
{
	bool good = !err && right;

	b->failed += !good;
	json_open(NULL, '{');
	json_text("test", test, 32);
	json_text("op", op, 8);
	json_uint("bytes", bytes);
	json_bool("ok", good);
	if (err) {
		json_int("errno", -err);
		json_uint("detail", detail);
	} else {
		json_uint("nsec", nsec);
		json_text("path", flags & STEPCCL_DMA_CQE_DMA ? "dma" : "cpu", 4);
		if (!right)
			json_text("error", "bytes differ", 32);
	}
	json_close('}');
}

static long reg(int fd, void *p, size_t len, uint32_t *key, uint32_t *detail)
{
	struct stepccl_dma_mr_reg a = {
		.access = RW,
		.va = (uintptr_t)p,
		.len = len,
		.iova = (uintptr_t)p,
	};
	long ret = CALL(fd, STEPCCL_DMA_MR_REG, &a);

	*key = a.key;
	*detail = a.detail;
	return ret;
}

static uint16_t local_node(int fd)
{
	struct stepccl_dma_route r = {};
	struct stepccl_dma_query q = { .op = STEPCCL_DMA_QUERY_ROUTE };

	do {
		q.data = (uintptr_t)&r;
		q.data_size = sizeof(r);
		if (CALL(fd, STEPCCL_DMA_QUERY, &q))
			return 0;
		q.index = r.node + 1u;
	} while (r.state != STEPCCL_DMA_ROUTE_LOCAL);
	return r.node;
}

static struct stepccl_dma_desc descriptor(const struct bench *b, uint8_t op, uint64_t src,
					  uint64_t dst, uint32_t bytes)
{
	return (struct stepccl_dma_desc) {
		.src = src,
		.dst = dst,
		.length = bytes,
		.src_node = (uint16_t)b->local_node,
		.dst_node = (uint16_t)b->local_node,
		.opcode = op,
	};
}

static bool arrived(const struct bench *b, uint32_t bytes)
{
	return !memcmp(b->src + GUARD, b->dst + GUARD, bytes) && untouched(b->dst, GUARD) &&
	       untouched(b->dst + GUARD + bytes, ROOM - GUARD - bytes);
}

static void prepare(struct bench *b, uint32_t bytes)
{
	memset(b->dst, 0xee, ROOM);
	pattern(b->src + GUARD, bytes, ++b->seed);
}

static void one(struct bench *b, uint8_t op, uint32_t bytes)
{
	struct stepccl_dma_submit_one a = {
		.desc = descriptor(b, op, (uintptr_t)b->src + GUARD, (uintptr_t)b->dst + GUARD, bytes),
		.src_key = b->src_key,
		.dst_key = b->dst_key,
	};
	long ret;

	prepare(b, bytes);
	ret = CALL(b->fd, STEPCCL_DMA_SUBMIT_ONE, &a);
	result(b, "submit_one", op == STEPCCL_DMA_OP_READ ? "READ" : "WRITE", bytes, ret, a.detail,
	       a.nsec, a.cqe_flags, arrived(b, bytes));
}

static void through_ring(struct bench *b, uint8_t op, uint32_t bytes)
{
	uint32_t *sq_tail = (uint32_t *)(b->rings + b->ctx.off_sq_tail);
	uint32_t *cq_head = (uint32_t *)(b->rings + b->ctx.off_cq_head);
	uint32_t *cq_tail = (uint32_t *)(b->rings + b->ctx.off_cq_tail);
	struct stepccl_dma_sqe *sqe = (struct stepccl_dma_sqe *)(b->rings + b->ctx.off_sqes);
	struct stepccl_dma_cqe *cqe = (struct stepccl_dma_cqe *)(b->rings + b->ctx.off_cqes);
	struct stepccl_dma_enter e = {
		.to_submit = 1, .min_complete = 1, .timeout_ns = 60000000000ull,
	};
	struct stepccl_dma_desc d = descriptor(b, op, (uintptr_t)b->src + GUARD,
					       (uintptr_t)b->dst + GUARD, bytes);
	const char *name = op == STEPCCL_DMA_OP_READ ? "READ" : "WRITE";
	long ret;

	prepare(b, bytes);
	sqe += *sq_tail & (b->ctx.sq_entries - 1);
	memset(sqe, 0, sizeof(*sqe));
	memcpy(sqe, &d, offsetof(struct stepccl_dma_desc, reserved));
	sqe->src_key = b->src_key;
	sqe->dst_key = b->dst_key;
	__atomic_store_n(sq_tail, *sq_tail + 1, __ATOMIC_RELEASE);
	ret = CALL(b->fd, STEPCCL_DMA_ENTER, &e);
	if (ret != 1 || __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) == *cq_head) {
		result(b, "ring", name, bytes, ret < 0 ? ret : -EIO, 0, 0, 0, false);
		return;
	}
	cqe += *cq_head & (b->ctx.cq_entries - 1);
	result(b, "ring", name, bytes, cqe->res, cqe->detail, cqe->nsec, cqe->flags,
	       arrived(b, bytes));
	__atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
}

/* What the second process tells the first. */
struct report {
	long err;
	uint64_t nsec;
	uint32_t detail;
	uint16_t flags;
	bool same;
};

/* Takes the exporter's memory by its descriptor and pulls it into its own; runs in a child. */
static struct report pull(const struct bench *b, int fd, int mr_fd)
{
	struct stepccl_dma_ctx_create c = { .sq_entries = 8, .eventfd = -1 };
	struct stepccl_dma_mr_import im = { .fd = mr_fd };
	struct stepccl_dma_submit_one a = {};
	struct report r = {};
	uint8_t *mine = mmap(NULL, BIGGEST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	r.err = mine == MAP_FAILED ? -ENOMEM : CALL(fd, STEPCCL_DMA_CTX_CREATE, &c);
	if (!r.err)
		r.err = CALL(fd, STEPCCL_DMA_MR_IMPORT, &im);
	if (!r.err)
		r.err = reg(fd, mine, BIGGEST, &a.dst_key, &r.detail);
	if (r.err)
		return r;
	a.desc = descriptor(b, STEPCCL_DMA_OP_READ, im.iova + GUARD, (uintptr_t)mine, BIGGEST);
	a.src_key = im.key;
	r.err = CALL(fd, STEPCCL_DMA_SUBMIT_ONE, &a);
	r.detail = a.detail;
	r.nsec = a.nsec;
	r.flags = a.cqe_flags;
	r.same = !r.err && !memcmp(mine, b->src + GUARD, BIGGEST);
	return r;
}

static void between_processes(struct bench *b)
{
	struct stepccl_dma_mr_export x = { .key = b->src_key, .access = STEPCCL_DMA_ACCESS_READ };
	struct report r = { .err = CALL(b->fd, STEPCCL_DMA_MR_EXPORT, &x) };
	struct stepccl_dma_hello h;
	int fd = tool_open(&h);
	int p[2];
	pid_t pid;

	prepare(b, BIGGEST);
	if (!r.err && pipe(p))
		r.err = -errno;
	if (!r.err) {
		fflush(NULL);
		pid = fork();
		if (!pid) {
			r = pull(b, fd, x.fd);
			_exit(write(p[1], &r, sizeof(r)) != sizeof(r));
		}
		close(p[1]);
		if (pid < 0)
			r.err = -errno;
		else if (read(p[0], &r, sizeof(r)) != sizeof(r))
			r.err = -EPIPE;
		waitpid(pid, NULL, 0);
		close(p[0]);
		close(x.fd);
	}
	close(fd);
	result(b, "two_processes", "READ", BIGGEST, r.err, r.detail, r.nsec, r.flags, r.same);
}

/* 0, or a negative errno of the step named in *@what. */
static long set_up(struct bench *b, const char **what, uint32_t *detail)
{
	long ret;

	*what = "memory";
	b->src = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	b->dst = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->src == MAP_FAILED || b->dst == MAP_FAILED)
		return -errno;
	*what = "CTX_CREATE";
	b->ctx.sq_entries = 8;
	b->ctx.eventfd = -1;
	ret = CALL(b->fd, STEPCCL_DMA_CTX_CREATE, &b->ctx);
	*detail = b->ctx.detail;
	if (ret)
		return ret;
	*what = "mmap";
	b->rings = mmap(NULL, b->ctx.mmap_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
	if (b->rings == MAP_FAILED)
		return -errno;
	*what = "MR_REG";
	ret = reg(b->fd, b->src, ROOM, &b->src_key, detail);
	return ret ? ret : reg(b->fd, b->dst, ROOM, &b->dst_key, detail);
}

int cmd_selftest(void)
{
	static const uint32_t sizes[] = { 1, 63, 4096, 65537, 262145, BIGGEST };
	struct stepccl_dma_hello h;
	struct bench b = { .fd = tool_open(&h) };
	uint32_t detail = 0;
	const char *what;
	size_t i;
	long ret;

	b.local_node = local_node(b.fd);
	ret = set_up(&b, &what, &detail);
	json_open(NULL, '{');
	json_text("version", h.version, sizeof(h.version));
	if (ret) {
		json_open("error", '{');
		json_text("call", what, 32);
		json_int("errno", -ret);
		json_text("message", strerror((int)-ret), 100);
		json_uint("detail", detail);
		json_close('}');
		b.failed++;
	} else {
		json_open("results", '[');
		for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			one(&b, STEPCCL_DMA_OP_READ, sizes[i]);
			one(&b, STEPCCL_DMA_OP_WRITE, sizes[i]);
			through_ring(&b, STEPCCL_DMA_OP_READ, sizes[i]);
			through_ring(&b, STEPCCL_DMA_OP_WRITE, sizes[i]);
		}
		between_processes(&b);
		json_close(']');
	}
	json_bool("ok", !b.failed);
	json_close('}');
	json_end();
	return b.failed ? EXIT_FAILED : EXIT_OK;
}
