// SPDX-License-Identifier: Apache-2.0
// The ranks' acquaintance, and the wire over which they learn of each other's end. A star around rank 0:
// one thread per communicator keeps its connections, so a death is noticed while no operation runs and
// whichever transport carries the data.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "bootstrap/acceptor.hpp"
#include "core/published.hpp"

namespace stepccl::bootstrap {

class ControlPlane {
 public:
  struct Options {
    UniqueId id;
    std::uint32_t rank = 0;
    std::uint32_t world = 1;
    std::uint32_t timeout_ms = 30'000;
    JobSettings settings;            // rank 0's are sent to all
    Member self;                     // all but rank and endpoint
    std::optional<Endpoint> data_address;  // to accept data connections on; default: this end of the way to rank 0
    Fd rendezvous;                   // rank 0's listener
    std::function<void(std::uint64_t now_ns)> on_tick;  // about once a second, in the service thread
  };

  // Meets the others. Before the caller's `self` can be complete it must know its own data address:
  // `complete_self` is called with it once, and may fail.
  [[nodiscard]] static Expected<std::unique_ptr<ControlPlane>> join(Options options, Deadline deadline,
                                                                    const std::function<Status(Member&)>& complete_self);
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  [[nodiscard]] const std::vector<Member>& members() const noexcept { return table_.members; }
  [[nodiscard]] const JobSettings& settings() const noexcept { return table_.settings; }
  [[nodiscard]] const JobKey& key() const noexcept { return key_; }

  // Tells that this rank's data paths are open and waits until all have said so.
  [[nodiscard]] Status barrier(Deadline deadline);

  // Readable when a failure or an answer has come: for the engine's epoll.
  [[nodiscard]] int notify_fd() const noexcept { return notify_.get(); }
  void clear_notification() noexcept;

  // Whether the communicator has failed: one atomic load.
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  // Why, as this rank should report it. Valid once failed().
  [[nodiscard]] Error failure() const;
  // Tells everyone that this rank met `error`, and gives the error that all ranks agree on: an earlier one may have
  // caused it. Waits at most 300 ms for rank 0's word.
  [[nodiscard]] Error report(const Error& error);

  // What this rank is in, for whoever asks. One thread at a time.
  void publish(const OperationState& state) noexcept { state_.store(state); }
  // Asks all ranks for their state; the answer comes to states_after() in a while.
  void request_states();
  // The last answer, by rank, if it is newer than `seen`, which it brings up to date; empty otherwise.
  [[nodiscard]] std::vector<OperationState> states_after(std::uint64_t& seen) const;
  // As request_states, and waits for an answer.
  [[nodiscard]] std::vector<OperationState> fetch_states(Deadline deadline);

  // What take_data_connection asks about once a second while it waits; an error ends the wait. Empty: nothing.
  void set_wait_check(std::function<Status()> check) { wait_check_ = std::move(check); }

  // An authenticated connection from a higher rank. TIMEOUT, the failure that came meanwhile, or the wait check's.
  [[nodiscard]] Expected<Fd> take_data_connection(std::uint32_t peer, Role role, Deadline deadline);

  // Says goodbye and waits until all have, or the deadline, or a failure.
  void leave(Deadline deadline);

 private:
  struct Link {
    Link(std::uint32_t peer, Fd socket, std::uint32_t world) : rank(peer), fd(std::move(socket)), reader(world) {}
    std::uint32_t rank;
    Fd fd;
    MessageReader reader;
    std::vector<std::byte> outgoing;
    std::uint64_t last_heard_ns = 0;
    bool joined = false;
    bool ready = false;
    bool gone = false;
  };

  explicit ControlPlane(Options options);
  Status open_listener(Endpoint address, const std::function<Status(Member&)>& complete_self);
  Status reach_rank_zero(Deadline deadline, const std::function<Status(Member&)>& complete_self);
  Status await_table(Deadline deadline);

  void serve();                                            // the thread
  void handle_accepted(std::vector<Acceptor::Accepted>& accepted);
  void handle_input(Link& link);
  void handle_message(Link& link, Message& message);       // what both kinds of rank do
  void handle_as_zero(Link& link, Message& message);
  void handle_as_other(Message& message);
  void handle_wishes();                                    // what other threads asked for
  void handle_time();
  void lose(Link& link, stepccl_result_t code, const std::string& cause);
  void after_progress();                                   // rank 0: table, go, all gone, states
  void send(Link& link, MessageType type, std::span<const std::byte> payload);
  void broadcast(MessageType type, std::span<const std::byte> payload);
  void flush(Link& link);
  void set_failure(const Failure& failure);
  void wake() noexcept;
  void notify() noexcept;

  Options options_;
  JobKey key_;
  Table table_;
  std::unique_ptr<Acceptor> data_;
  std::unique_ptr<Acceptor> rendezvous_;
  Fd wake_;
  Fd notify_;
  std::function<Status()> wait_check_;  // only the caller's thread touches it
  std::map<std::uint32_t, Link> links_;  // by rank; only the thread touches it once it runs
  std::thread thread_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  bool stop_ = false;
  bool table_complete_ = false;
  bool ready_ = false;
  bool go_ = false;
  bool goodbye_ = false;
  bool all_gone_ = false;
  std::uint64_t states_wanted_ = 0;   // requests made here
  std::uint64_t states_number_ = 0;
  std::vector<OperationState> states_;
  std::optional<Failure> failure_;
  std::vector<Failure> to_report_;
  std::map<std::pair<std::uint32_t, std::uint8_t>, Fd> inbox_;
  // Only the thread's:
  std::set<std::uint32_t> admitted_;  // ranks that have passed the rendezvous, also those not in links_ yet
  bool said_ready_ = false;
  bool said_goodbye_ = false;
  std::uint64_t states_asked_ = 0;
  std::vector<std::optional<OperationState>> gathering_;
  std::uint64_t next_ping_ns_ = 0;
  std::uint64_t last_turn_ns_ = 0;

  std::atomic<bool> failed_{false};
  Published<OperationState> state_;
};

}  // namespace stepccl::bootstrap
