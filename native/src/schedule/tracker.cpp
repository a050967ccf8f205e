// SPDX-License-Identifier: Apache-2.0
#include "schedule/tracker.hpp"

#include <algorithm>

namespace stepccl::schedule {

Tracker::Tracker(const Schedule& schedule)
    : schedule_(schedule),
      blockers_(schedule.blockers),
      cursors_(schedule.lanes.size(), 0),
      finished_(schedule.steps.size(), false),
      remaining_(schedule.steps.size()) {
  for (std::uint32_t i = 0; i < schedule_.steps.size(); ++i) {
    const StepKind kind = schedule_.steps[i].kind;
    if (blockers_[i] == 0 && (kind == StepKind::reduce || kind == StepKind::copy)) local_.push_back(i);
  }
}

std::optional<std::uint32_t> Tracker::next_local() {
  if (local_next_ == local_.size()) return std::nullopt;
  return local_[local_next_++];
}

std::optional<std::uint32_t> Tracker::next_posted(std::size_t lane) {
  const Lane& line = schedule_.lanes[lane];
  std::size_t& cursor = cursors_[lane];
  if (cursor == line.steps.size() || blockers_[line.steps[cursor]] != 0) return std::nullopt;
  return line.steps[cursor++];
}

void Tracker::complete(std::uint32_t step) {
  finished_[step] = true;
  --remaining_;
  for (std::uint32_t i = schedule_.unblocks_begin[step]; i < schedule_.unblocks_begin[step + 1]; ++i) {
    const std::uint32_t later = schedule_.unblocks[i];
    if (--blockers_[later] != 0) continue;
    const StepKind kind = schedule_.steps[later].kind;
    if (kind == StepKind::reduce || kind == StepKind::copy) local_.push_back(later);
  }
}

std::vector<std::uint32_t> Tracker::waiting_for() const {
  std::vector<std::uint32_t> peers;
  for (const Lane& lane : schedule_.lanes) {
    const auto unfinished = [&](std::uint32_t step) { return !finished_[step]; };
    if (std::any_of(lane.steps.begin(), lane.steps.end(), unfinished)) peers.push_back(lane.peer);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

}  // namespace stepccl::schedule
