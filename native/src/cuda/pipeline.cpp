// SPDX-License-Identifier: Apache-2.0
// Large reductions: copy engines carry the chunks, a few thread blocks add them, and all of it overlaps.
//
// Every rank owns a segment of the array. For chunk k of it the peers' copy engines push their data into places of the
// owner's lane; a kernel of the owner adds them in the order of the ranks; for all_reduce the owner's copy engine pushes
// the sum into everyone's recv. Three streams: sending, adding, spreading. kChunkSlots places per pair: a place's next
// chunk waits for the owner's word that the last one is added. Both flags are put back to 0 by who waited for them,
// and take turns, so graphs can be replayed.
//
// Nothing queued here waits for anything that the same rank queues later, in whichever stream; so the operation ends
// even where all streams share one hardware queue.
#include <algorithm>

#include "cuda/engine.hpp"

namespace stepccl::cuda {
namespace {

constexpr stepccl_phase_t kPhase = STEPCCL_PHASE_TRANSFER;

bool aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

}  // namespace

bool Engine::pipeline_possible(const Operation& operation) const {
  if (!operation.reduces() || world_ < 2 || !stream_memory_ops_) return false;
  const std::uint64_t bytes = operation.bytes();
  if (bytes == 0 || !aligned(operation.send)) return false;
  switch (operation.kind) {
    case STEPCCL_ALL_REDUCE: return aligned(operation.recv) && window_of(operation.recv, bytes) != nullptr;
    case STEPCCL_REDUCE_SCATTER: return aligned(operation.recv) && bytes % 16 == 0;
    default: return rank_ != operation.root || aligned(operation.recv);
  }
}

Status Engine::launch_pipeline(Flight& flight, const Operation& operation) {
  const LaneLayout layout = layout_for(flight.lane_index);
  const Lane& lane = *flight.lane;
  const std::uint64_t bytes = operation.bytes();
  const auto send = reinterpret_cast<CUdeviceptr>(operation.send);
  const auto recv = reinterpret_cast<CUdeviceptr>(operation.recv);
  const bool spreads = operation.kind == STEPCCL_ALL_REDUCE;
  const auto segment = [&](std::uint32_t owner) -> Share {
    if (operation.kind == STEPCCL_ALL_REDUCE) return share_of(bytes, owner, world_);
    if (operation.kind == STEPCCL_REDUCE_SCATTER) return {owner * bytes, bytes};
    return {0, owner == operation.root ? bytes : 0};
  };
  // The same on every rank: a chunk fills its place, or an eighth of the segment where that is less.
  std::uint64_t largest = 0;
  for (std::uint32_t owner = 0; owner < world_; ++owner) largest = std::max(largest, segment(owner).bytes);
  const std::uint64_t chunk = std::min<std::uint64_t>(layout.chunk_bytes, std::max<std::uint64_t>((largest / 8 + 65535) / 65536 * 65536, 1u << 20));
  const auto chunks_of = [&](std::uint32_t owner) { return (segment(owner).bytes + chunk - 1) / chunk; };
  const std::uint64_t rounds = (largest + chunk - 1) / chunk;
  const Share mine = segment(rank_);
  const std::uint64_t own_chunks = chunks_of(rank_);

  if (Status status = synchronise(flight, flight.stream, Phase::kReady); !status.ok()) return status;
  CUstream sending = side_streams_[1];
  CUstream spreading = side_streams_[2];
  STEPCCL_CU(*driver_, kPhase, cuEventRecord, fork_, flight.stream);
  STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, sending, fork_, 0);
  if (spreads) STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, spreading, fork_, 0);

  DirectArgs args{};
  fill_common(args.common, flight, operation);
  args.targets = 1;
  const CUfunction kernel = kernels_.get(Kernels::kDirect, Kernels::arithmetic_for(operation.datatype, operation.redop));
  const std::uint32_t blocks = std::min(flight.budget, config_.thresholds.pipeline_blocks);
  std::vector<CUstreamBatchMemOpParams> sender_ops;
  std::vector<CUstreamBatchMemOpParams> owner_ops;
  for (std::uint64_t k = 0; k < rounds; ++k) {
    const auto slot = static_cast<std::uint32_t>(k % kChunkSlots);
    for (std::uint32_t step = 1; step < world_; ++step) {
      const std::uint32_t peer = (rank_ + step) % world_;
      if (k >= chunks_of(peer)) continue;
      const Share theirs = segment(peer);
      if (k >= kChunkSlots) await(sender_ops, lane.local + LaneLayout::chunk_free(slot, peer));
      if (Status status = submit(sending, sender_ops); !status.ok()) return status;
      const std::uint64_t length = std::min(chunk, theirs.bytes - k * chunk);
      STEPCCL_CU(*driver_, kPhase, cuMemcpyAsync, lane.base[peer] + layout.chunk(rank_, peer, slot), send + theirs.begin + k * chunk, length, sending);
      post(sender_ops, lane.base[peer] + LaneLayout::chunk_came(slot, rank_), 1);
      ++flight.ticket->copies;
      flight.ticket->link_bytes += length;
    }
    if (Status status = submit(sending, sender_ops); !status.ok()) return status;
    if (k >= own_chunks) continue;

    for (std::uint32_t peer = 0; peer < world_; ++peer) {
      args.source[peer] = reinterpret_cast<const unsigned char*>(peer == rank_ ? send + mine.begin + k * chunk : lane.local + layout.chunk(peer, rank_, slot));
      if (peer != rank_) await(owner_ops, lane.local + LaneLayout::chunk_came(slot, peer));
    }
    if (Status status = submit(flight.stream, owner_ops); !status.ok()) return status;
    const std::uint64_t length = std::min(chunk, mine.bytes - k * chunk);
    const CUdeviceptr result = recv + (spreads ? mine.begin : 0) + k * chunk;
    args.target[0] = reinterpret_cast<unsigned char*>(result);
    args.bytes = length;
    args.common.last = k + 1 == own_chunks ? 1 : 0;
    const std::uint64_t unit = 16ull * kThreads * 4;
    const auto grid = static_cast<std::uint32_t>(std::clamp<std::uint64_t>((length + unit - 1) / unit, 1, blocks));
    if (Status status = launch(flight, kernel, grid, kThreads, 0, &args); !status.ok()) return status;
    if (k + kChunkSlots < own_chunks) {
      for (std::uint32_t step = 1; step < world_; ++step) {
        const std::uint32_t peer = (rank_ + step) % world_;
        post(owner_ops, lane.base[peer] + LaneLayout::chunk_free(slot, rank_), 1);
      }
    }
    if (!spreads) continue;
    STEPCCL_CU(*driver_, kPhase, cuEventRecord, side_events_[2], flight.stream);
    STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, spreading, side_events_[2], 0);
    const Window& window = *window_of(operation.recv, 1);
    for (std::uint32_t step = 1; step < world_; ++step) {
      const std::uint32_t peer = (rank_ + step) % world_;
      STEPCCL_CU(*driver_, kPhase, cuMemcpyAsync, at_peer(window, rank_, result, peer), result, length, spreading);
      ++flight.ticket->copies;
      flight.ticket->link_bytes += length;
    }
  }
  if (Status status = submit(flight.stream, owner_ops); !status.ok()) return status;
  for (const std::uint32_t side : {1u, 2u}) {
    if (side == 2 && !spreads) continue;
    STEPCCL_CU(*driver_, kPhase, cuEventRecord, side_events_[side], side_streams_[side]);
    STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, flight.stream, side_events_[side], 0);
  }
  return synchronise(flight, flight.stream, Phase::kComplete);
}

}  // namespace stepccl::cuda
