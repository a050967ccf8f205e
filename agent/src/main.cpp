// SPDX-License-Identifier: Apache-2.0
// stepccld: the node's daemon. PROTOCOL.md says what it answers.
#include <fcntl.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>

#include "background.hpp"
#include "base/log.hpp"
#include "call.hpp"
#include "daemon.hpp"
#include "options.hpp"
#include "proxy.hpp"
#include "version.hpp"

namespace {

using namespace stepccl::agent;

constexpr int kExitUsage = 2;

std::string own_folder()
{
	char path[PATH_MAX];
	const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
	if (length <= 0)
		return ".";
	const std::string full(path, static_cast<std::size_t>(length));
	return full.substr(0, full.rfind('/'));
}

int print_version(bool as_json)
{
	if (as_json)
		std::printf("%s\n", nlohmann::json{{"name", "stepccld"}, {"version", kVersion}, {"git", kGit}, {"protocol", kProtocol}}.dump().c_str());
	else
		std::printf("stepccld %s (%s), protocol %d\n", kVersion, kGit, kProtocol);
	return 0;
}

int serve(const Options &options)
{
	const bool under_manager = std::getenv("NOTIFY_SOCKET") != nullptr;
	Background background;
	if (!options.foreground && !under_manager && background.enter() == Background::Side::kParent)
		return background.wait_until_ready();
	// One thread, small messages: more than one arena, or a lazily trimmed heap, only costs resident memory.
	(void)::mallopt(M_ARENA_MAX, 1);
	(void)::mallopt(M_TRIM_THRESHOLD, 64 * 1024);
	(void)::mallopt(M_MMAP_THRESHOLD, 64 * 1024);
	log().set_journal_prefix(std::getenv("JOURNAL_STREAM") != nullptr);
	(void)::umask(0007);
	try {
		Daemon daemon(options);
		daemon.serve([&] { background.ready(options.log_file()); });
	} catch (const std::exception &error) {
		log_error({{"event", "failed"}, {"why", error.what()}});
		return 1;
	}
	return 0;
}

} // namespace

int main(int argc, char **argv)
{
	Options options;
	try {
		options = parse_options({argv + 1, argv + argc}, own_folder());
	} catch (const std::exception &error) {
		std::fprintf(stderr, "stepccld: %s\n%s", error.what(), usage());
		return kExitUsage;
	}
	switch (options.command) {
	case Options::Command::kHelp:
		std::fputs(usage(), stdout);
		return 0;
	case Options::Command::kVersion:
		return print_version(options.json);
	case Options::Command::kProxy:
		return run_proxy(options.socket, STDIN_FILENO, STDOUT_FILENO);
	case Options::Command::kCall:
		return run_call(options.socket, options.method, options.params);
	case Options::Command::kServe:
		break;
	}
	return serve(options);
}
