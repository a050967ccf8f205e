// SPDX-License-Identifier: Apache-2.0
// Copies straight into the ranks' windows, by kernels that meet before and after: for sizes at which a copy engine has not
// begun yet when this has ended.
#pragma once

#include "cuda/direct.cuh"

namespace stepccl::cuda {

__device__ __forceinline__ void spread_body(const DirectArgs& args) {
  constexpr u32 kUnroll = 8;
  const Common& common = args.common;
  Meter meter(common);
  u32* counter = word(common.own_lane, LaneLayout::barrier_count(blockIdx.x));
  u32 count = *counter;
  meet(common, count);
  const u64 stride = 16ull * kThreads * kUnroll;
  const u64 whole = args.bytes / stride * stride;
  for (u64 base = blockIdx.x * stride + threadIdx.x * 16ull; base < whole; base += stride * gridDim.x) {
    const u8* loaded = nullptr;
    Vec data[kUnroll];
    for (u32 target = 0; target < args.targets; ++target) {
      // Often all get the same.
      if (args.source[target] != loaded) {
#pragma unroll
        for (u32 i = 0; i < kUnroll; ++i) data[i] = load_once(args.source[target] + base + i * 16ull * kThreads);
        loaded = args.source[target];
      }
#pragma unroll
      for (u32 i = 0; i < kUnroll; ++i) *reinterpret_cast<Vec*>(args.target[target] + base + i * 16ull * kThreads) = data[i];
    }
  }
  for (u64 at = whole + (static_cast<u64>(blockIdx.x) * kThreads + threadIdx.x) * 16; at < args.bytes; at += static_cast<u64>(gridDim.x) * kThreads * 16) {
    for (u32 target = 0; target < args.targets; ++target) store16(args.target[target] + at, args.bytes - at, load16(args.source[target] + at, args.bytes - at));
  }
  meet(common, count);
  if (threadIdx.x == 0) *counter = count;
  meter.stop();
}

}  // namespace stepccl::cuda
