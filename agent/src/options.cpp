// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <filesystem>
#include <map>
#include <stdexcept>

namespace stepccl::agent {

const char *usage() noexcept
{
	return "stepccld [--socket PATH] [--state-dir DIR] [--run-dir DIR] [--perf PATH] [--gpuinfo PATH]\n"
	       "         [--sysroot DIR] [--foreground]\n"
	       "    Serves the node's daemon. Without --foreground, and where systemd has not started it, it goes\n"
	       "    to the background once it serves; its log is then STATE-DIR/stepccld.log.\n"
	       "stepccld proxy [--socket PATH]\n"
	       "    Joins standard input and output to the daemon's socket.\n"
	       "stepccld call METHOD [PARAMETERS] [--socket PATH]\n"
	       "    Asks the daemon one thing and prints its answer: stepccld call settings.set '{\"hbm_defrag\": true}'\n"
	       "stepccld --version [--json]\n";
}

Options parse_options(const std::vector<std::string> &arguments, const std::string &own_folder)
{
	Options options;
	const std::map<std::string, std::string *> with_value = {
		{"--socket", &options.socket},        {"--state-dir", &options.state_dir}, {"--run-dir", &options.run_dir},
		{"--perf", &options.perf_path},       {"--gpuinfo", &options.gpuinfo_path}, {"--sysroot", &options.sysroot},
	};
	int given = 0; // of call's own arguments
	for (std::size_t i = 0; i < arguments.size(); i++) {
		const std::string &argument = arguments[i];
		const auto equals = argument.find('=');
		const auto named = with_value.find(argument.substr(0, equals));
		if (i == 0 && argument == "proxy") {
			options.command = Options::Command::kProxy;
		} else if (i == 0 && argument == "call") {
			options.command = Options::Command::kCall;
		} else if (options.command == Options::Command::kCall && !argument.starts_with("-") && given < 2) {
			*(given++ == 0 ? &options.method : &options.params) = argument;
		} else if (argument == "--version") {
			options.command = Options::Command::kVersion;
		} else if (argument == "--help" || argument == "-h") {
			options.command = Options::Command::kHelp;
		} else if (argument == "--json") {
			options.json = true;
		} else if (argument == "--foreground") {
			options.foreground = true;
		} else if (named != with_value.end()) {
			if (equals == std::string::npos && i + 1 == arguments.size())
				throw std::invalid_argument(argument + " needs a value");
			*named->second = equals == std::string::npos ? arguments[++i] : argument.substr(equals + 1);
			if (named->second->empty())
				throw std::invalid_argument(named->first + " needs a value");
		} else {
			throw std::invalid_argument("unknown argument: " + argument);
		}
	}
	if (options.json && options.command != Options::Command::kVersion)
		throw std::invalid_argument("--json goes with --version only");
	if (options.command == Options::Command::kCall && options.method.empty())
		throw std::invalid_argument("call needs a method, such as gpu.processes");
	if (options.socket.empty())
		options.socket = options.run_dir + "/agent.sock";
	if (options.perf_path.empty())
		options.perf_path = own_folder + "/stepccl-perf";
	if (options.gpuinfo_path.empty())
		options.gpuinfo_path = own_folder + "/stepccl-gpuinfo";
	// Going to the background changes the working folder.
	for (std::string *path : {&options.run_dir, &options.state_dir, &options.socket, &options.perf_path, &options.gpuinfo_path, &options.sysroot}) {
		if (!path->empty())
			*path = std::filesystem::absolute(*path).lexically_normal().string();
	}
	return options;
}

} // namespace stepccl::agent
