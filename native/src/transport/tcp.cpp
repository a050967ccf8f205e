// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "transport/stream.hpp"
#include "transport/tls.hpp"

namespace stepccl::transport {
namespace {

using bootstrap::ControlPlane;

// Between processes of one host there is no distance to fill: what waits in a longer queue only leaves the CPU's cache before it
// is read (the kernel's own choice grows to megabytes).
constexpr int kLoopbackSendBytes = 256 << 10;
constexpr std::size_t kAheadBytes = 4u << 10;  // that a read takes beyond what it was asked for, where it was asked for little

// A non-blocking socket in an edge-triggered poller: a direction is worth trying until a call moves less than it could, and
// again after an event.
class TcpStream final : public ByteStream {
 public:
  TcpStream(Fd fd, Poller& poller, std::unique_ptr<TlsSession> tls) : fd_(std::move(fd)), poller_(poller), tls_(std::move(tls)) {}
  ~TcpStream() override { poller_.remove(fd_.get()); }

  Status watch() {
    return poller_.add(fd_.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP, [this](std::uint32_t events) {
      if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) ended_ = true;
      if ((events & EPOLLIN) != 0) readable_ = true;
      if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) writable_ = true;
    });
  }

  Expected<std::size_t> write(std::span<const iovec> parts) override {
    if (tls_ != nullptr) return through_tls(tls_->write(parts), writable_);
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = parts.size();
    const ssize_t sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) return none_or_error("send", writable_);
    return static_cast<std::size_t>(sent);
  }

  Expected<std::size_t> read(std::span<const iovec> parts) override {
    if (tls_ != nullptr) return through_tls(tls_->read(parts), readable_);
    if (ahead_ != 0) return from_ahead(parts);
    std::array<iovec, 3> wanted{};
    std::size_t bytes = 0;
    std::size_t used = 0;
    for (const iovec& part : parts) {
      wanted[used++] = part;
      bytes += part.iov_len;
    }
    // One call then brings small messages that follow each other, and says when there are no more.
    const std::size_t room = bytes < kAheadBytes ? kAheadBytes : 0;
    if (room != 0) wanted[used++] = {stash_.data(), room};
    const ssize_t got = ::readv(fd_.get(), wanted.data(), static_cast<int>(used));
    if (got < 0) return none_or_error("recv", readable_);
    if (got == 0) return Error{STEPCCL_ERROR_PEER_CLOSED, -1, {}, {}, "the peer closed the connection"};
    const auto moved = static_cast<std::size_t>(got);
    if (moved < bytes + room) readable_ = false;
    if (moved <= bytes) return moved;
    ahead_begin_ = 0;
    ahead_ = moved - bytes;
    return bytes;
  }

  bool may_write() const noexcept override { return writable_; }
  bool may_read() const noexcept override { return readable_ || ended_ || ahead_ != 0; }
  void try_reading() noexcept override { readable_ = true; }

 private:
  // Where nothing moves, no whole record is left in the session: what it may hold of one says nothing before more has come.
  static Expected<std::size_t> through_tls(Expected<std::size_t> moved, bool& ready) {
    if (moved.ok() && moved.value() == 0) ready = false;
    return moved;
  }

  std::size_t from_ahead(std::span<const iovec> parts) noexcept {
    std::size_t moved = 0;
    for (const iovec& part : parts) {
      const std::size_t now = std::min(part.iov_len, ahead_);
      if (now != 0) std::memcpy(part.iov_base, stash_.data() + ahead_begin_, now);
      ahead_begin_ += now;
      ahead_ -= now;
      moved += now;
    }
    return moved;
  }

  Expected<std::size_t> none_or_error(const char* call, bool& ready) {
    if (errno == EINTR) return std::size_t{0};
    if (errno == EAGAIN) {
      ready = false;
      return std::size_t{0};
    }
    const bool silent = errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH;
    return Error{silent ? STEPCCL_ERROR_PEER_SILENT : STEPCCL_ERROR_PEER_CLOSED, -1, {}, {}, std::string(call) + ": " + errno_text(errno)};
  }

  Fd fd_;
  Poller& poller_;
  std::unique_ptr<TlsSession> tls_;
  bool readable_ = true;
  bool writable_ = true;
  bool ended_ = false;           // the peer says nothing more, or the connection is broken: the next read tells
  std::size_t ahead_begin_ = 0;  // in stash_
  std::size_t ahead_ = 0;        // bytes that were read beyond what was asked for
  std::array<std::byte, kAheadBytes> stash_;
};

class TcpTransport final : public StreamTransport {
 public:
  TcpTransport(ControlPlane& control, Poller& poller, telemetry::RingWriter& ring, std::uint32_t timeout_ms)
      : StreamTransport(control, ring), poller_(poller), timeout_ms_(timeout_ms) {}

  stepccl_transport kind() const noexcept override { return STEPCCL_TRANSPORT_TCP; }

 private:
  std::size_t lanes() const noexcept override { return control_.settings().sockets; }

  Expected<std::unique_ptr<ByteStream>> open(std::uint32_t peer, std::size_t lane, Deadline deadline) override {
    auto fd = data_connection(control_, peer, bootstrap::tcp_data_role(lane), kind(), deadline);
    if (!fd.ok()) return fd.take_error();
    bootstrap::tune_socket(fd.value().get(), timeout_ms_);
    const auto& members = control_.members();
    if (members[peer].host != 0 && members[peer].host == members[control_.key().rank].host) {
      // Best effort, as all tuning.
      (void)::setsockopt(fd.value().get(), SOL_SOCKET, SO_SNDBUF, &kLoopbackSendBytes, sizeof kLoopbackSendBytes);
    }
    std::unique_ptr<TlsSession> tls;
    if (control_.settings().encryption != 0) {
      const auto side = control_.key().rank < peer ? TlsSession::Side::server : TlsSession::Side::client;
      auto opened = TlsSession::open(fd.value().get(), side, control_.key(), peer, deadline, [this] { return control_.failed(); });
      if (!opened.ok()) {
        if (control_.failed()) return control_.failure();
        Error error = opened.take_error();
        error.phase = STEPCCL_PHASE_CONNECT;
        error.peer = static_cast<std::int32_t>(peer);
        return error;
      }
      tls = std::move(opened.value());
    }
    auto stream = std::make_unique<TcpStream>(std::move(fd.value()), poller_, std::move(tls));
    if (Status status = stream->watch(); !status.ok()) return status.take_error();
    return std::unique_ptr<ByteStream>(std::move(stream));
  }

  Poller& poller_;
  std::uint32_t timeout_ms_;
};

}  // namespace

std::unique_ptr<Transport> make_tcp(ControlPlane& control, Poller& poller, telemetry::RingWriter& ring, std::uint32_t timeout_ms) {
  return std::make_unique<TcpTransport>(control, poller, ring, timeout_ms);
}

Expected<Fd> data_connection(ControlPlane& control, std::uint32_t peer, bootstrap::Role role, stepccl_transport kind, Deadline deadline) {
  const auto explain = [&](Error error) {
    error.phase = STEPCCL_PHASE_CONNECT;
    error.transport = kind;
    if (error.peer < 0) error.peer = static_cast<std::int32_t>(peer);
    return error;
  };
  if (control.key().rank < peer) {
    auto fd = control.take_data_connection(peer, role, deadline);
    if (!fd.ok()) return control.failed() ? fd.take_error() : explain(fd.take_error());
    return fd;
  }
  const auto cancelled = [&control] { return control.failed(); };
  const bootstrap::Endpoint endpoint = control.members()[peer].endpoint();
  while (true) {
    auto fd = bootstrap::connect_to(endpoint, deadline, cancelled);
    Status status = fd.ok() ? bootstrap::client_handshake(fd.value().get(), control.key(), role, deadline, cancelled)
                            : Status(fd.take_error());
    if (status.ok()) return fd;
    if (control.failed()) return control.failure();
    Error error = status.take_error();
    // The peer's acceptor makes room for others when many knock at once; its death is the control plane's to tell.
    if (error.code != STEPCCL_ERROR_PEER_CLOSED || deadline.passed()) return explain(std::move(error));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace stepccl::transport
