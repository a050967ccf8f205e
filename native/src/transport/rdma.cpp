// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma.hpp"

#include <sys/epoll.h>

#include <algorithm>

#include "transport/rdma_connection.hpp"
#include "transport/rdma_device.hpp"
#include "transport/tcp.hpp"

namespace stepccl::transport {
namespace {

using bootstrap::ControlPlane;

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
      for (auto& [peer, connection] : connections_) connection->disarm();
    });
  }

  stepccl_transport kind() const noexcept override { return STEPCCL_TRANSPORT_RDMA; }
  bool registers_memory() const noexcept override { return true; }

  Status connect(std::uint32_t peer, Deadline deadline) override {
    if (connections_.contains(peer)) return {};
    const auto find = [this](const std::byte* data, std::size_t bytes) { return registration_of(data, bytes); };
    auto connection = std::make_unique<RdmaConnection>(peer, *device_, find, ring_.flow(peer, kind(), control_.members()[peer].endpoint()));
    auto fd = data_connection(control_, peer, bootstrap::Role::rdma_setup, kind(), deadline);
    Status status = fd.ok() ? connection->set_up(fd.value().get(), options_, deadline, [this] { return control_.failed(); }) : Status(fd.take_error());
    if (!status.ok()) {
      Error error = status.take_error();
      if (error.peer < 0) error.peer = static_cast<std::int32_t>(peer);
      if (error.phase == STEPCCL_PHASE_RENDEZVOUS) error.phase = STEPCCL_PHASE_CONNECT;
      if (error.transport == STEPCCL_TRANSPORT_NONE) error.transport = kind();
      return control_.failed() ? control_.failure() : error;
    }
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
    for (auto& [peer, connection] : connections_) connection->show_idle();
  }

  void forget(const std::byte* data) noexcept override { lasting_.erase(data); }

  Status post_send(std::uint32_t peer, std::span<const std::byte> data, std::uint32_t step) override {
    return connections_.at(peer)->post_send(data, step, tag_);
  }

  Status post_recv(std::uint32_t peer, std::span<std::byte> data, std::uint32_t step) override {
    return connections_.at(peer)->post_recv(data, step, tag_);
  }

  Expected<bool> progress(std::vector<std::uint32_t>& finished) override {
    bool moved = false;
    for (auto& [peer, connection] : connections_) {
      auto any = connection->progress(finished);
      if (!any.ok()) return any.take_error();
      moved = moved || any.value();
    }
    return moved;
  }

  Expected<bool> may_sleep() override {
    // A completion queue announces only what comes after it was armed: arm, and let the caller look once more.
    bool all_armed = true;
    for (auto& [peer, connection] : connections_) {
      auto newly = connection->arm();
      if (!newly.ok()) return newly.take_error();
      all_armed = all_armed && !newly.value();
    }
    return all_armed;
  }

 private:
  Expected<ibv_mr*> registration_of(const std::byte* data, std::size_t bytes) {
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
    return rdma_error(STEPCCL_ERROR_INTERNAL, STEPCCL_PHASE_TRANSFER, "a buffer was not registered");
  }

  ControlPlane& control_;
  Poller& poller_;
  telemetry::RingWriter& ring_;
  RdmaOptions options_;
  std::unique_ptr<OpenDevice> device_;  // declared before what belongs to it
  std::map<const std::byte*, Verbs<ibv_mr>> lasting_;
  std::vector<Verbs<ibv_mr>> passing_;
  std::map<std::uint32_t, std::unique_ptr<RdmaConnection>> connections_;
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
