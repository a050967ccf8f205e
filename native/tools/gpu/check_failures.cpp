// SPDX-License-Identifier: Apache-2.0
// Ranks that go wrong on purpose: the others must end in time, with an error that says why.
#include <unistd.h>

#include "core/clock.hpp"
#include "gpu/check.hpp"

namespace gpu {
namespace {

constexpr std::uint32_t kTimeoutMs = 3000;

// Waits until the engine has an error and the stream is free; gives the error.
stepccl_result_t end_of(const Rank& self, CUstream stream, std::uint64_t& ms) {
  const std::uint64_t begun = stepccl::monotonic_ns();
  self.driver->cuStreamSynchronize(stream);
  while (stepccl_cuda_status(self.engine) == STEPCCL_SUCCESS && stepccl::monotonic_ns() - begun < 10'000'000'000u) ::usleep(1000);
  ms = (stepccl::monotonic_ns() - begun) / 1'000'000;
  return stepccl_cuda_status(self.engine);
}

void must(bool well, const Rank& self, const char* what, stepccl_result_t got, std::uint64_t ms) {
  stepccl_error_info_t info{};
  info.size = sizeof info;
  stepccl_cuda_last_error(self.engine, &info);
  std::string text = info.text;
  for (char& c : text) c = c == '"' || c == '\\' ? '\'' : c;
  report("failures", what, well, std::string(stepccl_result_code(got)) + " after " + std::to_string(ms) + " ms: " + text);
  if (!well) throw Problem(std::string(what) + ": " + text);
}

}  // namespace

bool check_failures(std::uint32_t world) {
  stepccl_cuda_config_t config = STEPCCL_CUDA_CONFIG_INIT;
  config.timeout_ms = kTimeoutMs;
  bool well = true;
  // `path`: what waits when the last rank goes wrong.
  const auto job = [&](const char* name, std::uint32_t path, void (*wrong)(Rank&, CUdeviceptr, CUdeviceptr), bool (*right)(stepccl_result_t, std::uint64_t ms), bool dies) {
    const Outcome outcome = run(world, 40, config, [&](Rank& self) {
      const CUdeviceptr send = self.window(4u << 20);
      const CUdeviceptr recv = self.window(8u << 20);
      Case c{path == STEPCCL_CUDA_PATH_COPY_ENGINE ? STEPCCL_ALL_GATHER : STEPCCL_ALL_REDUCE, STEPCCL_FLOAT32, STEPCCL_SUM, 1000, 0, 7};
      self.ok(call(self, c, send, recv, self.stream, nullptr), "first call");
      self.sync();
      self.meet();
      if (self.rank == self.world - 1) {
        wrong(self, send, recv);
        return;
      }
      stepccl_cuda_call_t options = STEPCCL_CUDA_CALL_INIT;
      options.path = path;
      c.count = path == STEPCCL_CUDA_PATH_FLAGGED ? 1000 : 1u << 20;
      for (int i = 0; i < 3; ++i) {
        if (call(self, c, send, recv, self.stream, &options) != STEPCCL_SUCCESS) break;
      }
      std::uint64_t ms = 0;
      const stepccl_result_t end = end_of(self, self.stream, ms);
      if (self.rank == 0) must(right(end, ms), self, name, end, ms);
      const bool refused = call(self, c, send, recv, self.stream, &options) == end;
      if (self.rank == 0) must(refused, self, "later calls fail with the same error", end, ms);
      // All memory comes back, though the others may be gone.
      std::size_t before = 0;
      std::size_t after = 0;
      std::size_t total = 0;
      self.driver->cuMemGetInfo_v2(&before, &total);
      self.ok(stepccl_cuda_detach(self.engine), "detach");
      // Memory that a living peer has mapped goes with its mapping.
      for (int look = 0; look < 500 && after < before + (20u << 20); ++look) {
        ::usleep(10'000);
        self.driver->cuMemGetInfo_v2(&after, &total);
      }
      if (self.rank == 0 && after < before + (20u << 20)) throw Problem("GPU memory was not given back");
    }, false);
    bool ended = !outcome.timed_out;
    for (std::uint32_t rank = 0; rank + (dies ? 1 : 0) < world; ++rank) ended = ended && outcome.status[rank] == 0;
    well = report("failures", std::string(name) + ": ranks end", ended) && well;
  };
  const auto dies = [](Rank&, CUdeviceptr, CUdeviceptr) { ::_exit(9); };
  const auto named_death = [](stepccl_result_t end, std::uint64_t ms) { return (end == STEPCCL_ERROR_PEER_CLOSED || end == STEPCCL_ERROR_PEER_FAILED) && ms < kTimeoutMs; };
  job("a rank dies, a kernel waits", STEPCCL_CUDA_PATH_FLAGGED, dies, named_death, true);
  job("a rank dies, a bulk kernel waits", STEPCCL_CUDA_PATH_BULK, dies, named_death, true);
  job("a rank dies, a pipeline waits", STEPCCL_CUDA_PATH_PIPELINE, dies, named_death, true);
  job("a rank dies, a stream waits", STEPCCL_CUDA_PATH_COPY_ENGINE, dies, named_death, true);
  const auto stays_away = [](Rank& self, CUdeviceptr, CUdeviceptr) {
    while (stepccl_cuda_status(self.engine) == STEPCCL_SUCCESS) ::usleep(10'000);
    self.ok(stepccl_cuda_detach(self.engine), "detach");
  };
  const auto late = [](stepccl_result_t end, std::uint64_t ms) { return end == STEPCCL_ERROR_TIMEOUT && ms + 200 >= kTimeoutMs && ms < kTimeoutMs + 2000; };
  job("a rank stays away, a kernel waits", STEPCCL_CUDA_PATH_STAGED, stays_away, late, false);
  job("a rank stays away, a stream waits", STEPCCL_CUDA_PATH_COPY_ENGINE, stays_away, late, false);
  const auto other_call = [](Rank& self, CUdeviceptr send, CUdeviceptr recv) {
    const Case c{STEPCCL_ALL_GATHER, STEPCCL_FLOAT32, STEPCCL_SUM, 77, 0, 7};
    self.ok(call(self, c, send, recv, self.stream, nullptr), "another call");
    std::uint64_t ms = 0;
    end_of(self, self.stream, ms);
    self.ok(stepccl_cuda_detach(self.engine), "detach");
  };
  const auto named_mismatch = [](stepccl_result_t end, std::uint64_t ms) { return (end == STEPCCL_ERROR_MISMATCH || end == STEPCCL_ERROR_PEER_FAILED) && ms < kTimeoutMs; };
  job("ranks make different calls", STEPCCL_CUDA_PATH_STAGED, other_call, named_mismatch, false);
  const auto aborts = [](Rank& self, CUdeviceptr, CUdeviceptr) {
    self.ok(stepccl_cuda_abort(self.engine), "abort");
    self.ok(stepccl_cuda_detach(self.engine), "detach");
  };
  const auto named_abort = [](stepccl_result_t end, std::uint64_t ms) { return end == STEPCCL_ERROR_PEER_FAILED && ms < kTimeoutMs; };
  job("a rank aborts", STEPCCL_CUDA_PATH_STAGED, aborts, named_abort, false);
  return well;
}

}  // namespace gpu
