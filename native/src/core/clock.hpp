// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>

namespace stepccl {

[[nodiscard]] inline std::uint64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

// A point in time by which something must be done.
class Deadline {
 public:
  [[nodiscard]] static Deadline after_ms(std::uint64_t ms) noexcept { return Deadline(monotonic_ns() + ms * 1'000'000u); }

  [[nodiscard]] bool passed() const noexcept { return monotonic_ns() >= at_ns_; }
  // What is left, rounded up to whole ms, at most `limit`: fit for poll().
  [[nodiscard]] int left_ms(int limit = 1'000'000) const noexcept {
    const std::uint64_t now = monotonic_ns();
    if (now >= at_ns_) return 0;
    return static_cast<int>(std::min<std::uint64_t>((at_ns_ - now + 999'999u) / 1'000'000u, static_cast<std::uint64_t>(limit)));
  }

 private:
  explicit Deadline(std::uint64_t at_ns) noexcept : at_ns_(at_ns) {}
  std::uint64_t at_ns_;
};

}  // namespace stepccl
