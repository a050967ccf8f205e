// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/crypto.hpp"

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>
#include <stdexcept>
#include <vector>

namespace stepccl::bootstrap {
namespace {

// The host process may have its own OpenSSL configuration; this code needs none and must not load one.
void initialise() {
  static const int done = OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr);
  if (done != 1) throw std::runtime_error("OPENSSL_init_crypto failed");
}

}  // namespace

Mac hmac_sha256(std::span<const std::byte> key, std::initializer_list<std::span<const std::byte>> parts) {
  initialise();
  std::vector<std::byte> message;
  for (const auto part : parts) message.insert(message.end(), part.begin(), part.end());
  Mac mac{};
  unsigned length = 0;
  const auto* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(message.data()),
                          message.size(), reinterpret_cast<unsigned char*>(mac.data()), &length);
  if (made == nullptr || length != mac.size()) throw std::runtime_error("HMAC-SHA256 failed");
  return mac;
}

bool equal(const Mac& a, const Mac& b) noexcept { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

Status random_bytes(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = getrandom(out.data(), out.size(), 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      return make_error(STEPCCL_ERROR_SYSTEM, STEPCCL_PHASE_RENDEZVOUS, "getrandom: " + errno_text(errno));
    }
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

void wipe(std::span<std::byte> secret) noexcept { OPENSSL_cleanse(secret.data(), secret.size()); }

}  // namespace stepccl::bootstrap
