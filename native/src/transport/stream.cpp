// SPDX-License-Identifier: Apache-2.0
#include "transport/stream.hpp"

#include <algorithm>
#include <deque>

namespace stepccl::transport {
namespace {

constexpr std::uint32_t kMessageMagic = 0x314d4353u;  // "SCM1"
constexpr std::size_t kBatch = 8;                     // messages that leave in one call

constexpr std::size_t kFewStreams = 2;                // that are asked one by one rather than through the poller

struct MessageHeader {
  std::uint32_t magic = kMessageMagic;
  std::uint32_t sequence = 0;
  std::uint32_t signature = 0;
  std::uint32_t reserved = 0;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(MessageHeader) == 24);

struct Send {
  MessageHeader header;
  std::span<const std::byte> data;
  std::size_t done = 0;  // of header and data together
  std::uint32_t step = 0;
};

struct Receive {
  std::span<std::byte> data;
  std::size_t done = 0;  // of the data
  std::uint32_t step = 0;
  OperationTag tag;
};

}  // namespace

// One stream, and what goes over it.
struct StreamTransport::Lane {
  std::unique_ptr<ByteStream> stream;
  std::deque<Send> sends;
  std::deque<Receive> receives;
  MessageHeader header;  // of the message that comes in
  std::size_t header_done = 0;
};

struct StreamTransport::Channel {
  std::uint32_t peer = 0;
  std::vector<Lane> lanes;
  std::uint64_t sends = 0;  // since the beginning: which lane the next one takes
  std::uint64_t receives = 0;
  telemetry::Flow flow;

  void show_depth() noexcept {
    std::size_t depth = 0;
    for (const Lane& lane : lanes) depth += lane.sends.size() + lane.receives.size();
    flow.set_depth(depth);
  }
};

Status StreamTransport::connect(std::uint32_t peer, Deadline deadline) {
  if (channels_.contains(peer)) return {};
  auto channel = std::make_shared<Channel>();
  channel->peer = peer;
  for (std::size_t i = 0; i < lanes(); ++i) {
    auto stream = open(peer, i, deadline);
    if (!stream.ok()) return stream.take_error();
    channel->lanes.emplace_back().stream = std::move(stream.value());
  }
  channel->flow = ring_.flow(peer, kind(), control_.members()[peer].endpoint());
  channels_.emplace(peer, std::move(channel));
  return {};
}

Status StreamTransport::begin(std::span<const Region>) { return {}; }

void StreamTransport::end() noexcept {
  for (auto& [peer, channel] : channels_) {
    for (Lane& lane : channel->lanes) {
      lane.sends.clear();
      lane.receives.clear();
    }
    channel->show_depth();
  }
}

Status StreamTransport::post_send(std::uint32_t peer, std::span<const std::byte> data, std::uint32_t step) {
  Channel& channel = *channels_.at(peer);
  channel.lanes[channel.sends++ % channel.lanes.size()].sends.push_back({{kMessageMagic, tag_.sequence, tag_.signature, 0, data.size()}, data, 0, step});
  channel.show_depth();
  return {};
}

Status StreamTransport::post_recv(std::uint32_t peer, std::span<std::byte> data, std::uint32_t step) {
  Channel& channel = *channels_.at(peer);
  channel.lanes[channel.receives++ % channel.lanes.size()].receives.push_back({data, 0, step, tag_});
  channel.show_depth();
  return {};
}

Expected<bool> StreamTransport::progress(std::vector<std::uint32_t>& finished) {
  bool moved = false;
  for (auto& [peer, channel] : channels_) {
    for (Lane& lane : channel->lanes) {
      if (Status status = write_some(*channel, lane, finished, moved); !status.ok()) return status.take_error();
      if (Status status = read_some(*channel, lane, finished, moved); !status.ok()) return status.take_error();
    }
  }
  return moved;
}

Expected<bool> StreamTransport::may_sleep() {
  for (const auto& [peer, channel] : channels_) {
    for (const Lane& lane : channel->lanes) {
      if (!lane.receives.empty() && lane.stream->may_read()) return false;
      if (!lane.sends.empty() && lane.stream->may_write()) return false;
    }
  }
  return true;
}

bool StreamTransport::try_again() noexcept {
  ByteStream* waits[kFewStreams];
  std::size_t used = 0;
  for (const auto& [peer, channel] : channels_) {
    for (const Lane& lane : channel->lanes) {
      if (!lane.sends.empty()) return false;  // room to write shows in the poller alone
      if (lane.receives.empty()) continue;
      if (used == kFewStreams) return false;
      waits[used++] = lane.stream.get();
    }
  }
  for (std::size_t i = 0; i < used; ++i) waits[i]->try_reading();
  return used != 0;
}

Error StreamTransport::broken(Channel& channel, Error error) {
  channel.flow.add_error();
  error.phase = STEPCCL_PHASE_TRANSFER;
  error.peer = static_cast<std::int32_t>(channel.peer);
  error.transport = kind();
  // The link, where it has a name that a person can look up.
  if (kind() == STEPCCL_TRANSPORT_TCP && error.code != STEPCCL_ERROR_MISMATCH) error.cause += " (" + control_.members()[channel.peer].endpoint().to_string() + ")";
  return error;
}

Status StreamTransport::write_some(Channel& channel, Lane& lane, std::vector<std::uint32_t>& finished, bool& moved) {
  while (!lane.sends.empty() && lane.stream->may_write()) {
    iovec parts[2 * kBatch];
    std::size_t used = 0;
    for (std::size_t i = 0; i < std::min(lane.sends.size(), kBatch); ++i) {
      Send& send = lane.sends[i];
      const std::size_t header_done = std::min(send.done, sizeof send.header);
      const std::size_t data_done = send.done - header_done;
      if (header_done < sizeof send.header) {
        parts[used++] = {reinterpret_cast<std::byte*>(&send.header) + header_done, sizeof send.header - header_done};
      }
      parts[used++] = {const_cast<std::byte*>(send.data.data()) + data_done, send.data.size() - data_done};
    }
    auto sent = lane.stream->write({parts, used});
    if (!sent.ok()) return broken(channel, sent.take_error());
    if (sent.value() == 0) break;
    moved = true;
    std::size_t rest = sent.value();
    while (!lane.sends.empty()) {
      Send& send = lane.sends.front();
      const std::size_t total = sizeof send.header + send.data.size();
      const std::size_t taken = std::min(rest, total - send.done);
      send.done += taken;
      rest -= taken;
      if (send.done != total) break;
      channel.flow.add_sent(send.data.size());
      finished.push_back(send.step);
      lane.sends.pop_front();
    }
    channel.show_depth();
  }
  return {};
}

Status StreamTransport::read_some(Channel& channel, Lane& lane, std::vector<std::uint32_t>& finished, bool& moved) {
  while (!lane.receives.empty() && lane.stream->may_read()) {
    Receive& receive = lane.receives.front();
    MessageHeader& header = lane.header;
    // The header, or what is left of it, and as much of the data as this receive has room for.
    const iovec parts[2] = {{reinterpret_cast<std::byte*>(&header) + lane.header_done, sizeof header - lane.header_done},
                            {receive.data.data() + receive.done, receive.data.size() - receive.done}};
    const std::size_t skip = lane.header_done == sizeof header ? 1 : 0;
    auto got = lane.stream->read(std::span(parts).subspan(skip));
    if (!got.ok()) return broken(channel, got.take_error());
    if (got.value() == 0) break;
    moved = true;
    const std::size_t to_header = std::min(got.value(), sizeof header - lane.header_done);
    lane.header_done += to_header;
    receive.done += got.value() - to_header;
    if (to_header != 0 && lane.header_done == sizeof header) {
      if (header.magic != kMessageMagic) return broken(channel, Error{STEPCCL_ERROR_PROTOCOL, -1, {}, {}, "the stream is out of step"});
      if (OperationTag{header.sequence, header.signature} != receive.tag || header.bytes != receive.data.size()) {
        return broken(channel, Error{STEPCCL_ERROR_MISMATCH, -1, {}, {}, "its message belongs to another call"});
      }
    }
    if (lane.header_done != sizeof header || receive.done != receive.data.size()) continue;
    channel.flow.add_received(receive.data.size());
    finished.push_back(receive.step);
    lane.receives.pop_front();
    lane.header_done = 0;
    channel.show_depth();
  }
  return {};
}

}  // namespace stepccl::transport
