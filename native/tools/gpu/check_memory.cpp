// SPDX-License-Identifier: Apache-2.0
// Paging and defragmentation.
#include <algorithm>
#include <chrono>

#include "gpu/check.hpp"
#include "gpu/graphs.hpp"

namespace gpu {
namespace {

stepccl_cuda_pool_info_t pool_of(const Rank& self) {
  stepccl_cuda_pool_info_t info{};
  info.size = sizeof info;
  self.ok(stepccl_cuda_pool_query(self.engine, &info), "pool_query");
  return info;
}

void tell(const Rank& self, const char* part, const std::string& name, bool well, const std::string& detail = {}) {
  const bool all = self.sum(well ? 0 : 1) == 0;
  if (self.rank == 0) report(part, name, all, detail);
  if (!all) throw Problem(name + " is wrong");
}

}  // namespace

void check_paging(Rank& self) {
  self.ok(stepccl_cuda_paging(self.engine, 4u << 20, 2), "paging");
  std::uint64_t seed = 500;
  // Plain device memory larger than a page, and pinned host memory.
  constexpr std::uint64_t kBytes = 48u << 20;
  const CUdeviceptr plain[2] = {self.plain(kBytes), self.plain(kBytes)};
  void* host[2] = {};
  for (void*& one : host) self.cu(self.driver->cuMemHostAlloc(&one, kBytes, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
  const CUdeviceptr pinned[2] = {reinterpret_cast<CUdeviceptr>(host[0]), reinterpret_cast<CUdeviceptr>(host[1])};
  for (const auto kind : {STEPCCL_ALL_REDUCE, STEPCCL_ALL_GATHER, STEPCCL_REDUCE_SCATTER, STEPCCL_BROADCAST, STEPCCL_ALL_TO_ALL, STEPCCL_REDUCE, STEPCCL_SCATTER, STEPCCL_GATHER}) {
    for (const bool on_host : {false, true}) {
      const bool wide = kind != STEPCCL_ALL_REDUCE && kind != STEPCCL_BROADCAST && kind != STEPCCL_REDUCE;
      Case c{kind, STEPCCL_FLOAT32, STEPCCL_SUM, (wide ? 40u << 20 : 40u << 20) / 4 / (wide ? self.world : 1) + 3, 0, seed++};
      const CUdeviceptr* buffers = on_host ? pinned : plain;
      const auto wrong = self.sum(wrong_bytes(self, c, buffers[0], buffers[1], STEPCCL_CUDA_PATH_PAGED, "paged"));
      tell(self, "paging", std::string(stepccl_collective_name(kind)) + (on_host ? " on pinned host memory" : " on device memory"), wrong == 0);
    }
  }
  // Pages come one by one.
  Case c{STEPCCL_ALL_REDUCE, STEPCCL_FLOAT32, STEPCCL_SUM, 10u << 20, 0, seed++};
  const auto data = input(c, self.world, self.rank);
  self.upload(plain[0], data.data(), data.size());
  stepccl_cuda_call_t options = STEPCCL_CUDA_CALL_INIT;
  options.path = STEPCCL_CUDA_PATH_PAGED;
  self.ok(call(self, c, plain[0], plain[1], self.stream, &options), "paged");
  for (std::uint64_t page = 0; page < 10; ++page) self.ok(stepccl_cuda_wait_page(self.engine, options.ticket, page, nullptr), "wait_page");
  const bool refused = stepccl_cuda_wait_page(self.engine, options.ticket, 10, nullptr) == STEPCCL_ERROR_INVALID_ARGUMENT;
  const auto wanted = expected(c, self.world, self.rank);
  std::vector<unsigned char> got(wanted.size());
  CUstream reader = nullptr;
  self.cu(self.driver->cuStreamCreateWithPriority(&reader, CU_STREAM_NON_BLOCKING, 0), "stream");
  self.cu(self.driver->cuMemcpyDtoHAsync_v2(got.data(), plain[1], got.size(), reader), "copy");
  self.cu(self.driver->cuStreamSynchronize(reader), "synchronize");
  tell(self, "paging", "wait_page", refused && got == wanted);
  self.ok(stepccl_cuda_paging(self.engine, 0, 0), "paging off");
}

void check_defrag(Rank& self) {
  constexpr std::uint64_t kMiB = 1u << 20;
  std::uint64_t seed = 900;
  // Buffers that share extents, every second of them given back.
  std::vector<CUdeviceptr> all;
  const CUdeviceptr large = self.window(64 * kMiB);
  self.ok(stepccl_cuda_mem_free(self.engine, reinterpret_cast<void*>(large)), "mem_free");
  for (int i = 0; i < 16; ++i) all.push_back(self.window(4 * kMiB));
  for (int i = 1; i < 16; i += 2) self.ok(stepccl_cuda_mem_free(self.engine, reinterpret_cast<void*>(all[static_cast<std::size_t>(i)])), "mem_free");
  std::vector<Case> cases;
  std::vector<CUdeviceptr> kept;
  for (std::size_t i = 0; i < all.size(); i += 2) kept.push_back(all[i]);
  for (const CUdeviceptr at : kept) {
    Case c{STEPCCL_BROADCAST, STEPCCL_UINT8, STEPCCL_SUM, 4 * kMiB, 0, seed++};
    const auto data = input(c, self.world, self.rank);
    self.upload(at, data.data(), data.size());
    cases.push_back(c);
  }
  const auto intact = [&](std::size_t from) {
    bool well = true;
    for (std::size_t i = from; i < kept.size(); ++i) {
      std::vector<unsigned char> got(4 * kMiB);
      self.download(got.data(), kept[i], got.size());
      well = well && got == input(cases[i], self.world, self.rank);
    }
    return well;
  };
  const auto before = pool_of(self);
  std::uint64_t released = 0;
  self.meet();
  self.ok(stepccl_cuda_defrag_now(self.engine, &released), "defrag_now");
  const auto after = pool_of(self);
  tell(self, "defrag", "one epoch", released >= 32 * kMiB && after.held_bytes + released == before.held_bytes && intact(0) && after.device_free_bytes > before.device_free_bytes,
       "fragmentation " + std::to_string(before.fragmentation_permille) + " to " + std::to_string(after.fragmentation_permille) + " permille, " + std::to_string(after.last_epoch_us) + " us");

  // The interval, while operations run and memory is taken and given back.
  self.ok(stepccl_cuda_defrag(self.engine, 20), "defrag");
  bool well = true;
  for (int round = 0; round < 60; ++round) {
    const CUdeviceptr scratch[2] = {self.window(24 * kMiB), self.window(6 * kMiB)};
    self.ok(stepccl_cuda_mem_free(self.engine, reinterpret_cast<void*>(scratch[0])), "mem_free");
    Case c{STEPCCL_ALL_REDUCE, STEPCCL_BFLOAT16, STEPCCL_SUM, 2 * kMiB - 64, 0, seed++};
    for (int i = 0; i < 10; ++i) {
      well = well && wrong_bytes(self, c, kept[0], kept[1], i % 2 == 0 ? STEPCCL_CUDA_PATH_BULK : STEPCCL_CUDA_PATH_STAGED, "beside defragmentation") == 0;
    }
    self.ok(stepccl_cuda_mem_free(self.engine, reinterpret_cast<void*>(scratch[1])), "mem_free");
  }
  const auto last = pool_of(self);
  tell(self, "defrag", "by interval, beside operations", well && intact(2) && last.defrag_epochs > after.defrag_epochs,
       std::to_string(last.defrag_epochs) + " epochs, " + std::to_string(last.defrag_released_bytes / kMiB) + " MiB released");

  // A graph goes on while what it works on moves to other memory.
  {
    self.ok(stepccl_cuda_defrag(self.engine, 3'600'000), "defrag for graphs");  // what is captured from here on passes the gate
    self.ok(stepccl_cuda_mem_free(self.engine, reinterpret_cast<void*>(self.window(64 * kMiB))), "mem_free");
    std::vector<CUdeviceptr> row;  // in the extent that was just given back
    for (int i = 0; i < 8; ++i) row.push_back(self.window(8 * kMiB));
    const GraphCalls calls;
    Case sum{STEPCCL_ALL_REDUCE, STEPCCL_BFLOAT16, STEPCCL_SUM, kMiB, 0, seed++};
    const Case gather{STEPCCL_ALL_GATHER, STEPCCL_BFLOAT16, STEPCCL_SUM, kMiB / self.world, 0, 0};
    stepccl_cuda_call_t direct = STEPCCL_CUDA_CALL_INIT;
    direct.path = STEPCCL_CUDA_PATH_DIRECT;
    stepccl_cuda_call_t copies = STEPCCL_CUDA_CALL_INIT;
    copies.path = STEPCCL_CUDA_PATH_COPY_ENGINE;
    const Graph graph = calls.capture(self, self.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, [&] {
      self.ok(call(self, sum, row[0], row[2], self.stream, &direct), "captured all_reduce");
      self.ok(call(self, gather, row[2], row[4], self.stream, &copies), "captured all_gather");
    });
    for (int i = 1; i < 8; i += 2) self.ok(stepccl_cuda_mem_free(self.engine, reinterpret_cast<void*>(row[static_cast<std::size_t>(i)])), "mem_free");
    const std::uint64_t moved = pool_of(self).defrag_moved_bytes;
    bool same = true;
    for (int round = 0; round < 4 && same; ++round) {
      sum.seed = seed++;
      const auto data = input(sum, self.world, self.rank);
      self.upload(row[0], data.data(), data.size());
      // An epoch needs a moment without work on every rank, which is rare where ranks share a GPU.
      self.ok(stepccl_cuda_defrag(self.engine, 20), "defrag by interval");
      const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      const auto waits = [&] { return pool_of(self).defrag_moved_bytes == moved && std::chrono::steady_clock::now() < patience; };
      do {
        for (int replay = 0; replay < 50; ++replay) calls.launch(self, graph, self.stream);
        self.sync();
      } while (self.sum(waits() ? 1 : 0) != 0);
      // Only the engine's own operations may touch the pool beside an epoch.
      self.ok(stepccl_cuda_defrag(self.engine, 3'600'000), "defrag paused");
      self.ok(stepccl_cuda_defrag_now(self.engine, nullptr), "the epoch that was due");
      const auto wanted = expected(sum, self.world, self.rank);
      std::vector<unsigned char> got(gather.bytes() * self.world);
      self.download(got.data(), row[4], got.size());
      for (std::uint32_t rank = 0; rank < self.world; ++rank) {
        same = same && std::equal(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(gather.bytes()), got.begin() + static_cast<std::ptrdiff_t>(rank * gather.bytes()));
      }
      same = self.sum(same ? 0 : 1) == 0;
    }
    const std::uint64_t since = pool_of(self).defrag_moved_bytes - moved;
    calls.destroy(self, graph);
    tell(self, "defrag", "under a captured graph", same && since > 0, (same ? "" : "wrong values; ") + std::to_string(since / kMiB) + " MiB moved between replays");
  }
  self.ok(stepccl_cuda_defrag(self.engine, 0), "defrag off");
}

}  // namespace gpu
