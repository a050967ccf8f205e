// SPDX-License-Identifier: Apache-2.0
// A place in shared memory where the ranks of one node post small things for all others to read: a message, or where
// larger ones stand. Posting is one write with a flag in its first cache line; there is no handshake.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "transport/transport.hpp"

namespace stepccl::transport {

constexpr std::size_t kBoardFlags = 64;               // posts that a rank may be ahead of its readers
constexpr std::size_t kBoardSlots = 16;               // the same where they don't fit beside the flag
constexpr std::size_t kBoardBytes = 16u << 10;        // of one post
constexpr std::size_t kBesideFlag = 48;               // of a post that shares the flag's cache line

// In shared memory, written by its owner alone.
struct BoardArea {
  struct Flag {
    alignas(64) std::atomic<std::uint64_t> number;  // of the exchange that was posted last
    OperationTag tag;
    std::byte data[kBesideFlag];
  };
  alignas(64) std::atomic<std::uint64_t> done;  // the last exchange that its owner needs nothing of any more
  Flag flags[kBoardFlags];
  alignas(64) std::byte slots[kBoardSlots][kBoardBytes];
};
static_assert(sizeof(BoardArea::Flag) == 64);

// How a rank of the board learns that a peer sleeps, and wakes it.
struct Bells {
  std::vector<std::atomic<std::uint32_t>*> sleeping;  // by rank; 1 = is about to sleep, or does; whoever sets it to 0 wakes
  std::function<void(std::uint32_t rank)> wake;
  // A sleeper makes all ranks' stores visible before it looks for the last time (membarrier), so that none needs a fence.
  bool sleeper_fences = false;

  // After a store that a peer may wait for.
  void ring(std::uint32_t rank) const {
    if (sleeping[rank]->load(std::memory_order_relaxed) != 0 && sleeping[rank]->exchange(0, std::memory_order_relaxed) != 0) wake(rank);
  }
  // Between that store and ring(): either the sleeper sees the store, or this rank sees that it sleeps.
  void before_ring() const noexcept {
    if (sleeper_fences) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
  }
};

// Exchanges are numbered from 1, the same on every rank. In exchange e a rank may post, read what others posted, and must
// say finish(e) at the end, in ascending order.
class Board {
 public:
  // `areas` by rank of the communicator, all mapped.
  Board(std::uint32_t rank, std::vector<BoardArea*> areas, Bells bells) : rank_(rank), areas_(std::move(areas)), bells_(std::move(bells)) {}

  [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::uint32_t world() const noexcept { return static_cast<std::uint32_t>(areas_.size()); }
  // The number of the next exchange.
  [[nodiscard]] std::uint64_t next() noexcept { return ++exchange_; }

  // The exchange that all must have finished before `bytes` may be posted in exchange `number`; 0 = none.
  [[nodiscard]] static std::uint64_t needs(std::uint64_t number, std::size_t bytes) noexcept {
    const std::uint64_t ahead = bytes <= kBesideFlag ? kBoardFlags : kBoardSlots;
    return number > ahead ? number - ahead : 0;
  }
  // Whether every peer has finished exchange `number`.
  [[nodiscard]] bool all_finished(std::uint64_t number) noexcept;
  // Where a post of so many bytes goes, to be filled before post().
  [[nodiscard]] std::byte* draft(std::uint64_t number, std::size_t bytes) noexcept { return place(rank_, number, bytes); }
  void post(std::uint64_t number, const OperationTag& tag);
  // Whether a peer has posted, and what.
  [[nodiscard]] bool has_posted(std::uint32_t peer, std::uint64_t number) const noexcept {
    return flag(peer, number).number.load(std::memory_order_acquire) == number;
  }
  // A peer that posts without waiting for this rank may be ahead.
  void expect(std::uint32_t peer, std::uint64_t number) const noexcept { __builtin_prefetch(&flag(peer, number)); }
  // What it has posted: as many bytes as every rank posts in such a call.
  [[nodiscard]] const std::byte* posted(std::uint32_t peer, std::uint64_t number, std::size_t bytes) const noexcept { return place(peer, number, bytes); }
  [[nodiscard]] const OperationTag& tag_of(std::uint32_t peer, std::uint64_t number) const noexcept { return flag(peer, number).tag; }
  // Every peer has posted in this exchange, so each has finished those before.
  void all_posted(std::uint64_t number) noexcept { all_done_ = std::max(all_done_, number - 1); }
  // This rank needs nothing of this exchange, and of those before, any more.
  void finish(std::uint64_t number);
  [[nodiscard]] bool has_finished(std::uint32_t peer, std::uint64_t number) const noexcept {
    return areas_[peer]->done.load(std::memory_order_acquire) >= number;
  }

  // What the owner waits for while it sleeps; asked once more before it does. Empty: nothing.
  std::function<bool()> awaited;

 private:
  [[nodiscard]] BoardArea::Flag& flag(std::uint32_t peer, std::uint64_t number) const noexcept { return areas_[peer]->flags[number % kBoardFlags]; }
  [[nodiscard]] std::byte* place(std::uint32_t peer, std::uint64_t number, std::size_t bytes) const noexcept {
    return bytes <= kBesideFlag ? flag(peer, number).data : areas_[peer]->slots[number % kBoardSlots];
  }
  void ring_all();

  std::uint32_t rank_;
  std::vector<BoardArea*> areas_;
  Bells bells_;
  std::uint64_t exchange_ = 0;
  std::uint64_t all_done_ = 0;  // every rank has finished it, as last seen
};

}  // namespace stepccl::transport
