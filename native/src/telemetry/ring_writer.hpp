// SPDX-License-Identifier: Apache-2.0
// Publishes this rank's operations and flows to the node's daemon: the producer's side of telemetry.h, section 1.
// No lock, no system call after opening; a reader that is slow or absent changes nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "bootstrap/unique_id.hpp"
#include "stepccl/telemetry.h"
#include "telemetry/shared_file.hpp"

namespace stepccl::telemetry {

// Totals of one peer over one transport. Without a ring they go to memory that nobody reads.
class Flow {
 public:
  Flow() = default;
  explicit Flow(stepccl_flow* slot) noexcept : slot_(slot) {}

  void add_sent(std::uint64_t bytes) noexcept { add(&stepccl_flow::tx_bytes, bytes), add(&stepccl_flow::tx_ops, 1); }
  void add_received(std::uint64_t bytes) noexcept { add(&stepccl_flow::rx_bytes, bytes), add(&stepccl_flow::rx_ops, 1); }
  void add_error() noexcept { add(&stepccl_flow::errors, 1); }
  void set_depth(std::size_t depth) noexcept {
    if (slot_ != nullptr) __atomic_store_n(&slot_->queue_depth, static_cast<std::uint32_t>(depth), __ATOMIC_RELAXED);
  }

 private:
  void add(std::uint64_t stepccl_flow::*field, std::uint64_t amount) noexcept {
    if (slot_ != nullptr) __atomic_store_n(&(slot_->*field), slot_->*field + amount, __ATOMIC_RELAXED);
  }
  stepccl_flow* slot_ = nullptr;
};

class RingWriter {
 public:
  // Where the directory is missing or can't be written the writer stays closed: false, and no error.
  bool open(const std::string& directory, std::uint64_t comm_id, std::uint32_t rank, std::uint32_t world, const std::string& job_name);
  [[nodiscard]] bool is_open() const noexcept { return header_ != nullptr; }
  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }

  // The flow of a peer, made at the first call. Beyond STEPCCL_RING_FLOWS flows are not published.
  [[nodiscard]] Flow flow(std::uint32_t peer, stepccl_transport transport, const bootstrap::Endpoint& address) noexcept;

  void publish(const stepccl_op& op) noexcept;
  void heartbeat(std::uint64_t now_ns) noexcept;

 private:
  SharedFile file_;
  stepccl_ring_header* header_ = nullptr;
  stepccl_flow* flows_ = nullptr;
  stepccl_op* ops_ = nullptr;
  std::uint64_t head_ = 0;
};

}  // namespace stepccl::telemetry
