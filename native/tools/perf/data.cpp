// SPDX-License-Identifier: Apache-2.0
#include "perf/data.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/float16.hpp"

namespace perf {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014): a good hash of a counter.
constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr std::uint64_t bits_of(std::uint32_t rank, std::size_t index, std::uint64_t seed) noexcept {
  return mix(seed * 0x2545f4914f6cdd1du + (static_cast<std::uint64_t>(rank) << 40) + index);
}

struct Half {
  std::uint16_t bits;
};
struct Bfloat {
  std::uint16_t bits;
};

// How a type is stored and computed with.
template <class T>
struct Traits {
  static constexpr bool floating = std::is_floating_point_v<T>;
  static constexpr double roundoff = std::is_same_v<T, double> ? 0x1p-53 : 0x1p-24;
  static constexpr double least = static_cast<double>(std::numeric_limits<T>::denorm_min());
  static long double wide(T x) { return static_cast<long double>(x); }
  static T narrow(double x) { return static_cast<T>(x); }
};
template <>
struct Traits<Half> {
  static constexpr bool floating = true;
  static constexpr double roundoff = 0x1p-11;
  static constexpr double least = 0x1p-24;
  static long double wide(Half x) { return stepccl::float_from_half(x.bits); }
  static Half narrow(double x) { return {stepccl::half_from_float(static_cast<float>(x))}; }
};
template <>
struct Traits<Bfloat> {
  static constexpr bool floating = true;
  static constexpr double roundoff = 0x1p-8;
  static constexpr double least = 0x1p-133;
  static long double wide(Bfloat x) { return stepccl::float_from_bfloat(x.bits); }
  static Bfloat narrow(double x) { return {stepccl::bfloat_from_float(static_cast<float>(x))}; }
};

template <class T>
T element(std::uint32_t rank, std::size_t index, stepccl_redop_t redop, std::uint64_t seed) {
  const std::uint64_t bits = bits_of(rank, index, seed);
  if constexpr (Traits<T>::floating) {
    const double unit = static_cast<double>(bits >> 11) * 0x1p-53;  // [0, 1)
    // Products of many ranks must neither overflow nor vanish in 16 bits.
    return Traits<T>::narrow(redop == STEPCCL_PROD ? 0.75 + 0.5 * unit : 2 * unit - 1);
  } else {
    return static_cast<T>(bits);  // integers wrap, so any bits will do
  }
}

template <class T>
void fill_as(void* data, std::size_t count, stepccl_redop_t redop, std::uint32_t rank, std::uint64_t seed) {
  auto* out = static_cast<T*>(data);
  for (std::size_t i = 0; i < count; ++i) out[i] = element<T>(rank, i, redop, seed);
}

template <class T>
bool right_integer(T result, std::size_t index, stepccl_redop_t redop, std::uint32_t world, std::uint64_t seed) {
  using U = std::make_unsigned_t<T>;
  T expected = element<T>(0, index, redop, seed);
  for (std::uint32_t rank = 1; rank < world; ++rank) {
    const T x = element<T>(rank, index, redop, seed);
    switch (redop) {
      case STEPCCL_SUM:
      case STEPCCL_AVG: expected = static_cast<T>(static_cast<U>(static_cast<U>(expected) + static_cast<U>(x))); break;
      case STEPCCL_PROD: expected = static_cast<T>(static_cast<U>(static_cast<std::uint64_t>(static_cast<U>(expected)) * static_cast<U>(x))); break;
      case STEPCCL_MIN: expected = std::min(expected, x); break;
      case STEPCCL_MAX: expected = std::max(expected, x); break;
    }
  }
  if (redop == STEPCCL_AVG) {
    if constexpr (std::is_signed_v<T>) {
      expected = static_cast<T>(static_cast<std::int64_t>(expected) / static_cast<std::int64_t>(world));
    } else {
      expected = static_cast<T>(static_cast<std::uint64_t>(expected) / world);
    }
  }
  return result == expected;
}

template <class T>
bool right_floating(T result, std::size_t index, stepccl_redop_t redop, std::uint32_t world, std::uint64_t seed, double wire_roundoff) {
  long double value = Traits<T>::wide(element<T>(0, index, redop, seed));
  long double magnitude = std::fabs(value);
  for (std::uint32_t rank = 1; rank < world; ++rank) {
    const long double x = Traits<T>::wide(element<T>(rank, index, redop, seed));
    switch (redop) {
      case STEPCCL_SUM:
      case STEPCCL_AVG: value += x; break;
      case STEPCCL_PROD: value *= x; break;
      case STEPCCL_MIN: value = std::min(value, x); break;
      case STEPCCL_MAX: value = std::max(value, x); break;
    }
    magnitude = redop == STEPCCL_PROD ? magnitude * std::fabs(x) : magnitude + std::fabs(x);
  }
  const long double got = Traits<T>::wide(result);
  if (redop == STEPCCL_MIN || redop == STEPCCL_MAX) return got == value;
  double roundings = wire_roundoff > 0 ? 2.0 * world : world - 1;  // compressed parts are rounded before they are added
  if (redop == STEPCCL_AVG) {
    value /= world;
    magnitude /= world;
    ++roundings;
  }
  const double u = std::max(Traits<T>::roundoff, wire_roundoff);
  const double gamma = roundings * u < 0.5 ? roundings * u / (1 - roundings * u) : roundings * u;
  const long double bound = gamma * magnitude + roundings * Traits<T>::least;  // the second term: results below the normal range
  return std::fabs(got - value) <= bound;
}

template <class T>
std::uint64_t count_wrong_as(const void* result, std::size_t count, stepccl_redop_t redop, std::uint32_t world, std::uint64_t seed, std::uint64_t first,
                             double wire_roundoff) {
  const auto* got = static_cast<const T*>(result);
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    bool right = false;
    if constexpr (Traits<T>::floating) {
      right = right_floating<T>(got[i], first + i, redop, world, seed, wire_roundoff);
    } else {
      right = right_integer<T>(got[i], first + i, redop, world, seed);
    }
    wrong += right ? 0 : 1;
  }
  return wrong;
}

template <class F>
auto with_type(stepccl_datatype_t datatype, F&& f) {
  switch (datatype) {
    case STEPCCL_INT8: return f(std::int8_t{});
    case STEPCCL_UINT8: return f(std::uint8_t{});
    case STEPCCL_INT32: return f(std::int32_t{});
    case STEPCCL_UINT32: return f(std::uint32_t{});
    case STEPCCL_INT64: return f(std::int64_t{});
    case STEPCCL_UINT64: return f(std::uint64_t{});
    case STEPCCL_FLOAT16: return f(Half{});
    case STEPCCL_BFLOAT16: return f(Bfloat{});
    case STEPCCL_FLOAT32: return f(float{});
    case STEPCCL_FLOAT64: break;
  }
  return f(double{});
}

}  // namespace

void fill(void* data, std::size_t count, stepccl_datatype_t datatype, stepccl_redop_t redop, std::uint32_t rank, std::uint64_t seed) {
  with_type(datatype, [&](auto tag) { fill_as<decltype(tag)>(data, count, redop, rank, seed); });
}

std::uint64_t count_wrong(const void* result, std::size_t count, stepccl_datatype_t datatype, stepccl_redop_t redop, std::uint32_t world,
                          std::uint64_t seed, std::uint64_t first, double wire_roundoff) {
  return with_type(datatype, [&](auto tag) { return count_wrong_as<decltype(tag)>(result, count, redop, world, seed, first, wire_roundoff); });
}

std::uint64_t count_different(const void* result, std::size_t count, stepccl_datatype_t datatype, stepccl_redop_t redop, std::uint32_t rank, std::uint64_t first,
                              std::uint64_t seed) {
  return with_type(datatype, [&](auto tag) {
    using T = decltype(tag);
    const auto* got = static_cast<const T*>(result);
    std::uint64_t different = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const T wanted = element<T>(rank, first + i, redop, seed);
      different += std::memcmp(got + i, &wanted, sizeof wanted) == 0 ? 0 : 1;
    }
    return different;
  });
}

void poison(void* data, std::size_t bytes) { std::memset(data, 0xa5, bytes); }

}  // namespace perf
