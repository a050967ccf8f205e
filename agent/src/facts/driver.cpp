// SPDX-License-Identifier: Apache-2.0
// The DMA driver: its module, its device node and what it shows under /sys/class/misc/dma_device.
#include <fcntl.h>
#include <linux/stepccl_dma.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/fd.hpp"
#include "base/text.hpp"
#include "facts/facts.hpp"

namespace stepccl::agent {

using nlohmann::json;

namespace {

constexpr const char *kDevice = "/dev/dma_device";

json device_facts(SysTree &tree)
{
	json device = {{"path", kDevice}, {"exists", false}, {"mode", nullptr},
		       {"uid", nullptr},  {"gid", nullptr},  {"accessible", false}};
	const std::string path = tree.path(kDevice);
	struct stat info{};
	if (::stat(path.c_str(), &info) != 0) {
		if (errno != ENOENT)
			tree.note_unreadable(kDevice, errno);
		return device;
	}
	constexpr std::string_view kDigits = "01234567";
	const mode_t mode = info.st_mode & 07777;
	std::string octal;
	for (int shift = 9; shift >= 0; shift -= 3)
		octal.push_back(kDigits[(mode >> shift) & 7]);
	device["exists"] = true;
	device["mode"] = octal;
	device["uid"] = info.st_uid;
	device["gid"] = info.st_gid;
	device["accessible"] = ::faccessat(AT_FDCWD, path.c_str(), R_OK | W_OK, AT_EACCESS) == 0;
	return device;
}

/// The driver's ABI ("1.0"), which it tells only through its first call.
json abi(SysTree &tree)
{
	const UniqueFd fd(::open(kDevice, O_RDWR | O_CLOEXEC | O_NONBLOCK));
	if (!fd.valid()) {
		tree.note_unreadable("driver abi", errno);
		return nullptr;
	}
	stepccl_dma_hello hello{};
	hello.size = sizeof hello;
	hello.abi_major = STEPCCL_DMA_ABI_MAJOR;
	hello.abi_minor = STEPCCL_DMA_ABI_MINOR;
	if (::ioctl(fd.get(), STEPCCL_DMA_HELLO, &hello) != 0) {
		tree.note_unreadable("driver abi", errno);
		return nullptr;
	}
	return std::to_string(hello.abi_major) + "." + std::to_string(hello.abi_minor);
}

} // namespace

json driver_facts(SysTree &tree)
{
	const bool present = !tree.list("/sys/module/dma_engine").empty();
	json counters = json::object();
	for (const std::string &name : tree.list("/sys/class/misc/dma_device/stats")) {
		if (const auto value = tree.number("/sys/class/misc/dma_device/stats/" + name))
			counters[printable(name, 64)] = *value;
	}
	auto last_error = tree.text("/sys/class/misc/dma_device/last_error");
	if (last_error && (last_error->empty() || *last_error == "none"))
		last_error.reset();
	json device = device_facts(tree);
	json driver_abi = nullptr;
	if (tree.is_machine() && present && device["accessible"] == true)
		driver_abi = abi(tree);
	return {{"present", present},
		{"version", or_null(tree.text("/sys/module/dma_engine/version"))},
		{"abi", std::move(driver_abi)},
		{"refcount", or_null(tree.number("/sys/module/dma_engine/refcnt"))},
		{"device", std::move(device)},
		{"last_error", or_null(last_error)},
		{"counters", std::move(counters)}};
}

} // namespace stepccl::agent
