// SPDX-License-Identifier: Apache-2.0
// What moves bytes between this rank and its peers. One communicator owns one of each kind that it needs; all calls
// come from the thread that runs the operation.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/fd.hpp"

namespace stepccl::transport {

// Goes with every message, so that ranks in different calls find out instead of mixing their bytes.
struct OperationTag {
  std::uint32_t sequence = 0;   // the operation's number, low 32 bits
  std::uint32_t signature = 0;  // of collective, count, datatype, redop, root and algorithm
  [[nodiscard]] bool operator==(const OperationTag&) const = default;
};

// A piece of memory that an operation may send from or receive into.
struct Region {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool lasting = false;  // belongs to the library and stays where it is: a registration may be kept
};

class NodeEngine;

class Transport {
 public:
  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  [[nodiscard]] virtual stepccl_transport kind() const noexcept = 0;

  // Opens the path to a peer, once. Both ends call it; a rank calls it for its peers in ascending order, so no
  // two ranks can wait for each other.
  [[nodiscard]] virtual Status connect(std::uint32_t peer, Deadline deadline) = 0;

  // Every rank has come as far as this one: what was only needed to find each other may go.
  virtual void all_connected() {}

  // What runs collectives in the memory of one node, where all ranks share it; nullptr elsewhere.
  [[nodiscard]] virtual NodeEngine* node_engine() noexcept { return nullptr; }

  // Brackets one or more operations. Between them posts are allowed and begin() may be called again to add regions;
  // after an error end() still has to be called, and then nothing touches any of the regions any more.
  [[nodiscard]] virtual Status begin(std::span<const Region> regions) = 0;
  virtual void end() noexcept = 0;
  // What the messages posted from now on belong to. Posts of several operations may stand in one queue.
  void use_tag(const OperationTag& tag) noexcept { tag_ = tag; }
  // A lasting region is about to be freed.
  virtual void forget(const std::byte* data) noexcept { (void)data; }
  // Whether begin() does costly work per region, so that small operations go better through lasting memory.
  [[nodiscard]] virtual bool registers_memory() const noexcept { return false; }

  // Messages of a pair arrive in the order in which they are sent. `step` comes back from progress().
  [[nodiscard]] virtual Status post_send(std::uint32_t peer, std::span<const std::byte> data, std::uint32_t step) = 0;
  [[nodiscard]] virtual Status post_recv(std::uint32_t peer, std::span<std::byte> data, std::uint32_t step) = 0;

  // Moves what can be moved without blocking; appends finished steps. True when anything moved.
  [[nodiscard]] virtual Expected<bool> progress(std::vector<std::uint32_t>& finished) = 0;

  // While polling: true where the next progress() will look by itself at all that is waited for, which costs less than
  // asking the poller.
  [[nodiscard]] virtual bool try_again() noexcept { return false; }

  // Called before sleeping in the poller: false when something has come meanwhile and progress() must run again.
  [[nodiscard]] virtual Expected<bool> may_sleep() = 0;

 protected:
  OperationTag tag_;
};

// The epoll set that a communicator's thread sleeps in. Edge-triggered.
class Poller {
 public:
  using Handler = std::function<void(std::uint32_t events)>;

  [[nodiscard]] Status open();
  // The handler stays until remove().
  [[nodiscard]] Status add(int fd, std::uint32_t events, Handler handler);
  void remove(int fd) noexcept;
  // Runs the handlers of what is ready; waits up to timeout_ms where nothing is.
  [[nodiscard]] Status wait(int timeout_ms);

 private:
  Fd epoll_;
  std::map<int, Handler> handlers_;
};

}  // namespace stepccl::transport
