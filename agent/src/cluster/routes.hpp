// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/loop.hpp"
#include "cluster/echo.hpp"
#include "cluster/membership.hpp"
#include "cluster/netlink.hpp"
#include "facts/rdma_ports.hpp"
#include "facts/sys_tree.hpp"

namespace stepccl::agent {

enum class PathState { kUp, kUnknown, kDown };

/// One way from a rank's node to another's.
struct Path {
	std::string transport;
	std::optional<std::string> local_address;
	std::optional<std::string> peer_address;
	std::optional<std::string> netdev;
	std::optional<std::string> rdma_device;
	std::optional<int> gid_index;
	PathState state = PathState::kUnknown;
	std::optional<double> rtt_us;
	std::optional<std::int64_t> measured_at_ms;
	std::optional<std::string> reason;
};

/// Puts the paths best first: up before unknown before down, RDMA before TCP, then the shorter round trip.
void sort_paths(std::vector<Path> &paths);

/// The paths between two members that this node can only derive from their addresses. Addresses that lie
/// in one of `networks` (this node's own prefixes) meet only addresses of the same network; the others are
/// paired in their order.
std::vector<Path> derive_paths(const Member &from, const Member &to, const std::vector<InterfaceAddress> &networks);

/// The global routing table as this node knows it. Kernel routes are read anew for each answer, port states as
/// RdmaPorts says; round trips are those of the last echo round.
class RouteTable {
public:
	RouteTable(EventLoop &loop, const Membership &membership, SysTree tree, RdmaPorts &links);

	/// The answer of routes.get: all pairs, or those that begin at `from`. Where all would not fit into one
	/// message, only this node's own are given and `truncated` is true. Throws RpcError (A301).
	nlohmann::json table(std::optional<int> from);

	/// Measures the paths from this node, then calls `done`. Calls that come meanwhile share the round.
	void probe(std::function<void()> done);

	/// Probes every 10 s while anybody watches.
	void watch_begins();
	void watch_ends();

private:
	struct Measured {
		EchoResult echo;
		std::int64_t at_ms = 0;
	};

	std::vector<Path> measured_paths(const Member &peer);
	Path ip_path(const MemberAddress &peer);
	std::optional<Path> rdma_path(const Path &ip, const MemberAddress &peer);
	Path shm_path();

	EventLoop &loop_;
	const Membership &membership_;
	SysTree tree_;
	RdmaPorts &links_;
	Netlink netlink_;
	EchoProber echo_;
	std::map<std::string, Measured> measured_;
	std::vector<std::function<void()>> waiting_;
	int watchers_ = 0;
	EventLoop::TimerId timer_ = 0;
};

} // namespace stepccl::agent
