// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace stepccl::agent {

/// run.start's parameters after their checks.
struct RunRequest {
	static constexpr std::size_t kMaxRanks = 64; ///< of one node

	std::string run_id;
	std::string collective;
	std::string transport;
	int world_size = 0;
	std::vector<int> ranks;
	std::string unique_id; ///< hex, lower case; empty on the node of rank 0
	std::string rendezvous_address;
	std::string datatype;
	std::string redop;
	std::optional<int> root; ///< of the collectives that have one
	std::string algorithm;
	std::int64_t min_bytes = 0;
	std::int64_t max_bytes = 0;
	std::int64_t step_factor = 0;
	std::int64_t iterations = 0;
	std::int64_t warmup = 0;
	bool check = false;
	std::int64_t timeout_ms = 0;
	std::map<std::string, std::string> env;

	[[nodiscard]] bool has_rank_zero() const;
};

/// Throws RpcError (A101) that names the parameter.
RunRequest parse_run_start(const nlohmann::json &params);

/// The command line of one rank's `stepccl-perf`, without argv[0]. Holds no secret.
std::vector<std::string> worker_arguments(const RunRequest &request, int rank);

/// The whole environment of a worker. What the request asks for wins over the node's settings.
std::vector<std::string> worker_environment(const RunRequest &request, const std::string &rings_directory,
					    const std::string &control_file, const std::map<std::string, std::string> &settings = {});

} // namespace stepccl::agent
