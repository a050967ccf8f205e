// SPDX-License-Identifier: Apache-2.0
// Settings of an engine: what the caller gave, else the environment, else defaults.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "cuda/engine.hpp"

namespace stepccl::cuda {
namespace {

Error configuration_error(std::string cause) { return make_error(STEPCCL_ERROR_INVALID_CONFIGURATION, STEPCCL_PHASE_ARGUMENTS, std::move(cause)); }

// `given` unless it is 0, else the variable, else `standard`.
Expected<std::uint32_t> number(std::uint32_t given, const char* variable, std::uint32_t low, std::uint32_t high, std::uint32_t standard) {
  const char* text = given == 0 && variable != nullptr ? std::getenv(variable) : nullptr;
  std::uint64_t value = given != 0 ? given : standard;
  if (text != nullptr && *text != '\0') {
    char* end = nullptr;
    errno = 0;
    value = std::strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || *text == '-') return configuration_error(std::string(variable) + "=\"" + text + "\" is no number");
  }
  if (value < low || value > high) {
    return configuration_error((text != nullptr ? std::string(variable) + "=" : std::string("a setting is ")) + std::to_string(value) + ", not from " + std::to_string(low) + " to " +
                               std::to_string(high));
  }
  return static_cast<std::uint32_t>(value);
}

}  // namespace

Expected<Config> Config::resolve(const stepccl_cuda_config_t* given, std::uint32_t world) {
  stepccl_cuda_config_t config = STEPCCL_CUDA_CONFIG_INIT;
  if (given != nullptr) {
    if (given->size < 2 * sizeof(std::uint32_t)) return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "config.size is smaller than any version of the struct");
    std::memcpy(&config, given, std::min<std::size_t>(given->size, sizeof config));
  }
  Config resolved;
  resolved.device = config.device;
  struct Row {
    std::uint32_t given;
    const char* variable;
    std::uint32_t low;
    std::uint32_t high;
    std::uint32_t standard;
    std::uint32_t* to;
  };
  const Row rows[] = {
      {config.timeout_ms, "STEPCCL_TIMEOUT_MS", 1, 86'400'000, 30'000, &resolved.timeout_ms},
      {config.sm_budget, "STEPCCL_SM_BUDGET", 0, kMaxBlocks, 0, &resolved.sm_budget},
      {config.graph_lanes, nullptr, 1, 64, 4, &resolved.graph_lanes},
      {config.dma_concurrency, "STEPCCL_DMA_CONCURRENCY", 1, 8, std::clamp(world / 2, 1u, 8u), &resolved.dma_concurrency},
      {config.pipeline_depth, nullptr, 1, 64, 4, &resolved.pipeline_depth},
  };
  for (const Row& row : rows) {
    auto value = number(row.given, row.variable, row.low, row.high, row.standard);
    if (!value.ok()) return value.take_error();
    *row.to = value.value();
  }
  if (config.async_gd > 2) return configuration_error("async_gd is not 0, 1 or 2");
  if (config.async_gd != 0) {
    resolved.async_gd = config.async_gd == 2;
  } else if (const char* text = std::getenv("STEPCCL_USE_ASYNC_GD"); text != nullptr && *text != '\0') {
    if (std::strcmp(text, "0") != 0 && std::strcmp(text, "1") != 0) return configuration_error(std::string("STEPCCL_USE_ASYNC_GD=\"") + text + "\" is neither 0 nor 1");
    resolved.async_gd = *text == '1';
  }
  if (const char* text = std::getenv("STEPCCL_CUDA_SHARED_GPU"); text != nullptr) resolved.shared_gpu = std::strcmp(text, "1") == 0;
  if (!(config.hbm_cache_ratio >= 0.0 && config.hbm_cache_ratio <= 0.9)) return configuration_error("hbm_cache_ratio is not from 0 to 0.9");
  if (config.hbm_cache_ratio != 0.0) resolved.hbm_cache_ratio = config.hbm_cache_ratio;
  resolved.pool_bytes = config.pool_bytes;

  resolved.thresholds.one_shot_bytes = Thresholds::one_shot_for(world);
  const char* path = config.calibration_file != nullptr ? config.calibration_file : std::getenv("STEPCCL_CUDA_CALIBRATION");
  if (path != nullptr && *path != '\0') {
    std::ifstream file(path);
    if (!file) return configuration_error(std::string("the calibration file ") + path + " can't be read");
    auto thresholds = Thresholds::parse(std::string(std::istreambuf_iterator<char>(file), {}), resolved.thresholds);
    if (!thresholds.ok()) return thresholds.take_error();
    resolved.thresholds = thresholds.value();
  }
  return resolved;
}

}  // namespace stepccl::cuda
