// SPDX-License-Identifier: Apache-2.0
// Captured operations: replays, several graphs and streams at once, eager calls among them, the legacy default stream.
#include <dlfcn.h>

#include <cstdlib>

#include "gpu/check.hpp"

namespace gpu {
namespace {

struct Graph {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
};

// The calls that only this program needs of the driver.
struct GraphCalls {
  CUresult (*begin)(CUstream, CUstreamCaptureMode);
  CUresult (*end)(CUstream, CUgraph*);
  CUresult (*instantiate)(CUgraphExec*, CUgraph, unsigned long long);
  CUresult (*launch)(CUgraphExec, CUstream);
  CUresult (*destroy)(CUgraph);
  CUresult (*destroy_exec)(CUgraphExec);
};

template <class F>
Graph capture(const Rank& self, const GraphCalls& calls, CUstream stream, F&& body) {
  Graph made;
  self.cu(calls.begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "begin capture");
  body();
  self.cu(calls.end(stream, &made.graph), "end capture");
  self.cu(calls.instantiate(&made.exec, made.graph, 0), "instantiate");
  return made;
}

GraphCalls graph_calls() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
  GraphCalls calls{};
  const auto find = [&](const char* name) {
    void* symbol = ::dlsym(library, name);
    if (symbol == nullptr) throw Problem(std::string(name) + " is missing");
    return symbol;
  };
  calls.begin = reinterpret_cast<decltype(calls.begin)>(find("cuStreamBeginCapture_v2"));
  calls.end = reinterpret_cast<decltype(calls.end)>(find("cuStreamEndCapture"));
  calls.instantiate = reinterpret_cast<decltype(calls.instantiate)>(find("cuGraphInstantiateWithFlags"));
  calls.launch = reinterpret_cast<decltype(calls.launch)>(find("cuGraphLaunch"));
  calls.destroy = reinterpret_cast<decltype(calls.destroy)>(find("cuGraphDestroy"));
  calls.destroy_exec = reinterpret_cast<decltype(calls.destroy_exec)>(find("cuGraphExecDestroy"));
  return calls;
}

}  // namespace

void check_graphs(Rank& self) {
  const GraphCalls calls = graph_calls();
  constexpr std::uint64_t kBytes = 8u << 20;
  const CUdeviceptr buffers[4] = {self.window(kBytes), self.window(kBytes), self.window(kBytes), self.window(kBytes)};
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
  const auto tell = [&](const char* name, bool well) {
    const bool all = self.sum(well ? 0 : 1) == 0;
    if (self.rank == 0) report("graphs", name, all);
    if (!all) throw Problem(std::string(name) + " is wrong");
  };

  // One graph with every kind of path, replayed with new data.
  Case reduce{STEPCCL_ALL_REDUCE, STEPCCL_BFLOAT16, STEPCCL_SUM, 1u << 20, 0, 0};
  Case small{STEPCCL_ALL_REDUCE, STEPCCL_FLOAT32, STEPCCL_SUM, 1000, 0, 0};
  Case gather{STEPCCL_ALL_GATHER, STEPCCL_BFLOAT16, STEPCCL_SUM, 1u << 20, 0, 0};
  for (const std::uint32_t path : {STEPCCL_CUDA_PATH_FLAGGED, STEPCCL_CUDA_PATH_STAGED, STEPCCL_CUDA_PATH_DIRECT, STEPCCL_CUDA_PATH_BULK, STEPCCL_CUDA_PATH_COPY_ENGINE, STEPCCL_CUDA_PATH_PIPELINE}) {
    Case& c = path == STEPCCL_CUDA_PATH_FLAGGED ? small : path == STEPCCL_CUDA_PATH_COPY_ENGINE ? gather : reduce;
    stepccl_cuda_call_t options = STEPCCL_CUDA_CALL_INIT;
    options.path = path;
    Graph graph = capture(self, calls, self.stream, [&] {
      for (int i = 0; i < 3; ++i) self.ok(call(self, c, buffers[0], buffers[1], self.stream, &options), "captured call");
    });
    bool well = true;
    for (int replay = 0; replay < 5; ++replay) {
      c.seed = seed++;
      load(c, buffers[0]);
      self.cu(calls.launch(graph.exec, self.stream), "launch");
      self.sync();
      well = well && same(c, buffers[1]);
      // An eager call between two replays.
      c.seed = seed++;
      load(c, buffers[2]);
      self.ok(call(self, c, buffers[2], buffers[3], self.stream, &options), "eager call");
      self.sync();
      well = well && same(c, buffers[3]);
    }
    self.cu(calls.destroy_exec(graph.exec), "destroy");
    self.cu(calls.destroy(graph.graph), "destroy");
    static const char* const kNames[] = {"", "replays of flagged", "replays of staged", "replays of direct", "replays of bulk", "replays of copy engine", "", "replays of pipeline"};
    tell(kNames[path], well);
  }

  // Two graphs on two streams at once, launched in another order on every rank.
  {
    Case left{STEPCCL_ALL_REDUCE, STEPCCL_FLOAT32, STEPCCL_SUM, 20000, 0, seed++};
    Case right{STEPCCL_ALL_GATHER, STEPCCL_BFLOAT16, STEPCCL_SUM, 1u << 20, 0, seed++};
    Graph first = capture(self, calls, self.stream, [&] { self.ok(call(self, left, buffers[0], buffers[1], self.stream, nullptr), "captured call"); });
    stepccl_cuda_call_t options = STEPCCL_CUDA_CALL_INIT;
    options.path = STEPCCL_CUDA_PATH_COPY_ENGINE;
    Graph second = capture(self, calls, other, [&] { self.ok(call(self, right, buffers[2], buffers[3], other, &options), "captured call"); });
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
        self.cu(calls.launch(first.exec, self.stream), "launch");
        self.cu(calls.launch(second.exec, other), "launch");
      } else {
        self.cu(calls.launch(second.exec, other), "launch");
        self.cu(calls.launch(first.exec, self.stream), "launch");
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
      self.cu(calls.destroy_exec(graph.exec), "destroy");
      self.cu(calls.destroy(graph.graph), "destroy");
    }
    tell("two graphs at once, in other orders", well);
  }
  // Lanes come back: many graphs, one after another.
  {
    Case c{STEPCCL_ALL_REDUCE, STEPCCL_FLOAT32, STEPCCL_SUM, 500, 0, seed++};
    for (int i = 0; i < 12; ++i) {
      Graph graph = capture(self, calls, self.stream, [&] { self.ok(call(self, c, buffers[0], buffers[1], self.stream, nullptr), "captured call"); });
      load(c, buffers[0]);
      self.cu(calls.launch(graph.exec, self.stream), "launch");
      self.sync();
      self.cu(calls.destroy_exec(graph.exec), "destroy");
      self.cu(calls.destroy(graph.graph), "destroy");
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
