// SPDX-License-Identifier: Apache-2.0
// How long an operation takes: one by one, or twenty in a graph.
#pragma once

#include <algorithm>
#include <vector>

#include "core/clock.hpp"
#include "gpu/check.hpp"
#include "gpu/graphs.hpp"

namespace gpu {

struct Timing {
  double us = 0;         // of one operation: the median of three, on the slowest rank
  double spread_us = 0;  // the largest of the three less the smallest
  stepccl_cuda_receipt_t receipt{};
};

// iterations: 0 = by size. `call_options` gets the ticket. UNSUPPORTED paths must have been ruled out.
inline Timing time_operation(Rank& self, const GraphCalls& calls, const Case& c, CUdeviceptr send, CUdeviceptr recv, stepccl_cuda_call_t& call_options, std::uint64_t size, bool graph,
                             std::uint32_t iterations) {
  const std::uint32_t inner = graph ? 20 : 1;
  std::uint32_t rounds = iterations != 0 ? iterations : size <= 1u << 20 ? 200 : size <= 64u << 20 ? 50 : 10;
  if (graph) rounds = std::max(3u, rounds / 10);
  Graph made;
  if (graph) {
    made = calls.capture(self, self.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, [&] {
      for (std::uint32_t i = 0; i < inner; ++i) self.ok(call(self, c, send, recv, self.stream, &call_options), "captured call");
    });
  }
  const auto once = [&] {
    if (graph) calls.launch(self, made, self.stream);
    else self.ok(call(self, c, send, recv, self.stream, &call_options), "call");
  };
  for (std::uint32_t i = 0; i < (graph ? 1u : 5u); ++i) once();
  self.sync();
  std::vector<double> times;
  for (int repeat = 0; repeat < 3; ++repeat) {
    self.meet();
    const std::uint64_t begun = stepccl::monotonic_ns();
    for (std::uint32_t i = 0; i < rounds; ++i) once();
    self.sync();
    times.push_back(static_cast<double>(stepccl::monotonic_ns() - begun) / 1e3 / rounds / inner);
  }
  std::sort(times.begin(), times.end());
  Timing timing;
  timing.us = self.largest(times[1]);
  timing.spread_us = times[2] - times[0];
  timing.receipt.size = sizeof timing.receipt;
  self.ok(stepccl_cuda_receipt(self.engine, call_options.ticket, &timing.receipt), "receipt");
  if (graph) calls.destroy(self, made);
  return timing;
}

// Finds from which sizes on the GPUs of this host do better by which path, and writes what STEPCCL_CUDA_CALIBRATION reads.
void calibrate(Rank& self, const std::string& file);

}  // namespace gpu
