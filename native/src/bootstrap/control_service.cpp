// SPDX-License-Identifier: Apache-2.0
// The service thread of the control plane.
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "bootstrap/control_plane.hpp"

namespace stepccl::bootstrap {
namespace {

constexpr std::uint64_t kPingNs = 1'000'000'000u;
constexpr std::size_t kMaxOutgoing = 16u << 20;  // a peer that reads nothing is dropped beyond this

}  // namespace

void ControlPlane::serve() {
  pthread_setname_np(pthread_self(), "stepccl-control");
  // Signals are the application's: none may land here.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);

  last_turn_ns_ = monotonic_ns();
  for (auto& [rank, link] : links_) link.last_heard_ns = last_turn_ns_;
  std::vector<pollfd> polls;
  std::vector<std::uint32_t> polled_links;
  std::vector<Acceptor::Accepted> accepted;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_) break;
    }
    polls.clear();
    polled_links.clear();
    polls.push_back({wake_.get(), POLLIN, 0});
    data_->add_polls(polls);
    if (rendezvous_) rendezvous_->add_polls(polls);
    for (const auto& [rank, link] : links_) {
      if (!link.fd) continue;
      polls.push_back({link.fd.get(), static_cast<short>(POLLIN | (link.outgoing.empty() ? 0 : POLLOUT)), 0});
      polled_links.push_back(rank);
    }
    ::poll(polls.data(), polls.size(), 500);

    std::span<const pollfd> rest(polls);
    if ((rest[0].revents & POLLIN) != 0) {
      std::uint64_t count = 0;
      (void)!::read(wake_.get(), &count, sizeof count);
    }
    rest = rest.subspan(1);
    accepted.clear();
    const std::size_t data_polls = data_->poll_count();
    data_->process(rest.first(data_polls), accepted);
    rest = rest.subspan(data_polls);
    if (rendezvous_) {
      const std::size_t rendezvous_polls = rendezvous_->poll_count();
      rendezvous_->process(rest.first(rendezvous_polls), accepted);
      rest = rest.subspan(rendezvous_polls);
    }
    for (std::size_t i = 0; i < polled_links.size(); ++i) {
      Link& link = links_.at(polled_links[i]);
      if ((rest[i].revents & POLLOUT) != 0 && link.fd) flush(link);
      if ((rest[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && link.fd) handle_input(link);
    }
    handle_accepted(accepted);
    handle_wishes();
    after_progress();
    handle_time();
  }
  for (auto& [rank, link] : links_) {
    if (link.fd) flush(link);  // a last failure or goodbye on its way
  }
}

void ControlPlane::handle_accepted(std::vector<Acceptor::Accepted>& accepted) {
  for (auto& entry : accepted) {
    if (entry.hello.role == static_cast<std::uint8_t>(Role::control)) {
      const auto [it, added] = links_.try_emplace(entry.hello.rank, entry.hello.rank, std::move(entry.fd), options_.world);
      if (!added) continue;
      tune_socket(it->second.fd.get(), std::min(options_.timeout_ms, kDeadHostMs));
      it->second.last_heard_ns = monotonic_ns();
      handle_input(it->second);
    } else {
      const std::lock_guard lock(mutex_);
      inbox_[{entry.hello.rank, entry.hello.role}] = std::move(entry.fd);
      notify();
    }
  }
}

void ControlPlane::handle_input(Link& link) {
  std::vector<Message> messages;
  std::byte buffer[16384];
  while (link.fd) {
    const ssize_t got = ::recv(link.fd.get(), buffer, sizeof buffer, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return;
      lose(link, errno == ETIMEDOUT ? STEPCCL_ERROR_PEER_SILENT : STEPCCL_ERROR_PEER_CLOSED, "its control connection broke: " + errno_text(errno));
      return;
    }
    if (got == 0) {
      lose(link, STEPCCL_ERROR_PEER_CLOSED, "its control connection closed: the process ended or left");
      return;
    }
    link.last_heard_ns = monotonic_ns();
    messages.clear();
    Status status = link.reader.feed(std::span(buffer, static_cast<std::size_t>(got)), messages);
    for (Message& message : messages) {
      if (link.fd) handle_message(link, message);
    }
    if (!status.ok()) lose(link, STEPCCL_ERROR_PROTOCOL, status.error().cause);
  }
}

void ControlPlane::handle_message(Link& link, Message& message) {
  if (message.type == MessageType::ping) return;
  if (message.type == MessageType::fail) {
    auto failure = parse_failure(message.payload, options_.world);
    if (!failure.ok()) return lose(link, STEPCCL_ERROR_PROTOCOL, failure.error().cause);
    if (options_.rank == 0) {
      failure.value().record.reporter = static_cast<std::int32_t>(link.rank);  // never what it says of itself
      if (!failed()) broadcast(MessageType::fail, encode_failure(failure.value()));
    }
    set_failure(failure.value());
    return;
  }
  if (options_.rank == 0) {
    handle_as_zero(link, message);
  } else {
    handle_as_other(message);
  }
}

void ControlPlane::handle_as_zero(Link& link, Message& message) {
  switch (message.type) {
    case MessageType::join: {
      auto member = parse_member(message.payload, options_.world);
      if (!member.ok()) return lose(link, STEPCCL_ERROR_PROTOCOL, member.error().cause);
      if (link.joined || member.value().rank != link.rank) return lose(link, STEPCCL_ERROR_PROTOCOL, "it joined twice or under another rank");
      link.joined = true;
      const std::lock_guard lock(mutex_);
      table_.members[link.rank] = member.value();
      return;
    }
    case MessageType::ready: link.ready = true; return;
    case MessageType::goodbye: link.gone = true; return;
    case MessageType::state_request: {
      const std::lock_guard lock(mutex_);
      ++states_wanted_;
      return;
    }
    case MessageType::state: {
      auto state = parse_state(message.payload);
      if (!state.ok()) return lose(link, STEPCCL_ERROR_PROTOCOL, state.error().cause);
      if (gathering_.size() == options_.world) gathering_[link.rank] = state.value();
      return;
    }
    default: return lose(link, STEPCCL_ERROR_PROTOCOL, "it sent a message that only rank 0 sends");
  }
}

void ControlPlane::handle_as_other(Message& message) {
  Link& zero = links_.at(0);
  switch (message.type) {
    case MessageType::table: {
      auto table = parse_table(message.payload, options_.world);
      if (!table.ok()) return lose(zero, STEPCCL_ERROR_PROTOCOL, table.error().cause);
      const std::lock_guard lock(mutex_);
      if (!table_complete_) table_ = table.value();
      table_complete_ = true;
      return notify();
    }
    case MessageType::go: {
      const std::lock_guard lock(mutex_);
      go_ = true;
      return notify();
    }
    case MessageType::all_gone: {
      const std::lock_guard lock(mutex_);
      all_gone_ = true;
      return notify();
    }
    case MessageType::state_request: {
      const OperationState state = state_.load();
      return send(zero, MessageType::state, bytes_of(state));
    }
    case MessageType::states: {
      auto states = parse_states(message.payload, options_.world);
      if (!states.ok()) return lose(zero, STEPCCL_ERROR_PROTOCOL, states.error().cause);
      const std::lock_guard lock(mutex_);
      states_ = std::move(states.value());
      ++states_number_;
      return notify();
    }
    default: return lose(zero, STEPCCL_ERROR_PROTOCOL, "rank 0 sent a message that only other ranks send");
  }
}

void ControlPlane::handle_wishes() {
  std::vector<Failure> failures;
  bool ready = false;
  bool goodbye = false;
  std::uint64_t states_wanted = 0;
  {
    const std::lock_guard lock(mutex_);
    failures.swap(to_report_);
    ready = ready_;
    goodbye = goodbye_;
    states_wanted = states_wanted_;
  }
  for (const Failure& failure : failures) {
    if (failed()) break;
    broadcast(MessageType::fail, encode_failure(failure));
    if (options_.rank == 0) set_failure(failure);
  }
  const auto say = [&](bool wanted, bool& said, MessageType type, bool Link::*mark) {
    if (!wanted || said) return;
    said = true;
    if (options_.rank == 0) {
      links_.at(0).*mark = true;
    } else {
      send(links_.at(0), type, {});
    }
  };
  say(ready, said_ready_, MessageType::ready, &Link::ready);
  say(goodbye, said_goodbye_, MessageType::goodbye, &Link::gone);
  if (states_wanted > states_asked_) {
    if (options_.rank != 0) {
      states_asked_ = states_wanted;
      send(links_.at(0), MessageType::state_request, {});
    } else if (gathering_.empty()) {  // one round at a time
      states_asked_ = states_wanted;
      gathering_.assign(options_.world, std::nullopt);
      broadcast(MessageType::state_request, {});
    }
  }
}

void ControlPlane::after_progress() {
  if (options_.rank != 0) return;
  const auto all = [&](bool Link::*mark) {
    if (links_.size() != options_.world) return false;
    for (const auto& [rank, link] : links_) {
      if (!(link.*mark)) return false;
    }
    return true;
  };
  std::unique_lock lock(mutex_);
  const auto announce = [&](bool& done, bool Link::*mark, MessageType type, std::span<const std::byte> payload) {
    if (done || !all(mark)) return;
    done = true;
    broadcast(type, payload);
    notify();
  };
  announce(table_complete_, &Link::joined, MessageType::table, table_complete_ ? std::vector<std::byte>() : encode_table(table_));
  announce(go_, &Link::ready, MessageType::go, {});
  announce(all_gone_, &Link::gone, MessageType::all_gone, {});
  if (!gathering_.empty()) {
    gathering_[0] = state_.load();
    std::vector<OperationState> states;
    for (const auto& [rank, link] : links_) {
      // A rank that has left counts as one that is in nothing.
      if (gathering_[rank]) states.push_back(*gathering_[rank]);
      else if (rank != 0 && !link.fd) states.push_back({});
    }
    if (states.size() == options_.world) {
      states_ = states;
      ++states_number_;
      gathering_.clear();
      broadcast(MessageType::states, std::as_bytes(std::span(states)));
      notify();
    }
  }
}

void ControlPlane::handle_time() {
  const std::uint64_t now = monotonic_ns();
  const std::uint64_t silence_ns = std::uint64_t{table_.settings.heartbeat_timeout_ms} * 1'000'000u;
  // After a pause of this process itself nobody else is to blame.
  const bool paused = now - last_turn_ns_ > 2 * kPingNs;
  last_turn_ns_ = now;
  if (now >= next_ping_ns_) {
    next_ping_ns_ = now + kPingNs;
    if (options_.on_tick) options_.on_tick(now);
    for (auto& [rank, link] : links_) {
      if (link.fd) send(link, MessageType::ping, {});
    }
  }
  for (auto& [rank, link] : links_) {
    if (paused) link.last_heard_ns = now;
    if (silence_ns != 0 && link.fd && link.joined && now - link.last_heard_ns > silence_ns) {
      lose(link, STEPCCL_ERROR_PEER_SILENT, "nothing heard from it for " + std::to_string((now - link.last_heard_ns) / 1'000'000u) + " ms");
    }
  }
}

void ControlPlane::lose(Link& link, stepccl_result_t code, const std::string& cause) {
  link.fd.reset();
  const bool expected = link.gone || (options_.rank != 0 && said_goodbye_);
  if (options_.rank != 0) {
    const std::lock_guard lock(mutex_);
    all_gone_ = true;  // nobody left to wait for
    notify();
  }
  if (expected || failed()) return;
  Failure failure;
  failure.record.code = static_cast<std::uint16_t>(code);
  failure.record.peer = static_cast<std::int32_t>(link.rank);
  failure.record.reporter = static_cast<std::int32_t>(options_.rank);
  failure.text = cause;
  {
    const std::lock_guard lock(mutex_);
    failure.record.phase = state_.load().running != 0 ? STEPCCL_PHASE_TRANSFER : go_ ? STEPCCL_PHASE_NONE : STEPCCL_PHASE_RENDEZVOUS;
  }
  if (options_.rank == 0) broadcast(MessageType::fail, encode_failure(failure));
  set_failure(failure);
}

void ControlPlane::send(Link& link, MessageType type, std::span<const std::byte> payload) {
  if (!link.fd) return;
  const auto message = encode_message(type, payload);
  link.outgoing.insert(link.outgoing.end(), message.begin(), message.end());
  flush(link);
}

void ControlPlane::broadcast(MessageType type, std::span<const std::byte> payload) {
  for (auto& [rank, link] : links_) send(link, type, payload);
}

void ControlPlane::flush(Link& link) {
  std::size_t done = 0;
  while (done < link.outgoing.size()) {
    const ssize_t sent = ::send(link.fd.get(), link.outgoing.data() + done, link.outgoing.size() - done, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      break;  // full: later; broken: the read side will say so
    }
    done += static_cast<std::size_t>(sent);
  }
  link.outgoing.erase(link.outgoing.begin(), link.outgoing.begin() + static_cast<std::ptrdiff_t>(done));
  if (link.outgoing.size() > kMaxOutgoing) link.outgoing.clear(), ::shutdown(link.fd.get(), SHUT_RDWR);
}

}  // namespace stepccl::bootstrap
