// SPDX-License-Identifier: Apache-2.0
#include "telemetry/ring_writer.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "core/clock.hpp"

namespace stepccl::telemetry {

bool RingWriter::open(const std::string& directory, std::uint64_t comm_id, std::uint32_t rank, std::uint32_t world, const std::string& job_name) {
  char name[64];
  std::snprintf(name, sizeof name, "/%d.%u.%016llx.ring", static_cast<int>(getpid()), rank, static_cast<unsigned long long>(comm_id));
  const std::string path = directory + name;
  // Not followed and not reused: the directory may be writable for others.
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0660));
  if (!fd) return false;
  constexpr std::size_t kFlowsAt = sizeof(stepccl_ring_header);
  constexpr std::size_t kOpsAt = kFlowsAt + STEPCCL_RING_FLOWS * sizeof(stepccl_flow);
  constexpr std::size_t kBytes = kOpsAt + STEPCCL_RING_OP_SLOTS * sizeof(stepccl_op);
  // The umask may have cut the group's bits; without real blocks a full file system would be a SIGBUS later.
  if (::fchmod(fd.get(), 0660) != 0 || ::posix_fallocate(fd.get(), 0, static_cast<off_t>(kBytes)) != 0) {
    ::unlink(path.c_str());
    return false;
  }
  void* map = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (map == MAP_FAILED) {
    ::unlink(path.c_str());
    return false;
  }
  auto* base = static_cast<std::byte*>(map);
  header_ = reinterpret_cast<stepccl_ring_header*>(base);
  flows_ = reinterpret_cast<stepccl_flow*>(base + kFlowsAt);
  ops_ = reinterpret_cast<stepccl_op*>(base + kOpsAt);
  bytes_ = kBytes;
  path_ = path;
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

RingWriter::~RingWriter() {
  if (header_ == nullptr) return;
  ::munmap(header_, bytes_);
  ::unlink(path_.c_str());
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
