// SPDX-License-Identifier: Apache-2.0
// What the node's daemon may change of a running engine, and what becomes of its wishes. Needs no GPU.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "stepccl/telemetry.h"

namespace stepccl::cuda {

// By stepccl_gpu_setting; switches are 0 or 1. HBM_DEFRAG_INTERVAL_MS, PAGE_BYTES and PREFETCH_DEPTH keep their value while
// their switch is off; BUFFER_BYTES 0 = by HBM_CACHE_RATIO_PERMILLE.
using LiveValues = std::array<std::uint64_t, STEPCCL_GPU_SETTING_COUNT>;
using LiveWishes = std::array<std::optional<std::uint64_t>, STEPCCL_GPU_SETTING_COUNT>;

// What an engine can take.
struct LiveLimits {
  std::uint64_t sm_budget = 32;
  std::uint64_t dma_concurrency = 8;
  std::uint64_t pipeline_depth = 64;
  std::uint64_t pool_bytes = 0;   // address space of the pool
  std::uint64_t device_bytes = 0; // memory of the GPU
};

[[nodiscard]] LiveWishes wishes_of(const stepccl_control& page);

// What an engine whose own values are `own` runs with under the daemon's wishes, and why a wish is not followed.
struct LivePlan {
  LiveValues values{};
  std::array<stepccl_gpu_reason, STEPCCL_GPU_SETTING_COUNT> refused{};
};
[[nodiscard]] LivePlan plan_live(const LiveValues& own, const LiveWishes& wishes, const LiveLimits& limits);

// The rows of the board. `waiting`: why wishes that are neither in force nor refused are not.
void fill_rows(stepccl_gpu_setting_row (&rows)[STEPCCL_GPU_SETTING_COUNT], const LiveWishes& wishes, const LiveValues& in_force, const LivePlan& plan, stepccl_gpu_reason waiting);

// How far a rank is in its calls: those that all make, and those with each peer.
struct Progress {
  std::uint32_t ready = 0;  // it holds its callers back, and no earlier change waits
  std::uint32_t idle = 0;   // nothing of it is queued outside graphs
  std::uint64_t calls = 0;
  std::uint64_t with_peer[16] = {};
};
// After which common call of every rank a change may take effect: nothing while a rank is not ready; 0 = now, as none of
// them is ahead of another.
struct Moment {
  bool possible = false;
  bool now = false;
  bool idle = false;  // all of them
  std::uint64_t after_call = 0;
};
[[nodiscard]] Moment moment_for(const Progress* ranks, std::uint32_t count);

}  // namespace stepccl::cuda
