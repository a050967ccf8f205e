// SPDX-License-Identifier: Apache-2.0
#include "telemetry/gpu_board.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>

namespace stepccl::telemetry {

bool GpuBoard::open(const std::string& directory, std::uint64_t comm_id, std::uint32_t rank, std::uint32_t world, const std::string& job_name) {
  if (!file_.create(directory, comm_id, rank, "gpu", sizeof(stepccl_gpu_board))) return false;
  board_ = reinterpret_cast<stepccl_gpu_board*>(file_.data());
  board_->version = STEPCCL_GPU_VERSION;
  board_->total_bytes = sizeof *board_;
  board_->pid = static_cast<std::uint32_t>(getpid());
  board_->rank = rank;
  board_->world_size = world;
  board_->comm_id = comm_id;
  std::memcpy(board_->job_name, job_name.data(), std::min(job_name.size(), sizeof board_->job_name - 1));
  // Last: a reader that sees the magic sees all of it.
  __atomic_store_n(&board_->magic, STEPCCL_GPU_MAGIC, __ATOMIC_RELEASE);
  return true;
}

void GpuBoard::publish(const stepccl_gpu_board& now) noexcept {
  if (board_ == nullptr) return;
  stepccl_gpu_board copy = now;
  copy.comm_id = board_->comm_id;
  std::memcpy(copy.job_name, board_->job_name, sizeof copy.job_name);
  constexpr std::size_t kBody = offsetof(stepccl_gpu_board, error);
  __atomic_store_n(&board_->edits, board_->edits + 1, __ATOMIC_RELAXED);
  std::atomic_thread_fence(std::memory_order_release);  // no store of the body before it
  std::memcpy(reinterpret_cast<std::byte*>(board_) + kBody, reinterpret_cast<const std::byte*>(&copy) + kBody, sizeof copy - kBody);
  __atomic_store_n(&board_->edits, board_->edits + 1, __ATOMIC_RELEASE);
}

}  // namespace stepccl::telemetry
