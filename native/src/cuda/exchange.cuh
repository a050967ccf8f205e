// SPDX-License-Identifier: Apache-2.0
// Messages between all pairs of ranks through the lanes. Block b talks to block b of each peer and to nobody else, so
// blocks need not run at the same time. A side that has nothing to say sends an empty message: whoever has got a
// peer's message k knows that the peer is done with message k-2 (flagged) or k-3 (staged), and may write its slot again.
#pragma once

#include "cuda/messages.cuh"

namespace stepccl::cuda {

template <int R>
__device__ __forceinline__ void flagged_body(const ExchangeArgs& args) {
  const Common& common = args.common;
  Meter meter(common);
  const u32 block = blockIdx.x;
  const u32 me = common.me;
  __shared__ u32 count[kMaxRanks];
  number_messages(args, count, [](u32 of, u32 peer) { return LaneLayout::flagged_count(of, peer); });

  for (u32 step = 1; step < common.ranks; ++step) {
    const u32 peer = (me + step) % common.ranks;
    if (block >= args.blocks[peer]) continue;
    const u64 share = Cut::flagged_share(args.send_bytes[peer], args.blocks[peer]);
    const u64 begin = share * block;
    const u64 bytes = begin < args.send_bytes[peer] ? min(share, args.send_bytes[peer] - begin) : 0;
    const u32 lines = bytes == 0 ? 1 : static_cast<u32>((bytes + 7) / 8);
    u8* to = common.peer_lane[peer] + args.layout.flagged(me, peer, count[peer] & 1, block);
    for (u32 line = threadIdx.x; line < lines; line += kThreads) {
      const u64 data = bytes == 0 ? 0 : load8(args.send[peer] + begin + line * 8ull, bytes - line * 8ull);
      store_line(to + line * 16ull, data, count[peer]);
    }
  }

  if constexpr (R == kCopy) copy_own(args);

  Patience patience(common);
  const auto take = [&](u32 peer, u32 line) {
    const u8* from = common.own_lane + args.layout.flagged(peer, me, count[peer] & 1, block) + line * 16ull;
    u64 data;
    while (!load_line(from, count[peer], data)) {
      if (patience.exhausted(peer)) break;
    }
    return data;
  };

  if constexpr (R == kCopy) {
    for (u32 step = 1; step < common.ranks; ++step) {
      const u32 peer = (me + common.ranks - step) % common.ranks;
      if (block >= args.blocks[peer]) continue;
      const u64 share = Cut::flagged_share(args.recv_bytes[peer], args.blocks[peer]);
      const u64 begin = share * block;
      const u64 bytes = begin < args.recv_bytes[peer] ? min(share, args.recv_bytes[peer] - begin) : 0;
      const u32 lines = bytes == 0 ? 1 : static_cast<u32>((bytes + 7) / 8);
      for (u32 line = threadIdx.x; line < lines; line += kThreads) {
        const u64 data = take(peer, line);
        if (bytes != 0) store8(args.recv[peer] + begin + line * 8ull, bytes - line * 8ull, data);
      }
    }
  } else {
    // All pairs of a reduction are cut alike; who receives nothing still takes the empty messages.
    const u64 share = Cut::flagged_share(args.own_bytes, gridDim.x);
    const u64 begin = share * block;
    const u64 bytes = begin < args.own_bytes ? min(share, args.own_bytes - begin) : 0;
    const u32 lines = bytes == 0 ? 1 : static_cast<u32>((bytes + 7) / 8);
    for (u32 line = threadIdx.x; line < lines; line += kThreads) {
      u64 sum = 0;
      bool first = true;
      for (u32 rank = 0; rank < common.ranks; ++rank) {
        if (rank != me && block >= args.blocks[rank]) continue;
        const u64 data = rank == me ? (bytes == 0 ? 0 : load8(args.own + begin + line * 8ull, bytes - line * 8ull)) : take(rank, line);
        sum = first ? data : combine<R>(common.arithmetic, sum, data);
        first = false;
      }
      if (common.average != 0) sum = divide(common.arithmetic, sum, common.average);
      if (bytes != 0) store8(args.own_out + begin + line * 8ull, bytes - line * 8ull, sum);
    }
  }
  meter.stop();
}

// Copies a piece into a peer's staging with many loads in flight.
__device__ inline void push_piece(u8* to, const u8* from, u64 bytes) {
  constexpr u32 kUnroll = 4;
  const u64 whole = (reinterpret_cast<u64>(from) & 15) == 0 ? bytes / (16 * kThreads * kUnroll) * (16 * kThreads * kUnroll) : 0;
  for (u64 base = threadIdx.x * 16ull; base < whole; base += 16ull * kThreads * kUnroll) {
    Vec v[kUnroll];
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) v[i] = load_once(from + base + i * 16ull * kThreads);
#pragma unroll
    for (u32 i = 0; i < kUnroll; ++i) *reinterpret_cast<Vec*>(to + base + i * 16ull * kThreads) = v[i];
  }
  for (u64 at = whole + threadIdx.x * 16ull; at < bytes; at += 16ull * kThreads) {
    *reinterpret_cast<Vec*>(to + at) = load16(from + at, bytes - at);  // staging has room for whole vectors
  }
}

template <int R>
__device__ __forceinline__ void staged_body(const ExchangeArgs& args) {
  const Common& common = args.common;
  Meter meter(common);
  const u32 block = blockIdx.x;
  const u32 me = common.me;
  __shared__ u32 count[kMaxRanks];  // pieces exchanged with each peer before this launch
  __shared__ u32 longest;
  if (threadIdx.x == 0) longest = 0;
  __syncthreads();
  if (threadIdx.x < common.ranks) {
    u32* counter = word(common.own_lane, LaneLayout::staged_count(block, threadIdx.x));
    count[threadIdx.x] = *counter;
    if (threadIdx.x != me && block < args.blocks[threadIdx.x]) {
      *counter = count[threadIdx.x] + args.pieces[threadIdx.x];
      atomicMax(&longest, args.pieces[threadIdx.x]);
    }
  }
  __syncthreads();
  const auto active = [&](u32 peer, u32 piece) { return peer != me && block < args.blocks[peer] && piece < args.pieces[peer]; };

  const auto push = [&](u32 piece) {
    for (u32 step = 1; step < common.ranks; ++step) {
      const u32 peer = (me + step) % common.ranks;
      if (!active(peer, piece)) continue;
      const u64 total = args.send_bytes[peer];
      const u64 share = Cut::staged_share(total, args.blocks[peer], args.layout.piece_bytes);
      const u64 begin = (static_cast<u64>(piece) * args.blocks[peer] + block) * share;
      if (begin >= total) continue;
      push_piece(common.peer_lane[peer] + args.layout.staged(me, peer, (count[peer] + piece) % kSlots, block), args.send[peer] + begin, min(share, total - begin));
    }
    __syncthreads();
    if (threadIdx.x < common.ranks && active(threadIdx.x, piece)) {
      fence_system();
      store_release(word(common.peer_lane[threadIdx.x], LaneLayout::staged_flag(block, me)), count[threadIdx.x] + piece + 1);
    }
  };

  if constexpr (R == kCopy) copy_own(args);

  if (longest != 0) push(0);
  for (u32 piece = 0; piece < longest; ++piece) {
    if (piece + 1 < longest) push(piece + 1);
    if (threadIdx.x < common.ranks && active(threadIdx.x, piece)) {
      wait_flag(common, word(common.own_lane, LaneLayout::staged_flag(block, threadIdx.x)), count[threadIdx.x] + piece + 1, threadIdx.x);
    }
    __syncthreads();
    if constexpr (R == kCopy) {
      for (u32 step = 1; step < common.ranks; ++step) {
        const u32 peer = (me + common.ranks - step) % common.ranks;
        if (!active(peer, piece)) continue;
        const u64 total = args.recv_bytes[peer];
        const u64 share = Cut::staged_share(total, args.blocks[peer], args.layout.piece_bytes);
        const u64 begin = (static_cast<u64>(piece) * args.blocks[peer] + block) * share;
        if (begin >= total) continue;
        const u64 bytes = min(share, total - begin);
        const u8* from = common.own_lane + args.layout.staged(peer, me, (count[peer] + piece) % kSlots, block);
        for (u64 at = threadIdx.x * 16ull; at < bytes; at += 16ull * kThreads) store16(args.recv[peer] + begin + at, bytes - at, load_once(from + at));
      }
    } else {
      const u64 total = args.own_out == nullptr ? 0 : args.own_bytes;
      const u64 share = Cut::staged_share(args.own_bytes, gridDim.x, args.layout.piece_bytes);
      const u64 begin = (static_cast<u64>(piece) * gridDim.x + block) * share;
      const u64 bytes = begin < total ? min(share, total - begin) : 0;
      for (u64 at = threadIdx.x * 16ull; at < bytes; at += 16ull * kThreads) {
        Vec sum{};
        bool first = true;
        for (u32 rank = 0; rank < common.ranks; ++rank) {
          const Vec data = rank == me ? load16(args.own + begin + at, bytes - at)
                                      : load_once(common.own_lane + args.layout.staged(rank, me, (count[rank] + piece) % kSlots, block) + at);
          sum = first ? data : combine<R>(common.arithmetic, sum, data);
          first = false;
        }
        store16(args.own_out + begin + at, bytes - at, finish(common, sum));
      }
    }
    __syncthreads();
  }
  meter.stop();
}

}  // namespace stepccl::cuda
