// SPDX-License-Identifier: Apache-2.0
#include "cuda/mesh.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "bootstrap/crypto.hpp"
#include "core/clock.hpp"

namespace stepccl::cuda {
namespace {

constexpr std::size_t kMaxBytes = 1u << 20;
constexpr std::size_t kMaxDescriptors = 4096;
constexpr std::size_t kDescriptorsPerMessage = 128;

// What a rank tells of its listener. The token goes over the authenticated communicator, so who shows it is a rank.
struct Card {
  char name[32];
  std::byte token[16];
};
struct Hello {
  std::byte token[16];  // the listener's
  std::uint32_t rank;
};
struct Head {
  std::uint32_t bytes;
  std::uint32_t descriptors;
};

Error system_error(const char* call) { return make_error(STEPCCL_ERROR_SYSTEM, STEPCCL_PHASE_CONNECT, std::string(call) + ": " + errno_text(errno)); }
Error peer_error(std::uint32_t peer, const char* cause) {
  return make_error(STEPCCL_ERROR_PEER_CLOSED, STEPCCL_PHASE_CONNECT, cause, static_cast<std::int32_t>(peer), STEPCCL_TRANSPORT_GPU_PEER);
}

socklen_t address_of(sockaddr_un& address, const Card& card) {
  address = {};
  address.sun_family = AF_UNIX;
  const std::size_t length = ::strnlen(card.name, sizeof card.name);
  std::memcpy(address.sun_path + 1, card.name, length);  // abstract: nothing is left behind
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

Status read_exactly(int fd, void* to, std::size_t bytes, Deadline deadline, std::uint32_t peer) {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    pollfd wait{fd, POLLIN, 0};
    if (::poll(&wait, 1, deadline.left_ms()) == 0) return make_error(STEPCCL_ERROR_TIMEOUT, STEPCCL_PHASE_CONNECT, "a local connection stays silent", static_cast<std::int32_t>(peer));
    const ssize_t got = ::recv(fd, at, bytes, MSG_DONTWAIT);
    if (got == 0) return peer_error(peer, "the peer closed its local connection");
    if (got < 0) {
      if (errno == EAGAIN || errno == EINTR) continue;
      return system_error("recv");
    }
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return {};
}

// One direction of an exchange with one peer.
struct Outgoing {
  std::vector<std::byte> bytes;  // head and payload
  std::span<const int> descriptors;
  std::size_t sent = 0;
  std::size_t sent_descriptors = 0;
};
struct Incoming {
  Head head{};
  std::size_t head_bytes = 0;
  Contribution got;
  std::size_t filled = 0;
  [[nodiscard]] bool complete() const { return head_bytes == sizeof head && filled == head.bytes && got.descriptors.size() == head.descriptors; }
};


Status send_some(int fd, Outgoing& out, std::uint32_t peer) {
  while (out.sent < out.bytes.size()) {
    const ssize_t n = ::send(fd, out.bytes.data() + out.sent, out.bytes.size() - out.sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EAGAIN || errno == EINTR) return {};
      return errno == EPIPE || errno == ECONNRESET ? peer_error(peer, "the peer closed its local connection") : system_error("send");
    }
    out.sent += static_cast<std::size_t>(n);
  }
  while (out.sent_descriptors < out.descriptors.size()) {
    const std::size_t count = std::min(kDescriptorsPerMessage, out.descriptors.size() - out.sent_descriptors);
    char mark = 'd';
    iovec part{&mark, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsPerMessage * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(header), out.descriptors.data() + out.sent_descriptors, count * sizeof(int));
    if (::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
      if (errno == EAGAIN || errno == EINTR || errno == ETOOMANYREFS) return {};
      return errno == EPIPE || errno == ECONNRESET ? peer_error(peer, "the peer closed its local connection") : system_error("sendmsg");
    }
    out.sent_descriptors += count;
  }
  return {};
}

// One recvmsg, of the part that comes next and no more. False: nothing there.
Expected<bool> receive_some(int fd, Incoming& in, std::uint32_t peer) {
  char mark = 0;
  iovec part{};
  const bool payload_done = in.head_bytes == sizeof in.head && in.filled == in.head.bytes;
  if (in.head_bytes < sizeof in.head) part = {reinterpret_cast<std::byte*>(&in.head) + in.head_bytes, sizeof in.head - in.head_bytes};
  else if (!payload_done) part = {in.got.bytes.data() + in.filled, in.head.bytes - in.filled};
  else part = {&mark, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsPerMessage * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n == 0) return peer_error(peer, "the peer closed its local connection");
  if (n < 0) {
    if (errno == EAGAIN || errno == EINTR) return false;
    return errno == ECONNRESET ? peer_error(peer, "the peer closed its local connection") : system_error("recvmsg");
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof descriptor);
      in.got.descriptors.emplace_back(descriptor);
    }
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) return make_error(STEPCCL_ERROR_SYSTEM, STEPCCL_PHASE_CONNECT, "no room for the descriptors that a rank passed: raise the limit of open files");
  if (in.head_bytes < sizeof in.head) {
    in.head_bytes += static_cast<std::size_t>(n);
    if (in.head_bytes == sizeof in.head) {
      if (in.head.bytes > kMaxBytes || in.head.descriptors > kMaxDescriptors) return make_error(STEPCCL_ERROR_PROTOCOL, STEPCCL_PHASE_CONNECT, "a local message of impossible size", static_cast<std::int32_t>(peer));
      in.got.bytes.resize(in.head.bytes);
    }
  } else if (!payload_done) {
    in.filled += static_cast<std::size_t>(n);
  }
  if (in.got.descriptors.size() > in.head.descriptors) return make_error(STEPCCL_ERROR_PROTOCOL, STEPCCL_PHASE_CONNECT, "more descriptors than announced", static_cast<std::int32_t>(peer));
  return true;
}

}  // namespace

Expected<Mesh> Mesh::connect(std::uint32_t rank, std::uint32_t world, std::uint32_t timeout_ms, const AllGather& all_gather) {
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  Mesh mesh;
  mesh.rank_ = rank;
  mesh.sockets_.resize(world);
  Card card{};
  std::byte noise[8];
  if (Status status = bootstrap::random_bytes(noise); !status.ok()) return status.take_error();
  if (Status status = bootstrap::random_bytes(card.token); !status.ok()) return status.take_error();
  std::string name = "stepccl-gpu-";
  for (const std::byte byte : noise) {
    constexpr char kDigits[] = "0123456789abcdef";
    name += kDigits[static_cast<unsigned>(byte) >> 4];
    name += kDigits[static_cast<unsigned>(byte) & 15];
  }
  std::memcpy(card.name, name.data(), name.size());
  Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address;
  const socklen_t length = address_of(address, card);
  if (!listener || ::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(listener.get(), 64) != 0) return system_error("listening on a local socket");

  auto cards = all_gather(std::as_bytes(std::span(&card, 1)));
  if (!cards.ok()) return cards.take_error();
  // Each connects to the lower ranks and accepts the higher ones.
  for (std::uint32_t peer = 0; peer < rank; ++peer) {
    Card theirs{};
    if (cards.value()[peer].size() != sizeof theirs) return make_error(STEPCCL_ERROR_PROTOCOL, STEPCCL_PHASE_CONNECT, "a rank told no local address", static_cast<std::int32_t>(peer));
    std::memcpy(&theirs, cards.value()[peer].data(), sizeof theirs);
    Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const socklen_t peer_length = address_of(address, theirs);
    if (!socket) return system_error("socket");
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), peer_length) != 0) {
      return make_error(STEPCCL_ERROR_NO_PEER_ACCESS, STEPCCL_PHASE_CONNECT, "it is not on this host, or in another network namespace (connect: " + errno_text(errno) + ")",
                        static_cast<std::int32_t>(peer), STEPCCL_TRANSPORT_GPU_PEER);
    }
    Hello hello{};
    std::copy(std::begin(theirs.token), std::end(theirs.token), hello.token);
    hello.rank = rank;
    if (::send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello)) return system_error("send");
    mesh.sockets_[peer] = std::move(socket);
  }
  for (std::uint32_t missing = world - rank - 1; missing > 0;) {
    pollfd wait{listener.get(), POLLIN, 0};
    if (::poll(&wait, 1, deadline.left_ms()) == 0) return make_error(STEPCCL_ERROR_TIMEOUT, STEPCCL_PHASE_CONNECT, "a rank does not connect locally: is it on this host?");
    Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) continue;
    Hello hello{};
    if (Status status = read_exactly(socket.get(), &hello, sizeof hello, Deadline::after_ms(1000), rank); !status.ok()) continue;  // a stranger
    if (std::memcmp(hello.token, card.token, sizeof card.token) != 0 || hello.rank <= rank || hello.rank >= world || mesh.sockets_[hello.rank]) continue;
    mesh.sockets_[hello.rank] = std::move(socket);
    --missing;
  }
  return mesh;
}

Mesh Mesh::over(std::uint32_t rank, std::vector<Fd> sockets) {
  Mesh mesh;
  mesh.rank_ = rank;
  mesh.sockets_ = std::move(sockets);
  return mesh;
}

bool Mesh::wait_readable(std::uint32_t peer, std::uint32_t timeout_ms) const noexcept {
  pollfd wait{sockets_[peer].get(), POLLIN, 0};
  return ::poll(&wait, 1, static_cast<int>(timeout_ms)) > 0;
}

Expected<std::vector<Contribution>> Mesh::exchange(std::span<const std::byte> bytes, std::span<const int> descriptors, std::uint32_t timeout_ms,
                                                   const std::function<Status()>& keep_waiting) const {
  const auto world = static_cast<std::uint32_t>(sockets_.size());
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  if (bytes.size() > kMaxBytes || descriptors.size() > kMaxDescriptors) return make_error(STEPCCL_ERROR_INTERNAL, STEPCCL_PHASE_CONNECT, "an exchange is too large");
  std::vector<Outgoing> out(world);
  std::vector<Incoming> in(world);
  for (std::uint32_t peer = 0; peer < world; ++peer) {
    const Head head{static_cast<std::uint32_t>(bytes.size()), static_cast<std::uint32_t>(descriptors.size())};
    const auto head_bytes = std::as_bytes(std::span(&head, 1));
    out[peer].bytes.assign(head_bytes.begin(), head_bytes.end());
    out[peer].bytes.insert(out[peer].bytes.end(), bytes.begin(), bytes.end());
    out[peer].descriptors = descriptors;
  }
  for (;;) {
    std::vector<pollfd> waits;
    std::uint32_t slowest = rank_;
    for (std::uint32_t peer = 0; peer < world; ++peer) {
      if (peer == rank_) continue;
      if (Status status = send_some(sockets_[peer].get(), out[peer], peer); !status.ok()) return status.take_error();
      while (!in[peer].complete()) {
        auto more = receive_some(sockets_[peer].get(), in[peer], peer);
        if (!more.ok()) return more.take_error();
        if (!more.value()) break;
      }
      const bool sending = out[peer].sent < out[peer].bytes.size() || out[peer].sent_descriptors < out[peer].descriptors.size();
      if (!in[peer].complete()) slowest = peer;
      if (sending || !in[peer].complete()) {
        waits.push_back({sockets_[peer].get(), static_cast<short>((in[peer].complete() ? 0 : POLLIN) | (sending ? POLLOUT : 0)), 0});
      }
    }
    if (waits.empty()) break;
    ::poll(waits.data(), waits.size(), 20);
    if (Status status = keep_waiting(); !status.ok()) return status.take_error();
    if (deadline.passed()) {
      return make_error(STEPCCL_ERROR_TIMEOUT, STEPCCL_PHASE_CONNECT, "it does not come to the same call", static_cast<std::int32_t>(slowest), STEPCCL_TRANSPORT_GPU_PEER);
    }
  }
  std::vector<Contribution> all;
  for (std::uint32_t peer = 0; peer < world; ++peer) {
    if (peer == rank_) {
      Contribution mine;
      mine.bytes.assign(bytes.begin(), bytes.end());
      all.push_back(std::move(mine));
    } else {
      all.push_back(std::move(in[peer].got));
    }
  }
  return all;
}

}  // namespace stepccl::cuda
