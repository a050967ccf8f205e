// SPDX-License-Identifier: Apache-2.0
#include "runs/run_request.hpp"

#include <algorithm>
#include <set>
#include <string_view>

#include "base/text.hpp"
#include "rpc/errors.hpp"
#include "rpc/params.hpp"

namespace stepccl::agent {

using nlohmann::json;

namespace {

constexpr std::int64_t kMaxWorldSize = 65'536;
constexpr std::int64_t kMaxMessageBytes = std::int64_t{1} << 46;
constexpr std::size_t kMaxEnv = 64;

/// A run may tune the library, and nothing else: no other program's variables, and none that names a file
/// or a library, since the worker runs with the daemon's rights.
void check_env(const std::string &name, const json &value)
{
	const std::string path = "env." + name;
	const bool prefix = name.starts_with("STEPCCL_") || name.starts_with("NCCL_");
	const bool plain = name.size() <= 72 && name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string::npos;
	if (!prefix || !plain)
		throw bad_param(path, "must be named STEPCCL_... or NCCL_..., in capitals");
	for (const std::string_view end : {"_FILE", "_DIR", "_PATH", "_LIB", "_LIBRARY", "_PLUGIN"}) {
		if (name.ends_with(end))
			throw bad_param(path, "names a file or a library, which a run may not choose");
	}
	if (!value.is_string() || value.get_ref<const std::string &>().size() > 1024 ||
	    printable(value.get_ref<const std::string &>(), 1024) != value.get_ref<const std::string &>())
		throw bad_param(path, "must be a string of at most 1024 bytes without control characters");
}

std::string lower_hex(const Params &params, std::string_view name)
{
	std::string value = params.text(name, 2, 8192);
	std::transform(value.begin(), value.end(), value.begin(),
		       [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c; });
	if (value.size() % 2 != 0 || value.find_first_not_of("0123456789abcdef") != std::string::npos)
		throw bad_param(name, "must be an even number of hexadecimal digits");
	return value;
}

std::vector<int> parse_ranks(const Params &params, int world_size)
{
	const json &list = params.array("ranks", 1, RunRequest::kMaxRanks);
	std::set<int> ranks;
	for (std::size_t i = 0; i < list.size(); i++) {
		const json &rank = list[i];
		const std::int64_t number = rank.is_number_integer() ? rank.get<std::int64_t>() : -1;
		if (number < 0 || number >= world_size)
			throw bad_param(params.path("ranks", i), "must be an integer from 0 to world_size - 1");
		if (!ranks.insert(static_cast<int>(number)).second)
			throw bad_param(params.path("ranks", i), "is given twice");
	}
	return {ranks.begin(), ranks.end()};
}

} // namespace

bool RunRequest::has_rank_zero() const { return !ranks.empty() && ranks.front() == 0; }

RunRequest parse_run_start(const json &value)
{
	const Params params(value, {"run_id", "collective", "transport", "world_size", "ranks", "unique_id", "rendezvous",
				    "datatype", "redop", "root", "algorithm", "min_bytes", "max_bytes", "step_factor", "iterations",
				    "warmup", "check", "timeout_ms", "env"});
	RunRequest out;
	out.run_id = params.token("run_id", 64);
	out.collective = params.one_of("collective", {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "scatter", "gather",
						  "all_to_all", "send_recv", "barrier"});
	out.transport = params.one_of("transport", {"auto", "shm", "tcp", "rdma", "dma"});
	out.world_size = static_cast<int>(params.integer("world_size", 1, kMaxWorldSize));
	out.ranks = parse_ranks(params, out.world_size);
	if (out.has_rank_zero() && !params.is_null("unique_id"))
		throw bad_param("unique_id", "must be null on the node of rank 0, which makes it");
	if (!out.has_rank_zero() && params.is_null("unique_id"))
		throw bad_param("unique_id", "is needed on every node but that of rank 0");
	if (!params.is_null("unique_id"))
		out.unique_id = lower_hex(params, "unique_id");
	const Params rendezvous(params.object("rendezvous"), {"address"}, "rendezvous");
	out.rendezvous_address = rendezvous.ip_address("address");
	out.datatype = params.token("datatype", 16, "_");
	out.redop = params.token("redop", 16, "_");
	if (params.has("root"))
		out.root = static_cast<int>(params.integer("root", 0, out.world_size - 1));
	out.algorithm = params.token("algorithm", 32, "_");
	out.min_bytes = params.integer("min_bytes", 1, kMaxMessageBytes);
	out.max_bytes = params.integer("max_bytes", 1, kMaxMessageBytes);
	if (out.max_bytes < out.min_bytes)
		throw bad_param("max_bytes", "must not be less than min_bytes");
	out.step_factor = params.integer("step_factor", 2, 1024);
	out.iterations = params.integer("iterations", 1, 1'000'000);
	out.warmup = params.integer("warmup", 0, 1'000'000);
	out.check = params.boolean("check");
	out.timeout_ms = params.integer("timeout_ms", 100, 86'400'000);
	if (params.has("env")) {
		const json &env = params.object("env");
		if (env.size() > kMaxEnv)
			throw bad_param("env", "must not hold more than 64 names");
		for (const auto &item : env.items()) {
			check_env(item.key(), item.value());
			out.env[item.key()] = item.value().get<std::string>();
		}
	}
	return out;
}

std::vector<std::string> worker_arguments(const RunRequest &request, int rank)
{
	const bool ipv6 = request.rendezvous_address.find(':') != std::string::npos;
	std::vector<std::string> out = {"--json",
		"--die-with-parent",
		"--collective", request.collective,
		"--rank", std::to_string(rank),
		"--world-size", std::to_string(request.world_size),
		"--rendezvous-address", ipv6 ? "[" + request.rendezvous_address + "]" : request.rendezvous_address,
		rank == 0 ? "--rendezvous-listen" : "--unique-id-stdin",
		"--transport", request.transport,
		"--algorithm", request.algorithm,
		"-b", std::to_string(request.min_bytes),
		"-e", std::to_string(request.max_bytes),
		"-f", std::to_string(request.step_factor),
		"-n", std::to_string(request.iterations),
		"-w", std::to_string(request.warmup),
		"-c", request.check ? "1" : "0",
		"-d", request.datatype,
		"-o", request.redop,
		"--timeout-ms", std::to_string(request.timeout_ms)};
	if (request.root)
		out.insert(out.end(), {"-r", std::to_string(*request.root)});
	return out;
}

std::vector<std::string> worker_environment(const RunRequest &request, const std::string &rings_directory,
					    const std::string &control_file, const std::map<std::string, std::string> &settings)
{
	std::map<std::string, std::string> all = request.env;
	all.insert(settings.begin(), settings.end());
	all.try_emplace("STEPCCL_JOB_NAME", request.run_id);
	all["STEPCCL_TELEMETRY_DIR"] = rings_directory;
	all["STEPCCL_CONTROL_FILE"] = control_file;
	all["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin";
	all["LANG"] = "C.UTF-8";
	std::vector<std::string> out;
	for (const auto &[name, value] : all)
		out.push_back(name + "=" + value);
	return out;
}

} // namespace stepccl::agent
