// SPDX-License-Identifier: Apache-2.0
// What the kernels that exchange messages begin with.
#pragma once

#include "cuda/device.cuh"

namespace stepccl::cuda {

// The number of this message in each pair of which this block carries a part, counted on. counter_at: where a block's counter for
// a peer is in the lane.
template <class CounterAt>
__device__ __forceinline__ void number_messages(const ExchangeArgs& args, u32 (&count)[kMaxRanks], CounterAt counter_at) {
  if (threadIdx.x < args.common.ranks) {
    u32* counter = word(args.common.own_lane, counter_at(blockIdx.x, threadIdx.x));
    u32 next = *counter + 1;
    if (next == 0) next = 2;  // 0 is what fresh memory holds; 2 keeps the slots in turn
    count[threadIdx.x] = next;
    if (threadIdx.x != args.common.me && blockIdx.x < args.blocks[threadIdx.x]) *counter = next;
  }
  __syncthreads();
}

// A rank's own block, which goes to no peer.
__device__ __forceinline__ void copy_own(const ExchangeArgs& args) {
  if (args.own_out == nullptr || args.own_out == args.own) return;
  for (u64 at = (static_cast<u64>(blockIdx.x) * kThreads + threadIdx.x) * 16; at < args.own_bytes; at += static_cast<u64>(gridDim.x) * kThreads * 16) {
    store16(args.own_out + at, args.own_bytes - at, load16(args.own + at, args.own_bytes - at));
  }
}

}  // namespace stepccl::cuda
