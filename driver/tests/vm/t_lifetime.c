// SPDX-License-Identifier: GPL-2.0
/* Ends of all kinds: kill, close before munmap, fork, exec, owner gone in the middle of a copy. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dev.h"
#include "suites.h"
#include "tap.h"

#define BIG (64u << 20)
#define STATS "/sys/class/misc/dma_device/stats/"

static void settle(void)
{
	struct timespec t = { .tv_nsec = 20000000 };

	nanosleep(&t, NULL);
}

/* Runs @child with a pipe's write end, kills it as soon as it has written, and reaps it. */
static void kill_when_ready(void (*child)(int ready), const char *what)
{
	long long pinned = pinned_now();
	int p[2], status;
	char byte;
	pid_t pid;

	if (pipe2(p, O_CLOEXEC))
		return;
	pid = fork();
	if (!pid) {
		close(p[0]);
		child(p[1]);
		_exit(1);
	}
	close(p[1]);
	ok(read(p[0], &byte, 1) == 1, "%s: ready", what);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	close(p[0]);
	ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "... killed");
	is(pinned_now() - pinned, 0, "... and nothing stays pinned");
	is(read_number(STATS "contexts", NULL), 0, "... and no context is left");
}

static void tell(int ready)
{
	if (write(ready, "r", 1) != 1)
		_exit(3);
}

static void with_registered_memory(int ready)
{
	struct ring r;
	int fd = dev_open_ctx(&r, 64, 0);
	char *buf = pages_alloc(BIG);
	uint32_t key;
	int i;

	for (i = 0; i < 16; i++)
		if (reg(fd, buf, BIG / 16, RW, &key))
			_exit(2);
	tell(ready);
	pause();
}

static void copying(int ready)
{
	struct ring r;
	int fd = dev_open_ctx(&r, 64, 0);
	char *buf = pages_alloc(2 * (size_t)BIG);
	uint32_t key;

	if (reg(fd, buf, 2 * (size_t)BIG, RW, &key))
		_exit(2);
	tell(ready);
	for (;;)
		if (copy_one(fd, STEPCCL_DMA_OP_READ, buf, key, buf + BIG, key, BIG, NULL))
			_exit(4);
}

static void waiting(int ready)
{
	struct ring r;
	int fd = dev_open_ctx(&r, 64, 0);

	tell(ready);
	enter(fd, 0, 1, STEPCCL_DMA_WAIT_FOREVER);
}

static void registering(int ready)
{
	struct ring r;
	int fd = dev_open_ctx(&r, 64, 0);
	char *buf = pages_alloc(BIG);
	uint32_t key;

	tell(ready);
	for (;;)
		if (reg(fd, buf, BIG, RW, &key) || dereg(fd, key))
			_exit(4);
}

/* The owner is killed while another process copies from its memory. */
static void owner_killed_under_copy(void)
{
	struct stepccl_dma_mr_import im;
	struct ring r;
	char *dst = pages_alloc(BIG);
	long long pinned = pinned_now();
	long ret = 0, last = 0;
	int sv[2], mr, fd, status, rounds;
	uint64_t va;
	uint32_t key;
	pid_t pid, killer;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		return;
	pid = fork();
	if (!pid) {
		char *src = pages_alloc(BIG);

		fd = dev_open_ctx(&r, 8, 0);
		va = (uintptr_t)src;
		if (reg(fd, src, BIG, RW, &key) || (mr = export_mr(fd, key, R)) < 0 ||
		    send_fd(sv[1], mr) || write(sv[1], &va, 8) != 8)
			_exit(1);
		close(mr);
		for (;;)
			pause();
	}
	mr = recv_fd(sv[0]);
	if (!ok(mr >= 0 && read(sv[0], &va, 8) == 8, "an owner exports 64 MiB"))
		return;
	fd = dev_open_ctx(&r, 8, 0);
	reg(fd, dst, BIG, RW, &key);
	is(import_mr(fd, mr, 0, &im), 0, "... we import it");
	killer = fork();
	if (!killer) {
		settle();
		kill(pid, SIGKILL);
		_exit(0);
	}
	for (rounds = 0; rounds < 100000 && !ret; rounds++) {
		last = ret;
		ret = copy_one(fd, STEPCCL_DMA_OP_READ, (void *)(uintptr_t)va, im.key, dst, key, BIG,
			       NULL);
	}
	waitpid(pid, &status, 0);
	waitpid(killer, &status, 0);
	ok(last == 0 && (ret == -ECANCELED || ret == -EKEYREVOKED),
	   "the owner is killed under the copy: the copy ends with ECANCELED or EKEYREVOKED (%ld)",
	   ret);
	is(pinned_now() - pinned, BIG / 4096, "... and the owner's pages are unpinned");
	is(read_number(STATS "quarantined_pages", NULL), 0, "... none is in quarantine");
	close(mr);
	close(sv[0]);
	close(sv[1]);
	ring_unmap(&r);
	close(fd);
	munmap(dst, BIG);
}

static void close_before_munmap(void)
{
	struct ring r;
	int fd = dev_open_ctx(&r, 8, 0);
	char *buf = pages_alloc(4096);

	reg(fd, buf, 4096, RW, NULL);
	close(fd);
	is(read_number(STATS "contexts", NULL), 1, "close before munmap keeps the context");
	r.hdr->flags = 1;
	*r.sq_tail = 1;
	ok(r.hdr->magic == STEPCCL_DMA_RING_MAGIC, "... and the rings can be touched");
	munmap(r.area, 4096);
	munmap((char *)r.area + 4096, r.c.mmap_bytes - 4096);
	is(read_number(STATS "contexts", NULL), 0, "munmap ends it");
	munmap(buf, 4096);
}

static void fork_and_exec(void)
{
	struct ring r;
	int fd = dev_open_ctx(&r, 8, 0);
	int status;
	pid_t pid = fork();

	if (!pid) {
		unsigned char vec[16];

		_exit(mincore(r.area, 4096, vec) == -1 && errno == ENOMEM ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	is(status, 0, "a child doesn't inherit the mapping");
	ring_unmap(&r);
	close(fd);
}

struct dereg_race {
	int fd;
	uint32_t key;
	int started;
	long ret;
};

static void *copy_thread(void *arg)
{
	struct dereg_race *d = arg;
	char *dst = pages_alloc(BIG);
	uint32_t dst_key;
	long ret = 0;
	int n = 0;

	reg(d->fd, dst, BIG, RW, &dst_key);
	while (!ret) {
		struct stepccl_dma_submit_one a = {
			.desc = { .src = 0, .dst = (uintptr_t)dst, .length = BIG, .opcode = 1 },
			.src_key = d->key, .dst_key = dst_key,
		};

		__atomic_store_n(&d->started, ++n, __ATOMIC_RELAXED);
		ret = CALL(d->fd, STEPCCL_DMA_SUBMIT_ONE, &a);
		if (!ret && a.bytes != BIG)
			ret = 1;
	}
	d->ret = ret;
	dereg(d->fd, dst_key);
	munmap(dst, BIG);
	return NULL;
}

static void dereg_under_copy(void)
{
	char *src = pages_alloc(BIG);
	struct stepccl_dma_mr_reg m = { .access = RW, .va = (uintptr_t)src, .len = BIG };
	struct dereg_race d = {};
	struct ring r;
	pthread_t t;

	d.fd = dev_open_ctx(&r, 8, 0);
	reg_full(d.fd, &m);
	d.key = m.key;
	pthread_create(&t, NULL, copy_thread, &d);
	while (__atomic_load_n(&d.started, __ATOMIC_RELAXED) < 2)
		settle();
	is(dereg(d.fd, m.key), 0, "MR_DEREG waits for a running copy");
	pthread_join(t, NULL);
	is(d.ret, -EKEYREVOKED, "... which ends whole; the next one is refused");
	munmap(src, BIG);
	ring_unmap(&r);
	close(d.fd);
}

static void read_only_fd(void)
{
	int fd = open(STEPCCL_DMA_DEVICE, O_RDWR | O_CLOEXEC);
	char byte;

	ok(read(fd, &byte, 1) < 0 && errno == EINVAL, "read() is refused");
	ok(write(fd, "x", 1) < 0 && errno == EINVAL, "write() is refused");
	ok(lseek(fd, 0, SEEK_SET) < 0 && errno == ESPIPE, "lseek() is refused");
	close(fd);
}

/* rmmod with the device open. */
static void unload_refused(void)
{
	int fd = dev_open();

	ok(syscall(SYS_delete_module, "dma_engine", O_NONBLOCK) < 0 &&
	   (errno == EAGAIN || errno == EBUSY), "unloading with an open file is refused");
	close(fd);
}

void suite_lifetime(void)
{
	kill_when_ready(with_registered_memory, "a process with 64 MiB registered");
	kill_when_ready(copying, "a process that copies");
	kill_when_ready(waiting, "a process that waits in ENTER");
	kill_when_ready(registering, "a process that registers and deregisters");
	owner_killed_under_copy();
	dereg_under_copy();
	close_before_munmap();
	fork_and_exec();
	read_only_fd();
	unload_refused();
}
