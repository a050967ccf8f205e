// SPDX-License-Identifier: Apache-2.0
// Included once per instruction set, inside its own namespace, with STEPCCL_KERNEL_TARGET set to the
// target attribute and STEPCCL_NO_DEPENDENCE to the compiler's word for a loop whose elements are independent. Nothing here may call an inline function of the standard library that isn't
// always inlined: the linker could keep the copy that the older CPU can't run.

template <class T>
struct Sum {
  static inline T apply(T a, T b) noexcept { return a + b; }
};
template <class T>
struct Product {
  static inline T apply(T a, T b) noexcept { return a * b; }
};
template <class T>
struct Minimum {
  static inline T apply(T a, T b) noexcept { return a != a ? a : b != b ? b : b < a ? b : a; }
};
template <class T>
struct Maximum {
  static inline T apply(T a, T b) noexcept { return a != a ? a : b != b ? b : a < b ? b : a; }
};

// Every kernel works on blocks of this many elements, small enough for L1.
constexpr std::size_t kBlock = 256;

template <class T, class Op>
STEPCCL_KERNEL_TARGET void plain(void* target, const void* left, const void* right, std::size_t count) noexcept {
  auto* t = static_cast<T*>(target);
  const auto* l = static_cast<const T*>(left);
  const auto* r = static_cast<const T*>(right);
  STEPCCL_NO_DEPENDENCE
  for (std::size_t i = 0; i < count; ++i) t[i] = Op::apply(l[i], r[i]);
}

// 8-bit integers promote to int: compute there and cut back, which wraps modulo 2^8.
template <class T, class Op>
STEPCCL_KERNEL_TARGET void narrow(void* target, const void* left, const void* right, std::size_t count) noexcept {
  auto* t = static_cast<T*>(target);
  const auto* l = static_cast<const T*>(left);
  const auto* r = static_cast<const T*>(right);
  STEPCCL_NO_DEPENDENCE
  for (std::size_t i = 0; i < count; ++i) t[i] = static_cast<T>(Op::apply(static_cast<int>(l[i]), static_cast<int>(r[i])));
}

struct Half {
  STEPCCL_KERNEL_TARGET static void widen(float* to, const std::uint16_t* from, std::size_t count) noexcept {
    std::size_t i = 0;
#if STEPCCL_KERNEL_F16C
    for (; i + 8 <= count; i += 8) {
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
    }
#endif
    for (; i < count; ++i) to[i] = float_from_half(from[i]);
  }
  STEPCCL_KERNEL_TARGET static void shorten(std::uint16_t* to, const float* from, std::size_t count) noexcept {
    std::size_t i = 0;
#if STEPCCL_KERNEL_F16C
    for (; i + 8 <= count; i += 8) {
      const __m128i packed = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), packed);
    }
#endif
    for (; i < count; ++i) to[i] = half_from_float(from[i]);
  }
};

struct Bfloat {
  STEPCCL_KERNEL_TARGET static void widen(float* to, const std::uint16_t* from, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) to[i] = float_from_bfloat(from[i]);
  }
  STEPCCL_KERNEL_TARGET static void shorten(std::uint16_t* to, const float* from, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) to[i] = bfloat_from_float(from[i]);
  }
};

template <class Format, class Op>
STEPCCL_KERNEL_TARGET void widened(void* target, const void* left, const void* right, std::size_t count) noexcept {
  alignas(32) float a[kBlock];
  alignas(32) float b[kBlock];
  auto* t = static_cast<std::uint16_t*>(target);
  const auto* l = static_cast<const std::uint16_t*>(left);
  const auto* r = static_cast<const std::uint16_t*>(right);
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t n = count - begin < kBlock ? count - begin : kBlock;
    Format::widen(a, l + begin, n);
    Format::widen(b, r + begin, n);
    for (std::size_t i = 0; i < n; ++i) a[i] = Op::apply(a[i], b[i]);
    Format::shorten(t + begin, a, n);
  }
}

#define STEPCCL_WRAPPING(T, U) \
  { plain<U, Sum<U>>, plain<U, Product<U>>, plain<T, Minimum<T>>, plain<T, Maximum<T>>, plain<U, Sum<U>> }
#define STEPCCL_NARROW(T) \
  { narrow<T, Sum<int>>, narrow<T, Product<int>>, narrow<T, Minimum<int>>, narrow<T, Maximum<int>>, narrow<T, Sum<int>> }
#define STEPCCL_FLOATING(T) \
  { plain<T, Sum<T>>, plain<T, Product<T>>, plain<T, Minimum<T>>, plain<T, Maximum<T>>, plain<T, Sum<T>> }
#define STEPCCL_WIDENED(F)                                                                              \
  {                                                                                                     \
    widened<F, Sum<float>>, widened<F, Product<float>>, widened<F, Minimum<float>>, widened<F, Maximum<float>>, \
        widened<F, Sum<float>>                                                                          \
  }

constexpr Kernel kKernels[STEPCCL_DATATYPE_COUNT][STEPCCL_REDOP_COUNT] = {
    STEPCCL_NARROW(std::int8_t),
    STEPCCL_NARROW(std::uint8_t),
    STEPCCL_WRAPPING(std::int32_t, std::uint32_t),
    STEPCCL_WRAPPING(std::uint32_t, std::uint32_t),
    STEPCCL_WRAPPING(std::int64_t, std::uint64_t),
    STEPCCL_WRAPPING(std::uint64_t, std::uint64_t),
    STEPCCL_WIDENED(Half),
    STEPCCL_WIDENED(Bfloat),
    STEPCCL_FLOATING(float),
    STEPCCL_FLOATING(double),
};

#undef STEPCCL_WRAPPING
#undef STEPCCL_NARROW
#undef STEPCCL_FLOATING
#undef STEPCCL_WIDENED
