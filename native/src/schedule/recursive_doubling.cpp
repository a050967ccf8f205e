// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "schedule/builder.hpp"

namespace stepccl::schedule {

// lg n exchanges of the whole array. Where n is no power of two, the first 2(n - 2^k) ranks fold in pairs before and
// unfold after. The lower ranks' part always stands left, so both partners compute the same bits.
Schedule recursive_doubling_all_reduce(const Problem& problem) {
  Builder builder(problem);
  const std::uint32_t n = problem.world;
  const std::uint32_t r = problem.rank;
  if (n == 1) {
    if (!problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
    return builder.finish();
  }
  const std::uint32_t power = std::bit_floor(n);
  const std::uint32_t folded = n - power;  // this many pairs fold
  const std::uint64_t chunk = std::min(problem.chunk_elements, std::max<std::uint64_t>(1, problem.count));

  if (r < 2 * folded && r % 2 == 0) {  // hands its part to r + 1 and waits for the result
    for_chunks(problem.count, chunk, [&](std::uint64_t offset, std::uint64_t count) {
      builder.send(r + 1, input_at(offset), count);
    });
    for_chunks(problem.count, chunk, [&](std::uint64_t offset, std::uint64_t count) {
      builder.recv(r + 1, output_at(offset), count);
    });
    return builder.finish();
  }

  const Place slots = builder.scratch(problem.count == 0 ? 0 : chunk * problem.depth);
  std::uint64_t used = 0;
  bool touched = false;  // output holds a partial sum; before that the part is still in input
  const auto mine = [&](std::uint64_t offset) { return touched ? output_at(offset) : input_at(offset); };

  if (r < 2 * folded) {
    for_chunks(problem.count, chunk, [&](std::uint64_t offset, std::uint64_t count) {
      const Place slot = at(slots, (used++ % problem.depth) * chunk);
      builder.recv(r - 1, slot, count);
      builder.reduce(output_at(offset), slot, input_at(offset), count, false);
    });
    touched = true;
  }
  const std::uint32_t index = r < 2 * folded ? r / 2 : r - folded;
  const auto rank_of = [&](std::uint32_t i) { return i < folded ? 2 * i + 1 : i + folded; };
  for (std::uint32_t distance = 1; distance < power; distance *= 2) {
    const std::uint32_t partner = rank_of(index ^ distance);
    const bool last = distance * 2 == power;
    for_chunks(problem.count, chunk, [&](std::uint64_t offset, std::uint64_t count) {
      const Place slot = at(slots, (used++ % problem.depth) * chunk);
      builder.send(partner, mine(offset), count);
      builder.recv(partner, slot, count);
      const bool lower = r < partner;
      builder.reduce(output_at(offset), lower ? mine(offset) : slot, lower ? slot : mine(offset), count, last);
    });
    touched = true;
  }
  if (r < 2 * folded) {
    for_chunks(problem.count, chunk, [&](std::uint64_t offset, std::uint64_t count) {
      builder.send(r - 1, output_at(offset), count);
    });
  }
  return builder.finish();
}

}  // namespace stepccl::schedule
