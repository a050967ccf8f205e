// SPDX-License-Identifier: Apache-2.0
// The command line of stepccl-perf.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stepccl/stepccl.h"

namespace perf {

enum ExitCode : int { kExitOk = 0, kExitFailed = 1, kExitUsage = 2, kExitWrong = 3 };

struct Arguments {
  std::uint64_t min_bytes = 8;
  std::uint64_t max_bytes = 16u << 20;
  std::uint32_t step_factor = 2;
  std::uint32_t iterations = 100;
  std::uint32_t warmup = 10;
  std::vector<stepccl_datatype_t> datatypes{STEPCCL_FLOAT32};
  std::vector<stepccl_redop_t> redops{STEPCCL_SUM};
  std::vector<stepccl_collective_t> collectives{STEPCCL_ALL_REDUCE};
  std::int32_t root = -1;  // of rooted collectives; -1 = rank 0
  bool check = true;
  stepccl_algorithm_t algorithm = STEPCCL_ALGORITHM_AUTO;
  stepccl_transport transport = STEPCCL_TRANSPORT_NONE;  // NONE = by topology
  std::uint32_t timeout_ms = 0;
  std::uint32_t chunk_bytes = 0;
  std::uint32_t pipeline_depth = 0;
  std::string job_name = "stepccl-perf";
  std::string net_interface;
  std::uint32_t compression = STEPCCL_COMPRESSION_DEFAULT;
  std::uint64_t page_bytes = 0;
  std::string calibrate_file;  // measure links and algorithms, and write what was found here
  bool explain = false;        // say what would run, and why

  std::uint32_t processes = 0;  // -np; 0 = this process is one rank
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::string rendezvous_address;  // rank 0's own; empty = automatic
  bool rendezvous_listen = false;
  bool unique_id_stdin = false;
  bool by_launcher = false;  // nothing says how the ranks meet: perhaps a launcher's environment does
  bool json = false;
  bool die_with_parent = false;
  bool help = false;
  bool version = false;
};

// What is wrong with the command line, or nothing.
[[nodiscard]] std::optional<std::string> parse(int argc, char** argv, Arguments& arguments);

[[nodiscard]] const char* usage();

}  // namespace perf
