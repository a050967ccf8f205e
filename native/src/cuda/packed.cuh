// SPDX-License-Identifier: Apache-2.0
// Messages between all pairs of ranks in lines of 128 bytes, of which 120 are data and the last 8 a flag. Eight
// neighbouring threads of a warp store a line by one instruction, which NVLink delivers as a whole; so a line whose flag has
// come is there. Counts, slots and empty messages are as in exchange.cuh's flagged messages.
#pragma once

#include "cuda/messages.cuh"

namespace stepccl::cuda {

struct Pair {
  u64 low;
  u64 high;
};
__device__ inline void store_pair(u8* to, Pair value) { asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(value.low), "l"(value.high) : "memory"); }
__device__ inline Pair load_pair(const u8* from) {
  Pair value;
  asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(value.low), "=l"(value.high) : "l"(from) : "memory");
  return value;
}

// The part of a message that a block carries, and a thread's place in it.
struct PackedShare {
  static constexpr u32 kUnroll = 4;
  static constexpr u32 kLinesAtOnce = kThreads / 8;

  u64 begin;
  u64 bytes;
  u32 lines;  // at least one: it carries the flag

  __device__ PackedShare(u64 total, u32 blocks, u32 block) {
    const u64 share = Cut::packed_share(total, blocks);
    begin = share * block;
    bytes = begin < total ? min(share, total - begin) : 0;
    lines = bytes == 0 ? 1 : static_cast<u32>((bytes + kLineData - 1) / kLineData);
  }
  // Bytes from the message's part on that this thread's 16 of a line begin at; of the last thread 8 are data.
  __device__ static u64 offset(u32 line) { return line * static_cast<u64>(kLineData) + (threadIdx.x & 7u) * 16u; }
  __device__ static bool carries_flag() { return (threadIdx.x & 7u) == 7u; }
  // The first line of this thread's warp, and this thread's own: loops run alike for a whole warp.
  __device__ static u32 first() { return (threadIdx.x >> 5) * 4u; }
  __device__ static u32 own(u32 base) { return base + ((threadIdx.x & 31u) >> 3); }

  __device__ u64 left(u64 at) const { return at < bytes ? bytes - at : 0; }
  __device__ Pair load(const u8* from, u32 line) const {
    const u64 at = offset(line);
    if (line >= lines || from == nullptr) return {0, 0};
    return {load8(from + begin + at, left(at)), carries_flag() ? 0 : load8(from + begin + at + 8, left(at + 8))};
  }
  __device__ void store(u8* to, u32 line, Pair value) const {
    const u64 at = offset(line);
    if (line >= lines || left(at) == 0) return;
    store8(to + begin + at, left(at), value.low);
    if (!carries_flag() && left(at + 8) != 0) store8(to + begin + at + 8, left(at + 8), value.high);
  }
};

template <int R>
__device__ __forceinline__ void packed_body(const ExchangeArgs& args) {
  constexpr u32 kUnroll = PackedShare::kUnroll;
  constexpr u32 kStep = PackedShare::kLinesAtOnce;
  constexpr u32 kWarp = 0xffffffffu;
  const Common& common = args.common;
  Meter meter(common);
  const u32 block = blockIdx.x;
  const u32 me = common.me;
  __shared__ u32 count[kMaxRanks];
  number_messages(args, count, [](u32 of, u32 peer) { return LaneLayout::packed_count(of, peer); });

  for (u32 step = 1; step < common.ranks; ++step) {
    const u32 peer = (me + step) % common.ranks;
    if (block >= args.blocks[peer]) continue;
    const PackedShare share(args.send_bytes[peer], args.blocks[peer], block);
    u8* to = common.peer_lane[peer] + args.layout.packed(me, peer, count[peer] & 1, block) + (threadIdx.x & 7u) * 16u;
    for (u32 base = PackedShare::first(); base < share.lines; base += kStep * kUnroll) {
      Pair data[kUnroll];
#pragma unroll
      for (u32 i = 0; i < kUnroll; ++i) data[i] = share.load(args.send[peer], PackedShare::own(base + i * kStep));
#pragma unroll
      for (u32 i = 0; i < kUnroll; ++i) {
        const u32 line = PackedShare::own(base + i * kStep);
        if (PackedShare::carries_flag()) data[i].high = count[peer];
        __syncwarp();
        if (line < share.lines) store_pair(to + line * static_cast<u64>(kLineBytes), data[i]);
      }
    }
  }

  if constexpr (R == kCopy) copy_own(args);

  Patience patience(common);
  // Lines of a peer, as many as this thread has of them; all threads of a warp go on together.
  const auto take = [&](u32 peer, const PackedShare& share, u32 base, Pair (&data)[kUnroll]) {
    const u8* from = common.own_lane + args.layout.packed(peer, me, count[peer] & 1, block) + (threadIdx.x & 7u) * 16u;
    for (;;) {
      bool there = true;
#pragma unroll
      for (u32 i = 0; i < kUnroll; ++i) {
        const u32 line = PackedShare::own(base + i * kStep);
        if (line >= share.lines) continue;
        data[i] = load_pair(from + line * static_cast<u64>(kLineBytes));
        there = there && (!PackedShare::carries_flag() || data[i].high == count[peer]);
      }
      if (__all_sync(kWarp, there)) return;
      if (__any_sync(kWarp, patience.exhausted(peer))) return;
    }
  };

  if constexpr (R == kCopy) {
    for (u32 step = 1; step < common.ranks; ++step) {
      const u32 peer = (me + common.ranks - step) % common.ranks;
      if (block >= args.blocks[peer]) continue;
      const PackedShare share(args.recv_bytes[peer], args.blocks[peer], block);
      for (u32 base = PackedShare::first(); base < share.lines; base += kStep * kUnroll) {
        Pair data[kUnroll];
        take(peer, share, base, data);
#pragma unroll
        for (u32 i = 0; i < kUnroll; ++i) share.store(args.recv[peer], PackedShare::own(base + i * kStep), data[i]);
      }
    }
  } else {
    // All pairs of a reduction are cut alike; who receives nothing still takes the empty messages.
    const PackedShare share(args.own_bytes, gridDim.x, block);
    for (u32 base = PackedShare::first(); base < share.lines; base += kStep * kUnroll) {
      Pair sum[kUnroll];
      bool first = true;
      for (u32 rank = 0; rank < common.ranks; ++rank) {
        if (rank != me && block >= args.blocks[rank]) continue;
        Pair data[kUnroll];
        if (rank == me) {
#pragma unroll
          for (u32 i = 0; i < kUnroll; ++i) data[i] = share.load(args.own, PackedShare::own(base + i * kStep));
        } else {
          take(rank, share, base, data);
        }
#pragma unroll
        for (u32 i = 0; i < kUnroll; ++i) {
          sum[i] = first ? data[i] : Pair{combine<R>(common.arithmetic, sum[i].low, data[i].low), combine<R>(common.arithmetic, sum[i].high, data[i].high)};
        }
        first = false;
      }
      if (args.own_out == nullptr) continue;
#pragma unroll
      for (u32 i = 0; i < kUnroll; ++i) {
        if (common.average != 0) sum[i] = {divide(common.arithmetic, sum[i].low, common.average), divide(common.arithmetic, sum[i].high, common.average)};
        share.store(args.own_out, PackedShare::own(base + i * kStep), sum[i]);
      }
    }
  }
  meter.stop();
}

}  // namespace stepccl::cuda
