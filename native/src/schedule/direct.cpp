// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "schedule/builder.hpp"

namespace stepccl::schedule {
namespace {

// Sums the parts of all ranks, in rank order, into output[begin, begin + count). parts(p) is where rank p's part
// stands; `sum` is scratch for the running total, since output may be this rank's own input.
template <class Parts>
void sum_in_rank_order(Builder& builder, std::uint32_t world, Parts&& parts, Place sum, std::uint64_t begin, std::uint64_t count) {
  Place left = parts(0);
  for (std::uint32_t p = 1; p < world; ++p) {
    const bool last = p + 1 == world;
    const Place target = last ? output_at(begin) : sum;
    builder.reduce(target, left, parts(p), count, last);
    left = target;
  }
}

}  // namespace

// Everyone sends its whole array to everyone and adds all of them in rank order: one exchange, (n-1) S bytes.
Schedule direct_one_shot_all_reduce(const Problem& problem) {
  Builder builder(problem);
  const std::uint32_t n = problem.world;
  const std::uint32_t r = problem.rank;
  if (n == 1) {
    if (!problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
    return builder.finish();
  }
  const std::uint64_t chunk = std::min(problem.chunk_elements, std::max<std::uint64_t>(1, problem.count));
  const std::uint64_t slot_elements = problem.count == 0 ? 0 : chunk * n;
  const Place slots = builder.scratch(slot_elements * problem.depth);
  std::uint64_t used = 0;
  for_chunks(problem.count, chunk, [&](std::uint64_t offset, std::uint64_t count) {
    const Place slot = at(slots, (used++ % problem.depth) * slot_elements);
    for (std::uint32_t k = 1; k < n; ++k) builder.send((r + k) % n, input_at(offset), count);
    for (std::uint32_t k = 1; k < n; ++k) {
      const std::uint32_t peer = (r + n - k) % n;
      builder.recv(peer, at(slot, peer * chunk), count);
    }
    const auto part = [&](std::uint32_t p) { return p == r ? input_at(offset) : at(slot, p * chunk); };
    sum_in_rank_order(builder, n, part, at(slot, r * chunk), offset, count);
  });
  return builder.finish();
}

// Rank s gets everyone's segment s, adds in rank order and sends the sum to all: two exchanges, 2(n-1)/n S bytes.
Schedule direct_two_shot_all_reduce(const Problem& problem) {
  Builder builder(problem);
  const std::uint32_t n = problem.world;
  const std::uint32_t r = problem.rank;
  if (n == 1) {
    if (!problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
    return builder.finish();
  }
  const std::uint64_t longest = (problem.count + n - 1) / n;
  const std::uint64_t chunk = std::min(problem.chunk_elements, std::max<std::uint64_t>(1, longest));
  const std::uint64_t slot_elements = problem.count == 0 ? 0 : chunk * n;
  const Place slots = builder.scratch(slot_elements * problem.depth);
  std::uint64_t used = 0;
  const auto piece = [&](std::uint32_t s, std::uint64_t offset) {
    const Segment whole = segment_of(problem.count, n, s);
    if (offset >= whole.count) return Segment{whole.offset, 0};
    return Segment{whole.offset + offset, std::min(chunk, whole.count - offset)};
  };
  const auto gather_sums = [&](std::uint64_t offset) {
    const Segment own = piece(r, offset);
    for (std::uint32_t k = 1; k < n; ++k) builder.send((r + k) % n, output_at(own.offset), own.count);
    for (std::uint32_t k = 1; k < n; ++k) {
      const std::uint32_t peer = (r + n - k) % n;
      const Segment theirs = piece(peer, offset);
      builder.recv(peer, output_at(theirs.offset), theirs.count);
    }
  };
  // Chunk by chunk of all segments together. The second exchange of a chunk stands behind the first one of the next
  // chunk, so that a message is always under way while a sum is computed.
  for_chunks(longest, chunk, [&](std::uint64_t offset, std::uint64_t) {
    const Segment own = piece(r, offset);
    const Place slot = at(slots, (used++ % problem.depth) * slot_elements);
    for (std::uint32_t k = 1; k < n; ++k) {
      const std::uint32_t peer = (r + k) % n;
      const Segment theirs = piece(peer, offset);
      builder.send(peer, input_at(theirs.offset), theirs.count);
    }
    for (std::uint32_t k = 1; k < n; ++k) {
      const std::uint32_t peer = (r + n - k) % n;
      builder.recv(peer, at(slot, peer * chunk), own.count);
    }
    const auto part = [&](std::uint32_t p) { return p == r ? input_at(own.offset) : at(slot, p * chunk); };
    sum_in_rank_order(builder, n, part, at(slot, r * chunk), own.offset, own.count);
    if (offset != 0) gather_sums(offset - chunk);
  });
  if (longest != 0) gather_sums((longest - 1) / chunk * chunk);
  return builder.finish();
}

}  // namespace stepccl::schedule
