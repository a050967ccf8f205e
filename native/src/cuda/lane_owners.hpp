// SPDX-License-Identifier: Apache-2.0
// Which lanes live graphs hold. Graphs let go of theirs when they are destroyed, in any thread and maybe after the engine.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "cuda/engine.hpp"

namespace stepccl::cuda {

struct Engine::LaneOwners {
  explicit LaneOwners(std::uint32_t lanes) : graphs(lanes, 0) {}

  void take(std::uint32_t lane) {
    const std::lock_guard lock(mutex);
    ++graphs[lane];
  }
  void release(std::uint32_t lane) {
    const std::lock_guard lock(mutex);
    if (graphs[lane] > 0) --graphs[lane];
  }
  // Bit i: lane i is free. Lane 0 never is.
  [[nodiscard]] std::uint64_t free_lanes() const {
    const std::lock_guard lock(mutex);
    std::uint64_t mask = 0;
    for (std::size_t lane = 1; lane < graphs.size() && lane < 64; ++lane) mask |= graphs[lane] == 0 ? std::uint64_t{1} << lane : 0;
    return mask;
  }
  [[nodiscard]] std::uint32_t in_use() const {
    const std::lock_guard lock(mutex);
    std::uint32_t count = 0;
    for (std::size_t lane = 1; lane < graphs.size(); ++lane) count += graphs[lane] != 0;
    return count;
  }

  mutable std::mutex mutex;
  std::vector<std::uint32_t> graphs;
};

}  // namespace stepccl::cuda
