// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>

#include <cstring>

#include "ring_support.hpp"
#include "telemetry/ring_reader.hpp"
#include "telemetry/ring_store.hpp"

using namespace stepccl::agent;
using namespace stepccl::agent::testing;

namespace {

std::optional<RingReader> open_ring(const std::string &file, const RingName &name, std::string &problem)
{
	return RingReader::open(UniqueFd(::open(file.c_str(), O_RDONLY | O_CLOEXEC)), name, problem);
}

} // namespace

TEST_CASE("a ring's name")
{
	const auto name = parse_ring_name("812.3.00000000deadbeef.ring");
	REQUIRE(name);
	CHECK(name->pid == 812);
	CHECK(name->rank == 3);
	CHECK(name->comm_id == 0xdeadbeef);
	for (const char *bad : {"", ".ring", "812.3.ring", "812.3.deadbeef.ring", "0.3.00000000deadbeef.ring", "-1.3.00000000deadbeef.ring",
				"99999999999.3.00000000deadbeef.ring", "812.3.00000000DEADBEEF.ring", "812.3.0x000000deadbeef.ring",
				"812.3.00000000deadbeef.ring.tmp", "../812.3.00000000deadbeef.ring", "812.3.4.00000000deadbeef.ring"})
		CHECK_FALSE(parse_ring_name(bad));
}

TEST_CASE("operations are read once, in order, round the ring's end")
{
	TempDir dir;
	FakeRing ring(dir.path(), ::getpid(), 2, 7, 8);
	std::string problem;
	auto reader = open_ring(ring.path(), ring.name(), problem);
	REQUIRE(reader);
	std::uint64_t tail = 0;
	ring.write_ops(5);
	REQUIRE(reader->refresh());
	CHECK(reader->ops_since(tail, 100).ops.size() == 5);
	ring.write_ops(6);
	REQUIRE(reader->refresh());
	const RingOps second = reader->ops_since(tail, 100);
	CHECK(second.lost == 0);
	REQUIRE(second.ops.size() == 6);
	for (std::size_t i = 0; i < 6; i++)
		CHECK(second.ops[i].sequence == 6 + i);
	CHECK(reader->ops_since(tail, 100).ops.empty());
}

TEST_CASE("what was overwritten is counted, not shown")
{
	TempDir dir;
	FakeRing ring(dir.path(), ::getpid(), 0, 7, 8);
	std::string problem;
	auto reader = open_ring(ring.path(), ring.name(), problem);
	REQUIRE(reader);
	std::uint64_t tail = 0;
	ring.write_ops(30);
	REQUIRE(reader->refresh());
	const RingOps read = reader->ops_since(tail, 100);
	CHECK(read.lost + read.ops.size() == 30);
	CHECK(read.ops.size() == 7); // the eighth slot is the one that the producer may be writing now
	CHECK(read.ops.back().sequence == 30);
	// The producer goes round between the header's reading and the slots' reading.
	ring.write_ops(3);
	REQUIRE(reader->refresh());
	ring.write_ops(20);
	const RingOps raced = reader->ops_since(tail, 100);
	CHECK(raced.ops.empty());
	CHECK(raced.lost == 3);
}

TEST_CASE("a limit leaves the rest for the next reading")
{
	TempDir dir;
	FakeRing ring(dir.path(), ::getpid(), 0, 7, 64);
	std::string problem;
	auto reader = open_ring(ring.path(), ring.name(), problem);
	std::uint64_t tail = 0;
	ring.write_ops(40);
	REQUIRE(reader->refresh());
	CHECK(reader->ops_since(tail, 15).ops.size() == 15);
	CHECK(reader->ops_since(tail, 0).ops.empty());
	CHECK(reader->ops_since(tail, 100).ops.size() == 25);
}

TEST_CASE("hostile rings are refused")
{
	TempDir dir;
	const auto problem_of = [&](const std::function<void(stepccl_ring_header &)> &spoil, off_t size = -1) {
		FakeRing ring(dir.path(), ::getpid(), 1, 7, 8);
		spoil(ring.header());
		if (size >= 0)
			REQUIRE(::truncate(ring.path().c_str(), size) == 0);
		std::string problem;
		CHECK_FALSE(open_ring(ring.path(), ring.name(), problem));
		return problem;
	};
	CHECK(problem_of([](auto &h) { h.magic = 1; }) == "wrong magic or version");
	CHECK(problem_of([](auto &h) { h.version = 2; }) == "wrong magic or version");
	CHECK(problem_of([](auto &h) { h.op_slots = 0; }) == "wrong sizes in its header");
	CHECK(problem_of([](auto &h) { h.op_slots = 7; }) == "wrong sizes in its header");
	CHECK(problem_of([](auto &h) { h.op_slots = 1u << 31; }) == "wrong sizes in its header");
	CHECK(problem_of([](auto &h) { h.header_bytes = 8; }) == "wrong sizes in its header");
	CHECK(problem_of([](auto &h) { h.header_bytes = 0xfffffff8; }) == "wrong sizes in its header");
	CHECK(problem_of([](auto &h) { h.op_slots = 1u << 16; }) == "shorter than its header says");
	CHECK(problem_of([](auto &h) { h.pid++; }) == "its header and its name differ");
	CHECK(problem_of([](auto &h) { h.comm_id++; }) == "its header and its name differ");
	CHECK(problem_of([](auto &) {}, 0) == "shorter than a header");
	CHECK(problem_of([](auto &) {}, 191) == "shorter than a header");
	CHECK(problem_of([](auto &) {}, 4096) == "shorter than its header says");
	std::string problem;
	CHECK_FALSE(open_ring(dir.path(), {1, 1, 1}, problem));
	CHECK(problem == "not a regular file");
}

TEST_CASE("a ring that changes while it is open")
{
	TempDir dir;
	std::string problem;
	SUBCASE("it shrinks: an error, no signal")
	{
		FakeRing ring(dir.path(), ::getpid(), 1, 7, 8);
		auto reader = open_ring(ring.path(), ring.name(), problem);
		REQUIRE(reader);
		ring.header().flow_count = 5;
		ring.write_ops(3);
		REQUIRE(reader->refresh());
		REQUIRE(::truncate(ring.path().c_str(), 200) == 0);
		std::uint64_t tail = 0;
		CHECK(reader->flows().empty());
		const RingOps read = reader->ops_since(tail, 10);
		CHECK(read.ops.empty());
		CHECK(read.lost == 3);
		REQUIRE(::truncate(ring.path().c_str(), 0) == 0);
		CHECK_FALSE(reader->refresh());
	}
	SUBCASE("its sizes change")
	{
		FakeRing ring(dir.path(), ::getpid(), 1, 7, 8);
		auto reader = open_ring(ring.path(), ring.name(), problem);
		ring.header().op_slots = 1u << 20;
		CHECK_FALSE(reader->refresh());
	}
	SUBCASE("its head goes back, or flies off")
	{
		FakeRing ring(dir.path(), ::getpid(), 1, 7, 8);
		ring.write_ops(5);
		auto reader = open_ring(ring.path(), ring.name(), problem);
		ring.header().op_head = 2;
		CHECK_FALSE(reader->refresh());
		ring.header().op_head = ~0ull;
		CHECK_FALSE(reader->refresh());
		ring.header().op_head = 6;
		CHECK(reader->refresh());
	}
	SUBCASE("it claims more flows than there are")
	{
		FakeRing ring(dir.path(), ::getpid(), 1, 7, 8);
		auto reader = open_ring(ring.path(), ring.name(), problem);
		ring.header().flow_count = 0xffffffff;
		REQUIRE(reader->refresh());
		CHECK(reader->flows().size() == STEPCCL_RING_FLOWS);
	}
}

TEST_CASE("the store opens new rings at once and drops them when they are drained")
{
	TempDir dir;
	EventLoop loop;
	RingStore store(loop, dir.path(), "/proc");
	store.watch_begins();
	{
		FakeRing ring(dir.path(), ::getpid(), 0, 7, 8);
		ring.write_ops(4);
		loop.run_once(std::chrono::milliseconds(100));
		CHECK(store.rings().size() == 1);
	} // The file is gone again before any sample.
	loop.run_once(std::chrono::milliseconds(100));
	REQUIRE(store.rings().size() == 1);
	OpenRing &open = *store.rings().begin()->second;
	CHECK(open.gone_at_ns != 0);
	REQUIRE(open.reader.refresh());
	std::uint64_t tail = 0;
	CHECK(open.reader.ops_since(tail, 10).ops.size() == 4);
	store.update(open.gone_at_ns); // somebody has not read it yet
	CHECK(store.rings().size() == 1);
	store.update(open.gone_at_ns + 1);
	CHECK(store.rings().empty());
	store.watch_ends();
}

TEST_CASE("the store takes no links, no foreign owner, no second name")
{
	TempDir dir, outside;
	EventLoop loop;
	RingStore store(loop, dir.path(), "/proc");
	FakeRing target(outside.path(), ::getpid(), 0, 7, 8);
	fs::create_symlink(target.path(), dir / fs::path(target.path()).filename().string());
	store.watch_begins();
	CHECK(store.rings().empty());
	fs::remove(dir / fs::path(target.path()).filename().string());
	fs::create_hard_link(target.path(), dir / fs::path(target.path()).filename().string());
	store.update(0);
	CHECK(store.rings().empty());
	REQUIRE(::mkfifo((dir / (std::to_string(::getpid()) + ".1.0000000000000007.ring")).c_str(), 0600) == 0);
	store.update(0);
	CHECK(store.rings().empty());
	if (::geteuid() == 0) {
		FakeRing foreign(dir.path(), ::getpid(), 5, 7, 8);
		REQUIRE(::chown(foreign.path().c_str(), 12345, 12345) == 0);
		store.update(0);
		CHECK(store.rings().empty());
		REQUIRE(::chown(foreign.path().c_str(), 0, 0) == 0);
		store.update(0);
		CHECK(store.rings().size() == 1);
	}
	store.watch_ends();
}

TEST_CASE("files of dead processes are removed, those of the living stay")
{
	TempDir dir;
	EventLoop loop;
	RingStore store(loop, dir.path(), "/proc");
	FakeRing living(dir.path(), ::getpid(), 0, 7, 8);
	pid_t dead = ::fork();
	if (dead == 0)
		::_exit(0);
	REQUIRE(::waitpid(dead, nullptr, 0) == dead);
	FakeRing orphan(dir.path(), dead, 0, 7, 8);
	put(dir / "notes.txt", "not a ring");
	store.remove_stale();
	CHECK(fs::exists(living.path()));
	CHECK_FALSE(fs::exists(orphan.path()));
	CHECK(fs::exists(dir / "notes.txt"));
	// A file that is older than the process of its number is another one's.
	const timespec old[2] = {{1'000'000, 0}, {1'000'000, 0}};
	REQUIRE(::utimensat(AT_FDCWD, living.path().c_str(), old, 0) == 0);
	store.remove_stale();
	CHECK_FALSE(fs::exists(living.path()));
}

TEST_CASE("a process's identity")
{
	const auto own = process_identity("/proc", ::getpid());
	REQUIRE(own);
	CHECK(own->file_uid == ::geteuid());
	CHECK(own->started_ticks > 0);
	CHECK_FALSE(process_identity("/proc", 0x7ffffff0));
	TempDir proc;
	put(proc / "5/status", "Name:\tx\nState:\tS (sleeping)\nUid:\t1\t2\t3\t4\n");
	put(proc / "5/stat", "5 (a) b (c) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0");
	const auto odd = process_identity(proc.path(), 5);
	REQUIRE(odd);
	CHECK(odd->file_uid == 4);
	CHECK(odd->started_ticks == 777);
	put(proc / "5/stat", "5 (a");
	CHECK_FALSE(process_identity(proc.path(), 5));
}
