// SPDX-License-Identifier: Apache-2.0
// Pieces that several algorithms are made of, over some of the ranks and some of the elements.
#pragma once

#include "schedule/builder.hpp"

namespace stepccl::schedule {

// Some of the ranks, in the order in which an algorithm numbers them, and this rank's number.
struct Group {
  std::vector<std::uint32_t> ranks;
  std::uint32_t index = 0;

  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(ranks.size()); }
  [[nodiscard]] std::uint32_t rank(std::uint32_t number) const noexcept { return ranks[number % ranks.size()]; }
};

// All ranks from `root` on.
[[nodiscard]] Group everyone(const Problem& problem, std::uint32_t root = 0);

using SegmentOf = std::function<Segment(std::uint32_t number)>;

// Reduce-scatter around the ring, n - 1 rounds: number i ends with the sum of segment i in into[segment]. Segment s is
// summed in the order s + 1, s + 2, ..., s. `from` and `into` may be the same.
void ring_reduce_scatter(Builder& builder, const Group& group, const SegmentOf& segment, Place from, Place into, Slots& slots, bool finish);
// All-gather around the ring, n - 1 rounds, of what stands in into[segment i] at number i. `own` is where this rank's
// segment stands, at its begin.
void ring_all_gather(Builder& builder, const Group& group, const SegmentOf& segment, Place own, Place into, std::uint64_t chunk);

// Sums the parts of numbers 0..n-1, in that order, into target[0, count). part(p) is where p's part stands; `sum` is scratch
// for the running total where target may be a part itself.
void sum_in_order(Builder& builder, std::uint32_t n, const std::function<Place(std::uint32_t)>& part, Place sum, Place target, std::uint64_t count,
                  bool finish);

// Number i gets everyone's segment i from `from` and adds in order, into `own`: one exchange. The slots are as wide as the group.
void direct_reduce_scatter(Builder& builder, const Group& group, const SegmentOf& segment, Place from, Place own, Slots& slots, bool finish);
// Everyone sends its segment to everyone: one exchange.
void direct_all_gather(Builder& builder, const Group& group, const SegmentOf& segment, Place own, Place into, std::uint64_t chunk);

// Where the nodes of a job begin: the groups of ranks that share one, in the order of their lowest ranks.
struct Nodes {
  std::vector<std::vector<std::uint32_t>> ranks;  // by node, ascending
  std::uint32_t own = 0;                          // this rank's node
  std::uint32_t index = 0;                        // this rank's place in it
  bool even = true;                               // all have the same number of ranks
};
[[nodiscard]] Nodes nodes_of(const Problem& problem);
// The ranks with the same place on their nodes, one per node; with uneven nodes only place 0 has all.
[[nodiscard]] Group across(const Nodes& nodes, std::uint32_t place);
[[nodiscard]] Group inside(const Nodes& nodes);
// The rank that stands for a node: the root for its own, else the first one.
[[nodiscard]] std::uint32_t head_of(const Nodes& nodes, std::uint32_t node, std::uint32_t root);
// The nodes' heads, the root's first.
[[nodiscard]] Group heads(const Problem& problem, const Nodes& nodes);

}  // namespace stepccl::schedule
