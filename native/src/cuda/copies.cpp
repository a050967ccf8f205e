// SPDX-License-Identifier: Apache-2.0
// Operations of the copy engines alone: ready flags, copies, complete flags, all of it queued on streams.
//
// A flag lies in the memory of the GPU that waits for it, and the peer sets it to 1; the waiter puts it back to 0.
// Because ready and complete take turns, a peer can't set a flag again before it was put back: its next "ready" comes
// after it has seen this rank's "complete", which follows this rank's reset of "ready" in stream order; and likewise for
// "complete". No sequence number is involved, so a captured graph may be replayed and mixed with eager calls.
#include <algorithm>
#include <bit>

#include "cuda/engine.hpp"

namespace stepccl::cuda {
namespace {

constexpr stepccl_phase_t kPhase = STEPCCL_PHASE_TRANSFER;

CUstreamBatchMemOpParams write_value(CUdeviceptr address, std::uint32_t value) {
  CUstreamBatchMemOpParams op{};
  op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  op.writeValue.address = address;
  op.writeValue.value = value;
  op.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  return op;
}
CUstreamBatchMemOpParams write_wide(CUdeviceptr address, std::uint64_t value) {
  CUstreamBatchMemOpParams op{};
  op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  op.writeValue.address = address;
  op.writeValue.value64 = value;
  op.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  return op;
}
CUstreamBatchMemOpParams wait_value(CUdeviceptr address, std::uint32_t value, unsigned how) {
  CUstreamBatchMemOpParams op{};
  op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  op.waitValue.address = address;
  op.waitValue.value = value;
  op.waitValue.flags = how;
  return op;
}

}  // namespace

void Engine::post(std::vector<CUstreamBatchMemOpParams>& ops, CUdeviceptr flag, std::uint32_t value) { ops.push_back(write_value(flag, value)); }
void Engine::await(std::vector<CUstreamBatchMemOpParams>& ops, CUdeviceptr flag) {
  ops.push_back(wait_value(flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  ops.push_back(write_value(flag, 0));
}
void Engine::await_at_least(std::vector<CUstreamBatchMemOpParams>& ops, CUdeviceptr flag, std::uint32_t value) {
  ops.push_back(wait_value(flag, value, CU_STREAM_WAIT_VALUE_GEQ));
}
Status Engine::submit(CUstream stream, std::vector<CUstreamBatchMemOpParams>& ops) {
  constexpr std::size_t kMost = 250;  // the driver takes fewer than 256 at once
  for (std::size_t at = 0; at < ops.size(); at += kMost) {
    STEPCCL_CU(*driver_, kPhase, cuStreamBatchMemOp_v2, stream, static_cast<unsigned>(std::min(kMost, ops.size() - at)), ops.data() + at, 0);
  }
  ops.clear();
  return {};
}

Status Engine::synchronise(Flight& flight, CUstream stream, Phase phase, std::uint32_t peers) {
  const Lane& lane = *flight.lane;
  const CUdeviceptr word = words_ + 128 + flight.lane_index * 8;
  peers &= ((1u << world_) - 1u) & ~(1u << rank_);
  const auto slot = [&](std::uint32_t from) { return phase == Phase::kReady ? LaneLayout::ready(from) : LaneLayout::complete(from); };
  std::vector<CUstreamBatchMemOpParams> ops;
  for (std::uint32_t step = 1; step < world_; ++step) {
    const std::uint32_t peer = (rank_ + step) % world_;
    if ((peers >> peer & 1u) != 0) post(ops, lane.base[peer] + slot(rank_), 1);
  }
  // An operation of this lane has begun: 1, or for one peer 2 + it. Either way the watcher's mark behind the word goes.
  if (phase == Phase::kReady) ops.push_back(write_wide(word, std::has_single_bit(peers) ? 2u + static_cast<std::uint32_t>(std::countr_zero(peers)) : 1u));
  for (std::uint32_t step = 1; step < world_; ++step) {
    const std::uint32_t peer = (rank_ + step) % world_;
    if ((peers >> peer & 1u) != 0) await(ops, lane.local + slot(peer));
  }
  if (phase == Phase::kComplete) ops.push_back(write_wide(word, 0));
  return submit(stream, ops);
}

bool Engine::copies_possible(const Operation& operation) const {
  if (world_ < 2 || !stream_memory_ops_) return false;
  if (operation.pairwise()) return all_agreed(operation);
  const std::uint64_t bytes = operation.bytes();
  if (bytes == 0) return false;
  switch (operation.kind) {
    case STEPCCL_ALL_GATHER:
    case STEPCCL_ALL_TO_ALL: return window_of(operation.recv, bytes * world_) != nullptr;
    case STEPCCL_BROADCAST:
    case STEPCCL_SCATTER: return window_of(operation.recv, bytes) != nullptr;
    case STEPCCL_GATHER: return window_of(operation.send, bytes) != nullptr;
    default: return false;
  }
}

Status Engine::launch_copies(Flight& flight, const Operation& operation) {
  if (operation.pairwise()) return launch_agreed(flight, operation);
  if (worth_relaying(operation)) return launch_relay(flight, operation);
  const std::uint64_t bytes = operation.bytes();
  const auto send = reinterpret_cast<CUdeviceptr>(operation.send);
  const auto recv = reinterpret_cast<CUdeviceptr>(operation.recv);
  std::vector<Copy> copies;
  const auto local = [&](CUdeviceptr to, CUdeviceptr from) {
    if (to != from) copies.push_back({to, from, bytes, true});
  };
  // Each begins with another peer, so that no GPU is everyone's first.
  for (std::uint32_t step = 1; step < world_; ++step) {
    const std::uint32_t peer = (rank_ + step) % world_;
    const auto there = [&](CUdeviceptr pointer, const void* inside) { return at_peer(*window_of(inside, 1), rank_, pointer, peer); };
    switch (operation.kind) {
      case STEPCCL_ALL_GATHER: copies.push_back({there(recv, operation.recv) + rank_ * bytes, send, bytes}); break;
      case STEPCCL_ALL_TO_ALL: copies.push_back({there(recv, operation.recv) + rank_ * bytes, send + peer * bytes, bytes}); break;
      case STEPCCL_BROADCAST:
        if (rank_ == operation.root) copies.push_back({there(recv, operation.recv), send, bytes});
        break;
      case STEPCCL_SCATTER:
        if (rank_ == operation.root) copies.push_back({there(recv, operation.recv), send + peer * bytes, bytes});
        break;
      default:  // gather: the root pulls, as the others needn't know its buffer
        if (rank_ == operation.root) copies.push_back({recv + peer * bytes, there(send, operation.send), bytes});
        break;
    }
  }
  switch (operation.kind) {
    case STEPCCL_ALL_GATHER: local(recv + rank_ * bytes, send); break;
    case STEPCCL_ALL_TO_ALL: local(recv + rank_ * bytes, send + rank_ * bytes); break;
    case STEPCCL_BROADCAST:
      if (rank_ == operation.root) local(recv, send);
      break;
    case STEPCCL_SCATTER:
      if (rank_ == operation.root) local(recv, send + rank_ * bytes);
      break;
    default:
      if (rank_ == operation.root) local(recv + rank_ * bytes, send);
      break;
  }
  return run_copies(flight, copies);
}

Status Engine::run_copies(Flight& flight, const std::vector<Copy>& copies, std::uint32_t peers) {
  // Local copies wait for no peer, but let the link begin first.
  STEPCCL_CU(*driver_, kPhase, cuEventRecord, fork_, flight.stream);
  if (Status status = synchronise(flight, flight.stream, Phase::kReady, peers); !status.ok()) return status;
  std::uint32_t used = 0;  // sides to join, by bit
  std::uint32_t next = 0;
  if (config_.dma_concurrency > 1) STEPCCL_CU(*driver_, kPhase, cuEventRecord, side_events_[0], flight.stream);
  for (const Copy& copy : copies) {
    if (copy.local) continue;
    const std::uint32_t turn = next++ % config_.dma_concurrency;
    CUstream stream = flight.stream;
    if (turn != 0) {
      stream = side_streams_[turn];
      if ((used >> turn & 1u) == 0) STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, stream, side_events_[0], 0);
      used |= 1u << turn;
    }
    STEPCCL_CU(*driver_, kPhase, cuMemcpyAsync, copy.to, copy.from, copy.bytes, stream);
    flight.ticket->link_bytes += copy.bytes;
  }
  for (const Copy& copy : copies) {
    if (!copy.local) continue;
    if ((used & 1u) == 0) STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, side_streams_[0], fork_, 0);
    used |= 1u;
    STEPCCL_CU(*driver_, kPhase, cuMemcpyAsync, copy.to, copy.from, copy.bytes, side_streams_[0]);
  }
  flight.ticket->copies = static_cast<std::uint32_t>(copies.size());
  for (std::uint32_t side = 0; side < side_streams_.size(); ++side) {
    if ((used >> side & 1u) == 0) continue;
    STEPCCL_CU(*driver_, kPhase, cuEventRecord, side_events_[side], side_streams_[side]);
    STEPCCL_CU(*driver_, kPhase, cuStreamWaitEvent, flight.stream, side_events_[side], 0);
  }
  return synchronise(flight, flight.stream, Phase::kComplete, peers);
}

}  // namespace stepccl::cuda
