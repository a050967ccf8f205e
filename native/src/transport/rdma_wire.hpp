// SPDX-License-Identifier: Apache-2.0
// What two ends of an RDMA connection tell each other, and pure functions that check it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/error.hpp"
#include "transport/transport.hpp"

namespace stepccl::transport {

constexpr std::uint32_t kMaxQueuePairs = 128;      // as NCCL_IB_QPS_PER_CONNECTION
constexpr std::uint32_t kClearToSendBit = 1u << 31;  // of an immediate; the rest is the message's number
constexpr std::size_t kStripeBytes = 128;          // parts of a message are multiples of it

// Over the authenticated connection: first this, then `queue_pairs` x QueuePairEnd.
struct ConnectionInfo {
  std::uint32_t magic = 0x32514353u;  // "SCQ2"
  std::uint16_t queue_pairs = 0;
  std::uint16_t lid = 0;
  std::uint8_t mtu = 0;  // enum ibv_mtu
  std::uint8_t ethernet = 0;
  std::uint8_t split = 0;  // every message is cut over all queue pairs
  std::uint8_t reserved0 = 0;
  std::uint32_t fifo_key = 0;
  std::array<std::uint8_t, 16> gid{};
  std::uint64_t fifo_address = 0;
};
static_assert(sizeof(ConnectionInfo) == 40);

struct QueuePairEnd {
  std::uint32_t number = 0;
  std::uint32_t packet_number = 0;
};
static_assert(sizeof(QueuePairEnd) == 8);

// PROTOCOL where a peer of this version can't have sent it, or its link layer is another one.
[[nodiscard]] Expected<ConnectionInfo> parse_connection_info(std::span<const std::byte> bytes, bool ethernet);
[[nodiscard]] Expected<std::vector<QueuePairEnd>> parse_queue_pairs(std::span<const std::byte> bytes, const ConnectionInfo& info);

// "Write your next message here." The peer's device writes it, so it is foreign like everything else.
struct ClearToSend {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint32_t key = 0;
  std::uint32_t number = 0;  // 1 for the first message of this direction
  std::uint32_t sequence = 0;
  std::uint32_t signature = 0;
};
static_assert(sizeof(ClearToSend) == 32);

// PROTOCOL for a record out of step, MISMATCH for one of another call.
[[nodiscard]] Status check_clearance(const ClearToSend& record, std::uint32_t number, const OperationTag& tag, std::uint64_t bytes);

// How message number `message` of `bytes` bytes is cut over the queue pairs: one whole part in turn, or with `split` even parts.
struct Part {
  std::uint32_t queue_pair = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};
[[nodiscard]] std::uint32_t parts_of(std::uint64_t bytes, std::uint32_t queue_pairs, bool split) noexcept;
[[nodiscard]] Part part_of(std::uint32_t message, std::uint64_t bytes, std::uint32_t queue_pairs, bool split, std::uint32_t index) noexcept;

}  // namespace stepccl::transport
