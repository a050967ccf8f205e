// SPDX-License-Identifier: Apache-2.0
#include "facts/rdma_ports.hpp"

#include <sys/stat.h>

#include <cerrno>

#include "base/text.hpp"

namespace stepccl::agent {

namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint64_t kRareNs = 600 * kSecondNs;
/// The RDMA driver follows its netdev after a moment: a port is looked at a few times more after a change.
constexpr std::uint64_t kSettleNs = 5 * kSecondNs;
constexpr int kGidsLookedAt = 16;

} // namespace

const RdmaPortLink &RdmaPorts::link(std::string_view device, std::uint64_t number)
{
	static const RdmaPortLink kNone{.error = ENOENT};
	const std::string base = "/sys/class/infiniband/" + std::string(device);
	const std::string port = base + "/ports/" + std::to_string(number);
	struct stat info{};
	if (::stat(tree_.path(port).c_str(), &info) != 0) {
		entries_.erase(port);
		return kNone;
	}
	if (entries_.size() >= kMaxEntries && !entries_.contains(port))
		entries_.clear();
	Entry &entry = entries_[port];
	const std::uint64_t now = now_ns_();
	if (entry.folder != info.st_ino) {
		entry = {};
		entry.folder = info.st_ino;
	}
	const std::string is = watched(entry.netdev);
	if (entry.read_ns != 0 && is != entry.netdev_is) {
		entry.changed_ns = now;
		entry.read_ns = 0;
	}
	if (is_due(entry, now)) {
		entry.read_ns = now;
		read(entry, base, port);
	}
	return entry.link;
}

bool RdmaPorts::is_due(const Entry &entry, std::uint64_t now) const noexcept
{
	if (entry.read_ns == 0)
		return true;
	const std::uint64_t age = now - entry.read_ns;
	const bool settling = entry.changed_ns != 0 && now - entry.changed_ns <= kSettleNs;
	const bool tells = entry.link.layer == "Ethernet" && !entry.netdev.empty();
	return age >= (tells && !settling ? kRareNs : kSecondNs);
}

void RdmaPorts::read(Entry &entry, const std::string &device, const std::string &port)
{
	entry.netdev = netdev_of(device, port);
	entry.netdev_is = watched(entry.netdev);
	RdmaPortLink &link = entry.link;
	link.layer = tree_.text(port + "/link_layer");
	const FileText state = read_file(tree_.path(port + "/state"), 64);
	link.error = state.error;
	link.state = state.ok() ? std::optional(printable(trim(state.text), 64)) : std::nullopt;
	link.phys_state = tree_.text(port + "/phys_state");
	link.rate = tree_.text(port + "/rate");
	link.lid = link.layer == "Ethernet" ? std::nullopt : tree_.text(port + "/lid");
	(void)tree_.take_unreadable();
}

/// What the port's GIDs run on, or (Soft-RoCE) the device's parent. Neither asks the driver.
std::string RdmaPorts::netdev_of(const std::string &device, const std::string &port)
{
	for (int index = 0; index < kGidsLookedAt; index++) {
		const auto name = tree_.text(port + "/gid_attrs/ndevs/" + std::to_string(index));
		if (name && !name->empty())
			return *name;
	}
	return tree_.text(device + "/parent").value_or("");
}

std::string RdmaPorts::watched(const std::string &netdev)
{
	if (netdev.empty())
		return {};
	const std::string base = "/sys/class/net/" + netdev;
	std::string out;
	for (const char *file : {"/operstate", "/carrier_changes", "/speed", "/mtu"})
		out += tree_.text(base + file).value_or("") + '\n';
	(void)tree_.take_unreadable();
	return out;
}

} // namespace stepccl::agent
