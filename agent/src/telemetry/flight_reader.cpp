// SPDX-License-Identifier: Apache-2.0
#include "telemetry/flight_reader.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/text.hpp"
#include "stepccl/stepccl.h"

namespace stepccl::agent {

namespace {

constexpr std::uint32_t kMaxFlightSlots = 1u << 14;
constexpr int kFlightReadings = 4;

bool is_possible_flight(const stepccl_flight_op &op) noexcept
{
	return op.state >= STEPCCL_FLIGHT_QUEUED && op.state <= STEPCCL_FLIGHT_FAILED && op.collective < STEPCCL_COLLECTIVE_COUNT &&
	       op.algorithm < STEPCCL_ALGORITHM_COUNT && op.transport <= STEPCCL_TRANSPORT_GPU_PEER && op.datatype < STEPCCL_DATATYPE_COUNT &&
	       (op.redop < STEPCCL_REDOP_COUNT || op.redop == STEPCCL_FLIGHT_NO_REDOP);
}

/// One record. The rank may be changing it: it is taken when two readings agree, or, where they never do or it stopped
/// in the middle, as it was read last.
bool read_flight_op(int fd, std::uint64_t offset, stepccl_flight_op &op) noexcept
{
	if (!read_exactly(fd, offset, &op, sizeof op))
		return false;
	for (int reading = 1; reading < kFlightReadings; reading++) {
		stepccl_flight_op again;
		if (!read_exactly(fd, offset, &again, sizeof again))
			return false;
		if (std::memcmp(&again, &op, sizeof op) == 0)
			return true;
		op = again;
	}
	return true;
}

} // namespace

std::optional<RingName> parse_flight_name(std::string_view file_name) noexcept { return parse_rank_file_name(file_name, ".flight"); }

std::optional<FlightRecording> read_flight(const UniqueFd &fd, const RingName &name, std::size_t max_ops, std::string &problem)
{
	const auto refuse = [&problem](const char *why) -> std::optional<FlightRecording> {
		problem = why;
		return std::nullopt;
	};
	stepccl_flight_header header{};
	struct stat info{};
	if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode))
		return refuse("not a regular file");
	if (!read_exactly(fd.get(), 0, &header, sizeof header))
		return refuse("shorter than a header");
	if (header.magic != STEPCCL_FLIGHT_MAGIC || header.version != STEPCCL_FLIGHT_VERSION)
		return refuse("wrong magic or version");
	if (header.header_bytes < sizeof header || header.header_bytes > 4096 || header.header_bytes % 8 != 0 ||
	    !std::has_single_bit(header.op_slots) || header.op_slots > kMaxFlightSlots)
		return refuse("wrong sizes in its header");
	if (header.pid != static_cast<std::uint32_t>(name.pid) || header.rank != name.rank || header.comm_id != name.comm_id)
		return refuse("its header and its name differ");

	FlightRecording recording;
	recording.world_size = header.world_size;
	const auto *job = reinterpret_cast<const char *>(header.job_name);
	recording.job_name = printable({job, ::strnlen(job, sizeof header.job_name)}, sizeof header.job_name);
	const std::uint64_t kept = std::min<std::uint64_t>(header.op_head, header.op_slots);
	const std::uint64_t count = std::min<std::uint64_t>(kept, max_ops);
	recording.omitted = kept - count;
	for (std::uint64_t number = header.op_head - count; number < header.op_head; number++) {
		stepccl_flight_op op;
		if (!read_flight_op(fd.get(), header.header_bytes + (number & (header.op_slots - 1)) * sizeof op, op))
			return refuse("shorter than its header says");
		if (is_possible_flight(op))
			recording.ops.push_back(op);
	}
	// A slot that was taken again meanwhile holds an operation that is later than those behind it.
	const auto by_sequence = [](const stepccl_flight_op &a, const stepccl_flight_op &b) { return a.sequence < b.sequence; };
	std::stable_sort(recording.ops.begin(), recording.ops.end(), by_sequence);
	return recording;
}

} // namespace stepccl::agent
