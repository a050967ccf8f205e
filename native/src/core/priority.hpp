// SPDX-License-Identifier: Apache-2.0
// How operations of different priority share the links of a process.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "stepccl/stepccl.h"

namespace stepccl {

// Which priorities have an operation that runs, over all communicators of the process.
class PriorityGate {
 public:
  static void enter(std::uint32_t priority) noexcept { running(priority).fetch_add(1, std::memory_order_relaxed); }
  static void leave(std::uint32_t priority) noexcept { running(priority).fetch_sub(1, std::memory_order_relaxed); }
  // Whether something more urgent runs.
  [[nodiscard]] static bool must_yield(std::uint32_t priority) noexcept {
    if (priority == STEPCCL_PRIORITY_HIGH) return false;
    if (running(STEPCCL_PRIORITY_HIGH).load(std::memory_order_relaxed) != 0) return true;
    return priority == STEPCCL_PRIORITY_LOW && running(STEPCCL_PRIORITY_NORMAL).load(std::memory_order_relaxed) != 0;
  }

 private:
  static std::atomic<std::uint32_t>& running(std::uint32_t priority) noexcept {
    static std::atomic<std::uint32_t> counts[STEPCCL_PRIORITY_LEVELS];
    return counts[priority];
  }
};

// Bytes per time, with a burst of a millisecond's worth or one message.
class Budget {
 public:
  // 0 = no limit.
  void set_rate(std::uint32_t megabytes_per_second) noexcept { bytes_per_us_ = megabytes_per_second; }
  [[nodiscard]] bool limited() const noexcept { return bytes_per_us_ != 0; }
  // Whether a message may leave now; it may overdraw, and the next one waits until that is made up for.
  [[nodiscard]] bool take(std::uint64_t bytes, std::uint64_t now_ns) noexcept {
    const double earned = static_cast<double>(now_ns - last_ns_) * 1e-3 * bytes_per_us_;
    last_ns_ = now_ns;
    credit_ = std::min(credit_ + earned, 1000.0 * bytes_per_us_);
    if (credit_ < 0) return false;
    credit_ -= static_cast<double>(bytes);
    return true;
  }

 private:
  std::uint32_t bytes_per_us_ = 0;  // decimal MB/s is the same figure
  double credit_ = 0;
  std::uint64_t last_ns_ = 0;
};

}  // namespace stepccl
