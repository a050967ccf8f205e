// SPDX-License-Identifier: Apache-2.0
#include "schedule/costs.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace stepccl::schedule::cost {
namespace {

double rounds_of(std::uint32_t n) { return n < 2 ? 0 : std::bit_width(n - 1); }  // ceil(lg n)

// The part of an array that leaves or comes: all but the own block.
double others(std::uint32_t n, double S) { return n < 2 ? 0 : (n - 1.0) / n * S; }

// Messages beyond the first that a rank has to post at the same time.
double crowd(std::uint32_t n, const CostModel& m) { return n < 3 ? 0 : (n - 2.0) * m.overhead; }

// S bytes through `hops` hops of a pipeline, where each hop costs `alpha` and `per_byte`: the first chunk passes all hops,
// the others follow.
double pipeline(double hops, double S, double alpha, double per_byte, double chunk) {
  const double first = chunk > 0 ? std::min(S, chunk) : S;
  return hops * (alpha + first * per_byte) + (S - first) * per_byte;
}

// Levels of the binary tree below number 0.
double depth_of(std::uint32_t n) { return rounds_of(n); }

// Ranks of a node, and links inside it.
struct Inside {
  std::uint32_t ranks;
  CostModel model;
};
Inside inside_of(std::uint32_t n, const CostModel& m) {
  Inside inside{m.per_node == 0 ? n : std::min(n, m.per_node), m};
  inside.model.alpha = m.local_alpha;
  inside.model.beta = m.local_beta;
  return inside;
}

}  // namespace

double ring_all_reduce(std::uint32_t n, double S, const CostModel& m) {
  return n < 2 ? 0 : 2 * (n - 1.0) * m.alpha + others(n, S) * (2 * m.beta + m.gamma);
}
double ring_gather(std::uint32_t n, double S, const CostModel& m) { return n < 2 ? 0 : (n - 1.0) * m.alpha + others(n, S) * m.beta; }
double ring_scatter(std::uint32_t n, double S, const CostModel& m) { return ring_gather(n, S, m) + others(n, S) * m.gamma; }
double ring_broadcast(std::uint32_t n, double S, const CostModel& m) {
  return n < 2 ? 0 : n * m.alpha + crowd(n, m) + others(n, S) * 2 * m.beta;
}

double recursive_doubling(std::uint32_t n, double S, const CostModel& m) {
  if (n < 2) return 0;
  const double rounds = std::bit_width(n) - 1;
  const double fold = std::has_single_bit(n) ? 0 : 2 * (m.alpha + S * m.beta) + S * m.gamma;
  return rounds * (m.alpha + S * (m.beta + m.gamma)) + fold;
}

double halving_doubling(std::uint32_t n, double S, const CostModel& m) {
  if (n < 2) return 0;
  const double rounds = std::bit_width(n) - 1;
  const double fold = std::has_single_bit(n) ? 0 : 2 * (m.alpha + S * m.beta) + S * m.gamma;
  return 2 * rounds * m.alpha + others(std::bit_floor(n), S) * (2 * m.beta + m.gamma) + fold;
}
double halving(std::uint32_t n, double S, const CostModel& m) {
  if (n < 2) return 0;
  const double rounds = std::bit_width(n) - 1;
  const double fold = std::has_single_bit(n) ? 0 : 2 * m.alpha + S * (m.beta + m.gamma) + S / n * m.beta;
  return rounds * m.alpha + others(std::bit_floor(n), S) * (m.beta + m.gamma) + fold;
}

double one_shot(std::uint32_t n, double S, const CostModel& m) {
  return n < 2 ? 0 : m.alpha + 2 * crowd(n, m) + (n - 1.0) * S * (m.beta + m.gamma);
}
double two_shot(std::uint32_t n, double S, const CostModel& m) {
  return n < 2 ? 0 : 2 * m.alpha + 4 * crowd(n, m) + others(n, S) * (2 * m.beta + m.gamma);
}
double direct_all_gather(std::uint32_t n, double S, const CostModel& m) { return n < 2 ? 0 : m.alpha + 2 * crowd(n, m) + others(n, S) * m.beta; }
double direct_reduce_scatter(std::uint32_t n, double S, const CostModel& m) { return direct_all_gather(n, S, m) + others(n, S) * m.gamma; }
double direct_broadcast(std::uint32_t n, double S, const CostModel& m) { return n < 2 ? 0 : m.alpha + crowd(n, m) + (n - 1.0) * S * m.beta; }
double direct_reduce(std::uint32_t n, double S, const CostModel& m) { return n < 2 ? 0 : direct_broadcast(n, S, m) + (n - 1.0) * S * m.gamma; }
double direct_blocks(std::uint32_t n, double S, const CostModel& m) { return n < 2 ? 0 : m.alpha + crowd(n, m) + others(n, S) * m.beta; }

// A node inside has two children: its in and out ports carry every byte twice.
double tree_all_reduce(std::uint32_t n, double S, const CostModel& m) { return tree_reduce(n, S, m) + (n < 2 ? 0 : depth_of(n) * (m.alpha + std::min(S, m.chunk > 0 ? m.chunk : S) * m.beta)); }
double tree_broadcast(std::uint32_t n, double S, const CostModel& m) {
  return n < 2 ? 0 : pipeline(depth_of(n), S, m.alpha, (n > 3 ? 2 : 1) * m.beta, m.chunk);
}
double tree_reduce(std::uint32_t n, double S, const CostModel& m) {
  return n < 2 ? 0 : pipeline(depth_of(n), S, m.alpha, (n > 3 ? 2 : 1) * (m.beta + m.gamma), m.chunk);
}
// In each tree a rank is a leaf or has two children: S in and S out over both, twice.
double double_binary_tree(std::uint32_t n, double S, const CostModel& m) {
  if (n < 2) return 0;
  const double chunk = m.chunk > 0 ? std::min(m.chunk, S / 2) : S / 2;
  const double lanes = n > 3 ? 2 : 1;
  return 2 * depth_of(n) * (m.alpha + lanes * chunk * m.beta) + depth_of(n) * lanes * chunk * m.gamma + (S - 2 * chunk) * lanes * (m.beta + m.gamma);
}

double binomial_broadcast(std::uint32_t n, double S, const CostModel& m) { return rounds_of(n) * (m.alpha + S * m.beta); }
double binomial_reduce(std::uint32_t n, double S, const CostModel& m) { return rounds_of(n) * (m.alpha + S * (m.beta + m.gamma)); }
double binomial_blocks(std::uint32_t n, double S, const CostModel& m) { return rounds_of(n) * m.alpha + others(n, S) * m.beta; }

double chain_broadcast(std::uint32_t n, double S, const CostModel& m) { return n < 2 ? 0 : pipeline(n - 1.0, S, m.alpha, m.beta, m.chunk); }
double chain_reduce(std::uint32_t n, double S, const CostModel& m) {
  return n < 2 ? 0 : pipeline(n - 1.0, S, m.alpha, m.beta, m.chunk) + S * m.gamma + (n - 2.0) * std::min(S, m.chunk > 0 ? m.chunk : S) * m.gamma;
}

double bruck_all_gather(std::uint32_t n, double S, const CostModel& m) { return rounds_of(n) * m.alpha + others(n, S) * m.beta; }
double pairwise(std::uint32_t n, double S, const CostModel& m) { return n < 2 ? 0 : std::max(1.0, std::ceil((n - 1.0) / 4)) * m.alpha + others(n, S) * m.beta; }
double direct_all_to_all(std::uint32_t n, double S, const CostModel& m) { return n < 2 ? 0 : m.alpha + 2 * crowd(n, m) + others(n, S) * m.beta; }
// Local copies move every byte twice per round: they count as reducing does.
double bruck_all_to_all(std::uint32_t n, double S, const CostModel& m) { return rounds_of(n) * (m.alpha + S / 2 * m.beta + S * m.gamma) + 2 * S * m.gamma; }

double hierarchical_all_reduce(std::uint32_t n, double S, const CostModel& m) {
  const Inside inside = inside_of(n, m);
  const double segment = inside.ranks == 0 ? S : S / inside.ranks;
  return two_shot(inside.ranks, S, inside.model) + ring_all_reduce(m.nodes, segment, m);
}
double hierarchical_all_gather(std::uint32_t n, double S, const CostModel& m) {
  const Inside inside = inside_of(n, m);
  return ring_gather(m.nodes, S / std::max(1u, inside.ranks), m) + direct_all_gather(inside.ranks, S, inside.model);
}
double hierarchical_broadcast(std::uint32_t n, double S, const CostModel& m) {
  const Inside inside = inside_of(n, m);
  const double chunk = m.chunk > 0 ? std::min(S, m.chunk) : S;
  return chain_broadcast(m.nodes, S, m) + direct_broadcast(inside.ranks, chunk, inside.model);
}
double hierarchical_reduce(std::uint32_t n, double S, const CostModel& m) {
  const Inside inside = inside_of(n, m);
  const double chunk = m.chunk > 0 ? std::min(S, m.chunk) : S;
  return chain_reduce(m.nodes, S, m) + direct_reduce(inside.ranks, chunk, inside.model);
}

// Adding takes its time in either stage; the last copy counts as reducing does.
double hierarchical_reduce_scatter(std::uint32_t n, double S, const CostModel& m) {
  const Inside inside = inside_of(n, m);
  const double share = S / std::max(1u, inside.ranks);
  return direct_reduce_scatter(inside.ranks, S, inside.model) + ring_scatter(m.nodes, share, m) + S / std::max(1u, n) * m.gamma;
}
// The root's links carry every block; a head hands on while the next one comes.
double hierarchical_blocks(std::uint32_t n, double S, const CostModel& m) {
  const Inside inside = inside_of(n, m);
  const double node = S / std::max(1u, m.nodes);
  return m.alpha + crowd(m.nodes, m) + others(m.nodes, S) * m.beta + direct_blocks(inside.ranks, m.chunk > 0 ? std::min(node, m.chunk * inside.ranks) : node, inside.model);
}
// Twice through memory: once to collect, once across.
double hierarchical_all_to_all(std::uint32_t n, double S, const CostModel& m) {
  const Inside inside = inside_of(n, m);
  return direct_all_to_all(inside.ranks, S, inside.model) + direct_all_to_all(m.nodes, S, m) + S * m.gamma;
}
double hierarchical_barrier(std::uint32_t n, double, const CostModel& m) {
  const Inside inside = inside_of(n, m);
  return (inside.ranks < 2 ? 0 : 2 * (inside.model.alpha + crowd(inside.ranks, inside.model))) + rounds_of(m.nodes) * m.alpha;
}

double dissemination(std::uint32_t n, double, const CostModel& m) { return rounds_of(n) * m.alpha; }

}  // namespace stepccl::schedule::cost
