// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.hpp"

struct nlmsghdr;

namespace stepccl::agent {

struct InterfaceAddress {
	std::string netdev;
	int ifindex = 0;
	int family = 4; ///< 4 or 6
	std::string address;
	int prefix = 0;
};

/// What the kernel would do with a packet to an address.
struct RouteLookup {
	int error = 0; ///< errno: ENETUNREACH, EHOSTUNREACH, ...; 0 where there is a route
	int ifindex = 0;
	std::string netdev;
	std::optional<std::string> local_address; ///< the source address it would use
	bool to_itself = false;                   ///< the address is this machine's own
};

enum class NeighbourState { kUnknown, kAnswers, kFailed };

/// Questions to the kernel's routing tables over rtnetlink. Each asks anew; none keeps a state.
class Netlink {
public:
	[[nodiscard]] std::vector<InterfaceAddress> addresses() const;
	[[nodiscard]] RouteLookup route_to(const std::string &address) const;
	/// Whether the neighbour table has seen this on-link address answer.
	[[nodiscard]] NeighbourState neighbour(int ifindex, const std::string &address) const;

private:
	/// Sends one request and hands each message of the answer to `take`. Returns errno.
	static int ask(void *request, std::size_t bytes, const std::function<void(const nlmsghdr &)> &take);
};

} // namespace stepccl::agent
