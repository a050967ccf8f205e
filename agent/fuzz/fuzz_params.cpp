// SPDX-License-Identifier: Apache-2.0
// Every method's parameters, and the texts of other processes that are read as JSON. The first byte chooses.
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "cluster/membership.hpp"
#include "facts/facts.hpp"
#include "rpc/errors.hpp"
#include "rpc/json_text.hpp"
#include "runs/run_request.hpp"
#include "telemetry/settings.hpp"

using namespace stepccl::agent;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
	if (size == 0)
		return 0;
	const std::string text(reinterpret_cast<const char *>(data) + 1, size - 1);
	if (data[0] % 4 == 3) {
		try {
			const GpuFacts facts = gpu_facts_from_helper(text);
			if (!nlohmann::json::accept(to_line(facts.gpus)))
				std::abort();
		} catch (const std::runtime_error &) {
		}
		return 0;
	}
	const auto value = parse_json(text);
	if (!value)
		return 0;
	try {
		switch (data[0] % 4) {
		case 0: {
			const Cluster cluster = parse_cluster(*value);
			// What was taken must be taken again: it is what the daemon reads from its file.
			if (to_json(parse_cluster(to_json(cluster))) != to_json(cluster))
				std::abort();
			break;
		}
		case 1: {
			const RunRequest request = parse_run_start(*value);
			for (const int rank : request.ranks) {
				for (const std::string &argument : worker_arguments(request, rank)) {
					if (argument.find('\0') != std::string::npos || (!request.unique_id.empty() && argument == request.unique_id && request.unique_id.size() > 64))
						std::abort();
				}
			}
			for (const std::string &entry : worker_environment(request, "/r", "/c")) {
				if (entry.find('=') == std::string::npos || entry.find('\0') != std::string::npos)
					std::abort();
			}
			break;
		}
		default:
			check_settings(*value);
		}
	} catch (const RpcError &error) {
		if (error.code() != "A101" || !nlohmann::json::accept(to_line(error.to_json())))
			std::abort();
	}
	return 0;
}
