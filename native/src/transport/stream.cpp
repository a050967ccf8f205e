// SPDX-License-Identifier: Apache-2.0
#include "transport/stream.hpp"

#include <algorithm>
#include <deque>

namespace stepccl::transport {
namespace {

constexpr std::uint32_t kMessageMagic = 0x314d4353u;  // "SCM1"
constexpr std::size_t kBatch = 8;                     // messages that leave in one call

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

struct StreamTransport::Channel {
  std::uint32_t peer = 0;
  std::unique_ptr<ByteStream> stream;
  std::deque<Send> sends;
  std::deque<Receive> receives;
  MessageHeader header;  // of the message that comes in
  std::size_t header_done = 0;
  telemetry::Flow flow;

  void show_depth() noexcept { flow.set_depth(sends.size() + receives.size()); }
};

Status StreamTransport::connect(std::uint32_t peer, Deadline deadline) {
  if (channels_.contains(peer)) return {};
  auto stream = open(peer, deadline);
  if (!stream.ok()) return stream.take_error();
  auto channel = std::make_shared<Channel>();
  channel->peer = peer;
  channel->stream = std::move(stream.value());
  channel->flow = ring_.flow(peer, kind(), control_.members()[peer].endpoint());
  channels_.emplace(peer, std::move(channel));
  return {};
}

Status StreamTransport::begin(std::span<const Region>) { return {}; }

void StreamTransport::end() noexcept {
  for (auto& [peer, channel] : channels_) {
    channel->sends.clear();
    channel->receives.clear();
    channel->show_depth();
  }
}

Status StreamTransport::post_send(std::uint32_t peer, std::span<const std::byte> data, std::uint32_t step) {
  Channel& channel = *channels_.at(peer);
  channel.sends.push_back({{kMessageMagic, tag_.sequence, tag_.signature, 0, data.size()}, data, 0, step});
  channel.show_depth();
  return {};
}

Status StreamTransport::post_recv(std::uint32_t peer, std::span<std::byte> data, std::uint32_t step) {
  Channel& channel = *channels_.at(peer);
  channel.receives.push_back({data, 0, step, tag_});
  channel.show_depth();
  return {};
}

Expected<bool> StreamTransport::progress(std::vector<std::uint32_t>& finished) {
  bool moved = false;
  for (auto& [peer, channel] : channels_) {
    if (Status status = write_some(*channel, finished, moved); !status.ok()) return status.take_error();
    if (Status status = read_some(*channel, finished, moved); !status.ok()) return status.take_error();
  }
  return moved;
}

Expected<bool> StreamTransport::may_sleep() {
  for (const auto& [peer, channel] : channels_) {
    if (!channel->receives.empty() && channel->stream->may_read()) return false;
    if (!channel->sends.empty() && channel->stream->may_write()) return false;
  }
  return true;
}

Error StreamTransport::broken(Channel& channel, Error error) {
  channel.flow.add_error();
  error.phase = STEPCCL_PHASE_TRANSFER;
  error.peer = static_cast<std::int32_t>(channel.peer);
  error.transport = kind();
  return error;
}

Status StreamTransport::write_some(Channel& channel, std::vector<std::uint32_t>& finished, bool& moved) {
  while (!channel.sends.empty() && channel.stream->may_write()) {
    iovec parts[2 * kBatch];
    std::size_t used = 0;
    for (std::size_t i = 0; i < std::min(channel.sends.size(), kBatch); ++i) {
      Send& send = channel.sends[i];
      const std::size_t header_done = std::min(send.done, sizeof send.header);
      const std::size_t data_done = send.done - header_done;
      if (header_done < sizeof send.header) {
        parts[used++] = {reinterpret_cast<std::byte*>(&send.header) + header_done, sizeof send.header - header_done};
      }
      parts[used++] = {const_cast<std::byte*>(send.data.data()) + data_done, send.data.size() - data_done};
    }
    auto sent = channel.stream->write({parts, used});
    if (!sent.ok()) return broken(channel, sent.take_error());
    if (sent.value() == 0) break;
    moved = true;
    std::size_t rest = sent.value();
    while (!channel.sends.empty()) {
      Send& send = channel.sends.front();
      const std::size_t total = sizeof send.header + send.data.size();
      const std::size_t taken = std::min(rest, total - send.done);
      send.done += taken;
      rest -= taken;
      if (send.done != total) break;
      channel.flow.add_sent(send.data.size());
      finished.push_back(send.step);
      channel.sends.pop_front();
    }
    channel.show_depth();
  }
  return {};
}

Status StreamTransport::read_some(Channel& channel, std::vector<std::uint32_t>& finished, bool& moved) {
  while (!channel.receives.empty() && channel.stream->may_read()) {
    Receive& receive = channel.receives.front();
    MessageHeader& header = channel.header;
    // The header, or what is left of it, and as much of the data as this receive has room for.
    const iovec parts[2] = {{reinterpret_cast<std::byte*>(&header) + channel.header_done, sizeof header - channel.header_done},
                            {receive.data.data() + receive.done, receive.data.size() - receive.done}};
    const std::size_t skip = channel.header_done == sizeof header ? 1 : 0;
    auto got = channel.stream->read(std::span(parts).subspan(skip));
    if (!got.ok()) return broken(channel, got.take_error());
    if (got.value() == 0) break;
    moved = true;
    const std::size_t to_header = std::min(got.value(), sizeof header - channel.header_done);
    channel.header_done += to_header;
    receive.done += got.value() - to_header;
    if (to_header != 0 && channel.header_done == sizeof header) {
      if (header.magic != kMessageMagic) return broken(channel, Error{STEPCCL_ERROR_PROTOCOL, -1, {}, {}, "the stream is out of step"});
      if (OperationTag{header.sequence, header.signature} != receive.tag || header.bytes != receive.data.size()) {
        return broken(channel, Error{STEPCCL_ERROR_MISMATCH, -1, {}, {}, "its message belongs to another call"});
      }
    }
    if (channel.header_done != sizeof header || receive.done != receive.data.size()) continue;
    channel.flow.add_received(receive.data.size());
    finished.push_back(receive.step);
    channel.receives.pop_front();
    channel.header_done = 0;
    channel.show_depth();
  }
  return {};
}

}  // namespace stepccl::transport
