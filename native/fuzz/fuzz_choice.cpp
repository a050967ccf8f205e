// SPDX-License-Identifier: Apache-2.0
// Text from files and the environment, and the settings that rank 0 sends: calibration, lists of algorithms, engine settings.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/calibration.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stepccl;
  const std::string text(reinterpret_cast<const char*>(data), size);
  EngineSettings settings;
  if (parse_calibration(text, settings).ok()) {
    // What was read can be handed on, and used.
    std::array<std::byte, kEngineSettingsBytes> bytes;
    encode_engine_settings(settings, bytes);
    if (!decode_engine_settings(bytes).ok()) std::abort();
    (void)settings.correction(STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_RING, STEPCCL_TRANSPORT_SHM, 1000);
  }
  ChoicePolicy policy;
  (void)read_algorithms("fuzz", text, size % 2 == 0, policy).ok();
  (void)read_protocols("fuzz", text, policy).ok();
  std::array<std::byte, kEngineSettingsBytes> raw{};
  std::memcpy(raw.data(), data, std::min(size, raw.size()));
  if (auto decoded = decode_engine_settings(raw); decoded.ok()) {
    for (double bytes = 1; bytes < 1e10; bytes *= 100) (void)decoded.value().correction(STEPCCL_ALL_REDUCE, STEPCCL_ALGORITHM_RING, STEPCCL_TRANSPORT_SHM, bytes);
  }
  return 0;
}
