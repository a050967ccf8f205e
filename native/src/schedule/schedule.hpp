// SPDX-License-Identifier: Apache-2.0
// An algorithm as data: what one rank sends, receives, reduces and copies. The engines execute it,
// the tests run it for all ranks in one process, and the model times it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stepccl/stepccl.h"

namespace stepccl::schedule {

enum class Buffer : std::uint8_t { input, output, scratch };

// A range's begin, in elements. Its length is the step's count.
struct Place {
  Buffer buffer = Buffer::input;
  std::uint64_t offset = 0;
};

enum class StepKind : std::uint8_t {
  send,    // left -> peer
  recv,    // peer -> target
  reduce,  // target = left op right, in that order
  copy,    // target = left
};

struct Step {
  StepKind kind = StepKind::copy;
  bool finish = false;  // after it, target holds the final sum: AVG divides here
  std::uint32_t peer = 0;
  std::uint64_t count = 0;  // elements, never 0
  Place left;
  Place right;
  Place target;
};

// What both ends of a channel must agree on: the k-th send of one matches the k-th receive of the other.
struct Lane {
  std::uint32_t peer = 0;
  bool send = false;
  std::vector<std::uint32_t> steps;  // in order
};

struct Schedule {
  std::vector<Step> steps;           // in program order: executing them one by one is correct
  std::vector<std::uint32_t> blockers;        // for each step, how many steps it waits for
  std::vector<std::uint32_t> unblocks_begin;  // for each step, where its successors begin in `unblocks`; one more at the end
  std::vector<std::uint32_t> unblocks;
  std::vector<Lane> lanes;
  std::uint64_t scratch_elements = 0;
};

// A schedule is a pure function of this. All ranks pass the same, but for rank, in_place and depth.
struct Problem {
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  std::uint64_t count = 0;           // elements of the full array
  std::uint64_t chunk_elements = 1;  // the largest message
  std::uint32_t depth = 4;           // chunks of scratch in flight; changes no message
  bool in_place = false;             // input and output are the same memory
};

// One row per algorithm. Costs are seconds-free: alpha and beta in any one unit of time.
struct AlgorithmRow {
  stepccl_collective_t collective;
  stepccl_algorithm_t algorithm;
  Schedule (*make)(const Problem& problem);
  // Predicted time with full-duplex links: alpha per message, beta per byte moved, gamma per byte reduced
  // (Thakur, Rabenseifner, Gropp 2005).
  double (*cost)(std::uint32_t world, double bytes, double alpha, double beta, double gamma);
};

// nullptr where this version has no such algorithm for the collective.
[[nodiscard]] const AlgorithmRow* find_algorithm(stepccl_collective_t collective, stepccl_algorithm_t algorithm) noexcept;
// All rows, for tests and for the choice.
[[nodiscard]] const std::vector<AlgorithmRow>& algorithms();

// The row with the least predicted cost. All ranks must pass the same values.
[[nodiscard]] const AlgorithmRow& choose_algorithm(stepccl_collective_t collective, std::uint32_t world, double bytes,
                                                   double alpha, double beta, double gamma);

// How `count` elements are cut into `parts`: the first count % parts segments have one more.
struct Segment {
  std::uint64_t offset = 0;
  std::uint64_t count = 0;
};
[[nodiscard]] Segment segment_of(std::uint64_t count, std::uint32_t parts, std::uint32_t index) noexcept;

Schedule ring_all_reduce(const Problem& problem);
Schedule recursive_doubling_all_reduce(const Problem& problem);
Schedule direct_one_shot_all_reduce(const Problem& problem);
Schedule direct_two_shot_all_reduce(const Problem& problem);

}  // namespace stepccl::schedule
