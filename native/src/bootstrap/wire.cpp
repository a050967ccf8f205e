// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/wire.hpp"

#include <algorithm>
#include <cstring>

namespace stepccl::bootstrap {
namespace {

Error malformed(const char* what) { return make_error(STEPCCL_ERROR_PROTOCOL, STEPCCL_PHASE_RENDEZVOUS, what); }

// The most and least bytes that a message of this type may carry.
struct Range {
  std::uint32_t least;
  std::uint32_t most;
};

std::optional<Range> allowed(std::uint16_t type, std::uint32_t world) noexcept {
  const auto exactly = [](std::size_t bytes) { return Range{static_cast<std::uint32_t>(bytes), static_cast<std::uint32_t>(bytes)}; };
  switch (static_cast<MessageType>(type)) {
    case MessageType::join: return exactly(sizeof(Member));
    case MessageType::table: return exactly(sizeof(JobSettings) + world * sizeof(Member));
    case MessageType::fail:
      return Range{sizeof(FailureRecord), static_cast<std::uint32_t>(sizeof(FailureRecord)) + kMaxFailureText};
    case MessageType::state: return exactly(sizeof(OperationState));
    case MessageType::states: return exactly(world * sizeof(OperationState));
    case MessageType::ready:
    case MessageType::go:
    case MessageType::goodbye:
    case MessageType::all_gone:
    case MessageType::state_request:
    case MessageType::ping: return exactly(0);
  }
  return std::nullopt;
}

std::vector<std::byte> joined(std::span<const std::byte> first, std::span<const std::byte> second) {
  std::vector<std::byte> out(first.size() + second.size());
  std::copy(first.begin(), first.end(), out.begin());
  std::copy(second.begin(), second.end(), out.begin() + static_cast<std::ptrdiff_t>(first.size()));
  return out;
}

template <class T>
T read_at(std::span<const std::byte> bytes, std::size_t offset) noexcept {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace

std::vector<std::byte> encode_message(MessageType type, std::span<const std::byte> payload) {
  const MessageHeader header{static_cast<std::uint32_t>(payload.size()), static_cast<std::uint16_t>(type), 0};
  return joined(bytes_of(header), payload);
}

Status MessageReader::feed(std::span<const std::byte> bytes, std::vector<Message>& out) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  std::size_t at = 0;
  while (buffer_.size() - at >= sizeof(MessageHeader)) {
    const auto header = read_at<MessageHeader>(buffer_, at);
    const auto range = allowed(header.type, world_);
    if (!range) return malformed("a control message of an unknown type");
    if (header.bytes < range->least || header.bytes > range->most) return malformed("a control message of an impossible length");
    if (buffer_.size() - at - sizeof header < header.bytes) break;
    const auto begin = buffer_.begin() + static_cast<std::ptrdiff_t>(at + sizeof header);
    out.push_back({static_cast<MessageType>(header.type), {begin, begin + header.bytes}});
    at += sizeof header + header.bytes;
  }
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(at));
  return {};
}

Expected<Member> parse_member(std::span<const std::byte> payload, std::uint32_t world) {
  if (payload.size() != sizeof(Member)) return malformed("a member record of an impossible length");
  const auto member = read_at<Member>(payload, 0);
  if (member.rank >= world) return malformed("a member's rank is outside the world");
  if (member.family != 4 && member.family != 6) return malformed("a member's address family is unknown");
  if (member.port == 0) return malformed("a member's port is 0");
  return member;
}

Expected<Table> parse_table(std::span<const std::byte> payload, std::uint32_t world) {
  if (payload.size() != sizeof(JobSettings) + std::size_t{world} * sizeof(Member)) return malformed("a member table of an impossible length");
  Table table;
  table.settings = read_at<JobSettings>(payload, 0);
  if (table.settings.algorithm >= STEPCCL_ALGORITHM_COUNT || table.settings.chunk_bytes == 0 || table.settings.encryption > 1 ||
      table.settings.sockets == 0 || table.settings.sockets > kMaxSockets) {
    return malformed("impossible job settings");
  }
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    auto member = parse_member(payload.subspan(sizeof(JobSettings) + rank * sizeof(Member), sizeof(Member)), world);
    if (!member.ok()) return member.take_error();
    if (member.value().rank != rank) return malformed("the member table is out of order");
    table.members.push_back(member.value());
  }
  return table;
}

Expected<Failure> parse_failure(std::span<const std::byte> payload, std::uint32_t world) {
  if (payload.size() < sizeof(FailureRecord)) return malformed("a failure record of an impossible length");
  Failure failure;
  failure.record = read_at<FailureRecord>(payload, 0);
  const auto in_world = [&](std::int32_t rank) { return rank >= -1 && (rank < 0 || static_cast<std::uint32_t>(rank) < world); };
  if (failure.record.text_bytes > kMaxFailureText || payload.size() != sizeof(FailureRecord) + failure.record.text_bytes) {
    return malformed("a failure record of an impossible length");
  }
  if (!in_world(failure.record.peer) || !in_world(failure.record.reporter)) return malformed("a failure record's rank is outside the world");
  if (std::strcmp(stepccl_result_code(static_cast<stepccl_result_t>(failure.record.code)), "R???") == 0 || failure.record.code == 0) {
    return malformed("a failure record's code is unknown");
  }
  if (failure.record.phase > STEPCCL_PHASE_FINISH || failure.record.transport > STEPCCL_TRANSPORT_GPU_PEER) {
    return malformed("a failure record's phase or transport is unknown");
  }
  failure.text.reserve(failure.record.text_bytes);
  for (const std::byte b : payload.subspan(sizeof(FailureRecord))) {
    const auto c = static_cast<unsigned char>(b);
    failure.text.push_back(c < 0x20 || c == 0x7f ? '?' : static_cast<char>(c));
  }
  return failure;
}

Expected<OperationState> parse_state(std::span<const std::byte> payload) {
  if (payload.size() != sizeof(OperationState)) return malformed("an operation state of an impossible length");
  return read_at<OperationState>(payload, 0);
}

Expected<std::vector<OperationState>> parse_states(std::span<const std::byte> payload, std::uint32_t world) {
  if (payload.size() != std::size_t{world} * sizeof(OperationState)) return malformed("a state table of an impossible length");
  std::vector<OperationState> states(world);
  std::memcpy(states.data(), payload.data(), payload.size());
  return states;
}

std::vector<std::byte> encode_table(const Table& table) {
  return joined(bytes_of(table.settings), std::as_bytes(std::span(table.members)));
}

std::vector<std::byte> encode_failure(const Failure& failure) {
  const std::string text = failure.text.substr(0, kMaxFailureText);
  FailureRecord record = failure.record;
  record.text_bytes = static_cast<std::uint32_t>(text.size());
  return joined(bytes_of(record), std::as_bytes(std::span(text)));
}

}  // namespace stepccl::bootstrap
