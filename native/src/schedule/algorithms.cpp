// SPDX-License-Identifier: Apache-2.0
// The table of algorithms. Costs after Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication
// Operations in MPICH" (2005), with alpha per message, beta per byte and gamma per reduced byte; a rank sends
// and receives at the same time, one message each.
#include <bit>
#include <cmath>

#include "schedule/schedule.hpp"

namespace stepccl::schedule {
namespace {

double ring_cost(std::uint32_t world, double bytes, double alpha, double beta, double gamma) {
  const double n = world;
  return world < 2 ? 0 : 2 * (n - 1) * alpha + 2 * (n - 1) / n * bytes * beta + (n - 1) / n * bytes * gamma;
}

double recursive_doubling_cost(std::uint32_t world, double bytes, double alpha, double beta, double gamma) {
  if (world < 2) return 0;
  const double rounds = std::bit_width(world) - 1;
  const double exchange = alpha + bytes * beta + bytes * gamma;
  const double fold = std::has_single_bit(world) ? 0 : 2 * (alpha + bytes * beta) + bytes * gamma;
  return rounds * exchange + fold;
}

double one_shot_cost(std::uint32_t world, double bytes, double alpha, double beta, double gamma) {
  return world < 2 ? 0 : alpha + (world - 1) * bytes * (beta + gamma);
}

double two_shot_cost(std::uint32_t world, double bytes, double alpha, double beta, double gamma) {
  const double n = world;
  return world < 2 ? 0 : 2 * alpha + 2 * (n - 1) / n * bytes * beta + (n - 1) / n * bytes * gamma;
}

}  // namespace

const std::vector<AlgorithmRow>& algorithms() {
  static const std::vector<AlgorithmRow> rows{
      {STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_RING, ring_all_reduce, ring_cost},
      {STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_RECURSIVE_DOUBLING, recursive_doubling_all_reduce, recursive_doubling_cost},
      {STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_DIRECT_ONE_SHOT, direct_one_shot_all_reduce, one_shot_cost},
      {STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_DIRECT_TWO_SHOT, direct_two_shot_all_reduce, two_shot_cost},
  };
  return rows;
}

const AlgorithmRow* find_algorithm(stepccl_collective_t collective, stepccl_algorithm_t algorithm) noexcept {
  for (const AlgorithmRow& row : algorithms()) {
    if (row.collective == collective && row.algorithm == algorithm) return &row;
  }
  return nullptr;
}

const AlgorithmRow& choose_algorithm(stepccl_collective_t collective, std::uint32_t world, double bytes, double alpha,
                                     double beta, double gamma) {
  // Every pair of ranks needs a connection in the direct algorithms, and every message costs its sender a little
  // even where they overlap: leave them to small worlds.
  constexpr std::uint32_t kDirectWorld = 16;
  const AlgorithmRow* best = nullptr;
  double least = HUGE_VAL;
  for (const AlgorithmRow& row : algorithms()) {
    if (row.collective != collective) continue;
    const bool direct = row.algorithm == STEPCCL_ALGORITHM_DIRECT_ONE_SHOT || row.algorithm == STEPCCL_ALGORITHM_DIRECT_TWO_SHOT;
    if (direct && world > kDirectWorld) continue;
    const double cost = row.cost(world, bytes, alpha, beta, gamma);
    if (best == nullptr || cost < least * (1 - 1e-9)) {  // a tie goes to the first row, whatever the rounding
      least = cost;
      best = &row;
    }
  }
  return *best;
}

Segment segment_of(std::uint64_t count, std::uint32_t parts, std::uint32_t index) noexcept {
  const std::uint64_t quotient = count / parts;
  const std::uint64_t rest = count % parts;
  const std::uint64_t extra = index < rest ? index : rest;
  return {quotient * index + extra, quotient + (index < rest ? 1 : 0)};
}

}  // namespace stepccl::schedule
