// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace stepccl::agent {

struct MemberAddress {
	std::string address;
	std::optional<std::string> netdev;
	std::optional<std::string> rdma_device;
	std::optional<int> gid_index;
};

struct Member {
	int node = 0;
	std::string name;
	std::vector<MemberAddress> addresses;
};

/// The cluster as the console described it.
struct Cluster {
	static constexpr std::size_t kMaxMembers = 1024;
	static constexpr std::size_t kMaxAddresses = 16;

	std::string id;
	std::int64_t epoch = 0;
	int self = 0;
	std::vector<Member> members;

	[[nodiscard]] const Member &self_member() const;
};

/// Checks a cluster.set's parameters. Throws RpcError (A101).
Cluster parse_cluster(const nlohmann::json &params);
nlohmann::json to_json(const Cluster &cluster);

/// The node's membership: kept in one file, replaced as a whole.
class Membership {
public:
	explicit Membership(std::string file) : file_(std::move(file)) {}

	/// Reads the file where there is one. A file that is damaged is reported in the log, and the node is
	/// then no member.
	void load();

	/// Takes a description that is no older than the one known and keeps it. Throws RpcError (A302 for an
	/// older epoch, A402 where it can't be kept); the membership is then as it was.
	void set(Cluster cluster);

	/// Throws RpcError (A301) where the node is no member yet.
	[[nodiscard]] const Cluster &get() const;
	[[nodiscard]] const Cluster *current() const noexcept { return cluster_ ? &*cluster_ : nullptr; }

	/// The number of the member that has this IPv4 address (network byte order), or nothing.
	[[nodiscard]] std::optional<int> node_of_ipv4(std::uint32_t address) const;

private:
	void index_addresses();

	std::string file_;
	std::optional<Cluster> cluster_;
	std::vector<std::pair<std::uint32_t, int>> by_ipv4_; ///< sorted
};

} // namespace stepccl::agent
