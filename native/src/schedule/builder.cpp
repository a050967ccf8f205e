// SPDX-License-Identifier: Apache-2.0
#include "schedule/builder.hpp"

#include <algorithm>
#include <map>

namespace stepccl::schedule {
namespace {

constexpr std::uint32_t kNobody = UINT32_MAX;

// Who last wrote each range of one buffer, and who has read it since.
class HazardMap {
 public:
  void read(std::uint64_t begin, std::uint64_t end, std::uint32_t step, std::vector<std::uint32_t>& after) {
    visit(begin, end, [&](Range& range) {
      if (range.writer != kNobody) after.push_back(range.writer);
      range.readers.push_back(step);
    });
  }

  void write(std::uint64_t begin, std::uint64_t end, std::uint32_t step, std::vector<std::uint32_t>& after) {
    visit(begin, end, [&](Range& range) {
      if (range.writer != kNobody) after.push_back(range.writer);
      after.insert(after.end(), range.readers.begin(), range.readers.end());
      range.readers.clear();
      range.writer = step;
    });
  }

 private:
  struct Range {
    std::uint64_t end = 0;
    std::uint32_t writer = kNobody;
    std::vector<std::uint32_t> readers;
  };

  // Cuts the map so that [begin, end) is covered exactly by ranges, and visits them.
  template <class F>
  void visit(std::uint64_t begin, std::uint64_t end, F&& f) {
    split(begin);
    split(end);
    std::uint64_t at = begin;
    while (at < end) {
      auto next = ranges_.lower_bound(at);
      if (next == ranges_.end() || next->first > at) {
        const std::uint64_t stop = next == ranges_.end() ? end : std::min(end, next->first);
        next = ranges_.emplace_hint(next, at, Range{stop, kNobody, {}});
      }
      f(next->second);
      at = next->second.end;
    }
  }

  void split(std::uint64_t at) {
    auto next = ranges_.upper_bound(at);
    if (next == ranges_.begin()) return;
    auto& [begin, range] = *std::prev(next);
    if (begin == at || range.end <= at) return;
    Range tail = range;
    range.end = at;
    ranges_.emplace(at, std::move(tail));
  }

  std::map<std::uint64_t, Range> ranges_;
};

}  // namespace

std::optional<std::uint32_t> Builder::send(std::uint32_t peer, Place from, std::uint64_t count) {
  if (count == 0) return std::nullopt;
  schedule_.steps.push_back({StepKind::send, false, peer, count, from, {}, {}});
  return static_cast<std::uint32_t>(schedule_.steps.size() - 1);
}

std::optional<std::uint32_t> Builder::recv(std::uint32_t peer, Place to, std::uint64_t count) {
  if (count == 0) return std::nullopt;
  schedule_.steps.push_back({StepKind::recv, false, peer, count, {}, {}, to});
  return static_cast<std::uint32_t>(schedule_.steps.size() - 1);
}

void Builder::reduce(Place target, Place left, Place right, std::uint64_t count, bool finish) {
  if (count != 0) schedule_.steps.push_back({StepKind::reduce, finish, 0, count, left, right, target});
}

void Builder::copy(Place target, Place from, std::uint64_t count, bool finish) {
  if (count != 0) schedule_.steps.push_back({StepKind::copy, finish, 0, count, from, {}, target});
}

void Builder::order(std::optional<std::uint32_t> earlier, std::optional<std::uint32_t> later) {
  if (earlier && later) orders_.emplace_back(*later, *earlier);
}

Place Builder::scratch(std::uint64_t elements) {
  const Place place{Buffer::scratch, schedule_.scratch_elements};
  schedule_.scratch_elements += elements;
  return place;
}

Schedule Builder::finish() {
  const std::size_t size = schedule_.steps.size();
  HazardMap maps[3];
  // In place, input and output are two views of one range.
  const auto where = [&](Place place) -> std::pair<HazardMap&, std::uint64_t> {
    if (!in_place_ || place.buffer == Buffer::scratch) return {maps[static_cast<int>(place.buffer)], place.offset};
    return {maps[0], place.offset + (place.buffer == Buffer::input ? input_shift_ : output_shift_)};
  };
  std::sort(orders_.begin(), orders_.end());
  auto next_order = orders_.begin();

  std::vector<std::vector<std::uint32_t>> successors(size);
  std::map<std::pair<std::uint32_t, bool>, std::size_t> lane_of;
  std::vector<std::uint32_t> after;
  schedule_.blockers.assign(size, 0);
  for (std::uint32_t i = 0; i < size; ++i) {
    const Step& step = schedule_.steps[i];
    after.clear();
    const auto reads = [&](Place place) {
      const auto [map, offset] = where(place);
      map.read(offset, offset + step.count, i, after);
    };
    if (step.kind != StepKind::recv) reads(step.left);
    if (step.kind == StepKind::reduce) reads(step.right);
    if (step.kind != StepKind::send) {
      const auto [map, offset] = where(step.target);
      map.write(offset, offset + step.count, i, after);
    }
    for (; next_order != orders_.end() && next_order->first == i; ++next_order) after.push_back(next_order->second);

    std::sort(after.begin(), after.end());
    after.erase(std::unique(after.begin(), after.end()), after.end());
    std::erase(after, i);
    schedule_.blockers[i] = static_cast<std::uint32_t>(after.size());
    for (const std::uint32_t earlier : after) successors[earlier].push_back(i);

    if (step.kind == StepKind::send || step.kind == StepKind::recv) {
      const bool send = step.kind == StepKind::send;
      const auto [found, inserted] = lane_of.try_emplace({step.peer, send}, schedule_.lanes.size());
      if (inserted) schedule_.lanes.push_back({step.peer, send, {}});
      schedule_.lanes[found->second].steps.push_back(i);
    } else if (after.empty()) {
      schedule_.first_local.push_back(i);
    }
  }

  schedule_.unblocks_begin.reserve(size + 1);
  for (const auto& list : successors) {
    schedule_.unblocks_begin.push_back(static_cast<std::uint32_t>(schedule_.unblocks.size()));
    schedule_.unblocks.insert(schedule_.unblocks.end(), list.begin(), list.end());
  }
  schedule_.unblocks_begin.push_back(static_cast<std::uint32_t>(schedule_.unblocks.size()));
  return std::move(schedule_);
}

}  // namespace stepccl::schedule
