// SPDX-License-Identifier: Apache-2.0
#include "telemetry/gpu_boards.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "base/clock.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "rpc/errors.hpp"
#include "rpc/params.hpp"
#include "stepccl/stepccl.h"
#include "telemetry/rank_choice.hpp"
#include "telemetry/ring_store.hpp"

namespace stepccl::agent {

using nlohmann::json;

namespace {

constexpr std::size_t kMaxBoardFiles = 4096;
constexpr int kBoardReadings = 20;

struct SettingName {
	const char *name;
	bool is_switch;
};
/// By stepccl_gpu_setting; the names are those of settings.set.
constexpr std::array<SettingName, STEPCCL_GPU_SETTING_COUNT> kSettingNames{{
	{"pipeline_depth", false},
	{"sm_budget", false},
	{"dma_concurrency", false},
	{"async_gd", true},
	{"hbm_defrag", true},
	{"hbm_defrag_interval_ms", false},
	{"paging", true},
	{"page_bytes", false},
	{"prefetch_depth", false},
	{"buffer_bytes", false},
	{"hbm_cache_ratio_permille", false},
}};
constexpr std::array<const char *, 4> kStateNames{"own", "applied", "pending", "refused"};
constexpr std::array<const char *, STEPCCL_GPU_REASON_COUNT> kReasonNames{
	"", "next_call", "busy", "out_of_range", "no_memory", "ungated_graphs", "needs_other", "overridden", "failed"};
constexpr std::array<const char *, 3> kRangeNames{"free", "buffer", "engine"};
constexpr std::array<const char *, 3> kAsyncNames{"none", "stream", "nic"};

template <std::size_t N>
std::string text_of(const std::uint8_t (&text)[N])
{
	const auto *bytes = reinterpret_cast<const char *>(text);
	return printable({bytes, ::strnlen(bytes, N)}, N);
}

json reason_of(std::uint64_t reason) { return reason == 0 ? json() : json(kReasonNames[reason]); }

bool is_possible_board(const stepccl_gpu_board &board) noexcept
{
	const auto row_fits = [](const stepccl_gpu_setting_row &row) { return row.state < kStateNames.size() && row.reason < kReasonNames.size(); };
	const auto range_fits = [](const stepccl_gpu_range &range) { return range.kind < kRangeNames.size(); };
	return board.range_count <= STEPCCL_GPU_RANGES && board.async_level < kAsyncNames.size() && board.defrag_blocked < kReasonNames.size() &&
	       board.error < 1000 && std::all_of(std::begin(board.settings), std::end(board.settings), row_fits) &&
	       std::all_of(board.ranges, board.ranges + board.range_count, range_fits);
}

std::string communicator_name(std::uint64_t id)
{
	char text[17];
	std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(id));
	return text;
}

json settings_to_json(const stepccl_gpu_board &board)
{
	json all = json::object();
	for (std::size_t i = 0; i < kSettingNames.size(); i++) {
		const stepccl_gpu_setting_row &row = board.settings[i];
		const auto value = [&](std::uint64_t number) { return kSettingNames[i].is_switch ? json(number != 0) : json(number); };
		all[kSettingNames[i].name] = {{"state", kStateNames[row.state]},
					      {"reason", reason_of(row.reason)},
					      {"wanted", row.state == STEPCCL_GPU_SETTING_OWN ? json() : value(row.wanted)},
					      {"in_force", value(row.in_force)}};
	}
	return all;
}

} // namespace

std::optional<RingName> parse_board_name(std::string_view file_name) noexcept { return parse_rank_file_name(file_name, ".gpu"); }

std::optional<stepccl_gpu_board> read_board(const UniqueFd &fd, const RingName &name, std::string &problem)
{
	const auto refuse = [&problem](const char *why) -> std::optional<stepccl_gpu_board> {
		problem = why;
		return std::nullopt;
	};
	struct stat info{};
	if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode))
		return refuse("not a regular file");
	stepccl_gpu_board board{};
	bool whole = false;
	for (int reading = 0; reading < kBoardReadings && !whole; reading++) {
		std::uint32_t edits = 0;
		if (!read_exactly(fd.get(), 0, &board, sizeof board) || !read_exactly(fd.get(), offsetof(stepccl_gpu_board, edits), &edits, sizeof edits))
			return refuse("shorter than a board");
		whole = board.edits % 2 == 0 && board.edits == edits;
	}
	if (board.magic != STEPCCL_GPU_MAGIC || board.version != STEPCCL_GPU_VERSION || board.total_bytes != sizeof board)
		return refuse("wrong magic, version or size");
	if (board.pid != static_cast<std::uint32_t>(name.pid) || board.rank != name.rank || board.comm_id != name.comm_id)
		return refuse("its header and its name differ");
	if (!whole)
		return refuse("its writer stopped in the middle");
	if (!is_possible_board(board))
		return refuse("holds numbers that no library writes");
	return board;
}

json board_to_json(const stepccl_gpu_board &board, std::uint64_t now_ns, std::uint64_t control_seq, bool with_ranges)
{
	json ranges = json::array();
	const std::uint32_t told = with_ranges ? board.range_count : 0;
	for (std::uint32_t i = 0; i < told; i++) {
		const stepccl_gpu_range &range = board.ranges[i];
		ranges.push_back({{"offset_bytes", range.offset}, {"bytes", range.bytes}, {"kind", kRangeNames[range.kind]}});
	}
	const auto age_ms = [now_ns](std::uint64_t then) { return now_ns > then ? (now_ns - then) / 1'000'000u : 0; };
	json last;
	if (board.last_epoch_ns != 0)
		last = {{"before_permille", board.last_before_permille},
			{"after_permille", board.last_after_permille},
			{"held_back_us", board.last_epoch_us},
			{"age_ms", age_ms(board.last_epoch_ns)}};
	const std::string reason = text_of(board.async_reason);
	return {{"pid", board.pid},
		{"rank", board.rank},
		{"world_size", board.world_size},
		{"communicator", communicator_name(board.comm_id)},
		{"job", text_of(board.job_name)},
		{"error_code", board.error == 0 ? json() : json("R" + std::to_string(board.error))},
		{"age_ms", age_ms(board.updated_ns)},
		{"operations", board.operations},
		{"gpu", {{"uuid", text_of(board.gpu_uuid)}, {"multiprocessors", board.multiprocessors}, {"memory_free_bytes", board.device_free_bytes}, {"memory_total_bytes", board.device_total_bytes}}},
		{"async", {{"level", kAsyncNames[board.async_level]}, {"reason", reason.empty() ? json() : json(reason)}}},
		{"sm_budget", board.sm_budget == 0 ? json() : json(board.sm_budget)},
		{"pipeline_depth", board.pipeline_depth},
		{"dma_concurrency", board.dma_concurrency},
		{"graphs", {{"lanes", board.graph_lanes}, {"lanes_in_use", board.lanes_in_use}}},
		{"paging", {{"page_bytes", board.page_bytes == 0 ? json() : json(board.page_bytes)}, {"prefetch_depth", board.prefetch_depth}}},
		{"pool", {{"capacity_bytes", board.capacity_bytes},
			  {"held_bytes", board.held_bytes},
			  {"used_bytes", board.used_bytes},
			  {"staging_bytes", board.staging_bytes},
			  {"largest_free_bytes", board.largest_free_bytes},
			  {"buffers", board.buffers},
			  {"fragmentation_permille", board.fragmentation_permille},
			  {"cache_ratio_permille", board.hbm_cache_ratio_permille},
			  {"ranges", std::move(ranges)},
			  {"ranges_omitted", board.ranges_omitted + std::uint64_t{board.range_count - told}}}},
		{"defrag", {{"interval_ms", board.defrag_interval_ms == 0 ? json() : json(board.defrag_interval_ms)},
			    {"epochs", board.defrag_epochs},
			    {"moved_bytes", board.defrag_moved_bytes},
			    {"released_bytes", board.defrag_released_bytes},
			    {"blocked_by", reason_of(board.defrag_blocked)},
			    {"last", std::move(last)}}},
		{"settings_current", control_seq != 0 && board.control_seq == control_seq},
		{"settings", settings_to_json(board)}};
}

GpuBoards::GpuBoards(std::string directory, std::string control_file, std::string proc)
	: directory_(std::move(directory)), control_file_(std::move(control_file)), proc_(std::move(proc))
{
}

std::uint64_t GpuBoards::control_sequence() const
{
	const UniqueFd fd(::open(control_file_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
	std::uint64_t sequence = 0;
	if (!fd.valid() || !read_exactly(fd.get(), offsetof(stepccl_control, seq), &sequence, sizeof sequence))
		return 0;
	return sequence;
}

json GpuBoards::processes(const json &raw) const
{
	const Params params(raw, {"communicator", "rank", "ranges"});
	const RankChoice chosen(params);
	const bool with_ranges = params.is_null("ranges") || params.boolean("ranges");
	const Listing listing = list_directory(directory_, kMaxBoardFiles);
	if (listing.error != 0)
		throw RpcError(kServerError, "A401", "The folder of the GPU boards can't be read (" + errno_text(listing.error) + ").",
			       "See whether " + directory_ + " exists and belongs to the daemon.");
	json found = json::array();
	std::uint64_t omitted = 0;
	const std::uint64_t now = monotonic_ns();
	const std::uint64_t control = control_sequence();
	for (const std::string &file_name : listing.names) {
		const auto name = parse_board_name(file_name);
		if (!name || !chosen.has(name->comm_id, name->rank))
			continue;
		const UniqueFd fd(::open((directory_ + "/" + file_name).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
		struct stat info{};
		if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || info.st_nlink != 1)
			continue; // it has just gone, or is no file that a rank made
		const auto process = process_identity(proc_, name->pid);
		if (!process || maker_is_gone(proc_, name->pid, info) || info.st_uid != process->file_uid)
			continue;
		if (found.size() == kMaxProcesses) {
			omitted++;
			continue;
		}
		std::string problem;
		if (const auto board = read_board(fd, *name, problem))
			found.push_back(board_to_json(*board, now, control, with_ranges));
		else
			log_warn({{"event", "gpu_board_rejected"}, {"pid", name->pid}, {"rank", name->rank}, {"why", problem}});
	}
	return {{"processes", std::move(found)}, {"omitted", omitted}};
}

void GpuBoards::remove_stale() const
{
	for (const std::string &file_name : list_directory(directory_, kMaxBoardFiles).names) {
		const auto name = parse_board_name(file_name);
		const std::string path = directory_ + "/" + file_name;
		struct stat info{};
		if (!name || ::lstat(path.c_str(), &info) != 0 || !maker_is_gone(proc_, name->pid, info))
			continue;
		if (::unlink(path.c_str()) == 0)
			log_info({{"event", "stale_gpu_board_removed"}, {"file", file_name}});
	}
}

} // namespace stepccl::agent
