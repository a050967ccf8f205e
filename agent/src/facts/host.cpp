// SPDX-License-Identifier: Apache-2.0
// Operating system, kernel, processors, memory and limits.
#include <sys/resource.h>

#include <cerrno>
#include <set>
#include <utility>

#include "base/clock.hpp"
#include "base/text.hpp"
#include "facts/facts.hpp"
#include "facts/key_values.hpp"

namespace stepccl::agent {

using nlohmann::json;

namespace {

/// The value of KEY=value in an os-release file, its quotes taken off (os-release(5)).
json os_release_value(const std::string &file, std::string_view key)
{
	const auto value = find_value(file, key, '=');
	if (!value)
		return nullptr;
	std::string_view text = *value;
	if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
		text = text.substr(1, text.size() - 2);
	return printable(text, 256);
}

json numa_facts(SysTree &tree)
{
	json nodes = json::array();
	for (const std::string &name : tree.list("/sys/devices/system/node", 2048)) {
		if (name.rfind("node", 0) != 0)
			continue;
		const auto id = parse_u64(std::string_view(name).substr(4));
		if (!id)
			continue;
		const std::string base = "/sys/devices/system/node/" + name;
		json total = nullptr;
		if (const auto meminfo = tree.whole(base + "/meminfo")) {
			// "Node 0 MemTotal:  16384 kB"
			const auto kib = find_number(*meminfo, "Node " + std::to_string(*id) + " MemTotal");
			if (kib)
				total = *kib * 1024;
		}
		nodes.push_back({{"id", *id},
				 {"cpus", tree.text(base + "/cpulist").value_or("")},
				 {"mem_total_bytes", total}});
	}
	std::sort(nodes.begin(), nodes.end(),
		  [](const json &a, const json &b) { return a["id"].get<std::uint64_t>() < b["id"].get<std::uint64_t>(); });
	return nodes;
}

json limit(int resource)
{
	rlimit value{};
	if (::getrlimit(static_cast<__rlimit_resource>(resource), &value) != 0 || value.rlim_cur == RLIM_INFINITY)
		return nullptr;
	return value.rlim_cur;
}

} // namespace

json os_facts(SysTree &tree)
{
	auto file = tree.whole("/etc/os-release");
	if (!file)
		file = tree.whole("/usr/lib/os-release", true);
	if (!file)
		return {{"id", nullptr}, {"version_id", nullptr}, {"pretty_name", nullptr}};
	return {{"id", os_release_value(*file, "ID")},
		{"version_id", os_release_value(*file, "VERSION_ID")},
		{"pretty_name", os_release_value(*file, "PRETTY_NAME")}};
}

json kernel_facts(SysTree &tree)
{
	return {{"release", or_null(tree.text("/proc/sys/kernel/osrelease", true))},
		{"version", or_null(tree.text("/proc/sys/kernel/version", true))},
		{"cmdline", or_null(tree.text("/proc/cmdline", true))},
		{"tainted", or_null(tree.number("/proc/sys/kernel/tainted", true))}};
}

json cpu_facts(SysTree &tree)
{
	json model = nullptr;
	if (const auto cpuinfo = tree.whole("/proc/cpuinfo", true)) {
		if (const auto name = find_value(*cpuinfo, "model name"))
			model = printable(*name, 256);
	}
	std::set<std::int64_t> sockets;
	std::set<std::pair<std::int64_t, std::int64_t>> cores;
	std::int64_t threads = 0;
	for (const std::string &name : tree.list("/sys/devices/system/cpu", 16384)) {
		if (name.rfind("cpu", 0) != 0 || !parse_u64(std::string_view(name).substr(3)))
			continue;
		const std::string topology = "/sys/devices/system/cpu/" + name + "/topology";
		const auto socket = tree.number(topology + "/physical_package_id");
		const auto core = tree.number(topology + "/core_id");
		if (!socket || !core)
			continue; // An offline processor has no topology.
		threads++;
		sockets.insert(*socket);
		cores.insert({*socket, *core});
	}
	const auto count = [&](std::size_t n) { return threads > 0 ? json(n) : json(nullptr); };
	if (threads == 0)
		tree.note_unreadable("/sys/devices/system/cpu", ENOENT, "no processor shows its topology");
	return {{"model", model},
		{"sockets", count(sockets.size())},
		{"cores", count(cores.size())},
		{"threads", count(static_cast<std::size_t>(threads))},
		{"numa_nodes", numa_facts(tree)}};
}

json memory_facts(SysTree &tree)
{
	const auto meminfo = tree.whole("/proc/meminfo", true);
	const auto bytes = [&](std::string_view name) -> json {
		const auto kib = meminfo ? find_number(*meminfo, name) : std::nullopt;
		return kib ? json(*kib * 1024) : json(nullptr);
	};
	return {{"total_bytes", bytes("MemTotal")},
		{"available_bytes", bytes("MemAvailable")},
		{"hugepages_total", meminfo ? or_null(find_number(*meminfo, "HugePages_Total")) : json(nullptr)},
		{"hugepage_bytes", bytes("Hugepagesize")}};
}

json limit_facts()
{
	return {{"memlock_bytes", limit(RLIMIT_MEMLOCK)}, {"nofile", limit(RLIMIT_NOFILE)}};
}

json collect_facts(SysTree &tree, RdmaPorts &links, const std::vector<InterfaceAddress> &addresses)
{
	json nics = nic_facts(tree, addresses);
	json rdma = rdma_facts(tree, links);
	join_nics_and_rdma(nics, rdma);
	return {{"collected_at_ms", realtime_ms()},
		{"os", os_facts(tree)},
		{"kernel", kernel_facts(tree)},
		{"cpu", cpu_facts(tree)},
		{"memory", memory_facts(tree)},
		{"limits", limit_facts()},
		{"nics", std::move(nics)},
		{"rdma", std::move(rdma)},
		{"driver", driver_facts(tree)}};
}

} // namespace stepccl::agent
