// SPDX-License-Identifier: Apache-2.0
// Compaction of the pool, in one epoch over all ranks.
//
// 1. Every rank keeps its callers out and closes the gate for captured graphs, then waits until nothing of the engine
//    runs on its GPU. Work that waits for a rank that is already held back would never end: then all let go, and try
//    again at the next interval.
// 2. Every rank copies what its sparse extents hold into smaller ones, and tells the others.
// 3. The sparse extents are unmapped, the new ones mapped at the same addresses, here and in every peer.
// 4. All open again.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/clock.hpp"
#include "cuda/engine.hpp"
#include "cuda/lane_owners.hpp"

namespace stepccl::cuda {
namespace {

constexpr stepccl_phase_t kPhase = STEPCCL_PHASE_REGISTER;
constexpr std::uint64_t kMoveLimit = 2ull << 30;  // bytes copied in one epoch: below 2 ms at HBM speed
constexpr std::uint32_t kQuiesceMs = 100;

struct EpochHead {
  std::uint32_t code = 0;
  std::uint32_t drop = 0;
  std::uint32_t create = 0;
  std::uint32_t reserved = 0;
};

}  // namespace

Status Engine::set_gate(std::uint32_t closed) {
  // From pinned memory, by a copy engine: kernels may be what waits.
  gate_words_[0] = closed;
  STEPCCL_CU(*driver_, kPhase, cuMemcpyHtoDAsync_v2, words_, &gate_words_[0], sizeof(std::uint32_t), watch_stream_);
  return {};
}

// False: not idle in time.
Expected<bool> Engine::quiesce() {
  const Deadline deadline = Deadline::after_ms(kQuiesceMs);
  std::uint32_t* active = &gate_words_[16];
  for (;;) {
    bool idle = true;
    if (lanes_[0].used) {
      const CUresult result = driver_->cuEventQuery(lanes_[0].done);
      if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) return driver_->error(result, "cuEventQuery", kPhase);
      idle = result == CUDA_SUCCESS;
    }
    STEPCCL_CU(*driver_, kPhase, cuMemcpyDtoHAsync_v2, active, words_ + 64, sizeof *active, watch_stream_);
    STEPCCL_CU(*driver_, kPhase, cuStreamSynchronize, watch_stream_);
    idle = idle && *active == 0;
    if (idle || deadline.passed()) return idle;
    if (failed_.load()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

Expected<std::uint64_t> Engine::defrag_epoch(const Mesh& mesh, std::uint32_t lock_ms) {
  const ContextScope scope(*driver_, context_);
  const auto exchange = [&](std::span<const std::byte> mine, std::span<const int> descriptors) {
    return mesh.exchange(mine, descriptors, config_.timeout_ms, [this] { return keep_epoch(); });
  };
  // What stands in the way on this rank, and then on any.
  const auto obstacle = [&](std::uint32_t mine) -> Expected<std::uint32_t> {
    auto answers = exchange(std::as_bytes(std::span(&mine, 1)), {});
    if (!answers.ok()) return answers.take_error();
    std::uint32_t worst = mine;
    for (const Contribution& answer : answers.value()) {
      std::uint32_t theirs = STEPCCL_GPU_REASON_FAILED;
      std::memcpy(&theirs, answer.bytes.data(), std::min(sizeof theirs, answer.bytes.size()));
      worst = std::max(worst, theirs);
    }
    return worst;
  };

  std::unique_lock lock(mutex_, std::defer_lock);
  // A caller that holds the lock may wait for a rank whose lock is already ours: give up soon.
  const bool held = lock.try_lock_for(std::chrono::milliseconds(lock_ms));
  const std::uint64_t begun = monotonic_ns();
  bool work = false;
  if (held) work = !pool_->plan_compaction(kMoveLimit).empty();
  if (held && owners_->in_use() == 0) ungated_graphs_.store(false);
  auto ready = obstacle(!held ? STEPCCL_GPU_REASON_BUSY : ungated_graphs_.load() ? STEPCCL_GPU_REASON_UNGATED_GRAPHS : STEPCCL_GPU_REASON_NONE);
  if (!ready.ok()) return ready.take_error();
  if (held) defrag_blocked_ = ready.value();
  if (ready.value() != 0) return std::uint64_t{0};
  const auto anything = obstacle(work ? 1 : 0);
  if (!anything.ok()) return anything.error();
  if (anything.value() == 0) {
    ++defrag_epochs_;
    return std::uint64_t{0};
  }
  if (Status status = set_gate(1); !status.ok()) return status.take_error();
  auto idle = quiesce();
  if (!idle.ok()) return idle.take_error();
  auto busy = obstacle(idle.value() ? 0 : STEPCCL_GPU_REASON_BUSY);
  if (!busy.ok()) return busy.take_error();
  defrag_blocked_ = busy.value();
  if (busy.value() != 0) {
    if (Status status = set_gate(0); !status.ok()) return status.take_error();
    return std::uint64_t{0};
  }

  const std::uint32_t before = pool_->fragmentation_permille();
  memory::Compaction plan = pool_->plan_compaction(kMoveLimit);
  std::vector<Arena::Fresh> fresh;
  std::vector<int> numbers;
  const auto build = [&]() -> Status {
    for (const memory::Extent& extent : plan.create) {
      auto made = arena_->create_aside(extent);
      if (!made.ok()) return made.take_error();
      fresh.push_back(std::move(made.value()));
      STEPCCL_CU(*driver_, kPhase, cuMemcpyAsync, fresh.back().scratch, arena_->base(rank_) + extent.offset, extent.bytes, watch_stream_);
    }
    STEPCCL_CU(*driver_, kPhase, cuStreamSynchronize, watch_stream_);
    return {};
  };
  if (Status status = build(); !status.ok()) {
    // Out of memory for the copies: what needs none can still be dropped.
    for (Arena::Fresh& one : fresh) arena_->discard(one);
    fresh.clear();
    plan = pool_->plan_compaction(0);
  }
  EpochHead head;
  head.drop = static_cast<std::uint32_t>(plan.drop.size());
  head.create = static_cast<std::uint32_t>(plan.create.size());
  std::vector<std::byte> message(sizeof head);
  std::memcpy(message.data(), &head, sizeof head);
  for (const auto& list : {plan.drop, plan.create}) {
    const auto bytes = std::as_bytes(std::span(list));
    message.insert(message.end(), bytes.begin(), bytes.end());
  }
  for (const Arena::Fresh& one : fresh) numbers.push_back(one.descriptor.get());
  auto all = exchange(message, numbers);
  if (!all.ok()) return all.take_error();

  // From here on a failure leaves addresses without memory: it ends the engine.
  const auto carry_out = [&]() -> Status {
    for (const memory::Extent& extent : plan.drop) arena_->drop(rank_, extent);
    for (Arena::Fresh& one : fresh) {
      if (Status status = arena_->put_in_place(one); !status.ok()) return status;
    }
    for (std::uint32_t peer = 0; peer < world_; ++peer) {
      if (peer == rank_) continue;
      const Contribution& theirs = all.value()[peer];
      EpochHead other;
      if (theirs.bytes.size() < sizeof other) return make_error(STEPCCL_ERROR_PROTOCOL, kPhase, "a message is too short", static_cast<std::int32_t>(peer));
      std::memcpy(&other, theirs.bytes.data(), sizeof other);
      if (theirs.bytes.size() != sizeof other + (std::size_t{other.drop} + other.create) * sizeof(memory::Extent) || theirs.descriptors.size() != other.create) {
        return make_error(STEPCCL_ERROR_PROTOCOL, kPhase, "extents and descriptors don't fit together", static_cast<std::int32_t>(peer));
      }
      const auto extent_at = [&](std::size_t i) {
        memory::Extent extent;
        std::memcpy(&extent, theirs.bytes.data() + sizeof other + i * sizeof extent, sizeof extent);
        return extent;
      };
      for (std::uint32_t i = 0; i < other.drop; ++i) arena_->drop(peer, extent_at(i));
      for (std::uint32_t i = 0; i < other.create; ++i) {
        if (Status status = arena_->import(peer, extent_at(other.drop + i), theirs.descriptors[i]); !status.ok()) return status;
      }
    }
    pool_->apply(plan);
    return {};
  };
  if (Status status = carry_out(); !status.ok()) {
    fail(status.error());
    return status.take_error();
  }
  auto done = obstacle(0);
  if (!done.ok()) return done.take_error();
  if (Status status = set_gate(0); !status.ok()) return status.take_error();
  ++defrag_epochs_;
  defrag_moved_bytes_ += plan.moved_bytes;
  defrag_released_bytes_ += plan.released_bytes;
  last_before_permille_ = before;
  last_after_permille_ = pool_->fragmentation_permille();
  last_epoch_ns_ = monotonic_ns();
  last_epoch_us_ = (last_epoch_ns_ - begun) / 1000;
  return plan.released_bytes;
}

Status Engine::defrag_now(std::uint64_t* released_bytes) {
  if (auto error = failure()) return *error;
  auto released = defrag_epoch(calls_, config_.timeout_ms);
  if (!released.ok()) return released.take_error();
  if (released_bytes != nullptr) *released_bytes = released.value();
  return {};
}

Status Engine::set_defrag(std::uint32_t interval_ms) {
  if (interval_ms > 3'600'000) return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "interval_ms is above an hour");
  if (auto error = failure()) return *error;
  const std::uint32_t mine = interval_ms;
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  auto all = agree("defrag interval", std::as_bytes(std::span(&mine, 1)));
  if (!all.ok()) return all.take_error();
  for (std::uint32_t peer = 0; peer < world_; ++peer) {
    std::uint32_t theirs = 0;
    std::memcpy(&theirs, all.value()[peer].bytes.data(), std::min(sizeof theirs, all.value()[peer].bytes.size()));
    if (theirs != mine) return make_error(STEPCCL_ERROR_MISMATCH, STEPCCL_PHASE_ARGUMENTS, "it sets another interval", static_cast<std::int32_t>(peer));
  }
  if (interval_ms == 0) return set_own({{STEPCCL_GPU_HBM_DEFRAG, 0}});
  return set_own({{STEPCCL_GPU_HBM_DEFRAG, 1}, {STEPCCL_GPU_HBM_DEFRAG_INTERVAL_MS, interval_ms}});
}

}  // namespace stepccl::cuda
