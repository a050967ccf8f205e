// SPDX-License-Identifier: Apache-2.0
// Collectives among ranks that all share one node's memory: the direct algorithms (everyone to everyone) without messages.
// Small arrays are posted on the board; of large ones only the place is posted, and every rank copies what it needs straight
// from its peers' memory. Sums are in rank order, as in the direct schedules, so they have the same bits.
#pragma once

#include <functional>

#include "core/scratch.hpp"
#include "telemetry/ring_writer.hpp"
#include "transport/board.hpp"
#include "transport/single_copy.hpp"

namespace stepccl::transport {

struct NodeCall {
  stepccl_collective_t collective = STEPCCL_ALL_REDUCE;
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  std::uint64_t count = 0;  // elements, as the C interface counts them
  stepccl_datatype_t datatype = STEPCCL_FLOAT32;
  stepccl_redop_t redop = STEPCCL_SUM;
  std::uint32_t root = 0;
  OperationTag tag;
};

class NodeEngine {
 public:
  // Called again and again while nothing comes: sleeps for a while. `waiting` tells the ranks that something is lacking of;
  // `moved`: something has come since the last call. An error ends the operation.
  using Rest = std::function<Status(const std::function<std::vector<std::uint32_t>()>& waiting, bool moved)>;

  // `copy` may be null: then only what fits the board is taken. `crowded`: there are more ranks than CPUs.
  NodeEngine(std::unique_ptr<Board> board, std::unique_ptr<SingleCopy> copy, bool crowded, std::vector<telemetry::Flow> flows)
      : board_(std::move(board)), copy_(std::move(copy)), crowded_(crowded), flows_(std::move(flows)) {}

  // The algorithm by which such a call would run here, AUTO where it would not. Depends only on what all ranks have in common.
  // `bytes` are of the full array.
  [[nodiscard]] stepccl_algorithm_t algorithm_for(stepccl_collective_t collective, std::uint64_t bytes) const noexcept;

  // Whether such a call goes through the board, so that no memory but the board's is read. `bytes` are of the full array.
  [[nodiscard]] bool by_board(stepccl_collective_t collective, std::uint64_t bytes) const noexcept;

  [[nodiscard]] Status run(const NodeCall& call, const Rest& rest);

  [[nodiscard]] Board& board() noexcept { return *board_; }

 private:
  // Everyone's memory in a large operation.
  struct Places {
    RemoteMemory send;
    RemoteMemory recv;
  };

  [[nodiscard]] Status small(const NodeCall& call);
  [[nodiscard]] Status broadcast_by_pieces(const NodeCall& call);
  [[nodiscard]] Status large(const NodeCall& call);
  void take_small(const NodeCall& call, std::uint64_t number);
  [[nodiscard]] Status take_large(const NodeCall& call, std::uint64_t number, std::uint64_t& last);
  [[nodiscard]] Status all_reduce_large(const NodeCall& call, std::uint64_t number, std::uint64_t& last);
  void count_sent(const NodeCall& call, std::size_t bytes) noexcept;
  [[nodiscard]] Status sum_slice(const NodeCall& call, std::uint64_t number, std::size_t from, std::size_t count, std::byte* into);
  [[nodiscard]] Status post(std::uint64_t number, const OperationTag& tag, const void* data, std::size_t bytes);
  [[nodiscard]] Status await_posts(std::uint64_t number, const OperationTag& tag, std::uint32_t first, std::uint32_t end);
  [[nodiscard]] Status read(std::uint32_t peer, std::uint64_t number, bool recv, std::size_t offset, std::span<std::byte> into);
  template <class Ready>
  [[nodiscard]] Status await(std::uint32_t first, std::uint32_t end, Ready&& ready);

  std::unique_ptr<Board> board_;
  std::unique_ptr<SingleCopy> copy_;
  bool crowded_;
  std::vector<telemetry::Flow> flows_;  // by peer
  ScratchMemory scratch_;
  ScratchMemory input_;  // an input that its own output would be written over
  const Rest* rest_ = nullptr;  // of the call that runs
  std::uint32_t history_ = 0;   // of all calls so far: a rank that nobody had to hear in one call is found out in the next
};

}  // namespace stepccl::transport
