// SPDX-License-Identifier: Apache-2.0
// Captured operations: replays, several graphs and streams at once, eager calls among them, the legacy default stream.
#include <algorithm>
#include <cstdlib>

#include "gpu/check.hpp"
#include "gpu/graphs.hpp"

namespace gpu {

void check_graphs(Rank& self) {
  const GraphCalls calls;
  constexpr CUstreamCaptureMode kMode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  const std::uint64_t bytes = std::max<std::uint64_t>(8u << 20, self.world * (2u << 20));  // what an all_gather below leaves
  const CUdeviceptr buffers[4] = {self.window(bytes), self.window(bytes), self.window(bytes), self.window(bytes)};
  CUstream other = nullptr;
  self.cu(self.driver->cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0), "stream");
  std::uint64_t seed = 100;
  const auto load = [&](const Case& c, CUdeviceptr to) {
    const auto data = input(c, self.world, self.rank);
    self.upload(to, data.data(), data.size());
  };
  const auto same = [&](const Case& c, CUdeviceptr at) {
    const auto wanted = expected(c, self.world, self.rank);
    std::vector<unsigned char> got(wanted.size());
    self.download(got.data(), at, got.size());
    return got == wanted;
  };
  // Where and how a result is wrong.
  std::string detail;
  const auto look = [&](const Case& c, CUdeviceptr at, const std::string& what) {
    const auto wanted = expected(c, self.world, self.rank);
    std::vector<unsigned char> got(wanted.size());
    self.download(got.data(), at, got.size());
    std::size_t bad = 0;
    std::size_t first = 0;
    for (std::size_t i = got.size(); i-- > 0;) bad += got[i] != wanted[i], first = got[i] != wanted[i] ? i : first;
    if (bad != 0 && detail.empty()) detail = what + ": rank " + std::to_string(self.rank) + " has " + std::to_string(bad) + " wrong bytes of " + std::to_string(got.size()) + ", the first at " + std::to_string(first);
    if (bad != 0) std::fprintf(stderr, "%s\n", detail.c_str());
    return bad == 0;
  };
  const auto tell = [&](const char* name, bool well) {
    const bool all = self.sum(well ? 0 : 1) == 0;
    if (self.rank == 0) report("graphs", name, all, detail);
    if (!all) throw Problem(std::string(name) + " is wrong");
  };

  // One graph with every kind of path, replayed with new data.
  Case reduce{STEPCCL_ALL_REDUCE, STEPCCL_BFLOAT16, STEPCCL_SUM, 1u << 20, 0, 0};
  Case small{STEPCCL_ALL_REDUCE, STEPCCL_FLOAT32, STEPCCL_SUM, 1000, 0, 0};
  Case middle{STEPCCL_ALL_REDUCE, STEPCCL_BFLOAT16, STEPCCL_SUM, 100'001, 0, 0};
  Case gather{STEPCCL_ALL_GATHER, STEPCCL_BFLOAT16, STEPCCL_SUM, 1u << 20, 0, 0};
  for (const std::uint32_t path : {STEPCCL_CUDA_PATH_FLAGGED, STEPCCL_CUDA_PATH_STAGED, STEPCCL_CUDA_PATH_DIRECT, STEPCCL_CUDA_PATH_BULK, STEPCCL_CUDA_PATH_COPY_ENGINE, STEPCCL_CUDA_PATH_PIPELINE, STEPCCL_CUDA_PATH_PACKED}) {
    Case& c = path == STEPCCL_CUDA_PATH_FLAGGED ? small : path == STEPCCL_CUDA_PATH_PACKED ? middle : path == STEPCCL_CUDA_PATH_COPY_ENGINE ? gather : reduce;
    stepccl_cuda_call_t options = STEPCCL_CUDA_CALL_INIT;
    options.path = path;
    Graph graph = calls.capture(self, self.stream, kMode, [&] {
      for (int i = 0; i < 3; ++i) self.ok(call(self, c, buffers[0], buffers[1], self.stream, &options), "captured call");
    });
    bool well = true;
    for (int replay = 0; replay < 5; ++replay) {
      c.seed = seed++;
      load(c, buffers[0]);
      calls.launch(self, graph, self.stream);
      self.sync();
      well = look(c, buffers[1], "replay " + std::to_string(replay)) && well;
      // An eager call between two replays.
      c.seed = seed++;
      load(c, buffers[2]);
      self.ok(call(self, c, buffers[2], buffers[3], self.stream, &options), "eager call");
      self.sync();
      well = look(c, buffers[3], "eager call " + std::to_string(replay)) && well;
    }
    calls.destroy(self, graph);
    static const char* const kNames[] = {"", "replays of flagged", "replays of staged", "replays of direct", "replays of bulk", "replays of copy engine", "", "replays of pipeline", "replays of packed"};
    tell(kNames[path], well);
  }

  // Two graphs on two streams at once, launched in another order on every rank.
  {
    Case left{STEPCCL_ALL_REDUCE, STEPCCL_FLOAT32, STEPCCL_SUM, 20000, 0, seed++};
    Case right{STEPCCL_ALL_GATHER, STEPCCL_BFLOAT16, STEPCCL_SUM, 1u << 20, 0, seed++};
    Graph first = calls.capture(self, self.stream, kMode, [&] { self.ok(call(self, left, buffers[0], buffers[1], self.stream, nullptr), "captured call"); });
    stepccl_cuda_call_t options = STEPCCL_CUDA_CALL_INIT;
    options.path = STEPCCL_CUDA_PATH_COPY_ENGINE;
    Graph second = calls.capture(self, other, kMode, [&] { self.ok(call(self, right, buffers[2], buffers[3], other, &options), "captured call"); });
    bool well = true;
    for (int round = 0; round < 20; ++round) {
      left.seed = seed++;
      right.seed = seed++;
      load(left, buffers[0]);
      load(right, buffers[2]);
      // With one hardware queue a stream that waits holds up the others: there all ranks must launch in one order.
      const char* queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
      const bool one_queue = queues != nullptr && std::string(queues) == "1";
      if ((round + (one_queue ? 0 : self.rank)) % 2 == 0) {
        calls.launch(self, first, self.stream);
        calls.launch(self, second, other);
      } else {
        calls.launch(self, second, other);
        calls.launch(self, first, self.stream);
      }
      self.sync();
      self.cu(self.driver->cuStreamSynchronize(other), "synchronize");
      well = well && same(left, buffers[1]) && same(right, buffers[3]);
    }
    stepccl_cuda_info_t info{};
    info.size = sizeof info;
    self.ok(stepccl_cuda_query(self.engine, &info), "query");
    well = well && info.lanes_in_use == 2 && info.shared_lanes == 0;
    for (const Graph& graph : {first, second}) {
      calls.destroy(self, graph);
    }
    tell("two graphs at once, in other orders", well);
  }
  // Sends and receives of a graph, by copy engines. The barrier is the call that all ranks make, by which the graph has a lane.
  {
    const std::uint32_t next = (self.rank + 1) % self.world;
    const std::uint32_t before = (self.rank + self.world - 1) % self.world;
    constexpr std::uint64_t kCount = 5u << 20;
    const auto exchange = [&](CUdeviceptr from, CUdeviceptr to) {
      self.ok(stepccl_cuda_group_start(self.engine), "group_start");
      self.ok(stepccl_cuda_send(self.engine, reinterpret_cast<void*>(from), kCount, STEPCCL_UINT8, next, self.stream, nullptr), "send");
      self.ok(stepccl_cuda_recv(self.engine, reinterpret_cast<void*>(to), kCount, STEPCCL_UINT8, before, self.stream, nullptr), "recv");
      self.ok(stepccl_cuda_group_end(self.engine), "group_end");
    };
    stepccl_cuda_info_t info{};
    info.size = sizeof info;
    Graph graph = calls.capture(self, self.stream, kMode, [&] {
      self.ok(stepccl_cuda_barrier(self.engine, self.stream, nullptr), "barrier");
      exchange(buffers[0], buffers[1]);
      self.ok(stepccl_cuda_query(self.engine, &info), "query");
      exchange(buffers[1], buffers[2]);  // what came goes on around the ring
    });
    bool well = info.last_path == STEPCCL_CUDA_PATH_COPY_ENGINE;
    const auto holds = [&](CUdeviceptr at, std::uint32_t rank, std::uint64_t of) {
      std::vector<unsigned char> wanted(kCount);
      std::vector<unsigned char> got(kCount);
      fill(wanted.data(), STEPCCL_UINT8, 0, kCount, rank, of);
      self.download(got.data(), at, kCount);
      return got == wanted;
    };
    for (int replay = 0; replay < 5; ++replay) {
      std::vector<unsigned char> data(kCount);
      fill(data.data(), STEPCCL_UINT8, 0, kCount, self.rank, ++seed);
      self.upload(buffers[0], data.data(), kCount);
      calls.launch(self, graph, self.stream);
      if (replay % 2 == 0) exchange(buffers[0], buffers[3]);  // an eager one behind it
      self.sync();
      well = holds(buffers[1], before, seed) && holds(buffers[2], (before + self.world - 1) % self.world, seed) && (replay % 2 != 0 || holds(buffers[3], before, seed)) && well;
    }
    calls.destroy(self, graph);
    tell("sends and receives", well);
  }
  // Lanes come back: many graphs, one after another.
  {
    Case c{STEPCCL_ALL_REDUCE, STEPCCL_FLOAT32, STEPCCL_SUM, 500, 0, seed++};
    for (int i = 0; i < 12; ++i) {
      Graph graph = calls.capture(self, self.stream, kMode, [&] { self.ok(call(self, c, buffers[0], buffers[1], self.stream, nullptr), "captured call"); });
      load(c, buffers[0]);
      calls.launch(self, graph, self.stream);
      self.sync();
      calls.destroy(self, graph);
      self.meet();
    }
    stepccl_cuda_info_t info{};
    info.size = sizeof info;
    self.ok(stepccl_cuda_query(self.engine, &info), "query");
    tell("lanes of destroyed graphs are used again", same(c, buffers[1]) && info.shared_lanes == 0);
  }
  // Eager calls that take turns on two streams and the legacy default stream keep their order.
  {
    bool well = true;
    Case c{STEPCCL_ALL_REDUCE, STEPCCL_INT32, STEPCCL_SUM, 3000, 0, seed++};
    load(c, buffers[0]);
    const CUstream streams[3] = {self.stream, other, nullptr};
    // A sum of sums: the buffer that one call writes is what the next reads.
    for (int i = 0; i < 6; ++i) self.ok(call(self, c, buffers[i % 2], buffers[(i + 1) % 2], streams[i % 3], nullptr), "eager call");
    self.cu(self.driver->cuCtxSynchronize(), "synchronize");
    std::vector<std::int32_t> got(3000);
    std::vector<std::int32_t> sum(3000);
    std::vector<std::int32_t> part(3000);
    for (std::uint32_t rank = 0; rank < self.world; ++rank) {
      fill(part.data(), STEPCCL_INT32, 0, 3000, rank, c.seed);
      for (std::size_t i = 0; i < 3000; ++i) sum[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(sum[i]) + static_cast<std::uint32_t>(part[i]));
    }
    self.download(got.data(), buffers[0], 12000);
    std::uint32_t factor = 1;
    for (int i = 0; i < 5; ++i) factor *= self.world;
    for (std::size_t i = 0; i < 3000; ++i) well = well && static_cast<std::uint32_t>(got[i]) == static_cast<std::uint32_t>(sum[i]) * factor;
    tell("streams in turn, the legacy default stream among them", well);
  }
}

}  // namespace gpu
