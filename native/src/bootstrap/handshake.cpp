// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/handshake.hpp"

#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace stepccl::bootstrap {
namespace {

constexpr char kServerLabel[] = "stepccl 1 server";
constexpr char kClientLabel[] = "stepccl 1 client";

Mac server_mac(const Secret& secret, const Hello& hello, const Challenge& challenge) {
  Challenge unsigned_challenge = challenge;
  unsigned_challenge.mac = {};
  return hmac_sha256(secret, {std::as_bytes(std::span(kServerLabel)), bytes_of(hello), bytes_of(unsigned_challenge)});
}

Mac client_mac(const Secret& secret, const Hello& hello, const Challenge& challenge) {
  return hmac_sha256(secret, {std::as_bytes(std::span(kClientLabel)), bytes_of(hello), bytes_of(challenge)});
}

void append(std::vector<std::byte>& out, std::span<const std::byte> bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }

Error failed(stepccl_result_t code, std::string cause) {
  return make_error(code, STEPCCL_PHASE_RENDEZVOUS, std::move(cause));
}

// Waits for `events`, in slices so that a cancellation is seen.
Status wait_for(int fd, short events, Deadline deadline, const std::function<bool()>& cancelled) {
  while (true) {
    if (cancelled && cancelled()) return failed(STEPCCL_ERROR_ABORTED, "the communicator failed or was aborted meanwhile");
    if (deadline.passed()) return failed(STEPCCL_ERROR_TIMEOUT, "no answer in time");
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, deadline.left_ms(50));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return failed(STEPCCL_ERROR_SYSTEM, "poll: " + errno_text(errno));
  }
}

}  // namespace

std::size_t ServerHandshake::wanted() const noexcept {
  switch (state_) {
    case State::hello: return sizeof(Hello) - buffer_.size();
    case State::proof: return sizeof(Proof) - buffer_.size();
    case State::accepted:
    case State::refused: return 0;
  }
  return 0;
}

ServerHandshake::State ServerHandshake::feed(std::span<const std::byte> bytes, std::vector<std::byte>& out) {
  while (!bytes.empty() && wanted() != 0) {
    const std::size_t taken = std::min(wanted(), bytes.size());
    append(buffer_, bytes.first(taken));
    bytes = bytes.subspan(taken);
    // A stranger is refused at its first four bytes, not after a whole hello has dripped in.
    if (state_ == State::hello && buffer_.size() >= sizeof(hello_.magic)) {
      std::uint32_t magic = 0;
      std::memcpy(&magic, buffer_.data(), sizeof magic);
      if (magic != kHelloMagic) return state_ = State::refused;
    }
    if (wanted() != 0) continue;
    if (state_ == State::hello) {
      on_hello(out);
    } else {
      on_proof(out);
    }
    buffer_.clear();
  }
  return state_;
}

void ServerHandshake::on_hello(std::vector<std::byte>& out) {
  std::memcpy(&hello_, buffer_.data(), sizeof hello_);
  if (hello_.version != kProtocolVersion) {
    challenge_.status = STEPCCL_ERROR_VERSION;
  } else if (hello_.comm_id != key_.comm_id || !random_bytes(challenge_.nonce).ok()) {
    challenge_.status = STEPCCL_ERROR_AUTHENTICATION;
  }
  if (challenge_.status != STEPCCL_SUCCESS) {
    append(out, bytes_of(challenge_));
    state_ = State::refused;
    return;
  }
  challenge_.mac = server_mac(key_.secret, hello_, challenge_);
  append(out, bytes_of(challenge_));
  state_ = State::proof;
}

void ServerHandshake::on_proof(std::vector<std::byte>& out) {
  Proof proof;
  std::memcpy(&proof, buffer_.data(), sizeof proof);
  Welcome welcome;
  if (!equal(proof.mac, client_mac(key_.secret, hello_, challenge_))) {
    welcome.status = STEPCCL_ERROR_AUTHENTICATION;
  } else if (hello_.rank >= key_.world || hello_.world != key_.world) {
    welcome.status = STEPCCL_ERROR_RANK_CONFLICT;
  } else {
    welcome.status = static_cast<std::uint16_t>(check_(hello_));
  }
  append(out, bytes_of(welcome));
  state_ = welcome.status == STEPCCL_SUCCESS ? State::accepted : State::refused;
}

Status client_handshake(int fd, const JobKey& key, Role role, Deadline deadline, const std::function<bool()>& cancelled) {
  Hello hello;
  hello.role = static_cast<std::uint8_t>(role);
  hello.rank = key.rank;
  hello.world = key.world;
  hello.comm_id = key.comm_id;
  if (Status status = random_bytes(hello.nonce); !status.ok()) return status;
  if (Status status = write_all(fd, bytes_of(hello), deadline, cancelled); !status.ok()) return status;

  Challenge challenge;
  const auto challenge_bytes = std::as_writable_bytes(std::span<Challenge, 1>(&challenge, 1));
  if (Status status = read_exact(fd, challenge_bytes, deadline, cancelled); !status.ok()) return status;
  if (challenge.magic != kChallengeMagic) return failed(STEPCCL_ERROR_PROTOCOL, "what listens there is no rank of a job");
  if (challenge.version != kProtocolVersion || challenge.status == STEPCCL_ERROR_VERSION) {
    return failed(STEPCCL_ERROR_VERSION, "the peer speaks protocol " + std::to_string(challenge.version) + ", this library " +
                                             std::to_string(kProtocolVersion));
  }
  if (challenge.status != STEPCCL_SUCCESS) return failed(STEPCCL_ERROR_AUTHENTICATION, "the listener belongs to another job");
  if (!equal(challenge.mac, server_mac(key.secret, hello, challenge))) {
    return failed(STEPCCL_ERROR_AUTHENTICATION, "the listener doesn't hold this job's secret");
  }

  const Proof proof{client_mac(key.secret, hello, challenge)};
  if (Status status = write_all(fd, bytes_of(proof), deadline, cancelled); !status.ok()) return status;
  Welcome welcome;
  const auto welcome_bytes = std::as_writable_bytes(std::span<Welcome, 1>(&welcome, 1));
  if (Status status = read_exact(fd, welcome_bytes, deadline, cancelled); !status.ok()) return status;
  if (welcome.magic != kWelcomeMagic) return failed(STEPCCL_ERROR_PROTOCOL, "the peer's last handshake message is malformed");
  switch (welcome.status) {
    case STEPCCL_SUCCESS: return {};
    case STEPCCL_ERROR_AUTHENTICATION: return failed(STEPCCL_ERROR_AUTHENTICATION, "the peer refused this rank's proof of the secret");
    case STEPCCL_ERROR_RANK_CONFLICT:
      return failed(STEPCCL_ERROR_RANK_CONFLICT, "the peer refused rank " + std::to_string(key.rank) + " of " +
                                                     std::to_string(key.world) + ": it is taken, or the world size differs");
    default: return failed(STEPCCL_ERROR_PROTOCOL, "the peer refused the connection with status " + std::to_string(welcome.status));
  }
}

Expected<Fd> connect_to(const Endpoint& endpoint, Deadline deadline, const std::function<bool()>& cancelled) {
  Fd fd(::socket(endpoint.family == 6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return failed(STEPCCL_ERROR_SYSTEM, "socket: " + errno_text(errno));
  sockaddr_storage address{};
  const socklen_t length = endpoint.to_sockaddr(address);
  const auto unreachable = [&](int error_number) {
    return failed(STEPCCL_ERROR_PEER_UNREACHABLE, endpoint.to_string() + ": " + errno_text(error_number));
  };
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno != EINPROGRESS) return unreachable(errno);
    Status status = wait_for(fd.get(), POLLOUT, deadline, cancelled);
    if (!status.ok()) {
      Error error = status.take_error();
      if (error.code == STEPCCL_ERROR_TIMEOUT) return unreachable(ETIMEDOUT);
      return error;
    }
    int error_number = 0;
    socklen_t size = sizeof error_number;
    if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error_number, &size) != 0) return unreachable(errno);
    if (error_number != 0) return unreachable(error_number);
  }
  return fd;
}

void tune_socket(int fd, std::uint32_t user_timeout_ms) noexcept {
  // Best effort: an option that a kernel refuses costs speed or an early warning, never correctness.
  const auto set = [fd](int level, int name, int value) { (void)setsockopt(fd, level, name, &value, sizeof value); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(std::min<std::uint32_t>(user_timeout_ms, INT32_MAX)));
}

Status write_all(int fd, std::span<const std::byte> bytes, Deadline deadline, const std::function<bool()>& cancelled) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (Status status = wait_for(fd, POLLOUT, deadline, cancelled); !status.ok()) return status;
    } else if (errno != EINTR) {
      return failed(STEPCCL_ERROR_PEER_CLOSED, "send: " + errno_text(errno));
    }
  }
  return {};
}

Status read_exact(int fd, std::span<std::byte> bytes, Deadline deadline, const std::function<bool()>& cancelled) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else if (got == 0) {
      return failed(STEPCCL_ERROR_PEER_CLOSED, "the peer closed the connection");
    } else if (errno == EAGAIN) {
      if (Status status = wait_for(fd, POLLIN, deadline, cancelled); !status.ok()) return status;
    } else if (errno != EINTR) {
      return failed(STEPCCL_ERROR_PEER_CLOSED, "recv: " + errno_text(errno));
    }
  }
  return {};
}

}  // namespace stepccl::bootstrap
