// SPDX-License-Identifier: GPL-2.0
/* SUBMIT_ONE: every check in its order, and bytes that arrive where they should and nowhere else. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dev.h"
#include "suites.h"
#include "tap.h"

#define GUARD 8192

static void fill(unsigned char *p, size_t n, unsigned int seed)
{
	size_t i;

	for (i = 0; i < n; i++)
		p[i] = (unsigned char)((i * 2654435761u + seed) >> 13);
}

static int all(const unsigned char *p, unsigned char value, size_t n)
{
	return !n || (p[0] == value && !memcmp(p, p + 1, n - 1));
}

/* One copy with guard bytes around both sides; returns whether all is as it should be. */
static int guarded(int fd, uint8_t op, size_t size, size_t src_off, size_t dst_off, int by_key)
{
	size_t room = size + 2 * GUARD + 8192;
	unsigned char *src = pages_alloc(room), *dst = pages_alloc(room);
	unsigned char *s = src + GUARD + src_off, *d = dst + GUARD + dst_off;
	struct stepccl_dma_submit_one out;
	uint32_t src_key = 0, dst_key = 0;
	int good;
	long ret;

	memset(src, 0xa5, room);
	memset(dst, 0xc3, room);
	fill(s, size, (unsigned int)size);
	if (reg(fd, src, room, R, &src_key) || reg(fd, dst, room, W, &dst_key))
		return 0;
	ret = copy_one(fd, op, s, by_key ? src_key : 0, d, by_key ? dst_key : 0, size, &out);
	good = !ret && out.bytes == size && out.cqe_flags == STEPCCL_DMA_CQE_CPU &&
	       out.engine == STEPCCL_DMA_ENGINE_CPU && !out.detail && out.nsec > 0 &&
	       !memcmp(s, d, size) && all(dst, 0xc3, d - dst) &&
	       all(d + size, 0xc3, room - (d - dst) - size) && all(src, 0xa5, s - src) &&
	       all(s + size, 0xa5, room - (s - src) - size);
	if (!good)
		note("ret %ld bytes %u of %zu detail %u", ret, out.bytes, size, out.detail);
	dereg(fd, src_key);
	dereg(fd, dst_key);
	munmap(src, room);
	munmap(dst, room);
	return good;
}

static void sizes(int fd)
{
	static const size_t bytes[] = {
		1, 2, 3, 7, 8, 63, 64, 65, 511, 4095, 4096, 4097, 8191, 8192, 12289, 65535, 65536,
		262143, 262144, 262145, 1 << 20, (1 << 20) + 1, 4 << 20, 16 << 20, 64 << 20,
	};
	size_t i;

	for (i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++)
		ok(guarded(fd, STEPCCL_DMA_OP_READ, bytes[i], 0, 0, 1) &&
		   guarded(fd, STEPCCL_DMA_OP_WRITE, bytes[i], 0, 0, 1),
		   "%zu bytes by READ and WRITE, guards intact", bytes[i]);
}

static void offsets(int fd)
{
	static const size_t off[] = { 0, 1, 63, 2048, 4095 };
	static const size_t bytes[] = { 1, 4096, 4097, 100001 };
	size_t i, j, k;
	int bad = 0;

	for (i = 0; i < 5; i++)
		for (j = 0; j < 5; j++)
			for (k = 0; k < 4; k++)
				bad += !guarded(fd, STEPCCL_DMA_OP_READ, bytes[k], off[i], off[j],
						(i + j + k) & 1);
	is(bad, 0, "100 pairs of unaligned offsets, by key and by address");
	srand(1);
	for (i = 0; i < 200; i++)
		bad += !guarded(fd, 1 + (i & 1), 1 + rand() % 300000, rand() % 4096, rand() % 4096,
				i & 1);
	is(bad, 0, "200 random sizes and offsets");
}

struct fixture {
	int fd;
	char *a, *b;			/* 64 KiB each */
	uint32_t ka, kb;		/* RW */
	uint32_t kr, kw;		/* READ only on a, WRITE only on b */
};

static struct stepccl_dma_submit_one request(const struct fixture *f)
{
	return (struct stepccl_dma_submit_one) {
		.desc = {
			.src = (uintptr_t)f->a, .dst = (uintptr_t)f->b, .length = 4096,
			.opcode = STEPCCL_DMA_OP_READ,
		},
		.src_key = f->ka,
		.dst_key = f->kb,
	};
}

static void want(const struct fixture *f, struct stepccl_dma_submit_one a, long err,
		 uint16_t detail, const char *what)
{
	is(CALL(f->fd, STEPCCL_DMA_SUBMIT_ONE, &a), err, what);
	is(a.detail, detail, "... detail");
}

static void order(const struct fixture *f)
{
	struct stepccl_dma_submit_one a = request(f);

	/* Everything wrong at once; mend one thing after the other. */
	a.flags = 0x100;
	a.desc.opcode = 9;
	a.desc.src_node = 99;
	a.desc.length = 0;
	a.src_key = 0xdead00;
	a.dst_key = 0xdead01;
	want(f, a, -EINVAL, STEPCCL_DMA_DETAIL_FLAGS, "flags are checked first");
	a.flags = STEPCCL_DMA_SQE_FENCE;
	want(f, a, -EINVAL, STEPCCL_DMA_DETAIL_FLAGS, "FENCE has no meaning here");
	a.flags = 0;
	a.desc.reserved[6] = 1;
	want(f, a, -EINVAL, STEPCCL_DMA_DETAIL_RESERVED, "then padding");
	a.desc.reserved[6] = 0;
	want(f, a, -EOPNOTSUPP, STEPCCL_DMA_DETAIL_OPCODE, "then the opcode");
	a.desc.opcode = STEPCCL_DMA_OP_WRITE;
	want(f, a, -EHOSTUNREACH, STEPCCL_DMA_DETAIL_SRC_NODE, "then nodes");
	a.desc.src_node = 0;
	want(f, a, -EINVAL, STEPCCL_DMA_DETAIL_LENGTH, "then the length: 0");
	a.desc.length = (1u << 30) + 1;
	want(f, a, -EMSGSIZE, STEPCCL_DMA_DETAIL_LENGTH, "... too long");
	a.desc.length = 1u << 20;
	a.desc.src = ~0ull - 1000;
	a.desc.dst = ~0ull - 1000;
	want(f, a, -EOVERFLOW, STEPCCL_DMA_DETAIL_SRC_WRAP, "... src wraps");
	a.desc.src = (uintptr_t)f->a;
	want(f, a, -EOVERFLOW, STEPCCL_DMA_DETAIL_DST_WRAP, "... dst wraps");
	a.desc.dst = (uintptr_t)f->b;
	want(f, a, -ENOKEY, STEPCCL_DMA_DETAIL_SRC_KEY, "then keys: src");
	a.src_key = f->kw;
	want(f, a, -ENOKEY, STEPCCL_DMA_DETAIL_DST_KEY, "... dst");
	a.dst_key = f->kr;
	a.desc.src = (uintptr_t)f->b;
	a.desc.dst = (uintptr_t)f->a;
	want(f, a, -ERANGE, STEPCCL_DMA_DETAIL_SRC_RANGE, "then the range: src");
	a.desc.length = 4096;
	a.desc.dst = (uintptr_t)f->a - 1;
	want(f, a, -ERANGE, STEPCCL_DMA_DETAIL_DST_RANGE, "... dst below");
	a.desc.dst = (uintptr_t)f->a + 65536 - 4095;
	want(f, a, -ERANGE, STEPCCL_DMA_DETAIL_DST_RANGE, "... dst one byte beyond");
	a.desc.dst = (uintptr_t)f->a;
	want(f, a, -EACCES, STEPCCL_DMA_DETAIL_SRC_ACCESS, "then access: src without R");
	a.src_key = f->kb;
	want(f, a, -EACCES, STEPCCL_DMA_DETAIL_DST_ACCESS, "... dst without W");
	a.dst_key = f->ka;
	a.flags = STEPCCL_DMA_SQE_NO_CPU;
	want(f, a, -ENODEV, STEPCCL_DMA_DETAIL_NO_ENGINE, "then the engine: none, and NO_CPU");
	a.flags = 0;
	want(f, a, 0, 0, "and all mended, it runs");
}

static void by_address(const struct fixture *f)
{
	struct stepccl_dma_submit_one a = request(f);

	a.src_key = 0;
	a.dst_key = 0;
	want(f, a, 0, 0, "key 0 finds both sides by address");
	a.desc.src = 0x1000;
	want(f, a, -EFAULT, STEPCCL_DMA_DETAIL_SRC_KEY, "an address that isn't registered: EFAULT");
	a = request(f);
	a.dst_key = 0;
	a.desc.dst = (uintptr_t)f->b + 65536 - 4095;
	want(f, a, -EFAULT, STEPCCL_DMA_DETAIL_DST_KEY, "... or only in part");
}

static void overlap(const struct fixture *f)
{
	struct stepccl_dma_submit_one a = request(f);

	a.dst_key = f->ka;
	a.desc.dst = (uintptr_t)f->a;
	want(f, a, -EINVAL, STEPCCL_DMA_DETAIL_OVERLAP, "src is dst");
	a.desc.dst = (uintptr_t)f->a + 4095;
	want(f, a, -EINVAL, STEPCCL_DMA_DETAIL_OVERLAP, "one byte in common");
	a.src_key = f->kr;
	want(f, a, -EINVAL, STEPCCL_DMA_DETAIL_OVERLAP, "... by two keys of the same memory");
	a.desc.dst = (uintptr_t)f->a + 4096;
	want(f, a, 0, 0, "side by side is fine");
}

static void iova(const struct fixture *f)
{
	struct stepccl_dma_mr_reg m = {
		.access = RW, .va = (uintptr_t)f->a + 100, .len = 5000, .iova = 0x10,
	};
	struct stepccl_dma_submit_one a = request(f);

	is(reg_full(f->fd, &m), 0, "register with an iova of its own");
	strcpy(f->a + 100, "by iova");
	a.src_key = m.key;
	a.desc.src = 0x10;
	a.desc.length = 5000;
	want(f, a, 0, 0, "the iova names byte 0");
	ok(!strcmp(f->b, "by iova"), "... and byte 0 it is");
	a.desc.src = 0x11;
	want(f, a, -ERANGE, STEPCCL_DMA_DETAIL_SRC_RANGE, "one further is out of range");
	a.desc.src = 0xf;
	want(f, a, -ERANGE, STEPCCL_DMA_DETAIL_SRC_RANGE, "one before too");
	dereg(f->fd, m.key);
	want(f, a, -EKEYREVOKED, STEPCCL_DMA_DETAIL_SRC_KEY, "a deregistered key: EKEYREVOKED");
}

static void policies(const struct fixture *f)
{
	static const struct {
		uint32_t policy, flags;
		long want;
		uint16_t detail;
		const char *what;
	} cases[] = {
		{ STEPCCL_DMA_POLICY_REQUIRE_DMA, 0, -ENODEV, STEPCCL_DMA_DETAIL_NO_ENGINE,
		  "REQUIRE_DMA without an engine" },
		{ STEPCCL_DMA_POLICY_CPU_ONLY, STEPCCL_DMA_SQE_NO_CPU, -ENODEV,
		  STEPCCL_DMA_DETAIL_POLICY, "CPU_ONLY and NO_CPU" },
		{ STEPCCL_DMA_POLICY_CPU_ONLY, 0, 0, 0, "CPU_ONLY" },
	};
	size_t i;

	for (i = 0; i < 3; i++) {
		struct ring r;
		struct fixture g = *f;
		struct stepccl_dma_submit_one a;

		g.fd = dev_open_ctx(&r, 8, cases[i].policy);
		reg(g.fd, g.a, 65536, RW, &g.ka);
		reg(g.fd, g.b, 65536, RW, &g.kb);
		a = request(&g);
		a.flags = cases[i].flags;
		want(&g, a, cases[i].want, cases[i].detail, cases[i].what);
		ring_unmap(&r);
		close(g.fd);
	}
}

static void timeouts(const struct fixture *f)
{
	size_t big = 128u << 20;
	char *p = mmap(NULL, big, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct stepccl_dma_mr_reg m = { .access = RW, .va = (uintptr_t)p, .len = big,
					.iova = (uintptr_t)p };
	struct stepccl_dma_submit_one a = request(f);

	is(p == MAP_FAILED ? -errno : reg_full(f->fd, &m), 0, "register 128 MiB");
	a.src_key = a.dst_key = m.key;
	a.desc.src = (uintptr_t)p;
	a.desc.length = 64u << 20;
	a.desc.dst = (uintptr_t)p + a.desc.length;
	a.timeout_ms = 1;
	is(CALL(f->fd, STEPCCL_DMA_SUBMIT_ONE, &a), -ETIMEDOUT, "64 MiB within 1 ms: ETIMEDOUT");
	ok(a.detail == STEPCCL_DMA_DETAIL_TIMEOUT && a.bytes && a.bytes < a.desc.length &&
	   !(a.bytes % (256u << 10)), "... after whole steps (%u bytes)", a.bytes);
	dereg(f->fd, m.key);
	munmap(p, big);
}

static void verify(const struct fixture *f)
{
	struct stepccl_dma_submit_one a = request(f);

	a.flags = STEPCCL_DMA_SQE_VERIFY;
	a.desc.length = 65536;
	want(f, a, 0, 0, "VERIFY of an honest copy");
}

void suite_copy(void)
{
	struct fixture f = { .a = pages_alloc(65536), .b = pages_alloc(65536) };
	struct stepccl_dma_counters before, after;
	struct ring r;

	f.fd = dev_open_ctx(&r, 8, 0);
	reg(f.fd, f.a, 65536, RW, &f.ka);
	reg(f.fd, f.b, 65536, RW, &f.kb);
	reg(f.fd, f.a, 65536, R, &f.kr);
	reg(f.fd, f.b, 65536, W, &f.kw);
	order(&f);
	by_address(&f);
	overlap(&f);
	iova(&f);
	policies(&f);
	verify(&f);
	timeouts(&f);
	query(f.fd, STEPCCL_DMA_QUERY_COUNTERS, 1, &before, sizeof(before));
	copy_one(f.fd, STEPCCL_DMA_OP_READ, f.a, f.ka, f.b, f.kb, 1000, NULL);
	copy_one(f.fd, STEPCCL_DMA_OP_WRITE, f.a, f.ka, f.b, f.kb, 500, NULL);
	query(f.fd, STEPCCL_DMA_QUERY_COUNTERS, 1, &after, sizeof(after));
	ok(after.ops_read == before.ops_read + 1 && after.ops_write == before.ops_write + 1 &&
	   after.bytes_cpu == before.bytes_cpu + 1500 &&
	   after.cpu_no_engine == before.cpu_no_engine + 2 &&
	   after.ops_failed == before.ops_failed, "the counters tell READ, WRITE, bytes and reason");
	sizes(f.fd);
	offsets(f.fd);
	ring_unmap(&r);
	close(f.fd);
	munmap(f.a, 65536);
	munmap(f.b, 65536);
}
