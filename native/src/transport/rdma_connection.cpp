// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma_connection.hpp"

#include <arpa/inet.h>

#include <algorithm>

namespace stepccl::transport {
namespace {

// On one queue pair: a clearance and the parts of data for each slot, and as many receive requests, so that the receiver is
// always ready.
constexpr std::uint32_t kSendRequests = 2 * RdmaConnection::kSlots + 8;
constexpr std::uint32_t kReceiveRequests = 2 * RdmaConnection::kSlots;

// What a work request of ours was, in its wr_id: the kind, the queue pair, the slot.
enum class Work : std::uint64_t { receive = 0, clear_to_send = 1, data = 2 };
constexpr std::uint64_t work_id(Work kind, std::uint32_t lane, std::uint32_t slot) noexcept {
  return static_cast<std::uint64_t>(kind) << 32 | std::uint64_t{lane} << 16 | slot;
}
constexpr Work kind_of(std::uint64_t id) noexcept { return static_cast<Work>(id >> 32); }
constexpr std::uint32_t lane_of(std::uint64_t id) noexcept { return static_cast<std::uint32_t>(id >> 16 & 0xffffu); }
constexpr std::uint32_t slot_of(std::uint64_t id) noexcept { return static_cast<std::uint32_t>(id & 0xffffu); }

}  // namespace

Error RdmaConnection::broken(stepccl_result_t code, std::string cause) {
  flow_.add_error();
  return rdma_error(code, STEPCCL_PHASE_TRANSFER, std::move(cause) + " (" + device_.device().name + " port " + std::to_string(device_.device().port) + ")",
                    static_cast<std::int32_t>(peer_));
}

Status RdmaConnection::open_lanes(const RdmaOptions& options) {
  const std::uint32_t count = options.queue_pairs;
  auto mr = device_.register_memory(reinterpret_cast<std::byte*>(fifo_.get()), sizeof(Fifo));
  if (!mr.ok()) return mr.take_error();
  fifo_mr_ = std::move(mr.value());
  auto cq = device_.create_cq(static_cast<int>(count * (kSendRequests + kReceiveRequests)));
  if (!cq.ok()) return cq.take_error();
  cq_ = std::move(cq.value());
  for (std::uint32_t i = 0; i < count; ++i) {
    auto qp = device_.create_qp(cq_.get(), kSendRequests, kReceiveRequests);
    if (!qp.ok()) return qp.take_error();
    lanes_.push_back({std::move(qp.value()), 0});
    if (Status status = to_init(device_, lanes_.back().qp.get(), options); !status.ok()) return status;
    for (std::uint32_t k = 0; k < kReceiveRequests; ++k) {
      if (Status status = post_receive_request(lanes_.back()); !status.ok()) return status;
    }
  }
  return {};
}

Status RdmaConnection::set_up(int fd, const RdmaOptions& options, Deadline deadline, const std::function<bool()>& cancelled) {
  if (Status status = open_lanes(options); !status.ok()) return status;
  ConnectionInfo own;
  own.queue_pairs = static_cast<std::uint16_t>(lanes_.size());
  own.lid = device_.port().lid;
  own.mtu = static_cast<std::uint8_t>(device_.port().active_mtu);
  own.ethernet = device_.device().ethernet ? 1 : 0;
  own.split = options.split ? 1 : 0;
  own.gid = device_.device().gid;
  own.fifo_address = reinterpret_cast<std::uint64_t>(fifo_->inbox);
  own.fifo_key = fifo_mr_->rkey;
  std::vector<QueuePairEnd> ends;
  for (const Lane& lane : lanes_) {
    QueuePairEnd end{lane.qp->qp_num, 0};
    if (Status status = bootstrap::random_bytes(std::as_writable_bytes(std::span(&end.packet_number, 1))); !status.ok()) return status;
    end.packet_number &= 0xffffffu;
    ends.push_back(end);
  }
  const auto send = [&](std::span<const std::byte> bytes) { return bootstrap::write_all(fd, bytes, deadline, cancelled); };
  const auto receive = [&](std::span<std::byte> bytes) { return bootstrap::read_exact(fd, bytes, deadline, cancelled); };
  if (Status s = send(bootstrap::bytes_of(own)); !s.ok()) return s;
  if (Status s = send(std::as_bytes(std::span(ends))); !s.ok()) return s;

  std::array<std::byte, sizeof(ConnectionInfo)> raw;
  if (Status s = receive(raw); !s.ok()) return s;
  auto info = parse_connection_info(raw, device_.device().ethernet);
  if (!info.ok()) return info.take_error();
  remote_ = info.value();
  std::vector<std::byte> list(remote_.queue_pairs * sizeof(QueuePairEnd));
  if (Status s = receive(list); !s.ok()) return s;
  auto theirs = parse_queue_pairs(list, remote_);
  if (!theirs.ok()) return theirs.take_error();

  // The end that wants fewer decides, and so does the one that does not want to cut messages.
  const std::size_t used = std::min<std::size_t>(lanes_.size(), remote_.queue_pairs);
  lanes_.erase(lanes_.begin() + static_cast<std::ptrdiff_t>(used), lanes_.end());
  split_ = options.split && remote_.split != 0;
  for (std::size_t i = 0; i < used; ++i) {
    if (Status s = to_ready(device_, lanes_[i].qp.get(), own, ends[i], remote_, theirs.value()[i], options); !s.ok()) return s;
  }
  // Nobody writes before the other can receive.
  std::byte ready{1};
  if (Status s = send(std::span(&ready, 1)); !s.ok()) return s;
  return receive(std::span(&ready, 1));
}

Status RdmaConnection::post_receive_request(Lane& lane) {
  ibv_recv_wr request{};
  request.wr_id = work_id(Work::receive, static_cast<std::uint32_t>(&lane - lanes_.data()), 0);
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(lane.qp.get(), &request, &bad);
  if (error != 0) return broken(STEPCCL_ERROR_TRANSPORT_FAILED, "ibv_post_recv: " + errno_text(error));
  return {};
}

Status RdmaConnection::post_send(std::span<const std::byte> data, std::uint32_t step, const OperationTag& tag) {
  sends_.push_back({const_cast<std::byte*>(data.data()), data.size(), step, tag});
  return push();
}

Status RdmaConnection::post_recv(std::span<std::byte> data, std::uint32_t step, const OperationTag& tag) {
  receives_.push_back({data.data(), data.size(), step, tag});
  return push();
}

bool RdmaConnection::has_room(std::uint32_t first_lane, std::uint32_t lanes) const noexcept {
  for (std::uint32_t i = 0; i < lanes; ++i) {
    if (lanes_[(first_lane + i) % lanes_.size()].requests_open >= kSendRequests) return false;
  }
  return true;
}

// Posts what slots, clearances and the send queues allow now.
Status RdmaConnection::push() {
  while (!receives_.empty() && incoming_[clearances_sent_ % kSlots].parts_left == 0 && has_room(0, 1)) {
    if (Status status = clear(); !status.ok()) return status;
  }
  while (!sends_.empty() && messages_sent_ != clearances_come_ && outgoing_[messages_sent_ % kSlots].parts_left == 0 &&
         has_room(messages_sent_ % queue_pairs(), parts_of(sends_.front().bytes, queue_pairs(), split_))) {
    if (Status status = send_cleared(); !status.ok()) return status;
  }
  flow_.set_depth(sends_.size() + receives_.size() + open_ + flying_);
  return {};
}

Status RdmaConnection::clear() {
  const Message message = receives_.front();
  auto mr = registration_(message.data, message.bytes);
  if (!mr.ok()) return broken(mr.error().code, mr.error().cause);
  const std::uint32_t slot = clearances_sent_ % kSlots;
  ClearToSend& record = fifo_->outbox[slot];
  record = {reinterpret_cast<std::uint64_t>(message.data), message.bytes,        mr.value()->rkey,
            clearances_sent_ + 1,                          message.tag.sequence, message.tag.signature};
  // Clearances keep their order: all of them go over the first queue pair.
  const Write request{0,
                      reinterpret_cast<const std::byte*>(&record),
                      sizeof record,
                      fifo_mr_.get(),
                      remote_.fifo_address + slot * sizeof record,
                      remote_.fifo_key,
                      kClearToSendBit | (clearances_sent_ & ~kClearToSendBit),
                      work_id(Work::clear_to_send, 0, slot)};
  if (Status status = write(request); !status.ok()) return status;
  incoming_[slot] = {message.step, parts_of(message.bytes, queue_pairs(), split_), message.bytes};
  ++open_;
  ++clearances_sent_;
  receives_.pop_front();
  return {};
}

Status RdmaConnection::send_cleared() {
  const Message message = sends_.front();
  const std::uint32_t slot = messages_sent_ % kSlots;
  const ClearToSend record = fifo_->inbox[slot];
  if (Status status = check_clearance(record, messages_sent_ + 1, message.tag, message.bytes); !status.ok()) {
    return broken(status.error().code, status.error().cause);
  }
  auto mr = registration_(message.data, message.bytes);
  if (!mr.ok()) return broken(mr.error().code, mr.error().cause);
  const std::uint32_t parts = parts_of(message.bytes, queue_pairs(), split_);
  outgoing_[slot] = {message.step, parts, message.bytes};
  ++flying_;
  for (std::uint32_t i = 0; i < parts; ++i) {
    const Part part = part_of(messages_sent_, message.bytes, queue_pairs(), split_, i);
    const Write request{part.queue_pair,
                        message.data + part.offset,
                        static_cast<std::size_t>(part.bytes),
                        mr.value(),
                        record.address + part.offset,
                        record.key,
                        messages_sent_ & ~kClearToSendBit,
                        work_id(Work::data, part.queue_pair, slot)};
    if (Status status = write(request); !status.ok()) return status;
  }
  ++messages_sent_;
  flow_.add_sent(message.bytes);
  sends_.pop_front();
  return {};
}

Status RdmaConnection::write(const Write& request) {
  if (request.bytes > device_.port().max_msg_sz) return broken(STEPCCL_ERROR_TRANSPORT_FAILED, "the chunk is longer than the port's largest message");
  ibv_sge part{reinterpret_cast<std::uint64_t>(request.data), static_cast<std::uint32_t>(request.bytes), request.mr->lkey};
  ibv_send_wr work{};
  work.wr_id = request.id;
  work.sg_list = &part;
  work.num_sge = 1;
  work.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  work.send_flags = IBV_SEND_SIGNALED;
  work.imm_data = htonl(request.immediate);
  work.wr.rdma.remote_addr = request.address;
  work.wr.rdma.rkey = request.key;
  ibv_send_wr* bad = nullptr;
  Lane& lane = lanes_[request.lane];
  const int error = ibv_post_send(lane.qp.get(), &work, &bad);
  if (error != 0) return broken(STEPCCL_ERROR_TRANSPORT_FAILED, "ibv_post_send: " + errno_text(error));
  ++lane.requests_open;
  return {};
}

Expected<bool> RdmaConnection::progress(std::vector<std::uint32_t>& finished) {
  bool moved = false;
  while (true) {
    ibv_wc completions[16];
    const int count = ibv_poll_cq(cq_.get(), 16, completions);
    if (count < 0) return broken(STEPCCL_ERROR_TRANSPORT_FAILED, "ibv_poll_cq failed");
    for (int i = 0; i < count; ++i) {
      if (Status status = complete(completions[i], finished); !status.ok()) return status.take_error();
    }
    if (count == 0) break;
    moved = true;
  }
  if (Status status = push(); !status.ok()) return status.take_error();
  return moved;
}

Expected<bool> RdmaConnection::arm() {
  if (armed_) return false;
  if (ibv_req_notify_cq(cq_.get(), 0) != 0) return broken(STEPCCL_ERROR_TRANSPORT_FAILED, "ibv_req_notify_cq failed");
  armed_ = true;
  return true;
}

Status RdmaConnection::complete(const ibv_wc& completion, std::vector<std::uint32_t>& finished) {
  if (completion.status != IBV_WC_SUCCESS) {
    return broken(STEPCCL_ERROR_TRANSPORT_FAILED, std::string(device_.api().wc_status_str(completion.status)) + " (status " +
                                                      std::to_string(completion.status) + ", vendor error " + std::to_string(completion.vendor_err) + ")");
  }
  if (lane_of(completion.wr_id) >= lanes_.size()) return broken(STEPCCL_ERROR_TRANSPORT_FAILED, "a completion of a request that was never made");
  if (kind_of(completion.wr_id) == Work::receive) return arrived(completion, finished);
  --lanes_[lane_of(completion.wr_id)].requests_open;
  if (kind_of(completion.wr_id) != Work::data) return {};
  Flight& flight = outgoing_[slot_of(completion.wr_id)];
  if (--flight.parts_left != 0) return {};
  --flying_;
  finished.push_back(flight.step);
  return {};
}

// A clearance or a part of a message has come. Parts may come in any order: a message is complete when all have.
Status RdmaConnection::arrived(const ibv_wc& completion, std::vector<std::uint32_t>& finished) {
  if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM) return broken(STEPCCL_ERROR_PROTOCOL, "a message came without its number");
  if (Status status = post_receive_request(lanes_[lane_of(completion.wr_id)]); !status.ok()) return status;
  const std::uint32_t immediate = ntohl(completion.imm_data);
  const std::uint32_t number = immediate & ~kClearToSendBit;
  if ((immediate & kClearToSendBit) != 0) {
    if (number != (clearances_come_ & ~kClearToSendBit)) return broken(STEPCCL_ERROR_PROTOCOL, "a clearance came out of order");
    if (clearances_come_ - messages_sent_ >= kSlots) return broken(STEPCCL_ERROR_PROTOCOL, "more clearances came than there are slots");
    ++clearances_come_;
    return {};
  }
  Flight& flight = incoming_[number % kSlots];
  // Of the numbers that share this slot only the last one cleared can still be open.
  const std::uint32_t behind = (clearances_sent_ - 1 - number) & ~kClearToSendBit;
  if (flight.parts_left == 0 || behind >= kSlots) return broken(STEPCCL_ERROR_PROTOCOL, "a message came that was not cleared");
  if (--flight.parts_left != 0) return {};
  --open_;
  flow_.add_received(flight.bytes);
  finished.push_back(flight.step);
  return {};
}

}  // namespace stepccl::transport
