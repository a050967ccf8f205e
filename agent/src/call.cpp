// SPDX-License-Identifier: Apache-2.0
#include "call.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/fd.hpp"
#include "base/text.hpp"
#include "proxy.hpp"

namespace stepccl::agent {

using nlohmann::json;

int run_call(const std::string &socket_path, const std::string &method, const std::string &params)
{
	const json arguments = json::parse(params, nullptr, false);
	if (!arguments.is_object()) {
		std::fprintf(stderr, "stepccld call: the parameters must be a JSON object, such as {\"hbm_defrag\": true}\n");
		return 2;
	}
	const std::string line = json{{"jsonrpc", "2.0"}, {"id", 1}, {"method", method}, {"params", arguments}}.dump() + "\n";
	const UniqueFd request(::memfd_create("request", MFD_CLOEXEC));
	const UniqueFd answer(::memfd_create("answer", MFD_CLOEXEC));
	if (!request.valid() || !answer.valid() || ::pwrite(request.get(), line.data(), line.size(), 0) != static_cast<ssize_t>(line.size())) {
		std::fprintf(stderr, "stepccld call: no memory\n");
		return 1;
	}
	if (const int status = run_proxy(socket_path, request.get(), answer.get()))
		return status;
	std::string text(static_cast<std::size_t>(::lseek(answer.get(), 0, SEEK_END)), '\0');
	text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::pread(answer.get(), text.data(), text.size(), 0))));
	const json said = json::parse(text.substr(0, text.find('\n')), nullptr, false);
	if (said.is_object() && said.contains("result")) {
		std::printf("%s\n", said["result"].dump(2).c_str());
		return 0;
	}
	if (!said.is_object() || !said.contains("error")) {
		std::fprintf(stderr, "stepccld call: the daemon closed without an answer\n");
		return 1;
	}
	std::fprintf(stderr, "stepccld call: %s\n", printable(said["error"].dump()).c_str());
	return 1;
}

} // namespace stepccl::agent
