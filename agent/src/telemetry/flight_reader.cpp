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
	       (op.redop < STEPCCL_REDOP_COUNT || op.redop == STEPCCL_FLIGHT_NO_REDOP) && op.message <= STEPCCL_FLIGHT_RECV;
}

/// The first `count` records. The rank may be changing one: it is taken when two readings agree, or, where they never do or
/// the rank stopped in the middle, as it was read last.
bool read_flight_ops(int fd, std::uint64_t offset, std::vector<stepccl_flight_op> &ops)
{
	std::vector<stepccl_flight_op> before;
	for (int reading = 0; reading < kFlightReadings; reading++) {
		if (!read_exactly(fd, offset, ops.data(), ops.size() * sizeof ops[0]))
			return false;
		if (!before.empty() && std::memcmp(before.data(), ops.data(), ops.size() * sizeof ops[0]) == 0)
			break;
		before = ops;
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
	recording.ops.resize(static_cast<std::size_t>(std::min<std::uint64_t>(header.op_head, header.op_slots)));
	if (!recording.ops.empty() && !read_flight_ops(fd.get(), header.header_bytes, recording.ops))
		return refuse("shorter than its header says");
	std::erase_if(recording.ops, [](const auto &op) { return !is_possible_flight(op); });
	std::stable_sort(recording.ops.begin(), recording.ops.end(), [](const auto &a, const auto &b) { return a.queued_ns < b.queued_ns; });
	// What has ended goes first, the oldest of it; of what has not, the oldest stays: the rank may hang in it.
	recording.omitted = recording.ops.size() > max_ops ? recording.ops.size() - max_ops : 0;
	std::uint64_t surplus = recording.omitted;
	std::erase_if(recording.ops, [&](const auto &op) { return op.state >= STEPCCL_FLIGHT_COMPLETED && surplus > 0 && surplus-- > 0; });
	recording.ops.resize(std::min(recording.ops.size(), max_ops));
	return recording;
}

} // namespace stepccl::agent
