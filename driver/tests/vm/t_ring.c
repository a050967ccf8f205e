// SPDX-License-Identifier: GPL-2.0
/* The rings: order, flow control, FENCE, CANCEL, waiting, eventfd, poll, corruption. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "dev.h"
#include "suites.h"
#include "tap.h"

#define READ_OP STEPCCL_DMA_OP_READ

struct fixture {
	int fd;
	struct ring r;
	char *a, *b;
	uint32_t ka, kb;
};

static void setup(struct fixture *f, uint32_t sq, uint32_t cq, int efd)
{
	f->fd = dev_open_hello();
	if (ctx_create(f->fd, &f->r, sq, cq, 0, efd) || ring_map(f->fd, &f->r))
		_exit(2);
	f->a = pages_alloc(65536);
	f->b = pages_alloc(65536);
	reg(f->fd, f->a, 65536, RW, &f->ka);
	reg(f->fd, f->b, 65536, RW, &f->kb);
}

static void teardown(struct fixture *f)
{
	ring_unmap(&f->r);
	close(f->fd);
	munmap(f->a, 65536);
	munmap(f->b, 65536);
}

static void push(struct fixture *f, uint32_t length, uint64_t user_data, uint8_t flags)
{
	struct stepccl_dma_sqe s = sqe_make(READ_OP, f->a, f->ka, f->b, f->kb, length, user_data);

	s.flags = flags;
	ring_push(&f->r, &s);
}

static void basics(void)
{
	struct fixture f;
	struct stepccl_dma_cqe c;
	int i, bad = 0;

	setup(&f, 8, 8, -1);
	strcpy(f.a, "through the ring");
	is(enter(f.fd, 4, 0, 0), 0, "ENTER with an empty ring takes nothing");
	push(&f, 64, 7, 0);
	is(enter(f.fd, 1, 1, STEPCCL_DMA_WAIT_FOREVER), 1, "ENTER takes one");
	ok(ring_pop(&f.r, &c) && c.user_data == 7 && !c.res && c.bytes == 64 &&
	   c.flags == STEPCCL_DMA_CQE_CPU && c.engine == STEPCCL_DMA_ENGINE_CPU && c.nsec,
	   "its CQE is right");
	ok(!strcmp(f.b, "through the ring"), "its bytes arrived");
	for (i = 0; i < 10000; i++) {
		push(&f, 1 + i % 4096, i, 0);
		bad += enter(f.fd, 1, 0, 0) != 1 || !ring_pop(&f.r, &c) ||
		       c.user_data != (uint64_t)i || c.res;
	}
	is(bad, 0, "10000 rounds of the ring");
	push(&f, 64, 1, STEPCCL_DMA_SQE_SILENT);
	push(&f, 0, 2, STEPCCL_DMA_SQE_SILENT);
	is(enter(f.fd, 2, 0, 0), 2, "SILENT: two taken");
	ok(ring_pop(&f.r, &c) && c.user_data == 2 && c.res == -EINVAL && !ring_pop(&f.r, &c),
	   "... only the failed one has a CQE");
	*f.r.sq_head = 12345;
	push(&f, 64, 3, 0);
	is(enter(f.fd, 1, 0, 0), 1, "the driver doesn't trust the shared sq.head");
	ring_pop(&f.r, &c);
	teardown(&f);
}

static void flow_control(void)
{
	struct fixture f;
	struct stepccl_dma_cqe c;
	int i;

	setup(&f, 16, 8, -1);
	for (i = 0; i < 16; i++)
		push(&f, 8, i, 0);
	is(enter(f.fd, 16, 0, 0), 8, "a full CQ: ENTER takes only 8 of 16");
	is(enter(f.fd, 16, 0, 0), -EAGAIN, "... and then EAGAIN");
	is(ring_pop(&f.r, &c), 1, "one CQE is read");
	is(enter(f.fd, 16, 0, 0), 1, "... one more is taken");
	for (i = 1; i < 9; i++)
		if (!ring_pop(&f.r, &c) || c.user_data != (uint64_t)i)
			break;
	is(i, 9, "no CQE was lost, all in order");
	is(enter(f.fd, 16, 0, 0), 7, "the rest is taken");
	is(enter(f.fd, 0, 9, 0), -EINVAL, "waiting for more than the ring holds: EINVAL");
	is(enter_flags(f.fd, 0, 0, 0, 2), -EINVAL, "an unknown flag: EINVAL");
	teardown(&f);
}

static void fences(void)
{
	struct fixture f;
	struct stepccl_dma_cqe c[4];
	int i;

	setup(&f, 8, 8, -1);
	push(&f, 8, 0, 0);
	push(&f, 8, 1, STEPCCL_DMA_SQE_FENCE);
	enter(f.fd, 2, 0, 0);
	for (i = 0; i < 2; i++)
		ring_pop(&f.r, &c[i]);
	ok(!c[0].res && !c[1].res, "FENCE after success runs");
	push(&f, 0, 0, 0);
	push(&f, 8, 1, 0);
	push(&f, 8, 2, STEPCCL_DMA_SQE_FENCE);
	is(enter(f.fd, 3, 0, 0), 3, "an error fails no ENTER");
	for (i = 0; i < 3; i++)
		ring_pop(&f.r, &c[i]);
	ok(c[0].res == -EINVAL && !c[1].res && c[2].res == -ECANCELED &&
	   c[2].detail == STEPCCL_DMA_DETAIL_FENCE, "FENCE after a failure is cancelled, others run");
	is(f.r.hdr->state, STEPCCL_DMA_RING_FAILED, "the header says so");
	push(&f, 8, 3, STEPCCL_DMA_SQE_FENCE);
	enter(f.fd, 1, 0, 0);
	ring_pop(&f.r, &c[3]);
	is(c[3].res, -ECANCELED, "it stays so in the next ENTER");
	push(&f, 8, 4, STEPCCL_DMA_SQE_FENCE);
	is(enter_flags(f.fd, 1, 0, 0, STEPCCL_DMA_ENTER_CLEAR_FAILED), 1, "until it is cleared");
	ring_pop(&f.r, &c[3]);
	is(c[3].res, 0, "... then FENCE runs again");
	is(f.r.hdr->state, 0, "... and the header says so");
	teardown(&f);
}

static void bad_sqes(void)
{
	struct fixture f;
	struct stepccl_dma_sqe s;
	struct stepccl_dma_cqe c;

	setup(&f, 8, 8, -1);
	s = sqe_make(READ_OP, f.a, f.ka, f.b, f.kb, 8, 1);
	s.flags = 0x80;
	ring_push(&f.r, &s);
	s.flags = 0, s.prio = 1;
	ring_push(&f.r, &s);
	s.prio = 0, s.reserved[1] = 1;
	ring_push(&f.r, &s);
	is(enter(f.fd, 3, 3, 0), 3, "three malformed SQEs are taken");
	ok(ring_pop(&f.r, &c) && c.res == -EINVAL && c.detail == STEPCCL_DMA_DETAIL_FLAGS,
	   "unknown flag: EINVAL in its CQE");
	ok(ring_pop(&f.r, &c) && c.res == -EINVAL && c.detail == STEPCCL_DMA_DETAIL_RESERVED,
	   "prio without its feature: EINVAL");
	ok(ring_pop(&f.r, &c) && c.res == -EINVAL && c.detail == STEPCCL_DMA_DETAIL_RESERVED,
	   "reserved not zero: EINVAL");
	teardown(&f);
}

static void on_alarm(int sig)
{
	(void)sig;
}

static void waiting(void)
{
	struct itimerval tv = { .it_value = { .tv_usec = 50000 } };
	struct sigaction sa = { .sa_handler = on_alarm };
	struct sigaction old;
	struct fixture f;

	setup(&f, 8, 8, -1);
	is(enter(f.fd, 0, 1, 0), -ETIMEDOUT, "nothing to wait for, timeout 0: ETIMEDOUT at once");
	is(enter(f.fd, 0, 1, 20000000), -ETIMEDOUT, "after 20 ms: ETIMEDOUT");
	push(&f, 8, 1, 0);
	is(enter(f.fd, 1, 2, 1000000), 1, "with one taken the count wins over the timeout");
	sigaction(SIGUSR1, &sa, &old);
	sigaction(SIGALRM, &sa, &old);
	setitimer(ITIMER_REAL, &tv, NULL);
	is(enter(f.fd, 0, 2, STEPCCL_DMA_WAIT_FOREVER), -EINTR, "a signal ends the wait: EINTR");
	sigaction(SIGALRM, &old, NULL);
	alarm(100);
	teardown(&f);
}

static void events(void)
{
	int efd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	struct stepccl_dma_cqe c;
	struct fixture f;
	struct pollfd p;
	uint64_t n;

	setup(&f, 8, 8, efd);
	p = (struct pollfd) { .fd = f.fd, .events = POLLIN | POLLOUT };
	ok(poll(&p, 1, 0) == 1 && p.revents == POLLOUT, "poll: room in the SQ only");
	push(&f, 8, 1, 0);
	push(&f, 8, 2, 0);
	enter(f.fd, 2, 0, 0);
	ok(read(efd, &n, 8) == 8 && n == 2, "the eventfd counts two CQEs");
	ok(poll(&p, 1, 0) == 1 && p.revents == (POLLIN | POLLOUT), "poll: a CQE is there");
	ring_pop(&f.r, &c);
	ring_pop(&f.r, &c);
	ok(poll(&p, 1, 0) == 1 && p.revents == POLLOUT, "poll: read empty again");
	f.r.hdr->flags = STEPCCL_DMA_RING_EVENTFD_OFF;
	push(&f, 8, 3, 0);
	enter(f.fd, 1, 0, 0);
	ok(read(efd, &n, 8) < 0 && errno == EAGAIN, "EVENTFD_OFF keeps it silent");
	close(efd);
	teardown(&f);
}

static void corrupt_one(int sq)
{
	struct fixture f;
	struct pollfd p;
	uint32_t key;

	setup(&f, 8, 8, -1);
	*(sq ? f.r.sq_tail : f.r.cq_head) = 100;
	if (!sq)
		push(&f, 8, 1, 0);
	is(enter(f.fd, 1, 0, 0), -EPROTO, sq ? "a corrupt sq.tail: EPROTO" : "a corrupt cq.head: EPROTO");
	is(f.r.hdr->state, STEPCCL_DMA_RING_BROKEN, "... the header says broken");
	is(enter(f.fd, 1, 0, 0), -EBADFD, "... and from then on EBADFD");
	is(reg(f.fd, f.a, 4096, RW, &key), -EBADFD, "... for MR_REG too");
	is(copy_one(f.fd, READ_OP, f.a, f.ka, f.b, f.kb, 8, NULL), -EBADFD, "... and SUBMIT_ONE");
	p = (struct pollfd) { .fd = f.fd, .events = POLLIN };
	ok(poll(&p, 1, 0) == 1 && p.revents == (POLLERR | POLLHUP), "... and poll has ERR and HUP");
	teardown(&f);
}

struct canceller {
	int fd;
	uint64_t user_data;
	long ret;
	uint32_t cancelled;
};

static void *cancel_soon(void *arg)
{
	struct canceller *k = arg;
	struct stepccl_dma_cancel c = { .user_data = k->user_data };
	struct timespec pause = { .tv_nsec = 1000000 };
	int tries = 2000;

	while ((k->ret = CALL(k->fd, STEPCCL_DMA_CANCEL, &c)) == -ENOENT && --tries)
		nanosleep(&pause, NULL);
	k->cancelled = c.cancelled;
	return NULL;
}

static void cancelling(void)
{
	size_t big = 64u << 20;
	char *p = pages_alloc(2 * big);
	struct stepccl_dma_cancel c = { .flags = STEPCCL_DMA_CANCEL_ALL };
	struct canceller k = { .user_data = 77 };
	struct stepccl_dma_cqe cqe;
	struct stepccl_dma_sqe s;
	struct fixture f;
	int i, cancelled = 0, ran = 0;
	uint32_t key;
	pthread_t t;

	setup(&f, 16, 16, -1);
	is(CALL(f.fd, STEPCCL_DMA_CANCEL, &c), -ENOENT, "nothing to cancel: ENOENT");
	c.flags = 2;
	is(CALL(f.fd, STEPCCL_DMA_CANCEL, &c), -EINVAL, "an unknown flag: EINVAL");
	is(reg(f.fd, p, 2 * big, RW, &key), 0, "register memory for long copies");
	for (i = 0; i < 16; i++) {
		s = sqe_make(READ_OP, p, key, p + big, key, big, i == 15 ? 77 : i);
		ring_push(&f.r, &s);
	}
	k.fd = f.fd;
	pthread_create(&t, NULL, cancel_soon, &k);
	is(enter(f.fd, 16, 0, 0), 16, "16 long copies, the last one cancelled by another thread");
	pthread_join(t, NULL);
	while (ring_pop(&f.r, &cqe)) {
		cancelled += cqe.res == -ECANCELED && cqe.user_data == 77 &&
			     cqe.detail == STEPCCL_DMA_DETAIL_CANCEL;
		ran += !cqe.res;
	}
	ok(!k.ret && k.cancelled == 1 && cancelled == 1 && ran == 15,
	   "exactly that one is ECANCELED (ret %ld, %u; %d, %d)", k.ret, k.cancelled, cancelled, ran);
	dereg(f.fd, key);
	munmap(p, 2 * big);
	teardown(&f);
}

struct scribbler {
	struct fixture *f;
	int stop;
};

/* Rewrites the SQEs while the driver reads them. */
static void *scribble(void *arg)
{
	struct scribbler *s = arg;
	uint64_t x = 88172645463325252ull;

	while (!__atomic_load_n(&s->stop, __ATOMIC_RELAXED)) {
		uint64_t *w = (uint64_t *)s->f->r.sqes;
		size_t words = s->f->r.c.sq_entries * 8;

		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		w[x % words] ^= x >> 32;
	}
	return NULL;
}

static void torn_sqes(void)
{
	struct scribbler s = {};
	struct stepccl_dma_cqe c;
	struct fixture f;
	int i, j, bad = 0;
	pthread_t t;

	setup(&f, 64, 64, -1);
	s.f = &f;
	pthread_create(&t, NULL, scribble, &s);
	for (i = 0; i < 2000; i++) {
		for (j = 0; j < 8; j++)
			push(&f, 64, j, 0);
		bad += enter(f.fd, 8, 0, 0) != 8;
		while (ring_pop(&f.r, &c))
			bad += c.res > 0;
	}
	__atomic_store_n(&s.stop, 1, __ATOMIC_RELAXED);
	pthread_join(t, NULL);
	is(bad, 0, "16000 SQEs that change while they are read");
	teardown(&f);
}

void suite_ring(void)
{
	basics();
	flow_control();
	fences();
	bad_sqes();
	waiting();
	events();
	corrupt_one(1);
	corrupt_one(0);
	cancelling();
	torn_sqes();
}
