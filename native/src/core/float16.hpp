// SPDX-License-Identifier: Apache-2.0
// Conversions of 16-bit floats, round to nearest even. Bit for bit what F16C does (a quieted NaN keeps
// its payload), so that nodes with and without it compute the same result. IEEE 754-2008, 3.6 and 5.4.2.
#pragma once

#include <bit>
#include <cstdint>

namespace stepccl {

[[nodiscard]] constexpr float float_from_half(std::uint16_t half) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu;
  const std::uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) {
    const std::uint32_t quiet = mantissa != 0 ? 0x00400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13) | quiet);
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

[[nodiscard]] constexpr std::uint16_t half_from_float(float value) noexcept {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((bits >> 13) & 0x3ffu));
  if (bits >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (bits < 0x38800000u) {  // below the smallest normal half, 2^-14: count units of 2^-24
    if (bits < 0x33000000u) return sign;
    const std::uint32_t shift = 126 - (bits >> 23);
    const std::uint32_t mantissa = (bits & 0x7fffffu) | 0x800000u;
    const std::uint32_t rest = mantissa & ((1u << shift) - 1);
    const std::uint32_t tie = 1u << (shift - 1);
    std::uint32_t units = mantissa >> shift;
    if (rest > tie || (rest == tie && (units & 1u) != 0)) ++units;
    return static_cast<std::uint16_t>(sign | units);
  }
  bits += 0xfffu + ((bits >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((bits - 0x38000000u) >> 13));
}

[[nodiscard]] constexpr float float_from_bfloat(std::uint16_t value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

[[nodiscard]] constexpr std::uint16_t bfloat_from_float(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quieted = (bits >> 16) | 0x40u;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quieted : rounded);
}

}  // namespace stepccl
