// SPDX-License-Identifier: Apache-2.0
// Whatever decodes must encode to the same bytes again.
#include <cstdlib>
#include <cstring>

#include "stepccl/telemetry_frame.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stepccl::telemetry;
  // Most inputs would stop at the magic: give them one.
  std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data), reinterpret_cast<const std::byte*>(data) + size);
  if (size >= sizeof(stepccl_frame_header) && (data[0] & 1) != 0) {
    const std::uint32_t magic = STEPCCL_FRAME_MAGIC;
    const auto total = static_cast<std::uint32_t>(size);
    const std::uint16_t version = STEPCCL_FRAME_VERSION;
    std::memcpy(bytes.data(), &magic, 4);
    std::memcpy(bytes.data() + 4, &total, 4);
    std::memcpy(bytes.data() + 8, &version, 2);
  }
  Frame frame;
  if (decode_frame(bytes, frame) != FrameError::none) return 0;
  std::vector<std::byte> again;
  if (encode_frame(frame, again) != FrameError::none || again != bytes) std::abort();
  for (const auto& nic : frame.nics) {
    if (name_of(nic.name).size() > sizeof nic.name) std::abort();
  }
  return 0;
}
