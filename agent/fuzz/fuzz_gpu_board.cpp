// SPDX-License-Identifier: Apache-2.0
// A rank's GPU board: any bytes, with a header that passes the first checks in one half of the runs.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "telemetry/gpu_boards.hpp"

using namespace stepccl::agent;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
	static const int file = ::memfd_create("gpu", MFD_CLOEXEC);
	if (size < 1)
		return 0;
	(void)parse_board_name({reinterpret_cast<const char *>(data), size});
	std::string bytes(reinterpret_cast<const char *>(data + 1), size - 1);
	if ((data[0] & 1) != 0) {
		stepccl_gpu_board board{};
		std::memcpy(&board, bytes.data(), std::min(bytes.size(), sizeof board));
		board.magic = STEPCCL_GPU_MAGIC;
		board.version = STEPCCL_GPU_VERSION;
		board.total_bytes = sizeof board;
		board.edits &= ~1u;
		board.pid = 1;
		board.rank = 2;
		board.comm_id = 3;
		bytes.assign(reinterpret_cast<const char *>(&board), sizeof board);
	}
	if (::ftruncate(file, 0) != 0 || ::pwrite(file, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
		std::abort();
	std::string problem;
	const auto board = read_board(UniqueFd(::dup(file)), {1, 2, 3}, problem);
	if (!board) {
		if (problem.empty())
			std::abort();
		return 0;
	}
	if (board_to_json(*board, 1'000'000'000, board->control_seq).dump().size() > 32 * 1024)
		std::abort();
	return 0;
}
