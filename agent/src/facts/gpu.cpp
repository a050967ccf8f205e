// SPDX-License-Identifier: Apache-2.0
// What `stepccl-gpuinfo` printed, taken over member by member: it is another process's text.
#include <algorithm>
#include <stdexcept>

#include "base/text.hpp"
#include "facts/facts.hpp"
#include "rpc/json_text.hpp"

namespace stepccl::agent {

using nlohmann::json;

namespace {

constexpr std::size_t kMaxGpus = 64;
constexpr std::size_t kMaxNvlinks = 64;

const json &member(const json &object, const char *name)
{
	static const json kNull;
	const auto found = object.find(name);
	return found == object.end() ? kNull : *found;
}

json text(const json &object, const char *name)
{
	const json &value = member(object, name);
	return value.is_string() ? json(printable(value.get_ref<const std::string &>(), 256)) : json(nullptr);
}

json count(const json &object, const char *name)
{
	const json &value = member(object, name);
	return value.is_number_unsigned() ? value : json(nullptr);
}

json required(json value, const char *name)
{
	if (value.is_null())
		throw std::runtime_error(std::string("a GPU has no valid \"") + name + '"');
	return value;
}

json nvlinks(const json &gpu)
{
	json links = json::array();
	const json &list = member(gpu, "nvlinks");
	if (!list.is_array())
		return links;
	for (std::size_t i = 0; i < std::min(list.size(), kMaxNvlinks); i++) {
		const json &link = list[i];
		if (!link.is_object())
			throw std::runtime_error("an NVLink is not an object");
		links.push_back({{"link", required(count(link, "link"), "nvlinks[].link")},
				 {"active", member(link, "active") == true},
				 {"peer_pci", text(link, "peer_pci")},
				 {"rx_bytes", count(link, "rx_bytes")},
				 {"tx_bytes", count(link, "tx_bytes")}});
	}
	return links;
}

json one_gpu(const json &gpu)
{
	if (!gpu.is_object())
		throw std::runtime_error("a GPU is not an object");
	return {{"index", required(count(gpu, "index"), "index")},
		{"uuid", required(text(gpu, "uuid"), "uuid")},
		{"name", required(text(gpu, "name"), "name")},
		{"pci", required(text(gpu, "pci"), "pci")},
		{"numa_node", count(gpu, "numa_node")},
		{"memory_total_bytes", required(count(gpu, "memory_total_bytes"), "memory_total_bytes")},
		{"memory_used_bytes", required(count(gpu, "memory_used_bytes"), "memory_used_bytes")},
		{"driver_version", text(gpu, "driver_version")},
		{"cuda_version", text(gpu, "cuda_version")},
		{"nvlinks", nvlinks(gpu)}};
}

} // namespace

GpuFacts gpu_facts_from_helper(const std::string &output)
{
	std::string why;
	const auto value = parse_json(trim(output), &why);
	if (!value)
		throw std::runtime_error("its output is no JSON: " + why);
	if (!value->is_object() || !member(*value, "gpus").is_array())
		throw std::runtime_error("its output has no array \"gpus\"");
	GpuFacts facts;
	const auto complain = [&](std::string problem) {
		if (facts.problems.size() < kMaxGpus)
			facts.problems.push_back(std::move(problem));
	};
	for (const json &gpu : member(*value, "gpus")) {
		if (facts.gpus.size() == kMaxGpus)
			break;
		try {
			facts.gpus.push_back(one_gpu(gpu));
		} catch (const std::runtime_error &problem) {
			complain(problem.what());
		}
	}
	const json reason = text(*value, "reason");
	if (reason.is_string())
		complain(reason.get<std::string>());
	for (const json &entry : member(*value, "unreadable")) {
		const json message = entry.is_object() ? text(entry, "message") : json(nullptr);
		if (message.is_string())
			complain("GPU " + to_line(count(entry, "index")) + ": " + message.get<std::string>());
	}
	return facts;
}

} // namespace stepccl::agent
