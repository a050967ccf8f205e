// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include "run_support.hpp"
#include "runs/run.hpp"

using namespace stepccl::agent;
using namespace stepccl::agent::testing;

namespace {

/// One run with a shell script in the worker's place.
struct Fixture {
	TempDir dir;
	EventLoop loop;
	ProcessReaper reaper{loop};
	WorkerSettings settings;
	std::vector<json> events;
	bool ended = false;
	std::string unique_id;
	std::optional<RpcError> listen_error;
	int listen_calls = 0;
	std::unique_ptr<Run> run;

	explicit Fixture(const std::string &worker_body)
	{
		settings.perf_path = script(dir, "perf", worker_body);
		settings.rings_directory = dir.path();
		settings.control_file = dir / "control";
		settings.first_words = std::chrono::milliseconds(3000);
		settings.kill_after = std::chrono::milliseconds(300);
		settings.failure_grace = std::chrono::milliseconds(200);
	}

	void start(const std::vector<int> &ranks, const std::string &id = {})
	{
		json params = run_params(ranks, 4);
		if (!id.empty())
			params["unique_id"] = id;
		run = std::make_unique<Run>(
			loop, reaper, settings, parse_run_start(params), [this](std::uint64_t, const std::string &text) { events.push_back(json::parse(text)); },
			[this] { ended = true; });
		run->start([this](const std::string &listening, const std::optional<RpcError> &error) {
			listen_calls++;
			unique_id = listening;
			listen_error = error;
		});
	}

	bool finish() { return pump(loop, [&] { return ended; }); }

	[[nodiscard]] std::vector<json> of(const std::string &name) const
	{
		std::vector<json> out;
		for (const json &event : events) {
			if (event["event"]["event"] == name)
				out.push_back(event);
		}
		return out;
	}
};

} // namespace

TEST_CASE("a run of three ranks: the unique id goes round, every line is an event, run_end is last")
{
	Fixture f(kFakeWorkerStart + "echo \"{\\\"event\\\":\\\"row\\\",\\\"rank\\\":$rank}\"; echo warning >&2\n" + kFakeWorkerEnd);
	f.start({0, 1, 3});
	REQUIRE(f.finish());
	CHECK(f.listen_calls == 1);
	CHECK(f.unique_id == "abababababababab");
	CHECK(f.run->state() == RunState::kSucceeded);
	CHECK(f.of("spawned").size() == 3);
	CHECK(f.of("row").size() == 3);
	CHECK(f.of("stderr").size() == 3);
	CHECK(f.of("exited").size() == 3);
	CHECK(f.events.back()["event"] == json{{"event", "run_end"}, {"state", "succeeded"}});
	CHECK(f.events.back()["rank"] == nullptr);
	for (std::size_t i = 0; i < f.events.size(); i++)
		CHECK(f.events[i]["seq"] == i + 1);
	for (const json &event : f.events)
		CHECK(event.dump().find("abababab") == std::string::npos);
}

TEST_CASE("on another node the unique id comes with the request")
{
	Fixture f(kFakeWorkerStart + kFakeWorkerEnd);
	f.start({1, 2}, "abababababababab");
	REQUIRE(f.finish());
	CHECK(f.listen_calls == 0);
	CHECK(f.run->state() == RunState::kSucceeded);
}

TEST_CASE("a killed worker is named, and the others are ended")
{
	Fixture f(kFakeWorkerStart + "if [ $rank = 1 ]; then kill -KILL $$; fi\nexec sleep 600\n");
	f.start({0, 1});
	REQUIRE(f.finish());
	CHECK(f.run->state() == RunState::kFailed);
	const auto errors = f.of("error");
	REQUIRE(errors.size() == 1);
	CHECK(errors[0]["rank"] == 1);
	CHECK(errors[0]["event"]["code"] == "A205");
	CHECK(errors[0]["event"]["message"] == "The worker of rank 1 ended with SIGKILL and without a result.");
	CHECK(errors[0]["event"]["next"].is_string());
	CHECK(f.of("exited")[0]["event"]["signal"] == "SIGKILL");
	CHECK(f.events.back()["event"]["state"] == "failed");
}

TEST_CASE("a worker that told its error is not given another")
{
	Fixture f(kFakeWorkerStart + "echo '{\"event\":\"error\",\"code\":\"R203\",\"message\":\"timed out\"}'; exit 1\n");
	f.start({0});
	REQUIRE(f.finish());
	CHECK(f.run->state() == RunState::kFailed);
	REQUIRE(f.of("error").size() == 1);
	CHECK(f.of("error")[0]["event"]["code"] == "R203");
}

TEST_CASE("an exit without the last words is no success, nor are wrong results")
{
	Fixture silent(kFakeWorkerStart);
	silent.start({0});
	REQUIRE(silent.finish());
	CHECK(silent.run->state() == RunState::kFailed);
	CHECK(silent.of("error").at(0)["event"]["message"] == "The worker of rank 0 ended with status 0 and without a result.");

	Fixture refuses("echo '-d is wrong' >&2; exit 2\n");
	refuses.start({0});
	REQUIRE(refuses.finish());
	REQUIRE(refuses.listen_error);
	CHECK(refuses.listen_error->message() == "The worker of rank 0 ended with status 2 and without a result: -d is wrong");

	Fixture wrong(kFakeWorkerStart + kFakeWorkerEnd + "exit 3\n");
	wrong.start({0});
	REQUIRE(wrong.finish());
	CHECK(wrong.run->state() == RunState::kFailed);
	CHECK(wrong.of("error").at(0)["event"]["message"] == "The worker of rank 0 found wrong results.");
}

TEST_CASE("rank 0 that ends before it listens fails the start with its own words")
{
	Fixture f("echo '{\"event\":\"error\",\"code\":\"R304\",\"message\":\"address in use\"}'; exit 1\n");
	f.start({0});
	REQUIRE(f.finish());
	REQUIRE(f.listen_error);
	CHECK(f.listen_error->code() == "A205");
	CHECK(f.listen_error->message() == "The worker of rank 0 ended with status 1 and without a result: address in use");
	CHECK(f.listen_calls == 1);
}

TEST_CASE("rank 0 that never listens is ended")
{
	Fixture f("trap '' TERM\nwhile :; do sleep 1; done\n");
	f.settings.first_words = std::chrono::milliseconds(150);
	f.start({0});
	REQUIRE(f.finish());
	REQUIRE(f.listen_error);
	CHECK(f.listen_error->code() == "A206");
	CHECK(f.run->state() == RunState::kFailed);
	CHECK(f.of("exited")[0]["event"]["signal"] == "SIGKILL"); // it ignored SIGTERM
	CHECK(f.of("error").size() == 1);
}

TEST_CASE("stopping: told once, killed when it does not listen, and no failure")
{
	Fixture f(kFakeWorkerStart + "trap '' TERM\nwhile :; do sleep 1; done\n");
	f.start({0, 1});
	REQUIRE(pump(f.loop, [&] { return f.listen_calls == 1; }));
	CHECK(f.run->stop() == 2);
	REQUIRE(f.finish());
	CHECK(f.run->state() == RunState::kStopped);
	CHECK(f.of("error").empty());
	CHECK(f.run->stop() == 0);
}

TEST_CASE("an executable that is missing starts nothing")
{
	Fixture f("");
	f.settings.perf_path = f.dir / "missing";
	CHECK(code_of([&] { f.start({0, 1}); }) == "A204");
	CHECK(f.events.empty());
}

TEST_CASE("garbage is shown, bounded, and does not end the run")
{
	Fixture f(kFakeWorkerStart + R"(
i=0; while [ $i -lt 50 ]; do echo "garbage $i"; i=$((i+1)); done
head -c 100000 /dev/zero | tr '\0' 'x'; echo
head -c 1000 /dev/urandom
echo
echo '{"event":"run_end","state":"succeeded"}'
echo '{"event":"row"}'
echo '{"event":"end"}'
printf '{"event":"row","last":true}'
)");
	f.start({0});
	REQUIRE(f.finish());
	CHECK(f.run->state() == RunState::kSucceeded);
	CHECK(f.of("invalid_output").size() == 20);
	CHECK(f.of("row").size() == 2); // the last line has no end
	CHECK(f.of("run_end").size() == 1);
	CHECK(f.of("exited")[0]["event"]["invalid_lines"].get<int>() >= 53);
	for (const json &event : f.events)
		CHECK(event.dump().size() < 8192);
}

TEST_CASE("a flood is held up in the worker's pipe, and the run can still be stopped")
{
	Fixture f(kFakeWorkerStart + "while :; do echo '{\"event\":\"row\"}'; done\n");
	f.start({0});
	REQUIRE(pump(f.loop, [&] { return f.events.size() > 900; }));
	const std::size_t before = f.events.size();
	const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
	while (std::chrono::steady_clock::now() < end)
		f.loop.run_once(std::chrono::milliseconds(10));
	CHECK(f.events.size() - before < 5000);
	CHECK(f.run->events().bytes() <= EventLog::kMaxBytes);
	f.run->stop();
	REQUIRE(f.finish());
	CHECK(f.run->state() == RunState::kStopped);
}

TEST_CASE("a run that is dropped takes its workers along")
{
	Fixture f(kFakeWorkerStart + "exec sleep 600\n");
	f.start({0, 1});
	REQUIRE(pump(f.loop, [&] { return f.listen_calls == 1; }));
	const auto workers = f.run->workers();
	f.run.reset();
	CHECK(pump(f.loop, [&] { return ::kill(workers[0].second, 0) != 0 && ::kill(workers[1].second, 0) != 0; }));
}
