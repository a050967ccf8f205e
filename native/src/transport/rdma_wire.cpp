// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma_wire.hpp"

#include <algorithm>
#include <cstring>

namespace stepccl::transport {
namespace {

constexpr std::uint8_t kLeastMtu = 1;  // IBV_MTU_256
constexpr std::uint8_t kMostMtu = 5;   // IBV_MTU_4096

Error impossible(const char* what) { return make_error(STEPCCL_ERROR_PROTOCOL, STEPCCL_PHASE_CONNECT, what, -1, STEPCCL_TRANSPORT_RDMA); }

}  // namespace

Expected<ConnectionInfo> parse_connection_info(std::span<const std::byte> bytes, bool ethernet) {
  ConnectionInfo info;
  const std::uint32_t magic = info.magic;
  if (bytes.size() != sizeof info) return impossible("its description of the connection has an impossible length");
  std::memcpy(&info, bytes.data(), sizeof info);
  if (info.magic != magic) return impossible("its description of the connection is none");
  if (info.queue_pairs == 0 || info.queue_pairs > kMaxQueuePairs) return impossible("its number of queue pairs is impossible");
  if (info.mtu < kLeastMtu || info.mtu > kMostMtu) return impossible("its MTU is impossible");
  if (info.split > 1 || info.ethernet > 1) return impossible("its description of the connection is impossible");
  if ((info.ethernet != 0) != ethernet) return impossible("one end is RoCE and the other InfiniBand");
  return info;
}

Expected<std::vector<QueuePairEnd>> parse_queue_pairs(std::span<const std::byte> bytes, const ConnectionInfo& info) {
  std::vector<QueuePairEnd> ends(info.queue_pairs);
  if (bytes.size() != ends.size() * sizeof(QueuePairEnd)) return impossible("its list of queue pairs has an impossible length");
  std::memcpy(ends.data(), bytes.data(), bytes.size());
  for (const QueuePairEnd& end : ends) {
    if (end.number > 0xffffffu || end.packet_number > 0xffffffu) return impossible("a queue pair's number has more than 24 bits");
  }
  return ends;
}

Status check_clearance(const ClearToSend& record, std::uint32_t number, const OperationTag& tag, std::uint64_t bytes) {
  if (record.number != number) return Error{STEPCCL_ERROR_PROTOCOL, -1, {}, {}, "a clearance came out of step"};
  if (OperationTag{record.sequence, record.signature} != tag || record.bytes != bytes) {
    return Error{STEPCCL_ERROR_MISMATCH, -1, {}, {}, "its clearance belongs to another call"};
  }
  return {};
}

std::uint32_t parts_of(std::uint64_t bytes, std::uint32_t queue_pairs, bool split) noexcept {
  if (!split) return 1;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>((bytes + kStripeBytes - 1) / kStripeBytes, 1, queue_pairs));
}

Part part_of(std::uint32_t message, std::uint64_t bytes, std::uint32_t queue_pairs, bool split, std::uint32_t index) noexcept {
  if (!split) return {message % queue_pairs, 0, bytes};
  const std::uint64_t stripes = (bytes + kStripeBytes - 1) / kStripeBytes;
  const std::uint32_t parts = parts_of(bytes, queue_pairs, split);
  const std::uint64_t begin = std::min(stripes * index / parts * kStripeBytes, bytes);
  const std::uint64_t end = std::min(stripes * (index + 1) / parts * kStripeBytes, bytes);
  return {(message + index) % queue_pairs, begin, end - begin};
}

}  // namespace stepccl::transport
