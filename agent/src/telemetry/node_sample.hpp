// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "facts/rdma_ports.hpp"
#include "facts/sys_tree.hpp"
#include "stepccl/telemetry.h"

namespace stepccl::agent {

/// Reads the kernel's counters of the node's NICs and RDMA ports. What changes seldom (link state, speed,
/// the set of RDMA counters) is read once a second at most, an RDMA port's link as RdmaPorts says.
class NicSampler {
public:
	NicSampler(SysTree tree, RdmaPorts &links) : tree_(std::move(tree)), links_(links) {}

	std::vector<stepccl_frame_nic> sample();

private:
	static constexpr std::size_t kMaxNics = 256;

	struct NetdevState {
		std::uint8_t state = 0;
		std::uint32_t speed_mbps = 0;
	};
	struct RdmaPort {
		std::string name;
		std::uint8_t port = 0;
		std::uint8_t state = 0;
		std::uint32_t speed_mbps = 0;
		std::string counters;    ///< folder, empty where the device has none
		std::string hw_counters; ///< likewise
	};

	void refresh_slow();
	stepccl_frame_nic sample_port(const RdmaPort &port);
	std::uint64_t counter(const std::string &folder, const char *name);
	std::uint64_t counters(const std::string &folder, std::initializer_list<const char *> names);

	SysTree tree_;
	RdmaPorts &links_;
	std::uint64_t slow_at_ns_ = 0;
	std::unordered_map<std::string, NetdevState> netdevs_;
	std::vector<RdmaPort> ports_;
};

/// Jiffies of all processors, from /proc/stat.
struct CpuTimes {
	std::uint64_t busy = 0;
	std::uint64_t total = 0;
};
CpuTimes read_cpu_times(SysTree &tree);

/// Thousandths of all processors' time between two readings.
std::uint32_t cpu_permille(const CpuTimes &from, const CpuTimes &to) noexcept;

/// Bytes that /proc/meminfo calls available; 0 where it doesn't say.
std::uint64_t memory_available_bytes(SysTree &tree);

/// The daemon's resident memory in KiB. From smaps_rollup, which is exact: /proc/PID/status is updated in
/// batches before Linux 6.2, and shows next to nothing for a process this small.
std::uint32_t own_rss_kib();

} // namespace stepccl::agent
