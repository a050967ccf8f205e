// SPDX-License-Identifier: Apache-2.0
// An algorithm as data: what one rank sends, receives, reduces and copies. The engines execute it,
// the tests run it for all ranks in one process, and the model times it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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
  std::vector<std::uint32_t> first_local;  // reduces and copies that wait for nothing
  std::vector<Lane> lanes;
  std::uint64_t scratch_elements = 0;
};

// A schedule is a pure function of this. All ranks pass the same, but for rank, in_place, depth and the arrays of a
// vector exchange.
struct Problem {
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  // Elements of the full array (all_reduce, broadcast, reduce, send and receive), or of one rank's block of it.
  std::uint64_t count = 0;
  std::uint64_t chunk_elements = 1;  // the largest message
  std::uint32_t depth = 4;           // chunks of scratch in flight; changes no message
  bool in_place = false;             // input and output share memory, as the collective's in-place form has it
  std::uint32_t root = 0;            // or the peer of a send or receive
  std::uint64_t stride = 0;          // elements from one rank's block to the next; 0 = count
  // By rank, the node that it runs on, numbered from 0; empty: all on one.
  const std::vector<std::uint32_t>* nodes = nullptr;

  [[nodiscard]] std::uint64_t block_at(std::uint32_t block) const noexcept { return block * (stride != 0 ? stride : count); }
  [[nodiscard]] bool packed() const noexcept { return stride == 0 || stride == count; }
};

// What a prediction starts from. Times in us, sizes in bytes.
struct CostModel {
  double alpha = 0;     // from posting a message to its first byte at the peer
  double beta = 0;      // per byte moved
  double gamma = 0;     // per byte reduced
  double overhead = 0;  // of the CPU, for each further message that a rank sends or receives at the same time
  double chunk = 0;     // bytes of the largest message; 0 = whole messages
  // Between ranks of one node; the figures above are for the slowest pair.
  double local_alpha = 0;
  double local_beta = 0;
  std::uint32_t nodes = 1;
  std::uint32_t per_node = 0;  // most ranks on one node; 0 = all
};

// One row per algorithm.
struct AlgorithmRow {
  stepccl_collective_t collective;
  stepccl_algorithm_t algorithm;
  Schedule (*make)(const Problem& problem);
  // Predicted time of an operation of `bytes` in the full array, full-duplex links (Thakur, Rabenseifner, Gropp 2005).
  double (*cost)(std::uint32_t world, double bytes, const CostModel& model);
  // Every pair of ranks needs a connection: for small worlds only.
  bool direct = false;
};

// nullptr where this version has no such algorithm for the collective.
[[nodiscard]] const AlgorithmRow* find_algorithm(stepccl_collective_t collective, stepccl_algorithm_t algorithm) noexcept;
// All rows, for tests and for the choice.
[[nodiscard]] const std::vector<AlgorithmRow>& algorithms();

// The row with the least predicted time among those whose bit 1 << algorithm is in `allowed`; nullptr where none is. All
// ranks must pass the same values.
[[nodiscard]] const AlgorithmRow* choose_algorithm(stepccl_collective_t collective, std::uint32_t world, const CostModel& model, std::uint32_t allowed,
                                                   const std::function<double(const AlgorithmRow&)>& predict);
// The same by the formulas alone.
[[nodiscard]] const AlgorithmRow* choose_algorithm(stepccl_collective_t collective, std::uint32_t world, double bytes, const CostModel& model,
                                                   std::uint32_t allowed = ~0u);
// Whether the choice considers the row at all in a world of this size and shape.
[[nodiscard]] bool suits(const AlgorithmRow& row, std::uint32_t world, const CostModel& model) noexcept;

// Elements of one block where the full array has `bytes`: what Problem::count is for each collective.
[[nodiscard]] bool is_blocked(stepccl_collective_t collective) noexcept;

// How `count` elements are cut into `parts`: the first count % parts segments have one more.
struct Segment {
  std::uint64_t offset = 0;
  std::uint64_t count = 0;
};
[[nodiscard]] Segment segment_of(std::uint64_t count, std::uint32_t parts, std::uint32_t index) noexcept;

Schedule ring_all_reduce(const Problem& problem);
Schedule ring_all_gather(const Problem& problem);
Schedule ring_reduce_scatter(const Problem& problem);
Schedule ring_broadcast(const Problem& problem);
Schedule recursive_doubling_all_reduce(const Problem& problem);
Schedule halving_doubling_all_reduce(const Problem& problem);
Schedule halving_doubling_reduce_scatter(const Problem& problem);
Schedule direct_one_shot_all_reduce(const Problem& problem);
Schedule direct_two_shot_all_reduce(const Problem& problem);
Schedule direct_all_gather(const Problem& problem);
Schedule direct_reduce_scatter(const Problem& problem);
Schedule direct_broadcast(const Problem& problem);
Schedule direct_reduce(const Problem& problem);
Schedule direct_scatter(const Problem& problem);
Schedule direct_gather(const Problem& problem);
Schedule tree_all_reduce(const Problem& problem);
Schedule double_binary_tree_all_reduce(const Problem& problem);
Schedule tree_broadcast(const Problem& problem);
Schedule tree_reduce(const Problem& problem);
Schedule binomial_broadcast(const Problem& problem);
Schedule binomial_reduce(const Problem& problem);
Schedule binomial_scatter(const Problem& problem);
Schedule binomial_gather(const Problem& problem);
Schedule chain_broadcast(const Problem& problem);
Schedule chain_reduce(const Problem& problem);
Schedule bruck_all_gather(const Problem& problem);
Schedule pairwise_all_to_all(const Problem& problem);
Schedule bruck_all_to_all(const Problem& problem);
Schedule direct_all_to_all(const Problem& problem);
Schedule hierarchical_all_reduce(const Problem& problem);
Schedule hierarchical_all_gather(const Problem& problem);
Schedule hierarchical_broadcast(const Problem& problem);
Schedule hierarchical_reduce(const Problem& problem);
Schedule hierarchical_reduce_scatter(const Problem& problem);
Schedule hierarchical_scatter(const Problem& problem);
Schedule hierarchical_gather(const Problem& problem);
Schedule hierarchical_all_to_all(const Problem& problem);
Schedule hierarchical_barrier(const Problem& problem);
Schedule dissemination_barrier(const Problem& problem);

// Not rows of the table: they are no choice. root is the peer.
Schedule send_message(const Problem& problem);
Schedule recv_message(const Problem& problem);

// The exchange of stepccl_all_to_all_v, by rounds as pairwise_all_to_all; counts and displacements in elements, by rank.
// A pair that has nothing to exchange exchanges one element of scratch, so that counts that do not fit show.
struct VectorExchange {
  const std::size_t* send_counts;
  const std::size_t* send_at;
  const std::size_t* recv_counts;
  const std::size_t* recv_at;
};
Schedule vector_all_to_all(const Problem& problem, const VectorExchange& exchange);

}  // namespace stepccl::schedule
