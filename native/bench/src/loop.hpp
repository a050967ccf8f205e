// SPDX-License-Identifier: Apache-2.0
// The one timed loop that every contestant runs: sizes, iterations and blocks are the same, so only the library differs.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace bench {

constexpr int kBlocks = 4;  // samples of one run and size; each is the mean of a block of iterations

struct Options {
  std::vector<std::string> collectives{"all_reduce"};
  std::vector<std::size_t> sizes;  // bytes of the full array
  int scale_percent = 100;         // of the iterations
};

// --collectives a,b --sizes 8,64 --scale 100; anything else is left to the caller, by position.
inline Options parse_options(int argc, char** argv) {
  Options options;
  const auto list = [](const std::string& text) {
    std::vector<std::string> parts;
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      if (end > begin) parts.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    return parts;
  };
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--collectives") options.collectives = list(argv[i + 1]);
    if (name == "--scale") options.scale_percent = std::max(1, std::atoi(argv[i + 1]));
    if (name == "--sizes") {
      for (const std::string& size : list(argv[i + 1])) options.sizes.push_back(std::strtoull(size.c_str(), nullptr, 10));
    }
  }
  return options;
}

// How often one block repeats an operation of this size.
inline int iterations_of(std::size_t bytes, int scale_percent) {
  const int full = bytes <= 8u << 10 ? 200 : bytes <= 128u << 10 ? 50 : bytes <= 1u << 20 ? 20 : bytes <= 4u << 20 ? 8 : bytes <= 16u << 20 ? 3 : 1;
  return std::max(1, full * scale_percent / 100);
}

// Whether every rank's block of the array holds at least one element.
inline bool has_blocks(const std::string& collective, std::size_t bytes, std::size_t world) {
  return (collective != "all_gather" && collective != "all_to_all") || bytes >= world * sizeof(float);
}

// Pre-faulted memory that keeps its pages.
struct Buffers {
  explicit Buffers(std::size_t bytes) : send(bytes / sizeof(float), 1.0f), recv(bytes / sizeof(float), 0.0f) {}
  std::vector<float> send;
  std::vector<float> recv;
};

inline double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Calls `operation` as a user would, and hands the mean time of each block to `report(block, us)`.
template <class Operation, class Barrier, class Report>
void run_blocks(std::size_t bytes, int scale_percent, Operation&& operation, Barrier&& barrier, Report&& report) {
  const int iterations = iterations_of(bytes, scale_percent);
  for (int i = 0; i < std::max(2, iterations / 4); ++i) operation();
  for (int block = 0; block < kBlocks; ++block) {
    barrier();
    const double begin = now_us();
    for (int i = 0; i < iterations; ++i) operation();
    report(block, (now_us() - begin) / iterations);
  }
}

// One line for the driver of the benchmark: the slowest rank's time of each block.
inline void print_sample(const std::string& collective, std::size_t bytes, const double (&slowest_us)[kBlocks]) {
  std::printf("{\"collective\":\"%s\",\"bytes\":%zu,\"times_us\":[%.3f,%.3f,%.3f,%.3f]}\n", collective.c_str(), bytes, slowest_us[0], slowest_us[1],
              slowest_us[2], slowest_us[3]);
  std::fflush(stdout);
}

}  // namespace bench
