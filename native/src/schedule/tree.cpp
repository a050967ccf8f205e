// SPDX-License-Identifier: Apache-2.0
// Binary trees, chunks pipelined through them.
#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include "schedule/group.hpp"

namespace stepccl::schedule {
namespace {

struct Node {
  std::optional<std::uint32_t> parent;
  std::array<std::optional<std::uint32_t>, 2> children;
};

// A binary search tree over 0..n-1 in which every odd number is a leaf: the subtree of i reaches as far as i's lowest set
// bit (Sanders, Speck, Traeff 2009). Number 0 stands above it and has one child.
Node tree_node(std::uint32_t n, std::uint32_t i) {
  Node node;
  const std::uint32_t low = i == 0 ? std::bit_ceil(n) : i & (~i + 1);
  if (i != 0) {
    const std::uint32_t up = (i ^ low) | (low << 1);
    node.parent = up < n ? up : i ^ low;
  }
  if (i == 0) {
    if (n > 1) node.children[0] = std::bit_ceil(n) / 2;
    return node;
  }
  if (low > 1) {
    node.children[0] = i - low / 2;
    // Where the right child would stand outside, one further down takes its place.
    for (std::uint32_t half = low / 2; half != 0; half /= 2) {
      if (i + half < n) {
        node.children[1] = i + half;
        break;
      }
    }
  }
  return node;
}

// The same tree over other numbers.
Node renamed(const Node& node, const std::function<std::uint32_t(std::uint32_t)>& rank_of) {
  Node out;
  if (node.parent) out.parent = rank_of(*node.parent);
  for (std::size_t i = 0; i < 2; ++i) {
    if (node.children[i]) out.children[i] = rank_of(*node.children[i]);
  }
  return out;
}

// One chunk's way up: children's parts are added in their order, the own one between them as it stands in the tree.
// Where the sum goes: `sum` where there is something to add; a leaf sends its input.
void go_up(Builder& builder, const Node& node, std::uint64_t offset, std::uint64_t count, Place sum, Slots& slots) {
  Place part = input_at(offset);
  const bool root = !node.parent;
  const std::size_t last = node.children[1] ? 1 : 0;
  for (std::size_t c = 0; c < 2; ++c) {
    if (!node.children[c]) continue;
    const Place slot = slots.next();
    builder.recv(*node.children[c], slot, count);
    const bool final = root && c == last;
    const Place target = final ? output_at(offset) : sum;
    builder.reduce(target, c == 0 ? slot : part, c == 0 ? part : slot, count, final);
    part = target;
  }
  if (node.parent) builder.send(*node.parent, part, count);
}

void go_down(Builder& builder, const Node& node, std::uint64_t offset, std::uint64_t count, Place from) {
  if (node.parent) builder.recv(*node.parent, output_at(offset), count);
  for (const auto& child : node.children) {
    if (child) builder.send(*child, node.parent ? output_at(offset) : at(from, offset), count);
  }
}

struct Chunk {
  std::uint64_t offset;
  std::uint64_t count;
};

std::vector<Chunk> chunks_of(std::uint64_t begin, std::uint64_t count, std::uint64_t chunk) {
  std::vector<Chunk> list;
  for_chunks(count, chunk, [&](std::uint64_t offset, std::uint64_t length) { list.push_back({begin + offset, length}); });
  return list;
}

// All trees' chunks up and down. A chunk's way down stands as many places behind its way up as the trees are deep, so that
// a pair of ranks that meets in two trees finds no message behind one that waits for the root.
Schedule reduce_and_spread(const Problem& problem, const std::vector<Node>& trees, const std::vector<std::vector<Chunk>>& chunks) {
  Builder builder(problem);
  std::uint64_t longest = 0;
  std::size_t rounds = 0;
  for (const auto& list : chunks) {
    if (!list.empty()) longest = std::max(longest, list.front().count);
    rounds = std::max(rounds, list.size());
  }
  Slots slots(builder, problem, longest, 1);
  const std::size_t lag = static_cast<std::size_t>(std::bit_width(problem.world));
  for (std::size_t round = 0; round < rounds + lag; ++round) {
    for (std::size_t t = 0; t < trees.size() && round < rounds; ++t) {
      if (round >= chunks[t].size()) continue;
      const auto [offset, count] = chunks[t][round];
      go_up(builder, trees[t], offset, count, output_at(offset), slots);
    }
    for (std::size_t t = 0; t < trees.size() && round >= lag; ++t) {
      if (round - lag >= chunks[t].size()) continue;
      const auto [offset, count] = chunks[t][round - lag];
      go_down(builder, trees[t], offset, count, output_at(0));
    }
  }
  return builder.finish();
}

Schedule alone(const Problem& problem) {
  Builder builder(problem);
  if (!problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
  return builder.finish();
}

}  // namespace

Schedule tree_all_reduce(const Problem& problem) {
  if (problem.world == 1) return alone(problem);
  return reduce_and_spread(problem, {tree_node(problem.world, problem.rank)}, {chunks_of(0, problem.count, problem.chunk_elements)});
}

// Two trees, each for half of the array: who is a leaf in one stands inside the other, so that every rank sends and
// receives about S twice (Sanders, Speck, Traeff 2009). The second tree is the first one mirrored, or shifted by one where
// mirroring would map leaves to leaves.
Schedule double_binary_tree_all_reduce(const Problem& problem) {
  const std::uint32_t n = problem.world;
  if (n == 1) return alone(problem);
  const auto other = [n](std::uint32_t i) { return n % 2 == 0 ? n - 1 - i : (i + 1) % n; };
  const std::uint32_t number = n % 2 == 0 ? n - 1 - problem.rank : (problem.rank + n - 1) % n;
  const std::uint64_t half = (problem.count + 1) / 2;
  return reduce_and_spread(problem, {tree_node(n, problem.rank), renamed(tree_node(n, number), other)},
                           {chunks_of(0, half, problem.chunk_elements), chunks_of(half, problem.count - half, problem.chunk_elements)});
}

Schedule tree_broadcast(const Problem& problem) {
  Builder builder(problem);
  const Group group = everyone(problem, problem.root);
  const Node node = renamed(tree_node(group.size(), group.index), [&](std::uint32_t i) { return group.rank(i); });
  for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) { go_down(builder, node, offset, count, input_at(0)); });
  if (group.index == 0 && !problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
  return builder.finish();
}

Schedule tree_reduce(const Problem& problem) {
  if (problem.world == 1) return alone(problem);
  Builder builder(problem);
  const Group group = everyone(problem, problem.root);
  const Node node = renamed(tree_node(group.size(), group.index), [&](std::uint32_t i) { return group.rank(i); });
  Slots slots(builder, problem, problem.count, 1);
  Slots sums(builder, problem, problem.count, 1);
  for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
    go_up(builder, node, offset, count, sums.next(), slots);
  });
  return builder.finish();
}

}  // namespace stepccl::schedule
