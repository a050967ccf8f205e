// SPDX-License-Identifier: Apache-2.0
// A worker's standard output and standard error. No event may hold the secret, and none may be one of the daemon's own.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "rpc/json_text.hpp"
#include "rpc/line_reader.hpp"
#include "runs/worker_output.hpp"

using namespace stepccl::agent;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
	const std::string secret = "5ec12e75";
	LineReader reader(512);
	const auto take = [&](LineReader::Kind kind, std::string_view line) {
		const bool cut = kind == LineReader::Kind::kCut;
		const WorkerLine read = read_stdout_line(line, cut, secret);
		const std::string text = to_line(read.event);
		if (!read.event.is_object() || !read.event["event"].is_string() || !nlohmann::json::accept(text) || text.find('\n') != std::string::npos)
			std::abort();
		if (!read.unique_id && text.find(secret) != std::string::npos)
			std::abort();
		if (read.unique_id && text.find(*read.unique_id) != std::string::npos && read.unique_id->size() > 16)
			std::abort();
		if (read.event["event"] == "run_end" || read.event["event"] == "exited" || read.event["event"] == "spawned")
			std::abort();
		const std::string shown = to_line(read_stderr_line(line, cut, secret));
		if (!nlohmann::json::accept(shown) || shown.find(secret) != std::string::npos)
			std::abort();
		return true;
	};
	reader.feed({reinterpret_cast<const char *>(data), size}, take);
	reader.finish(take);
	return 0;
}
