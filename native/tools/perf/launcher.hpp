// SPDX-License-Identifier: Apache-2.0
// Rank, world size and rendezvous from the launcher that started this process: mpirun, srun, torchrun.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "stepccl/stepccl.h"

namespace perf {

using Lookup = std::function<const char*(const char* name)>;  // getenv, or a test's

struct Launched {
  const char* launcher = "";      // "mpirun", "srun", "torchrun"
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  bool one_node = false;          // all ranks run here
  std::string job;                // tells this job from others
  std::string address;            // where rank 0 listens, "host:port"; empty where one_node
};

// What the environment says; nothing where no launcher has left its variables, or `problem` where they do not fit together.
[[nodiscard]] std::optional<Launched> launched_by(const Lookup& lookup, std::string& problem);

// The unique id that all ranks of the job share. On one node rank 0 makes it and hands it on in a file that only this
// user can read. Across nodes every rank derives it: the secret from STEPCCL_JOB_SECRET, the address from STEPCCL_RENDEZVOUS
// or MASTER_ADDR. An error text, or nothing.
[[nodiscard]] std::optional<std::string> rendezvous(const Launched& job, const Lookup& lookup, std::uint32_t timeout_ms, stepccl_unique_id_t& id);

// Rank 0, once all have joined: the file goes.
void forget_rendezvous(const Launched& job);

}  // namespace perf
