// SPDX-License-Identifier: Apache-2.0
// The bytes that ranks exchange outside operations, and pure functions that check foreign ones.
// Little-endian; sizes are fixed by static_assert, so every peer of one protocol version agrees.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/crypto.hpp"
#include "bootstrap/unique_id.hpp"
#include "core/error.hpp"

namespace stepccl::bootstrap {

static_assert(std::endian::native == std::endian::little, "messages are copied as they stand in memory");

constexpr std::uint16_t kProtocolVersion = 2;
constexpr std::uint32_t kHelloMagic = 0x31424353u;      // "SCB1"
constexpr std::uint32_t kChallengeMagic = 0x32424353u;  // "SCB2"
constexpr std::uint32_t kWelcomeMagic = 0x33424353u;    // "SCB3"
constexpr std::uint32_t kMaxWorld = 4096;

// What a connection is for.
enum class Role : std::uint8_t { control = 1, tcp_data = 2, rdma_setup = 3, more_tcp_data = 16 };
constexpr std::size_t kMaxSockets = 16;  // between two ranks
// Of the connection that carries lane `lane` of a pair.
[[nodiscard]] constexpr Role tcp_data_role(std::size_t lane) noexcept {
  return lane == 0 ? Role::tcp_data : static_cast<Role>(static_cast<std::size_t>(Role::more_tcp_data) + lane);
}
[[nodiscard]] constexpr bool is_data_role(std::uint8_t role) noexcept {
  const auto more = static_cast<std::uint8_t>(Role::more_tcp_data);
  return role == static_cast<std::uint8_t>(Role::tcp_data) || role == static_cast<std::uint8_t>(Role::rdma_setup) || (role > more && role < more + kMaxSockets);
}

// --- Handshake: hello ->, <- challenge, proof ->, <- welcome. Fixed sizes, no lengths to trust. ---
struct Hello {
  std::uint32_t magic = kHelloMagic;
  std::uint16_t version = kProtocolVersion;
  std::uint8_t role = 0;
  std::uint8_t reserved = 0;
  std::uint32_t rank = 0;
  std::uint32_t world = 0;
  std::uint64_t comm_id = 0;
  std::uint64_t reserved1 = 0;
  Nonce nonce{};
};
static_assert(sizeof(Hello) == 64);

struct Challenge {
  std::uint32_t magic = kChallengeMagic;
  std::uint16_t version = kProtocolVersion;
  std::uint16_t status = 0;  // stepccl_result_t; not SUCCESS: refused, and nothing follows
  Nonce nonce{};
  Mac mac{};
};
static_assert(sizeof(Challenge) == 72);

struct Proof {
  Mac mac{};
};
static_assert(sizeof(Proof) == 32);

struct Welcome {
  std::uint32_t magic = kWelcomeMagic;
  std::uint16_t status = 0;
  std::uint16_t reserved = 0;
};
static_assert(sizeof(Welcome) == 8);

// --- Control messages, after the handshake: a header, then `bytes` of payload. ---
enum class MessageType : std::uint16_t {
  join = 1,           // rank -> 0: Member
  table = 2,          // 0 -> all: JobSettings, then world x Member
  ready = 3,          // rank -> 0: data paths of this node are open
  go = 4,             // 0 -> all: every rank is ready
  fail = 5,           // both ways: FailureRecord and text
  goodbye = 6,        // rank -> 0: leaves
  all_gone = 7,       // 0 -> all: everyone has said goodbye
  state_request = 8,  // rank -> 0 -> all: tell what you are in
  state = 9,          // rank -> 0: OperationState
  states = 10,        // 0 -> all: world x OperationState
  ping = 11,          // both ways, empty
};

struct MessageHeader {
  std::uint32_t bytes = 0;
  std::uint16_t type = 0;
  std::uint16_t reserved = 0;
};
static_assert(sizeof(MessageHeader) == 8);

// One rank, as all others know it.
struct Member {
  std::uint32_t rank = 0;
  std::uint32_t transports = 0;  // STEPCCL_TRANSPORT_BIT set of what works here
  std::uint64_t host = 0;        // equal for ranks that can share memory
  std::uint8_t family = 0;       // where this rank accepts data connections
  std::uint8_t reserved0 = 0;
  std::uint16_t port = 0;
  std::uint32_t pid = 0;
  std::array<std::uint8_t, 16> address{};
  std::uint8_t link_layer = 0;   // of the RDMA port: 0 none, 1 InfiniBand, 2 Ethernet
  std::uint8_t reserved1[7] = {};

  [[nodiscard]] Endpoint endpoint() const noexcept { return {family, port, address}; }
};
static_assert(sizeof(Member) == 48);

// What rank 0 decides for all.
struct JobSettings {
  std::uint32_t transports = 0;  // allowed; 0 = by topology
  std::uint32_t algorithm = 0;
  std::uint32_t chunk_bytes = 0;
  std::uint32_t heartbeat_timeout_ms = 0;
  // core/engine_settings.hpp: how operations are chosen and run.
  std::array<std::byte, 8168> engine{};
  std::uint8_t encryption = 0;  // 1: TCP through TLS, and no RDMA
  std::uint8_t sockets = 1;     // TCP connections between two ranks
  std::uint8_t reserved[6] = {};
};
static_assert(sizeof(JobSettings) == 8192);

// One call of a collective, as all ranks must make it.
struct Call {
  std::uint64_t count = 0;
  std::uint32_t root = 0;
  std::uint8_t collective = 0;
  std::uint8_t algorithm = 0;
  std::uint8_t datatype = 0;
  std::uint8_t redop = 0;

  [[nodiscard]] bool operator==(const Call&) const = default;
};
static_assert(sizeof(Call) == 16);

// What a rank is doing, for naming mismatches and laggards.
struct OperationState {
  std::uint64_t sequence = 0;  // of the operation it is in or has finished last; 0 = none yet
  Call call;
  Call previous;  // of operation sequence - 1
  std::uint8_t running = 0;
  std::uint8_t reserved[7] = {};

  // What it called as operation `number`, if that is still known.
  [[nodiscard]] const Call* call_of(std::uint64_t number) const noexcept {
    if (number == 0) return nullptr;
    return number == sequence ? &call : number + 1 == sequence ? &previous : nullptr;
  }
};
static_assert(sizeof(OperationState) == 48);

struct FailureRecord {
  std::uint16_t code = 0;
  std::uint8_t phase = 0;
  std::uint8_t transport = 0;
  std::int32_t peer = -1;      // at fault
  std::int32_t reporter = -1;  // who saw it
  std::uint32_t text_bytes = 0;
};
static_assert(sizeof(FailureRecord) == 16);

constexpr std::uint32_t kMaxFailureText = 512;
constexpr std::uint32_t kMaxMessageBytes = sizeof(JobSettings) + kMaxWorld * sizeof(Member);

struct Message {
  MessageType type{};
  std::vector<std::byte> payload;
};

[[nodiscard]] std::vector<std::byte> encode_message(MessageType type, std::span<const std::byte> payload);

// Cuts whole messages out of a stream. Refuses unknown types and lengths that the type can't have,
// before anything is allocated for them.
class MessageReader {
 public:
  explicit MessageReader(std::uint32_t world) : world_(world) {}
  // PROTOCOL on bytes that no peer of this version sends; the reader is unusable then.
  [[nodiscard]] Status feed(std::span<const std::byte> bytes, std::vector<Message>& out);

 private:
  std::uint32_t world_;
  std::vector<std::byte> buffer_;
};

// Payload -> value. PROTOCOL where the length or a field can't be.
struct Table {
  JobSettings settings;
  std::vector<Member> members;
};
struct Failure {
  FailureRecord record;
  std::string text;
};
[[nodiscard]] Expected<Member> parse_member(std::span<const std::byte> payload, std::uint32_t world);
[[nodiscard]] Expected<Table> parse_table(std::span<const std::byte> payload, std::uint32_t world);
[[nodiscard]] Expected<Failure> parse_failure(std::span<const std::byte> payload, std::uint32_t world);
[[nodiscard]] Expected<OperationState> parse_state(std::span<const std::byte> payload);
[[nodiscard]] Expected<std::vector<OperationState>> parse_states(std::span<const std::byte> payload, std::uint32_t world);

[[nodiscard]] std::vector<std::byte> encode_table(const Table& table);
[[nodiscard]] std::vector<std::byte> encode_failure(const Failure& failure);

template <class T>
[[nodiscard]] std::span<const std::byte> bytes_of(const T& value) noexcept {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}

}  // namespace stepccl::bootstrap
