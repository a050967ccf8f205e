// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "bootstrap/control_plane.hpp"
#include "telemetry/ring_writer.hpp"
#include "transport/transport.hpp"

namespace stepccl::transport {

// Between ranks of one node: a byte ring per ordered pair, in a file of /dev/shm that each rank makes for what
// comes to it, and, where all ranks are on this node, the board of the node engine. `single_copy`: peers' memory may be read
// directly, where the kernel allows it. The file has a name only until all have opened it.
// Errors: OUT_OF_MEMORY (/dev/shm is full), SYSTEM.
[[nodiscard]] Expected<std::unique_ptr<Transport>> make_shm(bootstrap::ControlPlane& control, Poller& poller, telemetry::RingWriter& ring,
                                                            bool single_copy, Deadline deadline);

}  // namespace stepccl::transport
