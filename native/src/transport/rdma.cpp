// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma.hpp"

#include <arpa/inet.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>

#include "transport/rdma_device.hpp"
#include "transport/tcp.hpp"

namespace stepccl::transport {
namespace {

using bootstrap::ControlPlane;

constexpr std::uint32_t kSlots = 32;               // open receives per peer
constexpr std::uint32_t kSendRequests = 2 * kSlots + 8;
constexpr std::uint32_t kReceiveRequests = 2 * kSlots;
constexpr std::uint32_t kClearToSendBit = 1u << 31;  // of the immediate; the rest is the message's number

// "Write your next message here."
struct ClearToSend {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint32_t key = 0;
  std::uint32_t number = 0;  // 1 for the first message of this direction
  std::uint32_t sequence = 0;
  std::uint32_t signature = 0;
};
static_assert(sizeof(ClearToSend) == 32);

// What a work request of ours was, in its wr_id: the kind above, the step below.
enum class Work : std::uint64_t { receive = 0, clear_to_send = 1, data = 2 };
constexpr std::uint64_t work_id(Work kind, std::uint32_t step) noexcept { return static_cast<std::uint64_t>(kind) << 32 | step; }

struct Connection {
  std::uint32_t peer = 0;
  // Written by the peer (inbox) and read by its device (outbox).
  struct Fifo {
    ClearToSend inbox[kSlots];
    ClearToSend outbox[kSlots];
  };
  std::unique_ptr<Fifo> fifo = std::make_unique<Fifo>();
  Verbs<ibv_mr> fifo_mr;
  Verbs<ibv_cq> cq;
  Verbs<ibv_qp> qp;  // declared after the queue that it uses, so destroyed first
  QueuePairInfo remote;

  struct Message {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::uint32_t step = 0;
    OperationTag tag;
  };
  std::deque<Message> sends;            // wait for clearance
  std::deque<Message> receives;         // wait for a free slot
  std::deque<Message> open;             // cleared; data is on its way, in this order
  std::uint32_t clearances_sent = 0;
  std::uint32_t clearances_come = 0;
  std::uint32_t messages_sent = 0;
  std::uint32_t messages_come = 0;
  std::uint32_t requests_open = 0;      // on the send queue, clearances too
  std::uint32_t data_open = 0;          // of them, those that read the user's memory
  bool armed = false;
  telemetry::Flow flow;

  // Nothing of the user's memory is under way. The completion of a last clearance may still come.
  [[nodiscard]] bool idle() const noexcept { return sends.empty() && receives.empty() && open.empty() && data_open == 0; }
};

class RdmaTransport final : public Transport {
 public:
  RdmaTransport(ControlPlane& control, Poller& poller, telemetry::RingWriter& ring, const RdmaOptions& options, std::unique_ptr<OpenDevice> device)
      : control_(control), poller_(poller), ring_(ring), options_(options), device_(std::move(device)) {}

  ~RdmaTransport() override { poller_.remove(device_->channel()->fd); }

  Status start() {
    return poller_.add(device_->channel()->fd, EPOLLIN, [this](std::uint32_t) {
      ibv_cq* cq = nullptr;
      void* tag = nullptr;
      while (device_->api().get_cq_event(device_->channel(), &cq, &tag) == 0) device_->api().ack_cq_events(cq, 1);
      for (auto& [peer, connection] : connections_) connection->armed = false;
    });
  }

  stepccl_transport kind() const noexcept override { return STEPCCL_TRANSPORT_RDMA; }
  bool registers_memory() const noexcept override { return true; }

  Status connect(std::uint32_t peer, Deadline deadline) override {
    if (connections_.contains(peer)) return {};
    auto connection = std::make_unique<Connection>();
    connection->peer = peer;
    Status status = set_up(*connection, deadline);
    if (!status.ok()) {
      Error error = status.take_error();
      if (error.peer < 0) error.peer = static_cast<std::int32_t>(peer);
      if (error.phase == STEPCCL_PHASE_RENDEZVOUS) error.phase = STEPCCL_PHASE_CONNECT;
      if (error.transport == STEPCCL_TRANSPORT_NONE) error.transport = kind();
      return control_.failed() ? control_.failure() : error;
    }
    connection->flow = ring_.flow(peer, kind(), control_.members()[peer].endpoint());
    connections_.emplace(peer, std::move(connection));
    return {};
  }

  Status begin(std::span<const Region> regions) override {
    for (const Region& region : regions) {
      if (region.lasting && lasting_.contains(region.data)) continue;
      auto mr = device_->register_memory(region.data, region.bytes);
      if (!mr.ok()) return mr.take_error();
      if (region.lasting) {
        lasting_.emplace(region.data, std::move(mr.value()));
      } else {
        passing_.push_back(std::move(mr.value()));
      }
    }
    return {};
  }

  void end() noexcept override {
    const bool calm = std::all_of(connections_.begin(), connections_.end(), [](const auto& entry) { return entry.second->idle(); });
    // After a failure a peer may still write to what was cleared: without queue pairs nobody can.
    if (!calm) connections_.clear();
    passing_.clear();
    for (auto& [peer, connection] : connections_) connection->flow.set_depth(0);
  }

  void forget(const std::byte* data) noexcept override { lasting_.erase(data); }

  Status post_send(std::uint32_t peer, std::span<const std::byte> data, std::uint32_t step) override {
    Connection& connection = *connections_.at(peer);
    connection.sends.push_back({const_cast<std::byte*>(data.data()), data.size(), step, tag_});
    return push(connection);
  }

  Status post_recv(std::uint32_t peer, std::span<std::byte> data, std::uint32_t step) override {
    Connection& connection = *connections_.at(peer);
    connection.receives.push_back({data.data(), data.size(), step, tag_});
    return push(connection);
  }

  Expected<bool> progress(std::vector<std::uint32_t>& finished) override {
    bool moved = false;
    for (auto& [peer, connection] : connections_) {
      while (true) {
        ibv_wc completions[16];
        const int count = ibv_poll_cq(connection->cq.get(), 16, completions);
        if (count < 0) return broken(*connection, STEPCCL_ERROR_TRANSPORT_FAILED, "ibv_poll_cq failed");
        for (int i = 0; i < count; ++i) {
          if (Status status = complete(*connection, completions[i], finished); !status.ok()) return status.take_error();
        }
        if (count == 0) break;
        moved = true;
      }
      if (Status status = push(*connection); !status.ok()) return status.take_error();
    }
    return moved;
  }

  Expected<bool> may_sleep() override {
    // A completion queue announces only what comes after it was armed: arm, and let the caller look once more.
    bool all_armed = true;
    for (auto& [peer, connection] : connections_) {
      if (connection->armed) continue;
      if (ibv_req_notify_cq(connection->cq.get(), 0) != 0) return broken(*connection, STEPCCL_ERROR_TRANSPORT_FAILED, "ibv_req_notify_cq failed");
      connection->armed = true;
      all_armed = false;
    }
    return all_armed;
  }

 private:
  Error broken(Connection& connection, stepccl_result_t code, std::string cause) {
    connection.flow.add_error();
    return rdma_error(code, STEPCCL_PHASE_TRANSFER, std::move(cause), static_cast<std::int32_t>(connection.peer));
  }

  Status set_up(Connection& connection, Deadline deadline) {
    auto fd = data_connection(control_, connection.peer, bootstrap::Role::rdma_setup, kind(), deadline);
    if (!fd.ok()) return fd.take_error();
    auto* memory = reinterpret_cast<std::byte*>(connection.fifo.get());
    auto mr = device_->register_memory(memory, sizeof(Connection::Fifo));
    if (!mr.ok()) return mr.take_error();
    connection.fifo_mr = std::move(mr.value());
    auto cq = device_->create_cq(static_cast<int>(kSendRequests + kReceiveRequests));
    if (!cq.ok()) return cq.take_error();
    connection.cq = std::move(cq.value());
    auto qp = device_->create_qp(connection.cq.get(), kSendRequests, kReceiveRequests);
    if (!qp.ok()) return qp.take_error();
    connection.qp = std::move(qp.value());
    if (Status status = to_init(*device_, connection.qp.get()); !status.ok()) return status;
    for (std::uint32_t i = 0; i < kReceiveRequests; ++i) {
      if (Status status = post_receive_request(connection); !status.ok()) return status;
    }

    QueuePairInfo own;
    own.qp_number = connection.qp->qp_num;
    if (Status status = bootstrap::random_bytes(std::as_writable_bytes(std::span(&own.packet_number, 1))); !status.ok()) return status;
    own.packet_number &= 0xffffffu;
    own.lid = device_->port().lid;
    own.mtu = static_cast<std::uint8_t>(device_->port().active_mtu);
    own.ethernet = device_->device().ethernet ? 1 : 0;
    own.gid = device_->device().gid;
    own.fifo_address = reinterpret_cast<std::uint64_t>(connection.fifo->inbox);
    own.fifo_key = connection.fifo_mr->rkey;

    const auto cancelled = [this] { return control_.failed(); };
    QueuePairInfo& remote = connection.remote;
    if (Status s = bootstrap::write_all(fd.value().get(), bootstrap::bytes_of(own), deadline, cancelled); !s.ok()) return s;
    if (Status s = bootstrap::read_exact(fd.value().get(), std::as_writable_bytes(std::span(&remote, 1)), deadline, cancelled); !s.ok()) return s;
    if (remote.magic != own.magic || remote.ethernet != own.ethernet || remote.mtu < IBV_MTU_256 || remote.mtu > IBV_MTU_4096) {
      return rdma_error(STEPCCL_ERROR_PROTOCOL, STEPCCL_PHASE_CONNECT, "its queue pair's description is impossible");
    }
    if (Status s = to_ready(*device_, connection.qp.get(), own, remote, options_.timeout, options_.retry_count); !s.ok()) return s;
    // Nobody writes before the other can receive.
    std::byte ready{1};
    if (Status s = bootstrap::write_all(fd.value().get(), std::span(&ready, 1), deadline, cancelled); !s.ok()) return s;
    return bootstrap::read_exact(fd.value().get(), std::span(&ready, 1), deadline, cancelled);
  }

  Status post_receive_request(Connection& connection) {
    ibv_recv_wr request{};
    request.wr_id = work_id(Work::receive, 0);
    ibv_recv_wr* bad = nullptr;
    const int error = ibv_post_recv(connection.qp.get(), &request, &bad);
    if (error != 0) return broken(connection, STEPCCL_ERROR_TRANSPORT_FAILED, "ibv_post_recv: " + errno_text(error));
    return {};
  }

  // The registration that covers a range of this operation.
  Expected<ibv_mr*> registration_of(Connection& connection, const std::byte* data, std::size_t bytes) {
    const auto covers = [&](const ibv_mr& mr) {
      const auto* begin = static_cast<const std::byte*>(mr.addr);
      return data >= begin && data + bytes <= begin + mr.length;
    };
    for (const auto& mr : passing_) {
      if (covers(*mr)) return mr.get();
    }
    for (const auto& [address, mr] : lasting_) {
      if (covers(*mr)) return mr.get();
    }
    return broken(connection, STEPCCL_ERROR_INTERNAL, "a buffer was not registered");
  }

  Status write(Connection& connection, const std::byte* data, std::size_t bytes, ibv_mr* mr, std::uint64_t address, std::uint32_t key,
               std::uint32_t immediate, std::uint64_t id) {
    if (bytes > device_->port().max_msg_sz) return broken(connection, STEPCCL_ERROR_TRANSPORT_FAILED, "the chunk is longer than the port's largest message");
    ibv_sge part{reinterpret_cast<std::uint64_t>(data), static_cast<std::uint32_t>(bytes), mr->lkey};
    ibv_send_wr request{};
    request.wr_id = id;
    request.sg_list = &part;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.send_flags = IBV_SEND_SIGNALED;
    request.imm_data = htonl(immediate);
    request.wr.rdma.remote_addr = address;
    request.wr.rdma.rkey = key;
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(connection.qp.get(), &request, &bad);
    if (error != 0) return broken(connection, STEPCCL_ERROR_TRANSPORT_FAILED, "ibv_post_send: " + errno_text(error));
    ++connection.requests_open;
    return {};
  }

  // Posts what slots, clearances and the send queue allow now.
  Status push(Connection& connection) {
    // Clearances first: they are at most kSlots, so the send queue always has room for data too.
    while (!connection.receives.empty() && connection.open.size() < kSlots && connection.requests_open < kSendRequests) {
      if (Status status = clear(connection); !status.ok()) return status;
    }
    while (!connection.sends.empty() && connection.messages_sent != connection.clearances_come && connection.requests_open < kSendRequests) {
      if (Status status = send_cleared(connection); !status.ok()) return status;
    }
    connection.flow.set_depth(connection.sends.size() + connection.receives.size() + connection.open.size());
    return {};
  }

  Status clear(Connection& connection) {
    const Connection::Message message = connection.receives.front();
    auto mr = registration_of(connection, message.data, message.bytes);
    if (!mr.ok()) return mr.take_error();
    const std::uint32_t slot = connection.clearances_sent % kSlots;
    ClearToSend& record = connection.fifo->outbox[slot];
    record = {reinterpret_cast<std::uint64_t>(message.data), message.bytes, mr.value()->rkey, connection.clearances_sent + 1, message.tag.sequence, message.tag.signature};
    const auto* bytes = reinterpret_cast<const std::byte*>(&record);
    Status status = write(connection, bytes, sizeof record, connection.fifo_mr.get(), connection.remote.fifo_address + slot * sizeof record,
                          connection.remote.fifo_key, kClearToSendBit | (connection.clearances_sent & ~kClearToSendBit), work_id(Work::clear_to_send, 0));
    if (!status.ok()) return status;
    ++connection.clearances_sent;
    connection.receives.pop_front();
    connection.open.push_back(message);
    return {};
  }

  Status send_cleared(Connection& connection) {
    const Connection::Message message = connection.sends.front();
    const ClearToSend record = connection.fifo->inbox[connection.messages_sent % kSlots];
    if (record.number != connection.messages_sent + 1) return broken(connection, STEPCCL_ERROR_PROTOCOL, "a clearance came out of step");
    if (OperationTag{record.sequence, record.signature} != message.tag || record.bytes != message.bytes) {
      return broken(connection, STEPCCL_ERROR_MISMATCH, "its clearance belongs to another call");
    }
    auto mr = registration_of(connection, message.data, message.bytes);
    if (!mr.ok()) return mr.take_error();
    Status status = write(connection, message.data, message.bytes, mr.value(), record.address, record.key, connection.messages_sent & ~kClearToSendBit,
                          work_id(Work::data, message.step));
    if (!status.ok()) return status;
    ++connection.messages_sent;
    ++connection.data_open;
    connection.flow.add_sent(message.bytes);
    connection.sends.pop_front();
    return {};
  }

  Status complete(Connection& connection, const ibv_wc& completion, std::vector<std::uint32_t>& finished) {
    if (completion.status != IBV_WC_SUCCESS) {
      return broken(connection, STEPCCL_ERROR_TRANSPORT_FAILED,
                    std::string(device_->api().wc_status_str(completion.status)) + " (status " + std::to_string(completion.status) + ", vendor error " +
                        std::to_string(completion.vendor_err) + ")");
    }
    if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
      if (Status status = post_receive_request(connection); !status.ok()) return status;
      const std::uint32_t immediate = ntohl(completion.imm_data);
      if ((immediate & kClearToSendBit) != 0) {
        if ((immediate & ~kClearToSendBit) != (connection.clearances_come & ~kClearToSendBit)) {
          return broken(connection, STEPCCL_ERROR_PROTOCOL, "a clearance came out of order");
        }
        ++connection.clearances_come;
        return {};
      }
      if (connection.open.empty() || immediate != (connection.messages_come & ~kClearToSendBit)) {
        return broken(connection, STEPCCL_ERROR_PROTOCOL, "a message came that was not cleared");
      }
      ++connection.messages_come;
      connection.flow.add_received(connection.open.front().bytes);
      finished.push_back(connection.open.front().step);
      connection.open.pop_front();
      return {};
    }
    --connection.requests_open;
    if (completion.wr_id >> 32 == static_cast<std::uint64_t>(Work::data)) {
      --connection.data_open;
      finished.push_back(static_cast<std::uint32_t>(completion.wr_id));
    }
    return {};
  }

  ControlPlane& control_;
  Poller& poller_;
  telemetry::RingWriter& ring_;
  RdmaOptions options_;
  std::unique_ptr<OpenDevice> device_;  // declared before what belongs to it
  std::map<const std::byte*, Verbs<ibv_mr>> lasting_;
  std::vector<Verbs<ibv_mr>> passing_;
  std::map<std::uint32_t, std::unique_ptr<Connection>> connections_;
};

}  // namespace

Expected<std::unique_ptr<Transport>> make_rdma(ControlPlane& control, Poller& poller, telemetry::RingWriter& ring, const RdmaOptions& options) {
  auto chosen = find_rdma_device(control.members()[control.key().rank].endpoint(), options.choice);
  if (!chosen.ok()) return chosen.take_error();
  auto device = OpenDevice::open(chosen.value());
  if (!device.ok()) return device.take_error();
  auto transport = std::make_unique<RdmaTransport>(control, poller, ring, options, std::move(device.value()));
  if (Status status = transport->start(); !status.ok()) return status.take_error();
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace stepccl::transport
