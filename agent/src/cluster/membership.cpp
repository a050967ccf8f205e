// SPDX-License-Identifier: Apache-2.0
#include "cluster/membership.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "rpc/errors.hpp"
#include "rpc/json_text.hpp"
#include "rpc/params.hpp"

namespace stepccl::agent {

using nlohmann::json;

namespace {

constexpr std::int64_t kMaxSafeInteger = 9'007'199'254'740'991; // what a console's numbers hold exactly
constexpr int kMaxNode = 65'534;                                 // 65,535 is STEPCCL_NODE_UNKNOWN

/// A device's name goes into sysfs paths: it must be one plain component.
std::string device_name(const Params &params, std::string_view name, std::size_t max_bytes)
{
	std::string value = params.token(name, max_bytes, "_-.:@");
	if (value == "." || value == "..")
		throw bad_param(params.path(name), "must be a device's name");
	return value;
}

MemberAddress parse_address(const json &value, const std::string &path)
{
	const Params params(value, {"address", "netdev", "rdma_device", "gid_index"}, path);
	MemberAddress out;
	out.address = params.ip_address("address");
	if (!params.is_null("netdev"))
		out.netdev = device_name(params, "netdev", 15);
	if (!params.is_null("rdma_device"))
		out.rdma_device = device_name(params, "rdma_device", 63);
	if (!params.is_null("gid_index"))
		out.gid_index = static_cast<int>(params.integer("gid_index", 0, 65'535));
	return out;
}

Member parse_member(const json &value, const std::string &path)
{
	const Params params(value, {"node", "name", "addresses"}, path);
	Member out;
	out.node = static_cast<int>(params.integer("node", 0, kMaxNode));
	out.name = params.text("name", 1, 253);
	const json &addresses = params.array("addresses", 0, Cluster::kMaxAddresses);
	for (std::size_t i = 0; i < addresses.size(); i++)
		out.addresses.push_back(parse_address(addresses[i], params.path("addresses", i)));
	return out;
}

} // namespace

const Member &Cluster::self_member() const
{
	return *std::find_if(members.begin(), members.end(), [&](const Member &m) { return m.node == self; });
}

Cluster parse_cluster(const json &value)
{
	const Params params(value, {"cluster_id", "epoch", "self", "members"});
	Cluster out;
	out.id = params.text("cluster_id", 1, 64);
	out.epoch = params.integer("epoch", 0, kMaxSafeInteger);
	out.self = static_cast<int>(params.integer("self", 0, kMaxNode));
	const json &members = params.array("members", 1, Cluster::kMaxMembers);
	std::set<int> nodes;
	std::map<std::string, int> owners;
	for (std::size_t i = 0; i < members.size(); i++) {
		Member member = parse_member(members[i], params.path("members", i));
		if (!nodes.insert(member.node).second)
			throw bad_param(params.path("members", i) + ".node", "is another member's number too");
		for (const MemberAddress &address : member.addresses) {
			if (owners.emplace(address.address, member.node).first->second != member.node)
				throw bad_param(params.path("members", i) + ".addresses", "holds an address of another member");
		}
		out.members.push_back(std::move(member));
	}
	if (!nodes.contains(out.self))
		throw bad_param("self", "must be the node number of one of the members");
	return out;
}

json to_json(const Cluster &cluster)
{
	json members = json::array();
	for (const Member &member : cluster.members) {
		json addresses = json::array();
		for (const MemberAddress &address : member.addresses)
			addresses.push_back({{"address", address.address},
					     {"netdev", address.netdev ? json(*address.netdev) : json(nullptr)},
					     {"rdma_device", address.rdma_device ? json(*address.rdma_device) : json(nullptr)},
					     {"gid_index", address.gid_index ? json(*address.gid_index) : json(nullptr)}});
		members.push_back({{"node", member.node}, {"name", member.name}, {"addresses", std::move(addresses)}});
	}
	return {{"cluster_id", cluster.id}, {"epoch", cluster.epoch}, {"self", cluster.self}, {"members", std::move(members)}};
}

void Membership::load()
{
	const FileText file = read_file(file_, 4 * 1024 * 1024);
	if (file.error == ENOENT)
		return;
	if (!file.ok()) {
		log_error({{"event", "membership_unreadable"}, {"file", file_}, {"error", errno_text(file.error)}});
		return;
	}
	std::string why;
	const auto value = parse_json(file.text, &why);
	if (!value) {
		log_error({{"event", "membership_damaged"}, {"file", file_}, {"why", why}});
		return;
	}
	try {
		cluster_ = parse_cluster(*value);
	} catch (const RpcError &error) {
		log_error({{"event", "membership_damaged"}, {"file", file_}, {"why", error.message()}});
		return;
	}
	index_addresses();
	log_info({{"event", "membership_loaded"}, {"cluster", cluster_->id}, {"epoch", cluster_->epoch},
		  {"self", cluster_->self}, {"members", cluster_->members.size()}});
}

void Membership::set(Cluster cluster)
{
	if (cluster_ && cluster.epoch < cluster_->epoch)
		throw RpcError(kServerError, "A302",
			       "This node knows epoch " + std::to_string(cluster_->epoch) + " of cluster " + cluster_->id +
				       ", and epoch " + std::to_string(cluster.epoch) + " is older.",
			       "Read the cluster with cluster.get and send it again with a higher epoch.",
			       {{"known_epoch", cluster_->epoch}, {"known_cluster_id", cluster_->id}});
	const int error = write_file_atomically(file_, to_line(to_json(cluster)) + "\n", 0600);
	if (error != 0)
		throw not_kept(file_, error);
	const std::int64_t old_epoch = cluster_ ? cluster_->epoch : -1;
	cluster_ = std::move(cluster);
	index_addresses();
	log_info({{"event", "membership_set"}, {"cluster", cluster_->id}, {"epoch", cluster_->epoch},
		  {"old_epoch", old_epoch}, {"self", cluster_->self}, {"members", cluster_->members.size()}});
}

const Cluster &Membership::get() const
{
	if (!cluster_)
		throw RpcError(kServerError, "A301", "This node is not a member of a cluster yet.",
			       "Bring the node up from the console; its last step makes it a member.");
	return *cluster_;
}

void Membership::index_addresses()
{
	by_ipv4_.clear();
	for (const Member &member : cluster_->members) {
		for (const MemberAddress &address : member.addresses) {
			in_addr binary{};
			if (::inet_pton(AF_INET, address.address.c_str(), &binary) == 1)
				by_ipv4_.emplace_back(binary.s_addr, member.node);
		}
	}
	std::sort(by_ipv4_.begin(), by_ipv4_.end());
}

std::optional<int> Membership::node_of_ipv4(std::uint32_t address) const
{
	const auto found = std::lower_bound(by_ipv4_.begin(), by_ipv4_.end(), std::pair<std::uint32_t, int>(address, 0));
	if (found == by_ipv4_.end() || found->first != address)
		return std::nullopt;
	return found->second;
}

} // namespace stepccl::agent
