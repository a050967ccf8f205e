// SPDX-License-Identifier: Apache-2.0
#include "core/reduce.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "core/float16.hpp"

#if defined(__clang__)
#define STEPCCL_NO_DEPENDENCE  // clang compares the pointers at run time
#else
#define STEPCCL_NO_DEPENDENCE _Pragma("GCC ivdep")
#endif

namespace stepccl {
namespace {

using Kernel = void (*)(void*, const void*, const void*, std::size_t) noexcept;

namespace baseline {
#define STEPCCL_KERNEL_TARGET
#define STEPCCL_KERNEL_F16C 0
#include "core/reduce_kernels.inl"
#undef STEPCCL_KERNEL_TARGET
#undef STEPCCL_KERNEL_F16C
}  // namespace baseline

#if defined(__x86_64__)
namespace avx2 {
#define STEPCCL_KERNEL_TARGET __attribute__((target("avx2,f16c")))
#define STEPCCL_KERNEL_F16C 1
#include "core/reduce_kernels.inl"
#undef STEPCCL_KERNEL_TARGET
#undef STEPCCL_KERNEL_F16C
}  // namespace avx2

// clang 14 can't ask for F16C by name. That the system saves the wide registers is part of the answer about AVX2.
bool has_f16c() noexcept {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

bool has_avx2() noexcept {
  static const bool present = __builtin_cpu_supports("avx2") != 0 && has_f16c();
  return present;
}
#endif

template <class T>
void divide_plain(void* target, std::size_t count, T ranks) noexcept {
  auto* t = static_cast<T*>(target);
  for (std::size_t i = 0; i < count; ++i) t[i] = static_cast<T>(t[i] / ranks);
}

// The number of ranks may not fit into 8 bits: divide as int.
template <class T>
void divide_narrow(void* target, std::size_t count, int ranks) noexcept {
  auto* t = static_cast<T*>(target);
  for (std::size_t i = 0; i < count; ++i) t[i] = static_cast<T>(static_cast<int>(t[i]) / ranks);
}

}  // namespace

void reduce_baseline(void* target, const void* left, const void* right, std::size_t count, stepccl_datatype_t datatype,
                     stepccl_redop_t redop) noexcept {
  baseline::kKernels[datatype][redop](target, left, right, count);
}

void reduce(void* target, const void* left, const void* right, std::size_t count, stepccl_datatype_t datatype,
            stepccl_redop_t redop) noexcept {
#if defined(__x86_64__)
  if (has_avx2()) {
    avx2::kKernels[datatype][redop](target, left, right, count);
    return;
  }
#endif
  reduce_baseline(target, left, right, count, datatype, redop);
}

const char* reduce_kernels_name() noexcept {
#if defined(__x86_64__)
  if (has_avx2()) return "avx2";
#endif
  return "baseline";
}

void divide(void* target, std::size_t count, stepccl_datatype_t datatype, std::uint32_t ranks) noexcept {
  auto* bits = static_cast<std::uint16_t*>(target);
  switch (datatype) {
    case STEPCCL_INT8: return divide_narrow<std::int8_t>(target, count, static_cast<int>(ranks));
    case STEPCCL_UINT8: return divide_narrow<std::uint8_t>(target, count, static_cast<int>(ranks));
    case STEPCCL_INT32: return divide_plain<std::int32_t>(target, count, static_cast<std::int32_t>(ranks));
    case STEPCCL_UINT32: return divide_plain<std::uint32_t>(target, count, ranks);
    case STEPCCL_INT64: return divide_plain<std::int64_t>(target, count, static_cast<std::int64_t>(ranks));
    case STEPCCL_UINT64: return divide_plain<std::uint64_t>(target, count, ranks);
    case STEPCCL_FLOAT16:
      for (std::size_t i = 0; i < count; ++i) bits[i] = half_from_float(float_from_half(bits[i]) / static_cast<float>(ranks));
      return;
    case STEPCCL_BFLOAT16:
      for (std::size_t i = 0; i < count; ++i) bits[i] = bfloat_from_float(float_from_bfloat(bits[i]) / static_cast<float>(ranks));
      return;
    case STEPCCL_FLOAT32: return divide_plain<float>(target, count, static_cast<float>(ranks));
    case STEPCCL_FLOAT64: return divide_plain<double>(target, count, static_cast<double>(ranks));
  }
}

}  // namespace stepccl
