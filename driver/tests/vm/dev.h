/* SPDX-License-Identifier: GPL-2.0 */
/* /dev/dma_device for the tests. Calls return 0, a count, or a negative errno. */
#ifndef DEV_H
#define DEV_H

#include <linux/stepccl_dma.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RW (STEPCCL_DMA_ACCESS_READ | STEPCCL_DMA_ACCESS_WRITE)
#define R STEPCCL_DMA_ACCESS_READ
#define W STEPCCL_DMA_ACCESS_WRITE

struct ring {
	void *area;
	struct stepccl_dma_ctx_create c;
	struct stepccl_dma_ring_hdr *hdr;
	uint32_t *sq_head, *sq_tail, *cq_head, *cq_tail;
	struct stepccl_dma_sqe *sqes;
	struct stepccl_dma_cqe *cqes;
};

/* Sets arg->size and calls. */
#define CALL(fd, cmd, arg) ((arg)->size = sizeof(*(arg)), dev_ioctl(fd, cmd, arg))
long dev_ioctl(int fd, unsigned long cmd, void *arg);

/* Each ends the program with a TAP bail-out when it fails. */
int dev_open(void);
int dev_open_hello(void);
int dev_open_ctx(struct ring *r, uint32_t entries, uint32_t policy);
void *pages_alloc(size_t bytes);

long dev_hello(int fd);
long ctx_create(int fd, struct ring *r, uint32_t sq, uint32_t cq, uint32_t policy, int eventfd);
long ring_map(int fd, struct ring *r);
void ring_unmap(struct ring *r);

long reg(int fd, const void *va, size_t len, uint32_t access, uint32_t *key);
long reg_full(int fd, struct stepccl_dma_mr_reg *a);
long dereg(int fd, uint32_t key);
long query(int fd, uint32_t op, uint32_t index, void *data, uint32_t bytes);
long route(int fd, uint16_t node, uint8_t state);
long export_mr(int fd, uint32_t key, uint32_t access);
long import_mr(int fd, int mr_fd, uint32_t access, struct stepccl_dma_mr_import *out);

/* SUBMIT_ONE between local nodes 0. */
long copy_one(int fd, uint8_t op, const void *src, uint32_t src_key, void *dst, uint32_t dst_key,
	      uint32_t length, struct stepccl_dma_submit_one *out);

/* A descriptor between local nodes 0. */
struct stepccl_dma_sqe sqe_make(uint8_t op, const void *src, uint32_t src_key, void *dst,
				uint32_t dst_key, uint32_t length, uint64_t user_data);
void ring_push(struct ring *r, const struct stepccl_dma_sqe *sqe);
long enter(int fd, uint32_t to_submit, uint32_t min_complete, uint64_t timeout_ns);
long enter_flags(int fd, uint32_t to_submit, uint32_t min_complete, uint64_t timeout_ns,
		 uint32_t flags);
/* Takes the next CQE; 0 when there is none. */
int ring_pop(struct ring *r, struct stepccl_dma_cqe *cqe);

int send_fd(int sock, int fd);
int recv_fd(int sock);

/* Reads one number from a file such as /proc/vmstat ("key value") or sysfs (key NULL). */
long long read_number(const char *path, const char *key);
/* Pages pinned by FOLL_PIN in the whole system. */
long long pinned_now(void);

#endif /* DEV_H */
