// SPDX-License-Identifier: Apache-2.0
// Launches of the kernels that reduce straight from the ranks' windows.
#include <algorithm>

#include "cuda/engine.hpp"

namespace stepccl::cuda {
namespace {

bool aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

}  // namespace

bool Engine::direct_possible(const Operation& operation, bool bulk) const {
  if (!operation.reduces() || world_ < 2 || (bulk && !hopper_)) return false;
  const std::uint64_t bytes = operation.bytes();
  if (bytes == 0) return false;
  const std::uint64_t sent = operation.kind == STEPCCL_REDUCE_SCATTER ? bytes * world_ : bytes;
  if (window_of(operation.send, sent) == nullptr || !aligned(operation.send)) return false;
  switch (operation.kind) {
    case STEPCCL_ALL_REDUCE: return window_of(operation.recv, bytes) != nullptr && aligned(operation.recv);
    case STEPCCL_REDUCE_SCATTER: return bytes % 16 == 0 && aligned(operation.recv);
    default: return rank_ != operation.root || aligned(operation.recv);
  }
}

bool Engine::spread_possible(const Operation& operation) const {
  if (!copies_possible(operation) || operation.kind == STEPCCL_GATHER || operation.bytes() % 16 != 0) return false;
  const bool reads = (operation.kind != STEPCCL_BROADCAST && operation.kind != STEPCCL_SCATTER) || rank_ == operation.root;
  return aligned(operation.recv) && (!reads || aligned(operation.send));
}

Status Engine::launch_spread(Flight& flight, const Operation& operation) {
  DirectArgs args{};
  fill_common(args.common, flight, operation);
  args.bytes = operation.bytes();
  const Window& received = *window_of(operation.recv, 1);
  const auto recv = reinterpret_cast<CUdeviceptr>(operation.recv);
  const bool mine = operation.kind == STEPCCL_ALL_GATHER || operation.kind == STEPCCL_ALL_TO_ALL;  // each rank has a block in recv
  const bool many = operation.kind == STEPCCL_ALL_TO_ALL || operation.kind == STEPCCL_SCATTER;     // and in send for each
  if (mine || rank_ == operation.root) {
    for (std::uint32_t step = 1; step <= world_; ++step) {  // the own block last
      const std::uint32_t peer = (rank_ + step) % world_;
      const unsigned char* from = operation.send + (many ? peer * args.bytes : 0);
      auto* to = reinterpret_cast<unsigned char*>(at_peer(received, rank_, recv, peer) + (mine ? rank_ * args.bytes : 0));
      if (peer == rank_ && from == to) continue;
      args.source[args.targets] = from;
      args.target[args.targets++] = to;
    }
    flight.ticket->link_bytes = args.bytes * (world_ - 1);
  }
  const std::uint64_t unit = 16ull * kThreads * 8;
  const auto blocks = static_cast<std::uint32_t>(std::clamp<std::uint64_t>((args.bytes + unit - 1) / unit, 1, std::min(flight.budget, kMaxBlocks)));
  return launch(flight, kernels_.get(Kernels::kSpread, Kernels::kCopy), blocks, kThreads, 0, &args);
}

Status Engine::launch_direct(Flight& flight, const Operation& operation, bool bulk) {
  DirectArgs args{};
  fill_common(args.common, flight, operation);
  const std::uint64_t bytes = operation.bytes();
  const Window& sent = *window_of(operation.send, 1);
  const auto send = reinterpret_cast<CUdeviceptr>(operation.send);
  const auto recv = reinterpret_cast<CUdeviceptr>(operation.recv);
  std::uint64_t begin = 0;
  args.bytes = bytes;
  args.barrier = 1;
  if (operation.kind == STEPCCL_ALL_REDUCE) {
    const Share share = share_of(bytes, rank_, world_);
    begin = share.begin;
    args.bytes = share.bytes;
    const Window& received = *window_of(operation.recv, 1);
    for (std::uint32_t step = 0; step < world_; ++step) {
      const std::uint32_t peer = (rank_ + step) % world_;
      args.target[args.targets++] = reinterpret_cast<unsigned char*>(at_peer(received, rank_, recv, peer) + begin);
    }
    flight.ticket->link_bytes = share.bytes * (world_ - 1) + (bytes - share.bytes);
  } else {
    if (operation.kind == STEPCCL_REDUCE_SCATTER) begin = bytes * rank_;
    else args.barrier = 0;  // a root alone works; streams wait for it, not multiprocessors
    args.target[args.targets++] = reinterpret_cast<unsigned char*>(recv);
    flight.ticket->link_bytes = operation.kind == STEPCCL_REDUCE_SCATTER ? bytes * (world_ - 1) : rank_ == operation.root ? 0 : bytes;
  }
  for (std::uint32_t peer = 0; peer < world_; ++peer) args.source[peer] = reinterpret_cast<const unsigned char*>(at_peer(sent, rank_, send, peer) + begin);

  const std::uint64_t largest = operation.kind == STEPCCL_ALL_REDUCE ? share_of(bytes, 0, world_).bytes : bytes;  // the same grid on every rank
  std::uint32_t tile = 16u << 10;
  while (tile > 1024 && static_cast<std::uint64_t>(tile) * world_ * 4 > shared_limit_) tile /= 2;
  while (tile > 4096 && largest / tile < config_.thresholds.bulk_blocks) tile /= 2;
  args.tile_bytes = tile;
  args.stages = std::min<std::uint32_t>(16, shared_limit_ / (tile * world_));
  const std::uint64_t unit = bulk ? tile : 16ull * kThreads * 4;
  // Reading alone gains from more blocks than reading and writing.
  const std::uint32_t preferred = operation.kind == STEPCCL_ALL_REDUCE && !bulk ? std::max(1u, config_.thresholds.direct_blocks * 2 / 3) : bulk ? config_.thresholds.bulk_blocks : config_.thresholds.direct_blocks;
  const auto blocks = static_cast<std::uint32_t>(std::clamp<std::uint64_t>((largest + unit - 1) / unit, 1, std::min(flight.budget, preferred)));
  const CUfunction kernel = kernels_.get(bulk ? Kernels::kBulk : Kernels::kDirect, Kernels::arithmetic_for(operation.datatype, operation.redop));
  const std::uint32_t threads = bulk ? kBulkThreads : kThreads;
  const std::uint32_t shared = bulk ? args.stages * tile * world_ : 0;
  if (operation.kind != STEPCCL_REDUCE) return launch(flight, kernel, blocks, threads, shared, &args);

  if (Status status = synchronise(flight, flight.stream, Phase::kReady); !status.ok()) return status;
  if (rank_ == operation.root) {
    if (Status status = launch(flight, kernel, blocks, threads, shared, &args); !status.ok()) return status;
  }
  return synchronise(flight, flight.stream, Phase::kComplete);
}

}  // namespace stepccl::cuda
