// SPDX-License-Identifier: Apache-2.0
#include "schedule/group.hpp"

#include <algorithm>
#include <map>

namespace stepccl::schedule {

Group everyone(const Problem& problem, std::uint32_t root) {
  Group group;
  for (std::uint32_t i = 0; i < problem.world; ++i) group.ranks.push_back((root + i) % problem.world);
  group.index = (problem.rank + problem.world - root) % problem.world;
  return group;
}

void ring_reduce_scatter(Builder& builder, const Group& group, const SegmentOf& segment, Place from, Place into, Slots& slots, bool finish) {
  const std::uint32_t n = group.size();
  const std::uint32_t next = group.rank(group.index + 1);
  const std::uint32_t previous = group.rank(group.index + n - 1);
  for (std::uint32_t k = 0; k + 1 < n; ++k) {
    const Segment out = segment((group.index + 2 * n - 1 - k) % n);
    const Segment in = segment((group.index + 2 * n - 2 - k) % n);
    const Place source = k == 0 ? from : into;
    for_chunks(out.count, slots.chunk(), [&](std::uint64_t offset, std::uint64_t count) { builder.send(next, at(source, out.offset + offset), count); });
    for_chunks(in.count, slots.chunk(), [&](std::uint64_t offset, std::uint64_t count) {
      const Place slot = slots.next();
      const std::uint64_t place = in.offset + offset;
      builder.recv(previous, slot, count);
      builder.reduce(at(into, place), slot, at(from, place), count, finish && k + 2 == n);
    });
  }
}

void ring_all_gather(Builder& builder, const Group& group, const SegmentOf& segment, Place own, Place into, std::uint64_t chunk) {
  const std::uint32_t n = group.size();
  const std::uint32_t next = group.rank(group.index + 1);
  const std::uint32_t previous = group.rank(group.index + n - 1);
  for (std::uint32_t k = 0; k + 1 < n; ++k) {
    const Segment out = segment((group.index + n - k) % n);
    const Segment in = segment((group.index + 2 * n - 1 - k) % n);
    const Place source = k == 0 ? own : at(into, out.offset);
    for_chunks(out.count, chunk, [&](std::uint64_t offset, std::uint64_t count) { builder.send(next, at(source, offset), count); });
    for_chunks(in.count, chunk, [&](std::uint64_t offset, std::uint64_t count) { builder.recv(previous, at(into, in.offset + offset), count); });
  }
}

void sum_in_order(Builder& builder, std::uint32_t n, const std::function<Place(std::uint32_t)>& part, Place sum, Place target, std::uint64_t count,
                  bool finish) {
  Place left = part(0);
  for (std::uint32_t p = 1; p < n; ++p) {
    const bool last = p + 1 == n;
    const Place to = last ? target : sum;
    builder.reduce(to, left, part(p), count, finish && last);
    left = to;
  }
}

void direct_reduce_scatter(Builder& builder, const Group& group, const SegmentOf& segment, Place from, Place own, Slots& slots, bool finish) {
  const std::uint32_t n = group.size();
  const std::uint32_t i = group.index;
  std::uint64_t longest = 0;
  for (std::uint32_t s = 0; s < n; ++s) longest = std::max(longest, segment(s).count);
  const auto piece = [&](std::uint32_t s, std::uint64_t offset) {
    const Segment whole = segment(s);
    if (offset >= whole.count) return Segment{whole.offset, 0};
    return Segment{whole.offset + offset, std::min(slots.chunk(), whole.count - offset)};
  };
  // Chunk by chunk of all segments together, so that every peer has something to add early.
  for_chunks(longest, slots.chunk(), [&](std::uint64_t offset, std::uint64_t) {
    const Segment mine = piece(i, offset);
    const Place slot = slots.next();
    for (std::uint32_t k = 1; k < n; ++k) {
      const Segment theirs = piece((i + k) % n, offset);
      builder.send(group.rank(i + k), at(from, theirs.offset), theirs.count);
    }
    for (std::uint32_t k = 1; k < n; ++k) {
      const std::uint32_t peer = (i + n - k) % n;
      builder.recv(group.rank(peer), at(slot, peer * slots.chunk()), mine.count);
    }
    const auto part = [&](std::uint32_t p) { return p == i ? at(from, mine.offset) : at(slot, p * slots.chunk()); };
    sum_in_order(builder, n, part, at(slot, i * slots.chunk()), at(own, offset), mine.count, finish);
  });
}

void direct_all_gather(Builder& builder, const Group& group, const SegmentOf& segment, Place own, Place into, std::uint64_t chunk) {
  const std::uint32_t n = group.size();
  const std::uint32_t i = group.index;
  std::uint64_t longest = 0;
  for (std::uint32_t s = 0; s < n; ++s) longest = std::max(longest, segment(s).count);
  for_chunks(longest, chunk, [&](std::uint64_t offset, std::uint64_t) {
    const auto count_of = [&](std::uint32_t s) { return segment(s).count > offset ? std::min(chunk, segment(s).count - offset) : 0; };
    for (std::uint32_t k = 1; k < n; ++k) builder.send(group.rank(i + k), at(own, offset), count_of(i));
    for (std::uint32_t k = 1; k < n; ++k) {
      const std::uint32_t peer = (i + n - k) % n;
      builder.recv(group.rank(peer), at(into, segment(peer).offset + offset), count_of(peer));
    }
  });
}

Nodes nodes_of(const Problem& problem) {
  Nodes nodes;
  std::map<std::uint32_t, std::uint32_t> number_of;  // of a node, by its first rank
  for (std::uint32_t rank = 0; rank < problem.world; ++rank) {
    const std::uint32_t node = problem.nodes != nullptr && rank < problem.nodes->size() ? (*problem.nodes)[rank] : 0;
    const auto [found, first] = number_of.try_emplace(node, static_cast<std::uint32_t>(nodes.ranks.size()));
    if (first) nodes.ranks.emplace_back();
    auto& ranks = nodes.ranks[found->second];
    if (rank == problem.rank) {
      nodes.own = found->second;
      nodes.index = static_cast<std::uint32_t>(ranks.size());
    }
    ranks.push_back(rank);
  }
  for (const auto& ranks : nodes.ranks) nodes.even = nodes.even && ranks.size() == nodes.ranks[0].size();
  return nodes;
}

Group across(const Nodes& nodes, std::uint32_t place) {
  Group group;
  for (const auto& ranks : nodes.ranks) group.ranks.push_back(ranks[place]);
  group.index = nodes.own;
  return group;
}

Group inside(const Nodes& nodes) { return {nodes.ranks[nodes.own], nodes.index}; }

std::uint32_t head_of(const Nodes& nodes, std::uint32_t node, std::uint32_t root) {
  const auto& ranks = nodes.ranks[node];
  return std::find(ranks.begin(), ranks.end(), root) != ranks.end() ? root : ranks[0];
}

Group heads(const Problem& problem, const Nodes& nodes) {
  Group group;
  const auto many = static_cast<std::uint32_t>(nodes.ranks.size());
  std::uint32_t first = 0;
  while (head_of(nodes, first, problem.root) != problem.root) ++first;
  for (std::uint32_t i = 0; i < many; ++i) group.ranks.push_back(head_of(nodes, (first + i) % many, problem.root));
  group.index = (nodes.own + many - first) % many;
  return group;
}

}  // namespace stepccl::schedule
