// SPDX-License-Identifier: Apache-2.0
// Network interfaces and RDMA ports, from sysfs.
#include <algorithm>
#include <cerrno>

#include "base/text.hpp"
#include "facts/facts.hpp"

namespace stepccl::agent {

using nlohmann::json;

namespace {

constexpr int kArpHardwareLoopback = 772; // ARPHRD_LOOPBACK
constexpr std::size_t kMaxGids = 4096; // Soft-RoCE's table has 1,024 slots

json numa_node(SysTree &tree, const std::string &device)
{
	const auto node = tree.number(device + "/numa_node");
	return node && *node >= 0 ? json(*node) : json(nullptr); // -1: the platform doesn't say
}

/// "4: ACTIVE" -> "active"; a name outside of the contract is "unknown".
std::string port_state(const std::optional<std::string> &text)
{
	static constexpr std::string_view kNames[] = {"down", "init", "armed", "active"};
	if (!text)
		return "unknown";
	const auto colon = text->find(':');
	const auto number = parse_u64(trim(std::string_view(*text).substr(0, colon)));
	return number && *number >= 1 && *number <= 4 ? std::string(kNames[*number - 1]) : "unknown";
}

std::string after_colon(const std::optional<std::string> &text)
{
	if (!text)
		return "unknown";
	const auto colon = text->find(':');
	return std::string(trim(std::string_view(*text).substr(colon == std::string::npos ? 0 : colon + 1)));
}

/// "100 Gb/sec (4X EDR)" or "2.5 Gb/sec (1X)" -> 100, 2.5.
json rate_gbps(const std::optional<std::string> &text)
{
	if (!text)
		return nullptr;
	const auto number = std::string_view(*text).substr(0, text->find(' '));
	const auto parts = split(number, '.');
	const auto whole = parse_u64(parts[0]);
	if (!whole || parts.size() > 2)
		return nullptr;
	double value = static_cast<double>(*whole);
	if (parts.size() == 2) {
		const auto fraction = parse_u64(parts[1]);
		if (!fraction || parts[1].size() > 6)
			return nullptr;
		double scale = 1;
		for (std::size_t i = 0; i < parts[1].size(); i++)
			scale *= 10;
		value += static_cast<double>(*fraction) / scale;
	}
	return value;
}

std::string gid_type(const std::optional<std::string> &text)
{
	if (text && *text == "RoCE v2")
		return "roce_v2";
	if (text && *text == "IB/RoCE v1")
		return "roce_v1";
	return "ib";
}

json gid_facts(SysTree &tree, const std::string &port, bool ethernet)
{
	static constexpr std::string_view kZero = "0000:0000:0000:0000:0000:0000:0000:0000";
	std::vector<std::uint64_t> indices;
	for (const std::string &name : tree.list(port + "/gids", kMaxGids)) {
		if (const auto index = parse_u64(name))
			indices.push_back(*index);
	}
	std::sort(indices.begin(), indices.end());
	json gids = json::array();
	for (const std::uint64_t index : indices) {
		const std::string number = std::to_string(index);
		const auto gid = tree.text(port + "/gids/" + number);
		if (!gid || *gid == kZero || gid->empty())
			continue; // An empty slot of the table.
		const std::string type = gid_type(tree.text(port + "/gid_attrs/types/" + number));
		gids.push_back({{"index", index},
				{"gid", *gid},
				{"type", !ethernet ? "ib" : type},
				{"netdev", or_null(tree.text(port + "/gid_attrs/ndevs/" + number))}});
	}
	return gids;
}

json counters(SysTree &tree, const std::string &port)
{
	json values = json::object();
	for (const char *folder : {"/counters", "/hw_counters"}) {
		for (const std::string &name : tree.list(port + folder)) {
			if (name == "lifespan")
				continue; // The counters' refresh interval, not a counter.
			if (const auto value = tree.number(port + folder + "/" + name))
				values[printable(name, 64)] = *value;
		}
	}
	return values;
}

json port_facts(SysTree &tree, const RdmaPortLink &link, const std::string &port, std::uint64_t number)
{
	const auto &layer = link.layer;
	const bool ethernet = layer && *layer == "Ethernet";
	if (!link.state)
		tree.note_unreadable(port + "/state", link.error);
	json lid = nullptr;
	if (link.lid) {
		const auto value = parse_u64(*link.lid, 16);
		if (value && *value != 0)
			lid = *value;
	}
	return {{"port", number},
		{"state", port_state(link.state)},
		{"phys_state", after_colon(link.phys_state)},
		{"link_layer", ethernet ? "ethernet" : layer && *layer == "InfiniBand" ? "infiniband" : "unknown"},
		{"rate_gbps", rate_gbps(link.rate)},
		{"active_mtu_bytes", nullptr},
		{"lid", lid},
		{"gids", gid_facts(tree, port, ethernet)},
		{"counters", counters(tree, port)}};
}

/// The netdev of an RDMA device: what its first port's GIDs run on, or (Soft-RoCE) its parent.
json rdma_netdev(SysTree &tree, const std::string &device, const json &ports)
{
	for (const json &port : ports) {
		for (const json &gid : port["gids"]) {
			if (gid["netdev"].is_string() && gid["netdev"] != "")
				return gid["netdev"];
		}
	}
	return or_null(tree.text(device + "/parent"));
}

} // namespace

json nic_facts(SysTree &tree, const std::vector<InterfaceAddress> &addresses)
{
	json nics = json::array();
	for (const std::string &name : tree.list("/sys/class/net")) {
		const std::string base = "/sys/class/net/" + name;
		const auto type = tree.number(base + "/type");
		if (!type || *type == kArpHardwareLoopback)
			continue; // The loopback device, or a plain file (bonding_masters).
		const auto state = tree.text(base + "/operstate");
		const auto speed = tree.number(base + "/speed");
		json own = json::array();
		for (const InterfaceAddress &address : addresses) {
			if (address.netdev == name)
				own.push_back({{"family", address.family}, {"address", address.address}, {"prefix", address.prefix}});
		}
		nics.push_back({{"name", printable(name, 64)},
				{"mac", or_null(tree.text(base + "/address"))},
				{"mtu", or_null(tree.number(base + "/mtu"))},
				{"state", state && (*state == "up" || *state == "down") ? *state : "unknown"},
				{"speed_mbps", speed && *speed > 0 ? json(*speed) : json(nullptr)},
				{"driver", or_null(tree.link_name(base + "/device/driver"))},
				{"pci", or_null(tree.pci_address(base + "/device"))},
				{"numa_node", numa_node(tree, base + "/device")},
				{"addresses", std::move(own)},
				{"rdma_device", nullptr}});
	}
	return nics;
}

json rdma_facts(SysTree &tree, RdmaPorts &links)
{
	json devices = json::array();
	for (const std::string &name : tree.list("/sys/class/infiniband")) {
		const std::string base = "/sys/class/infiniband/" + name;
		json ports = json::array();
		for (const std::string &port : tree.list(base + "/ports")) {
			if (const auto number = parse_u64(port))
				ports.push_back(port_facts(tree, links.link(name, *number), base + "/ports/" + port, *number));
		}
		json netdev = rdma_netdev(tree, base, ports);
		auto firmware = tree.text(base + "/fw_ver");
		if (firmware && firmware->empty())
			firmware.reset(); // Soft-RoCE has none.
		devices.push_back({{"name", printable(name, 64)},
				   {"node_guid", or_null(tree.text(base + "/node_guid"))},
				   {"fw_version", or_null(firmware)},
				   {"netdev", std::move(netdev)},
				   {"driver", or_null(tree.link_name(base + "/device/driver"))},
				   {"pci", or_null(tree.pci_address(base + "/device"))},
				   {"numa_node", numa_node(tree, base + "/device")},
				   {"ports", std::move(ports)}});
	}
	if (!devices.empty())
		tree.note_unreadable("rdma active_mtu_bytes", EOPNOTSUPP, "the kernel tells it through verbs only, not in sysfs");
	return devices;
}

void join_nics_and_rdma(json &nics, const json &rdma)
{
	for (json &nic : nics) {
		for (const json &device : rdma) {
			if (device["netdev"] == nic["name"]) {
				nic["rdma_device"] = device["name"];
				break;
			}
		}
	}
}

} // namespace stepccl::agent
