// SPDX-License-Identifier: Apache-2.0
// A console's byte stream: cut into lines, read as requests, answered. The first byte chooses how the stream is cut.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "rpc/json_text.hpp"
#include "rpc/line_reader.hpp"
#include "rpc/request.hpp"

using namespace stepccl::agent;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
	if (size == 0)
		return 0;
	const std::size_t piece = data[0] % 64 + 1;
	const std::string_view stream(reinterpret_cast<const char *>(data) + 1, size - 1);
	constexpr std::size_t kMax = 256;
	LineReader reader(kMax);
	const auto take = [](LineReader::Kind, std::string_view line) {
		if (line.size() > kMax)
			std::abort();
		const auto parsed = parse_request(line);
		if (const auto *bad = std::get_if<BadRequest>(&parsed)) {
			const std::string answer = error_line(bad->id, bad->error);
			if (answer.find('\n') != answer.size() - 1 || !nlohmann::json::accept(answer))
				std::abort();
		} else {
			const auto &request = std::get<Request>(parsed);
			const std::string answer = result_line(request.id, to_line(request.params));
			if (answer.find('\n') != answer.size() - 1 || !nlohmann::json::accept(answer))
				std::abort();
		}
		return true;
	};
	for (std::size_t at = 0; at < stream.size(); at += piece)
		reader.feed(stream.substr(at, piece), take);
	reader.finish(take);
	return 0;
}
