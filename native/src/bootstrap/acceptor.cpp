// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/acceptor.hpp"

#include <algorithm>
#include <cerrno>

namespace stepccl::bootstrap {

void Acceptor::add_polls(std::vector<pollfd>& polls) {
  const std::size_t before = polls.size();
  polls.push_back({listener_.get(), static_cast<short>(resume_.passed() ? POLLIN : 0), 0});
  for (const Pending& pending : pending_) {
    polls.push_back({pending.fd.get(), static_cast<short>(pending.outgoing.empty() ? POLLIN : POLLOUT), 0});
  }
  polled_ = polls.size() - before;
}

void Acceptor::process(std::span<const pollfd> polls, std::vector<Accepted>& out) {
  std::size_t index = 1;
  for (auto it = pending_.begin(); it != pending_.end() && index < polls.size(); ++index) {
    const bool stays = polls[index].revents == 0 ? !it->deadline.passed() : advance(*it, out);
    it = stays ? std::next(it) : pending_.erase(it);
  }
  if ((polls[0].revents & POLLIN) != 0) accept_new();
}

void Acceptor::accept_new() {
  for (int i = 0; i < 64; ++i) {  // leave time for the others
    Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        if (!pending_.empty()) pending_.pop_front();
        resume_ = Deadline::after_ms(50);
      }
      return;
    }
    if (pending_.size() >= kMaxPending) pending_.pop_front();
    tune_socket(fd.get(), static_cast<std::uint32_t>(kHandshakeMs));
    pending_.push_back({std::move(fd), ServerHandshake(key_, check_), {}, Deadline::after_ms(kHandshakeMs)});
  }
}

bool Acceptor::advance(Pending& pending, std::vector<Accepted>& out) {
  const auto flush = [&]() -> bool {
    while (!pending.outgoing.empty()) {
      const ssize_t sent = ::send(pending.fd.get(), pending.outgoing.data(), pending.outgoing.size(), MSG_NOSIGNAL);
      if (sent < 0) return errno == EAGAIN || errno == EINTR;
      pending.outgoing.erase(pending.outgoing.begin(), pending.outgoing.begin() + sent);
    }
    return true;
  };
  const auto finished = [&]() -> bool {  // nothing left to send: is the connection over or admitted?
    if (!pending.outgoing.empty()) return false;
    if (pending.handshake.state() == ServerHandshake::State::accepted) {
      out.push_back({std::move(pending.fd), pending.handshake.hello()});
      return true;
    }
    return pending.handshake.state() == ServerHandshake::State::refused;
  };

  if (!flush() || finished()) return false;
  while (pending.outgoing.empty() && pending.handshake.wanted() != 0) {
    std::byte buffer[sizeof(Hello)];
    const ssize_t got = ::recv(pending.fd.get(), buffer, std::min(sizeof buffer, pending.handshake.wanted()), 0);
    if (got == 0) return false;
    if (got < 0) return (errno == EAGAIN || errno == EINTR) && !pending.deadline.passed();
    pending.handshake.feed(std::span(buffer, static_cast<std::size_t>(got)), pending.outgoing);
    if (!flush() || finished()) return false;
  }
  return !pending.deadline.passed();
}

}  // namespace stepccl::bootstrap
