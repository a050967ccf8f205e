// SPDX-License-Identifier: Apache-2.0
// A listener that hands out authenticated connections only. Strangers cost a bounded number of
// descriptors for a bounded time and can't keep a rank out: the oldest stranger goes first.
#pragma once

#include <poll.h>

#include <list>

#include "bootstrap/handshake.hpp"

namespace stepccl::bootstrap {

class Acceptor {
 public:
  static constexpr std::size_t kMaxPending = 256;
  static constexpr std::uint64_t kHandshakeMs = 10'000;

  struct Accepted {
    Fd fd;
    Hello hello;
  };

  Acceptor(Fd listener, const JobKey& key, AdmissionCheck check)
      : listener_(std::move(listener)), key_(key), check_(std::move(check)) {}

  // Appends what to poll for. The next process() must get exactly these entries back.
  void add_polls(std::vector<pollfd>& polls);
  // Does what the polled events allow, without blocking.
  void process(std::span<const pollfd> polls, std::vector<Accepted>& out);
  [[nodiscard]] std::size_t poll_count() const noexcept { return polled_; }
  [[nodiscard]] std::size_t pending() const noexcept { return pending_.size(); }

 private:
  struct Pending {
    Fd fd;
    ServerHandshake handshake;
    std::vector<std::byte> outgoing;
    Deadline deadline;
  };

  void accept_new();
  // Whether the connection stays pending.
  bool advance(Pending& pending, std::vector<Accepted>& out);

  Fd listener_;
  const JobKey& key_;
  AdmissionCheck check_;
  std::list<Pending> pending_;  // oldest first
  std::size_t polled_ = 0;
  Deadline resume_ = Deadline::after_ms(0);  // accepting pauses until then when descriptors have run out
};

}  // namespace stepccl::bootstrap
