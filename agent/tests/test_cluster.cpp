// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>

#include "cluster/echo.hpp"
#include "cluster/membership.hpp"
#include "cluster/netlink.hpp"
#include "cluster/routes.hpp"
#include "support.hpp"

using namespace stepccl::agent;
using namespace stepccl::agent::testing;

namespace {

json three_members(std::int64_t epoch = 1)
{
	json members = json::array();
	for (int node = 1; node <= 3; node++)
		members.push_back({{"node", node}, {"name", "node" + std::to_string(node)},
				   {"addresses", {{{"address", "10.77.0." + std::to_string(node)}, {"netdev", "eth1"},
						   {"rdma_device", "rxe0"}, {"gid_index", 1}}}}});
	return {{"cluster_id", "lab"}, {"epoch", epoch}, {"self", 1}, {"members", members}};
}

} // namespace

TEST_CASE("a cluster's description comes back as it went in")
{
	const json description = three_members();
	CHECK(to_json(parse_cluster(description)) == description);
	json bare = description;
	bare["members"][0]["addresses"][0] = {{"address", "fd00::1"}};
	CHECK(parse_cluster(bare).members[0].addresses[0].gid_index == std::nullopt);
}

TEST_CASE("a wrong description is refused by the member that is wrong")
{
	const auto refused = [](const std::function<void(json &)> &spoil) {
		json description = three_members();
		spoil(description);
		return message_of([&] { (void)parse_cluster(description); });
	};
	CHECK(refused([](json &d) { d["epoch"] = -1; }).find("\"epoch\"") != std::string::npos);
	CHECK(refused([](json &d) { d["epoch"] = 1.0e300; }).find("\"epoch\"") != std::string::npos);
	CHECK(refused([](json &d) { d["self"] = 9; }).find("\"self\"") != std::string::npos);
	CHECK(refused([](json &d) { d["members"] = json::array(); }).find("\"members\"") != std::string::npos);
	CHECK(refused([](json &d) { d["members"][1]["node"] = 1; }).find("members[1].node") != std::string::npos);
	CHECK(refused([](json &d) { d["members"][1]["node"] = 65535; }).find("members[1].node") != std::string::npos);
	CHECK(refused([](json &d) { d["members"][1]["name"] = "a\nb"; }).find("members[1].name") != std::string::npos);
	CHECK(refused([](json &d) { d["members"][1]["addresses"][0]["address"] = "10.77.0.1"; }).find("members[1].addresses") != std::string::npos);
	CHECK(refused([](json &d) { d["members"][1]["addresses"][0]["address"] = "node2"; }).find("addresses[0].address") != std::string::npos);
	CHECK(refused([](json &d) { d["members"][1]["addresses"][0]["rdma_device"] = "../../x"; }).find("rdma_device") != std::string::npos);
	CHECK(refused([](json &d) { d["members"][1]["addresses"][0]["netdev"] = ".."; }).find("netdev") != std::string::npos);
	CHECK(refused([](json &d) { d["members"][1]["extra"] = 1; }).find("members[1].extra") != std::string::npos);
	CHECK(refused([](json &d) { d["members"][0] = 5; }).find("members[0]") != std::string::npos);
}

TEST_CASE("membership: kept over a restart, never taken back to an older epoch")
{
	TempDir dir;
	const std::string file = dir / "cluster.json";
	{
		Membership membership(file);
		membership.load();
		CHECK(code_of([&] { (void)membership.get(); }) == "A301");
		membership.set(parse_cluster(three_members(5)));
		CHECK(code_of([&] { membership.set(parse_cluster(three_members(4))); }) == "A302");
		membership.set(parse_cluster(three_members(5)));
		CHECK(membership.get().epoch == 5);
	}
	Membership again(file);
	again.load();
	CHECK(again.get().epoch == 5);
	CHECK(code_of([&] { again.set(parse_cluster(three_members(4))); }) == "A302");
	CHECK(again.node_of_ipv4(::inet_addr("10.77.0.3")) == 3);
	CHECK_FALSE(again.node_of_ipv4(::inet_addr("10.77.0.9")));
}

TEST_CASE("a change that can't be kept changes nothing")
{
	TempDir dir;
	fs::create_directory(dir / "state");
	Membership membership(dir / "state/cluster.json");
	membership.set(parse_cluster(three_members(5)));
	fs::remove_all(dir / "state");
	CHECK(code_of([&] { membership.set(parse_cluster(three_members(6))); }) == "A402");
	CHECK(membership.get().epoch == 5);
}

TEST_CASE("a damaged file makes the node no member, and is replaced by the next description")
{
	TempDir dir;
	for (const std::string &damage : {std::string("{\"cluster_id\""), std::string("[]"), std::string("{}"), std::string("\0\0", 2)}) {
		put(dir / "cluster.json", damage);
		Membership membership(dir / "cluster.json");
		membership.load();
		CHECK(membership.current() == nullptr);
		membership.set(parse_cluster(three_members()));
		CHECK(membership.get().epoch == 1);
	}
}

TEST_CASE("paths: best first")
{
	Path tcp{.transport = "tcp", .state = PathState::kUp, .rtt_us = 10.0};
	Path slow{.transport = "tcp", .state = PathState::kUp, .rtt_us = 90.0};
	Path rdma{.transport = "rdma", .state = PathState::kUp};
	Path down{.transport = "rdma", .state = PathState::kDown};
	Path unknown{.transport = "rdma"};
	std::vector<Path> paths{down, unknown, slow, tcp, rdma};
	sort_paths(paths);
	CHECK(paths[0].transport == "rdma");
	CHECK(paths[1].rtt_us == 10.0);
	CHECK(paths[2].rtt_us == 90.0);
	CHECK(paths[3].state == PathState::kUnknown);
	CHECK(paths[4].state == PathState::kDown);
}

TEST_CASE("paths between others pair the addresses of the same network only")
{
	Member a{1, "a", {{"192.168.1.1", "eth0", {}, {}}, {"10.77.0.1", "eth1", "rxe0", 1}, {"172.16.0.1", "eth2", {}, {}}}};
	Member b{2, "b", {{"10.77.0.2", "eth5", "mlx5_0", 3}, {"172.17.0.2", {}, {}, {}}, {"fd00::2", {}, {}, {}}}};
	const std::vector<InterfaceAddress> networks{{"eth1", 2, 4, "10.77.0.9", 24}, {"eth0", 1, 4, "192.168.1.9", 25}};
	const auto paths = derive_paths(a, b, networks);
	REQUIRE(paths.size() == 3);
	CHECK(paths[0].transport == "tcp");
	CHECK(paths[0].local_address == "10.77.0.1");
	CHECK(paths[0].peer_address == "10.77.0.2");
	CHECK(paths[1].transport == "rdma");
	CHECK(paths[1].rdma_device == "rxe0");
	CHECK(paths[1].gid_index == 1);
	CHECK(paths[2].local_address == "172.16.0.1");
	CHECK(paths[2].peer_address == "172.17.0.2");
	for (const Path &path : paths)
		CHECK(path.state == PathState::kUnknown);
}

TEST_CASE("the kernel's routes, over rtnetlink")
{
	const Netlink netlink;
	const auto addresses = netlink.addresses();
	const auto loopback = std::find_if(addresses.begin(), addresses.end(), [](const auto &a) { return a.address == "127.0.0.1"; });
	REQUIRE(loopback != addresses.end());
	CHECK(loopback->netdev == "lo");
	CHECK(loopback->prefix == 8);
	const RouteLookup local = netlink.route_to("127.0.0.1");
	CHECK(local.error == 0);
	CHECK(local.to_itself);
	CHECK(local.netdev == "lo");
	CHECK(netlink.route_to("no address").error == EINVAL);
	CHECK(netlink.route_to("240.0.0.1").error >= 0);
	CHECK(netlink.neighbour(loopback->ifindex, "127.0.0.77") == NeighbourState::kUnknown);
}

TEST_CASE("an echo to loopback comes back, one to nowhere does not")
{
	EventLoop loop;
	EchoProber prober(loop);
	EchoProber::Results results;
	bool done = false;
	prober.probe({"127.0.0.1", "::1", "192.0.2.255", "bad"}, [&](const EchoProber::Results &r) { results = r; done = true; });
	CHECK(prober.busy());
	REQUIRE(pump(loop, [&] { return done; }));
	CHECK_FALSE(prober.busy());
	CHECK(results.at("bad").error == EINVAL);
	CHECK_FALSE(results.at("192.0.2.255").rtt_us);
	const EchoResult &loopback = results.at("127.0.0.1");
	if (loopback.error == EPERM || loopback.error == EACCES) {
		MESSAGE("no echo socket is allowed here: round trips are not checked");
		return;
	}
	REQUIRE(loopback.rtt_us);
	CHECK(*loopback.rtt_us > 0);
	CHECK(*loopback.rtt_us < 1'000'000);
}

TEST_CASE("the routing table of a node among three")
{
	TempDir root, state;
	put(root / "sys/class/infiniband/rxe0/ports/1/state", "1: DOWN\n");
	fs::create_directories(root / "dev/shm");
	EventLoop loop;
	Membership membership(state / "cluster.json");
	RdmaPorts links{SysTree(root.path())};
	RouteTable routes(loop, membership, SysTree(root.path()), links);
	CHECK(code_of([&] { (void)routes.table(std::nullopt); }) == "A301");
	json description = three_members(7);
	description["members"][1]["addresses"][0]["address"] = "127.0.0.1";
	membership.set(parse_cluster(description));
	bool done = false;
	routes.probe([&] { done = true; });
	REQUIRE(pump(loop, [&] { return done; }));
	const json table = routes.table(std::nullopt);
	CHECK(table["epoch"] == 7);
	CHECK(table["routes"].size() == 7);
	CHECK(routes.table(2)["routes"].size() == 2);
	for (const json &route : table["routes"]) {
		if (route["from"] == 1 && route["to"] == 1) {
			CHECK(route["paths"][0]["transport"] == "shm");
			CHECK(route["paths"][0]["state"] == "up");
		}
		if (route["from"] == 1 && route["to"] == 2)
			CHECK(route["paths"].back()["reason"] == "the address is this node's own");
		if (route["from"] == 2 && route["to"] == 3)
			CHECK(route["paths"].empty()); // loopback and the lab's network don't meet
	}
}

TEST_CASE("a table that would not fit into one message gives this node's own routes")
{
	TempDir root, state;
	EventLoop loop;
	Membership membership(state / "cluster.json");
	json members = json::array();
	for (int node = 0; node < 60; node++)
		members.push_back({{"node", node}, {"name", "n"}, {"addresses", json::array()}});
	membership.set(parse_cluster({{"cluster_id", "big"}, {"epoch", 1}, {"self", 5}, {"members", members}}));
	RdmaPorts links{SysTree(root.path())};
	RouteTable routes(loop, membership, SysTree(root.path()), links);
	const json table = routes.table(std::nullopt);
	CHECK(table["truncated"] == true);
	CHECK(table["routes"].size() == 60);
	CHECK(table["routes"][0]["from"] == 5);
}
