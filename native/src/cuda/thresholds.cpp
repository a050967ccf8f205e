// SPDX-License-Identifier: Apache-2.0
// What a calibration file holds.
#include <nlohmann/json.hpp>

#include "cuda/operation.hpp"

namespace stepccl::cuda {
namespace {

Error configuration_error(std::string cause) { return make_error(STEPCCL_ERROR_INVALID_CONFIGURATION, STEPCCL_PHASE_ARGUMENTS, std::move(cause)); }

}  // namespace

Expected<Thresholds> Thresholds::parse(const std::string& text, const Thresholds& standard) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return configuration_error("the calibration is no JSON object");
  Thresholds thresholds = standard;
  struct Row {
    const char* name;
    std::uint64_t low;
    std::uint64_t high;
    std::uint64_t* wide;
    std::uint32_t* narrow;
  };
  const Row rows[] = {
      {"flagged_bytes", 0, kMaxBlocks * kFlaggedBytes, &thresholds.flagged_bytes, nullptr},
      {"push_bytes", 0, 1ull << 40, &thresholds.push_bytes, nullptr},
      {"packed_bytes", 0, 1u << 30, &thresholds.packed_bytes, nullptr},
      {"spread_bytes", 0, 1ull << 40, &thresholds.spread_bytes, nullptr},
      {"packed_block_bytes", 64, 1u << 20, nullptr, &thresholds.packed_block_bytes},
      {"plain_wait_us", 0, 60'000'000, nullptr, &thresholds.plain_wait_us},
      {"one_shot_bytes", 0, 1u << 30, &thresholds.one_shot_bytes, nullptr},
      {"staged_reduce_bytes", 0, 1ull << 40, &thresholds.staged_reduce_bytes, nullptr},
      {"staged_copy_bytes", 0, 1ull << 40, &thresholds.staged_copy_bytes, nullptr},
      {"paged_bytes", 0, 1ull << 40, &thresholds.paged_bytes, nullptr},
      {"flagged_block_bytes", 64, kFlaggedBytes, nullptr, &thresholds.flagged_block_bytes},
      {"staged_block_bytes", 64, 1u << 20, nullptr, &thresholds.staged_block_bytes},
      {"bulk_blocks", 1, kMaxBlocks, nullptr, &thresholds.bulk_blocks},
      {"pipeline_bytes", 0, 1ull << 40, &thresholds.pipeline_bytes, nullptr},
      {"pipeline_blocks", 1, kMaxBlocks, nullptr, &thresholds.pipeline_blocks},
      {"direct_blocks", 1, kMaxBlocks, nullptr, &thresholds.direct_blocks},
  };
  for (const Row& row : rows) {
    const auto found = json.find(row.name);
    if (found == json.end()) continue;
    if (!found->is_number_unsigned() || found->get<std::uint64_t>() < row.low || found->get<std::uint64_t>() > row.high) {
      return configuration_error(std::string("the calibration's ") + row.name + " is no number from " + std::to_string(row.low) + " to " + std::to_string(row.high));
    }
    if (row.wide != nullptr) *row.wide = found->get<std::uint64_t>();
    else *row.narrow = static_cast<std::uint32_t>(found->get<std::uint64_t>());
  }
  return thresholds;
}

}  // namespace stepccl::cuda
