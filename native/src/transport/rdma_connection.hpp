// SPDX-License-Identifier: Apache-2.0
// One peer over RDMA: several queue pairs, the messages that wait, those that are under way, and the credits.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "bootstrap/control_plane.hpp"
#include "telemetry/ring_writer.hpp"
#include "transport/rdma.hpp"
#include "transport/rdma_device.hpp"
#include "transport/rdma_wire.hpp"

namespace stepccl::transport {

// The registration that covers a range of an operation's memory.
using FindRegistration = std::function<Expected<ibv_mr*>(const std::byte* data, std::size_t bytes)>;

class RdmaConnection {
 public:
  static constexpr std::uint32_t kSlots = 32;  // open receives: the credits that a peer can have

  RdmaConnection(std::uint32_t peer, const OpenDevice& device, FindRegistration registration, telemetry::Flow flow)
      : peer_(peer), device_(device), registration_(std::move(registration)), flow_(flow) {}

  // Describes this end to the peer over an authenticated connection, learns its end, and brings the queue pairs up.
  [[nodiscard]] Status set_up(int fd, const RdmaOptions& options, Deadline deadline, const std::function<bool()>& cancelled);

  [[nodiscard]] Status post_send(std::span<const std::byte> data, std::uint32_t step, const OperationTag& tag);
  [[nodiscard]] Status post_recv(std::span<std::byte> data, std::uint32_t step, const OperationTag& tag);
  // Polls the completion queue; true when anything came.
  [[nodiscard]] Expected<bool> progress(std::vector<std::uint32_t>& finished);
  // Asks for an event at the next completion. False when that was done already.
  [[nodiscard]] Expected<bool> arm();
  void disarm() noexcept { armed_ = false; }

  // Nothing of the user's memory is under way. The completion of a last clearance may still come.
  [[nodiscard]] bool idle() const noexcept { return sends_.empty() && receives_.empty() && open_ == 0 && flying_ == 0; }
  void show_idle() noexcept { flow_.set_depth(0); }
  [[nodiscard]] std::uint32_t queue_pairs() const noexcept { return static_cast<std::uint32_t>(lanes_.size()); }

 private:
  // Written by the peer's device (inbox) and read by ours (outbox).
  struct Fifo {
    ClearToSend inbox[kSlots];
    ClearToSend outbox[kSlots];
  };
  struct Lane {
    Verbs<ibv_qp> qp;
    std::uint32_t requests_open = 0;  // on its send queue
  };
  struct Message {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::uint32_t step = 0;
    OperationTag tag;
  };
  // A message between its first part and its last.
  struct Flight {
    std::uint32_t step = 0;
    std::uint32_t parts_left = 0;  // 0: the slot is free
    std::size_t bytes = 0;
  };
  struct Write {
    std::uint32_t lane = 0;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    ibv_mr* mr = nullptr;
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::uint32_t immediate = 0;
    std::uint64_t id = 0;
  };

  [[nodiscard]] Error broken(stepccl_result_t code, std::string cause);
  [[nodiscard]] Status open_lanes(const RdmaOptions& options);
  [[nodiscard]] Status post_receive_request(Lane& lane);
  [[nodiscard]] Status push();
  [[nodiscard]] Status clear();
  [[nodiscard]] Status send_cleared();
  [[nodiscard]] Status write(const Write& request);
  [[nodiscard]] bool has_room(std::uint32_t first_lane, std::uint32_t lanes) const noexcept;
  [[nodiscard]] Status complete(const ibv_wc& completion, std::vector<std::uint32_t>& finished);
  [[nodiscard]] Status arrived(const ibv_wc& completion, std::vector<std::uint32_t>& finished);

  std::uint32_t peer_;
  const OpenDevice& device_;
  FindRegistration registration_;
  telemetry::Flow flow_;
  std::unique_ptr<Fifo> fifo_ = std::make_unique<Fifo>();
  Verbs<ibv_mr> fifo_mr_;
  Verbs<ibv_cq> cq_;
  std::vector<Lane> lanes_;  // declared after the queue that they use, so destroyed first
  ConnectionInfo remote_;
  bool split_ = false;

  std::deque<Message> sends_;     // wait for clearance
  std::deque<Message> receives_;  // wait for a free slot
  std::array<Flight, kSlots> incoming_{};  // by message number: cleared, data is on its way
  std::array<Flight, kSlots> outgoing_{};  // data has been handed to the device
  std::uint32_t open_ = 0;    // of incoming_
  std::uint32_t flying_ = 0;  // of outgoing_
  std::uint32_t clearances_sent_ = 0;
  std::uint32_t clearances_come_ = 0;
  std::uint32_t messages_sent_ = 0;
  bool armed_ = false;
};

}  // namespace stepccl::transport
