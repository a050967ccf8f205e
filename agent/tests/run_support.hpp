// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support.hpp"

namespace stepccl::agent::testing {

/// run.start's parameters for the node of rank 0.
inline json run_params(const std::vector<int> &ranks, int world_size)
{
	return {{"run_id", "r1"},       {"collective", "all_reduce"}, {"transport", "tcp"},   {"world_size", world_size},
		{"ranks", ranks},       {"unique_id", nullptr},       {"datatype", "float32"}, {"rendezvous", {{"address", "10.77.0.1"}}},
		{"redop", "sum"},       {"algorithm", "auto"},        {"min_bytes", 8},       {"max_bytes", 1024},
		{"step_factor", 2},     {"iterations", 5},            {"warmup", 1},          {"check", true},
		{"timeout_ms", 5000},   {"env", json::object()}};
}

/// Shell that sets $rank, and in a worker of rank 0 says that it listens; the others wait for the unique id.
inline const std::string kFakeWorkerStart = R"(
id=$(printf 'ab%.0s' 1 2 3 4 5 6 7 8)
while [ $# -gt 0 ]; do case $1 in --rank) rank=$2;; esac; shift; done
if [ "$rank" = 0 ]; then echo "{\"event\":\"unique_id\",\"id\":\"$id\"}"; else read -r got; [ "$got" = "$id" ] || exit 99; fi
)";

/// Its last words when all is well.
inline const std::string kFakeWorkerEnd = "echo '{\"event\":\"end\",\"status\":0}'\n";

} // namespace stepccl::agent::testing
