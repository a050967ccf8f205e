// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <sys/socket.h>

#include <span>

#include "ring_support.hpp"
#include "stepccl/telemetry_frame.hpp"
#include "telemetry/node_sample.hpp"
#include "telemetry/service.hpp"

using namespace stepccl::agent;
using namespace stepccl::agent::testing;

namespace {

void make_node(const TempDir &root)
{
	put(root / "proc/net/dev",
	    "Inter-|   Receive                                                |  Transmit\n"
	    " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n"
	    "    lo:  10 1 0 0 0 0 0 0 10 1 0 0 0 0 0 0\n"
	    "  eth1: 1000 10 1 2 0 0 0 0 2000 20 4 8 0 0 0 0\n"
	    "broken: 1 2\n");
	put(root / "sys/class/net/eth1/operstate", "up\n");
	put(root / "sys/class/net/eth1/speed", "25000\n");
	put(root / "sys/class/infiniband/rxe0/ports/1/state", "4: ACTIVE\n");
	put(root / "sys/class/infiniband/rxe0/ports/1/rate", "2.5 Gb/sec (1X)\n");
	put(root / "sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts", "70\n");
	put(root / "sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts", "80\n");
	put(root / "sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_seq_err", "3\n");
	put(root / "sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
	put(root / "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "100\n");
	put(root / "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "200\n");
	put(root / "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_packets", "5\n");
	put(root / "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_discards", "6\n");
	put(root / "proc/stat", "cpu  100 0 100 800 0 0 0 0 0 0\n");
	put(root / "proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 600 kB\n");
}

std::string name_of(const stepccl_frame_nic &nic) { return std::string(stepccl::telemetry::name_of(nic.name)); }

/// A client on one end of a socket pair; frames are read from the other.
struct Attached {
	EventLoop &loop;
	UniqueFd peer;
	std::shared_ptr<Client> client;
	bool closed = false;

	explicit Attached(EventLoop &l) : loop(l)
	{
		int fds[2];
		REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
		peer.reset(fds[1]);
		client = std::make_shared<Client>(loop, UniqueFd(fds[0]), 1, [](const std::shared_ptr<Client> &, std::string_view) {},
						  [this](std::uint64_t) { closed = true; });
		client->start();
	}
	~Attached() { client->close("test"); }

	std::optional<stepccl::telemetry::Frame> next_frame()
	{
		std::vector<std::byte> bytes(STEPCCL_FRAME_MAX_BYTES);
		ssize_t got = 0;
		if (!pump(loop, [&] { return (got = ::recv(peer.get(), bytes.data(), bytes.size(), 0)) > 0; }, std::chrono::seconds(3)))
			return std::nullopt;
		stepccl::telemetry::Frame frame;
		bytes.resize(static_cast<std::size_t>(got));
		if (stepccl::telemetry::decode_frame(bytes, frame) != stepccl::telemetry::FrameError::none)
			return std::nullopt;
		return frame;
	}
};

} // namespace

TEST_CASE("counters of NICs and RDMA ports")
{
	TempDir root;
	make_node(root);
	RdmaPorts links{SysTree(root.path())};
	NicSampler sampler{SysTree(root.path()), links};
	const auto nics = sampler.sample();
	REQUIRE(nics.size() == 3);
	CHECK(name_of(nics[0]) == "eth1");
	CHECK(nics[0].kind == 1);
	CHECK(nics[0].state == 4);
	CHECK(nics[0].speed_mbps == 25000);
	CHECK(nics[0].rx_bytes == 1000);
	CHECK(nics[0].tx_bytes == 2000);
	CHECK(nics[0].rx_packets == 10);
	CHECK(nics[0].tx_packets == 20);
	CHECK(nics[0].errors == 5);
	CHECK(nics[0].drops == 10);
	CHECK(name_of(nics[1]) == "mlx5_0");
	CHECK(nics[1].kind == 2);
	CHECK(nics[1].state == 1);
	CHECK(nics[1].tx_bytes == 400); // the kernel counts words of four bytes
	CHECK(nics[1].rx_bytes == 800);
	CHECK(nics[1].drops == 6);
	CHECK(name_of(nics[2]) == "rxe0");
	CHECK(nics[2].speed_mbps == 2500);
	CHECK(nics[2].tx_packets == 70);
	CHECK(nics[2].rx_packets == 80);
	CHECK(nics[2].errors == 3);
}

TEST_CASE("processor time between two readings")
{
	CHECK(cpu_permille({100, 1000}, {150, 1100}) == 500);
	CHECK(cpu_permille({100, 1000}, {100, 1000}) == 0);
	CHECK(cpu_permille({100, 1000}, {90, 1100}) == 0);
	TempDir root;
	make_node(root);
	SysTree tree(root.path());
	const CpuTimes times = read_cpu_times(tree);
	CHECK(times.busy == 200);
	CHECK(times.total == 1000);
	CHECK(memory_available_bytes(tree) == 600 * 1024);
	CHECK(own_rss_kib() > 100);
}

TEST_CASE("frames carry NICs, the rings' flows and operations, and the member of each peer")
{
	TempDir root, rings_dir, state;
	make_node(root);
	EventLoop loop;
	Membership membership(state / "cluster.json");
	membership.set(parse_cluster({{"cluster_id", "lab"}, {"epoch", 1}, {"self", 3}, {"members", {
		{{"node", 3}, {"name", "a"}, {"addresses", json::array()}},
		{{"node", 8}, {"name", "b"}, {"addresses", {{{"address", "127.0.0.8"}}}}}}}}));
	RdmaPorts links{SysTree(root.path())};
	RouteTable routes(loop, membership, SysTree(root.path()), links);
	RingStore rings(loop, rings_dir.path(), "/proc");
	TelemetryService service(loop, SysTree(root.path()), links, rings, routes, membership);
	FakeRing ring(rings_dir.path(), ::getpid(), 1, 0xabc, 16);
	ring.write_ops(3); // before the subscription: history
	Attached console(loop);
	const std::uint64_t id = service.subscribe(console.client, std::chrono::milliseconds(100));
	ring.flow(0).peer_rank = 0;
	ring.flow(0).transport = STEPCCL_TRANSPORT_TCP;
	ring.flow(0).peer_ipv4 = ::inet_addr("127.0.0.8");
	ring.flow(0).tx_bytes = 4096;
	ring.flow(1).peer_ipv4 = ::inet_addr("9.9.9.9");
	ring.header().flow_count = 2;
	ring.write_ops(2);
	put(root / "proc/stat", "cpu  150 0 150 900 0 0 0 0 0 0\n");

	const auto frame = console.next_frame();
	REQUIRE(frame);
	CHECK(frame->header.node == 3);
	CHECK(frame->header.sequence == 1);
	CHECK(frame->header.interval_ms == 100);
	CHECK(frame->header.rank_count == 1);
	CHECK(frame->header.lost_ops == 0);
	CHECK(frame->header.cpu_permille == 500);
	CHECK(frame->header.mem_available_bytes == 600 * 1024);
	CHECK(frame->header.daemon_rss_kib > 0);
	CHECK(frame->nics.size() == 3);
	REQUIRE(frame->flows.size() == 2);
	CHECK(frame->flows[0].comm_id == 0xabc);
	CHECK(frame->flows[0].rank == 1);
	CHECK(frame->flows[0].peer_node == 8);
	CHECK(frame->flows[0].tx_bytes == 4096);
	CHECK(frame->flows[1].peer_node == STEPCCL_NODE_UNKNOWN);
	REQUIRE(frame->ops.size() == 2);
	CHECK(frame->ops[0].sequence == 4);
	CHECK(frame->ops[0].world_size == 4);

	ring.write_ops(40);
	const auto second = console.next_frame();
	REQUIRE(second);
	CHECK(second->header.sequence == 2);
	CHECK(second->ops.size() == 15);
	CHECK(second->header.lost_ops == 25);

	CHECK(code_of([&] { service.unsubscribe(console.client, id + 1); }) == "A101");
	service.unsubscribe(console.client, id);
	CHECK(rings.rings().empty());
}

TEST_CASE("a console that does not keep up gets fewer samples, and its subscriptions end with it")
{
	TempDir root, rings_dir, state;
	make_node(root);
	EventLoop loop;
	Membership membership(state / "cluster.json");
	RdmaPorts links{SysTree(root.path())};
	RouteTable routes(loop, membership, SysTree(root.path()), links);
	RingStore rings(loop, rings_dir.path(), "/proc");
	TelemetryService service(loop, SysTree(root.path()), links, rings, routes, membership);
	Attached console(loop);
	for (std::size_t i = 0; i < TelemetryService::kMaxPerClient; i++)
		service.subscribe(console.client, std::chrono::milliseconds(100));
	CHECK(code_of([&] { service.subscribe(console.client, std::chrono::milliseconds(100)); }) == "A106");
	// Nobody reads: fill the socket and the queue up to where samples are left out.
	while (console.client->queued_bytes() <= TelemetryService::kSkipAboveBytes)
		console.client->send(std::vector<std::byte>(64 * 1024));
	const std::size_t queued = console.client->queued_bytes();
	const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(250);
	while (std::chrono::steady_clock::now() < end)
		loop.run_once(std::chrono::milliseconds(20));
	CHECK(console.client->queued_bytes() == queued);
	console.peer.reset();
	REQUIRE(pump(loop, [&] { return console.closed; }));
	CHECK_NOTHROW(loop.run_once(std::chrono::milliseconds(150)));
}
