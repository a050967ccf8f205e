// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/unique_id.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <mutex>

#include "bootstrap/wire.hpp"
#include "core/env.hpp"

namespace stepccl::bootstrap {
namespace {

constexpr std::uint32_t kIdMagic = 0x31495353u;  // "SSI1"

struct IdLayout {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint8_t family;
  std::uint8_t reserved0;
  std::uint16_t port;
  std::uint8_t reserved1[6];
  std::uint8_t address[16];
  std::uint64_t comm_id;
  std::uint8_t secret[kSecretBytes];
  std::uint8_t reserved2[48];
  std::uint8_t checksum[8];  // of all before, so that a cut or mistyped id is named as such
};
static_assert(sizeof(IdLayout) == STEPCCL_UNIQUE_ID_BYTES);

void checksum_of(const IdLayout& layout, std::uint8_t (&out)[8]) {
  static constexpr char kKey[] = "stepccl unique id";
  const auto* bytes = reinterpret_cast<const std::byte*>(&layout);
  const Mac mac = hmac_sha256(std::as_bytes(std::span(kKey)), {{bytes, offsetof(IdLayout, checksum)}});
  std::memcpy(out, mac.data(), sizeof out);
}

struct Listeners {
  std::mutex mutex;
  std::map<std::uint64_t, Fd> by_comm;
};

Listeners& listeners() {
  static Listeners instance;
  return instance;
}

Error bad_id(const char* why) { return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, std::string("unique id: ") + why); }

}  // namespace

socklen_t Endpoint::to_sockaddr(sockaddr_storage& out) const noexcept {
  out = {};
  if (family == 6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(out);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&v6.sin6_addr, address.data(), 16);
    return sizeof v6;
  }
  auto& v4 = reinterpret_cast<sockaddr_in&>(out);
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  std::memcpy(&v4.sin_addr, address.data(), 4);
  return sizeof v4;
}

Endpoint Endpoint::from_sockaddr(const sockaddr_storage& in) noexcept {
  Endpoint endpoint;
  if (in.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(in);
    endpoint.family = 6;
    endpoint.port = ntohs(v6.sin6_port);
    std::memcpy(endpoint.address.data(), &v6.sin6_addr, 16);
  } else if (in.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(in);
    endpoint.family = 4;
    endpoint.port = ntohs(v4.sin_port);
    std::memcpy(endpoint.address.data(), &v4.sin_addr, 4);
  }
  return endpoint;
}

std::string Endpoint::to_string() const {
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(family == 6 ? AF_INET6 : AF_INET, address.data(), text, sizeof text);
  std::string result = family == 6 ? std::string("[").append(text).append("]") : std::string(text);
  return result.append(":").append(std::to_string(port));
}

stepccl_unique_id_t UniqueId::encode() const noexcept {
  IdLayout layout{};
  layout.magic = kIdMagic;
  layout.version = kProtocolVersion;
  layout.family = endpoint.family;
  layout.port = endpoint.port;
  std::memcpy(layout.address, endpoint.address.data(), 16);
  layout.comm_id = comm_id;
  std::memcpy(layout.secret, secret.data(), kSecretBytes);
  checksum_of(layout, layout.checksum);
  stepccl_unique_id_t id{};
  std::memcpy(id.bytes, &layout, sizeof layout);
  wipe(std::as_writable_bytes(std::span(layout.secret)));
  return id;
}

Expected<UniqueId> UniqueId::decode(const stepccl_unique_id_t& id) {
  IdLayout layout{};
  std::memcpy(&layout, id.bytes, sizeof layout);
  if (layout.magic != kIdMagic) return bad_id("these bytes are none");
  std::uint8_t checksum[8];
  checksum_of(layout, checksum);
  if (std::memcmp(checksum, layout.checksum, sizeof checksum) != 0) return bad_id("damaged or cut");
  if (layout.version != kProtocolVersion) {
    return make_error(STEPCCL_ERROR_VERSION, STEPCCL_PHASE_ARGUMENTS,
                      "the unique id is of protocol " + std::to_string(layout.version) + ", this library speaks " +
                          std::to_string(kProtocolVersion));
  }
  if (layout.family != 4 && layout.family != 6) return bad_id("its address family is unknown");
  UniqueId result;
  result.endpoint.family = layout.family;
  result.endpoint.port = layout.port;
  std::memcpy(result.endpoint.address.data(), layout.address, 16);
  result.comm_id = layout.comm_id;
  std::memcpy(result.secret.data(), layout.secret, kSecretBytes);
  wipe(std::as_writable_bytes(std::span(layout.secret)));
  return result;
}

Expected<Endpoint> parse_endpoint(const std::string& text) {
  const auto refuse = [&] {
    return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "\"" + text + "\" is no IP address with an optional port");
  };
  std::string host = text;
  std::string port_text;
  if (!text.empty() && text[0] == '[') {
    const std::size_t end = text.find(']');
    if (end == std::string::npos) return refuse();
    host = text.substr(1, end - 1);
    if (end + 1 < text.size()) {
      if (text[end + 1] != ':') return refuse();
      port_text = text.substr(end + 2);
      if (port_text.empty()) return refuse();
    }
  } else if (const std::size_t colon = text.find(':'); colon != std::string::npos && text.find(':', colon + 1) == std::string::npos) {
    host = text.substr(0, colon);
    port_text = text.substr(colon + 1);
    if (port_text.empty()) return refuse();
  }
  Endpoint endpoint;
  if (inet_pton(AF_INET, host.c_str(), endpoint.address.data()) == 1) {
    endpoint.family = 4;
  } else if (inet_pton(AF_INET6, host.c_str(), endpoint.address.data()) == 1) {
    endpoint.family = 6;
  } else {
    return refuse();
  }
  if (!port_text.empty()) {
    const auto [end, error] = std::from_chars(port_text.data(), port_text.data() + port_text.size(), endpoint.port);
    if (error != std::errc{} || end != port_text.data() + port_text.size()) return refuse();
  }
  return endpoint;
}

Expected<Endpoint> interface_endpoint(const std::string& list) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return make_error(STEPCCL_ERROR_SYSTEM, STEPCCL_PHASE_ARGUMENTS, "getifaddrs: " + errno_text(errno));
  // Lower is better: IPv4 before IPv6; loopback and docker* last, as NCCL does. Link-local IPv6 needs a scope: left out.
  int best_score = 100;
  Endpoint best;
  for (const ifaddrs* it = all; it != nullptr; it = it->ifa_next) {
    if (it->ifa_addr == nullptr || (it->ifa_flags & IFF_UP) == 0 || !list_selects(list, it->ifa_name)) continue;
    const int family = it->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    sockaddr_storage address{};
    std::memcpy(&address, it->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<sockaddr_in6&>(address).sin6_addr)) continue;
    int score = family == AF_INET ? 0 : 1;
    if ((it->ifa_flags & IFF_LOOPBACK) != 0) score += 20;
    if (std::strncmp(it->ifa_name, "docker", 6) == 0) score += 10;
    if (score < best_score) {
      best_score = score;
      best = Endpoint::from_sockaddr(address);
      best.port = 0;
    }
  }
  freeifaddrs(all);
  if (best_score == 100) {
    return make_error(STEPCCL_ERROR_INVALID_CONFIGURATION, STEPCCL_PHASE_ARGUMENTS,
                      list.empty() ? "no network interface is up" : "no interface that is up matches \"" + list + "\"");
  }
  return best;
}

Expected<Fd> listen_on(Endpoint& endpoint, int backlog) {
  const auto refuse = [&](const char* call) {
    return make_error(STEPCCL_ERROR_RENDEZVOUS, STEPCCL_PHASE_RENDEZVOUS,
                      std::string(call) + " on " + endpoint.to_string() + ": " + errno_text(errno));
  };
  Fd fd(::socket(endpoint.family == 6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return refuse("socket");
  const int on = 1;
  if (setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) return refuse("setsockopt");
  sockaddr_storage address{};
  const socklen_t length = endpoint.to_sockaddr(address);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) return refuse("bind");
  if (::listen(fd.get(), backlog) != 0) return refuse("listen");
  sockaddr_storage real{};
  socklen_t real_length = sizeof real;
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&real), &real_length) != 0) return refuse("getsockname");
  endpoint.port = Endpoint::from_sockaddr(real).port;
  return fd;
}

void keep_listener(std::uint64_t comm_id, Fd listener) {
  auto& kept = listeners();
  const std::lock_guard lock(kept.mutex);
  kept.by_comm[comm_id] = std::move(listener);
}

Fd take_listener(std::uint64_t comm_id) {
  auto& kept = listeners();
  const std::lock_guard lock(kept.mutex);
  const auto found = kept.by_comm.find(comm_id);
  if (found == kept.by_comm.end()) return {};
  Fd listener = std::move(found->second);
  kept.by_comm.erase(found);
  return listener;
}

}  // namespace stepccl::bootstrap
