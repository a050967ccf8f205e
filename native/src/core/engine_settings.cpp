// SPDX-License-Identifier: Apache-2.0
#include "core/engine_settings.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

namespace stepccl {
namespace {

Error malformed(const char* what) { return make_error(STEPCCL_ERROR_PROTOCOL, STEPCCL_PHASE_RENDEZVOUS, std::string("the engine's settings hold ") + what, 0); }

auto key_of(const Correction& c) { return std::make_tuple(c.collective, c.algorithm, c.transport, c.log2_bytes); }

bool good_time(double value) { return std::isfinite(value) && value >= 0 && value < 1e9; }

}  // namespace

std::array<LinkFigures, kTransportKinds> EngineSettings::default_links() noexcept {
  std::array<LinkFigures, kTransportKinds> links;
  links.fill({25, 8e-4, 4});
  links[STEPCCL_TRANSPORT_NONE] = {0.1, 1e-4, 0};
  links[STEPCCL_TRANSPORT_SHM] = {1, 2e-4, 0.15};
  links[STEPCCL_TRANSPORT_RDMA] = {5, 1e-4, 0.5};
  links[STEPCCL_TRANSPORT_DMA] = {3, 1e-4, 0.5};
  return links;
}

double EngineSettings::correction(stepccl_collective_t collective, stepccl_algorithm_t algorithm, stepccl_transport transport, double bytes) const noexcept {
  const Correction wanted{static_cast<std::uint8_t>(collective), static_cast<std::uint8_t>(algorithm), static_cast<std::uint8_t>(transport), 0, 1};
  const auto* end = corrections.data() + corrections_used;
  const auto* above = std::lower_bound(corrections.data(), end, wanted, [](const Correction& a, const Correction& b) { return key_of(a) < key_of(b); });
  const auto same = [&](const Correction& c) { return c.collective == wanted.collective && c.algorithm == wanted.algorithm && c.transport == wanted.transport; };
  if (above == end || !same(*above)) return 1;
  const double size = bytes > 1 ? std::log2(bytes) : 0;
  const Correction* below = above;
  while (above != end && same(*above) && above->log2_bytes < size) below = above++;
  if (above == end || !same(*above)) return below->factor;  // beyond the last one
  if (above->log2_bytes <= below->log2_bytes) return above->factor;
  const double part = (size - below->log2_bytes) / (above->log2_bytes - below->log2_bytes);
  return below->factor + part * (static_cast<double>(above->factor) - below->factor);
}

void encode_engine_settings(const EngineSettings& settings, std::span<std::byte, kEngineSettingsBytes> out) noexcept {
  std::memset(out.data(), 0, out.size());
  std::memcpy(out.data(), &settings, sizeof settings);
}

Expected<EngineSettings> decode_engine_settings(std::span<const std::byte, kEngineSettingsBytes> bytes) {
  EngineSettings settings;
  std::memcpy(&settings, bytes.data(), sizeof settings);
  if (settings.version != EngineSettings().version) return malformed("another version");
  if (settings.prefetch_depth == 0 || settings.prefetch_depth > 64) return malformed("an impossible prefetch depth");
  if (settings.page_bytes != 0 && settings.page_bytes < 4096) return malformed("an impossible page size");
  if (settings.compression == 0 || settings.compression >= STEPCCL_COMPRESSION_COUNT) return malformed("an unknown compression");
  if (settings.priority_levels == 0 || settings.priority_levels > STEPCCL_PRIORITY_LEVELS) return malformed("an impossible number of priority levels");
  if (settings.corrections_used > kMaxCorrections) return malformed("too many corrections");
  if (!good_time(settings.gamma_us_per_byte)) return malformed("an impossible time");
  for (const LinkFigures& link : settings.links) {
    if (!good_time(link.alpha_us) || !good_time(link.beta_us_per_byte) || !good_time(link.overhead_us)) return malformed("an impossible time");
  }
  for (std::uint32_t i = 0; i < settings.corrections_used; ++i) {
    const Correction& c = settings.corrections[i];
    if (!std::isfinite(c.factor) || c.factor <= 0 || c.log2_bytes > 63) return malformed("an impossible correction");
    if (i != 0 && !(key_of(settings.corrections[i - 1]) < key_of(c))) return malformed("corrections out of order");
  }
  return settings;
}

}  // namespace stepccl
