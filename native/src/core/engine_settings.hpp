// SPDX-License-Identifier: Apache-2.0
// How operations are chosen and run, the same on every rank: rank 0 reads its environment and calibration and hands them on
// in the member table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/choice_policy.hpp"
#include "schedule/schedule.hpp"

namespace stepccl {

// Measured or assumed figures of one kind of path.
struct LinkFigures {
  double alpha_us = 0;
  double beta_us_per_byte = 0;
  double overhead_us = 0;
};

// What an algorithm takes where it was measured, as a multiple of the model's prediction.
struct Correction {
  std::uint8_t collective = 0;
  std::uint8_t algorithm = 0;
  std::uint8_t transport = 0;
  std::uint8_t log2_bytes = 0;
  float factor = 1;
};
static_assert(sizeof(Correction) == 8);

constexpr std::uint32_t kTransportKinds = 6;
constexpr std::uint32_t kMaxCorrections = 900;

struct EngineSettings {
  std::uint32_t version = 1;
  std::uint32_t prefetch_depth = 2;
  std::uint64_t fusion_bytes = 0;
  std::uint64_t page_bytes = 0;
  ChoicePolicy policy;
  std::uint8_t compression = STEPCCL_COMPRESSION_NONE;
  std::uint8_t priority_levels = 1;
  std::uint8_t calibrated = 0;  // the figures were measured
  std::uint8_t reserved[5] = {};
  std::uint32_t corrections_used = 0;
  double gamma_us_per_byte = 1e-4;
  std::array<LinkFigures, kTransportKinds> links = default_links();
  std::array<Correction, kMaxCorrections> corrections{};  // ascending by collective, algorithm, transport, size

  // What is assumed until a calibration says better.
  [[nodiscard]] static std::array<LinkFigures, kTransportKinds> default_links() noexcept;

  // The factor for a size, linear in its logarithm between the measured ones; 1 where nothing was measured.
  [[nodiscard]] double correction(stepccl_collective_t collective, stepccl_algorithm_t algorithm, stepccl_transport transport, double bytes) const noexcept;
};

static_assert(sizeof(EngineSettings) == 24 + sizeof(ChoicePolicy) + 8 + 4 + 8 + kTransportKinds * sizeof(LinkFigures) + kMaxCorrections * sizeof(Correction));

constexpr std::size_t kEngineSettingsBytes = 8168;  // bootstrap::JobSettings::engine
static_assert(sizeof(EngineSettings) <= kEngineSettingsBytes);

void encode_engine_settings(const EngineSettings& settings, std::span<std::byte, kEngineSettingsBytes> out) noexcept;
// Foreign bytes: PROTOCOL where a field can't be.
[[nodiscard]] Expected<EngineSettings> decode_engine_settings(std::span<const std::byte, kEngineSettingsBytes> bytes);

}  // namespace stepccl
