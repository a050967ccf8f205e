// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/clock.hpp"
#include "ring_support.hpp"
#include "stepccl/stepccl.h"
#include "telemetry/flight_reader.hpp"
#include "telemetry/recorders.hpp"

using namespace stepccl::agent;
using namespace stepccl::agent::testing;

namespace {

/// A rank's side of a recorder.
class FakeFlight : public RankFile {
public:
	FakeFlight(const std::string &directory, pid_t pid, std::uint32_t rank, std::uint64_t comm_id, std::uint32_t slots = 8)
		: RankFile(directory, {pid, rank, comm_id}, "flight", sizeof(stepccl_flight_header) + slots * sizeof(stepccl_flight_op))
	{
		fill(header(), STEPCCL_FLIGHT_MAGIC, STEPCCL_FLIGHT_VERSION, slots);
	}

	stepccl_flight_header &header() { return at<stepccl_flight_header>(0); }
	stepccl_flight_op &op(std::size_t i) { return at<stepccl_flight_op>(sizeof(stepccl_flight_header) + i * sizeof(stepccl_flight_op)); }
	/// Records one operation, by default one that runs.
	stepccl_flight_op &record(stepccl_flight_state state = STEPCCL_FLIGHT_STARTED)
	{
		stepccl_flight_op &slot = op(header().op_head & (header().op_slots - 1));
		slot = {};
		slot.sequence = ++header().op_head;
		slot.state = static_cast<std::uint8_t>(state);
		slot.queued_ns = std::max(monotonic_ns(), last_ns_ + 1);
		last_ns_ = slot.queued_ns;
		slot.redop = STEPCCL_FLIGHT_NO_REDOP;
		return slot;
	}

private:
	std::uint64_t last_ns_ = 0;
};

std::optional<FlightRecording> read(const FakeFlight &flight, std::size_t max_ops, std::string &problem)
{
	return read_flight(UniqueFd(::open(flight.path().c_str(), O_RDONLY | O_CLOEXEC)), flight.name(), max_ops, problem);
}

pid_t ended_process()
{
	const pid_t pid = ::fork();
	if (pid == 0)
		::_exit(0);
	REQUIRE(::waitpid(pid, nullptr, 0) == pid);
	return pid;
}

} // namespace

TEST_CASE("a recorder's operations, in full")
{
	TempDir dir;
	FakeFlight flight(dir.path(), ::getpid(), 2, 0xabc);
	std::memcpy(flight.header().job_name, "a\njob", 5);
	stepccl_flight_op &op = flight.record();
	op.started_ns = op.queued_ns + 5;
	op.ended_ns = op.queued_ns + 10;
	op.count = 3;
	op.bytes = 12;
	op.root = 1;
	op.state = STEPCCL_FLIGHT_FAILED;
	op.collective = STEPCCL_REDUCE;
	op.algorithm = STEPCCL_ALGORITHM_RING;
	op.transport = STEPCCL_TRANSPORT_TCP;
	op.datatype = STEPCCL_FLOAT32;
	op.redop = STEPCCL_MAX;
	op.error = STEPCCL_ERROR_TIMEOUT;
	op.waiting_count = 2;
	op.waiting[0] = 1;
	op.waiting[1] = 3;
	flight.record();
	Recorders recorders(SysTree(""), dir.path(), "/proc");
	const json answer = recorders.get(json::object());
	REQUIRE(answer["recorders"].size() == 1);
	const json &r = answer["recorders"][0];
	CHECK(r["format"] == "stepccl-flight-recorder");
	CHECK(r["version"] == 1);
	CHECK(r["job"] == "a?job");
	CHECK(r["communicator"] == "0000000000000abc");
	CHECK(r["rank"] == 2);
	CHECK(r["world_size"] == 4);
	CHECK(r["pid"] == ::getpid());
	CHECK(r["alive"] == true);
	CHECK(r["hostname"].get<std::string>() != "");
	const json &failed = r["operations"][0];
	const auto at = [&](const char *name) { return std::stoull(failed[name].get<std::string>()); };
	CHECK(at("started_at_unix_ns") == at("queued_at_unix_ns") + 5);
	CHECK(at("ended_at_unix_ns") == at("queued_at_unix_ns") + 10);
	CHECK(at("ended_at_unix_ns") <= std::stoull(r["taken_at_unix_ns"].get<std::string>()));
	json rest = failed;
	for (const char *name : {"queued_at_unix_ns", "started_at_unix_ns", "ended_at_unix_ns"})
		rest.erase(name);
	CHECK(rest == json{{"sequence", 1}, {"collective", "reduce"}, {"datatype", "float"}, {"redop", "max"}, {"count", 3}, {"bytes", 12},
			   {"root", 1}, {"peer", nullptr}, {"algorithm", "ring"}, {"transport", "tcp"}, {"state", "failed"}, {"error_code", "R203"}, {"waiting_for", {1, 3}}});
	const json &running = r["operations"][1];
	CHECK(running["state"] == "started");
	CHECK(running["redop"].is_null());
	CHECK(running["algorithm"].is_null());
	CHECK(running["transport"].is_null());
	CHECK(running["ended_at_unix_ns"].is_null());
	CHECK(running["error_code"].is_null());
	CHECK(running["waiting_for"] == json::array());
}

TEST_CASE("the last operations, across the end of the slots")
{
	TempDir dir;
	FakeFlight flight(dir.path(), ::getpid(), 0, 7, 8);
	for (int i = 0; i < 11; i++)
		flight.record(STEPCCL_FLIGHT_COMPLETED);
	std::string problem;
	auto all = read(flight, 100, problem);
	REQUIRE(all);
	REQUIRE(all->ops.size() == 8);
	CHECK(all->ops.front().sequence == 4);
	CHECK(all->ops.back().sequence == 11);
	CHECK(all->omitted == 0);
	auto two = read(flight, 2, problem);
	CHECK(two->ops.front().sequence == 10);
	CHECK(two->omitted == 6);
	// What has not ended comes before what has, however old it is: the rank may hang in it.
	flight.op(4).state = STEPCCL_FLIGHT_STARTED;
	two = read(flight, 2, problem);
	CHECK(two->ops.front().sequence == 5);
	CHECK(two->ops.back().sequence == 11);
	CHECK(two->omitted == 6);
	for (std::size_t i = 0; i < 8; i++)
		flight.op(i).state = STEPCCL_FLIGHT_QUEUED;
	CHECK(read(flight, 2, problem)->ops.back().sequence == 5);
	// A rank that was stopped in the middle of a change: the record is taken as it is.
	flight.op(2).edits = 1;
	CHECK(read(flight, 100, problem)->ops.size() == 8);
}

TEST_CASE("a send and a receive have a peer and no root")
{
	TempDir dir;
	FakeFlight flight(dir.path(), ::getpid(), 0, 7);
	for (const auto kind : {STEPCCL_FLIGHT_SEND, STEPCCL_FLIGHT_RECV}) {
		stepccl_flight_op &op = flight.record(STEPCCL_FLIGHT_QUEUED);
		op.collective = STEPCCL_SEND_RECV;
		op.message = static_cast<std::uint8_t>(kind);
		op.sequence = 0;
		op.root = 3;
	}
	Recorders recorders(SysTree(""), dir.path(), "/proc");
	const json ops = recorders.get(json::object())["recorders"][0]["operations"];
	REQUIRE(ops.size() == 2);
	CHECK(ops[0]["collective"] == "send");
	CHECK(ops[1]["collective"] == "recv");
	for (const json &op : ops) {
		CHECK(op["root"].is_null());
		CHECK(op["peer"] == 3);
		CHECK(op["state"] == "queued");
		CHECK(op["sequence"] == 0);
	}
	flight.op(0).message = 3;
	CHECK(recorders.get(json::object())["recorders"][0]["operations"].size() == 1);
}

TEST_CASE("hostile recorders are refused, impossible records left out")
{
	TempDir dir;
	std::string problem;
	FakeFlight flight(dir.path(), ::getpid(), 0, 7, 8);
	flight.record();
	const auto problem_with = [&](auto &field, auto value) {
		const auto before = field;
		field = value;
		CHECK_FALSE(read(flight, 100, problem));
		field = before;
		return problem;
	};
	auto &h = flight.header();
	CHECK(problem_with(h.magic, 1u) == "wrong magic or version");
	CHECK(problem_with(h.version, 2u) == "wrong magic or version");
	CHECK(problem_with(h.op_slots, 7u) == "wrong sizes in its header");
	CHECK(problem_with(h.op_slots, 1u << 30) == "wrong sizes in its header");
	CHECK(problem_with(h.header_bytes, 0xfffffff8u) == "wrong sizes in its header");
	CHECK(problem_with(h.rank, 1u) == "its header and its name differ");
	h.op_slots = 16;
	h.op_head = 16;
	CHECK_FALSE(read(flight, 100, problem));
	CHECK(problem == "shorter than its header says");
	h.op_slots = 8;
	h.op_head = 1;
	flight.op(0).datatype = 200;
	CHECK(read(flight, 100, problem)->ops.empty());
	flight.op(0).datatype = 0;
	flight.op(0).waiting_count = 0xffffffff;
	Recorders recorders(SysTree(""), dir.path(), "/proc");
	CHECK(recorders.get(json::object())["recorders"][0]["operations"][0]["waiting_for"].size() == STEPCCL_FLIGHT_WAITING);
	// One bad file hides no other; links and second names are no files of a rank.
	FakeFlight bad(dir.path(), ::getpid(), 1, 7, 8);
	bad.header().magic = 0;
	fs::create_symlink(flight.path(), dir / (std::to_string(::getpid()) + ".2.0000000000000007.flight"));
	CHECK(recorders.get(json::object())["recorders"].size() == 1);
	fs::create_hard_link(flight.path(), dir / (std::to_string(::getpid()) + ".3.0000000000000007.flight"));
	CHECK(recorders.get(json::object())["recorders"].empty());
}

TEST_CASE("recorders are chosen by communicator and rank, and an answer fits one message")
{
	TempDir dir;
	std::vector<std::unique_ptr<FakeFlight>> flights;
	for (std::uint32_t rank = 0; rank < 4; rank++) {
		flights.push_back(std::make_unique<FakeFlight>(dir.path(), ::getpid(), rank, 7 + rank % 2, 1024));
		for (int i = 0; i < 1024; i++) {
			stepccl_flight_op &op = flights.back()->record(STEPCCL_FLIGHT_COMPLETED);
			op.started_ns = op.ended_ns = op.queued_ns;
			op.count = op.bytes = ~0ull;
			op.root = ~0u;
			op.algorithm = STEPCCL_ALGORITHM_RECURSIVE_DOUBLING;
			op.waiting_count = STEPCCL_FLIGHT_WAITING;
			std::fill(std::begin(op.waiting), std::end(op.waiting), 4095u);
		}
	}
	Recorders recorders(SysTree(""), dir.path(), "/proc");
	const json all = recorders.get(json::object());
	REQUIRE(all["recorders"].size() == 4);
	CHECK(all.dump().size() < 1'000'000);
	CHECK(all["recorders"][0]["operations"].size() == 448);
	CHECK(all["recorders"][0]["omitted"] == 576);
	CHECK(all["recorders"][0]["operations"].back()["sequence"] == 1024);
	const json one = recorders.get({{"communicator", "0000000000000008"}, {"rank", 3}});
	REQUIRE(one["recorders"].size() == 1);
	CHECK(one["recorders"][0]["operations"].size() == 1024);
	CHECK(recorders.get({{"communicator", "0000000000000007"}, {"operations", 1}})["recorders"][1]["operations"].size() == 1);
	for (const json &bad : {json{{"communicator", "8"}}, json{{"communicator", "000000000000000g"}}, json{{"rank", -1}}, json{{"operations", 0}},
				json{{"operations", 1025}}, json{{"else", 1}}})
		CHECK(code_of([&] { (void)recorders.get(bad); }) == "A101");
	CHECK(code_of([&] { (void)Recorders(SysTree(""), dir / "missing", "/proc").get(json::object()); }) == "A401");
}

TEST_CASE("what an ended process left is told apart, and removed in time")
{
	TempDir dir;
	FakeFlight living(dir.path(), ::getpid(), 0, 7);
	const FakeFlight ended(dir.path(), ended_process(), 1, 7);
	put(dir / "notes.flight", "not a recorder");
	Recorders recorders(SysTree(""), dir.path(), "/proc");
	const json answer = recorders.get({{"rank", 1}});
	REQUIRE(answer["recorders"].size() == 1);
	CHECK(answer["recorders"][0]["alive"] == false);
	recorders.remove_old(1'000);
	recorders.remove_old(1'000 + Recorders::kKeepNs - 1);
	CHECK(fs::exists(ended.path()));
	recorders.remove_old(1'000 + Recorders::kKeepNs);
	CHECK_FALSE(fs::exists(ended.path()));
	CHECK(fs::exists(living.path()));
	CHECK(fs::exists(dir / "notes.flight"));
	const pid_t pid = ended_process();
	for (std::uint32_t rank = 0; rank < Recorders::kMaxLeft + 3; rank++)
		put(dir / (std::to_string(pid) + "." + std::to_string(rank) + ".0000000000000009.flight"), "");
	recorders.remove_old(5'000);
	CHECK(std::distance(fs::directory_iterator(dir.path()), {}) == Recorders::kMaxLeft + 2);
}
