// SPDX-License-Identifier: Apache-2.0
#include "telemetry/ring_writer.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/clock.hpp"

namespace stepccl::telemetry {

bool RingWriter::open(const std::string& directory, std::uint64_t comm_id, std::uint32_t rank, std::uint32_t world, const std::string& job_name) {
  constexpr std::size_t kFlowsAt = sizeof(stepccl_ring_header);
  constexpr std::size_t kOpsAt = kFlowsAt + STEPCCL_RING_FLOWS * sizeof(stepccl_flow);
  constexpr std::size_t kBytes = kOpsAt + STEPCCL_RING_OP_SLOTS * sizeof(stepccl_op);
  if (!file_.create(directory, comm_id, rank, "ring", kBytes)) return false;
  std::byte* base = file_.data();
  header_ = reinterpret_cast<stepccl_ring_header*>(base);
  flows_ = reinterpret_cast<stepccl_flow*>(base + kFlowsAt);
  ops_ = reinterpret_cast<stepccl_op*>(base + kOpsAt);
  header_->version = STEPCCL_RING_VERSION;
  header_->header_bytes = kFlowsAt;
  header_->op_slots = STEPCCL_RING_OP_SLOTS;
  header_->pid = static_cast<std::uint32_t>(getpid());
  header_->rank = rank;
  header_->world_size = world;
  header_->comm_id = comm_id;
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  header_->start_realtime_ns = static_cast<std::uint64_t>(wall.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(wall.tv_nsec);
  header_->heartbeat_ns = monotonic_ns();
  std::memcpy(header_->job_name, job_name.data(), std::min(job_name.size(), sizeof header_->job_name - 1));
  // Last: a reader that sees the magic sees all of it.
  __atomic_store_n(&header_->magic, STEPCCL_RING_MAGIC, __ATOMIC_RELEASE);
  return true;
}

Flow RingWriter::flow(std::uint32_t peer, stepccl_transport transport, const bootstrap::Endpoint& address) noexcept {
  if (header_ == nullptr) return Flow();
  const std::uint32_t used = header_->flow_count;
  for (std::uint32_t i = 0; i < used; ++i) {
    if (flows_[i].peer_rank == peer && flows_[i].transport == transport) return Flow(&flows_[i]);
  }
  if (used == STEPCCL_RING_FLOWS) return Flow();
  stepccl_flow& slot = flows_[used];
  slot.peer_rank = peer;
  slot.transport = static_cast<std::uint8_t>(transport);
  if (address.family == 4 && transport != STEPCCL_TRANSPORT_SHM) std::memcpy(&slot.peer_ipv4, address.address.data(), 4);
  __atomic_store_n(&header_->flow_count, used + 1, __ATOMIC_RELEASE);
  return Flow(&slot);
}

void RingWriter::publish(const stepccl_op& op) noexcept {
  if (header_ == nullptr) return;
  std::memcpy(&ops_[head_ & (STEPCCL_RING_OP_SLOTS - 1)], &op, sizeof op);
  ++head_;
  __atomic_store_n(&header_->op_head, head_, __ATOMIC_RELEASE);
}

void RingWriter::heartbeat(std::uint64_t now_ns) noexcept {
  if (header_ != nullptr) __atomic_store_n(&header_->heartbeat_ns, now_ns, __ATOMIC_RELAXED);
}

}  // namespace stepccl::telemetry
