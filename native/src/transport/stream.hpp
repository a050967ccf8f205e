// SPDX-License-Identifier: Apache-2.0
// What TCP and shared memory have in common: ordered bytes between two ranks, cut into messages with a header
// that says which call they belong to.
#pragma once

#include <sys/uio.h>

#include <memory>

#include "bootstrap/control_plane.hpp"
#include "telemetry/ring_writer.hpp"
#include "transport/transport.hpp"

namespace stepccl::transport {

// One direction each way between this rank and a peer. Nothing here blocks.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // How many bytes were taken or given; 0 = none now. Errors say what happened to the path.
  [[nodiscard]] virtual Expected<std::size_t> write(std::span<const iovec> parts) = 0;
  [[nodiscard]] virtual Expected<std::size_t> read(std::span<const iovec> parts) = 0;
  // Whether a call now could move something, as far as this side knows.
  [[nodiscard]] virtual bool may_write() const noexcept = 0;
  [[nodiscard]] virtual bool may_read() const noexcept = 0;
  // Something may have come that nobody has told this side of.
  virtual void try_reading() noexcept {}
};

class StreamTransport : public Transport {
 public:
  StreamTransport(bootstrap::ControlPlane& control, telemetry::RingWriter& ring) : control_(control), ring_(ring) {}

  [[nodiscard]] Status connect(std::uint32_t peer, Deadline deadline) override;
  [[nodiscard]] Status begin(std::span<const Region> regions) override;
  void end() noexcept override;
  [[nodiscard]] Status post_send(std::uint32_t peer, std::span<const std::byte> data, std::uint32_t step) override;
  [[nodiscard]] Status post_recv(std::uint32_t peer, std::span<std::byte> data, std::uint32_t step) override;
  [[nodiscard]] Expected<bool> progress(std::vector<std::uint32_t>& finished) override;
  [[nodiscard]] Expected<bool> may_sleep() override;
  [[nodiscard]] bool try_again() noexcept override;

 protected:
  // How many streams join two ranks; messages take them in turn. The same on every rank.
  [[nodiscard]] virtual std::size_t lanes() const noexcept { return 1; }
  [[nodiscard]] virtual Expected<std::unique_ptr<ByteStream>> open(std::uint32_t peer, std::size_t lane, Deadline deadline) = 0;

  bootstrap::ControlPlane& control_;
  telemetry::RingWriter& ring_;
  struct Lane;
  struct Channel;
  std::map<std::uint32_t, std::shared_ptr<Channel>> channels_;  // shared_ptr: Channel is complete only in stream.cpp

 private:
  [[nodiscard]] Status write_some(Channel& channel, Lane& lane, std::vector<std::uint32_t>& finished, bool& moved);
  [[nodiscard]] Status read_some(Channel& channel, Lane& lane, std::vector<std::uint32_t>& finished, bool& moved);
  [[nodiscard]] Error broken(Channel& channel, Error error);
};

}  // namespace stepccl::transport
