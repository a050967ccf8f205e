// SPDX-License-Identifier: Apache-2.0
// Launches of the exchange kernels.
#include <algorithm>

#include "cuda/engine.hpp"

namespace stepccl::cuda {
namespace {

constexpr stepccl_phase_t kPhase = STEPCCL_PHASE_TRANSFER;

template <class T>
T* as(CUdeviceptr pointer) {
  return reinterpret_cast<T*>(pointer);
}

}  // namespace

void Engine::fill_common(Common& common, const Flight& flight, const Operation& operation) const {
  common.ranks = world_;
  common.me = rank_;
  common.lane = flight.lane_index;
  common.arithmetic = static_cast<std::uint32_t>(operation.datatype) * 8 + static_cast<std::uint32_t>(operation.redop);
  common.average = operation.reduces() && operation.redop == STEPCCL_AVG ? world_ : 0;
  common.timeout_ns = std::uint64_t{config_.timeout_ms} * 1'000'000u;
  common.own_lane = as<unsigned char>(flight.lane->local);
  for (std::uint32_t peer = 0; peer < world_; ++peer) common.peer_lane[peer] = as<unsigned char>(flight.lane->base[peer]);
  common.last = 1;
  common.status = status_;
  common.receipt = as<ReceiptSlot>(receipts_ + flight.ticket->number % kTickets * sizeof(ReceiptSlot));
}

Status Engine::launch(Flight& flight, CUfunction kernel, std::uint32_t blocks, std::uint32_t threads, std::uint32_t shared_bytes, void* args) {
  void* parameters[] = {args};
  STEPCCL_CU(*driver_, kPhase, cuLaunchKernel, kernel, blocks, 1, 1, threads, 1, 1, shared_bytes, flight.stream, parameters, nullptr);
  flight.ticket->blocks = std::max(flight.ticket->blocks, blocks);
  return {};
}

Status Engine::launch_messages(Flight& flight, const Messages& messages, Kernels::Kind kind, bool last) {
  const Operation& operation = *messages.operation;
  ExchangeArgs args{};
  fill_common(args.common, flight, operation);
  args.common.last = last ? 1 : 0;
  args.layout = layout_;
  const bool reduce = messages.reduce && world_ > 1;
  args.reduce = reduce ? 1 : 0;
  args.own = messages.own;
  args.own_out = messages.own_out;
  args.own_bytes = messages.own_bytes;
  std::uint64_t largest = messages.own_bytes;
  for (std::uint32_t peer = 0; peer < world_; ++peer) largest = std::max({largest, messages.send_bytes[peer], messages.recv_bytes[peer]});
  const auto blocks_for = [&](std::uint64_t bytes) {
    return kind == Kernels::kFlagged  ? flagged_blocks(bytes, flight.budget, config_.thresholds)
           : kind == Kernels::kPacked ? packed_blocks(bytes, flight.budget, layout_.packed_lines, config_.thresholds)
                                      : staged_blocks(bytes, flight.budget, config_.thresholds);
  };
  std::uint32_t grid = operation.pairwise() ? blocks_for(messages.own_bytes) : blocks_for(largest);
  const std::uint32_t common_blocks = grid;
  for (std::uint32_t peer = 0; peer < world_; ++peer) {
    args.send[peer] = messages.send[peer];
    args.recv[peer] = messages.recv[peer];
    args.send_bytes[peer] = messages.send_bytes[peer];
    args.recv_bytes[peer] = messages.recv_bytes[peer];
    if (!messages.paired[peer]) continue;
    args.blocks[peer] = operation.pairwise() ? blocks_for(std::max(messages.send_bytes[peer], messages.recv_bytes[peer])) : common_blocks;
    const std::uint64_t pieces = std::max(Cut::staged_pieces(messages.send_bytes[peer], args.blocks[peer], args.layout.piece_bytes),
                                          Cut::staged_pieces(messages.recv_bytes[peer], args.blocks[peer], args.layout.piece_bytes));
    if (pieces > 0x7fffffffu) return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "the message is too long");
    args.pieces[peer] = static_cast<std::uint32_t>(pieces);
    grid = std::max(grid, args.blocks[peer]);
    flight.ticket->link_bytes += messages.send_bytes[peer];
  }
  const auto arithmetic = reduce ? Kernels::arithmetic_for(operation.datatype, operation.redop) : Kernels::kCopy;
  return launch(flight, kernels_.get(kind, arithmetic), grid, kThreads, 0, &args);
}

Status Engine::launch_exchange(Flight& flight, const Operation& operation, Kernels::Kind kind) {
  const auto rounds = messages_of(operation, rank_, world_, config_.thresholds.one_shot_bytes);
  for (const Messages& messages : rounds) {
    if (Status status = launch_messages(flight, messages, kind, &messages == &rounds.back()); !status.ok()) return status;
  }
  return {};
}

}  // namespace stepccl::cuda
