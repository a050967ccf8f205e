// SPDX-License-Identifier: Apache-2.0
#include "transport/shm.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <linux/membarrier.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "transport/host.hpp"
#include "transport/node_engine.hpp"
#include "transport/stream.hpp"

namespace stepccl::transport {
namespace {

using bootstrap::ControlPlane;

constexpr std::size_t kRingBytes = 512u << 10;  // a power of two
constexpr std::uint32_t kInboxMagic = 0x31485353u;  // "SSH1"

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

// Counters of bytes since the beginning; each is written by one side only.
struct Ring {
  alignas(64) std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> read;
  alignas(64) std::byte data[kRingBytes];
};

struct InboxHeader {
  std::atomic<std::uint32_t> magic;
  std::uint32_t rings;
  // A secret of its owner, and where it stands in the owner's own memory: whoever reads it there can read that memory.
  std::uint64_t probe_address;
  std::array<std::byte, 16> probe;
  std::uint32_t can_fence_all;                      // its process takes part in membarrier, and polls more than it sleeps
  std::atomic<std::uint32_t> reads_peers;           // 1 its owner can read the memory of all, 2 it can't; 0 not known yet
  alignas(64) std::atomic<std::uint32_t> sleeping;  // its owner is about to sleep: whoever changes a ring wakes it
};

struct Inbox {
  alignas(64) InboxHeader header;
  BoardArea board;
  Ring rings[1];  // as many as the node has ranks
};

constexpr std::size_t inbox_bytes(std::size_t rings) noexcept { return offsetof(Inbox, rings) + rings * sizeof(Ring); }

Error system_error(const char* call, const std::string& what) {
  return make_error(errno == ENOSPC || errno == ENOMEM ? STEPCCL_ERROR_OUT_OF_MEMORY : STEPCCL_ERROR_SYSTEM, STEPCCL_PHASE_CONNECT,
                    std::string(call) + " " + what + ": " + errno_text(errno), -1, STEPCCL_TRANSPORT_SHM);
}

// A mapped inbox, own or a peer's.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* base, std::size_t bytes) noexcept : base_(base), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping() {
    if (base_ != nullptr) ::munmap(base_, bytes_);
  }
  [[nodiscard]] Inbox* inbox() const noexcept { return static_cast<Inbox*>(base_); }

 private:
  void* base_ = nullptr;
  std::size_t bytes_ = 0;
};

std::string inbox_name(std::uint64_t comm_id, std::uint32_t rank) {
  char name[64];
  std::snprintf(name, sizeof name, "/stepccl.%016llx.%u", static_cast<unsigned long long>(comm_id), rank);
  return name;
}

// In the abstract namespace, so that nothing is left behind.
socklen_t doorbell_address(sockaddr_un& address, std::uint64_t comm_id, std::uint32_t rank) {
  address = {};
  address.sun_family = AF_UNIX;
  const std::string name = inbox_name(comm_id, rank);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

// Makes this process one whose running threads a sleeper of any process can make execute a barrier. False where the kernel has
// no such thing, or a sandbox forbids it.
bool join_membarrier() noexcept { return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0; }

class ShmStream final : public ByteStream {
 public:
  ShmStream(Ring& out, Ring& in, std::uint32_t peer, const Bells& bells) : out_(out), in_(in), peer_(peer), bells_(bells) {}

  Expected<std::size_t> write(std::span<const iovec> parts) override {
    const std::uint64_t written = out_.written.load(std::memory_order_relaxed);
    const std::size_t room = kRingBytes - static_cast<std::size_t>(written - out_.read.load(std::memory_order_acquire));
    const std::size_t moved = move(parts, room, written, [this](std::size_t at, std::byte* part, std::size_t bytes) {
      std::memcpy(out_.data + at, part, bytes);
    });
    if (moved != 0) out_.written.store(written + moved, std::memory_order_release), ring_doorbell();
    return moved;
  }

  Expected<std::size_t> read(std::span<const iovec> parts) override {
    const std::uint64_t done = in_.read.load(std::memory_order_relaxed);
    const auto there = static_cast<std::size_t>(in_.written.load(std::memory_order_acquire) - done);
    if (there > kRingBytes) return Error{STEPCCL_ERROR_PROTOCOL, -1, {}, {}, "the shared ring's counters are impossible"};
    const std::size_t moved = move(parts, there, done, [this](std::size_t at, std::byte* part, std::size_t bytes) {
      std::memcpy(part, in_.data + at, bytes);
    });
    if (moved != 0) in_.read.store(done + moved, std::memory_order_release), ring_doorbell();
    return moved;
  }

  bool may_write() const noexcept override { return out_.written.load(std::memory_order_relaxed) - out_.read.load(std::memory_order_acquire) < kRingBytes; }
  bool may_read() const noexcept override { return in_.written.load(std::memory_order_acquire) != in_.read.load(std::memory_order_relaxed); }

 private:
  template <class Copy>
  static std::size_t move(std::span<const iovec> parts, std::size_t limit, std::uint64_t position, Copy&& copy) {
    std::size_t moved = 0;
    for (const iovec& part : parts) {
      std::size_t done = 0;
      while (done < part.iov_len && moved < limit) {
        const std::size_t at = static_cast<std::size_t>(position + moved) % kRingBytes;
        const std::size_t bytes = std::min({part.iov_len - done, limit - moved, kRingBytes - at});
        copy(at, static_cast<std::byte*>(part.iov_base) + done, bytes);
        done += bytes;
        moved += bytes;
      }
    }
    return moved;
  }

  void ring_doorbell() {
    bells_.before_ring();
    bells_.ring(peer_);
  }

  Ring& out_;
  Ring& in_;
  std::uint32_t peer_;
  const Bells& bells_;
};

class ShmTransport final : public StreamTransport {
 public:
  ShmTransport(ControlPlane& control, Poller& poller, telemetry::RingWriter& ring, bool single_copy)
      : StreamTransport(control, ring), poller_(poller), single_copy_(single_copy) {
    const auto& members = control_.members();
    for (std::uint32_t rank = 0; rank < members.size(); ++rank) {
      if (members[rank].host == members[control_.key().rank].host) local_.push_back(rank);
    }
  }

  ~ShmTransport() override {
    forget_name();
    if (doorbell_) poller_.remove(doorbell_.get());
  }

  stepccl_transport kind() const noexcept override { return STEPCCL_TRANSPORT_SHM; }

  NodeEngine* node_engine() noexcept override { return node_engine_.get(); }

  void all_connected() override {
    forget_name();
    if (local_.size() != control_.members().size() || local_.size() < 2) return;
    std::vector<BoardArea*> areas;
    std::vector<pid_t> pids;
    std::vector<telemetry::Flow> flows;
    bool everyone_reads = true;
    for (const std::uint32_t rank : local_) {
      Inbox* inbox = inbox_of(rank);
      areas.push_back(&inbox->board);
      pids.push_back(static_cast<pid_t>(control_.members()[rank].pid));
      flows.push_back(rank == control_.key().rank ? telemetry::Flow() : ring_.flow(rank, kind(), {}));
      everyone_reads = everyone_reads && inbox->header.reads_peers.load(std::memory_order_acquire) == 1;
    }
    node_engine_ = std::make_unique<NodeEngine>(std::make_unique<Board>(control_.key().rank, std::move(areas), bells_),
                                                everyone_reads ? make_cross_memory_attach(std::move(pids)) : nullptr,
                                                local_.size() > available_cpus(), std::move(flows));
  }

  Status start(Deadline deadline) {
    const std::uint64_t comm_id = control_.key().comm_id;
    const std::uint32_t rank = control_.key().rank;
    doorbell_ = Fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!doorbell_) return system_error("socket", "AF_UNIX");
    sockaddr_un address;
    const socklen_t length = doorbell_address(address, comm_id, rank);
    if (::bind(doorbell_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) return system_error("bind", "the doorbell");
    Status added = poller_.add(doorbell_.get(), EPOLLIN, [this](std::uint32_t) {
      char byte = 0;
      while (::recv(doorbell_.get(), &byte, sizeof byte, 0) >= 0) continue;
    });
    if (!added.ok()) return added;

    const std::string name = inbox_name(comm_id, rank);
    const Fd fd(::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd) return system_error("shm_open", name);
    named_ = true;
    // Real blocks now: an over-full /dev/shm is an error here and not a SIGBUS in the middle of an operation.
    const std::size_t bytes = inbox_bytes(local_.size());
    errno = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
    if (errno != 0) return system_error("posix_fallocate", std::to_string(bytes) + " bytes in /dev/shm");
    auto mapped = map(fd.get(), name);
    if (!mapped.ok()) return mapped.take_error();
    own_ = std::move(mapped.value());
    InboxHeader& header = own_.inbox()->header;
    header.rings = static_cast<std::uint32_t>(local_.size());
    header.can_fence_all = local_.size() <= available_cpus() && join_membarrier() ? 1 : 0;
    if (Status status = bootstrap::random_bytes(probe_); !status.ok()) return status;
    header.probe = probe_;
    header.probe_address = reinterpret_cast<std::uint64_t>(probe_.data());
    own_.inbox()->header.magic.store(kInboxMagic, std::memory_order_release);
    for (const std::uint32_t peer : local_) {
      if (peer == rank) continue;
      if (Status status = open_inbox(peer, deadline); !status.ok()) return status;
    }
    bells_.sleeping.assign(control_.members().size(), nullptr);
    bells_.wake = [this](std::uint32_t peer) { wake(peer); };
    bells_.sleeper_fences = true;
    for (const std::uint32_t peer : local_) {
      InboxHeader& theirs = inbox_of(peer)->header;
      bells_.sleeping[peer] = &theirs.sleeping;
      bells_.sleeper_fences = bells_.sleeper_fences && theirs.can_fence_all != 0;
    }
    header.reads_peers.store(single_copy_ && reads_all_peers() ? 1 : 2, std::memory_order_release);
    return {};
  }

  Expected<bool> may_sleep() override {
    std::atomic<std::uint32_t>& sleeping = own_.inbox()->header.sleeping;
    sleeping.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (bells_.sleeper_fences && ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) != 0) {
      return system_error("membarrier", "before a sleep");
    }
    if (node_engine_ != nullptr && node_engine_->board().awaited && node_engine_->board().awaited()) {
      sleeping.store(0, std::memory_order_relaxed);
      return false;
    }
    auto calm = StreamTransport::may_sleep();
    if (!calm.ok() || !calm.value()) sleeping.store(0, std::memory_order_relaxed);
    return calm;
  }

 private:
  Inbox* inbox_of(std::uint32_t rank) const noexcept { return rank == control_.key().rank ? own_.inbox() : peers_.at(rank).inbox(); }

  void forget_name() noexcept {
    if (named_) ::shm_unlink(inbox_name(control_.key().comm_id, control_.key().rank).c_str());
    named_ = false;
  }

  void wake(std::uint32_t peer) noexcept {
    sockaddr_un address;
    const socklen_t length = doorbell_address(address, control_.key().comm_id, peer);
    const char byte = 1;
    // Full means that the peer has bells enough; gone is the control plane's to tell.
    (void)::sendto(doorbell_.get(), &byte, sizeof byte, MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), length);
  }

  // The process of a member's number may be another one in this PID namespace: only its secret proves that it is the peer.
  bool reads_all_peers() const {
    std::vector<pid_t> pids;
    for (const auto& member : control_.members()) pids.push_back(static_cast<pid_t>(member.pid));
    const auto copy = make_cross_memory_attach(std::move(pids));
    for (const auto& [peer, mapping] : peers_) {
      std::array<std::byte, 16> seen{};
      const InboxHeader& header = mapping.inbox()->header;
      if (!copy->read(peer, {header.probe_address, 0}, 0, seen).ok() || seen != header.probe) return false;
    }
    return true;
  }

  Expected<Mapping> map(int fd, const std::string& name) const {
    const std::size_t bytes = inbox_bytes(local_.size());
    void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (base == MAP_FAILED) return system_error("mmap", name);
    return Mapping(base, bytes);
  }

  // The peer makes its inbox at about the same time as this rank: wait for it.
  Status open_inbox(std::uint32_t peer, Deadline deadline) {
    const std::string name = inbox_name(control_.key().comm_id, peer);
    while (true) {
      const Fd fd(::shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0));
      struct stat info {};
      if (!fd && errno != ENOENT) return system_error("shm_open", name);
      if (fd && ::fstat(fd.get(), &info) == 0 && static_cast<std::size_t>(info.st_size) == inbox_bytes(local_.size())) {
        auto mapped = map(fd.get(), name);
        if (!mapped.ok()) return mapped.take_error();
        if (mapped.value().inbox()->header.magic.load(std::memory_order_acquire) == kInboxMagic) {
          peers_.emplace(peer, std::move(mapped.value()));
          return {};
        }
      }
      if (control_.failed()) return control_.failure();
      if (deadline.passed()) {
        return make_error(STEPCCL_ERROR_TIMEOUT, STEPCCL_PHASE_CONNECT, "it made no shared memory in time", static_cast<std::int32_t>(peer), kind());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  Expected<std::unique_ptr<ByteStream>> open(std::uint32_t peer, std::size_t, Deadline) override {
    const auto index = [this](std::uint32_t rank) { return static_cast<std::size_t>(std::lower_bound(local_.begin(), local_.end(), rank) - local_.begin()); };
    Inbox* theirs = peers_.at(peer).inbox();
    Ring& out = theirs->rings[index(control_.key().rank)];
    Ring& in = own_.inbox()->rings[index(peer)];
    return std::unique_ptr<ByteStream>(std::make_unique<ShmStream>(out, in, peer, bells_));
  }

  Poller& poller_;
  std::vector<std::uint32_t> local_;  // ranks of this node, ascending
  Bells bells_;
  Fd doorbell_;
  bool named_ = false;
  bool single_copy_;
  std::array<std::byte, 16> probe_{};
  Mapping own_;
  std::map<std::uint32_t, Mapping> peers_;
  std::unique_ptr<NodeEngine> node_engine_;  // declared last: it uses the mappings
};

}  // namespace

Expected<std::unique_ptr<Transport>> make_shm(ControlPlane& control, Poller& poller, telemetry::RingWriter& ring, bool single_copy,
                                             Deadline deadline) {
  auto transport = std::make_unique<ShmTransport>(control, poller, ring, single_copy);
  if (Status status = transport->start(deadline); !status.ok()) return status.take_error();
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace stepccl::transport
