// SPDX-License-Identifier: Apache-2.0
// Which steps of a schedule may run now. Shared by the engine, the model and the tests' executor.
#pragma once

#include <optional>

#include "schedule/schedule.hpp"

namespace stepccl::schedule {

class Tracker {
 public:
  explicit Tracker(const Schedule& schedule);

  // A reduce or copy that may run now, each handed out once.
  [[nodiscard]] std::optional<std::uint32_t> next_local();
  // The next send or receive of a lane, if it may be posted now; each is handed out once, in the lane's order.
  [[nodiscard]] std::optional<std::uint32_t> next_posted(std::size_t lane);
  // A step that was handed out is done.
  void complete(std::uint32_t step);

  [[nodiscard]] bool done() const noexcept { return remaining_ == 0; }
  [[nodiscard]] std::size_t remaining() const noexcept { return remaining_; }
  // The peers with an unfinished send or receive; for error texts.
  [[nodiscard]] std::vector<std::uint32_t> waiting_for() const;

 private:
  const Schedule& schedule_;
  std::vector<std::uint32_t> blockers_;
  std::vector<std::uint32_t> local_;  // ready reduce and copy steps
  std::size_t local_next_ = 0;
  std::vector<std::size_t> cursors_;  // by lane
  std::vector<bool> finished_;
  std::size_t remaining_;
};

}  // namespace stepccl::schedule
