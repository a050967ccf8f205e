// SPDX-License-Identifier: Apache-2.0
// Which steps of a schedule may run now. Shared by the engine, the model and the tests' executor.
#pragma once

#include <optional>

#include "schedule/schedule.hpp"

namespace stepccl::schedule {

class Tracker {
 public:
  Tracker() = default;
  explicit Tracker(const Schedule& schedule) { reset(schedule); }

  // Begins anew with a schedule, which must outlive the run. Keeps its memory, so that nothing is allocated for a
  // schedule no longer than an earlier one.
  void reset(const Schedule& schedule);

  // A reduce or copy that may run now, each handed out once.
  [[nodiscard]] std::optional<std::uint32_t> next_local() {
    if (local_next_ == local_.size()) return std::nullopt;
    return local_[local_next_++];
  }
  // The next send or receive of a lane, if it may be posted now; each is handed out once, in the lane's order.
  [[nodiscard]] std::optional<std::uint32_t> next_posted(std::size_t lane) {
    const auto step = may_post(lane);
    if (step) --unposted_, ++cursors_[lane];
    return step;
  }
  // What next_posted would hand out.
  [[nodiscard]] std::optional<std::uint32_t> may_post(std::size_t lane) const {
    const auto& steps = schedule_->lanes[lane].steps;
    const std::size_t cursor = cursors_[lane];
    if (cursor == steps.size() || blockers_[steps[cursor]] != 0) return std::nullopt;
    return steps[cursor];
  }
  // Whether every step of a lane, or of all lanes, has been handed out.
  [[nodiscard]] bool posted(std::size_t lane) const noexcept { return cursors_[lane] == schedule_->lanes[lane].steps.size(); }
  [[nodiscard]] bool all_posted() const noexcept { return unposted_ == 0; }
  // A step that was handed out is done.
  void complete(std::uint32_t step);

  [[nodiscard]] bool done() const noexcept { return remaining_ == 0; }
  [[nodiscard]] std::size_t remaining() const noexcept { return remaining_; }
  [[nodiscard]] const Schedule& schedule() const noexcept { return *schedule_; }
  // The peers with an unfinished send or receive; for error texts.
  [[nodiscard]] std::vector<std::uint32_t> waiting_for() const;

 private:
  const Schedule* schedule_ = nullptr;
  std::vector<std::uint32_t> blockers_;
  std::vector<std::uint32_t> local_;  // ready reduce and copy steps
  std::size_t local_next_ = 0;
  std::vector<std::size_t> cursors_;  // by lane
  std::vector<std::uint8_t> finished_;
  std::size_t remaining_ = 0;
  std::size_t unposted_ = 0;
};

}  // namespace stepccl::schedule
