// SPDX-License-Identifier: Apache-2.0
// The real executable, spoken to as a console does.
#include <fcntl.h>

#include "daemon_support.hpp"

using namespace stepccl::agent;
using namespace stepccl::agent::testing;

TEST_CASE("a conversation")
{
	RealDaemon daemon;
	Console console(daemon.socket());
	const json hello = console.result("hello", {{"protocol", 1}, {"client", "test"}});
	CHECK(hello["protocol"] == 1);
	CHECK(hello["pid"] == daemon.pid);
	CHECK(hello["rss_kib"] > 0);
	CHECK(hello["version"].is_string());
	CHECK(console.code("hello", {{"protocol", 2}, {"client", "test"}}) == "A104");
	CHECK(console.code("hello") == "A101");
	const json facts = console.result("facts.get");
	CHECK(facts["kernel"]["release"].is_string());
	CHECK(facts["gpus"].is_array());
	CHECK(console.code("cluster.get") == "A301");
	CHECK(console.code("routes.get") == "A301");
	CHECK(console.code("routes.probe") == "A301");
	const json cluster = {{"cluster_id", "c"}, {"epoch", 2}, {"self", 1}, {"members", {
		{{"node", 1}, {"name", "a"}, {"addresses", {{{"address", "127.0.0.1"}, {"netdev", nullptr}, {"rdma_device", nullptr}, {"gid_index", nullptr}}}}}}}};
	CHECK(console.result("cluster.set", cluster) == json{{"epoch", 2}});
	CHECK(console.result("cluster.get") == cluster);
	CHECK(console.result("routes.probe")["routes"].size() == 1);
	CHECK(console.result("settings.set", {{"pipeline_depth", 4}})["pipeline_depth"] == 4);
	CHECK(console.result("settings.get")["pipeline_depth"] == 4);
	CHECK(console.result("run.list") == json{{"runs", json::array()}});
	CHECK(console.code("run.stop", {{"run_id", "none"}}) == "A201");
	CHECK(console.code("run.events", {{"run_id", "none"}, {"from_seq", 0}}) == "A201");
	CHECK(console.code("nope") == "A102");
	CHECK(console.code("run.list", {{"extra", 1}}) == "A101");
	const json subscription = console.result("telemetry.subscribe", {{"interval_ms", 100}});
	while (console.frames.size() < 2)
		REQUIRE((console.result("run.list"), true));
	CHECK(console.frames[0].header.sequence == 1);
	CHECK(console.frames[1].header.sequence == 2);
	CHECK(console.frames[0].header.node == 1);
	CHECK(console.result("telemetry.unsubscribe", subscription) == json::object());
	CHECK(console.code("telemetry.unsubscribe", subscription) == "A101");
	CHECK(console.code("telemetry.subscribe", {{"interval_ms", 99}}) == "A101");
	CHECK(console.result("log.tail", {{"lines", 1000}})["lines"].size() > 3);
	CHECK(console.code("log.tail", {{"lines", 0}}) == "A101");
	CHECK(WEXITSTATUS(daemon.end(SIGTERM)) == 0);
	CHECK_FALSE(fs::exists(daemon.socket()));
}

TEST_CASE("what was set is there after a kill, and the stale socket is taken over")
{
	RealDaemon daemon;
	{
		Console console(daemon.socket());
		console.result("cluster.set", {{"cluster_id", "c"}, {"epoch", 9}, {"self", 0}, {"members", {{{"node", 0}, {"name", "a"}, {"addresses", json::array()}}}}});
		console.result("settings.set", {{"async_gd", true}});
	}
	daemon.end(SIGKILL);
	CHECK(fs::exists(daemon.socket()));
	const auto before = fs::last_write_time(daemon.socket());
	std::this_thread::sleep_for(std::chrono::milliseconds(20));
	const auto args = daemon.arguments();
	daemon.pid = daemon.spawn(args);
	REQUIRE(wait_until([&] { return fs::exists(daemon.socket()) && fs::last_write_time(daemon.socket()) > before; }));
	Console console(daemon.socket());
	CHECK(console.result("cluster.get")["epoch"] == 9);
	CHECK(console.result("settings.get")["async_gd"] == true);
}

TEST_CASE("a second daemon on the same socket refuses, and the first goes on")
{
	RealDaemon daemon;
	const pid_t second = daemon.spawn(daemon.arguments());
	int status = 0;
	REQUIRE(::waitpid(second, &status, 0) == second);
	CHECK(WEXITSTATUS(status) == 1);
	CHECK(take(daemon.dir / "log").find("another stepccld already serves") != std::string::npos);
	Console console(daemon.socket());
	CHECK(console.result("hello", {{"protocol", 1}, {"client", "t"}})["pid"] == daemon.pid);
}

TEST_CASE("without --foreground it returns when it serves, or with its error")
{
	TempDir dir;
	const std::string command = std::string(STEPCCLD_PATH) + " --run-dir " + dir.path() + "/run --state-dir " + dir.path() + "/state 2>" + dir.path() + "/err";
	REQUIRE(std::system(command.c_str()) == 0);
	pid_t pid = 0;
	{
		Console console(dir / "run/agent.sock");
		pid = console.result("hello", {{"protocol", 1}, {"client", "t"}})["pid"];
		CHECK(take(dir / "state/stepccld.log").find("client_attached") != std::string::npos);
	}
	CHECK(WEXITSTATUS(std::system(command.c_str())) == 1);
	CHECK(take(dir / "err").find("another stepccld") != std::string::npos);
	::kill(pid, SIGTERM);
	CHECK(wait_until([&] { return is_gone(pid); }));
}

TEST_CASE("one call from the command line: the result, or the error and where it went wrong")
{
	RealDaemon daemon;
	const auto call = [&](const std::string &arguments) {
		const std::string command = std::string(STEPCCLD_PATH) + " call " + arguments + " --socket " + daemon.socket() + " > " + (daemon.dir / "out") + " 2> " + (daemon.dir / "err");
		return WEXITSTATUS(std::system(command.c_str()));
	};
	CHECK(call("settings.set '{\"hbm_defrag\": true, \"sm_budget\": 8}'") == 0);
	CHECK(json::parse(take(daemon.dir / "out"))["sm_budget"] == 8);
	CHECK(call("gpu.processes") == 0);
	CHECK(json::parse(take(daemon.dir / "out")) == json{{"processes", json::array()}, {"omitted", 0}});
	CHECK(call("settings.set '{\"sm_budget\": 99}'") == 1);
	CHECK(take(daemon.dir / "err").find("A101") != std::string::npos);
	CHECK(call("settings.set '[1]'") == 2);
	CHECK(call("nothing.known") == 1);
}

TEST_CASE("the proxy joins a channel to the socket, and passes each end on")
{
	RealDaemon daemon;
	const auto through_proxy = [&](const std::string &input) {
		put(daemon.dir / "in", input);
		const std::string command = std::string(STEPCCLD_PATH) + " proxy --socket " + daemon.socket() + " < " + (daemon.dir / "in") + " > " + (daemon.dir / "out") + " 2> " + (daemon.dir / "err");
		return WEXITSTATUS(std::system(command.c_str()));
	};
	CHECK(through_proxy("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"run.list\"}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"facts.get\"}\n") == 0);
	const std::string out = take(daemon.dir / "out");
	CHECK(out.find("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"runs\":[]}}\n") != std::string::npos);
	CHECK(out.find("\"id\":2,\"result\"") != std::string::npos);
	CHECK(through_proxy(std::string(2'000'000, 'x')) == 0); // the daemon closes in the middle of it
	CHECK(take(daemon.dir / "out").find("A103") != std::string::npos);
	daemon.end(SIGTERM);
	CHECK(through_proxy("") == 1);
	CHECK(take(daemon.dir / "err").find("stepccld proxy: ") == 0);
}

TEST_CASE("--version, --help, and a wrong argument")
{
	TempDir dir;
	const std::string out = dir / "out";
	CHECK(std::system((std::string(STEPCCLD_PATH) + " --version --json > " + out).c_str()) == 0);
	const json version = json::parse(take(out));
	CHECK(version["name"] == "stepccld");
	CHECK(version["protocol"] == 1);
	CHECK(std::system((std::string(STEPCCLD_PATH) + " --help > " + out).c_str()) == 0);
	CHECK(WEXITSTATUS(std::system((std::string(STEPCCLD_PATH) + " --nonsense 2> " + out).c_str())) == 2);
	CHECK(take(out).find("unknown argument: --nonsense") != std::string::npos);
}

TEST_CASE("folders that can't be used are a clear error")
{
	TempDir dir;
	put(dir / "file", "");
	const std::string command = std::string(STEPCCLD_PATH) + " --foreground --state-dir " + dir.path() + "/s --run-dir " + dir.path() + "/file 2> " + dir.path() + "/err";
	CHECK(WEXITSTATUS(std::system(command.c_str())) == 1);
	CHECK(take(dir / "err").find("ENOTDIR") != std::string::npos);
}
