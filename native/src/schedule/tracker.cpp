// SPDX-License-Identifier: Apache-2.0
#include "schedule/tracker.hpp"

#include <algorithm>

namespace stepccl::schedule {

void Tracker::reset(const Schedule& schedule) {
  schedule_ = &schedule;
  blockers_.assign(schedule.blockers.begin(), schedule.blockers.end());
  local_.assign(schedule.first_local.begin(), schedule.first_local.end());
  local_next_ = 0;
  cursors_.assign(schedule.lanes.size(), 0);
  finished_.assign(schedule.steps.size(), 0);
  remaining_ = schedule.steps.size();
  unposted_ = 0;
  for (const Lane& lane : schedule.lanes) unposted_ += lane.steps.size();
}

void Tracker::complete(std::uint32_t step) {
  finished_[step] = 1;
  --remaining_;
  for (std::uint32_t i = schedule_->unblocks_begin[step]; i < schedule_->unblocks_begin[step + 1]; ++i) {
    const std::uint32_t later = schedule_->unblocks[i];
    if (--blockers_[later] != 0) continue;
    const StepKind kind = schedule_->steps[later].kind;
    if (kind == StepKind::reduce || kind == StepKind::copy) local_.push_back(later);
  }
}

std::vector<std::uint32_t> Tracker::waiting_for() const {
  std::vector<std::uint32_t> peers;
  for (const Lane& lane : schedule_->lanes) {
    const auto unfinished = [&](std::uint32_t step) { return finished_[step] == 0; };
    if (std::any_of(lane.steps.begin(), lane.steps.end(), unfinished)) peers.push_back(lane.peer);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

}  // namespace stepccl::schedule
