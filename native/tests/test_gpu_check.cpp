// SPDX-License-Identifier: Apache-2.0
// stepccl-gpu-check's values and graphs over the emulated driver: every path of the engine's host side, for 2 to 8 ranks.
#include <doctest/doctest.h>

#include "gpu/check.hpp"
#include "gpu/graphs.hpp"
#include "gpu_job.hpp"

using namespace stepccl::testing;

namespace {

constexpr bool kSlow = STEPCCL_SLOWED > 1;  // under a sanitizer: the same paths, less of them

}  // namespace

TEST_CASE("GPU checks: values of every element on every path") {
  for (const std::uint32_t world : {2u, 4u, 8u}) {
    if (kSlow && world == 8) continue;
    CAPTURE(world);
    CHECK(run_gpus(world, {}, [&](gpu::Rank& self) { gpu::check_values(self, kSlow ? 1'000 : world == 2 ? 40'000 : 6'000); }) == "");
  }
}

TEST_CASE("GPU checks: graphs, replayed and mixed with eager calls") {
  for (const std::uint32_t world : {2u, 3u}) {
    if (kSlow && world == 3) continue;
    CAPTURE(world);
    CHECK(run_gpus(world, {}, gpu::check_graphs) == "");
  }
}

TEST_CASE("GPU checks: a large broadcast goes on from rank to rank, from any root, in place and not, in a graph too") {
  for (const std::uint32_t world : {3u, 8u}) {
    if (kSlow && world == 8) continue;
    CAPTURE(world);
    const std::string problems = run_gpus(world, {}, [&](gpu::Rank& self) {
      const gpu::GraphCalls calls;
      // Several pieces, and parts that don't come out even.
      const std::uint64_t bytes = (world == 3 ? (17u << 20) : (9u << 20)) + 12344;
      const CUdeviceptr send = self.window(bytes + 64);
      const CUdeviceptr recv = self.window(bytes + 64);
      for (std::uint32_t root = 0; root < world; root += world / 2) {
        const gpu::Case c{STEPCCL_BROADCAST, STEPCCL_UINT8, STEPCCL_SUM, bytes, root, 40 + root};
        CHECK(self.sum(gpu::wrong_bytes(self, c, send, recv, STEPCCL_CUDA_PATH_AUTO, "broadcast")) == 0);
        stepccl_cuda_info_t info{};
        info.size = sizeof info;
        self.ok(stepccl_cuda_query(self.engine, &info), "query");
        CHECK(info.last_path == STEPCCL_CUDA_PATH_COPY_ENGINE);
        CHECK(self.sum(gpu::wrong_bytes(self, c, recv, recv, STEPCCL_CUDA_PATH_COPY_ENGINE, "broadcast in place")) == 0);
      }
      stepccl_cuda_call_t options = STEPCCL_CUDA_CALL_INIT;
      gpu::Case c{STEPCCL_BROADCAST, STEPCCL_UINT8, STEPCCL_SUM, bytes, 1, 70};
      const gpu::Graph graph = calls.capture(self, self.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, [&] { self.ok(gpu::call(self, c, send, recv, self.stream, &options), "captured call"); });
      for (int replay = 0; replay < 3; ++replay) {
        ++c.seed;
        const auto data = gpu::input(c, world, self.rank);
        self.upload(send, data.data(), data.size());
        calls.launch(self, graph, self.stream);
        std::vector<unsigned char> got(bytes);
        self.download(got.data(), recv, bytes);
        CHECK(got == gpu::expected(c, world, self.rank));
      }
      stepccl_cuda_receipt_t receipt{};
      receipt.size = sizeof receipt;
      self.ok(stepccl_cuda_receipt(self.engine, options.ticket, &receipt), "receipt");
      CHECK(receipt.blocks == 0);
      CHECK(receipt.link_bytes <= bytes);  // a root that wrote to everyone would send it once for each
      calls.destroy(self, graph);
    });
    CHECK(problems == "");
  }
}
