// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "schedule/group.hpp"

namespace stepccl::schedule {
namespace {

// Chunks of a block that pass all rounds together before the next ones begin. Part of the order of messages, so not
// the pipeline depth, in which ranks may differ.
constexpr std::uint64_t kWindow = 8;

}  // namespace

// Reduce-scatter around the ring, then all-gather around it: 2(n-1) rounds of S/n, so 2(n-1)/n S bytes each way.
Schedule ring_all_reduce(const Problem& problem) {
  Builder builder(problem);
  const std::uint32_t n = problem.world;
  if (n == 1) {
    if (!problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
    return builder.finish();
  }
  const Group ring = everyone(problem);
  const auto segment = [&](std::uint32_t i) { return segment_of(problem.count, n, i); };
  Slots slots(builder, problem, (problem.count + n - 1) / n);
  ring_reduce_scatter(builder, ring, segment, input_at(0), output_at(0), slots, true);
  ring_all_gather(builder, ring, segment, output_at(segment(ring.index).offset), output_at(0), slots.chunk());
  return builder.finish();
}

Schedule ring_all_gather(const Problem& problem) {
  Builder builder(problem, problem.block_at(problem.rank), 0);
  if (!problem.in_place) builder.copy(output_at(problem.block_at(problem.rank)), input_at(0), problem.count, false);
  const auto block = [&](std::uint32_t i) { return Segment{problem.block_at(i), problem.count}; };
  ring_all_gather(builder, everyone(problem), block, input_at(0), output_at(0), problem.chunk_elements);
  return builder.finish();
}

// Partial sums travel through scratch: a block of the output has room for the own sum alone.
Schedule ring_reduce_scatter(const Problem& problem) {
  Builder builder(problem, 0, problem.block_at(problem.rank));
  const std::uint32_t n = problem.world;
  const std::uint32_t r = problem.rank;
  if (n == 1) {
    if (!problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
    return builder.finish();
  }
  const std::uint64_t chunk = std::min(problem.chunk_elements, std::max<std::uint64_t>(1, problem.count));
  const std::uint64_t window = std::min(chunk * kWindow, problem.count);
  const Place sums[2] = {builder.scratch(window), builder.scratch(window)};  // of this round and of the one before
  for_chunks(problem.count, std::max<std::uint64_t>(1, window), [&](std::uint64_t begin, std::uint64_t length) {
    for (std::uint32_t k = 0; k + 1 < n; ++k) {
      const std::uint64_t out = problem.block_at((r + 2 * n - 1 - k) % n) + begin;
      const std::uint64_t in = problem.block_at((r + 2 * n - 2 - k) % n) + begin;
      const bool last = k + 2 == n;
      const Place now = sums[k % 2];
      for_chunks(length, chunk, [&](std::uint64_t offset, std::uint64_t count) {
        builder.send((r + 1) % n, k == 0 ? input_at(out + offset) : at(sums[(k + 1) % 2], offset), count);
      });
      for_chunks(length, chunk, [&](std::uint64_t offset, std::uint64_t count) {
        builder.recv((r + n - 1) % n, at(now, offset), count);
        builder.reduce(last ? output_at(begin + offset) : at(now, offset), at(now, offset), input_at(in + offset), count, last);
      });
    }
  });
  return builder.finish();
}

// Scatter of n segments from the root, then all-gather around the ring (van de Geijn): each byte leaves the root once.
Schedule ring_broadcast(const Problem& problem) {
  Builder builder(problem);
  const std::uint32_t n = problem.world;
  const Group ring = everyone(problem, problem.root);
  const std::uint32_t i = ring.index;
  const auto segment = [&](std::uint32_t s) { return segment_of(problem.count, n, s); };
  const auto chunks = [&](std::uint32_t s, auto&& f) {
    for_chunks(segment(s).count, problem.chunk_elements, [&](std::uint64_t offset, std::uint64_t count) { f(segment(s).offset + offset, count); });
  };
  if (i == 0) {
    for (std::uint32_t s = 1; s < n; ++s) chunks(s, [&](std::uint64_t place, std::uint64_t count) { builder.send(ring.rank(s), input_at(place), count); });
    if (!problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
  } else {
    chunks(i, [&](std::uint64_t place, std::uint64_t count) { builder.recv(problem.root, output_at(place), count); });
  }
  // Nothing goes back to the root, and nobody sends on what the next one has from the root.
  for (std::uint32_t k = 0; k + 1 < n; ++k) {
    const std::uint32_t out = (i + n - k) % n;
    const std::uint32_t in = (i + 2 * n - 1 - k) % n;
    if (i + 1 < n) {
      chunks(out, [&](std::uint64_t place, std::uint64_t count) { builder.send(ring.rank(i + 1), i == 0 ? input_at(place) : output_at(place), count); });
    }
    if (i != 0) chunks(in, [&](std::uint64_t place, std::uint64_t count) { builder.recv(ring.rank(i - 1), output_at(place), count); });
  }
  return builder.finish();
}

}  // namespace stepccl::schedule
