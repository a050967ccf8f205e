// SPDX-License-Identifier: Apache-2.0
// stepccl-gpu-check's values and graphs over the emulated driver: every path of the engine's host side, for 2 to 8 ranks.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <mutex>

#include "gpu/check.hpp"
#include "ranks.hpp"

namespace {

// Ranks as threads, one emulated GPU each. They wait for each other's calls however late the machine makes one.
void run_gpus(std::uint32_t world, const std::function<void(gpu::Rank&)>& body, const std::string& thresholds = R"({"plain_wait_us": 20000000})") {
  std::string folder = (std::filesystem::temp_directory_path() / "stepccl-gpu-check-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  const std::string calibration = folder + "/calibration.json";
  std::ofstream(calibration) << thresholds;
  std::mutex mutex;
  std::string problems;
  stepccl::testing::run_ranks(world, stepccl::testing::config_for(0), [&](std::uint32_t rank, stepccl_comm_t comm) {
    gpu::Rank self;
    self.rank = rank;
    self.world = world;
    self.comm = comm;
    try {
      stepccl_cuda_config_t config = STEPCCL_CUDA_CONFIG_INIT;
      config.device = static_cast<std::int32_t>(rank);
      config.pool_bytes = 900u << 20;
      config.timeout_ms = 60'000;
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
      if (self.engine != nullptr) stepccl_cuda_abort(self.engine);
    }
  });
  std::filesystem::remove_all(folder);
  CHECK(problems == "");
}

}  // namespace

TEST_CASE("GPU checks: values of every element on every path") {
  for (const std::uint32_t world : {2u, 4u, 8u}) {
    CAPTURE(world);
    run_gpus(world, [&](gpu::Rank& self) { gpu::check_values(self, world == 2 ? 40'000 : 6'000); });
  }
}

TEST_CASE("GPU checks: graphs, replayed and mixed with eager calls") {
  for (const std::uint32_t world : {2u, 4u}) {
    CAPTURE(world);
    run_gpus(world, gpu::check_graphs);
  }
}
