// SPDX-License-Identifier: Apache-2.0
// Sends and receives by copy engines: the two ranks meet at the time of the call, and where the receiver's buffer can be
// seen by the sender, its copy engine writes straight into it. No thread block on either side.
//
// Only the two meet, so a pair's answer is its own: of one exchange some pairs may go this way and others be staged. Both
// count the answers alike, and after a "no" both leave out the same calls before they meet again.
#include <algorithm>

#include "core/clock.hpp"
#include "cuda/engine.hpp"

namespace stepccl::cuda {
namespace {

constexpr stepccl_phase_t kPhase = STEPCCL_PHASE_CONNECT;
constexpr std::uint64_t kCaptureLimitNs = 1'000'000'000;
constexpr std::uint32_t kMostLeftOut = 64;

}  // namespace

Status Engine::open_pairs() {
  // The lower rank of a pair makes its meeting place.
  std::vector<Fd> made;
  std::vector<int> numbers;
  for (std::uint32_t peer = rank_ + 1; peer < world_; ++peer) {
    auto memory = Meeting::create();
    if (!memory.ok()) return memory.take_error();
    made.push_back(std::move(memory.value()));
    numbers.push_back(made.back().get());
  }
  auto all = agree("pairs", {}, numbers);
  if (!all.ok()) return all.take_error();
  pairs_.resize(world_);
  for (std::uint32_t peer = 0; peer < world_; ++peer) {
    if (peer == rank_) continue;
    const std::uint32_t owner = std::min(peer, rank_);
    const std::vector<Fd>& theirs = owner == rank_ ? made : all.value()[owner].descriptors;
    if (theirs.size() != world_ - 1 - owner) return make_error(STEPCCL_ERROR_PROTOCOL, kPhase, "no meeting place came", static_cast<std::int32_t>(owner));
    auto meeting = Meeting::open(theirs[std::max(peer, rank_) - owner - 1], peer < rank_ ? 1 : 0, 2);
    if (!meeting.ok()) return meeting.take_error();
    pairs_[peer].meeting = std::move(meeting.value());
  }
  return {};
}

Status Engine::invite_pairs(const Operation& operation, bool forced, bool capturing) {
  if (world_ < 2 || !stream_memory_ops_ || (!forced && config_.thresholds.plain_wait_us == 0)) return {};
  std::uint32_t met = 0;
  for (std::uint32_t peer = 0; peer < world_; ++peer) {
    if (peer == rank_ || (operation.involved >> peer & 1u) == 0) continue;
    Pair& pair = pairs_[peer];
    if (!forced) {
      if (std::max(operation.send_bytes[peer], operation.recv_bytes[peer]) <= config_.thresholds.staged_copy_bytes) continue;
      if (!capturing && pair.leave_out > 0) {
        --pair.leave_out;
        continue;
      }
    }
    Post mine;
    mine.bytes = operation.send_bytes[peer];
    mine.expects = operation.recv_bytes[peer];
    mine.closed = guests_off_ ? 1 : 0;
    bool fresh = false;
    if (mine.expects != 0) mine.recv = locate(operation.recv_from[peer], mine.expects, 1u << peer, fresh);
    mine.usable = mine.expects == 0 || mine.recv.kind != BufferRef::kNone ? 1 : 0;
    mine.fresh = fresh ? 1 : 0;
    pair.meeting.arrive(mine);
    met |= 1u << peer;
  }
  // All have been told before any is waited for: so no chain of ranks waits for each other in turn.
  for (std::uint32_t peer = 0; peer < world_; ++peer) {
    if ((met >> peer & 1u) == 0) continue;
    Pair& pair = pairs_[peer];
    const std::uint32_t there = peer < rank_ ? 0 : 1;
    bool mismatched = false;
    const auto decide = [&](const std::vector<Post>& posts) {
      mismatched = posts[0].bytes != posts[1].expects || posts[1].bytes != posts[0].expects;
      for (std::uint32_t one = 0; one < 2; ++one) {
        if (posts[one].usable == 0 || (posts[one].closed != 0 && posts[1 - one].recv.kind == BufferRef::kSegment)) return false;
      }
      return !mismatched;
    };
    const auto prepare = [&](const std::vector<Post>& posts) {
      const BufferRef& ref = posts[there].recv;
      const bool well = ref.kind != BufferRef::kSegment || open_segment(peer, ref.segment) != 0;
      guests_off_ = guests_off_ || !well;
      return well;
    };
    const std::uint64_t limit_ns = forced      ? std::uint64_t{config_.timeout_ms} * 1'000'000
                                   : capturing ? std::max(kCaptureLimitNs, std::uint64_t{config_.thresholds.plain_wait_us} * 1000)
                                               : std::uint64_t{config_.thresholds.plain_wait_us} * 1000;
    const auto posts = pair.meeting.conclude(limit_ns, decide, prepare, [this] { return failed_.load(std::memory_order_acquire); });
    if (mismatched) {
      return make_error(STEPCCL_ERROR_MISMATCH, STEPCCL_PHASE_TRANSFER,
                        "the two ranks' messages differ in length: this rank sends it " + std::to_string(operation.send_bytes[peer]) + " bytes and expects " + std::to_string(operation.recv_bytes[peer]),
                        static_cast<std::int32_t>(peer), STEPCCL_TRANSPORT_GPU_PEER);
    }
    if (!posts) {
      if (!forced && !capturing) {
        pair.leave_out = pair.misses == 0 ? 0 : std::min(1u << std::min(pair.misses - 1, 16u), kMostLeftOut);
        ++pair.misses;
      }
      continue;
    }
    pair.misses = 0;
    peer_to_[peer] = 0;
    if (operation.send_bytes[peer] != 0) {
      peer_to_[peer] = peer_address((*posts)[there].recv, peer);
      if (peer_to_[peer] == 0) return make_error(STEPCCL_ERROR_INTERNAL, STEPCCL_PHASE_TRANSFER, "a buffer that both ranks agreed on is not there", static_cast<std::int32_t>(peer), STEPCCL_TRANSPORT_GPU_PEER);
    }
    agreed_ |= 1u << peer;
  }
  return {};
}

// Those of a pairwise operation that go by copy engines, and what a rank sends to itself where nothing else is left.
Status Engine::launch_agreed(Flight& flight, const Operation& operation) {
  std::vector<Copy> blocks;
  for (std::uint32_t step = 0; step < world_; ++step) {
    const std::uint32_t peer = (rank_ + step) % world_;
    const std::uint64_t bytes = operation.send_bytes[peer];
    if (bytes == 0 || (step != 0 && (agreed_ >> peer & 1u) == 0)) continue;
    const auto from = reinterpret_cast<CUdeviceptr>(operation.send_to[peer]);
    const CUdeviceptr to = step == 0 ? reinterpret_cast<CUdeviceptr>(operation.recv_from[peer]) : peer_to_[peer];
    if (to != from) blocks.push_back({to, from, bytes, step == 0});
  }
  return run_copies(flight, blocks, agreed_);
}

// The pairs that did not agree go through lanes first, on every rank alike; then the copies.
Status Engine::launch_mixed(Flight& flight, const Operation& operation) {
  if (agreed_ == 0 || operation.varying) return launch_exchange(flight, operation, Kernels::kStaged);
  Operation staged = operation;
  Operation copied = operation;
  copied.send_bytes[rank_] = 0;
  for (std::uint32_t peer = 0; peer < world_; ++peer) {
    if ((agreed_ >> peer & 1u) == 0) continue;
    staged.involved &= ~(1u << peer);
    staged.send_to[peer] = nullptr;
    staged.recv_from[peer] = nullptr;
    staged.send_bytes[peer] = staged.recv_bytes[peer] = 0;
  }
  if (Status status = launch_exchange(flight, staged, Kernels::kStaged); !status.ok()) return status;
  return launch_agreed(flight, copied);
}

}  // namespace stepccl::cuda
