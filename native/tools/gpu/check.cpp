// SPDX-License-Identifier: Apache-2.0
// Checks the GPU engine on the GPUs of this host: values of every element, graphs, streams, paging, defragmentation,
// failures. One JSON line for each check; exit status 0 when all are well.
//   stepccl-gpu-check [-n GPUS] [PART...]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "gpu/check.hpp"

namespace gpu {

bool report(const char* part, const std::string& name, bool well, const std::string& detail) {
  std::printf("{\"check\": \"%s\", \"case\": \"%s\", \"ok\": %s%s%s%s}\n", part, name.c_str(), well ? "true" : "false", detail.empty() ? "" : ", \"detail\": \"", detail.c_str(),
              detail.empty() ? "" : "\"");
  std::fflush(stdout);
  return well;
}

namespace {

std::string name_of(const Case& c, std::uint32_t path, bool windows, bool in_place) {
  static const char* const kPaths[] = {"auto", "flagged", "staged", "direct", "bulk", "copy_engine", "paged", "pipeline", "packed"};
  return std::string(stepccl_collective_name(c.kind)) + " " + stepccl_datatype_name(c.type) + " " + stepccl_redop_name(c.redop) + " " + std::to_string(c.count) + " root " +
         std::to_string(c.root) + " " + kPaths[path] + (windows ? " window" : " plain") + (in_place ? " in place" : "");
}

}  // namespace

std::uint64_t wrong_bytes(const Rank& self, const Case& c, CUdeviceptr send, CUdeviceptr recv, std::uint32_t path, const char* what) {
  constexpr std::uint64_t kGuard = 64;
  const bool in_place = send == recv;
  const auto data = input(c, self.world, self.rank);
  const std::uint64_t out_bytes = c.bytes() * c.recv_blocks(self.world);
  CUdeviceptr from = send;
  CUdeviceptr to = recv;
  if (in_place && c.kind == STEPCCL_ALL_GATHER) from = send + self.rank * c.bytes();
  if (in_place && c.kind == STEPCCL_REDUCE_SCATTER) to = recv + self.rank * c.bytes();
  std::vector<unsigned char> poison(out_bytes + kGuard, 0xa5);
  self.upload(to == recv ? recv : to, poison.data(), in_place && to != recv ? 0 : poison.size());
  self.upload(from, data.data(), data.size());
  stepccl_cuda_call_t options = STEPCCL_CUDA_CALL_INIT;
  options.path = path;
  self.ok(call(self, c, from, to, self.stream, &options), what);
  self.sync();
  if (!c.writes(self.rank)) return 0;
  const auto wanted = expected(c, self.world, self.rank);
  std::vector<unsigned char> got(out_bytes + kGuard);
  self.download(got.data(), to, got.size());
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < out_bytes; ++i) wrong += got[i] != wanted[i];
  if (!in_place) {
    for (std::uint64_t i = out_bytes; i < got.size(); ++i) wrong += got[i] != 0xa5;
  }
  return wrong;
}

namespace {

constexpr stepccl_collective_t kAllKinds[] = {STEPCCL_ALL_REDUCE, STEPCCL_REDUCE_SCATTER, STEPCCL_REDUCE,  STEPCCL_ALL_GATHER,
                                              STEPCCL_BROADCAST,  STEPCCL_SCATTER,        STEPCCL_GATHER, STEPCCL_ALL_TO_ALL};

bool reduces(stepccl_collective_t kind) { return kind == STEPCCL_ALL_REDUCE || kind == STEPCCL_REDUCE_SCATTER || kind == STEPCCL_REDUCE; }

}  // namespace

void check_values(Rank& self) {
  constexpr std::uint64_t kBuffer = 40u << 20;
  const CUdeviceptr windows[2] = {self.window(kBuffer), self.window(kBuffer)};
  const CUdeviceptr plains[2] = {self.plain(kBuffer), self.plain(kBuffer)};
  std::uint64_t cases = 0;
  std::uint64_t bad = 0;
  std::uint64_t seed = 1;
  const auto one = [&](Case c, std::uint32_t path, bool use_windows, bool in_place) {
    c.seed = seed++;
    const CUdeviceptr* buffers = use_windows ? windows : plains;
    const std::string name = name_of(c, path, use_windows, in_place);
    const std::uint64_t wrong = self.sum(wrong_bytes(self, c, buffers[0], in_place ? buffers[0] : buffers[1], path, name.c_str()));
    ++cases;
    if (wrong != 0) {
      ++bad;
      if (self.rank == 0 && bad <= 40) report("values", name, false, std::to_string(wrong) + " wrong bytes");
    }
  };
  for (const auto kind : kAllKinds) {
    for (const std::uint64_t count : {1u, 7u, 1000u, 5003u, 30000u, 300007u}) {
      for (std::uint32_t root = 0; root < (kind == STEPCCL_BROADCAST || kind == STEPCCL_REDUCE || kind == STEPCCL_SCATTER || kind == STEPCCL_GATHER ? self.world : 1u); ++root) {
        Case c{kind, STEPCCL_FLOAT32, STEPCCL_SUM, count, root, 0};
        if (c.bytes() <= 128u << 10) one(c, STEPCCL_CUDA_PATH_FLAGGED, false, false);
        if (c.bytes() <= 128u << 10 || self.world == 2) one(c, STEPCCL_CUDA_PATH_PACKED, false, false);
        one(c, STEPCCL_CUDA_PATH_STAGED, false, false);
        one(c, STEPCCL_CUDA_PATH_AUTO, true, false);
      }
    }
    for (const std::uint64_t count : {4096u, 1000000u, 2097152u, 9000000u}) {
      Case c{kind, STEPCCL_BFLOAT16, STEPCCL_SUM, count, self.world - 1, 0};
      one(c, STEPCCL_CUDA_PATH_STAGED, false, false);
      one(c, STEPCCL_CUDA_PATH_AUTO, false, false);
      if (kind == STEPCCL_REDUCE_SCATTER || kind == STEPCCL_REDUCE) {
        c.count = c.count / 8 * 8;
        one(c, STEPCCL_CUDA_PATH_PIPELINE, false, false);
      }
      if (reduces(kind)) {
        one(c, STEPCCL_CUDA_PATH_DIRECT, true, false);
        one(c, STEPCCL_CUDA_PATH_BULK, true, false);
        one(c, STEPCCL_CUDA_PATH_PIPELINE, true, false);
      } else {
        one(c, STEPCCL_CUDA_PATH_COPY_ENGINE, true, false);
        if (kind != STEPCCL_GATHER && c.bytes() % 16 == 0) one(c, STEPCCL_CUDA_PATH_DIRECT, true, false);
      }
    }
  }
  // Many times over, as an error of order would show now and then only.
  for (int round = 0; round < 200; ++round) {
    const Case c{round % 2 == 0 ? STEPCCL_ALL_REDUCE : STEPCCL_ALL_GATHER, STEPCCL_BFLOAT16, STEPCCL_SUM, 300u * static_cast<unsigned>(round) + 1, 0, 0};
    one(c, c.bytes() <= 128u << 10 || self.world == 2 ? STEPCCL_CUDA_PATH_PACKED : STEPCCL_CUDA_PATH_STAGED, false, round % 3 == 0 && c.kind == STEPCCL_ALL_REDUCE);
  }
  // Types and reductions, on every path.
  for (int type = 0; type < STEPCCL_DATATYPE_COUNT; ++type) {
    for (int redop = 0; redop < STEPCCL_REDOP_COUNT; ++redop) {
      const Case c{STEPCCL_ALL_REDUCE, static_cast<stepccl_datatype_t>(type), static_cast<stepccl_redop_t>(redop), 4003, 0, 0};
      one(c, STEPCCL_CUDA_PATH_FLAGGED, false, false);
      one(c, STEPCCL_CUDA_PATH_PACKED, false, false);
      one(c, STEPCCL_CUDA_PATH_STAGED, false, false);
      one(c, STEPCCL_CUDA_PATH_DIRECT, true, false);
      one(c, STEPCCL_CUDA_PATH_BULK, true, false);
    }
  }
  // In place.
  for (const auto kind : {STEPCCL_ALL_REDUCE, STEPCCL_ALL_GATHER, STEPCCL_REDUCE_SCATTER, STEPCCL_BROADCAST, STEPCCL_REDUCE}) {
    for (const std::uint64_t count : {1000u, 1048576u}) {
      const Case c{kind, STEPCCL_BFLOAT16, STEPCCL_SUM, count, 0, 0};
      one(c, count == 1000 ? STEPCCL_CUDA_PATH_FLAGGED : STEPCCL_CUDA_PATH_STAGED, false, true);
      one(c, STEPCCL_CUDA_PATH_AUTO, true, true);
      if (reduces(kind)) one(c, STEPCCL_CUDA_PATH_BULK, true, true), one(c, STEPCCL_CUDA_PATH_PIPELINE, true, true);
      else one(c, STEPCCL_CUDA_PATH_COPY_ENGINE, true, true);
    }
  }
  if (self.rank == 0) report("values", std::to_string(cases) + " cases", bad == 0, std::to_string(bad) + " bad");

  // Sends and receives of different sizes, in one group, both ways round a ring; and all_to_all_v.
  for (const std::uint64_t count : {std::uint64_t{3}, std::uint64_t{70001}, std::uint64_t{3000000}}) {
    const std::uint32_t next = (self.rank + 1) % self.world;
    const std::uint32_t before = (self.rank + self.world - 1) % self.world;
    std::vector<float> data(count);
    std::vector<float> wanted(count);
    std::vector<float> got(count);
    fill(data.data(), STEPCCL_FLOAT32, 0, count, self.rank, seed);
    fill(wanted.data(), STEPCCL_FLOAT32, 0, count, before, seed++);
    self.upload(plains[0], data.data(), count * 4);
    self.ok(stepccl_cuda_group_start(self.engine), "group_start");
    self.ok(stepccl_cuda_send(self.engine, reinterpret_cast<void*>(plains[0]), count, STEPCCL_FLOAT32, next, self.stream, nullptr), "send");
    self.ok(stepccl_cuda_recv(self.engine, reinterpret_cast<void*>(plains[1]), count, STEPCCL_FLOAT32, before, self.stream, nullptr), "recv");
    self.ok(stepccl_cuda_group_end(self.engine), "group_end");
    self.download(got.data(), plains[1], count * 4);
    const bool well = self.sum(got != wanted) == 0;
    if (self.rank == 0) report("values", "send and recv of " + std::to_string(count), well);
  }
  // The buffers are the driver's own allocations: large calls take them as they are.
  const auto went = [&](stepccl_cuda_path_t path) {
    stepccl_cuda_info_t info{};
    info.size = sizeof info;
    self.ok(stepccl_cuda_query(self.engine, &info), "query");
    return self.sum(info.last_path == static_cast<std::uint32_t>(path) ? 0 : 1) == 0;
  };
  {
    const Case c{STEPCCL_ALL_REDUCE, STEPCCL_BFLOAT16, STEPCCL_SUM, 4u << 20, 0, seed++};
    std::uint64_t wrong_here = 0;
    for (int i = 0; i < 3; ++i) wrong_here += self.sum(wrong_bytes(self, c, plains[0], plains[1], STEPCCL_CUDA_PATH_AUTO, "plain"));
    const bool direct = went(STEPCCL_CUDA_PATH_DIRECT);
    if (self.rank == 0) report("values", "plain buffers without staging", direct && wrong_here == 0);
    bad += wrong_here + !direct;
  }
  for (const std::size_t unit : {std::size_t{100}, std::size_t{1'200'000} / (self.world * self.world)}) {
    // Rank r sends (r + 1) * (p + 1) * unit elements to rank p.
    std::vector<std::size_t> send_counts(self.world), send_offsets(self.world), recv_counts(self.world), recv_offsets(self.world);
    std::size_t sent = 0;
    std::size_t received = 0;
    std::vector<std::int32_t> wanted;
    for (std::uint32_t p = 0; p < self.world; ++p) {
      send_counts[p] = (self.rank + 1) * (p + 1) * unit;
      recv_counts[p] = (p + 1) * (self.rank + 1) * unit;
      send_offsets[p] = sent;
      recv_offsets[p] = received;
      sent += send_counts[p];
      received += recv_counts[p];
      for (std::size_t i = 0; i < recv_counts[p]; ++i) wanted.push_back(static_cast<std::int32_t>(p * 10000000 + self.rank * 3000000 + i));
    }
    std::vector<std::int32_t> data;
    for (std::uint32_t p = 0; p < self.world; ++p) {
      for (std::size_t i = 0; i < send_counts[p]; ++i) data.push_back(static_cast<std::int32_t>(self.rank * 10000000 + p * 3000000 + i));
    }
    self.upload(plains[0], data.data(), data.size() * 4);
    self.meet();  // a rank that is late makes all of them stage
    self.ok(stepccl_cuda_all_to_all_v(self.engine, reinterpret_cast<void*>(plains[0]), send_counts.data(), send_offsets.data(), reinterpret_cast<void*>(plains[1]), recv_counts.data(),
                                      recv_offsets.data(), STEPCCL_INT32, self.stream, nullptr),
            "all_to_all_v");
    std::vector<std::int32_t> got(received);
    self.download(got.data(), plains[1], received * 4);
    const bool by_copies = unit == 100 || went(STEPCCL_CUDA_PATH_COPY_ENGINE);
    const bool well = self.sum(got != wanted) == 0 && by_copies;
    bad += !well;
    if (self.rank == 0) report("values", "all_to_all_v of " + std::to_string(unit), well);
  }
  // Memory of another allocator, made a window.
  self.ok(stepccl_cuda_register(self.engine, reinterpret_cast<void*>(plains[0]), kBuffer), "register");
  self.ok(stepccl_cuda_register(self.engine, reinterpret_cast<void*>(plains[1]), kBuffer), "register");
  Case c{STEPCCL_ALL_REDUCE, STEPCCL_BFLOAT16, STEPCCL_SUM, 1u << 20, 0, seed++};
  std::uint64_t wrong = self.sum(wrong_bytes(self, c, plains[0], plains[1], STEPCCL_CUDA_PATH_BULK, "registered"));
  c.kind = STEPCCL_ALL_GATHER;
  wrong += self.sum(wrong_bytes(self, c, plains[0], plains[1], STEPCCL_CUDA_PATH_COPY_ENGINE, "registered"));
  self.ok(stepccl_cuda_deregister(self.engine, reinterpret_cast<void*>(plains[0])), "deregister");
  self.ok(stepccl_cuda_deregister(self.engine, reinterpret_cast<void*>(plains[1])), "deregister");
  if (self.rank == 0) report("values", "registered memory", wrong == 0);
  // Bad input is refused and changes nothing.
  std::vector<float> host(16);
  const bool refused = stepccl_cuda_all_reduce(self.engine, host.data(), host.data(), 16, STEPCCL_FLOAT32, STEPCCL_SUM, self.stream, nullptr) != STEPCCL_SUCCESS &&
                       stepccl_cuda_all_reduce(self.engine, reinterpret_cast<void*>(plains[0] + 2), reinterpret_cast<void*>(plains[1]), 16, STEPCCL_FLOAT32, STEPCCL_SUM, self.stream,
                                               nullptr) == STEPCCL_ERROR_INVALID_ARGUMENT &&
                       stepccl_cuda_broadcast(self.engine, reinterpret_cast<void*>(plains[0]), reinterpret_cast<void*>(plains[0]), 16, STEPCCL_FLOAT32, 99, self.stream, nullptr) ==
                           STEPCCL_ERROR_INVALID_ARGUMENT &&
                       stepccl_cuda_status(self.engine) == STEPCCL_SUCCESS;
  const bool all_refused = self.sum(refused ? 0 : 1) == 0;
  if (self.rank == 0) report("values", "bad input is refused", all_refused);
  if (bad + wrong != 0 || !all_refused) throw Problem("wrong values");
}

}  // namespace gpu

int main(int argc, char** argv) {
  std::uint32_t world = 2;
  std::vector<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "-n" && i + 1 < argc) world = static_cast<std::uint32_t>(std::strtoul(argv[++i], nullptr, 10));
    else wanted.emplace_back(argv[i]);
  }
  struct Part {
    const char* name;
    void (*body)(gpu::Rank&);
    std::uint32_t timeout_s;
  };
  const Part parts[] = {{"values", gpu::check_values, 120}, {"graphs", gpu::check_graphs, 60}, {"paging", gpu::check_paging, 60}, {"defrag", gpu::check_defrag, 60}};
  const auto chosen = [&](const char* name) { return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end(); };
  // Ranks that share a GPU wait for each other's time slices.
  const std::uint32_t patience = std::getenv("STEPCCL_CUDA_SHARED_GPU") != nullptr ? 3 : 1;
  bool well = true;
  for (const Part& part : parts) {
    if (!chosen(part.name)) continue;
    stepccl_cuda_config_t config = STEPCCL_CUDA_CONFIG_INIT;
    config.timeout_ms = 10'000;
    const gpu::Outcome outcome = gpu::run(world, part.timeout_s * patience, config, part.body);
    well = gpu::report(part.name, "all", outcome.well(), outcome.timed_out ? "timed out" : "") && well;
  }
  if (chosen("failures")) well = gpu::check_failures(world) && well;
  return well ? 0 : 1;
}
