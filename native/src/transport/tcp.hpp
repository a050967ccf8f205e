// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "bootstrap/control_plane.hpp"
#include "telemetry/ring_writer.hpp"
#include "transport/transport.hpp"

namespace stepccl::transport {

// Non-blocking sockets; a message is a 24-byte header and the data, straight from and to the buffers. With the job's setting
// `sockets` above 1 messages take several connections in turn, with `encryption` they run through TLS 1.3.
[[nodiscard]] std::unique_ptr<Transport> make_tcp(bootstrap::ControlPlane& control, Poller& poller,
                                                  telemetry::RingWriter& ring, std::uint32_t timeout_ms);

// Opens an authenticated connection to a lower rank, or takes the one that a higher rank has opened.
[[nodiscard]] Expected<Fd> data_connection(bootstrap::ControlPlane& control, std::uint32_t peer, bootstrap::Role role,
                                           stepccl_transport kind, Deadline deadline);

}  // namespace stepccl::transport
