// SPDX-License-Identifier: Apache-2.0
// What the job's authentication needs, over OpenSSL's libcrypto.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "core/error.hpp"

namespace stepccl::bootstrap {

constexpr std::size_t kSecretBytes = 32;
constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kMacBytes = 32;
using Secret = std::array<std::byte, kSecretBytes>;
using Nonce = std::array<std::byte, kNonceBytes>;
using Mac = std::array<std::byte, kMacBytes>;

// HMAC-SHA256 (RFC 2104, FIPS 180-4) over the parts, one after another.
[[nodiscard]] Mac hmac_sha256(std::span<const std::byte> key, std::initializer_list<std::span<const std::byte>> parts);

// In constant time.
[[nodiscard]] bool equal(const Mac& a, const Mac& b) noexcept;

// From the kernel's generator.
[[nodiscard]] Status random_bytes(std::span<std::byte> out);

// Overwrites in a way that the compiler keeps.
void wipe(std::span<std::byte> secret) noexcept;

}  // namespace stepccl::bootstrap
