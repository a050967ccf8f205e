// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/fd.hpp"
#include "stepccl/telemetry.h"
#include "telemetry/ring_reader.hpp"

namespace stepccl::agent {

/// <pid>.<rank>.<comm id, 16 hex digits>.gpu
std::optional<RingName> parse_board_name(std::string_view file_name) noexcept;

/// Reads a rank's GPU board (telemetry.h, section 5). The file is the rank's and hostile: it is read with pread, its size,
/// name and numbers are checked. On failure `problem` says why in a few words.
std::optional<stepccl_gpu_board> read_board(const UniqueFd &fd, const RingName &name, std::string &problem);

/// What `gpu.processes` says of one board. `control_seq`: of the page that is published now. Without `with_ranges` the pool's map is
/// left out and counts as omitted.
nlohmann::json board_to_json(const stepccl_gpu_board &board, std::uint64_t now_ns, std::uint64_t control_seq, bool with_ranges = true);

/// The GPU engines of this node's living processes.
class GpuBoards {
public:
	/// So many fit into one message, whatever they say.
	static constexpr std::size_t kMaxProcesses = 32;

	/// `proc` is where processes are looked up ("/proc"); the page's sequence is read from `control_file`.
	GpuBoards(std::string directory, std::string control_file, std::string proc);

	/// `gpu.processes`. Throws RpcError.
	[[nodiscard]] nlohmann::json processes(const nlohmann::json &params) const;

	/// Removes what ended processes left.
	void remove_stale() const;

private:
	[[nodiscard]] std::uint64_t control_sequence() const;

	std::string directory_;
	std::string control_file_;
	std::string proc_;
};

} // namespace stepccl::agent
