// SPDX-License-Identifier: Apache-2.0
// What the communicator's own thread calls. The service thread is in control_service.cpp.
#include "bootstrap/control_plane.hpp"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace stepccl::bootstrap {
namespace {

Error rendezvous_error(stepccl_result_t code, std::string cause, std::int32_t peer = -1) {
  return make_error(code, STEPCCL_PHASE_RENDEZVOUS, std::move(cause), peer);
}

// "1, 2, 5 and 7 more"
std::string list_ranks(const std::vector<std::uint32_t>& ranks) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kShown); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > kShown) text += " and " + std::to_string(ranks.size() - kShown) + " more";
  return text;
}

}  // namespace

ControlPlane::ControlPlane(Options options) : options_(std::move(options)) {
  key_.secret = options_.id.secret;
  key_.comm_id = options_.id.comm_id;
  key_.rank = options_.rank;
  key_.world = options_.world;
  options_.self.rank = options_.rank;
  wake_ = Fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  notify_ = Fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
}

ControlPlane::~ControlPlane() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake();
    thread_.join();
  }
  wipe(options_.id.secret);
}

Expected<std::unique_ptr<ControlPlane>> ControlPlane::join(Options options, Deadline deadline,
                                                           const std::function<Status(Member&)>& complete_self) {
  std::unique_ptr<ControlPlane> plane(new ControlPlane(std::move(options)));
  if (!plane->wake_ || !plane->notify_) return rendezvous_error(STEPCCL_ERROR_SYSTEM, "eventfd: " + errno_text(errno));

  if (plane->options_.rank == 0) {
    ControlPlane* self = plane.get();
    plane->rendezvous_ = std::make_unique<Acceptor>(std::move(plane->options_.rendezvous), plane->key_, [self](const Hello& hello) {
      if (hello.role != static_cast<std::uint8_t>(Role::control)) return STEPCCL_ERROR_PROTOCOL;
      return hello.rank != 0 && self->admitted_.insert(hello.rank).second ? STEPCCL_SUCCESS : STEPCCL_ERROR_RANK_CONFLICT;
    });
    Endpoint address = plane->options_.data_address.value_or(plane->options_.id.endpoint);
    address.port = 0;
    if (Status status = plane->open_listener(address, complete_self); !status.ok()) return status.take_error();
    plane->links_.try_emplace(0, 0, Fd(), plane->options_.world);  // its own entry, without a socket
    Link& own = plane->links_.at(0);
    own.joined = true;
    plane->table_.settings = plane->options_.settings;
    plane->table_.members.assign(plane->options_.world, Member{});
    plane->table_.members[0] = plane->options_.self;
  } else if (Status status = plane->reach_rank_zero(deadline, complete_self); !status.ok()) {
    return status.take_error();
  }

  plane->thread_ = std::thread([self = plane.get()] { self->serve(); });
  if (Status status = plane->await_table(deadline); !status.ok()) {
    Error error = status.take_error();
    return plane->report(error);
  }
  return plane;
}

Status ControlPlane::open_listener(Endpoint address, const std::function<Status(Member&)>& complete_self) {
  auto listener = listen_on(address, 512);
  if (!listener.ok()) return listener.take_error();
  options_.self.family = address.family;
  options_.self.port = address.port;
  options_.self.address = address.address;
  if (Status status = complete_self(options_.self); !status.ok()) return status;
  data_ = std::make_unique<Acceptor>(std::move(listener.value()), key_, [this](const Hello& hello) {
    return !is_data_role(hello.role) ? STEPCCL_ERROR_PROTOCOL : hello.rank <= key_.rank ? STEPCCL_ERROR_RANK_CONFLICT : STEPCCL_SUCCESS;
  });
  return {};
}

Status ControlPlane::reach_rank_zero(Deadline deadline, const std::function<Status(Member&)>& complete_self) {
  // Rank 0 listens before anyone can know the id, so a refusal that lasts means that it is gone.
  const Deadline patience = Deadline::after_ms(3'000);
  Error last = rendezvous_error(STEPCCL_ERROR_TIMEOUT, "no time left", 0);
  for (int wait_ms = 50;; wait_ms = std::min(wait_ms * 2, 500)) {
    auto connected = connect_to(options_.id.endpoint, deadline, {});
    if (connected.ok()) {
      tune_socket(connected.value().get(), std::min(options_.timeout_ms, kDeadHostMs));
      Status status = client_handshake(connected.value().get(), key_, Role::control, deadline, {});
      if (status.ok()) {
        sockaddr_storage local{};
        socklen_t length = sizeof local;
        if (getsockname(connected.value().get(), reinterpret_cast<sockaddr*>(&local), &length) != 0) {
          return rendezvous_error(STEPCCL_ERROR_SYSTEM, "getsockname: " + errno_text(errno));
        }
        Endpoint address = options_.data_address.value_or(Endpoint::from_sockaddr(local));
        address.port = 0;
        if (Status opened = open_listener(address, complete_self); !opened.ok()) return opened;
        const auto message = encode_message(MessageType::join, bytes_of(options_.self));
        if (Status sent = write_all(connected.value().get(), message, deadline, {}); !sent.ok()) return sent;
        links_.try_emplace(0, 0, std::move(connected.value()), options_.world);
        links_.at(0).joined = true;
        return {};
      }
      last = status.take_error();
      last.peer = 0;
      // Closed in the middle: rank 0 makes room when many knock at once. Anything else stays true.
      if (last.code != STEPCCL_ERROR_PEER_CLOSED || deadline.passed()) return last;
    } else {
      last = connected.take_error();
      last.peer = 0;
      if (last.code != STEPCCL_ERROR_PEER_UNREACHABLE || patience.passed() || deadline.passed()) return last;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(wait_ms, deadline.left_ms(500))));
  }
}

Status ControlPlane::await_table(Deadline deadline) {
  // Rank 0 knows who is missing: let it say so first.
  if (options_.rank != 0) deadline = Deadline::after_ms(static_cast<std::uint64_t>(deadline.left_ms()) + 1'000);
  std::unique_lock lock(mutex_);
  while (!table_complete_) {
    if (failure_) {
      lock.unlock();
      return failure();
    }
    if (deadline.passed()) {
      if (options_.rank != 0) return rendezvous_error(STEPCCL_ERROR_TIMEOUT, "rank 0 did not tell who takes part", 0);
      std::vector<std::uint32_t> missing;
      for (std::uint32_t rank = 1; rank < options_.world; ++rank) {
        if (table_.members[rank].port == 0) missing.push_back(rank);
      }
      return rendezvous_error(STEPCCL_ERROR_TIMEOUT, "rank(s) " + list_ranks(missing) + " of " + std::to_string(options_.world) + " did not join in time",
                              missing.empty() ? -1 : static_cast<std::int32_t>(missing.front()));
    }
    changed_.wait_for(lock, std::chrono::milliseconds(deadline.left_ms(1'000)));
  }
  return {};
}

Status ControlPlane::barrier(Deadline deadline) {
  std::unique_lock lock(mutex_);
  ready_ = true;
  wake();
  while (!go_) {
    if (failure_) {
      lock.unlock();
      return failure();
    }
    if (deadline.passed()) return rendezvous_error(STEPCCL_ERROR_TIMEOUT, "not all ranks could open their data paths in time", 0);
    changed_.wait_for(lock, std::chrono::milliseconds(deadline.left_ms(1'000)));
  }
  return {};
}

void ControlPlane::wake() noexcept {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);  // full means that it is readable already
}

void ControlPlane::notify() noexcept {
  const std::uint64_t one = 1;
  (void)!::write(notify_.get(), &one, sizeof one);
  changed_.notify_all();
}

void ControlPlane::clear_notification() noexcept {
  std::uint64_t count = 0;
  (void)!::read(notify_.get(), &count, sizeof count);
}

Error ControlPlane::failure() const {
  const std::lock_guard lock(mutex_);
  if (!failure_) return make_error(STEPCCL_ERROR_INTERNAL, STEPCCL_PHASE_NONE, "no failure is known");
  const FailureRecord& record = failure_->record;
  const auto own = static_cast<std::int32_t>(options_.rank);
  Error error{static_cast<stepccl_result_t>(record.code), record.peer, static_cast<stepccl_phase_t>(record.phase),
              static_cast<stepccl_transport>(record.transport), failure_->text};
  if (record.reporter == own || record.reporter < 0) return error;
  const std::string reporter = std::to_string(record.reporter);
  // A rank that failed by itself, and one that blames this rank, is what stopped this rank.
  if (record.peer < 0 || record.peer == own || record.code == STEPCCL_ERROR_ABORTED) {
    error.code = record.code == STEPCCL_ERROR_MISMATCH ? STEPCCL_ERROR_MISMATCH : STEPCCL_ERROR_PEER_FAILED;
    error.peer = record.reporter;
    error.cause = std::string("rank ") + reporter + " reports " + stepccl_result_code(static_cast<stepccl_result_t>(record.code)) + " " +
                  stepccl_result_name(static_cast<stepccl_result_t>(record.code)) + ": " + failure_->text;
  } else {
    error.cause += " (reported by rank " + reporter + ")";
  }
  return error;
}

Error ControlPlane::report(const Error& error) {
  if (!failed()) {
    Failure mine;
    mine.record.code = static_cast<std::uint16_t>(error.code);
    mine.record.phase = static_cast<std::uint8_t>(error.phase);
    mine.record.transport = static_cast<std::uint8_t>(error.transport);
    mine.record.peer = error.peer;
    mine.record.reporter = static_cast<std::int32_t>(options_.rank);
    mine.text = error.cause.substr(0, kMaxFailureText);
    std::unique_lock lock(mutex_);
    to_report_.push_back(mine);
    wake();
    changed_.wait_for(lock, std::chrono::milliseconds(300), [&] { return failure_.has_value(); });
    lock.unlock();
    if (!failed()) set_failure(mine);
  }
  Error agreed = failure();
  // The same failure, seen here with more detail.
  if (agreed.peer == error.peer && agreed.code == error.code) return error;
  return agreed;
}

void ControlPlane::set_failure(const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  failure_ = failure;
  failed_.store(true, std::memory_order_release);
  notify();
}

void ControlPlane::request_states() {
  {
    const std::lock_guard lock(mutex_);
    ++states_wanted_;
  }
  wake();
}

std::vector<OperationState> ControlPlane::states_after(std::uint64_t& seen) const {
  const std::lock_guard lock(mutex_);
  if (states_number_ <= seen) return {};
  seen = states_number_;
  return states_;
}

std::vector<OperationState> ControlPlane::fetch_states(Deadline deadline) {
  std::unique_lock lock(mutex_);
  const std::uint64_t before = states_number_;
  ++states_wanted_;
  wake();
  while (states_number_ == before && !deadline.passed() && !failure_) {
    changed_.wait_for(lock, std::chrono::milliseconds(deadline.left_ms(100)));
  }
  return states_number_ == before ? std::vector<OperationState>() : states_;
}

Expected<Fd> ControlPlane::take_data_connection(std::uint32_t peer, Role role, Deadline deadline) {
  const auto key = std::make_pair(peer, static_cast<std::uint8_t>(role));
  std::unique_lock lock(mutex_);
  while (true) {
    if (const auto found = inbox_.find(key); found != inbox_.end()) {
      Fd fd = std::move(found->second);
      inbox_.erase(found);
      return fd;
    }
    if (failure_) {
      lock.unlock();
      return failure();
    }
    if (deadline.passed()) {
      return make_error(STEPCCL_ERROR_TIMEOUT, STEPCCL_PHASE_CONNECT, "it did not connect to this rank in time", static_cast<std::int32_t>(peer));
    }
    if (changed_.wait_for(lock, std::chrono::milliseconds(deadline.left_ms(1'000))) == std::cv_status::timeout && wait_check_) {
      lock.unlock();
      if (Status status = wait_check_(); !status.ok()) return status.take_error();
      lock.lock();
    }
  }
}

void ControlPlane::leave(Deadline deadline) {
  std::unique_lock lock(mutex_);
  goodbye_ = true;
  wake();
  while (!all_gone_ && !failure_ && !deadline.passed()) {
    changed_.wait_for(lock, std::chrono::milliseconds(deadline.left_ms(1'000)));
  }
}

}  // namespace stepccl::bootstrap
