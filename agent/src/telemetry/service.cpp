// SPDX-License-Identifier: Apache-2.0
#include "telemetry/service.hpp"

#include <algorithm>
#include <vector>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "rpc/errors.hpp"
#include "stepccl/telemetry_frame.hpp"

namespace stepccl::agent {

namespace {

constexpr std::size_t kMaxFlows = 8192;

stepccl_frame_flow to_frame(const stepccl_ring_header &ring, const stepccl_flow &flow, const Membership &membership)
{
	stepccl_frame_flow out{};
	out.comm_id = ring.comm_id;
	out.rank = ring.rank;
	out.peer_rank = flow.peer_rank;
	const auto node = flow.peer_ipv4 != 0 ? membership.node_of_ipv4(flow.peer_ipv4) : std::nullopt;
	out.peer_node = static_cast<std::uint16_t>(node.value_or(STEPCCL_NODE_UNKNOWN));
	out.transport = flow.transport;
	out.queue_depth = flow.queue_depth;
	out.tx_bytes = flow.tx_bytes;
	out.rx_bytes = flow.rx_bytes;
	out.tx_ops = flow.tx_ops;
	out.rx_ops = flow.rx_ops;
	out.errors = flow.errors;
	return out;
}

stepccl_frame_op to_frame(const stepccl_ring_header &ring, const stepccl_op &op)
{
	stepccl_frame_op out{};
	out.comm_id = ring.comm_id;
	out.sequence = op.sequence;
	out.begin_ns = op.begin_ns;
	out.end_ns = op.end_ns;
	out.bytes = op.bytes;
	out.sm_ns = op.sm_ns;
	out.rank = ring.rank;
	out.world_size = ring.world_size;
	out.state = op.state;
	out.collective = op.collective;
	out.algorithm = op.algorithm;
	out.transport = op.transport;
	out.datatype = op.datatype;
	out.redop = op.redop;
	out.error = op.error;
	return out;
}

} // namespace

TelemetryService::TelemetryService(EventLoop &loop, SysTree tree, RdmaPorts &links, RingStore &rings, RouteTable &routes,
				   const Membership &membership)
	: loop_(loop), tree_(tree), nics_(std::move(tree), links), rings_(rings), routes_(routes), membership_(membership)
{
}

TelemetryService::~TelemetryService()
{
	for (const auto &[id, subscription] : subscriptions_)
		loop_.cancel(subscription.timer);
}

std::uint64_t TelemetryService::subscribe(const std::shared_ptr<Client> &client, std::chrono::milliseconds interval)
{
	const auto own = std::count_if(subscriptions_.begin(), subscriptions_.end(),
				       [&](const auto &item) { return item.second.client_id == client->id(); });
	if (static_cast<std::size_t>(own) >= kMaxPerClient)
		throw RpcError(kServerError, "A106", "This connection has " + std::to_string(kMaxPerClient) + " telemetry subscriptions already.",
			       "End one with telemetry.unsubscribe.");
	const std::uint64_t id = next_id_++;
	rings_.watch_begins();
	routes_.watch_begins();
	Subscription &subscription = subscriptions_[id];
	subscription.client = client;
	subscription.client_id = client->id();
	subscription.end_key = client->on_end([this, id] { end(id); });
	subscription.interval = interval;
	subscription.sampled_ns = monotonic_ns();
	subscription.cpu = read_cpu_times(tree_);
	for (const auto &[file, ring] : rings_.rings()) {
		// What ran before the subscription is history, but an operation that is running now began in it:
		// a ring that another watcher holds is taken from its present end on.
		if (ring->reader.refresh())
			subscription.tails[file] = ring->reader.header().op_head;
	}
	subscription.timer = loop_.every(interval, [this, id] { sample(id); });
	return id;
}

void TelemetryService::unsubscribe(const std::shared_ptr<Client> &client, std::uint64_t id)
{
	const auto found = subscriptions_.find(id);
	if (found == subscriptions_.end() || found->second.client_id != client->id())
		throw bad_param("subscription", "is not a subscription of this connection");
	client->forget_end(found->second.end_key);
	end(id);
}

void TelemetryService::end(std::uint64_t id)
{
	const auto found = subscriptions_.find(id);
	loop_.cancel(found->second.timer);
	subscriptions_.erase(found);
	rings_.watch_ends();
	routes_.watch_ends();
}

std::uint64_t TelemetryService::oldest_sample_ns() const noexcept
{
	std::uint64_t oldest = monotonic_ns();
	for (const auto &[id, subscription] : subscriptions_)
		oldest = std::min(oldest, subscription.sampled_ns);
	return oldest;
}

void TelemetryService::sample(std::uint64_t id)
{
	Subscription &subscription = subscriptions_.at(id);
	const auto client = subscription.client.lock();
	if (!client || client->queued_bytes() > kSkipAboveBytes)
		return;
	rings_.update(oldest_sample_ns());

	telemetry::Frame frame;
	frame.nics = nics_.sample();
	std::uint32_t live = 0;
	for (const auto &[file, ring] : rings_.rings()) {
		if (ring->gone_at_ns == 0)
			live++;
		for (const stepccl_flow &flow : ring->reader.flows()) {
			if (frame.flows.size() < kMaxFlows)
				frame.flows.push_back(to_frame(ring->reader.header(), flow, membership_));
		}
	}
	for (const auto &[file, ring] : rings_.rings()) {
		const std::size_t room = telemetry::max_ops_beside(frame.nics.size(), frame.flows.size()) - frame.ops.size();
		const RingOps read = ring->reader.ops_since(subscription.tails[file], room);
		subscription.lost_ops += read.lost;
		for (const stepccl_op &op : read.ops)
			frame.ops.push_back(to_frame(ring->reader.header(), op));
	}
	std::erase_if(subscription.tails, [&](const auto &item) { return !rings_.rings().contains(item.first); });

	const Cluster *cluster = membership_.current();
	const CpuTimes cpu = read_cpu_times(tree_);
	frame.header.node = static_cast<std::uint16_t>(cluster ? static_cast<unsigned>(cluster->self) : STEPCCL_NODE_UNKNOWN);
	frame.header.interval_ms = static_cast<std::uint32_t>(subscription.interval.count());
	frame.header.sequence = ++subscription.frames;
	frame.header.monotonic_ns = monotonic_ns();
	frame.header.realtime_ns = realtime_ns();
	frame.header.lost_ops = subscription.lost_ops;
	frame.header.rank_count = live;
	frame.header.daemon_rss_kib = own_rss_kib();
	frame.header.cpu_permille = cpu_permille(subscription.cpu, cpu);
	frame.header.mem_available_bytes = memory_available_bytes(tree_);
	subscription.cpu = cpu;
	subscription.sampled_ns = frame.header.monotonic_ns;
	(void)tree_.take_unreadable();

	std::vector<std::byte> bytes;
	if (telemetry::encode_frame(frame, bytes) != telemetry::FrameError::none) {
		log_error({{"event", "frame_too_long"}, {"flows", frame.flows.size()}, {"ops", frame.ops.size()}});
		return;
	}
	client->send(bytes);
}

} // namespace stepccl::agent
