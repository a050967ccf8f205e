// SPDX-License-Identifier: Apache-2.0
#include "telemetry/flight_recorder.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "stepccl/stepccl.h"

namespace stepccl::telemetry {
namespace {

constexpr std::uint64_t kSlotMask = STEPCCL_FLIGHT_OP_SLOTS - 1;
constexpr int kProbes = 16;  // slots that are looked at for one whose operation has ended

// Makes `edits` odd while a record is changed.
class Edit {
 public:
  explicit Edit(stepccl_flight_op& op) noexcept : op_(op) {
    __atomic_store_n(&op_.edits, op_.edits + 1, __ATOMIC_RELAXED);
    std::atomic_thread_fence(std::memory_order_release);  // no store of the record before it
  }
  ~Edit() { __atomic_store_n(&op_.edits, op_.edits + 1, __ATOMIC_RELEASE); }
  Edit(const Edit&) = delete;
  Edit& operator=(const Edit&) = delete;

 private:
  stepccl_flight_op& op_;
};

}  // namespace

bool FlightRecorder::open(const std::string& directory, std::uint64_t comm_id, std::uint32_t rank, std::uint32_t world, const std::string& job_name) {
  constexpr std::size_t kBytes = sizeof(stepccl_flight_header) + STEPCCL_FLIGHT_OP_SLOTS * sizeof(stepccl_flight_op);
  if (!file_.create(directory, comm_id, rank, "flight", kBytes)) return false;
  header_ = reinterpret_cast<stepccl_flight_header*>(file_.data());
  ops_ = reinterpret_cast<stepccl_flight_op*>(file_.data() + sizeof(stepccl_flight_header));
  header_->version = STEPCCL_FLIGHT_VERSION;
  header_->header_bytes = sizeof(stepccl_flight_header);
  header_->op_slots = STEPCCL_FLIGHT_OP_SLOTS;
  header_->pid = static_cast<std::uint32_t>(getpid());
  header_->rank = rank;
  header_->world_size = world;
  header_->comm_id = comm_id;
  std::memcpy(header_->job_name, job_name.data(), std::min(job_name.size(), sizeof header_->job_name - 1));
  // Last: a reader that sees the magic sees all of it.
  __atomic_store_n(&header_->magic, STEPCCL_FLIGHT_MAGIC, __ATOMIC_RELEASE);
  return true;
}

// A holder may lose its CPU: whoever waits gives its own away after a while.
class FlightRecorder::Guard {
 public:
  explicit Guard(std::atomic_flag& flag) noexcept : flag_(flag) {
    for (int spins = 0; flag_.test_and_set(std::memory_order_acquire);) {
      if (++spins % 64 == 0) sched_yield();
    }
  }
  ~Guard() { flag_.clear(std::memory_order_release); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  std::atomic_flag& flag_;
};

stepccl_flight_op* FlightRecorder::find(std::uint64_t number) noexcept {
  const std::uint64_t slot = (number - 1) & kSlotMask;
  return open_[slot] == number ? &ops_[slot] : nullptr;
}

std::uint64_t FlightRecorder::called(const stepccl_flight_op& op) noexcept {
  if (header_ == nullptr) return 0;
  const Guard guard(lock_);
  for (int probe = 0; probe < kProbes; ++probe, ++head_) {
    const std::uint64_t slot = head_ & kSlotMask;
    if (open_[slot] != 0) continue;
    {
      const Edit edit(ops_[slot]);
      constexpr std::size_t kAfterEdits = sizeof op.edits;
      std::memcpy(reinterpret_cast<std::byte*>(&ops_[slot]) + kAfterEdits, reinterpret_cast<const std::byte*>(&op) + kAfterEdits, sizeof op - kAfterEdits);
    }
    ++head_;
    open_[slot] = op.state < STEPCCL_FLIGHT_COMPLETED ? head_ : 0;
    __atomic_store_n(&header_->op_head, head_, __ATOMIC_RELEASE);
    return head_;
  }
  return 0;
}

void FlightRecorder::started(std::uint64_t number, std::uint64_t now_ns, std::uint64_t sequence, std::uint8_t algorithm, std::uint8_t transport) noexcept {
  if (number == 0) return;
  const Guard guard(lock_);
  stepccl_flight_op* op = find(number);
  if (op == nullptr) return;
  const Edit edit(*op);
  op->sequence = sequence;
  op->started_ns = now_ns;
  op->state = STEPCCL_FLIGHT_STARTED;
  op->algorithm = algorithm;
  op->transport = transport;
}

void FlightRecorder::waits_for(std::uint64_t number, std::span<const std::uint32_t> ranks) noexcept {
  if (number == 0) return;
  const Guard guard(lock_);
  stepccl_flight_op* op = find(number);
  if (op == nullptr || (ranks.empty() && op->waiting_count == 0)) return;
  const Edit edit(*op);
  op->waiting_count = static_cast<std::uint32_t>(ranks.size());
  std::copy_n(ranks.begin(), std::min<std::size_t>(ranks.size(), STEPCCL_FLIGHT_WAITING), op->waiting);
}

void FlightRecorder::ended(std::uint64_t number, std::uint64_t now_ns, std::uint16_t error) noexcept {
  if (number == 0) return;
  const Guard guard(lock_);
  // A call that was refused (R1xx) leaves the communicator as it was.
  if (error >= STEPCCL_ERROR_PEER_CLOSED) keep_ = true;
  stepccl_flight_op* op = find(number);
  if (op == nullptr) return;
  open_[(number - 1) & kSlotMask] = 0;
  const Edit edit(*op);
  op->ended_ns = now_ns;
  op->error = error;
  op->state = error == 0 ? STEPCCL_FLIGHT_COMPLETED : STEPCCL_FLIGHT_FAILED;
  if (error == 0) op->waiting_count = 0;
}

}  // namespace stepccl::telemetry
