// SPDX-License-Identifier: GPL-2.0
/* stepccl-dma: is the driver there, what does it say, does it copy? One JSON object on stdout. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json.h"
#include "tool.h"

long tool_ioctl(int fd, unsigned long cmd, void *arg)
{
	int ret = ioctl(fd, cmd, arg);

	return ret < 0 ? -errno : ret;
}

static void fail(int status, const char *code, int err, const char *message, const char *next)
{
	json_open(NULL, '{');
	json_bool("ok", false);
	json_open("error", '{');
	json_text("code", code, 64);
	json_int("errno", err);
	json_text("message", message, 200);
	json_text("next", next, 300);
	json_close('}');
	json_close('}');
	json_end();
	exit(status);
}

int tool_open(struct stepccl_dma_hello *hello)
{
	int fd = open(STEPCCL_DMA_DEVICE, O_RDWR | O_CLOEXEC);
	long ret;

	if (fd < 0 && (errno == ENOENT || errno == ENXIO || errno == ENODEV))
		fail(EXIT_NO_DEVICE, "DRV_NO_DEVICE", errno,
		     STEPCCL_DMA_DEVICE " is not there: the module is not loaded, or this container has no such node.",
		     "Run: modprobe dma_engine. In a container, pass --device " STEPCCL_DMA_DEVICE ".");
	if (fd < 0 && (errno == EACCES || errno == EPERM))
		fail(EXIT_NO_ACCESS, "DRV_NO_ACCESS", errno,
		     "This user may not open " STEPCCL_DMA_DEVICE ".",
		     "Add the user to the group stepccl and log in again; in a container, allow the device in its cgroup.");
	if (fd < 0)
		fail(EXIT_FAILED, "DRV_OPEN", errno, "Opening " STEPCCL_DMA_DEVICE " failed.",
		     "Look at: dmesg | grep dma_engine.");
	memset(hello, 0, sizeof(*hello));
	hello->abi_major = STEPCCL_DMA_ABI_MAJOR;
	hello->abi_minor = STEPCCL_DMA_ABI_MINOR;
	hello->features = ~0ull;
	ret = CALL(fd, STEPCCL_DMA_HELLO, hello);
	if (ret == -EPROTONOSUPPORT || ret == -ENOTTY || ret == -E2BIG)
		fail(EXIT_ABI, "DRV_ABI", (int)-ret,
		     "The loaded driver speaks another ABI than this program.",
		     "Install driver and runtime of the same release, then reload the module.");
	if (ret)
		fail(EXIT_FAILED, "DRV_HELLO", (int)-ret, "The driver did not answer HELLO.",
		     "Look at: dmesg | grep dma_engine.");
	return fd;
}

static void features(const char *key, unsigned long long bits)
{
	static const struct {
		unsigned long long bit;
		const char *name;
	} names[] = {
		{ STEPCCL_DMA_FEATURE_RING, "ring" },
		{ STEPCCL_DMA_FEATURE_MR_SHARE, "mr_share" },
		{ STEPCCL_DMA_FEATURE_VERIFY, "verify" },
		{ STEPCCL_DMA_FEATURE_DMAENGINE, "dmaengine" },
		{ STEPCCL_DMA_FEATURE_DMABUF, "dmabuf" },
		{ STEPCCL_DMA_FEATURE_PRIO, "prio" },
	};
	size_t i;

	json_open(key, '[');
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (bits & names[i].bit)
			json_text(NULL, names[i].name, 32);
	json_close(']');
}

int cmd_info(void)
{
	struct stepccl_dma_hello h;
	struct stat st;
	int fd = tool_open(&h);

	json_open(NULL, '{');
	json_bool("ok", true);
	json_text("device", STEPCCL_DMA_DEVICE, 64);
	if (!fstat(fd, &st)) {
		char mode[8];

		snprintf(mode, sizeof(mode), "%04o", (unsigned int)(st.st_mode & 07777));
		json_text("mode", mode, sizeof(mode));
		json_uint("gid", st.st_gid);
	}
	json_uint("abi_major", h.abi_major);
	json_uint("abi_minor", h.abi_minor);
	json_text("version", h.version, sizeof(h.version));
	json_text("git_id", h.git_id, sizeof(h.git_id));
	features("features", h.supported);
	json_close('}');
	json_end();
	close(fd);
	return EXIT_OK;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} commands[] = {
		{ "info", cmd_info },
		{ "query", cmd_query },
		{ "selftest", cmd_selftest },
	};
	size_t i;

	for (i = 0; argc == 2 && i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run();
	fputs("usage: stepccl-dma info|query|selftest\n"
	      "  info      version, ABI and features of the loaded driver\n"
	      "  query     limits, engines, counters, routes, last error\n"
	      "  selftest  copies between buffers and processes, each byte checked\n"
	      "Prints one JSON object. Exit status: 0 well, 1 a check failed, 2 usage,\n"
	      "3 no device, 4 no access, 5 other ABI.\n", stderr);
	return EXIT_USAGE;
}
