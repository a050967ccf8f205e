// SPDX-License-Identifier: Apache-2.0
// Control messages, cut anywhere, and every payload parser; unique ids too.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "bootstrap/wire.hpp"

using namespace stepccl::bootstrap;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::uint32_t world = 1 + data[0] % 8;
  const std::size_t piece = 1 + data[1];
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data + 2), size - 2);

  MessageReader reader(world);
  std::vector<Message> messages;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    if (!reader.feed(bytes.subspan(at, std::min(piece, bytes.size() - at)), messages).ok()) break;
  }
  for (const Message& message : messages) {
    if (message.payload.size() > kMaxMessageBytes) std::abort();
    (void)parse_member(message.payload, world);
    (void)parse_table(message.payload, world);
    if (auto failure = parse_failure(message.payload, world); failure.ok()) {
      for (const char c : failure.value().text) {
        if (static_cast<unsigned char>(c) < 0x20) std::abort();
      }
      if (failure.value().record.peer >= static_cast<std::int32_t>(world)) std::abort();
    }
    (void)parse_state(message.payload);
    (void)parse_states(message.payload, world);
  }
  (void)parse_table(bytes, world);
  (void)parse_failure(bytes, world);

  stepccl_unique_id_t id{};
  std::memcpy(id.bytes, data, std::min(size, sizeof id.bytes));
  if (auto decoded = UniqueId::decode(id); decoded.ok()) (void)decoded.value().endpoint.to_string();
  (void)parse_endpoint(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
