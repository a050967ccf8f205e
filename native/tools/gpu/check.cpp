// SPDX-License-Identifier: Apache-2.0
// Values of every element, on every path, and of sends and receives.
#include <algorithm>
#include <cstdio>
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

namespace {

// Sends around a ring, both ways of a pair at once, and one way: between windows and between plain buffers, by copy engines
// where the messages are long.
bool check_messages(Rank& self, const CUdeviceptr (&windows)[2], const CUdeviceptr (&plains)[2], std::uint64_t most, std::uint64_t seed) {
  const std::uint32_t next = (self.rank + 1) % self.world;
  const std::uint32_t before = (self.rank + self.world - 1) % self.world;
  bool all_well = true;
  const auto tell = [&](const std::string& name, bool well) {
    const bool all = self.sum(well ? 0 : 1) == 0;
    all_well = all_well && all;
    if (self.rank == 0) report("values", name, all);
  };
  const auto went = [&] {
    stepccl_cuda_info_t info{};
    info.size = sizeof info;
    self.ok(stepccl_cuda_query(self.engine, &info), "query");
    return info.last_path;
  };
  for (const std::uint64_t count : {std::uint64_t{3}, std::uint64_t{70001}, std::min<std::uint64_t>(3000000, std::max<std::uint64_t>(most, 700001))}) {
    for (const auto& buffers : {plains, windows}) {
      std::vector<float> data(count);
      std::vector<float> wanted(count);
      std::vector<float> got(count);
      fill(data.data(), STEPCCL_FLOAT32, 0, count, self.rank, seed);
      fill(wanted.data(), STEPCCL_FLOAT32, 0, count, before, seed++);
      self.upload(buffers[0], data.data(), count * 4);
      self.upload(buffers[1], got.data(), count * 4);
      self.meet();  // a rank that is late makes the pair stage
      self.ok(stepccl_cuda_group_start(self.engine), "group_start");
      self.ok(stepccl_cuda_send(self.engine, reinterpret_cast<void*>(buffers[0]), count, STEPCCL_FLOAT32, next, self.stream, nullptr), "send");
      self.ok(stepccl_cuda_recv(self.engine, reinterpret_cast<void*>(buffers[1]), count, STEPCCL_FLOAT32, before, self.stream, nullptr), "recv");
      self.ok(stepccl_cuda_group_end(self.engine), "group_end");
      self.download(got.data(), buffers[1], count * 4);
      const bool path_right = went() == static_cast<std::uint32_t>(count > 100000 ? STEPCCL_CUDA_PATH_COPY_ENGINE : STEPCCL_CUDA_PATH_STAGED);
      tell("send and recv of " + std::to_string(count) + (buffers == windows ? " between windows" : " between plain buffers"), got == wanted && path_right);
    }
  }
  // One way, from rank 0 to the last, by either path that a call may ask for, in any size.
  for (const std::uint32_t path : {STEPCCL_CUDA_PATH_STAGED, STEPCCL_CUDA_PATH_COPY_ENGINE}) {
    for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{5003}, std::uint64_t{600001}}) {
      std::vector<std::uint16_t> data(count);
      fill(data.data(), STEPCCL_BFLOAT16, 0, count, 0, seed++);
      const std::uint32_t last = self.world - 1;
      stepccl_cuda_call_t options = STEPCCL_CUDA_CALL_INIT;
      options.path = path;
      bool well = true;
      if (self.rank == 0) {
        self.upload(plains[0], data.data(), count * 2);
        self.ok(stepccl_cuda_send(self.engine, reinterpret_cast<void*>(plains[0]), count, STEPCCL_BFLOAT16, last, self.stream, &options), "send");
        self.sync();
      } else if (self.rank == last) {
        std::vector<std::uint16_t> got(count);
        self.ok(stepccl_cuda_recv(self.engine, reinterpret_cast<void*>(windows[1]), count, STEPCCL_BFLOAT16, 0, self.stream, &options), "recv");
        self.download(got.data(), windows[1], count * 2);
        well = got == data;
      }
      if (self.rank == 0 || self.rank == last) {
        stepccl_cuda_receipt_t receipt{};
        receipt.size = sizeof receipt;
        self.ok(stepccl_cuda_receipt(self.engine, options.ticket, &receipt), "receipt");
        well = well && receipt.path == path && (path != STEPCCL_CUDA_PATH_COPY_ENGINE || (receipt.blocks == 0 && receipt.copies == (self.rank == 0 ? 1u : 0u)));
      }
      tell("one way, " + std::to_string(count) + (path == STEPCCL_CUDA_PATH_STAGED ? " staged" : " by copy engine"), well);
    }
  }
  return all_well;
}

}  // namespace

void check_values(Rank& self, std::uint64_t most) {
  // Room for all ranks' blocks of the largest call.
  const std::uint64_t buffer = std::max<std::uint64_t>(std::min<std::uint64_t>(most, 9'000'000) * 2 + (1u << 20), 6u << 20) * self.world;
  const CUdeviceptr windows[2] = {self.window(buffer), self.window(buffer)};
  const CUdeviceptr plains[2] = {self.plain(buffer), self.plain(buffer)};
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
      if (count > most) continue;
      for (std::uint32_t root = 0; root < (kind == STEPCCL_BROADCAST || kind == STEPCCL_REDUCE || kind == STEPCCL_SCATTER || kind == STEPCCL_GATHER ? self.world : 1u); ++root) {
        Case c{kind, STEPCCL_FLOAT32, STEPCCL_SUM, count, root, 0};
        if (c.bytes() <= 128u << 10) one(c, STEPCCL_CUDA_PATH_FLAGGED, false, false);
        if (c.bytes() <= 128u << 10 || self.world == 2) one(c, STEPCCL_CUDA_PATH_PACKED, false, false);
        one(c, STEPCCL_CUDA_PATH_STAGED, false, false);
        one(c, STEPCCL_CUDA_PATH_AUTO, true, false);
      }
    }
    for (const std::uint64_t count : {4096u, 1000000u, 2097152u, 9000000u}) {
      if (count > most) continue;
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
  for (int round = 0; round < 200 && static_cast<std::uint64_t>(round) * 300 < most; ++round) {
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
    for (const std::uint64_t count : {std::uint64_t{1000}, std::min<std::uint64_t>(1048576, most / 8 * 8)}) {
      const Case c{kind, STEPCCL_BFLOAT16, STEPCCL_SUM, count, 0, 0};
      one(c, count == 1000 ? STEPCCL_CUDA_PATH_FLAGGED : STEPCCL_CUDA_PATH_STAGED, false, true);
      one(c, STEPCCL_CUDA_PATH_AUTO, true, true);
      if (reduces(kind)) one(c, STEPCCL_CUDA_PATH_BULK, true, true), one(c, STEPCCL_CUDA_PATH_PIPELINE, true, true);
      else one(c, STEPCCL_CUDA_PATH_COPY_ENGINE, true, true);
    }
  }
  if (self.rank == 0) report("values", std::to_string(cases) + " cases", bad == 0, std::to_string(bad) + " bad");

  bad += !check_messages(self, windows, plains, most, seed + 1000);
  // The buffers are the driver's own allocations: large calls take them as they are.
  const auto went = [&](stepccl_cuda_path_t path) {
    stepccl_cuda_info_t info{};
    info.size = sizeof info;
    self.ok(stepccl_cuda_query(self.engine, &info), "query");
    return self.sum(info.last_path == static_cast<std::uint32_t>(path) ? 0 : 1) == 0;
  };
  {
    const Case c{STEPCCL_ALL_REDUCE, STEPCCL_BFLOAT16, STEPCCL_SUM, 1u << 20, 0, seed++};
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
  self.ok(stepccl_cuda_register(self.engine, reinterpret_cast<void*>(plains[0]), buffer), "register");
  self.ok(stepccl_cuda_register(self.engine, reinterpret_cast<void*>(plains[1]), buffer), "register");
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
