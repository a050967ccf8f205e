// SPDX-License-Identifier: Apache-2.0
// Collects steps in program order; finish() derives who must wait for whom from the ranges they touch,
// so that a generator only has to be right when it is executed one step after another.
#pragma once

#include "schedule/schedule.hpp"

namespace stepccl::schedule {

class Builder {
 public:
  explicit Builder(const Problem& problem) : problem_(problem) {}

  // A step of no elements is left out.
  void send(std::uint32_t peer, Place from, std::uint64_t count);
  void recv(std::uint32_t peer, Place to, std::uint64_t count);
  void reduce(Place target, Place left, Place right, std::uint64_t count, bool finish);
  void copy(Place target, Place from, std::uint64_t count, bool finish);

  // A new range of scratch that nothing else uses.
  [[nodiscard]] Place scratch(std::uint64_t elements);

  [[nodiscard]] Schedule finish();

 private:
  const Problem problem_;
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

}  // namespace stepccl::schedule
