// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/loop.hpp"
#include "cluster/membership.hpp"
#include "cluster/routes.hpp"
#include "facts/sys_tree.hpp"
#include "rpc/client.hpp"
#include "telemetry/node_sample.hpp"
#include "telemetry/ring_store.hpp"

namespace stepccl::agent {

/// Sends telemetry frames to the clients that asked for them, each at its own interval.
class TelemetryService {
public:
	static constexpr std::size_t kMaxPerClient = 4;
	/// A client with more than this waiting gets no new sample until it has caught up.
	static constexpr std::size_t kSkipAboveBytes = 512 * 1024;

	TelemetryService(EventLoop &loop, SysTree tree, RdmaPorts &links, RingStore &rings, RouteTable &routes, const Membership &membership);
	TelemetryService(const TelemetryService &) = delete;
	TelemetryService &operator=(const TelemetryService &) = delete;
	~TelemetryService();

	/// Returns the subscription's number. Throws RpcError where the client has too many.
	std::uint64_t subscribe(const std::shared_ptr<Client> &client, std::chrono::milliseconds interval);
	/// Throws RpcError where the client has no such subscription.
	void unsubscribe(const std::shared_ptr<Client> &client, std::uint64_t subscription);

private:
	struct Subscription {
		std::weak_ptr<Client> client;
		std::uint64_t client_id;
		std::uint64_t end_key;
		std::chrono::milliseconds interval;
		EventLoop::TimerId timer = 0;
		std::uint64_t frames = 0;
		std::uint64_t lost_ops = 0;
		std::uint64_t sampled_ns = 0;
		CpuTimes cpu;
		std::unordered_map<std::string, std::uint64_t> tails; ///< by ring file
	};

	void sample(std::uint64_t id);
	void end(std::uint64_t id);
	std::uint64_t oldest_sample_ns() const noexcept;

	EventLoop &loop_;
	SysTree tree_;
	NicSampler nics_;
	RingStore &rings_;
	RouteTable &routes_;
	const Membership &membership_;
	std::map<std::uint64_t, Subscription> subscriptions_;
	std::uint64_t next_id_ = 1;
};

} // namespace stepccl::agent
