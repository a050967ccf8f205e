// SPDX-License-Identifier: Apache-2.0
// What an RDMA peer says of itself, and the clearances that its device writes into this rank's memory.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "transport/rdma_wire.hpp"

using namespace stepccl::transport;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto bytes = std::as_bytes(std::span(data + 2, size - 2));
  const bool ethernet = (data[0] & 1) != 0;
  // Half of the inputs begin with a description that is right but for what the fuzzer writes over it.
  std::vector<std::byte> text(bytes.begin(), bytes.end());
  if ((data[0] & 2) != 0 && text.size() >= sizeof(ConnectionInfo)) {
    const ConnectionInfo good;
    std::memcpy(text.data(), &good.magic, sizeof good.magic);
  }
  const std::size_t cut = std::min(text.size(), sizeof(ConnectionInfo));
  const auto info = parse_connection_info(std::span(text).first(cut), ethernet);
  if (info.ok()) {
    if (info.value().queue_pairs == 0 || info.value().queue_pairs > kMaxQueuePairs) std::abort();
    const auto ends = parse_queue_pairs(std::span(text).subspan(cut), info.value());
    if (ends.ok() && ends.value().size() != info.value().queue_pairs) std::abort();
  }
  if (bytes.size() >= sizeof(ClearToSend)) {
    ClearToSend record;
    std::memcpy(&record, bytes.data(), sizeof record);
    const OperationTag tag{7, 8};
    const auto status = check_clearance(record, data[1], tag, 4096);
    if (status.ok() && (record.number != data[1] || record.bytes != 4096 || record.sequence != 7 || record.signature != 8)) std::abort();
    // Parts stay inside the message, whatever its size.
    const std::uint32_t pairs = data[1] % kMaxQueuePairs + 1;
    const std::uint64_t length = record.bytes >> 1;
    for (std::uint32_t i = 0; i < parts_of(length, pairs, ethernet); ++i) {
      const Part part = part_of(record.number, length, pairs, ethernet, i);
      if (part.queue_pair >= pairs || part.offset > length || part.bytes > length - part.offset) std::abort();
    }
  }
  return 0;
}
