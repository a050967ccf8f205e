// SPDX-License-Identifier: Apache-2.0
// The DMA driver: its module, its device node and what it shows under /sys/class/misc/dma_device.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

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
	return {{"present", present},
		{"version", or_null(tree.text("/sys/module/dma_engine/version"))},
		{"abi", or_null(tree.text("/sys/class/misc/dma_device/abi"))},
		{"refcount", or_null(tree.number("/sys/module/dma_engine/refcnt"))},
		{"device", device_facts(tree)},
		{"last_error", or_null(last_error)},
		{"counters", std::move(counters)}};
}

} // namespace stepccl::agent
