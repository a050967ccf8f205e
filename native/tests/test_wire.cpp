// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstring>
#include <random>

#include "bootstrap/handshake.hpp"

using namespace stepccl;
using namespace stepccl::bootstrap;

namespace {

template <class... Bytes>
std::vector<std::byte> raw(Bytes... bytes) {
  return {static_cast<std::byte>(bytes)...};
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  char two[3];
  for (const std::byte b : bytes) std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(b)), text += two;
  return text;
}

}  // namespace

TEST_CASE("HMAC-SHA256 matches RFC 4231") {
  const std::vector<std::byte> key(20, std::byte{0x0b});
  const char data[] = {'H', 'i', ' ', 'T', 'h', 'e', 'r', 'e'};
  CHECK(hex(hmac_sha256(key, {std::as_bytes(std::span(data))})) == "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  const std::string jefe = "Jefe";
  const std::string first = "what do ya want ";
  const std::string second = "for nothing?";
  CHECK(hex(hmac_sha256(std::as_bytes(std::span(jefe)), {std::as_bytes(std::span(first)), std::as_bytes(std::span(second))})) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST_CASE("a unique id survives the trip and nothing else passes for one") {
  UniqueId id;
  id.endpoint = parse_endpoint("10.77.0.1:4711").value();
  id.comm_id = 42;
  id.secret[0] = std::byte{1};
  stepccl_unique_id_t bytes = id.encode();
  auto back = UniqueId::decode(bytes);
  REQUIRE(back.ok());
  CHECK(back.value().endpoint == id.endpoint);
  CHECK(back.value().comm_id == 42);
  CHECK(back.value().secret == id.secret);
  for (std::size_t i = 0; i < sizeof bytes.bytes; ++i) {
    stepccl_unique_id_t damaged = bytes;
    damaged.bytes[i] ^= 0x10;
    auto refused = UniqueId::decode(damaged);
    CHECK_FALSE(refused.ok());
  }
}

TEST_CASE("addresses are parsed, or refused with the text") {
  CHECK(parse_endpoint("127.0.0.1").value().port == 0);
  CHECK(parse_endpoint("[::1]:80").value().to_string() == "[::1]:80");
  CHECK(parse_endpoint("fd00::5").value().family == 6);
  for (const char* bad : {"", "localhost", "1.2.3", "1.2.3.4:", "1.2.3.4:70000", "1.2.3.4:x", "[::1", "[::1]x", "[::1]:"}) {
    CAPTURE(bad);
    auto refused = parse_endpoint(bad);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == STEPCCL_ERROR_INVALID_ARGUMENT);
  }
}

TEST_CASE("messages are cut out of a stream however it arrives") {
  Failure failure;
  failure.record.code = STEPCCL_ERROR_PEER_CLOSED;
  failure.record.peer = 2;
  failure.record.reporter = 0;
  failure.text = "its connection closed";
  std::vector<std::byte> stream = encode_message(MessageType::ping, {});
  const auto second = encode_message(MessageType::fail, encode_failure(failure));
  stream.insert(stream.end(), second.begin(), second.end());
  for (const std::size_t piece : {1u, 3u, 1000u}) {
    MessageReader reader(3);
    std::vector<Message> messages;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      REQUIRE(reader.feed(std::span(stream).subspan(at, std::min(piece, stream.size() - at)), messages).ok());
    }
    REQUIRE(messages.size() == 2);
    CHECK(messages[0].type == MessageType::ping);
    auto back = parse_failure(messages[1].payload, 3);
    REQUIRE(back.ok());
    CHECK(back.value().record.peer == 2);
    CHECK(back.value().text == failure.text);
  }
}

TEST_CASE("impossible messages are refused before anything is kept for them") {
  const auto refuse = [](MessageHeader header) {
    MessageReader reader(3);
    std::vector<Message> messages;
    return reader.feed(bytes_of(header), messages);
  };
  CHECK_FALSE(refuse({0, 99, 0}).ok());                                                          // unknown type
  CHECK_FALSE(refuse({1, static_cast<std::uint16_t>(MessageType::ping), 0}).ok());               // a ping is empty
  CHECK_FALSE(refuse({0xffffffff, static_cast<std::uint16_t>(MessageType::fail), 0}).ok());      // 4 GiB of failure
  CHECK_FALSE(refuse({sizeof(Member) + 1, static_cast<std::uint16_t>(MessageType::join), 0}).ok());
}

TEST_CASE("values that can't be are refused") {
  Member member;
  member.rank = 1;
  member.family = 4;
  member.port = 1;
  CHECK(parse_member(bytes_of(member), 2).ok());
  CHECK_FALSE(parse_member(bytes_of(member), 1).ok());
  member.family = 5;
  CHECK_FALSE(parse_member(bytes_of(member), 2).ok());
  member.family = 4;
  member.port = 0;
  CHECK_FALSE(parse_member(bytes_of(member), 2).ok());
  CHECK_FALSE(parse_member(raw(1, 2, 3), 2).ok());

  FailureRecord record;
  record.code = STEPCCL_ERROR_TIMEOUT;
  CHECK(parse_failure(bytes_of(record), 4).ok());
  record.peer = 4;
  CHECK_FALSE(parse_failure(bytes_of(record), 4).ok());
  record.peer = -2;
  CHECK_FALSE(parse_failure(bytes_of(record), 4).ok());
  record.peer = -1;
  record.code = 12345;
  CHECK_FALSE(parse_failure(bytes_of(record), 4).ok());
  record.code = STEPCCL_ERROR_TIMEOUT;
  record.text_bytes = 1;
  CHECK_FALSE(parse_failure(bytes_of(record), 4).ok());
}

TEST_CASE("control characters of a foreign text do not reach the log") {
  Failure failure;
  failure.record.code = STEPCCL_ERROR_SYSTEM;
  failure.text = "red \x1b[31m and\nnew line";
  auto back = parse_failure(encode_failure(failure), 1);
  REQUIRE(back.ok());
  CHECK(back.value().text == "red ?[31m and?new line");
}

TEST_CASE("the handshake admits a holder of the secret only") {
  JobKey key;
  key.secret[5] = std::byte{7};
  key.comm_id = 77;
  key.rank = 0;
  key.world = 4;
  const AdmissionCheck admit = [](const Hello& hello) { return hello.rank == 3 ? STEPCCL_ERROR_RANK_CONFLICT : STEPCCL_SUCCESS; };
  const auto talk = [&](Hello hello, const Secret& secret, std::size_t piece) {
    ServerHandshake server(key, admit);
    std::vector<std::byte> out;
    const auto bytes = bytes_of(hello);
    for (std::size_t at = 0; at < bytes.size(); at += piece) server.feed(bytes.subspan(at, std::min(piece, bytes.size() - at)), out);
    if (server.state() != ServerHandshake::State::proof) return std::make_pair(server.state(), out);
    Challenge challenge;
    REQUIRE(out.size() == sizeof challenge);
    std::memcpy(&challenge, out.data(), sizeof challenge);
    static constexpr char kLabel[] = "stepccl 1 client";
    const Proof proof{hmac_sha256(secret, {std::as_bytes(std::span(kLabel)), bytes_of(hello), bytes_of(challenge)})};
    out.clear();
    server.feed(bytes_of(proof), out);
    return std::make_pair(server.state(), out);
  };
  Hello hello;
  hello.role = 1;
  hello.rank = 2;
  hello.world = 4;
  hello.comm_id = 77;
  const auto welcome_of = [](const std::vector<std::byte>& out) {
    Welcome welcome;
    REQUIRE(out.size() == sizeof welcome);
    std::memcpy(&welcome, out.data(), sizeof welcome);
    return welcome.status;
  };
  CHECK(talk(hello, key.secret, 64).first == ServerHandshake::State::accepted);
  CHECK(talk(hello, key.secret, 1).first == ServerHandshake::State::accepted);

  const auto [state, out] = talk(hello, Secret{}, 64);
  CHECK(state == ServerHandshake::State::refused);
  CHECK(welcome_of(out) == STEPCCL_ERROR_AUTHENTICATION);

  Hello taken = hello;
  taken.rank = 3;
  CHECK(welcome_of(talk(taken, key.secret, 64).second) == STEPCCL_ERROR_RANK_CONFLICT);
  Hello outside = hello;
  outside.rank = 4;
  CHECK(welcome_of(talk(outside, key.secret, 64).second) == STEPCCL_ERROR_RANK_CONFLICT);
  Hello other_world = hello;
  other_world.world = 5;
  CHECK(welcome_of(talk(other_world, key.secret, 64).second) == STEPCCL_ERROR_RANK_CONFLICT);
  Hello other_job = hello;
  other_job.comm_id = 78;
  CHECK(talk(other_job, key.secret, 64).first == ServerHandshake::State::refused);
  Hello newer = hello;
  newer.version = 9;
  const auto [newer_state, newer_out] = talk(newer, key.secret, 64);
  CHECK(newer_state == ServerHandshake::State::refused);
  Challenge refusal;
  REQUIRE(newer_out.size() == sizeof refusal);
  std::memcpy(&refusal, newer_out.data(), sizeof refusal);
  CHECK(refusal.status == STEPCCL_ERROR_VERSION);
  CHECK(equal(refusal.mac, Mac{}));  // a refusal proves nothing
}

TEST_CASE("a stranger is refused at its first bytes and gets no answer") {
  JobKey key;
  const AdmissionCheck admit = [](const Hello&) { return STEPCCL_SUCCESS; };
  ServerHandshake server(key, admit);
  std::vector<std::byte> out;
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  CHECK(server.feed(std::as_bytes(std::span(request)), out) == ServerHandshake::State::refused);
  CHECK(out.empty());
  CHECK(server.wanted() == 0);
}
