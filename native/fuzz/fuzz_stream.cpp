// SPDX-License-Identifier: Apache-2.0
// The messages of TCP and shared memory: any bytes, in pieces of any size, against receives of any length.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "transport/stream.hpp"

using namespace stepccl;
using namespace stepccl::transport;

namespace {

// Gives the fuzzer's bytes, at most `piece` at a time.
class FuzzStream final : public ByteStream {
 public:
  FuzzStream(std::span<const std::byte>& bytes, std::size_t piece) : bytes_(bytes), piece_(piece) {}
  Expected<std::size_t> write(std::span<const iovec>) override { return std::size_t{0}; }
  Expected<std::size_t> read(std::span<const iovec> parts) override {
    std::size_t total = 0;
    for (const iovec& part : parts) {
      const std::size_t now = std::min({part.iov_len, bytes_.size(), piece_ - total});
      if (now != 0) std::memcpy(part.iov_base, bytes_.data(), now);
      bytes_ = bytes_.subspan(now);
      total += now;
    }
    if (total == 0) return Error{STEPCCL_ERROR_PEER_CLOSED, -1, {}, {}, "the peer closed the connection"};
    return total;
  }
  bool may_write() const noexcept override { return false; }
  bool may_read() const noexcept override { return true; }

 private:
  std::span<const std::byte>& bytes_;
  std::size_t piece_;
};

class FuzzTransport final : public StreamTransport {
 public:
  FuzzTransport(bootstrap::ControlPlane& control, telemetry::RingWriter& ring, std::span<const std::byte>& bytes, std::size_t piece)
      : StreamTransport(control, ring), bytes_(bytes), piece_(piece) {}
  stepccl_transport kind() const noexcept override { return STEPCCL_TRANSPORT_TCP; }

 private:
  Expected<std::unique_ptr<ByteStream>> open(std::uint32_t, std::size_t, Deadline) override {
    return std::unique_ptr<ByteStream>(std::make_unique<FuzzStream>(bytes_, piece_));
  }
  std::span<const std::byte>& bytes_;
  std::size_t piece_;
};

// A job of one rank: the transport wants to know its members.
bootstrap::ControlPlane& control() {
  static const auto plane = [] {
    bootstrap::ControlPlane::Options options;
    auto endpoint = bootstrap::parse_endpoint("127.0.0.1");
    auto listener = bootstrap::listen_on(endpoint.value(), 1);
    options.id.endpoint = endpoint.value();
    options.settings.chunk_bytes = 4096;
    options.rendezvous = std::move(listener.value());
    auto joined = bootstrap::ControlPlane::join(std::move(options), Deadline::after_ms(5'000), [](bootstrap::Member&) { return Status(); });
    if (!joined.ok()) std::abort();
    return std::move(joined.value());
  }();
  return *plane;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  std::vector<std::byte> text(size - 4);
  std::memcpy(text.data(), data + 4, text.size());
  const std::size_t length = data[1];
  // Half of the inputs begin with a header that fits the first receive.
  if ((data[0] & 1) != 0 && text.size() >= 24) {
    const std::uint32_t header[6] = {0x314d4353u, 3, 4, 0, static_cast<std::uint32_t>(length), 0};
    std::memcpy(text.data(), header, sizeof header);
  }
  std::span<const std::byte> bytes(text);
  telemetry::RingWriter ring;
  FuzzTransport transport(control(), ring, bytes, 1 + data[2]);
  if (!transport.connect(0, Deadline::after_ms(1)).ok()) std::abort();
  transport.use_tag({3, 4});
  std::vector<std::byte> target(length);
  const std::uint32_t posted = 1 + data[3] % 4;
  for (std::uint32_t i = 0; i < posted; ++i) {
    if (!transport.post_recv(0, target, i).ok()) std::abort();
  }
  std::vector<std::uint32_t> finished;
  (void)transport.progress(finished);
  if (finished.size() > posted) std::abort();
  for (std::uint32_t i = 0; i < finished.size(); ++i) {
    if (finished[i] != i) std::abort();
  }
  transport.end();
  return 0;
}
