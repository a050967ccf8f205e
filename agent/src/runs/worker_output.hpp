// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace stepccl::agent {

/// A line that a worker printed, made safe to keep and to send on.
struct WorkerLine {
	nlohmann::json event;                 ///< the event for the log
	std::optional<std::string> unique_id; ///< rank 0's first words carry it; never part of `event`
	bool is_error = false;                ///< the worker told why it fails
	bool is_end = false;                  ///< the worker's last words: it came to a result
	bool is_garbage = false;              ///< no event; `event` then says so and shows the line
};

/// Reads one line of a worker's standard output. `secret` (may be empty) is taken out wherever it stands.
WorkerLine read_stdout_line(std::string_view line, bool cut, const std::string &secret);

/// {"event":"stderr","line":...}
nlohmann::json read_stderr_line(std::string_view line, bool cut, const std::string &secret);

/// The text with each occurrence of the secret replaced.
std::string redact(std::string_view text, const std::string &secret);

} // namespace stepccl::agent
