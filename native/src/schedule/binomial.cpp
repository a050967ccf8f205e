// SPDX-License-Identifier: Apache-2.0
// Binomial trees: number i's children are i + 1, i + 2, i + 4, ... below its lowest set bit, and the subtree of i + m is
// the m numbers from there on. Numbers count from the root.
#include <algorithm>
#include <bit>

#include "schedule/group.hpp"

namespace stepccl::schedule {
namespace {

// Distances to the children, from the largest subtree to the smallest.
std::vector<std::uint32_t> child_distances(std::uint32_t n, std::uint32_t i) {
  std::vector<std::uint32_t> list;
  const std::uint32_t below = i == 0 ? std::bit_ceil(n) : i & (~i + 1);
  for (std::uint32_t distance = below / 2; distance != 0; distance /= 2) {
    if (i + distance < n) list.push_back(distance);
  }
  return list;
}

std::uint32_t parent_of(std::uint32_t i) { return i & (i - 1); }

// Blocks of numbers [first, last) as they stand one after another in the root's array: where the ranks wrap around, and
// where blocks have gaps between them, a new run begins. f(rank of the run's first block, number of it, elements).
void runs(const Problem& problem, std::uint32_t first, std::uint32_t last, const std::function<void(std::uint32_t, std::uint32_t, std::uint64_t)>& f) {
  for (std::uint32_t number = first; number < last;) {
    const std::uint32_t rank = (problem.root + number) % problem.world;
    const std::uint32_t length = problem.packed() ? std::min(last - number, problem.world - rank) : 1;
    f(rank, number, length * problem.count);
    number += length;
  }
}

}  // namespace

Schedule binomial_broadcast(const Problem& problem) {
  Builder builder(problem);
  const Group group = everyone(problem, problem.root);
  const auto children = child_distances(group.size(), group.index);
  for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
    if (group.index != 0) builder.recv(group.rank(parent_of(group.index)), output_at(offset), count);
    for (const std::uint32_t distance : children) {
      builder.send(group.rank(group.index + distance), group.index == 0 ? input_at(offset) : output_at(offset), count);
    }
  });
  if (group.index == 0 && !problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
  return builder.finish();
}

// The smallest subtrees come first: they are done first.
Schedule binomial_reduce(const Problem& problem) {
  Builder builder(problem);
  const Group group = everyone(problem, problem.root);
  if (group.size() == 1) {
    if (!problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
    return builder.finish();
  }
  auto children = child_distances(group.size(), group.index);
  std::reverse(children.begin(), children.end());
  Slots slots(builder, problem, problem.count);
  Slots sums(builder, problem, problem.count);
  for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
    Place part = input_at(offset);
    const Place sum = children.empty() ? part : sums.next();
    for (const std::uint32_t distance : children) {
      const Place slot = slots.next();
      builder.recv(group.rank(group.index + distance), slot, count);
      const bool last = group.index == 0 && distance == children.back();
      const Place target = last ? output_at(offset) : sum;
      builder.reduce(target, part, slot, count, last);
      part = target;
    }
    if (group.index != 0) builder.send(group.rank(parent_of(group.index)), part, count);
  });
  return builder.finish();
}

Schedule binomial_scatter(const Problem& problem) {
  Builder builder(problem, 0, problem.block_at(problem.root));
  const std::uint32_t n = problem.world;
  const Group group = everyone(problem, problem.root);
  const std::uint32_t i = group.index;
  const auto children = child_distances(n, i);
  const std::uint32_t held = children.empty() ? 1 : std::min(2 * children.front(), n - i);  // blocks of the own subtree
  // Number x of the subtree stands at (x - i) blocks in scratch; the own block goes to the output at once.
  const Place subtree = builder.scratch(i == 0 || held == 1 ? 0 : (held - 1) * problem.count);
  const auto held_at = [&](std::uint32_t number) { return at(subtree, (number - i - 1) * problem.count); };
  if (i != 0) {
    const std::uint32_t parent = group.rank(parent_of(i));
    for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) { builder.recv(parent, output_at(offset), count); });
    runs(problem, i + 1, i + held, [&](std::uint32_t, std::uint32_t number, std::uint64_t elements) {
      for_chunks(elements, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) { builder.recv(parent, at(held_at(number), offset), count); });
    });
  }
  for (const std::uint32_t distance : children) {
    const std::uint32_t child = i + distance;
    const std::uint32_t last = std::min(child + distance, n);
    const auto block = [&](std::uint32_t rank, std::uint32_t number) { return i == 0 ? input_at(problem.block_at(rank)) : held_at(number); };
    for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
      builder.send(group.rank(child), at(block(group.rank(child), child), offset), count);
    });
    runs(problem, child + 1, last, [&](std::uint32_t rank, std::uint32_t number, std::uint64_t elements) {
      for_chunks(elements, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
        builder.send(group.rank(child), at(block(rank, number), offset), count);
      });
    });
  }
  if (i == 0 && !problem.in_place) builder.copy(output_at(0), input_at(problem.block_at(problem.root)), problem.count, false);
  return builder.finish();
}

// The same way back.
Schedule binomial_gather(const Problem& problem) {
  Builder builder(problem, problem.block_at(problem.root), 0);
  const std::uint32_t n = problem.world;
  const Group group = everyone(problem, problem.root);
  const std::uint32_t i = group.index;
  auto children = child_distances(n, i);
  const std::uint32_t held = children.empty() ? 1 : std::min(2 * children.front(), n - i);
  std::reverse(children.begin(), children.end());
  const Place subtree = builder.scratch(i == 0 || held == 1 ? 0 : (held - 1) * problem.count);
  const auto held_at = [&](std::uint32_t number) { return at(subtree, (number - i - 1) * problem.count); };
  for (const std::uint32_t distance : children) {
    const std::uint32_t child = i + distance;
    const std::uint32_t last = std::min(child + distance, n);
    const auto block = [&](std::uint32_t rank, std::uint32_t number) { return i == 0 ? output_at(problem.block_at(rank)) : held_at(number); };
    for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
      builder.recv(group.rank(child), at(block(group.rank(child), child), offset), count);
    });
    runs(problem, child + 1, last, [&](std::uint32_t rank, std::uint32_t number, std::uint64_t elements) {
      for_chunks(elements, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) {
        builder.recv(group.rank(child), at(block(rank, number), offset), count);
      });
    });
  }
  if (i != 0) {
    const std::uint32_t parent = group.rank(parent_of(i));
    for_chunks(problem.count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) { builder.send(parent, input_at(offset), count); });
    runs(problem, i + 1, i + held, [&](std::uint32_t, std::uint32_t number, std::uint64_t elements) {
      for_chunks(elements, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) { builder.send(parent, at(held_at(number), offset), count); });
    });
  } else if (!problem.in_place) {
    builder.copy(output_at(problem.block_at(problem.root)), input_at(0), problem.count, false);
  }
  return builder.finish();
}

}  // namespace stepccl::schedule
