// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <csignal>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/process.hpp"
#include "base/text.hpp"
#include "notify.hpp"
#include "options.hpp"
#include "support.hpp"

using namespace stepccl::agent;
using namespace stepccl::agent::testing;

TEST_CASE("printable text holds no control character and no malformed UTF-8")
{
	CHECK(printable("eth0") == "eth0");
	CHECK(printable("a\nb\x1b[31m\x7f") == "a?b?[31m?");
	CHECK(printable("M\xc3\xbcller") == "M\xc3\xbcller");
	CHECK(printable("\xff\xfe") == "??");
	CHECK(printable("\xc0\xaf") == "??");                   // overlong
	CHECK(printable("\xed\xa0\x80") == "???");              // a surrogate
	CHECK(printable("\xc2\x9b" "31m") == "?31m");           // a C1 control
	CHECK(printable("\xf4\x90\x80\x80") == "????");         // above U+10FFFF
	CHECK(printable("\xe2\x82") == "??");                   // cut off
	CHECK(printable("\xe2\x82\xac\xe2\x82\xac", 5) == "\xe2\x82\xac"); // never half a character
}

TEST_CASE("numbers are whole texts")
{
	CHECK(parse_u64("18446744073709551615") == 18446744073709551615u);
	CHECK_FALSE(parse_u64("18446744073709551616"));
	CHECK_FALSE(parse_u64(""));
	CHECK_FALSE(parse_u64("-1"));
	CHECK_FALSE(parse_u64("1 "));
	CHECK(parse_u64("0x1f", 16) == 31);
	CHECK_FALSE(parse_u64("0x", 16));
	CHECK(parse_i64("-1") == -1);
	CHECK_FALSE(parse_i64("1.5"));
}

TEST_CASE("addresses are literals")
{
	CHECK(is_ip_address("10.77.0.1"));
	CHECK(is_ip_address("fe80::1"));
	CHECK_FALSE(is_ip_address("10.77.0"));
	CHECK_FALSE(is_ip_address("host"));
	CHECK_FALSE(is_ip_address(std::string("1.2.3.4\0x", 9)));
}

TEST_CASE("a file is replaced as a whole, and an error leaves the old one")
{
	TempDir dir;
	const std::string file = dir / "kept.json";
	CHECK(write_file_atomically(file, "one", 0600) == 0);
	CHECK(take(file) == "one");
	struct stat info{};
	REQUIRE(::stat(file.c_str(), &info) == 0);
	CHECK((info.st_mode & 07777) == 0600);
	CHECK(write_file_atomically(file, "two", 0600) == 0);
	CHECK(take(file) == "two");
	CHECK(write_file_atomically(dir / "missing/kept.json", "x", 0600) == ENOENT);
	fs::create_directory(dir / "folder");
	put(dir / "folder/inside", "x");
	CHECK(write_file_atomically(dir / "folder", "x", 0600) != 0);
	CHECK(list_directory(dir.path()).names == std::vector<std::string>{"folder", "kept.json"}); // no temporary is left
}

TEST_CASE("a full disk is an error, and the old file stays")
{
	if (::access("/dev/full", W_OK) != 0)
		return;
	const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
	REQUIRE(full >= 0);
	CHECK(write_all(full, "text") == ENOSPC);
	::close(full);
}

TEST_CASE("reading is bounded and does not wait for a FIFO")
{
	TempDir dir;
	put(dir / "long", std::string(5000, 'x'));
	CHECK(read_file(dir / "long", 4999).error == EFBIG);
	CHECK(read_file(dir / "long", 5000).text.size() == 5000);
	CHECK(read_file(dir / "none").error == ENOENT);
	REQUIRE(::mkfifo((dir / "fifo").c_str(), 0600) == 0);
	CHECK(read_file(dir / "fifo").text.empty());
}

TEST_CASE("a folder's place may not be taken by a link")
{
	TempDir dir;
	CHECK(ensure_directory(dir / "new", 0750) == 0);
	fs::create_directory(dir / "elsewhere");
	fs::create_directory_symlink(dir / "elsewhere", dir / "link");
	CHECK(ensure_directory(dir / "link", 02770) == ENOTDIR);
	struct stat info{};
	REQUIRE(::stat((dir / "elsewhere").c_str(), &info) == 0);
	CHECK((info.st_mode & 02000) == 0);
}

TEST_CASE("a log line is one line, whatever its values hold")
{
	Log log;
	log.set_quiet(true);
	log.write(LogLevel::kWarn, {{"event", "x"}, {"name", "a\nstepccld: ERROR event=\"forged\""}, {"n", 7}});
	const auto lines = log.tail(10);
	REQUIRE(lines.size() == 1);
	CHECK(lines[0] == "stepccld: WARN event=x name=\"a?stepccld: ERROR event=\\\"forged\\\"\" n=7");
	for (int i = 0; i < 1500; i++)
		log.write(LogLevel::kInfo, {{"i", i}});
	CHECK(log.tail(5000).size() == 1000);
	CHECK(log.tail(1)[0] == "stepccld: INFO i=1499");
}

TEST_CASE("the command line")
{
	const Options defaults = parse_options({}, "/opt/x/bin");
	CHECK(defaults.socket == "/run/stepccl/agent.sock");
	CHECK(defaults.perf_path == "/opt/x/bin/stepccl-perf");
	CHECK(defaults.cluster_file() == "/var/lib/stepccl/cluster.json");
	CHECK(parse_options({"--run-dir", "/r"}, "/").socket == "/r/agent.sock");
	CHECK(parse_options({"--socket=/s"}, "/").socket == "/s");
	CHECK(parse_options({"--run-dir", "rel"}, "/").run_dir[0] == '/');
	CHECK(parse_options({"proxy"}, "/").command == Options::Command::kProxy);
	CHECK(parse_options({"--version", "--json"}, "/").json);
	const Options call = parse_options({"call", "settings.set", "{\"paging\":true}", "--socket", "/s"}, "/");
	CHECK(call.command == Options::Command::kCall);
	CHECK(call.method == "settings.set");
	CHECK(call.params == "{\"paging\":true}");
	CHECK(call.socket == "/s");
	CHECK(parse_options({"call", "hello"}, "/").params == "{}");
	CHECK_THROWS_AS(parse_options({"call"}, "/"), std::invalid_argument);
	CHECK_THROWS_AS(parse_options({"call", "a", "{}", "b"}, "/"), std::invalid_argument);
	CHECK_THROWS_AS(parse_options({"--socket"}, "/"), std::invalid_argument);
	CHECK_THROWS_AS(parse_options({"--socket="}, "/"), std::invalid_argument);
	CHECK_THROWS_AS(parse_options({"--nope"}, "/"), std::invalid_argument);
	CHECK_THROWS_AS(parse_options({"--json"}, "/"), std::invalid_argument);
}

TEST_CASE("timers: order, repetition, and cancelling from inside")
{
	EventLoop loop;
	std::string order;
	EventLoop::TimerId every = 0;
	int ticks = 0;
	loop.after(std::chrono::milliseconds(20), [&] { order += 'b'; });
	loop.after(std::chrono::milliseconds(5), [&] { order += 'a'; });
	every = loop.every(std::chrono::milliseconds(5), [&] {
		if (++ticks == 3)
			loop.cancel(every);
	});
	CHECK(pump(loop, [&] { return order == "ab" && ticks == 3; }));
	const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
	while (std::chrono::steady_clock::now() < end)
		loop.run_once(std::chrono::milliseconds(5));
	CHECK(ticks == 3);
}

TEST_CASE("processes: output, exit status, signal, and an executable that is none")
{
	TempDir dir;
	EventLoop loop;
	ProcessReaper reaper(loop);
	ProcessSpec spec;
	spec.path = script(dir, "worker", "echo $GREETING; exit 7\n");
	spec.environment = {"GREETING=hello"};
	Process process = start_process(spec);
	REQUIRE(process.error == 0);
	bool ended = false;
	ExitStatus status;
	reaper.watch(process.pid, [&](ExitStatus s) { ended = true; status = s; });
	REQUIRE(pump(loop, [&] { return ended; }));
	CHECK(status.code == 7);
	char text[16] = {};
	CHECK(::read(process.stdout_pipe.get(), text, sizeof text) == 6);
	CHECK(std::string(text) == "hello\n");

	spec.path = script(dir, "killed", "kill -SEGV $$\n");
	process = start_process(spec);
	ended = false;
	reaper.watch(process.pid, [&](ExitStatus s) { ended = true; status = s; });
	REQUIRE(pump(loop, [&] { return ended; }));
	CHECK(signal_name(status.signal) == "SIGSEGV");

	spec.path = dir / "missing";
	CHECK(start_process(spec).error == ENOENT);
	put(dir / "plain", "x");
	spec.path = dir / "plain";
	CHECK(start_process(spec).error == EACCES);
}

TEST_CASE("what a worker leaves in its process group ends with it")
{
	TempDir dir;
	EventLoop loop;
	ProcessReaper reaper(loop);
	ProcessSpec spec;
	spec.path = script(dir, "worker", "sleep 600 & echo $! > " + (dir / "pid") + "; exit 0\n");
	spec.environment = {"PATH=/usr/bin:/bin"};
	Process process = start_process(spec);
	bool ended = false;
	reaper.watch(process.pid, [&](ExitStatus) { ended = true; });
	REQUIRE(pump(loop, [&] { return ended; }));
	const pid_t left = std::stoi(take(dir / "pid"));
	// Its parent is init now, which may reap it a moment later.
	CHECK(pump(loop, [&] {
		const std::string status = take("/proc/" + std::to_string(left) + "/status");
		return status.empty() || status.find("State:\tZ") != std::string::npos;
	}));
}

TEST_CASE("systemd is told, by path and by abstract name")
{
	TempDir dir;
	for (const std::string &name : {dir / "notify", std::string("@stepccld-test-") + std::to_string(::getpid())}) {
		const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		sockaddr_un address{};
		address.sun_family = AF_UNIX;
		name.copy(address.sun_path, sizeof address.sun_path - 1);
		if (name[0] == '@')
			address.sun_path[0] = '\0';
		REQUIRE(::bind(fd, reinterpret_cast<sockaddr *>(&address), static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())) == 0);
		::setenv("NOTIFY_SOCKET", name.c_str(), 1);
		CHECK(notify_systemd("READY=1") == 0);
		char text[32] = {};
		CHECK(::recv(fd, text, sizeof text, 0) == 7);
		CHECK(std::string(text) == "READY=1");
		::close(fd);
	}
	::setenv("NOTIFY_SOCKET", (dir / "gone").c_str(), 1);
	CHECK(notify_systemd("READY=1") != 0);
	::unsetenv("NOTIFY_SOCKET");
	CHECK(notify_systemd("READY=1") == 0);

	::setenv("WATCHDOG_USEC", "60000000", 1);
	CHECK(watchdog_interval() == std::chrono::milliseconds(30'000));
	::setenv("WATCHDOG_PID", "1", 1);
	CHECK_FALSE(watchdog_interval());
	::unsetenv("WATCHDOG_PID");
	::unsetenv("WATCHDOG_USEC");
}
