// SPDX-License-Identifier: Apache-2.0
#include "cluster/routes.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/clock.hpp"
#include "base/log.hpp"

namespace stepccl::agent {

using nlohmann::json;

namespace {

constexpr auto kProbeInterval = std::chrono::seconds(10);
constexpr std::size_t kMaxPairsInOneMessage = 2048; // about 400 bytes each: well inside one message

int family_of(const std::string &address) { return address.find(':') == std::string::npos ? 4 : 6; }

/// The index of the first of `networks` that holds the address, or -1.
int network_of(const std::string &address, const std::vector<InterfaceAddress> &networks)
{
	const int family = family_of(address);
	unsigned char wanted[16], own[16];
	const int af = family == 4 ? AF_INET : AF_INET6;
	if (::inet_pton(af, address.c_str(), wanted) != 1)
		return -1;
	for (std::size_t i = 0; i < networks.size(); i++) {
		if (networks[i].family != family || ::inet_pton(af, networks[i].address.c_str(), own) != 1)
			continue;
		const int bits = networks[i].prefix;
		const int bytes = bits / 8;
		if (bits == (family == 4 ? 32 : 128) || std::memcmp(wanted, own, static_cast<std::size_t>(bytes)) != 0)
			continue;
		const int rest = bits % 8;
		const auto mask = static_cast<unsigned char>(0xff00 >> rest);
		if (rest == 0 || ((wanted[bytes] ^ own[bytes]) & mask) == 0)
			return static_cast<int>(i);
	}
	return -1;
}

json to_json(const Path &path)
{
	static constexpr const char *kStates[] = {"up", "unknown", "down"};
	return {{"transport", path.transport},
		{"local_address", or_null(path.local_address)},
		{"peer_address", or_null(path.peer_address)},
		{"netdev", or_null(path.netdev)},
		{"rdma_device", or_null(path.rdma_device)},
		{"gid_index", or_null(path.gid_index)},
		{"state", kStates[static_cast<std::size_t>(path.state)]},
		{"rtt_us", path.rtt_us ? json(std::round(*path.rtt_us * 10) / 10) : json(nullptr)},
		{"measured_at_ms", or_null(path.measured_at_ms)},
		{"reason", or_null(path.reason)}};
}

json route(int from, int to, std::vector<Path> paths)
{
	sort_paths(paths);
	json list = json::array();
	for (const Path &path : paths)
		list.push_back(to_json(path));
	return {{"from", from}, {"to", to}, {"paths", std::move(list)}};
}

} // namespace

void sort_paths(std::vector<Path> &paths)
{
	const auto rank = [](const Path &path) { return path.transport == "shm" ? 0 : path.transport == "rdma" ? 1 : 2; };
	std::stable_sort(paths.begin(), paths.end(), [&](const Path &a, const Path &b) {
		if (a.state != b.state)
			return a.state < b.state;
		if (rank(a) != rank(b))
			return rank(a) < rank(b);
		return a.rtt_us.value_or(HUGE_VAL) < b.rtt_us.value_or(HUGE_VAL);
	});
}

std::vector<Path> derive_paths(const Member &from, const Member &to, const std::vector<InterfaceAddress> &networks)
{
	struct Candidate {
		const MemberAddress *address;
		int network;
		int ordinal; ///< among the member's addresses of the same family that lie in no known network
	};
	const auto candidates = [&](const Member &member) {
		std::vector<Candidate> out;
		int outside[2] = {0, 0};
		for (const MemberAddress &address : member.addresses) {
			const int network = network_of(address.address, networks);
			int &count = outside[family_of(address.address) == 4 ? 0 : 1];
			out.push_back({&address, network, network < 0 ? count++ : -1});
		}
		return out;
	};
	std::vector<Path> paths;
	const auto to_candidates = candidates(to);
	for (const Candidate &a : candidates(from)) {
		for (const Candidate &b : to_candidates) {
			if (a.network != b.network || a.ordinal != b.ordinal ||
			    family_of(a.address->address) != family_of(b.address->address))
				continue;
			Path path;
			path.transport = "tcp";
			path.local_address = a.address->address;
			path.peer_address = b.address->address;
			path.netdev = a.address->netdev;
			path.reason = "not measured from here";
			paths.push_back(path);
			if (a.address->rdma_device && b.address->rdma_device) {
				path.transport = "rdma";
				path.rdma_device = a.address->rdma_device;
				path.gid_index = a.address->gid_index;
				paths.push_back(path);
			}
		}
	}
	return paths;
}

RouteTable::RouteTable(EventLoop &loop, const Membership &membership, SysTree tree, RdmaPorts &links)
	: loop_(loop), membership_(membership), tree_(std::move(tree)), links_(links), echo_(loop)
{
}

Path RouteTable::ip_path(const MemberAddress &peer)
{
	Path path;
	path.transport = "tcp";
	path.peer_address = peer.address;
	const RouteLookup route = netlink_.route_to(peer.address);
	if (route.error != 0) {
		path.state = PathState::kDown;
		path.reason = "the kernel has no route (" + errno_text(route.error) + ")";
		return path;
	}
	path.local_address = route.local_address;
	path.netdev = route.netdev;
	if (route.to_itself) {
		path.reason = "the address is this node's own";
		return path;
	}
	const auto operstate = tree_.text("/sys/class/net/" + route.netdev + "/operstate");
	if (operstate && *operstate == "down") {
		path.state = PathState::kDown;
		path.reason = "the interface " + route.netdev + " is down";
		return path;
	}
	const auto found = measured_.find(peer.address);
	if (found == measured_.end()) {
		path.reason = "not measured yet";
		return path;
	}
	const Measured &measured = found->second;
	path.measured_at_ms = measured.at_ms;
	if (measured.echo.rtt_us) {
		path.state = PathState::kUp;
		path.rtt_us = measured.echo.rtt_us;
	} else if (measured.echo.error == EHOSTUNREACH || measured.echo.error == ENETUNREACH || measured.echo.error == ENETDOWN) {
		path.state = PathState::kDown;
		path.reason = errno_text(measured.echo.error);
	} else if (measured.echo.error != 0) {
		path.reason = "no echo could be sent (" + errno_text(measured.echo.error) + ")";
	} else if (netlink_.neighbour(route.ifindex, peer.address) == NeighbourState::kFailed) {
		path.state = PathState::kDown;
		path.reason = "nothing answers to this address on " + route.netdev;
	} else {
		path.reason = "no echo came back within 1 s (lost, or filtered)";
	}
	return path;
}

std::optional<Path> RouteTable::rdma_path(const Path &ip, const MemberAddress &peer)
{
	if (!peer.rdma_device || !ip.netdev)
		return std::nullopt;
	const auto &own = membership_.get().self_member().addresses;
	const auto local = std::find_if(own.begin(), own.end(), [&](const MemberAddress &address) {
		return address.rdma_device && (address.netdev == ip.netdev || ip.local_address == address.address);
	});
	if (local == own.end())
		return std::nullopt;
	Path path = ip;
	path.transport = "rdma";
	path.rdma_device = local->rdma_device;
	path.gid_index = local->gid_index;
	const auto &state = links_.link(*local->rdma_device, 1).state;
	if (!state) {
		path.state = PathState::kDown;
		path.reason = "there is no RDMA device " + *local->rdma_device + " with a port 1";
	} else if (state->rfind("4:", 0) != 0) {
		path.state = PathState::kDown;
		path.reason = "port 1 of " + *local->rdma_device + " is not active (" + *state + ")";
	}
	return path;
}

Path RouteTable::shm_path()
{
	Path path;
	path.transport = "shm";
	path.measured_at_ms = realtime_ms();
	if (::faccessat(AT_FDCWD, tree_.path("/dev/shm").c_str(), W_OK | X_OK, AT_EACCESS) == 0) {
		path.state = PathState::kUp;
	} else {
		path.state = PathState::kDown;
		path.reason = "/dev/shm can't be written (" + errno_text(errno) + ")";
	}
	return path;
}

std::vector<Path> RouteTable::measured_paths(const Member &peer)
{
	std::vector<Path> paths;
	for (const MemberAddress &address : peer.addresses) {
		Path ip = ip_path(address);
		if (auto rdma = rdma_path(ip, address))
			paths.push_back(std::move(*rdma));
		paths.push_back(std::move(ip));
	}
	return paths;
}

json RouteTable::table(std::optional<int> from)
{
	const Cluster &cluster = membership_.get();
	const std::size_t count = cluster.members.size();
	const bool truncated = !from && count * count > kMaxPairsInOneMessage;
	if (truncated)
		from = cluster.self;
	const std::vector<InterfaceAddress> networks = netlink_.addresses();
	json routes = json::array();
	for (const Member &a : cluster.members) {
		if (from && a.node != *from)
			continue;
		for (const Member &b : cluster.members) {
			if (a.node != b.node)
				routes.push_back(route(a.node, b.node, a.node == cluster.self ? measured_paths(b) : derive_paths(a, b, networks)));
			else if (a.node == cluster.self)
				routes.push_back(route(a.node, a.node, {shm_path()}));
		}
	}
	(void)tree_.take_unreadable(); // A missing port is said in the path's reason.
	json out = {{"epoch", cluster.epoch}, {"routes", std::move(routes)}};
	if (truncated)
		out["truncated"] = true;
	return out;
}

void RouteTable::probe(std::function<void()> done)
{
	waiting_.push_back(std::move(done));
	if (echo_.busy())
		return;
	std::vector<std::string> addresses;
	if (const Cluster *cluster = membership_.current()) {
		for (const Member &member : cluster->members) {
			if (member.node == cluster->self)
				continue;
			for (const MemberAddress &address : member.addresses)
				addresses.push_back(address.address);
		}
	}
	echo_.probe(addresses, [this](const EchoProber::Results &results) {
		measured_.clear();
		const std::int64_t now = realtime_ms();
		for (const auto &[address, result] : results)
			measured_[address] = {result, now};
		std::vector<std::function<void()>> waiting;
		waiting.swap(waiting_);
		for (const auto &task : waiting)
			task();
	});
}

void RouteTable::watch_begins()
{
	if (watchers_++ > 0)
		return;
	probe([] {});
	timer_ = loop_.every(kProbeInterval, [this] { probe([] {}); });
}

void RouteTable::watch_ends()
{
	if (--watchers_ > 0)
		return;
	loop_.cancel(timer_);
	timer_ = 0;
}

} // namespace stepccl::agent
