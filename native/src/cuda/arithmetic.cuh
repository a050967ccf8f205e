// SPDX-License-Identifier: Apache-2.0
// Reductions of 8 bytes at a time, whatever they hold. The same bits as src/core/reduce.cpp gives on a CPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "stepccl/stepccl.h"

namespace stepccl::cuda {

using u8 = unsigned char;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

// Which arithmetic a kernel is compiled for.
enum : int { kCopy = 0, kAny = 1, kSumFloat = 2, kSumBfloat = 3, kSumHalf = 4 };

struct HalfFormat {
  static __device__ float widen(unsigned short bits) { return __half2float(__ushort_as_half(bits)); }
  static __device__ unsigned short shorten(float value) { return __half_as_ushort(__float2half_rn(value)); }
};
struct BfloatFormat {
  static __device__ float widen(unsigned short bits) { return __uint_as_float(static_cast<u32>(bits) << 16); }
  static __device__ unsigned short shorten(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
};

template <class T>
__device__ T apply(u32 op, T a, T b) {
  switch (op) {
    case STEPCCL_PROD: return a * b;
    case STEPCCL_MIN: return a != a ? a : b != b ? b : b < a ? b : a;
    case STEPCCL_MAX: return a != a ? a : b != b ? b : a < b ? b : a;
    default: return a + b;
  }
}
// No contraction and no flushing: a plain IEEE operation each.
template <>
__device__ inline float apply<float>(u32 op, float a, float b) {
  switch (op) {
    case STEPCCL_PROD: return __fmul_rn(a, b);
    case STEPCCL_MIN: return a != a ? a : b != b ? b : b < a ? b : a;
    case STEPCCL_MAX: return a != a ? a : b != b ? b : a < b ? b : a;
    default: return __fadd_rn(a, b);
  }
}
template <>
__device__ inline double apply<double>(u32 op, double a, double b) {
  switch (op) {
    case STEPCCL_PROD: return __dmul_rn(a, b);
    case STEPCCL_MIN: return a != a ? a : b != b ? b : b < a ? b : a;
    case STEPCCL_MAX: return a != a ? a : b != b ? b : a < b ? b : a;
    default: return __dadd_rn(a, b);
  }
}

template <class T>
union Lanes {
  u64 word;
  T item[8 / sizeof(T)];
  __device__ explicit Lanes(u64 w) : word(w) {}
};

template <class T>
__device__ u64 combine_plain(u32 op, u64 a, u64 b) {
  Lanes<T> x{a};
  const Lanes<T> y{b};
#pragma unroll
  for (int i = 0; i < static_cast<int>(8 / sizeof(T)); ++i) x.item[i] = apply<T>(op, x.item[i], y.item[i]);
  return x.word;
}
template <class Format>
__device__ u64 combine_widened(u32 op, u64 a, u64 b) {
  Lanes<unsigned short> x{a};
  const Lanes<unsigned short> y{b};
#pragma unroll
  for (int i = 0; i < 4; ++i) x.item[i] = Format::shorten(apply<float>(op, Format::widen(x.item[i]), Format::widen(y.item[i])));
  return x.word;
}

__device__ inline u64 combine_any(u32 arithmetic, u64 a, u64 b) {
  const u32 op = arithmetic & 7;
  switch (arithmetic >> 3) {
    case STEPCCL_INT8: return combine_plain<signed char>(op, a, b);
    case STEPCCL_UINT8: return combine_plain<unsigned char>(op, a, b);
    case STEPCCL_INT32: return op == STEPCCL_MIN || op == STEPCCL_MAX ? combine_plain<int>(op, a, b) : combine_plain<u32>(op, a, b);
    case STEPCCL_UINT32: return combine_plain<u32>(op, a, b);
    case STEPCCL_INT64: return op == STEPCCL_MIN || op == STEPCCL_MAX ? combine_plain<long long>(op, a, b) : combine_plain<u64>(op, a, b);
    case STEPCCL_UINT64: return combine_plain<u64>(op, a, b);
    case STEPCCL_FLOAT16: return combine_widened<HalfFormat>(op, a, b);
    case STEPCCL_BFLOAT16: return combine_widened<BfloatFormat>(op, a, b);
    case STEPCCL_FLOAT32: return combine_plain<float>(op, a, b);
    default: return combine_plain<double>(op, a, b);
  }
}

// Two 16-bit sums in one instruction. The same bits as through fp32: a sum of two such numbers is exact in fp32, or the
// smaller is too small to bring the larger near a tie.
template <class Pair>
__device__ u64 add_pairs(u64 a, u64 b) {
  Lanes<Pair> x{a};
  const Lanes<Pair> y{b};
  x.item[0] = __hadd2_rn(x.item[0], y.item[0]);
  x.item[1] = __hadd2_rn(x.item[1], y.item[1]);
  return x.word;
}

template <int R>
__device__ u64 combine(u32 arithmetic, u64 a, u64 b) {
  if constexpr (R == kSumFloat) return combine_plain<float>(STEPCCL_SUM, a, b);
  if constexpr (R == kSumBfloat) return add_pairs<__nv_bfloat162>(a, b);
  if constexpr (R == kSumHalf) return add_pairs<__half2>(a, b);
  return combine_any(arithmetic, a, b);
}

template <class T, class D>
__device__ u64 divide_plain(u64 a, D ranks) {
  Lanes<T> x{a};
#pragma unroll
  for (int i = 0; i < static_cast<int>(8 / sizeof(T)); ++i) x.item[i] = static_cast<T>(x.item[i] / ranks);
  return x.word;
}
template <class Format>
__device__ u64 divide_widened(u64 a, u32 ranks) {
  Lanes<unsigned short> x{a};
#pragma unroll
  for (int i = 0; i < 4; ++i) x.item[i] = Format::shorten(__fdiv_rn(Format::widen(x.item[i]), static_cast<float>(ranks)));
  return x.word;
}
template <>
__device__ inline u64 divide_plain<float, float>(u64 a, float ranks) {
  Lanes<float> x{a};
  x.item[0] = __fdiv_rn(x.item[0], ranks);
  x.item[1] = __fdiv_rn(x.item[1], ranks);
  return x.word;
}

// The last step of AVG.
__device__ inline u64 divide(u32 arithmetic, u64 a, u32 ranks) {
  switch (arithmetic >> 3) {
    case STEPCCL_INT8: return divide_plain<signed char>(a, static_cast<int>(ranks));
    case STEPCCL_UINT8: return divide_plain<unsigned char>(a, static_cast<int>(ranks));
    case STEPCCL_INT32: return divide_plain<int>(a, static_cast<int>(ranks));
    case STEPCCL_UINT32: return divide_plain<u32>(a, ranks);
    case STEPCCL_INT64: return divide_plain<long long>(a, static_cast<long long>(ranks));
    case STEPCCL_UINT64: return divide_plain<u64>(a, static_cast<u64>(ranks));
    case STEPCCL_FLOAT16: return divide_widened<HalfFormat>(a, ranks);
    case STEPCCL_BFLOAT16: return divide_widened<BfloatFormat>(a, ranks);
    case STEPCCL_FLOAT32: return divide_plain<float, float>(a, static_cast<float>(ranks));
    default: {
      Lanes<double> x{a};
      x.item[0] = __ddiv_rn(x.item[0], static_cast<double>(ranks));
      return x.word;
    }
  }
}

}  // namespace stepccl::cuda
