// SPDX-License-Identifier: Apache-2.0
#include "transport/board.hpp"

#include <algorithm>

namespace stepccl::transport {

bool Board::all_finished(std::uint64_t number) noexcept {
  if (all_done_ >= number) return true;
  std::uint64_t least = ~std::uint64_t{0};
  for (std::uint32_t peer = 0; peer < world(); ++peer) {
    if (peer != rank_) least = std::min(least, areas_[peer]->done.load(std::memory_order_acquire));
  }
  all_done_ = least;
  return all_done_ >= number;
}

void Board::post(std::uint64_t number, const OperationTag& tag) {
  BoardArea::Flag& own = flag(rank_, number);
  own.tag = tag;
  own.number.store(number, std::memory_order_release);
  ring_all();
}

void Board::finish(std::uint64_t number) {
  areas_[rank_]->done.store(number, std::memory_order_release);
  ring_all();
}

void Board::ring_all() {
  bells_.before_ring();
  for (std::uint32_t peer = 0; peer < world(); ++peer) {
    if (peer != rank_) bells_.ring(peer);
  }
}

}  // namespace stepccl::transport
