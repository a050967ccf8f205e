// SPDX-License-Identifier: GPL-2.0
/*
 * With the module of `make faults`: every allocation and reply fails once, and
 * copies are slowed down so that what races elsewhere is certain here.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dev.h"
#include "suites.h"
#include "tap.h"

#define PARAMS "/sys/module/dma_engine/parameters/"
#define STATS "/sys/class/misc/dma_device/stats/"
#define MIB (1u << 20)
#define STEP (256u << 10)

static void set_param(const char *name, int value)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), PARAMS "%s", name);
	f = fopen(path, "we");
	if (!f || fprintf(f, "%d", value) < 0 || fclose(f)) {
		printf("Bail out! %s: %s\n", path, strerror(errno));
		_exit(2);
	}
}

static void sleep_ms(long ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- one failure after the other ------------------------------------ */

struct fail_case {
	const char *name;
	long (*call)(void);	/* 0 or more on success */
	void (*undo)(void);
};

static int fd, other_fd, made_fd, exported;
static struct ring ring;
static char *buf;
static uint32_t key, made_key;

static long do_open(void)
{
	made_fd = open(STEPCCL_DMA_DEVICE, O_RDWR | O_CLOEXEC);
	return made_fd < 0 ? -errno : 0;
}

static void undo_open(void)
{
	close(made_fd);
}

static long do_ctx(void)
{
	return ctx_create(other_fd, &ring, 64, 64, 0, -1);
}

static void undo_ctx(void)
{
	close(other_fd);
	other_fd = dev_open_hello();
}

static long do_reg(void)
{
	return reg(fd, buf, 64 * 4096, RW, &made_key);
}

static void undo_key(void)
{
	dereg(fd, made_key);
}

static long do_export(void)
{
	made_fd = (int)export_mr(fd, key, RW);
	return made_fd;
}

static long do_import(void)
{
	struct stepccl_dma_mr_import im;
	long ret = import_mr(fd, exported, 0, &im);

	made_key = im.key;
	return ret;
}

static int lowest_free_fd(void)
{
	int n = dup(0);

	close(n);
	return n;
}

static void every_failure(const struct fail_case *c)
{
	long long contexts = read_number(STATS "contexts", NULL);
	long long mrs = read_number(STATS "mrs", NULL);
	long long pages = read_number(STATS "pinned_pages", NULL);
	int free_fd = lowest_free_fd();
	int n, bad = 0, enomem = 0, efault = 0;
	long ret = -1;

	for (n = 1; n < 100 && ret < 0; n++) {
		set_param("fault_nth", n);
		ret = c->call();
		set_param("fault_nth", 0);
		if (ret >= 0)
			break;
		enomem += ret == -ENOMEM;
		efault += ret == -EFAULT;
		bad += ret != -ENOMEM && ret != -EFAULT;
		bad += read_number(STATS "contexts", NULL) != contexts ||
		       read_number(STATS "mrs", NULL) != mrs ||
		       read_number(STATS "pinned_pages", NULL) != pages ||
		       lowest_free_fd() != free_fd;
	}
	ok(ret >= 0 && enomem && !bad,
	   "%s: %d failures (%d ENOMEM, %d EFAULT), nothing left behind, then it works", c->name,
	   n - 1, enomem, efault);
	if (ret >= 0)
		c->undo();
}

static void failures(void)
{
	static const struct fail_case cases[] = {
		{ "open", do_open, undo_open },
		{ "CTX_CREATE", do_ctx, undo_ctx },
		{ "MR_REG", do_reg, undo_key },
		{ "MR_EXPORT", do_export, undo_open },
		{ "MR_IMPORT", do_import, undo_key },
	};
	struct ring r;
	size_t i;

	fd = dev_open_ctx(&r, 8, 0);
	other_fd = dev_open_hello();
	buf = pages_alloc(64 * 4096);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		/* The first registration would hide the growth of the tables from MR_REG's turn. */
		if (i == 3) {
			reg(fd, buf, 4096, RW, &key);
			exported = (int)export_mr(fd, key, RW);
		}
		every_failure(&cases[i]);
	}
	close(exported);
	close(other_fd);
	ring_unmap(&r);
	close(fd);
	munmap(buf, 64 * 4096);
}

/* ---- slow copies ----------------------------------------------------- */

struct copier {
	int fd;
	uint64_t src, dst;
	uint32_t src_key, dst_key, length, flags;
	struct stepccl_dma_submit_one out;
	long ret;
	pthread_t thread;
};

static void *copier_run(void *arg)
{
	struct copier *c = arg;

	c->out = (struct stepccl_dma_submit_one) {
		.flags = c->flags,
		.desc = { .src = c->src, .dst = c->dst, .length = c->length, .opcode = 1 },
		.src_key = c->src_key,
		.dst_key = c->dst_key,
	};
	c->ret = CALL(c->fd, STEPCCL_DMA_SUBMIT_ONE, &c->out);
	return NULL;
}

/* The owner is killed, the copy from its memory hangs in a step longer than drain_ms. */
static void quarantine(void)
{
	struct stepccl_dma_mr_import im;
	struct copier c = { .length = MIB };
	long long pinned, refs;
	struct ring r;
	char *dst;
	int sv[2], mr, status;
	pid_t pid;

	set_param("drain_ms", 50);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		return;
	pid = fork();
	if (!pid) {
		struct ring mine;
		int mine_fd = dev_open_ctx(&mine, 8, 0);
		char *src = pages_alloc(MIB);
		uint32_t k;

		if (reg(mine_fd, src, MIB, RW, &k) || (mr = (int)export_mr(mine_fd, k, R)) < 0 ||
		    send_fd(sv[1], mr))
			_exit(1);
		close(mr);
		for (;;)
			pause();
	}
	mr = recv_fd(sv[0]);
	c.fd = dev_open_ctx(&r, 8, 0);
	dst = pages_alloc(MIB);
	reg(c.fd, dst, MIB, RW, &c.dst_key);
	is(import_mr(c.fd, mr, 0, &im), 0, "import from a process that will die");
	close(mr);
	c.src = im.iova;
	c.src_key = im.key;
	c.dst = (uintptr_t)dst;
	pinned = pinned_now();
	refs = read_number("/sys/module/dma_engine/refcnt", NULL);
	set_param("fault_step_ms", 1500);
	pthread_create(&c.thread, NULL, copier_run, &c);
	sleep_ms(200);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	is(read_number(STATS "de501", NULL), 1, "the drain expires: DE501");
	is(read_number(STATS "quarantined_pages", NULL), 256, "... the pages go into quarantine");
	is(pinned_now() - pinned, 0, "... still pinned");
	is(read_number("/sys/module/dma_engine/refcnt", NULL), refs,
	   "... the module is held in the dead owner's place");
	pthread_join(c.thread, NULL);
	set_param("fault_step_ms", 0);
	is(c.ret, -ECANCELED, "the copy stops after its step");
	ok(c.out.detail == STEPCCL_DMA_DETAIL_OWNER_GONE && c.out.bytes == STEP,
	   "... and says why, and how far it came");
	is(read_number(STATS "de305", NULL), 1, "the late end is noted: DE305");
	is(read_number(STATS "quarantined_pages", NULL), 0, "... the quarantine is over");
	is(pinned_now() - pinned, -256, "... the pages are unpinned");
	is(read_number("/sys/module/dma_engine/refcnt", NULL), refs - 1, "... the module is let go");
	set_param("drain_ms", 10000);
	close(sv[0]);
	close(sv[1]);
	ring_unmap(&r);
	close(c.fd);
	munmap(dst, MIB);
}

static void dereg_waits(struct copier c)
{
	long start = now_ms();

	set_param("fault_step_ms", 500);
	pthread_create(&c.thread, NULL, copier_run, &c);
	sleep_ms(400);
	is(dereg(c.fd, c.dst_key), 0, "MR_DEREG under a copy of 2 s");
	ok(now_ms() - start >= 1950, "... waits for its end");
	pthread_join(c.thread, NULL);
	ok(!c.ret && c.out.bytes == MIB, "... and the copy is whole");
	set_param("fault_step_ms", 0);
}

static void killed_copy(void)
{
	long start;
	int status;
	pid_t pid;

	set_param("fault_step_ms", 200);
	pid = fork();
	if (!pid) {
		struct ring r;
		int mine = dev_open_ctx(&r, 8, 0);
		char *p = pages_alloc(64 * MIB);
		uint32_t k;

		reg(mine, p, 64 * MIB, RW, &k);
		copy_one(mine, 1, p, k, p + 32 * MIB, k, 32 * MIB, NULL);
		_exit(1);
	}
	sleep_ms(300);
	start = now_ms();
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	ok(WIFSIGNALED(status) && now_ms() - start < 1500, "a copy of 25 s is killed within a step");
	set_param("fault_step_ms", 0);
}

static void verify_mismatch(struct copier c)
{
	struct stepccl_dma_last_error last;

	set_param("fault_step_ms", 1000);
	c.length = 4096;
	c.flags = STEPCCL_DMA_SQE_VERIFY;
	pthread_create(&c.thread, NULL, copier_run, &c);
	sleep_ms(1500);
	((volatile char *)(uintptr_t)c.dst)[1234] ^= 1;
	pthread_join(c.thread, NULL);
	set_param("fault_step_ms", 0);
	is(c.ret, -EBADMSG, "VERIFY sees a byte that differs");
	ok(c.out.detail == STEPCCL_DMA_DETAIL_VERIFY && c.out.bytes == 1234, "... and where");
	query(c.fd, STEPCCL_DMA_QUERY_LAST_ERROR, 1, &last, sizeof(last));
	ok(last.code == 304 && strstr(last.text, "offset=1234"), "... and logs DE304");
}

static void push4(struct ring *r, const struct copier *c)
{
	struct stepccl_dma_sqe s;
	int i;

	for (i = 0; i < 4; i++) {
		s = sqe_make(1, (void *)(uintptr_t)c->src, c->src_key, (void *)(uintptr_t)c->dst,
			     c->dst_key, 4096, (uint64_t)i);
		ring_push(r, &s);
	}
}

static void nothing(int sig)
{
	(void)sig;
}

static void signal_between(struct ring *r, const struct copier *c)
{
	struct itimerval tv = { .it_value = { .tv_usec = 300000 } };
	struct sigaction sa = { .sa_handler = nothing }, old;
	struct stepccl_dma_cqe cqe;
	int n = 0;
	long taken;

	set_param("fault_step_ms", 200);
	push4(r, c);
	sigaction(SIGALRM, &sa, &old);
	setitimer(ITIMER_REAL, &tv, NULL);
	taken = enter(c->fd, 4, 4, STEPCCL_DMA_WAIT_FOREVER);
	ok(taken >= 1 && taken <= 3, "a signal stops ENTER after the SQE that runs (%ld of 4)", taken);
	sigaction(SIGALRM, &old, NULL);
	alarm(100);
	is(enter(c->fd, 4, 4, STEPCCL_DMA_WAIT_FOREVER), 4 - taken, "the next ENTER takes the rest");
	while (ring_pop(r, &cqe))
		n += !cqe.res && cqe.user_data == (uint64_t)n;
	is(n, 4, "... all four ran, in order");
	set_param("fault_step_ms", 0);
}

static void *cancel_all(void *arg)
{
	struct stepccl_dma_cancel a = { .flags = STEPCCL_DMA_CANCEL_ALL };
	struct copier *c = arg;

	sleep_ms(100);
	c->ret = CALL(c->fd, STEPCCL_DMA_CANCEL, &a);
	c->length = a.cancelled;
	return NULL;
}

static void cancel_rest(struct ring *r, const struct copier *c)
{
	struct copier k = { .fd = c->fd };
	struct stepccl_dma_cqe cqe;
	int ran = 0, cancelled = 0;

	set_param("fault_step_ms", 600);
	push4(r, c);
	pthread_create(&k.thread, NULL, cancel_all, &k);
	is(enter(c->fd, 4, 0, 0), 4, "four SQEs, CANCEL_ALL while the first runs");
	pthread_join(k.thread, NULL);
	while (ring_pop(r, &cqe)) {
		ran += !cqe.res;
		cancelled += cqe.res == -ECANCELED;
	}
	ok(!k.ret && k.length == 3 && ran == 1 && cancelled == 3, "... cancels the other three");
	set_param("fault_step_ms", 0);
}

void suite_faults(void)
{
	char *src = pages_alloc(MIB), *dst = pages_alloc(MIB);
	struct copier c = { .src = (uintptr_t)src, .dst = (uintptr_t)dst, .length = MIB };
	struct ring r;

	failures();
	quarantine();
	c.fd = dev_open_ctx(&r, 8, 0);
	reg(c.fd, src, MIB, RW, &c.src_key);
	reg(c.fd, dst, MIB, RW, &c.dst_key);
	verify_mismatch(c);
	signal_between(&r, &c);
	enter_flags(c.fd, 0, 0, 0, STEPCCL_DMA_ENTER_CLEAR_FAILED);
	cancel_rest(&r, &c);
	killed_copy();
	dereg_waits(c);
	ring_unmap(&r);
	close(c.fd);
	munmap(src, MIB);
	munmap(dst, MIB);
}
