// SPDX-License-Identifier: Apache-2.0
// Checks the GPU engine on this host's GPUs. One line of JSON for each check; exit status 1 where one is not well.
//   stepccl-gpu-check [-n GPUS] [values] [graphs] [paging] [defrag] [failures]
#include <algorithm>
#include <cstdlib>
#include <string>

#include "gpu/check.hpp"

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
  const Part parts[] = {{"values", [](gpu::Rank& self) { gpu::check_values(self); }, 120}, {"graphs", gpu::check_graphs, 60}, {"paging", gpu::check_paging, 60}, {"defrag", gpu::check_defrag, 60}};
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
