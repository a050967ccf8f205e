// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "facts/sys_tree.hpp"

namespace stepccl::agent {

/// What a port's sysfs folder says of its link, as the kernel wrote it.
struct RdmaPortLink {
	std::optional<std::string> layer;      ///< "Ethernet", "InfiniBand"
	std::optional<std::string> state;      ///< "4: ACTIVE"
	std::optional<std::string> phys_state; ///< "5: LinkUp"
	std::optional<std::string> rate;       ///< "100 Gb/sec (4X EDR)"
	std::optional<std::string> lid;        ///< "0x11"; nothing on Ethernet, which has none
	int error = 0;                         ///< errno of the read of `state`
};

/// The links of RDMA ports, shared by all who ask. Each read of such a file makes the driver query its port, and
/// Soft-RoCE writes a line to the kernel's log each time when its netdev has no known speed. On Ethernet the link
/// is the netdev's: the port is read again when its netdev changed, and every ten minutes. An InfiniBand port has
/// no netdev that tells, and is read once a second at most.
class RdmaPorts {
public:
	explicit RdmaPorts(SysTree tree, std::function<std::uint64_t()> now_ns = monotonic_ns)
		: tree_(std::move(tree)), now_ns_(std::move(now_ns))
	{
	}

	/// The link of a port; all of it absent where there is no such port. Valid until the next call.
	const RdmaPortLink &link(std::string_view device, std::uint64_t port);

private:
	struct Entry {
		RdmaPortLink link;
		std::string netdev;   ///< empty where the device names none
		std::string netdev_is; ///< what is watched of it
		std::uint64_t folder = 0; ///< inode: a device that was made again under its old name is another one
		std::uint64_t read_ns = 0;
		std::uint64_t changed_ns = 0; ///< when the netdev changed last, 0 = never
	};
	static constexpr std::size_t kMaxEntries = 1024;

	std::string netdev_of(const std::string &device, const std::string &port);
	std::string watched(const std::string &netdev);
	bool is_due(const Entry &entry, std::uint64_t now) const noexcept;
	void read(Entry &entry, const std::string &device, const std::string &port);

	SysTree tree_;
	std::function<std::uint64_t()> now_ns_;
	std::map<std::string, Entry> entries_; ///< by the port's folder
};

} // namespace stepccl::agent
