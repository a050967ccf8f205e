// SPDX-License-Identifier: Apache-2.0
#include "telemetry/flight_recorder.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace stepccl::telemetry {
namespace {

constexpr std::uint64_t kSlotMask = STEPCCL_FLIGHT_OP_SLOTS - 1;

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

stepccl_flight_op* FlightRecorder::find(std::uint64_t sequence) noexcept {
  if (header_ == nullptr || head_ == 0) return nullptr;
  const std::uint64_t number = sequence - first_sequence_;
  if (number >= head_ || head_ - number > STEPCCL_FLIGHT_OP_SLOTS) return nullptr;  // overwritten, or never called
  return &ops_[number & kSlotMask];
}

void FlightRecorder::called(const stepccl_flight_op& op) noexcept {
  if (header_ == nullptr) return;
  if (head_ == 0) first_sequence_ = op.sequence;
  stepccl_flight_op& slot = ops_[head_ & kSlotMask];
  {
    const Edit edit(slot);
    constexpr std::size_t kAfterEdits = sizeof slot.edits;
    std::memcpy(reinterpret_cast<std::byte*>(&slot) + kAfterEdits, reinterpret_cast<const std::byte*>(&op) + kAfterEdits, sizeof op - kAfterEdits);
  }
  ++head_;
  __atomic_store_n(&header_->op_head, head_, __ATOMIC_RELEASE);
}

void FlightRecorder::started(std::uint64_t sequence, std::uint64_t now_ns, std::uint8_t algorithm, std::uint8_t transport) noexcept {
  stepccl_flight_op* op = find(sequence);
  if (op == nullptr) return;
  const Edit edit(*op);
  op->started_ns = now_ns;
  op->state = STEPCCL_FLIGHT_STARTED;
  op->algorithm = algorithm;
  op->transport = transport;
}

void FlightRecorder::waits_for(std::uint64_t sequence, std::span<const std::uint32_t> ranks) noexcept {
  stepccl_flight_op* op = find(sequence);
  if (op == nullptr || (ranks.empty() && op->waiting_count == 0)) return;
  const Edit edit(*op);
  op->waiting_count = static_cast<std::uint32_t>(ranks.size());
  std::copy_n(ranks.begin(), std::min<std::size_t>(ranks.size(), STEPCCL_FLIGHT_WAITING), op->waiting);
}

void FlightRecorder::ended(std::uint64_t sequence, std::uint64_t now_ns, std::uint16_t error) noexcept {
  if (error != 0) keep_ = true;
  stepccl_flight_op* op = find(sequence);
  if (op == nullptr) return;
  const Edit edit(*op);
  op->ended_ns = now_ns;
  op->error = error;
  op->state = error == 0 ? STEPCCL_FLIGHT_COMPLETED : STEPCCL_FLIGHT_FAILED;
  if (error == 0) op->waiting_count = 0;
}

}  // namespace stepccl::telemetry
