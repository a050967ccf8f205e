// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "stepccl/telemetry.h"
#include "telemetry/ring_reader.hpp"

namespace stepccl::agent {

/// What a rank's flight recorder holds now: its last operations, oldest first.
struct FlightRecording {
	std::uint32_t world_size = 0;
	std::string job_name; ///< printable
	std::vector<stepccl_flight_op> ops; ///< in the order of the calls
	std::uint64_t omitted = 0; ///< others that the file holds too
};

/// <pid>.<rank>.<comm id, 16 hex digits>.flight
std::optional<RingName> parse_flight_name(std::string_view file_name) noexcept;

/// Reads `max_ops` operations of a recorder's file (telemetry.h, section 4): those that have not ended, then the latest. The file is the rank's and hostile:
/// it is read with pread and every size is checked. Records that no library writes are left out. On failure `problem`
/// says why in a few words.
std::optional<FlightRecording> read_flight(const UniqueFd &fd, const RingName &name, std::size_t max_ops, std::string &problem);

} // namespace stepccl::agent
