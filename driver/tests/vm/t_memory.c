// SPDX-License-Identifier: GPL-2.0
/* MR_REG and MR_DEREG: what can be registered, by whom, and what a key is worth afterwards. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev.h"
#include "suites.h"
#include "tap.h"

static void refused(int fd, struct stepccl_dma_mr_reg a, long want, uint32_t detail, uint64_t page,
		    const char *what)
{
	long ret = reg_full(fd, &a);

	is(ret, want, what);
	if (!ok(a.detail == detail && a.fail_page == page && !a.key, "... detail %u, page %llu",
		detail, (unsigned long long)page))
		note("got detail %u, page %llu, key %#x", a.detail,
		     (unsigned long long)a.fail_page, a.key);
}

static void arguments(int fd, char *buf)
{
	struct stepccl_dma_mr_reg good = {
		.access = RW, .va = (uintptr_t)buf, .len = 4096, .iova = (uintptr_t)buf,
	};
	struct stepccl_dma_mr_reg a;
	struct stepccl_dma_mr_reg_dmabuf d = { .fd = 0, .len = 4096, .access = R };

	a = good, a.flags = 1;
	refused(fd, a, -EINVAL, STEPCCL_DMA_DETAIL_FLAGS, 0, "unknown flag");
	a = good, a.reserved = 1;
	refused(fd, a, -EINVAL, STEPCCL_DMA_DETAIL_RESERVED, 0, "reserved field not zero");
	a = good, a.access = 0;
	refused(fd, a, -EINVAL, STEPCCL_DMA_DETAIL_ACCESS, 0, "no access");
	a = good, a.access = 4;
	refused(fd, a, -EINVAL, STEPCCL_DMA_DETAIL_ACCESS, 0, "unknown access");
	a = good, a.len = 0;
	refused(fd, a, -EINVAL, STEPCCL_DMA_DETAIL_LENGTH, 0, "length 0");
	a = good, a.va = ~0ull - 100;
	refused(fd, a, -EOVERFLOW, STEPCCL_DMA_DETAIL_LENGTH, 0, "the address wraps");
	a = good, a.iova = ~0ull - 100;
	refused(fd, a, -EOVERFLOW, STEPCCL_DMA_DETAIL_LENGTH, 0, "the iova wraps");
	a = good, a.va = 0xffff888000000000ull;
	refused(fd, a, -EFAULT, STEPCCL_DMA_DETAIL_HOLE, 0, "a kernel address");
	is(CALL(fd, STEPCCL_DMA_MR_REG_DMABUF, &d), -EOPNOTSUPP, "dma-buf import is not built");
	is(d.detail, STEPCCL_DMA_DETAIL_DMABUF_BUILD, "... and says so");
}

/* The kernel's clock page: VM_IO and VM_PFNMAP, in every process. */
static void *vvar_page(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	void *page = NULL, *start;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		if (strstr(line, "[vvar]") && sscanf(line, "%p-", &start) == 1)
			page = start;
	if (f)
		fclose(f);
	return page;
}

static void mappings(int fd)
{
	char *p = pages_alloc(5 * 4096);
	struct stepccl_dma_mr_reg a = {
		.access = RW, .va = (uintptr_t)p, .len = 5 * 4096, .iova = (uintptr_t)p,
	};
	void *io = vvar_page();

	munmap(p + 2 * 4096, 4096);
	refused(fd, a, -EFAULT, STEPCCL_DMA_DETAIL_HOLE, 2, "a hole");
	mmap(p + 2 * 4096, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	refused(fd, a, -EFAULT, STEPCCL_DMA_DETAIL_NOACCESS, 2, "a PROT_NONE page");
	mprotect(p + 2 * 4096, 4096, PROT_READ);
	refused(fd, a, -EFAULT, STEPCCL_DMA_DETAIL_READONLY, 2, "a read-only page, to be written");
	a.access = R;
	is(reg_full(fd, &a), 0, "... is accepted, to be read");
	is(a.pages, 5, "... as 5 pages");
	is(dereg(fd, a.key), 0, "... and deregistered");
	munmap(p, 5 * 4096);

	a.va = a.iova = (uintptr_t)io;
	a.len = 4096;
	refused(fd, a, -EFAULT, STEPCCL_DMA_DETAIL_MMIO, 0, "a mapping without struct pages");
}

/* A read pin of memory that was never touched must see what the process writes later. */
static void read_pin_is_coherent(int fd)
{
	char *src = pages_alloc(8192), *dst = pages_alloc(8192), *copy;
	uint32_t src_key, dst_key;

	is(reg(fd, src, 8192, R, &src_key), 0, "register untouched memory for reading");
	is(reg(fd, dst, 8192, RW, &dst_key), 0, "register its destination");
	memset(src, 0x5a, 8192);
	is(copy_one(fd, STEPCCL_DMA_OP_READ, src, src_key, dst, dst_key, 8192, NULL), 0, "copy");
	ok(!memcmp(src, dst, 8192), "a read pin sees what is written after it");
	dereg(fd, src_key);

	copy = pages_alloc(8192);
	memset(copy, 1, 8192);
	mprotect(copy, 8192, PROT_READ);
	is(reg(fd, copy, 8192, R, &src_key), 0, "register a private read-only mapping");
	mprotect(copy, 8192, PROT_READ | PROT_WRITE);
	memset(copy, 0x77, 8192);
	copy_one(fd, STEPCCL_DMA_OP_READ, copy, src_key, dst, dst_key, 8192, NULL);
	ok(!memcmp(copy, dst, 8192), "... and so does one made while it was read-only");
	dereg(fd, src_key);
	dereg(fd, dst_key);
	munmap(src, 8192);
	munmap(dst, 8192);
	munmap(copy, 8192);
}

static void shared_file(int fd)
{
	int mem = memfd_create("shared", MFD_CLOEXEC);
	char *rw, *ro, *dst = pages_alloc(4096);
	uint32_t key, dst_key;

	if (mem < 0 || ftruncate(mem, 4096))
		return;
	rw = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, mem, 0);
	ro = mmap(NULL, 4096, PROT_READ, MAP_SHARED, mem, 0);
	is(reg(fd, ro, 4096, R, &key), 0, "register a shared read-only mapping");
	is(reg(fd, dst, 4096, W, &dst_key), 0, "register for writing only");
	memset(rw, 0x33, 4096);
	is(copy_one(fd, STEPCCL_DMA_OP_READ, ro, key, dst, dst_key, 4096, NULL), 0, "copy from it");
	ok(!memcmp(rw, dst, 4096), "it is the shared memory itself, not a copy");
	dereg(fd, key);
	dereg(fd, dst_key);
	munmap(rw, 4096);
	munmap(ro, 4096);
	munmap(dst, 4096);
	close(mem);
}

static void keys(int fd, char *buf)
{
	uint32_t key, again, old;
	int i;

	is(reg(fd, buf, 4096, RW, &key), 0, "MR_REG");
	ok(key != 0, "a key is never 0");
	is(dereg(fd, key ^ 0x100), -ENOKEY, "a key that never existed gets ENOKEY");
	is(dereg(fd, 0), -ENOKEY, "key 0 gets ENOKEY");
	is(dereg(fd, 0xffffffff), -ENOKEY, "key 0xffffffff gets ENOKEY");
	is(dereg(fd, key), 0, "MR_DEREG");
	is(dereg(fd, key), -EKEYREVOKED, "a second time gets EKEYREVOKED");
	old = key;
	for (i = 0; i < 300; i++) {
		if (reg(fd, buf, 4096, RW, &again) || again == old)
			break;
		dereg(fd, again);
	}
	is(i, 300, "300 later registrations get other keys");
	is(dereg(fd, old), -EKEYREVOKED, "the old key stays revoked");
}

/* VmPin of this process in KiB. */
static long long vm_pin(void)
{
	return read_number("/proc/self/status", "VmPin:");
}

static void accounting(int fd)
{
	char *buf = pages_alloc(64 * 4096);
	struct stepccl_dma_mr_reg a = {
		.access = RW, .va = (uintptr_t)buf + 4095, .len = 2, .iova = 0x1000,
	};
	struct stepccl_dma_counters c;
	uint32_t key, twice;

	is(vm_pin(), 0, "VmPin starts at 0");
	is(reg_full(fd, &a), 0, "2 bytes across a page edge");
	is(a.pages, 2, "... are 2 pages");
	is(vm_pin(), 8, "... in VmPin");
	dereg(fd, a.key);
	is(reg(fd, buf, 64 * 4096, RW, &key), 0, "64 pages");
	is(reg(fd, buf, 64 * 4096, RW, &twice), 0, "... and again");
	is(vm_pin(), 512, "overlapping registrations are charged twice");
	query(fd, STEPCCL_DMA_QUERY_COUNTERS, 1, &c, sizeof(c));
	ok(c.mrs == 2 && c.pinned_pages == 128, "the context's counters agree");
	dereg(fd, key);
	dereg(fd, twice);
	is(vm_pin(), 0, "VmPin is 0 again");
	munmap(buf, 64 * 4096);
}

static void other_mm(int fd, char *buf)
{
	struct stepccl_dma_cancel c = { .flags = STEPCCL_DMA_CANCEL_ALL };
	int status, i, first_bad = 0;
	pid_t pid = fork();

	if (!pid) {
		struct stepccl_dma_mr_import im;
		uint32_t key;
		long got[] = {
			reg(fd, buf, 4096, RW, &key), dereg(fd, 0x101), export_mr(fd, 0x101, R),
			import_mr(fd, fd, R, &im), enter(fd, 1, 0, 0),
			CALL(fd, STEPCCL_DMA_CANCEL, &c),
			copy_one(fd, STEPCCL_DMA_OP_READ, buf, 0, buf + 64, 0, 8, NULL),
		};

		for (i = 0; i < 7; i++)
			if (got[i] != -EACCES && !first_bad)
				first_bad = i + 1;
		if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED || errno != EACCES)
			first_bad = 8;
		_exit(first_bad);
	}
	waitpid(pid, &status, 0);
	is(status, 0, "a child that inherited the file gets EACCES for every call of the context");
}

void suite_memory(void)
{
	char *buf = pages_alloc(16 * 4096);
	struct ring r;
	int fd = dev_open_ctx(&r, 8, 0);
	int bare = dev_open_hello();

	is(reg(bare, buf, 4096, RW, NULL), -EBADFD, "without a context: EBADFD");
	close(bare);
	arguments(fd, buf);
	mappings(fd);
	read_pin_is_coherent(fd);
	shared_file(fd);
	keys(fd, buf);
	accounting(fd);
	other_mm(fd, buf);
	ring_unmap(&r);
	close(fd);
	munmap(buf, 16 * 4096);
}
