// SPDX-License-Identifier: Apache-2.0
#include "telemetry/node_sample.hpp"

#include <unistd.h>

#include <algorithm>
#include <limits>

#include "base/clock.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "facts/key_values.hpp"
#include "stepccl/telemetry_frame.hpp"

namespace stepccl::agent {

namespace {

constexpr std::uint64_t kSlowIntervalNs = 1'000'000'000;
constexpr std::uint8_t kStateDown = 1;
constexpr std::uint8_t kStateActive = 4;

std::vector<std::string_view> words(std::string_view line)
{
	std::vector<std::string_view> out;
	for (const std::string_view part : split(line, ' ')) {
		if (!part.empty())
			out.push_back(part);
	}
	return out;
}

} // namespace

void NicSampler::refresh_slow()
{
	const std::uint64_t now = monotonic_ns();
	if (slow_at_ns_ != 0 && now - slow_at_ns_ < kSlowIntervalNs)
		return;
	slow_at_ns_ = now;
	netdevs_.clear();
	for (const std::string &name : tree_.list("/sys/class/net")) {
		const std::string base = "/sys/class/net/" + name;
		NetdevState device;
		const auto state = tree_.text(base + "/operstate");
		device.state = !state ? 0 : *state == "up" ? kStateActive : *state == "down" ? kStateDown : 0;
		const auto speed = tree_.number(base + "/speed");
		if (speed && *speed > 0 && *speed <= std::numeric_limits<std::uint32_t>::max())
			device.speed_mbps = static_cast<std::uint32_t>(*speed);
		netdevs_[name] = device;
	}
	ports_.clear();
	for (const std::string &name : tree_.list("/sys/class/infiniband")) {
		for (const std::string &number : tree_.list("/sys/class/infiniband/" + name + "/ports")) {
			const std::string base = "/sys/class/infiniband/" + name + "/ports/" + number;
			RdmaPort port;
			port.name = name;
			port.port = static_cast<std::uint8_t>(parse_u64(number).value_or(0));
			const RdmaPortLink &link = links_.link(name, port.port);
			const auto code = link.state ? parse_u64(std::string_view(*link.state).substr(0, 1)) : std::nullopt;
			port.state = code && *code <= kStateActive ? static_cast<std::uint8_t>(*code) : 0;
			const auto &rate = link.rate;
			const auto gbps = rate ? parse_u64(std::string_view(*rate).substr(0, rate->find_first_of(". "))) : std::nullopt;
			if (gbps && *gbps < 1'000'000)
				port.speed_mbps = static_cast<std::uint32_t>(*gbps * 1000 + (rate->find(".5 ") != std::string::npos ? 500 : 0));
			if (!tree_.list(base + "/counters").empty())
				port.counters = base + "/counters/";
			if (!tree_.list(base + "/hw_counters").empty())
				port.hw_counters = base + "/hw_counters/";
			ports_.push_back(std::move(port));
		}
	}
	(void)tree_.take_unreadable();
}

std::uint64_t NicSampler::counter(const std::string &folder, const char *name)
{
	if (folder.empty())
		return 0;
	const FileText file = read_file(tree_.path(folder + name), 64);
	return file.ok() ? parse_u64(trim(file.text)).value_or(0) : 0;
}

std::uint64_t NicSampler::counters(const std::string &folder, std::initializer_list<const char *> names)
{
	std::uint64_t sum = 0;
	for (const char *name : names)
		sum += counter(folder, name);
	return sum;
}

stepccl_frame_nic NicSampler::sample_port(const RdmaPort &port)
{
	stepccl_frame_nic nic{};
	telemetry::set_name(nic.name, port.name);
	nic.kind = 2;
	nic.port = port.port;
	nic.state = port.state;
	nic.speed_mbps = port.speed_mbps;
	// InfiniBand counts data in words of four bytes (IBA 16.1.3.5, Documentation/ABI/stable/sysfs-class-infiniband).
	nic.tx_bytes = counter(port.counters, "port_xmit_data") * 4;
	nic.rx_bytes = counter(port.counters, "port_rcv_data") * 4;
	nic.tx_packets = counter(port.counters, "port_xmit_packets");
	nic.rx_packets = counter(port.counters, "port_rcv_packets");
	if (nic.tx_packets == 0 && nic.rx_packets == 0) {
		// Soft-RoCE counts packets, and only as hardware counters.
		nic.tx_packets = counter(port.hw_counters, "sent_pkts");
		nic.rx_packets = counter(port.hw_counters, "rcvd_pkts");
	}
	nic.errors = counters(port.counters, {"symbol_error", "port_rcv_errors", "port_rcv_remote_physical_errors",
					      "port_xmit_constraint_errors", "port_rcv_constraint_errors",
					      "local_link_integrity_errors", "excessive_buffer_overrun_errors"}) +
		     counters(port.hw_counters, {"completer_retry_err", "retry_exceeded_err", "retry_rnr_exceeded_err", "send_err",
						 "rcvd_seq_err", "packet_seq_err", "local_ack_timeout_err", "out_of_sequence",
						 "rnr_nak_retry_err", "roce_adp_retrans_to"});
	nic.drops = counters(port.counters, {"port_xmit_discards", "VL15_dropped"});
	return nic;
}

std::vector<stepccl_frame_nic> NicSampler::sample()
{
	refresh_slow();
	std::vector<stepccl_frame_nic> nics;
	const auto table = tree_.whole("/proc/net/dev");
	for (const std::string_view line : table ? split(*table, '\n') : std::vector<std::string_view>{}) {
		// "  eth0: bytes packets errs drop fifo frame compressed multicast bytes packets errs drop ..."
		const auto colon = line.find(':');
		if (colon == std::string_view::npos || nics.size() == kMaxNics)
			continue;
		const std::string name(trim(line.substr(0, colon)));
		const auto fields = words(line.substr(colon + 1));
		if (name == "lo" || fields.size() < 12)
			continue;
		const auto field = [&](std::size_t i) { return parse_u64(fields[i]).value_or(0); };
		stepccl_frame_nic nic{};
		telemetry::set_name(nic.name, name);
		nic.kind = 1;
		const auto slow = netdevs_.find(name);
		if (slow != netdevs_.end()) {
			nic.state = slow->second.state;
			nic.speed_mbps = slow->second.speed_mbps;
		}
		nic.rx_bytes = field(0);
		nic.rx_packets = field(1);
		nic.tx_bytes = field(8);
		nic.tx_packets = field(9);
		nic.errors = field(2) + field(10);
		nic.drops = field(3) + field(11);
		nics.push_back(nic);
	}
	for (const RdmaPort &port : ports_) {
		if (nics.size() < kMaxNics)
			nics.push_back(sample_port(port));
	}
	return nics;
}

CpuTimes read_cpu_times(SysTree &tree)
{
	CpuTimes times;
	const auto stat = tree.whole("/proc/stat");
	if (!stat || !stat->starts_with("cpu "))
		return times;
	// user nice system idle iowait irq softirq steal (guest time is inside user's)
	const auto fields = words(std::string_view(*stat).substr(0, stat->find('\n')));
	for (std::size_t i = 1; i < fields.size() && i <= 8; i++) {
		const std::uint64_t value = parse_u64(fields[i]).value_or(0);
		times.total += value;
		if (i != 4 && i != 5)
			times.busy += value;
	}
	return times;
}

std::uint32_t cpu_permille(const CpuTimes &from, const CpuTimes &to) noexcept
{
	// iowait may go backwards (proc(5)).
	if (to.total <= from.total || to.busy < from.busy)
		return 0;
	const std::uint64_t permille = (to.busy - from.busy) * 1000 / (to.total - from.total);
	return static_cast<std::uint32_t>(std::min<std::uint64_t>(permille, 1000));
}

std::uint64_t memory_available_bytes(SysTree &tree)
{
	const auto meminfo = tree.whole("/proc/meminfo");
	return meminfo ? find_number(*meminfo, "MemAvailable").value_or(0) * 1024 : 0;
}

std::uint32_t own_rss_kib()
{
	const FileText rollup = read_file("/proc/self/smaps_rollup");
	if (const auto kib = find_number(rollup.text, "Rss"))
		return static_cast<std::uint32_t>(*kib);
	const FileText statm = read_file("/proc/self/statm");
	const auto fields = words(trim(statm.text));
	const auto pages = fields.size() > 1 ? parse_u64(fields[1]) : std::nullopt;
	return static_cast<std::uint32_t>(pages.value_or(0) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) / 1024);
}

} // namespace stepccl::agent
