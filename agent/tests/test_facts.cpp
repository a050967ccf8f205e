// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <stdexcept>

#include "facts/facts.hpp"
#include "facts/gpu_helper.hpp"
#include "rpc/json_text.hpp"
#include "support.hpp"

using namespace stepccl::agent;
using namespace stepccl::agent::testing;

namespace {

/// A node's /proc and /sys as the kernel shows them, with a Soft-RoCE device and a virtio NIC.
void make_node(const TempDir &root)
{
	put(root / "etc/os-release", "ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME='Debian GNU/Linux 12'\n");
	put(root / "proc/sys/kernel/osrelease", "6.1.0-57-amd64\n");
	put(root / "proc/sys/kernel/version", "#1 SMP\n");
	put(root / "proc/sys/kernel/tainted", "12288\n");
	put(root / "proc/cmdline", "quiet\n");
	put(root / "proc/cpuinfo", "processor\t: 0\nmodel name\t: Intel Core i7 9xx\nprocessor\t: 1\nmodel name\t: other\n");
	put(root / "proc/meminfo", "MemTotal:  1000 kB\nMemAvailable:  600 kB\nHugePages_Total:  4\nHugepagesize:  2048 kB\n");
	for (const char *cpu : {"cpu0", "cpu1"}) {
		put(root / ("sys/devices/system/cpu/" + std::string(cpu) + "/topology/physical_package_id"), "0\n");
		put(root / ("sys/devices/system/cpu/" + std::string(cpu) + "/topology/core_id"), std::string(1, cpu[3]) + "\n");
	}
	fs::create_directories(root / "sys/devices/system/cpu/cpu2"); // offline
	put(root / "sys/devices/system/cpu/cpufreq/x", "");
	put(root / "sys/devices/system/node/node0/cpulist", "0-1\n");
	put(root / "sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  900 kB\n");
	put(root / "sys/class/net/lo/type", "772\n");
	put(root / "sys/class/net/bonding_masters", "\n");
	const std::string eth = root / "sys/class/net/eth1";
	put(eth + "/type", "1\n");
	put(eth + "/address", "52:54:00:77:00:01\n");
	put(eth + "/mtu", "9000\n");
	put(eth + "/operstate", "up\n");
	put(eth + "/speed", "-1\n");
	fs::create_directories(root / "sys/devices/pci0000:00/0000:00:03.0/virtio1");
	put(root / "sys/devices/pci0000:00/0000:00:03.0/virtio1/numa_node", "-1\n");
	fs::create_directories(root / "sys/bus/drivers/virtio_net");
	fs::create_directory_symlink("../../../devices/pci0000:00/0000:00:03.0/virtio1", eth + "/device");
	fs::create_directory_symlink("../../../../bus/drivers/virtio_net", root / "sys/devices/pci0000:00/0000:00:03.0/virtio1/driver");
	const std::string rxe = root / "sys/class/infiniband/rxe0";
	put(rxe + "/node_guid", "5054:00ff:fe77:0001\n");
	put(rxe + "/fw_ver", "\n");
	put(rxe + "/parent", "eth1\n");
	put(rxe + "/ports/1/state", "4: ACTIVE\n");
	put(rxe + "/ports/1/phys_state", "5: LinkUp\n");
	put(rxe + "/ports/1/link_layer", "Ethernet\n");
	put(rxe + "/ports/1/rate", "2.5 Gb/sec (1X)\n");
	put(rxe + "/ports/1/lid", "0x0\n");
	put(rxe + "/ports/1/gids/0", "fe80:0000:0000:0000:5054:00ff:fe77:0001\n");
	put(rxe + "/ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:0a4d:0001\n");
	for (int empty = 2; empty < 1024; empty++)
		put(rxe + "/ports/1/gids/" + std::to_string(empty), "0000:0000:0000:0000:0000:0000:0000:0000\n");
	put(rxe + "/ports/1/gid_attrs/types/0", "RoCE v2\n");
	put(rxe + "/ports/1/gid_attrs/types/1", "RoCE v2\n");
	put(rxe + "/ports/1/gid_attrs/ndevs/0", "eth1\n");
	put(rxe + "/ports/1/gid_attrs/ndevs/1", "eth1\n");
	put(rxe + "/ports/1/hw_counters/sent_pkts", "12\n");
	put(rxe + "/ports/1/hw_counters/lifespan", "10\n");
}

} // namespace

TEST_CASE("facts of a whole node")
{
	TempDir root;
	make_node(root);
	put(root / "sys/module/dma_engine/version", "1.0.0\n");
	put(root / "sys/module/dma_engine/refcnt", "2\n");
	put(root / "sys/class/misc/dma_device/stats/copies", "44\n");
	put(root / "dev/dma_device", "");
	REQUIRE(::chmod((root / "dev/dma_device").c_str(), 0660) == 0);

	SysTree tree(root.path());
	RdmaPorts links(tree);
	InterfaceAddress address{"eth1", 3, 4, "10.77.0.1", 24};
	const json facts = collect_facts(tree, links, {address});
	CHECK(facts["os"] == json{{"id", "debian"}, {"version_id", "12"}, {"pretty_name", "Debian GNU/Linux 12"}});
	CHECK(facts["kernel"]["release"] == "6.1.0-57-amd64");
	CHECK(facts["kernel"]["tainted"] == 12288);
	CHECK(facts["cpu"]["model"] == "Intel Core i7 9xx");
	CHECK(facts["cpu"]["sockets"] == 1);
	CHECK(facts["cpu"]["cores"] == 2);
	CHECK(facts["cpu"]["threads"] == 2);
	CHECK(facts["cpu"]["numa_nodes"] == json::array({{{"id", 0}, {"cpus", "0-1"}, {"mem_total_bytes", 900 * 1024}}}));
	CHECK(facts["memory"] == json{{"total_bytes", 1024000}, {"available_bytes", 614400}, {"hugepages_total", 4}, {"hugepage_bytes", 2097152}});
	REQUIRE(facts["nics"].size() == 1);
	const json &nic = facts["nics"][0];
	CHECK(nic["name"] == "eth1");
	CHECK(nic["speed_mbps"] == nullptr);
	CHECK(nic["driver"] == "virtio_net");
	CHECK(nic["pci"] == "0000:00:03.0");
	CHECK(nic["numa_node"] == nullptr);
	CHECK(nic["rdma_device"] == "rxe0");
	CHECK(nic["addresses"] == json::array({{{"family", 4}, {"address", "10.77.0.1"}, {"prefix", 24}}}));
	REQUIRE(facts["rdma"].size() == 1);
	const json &port = facts["rdma"][0]["ports"][0];
	CHECK(facts["rdma"][0]["netdev"] == "eth1");
	CHECK(facts["rdma"][0]["fw_version"] == nullptr);
	CHECK(port["state"] == "active");
	CHECK(port["phys_state"] == "LinkUp");
	CHECK(port["link_layer"] == "ethernet");
	CHECK(port["rate_gbps"] == 2.5);
	CHECK(port["lid"] == nullptr);
	CHECK(port["gids"].size() == 2);
	CHECK(port["gids"][1]["type"] == "roce_v2");
	CHECK(port["counters"] == json{{"sent_pkts", 12}});
	CHECK(facts["driver"]["present"] == true);
	CHECK(facts["driver"]["version"] == "1.0.0");
	CHECK(facts["driver"]["refcount"] == 2);
	CHECK(facts["driver"]["device"]["mode"] == "0660");
	CHECK(facts["driver"]["device"]["accessible"] == true);
	CHECK(facts["driver"]["counters"] == json{{"copies", 44}});
	const json unreadable = tree.take_unreadable();
	REQUIRE(unreadable.size() == 1);
	CHECK(unreadable[0]["what"] == "rdma active_mtu_bytes");
}

TEST_CASE("an empty machine gives nulls and says what it could not read")
{
	TempDir root;
	SysTree tree(root.path());
	RdmaPorts links(tree);
	const json facts = collect_facts(tree, links, {});
	CHECK(facts["os"]["id"] == nullptr);
	CHECK(facts["kernel"]["release"] == nullptr);
	CHECK(facts["cpu"]["threads"] == nullptr);
	CHECK(facts["memory"]["total_bytes"] == nullptr);
	CHECK(facts["nics"].empty());
	CHECK(facts["rdma"].empty());
	CHECK(facts["driver"]["present"] == false);
	CHECK(facts["driver"]["device"]["exists"] == false);
	std::vector<std::string> what;
	for (const json &entry : tree.take_unreadable())
		what.push_back(entry["what"]);
	CHECK(std::count(what.begin(), what.end(), "/proc/meminfo") == 1);
	CHECK(std::count(what.begin(), what.end(), "/proc/sys/kernel/osrelease") == 1);
	CHECK(std::count(what.begin(), what.end(), "/usr/lib/os-release") == 1);
}

TEST_CASE("hostile names and values")
{
	TempDir root;
	make_node(root);
	const std::string bad = "e\nv\xff" + std::string(200, 'x');
	put(root / ("sys/class/net/" + bad + "/type"), "1\n");
	put(root / ("sys/class/net/" + bad + "/mtu"), "many\n");
	put(root / ("sys/class/net/" + bad + "/address"), std::string(5000, '\x1b'));
	put(root / ("sys/class/infiniband/" + bad + "/ports/1/state"), "99: \xff\n");
	put(root / ("sys/class/infiniband/" + bad + "/ports/../escape"), "x");
	put(root / ("sys/class/infiniband/" + bad + "/ports/1/rate"), "1e309 Gb/sec\n");
	put(root / ("sys/class/infiniband/" + bad + "/ports/1/counters/" + std::string(250, 'c')), "18446744073709551616\n");
	put(root / "etc/os-release", "ID=\nPRETTY_NAME=\"\x1b[2J\"\n");
	put(root / "proc/cpuinfo", std::string(2 * 1024 * 1024, 'x'));
	REQUIRE(::mkfifo((root / "sys/class/net/eth1/carrier").c_str(), 0600) == 0);

	SysTree tree(root.path());
	RdmaPorts links(tree);
	json facts = collect_facts(tree, links, {});
	facts["unreadable"] = tree.take_unreadable();
	const std::string line = to_line(facts);
	CHECK(json::accept(line));
	CHECK(line.find('\x1b') == std::string::npos);
	CHECK(facts["nics"].size() == 2);
	CHECK(facts["nics"][0]["name"].get<std::string>().size() == 64);
	CHECK(facts["nics"][0]["mtu"] == nullptr);
	CHECK(facts["rdma"][0]["ports"][0]["state"] == "unknown");
	CHECK(facts["rdma"][0]["ports"][0]["rate_gbps"] == nullptr);
	CHECK(facts["cpu"]["model"] == nullptr);
	CHECK(facts["os"]["pretty_name"] == "?[2J");
}

TEST_CASE("a folder with too many entries is cut, and that is said")
{
	TempDir root;
	for (int i = 0; i < 300; i++)
		fs::create_directories(root / ("sys/class/infiniband/d" + std::to_string(i)));
	SysTree tree(root.path());
	CHECK(tree.list("/sys/class/infiniband").size() == 256);
	CHECK(tree.take_unreadable()[0]["errno"] == E2BIG);
}

TEST_CASE("an Ethernet port's link is read when its netdev changed, not at each look")
{
	TempDir root;
	make_node(root);
	std::uint64_t now = 1;
	const auto seconds = [&](std::uint64_t n) { now += n * 1'000'000'000; };
	RdmaPorts links(SysTree(root.path()), [&] { return now; });
	const std::string port = root / "sys/class/infiniband/rxe0/ports/1";
	const auto state = [&] { return links.link("rxe0", 1).state.value_or("none"); };
	CHECK(state() == "4: ACTIVE");
	put(port + "/state", "1: DOWN\n");
	seconds(300);
	CHECK(state() == "4: ACTIVE");
	put(root / "sys/class/net/eth1/operstate", "down\n");
	CHECK(state() == "1: DOWN");
	// The RDMA driver may follow its netdev later: looked at again for a few seconds.
	put(port + "/state", "2: INIT\n");
	CHECK(state() == "1: DOWN");
	seconds(1);
	CHECK(state() == "2: INIT");
	seconds(5);
	put(port + "/state", "4: ACTIVE\n");
	CHECK(state() == "2: INIT");
	seconds(600);
	CHECK(state() == "4: ACTIVE");
	// Made again under its name (rdma link delete, add): another device.
	fs::rename(root / "sys/class/infiniband/rxe0/ports/1", root / "sys/class/infiniband/rxe0/ports/9");
	put(port + "/state", "3: ARMED\n");
	CHECK(state() == "3: ARMED");
	fs::remove_all(port);
	CHECK(state() == "none");
	CHECK(links.link("rxe0", 1).error == ENOENT);
}

TEST_CASE("an InfiniBand port's link is read once a second at most")
{
	TempDir root;
	std::uint64_t now = 1;
	RdmaPorts links(SysTree(root.path()), [&] { return now; });
	const std::string port = root / "sys/class/infiniband/mlx5_0/ports/1";
	put(port + "/link_layer", "InfiniBand\n");
	put(port + "/state", "2: INIT\n");
	put(port + "/lid", "0x11\n");
	CHECK(links.link("mlx5_0", 1).state == "2: INIT");
	CHECK(links.link("mlx5_0", 1).lid == "0x11");
	put(port + "/state", "4: ACTIVE\n");
	CHECK(links.link("mlx5_0", 1).state == "2: INIT");
	now += 1'000'000'000;
	CHECK(links.link("mlx5_0", 1).state == "4: ACTIVE");
}

TEST_CASE("the helper's output is taken over member by member")
{
	const std::string gpu = R"({"index":0,"uuid":"GPU-1","name":"H200","pci":"0000:3b:00.0","numa_node":1,"memory_total_bytes":150,)"
				R"("memory_used_bytes":1,"driver_version":"570","cuda_version":null,"nvlinks":[{"link":0,"active":true,"peer_pci":null,)"
				R"("rx_bytes":5,"tx_bytes":-6}],"evil":"x"})";
	const GpuFacts facts = gpu_facts_from_helper("{\"gpus\":[" + gpu + R"(,{"index":1,"uuid":null}],"reason":"half done","unreadable":[{"index":2,"message":"lost"},7]})" + "\n");
	REQUIRE(facts.gpus.size() == 1);
	CHECK_FALSE(facts.gpus[0].contains("evil"));
	CHECK(facts.gpus[0]["nvlinks"][0]["rx_bytes"] == 5);
	CHECK(facts.gpus[0]["nvlinks"][0]["tx_bytes"] == nullptr);
	CHECK(facts.problems == std::vector<std::string>{"a GPU has no valid \"uuid\"", "half done", "GPU 2: lost"});
	for (const char *bad : {"", "x", "[]", "{}", R"({"gpus":{}})"})
		CHECK_THROWS_AS(gpu_facts_from_helper(bad), std::runtime_error);
	for (const char *bad : {R"({"gpus":[1]})", R"({"gpus":[{}]})", R"({"gpus":[{"index":-1}]})"})
		CHECK(gpu_facts_from_helper(bad).problems.size() == 1);
}

TEST_CASE("the helper: shared, absent, failing, babbling")
{
	TempDir dir;
	EventLoop loop;
	ProcessReaper reaper(loop);
	const auto ask = [&](const std::string &path) {
		GpuHelper helper(loop, reaper, path);
		GpuAnswer answer;
		int answers = 0;
		for (int i = 0; i < 2; i++)
			helper.ask([&](const GpuAnswer &a) { answer = a; answers++; });
		REQUIRE(pump(loop, [&] { return answers == 2; }));
		return answer;
	};
	CHECK(ask(dir / "absent").error == ENOENT);
	CHECK(ask(script(dir, "fails", "exit 3\n")).message == "stepccl-gpuinfo ended with status 3");
	CHECK(ask(script(dir, "crashes", "kill -SEGV $$\n")).message == "stepccl-gpuinfo ended with SIGSEGV");
	CHECK(ask(script(dir, "garbage", "echo hello\n")).error == EPROTO);
	CHECK(ask(script(dir, "babbles", "exec cat /dev/zero\n")).error == EFBIG);
	const GpuAnswer none = ask(script(dir, "none", "echo run >> " + (dir / "count") + "; echo '{\"gpus\":[]}'\n"));
	CHECK(none.error == 0);
	CHECK(none.facts.gpus.empty());
	CHECK(take(dir / "count") == "run\n");
}
