// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fd.hpp"
#include "rpc/dispatcher.hpp"
#include "rpc/params.hpp"
#include "rpc/server.hpp"
#include "support.hpp"

using namespace stepccl::agent;
using namespace stepccl::agent::testing;

namespace {

/// A server with a few methods, and raw connections to it, all in one thread.
struct Bench {
	TempDir dir;
	EventLoop loop;
	Dispatcher dispatcher;
	std::vector<Reply> held;
	Server server{loop, dir / "agent.sock",
		      [this](const std::shared_ptr<Client> &client, std::string_view line) { dispatcher.handle_line(client, line); }};

	Bench()
	{
		dispatcher.add("echo", [](Call &call) { call.reply.result(call.params); });
		dispatcher.add("hold", [this](Call &call) { held.push_back(call.reply); });
		dispatcher.add("forget", [](Call &) {});
		dispatcher.add("throw", [](Call &) { throw std::runtime_error("boom"); });
		dispatcher.add("big", [](Call &call) { call.reply.result(std::string(static_cast<std::size_t>(call.params["n"]), 'x')); });
		server.listen();
	}

	UniqueFd connect()
	{
		UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
		sockaddr_un address{};
		address.sun_family = AF_UNIX;
		(dir / "agent.sock").copy(address.sun_path, sizeof address.sun_path - 1);
		REQUIRE(::connect(fd.get(), reinterpret_cast<sockaddr *>(&address), sizeof address) == 0);
		return fd;
	}

	void send(const UniqueFd &fd, std::string_view text)
	{
		REQUIRE(pump(loop, [&] {
			const ssize_t put = ::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL);
			if (put > 0)
				text.remove_prefix(static_cast<std::size_t>(put));
			return text.empty() || (put < 0 && errno != EAGAIN);
		}));
	}

	/// What comes until `count` lines are there or the server closes.
	std::string receive(const UniqueFd &fd, int count, bool *closed = nullptr)
	{
		std::string out;
		char buffer[65536];
		const bool ok = pump(loop, [&] {
			const ssize_t got = ::recv(fd.get(), buffer, sizeof buffer, 0);
			if (got > 0)
				out.append(buffer, static_cast<std::size_t>(got));
			const bool over = got == 0 || (got < 0 && errno == ECONNRESET);
			if (over && closed)
				*closed = true;
			return over || std::count(out.begin(), out.end(), '\n') >= count;
		});
		CHECK(ok);
		return out;
	}

	std::string ask(const UniqueFd &fd, const std::string &text)
	{
		send(fd, text);
		return receive(fd, 1);
	}
};

std::string request(const std::string &method, const std::string &params = "{}", int id = 1)
{
	return R"({"jsonrpc":"2.0","id":)" + std::to_string(id) + R"(,"method":")" + method + R"(","params":)" + params + "}\n";
}

} // namespace

TEST_CASE("requests cut anywhere, several in one piece, and notifications")
{
	Bench bench;
	const UniqueFd fd = bench.connect();
	const std::string one = request("echo", R"({"a":1})");
	for (const char c : one)
		bench.send(fd, {&c, 1});
	CHECK(bench.receive(fd, 1) == "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":1}}\n");
	bench.send(fd, request("echo", "{}", 2) + R"({"jsonrpc":"2.0","method":"echo"})" + "\n" + request("nope", "{}", 3));
	const std::string both = bench.receive(fd, 2);
	CHECK(both.find("\"id\":2") != std::string::npos);
	CHECK(both.find("\"id\":3,\"error\":{\"code\":-32601") != std::string::npos);
}

TEST_CASE("handlers that fail, forget or say too much are answered all the same")
{
	Bench bench;
	const UniqueFd fd = bench.connect();
	CHECK(bench.ask(fd, request("throw")).find("A901") != std::string::npos);
	CHECK(bench.ask(fd, request("forget")).find("A901") != std::string::npos);
	CHECK(bench.ask(fd, request("big", R"({"n":1048600})")).find("A103") != std::string::npos);
	CHECK(bench.ask(fd, request("big", R"({"n":1000000})")).size() > 1'000'000);
}

TEST_CASE("sixteen bad lines in a row end the connection, a good one in between does not")
{
	Bench bench;
	const UniqueFd fd = bench.connect();
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 15; i++)
			CHECK(bench.ask(fd, "bad\n").find("-32700") != std::string::npos);
		CHECK(bench.ask(fd, request("echo")).find("result") != std::string::npos);
	}
	std::string bad;
	for (int i = 0; i < 40; i++)
		bad += "bad\n";
	bench.send(fd, bad);
	bool closed = false;
	const std::string answers = bench.receive(fd, 1000, &closed);
	CHECK(closed);
	CHECK(std::count(answers.begin(), answers.end(), '\n') == 16);
	CHECK(bench.ask(bench.connect(), request("echo")).find("result") != std::string::npos);
}

TEST_CASE("a line that is too long is refused and the connection closed")
{
	Bench bench;
	const UniqueFd fd = bench.connect();
	bench.send(fd, std::string((1 << 20) + 1, 'x'));
	bool closed = false;
	const std::string answer = bench.receive(fd, 1000, &closed);
	CHECK(closed);
	CHECK(answer.find("A103") != std::string::npos);
	const UniqueFd again = bench.connect();
	const std::string exact = request("echo", "{\"a\":\"" + std::string((1 << 20) - 70, 'y') + "\"}");
	REQUIRE(exact.size() <= (1 << 20));
	CHECK(bench.ask(again, exact).find("result") != std::string::npos);
}

TEST_CASE("a client that does not read is disconnected, the others are not")
{
	Bench bench;
	const UniqueFd deaf = bench.connect(), other = bench.connect();
	for (int i = 0; i < 12; i++)
		bench.send(deaf, request("big", R"({"n":500000})"));
	CHECK(pump(bench.loop, [&] { return bench.server.client_count() == 1; }));
	CHECK(bench.ask(other, request("echo")).find("result") != std::string::npos);
}

TEST_CASE("what is asked before the end of input is answered before the close")
{
	Bench bench;
	const UniqueFd fd = bench.connect();
	bench.send(fd, request("hold") + request("echo", "{}", 2) + R"({"jsonrpc":"2.0","id":3,"method":"echo"})"); // the last without its end
	REQUIRE(::shutdown(fd.get(), SHUT_WR) == 0);
	const std::string first = bench.receive(fd, 2);
	CHECK(first.find("\"id\":2") != std::string::npos);
	CHECK(first.find("\"id\":3") != std::string::npos);
	bench.held.at(0).result("late");
	bench.held.clear();
	bool closed = false;
	CHECK(bench.receive(fd, 1000, &closed).find("late") != std::string::npos);
	CHECK(closed);
}

TEST_CASE("an answer for a client that has gone is dropped")
{
	Bench bench;
	{
		const UniqueFd fd = bench.connect();
		bench.send(fd, request("hold"));
		REQUIRE(pump(bench.loop, [&] { return bench.held.size() == 1; }));
	}
	REQUIRE(pump(bench.loop, [&] { return bench.server.client_count() == 0; }));
	bench.held[0].result(1);
	bench.held[0].result(2);
	bench.held.clear();
}

TEST_CASE("open requests are limited: nothing more is read until some are answered")
{
	Bench bench;
	const UniqueFd fd = bench.connect();
	const std::string filler(40'000, ' ');
	for (int i = 0; i < 60; i++)
		bench.send(fd, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"hold\"," + filler.substr(0, 4000) + "\"params\":{}}\n");
	for (int i = 0; i < 20; i++)
		bench.loop.run_once(std::chrono::milliseconds(5));
	const std::size_t open = bench.held.size();
	CHECK(open >= 32);
	CHECK(open < 60);
	for (std::size_t answered = 0; answered < 60;) {
		if (answered < bench.held.size())
			bench.held[answered++].result(1);
		bench.loop.run_once(std::chrono::milliseconds(1));
	}
	const std::string answers = bench.receive(fd, 60);
	CHECK(std::count(answers.begin(), answers.end(), '\n') == 60);
}

TEST_CASE("too many consoles are told so")
{
	Bench bench;
	std::vector<UniqueFd> all;
	for (std::size_t i = 0; i < Server::kMaxClients; i++)
		all.push_back(bench.connect());
	REQUIRE(pump(bench.loop, [&] { return bench.server.client_count() == Server::kMaxClients; }));
	bool closed = false;
	CHECK(bench.receive(bench.connect(), 1000, &closed).find("A105") != std::string::npos);
	CHECK(closed);
	all.clear();
	REQUIRE(pump(bench.loop, [&] { return bench.server.client_count() == 0; }));
	CHECK(bench.ask(bench.connect(), request("echo")).find("result") != std::string::npos);
}

TEST_CASE("the socket: its mode, a stale one, a living one, and what is none")
{
	TempDir dir;
	EventLoop loop;
	const auto none = [](const std::shared_ptr<Client> &, std::string_view) {};
	const std::string path = dir / "agent.sock";
	{
		Server first(loop, path, none);
		first.listen();
		struct stat info{};
		REQUIRE(::stat(path.c_str(), &info) == 0);
		CHECK((info.st_mode & 0777) == 0660);
		Server second(loop, path, none);
		CHECK_THROWS_WITH(second.listen(), ("another stepccld already serves " + path).c_str());
	}
	CHECK_FALSE(fs::exists(path));
	// A daemon that was killed leaves its socket behind.
	const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	sockaddr_un address{};
	address.sun_family = AF_UNIX;
	path.copy(address.sun_path, sizeof address.sun_path - 1);
	REQUIRE(::bind(fd, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0);
	::close(fd);
	{
		Server third(loop, path, none);
		CHECK_NOTHROW(third.listen());
	}
	put(path, "precious");
	Server fourth(loop, path, none);
	CHECK_THROWS(fourth.listen());
	CHECK(take(path) == "precious");
	Server fifth(loop, dir / std::string(200, 'x'), none);
	CHECK_THROWS(fifth.listen());
	Server sixth(loop, dir / "missing/agent.sock", none);
	CHECK_THROWS(sixth.listen());
}
