// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace stepccl::agent {

/// The daemon's command line, with every default filled in.
struct Options {
	enum class Command { kServe, kProxy, kCall, kVersion, kHelp };

	Command command = Command::kServe;
	bool json = false;       ///< --version --json
	bool foreground = false; ///< stay in the foreground, log to standard error
	std::string run_dir = "/run/stepccl";
	std::string state_dir = "/var/lib/stepccl";
	std::string socket;       ///< <run_dir>/agent.sock
	std::string perf_path;    ///< stepccl-perf beside the daemon
	std::string gpuinfo_path; ///< stepccl-gpuinfo beside the daemon
	std::string method;       ///< call: what to ask
	std::string params = "{}"; ///< call: its parameters, JSON
	std::string sysroot;      ///< read /proc, /sys, /etc and /dev below it; empty: the machine's own

	[[nodiscard]] std::string rings_dir() const { return run_dir + "/rings"; }
	[[nodiscard]] std::string control_file() const { return run_dir + "/control"; }
	[[nodiscard]] std::string cluster_file() const { return state_dir + "/cluster.json"; }
	[[nodiscard]] std::string settings_file() const { return state_dir + "/settings.json"; }
	[[nodiscard]] std::string log_file() const { return state_dir + "/stepccld.log"; }
};

/// Throws std::invalid_argument with one sentence. `own_folder` is where the executable lies.
Options parse_options(const std::vector<std::string> &arguments, const std::string &own_folder);

/// The text of --help.
const char *usage() noexcept;

} // namespace stepccl::agent
