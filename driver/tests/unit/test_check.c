// SPDX-License-Identifier: GPL-2.0
#include "core/check.h"
#include "unit.h"

static struct sdma_routes routes;

static int request(const struct stepccl_dma_sqe *s, u16 detail)
{
	u16 got = 0xffff;
	int ret = sdma_check_request(s, &routes, 1u << 30, &got);

	CHECK(got == detail);
	return ret;
}

static void requests(void)
{
	const struct stepccl_dma_sqe good = { .src = 0x1000, .dst = 0x2000, .length = 1, .opcode = 1 };
	struct stepccl_dma_sqe s = good;
	int op;

	CHECK(request(&s, 0) == 0);
	s.flags = STEPCCL_DMA_SQE_FLAGS;
	CHECK(request(&s, 0) == 0);
	s.flags = 0x10;
	CHECK(request(&s, STEPCCL_DMA_DETAIL_FLAGS) == -EINVAL);
	s = good, s.prio = 1;
	CHECK(request(&s, STEPCCL_DMA_DETAIL_RESERVED) == -EINVAL);
	s = good, s.reserved[0] = 1;
	CHECK(request(&s, STEPCCL_DMA_DETAIL_RESERVED) == -EINVAL);
	for (op = 0; op < 256; op++) {
		s = good, s.opcode = (u8)op;
		CHECK(request(&s, op == 1 || op == 2 ? 0 : STEPCCL_DMA_DETAIL_OPCODE) ==
		      (op == 1 || op == 2 ? 0 : -EOPNOTSUPP));
	}
	s = good, s.src_node = 5;
	CHECK(request(&s, STEPCCL_DMA_DETAIL_SRC_NODE) == -EHOSTUNREACH);
	s = good, s.length = 0;
	CHECK(request(&s, STEPCCL_DMA_DETAIL_LENGTH) == -EINVAL);
	s = good, s.length = (1u << 30) + 1;
	CHECK(request(&s, STEPCCL_DMA_DETAIL_LENGTH) == -EMSGSIZE);
	s = good, s.src = ~0ull;
	CHECK(request(&s, STEPCCL_DMA_DETAIL_SRC_WRAP) == -EOVERFLOW);
	s = good, s.dst = ~0ull - 99, s.length = 100;
	CHECK(request(&s, STEPCCL_DMA_DETAIL_DST_WRAP) == -EOVERFLOW);
	s.length = 99;
	CHECK(request(&s, 0) == 0);
}

static int spans(struct sdma_span src, struct sdma_span dst, u32 length, u16 detail)
{
	u16 got = 0xffff;
	int ret = sdma_check_spans(&src, &dst, length, &got);

	CHECK(got == detail);
	return ret;
}

static void pairs(void)
{
	int mm1, mm2;
	const struct sdma_span a = { 0x1000, 0x1000, 100, 0x7000, &mm1, STEPCCL_DMA_ACCESS_READ };
	const struct sdma_span b = { 0x9000, 0x9000, 100, 0x8000, &mm1, STEPCCL_DMA_ACCESS_WRITE };
	struct sdma_span s = a, d = b;

	CHECK(spans(a, b, 100, 0) == 0);
	CHECK(spans(a, b, 101, STEPCCL_DMA_DETAIL_SRC_RANGE) == -ERANGE);
	s.addr = 0xfff;
	CHECK(spans(s, b, 1, STEPCCL_DMA_DETAIL_SRC_RANGE) == -ERANGE);
	s.addr = 0x1000 + 100;
	CHECK(spans(s, b, 1, STEPCCL_DMA_DETAIL_SRC_RANGE) == -ERANGE);
	s.addr = ~0ull;
	CHECK(spans(s, b, 1, STEPCCL_DMA_DETAIL_SRC_RANGE) == -ERANGE);
	d.addr = 0x9001;
	CHECK(spans(a, d, 100, STEPCCL_DMA_DETAIL_DST_RANGE) == -ERANGE);
	CHECK(spans(a, d, 99, 0) == 0);

	/* 50 bytes apart in one address space. */
	d = b, d.va = 0x7000 + 50;
	CHECK(spans(a, d, 50, 0) == 0);
	CHECK(spans(a, d, 51, STEPCCL_DMA_DETAIL_OVERLAP) == -EINVAL);
	CHECK(spans((struct sdma_span){ 1, 1, 100, 0x7032, &mm1, 1 },
		    (struct sdma_span){ 1, 1, 100, 0x7000, &mm1, 2 }, 51,
		    STEPCCL_DMA_DETAIL_OVERLAP) == -EINVAL);
	d.owner = &mm2;
	CHECK(spans(a, d, 51, 0) == 0);

	s = a, s.access = STEPCCL_DMA_ACCESS_WRITE;
	CHECK(spans(s, b, 1, STEPCCL_DMA_DETAIL_SRC_ACCESS) == -EACCES);
	d = b, d.access = STEPCCL_DMA_ACCESS_READ;
	CHECK(spans(a, d, 1, STEPCCL_DMA_DETAIL_DST_ACCESS) == -EACCES);
	CHECK(spans(s, d, 1, STEPCCL_DMA_DETAIL_SRC_ACCESS) == -EACCES);
}

static void regions(void)
{
	u64 pages;

	CHECK(sdma_check_region(0x1000, 0, &pages) == -EINVAL);
	CHECK(sdma_check_region(~0ull, 1, &pages) == -EOVERFLOW);
	CHECK(sdma_check_region(~0ull - 1, 1, &pages) == 0 && pages == 1);
	CHECK(sdma_check_region(0xfff, 1, &pages) == 0 && pages == 1);
	CHECK(sdma_check_region(0xfff, 2, &pages) == 0 && pages == 2);
	CHECK(sdma_check_region(0x1000, 4096, &pages) == 0 && pages == 1);
	CHECK(sdma_check_region(0x1001, 4096, &pages) == 0 && pages == 2);
	CHECK(sdma_check_region(0, ~0ull, &pages) == 0 && pages == 1ull << 52);
}

static int path(u32 policy, u8 flags, u32 length, struct sdma_engine_view e, u16 detail, int why)
{
	struct stepccl_dma_sqe s = { .src = 64, .dst = 128, .length = length, .flags = flags };
	enum sdma_fallback got = SDMA_FALLBACKS;
	u16 d = 0xffff;
	int ret = sdma_path_choose(&s, policy, 65536, &e, &got, &d);

	CHECK(d == detail);
	CHECK(ret == 1 || (int)got == why);
	return ret;
}

static void paths(void)
{
	const struct sdma_engine_view none = {}, ready = { .present = true, .align_bytes = 64 };
	const struct sdma_engine_view sick = { .present = true, .quarantined = true };
	enum { AUTO, DMA, CPU };
	const u8 no_cpu = STEPCCL_DMA_SQE_NO_CPU;

	CHECK(path(AUTO, 0, 65536, none, 0, SDMA_FALLBACK_NO_ENGINE) == 0);
	CHECK(path(AUTO, 0, 65536, sick, 0, SDMA_FALLBACK_QUARANTINED) == 0);
	CHECK(path(AUTO, 0, 65536, ready, 0, 0) == 1);
	CHECK(path(AUTO, 0, 65472, ready, 0, SDMA_FALLBACK_SMALL) == 0);
	CHECK(path(AUTO, 0, 65537, ready, 0, SDMA_FALLBACK_ALIGN) == 0);
	CHECK(path(AUTO, no_cpu, 64, ready, 0, 0) == 1);
	CHECK(path(AUTO, no_cpu, 65, ready, STEPCCL_DMA_DETAIL_ALIGN, SDMA_FALLBACK_ALIGN) == -ENODEV);
	CHECK(path(AUTO, no_cpu, 64, none, STEPCCL_DMA_DETAIL_NO_ENGINE, SDMA_FALLBACK_NO_ENGINE) ==
	      -ENODEV);
	CHECK(path(DMA, 0, 64, ready, 0, 0) == 1);
	CHECK(path(DMA, 0, 64, sick, STEPCCL_DMA_DETAIL_QUARANTINED, SDMA_FALLBACK_QUARANTINED) ==
	      -ENODEV);
	CHECK(path(CPU, 0, 1 << 20, ready, 0, SDMA_FALLBACK_POLICY) == 0);
	CHECK(path(CPU, no_cpu, 1 << 20, ready, STEPCCL_DMA_DETAIL_POLICY, SDMA_FALLBACK_POLICY) ==
	      -ENODEV);
}

void test_check(void)
{
	CHECK(sdma_routes_init(&routes) == 0);
	CHECK(sdma_routes_set(&routes, 0, STEPCCL_DMA_ROUTE_LOCAL, -1) == 0);
	requests();
	pairs();
	regions();
	paths();
	sdma_routes_destroy(&routes);
}
