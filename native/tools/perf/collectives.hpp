// SPDX-License-Identifier: Apache-2.0
// What each collective means for the benchmark: sizes as nccl-tests counts them, buffers, the call, the expected result.
#pragma once

#include <cstdint>

#include "perf/arguments.hpp"

namespace perf {

// One measurement: a collective on some elements.
struct Work {
  stepccl_collective_t collective{};
  stepccl_datatype_t datatype{};
  stepccl_redop_t redop{};
  std::uint32_t root = 0;
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  std::uint64_t count = 0;  // of the call: of one rank's block where the collective has blocks
  double wire_roundoff = 0;  // of what fp32 sums travel as; 0 = themselves

  [[nodiscard]] std::uint64_t full_count() const;  // elements of the full array
  [[nodiscard]] std::uint64_t bytes() const;       // "size" of nccl-tests
  [[nodiscard]] std::uint64_t send_count() const;  // of this rank; 0 where it sends nothing
  [[nodiscard]] std::uint64_t recv_count() const;
};

// The largest work of at most `bytes`.
[[nodiscard]] Work work_of(stepccl_collective_t collective, std::uint64_t bytes, stepccl_datatype_t datatype, stepccl_redop_t redop, std::uint32_t root,
                           std::uint32_t rank, std::uint32_t world);

// busbw = algbw x this, as nccl-tests defines it (doc/PERFORMANCE.md).
[[nodiscard]] double bus_factor(stepccl_collective_t collective, std::uint32_t world);
[[nodiscard]] bool is_reducing(stepccl_collective_t collective);
[[nodiscard]] bool is_rooted(stepccl_collective_t collective);

// Where this rank's input and output begin in the in-place form, which lies in one buffer of the full array. A
// send_recv has none.
struct Buffers {
  void* send;
  void* recv;
};
[[nodiscard]] Buffers in_place(const Work& work, void* buffer);

[[nodiscard]] stepccl_result_t call(stepccl_comm_t comm, const Work& work, const Buffers& buffers, const stepccl_call_t* options);

// Fills this rank's input; how many elements of its output are wrong afterwards.
void fill_input(const Work& work, void* send, std::uint64_t seed);
[[nodiscard]] std::uint64_t count_wrong_output(const Work& work, const void* recv, std::uint64_t seed);

}  // namespace perf
