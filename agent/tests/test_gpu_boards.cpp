// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstring>

#include "base/clock.hpp"
#include "stepccl/stepccl.h"
#include "support.hpp"
#include "telemetry/gpu_boards.hpp"
#include "telemetry/settings.hpp"

using namespace stepccl::agent;
using namespace stepccl::agent::testing;

namespace {

stepccl_gpu_board sample(pid_t pid, std::uint32_t rank)
{
	stepccl_gpu_board board{};
	board.magic = STEPCCL_GPU_MAGIC;
	board.version = STEPCCL_GPU_VERSION;
	board.total_bytes = sizeof board;
	board.edits = 4;
	board.pid = static_cast<std::uint32_t>(pid);
	board.rank = rank;
	board.world_size = 2;
	board.comm_id = 0xabc;
	board.updated_ns = monotonic_ns();
	std::memcpy(board.job_name, "a\njob", 5);
	std::memcpy(board.gpu_uuid, "GPU-1", 5);
	std::memcpy(board.async_reason, "no adapter", 10);
	board.async_level = 1;
	board.capacity_bytes = 1000;
	board.held_bytes = 900;
	board.used_bytes = 600;
	board.fragmentation_permille = 333;
	board.defrag_interval_ms = 500;
	board.defrag_epochs = 7;
	board.last_before_permille = 500;
	board.last_after_permille = 20;
	board.last_epoch_us = 1500;
	board.last_epoch_ns = monotonic_ns();
	board.range_count = 2;
	board.ranges[0] = {0, 600, STEPCCL_GPU_RANGE_BUFFER, {}};
	board.ranges[1] = {600, 300, STEPCCL_GPU_RANGE_FREE, {}};
	board.settings[STEPCCL_GPU_HBM_DEFRAG] = {1, 1, STEPCCL_GPU_SETTING_APPLIED, 0, {}};
	board.settings[STEPCCL_GPU_SM_BUDGET] = {32, 8, STEPCCL_GPU_SETTING_PENDING, STEPCCL_GPU_REASON_NEXT_CALL, {}};
	return board;
}

std::string write_board(const TempDir &dir, const stepccl_gpu_board &board, std::size_t bytes = sizeof(stepccl_gpu_board))
{
	char file[64];
	std::snprintf(file, sizeof file, "%u.%u.%016llx.gpu", board.pid, board.rank, static_cast<unsigned long long>(board.comm_id));
	put(dir / file, std::string(reinterpret_cast<const char *>(&board), bytes));
	return dir / file;
}

} // namespace

TEST_CASE("gpu.processes tells pool, map, defragmentation, async level and what became of each setting")
{
	TempDir dir;
	Settings settings(dir / "settings.json", dir / "control");
	settings.load();
	settings.set({{"sm_budget", 32}, {"hbm_cache_ratio_permille", 250}});
	stepccl_control page{};
	const std::string bytes = take(dir / "control");
	std::memcpy(&page, bytes.data(), sizeof page);
	CHECK(page.sm_budget == 32);
	CHECK(page.hbm_cache_ratio_permille == 250);
	stepccl_gpu_board board = sample(::getpid(), 1);
	board.control_seq = page.seq;
	write_board(dir, board);
	const GpuBoards boards(dir.path(), dir / "control", "/proc");
	const json answer = boards.processes(json::object());
	CHECK(answer["omitted"] == 0);
	REQUIRE(answer["processes"].size() == 1);
	const json &p = answer["processes"][0];
	CHECK(p["pid"] == ::getpid());
	CHECK(p["rank"] == 1);
	CHECK(p["communicator"] == "0000000000000abc");
	CHECK(p["job"] == "a?job");
	CHECK(p["error_code"].is_null());
	CHECK(p["age_ms"].get<int>() < 5000);
	CHECK(p["gpu"]["uuid"] == "GPU-1");
	CHECK(p["async"] == json{{"level", "stream"}, {"reason", "no adapter"}});
	CHECK(p["sm_budget"].is_null());
	CHECK(p["paging"]["page_bytes"].is_null());
	CHECK(p["pool"]["fragmentation_permille"] == 333);
	CHECK(p["pool"]["ranges"] == json{{{"offset_bytes", 0}, {"bytes", 600}, {"kind", "buffer"}}, {{"offset_bytes", 600}, {"bytes", 300}, {"kind", "free"}}});
	CHECK(p["defrag"]["interval_ms"] == 500);
	CHECK(p["defrag"]["epochs"] == 7);
	CHECK(p["defrag"]["blocked_by"].is_null());
	CHECK(p["defrag"]["last"]["before_permille"] == 500);
	CHECK(p["defrag"]["last"]["after_permille"] == 20);
	CHECK(p["settings_current"] == true);
	CHECK(p["settings"]["hbm_defrag"] == json{{"state", "applied"}, {"reason", nullptr}, {"wanted", true}, {"in_force", true}});
	CHECK(p["settings"]["sm_budget"] == json{{"state", "pending"}, {"reason", "next_call"}, {"wanted", 32}, {"in_force", 8}});
	CHECK(p["settings"]["paging"] == json{{"state", "own"}, {"reason", nullptr}, {"wanted", nullptr}, {"in_force", false}});
	settings.set({{"sm_budget", 16}});
	CHECK(boards.processes(json::object())["processes"][0]["settings_current"] == false);
	CHECK(boards.processes({{"rank", 0}})["processes"].empty());
	CHECK(boards.processes({{"communicator", "0000000000000abc"}})["processes"].size() == 1);
	const json light = boards.processes({{"ranges", false}})["processes"][0];
	CHECK(light["pool"]["ranges"] == json::array());
	CHECK(light["pool"]["ranges_omitted"] == 2);
	CHECK(light["pool"]["used_bytes"] == 600);
	CHECK(boards.processes({{"ranges", true}})["processes"][0]["pool"]["ranges"].size() == 2);
	for (const json &bad : {json{{"communicator", "8"}}, json{{"rank", -1}}, json{{"else", 1}}, json{{"ranges", 1}}})
		CHECK(code_of([&] { (void)boards.processes(bad); }) == "A101");
	CHECK(code_of([&] { (void)GpuBoards(dir / "missing", "", "/proc").processes(json::object()); }) == "A401");
	for (const json &bad : {json{{"sm_budget", 33}}, json{{"hbm_cache_ratio_permille", 901}}})
		CHECK(code_of([&] { settings.set(bad); }) == "A101");
}

TEST_CASE("hostile GPU boards are refused, and hide no other")
{
	TempDir dir;
	const pid_t self = ::getpid();
	const auto problem_of = [&](const std::function<void(stepccl_gpu_board &)> &change, std::size_t bytes = sizeof(stepccl_gpu_board)) {
		stepccl_gpu_board board = sample(self, 0);
		const std::string file = write_board(dir, board);
		change(board);
		put(file, std::string(reinterpret_cast<const char *>(&board), bytes));
		std::string problem = "none";
		(void)read_board(UniqueFd(::open(file.c_str(), O_RDONLY | O_CLOEXEC)), {self, 0, 0xabc}, problem);
		return problem;
	};
	CHECK(problem_of([](stepccl_gpu_board &) {}) == "none");
	CHECK(problem_of([](stepccl_gpu_board &) {}, 100) == "shorter than a board");
	CHECK(problem_of([](stepccl_gpu_board &b) { b.magic = 1; }) == "wrong magic, version or size");
	CHECK(problem_of([](stepccl_gpu_board &b) { b.total_bytes--; }) == "wrong magic, version or size");
	CHECK(problem_of([](stepccl_gpu_board &b) { b.rank = 1; }) == "its header and its name differ");
	CHECK(problem_of([](stepccl_gpu_board &b) { b.edits = 5; }) == "its writer stopped in the middle");
	const std::string impossible = "holds numbers that no library writes";
	CHECK(problem_of([](stepccl_gpu_board &b) { b.range_count = 257; }) == impossible);
	CHECK(problem_of([](stepccl_gpu_board &b) { b.ranges[1].kind = 3; }) == impossible);
	CHECK(problem_of([](stepccl_gpu_board &b) { b.async_level = 3; }) == impossible);
	CHECK(problem_of([](stepccl_gpu_board &b) { b.settings[4].state = 4; }) == impossible);
	CHECK(problem_of([](stepccl_gpu_board &b) { b.settings[4].reason = 9; }) == impossible);
	CHECK(problem_of([](stepccl_gpu_board &b) { b.defrag_blocked = 9; }) == impossible);

	write_board(dir, sample(self, 1));
	const GpuBoards boards(dir.path(), dir / "control", "/proc");
	CHECK(boards.processes(json::object())["processes"].size() == 1);
	CHECK(boards.processes(json::object())["processes"][0]["settings_current"] == false);
	fs::create_hard_link(dir / (std::to_string(self) + ".1.0000000000000abc.gpu"), dir / (std::to_string(self) + ".2.0000000000000abc.gpu"));
	CHECK(boards.processes(json::object())["processes"].empty());
}

TEST_CASE("a full node's answer fits one message, and what an ended process left is removed")
{
	TempDir dir;
	for (std::uint32_t rank = 0; rank < GpuBoards::kMaxProcesses + 2; rank++) {
		stepccl_gpu_board board = sample(::getpid(), rank);
		std::memset(&board.operations, 0xff, sizeof board.operations);
		board.range_count = STEPCCL_GPU_RANGES;
		for (auto &range : board.ranges)
			range = {~0ull, ~0ull, STEPCCL_GPU_RANGE_BUFFER, {}};
		for (auto &row : board.settings)
			row = {~0ull, ~0ull, STEPCCL_GPU_SETTING_REFUSED, STEPCCL_GPU_REASON_UNGATED_GRAPHS, {}};
		write_board(dir, board);
	}
	const GpuBoards boards(dir.path(), dir / "control", "/proc");
	const json all = boards.processes(json::object());
	CHECK(all["processes"].size() == GpuBoards::kMaxProcesses);
	CHECK(all["omitted"] == 2);
	CHECK(all.dump().size() < 1'000'000);
	const pid_t ended = ::fork();
	if (ended == 0)
		::_exit(0);
	REQUIRE(::waitpid(ended, nullptr, 0) == ended);
	const std::string left = write_board(dir, sample(ended, 0));
	CHECK(boards.processes({{"rank", 0}})["processes"].size() == 1);
	boards.remove_stale();
	CHECK_FALSE(fs::exists(left));
	CHECK(boards.processes({{"rank", 0}})["processes"].size() == 1);
}
