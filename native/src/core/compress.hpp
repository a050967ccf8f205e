// SPDX-License-Identifier: Apache-2.0
// fp32 as 16 bits on the wire.
#pragma once

#include <cmath>
#include <cstddef>

#include "core/float16.hpp"
#include "stepccl/stepccl.h"

namespace stepccl {

[[nodiscard]] inline stepccl_datatype_t wire_datatype(std::uint8_t compression) noexcept {
  return compression == STEPCCL_COMPRESSION_FLOAT16 ? STEPCCL_FLOAT16 : STEPCCL_BFLOAT16;
}

// Rounds to nearest even; gives the largest |rounded - exact| among finite elements that stay finite.
inline double compress(std::uint16_t* to, const float* from, std::size_t count, stepccl_datatype_t datatype) noexcept {
  float worst = 0;
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = datatype == STEPCCL_FLOAT16 ? half_from_float(from[i]) : bfloat_from_float(from[i]);
    const float back = datatype == STEPCCL_FLOAT16 ? float_from_half(to[i]) : float_from_bfloat(to[i]);
    const float error = std::fabs(back - from[i]);
    if (error > worst && std::isfinite(error)) worst = error;
  }
  return worst;
}

inline void expand(float* to, const std::uint16_t* from, std::size_t count, stepccl_datatype_t datatype) noexcept {
  for (std::size_t i = 0; i < count; ++i) to[i] = datatype == STEPCCL_FLOAT16 ? float_from_half(from[i]) : float_from_bfloat(from[i]);
}

}  // namespace stepccl
