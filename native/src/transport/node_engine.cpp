// SPDX-License-Identifier: Apache-2.0
#include "transport/node_engine.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "core/reduce.hpp"
#include "schedule/schedule.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace stepccl::transport {
namespace {

constexpr std::size_t kChunkBytes = 128u << 10;  // of a copy that is added at once: two of them stay in a core's own cache
// A broadcast beyond it is one copy from the root's memory by each reader instead of two through the board. One reader alone gains
// early; several get into each other's way, since the kernel locks the root's page tables for each.
constexpr std::size_t kPairBroadcastBytes = 32u << 10;
constexpr std::size_t kBroadcastBytes = 16u << 20;
constexpr int kEager = 64;                       // looks without a pause in between, which takes as long as the answer
constexpr int kSpins = 2000;                     // before the CPU is offered to others
constexpr int kCrowdedSpins = 16;
constexpr int kYields = 256;                     // before the engine takes over: it may sleep

void relax() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// How many bytes of a full array of `bytes` the posting ranks post in a small operation.
std::size_t posted_bytes(stepccl_collective_t collective, std::uint32_t world, std::size_t bytes) noexcept {
  switch (collective) {
    case STEPCCL_ALL_GATHER:
    case STEPCCL_GATHER: return bytes / world;
    case STEPCCL_BARRIER: return 0;
    default: return bytes;
  }
}

std::size_t full_bytes(const NodeCall& call, std::uint32_t world) noexcept {
  return static_cast<std::size_t>(call.count) * stepccl_datatype_bytes(call.datatype) * (schedule::is_blocked(call.collective) ? world : 1);
}

// Whether everyone waits for the root alone.
bool root_posts(stepccl_collective_t collective) noexcept { return collective == STEPCCL_BROADCAST || collective == STEPCCL_SCATTER; }
bool root_reads(stepccl_collective_t collective) noexcept { return collective == STEPCCL_REDUCE || collective == STEPCCL_GATHER; }

}  // namespace

stepccl_algorithm_t NodeEngine::algorithm_for(stepccl_collective_t collective, std::uint64_t bytes) const noexcept {
  if (collective == STEPCCL_SEND_RECV || board_->world() < 2) return STEPCCL_ALGORITHM_AUTO;
  if (by_board(collective, bytes)) return STEPCCL_ALGORITHM_DIRECT_ONE_SHOT;
  if (copy_ == nullptr) return STEPCCL_ALGORITHM_AUTO;
  switch (collective) {
    case STEPCCL_ALL_REDUCE: return STEPCCL_ALGORITHM_DIRECT_TWO_SHOT;
    case STEPCCL_REDUCE: return STEPCCL_ALGORITHM_AUTO;  // the root would do all the work
    default: return STEPCCL_ALGORITHM_DIRECT_ONE_SHOT;
  }
}

bool NodeEngine::by_board(stepccl_collective_t collective, std::uint64_t bytes) const noexcept {
  if (collective == STEPCCL_BROADCAST && (bytes <= (board_->world() == 2 ? kPairBroadcastBytes : kBroadcastBytes) || copy_ == nullptr)) return true;
  return posted_bytes(collective, board_->world(), bytes) <= kBoardBytes;
}

template <class Ready>
Status NodeEngine::await(std::uint32_t first, std::uint32_t end, Ready&& ready) {
  for (std::uint32_t peer = first; peer < end; ++peer) {
    if (peer == board_->rank()) continue;
    const int spins = crowded_ ? kCrowdedSpins : kSpins;
    for (int round = 0; !ready(peer); ++round) {
      if (round < spins) {
        if (crowded_ || round >= kEager) relax();
      } else if (round < spins + kYields) {
        sched_yield();
      } else {
        board_->awaited = [&] { return ready(peer); };
        const auto waiting = [&] {
          std::vector<std::uint32_t> ranks;
          for (std::uint32_t other = peer; other < end; ++other) {
            if (other != board_->rank() && !ready(other)) ranks.push_back(other);
          }
          return ranks;
        };
        Status status = (*rest_)(waiting, round == spins + kYields);
        board_->awaited = {};
        if (!status.ok()) return status;
      }
    }
  }
  return {};
}

Status NodeEngine::post(std::uint64_t number, const OperationTag& tag, const void* data, std::size_t bytes) {
  const std::uint64_t before = Board::needs(number, bytes);
  if (!board_->all_finished(before)) {
    // Until half of what was posted has been read, so that neither side waits for the other at every single one.
    const std::uint64_t half = number - (number - before) / 2;
    if (Status status = await(0, board_->world(), [&](std::uint32_t peer) { return board_->has_finished(peer, half - 1); }); !status.ok()) return status;
  }
  if (bytes != 0) std::memcpy(board_->draft(number, bytes), data, bytes);
  board_->post(number, tag);
  return {};
}

Status NodeEngine::await_posts(std::uint64_t number, const OperationTag& tag, std::uint32_t first, std::uint32_t end) {
  if (Status status = await(first, end, [&](std::uint32_t peer) { return board_->has_posted(peer, number); }); !status.ok()) return status;
  for (std::uint32_t peer = first; peer < end; ++peer) {
    if (peer != board_->rank() && board_->tag_of(peer, number) != tag) {
      return make_error(STEPCCL_ERROR_MISMATCH, STEPCCL_PHASE_TRANSFER, "its message belongs to another call", static_cast<std::int32_t>(peer), STEPCCL_TRANSPORT_SHM);
    }
  }
  if (first == 0 && end == board_->world()) board_->all_posted(number);
  return {};
}

Status NodeEngine::run(const NodeCall& asked, const Rest& rest) {
  rest_ = &rest;
  NodeCall call = asked;
  history_ = history_ * 16777619u ^ call.tag.signature;
  call.tag.signature = history_;
  if (scratch_.bytes() == 0 && !scratch_.resize(2 * kChunkBytes)) {
    return make_error(STEPCCL_ERROR_OUT_OF_MEMORY, STEPCCL_PHASE_TRANSFER, "no " + std::to_string(2 * kChunkBytes) + " bytes of scratch memory");
  }
  return by_board(call.collective, full_bytes(call, board_->world())) ? small(call) : large(call);
}

Status NodeEngine::small(const NodeCall& call) {
  const std::uint32_t rank = board_->rank();
  const std::uint32_t world = board_->world();
  const std::size_t bytes = static_cast<std::size_t>(call.count) * stepccl_datatype_bytes(call.datatype);
  if (call.collective == STEPCCL_BROADCAST && bytes > kBoardBytes) return broadcast_by_pieces(call);
  const std::uint64_t number = board_->next();
  const bool is_root = rank == call.root;
  if (root_posts(call.collective) ? is_root : !root_reads(call.collective) || !is_root) {
    if (Status status = post(number, call.tag, call.send, posted_bytes(call.collective, world, full_bytes(call, world))); !status.ok()) return status;
    count_sent(call, bytes);
  }
  Status status;
  if (root_posts(call.collective)) {
    if (!is_root) status = await_posts(number, call.tag, call.root, call.root + 1), board_->expect(call.root, number + 1);
  } else if (!root_reads(call.collective) || is_root) {
    status = await_posts(number, call.tag, 0, world);
  }
  if (!status.ok()) return status;
  take_small(call, number);
  board_->finish(number);
  return {};
}

// The root fills the slots one after another and goes on; it waits for nobody but the reader of a slot that it needs again.
Status NodeEngine::broadcast_by_pieces(const NodeCall& call) {
  const bool is_root = board_->rank() == call.root;
  const std::size_t bytes = static_cast<std::size_t>(call.count) * stepccl_datatype_bytes(call.datatype);
  for (std::size_t offset = 0; offset < bytes; offset += kBoardBytes) {
    const std::size_t piece = std::min(kBoardBytes, bytes - offset);
    const std::uint64_t number = board_->next();
    if (is_root) {
      if (Status status = post(number, call.tag, call.send + offset, piece); !status.ok()) return status;
    } else {
      if (Status status = await_posts(number, call.tag, call.root, call.root + 1); !status.ok()) return status;
      std::memcpy(call.recv + offset, board_->posted(call.root, number, piece), piece);
    }
    board_->finish(number);
  }
  if (!is_root) {
    flows_[call.root].add_received(bytes);
    return {};
  }
  count_sent(call, bytes);
  if (call.send != call.recv) std::memcpy(call.recv, call.send, bytes);
  return {};
}

// Everything that this rank needs is on the board.
void NodeEngine::take_small(const NodeCall& call, std::uint64_t number) {
  const std::uint32_t rank = board_->rank();
  const std::uint32_t world = board_->world();
  const auto count = static_cast<std::size_t>(call.count);
  const std::size_t bytes = count * stepccl_datatype_bytes(call.datatype);
  if (bytes == 0) return;
  const std::size_t posted = posted_bytes(call.collective, world, full_bytes(call, world));
  const auto from = [&](std::uint32_t peer, std::size_t offset) { return (peer == rank ? call.send : board_->posted(peer, number, posted)) + offset; };
  const auto received = [&](std::uint32_t peer) {
    if (peer != rank) flows_[peer].add_received(bytes);
  };
  switch (call.collective) {
    case STEPCCL_REDUCE:
      if (rank != call.root) return;
      [[fallthrough]];
    case STEPCCL_ALL_REDUCE:
    case STEPCCL_REDUCE_SCATTER: {
      const std::size_t offset = call.collective == STEPCCL_REDUCE_SCATTER ? rank * bytes : 0;
      const std::byte* own = call.send + offset;
      if (own == call.recv && rank > 1) {  // in place: written over before its turn comes
        std::memcpy(scratch_.data(), own, bytes);
        own = scratch_.data();
      }
      const auto part = [&](std::uint32_t peer) { return peer == rank ? own : from(peer, offset); };
      reduce(call.recv, part(0), part(1), count, call.datatype, call.redop);
      for (std::uint32_t peer = 2; peer < world; ++peer) reduce(call.recv, call.recv, part(peer), count, call.datatype, call.redop);
      if (call.redop == STEPCCL_AVG) divide(call.recv, count, call.datatype, world);
      for (std::uint32_t peer = 0; peer < world; ++peer) received(peer);
      return;
    }
    case STEPCCL_BROADCAST:
    case STEPCCL_SCATTER: {
      const std::size_t offset = call.collective == STEPCCL_SCATTER ? rank * bytes : 0;
      const std::byte* source = from(call.root, offset);
      if (source != call.recv) std::memmove(call.recv, source, bytes);
      received(call.root);
      return;
    }
    case STEPCCL_GATHER:
      if (rank != call.root) return;
      [[fallthrough]];
    case STEPCCL_ALL_GATHER:
      for (std::uint32_t peer = 0; peer < world; ++peer) {
        const std::byte* source = from(peer, 0);
        if (source != call.recv + peer * bytes) std::memmove(call.recv + peer * bytes, source, bytes);
        received(peer);
      }
      return;
    case STEPCCL_ALL_TO_ALL:
      for (std::uint32_t peer = 0; peer < world; ++peer) {
        const std::byte* source = from(peer, rank * bytes);
        if (source != call.recv + peer * bytes) std::memmove(call.recv + peer * bytes, source, bytes);
        received(peer);
      }
      return;
    default: return;
  }
}

Status NodeEngine::read(std::uint32_t peer, std::uint64_t number, bool recv, std::size_t offset, std::span<std::byte> into) {
  Places places;
  std::memcpy(&places, board_->posted(peer, number, sizeof places), sizeof places);
  if (Status status = copy_->read(peer, recv ? places.recv : places.send, offset, into); !status.ok()) return status;
  flows_[peer].add_received(into.size());
  return {};
}

// into[0, count) = the sum over ranks of send[from, from + count), in rank order.
Status NodeEngine::sum_slice(const NodeCall& call, std::uint64_t number, std::size_t from, std::size_t count, std::byte* into) {
  const std::uint32_t rank = board_->rank();
  const std::size_t element = stepccl_datatype_bytes(call.datatype);
  const std::size_t chunk = kChunkBytes / element;
  for (std::size_t done = 0; done < count; done += chunk) {
    const std::size_t now = std::min(chunk, count - done);
    const std::size_t offset = (from + done) * element;
    std::byte* target = into + done * element;
    const std::byte* left = nullptr;
    for (std::uint32_t peer = 0; peer < board_->world(); ++peer) {
      const std::byte* part = call.send + offset;
      if (peer != rank) {
        std::byte* landing = scratch_.data() + (peer % 2) * kChunkBytes;
        if (Status status = read(peer, number, false, offset, {landing, now * element}); !status.ok()) return status;
        part = landing;
      }
      if (peer == 0) {
        left = part;
        continue;
      }
      // In place the own part is written over by the sum: until it has been added, the sum stays in scratch.
      std::byte* sum = target == call.send + offset && peer < rank ? scratch_.data() + (peer % 2) * kChunkBytes : target;
      reduce(sum, left, part, now, call.datatype, call.redop);
      left = sum;
    }
    if (call.redop == STEPCCL_AVG) divide(target, now, call.datatype, board_->world());
  }
  return {};
}

Status NodeEngine::large(const NodeCall& asked) {
  NodeCall call = asked;
  const std::uint32_t rank = board_->rank();
  const std::uint32_t world = board_->world();
  const std::size_t bytes = static_cast<std::size_t>(call.count) * stepccl_datatype_bytes(call.datatype);
  const std::uint64_t number = board_->next();
  const bool to_all = call.collective == STEPCCL_REDUCE_SCATTER || call.collective == STEPCCL_SCATTER || call.collective == STEPCCL_ALL_TO_ALL;

  if (call.collective == STEPCCL_ALL_TO_ALL && call.send == call.recv) {
    if (input_.bytes() < bytes * world && !input_.resize(bytes * world)) {
      return make_error(STEPCCL_ERROR_OUT_OF_MEMORY, STEPCCL_PHASE_TRANSFER, "no " + std::to_string(bytes * world) + " bytes for the input of an all_to_all in place");
    }
    std::memcpy(input_.data(), call.send, bytes * world);
    call.send = input_.data();
  }
  Places own;
  if (call.send != nullptr) {
    auto exposed = copy_->expose({call.send, to_all ? bytes * world : bytes});
    if (!exposed.ok()) return exposed.take_error();
    own.send = exposed.value();
  }
  if (call.collective == STEPCCL_ALL_REDUCE) {
    auto exposed = copy_->expose({call.recv, bytes});
    if (!exposed.ok()) return exposed.take_error();
    own.recv = exposed.value();
  }
  const bool is_root = rank == call.root;
  const bool is_read = root_posts(call.collective) ? is_root : !root_reads(call.collective) || !is_root;
  if (is_read) {
    if (Status status = post(number, call.tag, &own, sizeof own); !status.ok()) return status;
  }
  std::uint64_t last = number;
  if (Status status = take_large(call, number, last); !status.ok()) return status;
  board_->finish(last);
  if (!is_read) return {};
  count_sent(call, bytes);
  // Until then the peers read this rank's memory.
  const bool by_root = root_reads(call.collective);
  return await(by_root ? call.root : 0, by_root ? call.root + 1 : world, [&](std::uint32_t peer) { return board_->has_finished(peer, last); });
}

// Copies and adds what this rank needs. `last` becomes the number of the last exchange that was used.
Status NodeEngine::take_large(const NodeCall& call, std::uint64_t number, std::uint64_t& last) {
  const std::uint32_t rank = board_->rank();
  const std::uint32_t world = board_->world();
  const auto count = static_cast<std::size_t>(call.count);
  const std::size_t bytes = count * stepccl_datatype_bytes(call.datatype);
  const auto copy_from = [&](std::uint32_t peer, std::size_t source, std::byte* into) -> Status {
    if (peer == rank) {
      if (call.send + source != into) std::memmove(into, call.send + source, bytes);
      return {};
    }
    if (Status status = await_posts(number, call.tag, peer, peer + 1); !status.ok()) return status;
    return read(peer, number, false, source, {into, bytes});
  };
  // Each rank begins with another peer, so that no memory is read by all at once.
  const auto copy_from_all = [&](std::size_t source) -> Status {
    for (std::uint32_t k = 0; k < world; ++k) {
      const std::uint32_t peer = (rank + k) % world;
      if (Status status = copy_from(peer, source, call.recv + peer * bytes); !status.ok()) return status;
    }
    return {};
  };
  switch (call.collective) {
    case STEPCCL_ALL_REDUCE: return all_reduce_large(call, number, last);
    case STEPCCL_REDUCE_SCATTER: {
      if (Status status = await_posts(number, call.tag, 0, world); !status.ok()) return status;
      return sum_slice(call, number, rank * count, count, call.recv);
    }
    case STEPCCL_ALL_GATHER: return copy_from_all(0);
    case STEPCCL_GATHER: return rank == call.root ? copy_from_all(0) : Status();
    case STEPCCL_ALL_TO_ALL: return copy_from_all(rank * bytes);
    case STEPCCL_BROADCAST: return copy_from(call.root, 0, call.recv);
    case STEPCCL_SCATTER: return copy_from(call.root, rank * bytes, call.recv);
    default: return make_error(STEPCCL_ERROR_INTERNAL, STEPCCL_PHASE_TRANSFER, "a collective that the node engine does not know");
  }
}

// Every rank adds one slice and then copies the other slices' sums.
Status NodeEngine::all_reduce_large(const NodeCall& call, std::uint64_t number, std::uint64_t& last) {
  const std::uint32_t rank = board_->rank();
  const std::uint32_t world = board_->world();
  const std::size_t element = stepccl_datatype_bytes(call.datatype);
  const auto slice = [&](std::uint32_t r) { return schedule::segment_of(call.count, world, r); };
  const schedule::Segment own = slice(rank);
  if (Status status = await_posts(number, call.tag, 0, world); !status.ok()) return status;
  if (Status status = sum_slice(call, number, own.offset, own.count, call.recv + own.offset * element); !status.ok()) return status;
  // In place an output is an input that a peer may still read: everyone must have added before anyone copies.
  last = board_->next();
  if (Status status = post(last, call.tag, nullptr, 0); !status.ok()) return status;
  if (Status status = await_posts(last, call.tag, 0, call.send == call.recv ? world : 0); !status.ok()) return status;
  for (std::uint32_t k = 1; k < world; ++k) {
    const std::uint32_t peer = (rank + k) % world;
    const schedule::Segment theirs = slice(peer);
    const std::size_t offset = theirs.offset * element;
    if (Status status = await_posts(last, call.tag, peer, peer + 1); !status.ok()) return status;
    if (Status status = read(peer, number, true, offset, {call.recv + offset, theirs.count * element}); !status.ok()) return status;
  }
  return {};
}

// What the peers take of this rank's memory, for the console's flows.
void NodeEngine::count_sent(const NodeCall& call, std::size_t bytes) noexcept {
  const std::uint32_t rank = board_->rank();
  for (std::uint32_t peer = 0; peer < board_->world(); ++peer) {
    if (peer == rank || (root_reads(call.collective) && peer != call.root)) continue;
    flows_[peer].add_sent(bytes);
  }
}

}  // namespace stepccl::transport
