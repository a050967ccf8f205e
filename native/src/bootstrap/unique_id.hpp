// SPDX-License-Identifier: Apache-2.0
// The inside of stepccl_unique_id_t.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "bootstrap/crypto.hpp"
#include "core/error.hpp"
#include "core/fd.hpp"

namespace stepccl::bootstrap {

// An IPv4 or IPv6 address with a port.
struct Endpoint {
  std::uint8_t family = 0;  // 4 or 6
  std::uint16_t port = 0;   // host byte order
  std::array<std::uint8_t, 16> address{};  // network byte order; IPv4 in the first four

  [[nodiscard]] socklen_t to_sockaddr(sockaddr_storage& out) const noexcept;
  [[nodiscard]] static Endpoint from_sockaddr(const sockaddr_storage& in) noexcept;
  [[nodiscard]] std::string to_string() const;  // "10.77.0.1:4711", "[fd00::1]:4711"
  [[nodiscard]] bool operator==(const Endpoint&) const = default;
};

struct UniqueId {
  Endpoint endpoint;
  std::uint64_t comm_id = 0;
  Secret secret{};

  [[nodiscard]] stepccl_unique_id_t encode() const noexcept;
  // INVALID_ARGUMENT for bytes that no encode() made (magic, checksum, family), VERSION for another version's.
  [[nodiscard]] static Expected<UniqueId> decode(const stepccl_unique_id_t& id);
};

// "a.b.c.d", "a.b.c.d:port", "[v6]", "[v6]:port". INVALID_ARGUMENT for anything else.
[[nodiscard]] Expected<Endpoint> parse_endpoint(const std::string& text);

// Address of an interface by NCCL's grammar ("" = first that is up and not loopback, else loopback), port 0.
[[nodiscard]] Expected<Endpoint> interface_endpoint(const std::string& list);

// A non-blocking listener; on success `endpoint` carries the real port.
[[nodiscard]] Expected<Fd> listen_on(Endpoint& endpoint, int backlog);

// Listeners that stepccl_unique_id_create left for rank 0 of this process.
void keep_listener(std::uint64_t comm_id, Fd listener);
[[nodiscard]] Fd take_listener(std::uint64_t comm_id);

}  // namespace stepccl::bootstrap
