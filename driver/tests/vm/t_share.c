// SPDX-License-Identifier: GPL-2.0
/* MR_EXPORT and MR_IMPORT: two processes, one copy. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev.h"
#include "suites.h"
#include "tap.h"

#define BYTES (1u << 20)

/* The other process: registers, exports by the socket, says how its memory looks when asked. */
static void owner(int sock, uint32_t access)
{
	struct ring r;
	int fd = dev_open_ctx(&r, 8, 0);
	unsigned char *buf = pages_alloc(BYTES);
	uint64_t iova = (uintptr_t)buf;
	uint32_t key;
	char ask;
	int mr;

	memset(buf, 0x11, BYTES);
	if (reg(fd, buf, BYTES, RW, &key))
		_exit(1);
	mr = export_mr(fd, key, access);
	if (mr < 0 || send_fd(sock, mr) || write(sock, &iova, 8) != 8)
		_exit(2);
	close(mr);
	while (read(sock, &ask, 1) == 1) {
		char same = buf[0] == (unsigned char)ask && !memcmp(buf, buf + 1, BYTES - 1);

		if (ask == 'd')
			same = dereg(fd, key) == 0;
		if (write(sock, &same, 1) != 1)
			break;
	}
	_exit(0);
}

static int start_owner(uint32_t access, int *sock, uint64_t *iova, pid_t *pid)
{
	int sv[2];
	int mr;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		return -errno;
	*pid = fork();
	if (!*pid) {
		close(sv[0]);
		owner(sv[1], access);
	}
	close(sv[1]);
	*sock = sv[0];
	mr = recv_fd(sv[0]);
	if (mr < 0 || read(sv[0], iova, 8) != 8)
		return -EPIPE;
	return mr;
}

static int ask(int sock, char what)
{
	char answer = 0;

	return write(sock, &what, 1) == 1 && read(sock, &answer, 1) == 1 && answer;
}

static void two_processes(void)
{
	struct stepccl_dma_mr_import im;
	unsigned char *buf = pages_alloc(BYTES);
	struct ring r;
	uint64_t iova;
	int sock, mr, fd, status;
	uint32_t key;
	pid_t pid;

	mr = start_owner(RW, &sock, &iova, &pid);
	ok(mr >= 0, "another process exports its memory over a unix socket");
	fd = dev_open_ctx(&r, 8, 0);
	is(reg(fd, buf, BYTES, RW, &key), 0, "register our side");
	is(import_mr(fd, mr, 0, &im), 0, "MR_IMPORT");
	ok(im.access == RW && im.iova == iova && im.len == BYTES && im.key, "... tells what it got");
	is(copy_one(fd, STEPCCL_DMA_OP_READ, (void *)(uintptr_t)iova, im.key, buf, key, BYTES, NULL),
	   0, "READ from the other process");
	ok(buf[0] == 0x11 && !memcmp(buf, buf + 1, BYTES - 1), "... has its bytes");
	memset(buf, 0x42, BYTES);
	is(copy_one(fd, STEPCCL_DMA_OP_WRITE, buf, key, (void *)(uintptr_t)iova, im.key, BYTES, NULL),
	   0, "WRITE into the other process");
	ok(ask(sock, 0x42), "... which sees our bytes");
	is(copy_one(fd, STEPCCL_DMA_OP_WRITE, buf, key, (void *)(uintptr_t)(iova + 1), im.key, BYTES,
		    NULL), -ERANGE, "not one byte beyond");
	is(copy_one(fd, STEPCCL_DMA_OP_READ, (void *)(uintptr_t)iova, 0, buf, key, 8, NULL), -EFAULT,
	   "an import isn't found by address");
	ok(ask(sock, 'd'), "the owner deregisters");
	is(copy_one(fd, STEPCCL_DMA_OP_READ, (void *)(uintptr_t)iova, im.key, buf, key, 8, NULL),
	   -EKEYREVOKED, "... then the import is revoked");
	is(import_mr(fd, mr, 0, &im), -EKEYREVOKED, "... and the descriptor too");
	is(im.detail, STEPCCL_DMA_DETAIL_OWNER_GONE, "... with the reason");
	close(sock);
	waitpid(pid, &status, 0);
	is(status, 0, "the owner ends well");
	close(mr);
	ring_unmap(&r);
	close(fd);
	munmap(buf, BYTES);
}

static void killed_owner(void)
{
	struct stepccl_dma_mr_import im;
	unsigned char *buf = pages_alloc(BYTES);
	long long pinned = pinned_now();
	struct ring r;
	uint64_t iova;
	int sock, mr, fd, status;
	uint32_t key;
	pid_t pid;

	mr = start_owner(R, &sock, &iova, &pid);
	fd = dev_open_ctx(&r, 8, 0);
	reg(fd, buf, BYTES, RW, &key);
	is(import_mr(fd, mr, RW, &im), -EACCES, "no more access than was exported");
	is(import_mr(fd, mr, 0, &im), 0, "import for reading");
	is(im.access, R, "... that is all it grants");
	is(copy_one(fd, STEPCCL_DMA_OP_WRITE, buf, key, (void *)(uintptr_t)iova, im.key, 8, NULL),
	   -EACCES, "... WRITE is refused");
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	is(copy_one(fd, STEPCCL_DMA_OP_READ, (void *)(uintptr_t)iova, im.key, buf, key, 8, NULL),
	   -EKEYREVOKED, "the owner is killed: its memory is revoked");
	is(pinned_now() - pinned, BYTES / 4096, "... and its pages are unpinned at once");
	is(dereg(fd, im.key), 0, "the import can still be deregistered");
	close(mr);
	close(sock);
	ring_unmap(&r);
	close(fd);
	munmap(buf, BYTES);
}

static void arguments(void)
{
	struct stepccl_dma_mr_import im;
	char *buf = pages_alloc(4096);
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct ring r;
	int fd = dev_open_ctx(&r, 8, 0);
	uint32_t key, ro;
	int mr;

	reg(fd, buf, 4096, RW, &key);
	reg(fd, buf, 4096, R, &ro);
	is(export_mr(fd, key, 0), -EINVAL, "export without access: EINVAL");
	is(export_mr(fd, key, 8), -EINVAL, "... with an unknown one: EINVAL");
	is(export_mr(fd, ro, W), -EACCES, "... with more than the key has: EACCES");
	is(export_mr(fd, 0x777701, R), -ENOKEY, "... of an unknown key: ENOKEY");
	is(import_mr(fd, null, 0, &im), -EINVAL, "import of another kind of file: EINVAL");
	is(import_mr(fd, 9999, 0, &im), -EBADF, "... of no file: EBADF");
	mr = export_mr(fd, key, R);
	ok(mr >= 0 && fcntl(mr, F_GETFD) == FD_CLOEXEC, "an export is O_CLOEXEC");
	is(import_mr(fd, mr, 0, &im), 0, "import into the same context");
	is(copy_one(fd, STEPCCL_DMA_OP_READ, buf, im.key, buf + 8, key, 16, NULL), -EINVAL,
	   "overlap is seen through an import");
	close(null);
	close(mr);
	ring_unmap(&r);
	close(fd);
	munmap(buf, 4096);
}

void suite_share(void)
{
	arguments();
	two_processes();
	killed_owner();
}
