// SPDX-License-Identifier: Apache-2.0
// Reductions that read the ranks' windows where they lie and write the result where it belongs.
#pragma once

#include "cuda/device.cuh"

namespace stepccl::cuda {

// Meets the same block of every other rank's kernel. What this block wrote before is seen by them after.
__device__ inline void meet(const Common& common, u32& count) {
  __syncthreads();
  ++count;
  if (threadIdx.x < common.ranks && threadIdx.x != common.me) {
    fence_system();
    store_release(word(common.peer_lane[threadIdx.x], LaneLayout::barrier_flag(blockIdx.x, common.me)), count);
    wait_flag(common, word(common.own_lane, LaneLayout::barrier_flag(blockIdx.x, threadIdx.x)), count, threadIdx.x);
  }
  __syncthreads();
}

// The bytes of the last, incomplete vector.
template <int R>
__device__ void reduce_tail(const DirectArgs& args, u64 begin) {
  for (u64 at = begin + threadIdx.x * 8ull; at < args.bytes; at += blockDim.x * 8ull) {
    const u64 left = args.bytes - at;
    u64 sum = load8(args.source[0] + at, left);
    for (u32 rank = 1; rank < args.common.ranks; ++rank) sum = combine<R>(args.common.arithmetic, sum, load8(args.source[rank] + at, left));
    if (args.common.average != 0) sum = divide(args.common.arithmetic, sum, args.common.average);
    for (u32 target = 0; target < args.targets; ++target) store8(args.target[target] + at, left, sum);
  }
}

template <int R>
__device__ __forceinline__ void direct_body(const DirectArgs& args) {
  constexpr u32 kUnroll = 4;
  const Common& common = args.common;
  Meter meter(common);
  u32* counter = word(common.own_lane, LaneLayout::barrier_count(blockIdx.x));
  u32 count = *counter;
  if (args.barrier != 0) meet(common, count);

  const u64 stride = 16ull * kThreads * kUnroll;
  const u64 whole = args.bytes / stride * stride;
  for (u64 base = blockIdx.x * stride + threadIdx.x * 16ull; base < whole; base += stride * gridDim.x) {
    Vec sum[kUnroll];
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) sum[i] = load_once(args.source[0] + base + i * 16ull * kThreads);
    for (u32 rank = 1; rank < common.ranks; ++rank) {
      Vec next[kUnroll];
#pragma unroll
      for (u32 i = 0; i < kUnroll; ++i) next[i] = load_once(args.source[rank] + base + i * 16ull * kThreads);
#pragma unroll
      for (u32 i = 0; i < kUnroll; ++i) sum[i] = combine<R>(common.arithmetic, sum[i], next[i]);
    }
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) sum[i] = finish(common, sum[i]);
    for (u32 target = 0; target < args.targets; ++target) {
#pragma unroll
      for (u32 i = 0; i < kUnroll; ++i) *reinterpret_cast<Vec*>(args.target[target] + base + i * 16ull * kThreads) = sum[i];
    }
  }
  if (blockIdx.x == gridDim.x - 1) reduce_tail<R>(args, whole);

  if (args.barrier != 0) {
    meet(common, count);
    if (threadIdx.x == 0) *counter = count;
  }
  meter.stop();
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__device__ inline u32 shared_address(const void* pointer) { return static_cast<u32>(__cvta_generic_to_shared(pointer)); }
__device__ inline void bulk_load(void* to, const void* from, u32 bytes, u64* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)), "l"(from), "r"(bytes),
               "r"(shared_address(barrier))
               : "memory");
}
__device__ inline void bulk_store(void* to, const void* from, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)), "r"(bytes) : "memory");
}
__device__ inline void expect(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
__device__ inline void wait_phase(u64* barrier, u32 phase) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(phase)
      : "memory");
}
#endif

// The same through shared memory: one thread keeps `stages` tiles of every source in flight, so a few blocks cover the
// link's latency. A stage holds `ranks` tiles; the sum is made in the first of them and stored from there.
template <int R>
__device__ __forceinline__ void bulk_body(const DirectArgs& args) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) u8 tiles[];
  __shared__ u64 arrived[16];
  const Common& common = args.common;
  Meter meter(common);
  const u32 stages = args.stages;
  const u64 stage_bytes = static_cast<u64>(args.tile_bytes) * common.ranks;
  const u64 whole = args.bytes & ~15ull;
  const u64 count_tiles = (whole + args.tile_bytes - 1) / args.tile_bytes;
  u32* counter = word(common.own_lane, LaneLayout::barrier_count(blockIdx.x));
  u32 count = *counter;
  if (threadIdx.x == 0) {
    for (u32 stage = 0; stage < stages; ++stage) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&arrived[stage])) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if (args.barrier != 0) meet(common, count);
  __syncthreads();

  const auto fetch = [&](u64 tile, u32 stage) {
    const u64 begin = tile * args.tile_bytes;
    const u32 bytes = static_cast<u32>(min(static_cast<u64>(args.tile_bytes), whole - begin));
    expect(&arrived[stage], bytes * common.ranks);
    for (u32 step = 0; step < common.ranks; ++step) {
      const u32 rank = (common.me + step) % common.ranks;  // not everyone from the same one at once
      bulk_load(tiles + stage * stage_bytes + rank * static_cast<u64>(args.tile_bytes), args.source[rank] + begin, bytes, &arrived[stage]);
    }
  };
  if (threadIdx.x == 0) {
    asm volatile("fence.proxy.async;" ::: "memory");  // what peers wrote before the barrier, to the bulk copies
    u64 tile = blockIdx.x;
    for (u32 stage = 0; stage < stages && tile < count_tiles; ++stage, tile += gridDim.x) fetch(tile, stage);
  }
  u32 stage = 0;
  u32 phase = 0;
  u64 refill = blockIdx.x + static_cast<u64>(gridDim.x) * (stages - 1);  // the next tile for the stage before this one
  for (u64 tile = blockIdx.x; tile < count_tiles; tile += gridDim.x) {
    wait_phase(&arrived[stage], phase);
    const u32 bytes = static_cast<u32>(min(static_cast<u64>(args.tile_bytes), whole - tile * args.tile_bytes));
    u8* sum_tile = tiles + stage * stage_bytes;
    for (u32 at = threadIdx.x * 16; at < bytes; at += kBulkThreads * 16) {
      Vec sum = *reinterpret_cast<const Vec*>(sum_tile + at);
      for (u32 rank = 1; rank < common.ranks; ++rank) {
        sum = combine<R>(common.arithmetic, sum, *reinterpret_cast<const Vec*>(sum_tile + rank * static_cast<u64>(args.tile_bytes) + at));
      }
      *reinterpret_cast<Vec*>(sum_tile + at) = finish(common, sum);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
      for (u32 target = 0; target < args.targets; ++target) bulk_store(args.target[target] + tile * args.tile_bytes, sum_tile, bytes);
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      // The stage of the tile before: its store has read shared memory once only the newest group is left.
      if (tile != blockIdx.x) {
        asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        refill += gridDim.x;
        if (refill < count_tiles) fetch(refill, stage == 0 ? stages - 1 : stage - 1);
      }
    }
    if (++stage == stages) {
      stage = 0;
      phase ^= 1;
    }
  }
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
  }
  if (blockIdx.x == gridDim.x - 1) reduce_tail<R>(args, whole);
  if (args.barrier != 0) {
    meet(common, count);
    if (threadIdx.x == 0) *counter = count;
  }
  meter.stop();
#endif
}

}  // namespace stepccl::cuda
