// SPDX-License-Identifier: Apache-2.0
#include "transport/shm.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

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
  alignas(64) std::atomic<std::uint32_t> sleeping;  // its owner is about to sleep: whoever changes a ring wakes it
};

struct Inbox {
  alignas(64) InboxHeader header;
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

class ShmStream final : public ByteStream {
 public:
  ShmStream(Ring& out, Ring& in, std::atomic<std::uint32_t>& peer_sleeping, std::function<void()> wake)
      : out_(out), in_(in), peer_sleeping_(peer_sleeping), wake_(std::move(wake)) {}

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
    // Pairs with the fence in may_sleep(): either the peer sees the counter, or this sees that it sleeps.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (peer_sleeping_.load(std::memory_order_relaxed) != 0 && peer_sleeping_.exchange(0, std::memory_order_relaxed) != 0) wake_();
  }

  Ring& out_;
  Ring& in_;
  std::atomic<std::uint32_t>& peer_sleeping_;
  std::function<void()> wake_;
};

class ShmTransport final : public StreamTransport {
 public:
  ShmTransport(ControlPlane& control, Poller& poller, telemetry::RingWriter& ring) : StreamTransport(control, ring), poller_(poller) {
    const auto& members = control_.members();
    for (std::uint32_t rank = 0; rank < members.size(); ++rank) {
      if (members[rank].host == members[control_.key().rank].host) local_.push_back(rank);
    }
  }

  ~ShmTransport() override {
    all_connected();
    if (doorbell_) poller_.remove(doorbell_.get());
  }

  stepccl_transport kind() const noexcept override { return STEPCCL_TRANSPORT_SHM; }

  void all_connected() noexcept override {
    if (named_) ::shm_unlink(inbox_name(control_.key().comm_id, control_.key().rank).c_str());
    named_ = false;
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
    own_.inbox()->header.rings = static_cast<std::uint32_t>(local_.size());
    own_.inbox()->header.magic.store(kInboxMagic, std::memory_order_release);
    for (const std::uint32_t peer : local_) {
      if (peer == rank) continue;
      if (Status status = open_inbox(peer, deadline); !status.ok()) return status;
    }
    return {};
  }

  Expected<bool> may_sleep() override {
    std::atomic<std::uint32_t>& sleeping = own_.inbox()->header.sleeping;
    sleeping.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    auto calm = StreamTransport::may_sleep();
    if (!calm.ok() || !calm.value()) sleeping.store(0, std::memory_order_relaxed);
    return calm;
  }

 private:
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

  Expected<std::unique_ptr<ByteStream>> open(std::uint32_t peer, Deadline) override {
    const auto index = [this](std::uint32_t rank) { return static_cast<std::size_t>(std::lower_bound(local_.begin(), local_.end(), rank) - local_.begin()); };
    Inbox* theirs = peers_.at(peer).inbox();
    Ring& out = theirs->rings[index(control_.key().rank)];
    Ring& in = own_.inbox()->rings[index(peer)];
    const auto wake = [this, peer] {
      sockaddr_un address;
      const socklen_t length = doorbell_address(address, control_.key().comm_id, peer);
      const char byte = 1;
      // Full means that the peer has bells enough; gone is the control plane's to tell.
      (void)::sendto(doorbell_.get(), &byte, sizeof byte, MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), length);
    };
    return std::unique_ptr<ByteStream>(std::make_unique<ShmStream>(out, in, theirs->header.sleeping, wake));
  }

  Poller& poller_;
  std::vector<std::uint32_t> local_;  // ranks of this node, ascending
  Fd doorbell_;
  bool named_ = false;
  Mapping own_;
  std::map<std::uint32_t, Mapping> peers_;
};

}  // namespace

Expected<std::unique_ptr<Transport>> make_shm(ControlPlane& control, Poller& poller, telemetry::RingWriter& ring, Deadline deadline) {
  auto transport = std::make_unique<ShmTransport>(control, poller, ring);
  if (Status status = transport->start(deadline); !status.ok()) return status.take_error();
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace stepccl::transport
