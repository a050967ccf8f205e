// SPDX-License-Identifier: Apache-2.0
// Memory that all ranks see.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/clock.hpp"
#include "cuda/engine.hpp"

namespace stepccl::cuda {
namespace {

constexpr stepccl_phase_t kPhase = STEPCCL_PHASE_REGISTER;
constexpr std::size_t kTagBytes = 24;

struct AllocationHead {
  std::uint32_t code = 0;
  std::uint32_t extents = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct Registration {
  std::uint32_t code = 0;
  std::uint32_t misaligned = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // in the allocation that the handle names
  CUipcMemHandle handle{};
};

}  // namespace

Expected<std::vector<Contribution>> Engine::agree(const char* what, std::span<const std::byte> mine, std::span<const int> descriptors) {
  std::vector<std::byte> message(kTagBytes + mine.size());
  std::memcpy(message.data(), what, std::min(std::strlen(what), kTagBytes - 1));
  if (!mine.empty()) std::memcpy(message.data() + kTagBytes, mine.data(), mine.size());
  auto all = calls_.exchange(message, descriptors, config_.timeout_ms, [this]() -> Status {
    if (auto error = failure()) return *error;
    stepccl_comm_info_t info{};
    info.size = sizeof info;
    stepccl_comm_query(comm_, &info);
    if (info.state != STEPCCL_SUCCESS) return communicator_error(static_cast<stepccl_result_t>(info.state));
    return {};
  });
  if (!all.ok()) {
    Error error = all.take_error();
    error.cause = std::string("while agreeing on \"") + what + "\": " + error.cause;
    fail(error);
    return error;
  }
  for (std::uint32_t peer = 0; peer < world_; ++peer) {
    auto& bytes = all.value()[peer].bytes;
    if (bytes.size() < kTagBytes || std::memcmp(bytes.data(), message.data(), kTagBytes) != 0) {
      std::string theirs(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kTagBytes));
      theirs = theirs.substr(0, theirs.find('\0'));
      Error error = make_error(STEPCCL_ERROR_MISMATCH, kPhase, std::string("this rank is in \"") + what + "\", that one in \"" + theirs + '"', static_cast<std::int32_t>(peer), STEPCCL_TRANSPORT_GPU_PEER);
      fail(error);
      return error;
    }
    bytes.erase(bytes.begin(), bytes.begin() + kTagBytes);
  }
  return all;
}

Expected<Window> Engine::allocate_window(std::uint64_t bytes) {
  AllocationHead head;
  head.bytes = bytes;
  std::vector<Fd> descriptors;
  std::optional<Error> problem;
  auto placement = pool_->allocate(bytes);
  if (!placement) {
    problem = make_error(STEPCCL_ERROR_GPU_OUT_OF_MEMORY, kPhase,
                         "the pool (at most " + std::to_string(pool_->capacity_bytes()) + " bytes, " + std::to_string(pool_->used_bytes()) + " in use) has no room for " + std::to_string(bytes));
  } else {
    for (const memory::Extent& extent : placement->grow) {
      auto descriptor = arena_->create(extent);
      if (!descriptor.ok()) {
        problem = descriptor.take_error();
        break;
      }
      descriptors.push_back(std::move(descriptor.value()));
    }
  }
  const auto undo = [&] {
    if (!placement) return;
    for (const memory::Extent& extent : placement->grow) {
      arena_->drop(rank_, extent);
      pool_->forget(extent);
    }
    pool_->free(placement->offset);
  };
  std::vector<std::byte> message(sizeof head);
  std::vector<int> numbers;
  if (problem) {
    head.code = static_cast<std::uint32_t>(problem->code);
  } else {
    head.extents = static_cast<std::uint32_t>(placement->grow.size());
    head.offset = placement->offset;
    for (const Fd& descriptor : descriptors) numbers.push_back(descriptor.get());
    const auto extents = std::as_bytes(std::span(placement->grow));
    message.insert(message.end(), extents.begin(), extents.end());
  }
  std::memcpy(message.data(), &head, sizeof head);
  auto all = agree("mem_alloc", message, numbers);
  if (!all.ok()) {
    undo();
    return all.take_error();
  }
  Window window;
  window.bytes = bytes;
  window.pooled = true;
  std::vector<std::pair<std::uint32_t, memory::Extent>> imported;
  for (std::uint32_t peer = 0; peer < world_ && !problem; ++peer) {
    const Contribution& theirs = all.value()[peer];
    AllocationHead other;
    if (theirs.bytes.size() < sizeof other) {
      problem = make_error(STEPCCL_ERROR_PROTOCOL, kPhase, "a message is too short", static_cast<std::int32_t>(peer));
      break;
    }
    std::memcpy(&other, theirs.bytes.data(), sizeof other);
    if (other.code != 0) {
      problem = make_error(static_cast<stepccl_result_t>(other.code), kPhase, "it could not allocate its part", static_cast<std::int32_t>(peer));
    } else if (other.bytes != bytes) {
      problem = make_error(STEPCCL_ERROR_MISMATCH, kPhase, "it allocates " + std::to_string(other.bytes) + " bytes, this rank " + std::to_string(bytes), static_cast<std::int32_t>(peer));
    } else {
      window.base[peer] = arena_->base(peer) + other.offset;
    }
    if (problem || peer == rank_) continue;
    if (theirs.bytes.size() != sizeof other + other.extents * sizeof(memory::Extent) || theirs.descriptors.size() != other.extents) {
      problem = make_error(STEPCCL_ERROR_PROTOCOL, kPhase, "extents and descriptors don't fit together", static_cast<std::int32_t>(peer));
      break;
    }
    for (std::uint32_t i = 0; i < other.extents && !problem; ++i) {
      memory::Extent extent;
      std::memcpy(&extent, theirs.bytes.data() + sizeof other + i * sizeof extent, sizeof extent);
      if (Status status = arena_->import(peer, extent, theirs.descriptors[i]); !status.ok()) problem = status.take_error();
      else imported.emplace_back(peer, extent);
    }
  }
  // All or none: a peer may have failed to map.
  const std::uint32_t code = problem ? static_cast<std::uint32_t>(problem->code) : 0;
  auto verdicts = agree("mem_alloc end", std::as_bytes(std::span(&code, 1)));
  for (std::uint32_t peer = 0; peer < world_ && verdicts.ok() && !problem; ++peer) {
    std::uint32_t theirs = 0;
    std::memcpy(&theirs, verdicts.value()[peer].bytes.data(), std::min(sizeof theirs, verdicts.value()[peer].bytes.size()));
    if (theirs != 0) problem = make_error(static_cast<stepccl_result_t>(theirs), kPhase, "it could not map this memory", static_cast<std::int32_t>(peer));
  }
  if (!verdicts.ok()) problem = verdicts.take_error();
  if (problem) {
    for (const auto& [peer, extent] : imported) arena_->drop(peer, extent);
    undo();
    return *problem;
  }
  window.id = next_window_++;
  windows_[window.base[rank_]] = window;
  return window;
}

// patient: for as long as the application's own work before it takes; the watcher knows whether a peer is to blame.
Status Engine::settle_streams(bool patient) {
  const Deadline deadline = Deadline::after_ms(config_.timeout_ms);
  Lane& lane = lanes_[0];
  while (lane.used) {
    const CUresult result = driver_->cuEventQuery(lane.done);
    if (result == CUDA_SUCCESS) break;
    if (result != CUDA_ERROR_NOT_READY) return driver_->error(result, "cuEventQuery", kPhase);
    if (auto error = failure()) return *error;
    if (!patient && deadline.passed()) return make_error(STEPCCL_ERROR_TIMEOUT, kPhase, "this engine's queued work does not end");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return {};
}

Status Engine::mem_alloc(void** pointer, std::size_t bytes) {
  if (bytes == 0) return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "bytes is 0");
  const std::lock_guard lock(mutex_);
  if (auto error = failure()) return *error;
  const ContextScope scope(*driver_, context_);
  auto window = allocate_window(bytes);
  if (!window.ok()) return window.take_error();
  *pointer = reinterpret_cast<void*>(window.value().base[rank_]);
  return {};
}

Status Engine::mem_free(void* pointer) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  const auto found = windows_.find(reinterpret_cast<CUdeviceptr>(pointer));
  if (found == windows_.end() || !found->second.pooled) return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "pointer is no buffer of stepccl_cuda_mem_alloc");
  if (!failed_.load()) {
    if (Status status = settle_streams(); !status.ok()) return status;
  }
  pool_->free(found->first - arena_->base(rank_));
  windows_.erase(found);
  return {};
}

Status Engine::register_memory(void* pointer, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (auto error = failure()) return *error;
  if (pointer == nullptr || bytes == 0) return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, pointer == nullptr ? "pointer is NULL" : "bytes is 0");
  const ContextScope scope(*driver_, context_);
  Registration mine;
  mine.bytes = bytes;
  CUdeviceptr base = 0;
  std::size_t range = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  std::optional<Error> problem;
  if (driver_->cuMemGetAddressRange_v2(&base, &range, address) != CUDA_SUCCESS || address + bytes > base + range) {
    problem = make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "pointer and bytes are not inside one device allocation");
  } else if (driver_->cuIpcGetMemHandle(&mine.handle, base) != CUDA_SUCCESS) {
    problem = make_error(STEPCCL_ERROR_UNSUPPORTED, kPhase, "this kind of memory can't be shared by CUDA IPC: allocate it with stepccl_cuda_mem_alloc");
  } else if (address % 16 != 0) {
    problem = make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "pointer is not aligned to 16 bytes");
  }
  mine.code = problem ? static_cast<std::uint32_t>(problem->code) : 0;
  mine.offset = address - base;
  auto all = agree("register", std::as_bytes(std::span(&mine, 1)));
  if (!all.ok()) return all.take_error();
  Window window;
  window.bytes = bytes;
  std::vector<CUdeviceptr> opened;
  for (std::uint32_t peer = 0; peer < world_ && !problem; ++peer) {
    Registration theirs;
    if (all.value()[peer].bytes.size() != sizeof theirs) return make_error(STEPCCL_ERROR_PROTOCOL, kPhase, "a message has another size", static_cast<std::int32_t>(peer));
    std::memcpy(&theirs, all.value()[peer].bytes.data(), sizeof theirs);
    if (theirs.code != 0) problem = make_error(static_cast<stepccl_result_t>(theirs.code), kPhase, "it can't share its buffer", static_cast<std::int32_t>(peer));
    else if (theirs.bytes != bytes) problem = make_error(STEPCCL_ERROR_MISMATCH, kPhase, "it registers " + std::to_string(theirs.bytes) + " bytes, this rank " + std::to_string(bytes), static_cast<std::int32_t>(peer));
    if (problem) break;
    window.base[peer] = address;
    if (peer == rank_) continue;
    CUdeviceptr mapped = 0;
    if (const CUresult result = driver_->cuIpcOpenMemHandle_v2(&mapped, theirs.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS); result != CUDA_SUCCESS) {
      problem = driver_->error(result, "cuIpcOpenMemHandle", kPhase);
      problem->peer = static_cast<std::int32_t>(peer);
      break;
    }
    opened.push_back(mapped);
    window.base[peer] = mapped + theirs.offset;
    window.mapped_offset[peer] = theirs.offset;
  }
  const std::uint32_t code = problem ? static_cast<std::uint32_t>(problem->code) : 0;
  auto verdicts = agree("register end", std::as_bytes(std::span(&code, 1)));
  for (std::uint32_t peer = 0; peer < world_ && verdicts.ok() && !problem; ++peer) {
    std::uint32_t theirs = 0;
    std::memcpy(&theirs, verdicts.value()[peer].bytes.data(), std::min(sizeof theirs, verdicts.value()[peer].bytes.size()));
    if (theirs != 0) problem = make_error(static_cast<stepccl_result_t>(theirs), kPhase, "it could not map this buffer", static_cast<std::int32_t>(peer));
  }
  if (!verdicts.ok()) problem = verdicts.take_error();
  if (problem) {
    for (const CUdeviceptr mapped : opened) driver_->cuIpcCloseMemHandle(mapped);
    return *problem;
  }
  window.id = next_window_++;
  windows_[address] = window;
  return {};
}

Status Engine::deregister(void* pointer) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  const auto found = windows_.find(reinterpret_cast<CUdeviceptr>(pointer));
  if (found == windows_.end() || found->second.pooled) return make_error(STEPCCL_ERROR_INVALID_ARGUMENT, STEPCCL_PHASE_ARGUMENTS, "pointer was not registered");
  if (!failed_.load()) {
    if (Status status = settle_streams(); !status.ok()) return status;
    if (auto all = agree("deregister", {}); !all.ok()) return all.take_error();
  }
  for (std::uint32_t peer = 0; peer < world_; ++peer) {
    if (peer != rank_) driver_->cuIpcCloseMemHandle(found->second.base[peer] - found->second.mapped_offset[peer]);
  }
  windows_.erase(found);
  return {};
}

const Window* Engine::window_of(CUdeviceptr pointer, std::uint64_t bytes) const {
  for (std::uint32_t i = 0; i < guest_count_; ++i) {
    const std::uint64_t inside = pointer - guests_[i].base[rank_];
    if (inside < guests_[i].bytes && bytes <= guests_[i].bytes - inside) return &guests_[i];
  }
  auto next = windows_.upper_bound(pointer);
  if (next == windows_.begin()) return nullptr;
  const Window& window = std::prev(next)->second;
  const std::uint64_t offset = pointer - window.base[rank_];
  return offset < window.bytes && bytes <= window.bytes - offset ? &window : nullptr;
}
const Window* Engine::window_of(const void* pointer, std::uint64_t bytes) const { return window_of(reinterpret_cast<CUdeviceptr>(pointer), bytes); }

std::uint64_t Engine::staging_bytes() const {
  std::uint64_t bytes = 0;
  for (const std::uint64_t offset : own_offsets_) bytes += pool_->buffer_bytes(offset);
  return bytes;
}

std::uint64_t Engine::pool_capacity(std::uint64_t bytes, std::uint64_t by_ratio) const {
  const std::uint64_t unit = pool_->granule();
  return std::min(std::max<std::uint64_t>((bytes != 0 ? bytes : by_ratio) / unit, 1) * unit, arena_->address_bytes());
}

Status Engine::pool_query(stepccl_cuda_pool_info_t& info) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  std::size_t free = 0;
  std::size_t total = 0;
  STEPCCL_CU(*driver_, kPhase, cuMemGetInfo_v2, &free, &total);
  info.fragmentation_permille = pool_->fragmentation_permille();
  info.capacity_bytes = pool_->capacity_bytes();
  info.held_bytes = pool_->held_bytes();
  info.used_bytes = pool_->used_bytes();
  info.staging_bytes = staging_bytes();
  info.largest_free_bytes = pool_->largest_free_bytes();
  info.buffers = pool_->buffers() - own_offsets_.size();
  info.defrag_epochs = defrag_epochs_;
  info.defrag_moved_bytes = defrag_moved_bytes_;
  info.defrag_released_bytes = defrag_released_bytes_;
  info.last_fragmentation_before_permille = last_before_permille_;
  info.last_fragmentation_after_permille = last_after_permille_;
  info.last_epoch_us = last_epoch_us_;
  info.device_free_bytes = free;
  info.device_total_bytes = total;
  info.device_used_by_engine_bytes = attach_used_bytes_ + pool_->held_bytes() - std::min(pool_bytes_at_attach_, pool_->held_bytes());
  return {};
}

}  // namespace stepccl::cuda
