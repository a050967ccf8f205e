// SPDX-License-Identifier: Apache-2.0
// Large reductions: copy engines carry the chunks, a few thread blocks add them, and all of it overlaps.
//
// Every rank owns a segment of the array. The peers' copy engines push their chunks of it into places of the owner; its
// kernel adds what has come in the order of the ranks and tells who may send the next one. For all_reduce the sums go to
// everyone's recv: from the kernel itself, whose stores and the engines' copies share the link better than two rows of
// copies do; or, where the call may use only few blocks, by copy engines again. All flags end at 0, so graphs can be
// replayed.
//
// Nothing queued here waits for anything that the same rank queues later, in whichever stream; so the operation ends
// even where all streams share one hardware queue.
#include <algorithm>
#include <span>

#include "cuda/engine.hpp"

namespace stepccl::cuda {
namespace {

constexpr stepccl_phase_t kPhase = STEPCCL_PHASE_TRANSFER;

constexpr std::uint32_t kPushingBlocks = 16;  // fewer can't fill the link by stores

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

Status Engine::make_places(Lane& lane) {
  if (lane.places[rank_] != 0) return {};
  auto window = allocate_window(kPlacesBytes);
  if (!window.ok()) return window.take_error();
  windows_.erase(window.value().base[rank_]);  // nobody's buffer
  lane.places = window.value().base;
  own_offsets_.insert(offset_of(window.value()));
  return {};
}

Status Engine::launch_pipeline(Flight& flight, const Operation& operation) {
  Lane& lane = *flight.lane;
  const std::uint64_t bytes = operation.bytes();
  if (Status status = make_places(lane); !status.ok()) return status;
  const auto send = reinterpret_cast<CUdeviceptr>(operation.send);
  const auto recv = reinterpret_cast<CUdeviceptr>(operation.recv);
  const bool spreads = operation.kind == STEPCCL_ALL_REDUCE;
  const auto segment = [&](std::uint32_t owner) -> Share {
    if (operation.kind == STEPCCL_ALL_REDUCE) return share_of(bytes, owner, world_);
    if (operation.kind == STEPCCL_REDUCE_SCATTER) return {owner * bytes, bytes};
    return {0, owner == operation.root ? bytes : 0};
  };
  // The same on every rank: a chunk fills its place, or a fourth of the segment where that is less.
  const std::uint32_t slots = std::clamp(config_.pipeline_depth, 2u, kChunkSlots);
  const std::uint64_t place_bytes = kPlacesBytes / (world_ - 1) / slots / 65536 * 65536;
  std::uint64_t largest = 0;
  for (std::uint32_t owner = 0; owner < world_; ++owner) largest = std::max(largest, segment(owner).bytes);
  const std::uint64_t chunk = std::min<std::uint64_t>(place_bytes, std::max<std::uint64_t>((largest / 4 + 65535) / 65536 * 65536, 1u << 20));
  const auto chunks_of = [&](std::uint32_t owner) { return (segment(owner).bytes + chunk - 1) / chunk; };
  const std::uint64_t rounds = (largest + chunk - 1) / chunk;
  const Share mine = segment(rank_);
  const std::uint64_t own_chunks = chunks_of(rank_);
  const CUdeviceptr result = recv + (spreads ? mine.begin : 0);
  const auto place_of = [&](std::uint32_t owner, std::uint32_t from, std::uint32_t slot) {
    return lane.places[owner] + (std::uint64_t{LaneLayout::inbox(from, owner)} * slots + slot) * place_bytes;
  };

  if (Status status = synchronise(flight, flight.stream, Phase::kReady); !status.ok()) return status;
  STEPCCL_CU(*driver_, kPhase, cuEventRecord, fork_, flight.stream);
  // A stream for each place and role: what passes between two copies of one is hidden by the copies of the others.
  const std::span<const CUstream> sending(side_streams_.data() + 1, kChunkSlots);
  const std::span<const CUstream> spreading(side_streams_.data() + 1 + kChunkSlots, kChunkSlots);
  const std::uint32_t blocks = std::min(flight.budget, config_.thresholds.pipeline_blocks);
  const bool pushes = spreads && blocks >= kPushingBlocks;
  const bool copies_out = spreads && !pushes;
  const std::uint32_t sides = 1 + (copies_out ? 2 * kChunkSlots : kChunkSlots);
  for (std::uint32_t side = 1; side < sides; ++side) STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, side_streams_[side], fork_, 0);

  if (own_chunks != 0) {
    PipelineArgs args{};
    fill_common(args.common, flight, operation);
    args.bytes = mine.bytes;
    args.chunk = chunk;
    args.place_stride = place_bytes;
    args.slots = slots;
    args.own = reinterpret_cast<const unsigned char*>(send + mine.begin);
    args.out = reinterpret_cast<unsigned char*>(result);
    for (std::uint32_t peer = 0; peer < world_; ++peer) {
      if (peer == rank_) continue;
      args.place[peer] = reinterpret_cast<const unsigned char*>(place_of(rank_, peer, 0));
    }
    for (std::uint32_t step = 1; step < world_ && pushes; ++step) {
      const std::uint32_t peer = (rank_ + step) % world_;
      args.target[args.targets++] = reinterpret_cast<unsigned char*>(at_peer(*window_of(operation.recv, 1), rank_, result, peer));
    }
    if (pushes) flight.ticket->link_bytes += mine.bytes * (world_ - 1);
    if (Status status = launch(flight, kernels_.get(Kernels::kPipeline, Kernels::arithmetic_for(operation.datatype, operation.redop)), blocks, kThreads, 0, &args); !status.ok()) return status;
  }
  std::vector<CUstreamBatchMemOpParams> ops;
  for (std::uint64_t k = 0; k < rounds; ++k) {
    const auto slot = static_cast<std::uint32_t>(k % slots);
    for (std::uint32_t step = 1; step < world_; ++step) {
      const std::uint32_t peer = (rank_ + step) % world_;
      if (k >= chunks_of(peer)) continue;
      const Share theirs = segment(peer);
      if (k >= slots) await(ops, lane.local + LaneLayout::chunk_free(slot, peer));
      if (Status status = submit(sending[slot], ops); !status.ok()) return status;
      const std::uint64_t length = std::min(chunk, theirs.bytes - k * chunk);
      STEPCCL_CU(*driver_, kPhase, cuMemcpyAsync, place_of(peer, rank_, slot), send + theirs.begin + k * chunk, length, sending[slot]);
      // While this stream tells, another one's copy is under way.
      post(ops, lane.base[peer] + LaneLayout::chunk_came(slot, rank_), static_cast<std::uint32_t>(k + 1));
      if (Status status = submit(sending[slot], ops); !status.ok()) return status;
      ++flight.ticket->copies;
      flight.ticket->link_bytes += length;
    }
    if (!copies_out || k >= own_chunks) continue;
    await_at_least(ops, lane.local + LaneLayout::chunk_done(), static_cast<std::uint32_t>(k + 1));
    if (Status status = submit(spreading[slot], ops); !status.ok()) return status;
    const std::uint64_t length = std::min(chunk, mine.bytes - k * chunk);
    const Window& window = *window_of(operation.recv, 1);
    for (std::uint32_t step = 1; step < world_; ++step) {
      const std::uint32_t peer = (rank_ + step) % world_;
      STEPCCL_CU(*driver_, kPhase, cuMemcpyAsync, at_peer(window, rank_, result + k * chunk, peer), result + k * chunk, length, spreading[slot]);
      ++flight.ticket->copies;
      flight.ticket->link_bytes += length;
    }
  }
  for (std::uint32_t side = 1; side < sides; ++side) {
    STEPCCL_CU(*driver_, kPhase, cuEventRecord, side_events_[side], side_streams_[side]);
    STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, flight.stream, side_events_[side], 0);
  }
  post(ops, lane.local + LaneLayout::chunk_done(), 0);
  if (Status status = submit(flight.stream, ops); !status.ok()) return status;
  return synchronise(flight, flight.stream, Phase::kComplete);
}

}  // namespace stepccl::cuda
