// SPDX-License-Identifier: GPL-2.0
/*
 * Random calls, ring contents and mmaps for DMA_TEST_FUZZ_SECONDS (20). Values
 * are drawn near the interesting ones, so that many calls get past the checks.
 * The only verdict is that kernel and process are well afterwards.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dev.h"
#include "suites.h"
#include "tap.h"

#define POOL (1u << 20)
#define KEYS 64

static __thread uint64_t rng;

static uint64_t rnd(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

struct state {
	int fd;
	struct ring r;
	char *pool;
	uint32_t keys[KEYS];
	int exported[4];
	time_t end;
	unsigned long calls;
};

static uint64_t address(struct state *s)
{
	switch (rnd() % 8) {
	case 0:
		return rnd();
	case 1:
		return rnd() % 4 ? ~0ull - rnd() % 5000 : 0;
	default:
		return (uintptr_t)s->pool + rnd() % (POOL + 8192);
	}
}

static uint64_t length(void)
{
	switch (rnd() % 8) {
	case 0:
		return rnd();
	case 1:
		return 0;
	case 2:
		return (1ull << 30) + rnd() % 3;
	default:
		return rnd() % (rnd() % 2 ? 5000 : POOL);
	}
}

static uint32_t any_key(struct state *s)
{
	uint32_t k = s->keys[rnd() % KEYS];

	switch (rnd() % 8) {
	case 0:
		return (uint32_t)rnd();
	case 1:
		return k ^ (1u << rnd() % 32);
	case 2:
		return 0;
	default:
		return k;
	}
}

static uint32_t flip(uint32_t usual)
{
	return rnd() % 8 ? usual : (uint32_t)rnd();
}

static struct stepccl_dma_sqe any_sqe(struct state *s)
{
	struct stepccl_dma_sqe q = {
		.src = address(s), .dst = address(s), .length = (uint32_t)length(),
		.src_node = (uint16_t)flip(0), .dst_node = (uint16_t)flip(0),
		.opcode = (uint8_t)flip(1 + rnd() % 2), .flags = (uint8_t)flip(rnd() % 16),
		.timeout_ms = flip(0), .user_data = rnd() % 8,
		.src_key = any_key(s), .dst_key = any_key(s),
	};

	if (rnd() % 16 == 0)
		q.prio = (uint16_t)rnd();
	if (rnd() % 16 == 0)
		q.reserved[rnd() % 2] = rnd();
	return q;
}

static void fuzz_ring(struct state *s)
{
	struct stepccl_dma_cqe c;
	uint32_t i, n = rnd() % 12;

	for (i = 0; i < n; i++) {
		struct stepccl_dma_sqe q = any_sqe(s);

		ring_push(&s->r, &q);
	}
	enter_flags(s->fd, flip(n), flip(rnd() % 3), rnd() % 3 ? 0 : rnd() % 1000000,
		    flip(rnd() % 2));
	for (i = rnd() % 12; i && ring_pop(&s->r, &c); i--)
		;
}

static void fuzz_raw(struct state *s)
{
	uint32_t words[40];
	unsigned int nr = rnd() % 14;
	size_t i;

	for (i = 0; i < 40; i++)
		words[i] = rnd() % 3 ? 0 : (uint32_t)rnd();
	words[0] = rnd() % 4 ? 8 * (rnd() % 12) : (uint32_t)rnd();
	dev_ioctl(s->fd, _IOC(rnd() % 8 ? _IOC_READ | _IOC_WRITE : rnd() % 4,
			      STEPCCL_DMA_IOC_MAGIC, nr, rnd() % 256),
		  rnd() % 32 ? (void *)words : (void *)(uintptr_t)rnd());
}

static void fuzz_memory(struct state *s)
{
	struct stepccl_dma_mr_reg a = {
		.access = flip(1 + rnd() % 3), .va = address(s), .len = length(), .iova = address(s),
	};
	struct stepccl_dma_mr_import im;
	uint32_t slot = rnd() % KEYS;
	int e = rnd() % 4;

	switch (rnd() % 6) {
	case 0:
	case 1:
		if (!reg_full(s->fd, &a)) {
			dereg(s->fd, s->keys[slot]);
			s->keys[slot] = a.key;
		}
		break;
	case 2:
		dereg(s->fd, any_key(s));
		break;
	case 3:
		if (s->exported[e] >= 0)
			close(s->exported[e]);
		s->exported[e] = export_mr(s->fd, any_key(s), flip(1 + rnd() % 3));
		break;
	case 4:
		if (!import_mr(s->fd, s->exported[e], flip(0), &im)) {
			dereg(s->fd, s->keys[slot]);
			s->keys[slot] = im.key;
		}
		break;
	default:
		/* Holes come and go under the registrations. */
		if (rnd() % 2)
			mprotect(s->pool + (rnd() % (POOL / 4096)) * 4096, 4096,
				 rnd() % 2 ? PROT_READ | PROT_WRITE : PROT_READ);
		else
			madvise(s->pool + (rnd() % (POOL / 4096)) * 4096, 4096, MADV_DONTNEED);
	}
}

static void fuzz_one(struct state *s)
{
	struct stepccl_dma_submit_one a = { .src_key = any_key(s), .dst_key = any_key(s) };
	struct stepccl_dma_sqe q = any_sqe(s);
	struct stepccl_dma_cancel c = { .flags = flip(rnd() % 2), .user_data = rnd() % 8 };
	char data[256];
	void *p;

	switch (rnd() % 8) {
	case 0:
		memcpy(&a.desc, &q, 25);
		a.flags = flip(0);
		a.timeout_ms = flip(0);
		CALL(s->fd, STEPCCL_DMA_SUBMIT_ONE, &a);
		break;
	case 1:
		CALL(s->fd, STEPCCL_DMA_CANCEL, &c);
		break;
	case 2:
		query(s->fd, flip(rnd() % 6), flip(rnd() % 3), data, flip(rnd() % sizeof(data)) & 255);
		break;
	case 3:
		p = mmap(NULL, 4096 * (1 + rnd() % 16), rnd() % 8, rnd() % 2 ? MAP_SHARED : MAP_PRIVATE,
			 s->fd, 4096 * (rnd() % 3));
		if (p != MAP_FAILED)
			munmap(p, 4096);	/* leaves the rest of it mapped */
		break;
	case 4:
		fuzz_raw(s);
		break;
	case 5:
		fuzz_ring(s);
		break;
	default:
		fuzz_memory(s);
	}
	__atomic_fetch_add(&s->calls, 1, __ATOMIC_RELAXED);
}

static void *second_thread(void *arg)
{
	struct state *s = arg;

	rng = 0x1234567 + (uint64_t)time(NULL);
	while (time(NULL) < s->end) {
		uint64_t *w = (uint64_t *)s->r.sqes;

		if (rnd() % 4)
			w[rnd() % (s->r.c.sq_entries * 8)] ^= 1ull << rnd() % 64;
		else
			fuzz_one(s);
	}
	return NULL;
}

/* One context until the time is over or it is broken. */
static unsigned long one_life(time_t end, uint64_t seed)
{
	struct state s = { .end = end, .exported = { -1, -1, -1, -1 } };
	pthread_t t;
	int i;

	rng = seed | 1;
	s.fd = dev_open_hello();
	if (ctx_create(s.fd, &s.r, 8u << rnd() % 4, 8u << rnd() % 4, rnd() % 3, -1) ||
	    ring_map(s.fd, &s.r))
		_exit(2);
	s.pool = pages_alloc(POOL);
	pthread_create(&t, NULL, second_thread, &s);
	for (i = 0; time(NULL) < end; i++) {
		fuzz_one(&s);
		if (i > 20000)
			*(rnd() % 2 ? s.r.sq_tail : s.r.cq_head) = (uint32_t)rnd();
	}
	pthread_join(t, NULL);
	return s.calls;
}

void suite_fuzz(void)
{
	const char *seconds = getenv("DMA_TEST_FUZZ_SECONDS");
	const char *seed_text = getenv("DMA_TEST_FUZZ_SEED");
	time_t end = time(NULL) + (seconds ? atoi(seconds) : 20);
	uint64_t seed = seed_text ? strtoull(seed_text, NULL, 0) : (uint64_t)time(NULL) ^ getpid();
	unsigned long *calls = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
				    -1, 0);
	int status, lives = 0, bad = 0;

	note("seed %llu", (unsigned long long)seed);
	alarm((unsigned int)(end - time(NULL)) + 100);
	while (time(NULL) < end) {
		time_t until = time(NULL) + 2;
		pid_t pid;

		until = until < end ? until : end;
		pid = fork();
		if (!pid) {
			alarm(60);
			*calls += one_life(until, seed + (uint64_t)lives * 7919);
			_exit(0);
		}
		lives++;
		/* Every other life ends by the knife. */
		if (lives % 2 == 0) {
			struct timespec t = { .tv_sec = 1 };

			nanosleep(&t, NULL);
			kill(pid, SIGKILL);
		}
		waitpid(pid, &status, 0);
		bad += !(WIFEXITED(status) && !WEXITSTATUS(status)) &&
		       !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
	is(bad, 0, "every fuzzing process ended as it should");
	ok(*calls > 1000, "%lu calls in %d lives", *calls, lives);
	is(read_number("/sys/class/misc/dma_device/stats/contexts", NULL), 0, "no context is left");
	is(read_number("/sys/class/misc/dma_device/stats/mrs", NULL), 0, "no key is left");
	is(read_number("/sys/class/misc/dma_device/stats/pinned_pages", NULL), 0, "no page is held");
	munmap(calls, 4096);
}
