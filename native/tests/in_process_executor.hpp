// SPDX-License-Identifier: Apache-2.0
// Runs the schedules of all ranks in one process, in a seeded random order that respects nothing but what the
// schedule says. Messages are rendezvous: a send ends when its receive takes it, the strictest that any transport is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/reduce.hpp"
#include "schedule/schedule.hpp"
#include "schedule/tracker.hpp"

namespace stepccl::testing {

// How long a rank's input and output are, and how they lie in the in-place form, in elements.
struct Shape {
  std::uint64_t input = 0;
  std::uint64_t output = 0;
  std::uint64_t input_shift = 0;
  std::uint64_t output_shift = 0;
};

inline Shape shape_of(stepccl_collective_t collective, const schedule::Problem& p) {
  const std::uint64_t whole = p.count == 0 ? 0 : p.block_at(p.world - 1) + p.count;
  const bool root = p.rank == p.root;
  switch (collective) {
    case STEPCCL_ALL_GATHER: return {p.count, whole, p.block_at(p.rank), 0};
    case STEPCCL_REDUCE_SCATTER: return {whole, p.count, 0, p.block_at(p.rank)};
    case STEPCCL_BROADCAST: return {root ? p.count : 0, p.count, 0, 0};
    case STEPCCL_REDUCE: return {p.count, root ? p.count : 0, 0, 0};
    case STEPCCL_SCATTER: return {root ? whole : 0, p.count, 0, p.block_at(p.root)};
    case STEPCCL_GATHER: return {p.count, root ? whole : 0, p.block_at(p.root), 0};
    case STEPCCL_ALL_TO_ALL: return {whole, whole, 0, 0};
    case STEPCCL_BARRIER: return {};
    default: return {p.count, p.count, 0, 0};
  }
}

// Whether a rank has both an input and an output, so that they can be the same memory.
inline bool can_be_in_place(stepccl_collective_t collective, const schedule::Problem& p) {
  const bool rooted = collective == STEPCCL_BROADCAST || collective == STEPCCL_REDUCE || collective == STEPCCL_SCATTER || collective == STEPCCL_GATHER;
  return !rooted || p.rank == p.root;
}

// One rank's memory, as bytes. In place, input is the memory of both.
struct RankMemory {
  std::vector<std::byte> input;
  std::vector<std::byte> output;
  std::vector<std::byte> scratch;
};

class InProcessExecutor {
 public:
  // `problem` but for the rank; in_place holds where a rank can be.
  InProcessExecutor(const schedule::AlgorithmRow& row, schedule::Problem problem, stepccl_datatype_t datatype, stepccl_redop_t redop)
      : datatype_(datatype), redop_(redop), element_(stepccl_datatype_bytes(datatype)), memory(problem.world) {
    const std::uint32_t depth = problem.depth;
    const bool in_place = problem.in_place;
    for (std::uint32_t rank = 0; rank < problem.world; ++rank) {
      problem.rank = rank;
      problem.depth = depth + rank % 2;  // a rank's pipeline depth is its own affair: let them differ
      problem.in_place = in_place && can_be_in_place(row.collective, problem);
      schedules_.push_back(row.make(problem));
      problems.push_back(problem);
      shapes.push_back(shape_of(row.collective, problem));
      const Shape& shape = shapes.back();
      const std::uint64_t both = std::max(shape.input + shape.input_shift, shape.output + shape.output_shift);
      memory[rank].input.resize((problem.in_place ? both : shape.input) * element_);
      memory[rank].output.resize(problem.in_place ? 0 : shape.output * element_);
      memory[rank].scratch.resize(schedules_[rank].scratch_elements * element_, std::byte{0x5a});
      std::fill(memory[rank].output.begin(), memory[rank].output.end(), std::byte{0xa5});
    }
  }

  [[nodiscard]] std::byte* input(std::uint32_t rank) { return memory[rank].input.data() + (problems[rank].in_place ? shapes[rank].input_shift * element_ : 0); }
  [[nodiscard]] std::byte* output(std::uint32_t rank) {
    return problems[rank].in_place ? memory[rank].input.data() + shapes[rank].output_shift * element_ : memory[rank].output.data();
  }
  [[nodiscard]] std::vector<std::byte> result(std::uint32_t rank) { return {output(rank), output(rank) + shapes[rank].output * element_}; }
  [[nodiscard]] const schedule::Schedule& schedule(std::uint32_t rank) const { return schedules_[rank]; }

  // An empty string, or what went wrong. A rank that is absent never gets a turn.
  std::string run(std::uint32_t seed, std::uint32_t absent = ~0u) {
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
        if (rank == absent) continue;
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
      if (!moved) {
        ended = static_cast<std::uint32_t>(std::count_if(trackers.begin(), trackers.end(), [](const auto& tracker) { return tracker.done(); }));
        return "deadlock";
      }
    }
    for (const auto& [ends, wire] : wires) {
      if (!wire.first.empty() || !wire.second.empty()) return "a message was left over between ranks " + std::to_string(ends.first) + " and " + std::to_string(ends.second);
    }
    return {};
  }

 private:
  std::byte* at(std::uint32_t rank, schedule::Place place) {
    const std::uint64_t offset = place.offset * element_;
    switch (place.buffer) {
      case schedule::Buffer::scratch: return memory[rank].scratch.data() + offset;
      case schedule::Buffer::output: return output(rank) + offset;
      case schedule::Buffer::input: break;
    }
    return input(rank) + offset;
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
  stepccl_datatype_t datatype_;
  stepccl_redop_t redop_;
  std::size_t element_;

 public:
  std::vector<RankMemory> memory;
  std::vector<schedule::Problem> problems;
  std::vector<Shape> shapes;
  std::uint32_t ended = 0;  // ranks, of a run that came to a deadlock
};

}  // namespace stepccl::testing
