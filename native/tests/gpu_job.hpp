// SPDX-License-Identifier: Apache-2.0
// A job on emulated GPUs: ranks as threads, one GPU each.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>

#include "gpu/ranks.hpp"
#include "ranks.hpp"

namespace stepccl::testing {

struct GpuJob {
  std::string thresholds = R"({"plain_wait_us": 20000000})";  // JSON; ranks wait for each other however late the machine makes one
  std::uint32_t timeout_ms = 60'000;
};

// What went wrong, one line for each rank; empty when all went well.
inline std::string run_gpus(std::uint32_t world, const GpuJob& job, const std::function<void(gpu::Rank&)>& body) {
  std::string folder = (std::filesystem::temp_directory_path() / "stepccl-gpu-job-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  const std::string calibration = folder + "/calibration.json";
  std::ofstream(calibration) << job.thresholds;
  std::mutex mutex;
  std::string problems;
  run_ranks(world, config_for(0), [&](std::uint32_t rank, stepccl_comm_t comm) {
    gpu::Rank self;
    self.rank = rank;
    self.world = world;
    self.comm = comm;
    try {
      stepccl_cuda_config_t config = STEPCCL_CUDA_CONFIG_INIT;
      config.device = static_cast<std::int32_t>(rank);
      config.pool_bytes = 900u << 20;
      config.timeout_ms = job.timeout_ms;
      config.calibration_file = calibration.c_str();
      self.ok(stepccl_cuda_attach(&self.engine, comm, &config), "attach");
      self.driver = stepccl::cuda::Driver::get().value();
      self.cu(self.driver->cuDevicePrimaryCtxRetain(&self.context, static_cast<CUdevice>(rank)), "context");
      const stepccl::cuda::ContextScope scope(*self.driver, self.context);
      self.cu(self.driver->cuStreamCreateWithPriority(&self.stream, CU_STREAM_NON_BLOCKING, 0), "stream");
      body(self);
      self.cu(self.driver->cuStreamDestroy_v2(self.stream), "stream");
      self.ok(stepccl_cuda_detach(self.engine), "detach");
    } catch (const std::exception& problem) {
      const std::lock_guard lock(mutex);
      problems += "rank " + std::to_string(rank) + ": " + problem.what() + "\n";
      if (self.engine != nullptr) stepccl_cuda_detach((stepccl_cuda_abort(self.engine), self.engine));
    }
  });
  std::filesystem::remove_all(folder);
  return problems;
}

}  // namespace stepccl::testing
