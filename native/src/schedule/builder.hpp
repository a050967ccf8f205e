// SPDX-License-Identifier: Apache-2.0
// Collects steps in program order; finish() derives who must wait for whom from the ranges they touch,
// so that a generator only has to be right when it is executed one step after another.
#pragma once

#include <optional>
#include <utility>

#include "schedule/schedule.hpp"

namespace stepccl::schedule {

class Builder {
 public:
  // In place, element i of the input is the memory of element i + input_shift - output_shift of the output.
  explicit Builder(const Problem& problem, std::uint64_t input_shift = 0, std::uint64_t output_shift = 0)
      : in_place_(problem.in_place), input_shift_(input_shift), output_shift_(output_shift) {}

  // A step of no elements is left out: nothing is returned.
  std::optional<std::uint32_t> send(std::uint32_t peer, Place from, std::uint64_t count);
  std::optional<std::uint32_t> recv(std::uint32_t peer, Place to, std::uint64_t count);
  void reduce(Place target, Place left, Place right, std::uint64_t count, bool finish);
  void copy(Place target, Place from, std::uint64_t count, bool finish);

  // `later` starts after `earlier` has ended, beyond what their ranges demand.
  void order(std::optional<std::uint32_t> earlier, std::optional<std::uint32_t> later);

  // A new range of scratch that nothing else uses.
  [[nodiscard]] Place scratch(std::uint64_t elements);

  [[nodiscard]] Schedule finish();

 private:
  const bool in_place_;
  const std::uint64_t input_shift_;
  const std::uint64_t output_shift_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> orders_;  // later, earlier
  Schedule schedule_;
};

[[nodiscard]] constexpr Place input_at(std::uint64_t offset) noexcept { return {Buffer::input, offset}; }
[[nodiscard]] constexpr Place output_at(std::uint64_t offset) noexcept { return {Buffer::output, offset}; }
[[nodiscard]] constexpr Place at(Place base, std::uint64_t offset) noexcept { return {base.buffer, base.offset + offset}; }

// Chunks of a range, in order: call f(offset, count) for each.
template <class F>
void for_chunks(std::uint64_t count, std::uint64_t chunk, F&& f) {
  for (std::uint64_t offset = 0; offset < count; offset += chunk) f(offset, count - offset < chunk ? count - offset : chunk);
}

// A ring of receive slots in scratch, `depth` chunks long.
class Slots {
 public:
  Slots(Builder& builder, const Problem& problem, std::uint64_t longest, std::uint32_t width = 1)
      : chunk_(longest < problem.chunk_elements ? longest : problem.chunk_elements),
        slot_(chunk_ * width),
        depth_(problem.depth),
        base_(builder.scratch(slot_ * problem.depth)) {}

  // The largest chunk.
  [[nodiscard]] std::uint64_t chunk() const noexcept { return chunk_ == 0 ? 1 : chunk_; }
  // The next slot; with a width, its parts follow each other.
  [[nodiscard]] Place next() noexcept { return at(base_, (used_++ % depth_) * slot_); }

 private:
  std::uint64_t chunk_;
  std::uint64_t slot_;
  std::uint64_t depth_;
  Place base_;
  std::uint64_t used_ = 0;
};

}  // namespace stepccl::schedule
