// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "bootstrap/control_plane.hpp"
#include "telemetry/ring_writer.hpp"
#include "transport/transport.hpp"
#include "transport/verbs.hpp"

namespace stepccl::transport {

struct RdmaOptions {
  RdmaChoice choice;
  std::uint8_t timeout = 20;     // local ACK timeout: 4.096 us * 2^timeout per try
  std::uint8_t retry_count = 7;
  std::uint32_t queue_pairs = 1;  // per peer, 1..128; the end that wants fewer decides
  bool split = false;             // cut every message over all queue pairs; else messages take them in turn
  std::uint8_t traffic_class = 0;
  std::uint8_t service_level = 0;
  std::uint16_t pkey_index = 0;
};

// Reliable-connected queue pairs. The receiver writes where it wants a message (a clear-to-send record) into the sender's
// memory; the sender writes the data straight there, with an immediate that tells the receiver. At most 32 receives per peer
// are open, and on each queue pair twice as many receive requests are posted: the receiver is always ready. Parts of messages
// may arrive in any order.
[[nodiscard]] Expected<std::unique_ptr<Transport>> make_rdma(bootstrap::ControlPlane& control, Poller& poller, telemetry::RingWriter& ring,
                                                             const RdmaOptions& options);

}  // namespace stepccl::transport
