// SPDX-License-Identifier: Apache-2.0
// The engine's thread for what goes on beside the calls: epochs of defragmentation, settings of the node's daemon, and
// the board that shows the engine to it.
//
// Rank 0 begins an epoch by a note to all; the others join it when the note comes. What all ranks must do alike takes
// effect between the same two calls on every rank: at once where none is ahead of another, else after the last call
// that any of them has made, when they come to the next one.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "core/capi.hpp"
#include "core/clock.hpp"
#include "cuda/engine.hpp"
#include "cuda/lane_owners.hpp"

namespace stepccl::cuda {
namespace {

constexpr std::uint32_t kTickMs = 20;
constexpr std::uint32_t kLockMs = 50;
constexpr std::uint64_t kBoardNs = 250'000'000;
constexpr std::uint64_t kMemoryLookNs = 1'000'000'000;
constexpr std::uint64_t kPageLookNs = 1'000'000'000;
constexpr std::uint64_t kRetryNs = 100'000'000;
constexpr std::uint64_t kDefaultPageBytes = 128u << 20;
constexpr std::uint32_t kDefaultDefragMs = 500;

enum EpochKind : std::uint32_t { kDefrag = 1, kSettings = 2 };
struct EpochNote {
  std::uint32_t kind = 0;
  std::uint32_t reserved = 0;
  stepccl_control page{};
};

template <std::size_t N>
void put(std::uint8_t (&to)[N], const char* text) {
  std::snprintf(reinterpret_cast<char*>(to), N, "%s", text);
}

}  // namespace

void Engine::open_background() {
  own_[STEPCCL_GPU_PIPELINE_DEPTH] = config_.pipeline_depth;
  own_[STEPCCL_GPU_SM_BUDGET] = config_.sm_budget;
  own_[STEPCCL_GPU_DMA_CONCURRENCY] = config_.dma_concurrency;
  own_[STEPCCL_GPU_ASYNC_GD] = config_.async_gd ? 1 : 0;
  own_[STEPCCL_GPU_HBM_DEFRAG_INTERVAL_MS] = kDefaultDefragMs;
  own_[STEPCCL_GPU_PAGE_BYTES] = kDefaultPageBytes;
  own_[STEPCCL_GPU_PREFETCH_DEPTH] = 2;
  own_[STEPCCL_GPU_BUFFER_BYTES] = config_.pool_bytes;
  own_[STEPCCL_GPU_HBM_CACHE_RATIO_PERMILLE] = static_cast<std::uint64_t>(config_.hbm_cache_ratio * 1000 + 0.5);
  plan_.values = own_;
  limits_.sm_budget = kMaxBlocks;
  limits_.dma_concurrency = side_streams_.size();
  limits_.pool_bytes = arena_->address_bytes();
  const Settings& settings = comm_->comm->settings();
  control_file_ = settings.control_file;
  if (!settings.telemetry_dir.empty()) {
    stepccl_comm_info_t info{};
    info.size = sizeof info;
    if (stepccl_comm_query(comm_, &info) == STEPCCL_SUCCESS) board_.open(settings.telemetry_dir, info.comm_id, rank_, world_, settings.job_name);
  }
  background_ = std::thread([this] { background(); });
}

void Engine::background() {
  const ContextScope scope(*driver_, context_);
  bool together = true;  // no rank has left
  std::uint64_t next_board_ns = 0;
  std::uint64_t next_page_ns = 0;
  std::uint64_t next_settings_ns = 0;
  std::uint64_t next_defrag_ns = 0;
  while (!stop_background_.load()) {
    if (rank_ == 0 || !together) std::this_thread::sleep_for(std::chrono::milliseconds(kTickMs));
    const bool called = rank_ != 0 && together && epochs_.wait_readable(0, kTickMs);
    together = together && !failed_.load();
    EpochNote note;
    std::uint64_t now = monotonic_ns();
    if (rank_ == 0 && together) {
      if (!page_.is_open() && now >= next_page_ns) {  // the daemon may have come later
        page_.open(control_file_);
        next_page_ns = now + kPageLookNs;
      }
      const stepccl_control& page = page_.read();
      const std::uint32_t interval = defrag_interval_ms_.load();
      if (page.seq != settled_seq_ && now >= next_settings_ns) {
        note.kind = kSettings;
        note.page = page;
        next_settings_ns = now + kRetryNs;
      } else if (interval != 0 && now >= next_defrag_ns) {
        note.kind = kDefrag;
        next_defrag_ns = now + std::uint64_t{interval} * 1'000'000u;
      }
    }
    if (called || note.kind != 0) together = hold_epoch(std::as_bytes(std::span(&note, 1)));
    now = monotonic_ns();
    if (now >= next_board_ns || board_stale_.exchange(false)) {
      publish_board();
      next_board_ns = now + kBoardNs;
    }
  }
}

// False: no further epoch is possible.
bool Engine::hold_epoch(std::span<const std::byte> note) {
  // Without the lock: a rank that is inside a call still joins, and says so.
  auto notes = epochs_.exchange(note, {}, config_.timeout_ms, [this] { return keep_epoch(); });
  if (!notes.ok() || notes.value()[0].bytes.size() != sizeof(EpochNote)) return false;  // a rank is leaving
  EpochNote first;
  if (rank_ == 0) std::memcpy(&first, note.data(), sizeof first);
  else std::memcpy(&first, notes.value()[0].bytes.data(), sizeof first);
  Status status;
  if (first.kind == kDefrag) {
    auto released = defrag_epoch(epochs_, kLockMs);
    if (!released.ok()) status = released.take_error();
  } else if (first.kind == kSettings) {
    status = settings_epoch(first.page);
  }
  board_stale_.store(true);
  if (status.ok()) return true;
  if (status.error().code != STEPCCL_ERROR_ABORTED) fail(status.take_error());
  return false;
}

Status Engine::keep_epoch() const {
  if (auto error = failure()) return *error;
  if (stop_background_.load()) return make_error(STEPCCL_ERROR_ABORTED, STEPCCL_PHASE_REGISTER, "this rank leaves");
  return {};
}

Status Engine::settings_epoch(const stepccl_control& page) {
  std::unique_lock lock(mutex_, std::defer_lock);
  Progress mine;
  const bool held = lock.try_lock_for(std::chrono::milliseconds(kLockMs));
  if (held && !pending_) {
    mine.ready = 1;
    mine.idle = !lanes_[0].used || driver_->cuEventQuery(lanes_[0].done) == CUDA_SUCCESS;
    mine.calls = ledger_.calls_of(rank_);
    std::copy(pair_calls_.begin(), pair_calls_.end(), mine.with_peer);
  }
  auto all = epochs_.exchange(std::as_bytes(std::span(&mine, 1)), {}, config_.timeout_ms, [this] { return keep_epoch(); });
  if (!all.ok()) return all.take_error();
  std::vector<Progress> ranks(world_);
  for (std::uint32_t peer = 0; peer < world_; ++peer) {
    if (all.value()[peer].bytes.size() != sizeof(Progress)) return make_error(STEPCCL_ERROR_PROTOCOL, STEPCCL_PHASE_REGISTER, "a message has another size", static_cast<std::int32_t>(peer));
    std::memcpy(&ranks[peer], all.value()[peer].bytes.data(), sizeof(Progress));
  }
  const Moment moment = moment_for(ranks.data(), world_);
  if (!moment.possible) return {};
  settled_seq_ = page.seq;
  // Pages can't be exchanged under operations that use them; at a call's beginning a rank may wait for its stream.
  const LivePlan plan = plan_live(own_, wishes_of(page), limits_);
  if (moment.now && (moment.idle || !changes_paging(plan))) return apply_page(page);
  pending_ = page;
  pending_after_call_ = moment.after_call;
  return {};
}

// The lock is held, on every rank between the same two calls.
Status Engine::apply_page(const stepccl_control& page) {
  wishes_ = wishes_of(page);
  applied_seq_ = page.seq;
  plan_ = plan_live(own_, wishes_, limits_);
  return follow_plan();
}

bool Engine::changes_paging(const LivePlan& plan) const {
  const std::uint64_t page_bytes = plan.values[STEPCCL_GPU_PAGING] != 0 ? plan.values[STEPCCL_GPU_PAGE_BYTES] : 0;
  return page_bytes != page_bytes_ || (page_bytes != 0 && plan.values[STEPCCL_GPU_PREFETCH_DEPTH] != prefetch_depth_);
}

Status Engine::follow_plan() {
  board_stale_.store(true);
  const auto value = [&](stepccl_gpu_setting setting) { return plan_.values[setting]; };
  config_.pipeline_depth = static_cast<std::uint32_t>(value(STEPCCL_GPU_PIPELINE_DEPTH));
  config_.sm_budget = static_cast<std::uint32_t>(value(STEPCCL_GPU_SM_BUDGET));
  config_.dma_concurrency = static_cast<std::uint32_t>(value(STEPCCL_GPU_DMA_CONCURRENCY));
  async_gd_.store(value(STEPCCL_GPU_ASYNC_GD) != 0);
  async_by_daemon_.store(wishes_[STEPCCL_GPU_ASYNC_GD].has_value());
  const bool defrag = value(STEPCCL_GPU_HBM_DEFRAG) != 0;
  if (defrag) gated_.store(true);
  defrag_interval_ms_.store(defrag ? static_cast<std::uint32_t>(value(STEPCCL_GPU_HBM_DEFRAG_INTERVAL_MS)) : 0);
  pool_->set_capacity(pool_capacity(value(STEPCCL_GPU_BUFFER_BYTES), limits_.device_bytes / 1000 * value(STEPCCL_GPU_HBM_CACHE_RATIO_PERMILLE)));

  if (!changes_paging(plan_)) return {};
  Status status = change_paging(value(STEPCCL_GPU_PAGING) != 0 ? value(STEPCCL_GPU_PAGE_BYTES) : 0, static_cast<std::uint32_t>(value(STEPCCL_GPU_PREFETCH_DEPTH)));
  if (status.ok() || status.error().code != STEPCCL_ERROR_GPU_OUT_OF_MEMORY) return status;
  // On every rank alike: paging is off now.
  plan_.values[STEPCCL_GPU_PAGING] = 0;
  for (const auto setting : {STEPCCL_GPU_PAGING, STEPCCL_GPU_PAGE_BYTES, STEPCCL_GPU_PREFETCH_DEPTH}) {
    if (wishes_[setting]) plan_.refused[setting] = STEPCCL_GPU_REASON_NO_MEMORY;
  }
  return {};
}

Status Engine::apply_pending() {
  if (!pending_ || ledger_.calls_of(rank_) < pending_after_call_) return {};
  const stepccl_control page = *pending_;
  pending_.reset();
  return apply_page(page);
}

// A value that the process sets itself: in force unless the daemon wishes another.
Status Engine::set_own(std::initializer_list<std::pair<stepccl_gpu_setting, std::uint64_t>> values) {
  for (const auto& [setting, value] : values) own_[setting] = value;
  plan_ = plan_live(own_, wishes_, limits_);
  return follow_plan();
}

void Engine::publish_board() {
  const std::unique_lock lock(mutex_, std::chrono::milliseconds(10));
  if (!lock.owns_lock()) return;  // a caller waits for other ranks: the board shows its age
  stepccl_gpu_board now{};
  const auto error = failure();
  now.error = error ? static_cast<std::uint32_t>(error->code) : 0;
  now.updated_ns = monotonic_ns();
  now.operations = operations_.load(std::memory_order_relaxed);
  stepccl_cuda_info_t info{};
  query(info);
  put(now.gpu_uuid, info.gpu_uuid);
  put(now.async_reason, info.async_reason);
  now.async_level = info.async_level;
  now.multiprocessors = info.multiprocessors;
  now.sm_budget = info.sm_budget;
  now.pipeline_depth = info.pipeline_depth;
  now.dma_concurrency = config_.dma_concurrency;
  now.prefetch_depth = info.prefetch_depth;
  now.graph_lanes = info.graph_lanes;
  now.lanes_in_use = info.lanes_in_use;
  now.defrag_interval_ms = info.defrag_interval_ms;
  now.page_bytes = info.page_bytes;
  now.fragmentation_permille = pool_->fragmentation_permille();
  now.last_before_permille = last_before_permille_;
  now.last_after_permille = last_after_permille_;
  now.hbm_cache_ratio_permille = static_cast<std::uint32_t>(plan_.values[STEPCCL_GPU_HBM_CACHE_RATIO_PERMILLE]);
  now.defrag_blocked = defrag_blocked_;
  now.capacity_bytes = pool_->capacity_bytes();
  now.held_bytes = pool_->held_bytes();
  now.used_bytes = pool_->used_bytes();
  now.staging_bytes = staging_bytes();
  now.largest_free_bytes = pool_->largest_free_bytes();
  now.buffers = pool_->buffers() - own_offsets_.size();
  if (now.updated_ns - memory_looked_ns_ >= kMemoryLookNs) {
    tend_segments();
    std::size_t free = 0;
    std::size_t total = 0;
    if (driver_->cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS) {
      device_free_bytes_ = free;
      device_total_bytes_ = total;
    }
    memory_looked_ns_ = now.updated_ns;
  }
  now.device_free_bytes = device_free_bytes_;
  now.device_total_bytes = device_total_bytes_;
  now.defrag_epochs = defrag_epochs_;
  now.defrag_moved_bytes = defrag_moved_bytes_;
  now.defrag_released_bytes = defrag_released_bytes_;
  now.last_epoch_us = last_epoch_us_;
  now.last_epoch_ns = last_epoch_ns_;
  now.control_seq = pending_ ? pending_->seq : applied_seq_;

  LiveValues in_force = plan_.values;
  in_force[STEPCCL_GPU_PAGING] = page_bytes_ != 0 ? 1 : 0;
  in_force[STEPCCL_GPU_HBM_DEFRAG] = defrag_interval_ms_.load() != 0 ? 1 : 0;
  const LivePlan unknown{};
  const bool waits = pending_.has_value();
  fill_rows(now.settings, waits ? wishes_of(*pending_) : wishes_, in_force, waits ? unknown : plan_, error ? STEPCCL_GPU_REASON_FAILED : waits ? STEPCCL_GPU_REASON_NEXT_CALL : STEPCCL_GPU_REASON_NONE);
  for (const memory::BackedPart& part : pool_->backed_parts()) {
    if (now.range_count == STEPCCL_GPU_RANGES) {
      ++now.ranges_omitted;
      continue;
    }
    stepccl_gpu_range& range = now.ranges[now.range_count++];
    range.offset = part.extent.offset;
    range.bytes = part.extent.bytes;
    range.kind = !part.buffer ? STEPCCL_GPU_RANGE_FREE : own_offsets_.contains(*part.buffer) ? STEPCCL_GPU_RANGE_ENGINE : STEPCCL_GPU_RANGE_BUFFER;
  }
  board_.publish(now);
}

}  // namespace stepccl::cuda
