// SPDX-License-Identifier: GPL-2.0
#include "dev.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static void bail(const char *what)
{
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(2);
}

long dev_ioctl(int fd, unsigned long cmd, void *arg)
{
	int ret = ioctl(fd, cmd, arg);

	return ret < 0 ? -errno : ret;
}

int dev_open(void)
{
	int fd = open(STEPCCL_DMA_DEVICE, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		bail("open " STEPCCL_DMA_DEVICE);
	return fd;
}

long dev_hello(int fd)
{
	struct stepccl_dma_hello h = {
		.abi_major = STEPCCL_DMA_ABI_MAJOR,
		.abi_minor = STEPCCL_DMA_ABI_MINOR,
		.features = ~0ull,
	};

	return CALL(fd, STEPCCL_DMA_HELLO, &h);
}

int dev_open_hello(void)
{
	int fd = dev_open();

	if (dev_hello(fd))
		bail("HELLO");
	return fd;
}

long ctx_create(int fd, struct ring *r, uint32_t sq, uint32_t cq, uint32_t policy, int eventfd)
{
	memset(r, 0, sizeof(*r));
	r->c.sq_entries = sq;
	r->c.cq_entries = cq;
	r->c.policy = policy;
	r->c.eventfd = eventfd;
	return CALL(fd, STEPCCL_DMA_CTX_CREATE, &r->c);
}

long ring_map(int fd, struct ring *r)
{
	r->area = mmap(NULL, r->c.mmap_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (r->area == MAP_FAILED)
		return -errno;
	r->hdr = r->area;
	r->sq_head = r->area + r->c.off_sq_head;
	r->sq_tail = r->area + r->c.off_sq_tail;
	r->cq_head = r->area + r->c.off_cq_head;
	r->cq_tail = r->area + r->c.off_cq_tail;
	r->sqes = r->area + r->c.off_sqes;
	r->cqes = r->area + r->c.off_cqes;
	return 0;
}

void ring_unmap(struct ring *r)
{
	munmap(r->area, r->c.mmap_bytes);
}

int dev_open_ctx(struct ring *r, uint32_t entries, uint32_t policy)
{
	int fd = dev_open_hello();

	if (ctx_create(fd, r, entries, entries, policy, -1) || ring_map(fd, r))
		bail("context");
	return fd;
}

void *pages_alloc(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		bail("mmap");
	return p;
}

long reg_full(int fd, struct stepccl_dma_mr_reg *a)
{
	return CALL(fd, STEPCCL_DMA_MR_REG, a);
}

long reg(int fd, const void *va, size_t len, uint32_t access, uint32_t *key)
{
	struct stepccl_dma_mr_reg a = {
		.access = access,
		.va = (uintptr_t)va,
		.len = len,
		.iova = (uintptr_t)va,
	};
	long ret = reg_full(fd, &a);

	if (key)
		*key = a.key;
	return ret;
}

long dereg(int fd, uint32_t key)
{
	struct stepccl_dma_mr_dereg a = { .key = key };

	return CALL(fd, STEPCCL_DMA_MR_DEREG, &a);
}

long query(int fd, uint32_t op, uint32_t index, void *data, uint32_t bytes)
{
	struct stepccl_dma_query a = {
		.op = op,
		.index = index,
		.data_size = bytes,
		.data = (uintptr_t)data,
	};

	return CALL(fd, STEPCCL_DMA_QUERY, &a);
}

long route(int fd, uint16_t node, uint8_t state)
{
	struct stepccl_dma_route_set a = { .node = node, .state = state, .numa_node = -1 };

	return CALL(fd, STEPCCL_DMA_ROUTE_SET, &a);
}

long export_mr(int fd, uint32_t key, uint32_t access)
{
	struct stepccl_dma_mr_export a = { .key = key, .access = access };
	long ret = CALL(fd, STEPCCL_DMA_MR_EXPORT, &a);

	return ret ? ret : a.fd;
}

long import_mr(int fd, int mr_fd, uint32_t access, struct stepccl_dma_mr_import *out)
{
	memset(out, 0, sizeof(*out));
	out->fd = mr_fd;
	out->access = access;
	return CALL(fd, STEPCCL_DMA_MR_IMPORT, out);
}

long copy_one(int fd, uint8_t op, const void *src, uint32_t src_key, void *dst, uint32_t dst_key,
	      uint32_t length, struct stepccl_dma_submit_one *out)
{
	struct stepccl_dma_submit_one local;
	struct stepccl_dma_submit_one *a = out ? out : &local;

	memset(a, 0, sizeof(*a));
	a->desc.src = (uintptr_t)src;
	a->desc.dst = (uintptr_t)dst;
	a->desc.length = length;
	a->desc.opcode = op;
	a->src_key = src_key;
	a->dst_key = dst_key;
	return CALL(fd, STEPCCL_DMA_SUBMIT_ONE, a);
}

struct stepccl_dma_sqe sqe_make(uint8_t op, const void *src, uint32_t src_key, void *dst,
				uint32_t dst_key, uint32_t length, uint64_t user_data)
{
	return (struct stepccl_dma_sqe) {
		.src = (uintptr_t)src,
		.dst = (uintptr_t)dst,
		.length = length,
		.opcode = op,
		.user_data = user_data,
		.src_key = src_key,
		.dst_key = dst_key,
	};
}

void ring_push(struct ring *r, const struct stepccl_dma_sqe *sqe)
{
	uint32_t tail = *r->sq_tail;

	r->sqes[tail & (r->c.sq_entries - 1)] = *sqe;
	__atomic_store_n(r->sq_tail, tail + 1, __ATOMIC_RELEASE);
}

long enter_flags(int fd, uint32_t to_submit, uint32_t min_complete, uint64_t timeout_ns,
		 uint32_t flags)
{
	struct stepccl_dma_enter a = {
		.flags = flags,
		.to_submit = to_submit,
		.min_complete = min_complete,
		.timeout_ns = timeout_ns,
	};

	return CALL(fd, STEPCCL_DMA_ENTER, &a);
}

long enter(int fd, uint32_t to_submit, uint32_t min_complete, uint64_t timeout_ns)
{
	return enter_flags(fd, to_submit, min_complete, timeout_ns, 0);
}

int ring_pop(struct ring *r, struct stepccl_dma_cqe *cqe)
{
	uint32_t head = *r->cq_head;

	if (head == __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE))
		return 0;
	*cqe = r->cqes[head & (r->c.cq_entries - 1)];
	__atomic_store_n(r->cq_head, head + 1, __ATOMIC_RELEASE);
	return 1;
}

int send_fd(int sock, int fd)
{
	char byte = 'f';
	struct iovec iov = { &byte, 1 };
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} u = {};
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = u.buf,
		.msg_controllen = sizeof(u.buf),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	return sendmsg(sock, &msg, 0) == 1 ? 0 : -errno;
}

int recv_fd(int sock)
{
	char byte;
	struct iovec iov = { &byte, 1 };
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} u = {};
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = u.buf,
		.msg_controllen = sizeof(u.buf),
	};
	struct cmsghdr *c;
	int fd;

	if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) != 1)
		return -EPIPE;
	c = CMSG_FIRSTHDR(&msg);
	if (!c || c->cmsg_type != SCM_RIGHTS)
		return -EBADMSG;
	memcpy(&fd, CMSG_DATA(c), sizeof(int));
	return fd;
}

long long read_number(const char *path, const char *key)
{
	FILE *f = fopen(path, "re");
	long long value = -1, v;
	char name[128];

	if (!f)
		return -1;
	if (!key) {
		if (fscanf(f, "%lld", &v) == 1)
			value = v;
	} else {
		while (fscanf(f, "%127s %lld%*[^\n]", name, &v) >= 1)
			if (!strcmp(name, key)) {
				value = v;
				break;
			}
	}
	fclose(f);
	return value;
}

long long pinned_now(void)
{
	FILE *f = fopen("/proc/sys/vm/stat_refresh", "we");

	/* The counters are kept per CPU and summed up only now and then. */
	if (f) {
		fputs("1\n", f);
		fclose(f);
	}
	return read_number("/proc/vmstat", "nr_foll_pin_acquired") -
	       read_number("/proc/vmstat", "nr_foll_pin_released");
}
