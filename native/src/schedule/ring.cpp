// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "schedule/builder.hpp"

namespace stepccl::schedule {

// Reduce-scatter around the ring, then all-gather around it: 2(n-1) rounds of S/n, so 2(n-1)/n S bytes each way.
// Segment s is summed in the order s, s+1, ..., s-1, once, and handed round: the same bits everywhere.
Schedule ring_all_reduce(const Problem& problem) {
  Builder builder(problem);
  const std::uint32_t n = problem.world;
  const std::uint32_t r = problem.rank;
  if (n == 1) {
    if (!problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
    return builder.finish();
  }
  const std::uint32_t next = (r + 1) % n;
  const std::uint32_t previous = (r + n - 1) % n;
  const auto segment = [&](std::uint32_t k) { return segment_of(problem.count, n, (r + 2 * n - k) % n); };

  const std::uint64_t chunk = std::min(problem.chunk_elements, std::max<std::uint64_t>(1, (problem.count + n - 1) / n));
  const Place slots = builder.scratch(problem.count == 0 ? 0 : chunk * problem.depth);
  std::uint64_t used = 0;

  for (std::uint32_t k = 0; k + 1 < n; ++k) {
    const Segment out = segment(k);
    const Segment in = segment(k + 1);
    for_chunks(out.count, chunk, [&](std::uint64_t offset, std::uint64_t count) {
      const std::uint64_t at_element = out.offset + offset;
      builder.send(next, k == 0 ? input_at(at_element) : output_at(at_element), count);
    });
    for_chunks(in.count, chunk, [&](std::uint64_t offset, std::uint64_t count) {
      const Place slot = at(slots, (used++ % problem.depth) * chunk);
      const std::uint64_t at_element = in.offset + offset;
      builder.recv(previous, slot, count);
      builder.reduce(output_at(at_element), slot, input_at(at_element), count, k + 2 == n);
    });
  }
  for (std::uint32_t k = 0; k + 1 < n; ++k) {
    const Segment out = segment_of(problem.count, n, (r + 1 + n - k) % n);
    const Segment in = segment_of(problem.count, n, (r + n - k) % n);
    for_chunks(out.count, chunk, [&](std::uint64_t offset, std::uint64_t count) {
      builder.send(next, output_at(out.offset + offset), count);
    });
    for_chunks(in.count, chunk, [&](std::uint64_t offset, std::uint64_t count) {
      builder.recv(previous, output_at(in.offset + offset), count);
    });
  }
  return builder.finish();
}

}  // namespace stepccl::schedule
