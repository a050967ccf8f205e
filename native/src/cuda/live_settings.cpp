// SPDX-License-Identifier: Apache-2.0
#include "cuda/live_settings.hpp"

#include <algorithm>

namespace stepccl::cuda {
namespace {

constexpr std::uint64_t kPageUnit = 2u << 20;
constexpr std::uint64_t kMostPrefetchDepth = 15;
constexpr std::uint64_t kMostCachePermille = 900;

std::optional<std::uint64_t> number(std::uint64_t value) { return value == 0 ? std::nullopt : std::optional(value); }
std::optional<std::uint64_t> onoff(std::uint8_t value) { return value == 1 || value == 2 ? std::optional<std::uint64_t>(value - 1) : std::nullopt; }

}  // namespace

LiveWishes wishes_of(const stepccl_control& page) {
  LiveWishes wishes;
  wishes[STEPCCL_GPU_PIPELINE_DEPTH] = number(page.pipeline_depth);
  wishes[STEPCCL_GPU_SM_BUDGET] = number(page.sm_budget);
  wishes[STEPCCL_GPU_DMA_CONCURRENCY] = number(page.dma_concurrency);
  wishes[STEPCCL_GPU_ASYNC_GD] = onoff(page.async_gd);
  wishes[STEPCCL_GPU_HBM_DEFRAG] = onoff(page.hbm_defrag);
  wishes[STEPCCL_GPU_HBM_DEFRAG_INTERVAL_MS] = number(page.hbm_defrag_interval_ms);
  wishes[STEPCCL_GPU_PAGING] = onoff(page.paging);
  wishes[STEPCCL_GPU_PAGE_BYTES] = number(page.page_bytes);
  wishes[STEPCCL_GPU_PREFETCH_DEPTH] = number(page.prefetch_depth);
  wishes[STEPCCL_GPU_BUFFER_BYTES] = number(page.buffer_bytes);
  wishes[STEPCCL_GPU_HBM_CACHE_RATIO_PERMILLE] = number(page.hbm_cache_ratio_permille);
  return wishes;
}

LivePlan plan_live(const LiveValues& own, const LiveWishes& wishes, const LiveLimits& limits) {
  LivePlan plan;
  plan.values = own;
  const auto take = [&](stepccl_gpu_setting setting, bool fits) {
    if (!wishes[setting]) return;
    if (fits) plan.values[setting] = *wishes[setting];
    else plan.refused[setting] = STEPCCL_GPU_REASON_OUT_OF_RANGE;
  };
  const auto wish = [&](stepccl_gpu_setting setting) { return wishes[setting].value_or(0); };
  take(STEPCCL_GPU_PIPELINE_DEPTH, wish(STEPCCL_GPU_PIPELINE_DEPTH) <= limits.pipeline_depth);
  take(STEPCCL_GPU_SM_BUDGET, wish(STEPCCL_GPU_SM_BUDGET) <= limits.sm_budget);
  take(STEPCCL_GPU_DMA_CONCURRENCY, wish(STEPCCL_GPU_DMA_CONCURRENCY) <= limits.dma_concurrency);
  take(STEPCCL_GPU_ASYNC_GD, true);
  take(STEPCCL_GPU_HBM_DEFRAG, true);
  take(STEPCCL_GPU_HBM_DEFRAG_INTERVAL_MS, true);
  take(STEPCCL_GPU_PAGING, true);
  take(STEPCCL_GPU_PAGE_BYTES, wish(STEPCCL_GPU_PAGE_BYTES) % kPageUnit == 0);
  take(STEPCCL_GPU_PREFETCH_DEPTH, wish(STEPCCL_GPU_PREFETCH_DEPTH) <= kMostPrefetchDepth);
  take(STEPCCL_GPU_BUFFER_BYTES, wish(STEPCCL_GPU_BUFFER_BYTES) <= limits.pool_bytes);
  const std::uint64_t permille = wish(STEPCCL_GPU_HBM_CACHE_RATIO_PERMILLE);
  take(STEPCCL_GPU_HBM_CACHE_RATIO_PERMILLE, permille <= kMostCachePermille && limits.device_bytes / 1000 * permille <= limits.pool_bytes);
  // A ratio that the daemon sets counts before a size of the process's own.
  if (wishes[STEPCCL_GPU_HBM_CACHE_RATIO_PERMILLE] && !wishes[STEPCCL_GPU_BUFFER_BYTES] && plan.refused[STEPCCL_GPU_HBM_CACHE_RATIO_PERMILLE] == STEPCCL_GPU_REASON_NONE) {
    plan.values[STEPCCL_GPU_BUFFER_BYTES] = 0;
  }

  const auto needs = [&](stepccl_gpu_setting setting, bool met, stepccl_gpu_reason reason) {
    if (wishes[setting] && !met && plan.refused[setting] == STEPCCL_GPU_REASON_NONE) plan.refused[setting] = reason;
  };
  needs(STEPCCL_GPU_HBM_DEFRAG_INTERVAL_MS, plan.values[STEPCCL_GPU_HBM_DEFRAG] != 0, STEPCCL_GPU_REASON_NEEDS_OTHER);
  needs(STEPCCL_GPU_PAGE_BYTES, plan.values[STEPCCL_GPU_PAGING] != 0, STEPCCL_GPU_REASON_NEEDS_OTHER);
  needs(STEPCCL_GPU_PREFETCH_DEPTH, plan.values[STEPCCL_GPU_PAGING] != 0, STEPCCL_GPU_REASON_NEEDS_OTHER);
  needs(STEPCCL_GPU_HBM_CACHE_RATIO_PERMILLE, plan.values[STEPCCL_GPU_BUFFER_BYTES] == 0, STEPCCL_GPU_REASON_OVERRIDDEN);
  return plan;
}

void fill_rows(stepccl_gpu_setting_row (&rows)[STEPCCL_GPU_SETTING_COUNT], const LiveWishes& wishes, const LiveValues& in_force, const LivePlan& plan, stepccl_gpu_reason waiting) {
  for (std::size_t i = 0; i < STEPCCL_GPU_SETTING_COUNT; ++i) {
    stepccl_gpu_setting_row& row = rows[i];
    row = {};
    row.in_force = in_force[i];
    if (!wishes[i]) continue;
    row.wanted = *wishes[i];
    if (plan.refused[i] != STEPCCL_GPU_REASON_NONE) {
      row.state = STEPCCL_GPU_SETTING_REFUSED;
      row.reason = static_cast<std::uint8_t>(plan.refused[i]);
    } else if (in_force[i] == row.wanted && waiting == STEPCCL_GPU_REASON_NONE) {
      row.state = STEPCCL_GPU_SETTING_APPLIED;
    } else {
      row.state = STEPCCL_GPU_SETTING_PENDING;
      row.reason = static_cast<std::uint8_t>(waiting);
    }
  }
}

Moment moment_for(const Progress* ranks, std::uint32_t count) {
  Moment moment;
  moment.possible = std::all_of(ranks, ranks + count, [](const Progress& one) { return one.ready != 0; });
  if (!moment.possible) return moment;
  moment.now = moment.idle = true;
  for (std::uint32_t a = 0; a < count; ++a) {
    moment.after_call = std::max(moment.after_call, ranks[a].calls);
    moment.now = moment.now && ranks[a].calls == ranks[0].calls;
    moment.idle = moment.idle && ranks[a].idle != 0;
    for (std::uint32_t b = 0; b < a; ++b) moment.now = moment.now && ranks[a].with_peer[b] == ranks[b].with_peer[a];
  }
  return moment;
}

}  // namespace stepccl::cuda
