// SPDX-License-Identifier: Apache-2.0
// The accepting side of the handshake. Without the secret no input may be admitted.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "bootstrap/handshake.hpp"

using namespace stepccl::bootstrap;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const JobKey key = [] {
    JobKey made;
    made.secret.fill(std::byte{0x5c});
    made.comm_id = 0x1122334455667788u;
    made.world = 4;
    return made;
  }();
  static const AdmissionCheck admit = [](const Hello&) { return STEPCCL_SUCCESS; };
  std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data + 1), reinterpret_cast<const std::byte*>(data) + size);
  // Half of the inputs get as far as the proof.
  if ((data[0] & 1) != 0 && bytes.size() >= sizeof(Hello)) {
    Hello hello;
    hello.comm_id = key.comm_id;
    hello.world = 4;
    std::memcpy(bytes.data(), &hello, offsetof(Hello, nonce));
  }
  const std::size_t piece = 1 + data[0] / 2;
  ServerHandshake server(key, admit);
  std::vector<std::byte> out;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    server.feed(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)), out);
  }
  if (server.state() == ServerHandshake::State::accepted) std::abort();
  if (out.size() > sizeof(Challenge) + sizeof(Welcome)) std::abort();
  return 0;
}
