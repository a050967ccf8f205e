// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/clock.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace stepccl {

// CLOCK_MONOTONIC at less than half its price, for one thread at a time: counts the CPU's ticks from a reading that is at most
// some milliseconds old, with the rate of the readings before it. Off by well under a microsecond; never goes back. Where the
// ticks are not of constant rate every call is a reading.
class TickClock {
 public:
  [[nodiscard]] std::uint64_t now_ns() noexcept {
#if defined(__x86_64__)
    if (constant_) {
      const std::uint64_t passed = __rdtsc() - ticks_;
      if (passed < fresh_) return last_ns_ = later(ns_ + static_cast<std::uint64_t>(static_cast<double>(passed) * ns_per_tick_));
      return last_ns_ = later(read());
    }
#endif
    return monotonic_ns();
  }

 private:
  static constexpr std::uint64_t kFreshTicks = 10'000'000;     // 2 to 5 ms
  static constexpr std::uint64_t kBaselineNs = 1'000'000;      // of two readings that a rate is taken from
  static constexpr std::uint64_t kMostBaselineNs = 1'000'000'000;

  [[nodiscard]] std::uint64_t later(std::uint64_t ns) const noexcept { return ns > last_ns_ ? ns : last_ns_; }

#if defined(__x86_64__)
  static bool has_constant_ticks() noexcept {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    return __get_cpuid(0x80000007u, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;  // invariant TSC
  }

  std::uint64_t read() noexcept {
    const std::uint64_t ns = monotonic_ns();
    const std::uint64_t ticks = __rdtsc();
    const std::uint64_t between = ns - ns_;
    if (ns_ == 0 || between >= kBaselineNs) {
      // After a long pause the CPU may have been suspended, and the rate of that time says nothing.
      if (ns_ != 0 && between <= kMostBaselineNs && ticks > ticks_) {
        ns_per_tick_ = static_cast<double>(between) / static_cast<double>(ticks - ticks_);
        fresh_ = kFreshTicks;
      }
      ns_ = ns;
      ticks_ = ticks;
    }
    return ns;
  }

  bool constant_ = has_constant_ticks();
  std::uint64_t ticks_ = 0;  // at the reading ns_
  std::uint64_t fresh_ = 0;  // ticks after it that are counted from it
  double ns_per_tick_ = 0;
  std::uint64_t ns_ = 0;
#endif
  std::uint64_t last_ns_ = 0;
};

}  // namespace stepccl
