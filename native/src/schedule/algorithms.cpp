// SPDX-License-Identifier: Apache-2.0
// The table of algorithms, and the choice among them.
#include <cmath>

#include "schedule/costs.hpp"
#include "schedule/schedule.hpp"

namespace stepccl::schedule {

const std::vector<AlgorithmRow>& algorithms() {
  static const std::vector<AlgorithmRow> rows{
      {STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_RING, ring_all_reduce, cost::ring_all_reduce},
      {STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_RECURSIVE_DOUBLING, recursive_doubling_all_reduce, cost::recursive_doubling},
      {STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_HALVING_DOUBLING, halving_doubling_all_reduce, cost::halving_doubling},
      {STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_DIRECT_ONE_SHOT, direct_one_shot_all_reduce, cost::one_shot, true},
      {STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_DIRECT_TWO_SHOT, direct_two_shot_all_reduce, cost::two_shot, true},
      {STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_TREE, tree_all_reduce, cost::tree_all_reduce},
      {STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_DOUBLE_BINARY_TREE, double_binary_tree_all_reduce, cost::double_binary_tree},
      {STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_HIERARCHICAL, hierarchical_all_reduce, cost::hierarchical_all_reduce},

      {STEPCCL_ALL_GATHER, STEPCCL_ALGORITHM_RING, ring_all_gather, cost::ring_gather},
      {STEPCCL_ALL_GATHER, STEPCCL_ALGORITHM_BRUCK, bruck_all_gather, cost::bruck_all_gather},
      {STEPCCL_ALL_GATHER, STEPCCL_ALGORITHM_DIRECT_ONE_SHOT, direct_all_gather, cost::direct_all_gather, true},
      {STEPCCL_ALL_GATHER, STEPCCL_ALGORITHM_HIERARCHICAL, hierarchical_all_gather, cost::hierarchical_all_gather},

      {STEPCCL_REDUCE_SCATTER, STEPCCL_ALGORITHM_RING, ring_reduce_scatter, cost::ring_scatter},
      {STEPCCL_REDUCE_SCATTER, STEPCCL_ALGORITHM_HALVING_DOUBLING, halving_doubling_reduce_scatter, cost::halving},
      {STEPCCL_REDUCE_SCATTER, STEPCCL_ALGORITHM_DIRECT_ONE_SHOT, direct_reduce_scatter, cost::direct_reduce_scatter, true},
      {STEPCCL_REDUCE_SCATTER, STEPCCL_ALGORITHM_HIERARCHICAL, hierarchical_reduce_scatter, cost::hierarchical_reduce_scatter},

      {STEPCCL_BROADCAST, STEPCCL_ALGORITHM_BINOMIAL, binomial_broadcast, cost::binomial_broadcast},
      {STEPCCL_BROADCAST, STEPCCL_ALGORITHM_CHAIN, chain_broadcast, cost::chain_broadcast},
      {STEPCCL_BROADCAST, STEPCCL_ALGORITHM_RING, ring_broadcast, cost::ring_broadcast},
      {STEPCCL_BROADCAST, STEPCCL_ALGORITHM_TREE, tree_broadcast, cost::tree_broadcast},
      {STEPCCL_BROADCAST, STEPCCL_ALGORITHM_DIRECT_ONE_SHOT, direct_broadcast, cost::direct_broadcast, true},
      {STEPCCL_BROADCAST, STEPCCL_ALGORITHM_HIERARCHICAL, hierarchical_broadcast, cost::hierarchical_broadcast},

      {STEPCCL_REDUCE, STEPCCL_ALGORITHM_BINOMIAL, binomial_reduce, cost::binomial_reduce},
      {STEPCCL_REDUCE, STEPCCL_ALGORITHM_CHAIN, chain_reduce, cost::chain_reduce},
      {STEPCCL_REDUCE, STEPCCL_ALGORITHM_TREE, tree_reduce, cost::tree_reduce},
      {STEPCCL_REDUCE, STEPCCL_ALGORITHM_DIRECT_ONE_SHOT, direct_reduce, cost::direct_reduce, true},
      {STEPCCL_REDUCE, STEPCCL_ALGORITHM_HIERARCHICAL, hierarchical_reduce, cost::hierarchical_reduce},

      {STEPCCL_SCATTER, STEPCCL_ALGORITHM_BINOMIAL, binomial_scatter, cost::binomial_blocks},
      {STEPCCL_SCATTER, STEPCCL_ALGORITHM_DIRECT_ONE_SHOT, direct_scatter, cost::direct_blocks},
      {STEPCCL_SCATTER, STEPCCL_ALGORITHM_HIERARCHICAL, hierarchical_scatter, cost::hierarchical_blocks},
      {STEPCCL_GATHER, STEPCCL_ALGORITHM_BINOMIAL, binomial_gather, cost::binomial_blocks},
      {STEPCCL_GATHER, STEPCCL_ALGORITHM_DIRECT_ONE_SHOT, direct_gather, cost::direct_blocks},
      {STEPCCL_GATHER, STEPCCL_ALGORITHM_HIERARCHICAL, hierarchical_gather, cost::hierarchical_blocks},

      {STEPCCL_ALL_TO_ALL, STEPCCL_ALGORITHM_PAIRWISE, pairwise_all_to_all, cost::pairwise},
      {STEPCCL_ALL_TO_ALL, STEPCCL_ALGORITHM_BRUCK, bruck_all_to_all, cost::bruck_all_to_all},
      {STEPCCL_ALL_TO_ALL, STEPCCL_ALGORITHM_DIRECT_ONE_SHOT, direct_all_to_all, cost::direct_all_to_all, true},
      {STEPCCL_ALL_TO_ALL, STEPCCL_ALGORITHM_HIERARCHICAL, hierarchical_all_to_all, cost::hierarchical_all_to_all},

      {STEPCCL_BARRIER, STEPCCL_ALGORITHM_DISSEMINATION, dissemination_barrier, cost::dissemination},
      {STEPCCL_BARRIER, STEPCCL_ALGORITHM_HIERARCHICAL, hierarchical_barrier, cost::hierarchical_barrier},
  };
  return rows;
}

const AlgorithmRow* find_algorithm(stepccl_collective_t collective, stepccl_algorithm_t algorithm) noexcept {
  for (const AlgorithmRow& row : algorithms()) {
    if (row.collective == collective && row.algorithm == algorithm) return &row;
  }
  return nullptr;
}

bool suits(const AlgorithmRow& row, std::uint32_t world, const CostModel& model) noexcept {
  constexpr std::uint32_t kDirectWorld = 16;
  if (row.direct && world > kDirectWorld) return false;
  return row.algorithm != STEPCCL_ALGORITHM_HIERARCHICAL || (model.nodes > 1 && model.per_node > 1);
}

const AlgorithmRow* choose_algorithm(stepccl_collective_t collective, std::uint32_t world, const CostModel& model, std::uint32_t allowed,
                                     const std::function<double(const AlgorithmRow&)>& predict) {
  const AlgorithmRow* best = nullptr;
  double least = HUGE_VAL;
  for (const bool any : {false, true}) {  // what does not suit only where nothing else is allowed
    for (const AlgorithmRow& row : algorithms()) {
      if (row.collective != collective || (allowed & (1u << row.algorithm)) == 0 || (!any && !suits(row, world, model))) continue;
      const double time = predict(row);
      if (best == nullptr || time < least * (1 - 1e-9)) {  // a tie goes to the first row, whatever the rounding
        least = time;
        best = &row;
      }
    }
    if (best != nullptr) break;
  }
  return best;
}

const AlgorithmRow* choose_algorithm(stepccl_collective_t collective, std::uint32_t world, double bytes, const CostModel& model, std::uint32_t allowed) {
  return choose_algorithm(collective, world, model, allowed, [&](const AlgorithmRow& row) { return row.cost(world, bytes, model); });
}

bool is_blocked(stepccl_collective_t collective) noexcept {
  switch (collective) {
    case STEPCCL_ALL_GATHER:
    case STEPCCL_REDUCE_SCATTER:
    case STEPCCL_SCATTER:
    case STEPCCL_GATHER:
    case STEPCCL_ALL_TO_ALL: return true;
    default: return false;
  }
}

Segment segment_of(std::uint64_t count, std::uint32_t parts, std::uint32_t index) noexcept {
  const std::uint64_t quotient = count / parts;
  const std::uint64_t rest = count % parts;
  const std::uint64_t extra = index < rest ? index : rest;
  return {quotient * index + extra, quotient + (index < rest ? 1 : 0)};
}

}  // namespace stepccl::schedule
