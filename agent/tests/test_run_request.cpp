// SPDX-License-Identifier: Apache-2.0
#include "runs/event_log.hpp"
#include "runs/run_request.hpp"
#include "runs/worker_output.hpp"
#include "run_support.hpp"

using namespace stepccl::agent;
using namespace stepccl::agent::testing;

TEST_CASE("a run's request becomes a worker's command line")
{
	const RunRequest request = parse_run_start(run_params({0, 2}, 3));
	CHECK(request.has_rank_zero());
	std::string line;
	for (const std::string &argument : worker_arguments(request, 0))
		line += argument + " ";
	CHECK(line == "--json --die-with-parent --collective all_reduce --rank 0 --world-size 3 --rendezvous-address 10.77.0.1 "
		      "--rendezvous-listen --transport tcp --algorithm auto -b 8 -e 1024 -f 2 -n 5 -w 1 -c 1 -d float32 -o sum --timeout-ms 5000 ");
	json elsewhere = run_params({1}, 3);
	elsewhere["unique_id"] = "AB12";
	elsewhere["rendezvous"]["address"] = "fd00::1";
	const RunRequest second = parse_run_start(elsewhere);
	CHECK(second.unique_id == "ab12");
	const auto arguments = worker_arguments(second, 1);
	CHECK(std::count(arguments.begin(), arguments.end(), "--unique-id-stdin") == 1);
	CHECK(std::count(arguments.begin(), arguments.end(), "[fd00::1]") == 1);
	for (const std::string &argument : arguments)
		CHECK(argument.find("ab12") == std::string::npos); // the secret is never in argv
}

TEST_CASE("each collective is passed on by its name, and a root to those that are given one")
{
	for (const char *name : {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "scatter", "gather", "all_to_all",
				 "send_recv", "barrier"}) {
		json params = run_params({0}, 3);
		params["collective"] = name;
		const auto arguments = worker_arguments(parse_run_start(params), 0);
		const auto at = std::find(arguments.begin(), arguments.end(), "--collective");
		REQUIRE(at != arguments.end());
		CHECK(at[1] == name);
		CHECK(std::count(arguments.begin(), arguments.end(), "-r") == 0);
	}
	json params = run_params({0}, 3);
	params["collective"] = "broadcast";
	params["root"] = 2;
	const auto arguments = worker_arguments(parse_run_start(params), 0);
	const auto at = std::find(arguments.begin(), arguments.end(), "-r");
	REQUIRE(at != arguments.end());
	CHECK(at[1] == "2");
}

TEST_CASE("a worker's environment is the daemon's choice")
{
	json params = run_params({0}, 1);
	params["env"] = {{"STEPCCL_ALGO", "ring"}, {"NCCL_IB_HCA", "mlx5_0:1"}};
	const auto env = worker_environment(parse_run_start(params), "/rings", "/control");
	const auto has = [&](const std::string &entry) { return std::count(env.begin(), env.end(), entry) == 1; };
	CHECK(has("STEPCCL_ALGO=ring"));
	CHECK(has("STEPCCL_TELEMETRY_DIR=/rings"));
	CHECK(has("STEPCCL_CONTROL_FILE=/control"));
	CHECK(has("STEPCCL_JOB_NAME=r1"));
	CHECK(env.size() == 7);
	// The node's settings are there for a run that asks for nothing else.
	const auto with = worker_environment(parse_run_start(params), "/rings", "/control", {{"STEPCCL_ALGO", "tree"}, {"STEPCCL_COMPRESSION", "bf16"}});
	CHECK(std::count(with.begin(), with.end(), "STEPCCL_ALGO=ring") == 1);
	CHECK(std::count(with.begin(), with.end(), "STEPCCL_COMPRESSION=bf16") == 1);
	CHECK(with.size() == 8);
}

TEST_CASE("a wrong request is refused by its parameter")
{
	const auto refused = [](const std::string &member, const json &value) {
		json params = run_params({0}, 2);
		params[member] = value;
		return message_of([&] { (void)parse_run_start(params); });
	};
	const auto names = [&](const std::string &member, const json &value, const std::string &named) {
		return refused(member, value).find("\"" + named) != std::string::npos;
	};
	CHECK(names("run_id", "a/b", "run_id"));
	CHECK(names("run_id", std::string(65, 'a'), "run_id"));
	CHECK(names("run_id", "", "run_id"));
	CHECK(names("collective", "all_scatter", "collective"));
	CHECK(names("root", 2, "root"));
	CHECK(names("root", -1, "root"));
	CHECK(names("transport", "carrier_pigeon", "transport"));
	CHECK(names("world_size", 0, "world_size"));
	CHECK(names("ranks", json::array(), "ranks"));
	CHECK(names("ranks", json::array({2}), "ranks[0]"));
	CHECK(names("ranks", json::array({0, 0}), "ranks[1]"));
	CHECK(names("ranks", json::array({-1}), "ranks[0]"));
	CHECK(names("ranks", json::array({0.5}), "ranks[0]"));
	CHECK(names("ranks", json::array({1}), "unique_id"));
	CHECK(names("unique_id", "ab", "unique_id"));
	CHECK(names("rendezvous", json{{"address", "node1"}}, "rendezvous.address"));
	CHECK(names("rendezvous", json{{"address", "10.0.0.1"}, {"port", 1}}, "rendezvous.port"));
	CHECK(names("datatype", "float32; rm", "datatype"));
	CHECK(names("min_bytes", 0, "min_bytes"));
	CHECK(names("min_bytes", 2048, "max_bytes"));
	CHECK(names("step_factor", 1, "step_factor"));
	CHECK(names("iterations", 0, "iterations"));
	CHECK(names("check", 1, "check"));
	CHECK(names("timeout_ms", 1, "timeout_ms"));
	CHECK(names("env", json{{"LD_PRELOAD", "/x"}}, "env.LD_PRELOAD"));
	CHECK(names("env", json{{"STEPCCL_TELEMETRY_DIR", "/x"}}, "env.STEPCCL_TELEMETRY_DIR"));
	CHECK(names("env", json{{"STEPCCL_CONTROL_FILE", "/x"}}, "env.STEPCCL_CONTROL_FILE"));
	CHECK(names("env", json{{"NCCL_NET_PLUGIN", "/x"}}, "env.NCCL_NET_PLUGIN"));
	CHECK(names("env", json{{"STEPCCL_X=Y", "1"}}, "env.STEPCCL_X=Y"));
	CHECK(names("env", json{{"STEPCCL_X", 1}}, "env.STEPCCL_X"));
	CHECK(names("env", json{{"STEPCCL_X", "a\nb"}}, "env.STEPCCL_X"));
	CHECK(names("surprise", 1, "surprise"));
	json missing = run_params({0}, 2);
	missing.erase("warmup");
	CHECK(message_of([&] { (void)parse_run_start(missing); }) == "The parameter \"warmup\" is missing.");
}

TEST_CASE("a worker's lines: events, garbage, and what only the daemon may say")
{
	CHECK(read_stdout_line(R"({"event":"row","bytes":8})", false, "").event == json{{"event", "row"}, {"bytes", 8}});
	for (const char *bad : {"", "hello", "[]", "{}", R"({"event":5})", R"({"event":"run_end","state":"succeeded"})", R"({"event":"exited"})",
				R"({"event":"spawned"})", R"({"event":"stderr"})", "{\"event\":\"row\",\"x\":\"\xff\"}"}) {
		const WorkerLine line = read_stdout_line(bad, false, "");
		CHECK(line.is_garbage);
		CHECK(line.event["event"] == "invalid_output");
	}
	CHECK(read_stdout_line(R"({"event":"row"})", true, "").is_garbage);
	CHECK(read_stdout_line(R"({"event":"error","code":"R203"})", false, "").is_error);
	CHECK(read_stdout_line(R"({"event":"row","deep":)" + std::string(40, '[') + std::string(40, ']') + "}", false, "").is_garbage);
}

TEST_CASE("the unique id is taken out of everything")
{
	const std::string id(256, 'a');
	const WorkerLine first = read_stdout_line(R"({"event":"unique_id","id":")" + id + R"(","copy":"x)" + id + R"("})", false, "");
	CHECK(first.unique_id == id);
	CHECK(first.event == json{{"event", "unique_id"}, {"copy", "x[redacted]"}});
	CHECK(read_stdout_line(R"({"event":"row","a":")" + id + R"("})", false, id).event["a"] == "[redacted]");
	CHECK(read_stdout_line(R"({"event":"row","a":"\u0061)" + id.substr(1) + R"("})", false, id).event["a"] == "[redacted]"); // spelt with an escape
	CHECK(read_stdout_line("garbage " + id, false, id).event["line"] == "garbage [redacted]");
	CHECK(read_stderr_line("secret=" + id, false, id)["line"] == "secret=[redacted]");
	for (const char *bad : {R"({"event":"unique_id"})", R"({"event":"unique_id","id":5})", R"({"event":"unique_id","id":"not hex"})", R"({"event":"unique_id","id":"abc"})"}) {
		CHECK_FALSE(read_stdout_line(bad, false, "").unique_id);
		CHECK(read_stdout_line(bad, false, "").is_garbage);
	}
}

TEST_CASE("the event log is bounded in number and in bytes")
{
	EventLog log;
	CHECK(log.next_seq() == 1);
	for (int i = 1; i <= 5000; i++)
		CHECK(log.add(std::to_string(i)) == static_cast<std::uint64_t>(i));
	CHECK(log.first_seq() == 905);
	CHECK(log.next_seq() == 5001);
	CHECK(log.text(905) == "905");
	for (int i = 0; i < 100; i++)
		log.add(std::string(20'000, 'x'));
	CHECK(log.bytes() <= EventLog::kMaxBytes);
	log.add(std::string(2 * EventLog::kMaxBytes, 'y'));
	CHECK(log.next_seq() - log.first_seq() == 1); // never empty: the newest event is always there
}
