// SPDX-License-Identifier: Apache-2.0
// The engine's watcher: notices what went wrong elsewhere and sees to it that nothing waits for ever.
#include <chrono>

#include "core/clock.hpp"
#include "cuda/engine.hpp"
#include "cuda/lane_owners.hpp"

namespace stepccl::cuda {
namespace {

constexpr stepccl_phase_t kPhase = STEPCCL_PHASE_TRANSFER;

}  // namespace

void Engine::fail(Error error) {
  {
    const std::lock_guard lock(error_mutex_);
    if (failure_) return;
    failure_ = error;
    last_error_ = error;
  }
  failed_.store(true, std::memory_order_release);
  if (status_ != nullptr) __atomic_store_n(&status_->abort, 1u, __ATOMIC_RELEASE);
  // The others learn of it over the communicator, unless that is where it came from.
  stepccl_comm_info_t info{};
  info.size = sizeof info;
  if (stepccl_comm_query(comm_, &info) == STEPCCL_SUCCESS && info.state == STEPCCL_SUCCESS) stepccl_comm_abort(comm_);
}

Error Engine::communicator_error(stepccl_result_t code) const {
  // A failed communicator answers every call at once with what ended it.
  std::uint8_t nothing = 0;
  stepccl_all_reduce(comm_, &nothing, &nothing, 1, STEPCCL_UINT8, STEPCCL_SUM, nullptr);
  stepccl_error_info_t info{};
  info.size = sizeof info;
  stepccl_last_error(comm_, &info);
  std::string cause = info.text;
  for (int part = 0; part < 2; ++part) cause = cause.substr(cause.find(": ") == std::string::npos ? 0 : cause.find(": ") + 2);
  return make_error(code, kPhase, cause.empty() ? "the communicator failed" : cause, info.peer, STEPCCL_TRANSPORT_GPU_PEER);
}

void Engine::abort() { fail(make_error(STEPCCL_ERROR_ABORTED, STEPCCL_PHASE_NONE, "the application aborted the engine")); }

std::optional<Error> Engine::failure() const {
  if (!failed_.load(std::memory_order_acquire)) return std::nullopt;
  const std::lock_guard lock(error_mutex_);
  return failure_;
}
void Engine::set_last_error(const Error& error) {
  const std::lock_guard lock(error_mutex_);
  last_error_ = error;
}
std::optional<Error> Engine::last_error() const {
  const std::lock_guard lock(error_mutex_);
  return last_error_;
}

// Streams that wait for a flag go on once it is 1, or as high as they count, whoever sets it.
void Engine::release_waiters() {
  for (const Lane& lane : lanes_) {
    driver_->cuMemcpyHtoDAsync_v2(lane.local, ones_, 2048, watch_stream_);
    driver_->cuMemcpyHtoDAsync_v2(lane.local + LaneLayout::chunk_came(0, 0), ones_, LaneLayout::chunk_end() - LaneLayout::chunk_came(0, 0), watch_stream_);
    for (const std::size_t count : {LaneLayout::chunk_done(), LaneLayout::relayed()}) driver_->cuMemcpyHtoDAsync_v2(lane.local + count, plenty_, sizeof *plenty_, watch_stream_);
  }
  driver_->cuMemcpyHtoDAsync_v2(words_, &gate_words_[32], sizeof(std::uint32_t), watch_stream_);  // 0: the gate is open
}

void Engine::watch() {
  const ContextScope scope(*driver_, context_);
  std::vector<std::uint64_t> standing_since_ns(lanes_.size(), monotonic_ns());
  std::uint32_t looks = 0;
  while (!stopping_.load()) {
    if (failed_.load()) {
      release_waiters();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    stepccl_comm_info_t info{};
    info.size = sizeof info;
    if (stepccl_comm_query(comm_, &info) == STEPCCL_SUCCESS && info.state != STEPCCL_SUCCESS) {
      fail(communicator_error(static_cast<stepccl_result_t>(info.state)));
      continue;
    }
    if (auto mismatch = ledger_.look()) {
      fail(std::move(*mismatch));
      continue;
    }
    const auto late = [&](std::uint32_t peer, std::uint32_t lane) {
      std::string cause = "it does not come within " + std::to_string(config_.timeout_ms) + " ms; it is at " + ledger_.describe_last(peer) + ", this rank at " + ledger_.describe_last(rank_);
      if (lane != 0) cause += " (a captured graph's)";
      fail(make_error(STEPCCL_ERROR_TIMEOUT, kPhase, cause, static_cast<std::int32_t>(peer), STEPCCL_TRANSPORT_GPU_PEER));
    };
    if (const std::uint32_t peer = __atomic_load_n(&status_->timed_out, __ATOMIC_ACQUIRE); peer != 0) {
      late(peer - 1, status_->lane);
      continue;
    }
    // What waits on a stream knows no timeout: look whether a lane's operation is the same one all the time. Each begins and
    // ends by wiping out the mark that is left here.
    if (++looks % 8 != 0) continue;
    if (driver_->cuMemcpyDtoHAsync_v2(phase_words_, words_ + 128, lanes_.size() * 8, watch_stream_) != CUDA_SUCCESS || driver_->cuStreamSynchronize(watch_stream_) != CUDA_SUCCESS) {
      fail(make_error(STEPCCL_ERROR_CUDA, kPhase, "the GPU does not answer any more"));
      continue;
    }
    const std::uint64_t now = monotonic_ns();
    for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
      const std::uint32_t waits_for = phase_words_[2 * i];  // 0: nobody; 1: all; 2 + the only one
      const bool marked = phase_words_[2 * i + 1] != 0;
      if (waits_for == 0 || !marked) standing_since_ns[i] = now;
      if (waits_for == 0) continue;
      if (!marked) driver_->cuMemcpyHtoDAsync_v2(words_ + 128 + i * 8 + 4, ones_, sizeof(std::uint32_t), watch_stream_);
      if (now - standing_since_ns[i] < std::uint64_t{config_.timeout_ms} * 1'000'000u) continue;
      std::uint32_t slowest = waits_for >= 2 ? waits_for - 2 : rank_ == 0 && world_ > 1 ? 1 : 0;
      for (std::uint32_t peer = 0; peer < world_ && waits_for < 2; ++peer) {
        if (peer != rank_ && ledger_.calls_of(peer) < ledger_.calls_of(slowest)) slowest = peer;
      }
      late(slowest, i);
      break;
    }
  }
}

void Engine::query(stepccl_cuda_info_t& info) {
  info.device = config_.device;
  info.rank = rank_;
  info.world_size = world_;
  info.async_level = async_gd_.load() && stream_memory_ops_ ? STEPCCL_CUDA_ASYNC_STREAM : STEPCCL_CUDA_ASYNC_NONE;
  info.sm_budget = config_.sm_budget;
  info.multiprocessors = static_cast<std::uint32_t>(multiprocessors_);
  info.graph_lanes = config_.graph_lanes;
  info.lanes_in_use = owners_->in_use();
  info.shared_lanes = shared_lanes_.load();
  info.handle_type = 1;
  info.last_path = last_path_.load(std::memory_order_relaxed);
  info.last_blocks = last_blocks_.load(std::memory_order_relaxed);
  info.defrag_interval_ms = defrag_interval_ms_.load();
  info.operations = operations_.load(std::memory_order_relaxed);
  info.page_bytes = page_bytes_;
  info.prefetch_depth = prefetch_depth_;
  info.pipeline_depth = config_.pipeline_depth;
  std::snprintf(info.gpu_uuid, sizeof info.gpu_uuid, "%s", uuid_.data());
  const char* reason = async_gd_.load()          ? "no network adapter is known to take its doorbell from the GPU"
                       : async_by_daemon_.load() ? "switched off by the daemon's setting async_gd"
                                                 : "switched off by STEPCCL_USE_ASYNC_GD=0 or async_gd";
  std::snprintf(info.async_reason, sizeof info.async_reason, "%s", reason);
}

}  // namespace stepccl::cuda
