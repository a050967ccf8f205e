// SPDX-License-Identifier: Apache-2.0
// Times operations on the GPUs of this host, with the columns of nccl-tests, multiprocessor time and memory held.
//   stepccl-gpu-perf [-n GPUS] [-o OPERATION,...] [-t TYPE] [-b BYTES] [-e BYTES] [-f FACTOR] [-i ITERATIONS] [-m eager,graph]
//                    [-p PATH,...] [-B BLOCKS,...] [-k window|plain] [-c 0|1] [-d COPIES_AT_ONCE] [-P PAGE_BYTES]
//                    [-I 0|1: in place] [-D PIPELINE_DEPTH] [-T SECONDS] [-j FILE]
//   stepccl-gpu-perf --calibrate FILE [-n GPUS] [-T SECONDS]: measures where one path gets better than another
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "gpu/timing.hpp"

using namespace gpu;

namespace {

constexpr const char* kPaths[] = {"auto", "flagged", "staged", "direct", "bulk", "copy_engine", "paged", "pipeline", "packed"};
constexpr const char* kOperations[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "scatter", "gather", "all_to_all", "send_recv", "barrier"};

struct Options {
  std::uint32_t world = 2;
  std::vector<stepccl_collective_t> kinds = {STEPCCL_ALL_REDUCE};
  stepccl_datatype_t type = STEPCCL_BFLOAT16;
  std::uint64_t begin = 8;
  std::uint64_t end = 1ull << 30;
  std::uint64_t factor = 4;
  std::uint32_t iterations = 0;
  std::vector<bool> graph = {false, true};
  std::vector<std::uint32_t> paths = {0};
  std::vector<std::uint32_t> blocks = {0};
  bool window = true;
  bool check = true;
  std::uint32_t copies_at_once = 0;
  std::uint32_t timeout_s = 300;
  std::uint64_t page_bytes = 0;
  bool in_place = false;
  std::uint32_t pipeline_depth = 0;
  std::string json;
  std::string calibration;
};

std::uint64_t bytes_of(const char* text) {
  char* end = nullptr;
  std::uint64_t value = std::strtoull(text, &end, 10);
  for (const char* unit = "KMG"; *unit != '\0'; ++unit) {
    if (*end == *unit) return value << (10 * (unit - "KMG" + 1));
  }
  return value;
}

std::vector<std::string> list(const char* text) {
  std::vector<std::string> items;
  std::string item;
  for (; *text != '\0'; ++text) {
    if (*text == ',') items.push_back(std::move(item)), item.clear();
    else item += *text;
  }
  items.push_back(item);
  return items;
}

template <std::size_t N>
std::uint32_t index_of(const char* const (&names)[N], const std::string& name) {
  for (std::uint32_t i = 0; i < N; ++i) {
    if (name == names[i]) return i;
  }
  std::fprintf(stderr, "stepccl-gpu-perf: \"%s\" is not known\n", name.c_str());
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const char* value = argv[i + 1];
    switch (argv[i][1]) {
      case 'n': options.world = static_cast<std::uint32_t>(std::atoi(value)); break;
      case 'o':
        options.kinds.clear();
        for (const auto& name : list(value)) options.kinds.push_back(static_cast<stepccl_collective_t>(index_of(kOperations, name)));
        break;
      case 't':
        for (int type = 0; type < STEPCCL_DATATYPE_COUNT; ++type) {
          if (std::strcmp(value, stepccl_datatype_name(static_cast<stepccl_datatype_t>(type))) == 0) options.type = static_cast<stepccl_datatype_t>(type);
        }
        break;
      case '-':
        if (std::strcmp(argv[i], "--calibrate") != 0) std::fprintf(stderr, "stepccl-gpu-perf: unknown option %s\n", argv[i]), std::exit(2);
        options.calibration = value;
        break;
      case 'b': options.begin = bytes_of(value); break;
      case 'e': options.end = bytes_of(value); break;
      case 'f': options.factor = bytes_of(value); break;
      case 'i': options.iterations = static_cast<std::uint32_t>(std::atoi(value)); break;
      case 'm':
        options.graph.clear();
        for (const auto& name : list(value)) options.graph.push_back(name == "graph");
        break;
      case 'p':
        options.paths.clear();
        for (const auto& name : list(value)) options.paths.push_back(index_of(kPaths, name));
        break;
      case 'B':
        options.blocks.clear();
        for (const auto& name : list(value)) options.blocks.push_back(static_cast<std::uint32_t>(std::atoi(name.c_str())));
        break;
      case 'k': options.window = std::strcmp(value, "plain") != 0; break;
      case 'c': options.check = std::atoi(value) != 0; break;
      case 'd': options.copies_at_once = static_cast<std::uint32_t>(std::atoi(value)); break;
      case 'P': options.page_bytes = bytes_of(value); break;
      case 'D': options.pipeline_depth = static_cast<std::uint32_t>(std::atoi(value)); break;
      case 'I': options.in_place = std::atoi(value) != 0; break;
      case 'T': options.timeout_s = static_cast<std::uint32_t>(std::atoi(value)); break;
      case 'j': options.json = value; break;
      default: std::fprintf(stderr, "stepccl-gpu-perf: unknown option %s\n", argv[i]); std::exit(2);
    }
  }
  return options;
}

double busbw_factor(stepccl_collective_t kind, double n) {
  switch (kind) {
    case STEPCCL_ALL_REDUCE: return 2 * (n - 1) / n;
    case STEPCCL_BROADCAST:
    case STEPCCL_REDUCE: return 1;
    default: return (n - 1) / n;
  }
}

// Whether size counts all ranks' blocks together, as nccl-tests does.
bool counts_all(stepccl_collective_t kind) { return kind != STEPCCL_ALL_REDUCE && kind != STEPCCL_BROADCAST && kind != STEPCCL_REDUCE; }

void time_all(Rank& self, const Options& options) {
  const GraphCalls calls;
  FILE* json = self.rank == 0 && !options.json.empty() ? std::fopen(options.json.c_str(), "a") : nullptr;
  const std::uint64_t space = options.end + 4096;
  if (options.page_bytes != 0) self.ok(stepccl_cuda_paging(self.engine, options.page_bytes, 2), "paging");
  const CUdeviceptr buffers[2] = {options.window ? self.window(space) : self.plain(space), options.window ? self.window(space) : self.plain(space)};
  stepccl_cuda_pool_info_t pool{};
  pool.size = sizeof pool;
  self.ok(stepccl_cuda_pool_query(self.engine, &pool), "pool_query");
  const std::uint64_t held = pool.device_used_by_engine_bytes - (options.window ? 2 * space : 0);
  if (self.rank == 0) {
    std::uint32_t gpus = 0;
    if (stepccl_cuda_device_count(&gpus) == STEPCCL_SUCCESS && gpus < self.world) std::printf("# ranks share a GPU: the times are those of the driver's time slices\n");
    std::printf("# memory that the engine holds beside the buffers: %.1f MB (staging %.1f MB)\n", static_cast<double>(held) / 1e6, static_cast<double>(pool.staging_bytes) / 1e6);
    std::printf("# %-14s %12s %12s %8s %7s %-12s %6s %9s %8s %8s %9s %6s\n", "operation", "size", "count", "type", "mode", "path", "blocks", "time(us)", "algbw", "busbw", "sm(us)", "wrong");
  }
  for (const auto kind : options.kinds) {
    for (const bool graph : options.graph) {
      for (const std::uint32_t path : options.paths) {
        for (const std::uint32_t blocks : options.blocks) {
          for (std::uint64_t size = options.begin; size <= options.end; size *= options.factor) {
            const std::uint64_t element = stepccl_datatype_bytes(options.type);
            Case c{kind, options.type, STEPCCL_SUM, size / element / (counts_all(kind) ? self.world : 1), 0, size};
            if (c.count == 0) continue;
            // In place, where the operation has it: the block of this rank inside the longer buffer.
            const bool inside = options.in_place && kind != STEPCCL_ALL_TO_ALL;
            CUdeviceptr send = buffers[0];
            CUdeviceptr recv = inside ? buffers[0] : buffers[1];
            if (inside && (kind == STEPCCL_ALL_GATHER || kind == STEPCCL_GATHER)) send += self.rank * c.bytes();
            if (inside && (kind == STEPCCL_REDUCE_SCATTER || kind == STEPCCL_SCATTER)) recv += self.rank * c.bytes();
            stepccl_cuda_call_t call_options = STEPCCL_CUDA_CALL_INIT;
            call_options.path = path;
            call_options.sm_budget = blocks;
            if (call(self, c, send, recv, self.stream, &call_options) == STEPCCL_ERROR_UNSUPPORTED) continue;
            self.sync();
            const Timing timing = time_operation(self, calls, c, send, recv, call_options, size, graph, options.iterations);
            const double us = timing.us;
            const stepccl_cuda_receipt_t& receipt = timing.receipt;
            // Fresh data after the timed runs, a poisoned output, every element.
            std::int64_t wrong = -1;
            if (options.check && !inside && size <= 256u << 20) {
              const auto data = input(c, self.world, self.rank);
              self.upload(send, data.data(), data.size());
              std::vector<unsigned char> got(c.bytes() * c.recv_blocks(self.world), 0xa5);
              self.upload(recv, got.data(), got.size());
              self.ok(call(self, c, send, recv, self.stream, &call_options), "checked call");
              self.sync();
              self.download(got.data(), recv, got.size());
              const auto wanted = expected(c, self.world, self.rank);
              std::uint64_t bad = 0;
              if (c.writes(self.rank)) {
                for (std::uint64_t i = 0; i < got.size(); i += element) bad += std::memcmp(got.data() + i, wanted.data() + i, element) != 0;
              }
              wrong = static_cast<std::int64_t>(self.sum(bad));
            }
            if (self.rank != 0) continue;
            const double algbw = static_cast<double>(size) / us / 1e3;
            const double busbw = algbw * busbw_factor(kind, self.world);
            const double sm_us = receipt.runs == 0 ? 0.0 : static_cast<double>(receipt.sm_ns) / 1e3 / static_cast<double>(receipt.runs);
            std::printf("  %-14s %12llu %12llu %8s %7s %-12s %6u %9.2f %8.2f %8.2f %9.1f %6lld\n", kOperations[kind], static_cast<unsigned long long>(size),
                        static_cast<unsigned long long>(c.count), stepccl_datatype_name(c.type), graph ? "graph" : "eager", kPaths[receipt.path], receipt.blocks, us, algbw, busbw, sm_us,
                        static_cast<long long>(wrong));
            std::fflush(stdout);
            if (json != nullptr) {
              std::fprintf(json,
                           "{\"operation\": \"%s\", \"bytes\": %llu, \"datatype\": \"%s\", \"mode\": \"%s\", \"path\": \"%s\", \"blocks\": %u, \"buffers\": \"%s\", \"time_us\": %.3f, "
                           "\"spread_us\": %.3f, \"algbw_GBps\": %.3f, \"busbw_GBps\": %.3f, \"sm_us\": %.2f, \"wrong\": %lld, \"memory_held_bytes\": %llu}\n",
                           kOperations[kind], static_cast<unsigned long long>(size), stepccl_datatype_name(c.type), graph ? "graph" : "eager", kPaths[receipt.path], receipt.blocks,
                           options.window ? "window" : "plain", us, timing.spread_us, algbw, busbw, sm_us, static_cast<long long>(wrong), static_cast<unsigned long long>(held));
            }
          }
        }
      }
    }
  }
  if (json != nullptr) std::fclose(json);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  stepccl_cuda_config_t config = STEPCCL_CUDA_CONFIG_INIT;
  config.pool_bytes = 2 * options.end + (512u << 20);
  config.dma_concurrency = options.copies_at_once;
  config.pipeline_depth = options.pipeline_depth;
  config.timeout_ms = 10'000;
  const Outcome outcome = run(options.world, options.timeout_s, config, [&](Rank& self) {
    if (options.calibration.empty()) time_all(self, options);
    else calibrate(self, options.calibration);
  });
  if (outcome.timed_out) std::fprintf(stderr, "stepccl-gpu-perf: not done after %u s\n", options.timeout_s);
  return outcome.well() ? 0 : 1;
}
