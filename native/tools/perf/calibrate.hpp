// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/output.hpp"

namespace perf {

// Measures the link between neighbours, the speed of reducing, and every algorithm of every collective at some sizes;
// rank 0 writes what STEPCCL_CALIBRATION_FILE reads, and keeps what the file knew of other transports. false after an error,
// which has been printed.
[[nodiscard]] bool calibrate(const Arguments& arguments, stepccl_comm_t comm, std::uint32_t rank, std::uint32_t world, const Output& output);

}  // namespace perf
