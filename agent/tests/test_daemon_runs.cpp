// SPDX-License-Identifier: Apache-2.0
// Runs through the real daemon, with a script in stepccl-perf's place.
#include "daemon_support.hpp"

using namespace stepccl::agent;
using namespace stepccl::agent::testing;

namespace {

json named(const std::string &run_id, const std::vector<int> &ranks = {0}, int world_size = 64)
{
	json params = run_params(ranks, world_size);
	params["run_id"] = run_id;
	return params;
}

} // namespace

TEST_CASE("a run: its answer, its events, the resume of a subscription, its place in the list")
{
	RealDaemon daemon(kFakeWorkerStart + "echo '{\"event\":\"row\",\"bytes\":8}'\n" + kFakeWorkerEnd);
	Console console(daemon.socket());
	const json answer = console.result("run.start", named("first", {0, 1}));
	CHECK(answer["unique_id"] == "abababababababab");
	CHECK(answer["workers"].size() == 2);
	CHECK(console.code("run.start", named("first")) == "A202");
	console.result("run.subscribe", {{"run_id", "first"}, {"from_seq", 0}});
	const auto events = console.events_until_end();
	CHECK(events.front()["event"]["event"] == "spawned");
	CHECK(events.back()["event"]["state"] == "succeeded");
	for (std::size_t i = 0; i < events.size(); i++)
		CHECK(events[i]["seq"] == i + 1);
	// Another console comes later and takes up from the middle.
	Console later(daemon.socket());
	CHECK(later.result("run.subscribe", {{"run_id", "first"}, {"from_seq", 4}})["next_seq"] == events.size() + 1);
	const auto rest = later.events_until_end();
	CHECK(rest.size() == events.size() - 3);
	CHECK(rest.front() == events[3]);
	const json page = later.result("run.events", {{"run_id", "first"}, {"from_seq", 3}});
	CHECK(page["events"].size() == events.size() - 2);
	CHECK(page["events"][0] == events[2]);
	CHECK(page["next_seq"] == events.size() + 1);
	const json runs = later.result("run.list")["runs"];
	REQUIRE(runs.size() == 1);
	CHECK(runs[0]["state"] == "succeeded");
	CHECK(runs[0]["ended_at_ms"].is_number());
	CHECK(later.result("run.stop", {{"run_id", "first"}}) == json{{"stopped", 0}});
	const json log = later.result("log.tail", {{"lines", 1000}});
	for (const json &line : log["lines"])
		CHECK(line.get<std::string>().find("abababab") == std::string::npos);
}

TEST_CASE("a lost console does not stop a run, run.stop does")
{
	RealDaemon daemon(kFakeWorkerStart + "exec sleep 600\n");
	pid_t worker = 0;
	{
		Console console(daemon.socket());
		worker = console.result("run.start", named("long"))["workers"][0]["pid"];
	}
	Console console(daemon.socket());
	CHECK(console.result("run.list")["runs"][0]["state"] == "running");
	CHECK_FALSE(is_gone(worker));
	CHECK(console.result("run.stop", {{"run_id", "long"}}) == json{{"stopped", 1}});
	console.result("run.subscribe", {{"run_id", "long"}, {"from_seq", 0}});
	CHECK(console.events_until_end().back()["event"]["state"] == "stopped");
	CHECK(is_gone(worker));
}

TEST_CASE("a worker that is killed from outside ends the run with its rank named")
{
	RealDaemon daemon(kFakeWorkerStart + "exec sleep 600\n");
	Console console(daemon.socket());
	const json answer = console.result("run.start", named("killed", {0, 1}));
	console.result("run.subscribe", {{"run_id", "killed"}, {"from_seq", 0}});
	const auto began = std::chrono::steady_clock::now();
	::kill(answer["workers"][1]["pid"], SIGKILL);
	const auto events = console.events_until_end();
	CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(6));
	CHECK(events.back()["event"]["state"] == "failed");
	const auto error = std::find_if(events.begin(), events.end(), [](const json &e) { return e["event"]["event"] == "error"; });
	REQUIRE(error != events.end());
	CHECK((*error)["rank"] == 1);
	CHECK((*error)["event"]["code"] == "A205");
	CHECK(is_gone(answer["workers"][0]["pid"]));
}

TEST_CASE("no worker outlives the daemon, whichever way it ends")
{
	for (const int signal : {SIGTERM, SIGKILL}) {
		RealDaemon daemon(kFakeWorkerStart + "trap '' TERM\nwhile :; do sleep 1; done\n");
		Console console(daemon.socket());
		const json workers = console.result("run.start", named("run", {0, 1}))["workers"];
		console.result("run.subscribe", {{"run_id", "run"}, {"from_seq", 0}});
		const int status = daemon.end(signal);
		for (const json &worker : workers)
			CHECK(wait_until([&] { return is_gone(worker["pid"]); }));
		if (signal == SIGTERM) {
			CHECK(WEXITSTATUS(status) == 0);
			CHECK(console.events_until_end().back()["event"]["state"] == "stopped"); // told before the end
		}
	}
}

TEST_CASE("limits: eight runs, 64 ranks; a missing worker starts nothing")
{
	RealDaemon daemon(kFakeWorkerStart + "exec sleep 600\n");
	Console console(daemon.socket());
	std::vector<int> many(57);
	for (int i = 0; i < 57; i++)
		many[static_cast<std::size_t>(i)] = i;
	for (int i = 0; i < 7; i++)
		console.result("run.start", named("r" + std::to_string(i)));
	CHECK(console.result("run.list")["runs"].size() == 7);
	json wide = named("wide", many);
	many.push_back(57);
	CHECK(console.code("run.start", named("wider", many)) == "A203");
	console.result("run.start", wide);
	CHECK(console.code("run.start", named("ninth")) == "A203");
	for (int i = 0; i < 7; i++)
		console.result("run.stop", {{"run_id", "r" + std::to_string(i)}});
	console.result("run.stop", {{"run_id", "wide"}});
	CHECK(wait_until([&] {
		const json runs = console.result("run.list")["runs"];
		return std::all_of(runs.begin(), runs.end(), [](const json &run) { return run["state"] == "stopped"; });
	}));
	fs::remove(daemon.worker);
	CHECK(console.code("run.start", named("gone")) == "A204");
	CHECK(console.result("run.list")["runs"].size() == 8);
}

TEST_CASE("the last 32 runs are kept")
{
	RealDaemon daemon;
	Console console(daemon.socket());
	for (int i = 0; i < 36; i++) {
		console.result("run.start", named("r" + std::to_string(i)));
		REQUIRE(wait_until([&] {
			const json runs = console.result("run.list")["runs"];
			return runs.back()["state"] == "succeeded";
		}));
	}
	const json runs = console.result("run.list")["runs"];
	CHECK(runs.size() == 32);
	CHECK(runs.back()["run_id"] == "r35");
	CHECK(console.code("run.events", {{"run_id", "r0"}, {"from_seq", 0}}) == "A201");
}

TEST_CASE("several consoles at once see the same run")
{
	RealDaemon daemon(kFakeWorkerStart + "read -r never < /dev/null; sleep 0.3; echo '{\"event\":\"row\"}'\n" + kFakeWorkerEnd);
	Console first(daemon.socket()), second(daemon.socket());
	first.result("run.start", named("shared"));
	first.result("run.subscribe", {{"run_id", "shared"}, {"from_seq", 0}});
	second.result("run.subscribe", {{"run_id", "shared"}, {"from_seq", 0}});
	second.result("run.subscribe", {{"run_id", "shared"}, {"from_seq", 1000}}); // twice: still each event once
	CHECK(first.events_until_end() == second.events_until_end());
}
