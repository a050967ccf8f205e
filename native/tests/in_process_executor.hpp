// SPDX-License-Identifier: Apache-2.0
// Runs the schedules of all ranks in one process, in a seeded random order that respects nothing but what the
// schedule says. Messages are rendezvous: a send ends when its receive takes it, the strictest that any transport is.
#pragma once

#include <cstdint>
#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/reduce.hpp"
#include "schedule/schedule.hpp"
#include "schedule/tracker.hpp"

namespace stepccl::testing {

// One rank's memory, as bytes.
struct RankMemory {
  std::vector<std::byte> input;
  std::vector<std::byte> output;  // the result; in place it is also the input
  std::vector<std::byte> scratch;
};

class InProcessExecutor {
 public:
  InProcessExecutor(const schedule::AlgorithmRow& row, std::uint32_t world, std::uint64_t count, std::uint64_t chunk, std::uint32_t depth, bool in_place,
                    stepccl_datatype_t datatype, stepccl_redop_t redop)
      : in_place_(in_place), datatype_(datatype), redop_(redop), element_(stepccl_datatype_bytes(datatype)), memory(world) {
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      // A rank's pipeline depth is its own affair: let them differ.
      schedules_.push_back(row.make({rank, world, count, chunk, depth + rank % 2, in_place}));
      memory[rank].input.resize(count * element_);
      memory[rank].output.resize(count * element_);
      memory[rank].scratch.resize(schedules_[rank].scratch_elements * element_);
    }
  }

  // An empty string, or what went wrong.
  std::string run(std::uint32_t seed) {
    std::mt19937 random(seed);
    const auto world = static_cast<std::uint32_t>(schedules_.size());
    std::vector<schedule::Tracker> trackers;
    for (const auto& schedule : schedules_) trackers.emplace_back(schedule);
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::deque<std::uint32_t>, std::deque<std::uint32_t>>> wires;  // sends, receives
    std::vector<std::uint32_t> order(world);
    for (std::uint32_t rank = 0; rank < world; ++rank) order[rank] = rank;
    for (std::uint64_t turn = 0;;) {
      bool moved = false;
      const bool skip = ++turn % 8 != 0;  // every eighth turn is for all, so that a deadlock shows
      std::shuffle(order.begin(), order.end(), random);
      for (const std::uint32_t rank : order) {
        if (skip && random() % 3 == 0) {  // sometimes a rank gets no turn
          moved = true;
          continue;
        }
        auto& tracker = trackers[rank];
        while (const auto step = tracker.next_local()) run_local(rank, schedules_[rank].steps[*step]), tracker.complete(*step), moved = true;
        for (std::size_t lane = 0; lane < schedules_[rank].lanes.size(); ++lane) {
          const auto& line = schedules_[rank].lanes[lane];
          while (const auto step = tracker.next_posted(lane)) {
            auto& wire = wires[line.send ? std::make_pair(rank, line.peer) : std::make_pair(line.peer, rank)];
            (line.send ? wire.first : wire.second).push_back(*step);
            moved = true;
          }
        }
      }
      for (auto& [ends, wire] : wires) {
        if (wire.first.empty() || wire.second.empty() || (skip && random() % 2 == 0)) {
          if (!wire.first.empty() && !wire.second.empty()) moved = true;
          continue;
        }
        const auto [from, to] = ends;
        const auto& send = schedules_[from].steps[wire.first.front()];
        const auto& receive = schedules_[to].steps[wire.second.front()];
        if (send.count != receive.count) {
          return "rank " + std::to_string(from) + " sends " + std::to_string(send.count) + " where rank " + std::to_string(to) + " expects " +
                 std::to_string(receive.count);
        }
        std::copy_n(at(from, send.left), send.count * element_, at(to, receive.target));
        trackers[from].complete(wire.first.front());
        trackers[to].complete(wire.second.front());
        wire.first.pop_front();
        wire.second.pop_front();
        moved = true;
      }
      if (std::all_of(trackers.begin(), trackers.end(), [](const auto& tracker) { return tracker.done(); })) break;
      if (!moved) return "deadlock";
    }
    for (const auto& [ends, wire] : wires) {
      if (!wire.first.empty() || !wire.second.empty()) return "a message was left over between ranks " + std::to_string(ends.first) + " and " + std::to_string(ends.second);
    }
    return {};
  }

 private:
  std::byte* at(std::uint32_t rank, schedule::Place place) {
    RankMemory& own = memory[rank];
    std::vector<std::byte>& buffer = place.buffer == schedule::Buffer::scratch                  ? own.scratch
                                     : place.buffer == schedule::Buffer::output || in_place_ ? own.output
                                                                                             : own.input;
    return buffer.data() + place.offset * element_;
  }

  void run_local(std::uint32_t rank, const schedule::Step& step) {
    if (step.kind == schedule::StepKind::copy) {
      std::copy_n(at(rank, step.left), step.count * element_, at(rank, step.target));
    } else {
      reduce(at(rank, step.target), at(rank, step.left), at(rank, step.right), step.count, datatype_, redop_);
    }
    if (step.finish && redop_ == STEPCCL_AVG) divide(at(rank, step.target), step.count, datatype_, static_cast<std::uint32_t>(schedules_.size()));
  }

  std::vector<schedule::Schedule> schedules_;
  bool in_place_;
  stepccl_datatype_t datatype_;
  stepccl_redop_t redop_;
  std::size_t element_;

 public:
  std::vector<RankMemory> memory;
};

}  // namespace stepccl::testing
