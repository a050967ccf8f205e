// SPDX-License-Identifier: Apache-2.0
// stepccl-gpu-perf --calibrate: the thresholds between paths, measured.
#include <cstdio>
#include <string>

#include "gpu/timing.hpp"

namespace gpu {
namespace {

constexpr std::uint64_t kMost = 512u << 20;
constexpr double kClearly = 0.98;  // a path has to win by this much to be preferred

// Times of one operation by path, over messages of doubling size; what can't go a path is left out of it.
class Course {
 public:
  Course(Rank& self, const GraphCalls& calls, stepccl_collective_t kind, CUdeviceptr send, CUdeviceptr recv, bool graph) : self_(self), calls_(calls), kind_(kind), send_(send), recv_(recv), graph_(graph) {}

  // Microseconds; a very long time where the operation can't go that way.
  double time(std::uint64_t bytes, std::uint32_t path) {
    const Case c{kind_, STEPCCL_BFLOAT16, STEPCCL_SUM, bytes / 2, 0, bytes};
    stepccl_cuda_call_t options = STEPCCL_CUDA_CALL_INIT;
    options.path = path;
    const bool possible = call(self_, c, send_, recv_, self_.stream, &options) != STEPCCL_ERROR_UNSUPPORTED;
    self_.sync();
    if (!possible) return 1e12;
    const double us = time_operation(self_, calls_, c, send_, recv_, options, bytes, graph_, 0).us;
    if (self_.rank == 0) std::printf("  %-14s %12llu %-12s %10.2f us\n", stepccl_collective_name(kind_), static_cast<unsigned long long>(bytes), kNames[path], us);
    std::fflush(stdout);
    return us;
  }

  // The largest message up to which `first` is no slower than any of the others, seen from `from` on. 0: never.
  std::uint64_t last(std::uint32_t first, std::initializer_list<std::uint32_t> others, std::uint64_t from, std::uint64_t to) {
    std::uint64_t best = 0;
    for (std::uint64_t bytes = from; bytes <= to; bytes *= 2) {
      const double mine = time(bytes, first);
      bool wins = mine < 1e11;
      for (const std::uint32_t other : others) wins = wins && mine <= time(bytes, other) / kClearly;
      if (!wins) break;
      best = bytes;
    }
    return best;
  }

  static constexpr const char* kNames[] = {"auto", "flagged", "staged", "direct", "bulk", "copy_engine", "paged", "pipeline", "packed"};

 private:
  Rank& self_;
  const GraphCalls& calls_;
  stepccl_collective_t kind_;
  CUdeviceptr send_;
  CUdeviceptr recv_;
  bool graph_;
};

}  // namespace

void calibrate(Rank& self, const std::string& file) {
  // Kernels of two ranks on one GPU wait for each other's time slices, which are milliseconds: that would be measured.
  std::uint32_t gpus = 0;
  self.ok(stepccl_cuda_device_count(&gpus), "device_count");
  if (gpus < self.world) {
    throw Problem("--calibrate wants a GPU for each of its " + std::to_string(self.world) + " ranks, and there " + (gpus == 1 ? "is 1" : "are " + std::to_string(gpus)) + ": give fewer ranks by -n");
  }
  const GraphCalls calls;
  const CUdeviceptr send = self.window(kMost);
  const CUdeviceptr recv = self.window(kMost);
  Course sums(self, calls, STEPCCL_ALL_REDUCE, send, recv, true);
  Course large(self, calls, STEPCCL_ALL_REDUCE, send, send, false);  // in place, as applications do it
  Course gathers(self, calls, STEPCCL_ALL_GATHER, send, recv, true);
  Course broadcasts(self, calls, STEPCCL_BROADCAST, send, recv, true);

  const std::uint64_t flagged = sums.last(STEPCCL_CUDA_PATH_FLAGGED, {STEPCCL_CUDA_PATH_PACKED}, 16u << 10, 256u << 10);
  const std::uint64_t packed = sums.last(STEPCCL_CUDA_PATH_PACKED, {STEPCCL_CUDA_PATH_STAGED, STEPCCL_CUDA_PATH_DIRECT}, std::max<std::uint64_t>(flagged * 2, 32u << 10), 1u << 20);
  const std::uint64_t staged_reduce = sums.last(STEPCCL_CUDA_PATH_STAGED, {STEPCCL_CUDA_PATH_DIRECT}, 256u << 10, 4u << 20);
  const std::uint64_t staged_copy = gathers.last(STEPCCL_CUDA_PATH_STAGED, {STEPCCL_CUDA_PATH_COPY_ENGINE}, 256u << 10, 8u << 20);
  const std::uint64_t spread = broadcasts.last(STEPCCL_CUDA_PATH_DIRECT, {STEPCCL_CUDA_PATH_COPY_ENGINE}, 1u << 20, 64u << 20);
  const std::uint64_t unpushed = large.last(STEPCCL_CUDA_PATH_DIRECT, {STEPCCL_CUDA_PATH_PIPELINE}, 8u << 20, kMost);
  if (self.rank != 0) return;
  // Between two sizes that were tried: up to the first that was lost, less one.
  const auto limit = [](std::uint64_t won) { return static_cast<unsigned long long>(won == 0 ? 0 : won * 3 / 2); };
  const std::string temporary = file + ".part";
  FILE* out = std::fopen(temporary.c_str(), "w");
  if (out == nullptr) throw Problem(temporary + " can't be written");
  std::fprintf(out,
               "{\"flagged_bytes\": %llu, \"packed_bytes\": %llu, \"staged_reduce_bytes\": %llu, \"staged_copy_bytes\": %llu, \"spread_bytes\": %llu, \"push_bytes\": %llu}\n",
               std::min(limit(flagged), 256ull << 10), packed == 0 ? 0ull : std::min(limit(packed), 1100ull << 10), limit(staged_reduce), limit(staged_copy), limit(spread),
               unpushed >= kMost ? 1ull << 40 : limit(unpushed));
  if (std::fclose(out) != 0 || std::rename(temporary.c_str(), file.c_str()) != 0) throw Problem(file + " can't be written");
}

}  // namespace gpu
