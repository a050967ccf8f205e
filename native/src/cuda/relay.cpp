// SPDX-License-Identifier: Apache-2.0
// Large broadcasts among more than two ranks by copy engines: a root that wrote to everyone would send the array once for each
// rank over its own links. Here it sends every other rank a part, and each passes its part on to the rest while the next is
// under way; so no link carries the array more than once, and the time is that of one copy and the last piece's second hop.
#include <algorithm>

#include "cuda/engine.hpp"

namespace stepccl::cuda {
namespace {

constexpr stepccl_phase_t kPhase = STEPCCL_PHASE_TRANSFER;
constexpr std::uint64_t kLeastPart = 1u << 20;   // of a rank: less is not worth a second hop
constexpr std::uint64_t kPiecePart = 4u << 20;   // of a rank in one piece: a copy costs about 5 us before it moves
constexpr std::uint64_t kMostPieces = 8;

}  // namespace

bool Engine::worth_relaying(const Operation& operation) const { return operation.kind == STEPCCL_BROADCAST && world_ > 2 && operation.bytes() / (world_ - 1) >= kLeastPart; }

Status Engine::launch_relay(Flight& flight, const Operation& operation) {
  const Lane& lane = *flight.lane;
  const std::uint64_t bytes = operation.bytes();
  const std::uint32_t root = operation.root;
  const std::uint32_t heirs = world_ - 1;
  const Window& window = *window_of(operation.recv, 1);
  const auto recv = reinterpret_cast<CUdeviceptr>(operation.recv);
  const auto send = reinterpret_cast<CUdeviceptr>(operation.send);
  const auto pieces = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(bytes / heirs / kPiecePart, 1, kMostPieces));
  // What of a piece goes by way of this rank.
  const auto part = [&](std::uint32_t piece, std::uint32_t heir) {
    const Share whole = share_of(bytes, piece, pieces);
    Share mine = share_of(whole.bytes, heir < root ? heir : heir - 1, heirs);
    mine.begin += whole.begin;
    return mine;
  };
  STEPCCL_CU(*driver_, kPhase, cuEventRecord, fork_, flight.stream);
  if (Status status = synchronise(flight, flight.stream, Phase::kReady); !status.ok()) return status;
  // Peers share the streams of copies that may run at once; the first is the caller's.
  const std::uint32_t rows = std::min(config_.dma_concurrency, heirs);
  const auto stream_of = [&](std::uint32_t row) { return row == 0 ? flight.stream : side_streams_[row]; };
  STEPCCL_CU(*driver_, kPhase, cuEventRecord, side_events_[0], flight.stream);
  for (std::uint32_t row = 1; row < rows; ++row) STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, side_streams_[row], side_events_[0], 0);
  std::vector<CUstreamBatchMemOpParams> ops;
  for (std::uint32_t piece = 0; piece < pieces; ++piece) {
    for (std::uint32_t row = 0; row < rows && rank_ != root; ++row) {
      await_at_least(ops, lane.local + LaneLayout::relayed(), piece + 1);
      if (Status status = submit(stream_of(row), ops); !status.ok()) return status;
    }
    for (std::uint32_t step = 1, next = 0; step < world_; ++step) {
      const std::uint32_t peer = (rank_ + step) % world_;
      if (peer == root) continue;
      const CUstream stream = stream_of(next++ % rows);
      const Share share = part(piece, rank_ == root ? peer : rank_);
      if (share.bytes != 0) {
        STEPCCL_CU(*driver_, kPhase, cuMemcpyAsync, at_peer(window, rank_, recv, peer) + share.begin, (rank_ == root ? send : recv) + share.begin, share.bytes, stream);
        ++flight.ticket->copies;
        flight.ticket->link_bytes += share.bytes;
      }
      if (rank_ != root) continue;
      post(ops, lane.base[peer] + LaneLayout::relayed(), piece + 1);
      if (Status status = submit(stream, ops); !status.ok()) return status;
    }
  }
  if (rank_ == root && send != recv) {  // waits for no peer
    STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, side_streams_[0], fork_, 0);
    STEPCCL_CU(*driver_, kPhase, cuMemcpyAsync, recv, send, bytes, side_streams_[0]);
    ++flight.ticket->copies;
    STEPCCL_CU(*driver_, kPhase, cuEventRecord, side_events_[0], side_streams_[0]);
    STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, flight.stream, side_events_[0], 0);
  }
  for (std::uint32_t row = 1; row < rows; ++row) {
    STEPCCL_CU(*driver_, kPhase, cuEventRecord, side_events_[row], side_streams_[row]);
    STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, flight.stream, side_events_[row], 0);
  }
  // The next root's word can't come before this rank's "complete".
  if (rank_ != root) post(ops, lane.local + LaneLayout::relayed(), 0);
  if (Status status = submit(flight.stream, ops); !status.ok()) return status;
  return synchronise(flight, flight.stream, Phase::kComplete);
}

}  // namespace stepccl::cuda
