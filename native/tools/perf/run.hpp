// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/arguments.hpp"

namespace perf {

// Joins as one rank, measures, leaves. Gives the process's exit status.
[[nodiscard]] int run_rank(const Arguments& arguments, std::uint32_t rank, std::uint32_t world, const stepccl_unique_id_t& id);

// From now on SIGTERM and SIGINT abort the communicator, or end the process where there is none yet; the second
// one ends it in any case. Call before any thread is made.
void abort_on_signals(const Arguments& arguments, std::uint32_t rank, std::uint32_t world);

// Starts all ranks on this node and waits for them.
[[nodiscard]] int launch(const Arguments& arguments);

}  // namespace perf
