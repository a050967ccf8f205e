// SPDX-License-Identifier: Apache-2.0
#include "telemetry/recorders.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "rpc/errors.hpp"
#include "rpc/params.hpp"
#include "stepccl/stepccl.h"
#include "telemetry/flight_reader.hpp"
#include "telemetry/rank_choice.hpp"
#include "telemetry/ring_store.hpp"

namespace stepccl::agent {

using nlohmann::json;

namespace {

constexpr std::size_t kMaxFlightFiles = 4096;
constexpr std::size_t kMaxFlights = 256;

/// A recorder's file, open, with what the file system says of it.
struct OpenFlight {
	RingName name;
	UniqueFd fd;
	bool alive = false;
};

std::string hex_digits(std::uint64_t value)
{
	char text[17];
	std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
	return text;
}

/// A moment of CLOCK_MONOTONIC as nanoseconds since the epoch; null where it has not come yet.
json moment(std::uint64_t monotonic, std::uint64_t epoch_offset)
{
	return monotonic == 0 ? json() : json(std::to_string(monotonic + epoch_offset));
}

const char *flight_state_name(std::uint8_t state) noexcept
{
	switch (state) {
	case STEPCCL_FLIGHT_QUEUED: return "queued";
	case STEPCCL_FLIGHT_STARTED: return "started";
	case STEPCCL_FLIGHT_COMPLETED: return "completed";
	default: return "failed";
	}
}

json to_json(const stepccl_flight_op &op, std::uint64_t epoch_offset)
{
	const auto named = [](std::uint8_t value, const char *name) { return value == 0 ? json() : json(name); };
	json waiting = json::array();
	for (std::uint32_t i = 0; i < std::min(op.waiting_count, STEPCCL_FLIGHT_WAITING); i++)
		waiting.push_back(op.waiting[i]);
	const bool message = op.message != STEPCCL_FLIGHT_COLLECTIVE;
	const char *name = op.message == STEPCCL_FLIGHT_SEND   ? "send"
			   : op.message == STEPCCL_FLIGHT_RECV ? "recv"
							       : stepccl_collective_name(static_cast<stepccl_collective_t>(op.collective));
	return {{"sequence", op.sequence},
		{"collective", name},
		{"datatype", stepccl_datatype_name(static_cast<stepccl_datatype_t>(op.datatype))},
		{"redop", op.redop == STEPCCL_FLIGHT_NO_REDOP ? json() : json(stepccl_redop_name(static_cast<stepccl_redop_t>(op.redop)))},
		{"count", op.count},
		{"bytes", op.bytes},
		{"root", message ? json() : json(op.root)},
		{"peer", message ? json(op.root) : json()},
		{"algorithm", named(op.algorithm, stepccl_algorithm_name(static_cast<stepccl_algorithm_t>(op.algorithm)))},
		{"transport", named(op.transport, stepccl_transport_name(static_cast<enum stepccl_transport>(op.transport)))},
		{"state", flight_state_name(op.state)},
		{"queued_at_unix_ns", moment(op.queued_ns, epoch_offset)},
		{"started_at_unix_ns", moment(op.started_ns, epoch_offset)},
		{"ended_at_unix_ns", moment(op.ended_ns, epoch_offset)},
		{"error_code", op.error == 0 ? json() : json("R" + std::to_string(op.error))},
		{"waiting_for", waiting}};
}

} // namespace

Recorders::Recorders(SysTree tree, std::string directory, std::string proc)
	: tree_(std::move(tree)), directory_(std::move(directory)), proc_(std::move(proc))
{
}

json Recorders::get(const json &raw)
{
	const Params params(raw, {"communicator", "rank", "operations"});
	const RankChoice chosen(params);
	std::size_t operations = STEPCCL_FLIGHT_OP_SLOTS;
	if (!params.is_null("operations"))
		operations = static_cast<std::size_t>(params.integer("operations", 1, STEPCCL_FLIGHT_OP_SLOTS));

	std::vector<OpenFlight> files;
	const Listing listing = list_directory(directory_, kMaxFlightFiles);
	if (listing.error != 0)
		throw RpcError(kServerError, "A401", "The folder of the recorders can't be read (" + errno_text(listing.error) + ").",
			       "See whether " + directory_ + " exists and belongs to the daemon.");
	for (const std::string &file_name : listing.names) {
		const auto name = parse_flight_name(file_name);
		if (!name || !chosen.has(name->comm_id, name->rank) || files.size() >= kMaxFlights)
			continue;
		UniqueFd fd(::open((directory_ + "/" + file_name).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
		struct stat info{};
		if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || info.st_nlink != 1)
			continue; // it has just gone, or is no file that a rank made
		const auto process = process_identity(proc_, name->pid);
		const bool alive = !maker_is_gone(proc_, name->pid, info);
		if (alive && info.st_uid != process->file_uid)
			continue;
		files.push_back({*name, std::move(fd), alive});
	}

	const std::size_t each = std::clamp<std::size_t>(files.empty() ? 1 : kMaxOperations / files.size(), 1, operations);
	const std::uint64_t now = realtime_ns();
	const std::uint64_t epoch_offset = now - monotonic_ns();
	const std::string hostname = printable(tree_.text("/proc/sys/kernel/hostname").value_or(""), 255);
	(void)tree_.take_unreadable();
	json recorders = json::array();
	for (const OpenFlight &file : files) {
		std::string problem;
		const auto recording = read_flight(file.fd, file.name, each, problem);
		if (!recording) {
			log_warn({{"event", "recorder_rejected"}, {"pid", file.name.pid}, {"rank", file.name.rank}, {"why", problem}});
			continue;
		}
		json list = json::array();
		for (const stepccl_flight_op &op : recording->ops)
			list.push_back(to_json(op, epoch_offset));
		recorders.push_back({{"format", "stepccl-flight-recorder"},
				     {"version", 1},
				     {"job", recording->job_name},
				     {"communicator", hex_digits(file.name.comm_id)},
				     {"rank", file.name.rank},
				     {"world_size", recording->world_size},
				     {"hostname", hostname},
				     {"pid", file.name.pid},
				     {"alive", file.alive},
				     {"taken_at_unix_ns", std::to_string(now)},
				     {"omitted", recording->omitted},
				     {"operations", std::move(list)}});
	}
	return {{"recorders", std::move(recorders)}};
}

void Recorders::remove_old(std::uint64_t now_ns)
{
	std::map<std::string, std::uint64_t> left;
	for (const std::string &file_name : list_directory(directory_, kMaxFlightFiles).names) {
		const auto name = parse_flight_name(file_name);
		struct stat info{};
		if (!name || ::lstat((directory_ + "/" + file_name).c_str(), &info) != 0 || !maker_is_gone(proc_, name->pid, info))
			continue;
		const auto known = left_.find(file_name);
		left[file_name] = known == left_.end() ? now_ns : known->second;
	}
	while (!left.empty()) {
		const auto oldest = std::min_element(left.begin(), left.end(), [](const auto &a, const auto &b) { return a.second < b.second; });
		if (left.size() <= kMaxLeft && now_ns - oldest->second < kKeepNs)
			break;
		if (::unlink((directory_ + "/" + oldest->first).c_str()) == 0)
			log_info({{"event", "old_recorder_removed"}, {"file", oldest->first}});
		left.erase(oldest);
	}
	left_ = std::move(left);
}

} // namespace stepccl::agent
