// SPDX-License-Identifier: Apache-2.0
// The adder of the pipeline: takes chunk after chunk as the peers' copy engines deliver them.
#pragma once

#include "cuda/device.cuh"

namespace stepccl::cuda {

template <int R>
__device__ __forceinline__ void pipeline_body(const PipelineArgs& args) {
  constexpr u32 kUnroll = 8;
  const Common& common = args.common;
  Meter meter(common);
  const u32 chunks = static_cast<u32>((args.bytes + args.chunk - 1) / args.chunk);
  for (u32 k = 0; k < chunks; ++k) {
    const u32 slot = k % args.slots;
    if (threadIdx.x < common.ranks && threadIdx.x != common.me) {
      wait_flag(common, word(common.own_lane, LaneLayout::chunk_came(slot, threadIdx.x)), k + 1, threadIdx.x);
    }
    __syncthreads();
    const u64 begin = k * args.chunk;
    const u64 bytes = min(args.chunk, args.bytes - begin);
    const auto source = [&](u32 rank) { return rank == common.me ? args.own + begin : args.place[rank] + slot * args.place_stride; };
    const u64 stride = 16ull * kThreads * kUnroll;
    const u64 whole = bytes / stride * stride;
    for (u64 at = blockIdx.x * stride + threadIdx.x * 16ull; at < whole; at += stride * gridDim.x) {
      Vec sum[kUnroll];
#pragma unroll
      for (u32 i = 0; i < kUnroll; ++i) sum[i] = load_once(source(0) + at + i * 16ull * kThreads);
      for (u32 rank = 1; rank < common.ranks; ++rank) {
        const u8* from = source(rank) + at;
        Vec next[kUnroll];
#pragma unroll
        for (u32 i = 0; i < kUnroll; ++i) next[i] = load_once(from + i * 16ull * kThreads);
#pragma unroll
        for (u32 i = 0; i < kUnroll; ++i) sum[i] = combine<R>(common.arithmetic, sum[i], next[i]);
      }
#pragma unroll
      for (u32 i = 0; i < kUnroll; ++i) sum[i] = finish(common, sum[i]);
      for (u32 target = 0; target < args.targets; ++target) {
#pragma unroll
        for (u32 i = 0; i < kUnroll; ++i) *reinterpret_cast<Vec*>(args.target[target] + begin + at + i * 16ull * kThreads) = sum[i];
      }
#pragma unroll
      for (u32 i = 0; i < kUnroll; ++i) *reinterpret_cast<Vec*>(args.out + begin + at + i * 16ull * kThreads) = sum[i];
    }
    // The rest, by vectors and at last by bytes.
    for (u64 at = whole + (static_cast<u64>(blockIdx.x) * kThreads + threadIdx.x) * 16; at < bytes; at += static_cast<u64>(gridDim.x) * kThreads * 16) {
      Vec sum = load16(source(0) + at, bytes - at);
      for (u32 rank = 1; rank < common.ranks; ++rank) sum = combine<R>(common.arithmetic, sum, load16(source(rank) + at, bytes - at));
      sum = finish(common, sum);
      for (u32 target = 0; target < args.targets; ++target) store16(args.target[target] + begin + at, bytes - at, sum);
      store16(args.out + begin + at, bytes - at, sum);
    }
    __syncthreads();
    if (threadIdx.x != 0) continue;
    __threadfence();
    // Who comes last speaks for all blocks.
    if (atomicInc(word(common.own_lane, LaneLayout::chunk_count(k % kChunkCounters)), gridDim.x - 1) != gridDim.x - 1) continue;
    fence_system();
    if (k + args.slots < chunks) {
      for (u32 peer = 0; peer < common.ranks; ++peer) {
        if (peer != common.me) store_release(word(common.peer_lane[peer], LaneLayout::chunk_free(slot, common.me)), 1);
      }
    }
    if (k + 1 == chunks) {
      // Nobody waits for a chunk any more, and none comes before the next operation: the flags begin at 0 again.
      for (u32 i = 0; i < kChunkSlots * kMaxRanks; ++i) *word(common.own_lane, LaneLayout::chunk_came(i / kMaxRanks, i % kMaxRanks)) = 0;
      fence_system();
    }
    store_release(word(common.own_lane, LaneLayout::chunk_done()), k + 1);
  }
  meter.stop();
}

}  // namespace stepccl::cuda
