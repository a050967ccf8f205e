// SPDX-License-Identifier: Apache-2.0
// Rabenseifner's algorithms: reduce-scatter by recursive halving, all-gather by recursive doubling.
#include <algorithm>
#include <bit>

#include "schedule/group.hpp"

namespace stepccl::schedule {
namespace {

// The ranks as a power of two of numbers: where n is none, the first 2(n - 2^k) ranks share a number in pairs.
struct Folding {
  std::uint32_t power;
  std::uint32_t pairs;  // the first numbers are pairs of ranks

  explicit Folding(std::uint32_t n) : power(std::bit_floor(n)), pairs(n - std::bit_floor(n)) {}
  [[nodiscard]] bool paired(std::uint32_t rank) const noexcept { return rank < 2 * pairs; }
  [[nodiscard]] std::uint32_t number_of(std::uint32_t rank) const noexcept { return paired(rank) ? rank / 2 : rank - pairs; }
  // The one that computes for the number: the upper one of a pair.
  [[nodiscard]] std::uint32_t rank_of(std::uint32_t number) const noexcept { return number < pairs ? 2 * number + 1 : number + pairs; }
  // The first rank of a number; numbers and ranks ascend together.
  [[nodiscard]] std::uint32_t first_rank(std::uint32_t number) const noexcept { return number < pairs ? 2 * number : number + pairs; }
};

// Ranges of elements of numbers [first, last), in pieces: f(place of the piece in the array, elements).
using Pieces = std::function<void(std::uint32_t first, std::uint32_t last, const std::function<void(std::uint64_t, std::uint64_t)>& f)>;

// Where a rank's part stands: in `from` until something was added to it, then in `sums`.
struct Parts {
  Place from;
  Place sums;
  bool added = false;
  [[nodiscard]] Place at_element(std::uint64_t element) const noexcept { return at(added ? sums : from, element); }
};

// Every number exchanges halves with a partner at distance power/2, power/4, ..., 1 and ends with its own range. The
// lower one's part stands left, so that the order of a sum does not depend on who computes it.
void halve(Builder& builder, const Folding& folding, std::uint32_t number, const Pieces& pieces, Parts& parts, Slots& slots, bool finish) {
  std::uint32_t first = 0;
  std::uint32_t last = folding.power;
  for (std::uint32_t distance = folding.power / 2; distance != 0; distance /= 2) {
    const std::uint32_t partner = folding.rank_of(number ^ distance);
    const bool upper = (number & distance) != 0;
    const std::uint32_t middle = first + distance;
    pieces(upper ? first : middle, upper ? middle : last,
           [&](std::uint64_t place, std::uint64_t count) { builder.send(partner, parts.at_element(place), count); });
    (upper ? first : last) = middle;
    pieces(first, last, [&](std::uint64_t place, std::uint64_t count) {
      const Place slot = slots.next();
      builder.recv(partner, slot, count);
      const Place own = parts.at_element(place);
      builder.reduce(at(parts.sums, place), upper ? slot : own, upper ? own : slot, count, finish && distance == 1);
    });
    parts.added = true;
  }
}

// The way back: ranges of the output double.
void double_up(Builder& builder, const Folding& folding, std::uint32_t number, const Pieces& pieces) {
  for (std::uint32_t distance = 1; distance < folding.power; distance *= 2) {
    const std::uint32_t partner = folding.rank_of(number ^ distance);
    const std::uint32_t mine = number & ~(distance - 1);
    const std::uint32_t theirs = mine ^ distance;
    pieces(mine, mine + distance, [&](std::uint64_t place, std::uint64_t count) { builder.send(partner, output_at(place), count); });
    pieces(theirs, theirs + distance, [&](std::uint64_t place, std::uint64_t count) { builder.recv(partner, output_at(place), count); });
  }
}

}  // namespace

Schedule halving_doubling_all_reduce(const Problem& problem) {
  Builder builder(problem);
  const std::uint32_t r = problem.rank;
  if (problem.world == 1) {
    if (!problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
    return builder.finish();
  }
  const Folding folding(problem.world);
  Slots slots(builder, problem, problem.count);
  const std::uint64_t chunk = slots.chunk();
  if (folding.paired(r) && r % 2 == 0) {
    for_chunks(problem.count, chunk, [&](std::uint64_t offset, std::uint64_t count) { builder.send(r + 1, input_at(offset), count); });
    for_chunks(problem.count, chunk, [&](std::uint64_t offset, std::uint64_t count) { builder.recv(r + 1, output_at(offset), count); });
    return builder.finish();
  }
  Parts parts{input_at(0), output_at(0)};
  if (folding.paired(r)) {
    for_chunks(problem.count, chunk, [&](std::uint64_t offset, std::uint64_t count) {
      const Place slot = slots.next();
      builder.recv(r - 1, slot, count);
      builder.reduce(output_at(offset), slot, input_at(offset), count, false);
    });
    parts.added = true;
  }
  const Pieces pieces = [&](std::uint32_t first, std::uint32_t last, const auto& f) {
    const std::uint64_t begin = segment_of(problem.count, folding.power, first).offset;
    const Segment end = segment_of(problem.count, folding.power, last - 1);
    for_chunks(end.offset + end.count - begin, chunk, [&](std::uint64_t offset, std::uint64_t count) { f(begin + offset, count); });
  };
  const std::uint32_t number = folding.number_of(r);
  halve(builder, folding, number, pieces, parts, slots, true);
  double_up(builder, folding, number, pieces);
  if (folding.paired(r)) {
    for_chunks(problem.count, chunk, [&](std::uint64_t offset, std::uint64_t count) { builder.send(r - 1, output_at(offset), count); });
  }
  return builder.finish();
}

// Recursive halving over the blocks. Partial sums stand in scratch as long as the array.
Schedule halving_doubling_reduce_scatter(const Problem& problem) {
  Builder builder(problem, 0, problem.block_at(problem.rank));
  const std::uint32_t n = problem.world;
  const std::uint32_t r = problem.rank;
  if (n == 1) {
    if (!problem.in_place) builder.copy(output_at(0), input_at(0), problem.count, false);
    return builder.finish();
  }
  const Folding folding(n);
  const std::uint64_t longest = problem.packed() ? problem.count * n : problem.count;
  const std::uint64_t chunk = std::min(problem.chunk_elements, std::max<std::uint64_t>(1, longest));
  // Blocks [first, last), in runs that stand together in the caller's array.
  const auto blocks = [&](std::uint32_t first, std::uint32_t last, const std::function<void(std::uint64_t, std::uint64_t)>& f) {
    const std::uint64_t run = problem.packed() ? (last - first) * problem.count : problem.count;
    for (std::uint32_t block = first; block < last; block += problem.packed() ? last - first : 1) {
      for_chunks(run, chunk, [&](std::uint64_t offset, std::uint64_t count) { f(problem.block_at(block) + offset, count); });
    }
  };
  if (folding.paired(r) && r % 2 == 0) {
    blocks(0, n, [&](std::uint64_t place, std::uint64_t count) { builder.send(r + 1, input_at(place), count); });
    for_chunks(problem.count, chunk, [&](std::uint64_t offset, std::uint64_t count) { builder.recv(r + 1, output_at(offset), count); });
    return builder.finish();
  }
  const Place sums = builder.scratch(problem.count == 0 ? 0 : problem.block_at(n - 1) + problem.count);
  Slots slots(builder, problem, longest);
  Parts parts{input_at(0), sums};
  if (folding.paired(r)) {
    const bool last_sum = folding.power == 1;
    blocks(0, n, [&](std::uint64_t place, std::uint64_t count) {
      const Place slot = slots.next();
      builder.recv(r - 1, slot, count);
      builder.reduce(at(sums, place), slot, input_at(place), count, last_sum);
    });
    parts.added = true;
  }
  const std::uint32_t number = folding.number_of(r);
  const Pieces pieces = [&](std::uint32_t first, std::uint32_t last, const auto& f) {
    blocks(folding.first_rank(first), folding.first_rank(last), f);
  };
  halve(builder, folding, number, pieces, parts, slots, true);
  builder.copy(output_at(0), at(sums, problem.block_at(r)), problem.count, false);
  if (folding.paired(r)) {
    for_chunks(problem.count, chunk, [&](std::uint64_t offset, std::uint64_t count) {
      builder.send(r - 1, at(sums, problem.block_at(r - 1) + offset), count);
    });
  }
  return builder.finish();
}

}  // namespace stepccl::schedule
