// SPDX-License-Identifier: Apache-2.0
// Encoder and bounds-checked decoder of the telemetry frame defined in telemetry.h, section 3.
// Header-only, C++20, no allocation besides the vectors it fills; shared by the daemon (encode)
// and the console's addon (decode).
#ifndef STEPCCL_TELEMETRY_FRAME_HPP
#define STEPCCL_TELEMETRY_FRAME_HPP

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "stepccl/telemetry.h"

namespace stepccl::telemetry {

static_assert(std::endian::native == std::endian::little, "the frame is little-endian and is copied as it stands in memory");

// Why a frame was refused. The names are stable: the addon hands them to JavaScript.
enum class FrameError : std::uint8_t {
  none = 0,
  truncated,     // fewer bytes than a header, or than total_bytes says
  bad_magic,     // first four bytes aren't STEPCCL_FRAME_MAGIC
  bad_version,   // a version this code doesn't know
  too_long,      // total_bytes above STEPCCL_FRAME_MAX_BYTES
  bad_length,    // total_bytes isn't what the counts give, or isn't the buffer's size
  bad_value,     // a NIC kind or state outside its enumeration
};

[[nodiscard]] constexpr std::string_view to_string(FrameError error) noexcept {
  switch (error) {
    case FrameError::none: return "none";
    case FrameError::truncated: return "truncated";
    case FrameError::bad_magic: return "bad_magic";
    case FrameError::bad_version: return "bad_version";
    case FrameError::too_long: return "too_long";
    case FrameError::bad_length: return "bad_length";
    case FrameError::bad_value: return "bad_value";
  }
  return "unknown";
}

// A frame in memory. The encoder computes magic, version, total_bytes and the three counts itself.
struct Frame {
  stepccl_frame_header header{};
  std::vector<stepccl_frame_nic> nics;
  std::vector<stepccl_frame_flow> flows;
  std::vector<stepccl_frame_op> ops;
};

// Exact size in bytes of a frame with these counts. 64 bits wide, so no count of 32 bits overflows it.
[[nodiscard]] constexpr std::uint64_t frame_bytes(std::uint64_t nics, std::uint64_t flows, std::uint64_t ops) noexcept {
  return sizeof(stepccl_frame_header) + nics * sizeof(stepccl_frame_nic) + flows * sizeof(stepccl_frame_flow) +
         ops * sizeof(stepccl_frame_op);
}

// How many operations still fit into one frame beside these. A sender with more sends several frames.
[[nodiscard]] constexpr std::size_t max_ops_beside(std::size_t nics, std::size_t flows) noexcept {
  const std::uint64_t used = frame_bytes(nics, flows, 0);
  return used >= STEPCCL_FRAME_MAX_BYTES ? 0
                                         : static_cast<std::size_t>((STEPCCL_FRAME_MAX_BYTES - used) / sizeof(stepccl_frame_op));
}

// Appends the frame to `out`. Returns too_long, and leaves `out` as it was, where the frame would
// exceed STEPCCL_FRAME_MAX_BYTES. May throw std::bad_alloc.
[[nodiscard]] inline FrameError encode_frame(const Frame& frame, std::vector<std::byte>& out) {
  const std::uint64_t total = frame_bytes(frame.nics.size(), frame.flows.size(), frame.ops.size());
  if (total > STEPCCL_FRAME_MAX_BYTES) return FrameError::too_long;
  stepccl_frame_header header = frame.header;
  header.magic = STEPCCL_FRAME_MAGIC;
  header.version = STEPCCL_FRAME_VERSION;
  header.total_bytes = static_cast<std::uint32_t>(total);
  header.nic_count = static_cast<std::uint32_t>(frame.nics.size());
  header.flow_count = static_cast<std::uint32_t>(frame.flows.size());
  header.op_count = static_cast<std::uint32_t>(frame.ops.size());

  std::size_t at = out.size();
  out.resize(at + static_cast<std::size_t>(total));
  const auto put = [&](const void* data, std::size_t bytes) {
    if (bytes != 0) std::memcpy(out.data() + at, data, bytes);
    at += bytes;
  };
  put(&header, sizeof header);
  put(frame.nics.data(), frame.nics.size() * sizeof(stepccl_frame_nic));
  put(frame.flows.data(), frame.flows.size() * sizeof(stepccl_frame_flow));
  put(frame.ops.data(), frame.ops.size() * sizeof(stepccl_frame_op));
  return FrameError::none;
}

// Length in bytes of the frame that begins at `bytes`, for a reader of a stream.
// `truncated` means that the first 8 bytes haven't all come yet: read on.
[[nodiscard]] inline FrameError peek_frame_bytes(std::span<const std::byte> bytes, std::size_t& total) noexcept {
  if (bytes.size() < 8) return FrameError::truncated;
  std::uint32_t magic = 0;
  std::uint32_t length = 0;
  std::memcpy(&magic, bytes.data(), 4);
  std::memcpy(&length, bytes.data() + 4, 4);
  if (magic != STEPCCL_FRAME_MAGIC) return FrameError::bad_magic;
  if (length > STEPCCL_FRAME_MAX_BYTES) return FrameError::too_long;
  if (length < sizeof(stepccl_frame_header)) return FrameError::bad_length;
  total = length;
  return FrameError::none;
}

// Decodes exactly one frame that fills `bytes`. On an error `frame` is left as it was.
// Values of enumerations are checked only for what a reader indexes by (NIC kind and state);
// others may come from a newer daemon and are handed on. May throw std::bad_alloc, for at most
// STEPCCL_FRAME_MAX_BYTES.
[[nodiscard]] inline FrameError decode_frame(std::span<const std::byte> bytes, Frame& frame) {
  std::size_t total = 0;
  if (const FrameError error = peek_frame_bytes(bytes, total); error != FrameError::none) return error;
  if (bytes.size() < total) return FrameError::truncated;
  if (bytes.size() != total) return FrameError::bad_length;

  Frame result;
  std::memcpy(&result.header, bytes.data(), sizeof result.header);
  const stepccl_frame_header& header = result.header;
  if (header.version != STEPCCL_FRAME_VERSION) return FrameError::bad_version;
  if (frame_bytes(header.nic_count, header.flow_count, header.op_count) != total) return FrameError::bad_length;

  std::size_t at = sizeof header;
  const auto take = [&](auto& items, std::size_t count) {
    items.resize(count);
    const std::size_t size = count * sizeof(items[0]);
    if (size != 0) std::memcpy(items.data(), bytes.data() + at, size);
    at += size;
  };
  take(result.nics, header.nic_count);
  take(result.flows, header.flow_count);
  take(result.ops, header.op_count);
  for (const stepccl_frame_nic& nic : result.nics) {
    if (nic.kind != 1 && nic.kind != 2) return FrameError::bad_value;
    if (nic.state > 4) return FrameError::bad_value;
  }
  frame = std::move(result);
  return FrameError::none;
}

// The text of a NUL-padded name field; all of it where no NUL stands. The bytes are foreign text.
template <std::size_t N>
[[nodiscard]] inline std::string_view name_of(const std::uint8_t (&field)[N]) noexcept {
  const auto* text = reinterpret_cast<const char*>(field);
  return {text, ::strnlen(text, N)};
}

// Copies `name` into a NUL-padded field, cut to fit with its terminator.
template <std::size_t N>
inline void set_name(std::uint8_t (&field)[N], std::string_view name) noexcept {
  std::memset(field, 0, N);
  std::memcpy(field, name.data(), name.size() < N ? name.size() : N - 1);
}

}  // namespace stepccl::telemetry

#endif  // STEPCCL_TELEMETRY_FRAME_HPP
