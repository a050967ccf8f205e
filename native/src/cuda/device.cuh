// SPDX-License-Identifier: Apache-2.0
// How device code reads, writes, signals and waits across GPUs.
#pragma once

#include "cuda/arithmetic.cuh"
#include "cuda/layout.hpp"

namespace stepccl::cuda {

struct alignas(16) Vec {
  u64 low;
  u64 high;
};

__device__ inline u64 now_ns() {
  u64 value;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(value));
  return value;
}

__device__ inline void store_release(u32* flag, u32 value) { asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory"); }
__device__ inline u32 load_acquire(const u32* flag) {
  u32 value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}
__device__ inline void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// A line is stored and loaded as two aligned 8-byte words, each with its own flag: either may come first.
__device__ inline void store_line(u8* line, u64 data, u32 flag) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(line), "r"(static_cast<u32>(data)), "r"(flag),
               "r"(static_cast<u32>(data >> 32)), "r"(flag)
               : "memory");
}
__device__ inline bool load_line(const u8* line, u32 flag, u64& data) {
  u32 low, first, high, second;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(low), "=r"(first), "=r"(high), "=r"(second) : "l"(line) : "memory");
  data = static_cast<u64>(high) << 32 | low;
  return first == flag && second == flag;
}

// Data of this launch alone: read once, so it need not stay in L1.
__device__ inline Vec load_once(const u8* from) {
  Vec v;
  asm volatile("ld.global.L1::no_allocate.v2.u64 {%0, %1}, [%2];" : "=l"(v.low), "=l"(v.high) : "l"(from) : "memory");
  return v;
}

__device__ inline u64 load8(const u8* from, u64 left) {
  if (left >= 8 && (reinterpret_cast<u64>(from) & 7) == 0) return *reinterpret_cast<const u64*>(from);
  u64 value = 0;
  const u32 bytes = left < 8 ? static_cast<u32>(left) : 8;
  for (u32 i = 0; i < bytes; ++i) value |= static_cast<u64>(from[i]) << (8 * i);
  return value;
}
__device__ inline void store8(u8* to, u64 left, u64 value) {
  if (left >= 8 && (reinterpret_cast<u64>(to) & 7) == 0) {
    *reinterpret_cast<u64*>(to) = value;
    return;
  }
  const u32 bytes = left < 8 ? static_cast<u32>(left) : 8;
  for (u32 i = 0; i < bytes; ++i) to[i] = static_cast<u8>(value >> (8 * i));
}
__device__ inline Vec load16(const u8* from, u64 left) {
  if (left >= 16 && (reinterpret_cast<u64>(from) & 15) == 0) return *reinterpret_cast<const Vec*>(from);
  return {load8(from, left), left > 8 ? load8(from + 8, left - 8) : 0};
}
__device__ inline void store16(u8* to, u64 left, Vec value) {
  if (left >= 16 && (reinterpret_cast<u64>(to) & 15) == 0) {
    *reinterpret_cast<Vec*>(to) = value;
    return;
  }
  store8(to, left, value.low);
  if (left > 8) store8(to + 8, left - 8, value.high);
}

template <int R>
__device__ Vec combine(u32 arithmetic, Vec a, Vec b) {
  return {combine<R>(arithmetic, a.low, b.low), combine<R>(arithmetic, a.high, b.high)};
}
__device__ inline Vec finish(const Common& common, Vec v) {
  if (common.average == 0) return v;
  return {divide(common.arithmetic, v.low, common.average), divide(common.arithmetic, v.high, common.average)};
}

// Whether to give up: the host says so, or a peer has not come within the timeout. Looked at now and then only.
struct Patience {
  const Common& common;
  u64 deadline = 0;
  u32 spins = 0;

  __device__ explicit Patience(const Common& c) : common(c) {}
  __device__ bool exhausted(u32 peer) {
    if ((++spins & 1023u) != 0) return false;
    if (common.status->abort != 0) return true;
    const u64 now = now_ns();
    if (deadline == 0) deadline = now + common.timeout_ns;
    if (now < deadline) return false;
    common.status->lane = common.lane;
    common.status->timed_out = peer + 1;
    return true;
  }
};

__device__ inline void wait_flag(const Common& common, const u32* flag, u32 value, u32 peer) {
  Patience patience(common);
  while (static_cast<int>(load_acquire(flag) - value) < 0) {
    if (patience.exhausted(peer)) return;
  }
}

__device__ inline u32* word(u8* base, std::size_t offset) { return reinterpret_cast<u32*>(base + offset); }

// The time that this block holds its multiprocessor.
struct Meter {
  ReceiptSlot* slot;
  u32 runs;
  u64 begin;
  __device__ explicit Meter(const Common& common) : slot(common.receipt), runs(common.last), begin(threadIdx.x == 0 ? now_ns() : 0) {}
  __device__ void stop() {
    __syncthreads();
    if (threadIdx.x != 0) return;
    atomicAdd(&slot->sm_ns, static_cast<unsigned long long>(now_ns() - begin));
    if (blockIdx.x == 0 && runs != 0) atomicAdd(&slot->runs, 1ull);
  }
};

}  // namespace stepccl::cuda
